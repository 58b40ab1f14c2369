//! A file system without a byte of room, under the shipped binary: it starts, everything can be deleted, and then writes work again.
#![allow(clippy::disallowed_methods, reason = "tests start processes and mount a disk")]

mod common;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

use common::{PATIENCE, Server, SmallDisk, eventually, ok, receive};
use resp::Value;

/// Others take all that is left of `disk`.
fn fill(disk: &SmallDisk) {
    let path = disk.path().join("others");
    let mut file = std::fs::File::options().create(true).append(true).open(path).expect("made");
    for size_bytes in [1 << 20, 4 << 10] {
        while file.write_all(&vec![0; size_bytes]).is_ok() {}
    }
}

/// How the server ends in the middle.
#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    Stop,
}

struct Client(TcpStream);

impl Client {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Self(stream)
    }

    fn pipeline(&mut self, commands: &[Vec<String>]) -> Vec<Value> {
        let mut request = Vec::new();
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            resp::encode_command(&mut request, &words);
        }
        self.0.write_all(&request).expect("sent");
        commands.iter().map(|_| receive(&mut self.0).expect("a reply")).collect()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Of 162,602 keys on a full disk 69,644 could be deleted in random order; then the server refused with the advice to delete keys: the records
/// of deletes had used up the room that it needs to give files back. And on a disk without a byte of room it did not start.
fn everything_can_be_deleted(size: &str, value_bytes: usize, (together, in_multi): (usize, bool), end: End) {
    let disk = SmallDisk::mount(size);
    let data = disk.path().join("data");
    let context = format!("{size}, values of {value_bytes} B, {together} together, {in_multi}, {end:?}");
    let mut server = Server::start(&data, &[]);
    let mut client = Client::new(&server);
    let (key, value) = (|n: usize| format!("key:{n}"), "v".repeat(value_bytes));
    let mut stored = 0;
    loop {
        let sets: Vec<_> = (stored..stored + 100).map(|n| words(&["SET", &key(n), &value])).collect();
        let count = client.pipeline(&sets).iter().take_while(|reply| **reply == ok()).count();
        stored += count;
        if count < sets.len() {
            break;
        }
    }
    let keys: Vec<_> = (0..stored).map(|n| key(n * 7_919 % stored)).collect();
    assert!(stored % 7_919 != 0, "each key once");
    fill(&disk);
    let third = (stored / 3).max(1);
    let mut next_end = third;
    let mut deleted = 0;
    for some in keys.chunks(together) {
        let mut commands: Vec<_> = some.iter().map(|key| words(&["UNLINK", key])).collect();
        let expected = vec![Value::Integer(1); some.len()];
        let replies = if in_multi {
            commands.insert(0, words(&["MULTI"]));
            commands.push(words(&["EXEC"]));
            match client.pipeline(&commands).pop() {
                Some(Value::Array(replies)) => replies,
                other => panic!("{deleted} of {stored} deleted ({context}): {other:?}"),
            }
        } else {
            client.pipeline(&commands)
        };
        assert_eq!(replies, expected, "{deleted} of {stored} deleted ({context})");
        deleted += some.len();
        if deleted >= next_end && deleted < stored {
            next_end += third;
            fill(&disk);
            if matches!(end, End::Stop) {
                server.signal(libc::SIGTERM);
                assert!(server.end().0.success(), "{context}");
            } else {
                drop(server);
            }
            fill(&disk);
            server = Server::start(&data, &[]);
            client = Client::new(&server);
            assert_eq!(server.call(&["DBSIZE"]), Value::Integer((stored - deleted) as i64), "{context}");
            assert_eq!(server.call(&["STRLEN", &keys[deleted]]), Value::Integer(value_bytes as i64));
        }
    }
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(0), "{context}");
    eventually("writes work again", || server.call(&["SET", "new", &value]) == ok());
}

#[test]
fn small_values_on_a_full_disk_are_deleted_in_random_order_over_kills() {
    everything_can_be_deleted("160m", 100, (100, false), End::Kill);
}

#[test]
fn small_values_on_a_full_disk_are_deleted_in_transactions_over_stops() {
    everything_can_be_deleted("160m", 100, (100, true), End::Stop);
}

#[test]
fn values_on_a_small_full_disk_are_deleted_one_by_one_over_kills() {
    everything_can_be_deleted("64m", 1_000, (1, false), End::Kill);
}

#[test]
fn large_values_on_a_full_disk_are_deleted_in_random_order_over_stops() {
    everything_can_be_deleted("256m", 20_000, (10, false), End::Stop);
}
