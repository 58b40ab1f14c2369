//! Streams: entries by identifier, and groups of consumers that read them. How they lie in the store's ordered map.
//!
//! ```text
//!  key                                   value
//!  c | group len u32 | group | consumer  seen u64 | active u64                        a consumer, and when it asked, and got something (0: never), in ms; behind them a count (`counts`)
//!  e | id                                 (len u32 | field or value) x 2n              an entry
//!  g | group                             last delivered id | entries read u64         u64::MAX: not known; behind them counts
//!  i | producer len u32 | producer | id  entry's id | added u64 ms                     an entry that a producer named so, to know it again
//!  k                                     seconds u64 | most u64 | named u64 | again u64  how long and how many of those are known, and counters
//!  m                                     last id | greatest deleted id | added u64    of the whole stream; always there
//!  o | producer len u32 | producer | entry's id   the producer's name for it              the same by age
//!  p | group len u32 | group | id        see `pending`                              entries that consumers have not acknowledged, from this id on
//! ```
//!
//! An id is ms u64 | seq u64. All numbers are big-endian: the order of the keys is that of the numbers.
//!
//! Out of scope: what commands answer (`handlers::streams`, `handlers::groups`).

mod counts;
mod end;
mod id;
mod moved;
pub(crate) mod pending;
mod producers;
mod rdb;

pub(crate) use counts::Counts;
pub use counts::kept_counts;
pub(crate) use end::add_at_end;
pub(crate) use id::{Id, IdError, Wanted};
pub use moved::{move_group, remove_group};
pub(crate) use pending::{Pending, is_block};
pub(crate) use producers::{Tracking, automatic_name};
pub(crate) use rdb::{RdbReading, write_rdb};

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

use store::{Element, KeyedChange, STREAM_ENTRY, Sequence, Stop};

use pending::Repended;

/// What is known of a stream as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Of the newest entry that there ever was.
    pub(crate) last: Id,
    pub(crate) max_deleted: Id,
    /// Entries that were ever added.
    pub(crate) added: u64,
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) last_delivered: Id,
    /// Entries that it was given, those that are gone included; `None`: not known.
    pub(crate) read: Option<u64>,
}

/// A consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub(crate) seen_ms: u64,
    /// 0: never.
    pub(crate) active_ms: u64,
}

/// A stream, to read. Without entries and groups if there is none.
#[derive(Clone, Copy)]
pub(crate) struct Stream<'a, 's>(Sequence<'a, 's>);

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) id: Id,
    value: &'a [u8],
}

/// What is changed of a stream, in order: keys with their values, or without if they go.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    changes: Vec<Changed>,
    /// By group, what becomes of entries that are pending, or will be: changes of blocks once they are [settled](Changes::settled).
    pending: BTreeMap<Vec<u8>, Repended>,
    /// Elements that go before all that, by their numbers.
    pub(crate) oldest: Range<usize>,
}

/// How many of the bytes are a key, and how many behind them its value, if it has one from now on.
#[derive(Clone, Copy, Debug)]
struct Changed {
    key_len: usize,
    value_len: Option<usize>,
}

impl<'a, 's> Stream<'a, 's> {
    /// All its elements: entries, groups and what is pending.
    pub(crate) fn elements(&self) -> &Sequence<'a, 's> {
        &self.0
    }

    pub(crate) fn new(sequence: Sequence<'a, 's>) -> Self {
        Self(sequence)
    }

    /// Whether there is a stream.
    pub(crate) fn exists(self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn meta(self) -> Result<Meta, Stop> {
        let Some(value) = self.value(META)? else {
            // salvage may have lost it: new entries come behind those that are left
            let last = self.last()?.map_or(Id::MIN, |last| last.id);
            return Ok(Meta { last, max_deleted: Id::MIN, added: self.len()? as u64 });
        };
        Ok(Meta::read_from(value))
    }

    /// The value of a key.
    fn value(self, key: &[u8]) -> Result<Option<&'a [u8]>, Stop> {
        self.0.value(key)
    }

    /// The places of keys that begin with `prefix`.
    fn places(self, prefix: &[u8]) -> Result<Range<usize>, Stop> {
        let start = self.0.partition_point(|(key, _)| key < prefix)?;
        let end = self.0.partition_point(|(key, _)| key < prefix || key.starts_with(prefix))?;
        Ok(start..end)
    }

