//! The decision log in a real PostgreSQL: group commit, other nodes, broken connections, a server that is killed.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::postgres::Postgres;
use common::{Ear, node, tx, waiter};
use sql::decision_log::{Limits, SqlLog};
use sql::tls::TlsOptions;
use txn::decision_log::{DecisionLog, LogError, OpenError, Opened, Refused};
use txn::id::{NodeName, TxId};

fn open(url: &str, node: &NodeName) -> Result<Opened<SqlLog>, OpenError> {
    SqlLog::open(url, &TlsOptions::default(), node)
}

/// What `work` returns, or a failed test if it takes longer than `limit`.
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("within".into());
    thread.spawn(move || drop(tell.send(work()))).unwrap();
    told.recv_timeout(limit).unwrap_or_else(|_| panic!("not within {limit:?}"))
}

#[test]
fn records_are_there_at_the_next_start_and_removed_ones_are_not() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let opened = open(&postgres.url(), &node()).unwrap();
    let first = opened.epoch;
    assert_eq!((opened.born, opened.records.len()), (first, 0));
    let ear = Arc::new(Ear::default());
    for number in [1, 2, u64::MAX] {
        opened.log.write(tx(1, number), b"first", &waiter(&ear)).unwrap();
        ear.wait(tx(1, number)).unwrap();
    }
    opened.log.write(tx(1, 2), b"second", &waiter(&ear)).unwrap();
    ear.wait(tx(1, 2)).unwrap();
    opened.log.remove(tx(1, 1));
    assert!(matches!(open(&postgres.url(), &node()), Err(OpenError::InUse(_))));
    let other = open(&postgres.url(), &NodeName::new("other").unwrap()).unwrap();
    assert_eq!((other.epoch, other.records.len()), (other.born, 0));
    opened.log.close();
    assert!(matches!(opened.log.write(tx(1, 3), b"", &waiter(&ear)), Err(Refused::Closed(_))));
    let opened = open(&postgres.url(), &node()).unwrap();
    let kept = vec![(tx(1, 2), b"second".to_vec()), (tx(1, u64::MAX), b"first".to_vec())];
    assert_eq!((opened.epoch, opened.born), (first + 1, first));
    assert_eq!(BTreeMap::from_iter(opened.records), BTreeMap::from_iter(kept));
}

#[test]
fn records_that_wait_together_share_a_commit() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let opened = open(&postgres.url(), &node()).unwrap();
    let ear = Arc::new(Ear::default());
    for number in 1..=1_000 {
        opened.log.write(tx(1, number), b"record", &waiter(&ear)).unwrap();
    }
    for number in 1..=1_000 {
        ear.wait(tx(1, number)).unwrap();
    }
    let counters = opened.log.counters();
    assert_eq!(counters.records, 1_000);
    assert!(counters.syncs < 500, "{counters:?}");
}

#[test]
fn server_that_is_not_there_or_syncs_nothing_is_said() {
    let error = open("postgres://nobody:secret@127.0.0.1:1/none", &node()).unwrap_err().to_string();
    assert!(
        error.contains("127.0.0.1:1") && error.contains("refused") && !error.contains("secret"),
        "{error}"
    );
    let error = open("nonsense", &node()).unwrap_err().to_string();
    assert!(error.contains("not an address of PostgreSQL"), "{error}");
    let Some(postgres) = Postgres::start(&["fsync=off"]) else { return };
    let error = open(&postgres.url(), &node()).unwrap_err().to_string();
    assert!(error.contains("fsync = off"), "{error}");
}

