//! The collections of a client: a hash, a set, a list, a sorted set, a stream (module `streams`) and a hash whose fields end (module `fields`), made,
//! changed in small steps and emptied again.
//!
//! The commands of each version follow from its number and from the content before it, so the content is a function of the version alone,
//! as in [`crate::long`]. Each version leaves its number as an element, `v:64`, or in one, so that a content names its version: and then it
//! must be that version to the last element. Every [`ROUND`]th version takes the last element, and so the key.

use std::collections::{BTreeMap, VecDeque};

use resp::Value;
use vfs::sim::Rng;

use crate::fields::{self, Fields};
use crate::history::Version;
use crate::streams::{self, Stream};

/// A version of so many empties the collection, and the next one makes it.
const ROUND: Version = 48;
/// Elements that it is made with: enough that the server logs changes of it by themselves.
pub const ELEMENTS: u64 = 40;

pub type Command = Vec<String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hash,
    Set,
    List,
    SortedSet,
    Stream,
    /// Redis does not know it.
    Timed,
}

/// In the order of their slots.
pub const KINDS: [Kind; 6] = [Kind::Hash, Kind::Set, Kind::List, Kind::SortedSet, Kind::Stream, Kind::Timed];
/// Those that a server has that does not let fields end.
pub const KINDS_OF_REDIS: usize = 5;

/// Fields with values, members, members with scores; or what a list or a stream has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    map: BTreeMap<String, String>,
    list: VecDeque<String>,
    stream: Stream,
    fields: Fields,
}

/// The command that reads a whole collection.
pub fn read(kind: Kind, key: &str) -> Command {
    match kind {
        Kind::Hash => command(&["HGETALL", key]),
        Kind::Set => command(&["SMEMBERS", key]),
        Kind::List => command(&["LRANGE", key, "0", "-1"]),
        Kind::SortedSet => command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        Kind::Stream => streams::read(key),
        Kind::Timed => fields::read(key),
    }
}

/// Whether nothing is left at `version`.
pub fn is_empty(version: Version) -> bool {
    version.is_multiple_of(ROUND)
}

/// What makes `version` of the one before; more than one command is one transaction.
pub fn commands(kind: Kind, key: &str, version: Version) -> Vec<Command> {
    commands_on(kind, key, version, &content(kind, version - 1))
}

/// What makes `version` whatever is there.
pub fn whole(kind: Kind, key: &str, version: Version) -> Vec<Command> {
    let mut commands = vec![command(&["DEL", key])];
    if !is_empty(version) {
        commands.extend(make(kind, key, &content(kind, version)));
    }
    commands
}

