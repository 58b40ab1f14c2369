//! A chunk: one header, one checksum, and a payload.
//!
//! | at | size | field (little-endian) |
//! |---|---|---|
//! | 0 | 2 | `EV` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | kind: 1 hello, 2 control, 3 lossy, 4 reliable |
//! | 4 | 4 | length of the payload in bytes |
//! | 8 | 8 | sequence of a reliable chunk, from 1; 0 in others |
//! | 16 | 8 | acknowledgement: the highest sequence up to which all came, 0 for none |
//! | 24 | 4 | how many credit records begin the payload |
//! | 28 | 4 | CRC-32C (iSCSI) of bytes 0 to 28 and of the payload; 0 of a *carried* chunk |
//!
//! Nothing of a chunk is acted upon before its checksum is right, but for its length, which has a limit. A chunk is carried by TLS, which
//! authenticates each of its records: there a checksum would find nothing more, and it took a tenth of the time.

use crc_fast::{CrcAlgorithm, Digest};

use super::WireError;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 32;
/// The only version so far.
pub const VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"EV";
const CRC_AT: usize = 28;

/// What a chunk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first of each side: who it is, and what it knows of the other.
    Hello = 1,
    /// Acknowledgement and credits alone; without both a sign of life.
    Control = 2,
    /// Messages that are sent once.
    Lossy = 3,
    /// Messages that are kept until they are acknowledged.
    Reliable = 4,
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        [Self::Hello, Self::Control, Self::Lossy, Self::Reliable]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// A chunk's header, but for what follows from its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is for.
    pub kind: Kind,
    /// Of a reliable chunk, from 1.
    pub sequence: u64,
    /// The highest sequence up to which all came.
    pub ack: u64,
    /// How many credit records begin the payload.
    pub credits: u32,
}

/// A chunk that came, and whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Its header.
    pub header: Header,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// What the start of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole chunk, of so many bytes.
    Whole(Chunk<'a>, usize),
    /// The start of a chunk; in all it has at least so many bytes.
    Part(usize),
}

/// The header's bytes, for a chunk with this payload. Takes as long as the checksum does.
///
/// # Panics
/// If the payload has 4 GiB or more: a bug in the caller, whose chunks have a limit.
#[must_use]
pub fn encode_header(header: &Header, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut bytes = encode_carried_header(header, payload);
    let crc = checksum(&bytes, payload);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The same of a carried chunk.
///
/// # Panics
/// As [`encode_header`].
#[must_use]
pub fn encode_carried_header(header: &Header, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let length = u32::try_from(payload.len()).expect("chunks have a limit far below 4 GiB");
    debug_assert_eq!(header.sequence != 0, header.kind == Kind::Reliable);
    let mut bytes = [0; HEADER_BYTES];
    bytes[..2].copy_from_slice(&MAGIC);
    bytes[2..4].copy_from_slice(&[VERSION, header.kind as u8]);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..16].copy_from_slice(&header.sequence.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.ack.to_le_bytes());
    bytes[24..CRC_AT].copy_from_slice(&header.credits.to_le_bytes());
    bytes
}

/// The chunk at the start of `bytes`, if it is there as a whole. A payload may have `payload_bytes_max` bytes.
///
/// # Errors
/// [`WireError`]: as soon as the bytes that are there cannot be the start of a chunk.
pub fn decode(bytes: &[u8], payload_bytes_max: u32) -> Result<Parsed<'_>, WireError> {
    parse(bytes, payload_bytes_max, checksum)
}

/// The same of carried chunks. One that has a checksum is refused: its sender has no carrier.
///
/// # Errors
/// As [`decode`].
pub fn decode_carried(bytes: &[u8], payload_bytes_max: u32) -> Result<Parsed<'_>, WireError> {
    parse(bytes, payload_bytes_max, |_, _| 0)
}

fn parse(
    bytes: &[u8],
    payload_bytes_max: u32,
    checksum: impl FnOnce(&[u8; HEADER_BYTES], &[u8]) -> u32,
) -> Result<Parsed<'_>, WireError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return check_start(bytes).map(|()| Parsed::Part(HEADER_BYTES));
    };
    check_start(head)?;
    let kind = Kind::of(head[3]).ok_or(WireError::UnknownKind(head[3]))?;
    let length_bytes = u32_at(head, 4);
    if length_bytes > payload_bytes_max {
        return Err(WireError::TooLong { length_bytes, limit_bytes: payload_bytes_max });
    }
    let Some(payload) = rest.get(..length_bytes as usize) else {
        return Ok(Parsed::Part(HEADER_BYTES + length_bytes as usize));
    };
    if checksum(head, payload) != u32_at(head, CRC_AT) {
        return Err(WireError::Checksum { length_bytes });
    }
    let header = Header { kind, sequence: u64_at(head, 8), ack: u64_at(head, 16), credits: u32_at(head, 24) };
    if (header.sequence != 0) != (kind == Kind::Reliable) {
        return Err(WireError::Sequence { kind, sequence: header.sequence });
    }
    Ok(Parsed::Whole(Chunk { header, payload }, HEADER_BYTES + payload.len()))
}

