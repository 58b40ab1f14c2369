//! How threads hand something to an owner that may sleep, and wake it: the one place where that order matters.
//!
//! ```text
//!  sender:  leave the work -> fence -> does the owner sleep? wake it
//!  owner:   I sleep        -> fence -> is there work? do it, else wait
//! ```
//!
//! Invariants
//!   1. One of the two fences is first, so one of the two sees the other (Dekker): nothing left is slept on, and a busy owner costs
//!      its senders no system call.
//!   2. An owner whose lowest held ticket is `t` sleeps only while `t` is not released, and is woken by the release that reaches it.
//!   3. Under the connector `threads`, whoever holds a ticket is listed in [`Holders`] before it sleeps. It is taken off the list under the
//!      list's lock, by a release that has read its ticket under the same lock. A ticket set after that lists it anew.
//!
//! Works on any kind of post, and takes its locks and atomics from `crate::sync`: `tests/handover.rs` compiles this file with those of a
//! model checker, which tries every order of the steps.
//! Out of scope: what is posted (`mailbox`), how a wait is ended (there, and in `epoll`).

use std::collections::BTreeMap;
use std::io;

use ticket::Ticket;

use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, fence};

/// A ticket that is never released: its owner holds nothing.
pub(crate) const NOTHING_HELD: Ticket = Ticket::EVERYTHING;

/// What is needed to end a wait.
pub(crate) trait Wake: Send + Sync + 'static {
    /// Ends the current or the next wait.
    fn wake(&self) -> io::Result<()>;
}

/// The door of a loop, or of a connection's thread.
pub(crate) struct Mailbox<T> {
    posts: Mutex<Vec<T>>,
    pending: AtomicBool,
    /// Changes by swaps alone, so that all who change it agree in which order: the model checker does not know that of a plain store.
    sleeping: AtomicBool,
    /// Lowest ticket that a connection here waits for, packed; [`NOTHING_HELD`] when none does.
    lowest_held: AtomicU64,
    waker: Box<dyn Wake>,
}

impl<T> Mailbox<T> {
    pub(crate) fn new(waker: Box<dyn Wake>) -> Self {
        Self {
            posts: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            lowest_held: AtomicU64::new(NOTHING_HELD.pack()),
            waker,
        }
    }

    /// Leaves a post, whoever it is for.
    pub(crate) fn post(&self, post: T) {
        let left = self.post_if(post, || true);
        debug_assert!(left.is_ok(), "nothing refuses it");
    }

    /// Leaves a post for a connection if `is_here` says, under the lock, that it lives here.
    pub(crate) fn post_if(&self, post: T, is_here: impl FnOnce() -> bool) -> Result<(), T> {
        let mut posts = self.lock();
        if !is_here() {
            return Err(post);
        }
        posts.push(post);
        self.pending.store(true, Ordering::Relaxed);
        drop(posts);
        fence(Ordering::SeqCst);
        self.wake_sleeper();
        Ok(())
    }

    /// Swaps all posts into `into`, which is empty. Costs one load when there are none.
    pub(crate) fn take(&self, into: &mut Vec<T>) {
        if self.pending.load(Ordering::Relaxed) {
            let mut posts = self.lock();
            self.pending.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *posts, into);
        }
    }

    /// The owner is about to wait; returns whether there is something to do instead.
    pub(crate) fn begin_sleep(&self, released: impl FnOnce() -> Ticket) -> bool {
        self.sleeping.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let lowest = self.lowest_held();
        let is_due = || lowest != NOTHING_HELD && lowest.is_covered_by(released());
        let work = self.pending.load(Ordering::Relaxed) || is_due();
        if work {
            self.end_sleep();
        }
        work
    }

    /// The owner is awake.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.swap(false, Ordering::Relaxed);
    }

    /// The owner says which is the lowest ticket that it waits for; returns what it was.
    pub(crate) fn set_lowest_held(&self, ticket: Ticket) -> Ticket {
        let before = self.lowest_held();
        if before != ticket {
            self.lowest_held.store(ticket.pack(), Ordering::Relaxed);
        }
        before
    }

    /// What the owner said last.
    pub(crate) fn lowest_held(&self) -> Ticket {
        Ticket::unpack(self.lowest_held.load(Ordering::Relaxed))
    }

    /// How many posts were not taken yet.
    pub(crate) fn depth(&self) -> usize {
        self.lock().len()
    }

    /// Wakes the owner if it sleeps and replies wait here for a ticket at or below `released`, which a fence of the caller's follows.
    pub(crate) fn wake_released(&self, released: Ticket) {
        if self.lowest_held().is_covered_by(released) {
            self.wake_sleeper();
        }
    }

    /// Ends the owner's wait if it waits. A fence lies between what it is to find and this.
    fn wake_sleeper(&self) {
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.wake_always();
        }
    }

    /// Ends the owner's current or next wait.
    pub(crate) fn wake_always(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake a loop");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves in mailbox `to` the post that `take` makes of the posts of mailbox `from`, while both are locked.
pub(crate) fn relocate<T>(
    mailboxes: &[Arc<Mailbox<T>>],
    from: usize,
    to: usize,
    take: impl FnOnce(&mut Vec<T>) -> T,
) {
    assert_ne!(from, to, "a mailbox is locked once");
    let (low, high) = (mailboxes[from.min(to)].lock(), mailboxes[from.max(to)].lock());
    let (mut here, mut there) = if from < to { (low, high) } else { (high, low) };
    there.push(take(&mut here));
    mailboxes[to].pending.store(true, Ordering::Relaxed);
    drop((here, there));
    fence(Ordering::SeqCst);
    mailboxes[to].wake_sleeper();
}

/// The doors of those among many owners that hold a ticket, by the number of their connection: a release looks at these alone.
pub(crate) struct Holders<T>(Mutex<BTreeMap<u64, Arc<Mailbox<T>>>>);

impl<T> Default for Holders<T> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<T> Holders<T> {
    /// The owner of `mailbox` says which is the lowest ticket that it waits for; returns what it was.
    pub(crate) fn set_lowest_held(&self, id: u64, mailbox: &Arc<Mailbox<T>>, ticket: Ticket) -> Ticket {
        // Before the list is locked: whoever takes it off the list meanwhile, by what it held before, has left the lock when it is listed anew.
        let before = mailbox.set_lowest_held(ticket);
        if ticket != NOTHING_HELD {
            self.lock().insert(id, Arc::clone(mailbox));
        }
        before
    }

    /// An owner ends; returns the lowest ticket that it waited for.
    pub(crate) fn leave(&self, id: u64, mailbox: &Mailbox<T>) -> Ticket {
        self.lock().remove(&id);
        mailbox.set_lowest_held(NOTHING_HELD)
    }

    /// Wakes the owners that wait for a ticket at or below `released`, which a fence of the caller's follows.
    pub(crate) fn wake_released(&self, released: Ticket) {
        self.lock().retain(|_, mailbox| {
            let lowest = mailbox.lowest_held();
            let is_due = lowest.is_covered_by(released);
            if is_due {
                mailbox.wake_sleeper();
            }
            // One that holds nothing now was listed for what has left by itself.
            !is_due && lowest != NOTHING_HELD
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Mailbox<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
