//! The execute step: stripes locked, effects gathered, appended, applied.
//!
//! ```text
//! lookups -> overlay, then index          what the reply depends on is noted (`looked`)
//! put, remove, ...  -> overlay            nothing is applied yet: any Stop can be retried whole
//! commit  -> resolve -> append -> apply   (`commit`)
//! ```
//!
//! Invariants
//!   1. Until `commit` appends, index and journal are as they were.
//!   2. The ticket that `commit` returns covers every effect that some answer of this access depends on: values
//!      by their seq, absences by the removal's, whole-keyspace answers by the newest append.
//!   3. An expired key is absent; meeting one logs its removal, so that the absence lasts when time is set back.
//!
//! Out of scope: reading cold records (`prepared`), which commands exist (`server`).

use journal::{Keyspace, Seq};

mod claim;
#[cfg(test)]
mod claim_tests;
mod claim_waits;
mod collection;
mod commit;
mod copied;
mod counted;
mod counts;
mod databases;
mod drawn;
mod editing;
mod effort;
mod fields;
mod gathered;
mod guards;
mod here;
mod joined;
mod leaf_changes;
mod lent;
mod named;
mod nodes;
mod obstacle;
mod order;
mod overlay;
mod paged;
mod paged_staging;
mod part;
mod plan;
mod purged;
mod read_ahead;
mod scan;
mod search;
mod sequence;
mod shrinking;
mod snapshot;
mod snapshots;
mod staging;
mod state;
#[cfg(test)]
mod tests;
mod timed;
mod tree_edit;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use crate::engine::Credits;
use crate::error::{Stop, StoreError};
use crate::evict::policy::Usage;
use crate::foresight::Foreseen;
use crate::hash::KeyHash;
use crate::index::stripe::Space;
use crate::index::stripe::{Current, Seek, Stripe};
use crate::keyspaces::HIDDEN_DB;
use crate::large::{Bytes, LARGE_BYTES};
use crate::memory::Asked;
use crate::object::{Object, ObjectRef};
use crate::prepared::{Prepared, Wanted};
use crate::record;
use crate::sought::Sought;
use crate::value::{Found, Meta, Value, ValueKind};
use crate::watch::Watch;
use crate::{KeyRef, Store};
use claim::Claimed;
pub use claim_waits::ClaimReport;
pub(crate) use claim_waits::Claims;
pub use collection::{KeyedChange, ListChanged, Popped, WrongType};
use collections::{Deadline, Moment, Times};
use copied::Copied;
use counts::Counted;
pub use drawn::Drawn;
use effort::Effort;
use gathered::Gathered;
use guards::Guards;
pub use guards::Scope;
use nodes::NodeSpots;
use overlay::{Cause, Change, KeyPlace, Overlay, Small, Staged};
use purged::{Purged, TimedKeys};
pub use sequence::Sequence;
pub use snapshot::{Part, Snapshot, Whole};
pub(crate) use snapshots::Snapshots;
use state::State;

/// Says whether an access is to end; asked before it touches anything, so it is to be quick.
pub type IsOver = Arc<dyn Fn() -> bool + Send + Sync>;

/// A command in its execute step.
pub struct Access<'s> {
    store: &'s Store,
    prepared: &'s Prepared,
    /// What was read since, in the place of what was prepared.
    late: Option<Box<Prepared>>,
    /// What was read of the key of one change, while it is applied.
    read_anew: Option<Box<Prepared>>,
    guards: Guards<'s>,
    /// The keys, where they are claimed. Behind the guards: those go first.
    claim: Option<Claimed<'s>>,
    /// The keys of the scope, where it names them.
    keys: Option<&'s [KeyRef<'s>]>,
    /// The key of a scope of one, or whose turn it is, and its hash.
    only: Option<(&'s [u8], KeyHash)>,
    overlay: Overlay,
    /// What nodes and a root count when the leaves in the overlay have changed.
    counted: Option<Box<Counted<'s>>>,
    /// Removals of expired keys that lookups met.
    expired: RefCell<Vec<Staged>>,
    /// Hashes without fields whose time has come, as lookups met them.
    purged: Purged,
    /// Where the large ones are whose fields have deadlines, by their objects.
    timed: OnceCell<Box<TimedKeys>>,
    /// What lookups missed.
    wanted: RefCell<Wanted>,
    has_read_ahead: Cell<bool>,
    /// Random numbers that were drawn, now and at the last save.
    drawn: Cell<u64>,
    drawn_before: u64,
    /// What was made, and asked for effects, at the last save.
    made_before: (u64, u64),
    /// The newest effect that some answer depends on.
    looked: Cell<Seq>,
    /// Whether a key that is looked up counts as used.
    touches: Cell<bool>,
    /// What is looked up now is looked up for what is known of its key.
    looks_at_state: Cell<bool>,
    /// It is read whole all the same.
    keeps_values: bool,
    now: Moment,
    credits: Option<Credits>,
    /// What stops the command: commit must return it.
    stopped: Option<Stop>,
    /// What is made beyond the request, so far.
    made_bytes: Cell<u64>,
    asked: RefCell<Option<Box<Asked>>>,
    /// What was asked for effects.
    effects_bytes: u64,
    /// The prepared branch that this access ends: its locks are no obstacle.
    settles: Option<&'s str>,
    /// A transaction keeps what is staged here.
    keeps_to_workspace: bool,
    /// The commit may take what the disk keeps for those that free space.
    takes_reserve: bool,
    /// Paged collections as a whole.
    gathered: Gathered,
    effort: Effort,
    copied: Copied,
    node_spots: NodeSpots,
    /// How often it has waited for room.
    room_waits: Cell<u32>,
    /// Whether it is to end, beside [`Prepared::end_when`].
    is_over: Option<IsOver>,
}

