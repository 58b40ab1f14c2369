//! The payloads of DUMP and of FUNCTION DUMP, what is pending in streams, and glob patterns: bytes that a client may have kept, or made.

use commands::fuzzing::{dump_payload, pattern, pending_block, sketch, with_checksum};
use server::fuzzing::{libraries, script_decoders, script_functions, topologies};

/// Bytes that mean something in a payload.
pub(super) const WORDS: &[&[u8]] =
    &[b"EVK", b"\x01", b"\x01\x01", b"\x00", b"\xFF\xFF\xFF\xFF", b"hir?\xe6m"];

/// A payload is taken or refused. As nearly no input has the right checksum, it is tried with that one as well.
pub(super) fn dump(input: &[u8]) {
    let _ = dump_payload(input);
    let taken = dump_payload(&with_checksum(input));
    let begins_with = |version, kind| input.starts_with(&[b'E', b'V', b'K', version, kind]);
    // version 2 has hashes with fields that end, and streams with blocks of what is pending
    let is_collection =
        (2..=6).any(|kind| begins_with(1, kind)) || [2, 6].iter().any(|kind| begins_with(2, *kind));
    assert!(
        is_collection || taken == begins_with(1, 1),
        "kind and version decide of a string, once the checksum is right"
    );
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let redis = b"\x00\x05hello\x0a\x00\x9a\x93\x24\xf0\xc7\x54\x4c\x2f";
    let bodies =
        [&b""[..], b"E", b"EVK", b"EVK\x01", b"EVK\x01\x01", b"EVK\x01\x01value", b"EVK\x02\x01value"];
    let hash = b"EVK\x01\x02\x01\0\0\x01\x01a1\x01\0\0\x01\0b";
    let set = b"EVK\x01\x03\x03\0\0\x01a\x03\0\0\x01b";
    let streams = [b"EVK\x01\x06\x0b\x01\x01mv", b"EVK\x02\x06\x0b\x01\x01mv"];
    let sorted_set = b"EVK\x01\x05\x04\0\0\x01a\0\0\0\0\0\0\xf0\x3f\x04\0\0\x01b\0\0\0\0\0\0\xf0\x3f";
    let more =
        [&b"EVK\x01\x02value"[..], b"evk\x01\x01value", redis, hash, set, sorted_set, streams[0], streams[1]];
    bodies.iter().chain(&more).flat_map(|body| [body.to_vec(), with_checksum(body)]).collect()
}

/// Forms, flags and lengths of a block of pending entries.
pub(super) const PENDING_WORDS: &[&[u8]] = &[
    b"\x01",
    b"\x01\x01\x01n",
    b"\x10",
    b"\x1d",
    b"\x14\x88\x0e",
    b"\xfa",
    b"\xff\xff\xff\xff\x0f",
    b"\0\0\0\0\0\0\0",
];

/// Any value of an element is a block of some entries, which are told again as they were.
pub(super) fn pending(input: &[u8]) {
    let _ = pending_block(input);
}

pub(super) fn pending_seeds() -> Vec<Vec<u8>> {
    let older = [&900_u64.to_be_bytes()[..], &1_u64.to_be_bytes(), b"n"].concat();
    let newer = b"\x01\x02\x01n\x02nn\x14\x88\x0e\x10\x1d\x01\x01\x01\xfa\x06\0\x14";
    vec![Vec::new(), older, newer.to_vec(), b"\x01\0".to_vec()]
}

/// Bytes that mean something in a pattern.
pub(super) const PATTERN_WORDS: &[&[u8]] =
    &[b"*", b"?", b"[", b"[^", b"]", b"-", b"a-z", b"z-a", b"\\", b"\\]", b"\n", b"key:"];

/// The first line is the pattern, what follows is the text.
pub(super) fn glob(input: &[u8]) {
    let (words, text) = match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &b""[..]),
    };
    let _ = pattern(words, text, false);
    let _ = pattern(words, text, true);
}

pub(super) fn glob_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        &b"*\nkey"[..],
        b"",
        b"k?y:[a-c]*\nkey:b1",
        b"[^x]*[x-\nyx",
        b"\\*\n*",
        b"*a*b[\\]]*c\naab]c",
        b"[z-a]\nm",
    ];
    seeds.map(<[u8]>::to_vec).into()
}

/// Heads of a HyperLogLog, and runs of its sparse form.
pub(super) const SKETCH_WORDS: &[&[u8]] = &[
    b"HYLL\x01\0\0\0",
    b"HYLL\0\0\0\0",
    b"\x7f\xff",
    b"\x7f\xfe",
    b"\0",
    b"\x3f",
    b"\x80",
    b"\xff",
    b"\x40\0",
];

