//! What operators do with a topology that runs on a server: compare a definition, look at tuples.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use resp::Value;
use serde_json::Value as Json;

use crate::common::{self, Server, evenkeel, eventually, finished};

/// A server that runs topologies, and a folder for definitions.
struct Place {
    dir: tempfile::TempDir,
    server: Server,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(&dir.path().join("data"), &["--topologies-dir", "/"]);
        Self { dir, server }
    }

    /// Kills the server, and starts it again.
    fn crash(self, settings: &[&str]) -> Self {
        let Self { dir, server } = self;
        let port = server.port.to_string();
        server.signal(libc::SIGKILL);
        server.end();
        let all = [&["--topologies-dir", "/", "--port", &port][..], settings].concat();
        let server = Server::start(&dir.path().join("data"), &all);
        Self { dir, server }
    }

    /// The values of these keys; how many there are of each.
    fn values(&self, pattern: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let keys = texts(&self.server.call(&["KEYS", pattern]));
        if keys.is_empty() {
            return counts;
        }
        let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        texts(&self.server.call(&words)).into_iter().for_each(|value| *counts.entry(value).or_default() += 1);
        counts
    }

    /// The names of topologies.
    fn names(&self) -> Vec<String> {
        let list = self.server.call(&["TOPOLOGY", "LIST"]);
        let Value::Array(all) = &list else { panic!("{list:?}") };
        all.iter().map(|it| texts(it)[1].clone()).collect()
    }

    fn file(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `evenkeel topology` with the file `x.yaml`, which has this text.
    fn topology(&self, text: &str, words: &[&str]) -> (i32, String) {
        std::fs::write(self.file().join("x.yaml"), text).expect("it is written");
        let url = format!("redis://127.0.0.1:{}", self.server.port);
        let mut command = evenkeel();
        command.arg("topology").args(words).args(["--url", &url]).current_dir(self.file());
        finished(&mut command)
    }
}

/// Numbers, as many tasks as asked for, which are counted and kept.
fn numbers(source: &str, tasks: u32, prefix: &str) -> String {
    let class = "org.apache.storm.flux.wrappers";
    format!(
        "\
name: numbers
config: {{topology.workers: {tasks}}}
spouts:
- id: source
  className: {class}.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, {source}], [number, text]]
  parallelism: {tasks}
bolts:
- id: count
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, count, --by, text, --prefix, \"{prefix}\"], [text, count]]
- id: sink
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, counts, \"{{text}}\", \"{{count}}\"], [nothing]]
streams:
- {{from: source, to: count, grouping: {{type: FIELDS, args: [text]}}}}
- {{from: count, to: sink, grouping: {{type: SHUFFLE}}}}
"
    )
}

const SLOW: &str = "generator, --rate, \"500\", --distinct, \"7\"";

