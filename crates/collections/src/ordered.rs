//! Changing an ordered map: elements that lie in the order of their keys.
//!
//! An edit keeps what is changed, and lets the rest lie: a change of a large map takes the time of copying it, and of a search for each key.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use super::entries::{Form, Packed, Shape, Span, VARINT_BYTES_MAX, parse, put_varint, split_varint};
use super::filling::{Filling, Frame};

/// An ordered map that is being changed. What is done to it is noted as operations.
#[derive(Debug)]
pub struct OrderedEdit<'a> {
    base: Packed<'a>,
    /// What was done, and the bytes of what is new.
    operations: Vec<u8>,
    /// Keys that have changed, in the order in which they first did.
    changes: SmallVec<[Changed; 1]>,
    /// The same by key, from [`CHANGES_FEW`] on.
    by_key: BTreeMap<Vec<u8>, u32>,
    /// Whether each of these keys is greater than the one before.
    ascends: bool,
    count: usize,
    entries_bytes: usize,
}

/// What has become of a key.
#[derive(Clone, Copy, Debug)]
struct Changed {
    /// Where the key lies in `operations`: the first byte, and the number of bytes.
    key: Span,
    /// Which element of the base it is, or before which it belongs.
    place: Result<u32, u32>,
    /// Where its entry lies in `operations`; `None`: it is gone.
    entry: Option<Span>,
}

impl<'a> OrderedEdit<'a> {
    /// Begins with `base`, a [`Shape::Ordered`].
    #[must_use]
    pub fn new(base: Packed<'a>) -> Self {
        debug_assert_eq!(base.shape, Shape::Ordered, "others are changed otherwise");
        Self {
            operations: Vec::new(),
            changes: SmallVec::new(),
            by_key: BTreeMap::new(),
            ascends: true,
            count: base.count,
            entries_bytes: base.entries.len(),
            base,
        }
    }

    /// The map as it was when the edit began.
    #[must_use]
    pub fn base(&self) -> Packed<'a> {
        self.base
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        match self.find(key) {
            Some(at) => self.changes[at].entry.map(|entry| self.new_element(entry).1),
            None => self.base.place_of(key).map(|at| self.base.element(at).1),
        }
    }

    /// Makes room for so many changes, whose keys and values have so many bytes.
    pub fn reserve(&mut self, changes: usize, bytes: usize) {
        self.operations.reserve(bytes + changes * (1 + 2 * VARINT_BYTES_MAX));
        self.changes.reserve(changes);
    }

    /// Lets `key` have `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.operations.reserve(1 + 2 * VARINT_BYTES_MAX + key.len() + value.len());
        self.operations.push(ENTRY);
        let at = self.operations.len();
        put_varint(&mut self.operations, key.len() as u32);
        put_varint(&mut self.operations, value.len() as u32);
        let key_at = self.operations.len();
        self.operations.extend_from_slice(key);
        self.operations.extend_from_slice(value);
        let bytes = self.operations.len() - at;
        self.change(key, key_at, Some(Span { at: at as u32, len: bytes as u32 }));
    }

    /// Removes `key`; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let is_there = match self.find(key) {
            Some(at) => self.changes[at].entry.is_some(),
            None => self.base.place_of(key).is_some(),
        };
        if is_there {
            self.operations.push(DROP);
            put_varint(&mut self.operations, key.len() as u32);
            let key_at = self.operations.len();
            self.operations.extend_from_slice(key);
            self.change(key, key_at, None);
        }
        is_there
    }

    /// Notes what has become of `key`, which lies at `key_at` of the operations.
    fn change(&mut self, key: &[u8], key_at: usize, entry: Option<Span>) {
        let is_last = self.is_last(key);
        let known = if is_last { None } else { self.find(key) };
        let place = match known {
            Some(at) => self.changes[at].place,
            None if is_last => Err(self.base.count as u32),
            None => self.base.place_for(key).map(|at| at as u32).map_err(|at| at as u32),
        };
        let before = match (known, place) {
            (Some(at), _) => self.changes[at].entry.map(|entry| entry.len as usize),
            (None, Ok(at)) => Some(self.base.end(at as usize + 1) - self.base.end(at as usize)),
            (None, Err(_)) => None,
        };
        self.count = self.count + usize::from(entry.is_some()) - usize::from(before.is_some());
        self.entries_bytes =
            self.entries_bytes + entry.map_or(0, |entry| entry.len as usize) - before.unwrap_or(0);
        let changed = Changed { key: Span { at: key_at as u32, len: key.len() as u32 }, place, entry };
        match known {
            Some(at) => self.changes[at] = changed,
            None => self.add(key, changed),
        }
    }

    /// Whether `key` is known to be greater than all others, those that have changed included, as that of a stream's new entry is.
    fn is_last(&self, key: &[u8]) -> bool {
        let is_behind = |last: &Changed| last.place == Err(self.base.count as u32) && self.key_of(last) < key;
        self.ascends && self.changes.last().is_some_and(is_behind)
    }

    /// Adds a key that has not changed before.
    fn add(&mut self, key: &[u8], changed: Changed) {
        self.ascends &= self.changes.last().is_none_or(|last| self.key_of(last) < key);
        let at = self.changes.len();
        self.changes.push(changed);
        if at == CHANGES_FEW {
            let keys = (0..).zip(&self.changes).map(|(at, changed)| (self.key_of(changed).to_vec(), at));
            self.by_key = keys.collect();
        } else if at > CHANGES_FEW {
            self.by_key.insert(key.to_vec(), at as u32);
        }
    }

    /// Which of the changes is of `key`.
    fn find(&self, key: &[u8]) -> Option<usize> {
        if self.by_key.is_empty() {
            return self.changes.iter().position(|changed| self.key_of(changed) == key);
        }
        self.by_key.get(key).map(|at| *at as usize)
    }

    fn key_of(&self, changed: &Changed) -> &[u8] {
        self.new_entry(changed.key)
    }

    fn new_entry(&self, entry: Span) -> &[u8] {
        entry.of(&self.operations)
    }

    fn new_element(&self, entry: Span) -> (&[u8], &[u8]) {
        let (key, value, _) = parse(Shape::Ordered, self.new_entry(entry)).expect("it was added here");
        (key, value)
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

    /// As [`OrderedEdit::operations`], to keep.
    #[must_use]
    pub fn into_operations(self) -> Vec<u8> {
        self.operations
    }

    /// The map as it is now.
    ///
    /// # Panics
    /// If it has more than 4 GiB: `value.max` is below that.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.frame().encode(|out| self.fill(out))
    }

    /// Bytes of the map as it is now.
    pub fn encoded_len(&self) -> usize {
        self.frame().bytes()
    }

    /// As [`OrderedEdit::encode`], into `out`, which has so many bytes.
    pub fn write(&self, out: &mut [u8]) {
        self.frame().write(out, |out| self.fill(out));
    }

    /// As [`Edit::patch`](crate::Edit::patch).
    #[must_use]
    pub fn patch(&self) -> Option<(usize, Range<usize>)> {
        let [Changed { place: Ok(at), entry: Some(entry), .. }] = &self.changes[..] else { return None };
        let (from, to) = (self.base.end(*at as usize), self.base.end(*at as usize + 1));
        let Span { at, len } = *entry;
        (len as usize == to - from).then(|| (self.base.begin() + from, at as usize..(at + len) as usize))
    }

    fn frame(&self) -> Frame {
        let (count, entries_bytes) = (self.count, self.entries_bytes);
        Frame { shape: Shape::Ordered, form: Form::Table, count, entries_bytes }
    }

    /// Puts what it consists of now, in order.
    fn fill(&self, out: &mut Filling<'_>) {
        if self.ascends {
            return self.fill_in_order(out, self.changes.iter());
        }
        let mut order: Vec<&Changed> = self.changes.iter().collect();
        order.sort_unstable_by_key(|changed| self.key_of(changed));
        self.fill_in_order(out, order.into_iter());
    }

    fn fill_in_order<'c>(&self, out: &mut Filling<'_>, changes: impl Iterator<Item = &'c Changed>) {
        let mut next = 0;
        for Changed { place, entry, .. } in changes {
            let (Ok(at) | Err(at)) = *place;
            out.put_run(&self.base, next..at as usize);
            next = at as usize + usize::from(place.is_ok());
            entry.iter().for_each(|entry| out.put(0, self.new_entry(*entry)));
        }
        out.put_run(&self.base, next..self.base.count);
    }

    /// Does what `operations` say; `None` when they are none.
    pub(super) fn replay(&mut self, mut operations: &[u8]) -> Option<()> {
        while !operations.is_empty() {
            let (operation, rest) = split_operation(operations)?;
            match operation {
                Operation::Entry(key, value) => self.put(key, value),
                Operation::Drop(key) => _ = self.delete(key),
            }
            operations = rest;
        }
        Some(())
    }
}

