//! Packed entries: a collection in one run of bytes, the same in memory and in the log.
//!
//! ```text
//!  0 count u32
//!  4 form u8               how Redis would keep it: 0 integers, 1 listpack, 2 hash table; never goes back
//!  5 flags u8              bit 0 WIDE: offsets are u32
//!  6 0 u16
//!  8 tags                  u16 x count: bits of the keyed hash of the element, to look for it without reading entries
//!    offsets               u16 or u32 x count: where each entry begins in what follows, ascending, the first is 0
//!    entries               Map: key_len varint | value_len varint | key | value        Set: key_len varint | key
//! ```
//!
//! Entries are in the order in which elements were added. Numbers are little-endian; a varint has 7 bits a byte, the lowest first.
//! A change is logged as operations; those of one commit follow each other in one CHANGE:
//!
//! ```text
//! 1 PUT     tag u16 | key_len varint | value_len varint | key | value     of a Map: the element is this
//! 2 DELETE  tag u16 | key_len varint | key                                the element is gone
//! 3 ADD     tag u16 | key_len varint | key                                of a Set: the element is there
//! ```
//!
//! Invariants
//!   1. Elements are distinct. What [`Packed::check`] accepts can be read without a panic; it does not look for doubles.
//!   2. Folding the operations of an [`Edit`] into what it began with gives what it ended with, byte by byte.
//!
//! Weighed: sorted entries (Redis shows the order of insertion of small collections), a map that is built when a value is read (a fold
//! and an eviction would each be a conversion, and memory would hold both).
//! Out of scope: when a change is logged as operations (`access::collection`), what commands mean (`server`).

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// What entries consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Keys with values.
    Map,
    /// Keys alone.
    Set,
}

/// How Redis would keep a collection: what OBJECT ENCODING answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A few integers, ascending.
    Integers,
    /// A few short elements, in the order in which they were added.
    Listpack,
    /// Anything.
    Table,
}

/// A collection, to read.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    shape: Shape,
    form: Form,
    is_wide: bool,
    tags: &'a [u8],
    offsets: &'a [u8],
    entries: &'a [u8],
}

/// An element: key and value, which is empty in a [`Shape::Set`].
pub type Element<'a> = (&'a [u8], &'a [u8]);

impl<'a> Packed<'a> {
    /// An empty collection.
    #[must_use]
    pub fn empty(shape: Shape) -> Self {
        let form = if shape == Shape::Set { Form::Integers } else { Form::Listpack };
        Self { shape, form, is_wide: false, tags: &[], offsets: &[], entries: &[] }
    }

    /// The collection in `bytes`.
    ///
    /// # Panics
    /// When a later call reads what [`Packed::check`] would not have accepted. Values are checked when they are read from disk.
    #[must_use]
    pub fn new(shape: Shape, bytes: &'a [u8]) -> Self {
        Self::split(shape, bytes).expect("checked when it was read, or encoded here")
    }

    fn split(shape: Shape, bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let count = usize::try_from(u32::from_le_bytes([head[0], head[1], head[2], head[3]])).ok()?;
        let form = match head[4] {
            0 => Form::Integers,
            1 => Form::Listpack,
            2 => Form::Table,
            _ => return None,
        };
        let is_wide = head[5] & WIDE != 0;
        if head[5] & !WIDE != 0 || head[6..] != [0, 0] {
            return None;
        }
        let (tags, rest) = rest.split_at_checked(count.checked_mul(TAG_BYTES)?)?;
        let (offsets, entries) = rest.split_at_checked(count.checked_mul(offset_bytes(is_wide))?)?;
        Some(Self { shape, form, is_wide, tags, offsets, entries })
    }

    /// Whether `bytes` are a collection of this shape.
    #[must_use]
    pub fn check(shape: Shape, bytes: &'a [u8]) -> bool {
        let Some(packed) = Self::split(shape, bytes) else { return false };
        let mut end = 0;
        for at in 0..packed.len() {
            let parsed = (packed.offset(at) == end)
                .then(|| packed.entries.get(end..).and_then(|entry| parse(shape, entry)))
                .flatten();
            let Some((_, _, entry_bytes)) = parsed else { return false };
            end += entry_bytes;
        }
        end == packed.entries.len()
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tags.len() / TAG_BYTES
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// What entries consist of.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How Redis would keep it.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Element number `at`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn element(&self, at: usize) -> Element<'a> {
        let entry = &self.entries[self.offset(at)..];
        let (key, value, _) = parse(self.shape, entry).expect("entries were checked");
        (key, value)
    }

