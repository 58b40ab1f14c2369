//! Applying what was appended: index, accounts and watches become what the log says.
//!
//! Invariants
//!   1. The locks are held from the append on: for every key, changes are applied in the order in which they were appended.
//!   2. Nothing is refused here: whatever could stand against a change was found out before its record was appended.
//!   3. The counts of keys change once for a group, so that no count shows half of it.
//!
//! Out of scope: what is appended, and whether (`commit`).

use std::sync::atomic::Ordering;

use collections::Deadline;
use journal::{Keyspace, LogAddress, Seq};
use smallvec::SmallVec;

use super::Access;
use super::joined::Joined;
use super::overlay::{Cause, Change, Small, Staged};
use super::plan::{Few, Old, Plan};
use crate::Store;
use crate::engine::Engine;
use crate::hash::{KeyHash, STRIPES};
use crate::index::delta::Delta;
use crate::index::stripe::Space;
use crate::keyspaces::{SWEPT_KEYSPACE, leaves_of};
use crate::object::{WORD_DELTAS, WORD_SHARED, Word};
use crate::record;

impl Access<'_> {
    /// Applies all changes, whose records were `appended`.
    pub(super) fn apply_all(
        &mut self,
        plans: Few<Plan>,
        joined: &Joined,
        mut appended: impl Iterator<Item = Appended>,
    ) {
        let (mut first, rest) = self.overlay.take_all();
        let (mut rest, mut counts) = (rest.into_iter(), Few::<(Keyspace, i64)>::new());
        // of each record with parts
        let mut firsts = SmallVec::<[Option<Appended>; 1]>::from_elem(None, joined.len());
        for (at, plan) in plans.into_iter().enumerate() {
            let staged = first.take().or_else(|| rest.next()).expect("one plan for each change");
            self.turn_to_taken(at, &staged, rest.as_slice());
            if plan.skip {
                continue;
            }
            let mut next = || appended.next().expect("one record for each change that is no further part");
            let appended = match joined.place(at) {
                None => next(),
                Some((place, true)) => *firsts[place].insert(next()),
                // the first part counts its bytes
                Some((place, false)) => Appended { bytes: 0, ..firsts[place].expect("it comes first") },
            };
            let staged = joined.as_logged(at, staged);
            let plan = self.refresh(&staged, plan);
            let keyspace = staged.keyspace;
            let change = self.apply(staged, &plan, appended);
            match counts.iter_mut().find(|(counted, _)| *counted == keyspace) {
                Some((_, count)) => *count += change,
                None => counts.push((keyspace, change)),
            }
        }
        debug_assert!(first.is_none() && rest.next().is_none(), "a change without a plan");
        // at once, so that no count shows half a group
        counts.into_iter().for_each(|(keyspace, change)| self.store.index.count_keys(keyspace, change));
    }

    /// Returns by how much the number of keys changed.
    pub(super) fn apply(&mut self, staged: Staged, plan: &Plan, appended: Appended) -> i64 {
        let store = self.store;
        let released = store.engine.released();
        let expired = matches!(staged.cause, Cause::Expired | Cause::Emptied | Cause::Purged(_));
        debug_assert!(plan.old.is_none_or(|old| old.seq < appended.seq), "an effect replaces a newer one");
        store.count(staged.cause);
        self.tell(&staged, plan);
        let stripe = self.guards.stripe_mut(staged.hash.stripe()).expect("resolved before");
        let prepared = self.read_anew.as_deref().or(self.late.as_deref()).unwrap_or(self.prepared);
        store.snapshots.on_change(&staged, stripe, prepared, || store.memory.read_bytes_max());
        let object = staged.object().view();
        if stripe.watches.touch(staged.db, object.key(), appended.seq, expired) {
            store.changed.note(staged.db, object.key());
        }
        store.take_note(&staged);
        let space = stripe.space_mut(staged.keyspace);
        let (side_bytes, keys, mut is_kept) = (space.side_bytes(), space.table.live, false);
        let grown = match staged.change {
            Change::Put(mut object) => {
                object.stamp(appended.address, appended.seq);
                space.retire(plan, &staged.hash, &*store.engine);
                store.engine.on_live(appended.address, appended.bytes);
                space.expiry.insert(object.view().expiry(), staged.hash);
                store.tender.expect(object.view().expiry(), self.now);
                space.live_more(plan);
                let marks = if plan.shared { WORD_SHARED } else { 0 };
                let now_ms = self.now.server_ms();
                space.put_word(plan, staged.hash, Word::hot(object, marks), now_ms)
            }
            Change::Delta { mut object, delta } => {
                let old = plan.old.expect("a delta changes what is there");
                object.stamp(old.address, appended.seq);
                space.expiry.remove(old.expiry, staged.hash);
                let expiry = object.view().expiry();
                space.expiry.insert(expiry, staged.hash);
                store.tender.expect(expiry, self.now);
                if appended.bytes > 0 {
                    store.engine.on_live(appended.address, appended.bytes);
                }
                let delta = appended.delta(&delta, &old, expiry);
                space.push_delta(old.address, old.record_bytes, delta, &*store.engine);
                let marks = space.table.word(old.spot).marks() | WORD_DELTAS;
                space.set_word(old.spot, Word::hot(object, marks))
            }
            Change::Remove(mut object) => {
                let old = plan.old.expect("removals of nothing are skipped");
                space.retire(plan, &staged.hash, &*store.engine);
                debug_assert!(space.table.live > 0, "a key is removed that was not counted");
                space.table.live -= 1;
                if appended.seq <= released {
                    -space.remove(old.spot)
                } else {
                    object.stamp(appended.address, appended.seq);
                    is_kept = true;
                    space.set_word(old.spot, Word::hot(object, 0))
                }
            }
        };
        let change = space.table.live as i64 - keys as i64;
        let grown = grown + space.side_bytes() - side_bytes;
        stripe.unreported_bytes += grown;
        if is_kept {
            stripe.await_release(appended.seq, staged.keyspace, staged.hash);
        }
        stripe.sweep_pending(released);
        store.index.account(stripe.take_unreported());
        change
    }

    /// Lets the databases have their new keyspaces.
    pub(super) fn apply_mapping(&mut self, seq: Seq) {
        let (mapping, next) = self.overlay.take_mapping().expect("only called with one");
        assert!(
            mapping.iter().all(|id| *id < next),
            "a keyspace that is still to come: {mapping:?}, {next:?}"
        );
        self.tell_moved();
        let index = &self.store.index;
        let before = index.mapping();
        for number in 0..STRIPES {
            let stripe = self.guards.stripe_mut(number).expect("a mapping changes under all locks");
            for (db, (&old, &new)) in
                before.iter().zip(&mapping).enumerate().filter(|(_, (old, new))| old != new)
            {
                if stripe.watches.are_many() {
                    if stripe.watches.is_any_waited() {
                        self.store.changed.note_all(db as u16);
                    }
                    stripe.watches.touch_all(db as u16, seq);
                    continue;
                }
                stripe
                    .watches
                    .waited(db as u16)
                    .iter()
                    .for_each(|key| self.store.changed.note(db as u16, key));
                for key in stripe.watches.keys(db as u16) {
                    let hash = self.store.hasher.hash(&key);
                    let there = |id| stripe.space(id).is_some_and(|space| space.may_hold(hash, &key));
                    if there(old) || there(new) {
                        // What had expired and now is gone changes nothing for whoever began to watch it then.
                        stripe.watches.touch(db as u16, &key, seq, !there(new));
                    }
                }
            }
            for id in before.iter().filter(|id| !mapping.contains(id)) {
                for space in [stripe.take_space(*id), stripe.take_space(leaves_of(*id))] {
                    space.into_iter().for_each(|space| index.defer_free(space));
                }
            }
        }
        index.set_mapping(&mapping, next, seq);
    }
}

