//! A topology in several worker processes: workers and the server are killed, tasks move, and nothing is lost or left over.
#![allow(clippy::disallowed_methods, reason = "tests talk to the server and look at the kernel's files")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use resp::Value;

use crate::common::{Server, bulk, call, eventually, field, hash, kill, ok, processes, receive};

const WORDS: u64 = 97;

/// A topology of 2 spout tasks and 6 tasks of bolts, in `workers` workers.
fn definition(workers: u32, timeout_s: u32) -> String {
    let (spout, bolt) = ("spouts.FluxShellSpout", "bolts.FluxShellBolt");
    let component = |id: &str, class: &str, words: &str, fields: &str, tasks: u32| {
        format!(
            "- id: {id}\n  className: org.apache.storm.flux.wrappers.{class}\n  constructorArgs: [[evenkeel, component, {words}], [{fields}]]\n  parallelism: {tasks}\n"
        )
    };
    let source =
        component("source", spout, "stream-spout, orders, --group, counters, --from, start", "id, word", 2);
    let count = component("count", bolt, "count, --by, word, --prefix, \"orders:\"", "word, count", 3);
    let seen = component("seen", bolt, "key-sink, HSET, seen, \"{id}\", \"{word}\"", "nothing", 3);
    format!(
        "name: orders\nconfig: {{topology.workers: {workers}, topology.max.spout.pending: 100, topology.message.timeout.secs: {timeout_s}, evenkeel.attempts_max: 1000, evenkeel.backoff_ms: [10, 100]}}\nspouts:\n{source}bolts:\n{count}{seen}streams:\n- {{from: source, to: count, grouping: {{type: FIELDS, args: [word]}}}}\n- {{from: source, to: seen, grouping: {{type: SHUFFLE}}}}\n"
    )
}

fn start(data: &Path, place: &Path) -> Server {
    Server::start(data, &["--topologies-dir", place.to_str().expect("text")])
}

fn word(number: u64) -> String {
    format!("word{}", number % WORDS)
}

/// Adds entries; entry `n` has the id `n-1`.
fn fill(port: u16, numbers: std::ops::RangeInclusive<u64>) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it connects");
    for chunk in numbers.collect::<Vec<_>>().chunks(500) {
        let mut requests = Vec::new();
        for number in chunk {
            let (id, word) = (format!("{number}-1"), word(*number));
            resp::encode_command(&mut requests, &["XADD", "orders", &id, "word", &word]);
        }
        stream.write_all(&requests).expect("it is sent");
        chunk.iter().for_each(|_| assert!(matches!(receive(&mut stream), Ok(Value::Bulk(_)))));
    }
}

/// The processes of all workers; 0 for one that has none.
fn workers(server: &Server) -> Vec<i64> {
    let shown = server.call(&["TOPOLOGY", "SHOW", "orders"]);
    let Value::Array(workers) = field(&shown, "workers") else { panic!("no workers: {shown:?}") };
    workers
        .iter()
        .map(|worker| match field(worker, "pid") {
            Value::Integer(pid) => pid,
            _ => 0,
        })
        .collect()
}

fn status(server: &Server) -> Value {
    field(&server.call(&["TOPOLOGY", "SHOW", "orders"]), "status")
}

fn number(server: &Server, command: &[&str]) -> u64 {
    match server.call(command) {
        Value::Integer(number) => number as u64,
        other => panic!("{command:?}: {other:?}"),
    }
}

fn seen(server: &Server) -> u64 {
    number(server, &["HLEN", "seen"])
}

fn wait_for(server: &Server, count: u64) {
    eventually(&format!("{count} entries are seen"), || seen(server) >= count);
}

/// Waits until the source has forgotten all: each entry is acknowledged.
fn wait_for_acks(server: &Server) {
    let pending = || match server.call(&["XPENDING", "orders", "counters"]) {
        Value::Array(summary) => summary[0].clone(),
        other => panic!("{other:?}"),
    };
    eventually("all entries are acknowledged", || pending() == Value::Integer(0));
}

/// What was counted for each word.
fn counts(server: &Server) -> BTreeMap<String, u64> {
    let counts = hash(server.port, "orders:count").into_iter();
    counts.map(|(word, count)| (word, count.parse().expect("a number"))).collect()
}

/// What a plain program counts of entries `1..=entries`.
fn plain_counts(entries: u64) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    (1..=entries).for_each(|number| *counts.entry(word(number)).or_default() += 1);
    counts
}