#[test]
fn what_a_definition_changes_is_said_before_it_takes_the_place_of_another() {
    let place = Place::new();
    let topology = |prefix: &str, words: &[&str]| place.topology(&numbers(SLOW, 1, prefix), words);
    assert!(topology("a:", &["diff", "x.yaml"]).1.contains("there is no topology"));
    assert_eq!(topology("a:", &["run", "x.yaml"]).0, 0);
    let (status, said) = topology("b:", &["diff", "x.yaml"]);
    assert_eq!(status, 0, "{said}");
    for wanted in ["1 changed, 2 kept", "the key `a:count`", "the key `b:count`", "left", "new"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let (status, said) = topology("b:", &["run", "x.yaml"]);
    assert!(status == 1 && said.contains("--replace puts this definition in its place"), "{said}");
    assert!(said.contains("the key `a:count`"), "{said}");
    let (status, said) = topology("a:", &["diff", "x.yaml", "--json"]);
    assert!(status == 0 && !said.contains("changed"), "it was not changed: {said}");
    assert_eq!(topology("b:", &["run", "x.yaml", "--replace"]).0, 0);
    let (status, said) = topology("b:", &["diff", "x.yaml"]);
    assert!(status == 0 && said.contains("0 changed, 3 kept"), "{said}");
}

/// The lines that a tap has printed.
fn lines(said: &str) -> Vec<Json> {
    said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn tuples_of_all_workers_are_seen_while_the_topology_runs() {
    let place = Place::new();
    let text = numbers(SLOW, 2, "a:");
    let (status, said) = place.topology(&text, &["run", "x.yaml"]);
    assert_eq!(status, 0, "{said}");
    let mut tasks = BTreeSet::new();
    eventually("both tasks are seen", || {
        let (status, said) = place.topology(&text, &["tap", "numbers", "source", "--count", "50"]);
        assert_eq!(status, 0, "{said}");
        let lines = lines(&said);
        assert_eq!(lines.len(), 50, "{said}");
        for line in &lines {
            assert_eq!((&line["component"], &line["stream"]), (&"source".into(), &"default".into()));
            assert!(line["fields"]["number"].is_u64() && line["fields"]["text"].is_string(), "{line}");
        }
        tasks.extend(lines.iter().map(|line| line["task"].as_u64()));
        tasks.len() == 2
    });
    let tap = |words: &[&str]| place.topology(&text, &[&["tap", "numbers"], words].concat());
    let (status, said) = tap(&["count", "--sample", "1/10", "--stream", "default", "--count", "5"]);
    let seen = lines(&said);
    assert!(status == 0 && seen.len() == 5 && seen[0]["fields"]["count"].is_number(), "{said}");
    assert!(tap(&["sorce"]).1.contains("there is no component `sorce` (did you mean `source`?)"));
    assert!(tap(&["count", "--stream", "x"]).1.contains("`count` declares no stream `x`"));
    assert!(tap(&["sink", "--for", "1s"]).1.is_empty(), "it emits nothing");
}

#[test]
fn fast_topology_is_not_slowed_and_skipped_tuples_are_counted() {
    let place = Place::new();
    let text = numbers("generator, --distinct, \"7\"", 1, "a:");
    assert_eq!(place.topology(&text, &["run", "x.yaml"]).0, 0);
    let (mut cursor, mut seen, mut skipped) = (0, 0, 0);
    eventually("more came than was seen", || {
        let words = ["TOPOLOGY", "TAP", "numbers", "source", "COUNT", "10", "CURSOR", &cursor.to_string()];
        let Value::Array(reply) = place.server.call(&words) else { panic!("no answer") };
        let [_, Value::Integer(at), _, Value::Integer(more), _, Value::Array(tuples)] = &reply[..] else {
            panic!("{reply:?}")
        };
        (cursor, seen, skipped) = (*at, seen + tuples.len(), skipped + more);
        seen > 1_000 && skipped > 0
    });
}

#[test]
fn number_of_taps_is_bounded_and_a_cursor_that_is_none_is_refused() {
    let place = Place::new();
    assert_eq!(place.topology(&numbers(SLOW, 1, "a:"), &["run", "x.yaml"]).0, 0);
    let tap = |more: &[&str]| place.server.call(&[&["TOPOLOGY", "TAP", "numbers", "source"], more].concat());
    let error = |reply: &Value| match reply {
        Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    assert!(error(&tap(&["CURSOR", "77"])).is_some_and(|it| it.contains("the tap has ended")));
    let refused: Vec<String> = (0..1_000).filter_map(|_| error(&tap(&[]))).collect();
    assert_eq!(refused.len(), 1_000 - 16);
    assert!(refused[0].contains("there are 16 taps"), "{}", refused[0]);
    for wrong in [&["SAMPLE", "0"][..], &["COUNT", "1001"], &["CURSOR"], &["WHAT", "1"]] {
        assert!(error(&tap(wrong)).is_some(), "{wrong:?}");
    }
}

/// The texts of an array.
fn texts(reply: &Value) -> Vec<String> {
    let Value::Array(items) = reply else { panic!("{reply:?}") };
    let text = |item: &Value| match item {
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    };
    items.iter().map(text).collect()
}

/// Entries that are marked in a key each, and counted.
fn marks(guarantee: &str, mark: &str) -> String {
    let class = "org.apache.storm.flux.wrappers";
    format!(
        "\
name: marks
config: {{evenkeel.guarantee: {guarantee}, topology.message.timeout.secs: 5}}
spouts:
- id: source
  className: {class}.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, orders, --dead-letter, dead], [id, word]]
bolts:
- id: count
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, count, --by, word, --prefix, \"{mark}:\"], [word, count]]
- id: mark
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, SET, \"mark:{{id}}\", {mark}], [nothing]]
streams:
- {{from: source, to: count, grouping: {{type: FIELDS, args: [word]}}}}
- {{from: source, to: mark, grouping: {{type: SHUFFLE}}}}
"
    )
}

const ENTRIES: usize = 300;

/// A server with entries that are all marked as old, and that a trial has marked as new from entry 101 on.
fn tried(guarantee: &str) -> Place {
    let place = Place::new();
    place.add_entries(1..=ENTRIES);
    let (status, said) = place.topology(&marks(guarantee, "old"), &["run", "x.yaml"]);
    assert_eq!(status, 0, "{said}");
    eventually("all are old", || place.values("mark:*").get("old") == Some(&ENTRIES));
    let (status, said) = place.topology(&marks(guarantee, "new"), &["try", "x.yaml", "--from", "101-1"]);
    assert_eq!(status, 0, "{said}");
    eventually("the others are new under the prefix", || {
        place.values("shadow:mark:*").get("new") == Some(&(ENTRIES - 100))
    });
    eventually("all are acknowledged", || {
        let groups = place.server.call(&["XINFO", "GROUPS", "orders"]);
        let Value::Array(groups) = &groups else { panic!("{groups:?}") };
        groups.iter().all(|group| matches!(group, Value::Array(fields) if fields[5] == Value::Integer(0)))
    });
    assert_eq!(
        place.values("mark:*"),
        BTreeMap::from([("old".to_owned(), ENTRIES)]),
        "the live ones are as they were"
    );
    assert_eq!(place.names(), ["marks", "marks-try"]);
    place
}

/// What holds after a switch.
fn assert_switched(place: &Place) {
    let marks = BTreeMap::from([("old".to_owned(), 100), ("new".to_owned(), ENTRIES - 100)]);
    assert_eq!(place.values("mark:*"), marks);
    assert_eq!(texts(&place.server.call(&["KEYS", "shadow:*"])), [""; 0]);
    assert_eq!(place.names(), ["marks"]);
    place.server.call(&["XADD", "orders", &format!("{}-1", ENTRIES + 1), "word", "tea"]);
    let counted = || place.server.call(&["HGET", "new:count", "tea"]);
    let due = common::bulk(&(ENTRIES - 99).to_string());
    eventually("another one is counted", || counted() == due);
    assert_eq!(place.values("mark:*").get("new"), Some(&(ENTRIES - 99)));
    assert_eq!(counted(), due, "each entry once");
}

#[test]
fn definition_is_tried_beside_the_live_one_and_takes_its_place() {
    let place = tried("at-least-once");
    let (status, said) = place.topology("", &["switch", "marks"]);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("201 keys renamed"), "{said}");
    assert_switched(&place);
    let groups = place.server.call(&["XINFO", "GROUPS", "orders"]);
    assert!(matches!(&groups, Value::Array(groups) if groups.len() == 1), "{groups:?}");
}

