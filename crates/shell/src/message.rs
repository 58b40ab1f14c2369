//! What a child says: one object a message, in JSON here.
//!
//! | message | means |
//! |---|---|
//! | `{"pid": 1234}` | the answer to the handshake |
//! | `{"command": "emit", "tuple": [...], "stream": s, "anchors": [id], "task": n, "id": any, "need_task_ids": b}` | a tuple; without `need_task_ids` it wants the tasks told |
//! | `{"command": "ack", "id": id}`, `fail` | what became of a tuple that it was given |
//! | `{"command": "sync"}` | it has done what it was told, or it answers a heartbeat |
//! | `{"command": "log", "msg": text, "level": 0 to 4}` | a line for the log: trace, debug, info, warn, error |
//! | `{"command": "error", "msg": text}` | an error that ended nothing |
//! | `{"command": "metrics", "name": text, "params": number or {key: number}}` | figures of its own, by `name`, or by `name.key` |
//!
//! Tasks have numbers from 1 here, because 0 means none on the wire.

use serde::Deserialize;
use serde_json::Value as Json;
use topology::ids::TaskId;
use topology::nearest::nearest;
use topology::value::{Value, ValueError};
use topology::values::Values;

use crate::codec::Codec;
use crate::value::Field;

/// What a child says.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Its process, as it knows it.
    Pid(u64),
    /// A tuple that it emits.
    Emit(Emit),
    /// It has finished a tuple.
    Ack(u64),
    /// It gives a tuple up.
    Fail(u64),
    /// It has done what it was told.
    Sync,
    /// A line for the log.
    Log(Level, String),
    /// Something went wrong.
    Error(String),
    /// Figures of its own, by name.
    Metrics(Vec<(String, f64)>),
}

/// A tuple that a child emits.
#[derive(Clone, Debug, PartialEq)]
pub struct Emit {
    /// The stream that it goes to.
    pub stream: String,
    /// Its values.
    pub values: Values,
    /// Tuples that it was made from, by the numbers that they were told under.
    pub anchors: Vec<u64>,
    /// What the child, a spout, knows it by; `None`: it does not want to hear of it.
    pub id: Option<Json>,
    /// The task that gets it.
    pub direct: Option<TaskId>,
    /// The child waits for the tasks that get it.
    pub needs_task_ids: bool,
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// What a child should not have sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// Print goes to standard output in most languages.
    #[error("what it wrote to standard output is no message of the protocol ({error}): `{begin}`")]
    NoMessage {
        /// What is wrong.
        error: String,
        /// How it begins.
        begin: String,
    },
    /// A line without an end, say.
    #[error("a message has more than {limit} bytes (evenkeel.message_bytes_max): `{begin}`")]
    TooLong {
        /// The most that a message may have.
        limit: usize,
        /// How it begins.
        begin: String,
    },
    /// A word of no protocol.
    #[error("unknown command `{command}`{}", nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)")))]
    UnknownCommand {
        /// What it wrote.
        command: String,
        /// What it may have meant.
        nearest: Option<&'static str>,
    },
    /// Half a message.
    #[error("`{command}` without `{key}`: `{begin}`")]
    Missing {
        /// The command.
        command: String,
        /// What is not there.
        key: &'static str,
        /// How it begins.
        begin: String,
    },
    /// An id that it was not told, or a task that cannot be.
    #[error("`{command}` with `{key}` = {value}, which it was not told")]
    Foreign {
        /// The command.
        command: String,
        /// What is foreign.
        key: &'static str,
        /// What it wrote.
        value: String,
    },
    /// A tuple that cannot be one.
    #[error("it emitted a tuple with {0}")]
    Tuple(ValueError),
    /// Anything but its pid.
    #[error("it did not begin with its pid: `{begin}`")]
    NoPid {
        /// What came instead.
        begin: String,
    },
}

/// All keys of all messages.
#[derive(Debug, Deserialize)]
struct Raw {
    command: Option<String>,
    pid: Option<u64>,
    id: Option<Json>,
    tuple: Option<Vec<Field>>,
    anchors: Option<Anchors>,
    stream: Option<String>,
    task: Option<i64>,
    need_task_ids: Option<bool>,
    msg: Option<String>,
    level: Option<i64>,
    name: Option<String>,
    params: Option<Json>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Anchors {
    One(String),
    Several(Vec<String>),
}

impl Message {
    /// What the bytes of a message say.
    ///
    /// # Errors
    /// They are no message.
    pub fn decode(codec: Codec, bytes: &[u8]) -> Result<Self, Garbage> {
        let begin = || excerpt(bytes);
        let raw: Raw = codec.read(bytes).map_err(|error| Garbage::NoMessage { error, begin: begin() })?;
        let Some(command) = raw.command.clone() else {
            return raw
                .pid
                .map(Self::Pid)
                .ok_or_else(|| Garbage::NoMessage { error: "no `command`".to_owned(), begin: begin() });
        };
        let missing = |key| Garbage::Missing { command: command.clone(), key, begin: begin() };
        match command.as_str() {
            "emit" => raw.emit(missing),
            "ack" => raw.tuple_id(&command, missing).map(Self::Ack),
            "fail" => raw.tuple_id(&command, missing).map(Self::Fail),
            "sync" => Ok(Self::Sync),
            "log" => Ok(Self::Log(Level::of(raw.level), raw.msg.ok_or_else(|| missing("msg"))?)),
            "error" => Ok(Self::Error(raw.msg.ok_or_else(|| missing("msg"))?)),
            "metrics" => raw.metrics(missing),
            _ => {
                let command = excerpt(command.as_bytes());
                let nearest = nearest(&command, COMMANDS.iter().copied());
                let nearest = COMMANDS.iter().copied().find(|name| nearest.as_deref() == Some(name));
                Err(Garbage::UnknownCommand { command, nearest })
            }
        }
    }

