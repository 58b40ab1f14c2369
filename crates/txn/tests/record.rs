//! The bytes of a decision, and of the file log, pinned; every changed bit is noticed.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

use clock::UnixMs;
use proptest::prelude::*;
use txn::decision_log::file::sectors::{self, Stamp};
use txn::id::TxId;
use txn::protocol::BRANCHES_MAX;
use txn::record::{Decision, DecisionKind, Participant, ParticipantState, RecordError};
use txn::resource::RESOURCE_NAME_BYTES_MAX;

const STATES: [ParticipantState; 5] = [
    ParticipantState::ToCommit,
    ParticipantState::Committed,
    ParticipantState::RolledBack,
    ParticipantState::Mixed,
    ParticipantState::ToRollBack,
];

fn decision(kind: DecisionKind, names: &[&str]) -> Decision {
    let participants = names.iter().enumerate().map(|(n, name)| Participant {
        branch: n as u16 * 300,
        resource: (*name).into(),
        state: STATES[n % STATES.len()],
    });
    Decision {
        tx: TxId { epoch: 0x0102_0304, number: 0x1122_3344_5566_7788 },
        kind,
        decided: UnixMs(1_795_000_000_123),
        participants: participants.collect(),
    }
}

fn encoded(decision: &Decision) -> Vec<u8> {
    let mut out = Vec::new();
    decision.encode(&mut out);
    out
}

/// Bytes with a checksum that is right.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc_fast::crc32_iscsi(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/decisions.bin");
    let mut bytes = encoded(&decision(DecisionKind::Commit, &["orders", "stock", "évk", "d", "e"]));
    bytes.extend(encoded(&decision(DecisionKind::Heuristic, &[])));
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        #[allow(clippy::disallowed_methods, reason = "a file of the source tree")]
        std::fs::write(path, &bytes).unwrap();
    }
    assert_eq!(bytes, include_bytes!("golden/decisions.bin"));
}

#[test]
fn bytes_of_the_file_log_are_those_of_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/file-log.bin");
    let stamp = Stamp { tx: TxId { epoch: 3, number: 0x1122_3344_5566_7788 }, version: 9 };
    let mut bytes = sectors::encode(stamp, &[0xA5; 500]);
    bytes.extend(sectors::encode_node("node-1", 7, 3));
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        #[allow(clippy::disallowed_methods, reason = "a file of the source tree")]
        std::fs::write(path, &bytes).unwrap();
    }
    assert_eq!(bytes, include_bytes!("golden/file-log.bin"));
    assert_eq!(sectors::file_name(0x2F), "000000000000002f.tx");
    // As version 1 wrote it, which did not note the first epoch.
    assert_eq!(sectors::decode_node(b"EVKNODE1\x07\0\0\0\x06node-1\xC3\xFF\x30\x2E"), Some(("node-1", 7, 1)));
}

#[test]
fn every_changed_bit_and_every_cut_is_noticed() {
    let bytes = encoded(&decision(DecisionKind::Commit, &["orders", "stock"]));
    for bit in 0..bytes.len() * 8 {
        let mut hurt = bytes.clone();
        hurt[bit / 8] ^= 1 << (bit % 8);
        assert!(Decision::decode(&hurt).is_err(), "bit {bit}");
    }
    for cut in 0..bytes.len() {
        assert!(Decision::decode(&bytes[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn what_no_version_wrote_is_refused_though_its_checksum_is_right() {
    let good = encoded(&decision(DecisionKind::Commit, &["a", "b"]));
    let body = &good[..good.len() - 4];
    let with = |at: usize, byte: u8| {
        let mut body = body.to_vec();
        body[at] = byte;
        Decision::decode(&sealed(body)).unwrap_err()
    };
    assert_eq!(with(0, 2), RecordError::Version(2));
    assert_eq!(with(1, 3), RecordError::Value { what: "kind", value: 3 });
    assert_eq!(with(2, 65), RecordError::Value { what: "number of branches", value: 65 });
    assert_eq!(with(2, 1), RecordError::Long(5));
    assert_eq!(with(2, 3), RecordError::Short);
    assert_eq!(with(26, 6), RecordError::Value { what: "state of a branch", value: 6 });
    assert_eq!(with(27, 0), RecordError::Value { what: "length of a name", value: 0 });
    assert_eq!(with(27, 65), RecordError::Value { what: "length of a name", value: 65 });
    assert_eq!(with(28, 0xFF), RecordError::Name);
    let mut body = body.to_vec();
    body[29..31].copy_from_slice(&[0, 0]);
    assert_eq!(Decision::decode(&sealed(body)), Err(RecordError::Order(0)));
    assert_eq!(Decision::decode(b""), Err(RecordError::Short));
}

#[test]
#[should_panic(expected = "there twice or out of order")]
fn branch_that_is_there_twice_is_not_encoded() {
    let mut decision = decision(DecisionKind::Commit, &["a", "b"]);
    decision.participants[1].branch = 0;
    encoded(&decision);
}

proptest! {
    #[test]
    fn record_is_read_back_as_it_was(
        epoch: u32,
        number: u64,
        decided: u64,
        heuristic: bool,
        branches in proptest::collection::btree_map(any::<u16>(), ("[ -~]{1,64}", 0..STATES.len()), 0..=BRANCHES_MAX),
    ) {
        let participants = branches.into_iter().map(|(branch, (resource, state))| {
            Participant { branch, resource: resource.into(), state: STATES[state] }
        });
        let kind = if heuristic { DecisionKind::Heuristic } else { DecisionKind::Commit };
        let tx = TxId { epoch, number };
        let decision = Decision { tx, kind, decided: UnixMs(decided), participants: participants.collect() };
        let mut out = b"before".to_vec();
        decision.encode(&mut out);
        prop_assert!(out.len() <= 6 + 28 + BRANCHES_MAX * (4 + RESOURCE_NAME_BYTES_MAX));
        prop_assert_eq!(Decision::decode(&out[6..]), Ok(decision));
    }
}
