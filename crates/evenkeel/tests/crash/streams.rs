//! The stream of a client: entries, and groups whose consumers read, take over and acknowledge them.
//!
//! Part of module `collections`: the commands of a version follow from its number and from the stream before it. Each version ends with an entry
//! whose identifier is its number, so the last identifier names the version, and then all that XINFO STREAM FULL shows must be this version's:
//! entries, what each group was given, and what is pending at whom how many times.

use std::collections::BTreeMap;

use resp::Value;
use vfs::sim::Rng;

use crate::collections::{Command, ELEMENTS, command, element, named};
use crate::history::Version;

/// The group that is always there.
const GROUP: &str = "g";
/// The group that is made and destroyed.
const PASSING: &str = "h";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Id(u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    entries: BTreeMap<Id, Vec<String>>,
    groups: BTreeMap<String, Group>,
    last: Id,
    added: u64,
    max_deleted: Id,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    delivered: Id,
    /// Whose each entry is, and how many times it was delivered.
    pending: BTreeMap<Id, (String, u64)>,
}

/// The command that reads all of a stream.
pub fn read(key: &str) -> Command {
    command(&["XINFO", "STREAM", key, "FULL", "COUNT", "0"])
}

/// What makes `version` of `before`.
pub fn commands(key: &str, version: Version, before: &Stream, rng: &mut Rng) -> Vec<Command> {
    let (mut stream, mut commands) = (before.clone(), Vec::new());
    for step in 1..=rng.below(4) {
        commands.extend(change(key, Id(version, step), &stream, rng));
        commands.last().into_iter().for_each(|command| stream.apply(command));
    }
    commands.push(add(key, Id(version, 9), &[element(rng), version.to_string()]));
    commands
}

/// A stream as it begins.
pub fn first(version: Version) -> Stream {
    let mut stream = Stream::default();
    stream.groups.insert(GROUP.to_owned(), Group::default());
    for at in 1..=ELEMENTS {
        stream.add(Id(version, at), vec![named(at), version.to_string()]);
    }
    stream
}

/// What makes `stream` where nothing is.
pub fn make(key: &str, stream: &Stream) -> Vec<Command> {
    let mut commands = Vec::new();
    for (name, group) in &stream.groups {
        commands.push(command(&["XGROUP", "CREATE", key, name, &group.delivered.text(), "MKSTREAM"]));
    }
    let pending = stream.groups.values().flat_map(|group| group.pending.keys());
    let gone =
        pending.filter(|id| !stream.entries.contains_key(id)).map(|id| (*id, vec!["gone".to_owned(); 2]));
    let mut entries: BTreeMap<Id, Vec<String>> = gone.collect();
    let gone: Vec<Id> = entries.keys().copied().collect();
    entries.extend(stream.entries.clone());
    commands.extend(entries.iter().map(|(id, fields)| add(key, *id, fields)));
    for (name, group) in &stream.groups {
        for (id, (consumer, times)) in &group.pending {
            let (id, times) = (id.text(), times.to_string());
            let claim = ["XCLAIM", key, name, consumer, "0", &id, "RETRYCOUNT", &times, "FORCE", "JUSTID"];
            commands.push(command(&claim));
        }
    }
    commands.extend(gone.iter().map(|id| command(&["XDEL", key, &id.text()])));
    let (last, added, deleted) = (stream.last.text(), stream.added.to_string(), stream.max_deleted.text());
    commands.push(command(&["XSETID", key, &last, "ENTRIESADDED", &added, "MAXDELETEDID", &deleted]));
    commands
}

/// The stream that the reply to [`read`] shows; one without anything for no key.
pub fn parsed(reply: &Value) -> Option<Stream> {
    if matches!(reply, Value::Error(text) if text.starts_with(b"ERR no such key")) {
        return Some(Stream::default());
    }
    let mut groups = BTreeMap::new();
    for group in items(field(reply, "groups")?)? {
        let pending = items(field(group, "pending")?)?.iter().map(|item| {
            let [id, consumer, _, times] = items(item)? else { return None };
            Some((Id::of(id)?, (text(consumer)?, number(times)?)))
        });
        let delivered = Id::of(field(group, "last-delivered-id")?)?;
        let group_parsed = Group { delivered, pending: pending.collect::<Option<_>>()? };
        groups.insert(text(field(group, "name")?)?, group_parsed);
    }
    let entries = items(field(reply, "entries")?)?.iter().map(|item| {
        let [id, fields] = items(item)? else { return None };
        Some((Id::of(id)?, items(fields)?.iter().map(text).collect::<Option<_>>()?))
    });
    Some(Stream {
        entries: entries.collect::<Option<_>>()?,
        groups,
        last: Id::of(field(reply, "last-generated-id")?)?,
        added: number(field(reply, "entries-added")?)?,
        max_deleted: Id::of(field(reply, "max-deleted-entry-id")?)?,
    })
}

