//! Checkpoint files: what the index pointed at, so that a start need not read the whole log.
//!
//! A checkpoint states what lives; what it does not name is dead below its LSN. It is captured stripe by stripe while
//! commands run, so entries may be newer than its LSN (never older); replaying the log above the LSN in order makes
//! them agree (`recovery`; the rules are proved in `tests/model.rs`).
//!
//! All integers are little-endian, checksums CRC-32C. File: one header, then blocks one after another, the last of
//! kind END. A file without a valid END block is no checkpoint.
//!
//! Header, 64 bytes:
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `EKC1` |
//! | 4 | 4 | header_crc of bytes 8..64 |
//! | 8 | 2 | version |
//! | 10 | 2 | reader_version_min: the oldest reader that may load it |
//! | 12 | 4 | reserved, 0 |
//! | 16 | 16 | identity of the folder |
//! | 32 | 8 | lsn: all effects at or below it are in the checkpoint |
//! | 40 | 8 | newest time in the log when it was captured, Unix milliseconds |
//! | 48 | 8 | newest seq when capture began |
//! | 56 | 8 | reserved, 0 |
//!
//! Block, a 32-byte header and a body of at most 256 KiB:
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | crc of bytes 4..32 and of the body, XORed with the low half of the header's lsn |
//! | 4 | 4 | body_len |
//! | 8 | 4 | ordinal of the block in the file, from 0 |
//! | 12 | 4 | count of entries |
//! | 16 | 4 | keyspace id (ENTRIES, EXPIRIES, DELTAS, CHAINS, LISTS) |
//! | 20 | 2 | kind |
//! | 22 | 2 | stripe (of the same) |
//! | 24 | 8 | reserved, 0 |
//!
//! | kind | body |
//! |---|---|
//! | 1 MAPPING | mapping_seq u64, next_keyspace u32, then `count` keyspace ids u32, by database number |
//! | 2 SEGMENTS | `count` times: segment u32, live_records u32, live_bytes u64 |
//! | 3 ENTRIES | `count` hash bits u64, `count` words u64, `count` tags u8 |
//! | 4 EXPIRIES | `count` hash bits u64, `count` expiry_ms u64, `count` tags u8: some key with this hash expires then |
//! | 5 DELTAS, 8 CHAINS, 9 LISTS | `count` keys with deltas (`delta_list`): what versions 1, 2 and 3 write |
//! | 6 END | entries of the whole file u64 |
//! | 7 CLOCK | seq u64, then the payload of that clock record (`record`) |
//!
//! A word is the address of the base record (segment in bits 32-59, offset / 8 in bits 0-31); bit 62 is SHARED.
//! Hash bits and tag are the index's (`hash`): with the stripe they are 48 bits of the key's hash, the bits left-aligned in their u64.
//!
//! **Versions.** Reserved fields are zero and ignored; a block of unknown kind is refused. A change that an old reader
//! must not overlook raises reader_version_min. Version 2 has CLOCK, and expiries of server time (`time`); version 3 has LISTS.
//!
//! Out of scope: I/O (`checkpoint_file`), capture (`capture`), what to do with entries (`recovery`).

use journal::{Keyspace, LogAddress, Seq};

use super::delta_list::{self, Form};
use crate::hash::STRIPES;
use crate::index::delta::Delta;
use crate::record::{decode_clock, encode_clock};
use crate::time::ClockRecord;

/// The header of a checkpoint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Identity of the data folder.
    pub(crate) folder: u128,
    /// All effects at or below this LSN are in the checkpoint.
    pub(crate) lsn: u64,
    /// Newest time in the log when it was captured.
    pub(crate) time_ms: u64,
    /// Newest seq when the capture began.
    pub(crate) seq: Seq,
}

/// One key of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The hash bits below the stripe's (`hash`), left-aligned.
    pub(crate) bits: u64,
    /// 8 hash bits below those.
    pub(crate) tag: u8,
    /// LogAddress of the base record.
    pub(crate) address: LogAddress,
    /// Whether equal hash bits may be another key.
    pub(crate) shared: bool,
    /// Small records on top of the base.
    pub(crate) deltas: Vec<Delta>,
}

