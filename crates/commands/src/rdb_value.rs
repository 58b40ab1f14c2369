//! Values as Redis's payloads have them, from and to those of the store.
//!
//! A deadline of a field counts the time of the wall clock there.

use clock::UnixMs;
use rdb::value::{HASH, HASH_TIMED, LIST, SET, SORTED_SET};
use rdb::{Body, Kind, Part, put_length, put_string};
use store::{Access, Deadline, Edit, ListEdit, Moment, Packed, Shape, Stop, ValueKind};

use crate::stream;

/// Type and value of a collection as Redis has them, and the version that knows this type; `None` if Redis cannot hold it.
pub(crate) fn encode(kind: ValueKind, packed: Packed<'_>, now: Moment) -> Option<(Vec<u8>, u16)> {
    let mut out = Vec::with_capacity(packed.bytes() + packed.len() + 16);
    let begin = |out: &mut Vec<u8>, kind| {
        out.push(kind);
        put_length(out, packed.len() as u64);
    };
    match kind {
        ValueKind::String => unreachable!("it is no collection"),
        ValueKind::Hash if packed.is_timed() => {
            encode_timed(packed, now, &mut out);
            return Some((out, rdb::VERSION_TIMED));
        }
        ValueKind::Hash => {
            begin(&mut out, HASH);
            for (field, value) in packed.iter() {
                put_string(&mut out, field);
                put_string(&mut out, value);
            }
        }
        ValueKind::Set => {
            begin(&mut out, SET);
            packed.iter().for_each(|(element, _)| put_string(&mut out, element));
        }
        ValueKind::List => {
            begin(&mut out, LIST);
            packed.values(0..packed.len()).for_each(|value| put_string(&mut out, value));
        }
        ValueKind::SortedSet => {
            begin(&mut out, SORTED_SET);
            for (at, (member, _)) in packed.iter().enumerate() {
                put_string(&mut out, member);
                out.extend_from_slice(&packed.score(at).to_le_bytes());
            }
        }
        ValueKind::Stream => stream::write_rdb(packed, &mut out)?,
    }
    Some((out, rdb::VERSION))
}

fn encode_timed(packed: Packed<'_>, now: Moment, out: &mut Vec<u8>) {
    let ends_ms = |at| packed.deadline(at).map(|deadline| now.unix_of(deadline).0);
    let first_ms = (0..packed.len()).filter_map(ends_ms).min().unwrap_or(0);
    out.push(HASH_TIMED);
    out.extend_from_slice(&first_ms.to_le_bytes());
    put_length(out, packed.len() as u64);
    for (at, (field, value)) in packed.iter().enumerate() {
        put_length(out, ends_ms(at).map_or(0, |ms| ms - first_ms + 1));
        put_string(out, field);
        put_string(out, value);
    }
}

/// A value that was read.
pub(crate) enum Read {
    String(Vec<u8>),
    /// Perhaps without elements: the time of all may have come.
    Collection(ValueKind, Vec<u8>),
}

/// Why none was.
pub(crate) enum Unread {
    /// It is damaged, or empty.
    Damaged,
    Stop(Stop),
}

impl From<Stop> for Unread {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<rdb::Error> for Unread {
    fn from(_: rdb::Error) -> Self {
        Self::Damaged
    }
}

/// The parts of a value, and what is asked before more of them are kept.
struct Parts<'a, S> {
    body: Body<'a>,
    /// Bytes since it was asked last.
    bytes: usize,
    ask: S,
}

impl<S: FnMut(usize) -> Result<(), Stop>> Parts<'_, S> {
    fn next_part(&mut self) -> Result<Option<Part>, Unread> {
        let part = self.body.next_part()?;
        self.bytes += part.as_ref().map_or(0, part_bytes);
        if self.bytes >= ASKED_BYTES {
            (self.ask)(std::mem::take(&mut self.bytes))?;
        }
        Ok(part)
    }
}

