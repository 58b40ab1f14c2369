//! The transport `simulated`: nodes on a network that a seed and a given time drive, and that loses, cuts and delays.
//!
//! The sessions and links are those of `tcp`; only bytes and time are made up:
//!
//! ```text
//!  session --write--> pipe: pieces of any size, each with its time of arrival --> session.on_bytes
//!            stops at PIPE_BYTES_MAX, as a socket does that nobody reads
//! ```
//!
//! Invariants
//!   1. Equal seed, equal calls, equal times: equal run.
//!   2. A connection delivers a prefix of what was written, in order: it may end after any byte.
//!
//! Time passes only in [`Network::advance`], which calls the receivers. They may send, and must not call the network.

mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Nanos;

use self::wire::{End, Wire};
use crate::backoff::Backoff;
use crate::node::Node;
use crate::rng::Rng;
use crate::session::Session;
use crate::{
    BindError, Event, Incarnation, LinkError, NodeId, Receive, Sender, SettingError, Settings, Transport,
};

/// What the network does to those that use it.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How long bytes are on their way.
    pub delay: Range<Duration>,
    /// Of a thousand writes, how many end their connection within the bytes that they wrote.
    pub cuts_per_mille: u64,
    /// Of a thousand attempts to connect, how many fail.
    pub refusals_per_mille: u64,
    /// Bytes that arrive together.
    pub piece_bytes: Range<usize>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(50)..Duration::from_micros(150),
            cuts_per_mille: 0,
            refusals_per_mille: 0,
            piece_bytes: 1 << 10..64 << 10,
        }
    }
}

/// A network, and the time on it.
pub struct Network(Mutex<State>);

struct State {
    rng: Rng,
    now: Nanos,
    faults: Faults,
    members: BTreeMap<NodeId, Member>,
    wires: Vec<Wire>,
    /// What ended connections, but for their peers.
    ends: Vec<LinkError>,
}

struct Member {
    node: Arc<Node>,
    is_bound: bool,
    /// Nothing is done before.
    stalled_until: Nanos,
    /// Peers that it dials.
    dials: BTreeMap<NodeId, Dial>,
}

struct Dial {
    backoff: Backoff,
    /// When to try again; `None` while there is a connection.
    due: Option<Nanos>,
}

impl Network {
    /// An empty network at time zero.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Arc<Self> {
        let (rng, now) = (Rng::new(seed), Nanos::default());
        let (members, wires, ends) = (BTreeMap::new(), Vec::new(), Vec::new());
        Arc::new(Self(Mutex::new(State { rng, now, faults, members, wires, ends })))
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
    ) -> Result<Simulated, SettingError> {
        let node = Node::new(id, incarnation, settings)?;
        self.crash(id, false);
        let mut state = self.state();
        let now = state.now;
        let member =
            Member { node: Arc::clone(&node), is_bound: false, stalled_until: now, dials: BTreeMap::new() };
        state.members.insert(id, member);
        Ok(Simulated { network: Arc::clone(self), node })
    }

    /// Lets everything happen that is due up to `to`.
    pub fn advance(&self, to: Nanos) {
        let mut state = self.state();
        while let Some(next) = state.next_event().filter(|next| *next <= to) {
            state.now = state.now.max(next);
            state.step();
        }
        state.now = state.now.max(to);
    }

    /// When something is due next; the time that it is at the earliest.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        let state = self.state();
        state.next_event().map(|next| next.max(state.now))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.state().now
    }

    /// Changes what the network does from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Ends the connections between two nodes, each after any of the bytes that are on their way.
    pub fn cut(&self, one: NodeId, other: NodeId) {
        let mut state = self.state();
        let State { wires, rng, now, .. } = &mut *state;
        wires.iter_mut().filter(|wire| wire.joins(one, other)).for_each(|wire| wire.cut(*now, rng));
    }

    /// Ends the run of a node. Its peers learn of it as of a closed connection, or, `silently`, not at all.
    pub fn crash(&self, id: NodeId, silently: bool) {
        let mut state = self.state();
        let State { wires, now, members, .. } = &mut *state;
        members.remove(&id);
        wires.iter_mut().for_each(|wire| wire.abandon(id, *now, silently));
    }

    /// Has a node do nothing until `until`: neither read nor write, nor notice the time.
    pub fn stall(&self, id: NodeId, until: Nanos) {
        if let Some(member) = self.state().members.get_mut(&id) {
            member.stalled_until = until;
        }
    }

    /// Takes what ended connections since it was asked last, but for ends of their peers.
    pub fn take_ends(&self) -> Vec<LinkError> {
        std::mem::take(&mut self.state().ends)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_event(&self) -> Option<Nanos> {
        let dials = self.members.values().flat_map(|member| {
            let due = member.dials.values().filter_map(|dial| dial.due);
            due.map(|due| due.max(member.stalled_until))
        });
        let ends = self.wires.iter().flat_map(|wire| &wire.ends).filter_map(|end| {
            let stalled_until = self.members.get(&end.owner)?.stalled_until;
            end.next_event().map(|next| next.max(stalled_until))
        });
        dials.chain(ends).min()
    }

    /// Does what is due now.
    fn step(&mut self) {
        self.dial();
        for index in 0..self.wires.len() {
            for side in [0, 1] {
                self.step_end(index, side);
            }
        }
        self.wires.retain(|wire| wire.ends.iter().any(|end| end.session.is_some()));
    }

    fn step_end(&mut self, index: usize, side: usize) {
        let State { rng, now, faults, members, wires, ends } = self;
        let wire = &mut wires[index];
        let Some(member) = members.get_mut(&wire.ends[side].owner) else { return };
        let is_due = wire.ends[side].next_event().is_some_and(|next| next <= *now);
        if member.stalled_until > *now || !is_due {
            return;
        }
        let done = wire.step(side, *now, faults, rng);
        if let Err(why) = &done {
            ends.extend(*why);
            let (peer, worked) = wire.close(side, *now);
            if side == DIALER
                && let Some(dial) = peer.and_then(|peer| member.dials.get_mut(&peer))
            {
                dial.end(*now, worked, member.node.settings.as_ref(), rng);
            }
        }
    }

    /// Dials who is due.
    fn dial(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (id, member) in self.members.iter_mut().filter(|(_, member)| member.stalled_until <= now) {
            let peers = member.dials.iter_mut().filter(|(_, dial)| dial.due.is_some_and(|at| at <= now));
            due.extend(peers.map(|(peer, _)| (*id, *peer)));
        }
        for (id, peer) in due {
            self.dial_one(id, peer);
        }
    }

    fn dial_one(&mut self, id: NodeId, peer: NodeId) {
        let is_refused = self.rng.below(1_000) < self.faults.refusals_per_mille;
        let there = self.members.get(&peer).filter(|there| there.is_bound && !is_refused);
        let there = there.map(|there| Arc::clone(&there.node));
        let Self { rng, now, members, wires, .. } = self;
        let Some(member) = members.get_mut(&id) else { return };
        let Some(dial) = member.dials.get_mut(&peer) else { return };
        let Some(there) = there else {
            if dial.fail(*now, &member.node.settings, rng) {
                member.node.receiver().on_event(peer, Event::Unreachable);
            }
            return;
        };
        dial.due = None;
        let here = Arc::clone(&member.node);
        let dialer = End::new(id, |bell| Session::dialed(here, bell, *now, peer));
        let acceptor = End::new(peer, |bell| Session::accepted(there, bell, *now));
        wires.push(Wire { ends: [dialer, acceptor] });
    }
}