/// The connection breaks again and again under load: a new session looks up what became of what was on its way.
#[test]
fn broken_connection_is_looked_up_and_nobody_is_told_what_is_not_so() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let opened = open(&postgres.url(), &node()).unwrap();
    let log = &*opened.log;
    let (stop, told) = (AtomicBool::new(false), std::sync::Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (stop, told) = (&stop, &told);
            scope.spawn(move || {
                let ear = Arc::new(Ear::default());
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let tx = tx(1, thread << 32 | n);
                    log.write(tx, b"record", &waiter(&ear)).unwrap();
                    told.lock().unwrap().insert(tx, ear.wait(tx));
                }
            });
        }
        for _ in 0..10 {
            let before = log.counters().records;
            while log.counters().records < before + 50 {
                std::thread::yield_now();
            }
            postgres.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'evenkeel'",
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(log.is_sound());
    log.close();
    let found: BTreeMap<TxId, Vec<u8>> =
        open(&postgres.url(), &node()).unwrap().records.into_iter().collect();
    for (tx, result) in told.into_inner().unwrap() {
        match result {
            Ok(()) => assert!(found.contains_key(&tx), "{tx} was acknowledged"),
            Err(LogError::Absent(_)) => assert!(!found.contains_key(&tx), "{tx} was said to be absent"),
            Err(LogError::Unknown(what)) => panic!("{tx}: {what}"),
        }
    }
}

/// `kill -9` of the server while eight threads write: what was acknowledged is there when it runs again.
#[test]
fn killed_server_keeps_what_was_acknowledged() {
    let Some(mut postgres) = Postgres::start(&[]) else { return };
    let opened = open(&postgres.url(), &node()).unwrap();
    let log = &*opened.log;
    let (acked, told) = (AtomicU64::new(0), std::sync::Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (acked, told) = (&acked, &told);
            scope.spawn(move || {
                let ear = Arc::new(Ear::default());
                for n in 0.. {
                    let tx = tx(1, thread << 32 | n);
                    if log.write(tx, b"record", &waiter(&ear)).is_err() {
                        return;
                    }
                    let result = ear.wait(tx);
                    let is_ok = result.is_ok();
                    told.lock().unwrap().insert(tx, result);
                    acked.fetch_add(u64::from(is_ok), Ordering::Relaxed);
                    if !is_ok {
                        return;
                    }
                }
            });
        }
        while acked.load(Ordering::Relaxed) < 500 {
            std::thread::yield_now();
        }
        postgres.kill();
    });
    assert!(!log.is_sound(), "ten seconds without a server");
    log.close();
    postgres.run(&[]);
    let opened = open(&postgres.url(), &node()).unwrap();
    assert_eq!(opened.epoch, opened.born + 1);
    let found: BTreeMap<TxId, Vec<u8>> = opened.records.into_iter().collect();
    let told = told.into_inner().unwrap();
    assert!(
        told.values().any(|result| matches!(result, Err(LogError::Unknown(_)))),
        "something was on its way"
    );
    for (tx, result) in &told {
        match result {
            Ok(()) => assert!(found.contains_key(tx), "{tx} was acknowledged"),
            Err(LogError::Absent(_)) => assert!(!found.contains_key(tx), "{tx} was said to be absent"),
            Err(LogError::Unknown(_)) => {}
        }
    }
}

/// The database refused a removal, the log put it back, and `close` tried it again at once, for ever.
#[test]
fn close_ends_although_the_database_refuses_removals() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let log = open(&postgres.url(), &node()).unwrap().log;
    let ear = Arc::new(Ear::default());
    log.write(tx(1, 1), b"record", &waiter(&ear)).unwrap();
    ear.wait(tx(1, 1)).unwrap();
    postgres.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
        CREATE TRIGGER refuse BEFORE DELETE ON evenkeel_decisions FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    log.remove(tx(1, 1));
    within(BOUNDED, move || log.close());
    let kept = open(&postgres.url(), &node()).unwrap().records;
    assert_eq!(kept, [(tx(1, 1), b"record".to_vec())], "what was not removed comes back");
}

