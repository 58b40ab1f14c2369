//! Channels, patterns, and who listens.
//!
//! Publishing posts to each listener's loop; the listener writes the message in its own version of the
//! protocol. A message waits for the ticket that its publisher had seen last: who publishes "it is done" after a write
//! is never heard before the write is durable.
//!
//! Invariants
//!   1. A name is in the map exactly while somebody listens to it.
//!   2. Messages on their way (posted and not taken, or taken and waiting for the disk) are weighed: the bytes that
//!      they become, for all listeners together. Past `connections.messages_max` PUBLISH waits; one message
//!      always passes, however large.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use clock::Nanos;
use resp::Writer;

use crate::executor::Outbox;
use crate::glob;
use crate::message::{Message, Published};
use crate::server::Server;
use crate::session::{Session, Subscriptions};

type Listeners = RwLock<HashMap<Arc<[u8]>, Vec<u64>>>;

/// Who listens to what.
#[derive(Debug, Default)]
pub(crate) struct PubSub {
    channels: Listeners,
    patterns: Listeners,
    on_the_way: Arc<AtomicU64>,
    held: Held,
}

/// Messages that their listeners' loops took before the disk had what their publishers saw.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicU64,
    /// Ticket and weight of each; released about in this order.
    messages: Mutex<VecDeque<(u64, u64)>>,
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
    pub(crate) fn add(&self, names: Names, name: &Arc<[u8]>, id: u64) {
        let mut map = self.of(names).write().unwrap_or_else(PoisonError::into_inner);
        map.entry(Arc::clone(name)).or_default().push(id);
    }

    pub(crate) fn remove(&self, names: Names, name: &[u8], id: u64) {
        let mut map = self.of(names).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(ids) = map.get_mut(name) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                map.remove(name);
            }
        }
    }

    /// Takes a connection out of all that it listens to.
    pub(crate) fn forget(&self, id: u64, subscriptions: &Subscriptions) {
        subscriptions.channels.iter().for_each(|name| self.remove(Names::Channels, name, id));
        subscriptions.patterns.iter().for_each(|name| self.remove(Names::Patterns, name, id));
    }

    /// How many would get a message for `channel`.
    pub(crate) fn audience(&self, channel: &[u8]) -> usize {
        let mut count = 0;
        self.each_listener(channel, |_, ids| count += ids.len());
        count
    }

    /// Listeners of exactly this channel.
    pub(crate) fn listeners(&self, channel: &[u8]) -> usize {
        self.channels.read().unwrap_or_else(PoisonError::into_inner).get(channel).map_or(0, Vec::len)
    }

    /// Channels with listeners that `matches`.
    pub(crate) fn channels(&self, matches: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        let map = self.channels.read().unwrap_or_else(PoisonError::into_inner);
        map.keys().filter(|name| matches(name)).cloned().collect()
    }

    /// How many channels and patterns there are.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |map: &Listeners| map.read().unwrap_or_else(PoisonError::into_inner).len();
        (count(&self.channels), count(&self.patterns))
    }

    /// Bytes of messages and lines of MONITOR that are on their way, `released` being durable.
    pub(crate) fn bytes_on_the_way(&self, released: u64) -> u64 {
        self.on_the_way.load(Ordering::Relaxed) + self.held.bytes_beyond(released)
    }

    /// Weighs `bytes` that go to `count` listeners.
    pub(crate) fn weigh(&self, bytes: usize, count: usize) -> Weight {
        let bytes = (bytes + POST_BYTES) as u64 * count as u64;
        self.on_the_way.fetch_add(bytes, Ordering::Relaxed);
        Weight { bytes, sum: Arc::clone(&self.on_the_way) }
    }

    fn each_listener(&self, channel: &[u8], mut found: impl FnMut(Option<&Arc<[u8]>>, &[u64])) {
        if let Some(ids) = self.channels.read().unwrap_or_else(PoisonError::into_inner).get(channel) {
            found(None, ids);
        }
        for (pattern, ids) in self.patterns.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if glob::matches(pattern, channel, false) {
                found(Some(pattern), ids);
            }
        }
    }

    fn of(&self, names: Names) -> &Listeners {
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
        if on_the_way < self.tuned.messages_bytes_max.load(Ordering::Relaxed) {
            return None;
        }
        self.stats.waits_for_listeners.fetch_add(1, Ordering::Relaxed);
        Some(now + LISTENERS_RETRY)
    }

    /// Posts published messages to their listeners; they wait for `ticket`.
    pub(crate) fn deliver(&self, outbox: Outbox, ticket: u64) {
        for (channel, payload) in outbox {
            self.pubsub.each_listener(&channel, |pattern, ids| {
                let (pattern, channel) = (pattern.cloned(), Arc::clone(&channel));
                let payload = Arc::clone(&payload);
                let weight = self.pubsub.weigh(channel.len() + payload.len(), ids.len());
                if ticket > self.store.released() {
                    self.pubsub.held.add(ticket, weight.bytes);
                }
                let message = Arc::new(Published { pattern, channel, payload, ticket, _weight: weight });
                for id in ids {
                    self.post(*id, Message::Published(Arc::clone(&message)));
                }
            });
        }
    }
}

/// Appends a message in the version that the listener speaks; nothing if it has stopped listening meanwhile.
pub(crate) fn write(message: &Published, session: &Session, out: &mut Vec<u8>) {
    let Some(subscriptions) = &session.subscriptions else { return };
    let mut writer = Writer::new(out, session.resp3);
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
    writer.bulk(&message.payload);
}

/// What a message takes beside its bytes, in a mailbox or in an output.
const POST_BYTES: usize = 64;
/// A publisher looks again after this.
const LISTENERS_RETRY: Duration = Duration::from_millis(1);
