//! Keys whose values are only on disk, through the shipped binary: what a restart leaves, served as if it were hot.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use resp::Value;

use crate::common::{self, Server, bulk, ok, receive, resident_peak_bytes};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

/// Sends `commands` in one write; returns the replies.
fn pipeline(stream: &mut TcpStream, commands: &[&[&str]]) -> Vec<Value> {
    let mut request = Vec::new();
    for command in commands {
        resp::encode_command(&mut request, command);
    }
    stream.write_all(&request).expect("sent");
    commands.iter().map(|_| receive(stream).expect("a reply")).collect()
}

/// As [`pipeline`], of large replies: the last of them, and none before, ends with `end`.
fn pipeline_until(stream: &mut TcpStream, commands: &[&[&str]], end: &[u8]) -> Vec<Value> {
    let mut request = Vec::new();
    commands.iter().for_each(|command| resp::encode_command(&mut request, command));
    stream.write_all(&request).expect("sent");
    let (mut received, mut part) = (Vec::new(), vec![0; 1 << 20]);
    while !received.ends_with(end) {
        let count = stream.read(&mut part).expect("replies");
        assert_ne!(count, 0, "closed after {} B", received.len());
        received.extend_from_slice(&part[..count]);
    }
    let mut rest = &received[..];
    let mut reply = || {
        let (value, bytes) = resp::decode_value(rest).expect("the server speaks RESP").expect("all of it");
        rest = &rest[bytes..];
        value
    };
    commands.iter().map(|_| reply()).collect()
}

/// EXEC met a cold key and ran again as a whole, its CLIENT KILL too: the second time there was nobody left to kill,
/// and the reply said so.
#[test]
fn exec_that_waits_for_a_cold_key_runs_its_control_commands_once() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["set", "cold", "value"]), ok());
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    let server = Server::start(dir.path(), &[]);
    let mut victim = connect(&server);
    let Value::Integer(id) = pipeline(&mut victim, &[&["client", "id"]]).remove(0) else { panic!("an id") };
    let id = id.to_string();
    let mut stream = connect(&server);
    let replies = pipeline(
        &mut stream,
        &[&["multi"], &["client", "kill", "id", &id], &["select", "0"], &["get", "cold"], &["exec"]],
    );
    assert_eq!(replies[4], Value::Array(vec![Value::Integer(1), ok(), bulk("value")]));
}

#[test]
fn pipeline_over_cold_keys_is_answered_in_order() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let keys: Vec<String> = (0..200).map(|n| format!("key:{n}")).collect();
    let sets: Vec<[&str; 3]> = keys.iter().map(|key| ["set", key, key]).collect();
    let sets: Vec<&[&str]> = sets.iter().map(|set| &set[..]).collect();
    assert!(pipeline(&mut connect(&server), &sets).iter().all(|reply| *reply == ok()));
    server.signal(libc::SIGKILL);
    drop(server.end());

    let server = Server::start(dir.path(), &[]);
    let gets: Vec<[&str; 2]> = keys.iter().map(|key| ["get", key]).collect();
    let gets: Vec<&[&str]> = gets.iter().map(|get| &get[..]).collect();
    let replies = pipeline(&mut connect(&server), &gets);
    assert_eq!(replies, keys.iter().map(|key| bulk(key)).collect::<Vec<_>>());
    assert_eq!(server.call(&["dbsize"]), Value::Integer(200));
}

