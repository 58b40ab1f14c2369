//! Sessions with what a parent says, and what it hears.

use std::sync::{Arc, Mutex};

use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple};
use topology::tracker::{DeadLetter, Position};
use topology::value::Value;

use super::*;

#[derive(Debug, Default)]
struct Echo {
    is_closed: bool,
}

impl Bolt for Echo {
    fn is_ready(&self) -> bool {
        !self.is_closed
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        match tuple.str("word")? {
            "bad" => return Err(Fault::new("it is bad")),
            "stop" => self.is_closed = true,
            word => out.emit(&[Value::from(word), Value::from(tuple.component())])?,
        }
        Ok(Outcome::Ack)
    }

    fn wake(&mut self, _: &mut BoltOut<'_>) -> Result<(), Fault> {
        self.is_closed = false;
        Ok(())
    }
}

#[derive(Debug)]
struct Numbers(Arc<Mutex<Vec<String>>>);

impl Spout for Numbers {
    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        if out.room() > 0 {
            out.emit(Position(7), &[Value::from(7)])?;
        }
        Ok(Next::Woken)
    }

    fn ack(&mut self, position: Position) {
        self.0.lock().expect("whole").push(format!("ack {}", position.0));
    }

    fn fail(&mut self, letter: &DeadLetter) {
        let text = format!("fail {} after {}", letter.original.position.0, letter.original.attempts);
        self.0.lock().expect("whole").push(text);
    }
}

fn bell() -> Waker {
    Waker::new(|| ())
}

/// What the child says to `text`, without its pid.
fn told(child: &mut Child<'_>, text: &str) -> String {
    child.on_bytes(format!("{text}\nend\n").as_bytes()).expect("it is a message");
    String::from_utf8(std::mem::take(&mut child.out)).expect("text").replace("\nend\n", ";")
}

const BOLT: &str = r#"{"conf":{"topology.name":"t"},"context":{"taskid":4,"componentid":"echo","task->component":{"1":"__acker","2":"source","3":"echo","4":"echo"},"streams":["default"],"stream->outputfields":{"default":["word","from"]},"source->stream->fields":{"source":{"default":["word"]}}}}"#;
const SPOUT: &str = r#"{"conf":{"evenkeel.attempts_max":2},"context":{"taskid":1,"task->component":{"1":"source"},"stream->outputfields":{"default":["n"]}}}"#;

