//! One store on a simulated disk, driven step by step from one seed, beside a model that judges it.
//!
//! Nothing here runs in a thread of its own: the journal commits when [`World::drive`] says so, cold reads
//! happen on the calling thread, and time stands still until a step moves it. So a seed fixes everything.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use clock::{Clock, SimClock, UnixMs};
use journal::BackendKind;
use store::{
    Access, Deadline, Durability, EngineKind, Hooks, KeyRef, LeafReport, Locked, Moment, Options, Prepared,
    Scope, Stop, Store, StoreError, Value, Wanted,
};
use vfs::SimDisk;
use vfs::sim::Rng;

use crate::collections::{Content, resolve, stage_change, with_packed};
use crate::eviction::Pressure;
use crate::faults::{MARGIN_BYTES, Met};
use crate::model::{DATABASES, Effect, Entry, Model, Name, State};
use crate::readers::Reader;
use crate::transactions::Open;
use crate::transactions::key_of;

/// How many keys the steps choose from: few, so that most writes replace something.
const KEYS: u64 = 24;
const START_MS: UnixMs = UnixMs(1_700_000_000_000);
/// A command that does not get through in so many tries never will.
const TRIES_MAX: usize = 200;
/// Whoever is held back so often does not wait for the journal.
const HELD_BACK_MAX: usize = 40;

/// What differs between runs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// With engine `memory` nothing dies, and the same steps check the commands alone.
    pub engine: EngineKind,
    /// Much of what is done are changes of few elements of collections with large leaves.
    pub is_busy: bool,
    /// 8 makes every key collide.
    pub hash_bits: u32,
    pub durability: Durability,
    pub value_bytes_max: u64,
    pub backend: BackendKind,
    /// Segments that were given back wait for the next roll, as with the journal's own threads.
    pub keeps_spares: bool,
    /// Policies and limits change in its steps, and keys are evicted.
    pub evicts: bool,
    /// How much later than they should fields end: a planted fault.
    pub field_delay_ms: u64,
}

impl Plan {
    /// A plan that `seed` determines.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            seed,
            engine: EngineKind::Log,
            hash_bits: if rng.chance(1, 2) { 8 } else { 128 },
            durability: Durability::Always,
            value_bytes_max: if rng.chance(1, 2) { 80 } else { 3_000 },
            backend: if rng.chance(1, 2) { BackendKind::Direct } else { BackendKind::Buffered },
            keeps_spares: rng.chance(1, 2),
            evicts: rng.chance(1, 2),
            field_delay_ms: 0,
            is_busy: false,
        }
    }
}

