//! A transfer between PostgreSQL and MariaDB in one atomic step, coordinated by this process: there is no server.
//!
//! `cargo run -p txn --example transfer -- POSTGRES_URL MARIADB_URL DIR [AMOUNT]`
//!
//! The databases have the tables of `examples/transfer`. DIR keeps decisions: the next start with the same one ends what this one left, so it
//! must not be lost, and belongs to one process at a time.
#![allow(clippy::disallowed_methods, reason = "an application's own clock and pauses")]

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clock::SystemClock;
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::journal::JournalLog;
use txn::id::{BranchId, NodeName};
use txn::mariadb::MariaDb;
use txn::postgres::Postgres;
use txn::protocol::Outcome;
use txn::resource::Resource;
use txn::sql::{Answered, Database, DatabaseOptions, Drivers, Statement};
use vfs::RealDisk;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [postgres, mariadb, dir, amount @ ..] = &arguments[..] else {
        return Err("POSTGRES_URL MARIADB_URL DIR [AMOUNT]".into());
    };
    let amount = amount.first().map_or("10", String::as_str);
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
    let worked = run(&*checking, from, take, &[amount, "ada"])
        .and_then(|()| run(&*savings, to, give, &[amount, "bob"]));
    if let Err(why) = worked {
        lane.rollback(tx, &why)?;
        return Err(why.into());
    }
    match lane.commit_and_wait(tx)? {
        Outcome::Committed => println!("committed"),
        // Aborted: nothing has changed. Unknown: the next start with this folder ends it. Heuristic: an operator has to look.
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}

/// Changes one row in a branch.
fn run(database: &dyn Database, branch: BranchId, text: &str, parameters: &[&str]) -> Result<(), String> {
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
fn wait_ready(database: &dyn Database) -> Result<(), String> {
    let began = Instant::now();
    while let Err(why) = database.ready() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
