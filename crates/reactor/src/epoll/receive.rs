//! Input of one tick in two steps: all of it is read, then all of it is handled.
//!
//! One step for all connections, then the next for all, keeps the code of each in the processor's caches: with hundreds of
//! connections that send a request each, the kernel's code would replace ours in them between any two requests. In between
//! the protocol hears of everything that it will handle, so that the memory which it needs is fetched for all at once.

use mio::Events;

use super::{Loop, WAKE};
use crate::Protocol;
use crate::peer::Peer;

impl<P: Protocol> Loop<P> {
    /// Reads what came, before any of it is looked at: the kernel's code runs in a row, then ours does.
    pub(super) fn receive(&mut self, events: &Events) {
        for event in events {
            if event.token() == WAKE {
                self.tally.wakes += 1;
                continue;
            }
            let token = event.token().0 as u64;
            let Some(mut peer) = self.slots.take(token) else { continue };
            peer.read_closed |= event.is_read_closed();
            peer.readable |= event.is_readable() || peer.read_closed;
            let hung_up = event.is_error() || (event.is_read_closed() && event.is_write_closed());
            let done = if hung_up { peer.on_hang_up() } else { Ok(()) };
            match done.and_then(|()| peer.receive(&mut self.context())) {
                Ok(()) => {
                    self.slots.put(peer);
                    self.received.push(token);
                }
                Err(reason) => self.end(peer, reason),
            }
        }
    }

    /// Handles what [`Loop::receive`] read.
    pub(super) fn work(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        if received.len() > 1 {
            let slots = &self.slots;
            let mut inputs = received.iter().filter_map(|token| slots.get(*token).and_then(Peer::ahead));
            self.handle.shared.protocol.on_ahead(&mut inputs);
            self.share_time(&received);
        }
        for token in received.drain(..) {
            if let Some(peer) = self.slots.take(token) {
                self.drive(peer, Peer::turn);
            }
        }
        self.received = received;
    }

    /// Divides the time since the last look at the clock among the connections of `tokens`.
    fn share_time(&mut self, tokens: &[u64]) {
        let now = self.handle.shared.clock.now();
        let share = (now - self.now).as_nanos() as u64 / tokens.len() as u64;
        for token in tokens {
            if let Some(peer) = self.slots.get(*token) {
                peer.connection.busy_ns.add(share);
            }
        }
        self.now = now;
    }
}
