//! Which task has which keys, over all that starts a topology again: windows, joins and counts of several tasks are what a plain program has. In each part of the input one tuple is
//! poison, and the server refuses a command of another one.
//!
//! The hash of keys was drawn anew with each start: windows of 2 tuples, one before and one after it, became windows of 1.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;

use resp::Value;

use crate::common::{self, Server, call, evenkeel, eventually, field, flux_part, ok, receive};

/// Keys of windows, and tuples that are joined in each part.
const KEYS: u64 = 40;

const SPOUTS: [&str; 3] = ["ones", "lefts", "rights"];
const EXACTLY: &str = "exactly-once";

/// What starts the tasks again between two parts of the input.
const RESTARTS: [&str; 10] = [
    "the server stops",
    "a worker is killed",
    "the server is killed",
    "it has more workers",
    "the definition is replaced",
    "a trial takes its place",
    "it is killed and submitted",
    "it has other executors",
    LOCAL,
    "it has fewer workers",
];
const LOCAL: &str = "it runs with --local";

/// What the topology may use on its server; `forbidden` is not among it.
const KEYS_OF_IT: &str =
    "[ones, lefts, rights, dead, seen, windows, passed, pairs, \"w:*\", \"j:*\", \"n:*\", \"s:*\"]";

/// A window of a key ends with its tuple of the last part. With at-least-once `join` has its tuples in memory: there is no join then.
fn definition(guarantee: &str) -> String {
    let joins = guarantee == EXACTLY;
    let windows = RESTARTS.len() + 1;
    let late = "  configMethods: [{name: setNamedStream, args: [unmatched, [source, key, values]]}, {name: addComponentConfig, args: [topology.tick.tuple.freq.secs, 1]}]\n";
    let spouts = SPOUTS[..if joins { 3 } else { 1 }]
        .iter()
        .map(|id| {
            let dead = if joins { "" } else { ", --dead-letter, dead" };
            let fields = if *id == "ones" { "id, k, n, to" } else { "id, k" };
            flux_part(id, &format!("stream-spout, {id}{dead}"), fields, 1, "")
        })
        .collect::<String>();
    let mut bolts = vec![
        flux_part(
            "windows",
            &format!("closing-window, --by, k, --id, id, --count, \"{windows}\", --prefix, \"w:\""),
            "start, end, k, n",
            3,
            "",
        ),
        flux_part("windows-out", "key-sink, HSET, windows, \"{k} {start} {end} {n}\", \"1\"", "none", 2, ""),
        flux_part("counts", "count, --by, k, --prefix, \"n:\"", "k, n", 2, ""),
        flux_part("sums", "sum, --by, k, --field, n, --prefix, \"s:\"", "k, n", 4, ""),
        flux_part("seen", "key-sink, SADD, \"{to}\", \"{id}\"", "none", 2, ""),
        flux_part("passed", "key-sink, HSET, passed, \"{id} {k}\", \"1\"", "none", 2, ""),
    ];
    let mut streams = vec![
        "ones windows FIELDS, args: [k]",
        "ones counts FIELDS, args: [k]",
        "ones sums FIELDS, args: [k]",
        "ones seen SHUFFLE",
        "windows windows-out SHUFFLE",
        "ones passed SHUFFLE",
    ];
    if joins {
        let join = "join, lefts, rights, --by, k, --prefix, \"j:\", --within-ms, \"86400000\"";
        bolts.push(flux_part("pairs", join, "l, k, r, k2", 4, late));
        bolts.push(flux_part("pairs-out", "key-sink, HINCRBY, pairs, \"{k}\", \"1\"", "none", 2, ""));
        streams.extend([
            "lefts pairs FIELDS, args: [k]",
            "rights pairs FIELDS, args: [k]",
            "pairs pairs-out SHUFFLE",
        ]);
        streams.extend(["lefts passed SHUFFLE", "rights passed SHUFFLE"]);
    }
    let streams = streams.iter().map(|line| {
        let [from, to, grouping] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().expect("three parts");
        format!("- {{from: {from}, to: {to}, grouping: {{type: {grouping}}}}}\n")
    });
    format!(
        "name: it\nconfig: {{evenkeel.guarantee: {guarantee}, evenkeel.keys: {KEYS_OF_IT}, evenkeel.attempts_max: 3, evenkeel.backoff_ms: [10], topology.message.timeout.secs: 5, topology.workers: 2}}\nspouts:\n{spouts}bolts:\n{}streams:\n{}",
        bolts.concat(),
        streams.collect::<String>()
    )
}

