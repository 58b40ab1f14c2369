//! Keys from a redis-server 7.0 into an Evenkeel and back: by file, by folder of AOF files and as a replica, compared by content.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

#[path = "differential/servers.rs"]
mod servers;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use connection::{Client, ClientError, Target};
use migrate::{Control, Existing, FileKind, Import, MigrateError, Report, Source};
use resp::Value;
use servers::{Evenkeel, Redis};
use store::EngineKind;

/// A server, and a connection to it.
struct Peer {
    port: u16,
    client: Client,
}

impl Peer {
    fn at(port: u16) -> Self {
        Self { port, client: Client::connect(&Target::local(port)).unwrap() }
    }

    /// The folder of a redis-server.
    fn folder(&mut self) -> PathBuf {
        let answer = items(self.call(&["CONFIG", "GET", "dir"]));
        std::str::from_utf8(bytes(&answer[1])).unwrap().into()
    }

    fn call(&mut self, words: &[&str]) -> Value {
        self.client.call(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// All keys of a database, each with its type, its end, and what it has.
    fn content(&mut self, db: &str) -> Vec<(Vec<u8>, Value, Vec<Value>)> {
        self.call(&["SELECT", db]);
        let mut keys = items(self.call(&["KEYS", "*"]));
        keys.sort_by_key(|key| bytes(key).to_vec());
        let mut content = Vec::new();
        for key in keys {
            let name = bytes(&key).to_vec();
            let value = self.value(&name);
            let end = self.client.call_bytes(&[b"PEXPIRETIME", &name]).unwrap();
            content.push((name, end, value));
        }
        content
    }

    fn value(&mut self, name: &[u8]) -> Vec<Value> {
        let kind = self.client.call_bytes(&[b"TYPE", name]).unwrap();
        let mut call = |words: &[&[u8]]| self.client.call_bytes(words).unwrap();
        let mut value = vec![kind.clone()];
        match bytes(&kind) {
            b"string" => value.push(call(&[b"GET", name])),
            b"list" => value.push(call(&[b"LRANGE", name, b"0", b"-1"])),
            b"zset" => {
                // Redis 7.0 writes 17 digits
                for pair in items(call(&[b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"])).chunks(2) {
                    let score = std::str::from_utf8(bytes(&pair[1])).unwrap().parse().unwrap();
                    value.extend([pair[0].clone(), Value::Double(score)]);
                }
            }
            b"set" => value.extend(sorted(&items(call(&[b"SMEMBERS", name])), 1)),
            b"hash" => value.extend(sorted(&items(call(&[b"HGETALL", name])), 2)),
            b"stream" => {
                value.push(call(&[b"XRANGE", name, b"-", b"+"]));
                for group in items(call(&[b"XINFO", b"GROUPS", name])) {
                    // without the lag, which newer servers tell otherwise
                    let fields = items(group);
                    value.extend(fields[..10].iter().cloned());
                    let group = bytes(&fields[1]).to_vec();
                    let pending = call(&[b"XPENDING", name, &group, b"-", b"+", b"1000"]);
                    value.extend(items(pending).into_iter().map(|it| {
                        let mut it = items(it);
                        // how long ago
                        it.remove(2);
                        Value::Array(it)
                    }));
                    value.push(call(&[b"XPENDING", name, &group]));
                }
            }
            other => panic!("{}", other.escape_ascii()),
        }
        value
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => bytes,
        other => panic!("no bytes: {other:?}"),
    }
}

/// Elements of so many parts each, in an order of their own.
fn sorted(items: &[Value], parts: usize) -> Vec<Value> {
    let mut elements: Vec<Vec<Value>> = items.chunks(parts).map(<[Value]>::to_vec).collect();
    elements.sort_by_key(|element| bytes(&element[0]).to_vec());
    elements.concat()
}

#[track_caller]
fn assert_same(one: &mut Peer, other: &mut Peer) {
    for db in ["0", "3"] {
        let (one, other) = (one.content(db), other.content(db));
        let names = |all: &[(Vec<u8>, Value, Vec<Value>)]| -> Vec<String> {
            all.iter().map(|(name, ..)| name.escape_ascii().to_string()).collect()
        };
        assert_eq!(names(&one), names(&other), "database {db}");
        for (one, other) in one.iter().zip(&other) {
            assert!(one == other, "database {db}: {}", one.0.escape_ascii());
        }
    }
}

/// All types, in all sizes: small ones in one string, larger ones, and some that go in parts.
fn fill(redis: &mut Peer) {
    let long = "long value ".repeat(30_000);
    for (key, value) in [("s:empty", ""), ("s:int", "-12345"), ("s:text", "hello"), ("s:long", &long)] {
        redis.call(&["SET", key, value]);
    }
    redis.call(&["SET", "s:ends", "x", "PXAT", "4102444800000"]);
    for (size, count) in [("1", 1), ("100", 100), ("20000", 20_000)] {
        for part in (0..count).collect::<Vec<i32>>().chunks(1_000) {
            let text = |at: &i32| format!("element number {at}");
            let numbers: Vec<String> = part.iter().map(|at| (at * 7_919 - 5_000).to_string()).collect();
            let texts: Vec<String> = part.iter().map(text).collect();
            let pairs = |values: &[String]| -> Vec<String> {
                numbers.iter().zip(values).flat_map(|(a, b)| [a.clone(), b.clone()]).collect()
            };
            for (command, key, words) in [
                ("RPUSH", "l:text", texts.clone()),
                ("RPUSH", "l:int", numbers.clone()),
                ("SADD", "i", numbers.clone()),
                ("SADD", "e", texts.clone()),
                ("HSET", "h", pairs(&texts)),
                ("ZADD", "z", pairs(&texts)),
            ] {
                let key = format!("{key}:{size}");
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                redis.call(&[&[command, &key][..], &words].concat());
            }
        }
    }
    redis.call(&["PEXPIREAT", "z:20000", "4102444800000"]);
    redis.call(&["ZADD", "z:100", "inf", "most", "-inf", "least", "0.1", "tenth"]);
    stream(redis, "x", 300, 10);
    // more than one request takes
    stream(redis, "x:long", 60, 100_000);
    redis.call(&["XADD", "x:empty", "5-5", "f", "v"]);
    redis.call(&["XDEL", "x:empty", "5-5"]);
    redis.call(&["SELECT", "3"]);
    redis.call(&["SET", "other", "database"]);
    redis.call(&["SELECT", "0"]);
    let code = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)";
    redis.call(&["FUNCTION", "LOAD", code]);
}

fn stream(redis: &mut Peer, key: &str, entries: usize, value_bytes: usize) {
    let value = "v".repeat(value_bytes);
    for at in 1..=entries {
        let (id, more) = (format!("{}-{at}", at / 3 + 1), at.to_string());
        let words: &[&str] = if at % 7 == 0 { &["other", &more] } else { &["f", &value, "g", &more] };
        redis.call(&[&["XADD", key, &id][..], words].concat());
    }
    redis.call(&["XDEL", key, "1-2", "4-10"]);
    redis.call(&["XGROUP", "CREATE", key, "readers", "0"]);
    redis.call(&["XGROUP", "CREATE", key, "late", "$"]);
    for consumer in ["ann", "bob"] {
        redis.call(&["XREADGROUP", "GROUP", "readers", consumer, "COUNT", "9", "STREAMS", key, ">"]);
    }
    redis.call(&["XACK", key, "readers", "2-4"]);
    redis.call(&["XGROUP", "CREATECONSUMER", key, "readers", "carl"]);
}

fn evenkeel() -> (Evenkeel, Peer) {
    let server = Evenkeel::start(servers::small(EngineKind::Memory));
    let peer = Peer::at(server.port);
    (server, peer)
}

fn import(source: Source, existing: Existing, to: &Peer) -> Result<Report, MigrateError> {
    import_until(source, existing, to, &AtomicBool::new(false), &|_| {})
}

fn import_until(
    source: Source,
    existing: Existing,
    to: &Peer,
    is_told: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<Report, MigrateError> {
    let port = to.port;
    let connect = move || -> Result<Client, ClientError> { Client::connect(&Target::local(port)) };
    let options = Import { source, db: None, existing, dry_run: false, until_synced: true };
    migrate::import(&options, &connect, &Control { is_told, tell })
}

#[track_caller]
fn whole(report: Result<Report, MigrateError>) {
    let report = report.unwrap();
    assert!(report.is_whole(), "{report}");
}

#[test]
fn file_of_redis_is_imported_and_redis_loads_the_export() {
    let (redis, (_server, mut evenkeel)) = (Redis::start(), evenkeel());
    let mut redis_peer = Peer::at(redis.port);
    let folder = redis_peer.folder();
    fill(&mut redis_peer);
    redis_peer.call(&["SAVE"]);
    let file = folder.join("dump.rdb");
    whole(import(Source::Path(file.clone()), Existing::Refuse, &evenkeel));
    assert_same(&mut redis_peer, &mut evenkeel);
    assert_eq!(evenkeel.call(&["FCALL", "answer", "0"]), Value::Integer(42));
    let refused = import(Source::Path(file.clone()), Existing::Refuse, &evenkeel).unwrap_err();
    assert!(matches!(refused, MigrateError::Options(_)), "{refused}");

    // what is there stays, or goes
    evenkeel.call(&["SELECT", "0"]);
    evenkeel.call(&["SET", "l:text:20000", "mine"]);
    whole(import(Source::Path(file.clone()), Existing::Keep, &evenkeel));
    assert_eq!(evenkeel.call(&["GET", "l:text:20000"]), Value::Bulk(b"mine".to_vec()));
    whole(import(Source::Path(file.clone()), Existing::Replace, &evenkeel));
    assert_same(&mut redis_peer, &mut evenkeel);

    let port = evenkeel.port;
    let connect = move || Client::connect(&Target::local(port));
    let control = Control { is_told: &AtomicBool::new(false), tell: &|_| {} };
    let exported = migrate::export(&file, FileKind::Plain, &connect, &control).unwrap();
    assert!(exported.failed.is_empty() && exported.libraries == 1, "{exported:?}");
    redis_peer.call(&["FLUSHALL"]);
    redis_peer.call(&["FUNCTION", "FLUSH"]);
    redis_peer.call(&["DEBUG", "RELOAD", "NOSAVE"]);
    assert_same(&mut redis_peer, &mut evenkeel);
    assert_eq!(redis_peer.call(&["FCALL", "answer", "0"]), Value::Integer(42));
}

/// Told to end after some keys, as by a signal; a kill leaves no more.
#[test]
fn import_that_ended_and_is_repeated_gives_the_same() {
    let (redis, (_server, mut evenkeel)) = (Redis::start(), evenkeel());
    let mut redis_peer = Peer::at(redis.port);
    let folder = redis_peer.folder();
    fill(&mut redis_peer);
    redis_peer.call(&["SAVE"]);
    let file = folder.join("dump.rdb");
    let half = read(&file);
    let cut = folder.join("cut.rdb");
    write(&cut, &half[..half.len() / 2]);
    let error = import(Source::Path(cut), Existing::Refuse, &evenkeel).unwrap_err();
    assert!(error.to_string().contains("ends in the middle"), "{error}");
    let error = import_until(
        Source::Path(file.clone()),
        Existing::Replace,
        &evenkeel,
        &AtomicBool::new(true),
        &|_| {},
    );
    assert!(matches!(error, Err(MigrateError::Told(_))), "{error:?}");
    whole(import(Source::Path(file), Existing::Replace, &evenkeel));
    assert_same(&mut redis_peer, &mut evenkeel);
}

#[test]
fn folder_of_aof_files_is_imported_with_what_followed_and_a_torn_tail() {
    let (redis, (_server, mut evenkeel)) = (Redis::start(), evenkeel());
    let mut redis_peer = Peer::at(redis.port);
    let folder = redis_peer.folder();
    fill(&mut redis_peer);
    redis_peer.call(&["CONFIG", "SET", "appendonly", "yes"]);
    while !bytes(&redis_peer.call(&["INFO", "persistence"]))
        .windows(25)
        .any(|it| it == b"aof_rewrite_in_progress:0")
    {
        std::thread::yield_now();
    }
    for words in
        [&["DEL", "s:int"][..], &["RPUSH", "l:int:1", "2"], &["MULTI"], &["INCR", "n"], &["INCR", "n"]]
    {
        redis_peer.call(words);
    }
    redis_peer.call(&["EXEC"]);
    redis_peer.call(&["EVAL", "redis.call('SET', 'by', 'script') return redis.call('SPOP', 'e:1')", "0"]);
    redis_peer.call(&["SELECT", "3"]);
    redis_peer.call(&["SET", "later", "1", "PX", "1000000"]);
    redis_peer.call(&["CONFIG", "SET", "appendonly", "no"]);
    let dir = folder.join("appendonlydir");
    whole(import(Source::Path(dir.clone()), Existing::Refuse, &evenkeel));
    assert_same(&mut redis_peer, &mut evenkeel);

    let last = newest(&dir, "incr.aof");
    let torn = [&read(&last)[..], b"*3\r\n$3\r\nSET\r\n$4\r\nto"].concat();
    write(&last, &torn);
    let report = import(Source::Path(dir), Existing::Flush, &evenkeel).unwrap();
    assert!(report.to_string().contains("ends in the middle of a command"), "{report}");
    assert_same(&mut redis_peer, &mut evenkeel);
}

fn newest(dir: &Path, end: &str) -> PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(end)).max().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "files of a test")]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "files of a test")]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// Somebody writes on all the time; the connection is cut once. Nothing is lost.
#[test]
fn server_that_writes_on_is_followed_over_a_lost_connection() {
    let (redis, (_server, mut evenkeel)) = (Redis::start(), evenkeel());
    let mut redis_peer = Peer::at(redis.port);
    fill(&mut redis_peer);
    redis_peer.call(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    redis_peer.call(&["CONFIG", "SET", "repl-backlog-size", "256mb"]);
    let (is_told, looks, is_over) = (AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
    let source = || Source::Server(Box::new(Target::local(redis.port)));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut peer = Peer::at(redis.port);
            let mut count = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                count += 1;
                let (key, number) = (format!("w:{}", count % 50), count.to_string());
                peer.call(&["SET", &key, &number]);
                peer.call(&["RPUSH", "w:list", &number]);
                peer.call(&["MULTI"]);
                peer.call(&["INCR", "w:count"]);
                peer.call(&["XADD", "w:stream", "MAXLEN", "~", "100", "*", "n", &number]);
                peer.call(&["EXEC"]);
            }
        });
        let tell = |line: &str| {
            if line.contains("behind") {
                match looks.fetch_add(1, Ordering::Relaxed) {
                    1 => _ = Peer::at(redis.port).call(&["CLIENT", "KILL", "TYPE", "replica"]),
                    3 => is_over.store(true, Ordering::Relaxed),
                    // the writer has ended by then
                    5.. if line.ends_with(" 0 B behind") => is_told.store(true, Ordering::Relaxed),
                    _ => {}
                }
            }
        };
        let port = evenkeel.port;
        let connect = move || Client::connect(&Target::local(port));
        let options = Import {
            source: source(),
            db: None,
            existing: Existing::Refuse,
            dry_run: false,
            until_synced: false,
        };
        let report = migrate::import(&options, &connect, &Control { is_told: &is_told, tell: &tell });
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        let report = report.unwrap();
        assert!(report.is_whole() && report.to_string().contains("followed:"), "{report}");
    });
    assert_same(&mut redis_peer, &mut evenkeel);
    whole(import(source(), Existing::Flush, &evenkeel));
    assert_same(&mut redis_peer, &mut evenkeel);
}
