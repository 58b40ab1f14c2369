//! What an access means to do, in the order of its last word on each key.
//!
//! Invariants
//!   1. At most one staged change for each (keyspace, key); the newest replaces the older in place.
//!   2. Beyond [`LINEAR_MAX`] changes, `by_slot` names the newest position of each slot identity and `before` the one before
//!      it, so that an MSET of thousands of keys stays linear; below it, a single SET pays nothing for it.
//!   3. After [`Overlay::undo`] all is as it was at the last [`Overlay::save`].

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use journal::Keyspace;
use smallvec::SmallVec;

use crate::hash::{KeyHash, WordHasher};
use crate::keyspaces::is_leaves;
use crate::large::Bytes;
use crate::object::Object;
use crate::record;
use crate::value::ValueKind;
use collections::root::Root;
use collections::{DELTA_BYTES_MIN, Deadline};

/// Where a value belongs.
#[derive(Clone, Copy)]
pub(super) struct KeyPlace<'a> {
    pub(super) db: u16,
    pub(super) keyspace: Keyspace,
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
}

/// What a collection becomes.
#[derive(Clone, Copy)]
pub(super) struct Content<'v> {
    pub(super) kind: ValueKind,
    /// Packed.
    pub(super) value: &'v [u8],
    pub(super) expiry: Option<Deadline>,
}

/// One key's change.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) db: u16,
    pub(super) keyspace: Keyspace,
    pub(super) hash: KeyHash,
    pub(super) change: Change,
    pub(super) cause: Cause,
}

/// Why a key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A command stores or removes it.
    Command,
    /// Commands change when it expires, and nothing else of what is there: allowed where growth is refused.
    Retime,
    /// Its time had come.
    Expired,
    /// The time of all its fields had come.
    Emptied,
    /// The time of so many of its fields had come.
    Purged(u32),
    /// It makes room for others.
    Evicted,
    /// It belongs to a paged collection that is gone.
    Swept,
    /// A transaction staged it before; for this access to see, not to commit.
    Resumed,
}

/// What becomes of a key; each carries the object that its slot will hold.
#[derive(Debug)]
pub(super) enum Change {
    /// A whole value.
    Put(Object),
    /// A changed state that is logged as a delta on what is there.
    Delta { object: Object, delta: Small },
    /// A removal: the object has the key and no value.
    Remove(Object),
}

/// What a delta changes.
#[derive(Debug)]
pub(super) enum Small {
    /// When the key expires.
    Expiry,
    /// These bytes of a string, and when it expires.
    Part { range: Range<usize>, retimes: bool },
    /// Elements of a collection: the body of the record; and when the first of key and fields ends.
    Elements { operations: Vec<u8>, retimes: bool },
    /// What a root counts.
    Totals,
}

impl Small {
    /// The record kind.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Expiry => record::EXPIRY,
            Self::Part { .. } => record::PART,
            Self::Elements { .. } => record::CHANGE,
            Self::Totals => record::TOTALS,
        }
    }

    /// The expiry in the record, of a key that expires at `expiry`.
    pub(super) fn expiry(&self, expiry: Option<Deadline>) -> Option<Deadline> {
        match self {
            Self::Expiry | Self::Part { retimes: true, .. } | Self::Elements { retimes: true, .. } => expiry,
            Self::Part { .. } | Self::Elements { .. } | Self::Totals => None,
        }
    }
}

impl Change {
    /// The removal of `key`.
    pub(super) fn removal(key: &[u8]) -> Self {
        Self::Remove(Object::new(record::REMOVED, key, Bytes::Plain(&[]), None))
    }

    /// The operations on elements by which it is logged, if it is.
    pub(super) fn operations(&self) -> Option<&[u8]> {
        match self {
            Self::Delta { delta: Small::Elements { operations, .. }, .. } => Some(operations),
            _ => None,
        }
    }

    /// `object`, logged as `delta` if there is one, and whole if not.
    pub(super) fn of(object: Object, delta: Option<Small>) -> Self {
        match delta {
            Some(delta) => Self::Delta { object, delta },
            None => Self::Put(object),
        }
    }
}

impl Staged {
    /// Whether it writes a large hash whole, without what has ended. A leaf is short, and goes with its root.
    pub(super) fn is_whole_purge(&self) -> bool {
        let is_large = || self.object().view().value().len() as u64 > DELTA_BYTES_MIN;
        let is_purge = matches!((self.cause, &self.change), (Cause::Purged(_), Change::Put(_)));
        is_purge && is_large() && !is_leaves(self.keyspace)
    }

