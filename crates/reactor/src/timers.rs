//! Deadlines of a loop's connections, soonest first.
//!
//! A connection has one deadline, kept with it; here is at most about one entry for it. An entry may be
//! stale: whoever pops it compares with the connection and puts it back when the deadline was put off.
//! So an idle timeout that moves with each command costs one heap operation for each timeout, not for
//! each command.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clock::Nanos;

/// Deadlines with the token of who waits.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
}

impl Timers {
    /// Adds a deadline.
    pub(crate) fn push(&mut self, deadline: Nanos, token: u64) {
        self.heap.push(Reverse((deadline, token)));
    }

    /// The soonest deadline.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }

    /// Takes the soonest entry whose deadline is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, u64)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Drops entries that `keep` does not want, when there are far more than `expected`.
    pub(crate) fn trim(&mut self, expected: usize, mut keep: impl FnMut(Nanos, u64) -> bool) {
        if self.heap.len() > 2 * expected + 64 {
            self.heap.retain(|Reverse((deadline, token))| keep(*deadline, *token));
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_entries_come_soonest_first_and_others_stay() {
        let mut timers = Timers::default();
        for (deadline, token) in [(30, 3), (10, 1), (20, 2), (40, 4)] {
            timers.push(Nanos(deadline), token);
        }
        assert_eq!(timers.pop_due(Nanos(9)), None);
        let due: Vec<u64> =
            std::iter::from_fn(|| timers.pop_due(Nanos(30))).map(|(_, token)| token).collect();
        assert_eq!(due, [1, 2, 3]);
        assert_eq!(timers.next(), Some(Nanos(40)));
    }

    #[test]
    fn stale_entries_are_trimmed_when_they_are_many() {
        let mut timers = Timers::default();
        for deadline in 0..500 {
            timers.push(Nanos(deadline), deadline % 2);
        }
        timers.trim(1_000, |_, _| unreachable!("few enough"));
        timers.trim(10, |deadline, token| token == 0 && deadline.0 >= 490);
        assert_eq!(timers.len(), 5);
    }
}
