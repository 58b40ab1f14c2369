//! Reading a file that is in memory: checked once as a whole, then walked without errors.

use crate::{
    Argument, CHUNK_BYTES_MAX, CHUNK_HEAD_BYTES, Command, End, Ending, FLAG_HASHED, FLAG_VALUES, HELD,
    KIND_END, KIND_TURNS, MAGIC, Plan, RECORD_HEAD_BYTES, SHORT_BYTES, STEP_NS, TURN_HEAD_BYTES, UNKNOWN,
    VERSION, VERSION_LEAST, crc32c, short,
};

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture<'a> {
    /// What it holds.
    pub plan: Plan,
    /// The commands that records name by their place.
    pub commands: Vec<Command<'a>>,
    /// By time of arrival: those of one connection are in the order in which it sent them.
    pub turns: Vec<Turn<'a>>,
    /// How it ended; none of a file that was cut.
    pub end: Option<End>,
    /// Records that are known to be missing.
    pub dropped: u64,
    /// Where the file stops to make sense, if it does.
    pub stopped: Option<Stopped>,
}

/// Where a file stops to make sense, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Offset of the first byte that was not used.
    pub at: usize,
    /// In words.
    pub why: &'static str,
}

/// Why a file cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It begins otherwise.
    #[error("not a capture: it does not begin with EVKCAPT")]
    NoCapture,
    /// Its version is not known.
    #[error("a capture of version {0}: this program reads {VERSION_LEAST} to {VERSION}")]
    Version(u16),
    /// It ends before its header does, or the header is not what was written.
    #[error("the header of the capture is damaged")]
    Header,
}

/// Requests that a connection was served in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn<'a> {
    /// After the start, in nanoseconds.
    pub arrived_ns: u64,
    /// Number of the connection.
    pub connection: u64,
    released: u32,
    /// Where its records begin in the file.
    pub offset: usize,
    records: &'a [u8],
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// From the turn's arrival until the reply was written.
    pub written_ns: u64,
    /// Length of the reply.
    pub reply_bytes: u32,
    /// Place in the list of commands.
    pub command: u16,
    /// Database in which it ran.
    pub database: u16,
    /// Keys that a read found.
    pub hits: u16,
    /// Keys that it did not find.
    pub misses: u16,
    /// [`crate::FAILED`], [`crate::QUEUED`], [`HELD`].
    pub flags: u8,
    arguments: Arguments<'a>,
}

/// The arguments of a record, its command's name left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// Of a short record: they come first.
    key: Option<Argument<'a>>,
    value: Option<Argument<'a>>,
    /// Of a long one, as they lie in the file.
    rest: &'a [u8],
}

/// Reads a file as far as it makes sense; a cut or damaged end is told, and what is before it counts.
///
/// # Errors
/// [`DecodeError`], if not even the header can be read.
pub fn decode(bytes: &[u8]) -> Result<Capture<'_>, DecodeError> {
    let (mut capture, mut at) = decode_header(bytes)?;
    while capture.stopped.is_none() && at < bytes.len() {
        match capture.take_chunk(bytes, at) {
            Ok(length) => at += length,
            Err(why) => capture.stopped = Some(Stopped { at, why }),
        }
    }
    if capture.end.is_none() && capture.stopped.is_none() {
        capture.stopped = Some(Stopped { at, why: "its end is missing" });
    }
    capture.turns.sort_by_key(|turn| turn.arrived_ns);
    Ok(capture)
}

/// What the last chunk of a file says; `None` if `chunk` is another, or not whole.
#[must_use]
pub fn decode_end_chunk(chunk: &[u8]) -> Option<End> {
    let is_end = u16_at(chunk, 8) == Some(KIND_END) && u32_at(chunk, 4) == Some(crc32c(&[&chunk[8..]]));
    if is_end { decode_end(chunk.get(CHUNK_HEAD_BYTES..)?) } else { None }
}

fn decode_header(bytes: &[u8]) -> Result<(Capture<'_>, usize), DecodeError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(DecodeError::NoCapture);
    }
    let version = u16_at(bytes, 8).ok_or(DecodeError::Header)?;
    if !(VERSION_LEAST..=VERSION).contains(&version) {
        return Err(DecodeError::Version(version));
    }
    let length = u32_at(bytes, 12).ok_or(DecodeError::Header)? as usize;
    let (body, crc) = bytes.get(..length).and_then(|h| h.split_last_chunk()).ok_or(DecodeError::Header)?;
    if u32::from_le_bytes(*crc) != crc32c(&[body]) {
        return Err(DecodeError::Header);
    }
    let (plan, commands) = decode_body(body).ok_or(DecodeError::Header)?;
    let capture = Capture { plan, commands, turns: Vec::new(), end: None, dropped: 0, stopped: None };
    Ok((capture, length))
}

