//! The memory budget: what counts, what is dropped, what is refused.
//!
//! Counted: index pages and hot objects (`index`), large values, what commands have read from disk and what transactions stage (`large`), what waits in the journal (`engine`), what others report
//! in: connection buffers; and a part for what the process holds beside (`resident`). From 15/16 of `memory.limit` on, each command that stores something or has read from disk first moves a clock hand on
//! by a bounded number of pages: it drops clean hot values (their slot turns back into an address) that were read least lately, as `policy`
//! says. What was read from disk stays in memory as `policy` says, too. At the limit, effects that grow are refused by name, while reads, removals and expiry
//! changes go on. Growth that only lacks what others are storing, what waits for the disk, or what the hand may still drop, is held back:
//! it leaves a wish, and whoever makes room next, the store's own thread at the latest, makes as much.
//!
//! A command may make far more than its request: a string of 60 MB, a reply of 30 million members. It asks before it makes them
//! ([`Memory::ask`]), and holds the answer until its effects are stored and its reply is counted as a buffer.
//!
//! Invariants
//!   1. A value whose effect is not released stays hot.
//!   2. Whoever holds a stripe waits for nobody here: making room takes stripes.
//!   3. Nobody is refused before the hand has passed every value as often as it takes to drop it, and found nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use journal::{Keyspace, Seq};

use crate::engine::Engine;
use crate::error::{Stop, StoreError};
use crate::hash::STRIPES;
use crate::index::Index;
use crate::index::stripe::Deltas;
use crate::large::{Held, LARGE_BYTES, Large, Ledger};
use crate::locks::lock;
use crate::log::wishes::FOLD_CHANGES_MIN;
use crate::object::{ObjectRef, View, WORD_DELTAS, Word};
use crate::options::Options;
use crate::policy::{LEVEL_MAX, Room, Round, Verdict, admit};
use crate::record;
use crate::vacate::gate::Gate;

/// The budget.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    limit_bytes: AtomicU64,
    reported_bytes: AtomicU64,
    /// Most that will be reported.
    reported_bytes_max: AtomicU64,
    /// Held against the limit for what is resident and not counted (`resident`).
    process_bytes: AtomicU64,
    ledger: Ledger,
    /// Sum of what is reserved, about to be, or read: counted here before it is counted as used, and until after.
    reserved_bytes: Arc<AtomicU64>,
    /// Held by who is about to reserve, who may wait for stripes meanwhile.
    reserving: Mutex<()>,
    /// Those who wait for memory that the store's own thread reserves for them, in the order in which they came.
    awaiting: Mutex<VecDeque<Awaiting>>,
    hand: Mutex<Hand>,
    /// A read has made a value hot since the hand last found nothing to drop.
    has_warmed: AtomicBool,
    /// The hand has found nothing to drop, and looks again when more than this is released: as much more as was while it looked. So
    /// effects that leave nothing to drop keep nobody waiting.
    barren_until: AtomicU64,
    /// What those lack who are held back.
    wished_bytes: AtomicU64,
    /// What commands have asked for and hold ([`Memory::ask`]).
    asked_bytes: Arc<AtomicU64>,
    /// Values that were read so far, where none is to stay in memory.
    always_cold: Option<AtomicU64>,
    waker: Waker,
    /// Where those wait who store more while too much is resident.
    pub(crate) gate: Gate,
    /// Held by the thread that reads a large record.
    turn: Mutex<()>,
}

/// The turn of a thread that reads a large record ([`Memory::begin_read`]).
#[derive(Debug)]
pub(crate) struct Turn<'m> {
    _turn: Option<MutexGuard<'m, ()>>,
    _passing: Passing,
}

/// Memory that is counted, and that others see as gone soon, until this is dropped.
#[derive(Debug)]
pub(crate) struct Passing {
    held: Held,
    /// The sum of what others see so.
    all_bytes: Arc<AtomicU64>,
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.held.bytes(), Ordering::SeqCst);
    }
}

/// Wakes the thread that makes room for those who wait.
#[derive(Default)]
struct Waker(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Waker {
    fn wake(&self) {
        if let Some(wake) = self.0.get() {
            wake();
        }
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waker")
    }
}

/// Where the clock stands.
#[derive(Debug, Default)]
struct Hand {
    stripe: usize,
    space: usize,
    bits: u64,
    /// Stripes passed since anything was dropped.
    barren_stripes: usize,
    /// What it has met since it began at stripe 0.
    round: Round,
    /// What was released when it last dropped something, or began to look.
    began_at: Seq,
}

/// Memory that a command asked for before it used it; held until this is dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    held: Held,
    /// All that was asked for, also what others count by now: what is free for all is not free again for who has had it.
    bytes: u64,
    all_bytes: Arc<AtomicU64>,
}

/// Memory held by [`crate::Store::ask_memory`].
#[derive(Debug)]
pub struct AskedMemory {
    pub(crate) _asked: Option<Box<Asked>>,
}

impl Asked {
    /// So much of it is counted by others from now on, or not needed.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.held.take(bytes.min(self.held.bytes()));
    }

    fn add(&mut self, bytes: u64) {
        self.held.add(bytes);
        self.bytes += bytes;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// Memory by parts, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Index pages and values; large ones as long as anybody holds them.
    pub index_bytes: u64,
    /// Large values, and what transactions stage, alone; part of `index_bytes`.
    pub large_bytes: u64,
    /// Buffers that others reported in, and what waits in the journal for the disk.
    pub reported_bytes: u64,
    /// What waits in the journal alone; part of `reported_bytes`.
    pub journal_bytes: u64,
    /// What the process holds beside all that, as far as it takes a part of the limit: code, stacks, free memory of the allocator.
    pub process_bytes: u64,
    /// The setting; 0 is none.
    pub limit_bytes: u64,
}

