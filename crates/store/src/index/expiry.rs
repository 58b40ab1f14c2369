//! When the keys of one keyspace in one stripe expire: their deadlines in order, and what eviction samples.
//!
//! Invariants
//!   1. `keys` is the sum of the counts of all entries, and of the keys in `sums`.
//!   2. An entry counts at least one key.
//!
//! Out of scope: who removes the keys whose time has come (`tend`), which of them go early (`evict`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;

use collections::{Deadline, Moment};

use crate::hash::KeyHash;

/// Ordered times at which keys expire; about 40 bytes for each key that has one.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    entries: BTreeMap<ExpiryEntry, u32>,
    keys: u64,
    /// Keys and the sum of their deadlines, by the wall clock and by the server's.
    sums: [(u64, u128); 2],
    /// Up to where eviction has looked for victims.
    pub(crate) hand: Cell<Option<ExpiryEntry>>,
}

/// One deadline, and the hash of the key (or keys) that expire then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExpiryEntry {
    pub(crate) deadline: Deadline,
    bits: u32,
    tag: u8,
}

impl ExpiryEntry {
    /// The entry of a key with this hash that expires then.
    pub(crate) fn new(deadline: Deadline, hash: KeyHash) -> Self {
        Self { deadline, bits: (hash.bits() >> 32) as u32, tag: hash.tag() }
    }

    /// The hash of the key (or keys), as far as stripe `number` remembers it.
    pub(crate) fn hash(self, number: usize) -> KeyHash {
        KeyHash::from_parts(number, u64::from(self.bits) << 32, self.tag)
    }
}

impl Expiry {
    /// Adds a key's expiry, if it has one.
    pub(crate) fn insert(&mut self, expiry: Option<Deadline>, hash: KeyHash) {
        if let Some(deadline) = expiry {
            *self.entries.entry(ExpiryEntry::new(deadline, hash)).or_default() += 1;
            self.count(deadline, 1);
        }
    }

    /// Entries after `last`, with how many keys have them.
    pub(crate) fn after(&self, last: Option<ExpiryEntry>) -> impl Iterator<Item = (ExpiryEntry, u32)> + '_ {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range((from, Bound::Unbounded)).map(|(&entry, &count)| (entry, count))
    }

    /// Drops an entry that no key has any more, however often it was counted.
    pub(crate) fn drop_stale(&mut self, entry: ExpiryEntry) {
        let count = self.entries.remove(&entry).unwrap_or(0);
        self.count(entry.deadline, -i64::from(count));
    }

    /// Takes a key's expiry out, if it has one.
    pub(crate) fn remove(&mut self, expiry: Option<Deadline>, hash: KeyHash) {
        let Some(deadline) = expiry else { return };
        let entry = ExpiryEntry::new(deadline, hash);
        let Some(count) = self.entries.get_mut(&entry) else { return };
        *count -= 1;
        if *count == 0 {
            self.entries.remove(&entry);
        }
        self.count(deadline, -1);
    }

    /// Entries that have passed at `now`: times of the wall clock in order, then those of the server in order.
    pub(crate) fn due(&self, now: Moment) -> impl Iterator<Item = ExpiryEntry> + '_ {
        let clocks = self.each_clock().into_iter().zip(now.passed());
        clocks.flat_map(|(entries, until)| entries.take_while(move |entry| entry.deadline.raw() <= until))
    }

    /// Entries that are times of the wall clock, in order, and those that are times of the server, in order.
    pub(crate) fn each_clock(&self) -> [impl Iterator<Item = ExpiryEntry> + '_; 2] {
        let first = |deadline| ExpiryEntry { deadline, bits: 0, tag: 0 };
        let ends = [
            (first(Deadline::WALL_MIN), first(Deadline::SERVER_MIN)),
            (first(Deadline::SERVER_MIN), first(Deadline::MAX)),
        ];
        ends.map(|(from, to)| self.entries.range(from..to).map(|(&entry, _)| entry))
    }

    /// `change` keys more have this deadline.
    fn count(&mut self, deadline: Deadline, change: i64) {
        let (keys, sum) = &mut self.sums[usize::from(!deadline.is_wall())];
        debug_assert!(change >= 0 || *keys >= change.unsigned_abs(), "{change} keys of {keys}");
        self.keys = self.keys.saturating_add_signed(change);
        *keys = keys.saturating_add_signed(change);
        let at = u128::from(deadline.ms()) * u128::from(change.unsigned_abs());
        *sum = if change < 0 { sum.saturating_sub(at) } else { *sum + at };
    }

    /// Sum of the times that the keys have left at `now`; overdue ones count against it.
    pub(crate) fn left_ms(&self, now: Moment) -> i128 {
        let clocks = [now.unix().0, now.server_ms()];
        let left = |((keys, sum), now_ms): (&(u64, u128), u64)| {
            sum.cast_signed() - i128::from(*keys) * i128::from(now_ms)
        };
        self.sums.iter().zip(clocks).map(left).sum()
    }

    /// Number of keys that have an expiry.
    pub(crate) fn len(&self) -> u64 {
        self.keys
    }

    /// Looks whether the sums are those of the entries, and each of `deadlines`, those of hot keys, is counted. A cold slot does not know its own.
    ///
    /// # Panics
    /// If not: a bug.
    pub(crate) fn check(&self, deadlines: &BTreeMap<ExpiryEntry, u32>) {
        let mut sums = [(0, 0); 2];
        for (entry, count) in &self.entries {
            assert!(*count > 0, "nobody expires at {entry:?}");
            let (keys, sum) = &mut sums[usize::from(!entry.deadline.is_wall())];
            *keys += u64::from(*count);
            *sum += u128::from(entry.deadline.ms()) * u128::from(*count);
        }
        assert_eq!(self.sums, sums, "keys and the sum of their deadlines");
        assert_eq!(self.keys, sums[0].0 + sums[1].0, "keys that expire");
        for (entry, count) in deadlines {
            let known = self.entries.get(entry).copied().unwrap_or(0);
            assert!(known >= *count, "{count} keys expire at {entry:?}, {known} are known");
        }
    }
}
