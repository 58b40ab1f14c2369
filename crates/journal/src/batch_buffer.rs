//! A batch in memory: header and records at the alignment that the file will have them.
//!
//! ```text
//! | pad: offset % 4096 | header 64 | records ... | zeroes to the next block, when written directly |
//! ^ aligned to 4096                             ^ len
//! ```
//!
//! Invariants
//!   1. The byte of file offset `x` is at an address congruent to `x` modulo 4096: a direct write needs no copy.
//!   2. `records` whole records lie behind the header; the header's bytes are valid only after [`BatchBuffer::finish`].

use vfs::{AlignedBuffer, BLOCK_SIZE_BYTES};

use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BatchHeader};
use crate::format::record::{RECORD_HEADER_SIZE_BYTES, RecordHeader};
use crate::format::{Salt, align, crc32c};
use crate::types::{Draft, LogAddress, Lsn, SegmentId, Seq};

/// An unwritten batch.
#[derive(Debug)]
pub(crate) struct BatchBuffer {
    memory: AlignedBuffer,
    /// Bytes before the batch in its first block.
    pad: usize,
    /// Header and records, in bytes.
    len: usize,
    pub(crate) segment: SegmentId,
    salt: Salt,
    /// Where the batch begins in its segment.
    pub(crate) offset: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) records: u32,
    /// Header flags.
    pub(crate) flags: u32,
    /// The seq that the first record after this batch gets; set when the batch is closed.
    pub(crate) next_seq: Seq,
}

