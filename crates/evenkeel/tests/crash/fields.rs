//! The hash of a client whose fields end: some at a time far away, which must be what it was, and some soon.
//!
//! Part of module `collections`: the commands of a version follow from its number and from the hash before it. Fields that end soon
//! (`p:0` and on) are in no version, since a version does not say the time: each has its deadline as its value, and must not be seen
//! after it, whatever died meanwhile.

use std::collections::BTreeMap;

use clock::{Clock, SystemClock};
use resp::Value;
use vfs::sim::Rng;

use crate::collections::{Command, ELEMENTS, command, element, named};
use crate::history::Version;

/// Fields, their values, and when each of them ends, if it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<String, (String, Option<u64>)>);

/// What all fields have, when they end, and the time at the server: in one look.
const READ: &str = "local all, names = redis.call('HGETALL', KEYS[1]), {} \
    if #all == 0 then return {} end \
    for at = 1, #all, 2 do names[#names + 1] = all[at] end \
    return {all, redis.call('HPEXPIRETIME', KEYS[1], 'FIELDS', #names, unpack(names)), redis.call('TIME')}";

/// TIME reads the clock so much later than the script, whose time stands still, at most: others use the processors, too.
const LATE_MS: u64 = 50;

/// The command that reads all of a hash.
pub fn read(key: &str) -> Command {
    command(&["EVAL_RO", READ, "1", key])
}

/// What makes `version` of `before`.
pub fn commands(key: &str, version: Version, rng: &mut Rng) -> Vec<Command> {
    let mut commands: Vec<Command> = (0..rng.below(4)).map(|_| change(key, version, rng)).collect();
    let version = version.to_string();
    commands.push(command(&["HSET", key, &element(rng), &version, "v", &version]));
    commands
}

/// A hash as it begins: every other field ends.
pub fn first(version: Version) -> Fields {
    let text = version.to_string();
    let field = |at| (named(at), (text.clone(), (at % 2 == 0).then(|| far(version, at))));
    Fields((0..ELEMENTS).map(field).chain([("v".to_owned(), (text.clone(), None))]).collect())
}

/// What makes `fields` where nothing is.
pub fn make(key: &str, fields: &Fields) -> Vec<Command> {
    let mut all = command(&["HSET", key]);
    all.extend(fields.0.iter().flat_map(|(name, (value, _))| [name.clone(), value.clone()]));
    let timed = fields.0.iter().filter_map(|(name, (_, deadline))| Some((name, (*deadline)?)));
    let end =
        |(name, at): (&String, u64)| command(&["HPEXPIREAT", key, &at.to_string(), "FIELDS", "1", name]);
    [all].into_iter().chain(timed.map(end)).collect()
}

/// The hash that the reply to [`read`] shows.
///
/// # Errors
/// Another reply, or a field whose time was over.
pub fn parsed(reply: &Value) -> Result<Fields, String> {
    let strange = || format!("{reply:?}");
    let items = items(reply).ok_or_else(strange)?;
    let [all, deadlines, time] = items else {
        return if items.is_empty() { Ok(Fields::default()) } else { Err(strange()) };
    };
    let all: Vec<String> = texts(all).ok_or_else(strange)?;
    let time: Vec<u64> = texts(time).ok_or_else(strange)?.iter().filter_map(|it| it.parse().ok()).collect();
    let [seconds, micros] = time[..] else { return Err(strange()) };
    let now_ms = seconds * 1_000 + micros / 1_000;
    let mut fields = BTreeMap::new();
    for (pair, deadline) in all.chunks_exact(2).zip(self::items(deadlines).ok_or_else(strange)?) {
        let Value::Integer(deadline) = deadline else { return Err(strange()) };
        let deadline = u64::try_from(*deadline).ok();
        if !pair[0].starts_with("p:") {
            fields.insert(pair[0].clone(), (pair[1].clone(), deadline));
            continue;
        }
        if deadline.is_none_or(|deadline| deadline.to_string() != pair[1] || deadline + LATE_MS < now_ms) {
            return Err(format!("{} until {}, which ends at {deadline:?}, at {now_ms}", pair[0], pair[1]));
        }
    }
    Ok(Fields(fields))
}

