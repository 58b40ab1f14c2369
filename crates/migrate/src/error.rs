//! Why a transfer ended before its end.

use connection::ClientError;

/// By what can be done about it.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Another file is to be named, or this one mended.
    #[error("{0}")]
    Input(String),
    /// The server that has the keys is to be looked at.
    #[error("{0}")]
    Source(String),
    /// The server that takes them is.
    #[error("{0}")]
    Target(#[from] ClientError),
    /// Other options are needed.
    #[error("{0}")]
    Options(String),
    /// It was told to end.
    #[error("ended by a signal; {0}")]
    Told(String),
}
