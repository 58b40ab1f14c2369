//! The journal as its callers see it: reserve, append, offer; read, scan, retire.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use crate::admission::{Class, Credits, Lack};
use crate::committer::{self, Committer};
use crate::core::{Core, Placed};
use crate::counters::{Counters, Live};
use crate::error::{JournalError, ReadError, Refusal};
use crate::footer::FooterWriter;
use crate::format::manifest_entry::{CHECKPOINT_NAME_BYTES_MAX, Checkpoint, Entry};
use crate::format::record::{RECORD_HEADER_SIZE_BYTES, RecordHeader, record_size_bytes};
use crate::format::segment_header::Identity;
use crate::manifest::{Facts, State};
use crate::options::{Backend, SyncMode};
use crate::scan::{Extent, Scanner, read_record, verified};
use crate::segment::ReadyFile;
use crate::shared::{Phase, Shared};
use crate::syncs::SyncFigures;
use crate::types::{Appended, Draft, FileId, LogAddress, Lsn, SegmentId, Seq};

/// What a segment is to the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Batches go here.
    Open,
    /// No more batches; no footer yet.
    Sealed,
    /// Sealed, with a footer.
    Footed,
    /// Sealed; the room behind its batches was given back, a footer with it: a checkpoint covers it.
    Trimmed,
}

/// A segment's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub segment: SegmentId,
    /// What it is.
    pub state: SegmentState,
    /// Lsn of its first record.
    pub first_lsn: Lsn,
    /// Lsn of its last record; `first_lsn - 1` when it has none.
    pub last_lsn: Lsn,
    /// How many records.
    pub records: u64,
    /// Where its batches end, in bytes.
    pub end_bytes: u64,
    /// Size of its file in bytes.
    pub size_bytes: u64,
    /// Its file in the folder.
    pub file: FileId,
}

/// A segment that stays as long as this lives: a reader or a backup needs it.
#[derive(Debug)]
pub struct Pin {
    shared: Arc<Shared>,
    segment: SegmentId,
}

impl Pin {
    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.shared.pins();
        let count = pins.counts.get_mut(&self.segment).expect("a pin is counted while it lives");
        *count -= 1;
        if *count == 0 {
            pins.counts.remove(&self.segment);
            drop(pins);
            self.shared.preparer.notify();
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
    pub(crate) committer: Arc<Mutex<Committer>>,
    /// A caller of [`Journal::commit_here`] holds the committer.
    pub(crate) is_led_here: AtomicBool,
    pub(crate) backend: Backend,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held until the journal and its threads are gone, against a second server.
    pub(crate) lock: Arc<dyn vfs::FileLock>,
}

impl Journal {
    /// Whether a write or sync failed: then nothing becomes durable any more, and nobody should wait for it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.progress.phase() == Phase::Failed
    }

    /// Reserves for one group of `bytes` (see [`crate::footprint`]); never waits.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was changed. After `Busy` the `on_credits` hook tells when to ask again.
    pub fn reserve(&self, bytes: u64, class: Class) -> Result<Credits, Refusal> {
        let shared = &self.shared;
        if shared.progress.phase() != Phase::Running {
            return Err(Refusal::Closed);
        }
        let limit_bytes = shared.options.transaction_bytes_max;
        if bytes > limit_bytes {
            return Err(Refusal::TooLarge { bytes, limit_bytes });
        }
        if let Ok(credits) = shared.admission.reserve(bytes, class) {
            return Ok(credits);
        }
        shared.admission.note_starved();
        // Once more: what was freed before the note above woke nobody.
        shared.admission.reserve(bytes, class).map_err(|lack| self.refusal(lack, class))
    }

    /// As [`Journal::reserve`], for who holds credits that turned out not to be enough: they are given back first. To hold some
    /// and wait for others would take what the others are made of.
    ///
    /// # Errors
    /// As [`Journal::reserve`]; `held` is given back then, too.
    pub fn reserve_instead(&self, held: Credits, bytes: u64, class: Class) -> Result<Credits, Refusal> {
        held.give_back_first();
        self.reserve(bytes, class)
    }

