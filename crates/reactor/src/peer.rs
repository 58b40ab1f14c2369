//! A connection as its thread sees it: socket, session, buffers, and what it waits for. Both connectors
//! drive it by the same few methods.
//!
//! A *turn* reads, lets the protocol work, and writes:
//!
//! ```text
//!            read: short => drained         on_input         send: EAGAIN => blocked
//!  readable ---------------------> input ------------> output ----------------------> socket
//!     ^                              |  Yield: pending, next tick      held: marks
//!     +--- stays set while parked, full, or out of budget
//! ```
//!
//! Under edge-triggered readiness a read that returns less than it had room for has drained the socket
//! (epoll(7)), unless the peer has also closed: then one more read brings the end.
//!
//! Where completions come instead, bytes are taken in when they come, and what leaves is handed to the [`Link`]; the turn is the
//! same without its read and its send.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use clock::Nanos;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::link::Link;
use crate::pool::Pool;
use crate::stats::Tally;
use crate::{CloseReason, Connection, Handle, Input, Io, Limits, Output, Protocol, Step};

/// Reads of one turn, so that a fast sender does not starve others.
const READS_PER_TURN_MAX: usize = 4;

/// Bytes that may come by themselves ahead of those that wait to be handled; what was on its way comes on top.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// Most of an output that stays because the protocol asked for it.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// What a thread lends to the connections that it drives.
pub(crate) struct Context<'a, P: Protocol> {
    pub(crate) handle: &'a Handle<P>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) tally: &'a mut Tally,
    pub(crate) limits: Limits,
    pub(crate) now: Nanos,
    pub(crate) loop_index: usize,
    /// A callback was answered, or parked, without a held reply: not everybody here waits for tickets.
    pub(crate) unheld: bool,
}

impl<P: Protocol> Context<'_, P> {
    fn protocol(&self) -> &P {
        &self.handle.shared.protocol
    }
}

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// No more callbacks; ends when all is sent, at the latest at its deadline.
    Closing(CloseReason),
}

/// One callback to make.
enum Call<P: Protocol> {
    Input,
    Message(P::Message),
    Timer,
}

/// A connection with everything that only its thread may touch.
pub(crate) struct Peer<P: Protocol> {
    pub(crate) connection: Arc<Connection>,
    pub(crate) socket: OwnedFd,
    /// What is asked of the system for it, under a driver to which completions come.
    pub(crate) link: Option<Box<Link>>,
    /// Present until `on_close` takes it.
    session: Option<P::Session>,
    input: Input,
    output: Output,
    phase: Phase,
    parked: bool,
    /// What is in the output waits until it goes on ([`Io::keep_output`]).
    keeps: bool,
    /// More complete input is in the buffer.
    pending: bool,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    /// The peer has closed its side: reads must go on until they bring the end.
    pub(crate) read_closed: bool,
    /// The socket took less than was offered.
    pub(crate) blocked: bool,
    /// The poller tells of writability.
    pub(crate) watches_writes: bool,
    /// The loop lists it among those with held replies.
    pub(crate) in_held: bool,
    /// The loop lists it among those with work.
    pub(crate) in_ready: bool,
    /// When the protocol's timer, or the close, is due.
    pub(crate) timer: Option<Nanos>,
    /// Deadline of its newest entry in the loop's timers.
    pub(crate) timer_queued: Option<Nanos>,
    /// Where it is to move.
    pub(crate) move_to: Option<usize>,
}

impl<P: Protocol> Peer<P> {
    /// A connection that is not open yet: see [`Peer::open`].
    pub(crate) fn new(connection: Arc<Connection>, socket: OwnedFd, limits: &Limits) -> Self {
        Self {
            connection,
            socket,
            link: None,
            session: None,
            input: Input::new(limits.input_bytes_max),
            output: Output::new(limits.output_bytes_soft, limits.held_bytes_max),
            phase: Phase::Open,
            parked: false,
            keeps: false,
            pending: false,
            readable: false,
            read_closed: false,
            blocked: false,
            watches_writes: false,
            in_held: false,
            in_ready: false,
            timer: None,
            timer_queued: None,
            move_to: None,
        }
    }

