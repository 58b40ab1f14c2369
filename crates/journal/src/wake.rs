//! How a thread of the journal's is woken.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Wakes a thread of the journal's; no system call when it is awake.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    pending: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Wake {
    /// There is something to do.
    pub(crate) fn notify(&self) {
        if !self.pending.swap(true, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Whether there is something to do since the last call.
    pub(crate) fn take(&self) -> bool {
        self.pending.swap(false, Ordering::SeqCst)
    }

    /// This thread is the one to wake.
    pub(crate) fn adopt_current_thread(&self) {
        // The first thread stays: a journal has one thread for each wake.
        let _ = self.thread.set(std::thread::current());
    }
}
