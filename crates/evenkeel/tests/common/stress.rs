//! Clients that send pipelines of held, unheld and half requests, wait, and leave in the middle of anything, by a seed: none of them
//! may be left without an answer, and nothing of them may stay.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use resp::Value;

use crate::common::{PATIENCE, Server, eventually};

const CLIENTS: u64 = 8;

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % bound
    }
}

/// Runs a server with `connector` and the clients on it for `time`. `EVENKEEL_STRESS_SEED` repeats what a seed makes them do.
pub(crate) fn run(connector: &str, time: Duration) {
    let given = std::env::var("EVENKEEL_STRESS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) << 20 | time.as_secs());
    let context = format!("{connector}, EVENKEEL_STRESS_SEED={seed}");
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[&format!("--connector={connector}"), "--loops=2"]);
    let (end, lives, replies) = (Instant::now() + time, AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| move_about(&server, seed, &done));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|index| {
                let (server, context, lives, replies) = (&server, &context, &lives, &replies);
                scope.spawn(move || {
                    let mut random = Random(seed ^ (index << 48));
                    while Instant::now() < end {
                        replies.fetch_add(live(server, &mut random, context), Ordering::Relaxed);
                        lives.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let failed = clients.into_iter().filter_map(|client| client.join().err()).count();
        done.store(true, Ordering::Relaxed);
        mover.join().expect("moves go on");
        assert_eq!(failed, 0, "{context}: clients that failed");
    });
    assert!(lives.load(Ordering::Relaxed) >= CLIENTS && replies.load(Ordering::Relaxed) > 0, "{context}");
    let nothing_stays = || {
        let text = info(&server);
        let field = |name: &str| {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            lines
                .filter(|(key, _)| key.ends_with(name))
                .map(|(_, value)| value.trim().parse::<u64>().expect("a number"))
                .sum::<u64>()
        };
        // The one that asks keeps its buffers while it does.
        field("connected_clients") == 1
            && field("blocked_clients") == 0
            && field("_held_connections") == 0
            && field("used_memory_buffers") < 64 << 10
    };
    eventually(
        &format!("{context}: nothing stays of {} lives", lives.load(Ordering::Relaxed)),
        nothing_stays,
    );
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success(), "{context}");
}

fn info(server: &Server) -> String {
    let Value::Bulk(info) = server.call(&["INFO", "everything"]) else { panic!("a text") };
    String::from_utf8(info).expect("text")
}

/// Has connections change loops all the time; refused where they cannot.
fn move_about(server: &Server, seed: u64, done: &AtomicBool) {
    let mut random = Random(!seed);
    while !done.load(Ordering::Relaxed) {
        let Value::Bulk(list) = server.call(&["CLIENT", "LIST"]) else { panic!("a text") };
        let list = String::from_utf8(list).expect("text");
        let ids: Vec<&str> =
            list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
        let id = ids[random.below(ids.len() as u64) as usize];
        server.call(&["CLIENT", "MOVE", id, &random.below(2).to_string()]);
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A pipeline, and the bytes that answer it.
#[derive(Default)]
struct Pipeline {
    requests: Vec<u8>,
    replies: Vec<u8>,
    count: u64,
}

impl Pipeline {
    fn add(&mut self, words: &[&str], reply: &str) {
        resp::encode_command(&mut self.requests, words);
        self.replies.extend_from_slice(reply.as_bytes());
        self.count += 1;
    }

    fn random(random: &mut Random) -> Self {
        let mut pipeline = Self::default();
        for _ in 0..=random.below(12) {
            let longest = if random.below(4) == 0 { 15_000 } else { 60 };
            let text = "t".repeat(1 + random.below(longest) as usize);
            let key = format!("key:{}", random.below(50));
            match random.below(8) {
                0..=2 => pipeline.add(&["SET", &key, &text], "+OK\r\n"),
                3..=4 => pipeline.add(&["ECHO", &text], &format!("${}\r\n{text}\r\n", text.len())),
                5 => {
                    pipeline.add(&["MULTI"], "+OK\r\n");
                    pipeline.add(&["SET", &key, &text], "+QUEUED\r\n");
                    pipeline.add(&["EXEC"], "*1\r\n+OK\r\n");
                }
                6 => pipeline.add(&["WAIT", "1", &(1 + random.below(4)).to_string()], ":0\r\n"),
                _ => pipeline.add(&["DEBUG", "SLEEP", "0.001"], "+OK\r\n"),
            }
        }
        pipeline
    }
}

/// One connection from its beginning to its end; how many replies came.
fn live(server: &Server, random: &mut Random, context: &str) -> u64 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    let mut count = 0;
    for _ in 0..random.below(6) {
        let mut pipeline = Pipeline::random(random);
        let replies = std::mem::take(&mut pipeline.replies);
        // The rest of a request comes once the replies to those before it have.
        let last = format!("{}", random.below(1_000_000));
        let before = pipeline.requests.len();
        pipeline.add(&["SET", "last", &last.repeat(1 + random.below(2_000) as usize)], "+OK\r\n");
        let cut = before + random.below((pipeline.requests.len() - before) as u64) as usize;
        stream.write_all(&pipeline.requests[..cut]).expect("sent");
        expect(&mut stream, &replies, context);
        stream.write_all(&pipeline.requests[cut..]).expect("sent");
        expect(&mut stream, b"+OK\r\n", context);
        count += pipeline.count;
    }
    leave(stream, random, context);
    count
}

fn expect(stream: &mut TcpStream, expected: &[u8], context: &str) {
    let mut came = vec![0; expected.len()];
    if let Err(error) = stream.read_exact(&mut came) {
        panic!("{context}: {error} in place of {} bytes", expected.len());
    }
    assert!(came == expected, "{context}: another reply");
}

/// Leaves in the middle of whatever.
fn leave(mut stream: TcpStream, random: &mut Random, context: &str) {
    let mut pipeline = Pipeline::random(random);
    let how = random.below(5);
    if how == 4 {
        // Who closes its side alone gets all that is due; a wait would end with it.
        let mut due = Pipeline::default();
        (0..random.below(20)).for_each(|n| due.add(&["SET", "half", &n.to_string()], "+OK\r\n"));
        stream.write_all(&due.requests).expect("sent");
        stream.shutdown(Shutdown::Write).expect("half-closed");
        expect(&mut stream, &due.replies, context);
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0, "{context}");
        return;
    }
    if random.below(2) == 0 {
        pipeline.add(&["WAIT", "1", "0"], "");
        pipeline.add(&["SET", "behind", "x"], "");
    }
    let cut = random.below(pipeline.requests.len() as u64 + 1) as usize;
    let sent = if random.below(3) == 0 { cut } else { pipeline.requests.len() };
    stream.write_all(&pipeline.requests[..sent]).expect("sent");
    if random.below(2) == 0 {
        // What has come by now, if anything.
        stream.set_read_timeout(Some(Duration::from_millis(1 + random.below(5)))).expect("a socket option");
        let _ = stream.read(&mut [0; 100][..random.below(100) as usize]);
    }
    if how == 0 {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket option");
    } else if how == 1 {
        stream.shutdown(Shutdown::Write).expect("half-closed");
    }
}
