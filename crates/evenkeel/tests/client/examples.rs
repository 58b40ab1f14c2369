//! `examples/transfer` as a user runs it: PostgreSQL, MariaDB and a server, and money that neither appears nor is lost.
//!
//! Python is the interpreter in `EVENKEEL_PYTHON`, as in `clients`.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::path::{Path, PathBuf};
use std::process::Command;

use resp::Value;
use txn::protocol::Outcome;

use crate::common::{self, Server, bulk, eventually};
use crate::mariadb::{self, MariaDb};
use crate::postgres::Postgres;
use crate::transfer;

/// Two databases and a server.
struct Bank {
    postgres: Postgres,
    mariadb: MariaDb,
    /// In MariaDB.
    database: String,
    folder: tempfile::TempDir,
    server: Server,
}

impl Bank {
    /// `None`, with a word about it, where a database is not installed and none is required.
    fn open() -> Option<Self> {
        let (postgres, mariadb) = (Postgres::start(&[])?, MariaDb::start(&[])?);
        postgres.sql(include_str!("../../../../examples/transfer/postgres.sql"));
        let database = mariadb.database();
        mariadb
            .sql(&format!("USE {database}; {}", include_str!("../../../../examples/transfer/mariadb.sql")));
        let folder = tempfile::tempdir().expect("a folder for the test");
        let settings = format!(
            "[resource.checking]\nurl = '{}'\n[resource.savings]\nurl = '{}'\n",
            postgres.url(),
            mariadb.url(&database)
        );
        std::fs::write(folder.path().join("settings.toml"), settings).expect("written");
        let server = serve(folder.path());
        Some(Self { postgres, mariadb, database, folder, server })
    }

    /// Runs a program with `arguments`; its exit status, and what it printed.
    fn run(&self, program: &mut Command, arguments: &[&str]) -> (i32, String) {
        let address = format!("127.0.0.1:{}", self.server.port);
        program
            .args(arguments)
            .env("EVENKEEL_URL", format!("redis://{address}"))
            .env("EVENKEEL_ADDRESS", address)
            .env("POSTGRES_URL", self.postgres.url())
            .env("MARIADB_PORT", self.mariadb.port().to_string())
            .envs([
                ("MARIADB_USER", mariadb::CLIENT),
                ("MARIADB_PASSWORD", "secret"),
                ("MARIADB_DATABASE", &self.database),
            ]);
        common::finished(program)
    }

    /// Ada's balance, Bob's, and the fees.
    fn sums(&self) -> [i64; 3] {
        let number = |text: &str| text.trim().parse().expect("a number");
        let fees = match self.server.call(&["GET", "fees"]) {
            Value::Bulk(text) => number(&String::from_utf8_lossy(&text)),
            _ => 0,
        };
        let rows = "SELECT sum(balance) FROM account";
        [
            number(&self.postgres.sql(rows)),
            number(&self.mariadb.sql(&format!("USE {}; {rows}", self.database))),
            fees,
        ]
    }
}

/// A server on `folder` that both databases are ready for.
fn serve(folder: &Path) -> Server {
    let settings = format!("--config={}", folder.join("settings.toml").display());
    let server = Server::start(&folder.join("data"), &[&settings]);
    eventually("both databases are ready", || match server.call(&["INFO", "transactions"]) {
        Value::Bulk(info) => String::from_utf8_lossy(&info).matches("state=ready").count() == 2,
        _ => false,
    });
    server
}

/// Makes a command that runs it.
type Program<'a> = dyn Fn() -> Command + 'a;

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/transfer").join(path)
}

