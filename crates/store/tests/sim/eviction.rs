//! Eviction of keys in the lives of a store: limits that come and go, and every policy.
//!
//! The store alone decides which key goes, so the model hears of it afterwards: what the model has and SCAN does not name went. There must be
//! as many of these as `evicted_keys` grew by, and none that the policy spares or a prepared branch holds. From then on it is a group with a
//! removal, like any other: a crash may take it back until it is released, a reader who finds the key gone waits for it, and what was told to
//! be gone stays gone.
//!
//! ```text
//! engine `log`      `tend` evicts, one key at a time, so that the order of the groups is known
//! engine `memory`   whoever writes evicts: before each step room is made for the largest command, so that the step itself needs none
//! ```

use store::{EngineKind, Eviction, KeyRef, Prepared, Scope, Stop, StoreError, Usage};

use crate::model::{Effect, Entry, Name};
use crate::world::{Outcome, Trouble, World, names, never, violation};

/// What makes keys go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    pub policy: Eviction,
    /// 0: none.
    pub disk_limit_bytes: u64,
    /// 0: none.
    pub memory_limit_bytes: u64,
    /// Evictions of the open store that the model has heard of.
    pub noted: u64,
}

impl Pressure {
    /// Whether the policy lets `entry` go.
    fn spares(&self, entry: &Entry) -> bool {
        match self.policy {
            Eviction::NoEviction => true,
            Eviction::AllKeysLru | Eviction::AllKeysLfu | Eviction::AllKeysRandom => false,
            _ => entry.expiry.is_none(),
        }
    }

    /// Whether writers wait while keys go.
    pub fn holds_writers_back(&self) -> bool {
        self.policy != Eviction::NoEviction && self.disk_limit_bytes != 0
    }
}

impl World {
    /// A limit or a policy changes, or keys go.
    pub fn eviction_step(&mut self) -> Outcome<()> {
        match self.rng.below(8) {
            0 => self.set_policy(),
            1 | 2 if self.plan.engine == EngineKind::Log => self.set_disk_limit(),
            1 | 2 => self.set_memory_limit(),
            _ => self.evict_keys(1 + self.rng.clone().below(8)),
        }
    }

    fn set_policy(&mut self) -> Outcome<()> {
        self.pressure.policy = POLICIES[self.rng.index(POLICIES.len())];
        self.store().set_eviction(self.pressure.policy);
        // use is tracked from the store's next turn on
        self.evict_keys(1)
    }

    fn set_disk_limit(&mut self) -> Outcome<()> {
        let bytes = if self.rng.chance(1, 6) { 0 } else { 2_000 << self.rng.below(7) };
        self.pressure.disk_limit_bytes = bytes;
        self.store().set_disk_limit(bytes);
        self.evict_keys(4)
    }

    /// Sets policy and limit.
    pub fn limit_disk(&mut self, policy: Eviction, bytes: u64) -> Outcome<()> {
        (self.pressure.policy, self.pressure.disk_limit_bytes) = (policy, bytes);
        self.store().set_eviction(policy);
        self.store().set_disk_limit(bytes);
        self.evict_keys(1)
    }

    fn set_memory_limit(&mut self) -> Outcome<()> {
        let used_bytes = self.store().memory().used_bytes();
        let left_bytes = COMMAND_BYTES_MAX + self.rng.below(20_000);
        let bytes = if self.rng.chance(1, 6) { 0 } else { used_bytes + left_bytes };
        self.pressure.memory_limit_bytes = bytes;
        self.store().set_memory_limit(bytes);
        self.evict_keys(4)
    }

    /// The store's own turn, `times`; each evicts one key at most.
    pub fn evict_keys(&mut self, times: u64) -> Outcome<()> {
        for _ in 0..times {
            let first = self.store().newest_seq().0 + 1;
            self.store().tend(1);
            self.check_alive()?;
            let gone = self.note_evictions(first)?;
            if self.plan.engine == EngineKind::Log && gone.len() > 1 {
                return violation(format!("{} keys went in a turn for one", gone.len()));
            }
            let Some((db, key)) = gone.into_iter().next() else { continue };
            // who looks now waits for the removal
            if self.rng.chance(1, 3) {
                self.met.evictions_seen += 1;
                self.read_key(db, &key)?;
            }
        }
        Ok(())
    }

    /// Where writers evict: until the largest command of a step finds room, so that the model knows what went before it.
    pub fn make_memory_room(&mut self) -> Outcome<()> {
        if self.plan.engine != EngineKind::Memory || self.pressure.memory_limit_bytes == 0 {
            return Ok(());
        }
        loop {
            let (first, before) = (self.store().newest_seq().0 + 1, self.store().evicted_keys());
            match self.store().reserve_memory(COMMAND_BYTES_MAX, false) {
                Ok(_) | Err(Stop::Busy | Stop::Refused(StoreError::MemoryLimit { .. })) => {}
                Err(stop) => return violation(format!("memory is refused: {stop:?}")),
            }
            self.note_evictions(first)?;
            if self.store().evicted_keys() == before {
                return Ok(());
            }
        }
    }

    /// Whether a limit of the pressure is named by `error`.
    pub fn is_of_limit(&self, error: &StoreError) -> bool {
        match error {
            StoreError::DiskFull(_) => self.pressure.disk_limit_bytes != 0,
            StoreError::MemoryLimit { .. }
            | StoreError::StagedTooMuch { .. }
            | StoreError::TooMuchAtOnce { .. } => self.pressure.memory_limit_bytes != 0,
            _ => false,
        }
    }

