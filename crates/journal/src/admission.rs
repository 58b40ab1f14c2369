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
//!   5. Files only grow (`Options::file_size_bytes`): 1 holds with U of the smallest that a group may meet, 4 with Q of the
//!      largest, which is why files do not grow while such a credit is out.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    reserve: AtomicI64,
    /// Largest footprint that shares a file with others.
    shared_max: AtomicU64,
    /// Somebody was refused for want of memory or room since the last [`Admission::take_starved`].
    starved: AtomicBool,
    own: Mutex<Own>,
}

/// What large groups need.
#[derive(Debug)]
struct Own {
    /// Files of their own that they asked for and nobody holds.
    files: Vec<ReadyFile>,
    /// Credits with such a file that are out.
    granted: u32,
    /// Size of the next shared file.
    file_size_bytes: u64,
}

impl Admission {
    /// Counters for files of `file_size_bytes`; the one that is open may have `open_size_bytes`.
    pub(crate) fn new(
        charged_max: u64,
        reserve_segments: u32,
        file_size_bytes: u64,
        open_size_bytes: u64,
    ) -> Self {
        let own = Own { files: Vec::new(), granted: 0, file_size_bytes };
        Self {
            charged: AtomicU64::new(0),
            charged_max,
            room: AtomicI64::new(0),
            reserve: AtomicI64::new(reserve_bytes(reserve_segments, file_size_bytes)),
            shared_max: AtomicU64::new(shared_footprint_max(file_size_bytes.min(open_size_bytes))),
            starved: AtomicBool::new(false),
            own: Mutex::new(own),
        }
    }

    /// Size of the next shared file: `wanted_bytes`, but never smaller than the last one, nor larger while a large group
    /// counts on the old size.
    pub(crate) fn grow_files(&self, wanted_bytes: u64) -> u64 {
        let mut own = self.own();
        if own.granted == 0 {
            own.file_size_bytes = own.file_size_bytes.max(wanted_bytes);
        }
        own.file_size_bytes
    }

    /// Size of the next shared file, as it stands.
    pub(crate) fn file_size_bytes(&self) -> u64 {
        self.own().file_size_bytes
    }

    /// A file of `size_bytes` is ready, and the smallest that a group may meet has `least_bytes`.
    pub(crate) fn note_sizes(&self, size_bytes: u64, least_bytes: u64, reserve_segments: u32) {
        self.shared_max.fetch_max(shared_footprint_max(least_bytes), Ordering::Relaxed);
        self.reserve.fetch_max(reserve_bytes(reserve_segments, size_bytes), Ordering::Relaxed);
    }

    /// Largest footprint that shares a file with others.
    pub(crate) fn shared_max(&self) -> u64 {
        self.shared_max.load(Ordering::Relaxed)
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
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
        let floor = if class == Class::Write { self.reserve.load(Ordering::Relaxed) } else { 0 };
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
        self.own().files.push(file);
    }

    /// Room and a file of its own for a group of this footprint.
    pub(crate) fn take_own_file(&self, footprint: u64, class: Class) -> Option<(u64, ReadyFile)> {
        let mut own = self.own();
        let fits = own.files.iter().position(|file| usable_bytes(file.size_bytes) >= footprint)?;
        let room = promise_bytes(own.file_size_bytes);
        if !self.take_room(room, class) {
            return None;
        }
        own.granted += 1;
        Some((room, own.files.swap_remove(fits)))
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
    /// It had one when it was granted.
    pub(crate) owns: bool,
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
        if self.owns {
            self.admission.own().granted -= 1;
        }
    }
}

fn reserve_bytes(segments: u32, file_size_bytes: u64) -> i64 {
    i64::try_from(promise_bytes(file_size_bytes) * u64::from(segments)).expect("a few segments")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;

    const SIZE: u64 = 64 << 10;

    #[test]
    fn files_do_not_grow_while_a_large_group_counts_on_their_size() {
        let admission = Arc::new(Admission::new(1 << 30, 0, SIZE, SIZE));
        admission.add_room(1 << 30);
        admission.put_own_file(ReadyFile::in_a_test(FileId(1), 8 * SIZE));
        let (room, file) = admission.take_own_file(4 * SIZE, Class::Write).expect("room and a file");
        assert_eq!((room, admission.grow_files(2 * SIZE)), (promise_bytes(SIZE), SIZE));
        drop(Credits { admission: Arc::clone(&admission), bytes: 0, room, own_file: Some(file), owns: true });
        assert_eq!(admission.grow_files(2 * SIZE), 2 * SIZE);
        assert_eq!(admission.grow_files(SIZE), 2 * SIZE, "files never shrink");
        assert_eq!(admission.shared_max(), shared_footprint_max(SIZE), "the open one is small still");
        admission.note_sizes(2 * SIZE, 2 * SIZE, 0);
        assert_eq!(admission.shared_max(), shared_footprint_max(2 * SIZE));
    }

    #[test]
    fn memory_is_refused_beyond_its_limit_and_given_back() {
        let admission = Admission::new(100, 0, SIZE, SIZE);
        assert!(admission.charge(60));
        assert!(!admission.charge(41));
        assert!(admission.charge(40));
        admission.discharge(100);
        assert_eq!(admission.charged(), 0);
    }

    #[test]
    fn one_request_above_the_limit_passes_when_nothing_else_is_charged() {
        let admission = Admission::new(100, 0, SIZE, SIZE);
        assert!(admission.charge(500));
        assert!(!admission.charge(1));
    }

    #[test]
    fn write_leaves_the_reserve_to_reclaim() {
        let admission = Admission::new(100, 1, SIZE, SIZE);
        let reserve = promise_bytes(SIZE);
        admission.add_room(20 + reserve);
        assert!(!admission.take_room(21, Class::Write));
        assert!(admission.take_room(20, Class::Write));
        assert!(admission.take_room(reserve, Class::Reclaim));
        assert!(!admission.take_room(1, Class::Reclaim));
    }
}