    /// The tag of element number `at`: 16 bits of its keyed hash.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn tag(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.tags[TAG_BYTES * at], self.tags[TAG_BYTES * at + 1]])
    }

    /// All elements, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Element<'a>> + use<'a> {
        let packed = *self;
        (0..packed.len()).map(move |at| packed.element(at))
    }

    /// Which element `key`, whose hash has `tag`, is. Time grows with the number of elements: 2 B of each are read.
    #[must_use]
    pub fn find(&self, tag: u16, key: &[u8]) -> Option<usize> {
        let wanted = tag.to_le_bytes();
        let (tags, _) = self.tags.as_chunks::<TAG_BYTES>();
        let mut from = 0;
        while let Some(next) = tags[from..].iter().position(|found| *found == wanted) {
            if self.element(from + next).0 == key {
                return Some(from + next);
            }
            from += next + 1;
        }
        None
    }

    /// All elements as operations with tag 0: what means the same under any key of the hash. [`Edit::load`] reads it.
    #[must_use]
    pub fn dump(&self) -> Vec<u8> {
        let mut edit = Edit::new(Self::empty(self.shape));
        for (key, value) in self.iter() {
            edit.note(edit.kind_to_add(), 0, key, (self.shape == Shape::Map).then_some(value));
        }
        edit.operations
    }

    fn offset(&self, at: usize) -> usize {
        let bytes = offset_bytes(self.is_wide);
        let field = &self.offsets[bytes * at..bytes * (at + 1)];
        match *field {
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => unreachable!("offsets have 2 or 4 bytes"),
        }
    }
}

/// Key, value and size of the entry at the front of `bytes`.
fn parse(shape: Shape, bytes: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    let (key_len, rest) = split_varint(bytes)?;
    let (value_len, rest) = match shape {
        Shape::Map => split_varint(rest)?,
        Shape::Set => (0, rest),
    };
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    Some((key, value, bytes.len() - rest.len()))
}

/// A collection that is being changed. What is done to it is noted as operations.
#[derive(Debug)]
pub struct Edit<'a> {
    shape: Shape,
    form: Form,
    /// What it began with.
    base: &'a [u8],
    /// What was done, and the bytes of what is new.
    operations: Vec<u8>,
    entries: Vec<Entry>,
    /// Entries that are not gone.
    count: usize,
    lookups: u32,
    /// Entries by their keys, from some lookups in many entries on.
    table: Option<Lookup>,
}

#[derive(Debug)]
struct Lookup {
    hasher: RandomState,
    table: HashTable<u32>,
}

/// Where an element's bytes lie: in what the edit began with, or in its operations.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u16,
    is_new: bool,
    is_gone: bool,
    key: (u32, u32),
    value: (u32, u32),
}

