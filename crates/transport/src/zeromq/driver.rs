//! The thread that owns the sockets.
//!
//! ```text
//!  dial who is due -> each connection's turn: a portion, if there is room -> sleep in zmq_poll -> take what came -> again
//! ```
//!
//! A ROUTER does not tell which of its connections has ended. Its monitor tells that one has: then all are asked with messages without bytes,
//! which the one that is gone cannot be sent.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clock::{Clock, Nanos, Throttle};
use zmq::{Context, DEALER, DONTWAIT, Message, POLLIN, POLLOUT, PollEvents, PollItem, ROUTER, Socket};

use super::dial::Dials;
use super::pipe::{END, ENDED, Handed, Outlet, Pipe};
use super::wake::Wake;
use super::watched::{Watched, millis};
use crate::node::Node;
use crate::{LinkError, NodeId};

/// Messages that are taken from a socket before others have their turn.
const TAKES_MAX: usize = 64;
/// The driver looks at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// When it looks again for room on a ROUTER that tells of room for others.
const ROOM_EVERY: Duration = Duration::from_millis(1);
/// Connections are asked so often whether they are there, after one has ended: libzmq tells of an end before it takes note of it.
const PROBES: u32 = 3;
/// How long after each other.
const PROBE_EVERY: Duration = Duration::from_millis(10);
/// One message about connections that were ended is logged in so long.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// What the thread shares with those that call.
#[derive(Clone)]
pub(super) struct Shared {
    node: Arc<Node>,
    clock: Arc<dyn Clock>,
    dials: Arc<Dials>,
    pub(super) wake: Arc<Wake>,
    stops: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn new(node: &Arc<Node>, clock: &Arc<dyn Clock>, dials: &Arc<Dials>) -> io::Result<Self> {
        Ok(Self {
            node: Arc::clone(node),
            clock: Arc::clone(clock),
            dials: Arc::clone(dials),
            wake: Arc::new(Wake::new()?),
            stops: Arc::default(),
        })
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::SeqCst);
        self.wake.set();
    }
}

/// A connection that this node made.
struct Dialed {
    dealer: Watched,
    pipe: Pipe,
}

/// What the thread has.
pub(super) struct Driver {
    shared: Shared,
    context: Context,
    router: Watched,
    /// By what the ROUTER calls them.
    accepted: HashMap<Vec<u8>, Pipe>,
    dialed: BTreeMap<NodeId, Dialed>,
    /// How many connections were made: names the next one's monitor.
    made: u64,
    probes: u32,
    probe_at: Nanos,
    /// The ROUTER said that there is room, and it was for others.
    is_room_for_others: bool,
    refusals: Throttle,
}

/// What `zmq_poll` said.
struct Ready {
    is_woken: bool,
    router: bool,
    router_has_room: bool,
    router_events: bool,
    /// Of those dialed: something came, it has ended.
    dialed: Vec<(NodeId, bool, bool)>,
}

impl Driver {
    /// A driver whose ROUTER listens on `address`; where in fact.
    ///
    /// # Errors
    /// The address is taken, or the system has no more sockets.
    pub(super) fn bind(shared: &Shared, address: SocketAddr) -> zmq::Result<(Self, String)> {
        let settings = &shared.node.settings;
        let context = Context::new();
        context.set_io_threads(i32::try_from(settings.threads).unwrap_or(i32::MAX))?;
        let router = Watched::new(&context, ROUTER, settings, 0)?;
        // To be told who is gone, and who has no room.
        router.socket.set_router_mandatory(true)?;
        router.socket.bind(&format!("tcp://{address}"))?;
        let at = router.socket.get_last_endpoint()?.unwrap_or_default();
        let driver = Self {
            shared: shared.clone(),
            context,
            router,
            accepted: HashMap::new(),
            dialed: BTreeMap::new(),
            made: 0,
            probes: 0,
            probe_at: Nanos(0),
            is_room_for_others: false,
            refusals: Throttle::new(LOG_EVERY),
        };
        Ok((driver, at.trim_start_matches("tcp://").to_owned()))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none.
    pub(super) fn start(mut self) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name("transport-zeromq".to_owned()).spawn(move || self.run())
    }

