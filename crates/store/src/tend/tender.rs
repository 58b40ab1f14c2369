//! The thread of the store that tends: what it waits for, and how others wake and end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::allocator::TrimSchedule;
use crate::resident::Resident;
use crate::vacate::Vacating;
use collections::{Deadline, Moment};

/// The thread that tends, and what it waits for.
#[derive(Debug, Default)]
pub(crate) struct Tender {
    /// Server time when the thread will look again; effects with an earlier deadline wake it.
    pub(super) next_due_ms: AtomicU64,
    /// The last turn passed over a key with an expiry that a prepared transaction holds. Written under the lock of the key's stripe: who
    /// looks when that lock was let go either finds it noted, or the turn finds the key free.
    pub(super) has_passed_over: AtomicBool,
    /// Somebody asked for freed memory to go back to the system.
    pub(super) must_give_back: AtomicBool,
    pub(super) trim: Mutex<TrimSchedule>,
    pub(crate) resident: Mutex<Resident>,
    /// The pass that empties pages.
    pub(crate) vacating: Mutex<Option<Vacating>>,
    pub(super) state: Mutex<State>,
    changed: Condvar,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    stop: bool,
    pub(super) woken: bool,
}

impl Tender {
    /// Makes the thread look at once.
    pub(crate) fn wake(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).woken = true;
        self.changed.notify_one();
    }

    /// Tells the tender that a prepared transaction has let its keys go.
    pub(crate) fn on_unlock(&self) {
        if self.has_passed_over.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Tells the tender that a key expires at `deadline`.
    pub(crate) fn expect(&self, deadline: Option<Deadline>, now: Moment) {
        let Some(deadline) = deadline else { return };
        let expiry_ms = now.server_ms_of(deadline);
        if expiry_ms < self.next_due_ms.load(Ordering::Relaxed) {
            self.next_due_ms.fetch_min(expiry_ms, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Ends the thread and waits for it, unless the caller is that thread.
    pub(crate) fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.changed.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }

    /// Waits at most `wait`; returns whether to stop.
    pub(super) fn wait(&self, wait: Duration) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.stop && !state.woken {
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.woken = false;
        state.stop
    }
}