#[test]
fn exactly_once_takes_the_position_of_its_trial() {
    let place = tried("exactly-once");
    let (status, said) = place.topology("", &["switch", "marks"]);
    assert_eq!(status, 0, "{said}");
    assert_switched(&place);
}

#[test]
fn nothing_is_left_of_a_trial_that_is_stopped() {
    for guarantee in ["at-least-once", "exactly-once"] {
        let place = tried(guarantee);
        let (status, said) = place.topology("", &["try", "--stop", "marks"]);
        assert!(status == 0 && said.contains("removed"), "{said}");
        assert_eq!(place.names(), ["marks"]);
        for pattern in ["shadow:*", "topology:marks-try:*"] {
            assert_eq!(texts(&place.server.call(&["KEYS", pattern])), [""; 0]);
        }
        assert_eq!(place.values("mark:*").get("old"), Some(&ENTRIES));
        let (status, said) = place.topology("", &["switch", "marks"]);
        assert!(status != 0 && said.contains("there is no trial of 'marks'"), "{said}");
    }
}

#[test]
fn server_that_is_killed_during_a_switch_has_the_old_state_or_the_new_one() {
    let mut place = tried("at-least-once");
    let (mut requests, mut had_old) = (1, 0);
    loop {
        place = place.crash_while("SWITCH", requests);
        let shadow = place.values("shadow:mark:*");
        if shadow.is_empty() {
            break;
        }
        assert_eq!(shadow, BTreeMap::from([("new".to_owned(), ENTRIES - 100)]), "all of the trial's");
        assert_eq!(
            place.values("mark:*"),
            BTreeMap::from([("old".to_owned(), ENTRIES)]),
            "all of the live one's"
        );
        assert_eq!(place.names(), ["marks", "marks-try"]);
        (requests, had_old) = (requests * 4, had_old + 1);
        assert!(requests < 10_000_000, "it never switches");
    }
    assert!(had_old > 0, "it was killed before the switch, too");
    assert_switched(&place);
}

