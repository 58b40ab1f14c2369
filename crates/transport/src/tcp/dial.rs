//! The thread that makes connections: to each peer that is due, again and again.
//!
//! ```text
//!  due --connect--> connection --closed--> due after a wait
//!   ^-- failed: after a longer wait --'
//! ```
//!
//! Peers that are due are dialed together, so one that does not answer delays another by `connect_timeout` at most.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clock::{Clock, Nanos};
use reactor::{ConnectError, Connection, Handle};

use super::protocol::{Links, Post};
use crate::backoff::Backoff;
use crate::node::Node;
use crate::rng::Rng;
use crate::{Event, NodeId};

/// Whom to dial, and when.
pub(super) struct Dialer {
    node: Arc<Node>,
    dials: Mutex<Dials>,
    changed: Condvar,
}

struct Dials {
    peers: BTreeMap<NodeId, Dial>,
    rng: Rng,
    stops: bool,
}

struct Dial {
    address: SocketAddr,
    backoff: Backoff,
    /// When to try; `None` while there is a connection, or one is being made.
    due: Option<Nanos>,
    connection: Option<Arc<Connection>>,
    /// The peer has answered on it.
    worked: bool,
}

impl Dialer {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        let seed = node.incarnation.number() ^ node.id.0.rotate_left(32);
        let dials = Dials { peers: BTreeMap::new(), rng: Rng::new(seed), stops: false };
        Self { node: Arc::clone(node), dials: Mutex::new(dials), changed: Condvar::new() }
    }

    /// Has `peer` dialed at `address`, from the next attempt on. At another address than before that is now: what failed was not there.
    pub(super) fn declare(&self, peer: NodeId, address: SocketAddr, now: Nanos) {
        let new =
            || Dial { address, backoff: Backoff::default(), due: Some(now), connection: None, worked: false };
        let mut dials = self.lock();
        let dial = dials.peers.entry(peer).or_insert_with(new);
        if dial.address != address {
            (dial.address, dial.backoff) = (address, Backoff::default());
            dial.due = dial.due.map(|at| at.min(now));
        }
        drop(dials);
        self.changed.notify_one();
    }

    /// The connection to `peer` is closed; whether the peer had answered on it.
    pub(super) fn on_end(&self, peer: NodeId, worked: bool) {
        if let Some(dial) = self.lock().peers.get_mut(&peer) {
            dial.worked |= worked;
        }
        self.changed.notify_one();
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.lock().stops = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Dials> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for peers that are due, and takes them; `None`: it is the end.
    fn wait(&self, clock: &Arc<dyn Clock>) -> Option<Vec<(NodeId, SocketAddr)>> {
        let mut dials = self.lock();
        loop {
            if dials.stops {
                return None;
            }
            let now = clock.now();
            let unreachable = dials.note_ends(&self.node, now);
            if !unreachable.is_empty() {
                drop(dials);
                unreachable.into_iter().for_each(|peer| self.tell(peer, true));
                dials = self.lock();
                continue;
            }
            let due = dials.take_due(now);
            if !due.is_empty() {
                return Some(due);
            }
            let timeout = dials.next_due().map_or(LOOK_EVERY, |at| (at - now).min(LOOK_EVERY));
            let waited = self.changed.wait_timeout(dials, timeout);
            dials = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes note of what became of an attempt.
    fn on_outcome(
        &self,
        handle: &Handle<Links>,
        peer: NodeId,
        outcome: Result<Arc<Connection>, ConnectError>,
        now: Nanos,
    ) {
        let connection = outcome.inspect(|connection| {
            // A connection that ends before it is told is seen to be closed.
            handle.post_to(connection, Post::Dialed(peer));
        });
        let mut dials = self.lock();
        let Dials { peers, rng, .. } = &mut *dials;
        let Some(dial) = peers.get_mut(&peer) else { return };
        match connection {
            Ok(connection) => dial.connection = Some(connection),
            Err(error) => {
                tracing::debug!(%peer, address = %dial.address, %error, "cannot connect to a peer");
                let is_unreachable = dial.fail(&self.node, now, rng);
                drop(dials);
                self.tell(peer, is_unreachable);
            }
        }
    }

    fn tell(&self, peer: NodeId, is_unreachable: bool) {
        if is_unreachable {
            tracing::warn!(%peer, "a peer cannot be reached, or refuses this node; attempts go on");
            self.node.receiver().on_event(peer, Event::Unreachable);
        }
    }
}

/// An end that nobody told of is seen at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Dials {
    /// Has peers whose connection is closed become due after a wait; those that are to be called unreachable.
    fn note_ends(&mut self, node: &Node, now: Nanos) -> Vec<NodeId> {
        let mut unreachable = Vec::new();
        for (peer, dial) in &mut self.peers {
            if dial.connection.take_if(|connection| connection.is_closed()).is_none() {
                continue;
            }
            if std::mem::take(&mut dial.worked) {
                dial.due = Some(now + dial.backoff.on_end(&node.settings, self.rng.bits()));
            } else if dial.fail(node, now, &mut self.rng) {
                unreachable.push(*peer);
            }
        }
        unreachable
    }

    fn take_due(&mut self, now: Nanos) -> Vec<(NodeId, SocketAddr)> {
        let due = self.peers.iter_mut().filter(|(_, dial)| dial.due.is_some_and(|at| at <= now));
        due.map(|(peer, dial)| {
            dial.due = None;
            (*peer, dial.address)
        })
        .collect()
    }

    fn next_due(&self) -> Option<Nanos> {
        self.peers.values().filter_map(|dial| dial.due).min()
    }
}

impl Dial {
    /// Has it tried again after a longer wait; whether the peer is to be called unreachable.
    fn fail(&mut self, node: &Node, now: Nanos, rng: &mut Rng) -> bool {
        let (wait, is_unreachable) = self.backoff.on_failure(&node.settings, rng.bits());
        self.due = Some(now + wait);
        is_unreachable
    }
}

/// Starts the thread.
///
/// # Errors
/// The system gives none.
pub(super) fn start(
    dialer: &Arc<Dialer>,
    handle: &Handle<Links>,
    clock: &Arc<dyn Clock>,
) -> io::Result<JoinHandle<()>> {
    let (dialer, handle, clock) = (Arc::clone(dialer), handle.clone(), Arc::clone(clock));
    let run = move || {
        while let Some(due) = dialer.wait(&clock) {
            let dials = due.iter().map(|(_, address)| reactor::Dial::to(*address)).collect();
            let outcomes = handle.connect_all(dials, dialer.node.settings.connect_timeout);
            for ((peer, _), outcome) in due.into_iter().zip(outcomes) {
                dialer.on_outcome(&handle, peer, outcome, clock.now());
            }
        }
    };
    thread::Builder::new().name("transport-dial".to_owned()).spawn(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, Settings};

    #[test]
    fn peer_that_is_elsewhere_by_now_is_dialed_at_once() {
        let node = Node::new(NodeId(1), Incarnation::new(1), Settings::default()).expect("settings");
        let (dialer, peer, now) = (Dialer::new(&node), NodeId(2), Nanos(5_000_000_000));
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let due = || dialer.lock().take_due(now);
        dialer.declare(peer, one, now);
        assert_eq!(due(), [(peer, one)]);
        for _ in 0..9 {
            let mut dials = dialer.lock();
            let Dials { peers, rng, .. } = &mut *dials;
            peers.get_mut(&peer).expect("declared").fail(&node, now, rng);
        }
        dialer.declare(peer, one, now);
        assert_eq!(due(), [], "it waits");
        dialer.declare(peer, other, now);
        assert_eq!(due(), [(peer, other)]);
    }
}