    fn run(&mut self) {
        while !self.shared.stops.load(Ordering::SeqCst) {
            let now = self.shared.clock.now();
            for (peer, address) in self.shared.dials.take_due(now) {
                self.dial(peer, address, now);
            }
            self.turn_dialed(now);
            self.turn_accepted(now);
            self.probe(now);
            let ready = self.sleep(now);
            self.shared.wake.wake_up(ready.is_woken);
            let now = self.shared.clock.now();
            if ready.router {
                self.take_accepted(now);
            }
            for (peer, has_input, has_ended) in ready.dialed {
                // What came before the end counts.
                if has_input {
                    self.take_dialed(peer, now);
                }
                if has_ended {
                    self.end_dialed(peer, None, now);
                }
            }
            if ready.router_events && self.router.take_events() {
                (self.probes, self.probe_at) = (PROBES, now);
            }
        }
        self.dialed.values().for_each(|dialed| dialed.pipe.close());
        self.accepted.values().for_each(Pipe::close);
    }

    fn dial(&mut self, peer: NodeId, address: SocketAddr, now: Nanos) {
        self.made += 1;
        match self.connect(address) {
            Ok(dealer) => {
                let pipe = Pipe::dialed(&self.shared.node, &self.shared.wake, now, peer);
                self.dialed.insert(peer, Dialed { dealer, pipe });
            }
            Err(error) => {
                tracing::warn!(%peer, %address, %error, "cannot dial a peer");
                self.shared.dials.on_end(peer, false, now);
            }
        }
    }

    /// A DEALER that is about to be connected.
    fn connect(&self, address: SocketAddr) -> zmq::Result<Watched> {
        let dealer = Watched::new(&self.context, DEALER, &self.shared.node.settings, self.made)?;
        dealer.socket.connect(&format!("tcp://{address}"))?;
        Ok(dealer)
    }

    fn turn_dialed(&mut self, now: Nanos) {
        let mut ended = Vec::new();
        for (peer, dialed) in &mut self.dialed {
            if let Err(why) = dialed.pipe.turn(now, Outlet::Dealer(&dialed.dealer.socket)) {
                ended.push((*peer, why));
            }
        }
        ended.into_iter().for_each(|(peer, why)| self.end_dialed(peer, why, now));
    }

    fn turn_accepted(&mut self, now: Nanos) {
        let mut ended = Vec::new();
        for (id, pipe) in &mut self.accepted {
            match pipe.turn(now, Outlet::Router(&self.router.socket, id)) {
                Ok(has_written) => self.is_room_for_others &= !has_written,
                Err(why) => ended.push((id.clone(), why)),
            }
        }
        ended.into_iter().for_each(|(id, why)| self.end_accepted(&id, why, now));
    }

    /// Asks those that dialed this node whether they are there, if one of them has gone.
    fn probe(&mut self, now: Nanos) {
        if self.probes == 0 || now < self.probe_at {
            return;
        }
        (self.probes, self.probe_at) = (self.probes - 1, now + PROBE_EVERY);
        let is_gone =
            |id: &&Vec<u8>| Outlet::Router(&self.router.socket, id).send(Message::new) == Handed::Gone;
        let gone: Vec<Vec<u8>> = self.accepted.keys().filter(is_gone).cloned().collect();
        gone.into_iter().for_each(|id| self.end_accepted(&id, None, now));
    }

    /// Takes messages of those that dialed this node.
    fn take_accepted(&mut self, now: Nanos) {
        let (mut id, mut message) = (Message::new(), Message::new());
        for _ in 0..TAKES_MAX {
            if self.router.socket.recv(&mut id, DONTWAIT).is_err()
                || self.router.socket.recv(&mut message, DONTWAIT).is_err()
            {
                return;
            }
            let taken = if message.get_more() {
                skip_parts(&self.router.socket);
                Err(LinkError::Protocol("a message has several parts"))
            } else {
                self.take_from(&id, &message, now)
            };
            if let Err(why) = taken {
                self.end_accepted(&id, Some(why), now);
            }
        }
    }

    fn take_from(&mut self, id: &[u8], message: &[u8], now: Nanos) -> Result<(), LinkError> {
        if let Some(pipe) = self.accepted.get_mut(id) {
            return pipe.take(message, now);
        }
        let mut pipe = Pipe::accepted(&self.shared.node, &self.shared.wake, now);
        pipe.take(message, now)?;
        // One that has not said hello has said nothing.
        if !pipe.is_stranger() {
            self.accepted.insert(id.to_vec(), pipe);
        }
        Ok(())
    }

