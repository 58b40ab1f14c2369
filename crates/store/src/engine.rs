//! Where effects go: the seam between the keyspace and `log`, `memory` and `noop`.
//!
//! Contract of every engine
//!   1. `reserve` may refuse; `append` after it neither waits nor fails. Nobody asks while he holds credits (`reserve_instead`):
//!      what he holds may be what is missing.
//!   2. The drafts of one `append` are one atomic group; their seqs are consecutive, and grow over all appends.
//!   3. `released() <= newest()`; both only grow; a reply may leave when its ticket is released.
//!
//! `append` is called with the keys' stripes locked, so apply order is append order for each key.

use std::sync::atomic::{AtomicU64, Ordering};

use journal::{Keyspace, LogAddress, Seq};

use crate::error::{Stop, StoreError};
use crate::object::ObjectRef;
use crate::prepared::{Fetched, Prepared};
use crate::record::Draft;
use crate::sought::Sought;

/// What the room is for: writes stop earlier than what frees room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Effects that grow the data.
    Write,
    /// Effects that leave less data than there was, and write some that lives: they have a half of the reserve of deletes.
    Shrink,
    /// Deletes, expiry, cleaning: they have a reserve of their own.
    Reclaim,
}

/// Room in the journal, given back when dropped unused.
#[derive(Debug)]
pub(crate) struct Credits {
    bytes: u64,
    records: u64,
    /// What engine `log` holds for it.
    pub(crate) inner: Option<journal::Credits>,
}

impl Credits {
    /// Room that costs the engine nothing.
    pub(crate) fn free(bytes: u64, records: u64) -> Self {
        Self { bytes, records, inner: None }
    }

    /// Room that the journal gave.
    pub(crate) fn of(bytes: u64, records: u64, inner: journal::Credits) -> Self {
        Self { bytes, records, inner: Some(inner) }
    }

    /// Bytes that the journal holds for them.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.inner.as_ref().map_or(0, journal::Credits::bytes)
    }

    /// Whether so many records of so many bytes together fit.
    pub(crate) fn cover(&self, bytes: u64, records: u64) -> bool {
        self.bytes >= bytes && self.records >= records
    }
}

/// One log of effects.
pub(crate) trait Engine: Send + Sync + std::fmt::Debug {
    /// Asks for room for `records` records of `bytes` together.
    fn reserve(&self, bytes: u64, records: u64, class: Class) -> Result<Credits, Stop>;

    /// As [`Engine::reserve`], for who holds `held`, which are not enough: they are given back first.
    fn reserve_instead(
        &self,
        held: Option<Credits>,
        bytes: u64,
        records: u64,
        class: Class,
    ) -> Result<Credits, Stop> {
        drop(held);
        self.reserve(bytes, records, class)
    }

    /// Appends one atomic group, fills one address for each draft and returns the last seq.
    fn append(&self, credits: Credits, drafts: &[Draft<'_>], addresses: &mut [LogAddress]) -> Seq;

    /// Everything up to this seq may be told.
    fn released(&self) -> Seq;

    /// The newest seq.
    fn newest(&self) -> Seq;

    /// Tells the journal that what was appended is complete for now.
    fn offer(&self) {}

    /// Makes it durable on this thread, if that is the quicker way and takes no longer than a wait for the disk.
    fn commit_here(&self) -> bool {
        false
    }

    /// Bytes that wait in memory for the disk.
    fn buffered_bytes(&self) -> u64 {
        0
    }

    /// Bytes that wait in memory for the disk or have credits to, as long as they will come there; whoever gets [`Stop::Busy`] for them is
    /// woken when they are less.
    fn waiting_bytes(&self) -> u64 {
        0
    }

    /// Reads a record; blocks.
    fn read(&self, sought: &Sought) -> Result<Fetched, StoreError>;

    /// What [`Engine::read`] found at `address` is damage: the index still names it.
    fn on_damaged(&self, _address: LogAddress) {}

    /// Reads what `prepared` wants; blocks.
    fn read_wanted(&self, prepared: &mut Prepared) {
        for sought in prepared.take_wanted() {
            prepared.supply_sought(&sought, self.read(&sought));
        }
        prepared.fold(&mut |_, _| ());
    }

    /// Reads what `prepared` wants and hands it to `done`, from a thread of the engine's.
    fn fetch(&self, mut prepared: Prepared, done: Box<dyn FnOnce(Prepared) + Send>) {
        self.read_wanted(&mut prepared);
        done(prepared);
    }

    /// Whether a value can be found again by its address: then hot ones may be dropped.
    fn has_addresses(&self) -> bool;

    /// Whether changes of several parts of a collection are one record here.
    fn takes_parts(&self) -> bool {
        false
    }

    /// Wishes that `object`, whose record has changes on it, becomes one record again; returns whether it will, so that it should stay
    /// in memory until then. Values of `bytes_max` together wait for that at most.
    fn wish_fold(&self, _keyspace: Keyspace, _object: ObjectRef<'_>, _bytes_max: u64) -> bool {
        false
    }

    /// `bytes` of records at `address` are the newest state of a key.
    fn on_live(&self, address: LogAddress, bytes: u64);

    /// They no longer are.
    fn on_dead(&self, address: LogAddress, bytes: u64);
}

/// Engine `memory`: effects have an order and no home. Nothing waits.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    seq: AtomicU64,
}

impl Engine for Memory {
    fn reserve(&self, bytes: u64, records: u64, _class: Class) -> Result<Credits, Stop> {
        Ok(Credits::free(bytes, records))
    }

    fn append(&self, _credits: Credits, drafts: &[Draft<'_>], _addresses: &mut [LogAddress]) -> Seq {
        let count = drafts.len() as u64;
        Seq(self.seq.fetch_add(count, Ordering::Relaxed) + count)
    }

    fn released(&self) -> Seq {
        Seq::MAX
    }

    fn newest(&self) -> Seq {
        Seq(self.seq.load(Ordering::Relaxed))
    }

    fn read(&self, _sought: &Sought) -> Result<Fetched, StoreError> {
        unreachable!("engine memory has no cold values")
    }

    fn has_addresses(&self) -> bool {
        false
    }

    fn on_live(&self, _address: LogAddress, _bytes: u64) {}

    fn on_dead(&self, _address: LogAddress, _bytes: u64) {}
}

/// Engine `noop`: accepts and forgets, to measure the layers above.
#[derive(Debug)]
pub(crate) struct Noop;

impl Engine for Noop {
    fn reserve(&self, bytes: u64, records: u64, _class: Class) -> Result<Credits, Stop> {
        Ok(Credits::free(bytes, records))
    }

    fn append(&self, _credits: Credits, _drafts: &[Draft<'_>], _addresses: &mut [LogAddress]) -> Seq {
        Seq::NONE
    }

    fn released(&self) -> Seq {
        Seq::MAX
    }

    fn newest(&self) -> Seq {
        Seq::NONE
    }

    fn read(&self, _sought: &Sought) -> Result<Fetched, StoreError> {
        unreachable!("engine noop has no values")
    }

    fn has_addresses(&self) -> bool {
        false
    }

    fn on_live(&self, _address: LogAddress, _bytes: u64) {}

    fn on_dead(&self, _address: LogAddress, _bytes: u64) {}
}
