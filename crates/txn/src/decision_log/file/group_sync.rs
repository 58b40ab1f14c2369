//! One sync of a folder for all who want one at a time: a file system takes them one after the other.
//!
//! ```text
//!  one comes, nobody syncs -> it syncs .............. ends -> all who came meanwhile: one of them syncs, for all of them
//! ```
//!
//! Invariants
//!   1. A sync that answers somebody began after that one asked for it.
//!   2. At most one runs.
//!   3. After the first that failed none runs: nobody knows what is durable.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Syncs that are shared.
#[derive(Debug, Default)]
pub(super) struct GroupSync {
    state: Mutex<State>,
    /// A sync is over: that of an even number, that of an odd one.
    over: [Condvar; 2],
}

#[derive(Debug, Default)]
struct State {
    /// Who asked, for tests.
    #[cfg(test)]
    asked: u64,
    begun: u64,
    ended: u64,
    /// The newest that somebody waits for, or has waited for.
    wanted: u64,
    failure: Option<(io::ErrorKind, String)>,
}

impl GroupSync {
    /// Runs `sync`, or waits for one that somebody else began after this call.
    ///
    /// # Errors
    /// That of the first `sync` that failed, from then on.
    pub(super) fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state();
        let wanted = state.begun + 1;
        #[cfg(test)]
        {
            state.asked += 1;
        }
        loop {
            if let Some((kind, text)) = &state.failure {
                return Err(io::Error::new(*kind, text.clone()));
            }
            if state.ended >= wanted {
                return Ok(());
            }
            if state.begun == state.ended {
                break;
            }
            // Who was to begin one, and was outrun, waits again while others wait for the next already.
            state.wanted = state.wanted.max(wanted);
            state = self.over(wanted).wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun += 1;
        let number = state.begun;
        drop(state);
        let result = sync();
        let mut state = self.state();
        state.ended += 1;
        state.failure = result.as_ref().err().map(|error| (error.kind(), error.to_string()));
        let next_is_wanted = state.wanted > number;
        drop(state);
        self.over(number).notify_all();
        if result.is_err() {
            self.over(number + 1).notify_all();
        } else if next_is_wanted {
            // The others who wait for it sleep on.
            self.over(number + 1).notify_one();
        }
        result
    }

    fn over(&self, number: u64) -> &Condvar {
        &self.over[usize::from(number % 2 == 1)]
    }

    #[cfg(test)]
    fn asked(&self) -> u64 {
        self.state().asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn those_who_come_during_a_sync_share_the_next() {
        let group = Arc::new(GroupSync::default());
        let syncs = AtomicU64::new(0);
        let count = || {
            syncs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        std::thread::scope(|scope| {
            let (begun, has_begun) = channel();
            let (ends, end) = channel::<()>();
            let first = &group;
            scope.spawn(move || {
                first.run(|| {
                    begun.send(()).expect("somebody waits");
                    end.recv().map_err(io::Error::other)
                })
            });
            has_begun.recv().expect("it syncs");
            let others: Vec<_> = (0..8).map(|_| scope.spawn(|| group.run(count))).collect();
            // Each has asked before the first sync ends: all of them hold the group then.
            while group.asked() < 9 {
                std::thread::yield_now();
            }
            assert_eq!(syncs.load(Ordering::Relaxed), 0, "what began before they asked answers none of them");
            ends.send(()).expect("it waits");
            for other in others {
                other.join().expect("no panic").expect("synced");
            }
        });
        assert_eq!(syncs.load(Ordering::Relaxed), 1);
        group.run(count).expect("synced");
        assert_eq!(syncs.load(Ordering::Relaxed), 2, "nobody syncs, and one that is over answers nobody");
    }

    /// Each is answered by a sync that began after it asked. Whoever is forgotten hangs: nobody comes after the last ones of a round.
    #[test]
    fn all_who_ask_at_any_moment_are_answered_by_a_later_sync() {
        const THREADS: u64 = 8;
        let (group, begun, ended) = (GroupSync::default(), AtomicU64::new(0), AtomicU64::new(0));
        let (group, begun, ended) = (&group, &begun, &ended);
        let round = &std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for number in 0..4_000_u64 {
                        let asked = begun.load(Ordering::SeqCst);
                        let sync = || {
                            let it = begun.fetch_add(1, Ordering::SeqCst) + 1;
                            (0..(number + thread) % 8).for_each(|_| std::thread::yield_now());
                            ended.store(it, Ordering::SeqCst);
                            Ok(())
                        };
                        group.run(sync).expect("synced");
                        assert!(ended.load(Ordering::SeqCst) > asked, "what began before answers nobody");
                        if number % 4 == 3 {
                            round.wait();
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn nothing_is_synced_after_a_failure() {
        let group = GroupSync::default();
        let failed = group.run(|| Err(io::Error::other("EIO")));
        assert_eq!(failed.expect_err("it failed").to_string(), "EIO");
        let again = group.run(|| panic!("nobody knows what is durable"));
        assert_eq!(again.expect_err("for good").to_string(), "EIO");
    }
}
