//! Amplification: a request of some bytes cannot make the server hold many times as much before the budget was asked.
//!
//! An allocator counts what lives. Each request runs beside data that fills `memory.limit`, and whatever it answers, no more than 1.25 of the
//! limit may live at any moment, beside what the process has without data. `45 bytes: SRANDMEMBER h -30000000` took 1.4 GB, a MULTI of 30 SETBIT
//! 1.8 GB, 500 subscribers that did not read 2 GB.

#![allow(unsafe_code, reason = "an allocator that counts")]

#[allow(dead_code, reason = "of the servers one is needed")]
#[path = "differential/servers.rs"]
mod servers;
#[path = "../src/tests/costly/table.rs"]
mod table;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resp::encode_command;
use servers::{Evenkeel, small};
use store::{EngineKind, Options};

/// Counts what lives, and the most that did.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // In place, as pages are moved and not copied.
        if size > layout.size() {
            add(size - layout.size());
        } else {
            LIVE.fetch_sub(layout.size() - size, Ordering::Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: usize = 16 << 20;
const BUFFERS: usize = 4 << 20;

type Words = Vec<Vec<u8>>;

/// A client that throws away what it reads.
struct Client(TcpStream);

impl Client {
    #[expect(clippy::disallowed_methods, reason = "a test is a client")]
    fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        Self(stream)
    }

    fn send(&mut self, commands: &[Words]) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| encode_command(&mut bytes, command));
        // One that is cut off for what it asked for is answered, too.
        let _ = self.0.write_all(&bytes);
    }

    /// Reads until the reply to a PING comes behind all others, or the connection ends; the first bytes.
    fn read_all(&mut self) -> Vec<u8> {
        const END: &[u8] = b"+the-end\r\n";
        self.send(&[words("ECHO x"), words("PING the-end")]);
        let (mut chunk, mut head, mut tail) = (vec![0; 64 << 10], Vec::new(), Vec::new());
        loop {
            let count = self.0.read(&mut chunk).unwrap_or(0);
            if count == 0 {
                return head;
            }
            if head.len() < 200 {
                head.extend_from_slice(&chunk[..count.min(200)]);
            }
            tail.extend_from_slice(&chunk[..count]);
            tail.drain(..tail.len().saturating_sub(32));
            if tail.ends_with(END) || tail.ends_with(b"$7\r\nthe-end\r\n") {
                return head;
            }
        }
    }
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn many(count: usize, line: impl Fn(usize) -> String) -> Vec<Words> {
    (0..count).map(|at| words(&line(at))).collect()
}

/// MULTI, these commands, EXEC.
fn together(commands: Vec<Words>) -> Vec<Words> {
    [vec![words("MULTI")], commands, vec![words("EXEC")]].concat()
}

/// Keys of all types, and what fills memory beside them.
fn load(port: u16, fills: bool) {
    let mut client = Client::open(port);
    let member = |at: usize| format!("member:{at:07}");
    for from in (0..10_000).step_by(500) {
        let all = || (from..from + 500).map(member).collect::<Vec<_>>();
        let pairs =
            |value: &str| all().iter().map(|it| format!("{it} {value}")).collect::<Vec<_>>().join(" ");
        let scored: Vec<_> = all().iter().enumerate().map(|(at, it)| format!("{at} {it}")).collect();
        let other: Vec<_> = all().iter().map(|it| format!("other:{it}")).collect();
        client.send(&[
            words(&format!("HSET h {}", pairs("v"))),
            words(&format!("SADD s {}", all().join(" "))),
            words(&format!("SADD s2 {}", other.join(" "))),
            words(&format!("ZADD z {}", scored.join(" "))),
            words(&format!("RPUSH l {}", all().join(" "))),
        ]);
        client.read_all();
    }
    client.send(&many(1_000, |at| format!("XADD x {}-1 field {}", at + 1, "v".repeat(500))));
    client.read_all();
    client.send(&[
        words("GEOADD g 1 1 a 2 2 b"),
        words("PFADD p a b c"),
        vec![b"SET".to_vec(), b"big".to_vec(), vec![b'x'; 2 << 20]],
    ]);
    client.send(&[vec![b"HSET".to_vec(), b"hb".to_vec(), b"f".to_vec(), vec![b'x'; 1 << 20]]]);
    client.read_all();
    if fills {
        client.send(&many(12_000, |at| format!("SET fill:{at} {}", "x".repeat(1_000))));
        client.read_all();
    }
}

/// The commands of a request, made when it is its turn: they take memory, too.
type Request = fn() -> Vec<Words>;

fn listed(head: &str, count: usize, tail: &str) -> Words {
    words(&format!("{head} {}{tail}", (0..count).map(|at| format!("k{at}")).collect::<Vec<_>>().join(" ")))
}

