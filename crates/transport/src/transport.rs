//! The trait that all transports have.

use std::sync::Arc;

use crate::{BindError, Channel, LinkStatus, NodeId, Receive, SendError, Sender, Sent};

/// Messages to and from other nodes.
///
/// ```text
///  receive -> bind -> connect, for each peer, on both nodes -> send ... -> close
/// ```
pub trait Transport: Send + Sync {
    /// This node.
    fn node(&self) -> NodeId;

    /// Has `receiver` take what comes: before [`Transport::bind`], for what comes without a receiver is lost. The first one stays.
    fn receive(&self, receiver: Arc<dyn Receive>);

    /// Listens at `address`; where in fact, if the address leaves something open.
    ///
    /// # Errors
    /// [`BindError`]: the address is none, is taken, or the transport listens already.
    fn bind(&self, address: &str) -> Result<String, BindError>;

    /// Declares `peer`, which listens at `address`, and has a link with it from now on. Both nodes do so; the one with the lower number
    /// dials, again and again until the transport is closed. Who is not declared is not talked to.
    ///
    /// Another call for the same peer changes its address.
    ///
    /// # Errors
    /// [`BindError`]: the address is none, or the peer is this node.
    fn connect(&self, peer: NodeId, address: &str) -> Result<Sender, BindError>;

    /// Has `message` sent to `to` soon, at the latest at the end of the tick of the link's loop. Copies it once. Never blocks, but for a
    /// short lock.
    ///
    /// # Errors
    /// [`SendError`]: why it was not taken. What was taken is not dropped, but for what [`crate::Class::Lossy`] allows.
    fn send(&self, to: NodeId, channel: Channel, message: &[u8]) -> Result<Sent, SendError> {
        self.sender(to).ok_or(SendError::Closed)?.send(channel, message)
    }

    /// Sends to `peer` without looking it up each time; `None` if it was not declared.
    fn sender(&self, peer: NodeId) -> Option<Sender>;

    /// What the link with `peer` is and did; `None` if it was not declared.
    fn status(&self, peer: NodeId) -> Option<LinkStatus> {
        self.sender(peer).map(|sender| sender.status())
    }

    /// Ends all links, listens no more, and waits for its threads. What was not acknowledged may or may not have come.
    fn close(&self);
}
