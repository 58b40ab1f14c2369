//! One connection: its session, and the portion that libzmq has no room for.

use std::sync::Arc;

use clock::Nanos;
use zmq::{DONTWAIT, Message, POLLOUT, SNDMORE, Socket};

use super::wake::{Bell, Wake};
use crate::link::Doorbell;
use crate::node::Node;
use crate::session::Session;
use crate::{LinkError, NodeId};

/// About what one message of libzmq has, beside its last chunk.
pub(super) const PORTION_BYTES: usize = 64 << 10;
/// Portions that are handed to libzmq before others have their turn.
const PORTIONS_MAX: usize = 16;
/// A portion up to here is copied into a message of its size, so that the buffer stays.
const COPY_BYTES_MAX: usize = 8 << 10;
/// A message that says that its sender has ended the connection: no chunk begins so.
pub(super) const END: &[u8] = &[0];

/// Where a connection's messages go.
#[derive(Clone, Copy)]
pub(super) enum Outlet<'a> {
    /// A socket of its own.
    Dealer(&'a Socket),
    /// The socket that all share who dialed this node, and who it is on it.
    Router(&'a Socket, &'a [u8]),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    Taken,
    /// The queue is full: again when there is room.
    Full,
    /// There is no such connection any more.
    Gone,
}

impl Outlet<'_> {
    /// Hands over what `message` makes, if there is room.
    pub(super) fn send(self, message: impl FnOnce() -> Message) -> Handed {
        match self {
            // Asked first, for a message that is refused is lost. Nobody else sends on this socket.
            Self::Dealer(socket) if !has_room(socket) => Handed::Full,
            Self::Dealer(socket) => handed(socket.send(message(), DONTWAIT)),
            Self::Router(socket, id) => match handed(socket.send(id, DONTWAIT | SNDMORE)) {
                // What follows the name of one with room is taken.
                Handed::Taken => handed(socket.send(message(), DONTWAIT)),
                other => other,
            },
        }
    }
}

fn has_room(socket: &Socket) -> bool {
    socket.get_events().is_ok_and(|events| events.contains(POLLOUT))
}

fn handed(sent: zmq::Result<()>) -> Handed {
    match sent {
        Ok(()) => Handed::Taken,
        Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => Handed::Full,
        Err(_) => Handed::Gone,
    }
}

/// One connection.
pub(super) struct Pipe {
    session: Session,
    bell: Arc<Bell>,
    /// A portion that waits for room, or the memory for the next one.
    portion: Vec<u8>,
    /// It took something, or has more to write: it is its turn without a bell.
    is_due: bool,
}

impl Pipe {
    /// A connection that came.
    pub(super) fn accepted(node: &Arc<Node>, wake: &Arc<Wake>, now: Nanos) -> Self {
        Self::new(wake, |bell| Session::accepted(Arc::clone(node), bell, now))
    }

    /// A connection that is being made, to `peer`.
    pub(super) fn dialed(node: &Arc<Node>, wake: &Arc<Wake>, now: Nanos, peer: NodeId) -> Self {
        Self::new(wake, |bell| Session::dialed(Arc::clone(node), bell, now, peer))
    }

    fn new(wake: &Arc<Wake>, session: impl FnOnce(Arc<dyn Doorbell>) -> Session) -> Self {
        let bell = Bell::new(wake);
        let session = session(Arc::clone(&bell) as Arc<dyn Doorbell>);
        Self { session, bell, portion: Vec::new(), is_due: true }
    }

    /// Takes a message that came: whole chunks, or none to ask whether somebody is there.
    ///
    /// # Errors
    /// Why the connection is to be ended.
    pub(super) fn take(&mut self, bytes: &[u8], now: Nanos) -> Result<(), LinkError> {
        if bytes == END {
            return Err(LinkError::Protocol(ENDED));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        // The link counts on it, whatever came.
        self.is_due = true;
        let taken = self.session.on_bytes(bytes, now)?;
        let is_whole = taken.consumed_bytes == bytes.len();
        if is_whole { Ok(()) } else { Err(LinkError::Protocol("a message ends within a chunk")) }
    }

    /// Has it write, if it is its turn; whether anything was handed over.
    ///
    /// # Errors
    /// Why the connection is to be ended; `None`: it is gone.
    pub(super) fn turn(&mut self, now: Nanos, outlet: Outlet<'_>) -> Result<bool, Option<LinkError>> {
        if self.bell.is_hung_up() {
            return Err(Some(LinkError::Superseded));
        }
        self.session.on_time(now)?;
        let is_rung = self.bell.take_ring();
        if !(is_rung || self.is_due || self.is_blocked() || self.session.deadline(false) <= now) {
            return Ok(false);
        }
        self.is_due |= is_rung;
        self.write(now, outlet)
    }

    fn write(&mut self, now: Nanos, outlet: Outlet<'_>) -> Result<bool, Option<LinkError>> {
        let mut has_written = false;
        for _ in 0..PORTIONS_MAX {
            if !self.is_blocked() {
                self.is_due = self.session.write(now, PORTION_BYTES, &mut self.portion)?;
            }
            if self.portion.is_empty() {
                break;
            }
            match outlet.send(|| message(&mut self.portion)) {
                Handed::Taken => has_written = true,
                Handed::Full => break,
                Handed::Gone => return Err(None),
            }
            if !self.is_due {
                break;
            }
        }
        Ok(has_written)
    }

    /// Tells the link that the connection has ended.
    pub(super) fn close(&self) {
        self.session.on_close();
    }

    /// Whether a portion waits for room.
    pub(super) fn is_blocked(&self) -> bool {
        !self.portion.is_empty()
    }

    /// Whether it has more to write, and room for it as far as is known.
    pub(super) fn is_due(&self) -> bool {
        self.is_due && !self.is_blocked()
    }

    /// When it is due although nothing happens.
    pub(super) fn deadline(&self) -> Nanos {
        self.session.deadline(self.is_blocked())
    }

    /// Whether the peer has not said who it is.
    pub(super) fn is_stranger(&self) -> bool {
        self.session.is_stranger()
    }
}

/// Makes a message of `portion`, which is empty then.
fn message(portion: &mut Vec<u8>) -> Message {
    if portion.len() <= COPY_BYTES_MAX {
        let message = Message::from(portion.as_slice());
        portion.clear();
        return message;
    }
    let next = Vec::with_capacity(portion.capacity());
    Message::from(std::mem::replace(portion, next))
}

/// What is logged of a connection that the peer ended.
pub(super) const ENDED: &str = "it has ended the connection";
