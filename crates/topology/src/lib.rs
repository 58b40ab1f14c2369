//! Streams processed by a graph of spouts and bolts: the core, without I/O.
//!
//! ```text
//!  definition -> Plan (checked, numbered) -> Assignment (task -> worker), Ranges (key -> task)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`definition`] | what a user writes: components, streams, subscriptions with groupings, settings |
//! | [`plan`], [`problem`] | the definition checked, its parts numbered; what can be wrong with it |
//! | [`values`], [`grouping`] | a tuple's values in one buffer; which tasks get it |
//! | [`anchor`], [`tracker`] | what ties a tuple to its spout batch; what a spout task has not finished |
//! | [`assignment`], [`ranges`] | which worker runs a task; which task owns a key |
//!
//! Time and randomness are arguments; nothing here has a thread or a clock: equal inputs give equal results.
//!
//! Out of scope: links between workers, processes, and what components run.
//! Source: Apache Storm (Toshniwal et al. 2014).

pub mod anchor;
pub mod assignment;
pub mod definition;
pub mod grouping;
pub mod ids;
mod nearest;
pub mod plan;
pub mod problem;
pub mod random;
pub mod ranges;
pub mod tracker;
pub mod values;

pub use plan::Plan;