/// Why a step did not happen.
#[derive(Debug)]
pub enum Trouble {
    /// The store said no, and nothing changed.
    Refused(StoreError),
    /// A prepared transaction holds a key.
    Locked(Locked),
    /// The store failed for good, or its disk is off: only a restart helps.
    Dead(#[expect(dead_code, reason = "read through Debug")] String),
    /// Keys must go first.
    Waits,
    /// A promise is broken.
    Violation(String),
}

pub type Outcome<T> = Result<T, Trouble>;

pub struct World {
    pub disk: SimDisk,
    pub model: Model,
    pub rng: Rng,
    pub met: Met,
    pub(crate) plan: Plan,
    dir: PathBuf,
    prepare: Box<dyn Fn(&SimDisk)>,
    pub(crate) clock: Arc<SimClock>,
    /// The disk has a limit.
    pub(crate) is_limited: bool,
    /// And the limit left the journal its margin.
    pub(crate) has_margin: bool,
    /// The reserve of removals may be used up, and cannot be filled again.
    pub(crate) has_spent_reserve: bool,
    /// Server time less what all clocks were moved by.
    server_ahead_ms: i64,
    /// The machine went down since the store was open.
    pub(crate) has_rebooted: bool,
    /// A write goes elsewhere, or nowhere: some key may be damaged.
    pub is_struck: bool,
    /// What makes keys go.
    pub(crate) pressure: Pressure,
    store: Option<Arc<Store>>,
    failed: Arc<AtomicBool>,
    serial: u64,
    digest: u64,
    /// The transaction that is being staged.
    pub(crate) open: Option<Open>,
    /// Those who read large collections in parts, and their dice.
    pub(crate) readers: Vec<Reader>,
    pub(crate) reader_rng: Rng,
}

impl World {
    /// An empty disk; nothing is open. `prepare` sees each disk before a store does.
    pub fn new(plan: Plan, prepare: Box<dyn Fn(&SimDisk)>) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x5EED);
        Self {
            disk: SimDisk::new(rng.bits()),
            model: Model::planted(plan.field_delay_ms),
            met: Met::default(),
            is_limited: false,
            has_margin: false,
            has_spent_reserve: false,
            server_ahead_ms: START_MS.0 as i64,
            has_rebooted: false,
            is_struck: false,
            pressure: Pressure::default(),
            clock: Arc::new(SimClock::new(START_MS)),
            store: None,
            failed: Arc::default(),
            serial: 0,
            digest: 0,
            open: None,
            readers: Vec::new(),
            reader_rng: Rng::new(plan.seed ^ 0x4EAD),
            rng,
            plan,
            dir: folder(),
            prepare,
        }
    }

    /// Another store at `dir` of the same disk at the same time; nothing is open.
    pub fn at(other: &Self, dir: &Path) -> Self {
        let mut world = Self::new(other.plan.clone(), Box::new(|_| {}));
        world.disk = other.disk.clone();
        world.clock = other.clock.clone();
        world.dir = dir.to_path_buf();
        world
    }

    /// A digest of everything that happened to the disks of this world.
    pub fn digest(&self) -> u64 {
        self.digest.rotate_left(7) ^ self.disk.digest()
    }

    // ---- life and death ----------------------------------------------------------------------------

    /// Opens the store and compares what it holds with what may have survived.
    pub fn open(&mut self) -> Outcome<()> {
        self.spend_reserve();
        self.check_folder()?;
        let mut opened = self.try_open();
        if opened.is_err() && self.is_limited {
            self.met.starts_without_room += 1;
            self.give_room();
            opened = self.try_open();
        }
        opened.map_err(|error| match self.disk.is_powered() {
            true => Trouble::Violation(format!("the store does not open: {error}")),
            false => Trouble::Dead(error.to_string()),
        })?;
        let read = self.read_all();
        let found = read.map_err(never)?;
        let now = self.store().now();
        let is_ttl = |entry: &Entry| entry.expiry.is_some_and(|at| !at.is_wall());
        let has_ttl = found.0.iter().flat_map(|keys| keys.values()).any(is_ttl);
        if self.has_rebooted || !has_ttl {
            // how long the machine was off is not known for certain; without a TTL server time may begin anew
            self.server_ahead_ms = now.server_ms() as i64 - self.uptime_ms();
        }
        self.check_server_time(now)?;
        self.met.branches_found_by_starts += found.1.len() as u64;
        self.model.recover(&found, now).map_err(Trouble::Violation)?;
        if self.has_rebooted {
            // once its record is durable this start of the machine is known; on a full disk there is none
            self.drive()?;
            self.has_rebooted = self.is_limited;
        }
        Ok(())
    }

    /// Opens the store and nothing more.
    pub fn try_open(&mut self) -> Result<(), StoreError> {
        (self.prepare)(&self.disk);
        self.failed = Arc::default();
        let failed = self.failed.clone();
        let on_failure = Arc::new(move |_: StoreError| failed.store(true, SeqCst));
        let mut journal = journal::Options::small();
        journal.segment_size_bytes = 64 << 10;
        journal.buffer_bytes_max = 64 << 10;
        journal.backend = self.plan.backend;
        journal.space_margin_bytes = MARGIN_BYTES;
        if let Some(identity) = &mut journal.identity {
            identity.hash_bits = self.plan.hash_bits;
        }
        let options = Options {
            engine: self.plan.engine,
            durability: self.plan.durability,
            memory_limit_bytes: self.pressure.memory_limit_bytes,
            eviction: self.pressure.policy,
            disk_limit_bytes: self.pressure.disk_limit_bytes,
            databases: DATABASES,
            hash_bits: self.plan.hash_bits,
            background: false,
            readers: 0,
            clock: self.clock.clone(),
            dir: self.dir.clone(),
            vfs: Arc::new(self.disk.clone()),
            journal,
            leaf_bytes: LEAF_BYTES[usize::from(self.plan.is_busy)],
            // half of all runs: keys of transactions are claimed, not locked together
            claims_from: if self.plan.seed.is_multiple_of(2) { 1 } else { 1_024 },
            hooks: Hooks { on_failure, ..Hooks::default() },
            ..Options::default()
        };
        let store = Store::open(options)?;
        if self.plan.keeps_spares {
            store.keep_spares();
        }
        self.pressure.noted = 0;
        self.store = Some(store);
        Ok(())
    }

    /// `evenkeel check` finds each large collection as it counts itself, and each leaf's root, whatever was under way.
    fn check_folder(&self) -> Outcome<()> {
        let has_log = self.plan.engine == EngineKind::Log && !self.is_struck;
        // before the first start there is nothing
        let checked = has_log.then(|| store::check(&self.disk.fork(), &self.dir).ok()).flatten();
        // what faults of the disk have done is no fault of the collections
        let is_whole =
            |checked: &store::Checked| checked.journal.damage.len() as u64 == checked.collection_faults;
        match checked.filter(is_whole).and_then(|checked| checked.journal.damage.into_iter().next()) {
            Some(damage) => violation(format!("the folder is not whole: {damage:?}")),
            None => Ok(()),
        }
    }

    /// Ends the process and goes on with `disk`, which it left behind.
    pub fn restart_on(&mut self, disk: SimDisk) -> Outcome<()> {
        self.abandon(disk);
        self.open()
    }

    /// As [`World::restart_on`], but nothing is opened yet.
    pub fn abandon(&mut self, disk: SimDisk) {
        self.digest = self.digest();
        self.disk.power_off();
        self.open = None;
        self.readers.clear();
        self.store = None;
        self.disk = disk;
    }

    /// The power goes, and comes back.
    pub fn crash(&mut self) -> Outcome<()> {
        let disk = self.disk.crash(self.rng.bits());
        self.restart_in_peril(disk)
    }

    /// kill -9, and a start.
    pub fn kill(&mut self) -> Outcome<()> {
        let disk = self.disk.process_death();
        self.restart_in_peril(disk)
    }

    /// A clean stop, and a start; the machine may lose its power in between.
    pub fn stop_and_start(&mut self) -> Outcome<()> {
        self.stop()?;
        if self.rng.chance(1, 2) { self.kill() } else { self.crash() }
    }

    /// A clean stop.
    pub fn stop(&mut self) -> Outcome<()> {
        self.store().close();
        self.check_alive()?;
        let newest = self.store().newest_seq().0;
        self.model.release(newest);
        Ok(())
    }

    // ---- steps -------------------------------------------------------------------------------------

    /// One random step.
    pub fn step(&mut self) -> Outcome<()> {
        let outcome = self.reader_step().and_then(|()| self.random_step());
        let outcome = self.survive(outcome);
        self.pardon(outcome)?;
        self.store().check_state();
        self.now().map(drop)
    }

    /// The store's time, which the model takes note of.
    pub(crate) fn now(&mut self) -> Outcome<Moment> {
        let now = self.store().now();
        self.check_server_time(now)?;
        self.model.on_time(now).map_err(Trouble::Violation)?;
        self.met.fields_ended = self.model.fields_ended;
        self.met.fields_purged = self.met.fields_purged.max(self.store().expired_fields());
        Ok(now)
    }

    /// Whatever the wall clock does, server time has gone on as far as the clocks were moved.
    fn check_server_time(&self, now: Moment) -> Outcome<()> {
        let wanted = self.uptime_ms() + self.server_ahead_ms;
        match now.server_ms() as i64 == wanted {
            true => Ok(()),
            false => violation(format!("server time is {} instead of {wanted}", now.server_ms())),
        }
    }

    fn uptime_ms(&self) -> i64 {
        (self.clock.now().0 / 1_000_000) as i64
    }

    fn random_step(&mut self) -> Outcome<()> {
        if self.plan.evicts {
            self.make_memory_room()?;
            if self.rng.chance(1, 8) {
                return self.eviction_step();
            }
        }
        if self.plan.is_busy && self.rng.chance(1, 3) {
            return self.busy_step();
        }
        if self.rng.chance(1, 5) {
            return self.transaction_step();
        }
        if self.rng.chance(1, 5) {
            if self.plan.engine == EngineKind::Log && self.rng.chance(1, 6) {
                self.housekeep()?; // what cleaning has copied changes before the index turns to the copy
            }
            return self.collection_step();
        }
        match self.rng.below(if self.plan.engine == EngineKind::Log { 207 } else { 189 }) {
            0..44 => self.put(),
            44..56 => self.part(),
            56..72 => self.remove(),
            72..82 => self.expire(),
            82..96 => self.multi(),
            96..98 => self.everything(Effect::Flush { db: self.rng.clone().below(3) as u16 }),
            98 => self.everything(Effect::FlushAll),
            99..102 => self.everything(Effect::Swap { a: 0, b: 1 + self.rng.clone().below(2) as u16 }),
            102..130 => self.read(),
            130..160 => self.drive(),
            160..165 => self.advance(),
            165..168 => self.set_wall_clock(),
            168..174 => self.tend(),
            174..186 => self.housekeep(),
            // Without syncs of its own the journal keeps a checkpoint waiting: these steps would be refused.
            186..192 if self.plan.durability != Durability::Always => self.kill(),
            186..189 => self.checkpoint(),
            189..192 => self.stop_and_start(),
            192..195 => self.kill(),
            195..200 => self.crash(),
            200..204 => self.change_room(),
            _ => self.doom(),
        }
    }

    /// One random step that writes, reads or tends; no death, no start.
    pub fn quiet_step(&mut self) -> Outcome<()> {
        match self.rng.below(30) {
            24.. => self.collection_step(),
            20..24 => self.transaction_step(),
            0..7 => self.put(),
            7 => self.part(),
            8..10 => self.remove(),
            10 => self.expire(),
            11..13 => self.multi(),
            13..15 => self.read(),
            15 => self.advance(),
            _ => self.drive(),
        }
    }

    pub fn put(&mut self) -> Outcome<()> {
        let effect = self.random_put();
        self.commit(&[effect])
    }

    /// Changes some bytes of a long string, or makes one; now and then at two places, and with another expiry, in one group.
    pub fn part(&mut self) -> Outcome<()> {
        let (db, key) = (0, key_name(self.rng.below(LONG_KEYS)));
        let now = self.now()?;
        let found = self.model.current().get(db, &key, now).cloned();
        let (mut value, mut expiry) = match found {
            Some(Entry { value: Content::String(value), expiry, .. }) => (value, expiry),
            other => (Vec::new(), other.and_then(|entry| entry.expiry)),
        };
        let mut effects = Vec::new();
        if self.rng.chance(1, 6) {
            expiry = self.random_expiry();
            let retime = Effect::Expiry { db, key: key.clone(), expiry, lapsed: false };
            effects.extend(self.rng.chance(1, 2).then_some(retime));
        }
        for _ in 0..if self.rng.chance(1, 4) { 2 } else { 1 } {
            self.change_part(&mut value);
            let value = Content::String(value.clone());
            effects.push(Effect::Put { db, key: key.clone(), value, expiry, lapsed: false });
        }
        self.commit(&effects)
    }

    fn change_part(&mut self, value: &mut Vec<u8>) {
        self.serial += 1;
        let bytes = format!("{}.", self.serial).repeat(1 + self.rng.below(20) as usize).into_bytes();
        let at = if self.rng.chance(1, 2) { value.len() } else { self.rng.below(LONG_BYTES) as usize };
        value.resize(value.len().max(at + bytes.len()).max(LONG_BYTES as usize), b'-');
        value[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    pub fn remove(&mut self) -> Outcome<()> {
        let (db, key) = self.random_key();
        let outcome = self.commit(&[Effect::Remove { db, key }]);
        self.insist(outcome, "a removal")
    }

    fn expire(&mut self) -> Outcome<()> {
        let (db, key) = self.random_key();
        let retime = self.random_retime(db, key);
        self.commit(&[retime])
    }

    fn multi(&mut self) -> Outcome<()> {
        let count = 2 + self.rng.below(4);
        let effects = (0..count).map(|_| {
            let (db, key) = self.random_key();
            match self.rng.below(4) {
                0 => Effect::Remove { db, key },
                1 => self.random_retime(db, key),
                _ => self.random_put(),
            }
        });
        let effects: Vec<Effect> = effects.collect();
        self.commit(&effects)
    }

    fn everything(&mut self, effect: Effect) -> Outcome<()> {
        let change = |access: &mut Access<'_>| match &effect {
            Effect::Flush { db } => access.flush(*db),
            Effect::Swap { a, b } => access.swap(*a, *b),
            _ => access.flush_all(),
        };
        let first = self.store().newest_seq().0 + 1;
        let outcome = self.run(&[], 64, change);
        let current = self.model.current();
        let whole = current.1.values().flat_map(|branch| &branch.whole).map(|db| (*db, Vec::new()));
        let names = current.1.values().flat_map(|branch| branch.held.iter().cloned()).chain(whole);
        let held = names.into_iter().find(|(db, _)| match &effect {
            Effect::Flush { db: of } => db == of,
            Effect::Swap { a, b } => db == a || db == b,
            _ => true,
        });
        let Some(((), ticket)) = self.past_locks(held, outcome)? else { return Ok(()) };
        self.model.commit(first..=ticket, vec![effect.clone()]);
        self.note(&[effect]);
        Ok(())
    }

    /// Reads one key; its reply must wait for what it shows.
    pub fn read(&mut self) -> Outcome<()> {
        let (db, key) = self.random_key();
        self.read_key(db, &key)
    }

    pub(crate) fn read_key(&mut self, db: u16, key: &[u8]) -> Outcome<()> {
        let newest = self.store().newest_seq().0;
        let read = self.run(&[(db, key)], 0, |access| entry(access, db, key));
        let (found, ticket) = read.map_err(never)?;
        let now = self.now()?;
        let wanted = self.model.current().get(db, key, now);
        if found.as_ref() != wanted {
            let key = key.escape_ascii();
            return violation(format!("db {db} {key} reads {found:?} instead of {wanted:?}"));
        }
        let (needed, released) = (self.model.depends_on(db, key), self.store().released_seq().0);
        if ticket < needed && released < needed {
            let key = key.escape_ascii();
            let group = self.model.group_of(needed);
            return violation(format!(
                "reading db {db} {key} waits for {ticket} but shows effect {needed}: {group}"
            ));
        }
        if self.plan.evicts && found.is_some() {
            self.check_usage(db, key)?;
        }
        // Who holds a key that has expired ends first: until then its removal is not in the log.
        let holder = self.model.current().holder(db, key);
        if holder.is_none() && self.model.may_have_expired(db, key, now) {
            self.model.release(released);
            // a paged collection takes a note with it
            self.model.expire(db, key, (ticket.min(newest + 1), ticket));
        }
        Ok(())
    }

    /// Lets the journal write and sync once.
    pub fn drive(&mut self) -> Outcome<()> {
        if self.rng.chance(1, 2) {
            self.store().offer_idly(); // as a loop does that has nothing else to do
        }
        self.store().drive();
        self.check_alive()?;
        let waiting = self.store().journal_counters().map_or(0, |counters| counters.segments_retired);
        self.met.segments_that_wait += waiting;
        let released = self.store().released_seq().0;
        self.model.release(released);
        Ok(())
    }

    /// Drives until nothing waits.
    pub fn settle(&mut self) -> Outcome<()> {
        for _ in 0..TRIES_MAX {
            if self.model.is_settled() {
                return Ok(());
            }
            self.drive()?;
        }
        violation(format!("effects are not released after {TRIES_MAX} commits"))
    }

    fn tend(&mut self) -> Outcome<()> {
        if self.plan.evicts {
            return self.evict_keys(16);
        }
        self.store().tend(16);
        self.check_alive()
    }

    pub fn housekeep(&mut self) -> Outcome<()> {
        self.spend_reserve();
        let result = self.store().housekeep();
        let folded_bytes = self.store().log_report().map_or(0, |report| report.folded_bytes);
        self.met.folds += u64::from(folded_bytes > 0);
        self.check_alive()?;
        result.map(drop).map_err(Trouble::Refused)
    }

    pub fn checkpoint(&mut self) -> Outcome<()> {
        let result = self.store().checkpoint();
        self.check_alive()?;
        result.map_err(Trouble::Refused)
    }

    /// Copies the data to `out` while the store serves.
    pub fn backup(&mut self, out: &Path) -> Outcome<()> {
        let result = self.store().backup(out);
        self.check_alive()?;
        result.map_err(Trouble::Refused)
    }

    // ---- leaves ------------------------------------------------------------------------------------

    /// Commits `effects` as one group, in the store and in the model.
    pub(crate) fn commit(&mut self, effects: &[Effect]) -> Outcome<()> {
        let mut bytes = 0;
        let mut keys: Vec<(u16, &[u8])> = Vec::new();
        for effect in effects {
            keys.push(key_of(effect));
            let value_bytes = if let Effect::Put { value, .. } = effect { value.bytes() } else { 8 };
            bytes += keys[keys.len() - 1].1.len() as u64 + value_bytes;
        }
        let now = self.now()?;
        let mut expected = self.model.current().alive(now);
        let (mut presence, mut lasting, mut held) = (Vec::new(), Vec::new(), None);
        for effect in effects {
            let (db, key) = key_of(effect);
            let (present, resolved) = resolve(effect, expected.get(db, key, now));
            presence.extend(present);
            self.count_change(effect, resolved.as_ref());
            if let Some(effect) = resolved {
                held = held.or_else(|| self.model.current().holder(db, key).map(|_| (db, key.to_vec())));
                expected.apply(&effect);
                lasting.push(effect);
            }
        }
        // What a group sets and removes again was never there: nobody can see it, nobody waits for it.
        let before = self.model.current();
        let is_seen = |effect: &Effect| match effect {
            Effect::Put { db, key, .. } | Effect::Remove { db, key } | Effect::Expiry { db, key, .. } => {
                before.get(*db, key, now).is_some() || expected.get(*db, key, now).is_some()
            }
            _ => true,
        };
        let (lasting, undone): (Vec<Effect>, Vec<Effect>) = lasting.into_iter().partition(is_seen);
        let undone: Vec<Name> = undone.iter().map(key_of).map(|(db, key)| (db, key.to_vec())).collect();
        let renames = is_rename(before, effects, now);
        let stage = |access: &mut Access<'_>| {
            let mut found = Vec::new();
            if renames && rename(access, effects)? {
                return Ok(vec![true]);
            }
            for effect in effects {
                let (db, key) = key_of(effect);
                access.turn_to(&[KeyRef { db, key }]);
                found.extend(stage(access, effect)?);
            }
            Ok(found)
        };
        let first = self.store().newest_seq().0 + 1;
        let outcome = self.run(&keys, bytes, stage);
        // what changes nothing needs no lock, where the store sees in time that it does
        let is_changed =
            |(db, key): &Name| self.model.current().get(*db, key, now) != expected.get(*db, key, now);
        let held = held.filter(|name| outcome.is_err() || is_changed(name));
        let Some((found, ticket)) = self.past_locks(held, outcome)? else { return Ok(()) };
        if found != presence {
            return violation(format!("{effects:?} found keys {found:?} instead of {presence:?}"));
        }
        self.note_undone(&undone)?;
        // changes of a large collection that take each other back log nothing: then the reply waits for what they saw
        self.model.commit(first.min(ticket)..=ticket, lasting.clone());
        self.note(&lasting);
        // A key whose time has come is removed by the command that meets it, if nothing else did before.
        keys.retain(|(db, key)| self.model.may_have_expired(*db, key, now));
        let met: Vec<(u16, Vec<u8>)> = keys.iter().map(|(db, key)| (*db, key.to_vec())).collect();
        met.iter().try_for_each(|(db, key)| self.read_key(*db, key))
    }

    /// Runs `body` in an access as the executor of a server would: prepare, execute, and again if need be.
    pub(crate) fn run<T>(
        &self,
        keys: &[(u16, &[u8])],
        bytes: u64,
        mut body: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
    ) -> Outcome<(T, u64)> {
        let keys: Vec<KeyRef<'_>> = keys.iter().map(|&(db, key)| KeyRef { db, key }).collect();
        let scope = match keys.len() {
            0 => Scope::Everything,
            // every second group goes the way of long commands
            2.. if self.store().newest_seq().0.is_multiple_of(2) => {
                Scope::Claimed { keys: &keys, writes: true }
            }
            _ => Scope::Keys(&keys),
        };
        self.tries(&keys, |prepared| attempt(self.store(), scope, prepared, bytes, &mut body))
    }

    /// Tries until nothing is cold and the journal has room.
    pub(crate) fn tries<T>(
        &self,
        keys: &[KeyRef<'_>],
        mut attempt: impl FnMut(&Prepared) -> Result<T, (Stop, Wanted)>,
    ) -> Outcome<T> {
        let store = self.store();
        let (mut prepared, mut held_back) = (Prepared::default(), 0);
        for _ in 0..TRIES_MAX {
            if !store.missing(keys, &mut prepared) {
                prepared = fetch(store, prepared);
                continue;
            }
            let (stop, wanted) = match attempt(&prepared) {
                Ok(done) => return Ok(done),
                Err(stopped) => stopped,
            };
            match stop {
                Stop::Cold => {
                    prepared.want(wanted);
                    prepared = fetch(store, prepared);
                }
                Stop::Busy if held_back == HELD_BACK_MAX && self.pressure.holds_writers_back() => {
                    return Err(Trouble::Waits);
                }
                Stop::Busy => {
                    held_back += 1;
                    store.drive();
                    self.check_alive()?;
                }
                Stop::Long | Stop::Abandoned => {
                    unreachable!(
                        "nothing bounds what an access of the simulation touches, and nobody leaves one"
                    )
                }
                Stop::Locked(locked) => return Err(Trouble::Locked(*locked)),
                Stop::Refused(error @ StoreError::Journal(_)) => {
                    return Err(Trouble::Dead(error.to_string()));
                }
                Stop::Refused(error) | Stop::Damaged(error) => {
                    self.check_alive()?;
                    return Err(Trouble::Refused(error));
                }
            }
        }
        violation(format!("a command did not get through in {TRIES_MAX} tries"))
    }

    /// No leaf is without its root for longer than it takes to remove it. For the end of a life: what goes by itself is not told to the model.
    pub fn check_leaves(&self) -> Outcome<()> {
        let store = self.store();
        let has_settled = (0..SWEEPS_MAX).any(|_| {
            let next = store.tend(EXPIRED_MAX);
            store.drive();
            next.is_none_or(|next| next > store.now().unix()) && store.leaf_report().swept == 0
        });
        if !has_settled || self.is_struck {
            // what waits for room goes later, what is damaged never
            return Ok(());
        }
        let (mut wanted, mut keys) = (0, 0);
        for db in 0..DATABASES {
            for name in self.run(&[], 0, |access| names(access, db))?.0 {
                keys += 1;
                wanted += self.run(&[(db, &name)], 0, |access| access.leaf_count(db, &name))?.0;
            }
        }
        let LeafReport { leaves: found, swept, .. } = store.leaf_report();
        let there: u64 = store.key_counts().iter().map(|(keys, _)| keys).sum();
        if swept > 0 || there > keys {
            // some have expired, and go later, or as soon as there is room
            return Ok(());
        }
        if found == wanted { Ok(()) } else { violation(format!("{found} leaves, and roots for {wanted}")) }
    }

    /// Everything that the store holds.
    pub fn read_all(&self) -> Outcome<State> {
        let mut state = State::default();
        for db in 0..DATABASES {
            let (names, _) = self.run(&[], 0, |access| names(access, db))?;
            for name in names {
                let (found, _) = self.run(&[(db, &name)], 0, |access| entry(access, db, &name))?;
                match found {
                    Some(entry) => state.0[usize::from(db)].insert(name, entry),
                    None => {
                        return violation(format!(
                            "SCAN names {}, GET does not know it",
                            name.escape_ascii()
                        ));
                    }
                };
            }
            for key in (0..KEYS).map(key_name) {
                let (found, _) = self.run(&[(db, &key)], 0, |access| entry(access, db, &key))?;
                if found.as_ref() != state.0[usize::from(db)].get(&key) {
                    return violation(format!("GET knows {}, SCAN does not name it", key.escape_ascii()));
                }
            }
        }
        state.1 = self.read_branches((0..KEYS).map(key_name))?;
        Ok(state)
    }

    /// Reads each key that may exist: it is as in `state`, or an error.
    pub fn compare_each(&self, state: &State) -> Result<(), String> {
        for (db, keys) in (0..DATABASES).zip(&state.0) {
            for key in (0..KEYS).map(key_name) {
                match self.run(&[(db, &key)], 0, |access| entry(access, db, &key)) {
                    Ok((found, _)) if found.as_ref() == keys.get(&key) => {}
                    Ok((found, _)) => {
                        let wanted = keys.get(&key);
                        return Err(format!("db {db} {}: {found:?}, not {wanted:?}", key.escape_ascii()));
                    }
                    Err(Trouble::Violation(what)) => return Err(what),
                    Err(Trouble::Refused(_) | Trouble::Locked(_) | Trouble::Waits | Trouble::Dead(_)) => {}
                }
            }
        }
        Ok(())
    }

    pub(crate) fn check_alive(&self) -> Outcome<()> {
        match self.failed.load(SeqCst) || !self.disk.is_powered() {
            true => Err(Trouble::Dead("the store reported its failure".into())),
            false => Ok(()),
        }
    }

    pub fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("the world is between two lives only inside of its own methods")
    }

    pub(crate) fn random_key(&mut self) -> (u16, Vec<u8>) {
        let db = if self.rng.chance(3, 4) { 0 } else { self.rng.below(DATABASES.into()) as u16 };
        (db, key_name(self.rng.below(KEYS)))
    }

    pub(crate) fn random_put(&mut self) -> Effect {
        let (db, key) = self.random_key();
        self.serial += 1;
        let mut value = format!("{}:", self.serial).into_bytes();
        let length = self.rng.below(self.plan.value_bytes_max);
        value.extend((0..length).map(|at| (at ^ self.serial) as u8));
        let expiry = if self.rng.chance(1, 6) { self.random_expiry() } else { None };
        Effect::Put { db, key, value: value.into(), expiry, lapsed: false }
    }

    pub(crate) fn random_retime(&mut self, db: u16, key: Vec<u8>) -> Effect {
        Effect::Expiry { db, key, expiry: self.random_expiry(), lapsed: false }
    }

    fn random_expiry(&mut self) -> Option<Deadline> {
        let now = self.store().now();
        let left_ms = 1 + self.rng.below(1 << self.rng.clone().below(16));
        let at_wall = self.rng.chance(1, 2);
        let after = if at_wall { Deadline::at(UnixMs(now.unix().0 + left_ms)) } else { now.after(left_ms) };
        self.rng.chance(4, 5).then_some(after)
    }
}

