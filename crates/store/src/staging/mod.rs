//! Keys as one side of a two-phase commit: what a transaction stages, and what it has prepared.
//!
//! ```text
//! touch -> access -> resume -> command -> keep    as often as there are commands: nothing is locked, nothing is logged
//! prepare                                         nothing changed since? one record that holds all; the keys are locked
//! commit_prepared | rollback_prepared             one group: the changes (or none), and the removal of that record
//! commit_staged                                   or all of it at once, where nobody else takes part
//! ```
//!
//! Invariants
//!   1. Until it is prepared a transaction is in the way of nobody: a key that changes under it makes it fail, as WATCH does.
//!   2. A prepared branch is one record (its image, `image`) in the keyspace of prepared transactions, so checkpoints,
//!      cleaning, backup and recovery keep it as they keep any key; its locks follow from it, at a start too.
//!   3. While a branch is prepared nobody else changes a key that it touched. Keys that it only read are locked as well:
//!      otherwise two branches, each of which reads what the other writes, could both commit.
//!   4. A database that the transaction empties or swaps is held whole from prepare on; its commit maps it anew.
//!   5. A commit is one group: all changes and the removal of the record, or nothing.
//!   6. A command that names its keys meets those of the workspace and no others, each by its hash: what it does while their stripes
//!      are locked grows with its own keys, however many the transaction touched before. Only who has all locks sees all.
//!
//! A transaction that empties or swaps databases knows keys by the *contents* that they lie in, not by a number that it may have changed:
//! below the number of databases those that were of this database when it began, from there on those that it made by FLUSH.
//!
//! Decision: docs/adr/0011-prepared-keys.md. Out of scope: who decides (`txn`), which commands there are (`server`).

use journal::Seq;

mod branches;
mod image;
mod settle;
#[cfg(test)]
mod tests;

pub(crate) use branches::{Branch, BranchKey, Branches};
pub(crate) use image::{Move, has_ttl};
pub(crate) use image::{decode as decode_image, encode as encode_image};
pub use settle::{Halted, PreparedBranch, Staging};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::error::{Stop, StoreError};
use crate::hash::KeyHash;
use crate::large::{Bytes, Held};
use crate::notices::{Event, bytes_of};
use crate::object::Object;
use crate::record;
use crate::watch::Watch;
use crate::{KeyRef, Store};

/// What a transaction has touched and means to change. Dropping it forgets all.
///
/// Dropping it locks a stripe for each key: not while the same thread has an access open.
///
/// Made by [`Store::workspace`]; [`Store::touch`] adds keys, [`Access::keep`](crate::Access::keep) changes. What it holds counts as
/// used memory.
pub struct Workspace {
    store: Arc<Store>,
    /// Stripe by stripe, for a hash begins with that; equal seeds meet them in equal order.
    touched: BTreeMap<Name, Touched>,
    /// The contents of each database; empty as long as they are where they were.
    contents: Vec<u32>,
    /// Contents that it has made.
    pub(crate) made: u32,
    bytes: u64,
    /// Of large values, which are in their ledger.
    large_bytes: u64,
    writes: usize,
    /// The newest effect that some answer depended on.
    pub(crate) looked: Seq,
    /// What its commands named.
    events: Vec<Event>,
    events_bytes: u64,
    held: Held,
}

/// What tells touched keys apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    hash: KeyHash,
    contents: u32,
    /// Counts keys that only their bytes tell apart, from 0 on without a gap: none is ever taken out.
    nth: u32,
}

/// A key that the transaction has touched.
pub(crate) struct Touched {
    /// What it lies in.
    pub(crate) contents: u32,
    pub(crate) hash: KeyHash,
    pub(crate) watch: Watch,
    pub(crate) intent: Option<Intent>,
}

/// What becomes of a key.
#[derive(Debug)]
pub(crate) enum Intent {
    /// It gets this value, and this expiry.
    Put(Object),
    /// It goes.
    Remove,
}