/// Ends the topology; nothing of it is left.
fn end(server: &Server, data: &Path) {
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "orders", "WAIT", "10"]), ok());
    eventually("it is gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    assert_eq!(processes(data), []);
}

fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"))
}

#[test]
fn three_workers_lose_no_entry_while_each_of_them_is_killed_again_and_again() {
    const ENTRIES: u64 = 8_000;
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    fill(server.port, 1..=ENTRIES);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "orders", &definition(3, 1)]), ok());
    eventually("three workers run", || workers(&server).iter().filter(|pid| **pid > 0).count() == 3);
    for round in 0..6 {
        wait_for(&server, (round + 1) * ENTRIES / 10);
        let victim = workers(&server)[round as usize % 3];
        if victim > 0 {
            kill(victim);
        }
    }
    wait_for(&server, ENTRIES);
    wait_for_acks(&server);
    let (counts, plain) = (counts(&server), plain_counts(ENTRIES));
    assert_eq!(counts.len(), plain.len());
    assert!(plain.iter().all(|(word, least)| counts[word] >= *least), "at least once");
    let extra = counts.values().sum::<u64>() - ENTRIES;
    // What both spout tasks had out at each death, and a further attempt of it while a worker was away.
    assert!(extra <= 6 * 2 * 2 * 100, "{extra} counted twice");
    end(&server, data.path());
}

/// Adds entries until it is to stop, never far ahead of the sink; how many.
fn feed(port: u16, sink: &[&str], stops: &AtomicBool) -> u64 {
    let mut entries = 0;
    while !stops.load(Ordering::Relaxed) {
        fill(port, entries + 1..=entries + 500);
        entries += 500;
        let is_near = || match call(port, sink) {
            Ok(Value::Integer(seen)) => seen as u64 + 1_000 >= entries,
            other => panic!("{other:?}"),
        };
        eventually("the sink follows", is_near);
    }
    entries
}

#[test]
fn rebalance_under_load_loses_nothing_and_counts_nothing_twice() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "orders", &definition(1, 30)]), ok());
    let (stops, port) = (Arc::new(AtomicBool::new(false)), server.port);
    let feeder = std::thread::spawn({
        let stops = Arc::clone(&stops);
        move || feed(port, &["HLEN", "seen"], &stops)
    });
    for count in ["3", "2", "4"] {
        let before = seen(&server);
        wait_for(&server, before + 1_000);
        assert_eq!(server.call(&["TOPOLOGY", "REBALANCE", "orders", "WORKERS", count]), ok());
        let wanted = count.parse::<usize>().expect("a number");
        let is_done = || workers(&server).len() == wanted && status(&server) == bulk("active");
        eventually(&format!("{count} workers share the tasks"), is_done);
    }
    stops.store(true, Ordering::Relaxed);
    let entries = feeder.join().expect("it ends");
    wait_for(&server, entries);
    wait_for_acks(&server);
    assert_eq!(counts(&server), plain_counts(entries), "none waited for its time-out");
    eventually("counters of workers that are gone count on", || {
        let shown = server.call(&["TOPOLOGY", "SHOW", "orders"]);
        let Value::Array(components) = field(&shown, "components") else { panic!("{shown:?}") };
        components.len() == 3
            && components.iter().all(|it| field(it, "acked") == Value::Integer(entries as i64))
    });
    end(&server, data.path());
}

#[test]
fn server_that_is_killed_with_workers_during_a_rebalance_goes_on_where_it_was_to_be() {
    const ENTRIES: u64 = 4_000;
    let (data, place) = folders();
    let mut server = start(data.path(), place.path());
    fill(server.port, 1..=ENTRIES);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "orders", &definition(2, 1)]), ok());
    wait_for(&server, ENTRIES / 8);
    assert_eq!(server.call(&["TOPOLOGY", "REBALANCE", "orders", "WORKERS", "4"]), ok());
    // A process that the server has begun to start, and no more, would keep the lock of the folder for a moment.
    eventually("four workers run", || workers(&server).iter().filter(|pid| **pid > 0).count() == 4);
    let former = processes(data.path());
    let victims = workers(&server);
    server.child.kill().expect("it runs");
    victims.iter().filter(|pid| **pid > 0).for_each(|pid| kill(*pid));
    server.child.wait().expect("it ends");
    let server = start(data.path(), place.path());
    eventually("four workers run", || workers(&server).iter().filter(|pid| **pid > 0).count() == 4);
    assert!(processes(data.path()).iter().all(|pid| !former.contains(pid)), "nothing of the former ones");
    wait_for(&server, ENTRIES);
    wait_for_acks(&server);
    end(&server, data.path());
}

