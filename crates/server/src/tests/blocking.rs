//! Commands that wait for an element: who is served, when, and what happens to those who leave.

use std::time::Duration;

use clock::Clock;

use super::{Harness, Wire};

const PARKED: &str = "";
const NOTHING: &str = "*-1\r\n";

fn element(key: &str, value: &str) -> String {
    format!("*2\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n", key.len(), value.len())
}

fn delivered(harness: &Harness, wire: &mut Wire) -> String {
    String::from_utf8(harness.deliver(wire)).expect("text")
}

#[test]
fn those_who_wait_are_served_in_their_order_before_the_pushers_reply() {
    let mut harness = Harness::new();
    let mut pusher = harness.connect();
    let mut waiting: Vec<Wire> = (0..3).map(|_| harness.connect()).collect();
    for wire in &mut waiting {
        assert_eq!(harness.line(wire, "BLPOP l 0"), PARKED);
    }
    // The reply is the length that the push made; what is left when it has come is what nobody waited for.
    harness.expect(&mut pusher, &[("RPUSH l a b", ":2\r\n"), ("LLEN l", ":0\r\n")]);
    assert_eq!(delivered(&harness, &mut waiting[0]), element("l", "a"));
    assert_eq!(delivered(&harness, &mut waiting[1]), element("l", "b"));
    assert_eq!(delivered(&harness, &mut waiting[2]), PARKED);
    harness.expect(&mut pusher, &[("RPUSH l c d", ":2\r\n"), ("LRANGE l 0 -1", "*1\r\n$1\r\nd\r\n")]);
    assert_eq!(delivered(&harness, &mut waiting[2]), element("l", "c"));
    // Each goes on as any connection.
    assert_eq!(harness.line(&mut waiting[0], "BLPOP l 0"), element("l", "d"));
    assert_eq!(harness.line(&mut waiting[2], "PING"), "+PONG\r\n");
}

#[test]
fn whatever_lets_a_key_have_elements_serves_those_who_wait_for_it() {
    for (adding, expected) in [
        (&["LPUSH l x"][..], element("l", "x")),
        (&["MULTI", "RPUSH l x", "RPUSH l y", "EXEC"], element("l", "x")),
        (&["RPUSH other x", "RENAME other l"], element("l", "x")),
        (&["RPUSH other x", "COPY other l"], element("l", "x")),
        (&["RPUSH other x", "RPOPLPUSH other l"], element("l", "x")),
        (&["SELECT 1", "RPUSH l x", "SWAPDB 0 1"], element("l", "x")),
        (&["SELECT 1", "RPUSH l x", "MOVE l 0"], element("l", "x")),
        (&["SET l string", "DEL l", "LPUSH l x"], element("l", "x")),
        (&["SADD l string", "COPY l other", "DEL l", "LPUSH l x"], element("l", "x")),
    ] {
        let mut harness = Harness::new();
        let (mut waits, mut adds) = (harness.connect(), harness.connect());
        assert_eq!(harness.line(&mut waits, "BLPOP none l 0"), PARKED);
        for line in adding {
            assert_eq!(delivered(&harness, &mut waits), PARKED, "before {line}");
            assert!(!harness.line(&mut adds, line).starts_with('-'), "{line}");
        }
        assert_eq!(delivered(&harness, &mut waits), expected, "{adding:?}");
    }
}

#[test]
fn restored_value_serves_and_so_does_what_a_served_command_pushes() {
    let mut harness = Harness::new();
    let (mut first, mut second, mut adds) = (harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut second, "BRPOP target 0"), PARKED);
    assert_eq!(harness.line(&mut first, "BLMOVE source target LEFT RIGHT 0"), PARKED);
    harness.expect(&mut adds, &[("RPUSH source x", ":1\r\n"), ("EXISTS source target", ":0\r\n")]);
    assert_eq!(delivered(&harness, &mut first), "$1\r\nx\r\n");
    assert_eq!(delivered(&harness, &mut second), element("target", "x"));
}

