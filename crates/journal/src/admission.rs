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
//!   3. `Write` leaves `reserve_segments * Q` of room to `Reclaim` (deletes), which leaves one Q of it to `Cleaning`: what gives files back
//!      finds room, however much deletes have written. `Shrink` leaves half of what deletes have to them: what lives there fits in the
//!      room of `Cleaning`, so that the file of deletes can be given back however much elements were removed.
//!   4. A group larger than U/4 brings a file of its own; its credit also takes Q, since it may cut the
//!      open segment short.
//!   5. What is held while something else is asked for is given back first ([`Credits::give_back_first`], `Journal::reserve_instead`):
//!      nobody waits with credits in hand, so that whoever waits alone finds room once files are ready.
//!   6. Who is refused is woken by the end of a write cycle, a file that is ready, or credits that come back unused.
//!   7. Files only grow (`Options::file_size_bytes`): 1 holds with U of the smallest that a group may meet, 4 with Q of the
//!      largest, which is why files do not grow while such a credit is out.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::format::SEGMENT_HEADER_SIZE_BYTES;
use crate::format::batch::BATCH_HEADER_SIZE_BYTES;
use crate::format::record::record_size_bytes;
use crate::own_files::{OwnFiles, Shortage, Step};
use crate::segment::ReadyFile;
use crate::wake::Wake;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What grows the data.
    Write,
    /// What leaves less data than there was, and writes some that lives: removals of elements. Has a half of the reserve of deletes.
    Shrink,
    /// What frees space once it is cleaned: deletes. Has a reserve of its own.
    Reclaim,
    /// What gives files back: copies, and a roll that lets the open segment's file come back. Has the last file of the reserve for itself.
    Cleaning,
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
    /// Room that is kept for cleaning.
    cleaning: AtomicI64,
    /// Largest footprint that shares a file with others.
    shared_max: AtomicU64,
    /// Somebody was refused for want of memory or room since the last [`Admission::take_starved`].
    starved: AtomicBool,
    /// Credits came back unused while somebody was starved.
    given_back: AtomicBool,
    /// Whom to tell that.
    preparer: Arc<Wake>,
    own: Mutex<Own>,
}

/// What large groups need.
#[derive(Debug)]
struct Own {
    files: OwnFiles,
    /// Size of the next shared file.
    file_size_bytes: u64,
}

/// What a request lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// Buffer memory.
    Memory,
    /// Room in files that are ready.
    Room,
    /// A file of its own, of this size.
    File(u64),
}

impl Admission {
    /// Counters for files of `file_size_bytes`; the one that is open may have `open_size_bytes`.
    pub(crate) fn new(
        charged_max: u64,
        reserve_segments: u32,
        file_size_bytes: u64,
        open_size_bytes: u64,
        preparer: Arc<Wake>,
    ) -> Self {
        let own = Own { files: OwnFiles::default(), file_size_bytes };
        Self {
            charged: AtomicU64::new(0),
            charged_max,
            room: AtomicI64::new(0),
            reserve: AtomicI64::new(reserve_bytes(reserve_segments, file_size_bytes)),
            cleaning: AtomicI64::new(cleaning_bytes(reserve_segments, file_size_bytes)),
            shared_max: AtomicU64::new(shared_footprint_max(file_size_bytes.min(open_size_bytes))),
            starved: AtomicBool::new(false),
            given_back: AtomicBool::new(false),
            preparer,
            own: Mutex::new(own),
        }
    }

