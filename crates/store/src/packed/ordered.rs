//! Changing an ordered map: elements that lie in the order of their keys.
//!
//! An edit keeps what is changed, and lets the rest lie: a change of a large map takes the time of copying it, and of a search for each key.

use std::collections::BTreeMap;

use super::entries::{
    Form, Packed, Shape, offset_bytes, parse, put_header, put_varint, split_varint, varint_bytes,
};

/// An ordered map that is being changed. What is done to it is noted as operations.
#[derive(Debug)]
pub struct OrderedEdit<'a> {
    base: Packed<'a>,
    /// What was done, and the bytes of what is new.
    operations: Vec<u8>,
    /// Keys that have changed: where their entry lies in `operations`, or that they are gone.
    changes: BTreeMap<Vec<u8>, Option<(u32, u32)>>,
    count: usize,
    entries_bytes: usize,
}

impl<'a> OrderedEdit<'a> {
    /// Begins with `base`, a [`Shape::Ordered`].
    #[must_use]
    pub fn new(base: Packed<'a>) -> Self {
        debug_assert_eq!(base.shape, Shape::Ordered, "others are changed otherwise");
        Self {
            operations: Vec::new(),
            changes: BTreeMap::new(),
            count: base.count,
            entries_bytes: base.entries.len(),
            base,
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        match self.changes.get(key) {
            Some(change) => change.map(|entry| self.new_element(entry).1),
            None => self.base.place_of(key).map(|at| self.base.element(at).1),
        }
    }

    /// Lets `key` have `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.take_out(key);
        self.operations.push(ENTRY);
        let at = self.operations.len();
        put_varint(&mut self.operations, key.len() as u32);
        put_varint(&mut self.operations, value.len() as u32);
        self.operations.extend_from_slice(key);
        self.operations.extend_from_slice(value);
        let bytes = self.operations.len() - at;
        self.changes.insert(key.to_vec(), Some((at as u32, bytes as u32)));
        self.count += 1;
        self.entries_bytes += bytes;
    }

    /// Removes `key`; returns whether it was there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.take_out(key);
        if was_there {
            self.operations.push(DROP);
            put_varint(&mut self.operations, key.len() as u32);
            self.operations.extend_from_slice(key);
            self.changes.insert(key.to_vec(), None);
        }
        was_there
    }

    /// Counts `key` out, if it is there.
    fn take_out(&mut self, key: &[u8]) -> bool {
        let bytes = match self.changes.get(key) {
            Some(change) => change.map(|(_, bytes)| bytes as usize),
            None => self.base.place_of(key).map(|at| {
                let (key, value) = self.base.element(at);
                entry_bytes(key, value)
            }),
        };
        self.count -= usize::from(bytes.is_some());
        self.entries_bytes -= bytes.unwrap_or(0);
        bytes.is_some()
    }

    fn new_entry(&self, (at, bytes): (u32, u32)) -> &[u8] {
        &self.operations[at as usize..(at + bytes) as usize]
    }

    fn new_element(&self, entry: (u32, u32)) -> (&[u8], &[u8]) {
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
        let mut out = Vec::new();
        let is_wide = put_header(&mut out, (Shape::Ordered, Form::Table), self.count, self.entries_bytes);
        let bytes = offset_bytes(is_wide);
        let mut end = 0;
        self.each_run(|run| match run {
            Run::Base(from, to) => {
                let first = self.base.end(from);
                for at in from..to {
                    let offset = (end + self.base.offset(at) - first) as u32;
                    out.extend_from_slice(&offset.to_le_bytes()[..bytes]);
                }
                end += self.base.end(to) - first;
            }
            Run::New(entry) => {
                out.extend_from_slice(&(end as u32).to_le_bytes()[..bytes]);
                end += entry.1 as usize;
            }
        });
        self.each_run(|run| match run {
            Run::Base(from, to) => {
                out.extend_from_slice(&self.base.entries[self.base.end(from)..self.base.end(to)]);
            }
            Run::New(entry) => out.extend_from_slice(self.new_entry(entry)),
        });
        out
    }

    /// What it consists of now, in order.
    fn each_run(&self, mut found: impl FnMut(Run)) {
        let mut at = 0;
        for (key, change) in &self.changes {
            let next = self.base.partition_point(|(other, _)| other < &key[..]);
            if next > at {
                found(Run::Base(at, next));
            }
            at = next.max(at);
            if self.base.count > next && self.base.element(next).0 == key {
                at = next + 1;
            }
            if let Some(entry) = change {
                found(Run::New(*entry));
            }
        }
        if at < self.base.count {
            found(Run::Base(at, self.base.count));
        }
    }

    /// Does what `operations` say; `None` when they are none.
    fn replay(&mut self, mut operations: &[u8]) -> Option<()> {
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

enum Run {
    /// Elements of the base, from and to.
    Base(usize, usize),
    New((u32, u32)),
}

fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    varint_bytes(key.len() as u32) + varint_bytes(value.len() as u32) + key.len() + value.len()
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
    let mut edit = OrderedEdit::new(Packed::empty(Shape::Ordered));
    while !dump.is_empty() {
        let (Operation::Entry(key, value), rest) = split_operation(dump)? else { return None };
        if edit.get(key).is_some() {
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
