//! Streams: what the differential test with Redis does not see, because of clocks and of who waits.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{Harness, Wire};
use crate::message::Message;

const NOW: &str = "1700000000000";

#[test]
fn entries_are_named_by_the_clock_and_always_grow() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let id = |ms: u64, seq: u64| {
        let text = format!("{ms}-{seq}");
        format!("${}\r\n{text}\r\n", text.len())
    };
    let now: u64 = NOW.parse().expect("a number");
    assert_eq!(harness.line(&mut wire, "XADD s * f v"), id(now, 0));
    assert_eq!(harness.line(&mut wire, "XADD s * f v"), id(now, 1));
    harness.clock.advance(Duration::from_millis(5));
    assert_eq!(harness.line(&mut wire, "XADD s * f v"), id(now + 5, 0));
    assert_eq!(harness.line(&mut wire, &format!("XADD s {}-7 f v", now + 100)), id(now + 100, 7));
    assert_eq!(harness.line(&mut wire, "XADD s * f v"), id(now + 100, 8), "never behind the last");
    assert!(
        harness
            .line(&mut wire, "XADD s 1-1 f v")
            .starts_with("-ERR The ID specified in XADD is equal or smaller")
    );
    harness
        .expect(&mut wire, &[("XLEN s", ":5\r\n"), ("XTRIM s MAXLEN 0", ":5\r\n"), ("EXISTS s", ":1\r\n")]);
    assert_eq!(
        harness.line(&mut wire, "XADD s * f v"),
        id(now + 100, 9),
        "an emptied stream remembers its last"
    );
}

#[test]
fn reader_of_new_entries_waits_for_those_behind_what_there_was_when_it_asked() {
    let mut harness = Harness::new();
    let (mut all, mut from, mut adds) = (harness.connect(), harness.connect(), harness.connect());
    harness.line(&mut adds, "XADD s 1-1 a b");
    assert_eq!(harness.line(&mut all, "XREAD BLOCK 0 COUNT 5 STREAMS none s $ $"), "");
    assert_eq!(harness.line(&mut from, "XREAD BLOCK 0 STREAMS s 2-0"), "");
    // An entry that comes before the other loop looks is not missed, and each reader gets it.
    harness.line(&mut adds, "XADD s 2-0 c d");
    let entry = |id: &str, field: &str, value: &str| {
        format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n{id}\r\n*2\r\n$1\r\n{field}\r\n$1\r\n{value}\r\n")
    };
    assert_eq!(String::from_utf8_lossy(&harness.deliver(&mut all)), entry("2-0", "c", "d"));
    assert_eq!(harness.deliver(&mut from), b"");
    harness.line(&mut adds, "XADD s 3-0 e f");
    assert_eq!(String::from_utf8_lossy(&harness.deliver(&mut from)), entry("3-0", "e", "f"));
    // Woken for another reason, it still waits for what is behind the entry that was the last then.
    assert_eq!(harness.line(&mut all, "XREAD BLOCK 100 STREAMS s $"), "");
    assert_eq!(harness.after(&mut all, Duration::from_millis(100)), b"*-1\r\n");
}

