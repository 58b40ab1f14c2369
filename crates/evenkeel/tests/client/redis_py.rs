//! redis-py's own tests against the binary: what passes on redis-server 7.0 passes here, but for what is listed.
//!
//! Their source is in `EVENKEEL_REDIS_PY`, and Python with pytest in `EVENKEEL_PYTHON`: `cargo xtask test clients` fetches both from PyPI.
//! Nothing of it is part of this repository. Tests of newer commands are skipped by their version.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::ffi::OsString;
use std::process::Command;

use crate::common::Server;

/// Files of tests.
const FILES: [&str; 9] =
    ["commands", "scripting", "lock", "pipeline", "function", "pubsub", "encoding", "monitor", "hash"];

/// Parts of the names of tests that are left out, and why.
const LEFT_OUT: [(&str, &str); 18] = [
    ("acl", "there is one password, and no users"),
    ("test_auth", "ACL SETUSER makes its users"),
    ("client_kill_filter_by_user", "ACL SETUSER makes its users"),
    ("shard", "no SSUBSCRIBE: it is one server, and no cluster"),
    ("ignore_all_subscribe_messages", "no SSUBSCRIBE, beside SUBSCRIBE"),
    ("ignore_individual_subscribe_messages", "no SSUBSCRIBE, beside SUBSCRIBE"),
    ("client_tracking", "no client-side caching"),
    ("test_sync", "no replication"),
    ("test_psync", "no replication; fails on redis-server 7.0, too"),
    ("replicaof", "no replication"),
    ("client_setinfo", "connects to port 6379, whatever it is told"),
    ("lolwut", "no LOLWUT"),
    ("config_get_multi_params", "hash-max-listpack-entries is no setting here"),
    ("config_set_multi_params", "sets maxmemory to 100 bytes: the least is 16 MiB"),
    ("test_object", "OBJECT IDLETIME: when a key was last used is not kept by default"),
    ("xgroup_create_entriesread", "the lag is that of redis-server 7.0, where it fails, too"),
    ("test_command_list", "wants more than 300 commands"),
    ("redisdown", "looks for a server that does not run"),
];

/// Tests that run at least: so many were left of both versions of the protocol.
const PASSED_MIN: u32 = 550;

/// Longest run.
const SECONDS_MAX: &str = "110";

fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("no {name}: `cargo xtask test clients` gives one"))
}

/// Runs the tests in version `protocol`; returns how many passed.
fn run(protocol: &str) -> u32 {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let names: Vec<&str> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
    let mut command = Command::new("timeout");
    command
        .arg(SECONDS_MAX)
        .arg(variable("EVENKEEL_PYTHON"))
        .current_dir(variable("EVENKEEL_REDIS_PY"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--timeout=20"])
        .args(["-W", "ignore", "-m", "not onlycluster and not redismod and not ssl"])
        .arg(format!("--redis-url=redis://127.0.0.1:{}/9", server.port))
        .arg(format!("--protocol={protocol}"))
        .arg(format!("-k=not ({})", names.join(" or ")))
        .args(FILES.map(|file| format!("tests/test_{file}.py")));
    let output = command.output().expect("timeout and Python are installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "RESP{protocol}: {}\n{text}", output.status);
    let last = text.lines().rev().find(|line| line.contains(" passed")).expect("a summary");
    let before = last.split(" passed").next().and_then(|text| text.split_whitespace().last());
    before.and_then(|count| count.parse().ok()).expect("a number")
}

#[test]
fn tests_of_redis_py_pass_in_resp2() {
    assert!(run("2") > PASSED_MIN);
}

#[test]
fn tests_of_redis_py_pass_in_resp3() {
    assert!(run("3") > PASSED_MIN);
}
