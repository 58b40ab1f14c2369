//! What each sync took and made durable, as histograms.
//!
//! Whoever syncs notes it under a lock that is held only to move a pointer: a reader adds up on its own side. 60 KiB, twice
//! from the first reading on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;

/// Distributions over all syncs of the open segment since the start; two digits.
#[derive(Clone, Debug)]
pub struct SyncFigures {
    /// Time of write and sync together, in nanoseconds: steps of 1 us, a minute at most.
    pub nanos: Histogram<u64>,
    /// Sum of them, exact.
    pub nanos_sum: u64,
    /// Records that became durable together.
    pub records: Histogram<u64>,
    /// Sum of them, exact.
    pub records_sum: u64,
    /// Bytes of the batches that became durable together, headers and padding included.
    pub bytes: Histogram<u64>,
    /// Sum of them, exact.
    pub bytes_sum: u64,
}

impl Default for SyncFigures {
    fn default() -> Self {
        let histogram = |least, most| Histogram::new_with_bounds(least, most, 2).expect("a test makes one");
        SyncFigures {
            nanos: histogram(NANOS_STEP, NANOS_MAX),
            nanos_sum: 0,
            records: histogram(1, RECORDS_MAX),
            records_sum: 0,
            bytes: histogram(BYTES_STEP, BYTES_MAX),
            bytes_sum: 0,
        }
    }
}

impl SyncFigures {
    fn note(&mut self, nanos: u64, records: u64, bytes: u64) {
        self.nanos.saturating_record(nanos);
        self.records.saturating_record(records);
        self.bytes.saturating_record(bytes);
        self.nanos_sum += nanos;
        self.records_sum += records;
        self.bytes_sum += bytes;
    }

    fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.nanos, &other.nanos),
            (&mut self.records, &other.records),
            (&mut self.bytes, &other.bytes),
        ] {
            own.add(other).expect("the same bounds");
        }
        self.nanos_sum += other.nanos_sum;
        self.records_sum += other.records_sum;
        self.bytes_sum += other.bytes_sum;
    }
}

/// The live figures.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// Since somebody asked last.
    fresh: Mutex<Box<SyncFigures>>,
    /// Before that; none until somebody asks. Locked before `fresh`.
    total: Mutex<Option<Box<SyncFigures>>>,
}

impl Syncs {
    /// Notes a sync that made `records`, of `bytes` with their headers, durable.
    pub(crate) fn note(&self, nanos: u64, records: u64, bytes: u64) {
        lock(&self.fresh).note(nanos, records, bytes);
    }

    /// All syncs so far.
    pub(crate) fn read(&self) -> SyncFigures {
        let mut total = lock(&self.total);
        let empty = Box::default();
        let fresh = std::mem::replace(&mut *lock(&self.fresh), empty);
        let total = total.get_or_insert_default();
        total.add(&fresh);
        SyncFigures::clone(total)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const NANOS_STEP: u64 = 1_024;
const NANOS_MAX: u64 = 60_000_000_000;
const RECORDS_MAX: u64 = 1 << 24;
const BYTES_STEP: u64 = 64;
const BYTES_MAX: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_between_two_readings_are_added_to_those_before() {
        let syncs = Syncs::default();
        for round in 1..=3 {
            syncs.note(100_000, 16, 4_096);
            syncs.note(u64::MAX >> 8, u64::MAX >> 8, u64::MAX >> 8);
            let figures = syncs.read();
            assert_eq!(
                (figures.nanos.len(), figures.records.len(), figures.bytes.len()),
                (2 * round, 2 * round, 2 * round)
            );
            assert_eq!(figures.records.count_at(16), round);
            assert_eq!(figures.records_sum, round * (16 + (u64::MAX >> 8)));
        }
    }

    #[test]
    fn histograms_take_what_the_header_says() {
        let figures = SyncFigures::default();
        let slots = figures.nanos.distinct_values()
            + figures.records.distinct_values()
            + figures.bytes.distinct_values();
        assert_eq!(slots * size_of::<u64>(), 60 * 1_024);
    }
}
