//! Locking what nobody leaves half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Nothing panics while it holds one of those that this is called with; where a test does, the data is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
