//! What others ask of a loop: to take a connection in, to deliver a message, to end one, to stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Driver, Loop};
use crate::handle::Post;
use crate::peer::Peer;
use crate::slots::token_of;
use crate::{CloseReason, Connection, NoRoom, Protocol};

impl<P: Protocol, D: Driver<P>> Loop<P, D> {
    pub(super) fn take_posts(&mut self) {
        if self.posts.is_empty() {
            let mut posts = Vec::from(std::mem::take(&mut self.posts));
            self.mailbox.take(&mut posts);
            self.posts = posts.into();
        }
        for _ in 0..POSTS_MAX {
            let Some(post) = self.posts.pop_front() else { break };
            match post {
                Post::Arrive(peer, messages) => self.arrive(peer, messages),
                Post::Message(connection, message) => self.deliver(&connection, message),
                Post::Kill(connection) => {
                    if let Some(peer) = self.take_here(&connection) {
                        self.end(peer, connection.kill_reason());
                    }
                }
                Post::Room(connection, refusal) => self.tell_of_room(connection, refusal),
                Post::Move(connection) => self.ask_to_move(&connection),
                Post::Pass(token) => drop(token),
            }
        }
    }

    /// Takes the peer of `connection` if it lives here.
    pub(super) fn take_here(&mut self, connection: &Connection) -> Option<Box<Peer<P>>> {
        if connection.loop_index() == self.index { self.slots.take(token_of(connection)) } else { None }
    }

    fn arrive(&mut self, mut peer: Box<Peer<P>>, messages: std::collections::VecDeque<P::Message>) {
        self.slots.assign(&peer.connection);
        peer.open(&self.handle.shared.protocol);
        if peer.connection.killed.load(Ordering::Acquire) {
            let reason = peer.connection.kill_reason();
            return self.end(peer, reason);
        }
        if self.driver.attach(&mut peer).is_err() {
            return self.end(peer, CloseReason::System);
        }
        if self.is_parked() {
            // It was sent before the loop was parked.
            self.send_away(&mut peer);
        }
        if self.stopping {
            self.drive(peer, |peer, context| {
                peer.begin_close(CloseReason::Shutdown, context);
                peer.finish(context)
            });
        } else {
            self.drive(peer, |peer, context| {
                peer.messages(messages, context)?;
                peer.finish(context)
            });
        }
    }

    fn tell_of_room(&mut self, connection: Arc<Connection>, refusal: Option<NoRoom>) {
        match self.take_here(&connection) {
            Some(peer) => {
                self.drive(peer, |peer, context| peer.on_room(refusal, context));
                self.make_ready(&connection);
            }
            None if connection.loop_index() != self.index => {
                self.handle.shared.send(&Arc::clone(&connection), Post::Room(connection, refusal));
            }
            None => {}
        }
    }

    fn deliver(&mut self, connection: &Connection, message: P::Message) {
        let Some(peer) = self.take_here(connection) else { return };
        self.drive(peer, |peer, context| peer.message(message, context));
        // Sent with what else this tick brings for it.
        self.make_ready(connection);
    }

    fn make_ready(&mut self, connection: &Connection) {
        let token = token_of(connection);
        if let Some(peer) = self.slots.get_mut(token).filter(|peer| !peer.in_ready) {
            peer.in_ready = true;
            self.ready.push(token);
        }
    }

    /// Begins the stop: every connection sends what it may, and ends.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        for index in 0..self.slots.size() {
            if let Some(peer) = self.slots.take_at(index) {
                self.drive(peer, |peer, context| {
                    peer.begin_close(CloseReason::Shutdown, context);
                    peer.finish(context)
                });
            }
        }
    }
}

/// Posts that are handled in one tick: a message to 9,000 connections comes as so many, and others have events meanwhile.
const POSTS_MAX: usize = 512;