    /// The keys that begin with `prefix`, and their values.
    fn with_prefix(self, prefix: &[u8]) -> Result<Vec<Element<'a>>, Stop> {
        self.0.range(self.places(prefix)?)
    }

    /// Number of entries.
    pub(crate) fn len(self) -> Result<usize, Stop> {
        Ok(self.places(STREAM_ENTRY)?.len())
    }

    /// The places of the entries from `first` to `last`.
    pub(crate) fn range(self, first: Id, last: Id) -> Result<Range<usize>, Stop> {
        let (first, last) = (entry_key(first), entry_key(last));
        let start = self.0.partition_point(|(key, _)| key < &first[..])?;
        let end = self.0.partition_point(|(key, _)| key <= &last[..])?;
        Ok(start..end.max(start))
    }

    /// The entries at some places.
    pub(crate) fn entries(self, places: Range<usize>) -> Result<Vec<Entry<'a>>, Stop> {
        Ok(self.0.range(places)?.into_iter().map(Entry::of).collect())
    }

    /// The entries from `first` on, `most` at most.
    pub(crate) fn from(self, first: Id, most: usize) -> Result<Vec<Entry<'a>>, Stop> {
        let found = self.0.between(&entry_key(first), &entry_key(Id::MAX), most)?;
        Ok(found.into_iter().map(Entry::of).collect())
    }

    pub(crate) fn first(self) -> Result<Option<Entry<'a>>, Stop> {
        Ok(self.from(Id::MIN, 1)?.pop())
    }

    pub(crate) fn last(self) -> Result<Option<Entry<'a>>, Stop> {
        let last = self.0.last_up_to(&entry_key(Id::MAX))?;
        Ok(last.filter(|(key, _)| key.starts_with(STREAM_ENTRY)).map(Entry::of))
    }

    pub(crate) fn has(self, id: Id) -> Result<bool, Stop> {
        self.0.has(&entry_key(id))
    }

    pub(crate) fn entry(self, id: Id) -> Result<Option<Entry<'a>>, Stop> {
        Ok(self.value(&entry_key(id))?.map(|value| Entry { id, value }))
    }

    pub(crate) fn group(self, name: &[u8]) -> Result<Option<Group>, Stop> {
        Ok(self.value(&group_key(name))?.map(Group::read_from))
    }

    /// All groups, by name.
    pub(crate) fn groups(self) -> Result<Vec<(&'a [u8], Group)>, Stop> {
        let groups = self.with_prefix(b"g")?.into_iter();
        Ok(groups.map(|(key, value)| (&key[1..], Group::read_from(value))).collect())
    }

    pub(crate) fn consumer(self, group: &[u8], name: &[u8]) -> Result<Option<Consumer>, Stop> {
        Ok(self.value(&consumer_key(group, name))?.map(Consumer::read_from))
    }

    /// The consumers of a group, by name.
    pub(crate) fn consumers(self, group: &[u8]) -> Result<Vec<(&'a [u8], Consumer)>, Stop> {
        let prefix = group_prefix(b'c', group);
        let consumers = self.with_prefix(&prefix)?.into_iter();
        Ok(consumers.map(|(key, value)| (&key[prefix.len()..], Consumer::read_from(value))).collect())
    }

    /// Whether all of `groups` were given the entry `id` and have acknowledged it.
    pub(crate) fn is_done_with(self, groups: &[(&[u8], Group)], id: Id) -> Result<bool, Stop> {
        for (name, group) in groups {
            if id > group.last_delivered || self.pending(name, id)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What positions of groups are told by.
    pub(crate) fn extent(self) -> Result<Extent<'a, 's>, Stop> {
        let first = self.first()?.map(|first| first.id);
        Ok(Extent { stream: self, meta: self.meta()?, first, len: Cell::new(None) })
    }
}

/// How far a stream reaches, and what of it is still there.
pub(crate) struct Extent<'a, 's> {
    stream: Stream<'a, 's>,
    meta: Meta,
    /// The oldest entry.
    first: Option<Id>,
    /// Entries, once they have been counted, which they seldom need be.
    len: Cell<Option<u64>>,
}

impl Extent<'_, '_> {
    /// Entries.
    fn len(&self) -> Result<u64, Stop> {
        let len = self.len.get().map_or_else(|| self.stream.len().map(|len| len as u64), Ok)?;
        self.len.set(Some(len));
        Ok(len)
    }

    /// Whether no entry that is left was followed by one that was deleted: what is gone was the oldest.
    fn is_whole(&self) -> bool {
        let Meta { max_deleted, .. } = self.meta;
        max_deleted == Id::MIN || self.first.is_none_or(|first| max_deleted < first)
    }

    /// Whether entries behind `after` were deleted, as far as the greatest deleted id tells.
    fn has_gap_behind(&self, after: Id) -> bool {
        !self.is_whole() && after <= self.meta.max_deleted
    }

    /// Whether all entries that are left come behind `id`.
    fn is_ahead_of(&self, id: Id) -> bool {
        self.first.is_some_and(|first| id < first)
    }

    /// How many entries were ever added up to `id`; `None`: it cannot be told.
    pub(crate) fn added_up_to(&self, id: Id) -> Result<Option<u64>, Stop> {
        let meta = self.meta;
        let first = self.first.unwrap_or(Id::MIN);
        if meta.added == 0 {
            return Ok(Some(0));
        }
        if id == meta.last || (self.first.is_none() && id <= meta.last) {
            return Ok(Some(meta.added));
        }
        let is_whole = meta.max_deleted == Id::MIN || meta.max_deleted < first;
        if id > meta.last || !is_whole || id > first {
            return Ok(None);
        }
        let before = meta.added.saturating_sub(self.len()?);
        Ok(Some(if id < first { before } else { before.saturating_add(1) }))
    }

    /// What a group has read when it is given the entry `id`, the next behind the last one that it was given.
    pub(crate) fn read_with(&self, group: Group, id: Id) -> Result<Option<u64>, Stop> {
        match group.read {
            // what was removed before the group came to it is none of what it has read
            Some(read) if !self.is_ahead_of(group.last_delivered) && !self.has_gap_behind(id) => {
                Ok(Some(read.saturating_add(1)))
            }
            known if self.meta.added == 0 => Ok(known),
            _ => self.added_up_to(id),
        }
    }

    /// How many entries a group has still to read; `None`: it cannot be told. Less than 0 if it was told that it has read more than there were.
    pub(crate) fn lag(&self, group: Group) -> Result<Option<i64>, Stop> {
        let meta = self.meta;
        if meta.added == 0 || self.first.is_none() {
            return Ok(Some(0));
        }
        if self.is_ahead_of(group.last_delivered) && self.is_whole() {
            return Ok(Some(self.len()?.cast_signed()));
        }
        let read = match group.read {
            Some(read) if !self.has_gap_behind(group.last_delivered) => Some(read),
            _ => self.added_up_to(group.last_delivered)?,
        };
        Ok(read.map(|read| meta.added.wrapping_sub(read).cast_signed()))
    }
}

impl<'a> Entry<'a> {
    /// The entry in an element of a stream that is one.
    pub(crate) fn of((key, value): Element<'a>) -> Self {
        Self { id: Reader(&key[1..]).id(), value }
    }

    /// Its fields and values, one after the other, as they were given.
    pub(crate) fn parts(&self) -> Vec<&'a [u8]> {
        parts(self.value)
    }
}

