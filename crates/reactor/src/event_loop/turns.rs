//! Turns of connections: those that were read, those with work left, those whose replies were released, those whose
//! timer is due.
//!
//! Input of one tick is handled in three steps: all of it is read, then all of it is handled, then all replies are sent. One step
//! for all connections, then the next for all, keeps the code of each in the processor's caches: with hundreds of connections that
//! send a request each, the kernel's code would replace ours in them between any two requests. In between the protocol hears of everything that it
//! will handle, so that the memory which it needs is fetched for all at once.
//!
//! A client with many connections that waits for replies is woken by the first, which costs more than to send it, and is still on its way
//! when the others follow. Sent between two turns each would wake it again.

use std::time::Duration;

use super::{Driver, Loop};
use crate::Protocol;
use crate::handover::NOTHING_HELD;
use crate::peer::Peer;

impl<P: Protocol, D: Driver<P>> Loop<P, D> {
    /// Handles what [`Driver::receive`] read.
    pub(super) fn work(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        if received.len() > 1 {
            let slots = &self.slots;
            let mut inputs = received.iter().filter_map(|token| slots.get(*token).and_then(Peer::ahead));
            self.handle.shared.protocol.on_ahead(&mut inputs);
            self.share_time(&received);
        }
        let (mut unsent, mut since) = (0, self.now);
        for at in 0..received.len() {
            let Some(mut peer) = self.slots.take(received[at]) else { continue };
            let is_large = match self.call(&mut peer, Peer::answer) {
                Ok(()) => {
                    let bytes = peer.output_bytes();
                    self.slots.put(peer);
                    bytes > UNSENT_BYTES_MAX
                }
                Err(reason) => {
                    self.end(peer, reason);
                    false
                }
            };
            if is_large || self.now - since >= UNSENT_MAX {
                self.send(&received[unsent..=at]);
                (unsent, since) = (at + 1, self.now);
            }
        }
        self.send(&received[unsent..]);
        received.clear();
        self.received = received;
    }

    /// Sends what these connections have answered, if they are still there.
    fn send(&mut self, tokens: &[u64]) {
        for token in tokens {
            if let Some(peer) = self.slots.take(*token) {
                self.drive(peer, Peer::finish);
            }
        }
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

    pub(super) fn run_ready(&mut self) {
        let mut ready = std::mem::replace(&mut self.ready, std::mem::take(&mut self.ready_now));
        for token in ready.drain(..) {
            if let Some(mut peer) = self.slots.take(token) {
                peer.in_ready = false;
                self.drive(peer, Peer::turn);
            }
        }
        self.ready_now = ready;
    }

    /// Sends replies whose tickets were released since the last tick.
    pub(super) fn release_held(&mut self) {
        if self.lowest_held == NOTHING_HELD {
            return;
        }
        let released = self.handle.shared.protocol.released();
        if !self.lowest_held.is_covered_by(released) {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        self.lowest_held = NOTHING_HELD;
        held.retain(|entry| {
            if !entry.ticket.is_covered_by(released) {
                self.lowest_held = self.lowest_held.or(entry.ticket);
                return true;
            }
            if let Some(mut peer) = self.slots.take(entry.token) {
                peer.in_held = false;
                // A turn, not only a flush: input may have waited for room.
                self.drive(peer, Peer::turn);
            }
            false
        });
        // What is held anew was listed by `settle`.
        held.append(&mut self.held);
        self.held = held;
    }

    pub(super) fn fire_timers(&mut self) {
        while let Some((deadline, token)) = self.timers.pop_due(self.now) {
            let Some(mut peer) = self.slots.take(token) else { continue };
            if peer.timer_queued != Some(deadline) {
                self.slots.put(peer);
                continue;
            }
            peer.timer_queued = None;
            if peer.deadline().is_some_and(|due| due <= self.now) {
                self.drive(peer, |peer, context| {
                    peer.fire_timers(context)?;
                    peer.turn(context)
                });
            } else {
                self.settle(peer);
            }
        }
        let slots = &self.slots;
        self.timers.trim(slots.count(), |deadline, token| {
            slots.get(token).is_some_and(|peer| peer.timer_queued == Some(deadline))
        });
    }
}

/// From here on an answer waits for no further connection, but for the turn that is under way.
const UNSENT_MAX: Duration = Duration::from_micros(100);
/// An answer of more bytes is sent at once.
const UNSENT_BYTES_MAX: usize = 16 << 10;
