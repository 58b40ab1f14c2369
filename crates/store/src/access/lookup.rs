//! Looking a key up: first among the staged effects, then in its stripe, with what was read of it.
//!
//! Invariants
//!   1. Whatever an answer depends on is noted by its seq (`look`), so that the ticket covers it.
//!   2. What is missing is noted once for the whole access (`miss`), and the lookup ends with [`Stop::Cold`].
//!   3. A key whose time has come is absent, and its removal is noted.
//!
//! Out of scope: what commands see of a key (`reading`), how stripes find it (`index`).

use collections::{Deadline, Times};
use journal::{Keyspace, Seq};

use super::copied::Copied;
use super::overlay::{Cause, Change, KeyPlace, Staged};
use super::state::State;
use super::{Access, COUNTS_MAX};
use crate::error::Stop;
use crate::hash::KeyHash;
use crate::index::stripe::{Current, Seek, Space, Stripe};
use crate::object::ObjectRef;
use crate::prepared::Prepared;
use crate::record;
use crate::sought::Sought;
use crate::watch::Watch;

impl<'s> Access<'s> {
    /// What `look` misses is read for what is known of keys: large strings are not kept. Only where others wait, since a command that needs one
    /// after all goes on elsewhere from there.
    pub(super) fn for_state<T>(&self, look: impl FnOnce() -> T) -> T {
        let before = self.looks_at_state.replace(self.effort.is_bounded() && !self.keeps_values);
        let found = look();
        self.looks_at_state.set(before);
        found
    }

    pub(super) fn without_use<T>(&self, look: impl FnOnce() -> T) -> T {
        let touches = self.touches.replace(false);
        let found = look();
        self.touches.set(touches);
        found
    }

