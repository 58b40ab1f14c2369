//! A topology between keys of a server, while both are killed: nothing is lost, and what has a key of its own is there once.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use resp::Value;

use crate::common::{self, Server, call, evenkeel, eventually, hash, receive};

const ENTRIES: u64 = 10_000;
const WORDS: u64 = 97;

const DEFINITION: &str = "\
name: orders
config: {topology.max.spout.pending: 20, evenkeel.backoff_ms: [10, 100]}
spouts:
- id: source
  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, orders, --group, counters, --from, start], [id, word]]
bolts:
- id: count
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, count, --by, word, --prefix, \"orders:\"], [word, count]]
- id: latest
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, latest, \"{word}\", \"{count}\"], [nothing]]
- id: seen
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, seen, \"{id}\", \"{word}\"], [nothing]]
streams:
- {from: source, to: count, grouping: {type: FIELDS, args: [word]}}
- {from: count, to: latest, grouping: {type: FIELDS, args: [word]}}
- {from: source, to: seen, grouping: {type: SHUFFLE}}
";

/// A server that can be killed, on one port.
struct Place {
    dir: tempfile::TempDir,
    server: Option<Server>,
    port: u16,
}

impl Place {
    fn new(definition: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(&dir.path().join("data"), &[]);
        let port = server.port;
        std::fs::write(dir.path().join("x.yaml"), definition).expect("it is written");
        Self { dir, server: Some(server), port }
    }

    /// Kills the server, and starts it again.
    fn crash(&mut self) {
        let server = self.server.take().expect("it runs");
        server.signal(libc::SIGKILL);
        server.end();
        let port = self.port.to_string();
        self.server = Some(Server::start(&self.dir.path().join("data"), &["--port", &port]));
    }

    fn run(&self) -> Child {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log()).expect("it is made");
        let mut command = evenkeel();
        command.args(["topology", "run", "x.yaml", "--local"]).current_dir(self.dir.path());
        command.env("EVENKEEL_URL", format!("redis://127.0.0.1:{}", self.port));
        command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts")
    }

    fn log(&self) -> std::path::PathBuf {
        Path::new(self.dir.path()).join("log")
    }

    fn number(&self, command: &[&str]) -> u64 {
        match call(self.port, command) {
            Ok(Value::Integer(number)) => number as u64,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    fn wait_for(&self, seen: u64) {
        self.wait_for_number(&["HLEN", "seen"], seen);
    }

    fn wait_for_number(&self, command: &[&str], seen: u64) {
        let log = || std::fs::read_to_string(self.log()).unwrap_or_default();
        let is_seen = || self.number(command) >= seen;
        eventually(&format!("{seen} entries are seen; the log: {}", log()), is_seen);
    }
}

fn word(number: u64) -> String {
    format!("word{}", number % WORDS)
}

/// Fills the stream; entry `n` has the id `n-1`.
fn fill(port: u16) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it connects");
    let mut requests = Vec::new();
    for number in 1..=ENTRIES {
        let (id, word) = (format!("{number}-1"), word(number));
        resp::encode_command(&mut requests, &["XADD", "orders", &id, "word", &word]);
    }
    let mut writer = stream.try_clone().expect("a handle");
    let write = std::thread::spawn(move || writer.write_all(&requests));
    for _ in 1..=ENTRIES {
        assert!(matches!(receive(&mut stream), Ok(Value::Bulk(_))));
    }
    write.join().expect("it ends").expect("it is sent");
}

