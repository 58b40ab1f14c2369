//! Numbers for new collections: of those that are there no two have the same.
//!
//! ```text
//! | 0 | 55 bits: counted by this folder alone | 8 bits stripe |
//! | 1 | 24 bits term of the group's leader | 31 bits: counted in that term | 8 bits stripe |      kept for groups (ADR 0065)
//! ```
//!
//! Folders of before the first bit had a meaning have numbers of both forms.

use std::sync::atomic::{AtomicU64, Ordering};

use clock::Nanos;
use journal::Seq;

use crate::hash::KeyHasher;

/// Counts on from a number that is a hash of the newest effect and of the time at its start. No two of one start are equal. Those of
/// two starts hardly are; where the hashes are equal nothing became durable in between.
#[derive(Debug)]
pub(crate) struct Objects(AtomicU64);

impl Objects {
    /// Begins to count.
    pub(crate) fn new(hasher: &KeyHasher, newest: Seq, now: Nanos) -> Self {
        let start = [newest.0.to_le_bytes(), now.0.to_le_bytes()].concat();
        Self(AtomicU64::new(hasher.uncut(&start) as u64))
    }

    /// The next number, of a collection whose key is in this stripe: its lowest byte says so.
    pub(crate) fn next(&self, stripe: usize) -> u64 {
        // an odd step meets each number of 55 bits once
        let counted = self.0.fetch_add(STEP, Ordering::Relaxed);
        counted << 9 >> 1 | stripe as u64
    }
}

/// 2^64 over the golden ratio: numbers that follow each other are far apart.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_start_differ_and_name_their_stripe() {
        let objects = Objects::new(&KeyHasher::new(&[3; 16], 8), Seq(7), Nanos(9));
        let numbers: std::collections::HashSet<u64> = (0..10_000).map(|i| objects.next(i % 256)).collect();
        assert_eq!(numbers.len(), 10_000);
        assert_eq!(objects.next(0xa7) & 0xff, 0xa7);
        assert!(numbers.iter().all(|number| number >> 63 == 0), "the first bit is of groups");
        let later = Objects::new(&KeyHasher::new(&[3; 16], 8), Seq(8), Nanos(9));
        assert!((0..10_000).all(|i| !numbers.contains(&later.next(i % 256))));
    }
}
