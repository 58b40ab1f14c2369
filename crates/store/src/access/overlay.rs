//! What an access means to do, in the order of its last word on each key.
//!
//! Invariant: at most one staged change for each (keyspace, key); the newest replaces the older in place.

use crate::hash::KeyHash;
use crate::object::Object;

/// One key's change.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) db: u16,
    pub(super) keyspace: u32,
    pub(super) hash: KeyHash,
    pub(super) change: Change,
    /// A removal because its time had come.
    pub(super) expired: bool,
}

/// What becomes of a key; each carries the object that its slot will hold.
#[derive(Debug)]
pub(super) enum Change {
    /// A whole value.
    Put(Object),
    /// The same value with another expiry, logged as a delta.
    Retime(Object),
    /// A removal: the object has the key and no value.
    Remove(Object),
}

impl Staged {
    pub(super) fn object(&self) -> &Object {
        match &self.change {
            Change::Put(object) | Change::Retime(object) | Change::Remove(object) => object,
        }
    }
}

/// Staged changes and, after FLUSH or SWAPDB, the new mapping with the next unused keyspace.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    first: Option<Staged>,
    rest: Vec<Staged>,
    pub(super) mapping: Option<(Vec<u32>, u32)>,
}

impl Overlay {
    /// Adds a change, or replaces what was staged for the same key.
    pub(super) fn stage(&mut self, staged: Staged) {
        let key = staged.object().view().key();
        match self.position(staged.keyspace, staged.hash, key) {
            Some(0) => self.first = Some(staged),
            Some(at) => self.rest[at - 1] = staged,
            None if self.first.is_none() => self.first = Some(staged),
            None => self.rest.push(staged),
        }
    }

    /// What is staged for a key.
    pub(super) fn find(&self, keyspace: u32, hash: KeyHash, key: &[u8]) -> Option<&Staged> {
        self.position(keyspace, hash, key).map(|at| self.get(at))
    }

    /// Whether some change is staged for `key`.
    pub(super) fn has_key(&self, keyspace: u32, key: &[u8]) -> bool {
        self.iter().any(|staged| staged.keyspace == keyspace && staged.object().view().key() == key)
    }

    /// Whether another staged key has the same bits of hash as number `at`.
    pub(super) fn shares_bits(&self, at: usize) -> bool {
        let this = self.get(at);
        let mut others = self.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, staged)| staged);
        others.any(|s| s.keyspace == this.keyspace && s.hash.same_slot(this.hash))
    }

    /// Number of staged changes.
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Change number `at`.
    ///
    /// # Panics
    /// Beyond [`Overlay::len`].
    pub(super) fn get(&self, at: usize) -> &Staged {
        if at == 0 { self.first.as_ref().expect("at is below len") } else { &self.rest[at - 1] }
    }

    /// All changes, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Staged> {
        self.first.iter().chain(&self.rest)
    }

    /// Takes all changes out, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Staged> {
        self.first.take().into_iter().chain(std::mem::take(&mut self.rest))
    }

    /// Keeps the changes that `keep` approves of.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Staged) -> bool) {
        self.rest.retain(&mut keep);
        if self.first.as_ref().is_some_and(|staged| !keep(staged)) {
            self.first = None;
            if !self.rest.is_empty() {
                self.first = Some(self.rest.remove(0));
            }
        }
    }

    // Transactions of thousands of keys make this quadratic; `transaction.max` bounds it, and a hash table would
    // cost every single SET.
    fn position(&self, keyspace: u32, hash: KeyHash, key: &[u8]) -> Option<usize> {
        self.iter().position(|staged| {
            staged.hash == hash && staged.keyspace == keyspace && staged.object().view().key() == key
        })
    }
}
