//! What each command does that is on more than data: one function a command, one file a group.

pub(crate) mod acl;
pub(crate) mod backup;
pub(crate) mod capture;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod debug;
pub(crate) mod digest;
pub(crate) mod function;
pub(crate) mod info;
pub(crate) mod kill;
pub(crate) mod latency;
mod loops;
pub(crate) mod memory;
pub(crate) mod pubsub;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod slowlog;
pub(crate) mod topology;
mod topology_args;
pub(crate) mod topology_show;
pub(crate) mod tracking;
pub(crate) mod transactions;
pub(crate) mod trials;
pub(crate) mod tx;
