//! A shared lane: one that any thread may use, turned where the databases' answers come in, or by a thread of its own.
//!
//! For who has connections instead of threads: a transaction begins on one event loop and is committed on another.
//!
//! ```text
//!  any thread: begin, enlist, commit -> lane's machines -> resources, log        its worker: turn, wait, tell outcomes
//!
//!  worker, with databases      a task on the drivers' thread: who answers does not wake a thread, nor does what is asked next
//!         without             the thread `txn-lane`
//! ```
//!
//! Where many commits are under way and each takes long, the worker among the drivers rests between its turns (`commit_delay`): what comes meanwhile, and
//! commits that are asked for, go on together.
//!
//! Invariants
//!   1. Calls wait for nothing but the lane's lock, which nobody holds for long.
//!   2. The outcome of each transaction that began here is told once, by the lane's worker; of those only that end before the shared lane
//!      does.
//!   3. A commit that waits for the worker is begun at its next turn: while it rests it does not sleep longer than that, and whoever leaves one
//!      otherwise wakes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Notify;

use crate::coordinator::{Coordinator, Shared};
use crate::id::{BranchId, TxId};
use crate::inbox::{Wake, lock};
use crate::lane::{Core, Lane, LaneError, Part};
use crate::protocol::Outcome;
use crate::sql::Drivers;

/// A lane for all threads.
#[derive(Debug)]
pub struct SharedLane {
    shared: Arc<Shared>,
    part: Arc<Part>,
    ends: Arc<AtomicBool>,
    waiting: Arc<Waiting>,
    worker: Mutex<Option<LaneWorker>>,
}

/// Commits that wait for the worker's next turn.
#[derive(Debug, Default)]
struct Waiting {
    /// The worker rests: commits wait.
    rests: AtomicBool,
    commits: Mutex<Vec<TxId>>,
}

/// Who turns the lane.
#[derive(Debug)]
enum LaneWorker {
    Thread(JoinHandle<()>),
    /// A task, and what breaks off when it is gone.
    Task(Arc<Drivers>, mpsc::Receiver<()>),
}

impl SharedLane {
    /// Opens a shared lane; `told` hears of each outcome, and must not wait.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn open(
        coordinator: &Coordinator,
        told: impl Fn(TxId, Outcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        let lane = coordinator.lane();
        let (shared, part) = lane.parts();
        let ends = Arc::new(AtomicBool::new(false));
        let must_end = Arc::clone(&ends);
        #[allow(clippy::disallowed_methods, reason = "owned here, and joined when it is closed")]
        let thread = std::thread::Builder::new()
            .name("txn-lane".to_owned())
            .spawn(move || run(lane, &must_end, told))?;
        let worker = Mutex::new(Some(LaneWorker::Thread(thread)));
        Ok(Self { shared, part, ends, waiting: Arc::default(), worker })
    }

    /// Opens a shared lane that is turned on the thread of databases that take part; `told` hears of each outcome, and must not wait.
    pub fn open_on(
        drivers: &Arc<Drivers>,
        coordinator: &Coordinator,
        told: impl Fn(TxId, Outcome) + Send + 'static,
    ) -> Self {
        let lane = coordinator.lane();
        let (shared, part) = lane.parts();
        let ends = Arc::new(AtomicBool::new(false));
        let waiting = Arc::default();
        let (alive, is_gone) = mpsc::channel();
        drivers.handle().spawn(attend(lane, Arc::clone(&ends), Arc::clone(&waiting), told, alive));
        let worker = Mutex::new(Some(LaneWorker::Task(Arc::clone(drivers), is_gone)));
        Self { shared, part, ends, waiting, worker }
    }

    /// Begins a transaction, which rolls back if no end was chosen for it within `timeout`.
    ///
    /// # Errors
    /// [`LaneError::TooMany`], [`LaneError::Closed`].
    pub fn begin(&self, timeout: Duration) -> Result<TxId, LaneError> {
        self.shared.admit()?;
        let mut core = self.part.core();
        let before = core.due();
        let tx = core.begin(&self.shared, timeout);
        let is_earlier = core.due() != before;
        drop(core);
        if is_earlier {
            self.part.inbox.wake();
        }
        Ok(tx)
    }

