//! PostgreSQL as a resource when things break: connections, servers, nodes, and time.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

#[path = "common/before_decision.rs"]
mod before_decision;
mod common;
mod databases;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use before_decision::BeforeDecision;
use databases::{PATIENCE, World, aborted, prepared, until, value};
use sql::{Database, DatabaseOptions, StatementError};
use txn::coordinator::Options;
use txn::id::{BranchId, NodeName, TxId};
use txn::protocol::Outcome;
use txn::resource::{Answer, Ask, Resource, Unready, Vote};

/// Ends all processes of the server that work for a database.
fn terminate(world: &World, place: usize) {
    world.sql(
        place,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'evenkeel' AND datname = current_database()",
    );
}

/// Waits until a statement with this text runs.
fn until_runs(world: &World, place: usize, text: &str) {
    let count = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()
         AND application_name = 'evenkeel' AND query LIKE '%{text}%'"
    );
    until(text, || world.sql(place, &count) != "0");
}

/// Makes prepares and commits of whoever inserts into `t` take so long, also of who is asked to stop.
fn slow_down(world: &World, place: usize, seconds: f64) {
    world.sql(
        place,
        &format!(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL;
                   EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION slow()"
        ),
    );
}

#[test]
fn database_that_prepares_nothing_says_so_and_what_to_do() {
    let Some(world) = World::alone(&["max_prepared_transactions=0"]) else { return };
    let node = world.start_unready(&mut |_, _| {}, |log| log);
    let mut lane = node.coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    until("it was asked", || node.databases.iter().all(|it| it.sessions().open > 0));
    until("it says why", || {
        node.databases[0].ready().is_err_and(|why| !why.to_string().contains("not connected"))
    });
    let why = lane.enlist(tx, 0).unwrap_err().to_string();
    for part in ["max_prepared_transactions is 0", "postgresql.conf", "restart", &world.names[0]] {
        assert!(why.contains(part), "{why}");
    }
    // It is asked again, and heard that it was put right.
    world.server().kill();
    until(
        "it is gone",
        || matches!(node.databases[0].ready(), Err(Unready::Retry(why)) if why.contains("tried again")),
    );
    world.server().run(&[]);
    until("it is ready", || node.databases.iter().all(|it| it.ready().is_ok()));
    let tx = node.insert(&mut lane, 1, "x");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|x", "1|x"]);
    // One that would lose what it acknowledged takes no branches.
    world.server().kill();
    world.server().run(&["fsync=off"]);
    until(
        "it is heard",
        || matches!(node.databases[0].ready(), Err(Unready::Setting(why)) if why.contains("fsync = off")),
    );
}

/// `kill -9` of the server when both branches are prepared: the decision stands, and they commit when it runs again. Nobody waits
/// for the pause between two questions, which is an hour: the database says that it is back.
#[test]
fn server_killed_between_prepare_and_commit_commits_when_it_is_back() {
    let Some(world) = World::alone(&[]) else { return };
    let shared = Arc::clone(&world.shared);
    let kill = Box::new(move || shared.server.lock().unwrap().kill());
    let node = world.start_with(
        &mut |_, options| {
            options.timing.finish_max = Duration::from_millis(100);
            (options.timing.retry_least, options.timing.retry_most) = (HOUR, HOUR);
        },
        |log| {
            let log = BeforeDecision::new(log);
            log.set(kill);
            Arc::new(log)
        },
    );
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "kept");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    until("both wait to ask again", || {
        lane.turn(&mut Vec::new());
        let info = node.coordinator.transaction(tx).unwrap();
        info.branches.iter().all(|branch| !branch.trouble.is_empty())
    });
    world.server().run(&[]);
    until("it commits", || {
        lane.turn(&mut Vec::new());
        lane.is_empty()
    });
    assert_eq!(world.rows(), ["1|kept", "1|kept"]);
}

/// The node goes with both prepared and the decision in its log, and comes back.
#[test]
fn decision_of_a_node_that_died_is_carried_out_by_the_next_start() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, branches) = (node.insert(&mut lane, 1, "left"), [0, 1]);
    for branch in branches {
        let branch = BranchId { tx, branch };
        assert_eq!(node.ask(usize::from(branch.branch), Ask::Prepare, branch), Answer::Voted(Vote::Yes));
    }
    let (unprepared, [held, _]) = node.begin(&mut lane);
    node.run(held, 0, "INSERT INTO t VALUES (2, 'gone')").unwrap();
    let foreign = ["evk_other_1_1_0", "evk_a-node_1_1_0", "somebody"];
    for id in foreign {
        let id = format!("{id}{}", world.names[0]);
        world.sql(
            0,
            &format!("BEGIN; INSERT INTO t VALUES ({}, ''); PREPARE TRANSACTION '{id}'", 10 + id.len()),
        );
    }
    drop(lane);
    node.databases.iter().for_each(|database| database.close());
    assert!(matches!(node.ask(0, Ask::Commit, held), Answer::Lost(_)), "it was closed");
    drop(node);
    // What was prepared and not decided is an orphan, what was not prepared is gone by itself; others' are not touched.
    let node = world.start();
    until("orphans are gone", || node.coordinator.counters().orphans == 2);
    until("they are rolled back", || prepared(&world, 0) == "3" && prepared(&world, 1) == "0");
    let mut lane = node.coordinator.lane();
    let again = node.insert(&mut lane, 2, "again");
    assert_eq!(lane.commit_and_wait(again), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["2|again", "2|again"]);
    assert_ne!(again, unprepared);
    for id in foreign {
        world.sql(0, &format!("ROLLBACK PREPARED '{id}{}'", world.names[0]));
    }
}

