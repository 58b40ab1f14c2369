//! Topologies whose tasks, workers and supervisors are killed.

#[path = "../common/mod.rs"]
mod common;
mod tasks;
mod topologies;
mod workers;