    /// What it holds of memory.
    fn held_bytes(&self) -> u64 {
        let operations_bytes = self.change.operations().map_or(0, <[u8]>::len);
        self.object().view().memory_bytes() + (operations_bytes + size_of::<Self>()) as u64
    }

    /// About how long its record is, at most.
    pub(super) fn bytes_max(&self) -> u64 {
        let view = self.object().view();
        let body = match &self.change {
            Change::Put(_) => view.value().len(),
            Change::Delta { delta: Small::Elements { operations, .. }, .. } => operations.len(),
            Change::Delta { .. } | Change::Remove(_) => 0,
        };
        (view.key().len() + body) as u64 + 72
    }

    /// What it takes in memory, a large value left out.
    fn memory_bytes(&self) -> u64 {
        let operations_bytes = self.change.operations().map_or(0, <[u8]>::len);
        self.object().view().own_bytes() + (operations_bytes + size_of::<Self>()) as u64
    }

    /// The root that it puts at its key.
    pub(super) fn root(&self) -> Option<Root> {
        let object = self.object().view();
        record::root_of(object.kind(), object.value())
    }

    pub(super) fn object(&self) -> &Object {
        match &self.change {
            Change::Put(object) | Change::Delta { object, .. } | Change::Remove(object) => object,
        }
    }
}

/// Which keyspace each database gets, and the next unused one.
pub(super) type Mapping = (Vec<Keyspace>, Keyspace);

/// Staged changes and, after FLUSH or SWAPDB, the new mapping.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    first: Option<Staged>,
    /// What most accesses have nothing of.
    more: Option<Box<More>>,
}

/// All changes but the first: often one.
pub(super) type Rest = SmallVec<[Staged; 1]>;

#[derive(Debug, Default)]
struct More {
    rest: Rest,
    by_slot: HashMap<u64, u32, BuildHasherDefault<WordHasher>>,
    /// For each change the one before it of the same slot identity, [`NONE`] for the first; empty while `by_slot` is.
    before: Vec<u32>,
    /// Some change has one before it.
    shares_slots: bool,
    mapping: Option<Mapping>,
    /// Bytes of all changes, for whom they are counted.
    counted_bytes: Option<u64>,
    /// Keys whose collections change in their leaves alone.
    touched: Vec<Staged>,
    /// What `rest` takes in memory, large values left out.
    bytes: u64,
    /// What its records take in the log, at most.
    log_bytes: u64,
    /// What was done since the last save, for whom saves.
    done: Option<Vec<Done>>,
}

/// What takes one step back.
#[derive(Debug)]
enum Done {
    /// One more change.
    Staged,
    /// Change number `at` was another.
    Replaced(usize, Staged),
    /// These changes were there, too, with their numbers.
    Removed(Vec<(usize, Staged)>),
    /// One more touched key.
    Touched,
    /// The mapping was this one.
    Mapped(Option<Mapping>),
}

impl Overlay {
    /// From now on what is staged can be [undone](Overlay::undo); what was staged before stays.
    pub(super) fn save(&mut self) {
        self.more().done = Some(Vec::new());
    }

    /// Takes back what was staged since the last [save](Overlay::save); returns whether there was anything.
    pub(super) fn undo(&mut self) -> bool {
        let Some(done) = self.more.as_mut().and_then(|more| more.done.take()) else { return false };
        let is_any = !done.is_empty();
        for step in done.into_iter().rev() {
            match step {
                Done::Staged => self.pop(),
                Done::Replaced(at, former) => drop(self.replace(at, former)),
                Done::Removed(removed) => self.put_back(removed),
                Done::Touched => drop(self.more().touched.pop()),
                Done::Mapped(mapping) => self.more().mapping = mapping,
            }
        }
        self.save();
        is_any
    }

    /// Notes how a step is taken back, for whom saves.
    fn did(&mut self, done: Done) {
        if let Some(all) = self.more.as_mut().and_then(|more| more.done.as_mut()) {
            all.push(done);
        }
    }