    /// Makes the session, the first time.
    pub(crate) fn open(&mut self, protocol: &P) {
        if self.session.is_none() {
            self.session = Some(protocol.on_open(&self.connection));
        }
    }

    /// Reads, works and writes as far as its share goes. `Err`: the connection has ended.
    pub(crate) fn turn(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let mut reads = 0;
        while self.wants_turn() {
            if !self.pending {
                reads += 1;
                if reads > READS_PER_TURN_MAX || !self.read(context)? {
                    break;
                }
            }
            self.call(Call::Input, context)?;
            if self.pending {
                break;
            }
        }
        self.finish(context)
    }

    /// Reads what came, for the turn that follows.
    pub(crate) fn receive(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        if !self.pending && self.wants_turn() && self.read(context)? {
            self.pending = true;
        }
        Ok(())
    }

    /// Session and input, if the next turn begins with them.
    pub(crate) fn ahead(&self) -> Option<(&P::Session, &Input)> {
        self.session
            .as_ref()
            .filter(|_| self.pending && self.takes_input())
            .map(|session| (session, &self.input))
    }

    /// Delivers a message.
    pub(crate) fn message(
        &mut self,
        message: P::Message,
        context: &mut Context<'_, P>,
    ) -> Result<(), CloseReason> {
        context.tally.messages += 1;
        self.call(Call::Message(message), context)
    }

    /// Delivers messages that travelled with it.
    pub(crate) fn messages(
        &mut self,
        messages: VecDeque<P::Message>,
        context: &mut Context<'_, P>,
    ) -> Result<(), CloseReason> {
        messages.into_iter().try_for_each(|message| self.message(message, context))
    }

    /// Fires the timer.
    pub(crate) fn fire_timer(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        self.timer = None;
        match self.phase {
            Phase::Closing(CloseReason::Shutdown) => Err(CloseReason::Shutdown),
            Phase::Closing(_) => Err(CloseReason::Grace),
            Phase::Open => self.call(Call::Timer, context),
        }
    }

    /// Sends what may leave, gives buffers back, and ends the connection when it has nothing left to do.
    pub(crate) fn finish(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        if self.blocked || !(self.output.is_empty() || self.keeps_output()) {
            self.flush(context)?;
        }
        self.output.settle(context.pool);
        self.input.settle(context.pool);
        self.publish_sizes();
        match self.phase {
            Phase::Closing(reason) if self.output.is_empty() && self.unsent_bytes() == 0 => Err(reason),
            _ => Ok(()),
        }
    }

    /// Whether nothing leaves now, although it might. What the socket has refused is offered again as ever: it is asked when it has room.
    fn keeps_output(&self) -> bool {
        let goes_on = self.parked || self.pending;
        self.keeps && goes_on && self.phase == Phase::Open && self.output.len() <= KEPT_BYTES_MAX
    }

    /// Says how many bytes it keeps.
    pub(crate) fn publish_sizes(&self) {
        self.connection.input_bytes.set(self.input.len() as u64);
        self.connection.output_bytes.set((self.output.len() + self.unsent_bytes()) as u64);
        self.connection.attached_bytes.set(self.output.attached_bytes() as u64);
    }