/// One try of a command; when it stops, why, and which records it missed.
fn attempt<T>(
    store: &Store,
    scope: Scope<'_>,
    prepared: &Prepared,
    bytes: u64,
    body: &mut impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
) -> Result<(T, u64), (Stop, Wanted)> {
    let none = |stop| (stop, Wanted::default());
    let mut access = store.access(scope, prepared, bytes).map_err(none)?;
    let done = body(&mut access).and_then(|value| Ok((value, access.commit()?.pack())));
    done.map_err(|stop| (stop, access.into_wanted()))
}

/// Whether these effects are those of RENAME.
fn is_rename(before: &State, effects: &[Effect], now: Moment) -> bool {
    let [Effect::Remove { db, key: from }, Effect::Put { db: to_db, key: to, value, expiry, .. }] = effects
    else {
        return false;
    };
    let there = before.get(*db, from, now);
    db == to_db && from != to && there.is_some_and(|it| it.value == *value && it.expiry == *expiry)
}

/// Stages the effects of RENAME in one, if what is renamed is paged; returns whether it is.
fn rename(access: &mut Access<'_>, effects: &[Effect]) -> Result<bool, Stop> {
    let (from, to) = (key_of(&effects[0]), key_of(&effects[1]));
    access.turn_to(&[from, to].map(|(db, key)| KeyRef { db, key }));
    match access.rename_paged(from.0, from.1, to.1) {
        // what is damaged can be replaced
        Err(Stop::Damaged(_)) => Ok(false),
        renamed => renamed,
    }
}

