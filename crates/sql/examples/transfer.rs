//! A transfer between PostgreSQL and MariaDB in one atomic step, coordinated by this process: there is no server.
//!
//! `cargo run -p sql --example transfer -- POSTGRES_URL MARIADB_URL DIR [AMOUNT]`
//!
//! The databases have the tables of `examples/transfer`. DIR keeps decisions: the next start with the same one ends what this one left, so it
//! must not be lost, and belongs to one process at a time.
//!
//! It prints how the transfer ended, and why, and exits with 0 (committed), 1 (aborted: nothing has changed) or 2 (unknown, heuristic: look before
//! it is made again).
#![allow(clippy::disallowed_methods, reason = "an application's own clock and pauses")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clock::SystemClock;
use sql::mariadb::MariaDb;
use sql::postgres::Postgres;
use sql::{Answered, Database, DatabaseOptions, Drivers, Statement};
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::journal::JournalLog;
use txn::id::{BranchId, NodeName};
use txn::protocol::Outcome;
use txn::resource::{Resource, Unready};
use vfs::RealDisk;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (status, told) = run(&arguments);
    println!("{told}");
    ExitCode::from(status)
}

/// What the program exits with, and what it prints.
pub(crate) fn run(arguments: &[String]) -> (u8, String) {
    let outcome = match arguments {
        [postgres, mariadb, dir] => transfer(postgres, mariadb, dir, "10"),
        [postgres, mariadb, dir, amount] => transfer(postgres, mariadb, dir, amount),
        _ => Err("it wants POSTGRES_URL MARIADB_URL DIR [AMOUNT]".into()),
    };
    told(&outcome.unwrap_or_else(|error| Outcome::Aborted(error.to_string())))
}

/// Unknown: the next start with this folder ends it. Heuristic: an operator has to look. Either may have moved the money.
pub(crate) fn told(outcome: &Outcome) -> (u8, String) {
    match outcome {
        Outcome::Committed => (0, "committed".to_owned()),
        Outcome::Aborted(why) => (1, format!("aborted {why}")),
        Outcome::Unknown(why) => (2, format!("unknown {why}")),
        Outcome::Heuristic(why) => (2, format!("heuristic {why}")),
    }
}

/// Makes the transfer.
///
/// # Errors
/// There was nothing to commit, so nothing has changed.
fn transfer(postgres: &str, mariadb: &str, dir: &str, amount: &str) -> Result<Outcome, Box<dyn Error>> {
    // In the databases, branches are known by this name: no two processes may have the same.
    let node = NodeName::new("transfer-example")?;
    let drivers = Drivers::start()?;
    let checking = Postgres::start(&DatabaseOptions::new("checking", postgres, node.clone()), &drivers)?;
    let savings = MariaDb::start(DatabaseOptions::new("savings", mariadb, node.clone()), &drivers)?;
    let (clock, disk) = (Arc::new(SystemClock), Arc::new(RealDisk));
    let log = JournalLog::open(disk, clock.clone(), dir.as_ref(), &node, journal::Options::default())?;
    let started = Started { epoch: log.epoch, born: log.born, records: log.records };
    let resources: Vec<Arc<dyn Resource>> = vec![checking.clone(), savings.clone()];
    let coordinator = Coordinator::start(clock, log.log, &started, resources, Options::new(node))?;
    wait_ready(&*checking)?;
    wait_ready(&*savings)?;

    let mut lane = coordinator.lane();
    let tx = lane.begin(Duration::from_secs(30))?;
    let (from, to) = (lane.enlist(tx, 0)?, lane.enlist(tx, 1)?);
    let take = "UPDATE account SET balance = balance - $1 WHERE id = $2";
    let give = "UPDATE account SET balance = balance + CAST(? AS SIGNED) WHERE id = ?";
    let worked = change(&*checking, from, take, &[amount, "ada"])
        .and_then(|()| change(&*savings, to, give, &[amount, "bob"]));
    if let Err(why) = worked {
        lane.rollback(tx, &why)?;
        return Ok(Outcome::Aborted(why));
    }
    // It refuses only what it has not begun to commit: a transaction whose time was over, say.
    Ok(lane.commit_and_wait(tx)?)
}

/// Changes one row in a branch.
fn change(database: &dyn Database, branch: BranchId, text: &str, parameters: &[&str]) -> Result<(), String> {
    let parameters = parameters.iter().map(|it| Some(it.as_bytes().to_vec())).collect();
    let (tell, told) = channel();
    let done = Box::new(move |answered| drop(tell.send(answered)));
    database.run(branch, Statement { text: text.to_owned(), parameters }, done);
    match told.recv().map_err(|error| error.to_string())? {
        Ok(Answered::Changed(1)) => Ok(()),
        Ok(_) => Err("there is no such account".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Databases are connected to in the background.
fn wait_ready(database: &dyn Database) -> Result<(), Unready> {
    let began = Instant::now();
    while let Err(why) = database.ready() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
