//! What the connections of a group share while a phase runs: the source of requests, the recorders, who has left.
//!
//! Invariants
//!   1. A connection leaves once: by being done, or by its end, or because it had ended before it heard of the task.
//!   2. What it counted is in a recorder before it leaves, so that who waits for the last one sees all counts.
//!   3. Who leaves with a failure is named in `fallen`, so that no later phase counts the same again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Nanos;

use super::recorder::Recorder;
use super::source::Source;
use super::tally::Tally;
use connection::Protocol;

#[derive(Debug)]
pub(super) struct Task {
    pub(super) source: Source,
    pub(super) protocol: Protocol,
    /// Most requests under way on each connection.
    pub(super) depth: usize,
    /// Zero: none.
    pub(super) request_timeout: Duration,
    left: Vec<AtomicBool>,
    working: AtomicUsize,
    fallen: Mutex<Vec<u64>>,
    finished_ns: AtomicU64,
    recorders: Vec<Mutex<Recorder>>,
    gate: Arc<Gate>,
}

impl Task {
    pub(super) fn new(
        source: Source,
        start: Nanos,
        request_timeout: Duration,
        loops: usize,
        gate: &Arc<Gate>,
    ) -> Self {
        let (connections, depth, protocol) = source.shape();
        Self {
            source,
            protocol,
            depth,
            request_timeout,
            left: (0..connections).map(|_| AtomicBool::new(false)).collect(),
            working: AtomicUsize::new(connections),
            fallen: Mutex::new(Vec::new()),
            finished_ns: AtomicU64::new(start.0),
            recorders: (0..loops).map(|_| Mutex::default()).collect(),
            gate: Arc::clone(gate),
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.left.len()
    }

    /// The recorder of a loop.
    pub(super) fn recorder(&self, loop_index: usize) -> MutexGuard<'_, Recorder> {
        self.recorders[loop_index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn recorders(&self) -> &[Mutex<Recorder>] {
        &self.recorders
    }

    /// Connection `number` has ended its part; its first end counts what failed.
    pub(super) fn leave(&self, number: u64, loop_index: usize, count: impl FnOnce(&mut Tally)) {
        if self.left[number as usize].swap(true, Ordering::AcqRel) {
            return;
        }
        let has_failed = {
            let mut recorder = self.recorder(loop_index);
            let before = recorder.tally.failures.count();
            count(&mut recorder.tally);
            recorder.tally.failures.count() > before
        };
        if has_failed {
            self.fallen.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        }
        if self.working.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.gate.one_finished();
        }
    }

    /// The connections whose end was counted as a failure.
    pub(super) fn fallen(&self) -> Vec<u64> {
        self.fallen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says when something was last answered.
    pub(super) fn answered_at(&self, now: Nanos) {
        self.finished_ns.fetch_max(now.0, Ordering::Relaxed);
    }

    pub(super) fn finished_at(&self) -> Nanos {
        Nanos(self.finished_ns.load(Ordering::Relaxed))
    }
}

/// Where the end of all tasks of a phase is waited for.
#[derive(Debug)]
pub(super) struct Gate {
    unfinished: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn new(tasks: usize) -> Self {
        Self { unfinished: Mutex::new(tasks), changed: Condvar::new() }
    }

    pub(super) fn one_finished(&self) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.changed.notify_all();
    }

    /// Waits for the end of all tasks, for at most `patience`; whether it came.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let guard = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(guard, patience, |unfinished| *unfinished > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::Load;
    use super::super::work::{Action, Group, Limit, Pick, tests::work};
    use super::*;

    #[test]
    fn the_last_to_leave_ends_the_phase_and_none_leaves_twice() {
        let work = work(Action::Read, Pick::Sequence);
        let group = Group { work, connections: 2, depth: 1, limit: Limit::Each(1), per_second: None };
        let source = Source::Load(Load::new(&group, Protocol::Resp, Nanos(0)));
        let task = Task::new(source, Nanos(0), Duration::ZERO, 1, &Arc::new(Gate::new(1)));
        task.leave(0, 0, |tally| tally.failures.disconnected += 1);
        task.leave(0, 0, |tally| tally.failures.disconnected += 1);
        assert!(!task.gate.wait(Duration::ZERO));
        task.leave(1, 0, |_| {});
        assert!(task.gate.wait(Duration::ZERO));
        assert_eq!(task.recorder(0).tally.failures.disconnected, 1);
        assert_eq!(task.fallen(), [0]);
    }
}