/// The version that the reply to [`read`] shows; `None`: there is no key.
///
/// # Errors
/// What shows that it is none.
pub fn version_of(kind: Kind, reply: &Value) -> Result<Option<Version>, String> {
    let found = match kind {
        Kind::Timed => Content { fields: fields::parsed(reply)?, ..Content::default() },
        _ => parsed(kind, reply).ok_or_else(|| format!("{reply:?}"))?,
    };
    if found == Content::default() {
        return Ok(None);
    }
    let marks = found.map.keys().chain(&found.list).filter_map(|element| element.strip_prefix("v:"));
    let newest = match found.map.get("v") {
        None if kind == Kind::Stream => Some(found.stream.version()),
        None if kind == Kind::Timed => found.fields.version(),
        Some(version) => version.parse().ok(),
        None => marks.filter_map(|mark| mark.parse::<Version>().ok()).max(),
    };
    let Some(version) = newest else { return Err(format!("no version in {found:?}")) };
    let wanted = content(kind, version);
    if wanted == found { Ok(Some(version)) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

fn parsed(kind: Kind, reply: &Value) -> Option<Content> {
    if kind == Kind::Stream {
        return Some(Content { stream: streams::parsed(reply)?, ..Content::default() });
    }
    let Value::Array(items) = reply else { return None };
    let texts = items.iter().map(|item| match item {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    });
    let texts: Vec<String> = texts.collect::<Option<_>>()?;
    let mut content = Content::default();
    match kind {
        Kind::Stream | Kind::Timed => unreachable!("parsed before"),
        Kind::List => content.list = texts.into(),
        Kind::Set => content.map = texts.into_iter().map(|text| (text, String::new())).collect(),
        Kind::Hash | Kind::SortedSet => {
            content.map = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        }
    }
    Some(content)
}

fn content(kind: Kind, version: Version) -> Content {
    let mut content = Content::default();
    for version in version - version % ROUND + 1..=version {
        let commands = commands_on(kind, "", version, &content);
        commands.iter().for_each(|command| content.apply(kind, command));
    }
    content
}

fn commands_on(kind: Kind, key: &str, version: Version, before: &Content) -> Vec<Command> {
    let mut rng = Rng::new(version << 3 | kind as u64);
    if version % ROUND == 1 {
        return make(kind, key, &first(kind, version));
    }
    if is_empty(version) {
        let elements = before.map.keys().map(String::as_str).collect::<Vec<_>>();
        return vec![match kind {
            Kind::Hash => with(&["HDEL", key], &elements),
            Kind::Set => with(&["SREM", key], &elements),
            Kind::List => command(&["LTRIM", key, "1", "0"]),
            Kind::SortedSet => with(&["ZREM", key], &elements),
            // there may be fields that end soon
            Kind::Stream | Kind::Timed => command(&["DEL", key]),
        }];
    }
    if kind == Kind::Timed {
        return fields::commands(key, version, &mut rng);
    }
    if kind == Kind::Stream {
        return streams::commands(key, version, &before.stream, &mut rng);
    }
    let (number, mark) = (version.to_string(), format!("v:{version}"));
    let mut commands: Vec<Command> =
        (0..rng.below(3)).map(|_| change(kind, key, before.list.len(), &mut rng)).collect();
    let element = element(&mut rng);
    commands.push(match kind {
        Kind::Hash => command(&["HSET", key, &element, &number, "v", &number]),
        Kind::Set => command(&["SADD", key, &mark, &element]),
        Kind::List if rng.chance(1, 2) => command(&["RPUSH", key, &element, &mark]),
        Kind::List => command(&["LPUSH", key, &element, &mark]),
        Kind::SortedSet => command(&["ZADD", key, &number, "v", &(version % 7).to_string(), &element]),
        Kind::Stream | Kind::Timed => unreachable!("returned above"),
    });
    commands
}

/// One change that need not show the version.
fn change(kind: Kind, key: &str, len: usize, rng: &mut Rng) -> Command {
    let (element, amount) = (element(rng), (rng.below(9) as i64 - 4).to_string());
    match (kind, rng.below(4)) {
        (Kind::Hash, 0) => command(&["HINCRBY", key, &format!("n{}", rng.below(3)), &amount]),
        (Kind::Hash, _) => command(&["HDEL", key, &element]),
        (Kind::Set, _) => command(&["SREM", key, &element]),
        (Kind::SortedSet, 0 | 1) => command(&["ZINCRBY", key, &amount, &element]),
        (Kind::SortedSet, 2) => command(&["ZPOPMIN", key]),
        (Kind::SortedSet, _) => command(&["ZREM", key, &element]),
        (Kind::List, 0) => command(&["LREM", key, &amount, &element]),
        // whole rounds of changes leave more than that
        (Kind::List, 1) if len > 10 => command(&["LTRIM", key, "1", "-2"]),
        (Kind::List, 2) => command(&["LMOVE", key, key, "LEFT", "RIGHT"]),
        (Kind::List, _) => command(&["LMOVE", key, key, "RIGHT", "LEFT"]),
        (Kind::Stream | Kind::Timed, _) => unreachable!("modules of their own change them"),
    }
}

fn first(kind: Kind, version: Version) -> Content {
    let (mut content, mark) = (Content::default(), format!("v:{version}"));
    let names = (0..ELEMENTS).map(named);
    match kind {
        Kind::Stream => content.stream = streams::first(version),
        Kind::Timed => content.fields = fields::first(version),
        Kind::List => content.list = names.chain([mark]).collect(),
        Kind::Set => content.map = names.chain([mark]).map(|name| (name, String::new())).collect(),
        Kind::Hash | Kind::SortedSet => {
            content.map = names.chain(["v".to_owned()]).map(|name| (name, version.to_string())).collect();
        }
    }
    content
}

/// What makes `content` where nothing is.
fn make(kind: Kind, key: &str, content: &Content) -> Vec<Command> {
    let pairs = content.map.iter();
    let (verb, words): (_, Vec<&str>) = match kind {
        Kind::Stream => return streams::make(key, &content.stream),
        Kind::Timed => return fields::make(key, &content.fields),
        Kind::Hash => ("HSET", pairs.flat_map(|(name, value)| [&**name, &**value]).collect()),
        Kind::Set => ("SADD", pairs.map(|(name, _)| &**name).collect()),
        Kind::List => ("RPUSH", content.list.iter().map(String::as_str).collect()),
        Kind::SortedSet => ("ZADD", pairs.flat_map(|(name, score)| [&**score, &**name]).collect()),
    };
    vec![with(&[verb, key], &words)]
}

/// One of few, so that most are there, and lists have some several times.
pub fn element(rng: &mut Rng) -> String {
    named(rng.below(ELEMENTS))
}

pub fn named(number: u64) -> String {
    format!("element-{number:02}")
}

pub fn command(words: &[&str]) -> Command {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn with(words: &[&str], more: &[&str]) -> Command {
    command(&[words, more].concat())
}

impl Content {
    /// Does what `command`, one of this module's, does.
    fn apply(&mut self, kind: Kind, command: &[String]) {
        if kind == Kind::Timed {
            return self.fields.apply(command);
        }
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let put = |map: &mut BTreeMap<String, String>, name: &str, value: &str| {
            map.insert(name.to_owned(), value.to_owned());
        };
        match (words[0], &words[2..]) {
            ("HSET", pairs) => pairs.chunks(2).for_each(|pair| put(&mut self.map, pair[0], pair[1])),
            ("ZADD", pairs) => pairs.chunks(2).for_each(|pair| put(&mut self.map, pair[1], pair[0])),
            ("SADD", members) => members.iter().for_each(|member| put(&mut self.map, member, "")),
            ("HDEL" | "SREM" | "ZREM", members) => {
                members.iter().for_each(|member| drop(self.map.remove(*member)));
            }
            ("ZPOPMIN", _) => {
                let rank =
                    |(name, score): &(&String, &String)| (score.parse::<i64>().unwrap(), (*name).clone());
                let lowest = self.map.iter().min_by_key(rank).map(|(name, _)| name.clone());
                lowest.map(|name| self.map.remove(&name));
            }
            ("HINCRBY", [name, amount]) | ("ZINCRBY", [amount, name]) => {
                let before = self.map.get(*name).map_or(0, |value| value.parse::<i64>().unwrap());
                let after = before + amount.parse::<i64>().unwrap();
                put(&mut self.map, name, &after.to_string());
            }
            ("RPUSH", values) => self.list.extend(values.iter().map(|&value| value.to_owned())),
            ("LPUSH", values) => values.iter().for_each(|&value| self.list.push_front(value.to_owned())),
            ("LTRIM", ["1", "-2"]) => {
                self.list.pop_front();
                self.list.pop_back();
            }
            ("LTRIM", _) => self.list.clear(),
            ("LMOVE", [_, "LEFT", _]) => self.list.rotate_left(1),
            ("LMOVE", _) => self.list.rotate_right(1),
            ("DEL", _) => *self = Self::default(),
            (verb, _) if verb.starts_with('X') => self.stream.apply(command),
            ("LREM", [count, value]) => self.remove_equal(count.parse().unwrap(), value),
            _ => unreachable!("{words:?}"),
        }
    }

    fn remove_equal(&mut self, count: i64, value: &str) {
        let mut places: Vec<usize> = (0..self.list.len()).filter(|at| self.list[*at] == value).collect();
        if count < 0 {
            places.reverse();
        }
        places.truncate(if count == 0 { usize::MAX } else { count.unsigned_abs() as usize });
        places.sort_unstable();
        places.iter().rev().for_each(|at| drop(self.list.remove(*at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(kind: Kind, content: &Content) -> Value {
        if content == &Content::default() {
            return if kind == Kind::Stream {
                Value::Error(b"ERR no such key".to_vec())
            } else {
                Value::Array(vec![])
            };
        }
        let bulk = |text: &String| Value::Bulk(text.clone().into_bytes());
        Value::Array(match kind {
            Kind::Stream => return content.stream.reply(),
            Kind::Timed => return content.fields.reply(),
            Kind::List => content.list.iter().map(bulk).collect(),
            Kind::Set => content.map.keys().map(bulk).collect(),
            Kind::Hash | Kind::SortedSet => {
                content.map.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]).collect()
            }
        })
    }

    #[test]
    fn every_version_is_known_by_its_content_and_what_lost_a_change_is_none() {
        for kind in KINDS {
            let (mut groups, mut found) = (0, 0);
            for version in 1..=3 * ROUND {
                let wanted = if is_empty(version) { Ok(None) } else { Ok(Some(version)) };
                assert_eq!(version_of(kind, &reply(kind, &content(kind, version))), wanted, "{kind:?}");
                let commands = commands(kind, "", version);
                let mut lost = content(kind, version - 1);
                commands[1..].iter().for_each(|command| lost.apply(kind, command));
                groups += u64::from(commands.len() > 1);
                let is_lost = lost != content(kind, version);
                found += u64::from(is_lost && version_of(kind, &reply(kind, &lost)) != Ok(Some(version)));
            }
            assert!(groups > ROUND && found > ROUND, "{kind:?}: {groups} groups, {found} losses are found");
        }
    }
}