impl<'a> Edit<'a> {
    /// Begins with `packed`. Takes time that grows with its size.
    ///
    /// # Panics
    /// As [`Packed::new`].
    #[must_use]
    pub fn new(packed: Packed<'a>) -> Self {
        let mut entries = Vec::with_capacity(packed.len() + 1);
        for at in 0..packed.len() {
            let from = packed.offset(at);
            let (key, value, bytes) =
                parse(packed.shape, &packed.entries[from..]).expect("entries were checked");
            let value_at = from + bytes - value.len();
            let span = |at: usize, len: usize| (at as u32, len as u32);
            entries.push(Entry {
                tag: packed.tag(at),
                is_new: false,
                is_gone: false,
                key: span(value_at - key.len(), key.len()),
                value: span(value_at, value.len()),
            });
        }
        Self {
            shape: packed.shape,
            form: packed.form,
            base: packed.entries,
            operations: Vec::new(),
            count: entries.len(),
            entries,
            lookups: 0,
            table: None,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether anything was done.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !self.operations.is_empty()
    }

    /// What was done, for the log.
    #[must_use]
    pub fn operations(&self) -> &[u8] {
        &self.operations
    }

    /// As [`Edit::operations`], to keep.
    #[must_use]
    pub fn into_operations(self) -> Vec<u8> {
        self.operations
    }

    /// The value of `key`; empty in a [`Shape::Set`]. `None`: it is not there.
    pub fn get(&mut self, tag: u16, key: &[u8]) -> Option<&[u8]> {
        let at = self.find(tag, key)?;
        Some(self.bytes(self.entries[at], self.entries[at].value))
    }

    /// Lets `key` have `value`; returns whether it was not there.
    pub fn put(&mut self, tag: u16, key: &[u8], value: &[u8]) -> bool {
        debug_assert_eq!(self.shape, Shape::Map, "of a map");
        self.insert(PUT, tag, key, value)
    }

    /// Adds `key` to a set; returns whether it was not there.
    pub fn add(&mut self, tag: u16, key: &[u8]) -> bool {
        debug_assert_eq!(self.shape, Shape::Set, "of a set");
        self.find(tag, key).is_none() && self.insert(ADD, tag, key, &[])
    }

    /// Removes `key`; returns whether it was there.
    pub fn delete(&mut self, tag: u16, key: &[u8]) -> bool {
        let Some(at) = self.find(tag, key) else { return false };
        self.note(DELETE, tag, key, None);
        self.forget(at);
        true
    }

    /// The element that comes `nth` of those that are there, from 0 on.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn element(&self, nth: usize) -> Element<'_> {
        let entry = if self.count == self.entries.len() {
            self.entries[nth]
        } else {
            *self.entries.iter().filter(|entry| !entry.is_gone).nth(nth).expect("there are so many")
        };
        (self.bytes(entry, entry.key), self.bytes(entry, entry.value))
    }