/// When some key expires; slots do not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// As [`Entry::bits`].
    pub(crate) bits: u64,
    /// As [`Entry::tag`].
    pub(crate) tag: u8,
    /// The deadline, as records have it.
    pub(crate) expiry_ms: u64,
}

/// Which entries a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// Keyspace id.
    pub(crate) keyspace: Keyspace,
    /// Stripe of the index.
    pub(crate) stripe: u16,
}

/// What a segment's records that live amount to; approximate, cleaning counts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentLive {
    /// Segment number.
    pub(crate) segment: u32,
    /// Records that something points at.
    pub(crate) records: u32,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// A decoded block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Database number -> keyspace.
    Mapping {
        /// The effect that last changed it.
        seq: Seq,
        /// First keyspace id that was never used.
        next_keyspace: Keyspace,
        /// Keyspace ids by database number.
        mapping: Vec<Keyspace>,
    },
    /// Live share of segments.
    Segments(Vec<SegmentLive>),
    /// Keys of one area.
    Entries(Area, Vec<Entry>),
    /// Expiries of one area.
    Expiries(Area, Vec<Expiry>),
    /// The end: number of entries in the file.
    End(u64),
    /// The newest clock record, and its seq.
    Clock(Seq, ClockRecord),
}

/// Why bytes are no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    /// The file ends where something should follow.
    #[error("cut short")]
    Short,
    /// A checksum or magic does not fit.
    #[error("checksum or magic does not fit")]
    Checksum,
    /// A newer version wrote it.
    #[error("needs a reader of format version {0} or newer")]
    Version(u16),
    /// Checksummed, and yet not what the format says.
    #[error("checksummed content is impossible: {0}")]
    Content(&'static str),
}

/// Builds the bytes of a checkpoint; the caller writes what [`Encoder::take`] gives.
#[derive(Debug)]
pub(crate) struct Encoder {
    salt: u32,
    out: Vec<u8>,
    ordinal: u32,
    entries: u64,
    area: Area,
    plain: Vec<Entry>,
    expiries: Vec<Expiry>,
    /// The body of a block of keys with deltas, and how many of them.
    listed: Vec<u8>,
    listed_count: usize,
}

impl Encoder {
    /// An encoder that has the header ready to take.
    pub(crate) fn new(header: &Header) -> Self {
        Self {
            salt: header.lsn as u32,
            out: encode_header(header).to_vec(),
            ordinal: 0,
            entries: 0,
            area: NO_AREA,
            plain: Vec::new(),
            expiries: Vec::new(),
            listed: Vec::new(),
            listed_count: 0,
        }
    }

    /// Adds the mapping.
    pub(crate) fn mapping(&mut self, seq: Seq, next_keyspace: Keyspace, mapping: &[Keyspace]) {
        let mut body = seq.0.to_le_bytes().to_vec();
        body.extend(next_keyspace.0.to_le_bytes());
        mapping.iter().for_each(|id| body.extend(id.0.to_le_bytes()));
        self.block(KIND_MAPPING, NO_AREA, mapping.len(), &body);
    }

    /// Adds the newest clock record.
    pub(crate) fn clock(&mut self, seq: Seq, record: &ClockRecord) {
        let body = [&seq.0.to_le_bytes()[..], &encode_clock(record)].concat();
        self.block(KIND_CLOCK, NO_AREA, 1, &body);
    }

    /// Adds what lives in each segment.
    pub(crate) fn segments(&mut self, segments: &[SegmentLive]) {
        for chunk in segments.chunks(BODY_SIZE_BYTES_MAX / SEGMENT_ENTRY_BYTES) {
            let mut body = Vec::with_capacity(chunk.len() * SEGMENT_ENTRY_BYTES);
            for live in chunk {
                body.extend(live.segment.to_le_bytes());
                body.extend(live.records.to_le_bytes());
                body.extend(live.bytes.to_le_bytes());
            }
            self.block(KIND_SEGMENTS, NO_AREA, chunk.len(), &body);
        }
    }