impl Intent {
    /// The same once more; a large value is shared.
    pub(crate) fn copied(&self) -> Self {
        match self {
            Self::Put(object) => {
                let view = object.view();
                Self::Put(Object::new(view.kind(), view.key(), view.bytes(), view.expiry()))
            }
            Self::Remove => Self::Remove,
        }
    }

    /// The object that the slot of `key` will hold.
    pub(crate) fn object(self, key: &[u8]) -> Object {
        match self {
            Self::Put(object) => object,
            Self::Remove => Object::new(record::REMOVED, key, Bytes::Plain(&[]), None),
        }
    }

    /// What its large value takes.
    fn large_bytes(&self) -> u64 {
        if let Self::Put(object) = self {
            object.view().memory_bytes() - object.view().own_bytes()
        } else {
            0
        }
    }

    fn value_bytes(&self) -> u64 {
        if let Self::Put(object) = self { object.view().value().len() as u64 } else { 0 }
    }

    /// What it costs in memory; a large value is in its ledger.
    pub(crate) fn memory_bytes(&self) -> u64 {
        if let Self::Put(object) = self { object.view().own_bytes() } else { 0 }
    }
}

impl Workspace {
    /// Whether it has touched nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.contents.is_empty()
    }

    /// What its commands named, to be told when it commits.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Bytes of these, with those of `more`.
    pub(crate) fn events_bytes_with(&self, more: &[Event]) -> u64 {
        self.events_bytes + bytes_of(more)
    }

    /// Adds what a command named.
    pub(crate) fn add_events(&mut self, events: Vec<Event>) {
        let bytes = bytes_of(&events);
        self.events_bytes += bytes;
        self.held.add(bytes);
        self.events.extend(events);
    }

    /// Keys that it means to change, and databases.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.writes + self.moves().len()
    }

    /// Bytes that it will take in the log at most, which `transaction.max` bounds: keys, values, and 128 for each key;
    /// 256 and 8 for each database if one is flushed or swapped.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes + moves_bytes(self.contents.len())
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.held.bytes() + self.large_bytes
    }

    /// What [`Workspace::memory_bytes`] would be with `staged` changes of keys that were touched: of each its object's bytes.
    pub(crate) fn memory_bytes_with<'a>(&self, staged: impl Iterator<Item = (&'a Touched, u64)>) -> u64 {
        staged.fold(self.memory_bytes(), |bytes, (touched, object_bytes)| {
            let old = touched.intent.as_ref().map_or(0, |old| old.memory_bytes() + old.large_bytes());
            (bytes + object_bytes).saturating_sub(old)
        })
    }

    /// Whether it has emptied or exchanged databases.
    #[must_use]
    pub fn moves_databases(&self) -> bool {
        !self.contents.is_empty()
    }

    /// What becomes of databases, in order.
    pub(crate) fn moves(&self) -> Vec<Move> {
        let databases = self.contents.len() as u32;
        let moved = (0..).zip(&self.contents).filter(|(db, contents)| u32::from(*db) != **contents);
        moved.map(|(db, &from)| Move { db, from: (from < databases).then_some(from as u16) }).collect()
    }

    /// The contents of database `db`, as it is numbered now.
    pub(crate) fn contents_of(&self, db: u16) -> u32 {
        self.contents.get(usize::from(db)).copied().unwrap_or(db.into())
    }

    /// All contents by database; empty as long as they are where they were.
    pub(crate) fn contents(&self) -> &[u32] {
        &self.contents
    }

    /// The database that has these contents in the end; `None`: they go.
    pub(crate) fn target(&self, contents: u32) -> Option<u16> {
        if self.contents.is_empty() {
            return Some(contents as u16);
        }
        self.contents.iter().position(|it| *it == contents).map(|db| db as u16)
    }

    /// Gives the databases other contents; what was staged in those that nobody has any more is forgotten.
    pub(crate) fn rearrange(&mut self, contents: Vec<u32>, made: u32) {
        assert!(made >= self.made, "contents are made, and numbered on");
        let kept: BTreeSet<u32> = contents.iter().copied().collect();
        for touched in self.touched.values_mut().filter(|it| !kept.contains(&it.contents)) {
            if let Some(old) = touched.intent.take() {
                self.bytes -= old.value_bytes();
                self.large_bytes -= old.large_bytes();
                self.held.take(old.memory_bytes());
                self.writes -= 1;
            }
        }
        let is_moved = (0..).zip(&contents).any(|(db, it)| db != *it);
        self.made = made;
        self.held.take(4 * self.contents.len() as u64);
        self.contents = if is_moved { contents } else { Vec::new() };
        self.held.add(4 * self.contents.len() as u64);
    }

    /// Number of keys that it has touched.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.touched.len()
    }

    /// All keys, stripe by stripe.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &Touched> {
        self.touched.values()
    }

    /// The keys that others can change: not those of contents that it has made, which are its own.
    pub(crate) fn watched(&self) -> impl Iterator<Item = &Touched> {
        let databases = u32::from(self.store.options.databases);
        self.touched().filter(move |touched| touched.contents < databases)
    }

    /// The key, if it was touched.
    pub(crate) fn find(&self, contents: u32, hash: KeyHash, key: &[u8]) -> Option<&Touched> {
        self.search(contents, hash, key).1
    }

    /// The key, if it was touched, and its name, or the one to touch it by.
    fn search(&self, contents: u32, hash: KeyHash, key: &[u8]) -> (Name, Option<&Touched>) {
        let mut name = Name { hash, contents, nth: 0 };
        loop {
            match self.touched.get(&name) {
                Some(touched) if !touched.is(key) => name.nth += 1,
                found => return (name, found),
            }
        }
    }

    /// Replaces what becomes of a touched key.
    ///
    /// # Panics
    /// If it was not touched: callers have asked [`Workspace::find`].
    pub(crate) fn intend(&mut self, contents: u32, hash: KeyHash, key: &[u8], intent: Intent) {
        let (name, _) = self.search(contents, hash, key);
        let touched = self.touched.get_mut(&name).expect("touched");
        self.bytes += intent.value_bytes();
        self.large_bytes += intent.large_bytes();
        self.held.add(intent.memory_bytes());
        match touched.intent.replace(intent) {
            Some(old) => {
                self.bytes -= old.value_bytes();
                self.large_bytes -= old.large_bytes();
                self.held.take(old.memory_bytes());
            }
            None => self.writes += 1,
        }
    }

    /// What [`Workspace::bytes`] would be with `intents` for keys that were touched.
    ///
    /// `databases`: some are moved, of so many.
    pub(crate) fn bytes_with<'a>(
        &self,
        intents: impl Iterator<Item = (&'a Touched, u64)>,
        databases: Option<u16>,
    ) -> u64 {
        let moves_bytes = moves_bytes(databases.map_or(self.contents.len(), usize::from));
        intents.fold(self.bytes + moves_bytes, |bytes, (touched, value_bytes)| {
            bytes + value_bytes - touched.intent.as_ref().map_or(0, Intent::value_bytes)
        })
    }
}

