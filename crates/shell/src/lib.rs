//! Components of topologies that are processes in any language: Apache Storm's multilang protocol, and the children that speak it.
//!
//! ```text
//!  component (thread of its task)  --tuples, commands-->  supervisor (its own thread)  --stdin-->   child
//!                                  <----- events -------  frames, heartbeats           <--stdout--
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`framing`], [`message`] | what a child says: messages that end with a line `end`, JSON |
//! | [`speak`], [`handshake`] | what a child is told |
//! | [`pulse`] | whether a child still answers |
//!
//! What is above has no I/O, and takes time as an argument.
//!
//! Invariants
//!   1. A message, a line of the log, and all that waits for a child or for its component have a bound in bytes.
//!   2. What a child sends is refused as an error that says what was wrong; it never ends the process.
//!
//! Out of scope: MessagePack.
//! Source: the protocol is that of Apache Storm 2.8, as `pystorm` speaks it.

pub mod framing;
pub mod handshake;
mod json;
pub mod message;
pub mod pulse;
pub mod speak;

pub use message::{Emit, Garbage, Level, Message};
