//! Keys whose values are only on disk, through the shipped binary: what a restart leaves, served as if it were hot.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

mod common;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use common::{Server, bulk, ok, receive};
use resp::Value;

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

/// A number that INFO tells.
fn info(server: &Server, section: &str, field: &str) -> u64 {
    let Value::Bulk(info) = server.call(&["info", section]) else { panic!("text") };
    let info = String::from_utf8(info).expect("text");
    let number = info.lines().find_map(|line| line.strip_prefix(field)).expect("a field of that name");
    number.trim().parse().expect("a number")
}
