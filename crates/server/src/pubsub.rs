//! Channels, patterns, and who listens.
//!
//! Publishing posts to each listener's loop; the listener writes the message in its own version of the
//! protocol. A long payload is stored once, however many listeners have not read it: their outputs share it. A message waits for
//! the ticket that its publisher had seen last: who publishes "it is done" after a write
//! is never heard before the write is durable.
//!
//! Invariants
//!   1. A name is in the map exactly while somebody listens to it.
//!   2. A pattern is compiled when the first connection listens to it, and is at most [`Pattern::BYTES_MAX`] long, as a channel
//!      is at most [`CHANNEL_BYTES_MAX`].
//!   3. Nobody looks at all names at once: a walk is cut into slices of about half a millisecond, and is parked
//!      between two of them. A name that is listened to from the walk's beginning to its end is met once.
//!
//! Out of scope: how much may be on its way (`traffic`).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use clock::Nanos;
use commands::glob::Pattern;
use reactor::Output;
use resp::Writer;
use ticket::Ticket;

use crate::message::{Message, Published};
use crate::peers::{Connections, Peers};
use crate::subscriptions::{Names, Outbox, Outgoing, Subscriptions, Walk};
use crate::traffic::{Payload, Traffic};

/// Who listens to what.
#[derive(Debug)]
pub(crate) struct PubSub {
    channels: RwLock<Listeners>,
    patterns: RwLock<Listeners>,
    shards: RwLock<Listeners>,
    peers: Arc<Connections>,
    traffic: Arc<Traffic>,
    /// How often a command that publishes had to wait.
    waits: AtomicU64,
}

/// Who listens to the names of one kind. They are numbered as they come, so that a walk can go on where it stopped.
#[derive(Debug, Default)]
struct Listeners {
    numbers: HashMap<Arc<[u8]>, u64>,
    list: BTreeMap<u64, Listened>,
    next: u64,
}

/// A name that somebody listens to.
#[derive(Debug)]
pub(crate) struct Listened {
    pub(crate) name: Arc<[u8]>,
    /// The compiled name, if it is a pattern.
    pub(crate) pattern: Option<Box<Pattern>>,
    /// Ids of connections.
    pub(crate) listeners: Vec<u64>,
}

impl PubSub {
    pub(crate) fn new(peers: Arc<Connections>, traffic: Arc<Traffic>) -> Self {
        PubSub {
            channels: RwLock::default(),
            patterns: RwLock::default(),
            shards: RwLock::default(),
            peers,
            traffic,
            waits: AtomicU64::new(0),
        }
    }

    /// When a command that publishes may run: now, or after a moment because too much is on its way.
    pub(crate) fn publish_at(&self, now: Nanos) -> Option<Nanos> {
        let is_pressed = self.peers.get().is_some_and(Peers::is_pressed);
        if !is_pressed && !self.traffic.is_full() {
            return None;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        Some(now + LISTENERS_RETRY)
    }

    /// How often a command that publishes had to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Begins to count anew how often.
    pub(crate) fn reset(&self) {
        self.waits.store(0, Ordering::Relaxed);
    }

    /// Posts published messages to their listeners; they wait for `ticket`.
    pub(crate) fn deliver(&self, outbox: Outbox, ticket: Ticket) {
        for Outgoing { channel, payload, to, patterns } in outbox {
            let payload_bytes = payload.len();
            let mut weighed_bytes = payload_bytes;
            let payload = Arc::new(self.traffic.payload(payload));
            let is_shard = to == Some(Names::Shards);
            let mut send = |pattern: Option<Arc<[u8]>>, ids: &[u64]| {
                let (channel, payload) = (Arc::clone(&channel), Arc::clone(&payload));
                // Whoever listens to what else: the payload is there once.
                let own_bytes = if payload_bytes < SHARED_BYTES_MIN { payload_bytes } else { 0 };
                let shared_bytes = channel.len() + std::mem::take(&mut weighed_bytes);
                let own_bytes = own_bytes + channel.len();
                let weight = self.traffic.weigh(shared_bytes, own_bytes, ids.len(), ticket);
                let message =
                    Arc::new(Published { pattern, is_shard, channel, payload, ticket, _weight: weight });
                for id in ids {
                    self.peers.post(*id, Message::Published(Arc::clone(&message)));
                }
            };
            if let Some(names) = to {
                self.with(names, &channel, |ids| send(None, ids));
            }
            for pattern in patterns {
                self.with(Names::Patterns, &pattern, |ids| send(Some(Arc::clone(&pattern)), ids));
            }
        }
    }

    /// Adds a listener; `pattern` is the compiled name, if it is one.
    pub(crate) fn add(&self, names: Names, name: &Arc<[u8]>, pattern: Option<Box<Pattern>>, id: u64) {
        let mut map = self.of(names).write().unwrap_or_else(PoisonError::into_inner);
        let map = &mut *map;
        let number = *map.numbers.entry(Arc::clone(name)).or_insert_with(|| {
            map.next += 1;
            map.next
        });
        let new = || Listened { name: Arc::clone(name), pattern, listeners: Vec::new() };
        map.list.entry(number).or_insert_with(new).listeners.push(id);
    }

    /// Removes a listener; returns what the compiled name takes in memory.
    pub(crate) fn remove(&self, names: Names, name: &[u8], id: u64) -> u64 {
        let mut map = self.of(names).write().unwrap_or_else(PoisonError::into_inner);
        let map = &mut *map;
        let Some(number) = map.numbers.get(name).copied() else { return 0 };
        let Some(listened) = map.list.get_mut(&number) else { return 0 };
        let bytes = listened.pattern.as_deref().map_or(0, compiled_bytes);
        listened.listeners.retain(|other| *other != id);
        if listened.listeners.is_empty() {
            map.list.remove(&number);
            map.numbers.remove(name);
        }
        bytes
    }

    /// Takes a connection out of all that it listens to.
    pub(crate) fn forget(&self, id: u64, subscriptions: &Subscriptions) {
        for names in [Names::Channels, Names::Patterns, Names::Shards] {
            for name in subscriptions.of(names) {
                self.remove(names, name, id);
            }
        }
    }

    /// Listeners of exactly this channel.
    pub(crate) fn listeners(&self, names: Names, channel: &[u8]) -> usize {
        self.with(names, channel, <[u64]>::len).unwrap_or(0)
    }

    /// Goes on with `walk` through the names that are listened to, for about `steps_left` steps, which it counts down; says
    /// whether it is done. `fits` adds to its second argument the steps that it took.
    pub(crate) fn walk(
        &self,
        names: Names,
        walk: &mut Walk,
        steps_left: &mut u64,
        mut fits: impl FnMut(&Listened, &mut u64) -> bool,
    ) -> bool {
        if walk.is_done {
            return true;
        }
        let map = self.of(names).read().unwrap_or_else(PoisonError::into_inner);
        for (number, listened) in map.list.range(walk.next..) {
            if *steps_left == 0 {
                walk.next = *number;
                return false;
            }
            let mut steps = NAME_STEPS;
            if fits(listened, &mut steps) {
                steps += FOUND_STEPS * listened.listeners.len() as u64;
                walk.audience += listened.listeners.len();
                walk.found.push(Arc::clone(&listened.name));
            }
            *steps_left = steps_left.saturating_sub(steps);
        }
        walk.is_done = true;
        true
    }

    /// Goes on with `walk` through the patterns for those that `channel` matches.
    pub(crate) fn walk_patterns(&self, channel: &[u8], walk: &mut Walk, steps_left: &mut u64) -> bool {
        self.walk(Names::Patterns, walk, steps_left, |listened, steps| {
            listened.pattern.as_ref().is_some_and(|pattern| pattern.matches(channel, steps))
        })
    }

    /// How many channels, patterns and shard channels there are.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let count = |map: &RwLock<Listeners>| map.read().unwrap_or_else(PoisonError::into_inner).list.len();
        [count(&self.channels), count(&self.patterns), count(&self.shards)]
    }

