//! `evenkeel capture` and `evenkeel bench replay` as a user runs them: a real server, real load, a file, and other servers.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use capture::{Ending, HELD, decode};
use resp::Value as Reply;
use serde_json::Value;

use crate::common::{self, PATIENCE, Server, evenkeel, eventually, finished, receive};

/// Starts to capture `server` into `file`, and waits until it does.
fn captures(server: &Server, file: &Path, options: &[&str]) -> Child {
    let url = format!("redis://127.0.0.1:{}", server.port);
    let mut command = evenkeel();
    command.arg("capture").arg(file).args(["--url", &url]).args(options);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the capture begins", || std::fs::metadata(file).is_ok_and(|file| file.len() > 0));
    child
}

/// Ends a capture as Ctrl-C does; returns what it said.
fn stop(child: Child) -> String {
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a plain system call on our own child, which is not reaped yet.
    #[allow(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
    let sent = unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(sent, 0);
    ended(child)
}

fn ended(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn replayed(file: &Path, arguments: &[&str]) -> (i32, Value, String) {
    let mut command = evenkeel();
    let (status, text) = finished(command.args(["bench", "replay"]).arg(file).args(arguments).arg("--json"));
    let last = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{text}"));
    (status, serde_json::from_str(last).unwrap(), text)
}

fn loaded(server: &Server, arguments: &[&str]) {
    let url = format!("redis://127.0.0.1:{}", server.port);
    let (status, text) = finished(evenkeel().arg("bench").args(arguments).args(["--url", &url]));
    assert_eq!(status, 0, "{text}");
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends requests together on a new connection; returns how many replies came.
fn pipelined(server: &Server, requests: &str, replies: usize) -> TcpStream {
    let mut stream = connect(server);
    stream.write_all(requests.as_bytes()).unwrap();
    for _ in 0..replies {
        receive(&mut stream).unwrap();
    }
    stream
}

#[test]
fn what_was_captured_is_replayed_in_order_against_evenkeel_and_redis() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--loops", "2"]);
    server.call(&["SET", "before", "1"]);
    let file = dir.path().join("traffic");
    let child = captures(&server, &file, &[]);
    let _one = pipelined(
        &server,
        "SET a 12345\r\nGET a\r\nINCR a\r\nGET none\r\nMGET a none a\r\nGET before\r\n",
        6,
    );
    let _two = pipelined(
        &server,
        "SELECT 2\r\nMULTI\r\nSET b 1 EX 1000\r\nINCRBY b 5\r\nEXEC\r\nINCR notnumber0123456789x\r\nCLIENT ID\r\n",
        7,
    );
    let said = stop(child);
    assert!(said.starts_with("13 requests in "), "{said}");
    assert!(said.contains(" 0 more dropped"), "{said}");

    let bytes = std::fs::read(&file).unwrap();
    let capture = decode(&bytes).unwrap();
    assert_eq!((capture.stopped, capture.end.unwrap().ending), (None, Ending::Stopped));
    let records =
        || capture.turns.iter().flat_map(|turn| turn.records().map(move |(_, record)| (turn, record)));
    assert!(records().any(|(_, record)| record.flags & HELD != 0), "writes wait for the disk");
    let mut held = records().filter(|(_, record)| record.flags & HELD != 0);
    assert!(held.all(|(turn, r)| turn.latency_ns(&r).is_some_and(|ns| ns > r.written_ns)), "and are timed");

    for target in [&["--server", "evenkeel"][..], &["--server", "redis"]] {
        for speed in ["1", "max"] {
            let (status, value, text) = replayed(&file, &[target, &["--speed", speed]].concat());
            assert_eq!(status, 0, "{text}");
            assert_eq!(
                (value["experiment"].as_str(), value["valid"].as_bool()),
                (Some("replay"), Some(true))
            );
            assert_eq!((value["requests"].as_u64(), value["connections"].as_u64()), (Some(11), Some(2)));
            assert_eq!(value["skipped"], serde_json::json!({ "client|id": 1 }));
            // GET before found nothing on a fresh server.
            assert_eq!((value["hits"].as_u64(), value["misses"].as_u64()), (Some(3), Some(3)), "{text}");
            let recorded = &value["recorded"];
            assert_eq!((recorded["hits"].as_u64(), recorded["misses"].as_u64()), (Some(4), Some(2)));
            for latency in [&value["latency_us"], &recorded["latency_us"]] {
                assert!(latency["p50"].as_f64().unwrap() > 0.0, "{text}");
            }
            assert!(value["operations_per_second"].as_f64().unwrap() > 0.0);
            assert_eq!((value["errors"].as_u64(), value["lost"].as_u64()), (Some(0), Some(0)));
        }
    }
}

#[test]
fn keys_and_values_that_were_captured_in_full_arrive_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory"]);
    let file = dir.path().join("traffic");
    let child = captures(&server, &file, &["--keys", "plain", "--values"]);
    server.call(&["SET", "name", "value"]);
    server.call(&["APPEND", "name", " and more"]);
    stop(child);
    let other = Server::start(&dir.path().join("other"), &["--engine", "memory"]);
    let url = format!("redis://127.0.0.1:{}", other.port);
    let (status, _, text) = replayed(&file, &["--url", &url, "--speed", "10"]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(other.call(&["GET", "name"]), common::bulk("value and more"));
}

#[test]
fn load_is_captured_whole_and_replayed_at_full_speed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory", "--loops", "2"]);
    let file = dir.path().join("traffic");
    let child = captures(&server, &file, &[]);
    // Writes alone: at full speed nothing is said of the order of requests on different connections.
    let small =
        ["remote-test", "--clients", "20", "--requests", "40000", "--iterations", "1", "--pipeline", "8"];
    loaded(&server, &[&small[..], &["--operations", "write"]].concat());
    let said = stop(child);
    let count: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((40_000..40_100).contains(&count) && said.contains(" 0 more dropped"), "{said}");
    let other = Server::start(&dir.path().join("other"), &["--engine", "memory", "--loops", "2"]);
    let url = format!("redis://127.0.0.1:{}", other.port);
    let (status, value, text) = replayed(&file, &["--url", &url, "--speed", "max"]);
    assert_eq!((status, value["connections"].as_u64()), (0, Some(20)), "{text}");
    assert_eq!(value["requests"].as_u64(), Some(40_000));
    assert_eq!(other.call(&["DBSIZE"]), Reply::Integer(40_000), "each key is one, as it was");
}

