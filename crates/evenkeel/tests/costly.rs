//! How long other clients wait while each command of the table runs with its most expensive arguments, on collections of a million elements.
//!
//! `EVENKEEL_COSTLY_ELEMENTS=1000000 cargo test --release -p evenkeel --test costly -- --ignored --nocapture`
//!
//! On a quiet machine no reply may take longer than 50 ms. The table is that of `server`, whose own test checks by counts where each command runs.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests start processes and sockets, and tell figures"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Server;
use resp::encode_command;

const KEYS: [&str; 12] = ["str", "h", "s", "s2", "z", "z2", "zl", "geo", "l", "x", "hll", "number"];
const BYSTANDERS: u64 = 3;
const BYSTANDERS_KEYS: u64 = 2_000;
const WAIT_MAX: Duration = Duration::from_millis(50);

/// A connection on which nothing is read but the end of replies.
struct Client(TcpStream);

impl Client {
    fn new(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        stream.set_nodelay(true).expect("a socket option");
        Self(stream)
    }

    /// Sends `commands`, and waits until all are answered.
    fn run(&mut self, commands: &[Vec<String>]) {
        const END: &[u8] = b"$12\r\nend-of-reply\r\n";
        let mut request = Vec::new();
        commands.iter().for_each(|command| encode_command(&mut request, command));
        encode_command(&mut request, &["ECHO", "end-of-reply"]);
        let (mut reader, mut tail) = (self.0.try_clone().expect("a descriptor"), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| self.0.write_all(&request).expect("sent"));
            let mut buffer = vec![0; 1 << 20];
            while !tail.ends_with(END) {
                let count = reader.read(&mut buffer).expect("a reply");
                assert!(count > 0, "it closed the connection");
                tail.extend_from_slice(&buffer[..count]);
                tail.drain(..tail.len().saturating_sub(END.len()));
            }
        });
    }

    fn line(&mut self, line: &str) {
        self.run(&[line.split(' ').map(str::to_owned).collect()]);
    }
}

/// The words of a command, on elements `range` of `n`.
fn words(text: &str, range: std::ops::Range<u64>, n: u64) -> Vec<String> {
    let mut words = Vec::new();
    for word in text.split(' ') {
        let numbers = range.clone();
        match word {
            "{members}" => words.extend(numbers.map(|i| format!("m{i}"))),
            "{keys}" => words.extend(numbers.map(|i| format!("k{i}"))),
            "{fields}" => words.extend(numbers.flat_map(|i| [format!("m{i}"), "v".to_owned()])),
            "{scored}" => words.extend(numbers.flat_map(|i| [i.to_string(), format!("m{i}")])),
            "{zeros}" => words.extend(numbers.flat_map(|i| ["0".to_owned(), format!("m{i}")])),
            "{places}" => words.extend(
                numbers.flat_map(|i| [(i % 180).to_string(), (i / 180 % 80).to_string(), format!("m{i}")]),
            ),
            "{ids}" => words.extend(numbers.map(|i| format!("{}-1", i + 1))),
            word => words.push(word.replace("{n}", &n.to_string())),
        }
    }
    words
}

/// Makes the keys of the table, and copies by which they are made anew.
fn fill(client: &mut Client, n: u64) {
    let parts = || (0..n).step_by(1_000).map(|from| from..n.min(from + 1_000));
    for text in [
        "HSET h {fields}",
        "SADD s {members}",
        "SADD s2 {members}",
        "ZADD z {scored}",
        "ZADD z2 {scored}",
        "ZADD zl {zeros}",
        "RPUSH l {members}",
        "GEOADD geo {places}",
    ] {
        parts().for_each(|part| client.run(&[words(text, part, n)]));
    }
    for part in parts() {
        let entries = part.map(|i| words(&format!("XADD x {}-1 f v", i + 1), 0..0, n));
        client.run(&entries.collect::<Vec<_>>());
    }
    client.run(&[vec!["SET".to_owned(), "str".to_owned(), "v".repeat(n as usize)]]);
    for line in ["SET short text", "SET number 7", "PFADD hll a b c", "PFADD hll2 a", "XGROUP CREATE x g 0"] {
        client.line(line);
    }
    client.line("XREADGROUP GROUP g c STREAMS x >");
    client.line("XGROUP CREATE x g2 0");
    KEYS.iter().for_each(|key| client.line(&format!("COPY {key} kept:{key} REPLACE")));
    (0..BYSTANDERS_KEYS).for_each(|i| client.line(&format!("SET bystander:{i} v")));
}

/// Reads keys of all stripes one after the other until it is told to stop, and notes the longest wait.
fn watch(port: u16, seed: u64, worst_ns: &AtomicU64, stops: &AtomicBool) {
    let (mut client, mut number) = (Client::new(port), seed);
    while !stops.load(Ordering::Relaxed) {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut request = Vec::new();
        encode_command(&mut request, &["GET", &format!("bystander:{}", (number >> 33) % BYSTANDERS_KEYS)]);
        let (began, mut reply) = (Instant::now(), [0; 7]);
        client.0.write_all(&request).expect("sent");
        client.0.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"$1\r\nv\r\n");
        worst_ns.fetch_max(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        std::thread::park_timeout(Duration::from_micros(500));
    }
}

#[test]
#[ignore = "long: a million elements of each type, and figures that need a quiet machine"]
fn nobody_waits_for_the_most_expensive_command() {
    let n = std::env::var("EVENKEEL_COSTLY_ELEMENTS").map_or(1_000_000, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--loops=2", "--memory-limit=6GiB", "--durability=never"]);
    let mut client = Client::new(server.port);
    fill(&mut client, n);
    let (worst_ns, stops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let bystanders: Vec<_> = (1..=BYSTANDERS)
        .map(|seed| {
            let (worst_ns, stops, port) = (Arc::clone(&worst_ns), Arc::clone(&stops), server.port);
            std::thread::spawn(move || watch(port, seed, &worst_ns, &stops))
        })
        .collect();
    let table = include_str!("../../server/src/tests/costly.txt").lines();
    let mut late = Vec::new();
    for line in table.filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, rest) = line.split_once(' ').expect("a name");
        let (place, text) = rest.split_once(' ').expect("a place");
        if place == "none" {
            continue;
        }
        let command = words(text, 0..n, n);
        worst_ns.store(0, Ordering::Relaxed);
        let began = Instant::now();
        client.run(&[command]);
        let (took, worst) = (began.elapsed(), Duration::from_nanos(worst_ns.load(Ordering::Relaxed)));
        println!("{name:24} {place:8} {took:>12.1?}, others waited {worst:>10.1?}");
        if worst > WAIT_MAX {
            late.push(format!("{name}: {worst:.1?}"));
        }
        if place.ends_with('!') {
            let named: Vec<&str> = text.split(' ').collect();
            for key in KEYS.iter().filter(|key| named.contains(*key)) {
                client.line(&format!("COPY kept:{key} {key} REPLACE"));
            }
            ["DEL d", "SELECT 1", "FLUSHDB", "SELECT 0"].iter().for_each(|line| client.line(line));
        }
    }
    stops.store(true, Ordering::Relaxed);
    bystanders.into_iter().for_each(|bystander| bystander.join().expect("it was answered"));
    assert!(late.is_empty(), "longer than {WAIT_MAX:?}: {}", late.join(", "));
}
