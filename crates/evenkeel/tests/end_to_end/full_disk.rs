//! A file system without a byte of room, under the shipped binary: it starts, everything can be deleted, and then writes work again.
#![allow(clippy::disallowed_methods, reason = "tests start processes and mount a disk")]

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

use resp::Value;

use crate::common::{PATIENCE, Server, SmallDisk, eventually, ok, receive};

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

/// The server as it starts again after its end, on a disk that has no byte of room throughout.
fn restarted(server: Server, end: End, disk: &SmallDisk) -> Server {
    fill(disk);
    if matches!(end, End::Stop) {
        server.signal(libc::SIGTERM);
        assert!(server.end().0.success(), "a stop on a full disk");
    } else {
        drop(server);
    }
    fill(disk);
    Server::start(&disk.path().join("data"), &[])
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
            server = restarted(server, end, &disk);
            client = Client::new(&server);
            assert_eq!(server.call(&["DBSIZE"]), Value::Integer((stored - deleted) as i64), "{context}");
            assert_eq!(server.call(&["STRLEN", &keys[deleted]]), Value::Integer(value_bytes as i64));
        }
    }
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(0), "{context}");
    writes_work_again(&server, &value);
}

/// Waits for it; otherwise tells why they do not.
fn writes_work_again(server: &Server, value: &str) {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let reply = server.call(&["SET", "new", value]);
        if reply == ok() {
            return;
        }
        let text = |reply: &Value| match reply {
            Value::Error(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        let info = || text(&server.call(&["INFO", "everything"]));
        assert!(std::time::Instant::now() < until, "no writes: {}\n{}", text(&reply), info());
        std::thread::park_timeout(std::time::Duration::from_millis(2));
    }
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

/// One collection, and the commands that remove all its elements, some at a time. Of a stream without entries the key stays: it is deleted.
struct Collection {
    key: String,
    makes: Vec<Vec<String>>,
    removes: Vec<Vec<String>>,
}

impl Collection {
    /// Number `n`: each type in turn, and each fifth of a type in leaves.
    fn new(n: usize) -> Self {
        let (key, value) = (format!("key:{n}"), "v".repeat(150));
        let count = if n / 5 % 5 == 4 { 600 } else { 12 };
        let (put, remove, words_each) = match n % 5 {
            0 => ("HSET", "HDEL", 2),
            1 => ("SADD", "SREM", 1),
            2 => ("ZADD", "ZREM", 2),
            3 => ("RPUSH", "", 1),
            _ => ("", "XDEL", 1),
        };
        let element = |at: usize| match n % 5 {
            0 => vec![format!("field:{at}"), value.clone()],
            1 | 3 => vec![format!("{at}:{value}")],
            2 => vec![at.to_string(), format!("{at}:{value}")],
            _ => vec![format!("{}-1", at + 1)],
        };
        let name = |at: usize| match n % 5 {
            2 => element(at).remove(1),
            _ => element(at).remove(0),
        };
        let makes = match n % 5 {
            4 => (0..count).map(|at| words(&["XADD", &key, &element(at)[0], "field", &value])).collect(),
            _ => {
                let all: Vec<String> = (0..count).flat_map(element).collect();
                let some = all.chunks(100 * words_each);
                some.map(|some| [words(&[put, &key]), some.to_vec()].concat()).collect()
            }
        };
        // some of them from both ends, and in ranges
        let by_range = match n % 5 {
            1 => words(&["SPOP", &key, "3"]),
            2 => words(&["ZREMRANGEBYRANK", &key, "0", "1"]),
            3 => words(&["LTRIM", &key, "1", "-2"]),
            _ => Vec::new(),
        };
        let pop = match n % 5 {
            2 => words(&["ZPOPMAX", &key]),
            _ => words(&["LPOP", &key]),
        };
        let mut removes = vec![by_range];
        match n % 5 {
            3 => removes.extend(vec![pop; count - 2]),
            2 => {
                removes.push(pop);
                let removed = |some: usize| words(&[remove, &key, &name(some * 2 + 2), &name(some * 2 + 3)]);
                removes.extend((0..count / 2 - 1).map(removed));
            }
            _ => removes.extend(
                (0..count / 2).map(|some| words(&[remove, &key, &name(some * 2), &name(some * 2 + 1)])),
            ),
        }
        if n % 5 == 4 {
            removes.push(words(&["DEL", &key]));
        }
        removes.retain(|command| !command.is_empty());
        Self { key, makes, removes }
    }
}

/// HDEL, SREM, ZREM, LPOP and XDEL were refused on a full disk with the advice to delete keys.
fn elements_can_be_removed(size: &str, in_multi: bool, end: End) {
    let disk = SmallDisk::mount(size);
    let data = disk.path().join("data");
    let context = format!("{size}, {in_multi}, {end:?}");
    let mut server = Server::start(&data, &[]);
    let mut client = Client::new(&server);
    let is_error = |reply: &Value| matches!(reply, Value::Error(_));
    let (mut stored, mut is_full) = (0, false);
    while !is_full {
        let replies = client.pipeline(&Collection::new(stored).makes);
        is_full = replies.iter().any(is_error);
        // in the last one some elements may be missing, or all
        stored += usize::from(!replies.iter().all(is_error));
    }
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(stored as i64), "{context}");
    fill(&disk);
    let third = (stored / 3).max(1);
    assert!(stored % 7_919 != 0, "each key once");
    for removed in 0..stored {
        let collection = Collection::new(removed * 7_919 % stored);
        let mut commands = collection.removes;
        if in_multi {
            commands.insert(0, words(&["MULTI"]));
            commands.push(words(&["EXEC"]));
        }
        let replies = client.pipeline(&commands);
        let refused = replies.iter().position(is_error);
        let told = refused.map(|at| (&commands[at], &replies[at]));
        assert!(told.is_none(), "{removed} of {stored} removed ({context}): {told:?}");
        if let (true, Some(Value::Array(all))) = (in_multi, replies.last()) {
            assert!(!all.iter().any(is_error), "{context}: {all:?}");
        }
        assert_eq!(
            server.call(&["EXISTS", &collection.key]),
            Value::Integer(0),
            "{context}: {}",
            collection.key
        );
        if removed % third == third - 1 {
            server = restarted(server, end, &disk);
            client = Client::new(&server);
            assert_eq!(server.call(&["DBSIZE"]), Value::Integer((stored - removed - 1) as i64), "{context}");
        }
    }
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(0), "{context}");
    // at a restart others may have taken a segment's room that had come free and was no file yet: deletes have theirs, writes need one more
    std::fs::remove_file(disk.path().join("others")).expect("it was made");
    writes_work_again(&server, &"v".repeat(1_000));
}

