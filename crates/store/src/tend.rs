//! What the store does by itself: removing expired keys on time, dropping slots of released removals, freeing
//! flushed keyspaces, dropping clean values and evicting keys when room runs short, emptying pages, giving freed memory back to the system.
//!
//! [`Store::tend`] is one deterministic turn; a thread of its own calls it when the next key is due. Each removal
//! is a logged effect. Nothing is sampled: stripes keep their expiries in order.
//!
//! Invariants
//!   1. A turn holds one stripe's lock at a time, and for a bounded number of keys. It frees flushed keyspaces a stripe's share at a time
//!      without any lock, a bounded number of them.
//!   2. A key that a prepared transaction holds is not due. If the last turn passed one over, whoever ends a transaction wakes the tender.
//!   3. A turn that could remove nothing of what is overdue (the disk is full) is followed by a pause.

mod emptying;
pub(crate) mod tender;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use clock::{Nanos, UnixMs};
use journal::Keyspace;

use crate::access::{Access, Scope};
use crate::allocator;
use crate::error::{Stop, StoreError};
use crate::hash::{KeyHash, STRIPES};
use crate::index::expiry::ExpiryEntry;
use crate::index::stripe::Stripe;
use crate::keyspaces::{is_leaves, keys_of};
use crate::prepared::Prepared;
use crate::sought::Sought;
use crate::{KeyRef, Store};
use collections::root::{split_leaf_key, stripe_of};
use collections::{Deadline, Moment};

fn run(store: &Weak<Store>) {
    // A store that nobody holds ends within one wait.
    while let Some(store) = store.upgrade() {
        let due = store.tend(BUDGET_KEYS);
        let wait = due.map_or(WAIT_MAX, |at| {
            Duration::from_millis(at.0.saturating_sub(store.now().unix().0)).min(WAIT_MAX)
        });
        if store.tender.wait(wait) {
            return;
        }
    }
}