    /// What it takes while it waits, about.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let content = match self {
            Self::Emit(emit) => emit.values.size_bytes() + emit.stream.len() + 8 * emit.anchors.len() + 64,
            Self::Log(_, text) | Self::Error(text) => text.len(),
            Self::Metrics(reports) => reports.iter().map(|(name, _)| name.len() + 64).sum(),
            _ => 0,
        };
        content + size_of::<Self>()
    }
}

impl Raw {
    fn emit(self, missing: impl Fn(&'static str) -> Garbage) -> Result<Message, Garbage> {
        let values: Vec<Value<'static>> =
            self.tuple.ok_or_else(|| missing("tuple"))?.into_iter().map(|field| field.0).collect();
        let anchors = match self.anchors {
            None => Vec::new(),
            Some(Anchors::One(id)) => vec![tuple_id("emit", "anchors", &id)?],
            Some(Anchors::Several(ids)) => {
                ids.iter().map(|id| tuple_id("emit", "anchors", id)).collect::<Result<_, _>>()?
            }
        };
        let direct =
            match self.task.unwrap_or(0) {
                0 => None,
                task => Some(u32::try_from(task).map(|task| TaskId(task - 1)).map_err(|_| {
                    Garbage::Foreign { command: "emit".to_owned(), key: "task", value: task.to_string() }
                })?),
            };
        Ok(Message::Emit(Emit {
            stream: self.stream.unwrap_or_else(|| topology::definition::DEFAULT_STREAM.to_owned()),
            values: Values::encode(&values).map_err(Garbage::Tuple)?,
            anchors,
            id: self.id,
            direct,
            needs_task_ids: self.need_task_ids.unwrap_or(true),
        }))
    }

    /// Numbers alone: what else a metric of Storm's may have means something to a class of Java.
    fn metrics(self, missing: impl Fn(&'static str) -> Garbage) -> Result<Message, Garbage> {
        let name = self.name.ok_or_else(|| missing("name"))?;
        let reports = match self.params {
            Some(Json::Object(params)) => params
                .iter()
                .filter_map(|(key, value)| Some((format!("{name}.{key}"), value.as_f64()?)))
                .collect(),
            params => {
                params.and_then(|value| value.as_f64()).map(|value| (name, value)).into_iter().collect()
            }
        };
        Ok(Message::Metrics(reports))
    }

    fn tuple_id(&self, command: &str, missing: impl Fn(&'static str) -> Garbage) -> Result<u64, Garbage> {
        match &self.id {
            Some(Json::String(id)) => tuple_id(command, "id", id),
            Some(other) => tuple_id(command, "id", &other.to_string()),
            None => Err(missing("id")),
        }
    }
}

impl Level {
    fn of(level: Option<i64>) -> Self {
        match level {
            Some(0) => Self::Trace,
            Some(1) => Self::Debug,
            Some(3) => Self::Warn,
            Some(4) => Self::Error,
            _ => Self::Info,
        }
    }
}

/// The number under which a child was told a tuple.
fn tuple_id(command: &str, key: &'static str, text: &str) -> Result<u64, Garbage> {
    text.parse().map_err(|_| Garbage::Foreign {
        command: command.to_owned(),
        key,
        value: excerpt(text.as_bytes()),
    })
}

/// The beginning of what somebody sent, for a message.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(EXCERPT_BYTES)];
    String::from_utf8_lossy(cut).trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

const COMMANDS: [&str; 7] = ["emit", "ack", "fail", "sync", "log", "error", "metrics"];
const EXCERPT_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Message::decode(Codec::Json, text.as_bytes()).expect_err("garbage").to_string()
    }

    #[test]
    fn garbage_is_refused_with_what_it_was() {
        assert_eq!(
            refused("hello world\n"),
            "what it wrote to standard output is no message of the protocol (expected value at line 1 column 1): `hello world`"
        );
        assert!(refused("{}").contains("(no `command`): `{}`"));
        assert!(refused("[1, 2]").contains("no message of the protocol"));
        assert_eq!(refused(r#"{"command": "emits"}"#), "unknown command `emits` (did you mean `emit`?)");
        assert!(refused(r#"{"command": "emit"}"#).starts_with("`emit` without `tuple`"));
        assert!(refused(r#"{"command": "ack"}"#).starts_with("`ack` without `id`"));
        assert_eq!(refused(r#"{"command": "ack", "id": "x"}"#), "`ack` with `id` = x, which it was not told");
        assert!(refused(r#"{"command": "emit", "tuple": [{}]}"#).contains("a value of a tuple is no object"));
        assert!(refused(r#"{"command": "emit", "tuple": [], "task": -1}"#).contains("`task` = -1"));
        let lists = format!(r#"{{"command": "emit", "tuple": [{}{}]}}"#, "[".repeat(20), "]".repeat(20));
        assert_eq!(refused(&lists), "it emitted a tuple with lists more than 16 deep");
    }

    #[test]
    fn tuple_has_the_values_that_were_sent() {
        let text = r#"{"command":"emit","tuple":[null,true,-7,1.5,"é",[1,["x"]],18446744073709551615],"stream":"s","anchors":["3","9"],"task":4,"need_task_ids":false,"id":{"a":1}}"#;
        let Ok(Message::Emit(emit)) = Message::decode(Codec::Json, text.as_bytes()) else {
            panic!("a tuple")
        };
        let list = vec![Value::Int(1), Value::List(vec![Value::Str("x".into())])];
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::Int(-7),
            Value::Float(1.5),
            Value::Str("é".into()),
            Value::List(list),
            Value::Float(18446744073709551615.0),
        ];
        assert_eq!(emit.values, Values::encode(&values).unwrap());
        assert_eq!((&*emit.stream, &*emit.anchors, emit.direct), ("s", &[3, 9][..], Some(TaskId(3))));
        assert!(!emit.needs_task_ids && emit.id == Some(serde_json::json!({"a": 1})));
    }

    #[test]
    fn what_is_left_out_is_as_storm_has_it() {
        let text = r#"{"command": "emit", "tuple": [], "anchors": "5"}"#;
        let Ok(Message::Emit(emit)) = Message::decode(Codec::Json, text.as_bytes()) else {
            panic!("a tuple")
        };
        assert_eq!((&*emit.stream, &*emit.anchors, emit.direct), ("default", &[5][..], None));
        assert!(emit.needs_task_ids);
        let log = |text: &str| Message::decode(Codec::Json, text.as_bytes());
        assert_eq!(log(r#"{"command":"log","msg":"m"}"#), Ok(Message::Log(Level::Info, "m".into())));
        assert_eq!(
            log(r#"{"command":"log","msg":"m","level":4}"#),
            Ok(Message::Log(Level::Error, "m".into()))
        );
        assert_eq!(log(r#"{"pid":12}"#), Ok(Message::Pid(12)));
        let metrics = |reports: &[(&str, f64)]| {
            Ok(Message::Metrics(reports.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()))
        };
        assert_eq!(log(r#"{"command":"metrics","name":"n","params":3}"#), metrics(&[("n", 3.0)]));
        let several = r#"{"command":"metrics","name":"n","params":{"a":1.5,"b":"x","c":-2}}"#;
        assert_eq!(log(several), metrics(&[("n.a", 1.5), ("n.c", -2.0)]));
        assert_eq!(log(r#"{"command":"metrics","name":"n"}"#), metrics(&[]));
    }

    #[test]
    fn tuple_in_messagepack_may_have_bytes_and_numbers_that_json_lacks() {
        // {"command": "emit", "tuple": [bin ff, str ff, f32 inf, u64 max], "anchors": ["3"]}
        let bytes = b"\x83\xA7command\xA4emit\xA5tuple\x94\xC4\x01\xFF\xA1\xFF\xCA\x7F\x80\0\0\xCF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xA7anchors\x91\xA13";
        let Ok(Message::Emit(emit)) = Message::decode(Codec::MessagePack, bytes) else { panic!("a tuple") };
        let raw = || Value::Bytes(b"\xFF"[..].into());
        let values = [raw(), raw(), Value::Float(f64::INFINITY), Value::Float(18446744073709551615.0)];
        assert_eq!((emit.values, emit.anchors), (Values::encode(&values).unwrap(), vec![3]));
    }

    #[test]
    fn garbage_in_messagepack_is_refused() {
        let refused =
            |bytes: &[u8]| Message::decode(Codec::MessagePack, bytes).expect_err("garbage").to_string();
        assert!(refused(b"\x80").contains("(no `command`)"));
        let map = refused(b"\x82\xA7command\xA4emit\xA5tuple\x91\x80");
        assert!(map.contains("a value of a tuple is no object"), "{map}");
        let deep = [&b"\x82\xA7command\xA4emit\xA5tuple"[..], &[0x91; 100_000], b"\xC0"].concat();
        assert!(refused(&deep).contains("depth limit exceeded"), "{}", refused(&deep));
        let ext = refused(b"\x82\xA7command\xA4emit\xA5tuple\x91\xD4\x01x");
        assert!(ext.contains("no message of the protocol"), "{ext}");
    }
}
