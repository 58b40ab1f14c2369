//! Transactions over two databases of MariaDB through a coordinator, with a journal for its decisions.
//!
//! `EVENKEEL_MARIADB_SEED` sets which sessions die in the stress, which prints it.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

#[path = "common/before_decision.rs"]
mod before_decision;
#[path = "common/mariadb.rs"]
mod mariadb;
mod mariadb_bench;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use before_decision::BeforeDecision;
use clock::{Clock, SystemClock, UnixMs};
use mariadb::MariaDb as Server;
use mariadb_bench::{App, Bench, PATIENCE, timing, wait_until};
use sql::mariadb::MariaDb;
use sql::{Answered, Database, DatabaseOptions, Drivers, Statement, StatementError};
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::journal::JournalLog;
use txn::decision_log::{DecisionLog, LogError, Waiter};
use txn::id::{BranchId, NodeName, TxId};
use txn::lane::Lane;
use txn::protocol::Outcome;
use txn::record::{Decision, DecisionKind, Participant, ParticipantState};
use txn::resource::{Ask, Resource};

/// A node with two databases of one server.
struct World {
    server: Arc<Server>,
    databases: [String; 2],
    node: NodeName,
    folder: tempfile::TempDir,
    /// The shortest and the longest pause.
    retry: (Duration, Duration),
}

/// A start of the node.
struct Life {
    coordinator: Coordinator,
    dbs: Vec<Arc<MariaDb>>,
    hook: Arc<BeforeDecision>,
}

struct Nobody;

impl Waiter for Nobody {
    fn on_logged(&self, _: TxId, result: Result<(), LogError>) {
        result.unwrap();
    }
}

impl World {
    fn new(server: Arc<Server>) -> Self {
        let databases = [server.database(), server.database()];
        for name in &databases {
            server.sql(&format!(
                "CREATE TABLE {name}.t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL) ENGINE=InnoDB"
            ));
        }
        let timing = txn::protocol::Timing::default();
        Self {
            server,
            databases,
            node: mariadb_bench::node(),
            folder: tempfile::tempdir().unwrap(),
            retry: (timing.retry_least, timing.retry_most),
        }
    }

    fn options(&self, at: usize) -> DatabaseOptions {
        let name = ["one", "two"][at];
        let mut options =
            DatabaseOptions::new(name, &self.server.url(&self.databases[at]), self.node.clone());
        options.statement_timeout = Duration::from_secs(5);
        options
    }

    fn start(&self) -> Life {
        self.start_with(2)
    }

    /// With the first `databases` of both.
    fn start_with(&self, databases: usize) -> Life {
        let drivers = Drivers::start().unwrap();
        let dbs = (0..databases).map(|at| MariaDb::start_with(self.options(at), timing(), &drivers).unwrap());
        let dbs: Vec<_> = dbs.collect();
        wait_until("all are ready", || dbs.iter().all(|db| db.ready().is_ok()));
        let (clock, disk) = (Arc::new(SystemClock), Arc::new(vfs::RealDisk));
        let options = journal::Options::default();
        let opened = JournalLog::open(disk, clock.clone(), self.folder.path(), &self.node, options).unwrap();
        let hook = Arc::new(BeforeDecision::new(opened.log));
        let mut options = Options::new(self.node.clone());
        (options.timing.retry_least, options.timing.retry_most) = self.retry;
        options.recovery_interval = Duration::from_millis(100);
        options.safety_interval = Duration::from_millis(300);
        let resources = dbs.iter().map(|db| Arc::clone(db) as Arc<dyn Resource>).collect();
        // Branches that a test makes by hand are of epoch 1.
        let started = Started { epoch: opened.epoch, born: 1, records: opened.records };
        let coordinator =
            Coordinator::start(clock, Arc::clone(&hook) as _, &started, resources, options).unwrap();
        Life { coordinator, dbs, hook }
    }

    /// The rows of both tables.
    fn rows(&self) -> [String; 2] {
        [0, 1].map(|at| self.server.sql(&format!("SELECT id, v FROM {}.t ORDER BY id", self.databases[at])))
    }

    /// Accounts with 1,000 each, and a table of the transfers that were done.
    fn open_accounts(&self) {
        for name in &self.databases {
            let accounts = (1..=ACCOUNTS).map(|id| format!("({id}, 1000)")).collect::<Vec<_>>().join(",");
            self.server.sql(&format!(
                "INSERT INTO {name}.t VALUES {accounts}; CREATE TABLE {name}.done (id BIGINT PRIMARY KEY) ENGINE=InnoDB"
            ));
        }
    }

