//! Connections to servers that speak the Redis protocol, for programs that are clients of one.
//!
//! | module | what |
//! |---|---|
//! | [`target`] | where a server is, and who we are there |
//! | [`stream`] | its bytes, plain or with TLS |
//! | [`client`] | a blocking connection: a request, and its answer |
//! | [`link`] | a connection on a thread of its own, for who must not wait: requests in, replies out, reconnects |
//!
//! Out of scope: what requests mean.

pub mod client;
pub mod link;
mod replies;
pub mod stream;
pub mod target;

pub use client::{Client, ClientError};
pub use link::{Event, Link, Loss, Options};
pub use stream::Stream;
pub use target::{Protocol, Secured, Target, TargetError};