    fn is_saved(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.done.is_some())
    }

    /// Takes the last change out.
    fn pop(&mut self) {
        let len = self.len();
        let more = self.more();
        let last = match more.rest.pop() {
            Some(last) => last,
            None => match self.first.take() {
                Some(first) => return self.uncount(&first),
                None => return,
            },
        };
        more.bytes -= last.memory_bytes();
        more.log_bytes -= last.bytes_max();
        let slot = last.hash.slot();
        match more.before.pop() {
            _ if len <= LINEAR_MAX + 1 => {
                more.by_slot.clear();
                more.before.clear();
            }
            None | Some(NONE) => drop(more.by_slot.remove(&slot)),
            Some(before) => drop(more.by_slot.insert(slot, before)),
        }
        self.uncount(&last);
    }

    /// Adds changes that were taken out, each at its number.
    fn put_back(&mut self, removed: Vec<(usize, Staged)>) {
        let kept: Vec<Staged> = self.drain().collect();
        let (mut kept, mut removed) = (kept.into_iter(), removed.into_iter().peekable());
        for at in 0.. {
            let back = removed.next_if(|(number, _)| *number == at).map(|(_, staged)| staged);
            let Some(staged) = back.or_else(|| kept.next()) else { break };
            self.push(staged);
        }
    }

    /// Puts `staged` in the place of change number `at`, which is returned.
    fn replace(&mut self, at: usize, staged: Staged) -> Staged {
        self.count_in(&staged);
        let former = match at.checked_sub(1) {
            None => self.first.replace(staged).expect("a change has this number"),
            Some(at) => self.more().replace(at, staged),
        };
        self.uncount(&former);
        former
    }

    fn count_in(&mut self, staged: &Staged) {
        if let Some(counted) = self.more.as_mut().and_then(|more| more.counted_bytes.as_mut()) {
            *counted += staged.held_bytes();
        }
    }

    fn uncount(&mut self, staged: &Staged) {
        if let Some(counted) = self.more.as_mut().and_then(|more| more.counted_bytes.as_mut()) {
            *counted = counted.saturating_sub(staged.held_bytes());
        }
    }

    /// Whether nothing is staged, saved or counted here.
    pub(super) fn is_untouched(&self) -> bool {
        self.first.is_none() && self.more.is_none()
    }

    /// Counts the bytes of changes from now on.
    pub(super) fn count(&mut self) {
        let bytes = self.iter().map(Staged::held_bytes).sum();
        self.more().counted_bytes = Some(bytes);
    }

    /// Bytes of all changes, where they are counted.
    pub(super) fn counted_bytes(&self) -> u64 {
        self.more.as_ref().and_then(|more| more.counted_bytes).unwrap_or(0)
    }

    /// Makes room for so many more changes.
    pub(super) fn reserve(&mut self, more: usize) {
        // the first is beside the others
        let more = (self.len() + more).saturating_sub(1 + self.rest().len());
        self.more().rest.reserve(more);
    }

    /// The only change, where nothing else is known here.
    pub(super) fn only(&self) -> Option<&Staged> {
        self.first.as_ref().filter(|_| self.more.is_none())
    }

    /// Takes the only change out.
    ///
    /// # Panics
    /// Where there is none.
    pub(super) fn take_only(&mut self) -> Staged {
        let first = if self.more.is_none() { self.first.take() } else { self.drain().next() };
        first.expect("a change is staged")
    }

    /// Adds a change, or replaces what was staged for the same key.
    pub(super) fn stage(&mut self, staged: Staged) {
        if self.first.is_none() && self.more.is_none() {
            self.first = Some(staged);
            return;
        }
        let slot = staged.hash.slot();
        // where slots are listed one that is not needs no search
        let is_new = self
            .more
            .as_ref()
            .is_some_and(|more| !more.by_slot.is_empty() && !more.by_slot.contains_key(&slot));
        let key = staged.object().view().key();
        let at = if is_new { None } else { self.position(staged.keyspace, staged.hash, key) };
        let done = match at {
            Some(at) => Done::Replaced(at, self.replace(at, staged)),
            None => {
                self.push(staged);
                Done::Staged
            }
        };
        self.did(done);
    }

    fn push(&mut self, staged: Staged) {
        self.count_in(&staged);
        let at = self.len();
        if at == 0 {
            self.first = Some(staged);
            return;
        }
        let slot = staged.hash.slot();
        if at == LINEAR_MAX {
            let slots: Vec<u64> = self.iter().map(|staged| staged.hash.slot()).collect();
            slots.into_iter().for_each(|slot| self.more().note(slot));
        }
        let more = self.more();
        if at >= LINEAR_MAX {
            more.note(slot);
        }
        more.push(staged);
    }

    /// What all changes but the first take in memory, and in the log at most.
    pub(super) fn bytes(&self) -> (u64, u64) {
        self.more.as_ref().map_or((0, 0), |more| (more.bytes, more.log_bytes))
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn rest(&self) -> &[Staged] {
        self.more.as_ref().map_or(&[], |more| &more.rest)
    }

    /// Positions of changes with this slot identity; `None` while there are too few to have them listed.
    fn positions(&self, slot: u64) -> Option<impl Iterator<Item = usize>> {
        let more = self.more.as_ref().filter(|more| !more.by_slot.is_empty())?;
        let newest = more.by_slot.get(&slot).copied();
        let listed =
            std::iter::successors(newest, |at| Some(more.before[*at as usize]).filter(|at| *at != NONE));
        Some(listed.map(|at| at as usize))
    }

    /// Adds a key whose collection changes in its leaves alone; of what is staged of it the key and its place matter.
    pub(super) fn touch(&mut self, touched: Staged) {
        let all = &mut self.more().touched;
        let key = touched.object().view().key();
        let is_last = |last: &Staged| last.keyspace == touched.keyspace && last.object().view().key() == key;
        if !all.last().is_some_and(is_last) {
            all.push(touched);
            self.did(Done::Touched);
        }
    }

    /// Takes out the keys whose collections change in their leaves alone.
    pub(super) fn take_touched(&mut self) -> Vec<Staged> {
        self.more.as_mut().map_or_else(Vec::new, |more| std::mem::take(&mut more.touched))
    }

    /// The new mapping, if there is one.
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        self.more.as_ref()?.mapping.as_ref()
    }

    /// The new mapping, to change; `now` is what holds.
    pub(super) fn change_mapping(&mut self, now: impl FnOnce() -> Mapping) -> &mut Mapping {
        if self.is_saved() {
            let mapping = self.mapping().cloned();
            self.did(Done::Mapped(mapping));
        }
        self.more().mapping.get_or_insert_with(now)
    }

    /// Takes the new mapping out.
    pub(super) fn take_mapping(&mut self) -> Option<Mapping> {
        self.more.as_mut()?.mapping.take()
    }

    /// What is staged for a key.
    pub(super) fn find(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<&Staged> {
        self.position(keyspace, hash, key).map(|at| self.get(at))
    }

    /// Whether another staged key has the same bits of hash as number `at`.
    pub(super) fn shares_bits(&self, at: usize) -> bool {
        let this = self.get(at);
        let collides = |other: usize| {
            let staged = self.get(other);
            other != at && staged.keyspace == this.keyspace && staged.hash.slot() == this.hash.slot()
        };
        if self.more.as_ref().is_some_and(|more| !more.by_slot.is_empty() && !more.shares_slots) {
            return false;
        }
        match self.positions(this.hash.slot()) {
            Some(mut positions) => positions.any(collides),
            None => (0..self.len()).any(collides),
        }
    }

    /// Number of staged changes.
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest().len()
    }

    /// Change number `at`.
    ///
    /// # Panics
    /// Beyond [`Overlay::len`].
    pub(super) fn get(&self, at: usize) -> &Staged {
        if at == 0 { self.first.as_ref().expect("at is below len") } else { &self.rest()[at - 1] }
    }

    /// All changes, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Staged> {
        self.first.iter().chain(self.rest())
    }

    /// Takes all changes out, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Staged> {
        let (first, rest) = self.take_all();
        first.into_iter().chain(rest)
    }

    /// Takes all changes out, in order: the first one, and the others.
    pub(super) fn take_all(&mut self) -> (Option<Staged>, Rest) {
        let rest = self.more.as_mut().map(|more| {
            more.by_slot.clear();
            more.before.clear();
            more.shares_slots = false;
            (more.bytes, more.log_bytes) = (0, 0);
            more.counted_bytes = more.counted_bytes.map(|_| 0);
            std::mem::take(&mut more.rest)
        });
        (self.first.take(), rest.unwrap_or_default())
    }

    /// Keeps the changes that `keep` approves of.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Staged) -> bool) {
        let all: Vec<Staged> = self.drain().collect();
        let mut removed = Vec::new();
        for (at, staged) in all.into_iter().enumerate() {
            if keep(&staged) {
                self.push(staged);
            } else if self.is_saved() {
                removed.push((at, staged));
            }
        }
        if !removed.is_empty() {
            self.did(Done::Removed(removed));
        }
    }

    fn position(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Option<usize> {
        let same = |staged: &Staged| {
            staged.hash == hash && staged.keyspace == keyspace && staged.object().view().key() == key
        };
        match self.positions(hash.slot()) {
            None => self.iter().position(same),
            Some(mut positions) => positions.find(|&at| same(self.get(at))),
        }
    }
}