/// The value in `body`. `ask` is asked about each few KiB of it.
///
/// # Errors
/// It is none, or an answer was no.
pub(crate) fn read(
    access: &Access<'_>,
    body: Body<'_>,
    now: Moment,
    ask: impl FnMut(usize) -> Result<(), Stop>,
) -> Result<Read, Unread> {
    let (kind, mut parts) = (body.kind(), Parts { body, bytes: 0, ask });
    if kind == Kind::String {
        let Some(Part::String(bytes)) = parts.next_part()? else { return Err(Unread::Damaged) };
        return parts.next_part()?.is_none().then_some(Read::String(bytes)).ok_or(Unread::Damaged);
    }
    let (kind, value) = match kind {
        Kind::List => (ValueKind::List, read_list(&mut parts)?),
        Kind::Stream => (ValueKind::Stream, read_stream(access, &mut parts)?),
        Kind::Set => (ValueKind::Set, read_tagged(Shape::Set, access, now, &mut parts)?),
        Kind::Hash => (ValueKind::Hash, read_tagged(Shape::Map, access, now, &mut parts)?),
        Kind::SortedSet | Kind::String => {
            (ValueKind::SortedSet, read_tagged(Shape::Scored, access, now, &mut parts)?)
        }
    };
    Ok(Read::Collection(kind, value))
}

fn read_list<S: FnMut(usize) -> Result<(), Stop>>(parts: &mut Parts<'_, S>) -> Result<Vec<u8>, Unread> {
    let mut list = ListEdit::new(Packed::empty(Shape::List));
    while let Some(part) = parts.next_part()? {
        let Part::Element(value) = part else { return Err(Unread::Damaged) };
        list.push_back(&value);
    }
    if list.is_empty() { Err(Unread::Damaged) } else { Ok(list.encode()) }
}

/// A set, a hash or a sorted set, which has no element twice.
fn read_tagged<S: FnMut(usize) -> Result<(), Stop>>(
    shape: Shape,
    access: &Access<'_>,
    now: Moment,
    parts: &mut Parts<'_, S>,
) -> Result<Vec<u8>, Unread> {
    let mut edit = Edit::new(Packed::empty(shape));
    while let Some(part) = parts.next_part()? {
        let is_new = match part {
            Part::Element(element) => edit.add(access.tag(&element), &element),
            Part::Member { member, score } => edit.put_score(access.tag(&member), &member, score),
            Part::Field { field, value, expires_ms } => {
                let tag = access.tag(&field);
                let is_new = edit.put(tag, &field, &value);
                if let Some(ms) = expires_ms {
                    edit.set_deadline(tag, &field, Some(Deadline::at(UnixMs(ms))));
                }
                is_new
            }
            _ => false,
        };
        if !is_new {
            return Err(Unread::Damaged);
        }
    }
    if edit.is_empty() {
        return Err(Unread::Damaged);
    }
    edit.purge(now.passed());
    Ok(edit.encode())
}

fn read_stream<S: FnMut(usize) -> Result<(), Stop>>(
    access: &Access<'_>,
    parts: &mut Parts<'_, S>,
) -> Result<Vec<u8>, Unread> {
    let mut reading = stream::RdbReading::default();
    while let Some(part) = parts.next_part()? {
        reading.take(part).ok_or(Unread::Damaged)?;
    }
    reading.finish(access)?.ok_or(Unread::Damaged)
}

fn part_bytes(part: &Part) -> usize {
    let bytes = match part {
        Part::String(bytes) | Part::Element(bytes) => bytes.len(),
        Part::Member { member, .. } => member.len(),
        Part::Field { field, value, .. } => field.len() + value.len(),
        Part::Entry { fields, .. } => fields.iter().map(|field| field.len() + PART_BYTES).sum(),
        Part::Group { name, .. } | Part::Consumer { name, .. } => name.len(),
        Part::Stream(_) | Part::Pending(_) => 0,
    };
    bytes + PART_BYTES
}

/// About what a part takes beside its bytes.
const PART_BYTES: usize = 32;
const ASKED_BYTES: usize = 16 << 10;
