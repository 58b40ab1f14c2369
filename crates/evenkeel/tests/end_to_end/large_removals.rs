//! Removals of tens of thousands of elements with the least `memory.limit`, of collections on disk.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use resp::Value;

use crate::common::{PATIENCE, Server};

const COUNT: usize = 200_000;
const REMOVED: usize = 20_000;

/// A connection, and what was received and not looked at.
struct Client(TcpStream, Vec<u8>);

impl Client {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Self(stream, Vec::new())
    }

    fn send(&mut self, command: &[String]) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut request = Vec::new();
        resp::encode_command(&mut request, &words);
        self.0.write_all(&request).expect("sent");
    }

    fn call(&mut self, command: &[String]) -> Value {
        self.send(command);
        self.receive()
    }

    fn receive(&mut self) -> Value {
        loop {
            if let Some((value, len)) = resp::decode_value(&self.1).expect("the server speaks RESP") {
                self.1.drain(..len);
                return value;
            }
            let mut part = vec![0; 1 << 18];
            let count = self.0.read(&mut part).expect("a reply");
            assert_ne!(count, 0, "closed");
            self.1.extend_from_slice(&part[..count]);
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn member(n: usize) -> String {
    format!("member:{n:07}")
}

fn load(client: &mut Client) {
    for first in (0..COUNT).step_by(1_000) {
        let all = || first..first + 1_000;
        let command = |start: &[&str], each: &dyn Fn(usize) -> Vec<String>| {
            [words(start), all().flat_map(each).collect()].concat()
        };
        for command in [
            command(&["SADD", "set"], &|n| vec![member(n)]),
            command(&["HSET", "hash"], &|n| vec![member(n), format!("value:{n}")]),
            command(&["ZADD", "zset"], &|n| vec![n.to_string(), member(n)]),
            command(&["RPUSH", "list"], &|n| vec![member(n)]),
        ] {
            assert!(matches!(client.call(&command), Value::Integer(_)));
        }
        all().for_each(|n| client.send(&words(&["XADD", "stream", &format!("{}-1", n + 1), "f", "value"])));
        all().for_each(|_| assert!(matches!(client.receive(), Value::Bulk(_))));
    }
}

/// They were refused with 16 MiB: each copied what was in each leaf before, and kept that until its end.
#[test]
fn tens_of_thousands_of_elements_are_removed_at_once_with_the_least_memory_limit() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--memory-limit=256MiB"]);
    load(&mut Client::new(&server));
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
    let mut server = Server::start(dir.path(), &["--memory-limit=16MiB"]);
    let mut client = Client::new(&server);
    let some: Vec<usize> = (0..REMOVED).map(|n| n * 7_919 % COUNT).collect();
    let named = |start: &[&str], name: &dyn Fn(usize) -> String| {
        [words(start), some.iter().map(|n| name(*n)).collect()].concat()
    };
    for command in [
        named(&["SREM", "set"], &member),
        named(&["HDEL", "hash"], &member),
        named(&["ZREM", "zset"], &member),
        named(&["XDEL", "stream"], &|n| format!("{}-1", n + 1)),
    ] {
        assert_eq!(client.call(&command), Value::Integer(REMOVED as i64), "{}", command[0]);
    }
    let left = COUNT - REMOVED;
    for (command, key, elements) in [("SPOP", "set", 1), ("ZPOPMIN", "zset", 2), ("LPOP", "list", 1)] {
        let Value::Array(popped) = client.call(&words(&[command, key, "50000"])) else { panic!("{command}") };
        assert_eq!(popped.len(), 50_000 * elements, "{command}");
        let is_member = |it: &Value| matches!(it, Value::Bulk(bytes) if bytes.starts_with(b"member:"));
        assert!(popped.iter().step_by(elements).all(is_member), "{command}");
    }
    let gone = client.call(&words(&["ZREMRANGEBYRANK", "zset", "0", "54999"]));
    assert_eq!(gone, Value::Integer(55_000));
    let sizes = [
        ("SCARD", "set", left - 50_000),
        ("HLEN", "hash", left),
        ("ZCARD", "zset", left - 105_000),
        ("XLEN", "stream", left),
        ("LLEN", "list", COUNT - 50_000),
    ];
    drop(server);
    server = Server::start(dir.path(), &["--memory-limit=256MiB"]);
    for (command, key, size) in sizes {
        assert_eq!(server.call(&[command, key]), Value::Integer(size as i64), "{key}");
    }
    // both orders of a sorted set have the same members
    let Value::Array(members) = Client::new(&server).call(&words(&["ZRANGE", "zset", "0", "-1"])) else {
        panic!("members")
    };
    let command = members.iter().map(|member| match member {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("text"),
        other => panic!("{other:?}"),
    });
    let removed = Client::new(&server).call(&[words(&["ZREM", "zset"]), command.collect()].concat());
    assert_eq!(removed, Value::Integer((left - 105_000) as i64));
    assert_eq!(server.call(&["EXISTS", "zset"]), Value::Integer(0));
}