impl Touched {
    /// Whether it is `key`, of keys of equal hash and contents.
    fn is(&self, key: &[u8]) -> bool {
        self.on_look();
        *self.watch.key == *key
    }

    /// Hears that a command looks at it: tests count that.
    pub(crate) fn on_look(&self) {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
    }

    /// Where it is watched: the database that has its contents before the commit; if they were made, where it was named.
    pub(crate) fn db(&self) -> u16 {
        self.watch.db
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.watch.key
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys();
        f.debug_struct("Workspace")
            .field("keys", &keys)
            .field("writes", &self.writes)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Begins a transaction that has touched nothing.
    #[must_use]
    pub fn workspace(self: &Arc<Self>) -> Workspace {
        Workspace {
            store: Arc::clone(self),
            touched: BTreeMap::new(),
            contents: Vec::new(),
            made: 0,
            bytes: 0,
            large_bytes: 0,
            writes: 0,
            events: Vec::new(),
            events_bytes: 0,
            looked: Seq::NONE,
            held: Held::new(self.memory.ledger()),
        }
    }

    /// Watches `keys` on behalf of `workspace`, if it does not yet. To be called before the access of the command that is about to
    /// touch them: what others do to them from now on makes the transaction fail.
    ///
    /// Locks one stripe at a time.
    ///
    /// # Errors
    /// [`StoreError::TransactionTooLarge`] and [`StoreError::StagedTooMuch`] when the keys are too many, [`StoreError::MemoryLimit`] when there is no memory for
    /// them, [`StoreError::NoSuchDatabase`]; then none was added.
    pub fn touch(self: &Arc<Self>, workspace: &mut Workspace, keys: &[KeyRef<'_>]) -> Result<(), StoreError> {
        debug_assert!(Arc::ptr_eq(self, &workspace.store), "of another store");
        let mut fresh: Vec<(KeyHash, KeyRef<'_>)> = Vec::new();
        let mut size_bytes = workspace.bytes();
        for key in keys {
            let hash = self.hasher.hash(key.key);
            if workspace.find(workspace.contents_of(key.db), hash, key.key).is_none() {
                if key.db >= self.options.databases {
                    return Err(StoreError::NoSuchDatabase);
                }
                size_bytes += KEY_BYTES + key.key.len() as u64;
                fresh.push((hash, *key));
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let limit_bytes = self.options.transaction_bytes_max;
        if size_bytes > limit_bytes {
            return Err(StoreError::TransactionTooLarge { size_bytes, limit_bytes });
        }
        let fresh_bytes: u64 = fresh.iter().map(|(_, key)| WATCH_BYTES + 2 * key.key.len() as u64).sum();
        self.memory.admit_staged(workspace.memory_bytes() + fresh_bytes)?;
        self.memory.make_room(self.accounts(), crate::memory::ROOM_PAGES_MAX, fresh_bytes);
        // one for whom room is being made waits when it keeps what it stages
        if let Err(Stop::Refused(error)) = self.memory.admit(self.accounts(), 0) {
            return Err(error);
        }
        for (hash, KeyRef { db, key }) in fresh {
            // a command may name a key twice
            let contents = workspace.contents_of(db);
            if let (name, None) = workspace.search(contents, hash, key) {
                let before = u16::try_from(contents).ok().filter(|it| *it < self.options.databases);
                let watch = self.watch(before.unwrap_or(db), key);
                let touched = Touched { contents, hash, watch, intent: None };
                workspace.touched.insert(name, touched);
                workspace.bytes += KEY_BYTES + key.len() as u64;
                workspace.held.add(WATCH_BYTES + 2 * key.len() as u64);
            }
        }
        Ok(())
    }
}

/// What a key takes in the log beside its bytes and its value's, at most: in the image, or as a record of a commit, with
/// the journal's room for a footer entry.
const KEY_BYTES: u64 = 128;
/// What moves take in the log, at most: four bytes a database in the image, or in the record that maps all of them.
fn moves_bytes(databases: usize) -> u64 {
    if databases == 0 { 0 } else { 256 + 8 * databases as u64 }
}

/// A database number that there is none of: the setting `databases` counts from 0 and ends below.
pub(crate) const RECORD_DB: u16 = u16::MAX;
/// What a watch takes in memory beside the key, which is there twice: the entry of the stripe, and of the workspace.
const WATCH_BYTES: u64 = 240;
// what is prepared is written whole: no record of it has a `since`
const _: () = assert!(KEY_BYTES >= crate::RECORD_OVERHEAD_BYTES - 8 + 56);
const _: () = assert!(KEY_BYTES as usize >= image::ENTRY_BYTES + image::PUT_BYTES);
