//! The driver `epoll`: the system tells of readiness, the loop reads and writes.
//!
//! A closed socket leaves the poller by itself.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::event_loop::{Driver, Loop, Parts};
use crate::handle::Mailbox;
use crate::peer::Peer;
use crate::slots::token_of;
use crate::{Protocol, StartError};

const WAKE: Token = Token(usize::MAX);
/// Few, so that what was released meanwhile leaves soon and what was appended is offered soon.
const EVENTS_PER_TICK_MAX: usize = 16;

/// A loop's poller.
pub(crate) struct Epoll {
    poll: Poll,
    events: Events,
}

/// Pollers and mailboxes of `count` loops.
pub(crate) fn parts<P: Protocol>(count: usize) -> Result<Vec<Parts<P, Epoll>>, StartError> {
    let make = || {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let driver = Epoll { poll, events: Events::with_capacity(EVENTS_PER_TICK_MAX) };
        Ok(Parts { driver, mailbox: Arc::new(Mailbox::new(Box::new(waker))) })
    };
    (0..count)
        .map(|_| make())
        .collect::<io::Result<_>>()
        .map_err(|source| StartError::System { what: "a poller", source })
}

impl<P: Protocol> Driver<P> for Epoll {
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.poll.poll(&mut self.events, timeout).or_else(|error| {
            self.events.clear();
            if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
        })
    }

    fn receive(of: &mut Loop<P, Self>) -> bool {
        let events = std::mem::replace(&mut of.driver.events, Events::with_capacity(0));
        let brought_events = !events.is_empty();
        for event in &events {
            if event.token() == WAKE {
                of.tally.wakes += 1;
                continue;
            }
            let token = event.token().0 as u64;
            let Some(mut peer) = of.slots.take(token) else { continue };
            peer.read_closed |= event.is_read_closed();
            peer.readable |= event.is_readable() || peer.read_closed;
            let hung_up = event.is_error() || (event.is_read_closed() && event.is_write_closed());
            let done = if hung_up { peer.on_hang_up() } else { Ok(()) };
            match done.and_then(|()| peer.receive(&mut of.context())) {
                Ok(()) => {
                    of.slots.put(peer);
                    of.received.push(token);
                }
                Err(reason) => of.end(peer, reason),
            }
        }
        of.driver.events = events;
        brought_events
    }

    fn attach(&mut self, peer: &mut Peer<P>) -> io::Result<()> {
        // Registering reports what is ready already: nothing that came during a move is missed.
        self.poll.registry().register(&mut SourceFd(&peer.socket.as_raw_fd()), token(peer), interest(peer))
    }

    fn settle(&mut self, peer: &mut Peer<P>) -> io::Result<()> {
        if !peer.blocked || peer.watches_writes {
            return Ok(());
        }
        peer.watches_writes = true;
        let raw = peer.socket.as_raw_fd();
        self.poll.registry().reregister(&mut SourceFd(&raw), token(peer), interest(peer))
    }

    fn detach(&mut self, peer: &mut Peer<P>) -> io::Result<()> {
        self.poll.registry().deregister(&mut SourceFd(&peer.socket.as_raw_fd()))
    }

    fn end(&mut self, peer: Box<Peer<P>>) -> bool {
        drop(peer);
        true
    }
}

fn token<P: Protocol>(peer: &Peer<P>) -> Token {
    Token(token_of(&peer.connection) as usize)
}

fn interest<P: Protocol>(peer: &Peer<P>) -> Interest {
    if peer.watches_writes { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
}
