//! The manual's script that copies keys from Redis, as it stands in the manual, from redis-server to the binary.
//!
//! Python with redis-py is the interpreter in `EVENKEEL_PYTHON`, as in `clients`.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use resp::Value;

use crate::common::{Server, eventually, free_port, ok, receive};

/// The first program in Python below the heading "Copy the keys".
fn script() -> String {
    let manual = include_str!("../../../../docs/manual/redis.md");
    let (_, section) = manual.split_once("## Copy the keys\n").expect("the manual has a section on it");
    let (_, program) = section.split_once("```python\n").expect("with a program");
    program.split_once("```").expect("which ends").0.to_owned()
}

/// A server of Redis that ends with the test.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start(dir: &Path) -> Self {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--dir"]).arg(dir).stdout(Stdio::null());
        let child = command.spawn().expect("redis-server is installed");
        eventually("redis-server listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Self { child, port }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(port: u16, words: &[&str]) -> Value {
    use std::io::Write as _;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    let mut request = Vec::new();
    resp::encode_command(&mut request, words);
    stream.write_all(&request).expect("sent");
    receive(&mut stream).expect("a reply")
}

fn line(port: u16, line: &str) -> Value {
    call(port, &line.split(' ').collect::<Vec<_>>())
}

/// Runs the script; returns its exit status and what it printed.
fn copy(dir: &Path, from: u16, to: u16) -> (Option<i32>, String) {
    let file = dir.join("copy_keys.py");
    std::fs::write(&file, script()).expect("written");
    let python = std::env::var_os("EVENKEEL_PYTHON").unwrap_or_else(|| "python3".into());
    let urls = [from, to].map(|port| format!("redis://127.0.0.1:{port}/0"));
    let output = Command::new(python).arg(file).args(urls).output().expect("Python runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
}

fn fill(port: u16) {
    let many = |begin: &str, each: &dyn Fn(u32) -> String| {
        let words: Vec<String> = begin
            .split(' ')
            .map(str::to_owned)
            .chain((0..1_500).flat_map(|at| each(at).split(' ').map(str::to_owned).collect::<Vec<_>>()))
            .collect();
        call(port, &words.iter().map(String::as_str).collect::<Vec<_>>());
    };
    many("HSET hash", &|at| format!("field{at} value{at}"));
    many("RPUSH list", &|at| format!("element{at}"));
    many("SADD set", &|at| format!("member{at}"));
    many("ZADD zset", &|at| format!("{}.5 member{at}", at * 7));
    for command in [
        "SET string value",
        "SET ends value PX 600000",
        "SADD integers 1 2 3",
        "ZADD zset inf most",
        "EXPIRE list 1000",
        "PFADD log a b c",
        "XADD stream 1-1 f v g w",
        "XADD stream 2-1 f v",
        "XADD stream 3-1 f v",
        "XDEL stream 2-1",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group one COUNT 1 STREAMS stream >",
        "XREADGROUP GROUP group two STREAMS stream >",
        "XACK stream group 1-1",
        "XADD empty 5-1 f v",
        "XDEL empty 5-1",
        "XGROUP CREATE new group $ MKSTREAM",
    ] {
        line(port, command);
    }
    call(port, &["HSET", "hash", "large", &"v".repeat(3 << 20)]);
    call(port, &["SET", "bytes", ""]);
}

/// An answer without how long the entry was idle that it is about.
fn known(first: Option<&Value>) -> Option<Value> {
    match first {
        Some(Value::Array(entry)) if matches!(entry[..], [_, _, Value::Integer(_), Value::Integer(_)]) => {
            Some(Value::Array(vec![entry[0].clone(), entry[1].clone(), entry[3].clone()]))
        }
        first => first.cloned(),
    }
}

/// It left out all types but strings without a word, with exit status 0.
#[test]
fn script_of_the_manual_copies_all_types_from_redis_and_counts_them() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let redis = Redis::start(dir.path());
    let server = Server::start(&dir.path().join("data"), &[]);
    fill(redis.port);
    let (status, text) = copy(dir.path(), redis.port, server.port);
    assert_eq!(status, Some(0), "{text}");
    let counts = "copied: 12 keys (1 hash, 1 list, 2 set, 3 stream, 4 string, 1 zset)\nskipped: 0 keys\n";
    assert!(text.starts_with(counts), "{text}");
    let questions = [
        "GET string",
        "GET ends",
        "GET bytes",
        "PFCOUNT log",
        "HLEN hash",
        "HGET hash field7",
        "HSTRLEN hash large",
        "LRANGE list 0 -1",
        "SCARD set",
        "SMEMBERS integers",
        "ZRANGE zset 0 -1 WITHSCORES",
        "XRANGE stream - +",
        "XINFO STREAM empty",
        "XPENDING stream group",
        "XPENDING stream group - + 10 two",
        "DBSIZE",
    ];
    for question in questions {
        let [theirs, ours] = [redis.port, server.port].map(|port| line(port, question));
        let is_same = match (&theirs, &ours) {
            // how it is kept, and how long something was idle, differ
            (Value::Array(theirs), Value::Array(ours)) if question.starts_with('X') => {
                theirs.len() == ours.len() && known(theirs.first()) == known(ours.first())
            }
            _ => theirs == ours,
        };
        assert!(is_same, "{question}: {theirs:?} became {ours:?}");
    }
    for (key, is_timed) in [("ends", true), ("list", true), ("string", false)] {
        let Value::Integer(left) = line(server.port, &format!("PTTL {key}")) else { panic!("a time") };
        assert_eq!(left > 0, is_timed, "{key}");
    }
}

#[test]
fn script_of_the_manual_names_what_was_not_copied() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let redis = Redis::start(dir.path());
    let server = Server::start(&dir.path().join("data"), &["--value-max=1MiB"]);
    assert_eq!(line(redis.port, "SET small value"), ok());
    assert_eq!(call(redis.port, &["SET", "large", &"v".repeat(2 << 20)]), ok());
    let (status, text) = copy(dir.path(), redis.port, server.port);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("copied: 1 keys") && text.contains("failed: b'large': "), "{text}");
}