    /// The collection as it is now. Time grows with its size.
    ///
    /// # Panics
    /// If it has more than 4 GiB: `value.max` is below that.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let there = || self.entries.iter().filter(|entry| !entry.is_gone);
        let sizes = there().map(|entry| self.entry_bytes(entry));
        let entries_bytes: usize = sizes.clone().sum();
        let is_wide = entries_bytes > usize::from(u16::MAX);
        let count = u32::try_from(self.count).expect("value.max bounds the number of elements");
        u32::try_from(entries_bytes).expect("value.max is below 4 GiB");
        let size = HEADER_BYTES + self.count * (TAG_BYTES + offset_bytes(is_wide)) + entries_bytes;
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[self.form as u8, if is_wide { WIDE } else { 0 }, 0, 0]);
        there().for_each(|entry| out.extend_from_slice(&entry.tag.to_le_bytes()));
        let mut offset = 0_u32;
        for size in sizes {
            out.extend_from_slice(&offset.to_le_bytes()[..offset_bytes(is_wide)]);
            offset += size as u32;
        }
        for entry in there() {
            put_varint(&mut out, entry.key.1);
            if self.shape == Shape::Map {
                put_varint(&mut out, entry.value.1);
            }
            out.extend_from_slice(self.bytes(*entry, entry.key));
            out.extend_from_slice(self.bytes(*entry, entry.value));
        }
        out
    }

    /// Adds the elements in `dump`, as [`Packed::dump`] made it; `tag_of` is [`crate::Access::tag`]. `None` when it is none, or has an element
    /// twice.
    pub fn load(&mut self, mut dump: &[u8], tag_of: impl Fn(&[u8]) -> u16) -> Option<()> {
        while !dump.is_empty() {
            let (operation, rest) = split_operation(dump)?;
            let fits = operation.kind == self.kind_to_add() && operation.tag == 0;
            if !fits || !self.insert(operation.kind, tag_of(operation.key), operation.key, operation.value) {
                return None;
            }
            dump = rest;
        }
        Some(())
    }

    fn kind_to_add(&self) -> u8 {
        match self.shape {
            Shape::Map => PUT,
            Shape::Set => ADD,
        }
    }

    /// Does what `operations` say; `None` when they are none, or of another shape.
    fn replay(&mut self, mut operations: &[u8]) -> Option<()> {
        while !operations.is_empty() {
            let (operation, rest) = split_operation(operations)?;
            let (tag, key) = (operation.tag, operation.key);
            match (operation.kind, self.shape) {
                (PUT, Shape::Map) => self.put(tag, key, operation.value),
                (ADD, Shape::Set) => self.add(tag, key),
                (DELETE, _) => self.delete(tag, key),
                _ => return None,
            };
            operations = rest;
        }
        Some(())
    }

    fn insert(&mut self, kind: u8, tag: u16, key: &[u8], value: &[u8]) -> bool {
        let known = self.find(tag, key);
        let at = self.note(kind, tag, key, (self.shape == Shape::Map).then_some(value));
        let span = |at: usize, len: usize| (at as u32, len as u32);
        let (key_span, value_span) = (span(at, key.len()), span(at + key.len(), value.len()));
        self.widen_form(key, value);
        let entry = Entry { tag, is_new: true, is_gone: false, key: key_span, value: value_span };
        if let Some(at) = known {
            self.entries[at] = entry;
            return false;
        }
        self.entries.push(entry);
        self.count += 1;
        self.widen_form_by_count();
        if let Some(mut lookup) = self.table.take() {
            lookup.insert(self, self.entries.len() - 1);
            self.table = Some(lookup);
        }
        true
    }

    fn forget(&mut self, at: usize) {
        if let Some(mut lookup) = self.table.take() {
            lookup.remove(self, at);
            self.table = Some(lookup);
        }
        self.entries[at].is_gone = true;
        self.count -= 1;
    }

    /// Notes an operation; returns where the key lies in the list.
    fn note(&mut self, kind: u8, tag: u16, key: &[u8], value: Option<&[u8]>) -> usize {
        self.operations.push(kind);
        self.operations.extend_from_slice(&tag.to_le_bytes());
        put_varint(&mut self.operations, key.len() as u32);
        if let Some(value) = value {
            put_varint(&mut self.operations, value.len() as u32);
        }
        let at = self.operations.len();
        self.operations.extend_from_slice(key);
        self.operations.extend_from_slice(value.unwrap_or_default());
        at
    }

    fn find(&mut self, tag: u16, key: &[u8]) -> Option<usize> {
        self.lookups += 1;
        if self.table.is_none() && self.lookups > LOOKUPS_FEW && self.entries.len() > ENTRIES_FEW {
            self.table = Some(Lookup::of(self));
        }
        let is_it =
            |entry: &Entry| entry.tag == tag && !entry.is_gone && self.bytes(*entry, entry.key) == key;
        match &self.table {
            None => self.entries.iter().position(is_it),
            Some(lookup) => {
                let hash = lookup.hasher.hash_one(key);
                lookup.table.find(hash, |at| is_it(&self.entries[*at as usize])).map(|at| *at as usize)
            }
        }
    }

    fn bytes(&self, entry: Entry, (at, len): (u32, u32)) -> &[u8] {
        let source = if entry.is_new { &self.operations[..] } else { self.base };
        &source[at as usize..(at + len) as usize]
    }

    fn entry_bytes(&self, entry: &Entry) -> usize {
        let lens = match self.shape {
            Shape::Map => varint_bytes(entry.key.1) + varint_bytes(entry.value.1),
            Shape::Set => varint_bytes(entry.key.1),
        };
        lens + entry.key.1 as usize + entry.value.1 as usize
    }

    /// What an element of this size or kind makes of the form, as in Redis with its defaults.
    fn widen_form(&mut self, key: &[u8], value: &[u8]) {
        if key.len().max(value.len()) > LISTPACK_VALUE_BYTES_MAX {
            self.form = Form::Table;
        } else if self.form == Form::Integers && !is_integer(key) {
            self.form = Form::Listpack;
        }
    }

    fn widen_form_by_count(&mut self) {
        let (shape, count) = (self.shape, self.count);
        self.form = match self.form {
            Form::Integers if count > INTEGERS_MAX => Form::Table,
            Form::Listpack if shape == Shape::Set && count > SET_LISTPACK_MAX => Form::Table,
            Form::Listpack if shape == Shape::Map && count > MAP_LISTPACK_MAX => Form::Table,
            form => form,
        };
    }
}

