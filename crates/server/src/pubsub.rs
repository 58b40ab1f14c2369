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
//!   4. Messages on their way (posted and not taken, or taken and waiting for the disk) are weighed: their
//!      bytes, once, and a post for each listener. Past `connections.messages_max` PUBLISH waits; one message
//!      always passes, however large.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use clock::Nanos;
use reactor::Output;
use resp::Writer;

use crate::executor::Outbox;
use crate::glob::Pattern;
use crate::message::{Message, Peers, Published};
use crate::server::Server;
use crate::session::{Session, Subscriptions};

/// Who listens to what.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: RwLock<Listeners>,
    patterns: RwLock<Listeners>,
    on_the_way: Arc<AtomicU64>,
    /// Payloads that outputs share.
    shared: Arc<AtomicU64>,
    held: Held,
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

/// A walk through the names of one kind that is cut into slices.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Number of the name to go on with.
    next: u64,
    is_done: bool,
    /// What was found and is not used yet.
    pub(crate) found: Vec<Arc<[u8]>>,
    /// Who listens to what was found.
    pub(crate) audience: usize,
}

/// A message that is being published, and the walk through the patterns for it.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) channel: Arc<[u8]>,
    pub(crate) payload: Arc<[u8]>,
    pub(crate) walk: Walk,
}

/// A message to send when the command that published it has happened.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) channel: Arc<[u8]>,
    pub(crate) payload: Arc<[u8]>,
    /// Whether those get it who listen to the channel itself.
    pub(crate) is_for_channel: bool,
    /// Patterns that the channel matches.
    pub(crate) patterns: Vec<Arc<[u8]>>,
}

/// Messages that their listeners' loops took before the disk had what their publishers saw.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicU64,
    /// Ticket and weight of each; released about in this order.
    messages: Mutex<VecDeque<(u64, u64)>>,
}

/// The bytes of a message, for all its listeners.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Arc<[u8]>,
    /// Outputs share it: it is counted in `shared` until the last has sent it.
    is_shared: AtomicBool,
    shared: Arc<AtomicU64>,
}

impl Payload {
    /// Counts it among those that outputs share.
    fn share(&self) {
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            self.shared.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if *self.is_shared.get_mut() {
            self.shared.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Adds to the bytes on their way for as long as it lives.
#[derive(Debug)]
pub(crate) struct Weight {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One of the two kinds of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Channels,
    Patterns,
}

impl PubSub {
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
        for name in &subscriptions.channels {
            self.remove(Names::Channels, name, id);
        }
        for name in &subscriptions.patterns {
            self.remove(Names::Patterns, name, id);
        }
    }

    /// Listeners of exactly this channel.
    pub(crate) fn listeners(&self, channel: &[u8]) -> usize {
        self.with(Names::Channels, channel, <[u64]>::len).unwrap_or(0)
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

    /// How many channels and patterns there are.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |map: &RwLock<Listeners>| map.read().unwrap_or_else(PoisonError::into_inner).list.len();
        (count(&self.channels), count(&self.patterns))
    }

    /// Bytes of messages and lines of MONITOR that are on their way, `released` being durable.
    pub(crate) fn bytes_on_the_way(&self, released: u64) -> u64 {
        self.on_the_way.load(Ordering::Relaxed) + self.held.bytes_beyond(released)
    }

    /// Bytes that messages take, in mailboxes and in outputs that share them.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.on_the_way.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed)
    }

    /// Weighs `bytes` that go to `count` listeners, who share them.
    pub(crate) fn weigh(&self, bytes: usize, count: usize) -> Weight {
        let bytes = (bytes + POST_BYTES * count) as u64;
        self.on_the_way.fetch_add(bytes, Ordering::Relaxed);
        Weight { bytes, sum: Arc::clone(&self.on_the_way) }
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
        }
    }
}