impl Changes {
    /// None yet; the fields and values of an entry with so many bytes have room.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(2 * bytes + ROOM_BYTES), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.pending.is_empty()
    }

    /// Without what is pending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = KeyedChange<'_>> {
        let mut rest = &self.bytes[..];
        self.changes.iter().map(move |Changed { key_len, value_len }| {
            let (key, behind) = rest.split_at(*key_len);
            let (value, behind) = behind.split_at(value_len.unwrap_or(0));
            rest = behind;
            (key, value_len.map(|_| value))
        })
    }

    /// Lets the key have a value, both in parts.
    fn put<'p>(&mut self, key: &[&[u8]], value: impl Iterator<Item = &'p [u8]>) {
        let key_len = self.append(key.iter().copied());
        let value_len = Some(self.append(value));
        self.changes.push(Changed { key_len, value_len });
    }

    /// Lets the key go, which is in parts.
    fn delete(&mut self, key: &[&[u8]]) {
        let key_len = self.append(key.iter().copied());
        self.changes.push(Changed { key_len, value_len: None });
    }

    /// Returns how many bytes they are.
    fn append<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) -> usize {
        let before = self.bytes.len();
        parts.for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.len() - before
    }

    pub(crate) fn put_meta(&mut self, meta: Meta) {
        self.put(&[META], [&meta.bytes()[..]].into_iter());
    }

    /// Adds an entry.
    pub(crate) fn put_entry<'f>(&mut self, id: Id, parts: impl Iterator<Item = &'f [u8]>) {
        let key_len = self.append([&entry_key(id)[..]].into_iter());
        let before = self.bytes.len();
        append_parts(&mut self.bytes, parts);
        let value_len = Some(self.bytes.len() - before);
        self.changes.push(Changed { key_len, value_len });
    }

    pub(crate) fn delete_entry(&mut self, id: Id) {
        self.delete(&[&entry_key(id)]);
    }

    pub(crate) fn put_group(&mut self, name: &[u8], group: Group) {
        let read = group.read.unwrap_or(u64::MAX);
        let value = [&group.last_delivered.bytes()[..], &read.to_be_bytes()];
        self.put(&[&group_key(name)], value.into_iter());
    }

    pub(crate) fn delete_group(&mut self, stream: Stream<'_, '_>, name: &[u8]) -> Result<(), Stop> {
        self.delete(&[&group_key(name)]);
        for kind in [b'c', b'p'] {
            let keys = stream.with_prefix(&group_prefix(kind, name))?;
            keys.into_iter().for_each(|(key, _)| self.delete(&[key]));
        }
        Ok(())
    }

    pub(crate) fn put_consumer(&mut self, group: &[u8], name: &[u8], consumer: Consumer) {
        let value = [consumer.seen_ms.to_be_bytes(), consumer.active_ms.to_be_bytes()];
        self.put(&[&consumer_key(group, name)], value.iter().map(|field| &field[..]));
    }

    pub(crate) fn delete_consumer(&mut self, group: &[u8], name: &[u8]) {
        self.delete(&[&consumer_key(group, name)]);
    }

    pub(crate) fn put_pending(&mut self, group: &[u8], id: Id, pending: Pending) {
        self.note_pending(group, id, Some(pending));
    }

    fn note_pending(&mut self, group: &[u8], id: Id, pending: Option<Pending>) {
        match self.pending.get_mut(group) {
            Some(known) => _ = known.insert(id, pending),
            None => _ = self.pending.insert(group.to_vec(), Repended::from([(id, pending)])),
        }
    }

    /// Deletes what is pending of the entry `id` in all `groups`.
    pub(crate) fn delete_references(
        &mut self,
        stream: Stream<'_, '_>,
        groups: &[(&[u8], Group)],
        id: Id,
    ) -> Result<(), Stop> {
        for (name, _) in groups {
            if stream.pending(name, id)?.is_some() {
                self.delete_pending(name, id);
            }
        }
        Ok(())
    }

    pub(crate) fn delete_pending(&mut self, group: &[u8], id: Id) {
        self.note_pending(group, id, None);
    }
}

