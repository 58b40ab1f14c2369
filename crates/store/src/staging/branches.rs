//! The prepared branches of a store: in memory by identifier, and found again at a start.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::Keyspace;

use super::image::{self, Change, Entry, Image, Move};
use super::{Intent, Workspace};
use crate::Store;
use crate::error::StoreError;
use crate::hash::{KeyHash, STRIPES};
use crate::keyspaces::PREPARED_KEYSPACE;
use crate::large::{Bytes, Held};
use crate::notices::Event;
use crate::object::Object;
use crate::sought::Sought;

/// A prepared branch.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) id: Arc<str>,
    pub(crate) hash: KeyHash,
    pub(crate) since_ms: u64,
    /// By database; these are held whole.
    pub(crate) moves: Vec<Move>,
    /// By database, as it is numbered after the moves, and key.
    pub(crate) keys: Vec<BranchKey>,
    /// What its commands named: told when it commits, unless the server has restarted meanwhile.
    pub(crate) events: Vec<Event>,
    _held: Held,
}

/// A key of a branch.
#[derive(Debug)]
pub(crate) struct BranchKey {
    pub(crate) db: u16,
    pub(crate) hash: KeyHash,
    pub(crate) key: Box<[u8]>,
    /// `None`: it was read.
    pub(crate) intent: Option<Intent>,
}

/// All prepared branches. An entry of a branch changes only while the stripe of its record is locked.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    by_id: Mutex<BTreeMap<Arc<str>, Arc<Branch>>>,
    locked_keys: AtomicU64,
}

impl Branches {
    /// The branch called `id`.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Branch>> {
        self.lock().get(id).cloned()
    }

    /// Whether `branch` is still prepared.
    pub(crate) fn has(&self, branch: &Arc<Branch>) -> bool {
        self.lock().get(&branch.id).is_some_and(|known| Arc::ptr_eq(known, branch))
    }

    /// Adds a branch that holds so many locks.
    pub(crate) fn insert(&self, branch: Arc<Branch>, locks: u64) {
        self.locked_keys.fetch_add(locks, Ordering::Relaxed);
        let before = self.lock().insert(Arc::clone(&branch.id), branch);
        assert!(before.is_none(), "the callers have looked");
    }

    /// Takes a branch out that held so many locks.
    pub(crate) fn remove(&self, id: &str, locks: u64) {
        let before = self.locked_keys.fetch_sub(locks, Ordering::Relaxed);
        assert!(before >= locks, "{locks} locks released of {before}");
        let removed = self.lock().remove(id);
        debug_assert!(removed.is_some(), "the callers have looked");
    }

    /// All of them, by identifier.
    pub(crate) fn all(&self) -> Vec<Arc<Branch>> {
        self.lock().values().cloned().collect()
    }

    /// Keys that are locked.
    pub(crate) fn locked_keys(&self) -> u64 {
        self.locked_keys.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Branch>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Branch {
    /// What `workspace` would be as the branch `id` from `since_ms` on.
    pub(crate) fn of(store: &Store, id: &str, workspace: &Workspace, since_ms: u64) -> Self {
        let moves = workspace.moves();
        let keys = workspace.touched().filter_map(|touched| {
            let db = workspace.target(touched.contents)?;
            // Whose database is held whole needs no mention if it was only read.
            let is_needed = touched.intent.is_some() || !moves.iter().any(|it| it.db == db);
            let intent = touched.intent.as_ref().map(Intent::copied);
            is_needed.then(|| BranchKey { db, hash: touched.hash, key: touched.key().into(), intent })
        });
        let keys = keys.collect();
        Self { events: workspace.events().to_vec(), ..Self::new(store, id, since_ms, moves, keys) }
    }

    /// The branch `id` from its image.
    fn decode(store: &Store, id: &str, bytes: &[u8]) -> Result<Self, image::ImageError> {
        let Image { since_ms, moves, entries } = image::decode(bytes)?;
        let keys = entries.into_iter().map(|Entry { db, key, change }| {
            let intent = match change {
                Change::Read => None,
                Change::Remove => Some(Intent::Remove),
                Change::Put { kind, expiry, value } => {
                    let large = store.memory.large(value).ok();
                    Some(Intent::Put(Object::new(kind, key, Bytes::of(value, large.as_ref()), expiry)))
                }
            };
            BranchKey { db, hash: store.hasher.hash(key), key: key.into(), intent }
        });
        Ok(Self::new(store, id, since_ms, moves, keys.collect()))
    }

    fn new(store: &Store, id: &str, since_ms: u64, moves: Vec<Move>, mut keys: Vec<BranchKey>) -> Self {
        keys.sort_unstable_by(|a, b| (a.db, &a.key).cmp(&(b.db, &b.key)));
        let mut held = Held::new(store.memory.ledger());
        held.add(
            keys.iter().map(BranchKey::memory_bytes).sum::<u64>() + id.len() as u64 + 8 * moves.len() as u64,
        );
        Self {
            id: id.into(),
            hash: store.hasher.hash(id.as_bytes()),
            since_ms,
            moves,
            keys,
            events: Vec::new(),
            _held: held,
        }
    }

    /// Its image.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let entries = self.keys.iter().map(|BranchKey { db, key, intent, .. }| {
            let change = match intent {
                None => Change::Read,
                Some(Intent::Remove) => Change::Remove,
                Some(Intent::Put(object)) => {
                    let view = object.view();
                    Change::Put { kind: view.kind(), expiry: view.expiry(), value: view.value() }
                }
            };
            Entry { db: *db, key, change }
        });
        image::encode(self.since_ms, &self.moves, &entries.collect::<Vec<_>>())
    }

    /// Whether it holds all of database `db`.
    pub(crate) fn holds_whole(&self, db: u16) -> bool {
        self.moves.binary_search_by_key(&db, |it| it.db).is_ok()
    }

    /// The keys that have locks of their own.
    pub(crate) fn held_keys(&self) -> impl Iterator<Item = &BranchKey> {
        self.keys.iter().filter(|key| !self.holds_whole(key.db))
    }

    /// Bytes and records that its commit appends, at most, to a store of so many `databases`; or its rollback.
    pub(crate) fn room(&self, commits: bool, databases: u16) -> (u64, u64) {
        let mapping_bytes = if commits { mapping_bytes(&self.moves, databases) } else { 0 };
        let keys = self.keys.iter().filter(|_| commits);
        let changes = keys.filter_map(|key| Some((key, key.intent.as_ref()?)));
        let sizes = changes.map(|(key, intent)| key.key.len() as u64 + intent.value_bytes());
        let (bytes, records) = sizes
            .fold((mapping_bytes, 1 + u64::from(mapping_bytes > 0)), |(bytes, records), size| {
                (bytes + size, records + 1)
            });
        (bytes + self.id.len() as u64 + records * crate::RECORD_OVERHEAD_BYTES, records)
    }
}