/// What an exactly-once topology and its trial keep, read at one time.
struct Kept {
    /// The last entry that each has read.
    live: Option<usize>,
    trial: Option<usize>,
    /// Entries that the live one has counted, the trial under the prefix, and without it.
    old: usize,
    shadow: usize,
    new: usize,
}

impl Place {
    fn kept(&self, old: &str, new: &str) -> Kept {
        let script = "local function position(of) return redis.call('HGET', 'topology:' .. of .. ':epochs', 'position:source:0/1') end
            local function count(of) return redis.call('HGET', of .. ':count', 'tea') end
            return {position('marks'), position('marks-try'), count(ARGV[1]), count('shadow:' .. ARGV[2]), count(ARGV[2])}";
        let Value::Array(reply) = self.server.call(&["EVAL", script, "0", old, new]) else {
            panic!("no answer")
        };
        let number = |value: &Value| match value {
            Value::Bulk(text) => Some(String::from_utf8_lossy(text).parse::<u128>().expect("a whole number")),
            _ => None,
        };
        // The number of an entry is the time of its id.
        let position = |value: &Value| number(value).map(|it| (it >> 64) as usize);
        let count = |value: &Value| number(value).unwrap_or(0) as usize;
        Kept {
            live: position(&reply[0]),
            trial: position(&reply[1]),
            old: count(&reply[2]),
            shadow: count(&reply[3]),
            new: count(&reply[4]),
        }
    }

    fn add_entries(&self, numbers: std::ops::RangeInclusive<usize>) {
        for number in numbers {
            self.server.call(&["XADD", "orders", &format!("{number}-1"), "word", "tea"]);
        }
    }

    /// Has the trial of `marks` end by SWITCH or UNTRY, waits for so many other requests, and kills the server. Nobody waits for the answer.
    fn crash_while(self, word: &str, requests: usize) -> Self {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.server.port)).expect("it connects");
        let mut command = Vec::new();
        resp::encode_command(&mut command, &["TOPOLOGY", word, "marks", "WAIT", "5"]);
        std::io::Write::write_all(&mut stream, &command).expect("it is sent");
        for _ in 0..requests {
            self.server.call(&["PING"]);
        }
        self.crash(&[])
    }
}

/// The time of the switch is looked for by halves, so that the server is killed ever closer to it.
#[test]
fn exactly_once_keeps_keys_and_positions_together_when_the_server_is_killed_during_a_switch() {
    const SKIPPED: usize = 100;
    let mut place = Place::new();
    let mut entries = 200;
    place.add_entries(1..=entries);
    assert_eq!(place.topology(&marks("exactly-once", "mark0"), &["run", "x.yaml"]).0, 0);
    let (mut round, mut skipped) = (0, 0);
    let (mut before, mut after, mut requests) = (0, None, 1);
    let mut ends = [0, 0];
    while ends.iter().sum::<usize>() < 16 || ends.contains(&0) {
        let (old, new) = (format!("mark{round}"), format!("mark{}", round + 1));
        if place.names() == ["marks"] {
            let (status, said) =
                place.topology(&marks("exactly-once", &new), &["try", "x.yaml", "--from", "101-1"]);
            assert_eq!(status, 0, "{said}");
        }
        eventually("the trial works", || place.kept(&old, &new).trial.is_some());
        // Some of them are under way.
        place.add_entries(entries + 1..=entries + 30);
        entries += 30;
        place = place.crash_while("SWITCH", requests);
        let is_switched = place.names() == ["marks"];
        let kept = || {
            let kept = place.kept(&old, &new);
            let live = kept.live.expect("it has a position");
            if is_switched {
                assert_eq!((kept.trial, kept.shadow), (None, 0));
                assert_eq!(kept.new, live - SKIPPED, "the count is that of the position");
            } else {
                let trial = kept.trial.expect("it has a position");
                assert_eq!(kept.new, 0);
                assert_eq!((kept.old, kept.shadow), (live - skipped, trial - SKIPPED), "as far as it was");
            }
            kept
        };
        kept();
        eventually("those that run are at the end", || {
            let kept = kept();
            kept.live == Some(entries) && kept.trial.is_none_or(|it| it == entries)
        });
        ends[usize::from(is_switched)] += 1;
        if is_switched {
            assert_eq!(texts(&place.server.call(&["KEYS", "shadow:*"])), [""; 0]);
            let marked = BTreeMap::from([(new, entries - SKIPPED), ("mark0".to_owned(), SKIPPED)]);
            assert_eq!(place.values("mark:*"), marked);
            (round, skipped, after) = (round + 1, SKIPPED, Some(requests));
        } else {
            before = requests;
        }
        requests = after.map_or(requests * 2, |after| (before + after).div_ceil(2));
    }
    println!("before the switch and after it: {ends:?}, around {requests} requests");
}

