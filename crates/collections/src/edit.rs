//! Changing a hash, a set or a sorted set: elements that are found by their keys.
//!
//! ```text
//!  few changes    base, all but 3 and 7 | 7 is b: 2 | behind it c: 3       runs of the base are copied without being looked at
//!  spread out     a, b, c, ...                                             each entry by itself, from some lookups on, and where fields end
//! ```

mod encode;

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::entries::{
    Element, Form, Packed, Shape, Span, VARINT_BYTES_MAX, by_score, parse, put_varint, score_of,
    split_varint, varint_bytes,
};
use super::times::Times;
use crate::{Deadline, Moment};

/// A collection that is being changed. What is done to it is noted as operations.
#[derive(Debug)]
pub struct Edit<'a> {
    form: Form,
    /// What it began with.
    base: Packed<'a>,
    /// What was done, and the bytes of what is new.
    operations: Vec<u8>,
    /// Entries of the base that are others now, or gone, with their numbers; once entries are spread out there are none here.
    changed: SmallVec<[(usize, Entry); 1]>,
    /// Entries behind those of the base; once they are spread out all of them.
    entries: SmallVec<[Entry; 1]>,
    is_spread: bool,
    /// When each entry ends (0: never), of a map whose fields have deadlines, or had when it began; empty of others.
    deadlines: Vec<u64>,
    /// The key's own deadline.
    own: u64,
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
    key: Span,
    value: Span,
}

impl<'a> Edit<'a> {
    /// Begins with `packed`.
    ///
    /// # Panics
    /// As [`Packed::new`].
    #[must_use]
    pub fn new(packed: Packed<'a>) -> Self {
        let mut edit = Self {
            form: packed.form,
            base: packed,
            operations: Vec::new(),
            changed: SmallVec::new(),
            entries: SmallVec::new(),
            is_spread: false,
            deadlines: Vec::new(),
            own: packed.times.map_or(0, |times| times.own),
            count: packed.count,
            lookups: 0,
            table: None,
        };
        if packed.is_timed() {
            edit.spread();
        }
        edit
    }

