//! Options and commands of streams newer than Redis 7.2: replies as its documentation has them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Harness, Wire};

/// A stream `s` with entries 1-0 to 4-0, and groups `g` and `h` from the beginning.
fn filled() -> (Harness, Wire) {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    (1..=4).for_each(|ms| drop(harness.line(&mut wire, &format!("XADD s {ms}-0 f {ms}"))));
    for group in ["g", "h"] {
        assert_eq!(harness.line(&mut wire, &format!("XGROUP CREATE s {group} 0")), "+OK\r\n");
    }
    (harness, wire)
}

fn pending(harness: &Harness, wire: &mut Wire, group: &str) -> String {
    let reply = harness.line(wire, &format!("XPENDING s {group}"));
    reply.split("\r\n").nth(1).unwrap_or_default().to_owned()
}

#[test]
fn xdelex_keeps_drops_or_minds_what_is_pending() {
    let (harness, mut wire) = filled();
    harness.line(&mut wire, "XREADGROUP GROUP g c COUNT 3 STREAMS s >");
    harness.line(&mut wire, "XREADGROUP GROUP h c COUNT 2 STREAMS s >");
    harness.line(&mut wire, "XACK s g 1-0");
    harness.line(&mut wire, "XACK s h 1-0 2-0");
    harness.expect(
        &mut wire,
        &[
            ("XDELEX none IDS 2 1-0 2-0", "*2\r\n:-1\r\n:-1\r\n"),
            // 1-0 is done everywhere, 2-0 is pending in g, 3-0 was not given to h, 4-0 to nobody
            ("XDELEX s ACKED IDS 5 1-0 2-0 3-0 4-0 9-0", "*5\r\n:1\r\n:2\r\n:2\r\n:2\r\n:-1\r\n"),
            ("XLEN s", ":3\r\n"),
            ("XDELEX s IDS 2 2-0 2-0", "*2\r\n:1\r\n:-1\r\n"),
        ],
    );
    assert_eq!(pending(&harness, &mut wire, "g"), ":2", "KEEPREF is the default");
    harness.expect(
        &mut wire,
        &[
            ("XDELEX s IDS 2 2-0 3-0 DELREF", "*2\r\n:-1\r\n:1\r\n"),
            ("XLEN s", ":1\r\n"),
            ("XDELEX s DELREF ACKED IDS 1 1-0", "-ERR syntax error\r\n"),
            ("XDELEX s IDS 2 1-0", "-ERR The `numids` parameter must match the number of arguments\r\n"),
            ("XDELEX s IDS 0 1-0", "-ERR Number of IDs must be a positive integer\r\n"),
            ("XDELEX s IDS 1 x", "-ERR Invalid stream ID specified as stream command argument\r\n"),
        ],
    );
    assert_eq!(pending(&harness, &mut wire, "g"), ":0", "what is pending of entries that are gone goes, too");
    harness.line(&mut wire, "XADD alone 1-0 f v");
    harness.expect(&mut wire, &[("XDELEX alone ACKED IDS 1 1-0", "*1\r\n:1\r\n")]);
}

#[test]
fn xackdel_acknowledges_and_deletes() {
    let (harness, mut wire) = filled();
    harness.line(&mut wire, "XREADGROUP GROUP g c STREAMS s >");
    harness.line(&mut wire, "XREADGROUP GROUP h c COUNT 1 STREAMS s >");
    harness.expect(
        &mut wire,
        &[
            ("XACKDEL none g IDS 1 1-0", "*1\r\n:-1\r\n"),
            ("XACKDEL s none IDS 1 1-0", "*1\r\n:-1\r\n"),
            ("XACKDEL s g ACKED IDS 2 1-0 9-0", "*2\r\n:2\r\n:-1\r\n"),
            ("XACKDEL s h ACKED IDS 1 1-0", "*1\r\n:1\r\n"),
            ("XACKDEL s g KEEPREF IDS 2 2-0 2-0", "*2\r\n:1\r\n:-1\r\n"),
            ("XACKDEL s g DELREF IDS 1 3-0", "*1\r\n:1\r\n"),
            ("XLEN s", ":1\r\n"),
        ],
    );
    assert_eq!(pending(&harness, &mut wire, "g"), ":1");
    assert_eq!(pending(&harness, &mut wire, "h"), ":0");
}

