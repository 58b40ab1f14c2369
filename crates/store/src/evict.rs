//! Eviction: which keys go when there is no room for more, as `maxmemory-policy` says.
//!
//! ```text
//! engine `memory`   beyond 15/16 of `memory.limit`: whoever writes evicts a few keys first, as many as its value needs
//! engine `log`      values leave memory first (`memory`); keys go when what lives, times the log's largest ratio, is beyond
//!                   15/16 of `store.disk_limit`, or slots alone fill memory: on the store's own thread, which may read keys
//! ```
//!
//! Nothing is listed: a victim is the best of a sample, about [`SAMPLE_KEYS`] keys of one page of the index, or of the next ones that
//! have an expiry. While the policy needs it, a stamp of 4 bytes beside each slot says when and how often its key was used.
//!
//! An eviction is a logged removal like any other: who finds the key gone waits for it, and it stays gone after a crash.
//!
//! Invariants
//!   1. Nobody who evicts holds a stripe.
//!   2. One command evicts at most [`EVICTIONS_MAX`] keys before it lets others have a turn.
//!
//! Source: Redis's approximated LRU and LFU (a sample instead of a list; a logarithmic counter that decays by the minute).
//! Out of scope: values that leave memory and stay on disk (`memory`), expiry (`tend`).

pub(crate) mod policy;

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use journal::Keyspace;

use crate::access::Scope;
use crate::error::{Stop, StoreError};
use crate::hash::{KeyHash, STRIPES};
use crate::index::expiry::{Expiry, ExpiryEntry};
use crate::index::stripe::{Current, Space, Stripe};
use crate::index::table::Spot;
use crate::keyspaces::{is_leaves, is_own};
use crate::large::Large;
use crate::memory::ASKED_SHARE;
use crate::prepared::Prepared;
use crate::record;
use crate::sought::Sought;
use crate::{KeyRef, Store};
use collections::Moment;
use policy::{Eviction, Tracking};

/// What became of an eviction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// A key went.
    Went,
    /// Those that were found are held, have changed, cannot go now, or are gone and on their way to the disk.
    Stayed,
    /// No key may go.
    NoVictim,
}

/// A key that may go.
struct Victim {
    rank: u64,
    keyspace: Keyspace,
    hash: KeyHash,
    /// What says that it has an expiry, under policies of keys that have one. A restart may leave entries that no key has any more.
    entry: Option<ExpiryEntry>,
    name: Name,
}

enum Name {
    /// It is in memory.
    Key(Box<[u8]>),
    /// The record that has the key.
    Cold(Sought),
}

/// The best victim of one stripe, while that is locked.
struct Sample<'a> {
    stripe: &'a Stripe,
    never_evicted: fn(&[u8]) -> bool,
    number: usize,
    moment: Moment,
    /// The best rank so far, of this stripe or others.
    rank: Option<u64>,
    best: Option<Best>,
    /// Keys that were looked at.
    seen: usize,
    /// Some of them are gone already: their removals are on their way to the disk.
    has_leaving: bool,
    /// Entries of expiries without a slot: a restart leaves some.
    stale: Vec<(Keyspace, ExpiryEntry)>,
}

/// The slot of the best victim.
#[derive(Clone, Copy)]
struct Best {
    keyspace: Keyspace,
    hash: KeyHash,
    spot: Spot,
    entry: Option<ExpiryEntry>,
}

impl Store {
    /// Makes all tables track what the policy needs.
    pub(crate) fn track_use(&self) {
        let wanted = self.evictor.policy().tracking();
        let mut tracked = self.evictor.tracked.lock().unwrap_or_else(PoisonError::into_inner);
        if *tracked == wanted {
            return;
        }
        let now_ms = self.now().server_ms();
        for number in 0..STRIPES {
            let mut stripe = self.index.lock(number);
            stripe.track(wanted, now_ms);
            self.index.account(stripe.take_unreported());
        }
        *tracked = wanted;
    }

