//! The program that a user would write: both databases prepare in parallel, then both commit in parallel.
//!
//! Nothing decides: if it ends between the two, branches stay prepared until somebody looks. That is what it is spared.

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts, OptsBuilder};
use tokio_postgres::{Client, NoTls, Statement};

use super::{ACCOUNTS_EACH, Transfers, runtime};
use crate::Failure;
use crate::drive::Recorder;

/// Makes the tables, and rows for all clients.
///
/// # Errors
/// A database does not answer, or refuses.
pub(super) fn prepare(of: &Transfers) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let (postgres, mut mariadb) = connect(of).await?;
        let rows = u32::from(of.clients) * ACCOUNTS_EACH;
        let postgres_setup = format!(
            "DROP TABLE IF EXISTS evenkeel_bench;
             CREATE TABLE evenkeel_bench (id integer PRIMARY KEY, money bigint NOT NULL);
             INSERT INTO evenkeel_bench SELECT id, 0 FROM generate_series(0, {} - 1) AS id",
            rows
        );
        postgres.batch_execute(&postgres_setup).await.map_err(of_postgres)?;
        mariadb.query_drop("DROP TABLE IF EXISTS evenkeel_bench").await.map_err(of_mariadb)?;
        let table =
            "CREATE TABLE evenkeel_bench (id integer PRIMARY KEY, money bigint NOT NULL) ENGINE = InnoDB";
        mariadb.query_drop(table).await.map_err(of_mariadb)?;
        let values: Vec<String> = (0..rows).map(|id| format!("({id}, 0)")).collect();
        let insert = format!("INSERT INTO evenkeel_bench VALUES {}", values.join(", "));
        mariadb.query_drop(insert).await.map_err(of_mariadb)
    })
}

/// The money in both databases.
///
/// # Errors
/// A database does not answer.
pub(super) fn money(of: &Transfers) -> Result<i64, Failure> {
    runtime()?.block_on(async {
        let (postgres, mut mariadb) = connect(of).await?;
        let sum = "SELECT CAST(sum(money) AS bigint) FROM evenkeel_bench";
        let row = postgres.query_one(sum, &[]).await.map_err(of_postgres)?;
        let sum = "SELECT CAST(sum(money) AS SIGNED) FROM evenkeel_bench";
        let other: Option<i64> = mariadb.query_first(sum).await.map_err(of_mariadb)?;
        Ok(row.get::<_, i64>(0) + other.unwrap_or(0))
    })
}

/// All clients, on a thread of their own.
///
/// # Errors
/// They cannot connect.
pub(super) fn run(of: &Transfers) -> Result<Recorder, Failure> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut hands = Vec::new();
        for number in 0..of.clients {
            let (postgres, mariadb) = connect(of).await?;
            let text = "UPDATE evenkeel_bench SET money = money - 1 WHERE id = $1";
            let update = postgres.prepare(text).await.map_err(of_postgres)?;
            hands.push(Hand { number: u32::from(number), postgres, update, mariadb });
        }
        of.drive(hands).await
    })
}

/// One client.
struct Hand {
    number: u32,
    postgres: Client,
    update: Statement,
    mariadb: Conn,
}

impl super::Client for Hand {
    async fn transfer(&mut self, count: u32) -> Result<(), Failure> {
        let account = self.number * ACCOUNTS_EACH + count % ACCOUNTS_EACH;
        let id = format!("hand_{}_{count}", self.number);
        let (postgres, update, mariadb) = (&self.postgres, &self.update, &mut self.mariadb);
        let in_postgres = async {
            postgres.batch_execute("BEGIN").await?;
            postgres.execute(update, &[&account.cast_signed()]).await?;
            postgres.batch_execute(&format!("PREPARE TRANSACTION '{id}'")).await
        };
        let in_mariadb = async {
            mariadb.query_drop(format!("XA START '{id}'")).await?;
            let text = "UPDATE evenkeel_bench SET money = money + 1 WHERE id = ?";
            mariadb.exec_drop(text, (account,)).await?;
            mariadb.query_drop(format!("XA END '{id}'")).await?;
            mariadb.query_drop(format!("XA PREPARE '{id}'")).await
        };
        let (one, other) = tokio::join!(in_postgres, in_mariadb);
        one.map_err(of_postgres)?;
        other.map_err(of_mariadb)?;
        let commit = format!("COMMIT PREPARED '{id}'");
        let (one, other) =
            tokio::join!(postgres.batch_execute(&commit), mariadb.query_drop(format!("XA COMMIT '{id}'")));
        one.map_err(of_postgres)?;
        other.map_err(of_mariadb)
    }
}

async fn connect(of: &Transfers) -> Result<(Client, Conn), Failure> {
    let (client, connection) = tokio_postgres::connect(&of.postgres, NoTls).await.map_err(of_postgres)?;
    tokio::spawn(async move {
        // What went wrong is told to whoever asks for something next.
        let _ = connection.await;
    });
    let options = Opts::from_url(&of.mariadb).map_err(|error| format!("--mariadb: {error}"))?;
    // As the server connects: the driver would leave the address for the database's socket in the file system, which is quicker.
    let options = OptsBuilder::from_opts(options).prefer_socket(Some(false));
    Ok((client, Conn::new(options).await.map_err(of_mariadb)?))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn of_postgres(error: tokio_postgres::Error) -> Failure {
    format!("PostgreSQL: {}", error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string))
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn of_mariadb(error: mysql_async::Error) -> Failure {
    format!("MariaDB: {error}")
}
