//! What decision logs read back: the record of a decision, and the files of the file log.
//!
//! Random bytes do not get past the checksums, so each input is tried as it is, and with checksums that are right.

use clock::UnixMs;
use txn::decision_log::file::sectors::{self, Found, SECTOR_BYTES, Stamp};
use txn::id::TxId;
use txn::record::{Decision, DecisionKind, Participant, ParticipantState};

/// Bytes that mean something in a record or a sector.
pub(super) const WORDS: &[&[u8]] = &[
    b"\x01\x01",
    b"\x01\x02",
    b"\x40\0",
    b"\x41\0",
    b"\x05\x01a",
    b"\xE4\x01",
    b"\xE0\x01",
    b"\x01\0\x02\0",
    b"EVKNODE1",
    b"\xFF\xFF\xFF\xFF",
];

const STAMP: Stamp = Stamp { tx: TxId { epoch: 1, number: 2 }, version: 3 };

/// What is decoded is encoded to the same bytes.
pub(super) fn decision(input: &[u8]) {
    let mut sealed = input.to_vec();
    sealed.extend_from_slice(&journal::format::crc32c(input).to_le_bytes());
    for bytes in [input, &sealed] {
        if let Ok(decision) = Decision::decode(bytes) {
            let mut again = Vec::new();
            decision.encode(&mut again);
            assert_eq!(again, bytes);
        }
    }
}

/// A whole record is one that would be written so; names are what they say.
pub(super) fn file_log(input: &[u8]) {
    let mut sealed = input.to_vec();
    for sector in sealed.chunks_mut(SECTOR_BYTES) {
        if let Some((crc, rest)) = sector.split_first_chunk_mut() {
            *crc = journal::format::crc32c(rest).to_le_bytes();
        }
    }
    for bytes in [input, &sealed] {
        if let Ok(Found::Record(stamp, record)) = sectors::decode(bytes) {
            assert_eq!(sectors::encode(stamp, &record), bytes);
        }
    }
    let mut node = input.to_vec();
    node.extend_from_slice(&journal::format::crc32c(input).to_le_bytes());
    for bytes in [input, &node] {
        if let Some((name, epoch, born)) = sectors::decode_node(bytes) {
            let again = sectors::encode_node(name, epoch, born);
            assert!(bytes.starts_with(b"EVKNODE1") || again == bytes);
        }
    }
    if let Some(number) = std::str::from_utf8(input).ok().and_then(sectors::file_number) {
        assert_eq!(sectors::file_name(number).as_bytes(), input);
    }
}

/// Records with and without their checksums.
pub(super) fn decision_seeds() -> Vec<Vec<u8>> {
    let participant = |branch: u16| Participant {
        branch,
        resource: "r".repeat(1 + usize::from(branch)).into(),
        state: if branch == 0 { ParticipantState::ToCommit } else { ParticipantState::Mixed },
    };
    let kinds = [(DecisionKind::Commit, 0), (DecisionKind::Commit, 2), (DecisionKind::Heuristic, 3)];
    let records = kinds.map(|(kind, count)| {
        let tx = TxId { epoch: 1, number: 9 };
        let participants = (0..count).map(participant).collect();
        let mut out = Vec::new();
        Decision { tx, kind, decided: UnixMs(1_795_000_000_000), participants }.encode(&mut out);
        out
    });
    records.iter().flat_map(|record| [record.clone(), record[..record.len() - 4].to_vec()]).collect()
}

/// Files of records of one and of three sectors, one that says whose folder it is, and a name.
pub(super) fn file_log_seeds() -> Vec<Vec<u8>> {
    let node = sectors::encode_node("node-1", 7, 3);
    let body = node[..node.len() - 4].to_vec();
    let (one, three) = (sectors::encode(STAMP, b"record"), sectors::encode(STAMP, &[7; 1_200]));
    let later = sectors::encode(Stamp { version: 4, ..STAMP }, &[8; 1_200]);
    let mixed = [&later[..SECTOR_BYTES], &three[SECTOR_BYTES..]].concat();
    vec![one, three, mixed, node, body, sectors::file_name(3).into_bytes()]
}
