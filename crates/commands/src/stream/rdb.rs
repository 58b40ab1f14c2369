//! Streams as Redis's payloads have them.

use std::collections::{BTreeMap, BTreeSet};

use rdb::{Part, StreamState, StreamWriter, Writing};
use store::{Access, OrderedEdit, Packed, STREAM_ENTRY, Shape, Stop, ValueKind};

use super::counts::behind_group;
use super::pending::told_of;
use super::{Changes, Consumer, Entry, Group, Id, META, Meta, Pending, Reader, Stream};

impl From<Id> for rdb::Id {
    fn from(Id { ms, seq }: Id) -> Self {
        Self { ms, seq }
    }
}

impl From<rdb::Id> for Id {
    fn from(rdb::Id { ms, seq }: rdb::Id) -> Self {
        Self { ms, seq }
    }
}

/// What is known of a group.
#[derive(Default)]
struct Told<'a> {
    group: Option<Group>,
    /// When each was seen, by name.
    consumers: BTreeMap<Vec<u8>, u64>,
    /// By id.
    pending: Vec<(Id, Pending)>,
    name: &'a [u8],
}

/// Appends type and value of a stream; `None` if Redis 7 cannot hold it: producers named entries, or consumers gave some back.
pub(crate) fn write_rdb(packed: Packed<'_>, out: &mut Vec<u8>) -> Option<()> {
    let (mut writer, mut meta) = (StreamWriter::default(), None);
    let mut groups = BTreeMap::<&[u8], Told<'_>>::new();
    let (mut len, mut last) = (0, Id::MIN);
    for (key, value) in packed.iter() {
        match (key.first(), behind_group(key)) {
            _ if key.starts_with(STREAM_ENTRY) => {
                let entry = Entry::of((key, value));
                (len, last) = (len + 1, entry.id);
                writer.entry(entry.id.into(), entry.parts().into_iter().map(<[u8]>::to_vec).collect());
            }
            _ if key == META => meta = Some(Meta::read_from(value)),
            (Some(b'g'), _) => {
                let told = groups.entry(&key[1..]).or_default();
                (told.group, told.name) = (Some(Group::read_from(value)), &key[1..]);
            }
            (Some(b'c'), Some((group, name))) => {
                let seen_ms = Consumer::read_from(value).seen_ms;
                groups.entry(group).or_default().consumers.insert(name.to_vec(), seen_ms);
            }
            (Some(b'p'), Some((group, first))) => {
                groups.entry(group).or_default().pending.extend(told_of(Reader(first).id(), value));
            }
            _ => return None,
        }
    }
    let meta = meta.unwrap_or(Meta { last, max_deleted: Id::MIN, added: len });
    for mut told in groups.into_values() {
        // salvage may have lost a group or a consumer whose entries are left
        let Some(group) = told.group else { continue };
        told.write(group, &mut writer)?;
    }
    let (last, max_deleted) = (meta.last.max(last).into(), meta.max_deleted.into());
    writer.finish(StreamState { len, last, max_deleted, added: meta.added }, out);
    Some(())
}

impl Told<'_> {
    fn write(&mut self, group: Group, writer: &mut StreamWriter) -> Option<()> {
        for (_, pending) in &self.pending {
            if pending.is_free() {
                return None;
            }
            self.consumers.entry(pending.consumer.clone()).or_default();
        }
        let consumers: Vec<(&[u8], u64)> =
            self.consumers.iter().map(|(name, seen_ms)| (&name[..], *seen_ms)).collect();
        let owned = self.pending.iter().map(|(id, pending)| {
            let Pending { delivered_ms, times, .. } = *pending;
            let number = consumers.partition_point(|(name, _)| *name < &pending.consumer[..]);
            (rdb::Pending { id: (*id).into(), delivered_ms, times, is_free: false }, number)
        });
        let pending: Vec<_> = owned.collect();
        let (last, read) = (group.last_delivered.into(), group.read);
        writer.group(Writing { name: self.name, last, read, pending: &pending, consumers: &consumers });
        Some(())
    }
}

/// A stream that is being read.
#[derive(Default)]
pub(crate) struct RdbReading {
    changes: Changes,
    has_meta: bool,
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// Names of groups, and of consumers with theirs: none comes twice.
    names: BTreeSet<(Vec<u8>, Option<Vec<u8>>)>,
}

impl RdbReading {
    /// Takes the next part; `None` if it makes no sense.
    pub(crate) fn take(&mut self, part: Part) -> Option<()> {
        match part {
            Part::Entry { id, fields } => {
                self.changes.put_entry(id.into(), fields.iter().map(|part| &part[..]));
            }
            Part::Stream(StreamState { last, max_deleted, added, .. }) => {
                self.has_meta = true;
                self.changes.put_meta(Meta { last: last.into(), max_deleted: max_deleted.into(), added });
            }
            Part::Group { name, last, read } => {
                self.names.insert((name.clone(), None)).then_some(())?;
                self.changes.put_group(&name, Group { last_delivered: last.into(), read });
                self.group = name;
            }
            Part::Consumer { name, seen_ms, active_ms } => {
                self.names.insert((self.group.clone(), Some(name.clone()))).then_some(())?;
                let active_ms = active_ms.unwrap_or(0);
                self.changes.put_consumer(&self.group, &name, Consumer { seen_ms, active_ms });
                self.consumer = name;
            }
            Part::Pending(rdb::Pending { id, delivered_ms, times, is_free }) => {
                let pending = if is_free {
                    Pending { consumer: Vec::new(), delivered_ms: 0, times }
                } else {
                    Pending { consumer: self.consumer.clone(), delivered_ms, times }
                };
                self.changes.put_pending(&self.group, id.into(), pending);
            }
            Part::String(_) | Part::Element(_) | Part::Member { .. } | Part::Field { .. } => return None,
        }
        Some(())
    }

    /// The stream, packed; `None` if not all of it has come.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub(crate) fn finish(self, access: &Access<'_>) -> Result<Option<Vec<u8>>, Stop> {
        if !self.has_meta {
            return Ok(None);
        }
        let nothing = Stream::new(access.empty_sequence(ValueKind::Stream));
        let settled = self.changes.settled(nothing)?.unwrap_or(self.changes);
        let mut elements: Vec<_> = settled.iter().filter_map(|(key, value)| Some((key, value?))).collect();
        elements.sort_unstable_by_key(|(key, _)| *key);
        let mut edit = OrderedEdit::new(Packed::empty(Shape::Ordered));
        elements.iter().for_each(|(key, value)| edit.put(key, value));
        Ok(Some(edit.encode()))
    }
}
