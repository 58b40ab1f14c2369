//! Fields with deadlines in the leaves of a large hash.
//!
//! ```text
//! key -> root, timed          (object, 0) -> leaf { a: 1 ends at 5, ... }     its header: 5        (object, KEY_NODE) -> key
//! at 5: a lookup, or the tender that finds leaf 0 in the index, by KEY_NODE the key, and by that the root
//! one group: PURGE of leaf 0, and the root, which counts one less
//! ```
//!
//! A leaf is a hash whose fields have deadlines, as a small one is (`fields`): who looks it up meets it without those that have passed.
//!
//! Invariants
//!   1. A purge of a leaf and the root that counts it are one group, whatever else the group has.
//!   2. A root that is timed has its [`KEY_NODE`], which is staged with each change of the key: that of the root's first deadline, and RENAME.
//!
//! Until a leaf is looked up its root counts fields that have passed, too; so a key may be there some milliseconds longer than its last field. Who
//! asks for the number of fields looks up the leaves that are due first.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use journal::Keyspace;

use super::nodes::{Paged, damaged};
use super::overlay::{Cause, Change, KeyPlace, Staged};
use super::paged::paged_of;
use super::purged::{Purge, TimedKey, next_deadline};
use super::{Access, State};
use crate::error::Stop;
use crate::index::stripe::{Current, Seek};
use crate::keyspaces::{HIDDEN_DB, is_leaves};
use crate::large::Bytes;
use crate::object::Object;
use crate::record;
use crate::sought::Sought;
use collections::Deadline;
use collections::root::{KEY_NODE, Root, leaf_key, object_of, split_leaf_key};

/// What a purge makes of a root.
struct Purged {
    key: TimedKey,
    root: Root,
    expiry: Option<Deadline>,
    cause: Cause,
}

