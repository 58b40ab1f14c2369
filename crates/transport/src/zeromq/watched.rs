//! A socket of libzmq with a bound to everything, and what tells that a connection of it has ended.

use std::time::Duration;

use zmq::{Context, DONTWAIT, Message, PollEvents, PollItem, Socket, SocketEvent, SocketType};

use super::pipe::PORTION_BYTES;
use crate::Settings;

/// Messages that libzmq queues for a connection, each way: a portion each. With fewer its threads run dry, more only wait longer.
const QUEUE_PORTIONS: i32 = 16;

/// The socket, and its monitor.
pub(super) struct Watched {
    pub(super) socket: Socket,
    events: Socket,
    /// Where its monitor goes when it is closed.
    nowhere: String,
}

impl Watched {
    /// A socket that listens, or dials once, and whose end or failure is told of; `number` is not that of another one of `context`.
    ///
    /// # Errors
    /// There are no more sockets.
    pub(super) fn new(
        context: &Context,
        kind: SocketType,
        settings: &Settings,
        number: u64,
    ) -> zmq::Result<Self> {
        let socket = context.socket(kind)?;
        socket.set_sndhwm(QUEUE_PORTIONS)?;
        socket.set_rcvhwm(QUEUE_PORTIONS)?;
        socket.set_maxmsgsize(portion_bytes_max(settings))?;
        socket.set_handshake_ivl(millis(settings.handshake_timeout))?;
        socket.set_connect_timeout(millis(settings.connect_timeout))?;
        // Never again by itself: another connection is another socket.
        socket.set_reconnect_ivl(-1)?;
        // What is not acknowledged is sent again, or was for a node that is gone.
        socket.set_linger(0)?;
        let told_at = format!("inproc://ends-{number}");
        socket.monitor(&told_at, ENDS.into_iter().fold(0, |all, event| all | i32::from(event.to_raw())))?;
        let events = context.socket(SocketType::PAIR)?;
        events.set_linger(0)?;
        events.connect(&told_at)?;
        Ok(Self { socket, events, nowhere: format!("inproc://nowhere-{number}") })
    }

    /// What to poll: the socket for `room`, and its events.
    pub(super) fn poll_items(&self, room: PollEvents) -> [PollItem<'_>; 2] {
        [self.socket.as_poll_item(room), self.events.as_poll_item(zmq::POLLIN)]
    }

    /// Takes all that was told; whether there was anything.
    pub(super) fn take_events(&self) -> bool {
        let (mut event, mut has_any) = (Message::new(), false);
        while self.events.recv(&mut event, DONTWAIT).is_ok() {
            has_any = true;
        }
        has_any
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Where nobody listens to its events any more, an I/O thread of libzmq would wait for ever when it tells of one.
        if let Err(error) = self.socket.monitor(&self.nowhere, 0) {
            tracing::error!(%error, "the monitor of a socket cannot be ended");
        }
    }
}

/// What is told of.
const ENDS: [SocketEvent; 5] = [
    SocketEvent::CLOSED,
    SocketEvent::DISCONNECTED,
    SocketEvent::HANDSHAKE_FAILED_NO_DETAIL,
    SocketEvent::HANDSHAKE_FAILED_PROTOCOL,
    SocketEvent::HANDSHAKE_FAILED_AUTH,
];

/// Most that one portion of a peer has: a chunk of credits, one of lossy messages, and reliable ones, the last of which may go beyond
/// what is meant; small ones have a header each that is not counted.
fn portion_bytes_max(settings: &Settings) -> i64 {
    3 * i64::from(settings.payload_bytes_max()) + 16 * PORTION_BYTES as i64
}

/// So many milliseconds, not fewer.
pub(super) fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}
