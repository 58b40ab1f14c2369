//! Files that real servers wrote, forms that these write no more, and damage.

use std::fmt::Write;

use proptest::prelude::*;

use crate::*;

/// The items of a file, a line each.
fn told(bytes: &[u8]) -> Result<String, Error> {
    let mut reader = Reader::open(bytes, Limits::default())?;
    let mut out = format!("{:?}\n", reader.written_by());
    while let Some(item) = reader.next_item()? {
        match item {
            // times and sizes of the day
            Item::Note { .. } => {}
            Item::Key(Key { db, name, kind, expires_ms }) => {
                writeln!(out, "{db} {} {kind:?} {expires_ms:?}", name.escape_ascii())
                    .expect("a string grows");
            }
            Item::Part(part) => writeln!(out, "  {}", line(&part)).expect("a string grows"),
            Item::End => {}
            Item::Functions(code) => {
                writeln!(out, "functions {}", code.escape_ascii()).expect("a string grows");
            }
            other => writeln!(out, "{other:?}").expect("a string grows"),
        }
    }
    Ok(out)
}

fn line(part: &Part) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match part {
        Part::String(bytes) | Part::Element(bytes) => text(bytes),
        Part::Member { member, score } => format!("{} {score}", text(member)),
        Part::Field { field, value, expires_ms } => format!("{} {} {expires_ms:?}", text(field), text(value)),
        Part::Entry { id, fields } => {
            format!("{}-{} {}", id.ms, id.seq, fields.iter().map(|it| text(it)).collect::<Vec<_>>().join(" "))
        }
        Part::Group { name, last, read } => format!("group {} {last:?} {read:?}", text(name)),
        Part::Consumer { name, seen_ms, active_ms } => {
            format!("consumer {} {seen_ms} {active_ms:?}", text(name))
        }
        other => format!("{other:?}"),
    }
}

/// The parts of the value in `body`, which begins with its type, in a payload of `version`.
fn parts(version: u16, body: &[u8]) -> Result<Vec<Part>, Error> {
    let mut value = read_payload(body, version, Limits::default())?;
    let mut parts = Vec::new();
    while let Some(part) = value.next_part()? {
        parts.push(part);
    }
    Ok(parts)
}

fn lines(version: u16, body: &[u8]) -> Vec<String> {
    parts(version, body).expect("a value").iter().map(line).collect()
}

const REDIS: &[u8] = include_bytes!("../tests/golden/redis-7.0.rdb");
const VALKEY: &[u8] = include_bytes!("../tests/golden/valkey-9.1.rdb");

