//! Links as a protocol of the reactor: bytes that came go to the session, and a portion of what it has to send to the output; through
//! TLS, where peers prove who they are.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use clock::{Clock, Nanos, Throttle};
use reactor::{Address, CloseReason, Connection, Handle, Io, Keeps, Protocol, Step};

use super::dial::Dialer;
use super::sink::{Gathered, OutputSink};
use super::strangers::Strangers;
use crate::link::Doorbell;
use crate::node::Node;
use crate::security::channel::{Channel, HANDSHAKE_BYTES_MAX};
use crate::security::keys::Keys;
use crate::security::refusal::Counters;
use crate::session::Session;
use crate::wire::WireError;
use crate::{LinkError, NodeId, Refusal};

/// About what one portion has, beside its last chunk: what fits into the caches several times over, for TLS copies it thrice.
const PORTION_BYTES: usize = 64 << 10;
/// A read that brought so much is followed by a larger one.
const READ_BYTES_MANY: usize = 16 << 10;
/// How large.
const READ_BYTES_MAX: usize = 128 << 10;

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
    /// What peers have to prove; `None`: nothing.
    keys: Option<Arc<Keys>>,
    counters: Arc<Counters>,
    strangers: Strangers,
    /// Of messages about connections that were refused.
    refusals: Throttle,
}

/// What stands between a connection's bytes and its session.
enum Guard {
    /// Nothing.
    Plain,
    /// This side dialed, and is about to begin TLS.
    Dials,
    Tls(Box<Secure>),
}

/// TLS, and chunks on their way into it.
struct Secure {
    channel: Channel,
    gathered: Gathered,
}

impl Secure {
    /// Gives up memory that is not in use.
    fn rest(&mut self) {
        self.gathered.rest();
        if let Some(plain) = self.channel.plain() {
            plain.rest();
        }
    }

    fn kept_bytes(&self) -> usize {
        self.channel.kept_bytes() + self.gathered.kept_bytes()
    }
}

