//! Bounds of what clients can make a server keep: names, messages, watched keys, queued commands, replies.

use std::time::Duration;

use clock::Clock as _;
use reactor::Step;

use super::{Harness, Wire};
use crate::settings::Size;

#[test]
fn names_beyond_the_limit_of_subscriptions_are_refused_whole_and_room_comes_back() {
    let mut harness = Harness::with(|settings| settings.connections_subscriptions_max = Size(600));
    let mut wire = harness.connect();
    let refusal = "-ERR the channels and patterns of this connection would take more than \
                   connections.subscriptions_max (600 B)\r\n";
    harness.expect(
        &mut wire,
        &[
            ("SUBSCRIBE a b c d", refusal),
            ("PUBSUB CHANNELS", "*0\r\n"),
            ("SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
            ("PSUBSCRIBE b*", "*3\r\n$10\r\npsubscribe\r\n$2\r\nb*\r\n:2\r\n"),
            ("SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:2\r\n"),
            ("SUBSCRIBE c", refusal),
            ("UNSUBSCRIBE a", "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n"),
            ("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:2\r\n"),
        ],
    );
}

#[test]
fn publisher_waits_until_listeners_took_what_is_on_its_way() {
    let mut harness = Harness::with(|settings| settings.connections_messages_max = Size(1_000));
    let (mut listener, mut publisher) = (harness.connect(), harness.connect());
    harness.line(&mut listener, "SUBSCRIBE c");
    let payload = "x".repeat(600);
    assert_eq!(harness.raw(&mut publisher, &["PUBLISH", "c", &payload]), ":1\r\n");
    assert_eq!(harness.raw(&mut publisher, &["PUBLISH", "c", &payload]), ":1\r\n");
    assert_eq!(harness.raw(&mut publisher, &["PUBLISH", "c", "third"]), "");
    assert_eq!(publisher.step, Step::Park);
    assert_eq!(harness.after(&mut publisher, Duration::from_millis(1)), b"", "nobody took anything");
    let mut operator = harness.connect();
    let info = harness.line(&mut operator, "INFO stats");
    assert!(
        info.contains("pubsub_bytes_on_the_way:1330\r\n") && info.contains("pubsub_waits:2\r\n"),
        "{info}"
    );
    assert!(harness.deliver(&mut listener).len() > 1_200);
    assert_eq!(harness.after(&mut publisher, Duration::from_millis(1)), b":1\r\n");
    assert!(harness.deliver(&mut listener).ends_with(b"third\r\n"));
}

#[test]
fn transaction_that_publishes_waits_as_well_and_happens_once() {
    let mut harness = Harness::with(|settings| settings.connections_messages_max = Size(100));
    let (mut listener, mut publisher) = (harness.connect(), harness.connect());
    harness.line(&mut listener, "SUBSCRIBE c");
    for line in ["PUBLISH c first-message-of-forty-bytes-or-a-few-more", "MULTI", "INCR n", "PUBLISH c m"] {
        harness.line(&mut publisher, line);
    }
    assert_eq!(harness.line(&mut publisher, "EXEC"), "");
    harness.deliver(&mut listener);
    assert_eq!(harness.after(&mut publisher, Duration::from_millis(1)), b"*2\r\n:1\r\n:1\r\n");
    assert_eq!(harness.line(&mut publisher, "GET n"), "$1\r\n1\r\n");
}

#[test]
fn monitor_that_cannot_keep_up_is_cut_and_nobody_waits_for_it() {
    let mut harness = Harness::with(|settings| settings.connections_messages_max = Size(500));
    let (mut monitor, mut wire) = (harness.connect(), harness.connect());
    harness.line(&mut monitor, "MONITOR");
    for _ in 0..20 {
        assert_eq!(harness.line(&mut wire, "SET key value"), "+OK\r\n");
    }
    assert!(harness.killed().contains(&1));
}

/// Behind a reply that waits for the disk lines wait, too, and what waits is neither cut for being unsent nor still on its
/// way: while the disk stood still a monitor took all memory.
#[test]
fn monitor_whose_lines_wait_is_cut_at_the_limit_of_output() {
    let mut harness = Harness::with(|settings| settings.connections_output_max = Size(1_000));
    let (mut monitor, mut wire) = (harness.connect(), harness.connect());
    harness.line(&mut monitor, "MONITOR");
    let run = |harness: &Harness, wire: &mut Wire| harness.line(wire, "GET key");
    for _ in 0..10 {
        run(&harness, &mut wire);
    }
    harness.deliver(&mut monitor);
    assert_eq!(monitor.step, Step::Continue);
    for _ in 0..30 {
        run(&harness, &mut wire);
    }
    assert!(harness.deliver(&mut monitor).len() <= 1_000);
    assert_eq!(monitor.step, Step::Kill);
}

#[test]
fn reply_that_no_connection_could_hold_is_an_error_and_a_transaction_leaves_no_trace() {
    let mut harness = Harness::with(|settings| settings.connections_output_max = Size(1_000));
    let mut wire = harness.connect();
    let refusal = "-ERR the reply would be larger than connections.output_max (1000 B)\r\n";
    harness.raw(&mut wire, &["SET", "k", &"x".repeat(400)]);
    harness.expect(
        &mut wire,
        &[
            ("MGET k k k", refusal),
            ("MULTI", "+OK\r\n"),
            ("SET k2 v", "+QUEUED\r\n"),
            ("GET k", "+QUEUED\r\n"),
            ("GET k", "+QUEUED\r\n"),
            ("GET k", "+QUEUED\r\n"),
            ("EXEC", refusal),
            ("EXISTS k2", ":0\r\n"),
        ],
    );
    for key in 0..100 {
        harness.line(&mut wire, &format!("SET key:{key} v"));
    }
    harness.expect(&mut wire, &[("KEYS *", refusal), ("KEYS key:7", "*1\r\n$5\r\nkey:7\r\n")]);
}

/// It counted as a call that succeeded, with all of its commands; and CLIENT KILL, CONFIG SET and the like in front of the
/// reply that was too large had acted, though the transaction was refused.
#[test]
fn refused_transaction_is_a_failed_call_and_none_of_its_commands_acted() {
    let mut harness = Harness::with(|settings| settings.connections_output_max = Size(1_000));
    let (mut wire, mut listener) = (harness.connect(), harness.connect());
    harness.line(&mut listener, "SUBSCRIBE c");
    harness.raw(&mut wire, &["SET", "k", &"x".repeat(600)]);
    let queue = [
        "MULTI",
        "CLIENT KILL ID 2",
        "CONFIG SET slowlog-max-len 7",
        "CLIENT NO-EVICT ON",
        "CLIENT SETNAME me",
        "PUBLISH c m",
        "SUBSCRIBE own",
        "GET k",
        "INCR n",
        "SELECT 3",
        "HELLO 3",
        "SELECT 0",
        "GET k",
    ];
    queue.iter().for_each(|line| drop(harness.line(&mut wire, line)));
    assert!(harness.line(&mut wire, "EXEC").starts_with("-ERR the reply would be larger"));
    assert_eq!(harness.killed(), [0_u64; 0]);
    assert_eq!(harness.deliver(&mut listener), b"");
    let info = harness.line(&mut wire, "CLIENT INFO");
    for kept in [" name= ", " flags=N ", " db=0 ", " sub=0 ", " resp=2 "] {
        assert!(info.contains(kept), "{kept} in {info}");
    }
    let length = "*2\r\n$15\r\nslowlog-max-len\r\n$3\r\n128\r\n";
    harness.expect(&mut wire, &[("CONFIG GET slowlog-max-len", length), ("EXISTS n", ":0\r\n")]);
    harness.expect(&mut wire, &[("MULTI", "+OK\r\n"), ("INCR n", "+QUEUED\r\n"), ("EXEC", "*1\r\n:1\r\n")]);
    let mut operator = harness.connect();
    harness.server.settings.change(&[("connections.output_max", "256MiB")]).expect("a larger reply");
    let info = harness.line(&mut operator, "INFO commandstats");
    let line = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        line.unwrap_or("").split(',').filter(|part| part.contains("calls")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("exec"), "cmdstat_exec:calls=2 rejected_calls=0 failed_calls=1");
    assert_eq!(line("incr"), "cmdstat_incr:calls=1 rejected_calls=0 failed_calls=0");
    assert_eq!(line("client|kill"), "", "did not run");
    assert_eq!(line("get"), "", "taken back");
}

#[test]
fn replies_of_control_commands_stand_at_their_place_and_those_that_find_no_room_do_not_run() {
    let mut harness = Harness::with(|settings| settings.connections_output_max = Size(1_000));
    let mut wire = harness.connect();
    let echo = format!("ECHO {}", "x".repeat(400));
    let queue = ["MULTI", "INCR n", &echo, "SELECT 1", "INCR n", "HELLO 3", "GET none", "SELECT 99", "GET n"];
    queue.iter().for_each(|line| drop(harness.line(&mut wire, line)));
    for line in [&echo, &echo, "CLIENT SETNAME me", "INCR n"] {
        harness.line(&mut wire, line);
    }
    let reply = harness.line(&mut wire, "EXEC");
    let refusal = "-ERR the reply would be larger than connections.output_max (1000 B)\r\n";
    let bulk = format!("$400\r\n{}\r\n", "x".repeat(400));
    assert!(reply.starts_with(&format!("*12\r\n:1\r\n{bulk}+OK\r\n:1\r\n%7\r\n")), "{reply}");
    let end = format!("_\r\n-ERR DB index is out of range\r\n$1\r\n1\r\n{bulk}{refusal}{refusal}:2\r\n");
    assert!(reply.ends_with(&end), "{reply}");
    harness.expect(&mut wire, &[("CLIENT GETNAME", "_\r\n"), ("GET n", "$1\r\n2\r\n")]);
}

/// A name of three bytes is answered with a kilobyte: a request of some megabytes made replies of gigabytes, and the whole was
/// in memory before the connection was cut.
#[test]
fn control_command_that_repeats_what_it_was_asked_for_ends_at_the_limit() {
    let mut harness = Harness::with(|settings| settings.connections_output_max = Size(1_000));
    let mut wire = harness.connect();
    let refusal = "-ERR the reply would be larger than connections.output_max (1000 B)\r\n";
    for line in ["CLIENT LIST ID 1", "COMMAND INFO get"] {
        assert!(!harness.line(&mut wire, line).starts_with('-'), "{line}");
        let name = line.rsplit_once(' ').expect("a name").1;
        let many = format!("{line}{}", format!(" {name}").repeat(100));
        assert_eq!(harness.line(&mut wire, &many), refusal, "{line}");
    }
    assert_eq!(harness.line(&mut wire, "COMMAND DOCS"), refusal);
    for line in ["MULTI", "CLIENT LIST ID 1 1 1 1 1 1", "INCR n"] {
        harness.line(&mut wire, line);
    }
    assert_eq!(harness.line(&mut wire, "EXEC"), format!("*2\r\n{refusal}:1\r\n"));
}

#[test]
fn small_commands_of_a_transaction_count_with_what_they_keep() {
    // A hundred bytes are kept for each of the fourteen that a PING takes on the wire.
    let mut harness = Harness::with(|settings| settings.transaction_max = Size(10_000));
    let mut wire = harness.connect();
    harness.line(&mut wire, "MULTI");
    let refused =
        (0..200).find(|_| harness.line(&mut wire, "PING").starts_with("-ERR transaction is larger"));
    assert!(refused.is_some_and(|count| count > 20), "{refused:?}");
    assert!(harness.line(&mut wire, "EXEC").starts_with("-EXECABORT"));
}

#[test]
fn watched_keys_are_bounded_and_many_at_once_are_quick() {
    let mut harness = Harness::with(|settings| settings.transaction_max = Size(40_000_000));
    let mut wire = harness.connect();
    let mut words = vec!["WATCH".to_owned()];
    words.extend((0..100_000).map(|key| format!("key:{key}")));
    assert_eq!(harness.long(&mut wire, &[words.clone()]), "+OK\r\n");
    assert_eq!(harness.long(&mut wire, &[words.clone()]), "+OK\r\n", "known ones take no more room");
    words.extend((100_000..200_000).map(|key| format!("key:{key}")));
    let refusal = "-ERR watched keys would take more than transaction.max (40000000 B)\r\n";
    assert_eq!(harness.long(&mut wire, &[words]), refusal);
    harness.expect(&mut wire, &[("UNWATCH", "+OK\r\n"), ("WATCH a", "+OK\r\n")]);
}

/// A hundred thousand times the largest name made a reply of hundreds of megabytes, and held a loop for a second.
#[test]
fn docs_of_a_name_are_told_once_however_often_it_is_asked() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let once = harness.line(&mut wire, "COMMAND DOCS client set client|id");
    let mut words = vec!["COMMAND", "DOCS"];
    words.extend(["client", "set", "SET", "client|id", "nothing"].repeat(20_000));
    assert!(harness.raw(&mut wire, &words) == once, "of one name each");
    let once = harness.line(&mut wire, "COMMAND INFO get nothing");
    let (_, items) = once.split_once("\r\n").expect("an array");
    let twice = harness.line(&mut wire, "COMMAND INFO get nothing GET nothing");
    assert_eq!(twice, format!("*4\r\n{items}{items}"), "INFO answers each");
}

