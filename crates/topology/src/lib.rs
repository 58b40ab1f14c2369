//! Streams processed by a graph of spouts and bolts: what a user writes, and the core, without I/O.
//!
//! ```text
//!  definition -> Plan (checked, numbered) -> Assignment (task -> worker), Ranges (key -> task)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`definition`] | what a user writes: components, streams, subscriptions with groupings, settings |
//! | [`plan`], [`problem`] | the definition checked, its parts numbered; what can be wrong with it |
//! | [`component`], [`builder`] | what a user writes: spouts, bolts; a definition together with its code |
//! | [`value`], [`mod@values`], [`grouping`] | a value; a tuple's values in one buffer; which tasks get it |
//! | [`anchor`], [`tracker`] | what ties a tuple to its spout batch; what a spout task has not finished |
//! | [`parcel`], [`channel`] | what tasks send each other; order and credits of one channel |
//! | [`wire`] | the bytes of all this between two processes |
//! | [`spout`], [`bolt`] | one task: queues, credits, parcels, ticks, moves; `emitter` is what both send with |
//! | [`changes`], [`epochs`] | what a task changes in an epoch; exactly-once: one group of all tasks, new generations |
//! | [`past`] | what an exactly-once spout has emitted, also with another number of tasks |
//! | [`statistics`] | what components have done, added up over tasks and workers |
//! | [`tap`] | a look at what a component emits |
//! | [`lifecycle`] | activate, deactivate, kill with a wait |
//! | [`assignment`], [`ranges`] | which worker runs a task; which task owns a key |
//!
//! Time and randomness are arguments; nothing here has a thread or a clock: equal inputs give equal results.
//!
//! Out of scope: threads, links between workers, processes (crate `worker`).
//! Source: Apache Storm (Toshniwal et al. 2014); docs/adr/0032-topologies.md.

pub mod anchor;
pub mod assignment;
#[cfg(test)]
mod bench;
pub mod bolt;
pub mod builder;
pub mod changes;
pub mod channel;
pub mod component;
pub mod definition;
mod emitter;
pub mod epochs;
pub mod grouping;
pub mod ids;
pub mod lifecycle;
pub mod message;
pub mod nearest;
pub mod parcel;
pub mod past;
pub mod plan;
pub mod problem;
pub mod random;
pub mod ranges;
pub mod spout;
pub mod statistics;
pub mod tap;
mod ticks;
pub mod tracker;
pub mod value;
pub mod values;
pub mod wire;

pub use emitter::{Emitted, Wiring};
pub use plan::Plan;