/// Requests that ask for as much as they can.
const REQUESTS: [(&str, Request); 26] = [
    ("SRANDMEMBER", || vec![words("SRANDMEMBER s -30000000")]),
    ("HRANDFIELD", || vec![words("HRANDFIELD h -20000000 WITHVALUES")]),
    ("ZRANDMEMBER", || vec![words("ZRANDMEMBER z -20000000 WITHSCORES")]),
    ("SETBIT", || many(30, |at| format!("SETBIT bits:{at} 200000000 1"))),
    ("SETBIT in MULTI", || together(many(30, |at| format!("SETBIT bits:{at} 200000000 1")))),
    ("SETRANGE in MULTI", || together(many(30, |at| format!("SETRANGE range:{at} 20000000 x")))),
    ("BITFIELD in MULTI", || together(many(30, |at| format!("BITFIELD field:{at} SET u8 200000000 1")))),
    ("BITOP in MULTI", || together(many(60, |at| format!("BITOP NOT not:{at} big")))),
    ("APPEND in MULTI", || together(many(60, |at| format!("APPEND app:{} {}", at % 3, "x".repeat(60_000))))),
    ("COPY in MULTI", || together(many(200, |at| format!("COPY h copy:{at}")))),
    ("PFMERGE in MULTI", || together(many(20_000, |at| format!("PFMERGE merged:{at} p")))),
    ("SUNIONSTORE in MULTI", || together(many(60, |at| format!("SUNIONSTORE union:{at} s s2")))),
    ("ZUNIONSTORE in MULTI", || together(many(60, |at| format!("ZUNIONSTORE zunion:{at} 2 z s")))),
    ("SORT STORE in MULTI", || together(many(60, |at| format!("SORT l ALPHA STORE sorted:{at}")))),
    ("HMGET of one field", || vec![words(&format!("HMGET hb{}", " f".repeat(240)))]),
    ("GETRANGE in MULTI", || together(many(500, |_| "GETRANGE big 0 16000".to_owned()))),
    ("HGETALL in MULTI", || together(many(60, |_| "HGETALL h".to_owned()))),
    ("LRANGE in MULTI", || together(many(60, |_| "LRANGE l 0 -1".to_owned()))),
    ("SORT GET", || vec![words(&format!("SORT l ALPHA{}", " GET #".repeat(200)))]),
    ("XREAD of one stream", || {
        vec![words(&format!("XREAD STREAMS{}{}", " x".repeat(240), " 0".repeat(240)))]
    }),
    ("SUNION", || vec![words(&format!("SUNION{}", " s s2".repeat(20)))]),
    ("ZREMRANGEBYRANK", || vec![words("ZREMRANGEBYRANK z 1 9000")]),
    ("BLPOP", || vec![listed("BLPOP", 200_000, " 1")]),
    ("WATCH", || vec![listed("WATCH", 200_000, ""), words("UNWATCH")]),
    ("KEYS", || together(many(60, |_| "KEYS *".to_owned()))),
    ("HSCAN", || together(many(60, |_| "HSCAN h 0 COUNT 1000000".to_owned()))),
];

/// Those that were worst of each kind.
#[test]
fn request_that_asks_for_far_more_than_its_bytes_is_refused_before_that_is_made() {
    let some = [
        "SRANDMEMBER",
        "SETBIT in MULTI",
        "BITOP in MULTI",
        "HMGET of one field",
        "XREAD of one stream",
        "BLPOP",
    ];
    run(|name| some.contains(&name), false);
}

#[test]
#[ignore = "half a minute: cargo test --profile ci -p server --test amplification -- --ignored --test-threads 1"]
fn no_request_makes_the_server_hold_more_than_five_quarters_of_the_limit_of_memory() {
    let only = std::env::var("EVENKEEL_AMPLIFICATION").unwrap_or_default();
    run(|name| name.starts_with(&only), true);
}

/// One test at a time: there is one count of what lives.
static RUNS: Mutex<()> = Mutex::new(());

/// A server with [`LIMIT`], and what lives since it was started, while no other test runs: some of that may be of servers before it.
fn start(leaf_bytes: u64) -> (MutexGuard<'static, ()>, Evenkeel, usize) {
    let runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let options = Options { leaf_bytes, memory_limit_bytes: LIMIT as u64, ..small(EngineKind::Log) };
    let evenkeel = Evenkeel::start(options);
    (runs, evenkeel, LIVE.load(Ordering::Relaxed))
}

fn run(is_wanted: impl Fn(&str) -> bool, fills: bool) {
    let (_runs, evenkeel, started) = start(4 << 10);
    load(evenkeel.port, fills);
    let most = most(started);
    let mut wrong = Vec::new();
    for (name, request) in REQUESTS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let peak = peak_of(evenkeel.port, name, &request(), most);
        if peak > most {
            wrong.push(format!("{name}: {} KiB", peak >> 10));
        }
    }
    assert!(wrong.is_empty(), "of {} KiB: {wrong:?}", most >> 10);
}

