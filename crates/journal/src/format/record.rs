//! Record header, 48 bytes at a multiple of 8, followed by the payload and zeroes up to a multiple of 8.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | header_crc: CRC-32C of bytes 4..48, salted |
//! | 4 | 4 | payload_crc: CRC-32C of the payload |
//! | 8 | 4 | payload_len, bytes without padding |
//! | 12 | 1 | kind (meaning: `store`) |
//! | 13 | 1 | flags: bits 0-1 codec, 2 MOVED, 3 GROUP_END |
//! | 14 | 2 | reserved, 0 |
//! | 16 | 4 | keyspace id |
//! | 20 | 4 | group, below 2^16 (0: not replicated) |
//! | 24 | 8 | term, below 2^40 (0: not replicated) |
//! | 32 | 8 | seq |
//! | 40 | 8 | expiry, Unix milliseconds, 0 none |
//!
//! The lsn is not stored: first lsn of the batch plus ordinal in it.

use super::{ORDINAL_MAX, Salt, align, crc32c, mend, put, u32_at, u64_at};
use crate::types::{Keyspace, Origin, Seq};

/// Size of the header in bytes.
pub const RECORD_HEADER_SIZE_BYTES: usize = 48;

/// A record's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// Length of the payload in bytes, without padding.
    pub payload_len: u32,
    /// What the record is; belongs to the store.
    pub kind: u8,
    /// [`crate::record_flags`].
    pub flags: u8,
    /// Keyspace id.
    pub keyspace: Keyspace,
    /// Which group ordered it.
    pub origin: Origin,
    /// Order of the effect.
    pub seq: Seq,
    /// Absolute expiry in Unix milliseconds, 0 for none.
    pub expiry_ms: u64,
}

impl RecordHeader {
    /// The header's bytes in the segment with this salt.
    #[must_use]
    pub fn encode(&self, salt: Salt) -> [u8; RECORD_HEADER_SIZE_BYTES] {
        let mut bytes = [0; RECORD_HEADER_SIZE_BYTES];
        put(&mut bytes, 4, &self.payload_crc.to_le_bytes());
        put(&mut bytes, 8, &self.payload_len.to_le_bytes());
        bytes[12] = self.kind;
        bytes[13] = self.flags;
        put(&mut bytes, 16, &self.keyspace.0.to_le_bytes());
        put(&mut bytes, 20, &u32::from(self.origin.group()).to_le_bytes());
        put(&mut bytes, 24, &self.origin.term().to_le_bytes());
        put(&mut bytes, 32, &self.seq.0.to_le_bytes());
        put(&mut bytes, 40, &self.expiry_ms.to_le_bytes());
        let crc = crc32c(&bytes[4..]) ^ salt.0;
        put(&mut bytes, 0, &crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes` if it verifies under `salt`.
    #[must_use]
    pub fn decode(bytes: &[u8], salt: Salt) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_SIZE_BYTES)?;
        if u32_at(bytes, 0) != crc32c(&bytes[4..]) ^ salt.0 || u64_at(bytes, 32) >= ORDINAL_MAX {
            return None;
        }
        Some(Self {
            payload_crc: u32_at(bytes, 4),
            payload_len: u32_at(bytes, 8),
            kind: bytes[12],
            flags: bytes[13],
            keyspace: Keyspace(u32_at(bytes, 16)),
            origin: Origin::new(u32_at(bytes, 20), u64_at(bytes, 24))?,
            seq: Seq(u64_at(bytes, 32)),
            expiry_ms: u64_at(bytes, 40),
        })
    }

    /// As [`RecordHeader::decode`], of bytes of which one bit may be wrong.
    pub(crate) fn decode_mended(bytes: &[u8], salt: Salt) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEADER_SIZE_BYTES)?;
        let (stated, rest) = (u32_at(bytes, 0), &bytes[4..]);
        let sum = crc32c(rest) ^ salt.0;
        if (stated ^ sum).count_ones() == 1 {
            // the checksum's own
            return Self::decode(&[&sum.to_le_bytes(), rest].concat(), salt);
        }
        let rest = mend::mended(rest, stated ^ salt.0)?;
        Self::decode(&[&bytes[..4], &rest].concat(), salt)
    }

    /// Bytes that the record takes in a segment, padding included.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        record_size_bytes(self.payload_len)
    }
}

/// Bytes that a record with this payload takes in a segment: header, payload, padding.
#[must_use]
pub fn record_size_bytes(payload_len: u32) -> u64 {
    align(RECORD_HEADER_SIZE_BYTES as u64 + u64::from(payload_len))
}
