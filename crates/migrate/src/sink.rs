//! Requests to the server that takes the keys: in batches, several of them under way on each connection.
//!
//! A batch is kept until its replies have come, so that an error is told with the key of its request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use connection::{Client, ClientError};
use resp::Value;

use crate::error::MigrateError;
use crate::options::{Connect, Existing, Import, PARTIAL};
use crate::report::Report;

/// Takes requests.
pub(crate) struct Sink {
    /// None: nothing is sent.
    connections: Vec<Connection>,
    /// The one that takes the next request.
    at: usize,
    /// For questions beside the requests.
    control: Option<Client>,
    /// Whether each of these databases is there.
    databases: BTreeMap<u64, bool>,
    /// The names of the server's commands, in lower case.
    pub(crate) commands: BTreeSet<Vec<u8>>,
    /// Longest value that the server takes.
    pub(crate) value_bytes_max: u64,
    /// How far what the replies have come for reaches, as was [marked](Sink::mark).
    pub(crate) applied: u64,
    pub(crate) report: Report,
}

struct Connection {
    client: Client,
    open: Batch,
    /// The database that the requests so far leave it in.
    db: u64,
    sent: VecDeque<Batch>,
    sent_bytes: usize,
}

/// Requests that are sent together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    count: usize,
    /// The database that it begins in.
    db: u64,
    mark: u64,
}

impl Sink {
    /// One that only counts.
    pub(crate) fn dry() -> Self {
        Self {
            connections: Vec::new(),
            at: 0,
            control: None,
            databases: BTreeMap::new(),
            commands: BTreeSet::new(),
            value_bytes_max: u64::MAX,
            applied: 0,
            report: Report::dry(),
        }
    }

    /// Connects, and looks whether the server is as it should be.
    pub(crate) fn connect(connect: Connect<'_>, options: &Import) -> Result<Self, MigrateError> {
        let mut control = connect()?;
        let keyspace = text_of(control.call(&["INFO", "keyspace"])?);
        if keyspace.lines().any(|line| line.starts_with("db")) {
            match options.existing {
                Existing::Refuse => {
                    return Err(MigrateError::Options(
                        "the server has keys: --replace replaces those that are imported, --skip-existing keeps \
                         what is there, --flush removes all of it first"
                            .to_owned(),
                    ));
                }
                Existing::Flush => _ = control.call(&["FLUSHALL"])?,
                Existing::Replace | Existing::Keep => {}
            }
        }
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let (sent, open) = (VecDeque::new(), Batch::default());
            connections.push(Connection { client: connect()?, open, db: 0, sent, sent_bytes: 0 });
        }
        let names = match control.call(&["COMMAND", "LIST"])? {
            Value::Array(names) | Value::Set(names) => names,
            _ => Vec::new(),
        };
        let name = |value| if let Value::Bulk(name) = value { Some(name.to_ascii_lowercase()) } else { None };
        let commands = names.into_iter().filter_map(name).collect();
        let value_bytes_max = longest_value(&mut control)?;
        Ok(Self {
            connections,
            control: Some(control),
            commands,
            value_bytes_max,
            report: Report::default(),
            ..Self::dry()
        })
    }

    pub(crate) fn into_report(self) -> Report {
        self.report
    }

    /// Whether the server has this database; asked once.
    pub(crate) fn has_db(&mut self, db: u64) -> Result<bool, MigrateError> {
        let Some(control) = &mut self.control else { return Ok(true) };
        if let Some(known) = self.databases.get(&db) {
            return Ok(*known);
        }
        let is_there = match control.call(&["SELECT", &db.to_string()]) {
            Ok(_) => true,
            Err(ClientError::Refused(_)) => false,
            Err(error) => return Err(error.into()),
        };
        self.databases.insert(db, is_there);
        Ok(is_there)
    }

    /// What is added from now on is for this database, which is there.
    pub(crate) fn turn_to(&mut self, db: u64) {
        if let Some(connection) = self.connections.get_mut(self.at).filter(|it| it.db != db) {
            connection.db = db;
            connection.open.add(&[b"SELECT", db.to_string().as_bytes()]);
        }
    }

    /// Nobody knows which database the connection is in after what was added last.
    pub(crate) fn is_lost(&mut self) {
        if let Some(connection) = self.connections.get_mut(self.at) {
            connection.db = u64::MAX;
        }
    }

    /// Adds a request for a database that is there.
    pub(crate) fn request(&mut self, db: u64, words: &[&[u8]]) -> Result<(), MigrateError> {
        self.turn_to(db);
        let Some(connection) = self.connections.get_mut(self.at) else { return Ok(()) };
        connection.open.add(words);
        if connection.open.bytes.len() >= BATCH_BYTES { self.send(self.at) } else { Ok(()) }
    }

    /// Adds so many requests that are encoded.
    pub(crate) fn encoded(&mut self, bytes: &[u8], count: usize) -> Result<(), MigrateError> {
        let Some(connection) = self.connections.get_mut(self.at) else { return Ok(()) };
        connection.open.bytes.extend_from_slice(bytes);
        connection.open.count += count;
        if connection.open.bytes.len() >= BATCH_BYTES { self.send(self.at) } else { Ok(()) }
    }

    /// All requests of a key were added: the next key may go another way.
    pub(crate) fn key_ends(&mut self) -> Result<(), MigrateError> {
        if let Some(connection) = self.connections.get(self.at)
            && connection.open.bytes.len() >= BATCH_BYTES / 2
        {
            self.send(self.at)?;
            self.at = (self.at + 1) % self.connections.len();
        }
        Ok(())
    }

    /// What was added so far reaches up to `mark`.
    pub(crate) fn mark(&mut self, mark: u64) {
        match self.connections.get_mut(self.at) {
            Some(connection) => connection.open.mark = mark,
            None => self.applied = mark,
        }
    }

    fn send(&mut self, at: usize) -> Result<(), MigrateError> {
        let connection = &mut self.connections[at];
        let next = Batch { db: connection.db, mark: connection.open.mark, ..Batch::default() };
        let batch = std::mem::replace(&mut connection.open, next);
        connection.client.send_encoded(&batch.bytes)?;
        connection.sent_bytes += batch.bytes.len();
        connection.sent.push_back(batch);
        while self.connections[at].is_crowded() {
            self.take_replies(at)?;
        }
        Ok(())
    }

    /// Waits for the replies of the oldest batch.
    fn take_replies(&mut self, at: usize) -> Result<(), MigrateError> {
        let connection = &mut self.connections[at];
        let Some(batch) = connection.sent.pop_front() else { return Ok(()) };
        connection.sent_bytes -= batch.bytes.len();
        let (mut requests, mut behind) = (&batch.bytes[..], 0);
        let mut db = batch.db;
        for nth in 0..batch.count {
            let reply = loop {
                if let Some(reply) = connection.client.receive()? {
                    break reply;
                }
            };
            let is_plain = match &reply {
                Value::Simple(_) | Value::Bulk(_) => true,
                Value::Integer(number) => *number != 0,
                _ => false,
            };
            if is_plain {
                continue;
            }
            while behind <= nth {
                let Ok(Some((Value::Array(words), len))) = resp::decode_value(requests) else { break };
                requests = &requests[len..];
                behind += 1;
                let words = words_of(words);
                if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"select")) {
                    db = words.get(1).and_then(|db| std::str::from_utf8(db).ok()?.parse().ok()).unwrap_or(db);
                }
                if behind > nth {
                    told(&mut self.report, db, &words, &reply);
                }
            }
        }
        self.applied = self.applied.max(batch.mark);
        Ok(())
    }

    /// Sends all requests, and waits for all replies.
    pub(crate) fn settle(&mut self) -> Result<(), MigrateError> {
        for at in 0..self.connections.len() {
            if self.connections[at].open.count > 0 {
                self.send(at)?;
            }
        }
        for at in 0..self.connections.len() {
            while !self.connections[at].sent.is_empty() {
                self.take_replies(at)?;
            }
            // also what had nothing to send
            self.applied = self.applied.max(self.connections[at].open.mark);
        }
        Ok(())
    }
}

