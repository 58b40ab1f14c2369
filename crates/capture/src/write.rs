//! Making the parts of a file: appended to buffers, each with as few branches as its layout allows.

use crate::{
    Argument, CHUNK_HEAD_BYTES, Command, End, FLAG_HASHED, FLAG_VALUES, KIND_END, KIND_TURNS, MAGIC,
    RECORD_HEAD_BYTES, SHORT_BYTES, SIZE_MAX, STEP_NS, TIME_NS_MAX, TURN_HEAD_BYTES, UNKNOWN, VERSION,
    crc32c, short,
};

/// What a capture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Keys are told by their hashes.
    pub hashes_keys: bool,
    /// Arguments are told in full.
    pub keeps_values: bool,
    /// Start, Unix time in microseconds.
    pub started_unix_us: u64,
}

/// A record without its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// From the turn's arrival until the reply was written.
    pub latency_ns: u64,
    /// The reply's length; longer ones count as `u32::MAX`.
    pub reply_bytes: usize,
    /// Place in the header's list.
    pub command: u16,
    /// Database in which it ran.
    pub database: u16,
    /// Keys that a read found; more count as `u16::MAX`.
    pub hits: u32,
    /// Keys that it did not find.
    pub misses: u32,
    /// [`crate::FAILED`], [`crate::QUEUED`], [`crate::HELD`].
    pub flags: u8,
}

/// The beginning of a file.
///
/// # Panics
/// If there are more than 65,535 commands, or one has a name of more than 255 bytes: both are our own.
pub fn header<'a>(plan: &Plan, commands: impl ExactSizeIterator<Item = Command<'a>>) -> Vec<u8> {
    let mut flags = if plan.hashes_keys { FLAG_HASHED } else { 0 };
    flags |= if plan.keeps_values { FLAG_VALUES } else { 0 };
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&plan.started_unix_us.to_le_bytes());
    let count = u16::try_from(commands.len()).expect("a table of some hundred commands");
    out.extend_from_slice(&count.to_le_bytes());
    for Command { name, reads, writes, admin } in commands {
        out.push(u8::try_from(name.len()).expect("a name is short"));
        out.push(u8::from(reads) | u8::from(writes) << 1 | u8::from(admin) << 2);
        out.extend_from_slice(name.as_bytes());
    }
    let length = small(out.len() + 4);
    out[12..16].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c(&[&out]);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Makes room for the head of a turn at the end of `out`; returns where.
#[inline]
pub fn begin_turn(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; TURN_HEAD_BYTES]);
    at
}

