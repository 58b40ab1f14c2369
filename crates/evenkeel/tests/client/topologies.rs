//! Topologies of components that use `pystorm`, unchanged, from PyPI.
//!
//! Python is the interpreter in `EVENKEEL_PYTHON`, as in `clients`. Components and definition are in `topologies`.
#![allow(clippy::disallowed_methods, reason = "tests read the files that components write")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value as Json;

use crate::common::{self, evenkeel, eventually};

const SENTENCES: u64 = 3_000;

/// A run of the word count, whose components write into `out`, in JSON.
fn start(out: &Path, config: &str) -> Child {
    start_with(out, config, "json")
}

/// The same; `serializer` is pystorm's word for how its components speak.
fn start_with(out: &Path, config: &str, serializer: &str) -> Child {
    let python = std::env::var("EVENKEEL_PYTHON")
        .expect("EVENKEEL_PYTHON names a Python with pystorm: `cargo xtask test clients` makes one");
    let python = std::path::absolute(python).expect("a path");
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies/words.yaml");
    let text = std::fs::read_to_string(definition).expect("it is there");
    let changed = text.replace("config:\n", &format!("config:\n{config}"));
    std::fs::write(out.join("words.yaml"), changed).expect("it is written");
    let resources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/topologies/resources");
    std::os::unix::fs::symlink(resources, out.join("resources")).expect("it is linked");
    let mut command = evenkeel();
    command.args(["topology", "run", "words.yaml", "--local"]).current_dir(out);
    for (name, value) in [
        ("python", python.display().to_string()),
        ("out", out.display().to_string()),
        ("sentences", SENTENCES.to_string()),
        ("serializer", serializer.to_owned()),
    ] {
        command.arg("--property").arg(format!("{name}={value}"));
    }
    let errors = std::fs::File::create(out.join("log")).expect("it is made");
    command.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts")
}

/// Waits until all sentences are acknowledged, and ends the run as a user does; the log.
fn end(run: Child, out: &Path) -> String {
    let log = || std::fs::read_to_string(out.join("log")).expect("it is there");
    let acked = || std::fs::read_to_string(out.join("acked")).is_ok_and(|text| text == SENTENCES.to_string());
    eventually(&format!("all sentences are acknowledged:\n{}", log()), acked);
    let pid = libc::pid_t::try_from(run.id()).expect("a process");
    // SAFETY: the process is a child that was not waited for.
    #[expect(unsafe_code, reason = "a signal as Ctrl-C sends it")]
    let sent = unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(sent, 0);
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), log());
    log()
}

/// What all tasks have counted, and how many ticks they got at least.
fn counts(out: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let files = std::fs::read_dir(out).expect("it is there").flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with("counts-")) {
        let text = std::fs::read_to_string(file.path()).expect("text");
        let json: Json = serde_json::from_str(&text).expect("JSON");
        for (word, count) in json["counts"].as_object().expect("an object") {
            *counts.entry(word.clone()).or_default() += count.as_u64().expect("a number");
        }
    }
    counts
}