/// The most that may live in a process of which `started` bytes do without data. Beside five quarters of the limit there are buffers of the journal
/// and of the loops, and the room of a reply that grows as a vector does: that is counted here, and is not resident.
fn most(started: usize) -> usize {
    started + BUFFERS + LIMIT / 4 * 5 + LIMIT / 2
}

/// The most that lives while `commands` are answered.
fn peak_of(port: u16, name: &str, commands: &[Words], most: usize) -> usize {
    let mut client = Client::open(port);
    let mut bytes = Vec::new();
    commands.iter().for_each(|command| encode_command(&mut bytes, command));
    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    let _ = client.0.write_all(&bytes);
    let head = client.read_all();
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(bytes.capacity());
    let shown: String = String::from_utf8_lossy(&head).chars().take(100).collect();
    println!("{name}: {} KiB at most of {}: {shown:?}", peak >> 10, most >> 10);
    peak
}

/// Commands of the table, to be sent.
fn sent(commands: Vec<Vec<String>>) -> Vec<Words> {
    commands.into_iter().map(|command| command.into_iter().map(String::into_bytes).collect()).collect()
}

/// Makes the keys of the table, one of them longer, and fills memory beside them.
fn load_table(port: u16, n: usize) {
    let mut client = Client::open(port);
    for pipeline in table::filling(n) {
        client.send(&sent(pipeline));
        client.read_all();
    }
    client.send(&[
        vec![b"SET".to_vec(), b"str".to_vec(), vec![b'v'; 1 << 20]],
        words("COPY str kept:str REPLACE"),
    ]);
    client.send(&many(12_000, |at| format!("SET fill:{at} {}", "x".repeat(1_000))));
    client.read_all();
}

/// How often a command is in a request of this many bytes; `MULTI` and its effects on a limit of 16 MiB.
const REQUEST_BYTES: usize = 64 << 10;
const TOGETHER_MAX: usize = 200;

/// SCAN, XINFO STREAM FULL and CLIENT LIST made their replies before anybody was asked for the memory.
#[test]
#[ignore = "minutes: cargo test --profile ci -p server --test amplification -- --ignored --test-threads 1"]
fn no_command_of_the_table_makes_the_server_hold_more_than_five_quarters_of_the_limit_of_memory() {
    const N: usize = 10_000;
    let only = std::env::var("EVENKEEL_AMPLIFICATION").unwrap_or_default();
    let (_runs, evenkeel, started) = start(4 << 10);
    load_table(evenkeel.port, N);
    let most = most(started);
    let mut wrong = Vec::new();
    let runs = |row: &table::Row| row.place != "none" && row.name.starts_with(&only);
    for table::Row { name, changes, rest: text, .. } in table::rows().into_iter().filter(runs) {
        let words_of_it = sent(vec![table::words(text, 0..N, N)]).remove(0);
        let bytes: usize = words_of_it.iter().map(|word| word.len() + 8).sum();
        let count = (REQUEST_BYTES / bytes).clamp(1, TOGETHER_MAX);
        let peak = peak_of(evenkeel.port, name, std::slice::from_ref(&words_of_it), most);
        let of_many = peak_of(evenkeel.port, name, &together(vec![words_of_it; count]), most);
        if peak.max(of_many) > most {
            wrong.push(format!("{name}: {} KiB, {count} of them {} KiB", peak >> 10, of_many >> 10));
        }
        if changes {
            let mut client = Client::open(evenkeel.port);
            client.send(&sent(table::renewing(text)));
            client.read_all();
        }
    }
    assert!(wrong.is_empty(), "of {} KiB: {wrong:#?}", most >> 10);
}

#[test]
#[ignore = "seconds: cargo test --profile ci -p server --test amplification -- --ignored --test-threads 1"]
fn messages_to_subscribers_that_do_not_read_stay_within_the_limit_of_memory() {
    let (_runs, evenkeel, started) = start(small(EngineKind::Log).leaf_bytes);
    for bytes in [100, 900, 3_000] {
        let mut listeners: Vec<Client> = (0..200).map(|_| Client::open(evenkeel.port)).collect();
        for listener in &mut listeners {
            listener.send(&[words("SUBSCRIBE ch")]);
            listener.0.read_exact(&mut [0; 16]).expect("a confirmation");
        }
        PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut publisher = Client::open(evenkeel.port);
        let payload = "x".repeat(bytes);
        publisher.send(&many(2_000, |_| format!("PUBLISH ch {payload}")));
        publisher.read_all();
        let (peak, most) =
            (PEAK.load(Ordering::Relaxed), started + LIMIT / 4 * 5 + 2_000 * (bytes + 200) * 2);
        println!("{bytes}: {} KiB of {}", peak >> 10, most >> 10);
        assert!(peak <= most, "{bytes}: {} KiB of {}", peak >> 10, most >> 10);
    }
}
