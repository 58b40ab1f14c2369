//! Clients that mean no good, or know no better, against the shipped binary: others are served, memory stays in bounds.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resp::Value;

use crate::common::{
    Server, bulk, call, crowd::Crowd, eventually, ok, receive, resident_bytes, resident_peak_bytes,
};

/// Limits so small that tests reach them.
const SMALL: [&str; 4] = [
    "--value-max=1MiB",
    "--connections-input-max=2MiB",
    "--connections-output-max=4MiB",
    "--transaction-max=2MiB",
];

fn start(arguments: &[&str]) -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[&["--durability=never", "--loops=2"], arguments].concat());
    (dir, server)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    resp::encode_command(&mut bytes, words);
    bytes
}

/// A field of INFO, as a number.
fn field(server: &Server, name: &str) -> u64 {
    let Value::Bulk(info) = server.call(&["info", "everything"]) else { panic!("INFO is text") };
    let info = String::from_utf8(info).expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect(name);
    line.parse().expect("a number")
}

/// What is left to read, until the end.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn clients_that_send_a_byte_at_a_time_are_answered_and_hold_up_nobody() {
    let (_dir, server) = start(&[]);
    let mut slow: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    slow.iter().for_each(|stream| stream.set_nodelay(true).expect("a socket option"));
    let mut fast = connect(&server);
    for byte in request(&["SET", "slow", "value"]) {
        slow.iter_mut().for_each(|stream| stream.write_all(&[byte]).expect("sent"));
        fast.write_all(&request(&["PING"])).expect("sent");
        assert_eq!(receive(&mut fast).expect("a reply"), pong());
    }
    for stream in &mut slow {
        assert_eq!(receive(stream).expect("a reply"), ok());
    }
}

#[test]
fn connections_that_end_in_the_middle_of_a_request_are_forgotten() {
    let (_dir, server) = start(&[]);
    let whole = request(&["SET", "half", "value"]);
    for cut in 0..whole.len() {
        for _ in 0..5 {
            let mut stream = connect(&server);
            stream.write_all(&whole[..cut]).expect("sent");
        }
    }
    eventually("ended connections are forgotten", || field(&server, "connected_clients") == 1);
    assert_eq!(server.call(&["EXISTS", "half"]), Value::Integer(0));
}

#[test]
fn clients_that_never_read_are_not_read_either_and_others_are_served() {
    let (_dir, server) = start(&SMALL);
    assert_eq!(server.call(&["SET", "big", &"x".repeat(1_000_000)]), ok());
    let idle_bytes = field(&server, "used_memory_rss");
    let mut deaf: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    let gets = request(&["GET", "big"]).repeat(100);
    deaf.iter_mut().for_each(|stream| stream.write_all(&gets).expect("sent"));
    for n in 0..100 {
        assert_eq!(server.call(&["SET", &format!("key:{n}"), "v"]), ok());
    }
    let grown = field(&server, "used_memory_rss").saturating_sub(idle_bytes);
    assert!(grown < 20 * (6 << 20), "{grown} bytes for 2 GiB of replies that nobody reads");
    let mut all = vec![0; 1_000_000 + 12];
    deaf[0].read_exact(&mut all).expect("the first reply is still there");
    assert!(all.starts_with(b"$1000000\r\nxxx"));
}