    /// Evicts keys before `bytes` are added, where memory is all there is. Returns whether more must go than one command may
    /// evict: then it is to come again.
    pub(crate) fn evict_for(&self, bytes: u64) -> bool {
        let policy = self.evictor.policy();
        if policy == Eviction::NoEviction || self.engine.has_addresses() || !self.engine_keeps() {
            return false;
        }
        let memory = self.memory();
        // whoever makes much asks for it while he does, and finds no more than this
        let is_much = bytes >= Large::BYTES_MIN as u64;
        let kept_bytes = if is_much { memory.limit_bytes / ASKED_SHARE } else { 0 };
        let most_bytes = memory.limit_bytes - kept_bytes;
        if memory.limit_bytes == 0 || bytes > most_bytes.saturating_sub(memory.reported_bytes) {
            return false;
        }
        let mut evicted = 0;
        loop {
            let fits = self.memory().used_bytes().saturating_add(bytes) <= most_bytes;
            let most = match fits {
                true if self.memory.has_room(self.accounts(), 0) => return false,
                true => EVICTIONS_FEW,
                false => EVICTIONS_MAX,
            };
            if evicted >= most {
                return !fits;
            }
            if self.evict_one(policy) != Outcome::Went {
                return false;
            }
            evicted += 1;
        }
    }

    /// Evicts at most `budget` keys while there is too little room; returns whether there still is. Blocks on reads.
    pub(crate) fn evict_some(&self, budget: usize) -> bool {
        let policy = self.evictor.policy();
        if policy == Eviction::NoEviction || !self.engine_keeps() {
            return false;
        }
        for _ in 0..budget {
            let outcome = if self.is_short() { Some(self.evict_one(policy)) } else { None };
            self.evictor.is_stuck.store(outcome == Some(Outcome::NoVictim), Ordering::Relaxed);
            if outcome != Some(Outcome::Went) {
                return false;
            }
        }
        true
    }

    /// Whether keys must go.
    fn is_short(&self) -> bool {
        if self.memory.has_room(self.accounts(), 0) {
            return self.is_disk_short(16, 15);
        }
        !self.engine.has_addresses() || self.is_disk_short(16, 15) || self.is_full_without_values()
    }

    /// Whether memory would have too little room even if all values had left it.
    fn is_full_without_values(&self) -> bool {
        let memory = self.memory();
        let values_bytes = self.census().hot_bytes + memory.large_bytes + memory.journal_bytes;
        memory.used_bytes().saturating_sub(values_bytes) > memory.limit_bytes - memory.limit_bytes / 16
    }

    /// Whether what lives may come to more on disk than `share` of `of` parts of the limit.
    fn is_disk_short(&self, of: u64, share: u64) -> bool {
        let Some((engine, _)) = &self.log else { return false };
        let limit_bytes = match self.evictor.disk_limit_bytes.load(Ordering::Relaxed) {
            0 => engine.room().map_or(u64::MAX, |room| room.taken_bytes.saturating_add(room.available_bytes)),
            limit_bytes => limit_bytes,
        };
        // without a bound of the log it is cleaned all the same
        let ratio_percent = self.options.space_ratio_max_percent.max(UNBOUND_RATIO_PERCENT);
        engine.all_live_bytes() / 100 * ratio_percent > limit_bytes / of * share
    }

    /// Refuses growth beyond `store.disk_limit`; holds it back while keys are evicted for it.
    pub(crate) fn admit_to_disk(&self) -> Result<(), Stop> {
        let limit_bytes = self.evictor.disk_limit_bytes.load(Ordering::Relaxed);
        if limit_bytes == 0 || !self.is_disk_short(64, 61) {
            return Ok(());
        }
        let evicts = self.evictor.policy() != Eviction::NoEviction;
        if evicts {
            self.tender.wake();
        }
        if !self.is_disk_short(1, 1) {
            return Ok(());
        }
        if evicts && !self.evictor.is_stuck.load(Ordering::Relaxed) {
            return Err(Stop::Busy);
        }
        let text = format!("disk full: the log may come to more than store.disk_limit ({limit_bytes} B)");
        Err(Stop::Refused(StoreError::DiskFull(text)))
    }

    fn evict_one(&self, policy: Eviction) -> Outcome {
        for _ in 0..TRIES_MAX {
            match self.victim(policy) {
                Ok(victim) if self.evict(policy, &victim) => {
                    // leaves are most of what a large one takes: its room counts before another goes
                    self.sweep_some();
                    return Outcome::Went;
                }
                Err(Outcome::NoVictim) => return Outcome::NoVictim,
                Ok(_) | Err(_) => {}
            }
        }
        Outcome::Stayed
    }

