//! Connections to servers that speak the Redis protocol, for programs that are clients of one.
//!
//! | module | what |
//! |---|---|
//! | [`target`] | where a server is, and who we are there |
//! | [`link`] | a connection on a thread of its own, for who must not wait: requests in, replies out, reconnects |
//!
//! Out of scope: what requests mean; TLS.

pub mod link;
pub mod target;

pub use link::{Event, Link, Options, is_too_long};
pub use target::{Protocol, Target};
