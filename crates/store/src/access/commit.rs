//! Commit: everything that can stand against the effects is found out, then they are appended as one group and
//! applied; the locks are held throughout, so apply order is append order for every key.

use collections::Deadline;
use journal::{Keyspace, LogAddress, Seq};
use smallvec::smallvec;
use ticket::Ticket;

use super::apply::Appended;
use super::counted::Within;
use super::joined::{Joined, is_totals};
use super::overlay::{Cause, Change, Staged};
use super::plan::{Few, Old, Plan, draft};
use super::{Access, Guards};
use crate::engine::{Class, Credits, Engine};
use crate::error::{Stop, StoreError};
use crate::index::delta::Delta;
use crate::index::stripe::{Seek, Stripe};
use crate::keyspaces::{PREPARED_KEYSPACE, is_leaves, is_own, keys_of};
use crate::object::WORD_DELTAS;
use crate::prepared::{EffectRoom, Obstacle};
use crate::record::{self, Draft};
use crate::sought::Sought;
use crate::staging;

impl Access<'_> {
    /// Appends and applies all staged effects, and ends the access: its keys are free for others. Returns the ticket that
    /// the reply must be held by.
    ///
    /// # Errors
    /// Any [`Stop`]; then nothing was appended or applied.
    pub fn commit(&mut self) -> Result<Ticket, Stop> {
        let committed = self.carry_out();
        let is_told = match committed {
            Ok(ticket) if self.told.get_mut().is_some() => self.hand_over(ticket),
            _ => false,
        };
        // Not left to the drop: a caller that keeps the access would lock itself out.
        self.guards = Guards::none();
        self.claim = None;
        if is_told {
            self.deliver();
        }
        committed
    }

    /// Lets the commit take what the disk keeps for those that free space, whatever it changes: for what must be possible on a full disk, and is small.
    pub(crate) fn take_reserve(&mut self) {
        self.takes_reserve = true;
    }

    /// As [`Access::commit`], but the keys stay locked.
    pub(super) fn carry_out(&mut self) -> Result<Ticket, Stop> {
        if let Some(stop) = self.take_stop() {
            return Err(stop);
        }
        if let Some(seq) = self.commit_within()? {
            self.look(seq);
            return Ok(self.ticket());
        }
        debug_assert!(
            self.overlay.iter().all(|staged| staged.cause != Cause::Resumed),
            "what was resumed is kept, or dropped"
        );
        let last_seq = match self.plan_alone()? {
            Some(plan) => self.commit_one(&plan)?,
            None => self.commit_group()?,
        };
        self.look(last_seq);
        Ok(self.ticket())
    }

    /// Commits what is overwritten in place, where that is all that is to be written.
    fn commit_within(&mut self) -> Result<Option<Seq>, Stop> {
        let is_alone = self.counted.is_some()
            && self.claim.is_none()
            && self.overlay.is_untouched()
            && self.purged.is_empty()
            && self.expired.get_mut().is_empty();
        if !is_alone {
            return Ok(None);
        }
        self.charge(0)?;
        Ok(self.commit_counted())
    }

    /// What the only change meets, where it is all that is to be written: a command changes one value, which has no deadline and is no root of a
    /// collection in leaves.
    fn plan_alone(&mut self) -> Result<Option<Plan>, Stop> {
        let is_alone = self.counted.is_none()
            && self.claim.is_none()
            && self.purged.is_empty()
            && self.expired.get_mut().is_empty();
        if !is_alone || !self.overlay.only().is_some_and(is_plain) {
            return Ok(None);
        }
        self.charge(0)?;
        let plan = self.resolve(0)?;
        Ok(if plan.replaces_root { None } else { Some(plan) })
    }

    /// Commits all that is staged, and what follows from it.
    fn commit_group(&mut self) -> Result<Seq, Stop> {
        if !self.has_within() {
            self.settle_counts();
        }
        if let Some(stop) = self.stopped.take() {
            return Err(stop);
        }
        self.charge(0)?;
        self.check_mapping_locks()?;
        self.adopt_expired();
        self.drop_dead();
        self.stage_notes()?;
        self.make_room_for_expired();
        if self.overlay.len() == 0 && self.overlay.mapping().is_none() {
            return Ok(Seq::NONE);
        }
        self.record_clock_if_due()?;
        let last_seq = match (self.overlay.len(), self.overlay.mapping()) {
            (1, None) if self.claim.is_none() && self.counted.is_none() => {
                let plan = self.resolve(0)?;
                self.commit_one(&plan)?
            }
            _ => self.commit_many()?,
        };
        self.tell_touched(last_seq);
        Ok(last_seq)
    }

    /// Tells who watches keys whose collections have changed in their leaves alone.
    fn tell_touched(&mut self, seq: Seq) {
        for touched in self.overlay.take_touched() {
            self.turn_to_stripe(touched.hash.stripe());
            let stripe = self.guards.stripe_mut(touched.hash.stripe()).expect("looked up before");
            let object = touched.object().view();
            if stripe.watches.touch(touched.db, object.key(), seq, false) {
                self.store.changed.note(touched.db, object.key());
            }
            self.tell_key(object.key());
        }
    }

    /// A clock record precedes effects with deadlines. Nothing is held while it asks for room.
    fn record_clock_if_due(&mut self) -> Result<(), Stop> {
        let (mut any, mut is_ttl) = (false, false);
        for staged in self.overlay.iter() {
            let at = staged.object().view().expiry();
            any |= at.is_some() || staged.keyspace == PREPARED_KEYSPACE;
            is_ttl |= at.is_some_and(|at| !at.is_wall());
        }
        is_ttl |= any && self.overlay.iter().any(prepares_ttl);
        if any && self.store.engine_keeps() && self.store.clock.is_due(self.now, is_ttl) {
            self.credits = None;
            self.store.record_clock()?;
        }
        Ok(())
    }

    /// The hot path: one key, nothing on the heap but the object.
    fn commit_one(&mut self, plan: &Plan) -> Result<Seq, Stop> {
        if plan.skip {
            return Ok(Seq::NONE);
        }
        self.admit(std::slice::from_ref(plan))?;
        let staged = self.overlay.get(0);
        let draft = draft(staged, plan);
        let (bytes, class) = (draft.record_bytes(), class_of(self.takes_reserve || is_reclaim(staged)));
        let had = self.credits.take();
        let credits = self.secured(had, bytes, 1, class, std::slice::from_ref(plan))?;
        let mut addresses = [LogAddress::default()];
        let seq = self.store.engine.append(credits, &[draft], &mut addresses);
        let staged = self.overlay.take_only();
        let keyspace = staged.keyspace;
        let change = self.apply(staged, plan, Appended { address: addresses[0], seq, bytes });
        self.store.index.count_keys(keyspace, change);
        Ok(seq)
    }

    /// What each change meets; all that is cold is missed together.
    pub(super) fn plans(&mut self, attempts: u32) -> Result<Few<Plan>, Stop> {
        let (mut plans, mut is_cold) = (Few::with_capacity(self.overlay.len()), false);
        for at in 0..self.overlay.len() {
            self.turn_to_change(at);
            match self.resolve(at) {
                Ok(plan) => plans.push(plan),
                Err(Stop::Cold) => is_cold = true,
                Err(stop) => return Err(stop),
            }
        }
        if !is_cold {
            return Ok(plans);
        }
        // with claimed keys it is read here: to begin anew would take longer
        if self.claim.is_none() || attempts == PLANS_MAX {
            return Err(Stop::Cold);
        }
        self.read_missed(&[]);
        self.plans(attempts + 1)
    }

    fn commit_many(&mut self) -> Result<Seq, Stop> {
        let within = if self.has_within() { self.take_within() } else { None };
        self.settle_counts();
        if let Some(stop) = self.stopped.take() {
            return Err(stop);
        }
        let plans = self.plans(0)?;
        // The append of many records takes long enough for others to mind.
        if self.claim.is_some() {
            self.guards = Guards::none();
        }
        self.admit(&plans)?;
        if let Some(within) = &within {
            self.admit_grown(within.grown)?;
        }
        let joined = Joined::of(&self.overlay, &plans, self.store.engine.takes_parts());
        let mapping = self.overlay.mapping().map(|(ids, next)| record::encode_mapping(*next, ids));
        let mut drafts: Few<Draft<'_>> = mapping.iter().map(|payload| Draft::mapping(payload)).collect();
        let pairs = || self.overlay.iter().zip(&plans).filter(|(_, plan)| !plan.skip);
        drafts.extend(joined.drafts(&self.overlay, &plans));
        drafts.extend(within.iter().map(Within::draft));
        if drafts.is_empty() {
            return Ok(Seq::NONE);
        }
        let sizes: Few<u64> = drafts.iter().map(Draft::record_bytes).collect();
        let size_bytes = sizes.iter().sum();
        let limit_bytes = self.store.options.transaction_bytes_max;
        // What was prepared was bounded then.
        if size_bytes > limit_bytes && self.settles.is_none() {
            return Err(StoreError::TransactionTooLarge { size_bytes, limit_bytes }.into());
        }
        let reclaim =
            self.settles.is_some() || self.takes_reserve || pairs().all(|(staged, _)| is_reclaim(staged));
        let records = drafts.len() as u64;
        let had = self.credits.take();
        let class = class_of(reclaim);
        let credits = self.secured(had, size_bytes, records, class, &plans)?;
        let mut addresses: Few<LogAddress> = smallvec![LogAddress::default(); drafts.len()];
        let store = self.store;
        let _rests = self.claim.as_ref().and_then(|claimed| {
            let rests = store.rest_housekeeping();
            if self.changes_keys() {
                claimed.claim().begin_to_apply();
            }
            rests
        });
        let last_seq = self.store.engine.append(credits, &drafts, &mut addresses);
        drop(drafts);
        if let (Some(within), Some(address), Some(bytes)) = (within, addresses.last(), sizes.last()) {
            // first of all: where leaves were met holds until slots move
            self.overwrite_within(&within, Appended { address: *address, seq: last_seq, bytes: *bytes });
        }
        let first_seq = last_seq.0 + 1 - addresses.len() as u64;
        let mut appended = addresses
            .into_iter()
            .zip(sizes)
            .zip(first_seq..)
            .map(|((address, bytes), seq)| Appended { address, seq: Seq(seq), bytes });
        if self.overlay.mapping().is_some() {
            let mapping = appended.next().expect("the mapping was drafted first");
            self.apply_mapping(mapping.seq);
        }
        self.apply_all(plans, &joined, appended);
        Ok(last_seq)
    }

    /// Whether others can see what is staged: the record of a prepared branch they cannot.
    fn changes_keys(&self) -> bool {
        self.overlay.iter().any(|staged| staged.keyspace != PREPARED_KEYSPACE)
    }

    /// As [`secure`], and [waits](Access::waited).
    fn secure_many(
        &self,
        mut had: Option<Credits>,
        bytes: u64,
        records: u64,
        class: Class,
    ) -> Result<Credits, Stop> {
        self.waited(|| secure(had.take(), &*self.store.engine, bytes, records, class))
    }

    /// What comes of `attempt`; with claimed keys it is made again for a while where there is no room, for to begin anew would take longer.
    fn waited<T>(&self, mut attempt: impl FnMut() -> Result<T, Stop>) -> Result<T, Stop> {
        let mut outcome = attempt();
        for _ in 0..WAITS_MAX {
            if self.claim.is_none() || !matches!(outcome, Err(Stop::Busy)) {
                break;
            }
            self.store.wait_for_room();
            outcome = attempt();
        }
        outcome
    }

    /// The room that a group needs.
    fn secured(
        &self,
        mut had: Option<Credits>,
        bytes: u64,
        records: u64,
        class: Class,
        plans: &[Plan],
    ) -> Result<Credits, Stop> {
        if let Some(credits) = had.take_if(|credits| credits.cover(bytes, records)) {
            return Ok(credits);
        }
        match self.secure_many(had, bytes, records, class) {
            Err(stop) => self.secure_to_shrink(stop, plans, bytes, records, class),
            credits => credits,
        }
    }

    /// What a group gets that was stopped for want of room of `class`: on a full disk one that only removes finds some that is kept for it.
    #[cold]
    fn secure_to_shrink(
        &self,
        stop: Stop,
        plans: &[Plan],
        bytes: u64,
        records: u64,
        class: Class,
    ) -> Result<Credits, Stop> {
        let is_full = class == Class::Write && is_disk_full(&stop);
        let (secured, class) = match is_full && self.only_shrinks(plans) {
            true => (self.secure_many(None, bytes, records, Class::Shrink), Class::Shrink),
            false => (Err(stop), class),
        };
        secured.inspect_err(|stop| self.note_room(stop, bytes, records, class))
    }

    /// Notes for the next attempt what the log had no room for.
    fn note_room(&self, stop: &Stop, bytes: u64, records: u64, class: Class) {
        if matches!(stop, Stop::Busy) {
            self.wanted.borrow_mut().meet(Obstacle::Room(EffectRoom::in_log(bytes, records, class)));
        }
    }

    /// Finds out what change number `at` meets, and that no prepared transaction holds its key.
    fn resolve(&self, at: usize) -> Result<Plan, Stop> {
        let staged = self.overlay.get(at);
        let stripe = self.guards.stripe(staged.hash.stripe())?;
        if stripe.locks.is_some() {
            self.check_lock(stripe, staged)?;
        }
        self.plan(at, stripe)
    }

    fn plan(&self, at: usize, stripe: &Stripe) -> Result<Plan, Stop> {
        let staged = self.overlay.get(at);
        let key = staged.object().view().key();
        let removal = matches!(staged.change, Change::Remove(_));
        let beside = self.overlay.len() > 1 && self.overlay.shares_bits(at);
        let moves = stripe.space(staged.keyspace).map_or(0, |space| space.table.moves());
        match stripe.seek(staged.keyspace, staged.hash, key, self.prepared()) {
            Seek::Absent { shared } => {
                let shared = shared || beside;
                Ok(Plan { skip: removal, ..Plan::unread(shared, None, removal, moves) })
            }
            Seek::At { spot, word, shared, current, .. } => {
                let shrinks = self.shrinks(staged, current);
                let mut old = Old::of(spot, word.address(), current);
                let space = stripe.space(staged.keyspace).filter(|_| word.marks() & WORD_DELTAS != 0);
                let deltas = space.map_or(&[][..], |space| space.deltas_of(old.address));
                let is_expiry = |last: &&Delta| last.kind == record::EXPIRY && last.can_be_superseded();
                old.since = deltas.last().filter(is_expiry).map_or(old.seq, |last| last.since);
                let skip = removal && old.removed;
                let is_totals = self.store.engine.takes_parts() && is_totals(staged, current, deltas);
                let replaces_root = record::is_root(current.kind());
                let shared = shared || beside;
                Ok(Plan { shared, old: Some(old), skip, shrinks, replaces_root, is_totals, moves })
            }
            Seek::Unknown(records) => {
                let swept = self.swept_unread(staged, stripe, &records);
                swept.map_or_else(
                    || {
                        // whoever needs a value has looked at it before
                        self.looks_at_state.set(self.effort.is_bounded());
                        Err(self.miss(records))
                    },
                    |old| Ok(Plan::unread(beside, Some(old), removal, moves)),
                )
            }
            Seek::Damaged { own: Some(spot), .. } if !matches!(staged.change, Change::Delta { .. }) => {
                let address = stripe
                    .space(staged.keyspace)
                    .map_or_else(LogAddress::default, |space| space.table.word(spot).address());
                let old = Some(Old::unreadable(spot, address));
                Ok(Plan::unread(beside, old, removal, moves))
            }
            Seek::Damaged { error, .. } => Err(Stop::Damaged(error)),
        }
    }

    /// What is at a leaf that is known to be there and that nothing else has the bits of: it goes unread.
    fn swept_unread(&self, staged: &Staged, stripe: &Stripe, records: &[Sought]) -> Option<Old> {
        let ([record], Cause::Swept, Change::Remove(_)) = (records, staged.cause, &staged.change) else {
            return None;
        };
        let space = stripe.space(staged.keyspace)?;
        if space.table.candidates(staged.hash).count() > 1 {
            return None;
        }
        let spot = space.spot_at(staged.hash, |address| address == record.address)?;
        Some(Old::unreadable(spot, record.address))
    }

    /// The same plan after earlier changes of the group may have moved slots.
    pub(super) fn refresh(&mut self, staged: &Staged, mut plan: Plan) -> Plan {
        if self.claim.is_some() {
            return self.planned_anew(staged, plan);
        }
        let key = staged.object().view().key();
        let stripe = self.guards.stripe(staged.hash.stripe()).expect("resolved before");
        let space = stripe.space(staged.keyspace);
        if plan.old.is_some() && space.is_some_and(|space| space.table.moves() == plan.moves) {
            return plan;
        }
        match (&mut plan.old, stripe.seek(staged.keyspace, staged.hash, key, self.prepared())) {
            (Some(old), Seek::At { spot, .. } | Seek::Damaged { own: Some(spot), .. }) => old.spot = spot,
            // a leaf that goes unread
            (Some(old), Seek::Unknown(_)) => {
                let space = stripe.space(staged.keyspace).expect("resolved before");
                let spot = space.spot_at(staged.hash, |address| address == old.address);
                old.spot = spot.expect("resolved before, under the same lock");
            }
            (old, _) => *old = None,
        }
        plan
    }

    /// Refuses what memory has no room for. What was prepared was admitted then, and is counted since.
    pub(super) fn admit(&self, plans: &[Plan]) -> Result<(), Stop> {
        if self.settles.is_some() {
            return Ok(());
        }
        let grown: i64 = self.overlay.iter().zip(plans).map(|(staged, plan)| grown_bytes(staged, plan)).sum();
        self.admit_bytes(grown, || self.only_shrinks(plans))
    }

    /// As [`Access::admit`], of leaves that are overwritten in place.
    pub(super) fn admit_grown(&self, grown: i64) -> Result<(), Stop> {
        self.admit_bytes(grown, || false)
    }

    fn admit_bytes(&self, grown: i64, only_shrinks: impl FnOnce() -> bool) -> Result<(), Stop> {
        if grown <= 0 {
            return Ok(());
        }
        match self.store.admit_to_disk() {
            Err(stop) if is_disk_full(&stop) && only_shrinks() => {}
            admitted => admitted?,
        }
        let own_credit_bytes = self.credits.as_ref().map_or(0, Credits::held_bytes);
        let memory = &self.store.memory;
        let admitted = self.waited(|| memory.admit(self.store.accounts(), own_credit_bytes));
        if matches!(admitted, Err(Stop::Busy)) {
            self.wanted.borrow_mut().meet(Obstacle::Room(EffectRoom::IN_MEMORY));
        }
        admitted
    }

    /// Stages the removal of expired keys that lookups met, unless the command itself changes them.
    fn adopt_expired(&mut self) {
        let purged = self.purged.take();
        if (self.expired.get_mut().is_empty() && purged.is_empty()) || !self.store.engine_keeps() {
            return;
        }
        let (leaves, keys): (Vec<_>, Vec<_>) =
            purged.into_iter().partition(|purge| is_leaves(purge.staged.keyspace));
        let keys = keys.into_iter().map(|purge| purge.staged);
        for staged in self.expired.take().into_iter().chain(keys) {
            let key = staged.object().view().key();
            // Whoever holds the key ends first; until then it reads as absent, and nothing says so in the log.
            self.turn_to_stripe(staged.hash.stripe());
            let is_held = self.is_held(staged.keyspace, staged.hash, key);
            if is_held {
                self.record_passed(&staged);
            }
            if !is_held && self.overlay.find(staged.keyspace, staged.hash, key).is_none() {
                self.stage(staged);
            }
        }
        self.adopt_purged_leaves(leaves);
    }

    /// A read has no credits; if the journal has none to spare a removal can wait, the answer is the same. Large hashes that are written
    /// whole, without what has ended, wait rather than take the room that is kept for removals.
    fn make_room_for_expired(&mut self) {
        let goes_by_itself =
            |cause| matches!(cause, Cause::Expired | Cause::Emptied | Cause::Purged(_) | Cause::Swept);
        let only_expired = self.overlay.mapping().is_none()
            && self.overlay.iter().any(|staged| staged.cause != Cause::Swept)
            && self.overlay.iter().all(|staged| goes_by_itself(staged.cause));
        let has_whole = self.overlay.iter().any(Staged::is_whole_purge);
        if only_expired && self.credits.is_none() {
            let writes = if has_whole { self.reserve_for_staged(Class::Write) } else { None };
            if writes.is_none() && has_whole {
                self.overlay.retain(|staged| !staged.is_whole_purge());
            }
            self.credits = writes.or_else(|| self.reserve_for_staged(Class::Reclaim));
            let has_room = self.credits.is_some();
            self.overlay.retain(|_| has_room);
        } else if has_whole && self.overlay.iter().all(|it| it.is_whole_purge() || is_reclaim(it)) {
            self.overlay.retain(|staged| only_expired || !staged.is_whole_purge());
        }
    }

    fn reserve_for_staged(&self, class: Class) -> Option<Credits> {
        let (bytes, records) = (self.overlay.iter().map(Staged::bytes_max).sum(), self.overlay.len() as u64);
        self.store.engine.reserve(bytes, records, class).ok()
    }

    /// Of a key that cannot be removed now, the log says that its time had come: the reply waits for that. Not on a full disk.
    pub(super) fn record_passed(&self, staged: &Staged) {
        let Ok(stripe) = self.guards.stripe(staged.hash.stripe()) else { return };
        let key = staged.object().view().key();
        let Seek::At { current, .. } = stripe.seek(staged.keyspace, staged.hash, key, self.prepared()) else {
            return;
        };
        // of fields the last one that has passed may be any up to now
        let last = Deadline::at(self.now.unix());
        let is_purge = matches!(staged.cause, Cause::Purged(_));
        let at = if is_purge { Some(last) } else { current.expiry() };
        if at.is_some_and(|at| !self.store.clock.is_on_record(at))
            && let Ok(seq) = self.store.record_clock()
        {
            self.look(seq);
        }
    }

    /// Changes in keyspaces that this group itself flushes have no effect.
    fn drop_dead(&mut self) {
        if let Some((mapping, _)) = self.overlay.mapping() {
            let mapping = mapping.clone();
            self.overlay
                .retain(|staged| is_own(staged.keyspace) || mapping.contains(&keys_of(staged.keyspace)));
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        let looked = self.looked.get();
        debug_assert!(
            looked <= self.store.engine.newest(),
            "a reply depends on what is not appended: {looked:?}"
        );
        if looked <= self.store.engine.released() { Ticket::NOTHING } else { Ticket::of(looked.0) }
    }

    /// By how much the staged changes of `keyspace` change its number of keys.
    pub(super) fn overlay_len_change(&self, keyspace: Keyspace) -> Result<i64, Stop> {
        let mut change = 0;
        for at in 0..self.overlay.len() {
            let staged = self.overlay.get(at);
            if staged.keyspace == keyspace {
                let stripe = self.guards.stripe(staged.hash.stripe())?;
                let before = self.plan(at, stripe)?.old.is_some_and(|old| !old.removed);
                let after = !matches!(staged.change, Change::Remove(_));
                change += i64::from(after) - i64::from(before);
            }
        }
        Ok(change)
    }
}

