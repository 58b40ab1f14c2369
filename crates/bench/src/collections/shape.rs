//! How the parts measure: what the command line says.

use std::path::PathBuf;
use std::time::Duration;

use super::sides::Peer;
use super::types::{Setting, Type};

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Elements of the collections; none: as the part does by default.
    pub elements: Option<u64>,
    /// Collections of `rates`, as the digits of their number: 3 are 1,000 of them, 0 is one.
    pub collection_digits: usize,
    /// Measured runs of each side.
    pub runs: usize,
    /// Length of a run of `rates` and `types`.
    pub duration: Duration,
    /// Hashes of `write-amplification`, which share its elements.
    pub hashes: u64,
    /// Clients that wait.
    pub waiters: usize,
    /// `memory.limit` of the second half of `cold-reads`, in MiB.
    pub memory_limit_mib: u64,
    /// Loops of our server; 0: as it chooses.
    pub loops: usize,
    /// Servers that are measured beside it.
    pub peers: Vec<Peer>,
    /// Types of `types`.
    pub types: Vec<Type>,
    /// Settings of `types`.
    pub settings: Vec<Setting>,
    /// Where the servers' folders are created and removed.
    pub folder: PathBuf,
}
