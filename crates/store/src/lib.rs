//! Keyspaces over engines: the log is the database, the index is in memory.
//!
//! A command runs in two steps. *Prepare*: [`Store::missing`] names the cold records that decide about its keys,
//! [`Store::fetch`] reads them, without locks. *Execute*: [`Store::access`] locks the keys' stripes, lookups and
//! effects go through [`Access`], and [`Access::commit`] appends and applies them as one group.
//!
//! Invariants
//!   1. No lock is held across I/O.
//!   2. What is refused leaves no trace; what was appended is applied.
//!   3. A reply held until its ticket is released shows nothing that a crash could take back.
//!
//! Layout: `record` (what lies in the journal), `object` (hot objects and slot words), `index` (stripes, tables,
//! pages), `staging` (transactions that others decide about). Decisions: docs/adr/0002-index-and-cold-candidates.md.
//! Out of scope: commands (`server`), segments and syncs (`journal`).

mod access;
mod allocator;
mod check;
mod engine;
mod error;
mod evict;
mod foresight;
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod index;
mod kept;
mod keyspaces;
mod large;
mod locks;
mod log;
mod memory;
mod notices;
mod object;
mod objects;
mod observed;
mod options;
mod policy;
mod prepared;
mod record;
mod resident;
mod salvage;
mod sought;
mod staging;
mod sweep;
mod tend;
#[cfg(test)]
mod testlog;
mod time;
mod vacate;
mod value;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use journal::{LogAddress, Seq};
use ticket::Ticket;

pub use access::{
    Access, ClaimReport, Drawn, IsOver, KeyedChange, ListChanged, Part, Popped, Scope, Sequence, Snapshot,
    Whole, WrongType,
};
pub use allocator::MAPPED_BYTES_MIN;
pub use check::{Checked, Collections, check};
pub use collections::{
    Deadline, Edit, Element, Form, ListChange, ListEdit, ListEnd, Moment, OrderedEdit, Packed, STREAM_ENTRY,
    Shape, dump, load, score_of, varint,
};
pub use error::{Locked, Stop, StoreError};
pub use evict::policy::{Eviction, Usage};
pub use foresight::{Foreseen, Foresight};
pub use index::cpu::prefetch;
pub use large::Large;
pub use log::LogReport;
pub use memory::{AskedMemory, AwaitedMemory, MemoryReport, Reserved};
pub use notices::{Event, EventClass, Notices, Observer, WANTS_CHANGES};
pub use options::{Durability, EngineKind, Hooks, Options};
pub use prepared::{Prepared, Wanted};
pub use salvage::{Rebuilt, Salvaged, salvage};
pub use staging::{Halted, PreparedBranch, Staging, Workspace};
pub use sweep::waiting::LeafReport;
pub use time::ClockReport;
pub use value::{Found, Meta, Value, ValueKind};
pub use watch::{ChangedWaited, Watch};

use engine::{Class, Engine};
use evict::policy::Evictor;
use hash::KeyHasher;
use index::Index;
use index::stripe::Seek;
use large::LARGE_BYTES;
use log::housekeeping::Parts;
use memory::{Accounts, LargeValue, Memory};
use record::Draft;
use sought::Sought;
use tend::tender::Tender;
use time::{ClockRecord, Step, StoreClock};
use vacate::gate::Read;

/// A key of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// Database number.
    pub db: u16,
    /// The key.
    pub key: &'a [u8],
}

/// What the index holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys, and those of them that have an expiry, of each database.
    pub databases: Vec<(u64, u64)>,
    /// The average time that keys with an expiry have left, in ms, of each database.
    pub ttl_ms: Vec<u64>,
    /// Bytes of values in memory, large ones left out; part of [`MemoryReport::index_bytes`].
    pub hot_bytes: u64,
}

/// All keys and values, and the engine that keeps them.
#[derive(Debug)]
pub struct Store {
    options: Options,
    hasher: KeyHasher,
    index: Arc<Index>,
    engine: Arc<dyn Engine>,
    memory: Arc<Memory>,
    clock: StoreClock,
    active_expiry: AtomicBool,
    expired_keys: AtomicU64,
    expired_fields: AtomicU64,
    random: AtomicU64,
    tender: Arc<Tender>,
    evictor: Evictor,
    branches: staging::Branches,
    sweeps: sweep::waiting::Sweeps,
    objects: objects::Objects,
    snapshots: Arc<access::Snapshots>,
    /// There are paged collections, or may be.
    has_roots: AtomicBool,
    claims: access::Claims,
    changed: watch::Changed,
    watchers: notices::Watchers,
    /// Held while a backup is made.
    backup: Mutex<()>,
    /// Engine `log`'s own side, and its housekeeping.
    log: Option<(Arc<log::LogEngine>, log::housekeeping::Housekeeping)>,
}

