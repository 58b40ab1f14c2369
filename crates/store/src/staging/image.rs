//! A prepared branch as bytes: the value of its record in the keyspace of prepared transactions.
//!
//! ```text
//! version u8 = 1 | since_ms u64 | count u32 | entry x count         little-endian, without padding
//!
//! entry: db u16 | change u8 | key_len u32 | key | what the change needs
//!
//! change    needs                                                   meaning
//!  0 READ                                                           the key was read, and is locked
//!  1 PUT    kind u8 | expiry_ms u64 | value_len u32 | value         the key gets this value (expiry 0: none)
//!  2 REMOVE                                                         the key goes
//! ```
//!
//! Entries ascend by database and key, each key once. The key of the record is the branch's identifier; the record has the
//! checksum. A newer version raises the first byte: a reader that does not know it refuses, and changes nothing.
//!
//! Values are whole, also where only an expiry changes: a branch then says all that its commit writes, whatever became of the
//! log meanwhile, and a commit reads no value.

use crate::record;

/// One key of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) db: u16,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<'a>,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    Read,
    Put { kind: u8, expiry_ms: u64, value: &'a [u8] },
    Remove,
}

/// Why bytes are no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    /// A newer version wrote it.
    #[error("it was written by a newer version of evenkeel (image {0}, this one reads {VERSION}): upgrade")]
    Newer(u8),
    /// The bytes are not what the format says.
    #[error("its image is damaged: {0}")]
    Damaged(&'static str),
}

/// The image of a branch that was prepared at `since_ms`; entries must ascend.
pub(crate) fn encode(since_ms: u64, entries: &[Entry<'_>]) -> Vec<u8> {
    debug_assert!(entries.is_sorted_by(|a, b| (a.db, a.key) < (b.db, b.key)), "each key once, in order");
    let mut image = Vec::with_capacity(HEAD_BYTES + entries.iter().map(size_bytes).sum::<usize>());
    image.push(VERSION);
    image.extend_from_slice(&since_ms.to_le_bytes());
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
        if let Change::Put { kind, expiry_ms, value } = change {
            image.push(*kind);
            image.extend_from_slice(&expiry_ms.to_le_bytes());
            image.extend_from_slice(&length(value.len()));
            image.extend_from_slice(value);
        }
    }
    image
}

/// Takes an image apart: when it was prepared, and its entries.
///
/// # Errors
/// [`ImageError`]; never panics, and takes memory in proportion to `image`.
pub(crate) fn decode(image: &[u8]) -> Result<(u64, Vec<Entry<'_>>), ImageError> {
    let mut bytes = Cursor(image);
    match bytes.u8()? {
        VERSION => {}
        0 => return Err(ImageError::Damaged("there is no version 0")),
        newer => return Err(ImageError::Newer(newer)),
    }
    let (since_ms, count) = (bytes.u64()?, bytes.u32()?);
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for _ in 0..count {
        let entry = bytes.entry()?;
        if entries.last().is_some_and(|last| (last.db, last.key) >= (entry.db, entry.key)) {
            return Err(ImageError::Damaged("its keys are out of order"));
        }
        entries.push(entry);
    }
    if bytes.0.is_empty() {
        Ok((since_ms, entries))
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
    fn entry(&mut self) -> Result<Entry<'a>, ImageError> {
        let (db, change, key_len) = (u16::from_le_bytes(self.array()?), self.u8()?, self.u32()?);
        let key = self.bytes(key_len)?;
        let change = match change {
            READ => Change::Read,
            REMOVE => Change::Remove,
            PUT => {
                let (kind, expiry_ms, value_len) = (self.u8()?, self.u64()?, self.u32()?);
                if !matches!(kind, record::STRING | record::IMAGE) {
                    return Err(ImageError::Damaged("a value is of no kind that there is"));
                }
                Change::Put { kind, expiry_ms, value: self.bytes(value_len)? }
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

    fn u32(&mut self) -> Result<u32, ImageError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ImageError> {
        self.array().map(u64::from_le_bytes)
    }
}

const SHORT: ImageError = ImageError::Damaged("it is cut short");
const VERSION: u8 = 1;
const READ: u8 = 0;
const PUT: u8 = 1;
const REMOVE: u8 = 2;
/// Version, since_ms, count.
const HEAD_BYTES: usize = 13;
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
        Entry { db: 3, key: b"", change: Change::Put { kind: record::STRING, expiry_ms: 0, value: b"" } },
        Entry {
            db: 3,
            key: b"k",
            change: Change::Put { kind: record::STRING, expiry_ms: 0x0102, value: b"value" },
        },
    ];

    const GOLDEN: &[u8] = b"\x01\
        \x04\x03\x02\x01\0\0\0\0\x04\0\0\0\
        \0\0\0\x01\0\0\0a\
        \0\0\x02\x02\0\0\0ab\
        \x03\0\x01\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\
        \x03\0\x01\x01\0\0\0k\x01\x02\x01\0\0\0\0\0\0\x05\0\0\0value";

    #[test]
    fn golden_bytes_decode_and_encode_to_themselves() {
        assert_eq!(encode(0x0102_0304, &ENTRIES), GOLDEN, "the format changed: raise the version");
        assert_eq!(decode(GOLDEN), Ok((0x0102_0304, ENTRIES.to_vec())));
    }

    #[test]
    fn every_cut_and_every_tail_is_noticed() {
        for len in 0..GOLDEN.len() {
            assert!(decode(&GOLDEN[..len]).is_err(), "cut at {len}");
        }
        assert!(decode(&[GOLDEN, b"\0"].concat()).is_err());
    }

    #[test]
    fn image_of_a_newer_version_says_so() {
        let newer = [b"\x02", &GOLDEN[1..]].concat();
        let error = decode(&newer).expect_err("nobody knows what follows");
        assert_eq!(error, ImageError::Newer(2));
        assert!(error.to_string().contains("newer version"), "{error}");
    }

    #[test]
    fn keys_out_of_order_and_unknown_kinds_are_refused() {
        let twice = encode(0, &ENTRIES[..1]);
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
        fn entries_come_back_as_they_went(since_ms: u64, keys: Keys) {
            let entries: Vec<Entry<'_>> = keys.iter().map(|((db, key), change)| {
                let change = match change {
                    None => Change::Read,
                    Some(None) => Change::Remove,
                    Some(Some((expiry_ms, value))) => {
                        Change::Put { kind: record::IMAGE, expiry_ms: *expiry_ms, value }
                    }
                };
                Entry { db: *db, key, change }
            }).collect();
            let image = encode(since_ms, &entries);
            prop_assert_eq!(image.capacity(), image.len());
            prop_assert_eq!(decode(&image), Ok((since_ms, entries)));
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_are_what_they_decode_to(
            bytes in prop::collection::vec(0..5_u8, 0..80),
            wild: Vec<u8>,
        ) {
            let _ = decode(&wild);
            if let Ok((since_ms, entries)) = decode(&bytes) {
                prop_assert_eq!(encode(since_ms, &entries), bytes);
            }
        }
    }
}
