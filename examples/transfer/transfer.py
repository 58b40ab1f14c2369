"""Money from Ada's row in PostgreSQL to Bob's in MariaDB, and the bank's fee to a key: all of it, or nothing.

    pip install redis "psycopg[binary]" pymysql
    python transfer.py sql NUMBER AMOUNT     the server runs the statements (TX.SQL)
    python transfer.py own NUMBER AMOUNT     sessions of this program's own run and prepare them (TX.ENLIST)

NUMBER names the transfer: one that was made is not made again, so whoever does not know how it ended repeats it.
"""

import os
import sys
import time
from contextlib import closing

import psycopg
import pymysql
import redis

EVENKEEL = os.environ.get("EVENKEEL_URL", "redis://127.0.0.1:6379")
POSTGRES = os.environ.get("POSTGRES_URL", "postgres://app@127.0.0.1/bank")
MARIADB = dict(host=os.environ.get("MARIADB_HOST", "127.0.0.1"), port=int(os.environ.get("MARIADB_PORT", "3306")),
               user=os.environ.get("MARIADB_USER", "app"), password=os.environ.get("MARIADB_PASSWORD", ""),
               database=os.environ.get("MARIADB_DATABASE", "bank"))
FEE = 1
PATIENCE_S = 60

# No retries of the client's own: a statement that was sent twice has run twice. And a commit may take its time.
server = redis.Redis.from_url(EVENKEEL, protocol=3, decode_responses=True, socket_timeout=PATIENCE_S,
                              retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0))


class Refused(Exception):
    """Somebody said no, and nothing has changed anywhere."""


def transfer(work, number, amount):
    """Makes the transfer; returns how it ended, and why."""
    begun = server.execute_command("TX.BEGIN")
    tx = begun["id"]
    try:
        if server.execute_command("TX.DO", tx, "SET", f"transfer:{number}", amount, "NX") is None:
            raise Refused("it was made before")
        server.execute_command("TX.DO", tx, "INCRBY", "fees", FEE)
        work(tx, begun["branches"], amount)
    except Exception as error:
        try:
            server.execute_command("TX.ROLLBACK", tx)
        except redis.RedisError:
            pass  # It is rolled back all the same, after txn.timeout.
        return "aborted", str(error)
    return commit(tx)


def statements(tx, branches, amount):
    """The server works in its own sessions, with parameters as each database writes them."""
    def run(*arguments):
        if server.execute_command("TX.SQL", tx, *arguments) != 1:
            raise Refused("there is no such account")
    run("checking", "UPDATE account SET balance = balance - $1 WHERE id = $2", amount + FEE, "ada")
    run("savings", "UPDATE account SET balance = balance + CAST(? AS SIGNED) WHERE id = ?", amount, "bob")


def branches_of_its_own(tx, branches, amount):
    """This program works in its own sessions, each in the branch that the server has named, and prepares them."""
    server.execute_command("TX.ENLIST", tx, "RESOURCE", "checking")
    with closing(psycopg.connect(POSTGRES)) as session:
        if session.execute("UPDATE account SET balance = balance - %s WHERE id = %s", (amount + FEE, "ada")).rowcount != 1:
            raise Refused("there is no such account")
        session.execute(f"PREPARE TRANSACTION '{branches['checking']}'")
    # Leaving closes the session. MariaDB lets nobody commit the branch before that: the lock tells the server whose it is.
    with closing(pymysql.connect(**MARIADB)) as session, session.cursor() as cursor:
        branch = branches["savings"]
        cursor.execute("SELECT GET_LOCK(%s, 0)", (branch,))
        if cursor.fetchone() != (1,):
            raise Refused("another session holds the lock of this branch")
        server.execute_command("TX.ENLIST", tx, "RESOURCE", "savings")
        cursor.execute(f"XA START '{branch}','lock'")
        if cursor.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, "bob")) != 1:
            raise Refused("there is no such account")
        cursor.execute(f"XA END '{branch}','lock'")
        cursor.execute(f"XA PREPARE '{branch}','lock'")


def commit(tx):
    """Commits, and asks until somebody knows how that ended: to ask again is safe, to work again is not."""
    until = time.monotonic() + PATIENCE_S
    answer = "unknown", "there was no time to ask"
    while time.monotonic() < until:
        try:
            outcome, why = server.execute_command("TX.COMMIT", tx)
            if outcome != "unknown":
                return outcome, why
            answer = outcome, why
        except redis.RedisError as error:
            # The server was started anew and has no work of this transaction: what was not decided is rolled back.
            if str(error).startswith("NOTX"):
                return "unknown", str(error)
            answer = "unknown", str(error)
        time.sleep(0.2)
    return answer


if __name__ == "__main__":
    work = {"sql": statements, "own": branches_of_its_own}[sys.argv[1]]
    outcome, why = transfer(work, sys.argv[2], int(sys.argv[3]))
    print(outcome, why)
    # Unknown: repeat it with the same number. Heuristic: a database did not keep its word; an operator has to look.
    sys.exit({"committed": 0, "aborted": 1}.get(outcome, 2))
