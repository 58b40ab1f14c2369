//! Runs that are too long for every push: as many connections as a process may have, a million moves.
//!
//! `cargo test --release -p evenkeel --test long -- --ignored --nocapture`
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests start processes and sockets, and tell figures"
)]

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::crowd::Crowd;
use common::{Server, ok, receive, resident_bytes};
use resp::Value;
use vfs::sim::Rng;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    stream
}

/// Opens `count` connections that are used once and then idle.
fn idle(server: &Server, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let (mut stream, mut reply) = (connect(server), [0; 7]);
        stream.write_all(b"PING\r\n").expect("sent");
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"+PONG\r\n");
        stream
    };
    (0..count).map(open).collect()
}

#[test]
#[ignore = "long: needs 20,000 descriptors in each of two processes"]
fn connections_up_to_the_limit_of_the_process_cost_little_and_one_more_is_told_so_at_once() {
    const COUNT: usize = 19_000;
    let files = reactor::raise_descriptor_limit(20_000).expect("the system allows it");
    assert!(files >= COUNT as u64 + 500, "this process may open {files} files");
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--loops=2", "--connections-max=19000"]);
    let few = idle(&server, 1_000);
    let before = resident_bytes(&server);
    let began = Instant::now();
    let many = idle(&server, COUNT - 1_000);
    let (took, after) = (began.elapsed(), resident_bytes(&server));
    let slope = after.saturating_sub(before) / (COUNT as u64 - 1_000);
    let (began, mut late, mut text) = (Instant::now(), connect(&server), String::new());
    late.read_to_string(&mut text).expect("an answer, then the end");
    println!(
        "{COUNT} connections: {slope} B each, opened in {took:?}; one more refused in {:?}",
        began.elapsed()
    );
    assert_eq!(text, "-ERR max number of clients reached\r\n");
    assert!(slope <= 1_024, "{slope} B for each idle connection");
    drop((few, many));
}

#[test]
#[ignore = "long: a million moves take minutes"]
fn million_moves_under_load_lose_and_swap_nothing() {
    million_moves("epoll");
}

#[test]
#[ignore = "long: a million moves take minutes"]
fn million_moves_between_rings_lose_and_swap_nothing() {
    million_moves("uring");
}

#[test]
#[ignore = "long: a minute of each connector"]
fn no_connection_is_lost_or_stuck_in_a_minute_of_each_connector() {
    for connector in ["epoll", "uring", "threads"] {
        common::stress::run(connector, Duration::from_secs(60));
        println!("{connector}: nothing stays");
    }
}

