//! `evenkeel bench transfers` as a user runs it: on a PostgreSQL and a MariaDB, with money that is all there, and with money that is not.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

mod common;
#[path = "../../sql/tests/common/mariadb.rs"]
mod mariadb;
#[path = "../../sql/tests/common/postgres.rs"]
mod postgres;

use common::{evenkeel, finished};
use mariadb::MariaDb;
use postgres::Postgres;
use serde_json::{Value, json};

/// Two databases.
struct Databases {
    postgres: Postgres,
    mariadb: MariaDb,
    /// In MariaDB.
    database: String,
}

impl Databases {
    /// `None`, with a word about it, where one is not installed and none is required.
    fn start() -> Option<Self> {
        let (postgres, mariadb) = (Postgres::start(&[])?, MariaDb::start(&[])?);
        let database = mariadb.database();
        Some(Self { postgres, mariadb, database })
    }

    /// Measures for a moment; the exit status, all that was printed, and the object on the last line of standard output.
    fn measured(&self) -> (i32, String, Value) {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut command = evenkeel();
        command.args(["bench", "transfers", "--clients", "2", "--json", "--runs", "1"]);
        command.args(["--duration", "300ms", "--warm-up", "50ms", "--dir"]).arg(folder.path());
        command.args(["--postgres", &self.postgres.url(), "--mariadb", &self.mariadb.url(&self.database)]);
        let (status, text) = finished(&mut command);
        let left = std::fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(left, 0, "the server's folder is removed");
        let object = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let report = serde_json::from_str(object).unwrap_or_else(|error| panic!("{error}: {text}"));
        (status, text, report)
    }

    /// The money that the tables of a run hold: what is taken from one and not given to the other is in keys.
    fn money(&self) -> [i64; 2] {
        let sum = "SELECT sum(money) FROM evenkeel_bench";
        let rows = [self.postgres.sql(sum), self.mariadb.sql(&format!("USE {}; {sum}", self.database))];
        rows.map(|text| text.trim().parse().expect("a number"))
    }
}

#[test]
fn transfers_are_measured_beside_a_program_that_does_both_databases_by_hand() {
    let Some(databases) = Databases::start() else { return };
    let before = "CREATE TABLE evenkeel_bench (of_before int)";
    databases.postgres.sql(before);
    databases.mariadb.sql(&format!("USE {}; {before}", databases.database));
    let (status, text, report) = databases.measured();
    assert_eq!(status, 0, "{text}");
    let by_hand = &report["against"][0];
    for one in [&report, by_hand] {
        assert_eq!((&one["experiment"], &one["valid"]), (&json!("transfers"), &json!(true)), "{text}");
        assert_eq!((&one["errors"], &one["lost"]), (&json!(0), &json!(0)), "{text}");
        let settings = json!({ "clients": 2, "duration_ms": 300, "warm_up_ms": 50, "runs": 1 });
        assert_eq!(one["settings"], settings);
        let rate = one["operations_per_second"].as_f64().expect("a rate");
        assert!(rate > 0.0, "{text}");
        let runs = one["runs"].as_array().expect("all runs");
        assert_eq!(runs.len(), 1);
        assert_eq!((&runs[0]["operations_per_second"], &runs[0]["valid"]), (&json!(rate), &json!(true)));
        for figure in ["min", "mean", "max"] {
            assert_eq!(one[figure], json!(rate), "{figure}");
        }
        for quantile in ["p50", "p99", "p999", "max"] {
            assert!(one["latency_us"][quantile].as_f64().expect("a time") > 0.0, "{quantile}: {text}");
        }
    }
    assert_eq!(report["server"], "evenkeel: PostgreSQL + MariaDB + keys");
    assert_eq!(
        (&by_hand["server"], &by_hand["command"]),
        (&json!("by hand: PostgreSQL + MariaDB"), &Value::Null)
    );
    assert!(by_hand["ratio"].as_f64().expect("a ratio") > 0.0 && by_hand["p99_ratio"].is_number(), "{text}");
    // Of ours a third is in keys; the tables stay.
    let [taken, given] = databases.money();
    assert!(taken < 0 && given > 0 && taken + given < 0, "{taken} {given}");
    assert_eq!(databases.postgres.sql("SELECT count(*) FROM pg_prepared_xacts").trim(), "0");
    assert_eq!(databases.mariadb.sql("XA RECOVER"), "");
}

/// Somebody else's money comes with the table, so that no moment has to be met.
#[test]
fn run_whose_money_does_not_add_up_is_no_figure() {
    let Some(databases) = Databases::start() else { return };
    databases.postgres.sql(
        "CREATE FUNCTION find() RETURNS event_trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO evenkeel_bench VALUES (-1, 7); END';
         CREATE EVENT TRIGGER find ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION find()",
    );
    let (status, text, report) = databases.measured();
    assert_eq!(status, 3, "{text}");
    for one in [&report, &report["against"][0]] {
        assert_eq!(
            (&one["valid"], &one["errors"], &one["lost"]),
            (&json!(false), &json!(0), &json!(7)),
            "{text}"
        );
        assert_eq!((&one["runs"][0]["valid"], &one["runs"][0]["lost"]), (&json!(false), &json!(7)));
        assert_eq!((&one["mean"], &one["ratio"]), (&Value::Null, &Value::Null), "it has no place in either");
    }
    assert_eq!(text.matches("NOT VALID, no figure: 0 errors, 7 lost").count(), 2, "{text}");
}