/// Written by redis-server 7.0.15 and valkey-server 9.1.2 from the same commands.
#[test]
fn files_of_real_servers_have_what_was_written() {
    for (file, wanted, name) in [
        (REDIS, include_str!("../tests/golden/redis-7.0.txt"), "redis-7.0.txt"),
        (VALKEY, include_str!("../tests/golden/valkey-9.1.txt"), "valkey-9.1.txt"),
    ] {
        assert_eq!(told(file).expect("a file of a server"), wanted, "{name}");
    }
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_file_is_found() {
    for file in [REDIS, VALKEY] {
        for cut in 0..file.len() {
            told(&file[..cut]).expect_err("cut");
        }
        for bit in 72..file.len() * 8 {
            let mut damaged = file.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            told(&damaged).expect_err("damaged");
        }
    }
}

/// The checksum is not all that stands between damage and a panic.
#[test]
fn damage_without_a_checksum_is_an_error_or_another_value() {
    for file in [REDIS, VALKEY] {
        for at in 9..file.len() - 8 {
            for byte in [0, 1, 0x7f, 0x80, 0x81, 0xc3, 0xfe, 0xff] {
                let mut damaged = file.to_vec();
                damaged[at] = byte;
                damaged[file.len() - 8..].fill(0);
                let _ = told(&damaged);
            }
        }
    }
}

#[test]
fn what_is_behind_the_checksum_is_left_to_the_next_reader() {
    let whole = [REDIS, b"*1\r\n"].concat();
    let mut reader = Reader::open(&whole[..], Limits::default()).expect("a file");
    while reader.next_item().expect("a file").is_some() {}
    assert_eq!(reader.offset(), REDIS.len() as u64);
    assert_eq!(reader.into_parts(), (&b""[..], b"*1\r\n".to_vec()));
}

#[test]
fn other_files_and_other_versions_are_refused_by_name() {
    for (file, wanted) in [
        (&b"REDIS0015\xff"[..], "version 15 is not known (at byte 9)"),
        (b"VALKEY081\xff", "version 81 is not known (at byte 9)"),
        (b"REDIS00x1\xff", "no RDB file: it begins with neither REDIS nor VALKEY and a version (at byte 9)"),
        (
            b"PK\x03\x04.......",
            "no RDB file: it begins with neither REDIS nor VALKEY and a version (at byte 9)",
        ),
        (b"REDIS", "it ends in the middle (at byte 0)"),
    ] {
        assert_eq!(told(file).expect_err("refused").to_string(), wanted);
    }
    assert_eq!(told(b"REDIS0003\xff").expect("no checksum then"), "(Redis, 3)\n");
    let unknown = told(b"REDIS0014\x1d\x01k...").expect_err("refused").to_string();
    assert_eq!(
        unknown,
        "a value of type 29 is not known, so that nothing behind it can be read (at byte 12)"
    );
}

/// Redis and Valkey chose the same number.
#[test]
fn type_22_is_read_as_its_writer_meant_it() {
    assert_eq!(lines(12, b"\x16\x02\x00\x01a\x01b\x05\x01c\x01d"), ["a b None", "c d Some(5)"]);
    let valkey = b"\x16\x02\x01a\x01b\xff\xff\xff\xff\xff\xff\xff\xff\x01c\x01d\x05\0\0\0\0\0\0\0";
    assert_eq!(lines(80, valkey), ["a b None", "c d Some(5)"]);
}

#[test]
fn hashes_of_redis_7_4_have_the_deadlines_of_their_fields() {
    let from = 4_102_444_800_000_u64.to_le_bytes();
    let table = [&b"\x18"[..], &from, b"\x02\x00\x01a\x01b\x03\x01c\x01d"].concat();
    assert_eq!(lines(12, &table), ["a b None", "c d Some(4102444800002)"]);
    let mut pack = b"\0\0\0\0\x06\0\x81a\x02\x81b\x02\x00\x01\x81c\x02\x81d\x02\x05\x01\xff".to_vec();
    pack[0] = pack.len() as u8;
    for body in [[&b"\x17"[..], &string(&pack)].concat(), [&b"\x19"[..], &from, &string(&pack)].concat()] {
        assert_eq!(lines(12, &body), ["a b None", "c d Some(5)"]);
    }
}

/// Redis 6 and older wrote them.
#[test]
fn ziplists_zipmaps_and_old_scores_are_read() {
    let elements: &[&[u8]] = &[
        b"\x01a",
        b"\xf1",
        b"\xfd",
        b"\xfe\x80",
        b"\xc0\x00\x80",
        b"\xf0\xff\xff\x7f",
        b"\xd0\x00\x00\x00\x80",
        b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x40\x02bc",
        b"\x80\x00\x00\x00\x01d",
    ];
    let list = ziplist(elements);
    let wanted =
        ["a", "0", "12", "-128", "-32768", "8388607", "-2147483648", "9223372036854775807", "bc", "d"];
    assert_eq!(lines(9, &[&b"\x0a"[..], &string(&list)].concat()), wanted);
    assert_eq!(lines(9, &[&b"\x0e\x01"[..], &string(&list)].concat()), wanted);
    let pairs = ziplist(&[b"\x01a", b"\x031.5", b"\x01b", b"\xf3"]);
    assert_eq!(lines(9, &[&b"\x0c"[..], &string(&pairs)].concat()), ["a 1.5", "b 2"]);
    assert_eq!(lines(9, &[&b"\x0d"[..], &string(&pairs)].concat()), ["a 1.5 None", "b 2 None"]);
    let map = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff";
    assert_eq!(lines(9, &[&b"\x09"[..], &string(map)].concat()), ["foo bar None", "hello world None"]);
    assert_eq!(lines(9, b"\x03\x03\x01a\x031e3\x01b\xfe\x01c\xff"), ["a 1000", "b inf", "c -inf"]);
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_string(&mut out, bytes);
    out
}

fn ziplist(elements: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0; 10];
    let mut before = 0;
    for element in elements {
        out.push(before);
        out.extend_from_slice(element);
        before = element.len() as u8 + 1;
    }
    out.push(0xff);
    let len = out.len() as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out[8] = elements.len() as u8;
    out
}