/// A server with the topology `it`.
struct Place {
    dir: tempfile::TempDir,
    server: Option<Server>,
    port: u16,
    definition: String,
    joins: bool,
    /// Tuples that were put into streams and that pass.
    put: u64,
    /// Tuples that are given up.
    given_up: u64,
}

impl Place {
    fn new(guarantee: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let definition = definition(guarantee);
        std::fs::write(dir.path().join("it.yaml"), &definition).expect("it is written");
        let mut place = Self {
            dir,
            server: None,
            port: common::free_port(),
            definition,
            joins: guarantee == EXACTLY,
            put: 0,
            given_up: 0,
        };
        place.start();
        place
    }

    fn start(&mut self) {
        let folder = self.dir.path().to_str().expect("text");
        let port = self.port.to_string();
        let server =
            Server::start(&self.dir.path().join("data"), &["--topologies-dir", folder, "--port", &port]);
        self.server = Some(server);
    }

    fn end(&mut self, signal: i32) {
        let server = self.server.take().expect("it runs");
        server.signal(signal);
        server.end();
    }

    fn call(&self, command: &[&str]) -> Value {
        call(self.port, command).expect("a reply")
    }

    fn submit(&self, more: &[&str]) {
        assert_eq!(self.call(&[&["TOPOLOGY", "SUBMIT", "it", &self.definition], more].concat()), ok());
    }

    fn length(&self, hash: &str) -> u64 {
        let Value::Integer(length) = self.call(&["HLEN", hash]) else { panic!("no hash {hash}") };
        length as u64
    }

    /// Puts a part of the input into the streams: a tuple for each window, left ones, partners of the left ones before, and those that are given up.
    fn put(&mut self, part: u64, is_bound: bool) {
        let mut words: Vec<[String; 2]> = (0..KEYS).map(|k| ["ones".to_owned(), format!("k{k}")]).collect();
        let at = words.len() / 2;
        words.insert(at, ["ones".to_owned(), format!("poison{part}")]);
        if is_bound {
            words.insert(at / 2, ["ones".to_owned(), format!("refused{part}")]);
        }
        if self.joins {
            words.extend((0..KEYS).map(|k| ["lefts".to_owned(), format!("{part}-{k}")]));
            let partners = (0..KEYS).filter(|_| part > 0);
            words.extend(partners.map(|k| ["rights".to_owned(), format!("{}-{k}", part - 1)]));
        }
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it connects");
        let mut requests = Vec::new();
        for [key, k] in &words {
            let n = if k.starts_with("poison") { "many" } else { "1.5" };
            let to = if k.starts_with("refused") { "forbidden" } else { "seen" };
            resp::encode_command(&mut requests, &["XADD", key, "*", "k", k, "n", n, "to", to]);
        }
        connection.write_all(&requests).expect("it is sent");
        words.iter().for_each(|_| assert!(matches!(receive(&mut connection), Ok(Value::Bulk(_)))));
        // With exactly-once one that is poison somewhere is skipped everywhere.
        self.put += words.len() as u64 - u64::from(self.joins);
        self.given_up += 1 + u64::from(is_bound);
    }

    /// Waits until all that was put into the streams has passed, as the hash `passed` says.
    fn wait(&self, passed: &str) {
        let what = format!("all {} have passed, not {}", self.put, self.length(passed));
        eventually(&what, || self.length(passed) == self.put);
        if passed == "passed" {
            let different = || self.letters().into_iter().collect::<BTreeSet<_>>().len() as u64;
            let what = format!("{} are given up, not {}", self.given_up, different());
            eventually(&what, || different() == self.given_up);
            // With at-least-once a letter may be there twice.
            assert!(!self.joins || self.letters().len() as u64 == self.given_up, "{:?}", self.letters());
        }
    }

    /// The keys of tuples that were given up.
    fn letters(&self) -> Vec<String> {
        let key = if self.joins { "topology:it:dead-letters" } else { "dead" };
        let Value::Array(letters) = self.call(&["XRANGE", key, "-", "+"]) else { panic!("no stream {key}") };
        let key_of = |letter: &Value| {
            let Value::Array(parts) = letter else { panic!("{letter:?}") };
            match field(&parts[1], "field:k") {
                Value::Bulk(k) => String::from_utf8(k).expect("text"),
                other => panic!("{other:?}"),
            }
        };
        letters.iter().map(key_of).collect()
    }