impl More {
    fn push(&mut self, staged: Staged) {
        self.bytes += staged.memory_bytes();
        self.log_bytes += staged.bytes_max();
        self.rest.push(staged);
    }

    fn replace(&mut self, at: usize, staged: Staged) -> Staged {
        let former = std::mem::replace(&mut self.rest[at], staged);
        let staged = &self.rest[at];
        self.bytes = self.bytes + staged.memory_bytes() - former.memory_bytes();
        self.log_bytes = self.log_bytes + staged.bytes_max() - former.bytes_max();
        former
    }

    /// Lists the next change under its slot identity.
    fn note(&mut self, slot: u64) {
        let at = u32::try_from(self.before.len()).expect("a group of transaction.max has fewer records");
        let before = self.by_slot.insert(slot, at);
        self.before.push(before.unwrap_or(NONE));
        self.shares_slots |= before.is_some();
    }
}

/// In place of a position.
const NONE: u32 = u32::MAX;

/// Changes that are searched one by one.
const LINEAR_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHasher;

    const MAIN: Keyspace = Keyspace(1);

    /// All changes, as text, and what is found of each key.
    fn told(overlay: &Overlay, hasher: &KeyHasher) -> Vec<String> {
        let mut told: Vec<String> =
            overlay.iter().map(|staged| format!("{:?}", staged.object().view().value())).collect();
        for number in 0..KEYS {
            let found = overlay.find(MAIN, hasher.hash(&[number]), &[number]);
            told.push(format!("{number}: {:?}", found.map(|staged| staged.object().view().value().to_vec())));
        }
        told.push(format!("{:?} {:?}", overlay.bytes(), overlay.counted_bytes()));
        told.push(format!(
            "{} {:?}",
            overlay.more.as_ref().map_or(0, |more| more.touched.len()),
            overlay.mapping()
        ));
        told
    }

    const KEYS: u8 = 60;

    #[test]
    fn undone_is_as_it_was_at_the_last_save() {
        for (seed, bits) in (0..200).flat_map(|seed| [(seed, 8), (seed, 128)]) {
            let hasher = KeyHasher::new(&[3; 16], bits);
            let mut number = seed * 1_000 + u64::from(bits);
            let mut below = |most: u64| {
                number = crate::mixed(number);
                number % most
            };
            let mut overlay = Overlay::default();
            let most = [2, 20, 60][below(3) as usize];
            if below(2) == 0 {
                overlay.count();
            }
            let mut step = |overlay: &mut Overlay, number: u64| match below(12) {
                0 => overlay.retain(|staged| staged.object().view().key()[0] % 3 != 0),
                1 => overlay.change_mapping(|| (vec![MAIN], Keyspace(2))).1 = Keyspace(number as u32),
                2 => overlay.touch(staged_of(&hasher, below(most) as u8, 0)),
                _ => overlay.stage(staged_of(&hasher, below(most) as u8, number)),
            };
            for round in 0..6 {
                (0..10).for_each(|number| step(&mut overlay, round * 100 + number));
                overlay.save();
                let before = told(&overlay, &hasher);
                (0..round * 5).for_each(|number| step(&mut overlay, round * 100 + 50 + number));
                overlay.undo();
                assert_eq!(told(&overlay, &hasher), before, "seed {seed}, {bits} bits, round {round}");
            }
        }
    }

    fn staged_of(hasher: &KeyHasher, key: u8, value: u64) -> Staged {
        let value = value.to_string().repeat(1 + value as usize % 3);
        let object = Object::new(record::STRING, &[key], Bytes::Plain(value.as_bytes()), None);
        Staged {
            db: 0,
            keyspace: MAIN,
            hash: hasher.hash(&[key]),
            change: Change::Put(object),
            cause: Cause::Command,
        }
    }
}