/// The histogram of each name was gathered before the first was written: a request of some megabytes took gigabytes for it.
#[test]
fn histogram_of_a_name_is_told_once_however_often_it_is_asked() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[("PING", "+PONG\r\n"), ("CLIENT SETNAME a", "+OK\r\n")]);
    let one = harness.line(&mut wire, "LATENCY HISTOGRAM ping client");
    assert!(one.starts_with("*4\r\n$4\r\nping\r\n"), "two names and what was counted: {one}");
    let mut words = vec!["LATENCY", "HISTOGRAM"];
    words.extend(["ping", "PING", "client", "client|setname", "nothing"].repeat(20_000));
    assert_eq!(harness.raw(&mut wire, &words), one);
}

/// Two strings of 4,000 bytes held both keys and the loop for a tenth of a second; as many as value.max allowed, for a second.
#[test]
fn subsequence_that_would_take_long_is_refused() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for (key, bytes) in [("a", 2_047), ("b", 2_047), ("c", 2_048), ("d", 10_000_000), ("e", 1)] {
        harness.raw(&mut wire, &["SET", key, &"x".repeat(bytes)]);
    }
    harness.expect(&mut wire, &[("LCS a b LEN", ":2047\r\n")]);
    let refusal = |a: u64, b: u64| {
        let cells = (a + 1) * (b + 1);
        format!("-ERR LCS of {a} B and {b} B needs a table of {cells} cells, the most is 4194304\r\n")
    };
    for (line, a, b) in
        [("LCS a c", 2_047, 2_048), ("LCS d d LEN", 10_000_000, 10_000_000), ("LCS e d", 1, 10_000_000)]
    {
        assert_eq!(harness.line(&mut wire, line), refusal(a, b), "{line}");
    }
}

