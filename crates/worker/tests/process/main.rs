//! Topologies through real threads: what is counted, lost, bounded and stopped.
//!
//! Tests wait for what the spout is told, never for time to pass.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod failures;
mod fixture;
mod limits;
mod parts;
mod stop;
mod times;
mod words;
