//! Collections in the lives of a store: hashes, sets, lists, sorted sets and streams, changed by operations, several of a group at once.
//!
//! The model does each operation itself, on plain vectors, and keeps the result: a change of the store that some later read, fold,
//! cleaning or start shows otherwise is a violation, down to the order of the elements.
//!
//! Some fields of hashes end after a duration. The model forgets them in all its states as time passes, and says nothing of when the store removes
//! them. Server time runs back at starts of the machine alone, when the log does not say how late it was: they may be back then.

use std::collections::BTreeSet;
use std::convert::Infallible;

use store::{
    Access, Deadline, Edit, EngineKind, KeyedChange, ListChange, ListEdit, Moment, OrderedEdit, Packed, Stop,
    Value, ValueKind,
};
use vfs::sim::Rng;

use crate::model::{Effect, Entry};
use crate::world::{Outcome, World, key_name};

/// Elements in their order: fields with values, with `@` and the server time behind those that end, members, members with scores (8 B), or what a list has.
pub type Elements = Vec<(Vec<u8>, Vec<u8>)>;

/// A value of any type.
#[derive(Clone)]
pub enum Content {
    String(Vec<u8>),
    Collection(ValueKind, Elements),
}

/// Large hashes and sets have no order.
impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::String(one), Self::String(two)) => one == two,
            (Self::Collection(kind, one), Self::Collection(other, two)) if kind == other => match kind {
                ValueKind::Hash | ValueKind::Set => sorted(one) == sorted(two),
                _ => one == two,
            },
            _ => false,
        }
    }
}

impl Eq for Content {}

fn sorted(elements: &Elements) -> Vec<&(Vec<u8>, Vec<u8>)> {
    let mut sorted: Vec<_> = elements.iter().collect();
    sorted.sort_unstable();
    sorted
}

/// What a command does to a collection. Places in a list are taken modulo its length.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Of a list: behind the last element.
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Of a hash: the field ends at this server time, or never.
    Time(Vec<u8>, Option<u64>),
    PushFront(Vec<u8>),
    Insert(usize, Vec<u8>),
    Set(usize, Vec<u8>),
    Remove(usize, usize),
    RemoveEqual {
        value: Vec<u8>,
        most: usize,
        from_back: bool,
    },
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::String(bytes)
    }
}

impl Content {
    pub fn of(kind: ValueKind, bytes: &[u8]) -> Self {
        let Some(shape) = kind.shape() else { return Self::String(bytes.to_vec()) };
        let packed = Packed::new(shape, bytes);
        let element = |at: usize| {
            let (key, value) = packed.element(at);
            (key.to_vec(), timed(value, packed.deadline(at).map(server_ms)))
        };
        Self::Collection(kind, (0..packed.len()).map(element).collect())
    }

    /// Takes out the fields that have ended at `now`.
    pub fn pass(&mut self, now: Moment) -> Elements {
        let Self::Collection(ValueKind::Hash, elements) = self else { return Elements::new() };
        let has_ended = |value: &[u8]| split_time(value).1.is_some_and(|ms| ms <= now.server_ms());
        elements.extract_if(.., |(_, value)| has_ended(value)).collect()
    }

    /// Takes out the fields that are among those that have `ended`.
    pub fn without(&mut self, ended: &BTreeSet<(Vec<u8>, Vec<u8>)>) {
        if let Self::Collection(ValueKind::Hash, elements) = self {
            elements.retain(|field| !ended.contains(field));
        }
    }

    /// Whether it is a collection with this element.
    pub fn has(&self, element: &(Vec<u8>, Vec<u8>)) -> bool {
        matches!(self, Self::Collection(_, elements) if elements.contains(element))
    }

