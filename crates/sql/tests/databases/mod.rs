//! What tests of PostgreSQL as a resource share: two databases of a server, a node with a coordinator over both.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::time::Duration;

use clock::{Clock, SystemClock};
use sql::postgres::Postgres;
use sql::{Answered, Database, DatabaseOptions, Drivers, Statement, StatementError};
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::DecisionLog;
use txn::decision_log::journal::JournalLog;
use txn::id::{BranchId, NodeName, TxId};
use txn::lane::Lane;
use txn::protocol::Outcome;
use txn::resource::{Answer, Ask, Call, Prepared, Replies, Reply, Resource};

use crate::common::postgres::Postgres as Server;

/// A server, and databases of it that tests have done with: to make one takes as long as most tests.
pub(crate) struct Shared {
    pub(crate) server: Mutex<Server>,
    free: Mutex<Vec<[String; 2]>>,
}

/// Two databases that nobody else uses, and a folder for the log.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) names: [String; 2],
    pub(crate) node: NodeName,
    pub(crate) drivers: Arc<Drivers>,
    folder: tempfile::TempDir,
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) databases: [Arc<Postgres>; 2],
    pub(crate) coordinator: Coordinator,
}

type Change<'a> = &'a mut dyn FnMut(&mut DatabaseOptions, &mut Options);

impl World {
    /// On a server that this test shares with those that run beside it.
    pub(crate) fn shared() -> Option<Self> {
        let mut known = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let server = match known.upgrade() {
            Some(server) => server,
            None => Shared::start(&["max_connections=300"])?,
        };
        *known = Arc::downgrade(&server);
        drop(known);
        Some(Self::on(server))
    }

    /// On a server of its own.
    pub(crate) fn alone(settings: &[&str]) -> Option<Self> {
        Some(Self::on(Shared::start(settings)?))
    }

    fn on(shared: Arc<Shared>) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let free = shared.free.lock().unwrap().pop();
        let names = free.unwrap_or_else(|| {
            let names = ["one", "two"].map(|name| format!("{name}_{number}"));
            for name in &names {
                shared.server.lock().unwrap().sql(&format!("CREATE DATABASE {name}"));
            }
            names
        });
        let folder = tempfile::tempdir().unwrap();
        let world = Self {
            shared,
            names,
            node: NodeName::new(&format!("a-node-{number}")).unwrap(),
            drivers: Drivers::start().unwrap(),
            folder,
        };
        for place in 0..2 {
            world.sql(place, CLEAN);
        }
        world
    }

    /// What `psql` prints in a database.
    pub(crate) fn sql(&self, place: usize, statements: &str) -> String {
        self.server().sql_in(&self.names[place], statements).trim().to_owned()
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        self.shared.server.lock().unwrap()
    }

    pub(crate) fn rows(&self) -> [String; 2] {
        [0, 1].map(|place| self.sql(place, "SELECT key, value FROM t ORDER BY key"))
    }

    pub(crate) fn options(&self, place: usize) -> DatabaseOptions {
        let url = self.server().url_of(&self.names[place]);
        DatabaseOptions::new(["one", "two"][place], &url, self.node.clone())
    }

    pub(crate) fn start(&self) -> Node {
        self.start_with(&mut |_, _| {}, |log| log)
    }

    pub(crate) fn start_with(
        &self,
        change: Change<'_>,
        around: impl FnOnce(Arc<dyn DecisionLog>) -> Arc<dyn DecisionLog>,
    ) -> Node {
        let node = self.start_unready(change, around);
        until("both databases are ready", || node.databases.iter().all(|it| it.ready().is_ok()));
        node
    }

    pub(crate) fn start_unready(
        &self,
        change: Change<'_>,
        around: impl FnOnce(Arc<dyn DecisionLog>) -> Arc<dyn DecisionLog>,
    ) -> Node {
        let mut options = Options::new(self.node.clone());
        options.recovery_interval = Duration::from_millis(100);
        options.safety_interval = Duration::from_millis(200);
        options.timing.finish_max = PATIENCE;
        let databases = [0, 1].map(|place| {
            let mut database = self.options(place);
            change(&mut database, &mut options);
            Postgres::start(&database, &self.drivers).unwrap()
        });
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let disk = Arc::new(vfs::RealDisk);
        let opened = JournalLog::open(
            disk,
            clock.clone(),
            self.folder.path(),
            &self.node,
            journal::Options::default(),
        );
        let opened = opened.unwrap();
        let resources = databases.iter().map(|it| Arc::clone(it) as Arc<dyn Resource>).collect();
        // Branches that a test makes by hand are of epoch 1.
        let started = Started { epoch: opened.epoch, born: 1, records: opened.records };
        let coordinator =
            Coordinator::start(clock, around(opened.log), &started, resources, options).unwrap();
        Node { databases, coordinator }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.shared.free.lock().unwrap().push(self.names.clone());
        }
    }
}

impl Shared {
    fn start(settings: &[&str]) -> Option<Arc<Self>> {
        Some(Arc::new(Self { server: Mutex::new(Server::start(settings)?), free: Mutex::default() }))
    }
}

