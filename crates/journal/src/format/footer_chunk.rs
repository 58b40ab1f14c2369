//! Footer: chunks of at most 256 KiB from where the manifest says, each a 64-byte header and 48-byte entries,
//! one entry for each record of the segment in lsn order. Where one of them is of a replicated record, the origins of all follow.
//!
//! Chunk header:
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `EKF1` |
//! | 4 | 4 | header_crc: CRC-32C of bytes 8..64, salted |
//! | 8 | 4 | body_crc: CRC-32C of the entries, and of the origins |
//! | 12 | 4 | segment number |
//! | 16 | 4 | entry_count |
//! | 20 | 4 | chunk index, from 0 |
//! | 24 | 8 | first_lsn: lsn of the first entry; the n-th has first_lsn + n |
//! | 32 | 1 | 1: origins follow the entries |
//! | 33 | 31 | reserved, 0 |
//!
//! Entry:
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 16 | hash of the key alone, without its keyspace (meaning: `store`; 0 where there is no key) |
//! | 16 | 8 | seq |
//! | 24 | 8 | expiry of the record, 0 none (meaning: `store`) |
//! | 32 | 4 | offset of the record in the segment / 8 |
//! | 36 | 4 | payload_len |
//! | 40 | 4 | keyspace id |
//! | 44 | 1 | kind |
//! | 45 | 1 | flags of the record |
//! | 46 | 2 | extra (meaning: `store`) |
//!
//! Origin, 7 bytes: group u16, term u40. A reader from before there were any finds the checksum wrong and reads the records.

use super::{Salt, crc32c, put, u16_at, u32_at, u64_at, u128_at};
use crate::types::{Keyspace, LogAddress, Lsn, Origin, SegmentId, Seq};

/// Size of an entry in bytes.
pub const FOOTER_ENTRY_SIZE_BYTES: usize = 48;
/// Size of a chunk's header in bytes.
pub const FOOTER_HEADER_SIZE_BYTES: usize = 64;
/// Most bytes of a chunk: background I/O never has more in one piece.
pub const FOOTER_CHUNK_SIZE_BYTES_MAX: usize = 256 * 1024;
/// Most entries of a chunk.
pub const FOOTER_CHUNK_ENTRIES_MAX: usize =
    (FOOTER_CHUNK_SIZE_BYTES_MAX - FOOTER_HEADER_SIZE_BYTES) / (FOOTER_ENTRY_SIZE_BYTES + ORIGIN_SIZE_BYTES);
/// Size of an origin in bytes.
const ORIGIN_SIZE_BYTES: usize = 7;
/// `EKF1`.
pub const FOOTER_MAGIC: [u8; 4] = *b"EKF1";

/// What start-up needs to know of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterEntry {
    /// Hash of the key alone, 0 where there is no key.
    pub hash: u128,
    /// Order of the effect.
    pub seq: Seq,
    /// The record's expiry, 0 for none.
    pub expiry_ms: u64,
    /// Where the record is.
    pub address: LogAddress,
    /// Length of the payload in bytes.
    pub payload_len: u32,
    /// Keyspace id.
    pub keyspace: Keyspace,
    /// What the record is.
    pub kind: u8,
    /// The record's flags.
    pub flags: u8,
    /// Belongs to the store.
    pub extra: u16,
    /// Which group ordered the record.
    pub origin: Origin,
    /// The record's lsn (not stored: first lsn of the chunk plus ordinal).
    pub lsn: Lsn,
}

/// Appends the bytes of a chunk to `out`. `entries` are in lsn order without gaps, from `first_lsn` on.
///
/// # Panics
/// If there are more than [`FOOTER_CHUNK_ENTRIES_MAX`] entries, or one lies in another segment.
pub fn encode_chunk(
    out: &mut Vec<u8>,
    segment: SegmentId,
    salt: Salt,
    index: u32,
    first_lsn: Lsn,
    entries: &[FooterEntry],
) {
    assert!(entries.len() <= FOOTER_CHUNK_ENTRIES_MAX, "chunk of {} entries", entries.len());
    let start = out.len();
    out.resize(start + FOOTER_HEADER_SIZE_BYTES, 0);
    for entry in entries {
        assert_eq!(entry.address.segment(), segment, "entry of another segment");
        out.extend_from_slice(&encode_entry(entry));
    }
    let has_origins = entries.iter().any(|entry| entry.origin != Origin::ALONE);
    if has_origins {
        entries.iter().for_each(|entry| out.extend_from_slice(&encode_origin(entry.origin)));
    }
    let body_crc = crc32c(&out[start + FOOTER_HEADER_SIZE_BYTES..]);
    let header = &mut out[start..start + FOOTER_HEADER_SIZE_BYTES];
    put(header, 0, &FOOTER_MAGIC);
    put(header, 8, &body_crc.to_le_bytes());
    put(header, 12, &segment.0.to_le_bytes());
    put(header, 16, &(entries.len() as u32).to_le_bytes());
    put(header, 20, &index.to_le_bytes());
    put(header, 24, &first_lsn.0.to_le_bytes());
    header[32] = u8::from(has_origins);
    let crc = crc32c(&header[8..]) ^ salt.0;
    put(header, 4, &crc.to_le_bytes());
}