/// Stages `effect`; says whether its key was there, where that is asked.
pub(crate) fn stage(access: &mut Access<'_>, effect: &Effect) -> Result<Option<bool>, Stop> {
    match effect {
        Effect::Put { db, key, value, expiry, .. } => {
            let value = match value {
                Content::String(value) => value,
                Content::Collection(kind, elements) => {
                    with_packed(access, *kind, elements, |access, value| {
                        access.put(*db, key, value, *expiry);
                    });
                    return Ok(None);
                }
            };
            let whole = Value::String(value);
            match changed(access, *db, key, value) {
                Ok(Some(part)) => access.put_part(*db, key, whole, part, *expiry)?,
                // what is damaged can be replaced
                Ok(None) | Err(Stop::Damaged(_)) => access.put(*db, key, whole, *expiry),
                Err(stop) => return Err(stop),
            }
            Ok(None)
        }
        Effect::Remove { db, key } => access.remove(*db, key).map(Some),
        Effect::Expiry { db, key, expiry, .. } => access.set_expiry(*db, key, *expiry).map(Some),
        Effect::Change { db, key, kind, operations } => {
            stage_change(access, (*db, key), *kind, operations).map(Some)
        }
        _ => Ok(None),
    }
}

/// What `value` has other than the string there, if that is long and no longer than it.
fn changed(access: &Access<'_>, db: u16, key: &[u8], value: &[u8]) -> Result<Option<Range<usize>>, Stop> {
    if (value.len() as u64) < LONG_BYTES {
        return Ok(None);
    }
    let Some(found) = access.get(db, key)?.filter(|found| found.value.len() <= value.len()) else {
        return Ok(None);
    };
    let differs = |at: &usize| found.value.get(*at) != value.get(*at);
    let first = (0..value.len()).find(differs);
    let last = (0..value.len()).rfind(differs);
    Ok(first.zip(last).map(|(first, last)| first..last + 1))
}

