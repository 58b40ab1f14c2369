//! Scripts and functions through the shipped binary: over cold values, and over deaths of the process.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

use resp::Value;

use crate::common::{Server, bulk, ok, receive};

/// The same amount to each of two keys, and TIME twice.
const TRANSFER: &str = "local before = redis.call('time') \
    redis.call('incrby', KEYS[1], -ARGV[1]) redis.call('incrby', 'b', ARGV[1]) \
    local after = redis.call('time') \
    return {before[1] == after[1] and before[2] == after[2], redis.call('get', KEYS[1]), redis.call('get', 'b')}";

fn killed(server: Server, dir: &std::path::Path) -> Server {
    server.signal(libc::SIGKILL);
    drop(server.end());
    Server::start(dir, &[])
}

#[test]
fn script_over_cold_values_runs_again_whole() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["mset", "a", "100", "b", "0"]), ok());
    let server = killed(server, dir.path());
    let expected = Value::Array(vec![Value::Integer(1), bulk("93"), bulk("7")]);
    assert_eq!(server.call(&["eval", TRANSFER, "1", "a", "7"]), expected, "each of them once");
    let server = killed(server, dir.path());
    assert_eq!(server.call(&["mget", "a", "b"]), Value::Array(vec![bulk("93"), bulk("7")]));
    let many =
        "local sum = 0 for n = 1, 50 do sum = sum + (redis.call('get', 'key' .. n) or 0) end return sum";
    for n in 1..=50 {
        assert_eq!(server.call(&["set", &format!("key{n}"), "2"]), ok());
    }
    let server = killed(server, dir.path());
    assert_eq!(server.call(&["eval", many, "0"]), Value::Integer(100), "of keys that nobody named");
}

#[test]
fn script_that_the_death_of_the_process_ends_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["mset", "a", "100", "b", "0"]), ok());
    let endless = "redis.call('set', KEYS[1], 'half') redis.call('set', 'c', 'half') while true do end";
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["eval", endless, "1", "a"]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.write_all(&request).expect("sent");
    // others are served while it runs, and none sees what it did
    while server.call(&["set", "other", "v"]) != ok() {}
    assert_eq!(server.call(&["get", "c"]), Value::Null);
    let server = killed(server, dir.path());
    assert_eq!(
        server.call(&["mget", "a", "b", "c"]),
        Value::Array(vec![bulk("100"), bulk("0"), Value::Null])
    );
}

/// Many clients move amounts between two keys while the process is killed: nothing is lost between them.
#[test]
fn effects_of_a_script_are_all_there_or_none_after_kill_9() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let mut server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["mset", "a", "1000000", "b", "0"]), ok());
    for _ in 0..3 {
        let mut streams: Vec<TcpStream> = (0..4)
            .map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens"))
            .collect();
        let mut request = Vec::new();
        (0..200).for_each(|_| resp::encode_command(&mut request, &["eval", TRANSFER, "1", "a", "3"]));
        streams.iter_mut().for_each(|stream| stream.write_all(&request).expect("sent"));
        receive(&mut streams[0]).expect("a reply");
        server = killed(server, dir.path());
        let sum = "return redis.call('get', 'a') + redis.call('get', 'b')";
        assert_eq!(server.call(&["eval", sum, "0"]), Value::Integer(1_000_000));
    }
}

#[test]
fn functions_outlive_kill_9_and_are_in_backups() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let library = "#!lua name=lib\nredis.register_function('put', function(keys, args) \
                   return redis.call('set', keys[1], args[1]) end)";
    assert_eq!(server.call(&["function", "load", library]), bulk("lib"));
    assert_eq!(server.call(&["flushall"]), ok());
    let server = killed(server, dir.path());
    assert_eq!(server.call(&["fcall", "put", "1", "k", "v"]), ok());
    let copies = tempfile::tempdir().expect("a folder for the test");
    let copy = copies.path().join("copy");
    assert_eq!(server.call(&["backup", copy.to_str().expect("text")]), ok());
    assert_eq!(server.call(&["function", "delete", "lib"]), ok());
    let server = killed(server, dir.path());
    assert_eq!(server.call(&["function", "list"]), Value::Array(Vec::new()), "a deletion is durable as well");
    drop(server);
    let server = Server::start(&copy, &[]);
    assert_eq!(server.call(&["fcall", "put", "1", "k", "w"]), ok());
}

