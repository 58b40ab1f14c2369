#![allow(missing_docs, reason = "tests")]
//! The bytes of the protocol, as `pystorm` and others read them.

use std::path::Path;

use serde_json::json;
use shell::codec::Codec;
use shell::speak::{self, Command, TupleHeader, Unspeakable};
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
    let text = told(|out| {
        shell::handshake::append(Codec::Json, &plan(), TaskId(2), config, Path::new("/tmp/pids"), out);
    });
    assert_eq!(text, include_str!("golden/handshake.json"));
}

/// A tuple with all kinds of values, and what a bolt is told beside tuples.
fn tell_bolt(codec: Codec, out: &mut Vec<u8>) {
    let split = TupleHeader { id: 7, component: "split", stream: "odd", task: TaskId(2) };
    let list = Value::List(vec![Value::Null, Value::Bool(true), Value::Float(1.0), Value::Float(-0.5)]);
    let bytes = Value::Bytes(b"bytes"[..].into());
    let values = [Value::Str("é\"\n\u{1}".into()), Value::Int(-12), list, bytes];
    speak::tuple(codec, split, &values, out).expect("all are in JSON");
    speak::tick(codec, 10, out);
    speak::heartbeat(codec, out);
    speak::task_ids(codec, &[TaskId(0), TaskId(4)], out);
    speak::task_ids(codec, &[], out);
}

#[test]
fn bolt_is_told_tuples_ticks_and_heartbeats() {
    let text = told(|out| tell_bolt(Codec::Json, out));
    assert_eq!(text, include_str!("golden/bolt.txt"));
}

/// The bytes, and what they are, as Python's msgpack reads and writes them, are in the file.
#[test]
fn messages_in_messagepack_have_the_same_keys() {
    let mut out = Vec::new();
    tell_bolt(Codec::MessagePack, &mut out);
    let bytes = Value::Bytes(b"\xFF"[..].into());
    let told = TupleHeader { id: 8, component: "split", stream: "odd", task: TaskId(2) };
    speak::tuple(Codec::MessagePack, told, &[bytes, Value::Float(f64::INFINITY)], &mut out)
        .expect("all is in MessagePack");
    speak::command(Codec::MessagePack, &Command::Ack(json!({ "offset": 300 })), &mut out);
    let hex = include_str!("golden/messagepack.txt").lines().filter_map(|line| line.strip_prefix("| "));
    let golden: Vec<&str> = hex.flat_map(str::split_whitespace).collect();
    let told: Vec<String> = out.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told, golden);
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
            speak::command(Codec::Json, &command, out);
        }
    });
    assert_eq!(text, include_str!("golden/spout.txt"));
}

#[test]
fn tuple_that_is_not_in_json_leaves_no_trace() {
    let split = TupleHeader { id: 7, component: "split", stream: "odd", task: TaskId(2) };
    let mut out = b"before".to_vec();
    let values = [Value::Int(1), Value::Bytes(b"\xFF"[..].into())];
    assert_eq!(speak::tuple(Codec::Json, split, &values, &mut out), Err((1, Unspeakable::NotUtf8)));
    let lists = [Value::List(vec![Value::Float(f64::NAN)])];
    assert_eq!(speak::tuple(Codec::Json, split, &lists, &mut out), Err((0, Unspeakable::NotFinite)));
    assert_eq!(out, b"before");
}