    /// That the transfers `told` were done in both databases, and no other.
    fn check_accounts(&self, told: &BTreeSet<u64>) {
        let sums = self.databases.each_ref().map(|name| {
            let done = self.server.sql(&format!("SELECT id FROM {name}.done ORDER BY id"));
            let done: BTreeSet<u64> = done.lines().map(|line| line.parse().unwrap()).collect();
            assert_eq!(done, *told, "in {name}");
            self.server.sql(&format!("SELECT SUM(v) FROM {name}.t")).parse::<i64>().unwrap()
        });
        let moved = told.len() as i64;
        assert_eq!(sums, [ACCOUNTS as i64 * 1_000 - moved, ACCOUNTS as i64 * 1_000 + moved]);
    }

    fn is_nothing_prepared(&self) -> bool {
        !self.server.sql("XA RECOVER").contains(&format!("evk_{}_", self.node))
    }
}

impl Life {
    fn run(&self, at: usize, branch: BranchId, text: &str) -> Result<Answered, StatementError> {
        let (tell, told) = std::sync::mpsc::channel();
        let statement = Statement { text: text.to_owned(), parameters: Vec::new() };
        self.dbs[at].run(branch, statement, Box::new(move |result| drop(tell.send(result))));
        told.recv_timeout(PATIENCE).unwrap()
    }

    /// Inserts a row in both databases, and commits.
    fn insert(&self, lane: &mut Lane, id: u64) -> Outcome {
        let tx = lane.begin(PATIENCE).unwrap();
        for at in 0..2 {
            let branch = lane.enlist(tx, at as u16).unwrap();
            self.run(at, branch, &format!("INSERT INTO t VALUES ({id}, 0)")).unwrap();
        }
        lane.commit_and_wait(tx).unwrap()
    }

    /// Lanes are gone by then: who has one turns it himself.
    fn wait_until_all_has_ended(&self) {
        wait_until("all has ended", || self.coordinator.counters().live == 0);
    }
}

#[test]
fn both_databases_commit_or_neither_does() {
    let Some(server) = Server::shared() else { return };
    let world = World::new(server);
    let life = world.start();
    let mut lane = life.coordinator.lane();
    assert_eq!(life.insert(&mut lane, 1), Outcome::Committed);
    assert_eq!(world.rows(), ["1\t0", "1\t0"]);
    // A duplicate in the second: the first rolls back.
    world.server.sql(&format!("INSERT INTO {}.t VALUES (2, 7)", world.databases[1]));
    let tx = lane.begin(PATIENCE).unwrap();
    let (first, second) = (lane.enlist(tx, 0).unwrap(), lane.enlist(tx, 1).unwrap());
    life.run(0, first, "INSERT INTO t VALUES (2, 0)").unwrap();
    life.run(1, second, "INSERT INTO t VALUES (2, 0)").unwrap_err();
    let outcome = lane.commit_and_wait(tx).unwrap();
    assert!(matches!(&outcome, Outcome::Aborted(why) if why.contains("Duplicate")), "{outcome:?}");
    // One that only reads needs no record: the other commits.
    let tx = lane.begin(PATIENCE).unwrap();
    let (first, second) = (lane.enlist(tx, 0).unwrap(), lane.enlist(tx, 1).unwrap());
    life.run(0, first, "SELECT * FROM t").unwrap();
    life.run(1, second, "INSERT INTO t VALUES (3, 0)").unwrap();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    drop(lane);
    life.wait_until_all_has_ended();
    assert_eq!(world.rows(), ["1\t0", "1\t0\n2\t7\n3\t0"]);
    assert!(world.is_nothing_prepared());
}

#[test]
fn application_prepares_one_of_the_branches() {
    let Some(server) = Server::shared() else { return };
    let world = World::new(server);
    let life = world.start();
    let mut lane = life.coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    let (first, second) = (lane.enlist(tx, 0).unwrap(), lane.enlist(tx, 1).unwrap());
    life.run(0, first, "INSERT INTO t VALUES (1, 0)").unwrap();
    let mut app = App::connect(&world.server.url(&world.databases[1]));
    let owner = app.prepare(&world.node.branch_id(second), "INSERT INTO t VALUES (1, 0)");
    life.dbs[1].adopt(second, Some(owner)).unwrap();
    app.close();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    drop(lane);
    life.wait_until_all_has_ended();
    assert_eq!(world.rows(), ["1\t0", "1\t0"]);
}