    /// Adds a key; what belongs to one area should come one after another.
    pub(crate) fn entry(&mut self, area: Area, entry: Entry) {
        self.enter(area);
        self.entries += 1;
        if entry.deltas.is_empty() {
            self.plain.push(entry);
            if self.plain.len() == BLOCK_ENTRIES_MAX {
                self.end_plain();
            }
        } else {
            delta_list::encode(&mut self.listed, &entry, word(&entry));
            self.listed_count += 1;
            if self.listed.len() >= BODY_SIZE_BYTES_MAX / 2 {
                self.end_listed();
            }
        }
    }

    /// Adds the expiry of some key.
    pub(crate) fn expiry(&mut self, area: Area, expiry: Expiry) {
        self.enter(area);
        self.entries += 1;
        self.expiries.push(expiry);
        if self.expiries.len() == BLOCK_ENTRIES_MAX {
            self.end_expiries();
        }
    }

    /// Takes the finished bytes; more may follow.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Finished bytes that wait to be taken.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.out.len()
    }

    /// Ends the file; returns the last bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.end_area();
        let body = self.entries.to_le_bytes();
        self.block(KIND_END, NO_AREA, 1, &body);
        self.out
    }

    fn enter(&mut self, area: Area) {
        if area != self.area {
            self.end_area();
            self.area = area;
        }
    }

    fn end_area(&mut self) {
        self.end_plain();
        self.end_expiries();
        self.end_listed();
    }

    fn end_plain(&mut self) {
        let entries = std::mem::take(&mut self.plain);
        let columns = entries.iter().map(|entry| (entry.bits, word(entry), entry.tag));
        self.columns(KIND_ENTRIES, columns);
    }

    fn end_expiries(&mut self) {
        let expiries = std::mem::take(&mut self.expiries);
        let columns = expiries.iter().map(|expiry| (expiry.bits, expiry.expiry_ms, expiry.tag));
        self.columns(KIND_EXPIRIES, columns);
    }

    fn columns(&mut self, kind: u16, rows: impl ExactSizeIterator<Item = (u64, u64, u8)> + Clone) {
        let count = rows.len();
        if count == 0 {
            return;
        }
        let mut body = Vec::with_capacity(count * ROW_BYTES);
        rows.clone().for_each(|(bits, _, _)| body.extend(bits.to_le_bytes()));
        rows.clone().for_each(|(_, value, _)| body.extend(value.to_le_bytes()));
        body.extend(rows.map(|(_, _, tag)| tag));
        self.block(kind, self.area, count, &body);
    }

    fn end_listed(&mut self) {
        let (body, count) = (std::mem::take(&mut self.listed), std::mem::take(&mut self.listed_count));
        if count > 0 {
            self.block(KIND_LISTS, self.area, count, &body);
        }
    }

    fn block(&mut self, kind: u16, area: Area, count: usize, body: &[u8]) {
        let start = self.out.len();
        self.out.resize(start + BLOCK_HEADER_SIZE_BYTES, 0);
        let header = &mut self.out[start..];
        put(header, 4, &(body.len() as u32).to_le_bytes());
        put(header, 8, &self.ordinal.to_le_bytes());
        put(header, 12, &(count as u32).to_le_bytes());
        put(header, 16, &area.keyspace.0.to_le_bytes());
        put(header, 20, &kind.to_le_bytes());
        put(header, 22, &area.stripe.to_le_bytes());
        self.out.extend_from_slice(body);
        let crc = crc32c(&self.out[start + 4..]) ^ self.salt;
        put(&mut self.out[start..], 0, &crc.to_le_bytes());
        self.ordinal += 1;
    }
}