/// A server that starts with so many keys, none of them in memory.
fn cold_server(dir: &std::path::Path, count: usize) -> Server {
    let server = Server::start(dir, &["--durability=never"]);
    let keys: Vec<String> = (0..count).map(|n| format!("key:{n}")).collect();
    let sets: Vec<[&str; 3]> = keys.iter().map(|key| ["set", key, "v"]).collect();
    let sets: Vec<&[&str]> = sets.iter().map(|set| &set[..]).collect();
    let mut stream = connect(&server);
    for part in sets.chunks(1_000) {
        assert!(pipeline(&mut stream, part).iter().all(|reply| *reply == ok()));
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
    Server::start(dir, &[])
}

/// Replies that are sent in parts wait for the disk between them, and for the client.
#[test]
fn large_collections_are_sent_in_parts_from_the_disk_in_order_with_what_follows() {
    const COUNT: usize = 30_000;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--durability=never"]);
    let mut stream = connect(&server);
    let names: Vec<String> = (0..COUNT).map(|n| format!("name:{n:06}")).collect();
    let value = "v".repeat(60);
    for part in names.chunks(1_000) {
        let mut hset = vec!["hset", "hash"];
        part.iter().for_each(|name| hset.extend([name, &value[..]]));
        let rpush: Vec<&str> =
            ["rpush", "list"].into_iter().chain(part.iter().map(|name| &name[..])).collect();
        let filled = pipeline(&mut stream, &[&hset, &rpush]);
        assert_eq!(filled[0], Value::Integer(part.len() as i64));
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    let server = Server::start(dir.path(), &[]);
    let mut stream = connect(&server);
    let commands: [&[&str]; 5] = [
        &["hgetall", "hash"],
        &["echo", "between"],
        &["lrange", "list", "5", "-1"],
        &["hvals", "hash"],
        &["echo", "behind"],
    ];
    let mut replies = pipeline_until(&mut stream, &commands, b"$6\r\nbehind\r\n");
    assert!(replies[1] == bulk("between") && replies[4] == bulk("behind"));
    let mut array = |at: usize| match std::mem::replace(&mut replies[at], Value::Null) {
        Value::Array(elements) => elements,
        other => panic!("reply {at} is {other:?}"),
    };
    let fields = array(0);
    let mut found: Vec<&Value> = fields.iter().step_by(2).collect();
    found.sort_by_key(|field| format!("{field:?}"));
    assert!(found.into_iter().eq(names.iter().map(|name| bulk(name)).collect::<Vec<_>>().iter()));
    assert!(fields.iter().skip(1).step_by(2).all(|it| *it == bulk(&value)));
    assert!(array(2) == names[5..].iter().map(|name| bulk(name)).collect::<Vec<_>>());
    assert_eq!(array(3).len(), COUNT);
    assert_eq!(info(&server, "stats", "replies_in_parts:"), 3);
    assert!(info(&server, "journal", "journal_fetches:") > 3);
    // a client that leaves in the middle
    let mut leaver = connect(&server);
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["hgetall", "hash"]);
    leaver.write_all(&request).expect("sent");
    drop(leaver);
    assert_eq!(server.call(&["del", "hash", "list"]), Value::Integer(2));
    common::eventually("the leaves go", || info(&server, "stats", "leaves:") == 0);
}

/// It started at another random place after each read from disk, met another cold key there, and read again: the more
/// keys, the longer, and without a bound.
#[test]
fn random_key_among_cold_ones_needs_few_reads() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = cold_server(dir.path(), 20_000);
    for _ in 0..20 {
        assert!(matches!(server.call(&["randomkey"]), Value::Bulk(_)));
    }
    let fetches = info(&server, "journal", "journal_fetches:");
    assert!(fetches <= 60, "{fetches} reads for 20 keys");
}

/// What KEYS had to read was searched in full for each key that was added to it.
#[test]
fn keys_of_a_cold_folder_are_listed_in_time_that_grows_with_their_number() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = cold_server(dir.path(), 50_000);
    let started = std::time::Instant::now();
    let Value::Array(keys) = server.call(&["keys", "key:4999*"]) else { panic!("an array") };
    assert_eq!(keys.len(), 11);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[test]