#[test]
fn no_entry_is_lost_when_server_and_runner_are_killed() {
    let mut place = Place::new(DEFINITION);
    fill(place.port);
    let mut run = place.run();
    place.wait_for(ENTRIES / 10);
    place.crash();
    assert!(place.number(&["HLEN", "seen"]) < ENTRIES, "it was killed in the middle");
    place.wait_for(ENTRIES / 2);
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    assert!(place.number(&["HLEN", "seen"]) < ENTRIES, "it was killed in the middle");
    let mut run = place.run();
    place.wait_for(ENTRIES);
    let pending = || match call(place.port, &["XPENDING", "orders", "counters"]) {
        Ok(Value::Array(summary)) => summary[0].clone(),
        other => panic!("{other:?}"),
    };
    eventually("all entries are acknowledged", || pending() == Value::Integer(0));
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    let expected: BTreeMap<String, String> =
        (1..=ENTRIES).map(|number| (format!("{number}-1"), word(number))).collect();
    assert_eq!(hash(place.port, "seen"), expected, "each entry once, by its id");

    let (counts, latest) = (hash(place.port, "orders:count"), hash(place.port, "latest"));
    let mut extra = 0;
    for rest in 0..WORDS {
        let number = |hash: &BTreeMap<String, String>| hash[&word(rest)].parse::<u64>().expect("a number");
        let least = (1..=ENTRIES).filter(|number| number % WORDS == rest).count() as u64;
        assert!(number(&counts) >= least, "{}: {} of {least}", word(rest), number(&counts));
        assert!(number(&latest) >= least && number(&latest) <= number(&counts));
        extra += number(&counts) - least;
    }
    // What was out at each of the two ends, and a few attempts of it while the server was away.
    assert!(extra <= 500, "{extra} counted twice");
}

const EXACTLY: &str = "\
name: exactly
config: {evenkeel.guarantee: exactly-once, topology.max.spout.pending: 20, topology.message.timeout.secs: 5}
spouts:
- id: source
  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, orders], [id, word]]
  parallelism: 2
bolts:
- id: count
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, count, --by, word, --prefix, \"orders:\"], [word, count]]
  parallelism: 3
- id: latest
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, latest, \"{word}\", \"{count}\"], [nothing]]
- id: seen
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, stream-sink, seen], [nothing]]
  parallelism: 2
streams:
- {from: source, to: count, grouping: {type: FIELDS, args: [word]}}
- {from: count, to: latest, grouping: {type: FIELDS, args: [word]}}
- {from: source, to: seen, grouping: {type: SHUFFLE}}
";

#[test]
fn counts_equal_with_exactly_once_when_server_and_runner_are_killed() {
    let mut place = Place::new(EXACTLY);
    fill(place.port);
    let mut run = place.run();
    for part in 1..=6 {
        place.wait_for_number(&["XLEN", "seen"], part * ENTRIES / 8);
        if part % 2 == 0 {
            place.crash();
        } else {
            run.kill().expect("it runs");
            run.wait().expect("it ends");
            run = place.run();
        }
        assert!(place.number(&["XLEN", "seen"]) < ENTRIES, "it was killed in the middle");
    }
    place.wait_for_number(&["XLEN", "seen"], ENTRIES);
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    assert_eq!(place.number(&["XLEN", "seen"]), ENTRIES, "each entry once");
    let (counts, latest) = (hash(place.port, "orders:count"), hash(place.port, "latest"));
    for rest in 0..WORDS {
        let due = (1..=ENTRIES).filter(|number| number % WORDS == rest).count().to_string();
        let word = word(rest);
        assert_eq!((&counts[&word], &latest[&word]), (&due, &due), "{word}");
    }
}

const DEADLY: &str = "\
name: deadly
config: {evenkeel.guarantee: exactly-once, topology.max.spout.pending: 50, evenkeel.attempts_max: 2}
spouts:
- id: source
  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, orders], [id, word]]
  parallelism: 2
bolts:
- id: frail
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[python3, frail.py], [word]]
- id: seen
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, stream-sink, seen], [nothing]]
streams:
- {from: source, to: frail, grouping: {type: SHUFFLE}}
- {from: frail, to: seen, grouping: {type: SHUFFLE}}
";

/// How programs begin, up to what they do with a tuple.
const PROGRAM: &str = "\
import json, os, sys, time

def read():
    lines = []
    while (line := sys.stdin.readline()) != 'end\\n':
        if not line:
            sys.exit(0)
        lines.append(line)
    return json.loads(''.join(lines))

def say(what):
    print(json.dumps(what) + '\\nend', flush=True)

