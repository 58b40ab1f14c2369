//! How much of each segment lives, and which segments are worth cleaning.
//!
//! Counters are hints: a lost or doubled count makes cleaning choose badly, never wrongly. What decides that a
//! segment is empty is a walk over its records against the index (`cleaner`).
//!
//! Invariants
//!   1. Counting takes no lock: it runs under the stripes' locks of every commit.
//!   2. A number below zero is read as zero.
//!
//! Out of scope: I/O; when copies may be made (`cleaner`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Live records and bytes of each segment.
#[derive(Debug)]
pub(crate) struct Liveness {
    chunks: Box<[OnceLock<Box<[Counters]>>]>,
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
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect() }
    }

    /// A record of `bytes` in `segment` came to life.
    pub(crate) fn on_live(&self, segment: u32, bytes: u64) {
        let counters = self.counters(segment);
        counters.records.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// A record of `bytes` in `segment` died; 0 bytes means unknown and counts the segment's average.
    pub(crate) fn on_dead(&self, segment: u32, bytes: u64) {
        let bytes = if bytes == 0 { self.average_bytes(segment) } else { bytes };
        let counters = self.counters(segment);
        counters.records.fetch_sub(1, Ordering::Relaxed);
        counters.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Replaces what is known of `segment`, after a walk has counted.
    pub(crate) fn set(&self, segment: u32, live: Live) {
        let counters = self.counters(segment);
        counters.records.store(live.records as i64, Ordering::Relaxed);
        counters.bytes.store(live.bytes as i64, Ordering::Relaxed);
    }

    /// What lives in `segment`, as far as was counted.
    pub(crate) fn live(&self, segment: u32) -> Live {
        let counters = self.counters(segment);
        let records = counters.records.load(Ordering::Relaxed).max(0) as u64;
        let bytes = counters.bytes.load(Ordering::Relaxed).max(0) as u64;
        Live { records, bytes }
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

/// What the disk holds, as the pace sees it. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUse {
    /// Records in all segments, dead and alive.
    pub(crate) log_bytes: u64,
    /// Records that live.
    pub(crate) live_bytes: u64,
    /// What the file system still has.
    pub(crate) available_bytes: u64,
    /// Largest size of a segment (`journal.segment_size`).
    pub(crate) segment_bytes: u64,
}

impl DiskUse {
    /// Whether space is more urgent than work.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.available_bytes < 8 * self.segment_bytes
    }
}

/// Below this a log is left as it is, however much of it is dead: a few keys that are overwritten all the time would
/// keep housekeeping busy for a saving that nobody sees.
pub(crate) fn small_log_bytes(segment_bytes: u64) -> u64 {
    2 * segment_bytes
}

/// How urgently to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Segments with less than this share dead are left alone.
    pub(crate) dead_percent_min: u64,
    /// Copy at most so many bytes a second.
    pub(crate) bytes_per_second: u64,
}

/// The pace at which to clean: `None` while little is dead.
///
/// It rises with the ratio of log to live data: from [`RATIO_START_PERCENT`] on at a trickle, at
/// [`RATIO_FULL_PERCENT`] and on a nearly full disk at full speed.
pub(crate) fn pace(disk: &DiskUse) -> Option<Pace> {
    let dead_bytes = disk.log_bytes.saturating_sub(disk.live_bytes);
    let nearly_full = disk.is_nearly_full();
    if disk.log_bytes < small_log_bytes(disk.segment_bytes) && !nearly_full {
        return None;
    }
    if dead_bytes < disk.segment_bytes.min(disk.log_bytes / 4 + 1) && !nearly_full {
        return None;
    }
    let ratio_percent = disk.log_bytes * 100 / disk.live_bytes.max(1);
    if nearly_full && dead_bytes > 0 {
        return Some(Pace { dead_percent_min: 5, bytes_per_second: PACE_FULL_BYTES });
    }
    if ratio_percent < RATIO_START_PERCENT {
        return None;
    }
    let over = (ratio_percent - RATIO_START_PERCENT).min(RATIO_FULL_PERCENT - RATIO_START_PERCENT);
    let rise = (PACE_FULL_BYTES - PACE_SLOW_BYTES) * over / (RATIO_FULL_PERCENT - RATIO_START_PERCENT);
    Some(Pace { dead_percent_min: 15, bytes_per_second: PACE_SLOW_BYTES + rise })
}

/// Log / live data from which cleaning begins, in percent.
pub(crate) const RATIO_START_PERCENT: u64 = 135;
/// Log / live data at which cleaning runs at full speed, in percent.
pub(crate) const RATIO_FULL_PERCENT: u64 = 170;
/// Bytes a second when little is dead.
const PACE_SLOW_BYTES: u64 = 4 << 20;
/// Bytes a second when the disk fills: two pieces of 256 KiB in flight measured 21-419 MB/s without hurting reads.
const PACE_FULL_BYTES: u64 = 200 << 20;
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

    #[test]
    fn pace_rises_with_what_is_dead_and_rests_when_nothing_is() {
        let disk = |log_bytes: u64| DiskUse {
            log_bytes: log_bytes << 20,
            live_bytes: 1_000 << 20,
            available_bytes: 1 << 40,
            segment_bytes: 64 << 20,
        };
        assert_eq!(pace(&disk(1_000)), None);
        assert_eq!(pace(&disk(1_300)), None);
        let (slow, fast) =
            (pace(&disk(1_400)).expect("some is dead"), pace(&disk(2_400)).expect("much is dead"));
        assert!(slow.bytes_per_second < fast.bytes_per_second);
        assert_eq!(fast.bytes_per_second, PACE_FULL_BYTES);
        let small = DiskUse { live_bytes: 1 << 20, ..disk(127) };
        assert_eq!(pace(&small), None, "a few keys that are overwritten all the time");
        assert!(pace(&DiskUse { live_bytes: 1 << 20, ..disk(128) }).is_some());
        let full = DiskUse { available_bytes: 1 << 20, ..disk(1_100) };
        assert_eq!(pace(&full).map(|pace| pace.bytes_per_second), Some(PACE_FULL_BYTES));
    }
}
