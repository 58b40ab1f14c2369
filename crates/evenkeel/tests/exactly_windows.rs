//! Windows and joins with exactly-once on a server, whose workers are killed: results equal what a plain program computes.
#![allow(clippy::disallowed_methods, reason = "tests talk to the server")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use common::{Server, bulk, eventually, hash, kill, ok, receive};
use resp::Value;

/// A server with the topology `it`.
struct Place {
    _data: tempfile::TempDir,
    _programs: tempfile::TempDir,
    server: Server,
}

/// A component of a definition: id, words and declared fields of its command, tasks.
type Part<'a> = (&'a str, &'a str, &'a str, u32);

/// An exactly-once definition with two workers, of spouts and bolts; `streams` are `from to stream grouping`.
fn definition(spouts: &[Part<'_>], bolts: &[(Part<'_>, &str)], streams: &[&str]) -> String {
    let component = |(id, words, fields, tasks): &Part<'_>, class: &str, more: &str| {
        format!(
            "- id: {id}\n  className: org.apache.storm.flux.wrappers.{class}\n  constructorArgs: [[evenkeel, component, {words}], [{fields}]]\n  parallelism: {tasks}\n{more}"
        )
    };
    let spouts: String = spouts.iter().map(|part| component(part, "spouts.FluxShellSpout", "")).collect();
    let bolts: String =
        bolts.iter().map(|(part, more)| component(part, "bolts.FluxShellBolt", more)).collect();
    let streams = streams.iter().map(|line| {
        let [from, to, stream, grouping] =
            line.splitn(4, ' ').collect::<Vec<_>>().try_into().expect("four parts");
        format!("- {{from: {from}, to: {to}, grouping: {{streamId: {stream}, type: {grouping}}}}}\n")
    });
    let streams: String = streams.collect();
    format!(
        "name: it\nconfig: {{evenkeel.guarantee: exactly-once, topology.workers: 2, topology.max.spout.pending: 50, topology.message.timeout.secs: 5}}\nspouts:\n{spouts}bolts:\n{bolts}streams:\n{streams}"
    )
}

impl Place {
    fn new() -> Self {
        let (data, programs) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let of_programs = ["--topologies-dir", programs.path().to_str().expect("text")];
        let server = Server::start(data.path(), &of_programs);
        Self { _data: data, _programs: programs, server }
    }

    fn submit(&self, definition: &str) {
        assert_eq!(self.server.call(&["TOPOLOGY", "SUBMIT", "it", definition]), ok(), "{definition}");
    }

    fn number(&self, command: &[&str]) -> u64 {
        match self.server.call(command) {
            Value::Integer(number) => number as u64,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    /// Appends entries to a stream.
    fn fill(&self, stream: &str, entries: &[Vec<(&str, String)>]) {
        let mut connection =
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.server.port)).expect("it connects");
        for chunk in entries.chunks(500) {
            let mut requests = Vec::new();
            for entry in chunk {
                let fields = entry.iter().flat_map(|(field, value)| [*field, value]);
                let words: Vec<&str> = ["XADD", stream, "*"].into_iter().chain(fields).collect();
                resp::encode_command(&mut requests, &words);
            }
            connection.write_all(&requests).expect("it is sent");
            chunk.iter().for_each(|_| assert!(matches!(receive(&mut connection), Ok(Value::Bulk(_)))));
        }
    }

    /// Processes of the workers that run.
    fn workers(&self) -> Vec<i64> {
        let shown = self.server.call(&["TOPOLOGY", "SHOW", "it"]);
        let Value::Array(workers) = field(&shown, "workers") else { panic!("no workers: {shown:?}") };
        let pids = workers.iter().map(|worker| field(worker, "pid"));
        pids.filter_map(|pid| if let Value::Integer(pid) = pid { Some(pid) } else { None })
            .filter(|pid| *pid > 0)
            .collect()
    }

    /// Kills a worker each time that `seen` has grown by a part of `all`, then waits for `all`.
    fn kill_until(&self, all: u64, seen: impl Fn() -> u64) {
        for round in 0..5 {
            eventually(&format!("it goes on in round {round}, at {}", seen()), || {
                seen() >= (round + 1) * all / 7
            });
            eventually("both workers run", || self.workers().len() == 2);
            assert!(seen() < all, "it was killed in the middle");
            kill(self.workers()[round as usize % 2]);
        }
        eventually(&format!("{all} are seen, not {}", seen()), || seen() >= all);
    }
}

/// The value of `field` in a map.
fn field(map: &Value, name: &str) -> Value {
    let Value::Array(items) = map else { panic!("no map: {map:?}") };
    let mut pairs = items.chunks_exact(2).filter(|pair| pair[0] == bulk(name));
    pairs.next().unwrap_or_else(|| panic!("no {name} in {map:?}"))[1].clone()
}

#[test]
fn windows_in_hashes_count_each_tuple_once_while_workers_are_killed() {
    const ENTRIES: u64 = 8_000;
    let place = Place::new();
    let time_and_word = |n: u64| (n * 7 % 10_000, n % 31);
    let entries = (0..ENTRIES).map(time_and_word);
    let entries: Vec<_> =
        entries.map(|(t, word)| vec![("t", t.to_string()), ("word", format!("w{word}"))]).collect();
    place.fill("in", &entries);
    let bolts = [
        (
            (
                "minutes",
                "window, --by, word, --time, t, --size-ms, \"1000\", --slide-ms, \"500\", --prefix, \"w:\"",
                "start, word, n",
                3,
            ),
            "",
        ),
        (("seen", "stream-sink, seen", "nothing", 2), ""),
    ];
    let streams = ["source minutes default FIELDS, args: [word]", "minutes seen default SHUFFLE"];
    place.submit(&definition(&[("source", "stream-spout, in", "t, word", 2)], &bolts, &streams));
    let mut plain: BTreeMap<u64, BTreeMap<String, u64>> = BTreeMap::new();
    let mut results = 0;
    for (t, word) in (0..ENTRIES).map(time_and_word) {
        let last = t - t % 500;
        for start in [Some(last), last.checked_sub(500)].into_iter().flatten() {
            *plain.entry(start).or_default().entry(format!("w{word}")).or_default() += 1;
            results += 1;
        }
    }
    place.kill_until(results, || place.number(&["XLEN", "seen"]));
    assert_eq!(place.number(&["XLEN", "seen"]), results, "each once");
    for (start, numbers) in plain {
        let key = format!("w:{start}");
        let kept = hash(place.server.port, &key).into_iter();
        let kept: BTreeMap<String, u64> =
            kept.map(|(word, n)| (word, n.parse().expect("a number"))).collect();
        assert_eq!(kept, numbers, "window {start}");
        let left_ms = place.number(&["PTTL", &key]);
        assert!((1..=86_400_000).contains(&left_ms), "it ends in {left_ms} ms");
    }
}
