//! What one connection has to do with channels: what it listens to, and what it is publishing.

use std::collections::BTreeSet;
use std::sync::Arc;

/// One of the kinds of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Channels,
    Patterns,
    /// Channels of SSUBSCRIBE: no pattern meets them.
    Shards,
}

/// What the client listens to; sorted, so that "all of them" has an order.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    pub(crate) channels: BTreeSet<Arc<[u8]>>,
    pub(crate) patterns: BTreeSet<Arc<[u8]>>,
    pub(crate) shards: BTreeSet<Arc<[u8]>>,
    /// What the names take.
    pub(crate) bytes: u64,
}

impl Subscriptions {
    /// Names of all kinds.
    pub(crate) fn count(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }

    /// What a confirmation about `names` counts: shard channels by themselves, the others together.
    pub(crate) fn confirmed(&self, names: Names) -> usize {
        match names {
            Names::Channels | Names::Patterns => self.channels.len() + self.patterns.len(),
            Names::Shards => self.shards.len(),
        }
    }

    pub(crate) fn of(&self, names: Names) -> &BTreeSet<Arc<[u8]>> {
        match names {
            Names::Channels => &self.channels,
            Names::Patterns => &self.patterns,
            Names::Shards => &self.shards,
        }
    }

    pub(crate) fn of_mut(&mut self, names: Names) -> &mut BTreeSet<Arc<[u8]>> {
        match names {
            Names::Channels => &mut self.channels,
            Names::Patterns => &mut self.patterns,
            Names::Shards => &mut self.shards,
        }
    }
}

impl Names {
    /// What a confirmation says was begun.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Channels => "subscribe",
            Self::Patterns => "psubscribe",
            Self::Shards => "ssubscribe",
        }
    }

    /// What a confirmation says was ended.
    pub(crate) fn verb_of_end(self) -> &'static str {
        match self {
            Self::Channels => "unsubscribe",
            Self::Patterns => "punsubscribe",
            Self::Shards => "sunsubscribe",
        }
    }
}

/// Messages to send when the command that published them has happened.
pub(crate) type Outbox = Vec<Outgoing>;

/// A walk through the names of one kind that is cut into slices.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Number of the name to go on with.
    pub(crate) next: u64,
    pub(crate) is_done: bool,
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
    /// The kind of the channel, if those get it who listen to the channel itself.
    pub(crate) to: Option<Names>,
    /// Patterns that the channel matches.
    pub(crate) patterns: Vec<Arc<[u8]>>,
}

impl Publishing {
    pub(crate) fn new(channel: &[u8], payload: &[u8]) -> Self {
        Self { channel: Arc::from(channel), payload: Arc::from(payload), walk: Walk::default() }
    }

    /// What was found of it, to be sent.
    pub(crate) fn take(&mut self, to: Option<Names>) -> Outgoing {
        let (channel, payload) = (Arc::clone(&self.channel), Arc::clone(&self.payload));
        Outgoing { channel, payload, to, patterns: std::mem::take(&mut self.walk.found) }
    }
}
