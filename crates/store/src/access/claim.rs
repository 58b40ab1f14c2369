//! Accesses of commands on thousands of keys: the keys are claimed, and their stripes are locked for one key at a time
//! (docs/adr/0017-commands-on-many-keys.md).
//!
//! ```text
//! claim, stripe by stripe -> handler, key by key -> resolve, key by key -> append -> apply, key by key -> count -> let go
//!                                                                      ^ others no longer read the keys
//! ```
//!
//! Invariants
//!   1. Whoever waits for a claim has none, so that no two wait for each other.
//!   2. From the append to the end of the last apply the housekeeping of the log rests: it never meets an effect that is in
//!      the log and not in the index.
//!   3. Nobody sees one change of the group before all of them are in the index.
//!
//! Out of scope: which commands are long, and the threads that run them (`server`).

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use journal::{Keyspace, LogAddress};

use super::Access;
use super::claim_waits::{ClaimReport, Claims};
use super::guards::{Guards, Scope};
use super::overlay::Staged;
use super::plan::{Old, Plan};
use crate::error::Stop;
use crate::hash::{KeyHash, STRIPES};
use crate::index::ahead::AHEAD_KEYS_MAX;
use crate::index::claims::{Claim, Slots};
use crate::index::stripe::{Seek, Stripe};
use crate::keyspaces::PREPARED_KEYSPACE;
use crate::locks::lock;
use crate::prepared::{Obstacle, Prepared};
use crate::sought::Sought;
use crate::staging::RECORD_DB;
use crate::{KeyRef, Store};
use collections::root::split_leaf_key;

/// Keys that this access has claimed; dropping it lets them go.
pub(super) struct Claimed<'s> {
    store: &'s Store,
    claim: Arc<Claim>,
    /// Stripes where it has a share.
    stripes: Vec<usize>,
    /// The hash of each key of the scope.
    hashes: Vec<KeyHash>,
}

impl Claimed<'_> {
    pub(super) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// The hash of each key of the scope.
    pub(super) fn hashes(&self) -> &[KeyHash] {
        &self.hashes
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        for number in &self.stripes {
            self.store.index.lock(*number).unclaim(&self.claim);
        }
        *lock(&self.store.claims.ended) += 1;
        self.store.claims.changed.notify_all();
        (self.store.options.hooks.on_credits)();
    }
}

impl Store {
    /// What became of claims so far.
    #[must_use]
    pub fn claim_report(&self) -> ClaimReport {
        let Claims { begun, waits, .. } = &self.claims;
        ClaimReport { claims: begun.load(Ordering::Relaxed), waits: waits.load(Ordering::Relaxed) }
    }

    /// Claims `keys`, waiting for other claims to end. For threads that may wait, with nothing locked and nothing claimed.
    pub(super) fn claim(&self, keys: &[KeyRef<'_>], writes: bool) -> Claimed<'_> {
        let hashes: Vec<KeyHash> = keys.iter().map(|key| self.hasher.hash(key.key)).collect();
        let slots = slots_of(keys, &hashes);
        self.claims.begun.fetch_add(1, Ordering::Relaxed);
        loop {
            let ended = *lock(&self.claims.ended);
            if let Some(mut claimed) = self.try_claim(&slots, writes) {
                claimed.hashes = hashes;
                return claimed;
            }
            self.claims.waits.fetch_add(1, Ordering::Relaxed);
            let now = lock(&self.claims.ended);
            drop(self.claims.changed.wait_while(now, |now| *now == ended));
        }
    }

    /// Claims in stripe order; gives up what it has when another claim is met.
    fn try_claim(&self, slots: &[(usize, Slots<u16>)], writes: bool) -> Option<Claimed<'_>> {
        let (claim, stripes) = (Claim::new(writes), Vec::with_capacity(slots.len()));
        let mut claimed = Claimed { store: self, claim, stripes, hashes: Vec::new() };
        for (number, of_stripe) in slots {
            let mut stripe = self.index.lock(*number);
            // With the first share in place no database gets another keyspace.
            let keyspaced =
                of_stripe.iter().filter_map(|(db, slots)| Some((self.keyspace_of(*db)?, Arc::clone(slots))));
            if !stripe.claim(&claimed.claim, keyspaced.collect()) {
                drop(stripe);
                return None;
            }
            claimed.stripes.push(*number);
        }
        Some(claimed)
    }

    /// The keyspace of `db`, or of the records of prepared branches.
    fn keyspace_of(&self, db: u16) -> Option<Keyspace> {
        if db == RECORD_DB { Some(PREPARED_KEYSPACE) } else { self.index.keyspace(db) }
    }

    /// Lets the journal's threads work for a moment: a large group may wait for a file of its own. The journal has whoever has no
    /// threads work by hand.
    pub(super) fn wait_for_room(&self) {
        self.offer();
        if !self.drive() && self.options.background {
            drop(self.claims.changed.wait_timeout(lock(&self.claims.ended), ROOM_RETRY));
        }
    }

    /// Rests the housekeeping of the log until the guard is dropped; nothing without a log.
    pub(super) fn rest_housekeeping(&self) -> Option<MutexGuard<'_, ()>> {
        self.log.as_ref().map(|(engine, _)| engine.apply_alone())
    }
}

