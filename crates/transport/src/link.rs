//! A link: what two nodes have sent each other and what of it is known to have come, over any number of connections.
//!
//! ```text
//!   senders --send--> core (lock) --portion--> connection --> peer
//!                      ^   acknowledgement, credits, what was consumed
//!   receiver <--messages-- incoming (lock) <--chunks-- connection <-- peer
//! ```
//!
//! Invariants
//!   1. Between one run of this node and one run of the peer each reliable message is handed out once, in the order of the link.
//!   2. Only the newest connection of a link (its *generation*) changes anything.
//!   3. `incoming` is locked before `core`. Nothing is called back while `core` is locked.
//!
//! Performs no I/O; time is an argument.
//! Out of scope: how a connection comes about (`session`, and the transports).

mod account;
mod core;
mod incoming;
mod lock;
mod lossy;
mod sending;
#[cfg(test)]
mod tests;
mod windows;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Nanos;

use self::core::Core;
pub(crate) use self::core::{Doorbell, Portion};
use self::incoming::Incoming;
use self::lock::{Guard, ShortLock};
pub(crate) use self::sending::Payload;
use crate::wire::{Chunk, Hello};
use crate::{
    Channel, Class, Event, Incarnation, LinkError, LinkState, LinkStatus, NodeId, Receive, SendError, Sent,
    Settings,
};

/// One link, shared by all who use it.
pub(crate) struct Link {
    pub(crate) peer: NodeId,
    core: ShortLock<Core>,
    incoming: Mutex<Incoming>,
}

impl Link {
    pub(crate) fn new(peer: NodeId, settings: &Arc<Settings>) -> Self {
        Self {
            peer,
            core: ShortLock::new(Core::new(settings)),
            incoming: Mutex::new(Incoming::new(settings)),
        }
    }

    /// See [`crate::Transport::send`].
    pub(crate) fn send(&self, channel: Channel, message: &[u8]) -> Result<Sent, SendError> {
        let (sent, bell) = self.core().send(channel, message)?;
        if let Some(bell) = bell {
            bell.ring();
        }
        Ok(sent)
    }

    /// What a hello to the peer says of it: which run is known, and what of that run's messages came.
    pub(crate) fn known(&self) -> (Option<Incarnation>, u64) {
        let core = self.core();
        (core.peer, core.ack)
    }

    /// A connection said `hello`, for a node whose run is `own`; its generation.
    ///
    /// # Errors
    /// The link is closed, or the peer's terms make no sense.
    pub(crate) fn on_up(
        &self,
        hello: &Hello,
        ack: u64,
        own: Incarnation,
        doorbell: Arc<dyn Doorbell>,
        receiver: &dyn Receive,
    ) -> Result<u64, LinkError> {
        let mut incoming = self.incoming();
        let mut core = self.core();
        if core.state == LinkState::Closed {
            return Err(LinkError::Superseded);
        }
        let ack = if hello.knows == Some(own.number()) { ack } else { 0 };
        let epoch = core.epoch;
        let began = core.on_up(hello, ack, doorbell)?;
        if core.epoch != epoch {
            incoming.begin_anew(core.epoch);
        }
        drop(core);
        if let Some(before) = &began.before {
            before.hang_up();
        }
        if let Some(lost_messages) = began.restarted {
            receiver.on_event(self.peer, Event::Restarted { lost_messages });
        }
        receiver.on_event(self.peer, Event::Up);
        Ok(began.generation)
    }

    /// The connection of `generation` ended.
    pub(crate) fn on_down(&self, generation: u64, receiver: &dyn Receive) {
        if self.core().on_down(generation) {
            receiver.on_event(self.peer, Event::Down);
        }
    }

    /// Takes no message any more, and ends the connection.
    pub(crate) fn close(&self) {
        let doorbell = self.core().close();
        if let Some(doorbell) = doorbell {
            doorbell.hang_up();
        }
    }

