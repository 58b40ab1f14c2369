//! A shared lane: one that any thread may use, turned where the databases' answers come in, or by a thread of its own.
//!
//! For who has connections instead of threads: a transaction begins on one event loop and is committed on another.
//!
//! ```text
//!  any thread: begin, enlist, commit -> lane's machines -> resources, log        its worker: turn, pause, tell outcomes
//!
//!  host of the worker   the databases' drivers: who answers does not wake a thread, nor does what is asked next
//!                       LaneThread, without databases: the thread `txn-lane`
//! ```
//!
//! Where many commits are under way and each takes long, the worker rests between its turns (`commit_delay`): what comes meanwhile, and
//! commits that are asked for, go on together.
//!
//! Invariants
//!   1. Calls wait for nothing but the lane's lock, which nobody holds for long.
//!   2. The outcome of each transaction that began here is told once, by the lane's worker; of those only that end before the shared lane
//!      does.
//!   3. A commit that waits for the worker is begun at its next turn: it waits in the lane's inbox, and what is there ends a sleep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use crate::coordinator::Coordinator;
use crate::id::{BranchId, TxId};
use crate::inbox::{Event, Wake, lock};
use crate::lane::inner::LaneInner;
use crate::lane::{Lane, LaneError};
use crate::protocol::Outcome;
use crate::shared::Shared;
use crate::table::TransactionTable;

/// A lane for all threads.
#[derive(Debug)]
pub struct SharedLane {
    shared: Arc<Shared>,
    inner: Arc<LaneInner>,
    ends: Arc<AtomicBool>,
    host: Arc<dyn LaneHost>,
    /// Breaks off when the worker is gone; taken by whoever closes first.
    worker: Mutex<Option<mpsc::Receiver<()>>>,
}

/// Where the worker of a shared lane runs.
pub trait LaneHost: std::fmt::Debug + Send + Sync {
    /// Begins to call [`LaneWorker::turn`], and goes on, with the pauses that it asks for, until it is over; then drops it. Returns at once.
    /// Before the first turn it says with [`LaneWorker::set_wake`] how a pause is ended early.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    fn run(&self, worker: LaneWorker) -> std::io::Result<()>;

    /// Whether the calling thread is the one that turns the worker: it must not wait for it.
    fn is_here(&self) -> bool;
}

/// Who turns a shared lane, and tells outcomes.
pub struct LaneWorker {
    lane: Lane,
    ends: Arc<AtomicBool>,
    told: Box<dyn Fn(TxId, Outcome) + Send>,
    rest: Duration,
    /// It helps before it looks at what came.
    helps: bool,
    /// Kept for its memory.
    finished: Vec<(TxId, Outcome)>,
    /// Breaks off when all the above is gone.
    _alive: mpsc::Sender<()>,
}

/// What a worker does until its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Nothing: something has come already.
    None,
    /// It lets others on its thread go on first, as it may block for a write and sync then.
    Yield,
    /// It lets work gather for so long, and is not woken.
    Rest(Duration),
    /// It sleeps until it is woken, at most for so long.
    Sleep(Duration),
    /// There is no next turn.
    Over,
}

impl SharedLane {
    /// Opens a shared lane whose worker runs on `host`; `told` hears of each outcome, and must not wait.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn open(
        host: Arc<dyn LaneHost>,
        coordinator: &Coordinator,
        told: impl Fn(TxId, Outcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        let lane = coordinator.lane();
        let (shared, inner) = lane.parts();
        let ends = Arc::default();
        let (alive, is_gone) = mpsc::channel();
        host.run(LaneWorker {
            lane,
            ends: Arc::clone(&ends),
            told: Box::new(told),
            rest: Duration::ZERO,
            helps: false,
            finished: Vec::new(),
            _alive: alive,
        })?;
        Ok(Self { shared, inner, ends, host, worker: Mutex::new(Some(is_gone)) })
    }

    /// Begins a transaction, which rolls back if no end was chosen for it within `timeout`.
    ///
    /// # Errors
    /// [`LaneError::TooMany`], [`LaneError::Closed`].
    pub fn begin(&self, timeout: Duration) -> Result<TxId, LaneError> {
        self.shared.admit()?;
        let mut table = self.inner.table();
        let before = table.due();
        let tx = self.inner.begin(&self.shared, &mut table, timeout);
        let is_earlier = table.due() != before;
        drop(table);
        if is_earlier {
            self.inner.inbox.wake();
        }
        Ok(tx)
    }

    /// Adds the branch of the resource at this place among the coordinator's: one for each resource. Its identifier is
    /// [`SharedLane::branch`], before and after.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::NoResource`], [`LaneError::NotReady`], [`LaneError::Misuse`].
    pub fn enlist(&self, tx: TxId, resource: u16) -> Result<BranchId, LaneError> {
        self.inner.enlist(&self.shared, tx, resource, Some(resource))
    }

