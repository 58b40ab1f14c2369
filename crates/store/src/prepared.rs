//! What a command fetched from disk before it took any lock.
//!
//! Records are kept by place. The index decides at execution whether a slot still names that place, so a record
//! that went stale meanwhile is simply not asked for.

use std::collections::{HashMap, HashSet};

use crate::error::StoreError;
use crate::large::{Ledger, Owned};
use crate::record;

/// Places to fetch, and what was fetched; travels from [`crate::Store::missing`] through
/// [`crate::Store::fetch`] to [`crate::Store::access`].
#[derive(Debug, Default)]
pub struct Prepared {
    wanted: HashSet<u64>,
    records: HashMap<u64, Result<Fetched, StoreError>>,
    reading: Option<Box<Reading>>,
}

/// What matters while records are read.
#[derive(Debug, Default)]
struct Reading {
    elsewhere: Vec<u64>,
    ledger: Ledger,
}

/// A record as read from its segment, its checksums verified. A delta's value is its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) kind: u8,
    pub(crate) key: Box<[u8]>,
    pub(crate) value: Owned,
    pub(crate) seq: u64,
    pub(crate) expiry_ms: u64,
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

    /// Forgets everything; keeps the room.
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

    /// Takes the list of what to fetch.
    pub(crate) fn take_wanted(&mut self) -> Vec<u64> {
        let mut places: Vec<u64> = std::mem::take(&mut self.wanted).into_iter().collect();
        // In the order of the disk, and the same in every run of a simulation.
        places.sort_unstable();
        places
    }

    /// Large values that are supplied from now on are shared, and counted in `ledger`.
    pub(crate) fn count_in(&mut self, ledger: &Ledger) {
        self.reading.get_or_insert_default().ledger = ledger.clone();
    }

    /// Adds what was read at `place`.
    pub(crate) fn supply(&mut self, place: u64, record: Result<Fetched, StoreError>) {
        let ledger = &self.reading.get_or_insert_default().ledger;
        let record = record.map(|fetched| Fetched { value: fetched.value.shared(ledger), ..fetched });
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
        if self.records.is_empty() { None } else { self.records.get(&place) }
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

    /// Whether anything was fetched.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }
}