/// One connection.
pub(super) struct Wire {
    session: Session,
    guard: Guard,
    bell: Arc<Bell>,
    is_dialed: bool,
    /// It has not proved who it is, and is one of few.
    waits: bool,
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
    pub(super) fn new(
        node: &Arc<Node>,
        clock: &Arc<dyn Clock>,
        dialer: &Arc<Dialer>,
        keys: Option<Arc<Keys>>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            node: Arc::clone(node),
            clock: Arc::clone(clock),
            dialer: Arc::clone(dialer),
            handle: OnceLock::new(),
            keys,
            counters,
            strangers: Strangers::default(),
            refusals: Throttle::new(LOG_EVERY),
        }
    }

    /// Whether this node made the connection: then its own port is none that it listens on.
    fn is_dialed(connection: &Connection, handle: &Handle<Self>) -> bool {
        let Address::Tcp(local) = connection.local() else { return false };
        !handle.tcp_addresses().iter().any(|listens| listens.port() == local.port())
    }

    /// A session whose chunks are carried by TLS, if they are.
    fn carried(&self, session: Session) -> Session {
        if self.keys.is_some() { session.carried() } else { session }
    }

    /// What a connection has to pass before its session begins.
    fn guard(&self, is_dialed: bool) -> Result<Guard, Refusal> {
        match &self.keys {
            None => Ok(Guard::Plain),
            Some(_) if is_dialed => Ok(Guard::Dials),
            Some(keys) => Channel::accepted(keys, self.node.id).map(secure),
        }
    }

    /// Makes room for one more whose peer is not known.
    fn take_in(&self, connection: &Arc<Connection>, now: Nanos) {
        if let Some(oldest) = self.strangers.enter(connection, &self.counters) {
            self.note(LinkError::Refused(Refusal::TooMany), &oldest, now);
            oldest.kill();
        }
    }

    /// Feeds the session; TLS takes all that came, in plain whole chunks are taken.
    fn feed(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Result<(), LinkError> {
        match &mut wire.guard {
            Guard::Plain => {
                let taken = wire.session.on_bytes(io.input.bytes(), io.now)?;
                io.input.consume(taken.consumed_bytes);
                if !io.input.is_empty() {
                    io.input.expect(taken.next_bytes);
                }
            }
            // A server of TLS never speaks first.
            Guard::Dials => return Err(Refusal::NotTls.into()),
            Guard::Tls(secure) => {
                let (count, taken) = (io.input.len(), secure.channel.take(io.input.bytes()));
                io.input.consume(count);
                if count >= READ_BYTES_MANY {
                    io.input.expect(READ_BYTES_MAX);
                }
                secure.channel.flush(io.output.buffer());
                taken?;
                let proved = secure.channel.peer();
                if let Some(plain) = secure.channel.plain() {
                    if let Some(peer) = proved {
                        wire.session.prove(peer);
                    }
                    let taken = wire.session.on_bytes(plain.bytes(), io.now)?;
                    plain.consume(taken.consumed_bytes);
                }
            }
        }
        if wire.waits && !wire.session.is_stranger() {
            self.know(wire, io.connection);
        }
        Ok(())
    }

    /// The peer has proved who it is.
    fn know(&self, wire: &mut Wire, connection: &Connection) {
        wire.waits = false;
        self.counters.proved.fetch_add(1, Ordering::Relaxed);
        self.strangers.leave(connection, &self.counters);
    }

    /// Puts the next portion into the output, once the one before has left, and sets the timer.
    fn write(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        let is_blocked = !io.output.is_empty();
        let mut has_more = is_blocked;
        if !is_blocked {
            let written = match &mut wire.guard {
                Guard::Plain => {
                    let mut sink = OutputSink::new(io.output);
                    let written = wire.session.write(io.now, PORTION_BYTES, &mut sink);
                    sink.finish();
                    written
                }
                Guard::Tls(secure) if secure.channel.is_open() => {
                    let written = wire.session.write(io.now, PORTION_BYTES, &mut secure.gathered);
                    secure.gathered.send(&mut secure.channel);
                    secure.channel.flush(io.output.buffer());
                    written
                }
                Guard::Dials | Guard::Tls(_) => Ok(false),
            };
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
        self.note(why, io.connection, io.now);
        match why {
            // It may have an alert to read.
            LinkError::Refused(why) if wire.waits && tells(why) && !io.output.is_empty() => {
                Step::Refuse(HANDSHAKE_BYTES_MAX)
            }
            _ => Step::Kill,
        }
    }

    /// Counts and logs that a connection is closed.
    fn note(&self, why: LinkError, connection: &Connection, now: Nanos) {
        match why {
            LinkError::Refused(why) => self.counters.on_refused(why),
            LinkError::HandshakeTimeout => self.counters.on_refused(Refusal::TooSlow),
            _ => {}
        }
        let peer = connection.peer();
        if why == LinkError::Superseded {
            tracing::debug!(%why, %peer, "a link's connection is closed");
        } else if let Some(others) = self.refusals.admit(now) {
            tracing::warn!(%why, %peer, others, "a link's connection is closed");
        }
    }
}

/// Whether the peer is told: not who does not speak TLS.
fn tells(why: Refusal) -> bool {
    !matches!(why, Refusal::NotTls | Refusal::TooMuch)
}

fn secure(channel: Channel) -> Guard {
    Guard::Tls(Box::new(Secure { channel, gathered: Gathered::default() }))
}

/// The same, said by its likeliest cause: what came in plain begins as TLS does.
fn in_other_words(why: LinkError) -> LinkError {
    match why {
        LinkError::Wire(WireError::NotAChunk([0x16, _])) => Refusal::UnwantedTls.into(),
        other => other,
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
        let now = self.clock.now();
        let session = self.carried(Session::accepted(Arc::clone(&self.node), doorbell, now));
        let is_dialed = Self::is_dialed(connection, &bell.handle);
        if !is_dialed {
            self.take_in(connection, now);
        }
        let guard = self.guard(is_dialed);
        if let Err(why) = guard {
            self.note(why.into(), connection, now);
            connection.kill();
        }
        let has_failed = guard.is_err();
        let guard = guard.unwrap_or(Guard::Dials);
        Wire { session, guard, bell, is_dialed: false, waits: true, has_failed }
    }

    fn first_deadline(&self, connection: &Connection) -> Option<Nanos> {
        Some(connection.created() + self.node.settings.handshake_timeout)
    }

    fn on_input(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        match self.feed(wire, io) {
            Ok(()) => self.write(wire, io),
            Err(why) => self.fail(wire, in_other_words(why), io),
        }
    }

    fn on_message(&self, wire: &mut Wire, post: Post, io: &mut Io<'_, Self>) -> Step {
        if let Post::Dialed(peer) = post {
            let doorbell = Arc::clone(&wire.bell) as Arc<dyn Doorbell>;
            wire.session = self.carried(Session::dialed(Arc::clone(&self.node), doorbell, io.now, peer));
            wire.is_dialed = true;
            if let (Guard::Dials, Some(keys)) = (&wire.guard, &self.keys) {
                match Channel::dialed(keys, self.node.id, peer) {
                    Ok(channel) => wire.guard = secure(channel),
                    Err(why) => return self.fail(wire, why.into(), io),
                }
            }
            if let Guard::Tls(secure) = &mut wire.guard {
                secure.channel.flush(io.output.buffer());
            }
        }
        self.write(wire, io)
    }

    fn on_timer(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        if let Guard::Tls(secure) = &mut wire.guard {
            secure.rest();
        }
        match wire.session.on_time(io.now) {
            Ok(()) => self.write(wire, io),
            Err(why) => self.fail(wire, why, io),
        }
    }

    fn on_sent(&self, wire: &mut Wire, io: &mut Io<'_, Self>) -> Step {
        self.write(wire, io)
    }

    fn keeps(&self, wire: &Wire) -> Keeps {
        let bytes = if let Guard::Tls(secure) = &wire.guard { secure.kept_bytes() } else { 0 };
        Keeps { bytes, is_stranger: wire.session.is_stranger() }
    }

    fn on_close(&self, wire: Wire, connection: &Arc<Connection>) {
        wire.session.on_close();
        if wire.waits {
            self.strangers.leave(connection, &self.counters);
            if !wire.has_failed && connection.close_reason() == CloseReason::Peer {
                self.note(Refusal::Closed.into(), connection, self.clock.now());
            }
        }
        if let Some(peer) = wire.session.peer().filter(|_| wire.is_dialed) {
            self.dialer.on_end(peer, !(wire.session.is_stranger() || wire.has_failed));
        }
    }

    fn refusal(&self) -> &'static [u8] {
        b""
    }
}
