//! Files and payloads of Redis and Valkey: bytes of another server, or of somebody who says so.

/// Types and records, and lengths that lie.
pub(super) const WORDS: &[&[u8]] = &[
    b"REDIS0011",
    b"VALKEY080",
    b"\xff\0\0\0\0\0\0\0\0",
    b"\xfa",
    b"\xfc",
    b"\xf7",
    b"\xf3",
    b"\x0a\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff",
    b"\x14\x0a\x0a\0\0\0\x01\0\x81a\x02\xff",
    b"\x12\x01\x02",
    b"\x13",
    b"\x18",
    b"\x1b",
    b"\xc3\x05\x0a\0a\xe0\0\0",
    b"\x80\xff\xff\xff\xff",
    b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
];

/// A file is read to its end or refused, in steps that its bytes allow; also if its checksum is not looked at.
pub(super) fn file(input: &[u8]) {
    let _ = rdb::fuzzing::file(input);
    if let Some((body, _)) = input.split_last_chunk::<8>() {
        let _ = rdb::fuzzing::file(&[body, &[0; 8]].concat());
    }
}

pub(super) fn file_seeds() -> Vec<Vec<u8>> {
    let old = b"REDIS0003\xfe\0\x03\x01z\x01\x01a\x031e3\xff";
    vec![
        include_bytes!("../../../rdb/tests/golden/redis-7.0.rdb").to_vec(),
        include_bytes!("../../../rdb/tests/golden/valkey-9.1.rdb").to_vec(),
        old.to_vec(),
    ]
}

/// The last byte is the version of the payload, which has a checksum that is right.
pub(super) fn payload(input: &[u8]) {
    let _ = rdb::fuzzing::payload(input);
}

pub(super) fn payload_seeds() -> Vec<Vec<u8>> {
    [
        &b"\0\x05hello\x0a"[..],
        b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x01\0\x02\0\x09",
        b"\x12\x02\x01\x01a\x02\x0a\x0a\0\0\0\x01\0\x81a\x02\xff\x0b",
        b"\x16\x01\x01a\x01b\x05\0\0\0\0\0\0\0\x50",
        b"\x18\0\0\0\0\0\0\0\0\x02\x00\x01a\x01b\x03\x01c\x01d\x0c",
        b"\x13\0\0\x01\x01\0\0\0\0\x01\x01\x01g\0\0\0\0\x01\x01c\0\0\0\0\0\0\0\0\0\x0a",
    ]
    .map(<[u8]>::to_vec)
    .into()
}