#[test]
fn frames_that_lie_are_refused() {
    let good = ziplist(&[b"\x01a", b"\x01b"]);
    for (at, byte) in [(0, 99), (8, 3), (8, 1), (11, 0x3f), (13, 9), (14, 0x0f)] {
        let mut list = good.clone();
        list[at] = byte;
        parts(9, &[&b"\x0a"[..], &string(&list)].concat()).expect_err("damaged");
    }
    let odd = [&b"\x0d"[..], &string(&ziplist(&[b"\x01a"]))].concat();
    parts(9, &odd).expect_err("a field without a value");
    for set in [&b"\x03\0\0\0\x01\0\0\0abc"[..], b"\x02\0\0\0\xff\xff\xff\xffab", b"\x02\0\0\0"] {
        parts(9, &[&b"\x0b"[..], &string(set)].concat()).expect_err("damaged");
    }
    let packs = [
        &b"\x09\0\0\0\x01\0\x81a\xff"[..],
        b"\x0a\0\0\0\x01\0\x81a\x03\xff",
        b"\x0c\0\0\0\x01\0\xf0\xff\xff\xff\xff\xff",
    ];
    for pack in packs {
        parts(9, &[&b"\x14"[..], &string(pack)].concat()).expect_err("damaged");
    }
    assert_eq!(lines(9, b"\x14\x0a\x0a\0\0\0\x01\0\x81a\x02\xff"), ["a"], "the same, and true");
    parts(9, b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f").expect_err("NaN");
}

/// Whoever believes them allocates, or loops, for long.
#[test]
fn lengths_and_counts_that_lie_end_soon() {
    let huge = &b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff"[..];
    let stream = b"\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    for body in [
        [b"\x00", huge].concat(),
        [b"\x00\xc3", huge, huge].concat(),
        b"\x00\xc3\x01\x80\x1f\xff\xff\xffa".to_vec(),
        [b"\x01", huge].concat(),
        [b"\x04", huge, b"\x01a"].concat(),
        [b"\x12", huge].concat(),
        [b"\x13", huge].concat(),
        [stream, huge].concat(),
        [stream, &b"\x01\x01g\x00\x00\x00"[..], huge].concat(),
        [stream, &b"\x01\x01g\x00\x00\x00\x00"[..], huge].concat(),
    ] {
        parts(11, &body).expect_err("it ends");
    }
}

#[test]
fn values_of_modules_and_arrays_are_skipped_with_their_names() {
    let module = b"\x07\x01k\x81\x00\x00\x00\x00\x00\x00\x04\x00\x02\x07\x05\x03abc\x04........\x03....\x00";
    let array = b"\x1c\x01a\x02\x01\x07\x00\x00\x02hi\x05\x01........";
    let key = b"\xf3\x01....\x05\x01x\x00\x00\x01s\x01v\xff\0\0\0\0\0\0\0\0";
    let file = [&b"REDIS0014\xfe\x02"[..], module, array, key].concat();
    assert_eq!(
        told(&file).expect("a file"),
        "(Redis, 14)\n\
         Skipped(Skipped { key: Some((2, [107])), what: \"a value of module AAAAAAAAB\" })\n\
         Skipped(Skipped { key: Some((2, [97])), what: \"an array\" })\n\
         2 s String None\n  v\n"
    );
}

#[test]
fn entries_that_were_given_back_and_names_of_entries_are_read() {
    let mut writer = StreamWriter::default();
    let id = Id { ms: 1, seq: 0 };
    writer.entry(id, vec![b"f".to_vec(), b"v".to_vec()]);
    let mut body = Vec::new();
    writer.finish(StreamState { len: 1, last: id, added: 1, ..StreamState::default() }, &mut body);
    body[0] = 27;
    assert_eq!(body.pop(), Some(0), "no groups");
    body.extend_from_slice(b"\x01\x01g\x01\x00\x01\x01");
    body.extend_from_slice(&id.to_bytes());
    body.extend_from_slice(b"\0\0\0\0\0\0\0\0\x02\x00\x01");
    body.extend_from_slice(&id.to_bytes());
    body.extend_from_slice(b"\x14\x14\x01\x01p\x01\x02id\x01\x00\x01\x00");
    let found = parts(14, &body).expect("a stream");
    let pending = Pending { id, delivered_ms: 0, times: 2, is_free: true };
    assert_eq!(found.len(), 4);
    assert_eq!(found[3], Part::Pending(pending));
}

fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        (0_usize..5_000, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
    ]
}