/// Each reader of a large value had a copy of it in its replies: 40 slow ones held 40 MB.
#[test]
fn slow_readers_of_one_large_value_share_it_and_each_gets_it_whole() {
    for connector in ["--connector=epoll", "--connector=threads"] {
        let (_dir, server) = start(&[connector]);
        let value: String = (0..).flat_map(|n: u32| char::from_digit(n % 36, 36)).take(1_000_000).collect();
        assert_eq!(server.call(&["SET", "big", &value]), ok());
        let before = (field(&server, "used_memory"), field(&server, "used_memory_rss"));
        let mut slow: Vec<TcpStream> = (0..40).map(|_| connect(&server)).collect();
        let gets = [request(&["GET", "big"]), request(&["PING"])].concat().repeat(20);
        slow.iter_mut().for_each(|stream| stream.write_all(&gets).expect("sent"));
        eventually("all wait for their reader", || {
            let Value::Bulk(list) = server.call(&["CLIENT", "LIST"]) else { panic!("text") };
            String::from_utf8_lossy(&list).matches(" oll=1 ").count() == 40
        });
        let after = (field(&server, "used_memory"), field(&server, "used_memory_rss"));
        assert!(after.0 < before.0 + (4 << 20), "{connector}: {before:?} became {after:?}");
        assert!(after.1 < before.1 + (16 << 20), "{connector}: {before:?} became {after:?}");
        assert_eq!(server.call(&["SET", "big", "small"]), ok(), "readers keep what they asked for");
        let whole = format!("$1000000\r\n{value}\r\n+PONG\r\n").into_bytes();
        let mut all = vec![0; whole.len()];
        for stream in &mut slow[..5] {
            stream.read_exact(&mut all).expect("the reply");
            assert!(all == whole, "the first reply is another");
        }
        drop(slow);
        let held = || field(&server, "used_memory").saturating_sub(field(&server, "memory_process"));
        eventually("nobody holds it", || held() < 500_000);
    }
}

#[test]
fn subscribers_that_never_read_are_cut_at_their_limit_and_the_publisher_goes_on() {
    ["--connector=epoll", "--connector=threads"].into_iter().for_each(publish_to_a_deaf_subscriber);
}

fn publish_to_a_deaf_subscriber(connector: &str) {
    let (_dir, server) = start(&[&SMALL[..], &[connector]].concat());
    let (mut deaf, mut reader) = (connect(&server), connect(&server));
    for stream in [&mut deaf, &mut reader] {
        stream.write_all(&request(&["SUBSCRIBE", "c"])).expect("sent");
        assert!(matches!(receive(stream).expect("a reply"), Value::Array(_)));
    }
    let read_bytes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read_bytes);
    let reads = std::thread::spawn(move || {
        let mut chunk = vec![0; 1 << 20];
        while let Ok(read @ 1..) = reader.read(&mut chunk) {
            count.fetch_add(read, Ordering::Relaxed);
        }
    });
    let payload = "m".repeat(256 << 10);
    let mut publisher = connect(&server);
    let mut sent = 0;
    eventually("the deaf subscriber is cut", || {
        publisher.write_all(&request(&["PUBLISH", "c", &payload])).expect("sent");
        sent += 1;
        let is_alone = receive(&mut publisher).expect("a reply") == Value::Integer(1);
        // One that falls behind is cut as well, and has a right to nothing.
        eventually("who reads misses nothing", || read_bytes.load(Ordering::Relaxed) > sent * payload.len());
        is_alone
    });
    assert_eq!(field(&server, "pubsub_clients"), 1);
    let Value::Integer(killed) = server.call(&["CLIENT", "KILL", "TYPE", "pubsub"]) else {
        panic!("a count")
    };
    assert_eq!(killed, 1);
    reads.join().expect("no panic");
}

#[test]
fn headers_of_large_values_without_a_body_take_no_memory() {
    let (_dir, server) = start(&[]);
    let idle_bytes = field(&server, "used_memory_rss");
    let mut liars: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    for stream in &mut liars {
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108864\r\n").expect("sent");
    }
    eventually("all headers came", || field(&server, "connected_clients") == 201);
    let grown = field(&server, "used_memory_rss").saturating_sub(idle_bytes);
    assert!(grown < 32 << 20, "{grown} bytes for headers alone");
    let mut stream = connect(&server);
    stream.write_all(b"*2\r\n$3\r\nGET\r\n$536870912\r\n").expect("sent");
    let refusal = "-ERR Protocol error: invalid bulk length: the longest value is value.max (67108864 B)\r\n";
    assert_eq!(rest(&mut stream), refusal);
    let mut stream = connect(&server);
    stream.write_all(b"*2147483648\r\n").expect("sent");
    assert_eq!(rest(&mut stream), "-ERR Protocol error: invalid multibulk length\r\n");
}