#[test]
fn bolt_is_told_tuples_and_says_what_became_of_them() {
    let factory = Factory::bolt(Echo::default);
    let mut child = Child::new(&factory, bell());
    assert!(told(&mut child, BOLT).starts_with("{\"pid\":"));
    let tuple = |id: &str, word: &str| {
        format!(r#"{{"id":"{id}","comp":"source","stream":"default","task":2,"tuple":["{word}"]}}"#)
    };
    let said = told(&mut child, &tuple("-9", "a"));
    let emitted = r#"{"command":"emit","need_task_ids":false,"stream":"default","anchors":["-9"],"tuple":["a","source"]}"#;
    assert_eq!(said, format!("{emitted};{};", r#"{"command":"ack","id":"-9"}"#));
    let failed = r#"{"command":"error","msg":"it is bad"};{"command":"fail","id":"2"};"#;
    assert_eq!(told(&mut child, &tuple("2", "bad")), failed);
    let heartbeat = r#"{"id":"1","comp":null,"stream":"__heartbeat","task":-1,"tuple":[]}"#;
    assert_eq!(told(&mut child, heartbeat), "{\"command\":\"sync\"};");
    assert!(told(&mut child, &tuple("3", "stop")).contains("ack"));
    assert_eq!(told(&mut child, &tuple("4", "b")), "", "it waits while the bolt takes none");
    child.on_wake();
    assert!(String::from_utf8_lossy(&child.out).contains(r#""anchors":["4"]"#));
    assert!(child.on_bytes(b"{}\nend\n").is_err());
}

/// A component that wants ticks, as `join` does, could not run as a process: the interval that its parent says was not read.
#[test]
fn bolt_knows_how_often_its_parent_ticks() {
    #[derive(Debug)]
    struct Ticked(Arc<Mutex<Vec<String>>>);
    impl Bolt for Ticked {
        fn prepare(&mut self, context: &topology::component::Context<'_>) -> Result<(), Fault> {
            let interval = context.plan().tick_interval(context.component());
            self.0.lock().expect("whole").push(format!("{interval:?}"));
            Ok(())
        }
        fn execute(&mut self, _: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
            Ok(Outcome::Ack)
        }
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let factory = Factory::bolt({
        let heard = Arc::clone(&heard);
        move || Ticked(Arc::clone(&heard))
    });
    for interval in ["1", "\"2\"", "0.5", "0", "-1", "null", "\"x\""] {
        let conf = format!(r#""conf":{{"topology.tick.tuple.freq.secs":{interval},"#);
        let mut child = Child::new(&factory, bell());
        told(&mut child, &BOLT.replace(r#""conf":{"#, &conf));
    }
    let none = || "None".to_owned();
    let expected = [
        "Some(1s)".to_owned(),
        "Some(2s)".to_owned(),
        "Some(500ms)".to_owned(),
        none(),
        none(),
        none(),
        none(),
    ];
    assert_eq!(*heard.lock().expect("whole"), expected);
}

#[test]
fn spout_emits_again_what_failed_until_it_is_given_up() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let factory = Factory::spout({
        let heard = Arc::clone(&heard);
        move || Numbers(Arc::clone(&heard))
    });
    let mut child = Child::new(&factory, bell());
    told(&mut child, SPOUT);
    let next = r#"{"command":"next"}"#;
    let emitted = r#"{"command":"emit","need_task_ids":false,"stream":"default","id":"7","tuple":[7]};{"command":"sync"};"#;
    assert_eq!(told(&mut child, next), emitted);
    let command = |command: &str| format!(r#"{{"command":"{command}","id":"7"}}"#);
    assert_eq!(told(&mut child, &command("fail")), "{\"command\":\"sync\"};");
    assert_eq!(told(&mut child, next), emitted, "the second attempt");
    told(&mut child, &command("fail"));
    told(&mut child, &command("ack"));
    told(&mut child, next);
    told(&mut child, &command("ack"));
    assert_eq!(*heard.lock().expect("whole"), ["fail 7 after 2", "ack 7"]);
}

#[test]
fn parent_that_speaks_messagepack_is_answered_in_it() {
    let factory = Factory::bolt(Echo::default);
    let mut child = Child::new(&factory, bell());
    let mut told = |message: &serde_json::Value| {
        let mut bytes = Vec::new();
        Codec::MessagePack.append(message, &mut bytes);
        // In pieces: the first byte alone tells the codec.
        bytes.iter().for_each(|byte| child.on_bytes(&[*byte]).expect("it is a message"));
        let mut frames = Frames::new(Codec::MessagePack, 1_000);
        frames.push(&child.take_out());
        let mut said = Vec::new();
        while let Some(message) = frames.read().expect("messages") {
            said.push(Codec::MessagePack.read::<serde_json::Value>(message).expect("a message"));
        }
        said
    };
    assert!(told(&serde_json::from_str(BOLT).expect("JSON"))[0]["pid"].is_u64());
    let tuple =
        serde_json::json!({"id": "-9", "comp": "source", "stream": "default", "task": 2, "tuple": ["a"]});
    let said = told(&tuple);
    assert_eq!(said[0]["anchors"], serde_json::json!(["-9"]));
    assert_eq!(said[0]["tuple"], serde_json::json!(["a", "source"]));
    assert_eq!(said[1], serde_json::json!({"command": "ack", "id": "-9"}));
    assert!(told(&serde_json::json!([3, 4])).is_empty(), "tasks that got a tuple");
}
