//! When a server to which there is no connection is tried again: each time after a longer pause.
//!
//! ```text
//!  open -- no connection --> closed for a pause -- the pause is over --> open, and the next failure closes it for twice as long
//!    ^------- a connection ------'
//! ```
//!
//! Requests under way together fail together: that is one failure.
//!
//! No clock: time is an argument.

use std::time::Duration;

use clock::Nanos;

/// Whether a connection is to be tried.
#[derive(Debug, Default)]
pub(super) struct Gate {
    failures: u32,
    /// Closed until then.
    until: Nanos,
}

impl Gate {
    /// How long it is closed, if it is.
    pub(super) fn closed(&self, now: Nanos) -> Option<Duration> {
        (now < self.until).then(|| self.until.since(now))
    }

    /// A connection that was begun at `begun` has failed: the pause that begins, unless another one has begun since.
    pub(super) fn on_failure(&mut self, begun: Nanos, now: Nanos) -> Option<Duration> {
        if begun < self.until {
            return None;
        }
        let pause = PAUSE_MAX.min(PAUSE_MIN * 2_u32.saturating_pow(self.failures));
        (self.failures, self.until) = (self.failures + 1, now + pause);
        Some(pause)
    }

    /// There is a connection; after how many failures.
    pub(super) fn on_connected(&mut self) -> u32 {
        std::mem::take(self).failures
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn pauses_are_doubled_up_to_the_longest_and_failures_at_the_same_time_are_one() {
        let (mut gate, mut now, mut pauses) = (Gate::default(), at(1), Vec::new());
        for _ in 0..11 {
            assert!(gate.closed(now).is_none());
            let pause = gate.on_failure(now, now).expect("a pause");
            assert_eq!(gate.on_failure(now, now), None, "another request of the same time");
            assert_eq!(gate.closed(now), Some(pause));
            pauses.push(pause.as_millis());
            now = now + pause;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(gate.on_connected(), 11);
        assert_eq!(gate.on_failure(now, now), Some(PAUSE_MIN));
    }
}
