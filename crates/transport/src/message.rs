//! What a receiver is handed, and what it is told of.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::link::Link;
use crate::{Channel, NodeId};

/// Takes what comes, on the transport's threads: it must not block, and may send.
pub trait Receive: Send + Sync {
    /// Takes a message. It counts as consumed when this returns, unless it is kept ([`Message::keep`]).
    fn on_message(&self, message: &Message<'_>);

    /// Takes note of what happened to the link with `peer`.
    fn on_event(&self, _peer: NodeId, _event: Event) {}
}

/// What happened to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is connected: messages are taken.
    Up,
    /// Its connection ended. It will be back, and reliable messages with it.
    Down,
    /// Another run of the peer is there, which knows nothing of the one before.
    Restarted {
        /// Reliable messages that the run before may not have got: they are not sent to this one.
        lost_messages: u64,
    },
    /// A channel that had no credit for a message has it now.
    Credit(Channel),
    /// No attempt to connect succeeded, `transport.retries_max` times: nobody is there, or one of both refuses the other. They go on.
    Unreachable,
}

/// A message as it lies in the chunk that brought it.
pub struct Message<'a> {
    /// Whose it is.
    pub from: NodeId,
    /// By which channel.
    pub channel: Channel,
    /// Its bytes. They are gone when the handler returns.
    pub bytes: &'a [u8],
    pub(crate) cost_bytes: u64,
    pub(crate) epoch: u32,
    pub(crate) link: &'a Arc<Link>,
    pub(crate) is_kept: &'a Cell<bool>,
}

impl Message<'_> {
    /// Says that the message is not consumed when the handler returns, but when the credit is dropped: the sender may send as much less
    /// until then. Of a lossy channel it has no effect, for such a channel has no credits.
    ///
    /// # Panics
    /// If it was called for this message before.
    #[must_use]
    pub fn keep(&self) -> Credit {
        assert!(!self.is_kept.replace(true), "one message, one credit");
        Credit {
            link: Arc::clone(self.link),
            channel: self.channel,
            bytes: self.cost_bytes,
            epoch: self.epoch,
        }
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, channel, bytes, .. } = self;
        f.debug_struct("Message")
            .field("from", from)
            .field("channel", channel)
            .field("bytes", &bytes.len())
            .finish()
    }
}

/// Room of a channel that a message takes which is not consumed yet; given back when dropped.
pub struct Credit {
    link: Arc<Link>,
    channel: Channel,
    bytes: u64,
    epoch: u32,
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.link.give_back(self.channel, self.bytes, self.epoch);
    }
}

impl fmt::Debug for Credit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credit").field("channel", &self.channel).field("bytes", &self.bytes).finish()
    }
}
