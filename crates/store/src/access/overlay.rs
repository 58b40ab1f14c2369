//! What an access means to do, in the order of its last word on each key.
//!
//! Invariants
//!   1. At most one staged change for each (keyspace, key); the newest replaces the older in place.
//!   2. Beyond [`LINEAR_MAX`] changes, `by_slot` names the newest position of each slot identity and `before` the one before
//!      it, so that an MSET of thousands of keys stays linear; below it, a single SET pays nothing for it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use journal::Keyspace;

use crate::hash::{KeyHash, WordHasher};
use crate::keyspaces::is_leaves;
use crate::large::Bytes;
use crate::object::Object;
use crate::packed::DELTA_BYTES_MIN;
use crate::record;

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
}

impl Small {
    /// The record kind.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Expiry => record::EXPIRY,
            Self::Part { .. } => record::PART,
            Self::Elements { .. } => record::CHANGE,
        }
    }

    /// The expiry in the record, of a key that expires at `expiry_ms`.
    pub(super) fn expiry_ms(&self, expiry_ms: u64) -> u64 {
        match self {
            Self::Expiry | Self::Part { retimes: true, .. } | Self::Elements { retimes: true, .. } => {
                expiry_ms
            }
            Self::Part { .. } | Self::Elements { .. } => 0,
        }
    }
}

impl Change {
    /// The removal of `key`.
    pub(super) fn removal(key: &[u8]) -> Self {
        Self::Remove(Object::new(record::REMOVED, key, Bytes::Plain(&[]), 0))
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
        let operations = match &self.change {
            Change::Delta { delta: Small::Elements { operations, .. }, .. } => operations.len() as u64,
            _ => 0,
        };
        self.object().view().memory_bytes() + operations + size_of::<Self>() as u64
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
        let operations = match &self.change {
            Change::Delta { delta: Small::Elements { operations, .. }, .. } => operations.len(),
            _ => 0,
        };
        self.object().view().own_bytes() + (operations + size_of::<Self>()) as u64
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

#[derive(Debug, Default)]
struct More {
    rest: Vec<Staged>,
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
}

impl Overlay {
    /// Counts the bytes of changes from now on.
    pub(super) fn count(&mut self) {
        let bytes = self.iter().map(Staged::held_bytes).sum();
        self.more().counted_bytes = Some(bytes);
    }

    /// Bytes of all changes, where they are counted.
    pub(super) fn counted_bytes(&self) -> u64 {
        self.more.as_ref().and_then(|more| more.counted_bytes).unwrap_or(0)
    }

    /// Counts `staged`, in the place of what is there for the same key.
    #[cold]
    fn count_staged(&mut self, staged: &Staged) {
        let key = staged.object().view().key();
        let replaced = self.find(staged.keyspace, staged.hash, key).map_or(0, Staged::held_bytes);
        let counted = self.counted_bytes() + staged.held_bytes();
        self.more().counted_bytes = Some(counted.saturating_sub(replaced));
    }

    /// Adds a change, or replaces what was staged for the same key.
    pub(super) fn stage(&mut self, staged: Staged) {
        if self.more.as_ref().is_some_and(|more| more.counted_bytes.is_some()) {
            self.count_staged(&staged);
        }
        if self.more.as_ref().is_some_and(|more| !more.by_slot.is_empty()) {
            return self.stage_listed(staged);
        }
        let key = staged.object().view().key();
        match self.position(staged.keyspace, staged.hash, key) {
            Some(0) => self.first = Some(staged),
            Some(at) => self.more().replace(at - 1, staged),
            None => self.push(staged),
        }
    }

    /// As [`Overlay::stage`], where slots are listed: looks them up once.
    fn stage_listed(&mut self, staged: Staged) {
        let slot = staged.hash.slot();
        let more = self.more();
        more.note(slot);
        if more.before.last() == Some(&NONE) {
            return more.push(staged);
        }
        let newest = more.before.pop().expect("just listed");
        more.by_slot.insert(slot, newest);
        let key = staged.object().view().key();
        match self.position(staged.keyspace, staged.hash, key) {
            Some(0) => self.first = Some(staged),
            Some(at) => self.more().replace(at - 1, staged),
            None => self.push(staged),
        }
    }

    fn push(&mut self, staged: Staged) {
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
    pub(super) fn take_all(&mut self) -> (Option<Staged>, Vec<Staged>) {
        let rest = self.more.as_mut().map(|more| {
            more.by_slot.clear();
            more.before.clear();
            more.shares_slots = false;
            (more.bytes, more.log_bytes) = (0, 0);
            std::mem::take(&mut more.rest)
        });
        (self.first.take(), rest.unwrap_or_default())
    }

    /// Keeps the changes that `keep` approves of.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Staged) -> bool) {
        let kept: Vec<Staged> = self.drain().filter(|staged| keep(staged)).collect();
        kept.into_iter().for_each(|staged| self.push(staged));
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

    fn replace(&mut self, at: usize, staged: Staged) {
        let former = std::mem::replace(&mut self.rest[at], staged);
        let staged = &self.rest[at];
        self.bytes = self.bytes + staged.memory_bytes() - former.memory_bytes();
        self.log_bytes = self.log_bytes + staged.bytes_max() - former.bytes_max();
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