/// Refuses what is not ours at its first bytes: who sends a request of another protocol may never send 32 of them.
fn check_start(bytes: &[u8]) -> Result<(), WireError> {
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(start) {
        let mut shown = [0; 2];
        shown[..start.len()].copy_from_slice(start);
        return Err(WireError::NotAChunk(shown));
    }
    match bytes.get(2) {
        Some(&theirs) if theirs != VERSION => Err(WireError::Version { theirs }),
        _ => Ok(()),
    }
}

/// Of the header, without its own place, and the payload.
fn checksum(head: &[u8; HEADER_BYTES], payload: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head[..CRC_AT]);
    digest.update(payload);
    digest.finalize() as u32
}

fn u32_at(head: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(head: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u32 = 1 << 10;

    fn whole(header: &Header, payload: &[u8]) -> Vec<u8> {
        [&encode_header(header, payload)[..], payload].concat()
    }

    fn reliable(sequence: u64) -> Header {
        Header { kind: Kind::Reliable, sequence, ack: 7, credits: 0 }
    }

    /// Bytes with `byte` at `at` and the checksum that belongs to them.
    fn altered(at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = whole(&reliable(9), b"payload");
        bytes[at] = byte;
        let (head, payload) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
        let crc = checksum(head, payload);
        bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn somebody_else_is_refused_at_the_first_byte_that_is_not_ours() {
        assert_eq!(decode(b"*", LIMIT), Err(WireError::NotAChunk(*b"*\0")));
        assert_eq!(decode(b"EX", LIMIT), Err(WireError::NotAChunk(*b"EX")));
        assert_eq!(decode(b"EV\x02", LIMIT), Err(WireError::Version { theirs: 2 }));
        assert_eq!(decode(b"", LIMIT), Ok(Parsed::Part(HEADER_BYTES)));
        assert_eq!(decode(b"EV\x01", LIMIT), Ok(Parsed::Part(HEADER_BYTES)));
    }

    #[test]
    fn length_beyond_the_limit_is_refused_before_its_bytes_come() {
        let bytes = whole(&reliable(1), &[0; 1_025]);
        let refused = Err(WireError::TooLong { length_bytes: 1_025, limit_bytes: LIMIT });
        assert_eq!(decode(&bytes[..HEADER_BYTES], LIMIT), refused);
        assert!(matches!(decode(&bytes, 1_025), Ok(Parsed::Whole(..))));
    }

    #[test]
    fn carried_chunk_has_no_checksum_and_one_that_has_is_refused() {
        let (header, payload) = (reliable(3), &b"payload"[..]);
        let bytes = [&encode_carried_header(&header, payload)[..], payload].concat();
        let chunk = Chunk { header, payload };
        assert_eq!(decode_carried(&bytes, LIMIT), Ok(Parsed::Whole(chunk, bytes.len())));
        let refused = Err(WireError::Checksum { length_bytes: 7 });
        assert_eq!(decode(&bytes, LIMIT), refused);
        assert_eq!(decode_carried(&whole(&header, payload), LIMIT), refused);
    }

    #[test]
    fn right_checksum_does_not_excuse_what_makes_no_sense() {
        assert_eq!(decode(&altered(3, 9), LIMIT), Err(WireError::UnknownKind(9)));
        let kind = Kind::Control;
        assert_eq!(decode(&altered(3, 2), LIMIT), Err(WireError::Sequence { kind, sequence: 9 }));
        let kind = Kind::Reliable;
        assert_eq!(decode(&altered(8, 0), LIMIT), Err(WireError::Sequence { kind, sequence: 0 }));
    }

    proptest! {
        #[test]
        fn chunk_comes_back_whole_and_every_cut_of_it_is_a_part(
            sequence in 1..u64::MAX, ack: u64, payload in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let header = Header { kind: Kind::Reliable, sequence, ack, credits: 0 };
            let bytes = whole(&header, &payload);
            let chunk = Chunk { header, payload: &payload };
            prop_assert_eq!(decode(&bytes, LIMIT), Ok(Parsed::Whole(chunk, bytes.len())));
            for cut in 0..bytes.len() {
                match decode(&bytes[..cut], LIMIT) {
                    Ok(Parsed::Part(needs)) => prop_assert!(needs > cut && needs <= bytes.len()),
                    other => prop_assert!(false, "cut at {}: {:?}", cut, other),
                }
            }
        }

        #[test]
        fn any_changed_bit_is_noticed(
            payload in proptest::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0..8
        ) {
            let mut bytes = whole(&reliable(3), &payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            // A changed length may ask for more bytes first.
            let noticed = matches!(decode(&bytes, LIMIT), Err(_) | Ok(Parsed::Part(_)));
            prop_assert!(noticed, "byte {}", at);
        }
    }
}
