//! The index: which key lives where, in [`STRIPES`] stripes with a lock each.
//!
//! ```text
//! Index -> Stripe (mutex, by the hash's top 8 bits) -> Space (by keyspace) -> Table -> Page -> Slot
//! ```
//!
//! Locks are taken in stripe order and never held across I/O. The mapping from database number to keyspace
//! changes only while all stripes are locked, so whoever holds one stripe sees it stand still.

pub(crate) mod ahead;
pub(crate) mod claims;
pub(crate) mod cpu;
pub(crate) mod delta;
pub(crate) mod expiry;
pub(crate) mod locks;
pub(crate) mod page;
pub(crate) mod recover;
pub(crate) mod stripe;
pub(crate) mod table;
pub(crate) mod watches;

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::hash::STRIPES;
use crate::keyspaces::{KEPT_DB, KEPT_KEYSPACE, PREPARED_KEYSPACE, is_own, keys_of};
use crate::time::ClockRecord;
use journal::{Keyspace, LogAddress, Seq};
use stripe::{Space, Stripe};

/// A stripe on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded {
    stripe: Mutex<Stripe>,
    /// Threads that wait for it.
    waiting: AtomicU32,
}

/// All stripes, and which keyspace serves each database number.
#[derive(Debug)]
pub(crate) struct Index {
    stripes: Box<[Padded]>,
    mapping: Box<[AtomicU32]>,
    /// Keys of each database. Changes once a group, while the stripes of the group are locked.
    keys: Box<[AtomicI64]>,
    mapping_seq: AtomicU64,
    next_keyspace: AtomicU32,
    /// Bytes of index and hot objects, as far as stripes have reported them.
    memory_bytes: AtomicI64,
    /// The most that they were since [`Index::take_memory_peak`].
    memory_peak_bytes: AtomicI64,
    /// The newest clock record of the log, and its seq. Held while one is appended, so that a checkpoint that was begun
    /// above the record has it.
    clock: Mutex<(Seq, Option<ClockRecord>)>,
    /// Spaces of flushed keyspaces, to be dropped in slices.
    dead_spaces: Mutex<Vec<Space>>,
}

