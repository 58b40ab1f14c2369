//! What a link is and did, for who sends on it and for who watches it.

use crate::Incarnation;

/// What became of a message that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Taken,
    /// It is on its way in place of an older one of its lossy channel, which was dropped.
    Replaced,
}

/// Whether a link takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// There is no connection now, or never was.
    Down,
    /// There is one.
    Up,
    /// It was closed, for good.
    Closed,
}

/// What a link is and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Whether it takes messages.
    pub state: LinkState,
    /// The run of the peer that it talks to, or talked to last.
    pub peer: Option<Incarnation>,
    /// How often it was connected.
    pub connections: u64,
    /// Messages taken to be sent.
    pub sent_messages: u64,
    /// Messages handed to the receiver.
    pub received_messages: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Chunks that were sent another time, over another connection.
    pub resent_chunks: u64,
    /// Chunks that came another time, and were dropped.
    pub duplicate_chunks: u64,
    /// Lossy messages in whose place a newer one was sent, or that waited when a connection ended.
    pub dropped_messages: u64,
    /// Reliable messages that a former run of the peer may not have got.
    pub lost_messages: u64,
    /// Reliable messages that were taken and that the peer has not acknowledged.
    pub unacked_messages: u64,
    /// Memory of what is to be sent, or is not acknowledged.
    pub kept_bytes: u64,
    /// What the receiver keeps of what came.
    pub held_bytes: u64,
}

/// Counters of what came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) duplicate_chunks: u64,
}