/// Consumers by number, and what is pending: every so manyth entry.
fn some_pending(ids: &[Id], every: usize, consumers: usize) -> Vec<(Pending, usize)> {
    let pending = |nth: usize, id: &Id| Pending {
        id: *id,
        delivered_ms: nth as u64,
        times: 1 << nth.min(40),
        is_free: false,
    };
    let some = ids.iter().step_by(every).enumerate();
    some.map(|(nth, id)| (pending(nth, id), nth % consumers)).collect()
}

proptest! {
    #[test]
    fn stream_that_is_written_is_read_again(
        entries in prop::collection::btree_map(
            (0_u64..1 << 50, any::<u64>()), prop::collection::vec(some_bytes(), 0..3), 0..300),
        names in prop::collection::btree_set(some_bytes(), 1..4),
        every in 1_usize..5,
    ) {
        let (mut writer, mut wanted) = (StreamWriter::default(), Vec::new());
        let ids: Vec<Id> = entries.keys().map(|(ms, seq)| Id { ms: *ms, seq: *seq }).collect();
        for (id, values) in ids.iter().zip(entries.values()) {
            let fields: Vec<_> = values.iter().flat_map(|value| [b"f".to_vec(), value.clone()]).collect();
            writer.entry(*id, fields.clone());
            wanted.push(Part::Entry { id: *id, fields });
        }
        let last = ids.last().copied().unwrap_or_default();
        let max_deleted = Id { ms: 7, seq: 9 };
        let state = StreamState { len: ids.len() as u64, last, max_deleted, added: 1 << 40 };
        wanted.push(Part::Stream(state));
        let pending = some_pending(&ids, every, names.len());
        let consumers: Vec<(&[u8], u64)> = names.iter().map(|name| (&name[..], 77)).collect();
        writer.group(Writing { name: b"g", last, read: None, pending: &pending, consumers: &consumers });
        wanted.push(Part::Group { name: b"g".to_vec(), last, read: None });
        for (number, name) in names.iter().enumerate() {
            wanted.push(Part::Consumer { name: name.clone(), seen_ms: 77, active_ms: Some(77) });
            let own = pending.iter().filter(|(_, owner)| *owner == number);
            wanted.extend(own.map(|(it, _)| Part::Pending(*it)));
        }
        let mut body = Vec::new();
        writer.finish(state, &mut body);
        prop_assert_eq!(parts(VERSION, &body).expect("a stream"), wanted);
    }

    #[test]
    fn file_that_is_written_is_read_again(
        keys in prop::collection::vec((0_u64..3, some_bytes(), some_bytes()), 0..20),
    ) {
        let mut file = FileWriter::begin(Vec::new(), VERSION, &[("redis-ver", "7.0.0")]).expect("memory");
        for (db, name, value) in &keys {
            let mut body = string_head(value.len());
            body.extend_from_slice(value);
            file.key(*db, name, Some(5), &body).expect("memory");
        }
        let bytes = file.finish().expect("memory");
        let mut reader = Reader::open(&bytes[..], Limits::default()).expect("a file");
        reader.next_item().expect("a note");
        for (db, name, value) in keys {
            let key = Key { db, name, kind: Kind::String, expires_ms: Some(5) };
            prop_assert_eq!(reader.next_item().expect("a key"), Some(Item::Key(key)));
            prop_assert_eq!(reader.next_item().expect("its value"), Some(Item::Part(Part::String(value))));
            prop_assert_eq!(reader.next_item().expect("its end"), Some(Item::End));
        }
        prop_assert_eq!(reader.next_item().expect("the end"), None);
    }

    #[test]
    fn any_bytes_are_read_to_an_end(body in prop::collection::vec(any::<u8>(), 0..300), kind in 0_u8..30) {
        let _ = parts(11, &[&[kind], &body[..]].concat());
        let _ = parts(80, &[&[kind], &body[..]].concat());
    }
}

#[test]
fn payload_of_a_string_is_that_of_redis_7_0() {
    // DUMP of "hello" by redis-server 7.0.15
    let golden: &[u8] = b"\x00\x05\x68\x65\x6c\x6c\x6f\x0a\x00\x63\x72\xdf\x76\x65\x34\x20\x0a";
    let body = [&string_head(5)[..], b"hello"].concat();
    let sealed = [&body[..], &footer(VERSION, &[&body])].concat();
    assert_eq!(sealed, golden);
    assert_eq!(verify(&sealed), Some((&body[..], VERSION)));
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(verify(&damaged), None, "bit {bit}");
    }
    assert_eq!(verify(b"short"), None);
}