/// With as many deltas a collection that was read from disk is written whole by a change: it soon leaves memory again, each later read is one for each of them, and nobody
/// need fold it.
const DELTAS_READ_MAX: usize = 2;
/// Changes of what a node counts on its base, at most: who finds it cold after a crash reads each of them.
const COUNTS_MAX: usize = 32;
/// What a command makes beyond its request without asking.
const FREE_BYTES: u64 = 64 << 10;
/// Effects that are more by so much are asked for.
const EFFECTS_STEP_BYTES: u64 = 256 << 10;

impl std::fmt::Debug for Access<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("looked", &self.looked).field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'s> Access<'s> {
    pub(crate) fn new(
        store: &'s Store,
        scope: Scope<'s>,
        prepared: &'s Prepared,
        credits: Option<Credits>,
        now: Moment,
    ) -> Self {
        let only = match scope {
            _ if !store.engine_keeps() => None,
            Scope::Foreseen(KeyRef { key, .. }, Foreseen(hash)) => Some((*key, hash)),
            Scope::Keys([KeyRef { key, .. }]) => Some((*key, store.hasher.hash(key))),
            _ => None,
        };
        debug_assert!(only.is_none_or(|(key, hash)| hash == store.hasher.hash(key)), "of another key");
        let (mut guards, mut claim) = (Guards::none(), None);
        match (only, scope) {
            (Some((_, hash)), _) if prepared.stripes().is_empty() => {
                guards = Guards::one(store, hash.stripe());
            }
            (None, Scope::Claimed { keys, writes }) if store.engine_keeps() => {
                claim = Some(store.claim(keys, writes));
            }
            _ => guards = Guards::lock(store, scope, prepared),
        }
        if prepared.has_records() && claim.is_none() {
            guards.warm_all(store, scope, prepared);
            guards.warm_leaves(store, prepared);
        }
        let access = Self {
            store,
            prepared,
            late: None,
            read_anew: None,
            guards,
            claim,
            keys: scope.keys(),
            only,
            overlay: Overlay::default(),
            counted: None,
            expired: RefCell::default(),
            purged: Purged::default(),
            timed: OnceCell::new(),
            wanted: RefCell::default(),
            has_read_ahead: Cell::default(),
            drawn: Cell::default(),
            drawn_before: 0,
            made_before: (0, 0),
            looked: Cell::default(),
            touches: Cell::new(true),
            looks_at_state: Cell::new(false),
            keeps_values: false,
            now,
            credits,
            stopped: None,
            made_bytes: Cell::default(),
            asked: RefCell::default(),
            effects_bytes: 0,
            settles: None,
            keeps_to_workspace: false,
            takes_reserve: false,
            gathered: Gathered::default(),
            effort: Effort::default(),
            copied: Copied::default(),
            node_spots: NodeSpots::default(),
            room_waits: Cell::new(0),
            is_over: None,
        };
        access.look(store.index.mapping_seq());
        access
    }

    /// An access of what no command names, in one stripe.
    pub(crate) fn of_stripe(store: &'s Store, number: usize, prepared: &'s Prepared) -> Self {
        let mut access = Self::new(store, Scope::Keys(&[]), prepared, None, store.now());
        access.guards = Guards::one(store, number);
        access
    }

