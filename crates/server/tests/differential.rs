//! The same random commands to redis-server 7.0 and to Evenkeel: every reply must be the same, or a listed difference.
//!
//! Commands are drawn from the table, so a new row fails here until the generator knows it or says why not.
//! `EVENKEEL_DIFFERENTIAL_SEED` and `EVENKEEL_DIFFERENTIAL_COMMANDS` choose a run; a failure prints its seed. With `EVENKEEL_ALWAYS_COLD`
//! set, all data is on disk alone when a command runs.

#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/dice.rs"]
mod dice;
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/servers.rs"]
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use compare::Verdict;
use generate::Generator;
use resp::Value;
use servers::{Evenkeel, Link, Redis, always_cold, small};
use store::EngineKind;

/// Commands sent before the replies are read.
const BATCH: usize = 100;
/// Commands whose first difference is reported.
const REPORTED: usize = 12;
/// Patterns of one run.
const PATTERNS: usize = 3_000;
/// A run of CI; more by the environment.
const COMMANDS: usize = 100_000;
/// The same where each command is staged and committed, which takes longer.
const STAGED_COMMANDS: usize = 10_000;
/// The same where each command reads from disk.
const COLD_COMMANDS: usize = 20_000;

#[test]
fn random_commands_get_the_replies_of_redis_7_0_from_memory() {
    run(EngineKind::Memory, seed(1), Way::Plain);
}

#[test]
fn random_commands_get_the_replies_of_redis_7_0_from_the_log() {
    run(EngineKind::Log, seed(2), Way::Plain);
}

/// A range of a sorted set in leaves could not be removed in a transaction: the change named leaves, which a transaction does not keep.
#[test]
fn random_commands_staged_in_transactions_get_the_replies_of_redis_7_0() {
    run(EngineKind::Log, seed(4), Way::Staged);
}

/// Nothing of what a command needs is in memory when it begins, nor what an attempt of it has read when it is executed again.
#[test]
fn random_commands_on_data_that_is_on_disk_alone_get_the_replies_of_redis_7_0() {
    run(EngineKind::Log, seed(5), Way::Cold);
}