impl Store {
    /// Opens a store.
    ///
    /// # Errors
    /// [`StoreError::Open`] when the data folder cannot be served.
    pub fn open(options: Options) -> Result<Arc<Self>, StoreError> {
        let engine: Arc<dyn Engine> = match options.engine {
            EngineKind::Memory => Arc::new(engine::Memory::default()),
            EngineKind::Noop => Arc::new(engine::Noop),
            EngineKind::Log => return Self::open_log(options),
        };
        let hasher = KeyHasher::new(&hash_key(&options), options.hash_bits);
        let index = Arc::new(Index::new(options.databases));
        Self::assemble(options, engine, index, hasher, 0, None)
    }

    /// Puts a store together from an engine and the index that it recovered.
    pub(crate) fn assemble(
        options: Options,
        engine: Arc<dyn Engine>,
        index: Arc<Index>,
        hasher: KeyHasher,
        time_floor_ms: u64,
        log: Option<(Arc<log::LogEngine>, log::housekeeping::Housekeeping)>,
    ) -> Result<Arc<Self>, StoreError> {
        let source = Arc::clone(&options.clock);
        let record = index.clock().1.clone();
        let clock = StoreClock::new(source, record.as_ref(), time_floor_ms, engine.newest());
        let objects = objects::Objects::new(&hasher, engine.newest(), options.clock.now());
        let (memory, tender) = (Arc::new(Memory::with(&options)), Arc::new(Tender::default()));
        let woken = Arc::clone(&tender);
        memory.set_waker(move || woken.wake());
        if let Some((log, _)) = &log {
            log.read_within(&memory);
        }
        let snapshots = Arc::new(access::Snapshots::new(memory.ledger().clone()));
        let store = Arc::new(Self {
            hasher,
            index,
            engine,
            memory,
            clock,
            active_expiry: AtomicBool::new(true),
            expired_keys: AtomicU64::new(0),
            expired_fields: AtomicU64::new(0),
            random: AtomicU64::new(0),
            tender,
            evictor: Evictor::new(options.eviction, options.disk_limit_bytes),
            branches: staging::Branches::default(),
            sweeps: sweep::waiting::Sweeps::default(),
            objects,
            snapshots,
            has_roots: AtomicBool::default(),
            claims: access::Claims::default(),
            changed: watch::Changed::default(),
            watchers: notices::Watchers::default(),
            backup: Mutex::default(),
            log,
            options,
        });
        if store.clock.is_unrecorded() && store.engine_keeps() && store.engine.newest() != Seq::NONE {
            // without room now, it precedes the next effect with a deadline
            let _ = store.record_clock();
        }
        store.has_roots.store(store.leaf_report().leaves > 0, Ordering::Relaxed);
        store.recover_branches()?;
        store.recover_sweeps()?;
        store.track_use();
        if store.options.background && store.engine_keeps() {
            store.start_tending()?;
        }
        if let Some((_, housekeeping)) = store.log.as_ref().filter(|_| store.options.background) {
            housekeeping.start(&store)?;
        }
        Ok(store)
    }

