//! When tick tuples are due: at multiples of the interval from the start; those that a busy task missed are one.

use std::time::Duration;

use clock::Nanos;

/// The ticks of one task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    interval: Duration,
    next: Nanos,
}

impl Ticks {
    pub(crate) fn new(start: Nanos, interval: Duration) -> Self {
        assert!(!interval.is_zero(), "checked with the definition");
        Self { interval, next: start + interval }
    }

    /// Whether a tick is due; then it is taken.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let is_due = self.next <= now;
        if is_due {
            let interval = self.interval.as_nanos();
            let missed = now.since(self.next).as_nanos() / interval;
            let passed = u64::try_from(interval * (missed + 1)).unwrap_or(u64::MAX);
            self.next = self.next + Duration::from_nanos(passed);
        }
        is_due
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_to_the_grid_and_missed_ones_are_one() {
        let mut ticks = Ticks::new(Nanos(5), Duration::from_nanos(10));
        assert!(!ticks.take(Nanos(14)) && ticks.take(Nanos(15)) && !ticks.take(Nanos(15)));
        assert!(ticks.take(Nanos(58)), "ticks of 25, 35, 45 and 55 are one");
        assert_eq!((ticks.take(Nanos(64)), ticks.next()), (false, Nanos(65)));
    }
}