// ---- exactly once ----------------------------------------------------------------------------------

/// The same topology exactly once: each entry is one of `seen`, which is a stream.
fn exactly(workers: u32) -> String {
    let (spout, bolt) = ("spouts.FluxShellSpout", "bolts.FluxShellBolt");
    let component = |id: &str, class: &str, words: &str, fields: &str, tasks: u32| {
        format!(
            "- id: {id}\n  className: org.apache.storm.flux.wrappers.{class}\n  constructorArgs: [[evenkeel, component, {words}], [{fields}]]\n  parallelism: {tasks}\n"
        )
    };
    let source = component("source", spout, "stream-spout, orders", "id, word", 2);
    let count = component("count", bolt, "count, --by, word, --prefix, \"orders:\"", "word, count", 3);
    let latest = component("latest", bolt, "key-sink, HSET, latest, \"{word}\", \"{count}\"", "nothing", 2);
    let seen = component("seen", bolt, "stream-sink, seen", "nothing", 3);
    format!(
        "name: orders\nconfig: {{evenkeel.guarantee: exactly-once, topology.workers: {workers}, topology.max.spout.pending: 50, topology.message.timeout.secs: 5}}\nspouts:\n{source}bolts:\n{count}{latest}{seen}streams:\n- {{from: source, to: count, grouping: {{type: FIELDS, args: [word]}}}}\n- {{from: count, to: latest, grouping: {{type: FIELDS, args: [word]}}}}\n- {{from: source, to: seen, grouping: {{type: SHUFFLE}}}}\n"
    )
}

fn seen_once(server: &Server) -> u64 {
    number(server, &["XLEN", "seen"])
}

/// Each entry counted once, in both ways, and its totals came in order.
fn assert_exact(server: &Server, entries: u64) {
    eventually(&format!("{entries} entries are seen"), || seen_once(server) >= entries);
    assert_eq!(seen_once(server), entries, "each once");
    assert_eq!(counts(server), plain_counts(entries));
    let latest = hash(server.port, "latest").into_iter();
    let latest: BTreeMap<String, u64> =
        latest.map(|(word, count)| (word, count.parse().expect("a number"))).collect();
    assert_eq!(latest, plain_counts(entries));
}

#[test]
fn three_workers_count_each_entry_once_while_workers_and_the_server_are_killed() {
    const ENTRIES: u64 = 12_000;
    let (data, place) = folders();
    let mut server = start(data.path(), place.path());
    fill(server.port, 1..=ENTRIES);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "orders", &exactly(3)]), ok());
    for round in 0..8_u64 {
        eventually("it goes on", || seen_once(&server) >= (round + 1) * ENTRIES / 10);
        eventually("three workers run", || workers(&server).iter().filter(|pid| **pid > 0).count() == 3);
        if round == 4 {
            server.child.kill().expect("it runs");
            server.child.wait().expect("it ends");
            server = start(data.path(), place.path());
        } else {
            // The first one has the coordinator of epochs.
            kill(workers(&server)[round as usize % 3]);
        }
    }
    assert_exact(&server, ENTRIES);
    end(&server, data.path());
}

#[test]
fn rebalance_with_exactly_once_under_load_counts_each_entry_once() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "orders", &exactly(1)]), ok());
    let (stops, port) = (Arc::new(AtomicBool::new(false)), server.port);
    let feeder = std::thread::spawn({
        let stops = Arc::clone(&stops);
        move || feed(port, &["XLEN", "seen"], &stops)
    });
    for (round, count) in ["3", "2", "4"].into_iter().enumerate() {
        let before = seen_once(&server);
        eventually("entries are seen", || seen_once(&server) >= before + 1_000);
        assert_eq!(server.call(&["TOPOLOGY", "REBALANCE", "orders", "WORKERS", count]), ok());
        if round > 0 {
            // The worker with the coordinator of epochs, or another one that has tasks.
            kill(workers(&server)[round - 1]);
        }
        let wanted = count.parse::<usize>().expect("a number");
        let is_done = || {
            let now = workers(&server);
            now.len() == wanted && now.iter().all(|pid| *pid > 0) && status(&server) == bulk("active")
        };
        eventually(&format!("{count} workers share the tasks"), is_done);
    }
    stops.store(true, Ordering::Relaxed);
    let entries = feeder.join().expect("it ends");
    assert_exact(&server, entries);
    end(&server, data.path());
}