    /// Calls `with` with those who listen to `name`, if somebody does.
    fn with<T>(&self, names: Names, name: &[u8], with: impl FnOnce(&[u64]) -> T) -> Option<T> {
        let map = self.of(names).read().unwrap_or_else(PoisonError::into_inner);
        map.numbers.get(name).and_then(|number| map.list.get(number)).map(|it| with(&it.listeners))
    }

    fn of(&self, names: Names) -> &RwLock<Listeners> {
        match names {
            Names::Channels => &self.channels,
            Names::Patterns => &self.patterns,
            Names::Shards => &self.shards,
        }
    }
}

/// What a compiled pattern takes in memory.
pub(crate) fn compiled_bytes(pattern: &Pattern) -> u64 {
    (size_of::<Pattern>() + pattern.memory_bytes()) as u64
}

/// Appends a message in the version that the listener speaks; nothing if it has stopped listening meanwhile.
pub(crate) fn write(message: &Published, subscriptions: &Subscriptions, resp3: bool, output: &mut Output) {
    let mut writer = Writer::new(output.buffer(), resp3);
    match &message.pattern {
        Some(pattern) if subscriptions.patterns.contains(pattern) => {
            writer.push(4);
            writer.bulk(b"pmessage");
            writer.bulk(pattern);
        }
        None if message.is_shard && subscriptions.shards.contains(&message.channel) => {
            writer.push(3);
            writer.bulk(b"smessage");
        }
        None if !message.is_shard && subscriptions.channels.contains(&message.channel) => {
            writer.push(3);
            writer.bulk(b"message");
        }
        _ => return,
    }
    writer.bulk(&message.channel);
    let payload = &message.payload;
    let bytes: &[u8] = (**payload).as_ref();
    if bytes.len() < SHARED_BYTES_MIN {
        return writer.bulk(bytes);
    }
    let at = writer.bulk_around(&[], bytes.len(), &[]);
    payload.share();
    output.attach(at, Arc::<Payload>::clone(payload), 0..bytes.len());
}

/// Shorter payloads are copied: to share one costs each listener a piece of its own to send, about a tenth of this.
const SHARED_BYTES_MIN: usize = 1 << 10;
/// Longest name of a channel: what a pattern is matched against.
pub(crate) const CHANNEL_BYTES_MAX: usize = 64 << 10;
/// Steps of a slice of a walk, about a nanosecond each.
pub(crate) const SLICE_STEPS: u64 = 500_000;
/// What looking at one more name takes.
const NAME_STEPS: u64 = 50;
/// What it takes to send a message to one more listener.
const FOUND_STEPS: u64 = 200;
/// A publisher looks again after this.
const LISTENERS_RETRY: Duration = Duration::from_millis(1);