    /// The same, of a key that expires at `own`.
    pub fn of_key(packed: Packed<'a>, own: Option<Deadline>) -> Self {
        Self { own: own.map_or(0, Deadline::raw), ..Self::new(packed) }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Number of elements that it began with.
    pub fn len_before(&self) -> usize {
        self.base.count
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

    /// The value of `key`; empty in a [`Shape::Set`], in a [`Shape::Scored`] the score. `None`: it is not there.
    pub fn get(&mut self, tag: u16, key: &[u8]) -> Option<&[u8]> {
        let at = self.find(tag, key)?;
        let entry = self.entry(at);
        Some(self.bytes(entry, entry.value))
    }

    /// Lets `key` have `value`; returns whether it was not there.
    pub fn put(&mut self, tag: u16, key: &[u8], value: &[u8]) -> bool {
        debug_assert_eq!(self.base.shape, Shape::Map, "of a map");
        self.insert(PUT, tag, key, value)
    }

    /// As [`Edit::put`], and the field ends when it did.
    pub fn put_kept(&mut self, tag: u16, key: &[u8], value: &[u8]) -> bool {
        let deadline = self.deadline(tag, key).flatten();
        let is_new = self.put(tag, key, value);
        if deadline.is_some() {
            self.set_deadline(tag, key, deadline);
        }
        is_new
    }

    /// When the field `key` ends; inside, `None`: never. `None`: it is not there.
    pub fn deadline(&mut self, tag: u16, key: &[u8]) -> Option<Option<Deadline>> {
        let at = self.find(tag, key)?;
        Some(self.deadlines.get(at).and_then(|deadline| Deadline::of(*deadline)))
    }

    /// Lets the field `key` end then, or never; returns whether it is there.
    pub fn set_deadline(&mut self, tag: u16, key: &[u8], deadline: Option<Deadline>) -> bool {
        debug_assert_eq!(self.base.shape, Shape::Map, "of a map");
        let Some(at) = self.find(tag, key) else { return false };
        let raw = deadline.map_or(0, Deadline::raw);
        if self.deadlines.is_empty() {
            if raw == 0 {
                return true;
            }
            if !self.is_spread {
                self.spread();
            }
            // what it is folded into does not know the key's own deadline
            self.set_own(self.own);
            self.deadlines = vec![0; self.entries.len()];
        }
        if self.deadlines[at] != raw {
            self.note(TIME, tag, key, &raw.to_le_bytes());
            self.deadlines[at] = raw;
        }
        true
    }

    /// Removes the fields whose deadlines are up to these, of the wall clock and of the server; returns how many there were.
    pub fn purge(&mut self, [wall, server]: [u64; 2]) -> u32 {
        let mut purged = 0;
        for at in 0..self.deadlines.len() {
            let deadline = self.deadlines[at];
            let until = if deadline < Moment::SERVER { wall } else { server };
            if deadline != 0 && deadline <= until && !self.entries[at].is_gone {
                self.forget(at);
                purged += 1;
            }
        }
        if purged > 0 {
            let body = [wall.to_le_bytes(), server.to_le_bytes()].concat();
            put_operation(&mut self.operations, PURGE, 0, (&[], &body));
        }
        purged
    }

    /// Sets the key's own deadline.
    pub fn set_own(&mut self, own: u64) {
        self.own = own;
        put_operation(&mut self.operations, OWN, 0, (&[], &own.to_le_bytes()));
    }

    /// Deadlines of the map as it is now; `None`: no field has one.
    fn times(&self) -> Option<Times> {
        let there = self.entries.iter().zip(&self.deadlines).filter(|(entry, _)| !entry.is_gone);
        let times = there.fold(Times { own: self.own, ..Times::default() }, |times, (_, at)| times.with(*at));
        ((times.wall, times.server) != (0, 0)).then_some(times)
    }

    /// Gives `key` this score, which is not NaN, and 0.0 if it is -0.0; returns whether it was not there.
    pub fn put_score(&mut self, tag: u16, key: &[u8], score: f64) -> bool {
        debug_assert!(self.base.shape == Shape::Scored && !score.is_nan(), "of a sorted set, and a number");
        self.insert(SCORE, tag, key, &(score + 0.0).to_le_bytes())
    }

    /// Gives `key`, of a sorted set or a map of scores, the score that `change` says by the one that it has, and 0.0 for -0.0; returns both. `None`: it is not there.
    ///
    /// # Errors
    /// As `change`; nothing has changed then.
    ///
    /// # Panics
    /// If the score is NaN.
    pub fn rescore<E>(
        &mut self,
        tag: u16,
        key: &[u8],
        change: impl FnOnce(Option<f64>) -> Result<Option<f64>, E>,
    ) -> Result<[Option<f64>; 2], E> {
        let known = self.find(tag, key);
        // a map may hold anything else: that is no score
        let score_at = |at| self.element_of(self.entry(at)).1.try_into().ok().map(f64::from_le_bytes);
        let before = known.and_then(score_at);
        let after = change(before)?.map(|score| score + 0.0);
        assert!(!after.is_some_and(f64::is_nan), "a score is a number");
        if before != after {
            match (known, after) {
                (_, Some(score)) => {
                    self.insert_at(known, self.kind_to_add(), tag, (key, &score.to_le_bytes()));
                }
                (Some(at), None) => self.delete_at(at, tag, key),
                (None, None) => {}
            }
        }
        Ok([before, after])
    }

    /// Adds `key` to a set; returns whether it was not there.
    pub fn add(&mut self, tag: u16, key: &[u8]) -> bool {
        debug_assert_eq!(self.base.shape, Shape::Set, "of a set");
        self.find(tag, key).is_none() && self.insert_at(None, ADD, tag, (key, &[]))
    }

    /// Removes `key`; returns whether it was there.
    pub fn delete(&mut self, tag: u16, key: &[u8]) -> bool {
        let Some(at) = self.find(tag, key) else { return false };
        self.delete_at(at, tag, key);
        true
    }

    /// The same, of an element that is entry `at`.
    fn delete_at(&mut self, at: usize, tag: u16, key: &[u8]) {
        self.note(DELETE, tag, key, &[]);
        self.forget(at);
    }

    /// Removes `key` where it has this score; returns whether it was there. While members move, one may be in a leaf with two scores.
    pub fn delete_scored(&mut self, tag: u16, key: &[u8], score: f64) -> bool {
        debug_assert_eq!(self.base.shape, Shape::Scored, "of a sorted set");
        let is_it = |edit: &Self, at: &usize| {
            let entry = edit.entry(*at);
            entry.tag == tag
                && !entry.is_gone
                && edit.bytes(entry, entry.key) == key
                && score_of(edit.bytes(entry, entry.value)) == score
        };
        let Some(first) = self.find(tag, key) else { return false };
        let others = || (0..self.in_base() + self.entries.len()).find(|at| is_it(self, at));
        let at = if is_it(self, &first) { Some(first) } else { others() };
        let Some(at) = at else { return false };
        self.delete_at(at, tag, key);
        true
    }

    /// The element that comes `nth` of those that are there, from 0 on; of a [`Shape::Scored`] not in the order of the scores.
    ///
    /// # Panics
    /// If there are not so many.
    #[must_use]
    pub fn element(&self, nth: usize) -> Element<'_> {
        let all = self.in_base() + self.entries.len();
        let entry = if self.count == all {
            self.entry(nth)
        } else {
            let mut there = (0..all).map(|at| self.entry(at)).filter(|entry| !entry.is_gone);
            there.nth(nth).expect("there are so many")
        };
        self.element_of(entry)
    }

    fn element_of(&self, entry: Entry) -> Element<'_> {
        (self.bytes(entry, entry.key), self.bytes(entry, entry.value))
    }