#[test]
fn group_gives_each_entry_to_one_consumer_and_keeps_it_until_it_is_acknowledged() {
    let mut harness = Harness::new();
    let (mut one, mut two, mut adds) = (harness.connect(), harness.connect(), harness.connect());
    harness.expect(&mut adds, &[("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n")]);
    assert_eq!(harness.line(&mut one, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >"), "");
    assert_eq!(harness.line(&mut two, "XREADGROUP GROUP g b BLOCK 0 STREAMS s >"), "");
    harness.line(&mut adds, "XADD s 1-1 f v");
    harness.line(&mut adds, "XADD s 1-2 f v");
    assert!(String::from_utf8_lossy(&harness.deliver(&mut one)).contains("1-1"));
    assert!(String::from_utf8_lossy(&harness.deliver(&mut two)).contains("1-2"));
    harness.clock.advance(Duration::from_secs(10));
    let summary = "*4\r\n:2\r\n$3\r\n1-1\r\n$3\r\n1-2\r\n*2\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$1\r\nb\r\n$1\r\n1\r\n";
    harness.expect(
        &mut adds,
        &[
            ("XPENDING s g", summary),
            ("XPENDING s g IDLE 10000 - + 1 a", "*1\r\n*4\r\n$3\r\n1-1\r\n$1\r\na\r\n:10000\r\n:1\r\n"),
            ("XPENDING s g IDLE 10001 - + 1", "*0\r\n"),
            ("XCLAIM s g b 10001 1-1 JUSTID", "*0\r\n"),
            ("XCLAIM s g b 10000 1-1 JUSTID", "*1\r\n$3\r\n1-1\r\n"),
            ("XAUTOCLAIM s g c 5000 0 COUNT 5 JUSTID", "*3\r\n$3\r\n0-0\r\n*1\r\n$3\r\n1-2\r\n*0\r\n"),
            ("XACK s g 1-1 1-1 9-9", ":1\r\n"),
            ("XPENDING s g - + 9", "*1\r\n*4\r\n$3\r\n1-2\r\n$1\r\nc\r\n:0\r\n:1\r\n"),
            ("XGROUP DELCONSUMER s g c", ":1\r\n"),
        ],
    );
}

#[test]
fn those_who_wait_in_a_group_that_goes_are_told() {
    for (line, code) in [("XGROUP DESTROY s g", "-NOGROUP"), ("DEL s", "-NOGROUP"), ("SET s text", "")] {
        let mut harness = Harness::new();
        let (mut waits, mut other) = (harness.connect(), harness.connect());
        harness.expect(&mut other, &[("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n")]);
        assert_eq!(harness.line(&mut waits, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >"), "");
        harness.line(&mut other, line);
        let told = String::from_utf8_lossy(&harness.deliver(&mut waits)).into_owned();
        assert!(told.starts_with(if code.is_empty() { "-WRONGTYPE" } else { code }), "{line}: {told}");
    }
}

#[test]
fn stream_is_copied_dumped_and_restored_with_its_groups() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[("XGROUP CREATE s g 0 MKSTREAM", "+OK\r\n")]);
    harness.line(&mut wire, "XADD s 1-1 f v");
    harness.line(&mut wire, "XREADGROUP GROUP g a STREAMS s >");
    let full = harness.line(&mut wire, "XINFO STREAM s FULL");
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["DUMP", "s"]);
    let reply = harness.feed(&mut wire, &request);
    let start = reply.windows(2).position(|pair| pair == b"\r\n").expect("a bulk string") + 2;
    let mut restore = Vec::new();
    resp::encode_command(&mut restore, &[b"RESTORE", &b"t"[..], b"0", &reply[start..reply.len() - 2]]);
    assert_eq!(harness.feed(&mut wire, &restore), b"+OK\r\n");
    harness.expect(
        &mut wire,
        &[("COPY s u", ":1\r\n"), ("TYPE u", "+stream\r\n"), ("OBJECT ENCODING t", "$6\r\nstream\r\n")],
    );
    for key in ["t", "u"] {
        assert_eq!(harness.line(&mut wire, &format!("XINFO STREAM {key} FULL")), full);
    }
}

/// Blocks of what is pending that no server would write.
fn put_blocks(edit: &mut store::OrderedEdit<'_>) {
    // blocks: of no bytes, of more names than there are, of a name that is not there, of the greatest numbers, of entries that belong to the next
    let blocks: [&[u8]; 5] = [
        b"\x01",
        b"\x01\xff\xff\x01\x01c",
        b"\x01\x01\x01c\x18\x07",
        b"\x01\0\x1f\xff\xff\xff",
        b"\x01\x01\x01c\x10\x10\x10",
    ];
    for (seq, block) in (0_u64..).zip(blocks) {
        edit.put(&[&b"p\0\0\0\x01g"[..], &[0, 0, 0, 0, 0, 0, 0, 2], &seq.to_be_bytes()].concat(), block);
        edit.put(
            &[&b"p\0\0\0\x01g"[..], &[0, 0, 0, 0, 0, 0, 0, 3], &seq.to_be_bytes(), b"x"].concat(),
            block,
        );
    }
}

/// RESTORE takes any ordered map: counters at their ends, keys and values that are cut short, no counters at all.
#[test]
fn stream_that_no_server_would_write_is_read_and_changed_without_harm() {
    let mut elements = vec![older::group(0, u64::MAX - 1), older::pending(1, "c", u64::MAX, u64::MAX)];
    elements.extend((1..4).map(older::entry));
    for added in [None, Some(0), Some(1), Some(u64::MAX)] {
        let mut edit = store::OrderedEdit::new(store::Packed::empty(store::Shape::Ordered));
        elements.iter().for_each(|(key, value)| edit.put(key, value));
        for cut in ["e", "e\0\0", "g", "c\0", "c\0\0\0\u{1}g", "p\0\0\0\u{1}g\0", "x"] {
            edit.put(cut.as_bytes(), b"\0\0\0\x09");
        }
        put_blocks(&mut edit);
        if let Some(added) = added {
            edit.put(b"m", &[&[0; 32][..], &u64::to_be_bytes(added)].concat());
        }
        let bytes = edit.encode();
        let dump = store::dump(store::Packed::new(store::Shape::Ordered, &bytes), store::Moment::default());
        let payload = commands::payload::sealed(
            [&commands::payload::head(store::ValueKind::Stream)[..], &dump].concat(),
        );
        let mut harness = Harness::new();
        let mut wire = harness.connect();
        let mut restore = Vec::new();
        resp::encode_command(&mut restore, &[b"RESTORE", &b"s"[..], b"0", &payload]);
        assert_eq!(harness.feed(&mut wire, &restore), b"+OK\r\n");
        for line in [
            "XLEN s",
            "XRANGE s - +",
            "XREVRANGE s + -",
            "XINFO STREAM s",
            "XINFO STREAM s FULL COUNT 0",
            "XINFO GROUPS s",
            "XINFO CONSUMERS s g",
            "XPENDING s g",
            "XPENDING s g - + 10",
            "XREADGROUP GROUP g c STREAMS s 0",
            "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
            "XCLAIM s g d 0 1-0 2-0",
            "XAUTOCLAIM s g e 0 0",
            "XACK s g 1-0 2-0 2-4 3-0 3-4",
            "XCLAIM s g d 0 2-0 2-4 2-5 3-0 3-4 FORCE",
            "XNACK s g FAIL IDS 3 2-0 3-0 3-5 FORCE",
            "XDEL s 1-0",
            "XADD s * f v",
            "XREADGROUP GROUP g c STREAMS s >",
            "XINFO GROUPS s",
            "XTRIM s MAXLEN 1",
            "XGROUP DELCONSUMER s g c",
            "XGROUP DESTROY s g",
            "XREAD STREAMS s 0",
            "DUMP s",
        ] {
            let reply = harness.line(&mut wire, line);
            assert!(!reply.is_empty() && !reply.starts_with('-'), "added {added:?}: {line}: {reply}");
        }
    }
}

/// Redis makes the consumer that asks, whether it gets something or not.
#[test]
fn consumer_that_gets_nothing_is_there_all_the_same() {
    let mut harness = Harness::new();
    let (mut wire, mut waits) = (harness.connect(), harness.connect());
    let consumers = |harness: &Harness, wire: &mut Wire| {
        let reply = harness.line(wire, "XINFO CONSUMERS s g");
        reply.split("\r\n").next().unwrap_or_default().to_owned()
    };
    harness.line(&mut wire, "XGROUP CREATE s g $ MKSTREAM");
    harness.expect(&mut wire, &[("XREADGROUP GROUP g a STREAMS s >", "*-1\r\n")]);
    assert_eq!(consumers(&harness, &mut wire), "*1");
    assert_eq!(harness.line(&mut waits, "XREADGROUP GROUP g b BLOCK 0 STREAMS s >"), "");
    assert_eq!(consumers(&harness, &mut wire), "*2", "also while it waits");
    harness.expect(&mut wire, &[("XCLAIM s g c 0 1-1", "*0\r\n")]);
    assert_eq!(consumers(&harness, &mut wire), "*3");
    harness.expect(&mut wire, &[("XAUTOCLAIM s g d 0 0", "*3\r\n$3\r\n0-0\r\n*0\r\n*0\r\n")]);
    assert_eq!(consumers(&harness, &mut wire), "*4");
    assert_eq!(harness.line(&mut wire, "XADD s 1-1 f v"), "$3\r\n1-1\r\n");
    assert!(String::from_utf8_lossy(&harness.deliver(&mut waits)).contains("1-1"), "and is served");
}

/// The lag of a group stayed above 0 for ever once entries were trimmed that it had not read.
#[test]
fn lag_after_trimming_is_what_is_left_to_read() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let lag = |harness: &Harness, wire: &mut Wire| {
        let reply = harness.line(wire, "XINFO GROUPS s");
        reply.trim_end().rsplit("\r\n").next().unwrap_or_default().to_owned()
    };
    (1..=5).for_each(|ms| drop(harness.line(&mut wire, &format!("XADD s {ms}-0 f v"))));
    harness.line(&mut wire, "XGROUP CREATE s g 0");
    harness.line(&mut wire, "XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    assert_eq!(lag(&harness, &mut wire), ":4");
    harness.line(&mut wire, "XTRIM s MAXLEN 2");
    assert_eq!(lag(&harness, &mut wire), ":2", "those that are gone cannot be read");
    harness.line(&mut wire, "XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    assert_eq!(lag(&harness, &mut wire), ":1");
    harness.line(&mut wire, "XREADGROUP GROUP g c STREAMS s >");
    assert_eq!(lag(&harness, &mut wire), ":0");
    harness.line(&mut wire, "XADD s MAXLEN 1 6-0 f v");
    assert_eq!(lag(&harness, &mut wire), ":1");
    harness.line(&mut wire, "XTRIM s MAXLEN 0");
    assert_eq!(lag(&harness, &mut wire), ":0", "nothing is left");
}

#[test]
fn group_may_be_set_to_either_end() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.line(&mut wire, "XADD s 1-0 f v");
    harness.line(&mut wire, "XGROUP CREATE s g $");
    harness.expect(&mut wire, &[("XGROUP SETID s g -", "+OK\r\n")]);
    assert!(harness.line(&mut wire, "XREADGROUP GROUP g c STREAMS s >").contains("1-0"));
    harness.expect(
        &mut wire,
        &[("XGROUP SETID s g +", "+OK\r\n"), ("XREADGROUP GROUP g c STREAMS s >", "*-1\r\n")],
    );
}

/// Who waited for a stream was told WRONGTYPE when it had become a string meanwhile.
#[test]
fn reader_goes_on_waiting_while_its_key_is_of_another_type() {
    let mut harness = Harness::new();
    let (mut wire, mut one, mut two) = (harness.connect(), harness.connect(), harness.connect());
    harness.line(&mut wire, "XADD st 1-0 f v");
    assert_eq!(harness.line(&mut one, "XREAD BLOCK 0 STREAMS st $"), "");
    assert_eq!(harness.line(&mut two, "XREAD BLOCK 0 STREAMS other st 0 $"), "");
    for line in ["SET st v", "DEL st"] {
        harness.line(&mut wire, line);
        assert_eq!(
            (&*harness.deliver(&mut one), &*harness.deliver(&mut two)),
            (&b""[..], &b""[..]),
            "{line}"
        );
    }
    harness.line(&mut wire, "XADD st 2-0 f v");
    for wire in [&mut one, &mut two] {
        let reply = String::from_utf8(harness.deliver(wire)).expect("text");
        assert!(reply.contains("2-0"), "{reply}");
    }
}

/// One XADD answered thousands of readers in one turn of its loop.
#[test]
fn many_who_wait_for_one_entry_are_served_some_at_a_time() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let mut readers: Vec<Wire> = (0..300).map(|_| harness.connect()).collect();
    for reader in &mut readers {
        assert_eq!(harness.line(reader, "XREAD BLOCK 0 STREAMS s $"), "");
    }
    harness.line(&mut wire, "XADD s 1-0 f v");
    let served = |harness: &Harness| {
        let messages = harness.posts.messages.lock().expect("nobody panicked");
        messages.values().flatten().filter(|message| matches!(message, Message::Served(_))).count()
    };
    assert_eq!(served(&harness), 64);
    let mut rounds = 0;
    let mut waiting: Vec<&mut Wire> = readers.iter_mut().collect();
    while !waiting.is_empty() {
        rounds += 1;
        assert!(rounds < 10, "{} still wait", waiting.len());
        waiting.retain_mut(|reader| !harness.deliver(reader).windows(3).any(|part| part == b"1-0"));
    }
}

