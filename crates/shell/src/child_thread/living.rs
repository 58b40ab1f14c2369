//! How many threads of children there are: a process that ends waits for them, so that none of its children is left.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One of them.
pub(super) struct Living(());

impl Living {
    pub(super) fn new() -> Self {
        *lock() += 1;
        Self(())
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        *lock() -= 1;
        ENDED.notify_all();
    }
}

/// Waits until all children of this process have ended whose supervisors were dropped, at most for `time`; how many have not, with those that have
/// a supervisor.
pub fn wait_for_children(time: Duration) -> usize {
    let waited = ENDED.wait_timeout_while(lock(), time, |count| *count > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

/// A number is whole whatever panics.
fn lock() -> MutexGuard<'static, usize> {
    COUNT.lock().unwrap_or_else(PoisonError::into_inner)
}

static COUNT: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();
