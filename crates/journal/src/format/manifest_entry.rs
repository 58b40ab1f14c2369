//! Manifest entry, 64 bytes at a multiple of 64. The first two entries are Folder and HashKey. Zeroes behind the last
//! one are room for more (the first files had none).
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | crc: CRC-32C of bytes 4..64 |
//! | 4 | 1 | kind |
//! | 5 | 1 | small: flags or a length, by kind |
//! | 6 | 2 | reserved, 0 (Folder: reader_version_min) |
//! | 8 | 8 | index of the entry in the file, from 0 (Folder: magic `EVNKMAN1`) |
//! | 16 | 40 | by kind, below |
//! | 56 | 8 | time, Unix milliseconds |
//!
//! | kind | bytes 16..56 |
//! |---|---|
//! | 1 Folder | folder id u128, version u16, content version u16, next segment number u32, next file number u32, content reader_version_min u16, 2 reserved, next seq u64 |
//! | 2 HashKey | hash key u128, hash bits u32, 20 reserved |
//! | 3 Prepared | 4 reserved, file u32, size u64, 24 reserved; small: 1 filled with zeroes, 0 fallocated; size 4096: no more, the file is nobody's |
//! | 4 Open | segment u32, file u32, first_lsn u64, size u64, 16 reserved |
//! | 5 Sealed | segment u32, records u32, first_lsn u64, last_lsn u64, end u64 (bytes), next_seq u64 |
//! | 6 Footed | segment u32, entries u32, footer offset u64, footer length u64 (0: given back, the file has a hole from its offset on), 16 reserved |
//! | 7 Freed | segment u32, 36 reserved (its file is nobody's unless Prepared follows) |
//! | 8 Checkpoint | lsn u64, name 32 bytes zero-padded; small: length of the name |
//! | 9 Closed | segment u32, 4 reserved, last_lsn u64, end u64, next_seq u64, 8 reserved |

use super::segment_header::HeaderError;
use super::{READER_VERSION_MIN, VERSION, crc32c, put, u16_at, u32_at, u64_at, u128_at};
use crate::types::{FileId, Lsn, SegmentId, Seq};

/// Size of an entry in bytes.
pub const MANIFEST_ENTRY_SIZE_BYTES: usize = 64;
/// `EVNKMAN1`.
pub const MANIFEST_MAGIC: [u8; 8] = *b"EVNKMAN1";
/// Longest name of a checkpoint, in bytes.
pub const CHECKPOINT_NAME_BYTES_MAX: usize = 32;

/// A prepared file of this size, which has room for its header alone, is no more. Older readers find it missing and forget it.
pub const GONE_SIZE_BYTES: u64 = super::SEGMENT_HEADER_SIZE_BYTES;

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// First entry: whose folder it is, and the number that the next new segment gets.
    Folder {
        /// Folder id.
        folder: u128,
        /// The number that the next new segment gets.
        next_segment: SegmentId,
        /// The number that the next new file gets.
        next_file: FileId,
        /// The seq that the next record gets, at least.
        next_seq: Seq,
        /// Version of the records, which their owner counts (0: none, or from before version 2), and the oldest one that
        /// understands them.
        content: (u16, u16),
    },
    /// Second entry: the store's hash.
    HashKey {
        /// Key of SipHash-1-3.
        hash_key: u128,
        /// Bits in use.
        hash_bits: u32,
    },
    /// The file has a header and room; it may be taken for the next segment.
    Prepared {
        /// Which.
        file: FileId,
        /// Its size; [`GONE_SIZE_BYTES`]: it is no more.
        size_bytes: u64,
        /// Filled with zeroes (or used before), rather than only fallocated.
        zeroed: bool,
    },
    /// Batches go here from now on.
    Open {
        /// Which.
        segment: SegmentId,
        /// The file that holds it.
        file: FileId,
        /// Lsn of its first record.
        first_lsn: Lsn,
        /// Its size.
        size_bytes: u64,
    },
    /// No more batches; everything in it is durable.
    Sealed(Sealed),
    /// Its footer is durable.
    Footed {
        /// Which.
        segment: SegmentId,
        /// Where the footer is.
        footer: Footer,
    },
    /// Its records are of no use to anybody; the file may vanish or serve again under another number.
    Freed {
        /// Which.
        segment: SegmentId,
    },
    /// The newest checkpoint.
    Checkpoint(Checkpoint),
    /// Clean stop: the open segment ends here, with a seal.
    Closed {
        /// Which.
        segment: SegmentId,
        /// Lsn of the last record.
        last_lsn: Lsn,
        /// Where the seal ends, in bytes.
        end_bytes: u64,
        /// The seq that the next record gets.
        next_seq: Seq,
    },
}