/// What a plain program counts.
fn expected() -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for number in 0..SENTENCES {
        for word in format!("word{} is é word of {number}", number % 7).split(' ') {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn words_are_counted_exactly_while_nothing_fails() {
    let out = tempfile::tempdir().expect("a folder for the test");
    let log = end(start(out.path(), ""), out.path());
    assert_eq!(counts(out.path()), expected(), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn words_are_counted_exactly_in_messagepack() {
    let out = tempfile::tempdir().expect("a folder for the test");
    let config = "  topology.multilang.serializer: com.example.MessagePackSerializer\n";
    let log = end(start_with(out.path(), config, "msgpack"), out.path());
    assert_eq!(counts(out.path()), expected(), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

/// What pystorm says of an exception goes with the tuple.
#[test]
fn tuple_that_fails_each_time_is_given_up_with_the_error_of_its_child() {
    let out = tempfile::tempdir().expect("a folder for the test");
    let config = "  fails.always.at: 1500\n  evenkeel.attempts_max: 2\n  evenkeel.backoff_ms: [0]\n";
    let log = end(start(out.path(), config), out.path());
    let given_up = log.lines().find(|line| line.contains("a tuple is given up")).expect("it is in the log");
    assert!(given_up.contains("component=\"split\"") && given_up.contains("ValueError"), "{given_up}");
}

#[test]
fn no_word_is_lost_when_a_child_dies_and_another_one_fails() {
    let out = tempfile::tempdir().expect("a folder for the test");
    let log = end(start(out.path(), "  dies.at: 1000\n  fails.at: 2000\n"), out.path());
    assert!(log.contains("it exited with status 9") && log.contains("it dies"), "{log}");
    assert!(log.contains("ValueError"), "what it says of its error is in the log: {log}");
    let (counts, expected) = (counts(out.path()), expected());
    assert!(expected.iter().all(|(word, count)| counts.get(word) >= Some(count)), "at least once");
    let extra = counts.values().sum::<u64>() - expected.values().sum::<u64>();
    // what both tasks had at a time: 100 sentences of six words each, twice
    assert!(extra <= 2 * 2 * 100 * 6, "{extra} words more");
}

/// Ends children of a server whose working directory is `folder`, by the number that the system has for one.
fn kill_one_in(folder: &Path) -> bool {
    let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok());
    let is_its = |pid: &libc::pid_t| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)
            && String::from_utf8_lossy(&read("cmdline")).contains("words.py")
    };
    let Some(pid) = pids.into_iter().find(is_its) else { return false };
    // SAFETY: a plain system call; the process is a child of the server that this test started, known by its folder.
    #[expect(unsafe_code, reason = "a signal as kill -9 sends it")]
    let sent = unsafe { libc::kill(pid, libc::SIGKILL) };
    sent == 0
}

const WORDS: &str = "\
name: words
config: {topology.max.spout.pending: 200, evenkeel.backoff_ms: [10], evenkeel.attempts_max: 100, topology.multilang.serializer: a.MessagePackSerializer}
spouts:
- id: source
  className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, stream-spout, sentences], [id, sentence]]
bolts:
- id: split
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[./words.py], [id, place, word]]
- id: count
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HINCRBY, counts, \"{word}\", \"1\"], [nothing]]
- id: seen
  className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, seen, \"{id}:{place}\", \"{word}\"], [nothing]]
streams:
- {from: source, to: split, grouping: {type: SHUFFLE}}
- {from: split, to: count, grouping: {type: FIELDS, args: [word]}}
- {from: split, to: seen, grouping: {type: SHUFFLE}}
";
const SPLIT: &str = "
from pystorm import Bolt

class Split(Bolt):
    def process(self, tup):
        for place, word in enumerate(tup.values.sentence.split()):
            self.emit([tup.values.id, place, word])

Split(serializer='msgpack').run()
";

#[test]
fn no_word_is_lost_on_a_server_whose_shell_component_is_killed_again_and_again() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let folder = dir.path().canonicalize().expect("a path").join("components");
    std::fs::create_dir(&folder).expect("it is made");
    let python = std::env::var("EVENKEEL_PYTHON").expect("EVENKEEL_PYTHON names a Python with pystorm");
    let python = std::path::absolute(python).expect("a path");
    let script = folder.join("words.py");
    std::fs::write(&script, format!("#!{}\n{SPLIT}", python.display())).expect("it is written");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("it is its owner's");
    std::fs::write(dir.path().join("x.yaml"), WORDS).expect("it is written");
    let arguments = ["--topologies-dir", &folder.display().to_string()];
    let server = common::Server::start(&dir.path().join("data"), &arguments);
    for number in 0..SENTENCES {
        let sentence = format!("word{} is é word of {number}", number % 7);
        server.call(&["XADD", "sentences", "*", "sentence", &sentence]);
    }
    let url = format!("redis://127.0.0.1:{}", server.port);
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--url", &url]).current_dir(dir.path());
    let (status, said) = common::finished(&mut command);
    assert_eq!(status, 0, "{said}");
    let all = 6 * SENTENCES as i64;
    let seen = || match server.call(&["HLEN", "seen"]) {
        resp::Value::Integer(seen) => seen,
        other => panic!("{other:?}"),
    };
    for kills in 1..=4 {
        eventually("words are counted", || seen() >= kills * all / 6);
        eventually("a child is killed", || kill_one_in(&folder));
    }
    eventually("all words are there", || seen() == all);
    let text = |value: &resp::Value| match value {
        resp::Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    };
    let counts = || -> BTreeMap<String, u64> {
        let resp::Value::Array(counts) = server.call(&["HGETALL", "counts"]) else { panic!("a hash") };
        counts.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]).parse().expect("a number"))).collect()
    };
    // The two sinks are fed on their own, so that one may be done before the other; words come at least once.
    eventually("each word is counted", || {
        let counts = counts();
        expected().iter().all(|(word, count)| counts.get(word) >= Some(count))
    });
}

