//! Keys of a file as requests: SET, RESTORE of a payload, or, of a large collection, its parts under a name of its own and then RENAME.

use rdb::value::{HASH, HASH_TIMED, LIST, SET, SORTED_SET};
use rdb::{Item, Kind, Part, Pending, StreamWriter, Writing, put_length, put_string};

use crate::error::MigrateError;
use crate::options::{Existing, PARTIAL};
use crate::sink::Sink;

/// Takes items of a file, one after the other.
pub(crate) struct Loader {
    existing: Existing,
    db: Option<u64>,
    now_ms: u64,
    key: Option<Open>,
}

/// A key whose parts come.
struct Open {
    key: rdb::Key,
    /// Why it is not taken.
    refusal: Option<String>,
    is_left_out: bool,
    /// Parts that wait, and about how many bytes they are.
    parts: Vec<Part>,
    bytes: u64,
    /// The name that its parts go to, once it is too large for one request.
    partial: Option<Vec<u8>>,
    entries: u64,
    group: Vec<u8>,
    consumer: Vec<u8>,
}

impl Loader {
    /// Of keys that have ended at `now_ms` nothing is sent.
    pub(crate) fn new(existing: Existing, db: Option<u64>, now_ms: u64) -> Self {
        Self { existing, db, now_ms, key: None }
    }

    /// # Errors
    /// The server went away.
    pub(crate) fn take(&mut self, item: Item, sink: &mut Sink) -> Result<(), MigrateError> {
        match item {
            Item::Note { .. } => Ok(()),
            Item::Functions(code) => {
                sink.report.library();
                let replace: &[&[u8]] = if self.existing == Existing::Keep { &[] } else { &[b"REPLACE"] };
                let words = [&[&b"FUNCTION"[..], b"LOAD"], replace, &[&code[..]]].concat();
                sink.request(0, &words)
            }
            Item::Skipped(skipped) => {
                let key = skipped.key.as_ref().map(|(db, name)| (*db, &name[..]));
                if key.is_none_or(|(db, _)| self.wants(db)) {
                    sink.report.skipped(key, &skipped.what);
                }
                Ok(())
            }
            Item::Key(key) => self.begin(key, sink),
            Item::Part(part) => self.part(part, sink),
            Item::End => self.end(sink),
        }
    }

    fn wants(&self, db: u64) -> bool {
        self.db.is_none_or(|only| only == db)
    }

    fn begin(&mut self, key: rdb::Key, sink: &mut Sink) -> Result<(), MigrateError> {
        let is_over = key.expires_ms.is_some_and(|ms| ms <= self.now_ms);
        let is_left_out = is_over || !self.wants(key.db);
        if is_over && self.wants(key.db) {
            sink.report.expired();
        }
        let refusal = if is_left_out || sink.has_db(key.db)? {
            None
        } else {
            Some("the server has no such database".to_owned())
        };
        self.key = Some(Open {
            key,
            refusal,
            is_left_out,
            parts: Vec::new(),
            bytes: 0,
            partial: None,
            entries: 0,
            group: Vec::new(),
            consumer: Vec::new(),
        });
        Ok(())
    }

    fn part(&mut self, part: Part, sink: &mut Sink) -> Result<(), MigrateError> {
        let Some(open) = &mut self.key else { return Ok(()) };
        if open.is_left_out || open.refusal.is_some() {
            return Ok(());
        }
        let (bytes, longest) = size(&part);
        if longest + open.key.name.len() as u64 > sink.value_bytes_max {
            let most = sink.value_bytes_max;
            open.refusal = Some(format!("a value of {longest} B is longer than value.max ({most} B)"));
            return Ok(());
        }
        open.bytes += bytes;
        open.parts.push(part);
        let most = if open.key.kind == Kind::Stream { STREAM_BYTES_MAX } else { WHOLE_BYTES_MAX };
        let is_full = match open.partial {
            Some(_) => open.bytes > SLICE_BYTES || open.parts.len() >= SLICE_PARTS,
            None => open.key.kind != Kind::String && open.bytes > most,
        };
        if is_full { open.send_parts(sink) } else { Ok(()) }
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), MigrateError> {
        let Some(mut open) = self.key.take().filter(|open| !open.is_left_out) else { return Ok(()) };
        sink.report.key(open.key.kind);
        if let Some(why) = &open.refusal {
            sink.report.failed(open.key.db, &open.key.name, why);
            if let Some(partial) = &open.partial {
                sink.request(open.key.db, &[b"DEL", partial])?;
            }
            return sink.key_ends();
        }
        if open.partial.is_some() {
            open.send_parts(sink)?;
            open.rename(self.existing, sink)?;
        } else {
            open.send_whole(self.existing, sink)?;
        }
        sink.key_ends()
    }
}