/// What is kept of how much is pending at whom; `None`: it is not kept, or not right.
fn kept_counts(harness: &Harness, group: &[u8]) -> Option<BTreeMap<Vec<u8>, u64>> {
    let (prepared, keys) = (store::Prepared::default(), [store::KeyRef { db: 0, key: b"s" }]);
    let access =
        harness.server.store.access(store::Scope::Keys(&keys), &prepared, 0).expect("it is in memory");
    let sequence = access.sequence(0, b"s", store::ValueKind::Stream).expect("it is in memory");
    commands::stream::kept_counts(sequence.expect("a stream"), group).expect("it is in memory")
}

/// Elements of a stream as versions wrote them that had neither counts nor blocks of pending entries; identifiers are `ms-0`, the group is `g`.
mod older {
    type Element = (Vec<u8>, Vec<u8>);

    fn id(ms: u64) -> Vec<u8> {
        [ms.to_be_bytes(), [0; 8]].concat()
    }

    /// With the field `f`, whose value is `v`.
    pub(super) fn entry(ms: u64) -> Element {
        ([&b"e"[..], &id(ms)].concat(), b"\0\0\0\x01f\0\0\0\x01v".to_vec())
    }

    pub(super) fn group(last_ms: u64, read: u64) -> Element {
        (b"gg".to_vec(), [&id(last_ms)[..], &read.to_be_bytes()].concat())
    }

