//! Atomics and waits of `link::lock`: the standard library's here, a model checker's where that file is compiled for its test.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::thread::yield_now;

/// Pauses after which other threads are let run: some microseconds in all, so who is waited for was interrupted.
pub(crate) const PAUSES_MAX: u32 = 64;

/// Waits for about `times` pauses of the processor.
#[inline]
pub(crate) fn pause(times: u32) {
    for _ in 0..times {
        std::hint::spin_loop();
    }
}