    fn kind_to_add(&self) -> u8 {
        match self.base.shape {
            Shape::Map => PUT,
            Shape::Set => ADD,
            Shape::Scored => SCORE,
            Shape::List | Shape::Ordered => unreachable!("they have edits of their own"),
        }
    }

    /// Does what `operations` say; `None` when they are none, or of another shape.
    pub fn replay(&mut self, mut operations: &[u8]) -> Option<()> {
        while !operations.is_empty() {
            let (operation, rest) = split_operation(operations)?;
            let (tag, key) = (operation.tag, operation.key);
            match (operation.kind, self.base.shape) {
                (PUT, Shape::Map) => self.put(tag, key, operation.value),
                (ADD, Shape::Set) => self.add(tag, key),
                (SCORE, Shape::Scored) => self.insert(SCORE, tag, key, operation.value),
                (DELETE, _) => self.delete(tag, key),
                (TIME, Shape::Map) => self.set_deadline(tag, key, deadline_in(operation.value)),
                (PURGE, Shape::Map) => {
                    let (times, _) = operation.value.as_chunks::<8>();
                    self.purge([times[0], times[1]].map(u64::from_le_bytes)) > 0
                }
                (OWN, Shape::Map) => {
                    self.set_own(deadline_in(operation.value).map_or(0, Deadline::raw));
                    true
                }
                _ => return None,
            };
            operations = rest;
        }
        Some(())
    }

    pub(super) fn insert(&mut self, kind: u8, tag: u16, key: &[u8], value: &[u8]) -> bool {
        let known = self.find(tag, key);
        self.insert_at(known, kind, tag, (key, value))
    }