const BATCHES: &str = "
import sys
from pystorm import Bolt, BatchingBolt, Spout, TicklessBatchingBolt

NUMBERS = 6000

class Numbers(Spout):
    def initialize(self, config, context):
        self.next, self.acked = 0, 0

    def next_tuple(self):
        if self.next < NUMBERS:
            self.emit([self.next], tup_id=self.next)
            self.next += 1

    def ack(self, number):
        self.acked += 1
        with open('acked', 'w') as file:
            file.write(str(self.acked))

class Batching:
    def group_key(self, tup):
        return tup.values[0] % 2

    def process_batch(self, key, tups):
        with open('batches', 'a') as file:
            file.write('%d\\n' % len(tups))

class ByTicks(Batching, BatchingBolt):
    pass

class ByTime(Batching, TicklessBatchingBolt):
    secs_between_batches = 1

class Forgets(Bolt):
    auto_ack = False

    def initialize(self, config, context):
        self.seen = {}

    def process(self, tup):
        # One of ten is forgotten the first time.
        number = tup.values[0]
        self.seen[number] = self.seen.get(number, 0) + 1
        if number % 10 or self.seen[number] > 1:
            self.ack(tup)

{'numbers': Numbers, 'ticks': ByTicks, 'time': ByTime, 'forgets': Forgets}[sys.argv[1]]().run()
";

/// Runs 6,000 numbers through the bolt `kind` of the program above, until all are acknowledged; sizes of batches.
fn batches(kind: &str, config: &str) -> Vec<u64> {
    let out = tempfile::tempdir().expect("a folder for the test");
    let python = std::env::var("EVENKEEL_PYTHON").expect("EVENKEEL_PYTHON names a Python with pystorm");
    let python = std::path::absolute(python).expect("a path").display().to_string();
    std::fs::write(out.path().join("batches.py"), BATCHES).expect("it is written");
    let class = "org.apache.storm.flux.wrappers";
    let definition = format!(
        "name: batches\nconfig: {{topology.max.spout.pending: 3000{config}}}\n\
         spouts:\n- {{id: numbers, className: {class}.spouts.FluxShellSpout, constructorArgs: [[{python}, batches.py, numbers], [n]]}}\n\
         bolts:\n- id: bolt\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[{python}, batches.py, {kind}], [n]]\n  \
         configMethods: [{{name: addComponentConfig, args: [topology.tick.tuple.freq.secs, 1]}}]\n\
         streams:\n- {{from: numbers, to: bolt, grouping: {{type: SHUFFLE}}}}\n"
    );
    std::fs::write(out.path().join("x.yaml"), definition).expect("it is written");
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--local"]).current_dir(out.path());
    let log = std::fs::File::create(out.path().join("log")).expect("it is made");
    let mut run = command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
    let read = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap_or_default();
    eventually(&format!("all are acknowledged:\n{}", read("log")), || read("acked") == "6000");
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    read("batches").lines().map(|line| line.parse().expect("a number")).collect()
}

/// Bolts that hold more tuples than `topology.shellbolt.max.pending` stood still, and got no tick: its bound was on what is not acknowledged.
#[test]
fn bolts_that_work_in_batches_hold_thousands_of_tuples() {
    for kind in ["ticks", "time"] {
        let sizes = batches(kind, "");
        assert_eq!(sizes.iter().sum::<u64>(), 6_000, "{kind}: {sizes:?}");
        assert!(sizes.iter().any(|size| *size > 1_000), "{kind}: {sizes:?}");
    }
}

/// It stood still when it had forgotten 1,000, and time-outs freed nothing.
#[test]
fn bolt_that_forgets_to_acknowledge_gets_the_rest_and_what_it_forgot_again() {
    let config =
        ", topology.shellbolt.max.pending: 100, topology.message.timeout.secs: 2, evenkeel.backoff_ms: [10]";
    assert_eq!(batches("forgets", config), [0; 0]);
}