#[test]
fn transfers_in_python_and_go_move_all_or_nothing() {
    let python = std::env::var_os("EVENKEEL_PYTHON")
        .expect("EVENKEEL_PYTHON names a Python with the clients: `cargo xtask test clients` makes one");
    let Some(bank) = Bank::open() else { return };
    let before = bank.sums();
    let script = || {
        let mut command = Command::new(&python);
        command.arg(example("transfer.py"));
        command
    };
    let go = bank.folder.path().join("transfer");
    let built = Command::new("go").args(["build", "-o"]).arg(&go).current_dir(example("go")).output();
    let built = built.expect("go is installed (apt-get install golang-go)");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let programs: [(&str, &Program<'_>, &[&str]); 3] = [
        ("TX.SQL", &script, &["sql"]),
        ("own branches", &script, &["own"]),
        ("Go", &|| Command::new(&go), &[]),
    ];
    for (at, (name, program, how)) in programs.iter().enumerate() {
        let run = |number: usize, amount: &str| {
            bank.run(&mut program(), &[how, &[number.to_string().as_str(), amount][..]].concat())
        };
        let (status, text) = run(at, "10");
        assert_eq!((status, text.trim()), (0, "committed"), "{name}");
        let (status, text) = run(at, "10");
        assert_eq!((status, text.trim()), (1, "aborted it was made before"), "{name}");
        let (status, text) = run(at + programs.len(), "5000");
        assert_eq!(status, 1, "{name}: Ada has not so much: {text}");
    }
    let made = programs.len() as i64;
    assert_eq!(bank.sums(), [before[0] - 11 * made, before[1] + 10 * made, before[2] + made]);
    assert_eq!(bank.postgres.sql("SELECT count(*) FROM pg_prepared_xacts").trim(), "0");
    assert_eq!(bank.mariadb.sql("XA RECOVER"), "");
}

/// It is called here as its `main` does: a stage builds no examples of other crates, and cargo does not tell a test where they are.
#[test]
fn embedded_transfer_moves_all_or_nothing_without_a_server() {
    let Some(bank) = Bank::open() else { return };
    let [ada, bob, fees] = bank.sums();
    let (mariadb, folder) = (bank.mariadb.url(&bank.database), bank.folder.path().join("decisions"));
    let run = |rest: &[&str]| {
        let urls = [bank.postgres.url(), mariadb.clone(), folder.to_string_lossy().into_owned()];
        let (status, text) = transfer::run(
            &urls.into_iter().chain(rest.iter().map(|it| (*it).to_owned())).collect::<Vec<_>>(),
        );
        assert!(!text.contains('\n'), "{text}");
        (status, text)
    };
    assert_eq!(run(&[]), (0, "committed".to_owned()));
    assert_eq!(bank.sums(), [ada - 10, bob + 10, fees]);
    assert_eq!(run(&["25"]), (0, "committed".to_owned()));
    let made = [ada - 35, bob + 35, fees];
    assert_eq!(bank.sums(), made);
    let (status, text) = run(&["5000"]);
    assert!(status == 1 && text.starts_with("aborted ") && text.contains("account_balance_check"), "{text}");
    bank.mariadb.sql(&format!("UPDATE {}.account SET id = 'eve'", bank.database));
    assert_eq!(
        run(&["10"]),
        (1, "aborted there is no such account".to_owned()),
        "what Ada gave is given back"
    );
    assert_eq!(run(&["10", "20"]).0, 1);
    assert_eq!(bank.sums(), made);
    assert_eq!(bank.postgres.sql("SELECT count(*) FROM pg_prepared_xacts").trim(), "0");
    assert_eq!(bank.mariadb.sql("XA RECOVER"), "");
}

/// Status 1 says that nothing has changed: whoever reads it makes the transfer again.
#[test]
fn embedded_transfer_that_may_have_been_made_is_never_told_as_aborted() {
    let told = |outcome: fn(String) -> Outcome| transfer::told(&outcome("why".to_owned()));
    assert_eq!(told(Outcome::Aborted), (1, "aborted why".to_owned()));
    assert_eq!(told(Outcome::Unknown), (2, "unknown why".to_owned()));
    assert_eq!(told(Outcome::Heuristic), (2, "heuristic why".to_owned()));
}

/// A client that lost the answer to TX.COMMIT with the server asked the next one, and was told that there is no such transaction,
/// of one that was committed.
#[test]
fn commit_that_is_asked_for_again_after_a_crash_tells_the_outcome() {
    let Some(mut bank) = Bank::open() else { return };
    let id = |server: &Server| match server.call(&["TX.BEGIN"]) {
        Value::Array(items) => match &items[1] {
            Value::Bulk(id) => String::from_utf8_lossy(id).into_owned(),
            other => panic!("no identifier: {other:?}"),
        },
        other => panic!("no transaction: {other:?}"),
    };
    let (made, left) = (id(&bank.server), id(&bank.server));
    for tx in [&made, &left] {
        bank.server.call(&["TX.DO", tx, "SET", tx, "1"]);
        let one = bank.server.call(&["TX.SQL", tx, "checking", "INSERT INTO account VALUES ($1, 0)", tx]);
        assert_eq!(one, Value::Integer(1));
    }
    // Behind it may be who has not carried it out yet.
    let outcome = |server: &Server, end: &str, tx: &str| match server.call(&[end, tx]) {
        Value::Array(items) => items[0].clone(),
        other => other,
    };
    assert_eq!(outcome(&bank.server, "TX.COMMIT", &made), bulk("committed"));
    bank.server.child.kill().expect("killed");
    bank.server.child.wait().expect("it ends");
    bank.server = serve(bank.folder.path());
    assert_eq!(outcome(&bank.server, "TX.COMMIT", &made), bulk("committed"));
    assert_eq!(outcome(&bank.server, "TX.ROLLBACK", &made), bulk("committed"));
    match bank.server.call(&["TX.COMMIT", &left]) {
        Value::Error(text) => assert!(text.starts_with(b"NOTX"), "{}", String::from_utf8_lossy(&text)),
        other => panic!("it was not committed: {other:?}"),
    }
    assert_eq!(bank.server.call(&["EXISTS", &made, &left]), Value::Integer(1));
    eventually("the row is there", || bank.postgres.sql("SELECT count(*) FROM account").trim() == "2");
}
