//! A log that keeps nothing: what the protocol costs without a disk.
//!
//! Invariants
//!   1. A waiter hears `Ok` before [`DecisionLog::write`] returns, on the caller's thread.
//!   2. No lock, no allocation: its rate is the whole that the other logs are compared with.
//!
//! A new start finds no record, so that whatever was prepared is rolled back. The epoch is the caller's: nothing here remembers
//! one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::decision_log::{BORN_UNKNOWN, Cycle, DecisionLog, LogCounters, Opened, Refused, Waiter};
use crate::id::{NodeName, TxId};

/// The log.
#[derive(Debug)]
pub struct Volatile {
    node: NodeName,
    closed: AtomicBool,
    counts: [Count; SHARDS],
}

/// Counters on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count {
    records: AtomicU64,
    removed: AtomicU64,
    bytes: AtomicU64,
}

impl Volatile {
    /// A log of `node` that uses `epoch`: greater than every one before, as the caller knows.
    #[must_use]
    pub fn open(node: &NodeName, epoch: u32) -> Opened<Self> {
        let log = Self { node: node.clone(), closed: AtomicBool::new(false), counts: Default::default() };
        Opened { log: Arc::new(log), epoch, born: BORN_UNKNOWN, records: Vec::new() }
    }

    /// Whose log it is.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    fn count(&self, tx: TxId) -> &Count {
        &self.counts[tx.number as usize % SHARDS]
    }
}

impl DecisionLog for Volatile {
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Refused::Closed("it was closed".to_owned()));
        }
        let count = self.count(tx);
        count.records.fetch_add(1, Ordering::Relaxed);
        count.bytes.fetch_add(record.len() as u64, Ordering::Relaxed);
        waiter.on_logged(tx, Ok(()));
        Ok(None)
    }

    fn remove(&self, tx: TxId) {
        self.count(tx).removed.fetch_add(1, Ordering::Relaxed);
    }

    fn is_sound(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    fn counters(&self) -> LogCounters {
        let mut counters = LogCounters::default();
        for count in &self.counts {
            counters.records += count.records.load(Ordering::Relaxed);
            counters.removed += count.removed.load(Ordering::Relaxed);
            counters.bytes += count.bytes.load(Ordering::Relaxed);
        }
        counters
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Threads that count transactions of numbers that follow each other meet on different lines.
const SHARDS: usize = 16;
