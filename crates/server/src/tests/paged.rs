//! Hashes and sets that have leaves: each command answers as if they had none, and no leaf outlives its collection.

use std::collections::{BTreeMap, BTreeSet};

use super::{Harness, Wire};

const FIELDS: usize = 2_000;

fn field(number: usize) -> String {
    format!("field-{number:05}")
}

/// A server with hash `h` and set `s` of many elements.
fn start() -> (Harness, Wire) {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for from in (0..FIELDS).step_by(250) {
        let fields = from..from + 250;
        let pairs: Vec<String> = fields.clone().map(|at| format!("{} {at}", field(at))).collect();
        assert_eq!(harness.line(&mut wire, &format!("HSET h {}", pairs.join(" "))), ":250\r\n");
        let members: Vec<String> = fields.map(field).collect();
        assert_eq!(harness.line(&mut wire, &format!("SADD s {}", members.join(" "))), ":250\r\n");
    }
    assert!(leaves(&harness) > 20, "{}", leaves(&harness));
    (harness, wire)
}

/// Leaves that are left when those of what is gone have gone.
fn leaves(harness: &Harness) -> u64 {
    let store = &harness.server.store;
    while store.leaf_report().swept > 0 {
        store.tend(100);
        while store.drive() {}
    }
    store.leaf_report().leaves
}

/// The strings of a reply that is an array or map of them.
fn strings(reply: &str) -> Vec<String> {
    let mut lines = reply.split("\r\n").skip(1);
    let mut strings = Vec::new();
    while let (Some(_), Some(text)) = (lines.next().filter(|head| !head.is_empty()), lines.next()) {
        strings.push(text.to_owned());
    }
    strings
}

fn pairs(strings: &[String]) -> BTreeMap<String, String> {
    strings.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

#[test]
fn each_command_answers_as_if_there_were_no_leaves() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("OBJECT ENCODING h", "$9\r\nhashtable\r\n"),
            ("TYPE s", "+set\r\n"),
            ("HLEN h", ":2000\r\n"),
            ("SCARD s", ":2000\r\n"),
            ("HGET h field-01234", "$4\r\n1234\r\n"),
            ("HGET h none", "$-1\r\n"),
            ("HMGET h field-00001 none field-01999", "*3\r\n$1\r\n1\r\n$-1\r\n$4\r\n1999\r\n"),
            ("HINCRBY h field-00007 3", ":10\r\n"),
            ("HINCRBYFLOAT h field-00007 0.5", "$4\r\n10.5\r\n"),
            ("HSETNX h field-00007 x", ":0\r\n"),
            ("HDEL h field-00007 field-00008 none", ":2\r\n"),
            ("HEXISTS h field-00007", ":0\r\n"),
            ("HSET h field-00007 7 field-00008 8", ":2\r\n"),
            ("SMISMEMBER s field-00001 none", "*2\r\n:1\r\n:0\r\n"),
            ("SADD few field-00001 field-00002 other", ":3\r\n"),
            ("SINTERCARD 2 s few", ":2\r\n"),
            ("SDIFF few s", "*1\r\n$5\r\nother\r\n"),
            ("SMOVE s few field-00003", ":1\r\n"),
            ("SCARD s", ":1999\r\n"),
            ("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("SADD h x", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("HSET s x y", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
            ("SISMEMBER h x", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        ],
    );
    let all: BTreeMap<String, String> = (0..FIELDS).map(|at| (field(at), at.to_string())).collect();
    assert_eq!(pairs(&strings(&harness.line(&mut wire, "HGETALL h"))), all);
    let random = strings(&harness.line(&mut wire, "HRANDFIELD h 5 WITHVALUES"));
    assert!(pairs(&random).iter().all(|(name, value)| all.get(name) == Some(value)));
    for _ in 0..50 {
        let popped = harness.line(&mut wire, "SPOP s");
        let name = popped.split("\r\n").nth(1).unwrap();
        assert_eq!(harness.line(&mut wire, &format!("SISMEMBER s {name}")), ":0\r\n");
    }
    assert_eq!(harness.line(&mut wire, "SCARD s"), ":1949\r\n");
}