/// Where a change's record went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) address: LogAddress,
    pub(super) seq: Seq,
    pub(super) bytes: u64,
}

impl Appended {
    /// The delta that this record, or a part of it, is on `old`, of a key that expires at `expiry`.
    pub(super) fn delta(&self, small: &Small, old: &Old, expiry: Option<Deadline>) -> Delta {
        Delta {
            address: self.address,
            seq: self.seq,
            since: match small {
                Small::Expiry => old.since,
                Small::Totals => record::SINCE_TOTALS,
                Small::Part { .. } | Small::Elements { .. } => old.seq,
            },
            kind: small.kind(),
            record_bytes: self.bytes as u32,
            expiry: small.expiry(expiry),
        }
    }
}

impl Store {
    /// Lets the leaves go that `staged` is a note about, if it is one.
    fn take_note(&self, staged: &Staged) {
        if staged.cause == Cause::Swept && staged.keyspace == SWEPT_KEYSPACE {
            let note = staged.object().view();
            self.sweeps.add(note.key(), note.value(), true);
            self.tender.wake();
        }
    }

    /// Counts keys that go by themselves.
    fn count(&self, cause: Cause) {
        match cause {
            Cause::Expired | Cause::Emptied => self.expired_keys.fetch_add(1, Ordering::Relaxed),
            Cause::Purged(fields) => self.expired_fields.fetch_add(fields.into(), Ordering::Relaxed),
            Cause::Evicted => self.evictor.evicted_keys.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Space {
    /// Takes the old state's expiry, record and deltas out of the accounts.
    fn retire(&mut self, plan: &Plan, hash: &KeyHash, engine: &dyn Engine) {
        let Some(old) = plan.old.filter(|old| !old.removed) else { return };
        self.expiry.remove(old.expiry, *hash);
        if self.table.word(old.spot).marks() & WORD_DELTAS == 0 {
            engine.on_dead(old.address, old.record_bytes);
        } else {
            engine.on_dead(old.address, self.base_bytes(&old));
            self.deltas.remove(old.address).iter().for_each(|delta| on_dead_delta(engine, delta));
        }
    }

    /// Adds `delta` on a base, of which the record has so many bytes if nothing lies on it; what it supersedes is dead.
    pub(super) fn push_delta(
        &mut self,
        base: LogAddress,
        base_bytes: u64,
        delta: Delta,
        engine: &dyn Engine,
    ) {
        if let Some(dead) = self.deltas.push_on(base, base_bytes, delta) {
            on_dead_delta(engine, &dead);
        }
    }

    /// Bytes of the base record of `old` in its segment.
    fn base_bytes(&self, old: &Old) -> u64 {
        self.deltas.base_bytes(old.address).unwrap_or(old.record_bytes)
    }

    fn live_more(&mut self, plan: &Plan) {
        if plan.old.is_none_or(|old| old.removed) {
            self.table.live += 1;
        }
    }

    fn put_word(&mut self, plan: &Plan, hash: KeyHash, word: Word, now_ms: u64) -> i64 {
        if let Some(old) = plan.old.filter(|old| !old.removed) {
            self.table.touch(old.spot, now_ms);
            return self.set_word(old.spot, word);
        }
        let (spot, grown) = match plan.old {
            Some(old) => (old.spot, self.set_word(old.spot, word)),
            None => self.insert(hash, word),
        };
        self.table.stamp_fresh(spot, now_ms);
        grown
    }

    /// Whether `key` is here, or a cold record that is as good as certain to be it.
    fn may_hold(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.table.candidates(hash).any(|spot| {
            let object = self.table.word(spot).object();
            object.is_none_or(|o| o.kind() != record::REMOVED && o.key() == key)
        })
    }
}

/// The record of `delta` is dead, unless another part of it counts.
fn on_dead_delta(engine: &dyn Engine, delta: &Delta) {
    if let Some(bytes) = delta.counted_bytes() {
        engine.on_dead(delta.address, bytes);
    }
}
