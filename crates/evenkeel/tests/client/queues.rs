//! Job queues that everybody uses, unchanged: the server is killed with SIGKILL while jobs run, and every acknowledged job is done.
//!
//! The drills are in `clients/queues`. RQ and Celery run under the interpreter in `EVENKEEL_PYTHON`, which `cargo xtask test clients`
//! makes. BullMQ runs where `EVENKEEL_BULLMQ` names a folder in which it is installed.
#![allow(clippy::disallowed_methods, reason = "tests start processes")]

use std::ffi::OsStr;
use std::process::Command;

/// Longest run: a drill gives up before, and says what was missing.
const SECONDS_MAX: &str = "58";
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/queues/");

/// Runs one drill against the binary; `modules` is where Node finds packages.
fn drill(script: &str, modules: &OsStr) {
    let python = std::env::var_os("EVENKEEL_PYTHON")
        .expect("EVENKEEL_PYTHON names a Python with the queues: `cargo xtask test clients` makes one");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=2", SECONDS_MAX])
        .arg(python)
        .arg(format!("{FOLDER}{script}"))
        .args([env!("CARGO_BIN_EXE_evenkeel"), "serve", "--dir", "{dir}", "--port", "{port}", "--loops", "1"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NODE_PATH", modules);
    let output = command.output().expect("timeout is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}\n{text}", output.status);
}

#[test]
fn jobs_of_rq_are_done_though_the_server_is_killed() {
    drill("rq_queue.py", OsStr::new(""));
}

#[test]
fn jobs_of_celery_are_done_though_the_server_is_killed() {
    drill("celery_queue.py", OsStr::new(""));
}

#[test]
fn jobs_of_bullmq_are_done_though_the_server_is_killed() {
    let Some(folder) = std::env::var_os("EVENKEEL_BULLMQ") else { return };
    drill("bullmq_queue.py", std::path::Path::new(&folder).join("node_modules").as_os_str());
}
