//! CLIENT PAUSE: commands that have to wait until it ends.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clock::Nanos;

use crate::clients::Client;

/// CLIENT PAUSE.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Monotonic end in nanoseconds; 0 is none.
    until_ns: AtomicU64,
    all: AtomicBool,
    /// Ids that wait for its end.
    waiting: Mutex<BTreeSet<u64>>,
}

impl Pause {
    /// Pauses until `until`; of two pauses the later end and the stricter kind hold.
    pub(crate) fn start(&self, until: Nanos, all: bool, now: Nanos) {
        let running = self.until_ns.load(Ordering::Relaxed) > now.0;
        self.all.store(all || (running && self.all.load(Ordering::Relaxed)), Ordering::Relaxed);
        self.until_ns.fetch_max(until.0.max(1), Ordering::Release);
    }

    /// Ends it; returns who waits.
    pub(crate) fn end(&self) -> BTreeSet<u64> {
        self.until_ns.store(0, Ordering::Release);
        std::mem::take(&mut *self.waiting())
    }

    /// Whether there is a pause at all: one load.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.until_ns.load(Ordering::Relaxed) != 0
    }

    /// When a command that `writes` may run; `None`: now.
    fn until(&self, writes: bool, now: Nanos) -> Option<Nanos> {
        let until = self.until_ns.load(Ordering::Acquire);
        if until <= now.0 {
            return None;
        }
        (writes || self.all.load(Ordering::Relaxed)).then_some(Nanos(until))
    }

    /// Whether a command that `writes` has to wait.
    pub(crate) fn holds_back(&self, writes: bool, now: Nanos) -> bool {
        self.is_set() && self.until(writes, now).is_some()
    }

    /// As [`Pause::until`], and has the connection woken when the pause is ended before that.
    pub(crate) fn wait(&self, id: u64, writes: bool, now: Nanos) -> Option<Nanos> {
        self.until(writes, now)?;
        self.waiting().insert(id);
        // Whoever ended it since then may have looked for those who wait too early.
        let until = self.until(writes, now);
        if until.is_none() {
            self.forget(id);
        }
        until
    }

    /// The connection waits no longer.
    pub(crate) fn forget(&self, id: u64) {
        self.waiting().remove(&id);
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever a client waited for has come: it waits for the end of no pause any more.
    pub(crate) fn end_wait(&self, client: &Client) {
        if client.paused.swap(false, Ordering::Relaxed) {
            self.forget(client.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// A client asked whether there was a pause, CLIENT UNPAUSE on another loop woke all that waited, and then the client
    /// noted that it waited: until the time that the pause was to last, which may be years.
    #[test]
    fn pause_that_ends_while_a_client_begins_to_wait_wakes_it() {
        let (pause, barrier, now) = (Pause::default(), Barrier::new(2), Nanos(1));
        for round in 0..20_000 {
            pause.start(Nanos(u64::MAX), true, now);
            let (parked, woken) = std::thread::scope(|threads| {
                let waits = threads.spawn(|| {
                    barrier.wait();
                    pause.wait(7, true, now).is_some()
                });
                barrier.wait();
                let woken = pause.end();
                (waits.join().expect("no panic"), woken)
            });
            assert!(!parked || woken.contains(&7), "round {round}");
            assert!(pause.waiting().is_empty(), "round {round}");
        }
    }
}
