//! Counters of commands: how many, how long, how they failed.
//!
//! One block for each loop, so that loops do not share cache lines; INFO and LATENCY add them up.
//! Under the connector `threads` all connections share one block, hence the atomic additions.
//!
//! Latency buckets are powers of two of microseconds split in four, from below 1 us to above 1 s.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use std::collections::BTreeMap;

use clock::Nanos;

/// Counters of all commands.
#[derive(Debug)]
pub(crate) struct Stats {
    loops: Box<[Box<[CommandStats]>]>,
    /// Hits and misses of each loop.
    lookups: Box<[Lookups]>,
    /// Errors by their first word.
    errors: Mutex<BTreeMap<String, u64>>,
    /// Totals as INFO found them at least a second ago, and what they grew by a second then.
    rates: Mutex<Rates>,
    /// Most used memory that INFO has found.
    pub(crate) used_bytes_peak: AtomicU64,
    pub(crate) connections_received: AtomicU64,
    pub(crate) error_replies: AtomicU64,
    pub(crate) fetches: AtomicU64,
    pub(crate) waits_for_credits: AtomicU64,
    pub(crate) fetches_given_up: AtomicU64,
    pub(crate) waits_for_listeners: AtomicU64,
    pub(crate) monitors_cut: AtomicU64,
}

/// Totals at a moment, and how fast they grew before.
#[derive(Debug, Default)]
struct Rates {
    at: Nanos,
    totals: [u64; 3],
    per_second: [f64; 3],
}

/// Keys looked for in one loop; a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Counters of one command in one loop.
#[derive(Debug, Default)]
pub(crate) struct CommandStats {
    nanos: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// Calls by the time they took; their sum is the number of calls, which nobody counts twice.
    histogram: OnceLock<Box<[AtomicU64; BUCKETS]>>,
}

/// Sum over the loops.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) calls: u64,
    pub(crate) micros: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    pub(crate) histogram: [u64; BUCKETS],
}

impl Stats {
    pub(crate) fn new(loops: usize, commands: usize) -> Self {
        let block = || (0..commands).map(|_| CommandStats::default()).collect();
        Stats {
            loops: (0..loops.max(1)).map(|_| block()).collect(),
            lookups: (0..loops.max(1)).map(|_| Lookups::default()).collect(),
            errors: Mutex::default(),
            rates: Mutex::default(),
            used_bytes_peak: AtomicU64::new(0),
            connections_received: AtomicU64::new(0),
            error_replies: AtomicU64::new(0),
            fetches: AtomicU64::new(0),
            waits_for_credits: AtomicU64::new(0),
            fetches_given_up: AtomicU64::new(0),
            waits_for_listeners: AtomicU64::new(0),
            monitors_cut: AtomicU64::new(0),
        }
    }

    /// Counts a call that took `nanos`.
    #[inline]
    pub(crate) fn call(&self, loop_index: usize, command: u16, nanos: u64, failed: bool) {
        let stats = &self.loops[loop_index % self.loops.len()][usize::from(command)];
        stats.nanos.fetch_add(nanos, Ordering::Relaxed);
        let histogram = stats.histogram.get_or_init(|| Box::new([const { AtomicU64::new(0) }; BUCKETS]));
        histogram[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        if failed {
            stats.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts keys that were found, and not.
    #[inline]
    pub(crate) fn lookups(&self, loop_index: usize, (hits, misses): (u32, u32)) {
        let lookups = &self.lookups[loop_index % self.lookups.len()];
        if hits > 0 {
            lookups.hits.fetch_add(hits.into(), Ordering::Relaxed);
        }
        if misses > 0 {
            lookups.misses.fetch_add(misses.into(), Ordering::Relaxed);
        }
    }

    /// Keys that were found, and not, by commands that read.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        self.lookups.iter().fold((0, 0), |(hits, misses), lookups| {
            (hits + lookups.hits.load(Ordering::Relaxed), misses + lookups.misses.load(Ordering::Relaxed))
        })
    }

