//! What other threads hand to a loop, and how they wake it.
//!
//! The wake-up is Dekker's: the loop says that it sleeps and then looks once more for work; a sender leaves
//! its work and then looks whether the loop sleeps. Both orders are sequentially consistent, so one of the
//! two sees the other, and a busy loop costs its senders no system call.
//!
//! A connection's loop changes only while both mailboxes are locked ([`relocate`]). So a post that found
//! the connection's mailbox under its lock is right about it, and what was posted before a move travels
//! along: nothing is late and nothing overtakes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::peer::Peer;
use crate::{Connection, Protocol};

/// Something for a loop to do.
pub(crate) enum Post<P: Protocol> {
    /// Take this connection in; these messages came before it could.
    Arrive(Box<Peer<P>>, VecDeque<P::Message>),
    /// Give this message to its connection.
    Message(Arc<Connection>, P::Message),
    /// Close it now.
    Kill(Arc<Connection>),
    /// Look whether it was ordered to another loop.
    Move(Arc<Connection>),
}

/// What is needed to end a wait.
pub(crate) trait Wake: Send + Sync + 'static {
    /// Ends the current or the next wait.
    fn wake(&self) -> io::Result<()>;
}

impl Wake for mio::Waker {
    fn wake(&self) -> io::Result<()> {
        mio::Waker::wake(self)
    }
}

/// An eventfd, for who waits by other means than a poller of mio's.
pub(crate) struct Doorbell(Arc<OwnedFd>);

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    /// What becomes readable when it rings.
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.0)
    }
}

impl Wake for Doorbell {
    fn wake(&self) -> io::Result<()> {
        match rustix::io::write(&*self.0, &1u64.to_ne_bytes()) {
            // Full: it rings already.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The door of a loop, or of a connection's thread.
pub(crate) struct Mailbox<P: Protocol> {
    posts: Mutex<Vec<Post<P>>>,
    pending: AtomicBool,
    sleeping: AtomicBool,
    /// Lowest ticket that a connection here waits for; `u64::MAX` when none does.
    lowest_held: AtomicU64,
    /// Whether it is among the holders of the connector `threads`.
    pub(crate) listed: AtomicBool,
    waker: Box<dyn Wake>,
}

impl<P: Protocol> Mailbox<P> {
    pub(crate) fn new(waker: Box<dyn Wake>) -> Self {
        Self {
            posts: Mutex::new(Vec::new()),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            lowest_held: AtomicU64::new(u64::MAX),
            listed: AtomicBool::new(false),
            waker,
        }
    }

    /// Leaves a post, whoever it is for.
    pub(crate) fn post(&self, post: Post<P>) {
        let mut posts = self.lock();
        posts.push(post);
        self.pending.store(true, Ordering::SeqCst);
        drop(posts);
        self.wake_sleeper();
    }

    /// Leaves a post for a connection if `is_here` says, under the lock, that it lives here.
    pub(crate) fn post_if(&self, post: Post<P>, is_here: impl FnOnce() -> bool) -> Result<(), Post<P>> {
        let mut posts = self.lock();
        if !is_here() {
            return Err(post);
        }
        posts.push(post);
        self.pending.store(true, Ordering::SeqCst);
        drop(posts);
        self.wake_sleeper();
        Ok(())
    }

    /// Swaps all posts into `into`, which is empty. Costs one load when there are none.
    pub(crate) fn take(&self, into: &mut Vec<Post<P>>) {
        if self.pending.load(Ordering::Relaxed) {
            let mut posts = self.lock();
            self.pending.store(false, Ordering::SeqCst);
            std::mem::swap(&mut *posts, into);
        }
    }

    /// The owner is about to wait; returns whether there is something to do instead.
    pub(crate) fn begin_sleep(&self, released: impl FnOnce() -> u64) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let lowest = self.lowest_held.load(Ordering::Relaxed);
        let is_released = || {
            // Pairs with the fence of `Handle::wake_released`: `released` need not be sequentially consistent.
            fence(Ordering::SeqCst);
            lowest <= released()
        };
        let work = self.pending.load(Ordering::SeqCst) || (lowest != u64::MAX && is_released());
        if work {
            self.end_sleep();
        }
        work
    }

    /// The owner is awake.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// The owner says which is the lowest ticket that it waits for; returns what it was.
    pub(crate) fn set_lowest_held(&self, ticket: u64) -> u64 {
        let before = self.lowest_held.load(Ordering::Relaxed);
        if before != ticket {
            self.lowest_held.store(ticket, Ordering::SeqCst);
        }
        before
    }

    /// How many posts were not taken yet.
    pub(crate) fn depth(&self) -> usize {
        self.lock().len()
    }

    /// Wakes the owner if it sleeps and replies wait here for a ticket at or below `released`, which is
    /// what it returns.
    pub(crate) fn wake_released(&self, released: u64) -> bool {
        let due = self.lowest_held.load(Ordering::SeqCst) <= released;
        if due {
            self.wake_sleeper();
        }
        due
    }

    /// Ends the owner's wait if it waits.
    pub(crate) fn wake_sleeper(&self) {
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake_always();
        }
    }

    /// Ends the owner's current or next wait.
    pub(crate) fn wake_always(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake a loop");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Post<P>>> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves `peer` from mailbox `from` to `to`, with all messages that were posted to it and not yet taken.
pub(crate) fn relocate<P: Protocol>(
    mailboxes: &[Arc<Mailbox<P>>],
    peer: Box<Peer<P>>,
    from: usize,
    to: usize,
) {
    let (low, high) = (mailboxes[from.min(to)].lock(), mailboxes[from.max(to)].lock());
    let (mut here, mut there) = if from < to { (low, high) } else { (high, low) };
    let connection = Arc::clone(&peer.connection);
    let mut carried = VecDeque::new();
    let mut rest = Vec::with_capacity(here.len());
    for post in here.drain(..) {
        match post {
            Post::Message(target, message) if target.id() == connection.id() => carried.push_back(message),
            other => rest.push(other),
        }
    }
    *here = rest;
    connection.loop_index.store(to as u32, Ordering::Release);
    there.push(Post::Arrive(peer, carried));
    mailboxes[to].pending.store(true, Ordering::SeqCst);
    drop((here, there));
    mailboxes[to].wake_sleeper();
}