    /// Takes no more input; ends when all is sent, or after the grace time.
    pub(crate) fn begin_close(&mut self, reason: CloseReason, context: &Context<'_, P>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing(reason);
            self.pending = false;
            self.timer = Some(context.now + context.handle.shared.options.close_grace);
        }
    }

    /// Hands the session back to the protocol. The socket closes when `self` is dropped.
    pub(crate) fn close(&mut self, reason: CloseReason, protocol: &P) {
        self.connection.set_close_reason(reason);
        if let Some(session) = self.session.take() {
            protocol.on_close(session, &self.connection);
        }
    }

    /// The peer is gone for both directions. What it sent before is still taken, if it can be now.
    pub(crate) fn on_hang_up(&mut self) -> Result<(), CloseReason> {
        (self.readable, self.read_closed) = (true, true);
        if self.takes_input() { Ok(()) } else { Err(CloseReason::Peer) }
    }

    /// Whether a turn could get anywhere.
    pub(crate) fn wants_turn(&self) -> bool {
        (self.pending || self.readable) && self.takes_input()
    }

    /// Whether something goes on when the socket has taken what it was given: more leaves, or it is the end.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.blocked || self.phase != Phase::Open
    }

    /// Whether input is welcome: not while parked, closing, or full.
    pub(crate) fn takes_input(&self) -> bool {
        self.phase == Phase::Open && !self.parked && !self.output.is_full()
    }

    /// Whether it may change loops now.
    pub(crate) fn may_move(&self) -> bool {
        self.phase == Phase::Open && !self.parked
    }

    /// The ticket that its first held reply waits for.
    pub(crate) fn first_ticket(&self) -> Option<u64> {
        self.output.first_ticket()
    }

    fn call(&mut self, call: Call<P>, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let Some(session) = self.session.as_mut().filter(|_| self.phase == Phase::Open) else {
            return Ok(());
        };
        let protocol = &*context.handle.shared.protocol;
        let limits = context.limits;
        self.output.set_limits(limits.output_bytes_soft, limits.held_bytes_max);
        let from_input = matches!(call, Call::Input);
        self.output.begin_turn(context.pool, protocol.released(), from_input);
        let commands = self.connection.commands();
        let mut io = Io {
            input: &mut self.input,
            output: &mut self.output,
            connection: &self.connection,
            now: context.now,
            loop_index: context.loop_index,
            handle: context.handle,
            parked: self.parked,
            timer: &mut self.timer,
            patient: false,
            keeps: false,
        };
        let step = match call {
            Call::Input => protocol.on_input(session, &mut io),
            Call::Message(message) => protocol.on_message(session, message, &mut io),
            Call::Timer => protocol.on_timer(session, &mut io),
        };
        let (is_patient, keeps) = (io.patient, io.keeps);
        let commands = self.connection.commands() - commands;
        context.tally.commands += commands;
        let is_answered = commands > 0 || !from_input || step == Step::Park;
        context.unheld |= is_answered && !is_patient && self.output.first_ticket().is_none();
        // A message that ends a park is followed by a turn.
        self.keeps = if from_input { keeps && step == Step::Park } else { self.keeps && step != Step::Park };
        self.apply(step, from_input, context)
    }

    fn apply(&mut self, step: Step, from_input: bool, context: &Context<'_, P>) -> Result<(), CloseReason> {
        let was_parked = std::mem::replace(&mut self.parked, step == Step::Park);
        match step {
            // Input that waited for the end of the park may hold complete requests.
            Step::Continue if from_input => {
                self.pending = false;
                if self.input.is_full() {
                    return Err(CloseReason::InputLimit);
                }
            }
            Step::Continue => self.pending |= was_parked && !self.input.is_empty(),
            Step::Yield => self.pending = true,
            Step::Park => self.pending = false,
            Step::Close => self.begin_close(CloseReason::Protocol, context),
            Step::Kill => return Err(CloseReason::Protocol),
        }
        Ok(())
    }

    /// Bytes handed to the system that the socket has not taken.
    fn unsent_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.unsent_bytes())
    }

    /// Takes bytes that came by themselves.
    pub(crate) fn take_in(&mut self, bytes: &[u8], pool: &mut Pool, tally: &mut Tally, now: Nanos) {
        self.count_read(bytes.len(), tally, now);
        if self.phase == Phase::Open {
            self.input.room(pool).extend_from_slice(bytes);
            self.pending = true;
        }
    }

    /// Whether bytes should come by themselves: not when there is enough already that cannot be handled yet. `are_coming`
    /// makes the difference that keeps it from changing its mind with each piece.
    pub(crate) fn wants_bytes(&self, are_coming: bool) -> bool {
        let enough = if are_coming { AHEAD_BYTES_MAX } else { AHEAD_BYTES_MAX / 2 };
        let handles = self.takes_input() && !self.pending;
        self.phase == Phase::Open
            && (handles || self.input.len() < enough)
            && (are_coming || self.takes_input())
    }

    /// Whether it changes loops as soon as nothing is under way for it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.move_to.is_some() && self.may_move()
    }

    fn count_read(&mut self, count: usize, tally: &mut Tally, now: Nanos) {
        tally.read_events += 1;
        tally.bytes_in += count as u64;
        self.connection.read_events.add(1);
        self.connection.bytes_in.add(count as u64);
        self.connection.last_active.set(now.0);
    }

    /// Takes note that the socket took `count` bytes.
    pub(crate) fn count_write(&mut self, count: usize, tally: &mut Tally, now: Nanos) {
        tally.write_events += 1;
        tally.bytes_out += count as u64;
        self.connection.write_events.add(1);
        self.connection.bytes_out.add(count as u64);
        self.connection.last_active.set(now.0);
    }

    /// Reads once; whether anything came.
    fn read(&mut self, context: &mut Context<'_, P>) -> Result<bool, CloseReason> {
        if let Some(link) = &self.link {
            // Bytes come by themselves; what is left to read is the end.
            if link.is_broken {
                return Err(CloseReason::Peer);
            }
            self.readable = false;
            self.begin_close(CloseReason::Peer, context);
            return Ok(false);
        }
        let room = self.input.room(context.pool);
        let spare = room.capacity() - room.len();
        // Not `read`: a socket's own call spares the kernel its way through files, a quarter of the call's time.
        let received =
            rustix::net::recv(&self.socket, rustix::buffer::spare_capacity(room), RecvFlags::empty());
        match received.map(|(_, count)| count) {
            Ok(0) => {
                self.readable = false;
                self.begin_close(CloseReason::Peer, context);
                Ok(false)
            }
            Ok(count) => {
                self.readable = count == spare || self.read_closed;
                self.count_read(count, context.tally, context.now);
                Ok(true)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(false)
            }
            Err(Errno::INTR) => Ok(false),
            Err(_) => Err(CloseReason::Peer),
        }
    }

    fn flush(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let released = if self.output.has_marks() { context.protocol().released() } else { u64::MAX };
        if let Some(link) = &mut self.link {
            self.blocked = !link.hand_over(&mut self.output, released) || link.is_refused;
            return self.check_unsent(context);
        }
        loop {
            let mut flags = SendFlags::NOSIGNAL;
            flags.set(SendFlags::MORE, self.output.continues(released));
            let chunk = self.output.sendable(released);
            let offered = chunk.len();
            if offered == 0 {
                self.blocked = false;
                return Ok(());
            }
            match rustix::net::send(&self.socket, chunk, flags) {
                Ok(count) => {
                    self.output.advance(count);
                    self.count_write(count, context.tally, context.now);
                    self.blocked = count < offered;
                }
                Err(Errno::AGAIN) => self.blocked = true,
                Err(Errno::INTR) => continue,
                Err(_) => return Err(CloseReason::Peer),
            }
            if self.blocked {
                return self.check_unsent(context);
            }
        }
    }

    /// Cuts who does not read what it asked for.
    fn check_unsent(&self, context: &Context<'_, P>) -> Result<(), CloseReason> {
        let unsent = self.unsent_bytes() + self.output.len() - self.output.held_bytes();
        let is_refused = self.link.as_ref().map_or(self.blocked, |link| link.is_refused);
        let is_cut = is_refused && unsent > context.limits.output_bytes_max;
        if is_cut { Err(CloseReason::OutputLimit) } else { Ok(()) }
    }
}
