//! The driver `uring`: bytes come and go by themselves, the system tells when they did.
//!
//! Bytes come through one request a connection that lasts (multishot, into the ring's buffers) and are copied to its input; replies
//! leave as parcels, one under way a connection. What a tick asks for is submitted by the wait that ends it: a busy loop makes one
//! system call a tick, however many connections it serves.
//!
//! While all buffers are taken, a connection reads a little by itself and is told when more comes ([`take_little`]).
//!
//! Invariants
//!   1. Whose input cannot be handled and is long has its bytes stopped, until it is short again: the bound on input holds as it
//!      does under `epoll`, but for what was on its way.
//!   2. A connection leaves for another loop only when nothing is under way for it. One that ended keeps socket and slot until then,
//!      so that no completion reaches another one.
//!
//! New connections come from the acceptor's thread, as under `epoll`: a loop that is stuck must not be the one that the kernel
//! hands them to ([ADR 0006](../../../docs/adr/0006-completions.md)).

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::event_loop::{Driver, Loop, Parts};
use crate::handle::Mailbox;
use crate::link::Coming;
use crate::mailbox::Doorbell;
use crate::peer::Peer;
use crate::pool::Pool;
use crate::ring::{Closed, Completion, Lease, Parcel, Ring, try_out};
use crate::slots::token_of;
use crate::stats::Tally;
use crate::{CloseReason, Protocol};

/// A loop's ring, and who of it has ended but for its completions.
pub(crate) struct Uring<P: Protocol> {
    ring: Ring,
    /// Waits so far.
    waits: u64,
    ended: HashMap<u64, Box<Peer<P>>>,
}

/// Rings and mailboxes of `count` loops, after a trial of all that they do.
///
/// # Errors
/// The system has io_uring or a part of it switched off, or lacks what this driver needs.
pub(crate) fn parts<P: Protocol>(count: usize) -> io::Result<Vec<Parts<P, Uring<P>>>> {
    let make = || {
        let bell = Doorbell::new()?;
        let ring = Ring::new(bell.descriptor())?;
        let driver = Uring { ring, waits: 0, ended: HashMap::new() };
        Ok(Parts { driver, mailbox: Arc::new(Mailbox::new(Box::new(bell))) })
    };
    try_out()?;
    (0..count).map(|_| make()).collect()
}