impl Open {
    /// The key in one request.
    fn send_whole(&mut self, existing: Existing, sink: &mut Sink) -> Result<(), MigrateError> {
        let (db, name, expires) =
            (self.key.db, &self.key.name[..], self.key.expires_ms.map(|ms| ms.to_string()));
        if let [Part::String(value)] = &self.parts[..] {
            let mut words = vec![&b"SET"[..], name, value];
            if let Some(ms) = &expires {
                words.extend([&b"PXAT"[..], ms.as_bytes()]);
            }
            if existing == Existing::Keep {
                words.push(b"NX");
            }
            return sink.request(db, &words);
        }
        // Redis leaves out collections without elements, too
        let Some(payload) = payload(self.key.kind, std::mem::take(&mut self.parts)) else { return Ok(()) };
        let ms = expires.unwrap_or_else(|| "0".to_owned());
        let mut words = vec![&b"RESTORE"[..], name, ms.as_bytes(), &payload, b"ABSTTL"];
        if existing != Existing::Keep {
            words.push(b"REPLACE");
        }
        sink.request(db, &words)
    }

    /// What waits, to the name of its own.
    fn send_parts(&mut self, sink: &mut Sink) -> Result<(), MigrateError> {
        let db = self.key.db;
        let name = match &self.partial {
            Some(name) => name.clone(),
            None => {
                let name = [PARTIAL, &self.key.name].concat();
                sink.request(db, &[b"DEL", &name])?;
                self.partial.insert(name).clone()
            }
        };
        self.bytes = 0;
        let parts = std::mem::take(&mut self.parts);
        for slice in slices(&parts) {
            match self.key.kind {
                Kind::Stream => slice.iter().try_for_each(|part| self.stream_part(&name, part, sink))?,
                kind => send_slice(kind, db, &name, slice, sink)?,
            }
        }
        Ok(())
    }

    fn rename(&self, existing: Existing, sink: &mut Sink) -> Result<(), MigrateError> {
        let (db, Some(partial)) = (self.key.db, &self.partial) else { return Ok(()) };
        if let Some(ms) = self.key.expires_ms {
            sink.request(db, &[b"PEXPIREAT", partial, ms.to_string().as_bytes()])?;
        }
        if existing == Existing::Keep {
            sink.request(db, &[b"RENAMENX", partial, &self.key.name])?;
            return sink.request(db, &[b"DEL", partial]);
        }
        sink.request(db, &[b"RENAME", partial, &self.key.name])
    }

