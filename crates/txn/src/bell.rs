//! A bell: any number of threads sleep on one word, and one system call wakes them all.
//!
//! Threads whose records one sync has made durable are woken together: a call for each of 400 is most of what the waker does, and
//! some of those that it wakes take its processor before it has come to the others.
//!
//! ```text
//!  sleeper: listen -> looks whether there is anything to do -> sleep, unless it rang since it listened      others: leave it -> ring
//!                                                                                       the keeper, once a second: ring_all
//! ```
//!
//! Invariants
//!   1. A ring that came after [`Bell::listen`] ends [`Bell::sleep`].
//!   2. A thread may be woken for nothing: it looks, and sleeps again.
//!   3. Whoever waits for a time is woken by the keeper's ring, up to a second late: a sleep has no timer of its own, which the system would
//!      set and cancel once a transaction.
//!
//! Source: event counts (Reed, Kanodia 1979) over the system's futex.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex::{self, Flags};

/// The words that all sleep on.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// How often it rang for even cycles, and for odd ones. That it comes round within one sleeper's look is 2^32 rings away.
    rung: [AtomicU32; 2],
}

/// What a sleeper has heard so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) side: Side,
    rung: u32,
}

/// Who is woken at a ring: those whose records go with even cycles of the log, or with odd ones. So a ring leaves those asleep
/// whose records were appended while a cycle was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side(bool);

impl Side {
    pub(crate) fn of_cycle(cycle: u64) -> Self {
        Self(cycle % 2 == 1)
    }

    pub(crate) fn is_odd(self) -> bool {
        self.0
    }
}

impl Bell {
    /// To be called before the look that decides whether to sleep.
    pub(crate) fn listen(&self, side: Side) -> Heard {
        Heard { side, rung: self.word(side).load(Ordering::SeqCst) }
    }

    /// Sleeps until it rings; not at all if it rang since `heard`.
    pub(crate) fn sleep(&self, heard: Heard) {
        // Rung before, disturbed: whoever sleeps looks for itself.
        let _ = futex::wait(self.word(heard.side), Flags::PRIVATE, heard.rung, None);
    }

    /// Wakes all that sleep on this side.
    pub(crate) fn ring(&self, side: Side) {
        let word = self.word(side);
        word.fetch_add(1, Ordering::SeqCst);
        // It fails only for an address that is none.
        let _ = futex::wake(word, Flags::PRIVATE, i32::MAX as u32);
    }

    /// Wakes all that sleep.
    pub(crate) fn ring_all(&self) {
        [Side(false), Side(true)].into_iter().for_each(|side| self.ring(side));
    }

    fn word(&self, side: Side) -> &AtomicU32 {
        &self.rung[usize::from(side.0)]
    }
}
