//! CAPTURE: what is recorded, what never is, who gets it, and what becomes of what nobody takes.

use std::sync::Arc;
use std::time::Duration;

use capture::{Argument, Capture, Ending, FAILED, QUEUED, decode};
use resp::{Value, decode_value};

use super::{Harness, Wire};
use crate::settings::Connector;
use crate::turn;

/// The bulk strings in `bytes`, together: a file.
fn file(bytes: &[u8]) -> Vec<u8> {
    let (mut rest, mut file) = (bytes, Vec::new());
    while let Some((value, length)) = decode_value(rest).expect("RESP") {
        if let Value::Bulk(chunk) = value {
            file.extend(chunk);
        }
        rest = &rest[length..];
    }
    file
}

fn start(harness: &Harness, wire: &mut Wire, options: &str) -> Vec<u8> {
    harness.feed(wire, format!("CAPTURE START{options}\r\n").as_bytes())
}

/// Stops it from elsewhere; returns the file.
fn stop(harness: &mut Harness, wire: &mut Wire, mut begun: Vec<u8>) -> Vec<u8> {
    let mut other = harness.connect();
    harness.expect(&mut other, &[("CAPTURE STOP", "+OK\r\n")]);
    begun.extend(harness.deliver(wire));
    file(&begun)
}

/// Each record: its command, flags and arguments.
fn records<'a>(capture: &Capture<'a>) -> Vec<(&'a str, u8, Vec<Argument<'a>>)> {
    let records = capture.turns.iter().flat_map(|turn| turn.records().map(|(_, record)| record));
    let shown = |record: capture::Record<'a>| {
        let name = capture.commands[usize::from(record.command)].name;
        (name, record.flags, record.arguments().collect())
    };
    records.map(shown).collect()
}

#[test]
fn requests_are_recorded_with_sizes_hashes_and_hits_and_without_what_they_hold() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let begun = start(&harness, &mut wire, "");
    harness.feed(&mut client, b"SET secretkey privatevalue EX 100\r\nGET secretkey\r\nGET otherkey\r\n");
    harness.expect(&mut client, &[("MULTI", "+OK\r\n"), ("INCR n", "+QUEUED\r\n"), ("EXEC", "*1\r\n:1\r\n")]);
    harness.line(&mut client, "GET a b");
    harness.line(&mut client, "CAPTURE HELP");
    harness.line(&mut client, "NOSUCH privatevalue");
    let file = stop(&mut harness, &mut wire, begun);
    for private in [&b"secretkey"[..], b"privatevalue", b"otherkey"] {
        assert!(!file.windows(private.len()).any(|part| part == private), "{private:?}");
    }
    let capture = decode(&file).expect("a file");
    assert_eq!((capture.stopped, capture.dropped), (None, 0));
    let records = records(&capture);
    let names: Vec<_> = records.iter().map(|(name, flags, _)| (*name, *flags)).collect();
    let wanted =
        [("set", 0), ("get", 0), ("get", 0), ("multi", 0), ("incr", QUEUED), ("exec", 0), ("get", FAILED)];
    assert_eq!(names, wanted);
    let [Argument::Hashed(9, key), Argument::Sized(12), Argument::Full(b"EX"), Argument::Full(b"100")] =
        records[0].2[..]
    else {
        panic!("{:?}", records[0])
    };
    assert_eq!(records[1].2, [Argument::Hashed(9, key)], "the same key, the same hash");
    assert_ne!(records[2].2, [Argument::Hashed(8, key)]);
    let turn = capture.turns[0];
    let reads: Vec<_> = turn.records().map(|(_, r)| (r.hits, r.misses, r.reply_bytes)).collect();
    assert_eq!(reads[1..], [(1, 0, 19), (0, 1, 5)]);
    assert_eq!(turn.connection, 2);
    assert_eq!(capture.end.expect("ended").records, 7);
}