#[test]
fn floods_of_arguments_end_at_the_limit_of_input() {
    let (_dir, server) = start(&SMALL);
    let mut stream = connect(&server);
    let mut flood = b"*1000000\r\n$4\r\nMGET\r\n".to_vec();
    flood.extend_from_slice(&b"$1\r\nk\r\n".repeat(600_000));
    // The server may close before it took all.
    let _ = stream.write_all(&flood);
    assert!(!rest(&mut stream).starts_with('*'), "more than connections.input_max was taken");
    assert_eq!(server.call(&["PING"]), pong());
    // Within the limit each argument is answered.
    let mut words = vec!["MGET"];
    words.extend(std::iter::repeat_n("k", 2_000));
    let Value::Array(replies) = server.call(&words) else { panic!("an array") };
    assert_eq!(replies.len(), 2_000);
}

#[test]
fn little_is_read_before_a_password() {
    let (_dir, server) = start(&["--requirepass=secret"]);
    for (bytes, refusal) in [
        (&b"*11\r\n"[..], "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
    ] {
        let mut stream = connect(&server);
        stream.write_all(bytes).expect("sent");
        assert_eq!(rest(&mut stream), refusal);
    }
    let mut stream = connect(&server);
    let _ = stream.write_all(&b"x".repeat(1 << 20));
    let text = rest(&mut stream);
    assert!(text.is_empty() || text.starts_with("-ERR Protocol error: too big inline request"), "{text}");
    let mut stream = connect(&server);
    stream.write_all(&request(&["GET", "k"]).repeat(10_000)).expect("sent");
    let text = rest(&mut stream);
    assert!(
        text.len() < 9_000 && text.ends_with("-ERR more than 8192 B of replies before AUTH\r\n"),
        "{text}"
    );
}

#[test]
fn one_connection_too_many_is_told_so_at_once() {
    let (_dir, server) = start(&["--connections-max=10"]);
    let held: Vec<TcpStream> = (0..10).map(|_| connect(&server)).collect();
    let mut refused = connect(&server);
    assert_eq!(rest(&mut refused), "-ERR max number of clients reached\r\n");
    drop(held);
    eventually("there is room again", || call(server.port, &["PING"]).is_ok_and(|reply| reply == pong()));
    assert!(field(&server, "rejected_connections") >= 1);
}

fn pong() -> Value {
    Value::Simple(b"PONG".to_vec())
}

#[test]
fn server_with_few_descriptors_keeps_some_for_its_files_and_refuses_the_rest() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::spawn_on(|port| {
        let mut command = std::process::Command::new("sh");
        let script =
            "ulimit -n 320; exec \"$0\" serve --loops 2 --durability never --dir \"$1\" --port \"$2\"";
        command.args(["-c", script, env!("CARGO_BIN_EXE_evenkeel")]).arg(dir.path()).arg(port.to_string());
        command
    });
    let room = field(&server, "maxclients");
    assert!((10..200).contains(&room), "{room} connections at a limit of 320 descriptors");
    let mut early = connect(&server);
    early.write_all(&request(&["PING"])).expect("sent");
    assert_eq!(receive(&mut early).expect("a reply"), pong());
    let mut late: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    for _ in 0..100 {
        early.write_all(&request(&["SET", "k", "v"])).expect("sent");
        assert_eq!(receive(&mut early).expect("a reply"), ok());
    }
    let mut last = late.pop().expect("two hundred");
    assert_eq!(rest(&mut last), "-ERR max number of clients reached\r\n");
    drop(late);
    eventually("accepting goes on", || {
        call(server.port, &["GET", "k"]).is_ok_and(|reply| reply == bulk("v"))
    });
}

