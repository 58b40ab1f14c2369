//! Topologies of components that use `pystorm`, unchanged, from PyPI.
//!
//! Python is the interpreter in `EVENKEEL_PYTHON`, as in `clients`. Components and definition are in `topologies`.
#![allow(clippy::disallowed_methods, reason = "tests read the files that components write")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};

use common::{evenkeel, eventually};
use serde_json::Value as Json;

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
