//! What a child is told, appended to bytes that are written in one go.
//!
//! | to | message |
//! |---|---|
//! | all | the handshake ([`crate::handshake`]) |
//! | a bolt | `{"id": "7", "comp": c, "stream": s, "task": n, "tuple": [...]}`; ticks and heartbeats are tuples, too |
//! | a spout | `{"command": "next"}`, `ack` and `fail` with `id`, `activate`, `deactivate` |
//! | who emitted | `[n, n, ...]`, the tasks that got the tuple |

use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use topology::ids::TaskId;
use topology::value::Value;

use crate::codec::Codec;
use crate::value::{self, SpokenList};

pub use crate::value::Unspeakable;

/// A tuple for a bolt.
#[derive(Clone, Copy, Debug)]
pub struct TupleHeader<'a> {
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

#[derive(Serialize)]
struct TupleMessage<'a> {
    #[serde(serialize_with = "as_text")]
    id: u64,
    comp: Option<&'a str>,
    stream: &'a str,
    task: i64,
    tuple: SpokenList<'a>,
}

#[derive(Serialize)]
struct CommandMessage<'a> {
    command: &'a str,
    id: &'a Json,
}

/// Appends a tuple with `values`; the place of the value that cannot be told is in the error, and nothing was appended.
///
/// # Errors
/// A value is not in `codec`.
pub fn tuple(
    codec: Codec,
    told: TupleHeader<'_>,
    values: &[Value<'_>],
    out: &mut Vec<u8>,
) -> Result<(), (usize, Unspeakable)> {
    value::check(codec, values)?;
    let TupleHeader { id, component, stream, task } = told;
    let (comp, task) = (Some(component), i64::from(task.0) + 1);
    codec.append(&TupleMessage { id, comp, stream, task, tuple: SpokenList(values) }, out);
    Ok(())
}

/// Appends a tick; its id is [`NOBODYS`].
pub fn tick(codec: Codec, interval_s: u64, out: &mut Vec<u8>) {
    let values = [Value::Int(i64::try_from(interval_s).unwrap_or(i64::MAX))];
    system(codec, Some("__system"), "__tick", &values, out);
}

/// Appends a heartbeat for a bolt, which answers with `sync`.
pub fn heartbeat(codec: Codec, out: &mut Vec<u8>) {
    system(codec, None, "__heartbeat", &[], out);
}

/// Appends the tasks that got a tuple.
pub fn task_ids(codec: Codec, tasks: &[TaskId], out: &mut Vec<u8>) {
    let numbers: Vec<u32> = tasks.iter().map(|task| task.0 + 1).collect();
    codec.append(&numbers, out);
}

/// Appends a command for a spout.
pub fn command(codec: Codec, command: &Command, out: &mut Vec<u8>) {
    let none = Json::from("");
    let (command, id) = match command {
        Command::Next => ("next", &none),
        Command::Ack(id) => ("ack", id),
        Command::Fail(id) => ("fail", id),
        Command::Activate => ("activate", &none),
        Command::Deactivate => ("deactivate", &none),
    };
    codec.append(&CommandMessage { command, id }, out);
}

/// Appends a tuple of nobody's.
fn system(codec: Codec, comp: Option<&str>, stream: &str, values: &[Value<'_>], out: &mut Vec<u8>) {
    let message = TupleMessage { id: NOBODYS, comp, stream, task: SYSTEM_TASK, tuple: SpokenList(values) };
    codec.append(&message, out);
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(itoa::Buffer::new().format(*number))
}

/// The id of ticks and heartbeats, which are no tuples of anybody's.
pub const NOBODYS: u64 = 0;
const SYSTEM_TASK: i64 = -1;