/// One change that need not show the version.
fn change(key: &str, version: Version, rng: &mut Rng) -> Command {
    let element = element(rng);
    let until = far(version, rng.below(100)).to_string();
    let one = |words: &[&str]| {
        let [name, rest @ ..] = words else { unreachable!("a command has a name") };
        command(&[&[*name, key], rest, &["FIELDS", "1", &*element]].concat())
    };
    match rng.below(10) {
        0..3 => one(&["HPEXPIREAT", &until]),
        3 => one(&["HPERSIST"]),
        4 => one(&["HGETEX", "PERSIST"]),
        5 => {
            let mut set = one(&["HSETEX", "PXAT", &until]);
            set.push(version.to_string());
            set
        }
        6 => one(&["HGETDEL"]),
        // the time has come
        7 => one(&["HPEXPIREAT", "1"]),
        _ => passing(key, rng),
    }
}

/// A field that ends soon.
fn passing(key: &str, rng: &mut Rng) -> Command {
    let at = (SystemClock.unix_ms().0 + 20 + rng.below(300)).to_string();
    command(&["HSETEX", key, "PXAT", &at, "FIELDS", "1", &format!("p:{}", rng.below(4)), &at])
}

/// A time after all tests, in milliseconds.
fn far(version: Version, more: u64) -> u64 {
    4_000_000_000_000 + version * 1_000 + more
}

fn items(value: &Value) -> Option<&[Value]> {
    if let Value::Array(items) = value { Some(items) } else { None }
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |item: &Value| match item {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    items(value)?.iter().map(text).collect()
}

impl Fields {
    /// The version that a field names.
    pub fn version(&self) -> Option<Version> {
        self.0.get("v").and_then(|(value, _)| value.parse().ok())
    }

    /// Does what `command`, one of this module's, does.
    pub fn apply(&mut self, command: &[String]) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match words[..] {
            ["HSET", _, ref pairs @ ..] => {
                let fields = pairs.chunks(2).map(|pair| (pair[0].to_owned(), (pair[1].to_owned(), None)));
                self.0.extend(fields);
            }
            ["DEL", _] => self.0.clear(),
            ["HSETEX", .., name, _] if name.starts_with("p:") => {}
            ["HSETEX", _, _, at, .., name, value] => {
                self.0.insert(name.to_owned(), (value.to_owned(), Some(at.parse().unwrap())));
            }
            ["HGETDEL", .., name] | ["HPEXPIREAT", _, "1", .., name] => drop(self.0.remove(name)),
            ["HPEXPIREAT", _, at, .., name] => self.retime(name, Some(at.parse().unwrap())),
            ["HPERSIST" | "HGETEX", .., name] => self.retime(name, None),
            _ => unreachable!("{words:?}"),
        }
    }

    fn retime(&mut self, name: &str, deadline: Option<u64>) {
        self.0.entry(name.to_owned()).and_modify(|field| field.1 = deadline);
    }

    /// As [`read`] shows it.
    #[cfg(test)]
    pub fn reply(&self) -> Value {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let all = self.0.iter().flat_map(|(name, (value, _))| [bulk(name), bulk(value)]);
        let deadline = |(_, deadline): &(String, Option<u64>)| deadline.map_or(-1, u64::cast_signed);
        let deadlines = self.0.values().map(|field| Value::Integer(deadline(field)));
        let parts = [all.collect(), deadlines.collect(), vec![bulk("1"), bulk("2")]];
        Value::Array(parts.into_iter().map(Value::Array).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_that_is_seen_after_its_end_is_found() {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let reply = |deadline: i64, value: &str| {
            let all = vec![bulk("p:1"), bulk(value)];
            let parts = [all, vec![Value::Integer(deadline)], vec![bulk("5"), bulk("7000")]];
            Value::Array(parts.into_iter().map(Value::Array).collect())
        };
        assert_eq!(parsed(&reply(5_007, "5007")), Ok(Fields::default()));
        for (deadline, value) in [(4_956, "4956"), (-1, "5008"), (5_008, "5009")] {
            assert!(parsed(&reply(deadline, value)).is_err(), "{deadline} {value}");
        }
    }
}
