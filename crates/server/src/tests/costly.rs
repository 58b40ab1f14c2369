//! Every command with the arguments that cost most: where it runs, on collections of some thousand elements. `costly.txt` has the table; how long
//! others wait beside a million elements is measured by `cargo test -p evenkeel --test costly -- --ignored`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::{Harness, Wire};
use crate::command::Flags;
use crate::long::EFFORT_MAX;
use crate::table::commands;

/// A row of the table.
struct Row {
    name: &'static str,
    place: &'static str,
    changes: bool,
    /// The command, or why it is not run.
    rest: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("costly.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let row = |line: &'static str| {
        let (name, rest) = line.split_once(' ').expect("a name");
        let (place, rest) = rest.split_once(' ').expect("a place");
        Row { name, place: place.trim_end_matches('!'), changes: place.ends_with('!'), rest }
    };
    lines.map(row).collect()
}

/// The words of a command, on collections of `n` elements.
fn words(text: &str, n: usize) -> Vec<String> {
    let mut words = Vec::new();
    for word in text.split(' ') {
        match word {
            "{members}" => words.extend((0..n).map(|i| format!("m{i}"))),
            "{keys}" => words.extend((0..n).map(|i| format!("k{i}"))),
            "{fields}" => words.extend((0..n).flat_map(|i| [format!("m{i}"), "v".to_owned()])),
            "{scored}" => words.extend((0..n).flat_map(|i| [i.to_string(), format!("m{i}")])),
            "{zeros}" => words.extend((0..n).flat_map(|i| ["0".to_owned(), format!("m{i}")])),
            "{ids}" => words.extend((1..=n).map(|i| format!("{i}-1"))),
            word => words.push(word.replace("{n}", &n.to_string())),
        }
    }
    words
}

impl Harness {
    fn costly(&self, wire: &mut Wire, text: &str, n: usize) -> String {
        self.long(wire, &[words(text, n)])
    }

    /// Makes the keys of the table, and copies by which they are made anew.
    fn fill(&self, wire: &mut Wire, n: usize) {
        for text in [
            "HSET h {fields}",
            "SADD s {members}",
            "SADD s2 {members}",
            "ZADD z {scored}",
            "ZADD z2 {scored}",
            "ZADD zl {zeros}",
            "RPUSH l {members}",
            "SET short text",
            "SET number 7",
            "PFADD hll {members}",
            "PFADD hll2 a b c",
        ] {
            self.costly(wire, text, n);
        }
        self.long(wire, &[vec!["SET".to_owned(), "str".to_owned(), "v".repeat(n)]]);
        let entries: Vec<Vec<String>> = (1..=n).map(|i| words(&format!("XADD x {i}-1 f v"), 0)).collect();
        let places = (0..n).map(|i| words(&format!("GEOADD geo {} {} m{i}", i % 180, i / 180 % 80), 0));
        self.long(wire, &entries);
        self.long(wire, &places.collect::<Vec<_>>());
        for text in ["XGROUP CREATE x g 0", "XREADGROUP GROUP g c STREAMS x >", "XGROUP CREATE x g2 0"] {
            self.costly(wire, text, n);
        }
        for key in KEYS {
            self.costly(wire, &format!("COPY {key} kept:{key} REPLACE"), n);
        }
    }

    /// Makes the keys anew that `text` names.
    fn renew(&self, wire: &mut Wire, text: &str, n: usize) {
        let named: BTreeSet<&str> = text.split(' ').collect();
        for key in KEYS.iter().filter(|key| named.contains(*key)) {
            self.costly(wire, &format!("COPY kept:{key} {key} REPLACE"), n);
        }
        self.costly(wire, "DEL d new", n);
        self.long(wire, &[words("SELECT 1", 0), words("FLUSHDB", 0), words("SELECT 0", 0)]);
    }
}

const KEYS: [&str; 12] = ["str", "h", "s", "s2", "z", "z2", "zl", "geo", "l", "x", "hll", "number"];

#[test]
fn table_of_costly_commands_has_every_command() {
    let told: BTreeSet<&str> = rows().iter().map(|row| row.name).collect();
    let all: BTreeSet<&str> = commands().entries().iter().map(|entry| entry.command.name).collect();
    assert_eq!(all.difference(&told).collect::<Vec<_>>(), Vec::<&&str>::new(), "missing in costly.txt");
    assert_eq!(told.difference(&all).collect::<Vec<_>>(), Vec::<&&str>::new(), "no such commands");
    for Row { name, place, changes, .. } in rows() {
        assert!(["here", "parts", "beside", "none"].contains(&place), "{name} {place}");
        let entry = commands().find_full(name.as_bytes()).expect("it is one");
        assert!(!changes || entry.command.flags.has(Flags::WRITE), "{name} changes nothing");
    }
}

/// SUNIONSTORE of a million members, and 60 commands like it, ran as a whole on a loop: work was judged by the number of keys.
#[test]
fn command_that_touches_many_elements_runs_beside_its_loop() {
    const N: usize = 6_000;
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.fill(&mut wire, N);
    let mut wrong = Vec::new();
    for Row { name, place, changes, rest } in rows().into_iter().filter(|row| row.place != "none") {
        let count =
            || (harness.server.long.count(), harness.server.stats.chunked_replies.load(Ordering::Relaxed));
        let before = count();
        let reply = harness.costly(&mut wire, rest, N);
        let after = count();
        let found = match (after.0 > before.0, after.1 > before.1) {
            (true, _) => "beside",
            (false, true) => "parts",
            (false, false) => "here",
        };
        let touched = harness.server.stats.touched_max.swap(0, Ordering::Relaxed);
        let is_bounded = touched <= 2 * EFFORT_MAX;
        if found != place || reply.starts_with('-') || reply.is_empty() || !is_bounded {
            wrong.push(format!("{name} {found}, not {place}; touched {touched}; {reply:.80}"));
        }
        if changes {
            harness.renew(&mut wire, rest, N);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
