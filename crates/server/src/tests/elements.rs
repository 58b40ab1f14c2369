//! Hashes and sets: what the differential test with Redis does not see, because chance decides or Redis has none of it.

use std::collections::BTreeSet;

use super::{Harness, Wire};

fn bulks(reply: &str) -> Vec<String> {
    let lines: Vec<&str> = reply.split("\r\n").collect();
    let is_head = |line: &str| line.starts_with('$');
    (0..lines.len() - 1).filter(|at| is_head(lines[*at])).map(|at| lines[at + 1].to_owned()).collect()
}

fn filled(harness: &mut Harness, wire: &mut Wire, count: usize) {
    let members: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
    assert_eq!(harness.line(wire, &format!("SADD set {}", members.join(" "))), format!(":{count}\r\n"));
    let pairs: Vec<String> = members.iter().map(|member| format!("{member} v{member}")).collect();
    assert_eq!(harness.line(wire, &format!("HSET hash {}", pairs.join(" "))), format!(":{count}\r\n"));
}

#[test]
fn random_elements_are_distinct_where_asked_and_all_come_sooner_or_later() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    filled(&mut harness, &mut wire, 50);
    for (line, count) in [
        ("SRANDMEMBER set 20", 20),
        ("HRANDFIELD hash 20", 20),
        ("SRANDMEMBER set 50", 50),
        ("HRANDFIELD hash 99", 50),
    ] {
        let found: BTreeSet<String> = bulks(&harness.line(&mut wire, line)).into_iter().collect();
        assert_eq!(found.len(), count, "{line}");
    }
    for line in ["SRANDMEMBER set -400", "HRANDFIELD hash -400"] {
        let found = bulks(&harness.line(&mut wire, line));
        assert_eq!(found.len(), 400);
        assert!(found.iter().collect::<BTreeSet<_>>().len() > 40, "400 draws of 50");
    }
    let pairs = bulks(&harness.line(&mut wire, "HRANDFIELD hash 10 WITHVALUES"));
    assert!(pairs.len() == 20 && pairs.chunks(2).all(|pair| pair[1] == format!("v{}", pair[0])), "{pairs:?}");
    let refused = harness.line(&mut wire, "SRANDMEMBER set -9000000000");
    assert!(refused.starts_with("-ERR"), "no connection could hold it: {refused}");
}

#[test]
fn spop_takes_members_out_until_the_key_is_gone() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    filled(&mut harness, &mut wire, 30);
    let mut popped = BTreeSet::new();
    for line in ["SPOP set", "SPOP set 9", "SPOP set 0", "SPOP set 15"] {
        popped.extend(bulks(&harness.line(&mut wire, line)));
    }
    assert_eq!(popped.len(), 25);
    harness.expect(&mut wire, &[("SCARD set", ":5\r\n")]);
    popped.extend(bulks(&harness.line(&mut wire, "SPOP set 100")));
    assert_eq!(popped.len(), 30);
    harness.expect(&mut wire, &[("EXISTS set", ":0\r\n"), ("SPOP set", "$-1\r\n"), ("SPOP set 3", "*0\r\n")]);
}

/// Each element that is there throughout is told once, however many come and go meanwhile.
#[test]
fn scan_of_a_large_collection_tells_each_element_once() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    filled(&mut harness, &mut wire, 1_000);
    for (command, per_element) in [("SSCAN set", 1), ("HSCAN hash", 2)] {
        let (mut cursor, mut told, mut steps) = ("0".to_owned(), Vec::new(), 0);
        loop {
            let reply = harness.line(&mut wire, &format!("{command} {cursor} COUNT 20"));
            let mut found = bulks(&reply);
            cursor = found.remove(0);
            told.extend(found.chunks(per_element).map(|element| element[0].clone()));
            steps += 1;
            let number = steps.to_string();
            harness.line(&mut wire, &format!("SADD set new{number}"));
            harness.line(&mut wire, &format!("HSET hash new{number} v"));
            harness.line(&mut wire, &format!("SREM set new{}", steps / 2));
            harness.line(&mut wire, &format!("HDEL hash new{}", steps / 2));
            if cursor == "0" {
                break;
            }
        }
        told.retain(|element| element.starts_with('m'));
        assert_eq!(told.len(), 1_000, "{command}");
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>().len(), 1_000, "{command}");
        assert!((40..=60).contains(&steps), "{steps} steps of about 20");
    }
}