/// Decodes the chunk at the start of `bytes` into `out`; returns its size in bytes, `None` when it does not
/// verify as chunk `index` of `segment`.
#[must_use]
pub fn decode_chunk(
    bytes: &[u8],
    segment: SegmentId,
    salt: Salt,
    index: u32,
    out: &mut Vec<FooterEntry>,
) -> Option<usize> {
    let header = bytes.get(..FOOTER_HEADER_SIZE_BYTES)?;
    let matches = header[..4] == FOOTER_MAGIC
        && u32_at(header, 4) == crc32c(&header[8..]) ^ salt.0
        && u32_at(header, 12) == segment.0
        && u32_at(header, 20) == index;
    if !matches {
        return None;
    }
    let count = u32_at(header, 16) as usize;
    let origins_at = FOOTER_HEADER_SIZE_BYTES + count.checked_mul(FOOTER_ENTRY_SIZE_BYTES)?;
    let has_origins = header[32] != 0;
    let size = origins_at + if has_origins { count.checked_mul(ORIGIN_SIZE_BYTES)? } else { 0 };
    let body = bytes.get(FOOTER_HEADER_SIZE_BYTES..size)?;
    if u32_at(header, 8) != crc32c(body) {
        return None;
    }
    let first_lsn = u64_at(header, 24);
    first_lsn.checked_add(count as u64)?;
    let (entries, origins) = body.split_at(origins_at - FOOTER_HEADER_SIZE_BYTES);
    let entries = entries.as_chunks::<FOOTER_ENTRY_SIZE_BYTES>().0;
    let origins = origins.as_chunks::<ORIGIN_SIZE_BYTES>().0.iter().map(decode_origin);
    let origins = origins.chain(std::iter::repeat(Origin::ALONE));
    out.extend(entries.iter().zip(origins).enumerate().map(|(n, (bytes, origin))| {
        decode_entry(bytes, origin, segment, Lsn(first_lsn.saturating_add(n as u64)))
    }));
    Some(size)
}

fn encode_entry(entry: &FooterEntry) -> [u8; FOOTER_ENTRY_SIZE_BYTES] {
    let mut bytes = [0; FOOTER_ENTRY_SIZE_BYTES];
    put(&mut bytes, 0, &entry.hash.to_le_bytes());
    put(&mut bytes, 16, &entry.seq.0.to_le_bytes());
    put(&mut bytes, 24, &entry.expiry_ms.to_le_bytes());
    put(&mut bytes, 32, &(entry.address.pack() as u32).to_le_bytes());
    put(&mut bytes, 36, &entry.payload_len.to_le_bytes());
    put(&mut bytes, 40, &entry.keyspace.0.to_le_bytes());
    bytes[44] = entry.kind;
    bytes[45] = entry.flags;
    put(&mut bytes, 46, &entry.extra.to_le_bytes());
    bytes
}

fn decode_entry(
    bytes: &[u8; FOOTER_ENTRY_SIZE_BYTES],
    origin: Origin,
    segment: SegmentId,
    lsn: Lsn,
) -> FooterEntry {
    FooterEntry {
        hash: u128_at(bytes, 0),
        seq: Seq(u64_at(bytes, 16)),
        expiry_ms: u64_at(bytes, 24),
        address: LogAddress::new(segment, u64::from(u32_at(bytes, 32)) * 8),
        payload_len: u32_at(bytes, 36),
        keyspace: Keyspace(u32_at(bytes, 40)),
        kind: bytes[44],
        flags: bytes[45],
        extra: u16_at(bytes, 46),
        origin,
        lsn,
    }
}

fn encode_origin(origin: Origin) -> [u8; ORIGIN_SIZE_BYTES] {
    let ([group_low, group_high], term) = (origin.group().to_le_bytes(), origin.term().to_le_bytes());
    [group_low, group_high, term[0], term[1], term[2], term[3], term[4]]
}

fn decode_origin(&[group_low, group_high, a, b, c, d, e]: &[u8; ORIGIN_SIZE_BYTES]) -> Origin {
    let group = u16::from_le_bytes([group_low, group_high]);
    let term = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    Origin::new(group.into(), term).expect("two bytes of group and five of term")
}
