//! Every order of the steps by which threads enter and leave a link's lock, tried by a model checker (loom) on the code that serves:
//! `link/lock.rs` is compiled here with loom's atomics. Two that are inside at once are a race, which loom reports.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../src/link/lock.rs"]
mod lock;

/// What `lock` is made of here.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(crate) use loom::thread::yield_now;

    /// Few, so that what follows is tried as well.
    pub(crate) const PAUSES_MAX: u32 = 2;

    pub(crate) fn pause(_: u32) {
        yield_now();
    }
}

use lock::{Guard, ShortLock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

type Counter = UnsafeCell<u32>;

fn add(counter: &Counter) {
    // SAFETY: the caller has the lock; loom reports a race if that excludes nobody.
    #[expect(unsafe_code, reason = "loom watches the accesses of its own cell")]
    counter.with_mut(|count| unsafe { *count += 1 });
}

type Enter = fn(&ShortLock<Counter>) -> Guard<'_, Counter>;

/// Has this thread and `others` add one each, and looks whether all did.
fn check(own: Enter, others: &'static [Enter]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let lock = Arc::new(ShortLock::new(Counter::new(0)));
        let run = |enter: Enter| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || add(&enter(&lock)))
        };
        let threads: Vec<_> = others.iter().map(|enter| run(*enter)).collect();
        add(&own(&lock));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut guard = lock.lock();
        let counter: &mut Counter = &mut guard;
        // SAFETY: nobody else is left.
        #[expect(unsafe_code, reason = "as above")]
        let count = counter.with_mut(|count| unsafe { *count });
        assert_eq!(count as usize, others.len() + 1);
    });
}

#[test]
fn senders_take_turns() {
    check(ShortLock::lock, &[ShortLock::lock]);
}

#[test]
fn one_that_goes_first_takes_turns_with_senders() {
    check(ShortLock::lock, &[ShortLock::lock_first, ShortLock::lock]);
}

#[test]
fn two_that_go_first_let_each_other_in() {
    check(ShortLock::lock_first, &[ShortLock::lock_first]);
}