fn data_set_larger_than_memory_limit_is_written_served_and_started_again() {
    const LIMIT_BYTES: u64 = 24 << 20;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let start = || Server::start(dir.path(), &["--memory-limit=24MiB", "--durability=never"]);
    // 96 MiB: four times the limit
    let value = |n: usize| format!("{n}.").repeat(16_384 / (n.to_string().len() + 1));
    let server = start();
    let mut stream = connect(&server);
    for n in 0..6_144 {
        let (key, value) = (format!("key:{n}"), value(n));
        assert_eq!(pipeline(&mut stream, &[&["set", &key, &value]]), [ok()]);
    }
    let check = |server: &Server| {
        let mut stream = connect(server);
        for n in (0..6_144).step_by(61) {
            let reply = pipeline(&mut stream, &[&["get", &format!("key:{n}")]]).remove(0);
            assert!(reply == bulk(&value(n)), "key:{n} is another");
        }
        let used = info(server, "memory", "used_memory:");
        assert!(used <= LIMIT_BYTES, "{used} B are in use");
    };
    check(&server);
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    let server = start();
    assert_eq!(server.call(&["dbsize"]), Value::Integer(6_144));
    check(&server);
    assert_eq!(server.call(&["set", "one", "more"]), ok());
    assert_eq!(server.call(&["del", "key:0"]), Value::Integer(1));
    assert_eq!(server.call(&["expire", "key:1", "100"]), Value::Integer(1));
}

/// A server with room for about 13,000 values, and the 30,000 keys that it has.
fn full_server(dir: &std::path::Path) -> (Server, TcpStream, Vec<String>) {
    let server = Server::start(dir, &["--memory-limit=16MiB", "--durability=never"]);
    let value = "v".repeat(1_000);
    let keys: Vec<String> = (0..30_000).map(|n| format!("key:{n}")).collect();
    let mut stream = connect(&server);
    for part in keys.chunks(500) {
        let sets: Vec<[&str; 3]> = part.iter().map(|key| ["set", key, &value]).collect();
        let sets: Vec<&[&str]> = sets.iter().map(|set| &set[..]).collect();
        assert!(pipeline(&mut stream, &sets).iter().all(|reply| *reply == ok()));
    }
    (server, stream, keys)
}

/// Reads `keys`, so many with one command; returns how many were read from disk. The replies are short.
fn cold_reads(server: &Server, stream: &mut TcpStream, keys: &[String], at_once: usize) -> u64 {
    let before = info(server, "all", "log_cold_reads:");
    for part in keys.chunks(40) {
        let reads = part.chunks(at_once).map(|keys| {
            let (command, range): (_, &[&str]) =
                if at_once == 1 { ("getrange", &["0", "0"]) } else { ("exists", &[]) };
            let keys = keys.iter().map(String::as_str);
            std::iter::once(command).chain(keys).chain(range.iter().copied()).collect::<Vec<_>>()
        });
        let reads: Vec<_> = reads.collect();
        let reads: Vec<&[&str]> = reads.iter().map(Vec::as_slice).collect();
        assert_eq!(pipeline(stream, &reads).len(), reads.len());
    }
    info(server, "all", "log_cold_reads:") - before
}

/// Reads never made room: 2,732 of 4,000 GETs read from disk in the first round, 2,245 still in the eighth.
#[test]
fn keys_that_are_read_round_after_round_are_in_memory_from_the_third_on() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let (server, mut stream, keys) = full_server(dir.path());
    for (first, at_once) in [(0, 1), (10_000, 40)] {
        let keys = &keys[first..first + 4_000];
        let rounds = [(); 4].map(|()| cold_reads(&server, &mut stream, keys, at_once));
        assert!(rounds[0] > 1_000 && rounds[2..] == [0, 0], "{at_once} at once: {rounds:?} read from disk");
    }
}

/// Each value that was read displaced another one, so whoever looked at every key once swept memory.
#[test]
fn pass_over_all_keys_leaves_what_is_read_often_in_memory() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let (server, mut stream, keys) = full_server(dir.path());
    let used = &keys[..4_000];
    (0..3).for_each(|_| assert!(cold_reads(&server, &mut stream, used, 1) <= 4_000));
    assert_eq!(cold_reads(&server, &mut stream, used, 1), 0);
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    while found == 0 || cursor != "0" {
        let reply = pipeline(&mut stream, &[&["scan", &cursor, "count", "100"]]).remove(0);
        let Value::Array(mut parts) = reply else { panic!("cursor and keys") };
        let (Some(Value::Array(names)), Some(Value::Bulk(next))) = (parts.pop(), parts.pop()) else {
            panic!("cursor and keys")
        };
        (found, cursor) = (found + names.len(), String::from_utf8(next).expect("digits"));
    }
    assert_eq!(found, keys.len());
    assert_eq!(cold_reads(&server, &mut stream, used, 1), 0, "after SCAN");
    assert!(cold_reads(&server, &mut stream, &keys, 1) > 10_000, "most are on disk");
    assert_eq!(cold_reads(&server, &mut stream, used, 1), 0, "after a read of every key");
}

