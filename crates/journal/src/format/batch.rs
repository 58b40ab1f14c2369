//! Batch header, 64 bytes at a multiple of 8, followed by `body_len` bytes of records.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `EKB1` |
//! | 4 | 4 | header_crc: CRC-32C of bytes 8..64, salted |
//! | 8 | 4 | body_len, a multiple of 8 |
//! | 12 | 4 | record_count |
//! | 16 | 4 | body_crc: CRC-32C of the body |
//! | 20 | 4 | segment number |
//! | 24 | 8 | first_lsn: of the first record, or of the next one when there is none |
//! | 32 | 8 | durable_lsn: highest lsn known durable when this was written |
//! | 40 | 8 | time, Unix milliseconds, never less than the batch before |
//! | 48 | 4 | prev_crc: header_crc of the batch before in this segment, 0 for the first |
//! | 52 | 4 | flags: bit 0 STAMP (idle), 1 SEAL (clean stop); both have no records |
//! | 56 | 8 | next_seq: the seq that the first record after this batch gets |
//!
//! Invariants
//!   1. Whole groups only: the last record has GROUP_END.
//!   2. `durable_lsn < first_lsn + record_count`; `first_lsn` is the previous batch's plus its count.

use super::{ORDINAL_MAX, Salt, crc32c, put, u32_at, u64_at};
use crate::types::{Lsn, SegmentId, Seq};

/// Size of the header in bytes.
pub const BATCH_HEADER_SIZE_BYTES: usize = 64;
/// `EKB1`.
pub const BATCH_MAGIC: [u8; 4] = *b"EKB1";
/// Written when the journal goes idle; vouches for everything before it.
pub const BATCH_STAMP: u32 = 1;
/// Written by a clean stop; nothing follows.
pub const BATCH_SEAL: u32 = 2;

/// A batch's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// Bytes of records that follow.
    pub body_len: u32,
    /// How many records.
    pub record_count: u32,
    /// CRC-32C of the body.
    pub body_crc: u32,
    /// The segment that holds the batch.
    pub segment: SegmentId,
    /// Lsn of the first record (or of the next, when there is none).
    pub first_lsn: Lsn,
    /// Highest lsn known durable when the batch was written.
    pub durable_lsn: Lsn,
    /// Unix milliseconds.
    pub time_ms: u64,
    /// Header checksum of the batch before in the segment.
    pub prev_crc: u32,
    /// [`BATCH_STAMP`], [`BATCH_SEAL`].
    pub flags: u32,
    /// The seq that the first record after this batch gets.
    pub next_seq: Seq,
}

impl BatchHeader {
    /// The header's bytes and its checksum (the next batch's `prev_crc`).
    #[must_use]
    pub fn encode(&self, salt: Salt) -> ([u8; BATCH_HEADER_SIZE_BYTES], u32) {
        let mut bytes = [0; BATCH_HEADER_SIZE_BYTES];
        put(&mut bytes, 0, &BATCH_MAGIC);
        put(&mut bytes, 8, &self.body_len.to_le_bytes());
        put(&mut bytes, 12, &self.record_count.to_le_bytes());
        put(&mut bytes, 16, &self.body_crc.to_le_bytes());
        put(&mut bytes, 20, &self.segment.0.to_le_bytes());
        put(&mut bytes, 24, &self.first_lsn.0.to_le_bytes());
        put(&mut bytes, 32, &self.durable_lsn.0.to_le_bytes());
        put(&mut bytes, 40, &self.time_ms.to_le_bytes());
        put(&mut bytes, 48, &self.prev_crc.to_le_bytes());
        put(&mut bytes, 52, &self.flags.to_le_bytes());
        put(&mut bytes, 56, &self.next_seq.0.to_le_bytes());
        let crc = crc32c(&bytes[8..]) ^ salt.0;
        put(&mut bytes, 4, &crc.to_le_bytes());
        (bytes, crc)
    }

    /// The header at the start of `bytes`, with its checksum, if it verifies as one of `segment`'s.
    ///
    /// `salt` is the segment's.
    #[must_use]
    pub fn decode(bytes: &[u8], segment: SegmentId, salt: Salt) -> Option<(Self, u32)> {
        let bytes = bytes.get(..BATCH_HEADER_SIZE_BYTES)?;
        if bytes[..4] != BATCH_MAGIC {
            return None;
        }
        let crc = u32_at(bytes, 4);
        if crc != crc32c(&bytes[8..]) ^ salt.0 || u32_at(bytes, 20) != segment.0 {
            return None;
        }
        let header = Self {
            body_len: u32_at(bytes, 8),
            record_count: u32_at(bytes, 12),
            body_crc: u32_at(bytes, 16),
            segment,
            first_lsn: Lsn(u64_at(bytes, 24)),
            durable_lsn: Lsn(u64_at(bytes, 32)),
            time_ms: u64_at(bytes, 40),
            prev_crc: u32_at(bytes, 48),
            flags: u32_at(bytes, 52),
            next_seq: Seq(u64_at(bytes, 56)),
        };
        let last_lsn = header.first_lsn.0.checked_add(u64::from(header.record_count))?;
        let is_possible = last_lsn < ORDINAL_MAX && header.next_seq.0 < ORDINAL_MAX;
        is_possible.then_some((header, crc))
    }

    /// The lsn that follows the batch.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0.saturating_add(self.record_count.into()))
    }

    /// Header and body together, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        BATCH_HEADER_SIZE_BYTES as u64 + u64::from(self.body_len)
    }
}