#[test]
fn collections_are_copied_moved_renamed_watched_and_expire_as_any_key() {
    let mut harness = Harness::new();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    harness.expect(
        &mut one,
        &[
            ("HSET h a 1 b 2", ":2\r\n"),
            ("EXPIRE h 1000", ":1\r\n"),
            ("HSET h c 3", ":1\r\n"),
            ("TTL h", ":1000\r\n"),
            ("COPY h copy", ":1\r\n"),
            ("HGET copy c", "$1\r\n3\r\n"),
            ("TYPE copy", "+hash\r\n"),
            ("RENAME copy other", "+OK\r\n"),
            ("MOVE other 1", ":1\r\n"),
            ("EXISTS other copy", ":0\r\n"),
            ("SADD s x", ":1\r\n"),
            ("COPY s h REPLACE", ":1\r\n"),
            ("TYPE h", "+set\r\n"),
            ("TTL h", ":-1\r\n"),
            ("WATCH s", "+OK\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SCARD s", "+QUEUED\r\n"),
        ],
    );
    harness.expect(&mut two, &[("SADD s x", ":0\r\n"), ("SADD s y", ":1\r\n")]);
    harness.expect(&mut one, &[("EXEC", "*-1\r\n"), ("SREM s x y", ":2\r\n"), ("EXISTS s", ":0\r\n")]);
    harness.expect(
        &mut one,
        &[
            ("MULTI", "+OK\r\n"),
            ("SADD m a b", "+QUEUED\r\n"),
            ("SREM m a", "+QUEUED\r\n"),
            ("HSET m f v", "+QUEUED\r\n"),
            ("SMEMBERS m", "+QUEUED\r\n"),
            (
                "EXEC",
                "*4\r\n:2\r\n:1\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n*1\r\n$1\r\nb\r\n",
            ),
            ("SELECT 1", "+OK\r\n"),
            ("HLEN other", ":3\r\n"),
            ("TTL other", ":1000\r\n"),
        ],
    );
}

#[test]
fn dump_of_a_collection_restores_it_and_a_damaged_one_is_refused() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    filled(&mut harness, &mut wire, 30);
    for (key, count) in [("set", "SCARD"), ("hash", "HLEN")] {
        let mut request = Vec::new();
        resp::encode_command(&mut request, &["DUMP", key]);
        let reply = harness.feed(&mut wire, &request);
        let start = reply.windows(2).position(|pair| pair == b"\r\n").expect("a bulk string") + 2;
        let payload = &reply[start..reply.len() - 2];
        let mut restore = |payload: &[u8]| {
            let mut request = Vec::new();
            resp::encode_command(&mut request, &[b"RESTORE", &b"copy"[..], b"0", payload, b"REPLACE"]);
            String::from_utf8(harness.feed(&mut wire, &request)).expect("text")
        };
        assert_eq!(restore(payload), "+OK\r\n");
        assert!(restore(&payload[..payload.len() - 1]).starts_with("-ERR DUMP payload"));
        assert!(
            restore(&commands::fuzzing::with_checksum(b"EVK\x01\x02")).starts_with("-ERR DUMP payload"),
            "empty"
        );
        harness.expect(&mut wire, &[(&format!("{count} copy"), ":30\r\n"), ("TTL copy", ":-1\r\n")]);
    }
    harness.expect(&mut wire, &[("HGET copy m7", "$3\r\nvm7\r\n"), ("TYPE copy", "+hash\r\n")]);
}

#[test]
fn commands_of_several_sets_work_in_a_long_transaction() {
    let mut harness = Harness::new();
    harness.server.long.set_from(10);
    let mut wire = harness.connect();
    let mut script: Vec<Vec<String>> = vec![vec!["multi".to_owned()]];
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for n in 0..20 {
        script.push(words(format!("sadd set{n} all only{n}")));
    }
    let keys: Vec<String> = (0..20).map(|n| format!("set{n}")).collect();
    script.push(words(format!("sinter {}", keys.join(" "))));
    script.push(words(format!("sunionstore union {}", keys.join(" "))));
    script.push(words(format!("sdiff {}", keys.join(" "))));
    script.push(words("exec".to_owned()));
    let replies = harness.long(&mut wire, &script);
    let expected = format!("{}*1\r\n$3\r\nall\r\n:21\r\n*1\r\n$5\r\nonly0\r\n", ":2\r\n".repeat(20));
    assert!(replies.ends_with(&expected), "{replies}");
    assert_eq!(harness.server.long.count(), 1);
    let alone = harness.long(&mut wire, &[words(format!("sintercard 20 {} limit 5", keys.join(" ")))]);
    assert_eq!(alone, ":1\r\n");
}

/// A step over a large set meets about as many members as it is asked for: SORT took the first one for all.
#[test]
fn sort_that_does_not_sort_tells_as_many_members_as_its_limit_says() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for members in [1, 100, 5_000, 20_000] {
        for from in (0..members).step_by(1_000) {
            let added = (from..members.min(from + 1_000)).map(|n| format!("member:{n}"));
            harness.raw(
                &mut wire,
                &["SADD".to_owned(), "s".to_owned()].into_iter().chain(added).collect::<Vec<_>>(),
            );
        }
        for (offset, count) in [(0, 1), (0, 500), (0, 2_500), (100, 4_000), (members - 1, 10), (0, -1)] {
            let wanted = if count < 0 { members } else { count.min((members - offset).max(0)) };
            let (offset, count) = (offset.to_string(), count.to_string());
            let command = ["SORT", "s", "BY", "nosort", "LIMIT", &offset, &count].map(str::to_owned).to_vec();
            let reply = harness.long(&mut wire, &[command]);
            assert!(
                reply.starts_with(&format!("*{wanted}\r\n")),
                "{members} members, {offset} {count}: {reply:.20}"
            );
        }
    }
}
