//! Every number that a command on data takes, at the edges of its types, beside redis-server 7.0: the same reply, or a listed difference;
//! never silence.
//!
//! What a command takes is read from COMMAND DOCS, so that a new row is tried as soon as it is there. One number at a time is at the edge,
//! and all of them together; keys hold a little of the command's type, made anew each time.

#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/replies.rs"]
mod replies;
#[path = "differential/servers.rs"]
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use compare::Verdict;
use replies::{items, pairs, text};
use resp::Value;
use servers::{Evenkeel, Link, Redis, small};
use store::EngineKind;

const EDGES: [&str; 17] = [
    "0",
    "-1",
    "1",
    "2147483647",
    "2147483648",
    "2147483649",
    "-2147483647",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "4294967297",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
];

/// Groups of commands, and what makes `key:0` and `key:1` hold something of their type.
const GROUPS: [(&str, &[&str]); 9] = [
    ("string", &["SET key:0 abc", "SET key:1 5"]),
    ("bitmap", &["SET key:0 abc", "SET key:1 abcd"]),
    ("hash", &["HSET key:0 a 1 b 2", "HSET key:1 a 1"]),
    ("list", &["RPUSH key:0 a b c a", "RPUSH key:1 a"]),
    ("set", &["SADD key:0 a b", "SADD key:1 a"]),
    ("sorted-set", &["ZADD key:0 1 a 2 b 3 c", "ZADD key:1 1 a"]),
    ("geo", &["GEOADD key:0 1 1 a 2 2 b 3 3 c", "GEOADD key:1 1 1 a"]),
    ("hyperloglog", &["PFADD key:0 a", "PFADD key:1 b"]),
    (
        "stream",
        &[
            "XADD key:0 1-1 a 1",
            "XADD key:0 2-1 a 2",
            "XGROUP CREATE key:0 g 0",
            "XREADGROUP GROUP g c COUNT 1 STREAMS key:0 >",
            "XADD key:1 1-1 a 1",
        ],
    ),
];

/// Commands of other groups: what they do to strings.
const GENERIC: [&str; 9] =
    ["expire", "pexpire", "expireat", "pexpireat", "copy", "move", "sort", "sort_ro", "scan"];

/// Differences: the command, how a word of it begins (`""`: any), and why.
const LISTED: &[(&str, &str, &str)] = &[
    ("scan", "", "cursors are our own"),
    ("sscan", "", "cursors are our own"),
    ("hscan", "NOVALUES", "newer than 7.0"),
    ("xreadgroup", "CLAIM", "newer than 7.0"),
    ("xinfo", "FULL", "clocks of two servers; `active-time` is newer"),
    ("xpending", "IDLE", "clocks of two servers"),
    ("srandmember", "", "chance"),
    ("hrandfield", "", "chance"),
    ("zrandmember", "", "chance"),
    ("spop", "", "chance"),
    ("blpop", TOO_LONG, "called negative before 7.2"),
    ("brpop", TOO_LONG, "called negative before 7.2"),
    ("blmove", TOO_LONG, "called negative before 7.2"),
    ("brpoplpush", TOO_LONG, "called negative before 7.2"),
    ("blmpop", TOO_LONG, "called negative before 7.2"),
    ("bzmpop", TOO_LONG, "called negative before 7.2"),
    ("bzpopmin", TOO_LONG, "called negative before 7.2"),
    ("bzpopmax", TOO_LONG, "called negative before 7.2"),
    ("getbit", "2147", BIT_LIMIT),
    ("getbit", "4294967295", BIT_LIMIT),
    ("setbit", "2147", BIT_LIMIT),
    ("setbit", "4294967295", BIT_LIMIT),
    ("bitfield", "2147", BIT_LIMIT),
    ("bitfield", "4294967295", BIT_LIMIT),
    ("bitfield_ro", "2147", BIT_LIMIT),
    ("bitfield_ro", "4294967295", BIT_LIMIT),
];

/// A number of seconds that has more milliseconds than 64 bits.
const TOO_LONG: &str = "922337203685477580";
const BIT_LIMIT: &str = "offsets end with value.max, 64 MiB";

