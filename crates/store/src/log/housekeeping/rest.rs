//! How long housekeeping rests between two turns, and what ends a rest early.
//!
//! While nothing is appended there is less and less reason to look: each rest is twice as long as the one before, up to a limit. An append ends
//! a long rest, so that a burst of writes after a quiet hour finds housekeeping awake.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use journal::Lsn;

/// Between two slices: 256 KiB each 2 ms is 125 MB/s at most.
pub(crate) const WORKED: Duration = Duration::from_millis(2);
/// When there was nothing to do.
const IDLE: Duration = Duration::from_millis(50);
/// The same after a while without an append. Also a store that nobody holds any more ends only after it.
const IDLE_MAX: Duration = Duration::from_millis(800);

/// How long to rest.
#[derive(Debug)]
pub(super) struct Rests {
    idle: Duration,
    /// The next lsn when the last turn began.
    next_lsn: Lsn,
}

impl Rests {
    pub(super) fn new() -> Self {
        Self { idle: IDLE, next_lsn: Lsn(0) }
    }

    /// The rest after a turn that began at `next_lsn`; `has_more`: there was something to do, or somebody counts on the next turn.
    pub(super) fn next(&mut self, next_lsn: Lsn, has_more: bool) -> Duration {
        let is_quiet = next_lsn == self.next_lsn && !has_more;
        self.next_lsn = next_lsn;
        self.idle = if is_quiet { (self.idle * 2).min(IDLE_MAX) } else { IDLE };
        if has_more { WORKED } else { self.idle }
    }
}

/// Ends the rests of housekeeping early.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// It rests for long: an append is to end that.
    is_long: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    is_woken: bool,
}

impl Alarm {
    /// Something was appended.
    pub(crate) fn on_append(&self) {
        if self.is_long.load(Ordering::SeqCst) && self.is_long.swap(false, Ordering::SeqCst) {
            self.lock().is_woken = true;
            self.changed.notify_all();
        }
    }

    /// Ends this rest and all later ones.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Rests for `time`, or until stopped; a long rest also until something is appended, and not at all if that `has_appended` already.
    /// Returns whether stopped.
    pub(super) fn rest(&self, time: Duration, has_appended: impl FnOnce() -> bool) -> bool {
        let is_long = time > IDLE;
        self.is_long.store(is_long, Ordering::SeqCst);
        // Whoever appends after this look finds the flag.
        let time = if is_long && has_appended() { Duration::ZERO } else { time };
        let is_stopped = self.sleep(time);
        self.is_long.store(false, Ordering::SeqCst);
        is_stopped
    }

    /// Sleeps for `time`, or until stopped or woken; returns whether stopped.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let state = self.lock();
        let waits = |state: &mut State| !state.is_stopped && !state.is_woken;
        let slept = self.changed.wait_timeout_while(state, time, waits);
        let (mut state, _) = slept.unwrap_or_else(PoisonError::into_inner);
        state.is_woken = false;
        state.is_stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn rests_grow_while_nothing_is_appended() {
        let mut rests = Rests::new();
        let quiet: Vec<_> = (0..7).map(|_| rests.next(Lsn(5), false)).collect();
        let ms = [50, 100, 200, 400, 800, 800, 800].map(Duration::from_millis);
        assert_eq!(quiet, ms);
        assert_eq!(rests.next(Lsn(6), false), IDLE, "something was appended");
        assert_eq!(rests.next(Lsn(6), true), WORKED);
        assert_eq!(rests.next(Lsn(6), false), IDLE * 2);
    }

    fn spawn(work: impl FnOnce() -> bool + Send + 'static) -> std::thread::JoinHandle<bool> {
        std::thread::Builder::new().spawn(work).expect("a thread")
    }

    #[test]
    fn append_ends_a_long_rest_and_only_that() {
        let alarm = Arc::new(Alarm::default());
        alarm.on_append();
        assert!(!alarm.lock().is_woken, "nobody rests for long");
        let forever = Duration::from_secs(3_600);
        assert!(!alarm.rest(forever, || true), "it came before the rest");
        let other = Arc::clone(&alarm);
        let rest = spawn(move || other.rest(forever, || false));
        while !alarm.is_long.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        alarm.on_append();
        assert!(!rest.join().expect("it woke"));
        let other = Arc::clone(&alarm);
        let rest = spawn(move || other.rest(forever, || false));
        alarm.stop();
        assert!(rest.join().expect("it woke"));
    }
}