impl<P: Protocol> Driver<P> for Uring<P> {
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.waits += 1;
        self.ring.wait(timeout)
    }

    fn receive(of: &mut Loop<P, Self>) -> bool {
        let mut brought_events = false;
        while let Some(completion) = of.driver.ring.next() {
            brought_events = true;
            match completion {
                Completion::Woken => of.tally.wakes += 1,
                Completion::Received { token, outcome, armed } => received(of, token, outcome, armed),
                Completion::Sent { token, parcel, outcome } => sent(of, token, parcel, outcome),
                Completion::Watched { token, outcome } => watched(of, token, outcome),
            }
        }
        brought_events
    }

    fn attach(&mut self, peer: &mut Peer<P>) -> io::Result<()> {
        if peer.link.is_none() {
            // The ring waits by itself where a descriptor that does not block would report that it would have to.
            rustix::io::ioctl_fionbio(&peer.socket, false)?;
            peer.link = Some(Box::default());
        }
        Ok(())
    }

    fn settle(&mut self, peer: &mut Peer<P>) -> io::Result<()> {
        let token = token_of(&peer.connection);
        let Some(coming) = peer.link.as_ref().map(|link| link.coming) else { return Ok(()) };
        let (wants_bytes, is_leaving) = (peer.wants_bytes(coming == Coming::On), peer.is_leaving());
        let Some(link) = &mut peer.link else { return Ok(()) };
        let was_stopping = std::mem::replace(&mut link.is_stopping, is_leaving);
        if is_leaving {
            if !was_stopping && !link.is_quiet() {
                self.ring.stop(peer.socket.as_fd(), token, false)?;
            }
            return Ok(());
        }
        if let Some(parcel) = link.outgoing.take() {
            let (bytes, kept_bytes) = (parcel.range.len(), parcel.own.capacity());
            self.ring.send(peer.socket.as_fd(), token, parcel)?;
            // Not before: for a request that was not taken no completion comes.
            (link.under_way_bytes, link.submitted_in) = (bytes, self.waits);
            link.under_way_kept_bytes = kept_bytes;
        }
        // A socket that takes it at once does so in the wait that submits it.
        link.is_refused |= link.under_way_bytes > 0 && self.waits > link.submitted_in + 1;
        match (coming, wants_bytes) {
            (Coming::Off, true) if !peer.readable => {
                if link.lacked_buffer {
                    self.ring.await_bytes(peer.socket.as_fd(), token)?;
                } else {
                    self.ring.receive(peer.socket.as_fd(), token)?;
                }
                link.coming = Coming::On;
            }
            (Coming::On, false) => {
                self.ring.stop(peer.socket.as_fd(), token, true)?;
                link.coming = Coming::Stopping;
            }
            // No bytes come that would bring the end.
            (Coming::Off, false) if !link.is_watched => {
                self.ring.watch(peer.socket.as_fd(), token, !peer.read_closed)?;
                link.is_watched = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn may_leave(&self, peer: &Peer<P>) -> bool {
        peer.link.as_ref().is_none_or(|link| link.is_quiet())
    }

    fn detach(&mut self, peer: &mut Peer<P>) -> io::Result<()> {
        assert!(self.may_leave(peer), "a connection leaves while something is under way for it");
        Ok(())
    }

    fn end(&mut self, mut peer: Box<Peer<P>>) -> bool {
        let Some(link) = peer.link.as_mut() else { return true };
        link.outgoing = None;
        if link.is_quiet() {
            return true;
        }
        let token = token_of(&peer.connection);
        if let Err(error) = self.ring.stop(peer.socket.as_fd(), token, false) {
            tracing::error!(%error, "cannot end what is under way for a connection; it ends by itself or with its client");
            let _ = rustix::net::shutdown(&peer.socket, rustix::net::Shutdown::Both);
        }
        self.ended.insert(token, peer);
        false
    }
}

/// Bytes read at a time while the ring has no buffer.
const LITTLE_BYTES: usize = 4 << 10;

/// Bytes came for the connection with `token`, or its stream ended.
fn received<P: Protocol>(
    of: &mut Loop<P, Uring<P>>,
    token: u64,
    outcome: Result<Option<Lease>, Errno>,
    armed: bool,
) {
    let Some(mut peer) = of.slots.take(token) else {
        if let Ok(Some(lease)) = outcome {
            of.driver.ring.give(lease);
        }
        return finish_ended(of, token, |link| {
            if !armed {
                link.coming = Coming::Off;
            }
        });
    };
    let (wanted_turn, takes_input, was_closed) = (peer.wants_turn(), peer.takes_input(), peer.read_closed);
    let link = peer.link.as_mut().expect("given when it came");
    if !armed {
        link.coming = Coming::Off;
    }
    let was_awaited = std::mem::take(&mut link.lacked_buffer);
    link.lacked_buffer = outcome.as_ref().is_err_and(|error| *error == Errno::NOBUFS);
    let has_none = was_awaited && matches!(outcome, Ok(None));
    let outcome = if has_none || link.lacked_buffer {
        take_little(&mut peer, &mut of.pool, &mut of.tally, of.now)
    } else {
        outcome
    };
    match outcome {
        Ok(Some(lease)) => {
            let bytes = of.driver.ring.bytes(&lease);
            peer.take_in(bytes, &mut of.pool, &mut of.tally, of.now);
            of.driver.ring.give(lease);
        }
        Ok(None) => (peer.readable, peer.read_closed) = (true, true),
        // Asked for again, by and by: `settle` sees that bytes do not come.
        Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
        Err(_) if takes_input => {
            peer.readable = true;
            peer.link.as_mut().expect("given when it came").is_broken = true;
        }
        Err(_) => return of.end(peer, CloseReason::Peer),
    }
    let ends_unread = !was_closed && peer.read_closed && !takes_input;
    if (peer.wants_turn() && !wanted_turn) || ends_unread {
        of.slots.put(peer);
        of.received.push(token);
    } else {
        if peer.connection.is_tls() {
            // What came may be a part of a record, of which no turn comes to know.
            let shared = Arc::clone(of.shared());
            peer.publish_sizes(&shared, &mut of.tally);
        }
        of.settle(peer);
    }
}

/// Reads a little of what came while all buffers of the ring are taken. The kernel takes a buffer before it looks for bytes: asked for
/// again at once, with thousands of connections, next to all would be told again that there is none, and who comes last waits for
/// as long as the others send. `Ok` is the end; bytes that came are the peer's already.
fn take_little<P: Protocol>(
    peer: &mut Peer<P>,
    pool: &mut Pool,
    tally: &mut Tally,
    now: Nanos,
) -> Result<Option<Lease>, Errno> {
    if !peer.wants_bytes(true) {
        return Err(Errno::NOBUFS);
    }
    let mut bytes = [0; LITTLE_BYTES];
    let (_, count) = rustix::net::recv(&peer.socket, &mut bytes, RecvFlags::DONTWAIT)?;
    if count == 0 {
        return Ok(None);
    }
    peer.take_in(&bytes[..count], pool, tally, now);
    Err(Errno::NOBUFS)
}

/// The socket of the connection with `token` took a part of `parcel`, or all of it.
fn sent<P: Protocol>(
    of: &mut Loop<P, Uring<P>>,
    token: u64,
    parcel: Box<Parcel>,
    outcome: Result<usize, Errno>,
) {
    let Some(mut peer) = of.slots.take(token) else {
        return finish_ended(of, token, |link| link.under_way_bytes = 0);
    };
    let link = peer.link.as_mut().expect("given when it came");
    let count = match outcome {
        Ok(count) => count,
        // Stopped, for it is to leave: what did not go goes from there.
        Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => 0,
        Err(_) => {
            link.under_way_bytes = 0;
            return of.end(peer, CloseReason::Peer);
        }
    };
    match link.take_back(parcel, count) {
        Some(buffer) => of.pool.put(buffer),
        None => peer.blocked = true,
    }
    peer.count_write(count, &mut of.tally, of.now);
    if peer.waits_for_room() {
        of.drive(peer, Peer::turn);
    } else {
        let shared = Arc::clone(of.shared());
        peer.publish_sizes(&shared, &mut of.tally);
        of.settle(peer);
    }
}

/// The peer of the connection with `token` closed its side, or the connection, while nothing was received.
fn watched<P: Protocol>(of: &mut Loop<P, Uring<P>>, token: u64, outcome: Result<Closed, Errno>) {
    let Some(mut peer) = of.slots.take(token) else {
        return finish_ended(of, token, |link| link.is_watched = false);
    };
    peer.link.as_mut().expect("given when it came").is_watched = false;
    match outcome {
        Ok(Closed::Both) if !peer.takes_input() => of.end(peer, CloseReason::Peer),
        Ok(_) => {
            peer.read_closed = true;
            of.slots.put(peer);
            of.received.push(token);
        }
        Err(_) => of.settle(peer),
    }
}

/// Changes the link of a connection that has ended, and lets it go when nothing is under way for it any more.
fn finish_ended<P: Protocol>(
    of: &mut Loop<P, Uring<P>>,
    token: u64,
    change: impl FnOnce(&mut crate::link::Link),
) {
    let Some(link) = of.driver.ended.get_mut(&token).and_then(|peer| peer.link.as_mut()) else { return };
    change(link);
    if link.is_quiet()
        && let Some(peer) = of.driver.ended.remove(&token)
    {
        of.slots.release(&peer.connection);
    }
}