    /// Whether it is a collection without elements.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Collection(_, elements) if elements.is_empty())
    }

    /// About as many bytes as it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::String(bytes) => bytes.len() as u64,
            Self::Collection(_, elements) => {
                elements.iter().map(|(key, value)| (key.len() + value.len() + 8) as u64).sum()
            }
        }
    }

    fn kind(&self) -> ValueKind {
        match self {
            Self::String(_) => ValueKind::String,
            Self::Collection(kind, _) => *kind,
        }
    }
}

/// Database and key of one that may be there.
pub fn some_collection(rng: &mut Rng) -> (u16, Vec<u8>) {
    let db = u16::from(rng.chance(1, 8));
    (db, key_name(COLLECTIONS_FROM + rng.below(COLLECTIONS)))
}

/// The value of a field that ends at this server time, if it does.
fn timed(value: &[u8], ms: Option<u64>) -> Vec<u8> {
    ms.map_or_else(|| value.to_vec(), |ms| [value, format!("@{ms}").as_bytes()].concat())
}

/// Value and time of a field.
fn split_time(value: &[u8]) -> (&[u8], Option<u64>) {
    match value.iter().position(|byte| *byte == b'@') {
        None => (value, None),
        Some(at) => {
            let text = std::str::from_utf8(&value[at + 1..]).unwrap();
            (&value[..at], Some(text.parse().unwrap()))
        }
    }
}

fn server_ms(deadline: Deadline) -> u64 {
    assert!(!deadline.is_wall(), "durations alone");
    Moment::default().left_ms(deadline)
}

/// What `operations` make of `before`, the collection of type `kind` at a key. `Err`: there is another type.
/// `Ok(None)`: nothing is done.
fn changed(
    before: Option<&Content>,
    kind: ValueKind,
    operations: &[Operation],
) -> Result<Option<Elements>, ()> {
    let mut elements = match before {
        None => Elements::new(),
        Some(Content::Collection(of, elements)) if *of == kind => elements.clone(),
        Some(_) => return Err(()),
    };
    let mut is_changed = false;
    for operation in operations {
        is_changed |= operation.apply(kind, &mut elements);
    }
    Ok(is_changed.then_some(elements))
}

/// What `effect` does to a key that is `visible`: whether it finds what it asks for, and the effect without conditions; `None`: nothing.
pub fn resolve(effect: &Effect, visible: Option<&Entry>) -> (Option<bool>, Option<Effect>) {
    match effect {
        Effect::Remove { .. } | Effect::Expiry { .. } => {
            (Some(visible.is_some()), visible.map(|_| effect.clone()))
        }
        Effect::Change { db, key, kind, operations } => {
            let (db, key) = (*db, key.clone());
            match changed(visible.map(|entry| &entry.value), *kind, operations) {
                Err(()) => (Some(false), None),
                Ok(None) => (Some(true), None),
                Ok(Some(elements)) if elements.is_empty() => {
                    (Some(true), visible.map(|_| Effect::Remove { db, key }))
                }
                Ok(Some(elements)) => {
                    let expiry = visible.and_then(|entry| entry.expiry);
                    let value = Content::Collection(*kind, elements);
                    (Some(true), Some(Effect::Put { db, key, value, expiry, lapsed: false }))
                }
            }
        }
        other => (None, Some(other.clone())),
    }
}

