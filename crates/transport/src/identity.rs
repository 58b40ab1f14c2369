//! Who talks, in which run, on which channel.

use std::fmt;

/// A node's number, unique among those that talk to each other. Of two nodes the one with the lower number dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Which run of a node: a node that starts anew has lost what its links kept, and must say so by another number.
///
/// Never 0, and higher for a later run: a hello of an earlier run may come late, and must not take the place of the later one. Take it from
/// a counter that is durable, or from the time of the start in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(std::num::NonZeroU64);

impl Incarnation {
    /// The incarnation with this number; 1 in place of 0.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(std::num::NonZeroU64::new(number).unwrap_or(std::num::NonZeroU64::MIN))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

/// What happens to a message that was sent, or could not be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Kept until the peer acknowledged it, sent again after a reconnect: arrives once, in the order of its channel, while both nodes live.
    Reliable,
    /// Sent once. A newer message of the channel takes the place of one that still waits. Nothing is repeated: what is stale does harm.
    Lossy,
}

/// A channel of a link: messages of one channel keep their order, and a channel that is not read stops no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// Its number, below [`crate::Settings::channels_max`]. Each class has numbers of its own.
    pub number: u16,
    /// What happens to its messages.
    pub class: Class,
}

impl Channel {
    /// The reliable channel with this number.
    #[must_use]
    pub const fn reliable(number: u16) -> Self {
        Self { number, class: Class::Reliable }
    }

    /// The lossy channel with this number.
    #[must_use]
    pub const fn lossy(number: u16) -> Self {
        Self { number, class: Class::Lossy }
    }
}