/// A word of a command: as it is, or a number that is tried.
#[derive(Clone, Debug)]
enum Word {
    Fixed(String),
    Number,
}

/// Commands of several keys that name one twice: the class of CVE-2023-28425.
const TWICE: [(&str, &[&str]); 7] = [
    (
        "string",
        &[
            "mset key:0 1 key:0 2",
            "msetnx key:2 1 key:2 2",
            "mget key:0 key:0",
            "lcs key:0 key:0",
            "rename key:0 key:0",
            "renamenx key:0 key:0",
            "copy key:0 key:0",
            "copy key:0 key:0 replace",
            "del key:0 key:0",
            "exists key:0 key:0",
            "touch key:0 key:0",
            "unlink key:0 key:0",
            "bitop and key:0 key:0 key:0",
            "bitop not key:0 key:0",
            "sort key:0 store key:0",
        ],
    ),
    (
        "list",
        &[
            "lmove key:0 key:0 left right",
            "lmove key:1 key:1 left left",
            "rpoplpush key:0 key:0",
            "rpoplpush key:1 key:1",
            "blmove key:0 key:0 right left 1",
            "brpoplpush key:0 key:0 1",
            "blpop key:0 key:0 1",
            "lmpop 2 key:0 key:0 left count 9",
            "blmpop 1 2 key:2 key:2 left",
            "sort key:0 alpha store key:0",
        ],
    ),
    (
        "set",
        &[
            "smove key:0 key:0 a",
            "smove key:0 key:0 z",
            "sinter key:0 key:0",
            "sinterstore key:0 key:0 key:0",
            "sunionstore key:0 key:0 key:0",
            "sdiffstore key:0 key:0 key:0",
            "sintercard 2 key:0 key:0",
        ],
    ),
    (
        "sorted-set",
        &[
            "zunion 2 key:0 key:0 withscores",
            "zinter 2 key:0 key:0 withscores",
            "zdiff 2 key:0 key:0",
            "zunionstore key:0 2 key:0 key:0",
            "zinterstore key:0 2 key:0 key:0",
            "zdiffstore key:0 2 key:0 key:0",
            "zintercard 2 key:0 key:0",
            "zrangestore key:0 key:0 0 -1",
            "zmpop 2 key:0 key:0 min count 9",
            "bzmpop 1 2 key:0 key:0 max",
            "bzpopmin key:0 key:0 1",
        ],
    ),
    (
        "geo",
        &[
            "geosearchstore key:0 key:0 frommember a byradius 999 km",
            "georadius key:0 1 1 999 km store key:0",
            "georadiusbymember key:0 a 999 km store key:0",
        ],
    ),
    ("hyperloglog", &["pfcount key:0 key:0", "pfmerge key:0 key:0 key:0"]),
    (
        "stream",
        &[
            "xread streams key:0 key:0 0 0",
            "xreadgroup group g c streams key:0 key:0 > >",
            "xdel key:0 1-1 1-1",
        ],
    ),
];

/// What COMMAND DOCS says of an argument.
struct Argument<'a>(&'a [(Value, Value)]);

impl<'a> Argument<'a> {
    fn field(&self, name: &str) -> Option<&'a Value> {
        let found = self.0.iter().find(|(field, _)| text(field) == name);
        found.map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.field(name).map(text)
    }

    fn is_optional(&self) -> bool {
        let flags = self.field("flags").map_or(&[][..], items);
        flags.iter().any(|flag| text(flag) == "optional")
    }

    fn parts(&self) -> Vec<Argument<'a>> {
        arguments(self.field("arguments"))
    }

    /// All ways to write it.
    fn ways(&self) -> Vec<Vec<Word>> {
        let name = self.text("name").unwrap_or_default();
        let plain = |word: &str| vec![vec![Word::Fixed(word.to_owned())]];
        let ways = match self.text("type").unwrap_or_default().as_str() {
            "pure-token" => vec![Vec::new()],
            "key" => match self.field("key_spec_index") {
                Some(Value::Integer(1..)) => plain("key:1"),
                _ => plain("key:0"),
            },
            "integer" | "double" | "unix-time" => vec![vec![Word::Number]],
            "oneof" => self.parts().iter().flat_map(Argument::ways).collect(),
            "block" => all_ways(&self.parts(), &[]),
            _ => plain(sample(&name)),
        };
        let token = self.text("token").map(Word::Fixed);
        ways.into_iter().map(|way| token.iter().cloned().chain(way).collect()).collect()
    }
}

