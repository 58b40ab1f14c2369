//! Payloads, byte by byte, and what is refused.

use super::*;
use crate::time::{Ceiling, ClockRecord};
use collections::Deadline;

fn payload(draft: &Draft<'_>) -> Vec<u8> {
    draft.parts().concat()
}

#[test]
fn payloads_are_pinned_byte_by_byte() {
    let string = Draft::whole(STRING, Keyspace(1), b"ab", b"xyz", None);
    assert_eq!(payload(&string), b"\x02\0\0\0abxyz");
    let removed = Draft::whole(REMOVED, Keyspace(1), b"ab", b"", None);
    assert_eq!(payload(&removed), b"\x02\0\0\0ab");
    let expiry = Draft::delta(EXPIRY, Keyspace(1), b"ab", Seq(0x0102), b"", Deadline::of(5));
    assert_eq!(payload(&expiry), b"\x02\0\0\0ab\x02\x01\0\0\0\0\0\0");
    let retimed = payload(&Draft::expiry(0, Keyspace(1), b"ab", Seq(1), Seq(0x0102), Deadline::of(5)));
    assert_eq!(retimed, b"\x02\0\0\0ab\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
    assert_eq!(since(EXPIRY, &retimed), Seq(1));
    assert_eq!(since(EXPIRY, &payload(&expiry)), Seq(0x0102));
    let part = Draft::part(0, Keyspace(1), b"ab", Seq(0x0102), 0x0304, b"xyz", None);
    assert_eq!(payload(&part), b"\x02\0\0\0ab\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0xyz");
    assert_eq!(part.record_bytes(), part_bytes(2, 3));
    assert_eq!(since(PART, &payload(&part)), Seq(0x0102));
    let mapping = encode_mapping(Keyspace(9), &[Keyspace(1), Keyspace(8)]);
    assert_eq!(payload(&Draft::mapping(&mapping)), b"\x09\0\0\0\x02\0\0\0\x01\0\0\0\x08\0\0\0");
    assert_eq!((string.record_bytes(), bytes_of(STRING, 2, 3)), (64, 64));
    let ceilings = vec![Ceiling { wall_ms: 5, seq: Seq(6) }];
    let record = ClockRecord { boot: 1, uptime_us: 2, server_us: 3, wall_us: 4, ceilings };
    let clock = encode_clock(&record);
    let bytes: Vec<u8> = [0, 1, 0, 0, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]
        .iter()
        .flat_map(|&word: &u32| word.to_le_bytes())
        .collect();
    assert_eq!(payload(&Draft::clock(&clock)), bytes);
    assert_eq!(decode_clock(&clock), Some(record));
}

#[test]
fn removals_are_pinned_and_take_what_follows() {
    let (one, node) = (Removals::one(0x0102, 7), 1 << 31);
    assert_eq!(one.encode(), *b"\x02\x01\0\0\0\0\0\0\x07\0\0\0\x01\0\0\0");
    assert_eq!(
        (one.with(9), one.with(6), one.with(7), Removals::one(1, u32::MAX).with(0)),
        (None, None, None, None)
    );
    let all = (8..7 + REMOVALS_MAX).fold(one, |removals, number| removals.with(number).expect("it follows"));
    assert_eq!(all.with(7 + REMOVALS_MAX), None, "a record has no more");
    for removals in [one, all, Removals::one(u64::MAX, node).with(node + 1).expect("it follows")] {
        let bytes = removals.encode();
        let payload = payload(&Draft::of_object(REMOVALS, Keyspace(1), &bytes));
        assert_eq!(decode(REMOVALS, &payload), Some(Payload::Removals(removals)));
    }
    assert!(all.numbers().eq(7..7 + REMOVALS_MAX));
}

#[test]
fn decode_gives_back_what_was_drafted() {
    let string = payload(&Draft::whole(STRING, Keyspace(1), b"k", b"v", None));
    assert_eq!(decode(STRING | SHARED, &string), Some(Payload::Whole { key: b"k", value: b"v" }));
    let put = b"\x01\x02\0\x01\x01fv";
    let change = payload(&Draft::delta(CHANGE, Keyspace(1), b"k", Seq(7), put, None));
    assert_eq!(decode(CHANGE, &change), Some(Payload::Delta { key: b"k", base_seq: Seq(7), body: put }));
    let mapping = encode_mapping(Keyspace(9), &[Keyspace(1), Keyspace(8)]);
    let Some(Payload::Mapping { next_keyspace: Keyspace(9), keyspaces }) = decode(MAPPING, &mapping) else {
        panic!()
    };
    assert_eq!(mapping_ids(keyspaces), [Keyspace(1), Keyspace(8)]);
}

#[test]
fn payload_that_does_not_fit_its_kind_is_refused() {
    let cases: [(u8, &[u8]); 16] = [
        (STRING, b"\x05\0\0\0ab"),
        (STRING, b"\x05\0"),
        (REMOVED, b"\x01\0\0\0kv"),
        (EXPIRY, b"\x01\0\0\0k1234567"),
        (PART, b"\x01\0\0\0k12345678"),
        (HASH, b"\x01\0\0\0k"),
        (SET, b"\x01\0\0\0k\x01\0\0\0\0\0\0\0"),
        (CHANGE, b"\x01\0\0\0k12345678"),
        (PART, b"\x01\0\0\0k1234567812345678"),
        (MAPPING, b"\x01\0\0\0\xff\xff\xff\xff"),
        (99, b"\x01\0\0\0k"),
        (CLOCK, &[0; 52]),
        (REMOVALS, b"\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"),
        (REMOVALS, b"\x07\0\0\0\0\0\0\0\x01\0\0\0\x01\x04\0\0"),
        (REMOVALS, b"\x07\0\0\0\0\0\0\0\xff\xff\xff\xff\x02\0\0\0"),
        (REMOVALS, b"\x07\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0"),
    ];
    for (kind, bytes) in cases {
        assert_eq!(decode(kind, bytes), None, "kind {kind}");
    }
}
