//! Connections that leave for another loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Driver, Loop};
use crate::mailbox::{Post, relocate};
use crate::peer::Peer;
use crate::{CloseReason, Connection, Protocol};

impl<P: Protocol, D: Driver<P>> Loop<P, D> {
    pub(super) fn ask_to_move(&mut self, connection: &Arc<Connection>) {
        match self.take_here(connection) {
            Some(mut peer) => {
                peer.move_to = connection.take_order().or(peer.move_to).filter(|to| *to != self.index);
                self.settle(peer);
            }
            // It moved since it was asked: the question follows it.
            None if connection.loop_index() != self.index => {
                self.handle.shared.send(connection, Post::Move(Arc::clone(connection)));
            }
            None => {}
        }
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
        self.stats.connections.fetch_sub(1, Ordering::Relaxed);
        shared.stats[to].moves_in.fetch_add(1, Ordering::Relaxed);
        shared.stats[to].connections.fetch_add(1, Ordering::Relaxed);
        relocate(&shared.mailboxes, peer, self.index, to);
    }
}
