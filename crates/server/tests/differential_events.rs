//! The same random commands to redis-server 7.0 and to Evenkeel: of each key the same events are told, in the same order.
//!
//! What expires is left out: when that is noticed depends on the moment. `EVENKEEL_DIFFERENTIAL_SEED` and
//! `EVENKEEL_DIFFERENTIAL_COMMANDS` choose a run.

#[path = "differential/dice.rs"]
mod dice;
#[allow(dead_code, reason = "the test of replies uses all of it")]
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/servers.rs"]
mod servers;

use std::collections::{BTreeMap, BTreeSet};

use generate::Generator;
use resp::Value;
use servers::{Evenkeel, Link, Redis, small};
use store::EngineKind;

/// Commands of a run of CI.
const COMMANDS: usize = 30_000;
/// Commands sent before events are compared.
const BATCH: usize = 40;
/// Commands that name fewer keys as missed than Redis, or with an error other ones; and MULTI, where a key may go and be new again.
const MISSES_OTHERWISE: &[&str] = &[
    "multi", "x", "zunion", "zinter", "zdiff", "sort", "geo", "sinter", "sdiff", "sunion", "lcs", "bitop",
    "pf",
];
/// All classes but `x`, and `n` and `m`, which say what commands looked for.
const CLASSES: &str = "KEg$lshzte";

#[test]
fn each_key_has_the_events_of_redis_7_0_in_their_order() {
    run(EngineKind::Memory, seed(11), CLASSES, false);
}

#[test]
fn each_key_has_the_events_of_redis_7_0_from_the_log() {
    run(EngineKind::Log, seed(12), CLASSES, false);
}

#[test]
fn keys_that_are_new_or_missed_are_told_as_in_redis_7_0() {
    run(EngineKind::Memory, seed(13), "KEnm", false);
}

/// What a transaction has changed is told when it commits.
#[test]
fn events_of_commands_that_are_staged_are_those_of_redis_7_0() {
    run(EngineKind::Log, seed(14), CLASSES, true);
}

fn seed(default: u64) -> u64 {
    number("EVENKEEL_DIFFERENTIAL_SEED").unwrap_or(default)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A server with somebody who listens to all events.
struct Told {
    commands: Link,
    listener: Link,
    publisher: Link,
}

/// By channel what was published to it, in order.
type Events = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

impl Told {
    fn new(port: u16, classes: &str, is_staged: bool) -> Self {
        let commands = if is_staged { Link::staging(port) } else { Link::open(port) };
        let (mut listener, mut publisher) = (Link::open(port), Link::open(port));
        publisher.send(&[words(&format!("CONFIG SET notify-keyspace-events {classes}"))]);
        assert_eq!(publisher.reply(), Some(Value::Simple(b"OK".to_vec())));
        listener.send(&[words("PSUBSCRIBE __key*__:*"), words("SUBSCRIBE end")]);
        (0..2).for_each(|_| drop(listener.reply().expect("a confirmation")));
        Self { commands, listener, publisher }
    }

    /// Runs commands; what was told of them.
    fn run(&mut self, batch: &[Vec<Vec<u8>>]) -> Events {
        self.commands.send(batch);
        batch.iter().for_each(|command| {
            let reply = self.commands.reply();
            reply.unwrap_or_else(|| panic!("no reply to {}", generate::shown(command)));
        });
        self.publisher.send(&[words("PUBLISH end of")]);
        self.publisher.reply().expect("a reply");
        let mut events = Events::new();
        loop {
            let Some(Value::Array(parts)) = self.listener.reply() else { panic!("no message") };
            let mut parts = parts.into_iter().map(|part| match part {
                Value::Bulk(bytes) => bytes,
                other => panic!("no string: {other:?}"),
            });
            match parts.next().as_deref() {
                Some(b"message") => return events,
                Some(b"pmessage") => {
                    let (channel, payload) = (parts.nth(1).expect("a channel"), parts.next());
                    events.entry(channel).or_default().push(payload.expect("a payload"));
                }
                other => panic!("no message: {other:?}"),
            }
        }
    }

    fn names(&mut self) -> BTreeSet<Vec<u8>> {
        self.publisher.send(&[words("COMMAND LIST")]);
        let Some(Value::Array(names)) = self.publisher.reply() else { panic!("no list") };
        names
            .into_iter()
            .filter_map(|name| if let Value::Bulk(name) = name { Some(name) } else { None })
            .collect()
    }
}

fn run(engine: EngineKind, seed: u64, classes: &str, is_staged: bool) {
    let count = number("EVENKEEL_DIFFERENTIAL_COMMANDS").map_or(COMMANDS, |count| count as usize);
    println!("seed {seed}, {count} commands, engine {engine:?}");
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(engine)));
    let mut oracle = Told::new(redis.port, classes, false);
    let mut subject = Told::new(evenkeel.port, classes, is_staged);
    let known = oracle.names();
    let mut generator = Generator::new(seed);
    let (mut done, mut told) = (0, 0);
    while done < count {
        let batch: Vec<Vec<Vec<u8>>> =
            (0..BATCH).map(|_| next(&mut generator, &known, is_staged, classes.contains('m'))).collect();
        let (mut expected, mut actual) = (oracle.run(&batch), subject.run(&batch));
        // by event keys of one command may come in another order
        for events in [&mut expected, &mut actual] {
            // Redis 7.0 makes the consumer of XCLAIM where something is claimed, Redis 7.2 and Evenkeel always
            let is_listed = |event: &[u8]| event.starts_with(b"xgroup-") && event.ends_with(b"consumer");
            events
                .retain(|channel, _| !channel.starts_with(b"__keyevent") || !channel.ends_with(b"consumer"));
            events.values_mut().for_each(|told| told.retain(|event| !is_listed(event)));
            events.retain(|_, told| !told.is_empty());
            let by_event = events.iter_mut().filter(|(channel, _)| channel.starts_with(b"__keyevent"));
            by_event.for_each(|(_, keys)| keys.sort());
        }
        told += expected.values().map(Vec::len).sum::<usize>();
        if expected != actual {
            let shown = |events: Option<&Vec<Vec<u8>>>| {
                let events = events.map_or(&[][..], |events| &events[..]);
                events.iter().map(|event| event.escape_ascii().to_string()).collect::<Vec<_>>()
            };
            let channels: BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
            let different =
                channels.into_iter().filter(|channel| expected.get(*channel) != actual.get(*channel));
            for channel in different {
                println!(
                    "{}\n  redis    {:?}\n  evenkeel {:?}",
                    channel.escape_ascii(),
                    shown(expected.get(channel)),
                    shown(actual.get(channel))
                );
            }
            let commands: String = batch.iter().map(|c| format!("  {}\n", generate::shown(c))).collect();
            panic!("seed {seed}: other events of the {BATCH} commands from {done} on:\n{commands}");
        }
        done += batch.len();
    }
    assert!(told > count / 10, "{told} events of {count} commands");
    println!("{told} events");
}

/// The next command that both servers know, and that changes neither who listens nor what is told.
fn next(generator: &mut Generator, known: &BTreeSet<Vec<u8>>, is_staged: bool, looks: bool) -> Vec<Vec<u8>> {
    loop {
        let command = generator.command();
        let name = command[0].to_ascii_lowercase();
        let is_left_out = name.ends_with(b"subscribe")
            || matches!(&name[..], b"publish" | b"spublish" | b"config" | b"client" | b"debug")
            || is_staged && name == b"multi"
            || looks && MISSES_OTHERWISE.iter().any(|start| name.starts_with(start.as_bytes()));
        if known.contains(&name) && !is_left_out {
            return command;
        }
    }
}
