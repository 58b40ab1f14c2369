//! Components of topologies that are processes in any language: Apache Storm's multilang protocol, and the children that speak it.
//!
//! ```text
//!  component (thread of its task)  --tuples, commands-->  its own thread            --stdin-->   child
//!                                  <----- events -------  frames, heartbeats           <--stdout--
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`codec`], `value` | how messages are written: JSON or MessagePack; the values of tuples in them |
//! | [`framing`], [`message`] | where a message of a child ends; what it says |
//! | [`speak`], [`handshake`] | what a child is told |
//! | [`pulse`] | whether a child still answers |
//! | [`child_thread`], `child`, `lines` | keeps a child running; one child, its pipes and its end; its standard error |
//! | `census` | how many processes a child has, and their memory |
//! | `held` | the tuples that a bolt's child has, and those that are told again after its end |
//! | [`bolt`], [`spout`], `kept` | the components; a child as they have it |
//! | [`mod@serve`] | the other side: a component of this program as the child of another one |
//!
//! The first four rows, and `held`, have no I/O, and take time as an argument.
//!
//! Invariants
//!   1. A message, a line of the log, and all that waits for a child or for its component have a bound in bytes.
//!   2. A child that takes more processes or memory than it may is ended, with all that it has started, within a second.
//!   3. What a child sends is refused as an error that says what was wrong; it never ends the process.
//!
//! Source: the protocol is that of Apache Storm 2.8, as `pystorm` speaks it.

pub mod bolt;
mod census;
mod child;
pub mod child_thread;
pub mod codec;
pub mod framing;
pub mod handshake;
mod held;
mod kept;
mod lines;
pub mod message;
pub mod pulse;
mod secret;
pub mod serve;
pub mod speak;
pub mod spout;
mod value;

pub use bolt::ShellBolt;
pub use child_thread::{Limits, Spec, wait_for_children};
pub use codec::Codec;
pub use message::{Emit, Garbage, Level, Message};
pub use secret::Secret;
pub use serve::serve;
pub use spout::ShellSpout;