impl Operation {
    /// Does it in the model; returns whether the store logs it.
    fn apply(&self, kind: ValueKind, elements: &mut Elements) -> bool {
        let len = elements.len();
        let at = |key: &[u8], elements: &Elements| elements.iter().position(|(known, _)| known == key);
        match self {
            Self::Put(key, value) => {
                match at(key, elements).filter(|_| kind != ValueKind::List) {
                    Some(_) if kind == ValueKind::Set => return false,
                    Some(at) => elements[at].1.clone_from(value),
                    None => elements.push((key.clone(), value.clone())),
                }
                if kind == ValueKind::Stream {
                    elements.sort_unstable();
                }
                if kind == ValueKind::SortedSet {
                    let score = |value: &[u8]| f64::from_le_bytes(value.try_into().unwrap());
                    elements.sort_by(|(a, x), (b, y)| score(x).total_cmp(&score(y)).then(a.cmp(b)));
                }
            }
            Self::Delete(key) => return at(key, elements).map(|at| elements.remove(at)).is_some(),
            Self::Time(key, ms) => {
                let Some(at) = at(key, elements) else { return false };
                let after = timed(split_time(&elements[at].1).0, *ms);
                return std::mem::replace(&mut elements[at].1, after.clone()) != after;
            }
            Self::PushFront(value) => elements.insert(0, (value.clone(), Vec::new())),
            Self::Insert(index, value) => elements.insert(index % (len + 1), (value.clone(), Vec::new())),
            Self::Set(..) | Self::Remove(..) if len == 0 => return false,
            Self::Set(index, value) => elements[index % len].0.clone_from(value),
            Self::Remove(index, count) => {
                let from = index % len;
                drop(elements.drain(from..(from + count).min(len)));
            }
            Self::RemoveEqual { value, most, from_back } => {
                let mut places: Vec<usize> = (0..len).filter(|at| elements[*at].0 == *value).collect();
                if *from_back {
                    places.reverse();
                }
                places.truncate(*most);
                places.sort_unstable();
                places.iter().rev().for_each(|at| drop(elements.remove(*at)));
                return !places.is_empty();
            }
        }
        true
    }

    /// Does it in the store.
    fn stage(&self, edit: &mut Edit<'_>, kind: ValueKind, tag: u16) {
        match (self, kind) {
            (Self::Put(key, value), ValueKind::Hash) => {
                let (value, ms) = split_time(value);
                edit.put(tag, key, value) | set_time(edit, tag, key, ms)
            }
            (Self::Time(key, ms), _) => set_time(edit, tag, key, *ms),
            (Self::Put(key, _), ValueKind::Set) => edit.add(tag, key),
            (Self::Put(key, score), ValueKind::SortedSet) => edit.put_score(tag, key, store::score_of(score)),
            (Self::Delete(key), _) => edit.delete(tag, key),
            _ => unreachable!("{self:?} is of lists"),
        };
    }

    fn keyed_change(&self) -> KeyedChange<'_> {
        match self {
            Self::Put(key, value) => (key, Some(value)),
            Self::Delete(key) => (key, None),
            _ => unreachable!("{self:?} is not of streams"),
        }
    }

    /// What it does to a list of so many elements.
    fn list_change(&self, len: usize) -> Option<ListChange<'_>> {
        Some(match self {
            Self::Put(value, _) => ListChange::PushBack(value),
            Self::PushFront(value) => ListChange::PushFront(value),
            Self::Insert(index, value) => ListChange::Insert(index % (len + 1), value),
            Self::Set(..) | Self::Remove(..) if len == 0 => return None,
            Self::Set(index, value) => ListChange::Set(index % len, value),
            Self::Remove(index, count) => ListChange::Remove(index % len, (*count).min(len - index % len)),
            Self::RemoveEqual { value, most, from_back } => {
                ListChange::RemoveEqual { value, most: *most, from_back: *from_back }
            }
            Self::Delete(_) | Self::Time(..) => unreachable!("{self:?} is not of lists"),
        })
    }

    fn element(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Delete(key) | Self::Time(key, _) => key,
            _ => unreachable!("{self:?} is of lists"),
        }
    }

    /// The score that a member gets by it, if it stays.
    fn score(&self) -> Option<f64> {
        match self {
            Self::Put(_, score) => Some(store::score_of(score)),
            _ => None,
        }
    }
}

fn set_time(edit: &mut Edit<'_>, tag: u16, key: &[u8], ms: Option<u64>) -> bool {
    edit.set_deadline(tag, key, ms.map(|ms| Moment::default().after(ms)))
}