#[test]
fn capture_ends_by_its_time_and_its_size_and_leaves_no_file_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory"]);
    let file = dir.path().join("time");
    let said = ended(captures(&server, &file, &["--for", "300ms"]));
    assert!(said.starts_with("0 requests in "), "{said}");
    let url = format!("redis://127.0.0.1:{}", server.port);
    let (status, text) = finished(evenkeel().arg("capture").arg(&file).args(["--url", &url, "--for", "1s"]));
    assert!(status == 1 && text.contains("exists: name another file"), "{text}");
    let file = dir.path().join("size");
    let child = captures(&server, &file, &["--bytes-max", "200KiB"]);
    loaded(&server, &["remote-test", "--clients", "4", "--requests", "10000", "--iterations", "1"]);
    let said = ended(child);
    assert!(said.contains("which filled the file"), "{said}");
    assert!(std::fs::metadata(&file).unwrap().len() <= 200 << 10);
    let (status, text) = finished(
        evenkeel().arg("capture").arg(dir.path().join("none")).args(["--url", "redis://127.0.0.1:1"]),
    );
    assert!(status == 1 && text.contains("no server answers at redis://127.0.0.1:1"), "{text}");
    let (status, text) = finished(
        evenkeel().arg("capture").arg(dir.path().join("none")).args(["--url", "memcached://127.0.0.1"]),
    );
    assert!(status == 1 && text.contains("does not speak the Redis protocol"), "{text}");
}

