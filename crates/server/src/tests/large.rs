//! Large values in replies: lent, not copied, by every command that answers with a whole value.

use std::cell::{Cell, RefCell};

use commands::call::{Data, Failure};
use commands::copies::{Copies, Splice};
use resp::{Args, Limits, RequestParser, Writer, encode_command};
use store::{KeyRef, Prepared, Scope};

use super::{Harness, Wire, data_handler};
use crate::turn;

/// Runs `command`; returns how many bytes of its reply were copied, and how many are lent.
fn run(harness: &Harness, wire: &mut Wire, command: &[&str]) -> (usize, usize) {
    let (copied, lent) = (wire.output.buffer().len(), wire.output.attached_bytes());
    let mut request = Vec::new();
    encode_command(&mut request, command);
    wire.input.feed(&request);
    turn::on_input(&harness.server, &mut wire.session, &mut wire.input, &mut wire.output, 0);
    (wire.output.buffer().len() - copied, wire.output.attached_bytes() - lent)
}

/// A GET copied its value into the replies while it held the lock of the key's stripe: a megabyte took as long as a
/// hundred small commands, and whoever needed a key of that stripe waited.
#[test]
fn large_value_is_not_copied_by_those_who_read_it() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let value = "v".repeat(1_000_000);
    let memory = |harness: &Harness| harness.server.store.memory().index_bytes;
    let set = |harness: &Harness, wire: &mut Wire| run(harness, wire, &["SET", "k", &value]);
    set(&harness, &mut wire);
    let bytes = memory(&harness);
    for command in [
        &["GET", "k"][..],
        &["GETEX", "k", "EX", "100"],
        &["EXPIRE", "k", "50"],
        &["GETRANGE", "k", "0", "-1"],
        &["GETDEL", "k"],
        &["SET", "k", "small", "GET"],
        &["GETSET", "k", "small"],
    ] {
        set(&harness, &mut wire);
        let (copied, lent) = run(&harness, &mut wire, command);
        assert!(copied < 32, "{command:?} copied {copied} B");
        assert_eq!(lent, if command[0] == "EXPIRE" { 0 } else { 1_000_000 }, "{command:?}");
    }
    set(&harness, &mut wire);
    assert_eq!(run(&harness, &mut wire, &["MGET", "k", "none", "k"]), (4 + 2 * 12 + 5, 2_000_000));
    run(&harness, &mut wire, &["MULTI"]);
    for _ in 0..3 {
        run(&harness, &mut wire, &["GET", "k"]);
    }
    assert_eq!(run(&harness, &mut wire, &["EXEC"]), (4 + 3 * 12, 3_000_000));
    for command in [&["ECHO", "before"][..], &["GET", "k"], &["ECHO", "after"], &["GET", "k"], &["PING"]] {
        if command == ["ECHO", "before"] {
            run(&harness, &mut wire, &["MULTI"]);
        }
        run(&harness, &mut wire, command);
    }
    let copied = "*5\r\n$6\r\nbefore\r\n$1000000\r\n\r\n$5\r\nafter\r\n$1000000\r\n\r\n+PONG\r\n";
    let start = wire.output.buffer().len();
    assert_eq!(run(&harness, &mut wire, &["EXEC"]), (copied.len(), 2_000_000));
    assert_eq!(&wire.output.buffer()[start..], copied.as_bytes(), "the values are lent between these");
    run(&harness, &mut wire, &["CLIENT", "REPLY", "OFF"]);
    assert_eq!(
        run(&harness, &mut wire, &["GET", "k"]),
        (0, 0),
        "nothing is lent to a reply that is not sent"
    );
    run(&harness, &mut wire, &["DEL", "k"]);
    wire.output = reactor::Output::default();
    assert!(memory(&harness) < bytes - 900_000, "what nobody holds is free");
}

/// RENAME, COPY and MOVE made a second and a third copy of the value under the locks of both keys, DUMP two for its payload.
#[test]
fn large_value_is_not_copied_by_those_who_pass_it_on() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let value = "v".repeat(1_000_000);
    let memory = |harness: &Harness| harness.server.store.memory().index_bytes;
    run(&harness, &mut wire, &["SET", "k", &value]);
    let bytes = memory(&harness);
    for command in [&["COPY", "k", "k2"][..], &["RENAME", "k", "k3"], &["MOVE", "k3", "1"]] {
        run(&harness, &mut wire, command);
        assert!(memory(&harness) < bytes + 10_000, "{command:?}");
    }
    let start = wire.output.buffer().len();
    assert_eq!(run(&harness, &mut wire, &["DUMP", "k2"]), (10 + 6 + 10 + 2, 1_000_000));
    let copied = wire.output.buffer()[start..].to_vec();
    let payload = [&copied[10..16], value.as_bytes(), &copied[16..26]].concat();
    assert_eq!(payload, commands::payload::encode(value.as_bytes()), "sealed as if it were copied");
}