#[test]
fn trimming_minds_references_where_it_is_told_to() {
    let (harness, mut wire) = filled();
    harness.line(&mut wire, "XREADGROUP GROUP g c STREAMS s >");
    harness.line(&mut wire, "XREADGROUP GROUP h c STREAMS s >");
    harness.line(&mut wire, "XACK s g 2-0 3-0");
    harness.line(&mut wire, "XACK s h 2-0 3-0");
    harness.expect(
        &mut wire,
        &[
            ("XTRIM s MINID 3 ACKED", ":1\r\n"),
            ("XTRIM s MAXLEN 1 ACKED", ":1\r\n"),
            ("XADD s ACKED MAXLEN 0 5-0 f 5", "$3\r\n5-0\r\n"),
            ("XLEN s", ":3\r\n"),
            ("XTRIM s DELREF MAXLEN = 2", ":1\r\n"),
            ("XTRIM s MAXLEN 2 KEEPREF DELREF", "-ERR syntax error\r\n"),
        ],
    );
    assert_eq!(pending(&harness, &mut wire, "g"), ":1", "of 4-0");
    harness.expect(&mut wire, &[("XADD s MAXLEN 1 KEEPREF 6-0 f 6", "$3\r\n6-0\r\n"), ("XLEN s", ":1\r\n")]);
    assert_eq!(pending(&harness, &mut wire, "g"), ":1");
}