impl Node {
    /// Runs a statement in a branch, and waits for what it comes to.
    pub(crate) fn run(&self, branch: BranchId, place: usize, text: &str) -> Result<Answered, StatementError> {
        self.run_with(branch, place, text, &[])
    }

    pub(crate) fn run_with(
        &self,
        branch: BranchId,
        place: usize,
        text: &str,
        parameters: &[Option<&str>],
    ) -> Result<Answered, StatementError> {
        self.send(branch, place, text, parameters).recv_timeout(PATIENCE).unwrap()
    }

    /// Runs a statement, and waits for nothing.
    pub(crate) fn send(
        &self,
        branch: BranchId,
        place: usize,
        text: &str,
        parameters: &[Option<&str>],
    ) -> mpsc::Receiver<Result<Answered, StatementError>> {
        let (tell, told) = mpsc::channel();
        let parameters = parameters.iter().map(|value| value.map(|text| text.as_bytes().to_vec())).collect();
        let statement = Statement { text: text.to_owned(), parameters };
        self.databases[place].run(branch, statement, Box::new(move |result| drop(tell.send(result))));
        told
    }

    /// Begins transactions until one has its branch at `place` in the session of process `pid`, which a look of recovery may have just
    /// then.
    pub(crate) fn begin_in(&self, lane: &mut Lane, place: usize, pid: &str) -> (TxId, [BranchId; 2]) {
        let mut found = None;
        until("the session is used again", || {
            let (tx, branches) = self.begin(lane);
            let it = value(self.run(branches[place], place, "SELECT pg_backend_pid()"));
            if it.as_deref() == Some(pid) {
                found = Some((tx, branches));
            } else {
                lane.rollback(tx, "another session").unwrap();
            }
            found.is_some()
        });
        found.unwrap()
    }

    /// Begins a transaction with a branch in each database.
    pub(crate) fn begin(&self, lane: &mut Lane) -> (TxId, [BranchId; 2]) {
        let tx = lane.begin(PATIENCE).unwrap();
        (tx, [0, 1].map(|place| lane.enlist(tx, place).unwrap()))
    }

    /// A transaction that inserts the row in both.
    pub(crate) fn insert(&self, lane: &mut Lane, key: u32, value: &str) -> TxId {
        let (tx, branches) = self.begin(lane);
        for (place, branch) in branches.into_iter().enumerate() {
            let parameters = [Some(&*key.to_string()), Some(value)].map(|text| text.map(str::to_owned));
            let parameters = parameters.each_ref().map(Option::as_deref);
            let done = self.run_with(branch, place, "INSERT INTO t VALUES ($1, $2)", &parameters);
            assert_eq!(done, Ok(Answered::Changed(1)));
        }
        tx
    }

    /// What a database lists as prepared, once no other look at it is under way.
    pub(crate) fn found(&self, place: usize) -> Vec<Prepared> {
        let mut found = None;
        until("it is told what is prepared", || {
            found =
                match self.ask(place, Ask::Recover, BranchId { tx: TxId { epoch: 1, number: 1 }, branch: 0 })
                {
                    Answer::Found(found) => Some(found),
                    _ => None,
                };
            found.is_some()
        });
        found.unwrap()
    }

    /// Asks a database something about a branch, as a coordinator does, and waits for the answer.
    pub(crate) fn ask(&self, place: usize, ask: Ask, branch: BranchId) -> Answer {
        let (tell, told) = mpsc::channel();
        let call = Call { resource: place as u16, branch: Some(branch), ask, attempt: 1 };
        let reply = Reply::new(call, Arc::new(Teller(Mutex::new(tell))));
        let database = &self.databases[place];
        match ask {
            Ask::Prepare => database.prepare(branch, reply),
            Ask::Commit => database.commit(branch, reply),
            Ask::CommitOnePhase => database.commit_one_phase(branch, reply),
            Ask::Rollback => database.rollback(branch, reply),
            Ask::Recover => database.recover(reply),
            Ask::Forget => database.forget(branch, reply),
        }
        told.recv_timeout(PATIENCE).unwrap()
    }
}

struct Teller(Mutex<mpsc::Sender<Answer>>);

impl Replies for Teller {
    fn on_answer(&self, _: Call, answer: Answer) {
        let _ = self.0.lock().unwrap().send(answer);
    }
}

/// How many branches the database at `place` holds prepared.
pub(crate) fn prepared(world: &World, place: usize) -> String {
    world.sql(place, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()")
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock;
    let until = clock.now() + PATIENCE;
    while !is_so() {
        assert!(clock.now() < until, "not so in time: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The reason of an abort.
pub(crate) fn aborted(outcome: Outcome) -> String {
    match outcome {
        Outcome::Aborted(why) => why,
        other => panic!("{other:?}"),
    }
}

/// A result of one value.
pub(crate) fn value(answered: Result<Answered, StatementError>) -> Option<String> {
    let Ok(Answered::Rows(rows)) = answered else { panic!("{answered:?}") };
    rows[0][0].clone().map(|value| String::from_utf8(value).unwrap())
}

const CLEAN: &str = "DROP SCHEMA IF EXISTS other CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC;
    CREATE TABLE t (key int PRIMARY KEY, value text)";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
static SERVER: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
