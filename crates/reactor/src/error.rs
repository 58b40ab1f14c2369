//! What a caller can do about a failed start, a failed connection or a refused move.

use std::io;
use std::time::Duration;

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
    /// Nobody lives there now.
    #[error(
        "loop {index} is parked: {active} loops are active, from 0 (setting loops: 0 adapts their number, a count fixes it)"
    )]
    ParkedLoop {
        /// What was asked for.
        index: usize,
        /// How many loops are active.
        active: usize,
    },
    /// Connections of the connector `threads` own their thread.
    #[error("connections do not move under the connector 'threads'")]
    Connector,
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Start the server, or correct the address.
    #[error("nobody listens there: {0}")]
    Refused(io::Error),
    /// Look for a firewall, or for a server that is overrun; or give it more time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// No such loop.
    #[error("no loop {0}")]
    UnknownLoop(usize),
    /// The system refuses: no descriptor, no free port, no such network.
    #[error("{0}")]
    System(io::Error),
}

impl ConnectError {
    /// What the system's `error` means to who gave `timeout`.
    pub(crate) fn from_system(error: io::Error, timeout: Duration) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Self::Refused(error),
            // What a unix socket says whose backlog stays full.
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::TimedOut(timeout),
            _ => Self::System(error),
        }
    }
}