/// A sealed segment's facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sealed {
    /// Which.
    pub segment: SegmentId,
    /// How many records.
    pub records: u32,
    /// Lsn of the first.
    pub first_lsn: Lsn,
    /// Lsn of the last (`first_lsn - 1` when there is none).
    pub last_lsn: Lsn,
    /// Where the last batch ends, in bytes.
    pub end_bytes: u64,
    /// The seq that the first record after it gets.
    pub next_seq: Seq,
}

/// Where a footer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Entries in it.
    pub entries: u32,
    /// Offset in the segment's file, in bytes.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

impl Footer {
    /// Whether it is gone, and its room with it: a checkpoint covers the segment.
    #[must_use]
    pub fn is_given_back(&self) -> bool {
        self.len_bytes == 0
    }
}

/// The store's newest checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of its file in the folder, at most 32 bytes.
    pub name: String,
    /// Records from this lsn on must be replayed.
    pub lsn: Lsn,
}

impl Entry {
    /// The bytes of entry number `index`, stated at `time_ms`.
    ///
    /// # Panics
    /// If a checkpoint's name is longer than 32 bytes: `set_checkpoint` refuses those.
    #[must_use]
    pub fn encode(&self, index: u64, time_ms: u64) -> [u8; MANIFEST_ENTRY_SIZE_BYTES] {
        let mut bytes = [0; MANIFEST_ENTRY_SIZE_BYTES];
        bytes[4] = self.kind();
        put(&mut bytes, 8, &index.to_le_bytes());
        put(&mut bytes, 56, &time_ms.to_le_bytes());
        self.encode_fields(&mut bytes);
        let crc = crc32c(&bytes[4..]);
        put(&mut bytes, 0, &crc.to_le_bytes());
        bytes
    }

