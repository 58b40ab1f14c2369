//! Batching and placing, without I/O: appends go in, write cycles come out, completions go in.
//!
//! ```text
//!  append --> open batch --(full | roll | taken)--> queue --take_cycle--> flight --on_durable--> pool
//! ```
//!
//! Invariants
//!   1. `durable_lsn < next_lsn`, `durable_seq < next_seq`; all only grow.
//!   2. At most one cycle is in flight. A cycle stays in one segment: a roll begins a new one.
//!   3. A batch's address in its segment is fixed when it starts; batches follow each other without a gap.
//!   4. Every record of a group is in one batch; the last one has GROUP_END.
//!   5. A large group is copied into a batch of its own without the lock; its place in the queue is kept meanwhile, and what comes after
//!      it is written after it.
//!   6. Nothing here waits, fails, or asks the time: `admission` granted the room before.
//!
//! Out of scope: threads, files, what was granted (`thread`, `segment`, `admission`).

mod check;

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use crate::admission::{footprint_of, promise_bytes, usable_bytes};
use crate::batch_buffer::BatchBuffer;
use crate::format::batch::BATCH_HEADER_SIZE_BYTES;
use crate::format::manifest_entry::Sealed;
use crate::format::record::{RecordHeader, record_size_bytes};
use crate::format::{SEGMENT_HEADER_SIZE_BYTES, Salt};
use crate::segment::ReadyFile;
use crate::types::{Appended, Draft, LogAddress, Lsn, SegmentId, Seq, record_flags};

/// The segment that batches go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) id: SegmentId,
    pub(crate) size_bytes: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) records: u32,
    /// Footprint of what it holds.
    pub(crate) used: u64,
    /// What it can still promise to credits; 0 when it belongs to one large group.
    pub(crate) promise: u64,
    /// It belongs to one large group: the next append goes elsewhere.
    pub(crate) closed: bool,
}

impl OpenSegment {
    /// A fresh segment.
    pub(crate) fn new(id: SegmentId, size_bytes: u64, first_lsn: Lsn) -> Self {
        let promise = promise_bytes(size_bytes);
        Self { id, size_bytes, first_lsn, records: 0, used: 0, promise, closed: false }
    }

    /// A segment that holds `records` records and ends at `end_bytes`.
    pub(crate) fn resumed(
        id: SegmentId,
        size_bytes: u64,
        first_lsn: Lsn,
        records: u32,
        end_bytes: u64,
    ) -> Self {
        let used = footprint_of(end_bytes - SEGMENT_HEADER_SIZE_BYTES, records.into());
        let promise = promise_bytes(size_bytes).saturating_sub(used);
        Self { id, size_bytes, first_lsn, records, used, promise, closed: used >= usable_bytes(size_bytes) }
    }
}

/// One segment ends, the next begins.
#[derive(Clone, Debug)]
pub(crate) struct Roll {
    pub(crate) sealed: Sealed,
    pub(crate) next: SegmentId,
    pub(crate) file: ReadyFile,
    pub(crate) first_lsn: Lsn,
}

/// What is written and synced together.
#[derive(Debug, Default)]
pub(crate) struct Cycle {
    /// Before anything is written: seal the segment before, open the next.
    pub(crate) roll: Option<Roll>,
    /// In file order; readers may look into them meanwhile.
    pub(crate) batches: Vec<Arc<RwLock<BatchBuffer>>>,
    /// Lsn of the last record.
    pub(crate) last_lsn: Lsn,
    /// The seq that the next record gets.
    pub(crate) next_seq: Seq,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Memory to discharge when done.
    pub(crate) charge: u64,
}

#[derive(Debug)]
enum Work {
    Batch {
        batch: BatchBuffer,
        charge: u64,
    },
    /// The address of a batch that is being filled: what comes after it waits.
    Filling(SegmentId, u64),
    Roll(Box<Roll>),
}

/// A large group whose address is fixed, and which is copied without the journal's lock.
#[derive(Debug)]
pub(crate) struct Filling {
    batch: BatchBuffer,
    next_seq: Seq,
    charge: u64,
}

