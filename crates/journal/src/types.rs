//! The numbers of the journal as types that cannot be swapped, and what a caller hands in.
//!
//! Invariants
//!   1. Zero is nobody: the first [`Lsn`], [`Seq`] and [`SegmentId`] are 1.
//!   2. A [`LogAddress`] is a multiple of 8 bytes; it packs into a `u64` and back without loss.
//!   3. An [`Origin`] fits in a footer's seven bytes.
//!
//! Out of scope: what a record's kind means (`store`).

use crate::format::crc32c_parts;

/// Ordinal of a record in the journal; the first is 1, 0 is before all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Order of effects; the first is 1, 0 waits for nothing. A moved copy keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Before every effect: waits for nothing, or is not known.
    pub const NONE: Self = Self(0);
    /// After every effect.
    pub const MAX: Self = Self(u64::MAX);
}

/// Number of a keyspace: what a record's key is unique in. Its meaning belongs to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyspace(pub u32);

impl Keyspace {
    /// None: of a record without a key.
    pub const NONE: Self = Self(0);

    /// The keyspace whose number is higher by `count`.
    ///
    /// # Panics
    /// If there is none: each flush of a database takes one number.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.checked_add(count).expect("2^32 keyspaces"))
    }
}

/// Number of a segment; the first is 1, grows with the lsn, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

impl std::fmt::Display for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Number of a segment file, which is its name; the first is 1. A recycled file keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

impl FileId {
    /// Name of the file in the journal's folder.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("{:08x}.seg", self.0)
    }

    /// The inverse of [`FileId::file_name`].
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 8)?;
        u32::from_str_radix(digits, 16).ok().map(Self)
    }
}

/// Where a record's header lies: segment, and offset in units of 8 bytes. Ordered as the records are in the log.
///
/// Segment in the high half, offset / 8 in the low one: indexes and formats keep it as this word.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogAddress(u64);

impl std::fmt::Debug for LogAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.segment(), self.offset_bytes())
    }
}

impl LogAddress {
    /// The address `offset_bytes` into `segment`.
    ///
    /// # Panics
    /// If the offset is no multiple of 8 or beyond 32 GiB: the journal hands out no such address.
    #[must_use]
    pub fn new(segment: SegmentId, offset_bytes: u64) -> Self {
        assert!(offset_bytes.is_multiple_of(8), "address at unaligned offset {offset_bytes}");
        let unit = u32::try_from(offset_bytes / 8).expect("segments are at most 32 GiB");
        Self(u64::from(segment.0) << 32 | u64::from(unit))
    }

    /// The segment.
    #[must_use]
    pub const fn segment(self) -> SegmentId {
        SegmentId((self.0 >> 32) as u32)
    }

    /// Offset in the segment's file, in bytes.
    #[must_use]
    pub const fn offset_bytes(self) -> u64 {
        (self.0 as u32 as u64) * 8
    }

    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.0
    }

    /// The inverse of [`LogAddress::pack`].
    #[must_use]
    pub const fn unpack(packed: u64) -> Self {
        Self(packed)
    }
}

/// Bits of a record's flags.
pub mod record_flags {
    /// Payload codec (0: plain); meaning of the other three belongs to the store.
    pub const CODEC_MASK: u8 = 0b0000_0011;
    /// The record is a copy that cleaning moved; its seq is the original's.
    pub const MOVED: u8 = 0b0000_0100;
    /// The last record of its group. Set by the journal.
    pub const GROUP_END: u8 = 0b0000_1000;
}

/// Which Raft group ordered a record, and in which term of its leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(u64);

impl Origin {
    /// Of a record that is not replicated.
    pub const ALONE: Self = Self(0);
    /// Terms are below this.
    pub const TERM_END: u64 = 1 << TERM_BITS;