impl MemoryReport {
    /// All that takes a part of the limit.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.counted_bytes() + self.process_bytes
    }

    /// Of that, what was counted when it was allocated.
    #[must_use]
    pub fn counted_bytes(&self) -> u64 {
        self.index_bytes + self.reported_bytes
    }
}

/// Memory held by [`crate::Store::reserve_memory`].
#[derive(Debug)]
pub struct Reserved {
    held: Held,
    /// Of the value itself.
    value_bytes: u64,
    /// Held for the copy, and for its way to the disk.
    copy_bytes: u64,
    disk_bytes: u64,
    /// What others see as gone soon, and its sum.
    passing_bytes: u64,
    all_bytes: Arc<AtomicU64>,
}

/// Memory that the store's own thread reserves for one who may not look for it himself ([`crate::Store::reserve_memory_soon`]). Dropped, it is given back.
#[derive(Debug)]
pub struct AwaitedMemory {
    /// Bytes of the value, and whether it is copied already.
    wanted: (u64, bool),
    grant: Arc<Grant>,
}

/// What came of it; `None` before that.
type Grant = Mutex<Option<Result<Reserved, Stop>>>;

/// The same as the store's own thread sees it: who waits may be gone.
#[derive(Debug)]
struct Awaiting {
    wanted: (u64, bool),
    grant: Weak<Grant>,
}

impl Reserved {
    /// Whether a value of `bytes`, more than 0, can be made with it.
    #[must_use]
    pub fn has_room_for(&self, bytes: u64) -> bool {
        bytes > 0 && self.copy_bytes >= bytes
    }

    /// The value was copied or made, and is counted by itself from now on.
    pub fn copied(&mut self) {
        self.held.take(std::mem::take(&mut self.copy_bytes));
    }

    /// The journal has credits for it, and counts by itself from now on what will wait there. Counted twice, a value that fits
    /// would wait for itself.
    pub fn credited(&mut self) {
        self.held.take(std::mem::take(&mut self.disk_bytes));
        self.pass(0);
    }

    /// The copy waits, to be stored later. Others for whom there is no room wait for it; as long as it was nothing to them, they were
    /// refused.
    pub fn parked(&mut self) {
        self.credited();
        self.pass(self.value_bytes);
    }

    fn pass(&mut self, bytes: u64) {
        self.all_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.all_bytes.fetch_sub(std::mem::replace(&mut self.passing_bytes, bytes), Ordering::SeqCst);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pass(0);
    }
}

impl Memory {
    /// A budget as `options` say.
    pub(crate) fn with(options: &Options) -> Self {
        let always_cold = options.is_always_cold.then(AtomicU64::default);
        let gate = Gate::new(options.resident_bytes);
        Self { always_cold, gate, ..Self::new(options.memory_limit_bytes) }
    }