/// Each start sent COMMIT PREPARED for each decision of the last `txn.keep`: 2,619 errors in PostgreSQL's log.
#[test]
fn start_carries_out_only_what_is_still_prepared() {
    let logs = ["logging_collector=on", "log_directory=log", "log_filename=all.log", "log_statement=all"];
    let Some(world) = World::alone(&logs) else { return };
    let keeps = &mut |_: &mut DatabaseOptions, options: &mut Options| {
        options.timing.keep = Duration::from_secs(600);
    };
    let node = world.start_with(keeps, |log| log);
    let mut lane = node.coordinator.lane();
    for key in 0..20 {
        let tx = node.insert(&mut lane, key, "x");
        assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    }
    drop(lane);
    node.databases.iter().for_each(|database| database.close());
    drop(node);
    let log = || world.sql(0, "SELECT pg_read_file('log/all.log')");
    let count = |log: &str, what: &str| log.matches(what).count();
    let before = log();
    assert_eq!(count(&before, "COMMIT PREPARED"), 40, "{before}");
    let node = world.start_with(keeps, |log| log);
    until("all decisions are done", || node.coordinator.counters().live == 0);
    assert_eq!(node.coordinator.counters().kept, 20);
    let after = log();
    assert_eq!(count(&after, "COMMIT PREPARED"), 40, "none is sent again");
    assert_eq!(count(&after, "prepared transaction with identifier"), 0, "{after}");
    let looks = count(&after, "pg_prepared_xact()") - count(&before, "pg_prepared_xact()");
    // One for each database and turn of the coordinator: where the machine is slow, up to one for each branch.
    assert!(looks <= 40, "{looks} looks for 40 branches");
    // What is still prepared is carried out, and what is rolled back unprepared asks for nothing that is not there.
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    node.databases[0].adopt(branches[0], None).unwrap();
    node.run(branches[1], 1, "INSERT INTO t VALUES (99, 'x')").unwrap();
    aborted(lane.commit_and_wait(tx).unwrap());
    assert_eq!(count(&log(), "prepared transaction with identifier"), 0);
}

#[test]
fn connection_that_breaks_in_a_statement_fails_its_branch_alone() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "gone");
    let branch = BranchId { tx, branch: 0 };
    let waiting = node.send(branch, 0, "SELECT pg_sleep(60)", &[]);
    until_runs(&world, 0, "pg_sleep");
    terminate(&world, 0);
    let failed = waiting.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("57P01")), "{failed:?}");
    aborted(lane.commit_and_wait(tx).unwrap());
    // One that sits idle when it breaks.
    let tx = lane.begin(PATIENCE).unwrap();
    let branch = lane.enlist(tx, 0).unwrap();
    node.run(branch, 0, "INSERT INTO t VALUES (1, 'gone')").unwrap();
    let failures = node.databases[0].sessions().failures;
    terminate(&world, 0);
    until("it is noticed", || node.databases[0].sessions().failures > failures);
    aborted(lane.commit_and_wait(tx).unwrap());
    let tx = node.insert(&mut lane, 2, "kept");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["2|kept", "2|kept"]);
}

#[test]
fn connection_that_breaks_in_a_prepare_or_a_commit_leaves_nothing_undecided() {
    let Some(world) = World::shared() else { return };
    slow_down(&world, 0, 30.0);
    let node = world.start();
    std::thread::scope(|scope| {
        for is_alone in [false, true] {
            let mut lane = node.coordinator.lane();
            let tx = lane.begin(PATIENCE).unwrap();
            let branch = lane.enlist(tx, 0).unwrap();
            if !is_alone {
                let other = lane.enlist(tx, 1).unwrap();
                node.run(other, 1, "INSERT INTO t VALUES (1, 'gone')").unwrap();
            }
            node.run(branch, 0, "INSERT INTO t VALUES (1, 'gone')").unwrap();
            let outcome = scope.spawn(move || lane.commit_and_wait(tx).unwrap());
            until_runs(&world, 0, if is_alone { "COMMIT" } else { "PREPARE" });
            terminate(&world, 0);
            let why = aborted(outcome.join().unwrap());
            assert!(why.contains("57P01"), "{why}");
        }
    });
    assert_eq!(world.rows(), ["", ""]);
    assert_eq!([prepared(&world, 0), prepared(&world, 1)], ["0", "0"]);
}