/// Each cold key began the script anew, and the hundredth gave up: queues failed as soon as their jobs had left memory.
#[test]
fn script_over_many_cold_keys_that_it_does_not_name_reads_them_and_goes_on() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let fill = "for n = 1, 1000 do redis.call('hset', 'j:' .. n, 'f', string.rep('x', 100), 'n', n) end";
    server.call(&["eval", fill, "0"]);
    let fill = "for n = 1, 200 do redis.call('rpush', 'list', 'j:' .. n) end";
    server.call(&["eval", fill, "0"]);
    let server = killed(server, dir.path());
    let exists = "local n = 0 for i = 1, 1000 do n = n + redis.call('exists', 'j:' .. i) end return n";
    assert_eq!(server.call(&["eval_ro", exists, "0"]), Value::Integer(1_000));
    let server = killed(server, dir.path());
    let changes = "local sum = 0 for i = 1, 1000 do sum = sum + redis.call('hincrby', 'j:' .. i, 'n', 1) \
                   redis.call('del', 'gone:' .. i) end return sum";
    assert_eq!(server.call(&["eval", changes, "0"]), Value::Integer(501_500));
    let server = killed(server, dir.path());
    let every = "local n = 0 for _, key in ipairs(redis.call('keys', 'j:*')) do n = n + redis.call('hget', key, 'n') end return n";
    assert_eq!(server.call(&["eval", every, "0"]), Value::Integer(501_500), "with all keys locked");
    let server = killed(server, dir.path());
    let queue = "local n = 0 while true do local job = redis.call('lpop', KEYS[1]) if not job then return n end \
                 n = n + 1 redis.call('hset', job, 'state', 'done') end";
    assert_eq!(server.call(&["eval", queue, "1", "list"]), Value::Integer(200));
    let server = killed(server, dir.path());
    let set = "for i = 1, 500 do redis.call('set', 'j:' .. i, i) end return redis.call('get', 'j:500')";
    assert_eq!(server.call(&["eval", set, "0"]), bulk("500"));
    let server = killed(server, dir.path());
    assert_eq!(server.call(&["get", "j:77"]), bulk("77"));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["multi"]);
    let sum = "local n = 0 for i = 501, 1000 do n = n + redis.call('hget', 'j:' .. i, 'n') end return n";
    resp::encode_command(&mut request, &["eval", sum, "0"]);
    resp::encode_command(&mut request, &["exec"]);
    stream.write_all(&request).expect("sent");
    receive(&mut stream).expect("a reply");
    receive(&mut stream).expect("a reply");
    assert_eq!(receive(&mut stream).expect("a reply"), Value::Array(vec![Value::Integer(375_750)]));
}