fn decode_body(body: &[u8]) -> Option<(Plan, Vec<Command<'_>>)> {
    let flags = u16_at(body, 10)?;
    let plan = Plan {
        hashes_keys: flags & FLAG_HASHED != 0,
        keeps_values: flags & FLAG_VALUES != 0,
        started_unix_us: u64_at(body, 16)?,
    };
    let count = u16_at(body, 24)?;
    let mut rest = &body[26..];
    let mut commands = Vec::new();
    for _ in 0..count {
        let ([length, properties], behind) = rest.split_first_chunk::<2>()?;
        let (name, behind) = behind.split_at_checked(usize::from(*length))?;
        let has = |bit: u8| properties & bit != 0;
        let name = std::str::from_utf8(name).ok()?;
        commands.push(Command { name, reads: has(1), writes: has(2), admin: has(4) });
        rest = behind;
    }
    rest.is_empty().then_some((plan, commands))
}

impl<'a> Capture<'a> {
    /// Takes the chunk at `at`, or nothing of it; returns its length.
    fn take_chunk(&mut self, bytes: &'a [u8], at: usize) -> Result<usize, &'static str> {
        const CUT: &str = "a chunk is cut";
        if self.end.is_some() {
            return Err("something follows its end");
        }
        let rest = &bytes[at..];
        let length = u32_at(rest, 0).ok_or(CUT)? as usize;
        if length > CHUNK_BYTES_MAX {
            return Err("a chunk is longer than chunks are");
        }
        let whole = rest.get(..CHUNK_HEAD_BYTES + length).ok_or(CUT)?;
        if u32_at(whole, 4) != Some(crc32c(&[&whole[8..]])) {
            return Err("a chunk does not have its checksum");
        }
        let (kind, records, dropped) = (u16_at(whole, 8), u32_at(whole, 12), u64_at(whole, 16));
        let content = &whole[CHUNK_HEAD_BYTES..];
        match kind {
            Some(KIND_TURNS) => {
                let before = self.turns.len();
                let taken = self.take_turns(content, at + CHUNK_HEAD_BYTES);
                if taken.is_none() || taken != records {
                    self.turns.truncate(before);
                    return Err("a chunk does not hold whole turns");
                }
            }
            Some(KIND_END) => self.end = Some(decode_end(content).ok_or("its end is none")?),
            _ => return Err("a chunk is of a kind that is not known"),
        }
        self.dropped = self.dropped.max(dropped.unwrap_or(0));
        Ok(whole.len())
    }

    /// Takes the turns of a chunk whose content begins at `at` of the file; returns how many records they have.
    fn take_turns(&mut self, mut content: &'a [u8], mut at: usize) -> Option<u32> {
        let mut count = 0u32;
        while !content.is_empty() {
            let (head, rest) = content.split_at_checked(TURN_HEAD_BYTES)?;
            let (records, rest) = rest.split_at_checked(u32_at(head, 0)? as usize)?;
            let turn = Turn {
                arrived_ns: u64_at(head, 8)?,
                connection: u64_at(head, 16)?,
                released: u32_at(head, 4)?,
                offset: at + TURN_HEAD_BYTES,
                records,
            };
            let mut unread = records;
            while !unread.is_empty() {
                let (record, behind) = split_record(unread)?;
                if usize::from(record.command) >= self.commands.len() || !record.arguments.are_whole() {
                    return None;
                }
                count = count.checked_add(1)?;
                unread = behind;
            }
            self.turns.push(turn);
            at += content.len() - rest.len();
            content = rest;
        }
        Some(count)
    }
}

impl<'a> Turn<'a> {
    /// Its records, in order, each with its offset in the file.
    pub fn records(&self) -> impl Iterator<Item = (usize, Record<'a>)> + use<'a> {
        let (mut rest, mut offset) = (self.records, self.offset);
        std::iter::from_fn(move || {
            let (record, behind) = split_record(rest)?;
            let at = offset;
            offset += rest.len() - behind.len();
            rest = behind;
            Some((at, record))
        })
    }

    /// From its arrival until the reply to `record` might leave; `None` if that is not known.
    #[must_use]
    pub fn latency_ns(&self, record: &Record<'_>) -> Option<u64> {
        match self.released {
            _ if record.flags & HELD == 0 => Some(record.written_ns),
            UNKNOWN => None,
            released => Some((u64::from(released) * STEP_NS).max(record.written_ns)),
        }
    }
}

impl<'a> Record<'a> {
    /// Its arguments, the command's name left out.
    #[must_use]
    pub fn arguments(&self) -> Arguments<'a> {
        self.arguments
    }
}

impl<'a> Iterator for Arguments<'a> {
    type Item = Argument<'a>;

