//! When the worker of a shared lane rests between its turns, so that what comes meanwhile goes on together.
//!
//! Where commits are slow because many are under way, each step of each of them is a write, a sync or a wake-up of its own. Gathered for a
//! moment, decisions go with one write, the commits of a database share its syncs, and connections are woken together: the last of them
//! are through earlier. PostgreSQL has it as `commit_delay` and `commit_siblings`.
//!
//! ```text
//!  8 or more are under way, and commits took 8 ms or more lately: rest 1 ms; otherwise not at all
//! ```
//!
//! A commit meets three rests at most, each cut short by half on average.

use std::time::Duration;

/// What is known of the commits of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitDelay {
    under_way: usize,
    /// What a commit takes, the newest counting a sixteenth.
    took_ns: u64,
}

impl CommitDelay {
    /// Something happened to a transaction: whether its commit, or rollback, was under way before, and is after.
    pub(crate) fn moved(&mut self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.under_way += 1,
            (true, false) => {
                assert!(self.under_way > 0, "more ended than were under way");
                self.under_way -= 1;
            }
            _ => {}
        }
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// One was committed, so long after that was asked for.
    pub(crate) fn took(&mut self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).min(TOOK_NS_MAX);
        self.took_ns = self.took_ns - self.took_ns / SHARE + took_ns / SHARE;
    }

    /// How long to rest now.
    pub(crate) fn rest(&self) -> Duration {
        let is_slow = self.took_ns >= TOOK_NS_LEAST && self.under_way >= UNDER_WAY_LEAST;
        if is_slow { REST } else { Duration::ZERO }
    }
}

const SHARE: u64 = 16;
const UNDER_WAY_LEAST: usize = 8;
const TOOK_NS_LEAST: u64 = 8_000_000;
/// Twice as long gathers little more, and leaves processors idle.
const REST: Duration = Duration::from_millis(1);
/// One that took longer waited for something else.
const TOOK_NS_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn commit_delay(under_way: usize, took: Duration) -> CommitDelay {
        let mut commit_delay = CommitDelay::default();
        (0..under_way).for_each(|_| commit_delay.moved(false, true));
        (0..200).for_each(|_| commit_delay.took(took));
        commit_delay
    }

    #[test]
    fn many_slow_commits_are_gathered_and_no_others() {
        let ms = Duration::from_millis;
        for (under_way, took, rest) in [
            (0, ms(50), 0),
            (7, ms(50), 0),
            (8, ms(50), 1),
            (500, ms(7), 0),
            (500, ms(9), 1),
            (500, Duration::MAX, 1),
        ] {
            assert_eq!(commit_delay(under_way, took).rest(), ms(rest), "{under_way} of {took:?}");
        }
    }

    #[test]
    fn one_that_moves_on_is_counted_once() {
        let mut commit_delay = commit_delay(8, Duration::from_millis(50));
        commit_delay.moved(true, true);
        commit_delay.moved(false, false);
        assert!(!commit_delay.rest().is_zero());
        commit_delay.moved(true, false);
        assert!(commit_delay.rest().is_zero());
    }

    #[test]
    fn commits_that_become_quick_end_it() {
        let mut commit_delay = commit_delay(100, Duration::from_secs(3_600));
        for _ in 0..200 {
            commit_delay.took(Duration::from_micros(500));
        }
        assert!(commit_delay.rest().is_zero());
    }
}
