//! The transport `local`: nodes of one process, which hand each other chunks without copying or checking them.
//!
//! One thread of the [`Hub`] takes from each link what is to be sent and hands it to the receiver of the other node:
//!
//! ```text
//!  send: append, ring -> hub's thread: session.write -> chunks -> session.on_chunk of the other end -> receiver
//! ```
//!
//! Links, credits and classes are those of `tcp`, so what works here works there. Addresses are `local:` and anything.
//!
//! Invariants
//!   1. A wire exists between two nodes that both listen and have declared each other, and one at most.
//!   2. The thread ends with the last user of the hub.

mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clock::{Clock, Nanos};

use self::wire::Wire;
use crate::node::Node;
use crate::{BindError, Incarnation, NodeId, Receive, Sender, SettingError, Settings, Transport};

/// Where nodes of one process meet.
pub struct Hub {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread shares with the nodes.
struct Shared {
    clock: Arc<dyn Clock>,
    members: Mutex<BTreeMap<NodeId, Member>>,
    signal: Arc<Signal>,
    stops: AtomicBool,
}

struct Member {
    node: Arc<Node>,
    is_bound: bool,
}

/// Wakes the thread.
#[derive(Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self) {
        let was_set = std::mem::replace(&mut *self.lock(), true);
        if !was_set {
            self.changed.notify_one();
        }
    }

    /// Waits until it is set, or for `timeout`.
    fn wait(&self, timeout: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, BTreeMap<NodeId, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// A hub without nodes.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(clock: Arc<dyn Clock>) -> std::io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            clock,
            members: Mutex::default(),
            signal: Arc::default(),
            stops: AtomicBool::new(false),
        });
        let mut driver = Driver { shared: Arc::clone(&shared), wires: Vec::new() };
        let thread = thread::Builder::new().name("transport-local".to_owned()).spawn(move || driver.run())?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// A run of node `id`, in place of the one that was there.
    ///
    /// # Errors
    /// A setting is out of its bounds.
    pub fn join(
        self: &Arc<Self>,
        id: NodeId,
        incarnation: Incarnation,
        settings: Settings,
    ) -> Result<Local, SettingError> {
        let node = Node::new(id, incarnation, settings)?;
        let member = Member { node: Arc::clone(&node), is_bound: false };
        let before = self.shared.members().insert(id, member);
        if let Some(before) = before {
            before.node.close();
        }
        Ok(Local { hub: Arc::clone(self), node })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        self.shared.signal.set();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A receiver may hold the last reference, and drop it on the thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
            && thread.join().is_err()
        {
            tracing::error!("the thread of the local transport panicked");
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("members", &self.shared.members().len()).finish_non_exhaustive()
    }
}

/// What the hub's thread does.
struct Driver {
    shared: Arc<Shared>,
    wires: Vec<Wire>,
}

impl Driver {
    fn run(&mut self) {
        while !self.shared.stops.load(Ordering::SeqCst) {
            let now = self.shared.clock.now();
            self.join_pairs(now);
            let mut has_more = false;
            self.wires.retain_mut(|wire| match wire.pump(now) {
                Ok(more) => {
                    has_more |= more;
                    true
                }
                Err(why) => {
                    tracing::debug!(%why, "a local link ended");
                    wire.close();
                    false
                }
            });
            let deadline = self.wires.iter().map(Wire::deadline).min().unwrap_or(now + IDLE);
            let timeout = if has_more { Duration::ZERO } else { (deadline - now).min(IDLE) };
            self.shared.signal.wait(timeout);
        }
        self.wires.iter_mut().for_each(Wire::close);
    }

    /// Makes the wires that should be there and are not.
    fn join_pairs(&mut self, now: Nanos) {
        let members = self.shared.members();
        let bound: Vec<&Arc<Node>> =
            members.values().filter(|member| member.is_bound).map(|member| &member.node).collect();
        for (index, one) in bound.iter().enumerate() {
            for other in &bound[index + 1..] {
                let is_declared = one.link(other.id).is_some() && other.link(one.id).is_some();
                if is_declared && !self.wires.iter().any(|wire| wire.joins(one, other)) {
                    self.wires.push(Wire::new(one, other, &self.shared.signal, now));
                }
            }
        }
    }
}

/// The thread looks at least this often whether a wire is missing.
const IDLE: Duration = Duration::from_millis(100);

/// One run of one node of this process.
#[derive(Debug)]
pub struct Local {
    hub: Arc<Hub>,
    node: Arc<Node>,
}

impl Transport for Local {
    fn node(&self) -> NodeId {
        self.node.id
    }

    fn receive(&self, receiver: Arc<dyn Receive>) {
        self.node.set_receiver(receiver);
    }

    fn bind(&self, address: &str) -> Result<String, BindError> {
        check_address(address)?;
        let mut members = self.hub.shared.members();
        let member = members.get_mut(&self.node.id).filter(|member| Arc::ptr_eq(&member.node, &self.node));
        let was_bound = std::mem::replace(&mut member.ok_or(BindError::Closed)?.is_bound, true);
        drop(members);
        self.hub.shared.signal.set();
        if was_bound { Err(BindError::Bound) } else { Ok(address.to_owned()) }
    }

    fn connect(&self, peer: NodeId, address: &str) -> Result<Sender, BindError> {
        check_address(address)?;
        let link = self.node.declare(peer)?;
        self.hub.shared.signal.set();
        Ok(Sender::new(link))
    }

    fn sender(&self, peer: NodeId) -> Option<Sender> {
        self.node.sender(peer)
    }

    fn close(&self) {
        let mut members = self.hub.shared.members();
        if members.get(&self.node.id).is_some_and(|member| Arc::ptr_eq(&member.node, &self.node)) {
            members.remove(&self.node.id);
        }
        drop(members);
        self.node.close();
        self.hub.shared.signal.set();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.close();
    }
}

fn check_address(address: &str) -> Result<(), BindError> {
    if address.starts_with("local:") {
        return Ok(());
    }
    Err(BindError::Address { address: address.to_owned(), expected: "local:NAME" })
}
