//! Whom to dial, and when: a peer is due at once when it is declared, and after a wait when a connection to it has ended or none came about.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Nanos;

use crate::backoff::Backoff;
use crate::node::Node;
use crate::rng::Rng;
use crate::{Event, NodeId};

/// The peers that this node dials. Other threads declare them, the driver dials.
pub(super) struct Dials {
    node: Arc<Node>,
    state: Mutex<State>,
}

struct State {
    peers: BTreeMap<NodeId, Dial>,
    rng: Rng,
}

struct Dial {
    address: SocketAddr,
    backoff: Backoff,
    /// When to try; `None` while there is a connection, or one is being made.
    due: Option<Nanos>,
}

impl Dials {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        let seed = node.incarnation.number() ^ node.id.0.rotate_left(32);
        let state = State { peers: BTreeMap::new(), rng: Rng::new(seed) };
        Self { node: Arc::clone(node), state: Mutex::new(state) }
    }

    /// Has `peer` dialed at `address`, from the next attempt on.
    pub(super) fn declare(&self, peer: NodeId, address: SocketAddr, now: Nanos) {
        let new = || Dial { address, backoff: Backoff::default(), due: Some(now) };
        self.lock().peers.entry(peer).or_insert_with(new).address = address;
    }

    /// Takes the peers that are due.
    pub(super) fn take_due(&self, now: Nanos) -> Vec<(NodeId, SocketAddr)> {
        let mut state = self.lock();
        let due = state.peers.iter_mut().filter(|(_, dial)| dial.due.is_some_and(|at| at <= now));
        due.map(|(peer, dial)| {
            dial.due = None;
            (*peer, dial.address)
        })
        .collect()
    }

    /// The connection to `peer` has ended, or none came about: it is due after a wait.
    pub(super) fn on_end(&self, peer: NodeId, worked: bool, now: Nanos) {
        let mut state = self.lock();
        let State { peers, rng } = &mut *state;
        let Some(dial) = peers.get_mut(&peer) else { return };
        let random = rng.bits();
        let (wait, is_unreachable) = if worked {
            (dial.backoff.on_end(&self.node.settings, random), false)
        } else {
            dial.backoff.on_failure(&self.node.settings, random)
        };
        dial.due = Some(now + wait);
        drop(state);
        if is_unreachable {
            tracing::warn!(%peer, "a peer cannot be reached, or refuses this node; attempts go on");
            self.node.receiver().on_event(peer, Event::Unreachable);
        }
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.lock().peers.values().filter_map(|dial| dial.due).min()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