#[test]
fn elements_of_collections_on_a_full_disk_are_removed_over_kills() {
    elements_can_be_removed("64m", false, End::Kill);
}

#[test]
fn elements_of_collections_on_a_full_disk_are_removed_in_transactions_over_stops() {
    elements_can_be_removed("96m", true, End::Stop);
}

/// What a group does decides, not which commands it has.
#[test]
fn only_what_leaves_less_than_there_was_passes_on_a_full_disk() {
    let disk = SmallDisk::mount("64m");
    let server = Server::start(&disk.path().join("data"), &[]);
    let mut client = Client::new(&server);
    let set = |key: &str, len: usize| words(&["SET", key, &"v".repeat(len)]);
    let fields: Vec<String> = (0..1_000).flat_map(|at| [format!("f{at}"), "v".repeat(20)]).collect();
    let hset = [words(&["HSET", "h"]), fields].concat();
    client.pipeline(&[hset, set("s", 1_000), words(&["RPUSH", "l", "a", "b"])]);
    let mut n = 0;
    for len in [10_000, 1_000, 1] {
        while client.pipeline(&[set(&format!("k{n}"), len)]) == [ok()] {
            n += 1;
        }
    }
    fill(&disk);
    let group = |commands: &[&[&str]]| {
        let all = commands.iter().map(|command| words(command));
        let all = std::iter::once(words(&["MULTI"])).chain(all).chain([words(&["EXEC"])]);
        all.collect::<Vec<_>>()
    };
    let script = |body: &str| vec![words(&["EVAL", body, "2", "h", "s"])];
    let longer = "v".repeat(21);
    let refused = [
        vec![words(&["HSET", "h", "new", "v"])],
        vec![words(&["HSET", "h", "f1", &longer])],
        vec![words(&["SETRANGE", "s", "0", "x"])],
        vec![words(&["APPEND", "s", "x"])],
        vec![words(&["RPUSH", "l", "c"])],
        vec![words(&["LSET", "l", "0", "c"])],
        group(&[&["HDEL", "h", "f1"], &["SET", "new", "v"]]),
        group(&[&["HDEL", "h", "f1"], &["HSET", "h", "f1000", &longer]]),
        script("redis.call('hdel', KEYS[1], 'f1') return redis.call('rpush', 'l', 'c')"),
        script("redis.call('hdel', KEYS[1], 'f1') return redis.call('append', KEYS[2], 'x')"),
    ];
    for commands in &refused {
        let reply = client.pipeline(commands).pop().expect("a reply");
        let is_full = |text: &[u8]| String::from_utf8_lossy(text).contains("MISCONF disk full: ");
        assert!(matches!(&reply, Value::Error(text) if is_full(text)), "{commands:?}: {reply:?}");
    }
    assert_eq!(server.call(&["HLEN", "h"]), Value::Integer(1_000));
    let passes = [
        vec![words(&["HDEL", "h", "f1"])],
        vec![words(&["HSET", "h", "f2", "v"])],
        vec![set("s", 999)],
        vec![words(&["LPOP", "l"])],
        vec![words(&["GETDEL", "k0"])],
        group(&[&["HDEL", "h", "f3"], &["LPOP", "l"], &["SET", "s", "v"]]),
        script("redis.call('hdel', KEYS[1], 'f4', 'f5', 'f6') return redis.call('set', KEYS[2], '')"),
    ];
    for commands in &passes {
        let reply = client.pipeline(commands).pop().expect("a reply");
        assert!(!matches!(reply, Value::Error(_)), "{commands:?}: {reply:?}");
    }
    assert_eq!(server.call(&["HLEN", "h"]), Value::Integer(995));
}