    /// The same, of an element that is entry `known` now, or none.
    fn insert_at(&mut self, known: Option<usize>, kind: u8, tag: u16, (key, value): Element<'_>) -> bool {
        let at = self.note(kind, tag, key, value);
        let span = |at: usize, len: usize| Span { at: at as u32, len: len as u32 };
        let (key_span, value_span) = (span(at, key.len()), span(at + key.len(), value.len()));
        self.widen_form(key, value);
        let entry = Entry { tag, is_new: true, is_gone: false, key: key_span, value: value_span };
        if let Some(at) = known {
            self.set_entry(at, entry);
            if let Some(deadline) = self.deadlines.get_mut(at) {
                *deadline = 0;
            }
            return false;
        }
        self.entries.push(entry);
        if !self.deadlines.is_empty() {
            self.deadlines.push(0);
        }
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
        self.set_entry(at, Entry { is_gone: true, ..self.entry(at) });
        self.count -= 1;
    }

    /// How many entries are not in the list, but in the base: the first ones.
    fn in_base(&self) -> usize {
        if self.is_spread { 0 } else { self.base.count }
    }

    /// Entry number `at`, those of the base first.
    fn entry(&self, at: usize) -> Entry {
        let Some(listed) = at.checked_sub(self.in_base()) else {
            let changed = self.changed.iter().find(|(number, _)| *number == at);
            return changed.map_or_else(|| self.entry_in_base(at).0, |(_, entry)| *entry);
        };
        self.entries[listed]
    }

    fn set_entry(&mut self, at: usize, entry: Entry) {
        if let Some(listed) = at.checked_sub(self.in_base()) {
            self.entries[listed] = entry;
        } else if let Some((_, changed)) = self.changed.iter_mut().find(|(number, _)| *number == at) {
            *changed = entry;
        } else {
            self.changed.push((at, entry));
        }
    }

    /// Entry number `at` as it was in the base, and its deadline.
    fn entry_in_base(&self, at: usize) -> (Entry, u64) {
        let (base, from) = (&self.base, self.base.offset(at));
        let (deadline, (key, value, bytes)) =
            base.parse(&base.entries[from..]).expect("entries were checked");
        let value_at = from + bytes - value.len();
        let span = |at: usize, len: usize| Span { at: at as u32, len: len as u32 };
        let (key, value) = (span(value_at - key.len(), key.len()), span(value_at, value.len()));
        (Entry { tag: base.tag(at), is_new: false, is_gone: false, key, value }, deadline)
    }

    /// Lists each entry by itself. Takes time that grows with their number.
    fn spread(&mut self) {
        let added = std::mem::take(&mut self.entries);
        self.entries.reserve_exact(self.base.count + added.len() + 1);
        for at in 0..self.base.count {
            let (entry, deadline) = self.entry_in_base(at);
            self.entries.push(entry);
            if self.base.is_timed() {
                self.deadlines.push(deadline);
            }
        }
        for (at, entry) in self.changed.drain(..) {
            self.entries[at] = entry;
        }
        self.entries.extend(added);
        self.is_spread = true;
    }

    /// Notes an operation; returns where the key lies in the list.
    fn note(&mut self, kind: u8, tag: u16, key: &[u8], value: &[u8]) -> usize {
        put_operation(&mut self.operations, kind, tag, (key, value))
    }

    fn find(&mut self, tag: u16, key: &[u8]) -> Option<usize> {
        self.lookups += 1;
        if self.lookups > LOOKUPS_FEW && !self.is_spread {
            self.spread();
        }
        if self.table.is_none() && self.lookups > LOOKUPS_FEW && self.entries.len() > ENTRIES_FEW {
            self.table = Some(Lookup::of(self));
        }
        let is_it =
            |entry: &Entry| entry.tag == tag && !entry.is_gone && self.bytes(*entry, entry.key) == key;
        let Some(lookup) = &self.table else {
            let old = if self.is_spread { None } else { self.base.find(tag, key) };
            let old = old.filter(|at| !self.changed.iter().any(|(gone, it)| gone == at && it.is_gone));
            let listed = || self.entries.iter().position(is_it).map(|at| self.in_base() + at);
            return old.or_else(listed);
        };
        let hash = lookup.hasher.hash_one(key);
        lookup.table.find(hash, |at| is_it(&self.entries[*at as usize])).map(|at| *at as usize)
    }

