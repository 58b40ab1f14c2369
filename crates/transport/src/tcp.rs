//! The transport `tcp`: one connection for each pair of nodes, on the reactor's loops.
//!
//! ```text
//!  dial thread: due? connect -> loop: hello -> ... chunks ... -> closed: due again after a wait
//!  send: append to the link's chunk; the first since the last portion posts to the loop -> end of tick: portion -> socket
//!  loop: bytes -> session: chunks in place -> receiver, which may send; what it sent on the same link leaves in the same turn
//! ```
//!
//! Connections, made or accepted, live on the loops as all of a reactor do: they are counted, listed and moved between loops by the
//! balancer ([`Tcp::loops`], [`Tcp::connections`]).
//!
//! Invariants
//!   1. The node with the lower number dials, so two nodes never dial each other.
//!   2. The output of a connection has one portion at most: control waits behind no more than that.
//!   3. A connection that has not proved which declared node it is may send a handshake and a hello, for `handshake_timeout`; there are few
//!      of them at a time.
//!   4. Addresses beyond loopback are taken only if peers have to prove who they are ([`Tcp::secured`]).

mod dial;
mod protocol;
mod sink;
mod strangers;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;
use reactor::{BudgetLimits, Connection, Handle, Limits, LoopStats, Options, Reactor};

use self::dial::Dialer;
use self::protocol::Links;
use crate::node::Node;
use crate::security::keys::Keys;
use crate::security::refusal::Counters;
use crate::wire::HEADER_BYTES;
use crate::{
    BindError, Incarnation, NodeId, Receive, Security, SecurityError, SecurityStatus, Sender, SettingError,
    Settings, Transport,
};

/// Connections at once, with those that have not said who they are.
const CONNECTIONS_MAX: usize = 1_024;
/// What all connections that have not said who they are may keep together.
const STRANGERS_BYTES_MAX: u64 = 4 << 20;
/// What the kernel buffers of a connection on loopback, which has no distance to fill. With megabytes, which is what it takes by itself, all
/// that senders have credit for lies in the socket: links send in many small portions then, although their peers are behind. With TLS,
/// which takes longer than that costs, both sides would wait for each other more often.
const LOOPBACK_BUFFER_BYTES: usize = 128 << 10;
/// How long a stop waits for bytes that are on their way.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// One run of one node.
pub struct Tcp {
    node: Arc<Node>,
    clock: Arc<dyn Clock>,
    dialer: Arc<Dialer>,
    /// `None`: peers prove nothing.
    keys: Option<Arc<Keys>>,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

enum State {
    New,
    Bound { handle: Handle<Links>, dial_thread: JoinHandle<()> },
    Closed,
}

impl Tcp {
    /// A node that does nothing yet, and talks to nodes on loopback alone.
    ///
    /// # Errors
    /// A setting is out of its bounds.
    pub fn new(
        id: NodeId,
        incarnation: Incarnation,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SettingError> {
        let node = Node::new(id, incarnation, settings)?;
        let dialer = Arc::new(Dialer::new(&node));
        Ok(Self { node, clock, dialer, keys: None, counters: Arc::default(), state: Mutex::new(State::New) })
    }

    /// The same node, whose peers have to prove who they are as `security` says, and which does so to them. Before [`Transport::bind`].
    ///
    /// # Errors
    /// What `security` names cannot be used.
    pub fn secured(mut self, security: &Security) -> Result<Self, SecurityError> {
        self.keys = Keys::new(security)?;
        Ok(self)
    }

    /// What became of connections whose peers had to prove who they are.
    #[must_use]
    pub fn security(&self) -> SecurityStatus {
        self.counters.status()
    }

    /// Counters of the loops; none before [`Transport::bind`].
    #[must_use]
    pub fn loops(&self) -> Vec<Arc<LoopStats>> {
        self.handle().map_or_else(Vec::new, |handle| handle.loops().to_vec())
    }

    /// The connections, those of peers and those that have not said who they are.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.handle().map_or_else(Vec::new, |handle| handle.connections())
    }