#[test]
fn large_value_is_stored_as_sent_by_every_command_that_copies_ahead() {
    let mut harness = Harness::new();
    let value = "v".repeat(100_000);
    let check = |harness: &Harness, wire: &mut Wire, key: &str| {
        assert_eq!(harness.line(wire, &format!("STRLEN {key}")), ":100000\r\n", "{key}");
        assert_eq!(harness.line(wire, &format!("GETRANGE {key} 99999 -1")), "$1\r\nv\r\n", "{key}");
    };
    let payload = commands::payload::encode(value.as_bytes());
    let payload = payload.as_slice();
    let value = value.as_bytes();
    let commands: [(&str, &[&[u8]]); 9] = [
        ("a", &[b"SET", b"a", value]),
        ("b", &[b"SET", b"b", value, b"EX", b"100"]),
        ("c", &[b"SETNX", b"c", value]),
        ("d", &[b"SETEX", b"d", b"100", value]),
        ("e", &[b"PSETEX", b"e", b"100000", value]),
        ("f", &[b"GETSET", b"f", value]),
        ("g", &[b"MSET", b"x", b"small", b"g", value]),
        ("h", &[b"MSETNX", b"h", value, b"y", b"small"]),
        ("i", &[b"RESTORE", b"i", b"0", payload]),
    ];
    for in_transaction in [false, true] {
        let mut wire = harness.connect();
        if in_transaction {
            harness.expect(&mut wire, &[("FLUSHALL", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
        }
        commands.iter().for_each(|(_, command)| drop(harness.raw(&mut wire, command)));
        if in_transaction {
            let replies = "*9\r\n+OK\r\n+OK\r\n:1\r\n+OK\r\n+OK\r\n$-1\r\n+OK\r\n:1\r\n+OK\r\n";
            harness.expect(&mut wire, &[("EXEC", replies)]);
        }
        commands.iter().for_each(|(key, _)| check(&harness, &mut wire, key));
        harness.expect(&mut wire, &[("GET x", "$5\r\nsmall\r\n"), ("GET y", "$5\r\nsmall\r\n")]);
    }
    let mut wire = harness.connect();
    let mut damaged = payload.to_vec();
    damaged[50_000] ^= 1;
    let refusal = "-ERR DUMP payload version or checksum are wrong\r\n";
    assert_eq!(harness.raw(&mut wire, &[&b"RESTORE"[..], b"j", b"0", &damaged]), refusal);
}

#[test]
fn small_value_is_copied_and_large_replies_are_bounded_as_before() {
    let mut harness =
        Harness::with(|settings| settings.connections_output_max = crate::settings::Size(250_000));
    let mut wire = harness.connect();
    run(&harness, &mut wire, &["SET", "small", &"v".repeat(65_535)]);
    assert_eq!(run(&harness, &mut wire, &["GET", "small"]), (65_535 + 10, 0));
    run(&harness, &mut wire, &["SET", "large", &"v".repeat(65_536)]);
    assert_eq!(run(&harness, &mut wire, &["GET", "large"]), (10, 65_536));
    let (copied, lent) = run(&harness, &mut wire, &["MGET", "large", "large", "large", "large"]);
    assert!(copied > 50 && lent == 0, "refused with a text: {copied} {lent}");
    run(&harness, &mut wire, &["MULTI"]);
    for _ in 0..4 {
        run(&harness, &mut wire, &["GET", "large"]);
    }
    let (copied, lent) = run(&harness, &mut wire, &["EXEC"]);
    assert!(copied > 50 && lent == 0, "refused with a text: {copied} {lent}");
}

/// A request as sent, and where its arguments lie.
fn parsed(command: &[&[u8]]) -> (Vec<u8>, Args) {
    let (mut request, mut args) = (Vec::new(), Args::default());
    encode_command(&mut request, command);
    RequestParser::new().parse(&request, &Limits::REDIS, &mut args).unwrap();
    (request, args)
}

/// Runs an APPEND or SETRANGE once with what was made for it; returns what it asks for, or nothing when it is done.
fn asked(harness: &Harness, copies: &Copies, command: &[&[u8]]) -> Option<Splice> {
    let (request, args) = parsed(command);
    let (keys, prepared) = ([KeyRef { db: 0, key: command[1] }], Prepared::default());
    let mut access = harness.server.store.access(Scope::Keys(&keys), &prepared, 0).unwrap();
    let (now, mut out) = (access.now(), Vec::new());
    let (store, tuned) = (&*harness.server.store, &harness.server.tuned);
    let (lookups, attached) = (Cell::default(), RefCell::default());
    let mut data = Data {
        access: &mut access,
        db: 0,
        now,
        store,
        limits: &tuned.sizes,
        copies: copies.of(0),
        lookups,
        attached,
        ready: Default::default(),
        in_parts: false,
        chunked: Cell::default(),
        replied: Cell::default(),
    };
    let handler = data_handler(std::str::from_utf8(command[0]).expect("a name"));
    let outcome = handler(&mut data, args.view(&request), &mut Writer::new(&mut out, false));
    match outcome {
        Ok(()) => drop(access.commit().unwrap()),
        Err(Failure::Make(splice)) => return Some(splice),
        Err(failure) => panic!("{failure:?}"),
    }
    None
}

/// APPEND and SETRANGE made the new value, of up to value.max, while they held the lock of the key's stripe.
#[test]
fn large_value_is_made_of_another_while_no_key_is_locked() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let value = "v".repeat(100_000);
    harness.raw(&mut wire, &["SET", "k", &value]);
    let large = value.as_bytes();
    for command in [
        &[&b"APPEND"[..], b"k", b"tail"][..],
        &[b"APPEND", b"new", large],
        &[b"SETRANGE", b"k", b"10", b"part"],
        &[b"SETRANGE", b"new", b"200000", b"part"],
        &[b"SETRANGE", b"none", b"200000", b"part"],
    ] {
        let mut copies = Copies::default();
        let splice = asked(&harness, &copies, command).expect("asks before it makes anything");
        let (request, args) = parsed(command);
        copies.make(&harness.server.store, 0, splice, args.view(&request));
        assert!(asked(&harness, &copies, command).is_none(), "stores what was made");
    }
    harness.expect(
        &mut wire,
        &[
            ("STRLEN k", ":100004\r\n"),
            ("GETRANGE k 9 14", "$6\r\nvpartv\r\n"),
            ("GETRANGE k 99999 -1", "$5\r\nvtail\r\n"),
            ("STRLEN new", ":200004\r\n"),
            ("STRLEN none", ":200004\r\n"),
        ],
    );
    assert!(asked(&harness, &Copies::default(), &[b"APPEND", b"small", b"tail"]).is_none(), "made at once");
}

#[test]
fn value_made_of_what_others_have_changed_meanwhile_is_made_again_and_at_last_under_the_lock() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let command: &[&[u8]] = &[b"APPEND", b"k", b"!"];
    let (request, args) = parsed(command);
    let (mut copies, mut rounds) = (Copies::default(), 0);
    loop {
        // each a value of the same size, large or not, and at last the same bytes again
        let value = [b"a", b"b", b"b"][rounds % 3].repeat(100_000);
        harness.raw(&mut wire, &[&b"SET"[..], b"k", &value]);
        let Some(splice) = asked(&harness, &copies, command) else { break };
        copies.make(&harness.server.store, 0, splice, args.view(&request));
        rounds += 1;
    }
    assert_eq!(rounds, 8);
    harness.expect(&mut wire, &[("GETRANGE k 99999 -1", "$2\r\nb!\r\n"), ("STRLEN k", ":100001\r\n")]);
}

#[test]
fn large_values_grow_in_a_transaction_each_by_what_came_before() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let value = "v".repeat(100_000);
    run(&harness, &mut wire, &["SET", "k", &value]);
    run(&harness, &mut wire, &["MULTI"]);
    let mut replies = "*41\r\n".to_owned();
    for n in 0..20 {
        run(&harness, &mut wire, &["APPEND", "k", "ab"]);
        run(&harness, &mut wire, &["SETRANGE", "k", &(100_000 + 2 * n).to_string(), "c"]);
        replies += &format!(":{0}\r\n:{0}\r\n", 100_002 + 2 * n);
    }
    run(&harness, &mut wire, &["GETRANGE", "k", "99999", "-1"]);
    replies += &format!("$41\r\nv{}\r\n", "cb".repeat(20));
    wire.output.buffer().clear();
    harness.expect(&mut wire, &[("EXEC", &replies)]);
}

/// What was asked for with each part was the sum of all before it: a set of 100,000 members would have taken half a gigabyte.
#[test]
fn payload_of_a_large_collection_is_restored_with_little_memory() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.server.store.set_memory_limit(64 << 20);
    let mut call = |words: &[&[u8]]| {
        let mut request = Vec::new();
        encode_command(&mut request, words);
        let mut reply = harness.feed(&mut wire, &request);
        while reply.is_empty() {
            std::thread::yield_now();
            reply = harness.deliver(&mut wire);
        }
        reply
    };
    for part in 0..10 {
        let members: Vec<String> = (0..5_000).map(|number| format!("member-{part}-{number}")).collect();
        let words: Vec<&[u8]> =
            ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).map(str::as_bytes).collect();
        assert_eq!(call(&words), b":5000\r\n");
    }
    let reply = call(&[b"DUMP", b"s"]);
    let head = reply.iter().position(|byte| *byte == b'\n').expect("a length");
    let reply = call(&[b"RESTORE", b"t", b"0", &reply[head + 1..reply.len() - 2]]);
    assert_eq!(String::from_utf8_lossy(&reply), "+OK\r\n");
    assert_eq!(call(&[b"SCARD", b"t"]), b":50000\r\n");
}