    /// A part of a stream that is too large for a payload.
    fn stream_part(&mut self, name: &[u8], part: &Part, sink: &mut Sink) -> Result<(), MigrateError> {
        let db = self.key.db;
        match part {
            Part::Entry { id, fields } => {
                self.entries += 1;
                let id = text(*id);
                let mut words = vec![&b"XADD"[..], name, id.as_bytes()];
                words.extend(fields.iter().map(|field| &field[..]));
                sink.request(db, &words)
            }
            Part::Stream(state) => {
                if self.entries == 0 {
                    sink.request(db, &[b"XADD", name, b"0-1", b"", b""])?;
                    sink.request(db, &[b"XDEL", name, b"0-1"])?;
                }
                let (last, deleted, added) =
                    (text(state.last), text(state.max_deleted), state.added.to_string());
                let words: [&[u8]; 7] = [
                    b"XSETID",
                    name,
                    last.as_bytes(),
                    b"ENTRIESADDED",
                    added.as_bytes(),
                    b"MAXDELETEDID",
                    deleted.as_bytes(),
                ];
                sink.request(db, &words)
            }
            Part::Group { name: group, last, read } => {
                self.group.clone_from(group);
                let (last, read) =
                    (text(*last), read.map_or_else(|| "-1".to_owned(), |read| read.to_string()));
                let words: [&[u8]; 7] =
                    [b"XGROUP", b"CREATE", name, group, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()];
                sink.request(db, &words)
            }
            Part::Consumer { name: consumer, .. } => {
                self.consumer.clone_from(consumer);
                sink.request(db, &[b"XGROUP", b"CREATECONSUMER", name, &self.group, consumer])
            }
            Part::Pending(Pending { id, delivered_ms, times, .. }) => {
                let (id, ms, times) = (text(*id), delivered_ms.to_string(), times.to_string());
                let words: [&[u8]; 12] = [
                    b"XCLAIM",
                    name,
                    &self.group,
                    &self.consumer,
                    b"0",
                    id.as_bytes(),
                    b"TIME",
                    ms.as_bytes(),
                    b"RETRYCOUNT",
                    times.as_bytes(),
                    b"FORCE",
                    b"JUSTID",
                ];
                sink.request(db, &words)
            }
            _ => Ok(()),
        }
    }
}

fn text(rdb::Id { ms, seq }: rdb::Id) -> String {
    format!("{ms}-{seq}")
}

/// Parts of one request each.
fn slices(mut parts: &[Part]) -> impl Iterator<Item = &[Part]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let most = parts.iter().take(SLICE_PARTS).take_while(|part| {
            let is_within = bytes < SLICE_BYTES;
            bytes += size(part).0;
            is_within
        });
        let (slice, rest) = parts.split_at(most.count());
        parts = rest;
        (!slice.is_empty()).then_some(slice)
    })
}

/// Elements of a collection in one request, and the deadlines of fields behind it.
fn send_slice(kind: Kind, db: u64, name: &[u8], parts: &[Part], sink: &mut Sink) -> Result<(), MigrateError> {
    let scores: Vec<String> = parts
        .iter()
        .map(|part| if let Part::Member { score, .. } = part { score.to_string() } else { String::new() })
        .collect();
    let command: &[u8] = match kind {
        Kind::SortedSet => b"ZADD",
        Kind::Hash => b"HSET",
        Kind::Set => b"SADD",
        _ => b"RPUSH",
    };
    let (mut words, mut timed) = (vec![command, name], Vec::new());
    for (part, score) in parts.iter().zip(&scores) {
        match part {
            Part::Element(element) => words.push(element),
            Part::Member { member, .. } => words.extend([score.as_bytes(), member]),
            Part::Field { field, value, expires_ms } => {
                words.extend([&field[..], value]);
                timed.extend(expires_ms.map(|ms| (field, ms)));
            }
            _ => {}
        }
    }
    sink.request(db, &words)?;
    for (field, ms) in timed {
        sink.request(db, &[b"HPEXPIREAT", name, ms.to_string().as_bytes(), b"FIELDS", b"1", field])?;
    }
    Ok(())
}

/// Bytes of a part, about, and of its longest string.
fn size(part: &Part) -> (u64, u64) {
    let (sum, longest) = match part {
        Part::String(bytes) | Part::Element(bytes) => (bytes.len(), bytes.len()),
        Part::Member { member, .. } => (member.len(), member.len()),
        Part::Field { field, value, .. } => (field.len() + value.len(), field.len().max(value.len())),
        Part::Entry { fields, .. } => {
            // an entry is one value
            let bytes = fields.iter().map(|field| field.len() + 8).sum();
            (bytes, bytes)
        }
        Part::Group { name, .. } | Part::Consumer { name, .. } => (name.len(), name.len()),
        Part::Stream(_) | Part::Pending(_) => (0, 0),
    };
    (sum as u64 + PART_BYTES, longest as u64)
}