/// Length that parts of strings begin with, and keys that have such strings.
const LONG_BYTES: u64 = 4_500;
/// Turns in which the leaves of what is gone go, unless there is no room.
const SWEEPS_MAX: usize = 100;
const EXPIRED_MAX: usize = 100;
/// Small, so that collections get some leaves and lose them; and so large that changes of leaves are logged by themselves.
const LEAF_BYTES: [u64; 2] = [256, 768];
const LONG_KEYS: u64 = 3;

pub(crate) fn entry(access: &Access<'_>, db: u16, key: &[u8]) -> Result<Option<Entry>, Stop> {
    let found = access.get(db, key)?;
    Ok(found.map(|found| Entry::new(Content::of(found.kind, found.value), found.expiry)))
}

pub(crate) fn names(access: &mut Access<'_>, db: u16) -> Result<Vec<Vec<u8>>, Stop> {
    let (mut names, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = access.scan(db, cursor, 10, &mut |key, _| names.push(key.to_vec()))?;
        if cursor == 0 {
            names.sort();
            names.dedup();
            return Ok(names);
        }
    }
}

fn fetch(store: &Store, prepared: Prepared) -> Prepared {
    let (sender, receiver) = mpsc::channel();
    store.fetch(prepared, Box::new(move |prepared| drop(sender.send(prepared))));
    receiver.try_recv().expect("with no readers, fetching happens on this thread")
}

pub(crate) fn key_name(number: u64) -> Vec<u8> {
    format!("key-{number:02}").into_bytes()
}

/// A refusal of what is never refused.
pub(crate) fn never(trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Refused(error) => Trouble::Violation(format!("a read is refused: {error}")),
        Trouble::Waits => Trouble::Violation("a read waits for evictions".into()),
        other => other,
    }
}

/// The data folder of every world.
pub fn folder() -> PathBuf {
    PathBuf::from("/data")
}

pub fn violation<T>(what: String) -> Outcome<T> {
    Err(Trouble::Violation(what))
}
