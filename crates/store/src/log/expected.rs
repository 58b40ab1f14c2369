//! How long records are, as far as a read has to know before it: one read of the device is enough where the guess is long enough, and a
//! second one makes the system read ahead what nobody wants.
//!
//! A running estimate for values and for changes of each keyspace: what 99 of 100 are shorter than. A longer record moves it up by 99 steps,
//! another down by one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::sought::Sought;

/// Estimates, by keyspace; several may share one.
#[derive(Debug)]
pub(super) struct Expected {
    payload_bytes: [AtomicUsize; SLOTS],
    second_reads: AtomicU64,
}

impl Default for Expected {
    fn default() -> Self {
        let payload_bytes = std::array::from_fn(|_| AtomicUsize::new(FIRST_BYTES));
        Self { payload_bytes, second_reads: AtomicU64::new(0) }
    }
}

impl Expected {
    /// How long the payload of `sought` is guessed to be.
    pub(super) fn payload_bytes(&self, sought: &Sought) -> usize {
        self.slot(sought).load(Ordering::Relaxed)
    }

    /// Its payload was `len` bytes long, where `guess` were read at first.
    pub(super) fn learn(&self, sought: &Sought, guess: usize, len: usize) {
        let next = if len > guess {
            self.second_reads.fetch_add(1, Ordering::Relaxed);
            guess + 99 * STEP_BYTES
        } else {
            guess - STEP_BYTES
        };
        // of readers that learn at once one counts
        self.slot(sought).store(next.clamp(LEAST_BYTES, MOST_BYTES), Ordering::Relaxed);
    }

    /// Reads of the device for the rest of a record.
    pub(super) fn second_reads(&self) -> u64 {
        self.second_reads.load(Ordering::Relaxed)
    }

    fn slot(&self, sought: &Sought) -> &AtomicUsize {
        let (keyspace, is_delta) = (sought.keyspace(), sought.is_delta());
        &self.payload_bytes[(2 * keyspace.0 as usize + usize::from(is_delta)) % SLOTS]
    }
}

const SLOTS: usize = 64;
/// By how much an estimate falls.
const STEP_BYTES: usize = 8;
/// Before anything is known.
const FIRST_BYTES: usize = 1_024;
/// A page of the device is read anyway.
const LEAST_BYTES: usize = 512;
/// Longer records are few, and their second read is a small part of their time.
const MOST_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use journal::Keyspace;

    use super::*;
    use crate::hash::KeyHash;
    use crate::testlog::at;

    #[test]
    fn records_of_a_keyspace_are_read_at_once_after_a_few() {
        let expected = Expected::default();
        let sought = |keyspace| Sought::base(at(1), Keyspace(keyspace), KeyHash(0));
        let mut lens = (0..10_000).map(|n| 2_000 + n * 7 % 1_000);
        for len in lens.by_ref() {
            let guess = expected.payload_bytes(&sought(3));
            expected.learn(&sought(3), guess, len);
        }
        assert!(expected.second_reads() < 300, "{} of 10,000", expected.second_reads());
        let guess = expected.payload_bytes(&sought(3));
        assert!((2_500..4_500).contains(&guess), "{guess} B");
        assert_eq!(expected.payload_bytes(&sought(4)), FIRST_BYTES, "another keyspace");
    }
}