/// Short fields of large hashes, one by one: each removal lives in the log for as long as its leaf, and takes more than the field did.
#[test]
fn keys_can_be_deleted_on_a_full_disk_after_removals_of_elements_were_refused() {
    let disk = SmallDisk::mount("160m");
    let data = disk.path().join("data");
    let mut server = Server::start(&data, &[]);
    let mut client = Client::new(&server);
    let is_error = |reply: &Value| matches!(reply, Value::Error(_));
    let key = |n: usize| format!("key:{n}");
    let makes = |n: usize| -> Vec<Vec<String>> {
        let fields: Vec<String> = (0..10_000).flat_map(|field| [field.to_string(), "v".to_owned()]).collect();
        fields.chunks(2_000).map(|some| [words(&["HSET", &key(n)]), some.to_vec()].concat()).collect()
    };
    let mut stored = 0;
    while !client.pipeline(&makes(stored)).iter().any(is_error) {
        stored += 1;
    }
    fill(&disk);
    let mut removals = (0..10_000).flat_map(|field| (0..stored).map(move |n| (n, field)));
    let refused = loop {
        let some: Vec<_> = removals.by_ref().take(500).collect();
        assert!(!some.is_empty(), "there was room for all of it");
        // on a machine that is busy with much else segments are given back late
        fill(&disk);
        let some = some.iter().map(|(n, field)| words(&["HDEL", &key(*n), &field.to_string()]));
        let replies = client.pipeline(&some.collect::<Vec<_>>());
        if let Some(refused) = replies.into_iter().find(is_error) {
            break refused;
        }
    };
    let Value::Error(text) = refused else { unreachable!("it was looked for") };
    let text = String::from_utf8_lossy(&text);
    assert!(text.starts_with("MISCONF disk full: a removal of elements needs"), "{text}");
    drop(server);
    fill(&disk);
    server = Server::start(&data, &[]);
    client = Client::new(&server);
    // the last one may have some fields
    for n in 0..=stored {
        let mut reply = Value::Null;
        // cleaning may still be giving segments back
        eventually("a key is deleted", || {
            reply = client.pipeline(&[words(&["UNLINK", &key(n)])]).remove(0);
            !is_error(&reply)
        });
        assert!(reply == Value::Integer(1) || n == stored, "{n} of {stored}: {reply:?}");
    }
    assert_eq!(server.call(&["DBSIZE"]), Value::Integer(0));
    writes_work_again(&server, "value");
}
