//! Decisions in a table of PostgreSQL, for who has no disk of its own.
//!
//! ```text
//!  write, remove -> queue -> thread `txn-sql`: all that wait in one transaction -> COMMIT -> all who waited
//! ```
//!
//! Invariants
//!   1. One transaction is on its way at a time; what comes meanwhile goes with the next: group commit without a timer.
//!   2. What the server refused is absent. What was on its way when the connection broke is looked up by a new session, which has the
//!      node's lock only when the old backend is gone (`session`), and only if no other start came between: what is there is
//!      durable, what is not is absent. If no session can be had in time it is unknown, and the log ends.
//!   3. What was not sent is absent.
//!   4. Every wait for the server ends ([`Limits`]), and so does `close`.
//!
//! Out of scope: a server that fails over to a replica which lacks what it acknowledged: it must not (synchronous replication).

mod session;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::AddressError;
use crate::postgres::address;
use crate::postgres::failure::{self, Failure, text};
use crate::tls::{Tls, TlsOptions};
use session::{Found, Rows, Session, Target, silence};
use txn::decision_log::{Cycle, DecisionLog, LogCounters, LogError, OpenError, Opened, Refused, Waiter};
use txn::id::{NodeName, TxId};

/// The log.
#[derive(Debug)]
pub struct SqlLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqlLog {
    /// Opens the log of `node` in the database at `url` (`postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or `key=value` pairs), spoken
    /// to as `tls` says, and makes its tables if they are not there.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(url: &str, tls: &TlsOptions, node: &NodeName) -> Result<Opened<Self>, OpenError> {
        Self::open_within(url, tls, node, Limits::default())
    }

    /// As [`SqlLog::open`], with other limits.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_within(
        url: &str,
        tls: &TlsOptions,
        node: &NodeName,
        limits: Limits,
    ) -> Result<Opened<Self>, OpenError> {
        let Limits { answer_max, look_up_max } = limits;
        let no = |why: AddressError| OpenError::Failed(format!("not an address of PostgreSQL: {why}"));
        let mut config = address::read(url).map_err(no)?;
        let tls =
            Tls::new(tls, address::is_here(&config)).map_err(|error| OpenError::Failed(error.to_string()))?;
        address::secure(&mut config, &tls).map_err(no)?;
        config.application_name("evenkeel").connect_timeout(CONNECT_MAX).tcp_user_timeout(answer_max);
        let proof =
            address::proof(&config, &tls, None).map_err(|error| OpenError::Failed(error.to_string()))?;
        let target = Target { config, tls, proof, answer_max };
        let shared = Arc::new(Shared::default());
        let (tell, told) = mpsc::channel();
        let thread =
            LogThread { shared: Arc::clone(&shared), target, node: node.clone(), epoch: 0, look_up_max };
        let thread = std::thread::Builder::new()
            .name("txn-sql".into())
            .spawn(move || thread.run(&tell))
            .map_err(|error| OpenError::Failed(format!("starting a thread: {error}")))?;
        let ended = |_| Err(OpenError::Failed("the thread of the decision log ended".to_owned()));
        let Found { epoch, born, records } = told.recv().unwrap_or_else(ended)?;
        let log = Self { shared, thread: Mutex::new(Some(thread)) };
        Ok(Opened { log: Arc::new(log), epoch, born, records })
    }
}

impl DecisionLog for SqlLog {
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        let mut state = self.shared.state();
        if let Some(reason) = &state.stopped {
            return Err(Refused::Closed(reason.clone()));
        }
        if state.queue.len() >= QUEUE_MAX {
            return Err(Refused::Full(format!("{QUEUE_MAX} records wait for PostgreSQL, the most that may")));
        }
        state.push(Job { tx, record: record.to_vec(), waiter: Arc::clone(waiter) });
        drop(state);
        self.shared.work.notify_one();
        Ok(None)
    }

    fn remove(&self, tx: TxId) {
        let mut state = self.shared.state();
        state.removed += 1;
        if state.removals.len() < REMOVALS_MAX {
            state.removals.insert(tx);
        }
        let is_first = state.removals.len() == 1;
        drop(state);
        if is_first {
            self.shared.work.notify_one();
        }
    }

    fn is_sound(&self) -> bool {
        self.shared.state().stopped.is_none()
    }

    fn counters(&self) -> LogCounters {
        self.shared.state().counters()
    }

    fn close(&self) {
        self.shared.state().stopped.get_or_insert_with(|| "it was closed".to_owned());
        self.shared.work.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the decision log panicked");
        }
    }
}