    /// A budget of `limit_bytes`, 0 for none.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes: AtomicU64::new(limit_bytes),
            reported_bytes: AtomicU64::new(0),
            reported_bytes_max: AtomicU64::new(0),
            process_bytes: AtomicU64::new(0),
            ledger: Ledger::default(),
            reserved_bytes: Arc::default(),
            reserving: Mutex::default(),
            awaiting: Mutex::default(),
            hand: Mutex::default(),
            has_warmed: AtomicBool::new(false),
            barren_until: AtomicU64::new(0),
            wished_bytes: AtomicU64::new(0),
            asked_bytes: Arc::default(),
            always_cold: None,
            waker: Waker::default(),
            gate: Gate::default(),
            turn: Mutex::default(),
        }
    }

    /// Has `wake` called when somebody waits for room that can be made.
    pub(crate) fn set_waker(&self, wake: impl Fn() + Send + Sync + 'static) {
        let is_first = self.waker.0.set(Box::new(wake)).is_ok();
        debug_assert!(is_first, "set twice");
    }

    /// Whether somebody waits for room that can be made.
    pub(crate) fn is_wished(&self) -> bool {
        self.wished_bytes.load(Ordering::Relaxed) > 0
    }

    /// The limit, 0 for none.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Takes note of what buffers elsewhere hold now, and of the most that they will.
    pub(crate) fn report_buffers(&self, bytes: u64, bytes_max: u64) {
        let grown_bytes = bytes.saturating_sub(self.reported_bytes.swap(bytes, Ordering::Relaxed));
        if grown_bytes > 0 {
            // who fills buffers is not held up: pages go back meanwhile
            let _ = self.awaits_pages(grown_bytes, 0);
        }
        self.reported_bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Holds `bytes` against the limit for what is resident and not counted.
    pub(crate) fn hold_for_process(&self, bytes: u64) {
        self.process_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether `bytes` are not to be stored before pages have gone back to the system, by one who made `own_bytes` for the same so far: [`Stop::Busy`].
    pub(crate) fn awaits_pages(&self, bytes: u64, own_bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        self.gate.waits((bytes, own_bytes), limit_bytes, || self.waker.wake())
    }

    /// Counts a record of `bytes` that the store has read for itself, if it is a large one.
    pub(crate) fn count_copy(&self, bytes: u64) -> Option<Passing> {
        (bytes >= TURN_BYTES_MIN).then(|| self.pass(bytes))
    }

    fn pass(&self, bytes: u64) -> Passing {
        let (mut held, all_bytes) = (Held::new(&self.ledger), Arc::clone(&self.reserved_bytes));
        all_bytes.fetch_add(bytes, Ordering::SeqCst);
        held.add(bytes);
        Passing { held, all_bytes }
    }

    /// Counts a record of `bytes` that the calling thread is about to read from disk, until the result is dropped. `None`: a record of that size is not counted.
    ///
    /// Who `may_wait` first waits for its turn, so that no other that may reads one as large; then for room and for the gate, [`READ_WAIT_MAX`] for each at most.
    /// `journal_bytes` tells what waits in the journal.
    pub(crate) fn begin_read(
        &self,
        (index, journal_bytes): (&Index, &dyn Fn() -> u64),
        bytes: u64,
        may_wait: bool,
    ) -> Option<Turn<'_>> {
        if bytes < TURN_BYTES_MIN {
            return None;
        }
        let turn = may_wait.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        // others for whom there is no room wait for its end: who overwrites a large value must not have another refused
        let passing = self.pass(bytes);
        if may_wait {
            let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
            let is_full = || self.report_of(index, journal_bytes()).used_bytes() > limit_bytes;
            if limit_bytes > 0 && is_full() {
                self.wish(bytes, limit_bytes);
                self.gate.wait_while(READ_WAIT_MAX, is_full);
            }
            if self.awaits_pages(bytes, 0) {
                self.gate.wait_while(READ_WAIT_MAX, || self.gate.is_closed());
            }
        }
        Some(Turn { _turn: turn, _passing: passing })
    }

    /// `value` as one to share, if it is large; a borrowed one is copied.
    pub(crate) fn large<B: AsRef<[u8]> + Into<Box<[u8]>>>(&self, value: B) -> Result<Arc<Large>, B> {
        if value.as_ref().len() < LARGE_BYTES {
            Err(value)
        } else {
            Ok(Large::new(value.into(), &self.ledger))
        }
    }

    /// Bytes of values that one command may read from disk and hold.
    pub(crate) fn read_bytes_max(&self) -> u64 {
        match self.limit_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit_bytes => limit_bytes / READ_SHARE,
        }
    }

    /// What large values are counted in.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Drops clean hot values that were read least lately, until memory is well within its limit, `pages` were visited or
    /// whole rounds found none.
    ///
    /// `for_bytes` are to come beside what is used, or what those lack who wait. Takes one stripe's lock at a time; callers hold none.
    /// Whoever comes while another drops does not wait. Returns whether something was dropped.
    pub(crate) fn make_room(&self, index: &Index, engine: &dyn Engine, pages: usize, for_bytes: u64) -> bool {
        let mut has_dropped = false;
        let wished_bytes = self.wished_bytes.load(Ordering::Relaxed);
        let for_bytes = for_bytes.max(wished_bytes);
        let has_room = || self.has_room(index, engine, for_bytes);
        if !has_room() && engine.has_addresses() {
            let Ok(mut hand) = self.hand.try_lock() else { return false };
            let released = engine.released().min(engine.newest());
            has_dropped = self.move_hand(&mut hand, (index, engine), released, pages, for_bytes);
        }
        if wished_bytes > 0 && (has_room() || !self.may_drop(engine)) {
            // what was wished meanwhile is wished again: who waits comes again by itself
            self.wished_bytes.store(0, Ordering::Relaxed);
        }
        has_dropped
    }

    /// Drops clean hot values of about `bytes` that were read least lately, whatever is used; returns whether there were any. Callers hold no stripe.
    pub(crate) fn shed(&self, index: &Index, engine: &dyn Engine, bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let used_bytes = self.used(index, engine);
        let room_bytes = (limit_bytes - limit_bytes / ROOM_SHARE).saturating_sub(used_bytes);
        self.make_room(index, engine, usize::MAX, room_bytes + bytes)
    }

    /// Drops every value that can leave memory, whatever the policy says: for tests. Callers hold no stripe.
    #[cold]
    pub(crate) fn drop_all(&self, index: &Index, engine: &dyn Engine) {
        if !engine.has_addresses() {
            return;
        }
        let released = engine.released().min(engine.newest());
        for number in 0..STRIPES {
            let (mut stripe, mut at) = (index.lock(number), 0);
            let mut freed_bytes = 0;
            while let Some((_, space)) = stripe.space_at_mut(at) {
                let mut next = Some(0);
                while let Some(bits) = next {
                    let (following, freed) = space.visit_words(bits, &mut |word, _| {
                        if word.object().is_some() {
                            word.set_level(0);
                            pass(word, released, &mut Round::default(), true, |_| false);
                        }
                    });
                    next = following;
                    freed_bytes += freed;
                }
                at += 1;
            }
            stripe.unreported_bytes -= freed_bytes;
            index.account(stripe.take_unreported());
        }
    }

    /// Whether the hand may find something to drop.
    pub(crate) fn may_drop(&self, engine: &dyn Engine) -> bool {
        let is_more_released =
            || engine.released().min(engine.newest()).0 > self.barren_until.load(Ordering::SeqCst);
        engine.has_addresses() && (self.has_warmed.load(Ordering::Relaxed) || is_more_released())
    }

    /// Leaves a wish for `bytes`.
    fn wish(&self, bytes: u64, limit_bytes: u64) {
        let bytes = bytes.clamp(1, limit_bytes.max(1));
        if self.wished_bytes.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.waker.wake();
        }
    }

    fn move_hand(
        &self,
        hand: &mut Hand,
        (index, engine): (&Index, &dyn Engine),
        released: Seq,
        pages: usize,
        for_bytes: u64,
    ) -> bool {
        if !self.may_drop(engine) {
            return false;
        }
        let mut has_dropped = false;
        if self.has_warmed.swap(false, Ordering::Relaxed) || self.barren_until.load(Ordering::SeqCst) > 0 {
            // whole rounds from here on, after those that found nothing
            (hand.barren_stripes, hand.began_at) = (0, released);
            self.barren_until.store(0, Ordering::SeqCst);
        }
        for _ in 0..pages {
            if self.has_room(index, engine, for_bytes) {
                break;
            }
            let hurries = !self.used_within(index, engine, HURRY_SHARE, for_bytes);
            if hand.advance(index, engine, released, (hurries, self.folding_bytes_max(hurries))) {
                (hand.barren_stripes, hand.began_at) = (0, released);
                has_dropped = true;
            } else if hand.barren_stripes > BARREN_STRIPES_MAX {
                hand.barren_stripes = 0;
                let meanwhile = released.0.saturating_sub(hand.began_at.0);
                self.barren_until.store(released.0 + meanwhile, Ordering::SeqCst);
                break;
            }
        }
        has_dropped
    }

    /// Bytes of values that may stay in memory until they are folded: fewer where room is needed at once, but some. A load needs room all the
    /// time, and what it leaves unfolded each later read pays for.
    pub(crate) fn folding_bytes_max(&self, hurries: bool) -> u64 {
        let share = if hurries { HURRIED_FOLDING_SHARE } else { FOLDING_SHARE };
        match self.limit_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit_bytes => limit_bytes / share,
        }
    }

    /// Whether used memory and `bytes` more are well within the limit.
    pub(crate) fn has_room(&self, index: &Index, engine: &dyn Engine, bytes: u64) -> bool {
        self.used_within(index, engine, ROOM_SHARE, bytes)
    }

    /// What becomes of a value that was just read from disk, and is counted in what is used, from a slot with or without a mark. It
    /// may take a little more than `make_room` leaves; the next command makes up for it.
    pub(crate) fn verdict(&self, index: &Index, engine: &dyn Engine, is_marked: bool) -> Verdict {
        if let Some(reads) = &self.always_cold {
            let is_even = reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            return if is_even { Verdict::Keep(0) } else { Verdict::Mark };
        }
        let room = if self.used_within(index, engine, AMPLE_SHARE, 0) {
            Room::Ample
        } else if self.used_within(index, engine, FULL_SHARE, 0) {
            Room::Short
        } else {
            Room::Full
        };
        admit(is_marked, room)
    }

    /// Whether used memory and `bytes` more leave a `share`-th of the limit.
    fn used_within(&self, index: &Index, engine: &dyn Engine, share: u64, bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        limit_bytes == 0
            || self.used(index, engine).saturating_add(bytes) <= limit_bytes - limit_bytes / share
    }

    /// Takes note that a read has made a value hot.
    pub(crate) fn on_warm(&self) {
        self.has_warmed.store(true, Ordering::Relaxed);
    }

    /// Refuses growth past the limit, for one who has credits for `own_credit_bytes`; holds it back where there will be room once the
    /// disk has caught up, or large values that are being stored are.
    pub(crate) fn admit(
        &self,
        index: &Index,
        engine: &dyn Engine,
        own_credit_bytes: u64,
    ) -> Result<(), Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let used_bytes = self.used(index, engine);
        if limit_bytes == 0 || used_bytes <= limit_bytes {
            return Ok(());
        }
        Err(self.lacks((index, engine), (0, own_credit_bytes), (0, 0), limit_bytes))
    }

    /// Holds `bytes` more for a command that is about to make them, which holds `asked` so far and has credits for `own_credit_bytes`.
    /// Those who read go on where data fills memory: all together may hold a [`ASKED_SHARE`]-th of the limit whatever is used.
    pub(crate) fn ask(
        &self,
        (index, engine): (&Index, &dyn Engine),
        asked: &mut Option<Box<Asked>>,
        (bytes, own_credit_bytes): (u64, u64),
    ) -> Result<(), Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let own_bytes = asked.as_ref().map_or(0, |asked| asked.held.bytes());
        if limit_bytes != 0 && own_bytes + bytes > limit_bytes {
            return Err(StoreError::TooMuchAtOnce { bytes: own_bytes + bytes, limit_bytes }.into());
        }
        if self.awaits_pages(bytes, own_bytes) {
            return Err(Stop::Busy);
        }
        let others_bytes = self.asked_bytes.fetch_add(bytes, Ordering::SeqCst);
        let is_free = others_bytes + bytes <= limit_bytes / ASKED_SHARE;
        if limit_bytes == 0
            || is_free
            || self.used(index, engine).saturating_add(bytes) <= limit_bytes - limit_bytes / ASKED_SHARE
        {
            let all_bytes = &self.asked_bytes;
            let asked = asked.get_or_insert_with(|| {
                Box::new(Asked { held: Held::new(&self.ledger), bytes: 0, all_bytes: Arc::clone(all_bytes) })
            });
            asked.add(bytes);
            return Ok(());
        }
        self.asked_bytes.fetch_sub(bytes, Ordering::SeqCst);
        // twice as much: one that asks bit by bit would begin anew for each of them
        let lacked_bytes = (bytes + limit_bytes / ASKED_SHARE, 2 * (own_bytes + bytes));
        Err(self.lacks((index, engine), (0, own_credit_bytes), lacked_bytes, limit_bytes))
    }

    /// Refuses what a transaction would hold, were there no room for its commit beside it: its image or records wait in the journal, and
    /// its values are there twice for a moment.
    pub(crate) fn admit_staged(&self, size_bytes: u64) -> Result<(), StoreError> {
        match self.limit_bytes.load(Ordering::Relaxed) / STAGED_SHARE {
            limit_bytes if limit_bytes > 0 && size_bytes > limit_bytes => {
                Err(StoreError::StagedTooMuch { size_bytes, limit_bytes })
            }
            _ => Ok(()),
        }
    }

    /// What becomes of one for whom there is no room, who reserved `own_bytes` himself, has credits for `own_credit_bytes` and lacks
    /// `bytes` beside that: others give back what they reserved, what waits for the disk leaves, what has come there can be dropped, for
    /// which a wish of `wished_bytes` is left, or it is refused.
    fn lacks(
        &self,
        (index, engine): (&Index, &dyn Engine),
        (own_bytes, own_credit_bytes): (u64, u64),
        (bytes, wished_bytes): (u64, u64),
        limit_bytes: u64,
    ) -> Stop {
        let (used_bytes, for_now_bytes) = loop {
            // First: what a group reserved for its way to the disk is given back when the journal counts it.
            let reserved_bytes = self.reserved_bytes.load(Ordering::SeqCst);
            // What waits is counted there, and until it is released as a value that cannot be dropped.
            let waiting_bytes = 2 * engine.waiting_bytes().saturating_sub(own_credit_bytes);
            // After that look: what waited before may have left meanwhile.
            let used_bytes = self.used(index, engine);
            if self.reserved_bytes.load(Ordering::SeqCst) == reserved_bytes {
                break (used_bytes, waiting_bytes + reserved_bytes - own_bytes);
            }
        };
        // Looked at last: what waited above may have been released meanwhile.
        if self.may_drop(engine) {
            self.wish(wished_bytes, limit_bytes);
            return Stop::Busy;
        }
        if used_bytes.saturating_add(bytes).saturating_sub(for_now_bytes) <= limit_bytes {
            return Stop::Busy;
        }
        // hot values are on disk as well, and were dropped
        let lasting_bytes = index.memory_bytes() + self.process_bytes.load(Ordering::Relaxed) + own_bytes;
        let may_pass = engine.has_addresses() && lasting_bytes <= limit_bytes;
        StoreError::MemoryLimit { used_bytes, limit_bytes, may_pass }.into()
    }

    /// Holds `bytes` for a large value that is about to be made, unless that has happened, and as many again where it will wait
    /// for the disk, until the result is dropped; drops values for it that are not needed here. Several at a time leave what buffers
    /// elsewhere may come to, so that no small write is refused for them when they do. Who only lacks what others hold in this way,
    /// or what waits for the disk, is to come again.
    pub(crate) fn reserve(
        &self,
        parts: (&Index, &dyn Engine),
        wanted: (u64, bool),
    ) -> Result<Reserved, Stop> {
        let reserving = lock(&self.reserving);
        // All that can go is looked for at once: one that stopped short of it would be told to wait, again and again, where nothing can.
        self.reserve_alone(&reserving, parts, wanted, RESERVE_PAGES_MAX)
    }

    /// What came of the memory that is awaited, if it is the one that is `wanted`.
    pub(crate) fn take_awaited(
        &self,
        wanted: (u64, bool),
        awaited: &mut Option<AwaitedMemory>,
    ) -> Option<Result<Reserved, Stop>> {
        let before = awaited.take_if(|before| before.wanted == wanted)?;
        let granted = lock(&before.grant).take();
        Some(granted.unwrap_or_else(|| {
            *awaited = Some(before);
            Err(Stop::Busy)
        }))
    }

    /// As [`Memory::reserve`] for one whom others wait for, and who awaits nothing of that size: a few pages are looked at, and nobody is waited for. Where that does not suffice the store's
    /// own thread does the rest, and leaves the result in `awaited`.
    pub(crate) fn reserve_soon(
        &self,
        parts: (&Index, &dyn Engine),
        wanted: (u64, bool),
        awaited: &mut Option<AwaitedMemory>,
    ) -> Result<Reserved, Stop> {
        if let Ok(reserving) = self.reserving.try_lock() {
            let reserved = self.reserve_alone(&reserving, parts, wanted, ROOM_PAGES_MAX);
            if reserved.is_err() {
                // what was found for something else is given back: whoever kept it would wait for himself
                *awaited = None;
            }
            match reserved {
                Err(Stop::Busy) if self.may_drop(parts.1) => {}
                done => return done,
            }
        }
        // whoever waits keeps no copy
        let (wanted, grant) = ((wanted.0, false), Arc::<Grant>::default());
        lock(&self.awaiting).push_back(Awaiting { wanted, grant: Arc::downgrade(&grant) });
        *awaited = Some(AwaitedMemory { wanted, grant });
        self.waker.wake();
        Err(Stop::Busy)
    }

    /// Reserves for those who wait for it; returns whether there were any. Callers hold no stripe.
    pub(crate) fn grant_awaited(&self, parts: (&Index, &dyn Engine)) -> bool {
        let waiting = std::mem::take(&mut *lock(&self.awaiting));
        let mut has_granted = false;
        for Awaiting { wanted, grant } in waiting {
            if let Some(grant) = grant.upgrade() {
                let result = self.reserve(parts, wanted);
                *lock(&grant) = Some(result);
                has_granted = true;
            }
        }
        has_granted
    }

    /// Reserves after a look at `pages_max` pages at most; the lock of `reserving` is held.
    fn reserve_alone(
        &self,
        _reserving: &MutexGuard<'_, ()>,
        (index, engine): (&Index, &dyn Engine),
        (bytes, is_copied): (u64, bool),
        pages_max: usize,
    ) -> Result<Reserved, Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let (value_bytes, copy_bytes) = (bytes, if is_copied { 0 } else { bytes });
        let disk_bytes = if engine.has_addresses() { bytes } else { 0 };
        let bytes = copy_bytes + disk_bytes;
        let others_bytes = self.reserved_bytes.fetch_add(bytes, Ordering::SeqCst);
        let mut held = Held::new(&self.ledger);
        held.add(bytes);
        let reserved = Reserved {
            held,
            value_bytes,
            copy_bytes,
            disk_bytes,
            passing_bytes: bytes,
            all_bytes: Arc::clone(&self.reserved_bytes),
        };
        let to_come_bytes = self.reported_bytes_max.load(Ordering::Relaxed);
        let to_come_bytes = to_come_bytes.saturating_sub(self.reported_bytes.load(Ordering::Relaxed));
        let beside_bytes = if others_bytes == 0 { 0 } else { to_come_bytes };
        self.make_room(index, engine, pages_max, beside_bytes);
        let used_bytes = self.used(index, engine);
        if limit_bytes == 0 || used_bytes.saturating_add(beside_bytes) <= limit_bytes {
            return Ok(reserved);
        }
        Err(self.lacks((index, engine), (bytes, 0), (0, bytes + beside_bytes), limit_bytes))
    }

    /// Memory by parts.
    pub(crate) fn report(&self, index: &Index, engine: &dyn Engine) -> MemoryReport {
        self.report_of(index, engine.buffered_bytes())
    }

    fn report_of(&self, index: &Index, journal_bytes: u64) -> MemoryReport {
        let large_bytes = self.ledger.bytes();
        MemoryReport {
            index_bytes: index.memory_bytes() + large_bytes,
            large_bytes,
            reported_bytes: self.reported_bytes.load(Ordering::Relaxed) + journal_bytes,
            journal_bytes,
            process_bytes: self.process_bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes.load(Ordering::Relaxed),
        }
    }

    fn used(&self, index: &Index, engine: &dyn Engine) -> u64 {
        self.report(index, engine).used_bytes()
    }
}