#[test]
fn payloads_that_dump_did_not_write_are_refused_whatever_their_lengths_say() {
    let (_dir, server) = start(&SMALL);
    assert_eq!(server.call(&["SET", "k", "a value of some length"]), ok());
    let Value::Bulk(payload) = server.call(&["DUMP", "k"]) else { panic!("a payload") };
    let mut stream = connect(&server);
    let mut restore = |payload: &[u8]| {
        let mut bytes = Vec::new();
        resp::encode_command(&mut bytes, &[&b"RESTORE"[..], b"r", b"0", payload, b"REPLACE"]);
        stream.write_all(&bytes).expect("sent");
        receive(&mut stream).expect("a reply")
    };
    assert_eq!(restore(&payload), ok());
    // What redis-server 7.0 writes for SET k hello: the kind, a length, the value, version 10 and its own checksum.
    let of_redis = b"\x00\x05hello\n\x00cr\xdfve4 \n";
    let lengths = [0x80u8, 0x81, 0xff, 0xc3].map(|head| [&[0, head], &[0xff; 9][..]].concat());
    assert_eq!(restore(of_redis), ok());
    assert_eq!(server.call(&["GET", "r"]), bulk("hello"));
    assert_eq!(restore(&payload), ok());
    let cuts = (0..payload.len()).map(|cut| payload[..cut].to_vec());
    let flips = (0..payload.len() * 8).map(|bit| {
        let mut damaged = payload.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        damaged
    });
    for crafted in cuts.chain(flips).chain(lengths).chain([payload.repeat(2)]) {
        let Value::Error(text) = restore(&crafted) else { panic!("taken: {crafted:02x?}") };
        // With its checksum behind it a payload has the checksum of nothing: twice the same passes for one.
        let expected = [&b"ERR DUMP payload version or checksum are wrong"[..], b"ERR Bad data format"];
        assert!(expected.contains(&text.as_slice()), "{}", String::from_utf8_lossy(&text));
    }
    assert_eq!(server.call(&["GET", "r"]), bulk("a value of some length"));
}

/// What connections hold was reported to nobody; then it had the writes of others refused.
#[test]
fn buffers_of_clients_that_never_read_are_bounded_and_writers_are_served() {
    for connector in CONNECTORS {
        let (_dir, server) = start(&[&SMALL[..], &["--memory-limit=24MiB", connector]].concat());
        // small enough to be copied for each reader
        assert_eq!(server.call(&["SET", "k16", &"x".repeat(60_000)]), ok());
        let before = field(&server, "used_memory_rss");
        let mut deaf: Vec<TcpStream> = (0..40).map(|_| connect(&server)).collect();
        let gets = request(&[&["MGET"][..], &["k16"; 16]].concat()).repeat(20);
        // They may be closed before they have sent all.
        deaf.iter_mut().for_each(|stream| drop(stream.write_all(&gets)));
        eventually("those that hold most are closed", || field(&server, "clients_cut_for_memory") > 0);
        for n in 0..100 {
            assert_eq!(server.call(&["SET", &format!("key:{n}"), "v"]), ok(), "{connector}");
        }
        let grown = field(&server, "used_memory_rss").saturating_sub(before);
        assert!(grown < 30 << 20, "{connector}: {grown} bytes");
        eventually("they are within their budget", || field(&server, "used_memory_buffers") <= 12 << 20);
    }
}

const CONNECTORS: [&str; 3] = ["--connector=epoll", "--connector=uring", "--connector=threads"];

/// A field of INFO, of a server with the password `secret`.
fn guarded_field(server: &Server, name: &str) -> u64 {
    let mut stream = connect(server);
    stream
        .write_all(&[request(&["AUTH", "secret"]), request(&["INFO", "everything"])].concat())
        .expect("sent");
    assert_eq!(receive(&mut stream).expect("a reply"), ok());
    let Value::Bulk(info) = receive(&mut stream).expect("a reply") else { panic!("INFO is text") };
    let info = String::from_utf8(info).expect("text");
    let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).expect(name);
    line.parse().expect("a number")
}