impl Index {
    /// An empty index where database n maps to keyspace n + 1.
    pub(crate) fn new(databases: u16) -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Padded::default()).collect(),
            mapping: (1..=u32::from(databases)).map(AtomicU32::new).collect(),
            keys: (0..databases).map(|_| AtomicI64::new(0)).collect(),
            mapping_seq: AtomicU64::new(0),
            next_keyspace: AtomicU32::new(u32::from(databases) + 1),
            memory_bytes: AtomicI64::new(0),
            memory_peak_bytes: AtomicI64::new(0),
            clock: Mutex::default(),
            dead_spaces: Mutex::default(),
        }
    }

    /// Locks stripe `number`.
    pub(crate) fn lock(&self, number: usize) -> MutexGuard<'_, Stripe> {
        // A panic under the lock aborts the server (by its hook); in tests the data is still whole.
        let Padded { stripe, waiting } = &self.stripes[number];
        match stripe.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                waiting.fetch_add(1, Ordering::Relaxed);
                let guard = stripe.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.fetch_sub(1, Ordering::Relaxed);
                guard
            }
        }
    }

    /// As [`Index::lock`], for who does so again and again: lets those go first who wait for it. A mutex alone would not, for they have to wake up.
    pub(crate) fn lock_after_others(&self, number: usize) -> MutexGuard<'_, Stripe> {
        let waiting = &self.stripes[number].waiting;
        for _ in 0..YIELDS_MAX {
            if waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        self.lock(number)
    }

    /// Locks stripe `number` unless somebody holds it.
    pub(crate) fn try_lock(&self, number: usize) -> Option<MutexGuard<'_, Stripe>> {
        self.stripes[number].stripe.try_lock().ok()
    }

    /// Whether somebody holds stripe `number`.
    #[cfg(test)]
    pub(crate) fn is_locked(&self, number: usize) -> bool {
        self.try_lock(number).is_none()
    }

    /// Brings stripe `number` near.
    fn bring_stripe(&self, number: usize) {
        cpu::prefetch(&raw const self.stripes[number]);
    }

    /// The keyspace of database `db`, `None` beyond the last.
    pub(crate) fn keyspace(&self, db: u16) -> Option<Keyspace> {
        match self.mapping.get(usize::from(db)) {
            Some(id) => Some(Keyspace(id.load(Ordering::Relaxed))),
            None => (db == KEPT_DB).then_some(KEPT_KEYSPACE),
        }
    }

    /// All keyspaces, by database number.
    pub(crate) fn mapping(&self) -> Vec<Keyspace> {
        self.mapping.iter().map(|id| Keyspace(id.load(Ordering::Relaxed))).collect()
    }

    /// The database that keyspace `id` serves, `None` for a dead one and for the server's own.
    pub(crate) fn database(&self, id: Keyspace) -> Option<u16> {
        self.mapping.iter().position(|m| m.load(Ordering::Relaxed) == id.0).map(|db| db as u16)
    }

    /// Whether records of keyspace `id` count: it serves a database, or has leaves of one, or serves the server itself.
    pub(crate) fn lives(&self, id: Keyspace) -> bool {
        is_own(id) || self.database(keys_of(id)).is_some()
    }

    /// The effect that last changed the mapping.
    pub(crate) fn mapping_seq(&self) -> Seq {
        Seq(self.mapping_seq.load(Ordering::Relaxed))
    }

    /// The next keyspace id that was never used.
    pub(crate) fn next_keyspace(&self) -> Keyspace {
        Keyspace(self.next_keyspace.load(Ordering::Relaxed))
    }

    /// Sets the mapping; the caller holds all stripes (or is alone, at recovery).
    ///
    /// Entries beyond the configured databases are ignored; missing ones keep what they have.
    pub(crate) fn set_mapping(&self, mapping: &[Keyspace], next_keyspace: Keyspace, seq: Seq) {
        let keys: Vec<u64> = mapping.iter().map(|&id| self.keys_of(id)).collect();
        for (slot, &id) in self.mapping.iter().zip(mapping) {
            slot.store(id.0, Ordering::Relaxed);
        }
        for (slot, keys) in self.keys.iter().zip(keys) {
            slot.store(keys as i64, Ordering::Relaxed);
        }
        self.next_keyspace.fetch_max(next_keyspace.0, Ordering::Relaxed);
        self.mapping_seq.store(seq.0, Ordering::Relaxed);
    }

    /// Number of keys of keyspace `id`, 0 of a dead one. The caller holds a stripe.
    pub(crate) fn keys_of(&self, id: Keyspace) -> u64 {
        let keys = self.database(id).map_or(0, |db| self.keys[usize::from(db)].load(Ordering::Acquire));
        keys.max(0) as u64
    }

    /// Adds `change` to the number of keys of keyspace `id`. The caller holds the stripes where they changed.
    pub(crate) fn count_keys(&self, id: Keyspace, change: i64) {
        if change != 0
            && let Some(db) = self.database(id)
        {
            self.keys[usize::from(db)].fetch_add(change, Ordering::Release);
        }
    }

    /// The newest clock record of the log and its seq, to read or to replace by what is appended meanwhile.
    pub(crate) fn clock(&self) -> MutexGuard<'_, (Seq, Option<ClockRecord>)> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of clock record `seq`, unless a newer one is known.
    pub(crate) fn set_clock(&self, seq: Seq, record: ClockRecord) {
        let mut newest = self.clock();
        if seq >= newest.0 {
            *newest = (seq, Some(record.with_seq(seq)));
        }
    }

    /// Looks whether stripes, keys, mapping and memory fit each other: for simulations, while nobody else uses the index.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub(crate) fn check(&self) {
        let (mapping, mut bytes) = (self.mapping(), 0);
        let mut keys = vec![0; mapping.len()];
        for number in 0..STRIPES {
            let stripe = self.lock(number);
            stripe.check(number);
            for (id, space) in stripe.spaces() {
                assert!(self.lives(id), "stripe {number} has a space of {id:?}, which is dead");
                bytes += space.memory_bytes() as i64;
                if let Some(db) = self.database(id) {
                    keys[usize::from(db)] += space.table.live as i64;
                }
            }
            bytes -= stripe.unreported_bytes;
        }
        let dead = self.dead_spaces.lock().unwrap_or_else(PoisonError::into_inner);
        bytes += dead.iter().map(|space| space.memory_bytes() as i64).sum::<i64>();
        assert_eq!(self.memory_bytes.load(Ordering::Relaxed), bytes, "bytes of index and hot objects");
        let counted: Vec<i64> = self.keys.iter().map(|keys| keys.load(Ordering::Acquire)).collect();
        assert_eq!(counted, keys, "keys of each database");
        let is_fresh = mapping.iter().all(|id| *id < self.next_keyspace() && *id != PREPARED_KEYSPACE);
        let is_distinct = (1..mapping.len()).all(|db| !mapping[..db].contains(&mapping[db]));
        assert!(is_fresh && is_distinct, "databases are mapped to {mapping:?}");
    }

    /// Visits the address of every record that a key consists of, and its keyspace.
    pub(crate) fn each_address(&self, visit: &mut dyn FnMut(Keyspace, LogAddress)) {
        for number in 0..STRIPES {
            let stripe = self.lock(number);
            for (id, space) in stripe.spaces() {
                space.each_record(&mut |address, _| visit(id, address));
            }
        }
    }

    /// Reports a change of memory.
    pub(crate) fn account(&self, bytes: i64) {
        if bytes != 0 {
            let now = self.memory_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if now > self.memory_peak_bytes.load(Ordering::Relaxed) {
                self.memory_peak_bytes.fetch_max(now, Ordering::Relaxed);
            }
        }
    }

    /// Bytes of index and hot objects.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// The most that [`Index::memory_bytes`] was since it was last asked for.
    pub(crate) fn take_memory_peak(&self) -> u64 {
        let now = self.memory_bytes.load(Ordering::Relaxed);
        self.memory_peak_bytes.swap(now, Ordering::Relaxed).max(0) as u64
    }

    /// Hands over a dead space; [`Index::take_deferred`] gives it to who frees it.
    pub(crate) fn defer_free(&self, space: Space) {
        self.dead_spaces.lock().unwrap_or_else(PoisonError::into_inner).push(space);
    }

    /// Takes a dead space, to be freed outside of every lock.
    pub(crate) fn take_deferred(&self) -> Option<Space> {
        let space = self.dead_spaces.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        self.account(-(space.memory_bytes() as i64));
        Some(space)
    }
}

/// How often a thread lets others run that wait for a stripe, before it takes it all the same: for some 100 us.
const YIELDS_MAX: u32 = 500;
