//! A lane: some transactions, and the one thread that drives their machines.
//!
//! A thread that works with transactions has a lane of its own, as an event loop has its connections: nobody else touches what
//! happens in it, so machines need no locks between each other. Others look into it (operators, recovery) under its lock, which
//! its owner takes once a call and nobody holds for long.
//!
//! ```text
//!  begin, enlist, commit -> table (all that is known of its transactions) -> machine -> effects: ask a resource, write to the log
//!  turn <- inbox <- answers, durable decisions, commits that were left to it
//! ```
//!
//! Invariants
//!   1. A transaction is in one lane from begin to end; its number tells which.
//!   2. Nothing waits but [`Lane::wait`] and [`Lane::commit_and_wait`]. The first ends by the next time that a machine waits for, the other
//!      has it looked at up to a second later.
//!   3. A lane that is dropped loses nothing: the coordinator's recovery manager goes on with what is unfinished.
//!
//! Out of scope: what comes next in a transaction (`protocol`), where its state is (`table`), who carries it out (`inner`).

pub(crate) mod error;
pub(crate) mod inner;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;

use crate::decision_log::Cycle;
use crate::id::{BranchId, TxId};
use crate::inbox::Inbox;
use crate::protocol::Outcome;
use crate::shared::Shared;
pub use error::LaneError;
use inner::LaneInner;

/// Transactions of one thread.
#[derive(Debug)]
pub struct Lane {
    shared: Arc<Shared>,
    inner: Arc<LaneInner>,
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, inner: Arc<LaneInner>) -> Self {
        Self { shared, inner }
    }

    /// Begins a transaction, which rolls back if no end was chosen for it within `timeout`.
    ///
    /// # Errors
    /// [`LaneError::TooMany`], [`LaneError::Closed`].
    pub fn begin(&mut self, timeout: Duration) -> Result<TxId, LaneError> {
        self.shared.admit()?;
        Ok(self.inner.begin(&self.shared, &mut self.inner.table(), timeout))
    }

    /// Adds a branch for the resource at this place among the coordinator's.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::NoResource`], [`LaneError::NotReady`], [`LaneError::Misuse`].
    pub fn enlist(&mut self, tx: TxId, resource: u16) -> Result<BranchId, LaneError> {
        self.inner.enlist(&self.shared, tx, resource, None)
    }

    /// Begins to commit; [`Lane::turn`] tells the outcome.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit(&mut self, tx: TxId) -> Result<(), LaneError> {
        self.inner.commit(&self.shared, &mut self.inner.table(), self.shared.time(), tx)
    }

    /// Begins to roll back; [`Lane::turn`] tells the outcome, which has this reason.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn rollback(&mut self, tx: TxId, reason: &str) -> Result<(), LaneError> {
        self.inner.rollback(&self.shared, &mut self.inner.table(), tx, reason)
    }

    /// Handles what came, and adds to `finished` what ended; never waits.
    pub fn turn(&mut self, finished: &mut Vec<(TxId, Outcome)>) {
        self.inner.turn(&self.shared, self.shared.time());
        self.inner.table().take_finished(finished);
    }

    /// Waits until something came or a time is due that a machine waits for. Makes its own decision durable, where that is
    /// quicker than to wake another thread for it.
    pub fn wait(&mut self) {
        self.wait_as(false);
    }

    /// `is_together`: this thread may sleep with all others that wait for the log. Nobody may have told its inbox before that it sleeps.
    fn wait_as(&mut self, is_together: bool) {
        if self.help() {
            return;
        }
        let (due, cycle) = self.offered();
        match cycle.filter(|_| is_together) {
            Some(cycle) => self.inner.inbox.park_together(cycle),
            None => self.inner.inbox.park(self.until(due)),
        }
    }

    /// Makes durable on this thread what waits for that, where it is quicker than to wake another. False: nothing was done.
    pub(crate) fn help(&self) -> bool {
        let (helped, waits, writing) = {
            let mut table = self.inner.table();
            (table.take_helped(), table.not_offered() > 0, table.writing())
        };
        // Not under the lock: it may take as long as a sync.
        helped.iter().for_each(|place| self.shared.resources[usize::from(*place)].help());
        let is_alone = self.shared.writing.load(Ordering::Relaxed) == writing;
        let has_helped = waits && self.shared.log.help(is_alone);
        if has_helped {
            self.inner.table().take_offer();
        }
        has_helped || !helped.is_empty()
    }

    /// Does what [`Self::help`] can, and has others do the rest: what was left to the next turn would be tried for ever on a slow disk.
    pub(crate) fn help_all(&self) {
        self.help();
        self.inner.offer(&self.shared);
    }

    /// Whether a lone commit waits for what [`Self::help`] does.
    pub(crate) fn may_help(&self) -> bool {
        self.inner.table().may_help()
    }

    /// Tells the log that somebody waits, if nobody has; for how long there is nothing to be done.
    pub(crate) fn rest(&self) -> Duration {
        self.until(self.offered().0)
    }

    /// Tells the log that somebody waits; when there is something to be done, and with which cycle of the log a lone transaction goes on.
    fn offered(&self) -> (Option<Nanos>, Cycle) {
        let mut table = self.inner.table();
        inner::offer(&self.shared, &mut table);
        (table.due(), table.cycle_awaited())
    }

    fn until(&self, due: Option<Nanos>) -> Duration {
        due.map_or(WAIT_MOST, |due| due.since(self.shared.clock.now()).min(WAIT_MOST))
    }

    /// Commits, and waits for the outcome.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit_and_wait(&mut self, tx: TxId) -> Result<Outcome, LaneError> {
        let mut time = self.shared.time();
        self.inner.commit(&self.shared, &mut self.inner.table(), time, tx)?;
        loop {
            self.inner.turn(&self.shared, time);
            let outcome = self.inner.table().take_outcome(tx);
            match outcome {
                Some(outcome) => return Ok(outcome),
                None => self.wait_as(true),
            }
            time = self.shared.time();
        }
    }

    /// How many have not ended, those included whose outcome was told and whose branches still have to hear of it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.table().len()
    }

    /// Whether all have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long to let commits gather now.
    pub(crate) fn commit_delay(&self) -> Duration {
        self.inner.table().rest()
    }

    /// Whether commits wait for the next turn from now on: this thread rests for so long. A lone one waits for it in any case.
    pub(crate) fn gather(&self, rest: Duration) {
        let mut table = self.inner.table();
        (table.is_gathering, table.has_worker) = (!rest.is_zero(), true);
    }

    /// There is no next turn: commits are begun by who asks for them.
    pub(crate) fn gather_no_more(&self) {
        let mut table = self.inner.table();
        (table.is_gathering, table.has_worker) = (false, false);
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inner.inbox
    }

    /// What others may use of it: see [`SharedLane`](crate::shared_lane::SharedLane).
    pub(crate) fn parts(&self) -> (Arc<Shared>, Arc<LaneInner>) {
        (Arc::clone(&self.shared), Arc::clone(&self.inner))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.inner.offer(&self.shared);
        self.shared.adopt(&self.inner);
    }
}

/// A lane looks at least this often.
const WAIT_MOST: Duration = Duration::from_secs(1);