#[test]
fn topology_that_is_bound_to_keys_is_tried_and_switched_within_them() {
    for guarantee in ["at-least-once", "exactly-once"] {
        let bound = |mark: &str| {
            let keys = format!("evenkeel.keys: [orders, dead, \"mark:*\", \"{mark}:count\"]");
            marks(guarantee, mark).replace("config: {", &format!("config: {{{keys}, "))
        };
        let place = Place::new();
        place.add_entries(1..=ENTRIES);
        assert_eq!(place.topology(&bound("old"), &["run", "x.yaml"]).0, 0);
        eventually("all are old", || place.values("mark:*").get("old") == Some(&ENTRIES));
        let (status, said) = place.topology(&bound("new"), &["try", "x.yaml", "--from", "101-1"]);
        assert_eq!(status, 0, "{said}");
        eventually("the others are new under the prefix", || {
            place.values("shadow:mark:*").get("new") == Some(&(ENTRIES - 100))
        });
        // Somebody else's, which the topology must not reach without its prefix.
        place.server.call(&["SET", "secret", "safe"]);
        place.server.call(&["SET", "shadow:secret", "stolen"]);
        let (status, said) = place.topology("", &["switch", "marks"]);
        assert!(status != 0 && said.contains("`shadow:secret` would become `secret`"), "{said}");
        assert!(said.contains("evenkeel.keys"), "{said}");
        assert_eq!(place.server.call(&["GET", "secret"]), common::bulk("safe"));
        assert_eq!(place.names(), ["marks", "marks-try"]);
        place.server.call(&["DEL", "shadow:secret"]);
        let (status, said) = place.topology("", &["switch", "marks"]);
        assert_eq!(status, 0, "{said}");
        assert_switched(&place);
    }
}

#[test]
fn group_that_nobody_reads_after_a_switch_is_removed_unless_it_has_consumers_of_others() {
    for (other, left) in [(None, 0), (Some("theirs"), 1)] {
        let place = Place::new();
        place.add_entries(1..=ENTRIES);
        assert_eq!(place.topology(&marks("at-least-once", "old"), &["run", "x.yaml"]).0, 0);
        eventually("all are old", || place.values("mark:*").get("old") == Some(&ENTRIES));
        if let Some(name) = other {
            place.server.call(&["XGROUP", "CREATECONSUMER", "orders", "marks", name]);
        }
        let (status, said) =
            place.topology(&marks("exactly-once", "new"), &["try", "x.yaml", "--from", "101-1"]);
        assert_eq!(status, 0, "{said}");
        eventually("the others are new under the prefix", || {
            place.values("shadow:mark:*").get("new") == Some(&(ENTRIES - 100))
        });
        let (status, said) = place.topology("", &["switch", "marks"]);
        assert_eq!(status, 0, "{said}");
        assert_switched(&place);
        let groups = place.server.call(&["XINFO", "GROUPS", "orders"]);
        assert!(matches!(&groups, Value::Array(groups) if groups.len() == left), "{groups:?}");
    }
}

