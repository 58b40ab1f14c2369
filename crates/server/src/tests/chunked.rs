//! Replies with large collections: sent in parts, of one moment, in order with what follows.

use reactor::Step;
use resp::encode_command;

use super::{Harness, Wire};

const COUNT: usize = 20_000;

fn command(words: &[String]) -> Vec<u8> {
    let mut request = Vec::new();
    encode_command(&mut request, words);
    request
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Collections of the types whose first letters are `keys`, each at that.
fn fill(harness: &Harness, wire: &mut Wire, keys: &str) {
    for from in (0..COUNT).step_by(500) {
        let verbs = ["HSET h", "SADD s", "RPUSH l", "ZADD z"];
        for verb in verbs.into_iter().filter(|verb| keys.contains(&verb[verb.len() - 1..])) {
            let mut request = words(verb);
            for at in from..from + 500 {
                match verb {
                    "HSET h" => request.extend([format!("field-{at:08}"), format!("value-{at:012}")]),
                    "ZADD z" => request.extend([at.to_string(), format!("member-{at:012}")]),
                    _ => request.push(format!("element-{at:012}")),
                }
            }
            harness.feed(wire, &command(&request));
        }
        for at in (from..from + 500).filter(|_| keys.contains('x')) {
            harness.feed(wire, &command(&words(&format!("XADD x {}-1 field value-{at}", at + 1))));
        }
    }
}

/// What is written in parts by `line` while `between` runs, each part followed by it; and what comes after.
fn in_parts(harness: &Harness, wire: &mut Wire, line: &str, mut between: impl FnMut(usize)) -> String {
    let request = [command(&words(line)), command(&words("ECHO behind"))].concat();
    let (mut written, mut parts) = (harness.turn(wire, &request), 1);
    while wire.step == Step::Yield {
        between(parts);
        written.extend(harness.turn(wire, b""));
        parts += 1;
    }
    assert!(parts > 1, "{line}: {parts} parts");
    let written = String::from_utf8(written).expect("text");
    written.strip_suffix("$6\r\nbehind\r\n").expect("what follows is behind").to_owned()
}

fn bulks(reply: &str) -> Vec<&str> {
    let mut lines = reply.split("\r\n").skip(1);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') {
            found.extend(lines.next());
        }
    }
    found
}

#[test]
fn reply_in_parts_is_of_the_moment_when_it_began_and_in_order() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    fill(&harness, &mut wire, "hslzx");
    // what is read first in a transaction is made whole
    let mut whole = |line: &str| {
        harness.line(&mut other, "MULTI");
        harness.line(&mut other, line);
        harness.long(&mut other, &[words("EXEC")]).strip_prefix("*1\r\n").expect("one reply").to_owned()
    };
    let lines = [
        "HGETALL h",
        "HKEYS h",
        "HVALS h",
        "SMEMBERS s",
        "LRANGE l 10 -10",
        "ZRANGE z 0 -1 WITHSCORES",
        "ZREVRANGE z 3 -1",
        "ZRANGEBYSCORE z 5 (19990 LIMIT 2 19000",
        "XRANGE x - +",
        "XREVRANGE x + -",
    ];
    let wanted: Vec<String> = lines.iter().map(|line| whole(line)).collect();
    for (line, wanted) in lines.iter().zip(&wanted) {
        let key = line.split(' ').nth(1).expect("a key");
        let found = in_parts(&harness, &mut wire, line, |part| {
            // others change and rename it meanwhile; the names change back
            let change = match key {
                "h" => format!("HSET h field-{:08} other new-{part} value", part * 997 % COUNT),
                "s" => format!("SREM s element-{:012}", part * 997 % COUNT),
                "l" => format!("LSET l {} other", part * 997 % COUNT),
                "z" => format!("ZADD z 7 member-{:012}", part * 997 % COUNT),
                _ => format!("XDEL x {}-1", part * 997 % COUNT + 1),
            };
            for line in [change, format!("RENAME {key} elsewhere"), format!("RENAME elsewhere {key}")] {
                harness.feed(&mut other, &command(&words(&line)));
            }
        });
        let (head, wanted_head) = (found.split("\r\n").next(), wanted.split("\r\n").next());
        assert_eq!(head, wanted_head, "{line}");
        let (mut found, mut wanted) = (bulks(&found), bulks(wanted));
        if matches!(key, "h" | "s") {
            found.sort_unstable();
            wanted.sort_unstable();
        }
        assert!(found == wanted, "{line}: {} of {}", found.len(), wanted.len());
        // as it was
        harness.line(&mut wire, &format!("DEL {key}"));
        fill(&harness, &mut wire, key);
    }
    // all of it may go at once
    let found = in_parts(&harness, &mut wire, "HGETALL h", |_| {
        harness.line(&mut other, "DEL h");
        while harness.server.store.tend(1_000).is_some_and(|at| at <= harness.server.store.now().unix()) {}
    });
    assert_eq!(bulks(&found).len(), 2 * COUNT);
    assert_eq!(harness.line(&mut wire, "HLEN h"), ":0\r\n");
}

#[test]
fn protocol_3_has_maps_and_pairs_and_a_flush_ends_the_connection() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    fill(&harness, &mut wire, "hslzx");
    harness.line(&mut wire, "HELLO 3");
    let found = in_parts(&harness, &mut wire, "HGETALL h", |_| {});
    assert!(found.starts_with("%20000\r\n"), "{}", &found[..20]);
    let found = in_parts(&harness, &mut wire, "SMEMBERS s", |_| {});
    assert!(found.starts_with("~20000\r\n"), "{}", &found[..20]);
    let found = in_parts(&harness, &mut wire, "ZRANGE z 0 -1 WITHSCORES", |_| {});
    assert!(
        found.starts_with("*20000\r\n*2\r\n$19\r\nmember-000000000000\r\n,0\r\n*2\r\n"),
        "{}",
        &found[..60]
    );
    harness.turn(&mut wire, &command(&words("LRANGE l 0 -1")));
    assert_eq!(wire.step, Step::Yield);
    harness.line(&mut other, "FLUSHALL");
    harness.turn(&mut wire, b"");
    assert_eq!(wire.step, Step::Kill, "nothing else can follow half a reply");
    let stats = harness.line(&mut other, "INFO stats");
    assert!(stats.contains("replies_in_parts:4\r\nreplies_in_parts_broken:1\r\n"), "{stats}");
}

#[test]
fn reply_is_whole_where_messages_may_come_between_and_in_scripts() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    fill(&harness, &mut wire, "hslzx");
    let script = ["EVAL".into(), "return #redis.call('HGETALL', 'h')".into(), "0".into()].to_vec();
    assert_eq!(harness.long(&mut wire, &[script]), ":40000\r\n");
    harness.line(&mut wire, "HELLO 3");
    harness.line(&mut wire, "SUBSCRIBE channel");
    let reply = harness.long(&mut wire, &[words("HGETALL h")]);
    assert!(reply.starts_with("%20000\r\n") && wire.step == Step::Continue);
    let mut wire = harness.connect();
    harness.line(&mut wire, "CLIENT REPLY OFF");
    harness.long(&mut wire, &[words("HGETALL h")]);
    assert_eq!((wire.step, harness.sent(&mut wire)), (Step::Continue, String::new()));
}
