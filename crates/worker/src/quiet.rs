//! Whether nothing of a topology is under way: all tasks idle, no envelope between two threads.
//!
//! Each thread says, before it parks, that its tasks are idle and how many envelopes it has sent and taken; when it wakes it takes that
//! back, before it does anything. So while all threads are idle by what they said, their counts are those of now, and if as many
//! envelopes were taken as sent, none is on its way.
//!
//! Threads say so only while the topology drains: at other times nobody asks.
//!
//! Of several workers each one is quiet by itself when its threads are, and the others have got all that it has sent ([`Quiet::received`] says how much it
//! has got of them). All of them together are quiet if each one was, was asked again after all had answered, and has got nothing in between:
//! then at a time between both rounds nothing was on its way.
//! Source: counting of messages as in Mattern 1987.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::sync::{lock, wait};

/// What threads have said.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// For each thread, if it is idle: envelopes sent and taken.
    threads: Mutex<Vec<Option<Counts>>>,
    bell: Condvar,
    /// Envelopes that other workers have brought, before they are in a mailbox.
    received: AtomicU64,
}

/// Envelopes that a thread has sent and taken since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// To other threads.
    pub(crate) sent: u64,
    /// From other threads and workers.
    pub(crate) taken: u64,
    /// To other workers.
    pub(crate) sent_away: u64,
}

/// All counts at a time when nothing was under way in this worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calm {
    threads: Vec<Option<Counts>>,
    pub(crate) received: u64,
}

impl Quiet {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads: Mutex::new(vec![None; threads]), bell: Condvar::new(), received: AtomicU64::new(0) }
    }

    /// A thread is idle, or is not any more.
    pub(crate) fn tell(&self, thread: usize, idle: Option<Counts>) {
        lock(&self.threads)[thread] = idle;
        self.bell.notify_one();
    }

    /// Another worker brings an envelope: it is on its way to a mailbox.
    pub(crate) fn receive(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
    }

    /// All counts, if nothing is under way between threads.
    pub(crate) fn calm(&self) -> Option<Calm> {
        self.calm_of(&lock(&self.threads))
    }

    /// Waits until nothing is under way, at most for `timeout`; whether that is so. May return earlier.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let threads = lock(&self.threads);
        if self.calm_of(&threads).is_some() {
            return true;
        }
        self.calm_of(&wait(&self.bell, threads, Some(timeout))).is_some()
    }

    fn calm_of(&self, threads: &[Option<Counts>]) -> Option<Calm> {
        let received = self.received.load(Ordering::SeqCst);
        let mut on_the_way = i128::from(received);
        for thread in threads {
            let Counts { sent, taken, .. } = (*thread)?;
            on_the_way += i128::from(sent) - i128::from(taken);
        }
        (on_the_way == 0).then(|| Calm { threads: threads.to_vec(), received })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_that_was_sent_and_not_taken_is_under_way() {
        let quiet = Quiet::new(2);
        let counts = |sent, taken| Some(Counts { sent, taken, sent_away: 0 });
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

    #[test]
    fn envelope_of_another_worker_is_under_way_until_a_thread_has_taken_it() {
        let quiet = Quiet::new(1);
        quiet.tell(0, Some(Counts { sent: 0, taken: 0, sent_away: 2 }));
        assert_eq!(quiet.calm().map(|calm| calm.received), Some(0));
        quiet.receive();
        assert_eq!(quiet.calm(), None);
        quiet.tell(0, Some(Counts { sent: 0, taken: 1, sent_away: 2 }));
        assert_eq!(quiet.calm().map(|calm| calm.received), Some(1));
    }
}
