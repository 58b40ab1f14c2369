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
//! Where completions come instead, bytes are taken in when they come, and what leaves is handed to the [`Link`]; the turn is the
//! same without its read and its send.
//!
//! Out of scope: how bytes come (`incoming`) and leave (`outgoing`), and how they do with TLS (`sealed`).

mod incoming;
mod outgoing;
mod sealed;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use clock::Nanos;
use ticket::Ticket;

use crate::budget::requests::Answer;
use crate::budget::{Budget, FREE_BYTES, GRANT_STEP_BYTES, Kept, Pressure};
use crate::handle::Shared;
use crate::link::Link;
use crate::pool::Pool;
use crate::stats::Tally;
use crate::tls::Tls;
use crate::{CloseReason, Connection, Handle, Input, Io, Limits, NoRoom, Output, Protocol, Step};

/// Reads of one turn, so that a fast sender does not starve others.
const READS_PER_TURN_MAX: usize = 4;
/// Bytes that are dropped of a request for which there is no room.
const DRAINED_BYTES_MAX: usize = 1 << 30;

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
    Sent,
}

/// A connection with everything that only its thread may touch.
pub(crate) struct Peer<P: Protocol> {
    pub(crate) connection: Arc<Connection>,
    pub(crate) socket: OwnedFd,
    /// What is asked of the system for it, under a driver to which completions come.
    pub(crate) link: Option<Box<Link>>,
    /// What all its bytes go through, if they are sealed.
    tls: Option<Box<Tls>>,
    /// Present until `on_close` takes it.
    session: Option<P::Session>,
    input: Input,
    output: Output,
    phase: Phase,
    parked: bool,
    /// Bytes of input that its request was granted.
    granted_bytes: usize,
    /// Nothing is read until there is room for the rest of its request, or all together keep less.
    waits_for_room: bool,
    /// What of it is counted.
    counted: Kept,
    /// Bytes that are still taken and dropped, so that the peer comes to read why it was refused.
    drains_bytes: usize,
    /// It was told that nothing more comes.
    is_half_closed: bool,
    /// What is in the output waits until it goes on ([`Io::keep_output`]).
    keeps: bool,
    /// Nothing leaves until its park has ended ([`Io::withhold_output`]).
    withholds: bool,
    /// Its park is for nothing once the peer has closed its side ([`Io::end_with_peer`]).
    ends_with_peer: bool,
    /// The protocol wants to hear when all output has left ([`Io::tell_when_sent`]).
    tells_sent: bool,
    /// More may leave in the next turn, although the socket has taken all that it was offered.
    sends_on: bool,
    /// More complete input is in the buffer.
    pending: bool,
    /// The socket may have more to read.
    pub(crate) readable: bool,
    /// The peer has closed its side: reads must go on until they bring the end. Known although nothing is read now.
    pub(crate) read_closed: bool,
    /// The peer is gone for both directions. Reading need not tell: behind the end of its stream a reset is no error.
    hung_up: bool,
    /// The socket took less than was offered.
    pub(crate) blocked: bool,
    /// The poller tells of writability.
    pub(crate) watches_writes: bool,
    /// The loop lists it among those with held replies.
    pub(crate) in_held: bool,
    /// The loop lists it among those with work.
    pub(crate) in_ready: bool,
    /// When the protocol's timer, or the close, is due.
    timer: Option<Nanos>,
    /// When to look whether a connection whose peer has closed its side still gets anywhere.
    gone_at: Option<Nanos>,
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
            tls: None,
            session: None,
            input: Input::new(limits.input_bytes_max),
            output: Output::new(limits.output_bytes_soft, limits.held_bytes_max),
            phase: Phase::Open,
            parked: false,
            granted_bytes: 0,
            waits_for_room: false,
            counted: Kept::default(),
            drains_bytes: 0,
            is_half_closed: false,
            keeps: false,
            withholds: false,
            ends_with_peer: false,
            tells_sent: false,
            sends_on: false,
            pending: false,
            readable: false,
            read_closed: false,
            hung_up: false,
            blocked: false,
            watches_writes: false,
            in_held: false,
            in_ready: false,
            timer: None,
            gone_at: None,
            timer_queued: None,
            move_to: None,
        }
    }

    /// Makes the session, the first time.
    pub(crate) fn open(&mut self, protocol: &P) {
        if self.session.is_none() {
            self.session = Some(protocol.on_open(&self.connection));
            self.timer = protocol.first_deadline(&self.connection);
        }
    }

    /// Reads, works and writes as far as its share goes. `Err`: the connection has ended.
    pub(crate) fn turn(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        self.answer(context)?;
        self.finish(context)
    }

    /// Reads and works as [`Peer::turn`], which [`Peer::finish`] is to end.
    pub(crate) fn answer(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        if self.phase != Phase::Open {
            return self.drain(context);
        }
        let budget = &context.handle.shared.budget;
        let mut reads = 0;
        while self.wants_input() && !self.hold_back(budget) {
            if !self.pending {
                reads += 1;
                if reads > READS_PER_TURN_MAX || !self.read(context)? {
                    break;
                }
            }
            self.call(Call::Input, context)?;
            // What it keeps now is known after the turn.
            if self.pending || budget.pressure() > Pressure::Low {
                break;
            }
        }
        Ok(())
    }

    /// Whether nothing is read or begun for it now, since all together keep too much.
    fn hold_back(&mut self, budget: &Budget) -> bool {
        if budget.pressure() > Pressure::Low && self.granted_bytes == 0 {
            let own_bytes = self.counted.sum() - self.counted.connections;
            self.waits_for_room = budget.hold_back(&self.connection, own_bytes.max(0).cast_unsigned());
        }
        self.waits_for_room
    }

    /// Reads what came, for the turn that follows.
    pub(crate) fn receive(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let budget = &context.handle.shared.budget;
        let reads = self.phase == Phase::Open && !self.pending && self.wants_input();
        if reads && !self.hold_back(budget) && self.read(context)? {
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

    /// When something is due although nothing came.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.timer.into_iter().chain(self.gone_at).min()
    }

    /// Does what is due.
    pub(crate) fn fire_timers(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| at <= context.now);
        let (timer_is_due, gone_is_due) = (is_due(self.timer), is_due(self.gone_at));
        if gone_is_due {
            self.gone_at = None;
            self.check_gone(context)?;
        }
        if timer_is_due { self.fire_timer(context) } else { Ok(()) }
    }

    /// Ends a connection whose peer has closed its side if nothing came or went for the grace time; else it has as long again.
    fn check_gone(&mut self, context: &Context<'_, P>) -> Result<(), CloseReason> {
        if !self.misses_end() || self.phase != Phase::Open {
            return Ok(());
        }
        let until = self.connection.last_active() + context.handle.shared.options.close_grace;
        if until <= context.now {
            return Err(CloseReason::Grace);
        }
        self.gone_at = Some(until);
        Ok(())
    }

    fn fire_timer(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        self.timer = None;
        match self.phase {
            Phase::Closing(CloseReason::Shutdown) => Err(CloseReason::Shutdown),
            Phase::Closing(_) => Err(CloseReason::Grace),
            Phase::Open => self.call(Call::Timer, context),
        }
    }

    /// Sends what may leave, gives buffers back, and ends the connection when it has nothing left to do.
    pub(crate) fn finish(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        if self.hung_up && self.misses_end() {
            return Err(CloseReason::Peer);
        }
        self.heed_end(context);
        self.send(context)?;
        self.output.settle(context.pool);
        self.input.settle(context.pool);
        if let Some(tls) = &mut self.tls {
            tls.settle(context.pool);
        }
        self.publish_sizes(&context.handle.shared, context.tally);
        match self.phase {
            Phase::Closing(reason) if self.output.is_empty() && self.unsent_bytes() == 0 => {
                self.half_close(reason)
            }
            _ => Ok(()),
        }
    }

    /// All is sent: it is the end, unless the peer is to read that before.
    fn half_close(&mut self, reason: CloseReason) -> Result<(), CloseReason> {
        if self.drains_bytes == 0 {
            return Err(reason);
        }
        if !std::mem::replace(&mut self.is_half_closed, true) {
            self.say_end();
            // What has gone already needs no end.
            rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write).map_err(|_| reason)?;
        }
        Ok(())
    }

    /// A connection that takes no input does not come to the end that its peer has made. It ends now if it waits for what is nobody's any
    /// more, else when it takes input again, or after the grace time without a byte.
    fn heed_end(&mut self, context: &Context<'_, P>) {
        if self.phase != Phase::Open || !self.misses_end() {
            return;
        }
        if self.parked && self.ends_with_peer {
            self.begin_close(CloseReason::Peer, context);
        } else if self.gone_at.is_none() {
            self.gone_at = Some(context.now + context.handle.shared.options.close_grace);
        }
    }

    /// Whether the peer has closed its side and reading will not tell, for now.
    fn misses_end(&self) -> bool {
        self.read_closed && !self.takes_input()
    }

    /// Says how many bytes it keeps.
    pub(crate) fn publish_sizes(&mut self, shared: &Shared<P>, tally: &mut Tally) {
        let keeps = self.session.as_ref().map(|session| shared.protocol.keeps(session)).unwrap_or_default();
        let output_bytes = self.output.len() + self.unsent_bytes();
        let connection = &self.connection;
        connection.input_bytes.set(self.input.len() as u64);
        connection.output_bytes.set(output_bytes as u64);
        connection.attached_bytes.set(self.output.attached_bytes() as u64);
        connection.unsent_bytes.set((output_bytes - self.output.held_bytes()) as u64);
        if connection.is_stranger() != keeps.is_stranger {
            connection.set_stranger(keeps.is_stranger);
        }
        let link_bytes = self.link.as_ref().map_or(0, |link| link.kept_bytes());
        let tls_bytes = self.tls.as_ref().map_or(0, |tls| tls.kept_bytes());
        let mut kept = Kept {
            connections: shared.connection_bytes::<P>() + tls_bytes as i64,
            input: self.input.capacity().saturating_sub(self.granted_bytes) as i64,
            output: (self.output.kept_bytes() + link_bytes) as i64,
            session: keeps.bytes as i64,
            strangers: 0,
        };
        let sum = kept.sum();
        kept.strangers = if keeps.is_stranger { sum } else { 0 };
        connection.kept_bytes.set(sum as u64);
        if kept != self.counted {
            tally.kept += kept - self.counted;
            self.counted = kept;
        }
    }

    /// Takes no more input; ends when all is sent, or after the grace time.
    pub(crate) fn begin_close(&mut self, reason: CloseReason, context: &Context<'_, P>) {
        if reason == CloseReason::Shutdown {
            // Who was refused has had time to read why.
            self.drains_bytes = 0;
        }
        if self.phase == Phase::Open {
            self.phase = Phase::Closing(reason);
            self.pending = false;
            self.timer = Some(context.now + context.handle.shared.options.close_grace);
            self.gone_at = None;
        }
    }

    /// Hands the session back to the protocol. The socket closes when `self` is dropped.
    pub(crate) fn close(&mut self, reason: CloseReason, shared: &Shared<P>, tally: &mut Tally) {
        self.connection.set_close_reason(reason);
        self.say_end();
        if let Some(session) = self.session.take() {
            shared.protocol.on_close(session, &self.connection);
        }
        tally.kept += Kept::default() - std::mem::take(&mut self.counted);
        if self.granted_bytes > 0 || self.waits_for_room {
            shared.budget.forget(&self.connection);
        }
    }

    /// The peer is gone for both directions. What it sent before is still taken, if it can be now.
    pub(crate) fn on_hang_up(&mut self) -> Result<(), CloseReason> {
        (self.readable, self.read_closed, self.hung_up) = (true, true, true);
        if self.takes_input() { Ok(()) } else { Err(CloseReason::Peer) }
    }

    /// Whether a turn could get anywhere.
    pub(crate) fn wants_turn(&self) -> bool {
        self.wants_input() || self.is_sent() || (self.sends_on && !self.withholds_output())
    }

    /// Whether there is something to read or to handle, and it may be.
    fn wants_input(&self) -> bool {
        ((self.pending || self.readable) && self.takes_input()) || (self.readable && self.drains())
    }

    /// Whether something goes on when the socket has taken what it was given: more leaves, or it is the end.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.blocked || self.tells_sent || self.phase != Phase::Open
    }

    /// Whether input is welcome: not while parked, closing, or full.
    pub(crate) fn takes_input(&self) -> bool {
        self.phase == Phase::Open && !self.parked && !self.waits_for_room && !self.output.is_full()
    }

    /// Whether it may change loops now.
    pub(crate) fn may_move(&self) -> bool {
        self.phase == Phase::Open && !self.parked
    }

    /// The ticket that its first held reply waits for.
    pub(crate) fn first_ticket(&self) -> Option<Ticket> {
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
            withholds: false,
            ends_with_peer: false,
            tells_sent: self.tells_sent,
        };
        let step = match call {
            Call::Input => protocol.on_input(session, &mut io),
            Call::Message(message) => protocol.on_message(session, message, &mut io),
            Call::Timer => protocol.on_timer(session, &mut io),
            Call::Sent => protocol.on_sent(session, &mut io),
        };
        self.tells_sent = io.tells_sent;
        let (is_patient, keeps) = (io.patient, io.keeps);
        let (withholds, ends_with_peer) = (io.withholds, io.ends_with_peer);
        let commands = self.connection.commands() - commands;
        context.tally.commands += commands;
        let is_answered = commands > 0 || !from_input || step == Step::Park;
        context.unheld |= is_answered && !is_patient && self.output.first_ticket().is_none();
        // A message that ends a park is followed by a turn.
        self.keeps = if from_input { keeps && step == Step::Park } else { self.keeps && step != Step::Park };
        // A message that leaves it parked leaves it waiting for the same.
        let waits_on = |by_input, before| step == Step::Park && if from_input { by_input } else { before };
        self.ends_with_peer = waits_on(ends_with_peer, self.ends_with_peer);
        self.withholds = waits_on(withholds, self.withholds);
        self.apply(step, from_input, context)
    }

    fn apply(&mut self, step: Step, from_input: bool, context: &Context<'_, P>) -> Result<(), CloseReason> {
        let was_parked = std::mem::replace(&mut self.parked, step == Step::Park);
        if was_parked != self.parked {
            self.connection.set_parked(self.parked);
        }
        match step {
            // Input that waited for the end of the park may hold complete requests.
            Step::Continue if from_input => {
                self.pending = false;
                if self.input.is_full() {
                    return Err(CloseReason::InputLimit);
                }
                self.ask_for_room(context);
            }
            Step::Continue => self.pending |= was_parked && !self.input.is_empty(),
            Step::Yield => self.pending = true,
            Step::Park => {
                self.pending = false;
                self.connection.set_receiving(false);
            }
            Step::Close => self.begin_close(CloseReason::Protocol, context),
            Step::Refuse(bytes) => {
                self.begin_close(CloseReason::Protocol, context);
                self.drop_input(bytes, context);
            }
            Step::Kill => return Err(CloseReason::Protocol),
        }
        Ok(())
    }

    /// Sees that the rest of a long request is read only when there is room for it, and gives back what was granted for one that is done.
    fn ask_for_room(&mut self, context: &Context<'_, P>) {
        let wanted_bytes = self.input.wanted_bytes();
        let shared = &context.handle.shared;
        self.connection.set_receiving(wanted_bytes > FREE_BYTES);
        if wanted_bytes <= FREE_BYTES {
            if std::mem::take(&mut self.granted_bytes) > 0 {
                shared.budget.give_back(&self.connection, 0);
            }
            return;
        }
        if wanted_bytes <= self.granted_bytes {
            return;
        }
        let whole_bytes = wanted_bytes + GRANT_STEP_BYTES.max(self.input.len() / 4);
        let more_bytes = (whole_bytes - self.granted_bytes) as u64;
        match shared.ask_for_room(&self.connection, more_bytes, context.now) {
            Answer::Granted => self.granted_bytes = whole_bytes,
            Answer::Waits => {
                self.waits_for_room = true;
                self.connection.set_receiving(false);
            }
            Answer::Never => {
                let max_bytes = shared.budget.limits().requests_bytes_max();
                self.refuse(NoRoom::TooLarge(whole_bytes as u64, max_bytes), context);
            }
        }
    }

    /// There is room for the rest of its request, or there will be none.
    pub(crate) fn on_room(
        &mut self,
        refusal: Option<NoRoom>,
        context: &mut Context<'_, P>,
    ) -> Result<(), CloseReason> {
        if let Some(why) = refusal {
            if why == NoRoom::Stalled && !self.connection.is_receiving() {
                // It was complete in time.
                context.handle.shared.budget.spare(&self.connection);
            } else {
                self.refuse(why, context);
            }
        } else {
            self.granted_bytes = context.handle.shared.budget.granted_to(&self.connection) as usize;
            self.connection.set_receiving(self.granted_bytes > 0 && !self.input.is_empty());
        }
        self.waits_for_room = false;
        self.finish(context)
    }

    /// Tells the client that there is no room for its request, and closes.
    fn refuse(&mut self, why: NoRoom, context: &Context<'_, P>) {
        if self.phase == Phase::Open {
            let text = context.protocol().no_room(why);
            self.output.buffer().extend_from_slice(&text);
            self.begin_close(CloseReason::Memory, context);
            self.drop_input(DRAINED_BYTES_MAX, context);
        }
    }

    /// Drops what came and gives back what was granted for it; up to `drains_bytes` more are taken and dropped.
    fn drop_input(&mut self, drains_bytes: usize, context: &Context<'_, P>) {
        self.drains_bytes = drains_bytes;
        self.input = Input::new(0);
        if self.granted_bytes > 0 || self.waits_for_room {
            (self.granted_bytes, self.waits_for_room) = (0, false);
            context.handle.shared.budget.forget(&self.connection);
        }
    }

    /// Whether it changes loops as soon as nothing is under way for it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.move_to.is_some() && self.may_move()
    }
}