/// Stages a change; returns whether the key had no other type.
pub fn stage_change(
    access: &mut Access<'_>,
    (db, key): (u16, &[u8]),
    kind: ValueKind,
    operations: &[Operation],
) -> Result<bool, Stop> {
    if kind == ValueKind::List {
        let Ok(list) = access.collection(db, key, kind)? else { return Ok(false) };
        let mut list = ListEdit::new(list);
        let mut changes = Vec::new();
        for operation in operations {
            let change = operation.list_change(list.len());
            change.iter().for_each(|change| _ = list.apply(change));
            changes.extend(change);
        }
        let len = list.len();
        let changed = access.change_list(db, key, &changes)?;
        assert!(changed.is_ok_and(|changed| changed.len == len), "the list is as long as it became here");
        return Ok(true);
    }
    if kind == ValueKind::Stream {
        let changes: Vec<_> = operations.iter().map(Operation::keyed_change).collect();
        return Ok(access.change_stream(db, key, &changes)?.is_ok());
    }
    let named = operations.iter().map(Operation::element);
    if kind == ValueKind::SortedSet {
        let score = |_, number: usize| Ok::<_, Infallible>(operations[number].score());
        return Ok(access.rescore(db, key, named, score)?.is_ok());
    }
    let stage = |edit: &mut Edit<'_>, tag, number: usize| operations[number].stage(edit, kind, tag);
    Ok(access.edit_each(db, key, kind, named, stage)?.is_ok())
}

/// Packs `elements` anew, as RENAME and RESTORE store them, and hands them to `put`.
pub fn with_packed(
    access: &mut Access<'_>,
    kind: ValueKind,
    elements: &Elements,
    put: impl FnOnce(&mut Access<'_>, Value<'_>),
) {
    let empty = Packed::empty(kind.shape().expect("a collection"));
    let packed = if kind == ValueKind::List {
        let mut list = ListEdit::new(empty);
        elements.iter().for_each(|(value, _)| list.push_back(value));
        list.encode()
    } else if kind == ValueKind::Stream {
        let mut edit = OrderedEdit::new(empty);
        elements.iter().for_each(|(key, value)| edit.put(key, value));
        edit.encode()
    } else {
        let mut edit = Edit::new(empty);
        for (key, value) in elements {
            Operation::Put(key.clone(), value.clone()).stage(&mut edit, kind, access.tag(key));
        }
        edit.encode()
    };
    put(access, Value::Collection(kind, &packed));
}

impl World {
    /// Counts what became of a collection.
    pub(crate) fn count_change(&mut self, change: &Effect, resolved: Option<&Effect>) {
        let Effect::Change { .. } = change else { return };
        match resolved {
            Some(Effect::Put { value, .. }) if value.bytes() >= LARGE_BYTES => {
                self.met.changes_of_collections += 1;
            }
            Some(Effect::Remove { .. }) => self.met.collections_emptied += 1,
            _ => {}
        }
    }

    /// Changes collections: one, some in one group, or a copy or another name of one.
    pub fn collection_step(&mut self) -> Outcome<()> {
        let mut effects = Vec::new();
        match self.rng.below(16) {
            0..9 => self.add_change(&mut effects),
            9..14 => (0..2 + self.rng.below(3)).for_each(|_| self.add_change(&mut effects)),
            14 => {
                let (db, key) = self.random_collection();
                effects.push(self.random_retime(db, key));
            }
            _ => self.add_copy(&mut effects)?,
        }
        self.commit(&effects)
    }