/// Which end of a wire made it.
const DIALER: usize = 0;

impl Dial {
    /// Another attempt failed; whether the peer is to be called unreachable.
    fn fail(&mut self, now: Nanos, settings: &Settings, rng: &mut Rng) -> bool {
        let (wait, is_unreachable) = self.backoff.on_failure(settings, rng.bits());
        self.due = Some(now + wait);
        is_unreachable
    }

    /// The connection ended, which `worked` or never came so far.
    fn end(&mut self, now: Nanos, worked: bool, settings: &Settings, rng: &mut Rng) {
        if worked {
            self.due = Some(now + self.backoff.on_end(settings, rng.bits()));
        } else {
            self.fail(now, settings, rng);
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let (now, members, wires) = (state.now, state.members.len(), state.wires.len());
        f.debug_struct("Network")
            .field("now", &now)
            .field("members", &members)
            .field("wires", &wires)
            .finish()
    }
}

/// One run of one node. Addresses are `sim:` and anything.
#[derive(Debug)]
pub struct Simulated {
    network: Arc<Network>,
    node: Arc<Node>,
}

impl Simulated {
    /// What `use_it` makes of the member, if this run of the node is still there.
    fn member<T>(&self, use_it: impl FnOnce(&mut Member, Nanos) -> T) -> Result<T, BindError> {
        let mut state = self.network.state();
        let now = state.now;
        let member = state.members.get_mut(&self.node.id);
        let member = member.filter(|member| Arc::ptr_eq(&member.node, &self.node));
        member.map(|member| use_it(member, now)).ok_or(BindError::Closed)
    }
}

impl Transport for Simulated {
    fn node(&self) -> NodeId {
        self.node.id
    }

    fn receive(&self, receiver: Arc<dyn Receive>) {
        self.node.set_receiver(receiver);
    }

    fn bind(&self, address: &str) -> Result<String, BindError> {
        check_address(address)?;
        let was_bound = self.member(|member, _| std::mem::replace(&mut member.is_bound, true))?;
        if was_bound { Err(BindError::Bound) } else { Ok(address.to_owned()) }
    }

    fn connect(&self, peer: NodeId, address: &str) -> Result<Sender, BindError> {
        check_address(address)?;
        let link = self.node.declare(peer)?;
        if self.node.dials(peer) {
            self.member(|member, now| {
                let dial = || Dial { backoff: Backoff::default(), due: Some(now) };
                member.dials.entry(peer).or_insert_with(dial);
            })?;
        }
        Ok(Sender::new(link))
    }

    fn sender(&self, peer: NodeId) -> Option<Sender> {
        self.node.sender(peer)
    }

    fn close(&self) {
        self.node.close();
        if self.member(|_, _| ()).is_ok() {
            self.network.crash(self.node.id, false);
        }
    }
}

fn check_address(address: &str) -> Result<(), BindError> {
    if address.starts_with("sim:") {
        return Ok(());
    }
    Err(BindError::Address { address: address.to_owned(), expected: "sim:NAME" })
}
