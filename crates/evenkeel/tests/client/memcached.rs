//! `evenkeel bench` measures a real memcached: what was written is found, what it refuses is an error and no figure.
//!
//! Debian's package `memcached` is needed: `cargo xtask test clients` installs it.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, evenkeel, finished};

/// Runs `evenkeel bench` with `--json`; its status and the object on its last line.
fn measured(arguments: &[&str]) -> (i32, Value) {
    let (status, text) = finished(evenkeel().arg("bench").args(arguments).arg("--json"));
    let last = text.lines().last().unwrap_or_default();
    (status, serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}")))
}

#[test]
fn what_was_written_is_found_as_it_was_and_deleted() {
    let small = ["remote-test", "--clients", "5", "--requests", "1000", "--iterations", "2", "--verify"];
    let shape = ["--operations", "write,read,mixed,delete", "--value-size", "100,70000", "--pipeline", "3"];
    let (status, value) = measured(&[&small[..], &shape, &["--server", "memcached"]].concat());
    assert_eq!((status, value["server"].as_str()), (0, Some("memcached")), "{value}");
    let counts = ["written", "found", "missing", "deleted", "lost", "errors"]
        .map(|name| value[name].as_u64().unwrap());
    // Two sizes, two iterations; `mixed` writes and reads half of its requests.
    assert_eq!(counts, [6_000, 6_000, 0, 4_000, 0, 0]);
}

#[test]
fn map_test_takes_turns_with_it_on_as_many_threads_and_gives_ratios() {
    let small = ["map-test", "--duration", "300ms", "--runs", "2", "--threads", "4", "--key-count", "100"];
    let shape = ["--put-probability", "0.5", "--loops", "1", "--against", "memcached"];
    let (status, value) = measured(&[&small[..], &shape].concat());
    assert_eq!(status, 0, "{value}");
    let theirs = &value["against"][0];
    assert_eq!((theirs["server"].as_str(), theirs["lost"].as_u64()), (Some("memcached"), Some(0)));
    assert_eq!(theirs["runs"].as_array().unwrap().len(), 2);
    assert!(theirs["command"].as_str().unwrap().ends_with("-t 1"), "as many as loops: {theirs}");
    for name in ["ratio", "p99_ratio", "server_cpu_ratio"] {
        assert!(theirs[name].as_f64().unwrap() > 0.0, "{name}: {theirs}");
    }
}

/// A memcached of our own, which was there before the experiment.
struct Memcached(Child, u16);

impl Memcached {
    fn start() -> Self {
        let port = common::free_port();
        let child = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-u", "nobody", "-p", &port.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .expect("memcached is installed (cargo xtask test clients does that)");
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(30), "nobody listens on port {port}");
        }
        Self(child, port)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Values of 2 MiB are more than an item of memcached may have.
#[test]
fn value_that_it_refuses_is_an_error_in_its_words_and_no_figure() {
    let server = Memcached::start();
    let url = format!("memcached://127.0.0.1:{}", server.1);
    let small = ["remote-test", "--url", &url, "--clients", "2", "--requests", "10", "--iterations", "1"];
    let (status, value) =
        measured(&[&small[..], &["--operations", "write", "--value-size", "2097152"]].concat());
    assert_eq!((status, value["errors"].as_u64(), value["valid"].as_bool()), (3, Some(10), Some(false)));
    let first = value["failures"]["first"].as_str().unwrap();
    assert!(first.starts_with("SERVER_ERROR object too large"), "{first}");
    let (status, value) = measured(&small);
    assert_eq!((status, value["deleted"].as_u64()), (0, Some(10)), "it is as well as before: {value}");
}