    /// Size of the next shared file: `wanted_bytes`, but never smaller than the last one, nor larger while a large group
    /// counts on the old size.
    pub(crate) fn grow_files(&self, wanted_bytes: u64) -> u64 {
        let mut own = self.own();
        if own.files.granted() == 0 {
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
        self.cleaning.fetch_max(cleaning_bytes(reserve_segments, size_bytes), Ordering::Relaxed);
    }

    /// Largest footprint that shares a file with others.
    pub(crate) fn shared_max(&self) -> u64 {
        self.shared_max.load(Ordering::Relaxed)
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Credits for a group of this footprint.
    pub(crate) fn reserve(self: &Arc<Self>, footprint: u64, class: Class) -> Result<Credits, Lack> {
        let (room, own_file) = if footprint > self.shared_max() {
            let (room, file) = self.take_own_file(footprint, class)?;
            (room, Some(file))
        } else if self.take_room(footprint, class) {
            (footprint, None)
        } else {
            return Err(Lack::Room);
        };
        let owns = own_file.is_some();
        let admission = Arc::clone(self);
        let mut credits = Credits { admission, bytes: 0, room, own_file, owns, is_quiet: false };
        if !self.charge(footprint) {
            // nobody is told: who was refused for want of this is woken with whoever is refused here
            credits.is_quiet = true;
            return Err(Lack::Memory);
        }
        credits.bytes = footprint;
        Ok(credits)
    }

    /// Takes `bytes` of memory. A request larger than the limit passes unless another one has: it would never find nothing
    /// charged beside others that go on.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let most = self.charged_max;
        let fits = |before: u64| before + bytes <= most || (bytes > most && before <= most);
        let charge = |before: u64| fits(before).then_some(before + bytes);
        self.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).is_ok()
    }

