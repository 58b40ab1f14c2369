//! Locks of this crate: a thread that panicked while it had one leaves data that is still right, because nothing here panics between two writes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until somebody rings, at most for `timeout`; `None`: as long as it takes. May return earlier.
pub(crate) fn wait<'a, T>(
    bell: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Option<Duration>,
) -> MutexGuard<'a, T> {
    match timeout {
        None => bell.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(timeout) => bell.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0,
    }
}