#[test]
fn sorted_sets_are_waited_for_and_a_key_of_another_type_serves_nobody() {
    let mut harness = Harness::new();
    let (mut low, mut many, mut list, mut adds) =
        (harness.connect(), harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut low, "BZPOPMAX z 0"), PARKED);
    assert_eq!(harness.line(&mut many, "BZMPOP 0 2 none z MIN COUNT 10"), PARKED);
    assert_eq!(harness.line(&mut list, "BLMPOP 0 1 z LEFT COUNT 2"), PARKED);
    harness.expect(&mut adds, &[("ZADD z 1 a 2 b 3.5 c", ":3\r\n"), ("EXISTS z", ":0\r\n")]);
    assert_eq!(delivered(&harness, &mut low), "*3\r\n$1\r\nz\r\n$1\r\nc\r\n$3\r\n3.5\r\n");
    let pairs = "*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n";
    assert_eq!(delivered(&harness, &mut many), format!("*2\r\n$1\r\nz\r\n{pairs}"));
    assert_eq!(delivered(&harness, &mut list), PARKED);
    harness.expect(&mut adds, &[("RPUSH z l m n", ":3\r\n"), ("LLEN z", ":1\r\n")]);
    assert_eq!(delivered(&harness, &mut list), "*2\r\n$1\r\nz\r\n*2\r\n$1\r\nl\r\n$1\r\nm\r\n");
    // Who begins to wait while there is another type is told so.
    harness.expect(
        &mut low,
        &[("BZPOPMIN z 0", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")],
    );
    // The target of a move is looked at when there is something to move.
    harness.expect(&mut adds, &[("SET text t", "+OK\r\n")]);
    assert_eq!(harness.line(&mut low, "BLMOVE source text LEFT LEFT 0"), PARKED);
    harness.expect(&mut adds, &[("RPUSH source x", ":1\r\n"), ("LLEN source", ":1\r\n")]);
    assert!(delivered(&harness, &mut low).starts_with("-WRONGTYPE"));
}

#[test]
fn wait_ends_by_its_time_by_client_unblock_and_with_the_client() {
    let mut harness = Harness::new();
    let (mut one, mut two, mut three, mut adds) =
        (harness.connect(), harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut one, "BLPOP l 1.5"), PARKED);
    assert_eq!(one.wake, Some(harness.clock.now() + Duration::from_millis(1_500)));
    assert_eq!(harness.after(&mut one, Duration::from_millis(1_500)), NOTHING.as_bytes());
    assert_eq!(harness.line(&mut one, "BLMOVE l m LEFT LEFT 0"), PARKED);
    assert_eq!(harness.line(&mut two, "BRPOP l m 0"), PARKED);
    assert_eq!(harness.line(&mut three, "BLPOP l 0"), PARKED);
    harness.expect(&mut adds, &[("CLIENT UNBLOCK 1", ":1\r\n"), ("CLIENT UNBLOCK 2 ERROR", ":1\r\n")]);
    assert_eq!(delivered(&harness, &mut one), NOTHING);
    assert_eq!(delivered(&harness, &mut two), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    harness.expect(&mut adds, &[("CLIENT UNBLOCK 1", ":0\r\n"), ("CLIENT UNBLOCK 2", ":0\r\n")]);
    crate::turn::on_close(&harness.server, &mut three.session);
    harness.expect(&mut adds, &[("RPUSH l x", ":1\r\n"), ("LLEN l", ":1\r\n")]);
    assert_eq!(delivered(&harness, &mut one), PARKED, "it waits no longer");
}

/// An element that came is the client's, whatever else comes before its loop looks.
#[test]
fn who_was_served_gets_it_though_its_time_is_over_and_it_was_unblocked() {
    let mut harness = Harness::new();
    let (mut waits, mut adds) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLPOP l 1"), PARKED);
    harness.expect(&mut adds, &[("RPUSH l x", ":1\r\n"), ("CLIENT UNBLOCK 1 ERROR", ":0\r\n")]);
    assert_eq!(String::from_utf8_lossy(&harness.after(&mut waits, Duration::from_secs(2))), PARKED);
    assert_eq!(delivered(&harness, &mut waits), element("l", "x"));
}

#[test]
fn in_a_transaction_and_under_tx_do_nothing_waits() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("MULTI", "+OK\r\n"),
            ("BLPOP l 0", "+QUEUED\r\n"),
            ("BLMOVE l m LEFT LEFT 0", "+QUEUED\r\n"),
            ("BZPOPMIN z 0", "+QUEUED\r\n"),
            ("BLMPOP 0 1 l LEFT", "+QUEUED\r\n"),
            ("RPUSH l a", "+QUEUED\r\n"),
            ("BLPOP l 0", "+QUEUED\r\n"),
        ],
    );
    let expected = format!("*6\r\n*-1\r\n$-1\r\n*-1\r\n*-1\r\n:1\r\n{}", element("l", "a"));
    assert_eq!(harness.line(&mut wire, "EXEC"), expected);
    assert!(!harness.line(&mut wire, "TX.BEGIN").starts_with('-'));
    harness.expect(&mut wire, &[("TX.DO $ BLPOP l 0", NOTHING), ("TX.DO $ RPUSH l b", ":1\r\n")]);
}