/// Decodes the header.
///
/// # Errors
/// [`FormatError`]: not a checkpoint, damaged, or of a newer version.
pub(crate) fn decode_header(bytes: &[u8]) -> Result<Header, FormatError> {
    let bytes = bytes.get(..HEADER_SIZE_BYTES).ok_or(FormatError::Short)?;
    if bytes[..4] != MAGIC || u32_at(bytes, 4) != crc32c(&bytes[8..]) {
        return Err(FormatError::Checksum);
    }
    let reader_version_min = u16::from_le_bytes([bytes[10], bytes[11]]);
    if reader_version_min > VERSION {
        return Err(FormatError::Version(reader_version_min));
    }
    Ok(Header {
        folder: u128::from_le_bytes(bytes[16..32].try_into().expect("sixteen bytes")),
        lsn: u64_at(bytes, 32),
        time_ms: u64_at(bytes, 40),
        seq: Seq(u64_at(bytes, 48)),
    })
}

/// Decodes blocks in file order.
#[derive(Debug)]
pub(crate) struct Decoder {
    salt: u32,
    ordinal: u32,
    entries: u64,
}

impl Decoder {
    /// A decoder for the blocks after `header`.
    pub(crate) fn new(header: &Header) -> Self {
        Self { salt: header.lsn as u32, ordinal: 0, entries: 0 }
    }

    /// Length of the body that follows a block header.
    ///
    /// # Errors
    /// [`FormatError`] when no body is that long.
    pub(crate) fn body_len(header: &[u8; BLOCK_HEADER_SIZE_BYTES]) -> Result<usize, FormatError> {
        let len = u32_at(header, 4) as usize;
        if len > BODY_SIZE_BYTES_MAX { Err(FormatError::Checksum) } else { Ok(len) }
    }

    /// Decodes the block with `header` and `body`.
    ///
    /// # Errors
    /// [`FormatError`]: the file is damaged, or a newer version wrote it.
    pub(crate) fn block(
        &mut self,
        header: &[u8; BLOCK_HEADER_SIZE_BYTES],
        body: &[u8],
    ) -> Result<Block, FormatError> {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&header[4..]);
        digest.update(body);
        if u32_at(header, 0) ^ self.salt != digest.finalize() as u32 || u32_at(header, 8) != self.ordinal {
            return Err(FormatError::Checksum);
        }
        self.ordinal += 1;
        let count = u32_at(header, 12) as usize;
        let area = Area {
            keyspace: Keyspace(u32_at(header, 16)),
            stripe: u16::from_le_bytes([header[22], header[23]]),
        };
        if usize::from(area.stripe) >= STRIPES {
            return Err(FormatError::Content("a stripe that no index has"));
        }
        let kind = u16::from_le_bytes([header[20], header[21]]);
        let block = decode_body(kind, area, count, body)?;
        match &block {
            Block::Entries(_, entries) => self.entries += entries.len() as u64,
            Block::Expiries(_, expiries) => self.entries += expiries.len() as u64,
            Block::End(entries) if *entries != self.entries => {
                return Err(FormatError::Content("the end counts other entries"));
            }
            _ => {}
        }
        Ok(block)
    }
}

