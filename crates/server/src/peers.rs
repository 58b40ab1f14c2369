//! The other connections: the seam to the reactor, and what each part of the server needs of it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use reactor::{ActiveReport, BudgetReport, Connector, HandshakeCounts, LoopStats, MoveError};

use crate::holds::Hold;
use crate::message::Message;

/// The connections of a server; none before the reactor has started.
#[derive(Debug, Default)]
pub(crate) struct Connections(OnceLock<Box<dyn Peers>>);

impl Connections {
    /// Connects the server with its connections. Once, before the first of them opens.
    pub(crate) fn attach(&self, peers: Box<dyn Peers>) {
        let attached = self.0.set(peers);
        debug_assert!(attached.is_ok(), "attached twice");
    }

    /// Gives a message to a connection; `false` when it has ended.
    pub(crate) fn post(&self, id: u64, message: Message) -> bool {
        self.get().is_some_and(|peers| peers.post(id, message))
    }

    /// The connections; absent in tests without sockets.
    pub(crate) fn get(&self) -> Option<&dyn Peers> {
        self.0.get().map(|peers| &**peers)
    }

    /// How sockets meet threads: what serves, which need not be what the setting asks for. Nothing while nobody serves.
    pub(crate) fn connector(&self) -> String {
        self.get().map_or_else(String::new, |peers| peers.connector().to_string())
    }
}

/// What became of connections that came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepts {
    pub(crate) accepted: u64,
    /// There were too many.
    pub(crate) refused: u64,
    /// For want of descriptors or memory.
    pub(crate) failures: u64,
    pub(crate) handshakes: HandshakeCounts,
}

/// The other connections.
pub(crate) trait Peers: Send + Sync {
    /// Gives a message to a connection; `false` when it has ended.
    fn post(&self, id: u64, message: Message) -> bool;
    /// Ends a connection soon.
    fn kill(&self, id: u64) -> bool;
    /// Has each thread that runs callbacks drop a clone of `hold` when those have ended that run now.
    fn pass(&self, hold: &Hold);
    /// Has a connection change loops.
    fn move_connection(&self, id: u64, loop_index: usize) -> Result<(), MoveError>;
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
