//! The keys of a running server as a file that Redis loads.
//!
//! SCAN tells the keys, DUMP and PEXPIRETIME what each has: a key is as it was at one moment, and different keys at different ones.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clock::{Clock, SystemClock};
use connection::{Client, ClientError};
use rdb::{FileWriter, Kind, Limits};
use resp::Value;

use crate::error::MigrateError;
use crate::load::body;
use crate::options::{Connect, Control};
use crate::sink::text_of;

/// What was written, and what not.
#[derive(Debug, Default)]
pub struct Exported {
    /// Keys in the file.
    pub keys: u64,
    /// Libraries of functions in it.
    pub libraries: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Keys that are not in it, with the reason.
    pub failed: Vec<(u64, Vec<u8>, String)>,
    /// Hashes in it without the deadlines of their fields.
    pub untimed: Vec<(u64, Vec<u8>)>,
}

/// Which servers are to load the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Redis from 7.0 on, and Valkey: fields of hashes have no deadlines.
    Plain,
    /// Redis from 7.4 on alone: fields keep their deadlines.
    Timed,
}

/// Writes all keys to `path`, which appears once it is whole.
///
/// # Errors
/// No server, or no file.
pub fn export(
    path: &Path,
    kind: FileKind,
    connect: Connect<'_>,
    control: &Control<'_>,
) -> Result<Exported, MigrateError> {
    let failed = |error: std::io::Error| MigrateError::Input(format!("{}: {error}", path.display()));
    let mut client = connect()?;
    let partial = partial_path(path);
    let file = create(&partial).map_err(failed)?;
    let version = if kind == FileKind::Timed { rdb::VERSION_TIMED } else { rdb::VERSION };
    let notes = [("redis-ver", "7.0.0"), ("redis-bits", "64")];
    let writer = FileWriter::begin(BufWriter::new(file), version, &notes).map_err(failed)?;
    let mut run = Run { writer, kind, control, done: Exported::default(), told: SystemClock.now() };
    let written = run.all(&mut client).and_then(|()| {
        run.done.bytes = run.writer.bytes() + 9;
        let mut out = run.writer.finish().map_err(failed)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
        rename(&partial, path).map_err(failed)
    });
    if written.is_err() {
        remove(&partial);
    }
    written.map(|()| run.done)
}

struct Run<'a> {
    writer: FileWriter<BufWriter<File>>,
    kind: FileKind,
    control: &'a Control<'a>,
    done: Exported,
    told: clock::Nanos,
}

