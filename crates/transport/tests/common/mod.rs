//! What the tests of transports with threads have in common.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "tests wait for real threads")]

pub mod certificates;
pub mod node;
#[macro_use]
pub mod promises;
pub mod proxy;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use transport::{Channel, Credit, Event, Message, NodeId, Receive, SendError, Sender};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps everything that comes.
#[derive(Default)]
pub struct Collector(Mutex<Collected>);

#[derive(Default)]
struct Collected {
    messages: HashMap<Channel, Vec<Vec<u8>>>,
    events: Vec<(NodeId, Event)>,
    keeps: Option<Channel>,
    kept: Vec<Credit>,
}

impl Collector {
    /// How many messages came.
    pub fn count(&self) -> usize {
        self.lock().messages.values().map(Vec::len).sum()
    }

    /// Those of `channel`.
    pub fn of(&self, channel: Channel) -> Vec<Vec<u8>> {
        self.lock().messages.get(&channel).cloned().unwrap_or_default()
    }

    /// Keeps the credits of `channel` from now on.
    pub fn keep(&self, channel: Channel) {
        self.lock().keeps = Some(channel);
    }

    /// How many credits it keeps.
    pub fn kept(&self) -> usize {
        self.lock().kept.len()
    }

    /// Gives them back, and keeps none from now on.
    pub fn release(&self) {
        let mut collected = self.lock();
        collected.keeps = None;
        let kept = std::mem::take(&mut collected.kept);
        drop(collected);
        drop(kept);
    }

    /// Whether `event` was told of.
    pub fn has(&self, peer: NodeId, event: Event) -> bool {
        self.lock().events.contains(&(peer, event))
    }

    /// How often `event` was told of.
    pub fn times(&self, peer: NodeId, event: Event) -> usize {
        self.lock().events.iter().filter(|other| **other == (peer, event)).count()
    }

    /// How many runs of `peer` ended.
    pub fn restarts(&self, peer: NodeId) -> usize {
        let is_restart =
            |(from, event): &&(NodeId, Event)| *from == peer && matches!(event, Event::Restarted { .. });
        self.lock().events.iter().filter(is_restart).count()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap()
    }
}

impl Receive for Collector {
    fn on_message(&self, message: &Message<'_>) {
        let mut collected = self.lock();
        if collected.keeps == Some(message.channel) {
            collected.kept.push(message.keep());
        }
        collected.messages.entry(message.channel).or_default().push(message.bytes.to_vec());
    }

    fn on_event(&self, peer: NodeId, event: Event) {
        self.lock().events.push((peer, event));
    }
}

/// A message of `size_bytes` that begins with `number`.
pub fn numbered(number: u64, size_bytes: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(size_bytes.max(8), number as u8);
    bytes
}

/// What [`numbered`] began `message` with.
pub fn number_of(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().unwrap())
}

/// Sends as soon as it is taken.
pub fn send_patiently(sender: &Sender, channel: Channel, message: &[u8]) {
    eventually("the message is taken", || match sender.send(channel, message) {
        Ok(_) => true,
        Err(SendError::NoCredit | SendError::NotConnected) => false,
        Err(other) => panic!("{other}"),
    });
}

/// Waits until `is_so`.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}