impl Lookup {
    fn of(edit: &Edit<'_>) -> Self {
        let mut lookup =
            Self { hasher: RandomState::default(), table: HashTable::with_capacity(edit.entries.len()) };
        let there = edit.entries.iter().enumerate().filter(|(_, entry)| !entry.is_gone);
        there.for_each(|(at, _)| lookup.insert(edit, at));
        lookup
    }

    fn hash(&self, edit: &Edit<'_>, at: usize) -> u64 {
        let entry = edit.entries[at];
        self.hasher.hash_one(edit.bytes(entry, entry.key))
    }

    fn insert(&mut self, edit: &Edit<'_>, at: usize) {
        let (hash, hasher) = (self.hash(edit, at), self.hasher.clone());
        self.table.insert_unique(hash, at as u32, |other| {
            let entry = edit.entries[*other as usize];
            hasher.hash_one(edit.bytes(entry, entry.key))
        });
    }

    fn remove(&mut self, edit: &Edit<'_>, at: usize) {
        let hash = self.hash(edit, at);
        if let Ok(found) = self.table.find_entry(hash, |other| *other as usize == at) {
            found.remove();
        }
    }
}

/// Whether Redis would keep these bytes as an integer: a decimal i64 without anything that it would not print.
fn is_integer(bytes: &[u8]) -> bool {
    let Some(number) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()) else {
        return false;
    };
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_plain = digits.first().is_some_and(|first| first.is_ascii_digit());
    is_plain && (digits[0] != b'0' || (number == 0 && bytes == b"0"))
}

/// What `value` becomes by some bodies of CHANGE, oldest first; `None` when one does not fit.
pub(crate) fn fold(shape: Shape, value: &[u8], changes: &[&[u8]]) -> Option<Vec<u8>> {
    let mut edit = Edit::new(Packed::split(shape, value)?);
    changes.iter().try_for_each(|operations| edit.replay(operations))?;
    Some(edit.encode())
}

/// Whether `bytes` are operations, one or more.
pub(crate) fn are_operations(mut bytes: &[u8]) -> bool {
    let mut any = false;
    while !bytes.is_empty() {
        let Some((_, rest)) = split_operation(bytes) else { return false };
        (bytes, any) = (rest, true);
    }
    any
}

struct Operation<'a> {
    kind: u8,
    tag: u16,
    key: &'a [u8],
    value: &'a [u8],
}

fn split_operation(bytes: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let (&[kind, low, high], rest) = bytes.split_first_chunk::<3>()?;
    let shape = match kind {
        PUT => Shape::Map,
        DELETE | ADD => Shape::Set,
        _ => return None,
    };
    let (key, value, len) = parse(shape, rest)?;
    Some((Operation { kind, tag: u16::from_le_bytes([low, high]), key, value }, &rest[len..]))
}

fn put_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn varint_bytes(number: u32) -> usize {
    (32 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// A number of 32 bits at most, in its shortest form.
fn split_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (mut number, mut shift) = (0_u64, 0);
    for (at, byte) in bytes.iter().take(5).enumerate() {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            let number = u32::try_from(number).ok().filter(|number| varint_bytes(*number) == at + 1)?;
            return Some((number as usize, &bytes[at + 1..]));
        }
    }
    None
}

fn offset_bytes(is_wide: bool) -> usize {
    if is_wide { 4 } else { 2 }
}

