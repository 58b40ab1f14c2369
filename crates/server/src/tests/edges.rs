//! Every number that a command takes, at the edges of its types; and patterns made to be slow.
//!
//! The classes of CVE-2021-29477 and its relatives, and of CVE-2022-36021: the commands come from the table, so a new row
//! is tried as soon as it is there.

use std::time::Duration;

use commands::command::Command;
use reactor::Step;

use super::Harness;
use crate::arguments::{self, Argument, Kind};
use crate::table::commands;

const EDGES: [&str; 16] = [
    "0",
    "-1",
    "1",
    "2147483647",
    "2147483648",
    "2147483649",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "4294967297",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
];

/// Waiting for ever at an edge is right, and stopping the server, too.
const LEFT_OUT: [&str; 8] =
    ["wait", "waitaof", "debug|sleep", "client|pause", "client|kill", "shutdown", "backup", "monitor"];

/// All ways to write `argument`, with `number` wherever it takes one.
fn ways(argument: &Argument<'_>, number: &str) -> Vec<Vec<String>> {
    let token = argument.token.map(str::to_owned);
    let with_token = |words: Vec<String>| token.iter().cloned().chain(words).collect::<Vec<_>>();
    let ways = match &argument.kind {
        Kind::Key(_) => vec![vec!["key".to_owned()]],
        Kind::Token => vec![Vec::new()],
        Kind::Value("integer" | "unix-time" | "double") => vec![vec![number.to_owned()]],
        // A text may be read as a number, too.
        Kind::Value(_) => vec![vec!["v".to_owned()], vec![number.to_owned()]],
        Kind::OneOf(parts) => parts.iter().flat_map(|part| ways(part, number)).collect(),
        Kind::Block(parts) => vec![all_of(parts, number)],
    };
    ways.into_iter().map(with_token).collect()
}

/// The first way of each.
fn all_of(parts: &[Argument<'_>], number: &str) -> Vec<String> {
    parts.iter().flat_map(|part| ways(part, number).swap_remove(0)).collect()
}

/// Commands of `row` that give `number` to everything that takes one: required arguments in all ways, and each
/// optional one beside the required ones.
fn commands_of(row: &Command, number: &str) -> Vec<Vec<String>> {
    let arguments = arguments::parse(row.args).expect("a row follows the grammar");
    let name: Vec<String> = row.name.split('|').map(str::to_owned).collect();
    let mut commands = vec![name.clone()];
    for tried in 0..arguments.len().max(1) {
        let Some(special) = arguments.get(tried) else { break };
        for way in ways(special, number) {
            let mut command = name.clone();
            for (index, argument) in arguments.iter().enumerate() {
                match index == tried {
                    true => command.extend(way.clone()),
                    false if argument.optional => {}
                    false => command.extend(ways(argument, number).swap_remove(0)),
                }
            }
            commands.push(command);
        }
    }
    commands
}

#[test]
fn every_number_of_every_command_is_answered_at_the_edges_of_its_types() {
    let mut harness = Harness::new();
    let mut count = 0;
    for row in commands().entries().iter().map(|entry| entry.command) {
        if LEFT_OUT.contains(&row.name) || row.is_container() {
            continue;
        }
        for edge in EDGES {
            for command in commands_of(row, edge) {
                let mut wire = harness.connect();
                harness.raw(&mut wire, &["SET", "key", edge]);
                let mut reply = harness.raw(&mut wire, &command);
                while matches!(row.name, "auth" | "hello") && wire.step == Step::Park {
                    // One of many wrong passwords.
                    reply += &String::from_utf8_lossy(&harness.after(&mut wire, Duration::from_millis(50)));
                }
                while row.name == "function|restore" && wire.step == Step::Park {
                    // What a payload holds runs beside the loop.
                    reply += &String::from_utf8_lossy(&harness.deliver(&mut wire));
                    std::thread::yield_now();
                }
                let silent = matches!(row.name, "quit" | "client|reply");
                assert!(!reply.is_empty() || silent, "{command:?} got no reply");
                assert_ne!(wire.step, Step::Park, "{command:?} waits");
                harness.raw(&mut wire, &["CLIENT", "UNPAUSE"]);
                harness.raw(&mut wire, &["PERSIST", "key"]);
                count += 1;
            }
        }
    }
    assert!(count > 3_000, "{count} commands were tried");
}

/// `*[` and a million bytes on 40,000 bytes took 28 s.
#[test]
fn patterns_beyond_the_limit_are_refused_by_every_command_that_takes_one() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let pattern = format!("*[{}]c", "b".repeat(1_000_000));
    let refusal = "-ERR a pattern of 1000004 B is longer than the limit of 1024 B\r\n";
    for command in [
        &["KEYS"][..],
        &["SCAN", "0", "MATCH"],
        &["PSUBSCRIBE", "a*"],
        &["PUBSUB", "CHANNELS"],
        &["CONFIG", "GET", "maxmemory"],
        &["COMMAND", "LIST", "FILTERBY", "PATTERN"],
    ] {
        let command: Vec<&str> = command.iter().copied().chain([&*pattern]).collect();
        assert_eq!(harness.raw(&mut wire, &command), refusal, "{}", command[0]);
    }
    assert_eq!(harness.line(&mut wire, "PUBSUB NUMPAT"), ":0\r\n", "PSUBSCRIBE is refused whole");
    let many = vec!["x"; 129].join(" ");
    let refusal = "-ERR 129 patterns are more than the limit of 128\r\n";
    assert_eq!(harness.line(&mut wire, &format!("CONFIG GET {many}")), refusal);
}

#[test]
fn patterns_made_to_be_slow_match_nothing_they_should_not() {
    let mut harness = Harness::new();
    let (mut wire, mut listener) = (harness.connect(), harness.connect());
    let text = "a".repeat(20_000);
    let pattern = format!("{}b", "a*".repeat(500));
    assert_eq!(harness.raw(&mut wire, &["SET", &text, "v"]), "+OK\r\n");
    assert_eq!(harness.raw(&mut wire, &["KEYS", &pattern]), "*0\r\n");
    assert_eq!(harness.raw(&mut wire, &["SCAN", "0", "MATCH", &pattern]), "*2\r\n$1\r\n0\r\n*0\r\n");
    harness.raw(&mut listener, &["PSUBSCRIBE", &pattern]);
    assert_eq!(harness.raw(&mut wire, &["PUBLISH", &text, "m"]), ":0\r\n");
    assert_eq!(harness.raw(&mut wire, &["CONFIG", "GET", &pattern]), "*0\r\n");
    assert_eq!(harness.raw(&mut wire, &["COMMAND", "LIST", "FILTERBY", "PATTERN", &pattern]), "*0\r\n");
}

/// Found by the differential test: Redis computes the distance to the top in 64 bits.
#[test]
fn number_that_is_too_far_below_a_field_saturates_at_its_top_as_in_redis() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for (number, expected) in [("-9223372036854775792", -16), ("-9223372036854775793", 15), ("-17", -16)] {
        let line = format!("BITFIELD key OVERFLOW SAT SET i5 0 {number} GET i5 0");
        let reply = harness.line(&mut wire, &line);
        assert!(reply.ends_with(&format!(":{expected}\r\n")), "{number}: {reply}");
    }
}
