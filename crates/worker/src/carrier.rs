//! What carries envelopes to other workers of a topology, and brings theirs.
//!
//! ```text
//!   post -> Links::send -> encoded, one message an envelope -> Transport ... Transport -> Inbox::deliver -> mailbox
//!   epochs -> Links::tell -> another channel -> Transport ... Transport -> Inbox::hear -> coordinator, or member
//!                            | refused: waits here, in order, for credit or for the connection
//! ```
//!
//! Invariants
//!   1. Envelopes to one worker leave in the order of their sending.
//!   2. Nothing is dropped that can still arrive and matters: what the transport refuses waits.
//!
//! **Bound.** What waits for a worker is what its tasks' channels allow, as in a mailbox; of epochs, the words of one generation.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use topology::ids::WorkerId;
use topology::message::Envelope;
use topology::wire::{self, decode_epoch_message};
use transport::{
    BindError, Channel, Event, Incarnation, Message, NodeId, Receive, SendError, Sender, Settings, Transport,
};

use crate::inbox::Inbox;
use crate::links::{Links, MESSAGE_BYTES_MAX};
use crate::sync::lock;

/// Links over a transport. Workers are its nodes, with their numbers.
pub struct Carrier {
    transport: Arc<dyn Transport>,
    peers: RwLock<BTreeMap<WorkerId, Arc<Mutex<Peer>>>>,
    inbox: OnceLock<Inbox>,
}

/// What is to be sent to a worker.
#[derive(Debug, Default)]
struct Peer {
    sender: Option<Sender>,
    /// Envelopes that were refused, encoded.
    waiting: VecDeque<Vec<u8>>,
    /// The same of what is said of epochs.
    talk: VecDeque<Vec<u8>>,
}

impl Carrier {
    /// Links over `transport`, which is not bound yet.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self { transport, peers: RwLock::default(), inbox: OnceLock::new() })
    }

    /// Begins to take what other workers send; where, as they are to be told.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn listen(self: &Arc<Self>, inbox: Inbox, address: &str) -> Result<String, BindError> {
        // A second inbox would be of the same topology.
        let _ = self.inbox.set(inbox);
        self.transport.receive(Arc::new(Receiver(Arc::clone(self))));
        self.transport.bind(address)
    }

    /// Another worker listens at `address`.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn connect(&self, worker: WorkerId, address: &str) -> Result<(), BindError> {
        // Under the lock of the peer: what waits goes before anything else.
        let peer = self.peer(worker);
        let mut peer = lock(&peer);
        peer.sender = Some(self.transport.connect(node(worker), address)?);
        peer.send_waiting(worker);
        Ok(())
    }

    fn peer(&self, worker: WorkerId) -> Arc<Mutex<Peer>> {
        let known = self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&worker).cloned();
        known.unwrap_or_else(|| {
            let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(peers.entry(worker).or_default())
        })
    }
}

impl Links for Carrier {
    fn send(&self, worker: WorkerId, envelopes: &mut Vec<Envelope>) {
        let peer = self.peer(worker);
        let mut peer = lock(&peer);
        let mut bytes = Vec::new();
        for envelope in envelopes.drain(..) {
            bytes.clear();
            wire::encode(&envelope, &mut bytes);
            if !peer.waiting.is_empty() || !peer.try_send(worker, TUPLES, &bytes) {
                peer.waiting.push_back(std::mem::take(&mut bytes));
            }
        }
    }

    fn tell(&self, worker: WorkerId, talk: Vec<u8>, supersedes: bool) {
        let peer = self.peer(worker);
        let mut peer = lock(&peer);
        if supersedes {
            peer.talk.clear();
        }
        if !peer.talk.is_empty() || !peer.try_send(worker, TALK, &talk) {
            peer.talk.push_back(talk);
        }
    }

    fn is_settled(&self) -> bool {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.values().all(|peer| lock(peer).is_settled())
    }
}

impl Peer {
    /// Whether a message is on its way, or never can be.
    fn try_send(&self, worker: WorkerId, channel: Channel, bytes: &[u8]) -> bool {
        match self.sender.as_ref().map(|sender| sender.send(channel, bytes)) {
            Some(Ok(_)) => true,
            None | Some(Err(SendError::NoCredit | SendError::NotConnected)) => false,
            Some(Err(error)) => {
                tracing::error!(%worker, %error, "a message cannot be sent to another worker, and fails by its time-out");
                true
            }
        }
    }

    fn send_waiting(&mut self, worker: WorkerId) {
        while let Some(bytes) = self.talk.front()
            && self.try_send(worker, TALK, bytes)
        {
            self.talk.pop_front();
        }
        while let Some(bytes) = self.waiting.front()
            && self.try_send(worker, TUPLES, bytes)
        {
            self.waiting.pop_front();
        }
    }

    fn is_settled(&self) -> bool {
        let status = self.sender.as_ref().map(Sender::status);
        self.waiting.is_empty() && self.talk.is_empty() && status.is_none_or(|it| it.unacked_messages == 0)
    }
}

/// What the transport calls.
struct Receiver(Arc<Carrier>);

impl Receive for Receiver {
    fn on_message(&self, message: &Message<'_>) {
        let Some(inbox) = self.0.inbox.get() else { return };
        let bytes = Bytes::copy_from_slice(message.bytes);
        let done = match message.channel {
            TALK => decode_epoch_message(&bytes).map(|talk| inbox.receive(worker(message.from), talk)),
            _ => wire::decode(&bytes).map(|envelope| inbox.deliver(envelope)),
        };
        if let Err(error) = done {
            tracing::error!(from = message.from.0, %error, "another worker has sent what cannot be read");
        }
    }

    fn on_event(&self, peer: NodeId, event: Event) {
        let worker = worker(peer);
        match event {
            Event::Restarted { lost_messages } => {
                tracing::info!(%worker, lost_messages, "another worker was started anew");
                self.0.inbox.get().into_iter().for_each(|inbox| inbox.on_new_peer(worker));
            }
            Event::Up | Event::Credit(_) => lock(&self.0.peer(worker)).send_waiting(worker),
            Event::Down | Event::Unreachable => {}
        }
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").field("node", &self.transport.node()).finish_non_exhaustive()
    }
}

/// Settings of a transport that carries what the settings of a topology allow.
#[must_use]
pub fn settings() -> Settings {
    Settings {
        message_size_bytes_max: MESSAGE_BYTES_MAX,
        channel_window_bytes: u64::from(MESSAGE_BYTES_MAX) + WINDOW_BYTES,
        link_window_bytes: 2 * u64::from(MESSAGE_BYTES_MAX),
        unacked_bytes_max: 3 * u64::from(MESSAGE_BYTES_MAX),
        channels_max: 2,
        ..Settings::default()
    }
}

/// The node of a worker.
#[must_use]
pub fn node(worker: WorkerId) -> NodeId {
    NodeId(worker.0.into())
}

/// The run of a worker's node, from which start of it this is.
#[must_use]
pub fn incarnation(start: u32) -> Incarnation {
    Incarnation::new(start.into())
}

fn worker(node: NodeId) -> WorkerId {
    WorkerId(node.0 as u32)
}

/// All envelopes of a link: credits of the core bound each pair of tasks apart.
const TUPLES: Channel = Channel::reliable(0);
/// What workers and the coordinator of epochs say: tuples that wait do not hold it up.
const TALK: Channel = Channel::reliable(1);
const WINDOW_BYTES: u64 = 8 << 20;
