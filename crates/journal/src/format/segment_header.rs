//! Segment header, the first 4096 bytes of each segment file, written and synced before the file may be used.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `EVNKSEG1` |
//! | 8 | 2 | version |
//! | 10 | 2 | reader_version_min |
//! | 12 | 4 | file number (the file's name; which segment it holds, the manifest says) |
//! | 16 | 16 | folder id |
//! | 32 | 16 | hash key of the folder (a copy, should the manifest be lost) |
//! | 48 | 4 | hash bits in use |
//! | 52 | 4 | reserved, 0 |
//! | 56 | 8 | size of the file in bytes |
//! | 64 | 8 | created, Unix milliseconds |
//! | 72 | 4020 | reserved, 0 |
//! | 4092 | 4 | CRC-32C of bytes 0..4092 |

use super::{
    READER_VERSION_MIN, SEGMENT_HEADER_SIZE_BYTES, VERSION, crc32c, put, u16_at, u32_at, u64_at, u128_at,
};
use crate::types::FileId;

/// `EVNKSEG1`.
pub const SEGMENT_MAGIC: [u8; 8] = *b"EVNKSEG1";
const SIZE: usize = SEGMENT_HEADER_SIZE_BYTES as usize;
const CRC_AT: usize = SIZE - 4;

/// What makes a folder itself: fixed when it is created, stored in manifest and segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Random; a segment of another folder is refused.
    pub folder: u128,
    /// Random; the key of the store's hash (SipHash-1-3).
    pub hash_key: u128,
    /// How many bits of the hash are in use; fewer than 128 only in tests.
    pub hash_bits: u32,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose segment it is.
    pub identity: Identity,
    /// The file's number.
    pub file: FileId,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// When it was prepared, Unix milliseconds.
    pub created_ms: u64,
}

/// Why bytes are no segment header that this code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Magic or checksum do not verify.
    Bad,
    /// Written by a newer version; the least reader version it asks for.
    Newer(u16),
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        put(&mut bytes, 0, &SEGMENT_MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 10, &READER_VERSION_MIN.to_le_bytes());
        put(&mut bytes, 12, &self.file.0.to_le_bytes());
        put(&mut bytes, 16, &self.identity.folder.to_le_bytes());
        put(&mut bytes, 32, &self.identity.hash_key.to_le_bytes());
        put(&mut bytes, 48, &self.identity.hash_bits.to_le_bytes());
        put(&mut bytes, 56, &self.size_bytes.to_le_bytes());
        put(&mut bytes, 64, &self.created_ms.to_le_bytes());
        let crc = crc32c(&bytes[..CRC_AT]);
        put(&mut bytes, CRC_AT, &crc.to_le_bytes());
        bytes
    }

    /// Decodes the first 4096 bytes of a segment file.
    ///
    /// # Errors
    /// [`HeaderError`]: bad, or of a newer version (which is asked before the checksum, since a newer layout
    /// may keep it elsewhere).
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes = bytes.get(..SIZE).ok_or(HeaderError::Bad)?;
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Bad);
        }
        let reader_min = u16_at(bytes, 10);
        if reader_min > VERSION {
            return Err(HeaderError::Newer(reader_min));
        }
        if u32_at(bytes, CRC_AT) != crc32c(&bytes[..CRC_AT]) {
            return Err(HeaderError::Bad);
        }
        Ok(Self {
            identity: Identity {
                folder: u128_at(bytes, 16),
                hash_key: u128_at(bytes, 32),
                hash_bits: u32_at(bytes, 48),
            },
            file: FileId(u32_at(bytes, 12)),
            size_bytes: u64_at(bytes, 56),
            created_ms: u64_at(bytes, 64),
        })
    }
}