/// One change that need not show the version; `None`: there is nothing to change.
fn change(key: &str, id: Id, stream: &Stream, rng: &mut Rng) -> Option<Command> {
    let names: Vec<&String> = stream.groups.keys().collect();
    let name = names[rng.index(names.len())].as_str();
    let pending: Vec<Id> = stream.groups[name].pending.keys().copied().collect();
    let entries: Vec<Id> = stream.entries.keys().copied().collect();
    let one_of = |ids: &[Id], rng: &mut Rng| ids.get(rng.index(ids.len())).map(|id| id.text());
    let (consumer, count) = (format!("consumer-{}", rng.below(3)), (1 + rng.below(6)).to_string());
    Some(match rng.below(12) {
        0 | 1 => add(key, id, &[element(rng), id.0.to_string()]),
        2 => command(&["XDEL", key, &one_of(&entries, rng)?]),
        3 => command(&["XTRIM", key, "MAXLEN", &(20 + rng.below(20)).to_string()]),
        4 => command(&["XTRIM", key, "MINID", &entries.get(rng.index(5))?.text()]),
        5..8 => command(&["XREADGROUP", "GROUP", name, &consumer, "COUNT", &count, "STREAMS", key, ">"]),
        8 | 9 => command(&["XACK", key, name, &one_of(&pending, rng)?]),
        10 => command(&["XCLAIM", key, name, &consumer, "0", &one_of(&pending, rng)?]),
        _ if stream.groups.contains_key(PASSING) => command(&["XGROUP", "DESTROY", key, PASSING]),
        _ => command(&["XGROUP", "CREATE", key, PASSING, &one_of(&entries, rng)?, "MKSTREAM"]),
    })
}

fn add(key: &str, id: Id, fields: &[String]) -> Command {
    let mut command = command(&["XADD", key, &id.text()]);
    command.extend_from_slice(fields);
    command
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let pair = items(map)?.chunks_exact(2).find(|pair| text(&pair[0]).is_some_and(|text| text == name))?;
    Some(&pair[1])
}

fn items(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

fn text(value: &Value) -> Option<String> {
    if let Value::Bulk(bytes) = value { String::from_utf8(bytes.clone()).ok() } else { None }
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Integer(number) = value { (*number).try_into().ok() } else { None }
}

impl Id {
    fn of(value: &Value) -> Option<Self> {
        Self::parse(&text(value)?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (ms, seq) = text.split_once('-')?;
        Some(Self(ms.parse().ok()?, seq.parse().ok()?))
    }

    fn text(self) -> String {
        format!("{}-{}", self.0, self.1)
    }
}

impl Stream {
    /// The version that the last entry names.
    pub fn version(&self) -> Version {
        self.last.0
    }

    fn add(&mut self, id: Id, fields: Vec<String>) {
        self.entries.insert(id, fields);
        (self.last, self.added) = (id, self.added + 1);
    }

    /// Does what `command`, one of this module's, does.
    pub fn apply(&mut self, command: &[String]) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let id = |text: &str| Id::parse(text).expect("an identifier of this module");
        match words[..] {
            ["XGROUP", "CREATE", _, name, at, _] => {
                let group = Group { delivered: id(at), pending: BTreeMap::new() };
                self.groups.insert(name.to_owned(), group);
            }
            ["XGROUP", "DESTROY", _, name] => drop(self.groups.remove(name)),
            ["XADD", _, at, ref fields @ ..] => {
                self.add(id(at), fields.iter().map(|&field| field.to_owned()).collect());
            }
            ["XDEL", _, at] => {
                self.entries.remove(&id(at));
                self.max_deleted = self.max_deleted.max(id(at));
            }
            ["XTRIM", _, "MAXLEN", most] => {
                while self.entries.len() > most.parse().unwrap() {
                    self.entries.pop_first();
                }
            }
            ["XTRIM", _, _, least] => self.entries = self.entries.split_off(&id(least)),
            ["XREADGROUP", _, name, consumer, _, count, ..] => {
                self.deliver(name, consumer, count.parse().unwrap());
            }
            ["XACK", _, name, at] => {
                self.groups.get_mut(name).and_then(|group| group.pending.remove(&id(at)));
            }
            // it says what is so
            ["XSETID", ..] => {}
            ["XCLAIM", _, name, consumer, _, at] => self.claim(name, consumer, id(at)),
            _ => unreachable!("{words:?}"),
        }
    }

    fn deliver(&mut self, name: &str, consumer: &str, count: usize) {
        let Some(group) = self.groups.get_mut(name) else { return };
        let newer = self.entries.keys().copied().filter(|id| *id > group.delivered);
        for id in newer.take(count).collect::<Vec<_>>() {
            group.pending.insert(id, (consumer.to_owned(), 1));
            group.delivered = id;
        }
    }

    /// An entry that is gone from the stream leaves the group, too.
    fn claim(&mut self, name: &str, consumer: &str, id: Id) {
        let Some((_, times)) = self.groups.get_mut(name).and_then(|group| group.pending.remove(&id)) else {
            return;
        };
        if self.entries.contains_key(&id) {
            let again = (consumer.to_owned(), times + 1);
            self.groups.get_mut(name).and_then(|group| group.pending.insert(id, again));
        }
    }

    /// As [`read`] shows it.
    #[cfg(test)]
    pub fn reply(&self) -> Value {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let map = |pairs: Vec<(&str, Value)>| {
            Value::Array(pairs.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect())
        };
        let integer = |number: u64| Value::Integer(number.try_into().unwrap());
        let entries = self.entries.iter().map(|(id, fields)| {
            let fields = fields.iter().map(|field| bulk(field)).collect();
            Value::Array(vec![bulk(&id.text()), Value::Array(fields)])
        });
        let groups = self.groups.iter().map(|(name, group)| {
            let pending = group.pending.iter().map(|(id, (consumer, times))| {
                Value::Array(vec![bulk(&id.text()), bulk(consumer), Value::Integer(7), integer(*times)])
            });
            map(vec![
                ("name", bulk(name)),
                ("last-delivered-id", bulk(&group.delivered.text())),
                ("pending", Value::Array(pending.collect())),
            ])
        });
        map(vec![
            ("last-generated-id", bulk(&self.last.text())),
            ("max-deleted-entry-id", bulk(&self.max_deleted.text())),
            ("entries-added", integer(self.added)),
            ("entries", Value::Array(entries.collect())),
            ("groups", Value::Array(groups.collect())),
        ])
    }
}
