//! What can go wrong, by what a caller can do about it.

use crate::wire::WireError;
use std::net::SocketAddr;

use crate::{NodeId, Refusal, SettingError};

/// Why a message was not taken. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Wait for [`crate::Event::Up`]. Reliable messages that were taken before are kept.
    #[error("there is no connection to the node now")]
    NotConnected,
    /// Wait for [`crate::Event::Credit`] of this channel: the receiver does not consume what it was sent, or the link keeps all that it may.
    #[error("the channel has no credit for the message now")]
    NoCredit,
    /// The transport was closed, or does not know the node.
    #[error("the link is closed")]
    Closed,
    /// Send less, or raise the setting on both nodes.
    #[error("a message of {size_bytes} B exceeds transport.{setting} ({limit_bytes} B)")]
    TooLarge {
        /// Of the message.
        size_bytes: u64,
        /// What is taken.
        limit_bytes: u64,
        /// Which setting says so.
        setting: &'static str,
    },
    /// Use a lower number, or raise the setting on both nodes.
    #[error("channel {number} is beyond transport.channels_max ({limit})")]
    NoSuchChannel {
        /// Of the channel.
        number: u16,
        /// How many there are.
        limit: u16,
    },
}

/// Why a transport cannot listen, or does not take a peer.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Correct the setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Correct the address.
    #[error("`{address}` is no address for this transport: {expected}")]
    Address {
        /// As given.
        address: String,
        /// What would be one.
        expected: &'static str,
    },
    /// Use a loopback address, or a [`crate::Security`]: these nodes do not prove to each other who they are.
    #[error(
        "{0} is beyond loopback, where nodes have to prove who they are: use 127.0.0.1 or [::1], or set a secret or certificates"
    )]
    Exposed(SocketAddr),
    /// Use a loopback address, or the transport `tcp`, where nodes can prove who they are.
    #[error(
        "{0} is beyond loopback, where nodes have to prove who they are, and this transport has no way to: use 127.0.0.1 or [::1], or the transport tcp"
    )]
    Unproved(SocketAddr),
    /// Choose another address, or stop what listens there.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// As given.
        address: String,
        /// Why.
        reason: String,
    },
    /// Once is enough.
    #[error("the transport is bound already")]
    Bound,
    /// A node has no link to itself.
    #[error("{0} is this node itself")]
    Itself(NodeId),
    /// Start another one.
    #[error("the transport is closed")]
    Closed,
}

/// Why a connection ended, when its peer did not close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// What came is not what a node of ours sends.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It did not prove who it is.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It did not say in time who it is.
    #[error("no hello within transport.handshake_timeout")]
    HandshakeTimeout,
    /// Nothing came for `transport.silence_max`.
    #[error("nothing came from the peer within transport.silence_max")]
    Silent,
    /// Declare the node, if it is one of ours.
    #[error("{0} is not a peer of this node")]
    UnknownPeer(NodeId),
    /// Somebody else has the address.
    #[error("the connection is for {meant}, and reached {reached}")]
    WrongNode {
        /// Who was meant.
        meant: NodeId,
        /// Who is here.
        reached: NodeId,
    },
    /// A hello that came late, or a node whose incarnation fell: see [`crate::Incarnation`].
    #[error("run {theirs} of the peer is over: run {known} is known")]
    EarlierRun {
        /// Who said hello.
        theirs: u64,
        /// Who did before.
        known: u64,
    },
    /// The peer acts against the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// A newer connection of the same link took its place.
    #[error("a newer connection took the place of this one")]
    Superseded,
}
