//! One connection of a link, without its socket: who speaks first, what is sent next, when it is given up.
//!
//! ```text
//!  dialed:    hello ->            <- hello    then chunks in both directions
//!  accepted:             -> hello   hello ->
//!
//!  Greets --hello of a peer that is declared--> Talks(generation) --> ends: error, silence, superseded
//!     \__ handshake_timeout: ends
//! ```
//!
//! Performs no I/O; time is an argument. Who drives it feeds it with bytes, asks it to write after each step, and calls
//! [`Session::on_time`] at [`Session::deadline`].

use std::sync::Arc;

use clock::Nanos;

use crate::link::{Doorbell, Link, Payload, Portion};
use crate::node::Node;
use crate::wire::{
    Chunk, HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind, Parsed, WireError, decode, decode_carried,
    encode_header,
};
use crate::{LinkError, NodeId};

/// Where a connection's chunks go.
pub(crate) trait Sink {
    /// A chunk with a payload that is used at once.
    fn own(&mut self, header: &Header, payload: &[u8]);

    /// A chunk with a payload that may be kept without a copy.
    fn shared(&mut self, header: &Header, payload: &Payload);
}

/// Bytes of several chunks, in one buffer.
impl Sink for Vec<u8> {
    fn own(&mut self, header: &Header, payload: &[u8]) {
        self.extend_from_slice(&encode_header(header, payload));
        self.extend_from_slice(payload);
    }

    fn shared(&mut self, header: &Header, payload: &Payload) {
        self.own(header, payload);
    }
}

/// What became of bytes that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// So many are not needed any more.
    pub(crate) consumed_bytes: usize,
    /// The chunk behind them has at least so many.
    pub(crate) next_bytes: usize,
}

/// [`decode`] or [`decode_carried`].
type Decode = for<'a> fn(&'a [u8], u32) -> Result<Parsed<'a>, WireError>;

enum Phase {
    /// Nothing is known of the peer but who it should be, if it was dialed.
    Greets { dialed: Option<NodeId>, until: Nanos },
    /// The link is its.
    Talks { link: Arc<Link>, generation: u64 },
}

/// One connection.
pub(crate) struct Session {
    node: Arc<Node>,
    phase: Phase,
    doorbell: Arc<dyn Doorbell>,
    decode: Decode,
    /// Who the peer has proved to be, if it was asked that.
    proved: Option<NodeId>,
    /// The own hello is to be sent.
    owes_hello: bool,
    heard_at: Nanos,
    wrote_at: Nanos,
    rest_at: Option<Nanos>,
    portion: Portion,
}

impl Session {
    /// A connection that came.
    pub(crate) fn accepted(node: Arc<Node>, doorbell: Arc<dyn Doorbell>, now: Nanos) -> Self {
        Self::new(node, doorbell, now, None)
    }

    /// A connection that was made, to `peer`. It speaks first.
    pub(crate) fn dialed(node: Arc<Node>, doorbell: Arc<dyn Doorbell>, now: Nanos, peer: NodeId) -> Self {
        Self::new(node, doorbell, now, Some(peer))
    }

    fn new(node: Arc<Node>, doorbell: Arc<dyn Doorbell>, now: Nanos, dialed: Option<NodeId>) -> Self {
        let until = now + node.settings.handshake_timeout;
        Self {
            node,
            phase: Phase::Greets { dialed, until },
            doorbell,
            decode,
            proved: None,
            owes_hello: dialed.is_some(),
            heard_at: now,
            wrote_at: now,
            rest_at: None,
            portion: Portion::default(),
        }
    }

    /// The same connection, whose chunks are carried by what authenticates them: see [`crate::wire::decode_carried`].
    pub(crate) fn carried(mut self) -> Self {
        self.decode = decode_carried;
        self
    }

    /// The peer has proved to be `peer`: its hello must say the same.
    pub(crate) fn prove(&mut self, peer: NodeId) {
        self.proved = Some(peer);
    }

