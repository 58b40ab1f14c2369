//! Links as a protocol of the reactor: bytes that came go to the session, and a portion of what it has to send to the output.

use std::sync::{Arc, OnceLock};

use clock::{Clock, Nanos, Throttle};
use reactor::{Connection, Handle, Io, Keeps, Output, Protocol, SharedBytes, Step};

use super::dial::Dialer;
use crate::link::{Doorbell, Payload};
use crate::node::Node;
use crate::session::{Session, Sink};
use crate::wire::{Header, encode_header};
use crate::{LinkError, NodeId};

/// About what one portion has, beside its last chunk.
const PORTION_BYTES: usize = 256 << 10;
/// A payload up to here is copied into the output: a write of its own costs more.
const COPY_BYTES_MAX: usize = 8 << 10;

/// What a connection is told by other threads.
pub(super) enum Post {
    /// It was made, to this peer.
    Dialed(NodeId),
    /// There is something to send.
    Send,
}

/// The connections of a node.
pub(super) struct Links {
    node: Arc<Node>,
    clock: Arc<dyn Clock>,
    dialer: Arc<Dialer>,
    handle: OnceLock<Handle<Self>>,
    /// Of messages about connections that were refused.
    refusals: Throttle,
}

/// One connection.
pub(super) struct Wire {
    session: Session,
    bell: Arc<Bell>,
    is_dialed: bool,
    /// It is given up.
    has_failed: bool,
}

/// Reaches a connection from the threads that send.
struct Bell {
    handle: Handle<Links>,
    connection: Arc<Connection>,
}

impl Doorbell for Bell {
    fn ring(&self) {
        // A connection that has ended needs no bell: the next one sends what waits.
        self.handle.post_to(&self.connection, Post::Send);
    }

    fn hang_up(&self) {
        self.connection.kill();
    }
}

impl Links {
    pub(super) fn new(node: &Arc<Node>, clock: &Arc<dyn Clock>, dialer: &Arc<Dialer>) -> Self {
        Self {
            node: Arc::clone(node),
            clock: Arc::clone(clock),
            dialer: Arc::clone(dialer),
            handle: OnceLock::new(),
            refusals: Throttle::new(LOG_EVERY),
        }
    }

    /// Puts the next portion into the output, once the one before has left, and sets the timer.
    fn write(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        let is_blocked = !io.output.is_empty();
        let mut has_more = is_blocked;
        if !is_blocked {
            let mut sink = OutputSink { output: io.output, pending: None };
            let written = wire.session.write(io.now, PORTION_BYTES, &mut sink);
            sink.finish();
            match written {
                Ok(more) => has_more = more,
                Err(why) => return self.fail(wire, why, io),
            }
        }
        if has_more {
            io.tell_when_sent();
        }
        io.set_timer(Some(wire.session.deadline(is_blocked)));
        Step::Continue
    }

    fn fail(&self, wire: &mut Wire, why: LinkError, io: &mut Io<'_, Self>) -> Step {
        wire.has_failed = true;
        if why == LinkError::Superseded {
            tracing::debug!(%why, peer = %io.connection.peer(), "a link's connection is closed");
        } else if let Some(others) = self.refusals.admit(io.now) {
            tracing::warn!(%why, peer = %io.connection.peer(), others, "a link's connection is closed");
        }
        Step::Kill
    }
}

/// One message about refused connections is logged in so long.
const LOG_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

impl Protocol for Links {
    type Session = Wire;
    type Message = Post;

    fn on_start(&self, handle: &Handle<Self>) {
        // Called once.
        let _ = self.handle.set(handle.clone());
    }

    fn on_open(&self, connection: &Arc<Connection>) -> Wire {
        let handle = self.handle.get().expect("set before the first connection opens").clone();
        let bell = Arc::new(Bell { handle, connection: Arc::clone(connection) });
        let doorbell = Arc::clone(&bell) as Arc<dyn Doorbell>;
        let session = Session::accepted(Arc::clone(&self.node), doorbell, self.clock.now());
        Wire { session, bell, is_dialed: false, has_failed: false }
    }

    fn first_deadline(&self, connection: &Connection) -> Option<Nanos> {
        Some(connection.created() + self.node.settings.handshake_timeout)
    }

    fn on_input(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        match wire.session.on_bytes(io.input.bytes(), io.now) {
            Ok(taken) => {
                io.input.consume(taken.consumed_bytes);
                if !io.input.is_empty() {
                    io.input.expect(taken.next_bytes);
                }
                self.write(wire, io)
            }
            Err(why) => self.fail(wire, why, io),
        }
    }

    fn on_message(&self, wire: &mut Wire, post: Post, io: &mut Io<'_, Self>) -> Step {
        if let Post::Dialed(peer) = post {
            let doorbell = Arc::clone(&wire.bell) as Arc<dyn Doorbell>;
            wire.session = Session::dialed(Arc::clone(&self.node), doorbell, io.now, peer);
            wire.is_dialed = true;
        }
        self.write(wire, io)
    }

    fn on_timer(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        match wire.session.on_time(io.now) {
            Ok(()) => self.write(wire, io),
            Err(why) => self.fail(wire, why, io),
        }
    }

    fn on_sent(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        self.write(wire, io)
    }

    fn keeps(&self, wire: &Wire) -> Keeps {
        Keeps { bytes: 0, is_stranger: wire.session.is_stranger() }
    }

    fn on_close(&self, wire: Wire, _: &Arc<Connection>) {
        wire.session.on_close();
        if let Some(peer) = wire.session.peer().filter(|_| wire.is_dialed) {
            self.dialer.on_end(peer, !(wire.session.is_stranger() || wire.has_failed));
        }
    }

    fn refusal(&self) -> &'static [u8] {
        b""
    }
}

/// Chunks on their way into an output: headers and small payloads are copied, large payloads are attached.
///
/// Attached bytes must lie before a byte of the buffer: the next header is that byte, and behind the last payload its own last byte.
struct OutputSink<'a> {
    output: &'a mut Output,
    /// A payload that is attached before what comes next.
    pending: Option<Payload>,
}

impl OutputSink<'_> {
    fn append(&mut self, bytes: &[u8]) {
        let at = self.output.buffer().len();
        self.output.buffer().extend_from_slice(bytes);
        if let Some(payload) = self.pending.take() {
            let part = 0..payload.len();
            self.output.attach(at, payload as SharedBytes, part);
        }
    }

    fn finish(mut self) {
        if let Some(payload) = self.pending.take() {
            let (at, last) = (self.output.buffer().len(), payload.len() - 1);
            self.output.buffer().push(payload[last]);
            self.output.attach(at, payload as SharedBytes, 0..last);
        }
    }
}

impl Sink for OutputSink<'_> {
    fn own(&mut self, header: &Header, payload: &[u8]) {
        self.append(&encode_header(header, payload));
        self.output.buffer().extend_from_slice(payload);
    }

    fn shared(&mut self, header: &Header, payload: &Payload) {
        if payload.len() <= COPY_BYTES_MAX {
            return self.own(header, payload);
        }
        self.append(&encode_header(header, payload));
        self.pending = Some(Arc::clone(payload));
    }
}