/// What a map becomes by some bodies of CHANGE, oldest first; `None` when one does not fit.
pub(super) fn fold(packed: Packed<'_>, changes: &[&[u8]]) -> Option<Vec<u8>> {
    let mut edit = OrderedEdit::new(packed);
    changes.iter().try_for_each(|operations| edit.replay(operations))?;
    Some(edit.encode())
}

/// See [`super::dump`].
pub(super) fn dump(packed: Packed<'_>) -> Vec<u8> {
    let mut edit = OrderedEdit::new(Packed::empty(Shape::Ordered));
    packed.iter().for_each(|(key, value)| edit.put(key, value));
    edit.operations
}

/// See [`super::load`].
pub(super) fn load(mut dump: &[u8]) -> Option<Vec<u8>> {
    let (mut edit, mut last) = (OrderedEdit::new(Packed::empty(Shape::Ordered)), None);
    while !dump.is_empty() {
        let (Operation::Entry(key, value), rest) = split_operation(dump)? else { return None };
        if last.replace(key).is_some_and(|last| last >= key) {
            return None;
        }
        edit.put(key, value);
        dump = rest;
    }
    Some(edit.encode())
}

pub(super) enum Operation<'a> {
    Entry(&'a [u8], &'a [u8]),
    Drop(&'a [u8]),
}

/// The operation at the front of `bytes`, and what is behind it.
pub(super) fn split_operation(bytes: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        ENTRY => {
            let (key, value, len) = parse(Shape::Ordered, rest)?;
            Some((Operation::Entry(key, value), &rest[len..]))
        }
        DROP => {
            let (len, rest) = split_varint(rest)?;
            let (key, rest) = rest.split_at_checked(len)?;
            Some((Operation::Drop(key), rest))
        }
        _ => None,
    }
}

const ENTRY: u8 = 11;
const DROP: u8 = 12;
/// So many changes are looked through one by one.
const CHANGES_FEW: usize = 16;
