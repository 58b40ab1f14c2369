//! How long other clients wait while each command of the table runs with its most expensive arguments, on collections of a million elements.
//!
//! `EVENKEEL_COSTLY_ELEMENTS=1000000 cargo test --release -p evenkeel --test costly -- --ignored --nocapture`
//!
//! `EVENKEEL_COSTLY_ONLY=b,x` has it run the commands alone whose names begin so. On a quiet machine no reply may take longer than 50 ms. The table is that of `server`, whose own test checks by counts where each command runs.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests start processes and sockets, and tell figures"
)]

mod common;
#[path = "../../server/src/tests/costly/table.rs"]
mod table;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Server;
use resp::encode_command;
use table::{Row, filling, renewing, rows, words};

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
    filling(n).for_each(|commands| client.run(&commands));
    (0..BYSTANDERS_KEYS).for_each(|i| client.line(&format!("SET bystander:{i} v")));
    let (worst_ns, stops) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let bystanders: Vec<_> = (1..=BYSTANDERS)
        .map(|seed| {
            let (worst_ns, stops, port) = (Arc::clone(&worst_ns), Arc::clone(&stops), server.port);
            std::thread::spawn(move || watch(port, seed, &worst_ns, &stops))
        })
        .collect();
    let only = std::env::var("EVENKEEL_COSTLY_ONLY").unwrap_or_default();
    let is_wanted = |name: &str| only.split(',').any(|begin| name.starts_with(begin));
    let mut late = Vec::new();
    for Row { name, place, changes, rest } in
        rows().into_iter().filter(|row| row.place != "none" && is_wanted(row.name))
    {
        let command = words(rest, 0..n, n);
        worst_ns.store(0, Ordering::Relaxed);
        let began = Instant::now();
        client.run(&[command]);
        let (took, worst) = (began.elapsed(), Duration::from_nanos(worst_ns.load(Ordering::Relaxed)));
        println!("{name:24} {place:8} {took:>12.1?}, others waited {worst:>10.1?}");
        if worst > WAIT_MAX {
            late.push(format!("{name}: {worst:.1?}"));
        }
        if changes {
            client.run(&renewing(rest));
        }
    }
    stops.store(true, Ordering::Relaxed);
    bystanders.into_iter().for_each(|bystander| bystander.join().expect("it was answered"));
    assert!(late.is_empty(), "longer than {WAIT_MAX:?}: {}", late.join(", "));
}