    fn next(&mut self) -> Option<Argument<'a>> {
        if let Some(argument) = self.key.take().or_else(|| self.value.take()) {
            return Some(argument);
        }
        let (argument, rest) = split_argument(self.rest)?;
        self.rest = rest;
        Some(argument)
    }
}

impl Arguments<'_> {
    /// Whether they can be walked to their end.
    fn are_whole(mut self) -> bool {
        self.by_ref().for_each(drop);
        self.rest.is_empty()
    }
}

/// The record at `offset` of a file, where [`Turn::records`] found it.
#[must_use]
pub fn record_at(file: &[u8], offset: usize) -> Option<Record<'_>> {
    split_record(file.get(offset..)?).map(|(record, _)| record)
}

fn split_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let first = u32_at(bytes, 0)?;
    if first & short::MARK != 0 {
        return split_short(first, bytes);
    }
    let (whole, rest) = bytes.split_at_checked(first as usize)?;
    let (head, arguments) = whole.split_at_checked(RECORD_HEAD_BYTES)?;
    let record = Record {
        written_ns: u64::from(u32_at(head, 4)?) * STEP_NS,
        reply_bytes: u32_at(head, 8)?,
        command: u16_at(head, 12)?,
        database: u16_at(head, 14)?,
        hits: u16_at(head, 16)?,
        misses: u16_at(head, 18)?,
        flags: head[20],
        arguments: Arguments { key: None, value: None, rest: arguments },
    };
    Some((record, rest))
}

/// The record whose head is `packed`, the first of `bytes`.
fn split_short(packed: u32, bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let field = |(at, bits): (u32, u32)| (packed >> at & ((1 << bits) - 1)) as u16;
    if field(short::ZERO) != 0 {
        return None;
    }
    let has_value = field(short::HAS_VALUE) == 1;
    let (whole, rest) = bytes.split_at_checked(if has_value { SHORT_BYTES + 4 } else { SHORT_BYTES })?;
    let value = if has_value { Some(Argument::Sized(u32_at(whole, SHORT_BYTES)?)) } else { None };
    let record = Record {
        written_ns: u64::from(u16_at(whole, 6)?) * STEP_NS,
        reply_bytes: u16_at(whole, 4)?.into(),
        command: field(short::COMMAND),
        database: field(short::DATABASE),
        hits: field(short::HIT),
        misses: field(short::MISSED),
        flags: field(short::FLAGS) as u8,
        arguments: Arguments {
            key: Some(Argument::Hashed(field(short::KEY_BYTES).into(), u64_at(whole, 8)?)),
            value,
            rest: &[],
        },
    };
    Some((record, rest))
}

fn split_argument(bytes: &[u8]) -> Option<(Argument<'_>, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    let word = u32::from_le_bytes(*word);
    let size = word >> 3;
    match word & 7 {
        0 => Some((Argument::Sized(size), rest)),
        1 => rest
            .split_first_chunk()
            .map(|(hash, rest)| (Argument::Hashed(size, u64::from_le_bytes(*hash)), rest)),
        2 => rest.split_at_checked(size as usize).map(|(key, rest)| (Argument::Key(key), rest)),
        3 => rest.split_at_checked(size as usize).map(|(full, rest)| (Argument::Full(full), rest)),
        4 if size == 0 => Some((Argument::Secret, rest)),
        _ => None,
    }
}

fn decode_end(content: &[u8]) -> Option<End> {
    let ending = match content {
        [_, .., 0] if content.len() == 25 => Ending::Stopped,
        [_, .., 1] if content.len() == 25 => Ending::Full,
        _ => return None,
    };
    let [length_ns, records, dropped] = [u64_at(content, 0)?, u64_at(content, 8)?, u64_at(content, 16)?];
    Some(End { length_ns, records, dropped, ending })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|field| u16::from_le_bytes(*field))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|field| u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|field| u64::from_le_bytes(*field))
}
