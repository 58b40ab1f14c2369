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

mod apply;
mod asking;
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
mod lookup;
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
mod reading;
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
mod told;
mod tree_edit;
mod writing;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use crate::engine::Credits;
use crate::error::Stop;
use crate::foresight::Foreseen;
use crate::hash::KeyHash;
use crate::memory::Asked;
use crate::prepared::{Prepared, Wanted};
use crate::{KeyRef, Store};
use claim::Claimed;
pub use claim_waits::ClaimReport;
pub(crate) use claim_waits::Claims;
pub use collection::{KeyedChange, ListChanged, Popped, WrongType};
use collections::Moment;
use copied::Copied;
use counts::Counted;
pub use drawn::Drawn;
use effort::Effort;
use gathered::Gathered;
use guards::Guards;
pub use guards::Scope;
use nodes::NodeSpots;
use overlay::{KeyPlace, Overlay, Staged};
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
    /// What others are to be told, and for whom it is.
    told: RefCell<Option<Box<told::Told>>>,
    origin: u64,
    /// Whether it is to end, beside [`Prepared::end_when`].
    is_over: Option<IsOver>,
}

/// The key of a scope of one, and its hash.
fn only_key<'s>(store: &Store, scope: Scope<'s>) -> Option<(&'s [u8], KeyHash)> {
    match scope {
        _ if !store.engine_keeps() => None,
        Scope::Foreseen(KeyRef { key, .. }, Foreseen(hash)) => Some((*key, hash)),
        Scope::Keys([KeyRef { key, .. }]) => Some((*key, store.hasher.hash(key))),
        _ => None,
    }
}

/// Changes of what a node counts on its base, at most: who finds it cold after a crash reads each of them.
const COUNTS_MAX: usize = 32;
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
        let only = only_key(store, scope);
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
            told: RefCell::default(),
            origin: 0,
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

    /// What stops the command whatever it does next, if anything does.
    pub fn take_stop(&mut self) -> Option<Stop> {
        self.stopped.take().or_else(|| self.take_events_stop())
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
        self.save_events();
        self.drawn_before = self.drawn.get();
        self.made_before = (self.made_bytes.get(), self.effects_bytes);
    }

    /// Takes back what was staged since [`Access::save`], for a command that is executed again in this access: what it read decides what it
    /// does, so it must not meet its own effects.
    pub fn undo(&mut self) {
        self.drawn.set(self.drawn_before);
        self.undo_events();
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
}
