import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

/**
 * Money from Ada's row in PostgreSQL to Bob's in MariaDB, and the bank's fee to a key: all of it, or nothing.
 *
 * <p>{@code mvn -q compile exec:java -Dexec.args="NUMBER AMOUNT"}. NUMBER names the transfer: one that was made is not made again, so
 * whoever does not know how it ended repeats it. The program works in sessions of its own and prepares them; statements that the
 * server runs (TX.SQL) are in the Python example.
 */
public final class Transfer {
    private static final int FEE = 1;
    private static final int PATIENCE_MS = 60_000;
    private static final HostAndPort SERVER = HostAndPort.from(env("EVENKEEL_ADDRESS", "127.0.0.1:6379"));

    /** How a transfer ended, and why. */
    private record Outcome(String word, String why) {}

    public static void main(String[] arguments) {
        Outcome outcome = transfer(arguments[0], Long.parseLong(arguments[1]));
        System.out.println(outcome.word + " " + outcome.why);
        // Unknown: repeat it with the same number. Heuristic: a database did not keep its word; an operator has to look.
        System.exit(outcome.word.equals("committed") ? 0 : outcome.word.equals("aborted") ? 1 : 2);
    }

    private static Outcome transfer(String number, long amount) {
        String tx;
        try (Jedis server = connect()) {
            Map<String, Object> begun = map(ask(server, "TX.BEGIN"));
            tx = text(begun.get("id"));
            try {
                Map<String, Object> branches = map(begun.get("branches"));
                if (ask(server, "TX.DO", tx, "SET", "transfer:" + number, Long.toString(amount), "NX") == null) {
                    throw new SQLException("it was made before");
                }
                ask(server, "TX.DO", tx, "INCRBY", "fees", Integer.toString(FEE));
                inPostgres(server, tx, text(branches.get("checking")), amount + FEE);
                inMariaDb(server, tx, text(branches.get("savings")), amount);
            } catch (SQLException | JedisDataException refused) {
                ask(server, "TX.ROLLBACK", tx);
                return new Outcome("aborted", refused.getMessage());
            }
        } catch (JedisException lost) {
            // It was not committed, so it is rolled back after txn.timeout.
            return new Outcome("aborted", lost.getMessage());
        }
        return commit(tx);
    }

    private static void inPostgres(Jedis server, String tx, String branch, long amount) throws SQLException {
        ask(server, "TX.ENLIST", tx, "RESOURCE", "checking");
        try (Connection session = DriverManager.getConnection(env("POSTGRES_JDBC", "jdbc:postgresql://127.0.0.1/bank?user=app"));
                Statement statement = session.createStatement()) {
            session.setAutoCommit(false);
            update(session, "UPDATE account SET balance = balance - ? WHERE id = ?", amount, "ada");
            statement.execute("PREPARE TRANSACTION '" + branch + "'");
        }
    }

    /** Closes the session behind it: MariaDB lets nobody commit a branch whose session lives. The lock tells the server whose it is. */
    private static void inMariaDb(Jedis server, String tx, String branch, long amount) throws SQLException {
        try (Connection session = DriverManager.getConnection(env("MARIADB_JDBC", "jdbc:mariadb://127.0.0.1/bank?user=app"));
                Statement statement = session.createStatement()) {
            var has = statement.executeQuery("SELECT GET_LOCK('" + branch + "', 0)");
            if (!has.next() || has.getInt(1) != 1) {
                throw new SQLException("another session holds the lock of this branch");
            }
            ask(server, "TX.ENLIST", tx, "RESOURCE", "savings");
            statement.execute("XA START '" + branch + "','lock'");
            update(session, "UPDATE account SET balance = balance + ? WHERE id = ?", amount, "bob");
            statement.execute("XA END '" + branch + "','lock'");
            statement.execute("XA PREPARE '" + branch + "','lock'");
        }
    }

    private static void update(Connection session, String text, long amount, String account) throws SQLException {
        try (PreparedStatement statement = session.prepareStatement(text)) {
            statement.setLong(1, amount);
            statement.setString(2, account);
            if (statement.executeUpdate() != 1) {
                throw new SQLException("there is no such account");
            }
        }
    }

    /** Commits, and asks until somebody knows how that ended: to ask again is safe, to work again is not. */
    private static Outcome commit(String tx) {
        Outcome last = new Outcome("unknown", "there was no time to ask");
        for (long until = System.currentTimeMillis() + PATIENCE_MS; System.currentTimeMillis() < until; pause()) {
            try (Jedis server = connect()) {
                List<?> answer = (List<?>) ask(server, "TX.COMMIT", tx);
                last = new Outcome(text(answer.get(0)), text(answer.get(1)));
                if (!last.word.equals("unknown")) {
                    return last;
                }
            } catch (JedisConnectionException lost) {
                last = new Outcome("unknown", lost.getMessage());
            } catch (JedisDataException refused) {
                // NOTX: the server was started anew and has no work of this transaction: what was not decided is rolled back.
                return new Outcome("unknown", refused.getMessage());
            }
        }
        return last;
    }

    private static Jedis connect() {
        return new Jedis(SERVER.getHost(), SERVER.getPort(), PATIENCE_MS);
    }

    private static Object ask(Jedis server, String command, String... arguments) {
        return server.sendCommand(() -> SafeEncoder.encode(command), arguments);
    }

    private static Map<String, Object> map(Object reply) {
        List<?> items = (List<?>) reply;
        Map<String, Object> map = new HashMap<>();
        for (int at = 0; at + 1 < items.size(); at += 2) {
            map.put(text(items.get(at)), items.get(at + 1));
        }
        return map;
    }

    private static String text(Object reply) {
        return new String((byte[]) reply, StandardCharsets.UTF_8);
    }

    private static String env(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    private static void pause() {
        try {
            Thread.sleep(200);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