    /// Decodes entry number `index`; returns what it says and its time.
    ///
    /// # Errors
    /// [`HeaderError::Bad`] when it does not verify or its kind is unknown, [`HeaderError::Newer`] when it is the
    /// Folder entry of a newer version.
    pub fn decode(bytes: &[u8; MANIFEST_ENTRY_SIZE_BYTES], index: u64) -> Result<(Self, u64), HeaderError> {
        let is_folder = index == 0 && bytes[8..16] == MANIFEST_MAGIC;
        if is_folder && u16_at(bytes, 6) > VERSION {
            return Err(HeaderError::Newer(u16_at(bytes, 6)));
        }
        let verifies = u32_at(bytes, 0) == crc32c(&bytes[4..])
            && (is_folder || (index > 0 && u64_at(bytes, 8) == index));
        if !verifies {
            return Err(HeaderError::Bad);
        }
        Self::decode_fields(bytes).map(|entry| (entry, u64_at(bytes, 56))).ok_or(HeaderError::Bad)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Folder { .. } => 1,
            Self::HashKey { .. } => 2,
            Self::Prepared { .. } => 3,
            Self::Open { .. } => 4,
            Self::Sealed(_) => 5,
            Self::Footed { .. } => 6,
            Self::Freed { .. } => 7,
            Self::Checkpoint(_) => 8,
            Self::Closed { .. } => 9,
        }
    }

    fn encode_fields(&self, bytes: &mut [u8; MANIFEST_ENTRY_SIZE_BYTES]) {
        match self {
            Self::Folder { folder, next_segment, next_file, next_seq, content } => {
                put(bytes, 34, &content.0.to_le_bytes());
                put(bytes, 44, &content.1.to_le_bytes());
                put(bytes, 6, &READER_VERSION_MIN.to_le_bytes());
                put(bytes, 8, &MANIFEST_MAGIC);
                put(bytes, 16, &folder.to_le_bytes());
                put(bytes, 32, &VERSION.to_le_bytes());
                put(bytes, 36, &next_segment.0.to_le_bytes());
                put(bytes, 40, &next_file.0.to_le_bytes());
                put(bytes, 48, &next_seq.0.to_le_bytes());
            }
            Self::HashKey { hash_key, hash_bits } => {
                put(bytes, 16, &hash_key.to_le_bytes());
                put(bytes, 32, &hash_bits.to_le_bytes());
            }
            Self::Prepared { file, size_bytes, zeroed } => {
                bytes[5] = u8::from(*zeroed);
                put(bytes, 20, &file.0.to_le_bytes());
                put(bytes, 24, &size_bytes.to_le_bytes());
            }
            Self::Open { segment, file, first_lsn, size_bytes } => {
                put(bytes, 16, &segment.0.to_le_bytes());
                put(bytes, 20, &file.0.to_le_bytes());
                put(bytes, 24, &first_lsn.0.to_le_bytes());
                put(bytes, 32, &size_bytes.to_le_bytes());
            }
            Self::Sealed(sealed) => {
                put(bytes, 16, &sealed.segment.0.to_le_bytes());
                put(bytes, 20, &sealed.records.to_le_bytes());
                put(bytes, 24, &sealed.first_lsn.0.to_le_bytes());
                put(bytes, 32, &sealed.last_lsn.0.to_le_bytes());
                put(bytes, 40, &sealed.end_bytes.to_le_bytes());
                put(bytes, 48, &sealed.next_seq.0.to_le_bytes());
            }
            Self::Footed { segment, footer } => {
                put(bytes, 16, &segment.0.to_le_bytes());
                put(bytes, 20, &footer.entries.to_le_bytes());
                put(bytes, 24, &footer.offset_bytes.to_le_bytes());
                put(bytes, 32, &footer.len_bytes.to_le_bytes());
            }
            Self::Freed { segment } => put(bytes, 16, &segment.0.to_le_bytes()),
            Self::Checkpoint(checkpoint) => {
                assert!(checkpoint.name.len() <= CHECKPOINT_NAME_BYTES_MAX, "checkpoint name too long");
                bytes[5] = checkpoint.name.len() as u8;
                put(bytes, 16, &checkpoint.lsn.0.to_le_bytes());
                put(bytes, 24, checkpoint.name.as_bytes());
            }
            Self::Closed { segment, last_lsn, end_bytes, next_seq } => {
                put(bytes, 16, &segment.0.to_le_bytes());
                put(bytes, 24, &last_lsn.0.to_le_bytes());
                put(bytes, 32, &end_bytes.to_le_bytes());
                put(bytes, 40, &next_seq.0.to_le_bytes());
            }
        }
    }

    fn decode_fields(bytes: &[u8; MANIFEST_ENTRY_SIZE_BYTES]) -> Option<Self> {
        let segment = SegmentId(u32_at(bytes, 16));
        let file = FileId(u32_at(bytes, 20));
        let word = |at| u64_at(bytes, at);
        Some(match bytes[4] {
            1 => Self::Folder {
                folder: u128_at(bytes, 16),
                next_segment: SegmentId(u32_at(bytes, 36)),
                next_file: FileId(u32_at(bytes, 40)),
                next_seq: Seq(word(48)),
                content: (u16_at(bytes, 34), u16_at(bytes, 44)),
            },
            2 => Self::HashKey { hash_key: u128_at(bytes, 16), hash_bits: u32_at(bytes, 32) },
            3 => Self::Prepared { file, size_bytes: word(24), zeroed: bytes[5] & 1 == 1 },
            4 => Self::Open { segment, file, first_lsn: Lsn(word(24)), size_bytes: word(32) },
            5 => Self::Sealed(Sealed {
                segment,
                records: u32_at(bytes, 20),
                first_lsn: Lsn(word(24)),
                last_lsn: Lsn(word(32)),
                end_bytes: word(40),
                next_seq: Seq(word(48)),
            }),
            6 => Self::Footed {
                segment,
                footer: Footer { entries: u32_at(bytes, 20), offset_bytes: word(24), len_bytes: word(32) },
            },
            7 => Self::Freed { segment },
            8 => {
                let name = bytes[24..].get(..bytes[5] as usize)?;
                let name = String::from_utf8(name.to_vec()).ok()?;
                (name.len() <= CHECKPOINT_NAME_BYTES_MAX)
                    .then_some(Self::Checkpoint(Checkpoint { name, lsn: Lsn(word(16)) }))?
            }
            9 => Self::Closed {
                segment,
                last_lsn: Lsn(word(24)),
                end_bytes: word(32),
                next_seq: Seq(word(40)),
            },
            _ => return None,
        })
    }
}