    /// Appends `drafts` as one atomic group, and adds each record's address to `addresses`; cannot fail or wait.
    ///
    /// Cost under the journal's lock, for each record: a copy and a checksum of 48 bytes and, if it is short, its payload. A group
    /// beyond 128 KiB is copied without the lock; others append behind it meanwhile.
    ///
    /// # Panics
    /// If the group is empty or larger than what was reserved: a bug in the caller.
    pub fn append(
        &self,
        mut credits: Credits,
        drafts: &[Draft<'_>],
        addresses: &mut impl Extend<LogAddress>,
    ) -> Appended {
        let own_file = credits.own_file.take();
        credits.is_quiet = true;
        let bytes: u64 = drafts.iter().map(|draft| record_size_bytes(draft.payload_len())).sum();
        let is_plain = drafts.iter().all(|draft| draft.seq.is_none());
        let mut core = self.shared.core();
        let placed = if is_plain && core.is_large(bytes) {
            drop(core);
            self.append_outside_lock(bytes, drafts, own_file, addresses)
        } else {
            let placed = core.append(drafts, own_file, addresses);
            self.note_appended(&placed.appended);
            drop(core);
            placed
        };
        assert!(placed.charge <= credits.bytes, "group of {} B, reserved {} B", placed.charge, credits.bytes);
        // What the group took stays taken; dropping the credits gives the rest back.
        credits.bytes = placed.charge.abs_diff(credits.bytes);
        credits.room = credits.room.saturating_sub(placed.room);
        placed.appended
    }

    /// As [`Journal::append`], of a group that takes a while to copy: the lock is held before and after that.
    fn append_outside_lock(
        &self,
        bytes: u64,
        drafts: &[Draft<'_>],
        own_file: Option<ReadyFile>,
        addresses: &mut impl Extend<LogAddress>,
    ) -> Placed {
        let memory = Core::memory_for(bytes);
        let records = u32::try_from(drafts.len()).expect("credits bound the records of a group");
        let mut core = self.shared.core();
        let (placed, mut filling) = core.begin_filling(bytes, records, own_file, memory);
        // No group behind this one is durable before it, whoever waits for that.
        self.note_appended(&placed.appended);
        drop(core);
        filling.fill(drafts, addresses);
        self.shared.core().finish_filling(filling);
        // Offers that were made meanwhile found it unfinished.
        self.shared.committer.notify();
        placed
    }

    /// Says how far the journal goes; under its lock.
    fn note_appended(&self, appended: &Appended) {
        self.shared.progress.appended_seq.store(appended.last_seq.0, Ordering::Release);
        self.shared.progress.appended_lsn.store(appended.last_lsn.0, Ordering::Release);
    }

    /// Tells the journal's thread that somebody waits for what was appended. Two loads when nothing was appended since
    /// the last offer of anybody, no system call while the thread is at work.
    pub fn offer(&self) {
        let progress = &self.shared.progress;
        let appended = progress.appended_lsn.load(Ordering::Acquire);
        let is_known = progress.offered_lsn.load(Ordering::Acquire) >= appended;
        if !is_known && progress.offered_lsn.fetch_max(appended, Ordering::AcqRel) < appended {
            self.shared.committer.notify();
        }
    }

    /// As [`Journal::offer`], and what was appended is synced at once, whatever the sync mode: for who cannot go on before it is durable. One who
    /// still finds it not durable asks again.
    pub fn sync_soon(&self) {
        self.offer();
        let progress = &self.shared.progress;
        let is_durable =
            progress.durable_lsn.load(Ordering::Acquire) >= progress.appended_lsn.load(Ordering::Acquire);
        if !is_durable && !progress.is_sync_asked.swap(true, Ordering::Relaxed) {
            self.shared.committer.notify();
        }
    }

    /// Commits what was appended on this thread, if that is quicker than to wake the journal's: a small group, a quick disk,
    /// no segment to begin, and nobody at it but another caller of this function, who is waited for. True: what was appended
    /// before the call and not offered is durable, or the journal has failed. False: nothing was done, [`Journal::offer`] it.
    ///
    /// Blocks for a write and sync of its own and mostly for no more than one of another caller: for those who have nothing
    /// else to do.
    pub fn commit_here(&self) -> bool {
        let progress = &self.shared.progress;
        let appended = progress.appended_lsn.load(Ordering::Acquire);
        if progress.offered_lsn.load(Ordering::Acquire) >= appended {
            return true;
        }
        let is_quick = self.shared.counters.sync_ns_usual.load(Ordering::Relaxed) <= SYNC_HERE_NS_MAX;
        if !is_quick || self.shared.options.sync != SyncMode::Always || progress.phase() != Phase::Running {
            return false;
        }
        let Some(mut committer) = self.lead() else { return false };
        if progress.durable_lsn.load(Ordering::Acquire) >= appended {
            return true;
        }
        self.is_led_here.store(true, Ordering::Relaxed);
        let done = committer.turn_here();
        self.is_led_here.store(false, Ordering::Relaxed);
        if done {
            progress.offered_lsn.fetch_max(appended, Ordering::AcqRel);
        }
        done
    }

    /// The committer, unless the journal's thread has it: a roll can take long.
    fn lead(&self) -> Option<MutexGuard<'_, Committer>> {
        match self.committer.try_lock() {
            Ok(committer) => Some(committer),
            Err(TryLockError::WouldBlock) if self.is_led_here.load(Ordering::Relaxed) => {
                Some(committer::lock(&self.committer))
            }
            Err(_) => None,
        }
    }

    /// Bytes reserved or appended and not yet durable: what the journal holds in memory.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.shared.admission.charged()
    }

