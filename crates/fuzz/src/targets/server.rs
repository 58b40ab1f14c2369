//! The payload of DUMP and RESTORE, and glob patterns: bytes that a client may have kept, or made.

use server::fuzzing::{dump_payload, pattern, with_checksum};

/// Bytes that mean something in a payload.
pub(super) const WORDS: &[&[u8]] =
    &[b"EVK", b"\x01", b"\x01\x01", b"\x00", b"\xFF\xFF\xFF\xFF", b"hir?\xe6m"];

/// A payload is taken or refused. As nearly no input has the right checksum, it is tried with that one as well.
pub(super) fn dump(input: &[u8]) {
    let _ = dump_payload(input);
    let taken = dump_payload(&with_checksum(input));
    let of_kind = |kind| input.starts_with(&[b'E', b'V', b'K', 1, kind]);
    let is_collection = of_kind(2) || of_kind(3);
    assert!(
        is_collection || taken == of_kind(1),
        "kind and version decide of a string, once the checksum is right"
    );
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let redis = b"\x00\x05hello\x0a\x00\x9a\x93\x24\xf0\xc7\x54\x4c\x2f";
    let bodies =
        [&b""[..], b"E", b"EVK", b"EVK\x01", b"EVK\x01\x01", b"EVK\x01\x01value", b"EVK\x02\x01value"];
    let hash = b"EVK\x01\x02\x01\0\0\x01\x01a1\x01\0\0\x01\0b";
    let set = b"EVK\x01\x03\x03\0\0\x01a\x03\0\0\x01b";
    let more = [&b"EVK\x01\x02value"[..], b"evk\x01\x01value", redis, hash, set];
    bodies.iter().chain(&more).flat_map(|body| [body.to_vec(), with_checksum(body)]).collect()
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