/// The answer does not come in time, and the process goes on: it would be prepared after everybody has looked.
#[test]
fn prepare_that_is_given_up_does_not_come_true_later() {
    let Some(world) = World::shared() else { return };
    slow_down(&world, 0, 3.0);
    let node = world.start_with(&mut |it, _| it.statement_timeout = Duration::from_millis(700), |log| log);
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "gone");
    let why = aborted(lane.commit_and_wait(tx).unwrap());
    assert!(why.contains("700 ms"), "{why}");
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%PREPARE T%'
         AND pid <> pg_backend_pid()";
    assert_eq!((world.sql(0, count), prepared(&world, 0)), ("0".to_owned(), "0".to_owned()));
    assert_eq!(world.rows(), ["", ""]);
}

/// The same of a commit in one phase: it is made, and found out.
#[test]
fn commit_that_was_not_heard_of_is_looked_up() {
    let Some(world) = World::shared() else { return };
    slow_down(&world, 0, 1.0);
    let node = world.start_with(&mut |it, _| it.statement_timeout = Duration::from_millis(700), |log| log);
    let mut lane = node.coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    let branch = lane.enlist(tx, 0).unwrap();
    node.run(branch, 0, "INSERT INTO t VALUES (1, 'kept')").unwrap();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows()[0], "1|kept");
}

#[test]
fn statement_that_takes_too_long_fails_and_its_session_goes_on() {
    let Some(world) = World::shared() else { return };
    let node = world.start_with(
        &mut |it, _| (it.statement_timeout, it.sessions_max) = (Duration::from_secs(1), 2),
        |log| log,
    );
    let mut lane = node.coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    let branch = lane.enlist(tx, 0).unwrap();
    let pid = value(node.run(branch, 0, "SELECT pg_backend_pid()"));
    let failed = node.run(branch, 0, "SELECT pg_sleep(60)");
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("timeout")), "{failed:?}");
    aborted(lane.commit_and_wait(tx).unwrap());
    // One that has taken the server's limit away is stopped all the same.
    let (tx, [branch, _]) = node.begin_in(&mut lane, 0, &pid.unwrap());
    node.run(branch, 0, "SET LOCAL statement_timeout TO 0").unwrap();
    let failed = node.run(branch, 0, "SELECT pg_sleep(60)");
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("2000 ms")), "{failed:?}");
    aborted(lane.commit_and_wait(tx).unwrap());
    until("the server has stopped it", || {
        world.sql(
            0,
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(60)'",
        ) == "0"
    });
}

#[test]
fn transaction_that_nobody_ends_lets_go_of_its_locks() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = lane.begin(Duration::from_millis(500)).unwrap();
    let branches = [0, 1].map(|place| lane.enlist(tx, place).unwrap());
    node.run(branches[0], 0, "INSERT INTO t VALUES (1, 'gone')").unwrap();
    // In the other, a statement is still under way: it is stopped.
    let waiting = node.send(branches[1], 1, "SELECT pg_sleep(60)", &[]);
    until_runs(&world, 1, "pg_sleep");
    let mut told = Vec::new();
    while told.is_empty() {
        lane.wait();
        lane.turn(&mut told);
    }
    assert!(matches!(&told[..], [(it, Outcome::Aborted(_))] if *it == tx), "{told:?}");
    let failed = waiting.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(failed, Err(StatementError::Failed(_))), "{failed:?}");
    let tx = node.insert(&mut lane, 1, "kept");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|kept", "1|kept"]);
}

