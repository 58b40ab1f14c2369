//! Admission before locks: credits for buffer memory and disk room, so that append can neither wait nor fail.
//!
//! Two counters. *Charged* is memory: what is reserved, and what is appended and not yet durable; its limit is
//! `journal.buffer_max`. *Room* is disk: what may still be promised.
//!
//! ```text
//! room = sum over ready files of Q  +  what the open segment can still promise  -  outstanding credits
//! ```
//!
//! Invariants
//!   1. A group of footprint `f <= U/4` (U: usable bytes of a file) wastes less than U/4 at a roll, so a file can
//!      promise `Q = U - U/4` whatever the order of appends. An open segment promises `max(0, U - U/4 - used)`.
//!   2. `room >= 0` after every grant: the ready list cannot run dry under an append.
//!   3. `Write` leaves `reserve_segments * Q` of room to `Reclaim` (deletes, cleaning).
//!   4. A group larger than U/4 brings a file of its own; its credit also takes Q, since it may cut the
//!      open segment short.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::format::SEGMENT_HEADER_SIZE_BYTES;
use crate::format::batch::BATCH_HEADER_SIZE_BYTES;
use crate::format::record::record_size_bytes;
use crate::segment::ReadyFile;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What grows the data.
    Write,
    /// What frees space: deletes, cleaning. Has a reserve of its own.
    Reclaim,
}

/// What each record costs beside its own bytes: its footer entry, and its share of chunk headers.
const FOOTER_SHARE_BYTES: u64 = 56;
/// Header of the file, stamps, the seal, the footer's alignment.
const FILE_OVERHEAD_BYTES: u64 = SEGMENT_HEADER_SIZE_BYTES + 8192;

/// Bytes to reserve for a group of records with these payload lengths.
#[must_use]
pub fn footprint(payload_lens: impl IntoIterator<Item = u32>) -> u64 {
    let records =
        payload_lens.into_iter().map(|len| record_size_bytes(len) + FOOTER_SHARE_BYTES).sum::<u64>();
    records + BATCH_HEADER_SIZE_BYTES as u64
}

/// Footprint of `records` records that take `bytes` together.
pub(crate) fn footprint_of(bytes: u64, records: u64) -> u64 {
    bytes + records * FOOTER_SHARE_BYTES + BATCH_HEADER_SIZE_BYTES as u64
}

/// Bytes of footprint that a file of `size_bytes` takes.
pub(crate) fn usable_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_sub(FILE_OVERHEAD_BYTES)
}

/// Size of the file that holds just one group of this footprint.
pub(crate) fn own_file_bytes(footprint: u64) -> u64 {
    (footprint + FILE_OVERHEAD_BYTES).next_multiple_of(SEGMENT_HEADER_SIZE_BYTES)
}

/// The largest group that shares a file of `size_bytes` with others.
pub(crate) fn shared_footprint_max(size_bytes: u64) -> u64 {
    usable_bytes(size_bytes) / 4
}

/// What a fresh file of `size_bytes` can promise.
pub(crate) fn promise_bytes(size_bytes: u64) -> u64 {
    usable_bytes(size_bytes) - shared_footprint_max(size_bytes)
}

/// The counters, shared by all who reserve.
#[derive(Debug)]
pub(crate) struct Admission {
    charged: AtomicU64,
    charged_max: u64,
    room: AtomicI64,
    reserve: i64,
    /// Somebody was refused for want of memory or room since the last [`Admission::take_starved`].
    starved: AtomicBool,
    /// Files of their own that large groups asked for and nobody holds.
    own_files: Mutex<Vec<ReadyFile>>,
}

impl Admission {
    pub(crate) fn new(charged_max: u64, reserve_bytes: u64) -> Self {
        Self {
            charged: AtomicU64::new(0),
            charged_max,
            room: AtomicI64::new(0),
            reserve: i64::try_from(reserve_bytes).expect("a few segments"),
            starved: AtomicBool::new(false),
            own_files: Mutex::default(),
        }
    }

    /// Takes `bytes` of memory. A single request larger than the limit passes when nothing else is charged.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let before = self.charged.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 || before + bytes <= self.charged_max {
            return true;
        }
        self.charged.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    /// Gives memory back.
    pub(crate) fn discharge(&self, bytes: u64) {
        let before = self.charged.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "discharged {bytes} of {before}");
    }

    /// Takes `bytes` of disk room.
    pub(crate) fn take_room(&self, bytes: u64, class: Class) -> bool {
        let bytes = bytes as i64;
        let floor = if class == Class::Write { self.reserve } else { 0 };
        let before = self.room.fetch_sub(bytes, Ordering::Relaxed);
        if before - bytes >= floor {
            return true;
        }
        self.room.fetch_add(bytes, Ordering::Relaxed);
        false
    }

    /// Gives disk room (back).
    pub(crate) fn add_room(&self, bytes: u64) {
        self.room.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Bytes reserved or appended and not yet durable.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    pub(crate) fn charged_max(&self) -> u64 {
        self.charged_max
    }

    /// Puts a file of its own where large groups look for one.
    pub(crate) fn put_own_file(&self, file: ReadyFile) {
        self.own_files.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    /// A file of its own for a group of this footprint.
    pub(crate) fn take_own_file(&self, footprint: u64) -> Option<ReadyFile> {
        let mut own_files = self.own_files.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = own_files.iter().position(|file| usable_bytes(file.size_bytes) >= footprint)?;
        Some(own_files.swap_remove(fits))
    }

    pub(crate) fn note_starved(&self) {
        self.starved.store(true, Ordering::SeqCst);
    }

    /// Whether somebody was refused since the last call.
    pub(crate) fn take_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed) && self.starved.swap(false, Ordering::SeqCst)
    }
}

/// The right to append one group. Dropped unused, it gives back what it holds.
#[derive(Debug)]
pub struct Credits {
    pub(crate) admission: Arc<Admission>,
    /// Footprint that was reserved.
    pub(crate) bytes: u64,
    /// Room that was reserved.
    pub(crate) room: u64,
    /// The file of its own, for a large group.
    pub(crate) own_file: Option<ReadyFile>,
}

impl Credits {
    /// Bytes that were reserved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Credits {
    fn drop(&mut self) {
        if let Some(file) = self.own_file.take() {
            self.admission.put_own_file(file);
        }
        if self.bytes > 0 {
            self.admission.discharge(self.bytes);
        }
        if self.room > 0 {
            self.admission.add_room(self.room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_refused_beyond_its_limit_and_given_back() {
        let admission = Admission::new(100, 0);
        assert!(admission.charge(60));
        assert!(!admission.charge(41));
        assert!(admission.charge(40));
        admission.discharge(100);
        assert_eq!(admission.charged(), 0);
    }

    #[test]
    fn one_request_above_the_limit_passes_when_nothing_else_is_charged() {
        let admission = Admission::new(100, 0);
        assert!(admission.charge(500));
        assert!(!admission.charge(1));
    }

    #[test]
    fn write_leaves_the_reserve_to_reclaim() {
        let admission = Admission::new(100, 30);
        admission.add_room(50);
        assert!(!admission.take_room(21, Class::Write));
        assert!(admission.take_room(20, Class::Write));
        assert!(admission.take_room(30, Class::Reclaim));
        assert!(!admission.take_room(1, Class::Reclaim));
    }
}