/// A text that an argument of this name takes.
fn sample(name: &str) -> &'static str {
    match name {
        "encoding" => "u8",
        "operation" => "AND",
        "group" | "groupname" => "g",
        "consumer" => "c",
        // whether an entry was idle for 1 ms the two servers may see differently
        "min-idle-time" => "0",
        "id" | "start" | "end" | "lastid" | "last-id" | "threshold" | "min" | "max" => "1",
        _ => "a",
    }
}

/// The arguments in `value`.
fn arguments(value: Option<&Value>) -> Vec<Argument<'_>> {
    value.map_or(&[][..], items).iter().map(|argument| Argument(pairs(argument))).collect()
}

/// Each argument in all its ways, with the others in their first, behind `start`; what is optional is left out but for the one.
fn all_ways(arguments: &[Argument<'_>], start: &[Word]) -> Vec<Vec<Word>> {
    let mut all = Vec::new();
    for tried in 0..arguments.len() {
        for way in arguments[tried].ways() {
            let mut words = start.to_vec();
            for (at, argument) in arguments.iter().enumerate() {
                if at == tried {
                    words.extend(way.iter().cloned());
                } else if !argument.is_optional() {
                    words.extend(argument.ways().swap_remove(0));
                }
            }
            all.push(words);
        }
    }
    all
}

/// The commands that `words` become: one number at an edge and the others 1, or all at the edge.
fn commands(words: &[Word], edge: &str) -> Vec<Vec<Vec<u8>>> {
    let count = words.iter().filter(|word| matches!(word, Word::Number)).count();
    let with = |tried: usize| {
        let mut nth = 0;
        let word = |word: &Word| match word {
            Word::Fixed(text) => text.clone().into_bytes(),
            Word::Number => {
                nth += 1;
                let is_tried = tried == count || nth - 1 == tried;
                if is_tried { edge.into() } else { b"1".to_vec() }
            }
        };
        words.iter().map(word).collect()
    };
    let tried = if count > 1 { 0..count + 1 } else { 0..count };
    tried.map(with).collect()
}

fn split(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// What COMMAND DOCS of the server says: names with the group and the arguments, subcommands, too.
fn docs(port: u16) -> Value {
    let mut link = Link::open(port);
    link.send(&[split("HELLO 3"), split("COMMAND DOCS")]);
    link.reply().expect("a greeting");
    link.reply().expect("descriptions")
}

fn read_docs<'a>(docs: &'a Value, group: &str, known: &mut BTreeMap<String, (String, Vec<Argument<'a>>)>) {
    for (name, fields) in pairs(docs) {
        let fields = Argument(pairs(fields));
        let group = fields.text("group").unwrap_or_else(|| group.to_owned());
        if let Some(subcommands) = fields.field("subcommands") {
            read_docs(subcommands, &group, known);
        }
        known.insert(text(name), (group, fields.parts()));
    }
}

/// Numbers that let redis-server build a reply of gigabytes: it is not asked.
fn is_too_much(command: &[Vec<u8>]) -> bool {
    let many = ["srandmember", "hrandfield", "zrandmember"];
    many.iter().any(|name| command[0] == name.as_bytes())
        && command.iter().any(|word| word.len() > 2 && word.starts_with(b"-"))
}

fn shown(command: &[Vec<u8>]) -> String {
    command.iter().map(|word| format!("{} ", String::from_utf8_lossy(word))).collect()
}

struct Pair {
    redis: Link,
    evenkeel: Link,
    different: Vec<String>,
    unused: BTreeSet<&'static (&'static str, &'static str, &'static str)>,
    tried: usize,
}

impl Pair {
    /// Gives both servers the same data, and the command.
    fn try_command(&mut self, setup: &[&str], command: &[Vec<u8>]) {
        let mut batch = vec![split("FLUSHALL")];
        batch.extend(setup.iter().map(|line| split(line)));
        let is_too_much = is_too_much(command);
        self.redis.send(&batch);
        batch.push(command.to_vec());
        self.evenkeel.send(&batch);
        if !is_too_much {
            self.redis.send(&batch[batch.len() - 1..]);
        }
        for _ in 1..batch.len() {
            self.redis.reply().expect("redis-server answers");
            self.evenkeel.reply().unwrap_or_else(|| panic!("no reply before {}", shown(command)));
        }
        self.tried += 1;
        let actual = self.evenkeel.reply().unwrap_or_else(|| panic!("no reply to {}", shown(command)));
        if is_too_much {
            assert!(matches!(actual, Value::Error(_)), "{}: no connection could hold it", shown(command));
            return;
        }
        let expected = self.redis.reply().unwrap_or_else(|| panic!("redis is silent: {}", shown(command)));
        if compare::compare(command, &expected, &actual) == Verdict::Different {
            let is_listed = |(name, start, _): &&(&str, &str, &str)| {
                command[0] == name.as_bytes()
                    && (start.is_empty() || command.iter().any(|word| word.starts_with(start.as_bytes())))
            };
            match LISTED.iter().find(is_listed) {
                Some(row) => drop(self.unused.remove(row)),
                None => {
                    let replies = format!("redis:    {expected:?}\n  evenkeel: {actual:?}");
                    self.different.push(format!("{}\n  {replies}", shown(command)));
                }
            }
        }
    }
}

impl Pair {
    fn open(redis: &Redis, evenkeel: &Evenkeel) -> Self {
        Self {
            redis: Link::open(redis.port),
            evenkeel: Link::open(evenkeel.port),
            different: Vec::new(),
            unused: LISTED.iter().collect(),
            tried: 0,
        }
    }

    fn end(&self) {
        println!("{} commands", self.tried);
        let count = self.different.len();
        assert!(count == 0, "{count} differences:\n{}", self.different.join("\n"));
    }
}

#[test]
fn key_that_a_command_names_twice_is_one_key_as_in_redis_7_0() {
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let mut pair = Pair::open(&redis, &evenkeel);
    for (group, lines) in TWICE {
        let (_, setup) = GROUPS.iter().find(|(other, _)| *other == group).expect("a group");
        for line in lines {
            pair.try_command(setup, &split(line));
            // What it left, whatever type that is.
            for look in ["get key:0", "lrange key:0 0 -1", "sort key:0 alpha", "zrange key:0 0 -1 withscores"]
            {
                let setup = [*setup, &[*line]].concat();
                pair.try_command(&setup, &split(look));
            }
        }
    }
    pair.end();
}

#[test]
fn every_number_of_every_command_on_data_is_answered_as_by_redis_7_0() {
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let (theirs, ours) = (docs(redis.port), docs(evenkeel.port));
    let (mut known, mut here) = (BTreeMap::new(), BTreeMap::new());
    read_docs(&theirs, "", &mut known);
    read_docs(&ours, "", &mut here);
    let mut pair = Pair::open(&redis, &evenkeel);
    for (name, (group, arguments)) in here.iter().filter(|(name, _)| known.contains_key(*name)) {
        let is_generic = GENERIC.contains(&name.as_str());
        let group = if is_generic { "string" } else { group.as_str() };
        let Some((_, setup)) = GROUPS.iter().find(|(other, _)| *other == group) else { continue };
        let start: Vec<Word> = name.split('|').map(|word| Word::Fixed(word.to_owned())).collect();
        for words in all_ways(arguments, &start) {
            for command in EDGES.iter().flat_map(|edge| commands(&words, edge)) {
                pair.try_command(setup, &command);
            }
        }
    }
    pair.end();
    // What chance or a clock decides may be the same for once.
    pair.unused.retain(|(_, start, why)| !start.is_empty() && !why.contains("clocks"));
    assert!(pair.unused.is_empty(), "listed, and no difference: {:?}", pair.unused);
    assert!(pair.tried > 3_000, "{} commands were tried", pair.tried);
}