#[test]
fn channel_beyond_the_limit_is_refused_to_listeners_and_to_publishers_also_in_a_transaction() {
    let mut harness = Harness::new();
    let (mut wire, mut listener) = (harness.connect(), harness.connect());
    let (name, longest) = ("c".repeat(65_537), "c".repeat(65_536));
    let refusal = "-ERR a channel's name of 65537 B is longer than the limit of 65536 B\r\n";
    assert_eq!(harness.raw(&mut listener, &["SUBSCRIBE", "c", &name]), refusal);
    assert_eq!(harness.raw(&mut wire, &["PUBLISH", &name, "m"]), refusal);
    harness.raw(&mut listener, &["SUBSCRIBE", &longest]);
    assert_eq!(harness.raw(&mut wire, &["PUBLISH", &longest, "m"]), ":1\r\n");
    harness.line(&mut wire, "MULTI");
    for channel in [&longest, &name, &longest] {
        harness.raw(&mut wire, &["PUBLISH", channel, "m"]);
    }
    assert_eq!(harness.line(&mut wire, "EXEC"), format!("*3\r\n:1\r\n{refusal}:1\r\n"));
}

/// Subscribes to `count` patterns of which every third matches channel `news`.
fn subscribe_to_patterns(harness: &Harness, wire: &mut Wire, count: usize) {
    let patterns =
        (0..count).map(|i| if i % 3 == 0 { format!("n*{}s", "*".repeat(i)) } else { format!("x{i}*") });
    let command: Vec<String> = std::iter::once("PSUBSCRIBE".to_owned()).chain(patterns).collect();
    harness.raw(wire, &command);
}