/// A number that INFO tells.
fn info(server: &Server, section: &str, field: &str) -> u64 {
    let Value::Bulk(info) = server.call(&["info", section]) else { panic!("text") };
    let info = String::from_utf8(info).expect("text");
    let number = info.lines().find_map(|line| line.strip_prefix(field)).expect("a field of that name");
    number.trim().parse().expect("a number")
}

/// An MGET, or a transaction, of many large values had all of them in memory at once, however many that were.
#[test]
fn values_that_memory_has_no_room_for_are_refused_and_the_rest_of_its_commands_works() {
    const COUNT: usize = 100;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let names: Vec<String> = (0..COUNT).map(|n| format!("big:{n}")).collect();
    let value = |n: usize| format!("{n:0>10}").repeat(100_000);
    let server = Server::start(dir.path(), &["--durability=never"]);
    for (n, name) in names.iter().enumerate() {
        assert_eq!(server.call(&["set", name, &value(n)]), ok());
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    let server = Server::start(dir.path(), &["--memory-limit=32MiB"]);
    let all = |command: &'static str| -> Vec<&str> {
        std::iter::once(command).chain(names.iter().map(String::as_str)).collect()
    };
    let before = resident_peak_bytes(&server);
    let refused = |reply: Value| {
        let Value::Error(text) = &reply else { panic!("{COUNT} MB were sent") };
        assert!(String::from_utf8_lossy(text).contains("memory.limit (33554432 B)"), "{reply:?}");
    };
    refused(server.call(&all("mget")));
    let mut transaction = vec![vec!["multi"]];
    transaction.extend(names.iter().map(|name| vec!["get", name]));
    transaction.push(vec!["exec"]);
    let transaction: Vec<&[&str]> = transaction.iter().map(Vec::as_slice).collect();
    refused(pipeline(&mut connect(&server), &transaction).remove(COUNT + 1));
    assert_eq!(server.call(&all("exists")), Value::Integer(COUNT as i64));
    assert_eq!(server.call(&["strlen", "big:99"]), Value::Integer(1_000_000));
    assert!(server.call(&["get", "big:7"]) == bulk(&value(7)), "one is always served");
    assert_eq!(server.call(&all("unlink")), Value::Integer(COUNT as i64), "what needs no value holds none");
    let grown = resident_peak_bytes(&server) - before;
    assert!(grown < 48 << 20, "{grown} B for {COUNT} MB of values");
}

/// Flips a bit of every place in the files of `dir` where `text` lies.
fn damage(dir: &std::path::Path, text: &str) {
    let mut found = 0;
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        let is_there = |at: &usize| bytes[*at..].starts_with(text.as_bytes());
        let places: Vec<usize> = (0..bytes.len()).filter(is_there).collect();
        for &at in &places {
            bytes[at] ^= 1;
            let file = std::fs::File::options().write(true).open(&path).expect("it opens");
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..=at], at as u64).expect("written");
        }
        found += places.len();
    }
    assert!(found > 0, "{text} is nowhere in {}", dir.display());
}

