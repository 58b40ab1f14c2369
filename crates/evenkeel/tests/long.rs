//! Runs that are too long for every push: as many connections as a process may have, a million moves.
//!
//! `cargo test --release -p evenkeel --test long -- --ignored --nocapture`
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests start processes and sockets, and tell figures"
)]

mod common;
#[path = "common/stress.rs"]
mod stress;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::crowd::Crowd;
use common::{Server, ok, receive};
use resp::Value;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    stream
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a field of that name");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
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
        stress::run(connector, Duration::from_secs(60));
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
