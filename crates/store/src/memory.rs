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
//!   1. Whoever holds a stripe waits for nobody here: making room takes stripes.
//!   2. Nobody is refused before the hand has passed every value as often as it takes to drop it, and found nothing.
//!
//! Out of scope: which values leave memory (`hand`), memory for large values before they are made (`reserve`).

mod hand;
mod reserve;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::engine::Engine;
use crate::error::{Stop, StoreError};
use crate::index::Index;
use crate::large::{Held, LARGE_BYTES, Large, Ledger};
use crate::options::Options;
use crate::policy::{Room, Verdict, admit};
use crate::vacate::gate::Gate;
use hand::Hand;
#[cfg(test)]
pub(crate) use hand::pass;
use reserve::Awaiting;
pub use reserve::{AwaitedMemory, Reserved};
pub(crate) use reserve::{LargeValue, RESERVE_PAGES_MAX};

/// Who counts bytes beside the budget.
#[derive(Clone, Copy)]
pub(crate) struct Accounts<'a> {
    pub(crate) index: &'a Index,
    pub(crate) engine: &'a dyn Engine,
}

/// What is lacked by one for whom there is no room.
#[derive(Clone, Copy, Default)]
struct Lack {
    bytes: u64,
    /// What is wished for so that there will be room.
    wished_bytes: u64,
    /// What he has reserved himself.
    reserved_bytes: u64,
    /// What he has credits for.
    credit_bytes: u64,
}

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
        let before = self.all_bytes.fetch_sub(self.held.bytes(), Ordering::SeqCst);
        debug_assert!(before >= self.held.bytes(), "{} B pass of {before}", self.held.bytes());
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
        let before = self.all_bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        debug_assert!(before >= self.bytes, "{} B given back of {before} that were asked for", self.bytes);
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
        self.gate.waits(bytes, own_bytes, limit_bytes, || self.waker.wake())
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
        index: &Index,
        journal_bytes: &dyn Fn() -> u64,
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

    /// Whether used memory and `bytes` more are well within the limit.
    pub(crate) fn has_room(&self, accounts: Accounts<'_>, bytes: u64) -> bool {
        self.used_within(accounts, ROOM_SHARE, bytes)
    }

    /// What becomes of a value that was just read from disk, and is counted in what is used, from a slot with or without a mark. It
    /// may take a little more than `make_room` leaves; the next command makes up for it.
    pub(crate) fn verdict(&self, accounts: Accounts<'_>, is_marked: bool) -> Verdict {
        if let Some(reads) = &self.always_cold {
            let is_even = reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            return if is_even { Verdict::Keep(0) } else { Verdict::Mark };
        }
        let room = if self.used_within(accounts, AMPLE_SHARE, 0) {
            Room::Ample
        } else if self.used_within(accounts, FULL_SHARE, 0) {
            Room::Short
        } else {
            Room::Full
        };
        admit(is_marked, room)
    }

    /// Whether used memory and `bytes` more leave a `share`-th of the limit.
    fn used_within(&self, accounts: Accounts<'_>, share: u64, bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        limit_bytes == 0 || self.used(accounts).saturating_add(bytes) <= limit_bytes - limit_bytes / share
    }

    /// Takes note that a read has made a value hot.
    pub(crate) fn on_warm(&self) {
        self.has_warmed.store(true, Ordering::Relaxed);
    }

    /// Refuses growth past the limit, for one who has credits for `own_credit_bytes`; holds it back where there will be room once the
    /// disk has caught up, or large values that are being stored are.
    pub(crate) fn admit(&self, accounts: Accounts<'_>, own_credit_bytes: u64) -> Result<(), Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let used_bytes = self.used(accounts);
        if limit_bytes == 0 || used_bytes <= limit_bytes {
            return Ok(());
        }
        Err(self.lacks(accounts, Lack { credit_bytes: own_credit_bytes, ..Lack::default() }, limit_bytes))
    }

    /// Holds `bytes` more for a command that is about to make them, which holds `asked` so far and has credits for `own_credit_bytes`.
    /// Those who read go on where data fills memory: all together may hold a [`ASKED_SHARE`]-th of the limit whatever is used.
    pub(crate) fn ask(
        &self,
        accounts: Accounts<'_>,
        asked: &mut Option<Box<Asked>>,
        bytes: u64,
        own_credit_bytes: u64,
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
            || self.used(accounts).saturating_add(bytes) <= limit_bytes - limit_bytes / ASKED_SHARE
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
        let lack = Lack {
            bytes: bytes + limit_bytes / ASKED_SHARE,
            wished_bytes: 2 * (own_bytes + bytes),
            reserved_bytes: 0,
            credit_bytes: own_credit_bytes,
        };
        Err(self.lacks(accounts, lack, limit_bytes))
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

    /// What becomes of one for whom there is no room: others give back what they reserved, what waits for the disk leaves, what has come there
    /// can be dropped, for which a wish is left, or it is refused.
    fn lacks(&self, accounts: Accounts<'_>, lack: Lack, limit_bytes: u64) -> Stop {
        let (used_bytes, for_now_bytes) = loop {
            // First: what a group reserved for its way to the disk is given back when the journal counts it.
            let reserved_bytes = self.reserved_bytes.load(Ordering::SeqCst);
            debug_assert!(reserved_bytes >= lack.reserved_bytes, "the sum has what one reserved");
            // What waits is counted there, and until it is released as a value that cannot be dropped.
            let waiting_bytes = 2 * accounts.engine.waiting_bytes().saturating_sub(lack.credit_bytes);
            // After that look: what waited before may have left meanwhile.
            let used_bytes = self.used(accounts);
            if self.reserved_bytes.load(Ordering::SeqCst) == reserved_bytes {
                break (used_bytes, waiting_bytes + reserved_bytes - lack.reserved_bytes);
            }
        };
        // Looked at last: what waited above may have been released meanwhile.
        if self.may_drop(accounts.engine) {
            self.wish(lack.wished_bytes, limit_bytes);
            return Stop::Busy;
        }
        if used_bytes.saturating_add(lack.bytes).saturating_sub(for_now_bytes) <= limit_bytes {
            return Stop::Busy;
        }
        // hot values are on disk as well, and were dropped
        let lasting_bytes =
            accounts.index.memory_bytes() + self.process_bytes.load(Ordering::Relaxed) + lack.reserved_bytes;
        let may_pass = accounts.engine.has_addresses() && lasting_bytes <= limit_bytes;
        StoreError::MemoryLimit { used_bytes, limit_bytes, may_pass }.into()
    }

    /// Memory by parts.
    pub(crate) fn report(&self, accounts: Accounts<'_>) -> MemoryReport {
        self.report_of(accounts.index, accounts.engine.buffered_bytes())
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

    fn used(&self, accounts: Accounts<'_>) -> u64 {
        self.report(accounts).used_bytes()
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

/// What one command may read from disk is the limit divided by this: some of them at a time leave room for the rest.
const READ_SHARE: u64 = 8;

/// Larger records are read one at a time: each reader's buffer and what it becomes came to several times what memory had left.
const TURN_BYTES_MIN: u64 = 256 << 10;
/// How long such a reader waits for room, and then for pages: a pass has others wait no longer, either.
const READ_WAIT_MAX: Duration = Duration::from_millis(150);

/// Pages that one command visits at most to make room: about 0.1 ms.
pub(crate) const ROOM_PAGES_MAX: usize = 64;

#[cfg(test)]
impl Memory {
    /// For as long as the result lives, somebody else makes room.
    pub(crate) fn as_if_making_room(&self) -> impl Drop + '_ {
        self.hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
