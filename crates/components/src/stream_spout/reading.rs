//! What a consumer of a group asks for, one request after the other; no I/O.
//!
//! ```text
//!  Group -> Own (after the last id, until there is none) -> Claim (until the cursor is 0-0) -> New
//!    ^ the server refuses, or another connection                 ^ --claim-after-ms have passed |
//! ```

use std::time::Duration;

use clock::Nanos;
use connection::Loss;
use resp::Value as Reply;

use super::count::{self, Count};
use super::entries::{self, Fields};

/// A consumer.
#[derive(Debug)]
pub(super) struct Reading {
    key: String,
    group: String,
    consumer: String,
    from: String,
    count: Count,
    claim_after: Duration,
    phase: Phase,
    /// The highest new entry that was read; 0 if there was none yet.
    last: u128,
    /// When entries of others were claimed last.
    claimed: Option<Nanos>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Group,
    /// What it had before, after this id.
    Own(u128),
    /// What others had, from this cursor on.
    Claim(String),
    New,
}

/// What a reply has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) entries: Vec<(u128, Fields)>,
    /// Entries that were pending and are not in the stream any more.
    pub(super) deleted: Vec<u128>,
}

impl Reading {
    pub(super) fn new(
        key: &str,
        group: &str,
        consumer: &str,
        from: &str,
        count: usize,
        claim_after: Duration,
    ) -> Self {
        let [key, group, consumer, from] = [key, group, consumer, from].map(str::to_owned);
        let (count, phase) = (Count::new(count), Phase::Group);
        Self { key, group, consumer, from, count, claim_after, phase, last: 0, claimed: None }
    }

    /// There is another connection: replies of the one before may be lost, and with them entries that this consumer has now.
    pub(super) fn restart(&mut self) {
        self.phase = Phase::Group;
    }

    /// The connection was lost, maybe for what it was asked.
    pub(super) fn on_lost(&mut self, loss: &Loss) {
        if matches!(loss, Loss::ReplyTooLong { .. }) {
            self.count.on_too_large();
        }
    }

    /// Appends the next request, whose reply is to be told.
    pub(super) fn request(&mut self, now: Nanos, out: &mut Vec<u8>) {
        let is_due = self.claimed.is_none_or(|claimed| now.since(claimed) >= self.claim_after);
        if self.phase == Phase::New && is_due {
            self.phase = Phase::Claim("0-0".to_owned());
            self.claimed = Some(now);
        }
        let Self { key, group, consumer, from, .. } = self;
        let count = &self.count.text();
        let read = ["XREADGROUP", "GROUP", group, consumer, "COUNT", count];
        match &self.phase {
            Phase::Group => resp::encode_command(out, &["XGROUP", "CREATE", key, group, from, "MKSTREAM"]),
            Phase::Own(after) => {
                let after = entries::shown(*after);
                resp::encode_command(out, &[&read[..], &["STREAMS", key, &after]].concat());
            }
            Phase::Claim(cursor) => {
                let idle_ms = self.claim_after.as_millis().to_string();
                let words = ["XAUTOCLAIM", key, group, consumer, &idle_ms, cursor, "COUNT", count];
                resp::encode_command(out, &words);
            }
            Phase::New => {
                resp::encode_command(out, &[&read[..], &["BLOCK", BLOCK_MS, "STREAMS", key, ">"]].concat());
            }
        }
    }

    /// What the reply to the last request has.
    ///
    /// # Errors
    /// The server refused it. The next request begins with the group.
    pub(super) fn on_reply(&mut self, reply: Reply) -> Result<Found, String> {
        if let Reply::Error(text) = &reply {
            if self.phase != Phase::Group && count::is_too_large(text) {
                if self.count.on_too_large() {
                    return Ok(Found::default());
                }
                let last = match &self.phase {
                    Phase::Own(last) => entries::shown(*last),
                    Phase::Claim(cursor) => cursor.clone(),
                    Phase::Group | Phase::New => entries::shown(self.last),
                };
                return Err(count::alone(&self.key, &last, text));
            }
            let was_group = std::mem::replace(&mut self.phase, Phase::Group) == Phase::Group;
            if was_group && text.starts_with(b"BUSYGROUP") {
                self.phase = Phase::Own(0);
                return Ok(Found::default());
            }
            let text = String::from_utf8_lossy(text);
            return Err(format!("the server refused to read `{}`: {text}", self.key));
        }
        if self.phase != Phase::Group {
            self.count.on_taken();
        }
        match self.phase {
            Phase::Group => {
                self.phase = Phase::Own(0);
                Ok(Found::default())
            }
            Phase::Own(_) => {
                let found = of_stream(reply)?;
                let last = found.entries.iter().map(|(id, _)| *id).chain(found.deleted.iter().copied()).max();
                self.phase = last.map_or(Phase::New, Phase::Own);
                Ok(found)
            }
            Phase::Claim(_) => {
                let (cursor, found) = of_claim(reply)?;
                self.phase = if cursor == "0-0" { Phase::New } else { Phase::Claim(cursor) };
                Ok(found)
            }
            Phase::New => {
                let found = of_stream(reply)?;
                self.last = found.entries.last().map_or(self.last, |(id, _)| *id);
                Ok(found)
            }
        }
    }
}