/// The payload of a collection; `None` if it has no elements.
pub(crate) fn payload(kind: Kind, parts: Vec<Part>) -> Option<Vec<u8>> {
    let (mut body, version) = body(kind, parts, true)?;
    let footer = rdb::footer(version, &[&body]);
    body.extend_from_slice(&footer);
    Some(body)
}

/// Type and value of a collection, and the version that knows this type; with deadlines of fields, or without.
pub(crate) fn body(kind: Kind, parts: Vec<Part>, is_timed: bool) -> Option<(Vec<u8>, u16)> {
    if kind == Kind::Stream {
        return Some((stream_body(parts), rdb::VERSION));
    }
    let end = |part: &Part| if let Part::Field { expires_ms, .. } = part { *expires_ms } else { None };
    let first_ms = parts.iter().filter_map(end).min().filter(|_| is_timed);
    let mut out = vec![match kind {
        Kind::List => LIST,
        Kind::Set => SET,
        Kind::SortedSet => SORTED_SET,
        _ if first_ms.is_some() => HASH_TIMED,
        _ => HASH,
    }];
    if let Some(ms) = first_ms {
        out.extend_from_slice(&ms.to_le_bytes());
    }
    put_length(&mut out, parts.len() as u64);
    for part in &parts {
        match part {
            Part::Element(element) => put_string(&mut out, element),
            Part::Member { member, score } => {
                put_string(&mut out, member);
                out.extend_from_slice(&score.to_le_bytes());
            }
            Part::Field { field, value, expires_ms } => {
                if let Some(first_ms) = first_ms {
                    put_length(&mut out, expires_ms.map_or(0, |ms| ms - first_ms + 1));
                }
                put_string(&mut out, field);
                put_string(&mut out, value);
            }
            _ => {}
        }
    }
    let version = if first_ms.is_some() { rdb::VERSION_TIMED } else { rdb::VERSION };
    (!parts.is_empty()).then_some((out, version))
}

fn stream_body(parts: Vec<Part>) -> Vec<u8> {
    let (mut writer, mut state) = (StreamWriter::default(), rdb::StreamState::default());
    let mut group = None;
    let (mut consumers, mut pending) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Part::Entry { id, fields } => writer.entry(id, fields),
            Part::Stream(all) => state = all,
            Part::Group { name, last, read } => {
                close_group(&mut writer, group.replace((name, last, read)), &mut consumers, &mut pending);
            }
            Part::Consumer { name, seen_ms, .. } => consumers.push((name, seen_ms)),
            Part::Pending(it) => pending.push((it, consumers.len().saturating_sub(1))),
            _ => {}
        }
    }
    close_group(&mut writer, group, &mut consumers, &mut pending);
    let mut out = Vec::new();
    writer.finish(state, &mut out);
    out
}

/// A group that is read: its name, its last entry, and how many it was given.
type Group = (Vec<u8>, rdb::Id, Option<u64>);

fn close_group(
    writer: &mut StreamWriter,
    group: Option<Group>,
    consumers: &mut Vec<(Vec<u8>, u64)>,
    pending: &mut Vec<(Pending, usize)>,
) {
    let (mut pending, consumers) = (std::mem::take(pending), std::mem::take(consumers));
    let Some((name, last, read)) = group else { return };
    // given back to nobody: nothing that this form can hold
    pending.retain(|(it, _)| !it.is_free);
    pending.sort_unstable_by_key(|(it, _)| it.id);
    let consumers: Vec<(&[u8], u64)> =
        consumers.iter().map(|(name, seen_ms)| (&name[..], *seen_ms)).collect();
    writer.group(Writing { name: &name, last, read, pending: &pending, consumers: &consumers });
}

/// A collection up to here is one request.
const WHOLE_BYTES_MAX: u64 = 128 << 10;
/// A stream up to here: in parts the times of its consumers would be lost.
const STREAM_BYTES_MAX: u64 = 4 << 20;
const SLICE_BYTES: u64 = 128 << 10;
const SLICE_PARTS: usize = 1_000;
/// About what a part takes beside its strings.
const PART_BYTES: u64 = 16;
