#![allow(missing_docs, reason = "tests")]
//! The bytes of the protocol, as `pystorm` and others read them.

use std::path::Path;

use serde_json::json;
use shell::speak::{self, Command, Told, Unspeakable};
use topology::Plan;
use topology::definition::{Component, Grouping, Settings, Stream, Subscription, Topology};
use topology::ids::TaskId;
use topology::value::Value;

fn plan() -> Plan {
    let by_word = Subscription::to("split", Grouping::fields(&["word"]));
    let odd = Stream::default_with(&["word", "length"]).named("odd");
    let components = vec![
        Component::spout("sentences", vec![Stream::default_with(&["sentence"])]),
        Component::bolt(
            "split",
            vec![Subscription::to("sentences", Grouping::Shuffle)],
            vec![Stream::default_with(&["word"]), odd],
        )
        .with_tasks(2),
        Component::bolt("count", vec![by_word], vec![]),
    ];
    let topology = Topology { name: "words".into(), settings: Settings::default(), components };
    Plan::new(topology).expect("a plan").0
}

fn told(append: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    append(&mut out);
    String::from_utf8(out).expect("JSON is text")
}

#[test]
fn handshake_says_where_a_task_is() {
    let config = json!({ "topology.name": "words", "n": 3 });
    let config = config.as_object().expect("an object");
    let text = told(|out| shell::handshake::append(&plan(), TaskId(2), config, Path::new("/tmp/pids"), out));
    assert_eq!(text, include_str!("golden/handshake.json"));
}

#[test]
fn bolt_is_told_tuples_ticks_and_heartbeats() {
    let split = Told { id: 7, component: "split", stream: "odd", task: TaskId(2) };
    let list = Value::List(vec![Value::Null, Value::Bool(true), Value::Float(1.0), Value::Float(-0.5)]);
    let bytes = Value::Bytes(b"bytes"[..].into());
    let values = [Value::Str("é\"\n\u{1}".into()), Value::Int(-12), list, bytes];
    let text = told(|out| {
        speak::tuple(split, values, out).expect("all are in JSON");
        speak::tick(10, out);
        speak::heartbeat(out);
        speak::task_ids(&[TaskId(0), TaskId(4)], out);
        speak::task_ids(&[], out);
    });
    assert_eq!(text, include_str!("golden/bolt.txt"));
}

#[test]
fn spout_is_told_commands() {
    let text = told(|out| {
        for command in [
            Command::Next,
            Command::Ack(json!("a\"1")),
            Command::Fail(json!({ "offset": 3 })),
            Command::Activate,
            Command::Deactivate,
        ] {
            speak::command(&command, out);
        }
    });
    assert_eq!(text, include_str!("golden/spout.txt"));
}

#[test]
fn tuple_that_is_not_in_json_leaves_no_trace() {
    let split = Told { id: 7, component: "split", stream: "odd", task: TaskId(2) };
    let mut out = b"before".to_vec();
    let values = [Value::Int(1), Value::Bytes(b"\xFF"[..].into())];
    assert_eq!(speak::tuple(split, values, &mut out), Err((1, Unspeakable::NotUtf8)));
    assert_eq!(speak::tuple(split, [Value::Float(f64::NAN)], &mut out), Err((0, Unspeakable::NotFinite)));
    assert_eq!(out, b"before");
}
