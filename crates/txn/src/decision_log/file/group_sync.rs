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
    /// A sync is over.
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Who asked, for tests.
    #[cfg(test)]
    asked: u64,
    begun: u64,
    ended: u64,
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
            state = self.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun += 1;
        drop(state);
        let result = sync();
        let mut state = self.state();
        state.ended += 1;
        state.failure = result.as_ref().err().map(|error| (error.kind(), error.to_string()));
        drop(state);
        self.over.notify_all();
        result
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

    #[test]
    fn nothing_is_synced_after_a_failure() {
        let group = GroupSync::default();
        let failed = group.run(|| Err(io::Error::other("EIO")));
        assert_eq!(failed.expect_err("it failed").to_string(), "EIO");
        let again = group.run(|| panic!("nobody knows what is durable"));
        assert_eq!(again.expect_err("for good").to_string(), "EIO");
    }
}
