//! What a component says, as messages of the protocol.

use serde_json::json;
use topology::values::Values;

use crate::json::{Unspeakable, append, append_json};
use crate::speak;

/// The answer to the handshake.
pub(super) fn pid(pid: u32, out: &mut Vec<u8>) {
    message(&json!({ "pid": pid }), out);
}

/// It has done what it was told.
pub(super) fn sync(out: &mut Vec<u8>) {
    message(&json!({ "command": "sync" }), out);
}

/// What became of a tuple.
pub(super) fn settled(command: &str, id: &str, out: &mut Vec<u8>) {
    message(&json!({ "command": command, "id": id }), out);
}

/// An error, which belongs to the next tuple that fails.
pub(super) fn error(text: &str, out: &mut Vec<u8>) {
    message(&json!({ "command": "error", "msg": text }), out);
}

/// A warning for the log.
pub(super) fn warning(text: &str, out: &mut Vec<u8>) {
    message(&json!({ "command": "log", "msg": text, "level": 3 }), out);
}

/// A tuple; `of` has its anchors, or its id.
///
/// # Errors
/// A value is not in JSON; nothing was appended.
pub(super) fn emit(stream: &str, values: &Values, of: &Of<'_>, out: &mut Vec<u8>) -> Result<(), Unspeakable> {
    let start = out.len();
    out.extend_from_slice(b"{\"command\":\"emit\",\"need_task_ids\":false,\"stream\":");
    append_json(stream, out);
    match of {
        Of::Anchors(ids) => {
            out.extend_from_slice(b",\"anchors\":");
            append_json(ids, out);
        }
        Of::Id(id) => {
            out.extend_from_slice(b",\"id\":");
            append_json(id, out);
        }
    }
    out.extend_from_slice(b",\"tuple\":[");
    for place in 0..values.len() {
        if place > 0 {
            out.push(b',');
        }
        let Some(Ok(value)) = values.value(place) else { continue };
        if let Err(why) = append(&value, out) {
            out.truncate(start);
            return Err(why);
        }
    }
    out.extend_from_slice(b"]}");
    speak::end(out);
    Ok(())
}

/// Whose a tuple is.
pub(super) enum Of<'a> {
    /// A bolt's: the tuples that it was made from.
    Anchors(Vec<&'a str>),
    /// A spout's: what it hears of it by.
    Id(String),
}

fn message(message: &serde_json::Value, out: &mut Vec<u8>) {
    append_json(message, out);
    speak::end(out);
}