/// Transfers between accounts of the two databases, by threads with lanes of their own, while processes of the server are ended at
/// random. Whatever each is told, money is neither made nor lost, and what was told to be committed is there.
#[test]
fn transfers_under_broken_connections_keep_the_sum() {
    let Some(world) = World::shared() else { return };
    let seed = std::env::var("EVENKEEL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("EVENKEEL_SEED={seed}");
    for place in 0..2 {
        world.sql(
            place,
            "CREATE TABLE accounts (id int PRIMARY KEY, amount int8); CREATE TABLE transfers (id int8 PRIMARY KEY);
             INSERT INTO accounts SELECT id, 1000 FROM generate_series(0, 19) AS id",
        );
    }
    let node = world.start_with(
        &mut |database, _| {
            database.sessions_max = 12;
            database.connect_timeout = PATIENCE;
        },
        |log| log,
    );
    let (stop, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let committed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (node, stop, counts, committed) = (&node, &stop, &counts, &committed);
            scope.spawn(move || {
                let mut lane = node.coordinator.lane();
                let mut random = seed ^ thread << 32 | 1;
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let id = (thread << 32 | n).to_string();
                    let is_committed = transfer(node, &mut lane, &mut random, &id);
                    counts[usize::from(!is_committed)].fetch_add(1, Ordering::Relaxed);
                    if is_committed {
                        committed.lock().unwrap().push(id);
                    }
                }
                until("all have ended", || {
                    lane.turn(&mut Vec::new());
                    lane.is_empty()
                });
            });
        }
        let mut random = seed | 1;
        let mut last = 0;
        let all = || counts[0].load(Ordering::Relaxed) + counts[1].load(Ordering::Relaxed);
        for _ in 0..BREAKS {
            until("transfers go on", || all() >= last + 15);
            last = all();
            let (place, modulus) = (next(&mut random, 2) as usize, next(&mut random, 3) + 1);
            world.sql(
                place,
                &format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'evenkeel'
                     AND datname = current_database() AND pid % {modulus} = 0"
                ),
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    let [committed_count, aborted_count] = counts.map(AtomicU64::into_inner);
    eprintln!("{committed_count} transfers were committed, {aborted_count} aborted");
    assert!(committed_count > 50, "{committed_count}, {aborted_count}");
    check_transfers(&world, committed.into_inner().unwrap());
}

/// The sum is right, and in both databases is what was told, no more and no less.
fn check_transfers(world: &World, mut told: Vec<String>) {
    assert_eq!([prepared(world, 0), prepared(world, 1)], ["0", "0"]);
    let sum = |place| world.sql(place, "SELECT sum(amount) FROM accounts").parse::<i64>().unwrap();
    assert_eq!(sum(0) + sum(1), 2 * 20 * 1000);
    told.sort_by_key(|id| id.parse::<u64>().unwrap());
    for place in 0..2 {
        let there = world.sql(place, "SELECT id FROM transfers ORDER BY id");
        assert!(there.lines().eq(told.iter().map(String::as_str)), "database {place}");
    }
}

/// Whether it was committed.
fn transfer(node: &databases::Node, lane: &mut txn::lane::Lane, random: &mut u64, id: &str) -> bool {
    let tx = lane.begin(PATIENCE).unwrap();
    let mut branches = [None, None];
    for (place, branch) in branches.iter_mut().enumerate() {
        // While a server is not reached it takes no branches.
        until("it takes branches", || {
            *branch = lane.enlist(tx, place as u16).ok();
            branch.is_some()
        });
    }
    let amount = (next(random, 50) as i64 - 25).to_string();
    for (place, branch) in branches.into_iter().enumerate() {
        let sign = ["-", "+"][place];
        let update = format!("UPDATE accounts SET amount = amount {sign} $1::int8 WHERE id = $2::int");
        let account = next(random, 20).to_string();
        let branch = branch.unwrap();
        let insert = "INSERT INTO transfers VALUES ($1)";
        let done = node.run_with(branch, place, insert, &[Some(id)]);
        let done = done.and_then(|_| node.run_with(branch, place, &update, &[Some(&amount), Some(&account)]));
        if done.is_err() {
            lane.rollback(tx, "a statement failed").unwrap();
            return false;
        }
    }
    match lane.commit_and_wait(tx).unwrap() {
        Outcome::Committed => true,
        Outcome::Aborted(_) => false,
        other => panic!("{id}: {other:?}"),
    }
}

/// A number below `most` (xorshift).
fn next(random: &mut u64, most: u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random % most
}

#[test]
fn names_of_nodes_are_compared_byte_for_byte() {
    let Some(world) = World::shared() else { return };
    let longer = NodeName::new(&format!("{}1", world.node)).unwrap();
    let id = longer.branch_id(BranchId { tx: TxId { epoch: 1, number: 1 }, branch: 0 });
    world.sql(0, &format!("BEGIN; INSERT INTO t VALUES (1, ''); PREPARE TRANSACTION '{id}'"));
    let own = world.node.branch_id(BranchId { tx: TxId { epoch: 1, number: 1 }, branch: 0 });
    world.sql(0, &format!("BEGIN; INSERT INTO t VALUES (2, ''); PREPARE TRANSACTION '{own}'"));
    let node = world.start();
    until("the orphan is gone", || prepared(&world, 0) == "1");
    assert_eq!(node.found(0)[0].id, id);
    world.sql(0, &format!("ROLLBACK PREPARED '{id}'"));
}

const THREADS: u64 = 8;
const BREAKS: u64 = 15;

const HOUR: Duration = Duration::from_secs(3_600);