/// One PUBLISH matched the patterns of all clients before its loop did anything else.
#[test]
fn publishing_to_many_patterns_runs_in_slices_and_reaches_each_listener_once() {
    let mut harness = Harness::new();
    let (mut listeners, mut wire) = ([harness.connect(), harness.connect()], harness.connect());
    for listener in &mut listeners {
        // Each of these patterns costs 50 steps or more: several slices of 500,000.
        for first in 0..30 {
            let patterns =
                (0..500).map(|i| format!("n?[ew]*s{}", "*".repeat(first)) + &"*".repeat(30 * (i % 2)));
            let own = (0..500).map(|i| format!("x{first}-{i}"));
            let names = patterns.chain(own);
            let command: Vec<String> = std::iter::once("PSUBSCRIBE".to_owned()).chain(names).collect();
            harness.raw(listener, &command);
        }
    }
    harness.raw(&mut listeners[0], &["SUBSCRIBE", "news"]);
    assert_eq!(harness.line(&mut wire, "PUBLISH news m"), "", "not within one slice");
    assert_eq!(wire.step, Step::Park);
    let (mut slices, mut reply) = (1, Vec::new());
    while reply.is_empty() {
        reply = harness.after(&mut wire, Duration::ZERO);
        slices += 1;
        assert!(slices < 100, "{slices} slices and no reply");
    }
    let told: usize = String::from_utf8_lossy(&reply[1..]).trim().parse().expect("a number");
    let got = listeners.each_mut().map(|listener| {
        let messages = String::from_utf8(harness.deliver(listener)).expect("text");
        messages.matches("message\r\n").count()
    });
    assert_eq!(told, got[0] + got[1]);
    assert_eq!(got[0], got[1] + 1, "the channel itself");
}