    fn bytes(&self, entry: Entry, span: Span) -> &[u8] {
        let source = if entry.is_new { &self.operations[..] } else { self.base.entries };
        span.of(source)
    }

    /// The entry as it is in a collection, without a deadline.
    fn raw(&self, entry: &Entry) -> &[u8] {
        self.bytes(*entry, self.raw_place(entry))
    }

    fn raw_place(&self, entry: &Entry) -> Span {
        let bytes = self.entry_bytes(entry) as u32;
        Span { at: entry.value.at + entry.value.len - bytes, len: bytes }
    }

    fn entry_bytes(&self, entry: &Entry) -> usize {
        let lens = match self.base.shape {
            Shape::Map => varint_bytes(entry.key.len) + varint_bytes(entry.value.len),
            _ => varint_bytes(entry.key.len),
        };
        lens + entry.key.len as usize + entry.value.len as usize
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
        let (shape, count) = (self.base.shape, self.count);
        self.form = match self.form {
            Form::Integers if count > INTEGERS_MAX => Form::Table,
            Form::Listpack if shape == Shape::Map && count > MAP_LISTPACK_MAX => Form::Table,
            Form::Listpack if shape != Shape::Map && count > SET_LISTPACK_MAX => Form::Table,
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
pub(super) fn is_integer(bytes: &[u8]) -> bool {
    let Some(number) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()) else {
        return false;
    };
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_plain = digits.first().is_some_and(|first| first.is_ascii_digit());
    is_plain && (digits[0] != b'0' || (number == 0 && bytes == b"0"))
}

/// What a collection becomes by some bodies of CHANGE, oldest first; `None` when one does not fit.
pub(super) fn fold(packed: Packed<'_>, changes: &[&[u8]]) -> Option<Vec<u8>> {
    let mut edit = Edit::new(packed);
    changes.iter().try_for_each(|operations| edit.replay(operations))?;
    Some(edit.encode())
}

/// See [`super::dump`].
pub(super) fn dump(packed: Packed<'_>, now: Moment) -> Vec<u8> {
    let (kind, mut out) = (Edit::new(Packed::empty(packed.shape)).kind_to_add(), Vec::new());
    for (at, element) in packed.iter().enumerate() {
        put_operation(&mut out, kind, 0, element);
        if let Some(deadline) = packed.deadline(at) {
            let mark = if deadline.is_wall() { 0 } else { Moment::SERVER };
            let at = now.unix_of(deadline).0 & !Moment::SERVER | mark;
            put_operation(&mut out, TIME, 0, (element.0, &at.to_le_bytes()));
        }
    }
    out
}

/// See [`super::load`].
pub(super) fn load(
    shape: Shape,
    mut dump: &[u8],
    now: Moment,
    tag_of: impl Fn(&[u8]) -> u16,
) -> Option<Vec<u8>> {
    let (mut edit, mut last) = (Edit::new(Packed::empty(shape)), None::<Element<'_>>);
    while !dump.is_empty() {
        let (operation, rest) = split_operation(dump)?;
        let is_time = operation.kind == TIME && shape == Shape::Map && operation.tag == 0;
        let fits = operation.kind == edit.kind_to_add() && operation.tag == 0;
        if is_time {
            let told = deadline_in(operation.value).filter(|told| told.raw() != Moment::SERVER)?;
            // right behind the field, once
            last.take().filter(|(key, _)| *key == operation.key)?;
            let left_ms = (told.raw() & !Moment::SERVER).saturating_sub(now.unix().0);
            let deadline = if told.is_wall() { told } else { now.after(left_ms) };
            edit.set_deadline(tag_of(operation.key), operation.key, Some(deadline));
        } else {
            let element = (operation.key, operation.value);
            let is_behind = |last| shape != Shape::Scored || by_score(last, element).is_lt();
            let is_next = fits && last.replace(element).is_none_or(is_behind);
            if !is_next || !edit.insert(operation.kind, tag_of(operation.key), operation.key, operation.value)
            {
                return None;
            }
        }
        dump = rest;
    }
    edit.purge(now.passed());
    Some(edit.encode())
}

pub(super) struct Operation<'a> {
    kind: u8,
    tag: u16,
    pub(super) key: &'a [u8],
    value: &'a [u8],
}

impl Operation<'_> {
    /// Whether it changes one element.
    pub(super) fn has_element(&self) -> bool {
        !matches!(self.kind, PURGE | OWN)
    }
}

/// The deadline in a TIME or an OWN.
fn deadline_in(value: &[u8]) -> Option<Deadline> {
    Deadline::of(u64::from_le_bytes(value.try_into().expect("split as 8 bytes")))
}

/// Appends the operation by which an element of a map gets this value, or goes.
pub fn note_map(out: &mut Vec<u8>, tag: u16, key: &[u8], value: Option<&[u8]>) {
    let kind = if value.is_some() { PUT } else { DELETE };
    put_operation(out, kind, tag, (key, value.unwrap_or_default()));
}

/// Appends an operation; returns where the key lies, behind which is the value.
fn put_operation(out: &mut Vec<u8>, kind: u8, tag: u16, (key, value): Element<'_>) -> usize {
    out.reserve(3 + 2 * VARINT_BYTES_MAX + key.len() + value.len());
    out.push(kind);
    if matches!(kind, PURGE | OWN) {
        out.extend_from_slice(value);
        return out.len();
    }
    out.extend_from_slice(&tag.to_le_bytes());
    put_varint(out, key.len() as u32);
    if kind == PUT {
        put_varint(out, value.len() as u32);
    }
    let at = out.len();
    out.extend_from_slice(key);
    out.extend_from_slice(value);
    at
}

/// The operation at the front of `bytes`, and what is behind it.
pub(super) fn split_operation(bytes: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let whole = match bytes.first() {
        Some(&PURGE) => 16,
        Some(&OWN) => 8,
        Some(&TIME) => return split_time(bytes),
        _ => 0,
    };
    if whole > 0 {
        let (value, rest) = bytes[1..].split_at_checked(whole)?;
        return Some((Operation { kind: bytes[0], tag: 0, key: &[], value }, rest));
    }
    let (&[kind, low, high], rest) = bytes.split_first_chunk::<3>()?;
    let shape = match kind {
        PUT => Shape::Map,
        DELETE | ADD => Shape::Set,
        SCORE => Shape::Scored,
        _ => return None,
    };
    let (key, value, len) = parse(shape, rest)?;
    Some((Operation { kind, tag: u16::from_le_bytes([low, high]), key, value }, &rest[len..]))
}

fn split_time(bytes: &[u8]) -> Option<(Operation<'_>, &[u8])> {
    let (&[kind, low, high], rest) = bytes.split_first_chunk::<3>()?;
    let (key_len, rest) = split_varint(rest)?;
    let (key, rest) = rest.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(8)?;
    Some((Operation { kind, tag: u16::from_le_bytes([low, high]), key, value }, rest))
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const ADD: u8 = 3;
pub(super) const SCORE: u8 = 4;
const TIME: u8 = 13;
const PURGE: u8 = 14;
const OWN: u8 = 15;
/// Defaults of Redis 7.2: `hash-max-listpack-entries`, `set-` and `zset-max-listpack-entries`, `set-max-intset-entries`, and the longest
/// element of each, `*-max-listpack-value`.
const MAP_LISTPACK_MAX: usize = 512;
const SET_LISTPACK_MAX: usize = 128;
const INTEGERS_MAX: usize = 512;
const LISTPACK_VALUE_BYTES_MAX: usize = 64;
/// So many lookups of one edit are made without a table, and in so many entries any number.
const LOOKUPS_FEW: u32 = 8;
const ENTRIES_FEW: usize = 32;
