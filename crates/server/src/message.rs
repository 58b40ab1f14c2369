//! What connections say to each other, and the seam to the reactor that carries it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use reactor::{ActiveReport, BudgetReport, Connector, LoopStats};
use store::Prepared;

use crate::capture::{Chunk, Last};
use crate::long::Done;
use crate::pubsub::{Payload, Weight};
use crate::tx::chain;

/// Posted to a connection from another thread.
#[derive(Debug)]
pub enum Message {
    /// What a command waits for was read.
    Fetched(Prepared),
    /// Try the parked command again.
    Retry,
    /// CLIENT UNBLOCK; with `true` the command answers with an error.
    Unblock(bool),
    /// A message was published.
    Published(Arc<Published>),
    /// A line of MONITOR.
    Monitor(Arc<Line>),
    /// Records of a capture.
    Captured(Chunk),
    /// A capture is over.
    CaptureEnd(Last),
    /// What a statement came to, and those that were run right behind it.
    Answered(VecDeque<chain::Answer>),
    /// A long command has run, or was stopped.
    LongDone(Box<Done>),
    /// Work on a thread of its own is done.
    Done(Result<(), String>),
}

/// A published message for one channel or pattern.
#[derive(Debug)]
pub struct Published {
    pub(crate) pattern: Option<Arc<[u8]>>,
    pub(crate) channel: Arc<[u8]>,
    pub(crate) payload: Arc<Payload>,
    /// What its publisher had seen: it must not arrive before that is durable.
    pub(crate) ticket: u64,
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

/// What became of connections that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepts {
    pub(crate) accepted: u64,
    /// There were too many.
    pub(crate) refused: u64,
    /// For want of descriptors or memory.
    pub(crate) failures: u64,
}

/// The other connections.
pub(crate) trait Peers: Send + Sync {
    /// Gives a message to a connection; `false` when it has ended.
    fn post(&self, id: u64, message: Message) -> bool;
    /// Ends a connection soon.
    fn kill(&self, id: u64) -> bool;
    /// Has a connection change loops.
    fn move_connection(&self, id: u64, loop_index: usize) -> Result<(), String>;
    /// How many loops are active.
    fn active_loops(&self) -> ActiveReport;
    /// Counters of the loops.
    fn loops(&self) -> Vec<Arc<LoopStats>>;
    /// Messages that a loop has not taken yet.
    fn mailbox_depth(&self, loop_index: usize) -> usize;
    /// What all connections keep, and what was done about it.
    fn budget(&self) -> BudgetReport;
    /// Whether that is too much. One load.
    fn is_pressed(&self) -> bool;
    /// What became of connections that came.
    fn accepts(&self) -> Accepts;
    /// Wakes the loops that hold replies.
    fn wake_released(&self);
    /// How sockets meet threads, which need not be what the setting says.
    fn connector(&self) -> Connector;
    /// The TCP port.
    fn port(&self) -> u16;
}

impl fmt::Debug for dyn Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peers")
    }
}