/// A key whose record could not be read could be neither overwritten nor removed: every command read it first.
#[test]
fn key_whose_record_is_damaged_can_be_replaced_and_removed_and_says_so_when_read() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let start = || Server::start(dir.path(), &["--journal-segment-size=1MiB"]);
    let server = start();
    for n in 0..8 {
        let value = format!("damage-me-{n} {}", "x".repeat(200));
        assert_eq!(server.call(&["set", &format!("d{n}"), &value]), ok());
    }
    // enough for the records to lie in a segment that is sealed: a start does not read it
    let filler = "f".repeat(50_000);
    for n in 0..60 {
        assert_eq!(server.call(&["set", &format!("f{n}"), &filler]), ok());
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    let server = start();
    (0..7).for_each(|n| damage(dir.path(), &format!("damage-me-{n}")));
    let refused = |command: &[&str]| {
        let reply = server.call(command);
        assert!(
            matches!(&reply, Value::Error(text) if text.windows(10).any(|w| w == b"is damaged")),
            "{reply:?}"
        );
    };
    (0..7).for_each(|n| refused(&["get", &format!("d{n}")]));
    refused(&["append", "d0", "x"]);
    refused(&["expire", "d0", "100"]);
    refused(&["getdel", "d0"]);
    refused(&["set", "d0", "v", "get"]);
    assert_eq!(server.call(&["set", "d0", "zero"]), ok());
    assert_eq!(server.call(&["set", "d1", "one", "ex", "1000"]), ok());
    assert_eq!(server.call(&["mset", "d2", "two", "d3", "three"]), ok());
    assert_eq!(server.call(&["del", "d4", "none"]), Value::Integer(1));
    assert_eq!(server.call(&["unlink", "d5"]), Value::Integer(1));
    let replies =
        pipeline(&mut connect(&server), &[&["multi"], &["del", "d6"], &["set", "d6", "six"], &["exec"]]);
    assert_eq!(replies[3], Value::Array(vec![Value::Integer(1), ok()]));
    let check = |server: &Server| {
        for (key, value) in [("d0", "zero"), ("d1", "one"), ("d2", "two"), ("d3", "three"), ("d6", "six")] {
            assert_eq!(server.call(&["get", key]), bulk(value), "{key}");
        }
        assert_eq!(server.call(&["exists", "d4", "d5"]), Value::Integer(0));
        assert_eq!(server.call(&["dbsize"]), Value::Integer(66));
    };
    check(&server);
    let mut server = server;
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGTERM] {
        server.signal(signal);
        drop(server.end());
        server = start();
        check(&server);
    }
}

/// APPEND of 10 bytes to a value of 1 MB wrote 1.8 MB; so did SETRANGE, and each in a transaction.
#[test]
fn part_of_a_long_value_is_written_by_itself_and_outlives_any_death() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let mut server = Server::start(dir.path(), &[]);
    let mut value = "v".repeat(1_000_000);
    assert_eq!(server.call(&["set", "k", &value]), ok());
    for (round, signal) in [libc::SIGKILL, libc::SIGTERM, libc::SIGKILL].into_iter().enumerate() {
        let mut stream = connect(&server);
        let before = written_bytes(&server);
        for n in 0..10 {
            let (tail, at) = (format!("tail{round}{n:05}"), (100_000 * n + round).to_string());
            let number = |len: usize| Value::Integer(len as i64);
            let commands: [&[&str]; 9] = [
                &["append", "k", &tail],
                &["setrange", "k", &at, "part"],
                &["multi"],
                &["append", "k", &tail],
                &["append", "k", &tail],
                &["expire", "k", "1000"],
                &["exec"],
                &["strlen", "k"],
                &["getrange", "k", "-10", "-1"],
            ];
            let replies = pipeline(&mut stream, &commands);
            let len = value.len();
            value += &tail.repeat(3);
            value.replace_range(100_000 * n + round..100_000 * n + round + 4, "part");
            assert_eq!(replies[..2], [number(len + 10), number(len + 10)]);
            assert_eq!(replies[7..], [number(len + 30), bulk(&tail)]);
        }
        // whole blocks, and sometimes more of them for each sync
        let written = written_bytes(&server) - before;
        assert!(written < 1_000_000, "{written} B for 40 changes of 1 MB");
        server.signal(signal);
        drop(server.end());
        server = Server::start(dir.path(), &[]);
        assert!(server.call(&["get", "k"]) == bulk(&value), "after {signal}");
    }
    let commands: [&[&str]; 4] =
        [&["copy", "k", "copy"], &["rename", "k", "other"], &["del", "other"], &["append", "copy", "!"]];
    let replies = pipeline(&mut connect(&server), &commands);
    assert_eq!(replies[3], Value::Integer(value.len() as i64 + 1));
    server.signal(libc::SIGKILL);
    drop(server.end());
    let server = Server::start(dir.path(), &[]);
    value.push('!');
    assert!(server.call(&["get", "copy"]) == bulk(&value), "after the death behind COPY");
    assert_eq!(server.call(&["exists", "k", "other"]), Value::Integer(0));
}