    /// Group 0 is none: the groups of a cluster count from 1. `None` if the group is above 65,535 or the term is not below
    /// [`Origin::TERM_END`].
    #[must_use]
    pub fn new(group: u32, term: u64) -> Option<Self> {
        let group = u16::try_from(group).ok()?;
        (term < Self::TERM_END).then_some(Self(u64::from(group) << TERM_BITS | term))
    }

    /// The group; 0: none.
    #[must_use]
    pub fn group(self) -> u16 {
        (self.0 >> TERM_BITS) as u16
    }

    /// The term of the group's leader.
    #[must_use]
    pub fn term(self) -> u64 {
        self.0 & (Self::TERM_END - 1)
    }
}

/// Bits of a term.
const TERM_BITS: u32 = 40;

/// A record before it has an address: built outside of every lock, and checksummed there if it is long.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// What the record is; belongs to the store.
    pub kind: u8,
    /// [`record_flags`]; GROUP_END is the journal's to set.
    pub flags: u8,
    /// The keyspace of its key.
    pub keyspace: Keyspace,
    /// The seq to keep (a moved copy); `None` takes the next one.
    pub seq: Option<Seq>,
    /// Absolute expiry in Unix milliseconds, 0 for none.
    pub expiry_ms: u64,
    /// Which group ordered it.
    pub origin: Origin,
    payload: &'a [&'a [u8]],
    payload_len: u32,
    /// Checksum of a long payload. That of a short one costs no more than it is copied, and is made of the copy.
    long_crc: Option<u32>,
}

impl<'a> Draft<'a> {
    /// A plain draft whose payload is `payload`'s parts one after another.
    ///
    /// # Panics
    /// If the parts together exceed 4 GiB: `value.max` is far below.
    #[must_use]
    pub fn new(kind: u8, keyspace: Keyspace, payload: &'a [&'a [u8]]) -> Self {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let payload_len = u32::try_from(len).expect("value.max keeps payloads below 4 GiB");
        let long_crc = (len >= LONG_BYTES_MIN).then(|| crc32c_parts(payload));
        let origin = Origin::ALONE;
        Self { kind, flags: 0, keyspace, seq: None, expiry_ms: 0, origin, payload, payload_len, long_crc }
    }

    /// The same draft with an absolute expiry in Unix milliseconds (0: none).
    #[must_use]
    pub fn expiring(mut self, expiry_ms: u64) -> Self {
        self.expiry_ms = expiry_ms;
        self
    }

    /// The same draft of what a Raft group ordered.
    #[must_use]
    pub fn ordered_by(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// The same draft as a moved copy that keeps `seq`.
    #[must_use]
    pub fn moved(mut self, seq: Seq) -> Self {
        self.seq = Some(seq);
        self.flags |= record_flags::MOVED;
        self
    }

    /// Parts of the payload.
    #[must_use]
    pub fn payload(&self) -> &'a [&'a [u8]] {
        self.payload
    }

    /// Length of the payload in bytes.
    #[must_use]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// CRC-32C of the payload if it is long.
    pub(crate) fn long_crc(&self) -> Option<u32> {
        self.long_crc
    }
}

/// Payloads from here on are checksummed before the journal is locked.
pub(crate) const LONG_BYTES_MIN: usize = 1024;

/// What [`crate::Journal::append`] gave to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The newest seq in the journal after the group: a reply that depends on it waits for this.
    pub last_seq: Seq,
    /// Lsn of the group's last record.
    pub last_lsn: Lsn,
    /// Number of the write cycle that it goes with: what has the same number becomes durable at the same time, unless a roll comes
    /// between.
    pub cycle: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_packs_and_unpacks_without_loss() {
        for (segment, offset) in [(1, 4096), (u32::MAX, 8 * u64::from(u32::MAX)), (7, 0)] {
            let address = LogAddress::new(SegmentId(segment), offset);
            assert_eq!(LogAddress::unpack(address.pack()), address);
            assert_eq!((address.segment().0, address.offset_bytes()), (segment, offset));
        }
    }
}