    /// Whether it has not proved who it is.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(self.phase, Phase::Greets { .. })
    }

    /// The node at the other end, once it has said who it is.
    pub(crate) fn peer(&self) -> Option<NodeId> {
        match &self.phase {
            Phase::Greets { dialed, .. } => *dialed,
            Phase::Talks { link, .. } => Some(link.peer),
        }
    }

    /// Takes `bytes`, as far as they are whole chunks.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(crate) fn on_bytes(&mut self, bytes: &[u8], now: Nanos) -> Result<Taken, LinkError> {
        let mut at = 0;
        loop {
            let payload_bytes_max = match self.phase {
                // Nobody who has not said who it is may send more.
                Phase::Greets { .. } => HELLO_BYTES as u32,
                Phase::Talks { .. } => {
                    let taken = self.on_chunks(&bytes[at..], now)?;
                    return Ok(Taken { consumed_bytes: at + taken.consumed_bytes, ..taken });
                }
            };
            match (self.decode)(&bytes[at..], payload_bytes_max)? {
                Parsed::Part(next_bytes) => return Ok(Taken { consumed_bytes: at, next_bytes }),
                Parsed::Whole(chunk, size_bytes) => {
                    self.on_hello(&chunk, now)?;
                    at += size_bytes;
                }
            }
        }
    }

    /// Takes a chunk that is whole and right.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(crate) fn on_chunk(&mut self, chunk: &Chunk<'_>, now: Nanos) -> Result<(), LinkError> {
        let Phase::Talks { link, generation } = &self.phase else { return self.on_hello(chunk, now) };
        self.heard_at = now;
        link.receive(*generation)?.on_chunk(chunk, self.node.receiver())
    }

    fn on_chunks(&mut self, bytes: &[u8], now: Nanos) -> Result<Taken, LinkError> {
        let Phase::Talks { link, generation } = &self.phase else {
            return Err(LinkError::Protocol("a chunk before its hello"));
        };
        let mut receiving = link.receive(*generation)?;
        let mut consumed_bytes = 0;
        loop {
            match (self.decode)(&bytes[consumed_bytes..], self.node.settings.payload_bytes_max())? {
                Parsed::Part(next_bytes) => return Ok(Taken { consumed_bytes, next_bytes }),
                Parsed::Whole(chunk, size_bytes) => {
                    self.heard_at = now;
                    receiving.on_chunk(&chunk, self.node.receiver())?;
                    consumed_bytes += size_bytes;
                }
            }
        }
    }

    fn on_hello(&mut self, chunk: &Chunk<'_>, now: Nanos) -> Result<(), LinkError> {
        let Phase::Greets { dialed, .. } = self.phase else {
            return Err(LinkError::Protocol("a second hello"));
        };
        if chunk.header.kind != Kind::Hello {
            return Err(LinkError::Protocol("a chunk before its hello"));
        }
        let hello = Hello::decode(chunk.payload)?;
        let (from, to) = (NodeId(hello.node), NodeId(hello.to));
        if to != self.node.id {
            return Err(LinkError::WrongNode { meant: to, reached: self.node.id });
        }
        if let Some(meant) = dialed.or(self.proved).filter(|meant| *meant != from) {
            return Err(LinkError::WrongNode { meant, reached: from });
        }
        let link = self.node.link(from).ok_or(LinkError::UnknownPeer(from))?;
        if dialed.is_none() && self.node.dials(from) {
            return Err(LinkError::Protocol("it dialed, and has the higher number"));
        }
        let (ack, own) = (chunk.header.ack, self.node.incarnation);
        let generation = link.on_up(&hello, ack, own, Arc::clone(&self.doorbell), self.node.receiver())?;
        self.owes_hello = dialed.is_none();
        self.heard_at = now;
        self.phase = Phase::Talks { link, generation };
        Ok(())
    }

    /// Writes what is to be sent now, about `bytes_max` of it; whether there is more.
    ///
    /// # Errors
    /// Another connection took its place.
    pub(crate) fn write(
        &mut self,
        now: Nanos,
        bytes_max: usize,
        sink: &mut impl Sink,
    ) -> Result<bool, LinkError> {
        if std::mem::take(&mut self.owes_hello) {
            self.write_hello(sink);
            self.wrote_at = now;
        }
        let Phase::Talks { link, generation } = &self.phase else { return Ok(false) };
        let portion = &mut self.portion;
        let is_silent = now >= self.wrote_at + self.node.settings.heartbeat;
        link.take_portion(*generation, now, bytes_max, is_silent, portion)?;
        let header = |kind, sequence, credits| Header { kind, sequence, ack: portion.ack, credits };
        if portion.is_control_due {
            sink.own(&header(Kind::Control, 0, portion.credit_count), &portion.credits);
            self.wrote_at = now;
        }
        if !portion.lossy.is_empty() {
            sink.own(&header(Kind::Lossy, 0, 0), &portion.lossy);
            self.wrote_at = now;
        }
        for (sequence, payload) in &portion.reliable {
            sink.shared(&header(Kind::Reliable, *sequence, 0), payload);
            self.wrote_at = now;
        }
        // They belong to the link, which uses them again.
        self.portion.reliable.clear();
        self.rest_at = self.portion.rest_at;
        Ok(self.portion.has_more)
    }

    fn write_hello(&self, sink: &mut impl Sink) {
        let Some(link) = self.peer().and_then(|peer| self.node.link(peer)) else { return };
        let settings = &self.node.settings;
        let (knows, ack) = link.known();
        let hello = Hello {
            node: self.node.id.0,
            incarnation: self.node.incarnation.number(),
            to: link.peer.0,
            knows: knows.map(crate::Incarnation::number),
            channel_window_bytes: settings.channel_window_bytes,
            link_window_bytes: settings.link_window_bytes,
            message_bytes_max: settings.message_size_bytes_max,
            payload_bytes_max: settings.payload_bytes_max(),
        };
        sink.own(&Header { kind: Kind::Hello, sequence: 0, ack, credits: 0 }, &hello.encode());
    }

    /// When to call [`Session::on_time`]. Nothing can be written now if it `is_blocked`: then only the peer's silence matters.
    pub(crate) fn deadline(&self, is_blocked: bool) -> Nanos {
        if let Phase::Greets { until, .. } = self.phase {
            return until;
        }
        let settings = &self.node.settings;
        let silent_at = self.heard_at + settings.silence_max;
        if is_blocked {
            return silent_at;
        }
        let own = silent_at.min(self.wrote_at + settings.heartbeat);
        self.rest_at.map_or(own, |rest_at| own.min(rest_at))
    }

    /// Time has passed. Writing comes next.
    ///
    /// # Errors
    /// The peer is dead, or does not say who it is.
    pub(crate) fn on_time(&self, now: Nanos) -> Result<(), LinkError> {
        match self.phase {
            Phase::Greets { until, .. } if now >= until => Err(LinkError::HandshakeTimeout),
            Phase::Talks { .. } if now >= self.heard_at + self.node.settings.silence_max => {
                Err(LinkError::Silent)
            }
            _ => Ok(()),
        }
    }

    /// The connection ended.
    pub(crate) fn on_close(&self) {
        if let Phase::Talks { link, generation } = &self.phase {
            link.on_down(*generation, self.node.receiver());
        }
    }
}

const _: () = assert!(HELLO_BYTES + HEADER_BYTES < 256, "what a stranger may send is kept small");