fn written_bytes(server: &Server) -> u64 {
    let Value::Bulk(text) = server.call(&["info"]) else { panic!("a text") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("journal_bytes_written:"))
        .expect("the field is there");
    line.trim().parse().expect("a number")
}

/// EXEC read what is on disk command by command, ran again from its first command each time, and gave up after 100 reads: a transaction over
/// a large hash failed after a restart.
#[test]
fn exec_over_many_cold_leaves_reads_them_together() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let fields: Vec<String> = (0..60_000).map(|n| format!("field:{n}")).collect();
    let mut stream = connect(&server);
    for part in fields.chunks(2_000) {
        let pairs = part.iter().flat_map(|field| [field.as_str(), "1"]);
        let hset: Vec<&str> = ["hset", "large"].into_iter().chain(pairs).collect();
        let scores = part.iter().flat_map(|field| ["1", field.as_str()]);
        let zadd: Vec<&str> = ["zadd", "ranks"].into_iter().chain(scores).collect();
        pipeline(&mut stream, &[&hset, &zadd]);
    }
    drop(stream);
    let mut server = server;
    // The second one runs beside the loops.
    for commands in [300, 3_000] {
        server.signal(libc::SIGKILL);
        drop(server.end());
        server = Server::start(dir.path(), &[]);
        let some = fields.iter().step_by(60_000 / commands);
        let changes = some
            .flat_map(|field| [vec!["hincrby", "large", field, "1"], vec!["zincrby", "ranks", "1", field]]);
        let queue: Vec<Vec<&str>> =
            std::iter::once(vec!["multi"]).chain(changes).chain([vec!["exec"]]).collect();
        let queue: Vec<&[&str]> = queue.iter().map(|command| &command[..]).collect();
        let replies = pipeline(&mut connect(&server), &queue);
        let Some(Value::Array(results)) = replies.last() else { panic!("{:?}", replies.last()) };
        assert_eq!(results.len(), 2 * commands);
        assert!(results.iter().all(|result| !matches!(result, Value::Error(_))), "{results:?}");
        let fetches = figure_of(&server, "journal_fetches:");
        // what the commands are known to need, level by level, and a few for leaves that are split because others are full
        assert!(fetches <= 20, "{fetches} reads from disk");
    }
}

