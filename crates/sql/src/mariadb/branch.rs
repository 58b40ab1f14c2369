//! A branch: what is asked of it waits in a queue, and one task works on it.
//!
//! ```text
//!  run, prepare, commit, ... -> queue -> task, while there is something in it: Work, one job after the other
//!  rollback -------------------'  '---- and interrupts a statement or a prepare that is under way
//! ```
//!
//! Invariants
//!   1. At most one task works on a branch; jobs are worked on in the order of the calls.
//!   2. Each job is answered once, also if its task is dropped: then nobody knows what became of it.
//!   3. A branch is forgotten when it has ended, its queue is empty and no session of its is left; a statement that comes later is refused.
//!
//! Out of scope: what a job does (`work`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::Shared;
use super::work::Work;
use crate::branches::{Ended, Told};
use crate::error::AdoptError;
use crate::{Statement, StatementError};
use txn::id::BranchId;
use txn::resource::{Answer, Ask, Reply};

/// A branch.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) id: BranchId,
    state: Mutex<State>,
    is_interrupted: AtomicBool,
    interrupt: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// `None` while a task works on it.
    work: Option<Work>,
    has_run: bool,
    adopted: Option<Owner>,
}

/// Who prepares a branch that is not run here: the identifier of the application's session, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(pub(super) Option<u64>);

/// What is asked of a branch.
#[derive(Debug)]
pub(super) enum Job {
    /// A statement, and who waits for it.
    Run(Statement, Told),
    /// A question, and who waits for its answer.
    Ask(Ask, Reply),
    /// To see which session of the application's has the branch's lock.
    See,
}

/// All branches that have not ended.
#[derive(Debug, Default)]
pub(super) struct Branches {
    live: HashMap<BranchId, Arc<Branch>, RandomState>,
    ended: Ended,
    pub(super) is_closed: bool,
}

impl Shared {
    /// Gives branch `id` something to do.
    pub(super) fn push(self: &Arc<Self>, id: BranchId, job: Job) {
        let mut branches = self.branches();
        let is_run = matches!(job, Job::Run(..));
        if branches.is_closed {
            drop(branches);
            return job.refuse("the database was closed");
        }
        if is_run && branches.ended.has(id) {
            drop(branches);
            return job.refuse("the branch has ended");
        }
        let branch = Arc::clone(branches.live.entry(id).or_insert_with(|| Arc::new(Branch::new(id))));
        let mut state = branch.state();
        let trouble = (is_run && state.adopted.is_some()).then_some(
            "the application prepares this branch itself, and runs its statements in its own session",
        );
        let trouble =
            trouble.or((state.queue.len() >= QUEUE_MAX).then_some("too many statements wait in this branch"));
        if let Some(why) = trouble {
            drop((state, branches));
            return job.refuse(why);
        }
        if matches!(job, Job::Ask(Ask::Rollback, _)) {
            branch.interrupt();
        }
        state.has_run |= is_run;
        state.queue.push_back(job);
        let work = state.work.take();
        drop((state, branches));
        if let Some(work) = work {
            let task = Task { shared: Arc::clone(self), branch, is_done: false };
            self.handle.spawn(task.work(work));
        }
    }

    /// The application prepares branch `id`.
    pub(super) fn adopt(self: &Arc<Self>, id: BranchId, owner: Owner) -> Result<(), AdoptError> {
        let mut branches = self.branches();
        let branch = Arc::clone(branches.live.entry(id).or_insert_with(|| Arc::new(Branch::new(id))));
        let mut state = branch.state();
        if state.has_run {
            return Err(AdoptError::Taken("statements were run in this branch: it is prepared here"));
        }
        state.adopted = Some(owner);
        drop((state, branches));
        // The sooner the better: once its lock is free nobody can be asked whose it was.
        self.push(id, Job::See);
        Ok(())
    }

    /// Forgets all branches, and with them their sessions. Who waits hears that nobody knows.
    pub(super) fn close_branches(&self) {
        let mut branches = self.branches();
        branches.is_closed = true;
        let live = std::mem::take(&mut branches.live);
        drop(branches);
        for branch in live.into_values() {
            branch.interrupt();
            let mut state = branch.state();
            let dropped = (std::mem::take(&mut state.queue), state.work.take());
            drop(state);
            drop(dropped);
        }
    }

    fn branches(&self) -> MutexGuard<'_, Branches> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Branch {
    fn new(id: BranchId) -> Self {
        let state = State { work: Some(Work::default()), ..State::default() };
        Self {
            id,
            state: Mutex::new(state),
            is_interrupted: AtomicBool::new(false),
            interrupt: Notify::new(),
        }
    }

    /// Waits until the branch is to be rolled back.
    pub(super) async fn interrupted(&self) {
        while !self.is_interrupted.load(Ordering::SeqCst) {
            self.interrupt.notified().await;
        }
    }

    pub(super) fn adopted(&self) -> Option<Owner> {
        self.state().adopted
    }

    fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::SeqCst);
        self.interrupt.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    fn refuse(self, why: &str) {
        match self {
            Self::Run(_, told) => told.tell(Err(StatementError::Refused(why.to_owned()))),
            Self::Ask(_, reply) => reply.answer(Answer::Failed(why.to_owned())),
            Self::See => {}
        }
    }
}

/// Works on a branch until its queue is empty.
struct Task {
    shared: Arc<Shared>,
    branch: Arc<Branch>,
    is_done: bool,
}

impl Task {
    async fn work(mut self, mut work: Work) {
        loop {
            let Some(job) = self.next() else {
                let is_closed = self.shared.branches().is_closed;
                if is_closed {
                    // What it ran must not go on; more than to try is not possible.
                    let _ = work.settle(&self.shared).await;
                    self.shared.control.hang_up();
                } else if work.owes() {
                    // Nobody asks any more, but its session may live on.
                    work.pay(&self.shared).await;
                    continue;
                }
                match self.finish(work) {
                    Some(unfinished) => work = unfinished,
                    None => {
                        self.is_done = true;
                        return;
                    }
                }
                continue;
            };
            match job {
                Job::Run(statement, told) => told.tell(work.run(&self.shared, &self.branch, statement).await),
                Job::Ask(ask, reply) => reply.answer(work.ask(&self.shared, &self.branch, ask).await),
                // Who does not see it now looks again when it votes.
                Job::See => drop(work.see_holder(&self.shared, &self.shared.own(&self.branch)).await),
            }
        }
    }

    fn next(&self) -> Option<Job> {
        self.branch.state().queue.pop_front()
    }

    /// Puts the work back, unless something came meanwhile; forgets the branch if it has ended.
    fn finish(&self, work: Work) -> Option<Work> {
        let mut branches = self.shared.branches();
        let mut state = self.branch.state();
        if !state.queue.is_empty() {
            return Some(work);
        }
        let id = self.branch.id;
        let is_live = branches.live.get(&id).is_some_and(|it| Arc::ptr_eq(it, &self.branch));
        let is_over = work.is_over() && is_live;
        if !is_live || (work.is_idle() && state.adopted.is_none()) {
            branches.live.remove(&id);
        } else if !is_over {
            state.work = Some(work);
            return None;
        }
        if is_over {
            branches.live.remove(&id);
            branches.ended.note(id);
        }
        drop((state, branches));
        // A session may close here: not under locks.
        drop(work);
        None
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_done {
            let dropped = std::mem::take(&mut self.branch.state().queue);
            drop(dropped);
        }
    }
}

/// Most jobs that wait in a branch.
const QUEUE_MAX: usize = 1_024;