/// The reply of XREADGROUP for one stream.
pub(super) fn of_stream(reply: Reply) -> Result<Found, String> {
    let streams = match reply {
        Reply::Null => return Ok(Found::default()),
        Reply::Array(streams) => streams,
        other => return Err(strange(&other)),
    };
    let Some(Reply::Array(stream)) = streams.into_iter().next() else { return Ok(Found::default()) };
    let Ok([_, Reply::Array(entries)]) = <[Reply; 2]>::try_from(stream) else {
        return Err(strange(&Reply::Null));
    };
    of_entries(entries)
}

/// The reply of XAUTOCLAIM: a cursor, entries, and ids of what was deleted, which is pending nowhere any more.
fn of_claim(reply: Reply) -> Result<(String, Found), String> {
    let Reply::Array(parts) = reply else { return Err(strange(&reply)) };
    let mut parts = parts.into_iter();
    let (Some(Reply::Bulk(cursor)), Some(Reply::Array(entries))) = (parts.next(), parts.next()) else {
        return Err(strange(&Reply::Null));
    };
    Ok((String::from_utf8_lossy(&cursor).into_owned(), of_entries(entries)?))
}

fn of_entries(entries: Vec<Reply>) -> Result<Found, String> {
    let mut found = Found::default();
    for entry in entries {
        let Reply::Array(entry) = entry else { continue }; // older servers tell what was deleted as nothing
        let Ok([Reply::Bulk(id), fields]) = <[Reply; 2]>::try_from(entry) else {
            return Err(strange(&Reply::Null));
        };
        let id = entries::number(&id).ok_or_else(|| strange(&Reply::Bulk(id)))?;
        match fields {
            Reply::Array(fields) => found.entries.push((id, pairs(fields)?)),
            _ => found.deleted.push(id),
        }
    }
    Ok(found)
}

fn pairs(fields: Vec<Reply>) -> Result<Fields, String> {
    let (mut pairs, mut fields) = (Vec::with_capacity(fields.len() / 2), fields.into_iter());
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        match (name, value) {
            (Reply::Bulk(name), Reply::Bulk(value)) => pairs.push((name, value)),
            (other, _) => return Err(strange(&other)),
        }
    }
    Ok(pairs)
}

fn strange(reply: &Reply) -> String {
    let mut text = format!("the server answered something else than entries: {reply:?}");
    text.truncate(text.floor_char_boundary(200));
    text
}

