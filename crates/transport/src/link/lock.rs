//! A lock for sections of some nanoseconds that many threads enter often, and one thread, the loop, seldom but before others.
//!
//! ```text
//!  lock:        free, and not wanted --take--> held --store--> free
//!                  \__ else: pause, twice as long each time; then let other threads run, and take back what is wanted
//!  lock_first:  free --take--> held          else: wanted, pause, again
//! ```
//!
//! Invariants
//!   1. One thread at a time has the value.
//!   2. Nobody sleeps for the lock, so to leave it is a plain store that wakes nobody.
//!
//! Why not the standard library's: once a thread sleeps for that one, because its holder was interrupted, each thread leaves it with a system
//! call and enters it by sleeping, for as long as several want it. To leave it is also a second locked instruction, which waits until what was
//! written under it has left the processor's store buffer.
//!
//! Out of scope: sections that wait for anything, and order among those that wait.

#![allow(unsafe_code, reason = "a lock lends what it guards; each access is proved where it is made")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicBool, Ordering, PAUSES_MAX, pause, yield_now};

/// Guards a `T`.
pub(crate) struct ShortLock<T> {
    is_held: AtomicBool,
    /// Who goes first waits for it.
    is_wanted: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by a guard alone, and of these there is one at a time (invariant 1): threads take turns with a `T`.
unsafe impl<T: Send> Sync for ShortLock<T> {}

impl<T> ShortLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            is_held: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until nobody else has the value.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if self.is_wanted.load(Ordering::Relaxed) || !self.try_hold() {
            self.wait();
        }
        Guard { lock: self, lends: PhantomData }
    }

    /// The same, before all who wait in [`ShortLock::lock`].
    pub(crate) fn lock_first(&self) -> Guard<'_, T> {
        if !self.try_hold() {
            self.wait_first();
        }
        Guard { lock: self, lends: PhantomData }
    }

    #[inline]
    fn try_hold(&self) -> bool {
        // What the holder before wrote is seen by who sees that it has left.
        self.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut pauses = 1;
        loop {
            pause(pauses);
            let is_wanted = self.is_wanted.load(Ordering::Relaxed);
            if !is_wanted && !self.is_held.load(Ordering::Relaxed) && self.try_hold() {
                return;
            }
            if pauses < PAUSES_MAX {
                pauses *= 2;
            } else {
                if is_wanted {
                    // Who wants it was interrupted, too: it says so again when it goes on.
                    self.is_wanted.store(false, Ordering::Relaxed);
                }
                yield_now();
            }
        }
    }

    #[cold]
    fn wait_first(&self) {
        let mut tries = 0;
        loop {
            if !self.is_wanted.load(Ordering::Relaxed) {
                self.is_wanted.store(true, Ordering::Relaxed);
            }
            if !self.is_held.load(Ordering::Relaxed) && self.try_hold() {
                break;
            }
            pause(1);
            tries += 1;
            if tries % PAUSES_MAX == 0 {
                yield_now();
            }
        }
        self.is_wanted.store(false, Ordering::Relaxed);
    }
}

/// Lends the value to who holds the lock.
pub(crate) struct Guard<'a, T> {
    lock: &'a ShortLock<T>,
    /// It is shared between threads, and sent to others, as what it lends is.
    lends: PhantomData<&'a mut T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one until it is dropped, and the reference does not outlive it.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed for as long as the reference lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.is_held.store(false, Ordering::Release);
    }
}