impl Filling {
    /// Copies the group's records and adds their addresses.
    pub(crate) fn fill(&mut self, drafts: &[Draft<'_>], addresses: &mut impl Extend<LogAddress>) {
        for (n, draft) in drafts.iter().enumerate() {
            let header = header_of(draft, self.next_seq, group_end(n, drafts.len()));
            self.next_seq.0 += 1;
            addresses.extend([self.batch.push(header, draft)]);
        }
        assert_eq!(self.next_seq, self.batch.next_seq, "each record has the seq that was kept for it");
    }
}

/// What [`Core::append`] did, for the counters of admission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) appended: Appended,
    /// Memory that the group is charged with until it is durable.
    pub(crate) charge: u64,
    /// Room that it took from what was promised, a cut segment's rest included.
    pub(crate) room: u64,
}

/// Where a recovered journal goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    pub(crate) segment: OpenSegment,
    /// Where the next batch begins.
    pub(crate) end_bytes: u64,
    pub(crate) next_lsn: Lsn,
    pub(crate) next_seq: Seq,
    pub(crate) next_segment: SegmentId,
}

/// The journal's state under its one mutex.
#[derive(Debug)]
pub(crate) struct Core {
    folder: u128,
    batch_bytes_max: usize,
    next_lsn: Lsn,
    next_seq: Seq,
    next_segment: SegmentId,
    segment: OpenSegment,
    open: BatchBuffer,
    /// Footprint of what the open batch holds.
    open_charge: u64,
    queue: VecDeque<Work>,
    ready: VecDeque<ReadyFile>,
    flight: Vec<Arc<RwLock<BatchBuffer>>>,
    pool: Vec<BatchBuffer>,
    /// Cycles that were taken.
    cycles: u64,
}

impl Core {
    /// A core that goes on at `resume`; batches close at `batch_bytes_max`.
    pub(crate) fn new(folder: u128, resume: Resume, batch_bytes_max: usize) -> Self {
        let mut open = BatchBuffer::with_capacity(batch_bytes_max);
        let salt = Salt::new(folder, resume.segment.id);
        open.start(resume.segment.id, salt, resume.end_bytes, resume.next_lsn);
        Self {
            folder,
            batch_bytes_max,
            next_lsn: resume.next_lsn,
            next_seq: resume.next_seq,
            next_segment: resume.next_segment,
            segment: resume.segment,
            open,
            open_charge: 0,
            queue: VecDeque::new(),
            ready: VecDeque::new(),
            flight: Vec::new(),
            pool: Vec::new(),
            cycles: 0,
        }
    }