    pub(super) fn consumer(name: &str) -> Element {
        let times_ms = [5_u64.to_be_bytes(), 5_u64.to_be_bytes()];
        ([&b"c\0\0\0\x01g"[..], name.as_bytes()].concat(), times_ms.concat())
    }

    pub(super) fn pending(ms: u64, consumer: &str, delivered_ms: u64, times: u64) -> Element {
        let value = [&delivered_ms.to_be_bytes()[..], &times.to_be_bytes(), consumer.as_bytes()];
        ([&b"p\0\0\0\x01g"[..], &id(ms)].concat(), value.concat())
    }
}

fn put_elements(harness: &Harness, elements: &[(Vec<u8>, Vec<u8>)]) {
    let changes: Vec<_> = elements.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
    change_elements(harness, &changes);
}

/// Changes elements of the stream `s` as another version, or a loss, has left them.
fn change_elements(harness: &Harness, changes: &[store::KeyedChange<'_>]) {
    let (prepared, keys) = (store::Prepared::default(), [store::KeyRef { db: 0, key: b"s" }]);
    let mut access = harness.server.store.access(store::Scope::Keys(&keys), &prepared, 0).expect("in memory");
    access.change_stream(0, b"s", changes).expect("in memory").expect("a stream");
    access.commit().expect("in memory");
}

/// Salvage may leave a group without some of what is pending: what is told is what is left, and what is kept of it is right again once a block comes.
#[test]
fn pending_entries_that_were_lost_are_not_told_and_no_longer_counted() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.line(&mut wire, "XGROUP CREATE s g 0 MKSTREAM");
    (1..=100).for_each(|id| _ = harness.line(&mut wire, &format!("XADD s {id}-0 f v")));
    harness.line(&mut wire, "XREADGROUP GROUP g c1 COUNT 64 STREAMS s >");
    let block = |first: u64| [&b"p\0\0\0\x01g"[..], &first.to_be_bytes(), &[0; 8]].concat();
    change_elements(&harness, &[(&block(17), None)]);
    let told = |harness: &Harness, wire: &mut Wire, count: usize| {
        let summary = harness.line(wire, "XPENDING s g");
        assert!(summary.starts_with(&format!("*4\r\n:{count}\r\n")), "{count}: {summary}");
        assert_eq!(listed(&harness.line(wire, "XPENDING s g - + 1000")).len(), count);
        assert!(harness.line(wire, "XINFO GROUPS s").contains(&format!("$7\r\npending\r\n:{count}\r\n")));
    };
    told(&harness, &mut wire, 48);
    harness.expect(&mut wire, &[("XACK s g 1-0 20-0", ":1\r\n")]);
    told(&harness, &mut wire, 47);
    assert_eq!(kept_counts(&harness, b"g"), None);
    harness.line(&mut wire, "XREADGROUP GROUP g c1 COUNT 1 STREAMS s >");
    told(&harness, &mut wire, 48);
    let kept = kept_counts(&harness, b"g").expect("they were counted anew");
    assert_eq!(kept.get(&b"c1"[..]).copied(), Some(48));
}

