//! COMMAND DOCS and COMMAND INFO beside those of redis-server 7.0: what redis-cli's hints, cluster clients and
//! proxies read. Equal for each command that both have, or a listed difference.

#[path = "differential/replies.rs"]
mod replies;
#[path = "differential/servers.rs"]
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use replies::{items, pairs, text};
use resp::Value;
use servers::{Evenkeel, Link, Redis, small};
use store::EngineKind;

/// Fields of COMMAND INFO, by their place in its array.
const INFO_FIELDS: [&str; 9] =
    ["name", "arity", "flags", "first key", "last key", "step", "categories", "tips", "key specs"];

/// `command field`: why it is not as in Redis 7.0.
const LISTED: &[(&str, &str)] = &[
    ("bitfield key specs", "without the note in it: no client reads that"),
    ("debug doc_flags", "here it is for tests of clients, and no command of the system"),
    ("eval key specs", "without the note in it: no client reads that"),
    ("eval_ro key specs", "without the note in it: no client reads that"),
    ("fcall key specs", "without the note in it: no client reads that"),
    ("fcall_ro key specs", "without the note in it: no client reads that"),
    ("geosearch arguments", "BYPOLYGON is newer"),
    ("geosearchstore arguments", "BYPOLYGON is newer"),
    ("getex key specs", "without the note in it: no client reads that"),
    ("pfselftest doc_flags", "here it is for tests of clients, and no command of the system"),
    ("spublish first key", "channels are no keys here: there is one node"),
    ("spublish key specs", "channels are no keys here: there is one node"),
    ("spublish last key", "channels are no keys here: there is one node"),
    ("spublish step", "channels are no keys here: there is one node"),
    ("ssubscribe first key", "channels are no keys here: there is one node"),
    ("ssubscribe key specs", "channels are no keys here: there is one node"),
    ("ssubscribe last key", "channels are no keys here: there is one node"),
    ("ssubscribe step", "channels are no keys here: there is one node"),
    ("sunsubscribe first key", "channels are no keys here: there is one node"),
    ("sunsubscribe key specs", "channels are no keys here: there is one node"),
    ("sunsubscribe last key", "channels are no keys here: there is one node"),
    ("sunsubscribe step", "channels are no keys here: there is one node"),
    ("sort arguments", "where keys are that patterns name cannot be said"),
    ("sort_ro arguments", "where keys are that patterns name cannot be said"),
    ("sort key specs", "where keys are that patterns name cannot be said"),
    ("sort_ro key specs", "where keys are that patterns name cannot be said"),
    ("xadd arguments", "KEEPREF and IDMP are newer"),
    ("xadd history", "KEEPREF and IDMP are newer"),
    ("xreadgroup arguments", "CLAIM is newer"),
    ("xtrim arguments", "KEEPREF is newer"),
    ("xtrim history", "KEEPREF is newer"),
    ("xadd key specs", "without the note in it: no client reads that"),
    ("zrank arguments", "WITHSCORE is newer"),
    ("zrank arity", "WITHSCORE is newer"),
    ("zrank history", "WITHSCORE is newer"),
    ("zrevrank arguments", "WITHSCORE is newer"),
    ("zrevrank arity", "WITHSCORE is newer"),
    ("zrevrank history", "WITHSCORE is newer"),
    ("pfcount key specs", "without the note in it: no client reads that"),
    ("hscan arguments", "NOVALUES is newer"),
    ("set arguments", "IFEQ and its like are newer"),
    ("set history", "IFEQ and its like are newer"),
    ("set key specs", "without the note in it: no client reads that"),
];

/// What a server says of each command and subcommand, field by field.
type Told = BTreeMap<String, BTreeMap<String, Value>>;

fn ask(link: &mut Link, words: &[&str]) -> Value {
    link.send(&[words.iter().map(|word| word.as_bytes().to_vec()).collect()]);
    link.reply().expect("a reply")
}

/// The same value with the members of its sets in order, and words as words however they were sent.
fn ordered(value: &Value) -> Value {
    match value {
        Value::Set(members) => {
            let mut members: Vec<Value> = members.iter().map(ordered).collect();
            members.sort_by_key(|member| format!("{member:?}"));
            Value::Array(members)
        }
        Value::Array(members) => Value::Array(members.iter().map(ordered).collect()),
        Value::Map(fields) => {
            let mut fields: Vec<_> = fields.iter().map(|(k, v)| (ordered(k), ordered(v))).collect();
            fields.sort_by_key(|(key, _)| format!("{key:?}"));
            Value::Map(fields)
        }
        Value::Simple(bytes) => Value::Bulk(bytes.clone()),
        other => other.clone(),
    }
}

fn read_docs(docs: &Value, told: &mut Told) {
    for (name, fields) in pairs(docs) {
        let mut own = BTreeMap::new();
        for (field, value) in pairs(fields) {
            match text(field).as_str() {
                "subcommands" => read_docs(value, told),
                field => drop(own.insert(field.to_owned(), ordered(value))),
            }
        }
        told.insert(text(name), own);
    }
}

fn read_info(info: &Value, told: &mut Told) {
    for command in items(info) {
        let fields = items(command);
        let own = INFO_FIELDS.iter().zip(fields).map(|(name, value)| ((*name).to_owned(), ordered(value)));
        told.insert(text(&fields[0]), own.collect());
        read_info(&fields[9], told);
    }
}

/// Where `ours` differs from `theirs` in commands that both have; takes what is listed out of `unused`.
fn differences((theirs, ours): &(Told, Told), unused: &mut BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (command, fields) in ours {
        let Some(expected) = theirs.get(command) else { continue };
        let names: BTreeSet<&String> = fields.keys().chain(expected.keys()).collect();
        for name in names.into_iter().filter(|name| !same(name, expected.get(*name), fields.get(*name))) {
            let row = format!("{command} {name}");
            if LISTED.iter().any(|(listed, _)| *listed == row) {
                unused.remove(row.as_str());
                continue;
            }
            let (redis, evenkeel) = (expected.get(name), fields.get(name));
            found.push(format!("{row}\n  redis:    {redis:?}\n  evenkeel: {evenkeel:?}"));
        }
    }
    found
}

/// Equal; of the complexity, the formula alone: what its letters stand for in Redis's lists and sets is not said here.
fn same(name: &str, theirs: Option<&Value>, ours: Option<&Value>) -> bool {
    match (name, theirs, ours) {
        ("complexity", Some(theirs), Some(ours)) => text(theirs).starts_with(&text(ours)),
        (_, theirs, ours) => theirs == ours,
    }
}

/// What both servers answer to `words`, read by `read`.
fn both(words: &[&str], read: fn(&Value, &mut Told)) -> (Told, Told) {
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let told = |port| {
        let mut link = Link::open(port);
        ask(&mut link, &["HELLO", "3"]);
        let mut told = Told::new();
        read(&ask(&mut link, words), &mut told);
        told
    };
    (told(redis.port), told(evenkeel.port))
}

#[test]
fn commands_are_described_as_by_redis_7_0() {
    let mut unused: BTreeSet<&str> = LISTED.iter().map(|(row, _)| *row).collect();
    let mut found = differences(&both(&["COMMAND", "DOCS"], read_docs), &mut unused);
    found.extend(differences(&both(&["COMMAND"], read_info), &mut unused));
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
    assert!(unused.is_empty(), "listed, and no difference: {unused:?}");
}
