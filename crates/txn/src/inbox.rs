//! What came for a lane from other threads: answers of resources, decisions that are durable.
//!
//! Invariants
//!   1. What was pushed before a wait began ends it: nothing is slept through.
//!   2. Whoever pushes wakes a sleeper once, not once for each event.
//!
//! ```text
//!  lane:   says that it sleeps -> looks once more -> parks      others: push -> does it sleep? then it does not, wake it
//! ```

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::decision_log::{LogError, Round, Waiter};
use crate::event_count::{EventCount, Side};
use crate::id::TxId;
use crate::resource::{Answer, Call, Replies};

/// What came.
#[derive(Debug)]
pub(crate) enum Event {
    /// A resource answered.
    Answered(Call, Answer),
    /// The log has, or has not, what was written.
    Logged(TxId, Result<(), LogError>),
    /// A transaction is to be committed, by whoever turns the lane.
    Commit(TxId),
}

/// Events for one lane, and how its thread is woken.
pub(crate) struct Inbox {
    events: Mutex<Vec<Event>>,
    sleeps: AtomicU8,
    wake: Mutex<Wake>,
    /// Of all inboxes of a coordinator.
    event_count: Arc<EventCount>,
}

/// How who turns a lane hears that something came.
#[derive(Clone)]
pub(crate) enum Wake {
    /// Nobody sleeps here yet.
    Nobody,
    /// A thread that parks.
    Thread(Thread),
    /// An event loop, by its own means.
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl Inbox {
    pub(crate) fn new(wake: Wake, event_count: Arc<EventCount>) -> Self {
        Self { events: Mutex::default(), sleeps: AtomicU8::new(AWAKE), wake: Mutex::new(wake), event_count }
    }

    /// From now on `wake` is called.
    pub(crate) fn set_wake(&self, wake: Wake) {
        *lock(&self.wake) = wake;
    }

    /// Exchanges what came for `empty`, which is kept for its memory.
    pub(crate) fn take(&self, empty: &mut Vec<Event>) {
        debug_assert!(empty.is_empty(), "events would be lost");
        std::mem::swap(&mut *lock(&self.events), empty);
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.events).is_empty()
    }

    /// Says that its owner is about to sleep: whoever pushes from now on wakes it. False: something is there already.
    pub(crate) fn may_sleep(&self) -> bool {
        self.is_about_to(ALONE)
    }

    fn is_about_to(&self, sleep: u8) -> bool {
        self.sleeps.store(sleep, Ordering::SeqCst);
        let may = self.is_empty();
        if !may {
            self.sleeps.store(AWAKE, Ordering::SeqCst);
        }
        may
    }

    /// Sleeps on this thread until something comes, at most `most`.
    pub(crate) fn park(&self, most: Duration) {
        let is_known =
            matches!(&*lock(&self.wake), Wake::Thread(thread) if thread.id() == std::thread::current().id());
        if !is_known {
            self.set_wake(Wake::Thread(std::thread::current()));
        }
        if self.may_sleep() {
            std::thread::park_timeout(most);
            self.sleeps.store(AWAKE, Ordering::SeqCst);
        }
    }

    /// As [`Inbox::park`], together with all others whose records go with this cycle of the log. Any other event wakes all of them, and
    /// so does the recovery manager, once a second.
    pub(crate) fn park_together(&self, cycle: u64) {
        let side = Side::of_cycle(cycle);
        let heard = self.event_count.listen(side);
        if self.is_about_to(if side.is_odd() { TOGETHER_ODD } else { TOGETHER_EVEN }) {
            self.event_count.sleep(heard);
            self.sleeps.store(AWAKE, Ordering::SeqCst);
        }
    }

    /// Has the owner look, though nothing may have come.
    pub(crate) fn wake(&self) {
        match self.sleeps.swap(AWAKE, Ordering::SeqCst) {
            AWAKE => {}
            ALONE => self.wake_owner(),
            side => self.event_count.notify(Side::of_cycle(side.into())),
        }
    }

    fn wake_owner(&self) {
        // Not under the lock: who is woken may have this thread's processor next, and wants to sleep again before it gives it back.
        let wake = lock(&self.wake).clone();
        match wake {
            Wake::Nobody => {}
            Wake::Thread(thread) => thread.unpark(),
            Wake::Call(call) => call(),
        }
    }

    pub(crate) fn push(&self, event: Event) {
        lock(&self.events).push(event);
        // Who says that it sleeps looks under the same lock: it has seen the event, or is seen to sleep here.
        if self.sleeps.load(Ordering::Acquire) != AWAKE {
            self.wake();
        }
    }
}

impl Replies for Inbox {
    fn on_answer(&self, call: Call, answer: Answer) {
        self.push(Event::Answered(call, answer));
    }
}

impl Waiter for Inbox {
    fn on_logged(&self, tx: TxId, result: Result<(), LogError>) {
        self.push(Event::Logged(tx, result));
    }

