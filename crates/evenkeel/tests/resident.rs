//! Resident memory within the limit whatever sizes follow each other, through the shipped binary.
//!
//! The long one: `cargo test --release -p evenkeel --test resident -- --ignored --nocapture`
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use common::{Server, resident_bytes, resident_peak_bytes};

/// A client of a server whose peak is looked at.
struct Client {
    server: Server,
    stream: BufReader<TcpStream>,
    limit_bytes: u64,
    start_bytes: u64,
    leeway_bytes: u64,
}

impl Client {
    fn of(dir: &std::path::Path, (limit_mib, leeway_mib): (u64, u64)) -> Self {
        let limit = format!("--memory-limit={limit_mib}MiB");
        let server = Server::start(dir, &["--loops=2", &limit]);
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
        let start_bytes = resident_bytes(&server);
        let stream = BufReader::with_capacity(1 << 20, stream);
        let (limit_bytes, leeway_bytes) = (limit_mib << 20, leeway_mib << 20);
        Self { server, stream, limit_bytes, start_bytes, leeway_bytes }
    }

    /// Sends `commands` in one write, each of which is done.
    fn send<const WORDS: usize>(&mut self, commands: impl Iterator<Item = [Vec<u8>; WORDS]>) {
        let (mut request, mut count) = (Vec::new(), 0);
        for command in commands {
            resp::encode_command(&mut request, &command);
            count += 1;
        }
        self.stream.get_mut().write_all(&request).expect("sent");
        (0..count).for_each(|_| self.pass_reply());
    }

    /// Passes over a reply that is no error.
    fn pass_reply(&mut self) {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a reply");
        let count = |line: &str| line[1..].trim_end().parse::<i64>().expect("a length");
        match line.as_bytes()[0] {
            b'$' if count(&line) >= 0 => {
                let mut value = vec![0; count(&line) as usize + 2];
                self.stream.read_exact(&mut value).expect("a value");
            }
            b'*' => (0..count(&line)).for_each(|_| self.pass_reply()),
            kind => assert_ne!(kind, b'-', "{line}"),
        }
    }

    /// SETs keys `from..to` of a name, `at_once` of them in a pipeline.
    fn set(
        &mut self,
        name: &str,
        (from, to): (usize, usize),
        at_once: usize,
        bytes: impl Fn(usize) -> usize,
    ) {
        for first in (from..to).step_by(at_once) {
            let numbers = first..to.min(first + at_once);
            self.send(numbers.map(|n| {
                [b"set".to_vec(), format!("{name}{n}").into_bytes(), vec![b'0' + (n % 10) as u8; bytes(n)]]
            }));
        }
    }

    /// A quarter more than the limit and the program's own share were resident at most.
    fn assert_within(&self, when: &str) {
        let peak_bytes = resident_peak_bytes(&self.server);
        let own_bytes = self.start_bytes.max(OWN_BYTES);
        println!(
            "{when}: at most {} KiB resident, {} at the start",
            peak_bytes >> 10,
            self.start_bytes >> 10
        );
        let most_bytes = self.limit_bytes / 4 * 5 + own_bytes + self.leeway_bytes;
        assert!(peak_bytes <= most_bytes, "{when}: {peak_bytes} B, {most_bytes} B at most");
    }
}

/// Small strings, and then larger values of all kinds that commands make: 196 MiB were resident with a limit of 64 MiB, and 416 with 256 MiB.
fn larger_values_follow(limit_mib: u64, leeway_mib: u64) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let mut client = Client::of(dir.path(), (limit_mib, leeway_mib));
    let scale = (limit_mib / 64) as usize;
    let cold = 500 * scale;
    client.set("cold", (0, cold), 10, |_| 100_000);
    client.set("small", (0, 200_000 * scale), 200, |_| 500);
    client.assert_within("small strings");
    for round in 0..4 * cold / 20 {
        client.send(
            (0..20).map(|n| [b"get".to_vec(), format!("cold{}", (round * 20 + n * 7) % cold).into_bytes()]),
        );
    }
    client.assert_within("reads of larger values");
    client.set("large", (0, 40 * scale), 1, |n| (1 + n % 8) << 20);
    client.assert_within("values of MiB");
    client.set("medium", (0, 20_000 * scale), 200, |n| 16 << (n % 10));
    client.assert_within("strings of all sizes");
    for round in 0..10 * scale {
        client.send([[b"multi".to_vec()]].into_iter());
        client.set("m", (round * 1_000, (round + 1) * 1_000), 1_000, |_| 10_240);
        client.send([[b"exec".to_vec()]].into_iter());
    }
    client.assert_within("MULTI");
    let script = "for i = 1, 1000 do redis.call('SET', 'e:' .. (ARGV[1] + i), string.rep('y', 4000)) end";
    for round in 0..20 * scale {
        let number = (round * 1_000).to_string();
        client.send([["eval", script, "0", &number].map(|word| word.as_bytes().to_vec())].into_iter());
    }
    client.assert_within("EVAL");
}

/// The bound is reached within a few MiB here, but for rare peaks of 20 MiB more. On a busy machine a pass over the index takes longer than others wait for it, and values that wait for a slow disk stay.
#[test]
fn resident_memory_is_bounded_when_larger_values_follow_small_ones() {
    larger_values_follow(64, 64);
}

#[test]
#[ignore = "long: writes some GiB"]
fn resident_memory_stays_within_a_quarter_more_than_a_limit_of_256_mib() {
    larger_values_follow(256, 0);
}

/// Code, stacks and buffers of threads, when all of the code that this needs has run: code that has debug information with it comes to 23 MiB.
const OWN_BYTES: u64 = 24 << 20;
