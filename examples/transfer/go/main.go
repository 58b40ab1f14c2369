// Money from Ada's row in PostgreSQL to Bob's in MariaDB, and the bank's fee to a key: all of it, or nothing.
//
//	go run . NUMBER AMOUNT
//
// NUMBER names the transfer: one that was made is not made again, so whoever does not know how it ended repeats it.
// The program works in sessions of its own and prepares them; statements that the server runs (TX.SQL) are in the Python example.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

const (
	fee      = 1
	patience = time.Minute
)

var (
	ctx = context.Background()
	// No retries of the client's own: work that was sent twice was done twice. And a commit may take its time.
	server = redis.NewClient(&redis.Options{
		Addr: env("EVENKEEL_ADDRESS", "127.0.0.1:6379"), MaxRetries: -1, ReadTimeout: patience,
	})
	errAccount = errors.New("there is no such account")
)

// transfer makes the transfer; returns how it ended, and why.
func transfer(number string, amount int) (string, string) {
	begun, err := server.Do(ctx, "TX.BEGIN").Result()
	if err != nil {
		return "aborted", err.Error()
	}
	reply := begun.(map[any]any)
	tx, branches := reply["id"].(string), reply["branches"].(map[any]any)
	if err := work(tx, branches, number, amount); err != nil {
		server.Do(ctx, "TX.ROLLBACK", tx) // If this is lost, too, it is rolled back after txn.timeout.
		return "aborted", err.Error()
	}
	return commit(tx)
}

func work(tx string, branches map[any]any, number string, amount int) error {
	err := server.Do(ctx, "TX.DO", tx, "SET", "transfer:"+number, amount, "NX").Err()
	if err == redis.Nil {
		return errors.New("it was made before")
	} else if err != nil {
		return err
	}
	if err := server.Do(ctx, "TX.DO", tx, "INCRBY", "fees", fee).Err(); err != nil {
		return err
	}
	if err := inPostgres(tx, branches["checking"].(string), amount+fee); err != nil {
		return err
	}
	return inMariaDB(tx, branches["savings"].(string), amount)
}

func inPostgres(tx, branch string, amount int) error {
	if err := server.Do(ctx, "TX.ENLIST", tx, "RESOURCE", "checking").Err(); err != nil {
		return err
	}
	session, err := pgx.Connect(ctx, env("POSTGRES_URL", "postgres://app@127.0.0.1/bank"))
	if err != nil {
		return err
	}
	defer session.Close(ctx)
	if _, err := session.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	done, err := session.Exec(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", amount, "ada")
	if err == nil && done.RowsAffected() != 1 {
		err = errAccount
	}
	if err == nil {
		_, err = session.Exec(ctx, "PREPARE TRANSACTION '"+branch+"'")
	}
	return err
}

// inMariaDB closes the session behind it: MariaDB lets nobody commit a branch whose session lives. The lock tells the server whose it is.
func inMariaDB(tx, branch string, amount int) error {
	options := mysql.NewConfig()
	options.Net, options.Addr = "tcp", env("MARIADB_HOST", "127.0.0.1")+":"+env("MARIADB_PORT", "3306")
	options.User, options.Passwd = env("MARIADB_USER", "app"), os.Getenv("MARIADB_PASSWORD")
	options.DBName = env("MARIADB_DATABASE", "bank")
	pool, err := sql.Open("mysql", options.FormatDSN())
	if err != nil {
		return err
	}
	defer pool.Close()
	session, err := pool.Conn(ctx) // One session for all that follows.
	if err != nil {
		return err
	}
	defer session.Close()
	var has sql.NullInt64
	if err := session.QueryRowContext(ctx, "SELECT GET_LOCK('"+branch+"', 0)").Scan(&has); err != nil {
		return err
	} else if has.Int64 != 1 {
		return errors.New("another session holds the lock of this branch")
	}
	if err := server.Do(ctx, "TX.ENLIST", tx, "RESOURCE", "savings").Err(); err != nil {
		return err
	}
	if _, err := session.ExecContext(ctx, "XA START '"+branch+"','lock'"); err != nil {
		return err
	}
	done, err := session.ExecContext(ctx, "UPDATE account SET balance = balance + ? WHERE id = ?", amount, "bob")
	if err != nil {
		return err
	}
	if rows, err := done.RowsAffected(); err != nil || rows != 1 {
		return errAccount
	}
	if _, err := session.ExecContext(ctx, "XA END '"+branch+"','lock'"); err != nil {
		return err
	}
	_, err = session.ExecContext(ctx, "XA PREPARE '"+branch+"','lock'")
	return err
}

// commit commits, and asks until somebody knows how that ended: to ask again is safe, to work again is not.
func commit(tx string) (outcome, why string) {
	outcome, why = "unknown", "there was no time to ask"
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		answer, err := server.Do(ctx, "TX.COMMIT", tx).StringSlice()
		switch {
		case err == nil && answer[0] != "unknown":
			return answer[0], answer[1]
		case err == nil:
			why = answer[1]
		case strings.HasPrefix(err.Error(), "NOTX"):
			// The server was started anew and has no work of this transaction: what was not decided is rolled back.
			return "unknown", err.Error()
		default:
			why = err.Error()
		}
	}
	return outcome, why
}

func env(name, otherwise string) string {
	if value, ok := os.LookupEnv(name); ok {
		return value
	}
	return otherwise
}

func main() {
	amount, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	outcome, why := transfer(os.Args[1], amount)
	fmt.Println(outcome, why)
	// Unknown: repeat it with the same number. Heuristic: a database did not keep its word; an operator has to look.
	if status, ok := map[string]int{"committed": 0, "aborted": 1}[outcome]; ok {
		os.Exit(status)
	}
	os.Exit(2)
}