fn million_moves(connector: &str) {
    const MOVES: u64 = 1_000_000;
    const LOADS: usize = 16;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--loops=2", "--durability=never", "--connector", connector]);
    let mut loads: Vec<TcpStream> = (0..LOADS).map(|_| connect(&server)).collect();
    let ids: Vec<i64> = loads.iter_mut().map(id).collect();
    let (stop, began) = (&AtomicBool::new(false), Instant::now());
    let counts: Vec<u64> = std::thread::scope(|scope| {
        let loads = loads.iter_mut().enumerate();
        let loads: Vec<_> = loads.map(|(n, stream)| scope.spawn(move || count_up(stream, n, stop))).collect();
        let mut mover = connect(&server);
        // An order for a connection that is about to move is the same move: so one for each, then the answers.
        for round in 0_usize.. {
            let line = |id: &i64| format!("CLIENT MOVE {id} {}\r\n", round % 2);
            mover.write_all(ids.iter().map(line).collect::<String>().as_bytes()).expect("sent");
            let mut replies = vec![0; LOADS * 5];
            mover.read_exact(&mut replies).expect("replies");
            assert!(replies == b"+OK\r\n".repeat(LOADS), "{}", String::from_utf8_lossy(&replies));
            if round.is_multiple_of(1_000) && moved(&server) >= MOVES {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        loads.into_iter().map(|load| load.join().expect("replies came in order")).collect()
    });
    let (took, commands, moved) = (began.elapsed(), counts.iter().sum::<u64>(), moved(&server));
    println!("{connector}: {moved} moves in {took:?} beside {commands} commands");
    for (n, count) in counts.iter().enumerate() {
        assert!(*count > 0, "connection {n} was answered");
        assert_eq!(server.call(&["INCRBY", &format!("n{n}"), "0"]), Value::Integer(count.cast_signed()));
    }
    assert_eq!(server.call(&["SET", "after", "it"]), ok());
}

/// How often connections have come to a loop from another one.
fn moved(server: &Server) -> u64 {
    let Value::Bulk(info) = server.call(&["INFO", "loops"]) else { panic!("text") };
    let info = String::from_utf8(info).expect("text");
    let counts = info.split([',', '\r', '\n']).filter_map(|part| part.split_once("moves_in"));
    counts.map(|(_, count)| count[1..].parse::<u64>().expect("a number")).sum()
}

fn id(stream: &mut TcpStream) -> i64 {
    stream.write_all(b"CLIENT ID\r\n").expect("sent");
    let Ok(Value::Integer(id)) = receive(stream) else { panic!("an id") };
    id
}

/// Counts a key up, several requests at a time, until `stop`; returns how far. Every reply is one more than the one before.
fn count_up(stream: &mut TcpStream, number: usize, stop: &AtomicBool) -> u64 {
    let requests = format!("INCR n{number}\r\n").repeat(16);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(requests.as_bytes()).expect("sent");
        let expected: String = (count + 1..=count + 16).map(|n| format!(":{n}\r\n")).collect();
        let mut replies = vec![0; expected.len()];
        stream.read_exact(&mut replies).expect("replies");
        assert!(
            replies == expected.as_bytes(),
            "{} instead of {expected}",
            String::from_utf8_lossy(&replies)
        );
        count += 16;
    }
    count
}

#[test]
#[ignore = "long: ten thousand greedy clients for a minute, on each of two connectors"]
fn ten_thousand_greedy_clients_leave_memory_within_its_bounds_and_writers_served() {
    let files = reactor::raise_descriptor_limit(20_000).expect("the system allows it");
    assert!(files >= 11_000, "this process may open {files} files");
    for (connector, clients) in [("epoll", 10_000), ("uring", 10_000), ("threads", 1_000)] {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let lasts = Duration::from_secs(30);
        let crowd =
            Crowd { connector, clients, memory_limit_mib: 256, value_mib: 60, is_value_taken: false, lasts };
        let outcome = crowd.run(dir.path());
        println!("{crowd:?}: {outcome:?}");
        outcome.check(crowd);
    }
}

/// As `store`'s test of the bound does on a simulated disk, but with the server's own threads, commands and sizes.
#[test]
#[ignore = "long: writes 20 GB"]
fn disk_stays_within_the_bound_of_the_manual_for_random_sizes_and_commands() {
    const SEGMENT_BYTES: u64 = 16 << 20;
    const VALUE_BYTES_MAX: u64 = 16 << 20;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let arguments = ["--journal-segment-size=16MiB", "--value-max=16MiB", "--memory-limit=512MiB"];
    let mut server = Server::start(dir.path(), &arguments);
    let mut stream = connect(&server);
    let (seed, mut state, mut most) = (4_711_u64, 4_711_u64, 0);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for n in 0..6_000 {
        let (key, other) = (format!("k{}", random(30)), format!("k{}", random(30)));
        let magnitude = random(24);
        let size = random(1 << magnitude) + 1;
        let command: Vec<String> = match random(12) {
            0..=3 => vec!["SET".into(), key, "v".repeat(size as usize)],
            4..=5 => vec!["APPEND".into(), key, "v".repeat((size % 1_000) as usize)],
            6..=7 => vec!["SETRANGE".into(), key, random(VALUE_BYTES_MAX / 2).to_string(), "v".into()],
            8..=9 => vec!["COPY".into(), key, other, "REPLACE".into()],
            10 => vec!["DEL".into(), key],
            _ if n % 500 == 0 => vec!["FLUSHALL".into()],
            _ => vec!["EXPIRE".into(), key, "1000".into()],
        };
        let mut request = Vec::new();
        resp::encode_command(&mut request, &command);
        stream.write_all(&request).expect("sent");
        let reply = receive(&mut stream).expect("a reply");
        let refusals: [&[u8]; 2] = [b"ERR string exceeds", b"ERR source and destination"];
        let is_refusal = |text: &[u8]| refusals.iter().any(|start| text.starts_with(start));
        let is_expected = !matches!(&reply, Value::Error(text) if !is_refusal(text));
        assert!(is_expected, "{reply:?} to {} of seed {seed}", command[0]);
        if n % 1_500 == 1_499 {
            drop(stream);
            server.signal(15);
            assert!(server.end().0.success());
            server = Server::start(dir.path(), &arguments);
            stream = connect(&server);
        }
        if n % 10 == 0 {
            let live_bytes = field(&server, "log_live_bytes");
            let bound = 2 * live_bytes + 32 * SEGMENT_BYTES + 6 * VALUE_BYTES_MAX;
            let used = taken_bytes(dir.path());
            most = most.max(used * 100 / bound);
            assert!(used <= bound, "{used} B of {bound} B, {live_bytes} B live, command {n} of seed {seed}");
        }
    }
    println!("at most {most} % of the bound");
}

/// Prints the hit ratios of docs/adr/0022-which-values-stay-in-memory.md. 100,000 values of 4,000 bytes, `memory.limit` a tenth of that; Zipf 0.99 with
/// another order of all keys after each million reads, beside two LRUs that see the same: one for as many values as the server holds beside its
/// index, one for 10,000, the whole limit. Then a set of 4,000 keys beside SCAN.
#[test]
#[ignore = "3 million reads of 400 MB: a few minutes"]
fn hit_ratio_on_a_hot_set_that_shifts_is_above_that_of_an_lru_and_scan_leaves_it_alone() {
    const KEYS: usize = 100_000;
    let (dir, value) = (tempfile::tempdir().expect("a folder for the test"), "v".repeat(4_000));
    let server = Server::start(dir.path(), &["--memory-limit=40000000", "--durability=never"]);
    let mut stream = connect(&server);
    let numbers: Vec<usize> = (0..KEYS).collect();
    for part in numbers.chunks(50) {
        send_all(&mut stream, part, |key| vec!["set".into(), format!("key:{key}"), value.clone()]);
    }
    let seed = 42;
    println!("seed {seed}");
    let (mut dice, mut by_rank) = (Rng::new(seed), numbers);
    let mut sum = 0.0;
    let zipf: Vec<f64> = (1..=KEYS).map(|rank| (sum += (rank as f64).powf(-0.99), sum).1).collect();
    let mut lrus =
        [8_850, KEYS / 10].map(|room| Lru { room, order: BTreeMap::new(), used: vec![0; KEYS], now: 0 });
    let mut sums = [0.0; 3];
    for shift in 0..3 {
        (1..KEYS).rev().for_each(|at| by_rank.swap(at, dice.index(at + 1)));
        let (before, mut lru_misses) = (field(&server, "log_cold_reads"), [0, 0]);
        for _ in 0..20_000 {
            let keys = [(); 50].map(|()| {
                let at = dice.unit() * zipf[KEYS - 1];
                by_rank[zipf.partition_point(|sum| *sum <= at)]
            });
            read(&mut stream, &keys);
            for (lru, misses) in lrus.iter_mut().zip(&mut lru_misses) {
                *misses += keys.iter().filter(|key| !lru.read(**key)).count() as u64;
            }
        }
        let misses = field(&server, "log_cold_reads") - before;
        let ratios = [misses, lru_misses[0], lru_misses[1]].map(|misses| 1.0 - misses as f64 / 1e6);
        println!("order {shift}: hit ratio {:.4}; LRUs {:.4}, {:.4}", ratios[0], ratios[1], ratios[2]);
        if shift > 0 {
            sums.iter_mut().zip(ratios).for_each(|(sum, ratio)| *sum += ratio);
        }
    }
    let by = [sums[0] / sums[1], sums[0] / sums[2]];
    println!(
        "after a shift: {:.3} of the LRU for as many values, {:.3} of that for the whole limit",
        by[0], by[1]
    );
    assert!(by[0] >= 1.05, "{by:?}");
    let (hot, mut cursor) = (&by_rank[..4_000], "0".to_owned());
    let mut misses_of = |stream: &mut TcpStream, batches: usize| {
        let before = field(&server, "log_cold_reads");
        (0..batches).for_each(|_| read(stream, &[(); 50].map(|()| hot[dice.index(hot.len())])));
        (field(&server, "log_cold_reads") - before) as f64
    };
    misses_of(&mut stream, 2_000);
    let before = 1.0 - misses_of(&mut stream, 2_000) / 1e5;
    let (mut missed, mut pages) = (0.0, 0);
    while pages == 0 || cursor != "0" {
        // what SCAN itself reads is not in this
        cursor = scanned(&mut stream, &cursor);
        missed += misses_of(&mut stream, 2);
        pages += 1;
    }
    let during = 1.0 - missed / f64::from(pages * 100);
    println!("hot set: {before:.4} before SCAN, {during:.4} beside it ({pages} pages)");
    assert!(during / before >= 0.99);
}

/// The keys that were read last.
struct Lru {
    room: usize,
    /// By time of the last read.
    order: BTreeMap<u64, usize>,
    /// That time, 0 for those that are not in it.
    used: Vec<u64>,
    now: u64,
}

impl Lru {
    /// Whether it had the key.
    fn read(&mut self, key: usize) -> bool {
        self.now += 1;
        let had = self.order.remove(&self.used[key]).is_some();
        self.order.insert(self.now, key);
        self.used[key] = self.now;
        if self.order.len() > self.room
            && let Some((_, gone)) = self.order.pop_first()
        {
            self.used[gone] = 0;
        }
        had
    }
}

/// Sends a command for each key in one write, and takes the replies.
fn send_all(stream: &mut TcpStream, keys: &[usize], command: impl Fn(usize) -> Vec<String>) {
    let mut request = Vec::new();
    for key in keys {
        resp::encode_command(&mut request, &command(*key));
    }
    stream.write_all(&request).expect("sent");
    for _ in keys {
        let reply = receive(stream).expect("a reply");
        assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
    }
}

/// Reads values, with short replies.
fn read(stream: &mut TcpStream, keys: &[usize]) {
    send_all(stream, keys, |key| vec!["getrange".into(), format!("key:{key}"), "0".into(), "0".into()]);
}

/// One call of SCAN; returns the next cursor.
fn scanned(stream: &mut TcpStream, cursor: &str) -> String {
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["scan", cursor, "count", "100"]);
    stream.write_all(&request).expect("sent");
    let Ok(Value::Array(parts)) = receive(stream) else { panic!("cursor and keys") };
    let Some(Value::Bulk(next)) = parts.into_iter().next() else { panic!("a cursor") };
    String::from_utf8(next).expect("digits")
}

/// A field of INFO, as a number.
fn field(server: &Server, name: &str) -> u64 {
    let Value::Bulk(info) = server.call(&["info", "everything"]) else { panic!("INFO is text") };
    let info = String::from_utf8(info).expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect(name);
    line.parse().expect("a number")
}

/// Blocks that the files of `dir` take, in bytes.
fn taken_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(dir).expect("a folder");
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|it| it.blocks() * 512).sum()
}
