//! The payload of DUMP: a value as bytes that outlive the server.
//!
//! DUMP answers Redis's payload (see `rdb`), which RESTORE of Redis 7.0 and later takes: of a hash whose fields have deadlines Redis 7.4 and later. A stream
//! in which producers named entries, or consumers gave some back, is nothing that these can hold. It has a payload of our own, which DUMP of older versions
//! answered for all values and RESTORE takes, too:
//!
//! ```text
//!  | "EVK" | version u8 | kind u8 | value | crc32c of all before, u32 little-endian |
//!
//!  kind 1 string: its bytes     2 hash, 3 set, 4 list, 5 sorted set, 6 stream: all elements (`store::Packed::dump`), one or more
//! ```
//!
//! Version 2 is that of a hash whose fields have deadlines and of a stream with blocks of what is pending, 1 that of all else: older servers take what
//! they know.

use store::{Moment, Packed, Shape, ValueKind};

use crate::rdb_value;
use crate::stream::is_block;

/// The payload of a string.
pub fn encode(value: &[u8]) -> Vec<u8> {
    let head = rdb::string_head(value.len());
    [&head[..], value, &rdb::footer(rdb::VERSION, &[&head, value])].concat()
}

/// The collection in the value of a payload of our own; `None` if it is none, or empty. `tag_of` is [`store::Access::tag`].
/// Without fields whose time has come at `now`, which may be all.
pub fn load(shape: Shape, dump: &[u8], now: Moment, tag_of: impl Fn(&[u8]) -> u16) -> Option<Vec<u8>> {
    store::load(shape, dump, now, tag_of).filter(|_| !dump.is_empty())
}

/// The payload of a collection.
pub(crate) fn encode_collection(kind: ValueKind, packed: Packed<'_>, now: Moment) -> Vec<u8> {
    let (body, version) = match rdb_value::encode(kind, packed, now) {
        Some(body) => body,
        None => return encode_own(kind, packed, now),
    };
    let footer = rdb::footer(version, &[&body]);
    [&body[..], &footer].concat()
}

fn encode_own(kind: ValueKind, packed: Packed<'_>, now: Moment) -> Vec<u8> {
    let mut head = head(kind);
    let has_blocks = kind == ValueKind::Stream && packed.iter().any(is_block);
    if packed.is_timed() || has_blocks {
        head[VERSION_AT] = SECOND_VERSION;
    }
    sealed([&head[..], &store::dump(packed, now)].concat())
}

/// The string in a payload in which it lies as it is.
pub fn plain_string(payload: &[u8]) -> Option<&[u8]> {
    let own = || decode(payload).filter(|(kind, _)| *kind == ValueKind::String).map(|(_, value)| value);
    if is_own(payload) { own() } else { rdb::plain_string(rdb::verify(payload)?.0) }
}

/// Whether it begins as no value of Redis.
pub(crate) fn is_own(payload: &[u8]) -> bool {
    payload.starts_with(&MAGIC)
}

/// What the payload of such a value begins with: magic, version, and kind.
pub const fn head(kind: ValueKind) -> [u8; 5] {
    let kind = match kind {
        ValueKind::String => 1,
        ValueKind::Hash => 2,
        ValueKind::Set => 3,
        ValueKind::List => 4,
        ValueKind::SortedSet => 5,
        ValueKind::Stream => 6,
    };
    let [e, v, k] = MAGIC;
    [e, v, k, 1, kind]
}

/// `payload` with its checksum behind it.
pub fn sealed(mut payload: Vec<u8>) -> Vec<u8> {
    let crc = crc(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

/// Writes what ends the payload of `value` to where `rest`, what follows the value, begins.
pub fn seal(value: &[u8], rest: &mut [u8]) {
    let footer = rdb::footer(rdb::VERSION, &[&rdb::string_head(value.len()), value]);
    rest[..footer.len()].copy_from_slice(&footer);
}

/// Type and value in a payload of our own; `None` for everything else, whatever its bytes.
pub fn decode(payload: &[u8]) -> Option<(ValueKind, &[u8])> {
    let (body, stored) = payload.split_last_chunk::<CRC_BYTES>()?;
    let kinds = [
        ValueKind::String,
        ValueKind::Hash,
        ValueKind::Set,
        ValueKind::List,
        ValueKind::SortedSet,
        ValueKind::Stream,
    ];
    let second = [ValueKind::Hash, ValueKind::Stream].into_iter().map(|kind| {
        let mut head = head(kind);
        head[VERSION_AT] = SECOND_VERSION;
        (kind, head)
    });
    let mut heads = kinds.into_iter().map(|kind| (kind, head(kind))).chain(second);
    let found = heads.find_map(|(kind, head)| Some((kind, body.strip_prefix(&head)?)))?;
    (crc(body) == u32::from_le_bytes(*stored)).then_some(found)
}

fn crc(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("CRC-32C has 32 bits")
}

const MAGIC: [u8; 3] = *b"EVK";
const CRC_BYTES: usize = 4;
const VERSION_AT: usize = 3;
/// Of a hash whose fields have deadlines, and of a stream with blocks.
const SECOND_VERSION: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn own(value: &[u8]) -> Vec<u8> {
        sealed([&head(ValueKind::String), value].concat())
    }

    #[test]
    fn payload_of_version_1_has_these_bytes() {
        assert_eq!(own(b"hi"), b"EVK\x01\x01hir?\xe6m");
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_found() {
        let payload = own(b"some value");
        assert_eq!(decode(&payload), Some((ValueKind::String, &b"some value"[..])));
        for cut in 0..payload.len() {
            assert_eq!(decode(&payload[..cut]), None);
        }
        for bit in 0..payload.len() * 8 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn string_lies_in_both_payloads_as_it_is_and_in_no_damaged_one() {
        for len in [0, 63, 64, 16_383, 16_384, 70_000] {
            let value = vec![b'x'; len];
            for mut payload in [own(&value), encode(&value)] {
                assert_eq!(plain_string(&payload), Some(&value[..]));
                *payload.last_mut().expect("a checksum") ^= 1;
                assert_eq!(plain_string(&payload), None);
            }
        }
    }
}
