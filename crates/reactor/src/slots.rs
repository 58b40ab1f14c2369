//! Where a loop keeps its connections.
//!
//! A slot holds a connection or is on the free list. A token is slot and low id bits, so that an event of a connection that
//! has gone reaches none that took its slot.

use std::sync::atomic::Ordering;

use crate::peer::Peer;
use crate::{Connection, Protocol};

const _: () = assert!(usize::BITS == 64, "a token packs slot and id into 64 bits");

/// The connections of one loop. One that works is out of its slot, which stays its own.
pub(crate) struct Slots<P: Protocol> {
    slots: Vec<Option<Box<Peer<P>>>>,
    free: Vec<u32>,
    count: usize,
}

impl<P: Protocol> Default for Slots<P> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), count: 0 }
    }
}

impl<P: Protocol> Slots<P> {
    /// Gives `connection` a slot.
    pub(crate) fn assign(&mut self, connection: &Connection) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.count += 1;
        connection.slot.store(slot, Ordering::Relaxed);
    }

    /// Takes the slot of `connection`, which is empty, back.
    pub(crate) fn release(&mut self, connection: &Connection) {
        self.free.push(connection.slot.load(Ordering::Relaxed));
        self.count -= 1;
    }

    /// Puts `peer` into its slot.
    pub(crate) fn put(&mut self, peer: Box<Peer<P>>) {
        let slot = peer.connection.slot.load(Ordering::Relaxed) as usize;
        self.slots[slot] = Some(peer);
    }

    /// Takes the peer that `token` names out of its slot, if it is there.
    pub(crate) fn take(&mut self, token: u64) -> Option<Box<Peer<P>>> {
        let slot = self.slots.get_mut(slot_of(token))?;
        if slot.as_ref().is_some_and(|peer| is_named(peer, token)) { slot.take() } else { None }
    }

    /// The peer that `token` names.
    pub(crate) fn get(&self, token: u64) -> Option<&Peer<P>> {
        self.slots.get(slot_of(token))?.as_deref().filter(|peer| is_named(peer, token))
    }

    /// As [`Slots::get`], to change it.
    pub(crate) fn get_mut(&mut self, token: u64) -> Option<&mut Peer<P>> {
        self.slots.get_mut(slot_of(token))?.as_deref_mut().filter(|peer| is_named(peer, token))
    }

    /// Takes whatever is in the slot with this index, below [`Slots::size`].
    pub(crate) fn take_at(&mut self, index: usize) -> Option<Box<Peer<P>>> {
        self.slots[index].take()
    }

    /// How many slots there are, free ones included.
    pub(crate) fn size(&self) -> usize {
        self.slots.len()
    }

    /// How many connections have a slot.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

/// Names a connection's place to the poller, the timers and the lists.
pub(crate) fn token_of(connection: &Connection) -> u64 {
    (connection.id() << 32) | u64::from(connection.slot.load(Ordering::Relaxed))
}

/// The slot that [`token_of`] put into `token`.
fn slot_of(token: u64) -> usize {
    (token & u64::from(u32::MAX)) as usize
}

fn is_named<P: Protocol>(peer: &Peer<P>, token: u64) -> bool {
    peer.connection.id() as u32 == (token >> 32) as u32
}