    /// Has a connection change to another loop.
    ///
    /// # Errors
    /// There is no such connection or loop.
    pub fn move_connection(&self, connection_id: u64, loop_index: usize) -> Result<(), reactor::MoveError> {
        let unknown = Err(reactor::MoveError::UnknownConnection(connection_id));
        self.handle().map_or(unknown, |handle| handle.move_connection(connection_id, loop_index))
    }

    fn handle(&self) -> Option<Handle<Links>> {
        match &*self.state() {
            State::Bound { handle, .. } => Some(handle.clone()),
            State::New | State::Closed => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address, if it may be used.
    fn parse(&self, address: &str) -> Result<SocketAddr, BindError> {
        let wrong = |_| BindError::Address { address: address.to_owned(), expected: "ADDRESS:PORT" };
        let parsed: SocketAddr = address.parse().map_err(wrong)?;
        let may_use = self.keys.is_some() || parsed.ip().is_loopback();
        if may_use { Ok(parsed) } else { Err(BindError::Exposed(parsed)) }
    }

    /// Starts loops that listen on `address`, and the thread that dials.
    fn start(&self, address: SocketAddr) -> Result<State, BindError> {
        let failed = |reason: String| BindError::Listen { address: address.to_string(), reason };
        let (keys, counters) = (self.keys.clone(), Arc::clone(&self.counters));
        let protocol = Links::new(&self.node, &self.clock, &self.dialer, keys, counters);
        let options = Options {
            tcp_loopback_buffer_bytes: self.keys.is_none().then_some(LOOPBACK_BUFFER_BYTES),
            ..options(address, &self.node.settings)
        };
        let handle = Reactor::start(options, Arc::new(protocol), Arc::clone(&self.clock))
            .map_err(|error| failed(error.to_string()))?;
        let started = dial::start(&self.dialer, &handle, &self.clock);
        match started {
            Ok(dial_thread) => Ok(State::Bound { handle, dial_thread }),
            Err(error) => {
                handle.shutdown();
                handle.join();
                Err(failed(error.to_string()))
            }
        }
    }
}

fn options(address: SocketAddr, settings: &Settings) -> Options {
    Options {
        loops: settings.threads,
        tcp: vec![address],
        connections_max: CONNECTIONS_MAX,
        limits: Limits {
            input_bytes_max: 2 * (HEADER_BYTES + settings.payload_bytes_max() as usize),
            // A link bounds what is in the output, and must be read while its output waits: else two that send to each other stop.
            output_bytes_soft: usize::MAX,
            output_bytes_max: usize::MAX,
            held_bytes_max: usize::MAX,
        },
        budget: BudgetLimits { strangers_bytes_max: STRANGERS_BYTES_MAX, ..BudgetLimits::default() },
        close_grace: CLOSE_GRACE,
        ..Options::default()
    }
}

impl Transport for Tcp {
    fn node(&self) -> NodeId {
        self.node.id
    }

    fn receive(&self, receiver: Arc<dyn Receive>) {
        self.node.set_receiver(receiver);
    }

    fn bind(&self, address: &str) -> Result<String, BindError> {
        let address = self.parse(address)?;
        let mut state = self.state();
        match *state {
            State::New => {}
            State::Bound { .. } => return Err(BindError::Bound),
            State::Closed => return Err(BindError::Closed),
        }
        *state = self.start(address)?;
        let State::Bound { handle, .. } = &*state else { return Err(BindError::Closed) };
        Ok(handle.tcp_addresses().first().unwrap_or(&address).to_string())
    }

    fn connect(&self, peer: NodeId, address: &str) -> Result<Sender, BindError> {
        let address = self.parse(address)?;
        let link = self.node.declare(peer)?;
        if self.node.dials(peer) {
            self.dialer.declare(peer, address, self.clock.now());
        }
        Ok(Sender::new(link))
    }

    fn sender(&self, peer: NodeId) -> Option<Sender> {
        self.node.sender(peer)
    }

    fn close(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        self.dialer.stop();
        self.node.close();
        let State::Bound { handle, dial_thread } = state else { return };
        handle.shutdown();
        handle.join();
        if dial_thread.join().is_err() {
            tracing::error!("the thread that dials peers panicked");
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp").field("node", &self.node).finish_non_exhaustive()
    }
}