#[test]
fn a_transaction_looks_for_patterns_before_it_runs_and_publishes_all_at_once() {
    let mut harness = Harness::new();
    let (mut listener, mut wire) = (harness.connect(), harness.connect());
    for first in 0..12 {
        let names = (0..1_000).map(|i| format!("x{first}-{i}*"));
        let command: Vec<String> = std::iter::once("PSUBSCRIBE".to_owned()).chain(names).collect();
        harness.raw(&mut listener, &command);
    }
    subscribe_to_patterns(&harness, &mut listener, 30);
    for line in ["MULTI", "INCR n", "PUBLISH news one", "PUBLISH other two", "PUBLISH news three"] {
        harness.line(&mut wire, line);
    }
    assert_eq!(harness.line(&mut wire, "EXEC"), "", "not within one slice");
    assert_eq!(harness.deliver(&mut listener), b"");
    let (mut slices, mut reply) = (1, Vec::new());
    while reply.is_empty() {
        reply = harness.after(&mut wire, Duration::ZERO);
        slices += 1;
        assert!(slices < 100, "{slices} slices and no reply");
    }
    assert_eq!(reply, b"*4\r\n:1\r\n:10\r\n:0\r\n:10\r\n");
    let messages = String::from_utf8(harness.deliver(&mut listener)).expect("text");
    assert_eq!(messages.matches("\r\none\r\n").count(), 10);
    assert_eq!(messages.matches("\r\nthree\r\n").count(), 10);
}