impl Store {
    /// Starts the thread; it ends with the store.
    pub(crate) fn start_tending(self: &Arc<Self>) -> Result<(), StoreError> {
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new()
            .name("store-tend".into())
            .spawn(move || run(&weak))
            .map_err(|error| StoreError::Open(format!("no thread for expiry: {error}")))?;
        *self.tender.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Gives freed memory back to the system, soon and on a thread of the store's own, which also does it by itself when
    /// much was freed. Threads that allocate meanwhile may wait, about 0.1 s for each GB that goes back.
    pub fn purge_memory(&self) {
        self.tender.must_give_back.store(true, Ordering::Relaxed);
        self.tender.wake();
    }

    /// One turn: removes at most `budget` expired keys, drops released removals, frees dead keyspaces, makes room.
    ///
    /// Returns when the next key is due (in the past when the budget ran out; after a pause when what is overdue cannot be
    /// removed now), `None` when none has an expiry or [active expiry](Self::set_active_expiry) is off.
    /// Blocks on reads where expired keys are cold.
    pub fn tend(&self, budget: usize) -> Option<UnixMs> {
        let frees_more = self.free_spaces() | self.sweep_some();
        let is_wished = self.memory.is_wished();
        self.memory.make_room(self.accounts(), usize::MAX, 0);
        if self.memory.grant_awaited(self.accounts()) || is_wished {
            (self.options.hooks.on_credits)();
        }
        self.track_use();
        let evicts_more = self.evict_some(budget) | self.vacate_some();
        self.give_memory_back(frees_more);
        self.tender.next_due_ms.store(u64::MAX, Ordering::Relaxed);
        self.tender.has_passed_over.store(false, Ordering::Relaxed);
        let now = self.now();
        let now_ms = now.server_ms();
        let active = self.active_expiry.load(Ordering::Relaxed);
        // what expires is told: it waits for those who listen
        let is_full = self.watchers.are_full();
        let mut left = if active && !is_full { budget } else { 0 };
        let (mut next, newest, mut progress) = (u64::MAX, self.engine.newest(), false);
        for number in 0..STRIPES {
            let due = self.due_in(number, now, left);
            left -= due.len();
            for (keyspace, entry) in due {
                if !self.active_expiry.load(Ordering::Relaxed) {
                    break;
                }
                progress |= self.expire(keyspace, number, entry);
            }
            let mut stripe = self.index.lock(number);
            if stripe.sweep_pending(self.engine.released()) {
                next = next.min(now_ms + SWEEP_MS);
            }
            self.index.account(stripe.take_unreported());
            for (id, space) in stripe.spaces().filter(|_| active) {
                // One that is held whole may have millions, none of which can go now.
                let most = if stripe.is_held_whole(id) { 1 } else { usize::MAX };
                for entries in space.expiry.each_clock() {
                    let held = |entry: &ExpiryEntry| is_held(&stripe, id, number, *entry);
                    let first = self.first_free(entries.take(most), held);
                    next = first.map_or(next, |at| next.min(now.server_ms_of(at)));
                }
            }
        }
        if self.engine.newest() > newest {
            self.engine.offer();
        }
        if left < budget && active && !progress && next <= now_ms {
            next = now_ms + REFUSED_MS;
        }
        if is_full && next <= now_ms {
            next = now_ms + FULL_MS;
        }
        if frees_more || evicts_more {
            next = next.min(now_ms);
        }
        self.tender.next_due_ms.fetch_min(next, Ordering::Relaxed);
        if self.has_changed_waited() {
            (self.options.hooks.on_changed_waited)();
        }
        (next != u64::MAX).then(|| now.unix_at(next))
    }

    /// Frees some of what was flushed; returns whether there is more.
    fn free_spaces(&self) -> bool {
        for _ in 0..BUDGET_SPACES {
            let Some(space) = self.index.take_deferred() else { return false };
            space.each_record(&mut |address, bytes| {
                bytes.into_iter().for_each(|bytes| self.engine.on_dead(address, bytes));
            });
        }
        true
    }

    /// Gives memory back to the system if much was freed, or somebody asked for it, unless more is about to be freed (`frees_more`).
    fn give_memory_back(&self, frees_more: bool) {
        if frees_more {
            return;
        }
        let mut trim = self.tender.trim.lock().unwrap_or_else(PoisonError::into_inner);
        let is_asked = self.tender.must_give_back.swap(false, Ordering::Relaxed);
        let now = self.options.clock.now();
        let is_time = trim.is_time(now);
        let has_fallen = is_time && trim.look(self.memory().index_bytes, self.index.take_memory_peak());
        let is_too_much = is_time && self.look_at_resident(now);
        if has_fallen || is_too_much || is_asked {
            allocator::give_back();
        }
    }

    /// Learns what the process holds beside what is counted; returns whether it should give pages back.
    fn look_at_resident(&self, now: Nanos) -> bool {
        let resident_bytes = (self.options.resident_bytes)();
        if resident_bytes == 0 {
            return false;
        }
        let report = self.memory();
        let mut resident = self.tender.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let is_too_much = resident.look(now, resident_bytes, report.counted_bytes(), report.limit_bytes);
        self.memory.hold_for_process(resident.held_bytes(report.limit_bytes));
        is_too_much
    }

    fn due_in(&self, number: usize, now: Moment, limit: usize) -> Vec<(Keyspace, ExpiryEntry)> {
        let stripe = self.index.lock(number);
        let mut due = Vec::new();
        // One that is held whole may have millions, none of which can go now.
        for (keyspace, space) in stripe.spaces().filter(|(keyspace, _)| !stripe.is_held_whole(*keyspace)) {
            let entries = space.expiry.due(now);
            let entries = entries.filter(|entry| !is_held(&stripe, keyspace, number, *entry));
            let entries = entries.take(limit - due.len());
            due.extend(entries.map(|entry| (keyspace, entry)));
        }
        due
    }

    /// The first deadline of `entries` whose key is not held; notes that held ones were passed over.
    fn first_free(
        &self,
        entries: impl Iterator<Item = ExpiryEntry>,
        held: impl Fn(&ExpiryEntry) -> bool,
    ) -> Option<Deadline> {
        for entry in entries {
            if !held(&entry) {
                return Some(entry.deadline);
            }
            self.tender.has_passed_over.store(true, Ordering::Relaxed);
        }
        None
    }

    /// Removes the keys of `entry` whose time has come, reading cold candidates first; returns false if all of them stay.
    fn expire(&self, keyspace: Keyspace, number: usize, entry: ExpiryEntry) -> bool {
        let hash = entry.hash(number);
        let mut prepared = Prepared::default();
        loop {
            let Some(db) = self.index.database(keys_of(keyspace)) else { return true };
            let (keys, unknown) = self.expired_candidates(keyspace, hash, entry, &prepared);
            if unknown.is_empty() {
                let removed = || self.expired_keys() + self.expired_fields();
                let before = removed();
                for key in &keys {
                    if is_leaves(keyspace) {
                        self.expire_leaf(db, keyspace, key);
                    } else {
                        self.expire_key(db, key, &mut prepared);
                    }
                }
                return keys.is_empty() || removed() > before;
            }
            for sought in unknown {
                prepared.supply(&sought, self.engine.read(&sought));
            }
        }
    }

    /// Keys that expire by `entry`, and the records that decide and were not read; an entry that no key has any
    /// more is dropped.
    pub(crate) fn expired_candidates(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        entry: ExpiryEntry,
        prepared: &Prepared,
    ) -> (Vec<Box<[u8]>>, Vec<Sought>) {
        let mut stripe = self.index.lock(hash.stripe());
        let (mut keys, mut unknown) = (Vec::new(), Vec::new());
        let Some(space) = stripe.existing_space_mut(keyspace) else { return (keys, unknown) };
        for spot in space.table.candidates(hash) {
            match space.current(spot, prepared) {
                Ok(Some(current)) if current.is_removed() || current.expiry() != Some(entry.deadline) => {}
                Ok(Some(current)) => keys.push(current.key().into()),
                Ok(None) => unknown.push(Sought::base(space.table.word(spot).address(), keyspace, hash)),
                Err(error) => {
                    self.engine.on_damaged(space.table.word(spot).address());
                    tracing::warn!(%error, "an expired key cannot be read");
                }
            }
        }
        if keys.is_empty() && unknown.is_empty() {
            stripe.drop_stale(keyspace, entry);
        }
        (keys, unknown)
    }

    /// A lookup of an expired key stages its removal, and that of fields whose time has come; what is not expired (any more) stays.
    fn expire_key(&self, db: u16, key: &[u8], prepared: &mut Prepared) {
        let keys = [KeyRef { db, key }];
        for _ in 0..READS_MAX {
            let Ok(mut access) = self.access(Scope::Keys(&keys), prepared, 0) else { return };
            match access.get(db, key) {
                Ok(None) => return self.commit_expired(&mut access),
                Ok(Some(_)) if access.has_purged() => return self.commit_expired(&mut access),
                // of a hash only its value tells whose time has come
                Err(Stop::Cold) => {
                    let wanted = access.into_wanted();
                    self.read_wanted(wanted, prepared);
                }
                _ => return,
            }
        }
    }

    /// Removes fields whose time has come of the leaf with this key, unless its hash is gone: then the leaf goes soon.
    fn expire_leaf(&self, db: u16, leaves: Keyspace, leaf: &[u8]) {
        let Some((object, number)) = split_leaf_key(leaf) else { return };
        for _ in 0..READS_MAX {
            let key = match self.key_of(leaves, object) {
                Ok(Some(key)) => key,
                Ok(None) => return,
                Err(error) => {
                    return tracing::warn!(%error, "the key of a hash with ended fields cannot be read");
                }
            };
            // if it is not there it has been renamed since, or is gone
            if !matches!(self.expire_fields(db, &key, object, number), Ok(false)) {
                return;
            }
        }
    }

    /// The key that has the hash `object` whose fields have deadlines. Blocks on reads.
    fn key_of(&self, leaves: Keyspace, object: u64) -> Result<Option<Box<[u8]>>, StoreError> {
        let mut prepared = Prepared::default();
        loop {
            let access = Access::of_stripe(self, stripe_of(object), &prepared);
            match access.key_of_object(leaves, object) {
                Ok(key) => return Ok(key.map(Into::into)),
                Err(Stop::Refused(error) | Stop::Damaged(error)) => return Err(error),
                Err(_) => {}
            }
            let wanted = access.into_wanted();
            self.read_wanted(wanted, &mut prepared);
        }
    }

    /// Removes fields whose time has come of leaf `number` of the hash at `key`, if that is `object`; returns whether it is.
    fn expire_fields(&self, db: u16, key: &[u8], object: u64, number: u32) -> Result<bool, Stop> {
        let (keys, mut prepared) = ([KeyRef { db, key }], Prepared::default());
        for _ in 0..READS_MAX {
            let mut access = self.access(Scope::Keys(&keys), &prepared, 0)?;
            match access.meet_leaf(db, key, object, number) {
                Ok(is_there) => {
                    if access.has_purged() {
                        self.commit_expired(&mut access);
                    }
                    return Ok(is_there);
                }
                Err(Stop::Cold) => {}
                Err(stop) => return Err(stop),
            }
            let wanted = access.into_wanted();
            self.read_wanted(wanted, &mut prepared);
        }
        Err(Stop::Cold)
    }

    fn commit_expired(&self, access: &mut Access<'_>) {
        match access.commit() {
            // It is gone, or there was no room to say so. Cold: it changed meanwhile. Busy: the next turn tries again.
            Ok(_) | Err(Stop::Cold | Stop::Busy | Stop::Long | Stop::Abandoned) => {}
            Err(Stop::Refused(error) | Stop::Damaged(error)) => {
                tracing::warn!(%error, "an expired key stays until it is looked at");
            }
            // It was prepared meanwhile; who ends that wakes the tender.
            Err(Stop::Locked(_)) => {}
        }
    }
}

/// Whether a prepared transaction holds the key of `entry`, or one of equal hash bits: it is due when that has ended.
fn is_held(stripe: &Stripe, keyspace: Keyspace, number: usize, entry: ExpiryEntry) -> bool {
    stripe.locks.as_ref().is_some_and(|locks| locks.has_slot(keyspace, entry.hash(number)))
}

/// Keys that one turn removes at most.
const BUDGET_KEYS: usize = 1_000;
/// Spaces that one turn frees at most: a sixteenth of a flushed database.
const BUDGET_SPACES: usize = STRIPES / 16;
/// How often the records of one key are read: each time it changed meanwhile.
const READS_MAX: u32 = 4;
/// How soon released removals are looked for again.
const SWEEP_MS: u64 = 10;
/// A turn waits so long for those who are told what expires.
const FULL_MS: u64 = 1;
/// How soon removals that found no room are tried again: a full disk stays full for a while.
const REFUSED_MS: u64 = 100;
/// Longest wait of the thread: bounds how long a store that nobody holds lives on.
const WAIT_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineKind, Options, Staging, Value};

    /// A turn looks into every stripe: a server that ends thousands of transactions a second has no time for one each.
    #[test]
    fn end_of_a_transaction_wakes_the_tender_only_for_a_key_that_it_passed_over() {
        let options = Options { engine: EngineKind::Memory, background: false, ..Options::default() };
        let store = Store::open(options).expect("nothing to read");
        let prepared = Prepared::default();
        for (name, expires, commits) in [("a", false, true), ("b", true, true), ("c", true, false)] {
            let keys = [KeyRef { db: 0, key: name.as_bytes() }];
            let mut access = store.access(Scope::Keys(&keys), &prepared, 64).expect("room");
            let expiry = expires.then(|| store.now().after(1_000_000));
            access.put(0, keys[0].key, Value::String(b"v"), expiry);
            access.commit().expect("room");
            let mut workspace = store.workspace();
            store.touch(&mut workspace, &keys).expect("room");
            let mut access = store.access(Scope::Keys(&keys), &prepared, 64).expect("room");
            access.resume(&workspace);
            access.put(0, keys[0].key, Value::String(b"w"), None);
            access.keep(&mut workspace).expect("room");
            assert!(matches!(store.prepare(name, &workspace, &prepared), Ok(Staging::Done { .. })));
            assert_eq!(store.tend(100), None, "it is held");
            store.tender.state.lock().expect("no panic").woken = false;
            let ended = if commits {
                store.commit_prepared(name, &prepared)
            } else {
                store.rollback_prepared(name, &prepared)
            };
            ended.expect("room");
            let woken = store.tender.state.lock().expect("no panic").woken;
            assert_eq!(woken, expires, "{name}");
            assert_eq!(store.tend(100).is_some(), !commits, "{name}");
        }
    }
}