    /// The branch that the resource at this place has, or would have.
    #[must_use]
    pub fn branch(tx: TxId, resource: u16) -> BranchId {
        BranchId { tx, branch: resource }
    }

    /// Begins to commit, where many are under way a moment later; the outcome is told.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit(&self, tx: TxId) -> Result<(), LaneError> {
        self.end(|inner, table| {
            let is_first = table.has_worker && table.under_way() == 0;
            if !table.is_gathering && !is_first {
                return inner.commit(&self.shared, table, self.shared.time(), tx);
            }
            table.active(tx)?;
            // Under the lock: the worker says under it that it gathers no more, and then looks for what came before.
            inner.inbox.push(Event::Commit(tx));
            Ok(())
        })
    }

    /// Begins to roll back; the outcome, which has this reason, is told.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn rollback(&self, tx: TxId, reason: &str) -> Result<(), LaneError> {
        self.end(|inner, table| inner.rollback(&self.shared, table, tx, reason))
    }

    /// Its worker may be about to sleep: it is woken if this leaves it something to do before it would look.
    fn end<T>(&self, how: impl FnOnce(&LaneInner, &mut TransactionTable) -> T) -> T {
        let mut table = self.inner.table();
        let before = table.due();
        let done = how(&self.inner, &mut table);
        let must_look = table.has_finished() || table.due() != before;
        drop(table);
        self.inner.offer(&self.shared);
        if must_look {
            self.inner.inbox.wake();
        }
        done
    }

    /// Ends; what has not ended is left to the coordinator's recovery manager, and its outcome is not told. Waits for the lane's worker.
    pub fn close(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.inner.inbox.wake();
        let worker = lock(&self.worker).take();
        if let Some(is_gone) = worker.filter(|_| !self.host.is_here()) {
            // It says nothing, and hangs up.
            let _ = is_gone.recv();
        }
    }
}

impl Drop for SharedLane {
    fn drop(&mut self) {
        self.close();
    }
}

impl LaneWorker {
    /// From now on `wake` is called to end a pause early; from any thread.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.lane.inbox().set_wake(Wake::Call(Arc::new(wake)));
    }

    /// Handles what came, commits that wait among it, and tells what ended. Waits for nothing but, after [`Pause::Yield`], a write and sync
    /// of what a lone commit waits for: it would wait for two other threads to be woken instead.
    pub fn turn(&mut self) -> Pause {
        if std::mem::take(&mut self.helps) {
            self.lane.help_all();
        }
        // Before it looks at anything: whoever changes that afterwards wakes it, though it does not sleep yet. Who has rested
        // looks by itself: nobody need wake it.
        let may_sleep = self.rest.is_zero() && self.lane.inbox().may_sleep();
        let is_over = self.ends.load(Ordering::SeqCst);
        if is_over {
            // From now on commits begin at once; those that wait begin in this turn.
            self.lane.gather_no_more();
        }
        self.lane.turn(&mut self.finished);
        if is_over {
            return Pause::Over;
        }
        self.finished.drain(..).for_each(|(tx, outcome)| (self.told)(tx, outcome));
        if self.lane.may_help() {
            self.helps = true;
            return Pause::Yield;
        }
        // What nobody has helped with is offered.
        let most = self.lane.rest();
        self.rest = self.lane.commit_delay();
        self.lane.gather(self.rest);
        match (self.rest, may_sleep) {
            (Duration::ZERO, true) => Pause::Sleep(most),
            (Duration::ZERO, false) => Pause::None,
            (rest, _) => Pause::Rest(rest.min(most)),
        }
    }
}

impl std::fmt::Debug for LaneWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneWorker").field("lane", &self.lane).finish_non_exhaustive()
    }
}

/// A host with a thread of its own, which ends with the worker. It takes one worker.
#[derive(Debug, Default)]
pub struct LaneThread {
    id: OnceLock<ThreadId>,
}

impl LaneHost for LaneThread {
    fn run(&self, worker: LaneWorker) -> std::io::Result<()> {
        #[allow(
            clippy::disallowed_methods,
            reason = "it ends with the worker, for which `SharedLane::close` waits"
        )]
        let thread =
            std::thread::Builder::new().name("txn-lane".to_owned()).spawn(move || turn_until_over(worker))?;
        let is_first = self.id.set(thread.thread().id()).is_ok();
        assert!(is_first, "a lane's thread runs one worker");
        Ok(())
    }

    fn is_here(&self) -> bool {
        self.id.get() == Some(&std::thread::current().id())
    }
}

#[allow(clippy::disallowed_methods, reason = "a worker rests as long as it says")]
fn turn_until_over(mut worker: LaneWorker) {
    let thread = std::thread::current();
    worker.set_wake(move || thread.unpark());
    loop {
        match worker.turn() {
            Pause::None | Pause::Yield => {}
            Pause::Rest(rest) => std::thread::sleep(rest),
            Pause::Sleep(most) => std::thread::park_timeout(most),
            Pause::Over => return,
        }
    }
}