    /// Removes a leaf, or a note. `is_sure`: it is there, and need not be read.
    pub(crate) fn sweep(&mut self, keyspace: Keyspace, key: &[u8], is_sure: bool) {
        let hash = self.store.hasher.hash_in(keyspace, key);
        let change = Change::removal(key);
        let cause = if is_sure { Cause::Swept } else { Cause::Command };
        self.stage(Staged { db: HIDDEN_DB, keyspace, hash, change, cause });
    }

    /// Stores `value` under `key`, replacing whatever is there and its expiry.
    ///
    /// What stands against it (a value too large, memory, a cold candidate) stops [`Access::commit`].
    pub fn put(&mut self, db: u16, key: &[u8], value: Value<'_>, expiry: Option<Deadline>) {
        self.put_as(db, key, value, expiry, None);
    }

    /// As [`Access::put`]; what is logged is `delta`, if there is one.
    fn put_as(
        &mut self,
        db: u16,
        key: &[u8],
        value: Value<'_>,
        expiry: Option<Deadline>,
        delta: Option<Small>,
    ) {
        if !self.store.engine_keeps() {
            return;
        }
        if self.refuses_size(key, value.bytes().len()) {
            return;
        }
        let Some(place) = self.place(db, key) else { return };
        if let Value::Collection(kind, bytes) = value
            && self.stage_paged(place, (kind, bytes, expiry))
        {
            return;
        }
        let own = expiry.map_or(0, Deadline::raw);
        let (bytes, expiry_ms) = self.with_deadlines(value.kind(), value.bytes(), own);
        let made = match value {
            Value::Large(large) => {
                // it is counted by itself, now that it is made
                self.give_back(large.as_ref().as_ref().len() as u64);
                Some(Arc::clone(large))
            }
            Value::String(_) | Value::Collection(..) if bytes.len() >= LARGE_BYTES => {
                if self.asks(bytes.len() as u64).is_none() {
                    return;
                }
                let made = self.store.memory.large(&*bytes).ok();
                self.give_back(bytes.len() as u64);
                made
            }
            Value::String(_) | Value::Collection(..) => None,
        };
        let bytes = Bytes::of(&bytes, made.as_ref());
        let object = Object::new(value.kind(), key, bytes, expiry_ms);
        let (KeyPlace { keyspace, hash, .. }, change) = (place, Change::of(object, delta));
        self.forget_leaves(&place);
        self.stage(Staged { db, keyspace, hash, change, cause: Cause::Command });
    }

    /// Whether key and value are too large; then [`Access::commit`] says so.
    fn refuses_size(&mut self, key: &[u8], value_len: usize) -> bool {
        let (size_bytes, limit_bytes) = ((key.len() + value_len) as u64, self.store.options.value_bytes_max);
        let refuses = size_bytes > limit_bytes;
        if refuses {
            self.stopped.get_or_insert(StoreError::ValueTooLarge { size_bytes, limit_bytes }.into());
        }
        refuses
    }

    /// Removes `key`; returns whether it was there. A key whose record is damaged was.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared; [`Stop::Damaged`] when a damaged one may be another
    /// key's.
    pub fn remove(&mut self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        self.remove_for(db, key, Cause::Command)
    }

    /// As [`Access::remove`], to make room.
    ///
    /// # Errors
    /// As [`Access::remove`].
    pub(crate) fn evict(&mut self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        self.remove_for(db, key, Cause::Evicted)
    }