/// 3,000 clients without a password that looped HELLO and never read took 3.5 GB, and from 300 on those with it were refused.
#[test]
fn clients_that_do_not_authenticate_are_closed_and_those_who_do_are_served() {
    for connector in CONNECTORS {
        let limits =
            ["--requirepass=secret", "--memory-limit=64MiB", "--connections-auth-timeout=1s", connector];
        let (_dir, server) = start(&limits);
        let mut friend = connect(&server);
        friend.write_all(&request(&["AUTH", "secret"])).expect("sent");
        assert_eq!(receive(&mut friend).expect("a reply"), ok());
        let hello = request(&["HELLO", "3"]).repeat(500);
        let mut strangers: Vec<TcpStream> = (0..100).map(|_| connect(&server)).collect();
        // They may be closed before they have sent all.
        strangers.iter_mut().for_each(|stream| drop(stream.write_all(&hello)));
        let silent = connect(&server);
        for n in 0..100 {
            friend.write_all(&request(&["SET", &format!("key:{n}"), "v"])).expect("sent");
            assert_eq!(receive(&mut friend).expect("a reply"), ok());
        }
        // First the counts: a connection that no loop or worker has taken up yet is no client.
        for (name, count) in [("unauthenticated_timeouts", 1), ("unauthenticated_cut_for_output", 100)] {
            eventually(&format!("{connector}: {name} is {count}"), || guarded_field(&server, name) == count);
        }
        eventually("all strangers are gone", || guarded_field(&server, "connected_clients") == 2);
        // Who asks was one itself when its request came.
        let held = guarded_field(&server, "clients_memory_unauthenticated");
        assert!(held < 64 << 10, "{connector}: {held} bytes");
        assert!(rest(&mut { silent }).starts_with("-ERR no AUTH within connections.auth_timeout"));
        friend.write_all(&request(&["PING"])).expect("sent");
        assert_eq!(receive(&mut friend).expect("a reply"), pong(), "who has authenticated stays");
    }
}

/// Each may send a part of a request before AUTH: there was no bound for all of them together.
#[test]
fn clients_that_do_not_authenticate_share_a_budget_and_those_that_hold_most_are_closed() {
    for connector in CONNECTORS {
        let (_dir, server) =
            start(&["--requirepass=secret", "--connections-unauthenticated-max=2MiB", connector]);
        let half = b"*10\r\n".iter().copied().chain(b"$16000\r\n".iter().copied()).chain([b'x'; 15_000]);
        let half: Vec<u8> = half.collect();
        let mut greedy: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
        greedy.iter_mut().for_each(|stream| drop(stream.write_all(&half)));
        let mut modest = connect(&server);
        eventually("they are within their budget", || {
            guarded_field(&server, "unauthenticated_cut_for_memory") > 0
                && guarded_field(&server, "clients_memory_unauthenticated") <= 2 << 20
        });
        modest.write_all(&request(&["HELLO", "3", "AUTH", "default", "secret"])).expect("sent");
        assert!(matches!(receive(&mut modest).expect("a reply"), Value::Map(_)), "{connector}");
    }
}

/// 50 subscribers that never read and 139 messages of a megabyte took 7 GB, and all other writes were refused.
#[test]
fn subscribers_that_never_read_share_their_messages_and_are_closed_before_others_are_refused() {
    for connector in CONNECTORS {
        let (_dir, server) = start(&["--memory-limit=64MiB", connector]);
        let before = field(&server, "used_memory_rss");
        let mut deaf: Vec<TcpStream> = (0..30).map(|_| connect(&server)).collect();
        for stream in &mut deaf {
            stream.write_all(&request(&["SUBSCRIBE", "c"])).expect("sent");
            assert!(matches!(receive(stream).expect("a reply"), Value::Array(_)));
        }
        let (payload, mut publisher, mut writer) = ("m".repeat(1 << 20), connect(&server), connect(&server));
        for n in 0..80 {
            publisher.write_all(&request(&["PUBLISH", "c", &payload])).expect("sent");
            assert!(matches!(receive(&mut publisher).expect("a reply"), Value::Integer(_)));
            writer.write_all(&request(&["SET", &format!("key:{n}"), "v"])).expect("sent");
            assert_eq!(receive(&mut writer).expect("a reply"), ok(), "{connector}: message {n}");
        }
        let grown = field(&server, "used_memory_rss").saturating_sub(before);
        assert!(
            grown < 80 << 20,
            "{connector}: {grown} bytes for 80 messages of a megabyte to 30 subscribers"
        );
        eventually("they are closed", || field(&server, "pubsub_clients") == 0);
        assert_eq!(field(&server, "clients_cut_for_memory"), 30, "{connector}");
        assert_eq!(field(&server, "clients_memory_messages"), 0, "{connector}");
    }
}