#[test]
fn many_channels_are_listed_in_slices_and_a_transaction_refuses_to_look_at_too_many() {
    let mut harness = Harness::new();
    let (mut listener, mut wire) = (harness.connect(), harness.connect());
    for first in 0..25 {
        let names = (0..1_000).map(|i| format!("c{first}-{i}"));
        let command: Vec<String> = std::iter::once("SUBSCRIBE".to_owned()).chain(names).collect();
        harness.raw(&mut listener, &command);
    }
    assert_eq!(harness.line(&mut wire, "PUBSUB CHANNELS c7-*5"), "", "not within one slice");
    let (mut slices, mut reply) = (1, Vec::new());
    while reply.is_empty() {
        reply = harness.after(&mut wire, Duration::ZERO);
        slices += 1;
        assert!(slices < 100, "{slices} slices and no reply");
    }
    assert!(reply.starts_with(b"*100\r\n"), "{}", String::from_utf8_lossy(&reply[..20]));
    harness.line(&mut wire, "MULTI");
    harness.line(&mut wire, "PUBSUB CHANNELS c7-*5");
    assert!(harness.line(&mut wire, "EXEC").starts_with("*1\r\n*100\r\n"));
    // Each of these takes 60,000 steps to match.
    for i in 0..200 {
        harness.raw(&mut listener, &["SUBSCRIBE", &format!("{i}{}", "a".repeat(60_000))]);
    }
    harness.line(&mut wire, "MULTI");
    harness.line(&mut wire, "PUBSUB CHANNELS *a?[b]*");
    let refusal = "*1\r\n-ERR there are too many channels for PUBSUB CHANNELS inside MULTI\r\n";
    assert_eq!(harness.line(&mut wire, "EXEC"), refusal);
}

/// redis_exporter, redigo and others read every number as a signed one of 64 bits.
#[test]
fn no_number_that_clients_are_told_exceeds_what_they_read_it_as() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for i in 0..300 {
        harness.line(&mut wire, &format!("SET key:{i} v"));
    }
    harness.line(&mut wire, "CONFIG SET slowlog-log-slower-than 0");
    let mut cursor = "0".to_owned();
    loop {
        let reply = harness.line(&mut wire, &format!("SCAN {cursor} COUNT 1"));
        cursor = reply.lines().nth(2).expect("a cursor").to_owned();
        assert!(cursor.parse::<i64>().is_ok_and(|cursor| cursor < 1 << 53), "{cursor}");
        if cursor == "0" {
            break;
        }
    }
    for line in [
        "INFO everything",
        "CLIENT LIST",
        "CLIENT INFO",
        "CLIENT ID",
        "CLIENT TRACKINGINFO",
        "TIME",
        "SLOWLOG GET -1",
        "LATENCY HISTOGRAM",
        "LATENCY LATEST",
        "MEMORY STATS",
        "MEMORY USAGE key:1",
        "OBJECT FREQ key:1",
        "OBJECT IDLETIME key:1",
        "DEBUG OBJECT key:1",
        "CONFIG GET *",
        "COMMAND COUNT",
        "DBSIZE",
        "HELLO",
        "TX.LIST",
        "TX.BEGIN",
        "LOOPS",
        "PEXPIRETIME key:1",
        "EXPIRETIME key:1",
        "LASTSAVE",
        "ROLE",
        "XINFO",
        "MEMORY DOCTOR",
    ] {
        let reply = harness.line(&mut wire, line);
        for number in reply.split(|c: char| !c.is_ascii_alphanumeric() && c != '.') {
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            assert!(!is_number || number.parse::<i64>().is_ok(), "{line}: {number} in {reply}");
        }
    }
}

