//! `evenkeel topology replay`: sends dead letters back to the stream that they came from.
//!
//! A letter is appended to its stream as a new entry and removed by one script: after a crash it is in one of both. Those that come meanwhile, such as
//! a tuple that dies again, are left alone.

use connection::Client;
use resp::Value;

use super::arguments::Replay;
use super::text::counted;
use crate::failure::Failure;
use crate::reply::{field, items, told};

/// What has become of letters.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    /// They do not match.
    others: u64,
    /// They are commands that the server refused, and no tuples.
    commands: u64,
    /// They do not say where they came from.
    homeless: u64,
}

/// Sends letters back; what has become of them, in words.
///
/// # Errors
/// One line: what the server says. What was sent until then is sent.
pub(super) fn run(server: &mut Client, replay: &Replay) -> Result<String, Failure> {
    let keys = keys(server, replay)?;
    if keys.is_empty() {
        return Err(Failure::Refused(format!(
            "{} keeps no dead letters: its stream-spouts have no --dead-letter",
            replay.letters
        )));
    }
    let (mut tally, mut were_any) = (Tally::default(), false);
    for key in &keys {
        were_any |= send_all(server, replay, key, &mut tally)?;
    }
    if !were_any {
        let keys: Vec<_> = keys.iter().map(|key| format!("`{}`", String::from_utf8_lossy(key))).collect();
        return Ok(format!("there are no letters in {}\n", keys.join(", ")));
    }
    Ok(tally.shown(replay))
}

/// The streams that have the letters.
fn keys(server: &mut Client, replay: &Replay) -> Result<Vec<Vec<u8>>, Failure> {
    if !replay.dead_letter {
        return Ok(vec![replay.letters.clone().into_bytes()]);
    }
    let topology = server.call_bytes(&[b"TOPOLOGY", b"SHOW", replay.letters.as_bytes()])?;
    Ok(items(field(&topology, "dead_letters")).iter().map(|key| bytes(key).to_vec()).collect())
}

/// Sends those of one stream; whether there are any.
fn send_all(server: &mut Client, replay: &Replay, key: &[u8], tally: &mut Tally) -> Result<bool, Failure> {
    let newest = server.call_bytes(&[b"XREVRANGE", key, b"+", b"-", b"COUNT", b"1"])?;
    let Some(last) = items(&newest).first().and_then(id) else { return Ok(false) };
    let mut from = b"-".to_vec();
    loop {
        let letters = server.call_bytes(&[b"XRANGE", key, &from, &last, b"COUNT", BATCH])?;
        let Some(end) = items(&letters).last().and_then(id) else { break };
        for letter in items(&letters) {
            if tally.sent < replay.count {
                send(server, replay, key, letter, tally)?;
            }
        }
        from = [b"(", &end[..]].concat();
        if end == last || tally.sent >= replay.count {
            break;
        }
    }
    Ok(true)
}

/// Sends one letter of the stream at `key`, if it is one that is to be sent.
fn send(
    server: &mut Client,
    replay: &Replay,
    key: &[u8],
    letter: &Value,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let ([Value::Bulk(id), fields] | [Value::Bulk(id), fields, ..]) = items(letter) else { return Ok(()) };
    let is_meant = |name: &str, wanted: &Option<String>| {
        wanted.as_ref().is_none_or(|wanted| told(fields, name).contains(wanted))
    };
    if !is_meant("error", &replay.error) || !is_meant("component", &replay.component) {
        tally.others += 1;
        return Ok(());
    }
    let values = values(fields);
    if values.is_empty() {
        tally.commands += 1;
        return Ok(());
    }
    let to = replay.to.clone().map_or_else(|| bytes(field(fields, "stream")).to_vec(), String::into_bytes);
    if to.is_empty() {
        tally.homeless += 1;
        return Ok(());
    }
    tally.sent += 1;
    if replay.dry_run {
        return Ok(());
    }
    let words = [b"EVAL", MOVE, b"2", key, &to, id];
    server.call_bytes(&[&words[..], &values].concat())?;
    Ok(())
}

/// Names and values of the entry that a letter was.
fn values(fields: &Value) -> Vec<&[u8]> {
    let pairs = items(fields)
        .chunks_exact(2)
        .filter_map(|pair| Some((bytes(&pair[0]).strip_prefix(FIELD)?, &pair[1])));
    pairs.flat_map(|(name, value)| [name, bytes(value)]).collect()
}

fn id(entry: &Value) -> Option<Vec<u8>> {
    items(entry).first().map(|id| bytes(id).to_vec())
}

fn bytes(value: &Value) -> &[u8] {
    if let Value::Bulk(bytes) = value { bytes } else { b"" }
}

impl Tally {
    fn shown(&self, replay: &Replay) -> String {
        let Self { sent, others, commands, homeless } = self;
        let would = if replay.dry_run { " would be" } else { "" };
        let mut text = format!("{}{would} sent back\n", counted(*sent, "letter"));
        for (count, why) in [
            (others, "do not match"),
            (commands, "are commands, not tuples"),
            (homeless, "do not say where they came from: name the stream with --to"),
        ] {
            if *count > 0 {
                text += &format!("{} left: they {why}\n", counted(*count, "letter"));
            }
        }
        text
    }
}

const BATCH: &[u8] = b"100";
/// Appends an entry, and removes the letter; if that stream is none, nothing happens.
const MOVE: &[u8] =
    b"redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2)) return redis.call('XDEL', KEYS[1], ARGV[1])";
/// What the fields of a tuple begin with in a letter.
const FIELD: &[u8] = b"field:";