/// Each element that was cold had its command executed again from its start, and the hundredth was answered with an error: XACK, XDEL, XCLAIM,
/// XAUTOCLAIM and XREADGROUP of 120 entries, LPOS and LINSERT behind many elements, ZRANDMEMBER of many.
#[test]
fn commands_on_many_cold_elements_read_them_in_a_few_groups() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let mut stream = connect(&server);
    let padding = "p".repeat(400);
    let ids: Vec<String> = (1..=600).map(|n| format!("{n}-0")).collect();
    for key in ["s1", "s2", "s3", "s4", "s5"] {
        let xadds: Vec<_> = ids.iter().map(|id| ["xadd", key, id, "f", &padding]).collect();
        pipeline(&mut stream, &xadds.iter().map(|it| &it[..]).collect::<Vec<_>>());
        pipeline(&mut stream, &[&["xgroup", "create", key, "g", "0"]]);
        let some = ["xreadgroup", "group", "g", "a", "count", "60", "streams", key, ">"];
        let reads: Vec<&[&str]> = std::iter::repeat_n(&some[..], 10).chain([&["ping"][..]]).collect();
        pipeline_until(&mut stream, &reads, b"+PONG\r\n");
    }
    let texts: Vec<String> = (0..20_000).map(|n| format!("element {n}")).collect();
    for part in texts.chunks(2_000) {
        let rpush: Vec<&str> = ["rpush", "l"].into_iter().chain(part.iter().map(String::as_str)).collect();
        let scores = part.iter().flat_map(|text| ["1", text.as_str()]);
        let zadd: Vec<&str> = ["zadd", "z"].into_iter().chain(scores).collect();
        pipeline(&mut stream, &[&rpush, &zadd]);
    }
    // entries that follow each other are in one leaf: a bound by elements would read few leaves at a time
    let short: Vec<String> = (1..=30_000).map(|n| format!("{n}-0")).collect();
    for part in short.chunks(1_000) {
        let xadds: Vec<_> = part.iter().map(|id| ["xadd", "short", id, "f", "v"]).collect();
        pipeline(&mut stream, &xadds.iter().map(|it| &it[..]).collect::<Vec<_>>());
    }
    pipeline(&mut stream, &[&["xgroup", "create", "short", "g", "0"]]);
    let read = ["xreadgroup", "group", "g", "a", "count", "30000", "streams", "short", ">"];
    pipeline_until(&mut stream, &[&read, &["ping"]], b"+PONG\r\n");
    drop(stream);
    let all: Vec<&str> = ["xack", "short", "g"].into_iter().chain(short.iter().map(String::as_str)).collect();
    let some: Vec<&str> = ids.iter().step_by(4).map(String::as_str).collect();
    let named =
        |words: &[&'static str]| words.iter().copied().chain(some.iter().copied()).collect::<Vec<_>>();
    let commands: Vec<(Vec<&str>, IsRight)> = vec![
        (vec!["xreadgroup", "group", "g", "a", "count", "500", "streams", "s1", "0"], is_array::<1>),
        (named(&["xclaim", "s2", "g", "b", "0"]), is_array::<150>),
        (vec!["xautoclaim", "s3", "g", "c", "0", "0", "count", "500"], is_array::<3>),
        (named(&["xdel", "s4"]), |reply| *reply == Value::Integer(150)),
        (named(&["xack", "s5", "g"]), |reply| *reply == Value::Integer(150)),
        (all, |reply| *reply == Value::Integer(30_000)),
        (vec!["lpos", "l", "element 19000"], |reply| *reply == Value::Integer(19_000)),
        (vec!["zrandmember", "z", "300"], is_array::<300>),
    ];
    server.signal(libc::SIGKILL);
    drop(server.end());
    let server = Server::start(dir.path(), &[]);
    let mut stream = connect(&server);
    for (command, is_right) in commands {
        let figures = || ["journal_fetches:", "log_cold_reads:"].map(|name| figure_of(&server, name));
        let before = figures();
        let reply = pipeline_until(&mut stream, &[&command, &["ping"]], b"+PONG\r\n").remove(0);
        assert!(is_right(&reply), "{:?}: {reply:?}", &command[..2]);
        let [fetches, reads] = std::array::from_fn(|at| figures()[at] - before[at]);
        // beside the loops a command begins anew for none of them
        assert!(fetches < 25, "{:?}: began anew {fetches} times", &command[..2]);
        assert!(reads > 0, "{:?}: nothing was on disk", &command[..2]);
    }
}

/// Whether a reply is the expected one.
type IsRight = fn(&Value) -> bool;

fn is_array<const COUNT: usize>(reply: &Value) -> bool {
    matches!(reply, Value::Array(elements) if elements.len() == COUNT)
}

fn figure_of(server: &Server, name: &str) -> u64 {
    let Value::Bulk(info) = server.call(&["info", "all"]) else { panic!("a text") };
    let info = String::from_utf8(info).expect("text");
    info.lines().find_map(|line| line.strip_prefix(name)).expect("a figure").parse().expect("a number")
}