/// Whether this prepares a transaction that gives a key a TTL.
fn prepares_ttl(staged: &Staged) -> bool {
    staged.keyspace == PREPARED_KEYSPACE && staging::has_ttl(staged.object().view().value())
}

/// By how much a change grows what memory holds, compared with what is there now. Removals and other expiry times never do:
/// they go on where growth is refused, also of a key that is not in memory.
fn grown_bytes(staged: &Staged, plan: &Plan) -> i64 {
    let old = plan.old.map_or(0, |old| old.hot_bytes);
    match (&staged.change, staged.cause) {
        (Change::Remove(_), _) => -old,
        (_, Cause::Command) => staged.object().view().memory_bytes() as i64 - old,
        _ => 0,
    }
}

/// Whether a command changes a value that has no deadline, now or when a transaction ends.
fn is_plain(staged: &Staged) -> bool {
    staged.cause == Cause::Command
        && staged.object().view().expiry().is_none()
        && staged.keyspace != PREPARED_KEYSPACE
}

/// Whether a change may take what the disk keeps for those that free space.
pub(super) fn is_reclaim(staged: &Staged) -> bool {
    let frees = staged.cause != Cause::Command || matches!(staged.change, Change::Remove(_));
    frees && !staged.is_whole_purge()
}

/// What was reserved before the locks, or (asked without waiting) enough for what it turned out to be, in its place.
pub(super) fn secure(
    had: Option<Credits>,
    engine: &dyn Engine,
    bytes: u64,
    records: u64,
    class: Class,
) -> Result<Credits, Stop> {
    match had {
        Some(credits) if credits.cover(bytes, records) => Ok(credits),
        had => engine.reserve_instead(had, bytes, records, class),
    }
}

fn is_disk_full(stop: &Stop) -> bool {
    matches!(stop, Stop::Refused(StoreError::DiskFull(_)))
}

pub(super) fn class_of(reclaim: bool) -> Class {
    if reclaim { Class::Reclaim } else { Class::Write }
}
/// How often what changes meet is read while they are planned: it may move meanwhile.
pub(super) const PLANS_MAX: u32 = 8;
/// How often a long command asks for room before it lets its keys go: for a second or two.
const WAITS_MAX: u32 = 500;
