//! What the reactor asks of a protocol, and what it offers it: bytes in, bytes out, time as a value.
//!
//! A protocol owns no socket and no thread. One value of it serves all loops; the state of a connection
//! is its `Session`, which moves between loops with the connection. Callbacks of one connection never
//! overlap; callbacks of different connections do.
//!
//! Life of a connection:
//!
//! ```text
//!  on_start, of all; then of each connection
//!  on_open -> (on_input | on_message | on_timer | on_sent)* -> on_close
//!                 |  Park: no on_input until on_message or on_timer answers Continue or Yield, or the peer is gone
//!                 |  Close: what is released is sent first     Kill: at once
//! ```

use std::sync::Arc;

use clock::Nanos;
use ticket::Ticket;

use crate::{Connection, Handle, Input, Keeps, NoRoom, Output};

/// A server's behaviour, without its sockets.
pub trait Protocol: Send + Sync + Sized + 'static {
    /// State of one connection; moves between loops with it.
    type Session: Send + 'static;
    /// What other threads post to a connection: a fetch is done, a message was published.
    type Message: Send + 'static;

    /// Called once, by who starts the reactor, before the first connection opens: how to reach connections from other threads.
    fn on_start(&self, _handle: &Handle<Self>) {}

    /// Called once, on the connection's thread, before anything is read.
    fn on_open(&self, connection: &Arc<Connection>) -> Self::Session;

    /// Consumes from `io.input`, appends to `io.output`. Called when input came, or is left after a
    /// [`Step::Yield`], and the connection is neither parked nor paused by its limits.
    ///
    /// A long pipeline should yield every few dozen commands, and whenever [`Output::is_full`].
    fn on_input(&self, session: &mut Self::Session, io: &mut Io<'_, Self>) -> Step;

    /// Takes a posted message. Messages of one sender arrive in the order in which they were posted.
    ///
    /// Called also while parked (`io.parked`); `Park` keeps it so, `Continue` goes on with what input waits.
    fn on_message(&self, session: &mut Self::Session, message: Self::Message, io: &mut Io<'_, Self>) -> Step;

    /// The timer of [`Io::set_timer`] fired; it is unset.
    fn on_timer(&self, _session: &mut Self::Session, io: &mut Io<'_, Self>) -> Step {
        if io.parked { Step::Park } else { Step::Continue }
    }

    /// All output has been taken by the socket, as [`Io::tell_when_sent`] asked: there is room for more.
    fn on_sent(&self, _session: &mut Self::Session, io: &mut Io<'_, Self>) -> Step {
        if io.parked { Step::Park } else { Step::Continue }
    }

    /// When `on_timer` is due for a connection of which nothing comes.
    fn first_deadline(&self, _connection: &Connection) -> Option<Nanos> {
        None
    }

    /// What is kept for a connection beside its buffers: asked after each callback. Keep it to a few loads.
    fn keeps(&self, _session: &Self::Session) -> Keeps {
        Keeps::default()
    }

    /// Bytes that are kept for several connections. Asked often: keep it to a few loads.
    fn shared_bytes(&self) -> u64 {
        0
    }

    /// Told now and then, from any thread, what all connections keep, as far as they may, and how much that is.
    fn on_kept(&self, _bytes: u64, _bytes_max: u64) {}

    /// Whether long requests wait before they come, for a moment: asked again every 5 ms. From any thread; one load.
    fn holds_requests(&self) -> bool {
        false
    }

    /// What a connection is told, before it is closed, that has no room for its request.
    fn no_room(&self, _why: NoRoom) -> Vec<u8> {
        Vec::new()
    }

    /// Called once, with the session, when the connection is gone; why is in [`Connection::close_reason`].
    fn on_close(&self, session: Self::Session, connection: &Arc<Connection>);

    /// Several connections have input, and `on_input` comes for each of them next: what it will look up can be prefetched for
    /// all at once. A hint, without effect but on time.
    fn on_ahead(&self, _inputs: &mut dyn Iterator<Item = (&Self::Session, &Input)>) {}

    /// Called at the end of each tick of a loop, before it sleeps (after each turn, under `threads`). `all_wait`: for a while
    /// every reply of this loop was held by a ticket, so that to block until tickets are released delays nobody; ticks that follow
    /// each other at once then share a call. Never under `threads`.
    fn on_tick_end(&self, _loop_index: usize, _all_wait: bool) {}

    /// What a connection is in the middle of, or did last, in a word or two: for the log and for INFO, when a callback takes long.
    /// Asked from any thread, also while a callback of the connection runs.
    fn doing(&self, _connection_id: u64) -> Option<String> {
        None
    }

    /// Replies held by a ticket that this covers may leave. Only grows. Read often: keep it to one atomic load.
    fn released(&self) -> Ticket {
        Ticket::EVERYTHING
    }

    /// A part of the reactor works no more, for good: `what`. Said once for each part. Who serves should end: connections of a loop that
    /// cannot wait for events have ended without a reply.
    fn on_failure(&self, _what: &'static str) {}

    /// What a connection is told that is one too many, before it is closed.
    fn refusal(&self) -> &'static [u8];
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for more input. What input is left is the start of a request that is not complete.
    Continue,
    /// More complete input is pending: let others run, then call `on_input` again.
    Yield,
    /// Read nothing and call no `on_input` until `on_message` or `on_timer` answers otherwise.
    Park,
    /// Take no more input; send what is or gets released, then close.
    Close,
    /// As `Close`, for a client that may be in the middle of a long request: so many bytes of what it still sends are taken and
    /// dropped, for a bounded time, so that it comes to read why. A socket closed with unread bytes may lose what was sent to it.
    Refuse(usize),
    /// Close now; what was not sent is dropped.
    Kill,
}

/// One callback's view of its connection.
#[derive(Debug)]
pub struct Io<'a, P: Protocol> {
    /// Bytes that came and were not consumed.
    pub input: &'a mut Input,
    /// Bytes to send.
    pub output: &'a mut Output,
    /// Identity and counters.
    pub connection: &'a Arc<Connection>,
    /// Monotonic time at the start of this turn: not fresh for each command.
    pub now: Nanos,
    /// The loop that runs this callback; always 0 under the connector `threads`, where callbacks with
    /// the same index do overlap.
    pub loop_index: usize,
    /// The reactor, to post and to move.
    pub handle: &'a Handle<P>,
    /// Whether the connection is parked.
    pub parked: bool,
    pub(crate) timer: &'a mut Option<Nanos>,
    pub(crate) patient: bool,
    pub(crate) keeps: bool,
    pub(crate) withholds: bool,
    pub(crate) ends_with_peer: bool,
    pub(crate) tells_sent: bool,
}

impl<P: Protocol> Io<'_, P> {
    /// Asks for `on_timer` at `deadline`, in place of what was asked before; `None` unsets it.
    ///
    /// Fires late by up to a millisecond and never early. Costs next to nothing when a deadline is only
    /// put off, as an idle timeout is.
    pub fn set_timer(&mut self, deadline: Option<Nanos>) {
        *self.timer = deadline;
    }

    /// Asks for `on_sent` once the socket has taken all that is in the output then: for a protocol that has more to send than it wants
    /// to have in the output at a time. Asked for by one callback, it stays asked for until it comes.
    pub fn tell_when_sent(&mut self) {
        self.tells_sent = true;
    }

    /// Says that nobody waits for what this callback answers: beside it all others of the loop may still be all who wait
    /// ([`Protocol::on_tick_end`]).
    pub fn set_patient(&mut self) {
        self.patient = true;
    }

    /// Asked of `on_input` that parks: what is in the output stays until the connection goes on, so that replies whose client waits for
    /// the last of them leave together. It leaves earlier if there is much of it, or if a message or the timer leaves the connection parked.
    pub fn keep_output(&mut self) {
        self.keeps = true;
    }

    /// Asked of `on_input` that parks: nothing of the output leaves before the park has ended, however much it is and whatever comes
    /// meanwhile. For a reply that must not be read before what it says is so.
    pub fn withhold_output(&mut self) {
        self.withholds = true;
    }

    /// Asked of `on_input` that parks: the wait ends with the connection as soon as the peer has closed its side, what it is owed is sent
    /// before. For waits that may be long or without end. Other waits go on, so that a peer that closed its side alone gets its reply: as
    /// long as the grace time of a close ([`crate::Options::close_grace`]). A peer that is gone for both directions ends any wait at once.
    pub fn end_with_peer(&mut self) {
        self.ends_with_peer = true;
    }
}
