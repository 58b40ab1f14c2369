//! What a shell component writes to its standard output, in JSON and in MessagePack, and what its parent writes to its standard input.

use shell::Codec;
use shell::framing::Frames;
use shell::message::{Emit, Message};
use shell::serve::Child;
use shell::speak::{self, Command, TupleHeader};
use topology::builder::Factory;
use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple, Waker};
use topology::ids::TaskId;
use topology::tracker::Position;
use topology::value::Value;
use topology::values::Values;

/// Bytes that mean something in the protocol.
pub(super) const WORDS: &[&[u8]] = &[
    b"\nend\n",
    b"\n",
    b"\r\nend\r\n",
    b"{\"command\":\"emit\",\"tuple\":[",
    b"{\"command\":\"ack\",\"id\":\"",
    b"{\"command\":\"log\",\"msg\":\"",
    b"{\"command\":\"sync\"}\nend\n",
    b"\"anchors\":[\"1\"]",
    b"\"stream\":",
    b"\"task\":",
    b"\"need_task_ids\":false",
    b"18446744073709551616",
    b"1e999",
    b"\\ud800",
    b"\\u0000",
    b"null",
    b"[[[[[[[[[[[[[[[[[",
    b"\xFF",
];

const LIMIT: usize = 300;

/// In JSON: all pieces give the same messages, nothing more than the limit is kept, and a tuple that was taken can be told as it was.
pub(super) fn output(input: &[u8]) {
    said(Codec::Json, input);
}

/// The same in MessagePack.
pub(super) fn messagepack(input: &[u8]) {
    said(Codec::MessagePack, input);
}

fn said(codec: Codec, input: &[u8]) {
    let whole = messages(codec, input, input.len().max(1));
    assert_eq!(whole, messages(codec, input, 1), "pieces of one byte");
    for message in &whole {
        if let Ok(Message::Emit(emit)) = Message::decode(codec, message) {
            tell(codec, &emit);
        }
    }
}

/// The messages before the first one that is too long, or none.
fn messages(codec: Codec, input: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut found) = (Frames::new(codec, LIMIT), Vec::new());
    for piece in input.chunks(size) {
        frames.push(piece);
        loop {
            match frames.read() {
                Ok(Some(message)) => found.push(message.to_vec()),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
        assert!(frames.pending_bytes() <= LIMIT + "end\r".len());
    }
    found
}

fn tell(codec: Codec, emit: &Emit) {
    let values = |values: &Values| -> Vec<Value<'static>> {
        let value = |place| values.value(place).expect("it is there").expect("it is a value").into_owned();
        (0..values.len()).map(value).collect()
    };
    let told = TupleHeader { id: 1, component: "c", stream: "s", task: TaskId(0) };
    let mut out = Vec::new();
    speak::tuple(codec, told, &values(&emit.values), &mut out).expect("what came from a codec is in it");
    let Ok(Message::Emit(again)) = Message::decode(codec, &emitted(codec, &out)) else { panic!("a tuple") };
    assert_eq!(again.values, emit.values);
}

/// The message of a tuple that was told, with a command.
fn emitted(codec: Codec, told: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Json => {
            let text = told.strip_suffix(b"\nend\n").expect("it has its end");
            [b"{\"command\":\"emit\",", &text[1..]].concat()
        }
        // a map of five keys, and one more
        Codec::MessagePack => [b"\x86\xA7command\xA4emit", &told[1..]].concat(),
    }
}

/// A bolt and a spout that answer whatever their parent writes, in pieces as at once.
pub(super) fn serve(input: &[u8]) {
    for factory in [Factory::bolt(|| Echo), Factory::spout(|| Echo)] {
        let answers = |size: usize| {
            let mut child = Child::new(&factory, Waker::new(|| ()));
            let pieces = input.chunks(size).try_for_each(|piece| child.on_bytes(piece));
            child.on_wake();
            (child.take_out(), pieces.is_ok())
        };
        assert_eq!(answers(input.len().max(1)), answers(1), "pieces of one byte");
    }
}

#[derive(Debug)]
struct Echo;

impl Bolt for Echo {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let values: Vec<Value<'_>> =
            (0..tuple.values().len()).filter_map(|at| tuple.values().value(at)).collect::<Result<_, _>>()?;
        out.emit(&values)?;
        Ok(Outcome::Ack)
    }
}

impl Spout for Echo {
    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        out.emit(Position(1), &[Value::from(1)])?;
        Ok(Next::Now)
    }
}