    fn take_dialed(&mut self, peer: NodeId, now: Nanos) {
        let Some(dialed) = self.dialed.get_mut(&peer) else { return };
        let mut message = Message::new();
        for _ in 0..TAKES_MAX {
            if dialed.dealer.socket.recv(&mut message, DONTWAIT).is_err() {
                return;
            }
            if let Err(why) = dialed.pipe.take(&message, now) {
                return self.end_dialed(peer, Some(why), now);
            }
        }
    }

    /// Ends a connection that this node made; `why` is `None` if the peer has gone.
    fn end_dialed(&mut self, peer: NodeId, why: Option<LinkError>, now: Nanos) {
        let Some(dialed) = self.dialed.remove(&peer) else { return };
        let worked = !dialed.pipe.is_stranger();
        self.note(why, now);
        dialed.pipe.close();
        drop(dialed);
        self.shared.dials.on_end(peer, worked && why.is_none_or(is_over), now);
    }

    /// Ends a connection that came, and tells the peer; `why` is `None` if it has gone.
    fn end_accepted(&mut self, id: &[u8], why: Option<LinkError>, now: Nanos) {
        self.note(why, now);
        if why.is_some_and(|why| !is_over(why)) {
            Outlet::Router(&self.router.socket, id).send(|| Message::from(END));
        }
        if let Some(pipe) = self.accepted.remove(id) {
            pipe.close();
        }
    }

    /// Logs that a connection is ended.
    fn note(&self, why: Option<LinkError>, now: Nanos) {
        let Some(why) = why else { return };
        if why == LinkError::Superseded || is_over(why) {
            tracing::debug!(%why, "a link's connection is ended");
        } else if let Some(others) = self.refusals.admit(now) {
            tracing::warn!(%why, others, "a link's connection is ended");
        }
    }

    /// Waits until something happens or is due.
    fn sleep(&mut self, now: Nanos) -> Ready {
        let is_blocked = self.accepted.values().any(Pipe::is_blocked);
        let timeout = if self.shared.wake.sleep() { self.timeout(now, is_blocked) } else { Duration::ZERO };
        let mut items = vec![PollItem::from_fd(self.shared.wake.fd(), POLLIN)];
        items.extend(self.router.poll_items(room_if(is_blocked && !self.is_room_for_others)));
        for dialed in self.dialed.values() {
            items.extend(dialed.dealer.poll_items(room_if(dialed.pipe.is_blocked())));
        }
        // An error is a signal, or the end of the context, which is this thread's: it looks again in both cases.
        let _ = zmq::poll(&mut items, millis(timeout).into());
        let dialed = self.dialed.keys().zip(items[3..].chunks_exact(2));
        let ready = Ready {
            is_woken: items[0].is_readable(),
            router: items[1].is_readable(),
            router_has_room: items[1].is_writable(),
            router_events: items[2].is_readable(),
            dialed: dialed.map(|(peer, two)| (*peer, two[0].is_readable(), two[1].is_readable())).collect(),
        };
        // Until one of those that wait has used it.
        self.is_room_for_others = ready.router_has_room;
        ready
    }

    /// How long it may sleep.
    fn timeout(&self, now: Nanos, is_blocked: bool) -> Duration {
        let pipes = || self.accepted.values().chain(self.dialed.values().map(|dialed| &dialed.pipe));
        if pipes().any(Pipe::is_due) {
            return Duration::ZERO;
        }
        let mut at = pipes().map(Pipe::deadline).fold(now + LOOK_EVERY, Nanos::min);
        if is_blocked && self.is_room_for_others {
            at = at.min(now + ROOM_EVERY);
        }
        if self.probes > 0 {
            at = at.min(self.probe_at);
        }
        let due = self.shared.dials.next_due();
        due.map_or(at, |due| at.min(due)) - now
    }
}

/// What to wait for: what comes, and room if it `is_blocked`.
fn room_if(is_blocked: bool) -> PollEvents {
    if is_blocked { POLLIN | POLLOUT } else { POLLIN }
}

/// The peer ended it, and knows.
fn is_over(why: LinkError) -> bool {
    why == LinkError::Protocol(ENDED)
}

/// Takes what is left of a message.
fn skip_parts(socket: &Socket) {
    let mut part = Message::new();
    while socket.recv(&mut part, DONTWAIT).is_ok() && part.get_more() {}
}