/// Each session altered a table: only its owner may, and it waits for all who read it.
#[test]
fn user_who_was_granted_the_tables_opens_the_log() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    open(&postgres.url(), &node()).unwrap().log.close();
    postgres.sql(
        "CREATE ROLE keeper LOGIN;
        GRANT SELECT, INSERT, UPDATE, DELETE ON evenkeel_nodes, evenkeel_decisions TO keeper",
    );
    let url = postgres.url().replace("//postgres@", "//keeper@");
    let opened = open(&url, &node()).unwrap();
    assert_eq!(opened.epoch, opened.born + 1);
    let ear = Arc::new(Ear::default());
    opened.log.write(tx(1, 1), b"record", &waiter(&ear)).unwrap();
    ear.wait(tx(1, 1)).unwrap();
    opened.log.close();
    assert_eq!(open(&url, &node()).unwrap().records, [(tx(1, 1), b"record".to_vec())]);
}

#[test]
fn table_without_the_first_epoch_gets_its_column() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    postgres.sql(
        "CREATE TABLE evenkeel_nodes (node text PRIMARY KEY, epoch bigint NOT NULL);
        CREATE TABLE evenkeel_decisions (node text NOT NULL, epoch bigint NOT NULL, number bigint NOT NULL,
            record bytea NOT NULL, PRIMARY KEY (node, epoch, number));
        INSERT INTO evenkeel_nodes VALUES ('test', 7);
        INSERT INTO evenkeel_decisions VALUES ('test', 7, 1, 'record')",
    );
    let opened = open(&postgres.url(), &node()).unwrap();
    assert_eq!((opened.epoch, opened.born), (8, 1));
    assert_eq!(opened.records, [(tx(7, 1), b"record".to_vec())]);
}

/// The server said nothing any more and kept its connections: the log waited for a session, and `close` for the log, for ever.
#[test]
fn silent_server_leaves_nobody_waiting() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    let log = open_soon(&postgres).unwrap().log;
    let ear = Arc::new(Ear::default());
    let silent = Silent::make(&postgres);
    log.write(tx(1, 1), b"on its way", &waiter(&ear)).unwrap();
    let hears = Arc::clone(&ear);
    let heard = within(BOUNDED, move || hears.wait(tx(1, 1)));
    assert!(matches!(&heard, Err(LogError::Unknown(what)) if what.contains("no answer")), "{heard:?}");
    assert!(!log.is_sound());
    assert!(matches!(log.write(tx(1, 2), b"", &waiter(&ear)), Err(Refused::Closed(_))));
    within(BOUNDED, move || log.close());
    let error = within(BOUNDED, {
        let url = postgres.url();
        move || SqlLog::open_within(&url, &TlsOptions::default(), &node(), SHORT).unwrap_err().to_string()
    });
    assert!(error.contains("no answer within 3s"), "{error}");
    drop(silent);
}

#[test]
fn close_ends_although_the_server_is_silent() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    for has_removals in [false, true] {
        let log = open_soon(&postgres).unwrap().log;
        let silent = Silent::make(&postgres);
        if has_removals {
            log.remove(tx(1, 1));
        }
        within(BOUNDED, move || log.close());
        drop(silent);
    }
}

/// Opens the log with short limits, once nobody else has it.
fn open_soon(postgres: &Postgres) -> Result<Opened<SqlLog>, OpenError> {
    loop {
        let opened = SqlLog::open_within(&postgres.url(), &TlsOptions::default(), &node(), SHORT);
        if !matches!(opened, Err(OpenError::InUse(_))) {
            return opened;
        }
    }
}

/// A server whose processes are stopped, until this is dropped.
struct Silent(Vec<String>);

impl Silent {
    fn make(postgres: &Postgres) -> Self {
        // First who starts the others. The kernel goes on to accept connections for it.
        let pids = postgres.sql(
            "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)
            UNION ALL SELECT pid::text FROM pg_stat_activity WHERE application_name = 'evenkeel'",
        );
        let silent = Self(pids.lines().map(str::to_owned).collect());
        assert!(silent.0.len() > 1, "a backend of the log: {pids}");
        silent.signal("-STOP");
        silent
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").arg(signal).args(&self.0).status().unwrap().success());
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

const SHORT: Limits = Limits { answer_max: Duration::from_secs(2), look_up_max: Duration::from_secs(2) };
/// What ends, ends within.
const BOUNDED: Duration = Duration::from_secs(20);
