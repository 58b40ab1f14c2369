//! Channels, patterns, and who listens.
//!
//! Publishing posts to each listener's loop; the listener writes the message in its own version of the
//! protocol. A message waits for the ticket that its publisher had seen last: who publishes "it is done" after a write
//! is never heard before the write is durable.
//!
//! Invariant: a name is in the map exactly while somebody listens to it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

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

impl Server {
    /// Posts published messages to their listeners; they wait for `ticket`.
    pub(crate) fn deliver(&self, outbox: Outbox, ticket: u64) {
        for (channel, payload) in outbox {
            self.pubsub.each_listener(&channel, |pattern, ids| {
                let (pattern, channel) = (pattern.cloned(), Arc::clone(&channel));
                let payload = Arc::clone(&payload);
                let message = Arc::new(Published { pattern, channel, payload, ticket });
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
