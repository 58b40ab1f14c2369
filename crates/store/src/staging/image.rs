//! A prepared branch as bytes: the value of its record in the keyspace of prepared transactions.
//!
//! ```text
//! version u8 | since_ms u64 | moves | count u32 | entry x count     little-endian, without padding
//!
//! moves: nothing in version 1; in version 2 count u16, 1 at least, and each: db u16 | from u16
//!        db gets what from held before the commit; 65535: it is emptied
//!
//! entry: db u16 | change u8 | key_len u32 | key | what the change needs
//!
//! change    needs                                                   meaning
//!  0 READ                                                           the key was read, and is locked
//!  1 PUT    kind u8 | expiry_ms u64 | value_len u32 | value         the key gets this value (expiry 0: none)
//!  2 REMOVE                                                         the key goes
//! ```
//!
//! Moves ascend by database, and each is of one that changes; entries are of databases as they are after them. A database that is moved
//! is held whole, so READ is not said of its keys. A branch that moves none is of version 1, which older servers read.
//!
//! Entries ascend by database and key, each key once. The key of the record is the branch's identifier; the record has the
//! checksum. A newer version raises the first byte: a reader that does not know it refuses, and changes nothing.
//!
//! Values are whole, also where only an expiry changes: a branch then says all that its commit writes, whatever became of the
//! log meanwhile, and a commit reads no value.

use crate::record;
use collections::Deadline;

/// One key of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) db: u16,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// A database that gets other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) db: u16,
    /// The database that holds them before the commit; `None`: they are nothing.
    pub(crate) from: Option<u16>,
}

/// A branch: when it was prepared, what becomes of databases, what becomes of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image<'a> {
    pub(crate) since_ms: u64,
    pub(crate) moves: Vec<Move>,
    pub(crate) entries: Vec<Entry<'a>>,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Read,
    Put { kind: u8, expiry: Option<Deadline>, value: &'a [u8] },
    Remove,
}

/// Why bytes are no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    /// A newer version wrote it.
    #[error("it was written by a newer version of evenkeel (image {0}, this one reads {MOVING}): upgrade")]
    Newer(u8),
    /// The bytes are not what the format says.
    #[error("its image is damaged: {0}")]
    Damaged(&'static str),
}

/// The image of a branch that was prepared at `since_ms`; moves and entries must ascend.
pub(crate) fn encode(since_ms: u64, moves: &[Move], entries: &[Entry<'_>]) -> Vec<u8> {
    debug_assert!(moves.is_sorted_by(|a, b| a.db < b.db), "each database once, in order");
    debug_assert!(entries.is_sorted_by(|a, b| (a.db, a.key) < (b.db, b.key)), "each key once, in order");
    let moves_bytes = if moves.is_empty() { 0 } else { 2 + MOVE_BYTES * moves.len() };
    let entries_bytes = entries.iter().map(size_bytes).sum::<usize>();
    let mut image = Vec::with_capacity(HEAD_BYTES + moves_bytes + entries_bytes);
    image.push(if moves.is_empty() { PLAIN } else { MOVING });
    image.extend_from_slice(&since_ms.to_le_bytes());
    if !moves.is_empty() {
        let count = u16::try_from(moves.len()).expect("there are no more databases");
        image.extend_from_slice(&count.to_le_bytes());
        for Move { db, from } in moves {
            image.extend_from_slice(&db.to_le_bytes());
            image.extend_from_slice(&from.unwrap_or(NOTHING).to_le_bytes());
        }
    }
    image.extend_from_slice(&length(entries.len()));
    for Entry { db, key, change } in entries {
        image.extend_from_slice(&db.to_le_bytes());
        image.push(match change {
            Change::Read => READ,
            Change::Put { .. } => PUT,
            Change::Remove => REMOVE,
        });
        image.extend_from_slice(&length(key.len()));
        image.extend_from_slice(key);
        if let Change::Put { kind, expiry, value } = change {
            image.push(*kind);
            image.extend_from_slice(&Deadline::raw_or_zero(*expiry).to_le_bytes());
            image.extend_from_slice(&length(value.len()));
            image.extend_from_slice(value);
        }
    }
    image
}

/// Whether the commit of the branch in `image` gives a key a TTL.
pub(crate) fn has_ttl(image: &[u8]) -> bool {
    let is_ttl = |entry: &Entry<'_>| match entry.change {
        Change::Put { expiry, .. } => expiry.is_some_and(|at| !at.is_wall()),
        Change::Read | Change::Remove => false,
    };
    decode(image).is_ok_and(|image| image.entries.iter().any(is_ttl))
}

