//! Reservations: memory for a large value is held before the value is made, and until the journal counts it.
//!
//! ```text
//! reserve -> Reserved { copy, way to the disk } -- copied --> the value counts itself -- credited --> the journal counts it
//!               (passing: others see it as gone soon)                     `-- parked --> others wait for the copy
//! ```
//!
//! Invariants
//!   1. What is reserved is counted as used, and in `reserved_bytes` as long as others are to wait for it; dropped, it leaves both.
//!   2. One thread reserves at a time, and waits for no stripe that it holds itself.
//!
//! Out of scope: what makes the room (`hand`), who is refused (`memory`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::{Accounts, Lack, Memory, ROOM_PAGES_MAX};
use crate::error::Stop;
use crate::large::Held;
use crate::locks::lock;

/// A value that is about to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeValue {
    pub(crate) bytes: u64,
    /// Its copy is there, and counts itself.
    pub(crate) is_copied: bool,
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
    wanted: LargeValue,
    grant: Arc<Grant>,
}

/// What came of it; `None` before that.
type Grant = Mutex<Option<Result<Reserved, Stop>>>;

/// The same as the store's own thread sees it: who waits may be gone.
#[derive(Debug)]
pub(super) struct Awaiting {
    wanted: LargeValue,
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
        let passed_bytes = std::mem::replace(&mut self.passing_bytes, bytes);
        let before = self.all_bytes.fetch_sub(passed_bytes, Ordering::SeqCst);
        debug_assert!(before >= passed_bytes, "{passed_bytes} B pass of {before}");
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pass(0);
    }
}

impl Memory {
    /// Holds `bytes` for a large value that is about to be made, unless that has happened, and as many again where it will wait
    /// for the disk, until the result is dropped; drops values for it that are not needed here. Several at a time leave what buffers
    /// elsewhere may come to, so that no small write is refused for them when they do. Who only lacks what others hold in this way,
    /// or what waits for the disk, is to come again.
    pub(crate) fn reserve(&self, accounts: Accounts<'_>, wanted: LargeValue) -> Result<Reserved, Stop> {
        let reserving = lock(&self.reserving);
        // All that can go is looked for at once: one that stopped short of it would be told to wait, again and again, where nothing can.
        self.reserve_alone(&reserving, accounts, wanted, RESERVE_PAGES_MAX)
    }

    /// What came of the memory that is awaited, if it is the one that is `wanted`.
    pub(crate) fn take_awaited(
        &self,
        wanted: LargeValue,
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
        accounts: Accounts<'_>,
        wanted: LargeValue,
        awaited: &mut Option<AwaitedMemory>,
    ) -> Result<Reserved, Stop> {
        if let Ok(reserving) = self.reserving.try_lock() {
            let reserved = self.reserve_alone(&reserving, accounts, wanted, ROOM_PAGES_MAX);
            if reserved.is_err() {
                // what was found for something else is given back: whoever kept it would wait for himself
                *awaited = None;
            }
            match reserved {
                Err(Stop::Busy) if self.may_drop(accounts.engine) => {}
                done => return done,
            }
        }
        // whoever waits keeps no copy
        let (wanted, grant) = (LargeValue { is_copied: false, ..wanted }, Arc::<Grant>::default());
        lock(&self.awaiting).push_back(Awaiting { wanted, grant: Arc::downgrade(&grant) });
        *awaited = Some(AwaitedMemory { wanted, grant });
        self.waker.wake();
        Err(Stop::Busy)
    }

    /// Reserves for those who wait for it; returns whether there were any. Callers hold no stripe.
    pub(crate) fn grant_awaited(&self, accounts: Accounts<'_>) -> bool {
        let waiting = std::mem::take(&mut *lock(&self.awaiting));
        let mut has_granted = false;
        for Awaiting { wanted, grant } in waiting {
            if let Some(grant) = grant.upgrade() {
                let result = self.reserve(accounts, wanted);
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
        accounts: Accounts<'_>,
        value: LargeValue,
        pages_max: usize,
    ) -> Result<Reserved, Stop> {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let LargeValue { bytes: value_bytes, is_copied } = value;
        let copy_bytes = if is_copied { 0 } else { value_bytes };
        let disk_bytes = if accounts.engine.has_addresses() { value_bytes } else { 0 };
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
        self.make_room(accounts, pages_max, beside_bytes);
        let used_bytes = self.used(accounts);
        if limit_bytes == 0 || used_bytes.saturating_add(beside_bytes) <= limit_bytes {
            return Ok(reserved);
        }
        let lack = Lack { wished_bytes: bytes + beside_bytes, reserved_bytes: bytes, ..Lack::default() };
        Err(self.lacks(accounts, lack, limit_bytes))
    }
}

/// Pages visited for what a command asks at once, at most.
pub(crate) const RESERVE_PAGES_MAX: usize = 16_384;
