//! How much of each segment lives, and which segments are worth cleaning.
//!
//! Counters are hints: a lost or doubled count makes cleaning choose badly, never wrongly. What decides that a
//! segment is empty is a walk over its records against the index (`cleaner`).
//!
//! Invariants
//!   1. Counting takes no lock: it runs under the stripes' locks of every commit.
//!   2. A number below zero is read as zero.
//!
//! Out of scope: I/O; when to clean (`housekeeping::rules`), when copies may be made (`cleaner`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::index::delta::Delta;

/// Live records and bytes of each segment.
#[derive(Debug)]
pub(crate) struct Liveness {
    chunks: Box<[OnceLock<Box<[Counters]>>]>,
    /// Of all segments.
    bytes: AtomicI64,
}

#[derive(Debug, Default)]
struct Counters {
    records: AtomicI64,
    bytes: AtomicI64,
}

/// What lives in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Records that something points at.
    pub(crate) records: u64,
    /// Their bytes, headers and padding included.
    pub(crate) bytes: u64,
}

impl Liveness {
    /// Nothing lives yet.
    pub(crate) fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), bytes: AtomicI64::new(0) }
    }

    /// A record of `bytes` in `segment` came to life.
    pub(crate) fn on_live(&self, segment: u32, bytes: u64) {
        let counters = self.counters(segment);
        counters.records.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes as i64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// A record of `bytes` in `segment` died; 0 bytes means unknown and counts the segment's average.
    pub(crate) fn on_dead(&self, segment: u32, bytes: u64) {
        let bytes = if bytes == 0 { self.average_bytes(segment) } else { bytes };
        let counters = self.counters(segment);
        counters.records.fetch_sub(1, Ordering::Relaxed);
        counters.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// The record of `delta` died, unless another part of it counts.
    pub(crate) fn on_dead_delta(&self, delta: &Delta) {
        if let Some(bytes) = delta.counted_bytes() {
            self.on_dead(delta.address.segment().0, bytes);
        }
    }

    /// Replaces what is known of `segment`, after a walk has counted.
    pub(crate) fn set(&self, segment: u32, live: Live) {
        let counters = self.counters(segment);
        counters.records.store(live.records as i64, Ordering::Relaxed);
        let before = counters.bytes.swap(live.bytes as i64, Ordering::Relaxed);
        self.bytes.fetch_add(live.bytes as i64 - before, Ordering::Relaxed);
    }

    /// Bytes that live, in all segments.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// What lives in `segment`, as far as was counted.
    pub(crate) fn live(&self, segment: u32) -> Live {
        let counters = self.counters(segment);
        let records = counters.records.load(Ordering::Relaxed).max(0) as u64;
        let bytes = counters.bytes.load(Ordering::Relaxed).max(0) as u64;
        Live { records, bytes }
    }

    /// Looks whether the sum is that of the segments: for simulations, while nobody counts.
    ///
    /// # Panics
    /// If it is not: a bug.
    pub(crate) fn check(&self) {
        let counters = self.chunks.iter().filter_map(OnceLock::get).flatten();
        let bytes: i64 = counters.map(|counters| counters.bytes.load(Ordering::Relaxed)).sum();
        assert_eq!(self.bytes.load(Ordering::Relaxed), bytes, "live bytes of all segments");
    }

    fn average_bytes(&self, segment: u32) -> u64 {
        let live = self.live(segment);
        live.bytes.checked_div(live.records).unwrap_or(0)
    }

    fn counters(&self, segment: u32) -> &Counters {
        let (chunk, at) = (segment as usize / CHUNK_SEGMENTS, segment as usize % CHUNK_SEGMENTS);
        let fill = || (0..CHUNK_SEGMENTS).map(|_| Counters::default()).collect();
        // segment numbers have 28 bits (`object`), so wrapping never happens in a life of 16 EiB
        &self.chunks[chunk % CHUNKS].get_or_init(fill)[at]
    }
}

/// A sealed segment, as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Segment number.
    pub(crate) segment: u32,
    /// Bytes that its records take.
    pub(crate) used_bytes: u64,
    /// What lives.
    pub(crate) live: Live,
}

impl Candidate {
    /// Share of the segment's bytes that nothing points at, in percent.
    pub(crate) fn dead_percent(&self) -> u64 {
        if self.live.records == 0 || self.used_bytes == 0 {
            return 100;
        }
        100 - (self.live.bytes.min(self.used_bytes) * 100 / self.used_bytes)
    }
}

/// The segment to clean next, if any is worth it: the one with the largest dead share of at least
/// `dead_percent_min`; the older one of equals.
pub(crate) fn choose(candidates: &[Candidate], dead_percent_min: u64) -> Option<Candidate> {
    let worth = candidates.iter().filter(|candidate| candidate.dead_percent() >= dead_percent_min.max(1));
    worth.copied().max_by_key(|candidate| (candidate.dead_percent(), std::cmp::Reverse(candidate.segment)))
}

const CHUNK_SEGMENTS: usize = 1 << 14;
const CHUNKS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(segment: u32, live_percent: u64) -> Candidate {
        let live = Live { records: live_percent, bytes: live_percent * 10 };
        Candidate { segment, used_bytes: 1_000, live }
    }

    #[test]
    fn segment_with_most_dead_bytes_is_chosen_and_the_older_of_equals() {
        let all = [candidate(1, 80), candidate(2, 30), candidate(3, 30), candidate(4, 31)];
        assert_eq!(choose(&all, 50).map(|c| c.segment), Some(2));
        assert_eq!(choose(&all[..1], 50), None);
        assert_eq!(choose(&[candidate(9, 0)], 50).map(|c| c.dead_percent()), Some(100));
    }

    #[test]
    fn full_segment_is_never_chosen() {
        assert_eq!(choose(&[candidate(1, 100)], 0), None);
    }

    #[test]
    fn counters_follow_life_and_death_and_never_go_below_zero() {
        let liveness = Liveness::new();
        liveness.on_live(7, 100);
        liveness.on_live(7, 300);
        assert_eq!(liveness.live(7), Live { records: 2, bytes: 400 });
        liveness.on_dead(7, 0);
        assert_eq!(liveness.live(7), Live { records: 1, bytes: 200 });
        liveness.on_dead(7, 300);
        liveness.on_dead(7, 300);
        assert_eq!(liveness.live(7), Live::default());
        assert_eq!(liveness.live(1 << 27), Live::default());
    }
}