/// XPENDING, XINFO CONSUMERS and XGROUP DELCONSUMER looked at all that was pending in a group.
#[test]
fn what_is_pending_at_each_consumer_is_counted_whatever_changes_it() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let mut state = 7_u64;
    let mut dice = |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    harness.line(&mut wire, "XGROUP CREATE s g 0 MKSTREAM");
    harness.line(&mut wire, "XGROUP CREATE s h 0");
    for step in 1..3_000_u64 {
        let (id, other) = (1 + dice(step), 1 + dice(step));
        let (c, g) = (dice(4), if dice(4) == 0 { "h" } else { "g" });
        let line = match dice(24) {
            0..6 => format!("XADD s {step}-0 f v"),
            6..9 => format!("XREADGROUP GROUP {g} c{c} COUNT 3 STREAMS s >"),
            9 => format!("XREADGROUP GROUP {g} c{c} COUNT 3 NOACK STREAMS s >"),
            10 => format!("XREADGROUP GROUP {g} c{c} COUNT 2 CLAIM 0 STREAMS s >"),
            11 => format!("XREADGROUP GROUP {g} c{c} COUNT 2 STREAMS s 0"),
            12 | 13 => format!("XACK s {g} {id}-0 {other}-0"),
            14 => format!("XCLAIM s {g} c{c} 0 {id}-0 {other}-0 {id}-0 FORCE"),
            15 => format!("XAUTOCLAIM s {g} c{c} 0 {id}-0 COUNT 2"),
            16 => format!("XNACK s {g} FAIL IDS 2 {id}-0 {other}-0 FORCE"),
            17 => format!("XDELEX s DELREF IDS 2 {id}-0 {other}-0"),
            18 => format!("XACKDEL s {g} DELREF IDS 2 {id}-0 {other}-0"),
            19 => format!("XTRIM s MAXLEN {} DELREF", 20 + dice(60)),
            20 => format!("XGROUP {} s {g} c{c}", ["CREATECONSUMER", "DELCONSUMER"][dice(2) as usize]),
            21 => format!("XGROUP SETID s {g} {id}-0"),
            22 => format!("XDEL s {id}-0"),
            _ if dice(20) == 0 => format!("XGROUP DESTROY s {g}"),
            _ => format!("XGROUP CREATE s {g} {id}-0"),
        };
        harness.line(&mut wire, &line);
        for group in ["g", "h"] {
            let listed = harness.line(&mut wire, &format!("XPENDING s {group} - + 100000"));
            if listed.starts_with("-NOGROUP") {
                continue;
            }
            let counts = kept_counts(&harness, group.as_bytes());
            let counts = counts.unwrap_or_else(|| panic!("step {step}, {line}: {group} is not counted"));
            for consumer in 0..4 {
                let name = format!("c{consumer}");
                let found = listed.matches(&format!("$2\r\n{name}\r\n")).count() as u64;
                let kept = counts.get(name.as_bytes()).copied().unwrap_or(0);
                assert_eq!(kept, found, "step {step}, {line}: {name} of {group}");
            }
        }
    }
}

