//! What tests of MariaDB as a resource share: asking it without a coordinator, and an application with a session of its own.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use sql::mariadb::{MariaDb, Timing};
use sql::{Answered, Database, DatabaseOptions, Drivers, Statement, StatementError};
use txn::id::{BranchId, NodeName, TxId};
use txn::resource::{Answer, Ask, Call, Replies, Reply, Resource, Vote};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A resource under test.
pub(crate) struct Bench {
    pub(crate) db: Arc<MariaDb>,
    pub(crate) node: NodeName,
    drivers: Arc<Drivers>,
    options: DatabaseOptions,
}

struct Ear(mpsc::Sender<Answer>);

impl Replies for Ear {
    fn on_answer(&self, _: Call, answer: Answer) {
        let _ = self.0.send(answer);
    }
}

/// A node that no other test of this process is.
pub(crate) fn node() -> NodeName {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NodeName::new(&format!("n{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap()
}

/// Settings with short times.
pub(crate) fn options(name: &str, url: &str) -> DatabaseOptions {
    let mut options = DatabaseOptions::new(name, url, node());
    options.statement_timeout = Duration::from_secs(10);
    options
}

pub(crate) fn timing() -> Timing {
    Timing { keep_decision: Duration::from_millis(50), ..Timing::default() }
}

/// A branch that no other test of this process has.
pub(crate) fn branch() -> BranchId {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    BranchId { tx: TxId { epoch: 1, number: NUMBER.fetch_add(1, Ordering::Relaxed) }, branch: 0 }
}

impl Bench {
    pub(crate) fn new(url: &str) -> Self {
        Self::with(options("db", url))
    }

    pub(crate) fn with(options: DatabaseOptions) -> Self {
        let drivers = Drivers::start().unwrap();
        let db = MariaDb::start_with(options.clone(), timing(), &drivers).unwrap();
        wait_until_or(|| format!("it is ready: {:?}", db.ready()), || db.ready().is_ok());
        Self { db, node: options.node.clone(), drivers, options }
    }

    /// Another start of the same node, while this one's sessions live on.
    pub(crate) fn successor(&self) -> Self {
        Self::with(self.options.clone())
    }

    /// The same node's settings for a database of another name.
    pub(crate) fn of_another_name(&self, name: &str) -> DatabaseOptions {
        DatabaseOptions { name: name.to_owned(), ..self.options.clone() }
    }

    pub(crate) fn id(&self, branch: BranchId) -> String {
        self.node.branch_id(branch)
    }

    /// Asks, and returns where the answer comes.
    pub(crate) fn begin(&self, branch: BranchId, ask: Ask) -> mpsc::Receiver<Answer> {
        let (tell, told) = mpsc::channel();
        let reply =
            Reply::new(Call { resource: 0, branch: Some(branch), ask, attempt: 1 }, Arc::new(Ear(tell)));
        match ask {
            Ask::Prepare => self.db.prepare(branch, reply),
            Ask::Commit => self.db.commit(branch, reply),
            Ask::CommitOnePhase => self.db.commit_one_phase(branch, reply),
            Ask::Rollback => self.db.rollback(branch, reply),
            Ask::Recover => self.db.recover(reply),
            Ask::Forget => self.db.forget(branch, reply),
        }
        told
    }

    pub(crate) fn ask(&self, branch: BranchId, ask: Ask) -> Answer {
        self.begin(branch, ask).recv_timeout(PATIENCE).unwrap()
    }

    /// Asks until it is done, as a coordinator does.
    pub(crate) fn ask_until_done(&self, branch: BranchId, ask: Ask) {
        let last = std::cell::RefCell::new(Answer::Done);
        wait_until_or(
            || format!("{ask:?}: {last:?}"),
            || {
                *last.borrow_mut() = self.ask(branch, ask);
                *last.borrow() == Answer::Done
            },
        );
    }

    pub(crate) fn start(
        &self,
        branch: BranchId,
        text: &str,
    ) -> mpsc::Receiver<Result<Answered, StatementError>> {
        self.start_with(branch, text, &[])
    }

    pub(crate) fn start_with(
        &self,
        branch: BranchId,
        text: &str,
        parameters: &[Option<&[u8]>],
    ) -> mpsc::Receiver<Result<Answered, StatementError>> {
        let (tell, told) = mpsc::channel();
        let parameters = parameters.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
        let done = Box::new(move |result| drop(tell.send(result)));
        self.db.run(branch, Statement { text: text.to_owned(), parameters }, done);
        told
    }

    pub(crate) fn run(&self, branch: BranchId, text: &str) -> Result<Answered, StatementError> {
        self.start(branch, text).recv_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn run_with(
        &self,
        branch: BranchId,
        text: &str,
        parameters: &[Option<&[u8]>],
    ) -> Result<Answered, StatementError> {
        self.start_with(branch, text, parameters).recv_timeout(PATIENCE).unwrap()
    }

    /// The one value that a statement returns.
    pub(crate) fn value(&self, branch: BranchId, text: &str) -> String {
        match self.run(branch, text) {
            Ok(Answered::Rows(rows)) => String::from_utf8(rows[0][0].clone().unwrap()).unwrap(),
            other => panic!("{text}: {other:?}"),
        }
    }

    /// A branch that inserted `id`, prepared; and the identifier of its session.
    pub(crate) fn prepared(&self, id: u64) -> (BranchId, u64) {
        let branch = branch();
        assert_eq!(self.run(branch, &format!("INSERT INTO t VALUES ({id}, 0)")), Ok(Answered::Changed(1)));
        let session = self.value(branch, "SELECT CONNECTION_ID()").parse().unwrap();
        assert_eq!(self.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes));
        (branch, session)
    }

    /// What is prepared of this node.
    pub(crate) fn found(&self) -> Vec<String> {
        match self.ask(branch(), Ask::Recover) {
            Answer::Found(found) => {
                let ids = found.into_iter().map(|prepared| prepared.id);
                ids.filter(|id| self.node.parse_branch_id(id).is_some()).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An application with a session of its own.
pub(crate) struct App {
    runtime: tokio::runtime::Runtime,
    conn: Option<mysql_async::Conn>,
}

impl App {
    pub(crate) fn connect(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opts = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(url).unwrap())
            .prefer_socket(false);
        let conn = runtime.block_on(mysql_async::Conn::new(opts)).unwrap();
        Self { runtime, conn: Some(conn) }
    }

    pub(crate) fn sql(&mut self, text: &str) -> mysql_async::Result<()> {
        self.runtime.block_on(self.conn.as_mut().unwrap().query_drop(text))
    }

    /// The one value that a statement returns; `None` is NULL.
    pub(crate) fn value(&mut self, text: &str) -> Option<u64> {
        let value = self.runtime.block_on(self.conn.as_mut().unwrap().query_first::<Option<u64>, _>(text));
        value.unwrap().unwrap()
    }

    /// What the engine says of itself.
    pub(crate) fn monitor(&mut self) -> String {
        let row = self
            .conn
            .as_mut()
            .unwrap()
            .query_first::<(String, String, String), _>("SHOW ENGINE INNODB STATUS");
        self.runtime.block_on(row).unwrap().unwrap().2
    }

    /// The identifier of its session.
    pub(crate) fn id(&self) -> u64 {
        u64::from(self.conn.as_ref().unwrap().id())
    }

    /// Does `work` in a branch, and prepares it; returns the identifier of its session.
    pub(crate) fn prepare(&mut self, id: &str, work: &str) -> u64 {
        self.prepare_as(&format!("'{id}'"), work)
    }

    /// Takes the user lock by which the session of branch `id` is known.
    pub(crate) fn lock(&mut self, id: &str) {
        assert_eq!(self.value(&format!("SELECT GET_LOCK('{id}', 0)")), Some(1));
    }

    /// As [`Self::prepare`], in a session that holds the branch's lock.
    pub(crate) fn prepare_locked(&mut self, id: &str, work: &str) -> u64 {
        self.prepare_as(&format!("'{id}','lock'"), work)
    }

    fn prepare_as(&mut self, xid: &str, work: &str) -> u64 {
        for text in [&format!("XA START {xid}"), work, &format!("XA END {xid}"), &format!("XA PREPARE {xid}")]
        {
            self.sql(text).unwrap();
        }
        self.id()
    }

    /// COM_RESET_CONNECTION: the session lets go of its locks and of the branch's identifier, and the engine of nothing.
    pub(crate) fn reset(&mut self) {
        assert!(self.runtime.block_on(self.conn.as_mut().unwrap().reset()).unwrap());
    }

    pub(crate) fn close(mut self) {
        let conn = self.conn.take().unwrap();
        self.runtime.block_on(conn.disconnect()).unwrap();
    }
}

pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_until_or(|| what.to_owned(), is_so);
}

#[allow(clippy::disallowed_methods, reason = "a test's own patience")]
fn wait_until_or(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "in vain: {}", what());
        std::thread::sleep(Duration::from_millis(2));
    }
}
