//! How many threads serve a connection, under the connector `threads`: they come and go, and a stop waits for the last one.

use std::sync::{Condvar, Mutex, PoisonError};

/// How many threads serve a connection.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    count: Mutex<usize>,
    ended: Condvar,
}

impl Workers {
    pub(super) fn enter(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    pub(super) fn leave(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ended.notify_all();
    }

    /// Waits until there is none.
    pub(crate) fn wait_for_none(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self.ended.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
