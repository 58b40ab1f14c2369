//! Clients that mean no good, all at once: strangers, listeners and readers that never read, requests that never end, and large
//! values; beside them writers who must be served.
#![allow(
    clippy::disallowed_methods,
    dead_code,
    unreachable_pub,
    reason = "tests start processes and sockets"
)]

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use resp::Value;

use super::{Server, ok, receive, resident_bytes};

/// How large the crowd is.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    pub connector: &'static str,
    pub clients: usize,
    pub memory_limit_mib: u64,
    pub value_mib: usize,
    /// Whether a value of this size must be taken. One must when few others have announced as much, not when a thousand have, each
    /// of which may hold the room for a quarter of the longest wait.
    pub is_value_taken: bool,
    pub lasts: Duration,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    pub resident_bytes_max: u64,
    pub startup_bytes: u64,
    pub small_writes: u64,
    pub large_writes: u64,
    pub messages: u64,
    /// INFO memory when most was resident, within 4 MiB.
    pub memory: String,
}

/// What the writers share.
#[derive(Debug, Default)]
struct Figures {
    stop: AtomicBool,
    small_writes: AtomicU64,
    large_writes: AtomicU64,
    messages: AtomicU64,
}

impl Crowd {
    /// Lets the crowd loose on a server in `dir`.
    ///
    /// # Panics
    /// If a small write is refused, the server ends, or writers are not served within a minute.
    pub fn run(self, dir: &Path) -> Outcome {
        let limit = format!("--memory-limit={}MiB", self.memory_limit_mib);
        let (connector, most) =
            (format!("--connector={}", self.connector), format!("--connections-max={}", self.clients + 100));
        let few =
            ["--requirepass=secret", "--durability=never", "--loops=2", "--connections-room-wait-max=2s"];
        let server = Server::start(dir, &[&few[..], &[&limit, &connector, &most]].concat());
        let figures = Arc::new(Figures::default());
        let port = server.port;
        let mut threads = Vec::new();
        let mut spawn = |work: Box<dyn FnOnce(&Figures) + Send>| {
            let figures = Arc::clone(&figures);
            threads.push(std::thread::spawn(move || work(&figures)));
        };
        for writer in 0..2 {
            spawn(Box::new(move |figures| write_small(port, writer, figures)));
            spawn(Box::new(move |figures| write_large(port, self.value_mib << 20, figures)));
        }
        spawn(Box::new(move |figures| publish(port, figures)));
        spawn(Box::new(move |figures| throng(port, self.clients, figures)));
        let (began, mut outcome) = (Instant::now(), Outcome::default());
        let all = [
            (&figures.small_writes, SMALL_WRITES_MIN),
            (&figures.large_writes, u64::from(self.is_value_taken)),
            (&figures.messages, 1),
        ];
        let lacks = || all.iter().any(|(count, min)| count.load(Ordering::Relaxed) < *min);
        while began.elapsed() < self.lasts || lacks() {
            assert!(
                began.elapsed() < self.lasts + Duration::from_secs(60),
                "writers were not served: {figures:?}"
            );
            let resident_bytes = resident_bytes(&server);
            if resident_bytes > outcome.resident_bytes_max + (4 << 20) {
                outcome.memory = info_memory(port);
            }
            outcome.resident_bytes_max = outcome.resident_bytes_max.max(resident_bytes);
            std::thread::sleep(Duration::from_millis(10));
        }
        figures.stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("nobody was refused"));
        let info = info_memory(port);
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory_startup:")).expect("a field");
        outcome.startup_bytes = line.parse().expect("a number");
        outcome.small_writes = figures.small_writes.load(Ordering::Relaxed);
        outcome.large_writes = figures.large_writes.load(Ordering::Relaxed);
        outcome.messages = figures.messages.load(Ordering::Relaxed);
        outcome
    }
}

impl Outcome {
    /// # Panics
    /// If memory was not within its bounds.
    pub fn check(&self, crowd: Crowd) {
        let most = (crowd.memory_limit_mib << 20) * 5 / 4 + self.startup_bytes;
        assert!(
            self.resident_bytes_max < most,
            "{} bytes resident, the bound is {most}: {crowd:?}\n{}",
            self.resident_bytes_max,
            self.memory
        );
    }
}