impl Drop for SqlLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// How long the log waits for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For an answer; then the connection counts as broken. When the log is opened: for all that come until the node is locked.
    pub answer_max: Duration,
    /// After a connection broke, for what became of what was on its way; then that is unknown, and the log ends.
    pub look_up_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { answer_max: ANSWER_MAX, look_up_max: LOOK_UP_MAX }
    }
}

/// A record that waits.
struct Job {
    tx: TxId,
    record: Vec<u8>,
    waiter: Arc<dyn Waiter>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("tx", &self.tx).finish_non_exhaustive()
    }
}

/// Who waits for a transaction of the database, and for which of its rows.
type Waiting = Vec<(TxId, Arc<dyn Waiter>)>;

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// Removed, and perhaps still there.
    removals: HashSet<TxId>,
    /// Why no more records are taken.
    stopped: Option<String>,
    records: u64,
    removed: u64,
    commits: u64,
    bytes: u64,
}

impl State {
    fn counters(&self) -> LogCounters {
        LogCounters { records: self.records, removed: self.removed, syncs: self.commits, bytes: self.bytes }
    }

    /// A record that goes with one of the next transactions.
    fn push(&mut self, job: Job) {
        // A removal that went with it would remove it, or not.
        self.removals.remove(&job.tx);
        self.queue.push_back(job);
    }

    /// What goes into the next transaction; a transaction's second record goes with the one after it.
    fn take(&mut self) -> (Rows, Waiting) {
        let (mut rows, mut waiting, mut taken) = (Rows::default(), Waiting::new(), HashSet::new());
        while waiting.len() < ROWS_MAX
            && let Some(job) = self.queue.pop_front_if(|job| taken.insert(job.tx))
        {
            rows.writes.push((job.tx, job.record));
            waiting.push((job.tx, job.waiter));
        }
        rows.removals =
            self.removals.iter().filter(|tx| !taken.contains(tx)).take(ROWS_MAX).copied().collect();
        for tx in &rows.removals {
            self.removals.remove(tx);
        }
        (rows, waiting)
    }