#[test]
fn group_that_was_not_counted_is_when_something_of_what_is_pending_changes() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for line in ["XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-0 f v", "XADD s 2-0 f v", "XADD s 3-0 f v"] {
        harness.line(&mut wire, line);
    }
    for consumer in ["a", "b"] {
        harness.line(&mut wire, &format!("XREADGROUP GROUP g {consumer} COUNT 1 STREAMS s >"));
    }
    // as older versions have written it
    let elements = [older::group(2, 2), older::consumer("a"), older::consumer("b")];
    put_elements(&harness, &elements);
    let summary = |a: u32| format!("*2\r\n$1\r\na\r\n$1\r\n{a}\r\n*2\r\n$1\r\nb\r\n$1\r\n1\r\n");
    assert!(harness.line(&mut wire, "XPENDING s g").contains(&summary(1)));
    harness.line(&mut wire, "XGROUP CREATECONSUMER s g c");
    assert_eq!(kept_counts(&harness, b"g"), None);
    harness.line(&mut wire, "XREADGROUP GROUP g a STREAMS s >");
    let counts = kept_counts(&harness, b"g").expect("it is counted");
    let of = |name: &[u8]| counts.get(name).copied();
    assert_eq!((of(b"a"), of(b"b"), of(b"c")), (Some(2), Some(1), Some(0)));
    assert!(harness.line(&mut wire, "XPENDING s g").contains(&summary(2)));
}