/// Patterns against channels, whose names may be any bytes; and, without regard to case, against names of commands.
#[test]
fn random_patterns_match_what_they_match_in_redis_7_0() {
    let seed = seed(3);
    println!("seed {seed}");
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let mut generator = Generator::new(seed);
    let texts: Vec<Vec<u8>> = (0..300).map(|_| generator.glob(b"aabbc-]^")).chain([Vec::new()]).collect();
    let mut listeners = [Link::open(redis.port), Link::open(evenkeel.port)];
    for listener in &mut listeners {
        let command = [&[b"SUBSCRIBE".to_vec()], &texts[..]].concat();
        listener.send(&[command]);
        texts.iter().for_each(|_| drop(listener.reply().expect("a confirmation")));
    }
    let mut links = [Link::open(redis.port), Link::open(evenkeel.port)];
    let names = |names: &[&[u8]]| names.iter().map(|name| name.to_vec()).collect::<Vec<_>>();
    links
        .iter_mut()
        .for_each(|link| link.send(&[names(&[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", b"*"])]));
    let all = links.each_mut().map(|link| items(link.reply()));
    for _ in 0..PATTERNS {
        let pattern = generator.glob(b"aabbc-]]^**?[[\\\\");
        let folded = generator.glob(b"gsetGSET-]^**?[[\\\\");
        let commands = [
            names(&[b"PUBSUB", b"CHANNELS", &pattern]),
            names(&[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", &folded]),
        ];
        links.iter_mut().for_each(|link| link.send(&commands));
        let [expected, actual] = links.each_mut().map(|link| items(link.reply()));
        assert_eq!(actual, expected, "seed {seed}: {}", pattern.escape_ascii());
        let [mut expected, mut actual] = links.each_mut().map(|link| items(link.reply()));
        expected.retain(|name| all[1].contains(name));
        actual.retain(|name| all[0].contains(name));
        assert_eq!(actual, expected, "seed {seed}: {} (folded)", folded.escape_ascii());
    }
}

/// The elements of an array of strings.
fn items(reply: Option<Value>) -> BTreeSet<Vec<u8>> {
    let Some(Value::Array(items)) = reply else { panic!("no array: {reply:?}") };
    let text = |item| match item {
        Value::Bulk(bytes) => bytes,
        other => panic!("no string: {other:?}"),
    };
    items.into_iter().map(text).collect()
}

#[test]
fn every_command_of_the_table_is_generated_or_excused() {
    let mut missing = Vec::new();
    for entry in server::commands().entries() {
        let command = entry.command;
        if !command.is_container() && !generate::knows(command.name) {
            missing.push(command.name);
        }
    }
    assert!(missing.is_empty(), "neither generated nor excused: {missing:?}");
}

/// The next command. One that is staged is sent neither in MULTI nor to a connection that listens, which takes no TX commands.
fn next(generator: &mut Generator, way: Way) -> Vec<Vec<u8>> {
    loop {
        let command = generator.command();
        let name = command[0].to_ascii_lowercase();
        if way != Way::Staged || name != b"multi" && !name.ends_with(b"subscribe") {
            return command;
        }
    }
}

fn seed(default: u64) -> u64 {
    number("EVENKEEL_DIFFERENTIAL_SEED").unwrap_or(default)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// How commands get to Evenkeel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    /// As they are, to data that is on disk alone.
    Cold,
    /// Two of three by TX.DO, each in a transaction of its own.
    Staged,
}

fn run(engine: EngineKind, seed: u64, way: Way) {
    let usual = match way {
        Way::Plain => COMMANDS,
        Way::Cold => COLD_COMMANDS,
        Way::Staged => STAGED_COMMANDS,
    };
    let count = number("EVENKEEL_DIFFERENTIAL_COMMANDS").map_or(usual, |count| count as usize);
    println!("seed {seed}, {count} commands, engine {engine:?}, {way:?}");
    let options = if way == Way::Cold { always_cold(small(engine)) } else { small(engine) };
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(options));
    let mut oracle = Link::open(redis.port);
    let mut subject =
        if way == Way::Staged { Link::staging(evenkeel.port) } else { Link::open(evenkeel.port) };
    let mut generator = Generator::new(seed);
    let (mut done, mut listed) = (0, 0);
    let mut different: BTreeMap<Vec<u8>, String> = BTreeMap::new();
    while done < count && different.len() < REPORTED {
        let batch: Vec<Vec<Vec<u8>>> =
            (0..BATCH.min(count - done)).map(|_| next(&mut generator, way)).collect();
        oracle.send(&batch);
        subject.send(&batch);
        for (index, command) in batch.iter().enumerate() {
            let no_reply = |server| -> ! {
                let before: String = batch.iter().map(|c| format!("  {}\n", generate::shown(c))).collect();
                panic!("seed {seed}: no reply of {server} to number {index} of:\n{before}")
            };
            let Some(expected) = oracle.reply() else { no_reply("redis") };
            let Some(actual) = subject.reply() else { no_reply("evenkeel") };
            match compare::compare(command, &expected, &actual) {
                Verdict::Same => {}
                Verdict::Listed => listed += 1,
                Verdict::Different => {
                    let replies = format!("redis:    {expected:?}\n  evenkeel: {actual:?}");
                    let text =
                        format!("command {}: {}\n  {replies}\n", done + index, generate::shown(command));
                    different.entry(command[0].to_ascii_lowercase()).or_insert(text);
                }
            }
        }
        done += batch.len();
    }
    // After the first difference the two servers may hold different data: the others may follow from it.
    let mut texts: Vec<&String> = different.values().collect();
    texts.sort_by_key(|text| text.split([' ', ':']).nth(1).and_then(|n| n.parse::<usize>().ok()));
    assert!(
        texts.is_empty(),
        "seed {seed}, first differences of each command:\n{}",
        texts.into_iter().cloned().collect::<String>()
    );
    println!("{count} replies the same, {listed} of them by a listed difference");
    if way == Way::Cold {
        let reads = evenkeel.store.log_report().expect("a log").cold_reads;
        assert!(reads > count as u64 / 10, "{reads} reads from disk");
        println!("{reads} reads from disk");
    }
}
