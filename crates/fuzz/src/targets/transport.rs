//! What another node sends: chunks, and what is in them once their checksum is right.
//!
//! Random bytes do not get past the checksum, so each input is tried as it is, and as the payload of a chunk of each kind. The first
//! byte says how many credit records the chunk claims.

use transport::wire::{
    Chunk, CreditRecord, Frame, Frames, HEADER_BYTES, Header, Hello, Kind, MAC_BYTES, PROOF_BYTES, Parsed,
    ProofKind, ProofRecord, append_credit, append_frame, credits, decode, decode_carried,
    encode_carried_header, encode_header,
};

/// Bytes that mean something in a chunk.
pub(super) const WORDS: &[&[u8]] = &[
    b"EV\x01",
    b"\x04\0\0\0",
    b"\0\0\0\0\0\0\0\0",
    b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
    b"\xFF\xFF\xFF\xFF\x0F",
    b"\x80\x80\x04",
    b"\xFF\xFF\x03",
    b"\x01",
];

const PAYLOAD_BYTES_MAX: u32 = 400;

/// Nothing goes beyond the bytes, and what decodes encodes to the same bytes.
pub(super) fn chunk(input: &[u8]) {
    read(input);
    let Some((count, payload)) = input.split_first() else { return };
    for kind in [Kind::Hello, Kind::Control, Kind::Lossy, Kind::Reliable] {
        let sequence = if kind == Kind::Reliable { u64::MAX } else { 0 };
        let header = Header { kind, sequence, ack: 1, credits: u32::from(*count) };
        let bytes = [&encode_header(&header, payload)[..], payload].concat();
        read(&bytes);
        read(&bytes[..bytes.len() - 1]);
    }
}

fn read(bytes: &[u8]) {
    match decode(bytes, PAYLOAD_BYTES_MAX) {
        Ok(Parsed::Whole(chunk, size_bytes)) => {
            let head = encode_header(&chunk.header, chunk.payload);
            assert_eq!([&head[..], chunk.payload].concat(), bytes[..size_bytes]);
            read_payload(&chunk);
        }
        Ok(Parsed::Part(needs)) => {
            assert!(needs > bytes.len() && needs <= HEADER_BYTES + PAYLOAD_BYTES_MAX as usize);
        }
        Err(_) => {}
    }
    if let Ok(Parsed::Whole(chunk, size_bytes)) = decode_carried(bytes, PAYLOAD_BYTES_MAX) {
        let head = encode_carried_header(&chunk.header, chunk.payload);
        assert_eq!([&head[..], chunk.payload].concat(), bytes[..size_bytes]);
    }
}

fn read_payload(chunk: &Chunk<'_>) {
    if let Ok(hello) = Hello::decode(chunk.payload) {
        assert_eq!(hello.encode(), chunk.payload);
    }
    let mut again = Vec::new();
    let each = |record: CreditRecord| append_credit(&record, &mut again);
    let Ok(start) = credits(chunk.payload, chunk.header.credits, each) else { return };
    assert_eq!(again.len(), start);
    for frame in Frames::new(chunk.payload, start).map_while(Result::ok) {
        append_frame(&frame, &mut again);
    }
    assert!(chunk.payload.starts_with(&again));
}

/// A payload of each kind, with the number of its credit records before it, and a whole chunk.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let hello = Hello {
        node: 1,
        incarnation: 2,
        to: 3,
        knows: None,
        channel_window_bytes: 1 << 20,
        link_window_bytes: 1 << 24,
        message_bytes_max: 1 << 20,
        payload_bytes_max: 1 << 16,
    };
    let mut control = vec![2];
    append_credit(&CreditRecord { channel: Some(300), limit: 1 << 33 }, &mut control);
    append_credit(&CreditRecord { channel: None, limit: 7 }, &mut control);
    let mut frames = vec![0];
    append_frame(&Frame { channel: 0, goes_on: true, bytes: b"first" }, &mut frames);
    append_frame(&Frame { channel: 0, goes_on: false, bytes: &[7; 130] }, &mut frames);
    append_frame(&Frame { channel: 65_535, goes_on: false, bytes: b"" }, &mut frames);
    let header = Header { kind: Kind::Reliable, sequence: 1, ack: 0, credits: 0 };
    let whole = [&encode_header(&header, &frames[1..])[..], &frames[1..]].concat();
    vec![[&[0][..], &hello.encode()].concat(), control, frames, whole]
}

/// Bytes that mean something in a proof.
pub(super) const PROOF_WORDS: &[&[u8]] =
    &[b"EP\x01\x01\0\0\0\0", b"EP\x01\x02\0\0\0\0", b"EP\x01\x03\0\0\0\0", b"EP\x02", b"\0\0\0\0\0\0\0\0"];

/// What a stranger sends in place of a proof: what decodes encodes to the same bytes.
pub(super) fn proof(input: &[u8]) {
    let mut bytes = [0; PROOF_BYTES];
    let count = input.len().min(PROOF_BYTES);
    bytes[..count].copy_from_slice(&input[..count]);
    if let Ok(record) = ProofRecord::decode(&bytes) {
        assert_eq!(record.encode(), bytes);
    }
}

/// One of each kind.
pub(super) fn proof_seeds() -> Vec<Vec<u8>> {
    let proofs = [ProofKind::Dialer, ProofKind::Acceptor].map(|kind| ProofRecord {
        kind,
        node: 1,
        to: u64::MAX,
        mac: [7; MAC_BYTES],
    });
    proofs.iter().chain([&ProofRecord::REFUSED]).map(|proof| proof.encode().to_vec()).collect()
}
