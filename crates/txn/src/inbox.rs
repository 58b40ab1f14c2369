//! What came for a lane from other threads: answers of resources, decisions that are durable.
//!
//! Invariants
//!   1. What was pushed before a wait began ends it: nothing is slept through.
//!   2. Whoever pushes wakes a sleeper once, not once for each event.
//!
//! ```text
//!  lane:   says that it sleeps -> looks once more -> parks      others: push -> does it sleep? then it does not, wake it
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::decision_log::{LogError, Waiter};
use crate::id::TxId;
use crate::resource::{Answer, Call, Replies};

/// What came.
#[derive(Debug)]
pub(crate) enum Event {
    /// A resource answered.
    Answered(Call, Answer),
    /// The log has, or has not, what was written.
    Logged(TxId, Result<(), LogError>),
}

/// Events for one lane, and how its thread is woken.
pub(crate) struct Inbox {
    events: Mutex<Vec<Event>>,
    sleeps: AtomicBool,
    wake: Mutex<Wake>,
}

/// How who turns a lane hears that something came.
pub(crate) enum Wake {
    /// Nobody sleeps here yet.
    Nobody,
    /// A thread that parks.
    Thread(Thread),
    /// An event loop, by its own means.
    Call(Box<dyn Fn() + Send + Sync>),
}

impl Inbox {
    pub(crate) fn new(wake: Wake) -> Self {
        Self { events: Mutex::default(), sleeps: AtomicBool::new(false), wake: Mutex::new(wake) }
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
        self.sleeps.store(true, Ordering::SeqCst);
        let may = self.is_empty();
        if !may {
            self.sleeps.store(false, Ordering::SeqCst);
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
            self.sleeps.store(false, Ordering::SeqCst);
        }
    }

    /// Has the owner look, though nothing may have come.
    pub(crate) fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            match &*lock(&self.wake) {
                Wake::Nobody => {}
                Wake::Thread(thread) => thread.unpark(),
                Wake::Call(call) => call(),
            }
        }
    }

    fn push(&self, event: Event) {
        lock(&self.events).push(event);
        self.wake();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn logged(number: u64) -> Event {
        Event::Logged(TxId { epoch: 1, number }, Ok(()))
    }

    #[test]
    fn what_came_before_the_wait_ends_it() {
        let inbox = Inbox::new(Wake::Nobody);
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
        let wake = Wake::Call(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let inbox = Inbox::new(wake);
        inbox.push(logged(1));
        assert_eq!(woken.load(Ordering::Relaxed), 0, "nobody slept");
        inbox.take(&mut Vec::new());
        assert!(inbox.may_sleep());
        inbox.push(logged(2));
        inbox.push(logged(3));
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }

    /// The keeper sleeps in one inbox and looks at others, which pass their wake on: one that came between its look and its sleep was lost.
    #[test]
    fn wake_between_the_look_and_the_sleep_ends_the_sleep_at_once() {
        let inbox = Inbox::new(Wake::Thread(std::thread::current()));
        assert!(inbox.may_sleep());
        inbox.wake();
        inbox.park(Duration::from_secs(600));
    }

    #[test]
    fn thread_that_parks_hears_of_every_push() {
        let inbox = Arc::new(Inbox::new(Wake::Nobody));
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