/// 25 half-sent requests of 60 MB took 1.4 GB, and 20 clients with large values had the small ones of others refused.
#[test]
fn large_requests_wait_for_room_and_those_that_do_not_come_are_ended() {
    for connector in CONNECTORS {
        let limits = ["--memory-limit=64MiB", "--connections-room-wait-max=400ms", connector];
        let (_dir, server) = start(&limits);
        let before = field(&server, "used_memory_rss");
        let whole = request(&["SET", "large", &"x".repeat(12 << 20)]);
        let mut halves: Vec<TcpStream> = (0..10).map(|_| connect(&server)).collect();
        let senders: Vec<_> = halves
            .drain(..)
            .map(|mut stream| {
                let part = whole[..whole.len() - 1_000].to_vec();
                std::thread::spawn(move || {
                    let _ = stream.write_all(&part);
                    rest(&mut stream)
                })
            })
            .collect();
        eventually("some wait", || field(&server, "requests_waited_for_room") > 0);
        let (mut writer, mut large) = (connect(&server), connect(&server));
        for n in 0..50 {
            writer.write_all(&request(&["SET", &format!("key:{n}"), "v"])).expect("sent");
            assert_eq!(receive(&mut writer).expect("a reply"), ok(), "{connector}: small writes go on");
        }
        let grown = field(&server, "used_memory_rss").saturating_sub(before);
        assert!(grown < 64 << 20, "{connector}: {grown} bytes");
        // Who sends gets its turn when those who do not are gone.
        eventually("all others are told", || field(&server, "connected_clients") <= 3 + 2);
        large.write_all(&whole).expect("sent");
        assert_eq!(receive(&mut large).expect("a reply"), ok(), "{connector}");
        drop((writer, large));
        assert_eq!(server.call(&["STRLEN", "large"]), Value::Integer(12 << 20));
        let ended = field(&server, "requests_stalled") + field(&server, "requests_refused_for_room");
        assert!(ended >= 8, "{connector}: {ended} of ten were ended");
        drop(server);
        let texts: Vec<String> = senders.into_iter().map(|sender| sender.join().expect("no panic")).collect();
        assert!(texts.iter().filter(|text| text.starts_with("-OOM the re")).count() >= 8, "{texts:?}");
    }
}

/// The connection was reset while the client sent: it saw a broken pipe, never the reason.
#[test]
fn client_that_sends_too_long_a_value_comes_to_read_why() {
    for connector in CONNECTORS {
        let (_dir, server) = start(&["--value-max=1MiB", "--connections-input-max=4MiB", connector]);
        for too_long in [
            request(&["SET", "k", &"x".repeat(32 << 20)]),
            [&b"*3\r\n"[..], &request(&["SET", "k", &"x".repeat(16 << 20)])[4..]].concat(),
        ] {
            let mut stream = connect(&server);
            stream.write_all(&too_long).expect("all of it is taken");
            let refusal =
                "-ERR Protocol error: invalid bulk length: the longest value is value.max (1048576 B)\r\n";
            assert_eq!(rest(&mut stream), refusal, "{connector}");
        }
        let (_, log) = {
            server.signal(15);
            server.end()
        };
        assert!(log.contains("closed after a request that cannot be taken"), "{connector}: {log}");
    }
}