#[test]
fn removal_of_a_trial_that_is_cut_by_a_crash_goes_on_at_the_next_start() {
    let mut place = tried("at-least-once");
    // More than are removed at a time.
    let of_trial = |number: usize| format!("shadow:of-trial:{number}");
    let words: Vec<String> = (0..20_000).flat_map(|number| [of_trial(number), "x".to_owned()]).collect();
    let words: Vec<&str> = std::iter::once("MSET").chain(words.iter().map(String::as_str)).collect();
    place.server.call(&words);
    let names: Vec<String> = (0..20_000).map(of_trial).collect();
    let exist: Vec<&str> = std::iter::once("EXISTS").chain(names.iter().map(String::as_str)).collect();
    let left = |place: &Place| place.server.call(&exist);
    let (mut requests, mut had_trial) = (1, 0);
    loop {
        place = place.crash_while("UNTRY", requests);
        if place.names() == ["marks"] {
            break;
        }
        assert_eq!(left(&place), Value::Integer(20_000), "a trial that runs has all its keys");
        (requests, had_trial) = (requests * 5 / 4 + 1, had_trial + 1);
        assert!(requests < 1_000_000, "it never ends");
    }
    assert!(had_trial > 0, "it was killed before, too");
    eventually("all is removed", || left(&place) == Value::Integer(0));
    eventually("the rest is removed, too", || {
        let groups = place.server.call(&["XINFO", "GROUPS", "orders"]);
        matches!(&groups, Value::Array(groups) if groups.len() == 1)
    });
    eventually("another one can be tried", || {
        place.topology(&marks("at-least-once", "new"), &["try", "x.yaml"]).0 == 0
    });
}

#[test]
fn switch_that_is_larger_than_a_transaction_is_refused_and_both_run_on() {
    let place = tried("at-least-once").crash(&["--transaction-max", "4KiB", "--value-max", "4KiB"]);
    let refused = place.server.call(&["TOPOLOGY", "SWITCH", "marks"]);
    let Value::Error(text) = &refused else { panic!("{refused:?}") };
    let text = String::from_utf8_lossy(text);
    assert!(text.contains("the trial has 201 keys of "), "{text}");
    assert!(text.contains("more than transaction.max (4096 B): raise it"), "{text}");
    assert_eq!(place.names(), ["marks", "marks-try"]);
    place.server.call(&["XADD", "orders", &format!("{}-1", ENTRIES + 1), "word", "tea"]);
    let is_marked = |key: &str, value: &str| place.server.call(&["GET", key]) == common::bulk(value);
    eventually("the live one runs on", || is_marked("mark:301-1", "old"));
    eventually("the trial runs on", || is_marked("shadow:mark:301-1", "new"));
}

#[test]
fn trial_is_refused_where_it_could_touch_what_is_live() {
    let place = Place::new();
    let live = marks("at-least-once", "old");
    let (status, said) = place.topology(&live, &["try", "x.yaml"]);
    assert!(status != 0 && said.contains("there is no topology 'marks'"), "{said}");
    assert_eq!(place.topology(&live, &["run", "x.yaml"]).0, 0);
    place.server.call(&["SET", "shadow:other", "1"]);
    let (status, said) = place.topology(&live, &["try", "x.yaml"]);
    assert!(status != 0 && said.contains("`shadow:other` begins with `shadow:`"), "{said}");
    let raw = place.server.call(&["TOPOLOGY", "TRY", "marks", &live, "PREFIX", "shadow:"]);
    let Value::Error(text) = &raw else { panic!("{raw:?}") };
    assert!(String::from_utf8_lossy(text).contains("`shadow:other` begins with `shadow:`"), "{raw:?}");
    assert_eq!(place.names(), ["marks"]);
    let program =
        live.replace("[evenkeel, component, count, --by, word, --prefix, \"old:\"]", "[sh, bin/true]");
    let (status, said) = place.topology(&program, &["try", "x.yaml", "--prefix", "t:"]);
    assert!(status != 0 && said.contains("component `count` is a program"), "{said}");
    let (status, said) = place.topology(&live, &["try", "x.yaml", "--prefix", "{t}"]);
    assert!(status != 0 && said.contains("PREFIX {t}: 1 to 64 letters"), "{said}");
    let others = live.replace("name: marks", "name: others");
    assert_eq!(place.topology(&others, &["run", "x.yaml"]).0, 0);
    assert_eq!(place.topology(&live, &["try", "x.yaml", "--prefix", "t:"]).0, 0);
    for prefix in ["t", "t:", "t:u"] {
        let (status, said) = place.topology(&others, &["try", "x.yaml", "--prefix", prefix]);
        assert!(status != 0 && said.contains("'marks' is tried under the prefix `t:`"), "{said}");
    }
    assert_eq!(place.topology(&others, &["try", "x.yaml", "--prefix", "u:"]).0, 0);
}
