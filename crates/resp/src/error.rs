//! What can be wrong with received bytes.
//!
//! A [`ProtocolError`] is the client's fault and ends its connection: after it nobody knows where the
//! next request starts. Its text is what the client is told, without the leading `-ERR `.

use thiserror::Error;

/// A request that cannot be understood or is larger than allowed; the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// An inline request went on for longer than the limit without a line end.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// It is the beginning of a handshake of TLS.
    #[error("Protocol error: TLS is not spoken on this port")]
    Tls,
    /// A quote of an inline request was not closed, or closed in the middle of a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The line that holds the number of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    CountLineTooLong,
    /// The number of arguments is no integer, or above the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// More arguments than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// The line that holds the length of an argument does not end.
    #[error("Protocol error: too big bulk count string")]
    LengthLineTooLong,
    /// An argument does not start with `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.got))]
    ExpectedBulk {
        /// The byte that stood in its place.
        got: u8,
    },
    /// The length of an argument is no integer, negative, or above the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
    /// A longer argument than a client may send before it has authenticated.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    /// An argument is not followed by CR LF, so its length was wrong.
    #[error("Protocol error: expected CRLF after bulk string")]
    ExpectedLineEnd,
    /// The request as a whole is above the limit.
    #[error("Protocol error: request exceeds the limit of {limit_bytes} bytes")]
    RequestTooBig {
        /// The limit that was in force.
        limit_bytes: usize,
    },
}

/// A reply that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The first byte of a value names no type.
    #[error("unknown type byte {0:#04x}")]
    UnknownType(u8),
    /// A length or an integer is malformed or negative where it must not be.
    #[error("malformed number or length")]
    BadNumber,
    /// A string is not followed by CR LF.
    #[error("missing line end")]
    MissingLineEnd,
    /// Arrays in arrays in arrays, beyond what any server sends.
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
}