#[test]
fn sessions_killed_before_the_decision_is_written_commit_all_the_same() {
    let Some(server) = Server::shared() else { return };
    let world = World::new(server);
    let life = world.start();
    let mut lane = life.coordinator.lane();
    let (server, databases) = (Arc::clone(&world.server), world.databases.clone());
    life.hook.set(Box::new(move || kill_sessions(&server, &databases, 1, 0)));
    assert_eq!(life.insert(&mut lane, 1), Outcome::Committed);
    drop(lane);
    life.wait_until_all_has_ended();
    assert_eq!(world.rows(), ["1\t0", "1\t0"]);
}

#[test]
fn server_killed_between_prepare_and_commit_commits_after_its_restart() {
    let Some(server) = Server::start(&[]) else { return };
    let mut world = World::new(Arc::new(server));
    let life = world.start();
    let id = world.server.id().to_string();
    life.hook.set(Box::new(move || {
        #[allow(clippy::disallowed_methods, reason = "a test's own server")]
        let killed = std::process::Command::new("kill").args(["-9", &id]).status().unwrap();
        assert!(killed.success());
    }));
    assert_eq!(life.insert(&mut life.coordinator.lane(), 1), Outcome::Committed, "the decision is durable");
    assert_eq!(life.coordinator.counters().live, 1);
    let server = Arc::get_mut(&mut world.server).unwrap();
    server.kill();
    server.run(&[]);
    life.wait_until_all_has_ended();
    assert_eq!(world.rows(), ["1\t0", "1\t0"]);
    assert!(world.is_nothing_prepared());
}

/// A pause of an hour is not waited for: the database says that it is back.
#[test]
fn database_that_is_back_is_asked_before_its_pause_is_over() {
    let Some(server) = Server::start(&[]) else { return };
    let mut world = World::new(Arc::new(server));
    world.retry = (Duration::from_secs(3_600), Duration::from_secs(3_600));
    let life = world.start();
    let id = world.server.id().to_string();
    life.hook.set(Box::new(move || {
        #[allow(clippy::disallowed_methods, reason = "a test's own server")]
        let killed = std::process::Command::new("kill").args(["-9", &id]).status().unwrap();
        assert!(killed.success());
    }));
    assert_eq!(life.insert(&mut life.coordinator.lane(), 1), Outcome::Committed);
    wait_until("both wait to ask again", || {
        let all = life.coordinator.transactions(None, usize::MAX);
        all.iter().all(|it| it.branches.iter().all(|branch| !branch.trouble.is_empty()))
    });
    let server = Arc::get_mut(&mut world.server).unwrap();
    server.kill();
    server.run(&[]);
    life.wait_until_all_has_ended();
    assert_eq!(world.rows(), ["1\t0", "1\t0"]);
}

#[test]
fn orphans_of_a_dead_coordinator_roll_back_and_those_of_others_stay() {
    let Some(server) = Server::shared() else { return };
    let world = World::new(server);
    drop(world.start());
    // Branches of the first epoch that nobody decided, in sessions that outlive their coordinator.
    let former = Bench::with(world.options(0));
    let (orphan, _) = former.prepared(1);
    let other = Bench::new(&world.server.url(&world.databases[0]));
    let (untouched, _) = other.prepared(2);
    // Of two on one server either may list the orphan first, and only the one whose session holds it ends that session.
    let life = world.start_with(1);
    wait_until("the orphan is gone", || former.found().is_empty());
    assert_eq!(life.coordinator.counters().orphans, 1);
    assert_eq!(other.found(), [other.id(untouched)]);
    assert_eq!(orphan.tx.epoch, 1);
    other.ask_until_done(untouched, Ask::Commit);
    life.wait_until_all_has_ended();
    assert_eq!(world.rows()[0], "2\t0");
}

/// After a start each decision is asked again, thousands of them at once: one list of what is prepared answers all who wait for one.
#[test]
fn decisions_that_were_kept_share_the_lists_of_a_start() {
    let Some(server) = Server::start(&[]) else { return };
    let world = World::new(Arc::new(server));
    let disk = Arc::new(vfs::RealDisk);
    let options = journal::Options::default();
    let clock = Arc::new(SystemClock);
    let opened = JournalLog::open(disk, clock, world.folder.path(), &world.node, options).unwrap();
    let waiter: Arc<dyn Waiter> = Arc::new(Nobody);
    for number in 1..=KEPT {
        let tx = TxId { epoch: opened.epoch, number };
        let participants =
            vec![Participant { branch: 0, resource: "one".into(), state: ParticipantState::ToCommit }];
        let decision = Decision { tx, kind: DecisionKind::Commit, decided: UnixMs(1), participants };
        let mut record = Vec::new();
        decision.encode(&mut record);
        opened.log.write(tx, &record, &waiter).unwrap();
    }
    opened.log.close();
    drop(opened);
    let lists = || {
        let status = world.server.sql("SHOW GLOBAL STATUS LIKE 'Com_xa_recover'");
        status.rsplit('\t').next().unwrap().trim().parse::<u64>().unwrap()
    };
    let before = lists();
    let life = world.start_with(1);
    life.wait_until_all_has_ended();
    assert_eq!(life.coordinator.counters().kept, KEPT);
    let count = lists() - before;
    assert!(count < KEPT / 4, "{count} lists for {KEPT} decisions");
}