    /// Kills one of the workers.
    fn kill_worker(&self) {
        let shown = self.call(&["TOPOLOGY", "SHOW", "it"]);
        let Value::Array(workers) = field(&shown, "workers") else { panic!("no workers: {shown:?}") };
        let Value::Integer(pid) = field(&workers[workers.len() - 1], "pid") else {
            panic!("no pid: {shown:?}")
        };
        common::kill(pid);
    }

    fn restart(&mut self, how: &str, part: u64) {
        match how {
            "the server stops" => {
                self.end(libc::SIGTERM);
                self.start();
            }
            "the server is killed" => {
                self.end(libc::SIGKILL);
                self.start();
            }
            "a worker is killed" => self.kill_worker(),
            "it has more workers" => self.rebalance(&["WORKERS", "3"]),
            "it has other executors" => self.rebalance(&["EXECUTORS", "windows", "1"]),
            "the definition is replaced" => self.submit(&["REPLACE"]),
            "a trial takes its place" => {
                assert_eq!(self.call(&["TOPOLOGY", "TRY", "it", &self.definition, "PREFIX", "try:"]), ok());
                self.wait("try:passed");
                let switched = self.call(&["TOPOLOGY", "SWITCH", "it"]);
                assert!(matches!(switched, Value::Integer(1..)), "{switched:?}");
            }
            "it is killed and submitted" => {
                self.kill();
                self.submit(&[]);
            }
            LOCAL => {
                self.kill();
                let mut command = evenkeel();
                command.args(["topology", "run", "it.yaml", "--local"]).current_dir(self.dir.path());
                command.env("EVENKEEL_URL", format!("redis://127.0.0.1:{}", self.port));
                let local = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
                self.put(part, false);
                self.wait("passed");
                end(local);
                return self.submit(&["WORKERS", "3"]);
            }
            "it has fewer workers" => self.rebalance(&["WORKERS", "1"]),
            other => panic!("{other}"),
        }
        self.put(part, true);
        self.wait("passed");
    }

    fn rebalance(&self, how: &[&str]) {
        assert_eq!(self.call(&[&["TOPOLOGY", "REBALANCE", "it"], how].concat()), ok());
    }

    fn kill(&self) {
        assert_eq!(self.call(&["TOPOLOGY", "KILL", "it"]), ok());
        eventually("it is gone", || self.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    }
}

/// Ends a topology that runs here as Ctrl-C does.
fn end(mut local: std::process::Child) {
    let pid = libc::pid_t::try_from(local.id()).expect("a pid");
    // SAFETY: a plain system call on our own child, which is not reaped yet.
    #[allow(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
    let sent = unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(sent, 0);
    assert!(local.wait().expect("it ends").success());
}

fn keys_stay(guarantee: &str) {
    let mut place = Place::new(guarantee);
    place.submit(&[]);
    place.put(0, true);
    place.wait("passed");
    for (part, how) in (1..).zip(RESTARTS) {
        place.restart(how, part);
        let pairs = if place.joins { part * KEYS } else { 0 };
        let windows = if part < RESTARTS.len() as u64 { 0 } else { KEYS };
        let is_whole = || (place.length("pairs"), place.length("windows")) == (pairs, windows);
        eventually(&format!("partners and windows are there after {how}"), is_whole);
    }
    let windows = common::hash(place.port, "windows").into_keys();
    let all = RESTARTS.len() + 1;
    let (counts, sums) = (common::hash(place.port, "n:count"), common::hash(place.port, "s:sum"));
    for k in (0..KEYS).map(|k| format!("k{k}")) {
        let number = |of: &BTreeMap<String, String>| of[&k].parse::<f64>().expect("a number");
        let (count, sum) = (number(&counts) as usize, number(&sums));
        if place.joins {
            assert_eq!((count, sum), (all, all as f64 * 1.5), "{k}");
        } else {
            assert!(count >= all && sum >= all as f64 * 1.5, "{k}: {count}, {sum}");
        }
    }
    assert_eq!(place.call(&["EXISTS", "forbidden"]), Value::Integer(0));
    let mut expected: Vec<String> = (0..KEYS).map(|k| format!("k{k} 0 {all} {all}")).collect();
    expected.sort();
    assert_eq!(windows.collect::<Vec<_>>(), expected);
}

#[test]
fn windows_and_counts_of_several_tasks_are_whole_over_each_restart() {
    keys_stay("at-least-once");
}

#[test]
fn with_exactly_once_windows_joins_and_counts_of_several_tasks_are_those_of_a_plain_program() {
    keys_stay(EXACTLY);
}
