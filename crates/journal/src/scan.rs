//! Reading a segment's records in order, in bounded slices, every checksum verified.
//!
//! Invariants
//!   1. A record is handed out only if its batch's header, its own header and its payload verify. Whether the batch has the
//!      records that it was written with is known at its end: a record that a disk put in the place of another verifies.
//!   2. Memory is bounded by the larger of 256 KiB and the largest record: what is handed out together lies in one window. Between
//!      slices it is 512 KiB at most.
//!
//! Sealed segments are durable to their end, so whatever does not verify there is damage. The tail found at
//! start is decided by `recovery::tail` before anything is scanned.

use std::sync::Arc;

use vfs::File;

use crate::error::{JournalError, ReadError};
use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BatchHeader};
use crate::format::footer_chunk::FooterEntry;
use crate::format::record::{RECORD_HEADER_SIZE_BYTES, RecordHeader};
use crate::format::{SEGMENT_HEADER_SIZE_BYTES, Salt, crc32c};
use crate::segment::read_full;
use crate::types::{LogAddress, Lsn, SegmentId, Seq};

/// A record as it lies in a segment.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// Its ordinal.
    pub lsn: Lsn,
    /// Where its header lies.
    pub address: LogAddress,
    /// Its header.
    pub header: RecordHeader,
    /// Its payload, verified.
    pub payload: &'a [u8],
}

impl RecordView<'_> {
    /// What a footer says of it; `hash` is that of the key, 0 where there is no key.
    #[must_use]
    pub fn footer_entry(&self, hash: u128) -> FooterEntry {
        FooterEntry {
            hash,
            seq: self.header.seq,
            expiry_ms: self.header.expiry_ms,
            address: self.address,
            payload_len: self.header.payload_len,
            keyspace: self.header.keyspace,
            kind: self.header.kind,
            flags: self.header.flags,
            extra: 0,
            origin: self.header.origin,
            lsn: self.lsn,
        }
    }
}

/// Some records that lie one after another.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    segment: SegmentId,
    window: &'a [u8],
    window_at: u64,
    met: &'a [Met],
}

impl<'a> Records<'a> {
    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = RecordView<'a>> {
        let Self { segment, window, window_at, met } = self;
        met.iter().map(move |&Met { lsn, offset, header }| {
            let from = (offset - window_at) as usize + RECORD_HEADER_SIZE_BYTES;
            let payload = &window[from..from + header.payload_len as usize];
            RecordView { lsn, address: LogAddress::new(segment, offset), header, payload }
        })
    }
}

/// A record that verified.
#[derive(Clone, Copy, Debug)]
struct Met {
    lsn: Lsn,
    offset: u64,
    header: RecordHeader,
}

/// What to scan.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) segment: SegmentId,
    pub(crate) salt: Salt,
    pub(crate) first_lsn: Lsn,
    /// Where the last batch ends.
    pub(crate) end_bytes: u64,
    /// For messages.
    pub(crate) file_name: String,
}

/// A walk over one segment; each [`Scanner::slice`] goes on where the last one stopped.
#[derive(Debug)]
pub struct Scanner {
    file: Arc<dyn File>,
    extent: Extent,
    offset: u64,
    batch_end: u64,
    /// The seq that records after the batch have, or later ones.
    next_seq: Seq,
    /// Of the batch's records: what its header says, and of those before `summed`.
    body_crc: u32,
    sum: crc_fast::Digest,
    summed: u64,
    lsn: Lsn,
    window: Vec<u8>,
    window_at: u64,
}

impl Scanner {
    pub(crate) fn new(file: Arc<dyn File>, extent: Extent) -> Self {
        let lsn = extent.first_lsn;
        let start = SEGMENT_HEADER_SIZE_BYTES;
        Self::resumed(file, extent, start, lsn)
    }

    /// A walk that starts at the batch at `offset`, whose first record is `lsn`.
    pub(crate) fn resumed(file: Arc<dyn File>, extent: Extent, offset: u64, lsn: Lsn) -> Self {
        Self {
            file,
            extent,
            offset,
            batch_end: offset,
            next_seq: Seq::NONE,
            body_crc: 0,
            sum: new_sum(),
            summed: offset,
            lsn,
            window: Vec::new(),
            window_at: offset,
        }
    }

    /// The lsn of the next record.
    pub(crate) fn next_lsn(&self) -> Lsn {
        self.lsn
    }

