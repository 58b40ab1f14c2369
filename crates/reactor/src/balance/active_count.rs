//! How many loops are active, and why: what everybody reads, and `resize` changes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clock::Nanos;

use super::active::Reason;
use super::signals::{CoresFile, ThreadFile};
use crate::{Connector, Options};

/// How many loops are active, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActiveReport {
    /// They are the first ones; the others are parked.
    pub count: usize,
    /// Why there are so many.
    pub reason: Reason,
    /// Since when.
    pub since: Nanos,
    /// How often the number changed.
    pub changes: u64,
}

/// The number of active loops.
#[derive(Debug)]
pub(crate) struct Active {
    count: AtomicUsize,
    report: Mutex<ActiveReport>,
}

impl Active {
    pub(crate) fn new(options: &Options, now: Nanos) -> Self {
        let (count, reason) = at_start(options);
        let report = ActiveReport { count, reason, since: now, changes: 0 };
        Self { count: AtomicUsize::new(count), report: Mutex::new(report) }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn report(&self) -> ActiveReport {
        *self.lock()
    }

    /// Has the first `count` be those that connections live on.
    pub(super) fn set_count(&self, count: usize) {
        self.count.store(count, Ordering::SeqCst);
    }

    /// Notes that the number changes to `to`, for `reason`; what it was, or nothing if that is no change.
    pub(super) fn note_change(&self, to: usize, reason: Reason, now: Nanos) -> Option<usize> {
        let mut report = self.lock();
        let (from, changes) = (report.count, report.changes + 1);
        if to == from {
            return None;
        }
        *report = ActiveReport { count: to, reason, since: now, changes };
        Some(from)
    }

    fn lock(&self) -> MutexGuard<'_, ActiveReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many loops a reactor begins with.
fn at_start(options: &Options) -> (usize, Reason) {
    let all = if options.connector == Connector::Threads { 1 } else { options.loops };
    if !options.adapts_loops {
        return (all, Reason::Fixed);
    }
    let is_known = ThreadFile::of_this_thread().is_ok() && CoresFile::open().is_ok();
    if is_known && options.balance.interval.is_some() {
        return (1, Reason::Start);
    }
    ((all - 1).max(1), Reason::Unknown)
}