/// How long the server waits for a new entry: less than the time that the connection has for an answer.
pub(super) const BLOCK_MS: &str = "5000";

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        Reading::new("orders", "g", "c", "0", 2, Duration::from_secs(10))
    }

    /// The next request, in words.
    fn request(reading: &mut Reading, seconds: u64) -> String {
        let mut out = Vec::new();
        reading.request(Nanos(seconds * 1_000_000_000), &mut out);
        let Ok(Some((Reply::Array(words), _))) = resp::decode_value(&out) else { panic!("a request") };
        let word = |word: &Reply| match word {
            Reply::Bulk(word) => String::from_utf8_lossy(word).into_owned(),
            other => panic!("{other:?}"),
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn told(reading: &mut Reading, reply: &str) -> Result<Vec<u128>, String> {
        let (reply, _) = resp::decode_value(reply.as_bytes()).expect("a reply").expect("all of it");
        let found = reading.on_reply(reply)?;
        Ok(found.entries.iter().map(|(id, _)| *id).chain(found.deleted).collect())
    }

    const ENTRIES: &str = "*1\r\n*2\r\n$6\r\norders\r\n*2\r\n*2\r\n$3\r\n0-5\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\n0-7\r\n*-1\r\n";

    #[test]
    fn own_entries_come_first_then_those_of_others_then_new_ones() {
        let mut reading = reading();
        assert_eq!(request(&mut reading, 0), "XGROUP CREATE orders g 0 MKSTREAM");
        assert_eq!(told(&mut reading, "-BUSYGROUP it is there\r\n"), Ok(vec![]));
        assert_eq!(request(&mut reading, 0), "XREADGROUP GROUP g c COUNT 2 STREAMS orders 0-0");
        assert_eq!(told(&mut reading, ENTRIES), Ok(vec![5, 7]), "one of them was deleted");
        assert_eq!(request(&mut reading, 0), "XREADGROUP GROUP g c COUNT 2 STREAMS orders 0-7");
        assert_eq!(told(&mut reading, "*1\r\n*2\r\n$6\r\norders\r\n*0\r\n"), Ok(vec![]));
        assert_eq!(request(&mut reading, 0), "XAUTOCLAIM orders g c 10000 0-0 COUNT 2");
        let claimed = "*3\r\n$3\r\n0-9\r\n*1\r\n*2\r\n$3\r\n0-8\r\n*0\r\n*0\r\n";
        assert_eq!(told(&mut reading, claimed), Ok(vec![8]));
        assert_eq!(request(&mut reading, 0), "XAUTOCLAIM orders g c 10000 0-9 COUNT 2");
        assert_eq!(told(&mut reading, "*3\r\n$3\r\n0-0\r\n*0\r\n*0\r\n"), Ok(vec![]));
        let new = "XREADGROUP GROUP g c COUNT 2 BLOCK 5000 STREAMS orders >";
        assert_eq!((request(&mut reading, 9), told(&mut reading, "*-1\r\n")), (new.to_owned(), Ok(vec![])));
        assert_eq!(request(&mut reading, 10), "XAUTOCLAIM orders g c 10000 0-0 COUNT 2");
    }

    #[test]
    fn group_that_is_gone_is_made_again_and_another_connection_reads_what_was_lost() {
        let mut reading = reading();
        reading.phase = Phase::New;
        let error = told(&mut reading, "-NOGROUP no such group\r\n").expect_err("refused");
        assert_eq!(error, "the server refused to read `orders`: NOGROUP no such group");
        assert!(request(&mut reading, 0).starts_with("XGROUP CREATE"));
        assert_eq!(told(&mut reading, "+OK\r\n"), Ok(vec![]));
        reading.phase = Phase::New;
        reading.restart();
        assert!(request(&mut reading, 0).starts_with("XGROUP CREATE"));
    }

    /// The same was asked again, once a second, and refused each time.
    #[test]
    fn reply_that_is_too_large_is_asked_for_in_halves_and_one_entry_that_is_alone_is_named() {
        let mut reading = Reading::new("orders", "g", "c", "0", 4, Duration::from_secs(10));
        (reading.phase, reading.claimed) = (Phase::New, Some(Nanos(0)));
        const TOO_LARGE: &str =
            "-ERR the values of this command are more than 9 B to read: ask for fewer at once\r\n";
        for count in [4, 2] {
            let asked = format!("XREADGROUP GROUP g c COUNT {count} BLOCK 5000 STREAMS orders >");
            assert_eq!(request(&mut reading, 0), asked);
            assert_eq!(told(&mut reading, TOO_LARGE), Ok(vec![]), "fewer are asked for at once");
        }
        assert!(request(&mut reading, 0).contains("COUNT 1 "));
        assert_eq!(told(&mut reading, ENTRIES), Ok(vec![5, 7]));
        assert!(request(&mut reading, 0).contains("COUNT 2 "), "one more");
        assert_eq!(told(&mut reading, TOO_LARGE), Ok(vec![]));
        let error = told(&mut reading, TOO_LARGE).expect_err("it is alone");
        assert!(error.starts_with("the entry behind 0-5 of `orders` is too large"), "{error}");
        assert!(error.contains("more than 9 B"), "{error}");
        assert!(request(&mut reading, 0).contains("COUNT 1 "), "it goes on where it was");
        reading.count.on_taken();
        reading.on_lost(&Loss::Ended { target: "x".to_owned(), why: "the server closed it".to_owned() });
        assert!(request(&mut reading, 0).contains("COUNT 2 "));
        reading.on_lost(&Loss::ReplyTooLong { target: "x".to_owned(), bytes_max: 9 });
        assert!(request(&mut reading, 0).contains("COUNT 1 "));
    }

    #[test]
    fn strange_replies_are_errors() {
        for reply in
            [":1\r\n", "*1\r\n*1\r\n$1\r\nk\r\n", "*1\r\n*2\r\n$1\r\nk\r\n*1\r\n*2\r\n$1\r\nx\r\n*0\r\n"]
        {
            let mut reading = reading();
            reading.phase = Phase::New;
            let error = told(&mut reading, reply).expect_err(reply);
            assert!(error.contains("something else than entries"), "{error}");
        }
    }
}