#[test]
fn log_tells_once_of_wrong_passwords_and_refused_clients() {
    let (_dir, server) = start(&["--requirepass=secret", "--connections-max=4"]);
    let mut held: Vec<TcpStream> = (0..4).map(|_| connect(&server)).collect();
    for stream in &mut held {
        stream.write_all(&request(&["AUTH", "a-guess"])).expect("sent");
        assert!(matches!(receive(stream).expect("a reply"), Value::Error(_)));
    }
    for _ in 0..3 {
        assert_eq!(rest(&mut connect(&server)), "-ERR max number of clients reached\r\n");
    }
    server.signal(15);
    let (_, log) = server.end();
    assert_eq!(log.matches("wrong password").count(), 1, "{log}");
    assert_eq!(log.matches("connections.max is reached").count(), 1, "{log}");
    assert!(!log.contains("a-guess") && !log.contains("secret"), "{log}");
}

/// What a large value needs was counted twice, as what its maker had reserved and in the journal, so that one of a quarter of the limit
/// waited for itself; and what has just left for the disk was taken for what never would.
#[test]
fn values_of_nearly_a_quarter_of_the_limit_are_stored_again_and_again() {
    let (_dir, server) = start(&["--memory-limit=64MiB"]);
    let value = "x".repeat(15 << 20);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (server, value) = (&server, &value);
            scope.spawn(move || {
                for round in 0..6 {
                    assert_eq!(server.call(&["SET", "large", value]), ok(), "writer {writer}, round {round}");
                }
            });
        }
    });
    let mut stream = connect(&server);
    for _ in 0..3 {
        // It is queued beside the input that it came in.
        let commands: [&[&str]; 3] = [&["MULTI"], &["SET", "large", &value[..8 << 20]], &["EXEC"]];
        stream.write_all(&commands.map(request).concat()).expect("sent");
        assert_eq!(receive(&mut stream).expect("a reply"), ok());
        receive(&mut stream).expect("QUEUED");
        assert_eq!(receive(&mut stream).expect("a reply"), Value::Array(vec![ok()]));
    }
}

/// Of six clients with values of an eighth of the limit each seventh command was refused for what others had read, sent or were sent. A string
/// that is on disk and was left out of what was read for EXISTS was as long as before it was last changed.
#[test]
fn few_clients_change_large_values_beside_each_other_and_none_is_refused() {
    let (_dir, server) = start(&["--memory-limit=64MiB"]);
    let value = "x".repeat(7 << 20);
    std::thread::scope(|scope| {
        for writer in 0..5 {
            let (server, value) = (&server, &value);
            scope.spawn(move || {
                let mut stream = connect(server);
                let mut call = |command: &[&str]| {
                    stream.write_all(&request(command)).expect("sent");
                    receive(&mut stream).expect("a reply")
                };
                let script =
                    "return redis.call('EXISTS', KEYS[1]) * 100000000 + redis.call('STRLEN', KEYS[1])";
                for round in 0..6_i64 {
                    let keys = [0, 1].map(|n| format!("large:{writer}:{}", (round + n) % 2));
                    let (len, other_len) = (7 << 20, if round == 0 { 0 } else { (7 << 20) + 1_002 });
                    assert_eq!(call(&["SET", &keys[0], value]), ok(), "writer {writer}, round {round}");
                    let longer = [
                        call(&["APPEND", &keys[0], &value[..1_000]]),
                        call(&["SETRANGE", &keys[0], &(len + 998).to_string(), "part"]),
                    ];
                    assert_eq!(longer, [Value::Integer(len + 1_000), Value::Integer(len + 1_002)]);
                    let other = [
                        call(&["STRLEN", &keys[1]]),
                        call(&["EVAL", script, "1", &keys[1]]),
                        call(&["GETRANGE", &keys[1], &(len + 998).to_string(), "-1"]),
                    ];
                    let (exists, end) = if round == 0 { (0, "") } else { (100_000_000, "part") };
                    let expected = [Value::Integer(other_len), Value::Integer(exists + other_len), bulk(end)];
                    assert_eq!(other, expected, "writer {writer}, round {round}");
                }
            });
        }
    });
    let peak_bytes = resident_peak_bytes(&server);
    // a quarter more than the limit and the process's own 24 MiB, and what a busy machine is late with
    assert!(peak_bytes < (64 + 16 + 24 + 16) << 20, "{peak_bytes} B were resident");
}

