//! What an access means to do, in the order of its last word on each key.
//!
//! Invariants
//!   1. At most one staged change for each (keyspace, key); the newest replaces the older in place.
//!   2. Beyond [`LINEAR_MAX`] changes, `by_slot` names the positions of each slot identity, so that an MSET of thousands of
//!      keys stays linear; below it, a single SET pays nothing for it.

use std::collections::HashMap;

use crate::hash::KeyHash;
use crate::object::Object;

/// One key's change.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) db: u16,
    pub(super) keyspace: u32,
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
    /// A transaction staged it before; for this access to see, not to commit.
    Resumed,
}

/// What becomes of a key; each carries the object that its slot will hold.
#[derive(Debug)]
pub(super) enum Change {
    /// A whole value.
    Put(Object),
    /// A changed state that is logged as a delta of `kind` on what is there: another expiry, another field.
    Delta { object: Object, kind: u8, body: Vec<u8> },
    /// A removal: the object has the key and no value.
    Remove(Object),
}

impl Staged {
    pub(super) fn object(&self) -> &Object {
        match &self.change {
            Change::Put(object) | Change::Delta { object, .. } | Change::Remove(object) => object,
        }
    }
}

/// Which keyspace each database gets, and the next unused one.
pub(super) type Mapping = (Vec<u32>, u32);

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
    by_slot: HashMap<u64, Vec<usize>>,
    mapping: Option<Mapping>,
}

impl Overlay {
    /// Adds a change, or replaces what was staged for the same key.
    pub(super) fn stage(&mut self, staged: Staged) {
        let key = staged.object().view().key();
        match self.position(staged.keyspace, staged.hash, key) {
            Some(0) => self.first = Some(staged),
            Some(at) => self.more().rest[at - 1] = staged,
            None => self.push(staged),
        }
    }

    fn push(&mut self, staged: Staged) {
        let at = self.len();
        if at == 0 {
            self.first = Some(staged);
            return;
        }
        if at == LINEAR_MAX {
            let slots: Vec<u64> = self.iter().map(|staged| staged.hash.slot()).collect();
            let by_slot = &mut self.more().by_slot;
            slots.into_iter().enumerate().for_each(|(at, slot)| by_slot.entry(slot).or_default().push(at));
        }
        let more = self.more();
        if at >= LINEAR_MAX {
            more.by_slot.entry(staged.hash.slot()).or_default().push(at);
        }
        more.rest.push(staged);
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn rest(&self) -> &[Staged] {
        self.more.as_ref().map_or(&[], |more| &more.rest)
    }

    fn by_slot(&self) -> Option<&HashMap<u64, Vec<usize>>> {
        self.more.as_ref().map(|more| &more.by_slot).filter(|by_slot| !by_slot.is_empty())
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
    pub(super) fn find(&self, keyspace: u32, hash: KeyHash, key: &[u8]) -> Option<&Staged> {
        self.position(keyspace, hash, key).map(|at| self.get(at))
    }

    /// Whether another staged key has the same bits of hash as number `at`.
    pub(super) fn shares_bits(&self, at: usize) -> bool {
        let this = self.get(at);
        let collides = |other: usize| {
            let staged = self.get(other);
            other != at && staged.keyspace == this.keyspace && staged.hash.slot() == this.hash.slot()
        };
        match self.by_slot().and_then(|by_slot| by_slot.get(&this.hash.slot())) {
            Some(positions) => positions.iter().copied().any(collides),
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
        let rest = self.more.as_mut().map(|more| {
            more.by_slot.clear();
            std::mem::take(&mut more.rest)
        });
        self.first.take().into_iter().chain(rest.into_iter().flatten())
    }

    /// Keeps the changes that `keep` approves of.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Staged) -> bool) {
        let kept: Vec<Staged> = self.drain().filter(|staged| keep(staged)).collect();
        kept.into_iter().for_each(|staged| self.push(staged));
    }

    fn position(&self, keyspace: u32, hash: KeyHash, key: &[u8]) -> Option<usize> {
        let same = |staged: &Staged| {
            staged.hash == hash && staged.keyspace == keyspace && staged.object().view().key() == key
        };
        match self.by_slot() {
            None => self.iter().position(same),
            Some(by_slot) => by_slot.get(&hash.slot())?.iter().copied().find(|&at| same(self.get(at))),
        }
    }
}

/// Changes that are searched one by one.
const LINEAR_MAX: usize = 16;