impl Connection {
    fn is_crowded(&self) -> bool {
        self.sent.len() > BATCHES_MAX || (self.sent.len() > 1 && self.sent_bytes > SENT_BYTES_MAX)
    }
}

impl Batch {
    fn add(&mut self, words: &[&[u8]]) {
        resp::encode_command(&mut self.bytes, words);
        self.count += 1;
    }
}

/// Notes a reply that may tell of a failure.
fn told(report: &mut Report, db: u64, words: &[Vec<u8>], reply: &Value) {
    let (Some(command), key) = (words.first(), words.get(1).map_or(&[][..], |key| key)) else { return };
    let key = key.strip_prefix(PARTIAL).unwrap_or(key);
    let is = |name: &[u8]| command.eq_ignore_ascii_case(name);
    match reply {
        // SET NX
        Value::Null if is(b"set") => report.existing(),
        Value::Integer(0) if is(b"renamenx") => report.existing(),
        Value::Error(text) if is(b"restore") && text.starts_with(b"BUSYKEY") => report.existing(),
        Value::Error(text) if is(b"function") && text.ends_with(b"already exists") => {
            report.note(format!("{}: it is kept", String::from_utf8_lossy(text)));
        }
        Value::Error(text) => {
            let text = String::from_utf8_lossy(text);
            // what was loaded is told by its key, what was replayed by its command
            let is_load = [&b"set"[..], b"restore", b"rename", b"renamenx"].iter().any(|name| is(name));
            if is_load || words.get(1).is_some_and(|key| key.starts_with(PARTIAL)) {
                report.failed(db, key, &text);
            } else {
                report.refused(command, &text);
            }
        }
        // EXEC
        Value::Array(replies) => {
            for reply in replies {
                if let Value::Error(text) = reply {
                    report.refused(command, &String::from_utf8_lossy(text));
                }
            }
        }
        Value::Null if is(b"exec") => report.refused(command, "nothing was executed"),
        _ => {}
    }
}

fn words_of(values: Vec<Value>) -> Vec<Vec<u8>> {
    let word = |value| if let Value::Bulk(word) = value { word } else { Vec::new() };
    values.into_iter().map(word).collect()
}

pub(crate) fn text_of(value: Value) -> String {
    match value {
        Value::Bulk(text) | Value::Simple(text) | Value::Verbatim { text, .. } => {
            String::from_utf8_lossy(&text).into_owned()
        }
        _ => String::new(),
    }
}

/// The setting `value.max` of the server, if it has one.
fn longest_value(control: &mut Client) -> Result<u64, MigrateError> {
    let answer = match control.call(&["CONFIG", "GET", "value.max"]) {
        Ok(Value::Array(words)) => words_of(words),
        Ok(Value::Map(pairs)) => {
            words_of(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect())
        }
        Ok(_) | Err(ClientError::Refused(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let text = answer.get(1).map_or_else(String::new, |text| String::from_utf8_lossy(text).into_owned());
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Ok(u64::MAX),
    };
    Ok(text[..digits].parse::<u64>().map_or(u64::MAX, |number| number.saturating_mul(unit)))
}

/// Loops of the server that take keys at once.
const CONNECTIONS: usize = 4;
const BATCH_BYTES: usize = 128 << 10;
/// Of a connection.
const BATCHES_MAX: usize = 8;
const SENT_BYTES_MAX: usize = 8 << 20;