    /// Adds the branch of the resource at this place among the coordinator's: one for each resource. Its identifier is
    /// [`SharedLane::branch`], before and after.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::NoResource`], [`LaneError::NotReady`], [`LaneError::Misuse`].
    pub fn enlist(&self, tx: TxId, resource: u16) -> Result<BranchId, LaneError> {
        self.part.enlist(&self.shared, tx, resource, Some(resource))
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
        if self.waiting.rests.load(Ordering::SeqCst) {
            self.part.core().check_active(tx)?;
            lock(&self.waiting.commits).push(tx);
            // Its rest may just have ended.
            self.part.inbox.wake();
            return Ok(());
        }
        self.end(|core, shared| core.commit(shared, shared.time(), tx))
    }

    /// Begins to roll back; the outcome, which has this reason, is told.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn rollback(&self, tx: TxId, reason: &str) -> Result<(), LaneError> {
        self.end(|core, shared| core.rollback(shared, shared.time(), tx, reason))
    }

    /// Its worker may be about to sleep: it is woken if this leaves it something to do before it would look.
    fn end<T>(&self, how: impl FnOnce(&mut Core, &Shared) -> T) -> T {
        let mut core = self.part.core();
        let before = core.due();
        let done = how(&mut core, &self.shared);
        let must_look = core.has_finished() || core.due() != before;
        drop(core);
        self.part.offer(&self.shared);
        if must_look {
            self.part.inbox.wake();
        }
        done
    }

    /// Ends; what has not ended is left to the coordinator's recovery manager, and its outcome is not told. Waits for the lane's worker.
    pub fn close(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.part.inbox.wake();
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_well = match worker {
            Some(LaneWorker::Thread(thread)) if thread.thread().id() != std::thread::current().id() => {
                thread.join().is_ok()
            }
            // It says nothing, and hangs up.
            Some(LaneWorker::Task(drivers, is_gone)) if !drivers.is_here() => is_gone.recv().is_err(),
            _ => true,
        };
        if !is_well {
            tracing::error!("the thread of the transactions' lane panicked");
        }
    }
}

impl Drop for SharedLane {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(mut lane: Lane, ends: &AtomicBool, told: impl Fn(TxId, Outcome)) {
    let mut finished = Vec::new();
    let inbox = Arc::clone(&lane.parts().1.inbox);
    inbox.set_wake(Wake::Thread(std::thread::current()));
    loop {
        // Before it looks at anything: whoever changes that afterwards wakes it, though it does not sleep yet.
        let may_sleep = inbox.may_sleep();
        if ends.load(Ordering::SeqCst) {
            return;
        }
        lane.turn(&mut finished);
        finished.drain(..).for_each(|(tx, outcome)| told(tx, outcome));
        if may_sleep {
            lane.wait();
        }
    }
}

/// As [`run`], between the tasks of the drivers. `_alive` is dropped when it is gone.
async fn attend(
    mut lane: Lane,
    ends: Arc<AtomicBool>,
    waiting: Arc<Waiting>,
    told: impl Fn(TxId, Outcome) + Send,
    _alive: mpsc::Sender<()>,
) {
    let (look, mut finished, mut commits) = (Arc::new(Notify::new()), Vec::new(), Vec::new());
    let part = lane.parts().1;
    let wake = Arc::clone(&look);
    part.inbox.set_wake(Wake::Call(Arc::new(move || wake.notify_one())));
    let mut rest = Duration::ZERO;
    loop {
        // Who rests looks by itself: nobody need wake it.
        let may_sleep = rest.is_zero() && part.inbox.may_sleep();
        let is_over = ends.load(Ordering::SeqCst);
        if is_over {
            // From now on commits begin at once.
            waiting.rests.store(false, Ordering::SeqCst);
        }
        std::mem::swap(&mut *lock(&waiting.commits), &mut commits);
        for tx in commits.drain(..) {
            // One whose deadline came first is told so, as any other.
            let _ = lane.commit(tx);
        }
        if is_over {
            return;
        }
        lane.turn(&mut finished);
        finished.drain(..).for_each(|(tx, outcome)| told(tx, outcome));
        let most = lane.rest();
        rest = part.core().commit_delay().rest();
        waiting.rests.store(!rest.is_zero(), Ordering::SeqCst);
        if !rest.is_zero() {
            tokio::time::sleep(rest.min(most)).await;
        } else if may_sleep {
            // Late is as well as woken: it looks at all there is.
            let _ = tokio::time::timeout(most, look.notified()).await;
        }
    }
}