/// A client that did not authenticate got any number of replies: 3,000 of them that looped HELLO and never read took 3.5 GB.
#[test]
fn client_that_asks_on_and_on_before_auth_is_closed_after_some_dozens_of_replies() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "secret").expect("a password"));
    for line in ["HELLO 3", "GET k", "AUTH wrong", "PING"] {
        let mut wire = harness.connect();
        let mut bytes = 0;
        for _ in 0..1_000 {
            bytes += harness.line(&mut wire, line).len();
            if wire.step == Step::Park {
                bytes += harness.after(&mut wire, Duration::from_secs(5)).len();
            }
            if wire.step == Step::Close {
                break;
            }
        }
        assert_eq!(wire.step, Step::Close, "{line}");
        assert!((8 << 10..10 << 10).contains(&bytes), "{bytes} bytes for {line}");
    }
    let mut wire = harness.connect();
    let pipeline = "HELLO 3 AUTH default secret\r\n".to_owned() + &"PING\r\n".repeat(10_000);
    let mut replies = harness.feed(&mut wire, pipeline.as_bytes());
    while wire.step == Step::Park {
        // Guesses came from where it comes from.
        replies.extend(harness.after(&mut wire, Duration::from_secs(1)));
    }
    assert!(replies.ends_with(b"+PONG\r\n+PONG\r\n") && replies.len() > 70_000);
    assert_eq!(wire.step, Step::Continue, "who has authenticated may ask for more");
    let info = harness.line(&mut wire, "INFO stats");
    assert!(info.contains("unauthenticated_cut_for_output:4\r\n"), "{info}");
}

/// 2.6 million passwords a second could be tried on one connection, and nothing told of it.
#[test]
fn wrong_passwords_make_the_next_ones_wait_longer_and_longer() {
    for guess in
        ["AUTH wrong", "AUTH default wrong", "HELLO 3 AUTH default wrong", "HELLO 2 AUTH other secret"]
    {
        let mut harness =
            Harness::with(|settings| settings.set("requirepass", "secret").expect("a password"));
        let mut wire = harness.connect();
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        assert_eq!(harness.line(&mut wire, guess), wrong);
        for wait_ms in [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let (began, wait) = (harness.clock.now(), Duration::from_millis(wait_ms));
            assert_eq!(harness.line(&mut wire, guess), "");
            assert_eq!((wire.step, wire.wake), (Step::Park, Some(began + wait)), "{guess}");
            assert_eq!(harness.after(&mut wire, wait), wrong.as_bytes(), "{guess}");
        }
        let pipeline = format!("{guess}\r\n").repeat(2);
        assert_eq!(harness.feed(&mut wire, pipeline.as_bytes()), b"");
        assert_eq!(harness.after(&mut wire, Duration::from_secs(5)), wrong.as_bytes(), "one at a time");
        assert_eq!(wire.step, Step::Park);
    }
}

#[test]
fn right_password_behind_a_wrong_one_waits_as_well_and_lets_in() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "secret").expect("a password"));
    let mut wire = harness.connect();
    assert!(harness.line(&mut wire, "AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(harness.feed(&mut wire, b"AUTH secret\r\nPING\r\n"), b"");
    assert_eq!(harness.after(&mut wire, Duration::from_millis(50)), b"+OK\r\n+PONG\r\n");
    let info = harness.line(&mut wire, "INFO stats");
    assert!(info.contains("auth_failures:1\r\n") && info.contains("auth_delays:1\r\n"), "{info}");
}

#[test]
fn transaction_tries_one_wrong_password_and_the_next_transaction_waits() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "secret").expect("a password"));
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[("AUTH secret", "+OK\r\n")]);
    let queue = ["MULTI", "AUTH one", "AUTH two", "HELLO 3 AUTH default secret", "AUTH three"];
    queue.iter().for_each(|line| drop(harness.line(&mut wire, line)));
    let reply = harness.line(&mut wire, "EXEC");
    assert_eq!(reply.matches("-WRONGPASS").count(), 1, "{reply}");
    assert_eq!(reply.matches("-ERR no password is looked at").count(), 3, "{reply}");
    for line in ["MULTI", "AUTH four"] {
        harness.line(&mut wire, line);
    }
    assert_eq!(harness.line(&mut wire, "EXEC"), "");
    let reply = harness.after(&mut wire, Duration::from_millis(50));
    assert!(reply.starts_with(b"*1\r\n-WRONGPASS"), "{}", String::from_utf8_lossy(&reply));
}