    /// What `rows` did not remove, or perhaps did not, is removed later. A log that was closed and wrote nothing else forgets it: it
    /// would be tried again at once, for ever if the server goes on to refuse it.
    fn put_back(&mut self, rows: &Rows) {
        if self.stopped.is_none() || !rows.writes.is_empty() {
            // They were taken before these records came, and would remove them.
            let newer: HashSet<TxId> = self.queue.iter().map(|job| job.tx).collect();
            let room = REMOVALS_MAX.saturating_sub(self.removals.len());
            self.removals.extend(rows.removals.iter().filter(|tx| !newer.contains(tx)).take(room));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic under the decision log's lock is a bug: stop")
    }

    /// Takes no more records; those that wait in the queue were not sent.
    fn stop(&self, reason: &str) {
        let mut state = self.state();
        state.stopped.get_or_insert_with(|| reason.to_owned());
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        for job in queue {
            job.waiter.on_logged(job.tx, Err(LogError::Absent(format!("it was not sent: {reason}"))));
        }
    }
}

/// What the thread owns.
struct LogThread {
    shared: Arc<Shared>,
    target: Target,
    node: NodeName,
    epoch: u32,
    look_up_max: Duration,
}

impl LogThread {
    fn run(mut self, tell: &mpsc::Sender<Result<Found, OpenError>>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = tell.send(Err(OpenError::Failed(format!("starting a runtime: {error}"))));
                return;
            }
        };
        runtime.block_on(async {
            let opened = self.open().await.map(|(session, found)| {
                self.epoch = found.epoch;
                (session, found)
            });
            match opened {
                Ok((session, found)) => {
                    let _ = tell.send(Ok(found));
                    self.serve(session).await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        // It would wait for a name that is being looked up.
        runtime.shutdown_background();
    }

    async fn open(&self) -> Result<(Session, Found), OpenError> {
        let Target { config, answer_max, .. } = &self.target;
        let limit = *answer_max + LOCK_MAX;
        let late = |_| OpenError::Failed(format!("{}: {}", failure::place(config), silence(limit)));
        let opened = Session::open(&self.target, &self.node, LOCK_MAX);
        let session = tokio::time::timeout(limit, opened).await.map_err(late)??;
        let found = session.start(&self.target, &self.node).await?;
        Ok((session, found))
    }

    /// Writes what comes until the log is closed, or ends.
    async fn serve(&self, mut session: Session) {
        loop {
            let (rows, waiting) = self.next().await;
            if rows.writes.is_empty() && rows.removals.is_empty() {
                session.close().await;
                return;
            }
            match session.write(&self.node, &rows).await {
                Ok(()) => self.note(&rows, &waiting),
                Err(Failure::Refused(_, what)) => {
                    tracing::error!(what, "the database refused decisions");
                    self.shared.state().put_back(&rows);
                    tell_all(&waiting, |_| Err(LogError::Absent(what.clone())));
                }
                Err(Failure::Lost(what)) => {
                    tracing::warn!(what, "the connection of the decision log broke");
                    // Whatever is under way there: its connection goes with it.
                    drop(session);
                    match self.look_up(rows, &waiting).await {
                        Ok(fresh) => session = fresh,
                        Err(why) => return self.give_up(&waiting, &format!("{what}; {why}")),
                    }
                }
            }
        }
    }

    /// The next transaction; removals alone wait for a while. Nothing, when the log is closed and all is done.
    async fn next(&self) -> (Rows, Waiting) {
        loop {
            let (has_writes, has_removals, is_over) = {
                let state = self.shared.state();
                (!state.queue.is_empty(), !state.removals.is_empty(), state.stopped.is_some())
            };
            let work = self.shared.work.notified();
            let is_idle = if has_writes || is_over {
                true
            } else if has_removals {
                tokio::time::timeout(IDLE, work).await.is_err()
            } else {
                work.await;
                false
            };
            if is_idle {
                return self.shared.state().take();
            }
        }
    }

    /// A transaction is durable.
    fn note(&self, rows: &Rows, waiting: &Waiting) {
        let mut state = self.shared.state();
        state.records += rows.writes.len() as u64;
        state.bytes += rows.writes.iter().map(|(_, record)| record.len() as u64).sum::<u64>();
        state.commits += 1;
        drop(state);
        tell_all(waiting, |_| Ok(()));
    }

    /// Finds out what became of `rows`, with a session that goes on; or says why it cannot.
    async fn look_up(&self, rows: Rows, waiting: &Waiting) -> Result<Session, Unfound> {
        let mut why = Unfound::Retry(String::new());
        let tries = tokio::time::timeout(self.look_up_max, self.try_until_found(&rows, &mut why)).await;
        let Ok(Some((session, found))) = tries else { return Err(why) };
        let sent: HashMap<TxId, &Vec<u8>> = rows.writes.iter().map(|(tx, record)| (*tx, record)).collect();
        // A removed record may come back: those that are there still are removed once more.
        let is_there = |tx: &TxId| found.get(tx) == sent.get(tx).copied();
        let mut state = self.shared.state();
        state.records += sent.keys().filter(|tx| is_there(tx)).count() as u64;
        state.put_back(&rows);
        drop(state);
        tell_all(waiting, |tx| {
            let absent = || LogError::Absent("its transaction was rolled back".to_owned());
            if is_there(&tx) { Ok(()) } else { Err(absent()) }
        });
        Ok(session)
    }

    /// Tries until it is known, or will never be: then `None`. `why` is what the last one that ended found.
    async fn try_until_found(
        &self,
        rows: &Rows,
        why: &mut Unfound,
    ) -> Option<(Session, HashMap<TxId, Vec<u8>>)> {
        // A server that was silent once may answer the next.
        let limit = self.look_up_max / 2;
        loop {
            match tokio::time::timeout(limit, self.try_look_up(rows)).await {
                Ok(Ok(found)) => return Some(found),
                Ok(Err(unfound)) => {
                    *why = unfound;
                    if matches!(why, Unfound::Never(_)) {
                        return None;
                    }
                }
                Err(_) => *why = Unfound::Retry(silence(limit)),
            }
            tokio::time::sleep(LOOK_UP_PAUSE).await;
        }
    }

    async fn try_look_up(&self, rows: &Rows) -> Result<(Session, HashMap<TxId, Vec<u8>>), Unfound> {
        let opened = Session::open(&self.target, &self.node, Duration::ZERO).await;
        let session = opened.map_err(|error| Unfound::Retry(error.to_string()))?;
        let txs = rows.writes.iter().map(|(tx, _)| *tx);
        match session.read_back(&self.node, self.epoch, txs).await {
            Ok(Some(found)) => Ok((session, found)),
            Ok(None) => Err(Unfound::Never("another start of the node came between")),
            Err(error) => Err(Unfound::Retry(text(&error))),
        }
    }

    fn give_up(&self, waiting: &Waiting, reason: &str) {
        tracing::error!(reason, "the decision log ends");
        self.shared.stop(reason);
        tell_all(waiting, |_| Err(LogError::Unknown(reason.to_owned())));
    }
}

/// Why it is not known what became of a transaction of the database.
#[derive(Debug, thiserror::Error)]
enum Unfound {
    /// It may be found on the next try.
    #[error("{0}")]
    Retry(String),
    /// It will never be known.
    #[error("{0}")]
    Never(&'static str),
}

fn tell_all(waiting: &Waiting, result: impl Fn(TxId) -> Result<(), LogError>) {
    for (tx, waiter) in waiting {
        waiter.on_logged(*tx, result(*tx));
    }
}

/// Most records that wait.
const QUEUE_MAX: usize = 16_384;
/// Most removals that wait; more are dropped, since what was removed may come back.
const REMOVALS_MAX: usize = 65_536;
/// Most rows of one transaction.
const ROWS_MAX: usize = 1_024;
/// After so long removals go alone.
const IDLE: Duration = Duration::from_secs(1);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A process that was just killed lets go of the lock within.
const LOCK_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(30);
const LOOK_UP_MAX: Duration = Duration::from_secs(10);
const LOOK_UP_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Waiter for Deaf {
        fn on_logged(&self, _: TxId, _: Result<(), LogError>) {}
    }

    fn job(tx: TxId) -> Job {
        Job { tx, record: b"record".to_vec(), waiter: Arc::new(Deaf) }
    }

    /// A removal was put back behind a newer record of its transaction, and removed that.
    #[test]
    fn removal_that_is_put_back_spares_a_record_that_came_meanwhile() {
        let (tx, other) = (TxId { epoch: 1, number: 1 }, TxId { epoch: 1, number: 2 });
        let mut state = State { removals: HashSet::from([tx, other]), ..State::default() };
        let (sent, _) = state.take();
        assert_eq!(HashSet::from_iter(sent.removals.iter().copied()), HashSet::from([tx, other]));
        state.push(job(tx));
        state.put_back(&sent);
        let (next, waiting) = state.take();
        assert_eq!((next.writes.len(), waiting.len(), next.removals), (1, 1, vec![other]));
        let (last, _) = state.take();
        assert_eq!((last.writes.len(), last.removals), (0, vec![]));
    }

    #[test]
    fn removals_that_are_put_back_keep_to_the_bound() {
        let all = (0..).map(|number| TxId { epoch: 1, number });
        let mut state = State { removals: all.take(REMOVALS_MAX).collect(), ..State::default() };
        let (sent, _) = state.take();
        assert_eq!(sent.removals.len(), ROWS_MAX);
        state.removals.extend((0..10).map(|number| TxId { epoch: 2, number }));
        state.put_back(&sent);
        assert_eq!(state.removals.len(), REMOVALS_MAX);
    }
}
