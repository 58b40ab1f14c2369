//! The transport `zeromq`: the same links, whose chunks libzmq carries. Behind the feature of that name.
//!
//! ```text
//!  send: append to the link's chunk, ring -> driver: portion -> DEALER or ROUTER -> libzmq's I/O thread -> socket
//!  socket -> I/O thread of the peer -> its driver: chunks in place -> receiver
//! ```
//!
//! A node has a ROUTER that listens, and a DEALER for each peer that it dials; one thread (the *driver*) owns them all. A message of libzmq
//! is one portion: whole chunks, as `tcp` writes them to a socket ([`crate::wire`]). One without bytes asks whether somebody is there, and
//! one of a single zero ends the connection, which is the only way to do so on a ROUTER.
//!
//! Sessions, links, credits, acknowledgements and classes are those of the other transports. libzmq never connects again by itself: a DEALER
//! is one connection, and the next one is another DEALER, so that a link always knows which connection it talks on.
//!
//! Invariants
//!   1. The node with the lower number dials, so two nodes never dial each other.
//!   2. libzmq queues `QUEUE_PORTIONS` at most for a connection, each way; what has no room waits in its link, which has a bound.
//!   3. Who has not said hello has no memory here: its first message is a hello, or ends it.
//!   4. Only loopback addresses are taken: peers do not prove who they are.
//!
//! Out of scope: CURVE. `tcp` has TLS with secrets and certificates.
//! Source: docs/adr/0033-transport.md.

mod dial;
mod driver;
mod pipe;
mod wake;
mod watched;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use clock::Clock;

use self::dial::Dials;
use self::driver::{Driver, Shared};
use crate::node::Node;
use crate::{BindError, Incarnation, NodeId, Receive, Sender, SettingError, Settings, Transport};

/// One run of one node.
pub struct ZeroMq {
    node: Arc<Node>,
    clock: Arc<dyn Clock>,
    dials: Arc<Dials>,
    state: Mutex<State>,
}

enum State {
    New,
    Bound { shared: Arc<Shared>, driver: JoinHandle<()> },
    Closed,
}

impl ZeroMq {
    /// A node that does nothing yet.
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
        let dials = Arc::new(Dials::new(&node));
        Ok(Self { node, clock, dials, state: Mutex::new(State::New) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the driver, whose ROUTER listens on `address`; where in fact.
    fn start(&self, address: SocketAddr) -> Result<(State, String), BindError> {
        let failed = |reason: String| BindError::Listen { address: address.to_string(), reason };
        let shared = Shared::new(&self.node, &self.clock, &self.dials).map_err(|e| failed(e.to_string()))?;
        let (driver, at) = Driver::bind(&shared, address).map_err(|error| failed(error.to_string()))?;
        let driver = driver.start().map_err(|error| failed(error.to_string()))?;
        Ok((State::Bound { shared: Arc::new(shared), driver }, at))
    }
}

/// The address, if it may be used.
fn parse(address: &str) -> Result<SocketAddr, BindError> {
    let wrong = |_| BindError::Address { address: address.to_owned(), expected: "ADDRESS:PORT" };
    let parsed: SocketAddr = address.parse().map_err(wrong)?;
    if parsed.ip().is_loopback() { Ok(parsed) } else { Err(BindError::Unproved(parsed)) }
}

impl Transport for ZeroMq {
    fn node(&self) -> NodeId {
        self.node.id
    }

    fn receive(&self, receiver: Arc<dyn Receive>) {
        self.node.set_receiver(receiver);
    }

    fn bind(&self, address: &str) -> Result<String, BindError> {
        let address = parse(address)?;
        let mut state = self.state();
        match *state {
            State::New => {}
            State::Bound { .. } => return Err(BindError::Bound),
            State::Closed => return Err(BindError::Closed),
        }
        let (bound, at) = self.start(address)?;
        *state = bound;
        Ok(at)
    }

    fn connect(&self, peer: NodeId, address: &str) -> Result<Sender, BindError> {
        let address = parse(address)?;
        let link = self.node.declare(peer)?;
        if self.node.dials(peer) {
            self.dials.declare(peer, address, self.clock.now());
            if let State::Bound { shared, .. } = &*self.state() {
                shared.wake.set();
            }
        }
        Ok(Sender::new(link))
    }

    fn sender(&self, peer: NodeId) -> Option<Sender> {
        self.node.sender(peer)
    }

    fn close(&self) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        self.node.close();
        let State::Bound { shared, driver } = state else { return };
        shared.stop();
        // A receiver may hold the last reference, and drop it on the driver itself.
        if driver.thread().id() != std::thread::current().id() && driver.join().is_err() {
            tracing::error!("the thread of the transport zeromq panicked");
        }
    }
}

impl Drop for ZeroMq {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for ZeroMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZeroMq").field("node", &self.node).finish_non_exhaustive()
    }
}