impl BranchKey {
    /// What it costs in memory, its lock included.
    fn memory_bytes(&self) -> u64 {
        BRANCH_KEY_BYTES + 2 * self.key.len() as u64 + self.intent.as_ref().map_or(0, Intent::memory_bytes)
    }
}

impl Store {
    /// Finds the prepared branches that recovery brought, and locks their keys. Before anything else changes a key.
    ///
    /// # Errors
    /// [`StoreError::Open`] when a branch cannot be read, a newer version wrote it, or it is of a database beyond `databases`.
    pub(crate) fn recover_branches(&self) -> Result<(), StoreError> {
        for number in 0..STRIPES {
            for sought in self.branch_records(number) {
                let fetched = self.engine.read(&sought).map_err(|error| {
                    StoreError::Open(format!(
                        "a prepared transaction cannot be read: {error}; run `evenkeel check`"
                    ))
                })?;
                self.recover_branch(&fetched.key, &fetched.value)?;
            }
        }
        Ok(())
    }

    fn branch_records(&self, number: usize) -> Vec<Sought> {
        let stripe = self.index.lock(number);
        let (mut records, mut at) = (Vec::new(), Some(0));
        while let (Some(space), Some(bits)) = (stripe.space(PREPARED_KEYSPACE), at) {
            at = space.table.visit_page(bits, &mut |_, tag, slot| {
                let hash = KeyHash::from_parts(number, slot.bits(), tag);
                records.push(Sought::base(slot.word.address(), PREPARED_KEYSPACE, hash));
            });
        }
        records
    }

    fn recover_branch(&self, id: &[u8], image: &[u8]) -> Result<(), StoreError> {
        let text = std::str::from_utf8(id);
        let id =
            text.map_err(|_| StoreError::Open("a prepared transaction has no readable name".to_owned()))?;
        let refused =
            |what: &dyn std::fmt::Display| StoreError::Open(format!("prepared transaction {id}: {what}"));
        let branch = Branch::decode(self, id, image).map_err(|error| refused(&error))?;
        let mapped = |db: u16| {
            let needed = u32::from(db) + 1;
            let text = || format!("it holds a key of database {db}: set databases to {needed} or more");
            self.index.keyspace(db).ok_or_else(|| refused(&text()))
        };
        for Move { db, from } in &branch.moves {
            let keyspace = mapped(*db)?;
            from.map_or(Ok(Keyspace::NONE), mapped)?;
            (0..STRIPES).for_each(|number| self.index.lock(number).hold_whole(keyspace, &branch.id));
        }
        let mut locks = 0;
        for BranchKey { db, hash, key, .. } in &branch.keys {
            let keyspace = mapped(*db)?;
            if branch.holds_whole(*db) {
                continue;
            }
            let held = self.index.lock(hash.stripe()).hold(keyspace, *hash, key, &branch.id);
            if !held {
                tracing::warn!(id, key = %key.escape_ascii(), "two prepared transactions hold a key: they end one after the other");
            }
            locks += u64::from(held);
        }
        tracing::info!(id, keys = branch.keys.len(), "a prepared transaction waits for its end");
        self.branches.insert(Arc::new(branch), locks);
        Ok(())
    }
}

/// Bytes of the record that maps databases anew; 0 where none moves.
pub(super) fn mapping_bytes(moves: &[Move], databases: u16) -> u64 {
    if moves.is_empty() { 0 } else { crate::RECORD_OVERHEAD_BYTES + 8 + 4 * u64::from(databases) }
}

/// What a key of a branch takes in memory beside the key, which is there twice: its entry, and its lock.
const BRANCH_KEY_BYTES: u64 = 160;