    /// Changes of one element of a large collection, or of as many as a series has, one after the other: what most commands do.
    pub fn busy_step(&mut self) -> Outcome<()> {
        let (db, key) = (0, key_name(BUSY_FROM + self.rng.below(BUSY_KEYS)));
        let kind = kind_of(&key);
        for at in 0..BUSY {
            // what changes nothing meets no lock
            if self.model.current().holder(db, &key).is_some() {
                return Ok(());
            }
            let elements = match self.model.current().0[0].get(&key).map(|entry| entry.value.clone()) {
                Some(Content::Collection(of, elements)) if of == kind => elements,
                Some(_) => return Ok(()),
                None => Elements::new(),
            };
            let operations = match at {
                0 if elements.len() < GROWN => (0..2 * GROWN).map(|_| self.random_addition(kind)).collect(),
                _ if elements.len() > 4 * GROWN => fewer(kind, &elements),
                _ => {
                    let count = if self.rng.chance(1, 3) { 2 + self.rng.index(SERIES) } else { 1 };
                    (0..count).map(|_| self.random_operation(kind)).collect()
                }
            };
            self.commit(&[Effect::Change { db, key: key.clone(), kind, operations }])?;
            if self.rng.chance(1, 4) {
                self.drive()?;
            }
            if self.plan.engine == EngineKind::Log && self.rng.chance(1, 12) {
                self.housekeep()?;
            }
        }
        Ok(())
    }

    fn random_collection(&mut self) -> (u16, Vec<u8>) {
        some_collection(&mut self.rng)
    }

    /// Adds a change of some collection. What has another type is mostly removed before.
    fn add_change(&mut self, effects: &mut Vec<Effect>) {
        let change = self.random_collection_change();
        let Effect::Change { db, key, kind, .. } = &change else { unreachable!("that is what it makes") };
        let there = self.model.current().0[usize::from(*db)].get(key);
        if there.is_some_and(|entry| entry.value.kind() != *kind) && self.rng.chance(3, 4) {
            effects.push(Effect::Remove { db: *db, key: key.clone() });
        }
        effects.push(change);
    }

    /// COPY or RENAME of a collection onto any key.
    fn add_copy(&mut self, effects: &mut Vec<Effect>) -> Outcome<()> {
        let ((db, key), (to_db, to)) = (self.random_collection(), self.random_key());
        let now = self.now()?;
        let Some(Entry { value, expiry, .. }) = self.model.current().get(db, &key, now).cloned() else {
            return Ok(());
        };
        if self.rng.chance(1, 2) {
            effects.push(Effect::Remove { db, key });
        }
        effects.push(Effect::Put { db: to_db, key: to, value, expiry, lapsed: false });
        Ok(())
    }

    /// Some operations on a collection whose type follows from its key: few, or so many that it grows, or is emptied.
    pub(crate) fn random_collection_change(&mut self) -> Effect {
        let (db, key) = self.random_collection();
        let kind = kind_of(&key);
        let current = self.model.current().0[usize::from(db)].get(&key);
        let elements = match current.map(|entry| entry.value.clone()) {
            Some(Content::Collection(of, elements)) if of == kind => elements,
            _ => Elements::new(),
        };
        let operations = match self.rng.below(24) {
            0 if kind == ValueKind::List => vec![Operation::Remove(0, usize::MAX / 2)],
            0 => elements.into_iter().map(|(key, _)| Operation::Delete(key)).collect(),
            1..5 if elements.len() < GROWN => (0..GROWN).map(|_| self.random_addition(kind)).collect(),
            _ if elements.len() > 2 * GROWN => fewer(kind, &elements),
            // fields that are there end, soon or late
            5..9 if kind == ValueKind::Hash && !elements.is_empty() => {
                let count = 1 + self.rng.index(6);
                (0..count)
                    .map(|_| self.random_time(elements[self.rng.clone().index(elements.len())].0.clone()))
                    .collect()
            }
            _ => (0..1 + self.rng.below(4)).map(|_| self.random_operation(kind)).collect(),
        };
        Effect::Change { db, key, kind, operations }
    }