#[test]
fn xreadgroup_claims_what_is_idle_before_it_reads_on() {
    let (harness, mut wire) = filled();
    harness.line(&mut wire, "XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    harness.clock.advance(Duration::from_millis(50));
    harness.line(&mut wire, "XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    harness.clock.advance(Duration::from_millis(50));
    let claimed = |id: &str, value: &str, idle: u32| {
        format!("*4\r\n$3\r\n{id}\r\n*2\r\n$1\r\nf\r\n$1\r\n{value}\r\n:{idle}\r\n:1\r\n")
    };
    let new =
        |id: &str, value: &str| format!("*4\r\n$3\r\n{id}\r\n*2\r\n$1\r\nf\r\n$1\r\n{value}\r\n:0\r\n:0\r\n");
    let told =
        |entries: &[String]| format!("*1\r\n*2\r\n$1\r\ns\r\n*{}\r\n{}", entries.len(), entries.concat());
    let read = "XREADGROUP GROUP g b COUNT 3 CLAIM 60 STREAMS s >";
    let expected = told(&[claimed("1-0", "1", 100), new("3-0", "3"), new("4-0", "4")]);
    assert_eq!(harness.line(&mut wire, read), expected);
    let read = "XREADGROUP GROUP g b NOACK CLAIM 50 STREAMS s >";
    assert_eq!(harness.line(&mut wire, read), told(&[claimed("2-0", "2", 50)]));
    harness.expect(
        &mut wire,
        &[
            ("XREADGROUP GROUP g b CLAIM 50 STREAMS s >", "*-1\r\n"),
            (
                "XREADGROUP GROUP g b CLAIM x STREAMS s >",
                "-ERR Invalid min-idle-time argument for XREADGROUP\r\n",
            ),
        ],
    );
    assert!(
        harness.line(&mut wire, "XREAD CLAIM 1 STREAMS s 0").starts_with("-ERR The CLAIM option is only")
    );
    assert!(harness.line(&mut wire, "XPENDING s g - + 10 b").starts_with("*4\r\n"), "all are b's");
    harness.line(&mut wire, "XDEL s 1-0");
    harness.clock.advance(Duration::from_secs(1));
    let reply = harness.line(&mut wire, "XREADGROUP GROUP g c CLAIM 0 STREAMS s >");
    assert!(reply.starts_with("*1\r\n*2\r\n$1\r\ns\r\n*3\r\n"), "not the one that was deleted: {reply}");
    assert_eq!(pending(&harness, &mut wire, "g"), ":3");
}

#[test]
fn maxcount_and_maxsize_hold_for_all_streams_together() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for stream in ["s", "t"] {
        for entry in 1..=3 {
            harness.line(&mut wire, &format!("XADD {stream} {entry}-0 f {}", "v".repeat(100)));
        }
        harness.line(&mut wire, &format!("XGROUP CREATE {stream} g 0"));
    }
    let mut entries = |line: &str| harness.line(&mut wire, line).matches("$1\r\nf\r\n").count();
    for (options, told) in [
        ("COUNT 3 MAXCOUNT 4", 4),
        ("MAXCOUNT 2", 2),
        ("COUNT 1 MAXCOUNT 9", 2),
        ("MAXSIZE 65536", 6),
        ("MAXSIZE 1", 1),
        ("MAXSIZE 400", 2),
        ("MAXSIZE 400 MAXCOUNT 1", 1),
    ] {
        assert_eq!(entries(&format!("XREAD {options} STREAMS s t 0 0")), told, "{options}");
    }
    assert_eq!(entries("XREADGROUP GROUP g c COUNT 3 MAXCOUNT 4 STREAMS s t > >"), 4);
    assert_eq!(entries("XREADGROUP GROUP g c MAXCOUNT 3 STREAMS s t 0 0"), 3, "what is pending, too");
    assert_eq!(entries("XREADGROUP GROUP g d MAXSIZE 1 CLAIM 0 STREAMS s t > >"), 1, "and what is claimed");
    assert_eq!(
        entries("XREADGROUP GROUP g c MAXSIZE 9999 STREAMS s t > >"),
        2,
        "what was not told is still new"
    );
    for (line, error) in [
        ("XREAD MAXCOUNT 0 STREAMS s 0", "-ERR MAXCOUNT must be a positive integer\r\n"),
        ("XREAD MAXSIZE -1 STREAMS s 0", "-ERR MAXSIZE must be a positive integer\r\n"),
        ("XREAD COUNT 5 MAXCOUNT 3 STREAMS s 0", "-ERR MAXCOUNT must not be less than COUNT\r\n"),
    ] {
        assert_eq!(harness.line(&mut wire, line), error);
    }
}

#[test]
fn xnack_gives_entries_back_at_once() {
    let (harness, mut wire) = filled();
    harness.line(&mut wire, "XREADGROUP GROUP g a COUNT 3 STREAMS s >");
    let given_back =
        |id: &str, times: i64| format!("*1\r\n*4\r\n$3\r\n{id}\r\n$0\r\n\r\n:-1\r\n:{times}\r\n");
    harness.expect(
        &mut wire,
        &[
            ("XNACK s g FAIL IDS 2 1-0 9-0", ":1\r\n"),
            ("XPENDING s g 1 1 9", &given_back("1-0", 1)),
            ("XNACK s g SILENT IDS 1 2-0", ":1\r\n"),
            ("XPENDING s g 2 2 9", &given_back("2-0", 0)),
            ("XNACK s g FATAL IDS 1 3-0", ":1\r\n"),
            ("XPENDING s g 3 3 9", &given_back("3-0", i64::MAX)),
            ("XNACK s g FATAL IDS 1 3-0 RETRYCOUNT 7", ":1\r\n"),
            ("XPENDING s g 3 3 9", &given_back("3-0", 7)),
            ("XNACK s g FAIL IDS 1 4-0", ":0\r\n"),
            ("XNACK s g FAIL IDS 1 4-0 FORCE", ":1\r\n"),
            ("XPENDING s g 4 4 9", &given_back("4-0", 0)),
            ("XPENDING s g", "*4\r\n:4\r\n$3\r\n1-0\r\n$3\r\n4-0\r\n*0\r\n"),
            ("XPENDING s g - + 9 a", "*0\r\n"),
            ("XCLAIM s g b 1000000 1-0 JUSTID", "*1\r\n$3\r\n1-0\r\n"),
            ("XNACK s g MAYBE IDS 1 1-0", "-ERR syntax error\r\n"),
            ("XNACK s x FAIL IDS 1 1-0", "-NOGROUP No such key 's' or consumer group 'x'\r\n"),
            ("XNACK s g FATAL IDS 1 2-0", ":1\r\n"),
        ],
    );
    let reply = harness.line(&mut wire, "XREADGROUP GROUP g b COUNT 1 CLAIM 99999 STREAMS s >");
    assert!(reply.ends_with(&format!(":-1\r\n:{}\r\n", i64::MAX)), "{reply}");
    let reply = harness.line(&mut wire, "XPENDING s g 2 2 9");
    assert!(reply.ends_with(&format!(":{}\r\n", i64::MAX)), "no more than that: {reply}");
}

/// `+` is the last entry that is there; where there is none, it waits as `$` does.
#[test]
fn last_entry_is_read_whatever_the_count_and_is_waited_for() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    let last = "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n2-0\r\n*2\r\n$1\r\nf\r\n$1\r\nb\r\n";
    harness.expect(
        &mut wire,
        &[
            ("XREAD STREAMS s +", "*-1\r\n"),
            ("XADD s 1-0 f a", "$3\r\n1-0\r\n"),
            ("XADD s 2-0 f b", "$3\r\n2-0\r\n"),
            ("XREAD STREAMS s +", last),
            ("XREAD COUNT 5 STREAMS s +", last),
            ("XADD s 3-0 f c", "$3\r\n3-0\r\n"),
            ("XDEL s 3-0", ":1\r\n"),
            ("XREAD STREAMS s +", last),
            ("XGROUP CREATE s g 0", "+OK\r\n"),
        ],
    );
    let refused = harness.line(&mut wire, "XREADGROUP GROUP g c STREAMS s +");
    assert!(refused.starts_with("-ERR The + ID is meaningless in the context of XREADGROUP"), "{refused}");
    assert_eq!(harness.line(&mut wire, "XREAD BLOCK 0 STREAMS empty +"), "");
    harness.expect(&mut other, &[("XADD empty 1-0 f a", "$3\r\n1-0\r\n")]);
    let reply = String::from_utf8(harness.deliver(&mut wire)).expect("text");
    assert!(reply.contains("1-0"), "{reply}");
}