    /// Appends a group and pushes each record's address. `own_file` is the file of a large group.
    ///
    /// # Panics
    /// If no file is ready: the caller's credits were not granted by admission.
    pub(crate) fn append(
        &mut self,
        drafts: &[Draft<'_>],
        own_file: Option<ReadyFile>,
        addresses: &mut impl Extend<LogAddress>,
    ) -> Placed {
        assert!(!drafts.is_empty(), "a group has at least one record");
        let bytes: u64 = drafts.iter().map(|draft| record_size_bytes(draft.payload_len())).sum();
        let footprint = footprint_of(bytes, drafts.len() as u64);
        let owns = own_file.is_some();
        let wasted = self.make_room(bytes, footprint, own_file);
        // Credits pay for a batch of the group's own; most groups share one, and give its header back.
        let shared = if self.open.records == 0 { 0 } else { BATCH_HEADER_SIZE_BYTES as u64 };
        let spent = footprint - shared;
        for (n, draft) in drafts.iter().enumerate() {
            addresses.extend([self.push(draft, group_end(n, drafts.len()))]);
        }
        self.open_charge += footprint;
        self.take_room(footprint, spent, owns, wasted)
    }

    /// Whether a group of `bytes` is to be filled without the lock ([`Core::begin_filling`]): to copy it would hold others up.
    pub(crate) fn is_large(&self, bytes: u64) -> bool {
        bytes > FILL_OUTSIDE_LOCK_BYTES_MIN.min(self.batch_bytes_max as u64 / 2)
    }

    /// Fixes the address of a group of `records` of `bytes`, none of them a moved copy; it is filled without the lock, and given back
    /// to [`Core::finish_filling`]. `memory` is [`Core::memory_for`] the bytes.
    ///
    /// # Panics
    /// As [`Core::append`].
    pub(crate) fn begin_filling(
        &mut self,
        bytes: u64,
        records: u32,
        own_file: Option<ReadyFile>,
        memory: BatchBuffer,
    ) -> (Placed, Filling) {
        assert!(records > 0, "a group has at least one record");
        let footprint = footprint_of(bytes, records.into());
        let owns = own_file.is_some();
        let wasted = self.make_segment_room(footprint, own_file);
        self.close_open_batch();
        let mut batch = memory;
        batch.start(self.segment.id, self.salt(), self.open.offset, self.next_lsn);
        self.queue.push_back(Work::Filling(batch.segment, batch.offset));
        let first_seq = self.next_seq;
        self.next_seq.0 += u64::from(records);
        self.next_lsn.0 += u64::from(records);
        self.segment.records += records;
        batch.next_seq = self.next_seq;
        let end = batch.end() + bytes;
        self.open.start(self.segment.id, self.salt(), end, self.next_lsn);
        let placed = self.take_room(footprint, footprint, owns, wasted);
        (placed, Filling { batch, next_seq: first_seq, charge: footprint })
    }

    /// Memory that [`Core::begin_filling`] needs; made without the lock.
    pub(crate) fn memory_for(bytes: u64) -> BatchBuffer {
        BatchBuffer::with_capacity(BATCH_HEADER_SIZE_BYTES + bytes as usize)
    }

    /// The group is filled: it may be written.
    ///
    /// # Panics
    /// If it is not from [`Core::begin_filling`].
    pub(crate) fn finish_filling(&mut self, Filling { batch, charge, .. }: Filling) {
        let is_it = |work: &&mut Work| matches!(work, Work::Filling(segment, offset) if (*segment, *offset) == (batch.segment, batch.offset));
        let address = self.queue.iter_mut().find(is_it).expect("its place is kept");
        *address = Work::Batch { batch, charge };
    }

    /// Whether a group is being filled.
    pub(crate) fn is_filling(&self) -> bool {
        self.queue.iter().any(|work| matches!(work, Work::Filling(..)))
    }

    /// Everything that was appended and not taken, up to the next roll or what is being filled; `None` when there is nothing or a cycle is in
    /// flight.
    pub(crate) fn take_cycle(&mut self) -> Option<Cycle> {
        let is_filling = match self.queue.front() {
            Some(Work::Filling(..)) => true,
            Some(Work::Roll(_)) => matches!(self.queue.get(1), Some(Work::Filling(..))),
            _ => false,
        };
        if is_filling || !self.flight.is_empty() || (self.queue.is_empty() && self.open.is_blank()) {
            return None;
        }
        self.cycles += 1;
        let mut cycle = Cycle { next_seq: self.next_seq, ..Cycle::default() };
        while let Some(work) = self.queue.pop_front() {
            match work {
                Work::Batch { batch, charge } => self.launch(&mut cycle, batch, charge),
                Work::Roll(roll) if cycle.batches.is_empty() && cycle.roll.is_none() => {
                    cycle.last_lsn = roll.sealed.last_lsn;
                    cycle.next_seq = roll.sealed.next_seq;
                    cycle.roll = Some(*roll);
                }
                later @ (Work::Roll(_) | Work::Filling(..)) => {
                    self.queue.push_front(later);
                    return Some(cycle);
                }
            }
        }
        if !self.open.is_blank() {
            let (batch, charge) = self.replace_open(self.open.end());
            self.launch(&mut cycle, batch, charge);
        }
        Some(cycle)
    }

    /// Whether the next cycle is one batch of at most `bytes`, in the open segment.
    pub(crate) fn is_small(&self, bytes: usize) -> bool {
        self.queue.is_empty() && self.open.len() <= bytes
    }

    /// Whether the last cycle ended before a roll: what comes after it was offered too, and waits for a turn.
    pub(crate) fn is_roll_queued(&self) -> bool {
        matches!(self.queue.front(), Some(Work::Roll(_)))
    }

    /// The cycle in flight is over; its buffers serve again.
    pub(crate) fn on_cycle_done(&mut self, cycle: &mut Cycle) {
        self.flight.clear();
        for batch in cycle.batches.drain(..) {
            // A reader that still looks into it keeps it; the pool then gets a new one when needed.
            let Ok(batch) = Arc::try_unwrap(batch) else { continue };
            let batch = batch.into_inner().unwrap_or_else(PoisonError::into_inner);
            let is_usual = (self.batch_bytes_max..2 * self.batch_bytes_max).contains(&batch.capacity());
            if self.pool.len() < POOLED_BATCHES_MAX && is_usual {
                self.pool.push(batch);
            }
        }
    }

    /// Whether a stamp fits without taking what is kept for the seal and the footer.
    pub(crate) fn has_room_for_mark(&self) -> bool {
        !self.segment.closed
            && self.segment.used + footprint_of(0, 0) <= usable_bytes(self.segment.size_bytes)
    }

    /// Puts an empty batch with `flags` (stamp, seal) behind everything appended; returns what it took of the promise.
    pub(crate) fn mark(&mut self, flags: u32) -> u64 {
        self.close_open_batch();
        self.open.flags = flags;
        let footprint = footprint_of(0, 0);
        self.segment.used += footprint;
        let promised = footprint.min(self.segment.promise);
        self.segment.promise -= promised;
        self.close_open_batch();
        promised
    }

    /// Adds a file to those that the next segments take.
    pub(crate) fn add_ready(&mut self, file: ReadyFile) {
        self.ready.push_back(file);
    }

    /// Size of the smallest file that a shared group may still go to.
    pub(crate) fn least_file_bytes(&self) -> u64 {
        let open = if self.segment.closed { u64::MAX } else { self.segment.size_bytes };
        self.ready.iter().map(|file| file.size_bytes).fold(open, u64::min)
    }

    /// What the files that wait can promise together.
    pub(crate) fn ready_promise_bytes(&self) -> u64 {
        self.ready.iter().map(|file| promise_bytes(file.size_bytes)).sum()
    }

    pub(crate) fn ready(&self) -> &VecDeque<ReadyFile> {
        &self.ready
    }

    pub(crate) fn segment(&self) -> &OpenSegment {
        &self.segment
    }

    /// Whether the open segment holds something, and a file is ready for the next.
    pub(crate) fn can_roll(&self) -> bool {
        self.segment.records > 0 && !self.ready.is_empty() && !self.is_filling()
    }

    /// Seals the open segment before it is full.
    ///
    /// # Panics
    /// If it [cannot](Core::can_roll).
    pub(crate) fn roll_early(&mut self) {
        let file = self.ready.pop_front().expect("the caller saw that one is ready");
        self.roll(file);
    }

    /// Where the next record or batch goes.
    pub(crate) fn end_bytes(&self) -> u64 {
        if self.open.is_blank() { self.open.offset } else { self.open.end() }
    }

    pub(crate) fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    pub(crate) fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// Whether everything appended is on its way or done.
    pub(crate) fn is_drained(&self) -> bool {
        self.flight.is_empty() && self.queue.is_empty() && self.open.is_blank()
    }

    /// Calls `f` with the bytes from `address` to the end of its batch, if the batch is not written yet.
    pub(crate) fn with_unwritten<R>(&self, address: LogAddress, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let (segment, offset) = (address.segment(), address.offset_bytes());
        if let Some(bytes) = self.open.bytes_from(segment, offset) {
            return Some(f(bytes));
        }
        for work in &self.queue {
            if let Work::Batch { batch, .. } = work
                && let Some(bytes) = batch.bytes_from(segment, offset)
            {
                return Some(f(bytes));
            }
        }
        for batch in &self.flight {
            let batch = batch.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(bytes) = batch.bytes_from(segment, offset) {
                return Some(f(bytes));
            }
        }
        None
    }

    /// Sees to it that the open batch takes `bytes` more; returns what was promised of a segment that was cut short.
    fn make_room(&mut self, bytes: u64, footprint: u64, own_file: Option<ReadyFile>) -> u64 {
        let wasted = self.make_segment_room(footprint, own_file);
        if self.open.len() as u64 + bytes > self.open.capacity() as u64 {
            self.close_open_batch();
            let needed = bytes as usize + self.open.len();
            if needed > self.open.capacity() {
                let (segment, offset, lsn) = (self.open.segment, self.open.offset, self.open.first_lsn);
                self.open = BatchBuffer::with_capacity(needed);
                self.open.start(segment, self.salt(), offset, lsn);
            }
        }
        wasted
    }

    /// Sees to it that the open segment takes a group; returns what was promised of one that was cut short.
    fn make_segment_room(&mut self, footprint: u64, own_file: Option<ReadyFile>) -> u64 {
        let mut wasted = 0;
        let fits = self.segment.used + footprint <= usable_bytes(self.segment.size_bytes);
        if let Some(file) = own_file {
            wasted = self.segment.promise;
            self.roll(file);
            self.segment.promise = 0;
        } else if self.segment.closed || !fits {
            wasted = self.segment.promise;
            let file = self.ready.pop_front().expect("admission granted this append a ready file");
            self.roll(file);
        }
        wasted
    }

    /// Accounts for a group of `footprint` that `spent` room.
    fn take_room(&mut self, footprint: u64, spent: u64, owns: bool, wasted: u64) -> Placed {
        let promised = spent.min(self.segment.promise);
        self.segment.promise -= promised;
        self.segment.used += spent;
        self.segment.closed = owns;
        let (last_seq, last_lsn) = (Seq(self.next_seq.0 - 1), Lsn(self.next_lsn.0 - 1));
        let appended = Appended { last_seq, last_lsn, cycle: self.cycles };
        Placed { appended, charge: footprint, room: promised + wasted }
    }

    fn salt(&self) -> Salt {
        Salt::new(self.folder, self.segment.id)
    }

    fn push(&mut self, draft: &Draft<'_>, group_end: u8) -> LogAddress {
        let seq = draft.seq.unwrap_or(self.next_seq);
        // A moved copy's seq is an old one; in a salvaged folder all are, and new ones must not repeat them.
        self.next_seq.0 = self.next_seq.0.max(seq.0 + 1);
        self.next_lsn.0 += 1;
        self.segment.records += 1;
        self.open.push(header_of(draft, seq, group_end), draft)
    }

    /// Seals the open segment and opens the next in `file`.
    fn roll(&mut self, file: ReadyFile) {
        self.close_open_batch();
        let sealed = Sealed {
            segment: self.segment.id,
            records: self.segment.records,
            first_lsn: self.segment.first_lsn,
            last_lsn: Lsn(self.next_lsn.0 - 1),
            end_bytes: self.open.offset,
            next_seq: self.next_seq,
        };
        let next = self.next_segment;
        assert!(next > self.segment.id, "segment numbers grow");
        self.next_segment = SegmentId(next.0 + 1);
        self.segment = OpenSegment::new(next, file.size_bytes, self.next_lsn);
        self.open.start(next, self.salt(), SEGMENT_HEADER_SIZE_BYTES, self.next_lsn);
        self.queue.push_back(Work::Roll(Box::new(Roll { sealed, next, file, first_lsn: self.next_lsn })));
    }

    /// Moves the open batch to the queue unless it is blank.
    fn close_open_batch(&mut self) {
        if self.open.is_blank() {
            return;
        }
        let (batch, charge) = self.replace_open(self.open.end());
        self.queue.push_back(Work::Batch { batch, charge });
    }

    /// Starts a new open batch at `offset`; returns the old one and its charge.
    fn replace_open(&mut self, offset: u64) -> (BatchBuffer, u64) {
        let mut fresh = self.pool.pop().unwrap_or_else(|| BatchBuffer::with_capacity(self.batch_bytes_max));
        fresh.start(self.segment.id, self.salt(), offset, self.next_lsn);
        self.open.next_seq = self.next_seq;
        (std::mem::replace(&mut self.open, fresh), std::mem::take(&mut self.open_charge))
    }

    fn launch(&mut self, cycle: &mut Cycle, batch: BatchBuffer, charge: u64) {
        cycle.last_lsn = Lsn(batch.first_lsn.0 + u64::from(batch.records) - 1);
        cycle.next_seq = batch.next_seq;
        cycle.records += u64::from(batch.records);
        cycle.bytes += batch.len() as u64;
        cycle.charge += charge;
        let batch = Arc::new(RwLock::new(batch));
        self.flight.push(Arc::clone(&batch));
        cycle.batches.push(batch);
    }
}

fn header_of(draft: &Draft<'_>, seq: Seq, group_end: u8) -> RecordHeader {
    RecordHeader {
        payload_crc: 0, // BatchBuffer::push knows it
        payload_len: draft.payload_len(),
        kind: draft.kind,
        flags: draft.flags & !record_flags::GROUP_END | group_end,
        keyspace: draft.keyspace,
        origin: draft.origin,
        seq,
        expiry_ms: draft.expiry_ms,
    }
}

/// The flag of record number `n` of `count` of a group.
fn group_end(n: usize, count: usize) -> u8 {
    if n + 1 == count { record_flags::GROUP_END } else { 0 }
}

/// Groups beyond this are copied without the lock: of small records these take about a millisecond.
const FILL_OUTSIDE_LOCK_BYTES_MIN: u64 = 128 << 10;
/// Write buffers kept for reuse: one open, one in flight, one to spare.
const POOLED_BATCHES_MAX: usize = 2;

#[cfg(test)]
mod tests;