    fn random_operation(&mut self, kind: ValueKind) -> Operation {
        let index = self.rng.index(2 * GROWN);
        match (kind, self.rng.below(8)) {
            (_, 0..4) => self.random_addition(kind),
            (ValueKind::List, 4) => Operation::PushFront(self.random_element()),
            (ValueKind::List, 5) => Operation::Insert(index, self.random_element()),
            (ValueKind::List, 6) => Operation::Set(index, self.random_element()),
            (ValueKind::List, _) if self.rng.chance(1, 2) => Operation::Remove(index, 1 + self.rng.index(3)),
            (ValueKind::List, _) => {
                let most = if self.rng.chance(1, 3) { usize::MAX } else { 1 };
                let (value, from_back) = (self.random_element(), self.rng.chance(1, 2));
                Operation::RemoveEqual { value, most, from_back }
            }
            _ => Operation::Delete(self.random_element()),
        }
    }

    fn random_time(&mut self, field: Vec<u8>) -> Operation {
        let after_ms = 1 + self.rng.below(1 << self.rng.clone().below(FIELD_MS_BITS));
        let at = self.store().now().server_ms() + after_ms;
        Operation::Time(field, self.rng.chance(5, 6).then_some(at))
    }

    fn random_addition(&mut self, kind: ValueKind) -> Operation {
        let element = self.random_element();
        let value = match kind {
            ValueKind::Hash | ValueKind::Stream if self.plan.is_busy && self.rng.chance(1, 100) => {
                b"v".repeat(LONG[self.rng.clone().index(LONG.len())])
            }
            ValueKind::Hash | ValueKind::Stream => b"v".repeat(self.rng.index(20)),
            // some are equal
            ValueKind::SortedSet => (self.rng.below(9) as f64 / 2.0 - 2.0).to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        Operation::Put(element, value)
    }

    fn random_element(&mut self) -> Vec<u8> {
        let number = self.rng.below(if self.plan.is_busy { 2 * ELEMENTS } else { ELEMENTS });
        let padding = match number {
            // so that a delete names it, too
            7 if self.plan.is_busy => LONG[0],
            23 if self.plan.is_busy => LONG[1],
            _ if number.is_multiple_of(16) => 70,
            _ => 8,
        };
        format!("{number:02}{}", "-".repeat(padding)).into_bytes()
    }
}

/// Removes some of these elements.
fn fewer(kind: ValueKind, elements: &Elements) -> Vec<Operation> {
    match kind {
        ValueKind::List => vec![Operation::Remove(GROWN / 2, GROWN)],
        _ => elements.iter().step_by(2).map(|(key, _)| Operation::Delete(key.clone())).collect(),
    }
}

/// The type of what this key is mostly.
fn kind_of(key: &[u8]) -> ValueKind {
    KINDS[usize::from(*key.last().unwrap()) % KINDS.len()]
}

/// Changes of one collection in a busy step.
const BUSY: usize = 8;
/// Keys of busy steps, by number: many, so that what they are is cleaned, and met by a start, before it changes again.
const BUSY_FROM: u64 = 30;
const BUSY_KEYS: u64 = 20;
/// Elements that one change of a busy collection has, about: more leaves than a record has room for in a footer.
const SERIES: usize = 24;
/// Fields end after fewer milliseconds than this power of two: as the clock advances.
const FIELD_MS_BITS: u64 = 14;
/// Keys that are made collections, by number; the type follows from the last digit.
const COLLECTIONS_FROM: u64 = 4;
const COLLECTIONS: u64 = 5;
const KINDS: [ValueKind; 5] =
    [ValueKind::Hash, ValueKind::Set, ValueKind::List, ValueKind::SortedSet, ValueKind::Stream];
/// Bytes of a few elements of busy lives: some have a leaf of their own.
const LONG: [usize; 3] = [300, 1_000, 3_000];
/// Smaller collections are logged whole.
const LARGE_BYTES: u64 = 600;
/// How many different elements there are, twice as many in busy lives, and with how many a collection is large enough that its changes are logged by themselves.
const ELEMENTS: u64 = 80;
const GROWN: usize = 50;