/// Takes an image apart.
///
/// # Errors
/// [`ImageError`]; never panics, and takes memory in proportion to `image`.
pub(crate) fn decode(image: &[u8]) -> Result<Image<'_>, ImageError> {
    let mut bytes = Cursor(image);
    let version = bytes.u8()?;
    match version {
        PLAIN | MOVING => {}
        0 => return Err(ImageError::Damaged("there is no version 0")),
        newer => return Err(ImageError::Newer(newer)),
    }
    let since_ms = bytes.u64()?;
    let moves = if version == MOVING { bytes.moves()? } else { Vec::new() };
    let count = bytes.u32()?;
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for _ in 0..count {
        let entry = bytes.entry()?;
        if entries.last().is_some_and(|last| (last.db, last.key) >= (entry.db, entry.key)) {
            return Err(ImageError::Damaged("its keys are out of order"));
        }
        entries.push(entry);
    }
    if bytes.0.is_empty() {
        Ok(Image { since_ms, moves, entries })
    } else {
        Err(ImageError::Damaged("bytes follow its end"))
    }
}

fn size_bytes(entry: &Entry<'_>) -> usize {
    let value = if let Change::Put { value, .. } = entry.change { PUT_BYTES + value.len() } else { 0 };
    ENTRY_BYTES + entry.key.len() + value
}

fn length(count: usize) -> [u8; 4] {
    u32::try_from(count).expect("bounded by transaction.max").to_le_bytes()
}

/// What is left to decode.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn moves(&mut self) -> Result<Vec<Move>, ImageError> {
        let mut moves: Vec<Move> = Vec::new();
        for _ in 0..self.u16()? {
            let (db, from) = (self.u16()?, self.u16()?);
            if moves.last().is_some_and(|last| last.db >= db) || db == from || db == NOTHING {
                return Err(ImageError::Damaged("its databases are out of order"));
            }
            moves.push(Move { db, from: (from != NOTHING).then_some(from) });
        }
        if moves.is_empty() { Err(ImageError::Damaged("it moves nothing")) } else { Ok(moves) }
    }

    fn entry(&mut self) -> Result<Entry<'a>, ImageError> {
        let (db, change, key_len) = (self.u16()?, self.u8()?, self.u32()?);
        let key = self.bytes(key_len)?;
        let change = match change {
            READ => Change::Read,
            REMOVE => Change::Remove,
            PUT => {
                let (kind, expiry, value_len) = (self.u8()?, Deadline::of(self.u64()?), self.u32()?);
                let value = self.bytes(value_len)?;
                if !record::is_value(kind, value) {
                    return Err(ImageError::Damaged("a value is of no kind that there is"));
                }
                Change::Put { kind, expiry, value }
            }
            _ => return Err(ImageError::Damaged("a change is of no kind that there is")),
        };
        Ok(Entry { db, key, change })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*head)
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], ImageError> {
        let (head, rest) = self.0.split_at_checked(len as usize).ok_or(SHORT)?;
        self.0 = rest;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8, ImageError> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, ImageError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, ImageError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ImageError> {
        self.array().map(u64::from_le_bytes)
    }
}

