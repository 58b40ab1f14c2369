//! What is wrong with the bytes, and where.

use std::io;

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
#[error("{problem} (at byte {offset})")]
pub struct Error {
    /// Bytes that were read before: about where it is.
    pub offset: u64,
    /// What it is.
    pub problem: Problem,
}

/// What is wrong, by what can be done about it.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file or the connection is to be looked at.
    #[error("reading failed: {0}")]
    Io(#[from] io::Error),
    /// The rest of it is to be fetched.
    #[error("it ends in the middle")]
    Ends,
    /// Another file is to be named.
    #[error("no RDB file: it begins with neither REDIS nor VALKEY and a version")]
    NotRdb,
    /// A newer program is needed.
    #[error("version {0} is not known")]
    Version(u32),
    /// The same.
    #[error("a value of type {0} is not known, so that nothing behind it can be read")]
    Type(u8),
    /// It was damaged on its way.
    #[error("the checksum is {found:016x}, and {wanted:016x} is written")]
    Checksum {
        /// Of the bytes.
        found: u64,
        /// Behind them.
        wanted: u64,
    },
    /// No server writes that.
    #[error("damaged: {0}")]
    Damaged(&'static str),
    /// The limit is to be set higher.
    #[error("a string of {bytes} B is longer than {max} B")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// [`crate::Limits::string_bytes_max`].
        max: u64,
    },
}