/// Messages of all kinds.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "{\"pid\": 12}\nend\n",
        "{\"command\": \"emit\", \"tuple\": [\"w\", 1, 1.5, null, true, [2]], \"anchors\": [\"1\", \"2\"], \"stream\": \"s\", \"task\": 3, \"need_task_ids\": false}\nend\n",
        "{\"command\": \"emit\", \"id\": {\"a\": []}, \"tuple\": []}\nend\n{\"command\": \"sync\"}\nend\n",
        "{\"command\": \"ack\", \"id\": \"7\"}\nend\n{\"command\": \"fail\", \"id\": 8}\nend\n",
        "{\"command\": \"log\", \"msg\": \"m\", \"level\": 3}\nend\n{\"command\": \"error\", \"msg\": \"m\"}\r\nend\r\n",
        "{\"command\": \"metrics\", \"name\": \"n\", \"params\": {}}\nend\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Messages in MessagePack.
pub(super) fn messagepack_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![
        b"\x81\xA3pid\x0C".to_vec(),
        b"\x84\xA7command\xA4emit\xA5tuple\x96\xC4\x01\xFF\xA1x\xCB12345678\xC0\xC3\x91\x02\xA7anchors\x91\xA11\xA6stream\xA1s".to_vec(),
        b"\x82\xA7command\xA3ack\xA2id\xA17\x81\xA7command\xA4sync".to_vec(),
        b"\x83\xA7command\xA3log\xA3msg\xD9\x01m\xA5level\x03".to_vec(),
        b"\x83\xA7command\xA7metrics\xA4name\xA1n\xA6params\x81\xA1a\xD4\x01x".to_vec(),
    ];
    let mut told = Vec::new();
    speak::heartbeat(Codec::MessagePack, &mut told);
    speak::task_ids(Codec::MessagePack, &[TaskId(1)], &mut told);
    seeds.push(told);
    seeds
}

/// Bytes that mean something in MessagePack.
pub(super) const MESSAGEPACK_WORDS: &[&[u8]] = &[
    b"\x81\xA7command\xA4emit",
    b"\xA5tuple\x91",
    b"\xA7anchors\xA11",
    b"\xC6\xFF\xFF\xFF\xFF",
    b"\xDD\xFF\xFF\xFF\xFF",
    b"\xDF\xFF\xFF\xFF\xFF",
    b"\xC9\0\0\0\x01\x01x",
    b"\xCF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
    b"\xCA\x7F\xC0\0\0",
    b"\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91",
    b"\xC1",
    b"\xA1\xFF",
];

/// Handshakes with what follows them, for a bolt and for a spout.
pub(super) fn serve_seeds() -> Vec<Vec<u8>> {
    let hello = r#"{"conf":{"topology.name":"t"},"context":{"taskid":4,"task->component":{"2":"source","3":"echo","4":"echo"},"stream->outputfields":{"default":["n"]},"source->stream->fields":{"source":{"default":["n"]}}}}"#;
    let (mut tuples, mut commands) =
        (format!("{hello}\nend\n").into_bytes(), format!("{hello}\nend\n").into_bytes());
    let told = TupleHeader { id: 7, component: "source", stream: "default", task: TaskId(1) };
    speak::tuple(Codec::Json, told, &[Value::from("x")], &mut tuples).expect("text");
    speak::heartbeat(Codec::Json, &mut tuples);
    speak::tick(Codec::Json, 1, &mut tuples);
    for command in [
        Command::Next,
        Command::Fail("1".into()),
        Command::Next,
        Command::Ack("1".into()),
        Command::Deactivate,
    ] {
        speak::command(Codec::Json, &command, &mut commands);
    }
    // The same place in MessagePack.
    let packed = b"\x81\xA7context\x84\xA6taskid\x02\xAFtask->component\x82\xA11\xA6source\xA12\xA4echo\xB4stream->outputfields\x81\xA7default\x91\xA1n\xB6source->stream->fields\x81\xA6source\x81\xA7default\x91\xA1n";
    let mut packed = packed.to_vec();
    let told = TupleHeader { task: TaskId(0), ..told };
    speak::tuple(Codec::MessagePack, told, &[Value::from(1.5)], &mut packed).expect("a number");
    vec![tuples, commands, packed]
}

/// Bytes that mean something to a child.
pub(super) const SERVE_WORDS: &[&[u8]] = &[
    b"\nend\n",
    b"{\"command\":\"next\"}\nend\n",
    b"{\"command\":\"fail\",\"id\":\"1\"}\nend\n",
    b"{\"id\":\"1\",\"comp\":\"source\",\"stream\":\"default\",\"task\":2,\"tuple\":[1]}\nend\n",
    b"\"conf\":{\"evenkeel.attempts_max\":18446744073709551615}",
    b"\"taskid\":18446744073709551616",
    b"\"99999999999999999999\":\"echo\"",
    b"\"stream\":\"__tick\"",
    b"\"stream\":\"__heartbeat\"",
    b"null",
    b"[",
    b"\xFF",
    b"\x80",
];