/// Changes of smaller collections are logged as the whole collection: that costs about as much, and is read at once.
pub(crate) const DELTA_BYTES_MIN: u64 = 512;
const HEADER_BYTES: usize = 8;
const TAG_BYTES: usize = 2;
const WIDE: u8 = 1;
const PUT: u8 = 1;
const DELETE: u8 = 2;
const ADD: u8 = 3;
/// Defaults of Redis 7.2: `hash-max-listpack-entries`, `set-max-listpack-entries`, `set-max-intset-entries`, and the longest
/// element of each, `*-max-listpack-value`.
const MAP_LISTPACK_MAX: usize = 512;
const SET_LISTPACK_MAX: usize = 128;
const INTEGERS_MAX: usize = 512;
const LISTPACK_VALUE_BYTES_MAX: usize = 64;
/// So many lookups of one edit are made without a table, and in so many entries any number.
const LOOKUPS_FEW: u32 = 8;
const ENTRIES_FEW: usize = 32;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn tag(key: &[u8]) -> u16 {
        // few tags: elements share them
        key.iter().map(|byte| u16::from(byte % 3)).sum()
    }

    #[test]
    fn bytes_are_pinned() {
        let mut map = Edit::new(Packed::empty(Shape::Map));
        assert!(map.put(0x0102, b"ab", b"xyz"));
        assert!(map.put(0x0304, b"c", b""));
        assert_eq!(map.operations(), b"\x01\x02\x01\x02\x03abxyz\x01\x04\x03\x01\x00c");
        let expected = b"\x02\0\0\0\x01\0\0\0\x02\x01\x04\x03\0\0\x07\0\x02\x03abxyz\x01\x00c";
        assert_eq!(map.encode(), expected);
        let mut set = Edit::new(Packed::empty(Shape::Set));
        assert!(set.add(1, b"17") && !set.add(1, b"17") && set.add(2, b"a") && set.delete(1, b"17"));
        assert_eq!(set.operations(), b"\x03\x01\0\x0217\x03\x02\0\x01a\x02\x01\0\x0217");
        assert_eq!(set.encode(), b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01a");
    }

    #[test]
    fn form_widens_as_in_redis_and_never_goes_back() {
        let form = |edit: &Edit<'_>| Packed::new(edit.shape, &edit.encode()).form();
        let mut set = Edit::new(Packed::empty(Shape::Set));
        for number in 0..512 {
            set.add(0, number.to_string().as_bytes());
        }
        assert_eq!(form(&set), Form::Integers);
        set.add(0, b"512");
        assert_eq!(form(&set), Form::Table);
        let mut set = Edit::new(Packed::empty(Shape::Set));
        for (element, expected) in [
            ("-5", Form::Integers),
            ("0", Form::Integers),
            ("9223372036854775807", Form::Integers),
            ("007", Form::Listpack),
        ] {
            set.add(0, element.as_bytes());
            assert_eq!(form(&set), expected, "{element}");
        }
        set.delete(0, b"007");
        assert_eq!(form(&set), Form::Listpack);
        set.add(0, &[b'x'; 65]);
        assert_eq!(form(&set), Form::Table);
        for element in ["-0", "+1", "", " 1", "9223372036854775808", "1a"] {
            assert!(!is_integer(element.as_bytes()), "{element:?}");
        }
        let mut map = Edit::new(Packed::empty(Shape::Map));
        for number in 0..512_u32 {
            map.put(0, &number.to_le_bytes(), b"v");
        }
        assert_eq!(form(&map), Form::Listpack);
        map.put(0, b"one more", b"v");
        assert_eq!(form(&map), Form::Table);
    }

    #[test]
    fn many_elements_are_found_whether_offsets_are_narrow_or_wide() {
        for count in [10_u32, 5_000, 20_000] {
            let mut edit = Edit::new(Packed::empty(Shape::Map));
            for number in 0..count {
                assert!(edit.put(number as u16, &number.to_le_bytes(), &[number as u8; 9]));
            }
            let bytes = edit.encode();
            assert!(Packed::check(Shape::Map, &bytes) && !Packed::check(Shape::Set, &bytes));
            let packed = Packed::new(Shape::Map, &bytes);
            assert_eq!((packed.len(), packed.is_wide), (count as usize, count > 10));
            for number in (0..count).step_by(7) {
                let at = packed.find(number as u16, &number.to_le_bytes()).expect("it was put");
                assert_eq!(packed.element(at), (&number.to_le_bytes()[..], &[number as u8; 9][..]));
            }
            assert_eq!(packed.find(3, b"none"), None);
        }
    }

    #[test]
    fn bytes_that_are_no_collection_are_refused() {
        let mut edit = Edit::new(Packed::empty(Shape::Map));
        edit.put(7, b"key", b"value");
        edit.put(8, b"more", b"");
        let bytes = edit.encode();
        for len in 0..bytes.len() {
            assert!(!Packed::check(Shape::Map, &bytes[..len]), "cut to {len}");
        }
        for (at, byte) in [(0, 3), (4, 3), (5, 2), (6, 1), (12, 1), (14, 9), (16, 0x80), (17, 99)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert!(!Packed::check(Shape::Map, &bytes), "{byte} at {at}");
        }
        for operations in [&b""[..], b"\x01", b"\x04\0\0\x01a", b"\x03\0\0\x02a", b"\x03\0\0\x81\x00a"] {
            assert!(!are_operations(operations), "{operations:?}");
        }
        assert_eq!(fold(Shape::Map, &bytes, &[b"\x03\0\0\x01a"]), None, "ADD of a map");
    }

    #[test]
    fn dump_loads_into_the_same_elements_and_nothing_else_does() {
        let mut map = Edit::new(Packed::empty(Shape::Map));
        map.put(7, b"a", b"1");
        map.put(8, b"b", b"");
        let bytes = map.encode();
        let dump = Packed::new(Shape::Map, &bytes).dump();
        assert_eq!(dump, b"\x01\0\0\x01\x01a1\x01\0\0\x01\0b");
        let load = |shape, dump: &[u8]| {
            let mut edit = Edit::new(Packed::empty(shape));
            edit.load(dump, |key| u16::from(key[0]) - 90).map(|()| edit.encode())
        };
        assert_eq!(load(Shape::Map, &dump), Some(bytes));
        assert_eq!(load(Shape::Set, &dump), None);
        assert_eq!(load(Shape::Map, &[&dump[..], &dump].concat()), None, "each element twice");
        assert_eq!(load(Shape::Map, &dump[..dump.len() - 1]), None);
        assert_eq!(load(Shape::Map, b"\x01\x01\0\x01\0a"), None, "tagged");
        assert_eq!(load(Shape::Map, b"\x02\0\0\x01a"), None, "DELETE");
    }

    proptest! {
        #[test]
        fn edits_are_as_a_map_in_order_of_insertion_and_their_operations_say_the_same(
            steps in proptest::collection::vec((0..60_u8, 0..30_u16, proptest::bool::weighted(0.3)), 0..300),
            is_map in any::<bool>(), sizes in 1..40_usize,
        ) {
            let shape = if is_map { Shape::Map } else { Shape::Set };
            let mut bytes = Edit::new(Packed::empty(shape)).encode();
            let (mut order, mut values) = (Vec::<Vec<u8>>::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            for steps in steps.chunks(sizes) {
                let before = bytes.clone();
                let mut edit = Edit::new(Packed::new(shape, &before));
                for &(key, len, deletes) in steps {
                    let (key, value) = (vec![key; usize::from(key) % 4 + 1], vec![key; len.into()]);
                    if deletes {
                        prop_assert_eq!(edit.delete(tag(&key), &key), values.remove(&key).is_some());
                        order.retain(|known| *known != key);
                        continue;
                    }
                    let value = if is_map { value } else { Vec::new() };
                    let is_new = values.insert(key.clone(), value.clone()).is_none();
                    if is_new {
                        order.push(key.clone());
                    }
                    let found = if is_map { edit.put(tag(&key), &key, &value) } else { edit.add(tag(&key), &key) };
                    prop_assert_eq!(found, is_new);
                    prop_assert_eq!(edit.get(tag(&key), &key), Some(&value[..]));
                }
                bytes = edit.encode();
                prop_assert!(Packed::check(shape, &bytes));
                prop_assert_eq!(fold(shape, &before, &[edit.operations()]), Some(bytes.clone()));
                prop_assert!(are_operations(edit.operations()) || !edit.is_changed());
                let found: Vec<_> = Packed::new(shape, &bytes).iter().map(|(key, _)| key.to_vec()).collect();
                prop_assert_eq!(&found, &order);
                for (key, value) in Packed::new(shape, &bytes).iter() {
                    prop_assert_eq!(value, &values[key][..]);
                }
            }
        }
    }
}
