//! `evenkeel bench tx` as a user runs it: on each log, by many clients, beside the bare disk, cut short.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use bench::Named;
use bench::tx::{LogKind, LogOptions, left};
use common::{evenkeel, eventually, finished};
use serde_json::Value;

fn tx(arguments: &[&str]) -> Command {
    let mut command = evenkeel();
    command.args(["bench", "tx"]).args(arguments);
    command
}

/// Runs it for a moment with `--json` on a folder that must be empty afterwards; the object on its last line.
fn measured(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let short = ["--duration", "300ms", "--warm-up", "50ms", "--runs", "2", "--json", "--dir"];
    let mut command = tx(&[arguments, &short].concat());
    let (status, text) = finished(command.arg(folder.path()));
    assert_eq!(status, 0, "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left on the disk");
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap()
}

/// The shape that all experiments share, and what this one adds.
fn has_the_shape(value: &Value) {
    assert_eq!((&value["experiment"], &value["valid"]), (&Value::from("tx"), &Value::Bool(true)), "{value}");
    assert!(value["server"].is_string() && value["settings"].is_object(), "{value}");
    assert!(value["operations_per_second"].as_f64().unwrap() > 0.0);
    for name in ["p50", "p99", "p999", "max"] {
        assert!(value["latency_us"][name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert_eq!((value["errors"].as_u64(), value["lost"].as_u64()), (Some(0), Some(0)));
    let [min, mean, max] = ["min", "mean", "max"].map(|name| value[name].as_f64().unwrap());
    assert!(0.0 < min && min <= mean && mean <= max);
    assert_eq!(value["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn each_log_commits_and_holds_nothing_afterwards() {
    // At the edges of the run a transaction may count whose sync does not.
    for (log, syncs) in [("volatile", 0.0..=0.0), ("file", 0.9..=3.0), ("journal", 0.1..=1.1)] {
        let value = measured(&["--log", log, "--threads", "2"]);
        has_the_shape(&value);
        assert_eq!((value["log"].as_str(), value["threads"].as_u64()), (Some(log), Some(2)));
        let each = value["syncs_per_transaction"].as_f64().unwrap();
        assert!(syncs.contains(&each), "{log}: {each} syncs a transaction");
        assert!(value["cpu_us_per_transaction"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn one_thread_waits_for_the_disk_once_a_transaction() {
    let value = measured(&["--log", "journal", "--threads", "1"]);
    let syncs = value["syncs_per_transaction"].as_f64().unwrap();
    // A sync may be under way when the counters are read.
    assert!((0.95..=1.05).contains(&syncs), "{syncs}");
    assert!(value["bytes_per_transaction"].as_f64().unwrap() > 0.0);
}

#[test]
fn logical_clients_share_syncs_on_few_threads() {
    let value = measured(&["--logical", "100", "--threads", "2"]);
    has_the_shape(&value);
    assert_eq!((value["logical"].as_u64(), value["threads"].as_u64()), (Some(100), Some(2)));
    assert!(value["syncs_per_transaction"].as_f64().unwrap() < 0.5, "{value}");
}

#[test]
fn other_logs_and_the_bare_disk_are_measured_by_turns_and_get_ratios() {
    let value = measured(&["--threads", "3", "--against", "volatile,raw,raw=run,raw=512"]);
    has_the_shape(&value);
    let others = value["against"].as_array().unwrap();
    assert_eq!(others.len(), 4);
    for other in others {
        has_the_shape(other);
        assert!(other["ratio"].as_f64().unwrap() > 0.0);
    }
    let raw = |index: usize, field: &str| others[index][field].as_f64().unwrap();
    assert_eq!((raw(3, "bytes_per_transaction"), raw(3, "syncs_per_transaction")), (512.0, 0.333));
    assert!(raw(1, "bytes_per_transaction") >= 1.0 && raw(1, "bytes_per_transaction") < 512.0);
}

#[test]
fn quiet_prints_a_line_and_html_a_page() {
    let html = tempfile::NamedTempFile::new().unwrap();
    let short =
        ["--log", "volatile", "--threads", "1", "--duration", "50ms", "--warm-up", "0", "--runs", "1"];
    let mut command = tx(&[&short[..], &["-q", "--html", html.path().to_str().unwrap()]].concat());
    let (status, text) = finished(&mut command);
    assert_eq!((status, text.lines().count()), (0, 1), "{text}");
    assert!(text.starts_with("COMMIT: ") && text.contains("requests per second"), "{text}");
    assert!(std::fs::read_to_string(html.path()).unwrap().contains("evenkeel txn volatile"));
}

#[test]
fn wrong_options_are_one_line() {
    for (arguments, said) in [
        (&["--log", "paper"][..], "'--log <LOG>'"),
        (&["--against", "redis"], "nobody is called `redis`"),
        (&["--against", "raw=0"], "want run, or bytes of a record"),
        (&["--against", "narayana=paper"], "narayana has no store `paper`"),
        (&["--log", "sql"], "the log sql and --url belong together"),
        (&["--threads", "0"], "0 is not in 1..=10000"),
        (&["--duration", "5"], "is no duration"),
        (&["--threads", "8", "--logical", "4"], "8 --threads cannot share 4 --logical transactions"),
        (&["--log", "file", "--backend", "direct"], "--log journal is not measured"),
        (&["--log", "volatile", "--against", "raw"], "raw has no size"),
    ] {
        let short = ["--duration", "20ms", "--warm-up", "0", "--runs", "1", "--threads", "1"];
        let is_short = !arguments.contains(&"--threads") && !arguments.contains(&"--duration");
        let extra = if is_short { &short[..] } else { &[] };
        let output = tx(&[arguments, extra].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn narayana_without_java_is_left_out_and_said_so() {
    let short = ["-q", "--log", "volatile", "--threads", "1", "--duration", "50ms", "--runs", "1"];
    let mut command = tx(&[&short[..], &["--against", "narayana,narayana=file"]].concat());
    let (status, text) = finished(command.env("PATH", "/nowhere"));
    assert_eq!(status, 0, "{text}");
    assert_eq!(
        text.matches("narayana is not installed here (no java): measured without it").count(),
        2,
        "{text}"
    );
}

/// Processor time of the first thread that commits, in nanoseconds; 0 before there is one.
fn cpu_of_first_client(process: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let mut threads = threads.filter_map(Result::ok).map(|thread| thread.path());
    let client = threads.find(|thread| read(thread, "comm").trim() == "client-0");
    let cpu = client.map(|thread| read(&thread, "schedstat")).unwrap_or_default();
    cpu.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

#[test]
fn experiment_that_is_killed_leaves_decisions_whose_damage_would_be_seen() {
    for kind in [LogKind::Journal, LogKind::File] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tx(&["--log", &kind.name(), "--logical", "50", "--duration", "60s", "--dir"]);
        let mut child =
            command.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let id = child.id();
        let log = folder.path().join(format!("evenkeel-bench-{id}")).join("tx-0-0");
        eventually("a client has committed for a while", || cpu_of_first_client(id) > 5_000_000);
        child.kill().and_then(|()| child.wait()).unwrap();
        let options = LogOptions { backend: Default::default(), url: None };
        let left = left(kind, &options, &log, &format!("bench-{id}-0-0")).unwrap();
        assert!(left.records > 0, "{kind:?}: nothing was under way");
        assert_eq!(left.unchecked, 0, "{kind:?}: of {} records", left.records);
    }
}