impl Meta {
    fn read_from(value: &[u8]) -> Self {
        let mut reader = Reader(value);
        Self { last: reader.id(), max_deleted: reader.id(), added: reader.u64() }
    }

    fn bytes(&self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        bytes[..16].copy_from_slice(&self.last.bytes());
        bytes[16..32].copy_from_slice(&self.max_deleted.bytes());
        bytes[32..].copy_from_slice(&self.added.to_be_bytes());
        bytes
    }
}

impl Group {
    fn read_from(value: &[u8]) -> Self {
        let mut reader = Reader(value);
        let (last_delivered, read) = (reader.id(), reader.u64());
        Self { last_delivered, read: (read != u64::MAX).then_some(read) }
    }
}

impl Consumer {
    fn read_from(value: &[u8]) -> Self {
        let mut reader = Reader(value);
        Self { seen_ms: reader.u64(), active_ms: reader.u64() }
    }
}

/// Reads numbers; what is missing is 0: a payload of RESTORE may hold anything.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u64(&mut self) -> u64 {
        let Some((bytes, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u64::from_be_bytes(*bytes)
    }

    fn id(&mut self) -> Id {
        Id { ms: self.u64(), seq: self.u64() }
    }
}

/// Appends the parts of an entry as they are kept.
fn append_parts<'p>(out: &mut Vec<u8>, parts: impl Iterator<Item = &'p [u8]>) {
    for part in parts {
        out.extend_from_slice(&(part.len() as u32).to_be_bytes());
        out.extend_from_slice(part);
    }
}

/// The parts of an entry.
fn parts(mut value: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((len, rest)) = value.split_first_chunk() {
        let Some((part, rest)) = rest.split_at_checked(u32::from_be_bytes(*len) as usize) else { break };
        parts.push(part);
        value = rest;
    }
    parts
}

fn entry_key(id: Id) -> [u8; 17] {
    let mut key = [0; 17];
    let (begin, rest) = key.split_at_mut(STREAM_ENTRY.len());
    begin.copy_from_slice(STREAM_ENTRY);
    rest.copy_from_slice(&id.bytes());
    key
}

fn group_key(name: &[u8]) -> Vec<u8> {
    [b"g", name].concat()
}

fn group_prefix(kind: u8, group: &[u8]) -> Vec<u8> {
    [&[kind], &(group.len() as u32).to_be_bytes()[..], group].concat()
}

fn consumer_key(group: &[u8], name: &[u8]) -> Vec<u8> {
    [&group_prefix(b'c', group)[..], name].concat()
}

fn pending_key(group: &[u8], id: Id) -> Vec<u8> {
    [&group_prefix(b'p', group)[..], &id.bytes()].concat()
}

const META: &[u8] = b"m";
/// Two identifiers and a number.
const META_BYTES: usize = 40;
/// What a stream's own fields and the identifier of an entry take.
const ROOM_BYTES: usize = 128;