    /// [`Journal::buffered_bytes`] for one who cannot go on as long as they are so many: the `on_credits` hook tells when they are less. 0
    /// when the journal has ended: then they stay.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        // noted first: the end of a cycle that is seen here then finds the note
        self.shared.admission.note_starved();
        if self.shared.progress.phase() == Phase::Running { self.buffered_bytes() } else { 0 }
    }

    /// Room that is kept for cleaning, in bytes of footprint, while the disk has none for another segment.
    #[must_use]
    pub fn cleaning_room_bytes(&self) -> Option<u64> {
        let is_short = self.shared.shortage.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        is_short.then(|| self.shared.admission.cleaning_room_bytes())
    }

    /// Whether the disk is full and a group of writes may find no room.
    #[must_use]
    pub fn lacks_room_for_writes(&self) -> bool {
        let is_short = self.shared.shortage.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        is_short && self.shared.admission.lacks_room_for_writes()
    }

    /// Seals the open segment and begins the next in a ready file, so that what is dead in it can come back. False when that would take
    /// room that was granted, when it holds nothing, or when no file is ready: nothing was changed.
    pub fn roll(&self) -> bool {
        let shared = &self.shared;
        let mut core = shared.core();
        let promise = core.segment().promise;
        if !core.can_roll() || !shared.admission.take_room(promise, Class::Cleaning) {
            return false;
        }
        core.roll_early();
        drop(core);
        shared.committer.notify();
        true
    }

    /// The newest seq that was appended.
    #[must_use]
    pub fn appended_seq(&self) -> Seq {
        Seq(self.shared.progress.appended_seq.load(Ordering::Acquire))
    }

    /// Everything up to this seq is durable.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        Seq(self.shared.progress.durable_seq.load(Ordering::Acquire))
    }

    /// Everything up to this lsn is durable, moved copies too.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.shared.progress.durable_lsn.load(Ordering::Acquire))
    }

    /// The lsn that the next record gets.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.shared.core().next_lsn()
    }

    /// Looks whether the journal's parts are as their headers say, and fit each other: for simulations, after each step, while
    /// nobody else uses it.
    ///
    /// # Panics
    /// If they do not: a bug.
    #[doc(hidden)]
    pub fn check_state(&self) {
        let shared = &self.shared;
        let manifest = shared.manifest();
        let core = shared.core();
        manifest.state().check();
        core.check();
        shared.admission.check(core.charged(), core.ready_promise_bytes() + core.segment().promise);
        let segments = &manifest.state().segments;
        let pins = shared.pins();
        for segment in pins.retired.iter().chain(pins.counts.keys()) {
            assert!(segments.contains_key(segment), "segment {segment} is pinned or retired, and unknown");
        }
        let is_sealed = |segment| segments.get(segment).is_some_and(|facts| facts.sealed.is_some());
        assert!(pins.retired.iter().all(is_sealed), "an open segment is retired");
        let (durable, appended) = (self.durable_lsn(), shared.progress.appended_lsn.load(Ordering::Acquire));
        assert!(
            durable.0 <= appended && appended < core.next_lsn().0,
            "{durable:?} of {appended} is durable"
        );
        assert!(self.durable_seq() <= self.appended_seq(), "what is not appended is durable");
        assert!(self.appended_seq() < core.next_seq(), "what is appended comes again");
    }

    /// Whose folder it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.shared.identity
    }

    /// Which backend runs.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Reads the record at `address`: its payload replaces what `payload` held.
    ///
    /// `expected_len` is the payload's length if known; a wrong one costs a second read.
    ///
    /// # Errors
    /// [`ReadError`]; every checksum was verified when there is none.
    pub fn read(
        &self,
        address: LogAddress,
        expected_len: usize,
        payload: &mut Vec<u8>,
    ) -> Result<RecordHeader, ReadError> {
        self.read_in_turn(address, expected_len, payload, &mut |_| ())
    }

    /// As [`Journal::read`]; where more than was expected is to be read, `on_more` is called with the record's bytes before they get room, and may wait.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub fn read_in_turn(
        &self,
        address: LogAddress,
        expected_len: usize,
        payload: &mut Vec<u8>,
        on_more: &mut dyn FnMut(usize),
    ) -> Result<RecordHeader, ReadError> {
        let salt = self.shared.salt(address.segment());
        if address.pack() >= self.shared.progress.written.load(Ordering::Acquire) {
            let found = self.shared.core().with_unwritten(address, |bytes| {
                let header = RecordHeader::decode(bytes, salt)?;
                let stored = bytes.get(RECORD_HEADER_SIZE_BYTES..)?.get(..header.payload_len as usize)?;
                payload.clear();
                payload.extend_from_slice(stored);
                Some(header)
            });
            if let Some(found) = found {
                return verified(address, found, payload);
            }
        }
        let file = self.shared.handle(address.segment()).ok_or(ReadError::Gone(address.segment()))?;
        read_record(&*file, salt, address, expected_len, payload, on_more)
    }

    /// All segments, oldest first. Takes the manifest's lock: not for event loops.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let manifest = self.shared.manifest();
        let mut infos: Vec<_> =
            manifest.state().segments.iter().map(|(id, facts)| info(*id, facts)).collect();
        let core = self.shared.core();
        if let Some(open) = infos.last_mut().filter(|last| last.segment == core.segment().id) {
            open.last_lsn = Lsn(core.next_lsn().0 - 1);
            open.records = core.segment().records.into();
            open.end_bytes = core.end_bytes();
        }
        infos
    }

    /// Keeps `segment` until the pin is dropped; `None` when it is retired or unknown.
    #[must_use]
    pub fn pin(&self, segment: SegmentId) -> Option<Pin> {
        let mut pins = self.shared.pins();
        if pins.retired.contains(&segment) || self.shared.handle(segment).is_none() {
            return None;
        }
        *pins.counts.entry(segment).or_insert(0) += 1;
        Some(Pin { shared: Arc::clone(&self.shared), segment })
    }

    /// Pins a segment that the caller knows to be there: it holds the manifest's lock.
    pub(crate) fn force_pin(&self, segment: SegmentId) -> Pin {
        *self.shared.pins().counts.entry(segment).or_insert(0) += 1;
        Pin { shared: Arc::clone(&self.shared), segment }
    }

    /// A walk over the records of a sealed segment.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] when the segment is not sealed or unknown. Pin it first.
    pub fn scanner(&self, segment: SegmentId) -> Result<Scanner, JournalError> {
        let facts = self.sealed_facts(segment)?;
        let file = self.shared.handle(segment).ok_or_else(|| unknown(segment))?;
        Ok(Scanner::new(file, extent(&self.shared, segment, &facts)))
    }

    /// Begins the footer of a sealed segment: what it holds is written chunk by chunk. `None` when the process has no
    /// descriptor for it: worth trying again after a while.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] when the segment is not sealed or has a footer, [`JournalError::Failed`] when its file
    /// cannot be opened (the journal then stops).
    pub fn footer(&self, segment: SegmentId) -> Result<Option<FooterWriter>, JournalError> {
        let facts = self.sealed_facts(segment)?;
        if facts.footer.is_some() {
            return Err(JournalError::Invalid(format!("segment {segment} has a footer")));
        }
        FooterWriter::begin(Arc::clone(&self.shared), segment, &facts)
    }

    /// Gives up `segment`: no index entry and no reader needs it any more, and a durable checkpoint covers it.
    /// Its file is recycled or removed once nobody pins it.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] when it is not sealed or unknown.
    pub fn retire(&self, segment: SegmentId) -> Result<(), JournalError> {
        self.sealed_facts(segment)?;
        self.shared.pins().retired.insert(segment);
        self.shared.preparer.notify();
        Ok(())
    }

    /// States the newest checkpoint: file `name`, records from `lsn` on must be replayed. Durable on return.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for a name that is too long, [`JournalError::Failed`] when the manifest's sync fails.
    pub fn set_checkpoint(&self, name: &str, lsn: Lsn) -> Result<(), JournalError> {
        if name.is_empty() || name.len() > CHECKPOINT_NAME_BYTES_MAX {
            let message = format!("checkpoint name {name:?} is not 1 to {CHECKPOINT_NAME_BYTES_MAX} B long");
            return Err(JournalError::Invalid(message));
        }
        self.say(&Entry::Checkpoint(Checkpoint { name: name.to_owned(), lsn }))
    }

    /// The counters. Takes the manifest's lock for its gauges: not for event loops.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.shared.counters.snapshot();
        let manifest = self.shared.manifest();
        fill_gauges(&mut counters, manifest.state());
        counters.segments_retired = self.shared.pins().retired.len() as u64;
        counters.buffered_bytes = self.shared.admission.charged();
        counters
    }

    /// How long syncs took and how much each made durable. Waits for no disk; copies some ten KiB.
    #[must_use]
    pub fn syncs(&self) -> SyncFigures {
        self.shared.counters.sync_figures.read()
    }

    /// Clean stop: everything appended becomes durable, then a seal. New credits are refused from now on.
    pub fn close(&self) {
        self.shared.progress.enter(Phase::Closing);
        self.shared.committer.notify();
        self.shared.preparer.notify();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A hook may hold the last reference: its thread cannot wait for itself, and ends on its own.
            let is_self = thread.thread().id() == std::thread::current().id();
            if !is_self && thread.join().is_err() {
                tracing::error!("a thread of the journal panicked");
            }
        }
    }

    /// What to tell a request that lacks something, and the wish for it.
    fn refusal(&self, lack: Lack, class: Class) -> Refusal {
        let shared = &self.shared;
        let shortage = match lack {
            Lack::Memory => None,
            // what was given back is free in a moment
            Lack::Room if class != Class::Write && shared.pins().has_free() => None,
            Lack::Room => *shared.shortage.lock().unwrap_or_else(PoisonError::into_inner),
            Lack::File(size_bytes) => {
                shared.admission.wish_own_file(size_bytes, class);
                shared.admission.own_shortage(size_bytes, shared.clock.now().0)
            }
        };
        shared.preparer.notify();
        if let Some(shortage) = shortage {
            // Others may have been refused for what this request held for a moment, and it does not come back.
            shared.admission.tell_given_back();
            Live::add(&shared.counters.refused_full, 1);
            return Refusal::Full {
                needed_bytes: shortage.needed_bytes,
                available_bytes: shortage.available_bytes,
            };
        }
        Live::add(&shared.counters.refused_busy, 1);
        Refusal::Busy {
            buffered_bytes: shared.admission.charged(),
            limit_bytes: shared.admission.charged_max(),
        }
    }

    pub(crate) fn sealed_facts(&self, segment: SegmentId) -> Result<Facts, JournalError> {
        let manifest = self.shared.manifest();
        let facts = manifest.state().segments.get(&segment).copied().ok_or_else(|| unknown(segment))?;
        facts
            .sealed
            .map(|_| facts)
            .ok_or_else(|| JournalError::Invalid(format!("segment {segment} is still open")))
    }

    fn say(&self, entry: &Entry) -> Result<(), JournalError> {
        let now = self.shared.unix_ms();
        let said = self.shared.manifest().say(std::slice::from_ref(entry), now);
        said.inspect_err(|error| self.shared.fail(error))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.close();
    }
}