/// Four threads transfer between two databases while sessions are killed at random: what was told is so in both.
#[test]
fn transfers_are_whole_while_sessions_are_killed() {
    let Some(server) = Server::shared() else { return };
    let world = World::new(server);
    let seed = std::env::var("EVENKEEL_MARIADB_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| SystemClock.unix_us());
    println!("EVENKEEL_MARIADB_SEED={seed}");
    world.open_accounts();
    let life = world.start();
    let (stop, told, count) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()), Mutex::new([0_u64; 2]));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (life, told, count) = (&life, &told, &count);
                scope.spawn(move || {
                    let mut lane = life.coordinator.lane();
                    for n in 0..TRANSFERS {
                        let id = thread * TRANSFERS + n;
                        let outcome = transfer(life, &mut lane, id);
                        assert!(
                            !matches!(outcome, Outcome::Unknown(_) | Outcome::Heuristic(_)),
                            "{outcome:?}"
                        );
                        let is_committed = outcome == Outcome::Committed;
                        count.lock().unwrap()[usize::from(is_committed)] += 1;
                        if is_committed {
                            told.lock().unwrap().insert(id);
                        }
                    }
                })
            })
            .collect();
        let (stop, count) = (&stop, &count);
        let world = &world;
        scope.spawn(move || {
            let (mut random, mut seen) = (seed | 1, 0);
            while !stop.load(Ordering::Relaxed) {
                let ended = count.lock().unwrap().iter().sum::<u64>();
                if ended < seen + 6 {
                    std::thread::yield_now();
                    continue;
                }
                seen = ended;
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                kill_sessions(&world.server, &world.databases, 3, random % 3);
            }
        });
        let ends: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    life.wait_until_all_has_ended();
    let [aborted, committed] = *count.lock().unwrap();
    println!("{committed} committed, {aborted} aborted");
    assert!(committed > 0 && aborted > 0, "sessions die in some, and others live");
    wait_until("nothing is prepared", || world.is_nothing_prepared());
    world.check_accounts(&told.into_inner().unwrap());
    for db in &life.dbs {
        assert_eq!(db.sessions().busy, 0);
    }
}

/// Moves one from the first database to the second.
fn transfer(life: &Life, lane: &mut Lane, id: u64) -> Outcome {
    let tx = lane.begin(PATIENCE).unwrap();
    for (at, sign) in [(0, '-'), (1, '+')] {
        let branch = match lane.enlist(tx, at as u16) {
            Ok(branch) => branch,
            // The session that asks about others was killed as well: it is back soon.
            Err(why) => return roll_back(lane, tx, &why.to_string()),
        };
        let account = id % ACCOUNTS + 1;
        let texts = [
            format!("UPDATE t SET v = v {sign} 1 WHERE id = {account}"),
            format!("INSERT INTO done VALUES ({id})"),
        ];
        for text in texts {
            if let Err(why) = life.run(at, branch, &text) {
                return roll_back(lane, tx, &why.to_string());
            }
        }
    }
    lane.commit_and_wait(tx).unwrap()
}

fn roll_back(lane: &mut Lane, tx: TxId, why: &str) -> Outcome {
    lane.rollback(tx, why).unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        lane.wait();
        lane.turn(&mut told);
    }
    told.remove(0).1
}

/// Kills each `nth` session of the client in these databases, beginning with number `from`.
fn kill_sessions(server: &Server, databases: &[String; 2], nth: u64, from: u64) {
    let [one, two] = databases;
    let ids = server.sql(&format!(
        "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'evenkeel' AND DB IN ('{one}', '{two}') ORDER BY ID"
    ));
    let chosen = ids.lines().enumerate().filter(|(at, _)| *at as u64 % nth == from);
    for (_, id) in chosen {
        // It may be gone by itself.
        server.try_sql(&format!("KILL {id}"));
    }
}

const ACCOUNTS: u64 = 20;
const KEPT: u64 = 400;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 75;