/// What is read is counted, added to and merged. As few inputs have all registers, it is tried with the rest of them as zeroes, too.
pub(super) fn hyperloglog(input: &[u8]) {
    let _ = sketch(input);
    let head = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0";
    for zeroes in 0..4_u16 {
        let rest = (0x7fff - zeroes - input.len() as u16).to_be_bytes();
        let _ = sketch(&[head, input, &rest].concat());
    }
}

pub(super) fn hyperloglog_seeds() -> Vec<Vec<u8>> {
    let empty = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff";
    [&b""[..], b"HYLL", empty, b"\x80", b"\x84\x3f\x80", b"\x7f\xff\0"].map(<[u8]>::to_vec).into()
}

/// Bytes that mean something in a record of libraries.
pub(super) const LIBRARY_WORDS: &[&[u8]] = &[
    b"EVKF\x01",
    b"#!lua name=",
    b"#!lua name=a\n",
    b"\x0d\0\0\0",
    b"\x01\0\0\0",
    b"\0\0\0\0",
    b"\xFF\xFF\xFF\xFF",
];

/// A record of libraries is taken or refused.
pub(super) fn library(input: &[u8]) {
    let _ = libraries(input);
}

pub(super) fn library_seeds() -> Vec<Vec<u8>> {
    let one = b"EVKF\x01\x0e\0\0\0#!lua name=a\nx\x01\0\0\0\x01\0\0\0f\x01\x01\x01\0\0\0d";
    [&b""[..], b"EVKF", b"EVKF\x01", one].map(<[u8]>::to_vec).into()
}

/// Bytes that mean something in JSON, in MessagePack, and in a format of `struct`.
pub(super) const SCRIPT_WORDS: &[&[u8]] = &[
    b"{\"a\":",
    b"[[",
    b"\\ud83d\\ude00",
    b"1e5",
    b"-0x1",
    b"nan",
    b"\x92\x01",
    b"\xdd\xff\xff\xff\xff",
    b"\xdb\0\0\0\x01",
    b"\xd9\x02ab",
    b">!8i4",
    b"c0",
    b"bc0s",
    b"i16",
    b"d",
];

/// What scripts decode is taken or refused, within the time and the memory of a script.
pub(super) fn script(input: &[u8]) {
    script_decoders(input);
}

/// What scripts can call takes any arguments, within the time and the memory of a script.
pub(super) fn script_function(input: &[u8]) {
    script_functions(input);
}

pub(super) fn script_function_seeds() -> Vec<Vec<u8>> {
    (0..8_u8)
        .map(|seed| (0..60).map(|at: u8| at.wrapping_mul(37).wrapping_add(seed * 31)).collect())
        .collect()
}

pub(super) fn script_seeds() -> Vec<Vec<u8>> {
    let seeds = [
        &b"{\"a\":[1,2.5,null,true],\"b\":{\"c\":\"x\\u00e9\"}}"[..],
        b"",
        b"\x93\x01\xa3two\x81\xa1a\xcb\x3f\xf8\0\0\0\0\0\0",
        b">!4 b i4 s c3 d",
        b"[[[[[[[[",
        b"\x91\x91\x91\x91\xc0",
    ];
    seeds.map(<[u8]>::to_vec).into()
}

/// Bytes that mean something in records of topologies.
pub(super) const TOPOLOGY_WORDS: &[&[u8]] = &[
    b"EVKT\x01",
    b"EVKT\x02",
    b"EVKD\x01",
    b"EVKD\x02",
    b"\x01\0\0\0a",
    b"\0\0\0\0",
    b"\x01",
    b"\0",
    b"\xFF\xFF\xFF\xFF",
];

/// A record of topologies is taken or refused.
pub(super) fn topology(input: &[u8]) {
    let _ = topologies(input);
}

pub(super) fn topology_seeds() -> Vec<Vec<u8>> {
    let list = b"EVKT\x01\x01\0\0\0a\x01\x01\0\0\0b\0";
    let definition = b"EVKD\x01\x07\0\0\0name: x\x01\x01\0\0\0f\x01\0\0\0k\x01\0\0\0v";
    let flags_and_workers = b"EVKT\x02\x01\0\0\0a\x03\0\0\0\0\x01\0\0\0b\x01\x03\0\0\0";
    let on_trial = b"EVKD\x02\x01\0\0\0x\x02\0\0\0s:\x04\0\0\x0017-0\x07\0\0\0name: x\0\0\0\0\0";
    [&b""[..], list, definition, flags_and_workers, on_trial].map(<[u8]>::to_vec).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_versions_of_topology_records_are_among_the_seeds() {
        for seed in topology_seeds().iter().filter(|seed| !seed.is_empty()) {
            assert!(topologies(seed), "{}", seed.escape_ascii());
        }
    }
}