impl BatchBuffer {
    /// Room for `capacity` bytes of header and records.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self {
            memory: AlignedBuffer::zeroed(capacity.next_multiple_of(BLOCK_SIZE_BYTES) + BLOCK_SIZE_BYTES),
            pad: 0,
            len: 0,
            segment: SegmentId(0),
            salt: Salt(0),
            offset: 0,
            first_lsn: Lsn(0),
            records: 0,
            flags: 0,
            next_seq: Seq(0),
        }
    }

    /// Starts an empty batch at `offset` of `segment`.
    pub(crate) fn start(&mut self, segment: SegmentId, salt: Salt, offset: u64, first_lsn: Lsn) {
        self.pad = (offset % BLOCK_SIZE_BYTES as u64) as usize;
        self.len = BATCH_HEADER_SIZE_BYTES;
        self.segment = segment;
        self.salt = salt;
        self.offset = offset;
        self.first_lsn = first_lsn;
        self.records = 0;
        self.flags = 0;
    }

    /// Bytes that header and records may take.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len() - BLOCK_SIZE_BYTES
    }

    /// Bytes that header and records take.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where the batch ends in its segment.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Whether it carries nothing: no record, no stamp.
    pub(crate) fn is_blank(&self) -> bool {
        self.records == 0 && self.flags == 0
    }

    /// Copies a record behind the others, its payload's checksum into the header; returns its address.
    ///
    /// # Panics
    /// If it does not fit: the core looked before.
    pub(crate) fn push(&mut self, header: RecordHeader, draft: &Draft<'_>) -> LogAddress {
        let address = LogAddress::new(self.segment, self.offset + self.len as u64);
        let padded = align(RECORD_HEADER_SIZE_BYTES as u64 + u64::from(header.payload_len)) as usize;
        let at = self.pad + self.len;
        let (head, rest) = self.memory[at..at + padded].split_at_mut(RECORD_HEADER_SIZE_BYTES);
        let (payload, padding) = rest.split_at_mut(header.payload_len as usize);
        let mut room = &mut *payload;
        for part in draft.payload() {
            let (copy, rest) = room.split_at_mut(part.len());
            copy.copy_from_slice(part);
            room = rest;
        }
        assert!(room.is_empty(), "parts of the payload are as long as the header says");
        padding.fill(0);
        let payload_crc = draft.long_crc().unwrap_or_else(|| crc32c(payload));
        head.copy_from_slice(&RecordHeader { payload_crc, ..header }.encode(self.salt));
        self.len += padded;
        self.records += 1;
        address
    }

    /// CRC-32C of the records; the expensive part of finishing, outside of every lock.
    pub(crate) fn body_crc(&self) -> u32 {
        crc32c(&self.bytes()[BATCH_HEADER_SIZE_BYTES..])
    }

    /// Writes the header in front; returns its checksum.
    pub(crate) fn finish(&mut self, body_crc: u32, durable_lsn: Lsn, time_ms: u64, prev_crc: u32) -> u32 {
        let header = BatchHeader {
            body_len: (self.len - BATCH_HEADER_SIZE_BYTES) as u32,
            record_count: self.records,
            body_crc,
            segment: self.segment,
            first_lsn: self.first_lsn,
            durable_lsn,
            time_ms,
            prev_crc,
            flags: self.flags,
            next_seq: self.next_seq,
        };
        let (bytes, crc) = header.encode(self.salt);
        self.memory[self.pad..self.pad + BATCH_HEADER_SIZE_BYTES].copy_from_slice(&bytes);
        crc
    }

    /// Header and records.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.pad..self.pad + self.len]
    }

    /// The batch and zeroes up to the end of its last block, for a write through the page cache at `offset`. A page
    /// written to its end need not be read first; without this each write waited for the disk to read one.
    pub(crate) fn padded(&mut self) -> &[u8] {
        let end = self.pad + self.len;
        let blocks_end = end.next_multiple_of(BLOCK_SIZE_BYTES);
        self.memory[end..blocks_end].fill(0);
        &self.memory[self.pad..blocks_end]
    }

    /// Whole blocks around the batch, for a direct write at [`BatchBuffer::blocks_offset`]: the bytes before it are
    /// `prefix` (what the file holds there), those behind it zeroes.
    ///
    /// # Panics
    /// If `prefix` is not exactly what lies between the block's start and the batch.
    pub(crate) fn blocks(&mut self, prefix: &[u8]) -> &[u8] {
        assert_eq!(prefix.len(), self.pad, "the prefix ends where the batch begins");
        self.memory[..self.pad].copy_from_slice(prefix);
        let blocks_end = self.pad + self.padded().len();
        &self.memory[..blocks_end]
    }

    /// Offset in the segment of the block that holds the batch's first byte.
    pub(crate) fn blocks_offset(&self) -> u64 {
        self.offset - self.pad as u64
    }

    /// What of the last block is written: the next batch's prefix. Call after [`BatchBuffer::blocks`].
    pub(crate) fn last_partial_block(&self) -> &[u8] {
        let end = self.pad + self.len;
        &self.memory[end - end % BLOCK_SIZE_BYTES..end]
    }

    /// Bytes of the segment from `offset` on that lie in this batch.
    pub(crate) fn bytes_from(&self, segment: SegmentId, offset: u64) -> Option<&[u8]> {
        let inside = segment == self.segment && offset >= self.offset && offset < self.end();
        inside.then(|| &self.bytes()[(offset - self.offset) as usize..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::record_size_bytes;
    use crate::types::Keyspace;
    use crate::types::LONG_BYTES_MIN;

    /// Writes through the page cache ended with the batch, and the kernel read the rest of each new page from disk.
    #[test]
    fn padded_batch_ends_its_last_block_with_zeroes() {
        let mut batch = BatchBuffer::with_capacity(8192);
        batch.start(SegmentId(1), Salt(3), 4096 + 104, Lsn(1));
        let draft = Draft::new(1, Keyspace::NONE, &[&[7; 5000]]);
        batch.push(RecordHeader { payload_len: 5000, ..Default::default() }, &draft);
        let (end, whole) = (batch.end(), batch.bytes().to_vec());
        let padded = batch.padded();
        assert_eq!(padded.len() as u64, end.next_multiple_of(4096) - (4096 + 104));
        assert_eq!(padded[..whole.len()], whole);
        assert!(padded[whole.len()..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn header_has_the_checksum_of_short_and_long_payloads_in_parts() {
        let mut batch = BatchBuffer::with_capacity(8192);
        batch.start(SegmentId(1), Salt(3), 4096, Lsn(1));
        let bytes: Vec<u8> = (0..LONG_BYTES_MIN).map(|i| i as u8).collect();
        for whole in [&bytes[..], &bytes[1..], &[]] {
            let (parts, from) = (whole.split_at(whole.len() / 3), batch.len());
            let parts = [parts.0, &[], parts.1];
            let header = RecordHeader { payload_len: whole.len() as u32, ..Default::default() };
            batch.push(header, &Draft::new(1, Keyspace::NONE, &parts));
            let stored =
                RecordHeader::decode(&batch.bytes()[from..], Salt(3)).expect("a header that verifies");
            assert_eq!((stored.payload_crc, stored.payload_len), (crc32c(whole), header.payload_len));
        }
    }

    #[test]
    fn direct_blocks_keep_the_prefix_and_end_in_zeroes() {
        let mut batch = BatchBuffer::with_capacity(8192);
        batch.start(SegmentId(1), Salt(3), 4096 + 104, Lsn(1));
        let draft = Draft::new(1, Keyspace::NONE, &[b"value"]);
        let address = batch.push(RecordHeader { payload_len: 5, ..Default::default() }, &draft);
        assert_eq!(address.offset_bytes(), 4096 + 104 + 64);
        batch.finish(batch.body_crc(), Lsn(0), 1, 0);
        let prefix = [7_u8; 104];
        let blocks = batch.blocks(&prefix).to_vec();
        assert_eq!((blocks.len(), batch.blocks_offset()), (4096, 4096));
        assert_eq!(blocks[..104], prefix);
        let end = 104 + 64 + record_size_bytes(5) as usize;
        assert_eq!(&blocks[104..end], batch.bytes());
        assert!(blocks[end..].iter().all(|byte| *byte == 0));
        assert_eq!(batch.last_partial_block(), &blocks[..end]);
    }
}
