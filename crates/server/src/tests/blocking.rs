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

/// What a request that waits keeps of its parsing has a bound, is counted, and is the same request.
#[test]
fn request_that_waits_keeps_few_arguments_and_none_of_an_inline_one() {
    let many = |name: &str, count: usize| {
        let keys = (0..count).map(|number| format!("k{number}"));
        let words: Vec<String> =
            std::iter::once(name.to_owned()).chain(keys).chain(["0".to_owned()]).collect();
        let mut bytes = Vec::new();
        resp::encode_command(&mut bytes, &words);
        bytes
    };
    for (request, is_kept) in [
        (many("BLPOP", 2), true),
        (many("BLPOP", 62), true),
        (many("BLPOP", 63), false),
        (b"BLPOP k1 \"0\"\r\n".to_vec(), false),
    ] {
        let mut harness = Harness::new();
        let (mut waits, mut adds) = (harness.connect(), harness.connect());
        // the room that a large request has left for arguments is not what is kept
        assert!(harness.feed(&mut waits, &many("DEL", 900)).starts_with(b":"));
        assert_eq!(harness.feed(&mut waits, &request), b"");
        let parsed = waits.session.pending.as_ref().expect("it waits").parsed.as_ref();
        assert_eq!(parsed.is_some(), is_kept);
        let bytes = parsed.map_or(0, |parsed| parsed.args.capacity_bytes());
        assert!(bytes <= 512, "{bytes} B");
        let counted = waits.session.kept_bytes();
        harness.feed(&mut waits, b"PING\r\n");
        harness.expect(&mut adds, &[("RPUSH k1 x", ":1\r\n")]);
        assert_eq!(delivered(&harness, &mut waits), format!("{}+PONG\r\n", element("k1", "x")));
        assert!(counted >= waits.session.kept_bytes() + bytes);
    }
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

/// `name`, `count` keys, and `rest`.
fn many_keys(name: &str, count: usize, rest: &str) -> String {
    let keys: Vec<String> = (0..count).map(|at| format!("key{at}")).collect();
    format!("{name} {} {rest}", keys.join(" "))
}

impl Harness {
    /// Waits until nothing runs beside the loops, and delivers what came of it.
    fn beside(&self, wire: &mut Wire) -> String {
        while self.server.long.waiting() > 0 {
            std::thread::yield_now();
        }
        delivered(self, wire)
    }

    /// Keeps a thread beside the loops from doing anything else, until what is returned is dropped.
    fn occupy(&self) -> std::sync::mpsc::Sender<()> {
        let (gate, opened) = std::sync::mpsc::channel();
        self.server.long.call_in_background(Box::new(move || _ = opened.recv()));
        gate
    }

    /// Waits until nobody stands in any line.
    fn expect_no_lines(&self) {
        while self.server.long.waiting() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(self.server.blocked.counts(), (0, 0), "keys that are waited for, and commands that wait");
    }
}

/// CLIENT UNBLOCK answered 0 while a command that waits looked at its keys beside the loops, and the command went on waiting.
#[test]
fn who_looks_beside_the_loop_is_unblocked_and_takes_nothing() {
    for (ending, expected) in
        [("", NOTHING), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")]
    {
        let mut harness = Harness::new();
        harness.server.long.set_from(10);
        let (mut waits, mut other, mut reads) = (harness.connect(), harness.connect(), harness.connect());
        harness.line(&mut other, "RPUSH key321 x");
        let gates = [harness.occupy(), harness.occupy()];
        assert_eq!(harness.line(&mut waits, &many_keys("BLPOP", 500, "0")), PARKED);
        let read = many_keys("XREAD STREAMS", 500, "0 ".repeat(500).trim_end());
        assert_eq!(harness.line(&mut reads, &read), PARKED);
        let unblock = format!("CLIENT UNBLOCK 1{ending}");
        harness.expect(&mut other, &[(&unblock, ":1\r\n"), (&unblock, ":0\r\n")]);
        harness.expect(&mut other, &[("CLIENT UNBLOCK 3", ":0\r\n")]);
        drop(gates);
        assert_eq!(harness.beside(&mut waits), expected);
        assert!(harness.beside(&mut reads).starts_with("-WRONGTYPE"), "it does not wait");
        harness.expect_no_lines();
        harness.expect(&mut other, &[("LPOP key321", "$1\r\nx\r\n")]);
        assert_eq!(harness.line(&mut waits, "PING"), "+PONG\r\n");
    }
}

/// The same while a command that stands in line looks at a key that has changed.
#[test]
fn who_looks_again_beside_the_loop_is_unblocked_and_leaves_its_lines() {
    let mut harness = Harness::new();
    let (mut waits, mut other) = (harness.connect(), harness.connect());
    harness.line(&mut other, "XGROUP CREATE x g $ MKSTREAM");
    let wait = "XREADGROUP GROUP g c COUNT 9000 BLOCK 0 STREAMS x >";
    assert_eq!(harness.line(&mut waits, wait), PARKED);
    let gates = [harness.occupy(), harness.occupy()];
    // more at once than a loop looks at
    let adds: Vec<Vec<String>> = std::iter::once(vec!["MULTI".to_owned()])
        .chain((0..6_000).map(|n| format!("XADD x {}-1 f v", n + 1).split(' ').map(str::to_owned).collect()))
        .chain([vec!["EXEC".to_owned()]])
        .collect();
    let mut bytes = Vec::new();
    adds.iter().for_each(|command| resp::encode_command(&mut bytes, command));
    harness.feed(&mut other, &bytes);
    drop(gates);
    while other.step == reactor::Step::Park {
        harness.deliver(&mut other);
        std::thread::yield_now();
    }
    while harness.server.long.waiting() > 0 {
        std::thread::yield_now();
    }
    let gates = [harness.occupy(), harness.occupy()];
    assert_eq!(delivered(&harness, &mut waits), PARKED);
    assert_eq!(harness.server.blocked.counts(), (1, 1));
    harness.expect(&mut other, &[("CLIENT UNBLOCK 1", ":1\r\n"), ("CLIENT UNBLOCK 1", ":0\r\n")]);
    drop(gates);
    assert_eq!(harness.beside(&mut waits), NOTHING);
    harness.expect_no_lines();
    assert!(harness.line(&mut other, "XPENDING x g").starts_with("*4\r\n:0\r\n"), "nothing was given");
}

/// BLPOP of a million keys looked at all of them, got in all lines and left them in one turn of its loop: two seconds each.
#[test]
fn command_gets_in_many_lines_beside_its_loop_and_leaves_them_there() {
    for (command, adding, expected) in [
        (many_keys("BLPOP", 500, "0"), "RPUSH key321 x", element("key321", "x")),
        (many_keys("BRPOP", 500, "0"), "RPUSH key499 x", element("key499", "x")),
        (
            many_keys("BLMPOP 0 500", 500, "LEFT"),
            "RPUSH key0 x",
            "*2\r\n$4\r\nkey0\r\n*1\r\n$1\r\nx\r\n".to_owned(),
        ),
        (
            many_keys("BZPOPMIN", 500, "0"),
            "ZADD key321 1 x",
            "*3\r\n$6\r\nkey321\r\n$1\r\nx\r\n$1\r\n1\r\n".to_owned(),
        ),
        (
            many_keys("XREAD BLOCK 0 STREAMS", 500, "$ ".repeat(500).trim_end()),
            "XADD key321 1-1 f v",
            "*1\r\n*2\r\n$6\r\nkey321\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n".to_owned(),
        ),
    ] {
        let mut harness = Harness::new();
        harness.server.long.set_from(10);
        let (mut waits, mut adds) = (harness.connect(), harness.connect());
        assert_eq!(harness.line(&mut waits, &command), PARKED);
        assert_eq!(harness.line(&mut adds, "PING"), "+PONG\r\n", "its loop is free");
        assert_eq!(harness.beside(&mut waits), PARKED);
        assert!(harness.server.long.count() > 0, "{command:.20} ran on its loop");
        assert_eq!(harness.server.blocked.counts(), (500, 1));
        assert!(!harness.line(&mut adds, adding).starts_with('-'), "{adding}");
        assert_eq!(delivered(&harness, &mut waits), expected);
        harness.expect_no_lines();
        assert_eq!(harness.line(&mut waits, "PING"), "+PONG\r\n");
    }
}

#[test]
fn who_waits_for_many_keys_leaves_by_its_time_by_client_unblock_and_with_the_client() {
    let mut harness = Harness::new();
    harness.server.long.set_from(10);
    let (mut waits, mut looks) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, &many_keys("BLPOP", 500, "1.5")), PARKED);
    assert_eq!(harness.beside(&mut waits), PARKED);
    assert!(harness.line(&mut looks, "INFO clients").contains("blocked_clients:1\r\n"));
    assert_eq!(waits.wake, Some(harness.clock.now() + Duration::from_millis(1_500)));
    assert_eq!(harness.after(&mut waits, Duration::from_millis(1_500)), NOTHING.as_bytes());
    harness.expect_no_lines();
    assert_eq!(harness.line(&mut waits, &many_keys("BLPOP", 500, "0")), PARKED);
    assert_eq!(harness.beside(&mut waits), PARKED);
    harness.expect(&mut looks, &[("CLIENT UNBLOCK 1 ERROR", ":1\r\n"), ("CLIENT UNBLOCK 1", ":0\r\n")]);
    assert_eq!(delivered(&harness, &mut waits), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    harness.expect_no_lines();
    // it ends at any moment, also while it gets in line
    for ends_early in [false, true] {
        let mut leaves = harness.connect();
        assert_eq!(harness.line(&mut leaves, &many_keys("BLPOP", 5_000, "0")), PARKED);
        if !ends_early {
            assert_eq!(harness.beside(&mut leaves), PARKED);
        }
        harness.end(leaves);
        harness.expect_no_lines();
        harness.expect(&mut looks, &[("RPUSH key7 x", ":1\r\n"), ("LPOP key7", "$1\r\nx\r\n")]);
    }
    assert_eq!(harness.line(&mut waits, "PING"), "+PONG\r\n");
}

#[test]
fn element_that_comes_while_a_command_gets_in_line_is_its_own() {
    for round in 0..50 {
        let mut harness = Harness::new();
        harness.server.long.set_from(10);
        let (mut waits, mut adds) = (harness.connect(), harness.connect());
        assert_eq!(harness.line(&mut waits, &many_keys("BLPOP", 2_000, "0")), PARKED);
        let key = format!("key{}", round * 39);
        // while the keys are claimed who adds waits, too
        let mut pushed = harness.line(&mut adds, &format!("RPUSH {key} x"));
        while pushed.is_empty() {
            pushed = String::from_utf8(harness.after(&mut adds, Duration::from_millis(5))).expect("text");
        }
        assert_eq!(pushed, ":1\r\n");
        assert_eq!(harness.beside(&mut waits), element(&key, "x"));
        harness.expect_no_lines();
    }
}

#[test]
fn who_waits_for_many_keys_has_its_place_in_each_line() {
    let mut harness = Harness::new();
    harness.server.long.set_from(10);
    let mut wires: Vec<Wire> = (0..3).map(|_| harness.connect()).collect();
    let mut adds = harness.connect();
    assert_eq!(harness.line(&mut wires[0], "BLPOP key7 0"), PARKED);
    assert_eq!(harness.line(&mut wires[1], &many_keys("BLPOP", 500, "0")), PARKED);
    assert_eq!(harness.beside(&mut wires[1]), PARKED);
    assert_eq!(harness.line(&mut wires[2], "BLPOP key7 0"), PARKED);
    harness.expect(&mut adds, &[("RPUSH key7 a b c d", ":4\r\n"), ("LLEN key7", ":1\r\n")]);
    for (wire, value) in wires.iter_mut().zip(["a", "b", "c"]) {
        assert_eq!(delivered(&harness, wire), element("key7", value));
    }
}

/// Who finds nothing stood before all others: they waited although there was something for them.
#[test]
fn who_finds_nothing_lets_those_behind_it_have_their_turn() {
    let entry = |id: &str| {
        let fields = "*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
        format!("*1\r\n*2\r\n$1\r\nk\r\n*1\r\n*2\r\n${}\r\n{id}\r\n{fields}", id.len())
    };
    for (first, second, adding, expected) in [
        ("XREAD BLOCK 0 STREAMS k 100-0", "XREAD BLOCK 0 STREAMS k $", "XADD k 5-0 f v", entry("5-0")),
        (
            "XREADGROUP GROUP g c BLOCK 0 STREAMS k >",
            "XREADGROUP GROUP h c BLOCK 0 STREAMS k >",
            "XADD k 5-0 f v",
            entry("5-0"),
        ),
        ("XREAD BLOCK 0 STREAMS k 100-0", "BLPOP k 0", "RPUSH k x", element("k", "x")),
        ("BZPOPMIN k 0", "BLPOP k 0", "RPUSH k x", element("k", "x")),
    ] {
        let mut harness = Harness::new();
        let (mut one, mut two, mut adds) = (harness.connect(), harness.connect(), harness.connect());
        if first.contains("GROUP") {
            harness.line(&mut adds, "XGROUP CREATE k g $ MKSTREAM");
            harness.line(&mut adds, "XGROUP CREATE k h $");
            harness.line(&mut adds, "XADD k 1-0 f v");
            harness.line(&mut adds, "XREADGROUP GROUP h other STREAMS k >");
            // the first group has nothing to read: its position is ahead
            harness.line(&mut adds, "XGROUP SETID k g 100-0");
        }
        assert_eq!(harness.line(&mut one, first), PARKED);
        assert_eq!(harness.line(&mut two, second), PARKED);
        assert!(!harness.line(&mut adds, adding).starts_with('-'));
        assert_eq!(delivered(&harness, &mut two), expected, "{second} behind {first}");
        assert_eq!(delivered(&harness, &mut one), PARKED, "{first}");
    }
}

/// One entry for which 10,000 clients wait was given to all of them in one turn of the loop of who added it.
#[test]
fn those_who_wait_for_one_entry_are_served_some_at_a_time_in_their_order() {
    let mut harness = Harness::new();
    let mut adds = harness.connect();
    let mut wires: Vec<Wire> = (0..1_000).map(|_| harness.connect()).collect();
    for wire in &mut wires {
        assert_eq!(harness.line(wire, "XREAD BLOCK 0 STREAMS s $"), PARKED);
    }
    let ids: Vec<u64> = wires.iter().map(|wire| wire.session.client.id).collect();
    let served = |before: usize, harness: &Harness| {
        let lines = harness.server.blocked.lock();
        let now = ids.iter().filter(|id| lines.of(**id).is_some()).count();
        assert!(before - now <= 64, "{} were served in one turn", before - now);
        let first = ids.iter().position(|id| lines.of(*id).is_some());
        assert_eq!(first.unwrap_or(ids.len()), ids.len() - now, "who came first is served first");
        now
    };
    harness.line(&mut adds, "XADD s 1-1 f v");
    let mut left = served(wires.len(), &harness);
    assert_eq!(left, wires.len() - 64);
    let mut replies = 0;
    while replies < wires.len() {
        let before = (replies, left);
        for wire in &mut wires {
            replies += usize::from(!delivered(&harness, wire).is_empty());
            left = served(left, &harness);
        }
        assert!((replies, left) != before, "{replies} were served, and no more are");
    }
    // whose connection was to go on has left
    for wire in &mut wires {
        assert_eq!(harness.line(wire, "XREAD BLOCK 0 STREAMS s $"), PARKED);
    }
    harness.line(&mut adds, "XADD s 1-2 f v");
    let last = wires.pop().expect("many");
    wires.drain(..70).for_each(|wire| harness.end(wire));
    for _ in 0..wires.len() {
        wires.iter_mut().for_each(|wire| _ = delivered(&harness, wire));
    }
    harness.end(last);
    harness.expect_no_lines();
}

/// What others had was given to who waited for it by the next change of the stream: it may never come.
#[test]
fn who_claims_what_is_pending_is_woken_when_it_has_been_for_long_enough() {
    let mut harness = Harness::new();
    let (mut one, mut two, mut adds) = (harness.connect(), harness.connect(), harness.connect());
    for line in ["XGROUP CREATE s g $ MKSTREAM", "XADD s 1-1 f v", "XREADGROUP GROUP g other STREAMS s >"] {
        harness.line(&mut adds, line);
    }
    harness.clock.advance(Duration::from_secs(1));
    let claims = "XREADGROUP GROUP g one BLOCK 0 CLAIM 3000 STREAMS s >";
    assert_eq!(harness.line(&mut one, claims), PARKED);
    assert_eq!(one.wake, Some(harness.clock.now() + Duration::from_secs(2)));
    assert_eq!(
        harness.line(&mut two, &claims.replace(" one ", " two ").replace("BLOCK 0", "BLOCK 5000")),
        PARKED
    );
    harness.clock.advance(Duration::from_millis(1_999));
    let reply = String::from_utf8(harness.after(&mut one, Duration::from_millis(1))).expect("text");
    assert!(reply.contains("$3\r\n1-1\r\n") && reply.contains(":3000\r\n:1\r\n"), "{reply}");
    // the other one waits for what the first one has now
    delivered(&harness, &mut two);
    assert_eq!(harness.after(&mut two, Duration::from_millis(1)), b"");
    // what becomes pending later wakes it, too
    harness.line(&mut adds, "XACK s g 1-1");
    harness.line(&mut adds, "XADD s 2-1 f v");
    let reply = delivered(&harness, &mut two);
    assert!(reply.contains("$3\r\n2-1\r\n"), "{reply}");
    assert_eq!(harness.line(&mut one, claims), PARKED);
    assert_eq!(one.wake, Some(harness.clock.now() + Duration::from_secs(3)), "what the other one has");
    harness.line(&mut adds, "XACK s g 2-1");
    harness.clock.advance(Duration::from_secs(10));
    delivered(&harness, &mut one);
    harness.line(&mut adds, "XADD s 3-1 f v");
    assert!(delivered(&harness, &mut one).contains("$3\r\n3-1\r\n"));
}

#[test]
fn what_becomes_pending_while_a_client_waits_to_claim_it_wakes_it_in_time() {
    let mut harness = Harness::new();
    let (mut waits, mut adds) = (harness.connect(), harness.connect());
    harness.line(&mut adds, "XGROUP CREATE s g $ MKSTREAM");
    assert_eq!(harness.line(&mut waits, "XREADGROUP GROUP g one BLOCK 0 CLAIM 500 STREAMS s >"), PARKED);
    // another one adds and takes it before anybody who waits
    for line in ["MULTI", "XADD s 1-1 f v", "XREADGROUP GROUP g other STREAMS s >", "EXEC"] {
        harness.line(&mut adds, line);
    }
    assert_eq!(delivered(&harness, &mut waits), PARKED);
    assert_eq!(waits.wake, Some(harness.clock.now() + Duration::from_millis(500)));
    let reply = String::from_utf8(harness.after(&mut waits, Duration::from_millis(500))).expect("text");
    assert!(reply.contains("$3\r\n1-1\r\n") && reply.contains(":500\r\n:1\r\n"), "{reply}");
}

/// Who waits to claim what is pending, where that is much, looked at it all again and again beside the loops.
#[test]
fn command_that_looks_at_much_keeps_its_place_and_looks_again_when_something_has_changed() {
    let mut harness = Harness::new();
    let (mut one, mut two, mut adds) = (harness.connect(), harness.connect(), harness.connect());
    harness.line(&mut adds, "XGROUP CREATE s g $ MKSTREAM");
    let entries: Vec<Vec<String>> = (1..=6_000)
        .map(|at| ["XADD", "s", &format!("{at}-1"), "f", "v"].map(str::to_owned).to_vec())
        .collect();
    harness.long(&mut adds, &entries);
    let read = "XREADGROUP GROUP g other STREAMS s >".split(' ').map(str::to_owned).collect();
    harness.long(&mut adds, &[read]);
    let claims = "XREADGROUP GROUP g one BLOCK 0 CLAIM 999999999 STREAMS s >";
    assert_eq!(harness.line(&mut one, claims), PARKED);
    let settle = |harness: &Harness, wire: &mut Wire| {
        let mut reply = String::new();
        loop {
            // what is delivered may run beside the loops, and may have ended by now
            let begun = harness.server.long.count();
            reply += &harness.beside(wire);
            if harness.server.long.waiting() == 0 && harness.server.long.count() == begun {
                return reply;
            }
        }
    };
    assert_eq!(settle(&harness, &mut one), PARKED);
    let looked = harness.server.long.count();
    assert_eq!(settle(&harness, &mut one), PARKED);
    assert_eq!(harness.server.long.count(), looked, "nothing has changed");
    assert_eq!(harness.line(&mut two, "XREADGROUP GROUP g two BLOCK 0 STREAMS s >"), PARKED);
    harness.line(&mut adds, "XACK s g 17-1");
    assert_eq!(settle(&harness, &mut one), PARKED);
    assert!(harness.server.long.count() > looked, "it has looked");
    harness.line(&mut adds, "XADD s 7000-1 f v");
    assert!(settle(&harness, &mut one).contains("$6\r\n7000-1\r\n"), "who came first");
    assert_eq!(delivered(&harness, &mut two), PARKED);
    harness.line(&mut adds, "XADD s 7000-2 f v");
    assert!(delivered(&harness, &mut two).contains("$6\r\n7000-2\r\n"));
}

/// FLUSHALL and SWAPDB told each key that somebody waits for, with all of them locked.
#[test]
fn database_that_changes_as_a_whole_serves_those_who_wait_for_very_many_keys() {
    let mut harness = Harness::new();
    let (mut waits, mut adds) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, &many_keys("BLPOP", 40_000, "0")), PARKED);
    assert_eq!(harness.beside(&mut waits), PARKED);
    harness.expect(&mut adds, &[("SELECT 1", "+OK\r\n"), ("RPUSH key33333 x", ":1\r\n")]);
    harness.expect(
        &mut adds,
        &[("FLUSHDB", "+OK\r\n"), ("RPUSH key33333 x", ":1\r\n"), ("SWAPDB 0 1", "+OK\r\n")],
    );
    let mut reply = String::new();
    while reply.is_empty() {
        reply = delivered(&harness, &mut waits);
    }
    assert_eq!(reply, element("key33333", "x"));
    harness.expect_no_lines();
}

/// A client was served by a push, then others paused writes: its element was gone, and its reply came when the pause was over.
#[test]
fn who_was_served_is_answered_though_a_pause_has_begun() {
    let mut harness = Harness::new();
    let (mut waits, mut pushes, mut pauses) = (harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLPOP l 0"), PARKED);
    assert_eq!(harness.line(&mut pushes, "RPUSH l x"), ":1\r\n");
    assert_eq!(harness.line(&mut pauses, "CLIENT PAUSE 100000 WRITE"), "+OK\r\n");
    assert_eq!(delivered(&harness, &mut waits), element("l", "x"));
    assert_eq!(harness.line(&mut waits, "BLPOP l 0"), PARKED, "the pause holds what is to happen");
    assert_eq!(harness.line(&mut pauses, "CLIENT UNPAUSE"), "+OK\r\n");
}