#[test]
fn hash_of_a_key_is_the_same_wherever_it_stands_and_another_one_in_the_next_capture() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let begun = start(&harness, &mut wire, "");
        harness.feed(&mut client, b"GET k\r\n");
        harness.feed(&mut client, b"GET k\r\nMGET a k\r\nMSET k 1 b 2\r\n");
        let file = stop(&mut harness, &mut wire, begun);
        let records = records(&decode(&file).expect("a file"));
        let first @ Argument::Hashed(1, hash) = records[0].2[0] else { panic!("{:?}", records[0]) };
        assert_eq!([records[1].2[0], records[2].2[1], records[3].2[0]], [first; 3]);
        hashes.push(hash);
    }
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn passwords_are_never_recorded_also_where_all_values_are() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let begun = start(&harness, &mut wire, " KEYS PLAIN VALUES");
    for line in [
        "AUTH sesame",
        "AUTH default sesame",
        "HELLO 2 AUTH default sesame",
        "CONFIG SET requirepass sesame",
        "AUTH wrong sesame sesame",
        // Not what was meant, and refused; this one was in the file once, for it is the fourth word.
        "CONFIG SET maxmemory requirepass sesame",
        "CONFIG SET requirepass open sesame",
        "HELLO 3 AUTH default open sesame",
        "AUHT sesame",
    ] {
        harness.line(&mut client, line);
    }
    let mut stranger = harness.connect();
    harness.line(&mut stranger, "AUTH sesame2");
    harness.line(&mut client, "MULTI");
    harness.line(&mut client, "CONFIG SET requirepass sesame");
    harness.line(&mut client, "SET key value");
    let mut begun = begun;
    harness.line(&mut client, "EXEC");
    harness.expect(&mut client, &[("CAPTURE STOP", "+OK\r\n")]);
    begun.extend(harness.deliver(&mut wire));
    let file = file(&begun);
    assert!(!file.windows(6).any(|part| part == b"sesame"));
    let capture = decode(&file).expect("a file");
    let records = records(&capture);
    assert!(records.iter().any(|record| record.2 == [Argument::Key(b"key"), Argument::Full(b"value")]));
    let secrets = records.iter().flat_map(|record| &record.2).filter(|one| **one == Argument::Secret).count();
    assert_eq!(secrets, 1 + 2 + 2 + 1 + 3 + 1 + 2 + 3 + 1 + 1, "told that there was one");
}

#[test]
fn second_capture_is_refused_until_the_first_has_ended() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    let begun = start(&harness, &mut wire, "");
    assert!(begun.starts_with(b"$"));
    let refusal = "-ERR client 1 captures already: CAPTURE STOP ends that\r\n";
    harness.expect(&mut other, &[("CAPTURE START", refusal)]);
    harness
        .expect(&mut other, &[("CAPTURE STOP", "+OK\r\n"), ("CAPTURE STOP", "-ERR nothing is captured\r\n")]);
    assert!(start(&harness, &mut other, "").starts_with(b"$"));
    let stopped = harness.line(&mut wire, "CAPTURE STOP");
    assert!(stopped.starts_with("+OK\r\n$"), "the end of its own is there with the reply: {stopped}");
    assert!(start(&harness, &mut other, "").starts_with(b"-ERR client 2 "), "its end is still to come");
    harness.deliver(&mut other);
    harness.deliver(&mut wire);
    assert!(start(&harness, &mut other, "").starts_with(b"$"));
    turn::on_close(&harness.server, &mut other.session);
    assert!(start(&harness, &mut wire, "").starts_with(b"$"), "its end ended it");
    harness.expect(&mut wire, &[("RESET", "+RESET\r\n")]);
    assert!(start(&harness, &mut wire, "").starts_with(b"$"), "RESET ends it, too");
}

#[test]
fn wrong_options_are_refused() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for line in ["CAPTURE START KEYS", "CAPTURE START KEYS none", "CAPTURE START WORDS"] {
        harness.expect(&mut wire, &[(line, "-ERR syntax error\r\n")]);
    }
    harness.expect(&mut wire, &[("CAPTURE START BYTES 9", "-ERR BYTES must be at least 65536\r\n")]);
}

#[test]
fn what_is_not_taken_in_time_is_dropped_and_counted() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let begun = start(&harness, &mut wire, " VALUES");
    let value = "v".repeat(60_000);
    // More than may be on the way.
    for _ in 0..800 {
        harness.expect(&mut client, &[(&format!("SET k {value}"), "+OK\r\n")]);
    }
    let file = stop(&mut harness, &mut wire, begun);
    let capture = decode(&file).expect("a file");
    let end = capture.end.expect("ended");
    assert!(end.dropped > 100, "{end:?}");
    assert_eq!(end.records + end.dropped, 800);
    assert_eq!(records(&capture).len() as u64, end.records);
    assert!(file.len() < 17 << 20, "no more than fits into an output");
}

#[test]
fn capture_ends_before_it_is_larger_than_it_may() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let mut begun = start(&harness, &mut wire, " VALUES BYTES 300000");
    let value = "v".repeat(1_000);
    for _ in 0..400 {
        harness.expect(&mut client, &[(&format!("SET k {value}"), "+OK\r\n")]);
    }
    begun.extend(harness.deliver(&mut wire));
    begun.extend(harness.deliver(&mut wire));
    let file = file(&begun);
    let end = decode(&file).expect("a file").end.expect("ended");
    assert_eq!(end.ending, Ending::Full);
    assert!(file.len() <= 300_000 && file.len() > 200_000, "{}", file.len());
    assert!(end.dropped > 0 && end.records > 150, "{end:?}");
    harness.expect(&mut client, &[("CAPTURE STOP", "-ERR nothing is captured\r\n")]);
}

