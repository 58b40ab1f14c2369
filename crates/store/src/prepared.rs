//! What a command fetched from disk before it took any lock.
//!
//! Records are kept by place. The index decides at execution whether a slot still names that place, so a record
//! that went stale meanwhile is simply not asked for.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::StoreError;
use crate::large::{Ledger, Owned};
use crate::record;

/// Places to fetch, and what was fetched; travels from [`crate::Store::missing`] through
/// [`crate::Store::fetch`] to [`crate::Store::access`].
///
/// Most commands fetch nothing: an empty one costs nothing to make, which trees promise and hashed sets do not.
#[derive(Debug, Default)]
pub struct Prepared {
    wanted: BTreeSet<u64>,
    records: BTreeMap<u64, Result<Fetched, StoreError>>,
    reading: Option<Box<Reading>>,
}

/// What matters while records are read.
#[derive(Debug)]
struct Reading {
    elsewhere: Vec<u64>,
    ledger: Ledger,
    /// Bytes of values that may be kept.
    kept_bytes_max: u64,
    /// Values that are kept, and their bytes.
    kept: u32,
    kept_bytes: u64,
    /// Of these, what `ledger` holds for small values.
    small_bytes: u64,
}

impl Default for Reading {
    fn default() -> Self {
        let ledger = Ledger::default();
        Self {
            elsewhere: Vec::new(),
            ledger,
            kept_bytes_max: u64::MAX,
            kept: 0,
            kept_bytes: 0,
            small_bytes: 0,
        }
    }
}

impl Reading {
    /// `fetched` with its value shared if it is large, or left out if there is no room for it. Two are
    /// always kept: RENAME and LCS cannot do with less.
    fn keep(&mut self, fetched: Fetched) -> Fetched {
        let bytes = fetched.value.len() as u64;
        if self.kept >= 2 && self.kept_bytes + bytes > self.kept_bytes_max {
            return Fetched { value: Owned::from(&[][..]), left_out_bytes: bytes, ..fetched };
        }
        (self.kept, self.kept_bytes) = (self.kept + 1, self.kept_bytes + bytes);
        let value = fetched.value.shared(&self.ledger);
        if value.bytes().large().is_none() {
            self.ledger.add(bytes);
            self.small_bytes += bytes;
        }
        Fetched { value, ..fetched }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.ledger.take(self.small_bytes);
    }
}

/// A record as read from its segment, its checksums verified. A delta's value is its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) kind: u8,
    pub(crate) key: Box<[u8]>,
    pub(crate) value: Owned,
    pub(crate) seq: u64,
    pub(crate) expiry_ms: u64,
    /// Bytes of the value, which was left out: more was read already than one command may hold. 0: it is here.
    pub(crate) left_out_bytes: u64,
}

impl Fetched {
    /// Bytes of the value, left out or not.
    pub(crate) fn value_len(&self) -> u64 {
        self.value.len() as u64 + self.left_out_bytes
    }
}

/// Places that an access missed, to be added to a [`Prepared`].
#[derive(Debug, Default)]
pub struct Wanted(pub(crate) Vec<u64>);

impl Prepared {
    /// Adds what an access missed.
    pub fn want(&mut self, wanted: Wanted) {
        wanted.0.into_iter().for_each(|place| self.want_place(place));
    }

    /// Whether nothing waits to be fetched.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.wanted.clear();
        self.records.clear();
        self.reading = None;
    }

    /// Asks for the record at `place`, unless it is here already.
    pub(crate) fn want_place(&mut self, place: u64) {
        if !self.records.contains_key(&place) {
            self.wanted.insert(place);
        }
    }

    /// Takes the list of what to fetch, in the order of the disk.
    pub(crate) fn take_wanted(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.wanted).into_iter().collect()
    }

    /// Leaves out values beyond `bytes` together: a command that needs one of those is refused.
    pub fn bound_values(&mut self, bytes: u64) {
        self.reading.get_or_insert_default().kept_bytes_max = bytes;
    }

    /// Values that are supplied from now on are counted in `ledger`, large ones shared; those beyond
    /// `bytes` together are left out.
    pub(crate) fn count_in(&mut self, ledger: &Ledger, bytes: u64) {
        let reading = self.reading.get_or_insert_default();
        reading.kept_bytes_max = reading.kept_bytes_max.min(bytes);
        if reading.small_bytes == 0 {
            reading.ledger = ledger.clone();
        }
    }

    /// Bytes of values that are kept at most.
    pub(crate) fn values_bytes_max(&self) -> u64 {
        self.reading.as_ref().map_or(u64::MAX, |reading| reading.kept_bytes_max)
    }

    /// Adds what was read at `place`.
    pub(crate) fn supply(&mut self, place: u64, record: Result<Fetched, StoreError>) {
        let reading = self.reading.get_or_insert_default();
        let record = record.map(|fetched| reading.keep(fetched));
        self.records.insert(place, record);
    }

    /// Notes that `place` held something else, as it does once after its segment was recycled; returns false if
    /// that was noted before: then the index still says so, and it is damage.
    pub(crate) fn note_elsewhere(&mut self, place: u64) -> bool {
        let elsewhere = &mut self.reading.get_or_insert_default().elsewhere;
        let first = !elsewhere.contains(&place);
        if first {
            elsewhere.push(place);
        }
        first
    }

    /// What was read at `place`.
    pub(crate) fn record(&self, place: u64) -> Option<&Result<Fetched, StoreError>> {
        self.records.get(&place)
    }

    /// The key that was fetched and comes first; any will do, but always the same.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.records.values().flatten().map(|fetched| &*fetched.key).min()
    }

    /// Keys of the collections that were fetched.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &[u8]> {
        let images = self.records.values().flatten().filter(|fetched| fetched.kind == record::IMAGE);
        images.map(|fetched| &*fetched.key)
    }

    /// Number of records that were fetched.
    pub(crate) fn records_count(&self) -> usize {
        self.records.len()
    }

    /// Bytes of the values that were fetched and kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.reading.as_ref().map_or(0, |reading| reading.kept_bytes)
    }

    /// Whether anything was fetched.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }
}
