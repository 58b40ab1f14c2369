//! The file of a capture: which requests came to a server, when, on which connection, and how they were answered.
//!
//! A server writes one while it serves, a replay reads it: the server appends turns to a buffer and cuts chunks from it, which need
//! no order among each other; a reader sorts the turns by time.
//!
//! # Layout
//! All numbers are little-endian. `crc` is CRC-32C. A file is a header, then chunks to its end.
//!
//! ```text
//!  header | magic "EVKCAPT\n" 8 | version u16 | flags u16: 1 keys are hashed, 2 values are in full where they are small
//!         | length u32, from the magic to the crc | start u64, Unix time in microseconds | commands u16
//!         | each command: length of its name u8, properties u8 (1 reads, 2 writes, 4 is for administrators), name | crc u32
//!  chunk  | length of its content u32 | crc u32 of all behind it | kind u16: 1 turns, 2 end | loop u16
//!         | records u32 | dropped u64: records that were dropped before it, in all | content
//!  turn   | length of its records u32 | released u32 | arrived u64, ns after the start | connection u64 | records
//!  record | long or short
//!  long   | length u32, itself included | latency u32 | reply in bytes u32 | command u16, by its place in the header
//!         | database u16 | hits u16 | misses u16 | flags u8 | zero u8 3 | arguments, the command's name left out
//!  short  | head u32 | reply in bytes u16 | latency u16 | hash of the key u64 | size of the value u32, if the head says so
//!         head, from bit 0: command 9, database 4, size of the key 8, flags 3, one key hit 1, one key missed 1, value follows 1,
//!         zero 4, one 1: no length of a long one has that bit
//!  argument | size in bytes, times 8, plus kind, u32
//!         kind 0: only its size is known     1: a key, its hash u64 follows     2: a key, its bytes follow
//!         kind 3: its bytes follow           4: a secret: not even its size is told (0)
//!  end    | length of the capture u64, ns | records u64 | dropped u64 | why u8: see [`Ending`]
//! ```
//!
//! Times of a record count from the arrival of its turn, in steps of 16 ns; what took longer than [`TIME_NS_MAX`] counts as that.
//! Its latency is the time until its reply was written; if the reply then waited for the disk (flag [`HELD`]), the reply left when
//! its turn was `released`: 0 nothing waited, 2^32-1 it is not known when. Hits and misses are keys that reads looked up.
//! A short record is what most requests are: a key, told by its hash, and perhaps a value, told by its size. What does not fit its fields
//! is told by a long one.
//!
//! Version 1 had no short records, and is read as well.
//!
//! # Invariants
//!   1. What a reader hands out was whole: a chunk counts from its first byte to its checksum or not at all.
//!   2. A length is checked before it is believed; no input makes a reader panic.
//!   3. What is missing is said: dropped records by number, a file that was cut by the place where it stops to make sense.
//!
//! Out of scope: files, sockets, and what commands mean.

mod read;
mod write;

pub use read::{Arguments, Capture, DecodeError, Record, Stopped, Turn, decode, decode_end_chunk, record_at};
pub use write::{
    Head, Plan, append_plain, append_record, begin_turn, chunk, chunk_head, end, end_turn, header,
    set_released,
};

/// A command that records name by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Lower case; a subcommand's is `container|name`.
    pub name: &'a str,
    /// It only reads data.
    pub reads: bool,
    /// It may change data.
    pub writes: bool,
    /// It is about the server, not about data.
    pub admin: bool,
}

/// One argument as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument<'a> {
    /// Only its size in bytes.
    Sized(u32),
    /// A key: its size, and a hash that is another one in each capture.
    Hashed(u32, u64),
    /// A key.
    Key(&'a [u8]),
    /// Anything but a key.
    Full(&'a [u8]),
    /// A password, or a name that goes with one.
    Secret,
}

/// How a capture ended, and what it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// From its start, in nanoseconds.
    pub length_ns: u64,
    /// Records in the chunks before.
    pub records: u64,
    /// Records that nobody took in time, or for which there was no room.
    pub dropped: u64,
    /// Why.
    pub ending: Ending,
}

/// Why a capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody said so.
    Stopped = 0,
    /// It was as large as it might become.
    Full = 1,
}

/// The reply was an error.
pub const FAILED: u8 = 1;
/// The request was kept for EXEC.
pub const QUEUED: u8 = 2;
/// The reply waited for the disk.
pub const HELD: u8 = 4;

/// The longest time that is told.
pub const TIME_NS_MAX: u64 = (u32::MAX as u64 - 1) * STEP_NS;
/// The largest size that an argument may have: 512 MiB.
pub const SIZE_MAX: u32 = (1 << 29) - 1;
/// The largest content of a chunk.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;
/// A chunk's length beside its content.
pub const CHUNK_HEAD_BYTES: usize = 24;
/// The length of the last chunk.
pub const END_BYTES: usize = CHUNK_HEAD_BYTES + 25;
/// Of a turn's `released`: it is not known.
pub const UNKNOWN: u32 = u32::MAX;

const MAGIC: [u8; 8] = *b"EVKCAPT\n";
const VERSION: u16 = 2;
const VERSION_LEAST: u16 = 1;
const STEP_NS: u64 = 16;
const TURN_HEAD_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 24;
const SHORT_BYTES: usize = 16;
const FLAG_HASHED: u16 = 1;
const FLAG_VALUES: u16 = 2;
const KIND_TURNS: u16 = 1;
const KIND_END: u16 = 2;

/// The fields of a short record's head: first bit and width.
mod short {
    pub(super) const COMMAND: (u32, u32) = (0, 9);
    pub(super) const DATABASE: (u32, u32) = (9, 4);
    pub(super) const KEY_BYTES: (u32, u32) = (13, 8);
    pub(super) const FLAGS: (u32, u32) = (21, 3);
    pub(super) const HIT: (u32, u32) = (24, 1);
    pub(super) const MISSED: (u32, u32) = (25, 1);
    pub(super) const HAS_VALUE: (u32, u32) = (26, 1);
    pub(super) const ZERO: (u32, u32) = (27, 4);
    pub(super) const MARK: u32 = 1 << 31;
}

/// Of the parts, one behind the other.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}