    #[inline]
    pub(super) fn find(&self, db: u16, key: &[u8]) -> Result<Option<State<'_>>, Stop> {
        if !self.store.engine_keeps() {
            return Ok(None);
        }
        let Some(place) = self.place(db, key) else { return Ok(None) };
        self.lookup(place)
    }

    /// The key's state as this access sees it, without expired ones.
    #[inline]
    pub(super) fn lookup(&self, place: KeyPlace<'_>) -> Result<Option<State<'_>>, Stop> {
        self.lookup_into(&self.copied, place)
    }

    /// As [`Access::lookup`]; what has to be copied is kept in `copied`.
    #[inline]
    pub(super) fn lookup_into<'a>(
        &'a self,
        copied: &'a Copied,
        place: KeyPlace<'_>,
    ) -> Result<Option<State<'a>>, Stop> {
        if !self.store.engine_keeps() {
            return Ok(None);
        }
        let KeyPlace { keyspace, hash, key, .. } = place;
        if let Some(staged) = self.overlay.find(keyspace, hash, key) {
            return Ok(match &staged.change {
                Change::Put(object) | Change::Delta { object, .. } => Some(State::staged(object)),
                Change::Remove(_) => None,
            });
        }
        if self.counted.is_some()
            && let Some(staged) = self.find_counted(keyspace, hash, key)?
        {
            return Ok(Some(State::staged(staged.object())));
        }
        self.lookup_there(copied, place)
    }

    /// As [`Access::lookup_into`], whatever is staged.
    #[inline]
    pub(super) fn lookup_there<'a>(
        &'a self,
        copied: &'a Copied,
        place: KeyPlace<'_>,
    ) -> Result<Option<State<'a>>, Stop> {
        match self.guards.stripe(place.hash.stripe()) {
            Ok(stripe) => self.lookup_in(stripe, self.prepared(), place),
            Err(_) if self.reads_here() => self.lookup_briefly(copied, place),
            Err(stop) => Err(stop),
        }
    }

    /// The key's state in its stripe, with what was read of it.
    #[inline]
    pub(super) fn lookup_in<'a>(
        &'a self,
        stripe: &'a Stripe,
        prepared: &'a Prepared,
        place: KeyPlace<'_>,
    ) -> Result<Option<State<'a>>, Stop> {
        let KeyPlace { db, keyspace, hash, key } = place;
        if stripe.locks.is_some() {
            self.check_claim(stripe, keyspace, hash, false)?;
        }
        let Some(space) = stripe.space(keyspace) else { return Ok(None) };
        let (spot, word, current, whole) = match space.hot(hash, key) {
            Some((spot, object)) => {
                let word = space.table.word(spot);
                word.refer();
                (spot, word, Current::Hot(object), true)
            }
            None => match space.seek(keyspace, hash, key, prepared) {
                Seek::Absent { .. } => return Ok(None),
                Seek::At { spot, word, current, whole, .. } => (spot, word, current, whole),
                Seek::Unknown(records) => return Err(self.miss_all(space, records)),
                Seek::Damaged { error, .. } => return Err(Stop::Damaged(error)),
            },
        };
        self.look(current.seq());
        if current.is_removed() {
            return Ok(None);
        }
        if !whole && space.may_be_timed(word, current) {
            return Err(self.miss_all(space, vec![Sought::base(word.address(), keyspace, hash)]));
        }
        let times = current.times();
        if self.is_over(current, times) {
            self.note_expired(Staged {
                db,
                keyspace,
                hash,
                change: Change::removal(key),
                cause: Cause::Expired,
            });
            return Ok(None);
        }
        if !whole {
            return Err(self.miss_all(space, vec![Sought::base(word.address(), keyspace, hash)]));
        }
        if self.touches.get() {
            space.table.touch(spot, self.now.server_ms());
        }
        let state = State::timed(current, times);
        // others may hold a large value: it is never overwritten
        let may_overwrite = state.object.is_some() && state.value.large().is_none();
        let state = State { deltas: space.deltas_on(word), spot: may_overwrite.then_some(spot), ..state };
        match times {
            Some(times) if Self::has_passed(times, self.passed_for(current.seq())) => {
                Ok(self.purge(place, current, state))
            }
            _ => Ok(Some(state)),
        }
    }

    /// Whether the key's own time has come. Of a hash whose value is not here nobody knows whose time it is that has.
    pub(super) fn is_over(&self, current: Current<'_>, times: Option<Times>) -> bool {
        let own = times.map_or_else(|| current.expiry(), |times| Deadline::of(times.own));
        let is_known = || current.kind() != record::HASH || current.has_value();
        own.is_some() && is_known() && self.expires_by_now(own, current.seq())
    }

    /// Refuses what needs a value that was left out of the read.
    pub(super) fn check_value(&self, state: &State<'_>) -> Result<(), Stop> {
        if state.has_value { Ok(()) } else { Err(self.too_much_read(self.prepared().values_bytes_max())) }
    }

    /// Whether a command of this access has stored `key`.
    pub(super) fn is_stored(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> bool {
        self.overlay.find(keyspace, hash, key).is_some_and(|staged| staged.cause == Cause::Command)
    }

    /// Whether a damaged record is `key`'s.
    pub(super) fn owns_damage(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Result<bool, Stop> {
        let stripe = self.at_stripe(hash.stripe())?;
        let found = stripe.seek(keyspace, hash, key, self.prepared());
        Ok(matches!(found, Seek::Damaged { own: Some(_), .. }))
    }

    /// Whether a change of this state may be a small record on top of what lies in the log.
    pub(super) fn takes_delta(&self, state: &State<'_>) -> bool {
        let deltas_max = || if self.was_read(state) { DELTAS_READ_MAX } else { state.deltas_max() };
        !state.staged && self.store.engine.has_addresses() && state.deltas.len() < deltas_max()
    }

    /// Whether what a node counts may be changed by a record of `bytes` on top of what lies in the log: it is mostly part of another's.
    pub(super) fn takes_count(&self, state: &State<'_>, bytes: u64) -> bool {
        if !self.store.engine.takes_parts() {
            return self.takes_change(state, bytes);
        }
        let deltas_max = if self.was_read(state) { DELTAS_READ_MAX } else { COUNTS_MAX };
        !state.staged && state.deltas.len() < deltas_max
    }

    /// Whether a collection, leaf or node was read from disk for this command, wherever it is now.
    fn was_read(&self, state: &State<'_>) -> bool {
        let is_found = || !self.reads_here() && self.is_prepared(state);
        state.kind != record::STRING && (state.was_read || is_found())
    }

    /// Whether a value that was found in the index is there because it was prepared.
    pub(super) fn is_prepared(&self, state: &State<'_>) -> bool {
        let prepared = self.prepared();
        let is_record = |object: ObjectRef<'_>| prepared.record(object.address()).is_some();
        prepared.has_records() && state.object.is_none_or(is_record)
    }

    /// Whether the deadline that effect `seq` set has passed, now or before the wall clock was set back.
    pub(super) fn expires_by_now(&self, expiry: Option<Deadline>, seq: Seq) -> bool {
        expiry.is_some_and(|at| self.now.has_passed(at) || self.store.clock.had_passed(at, seq))
    }

    pub(super) fn note_expired(&self, staged: Staged) {
        self.expired.borrow_mut().push(staged);
    }

    /// Whether the time of a watched key, or of a field of it, has come since the watch began, and nothing in the index says so.
    pub(super) fn is_expired(&self, stripe: &Stripe, watch: &Watch) -> Result<bool, Stop> {
        let Some(keyspace) = self.store.index.keyspace(watch.db) else { return Ok(false) };
        let hash = self.store.hasher.hash(&watch.key);
        let Seek::At { word, current, whole, .. } = stripe.seek(keyspace, hash, &watch.key, self.prepared())
        else {
            return Ok(false);
        };
        if current.is_removed() {
            return Ok(false);
        }
        let space = stripe.space(keyspace).expect("the key is in it");
        if !whole && space.may_be_timed(word, current) {
            let may_have = self.expires_by_now(current.expiry(), current.seq());
            let base = || vec![Sought::base(word.address(), keyspace, hash)];
            return if may_have { Err(self.miss_all(space, base())) } else { Ok(false) };
        }
        if self.is_over(current, current.times()) || self.has_ended_since(watch.passed, current) {
            return Ok(true);
        }
        self.has_leaf_ended_since(watch.passed, keyspace, current)
    }

    pub(super) fn look(&self, seq: Seq) {
        self.looked.set(self.looked.get().max(seq));
    }

    pub(super) fn miss(&self, records: Vec<Sought>) -> Stop {
        self.wanted.borrow_mut().add(self.as_needed(records));
        Stop::Cold
    }

    /// As [`Access::miss`], and what lies on these bases: more than one of them there is seldom.
    pub(super) fn miss_all(&self, space: &Space, bases: Vec<Sought>) -> Stop {
        let bases = self.as_needed(bases);
        bases.iter().filter_map(|base| space.fold_of(*base)).for_each(|fold| {
            self.wanted.borrow_mut().add_fold(fold);
        });
        self.miss(bases)
    }

    /// `records` with what is needed of them now.
    fn as_needed(&self, mut records: Vec<Sought>) -> Vec<Sought> {
        if self.looks_at_state.get() {
            records.iter_mut().for_each(|record| *record = record.for_state());
        }
        records
    }
}

/// With as many deltas a collection that was read from disk is written whole by a change: it soon leaves memory again, each later read is one for each of them, and nobody
/// need fold it.
const DELTAS_READ_MAX: usize = 2;
