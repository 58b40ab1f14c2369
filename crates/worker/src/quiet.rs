//! Whether nothing of a topology is under way: all tasks idle, no envelope between two threads.
//!
//! Each thread says, before it parks, that its tasks are idle and how many envelopes it has sent and taken; when it wakes it takes that
//! back, before it does anything. So while all threads are idle by what they said, their counts are those of now, and if as many
//! envelopes were taken as sent, none is on its way.
//!
//! Threads say so only while the topology drains: at other times nobody asks.
//! Source: counting of messages as in Mattern 1987.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::sync::{lock, wait};

/// What threads have said.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// For each thread, if it is idle: envelopes sent and taken.
    threads: Mutex<Vec<Option<Counts>>>,
    bell: Condvar,
}

/// Envelopes between threads since the start of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) taken: u64,
}

impl Quiet {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads: Mutex::new(vec![None; threads]), bell: Condvar::new() }
    }

    /// A thread is idle, or is not any more.
    pub(crate) fn tell(&self, thread: usize, idle: Option<Counts>) {
        lock(&self.threads)[thread] = idle;
        self.bell.notify_one();
    }

    /// Waits until nothing is under way, at most for `timeout`; whether that is so. May return earlier.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let threads = lock(&self.threads);
        if is_quiet(&threads) {
            return true;
        }
        is_quiet(&wait(&self.bell, threads, Some(timeout)))
    }
}

fn is_quiet(threads: &[Option<Counts>]) -> bool {
    let mut on_the_way = 0_i128;
    for thread in threads {
        let Some(Counts { sent, taken }) = thread else { return false };
        on_the_way += i128::from(*sent) - i128::from(*taken);
    }
    on_the_way == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_that_was_sent_and_not_taken_is_under_way() {
        let quiet = Quiet::new(2);
        let counts = |sent, taken| Some(Counts { sent, taken });
        let is_quiet = || quiet.wait(Duration::ZERO);
        assert!(!is_quiet());
        quiet.tell(0, counts(3, 1));
        quiet.tell(1, counts(1, 2));
        assert!(!is_quiet(), "one of the three is on its way");
        quiet.tell(1, None);
        assert!(!is_quiet(), "it was taken");
        quiet.tell(1, counts(1, 3));
        assert!(is_quiet());
    }
}