/// A million entries of the slow log took 2.6 GB, of which used_memory knew nothing.
#[test]
fn slow_log_is_bounded_by_the_limit_of_memory_and_counted() {
    let mut harness = Harness::with(|settings| {
        settings.slowlog_length_max = 1_000_000;
        settings.slowlog_threshold = crate::settings::Threshold::From(Duration::ZERO);
    });
    harness.server.store.set_memory_limit(16 << 20);
    let mut wire = harness.connect();
    harness.server.settings.change(&[("slowlog.length_max", "999999")]).expect("settings are read anew");
    let arguments = vec!["x".repeat(128); 30];
    let words: Vec<&str> = ["DEL"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    for _ in 0..1_000 {
        harness.raw(&mut wire, &words);
    }
    let most = (16 << 20) / 64;
    assert!(
        (most / 2..=most).contains(&harness.server.slowlog.bytes()),
        "{}",
        harness.server.slowlog.bytes()
    );
    let length = harness.line(&mut wire, "SLOWLOG LEN");
    assert!(length.trim_start_matches(':').trim().parse::<u64>().expect("a count") < 100, "{length}");
    let info = harness.line(&mut wire, "INFO memory");
    assert!(info.contains("clients_memory_slowlog:2"), "{info}");
    harness.expect(&mut wire, &[("SLOWLOG RESET", "+OK\r\n")]);
    assert!(harness.server.slowlog.bytes() < 10_000);
}

/// Each listener had a copy of each message in its output: 50 that never read took 50 times what was published.
#[test]
fn long_message_is_stored_once_for_all_listeners_of_both_versions() {
    let mut harness = Harness::new();
    let mut listeners: Vec<_> = (0..20).map(|_| harness.connect()).collect();
    for (index, listener) in listeners.iter_mut().enumerate() {
        if index % 2 == 1 {
            harness.line(listener, "HELLO 3");
        }
        let names = ["SUBSCRIBE c", "PSUBSCRIBE c*"];
        names.iter().take(1 + index % 3).for_each(|line| drop(harness.line(listener, line)));
    }
    let mut publisher = harness.connect();
    let payload = "x".repeat(1 << 20);
    harness.raw(&mut publisher, &["PUBLISH", "c", &payload]);
    let on_the_way = harness.server.traffic.kept_bytes();
    assert!(((1 << 20)..(1 << 20) + 10_000).contains(&on_the_way), "{on_the_way} bytes for one message");
    let mut shared = Vec::new();
    for listener in &mut listeners {
        shared.push(harness.take_in(listener));
    }
    assert!(shared.iter().all(|bytes| *bytes >= 1 << 20), "nobody has a copy: {shared:?}");
    let kept = harness.server.traffic.kept_bytes();
    assert_eq!(kept, 1 << 20, "it is still there once");
    for (index, listener) in listeners.iter_mut().enumerate() {
        let text = harness.sent(listener);
        let push = if index % 2 == 1 { '>' } else { '*' };
        assert!(text.starts_with(&format!("{push}3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1048576\r\nxxx")));
        assert_eq!(text.matches(&payload).count(), if index % 3 == 0 { 1 } else { 2 });
    }
    assert_eq!(harness.server.traffic.kept_bytes(), 0);
}
