//! The memory budget: what counts, what is dropped, what is refused.
//!
//! Counted: index pages and hot objects (`index`), and what others report in: journal buffers, connection
//! buffers. Past `memory.limit` a clock hand walks the stripes and drops clean hot values (their slot turns back
//! into a place) that nobody looked at since its last visit; when nothing can be dropped, effects that grow are
//! refused by name, while reads, removals and expiry changes go on.
//!
//! Invariant: a value whose effect is not released stays hot.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Stop, StoreError};
use crate::index::Index;

/// The budget.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    limit_bytes: AtomicU64,
    reported_bytes: AtomicU64,
}

/// Memory by parts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Index pages and hot objects.
    pub index_bytes: u64,
    /// Buffers that others reported in.
    pub reported_bytes: u64,
    /// The setting; 0 is none.
    pub limit_bytes: u64,
}

impl Memory {
    /// A budget of `limit_bytes`, 0 for none.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes: AtomicU64::new(limit_bytes), reported_bytes: AtomicU64::new(0) }
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Takes note of what buffers elsewhere hold now.
    pub(crate) fn report_buffers(&self, bytes: u64) {
        self.reported_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes above the limit, 0 within it.
    pub(crate) fn excess(&self, index: &Index) -> u64 {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        if limit_bytes == 0 { 0 } else { self.used(index).saturating_sub(limit_bytes) }
    }

    /// Refuses growth past the limit.
    pub(crate) fn admit(&self, index: &Index) -> Result<(), Stop> {
        if self.excess(index) == 0 {
            return Ok(());
        }
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        Err(StoreError::MemoryLimit { used_bytes: self.used(index), limit_bytes }.into())
    }

    /// Memory by parts.
    pub(crate) fn report(&self, index: &Index) -> MemoryReport {
        MemoryReport {
            index_bytes: index.memory_bytes(),
            reported_bytes: self.reported_bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
        }
    }

    fn used(&self, index: &Index) -> u64 {
        index.memory_bytes() + self.reported_bytes.load(Ordering::Relaxed)
    }
}
