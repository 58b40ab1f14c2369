//! The Redis protocol, versions 2 and 3, as bytes in and bytes out.
//!
//! A server reads *requests* and writes *replies*; a client, a test or a load generator does the
//! opposite. Both directions are here and neither does any I/O.
//!
//! | direction | type | notes |
//! |---|---|---|
//! | request, server side | [`RequestParser`] into [`Args`] | incremental, copies no value |
//! | reply, server side | [`Writer`] | one call, two protocol versions |
//! | request, client side | [`encode_command`] | always an array of bulk strings |
//! | reply, client side | [`decode_value`], [`skip_value`], [`ValueEnd`] | owned values; depth is bounded |
//!
//! # Layout of a request
//!
//! ```text
//! *<count>\r\n  then <count> times  $<length>\r\n<length bytes>\r\n      array of bulk strings
//! anything else up to \n                                                  inline, split as in a shell
//! ```
//!
//! # Invariants
//!
//! 1. What a parse yields depends on the bytes alone, never on how they were cut into reads.
//! 2. No length is trusted: memory grows with the bytes that arrived, not with those announced.
//! 3. A byte is looked at once, however slowly its request arrives (the body of a bulk string: never).
//! 4. What a client sends can produce an error, never a panic.
//!
//! Out of scope: what commands mean, sockets, TLS. Texts of protocol errors are those of Redis 7.

mod args;
mod error;
mod inline;
mod number;
mod request;
mod value;
mod writer;

pub use args::{Args, ArgsIter, ArgsView};
pub use error::{DecodeError, ProtocolError};
pub use number::parse_i64;
pub use request::{Limits, Parsed, RequestParser};
pub use value::{Value, ValueEnd, decode_value, encode_command, skip_value};
pub use writer::{Writer, double_text};