impl Run<'_> {
    fn all(&mut self, client: &mut Client) -> Result<(), MigrateError> {
        self.libraries(client)?;
        let keyspace = text_of(client.call(&["INFO", "keyspace"])?);
        let number = |line: &str| line.strip_prefix("db")?.split(':').next()?.parse::<u64>().ok();
        for db in keyspace.lines().filter_map(number) {
            client.call(&["SELECT", &db.to_string()])?;
            let mut cursor = b"0".to_vec();
            loop {
                let answer = client.call_bytes(&[b"SCAN", &cursor, b"COUNT", COUNT])?;
                let (next, keys) = page_of(answer)?;
                // a key is at one place of the walk for ever: none is told twice, which Redis would refuse
                self.page(db, &keys, client)?;
                self.tell()?;
                cursor = next;
                if cursor == b"0" {
                    break;
                }
            }
        }
        Ok(())
    }

    fn libraries(&mut self, client: &mut Client) -> Result<(), MigrateError> {
        let answer = match client.call(&["FUNCTION", "LIST", "WITHCODE"]) {
            Ok(Value::Array(libraries)) => libraries,
            Ok(_) | Err(ClientError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for library in answer {
            let words = match library {
                Value::Array(words) => words,
                Value::Map(pairs) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
                _ => continue,
            };
            let is_code = |pair: &&[Value]| matches!(&pair[0], Value::Bulk(name) if name == b"library_code");
            if let Some([_, Value::Bulk(code)]) = words.chunks_exact(2).find(is_code) {
                self.writer.functions(code).map_err(|error| MigrateError::Input(error.to_string()))?;
                self.done.libraries += 1;
            }
        }
        Ok(())
    }

    fn page(&mut self, db: u64, keys: &[Vec<u8>], client: &mut Client) -> Result<(), MigrateError> {
        for some in keys.chunks(UNDER_WAY_MAX) {
            let mut requests = Vec::new();
            for key in some {
                resp::encode_command(&mut requests, &[b"PEXPIRETIME", &key[..]]);
                resp::encode_command(&mut requests, &[b"DUMP", &key[..]]);
            }
            client.send_encoded(&requests)?;
            for key in some {
                let expiry = reply(client)?;
                let expires_ms =
                    if let Value::Integer(ms @ 0..) = expiry { Some(ms.unsigned_abs()) } else { None };
                match reply(client)? {
                    Value::Bulk(payload) => self.key(db, key, expires_ms, &payload)?,
                    Value::Error(text) => {
                        self.fail(db, key, &String::from_utf8_lossy(&text));
                    }
                    // it is gone
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn key(
        &mut self,
        db: u64,
        key: &[u8],
        expires_ms: Option<u64>,
        payload: &[u8],
    ) -> Result<(), MigrateError> {
        let Some((value, version)) = rdb::verify(payload) else {
            self.fail(db, key, "Redis cannot hold it: a stream whose entries have names, or were given back");
            return Ok(());
        };
        let plain;
        let value = if version > rdb::VERSION && self.kind == FileKind::Plain {
            self.done.untimed.push((db, key.to_vec()));
            plain = untimed(value, version);
            match &plain {
                Some(plain) => &plain[..],
                None => {
                    self.fail(db, key, "its payload is not understood");
                    return Ok(());
                }
            }
        } else {
            value
        };
        self.done.keys += 1;
        let written = self.writer.key(db, key, expires_ms, value);
        written.map_err(|error| MigrateError::Input(error.to_string()))
    }

    fn fail(&mut self, db: u64, key: &[u8], why: &str) {
        self.done.failed.push((db, key.to_vec(), why.to_owned()));
    }

    fn tell(&mut self) -> Result<(), MigrateError> {
        if self.control.is_over() {
            return Err(MigrateError::Told("there is no file".to_owned()));
        }
        let now = SystemClock.now();
        if now.since(self.told).as_secs() >= 1 {
            self.told = now;
            (self.control.tell)(&format!("{} keys, {} MiB", self.done.keys, self.writer.bytes() >> 20));
        }
        Ok(())
    }
}

fn reply(client: &mut Client) -> Result<Value, MigrateError> {
    loop {
        if let Some(reply) = client.receive()? {
            return Ok(reply);
        }
    }
}

/// A hash without the deadlines of its fields.
fn untimed(value: &[u8], version: u16) -> Option<Vec<u8>> {
    let mut reading = rdb::read_payload(value, version, Limits::default()).ok()?;
    let mut parts = Vec::new();
    while let Some(part) = reading.next_part().ok()? {
        parts.push(part);
    }
    Some(body(Kind::Hash, parts, false)?.0)
}

/// Cursor and keys in an answer of SCAN.
fn page_of(answer: Value) -> Result<(Vec<u8>, Vec<Vec<u8>>), MigrateError> {
    if let Value::Array(parts) = answer
        && let Ok([Value::Bulk(cursor), Value::Array(keys)]) = <[Value; 2]>::try_from(parts)
    {
        let name = |value| if let Value::Bulk(name) = value { Some(name) } else { None };
        return Ok((cursor, keys.into_iter().filter_map(name).collect()));
    }
    Err(MigrateError::Source("SCAN answered something else".to_owned()))
}

fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

#[expect(clippy::disallowed_methods, reason = "a user's file, outside of the data that a simulation owns")]
fn create(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // it has all that the server has
    File::options().write(true).create(true).truncate(true).mode(0o640).open(path)
}

#[expect(clippy::disallowed_methods, reason = "as above")]
fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::rename(from, to)
}

#[expect(clippy::disallowed_methods, reason = "as above")]
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

const COUNT: &[u8] = b"1000";
/// Payloads that are asked for at once: the server holds no more of them.
const UNDER_WAY_MAX: usize = 64;
