//! What a shell component writes to its standard output.

use shell::framing::Frames;
use shell::message::{Emit, Message};
use shell::speak::{self, Told};
use topology::ids::TaskId;
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

/// All pieces give the same messages, nothing more than the limit is kept, and a tuple that was taken can be told as it was.
pub(super) fn output(input: &[u8]) {
    let whole = messages(input, input.len().max(1));
    assert_eq!(whole, messages(input, 1), "pieces of one byte");
    for message in &whole {
        if let Ok(Message::Emit(emit)) = Message::decode(message) {
            tell(&emit);
        }
    }
}

/// The messages before the first one that is too long.
fn messages(input: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (mut frames, mut found) = (Frames::new(LIMIT), Vec::new());
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

fn tell(emit: &Emit) {
    let values = |values: &Values| -> Vec<Value<'static>> {
        let value = |place| values.value(place).expect("it is there").expect("it is a value").into_owned();
        (0..values.len()).map(value).collect()
    };
    let told = Told { id: 1, component: "c", stream: "s", task: TaskId(0) };
    let mut out = Vec::new();
    speak::tuple(told, values(&emit.values), &mut out).expect("what came from JSON is in JSON");
    let text = out.strip_suffix(b"\nend\n").expect("it has its end");
    let again = [b"{\"command\":\"emit\",", &text[1..]].concat();
    let Ok(Message::Emit(again)) = Message::decode(&again) else { panic!("it is a tuple") };
    assert_eq!(again.values, emit.values);
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