fn unknown(segment: SegmentId) -> JournalError {
    JournalError::Invalid(format!("unknown segment {segment}"))
}

/// A segment as the manifest knows it; of an open one only where it begins.
pub(crate) fn info(segment: SegmentId, facts: &Facts) -> SegmentInfo {
    let sealed = facts.sealed.unwrap_or_default();
    let state = match (facts.sealed, facts.footer) {
        (None, _) => SegmentState::Open,
        (Some(_), None) => SegmentState::Sealed,
        (Some(_), Some(footer)) if footer.is_given_back() => SegmentState::Trimmed,
        (Some(_), Some(_)) => SegmentState::Footed,
    };
    let last_lsn = if facts.sealed.is_some() { sealed.last_lsn } else { Lsn(facts.first_lsn.0 - 1) };
    SegmentInfo {
        segment,
        state,
        first_lsn: facts.first_lsn,
        last_lsn,
        records: sealed.records.into(),
        end_bytes: sealed.end_bytes.max(crate::format::SEGMENT_HEADER_SIZE_BYTES),
        size_bytes: facts.size_bytes,
        file: facts.file,
    }
}

/// What a scanner walks over.
pub(crate) fn extent(shared: &Shared, segment: SegmentId, facts: &Facts) -> Extent {
    Extent {
        segment,
        salt: shared.salt(segment),
        first_lsn: facts.first_lsn,
        end_bytes: facts.sealed.unwrap_or_default().end_bytes,
        file_name: facts.file.file_name(),
    }
}