fn decode_body(kind: u16, area: Area, count: usize, body: &[u8]) -> Result<Block, FormatError> {
    match kind {
        KIND_MAPPING if body.len() == 12 + count * 4 => Ok(Block::Mapping {
            seq: Seq(u64_at(body, 0)),
            next_keyspace: Keyspace(u32_at(body, 8)),
            mapping: (0..count).map(|at| Keyspace(u32_at(body, 12 + at * 4))).collect(),
        }),
        KIND_SEGMENTS if body.len() == count * SEGMENT_ENTRY_BYTES => {
            let live = body.chunks_exact(SEGMENT_ENTRY_BYTES).map(|at| SegmentLive {
                segment: u32_at(at, 0),
                records: u32_at(at, 4),
                bytes: u64_at(at, 8),
            });
            Ok(Block::Segments(live.collect()))
        }
        KIND_ENTRIES if body.len() == count * ROW_BYTES => {
            let entry = |(bits, word, tag)| {
                let (address, shared) = place(word);
                Entry { bits, tag, address, shared, deltas: Vec::new() }
            };
            Ok(Block::Entries(area, rows(count, body).map(entry).collect()))
        }
        KIND_EXPIRIES if body.len() == count * ROW_BYTES => {
            let expiry = |(bits, expiry_ms, tag)| Expiry { bits, tag, expiry_ms };
            Ok(Block::Expiries(area, rows(count, body).map(expiry).collect()))
        }
        KIND_CLOCK if body.len() >= 8 => {
            let record = decode_clock(&body[8..]).ok_or(FormatError::Content("not a clock record"))?;
            Ok(Block::Clock(Seq(u64_at(body, 0)), record))
        }
        KIND_DELTAS => Ok(Block::Entries(area, decode_listed(count, body, Form::Deltas)?)),
        KIND_CHAINS => Ok(Block::Entries(area, decode_listed(count, body, Form::Chains)?)),
        KIND_LISTS => Ok(Block::Entries(area, decode_listed(count, body, Form::Lists)?)),
        KIND_END if body.len() == 8 => Ok(Block::End(u64_at(body, 0))),
        _ => Err(FormatError::Content("unknown kind of block, or a length that is not its own")),
    }
}

fn rows(count: usize, body: &[u8]) -> impl Iterator<Item = (u64, u64, u8)> {
    (0..count).map(move |at| (u64_at(body, at * 8), u64_at(body, (count + at) * 8), body[count * 16 + at]))
}

fn decode_listed(count: usize, mut body: &[u8], form: Form) -> Result<Vec<Entry>, FormatError> {
    let mut entries = Vec::new();
    for _ in 0..count {
        let (entry, rest) = delta_list::decode(body, form, place)?;
        entries.push(entry);
        body = rest;
    }
    if body.is_empty() { Ok(entries) } else { Err(FormatError::Content("bytes after the last delta")) }
}