#[test]
fn commit_of_a_prepared_transaction_serves_those_who_wait() {
    let mut harness = Harness::new();
    let (mut waits, mut commits) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLPOP l 0"), PARKED);
    assert!(!harness.line(&mut commits, "TX.BEGIN").starts_with('-'));
    harness.expect(&mut commits, &[("TX.DO $ RPUSH l b", ":1\r\n")]);
    assert_eq!(delivered(&harness, &mut waits), PARKED, "nobody sees what is staged");
    let mut reply = harness.line(&mut commits, "TX.COMMIT $");
    while reply.is_empty() {
        std::thread::yield_now();
        reply = String::from_utf8(harness.deliver(&mut commits)).expect("text");
    }
    assert!(reply.contains("committed"), "{reply}");
    assert_eq!(delivered(&harness, &mut waits), element("l", "b"));
}

#[test]
fn blocked_clients_are_shown_and_time_outs_are_read_as_numbers_of_seconds() {
    let mut harness = Harness::new();
    let (mut waits, mut looks) = (harness.connect(), harness.connect());
    for (timeout, wrong) in [
        ("x", "-ERR timeout is not a float or out of range\r\n"),
        ("nan", "-ERR timeout is not a float or out of range\r\n"),
        ("-0.5", "-ERR timeout is negative\r\n"),
        ("9223372036854776", "-ERR timeout is out of range\r\n"),
        ("inf", "-ERR timeout is out of range\r\n"),
        ("1e300", "-ERR timeout is out of range\r\n"),
    ] {
        harness.expect(&mut waits, &[(&format!("BLPOP l {timeout}"), wrong)]);
    }
    assert_eq!(harness.line(&mut waits, "BLPOP l 0"), PARKED);
    assert!(harness.line(&mut looks, "INFO clients").contains("blocked_clients:1\r\n"));
    assert!(harness.line(&mut looks, "CLIENT LIST").contains("flags=b"));
    harness.expect(&mut looks, &[("LPUSH l a", ":1\r\n")]);
    assert_eq!(delivered(&harness, &mut waits), element("l", "a"));
    assert!(harness.line(&mut looks, "INFO clients").contains("blocked_clients:0\r\n"));
}

/// Who waited for new entries of a stream that expired was told so by the next command of anybody: nobody else came for an hour.
#[test]
fn wait_for_a_key_that_is_gone_ends_when_it_goes_whoever_removes_it() {
    let gone = |reply: &str| reply.starts_with("-NOGROUP") || reply.starts_with("-UNBLOCKED");
    for (removing, by_clock) in [
        (&["DEL s"][..], false),
        (&["UNLINK s"], false),
        (&["XGROUP DESTROY s g"], false),
        (&["RENAME s t"], false),
        (&["FLUSHDB"], false),
        (&["FLUSHALL"], false),
        (&["SWAPDB 0 1"], false),
        (&["MOVE s 1"], false),
        (&["SET s text"], false),
        (&["MULTI", "DEL s", "EXEC"], false),
        (&["EXPIRE s -1"], false),
        (&["PEXPIRE s 3600000"], true),
        (&["MULTI", "PEXPIRE s 3600000", "EXEC"], true),
        (&["PEXPIREAT s 1700003600000"], true),
    ] {
        let mut harness = Harness::new();
        let (mut waits, mut reads, mut removes) = (harness.connect(), harness.connect(), harness.connect());
        harness.line(&mut removes, "XGROUP CREATE s g $ MKSTREAM");
        assert_eq!(harness.line(&mut waits, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"), PARKED);
        assert_eq!(harness.line(&mut reads, "XREAD BLOCK 0 STREAMS s $"), PARKED);
        for line in removing {
            assert_eq!(delivered(&harness, &mut waits), PARKED, "before {line}");
            harness.line(&mut removes, line);
        }
        if by_clock {
            assert_eq!(delivered(&harness, &mut waits), PARKED, "its time has not come");
            harness.clock.advance(Duration::from_secs(3_599));
            harness.server.store.tend(100);
            assert_eq!(delivered(&harness, &mut waits), PARKED, "its time has not come");
            harness.clock.advance(Duration::from_secs(1));
            harness.server.store.tend(100);
        }
        let reply = delivered(&harness, &mut waits);
        assert!(gone(&reply) || reply.starts_with("-WRONGTYPE"), "{removing:?}: {reply}");
        if removing != ["SET s text"] {
            assert_eq!(delivered(&harness, &mut reads), PARKED, "without a group it waits for a new stream");
        }
    }
}
