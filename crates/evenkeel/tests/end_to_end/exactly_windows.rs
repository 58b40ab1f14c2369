//! Windows and joins with exactly-once on a server, whose workers are killed: results equal what a plain program computes.
#![allow(clippy::disallowed_methods, reason = "tests talk to the server")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use resp::Value;

use crate::common::{Server, eventually, field, hash, kill, ok, receive};

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

    /// The values of a stream's entries, with spaces between them.
    fn rows(&self, stream: &str) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        };
        let (mut rows, mut after) = (Vec::new(), "-".to_owned());
        loop {
            // Few at a time: a reply is decoded with each byte that comes.
            let range = self.server.call(&["XRANGE", stream, &after, "+", "COUNT", "10"]);
            let Value::Array(entries) = range else { panic!("{range:?}") };
            for entry in &entries {
                let Value::Array(parts) = entry else { panic!("{entry:?}") };
                let Value::Array(fields) = &parts[1] else { panic!("{entry:?}") };
                rows.push(fields.iter().skip(1).step_by(2).map(text).collect::<Vec<_>>().join(" "));
                after = format!("({}", text(&parts[0]));
            }
            if entries.is_empty() {
                return rows;
            }
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

    /// The same when both run.
    fn both_workers(&self) -> Vec<i64> {
        let mut pids = Vec::new();
        eventually("both workers run", || {
            pids = self.workers();
            pids.len() == 2
        });
        pids
    }

    /// Fills the stream `in` in parts, and kills a worker in the midst of each. `seen` says how many of the entries have passed.
    fn fill_and_kill(&self, entries: &[Vec<(&str, String)>], seen: impl Fn() -> u64) {
        for (round, part) in entries.chunks(entries.len().div_ceil(6)).enumerate() {
            let pids = self.both_workers();
            let before = seen();
            self.fill("in", part);
            eventually(&format!("it goes on in round {round}, at {before}"), || seen() > before);
            kill(pids[round % 2]);
        }
        let all = entries.len() as u64;
        eventually(&format!("{all} are seen, not {}", seen()), || seen() >= all);
    }

    /// Kills a worker each time that `seen` has grown by a part of `all`, then waits for `all`.
    fn kill_until(&self, all: u64, seen: impl Fn() -> u64) {
        for round in 0..5 {
            eventually(&format!("it goes on in round {round}, at {}", seen()), || {
                seen() >= (round + 1) * all / 7
            });
            let pids = self.both_workers();
            assert!(seen() < all, "it was killed in the middle");
            kill(pids[round as usize % 2]);
        }
        eventually(&format!("{all} are seen, not {}", seen()), || seen() >= all);
    }
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

/// Windows as a plain program has them: those of `size` that begin each `slide`, or with `gap` sessions.
#[derive(Default)]
struct Plain {
    size: u64,
    slide: u64,
    gap: u64,
    lateness: u64,
    largest: u64,
    /// By value and start: the end, and the number.
    open: BTreeMap<(String, u64), (u64, u64)>,
    results: Vec<String>,
    late: Vec<String>,
}

impl Plain {
    fn add(&mut self, (t, word, n): &(u64, String, u64)) {
        let reached = self.largest.saturating_sub(self.lateness);
        let mut is_counted = false;
        if self.gap > 0 {
            let (mut start, mut end, mut number) = (*t, t + self.gap, *n);
            let touches = |of: &str, from: u64, to: u64| of == word && from < t + self.gap && *t < to;
            for ((_, from), (to, n)) in
                self.open.iter().filter(|((of, from), (to, _))| touches(of, *from, *to))
            {
                (start, end, number) = (start.min(*from), end.max(*to), number + n);
            }
            if end > reached {
                self.open.retain(|(of, from), (to, _)| !touches(of, *from, *to));
                self.open.insert((word.clone(), start), (end, number));
                is_counted = true;
            }
        } else {
            let starts = (0..=*t / self.slide).map(|k| k * self.slide).filter(|start| start + self.size > *t);
            for start in starts.filter(|start| start + self.size > reached) {
                self.open.entry((word.clone(), start)).or_insert((start + self.size, 0)).1 += n;
                is_counted = true;
            }
        }
        if !is_counted {
            self.late.push(format!("{t} {word} {n}"));
        }
        self.largest = self.largest.max(*t);
        let reached = self.largest.saturating_sub(self.lateness);
        let ended = self.open.extract_if(.., |_, (end, _)| *end <= reached);
        let mut ended: Vec<_> = ended.map(|((word, start), (end, n))| (end, start, word, n)).collect();
        ended.sort_unstable();
        self.results
            .extend(ended.into_iter().map(|(end, start, word, n)| format!("{start} {end} {word} {n}")));
    }
}

/// Tuples whose times grow, with others up to 100 ms before them.
fn tuples(count: u64) -> Vec<(u64, String, u64)> {
    (0..count).map(|k| (k * 2 + k * 7_919 % 100, format!("w{}", k * 31 % 17), k % 5)).collect()
}

fn as_entries(tuples: &[(u64, String, u64)]) -> Vec<Vec<(&'static str, String)>> {
    let entry = |(t, word, n): &(u64, String, u64)| {
        vec![("t", t.to_string()), ("word", word.clone()), ("n", n.to_string())]
    };
    tuples.iter().map(entry).collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

/// One task each: tuples have one order, so results, their order and late tuples follow from the input. Beside it a bolt counts by panes.
#[test]
fn closing_windows_end_once_each_in_their_order_while_workers_are_killed() {
    const ENTRIES: u64 = 6_000;
    let place = Place::new();
    let tuples = tuples(ENTRIES);
    let results = "start, end, word, n";
    let late = "  configMethods: [{name: setNamedStream, args: [late, [t, word, n]]}]\n";
    let window = |id: &str, more: &str| {
        format!("closing-window, --by, word, --id, t, --field, n, --prefix, \"{id}:\", {more}")
    };
    let in_time = "--time, t, --lateness-ms, \"10\"";
    let sliding = window("sliding", &format!("{in_time}, --size-ms, \"60\", --slide-ms, \"30\""));
    let sessions = window("sessions", &format!("{in_time}, --gap-ms, \"30\""));
    let panes = window("panes", "--count, \"6\", --every, \"2\"");
    let sinks = ["passed", "sliding-out", "sliding-late", "sessions-out", "sessions-late", "panes-out"];
    let commands = sinks.map(|sink| format!("stream-sink, {sink}"));
    let mut bolts = vec![
        (("sliding", &*sliding, results, 1), late),
        (("sessions", &*sessions, results, 1), late),
        (("panes", &*panes, results, 1), ""),
    ];
    bolts.extend(sinks.iter().zip(&commands).map(|(sink, words)| ((*sink, &**words, "nothing", 1), "")));
    let streams = [
        "source passed default SHUFFLE",
        "source sliding default SHUFFLE",
        "source sessions default SHUFFLE",
        "source panes default SHUFFLE",
        "sliding sliding-out default SHUFFLE",
        "sliding sliding-late late SHUFFLE",
        "sessions sessions-out default SHUFFLE",
        "sessions sessions-late late SHUFFLE",
        "panes panes-out default SHUFFLE",
    ];
    place.submit(&definition(&[("source", "stream-spout, in", "t, word, n", 1)], &bolts, &streams));
    place.fill_and_kill(&as_entries(&tuples), || place.number(&["XLEN", "passed"]));
    let plain = |plain: Plain| {
        let mut plain = plain;
        tuples.iter().for_each(|tuple| plain.add(tuple));
        assert!(!plain.late.is_empty() && plain.results.len() > 1_000, "{}", plain.results.len());
        plain
    };
    let sliding = plain(Plain { size: 60, slide: 30, lateness: 10, ..Plain::default() });
    assert_eq!(place.rows("sliding-out"), sliding.results);
    assert_eq!(place.rows("sliding-late"), sliding.late);
    let sessions = plain(Plain { gap: 30, lateness: 10, ..Plain::default() });
    assert_eq!(sorted(place.rows("sessions-out")), sorted(sessions.results));
    assert_eq!(place.rows("sessions-late"), sessions.late);
    let mut panes: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut expected = Vec::new();
    for (_, word, n) in &tuples {
        let all = panes.entry(word).or_default();
        all.push(*n);
        if let (Some(start), 0) = (all.len().checked_sub(6), all.len() % 2) {
            let sum = all[start..].iter().sum::<u64>();
            expected.push(format!("{start} {} {word} {sum}", all.len()));
        }
    }
    assert_eq!(place.rows("panes-out"), expected);
}

/// Several tasks: none is late, so each window's number follows from the input.
#[test]
fn closing_windows_of_several_tasks_have_what_a_plain_program_has_while_workers_are_killed() {
    const ENTRIES: u64 = 6_000;
    let place = Place::new();
    let tuples = tuples(ENTRIES);
    let mut entries = as_entries(&tuples);
    // Each task of the spout has some of them for each task of the windows.
    let last = (0..400).map(|k| (10_000_000, format!("w{}", k % 17), 0));
    entries.extend(as_entries(&last.collect::<Vec<_>>()));
    let window = |id: &str, more: &str| {
        format!(
            "closing-window, --by, word, --id, t, --time, t, --field, n, --prefix, \"{id}:\", --lateness-ms, \"200\", --idle-ms, \"31622400000\", {more}"
        )
    };
    let (tumbling, sessions) =
        (window("tumbling", "--size-ms, \"100\""), window("sessions", "--gap-ms, \"30\""));
    let results = "start, end, word, n";
    let bolts = [
        (("tumbling", &*tumbling, results, 3), ""),
        (("sessions", &*sessions, results, 2), ""),
        (("passed", "stream-sink, passed", "nothing", 2), ""),
        (("tumbling-out", "stream-sink, tumbling-out", "nothing", 2), ""),
        (("sessions-out", "stream-sink, sessions-out", "nothing", 1), ""),
    ];
    let streams = [
        "source passed default SHUFFLE",
        "source tumbling default FIELDS, args: [word]",
        "source sessions default FIELDS, args: [word]",
        "tumbling tumbling-out default SHUFFLE",
        "sessions sessions-out default SHUFFLE",
    ];
    place.submit(&definition(&[("source", "stream-spout, in", "t, word, n", 2)], &bolts, &streams));
    place.fill_and_kill(&entries, || place.number(&["XLEN", "passed"]));
    let plain = |plain: Plain| {
        let mut plain = plain;
        let end = (10_000_000, "end".to_owned(), 0);
        tuples.iter().chain([&end]).for_each(|tuple| plain.add(tuple));
        assert!(plain.late.is_empty());
        sorted(plain.results)
    };
    assert_eq!(
        sorted(place.rows("tumbling-out")),
        plain(Plain { size: 100, slide: 100, lateness: 200, ..Plain::default() })
    );
    assert_eq!(
        sorted(place.rows("sessions-out")),
        plain(Plain { gap: 30, lateness: 200, ..Plain::default() })
    );
    let open = place.number(&["HLEN", "tumbling:0:windows"]);
    assert!(open <= 17, "windows that have ended are gone, and {open} are there");
}

/// Both sides read the same stream, so each tuple's partner is itself, in the order of its key.
#[test]
fn each_tuple_is_joined_once_or_told_once_while_workers_are_killed() {
    const ENTRIES: u64 = 4_000;
    let place = Place::new();
    let entries = (0..ENTRIES).map(|n| vec![("k", format!("k{}", n * 31 % 101)), ("n", n.to_string())]);
    let more = "  configMethods: [{name: setNamedStream, args: [unmatched, [source, key, values]]}, {name: addComponentConfig, args: [topology.tick.tuple.freq.secs, 1]}]\n";
    let join = |id: &str, within_ms: &str| {
        format!("join, left, right, --by, k, --prefix, \"{id}:\", --within-ms, \"{within_ms}\"")
    };
    let (all, brief, joined) = (join("all", "86400000"), join("brief", "20"), "k, n, k2, n2");
    let bolts = [
        (("all", &*all, joined, 3), more),
        (("brief", &*brief, joined, 2), more),
        (("all-out", "stream-sink, all-out", "nothing", 2), ""),
        (("brief-out", "stream-sink, brief-out", "nothing", 1), ""),
        (("brief-left", "stream-sink, brief-left", "nothing", 1), ""),
    ];
    let streams = [
        "left all default FIELDS, args: [k]",
        "right all default FIELDS, args: [k]",
        "left brief default FIELDS, args: [k]",
        "right brief default FIELDS, args: [k]",
        "all all-out default SHUFFLE",
        "brief brief-out default SHUFFLE",
        "brief brief-left unmatched SHUFFLE",
    ];
    let spouts = [("left", "stream-spout, in", "k, n", 1), ("right", "stream-spout, in", "k, n", 1)];
    place.submit(&definition(&spouts, &bolts, &streams));
    let entries: Vec<_> = entries.collect();
    place.fill_and_kill(&entries, || place.number(&["XLEN", "all-out"]));
    let row = |n: u64| format!("k{} {n}", n * 31 % 101);
    let expected = (0..ENTRIES).map(|n| format!("{0} {0}", row(n)));
    assert_eq!(sorted(place.rows("all-out")), sorted(expected.collect()));
    for task in 0..3 {
        assert_eq!(place.number(&["EXISTS", &format!("all:{task}:tuples")]), 0, "none waits");
    }
    let told = || 2 * place.number(&["XLEN", "brief-out"]) + place.number(&["XLEN", "brief-left"]);
    eventually(&format!("all are joined or given up, not {}", told()), || told() >= 2 * ENTRIES);
    let mut seen: Vec<String> = place
        .rows("brief-out")
        .iter()
        .flat_map(|row| {
            let words: Vec<&str> = row.split(' ').collect();
            [format!("left {} {}", words[0], words[1]), format!("right {} {}", words[2], words[3])]
        })
        .collect();
    seen.extend(place.rows("brief-left").iter().map(|row| {
        let n = row.rsplit(['"', ',', '[', ']']).find(|part| !part.is_empty()).expect("a number");
        let words: Vec<&str> = row.split(' ').collect();
        format!("{} {} {n}", words[0], words[1])
    }));
    let all =
        ["left", "right"].iter().flat_map(|side| (0..ENTRIES).map(move |n| format!("{side} {}", row(n))));
    assert_eq!(sorted(seen), sorted(all.collect()), "each once");
}
