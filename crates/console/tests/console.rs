//! The control plane from outside: real requests, real files.
#![allow(clippy::disallowed_methods, reason = "tests open sockets and files")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use console::{Console, FileOptions, Options, Sources};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(file: Option<FileOptions>) -> (Console, SocketAddr) {
    let listener = console::listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let (pages, lines) = (AtomicU64::new(0), AtomicU64::new(0));
    let count = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed) + 1;
    let page = move || format!("pages_total {}\n", count(&pages));
    let line = move || Some(format!("{{\"line\":{}}}", count(&lines)));
    let api = |path: &str| match path {
        "/api/x" => Some(Ok("{}".to_owned())),
        "/api/no" => Some(Err("{\"error\":1}".to_owned())),
        _ => None,
    };
    let sources = Sources {
        page: Box::new(page),
        console: "<title>page</title>",
        api: Box::new(api),
        line: Box::new(line),
        ready: Box::new(|| Ok(())),
    };
    let console =
        Console::start(Options { listener: Some(listener), hosts: vec!["x".to_owned()], file }, sources)
            .expect("it starts");
    let address = console.address().expect("it listens");
    (console, address)
}

/// Waits until `holds`.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Sends `request` and reads until the server closes.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

fn request(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

#[test]
fn json_is_served_where_there_is_some() {
    let (console, address) = start(None);
    let reply = exchange(address, &request("GET", "/api/x"));
    assert!(reply.contains("content-type: application/json") && reply.ends_with("\r\n\r\n{}"), "{reply}");
    let reply = exchange(address, &request("GET", "/api/no"));
    let (has_status, has_type) = (reply.starts_with("HTTP/1.1 404 "), reply.contains("application/json"));
    assert!(has_status && has_type && reply.ends_with("\r\n\r\n{\"error\":1}"), "{reply}");
    for (method, path, status) in [("GET", "/api/y", 404), ("GET", "/x", 404), ("POST", "/api/x", 405)] {
        let reply = exchange(address, &request(method, path));
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
    }
    console.stop();
}

#[test]
fn page_for_a_browser_may_ask_this_server_alone() {
    let (console, address) = start(None);
    let reply = exchange(address, &request("GET", "/console"));
    assert!(
        reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\n<title>page</title>"),
        "{reply}"
    );
    assert!(reply.contains("content-type: text/html; charset=utf-8\r\n"), "{reply}");
    assert!(reply.contains("content-security-policy: default-src 'none'; connect-src 'self'; "), "{reply}");
    assert!(exchange(address, &request("POST", "/console")).starts_with("HTTP/1.1 405 "));
    console.stop();
}

#[test]
fn page_is_made_anew_for_each_scrape() {
    let (console, address) = start(None);
    for count in 1..=2 {
        let reply = exchange(address, &request("GET", "/metrics"));
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(reply.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{reply}");
        assert!(reply.ends_with(&format!("\r\n\r\npages_total {count}\n")), "{reply}");
    }
    console.stop();
    assert!(TcpStream::connect(address).is_err(), "a stopped one does not listen");
}

#[test]
fn everything_else_is_refused() {
    let (_console, address) = start(None);
    for (request, status) in [
        (request("HEAD", "/metrics"), "200"),
        (request("GET", "/"), "200"),
        (request("GET", "/metrics/../etc/passwd"), "404"),
        (request("POST", "/metrics"), "405"),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)), "4"),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200)), "431"),
        ("*1\r\n$4\r\nPING\r\n".to_owned(), "400"),
    ] {
        let reply = exchange(address, &request);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{status}: {reply}");
    }
}

#[test]
fn connections_are_bounded_and_room_comes_back() {
    let (_console, address) = start(None);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        stream.read(&mut [0; 1_000]).unwrap_or(0)
    };
    // Sixteen that said nothing kept everybody out for a minute: the one that is idle for longest leaves.
    let mut idle: Vec<_> = (0..16).map(|_| connect(address)).collect();
    assert!(
        ask(&mut idle[0]) > 0 && ask(&mut idle[15]) > 0,
        "all are taken in, the first is no longer the idlest"
    );
    let mut more: Vec<_> = (0..3).map(|_| connect(address)).collect();
    assert!(ask(&mut more[2]) > 0, "one too many is served");
    for (index, stream) in idle.iter_mut().enumerate().skip(1).take(3) {
        assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0, "{index} was closed");
    }
    assert!(ask(&mut idle[0]) > 0, "one that asks is kept");
}

#[test]
fn requests_for_a_host_that_is_not_known_get_no_figures() {
    let (_console, address) = start(None);
    for (host, status) in
        [("x", "200"), ("127.0.0.1", "200"), ("localhost:9", "200"), ("evil.example", "421")]
    {
        let reply =
            exchange(address, &request("GET", "/metrics").replace("Host: x", &format!("Host: {host}")));
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{host}: {reply}");
        assert_eq!(reply.contains("pages_total"), status == "200", "{host}: {reply}");
    }
}

#[test]
fn lines_are_written_at_once_and_at_the_stop() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("metrics.jsonl");
    let file = FileOptions {
        path: path.clone(),
        interval: Duration::from_secs(3_600),
        bytes_max: 1_000,
        former_max: 1,
    };
    let (console, _address) = start(Some(file));
    eventually("a line is written", || !std::fs::read_to_string(&path).unwrap_or_default().is_empty());
    console.stop();
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "{\"line\":1}\n{\"line\":2}\n");
}
