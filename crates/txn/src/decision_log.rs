//! Where decisions are kept until every branch has heard of them.
//!
//! Presumed abort: only commits are written (and heuristic outcomes, for the operator). What a log does not have was not committed,
//! so a log that cannot be read in full must refuse to open: silence is an answer.
//!
//! | log | durable when | for |
//! |---|---|---|
//! | [`volatile`] | never | comparison: the protocol alone |
//! | [`mod@file`] | a file a transaction, written and synced, its folder synced if the file is new | comparison: one sync (and more) a transaction |
//! | [`mod@journal`] | one sync for all that were written meanwhile | use |
//! | `sql::decision_log` | a row of a PostgreSQL table is committed | who has no disk of its own |
//!
//! Invariants
//!   1. A waiter hears `Ok` only after the record is durable, and hears once.
//!   2. After a failure whose outcome is unknown ([`LogError::Unknown`]) the log takes no more records: only a new start tells
//!      what is on disk.
//!   3. An epoch is durable before the log is open: no number is used twice.
//!   4. A removed record may come back after a crash, a record that was not removed is never missing.
//!
//! Out of scope: what a record means (`record`), who waits and how (`coordinator`).

pub mod file;
pub mod journal;
pub mod volatile;

use std::fmt::Debug;
use std::sync::Arc;

use clock::Clock;

use crate::event_count::{EventCount, Side};
use crate::id::TxId;

/// A log that is open.
pub trait DecisionLog: Debug + Send + Sync {
    /// Begins to make `record` durable as what is known of `tx`, instead of what was before; never waits for a disk. Who waits for
    /// it calls [`DecisionLog::offer`] or [`DecisionLog::help`] next.
    /// `waiter` hears of it once, from any thread, perhaps before this returns. Says with what others it becomes durable.
    ///
    /// # Errors
    /// [`Refused`]: nothing of it is in the log or ever will be; the waiter hears nothing.
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused>;

    /// The record of `tx` is not needed any more. Nobody waits for that: it rides along with the next record.
    fn remove(&self, tx: TxId);

    /// Says that somebody waits for what was written: a log that works by itself has nothing to do here, one that lets its writers
    /// gather, or [`DecisionLog::help`], begins now.
    fn offer(&self) {}

    /// For a caller that has nothing else to do than to wait: makes what was written and not offered durable on this thread, if
    /// that is quicker than to wake another. False: nothing was done.
    /// `is_alone`: nobody else is known to wait.
    fn help(&self, is_alone: bool) -> bool {
        let _ = is_alone;
        false
    }

    /// Whether it is readable and takes records: recovery presumes nothing from one that does not.
    fn is_sound(&self) -> bool;

    /// What it did so far.
    fn counters(&self) -> LogCounters;

    /// Clean stop: everything written becomes durable. Waits.
    fn close(&self);
}

/// A log that was opened: what it held, and the epoch that this start uses.
#[derive(Debug)]
pub struct Opened<L> {
    /// The log.
    pub log: Arc<L>,
    /// Greater than that of every start before.
    pub epoch: u32,
    /// The epoch of the log's first start: what was prepared in an earlier one was decided in another log.
    pub born: u32,
    /// Records that were not removed, by transaction.
    pub records: Vec<(TxId, Vec<u8>)>,
}

/// Who waits for a record.
pub trait Waiter: Send + Sync {
    /// The record of `tx` is durable, or something else is known of it. Must not wait.
    fn on_logged(&self, tx: TxId, result: Result<(), LogError>);

    /// As [`Waiter::on_logged`], of `all` in a row. Perhaps it is not woken before `round` ends.
    fn on_logged_of(&self, round: &mut Round, all: &[TxId], result: &Result<(), LogError>) {
        let _ = round;
        all.iter().for_each(|tx| self.on_logged(*tx, result.clone()));
    }
}

/// With what others a record becomes durable: `None` if each does for itself, or if that is not known.
pub type Cycle = Option<u64>;

/// Waiters who are told in a row. Its end, when it is dropped, wakes those who sleep together.
#[derive(Debug, Default)]
pub struct Round(Option<(Arc<EventCount>, Side)>);

impl Round {
    /// At the end of the round `event_count` notifies, once.
    pub(crate) fn notifies(&mut self, event_count: &Arc<EventCount>, side: Side) {
        let is_known =
            |(known, its): &(Arc<EventCount>, Side)| *its == side && Arc::ptr_eq(known, event_count);
        if !self.0.as_ref().is_some_and(is_known) {
            // Those before are woken now: mostly there is one side, and one coordinator.
            self.notify();
            self.0 = Some((Arc::clone(event_count), side));
        }
    }

    fn notify(&mut self) {
        if let Some((event_count, side)) = self.0.take() {
            event_count.notify(side);
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.notify();
    }
}

/// What a log did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records written.
    pub records: u64,
    /// Records removed.
    pub removed: u64,
    /// Syncs of a device that somebody waited for, of files and folders, or commits of a database.
    pub syncs: u64,
    /// Bytes that it wrote.
    pub bytes: u64,
}

/// A record that was not taken, without a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room yet: what fills the log's buffer is on its way to the disk, or a file is being prepared. Offer, and ask again.
    #[error("the decision log has no room yet: {0}")]
    Busy(String),
    /// There is no room, in memory or on disk; the message names the setting.
    #[error("the decision log has no room: {0}")]
    Full(String),
    /// It was closed, or failed before.
    #[error("the decision log takes no more records: {0}")]
    Closed(String),
}

/// What became of a record that was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// It is certain not to be in the log.
    #[error("the decision was not written: {0}")]
    Absent(String),
    /// It may be in the log: the outcome is unknown until the log was opened again.
    #[error("it is not known whether the decision was written: {0}")]
    Unknown(String),
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something in it is not what was written: which file or row, and what is wrong with it.
    #[error("the decision log is damaged: {0}")]
    Damaged(String),
    /// It belongs to another node.
    #[error("the decision log in {place} is of node {found}, not of {wanted} (txn.node)")]
    OtherNode {
        /// Folder, or table.
        place: String,
        /// Whose it is.
        found: String,
        /// Who opened it.
        wanted: String,
    },
    /// Somebody else has it open.
    #[error("the decision log in {0} is in use by another process")]
    InUse(String),
    /// The system or the database said no.
    #[error("cannot open the decision log: {0}")]
    Failed(String),
}

/// The epoch of the first start of a log, by the clock: a server that lost its log, or was restored without it, begins behind all that it
/// may have used before, and knows that it has not decided those. In seconds of Unix time.
#[must_use]
pub fn first_epoch(clock: &dyn Clock) -> u32 {
    u32::try_from(clock.unix_ms().0 / 1_000).unwrap_or(u32::MAX).max(1)
}

/// The epoch of a start and the first one, of a log in `place` that notes the last and the first, or of one that was just made.
fn next_epochs(noted: Option<(u32, u32)>, clock: &dyn Clock, place: &str) -> Result<(u32, u32), OpenError> {
    let Some((last, born)) = noted else {
        let first = first_epoch(clock);
        return Ok((first, first));
    };
    let next = last.checked_add(1);
    let next = next.ok_or_else(|| OpenError::Failed(format!("no epoch is left in {place}")))?;
    Ok((next, born))
}

/// The first epoch of logs that did not note it.
const BORN_UNKNOWN: u32 = 1;