impl Access<'_> {
    /// The collection in the state of `key`, if it is paged.
    ///
    /// # Errors
    /// Its root counts no element: none such is written, since a key without elements is removed.
    pub(super) fn paged_in(&self, state: &State<'_>, db: u16, key: &[u8]) -> Result<Option<Paged>, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(None) };
        let Some(paged) = paged_of(state, keyspace) else { return Ok(None) };
        if paged.root.count == 0 {
            return Err(damaged(&paged, "its root counts no element"));
        }
        if paged.root.is_timed {
            let timed = || TimedKey { db, keyspace, hash: self.hash(key), key: key.into() };
            self.timed.get_or_init(Box::default).borrow_mut().entry(paged.root.object).or_insert_with(timed);
        }
        Ok(Some(paged))
    }

    /// Looks up leaf `number` of the hash at `key`, if that is `object`, so that what has passed is noted; returns whether it is.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub(crate) fn meet_leaf(&self, db: u16, key: &[u8], object: u64, number: u32) -> Result<bool, Stop> {
        let paged = self.paged(db, key)?.filter(|paged| paged.root.object == object);
        match paged.filter(|paged| number < paged.root.leaves) {
            Some(paged) => self.node(&paged, number, paged.hashed_kind()).map(|_| true),
            None => Ok(false),
        }
    }

    /// Looks up the leaves of this collection some of whose fields have passed, so that these are noted. Without such leaves nothing is read.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub(super) fn meet_due(&self, paged: &Paged) -> Result<(), Stop> {
        if !paged.root.is_timed {
            return Ok(());
        }
        let numbers = self.due_leaves(paged)?;
        self.leaves(paged, numbers.into_iter()).map(drop)
    }

    /// As [`Access::has_ended_since`], of the leaves of `current` if it is the root of a hash; nothing is removed.
    pub(super) fn has_leaf_ended_since(
        &self,
        before: [u64; 2],
        keyspace: Keyspace,
        current: Current<'_>,
    ) -> Result<bool, Stop> {
        let Some(paged) = paged_of(&State::current(current), keyspace).filter(|it| it.root.is_timed) else {
            return Ok(false);
        };
        for number in self.due_leaves(&paged)? {
            let (key, hash) = self.reach_node(&paged, number)?;
            let stripe = self.at_stripe(hash.stripe())?;
            let Some(space) = stripe.space(paged.leaves) else { continue };
            match space.seek(paged.leaves, hash, &key, self.prepared()) {
                Seek::At { whole: true, current, .. } => {
                    if self.has_ended_since(before, current) {
                        return Ok(true);
                    }
                }
                Seek::At { word, .. } => {
                    let base = Sought::base(word.address(), paged.leaves, hash);
                    return Err(self.miss_all(space, vec![base]));
                }
                Seek::Unknown(records) => return Err(self.miss_all(space, records)),
                // who looks for a damaged one is told
                Seek::Absent { .. } | Seek::Damaged { .. } => {}
            }
        }
        Ok(false)
    }

    /// Numbers of the leaves of this hash that have fields which have passed, as the index knows.
    fn due_leaves(&self, paged: &Paged) -> Result<BTreeSet<u32>, Stop> {
        let (mut numbers, mut unknown) = (BTreeSet::new(), Vec::new());
        let number = self.reach_leaves(paged)?;
        let stripe = self.at_stripe(number)?;
        let Some(space) = stripe.space(paged.leaves) else { return Ok(numbers) };
        for entry in space.expiry.due(self.now) {
            self.charge(1)?;
            let hash = entry.hash(number);
            for spot in space.table.candidates(hash) {
                match space.current(spot, self.prepared()) {
                    Ok(Some(current)) => {
                        let of_this = |(object, leaf)| (object == paged.root.object).then_some(leaf);
                        numbers.extend(split_leaf_key(current.key()).and_then(of_this));
                    }
                    Ok(None) => {
                        let address = space.table.word(spot).address();
                        unknown.push(Sought::base(address, paged.leaves, hash));
                    }
                    // It may be another hash's; who looks for it is told.
                    Err(_) => {}
                }
            }
            if unknown.len() >= READ_AT_ONCE_MAX {
                break;
            }
        }
        if !unknown.is_empty() {
            return Err(self.miss_all(space, unknown));
        }
        // what has been merged with another is not removed at once
        numbers.retain(|number| *number < paged.root.leaves);
        Ok(numbers)
    }

    /// The key that has the hash `object` whose fields have deadlines; `None` if there is no such hash.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub(crate) fn key_of_object(&self, leaves: Keyspace, object: u64) -> Result<Option<&[u8]>, Stop> {
        let node = leaf_key(object, KEY_NODE);
        let hash = self.store.hasher.hash_in(leaves, &node);
        let place = KeyPlace { db: HIDDEN_DB, keyspace: leaves, hash, key: &node };
        Ok(self.lookup(place)?.map(|state| state.value.slice()))
    }

    /// Stages at which key the timed hash `object` is.
    pub(super) fn stage_key_node(&mut self, leaves: Keyspace, object: u64, key: &[u8]) {
        let node = leaf_key(object, KEY_NODE);
        let hash = self.store.hasher.hash_in(leaves, &node);
        let change = Change::Put(Object::new(record::STRING, &node, Bytes::Plain(key), None));
        self.stage(Staged { db: HIDDEN_DB, keyspace: leaves, hash, change, cause: Cause::Command });
    }

    /// `value` of a key that expires at `own`, which it says itself if its fields have deadlines; and when the first of all these is.
    pub(super) fn with_deadlines<'v>(
        &self,
        kind: u8,
        value: &'v [u8],
        own: Option<Deadline>,
    ) -> (Cow<'v, [u8]>, Option<Deadline>) {
        let is_timed = kind == record::HASH && collections::times_of(value).is_some();
        let value = if is_timed {
            collections::with_own(value, Deadline::raw_or_zero(own)).into()
        } else {
            Cow::Borrowed(value)
        };
        let first = next_deadline(self.now, kind, &value, own);
        (value, first)
    }

    /// Stages the purges of leaves, and the roots that count them.
    pub(super) fn adopt_purged_leaves(&mut self, mut purges: Vec<Purge>) {
        if purges.is_empty() {
            return;
        }
        let object = |purge: &Purge| object_of(purge.staged.object().view().key());
        let roots = self.overlay.iter().enumerate().filter_map(|(at, it)| Some((it.root()?.object, at)));
        let (roots, mut gone): (BTreeMap<u64, usize>, _) = (roots.collect(), BTreeSet::new());
        purges.sort_by_key(object);
        let mut purges = purges.into_iter().peekable();
        while let Some(of) = purges.peek().and_then(object) {
            let same: Vec<Purge> =
                std::iter::from_fn(|| purges.next_if(|purge| object(purge) == Some(of))).collect();
            let Some(purged) = self.purged_root(of, roots.get(&of).copied(), &same) else { continue };
            if purged.root.count == 0 {
                gone.insert(of);
            }
            self.stage_purged(purged, same);
        }
        if !gone.is_empty() {
            self.overlay.retain(|staged| !leaf_object(staged).is_some_and(|object| gone.contains(&object)));
        }
    }

    /// What these purges of leaves of `object` make of its root, which is staged as change number `staged` or is there; `None` if it goes or is
    /// another's, or they are to wait.
    fn purged_root(&mut self, object: u64, staged: Option<usize>, purges: &[Purge]) -> Option<Purged> {
        let (key, mut root, expiry, cause) = match staged {
            Some(at) => {
                let Staged { db, keyspace, hash, cause, .. } = *self.overlay.get(at);
                let view = self.overlay.get(at).object().view();
                let key = TimedKey { db, keyspace, hash, key: view.key().into() };
                (key, self.overlay.get(at).root()?, view.expiry(), cause)
            }
            None => {
                let key = self.timed.get()?.borrow().get(&object)?.clone();
                if self.overlay.find(key.keyspace, key.hash, &key.key).is_some() {
                    return None;
                }
                self.turn_to_stripe(key.hash.stripe());
                let state = self.lookup_there(&self.copied, key.place()).ok()??;
                let root = record::root_of(state.kind, state.value.slice())?;
                let expiry = state.expiry;
                (key, root, expiry, Cause::Purged(0))
            }
        };
        if root.object != object {
            return None;
        }
        // whoever holds the key ends first, as with a small hash
        self.turn_to_stripe(key.hash.stripe());
        if self.is_held(key.keyspace, key.hash, &key.key) {
            self.turn_to_stripe(purges[0].staged.hash.stripe());
            self.record_passed(&purges[0].staged);
            return None;
        }
        let fields: u64 = purges.iter().map(|purge| u64::from(purge.fields)).sum();
        let bytes: u64 = purges.iter().map(|purge| purge.bytes).sum();
        (root.count, root.bytes) = (root.count.saturating_sub(fields), root.bytes.saturating_sub(bytes));
        Some(Purged { key, root, expiry, cause })
    }

    fn stage_purged(&mut self, purged: Purged, purges: Vec<Purge>) {
        let Purged { key: TimedKey { db, keyspace, hash, key }, root, expiry, cause } = purged;
        if root.count == 0 {
            let cause = if cause == Cause::Command { cause } else { Cause::Emptied };
            return self.stage(Staged { db, keyspace, hash, change: Change::removal(&key), cause });
        }
        for purge in purges {
            let staged = &purge.staged;
            // what was made of the leaf has the purge
            if self.overlay.find(staged.keyspace, staged.hash, staged.object().view().key()).is_none() {
                self.stage(purge.staged);
            }
        }
        let object = Object::new(record::PAGED_HASH, &key, Bytes::Plain(&root.encode()), expiry);
        self.stage(Staged { db, keyspace, hash, change: Change::Put(object), cause });
    }
}

impl Paged {
    /// Whether a leaf with this value has fields with deadlines.
    pub(super) fn is_timed_leaf(&self, value: &[u8]) -> bool {
        record::kind_of(self.kind) == record::HASH && collections::times_of(value).is_some()
    }
}

/// The object whose leaf or other node this change is about, if it is.
fn leaf_object(staged: &Staged) -> Option<u64> {
    is_leaves(staged.keyspace).then(|| object_of(staged.object().view().key())).flatten()
}

/// Most leaves whose objects are not known that one round reads.
const READ_AT_ONCE_MAX: usize = 1_024;
