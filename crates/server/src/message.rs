//! What connections say to each other.

use std::collections::VecDeque;
use std::sync::Arc;

use store::{Prepared, StoreError};
use ticket::Ticket;

use crate::capture::running::{Chunk, Last};
use crate::long::job::Done;
use crate::outcome::Served;
use crate::topologies::Checked;
use crate::topologies::trial::TrialEnd;
use crate::tracker::Invalidated;
use crate::traffic::{Payload, Weight};
use crate::tx::answer::Answer;

/// Posted to a connection from another thread.
#[derive(Debug)]
pub enum Message {
    /// What a command waits for was read.
    Fetched(Prepared),
    /// Try the parked command again.
    Retry,
    /// Its user may do other things now, or is there no more.
    UserChanged,
    /// CLIENT UNBLOCK ended WAIT or WAITAOF; with `true` the command answers with an error.
    Unblock(bool),
    /// A message was published.
    Published(Arc<Published>),
    /// Copies of keys are to be dropped, by the client `source` or by this one for it.
    Invalidated {
        /// The client that has copies.
        source: u64,
        /// Of which keys.
        invalidated: Arc<Invalidated>,
    },
    /// The client that is told of invalidations in place of this one has ended.
    RedirectionBroken,
    /// A line of MONITOR.
    Monitor(Arc<Line>),
    /// Records of a capture.
    Captured(Chunk),
    /// A capture is over.
    CaptureEnd(Last),
    /// What a statement came to, and those that were run right behind it.
    Answered(VecDeque<Answer>),
    /// A long command has run, or was stopped.
    LongDone(Box<Done>),
    /// Go on serving those who wait for elements, of whom this connection is one.
    Serve,
    /// What a command that waited for an element came to.
    Served(Box<Served>),
    /// Work on a thread of its own is done.
    Done(Result<(), StoreError>),
    /// A definition of a topology was checked: how long what is under way of it may take, or what is wrong.
    Checked(Result<Checked, String>),
    /// The trial of a definition has ended.
    TrialEnded(Result<TrialEnd, String>),
}

/// A published message for one channel or pattern.
#[derive(Debug)]
pub struct Published {
    pub(crate) pattern: Option<Arc<[u8]>>,
    /// The channel is one of SSUBSCRIBE.
    pub(crate) is_shard: bool,
    pub(crate) channel: Arc<[u8]>,
    pub(crate) payload: Arc<Payload>,
    /// What its publisher had seen: it must not arrive before that is durable.
    pub(crate) ticket: Ticket,
    /// Counts until the last listener's loop took it.
    pub(crate) _weight: Weight,
}

/// A line of MONITOR, for all who listen.
#[derive(Debug)]
pub struct Line {
    pub(crate) bytes: Box<[u8]>,
    /// Counts until the last listener's loop took it.
    pub(crate) _weight: Weight,
}