/// Each kind of greedy client had a limit for itself and none for all together: the kernel ended the server. Later all that they
/// sent while the first of them were being ended came to 1.6 times the limit, and large values got no room for a minute.
#[test]
fn crowd_of_greedy_clients_leaves_memory_within_its_bounds_and_writers_served() {
    for connector in ["epoll", "uring", "threads"] {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let clients = if connector == "threads" { 150 } else { 500 };
        let lasts = Duration::from_secs(1);
        let crowd =
            Crowd { connector, clients, memory_limit_mib: 128, value_mib: 24, is_value_taken: true, lasts };
        crowd.run(dir.path()).check(crowd);
    }
}

/// Sends `commands` in pipelines.
fn send_all(stream: &mut TcpStream, commands: &[Vec<String>]) {
    for part in commands.chunks(500) {
        let mut request = Vec::new();
        part.iter().for_each(|command| resp::encode_command(&mut request, command));
        stream.write_all(&request).expect("sent");
        part.iter().for_each(|_| assert!(!matches!(receive(stream), Ok(Value::Error(_)) | Err(_))));
    }
}

/// After a FLUSHALL of 5 M keys 783 MiB stayed with the process (Redis: 42): what was freed stayed in the allocator, and so did lists
/// of removals and emptied pages. MEMORY PURGE did nothing.
#[test]
fn memory_of_keys_that_are_gone_goes_back_to_the_system() {
    const COUNT: usize = 100_000;
    let (_dir, server) = start(&[]);
    let mut stream = connect(&server);
    let value = "v".repeat(300);
    let set = |n: usize, more: &[&str]| {
        let key = format!("key:{n}");
        ["set", &key, &value].iter().chain(more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let sets = |more: &[&str]| (0..COUNT).map(|n| set(n, more)).collect::<Vec<_>>();
    let dels = |keys: std::ops::Range<usize>| {
        keys.map(|n| vec!["del".to_owned(), format!("key:{n}")]).collect::<Vec<_>>()
    };
    // once, so that what the server keeps for itself is there
    send_all(&mut stream, &sets(&[])[..2_000]);
    assert_eq!(server.call(&["flushall"]), ok());
    let before = resident_bytes(&server);
    let expected = COUNT as u64 * 300;
    // Too little to be given back by itself: a twelfth of values that fill pages of memory alone.
    let large = "v".repeat(8_000);
    let large = (0..4_000).map(|n| ["set", &format!("key:{n}"), &large].map(str::to_owned).to_vec());
    send_all(&mut stream, &large.collect::<Vec<_>>());
    send_all(&mut stream, &dels(0..4_000 / 12));
    let full = resident_bytes(&server);
    assert_eq!(server.call(&["memory", "purge"]), ok());
    eventually("memory after MEMORY PURGE", || resident_bytes(&server) < full - (1 << 20));
    assert_eq!(server.call(&["flushall"]), ok());
    eventually("memory after the values", || resident_bytes(&server) < before + expected / 2);
    for way in ["FLUSHALL", "DEL", "expiry"] {
        send_all(&mut stream, &sets(if way == "expiry" { &["px", "1500"] } else { &[] }));
        let full = resident_bytes(&server);
        assert!(
            full > before + expected * 3 / 4 || way == "expiry",
            "{way}: {before} B grew to {full} B only"
        );
        match way {
            "FLUSHALL" => assert_eq!(server.call(&["flushall"]), ok()),
            "DEL" => send_all(&mut stream, &dels(0..COUNT)),
            _ => {}
        }
        eventually("an empty database", || server.call(&["dbsize"]) == Value::Integer(0));
        eventually(&format!("memory after {way}"), || resident_bytes(&server) < before + expected / 2);
    }
}