    /// Hands the next records out, about `bytes_max` bytes of them (at least one); false at the end.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] with file and offset of what does not verify; [`JournalError::Failed`] when
    /// reading fails.
    pub fn slice(&mut self, bytes_max: u64, f: &mut dyn FnMut(RecordView<'_>)) -> Result<bool, JournalError> {
        self.groups(bytes_max, 1, &mut |records| records.iter().for_each(&mut *f))
    }

    /// As [`Scanner::slice`], up to `count_max` records at once: fewer at the end of the slice and where the next one was not
    /// read yet, as large ones are.
    ///
    /// # Errors
    /// As [`Scanner::slice`]; what lies before the damage was handed out.
    pub fn groups(
        &mut self,
        bytes_max: u64,
        count_max: usize,
        f: &mut dyn FnMut(Records<'_>),
    ) -> Result<bool, JournalError> {
        let stop = self.offset + bytes_max.max(1);
        let mut met = Vec::with_capacity(count_max);
        let mut scanned = Ok(());
        while scanned.is_ok() && self.offset < self.extent.end_bytes && self.offset < stop {
            scanned = self.advance(&mut met, f);
            if met.len() >= count_max {
                self.hand_out(&mut met, f);
            }
        }
        self.hand_out(&mut met, f);
        scanned?;
        self.drop_large_window();
        Ok(self.offset < self.extent.end_bytes)
    }

    /// Keeps no window that a large record needed: whoever reads slices may rest between them.
    fn drop_large_window(&mut self) {
        if self.window.capacity() as u64 > 2 * WINDOW_BYTES {
            if self.summed < self.offset {
                self.sum_up();
            }
            (self.window, self.window_at) = (Vec::new(), self.offset);
        }
    }

    /// Bytes of the segment that lie before the next record.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.offset
    }

    /// Enters the next batch, or adds the next record to `met`, which lies in the window.
    fn advance(&mut self, met: &mut Vec<Met>, f: &mut dyn FnMut(Records<'_>)) -> Result<(), JournalError> {
        if self.offset == self.batch_end {
            self.keep_or_hand_out(BATCH_HEADER_SIZE_BYTES as u64, met, f);
            return self.enter_batch();
        }
        self.keep_or_hand_out(RECORD_HEADER_SIZE_BYTES as u64, met, f);
        let header = self.record_header()?;
        self.keep_or_hand_out(header.stored_bytes(), met, f);
        met.push(self.record(header)?);
        if self.offset == self.batch_end { self.leave_batch() } else { Ok(()) }
    }

    /// Hands out what was met if the next `len` bytes would replace it in the window.
    fn keep_or_hand_out(&self, len: u64, met: &mut Vec<Met>, f: &mut dyn FnMut(Records<'_>)) {
        if !self.holds(len) {
            self.hand_out(met, f);
        }
    }

    fn hand_out(&self, met: &mut Vec<Met>, f: &mut dyn FnMut(Records<'_>)) {
        if !met.is_empty() {
            f(Records { segment: self.extent.segment, window: &self.window, window_at: self.window_at, met });
            met.clear();
        }
    }

    fn enter_batch(&mut self) -> Result<(), JournalError> {
        self.fill(BATCH_HEADER_SIZE_BYTES as u64)?;
        let at = (self.offset - self.window_at) as usize;
        let decoded = BatchHeader::decode(&self.window[at..], self.extent.segment, self.extent.salt);
        let Some((header, _)) = decoded else { return Err(self.damaged("batch header does not verify")) };
        let end = self.offset + header.total_bytes();
        if header.first_lsn != self.lsn || end > self.extent.end_bytes {
            return Err(self.damaged("batch is out of order or beyond the segment's end"));
        }
        self.offset += BATCH_HEADER_SIZE_BYTES as u64;
        (self.batch_end, self.next_seq) = (end, header.next_seq);
        (self.body_crc, self.sum, self.summed) = (header.body_crc, new_sum(), self.offset);
        Ok(())
    }

    /// Adds the records that were met and not added yet to the batch's sum; they lie in the window.
    fn sum_up(&mut self) {
        let [from, to] = [self.summed, self.offset].map(|at| (at - self.window_at) as usize);
        self.sum.update(&self.window[from..to]);
        self.summed = self.offset;
    }

    fn leave_batch(&mut self) -> Result<(), JournalError> {
        self.sum_up();
        if self.sum.finalize() as u32 == self.body_crc {
            return Ok(());
        }
        Err(self.damaged("the batch that ends here has other records than it was written with"))
    }

    fn record_header(&mut self) -> Result<RecordHeader, JournalError> {
        self.fill(RECORD_HEADER_SIZE_BYTES as u64)?;
        RecordHeader::decode(self.in_window(0), self.extent.salt)
            .ok_or_else(|| self.damaged("record header does not verify"))
    }

    fn record(&mut self, header: RecordHeader) -> Result<Met, JournalError> {
        if self.offset + header.stored_bytes() > self.batch_end {
            return Err(self.damaged("record is longer than its batch"));
        }
        if header.seq >= self.next_seq {
            return Err(self.damaged("record has a sequence number that was not given yet, by its batch"));
        }
        self.fill(header.stored_bytes())?;
        let payload = &self.in_window(RECORD_HEADER_SIZE_BYTES)[..header.payload_len as usize];
        if crc32c(payload) != header.payload_crc {
            return Err(self.damaged("payload does not verify"));
        }
        let padding = &self.in_window(RECORD_HEADER_SIZE_BYTES)[payload.len()..];
        let padding = &padding[..header.stored_bytes() as usize - RECORD_HEADER_SIZE_BYTES - payload.len()];
        if padding.iter().any(|byte| *byte != 0) {
            return Err(self.damaged("padding is not zero"));
        }
        let met = Met { lsn: self.lsn, offset: self.offset, header };
        self.offset += header.stored_bytes();
        self.lsn.0 += 1;
        Ok(met)
    }

    fn in_window(&self, skip: usize) -> &[u8] {
        &self.window[(self.offset - self.window_at) as usize + skip..]
    }

    /// Whether the window holds `len` bytes from `offset` on.
    fn holds(&self, len: u64) -> bool {
        self.offset + len <= self.window_at + self.window.len() as u64
    }

    /// Sees to it that the window holds `len` bytes from `offset` on.
    fn fill(&mut self, len: u64) -> Result<(), JournalError> {
        if self.holds(len) {
            return Ok(());
        }
        if self.offset + len > self.extent.end_bytes {
            return Err(self.damaged("a batch or record goes beyond the segment's end"));
        }
        if self.summed < self.offset {
            self.sum_up();
        }
        let want = len.max(WINDOW_BYTES).min(self.extent.end_bytes - self.offset);
        self.window.resize(want as usize, 0);
        self.window_at = self.offset;
        let read = read_full(&*self.file, &mut self.window, self.offset)
            .map_err(|error| JournalError::failed(format!("reading {}", self.extent.file_name), error))?;
        self.window.truncate(read);
        if (read as u64) < len { Err(self.damaged("the file ends too early")) } else { Ok(()) }
    }

    fn damaged(&self, what: &str) -> JournalError {
        JournalError::damaged(
            &self.extent.file_name,
            self.offset,
            format!("segment {}: {what}", self.extent.segment),
        )
    }
}

/// Reads the record at `address` of `file`: its payload replaces what `payload` held. `on_more` is called with the record's bytes before more than
/// was expected gets room.
///
/// # Errors
/// [`ReadError::Mismatch`] when it does not verify, [`ReadError::Io`].
pub(crate) fn read_record(
    file: &dyn File,
    salt: Salt,
    address: LogAddress,
    expected_len: usize,
    payload: &mut Vec<u8>,
    on_more: &mut dyn FnMut(usize),
) -> Result<RecordHeader, ReadError> {
    let io = |source| ReadError::Io { address, source };
    payload.resize(RECORD_HEADER_SIZE_BYTES + expected_len, 0);
    let read = read_full(file, payload, address.offset_bytes()).map_err(io)?;
    let header = RecordHeader::decode(&payload[..read], salt).ok_or(ReadError::Mismatch(address))?;
    let total = RECORD_HEADER_SIZE_BYTES + header.payload_len as usize;
    if total > read {
        on_more(total);
        payload.reserve_exact(total - read);
        payload.resize(total, 0);
        let rest = address.offset_bytes() + read as u64;
        let more = read_full(file, &mut payload[read..], rest).map_err(io)?;
        payload.truncate(read + more);
    }
    payload.truncate(total);
    payload.drain(..RECORD_HEADER_SIZE_BYTES);
    verified(address, Some(header), payload)
}

/// Checks a payload that was read against its header.
pub(crate) fn verified(
    address: LogAddress,
    header: Option<RecordHeader>,
    payload: &[u8],
) -> Result<RecordHeader, ReadError> {
    let header = header.ok_or(ReadError::Mismatch(address))?;
    if payload.len() != header.payload_len as usize || crc32c(payload) != header.payload_crc {
        return Err(ReadError::Mismatch(address));
    }
    Ok(header)
}

fn new_sum() -> crc_fast::Digest {
    crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)
}

/// Background reads are never larger, but for a larger record.
const WINDOW_BYTES: u64 = 256 * 1024;