    fn on_logged_of(&self, round: &mut Round, all: &[TxId], result: &Result<(), LogError>) {
        lock(&self.events).extend(all.iter().map(|tx| Event::Logged(*tx, result.clone())));
        if self.sleeps.load(Ordering::Acquire) == AWAKE {
            return;
        }
        match self.sleeps.swap(AWAKE, Ordering::SeqCst) {
            AWAKE => {}
            ALONE => self.wake_owner(),
            side => round.notifies(&self.event_count, Side::of_cycle(side.into())),
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// A guard whose thread panicked has left whole values behind: each change is one assignment or push.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nobody is to be woken.
const AWAKE: u8 = 0;
/// Its owner sleeps, and is woken as [`Wake`] says.
const ALONE: u8 = 1;
/// Its owner sleeps on that side of the event_count.
const TOGETHER_EVEN: u8 = 2;
const TOGETHER_ODD: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(wake: Wake) -> Inbox {
        Inbox::new(wake, Arc::default())
    }

    fn logged(number: u64) -> Event {
        Event::Logged(TxId { epoch: 1, number }, Ok(()))
    }

    #[test]
    fn what_came_before_the_wait_ends_it() {
        let inbox = inbox(Wake::Nobody);
        inbox.push(logged(1));
        assert!(!inbox.may_sleep());
        inbox.park(Duration::from_secs(600));
        let mut events = Vec::new();
        inbox.take(&mut events);
        assert!(matches!(events[..], [Event::Logged(TxId { number: 1, .. }, Ok(()))]));
        assert!(inbox.may_sleep());
    }

    #[test]
    fn sleeper_is_woken_once() {
        let woken = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = Arc::clone(&woken);
        let wake = Wake::Call(Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let inbox = inbox(wake);
        inbox.push(logged(1));
        assert_eq!(woken.load(Ordering::Relaxed), 0, "nobody slept");
        inbox.take(&mut Vec::new());
        assert!(inbox.may_sleep());
        inbox.push(logged(2));
        inbox.push(logged(3));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }

    /// The recovery manager sleeps in one inbox and looks at others, which pass their wake on: one that came between its look and its sleep was lost.
    #[test]
    fn wake_between_the_look_and_the_sleep_ends_the_sleep_at_once() {
        let inbox = inbox(Wake::Thread(std::thread::current()));
        assert!(inbox.may_sleep());
        inbox.wake();
        inbox.park(Duration::from_secs(600));
    }

    #[test]
    fn round_wakes_all_who_sleep_together_and_nobody_before_it_ends() {
        let event_count = Arc::new(EventCount::default());
        let inboxes: Vec<_> = (0..8).map(|_| Inbox::new(Wake::Nobody, Arc::clone(&event_count))).collect();
        std::thread::scope(|scope| {
            for inbox in &inboxes {
                scope.spawn(|| {
                    while inbox.is_empty() {
                        inbox.park_together(7);
                    }
                });
            }
            let sleeps = |inbox: &Inbox| inbox.sleeps.load(Ordering::SeqCst) == TOGETHER_ODD;
            while !inboxes.iter().all(sleeps) {
                std::thread::yield_now();
            }
            let [even, odd] = [0, 1].map(|cycle| event_count.listen(Side::of_cycle(cycle)));
            let mut round = Round::default();
            let tx = TxId { epoch: 1, number: 1 };
            inboxes.iter().for_each(|inbox| inbox.on_logged_of(&mut round, &[tx], &Ok(())));
            assert_eq!(event_count.listen(Side::of_cycle(1)), odd, "it rings once, at the end");
            drop(round);
            assert_ne!(event_count.listen(Side::of_cycle(1)), odd);
            assert_eq!(event_count.listen(Side::of_cycle(0)), even, "those of the next cycle sleep on");
        });
    }

    /// A round is over when the log has told all: what comes alone, an answer or an operator's word, rings by itself.
    #[test]
    fn thread_that_sleeps_with_others_hears_of_every_push() {
        let event_count = Arc::new(EventCount::default());
        let inboxes = [0, 1].map(|_| Inbox::new(Wake::Nobody, Arc::clone(&event_count)));
        std::thread::scope(|scope| {
            let pushed = &inboxes;
            scope.spawn(move || {
                for number in 0..10_000 {
                    match number % 3 {
                        0 => pushed.iter().for_each(|inbox| inbox.push(logged(number))),
                        _ => {
                            let (mut round, tx) = (Round::default(), TxId { epoch: 1, number });
                            pushed.iter().for_each(|inbox| inbox.on_logged_of(&mut round, &[tx], &Ok(())));
                        }
                    }
                }
            });
            for inbox in &inboxes {
                scope.spawn(move || {
                    let (mut events, mut count) = (Vec::new(), 0);
                    while count < 10_000 {
                        inbox.take(&mut events);
                        count += events.drain(..).count();
                        if count < 10_000 {
                            inbox.park_together(count as u64);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn thread_that_parks_hears_of_every_push() {
        let inbox = Arc::new(inbox(Wake::Nobody));
        std::thread::scope(|scope| {
            let pusher = Arc::clone(&inbox);
            scope.spawn(move || (0..10_000).for_each(|number| pusher.push(logged(number))));
            let (mut events, mut count) = (Vec::new(), 0);
            while count < 10_000 {
                inbox.take(&mut events);
                count += events.drain(..).count();
                if count < 10_000 {
                    inbox.park(Duration::from_secs(60));
                }
            }
        });
    }
}
