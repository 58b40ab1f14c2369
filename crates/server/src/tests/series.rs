//! Commands of a pipeline that are made as one change answer, and leave, what they would have one by one.

use std::time::Duration;

use proptest::prelude::*;
use resp::encode_command;

use super::Harness;
use crate::settings::Threshold;

/// Commands that have series, with what makes each of them leave one: options, errors, keys of other types, values of all sizes.
fn command() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![2 => of_lists(), 2 => of_streams(), 3 => of_hashes_and_sets(), 2 => of_sorted_sets()]
}

fn words<'a>(command: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    command.into_iter().map(str::to_owned).collect()
}

/// A command that takes elements away from a key, with or without how many.
fn pops(name: &str, key: &str, count: Option<i32>) -> Vec<String> {
    [words([name, key]), count.map(|count| count.to_string()).into_iter().collect()].concat()
}

fn of_lists() -> impl Strategy<Value = Vec<String>> {
    let list = prop_oneof![4 => Just("list"), 1 => Just("other"), 1 => Just("stream")];
    prop_oneof![
        (prop::sample::select(vec!["LPUSH", "RPUSH"]), list.clone(), prop::collection::vec(value(), 1..3))
            .prop_map(|(name, key, values)| [words([name, key]), values].concat()),
        (
            prop::sample::select(vec!["LPOP", "RPOP", "rpop"]),
            list,
            prop_oneof![5 => Just(None), 1 => (0..4).prop_map(Some)]
        )
            .prop_map(|(name, key, count)| pops(name, key, count)),
    ]
}

fn of_streams() -> impl Strategy<Value = Vec<String>> {
    let stream = prop_oneof![6 => Just("stream"), 1 => Just("list")];
    let group = prop_oneof![6 => Just("read"), 1 => Just("other")];
    let id = prop_oneof![9 => (0..40_u32).prop_map(|n| format!("7-{n}")), 1 => value()];
    prop_oneof![
        (stream, prop::sample::select(vec!["*", "*", "*", "*", "1-*", "9-9", "MAXLEN"]), value()).prop_map(
            |(key, id, value)| match id {
                "MAXLEN" => words(["XADD", key, "MAXLEN", "3", "*", "field", &value]),
                id => words(["XADD", key, id, "field", &value]),
            }
        ),
        (
            prop::sample::select(vec!["XADD", "XADD", "XGROUP", "XREADGROUP", "XACK", "XACK", "XACK"]),
            group,
            prop::collection::vec(id, 1..4),
        )
            .prop_map(|(name, group, ids)| match name {
                "XADD" => words(["XADD", "events", "7-*", "field", &ids[0]]),
                "XGROUP" => words(["XGROUP", "CREATE", "events", group, "0", "MKSTREAM"]),
                "XREADGROUP" =>
                    words(["XREADGROUP", "GROUP", group, "reader", "COUNT", "5", "STREAMS", "events", ">"]),
                name => [words([name, "events", group]), ids].concat(),
            }),
    ]
}

fn of_hashes_and_sets() -> impl Strategy<Value = Vec<String>> {
    let hashed = prop_oneof![6 => Just("hash"), 1 => Just("stream")];
    let set = prop_oneof![6 => Just("set"), 1 => Just("hash")];
    prop_oneof![
        (prop::sample::select(vec!["HSET", "HSET", "HDEL"]), hashed.clone(), 0..40_u32, value()).prop_map(
            |(name, key, field, value)| match name {
                "HSET" => words(["HSET", key, &field.to_string(), &value]),
                name => words([name, key, &field.to_string()]),
            }
        ),
        (hashed, 0..6_u32, prop::sample::select(vec!["1", "-7", "9223372036854775807", "x"]))
            .prop_map(|(key, field, by)| words(["HINCRBY", key, &field.to_string(), by])),
        (prop::sample::select(vec!["SADD", "SADD", "SREM"]), set, 0..60_u32, 0..4_usize).prop_map(
            |(name, key, member, more)| {
                let members = (0..=more).map(|more| "m".repeat(1 + more * 40) + &member.to_string());
                words([name, key]).into_iter().chain(members).collect()
            }
        ),
    ]
}

fn of_sorted_sets() -> impl Strategy<Value = Vec<String>> {
    let scored = prop_oneof![6 => Just("scored"), 1 => Just("set")];
    prop_oneof![
        (
            prop::sample::select(vec!["ZADD", "ZADD", "ZADD NX", "ZINCRBY", "ZREM"]),
            scored.clone(),
            prop::sample::select(vec!["1", "-2.5", "inf", "-inf", "7", "x"]),
            0..60_u32,
            prop_oneof![9 => Just(0), 1 => 1_000..12_000_usize],
        )
            .prop_map(|(name, key, score, member, more)| {
                let member = format!("member {member}{}", "m".repeat(more));
                match name {
                    "ZREM" => words(["ZREM", key, &member]),
                    "ZADD NX" => words(["ZADD", key, "NX", score, &member]),
                    name => words([name, key, score, &member]),
                }
            }),
        (
            prop::sample::select(vec!["ZPOPMIN", "ZPOPMAX"]),
            scored,
            prop_oneof![5 => Just(None), 1 => (-1..4).prop_map(Some)]
        )
            .prop_map(|(name, key, count)| pops(name, key, count)),
    ]
}

/// Of 0 bytes to more than a series may have.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![8 => 0..100_usize, 3 => 100..3_000_usize, 1 => 3_000..40_000_usize]
        .prop_flat_map(|len| (Just(len), 0..10_u8))
        .prop_map(|(len, digit)| char::from(b'0' + digit).to_string().repeat(len))
}