#[test]
fn entries_that_a_producer_names_are_added_once() {
    let (harness, mut wire) = filled();
    let info = |wire: &mut Wire| {
        let reply = harness.line(wire, "XINFO STREAM s");
        let lines: Vec<&str> = reply.split("\r\n").collect();
        let field = |name: &str| {
            let at = lines.iter().position(|line| *line == name)?;
            lines[at + 1].strip_prefix(':')?.parse::<u64>().ok()
        };
        ["idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked", "iids-added", "iids-duplicates"]
            .map(field)
    };
    assert_eq!(info(&mut wire), [None; 6]);
    let first = harness.line(&mut wire, "XADD s IDMP p 1 * f v");
    assert_eq!(harness.line(&mut wire, "XADD s IDMP p 1 * other w"), first);
    assert_ne!(harness.line(&mut wire, "XADD s IDMP q 1 * f v"), first);
    let second = harness.line(&mut wire, "XADD s IDMPAUTO p * f v");
    assert_eq!(harness.line(&mut wire, "XADD s IDMPAUTO p MAXLEN 100 * f v"), second);
    assert_ne!(harness.line(&mut wire, "XADD s IDMPAUTO p * f w"), second);
    harness.expect(&mut wire, &[("XLEN s", ":8\r\n")]);
    assert_eq!(info(&mut wire), [100, 100, 2, 4, 4, 2].map(Some));
    harness.clock.advance(Duration::from_secs(100));
    assert_ne!(harness.line(&mut wire, "XADD s IDMP p 1 * f v"), first, "its time is over");
    assert_eq!(info(&mut wire)[3], Some(2), "p's others are over as well, q's is not looked at");
    harness.expect(
        &mut wire,
        &[
            ("XCFGSET s IDMP-MAXSIZE 2 IDMP-DURATION 9", "+OK\r\n"),
            ("XCFGSET s", "-ERR syntax error\r\n"),
            ("XCFGSET s IDMP-DURATION 86401", "-ERR invalid duration\r\n"),
            ("XCFGSET s IDMP-MAXSIZE 0", "-ERR invalid maxsize\r\n"),
            ("XCFGSET none IDMP-MAXSIZE 1", "-ERR no such key\r\n"),
        ],
    );
    assert_eq!(info(&mut wire), [9, 2, 0, 0, 5, 2].map(Some), "other settings forget all names");
    let third = harness.line(&mut wire, "XADD s IDMP p 1 * f v");
    harness.line(&mut wire, "XADD s IDMP p 2 * f v");
    harness.expect(&mut wire, &[("XCFGSET s IDMP-MAXSIZE 2", "+OK\r\n")]);
    assert_eq!(harness.line(&mut wire, "XADD s IDMP p 1 * f v"), third, "the same settings forget nothing");
    harness.line(&mut wire, "XADD s IDMP p 3 * f v");
    assert_ne!(harness.line(&mut wire, "XADD s IDMP p 1 * f v"), third, "two are known at most");
    assert_eq!(harness.line(&mut wire, "XADD none NOMKSTREAM IDMP p 1 * f v"), "$-1\r\n");
}

/// Each reader of a group that begins with its history looked at all that was pending in the group: n readers at n times what each had. So did XINFO
/// STREAM FULL, however little it was to tell.
#[test]
fn history_and_full_information_look_at_what_they_tell() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for n in 1..=3_000 {
        harness.line(&mut wire, &format!("XADD s {n}-0 f v"));
    }
    harness.line(&mut wire, "XGROUP CREATE s g 0");
    let others = std::iter::repeat_n(("c", 298), 10);
    for (consumer, count) in [("a", 10), ("b", 10)].into_iter().chain(others) {
        harness.line(&mut wire, &format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS s >"));
    }
    assert_eq!(pending(&harness, &mut wire, "g"), ":3000");
    for (line, told) in [
        ("XREADGROUP GROUP g none STREAMS s 0", 0),
        ("XREADGROUP GROUP g b STREAMS s 0", 10),
        ("XREADGROUP GROUP g c COUNT 5 STREAMS s 100", 5),
        ("XREADGROUP GROUP g a COUNT 10 STREAMS s 0", 10),
        // ten entries, what is pending of the group and of each consumer, and four positions
        ("XINFO STREAM s FULL COUNT 10", 10 + 10 + 30 + 4),
    ] {
        harness.server.stats.touched_max.store(0, Ordering::Relaxed);
        let reply = harness.line(&mut wire, line);
        let touched = harness.server.stats.touched_max.load(Ordering::Relaxed);
        assert!(touched < 1_000, "{line}: touched {touched}");
        assert_eq!(reply.matches("-0\r\n").count(), told, "{line}: {reply:.300}");
    }
}
