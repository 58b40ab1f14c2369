//! Connections that leave for another loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Driver, Loop};
use crate::handle::Post;
use crate::mailbox::relocate;
use crate::peer::Peer;
use crate::pool::Pool;
use crate::slots::Slots;
use crate::timers::Timers;
use crate::{CloseReason, Connection, Protocol};

/// Connections that a parked loop sends away in one tick: others have events meanwhile.
const LEAVES_PER_TICK: usize = 256;

impl<P: Protocol, D: Driver<P>> Loop<P, D> {
    pub(super) fn ask_to_move(&mut self, connection: &Arc<Connection>) {
        match self.take_here(connection) {
            Some(mut peer) => {
                let ordered = connection.take_order().filter(|to| *to < self.handle.shared.active.count());
                peer.move_to = ordered.or(peer.move_to).filter(|to| *to != self.index);
                self.settle(peer);
            }
            // It moved since it was asked: the question follows it.
            None if connection.loop_index() != self.index => {
                self.handle.shared.send(connection, Post::Move(Arc::clone(connection)));
            }
            None => {}
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        self.index >= self.handle.shared.active.count()
    }

    /// Sends connections away while the loop is parked, some a tick.
    pub(super) fn leave_if_parked(&mut self) {
        if !self.is_parked() {
            self.leaves_from = 0;
            return;
        }
        for index in self.leaves_from..self.slots.size().min(self.leaves_from + LEAVES_PER_TICK) {
            if let Some(mut peer) = self.slots.take_at(index) {
                self.send_away(&mut peer);
                self.settle(peer);
            }
            self.leaves_from = index + 1;
        }
    }

    /// Gives up the memory and the timers of a parked loop that all connections have left.
    pub(super) fn rest_if_parked(&mut self) {
        if self.slots.count() == 0 && self.slots.size() > 0 && self.is_parked() {
            (self.slots, self.timers, self.pool) = (Slots::default(), Timers::default(), Pool::default());
            self.leaves_from = 0;
        }
    }

    /// Has `peer` leave for an active loop. This one may have become active meanwhile.
    pub(super) fn send_away(&self, peer: &mut Peer<P>) {
        let to = self.handle.shared.choose_loop_again(&peer.connection);
        peer.move_to = (to != self.index).then_some(to);
    }

    pub(super) fn move_peers(&mut self) {
        // Messages that wait here for their turn would be late.
        if self.moves.is_empty() || !self.posts.is_empty() {
            return;
        }
        let mut took_held = false;
        for token in std::mem::take(&mut self.moves) {
            let Some(mut peer) = self.slots.take(token) else { continue };
            match peer.move_to.filter(|_| !self.stopping && self.may_leave(&peer)) {
                Some(to) => {
                    peer.move_to = None;
                    took_held |= peer.in_held;
                    self.send_off(peer, to);
                }
                None => self.slots.put(peer),
            }
        }
        if took_held {
            // It may come back, to the same slot, and is listed anew then.
            let slots = &self.slots;
            self.held.retain(|entry| slots.get(entry.token).is_some());
        }
    }

    fn send_off(&mut self, mut peer: Box<Peer<P>>, to: usize) {
        if self.driver.detach(&mut peer).is_err() {
            return self.end(peer, CloseReason::System);
        }
        (peer.in_held, peer.in_ready, peer.timer_queued) = (false, false, None);
        peer.connection.moves.add(1);
        self.slots.release(&peer.connection);
        let shared = &self.handle.shared;
        self.stats.moves_out.fetch_add(1, Ordering::Relaxed);
        let before = self.stats.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a connection leaves a loop that has none");
        shared.stats[to].moves_in.fetch_add(1, Ordering::Relaxed);
        shared.stats[to].connections.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::clone(&peer.connection);
        relocate(&shared.mailboxes, &connection, peer, self.index, to);
    }
}