#[test]
fn scan_meets_each_element_that_stays_once_while_leaves_come_and_go() {
    let (harness, mut wire) = start();
    let (mut cursor, mut met, mut step) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = harness.line(&mut wire, &format!("HSCAN h {cursor} COUNT 40 NOVALUES"));
        let mut lines = reply.split("\r\n");
        cursor = lines.nth(2).unwrap().to_owned();
        met.extend(lines.skip(1).skip(1).step_by(2).filter(|name| !name.is_empty()).map(str::to_owned));
        if cursor == "0" {
            break;
        }
        // first it grows to the double, then most of it goes
        let change = |at: usize| match step {
            0..20 => format!("HSET h new-{step}-{at} 1"),
            _ => format!("HDEL h {} new-{}-{at}", field(2 * (step % 20 * 50 + at) + 1), step % 20),
        };
        (0..100).for_each(|at| _ = harness.line(&mut wire, &change(at)));
        step += 1;
    }
    assert!(step > 20, "{step}");
    let stay: BTreeSet<String> = (0..FIELDS).step_by(2).map(field).collect();
    let met: Vec<String> = met.into_iter().filter(|name| stay.contains(name)).collect();
    assert_eq!(met.len(), stay.len());
    assert_eq!(met.into_iter().collect::<BTreeSet<_>>(), stay);
}

#[test]
fn copies_are_equal_and_no_leaf_outlives_its_collection() {
    let (harness, mut wire) = start();
    let all = pairs(&strings(&harness.line(&mut wire, "HGETALL h")));
    for (command, key) in
        [("COPY h copy", "copy"), ("RENAME copy name", "name"), ("COPY name h REPLACE", "h")]
    {
        harness.line(&mut wire, command);
        assert_eq!(pairs(&strings(&harness.line(&mut wire, &format!("HGETALL {key}")))), all, "{command}");
    }
    harness.expect(
        &mut wire,
        &[
            ("MULTI", "+OK\r\n"),
            ("HSET h more 1", "+QUEUED\r\n"),
            ("HLEN h", "+QUEUED\r\n"),
            ("DEL h", "+QUEUED\r\n"),
            ("HSET h few 1", "+QUEUED\r\n"),
            ("EXEC", "*4\r\n:1\r\n:2001\r\n:1\r\n:1\r\n"),
            ("HGETALL h", "*2\r\n$3\r\nfew\r\n$1\r\n1\r\n"),
            ("HEXPIRE name 100 FIELDS 1 field-00001", "*1\r\n:1\r\n"),
            ("HLEN name", ":2000\r\n"),
            ("HPERSIST name FIELDS 1 field-00001", "*1\r\n:1\r\n"),
            ("HSET name more 1", ":1\r\n"),
            ("HLEN name", ":2001\r\n"),
            ("EXPIRE s 10", ":1\r\n"),
        ],
    );
    assert!(leaves(&harness) > 20, "name and s");
    harness.clock.advance(std::time::Duration::from_secs(11));
    harness.expect(&mut wire, &[("EXISTS s", ":0\r\n"), ("SET name x", "+OK\r\n")]);
    assert_eq!(leaves(&harness), 0);
}

/// The reply to a command that may run beside the loop.
fn long(harness: &Harness, wire: &mut Wire, line: &str) -> String {
    harness.long(wire, &[line.split(' ').map(str::to_owned).collect()])
}