    /// The best of a sample, or why there is none.
    fn victim(&self, policy: Eviction) -> Result<Victim, Outcome> {
        let (dice, moment) = (self.random(), self.now());
        let (mut victim, mut seen, mut has_leaving): (Option<Victim>, _, _) = (None, 0, false);
        for number in (0..STRIPES).map(|n| (dice as usize + n) % STRIPES) {
            let mut stripe = self.index.lock(number);
            let rank = victim.as_ref().map(|victim| victim.rank);
            let mut sample = Sample {
                stripe: &stripe,
                never_evicted: self.options.never_evicted,
                number,
                moment,
                rank,
                best: None,
                seen,
                has_leaving,
                stale: vec![],
            };
            for (keyspace, space) in stripe.spaces() {
                if is_own(keyspace) || is_leaves(keyspace) || !self.index.lives(keyspace) {
                    continue;
                }
                match policy {
                    Eviction::VolatileTtl => sample.soonest(keyspace, space),
                    _ if policy.is_volatile() => sample.expiring(keyspace, space, dice),
                    _ => sample.any(keyspace, space, dice),
                }
            }
            (seen, has_leaving) = (sample.seen, sample.has_leaving);
            let stale = std::mem::take(&mut sample.stale);
            victim = sample.victim().or(victim);
            stale.into_iter().for_each(|(keyspace, entry)| stripe.drop_stale(keyspace, entry));
            if seen >= SAMPLE_KEYS {
                break;
            }
        }
        victim.ok_or(if has_leaving { Outcome::Stayed } else { Outcome::NoVictim })
    }

    /// Whether the victim went.
    fn evict(&self, policy: Eviction, victim: &Victim) -> bool {
        let Some(db) = self.index.database(victim.keyspace) else { return false };
        let mut prepared = Prepared::default();
        let key: Box<[u8]> = match &victim.name {
            Name::Key(key) => key.clone(),
            Name::Cold(sought) => {
                let read = self.engine.read(sought);
                if read.is_err() {
                    self.engine.on_damaged(sought.address);
                }
                let Ok(key) = read.as_ref().map(|fetched| fetched.key.clone()) else { return false };
                prepared.supply(sought, read);
                key
            }
        };
        let keys = [KeyRef { db, key: &key }];
        let Ok(mut access) = self.access(Scope::Keys(&keys), &prepared, 0) else { return false };
        if (self.options.never_evicted)(&key) {
            // It counts as used: otherwise it were the best of its sample for ever.
            let _ = access.touch(db, &key);
            return false;
        }
        let removed = || self.expired_keys() + self.evicted_keys();
        let removed_before = removed();
        match access.meta(db, &key) {
            // its time had come: the commit says so
            Ok(None) => {}
            Ok(Some(meta)) if policy.is_volatile() && meta.expiry.is_none() => {
                drop(access);
                self.forget_stale(victim, &prepared);
                return false;
            }
            Ok(Some(_)) if matches!(access.evict(db, &key), Ok(true)) => {}
            _ => return false,
        }
        match access.commit() {
            // without room in the journal one whose time had come stays for now
            Ok(_) => removed() > removed_before,
            Err(Stop::Refused(error) | Stop::Damaged(error)) => {
                tracing::warn!(%error, "a key cannot be evicted");
                false
            }
            // it changed meanwhile, somebody holds it, or the journal has no room now
            Err(Stop::Cold | Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Locked(_)) => false,
        }
    }

    /// Drops the entry by which `victim` was found if no key has it: else the same key, unused, were the best of its sample for ever.
    fn forget_stale(&self, victim: &Victim, prepared: &Prepared) {
        if let Some(entry) = victim.entry {
            self.expired_candidates(victim.keyspace, victim.hash, entry, prepared);
        }
    }
}