#[test]
fn client_that_captures_and_does_not_read_delays_nobody_and_is_told_what_it_missed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory", "--loops", "2"]);
    let mut lazy = connect(&server);
    lazy.write_all(b"CAPTURE START VALUES\r\n").unwrap();
    let header = receive(&mut lazy).unwrap();
    assert!(matches!(header, Reply::Bulk(_)));
    let Reply::Error(refusal) = server.call(&["CAPTURE", "START"]) else { panic!("a second one") };
    assert!(refusal.starts_with(b"ERR client "), "{}", String::from_utf8_lossy(&refusal));
    let large =
        ["remote-test", "--clients", "4", "--requests", "1000", "--iterations", "1", "--operations", "write"];
    loaded(&server, &[&large[..], &["--value-size", "60000"]].concat());
    assert_eq!(server.call(&["CAPTURE", "STOP"]), common::ok());
    let (mut stream, mut input, mut ended) = (lazy, Vec::new(), None);
    let mut piece = vec![0; 1 << 20];
    while ended.is_none() {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "it was cut");
        input.extend_from_slice(&piece[..read]);
        while let Some((Reply::Bulk(chunk), length)) = resp::decode_value(&input).unwrap() {
            input.drain(..length);
            ended = capture::decode_end_chunk(&chunk).or(ended);
        }
    }
    let end = ended.unwrap();
    assert!(end.dropped > 0 && end.records > 0, "{end:?}");
    assert!((1_000..1_100).contains(&(end.records + end.dropped)), "{end:?}");
}

#[test]
fn end_of_the_connection_ends_the_capture() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory"]);
    let mut child = captures(&server, &dir.path().join("traffic"), &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut again = connect(&server);
    eventually("another can begin", || {
        again.write_all(b"CAPTURE START\r\n").unwrap();
        matches!(receive(&mut again).unwrap(), Reply::Bulk(_))
    });
    assert_eq!(server.call(&["PING"]), Reply::Simple(b"PONG".to_vec()));
}

#[test]
fn file_that_was_cut_is_replayed_up_to_there_and_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory"]);
    let file = dir.path().join("traffic");
    let child = captures(&server, &file, &[]);
    server.call(&["SET", "k", "v"]);
    stop(child);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let (status, value, text) = replayed(&file, &["--engine", "memory"]);
    assert_eq!((status, value["requests"].as_u64()), (0, Some(1)), "{text}");
    assert!(text.contains("a chunk is cut at byte"), "{text}");
    std::fs::write(&file, "no capture").unwrap();
    let mut command = evenkeel();
    let (status, text) = finished(command.args(["bench", "replay"]).arg(&file));
    assert!(status == 1 && text.contains("not a capture"), "{text}");
}

/// The disk is full: stood in for by the limit on the size of a file, beyond which a write fails.
#[test]
fn file_that_cannot_grow_keeps_what_came_before_and_the_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--engine", "memory"]);
    let file = dir.path().join("traffic");
    let script = format!(
        "trap '' XFSZ; ulimit -f 200; exec {} capture {} --url redis://127.0.0.1:{} --values",
        env!("CARGO_BIN_EXE_evenkeel"),
        file.display(),
        server.port
    );
    let mut shell = Command::new("bash");
    let child = shell.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the capture begins", || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    loaded(&server, &["remote-test", "--clients", "2", "--requests", "1000", "--iterations", "1"]);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("it has everything recorded before"), "{said}");
    let (status, value, text) = replayed(&file, &["--engine", "memory", "--speed", "max"]);
    assert_eq!(status, 0, "{text}");
    assert!(value["requests"].as_u64() > Some(50) && text.contains("a chunk is cut at byte"), "{text}");
    assert_eq!(server.call(&["CAPTURE", "STOP"]), Reply::Error(b"ERR nothing is captured".to_vec()));
}