/// Gauges that the manifest knows.
fn fill_gauges(counters: &mut Counters, state: &State) {
    for facts in state.segments.values() {
        match info(SegmentId(0), facts).state {
            SegmentState::Open => counters.segments_open += 1,
            SegmentState::Sealed => counters.segments_sealed += 1,
            SegmentState::Footed => counters.segments_footed += 1,
            SegmentState::Trimmed => counters.segments_trimmed += 1,
        }
        counters.disk_bytes += facts.size_bytes - facts.trimmed_bytes();
    }
    counters.files_ready = state.prepared.len() as u64;
    counters.disk_bytes += state.prepared.values().map(|file| file.size_bytes).sum::<u64>();
}

/// A usual write and sync of more than this is not waited for on a caller's thread.
const SYNC_HERE_NS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use clock::{SimClock, UnixMs};
    use vfs::SimDisk;

    use super::*;
    use crate::options::Options;
    use crate::shared::Hooks;
    use crate::types::Keyspace;

    /// Each tick of a loop that only read woke the journal's thread.
    #[test]
    fn offer_wakes_the_thread_once_for_what_was_appended() {
        let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
        let recovery = Journal::open(Arc::new(SimDisk::new(1)), clock, Path::new("/data"), Options::small());
        let (journal, mut driver) = recovery.expect("opens").start_manual(Hooks::default()).expect("starts");
        driver.prepare();
        journal.offer();
        assert!(!journal.shared.committer.take(), "nothing was appended");
        let append = || {
            let credits = journal.reserve(crate::footprint([3]), Class::Write).expect("room");
            journal.append(credits, &[Draft::new(1, Keyspace::NONE, &[b"one"])], &mut Vec::new());
        };
        append();
        journal.offer();
        assert!(journal.shared.committer.take());
        driver.commit();
        journal.offer();
        assert!(!journal.shared.committer.take(), "it knows of that");
        append();
        journal.offer();
        assert!(journal.shared.committer.take());
    }
}