def finish(message):
    say({'command': 'emit', 'anchors': [message['id']], 'tuple': [message['tuple'][1]], 'need_task_ids': False})
    say({'command': 'ack', 'id': message['id']})

kept, mark = [], os.path.join(os.path.dirname(os.path.abspath(__file__)), 'has_died')
open(os.path.join(read()['pidDir'], str(os.getpid())), 'w').close()
say({'pid': os.getpid()})
while True:
    message = read()
    if isinstance(message, list):
        continue
    if message['stream'] == '__heartbeat':
        say({'command': 'sync'})
        continue
";

/// Takes a while for each tuple, so that it has others, and dies of one.
const FRAIL: &str = "
    time.sleep(0.002)
    if message['tuple'][1] == 'word7':
        os._exit(1)
    finish(message)
";

/// Answers five at a time, and dies once, when it has two.
const LATE: &str = "
    kept.append(message)
    if len(kept) == 2 and not os.path.exists(mark):
        open(mark, 'w').close()
        os._exit(1)
    if len(kept) == 5:
        for message in reversed(kept):
            finish(message)
        kept = []
";

/// A place with 20 entries that the program `frail.py` gets.
fn place_with(definition: &str, program: &str) -> Place {
    let place = Place::new(definition);
    std::fs::write(place.dir.path().join("frail.py"), [PROGRAM, program].concat()).expect("it is written");
    for number in 1..=20 {
        let words = ["XADD", "orders", &format!("{number}-1"), "word", &word(number)];
        assert!(matches!(call(place.port, &words), Ok(Value::Bulk(_))));
    }
    place
}

/// The letters in the stream `key`, shown.
fn letters(place: &Place, key: &str) -> Vec<String> {
    match call(place.port, &["XRANGE", key, "-", "+"]) {
        Ok(Value::Array(all)) => all.iter().map(|letter| format!("{letter:?}")).collect(),
        other => panic!("{other:?}"),
    }
}

/// Entries are tried once: none may fail but for its own sake.
const ONCE: &str = "\
name: once
config: {topology.max.spout.pending: 50, evenkeel.attempts_max: 1, topology.message.timeout.secs: 300}
spouts:
- id: source
  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, orders, --dead-letter, dead], [id, word]]
bolts:
- id: frail
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[python3, frail.py], [word]]
- id: seen
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, seen, \"{word}\", it], [nothing]]
streams:
- {from: source, to: frail, grouping: {type: SHUFFLE}}
- {from: frail, to: seen, grouping: {type: SHUFFLE}}
";

/// All that a program had when it died had failed with it.
#[test]
fn only_the_tuple_of_which_a_program_dies_has_failed_of_all_that_it_has() {
    let place = place_with(ONCE, FRAIL);
    let mut run = place.run();
    place.wait_for(19);
    place.wait_for_number(&["XLEN", "dead"], 1);
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    let letters = letters(&place, "dead");
    assert!(
        letters.len() == 1 && letters[0].contains(&format!("{:?}", common::bulk("word7"))),
        "{letters:?}"
    );
    assert_eq!(place.number(&["HLEN", "seen"]), 19);
}

#[test]
fn program_that_answers_several_tuples_together_goes_on_after_it_has_died() {
    let place = place_with(ONCE, LATE);
    let mut run = place.run();
    place.wait_for(20);
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    assert!(place.dir.path().join("has_died").exists());
    assert_eq!(letters(&place, "dead"), [""; 0]);
}

/// Any tuple that the program had was given up for the one of which it died.
#[test]
fn tuple_of_which_a_program_dies_is_given_up_and_no_other_that_it_has() {
    let place = place_with(DEADLY, FRAIL);
    let mut run = place.run();
    place.wait_for_number(&["XLEN", "seen"], 19);
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    assert_eq!(place.number(&["XLEN", "seen"]), 19, "each of the others once");
    let letters = letters(&place, "topology:deadly:dead-letters");
    assert!(
        letters.len() == 1 && letters[0].contains(&format!("{:?}", common::bulk("word7"))),
        "{letters:?}"
    );
}
