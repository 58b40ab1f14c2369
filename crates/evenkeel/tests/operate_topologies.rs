//! What operators do with a topology that runs on a server: compare a definition, look at tuples.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{Server, evenkeel, eventually, finished};
use resp::Value;
use serde_json::Value as Json;

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