/// What is left, in an order that does not depend on hashes.
fn contents(harness: &mut Harness) -> Vec<String> {
    let mut wire = harness.connect();
    let read = |line: &str, wire: &mut _| {
        let reply = harness.line(wire, line);
        let mut lines: Vec<&str> = reply.split("\r\n").collect();
        if line.starts_with('S') || line.starts_with('H') {
            lines.sort_unstable();
        }
        lines.join("\n")
    };
    [
        "LRANGE list 0 -1",
        "LRANGE other 0 -1",
        "XRANGE stream - +",
        "XINFO STREAM stream",
        "XINFO GROUPS events",
        "XPENDING events read - + 1000",
        "HGETALL hash",
        "SMEMBERS set",
        "ZRANGE scored 0 -1 WITHSCORES",
        "DBSIZE",
        "INFO commandstats",
    ]
    .map(|line| read(line, &mut wire))
    .map(|reply| if reply.contains("usec") { calls(&reply) } else { reply })
    .to_vec()
}

/// How often each command was called, from what INFO says.
fn calls(reply: &str) -> String {
    let of_line = |line: &str| {
        let [name, calls, .., failed] = line.split([',', ':']).collect::<Vec<_>>()[..] else {
            return String::new();
        };
        if name.contains("info") { String::new() } else { format!("{name} {calls} {failed}\n") }
    };
    reply.lines().filter(|line| line.starts_with("cmdstat")).map(of_line).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn pipeline_answers_and_leaves_what_its_commands_do_one_by_one(
        runs in prop::collection::vec(
            (
                command(),
                prop_oneof![1 => Just(1_usize), 3 => 2..40_usize],
                proptest::option::weighted(0.2, 0..40_usize),
            ),
            1..12,
        ),
        others in prop::collection::vec(command(), 0..30),
        mixes in any::<bool>(),
    ) {
        // a command several times over, with values that differ in length, and perhaps once with its key alone; and between them any
        let mut commands: Vec<Vec<String>> = Vec::new();
        for (run, (command, times, short)) in runs.into_iter().enumerate() {
            for nth in 0..times {
                let mut command = command.clone();
                let last = command.len() - 1;
                if last > 1 && nth % 3 == 1 && command[last].len() < 1_000 {
                    command[last].push_str(&nth.to_string());
                }
                if short == Some(nth) {
                    command.truncate(2);
                }
                commands.push(command);
            }
            commands.extend(others.get(run).filter(|_| mixes).cloned());
        }
        let (mut alone, mut together) = (Harness::new(), Harness::new());
        let (mut wire, mut expected) = (alone.connect(), String::new());
        let mut pipeline = Vec::new();
        for command in &commands {
            expected += &alone.raw(&mut wire, command);
            encode_command(&mut pipeline, command);
        }
        let mut wire = together.connect();
        let replies = together.feed(&mut wire, &pipeline);
        prop_assert_eq!(String::from_utf8_lossy(&replies), expected);
        prop_assert_eq!(contents(&mut together), contents(&mut alone));
    }
}

#[test]
fn who_waits_for_the_key_is_served_between_two_commands_of_a_pipeline() {
    let mut harness = Harness::new();
    let (mut waiting, mut wire) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waiting, "BLPOP list 0"), "");
    let mut pipeline = Vec::new();
    ["a", "b", "c"].iter().for_each(|value| encode_command(&mut pipeline, &["LPUSH", "list", value]));
    let replies = harness.feed(&mut wire, &pipeline);
    assert_eq!(String::from_utf8_lossy(&replies), ":1\r\n:1\r\n:2\r\n");
    assert_eq!(String::from_utf8_lossy(&harness.deliver(&mut waiting)), "*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
}

#[test]
fn monitor_and_slowlog_show_each_command_of_a_series() {
    let mut harness = Harness::new();
    let (mut operator, mut watching, mut wire) = (harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut watching, "MONITOR"), "+OK\r\n");
    let pipeline = b"RPUSH q a\r\nRPUSH q b\r\nLPOP q\r\nLPOP q\r\nLPOP q\r\n";
    let replies = harness.feed(&mut wire, pipeline);
    assert_eq!(String::from_utf8_lossy(&replies), ":1\r\n:2\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n");
    let shown = String::from_utf8_lossy(&harness.deliver(&mut watching)).into_owned();
    assert_eq!(
        shown.matches("\"RPUSH\" \"q\"").count() + shown.matches("\"LPOP\" \"q\"").count(),
        5,
        "{shown}"
    );
    assert_eq!(harness.line(&mut watching, "QUIT"), "+OK\r\n");
    harness.end(watching);
    let again = harness.feed(&mut wire, pipeline);
    assert_eq!(again, replies);
    let stats = harness.line(&mut operator, "INFO commandstats");
    assert!(stats.contains("cmdstat_rpush:calls=4,") && stats.contains("cmdstat_lpop:calls=6,"), "{stats}");
}

/// A series was one entry, with the arguments of its first command.
#[test]
fn slowlog_has_each_command_of_a_series() {
    let mut harness = Harness::with(|settings| settings.slowlog_threshold = Threshold::From(Duration::ZERO));
    let mut wire = harness.connect();
    harness.feed(&mut wire, b"RPUSH q a\r\nRPUSH q b\r\nRPUSH q c\r\n");
    let shown = harness.line(&mut wire, "SLOWLOG GET 10");
    for value in ["a", "b", "c"] {
        assert!(shown.contains(&format!("$5\r\nRPUSH\r\n$1\r\nq\r\n$1\r\n{value}\r\n")), "{shown}");
    }
}