/// Appends one record to a turn that has begun.
#[inline]
pub fn append_record<'a>(out: &mut Vec<u8>, head: &Head, arguments: impl Iterator<Item = Argument<'a>>) {
    let at = out.len();
    out.extend_from_slice(&encoded_head(head));
    for argument in arguments {
        append_argument(out, argument);
    }
    let length = small(out.len() - at);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// As [`append_record`] for what most requests are: a key, told by its size and hash, and at most a value, told by its size.
#[inline(always)]
pub fn append_plain(out: &mut Vec<u8>, head: &Head, key_bytes: u32, hash: u64, value_bytes: Option<u32>) {
    let latency = steps(head.latency_ns);
    let fields = [
        (u32::from(head.command), short::COMMAND),
        (u32::from(head.database), short::DATABASE),
        (key_bytes, short::KEY_BYTES),
        (u32::from(head.flags), short::FLAGS),
        (head.hits, short::HIT),
        (head.misses, short::MISSED),
        (u32::from(value_bytes.is_some()), short::HAS_VALUE),
        (small(head.reply_bytes), (0, 16)),
        (latency, (0, 16)),
    ];
    // One branch for all of them.
    if fields.iter().fold(0, |beyond, (field, (_, bits))| beyond | field >> bits) != 0 {
        return append_plain_at_length(out, head, key_bytes, hash, value_bytes);
    }
    let packed = fields[..7].iter().fold(short::MARK, |packed, (field, (at, _))| packed | field << at);
    // A fixed length is copied without a call.
    let mut bytes = [0; SHORT_BYTES + 4];
    bytes[..4].copy_from_slice(&packed.to_le_bytes());
    bytes[4..6].copy_from_slice(&(head.reply_bytes as u16).to_le_bytes());
    bytes[6..8].copy_from_slice(&(latency as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&hash.to_le_bytes());
    bytes[16..].copy_from_slice(&value_bytes.unwrap_or(0).to_le_bytes());
    let length = out.len() + if value_bytes.is_some() { SHORT_BYTES + 4 } else { SHORT_BYTES };
    out.extend_from_slice(&bytes);
    out.truncate(length);
}

#[cold]
fn append_plain_at_length(
    out: &mut Vec<u8>,
    head: &Head,
    key_bytes: u32,
    hash: u64,
    value_bytes: Option<u32>,
) {
    let value = value_bytes.map(Argument::Sized);
    append_record(out, head, [Argument::Hashed(key_bytes, hash)].into_iter().chain(value));
}

#[inline]
fn encoded_head(head: &Head) -> [u8; RECORD_HEAD_BYTES] {
    let mut bytes = [0; RECORD_HEAD_BYTES];
    bytes[4..8].copy_from_slice(&steps(head.latency_ns).to_le_bytes());
    bytes[8..12].copy_from_slice(&small(head.reply_bytes).to_le_bytes());
    bytes[12..14].copy_from_slice(&head.command.to_le_bytes());
    bytes[14..16].copy_from_slice(&head.database.to_le_bytes());
    bytes[16..18].copy_from_slice(&(head.hits.min(u16::MAX.into()) as u16).to_le_bytes());
    bytes[18..20].copy_from_slice(&(head.misses.min(u16::MAX.into()) as u16).to_le_bytes());
    bytes[20] = head.flags;
    bytes
}

#[inline]
fn word(size: u32, kind: u32) -> [u8; 4] {
    ((size.min(SIZE_MAX) << 3) | kind).to_le_bytes()
}

#[inline]
fn append_argument(out: &mut Vec<u8>, argument: Argument<'_>) {
    match argument {
        Argument::Sized(size) => out.extend_from_slice(&word(size, 0)),
        Argument::Hashed(size, hash) => {
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&word(size, 1));
            bytes[4..].copy_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        Argument::Key(key) => {
            out.extend_from_slice(&word(small(key.len()), 2));
            out.extend_from_slice(key);
        }
        Argument::Full(argument) => {
            out.extend_from_slice(&word(small(argument.len()), 3));
            out.extend_from_slice(argument);
        }
        Argument::Secret => out.extend_from_slice(&word(0, 4)),
    }
}

/// Completes the turn that began at `at` and reaches to the end of `out`. Nothing of it is known to wait.
#[inline]
pub fn end_turn(out: &mut [u8], at: usize, arrived_ns: u64, connection: u64) {
    let length = small(out.len() - at - TURN_HEAD_BYTES);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    out[at + 8..at + 16].copy_from_slice(&arrived_ns.to_le_bytes());
    out[at + 16..at + 24].copy_from_slice(&connection.to_le_bytes());
}

/// Says when what waited of the turn at `at` was released, after its arrival; `None`: nobody knows.
#[inline]
pub fn set_released(out: &mut [u8], at: usize, after_ns: Option<u64>) {
    let released = after_ns.map_or(UNKNOWN, |ns| steps(ns).max(1));
    out[at + 4..at + 8].copy_from_slice(&released.to_le_bytes());
}

/// What stands before whole turns, with so many records, to make them a chunk.
pub fn chunk_head(turns: &[u8], loop_index: usize, records: u32, dropped: u64) -> [u8; CHUNK_HEAD_BYTES] {
    head_of(KIND_TURNS, loop_index as u16, records, dropped, turns)
}

/// Appends a chunk of whole turns, with so many records, to `out`.
pub fn chunk(out: &mut Vec<u8>, turns: &[u8], loop_index: usize, records: u32, dropped: u64) {
    out.extend_from_slice(&chunk_head(turns, loop_index, records, dropped));
    out.extend_from_slice(turns);
}

/// Appends the last chunk to `out`.
pub fn end(out: &mut Vec<u8>, end: &End) {
    let mut content = Vec::with_capacity(25);
    content.extend_from_slice(&end.length_ns.to_le_bytes());
    content.extend_from_slice(&end.records.to_le_bytes());
    content.extend_from_slice(&end.dropped.to_le_bytes());
    content.push(end.ending as u8);
    out.extend_from_slice(&head_of(KIND_END, 0, 0, end.dropped, &content));
    out.extend_from_slice(&content);
}

fn head_of(kind: u16, loop_index: u16, records: u32, dropped: u64, content: &[u8]) -> [u8; CHUNK_HEAD_BYTES] {
    let mut head = [0; CHUNK_HEAD_BYTES];
    head[..4].copy_from_slice(&small(content.len()).to_le_bytes());
    head[8..10].copy_from_slice(&kind.to_le_bytes());
    head[10..12].copy_from_slice(&loop_index.to_le_bytes());
    head[12..16].copy_from_slice(&records.to_le_bytes());
    head[16..].copy_from_slice(&dropped.to_le_bytes());
    let crc = crc32c(&[&head[8..], content]);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    head
}

fn steps(ns: u64) -> u32 {
    (ns.min(TIME_NS_MAX) / STEP_NS) as u32
}

fn small(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