    /// Gives memory back.
    pub(crate) fn discharge(&self, bytes: u64) {
        let before = self.charged.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "discharged {bytes} of {before}");
    }

    /// Takes `bytes` of disk room.
    pub(crate) fn take_room(&self, bytes: u64, class: Class) -> bool {
        let bytes = bytes as i64;
        let (reserve, cleaning) =
            (self.reserve.load(Ordering::Relaxed), self.cleaning.load(Ordering::Relaxed));
        let floor = match class {
            Class::Write => reserve,
            Class::Shrink => cleaning + (reserve - cleaning) / 2,
            Class::Reclaim => cleaning,
            Class::Cleaning => 0,
        };
        let take = |before: i64| (before - bytes >= floor).then_some(before - bytes);
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Disk room that may still be promised.
    pub(crate) fn room_bytes(&self) -> u64 {
        u64::try_from(self.room.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// As much of it as only cleaning may use.
    pub(crate) fn cleaning_room_bytes(&self) -> u64 {
        let kept_bytes = u64::try_from(self.cleaning.load(Ordering::Relaxed)).unwrap_or(0);
        self.room_bytes().min(kept_bytes)
    }

    /// Whether the largest group of writes that shares a file finds no room.
    pub(crate) fn lacks_room_for_writes(&self) -> bool {
        let floor = u64::try_from(self.reserve.load(Ordering::Relaxed)).unwrap_or(0);
        self.room_bytes() < floor + self.shared_max()
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

    /// Looks whether the counters fit a core that has `charged` memory and `promised` room: for simulations, while nobody else
    /// uses the journal. Credits that are out take of both.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub(crate) fn check(&self, charged: u64, promised: u64) {
        assert!(self.charged() >= charged, "{} of {charged} bytes are charged", self.charged());
        let room = self.room.load(Ordering::Relaxed);
        assert!(0 <= room && room as u64 <= promised, "room of {room} bytes where {promised} are promised");
        self.own().files.check();
    }

    /// Whether a large group waits for a file.
    pub(crate) fn wants_own_file(&self) -> bool {
        self.own().files.is_wanted()
    }

    /// Whether files for large groups lie there, and no group waits.
    pub(crate) fn has_idle_own_files(&self) -> bool {
        self.own().files.is_idle()
    }

    /// What to do next about files of large groups; `is_at_rest`: nobody has asked for a while.
    pub(crate) fn next_own_step(&self, is_at_rest: bool) -> Step {
        self.own().files.next(is_at_rest)
    }

    /// A file of `size_bytes` is to be made for a large group, but not while one that fits lies there.
    pub(crate) fn wish_own_file(&self, size_bytes: u64, class: Class) {
        self.own().files.wish(size_bytes, class);
    }

    /// Puts a file of its own where large groups look for one.
    pub(crate) fn put_own_file(&self, file: ReadyFile) {
        self.own().files.put(file);
    }

    /// As [`OwnFiles::on_short`].
    pub(crate) fn on_own_shortage(
        &self,
        size_bytes: u64,
        shortage: Shortage,
        now_ns: u64,
    ) -> Result<ReadyFile, bool> {
        self.own().files.on_short(size_bytes, shortage, now_ns)
    }

    /// As [`OwnFiles::shortage`].
    pub(crate) fn own_shortage(&self, size_bytes: u64, now_ns: u64) -> Option<Shortage> {
        self.own().files.shortage(size_bytes, now_ns)
    }

    /// Space has come free on the disk.
    pub(crate) fn on_space(&self) {
        self.own().files.on_space();
    }

    /// Room and a file of its own for a group of this footprint. Room first: a file that must wait for room would take
    /// what the room is made of.
    fn take_own_file(&self, footprint: u64, class: Class) -> Result<(u64, ReadyFile), Lack> {
        let mut own = self.own();
        let (room, size_bytes) = (promise_bytes(own.file_size_bytes), own_file_bytes(footprint));
        if !self.take_room(room, class) {
            return Err(Lack::Room);
        }
        own.files.claim(size_bytes).map(|file| (room, file)).ok_or_else(|| {
            self.add_room(room);
            Lack::File(size_bytes)
        })
    }

    /// Something came back that somebody else may have been refused for.
    pub(crate) fn tell_given_back(&self) {
        // either this sees the note of who was refused, or he sees in his second try what was given back
        fence(Ordering::SeqCst);
        if self.starved.load(Ordering::Relaxed) {
            self.given_back.store(true, Ordering::Release);
            self.preparer.notify();
        }
    }

    /// Whether something came back since the last call, and somebody is starved.
    pub(crate) fn take_given_back(&self) -> bool {
        self.given_back.load(Ordering::Relaxed) && self.given_back.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn note_starved(&self) {
        self.starved.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
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
    /// What is given back is told to nobody: the group was appended, and the end of its cycle tells; or the same caller
    /// asks for other credits at once.
    pub(crate) is_quiet: bool,
}

impl Credits {
    /// Bytes that were reserved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what it holds before others are asked for. Nobody is told: if those are refused, whatever wakes the caller
    /// wakes everybody.
    pub(crate) fn give_back_first(mut self) {
        self.is_quiet = true;
    }
}

impl Drop for Credits {
    fn drop(&mut self) {
        if self.owns {
            self.admission.own().files.end_claim(self.own_file.take());
        }
        if self.bytes > 0 {
            self.admission.discharge(self.bytes);
        }
        if self.room > 0 {
            self.admission.add_room(self.room);
        }
        if !self.is_quiet {
            self.admission.tell_given_back();
        }
    }
}

/// A reserve of one file is not divided: whoever has no more cleans by other means.
fn cleaning_bytes(segments: u32, file_size_bytes: u64) -> i64 {
    reserve_bytes(u32::from(segments > 1), file_size_bytes)
}

fn reserve_bytes(segments: u32, file_size_bytes: u64) -> i64 {
    i64::try_from(promise_bytes(file_size_bytes) * u64::from(segments)).expect("a few segments")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;

    const SIZE: u64 = 64 << 10;

    fn admission(charged_max: u64, reserve_segments: u32) -> Arc<Admission> {
        Arc::new(Admission::new(charged_max, reserve_segments, SIZE, SIZE, Arc::default()))
    }

    #[test]
    fn files_do_not_grow_while_a_large_group_counts_on_their_size() {
        let admission = admission(1 << 30, 0);
        admission.add_room(1 << 30);
        admission.put_own_file(ReadyFile::in_a_test(FileId(1), 8 * SIZE));
        let credits = admission.reserve(4 * SIZE, Class::Write).expect("room and a file");
        assert_eq!((credits.room, admission.grow_files(2 * SIZE)), (promise_bytes(SIZE), SIZE));
        drop(credits);
        assert_eq!(admission.grow_files(2 * SIZE), 2 * SIZE);
        assert_eq!(admission.grow_files(SIZE), 2 * SIZE, "files never shrink");
        assert_eq!(admission.shared_max(), shared_footprint_max(SIZE), "the open one is small still");
        admission.note_sizes(2 * SIZE, 2 * SIZE, 0);
        assert_eq!(admission.shared_max(), shared_footprint_max(2 * SIZE));
    }

    #[test]
    fn memory_is_refused_beyond_its_limit_and_given_back() {
        let admission = admission(100, 0);
        assert!(admission.charge(60));
        assert!(!admission.charge(41));
        assert!(admission.charge(40));
        admission.discharge(100);
        assert_eq!(admission.charged(), 0);
    }

    /// A request above the limit passed only when nothing else was charged: beside others that went on, it waited for ever.
    #[test]
    fn one_request_above_the_limit_passes_beside_others_and_no_second_one() {
        let admission = admission(100, 0);
        assert!(admission.charge(99));
        assert!(admission.charge(500));
        assert!(!admission.charge(500));
        assert!(!admission.charge(1));
        admission.discharge(500);
        assert!(admission.charge(1));
    }

    #[test]
    fn refused_request_leaves_nothing_taken() {
        let admission = admission(100, 0);
        admission.add_room(promise_bytes(SIZE));
        assert_eq!(
            admission.reserve(SIZE, Class::Write).expect_err("no file"),
            Lack::File(own_file_bytes(SIZE))
        );
        admission.put_own_file(ReadyFile::in_a_test(FileId(1), 8 * SIZE));
        assert!(admission.charge(101));
        assert_eq!(admission.reserve(SIZE, Class::Write).expect_err("no memory"), Lack::Memory);
        assert_eq!(admission.reserve(10, Class::Write).expect_err("no memory"), Lack::Memory);
        admission.discharge(101);
        let credits = admission.reserve(SIZE, Class::Write).expect("all of it is back");
        assert_eq!(admission.reserve(10, Class::Write).expect_err("taken"), Lack::Room);
        drop(credits);
        assert!(admission.has_idle_own_files());
    }

    /// Credits that came back unused woke nobody: who had been refused for want of them waited until something was written.
    #[test]
    fn credits_that_come_back_unused_are_told_to_who_was_refused() {
        let admission = admission(100, 0);
        admission.add_room(promise_bytes(SIZE));
        let held = admission.reserve(90, Class::Write).expect("room");
        drop(held);
        assert!(!admission.take_given_back(), "nobody was refused");
        let held = admission.reserve(90, Class::Write).expect("room");
        assert!(admission.reserve(90, Class::Write).is_err());
        admission.note_starved();
        assert!(!admission.take_given_back());
        drop(held);
        assert!(admission.take_given_back());
        let held = admission.reserve(90, Class::Write).expect("room");
        held.give_back_first();
        assert!(!admission.take_given_back(), "the same caller asks again");
    }

    #[test]
    fn write_leaves_the_reserve_to_reclaim() {
        let admission = admission(100, 1);
        let reserve = promise_bytes(SIZE);
        admission.add_room(20 + reserve);
        assert!(!admission.take_room(21, Class::Write));
        assert!(admission.take_room(20, Class::Write));
        assert!(admission.take_room(reserve, Class::Reclaim));
        assert!(!admission.take_room(1, Class::Reclaim));
    }

    #[test]
    fn deletes_leave_the_last_file_of_a_reserve_of_two_to_cleaning() {
        let admission = admission(100, 2);
        let file = promise_bytes(SIZE);
        admission.add_room(20 + 2 * file);
        assert!(!admission.take_room(21, Class::Write));
        assert!(admission.take_room(20, Class::Write));
        assert_eq!(admission.cleaning_room_bytes(), file);
        assert!(!admission.take_room(file + 1, Class::Reclaim));
        assert!(admission.take_room(file, Class::Reclaim));
        assert!(!admission.take_room(1, Class::Reclaim));
        assert!(admission.take_room(file, Class::Cleaning));
        assert!(!admission.take_room(1, Class::Cleaning));
    }

    #[test]
    fn removals_of_elements_leave_half_of_the_room_of_deletes_to_them() {
        let admission = admission(100, 2);
        let file = promise_bytes(SIZE);
        let half = file / 2;
        admission.add_room(2 * file);
        assert!(!admission.take_room(1, Class::Write));
        assert!(!admission.take_room(half + 1, Class::Shrink));
        assert!(admission.take_room(half, Class::Shrink));
        assert!(!admission.take_room(1, Class::Shrink));
        assert!(admission.take_room(file - half, Class::Reclaim));
    }
}