    /// The moment that the clocks show; meets steps of the wall clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        let (moment, is_off) = self.clock.look();
        if !is_off {
            return moment;
        }
        self.clock.on_step(|step| self.record_step(step));
        self.clock.at(moment.server_ms())
    }

    /// Appends the record of a step before anything is judged by it. `None`: it is met again when the journal has room.
    fn record_step(&self, step: Step) -> Option<(Step, Seq)> {
        let nothing_to_tell = !self.engine_keeps() || self.engine.newest() == Seq::NONE;
        let seq = if nothing_to_tell { Ok(Seq::NONE) } else { self.append_clock(&step.record) };
        self.tender.wake();
        match seq {
            Ok(seq) => Some((step, seq)),
            Err(Stop::Busy) => None,
            // on a full disk nothing else is logged either: the wall clock is followed all the same
            Err(_) => {
                self.clock.on_unrecorded();
                Some((step, self.engine.newest()))
            }
        }
    }

    /// Appends a record of the clocks as they are.
    fn record_clock(&self) -> Result<Seq, Stop> {
        self.append_clock(&self.clock.record())
    }

    fn append_clock(&self, record: &ClockRecord) -> Result<Seq, Stop> {
        let payload = record::encode_clock(record);
        let draft = Draft::clock(&payload);
        let credits = self.engine.reserve(draft.record_bytes(), 1, Class::Reclaim)?;
        let mut newest = self.index.clock();
        let seq = self.engine.append(credits, &[draft], &mut [LogAddress::default()]);
        *newest = (seq, Some(record.clone().with_seq(seq)));
        drop(newest);
        self.clock.on_recorded(record);
        self.engine.offer();
        Ok(seq)
    }

    /// Jumps of the wall clock.
    #[must_use]
    pub fn clock_report(&self) -> ClockReport {
        self.clock.report()
    }

    /// Looks which records must be read before a command on `keys` can run, and adds them to `prepared`.
    ///
    /// Returns true when there are none: go on to [`Store::access`]. Takes each stripe's lock for a moment.
    pub fn missing(&self, keys: &[KeyRef<'_>], prepared: &mut Prepared) -> bool {
        if !self.engine.has_addresses() {
            return true;
        }
        // what an access did not need of the keys that it missed it does not need of the others, either
        let is_for_state = prepared.is_for_state();
        for key in keys {
            let Some(keyspace) = self.index.keyspace(key.db) else { continue };
            let hash = self.hasher.hash(key.key);
            let stripe = self.index.lock(hash.stripe());
            let Some(space) = stripe.space(keyspace).filter(|space| space.hot(hash, key.key).is_none())
            else {
                continue;
            };
            let base = |word: &object::Word| Sought::base(word.address(), keyspace, hash);
            let mut unknown: Vec<Sought> = match space.seek(keyspace, hash, key.key, prepared) {
                Seek::Unknown(records) => records,
                Seek::At { word, whole: false, .. } => vec![base(word)],
                _ => continue,
            };
            for record in &mut unknown {
                if is_for_state || prepared.wants_state_of(record.address) {
                    *record = record.for_state();
                }
            }
            let folds: Vec<_> = unknown.iter().filter_map(|record| space.fold_of(*record)).collect();
            drop(stripe);
            unknown.into_iter().for_each(|record| prepared.want_record(record));
            folds.into_iter().for_each(|fold| prepared.want_fold(fold));
        }
        prepared.is_complete()
    }

    /// Reads what `prepared` wants and calls `done` with it, from another thread.
    pub fn fetch(&self, mut prepared: Prepared, done: Box<dyn FnOnce(Prepared) + Send>) {
        prepared.count_in(self.memory.ledger(), self.memory.read_bytes_max());
        let _ = self.memory.awaits_pages(0, 0);
        if let Some(Read { prepared, done }) = self.memory.gate.hold(Read { prepared, done }) {
            self.engine.fetch(prepared, done);
        }
    }

    /// Adds what an access missed to `prepared`, and reads it here: for who may wait.
    pub(crate) fn read_wanted(&self, wanted: Wanted, prepared: &mut Prepared) {
        prepared.want(wanted);
        self.engine.read_wanted(prepared);
    }

    /// Begins the execute step of a command: takes credits, then locks.
    ///
    /// `credit_bytes` is about what keys and values of its effects will hold, 0 for a read.
    ///
    /// # Errors
    /// [`Stop::Busy`] or [`Stop::Refused`] when the engine has no room for them.
    pub fn access<'s>(
        &'s self,
        scope: Scope<'s>,
        prepared: &'s Prepared,
        credit_bytes: u64,
    ) -> Result<Access<'s>, Stop> {
        self.access_at(scope, prepared, credit_bytes, self.now())
    }

    /// As [`Store::access`], with a moment from [`Store::now`] as of just now: whoever runs many commands in a row knows it
    /// from one reading of the clocks.
    ///
    /// # Errors
    /// As [`Store::access`].
    pub fn access_at<'s>(
        &'s self,
        scope: Scope<'s>,
        prepared: &'s Prepared,
        credit_bytes: u64,
        now: Moment,
    ) -> Result<Access<'s>, Stop> {
        if self.options.is_always_cold {
            self.memory.drop_all(self.accounts());
        }
        let is_known_to_need = prepared.has_records() || prepared.obstacle().is_some();
        if credit_bytes != 0 || is_known_to_need || self.memory.is_wished() {
            let pages = memory::ROOM_PAGES_MAX.max(prepared.records_count());
            self.memory.make_room(self.accounts(), pages, 0);
        }
        if is_known_to_need {
            // what is here stays; who reads next waits
            let _ = self.memory.awaits_pages(prepared.read_bytes(), 0);
        }
        // large values are counted by now: room was made before they were copied
        let evicts = || self.evict_for(credit_bytes.min(LARGE_BYTES as u64));
        if credit_bytes != 0 && (evicts() || self.memory.awaits_pages(credit_bytes, 0)) {
            return Err(Stop::Busy);
        }
        self.pass_obstacle(prepared)?;
        let keys = if credit_bytes == 0 { 0 } else { scope.keys().map_or(1, |keys| keys.len() as u64) };
        let credits = self.credits_for(prepared, credit_bytes + keys * RECORD_OVERHEAD_BYTES, keys)?;
        Ok(Access::new(self, scope, prepared, credits, self.clock.at(now.server_ms())))
    }

    /// Holds memory for a large value of about `bytes` that is about to be copied or made, unless it `is_copied` already, and for
    /// what of it will wait for the disk, until the result is dropped.
    ///
    /// # Errors
    /// [`Stop::Busy`] or [`Stop::Refused`] when there is no room for it.
    pub fn reserve_memory(&self, bytes: u64, is_copied: bool) -> Result<Reserved, Stop> {
        if self.evict_for(bytes) || self.memory.awaits_pages(bytes, 0) {
            return Err(Stop::Busy);
        }
        self.memory.reserve(self.accounts(), LargeValue { bytes, is_copied })
    }

    /// As [`Store::reserve_memory`] for one whom others wait for: it looks at a bounded part of memory. What that does not find a thread of the store's own looks
    /// for: `awaited`, to be kept until the next try, then has what came of it, and the hook for credits is called.
    ///
    /// # Errors
    /// As [`Store::reserve_memory`].
    pub fn reserve_memory_soon(
        &self,
        bytes: u64,
        is_copied: bool,
        awaited: &mut Option<AwaitedMemory>,
    ) -> Result<Reserved, Stop> {
        // first: it is counted already, and room for it would be made twice
        if let Some(granted) = self.memory.take_awaited(LargeValue { bytes, is_copied }, awaited) {
            return granted;
        }
        if self.evict_for(bytes) || self.memory.awaits_pages(bytes, 0) {
            return Err(Stop::Busy);
        }
        self.memory.reserve_soon(self.accounts(), LargeValue { bytes, is_copied }, awaited)
    }

    /// Whether pages are emptied now, for which others wait ([`Options::resident_bytes`]): what can come later had better.
    #[must_use]
    pub fn awaits_pages(&self) -> bool {
        self.memory.gate.is_closed()
    }

    /// Whether values can leave memory and be read again.
    #[must_use]
    pub fn can_drop_values(&self) -> bool {
        self.engine.has_addresses()
    }

    /// `value` as one to share, for [`Value::Large`]; a borrowed one is copied: best before any key is locked.
    ///
    /// # Errors
    /// Gives it back if it is small, or this engine keeps nothing.
    pub fn large<B: AsRef<[u8]> + Into<Box<[u8]>>>(&self, value: B) -> Result<Arc<Large>, B> {
        if self.engine_keeps() { self.memory.large(value) } else { Err(value) }
    }

    /// What [`Foresight::add`] returns for `key`, without the foresight.
    #[must_use]
    pub fn foreseen(&self, key: &[u8]) -> Foreseen {
        Foreseen(self.hasher.hash(key))
    }

    /// Starts a list of keys that are looked up soon; `None` when this engine looks nothing up.
    #[must_use]
    pub fn foresight(&self) -> Option<Foresight<'_>> {
        self.engine_keeps().then(|| Foresight::new(self))
    }

    /// Watches `key` until the returned token is dropped; see [`Access::changed`].
    #[must_use]
    pub fn watch(&self, db: u16, key: &[u8]) -> Watch {
        self.watch_key(db, key, false)
    }

    /// Watches a key for somebody who waits for it: from now on each effect on it is told by [`Store::take_changed_waited`].
    #[must_use]
    pub fn wait_for(&self, db: u16, key: &[u8]) -> Watch {
        self.watch_key(db, key, true)
    }

    fn watch_key(&self, db: u16, key: &[u8], waits: bool) -> Watch {
        let hash = self.hasher.hash(key);
        let mut stripe = self.index.lock(hash.stripe());
        let state = stripe.watches.add(db, key, waits);
        let (none, now) = (Prepared::default(), self.now());
        let mut passed = now.passed();
        let expired = match self.index.keyspace(db).map(|id| stripe.seek(id, hash, key, &none)) {
            Some(Seek::At { current, .. }) => {
                let seq = current.seq();
                passed[0] = passed[0].max(self.clock.ceiling_of(seq));
                // what becomes of its fields is a change
                let at = current.own_expiry();
                at.is_some_and(|at| now.has_passed(at) || self.clock.had_passed(at, seq))
            }
            _ => false,
        };
        drop(stripe);
        Watch {
            index: Arc::clone(&self.index),
            db,
            key: key.into(),
            stripe: hash.stripe(),
            state,
            expired,
            passed,
            waits,
        }
    }

    /// Replies held by a ticket that this covers may leave.
    #[must_use]
    pub fn released(&self) -> Ticket {
        Ticket::of(self.engine.released().0)
    }

    /// The ticket of a reply that depends on everything so far.
    #[must_use]
    pub fn newest(&self) -> Ticket {
        Ticket::of(self.engine.newest().0)
    }

    /// The newest effect.
    #[must_use]
    pub fn newest_seq(&self) -> Seq {
        self.engine.newest()
    }

    /// The newest effect that may be told.
    #[must_use]
    pub fn released_seq(&self) -> Seq {
        self.engine.released().min(self.engine.newest())
    }

    /// Tells the journal that a loop's appends of this tick are complete.
    pub fn offer(&self) {
        self.engine.offer();
    }

    /// As [`Store::offer`], from a loop on which nobody is served before these appends are durable: it may block for a write
    /// and sync, where that is quicker than to wake a thread for it.
    pub fn offer_idly(&self) {
        if !self.engine.commit_here() {
            self.engine.offer();
        }
    }

    /// Who counts bytes beside the budget of memory.
    pub(crate) fn accounts(&self) -> Accounts<'_> {
        Accounts { index: &self.index, engine: &*self.engine }
    }

    /// Memory by parts.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        self.memory.report(self.accounts())
    }

    /// `memory.limit`; 0 is none. One load.
    #[must_use]
    pub fn memory_limit(&self) -> u64 {
        self.memory.limit_bytes()
    }

    /// Asks for memory that a command is about to use for something that outlives it, as what it waits for; held until the result is
    /// dropped.
    ///
    /// # Errors
    /// As [`Access::ask`].
    pub fn ask_memory(&self, bytes: u64) -> Result<AskedMemory, Stop> {
        let mut asked = None;
        self.memory.make_room(self.accounts(), memory::ROOM_PAGES_MAX, bytes);
        self.memory.ask(self.accounts(), &mut asked, bytes, 0)?;
        Ok(AskedMemory { _asked: asked })
    }

    /// Changes `memory.limit`; 0 is none.
    pub fn set_memory_limit(&self, limit_bytes: u64) {
        self.memory.set_limit(limit_bytes);
    }

    /// Takes note of the bytes that connection buffers hold now, which count against `memory.limit`, and of the most that they may.
    pub fn report_buffers(&self, bytes: u64, bytes_max: u64) {
        self.memory.report_buffers(bytes, bytes_max);
    }

    /// Switches the removal of expired keys that nobody looks at.
    pub fn set_active_expiry(&self, on: bool) {
        self.active_expiry.store(on, Ordering::Relaxed);
        self.tender.wake();
    }

    /// Keys removed because their time had come, since the start.
    #[must_use]
    pub fn expired_keys(&self) -> u64 {
        self.expired_keys.load(Ordering::Relaxed)
    }

    /// Fields of hashes that were removed because their time had come, while the hash stayed.
    #[must_use]
    pub fn expired_fields(&self) -> u64 {
        self.expired_fields.load(Ordering::Relaxed)
    }

    /// Which keys go when there is no room.
    #[must_use]
    pub fn eviction(&self) -> Eviction {
        self.evictor.policy()
    }

    /// Sets which keys go when there is no room. Soon after it the use of keys is tracked as the policy needs it, from then on.
    pub fn set_eviction(&self, policy: Eviction) {
        self.evictor.set_policy(policy);
        self.tender.wake();
    }

    /// Changes `store.disk_limit`; 0: as the file system has room.
    pub fn set_disk_limit(&self, bytes: u64) {
        self.evictor.set_disk_limit(bytes);
    }

    /// Keys removed to make room, since the start.
    #[must_use]
    pub fn evicted_keys(&self) -> u64 {
        self.evictor.evicted_keys.load(Ordering::Relaxed)
    }

    /// Number of databases.
    #[must_use]
    pub fn databases(&self) -> u16 {
        self.options.databases
    }

    /// Keys, and those of them that have an expiry, of each database; see [`Store::census`].
    #[must_use]
    pub fn key_counts(&self) -> Vec<(u64, u64)> {
        self.census().databases
    }

    /// Keys of database `db`, 0 of none such. Reads a counter.
    #[must_use]
    pub fn keys_of(&self, db: u16) -> u64 {
        self.index.keyspace(db).map_or(0, |id| self.index.keys_of(id))
    }

    /// Counts what the index holds; locks stripe by stripe, each for a few instructions, so it is exact only while nobody
    /// writes. For INFO and metrics.
    #[must_use]
    pub fn census(&self) -> Census {
        let mapping = self.index.mapping();
        let (mut left_ms, now) = (vec![0_i128; mapping.len()], self.now());
        let mut census = Census { databases: vec![(0, 0); mapping.len()], ..Census::default() };
        for number in 0..hash::STRIPES {
            let stripe = self.index.lock(number);
            for (id, space) in stripe.spaces() {
                if let Some(db) = mapping.iter().position(|m| *m == id) {
                    census.databases[db].0 += space.table.live;
                    census.databases[db].1 += space.expiry.len();
                    left_ms[db] += space.expiry.left_ms(now);
                }
                census.hot_bytes += space.hot_bytes.max(0).cast_unsigned();
            }
        }
        let average = |(left_ms, (_, expire)): (i128, &(u64, u64))| {
            u64::try_from(left_ms / i128::from((*expire).max(1))).unwrap_or(0)
        };
        census.ttl_ms = left_ms.into_iter().zip(&census.databases).map(average).collect();
        census
    }

    /// Looks whether the store's parts are as their headers say, and fit each other: for simulations, after each step, while nobody
    /// else uses it. Costs a walk over the index.
    ///
    /// # Panics
    /// If they do not: a bug.
    #[doc(hidden)]
    pub fn check_state(&self) {
        self.index.check();
        if let Some((engine, housekeeping)) = &self.log {
            engine.check();
            housekeeping.check(Parts { engine, index: &self.index, hasher: &self.hasher });
        }
    }

    /// Clean stop: ends the store's own threads, takes a last checkpoint and seals the log. Blocks.
    ///
    /// Without it, dropping the store is as good as the death of the process: nothing acknowledged is lost.
    pub fn close(&self) {
        self.tender.stop();
        self.close_log();
    }

    pub(crate) fn engine_keeps(&self) -> bool {
        self.options.engine != EngineKind::Noop
    }

    /// Whether keys changed that somebody waits for ([`Store::wait_for`]) and that nobody has looked at. One load.
    #[must_use]
    #[inline]
    pub fn has_changed_waited(&self) -> bool {
        self.changed.any()
    }

    /// Takes the keys that changed and that somebody waits for. Until a call finds none, [`Store::has_changed_waited`] says that there are some.
    #[must_use]
    pub fn take_changed_waited(&self) -> ChangedWaited {
        self.changed.take()
    }

    /// A number that differs from call to call; for commands and evictions that choose by chance.
    pub fn random(&self) -> u64 {
        mixed(self.random.fetch_add(1, Ordering::Relaxed) ^ self.options.clock.now().0)
    }
}

/// A number that looks like a random one.
fn mixed(number: u64) -> u64 {
    (KeyHasher::new(&[0x5a; 16], 128).hash(&number.to_le_bytes()).0 >> 64) as u64
}

/// The key of the keys' hash: the folder's, or for an engine without one, of the moment.
fn hash_key(options: &Options) -> [u8; 16] {
    let seed = [options.clock.now().0.to_le_bytes(), options.clock.unix_us().to_le_bytes()].concat();
    KeyHasher::new(&[0x3c; 16], 128).hash(&seed).0.to_le_bytes()
}

/// What a record takes beside key and value, at most: header, key length, base seq, since, padding.
const RECORD_OVERHEAD_BYTES: u64 = record::HEADER_BYTES + 4 + 8 + 8 + 7;
