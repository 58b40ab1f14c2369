//! Messages between nodes: links that keep, acknowledge and bound what they carry.
//!
//! A *node* has a *link* to each other node that it declares. A link outlives its connections. It has *channels*, reliable or lossy
//! ([`Class`]). What a node takes to be sent is bounded by credits that the receiver gives, for each channel and for the link; what cannot be
//! taken is answered with the reason ([`SendError`]) and never dropped without a word.
//!
//! ```text
//!  Transport (tcp, zeromq, local, simulated) -> Session: one connection -> Link: sequences, credits, what is kept -> wire: chunks, frames
//! ```
//!
//! Invariants
//!   1. Between one run of a node and one run of its peer each reliable message arrives once, in the order of its channel.
//!   2. A lossy message arrives once or not at all.
//!   3. Every buffer has a bound ([`Settings`]).
//!   4. Beyond loopback nodes prove to each other who they are before anything else is read or sent ([`Security`]).
//!   5. [`wire`], links and sessions do no I/O and take time as an argument: what runs over sockets is what runs in simulation.
//!
//! Out of scope: who talks to whom and why (topologies, clusters).
//! Source: docs/adr/0033-transport.md.

mod backoff;
mod error;
mod identity;
mod link;
pub mod local;
mod message;
mod node;
mod rng;
mod security;
mod session;
mod settings;
pub mod simulated;
mod status;
mod sync;
pub mod tcp;
mod transport;
pub mod wire;
#[cfg(feature = "zeromq")]
pub mod zeromq;

pub use error::{BindError, LinkError, SendError};
pub use identity::{Channel, Class, Incarnation, NodeId};
pub use message::{Credit, Event, Message, Receive};
pub use node::Sender;
pub use security::{Pem, Refusal, Secret, Security, SecurityError, SecurityStatus};
pub use settings::{MESSAGE_COST_BYTES, SettingError, Settings};
pub use status::{LinkState, LinkStatus, Sent};
pub use transport::Transport;