impl Sample<'_> {
    /// Looks at the slots around some hash bits.
    fn any(&mut self, keyspace: Keyspace, space: &Space, dice: u64) {
        let (from, enough) = (dice >> 32 << 32, self.seen + SAMPLE_KEYS);
        let (mut at, mut has_wrapped) = (Some(from), false);
        while self.seen < enough {
            let Some(bits) = at.filter(|bits| !has_wrapped || *bits < from) else {
                if has_wrapped {
                    return;
                }
                (at, has_wrapped) = (Some(0), true);
                continue;
            };
            at = space.table.visit_page(bits, &mut |spot, tag, slot| {
                let hash = KeyHash::from_parts(self.number, slot.bits(), tag);
                let chance = dice ^ slot.bits().wrapping_mul(u64::from(tag) | 1);
                let rank = self.rank_of(space, spot, chance);
                self.offer(space, Best { keyspace, hash, spot, entry: None }, rank);
            });
        }
    }

    /// Looks at the next keys that have an expiry.
    fn expiring(&mut self, keyspace: Keyspace, space: &Space, dice: u64) {
        let Expiry { hand, .. } = &space.expiry;
        let next = space.expiry.after(hand.get()).chain(space.expiry.after(None));
        let most = SAMPLE_EXPIRIES.min(space.expiry.len() as usize);
        for (entry, _) in next.take(most) {
            hand.set(Some(entry));
            let chance = dice ^ entry.hash(self.number).bits();
            self.offer_entry(keyspace, space, entry, |sample, spot| sample.rank_of(space, spot, chance));
        }
    }

    /// Looks at the keys that expire first.
    fn soonest(&mut self, keyspace: Keyspace, space: &Space) {
        for entries in space.expiry.each_clock() {
            for entry in entries.take(SAMPLE_EXPIRIES) {
                let rank = u64::MAX - self.moment.server_ms_of(entry.deadline);
                if self.offer_entry(keyspace, space, entry, |_, _| rank) {
                    // it stands for those behind it
                    self.seen += SAMPLE_KEYS / SAMPLE_EXPIRIES - 1;
                    break;
                }
            }
        }
    }

    /// Offers the keys that `entry` may be of; returns whether there are any.
    fn offer_entry(
        &mut self,
        keyspace: Keyspace,
        space: &Space,
        entry: ExpiryEntry,
        rank: impl Fn(&Self, Spot) -> u64,
    ) -> bool {
        let hash = entry.hash(self.number);
        let mut has_slot = false;
        for spot in space.table.candidates(hash) {
            has_slot = true;
            // a hash that has deadlines of fields alone is kept; one that is not in memory is not known to be one
            let object = space.table.word(spot).object();
            let times = object.and_then(|object| Current::Hot(object).times());
            if times.is_some_and(|times| times.own == 0) {
                continue;
            }
            let rank = rank(self, spot);
            self.offer(space, Best { keyspace, hash, spot, entry: Some(entry) }, rank);
        }
        self.stale.extend((!has_slot).then_some((keyspace, entry)));
        has_slot
    }

    /// By use, or by chance where that is not tracked.
    fn rank_of(&self, space: &Space, spot: Spot, chance: u64) -> u64 {
        let stamped = space.table.stamp(spot);
        let used =
            |(tracking, stamp): (Tracking, &Cell<u32>)| tracking.rank(stamp.get(), self.moment.server_ms());
        stamped.map_or(chance, used)
    }

    fn offer(&mut self, space: &Space, offered: Best, rank: u64) {
        self.seen += 1;
        if self.rank.is_some_and(|best| best >= rank) {
            return;
        }
        let Best { keyspace, hash, spot, .. } = offered;
        let is_removed = || space.table.word(spot).object().is_some_and(|it| it.kind() == record::REMOVED);
        let is_kept_back =
            || space.table.word(spot).object().is_some_and(|it| (self.never_evicted)(it.key()));
        let is_held = || self.stripe.locks.as_ref().is_some_and(|locks| locks.has_slot(keyspace, hash));
        if is_removed() {
            self.has_leaving = true;
        } else if !is_held() && !is_kept_back() {
            (self.rank, self.best) = (Some(rank), Some(offered));
        }
    }

    /// The best of this stripe, if it is better than those before.
    fn victim(self) -> Option<Victim> {
        let Best { keyspace, hash, spot, entry } = self.best?;
        let word = self.stripe.space(keyspace)?.table.word(spot);
        let name = match word.object() {
            Some(object) => Name::Key(object.key().into()),
            None => Name::Cold(Sought::base(word.address(), keyspace, hash)),
        };
        Some(Victim { rank: self.rank?, keyspace, hash, entry, name })
    }
}

/// Keys that are looked at for one victim, about.
const SAMPLE_KEYS: usize = 64;
/// Of them, those with an expiry of one stripe; and the stripes of which the key that expires first is looked at.
const SAMPLE_EXPIRIES: usize = 16;
/// Victims that turn out to be held, or to have changed, before it is given up for now.
const TRIES_MAX: usize = 4;
/// Keys that a command evicts, beyond those that it needs the room of, while memory is above its watermark.
const EVICTIONS_FEW: usize = 16;
/// Keys that one command evicts: a few milliseconds.
const EVICTIONS_MAX: usize = 1_024;
/// Log to live data at which cleaning runs at full speed.
const UNBOUND_RATIO_PERCENT: u64 = 170;

#[cfg(test)]
mod tests;