impl Hand {
    /// Visits one page; returns whether something was dropped.
    fn advance(
        &mut self,
        index: &Index,
        engine: &dyn Engine,
        released: Seq,
        (hurries, folding_bytes_max): (bool, u64),
    ) -> bool {
        let mut stripe = index.lock(self.stripe);
        let Some((keyspace, space)) = stripe.space_at_mut(self.space) else {
            drop(stripe);
            (self.stripe, self.space, self.bits) = ((self.stripe + 1) % STRIPES, 0, 0);
            self.barren_stripes += 1;
            if self.stripe == 0 {
                self.round.end();
            }
            return false;
        };
        let (next, freed) = space.visit_words(self.bits, &mut |word, deltas| {
            let folds =
                |object: ObjectRef<'_>| is_folded(engine, (keyspace, object), deltas, folding_bytes_max);
            pass(word, released, &mut self.round, hurries, folds);
        });
        stripe.unreported_bytes -= freed;
        index.account(std::mem::take(&mut stripe.unreported_bytes));
        match next {
            Some(bits) => self.bits = bits,
            None => (self.space, self.bits) = (self.space + 1, 0),
        }
        freed > 0
    }
}

/// Whether a value is to be folded before it leaves memory, and will be.
fn is_folded(
    engine: &dyn Engine,
    (keyspace, object): (Keyspace, ObjectRef<'_>),
    deltas: &Deltas,
    bytes_max: u64,
) -> bool {
    deltas.has_changes(object.address(), FOLD_CHANGES_MIN) && engine.wish_fold(keyspace, object, bytes_max)
}

/// The hand passes `word`: a clean hot one whose turn it is becomes its address, unless it is to be folded first, as `folds` says.
pub(crate) fn pass(
    word: &mut Word,
    released: Seq,
    round: &mut Round,
    hurries: bool,
    folds: impl FnOnce(ObjectRef<'_>) -> bool,
) {
    let View::Hot(object) = word.view() else {
        if word.is_marked() && !round.pass_mark() {
            word.set_marked(false);
        }
        return;
    };
    if object.kind() == record::REMOVED || object.seq() > released {
        return;
    }
    match round.pass_value(word.level(), hurries) {
        Some(level) => word.set_level(level),
        None if word.marks() & WORD_DELTAS != 0 && folds(object) => {}
        None => *word = Word::cold(object.address(), word.marks()),
    }
}

/// Values leave memory until this share of the limit is free.
const ROOM_SHARE: u64 = 16;

/// With this share free, what is read stays in memory whatever it is.
const AMPLE_SHARE: u64 = 8;

/// With less than this share free, nothing that is read stays in memory.
const FULL_SHARE: u64 = 64;

/// What commands have asked for may come to this share of the limit although data fills it; what they ask for beyond leaves as much free.
pub(crate) const ASKED_SHARE: u64 = 16;

/// What one transaction may stage is the limit divided by this.
const STAGED_SHARE: u64 = 4;

/// With less than this share free, the hand hurries: what grows is refused soon.
const HURRY_SHARE: u64 = 32;

/// Of the limit this share is for values that wait to be folded; and if the hand hurries.
const FOLDING_SHARE: u64 = 8;
const HURRIED_FOLDING_SHARE: u64 = 32;

/// Stripes in which the hand finds nothing before it gives up: by then every value that can go has come to level 0, and was
/// passed again.
const BARREN_STRIPES_MAX: usize = (LEVEL_MAX as usize + 1) * STRIPES;

/// What one command may read from disk is the limit divided by this: some of them at a time leave room for the rest.
const READ_SHARE: u64 = 8;

/// Larger records are read one at a time: each reader's buffer and what it becomes came to several times what memory had left.
const TURN_BYTES_MIN: u64 = 256 << 10;
/// How long such a reader waits for room, and then for pages: a pass has others wait no longer, either.
const READ_WAIT_MAX: Duration = Duration::from_millis(150);

/// Pages visited for what a command asks at once, at most.
pub(crate) const RESERVE_PAGES_MAX: usize = 16_384;

/// Pages that one command visits at most to make room: about 0.1 ms.
pub(crate) const ROOM_PAGES_MAX: usize = 64;

#[cfg(test)]
impl Memory {
    /// For as long as the result lives, somebody else makes room.
    pub(crate) fn as_if_making_room(&self) -> impl Drop + '_ {
        self.hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::large::Bytes;
    use crate::object::Object;
    use crate::testlog::{TestLog, at};

    #[test]
    fn value_with_changes_leaves_memory_once_nobody_folds_it() {
        let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), 0);
        object.stamp(at(8), Seq(5));
        let (mut word, mut round) = (Word::hot(object, WORD_DELTAS), Round::default());
        pass(&mut word, Seq(5), &mut round, false, |object| object.address() == at(8));
        assert!(word.object().is_some(), "it is to be folded");
        pass(&mut word, Seq(5), &mut round, false, |_| false);
        assert!(matches!(word.view(), View::Cold(address) if address == at(8)));
        assert_eq!(word.marks(), WORD_DELTAS);
    }

    #[test]
    fn hand_turns_a_released_value_that_is_not_read_into_its_address_and_leaves_few_marks_alone() {
        let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), 0);
        object.stamp(at(8), Seq(5));
        let (mut word, mut round) = (Word::hot(object, 0), Round::default());
        word.refer();
        pass(&mut word, Seq(4), &mut round, false, |_| false);
        assert_eq!(word.level(), 1, "its effect is not released: the hand does not count");
        pass(&mut word, Seq(5), &mut round, false, |_| false);
        assert_eq!(word.level(), 0);
        pass(&mut word, Seq(5), &mut round, false, |_| false);
        assert!(matches!(word.view(), View::Cold(address) if address == at(8)) && !word.is_marked());
        word.set_marked(true);
        pass(&mut word, Seq(5), &mut round, false, |_| false);
        assert!(word.is_marked(), "one mark beside two values");
        (0..2).for_each(|_| {
            round = Round::default();
            pass(&mut word, Seq(5), &mut round, false, |_| false);
            round.end();
        });
        pass(&mut word, Seq(5), &mut round, false, |_| false);
        assert!(
            matches!(word.view(), View::Cold(address) if address == at(8)) && !word.is_marked(),
            "a mark beside no values"
        );
    }

    #[test]
    fn large_record_is_counted_while_it_is_read_and_only_who_may_wait_takes_turns() {
        let (index, memory) = (Index::new(1), Memory::new(1 << 20));
        let begin = |bytes, may_wait| memory.begin_read((&index, &|| 0), bytes, may_wait);
        assert!(begin(TURN_BYTES_MIN - 1, true).is_none());
        let first = begin(TURN_BYTES_MIN, true).expect("it is large");
        assert_eq!(memory.ledger.bytes(), TURN_BYTES_MIN);
        assert!(memory.turn.try_lock().is_err(), "no other has a turn");
        // it may be the thread that makes room, or hold stripes that this one needs
        let beside = begin(64 << 20, false).expect("it is large");
        assert_eq!((memory.ledger.bytes(), memory.is_wished()), (TURN_BYTES_MIN + (64 << 20), false));
        drop((first, beside));
        assert_eq!(memory.ledger.bytes(), 0);
        // there never is room, and the wait ends
        drop(begin(2 << 20, true).expect("it is large"));
        assert!(memory.is_wished() && memory.turn.try_lock().is_ok());
    }

    fn is_held_back<T>(result: Result<T, Stop>) -> bool {
        match result {
            Ok(_) => panic!("there is no room"),
            Err(stop) => matches!(stop, Stop::Busy),
        }
    }

    /// What was released just after the hand had passed, and could be dropped, was taken for what never can.
    #[test]
    fn what_was_released_since_the_hand_looked_is_looked_at_before_anybody_is_refused() {
        let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
        memory.report_buffers(1_001, 1_001);
        memory.make_room(&index, &engine, 1, 0);
        assert!(!is_held_back(memory.admit(&index, &engine, 0)));
        engine.append_mapping();
        assert!(!is_held_back(memory.admit(&index, &engine, 0)), "it is not released");
        engine.release(1);
        assert!(is_held_back(memory.admit(&index, &engine, 0)));
        memory.make_room(&index, &engine, 1, 0);
        assert!(is_held_back(memory.admit(&index, &engine, 0)), "the hand has passed one page");
        memory.make_room(&index, &engine, usize::MAX, 0);
        assert!(!is_held_back(memory.admit(&index, &engine, 0)));
    }

    /// A command made what it answers with, and the effects that it stored, before anybody counted them: a request of 45 bytes took 1.4 GB.
    #[test]
    fn what_a_command_is_about_to_make_is_held_or_it_waits_until_room_was_made() {
        let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(16_000));
        let (woken, mut asked) = (Arc::new(AtomicU64::new(0)), None);
        let wakes = Arc::clone(&woken);
        memory.set_waker(move || _ = wakes.fetch_add(1, Ordering::SeqCst));
        memory.ask((&index, &engine), &mut asked, (10_000, 0)).expect("room");
        assert_eq!((memory.ledger.bytes(), asked.as_ref().map(|it| it.bytes)), (10_000, Some(10_000)));
        assert!(
            !is_held_back(memory.ask((&index, &engine), &mut asked, (6_000, 0))),
            "nothing can be dropped"
        );
        engine.append_mapping();
        engine.release(1);
        assert!(is_held_back(memory.ask((&index, &engine), &mut asked, (6_000, 0))));
        assert!(memory.is_wished() && woken.load(Ordering::SeqCst) == 1);
        memory.make_room(&index, &engine, usize::MAX, 0);
        assert!(!memory.is_wished(), "there was nothing");
        assert!(!is_held_back(memory.ask((&index, &engine), &mut asked, (6_000, 0))));
        drop(asked.take());
        assert_eq!((memory.ledger.bytes(), memory.asked_bytes.load(Ordering::SeqCst)), (0, 0));
        memory.report_buffers(20_000, 20_000);
        memory.ask((&index, &engine), &mut asked, (1_000, 0)).expect("reads go on where data fills memory");
        assert!(
            memory.ask((&index, &engine), &mut asked, (1, 0)).is_err(),
            "all of them together hold a part"
        );
    }

    /// A copy that its command kept while it waited for credits was taken for what stays: another large value was refused.
    #[test]
    fn large_value_waits_for_the_copies_of_those_who_are_parked() {
        let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
        let mut parked = memory.reserve((&index, &engine), (100, false)).expect("room");
        parked.copied();
        parked.parked();
        assert_eq!(memory.ledger.bytes(), 0, "the copy counts by itself");
        memory.report_buffers(750 + 100, 850);
        assert!(is_held_back(memory.reserve((&index, &engine), (100, false))));
        assert!(memory.reserve((&index, &engine), (100, true)).is_ok(), "its own way to the disk has room");
        drop(parked);
        assert!(!is_held_back(memory.reserve((&index, &engine), (100, false))));
        assert_eq!((memory.reserved_bytes.load(Ordering::SeqCst), memory.ledger.bytes()), (0, 0));
    }

    /// Between its credits and its record a large value was neither reserved nor waiting for the disk.
    #[test]
    fn others_credits_are_waited_for_and_the_own_ones_are_not() {
        let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
        engine.set_waiting(100);
        memory.report_buffers(1_150, 1_150);
        assert!(is_held_back(memory.admit(&index, &engine, 0)));
        assert!(!is_held_back(memory.admit(&index, &engine, 100)));
    }

    /// `SET` of a large value beside small ones at the limit: who made room for the large one waited for a stripe, and who had the
    /// stripe for what the other had reserved. All writers stood still, for ever.
    #[test]
    fn write_at_the_limit_does_not_wait_for_one_who_makes_room() {
        let (index, engine, memory) = (Index::new(1), TestLog::default(), Memory::new(1_000));
        assert!(engine.has_addresses(), "else no room is made");
        engine.append_mapping();
        engine.release(1);
        memory.report_buffers(1_001, 1_001);
        thread::scope(|scope| {
            let stripe = index.lock(0);
            let large = scope.spawn(|| memory.reserve((&index, &engine), (100, false)).map(drop));
            // It has the clock hand, and waits for the stripe.
            while memory.hand.try_lock().is_ok() {
                thread::yield_now();
            }
            let (sender, receiver) = mpsc::channel();
            let (index, engine, memory) = (&index, &engine, &memory);
            let small =
                scope.spawn(move || sender.send(memory.admit(index, engine, 0)).expect("it is received"));
            let admitted = receiver.recv_timeout(Duration::from_secs(10));
            drop(stripe);
            assert!(matches!(admitted, Ok(Err(Stop::Busy))), "{admitted:?}");
            small.join().expect("no panic");
            assert!(large.join().expect("no panic").is_err(), "there is no room");
        });
        assert_eq!((memory.reserved_bytes.load(Ordering::SeqCst), memory.ledger.bytes()), (0, 0));
    }
}