    /// Counts a call that was refused before it ran.
    pub(crate) fn reject(&self, loop_index: usize, command: u16) {
        self.loops[loop_index % self.loops.len()][usize::from(command)]
            .rejected
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an error reply; `text` starts with its code.
    pub(crate) fn error(&self, text: &[u8]) {
        self.error_replies.fetch_add(1, Ordering::Relaxed);
        let code: String = text
            .iter()
            .take(ERROR_CODE_BYTES_MAX)
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .map(|byte| char::from(*byte))
            .collect();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERROR_CODES_MAX || errors.contains_key(&code) {
            *errors.entry(code).or_default() += 1;
        }
    }

    /// Errors by code.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known of a command; `None` when it was never called or refused.
    pub(crate) fn summary(&self, command: u16) -> Option<Summary> {
        let mut sum = Summary { calls: 0, micros: 0, rejected: 0, failed: 0, histogram: [0; BUCKETS] };
        let mut nanos = 0;
        for block in &self.loops {
            let stats = &block[usize::from(command)];
            nanos += stats.nanos.load(Ordering::Relaxed);
            sum.rejected += stats.rejected.load(Ordering::Relaxed);
            sum.failed += stats.failed.load(Ordering::Relaxed);
            if let Some(histogram) = stats.histogram.get() {
                for (total, count) in sum.histogram.iter_mut().zip(histogram.iter()) {
                    *total += count.load(Ordering::Relaxed);
                }
            }
        }
        sum.calls = sum.histogram.iter().sum();
        sum.micros = nanos / 1_000;
        (sum.calls + sum.rejected > 0).then_some(sum)
    }

    /// By how much commands, bytes in and bytes out grow a second: between the last INFO that is at least a second old
    /// and this one. Nothing samples them while nobody asks.
    pub(crate) fn rates(&self, now: Nanos, totals: [u64; 3]) -> [f64; 3] {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.since(rates.at).as_secs_f64();
        if since >= 1.0 {
            let former = rates.totals;
            for ((rate, former), total) in rates.per_second.iter_mut().zip(former).zip(totals) {
                *rate = total.saturating_sub(former) as f64 / since;
            }
            (rates.at, rates.totals) = (now, totals);
        }
        rates.per_second
    }

    /// Calls of all commands.
    pub(crate) fn calls(&self) -> u64 {
        self.loops.iter().map(|block| calls_of(block)).sum()
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset(&self) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for counter in [
            &self.connections_received,
            &self.error_replies,
            &self.fetches,
            &self.waits_for_credits,
            &self.fetches_given_up,
            &self.waits_for_listeners,
            &self.monitors_cut,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in self.lookups.iter().flat_map(|lookups| [&lookups.hits, &lookups.misses]) {
            counter.store(0, Ordering::Relaxed);
        }
        for stats in self.loops.iter().flat_map(|block| block.iter()) {
            for counter in [&stats.nanos, &stats.rejected, &stats.failed] {
                counter.store(0, Ordering::Relaxed);
            }
            for bucket in stats.histogram.get().into_iter().flat_map(|histogram| histogram.iter()) {
                bucket.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Summary {
    /// Microseconds that `permille` of the calls stayed below.
    pub(crate) fn percentile_us(&self, permille: f64) -> f64 {
        let total: u64 = self.histogram.iter().sum();
        let rank = (permille / 1_000.0 * total as f64).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.histogram.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return upper_us(index);
            }
        }
        0.0
    }

    /// Calls at or below each power of two of microseconds, up to the one that has all.
    pub(crate) fn by_powers(&self) -> Vec<(u64, u64)> {
        let total: u64 = self.histogram.iter().sum();
        let mut seen = 0;
        let mut powers = Vec::new();
        for (index, counts) in self.histogram.chunks(SPLIT).enumerate() {
            seen += counts.iter().sum::<u64>();
            if seen > 0 {
                powers.push((1 << index, seen));
            }
            if seen == total {
                break;
            }
        }
        powers
    }
}

fn calls_of(block: &[CommandStats]) -> u64 {
    let histograms = block.iter().filter_map(|stats| stats.histogram.get());
    histograms.flat_map(|histogram| histogram.iter()).map(|count| count.load(Ordering::Relaxed)).sum()
}

/// Bucket of a time: group `g` holds times above 2^(g-1) us and up to 2^g us, in four parts.
fn bucket(nanos: u64) -> usize {
    let quarters = nanos.saturating_sub(1) / 250;
    if quarters < SPLIT as u64 {
        return quarters as usize;
    }
    let power = quarters.ilog2() as usize;
    let part = ((quarters >> (power - 2)) & 3) as usize;
    ((power - 1) * SPLIT + part).min(BUCKETS - 1)
}

/// Upper end of a bucket in microseconds.
fn upper_us(index: usize) -> f64 {
    let (group, part) = (index / SPLIT, index % SPLIT);
    if group == 0 {
        return (part + 1) as f64 * 0.25;
    }
    (1u64 << (group - 1)) as f64 * (1.0 + (part + 1) as f64 / SPLIT as f64)
}

/// Parts of each power of two.
const SPLIT: usize = 4;
/// 2^25 us are half a minute; all above is one bucket.
pub(crate) const BUCKETS: usize = 26 * SPLIT;
/// An error's code is a word.
const ERROR_CODE_BYTES_MAX: usize = 32;
/// So many different codes are counted.
const ERROR_CODES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_at_or_below_the_end_of_its_bucket_and_above_the_one_before() {
        for nanos in (1..4_000).chain((1..100).map(|n| n * 98_765)).chain([1_000_000_000, u64::MAX]) {
            let index = bucket(nanos);
            let micros = nanos as f64 / 1_000.0;
            assert!(index == BUCKETS - 1 || micros <= upper_us(index), "{nanos} in {index}");
            assert!(index == 0 || micros > upper_us(index - 1), "{nanos} in {index}");
        }
    }

    #[test]
    fn percentiles_and_powers_agree_with_what_was_counted() {
        let stats = Stats::new(2, 1);
        (0..99).for_each(|_| stats.call(0, 0, 900, false));
        stats.call(1, 0, 100_000, true);
        let sum = stats.summary(0).expect("called");
        assert_eq!((sum.calls, sum.failed, sum.micros), (100, 1, 189));
        assert!((sum.percentile_us(500.0) - 1.0).abs() < 0.01);
        assert!(sum.percentile_us(999.0) >= 100.0);
        assert_eq!(sum.by_powers().first(), Some(&(1, 99)));
        assert_eq!(sum.by_powers().last(), Some(&(128, 100)));
        stats.reset();
        assert!(stats.summary(0).is_none());
    }
}