impl Access<'_> {
    /// Whether the keys are claimed, not locked: then each must be [turned to](Access::turn_to) before it is looked up.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// From now on lookups keep no stripe locked, if the keys are claimed: what they find is copied. For a command that may work on large values
    /// for long. Keys that are [turned to](Access::turn_to_next) in order are locked all the same, one by one.
    pub fn look_briefly(&mut self) {
        if self.claim.is_some() {
            self.guards = Guards::none();
            self.copied.is_on = true;
        }
    }

    /// Whether this access has claimed `key`.
    pub(super) fn has_claimed(&self, KeyRef { db, key }: KeyRef<'_>) -> bool {
        let (Some(claimed), Some(keyspace)) = (&self.claim, self.store.index.keyspace(db)) else {
            return false;
        };
        let hash = self.store.hasher.hash(key);
        let stripe = self.at_stripe(hash.stripe());
        let has = |stripe: &Stripe| {
            stripe.locks.as_ref().is_some_and(|locks| locks.has_claim(claimed.claim(), keyspace, hash))
        };
        stripe.is_ok_and(|stripe| has(&stripe))
    }

    /// Stripe `number`, to read: locked by the scope, or for a moment.
    pub(super) fn at_stripe(&self, number: usize) -> Result<AtStripe<'_>, Stop> {
        match self.guards.stripe(number) {
            Ok(stripe) => Ok(AtStripe::Held(stripe)),
            Err(_) if self.copied.is_on => Ok(AtStripe::Moment(self.store.index.lock_after_others(number))),
            Err(stop) => Err(stop),
        }
    }

    /// Locks the stripes of `keys`, and lets those go that were locked before. Does nothing unless the keys are claimed.
    pub fn turn_to(&mut self, keys: &[KeyRef<'_>]) {
        if self.claim.is_none() {
            return;
        }
        if self.reads_here() {
            return self.forget_copied();
        }
        match keys {
            [key] if self.prepared().stripes().is_empty() => {
                self.turn_to_stripe(self.store.hasher.hash(key.key).stripe());
            }
            keys => {
                self.guards = Guards::none();
                self.guards = Guards::lock(self.store, Scope::Keys(keys), self.prepared());
            }
        }
        self.warm(keys);
    }

    /// Forgets what lookups have copied.
    pub(super) fn forget_copied(&mut self) {
        let bytes = self.copied.clear();
        self.give_back(bytes);
    }

    /// Makes hot what was read of `keys`, whose stripes are locked.
    pub(super) fn warm(&mut self, keys: &[KeyRef<'_>]) {
        if self.prepared().has_records() && !self.reads_here() {
            let prepared = self.late.as_deref().unwrap_or(self.prepared);
            self.guards.warm_all(self.store, Scope::Keys(keys), prepared);
        }
    }

    /// Claims `key`, too, if nobody else has: returns whether it may be turned to from now on. It never waits, for whoever has a claim must
    /// not.
    pub fn claim_more(&mut self, key: KeyRef<'_>) -> bool {
        self.guards = Guards::none();
        let Some(claimed) = &mut self.claim else { return false };
        let Some(keyspace) = self.store.keyspace_of(key.db) else { return true };
        let hash = self.store.hasher.hash(key.key);
        let number = hash.stripe();
        let is_claimed = self.store.index.lock(number).claim_more(&claimed.claim, keyspace, hash.slot());
        if is_claimed && !claimed.stripes.contains(&number) {
            claimed.stripes.push(number);
        }
        is_claimed
    }

    /// Reads here what lookups of `keys` have missed, for whoever may wait: where the keys are claimed no stripe is locked meanwhile. What was read
    /// takes the place of what was prepared, until [`Access::forget_read`].
    pub fn read_missed(&mut self, keys: &[KeyRef<'_>]) {
        if self.claim.is_some() {
            self.guards = Guards::none();
        }
        let wanted = self.wanted.take();
        let late = self.late.get_or_insert_with(|| {
            let mut late = Box::<Prepared>::default();
            late.count_in(self.store.memory.ledger(), self.store.memory.read_bytes_max());
            late
        });
        self.store.read_wanted(wanted, late);
        if self.claim.is_none() {
            return self.guards.warm_leaves(self.store, late);
        }
        let mut guards = Guards::lock(self.store, Scope::Keys(keys), late);
        guards.warm_all(self.store, Scope::Keys(keys), late);
        guards.warm_leaves(self.store, late);
    }

    /// Forgets what was read here: the command has run that needed it. What is to stay in memory is in the index.
    pub fn forget_read(&mut self) {
        if self.claim.is_some() {
            self.late = None;
        }
    }

    /// Prefetches what lookups of `keys` read: at most [`Access::NEAR_KEYS_MAX`], soon to be turned to.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = KeyRef<'k>>) {
        let index = &self.store.index;
        let known = keys.filter_map(|key| Some((index.keyspace(key.db)?, self.store.hasher.hash(key.key))));
        self.near(known);
    }

    /// Keys that are prefetched together.
    pub const NEAR_KEYS_MAX: usize = AHEAD_KEYS_MAX;

    pub(super) fn near(&self, keys: impl Iterator<Item = (Keyspace, KeyHash)>) {
        let (mut list, mut count) = ([(Keyspace::NONE, KeyHash(0)); AHEAD_KEYS_MAX], 0);
        for key in keys.take(AHEAD_KEYS_MAX) {
            list[count] = key;
            count += 1;
        }
        self.store.index.prefetch(&list[..count]);
    }

    /// Lets others at the stripe that is locked, and prefetches what it holds: what is locked is passed by.
    pub(super) fn let_go(&mut self) {
        self.guards = Guards::none();
    }

    /// Locks stripe `number`, after those who wait for it.
    pub(super) fn turn_after_others(&mut self, number: usize) {
        drop(self.store.index.lock_after_others(number));
        self.turn_to_stripe(number);
    }

    /// Locks stripe `number` alone, if the keys are claimed.
    pub(super) fn turn_to_stripe(&mut self, number: usize) {
        if self.claim.is_none() || self.guards.is_one(number) {
            return;
        }
        // never two at once: they would not be in order
        self.guards = Guards::none();
        self.guards = Guards::one(self.store, number);
    }

    /// Turns to change number `at`; brings those behind it near.
    pub(super) fn turn_to_change(&mut self, at: usize) {
        if self.claim.is_none() {
            return;
        }
        if at.is_multiple_of(AHEAD_KEYS_MAX) {
            self.let_go();
            let end = self.overlay.len().min(at + AHEAD_KEYS_MAX);
            self.near((at..end).map(|at| {
                let staged = self.overlay.get(at);
                (staged.keyspace, staged.hash)
            }));
            self.turn_after_others(self.overlay.get(at).hash.stripe());
        }
        self.turn_to_stripe(self.overlay.get(at).hash.stripe());
    }

    /// As [`Access::turn_to_change`], while the changes are taken out: to `staged`, before those of `rest`.
    pub(super) fn turn_to_taken(&mut self, at: usize, staged: &Staged, rest: &[Staged]) {
        if self.claim.is_none() {
            return;
        }
        if at.is_multiple_of(AHEAD_KEYS_MAX) {
            self.let_go();
            let taken = std::iter::once(staged).chain(rest);
            self.near(taken.map(|staged| (staged.keyspace, staged.hash)));
            self.turn_after_others(staged.hash.stripe());
        }
        self.turn_to_stripe(staged.hash.stripe());
    }

    /// Stops if another command has claimed a key that this one would read, or (`writes`) change.
    #[cold]
    pub(super) fn check_claim(
        &self,
        stripe: &Stripe,
        keyspace: Keyspace,
        hash: KeyHash,
        writes: bool,
    ) -> Result<(), Stop> {
        let own = self.claim.as_ref().map(Claimed::claim);
        let claimed =
            stripe.locks.as_ref().is_some_and(|locks| locks.is_claimed(keyspace, hash, writes, own));
        if !claimed {
            return Ok(());
        }
        self.wanted.borrow_mut().meet(Obstacle::Claim { keyspace, hash, writes });
        Err(self.held_back())
    }

    /// Stops if anything is claimed: a database would get another keyspace.
    pub(super) fn check_no_claims(&self) -> Result<(), Stop> {
        let has_claims = |stripe: &Stripe| stripe.locks.as_ref().is_some_and(|locks| locks.has_claims());
        let claimed = self.guards.everything()?.iter().any(|(_, stripe)| has_claims(stripe));
        if claimed { Err(self.held_back()) } else { Ok(()) }
    }

    fn held_back(&self) -> Stop {
        self.store.claims.waits.fetch_add(1, Ordering::Relaxed);
        Stop::Busy
    }

    /// What the change `staged` meets now that others had the stripe since it was planned: the key's state is the same, but it
    /// may have been evicted, or its record may lie elsewhere. Records that decide are read without a lock.
    pub(super) fn planned_anew(&mut self, staged: &Staged, plan: Plan) -> Plan {
        let key = staged.object().view().key();
        let is_read_in_parts =
            split_leaf_key(key).is_some_and(|(object, _)| self.store.snapshots.has(object));
        self.read_anew = None;
        loop {
            self.turn_to_stripe(staged.hash.stripe());
            let stripe = self.guards.stripe(staged.hash.stripe()).expect("just locked");
            let found = stripe.seek(staged.keyspace, staged.hash, key, self.prepared_anew());
            let missed = match found {
                // whoever reads it in parts needs it as it was
                Seek::At { word, whole: false, .. } if is_read_in_parts => {
                    vec![Sought::base(word.address(), staged.keyspace, staged.hash)]
                }
                Seek::At { spot, word, current, .. } => {
                    let mut old = Old::of(spot, word.address(), current);
                    // as it was logged
                    old.since = plan.old.map_or(old.since, |planned| planned.since);
                    return Plan { old: Some(old), ..plan };
                }
                Seek::Absent { .. } => return Plan { old: None, ..plan },
                Seek::Damaged { own, .. } => {
                    let space = stripe.space(staged.keyspace);
                    let is_it = |address: LogAddress| plan.old.is_some_and(|old| old.address == address);
                    let spot = own.or_else(|| space?.spot_at(staged.hash, is_it));
                    let old = spot
                        .zip(space)
                        .map(|(spot, space)| Old::unreadable(spot, space.table.word(spot).address()));
                    return Plan { old, ..plan };
                }
                Seek::Unknown(records) => records,
            };
            match stripe.space(staged.keyspace).filter(|_| is_read_in_parts) {
                Some(space) => self.miss_all(space, missed),
                None => self.miss(missed),
            };
            self.guards = Guards::none();
            let wanted = self.wanted.take();
            self.store.read_wanted(wanted, self.read_anew.get_or_insert_default());
        }
    }

    /// What was read for the change that is applied, or else for the command.
    fn prepared_anew(&self) -> &Prepared {
        self.read_anew.as_deref().unwrap_or_else(|| self.prepared())
    }
}

/// A stripe that may be read.
pub(super) enum AtStripe<'a> {
    Held(&'a Stripe),
    Moment(MutexGuard<'a, Stripe>),
}

impl Deref for AtStripe<'_> {
    type Target = Stripe;

    fn deref(&self) -> &Stripe {
        match self {
            Self::Held(stripe) => stripe,
            Self::Moment(stripe) => stripe,
        }
    }
}

/// A long command asks for room again after this.
const ROOM_RETRY: Duration = Duration::from_millis(3);

/// The slots of `keys` by stripe, in order.
fn slots_of(keys: &[KeyRef<'_>], hashes: &[KeyHash]) -> Vec<(usize, Slots<u16>)> {
    let mut by_stripe: Vec<Vec<(u16, u64)>> = vec![Vec::new(); STRIPES];
    for (key, hash) in keys.iter().zip(hashes) {
        by_stripe[hash.stripe()].push((key.db, hash.slot()));
    }
    let filled = by_stripe.into_iter().enumerate().filter(|(_, of_stripe)| !of_stripe.is_empty());
    let sorted = filled.map(|(number, mut of_stripe)| {
        of_stripe.sort_unstable();
        of_stripe.dedup();
        let of_db = of_stripe.chunk_by(|a, b| a.0 == b.0);
        let slots = of_db.map(|part| (part[0].0, part.iter().map(|(_, slot)| *slot).collect()));
        (number, slots.collect())
    });
    sorted.collect()
}