    fn remove_for(&mut self, db: u16, key: &[u8], cause: Cause) -> Result<bool, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(false) };
        let hash = self.hash(key);
        match self.for_state(|| self.lookup(keyspace, hash, key, db)) {
            Ok(None) => return Ok(false),
            Ok(Some(_)) => {}
            // what cannot be read can go
            Err(Stop::Damaged(_)) if self.owns_damage(keyspace, hash, key)? => {}
            Err(stop) => return Err(stop),
        }
        let change = Change::removal(key);
        self.forget_leaves(&KeyPlace { db, keyspace, hash, key });
        self.stage(Staged { db, keyspace, hash, change, cause });
        Ok(true)
    }

    /// Stops this access with [`Stop::Long`] when it would touch more than `most` elements.
    pub fn bound_effort(&mut self, most: u64) {
        self.effort.most = most;
    }

    /// Counts `elements` that are about to be touched.
    ///
    /// # Errors
    /// [`Stop::Long`] if they are more than may be touched; [`Stop::Abandoned`] if nobody waits for this any more.
    pub fn charge(&self, elements: usize) -> Result<(), Stop> {
        self.go_on()?;
        self.effort.charge(elements)
    }

    /// From now on this access ends with [`Stop::Abandoned`] once `is_over` is true, as it does when nobody waits for it any more: before it
    /// touches anything more beside the loops, or waits for memory. `None`: it goes on.
    pub fn end_when(&mut self, is_over: Option<IsOver>) {
        self.is_over = is_over;
    }

    /// # Errors
    /// [`Stop::Abandoned`] if it is to end.
    fn go_on(&self) -> Result<(), Stop> {
        let is_over = self.prepared.is_abandoned() || self.is_over.as_ref().is_some_and(|is_over| is_over());
        if is_over { Err(Stop::Abandoned) } else { Ok(()) }
    }

    /// Elements that were touched so far.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.effort.touched()
    }

    /// Adds an effect; what was put together may be another now.
    fn stage(&mut self, staged: Staged) {
        if self.counted.is_some() {
            self.settle_counts();
        }
        self.effort.note(1);
        self.gathered = Gathered::default();
        self.overlay.stage(staged);
        if self.overlay.bytes().0 > self.effects_bytes + EFFECTS_STEP_BYTES {
            self.ask_for_effects();
        }
    }

    /// Effects take so much memory that others must know of it.
    #[cold]
    fn ask_for_effects(&mut self) {
        let (bytes, log_bytes) = self.overlay.bytes();
        let more_bytes = bytes - self.effects_bytes;
        let limit_bytes = self.store.options.transaction_bytes_max;
        if log_bytes > limit_bytes {
            let error = StoreError::TransactionTooLarge { size_bytes: log_bytes, limit_bytes };
            self.stopped.get_or_insert(error.into());
        }
        if self.asks(more_bytes).is_some() {
            self.effects_bytes = bytes;
        }
    }

    /// As [`Access::ask`]; what is refused stops the command.
    fn asks(&mut self, bytes: u64) -> Option<()> {
        if let Err(stop) = self.ask(bytes) {
            self.stopped.get_or_insert(stop);
        }
        if self.stopped.is_none() { Some(()) } else { None }
    }

    /// Asks for memory before so many bytes are made that the command holds beside what it has asked for: effects, its reply, and what it
    /// needs on its way. What comes to no more than its request, and a little, it need not ask for.
    ///
    /// # Errors
    /// [`Stop::Busy`] when there will be room, which is made; [`StoreError::MemoryLimit`], [`StoreError::TooMuchAtOnce`].
    pub fn ask(&self, bytes: u64) -> Result<(), Stop> {
        loop {
            match self.ask_now(bytes) {
                Err(Stop::Busy) if self.reads_here() => self.await_room(bytes)?,
                asked => return asked,
            }
        }
    }

    /// As [`Access::ask`], of the room that there is: a stripe is locked.
    fn ask_now(&self, bytes: u64) -> Result<(), Stop> {
        let made_bytes = self.made_bytes.get().saturating_add(bytes);
        let credit_bytes = self.credits.as_ref().map_or(0, Credits::held_bytes);
        let free_bytes = FREE_BYTES + credit_bytes;
        if made_bytes > free_bytes {
            let Store { memory, index, engine, .. } = self.store;
            let more_bytes = bytes.min(made_bytes - free_bytes);
            memory.ask((index, &**engine), &mut self.asked.borrow_mut(), (more_bytes, credit_bytes))?;
        }
        self.made_bytes.set(made_bytes);
        Ok(())
    }

    /// So much of what was asked for is counted elsewhere from now on, or is gone.
    fn give_back(&self, bytes: u64) {
        self.made_bytes.set(self.made_bytes.get().saturating_sub(bytes));
        if let Some(asked) = &mut *self.asked.borrow_mut() {
            asked.take(bytes);
        }
    }

    /// What stops the command whatever it does next, if anything does.
    pub fn take_stop(&mut self) -> Option<Stop> {
        self.stopped.take()
    }

    /// Stages a whole value of a key that expires at `own` at a place where this access may have staged leaves.
    fn stage_value(&mut self, place: KeyPlace<'_>, kind: u8, value: &[u8], own: u64) {
        let KeyPlace { db, keyspace, hash, key } = place;
        self.forget_leaves(&place);
        let (value, expiry_ms) = self.with_deadlines(kind, value, own);
        let object = Object::new(kind, key, Bytes::Plain(&value), expiry_ms);
        self.stage(Staged { db, keyspace, hash, change: Change::Put(object), cause: Cause::Command });
    }

    /// Stages the removal of what is at a place.
    fn stage_removal(&mut self, place: KeyPlace<'_>) {
        let KeyPlace { db, keyspace, hash, key } = place;
        let change = Change::removal(key);
        self.stage(Staged { db, keyspace, hash, change, cause: Cause::Command });
    }

    /// Sets or (with `None`) clears the expiry of `key`; returns whether the key is there.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared.
    pub fn set_expiry(&mut self, db: u16, key: &[u8], expiry: Option<Deadline>) -> Result<bool, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(false) };
        let hash = self.hash(key);
        self.settle_counts();
        let Some(state) = self.lookup(keyspace, hash, key, db)? else { return Ok(false) };
        self.check_value(&state)?;
        if state.is_timed() || self.purged.find(keyspace, hash, key).is_some() {
            return self.set_own_expiry(db, key, expiry);
        }
        let expiry_ms = expiry.map_or(0, Deadline::raw);
        if self.keeps_to_workspace
            && let Some(value) = self.gathered(&state, (db, key))?
        {
            // leaves change and go while a transaction is open
            let kind = record::kind_of(ValueKind::of(state.kind));
            let (value, first_ms) = self.with_deadlines(kind, value, expiry_ms);
            let change = Change::Put(Object::new(kind, key, Bytes::Plain(&value), first_ms));
            self.stage(Staged { db, keyspace, hash, change, cause: Cause::Retime });
            return Ok(true);
        }
        let small = (state.value.slice().len() as u64) <= self.store.options.expiry_delta_bytes_min;
        let object = Object::new(state.kind, key, state.value, expiry_ms);
        let delta = match self.overlay.find(keyspace, hash, key).map(|staged| &staged.change) {
            None if small || !self.takes_delta(&state) => None,
            None | Some(Change::Delta { delta: Small::Expiry, .. }) => Some(Small::Expiry),
            Some(Change::Delta { delta: Small::Part { range, .. }, .. }) if expiry_ms != 0 => {
                Some(Small::Part { range: range.clone(), retimes: true })
            }
            Some(_) => None,
        };
        let change = Change::of(object, delta);
        // A value that this group stores is charged as such, whatever comes after it.
        let is_stored = state.staged && self.is_stored(keyspace, hash, key);
        let cause = if is_stored { Cause::Command } else { Cause::Retime };
        self.stage(Staged { db, keyspace, hash, change, cause });
        Ok(true)
    }

    /// The value of `key`, `None` when absent or expired.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared; [`Stop::Damaged`] when that record is damaged.
    pub fn get(&self, db: u16, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        let Some(state) = self.find(db, key)? else { return Ok(None) };
        self.check_value(&state)?;
        let gathered = self.gathered(&state, (db, key))?;
        Ok(Some(Found {
            value: gathered.unwrap_or(state.value.slice()),
            large: if gathered.is_some() { None } else { state.value.large() },
            kind: ValueKind::of(state.kind),
            expiry: Deadline::of(state.expiry_ms),
            seq: state.seq,
        }))
    }

    /// What is known of `key` without its value.
    ///
    /// # Errors
    /// As [`Access::get`]: a cold candidate must be read to know whether it is the key.
    pub fn meta(&self, db: u16, key: &[u8]) -> Result<Option<Meta>, Stop> {
        let found = self.for_state(|| self.without_use(|| self.find(db, key)))?;
        Ok(found.map(|state| {
            let leaves_bytes =
                record::root_of(state.kind, state.value.slice()).map_or(0, |root| root.all_bytes());
            let Meta { value_len, memory_bytes, .. } = state.meta();
            let memory_bytes = if memory_bytes == 0 { 0 } else { memory_bytes + leaves_bytes };
            Meta { value_len: value_len + leaves_bytes, memory_bytes, ..state.meta() }
        }))
    }

    /// As [`Access::get`], for who only looks at how the value is kept: the key counts as not used.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn peek(&self, db: u16, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        self.without_use(|| self.get(db, key))
    }

    /// Counts `key` as used; returns whether it is there.
    ///
    /// # Errors
    /// As [`Access::meta`].
    pub fn touch(&self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        let touches = self.touches.replace(true);
        let found = self.for_state(|| self.find(db, key));
        self.touches.set(touches);
        Ok(found?.is_some())
    }

    /// From now on no key counts as used, but for [`Access::touch`].
    pub fn set_without_use(&self) {
        self.touches.set(false);
    }

    /// How `key` was used: `None` when it is absent.
    ///
    /// # Errors
    /// As [`Access::meta`].
    pub fn usage(&self, db: u16, key: &[u8]) -> Result<Option<Usage>, Stop> {
        if self.for_state(|| self.without_use(|| self.find(db, key)))?.is_none() {
            return Ok(None);
        }
        let now_ms = self.now.server_ms();
        let stamped = self.keyspace(db).and_then(|keyspace| {
            let hash = self.hash(key);
            let stripe = self.at_stripe(hash.stripe()).ok()?;
            let space = stripe.space(keyspace)?;
            let Seek::At { spot, .. } = space.seek((keyspace, hash), key, self.prepared()) else {
                return None;
            };
            let (tracking, stamp) = space.table.stamp(spot)?;
            Some(tracking.usage(stamp.get(), now_ms))
        });
        // one that this access has just made is not there yet
        let tracking = self.store.eviction().tracking();
        Ok(Some(
            stamped.or_else(|| tracking.map(|it| it.usage(it.fresh(now_ms), now_ms))).unwrap_or_default(),
        ))
    }

    /// From now on values are read and kept of keys whose state alone is looked at: the next command of this access may need them, as after EXISTS.
    pub fn keep_values(&mut self) {
        self.keeps_values = true;
    }

    /// What `look` misses is read for what is known of keys: large strings are not kept. Only where others wait, since a command that needs one
    /// after all goes on elsewhere from there.
    fn for_state<T>(&self, look: impl FnOnce() -> T) -> T {
        let before = self.looks_at_state.replace(self.effort.is_bounded() && !self.keeps_values);
        let found = look();
        self.looks_at_state.set(before);
        found
    }

    fn without_use<T>(&self, look: impl FnOnce() -> T) -> T {
        let touches = self.touches.replace(false);
        let found = look();
        self.touches.set(touches);
        found
    }

    /// Number of keys of database `db`, exact; expired ones count until they are removed. Reads a counter.
    ///
    /// # Errors
    /// [`Stop::Refused`] unless the scope is [`Scope::Everything`] or [`Scope::Walk`]; [`Stop::Cold`] after staged effects
    /// on cold keys.
    pub fn len(&self, db: u16) -> Result<u64, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(0) };
        let index = &self.store.index;
        // one stripe is enough for the mapping to stand still
        let base = self.guards.with_stripe(self.store, 0, |_| index.keys_of(keyspace))?;
        // after the count: whatever it counts was appended before
        self.look(self.store.engine.newest());
        Ok(base.saturating_add_signed(self.overlay_len_change(keyspace)?))
    }

    /// Whether `watch`ed key changed since the watch began; the key must be in the scope.
    ///
    /// # Errors
    /// [`Stop::Refused`] when it is not.
    pub fn changed(&self, watch: &Watch) -> Result<bool, Stop> {
        if !self.store.engine_keeps() {
            return Ok(false);
        }
        let stripe = &*self.at_stripe(watch.stripe)?;
        if let (Some(_), Some(keyspace)) = (&stripe.locks, self.store.index.keyspace(watch.db)) {
            self.check_claim(stripe, keyspace, self.store.hasher.hash(&watch.key), false)?;
        }
        let state = stripe.watches.state(watch.db, &watch.key).unwrap_or_default();
        self.look(state.seq);
        if state.changes != watch.state.changes {
            return Ok(true);
        }
        if watch.expired {
            return Ok(false);
        }
        if state.expiries != watch.state.expiries { Ok(true) } else { self.is_expired(stripe, watch) }
    }

    /// Whether somebody waits for a change of `key`, which is in the scope.
    pub fn is_waited_for(&self, db: u16, key: &[u8]) -> bool {
        let stripe = self.guards.stripe(self.hash(key).stripe());
        stripe.is_ok_and(|stripe| stripe.watches.is_waited(db, key))
    }

    /// Lets this access touch `key`, too, if that needs no waiting: returns whether it may from now on.
    ///
    /// Where the keys are claimed it answers for those that are.
    pub fn include(&mut self, key: KeyRef<'_>) -> bool {
        if !self.store.engine_keeps() {
            return true;
        }
        let number = self.hash(key.key).stripe();
        if self.reads_here() {
            return self.has_claimed(key);
        }
        if self.guards.stripe(number).is_ok() {
            return true;
        }
        // nobody waits here, so the order of the stripes does not matter
        let Some(guard) = self.store.index.try_lock(number).filter(|_| self.claim.is_none()) else {
            return false;
        };
        self.guards.add(number, guard);
        if self.prepared.has_records() {
            self.guards.warm(self.store, self.prepared, key);
        }
        true
    }

    /// From now on each key is looked up by itself: the scope's keys are not those of one command.
    pub fn forget_order(&mut self) {
        self.keys = None;
    }

    /// The time that this access goes by.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// A number that differs from call to call, for commands that choose by chance. One that is executed again, because what it chose is
    /// cold, gets the same numbers: otherwise it would choose something else that is cold, and again.
    pub fn random(&self) -> u64 {
        let nth = self.drawn.replace(self.drawn.get() + 1);
        let late = self.late.as_ref().and_then(|late| late.seed());
        let seed = late.or_else(|| self.prepared.seed());
        let seed = seed.unwrap_or_else(|| self.wanted.borrow_mut().seed_or(|| self.store.random()));
        crate::mixed(seed.wrapping_add(nth))
    }

    /// Gives up and tells which records were missed; to be added to the prepared ones after any [`Stop`] but a final one.
    #[must_use]
    pub fn into_wanted(self) -> Wanted {
        let mut wanted = self.wanted.into_inner();
        wanted.add_read(self.late);
        wanted
    }

    /// What was read for it.
    fn prepared(&self) -> &Prepared {
        self.late.as_deref().unwrap_or(self.prepared)
    }

    /// What is staged from now on can be taken back by [`Access::undo`], up to here.
    pub fn save(&mut self) {
        self.settle_counts();
        self.overlay.save();
        self.drawn_before = self.drawn.get();
        self.made_before = (self.made_bytes.get(), self.effects_bytes);
    }

    /// Takes back what was staged since [`Access::save`], for a command that is executed again in this access: what it read decides what it
    /// does, so it must not meet its own effects.
    pub fn undo(&mut self) {
        self.drawn.set(self.drawn_before);
        // it gives back what it takes itself
        self.forget_copied();
        let (made_bytes, effects_bytes) = self.made_before;
        // else each time it is executed again it would hold as much more
        self.give_back(self.made_bytes.get().saturating_sub(made_bytes));
        self.effects_bytes = effects_bytes;
        if self.overlay.undo() {
            self.gathered = Gathered::default();
        }
    }

    /// Counts the bytes of effects from now on.
    pub fn count_effects(&mut self) {
        self.settle_counts();
        self.overlay.count();
    }

    /// Bytes of the effects so far, if they are counted.
    #[must_use]
    pub fn effect_bytes(&self) -> u64 {
        self.overlay.counted_bytes()
    }

    /// The hash of `key`, computed once where it is the only one.
    fn hash(&self, key: &[u8]) -> KeyHash {
        match self.only {
            Some((only, hash)) if only == key => hash,
            _ => self.store.hasher.hash(key),
        }
    }

    fn keyspace(&self, db: u16) -> Option<Keyspace> {
        match self.overlay.mapping() {
            Some((mapping, _)) => mapping.get(usize::from(db)).copied(),
            None => self.store.index.keyspace(db),
        }
    }

    /// Where `key` of database `db` belongs; `None` beyond the last database.
    fn place<'k>(&self, db: u16, key: &'k [u8]) -> Option<KeyPlace<'k>> {
        Some(KeyPlace { db, keyspace: self.keyspace(db)?, hash: self.hash(key), key })
    }

    #[inline]
    fn find(&self, db: u16, key: &[u8]) -> Result<Option<State<'_>>, Stop> {
        if !self.store.engine_keeps() {
            return Ok(None);
        }
        let Some(keyspace) = self.keyspace(db) else { return Ok(None) };
        self.lookup(keyspace, self.hash(key), key, db)
    }

    /// The key's state as this access sees it, without expired ones.
    #[inline]
    fn lookup(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        db: u16,
    ) -> Result<Option<State<'_>>, Stop> {
        self.lookup_into(&self.copied, (keyspace, hash), key, db)
    }

    /// As [`Access::lookup`]; what has to be copied is kept in `copied`.
    #[inline]
    fn lookup_into<'a>(
        &'a self,
        copied: &'a Copied,
        (keyspace, hash): (Keyspace, KeyHash),
        key: &[u8],
        db: u16,
    ) -> Result<Option<State<'a>>, Stop> {
        if !self.store.engine_keeps() {
            return Ok(None);
        }
        if let Some(staged) = self.overlay.find(keyspace, hash, key) {
            return Ok(match &staged.change {
                Change::Put(object) | Change::Delta { object, .. } => Some(State::staged(object)),
                Change::Remove(_) => None,
            });
        }
        if self.counted.is_some()
            && let Some(staged) = self.find_counted((keyspace, hash), key)?
        {
            return Ok(Some(State::staged(staged.object())));
        }
        self.lookup_there(copied, (keyspace, hash), key, db)
    }

    /// As [`Access::lookup_into`], whatever is staged.
    #[inline]
    fn lookup_there<'a>(
        &'a self,
        copied: &'a Copied,
        (keyspace, hash): (Keyspace, KeyHash),
        key: &[u8],
        db: u16,
    ) -> Result<Option<State<'a>>, Stop> {
        match self.guards.stripe(hash.stripe()) {
            Ok(stripe) => self.lookup_in((stripe, self.prepared()), (keyspace, hash), key, db),
            Err(_) if self.reads_here() => self.lookup_briefly(copied, (keyspace, hash), key, db),
            Err(stop) => Err(stop),
        }
    }

    /// The key's state in its stripe, with what was read of it.
    #[inline]
    fn lookup_in<'a>(
        &'a self,
        (stripe, prepared): (&'a Stripe, &'a Prepared),
        (keyspace, hash): (Keyspace, KeyHash),
        key: &[u8],
        db: u16,
    ) -> Result<Option<State<'a>>, Stop> {
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
            None => match space.seek((keyspace, hash), key, prepared) {
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
                Ok(self.purge((db, keyspace, hash), current, state))
            }
            _ => Ok(Some(state)),
        }
    }

    /// Whether the key's own time has come. Of a hash whose value is not here nobody knows whose time it is that has.
    fn is_over(&self, current: Current<'_>, times: Option<Times>) -> bool {
        let own_ms = times.map_or_else(|| current.expiry_ms(), |times| times.own);
        let is_known = || current.kind() != record::HASH || current.has_value();
        own_ms != 0 && is_known() && self.expires_by_now(own_ms, current.seq())
    }

    /// Refuses what needs a value that was left out of the read.
    fn check_value(&self, state: &State<'_>) -> Result<(), Stop> {
        if state.has_value { Ok(()) } else { Err(self.too_much_read(self.prepared().values_bytes_max())) }
    }

    /// Whether a command of this access has stored `key`.
    fn is_stored(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> bool {
        self.overlay.find(keyspace, hash, key).is_some_and(|staged| staged.cause == Cause::Command)
    }

    /// Whether a damaged record is `key`'s.
    fn owns_damage(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> Result<bool, Stop> {
        let stripe = self.at_stripe(hash.stripe())?;
        let found = stripe.seek(keyspace, hash, key, self.prepared());
        Ok(matches!(found, Seek::Damaged { own: Some(_), .. }))
    }

    /// Whether a change of this state may be a small record on top of what lies in the log.
    fn takes_delta(&self, state: &State<'_>) -> bool {
        let deltas_max = || if self.was_read(state) { DELTAS_READ_MAX } else { state.deltas_max() };
        !state.staged && self.store.engine.has_addresses() && state.deltas.len() < deltas_max()
    }

    /// Whether what a node counts may be changed by a record of `bytes` on top of what lies in the log: it is mostly part of another's.
    fn takes_count(&self, state: &State<'_>, bytes: u64) -> bool {
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
    fn is_prepared(&self, state: &State<'_>) -> bool {
        let prepared = self.prepared();
        let is_record = |object: ObjectRef<'_>| prepared.record(object.address()).is_some();
        prepared.has_records() && state.object.is_none_or(is_record)
    }

    /// Whether the deadline that effect `seq` set has passed, now or before the wall clock was set back.
    fn expires_by_now(&self, expiry_ms: u64, seq: Seq) -> bool {
        Deadline::of(expiry_ms)
            .is_some_and(|at| self.now.has_passed(at) || self.store.clock.had_passed(at, seq))
    }

    fn note_expired(&self, staged: Staged) {
        self.expired.borrow_mut().push(staged);
    }

    /// Whether the time of a watched key, or of a field of it, has come since the watch began, and nothing in the index says so.
    fn is_expired(&self, stripe: &Stripe, watch: &Watch) -> Result<bool, Stop> {
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
            let may_have = self.expires_by_now(current.expiry_ms(), current.seq());
            let base = || vec![Sought::base(word.address(), keyspace, hash)];
            return if may_have { Err(self.miss_all(space, base())) } else { Ok(false) };
        }
        if self.is_over(current, current.times()) || self.has_ended_since(watch.passed, current) {
            return Ok(true);
        }
        self.has_leaf_ended_since(watch.passed, (keyspace, current))
    }

    fn look(&self, seq: Seq) {
        self.looked.set(self.looked.get().max(seq));
    }

    fn miss(&self, records: Vec<Sought>) -> Stop {
        self.wanted.borrow_mut().add(self.as_needed(records));
        Stop::Cold
    }

    /// As [`Access::miss`], and what lies on these bases: more than one of them there is seldom.
    fn miss_all(&self, space: &Space, bases: Vec<Sought>) -> Stop {
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