/// A command on one of two streams that are to stay equal: entries are added to the one by XADD alone, which looks at the end of the stream and nowhere else,
/// and to the other with an option that changes nothing and is not known there.
#[derive(Clone, Debug)]
enum Step {
    /// So many entries with values of so many bytes, by the clock or with an identifier so much behind the last; alone, or as a transaction.
    Add(usize, usize, Option<u64>, bool),
    /// One of the commands behind the stream's name, by its number.
    Other(usize),
    Delete(u64),
    Tick(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![8 => 0..100_usize, 2 => 1_000..5_000_usize, 1 => 60_000..80_000_usize];
    let step = prop_oneof![
        6 => (1..40_usize, bytes, prop::option::of(1..3_u64), prop::bool::weighted(0.3))
            .prop_map(|(n, bytes, id, in_multi)| Step::Add(n, bytes, id, in_multi)),
        3 => (0..OTHERS.len()).prop_map(Step::Other),
        2 => (0..200_u64).prop_map(Step::Delete),
        1 => (1..3_u64).prop_map(Step::Tick),
    ];
    proptest::collection::vec(step, 1..40)
}

const OTHERS: [(&str, &str); 8] = [
    ("XGROUP CREATE", "a-group 0 MKSTREAM"),
    ("XGROUP CREATE", "another-group-with-a-name-that-is-longer-than-all-the-others-are-here $ MKSTREAM"),
    ("XTRIM", "MAXLEN 30"),
    ("XTRIM", "MAXLEN 0"),
    ("XSETID", "1700000000500-7"),
    ("XADD", "IDMPAUTO producer * f v"),
    ("XGROUP DESTROY", "a-group"),
    ("DEL", ""),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn entry_added_at_the_end_makes_the_stream_that_it_makes_anywhere(steps in steps()) {
        let mut harness = Harness::new();
        let mut wire = harness.connect();
        let mut seq = 0;
        for step in steps {
            let mut is_multi = false;
            let (count, [to_s, to_t]) = match step {
                Step::Tick(ms) => {
                    harness.clock.advance(Duration::from_millis(ms));
                    continue;
                }
                Step::Add(count, bytes, behind, in_multi) => {
                    is_multi = in_multi;
                    seq += behind.unwrap_or(0);
                    let id = if behind.is_some() { format!("{NOW}-{seq}") } else { "*".to_owned() };
                    let entry = format!("{id} f {}", "v".repeat(bytes));
                    (count, [format!("XADD s {entry}"), format!("XADD t MAXLEN 4000000000 {entry}")])
                }
                Step::Other(number) => {
                    let (command, rest) = OTHERS[number];
                    (1, ["s", "t"].map(|key| format!("{command} {key} {rest}")))
                }
                Step::Delete(seq) => (1, ["s", "t"].map(|key| format!("XDEL {key} {NOW}-{seq}"))),
            };
            if is_multi {
                harness.line(&mut wire, "MULTI");
                for line in [&to_s, &to_t] {
                    (0..count).for_each(|_| _ = harness.line(&mut wire, line));
                }
                let reply = harness.line(&mut wire, "EXEC");
                let told: Vec<&str> = reply.trim_end().split("\r\n").skip(1).collect();
                let (of_s, of_t) = told.split_at(told.len() / 2);
                prop_assert_eq!(of_s, of_t);
            } else {
                for _ in 0..count {
                    prop_assert_eq!(harness.line(&mut wire, &to_s), harness.line(&mut wire, &to_t));
                }
            }
            prop_assert_eq!(harness.line(&mut wire, "DUMP s"), harness.line(&mut wire, "DUMP t"));
        }
    }
}

/// Each took 57 B, most of them the same as those of its neighbours.
#[test]
fn entry_that_is_pending_takes_a_few_bytes() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.line(&mut wire, "XGROUP CREATE s group 0 MKSTREAM");
    for id in 1..=2_000 {
        harness.line(&mut wire, &format!("XADD s {id}-0 f v"));
    }
    let size = |harness: &mut Harness, wire: &mut Wire| -> f64 {
        harness.line(wire, "MEMORY USAGE s").trim_matches([':', '\r', '\n']).parse().expect("a number")
    };
    let before = size(&mut harness, &mut wire);
    // one by one, and many at once
    for _ in 0..500 {
        harness.line(&mut wire, "XREADGROUP GROUP group consumer COUNT 1 STREAMS s >");
    }
    harness.line(&mut wire, "XREADGROUP GROUP group consumer COUNT 1500 STREAMS s >");
    let each = (size(&mut harness, &mut wire) - before) / 2_000.0;
    assert!(each < 8.0, "{each} B");
    assert!(
        harness
            .line(&mut wire, "XPENDING s group")
            .starts_with("*4\r\n:2000\r\n$3\r\n1-0\r\n$6\r\n2000-0\r\n")
    );
}

/// What a model has pending: consumer and times by id, `None` for a consumer: given back.
type Model = BTreeMap<u64, (Option<u64>, u64)>;

/// What XPENDING tells of entries, without how long ago they were delivered.
fn listed(reply: &str) -> Model {
    let words: Vec<&str> = reply.split("\r\n").skip(1).collect();
    let entries = words.chunks(7).filter(|words| words.len() == 7 && words[0] == "*4");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    entries
        .map(|words| {
            let id = number(words[2].strip_suffix("-0").expect("an id"));
            (id, (words[4].strip_prefix('c').map(number), number(&words[6][1..])))
        })
        .collect()
}

