//! What other threads hand to a loop: connections, messages, orders. How it gets there and wakes the loop is in `handover`.
//!
//! A connection's loop changes only while both mailboxes are locked ([`relocate`]). So a post that found
//! the connection's mailbox under its lock is right about it, and what was posted before a move travels
//! along: nothing is late and nothing overtakes.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::handover::{self, Mailbox, Wake};
use crate::{Connection, NoRoom};

/// Something for a loop to do. A connection arrives as an `A` and is sent messages `M`.
pub(crate) enum Post<A, M> {
    /// Take this connection in; these messages came before it could.
    Arrive(A, VecDeque<M>),
    /// Give this message to its connection.
    Message(Arc<Connection>, M),
    /// Close it now.
    Kill(Arc<Connection>),
    /// Look whether it was ordered to another loop.
    Move(Arc<Connection>),
    /// There is room for the rest of its request, or there will be none.
    Room(Arc<Connection>, Option<NoRoom>),
    /// Drop this, now that no callback runs here that ran when it was posted.
    Pass(Arc<dyn Any + Send + Sync>),
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

/// Moves `connection`, which is in `arrival`, between the mailboxes `from` and `to`, with all messages that were posted to it
/// and not yet taken.
pub(crate) fn relocate<A, M>(
    mailboxes: &[Arc<Mailbox<Post<A, M>>>],
    connection: &Connection,
    arrival: A,
    from: usize,
    to: usize,
) {
    handover::relocate(mailboxes, from, to, |here| {
        let mut carried = VecDeque::new();
        let mut rest = Vec::with_capacity(here.len());
        for post in here.drain(..) {
            match post {
                Post::Message(target, message) if target.id() == connection.id() => {
                    carried.push_back(message);
                }
                other => rest.push(other),
            }
        }
        *here = rest;
        connection.loop_index.store(to as u32, Ordering::Release);
        Post::Arrive(arrival, carried)
    });
}