    /// Whether there is a key that may go.
    fn may_go(&mut self) -> Outcome<bool> {
        let now = self.now()?;
        let mut entries = self.model.current().0.iter().flat_map(|keys| keys.values());
        Ok(entries.any(|entry| entry.is_alive(now) && !self.pressure.spares(entry)))
    }

    /// Whether the store may miss a key that may go: what a branch holds, or must stay, hides those of equal hash bits; a full disk takes no
    /// removal of what expired.
    fn may_miss(&self) -> bool {
        !self.model.current().1.is_empty() || self.plan.hash_bits < 128 || self.is_limited
    }

    /// A writer waits for evictions, or was refused because none was possible, as the store last saw: then it looks again. Keys go, or
    /// there is room by now, or what grows is refused rightly.
    pub fn evict_for_writer(&mut self) -> Outcome<()> {
        if self.plan.engine != EngineKind::Log {
            return Ok(());
        }
        let removed = |world: &Self| world.store().evicted_keys() + world.store().expired_keys();
        let before = removed(self);
        self.evict_keys(4)?;
        if removed(self) > before {
            return Ok(());
        }
        let mut outcome = self.put();
        for _ in 0..LOOKS_MAX {
            // the room of a key whose removal is not on disk yet is still to come: nothing goes for it, and nobody is refused
            if !matches!(outcome, Err(Trouble::Waits)) || self.may_go()? {
                break;
            }
            self.evict_keys(1)?;
            outcome = self.put();
        }
        match outcome {
            Err(Trouble::Waits | Trouble::Refused(_)) if self.may_miss() => Ok(()),
            Err(Trouble::Refused(error)) if self.is_of_limit(&error) && !self.may_go()? => Ok(()),
            Err(trouble @ (Trouble::Waits | Trouble::Refused(_))) => {
                violation(format!("nothing goes for a writer: {trouble:?}, {:?}", self.pressure))
            }
            outcome => outcome,
        }
    }

    /// Tells the model which keys went in effects from `first` on; returns them.
    fn note_evictions(&mut self, first: u64) -> Outcome<Vec<Name>> {
        let count = self.store().evicted_keys() - self.pressure.noted;
        let gone = self.missing_keys()?;
        if gone.len() as u64 != count {
            return violation(format!("evicted_keys grew by {count}, and these went: {gone:?}"));
        }
        let (now, current) = (self.now()?, self.model.current());
        for (db, key) in &gone {
            let entry = current.get(*db, key, now);
            if current.holder(*db, key).is_some() || entry.is_none_or(|entry| self.pressure.spares(entry)) {
                let (key, policy) = (key.escape_ascii(), self.pressure.policy);
                return violation(format!("db {db} {key} went under {policy:?}: {entry:?}"));
            }
        }
        self.pressure.noted += count;
        self.met.evicted_keys += count;
        let effects: Vec<Effect> = gone.iter().cloned().map(|(db, key)| Effect::Remove { db, key }).collect();
        if !effects.is_empty() {
            self.note(&effects);
            let newest = self.store().newest_seq().0;
            self.model.commit(first..=newest, effects);
        }
        Ok(gone)
    }

    /// What the model has and the store has not.
    fn missing_keys(&mut self) -> Outcome<Vec<Name>> {
        let (now, mut gone) = (self.now()?, Vec::new());
        for (db, keys) in (0..).zip(&self.model.current().0) {
            let listed = self.run(&[], 0, |access| names(access, db));
            let listed = match listed {
                // an error that struck once
                Err(Trouble::Refused(_)) => self.run(&[], 0, |access| names(access, db)),
                listed => listed,
            };
            let (names, _) = listed.map_err(never)?;
            let alive = keys.iter().filter(|(_, entry)| entry.is_alive(now)).map(|(key, _)| key);
            gone.extend(alive.filter(|key| !names.contains(key)).map(|key| (db, key.clone())));
        }
        Ok(gone)
    }

    /// `key` was read just now: its stamp must say so, if the policy has stamps.
    pub fn check_usage(&self, db: u16, key: &[u8]) -> Outcome<()> {
        let (prepared, keys) = (Prepared::default(), [KeyRef { db, key }]);
        let access = self.store().access(Scope::Keys(&keys), &prepared, 0);
        let usage = access.and_then(|access| access.usage(db, key));
        let fits = match (&usage, self.pressure.policy) {
            // it did not stay in memory
            (Err(Stop::Cold), _) => true,
            (Ok(Some(usage)), Eviction::AllKeysLru | Eviction::VolatileLru) => *usage == Usage::IdleMs(0),
            (Ok(Some(usage)), Eviction::AllKeysLfu | Eviction::VolatileLfu) => {
                matches!(usage, Usage::Frequency(_))
            }
            (usage, _) => matches!(usage, Ok(Some(Usage::Untracked))),
        };
        match fits {
            true => Ok(()),
            false => violation(format!(
                "db {db} {} was read, and is used {usage:?} under {:?}",
                key.escape_ascii(),
                self.pressure.policy
            )),
        }
    }
}

const POLICIES: [Eviction; 8] = [
    Eviction::NoEviction,
    Eviction::AllKeysLru,
    Eviction::AllKeysLfu,
    Eviction::AllKeysRandom,
    Eviction::VolatileLru,
    Eviction::VolatileLfu,
    Eviction::VolatileRandom,
    Eviction::VolatileTtl,
];

/// How often a writer looks again for whom nothing can go.
const LOOKS_MAX: u64 = 4;
/// More than any command of a step asks memory for.
const COMMAND_BYTES_MAX: u64 = 20 << 10;