#[test]
fn some_elements_by_chance_are_of_some_leaves() {
    let (harness, mut wire) = start();
    let all: BTreeSet<String> = (0..FIELDS).map(field).collect();
    for (count, told) in [(1, 1), (7, 7), (60, 60), (1_500, 1_500), (2_000, 2_000), (9_000, 2_000)] {
        let members = strings(&long(&harness, &mut wire, &format!("SRANDMEMBER s {count}")));
        let distinct: BTreeSet<String> = members.iter().cloned().collect();
        assert!(members.len() == told && distinct.len() == told && distinct.is_subset(&all), "{count}");
        let fields = strings(&long(&harness, &mut wire, &format!("HRANDFIELD h {count} WITHVALUES")));
        let found = pairs(&fields);
        assert!(fields.len() == 2 * told && found.len() == told, "{count}");
        assert!(found.iter().all(|(name, value)| *name == field(value.parse().expect("a number"))));
        let again = strings(&long(&harness, &mut wire, &format!("SRANDMEMBER s -{count}")));
        assert!(again.len() == count && again.iter().all(|member| all.contains(member)), "-{count}");
    }
    harness.expect(
        &mut wire,
        &[("SRANDMEMBER s 0", "*0\r\n"), ("HRANDFIELD h 0", "*0\r\n"), ("SPOP s 0", "*0\r\n")],
    );
    let mut popped = BTreeSet::new();
    for left in (0..FIELDS).step_by(20).rev() {
        let members = strings(&harness.line(&mut wire, "SPOP s 20"));
        assert_eq!(members.len(), 20, "as many as there are");
        popped.extend(members);
        assert_eq!(harness.line(&mut wire, "SCARD s"), format!(":{left}\r\n"));
    }
    assert_eq!(popped, all, "each once");
}

#[test]
fn collection_is_one_value_again_when_it_is_small() {
    let (harness, mut wire) = start();
    for at in 0..FIELDS - 3 {
        harness.line(&mut wire, &format!("HDEL h {}", field(at)));
        harness.line(&mut wire, &format!("SREM s {}", field(at)));
    }
    assert_eq!(leaves(&harness), 0);
    harness.expect(&mut wire, &[("HLEN h", ":3\r\n"), ("SCARD s", ":3\r\n"), ("FLUSHALL", "+OK\r\n")]);
    assert_eq!(leaves(&harness), 0);
}

#[test]
fn info_counts_leaves_and_those_that_are_still_to_go() {
    let (mut harness, mut wire) = start();
    let figure = |harness: &mut Harness, wire: &mut Wire, name: &str| -> u64 {
        let info = harness.line(wire, "INFO stats");
        let mut lines = info.split("\r\n").filter_map(|line| line.strip_prefix(&format!("{name}:")));
        lines.next().expect("it is there").parse().expect("a number")
    };
    let before = leaves(&harness);
    assert_eq!(figure(&mut harness, &mut wire, "leaves"), before);
    assert!(figure(&mut harness, &mut wire, "leaves_hot_bytes") > 2_000 * 11);
    assert_eq!(figure(&mut harness, &mut wire, "leaves_swept"), 0);
    assert_eq!(harness.line(&mut wire, "DEL h"), ":1\r\n");
    assert!(figure(&mut harness, &mut wire, "leaves_swept") > 10);
    let after = leaves(&harness);
    assert!(after < before);
    assert_eq!(figure(&mut harness, &mut wire, "leaves"), after);
    assert_eq!(figure(&mut harness, &mut wire, "leaves_swept"), 0);
}

/// A change that leaves the number of elements and bytes as it was writes no root.
#[test]
fn change_of_a_leaf_alone_is_seen_by_who_watches_the_key() {
    let (mut harness, mut wire) = start();
    let mut other = harness.connect();
    for (change, seen) in
        [("HSET h field-00007 8", true), ("HINCRBY h field-00008 1", true), ("HGET h field-00008", false)]
    {
        harness.expect(&mut wire, &[("WATCH h s", "+OK\r\n")]);
        let newest = harness.server.store.newest_seq().0;
        harness.line(&mut other, change);
        assert_eq!(
            harness.server.store.newest_seq().0 - newest,
            u64::from(seen),
            "{change}: one record, or none"
        );
        let result = if seen { "*-1\r\n" } else { "*1\r\n+PONG\r\n" };
        harness.expect(&mut wire, &[("MULTI", "+OK\r\n"), ("PING", "+QUEUED\r\n"), ("EXEC", result)]);
    }
    // the same in a transaction of many changes, and in one that changes the root too
    harness.expect(&mut wire, &[("WATCH h", "+OK\r\n")]);
    for line in ["MULTI", "HSET h field-00007 5", "SET other value", "HSET h field-00009 6", "EXEC"] {
        harness.line(&mut other, line);
    }
    harness.expect(&mut wire, &[("MULTI", "+OK\r\n"), ("PING", "+QUEUED\r\n"), ("EXEC", "*-1\r\n")]);
}