fn encode_header(header: &Header) -> [u8; HEADER_SIZE_BYTES] {
    let mut bytes = [0; HEADER_SIZE_BYTES];
    put(&mut bytes, 0, &MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    put(&mut bytes, 10, &READER_VERSION_MIN.to_le_bytes());
    put(&mut bytes, 16, &header.folder.to_le_bytes());
    put(&mut bytes, 32, &header.lsn.to_le_bytes());
    put(&mut bytes, 40, &header.time_ms.to_le_bytes());
    put(&mut bytes, 48, &header.seq.0.to_le_bytes());
    let crc = crc32c(&bytes[8..]);
    put(&mut bytes, 4, &crc.to_le_bytes());
    bytes
}

fn word(entry: &Entry) -> u64 {
    debug_assert_eq!(entry.address.pack() & WORD_MARKS, 0, "an address has 60 bits");
    entry.address.pack() | if entry.shared { WORD_SHARED } else { 0 }
}

/// The inverse of [`word`]: address, and whether it is SHARED.
fn place(word: u64) -> (LogAddress, bool) {
    (LogAddress::unpack(word & !WORD_SHARED), word & WORD_SHARED != 0)
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Size of the file's header.
pub(crate) const HEADER_SIZE_BYTES: usize = 64;
/// Size of a block's header.
pub(crate) const BLOCK_HEADER_SIZE_BYTES: usize = 32;
/// Most bytes of a block's body; what lies on one key takes less than half of it (`access`).
pub(crate) const BODY_SIZE_BYTES_MAX: usize = 256 * 1024;

/// Of blocks that are of no area.
const NO_AREA: Area = Area { keyspace: Keyspace::NONE, stripe: 0 };
const MAGIC: [u8; 4] = *b"EKC1";
const VERSION: u16 = 3;
const READER_VERSION_MIN: u16 = 3;
const KIND_MAPPING: u16 = 1;
const KIND_SEGMENTS: u16 = 2;
const KIND_ENTRIES: u16 = 3;
const KIND_EXPIRIES: u16 = 4;
const KIND_DELTAS: u16 = 5;
const KIND_END: u16 = 6;
const KIND_CLOCK: u16 = 7;
const KIND_CHAINS: u16 = 8;
const KIND_LISTS: u16 = 9;
const WORD_SHARED: u64 = 1 << 62;
const WORD_MARKS: u64 = 0xf << 60;
const SEGMENT_ENTRY_BYTES: usize = 16;
const ROW_BYTES: usize = 17;
const BLOCK_ENTRIES_MAX: usize = BODY_SIZE_BYTES_MAX / 32;
const _: () = assert!(BLOCK_ENTRIES_MAX * ROW_BYTES <= BODY_SIZE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Ceiling;
    use collections::Deadline;
    use proptest::prelude::*;

    const HEADER: Header =
        Header { folder: 0x0123_4567_89ab_cdef, lsn: 77, time_ms: 1_800_000_000_000, seq: Seq(70) };

    fn decode(bytes: &[u8]) -> Result<(Header, Vec<Block>), FormatError> {
        let header = decode_header(bytes)?;
        let mut decoder = Decoder::new(&header);
        let (mut rest, mut blocks) = (&bytes[HEADER_SIZE_BYTES..], Vec::new());
        loop {
            let (head, after) = rest.split_first_chunk().ok_or(FormatError::Short)?;
            let (body, after) = after.split_at_checked(Decoder::body_len(head)?).ok_or(FormatError::Short)?;
            let block = decoder.block(head, body)?;
            let end = matches!(block, Block::End(_));
            blocks.push(block);
            rest = after;
            if end {
                return if rest.is_empty() {
                    Ok((header, blocks))
                } else {
                    Err(FormatError::Content("tail"))
                };
            }
        }
    }

    fn entry(bits: u64, deltas: u64) -> Entry {
        let delta = |n| Delta {
            address: LogAddress::unpack(n),
            seq: Seq(n + 5),
            since: Seq::NONE,
            kind: 3,
            record_bytes: 64,
            expiry: Deadline::of(n),
        };
        let (tag, address) = (bits as u8, LogAddress::unpack(bits & 0xffff));
        Entry { bits, tag, address, shared: bits % 2 == 1, deltas: (0..deltas).map(delta).collect() }
    }

    fn small() -> Vec<u8> {
        let mut encoder = Encoder::new(&HEADER);
        encoder.mapping(Seq(9), Keyspace(18), &[1, 17, 3].map(Keyspace));
        let ceilings = vec![Ceiling { wall_ms: 5, seq: Seq(6) }];
        encoder.clock(Seq(8), &ClockRecord { boot: 1, uptime_us: 2, server_us: 3, wall_us: 4, ceilings });
        encoder.segments(&[SegmentLive { segment: 2, records: 3, bytes: 528 }]);
        let area = Area { keyspace: Keyspace(17), stripe: 255 };
        encoder.entry(area, entry(0x0102_0304_0506_0708, 0));
        encoder.entry(area, entry(0x2223, 2));
        encoder.expiry(area, Expiry { bits: 0x2223, tag: 7, expiry_ms: 1_900_000_000_000 });
        encoder.finish()
    }

    #[test]
    #[ignore = "writes the golden file; only for a new version of the format"]
    fn write_golden() {
        let disk = vfs::RealDisk;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/checkpoint-v3.bin");
        let options = vfs::OpenOptions { write: true, ..vfs::OpenOptions::default() };
        let file = vfs::Vfs::open(&disk, std::path::Path::new(path), options).expect("touched before");
        file.set_len(0).expect("writable");
        crate::log::checkpoint_file::write_all(&*file, &small(), 0).expect("room");
    }

    #[test]
    fn golden_bytes_decode_and_encode_to_themselves() {
        let golden = include_bytes!("../../tests/golden/checkpoint-v3.bin");
        assert_eq!(small(), golden, "the format changed: raise the version, keep the old golden file");
        assert_eq!(decode(golden).expect("golden").0, HEADER);
    }

    #[test]
    fn file_of_version_2_decodes_to_the_same() {
        let golden = include_bytes!("../../tests/golden/checkpoint-v2.bin");
        assert_eq!(decode(golden), decode(&small()));
    }

    #[test]
    fn file_of_version_1_decodes_to_the_same_without_a_clock_record() {
        let (header, mut blocks) = decode(&small()).expect("just encoded");
        blocks.retain(|block| !matches!(block, Block::Clock(..)));
        let golden = include_bytes!("../../tests/golden/checkpoint-v1.bin");
        assert_eq!(decode(golden), Ok((header, blocks)));
    }

    #[test]
    fn file_of_a_newer_format_is_refused_by_version() {
        let mut bytes = small();
        bytes[10] = 4;
        let crc = crc32c(&bytes[8..HEADER_SIZE_BYTES]);
        put(&mut bytes, 4, &crc.to_le_bytes());
        assert_eq!(decode(&bytes), Err(FormatError::Version(4)));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = small();
        for at in 0..bytes.len() * 8 {
            let mut broken = bytes.clone();
            broken[at / 8] ^= 1 << (at % 8);
            assert!(decode(&broken).is_err(), "bit {at}");
        }
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn block_of_another_checkpoint_is_refused() {
        let other = Encoder::new(&Header { lsn: 78, ..HEADER }).finish();
        let mut mixed = Encoder::new(&HEADER).finish();
        mixed.truncate(HEADER_SIZE_BYTES);
        mixed.extend(&other[HEADER_SIZE_BYTES..]);
        assert_eq!(decode(&mixed), Err(FormatError::Checksum));
    }

    proptest! {
        #[test]
        fn entries_come_back_as_they_went_in(
            rows in prop::collection::vec((0..3_u16, any::<u64>(), prop_oneof![Just(0), any::<u64>()], 0..4_u64), 0..300)
        ) {
            let mut encoder = Encoder::new(&HEADER);
            let (mut entries, mut expiries) = (Vec::new(), Vec::new());
            for (stripe, bits, expiry_ms, deltas) in rows {
                let area = Area { keyspace: Keyspace(1), stripe };
                encoder.entry(area, entry(bits, deltas));
                entries.push((stripe, entry(bits, deltas)));
                if expiry_ms != 0 {
                    encoder.expiry(area, Expiry { bits, tag: 1, expiry_ms });
                    expiries.push((stripe, Expiry { bits, tag: 1, expiry_ms }));
                }
            }
            let (mut found, mut due) = (Vec::new(), Vec::new());
            for block in decode(&encoder.finish()).expect("whole").1 {
                match block {
                    Block::Entries(area, entries) => found.extend(entries.into_iter().map(|e| (area.stripe, e))),
                    Block::Expiries(area, expiries) => due.extend(expiries.into_iter().map(|e| (area.stripe, e))),
                    _ => {}
                }
            }
            entries.sort_by_key(|(stripe, entry)| (*stripe, entry.bits, entry.deltas.len()));
            found.sort_by_key(|(stripe, entry)| (*stripe, entry.bits, entry.deltas.len()));
            prop_assert_eq!(found, entries);
            prop_assert_eq!(due.len(), expiries.len());
            prop_assert!(expiries.iter().all(|expiry| due.contains(expiry)));
        }
    }

    #[test]
    fn large_area_is_cut_into_bounded_blocks() {
        let mut encoder = Encoder::new(&HEADER);
        let area = Area { keyspace: Keyspace(1), stripe: 0 };
        (0..50_000).for_each(|bits| encoder.entry(area, entry(bits, 0)));
        let (_, blocks) = decode(&encoder.finish()).expect("whole");
        assert!(blocks.len() > 6, "{} blocks", blocks.len());
    }
}