#[test]
fn info_tells_who_captures_and_how_much_came_of_it() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let info = |wire: &mut Wire| harness.line(wire, "INFO capture");
    assert!(info(&mut client).contains("capture_running:0\r\ncapture_client:0\r\n"));
    start(&harness, &mut wire, "");
    harness.line(&mut client, "SET k v");
    harness.clock.advance(Duration::from_secs(3));
    harness.line(&mut client, "GET k");
    harness.deliver(&mut wire);
    let text = info(&mut client);
    for part in [
        "capture_running:1",
        "capture_client:1",
        "capture_seconds:3",
        "capture_records:2",
        "capture_dropped:0",
    ] {
        assert!(text.contains(part), "{text}");
    }
    harness.line(&mut client, "CAPTURE STOP");
    assert!(info(&mut client).contains("capture_running:0"));
}

#[test]
fn turn_that_runs_while_the_capture_is_stopped_is_in_the_file() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let mut begun = start(&harness, &mut wire, "");
    // One turn: what is before the stop. What is behind it runs when the capture has ended.
    let replies = harness.feed(&mut client, b"SET k v\r\nCAPTURE STOP\r\nGET k\r\n");
    assert_eq!(replies, b"+OK\r\n+OK\r\n$1\r\nv\r\n");
    begun.extend(harness.deliver(&mut wire));
    let file = file(&begun);
    let capture = decode(&file).expect("a file");
    let names: Vec<_> = records(&capture).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["set"]);
    let end = capture.end.expect("ended");
    assert_eq!((end.records, end.dropped), (1, 0));
}

/// What a turn had recorded that was under way at the stop was thrown away, and not counted as dropped.
#[test]
fn end_waits_for_turns_that_are_under_way() {
    let mut harness = Harness::with(|settings| settings.loops = 2);
    let (mut wire, mut client, mut other) = (harness.connect(), harness.connect(), harness.connect());
    let mut begun = start(&harness, &mut wire, "");
    let server = Arc::clone(&harness.server);
    let turn = server.captures.begin_turn(1).expect("it records");
    assert_eq!(harness.feed(&mut client, b"SET k v\r\nCAPTURE STOP\r\n"), b"", "it has not ended");
    harness.expect(&mut other, &[("CAPTURE STOP", "-ERR nothing is captured\r\n")]);
    assert!(server.captures.begin_turn(0).is_none(), "no turn begins that would");
    harness.expect(
        &mut other,
        &[("CAPTURE START", "-ERR client 1 captures already: CAPTURE STOP ends that\r\n")],
    );
    server.captures.end_turn(turn, 1, 9);
    assert_eq!(harness.deliver(&mut client), b"+OK\r\n+OK\r\n");
    begun.extend(harness.deliver(&mut wire));
    let file = file(&begun);
    assert_eq!(decode(&file).expect("a file").end.expect("ended").records, 1);
    assert!(start(&harness, &mut client, "").starts_with(b"$"));
}

#[test]
fn turns_that_run_at_once_on_one_loop_are_recorded_without_a_wait() {
    let mut harness = Harness::with(|settings| settings.connector = Connector::Threads);
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let begun = start(&harness, &mut wire, "");
    let server = Arc::clone(&harness.server);
    let turn = server.captures.begin_turn(0).expect("it records");
    harness.line(&mut client, "SET k v");
    server.captures.end_turn(turn, 0, 9);
    let file = stop(&mut harness, &mut wire, begun);
    assert_eq!(records(&decode(&file).expect("a file")).len(), 1);
}

/// They came to the next capture of the same client, whose times they do not fit.
#[test]
fn chunks_of_a_capture_that_was_given_up_are_not_in_the_next_one() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    start(&harness, &mut wire, "");
    harness.clock.advance(Duration::from_secs(1));
    harness.line(&mut client, "SET old 1");
    harness.expect(&mut wire, &[("RESET", "+RESET\r\n")]);
    let begun = start(&harness, &mut wire, "");
    harness.line(&mut client, "GET new");
    let file = stop(&mut harness, &mut wire, begun);
    let capture = decode(&file).expect("a file");
    let names: Vec<_> = records(&capture).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["get"]);
    assert_eq!(capture.end.expect("ended").records, 1);
}

/// One such request was recorded in full, however long it was: more than a chunk may hold.
#[test]
fn arguments_of_a_very_long_request_are_told_by_their_sizes() {
    let mut harness = Harness::new();
    let (mut wire, mut client) = (harness.connect(), harness.connect());
    let begun = start(&harness, &mut wire, " KEYS PLAIN VALUES");
    let value = "v".repeat(60_000);
    let long: Vec<&str> = std::iter::once("MSET").chain((0..200).flat_map(|_| ["k", &value])).collect();
    assert_eq!(harness.raw(&mut client, &long), "+OK\r\n");
    let file = stop(&mut harness, &mut wire, begun);
    let capture = decode(&file).expect("a file");
    let arguments = &records(&capture)[0].2;
    assert_eq!(arguments.len(), 400);
    assert!(
        matches!(arguments[..2], [Argument::Hashed(1, _), Argument::Sized(60_000)]),
        "{:?}",
        &arguments[..2]
    );
}
