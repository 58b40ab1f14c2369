//! A capture that runs, and what of it is on its way to the connection that gets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capture::Ending;
use clock::Nanos;

use super::what::Plan;

/// A capture.
#[derive(Debug)]
pub(crate) struct Running {
    /// Never 0.
    pub(crate) number: u64,
    /// The connection that gets it.
    pub(crate) client: u64,
    pub(crate) plan: Plan,
    pub(crate) started: Nanos,
    /// Bytes of chunks that were posted and not taken.
    pub(crate) posted_bytes: AtomicU64,
    /// What follows is written by the loop of the connection that gets it, and `dropped` by all.
    pub(crate) bytes: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// Turns on their way to who captures.
#[derive(Debug)]
pub struct Chunk {
    pub(crate) running: Arc<Running>,
    pub(crate) loop_index: usize,
    pub(crate) records: u32,
    pub(crate) bytes: Arc<Vec<u8>>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.running.posted_bytes.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

/// The end of a capture, on its way to who captures.
#[derive(Debug)]
pub struct Last {
    pub(crate) running: Arc<Running>,
    pub(crate) ending: Ending,
    pub(crate) length: Duration,
}