/// What the client with this number sends, as far as it comes.
fn said(kind: usize) -> Vec<u8> {
    let auth = command(&[b"AUTH", b"secret"]);
    let after_auth = |bytes: &[u8]| [&auth[..], bytes].concat();
    let half =
        |bytes: usize| [&b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$62914560\r\n"[..], &vec![b'h'; bytes]].concat();
    match kind {
        0 => command(&[b"HELLO", b"3"]).repeat(1_000),
        1 => after_auth(&command(&[b"SUBSCRIBE", b"channel"])),
        2 => {
            let mget: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain([&b"read"[..]; 8]).collect();
            let set = command(&[b"SET", b"read", &[b'r'; 60_000]]);
            after_auth(&[set, command(&mget).repeat(200)].concat())
        }
        3 => after_auth(&half(1_000)),
        4 => after_auth(&half(60_000)),
        5 => after_auth(&half(2_000_000)),
        6 => Vec::new(),
        7 => [&b"*10\r\n$16000\r\n"[..], &[b'x'; 15_000]].concat(),
        8 => after_auth(
            &[command(&[b"MULTI"]), command(&[b"SET", b"multi", &[b'm'; 10_000]]).repeat(200)].concat(),
        ),
        _ => after_auth(&command(&[b"ECHO", &vec![b'e'; 1_000_000]]).repeat(20)),
    }
}

const KINDS: usize = 10;
/// The crowd stays until so many small writes were taken.
const SMALL_WRITES_MIN: u64 = 100;

/// Keeps `count` clients busy, none of which reads.
fn throng(port: u16, count: usize, figures: &Figures) {
    let texts: Vec<Vec<u8>> = (0..KINDS).map(said).collect();
    let mut clients: Vec<Option<(TcpStream, usize)>> = (0..count).map(|_| None).collect();
    while !figures.stop.load(Ordering::Relaxed) {
        for (index, client) in clients.iter_mut().enumerate() {
            if figures.stop.load(Ordering::Relaxed) {
                return;
            }
            let text = &texts[index % KINDS];
            if client.is_none()
                && let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            {
                stream.set_nonblocking(true).expect("a socket option");
                *client = Some((stream, 0));
            }
            let Some((stream, at)) = client else { continue };
            match stream.write(&text[*at..text.len().min(*at + (256 << 10))]) {
                Ok(sent) => *at += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => *client = None,
            }
        }
    }
}

/// Small writes, each of which must be taken.
fn write_small(port: u16, writer: usize, figures: &Figures) {
    let mut stream = friend(port).expect("who authenticates is served");
    let mut n = 0;
    while !figures.stop.load(Ordering::Relaxed) {
        n += 1;
        let key = format!("small:{writer}:{}", n % 1_000);
        stream.write_all(&command(&[b"SET", key.as_bytes(), &[b'v'; 100]])).expect("taken");
        assert_eq!(receive(&mut stream).expect("a reply"), ok());
        figures.small_writes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Large writes, which may have to wait, or be refused.
fn write_large(port: u16, bytes: usize, figures: &Figures) {
    let set = command(&[b"SET", b"large", &vec![b'l'; bytes]]);
    while !figures.stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = friend(port) else { continue };
        while !figures.stop.load(Ordering::Relaxed) && stream.write_all(&set).is_ok() {
            match receive(&mut stream) {
                Ok(reply) if reply == ok() => _ = figures.large_writes.fetch_add(1, Ordering::Relaxed),
                Ok(Value::Error(text)) => {
                    assert!(text.starts_with(b"OOM"), "{}", String::from_utf8_lossy(&text));
                }
                _ => break,
            }
        }
    }
}

/// Large messages: whoever sends one may be among those that keep most, and be closed.
fn publish(port: u16, figures: &Figures) {
    let message = command(&[b"PUBLISH", b"channel", &vec![b'm'; 1 << 20]]);
    while !figures.stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = friend(port) else { continue };
        while !figures.stop.load(Ordering::Relaxed) && stream.write_all(&message).is_ok() {
            match receive(&mut stream) {
                Ok(Value::Integer(_)) => _ = figures.messages.fetch_add(1, Ordering::Relaxed),
                Ok(Value::Error(text)) => {
                    assert!(text.starts_with(b"OOM"), "{}", String::from_utf8_lossy(&text));
                }
                _ => break,
            }
        }
    }
}

/// A connection that has authenticated.
fn friend(port: u16) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(&command(&[b"AUTH", b"secret"]))?;
    match receive(&mut stream)? {
        Value::Simple(_) => Ok(stream),
        other => panic!("no reply to AUTH: {other:?}"),
    }
}

/// INFO memory.
fn info_memory(port: u16) -> String {
    let mut stream = friend(port).expect("who authenticates is served");
    stream.write_all(&command(&[b"INFO", b"memory"])).expect("taken");
    let Value::Bulk(info) = receive(&mut stream).expect("a reply") else { panic!("INFO is text") };
    String::from_utf8(info).expect("text")
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    resp::encode_command(&mut bytes, words);
    bytes
}
