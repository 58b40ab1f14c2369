//! What tasks send each other, and what a caller has to carry.

use crate::anchor::Report;
use crate::channel::{Credit, Forward};
use crate::ids::TaskId;
use crate::value::ValueError;

/// A message on its way.
///
/// Messages of one sender and receiver must arrive in order or be lost with all that follow on the same link; a link that is new begins with what
/// `on_connected` of the sender says. A message may arrive again at the same start of its receiver, where it is recognized, but not at a later one: links between
/// two runs of processes drop what they have delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who sends it.
    pub from: TaskId,
    /// Who gets it.
    pub to: TaskId,
    /// What it is.
    pub message: Message,
}

/// A message of a task to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Along the channel from sender to receiver.
    Forward(Forward),
    /// Against the direction of a channel.
    Credit(Credit),
    /// To the spout task of the roots.
    Reports(Vec<Report>),
}

/// What a component did that its definition does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// It emitted on a stream of another component.
    #[error("the component does not declare the stream that it emits on")]
    ForeignStream,
    /// It emitted on a stream that it does not declare.
    #[error("`{component}` emits on stream `{stream}`, which it does not declare")]
    UnknownStream {
        /// Who emits.
        component: String,
        /// The stream that it named.
        stream: String,
    },
    /// A tuple has not as many values as its stream has fields.
    #[error("a tuple of {values} values for a stream that declares {fields} fields")]
    Fields {
        /// Values of the tuple.
        values: usize,
        /// Fields of the stream.
        fields: usize,
    },
    /// It acknowledged, failed or used as an anchor what it does not have: twice, say.
    #[error("the tuple was acknowledged or failed before, or never delivered")]
    UnknownTuple,
    /// A tuple is larger than a channel may have in all.
    #[error("a tuple of {bytes} B is larger than channel_bytes_max ({limit} B)")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The setting.
        limit: u64,
    },
    /// A value cannot be part of a tuple.
    #[error(transparent)]
    Value(#[from] ValueError),
}