#[test]
fn what_is_pending_is_what_a_model_says_whatever_changes_it() {
    let (mut harness, mut state) = (Harness::new(), 11_u64);
    let mut wire = harness.connect();
    let mut dice = |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    harness.line(&mut wire, "XGROUP CREATE s g 0 MKSTREAM");
    // a neighbour, whose blocks come behind those of g
    harness.line(&mut wire, "XGROUP CREATE s h 0");
    (1..=IDS).for_each(|id| _ = harness.line(&mut wire, &format!("XADD s {id}-0 f v")));
    harness.line(&mut wire, "XREADGROUP GROUP h c9 COUNT 20 STREAMS s >");
    let (mut model, mut delivered) = (Model::new(), 0);
    for step in 0..2_500 {
        let (consumer, times) = (dice(5), dice(40));
        let some: Vec<u64> = (0..=dice(6)).map(|_| 1 + dice(IDS)).collect();
        let run: Vec<u64> = (some[0]..=IDS.min(some[0] + dice(40))).collect();
        let ids = if dice(2) == 0 { some } else { run };
        let told: String = ids.iter().map(|id| format!(" {id}-0")).collect();
        let line = match dice(6) {
            0 | 1 => {
                ids.iter().for_each(|id| _ = model.remove(id));
                format!("XACK s g{told}")
            }
            2 => {
                ids.iter().for_each(|id| _ = model.insert(*id, (Some(consumer), times)));
                format!("XCLAIM s g c{consumer} 0{told} FORCE RETRYCOUNT {times}")
            }
            3 => {
                ids.iter().for_each(|id| _ = model.insert(*id, (None, times)));
                format!("XNACK s g FAIL IDS {}{told} FORCE RETRYCOUNT {times}", ids.len())
            }
            4 => {
                let first = delivered + 1;
                delivered = IDS.min(delivered + 1 + times);
                (first..=delivered).for_each(|id| _ = model.insert(id, (Some(consumer), 1)));
                format!("XREADGROUP GROUP g c{consumer} COUNT {} STREAMS s >", times + 1)
            }
            _ if dice(10) == 0 => {
                delivered = ids[0];
                format!("XGROUP SETID s g {delivered}-0")
            }
            _ => {
                let own = model.iter_mut().filter(|(id, (of, _))| *id >= &ids[0] && *of == Some(consumer));
                own.take(3).for_each(|(_, (_, times))| *times += 1);
                format!("XREADGROUP GROUP g c{consumer} COUNT 3 STREAMS s {}", ids[0] - 1)
            }
        };
        harness.line(&mut wire, &line);
        let all = listed(&harness.line(&mut wire, "XPENDING s g - + 10000"));
        assert_eq!(all, model, "step {step}, {line}");
        let own = listed(&harness.line(&mut wire, &format!("XPENDING s g {0}-0 + 5 c{consumer}", ids[0])));
        let is_own = |(id, (of, _)): &(&u64, &(Option<u64>, u64))| **id >= ids[0] && *of == Some(consumer);
        let expected: Model = model.iter().filter(is_own).take(5).map(|(id, of)| (*id, *of)).collect();
        assert_eq!(own, expected, "step {step}, {line}");
        let ends = model.first_key_value().zip(model.last_key_value());
        if let Some(((first, _), (last, _))) = ends {
            let (first, last) = (format!("{first}-0"), format!("{last}-0"));
            let begin = format!(
                "*4\r\n:{}\r\n${}\r\n{first}\r\n${}\r\n{last}\r\n",
                model.len(),
                first.len(),
                last.len()
            );
            let summary = harness.line(&mut wire, "XPENDING s g");
            assert!(summary.starts_with(&begin), "step {step}, {line}: {summary}");
        }
    }
    assert_eq!(listed(&harness.line(&mut wire, "XPENDING s h - + 100")).len(), 20);
}

const IDS: u64 = 300;

/// Folders of older versions have an element for each entry, and counts without blocks, or none.
#[test]
fn entries_that_older_versions_left_pending_are_read_and_change() {
    for is_counted in [false, true] {
        let mut harness = Harness::new();
        let mut wire = harness.connect();
        harness.line(&mut wire, "XGROUP CREATE s g 0 MKSTREAM");
        (1..=40).for_each(|id| _ = harness.line(&mut wire, &format!("XADD s {id}-0 f v")));
        let (mut group, mut consumer) = (older::group(30, 30), older::consumer("c1"));
        if is_counted {
            group.1.extend(0_u64.to_be_bytes());
            consumer.1.extend(30_u64.to_be_bytes());
        }
        let mut elements = vec![group, consumer];
        elements.extend((1..=30).map(|ms| older::pending(ms, "c1", 77, 3)));
        put_elements(&harness, &elements);
        let all = |ids: std::ops::RangeInclusive<u64>| ids.map(|id| (id, (Some(1), 3))).collect::<Model>();
        assert_eq!(kept_counts(&harness, b"g").is_some(), is_counted);
        assert_eq!(listed(&harness.line(&mut wire, "XPENDING s g - + 100")), all(1..=30));
        assert!(harness.line(&mut wire, "XPENDING s g").starts_with("*4\r\n:30\r\n$3\r\n1-0\r\n$4\r\n30-0"));
        harness.expect(&mut wire, &[("XACK s g 1-0 2-0 50-0", ":2\r\n")]);
        assert!(kept_counts(&harness, b"g").is_some());
        harness.line(&mut wire, "XREADGROUP GROUP g c1 STREAMS s >");
        let mut expected = all(3..=30);
        expected.extend((31..=40).map(|id| (id, (Some(1), 1))));
        assert_eq!(listed(&harness.line(&mut wire, "XPENDING s g - + 100")), expected);
        assert!(harness.line(&mut wire, "XPENDING s g").starts_with("*4\r\n:38\r\n$3\r\n3-0\r\n$4\r\n40-0"));
        assert!(harness.line(&mut wire, "XINFO STREAM s FULL").contains(":77\r\n"));
        harness
            .expect(&mut wire, &[("XGROUP DELCONSUMER s g c1", ":38\r\n"), ("XPENDING s g - + 9", "*0\r\n")]);
    }
}
