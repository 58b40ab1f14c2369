//! What a child is told, appended to bytes that are written in one go.
//!
//! | to | message |
//! |---|---|
//! | all | the handshake ([`crate::handshake`]) |
//! | a bolt | `{"id": "7", "comp": c, "stream": s, "task": n, "tuple": [...]}`; ticks and heartbeats are tuples, too |
//! | a spout | `{"command": "next"}`, `ack` and `fail` with `id`, `activate`, `deactivate` |
//! | who emitted | `[n, n, ...]`, the tasks that got the tuple |

use serde_json::Value as Json;
use topology::ids::TaskId;
use topology::value::Value;

use crate::json::{append, append_json};

pub use crate::json::Unspeakable;

/// A tuple for a bolt.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The number that it is acknowledged by.
    pub id: u64,
    /// Who emitted it.
    pub component: &'a str,
    /// On which stream.
    pub stream: &'a str,
    /// By which of its tasks.
    pub task: TaskId,
}

/// What a spout is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Emit what there is.
    Next,
    /// All that came of the tuple of this id is done.
    Ack(Json),
    /// The tuple of this id is given up.
    Fail(Json),
    /// The topology is active again.
    Activate,
    /// It is not.
    Deactivate,
}

/// Appends a tuple with `values`; the place of the value that cannot be told is in the error, and nothing was appended.
///
/// # Errors
/// A value is not in JSON.
pub fn tuple<'a>(
    told: Told<'_>,
    values: impl IntoIterator<Item = Value<'a>>,
    out: &mut Vec<u8>,
) -> Result<(), (usize, Unspeakable)> {
    let start = out.len();
    let Told { id, component, stream, task } = told;
    head(id, Some(component), stream, i64::from(task.0) + 1, out);
    for (place, value) in values.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        if let Err(why) = append(&value, out) {
            out.truncate(start);
            return Err((place, why));
        }
    }
    out.extend_from_slice(b"]}");
    end(out);
    Ok(())
}

/// Appends a tick; its id is [`NOBODYS`].
pub fn tick(interval_s: u64, out: &mut Vec<u8>) {
    head(NOBODYS, Some("__system"), "__tick", SYSTEM_TASK, out);
    append_json(&interval_s, out);
    out.extend_from_slice(b"]}");
    end(out);
}

/// Appends a heartbeat for a bolt, which answers with `sync`.
pub fn heartbeat(out: &mut Vec<u8>) {
    head(NOBODYS, None, "__heartbeat", SYSTEM_TASK, out);
    out.extend_from_slice(b"]}");
    end(out);
}

/// Appends the tasks that got a tuple.
pub fn task_ids(tasks: &[TaskId], out: &mut Vec<u8>) {
    let numbers: Vec<u32> = tasks.iter().map(|task| task.0 + 1).collect();
    append_json(&numbers, out);
    end(out);
}

/// Appends a command for a spout.
pub fn command(command: &Command, out: &mut Vec<u8>) {
    let none = Json::from("");
    let (name, id) = match command {
        Command::Next => ("next", &none),
        Command::Ack(id) => ("ack", id),
        Command::Fail(id) => ("fail", id),
        Command::Activate => ("activate", &none),
        Command::Deactivate => ("deactivate", &none),
    };
    out.extend_from_slice(b"{\"command\":");
    append_json(name, out);
    out.extend_from_slice(b",\"id\":");
    append_json(id, out);
    out.push(b'}');
    end(out);
}

/// A tuple up to where its values begin.
fn head(id: u64, component: Option<&str>, stream: &str, task: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":\"");
    append_json(&id, out);
    out.extend_from_slice(b"\",\"comp\":");
    append_json(&component, out);
    out.extend_from_slice(b",\"stream\":");
    append_json(stream, out);
    out.extend_from_slice(b",\"task\":");
    append_json(&task, out);
    out.extend_from_slice(b",\"tuple\":[");
}

pub(crate) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\nend\n");
}

/// The id of ticks and heartbeats, which are no tuples of anybody's.
pub const NOBODYS: u64 = 0;
const SYSTEM_TASK: i64 = -1;