const SHORT: ImageError = ImageError::Damaged("it is cut short");
/// Versions: without moves, and with.
const PLAIN: u8 = 1;
const MOVING: u8 = 2;
/// Where emptied databases get their contents from: a number that no database has.
const NOTHING: u16 = u16::MAX;
const READ: u8 = 0;
const PUT: u8 = 1;
const REMOVE: u8 = 2;
/// Version, since_ms, count.
const HEAD_BYTES: usize = 13;
/// db, from.
pub(crate) const MOVE_BYTES: usize = 4;
/// db, change, key_len.
pub(crate) const ENTRY_BYTES: usize = 7;
/// kind, expiry_ms, value_len.
pub(crate) const PUT_BYTES: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENTRIES: [Entry<'_>; 4] = [
        Entry { db: 0, key: b"a", change: Change::Read },
        Entry { db: 0, key: b"ab", change: Change::Remove },
        Entry { db: 3, key: b"", change: Change::Put { kind: record::STRING, expiry: None, value: b"" } },
        Entry {
            db: 3,
            key: b"k",
            change: Change::Put { kind: record::STRING, expiry: Deadline::of(0x0102), value: b"value" },
        },
    ];

    const GOLDEN: &[u8] = b"\x01\
        \x04\x03\x02\x01\0\0\0\0\x04\0\0\0\
        \0\0\0\x01\0\0\0a\
        \0\0\x02\x02\0\0\0ab\
        \x03\0\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\
        \x03\0\x01\x01\0\0\0k\x01\x02\x01\0\0\0\0\0\0\x05\0\0\0value";

    const MOVES: [Move; 2] = [Move { db: 0, from: Some(3) }, Move { db: 3, from: None }];

    const GOLDEN_MOVING: &[u8] = b"\x02\
        \x04\x03\x02\x01\0\0\0\0\x02\0\0\0\x03\0\x03\0\xff\xff\x04\0\0\0\
        \0\0\0\x01\0\0\0a\
        \0\0\x02\x02\0\0\0ab\
        \x03\0\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\
        \x03\0\x01\x01\0\0\0k\x01\x02\x01\0\0\0\0\0\0\x05\0\0\0value";

    #[test]
    fn golden_bytes_decode_and_encode_to_themselves() {
        for (moves, golden) in [(&[][..], GOLDEN), (&MOVES, GOLDEN_MOVING)] {
            assert_eq!(encode(0x0102_0304, moves, &ENTRIES), golden, "the format changed: raise the version");
            let image = Image { since_ms: 0x0102_0304, moves: moves.to_vec(), entries: ENTRIES.to_vec() };
            assert_eq!(decode(golden), Ok(image));
        }
    }

    #[test]
    fn every_cut_and_every_tail_is_noticed() {
        for golden in [GOLDEN, GOLDEN_MOVING] {
            for len in 0..golden.len() {
                assert!(decode(&golden[..len]).is_err(), "cut at {len}");
            }
            assert!(decode(&[golden, b"\0"].concat()).is_err());
        }
    }

    #[test]
    fn moves_out_of_order_of_nothing_and_to_themselves_are_refused() {
        for moves in [&b"\0\0"[..], b"\x01\0\x02\0\x02\0", b"\x02\0\x02\0\xff\xff\x01\0\xff\xff"] {
            let image = [b"\x02\0\0\0\0\0\0\0\0", moves, b"\0\0\0\0"].concat();
            assert!(matches!(decode(&image), Err(ImageError::Damaged(_))), "{moves:?}");
        }
    }

    #[test]
    fn image_of_a_newer_version_says_so() {
        let newer = [b"\x03", &GOLDEN[1..]].concat();
        let error = decode(&newer).expect_err("nobody knows what follows");
        assert_eq!(error, ImageError::Newer(3));
        assert!(error.to_string().contains("newer version"), "{error}");
    }

    #[test]
    fn keys_out_of_order_and_unknown_kinds_are_refused() {
        let twice = encode(0, &[], &ENTRIES[..1]);
        let mut twice = [&twice[..], &twice[HEAD_BYTES..]].concat();
        twice[9] = 2;
        assert_eq!(decode(&twice), Err(ImageError::Damaged("its keys are out of order")));
        for (at, name) in [(HEAD_BYTES + 2, "change"), (GOLDEN.len() - 18, "kind")] {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] = 9;
            assert!(matches!(decode(&bytes), Err(ImageError::Damaged(_))), "{name}");
        }
    }

    type Keys = std::collections::BTreeMap<(u16, Vec<u8>), Option<Option<(u64, Vec<u8>)>>>;

    proptest! {
        #[test]
        fn entries_come_back_as_they_went(since_ms: u64, keys: Keys, dbs in prop::collection::btree_set(0..9_u16, 0..4)) {
            let moves: Vec<Move> = dbs.iter().map(|&db| Move { db, from: (db % 2 == 0).then_some(9) }).collect();
            let entries: Vec<Entry<'_>> = keys.iter().map(|((db, key), change)| {
                let change = match change {
                    None => Change::Read,
                    Some(None) => Change::Remove,
                    Some(Some((expiry, value))) => {
                        Change::Put { kind: record::STRING, expiry: Deadline::of(*expiry), value }
                    }
                };
                Entry { db: *db, key, change }
            }).collect();
            let image = encode(since_ms, &moves, &entries);
            prop_assert_eq!(image.capacity(), image.len());
            prop_assert_eq!(decode(&image), Ok(Image { since_ms, moves, entries }));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_are_what_they_decode_to(
            bytes in prop::collection::vec(0..5_u8, 0..80),
            wild: Vec<u8>,
        ) {
            let _ = decode(&wild);
            if let Ok(Image { since_ms, moves, entries }) = decode(&bytes) {
                prop_assert_eq!(encode(since_ms, &moves, &entries), bytes);
            }
        }
    }
}