    /// Begins to take chunks of the connection of `generation`, which takes a portion when it is done.
    ///
    /// # Errors
    /// Another connection took its place.
    pub(crate) fn receive(self: &Arc<Self>, generation: u64) -> Result<Receiving<'_>, LinkError> {
        let incoming = self.incoming();
        let mut core = self.core.lock_first();
        if core.generation != generation || core.state != LinkState::Up {
            return Err(LinkError::Superseded);
        }
        core.mute();
        drop(core);
        Ok(Receiving { link: self, incoming })
    }

    /// Has the connection of `generation` send what is to be sent now; whether it is the link's still.
    pub(crate) fn take_portion(
        &self,
        generation: u64,
        now: Nanos,
        bytes_max: usize,
        is_silent: bool,
        portion: &mut Portion,
    ) -> Result<(), LinkError> {
        let mut core = self.core.lock_first();
        if core.generation != generation || core.state != LinkState::Up {
            return Err(LinkError::Superseded);
        }
        core.take_portion(now, bytes_max, is_silent, portion);
        Ok(())
    }

    /// What a receiver kept is consumed.
    pub(crate) fn give_back(&self, channel: Channel, cost_bytes: u64, epoch: u32) {
        if channel.class == Class::Lossy {
            return;
        }
        let bell = {
            let mut core = self.core();
            if core.epoch != epoch {
                return;
            }
            core.on_returned(channel.number, cost_bytes)
        };
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    pub(crate) fn status(&self) -> LinkStatus {
        // Not `incoming`, which may be locked for as long as a receiver works.
        let core = self.core();
        LinkStatus {
            state: core.state,
            peer: core.peer,
            connections: core.generation,
            sent_messages: core.sending.messages + core.lossy.messages,
            received_messages: core.received.messages,
            received_bytes: core.received.bytes,
            resent_chunks: core.sending.resent_chunks,
            duplicate_chunks: core.received.duplicate_chunks,
            dropped_messages: core.lossy.dropped_messages,
            lost_messages: core.lost_messages,
            unacked_messages: core.sending.unacked_messages(),
            kept_bytes: core.sending.kept_bytes() + core.lossy.kept_bytes(),
            held_bytes: core.windows.held_bytes(),
        }
    }

    fn core(&self) -> Guard<'_, Core> {
        self.core.lock()
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's chunks on their way to the receiver.
pub(crate) struct Receiving<'a> {
    link: &'a Arc<Link>,
    incoming: MutexGuard<'a, Incoming>,
}

impl Receiving<'_> {
    /// Takes one chunk: hands its messages out, then what it says of those that were sent.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub(crate) fn on_chunk(&mut self, chunk: &Chunk<'_>, receiver: &dyn Receive) -> Result<(), LinkError> {
        let handed_out = self.incoming.on_chunk(chunk, self.link, receiver);
        let credited = self.settle(chunk, handed_out)?;
        for number in credited {
            receiver.on_event(self.link.peer, Event::Credit(Channel::reliable(number)));
        }
        Ok(())
    }

    /// Books what the chunk brought; channels that have credit again.
    fn settle(
        &mut self,
        chunk: &Chunk<'_>,
        handed_out: Result<bool, LinkError>,
    ) -> Result<Vec<u16>, LinkError> {
        let mut core = self.link.core.lock_first();
        let mut booked = Ok(());
        self.incoming.take_brought(|channel, received, returned| {
            let done = core.windows.on_received(channel, received, returned);
            booked = std::mem::replace(&mut booked, Ok(())).and(done);
        });
        core.received = self.incoming.received;
        booked?;
        if handed_out? {
            core.on_reliable(chunk.header.sequence, chunk.payload.len());
        }
        core.sending.on_ack(chunk.header.ack)?;
        for record in &self.incoming.credits {
            core.sending.on_credit(record.channel, record.limit)?;
        }
        Ok(core.sending.take_credited())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peer", &self.peer).field("status", &self.status()).finish()
    }
}
