//! What the connections of a group share while a phase runs: the quota, the plan of times, the recorders.
//!
//! Invariants
//!   1. A connection leaves once: by being done, or by its end, or because it had ended before it heard of the task.
//!   2. What it counted is in a recorder before it leaves, so that who waits for the last one sees all counts.
//!   3. Who leaves with a failure is named in `fallen`, so that no later phase counts the same again.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Nanos;

use super::recorder::{Recorder, Tally};
use super::work::{Encoder, Group, Limit};

#[derive(Debug)]
pub(super) struct Task {
    pub(super) group: Group,
    pub(super) encoder: Encoder,
    pub(super) start: Nanos,
    /// Zero: none.
    pub(super) request_timeout: Duration,
    next: AtomicU64,
    left: Vec<AtomicBool>,
    working: AtomicUsize,
    fallen: Mutex<Vec<u64>>,
    finished_ns: AtomicU64,
    recorders: Vec<Mutex<Recorder>>,
    gate: Arc<Gate>,
}

/// What a connection may send now.
#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    /// The request of this number, which was due then.
    Send(u64, Nanos),
    /// Nothing until the pacer says so.
    Wait,
    /// Nothing any more.
    Done,
}

impl Task {
    pub(super) fn new(
        group: &Group,
        encoder: Encoder,
        start: Nanos,
        request_timeout: Duration,
        loops: usize,
        gate: &Arc<Gate>,
    ) -> Self {
        Self {
            group: group.clone(),
            encoder,
            start,
            request_timeout,
            next: AtomicU64::new(0),
            left: (0..group.connections).map(|_| AtomicBool::new(false)).collect(),
            working: AtomicUsize::new(group.connections),
            fallen: Mutex::new(Vec::new()),
            finished_ns: AtomicU64::new(start.0),
            recorders: (0..loops).map(|_| Mutex::new(Recorder::new())).collect(),
            gate: Arc::clone(gate),
        }
    }

    /// What connection `number` does next, which has sent `sent` requests.
    pub(super) fn turn(&self, number: u64, sent: u64, now: Nanos) -> Turn {
        if let Limit::Each(count) = self.group.limit
            && sent >= count
        {
            return Turn::Done;
        }
        if let Some(rate) = self.group.per_second {
            let index = number + sent * self.group.connections as u64;
            return match self.due(index, rate) {
                Some(due) if due <= now => Turn::Send(index, due),
                Some(_) => Turn::Wait,
                None => Turn::Done,
            };
        }
        let is_late = matches!(self.group.limit, Limit::For(length) if now >= self.start + length);
        if is_late {
            return Turn::Done;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        match self.group.limit {
            Limit::Requests(count) if index >= count => Turn::Done,
            _ => Turn::Send(index, now),
        }
    }

    /// When an open loop at `rate` sends request `index`; `None` when that is beyond its limit.
    pub(super) fn due(&self, index: u64, rate: f64) -> Option<Nanos> {
        let after = Duration::from_secs_f64(index as f64 / rate);
        let is_planned = match self.group.limit {
            Limit::Requests(count) => index < count,
            Limit::Each(count) => index < count * self.group.connections as u64,
            Limit::For(length) => after < length,
        };
        is_planned.then(|| self.start + after)
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
    use super::super::target::Protocol;
    use super::super::work::{Action, Pick, tests::work};
    use super::*;

    fn task(limit: Limit, per_second: Option<f64>) -> Task {
        let work = work(Action::Read, Pick::Sequence);
        let group = Group { work, connections: 2, depth: 1, limit, per_second };
        let encoder = Encoder::new(&group, Protocol::Resp);
        Task::new(&group, encoder, Nanos(1_000), Duration::ZERO, 1, &Arc::new(Gate::new(1)))
    }

    #[test]
    fn quota_of_requests_is_shared() {
        let task = task(Limit::Requests(2), None);
        assert_eq!(task.turn(0, 0, Nanos(5)), Turn::Send(0, Nanos(5)));
        assert_eq!(task.turn(0, 1, Nanos(6)), Turn::Send(1, Nanos(6)));
        assert_eq!(task.turn(1, 0, Nanos(7)), Turn::Done);
    }

    #[test]
    fn open_loop_is_due_by_plan_however_late_it_is_asked() {
        let task = task(Limit::For(Duration::from_secs(1)), Some(4.0));
        let quarter = 250_000_000;
        assert_eq!(task.turn(0, 0, Nanos(1_000)), Turn::Send(0, Nanos(1_000)));
        assert_eq!(task.turn(1, 0, Nanos(1_000)), Turn::Wait);
        let late = Nanos(60_000_000_000);
        assert_eq!(task.turn(1, 0, late), Turn::Send(1, Nanos(1_000 + quarter)));
        assert_eq!(task.turn(0, 1, late), Turn::Send(2, Nanos(1_000 + 2 * quarter)));
        assert_eq!(task.turn(1, 1, late), Turn::Send(3, Nanos(1_000 + 3 * quarter)));
        assert_eq!(task.turn(0, 2, late), Turn::Done);
    }

    #[test]
    fn closed_loop_ends_at_its_time() {
        let task = task(Limit::For(Duration::from_nanos(10)), None);
        assert_eq!(task.turn(0, 0, Nanos(1_009)), Turn::Send(0, Nanos(1_009)));
        assert_eq!(task.turn(0, 1, Nanos(1_010)), Turn::Done);
    }

    #[test]
    fn the_last_to_leave_ends_the_phase_and_none_leaves_twice() {
        let task = task(Limit::Each(1), None);
        task.leave(0, 0, |tally| tally.failures.disconnected += 1);
        task.leave(0, 0, |tally| tally.failures.disconnected += 1);
        assert!(!task.gate.wait(Duration::ZERO));
        task.leave(1, 0, |_| {});
        assert!(task.gate.wait(Duration::ZERO));
        assert_eq!(task.recorder(0).tally.failures.disconnected, 1);
        assert_eq!(task.fallen(), [0]);
    }
}