impl Held {
    /// Bytes that wait for more than `released`. One load while nothing does.
    fn bytes_beyond(&self, released: u64) -> u64 {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some((_, bytes)) = messages.pop_front_if(|(ticket, _)| *ticket <= released) {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, ticket: u64, bytes: u64) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        match messages.back_mut() {
            // One entry for what one publisher sends between two syncs.
            Some((last, sum)) if *last >= ticket => *sum += bytes,
            _ => messages.push_back((ticket, bytes)),
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Server {
    /// When a command that publishes may run: now, or after a moment because too much is on its way.
    pub(crate) fn publish_at(&self, now: Nanos) -> Option<Nanos> {
        let on_the_way = self.pubsub.bytes_on_the_way(self.store.released());
        let is_pressed = self.peers().is_some_and(Peers::is_pressed);
        if !is_pressed && on_the_way < self.tuned.messages_bytes_max.load(Ordering::Relaxed) {
            return None;
        }
        self.stats.waits_for_listeners.fetch_add(1, Ordering::Relaxed);
        Some(now + LISTENERS_RETRY)
    }

    /// Posts published messages to their listeners; they wait for `ticket`.
    pub(crate) fn deliver(&self, outbox: Outbox, ticket: u64) {
        for Outgoing { channel, payload, is_for_channel, patterns } in outbox {
            let mut weighed_bytes = payload.len();
            let (is_shared, shared) = (AtomicBool::new(false), Arc::clone(&self.pubsub.shared));
            let payload = Arc::new(Payload { bytes: payload, is_shared, shared });
            let mut send = |pattern: Option<Arc<[u8]>>, ids: &[u64]| {
                let (channel, payload) = (Arc::clone(&channel), Arc::clone(&payload));
                // Whoever listens to what else: the payload is there once.
                let weight = self.pubsub.weigh(channel.len() + std::mem::take(&mut weighed_bytes), ids.len());
                if ticket > self.store.released() {
                    self.pubsub.held.add(ticket, weight.bytes);
                }
                let message = Arc::new(Published { pattern, channel, payload, ticket, _weight: weight });
                for id in ids {
                    self.post(*id, Message::Published(Arc::clone(&message)));
                }
            };
            if is_for_channel {
                self.pubsub.with(Names::Channels, &channel, |ids| send(None, ids));
            }
            for pattern in patterns {
                self.pubsub.with(Names::Patterns, &pattern, |ids| send(Some(Arc::clone(&pattern)), ids));
            }
        }
    }
}

impl Publishing {
    pub(crate) fn new(channel: &[u8], payload: &[u8]) -> Self {
        Self { channel: Arc::from(channel), payload: Arc::from(payload), walk: Walk::default() }
    }

    /// What was found of it, to be sent.
    pub(crate) fn take(&mut self, is_for_channel: bool) -> Outgoing {
        let (channel, payload) = (Arc::clone(&self.channel), Arc::clone(&self.payload));
        Outgoing { channel, payload, is_for_channel, patterns: std::mem::take(&mut self.walk.found) }
    }
}

/// What a compiled pattern takes in memory.
pub(crate) fn compiled_bytes(pattern: &Pattern) -> u64 {
    (size_of::<Pattern>() + pattern.memory_bytes()) as u64
}

/// Appends a message in the version that the listener speaks; nothing if it has stopped listening meanwhile.
pub(crate) fn write(message: &Published, session: &Session, output: &mut Output) {
    let Some(subscriptions) = &session.subscriptions else { return };
    let mut writer = Writer::new(output.buffer(), session.resp3);
    match &message.pattern {
        Some(pattern) if subscriptions.patterns.contains(pattern) => {
            writer.push(4);
            writer.bulk(b"pmessage");
            writer.bulk(pattern);
        }
        None if subscriptions.channels.contains(&message.channel) => {
            writer.push(3);
            writer.bulk(b"message");
        }
        _ => return,
    }
    writer.bulk(&message.channel);
    let payload = &message.payload;
    if payload.bytes.len() < SHARED_BYTES_MIN {
        return writer.bulk(&payload.bytes);
    }
    let at = writer.bulk_around(&[], payload.bytes.len(), &[]);
    payload.share();
    output.attach(at, Arc::<Payload>::clone(payload), 0..payload.bytes.len());
}

/// Shorter payloads are copied: to share one costs each listener a piece of its own to send.
const SHARED_BYTES_MIN: usize = 4 << 10;
/// What a message takes beside its bytes, in a mailbox or in an output.
const POST_BYTES: usize = 64;
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
