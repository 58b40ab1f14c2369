//! Bytes of the journal on disk: encoders and decoders, no I/O.
//!
//! All integers are little-endian. Checksums are CRC-32C (Castagnoli, reflected, initial and final
//! value all ones: `123456789` gives `e3069283`). Offsets are in the submodules' headers:
//!
//! | structure | size | module |
//! |---|---|---|
//! | segment header | 4096 | [`segment_header`] |
//! | batch header | 64 | [`batch`] |
//! | record header | 48, then the payload, zero-padded to 8 | [`record`] |
//! | footer chunk | 64 + 48 an entry (55 where some are replicated) | [`footer_chunk`] |
//! | manifest entry | 64 | [`manifest_entry`] |
//!
//! A segment file is: its header at 0, batches from 4096 on one after another, then zeroes or remains of the
//! file's former life, then (once footed) the footer where the manifest says.
//!
//! **Salt.** The checksums of batch headers, record headers and footer chunks are XORed with
//! `(segment number * 9e3779b1 mod 2^32) ^ (low 32 bits of the folder id)`. The factor is odd, so two numbers never
//! share a salt: what a recycled file holds from the segment that it was does not verify as the segment that it is. The folder id
//! is random and never shown, so no client can store a value that looks like a header of the journal's.
//!
//! **Versions.** [`VERSION`] is what this code writes, [`READER_VERSION_MIN`] the oldest reader that may open it.
//! A reader refuses a folder whose `reader_version_min` exceeds its own [`VERSION`]. Reserved
//! fields are written as zero and ignored when read; giving one a meaning that an old reader must
//! not ignore raises `reader_version_min`. Version 2 states the version of the records' owner in the manifest. Magic, version and reader_version_min keep their offsets for ever.
//!
//! Out of scope: which bytes are where on disk at what time (`recovery`, `segment`, `manifest`).
//! Source: docs/adr/0001-record-batch-segment-manifest-checkpoint-identity.md.

pub mod batch;
pub mod footer_chunk;
pub mod manifest_entry;
pub(crate) mod mend;
pub mod record;
pub mod segment_header;

use crate::types::SegmentId;

/// Version of the format that this code writes.
pub const VERSION: u16 = 2;
/// The oldest reader that understands what this code writes.
pub const READER_VERSION_MIN: u16 = 2;
/// No lsn or seq is ever as large: what states one does not verify, so that nobody need fear to count on from it.
pub(crate) const ORDINAL_MAX: u64 = 1 << 62;
/// Everything in a segment is aligned to this.
pub const ALIGN_BYTES: u64 = 8;
/// Batches begin here.
pub const SEGMENT_HEADER_SIZE_BYTES: u64 = 4096;

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of `parts` one after another.
#[must_use]
pub fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    if let [one] = parts {
        return crc32c(one);
    }
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// What checksums of headers are XORed with: differs between segments, and between folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salt(pub u32);

impl Salt {
    /// The salt of `segment` in the folder with id `folder`.
    #[must_use]
    pub fn new(folder: u128, segment: SegmentId) -> Self {
        Self(segment.0.wrapping_mul(0x9e37_79b1) ^ folder as u32)
    }
}

/// `len` rounded up to [`ALIGN_BYTES`].
#[must_use]
pub fn align(len: u64) -> u64 {
    len.next_multiple_of(ALIGN_BYTES)
}

/// Little-endian u16 at `at`. Callers give buffers of the structure's fixed size.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// Little-endian u32 at `at`. Callers give buffers of the structure's fixed size.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Little-endian u64 at `at`. Callers give buffers of the structure's fixed size.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Little-endian u128 at `at`. Callers give buffers of the structure's fixed size.
pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

/// Copies `value` to `at`.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_parts(&[b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(crc32c_parts(&[]), crc32c(b""));
    }

    #[test]
    fn salts_of_neighbouring_segments_differ() {
        assert_eq!(Salt::new(0, SegmentId(1)), Salt(0x9e37_79b1));
        assert_eq!(Salt::new(0xffff_0000_0000_0001, SegmentId(1)), Salt(0x9e37_79b0));
        assert_ne!(Salt::new(7, SegmentId(1)), Salt::new(7, SegmentId(2)));
    }
}
