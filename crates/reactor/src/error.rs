//! What a caller can do about a failed start or a refused move.

use std::io;

/// Why a reactor did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Choose another address, or stop what listens there.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address or path as given.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The machine gave no poller, no descriptor or no thread.
    #[error("cannot start {what}: {source}")]
    System {
        /// What was being made.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A setting is out of its bounds.
    #[error("{0}")]
    Options(&'static str),
}

/// Why a connection was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// It is closed, or never was.
    #[error("no connection with id {0}")]
    UnknownConnection(u64),
    /// No such loop.
    #[error("no loop {index}: there are {count}, from 0")]
    UnknownLoop {
        /// What was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// Connections of the connector `threads` own their thread.
    #[error("connections move only under the connector 'epoll'")]
    Connector,
}