/// A command that had done a part of its work when it met a record that was not in memory was executed again on top of that part: DEL counted
/// the second key alone, LMOVE took a second element, and XADD found a node in use that was free.
#[test]
fn command_of_a_script_that_meets_what_is_cold_after_a_part_of_its_work_does_it_once() {
    let script = "for n = 1, 12 do redis.call('GET', 'pad' .. n) end
        for n = 3001, 3080 do redis.call('XADD', 'x', n .. '-1', 'f', string.rep('w', 150)) end
        local told = {}
        for line in string.gmatch(ARGV[1], '[^\\n]+') do
            local words = {}
            for word in string.gmatch(line, '[^ ]+') do words[#words + 1] = word end
            local reply = redis.pcall(unpack(words))
            if type(reply) == 'table' then reply = reply.err or reply.ok or cjson.encode(reply) end
            told[#told + 1] = words[1] .. ' ' .. tostring(reply)
        end
        return told";
    let run = |is_cold: bool| {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let mut server = Server::start(dir.path(), &[]);
        fill(&server);
        if is_cold {
            server = killed(server, dir.path());
        }
        server.call(&["eval", script, "0", LINES])
    };
    let (hot, cold) = (run(false), run(true));
    let Value::Array(told) = &hot else { panic!("{hot:?}") };
    assert_eq!(told.len(), LINES.lines().count());
    assert_eq!(cold, hot);
}

/// What [`LINES`] work on.
fn fill(server: &Server) {
    let numbered = |name: &str, n: usize| (0..n).map(|at| format!("{name}{at}")).collect::<Vec<_>>();
    let call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(!matches!(server.call(&words), Value::Error(_)), "{line}");
    };
    (1..=12).for_each(|n| call(&format!("set pad{n} v")));
    for line in [
        "mset d1 1 d2 2 d3 3 u1 1 u2 2 u3 3 r1 one r2 two c1 one c2 two m1 a m2 b",
        "rpush l1 a b c",
        "rpush l2 d e",
        "rpush l3 f",
        "rpush l4 a b c d",
        "sadd s1 a b c",
        "sadd s2 b c d",
        "sadd s3 old",
        "zadd z1 1 a 2 b 3 c",
        "zadd z2 1 a 7 d",
        "zadd z3 1 old",
        "hset h1 a 0 b 0 count 1",
    ] {
        call(line);
    }
    call(&["rpush big".to_owned(), numbered("v", 2_000).join(" ")].join(" "));
    call(&["sadd many".to_owned(), numbered("m", 2_000).join(" ")].join(" "));
    let pairs = |name| numbered(name, 2_000).join(" 1 ");
    call(&format!("hset large {} 1", pairs("f")));
    call(&format!("zadd ranks 1 {}", pairs("m").rsplit_once(" 1 ").expect("many").0));
    for n in 1..=2_999 {
        call(&format!("xadd x {n}-1 f {}", "v".repeat(60)));
    }
    call("xtrim x maxlen 60");
    call("xgroup create x g 2990-1");
}

/// Commands that need several records, each on a line.
const LINES: &str = "DEL d1 d2 d3
UNLINK u1 u2 missing u3
LMOVE l1 l2 LEFT RIGHT
RPOPLPUSH l2 l3
SMOVE s1 s2 a
RENAME r1 r2
COPY c1 c2 REPLACE
MSETNX n1 1 l1 2
MSET m1 x m2 y
GETSET m1 z
SINTERSTORE s3 s1 s2
ZUNIONSTORE z3 2 z1 z2
ZADD z1 5 a 6 new
ZPOPMIN z1 2
LMPOP 2 none l4 LEFT COUNT 2
ZMPOP 2 none z2 MIN
HSET h1 a 1 new 2
HINCRBY h1 count 5
HDEL h1 b missing
APPEND m2 tail
SETRANGE m2 3 xyz
BITOP OR bits m1 m2
PFADD p1 a b c
PFMERGE p2 p1
GEOADD g1 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
GEOSEARCHSTORE g2 g1 FROMLONLAT 15 37 BYRADIUS 200 km
SORT l3 ALPHA STORE sorted
XADD x 3000-1 f v
XREADGROUP GROUP g c COUNT 5 STREAMS x >
XACK x g 2991-1 2992-1 1-1
XDEL x 2995-1 2996-1
XTRIM x MAXLEN 20
LREM big 0 v7
LINSERT big BEFORE v9 new
LTRIM big 10 900
LPUSH big a b c
HDEL large f1 f2 f900
SREM many m1 m2 m900
ZREMRANGEBYRANK ranks 3 700
SPOP many 0
EXPIRE h1 1000
PERSIST h1
MOVE r2 1
XLEN x
LLEN big
HLEN large
SCARD many
ZCARD ranks";
