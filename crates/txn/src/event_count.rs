//! An event count: any number of threads sleep on a few words, and a few system calls wake them all.
//!
//! Threads whose records one sync has made durable are woken together: a call for each of 400 is most of what the waker does, and
//! some of those that it wakes take its processor before it has come to the others. They sleep apart by the processor on which they
//! fell asleep. The waker wakes all of its own, and one of each other, who wakes the rest: a wake-up within one processor takes no
//! lock of another's, and processors wake at the same time.
//!
//! ```text
//!  sleeper: listen -> looks whether there is anything to do -> sleep, unless it was notified since it listened      others: leave it -> notify
//!                                                                                       the recovery manager, once a second: notify_all
//!  notify: [ its processor: all ]  [ each other: one -> awake, and told to pass it on -> all ]
//! ```
//!
//! Invariants
//!   1. A notification after [`EventCount::listen`] ends [`EventCount::sleep`].
//!   2. A thread may be woken for nothing: it looks, and sleeps again.
//!   3. Whoever waits for a time is woken by the recovery manager's notification, up to a second late: a sleep has no timer of its own, which the system would
//!      set and cancel once a transaction.
//!   4. Who ends a sleep passes on what was left to be passed on, before it does anything else.
//!
//! Source: event counts (Reed, Kanodia 1979) over the system's futex.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use rustix::thread::futex::{self, Flags};

/// Where all sleep.
#[derive(Debug, Default)]
pub(crate) struct EventCount {
    /// For even cycles, and for odd ones.
    sides: [[CachePadded<Shard>; SHARDS]; 2],
}

/// For those who fell asleep on one processor, or on one of a few.
#[derive(Debug, Default)]
struct Shard {
    /// Notifications so far: the word that they sleep on. It comes round within one sleeper's look only after 2^32 of them.
    notified: AtomicU32,
    /// Who sleeps, or is about to.
    asleep: AtomicU32,
    /// One was woken, and the others are not yet.
    must_pass_on: AtomicBool,
}

/// What a sleeper has heard so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) side: Side,
    shard: usize,
    notified: u32,
}

/// Who is woken by a notification: those whose records go with even cycles of the log, or with odd ones. So it leaves those asleep
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

impl EventCount {
    /// To be called before the look that decides whether to sleep.
    pub(crate) fn listen(&self, side: Side) -> Heard {
        let shard = here();
        Heard { side, shard, notified: self.shards(side)[shard].notified.load(Ordering::SeqCst) }
    }

    /// Sleeps until it is notified; not at all if that came since `heard`.
    pub(crate) fn sleep(&self, heard: Heard) {
        self.shards(heard.side)[heard.shard].sleep(heard.notified);
    }

    /// Wakes all that sleep on this side.
    pub(crate) fn notify(&self, side: Side) {
        let (shards, here) = (self.shards(side), here());
        let others = shards.iter().enumerate().filter(|(at, _)| *at != here);
        others.for_each(|(_, shard)| shard.notify_one());
        shards[here].notify();
    }

    /// Wakes all that sleep.
    pub(crate) fn notify_all(&self) {
        [Side(false), Side(true)].into_iter().for_each(|side| self.notify(side));
    }

    fn shards(&self, side: Side) -> &[CachePadded<Shard>; SHARDS] {
        &self.sides[usize::from(side.0)]
    }
}

impl Shard {
    fn sleep(&self, notified: u32) {
        // Before the system looks at the word: whoever notifies after that look sees it.
        self.asleep.fetch_add(1, Ordering::SeqCst);
        // Notified before, disturbed: whoever sleeps looks for itself.
        let _ = futex::wait(&self.notified, Flags::PRIVATE, notified, None);
        self.asleep.fetch_sub(1, Ordering::SeqCst);
        if self.must_pass_on.load(Ordering::SeqCst) && self.must_pass_on.swap(false, Ordering::SeqCst) {
            self.wake(ALL);
        }
    }

    /// Wakes all.
    fn notify(&self) {
        if self.has_sleepers_to_wake() {
            self.wake(ALL);
        }
    }

    /// Wakes one, who wakes the others.
    fn notify_one(&self) {
        if self.has_sleepers_to_wake() {
            self.must_pass_on.store(true, Ordering::SeqCst);
            self.wake(1);
        }
    }

    /// From now on nobody falls asleep who has not heard it; false if nobody sleeps.
    fn has_sleepers_to_wake(&self) -> bool {
        self.notified.fetch_add(1, Ordering::SeqCst);
        self.asleep.load(Ordering::SeqCst) > 0
    }

    fn wake(&self, most: u32) {
        // It fails only for an address that is none.
        let _ = futex::wake(&self.notified, Flags::PRIVATE, most);
    }
}

/// The shard of the processor that this thread runs on now; wrong a moment later is slow, no more.
fn here() -> usize {
    rustix::thread::sched_getcpu() % SHARDS
}

/// Processors beyond share them.
const SHARDS: usize = 16;
const ALL: u32 = i32::MAX as u32;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Sleeps in the shard `at`, wherever it runs.
    fn listen_at(event_count: &EventCount, side: Side, at: usize) -> Heard {
        Heard { side, shard: at, notified: event_count.shards(side)[at].notified.load(Ordering::SeqCst) }
    }

    #[test]
    fn ring_wakes_all_of_all_shards_of_its_side() {
        let (event_count, woken) = (EventCount::default(), [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (event_count, woken) = (&event_count, &woken);
        std::thread::scope(|scope| {
            for number in 0..32 {
                let side = Side::of_cycle(number % 2);
                let heard = listen_at(event_count, side, (number / 4) as usize % SHARDS);
                scope.spawn(move || {
                    event_count.sleep(heard);
                    woken[usize::from(side.is_odd())].fetch_add(1, Ordering::SeqCst);
                });
            }
            let asleep =
                || event_count.sides.iter().flatten().map(|it| it.asleep.load(Ordering::SeqCst)).sum::<u32>();
            let until = |is_done: &dyn Fn() -> bool| {
                while !is_done() {
                    std::thread::yield_now();
                }
            };
            until(&|| asleep() == 32);
            event_count.notify(Side::of_cycle(1));
            until(&|| woken[1].load(Ordering::SeqCst) == 16);
            assert_eq!((woken[0].load(Ordering::SeqCst), asleep()), (0, 16), "the other side sleeps on");
            event_count.notify_all();
            until(&|| woken[0].load(Ordering::SeqCst) == 16);
        });
    }

    /// Sleepers of all shards, notified in a hurry: whoever misses one ring, or is not passed it on, hangs.
    #[test]
    fn sleeper_that_has_not_heard_a_ring_is_woken_by_it() {
        const NOTIFICATIONS: usize = 20_000;
        let (event_count, notified) = (EventCount::default(), AtomicUsize::new(0));
        let (event_count, notified) = (&event_count, &notified);
        std::thread::scope(|scope| {
            for number in 0..12 {
                scope.spawn(move || {
                    let mut at = number;
                    loop {
                        at = (at + 1) % SHARDS;
                        let heard = listen_at(event_count, Side::of_cycle(0), at % 3);
                        if notified.load(Ordering::SeqCst) == NOTIFICATIONS {
                            return;
                        }
                        event_count.sleep(heard);
                    }
                });
            }
            for _ in 0..NOTIFICATIONS {
                notified.fetch_add(1, Ordering::SeqCst);
                event_count.notify(Side::of_cycle(0));
            }
        });
    }
}
