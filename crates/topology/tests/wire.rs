//! The bytes of envelopes are those of the golden file: a change of them needs another version. What is no envelope is named.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bytes::Bytes;
use topology::anchor::{Ancestor, Anchor, Blame, Failure, Nack, Report, RootId};
use topology::changes::{Capture, Cause, Changes, StateKey};
use topology::channel::{Credit, Forward, Incarnation};
use topology::epochs::{Beginning, EpochMessage, EpochReport, Order};
use topology::ids::{ComponentId, StreamId, TaskId, WorkerId};
use topology::message::{Envelope, Message};
use topology::parcel::{Epoch, Item, Load, Parcel};
use topology::past::Former;
use topology::tracker::{DeadLetter, Original, Position};
use topology::values;
use topology::values::Values;
use topology::wire::{HEADER_BYTES, WireError, decode, decode_epoch_message, encode, encode_epoch_message};

const LIFE: Incarnation = Incarnation { start: 0x0102, moves: 3 };

fn root(number: u64) -> RootId {
    RootId { spout: TaskId(7), life: 2, number }
}

fn frame(load: Load) -> Message {
    Message::Forward(Forward::Frame { life: LIFE, offset: 0x1122_3344_5566, load })
}

fn parcel() -> Parcel {
    let item = |origin, values: &Values| Item { origin, stream: StreamId(5), values: values.clone() };
    let anchors = [1, 2].map(|number| Anchor { root: root(number), token: 0xABCD << number, origin: 9 });
    let words = Values::encode(&values!["mast", 3, None::<i64>]).unwrap();
    Parcel { anchors: anchors.to_vec(), items: vec![item(0, &words), item(1, &Values::new::<&[u8]>(&[]))] }
}

fn reports() -> Vec<Report> {
    let nack = |blame, delay| Nack { blame, delay };
    let failed = vec![
        Failure::new(3, ComponentId(1), "no", nack(Blame::Fail, None)),
        Failure::new(4, ComponentId(2), "", nack(Blame::Fatal, Some(Duration::from_millis(5)))),
    ];
    let done = Report { root: root(8), xor: 0xFFFF_FFFF_0000_0001, failed, extends: false };
    vec![done, Report { root: root(9), xor: 0, failed: vec![], extends: true }]
}

/// One envelope of each kind.
fn envelopes() -> Vec<Envelope> {
    let messages = [
        Message::Forward(Forward::Open { life: LIFE, offset: 42 }),
        frame(Load::Parcel(parcel())),
        frame(Load::Barrier(Epoch(77))),
        frame(Load::Close),
        Message::Credit(Credit { life: LIFE, taken: u64::MAX }),
        Message::Reports(reports()),
    ];
    messages.map(|message| Envelope { from: TaskId(1), to: TaskId(0x0A0B), message }).to_vec()
}

fn encoded(envelope: &Envelope) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(envelope, &mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32);
    lines.map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect()
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let text: Vec<String> = envelopes().iter().map(|envelope| hex(&encoded(envelope))).collect();
    let text = text.join("\n");
    let golden = include_str!("golden/envelopes-v2.hex");
    assert!(
        text == golden,
        "the bytes changed: raise the version, keep the old golden file; now they are\n{text}"
    );
}

#[test]
fn envelopes_are_read_back() {
    for envelope in envelopes() {
        assert_eq!(decode(&encoded(&envelope).into()), Ok(envelope));
    }
}

#[test]
fn envelope_that_is_cut_anywhere_or_goes_on_is_refused() {
    for bytes in envelopes().iter().map(encoded) {
        for end in 0..bytes.len() {
            let error = decode(&Bytes::copy_from_slice(&bytes[..end])).unwrap_err();
            assert!(matches!(error, WireError::TooShort { .. }), "cut at {end}: {error}");
        }
        let longer = decode(&[&bytes[..], &[0]].concat().into());
        assert_eq!(longer, Err(WireError::TooLong { at: bytes.len(), left: 1 }));
    }
}

/// The error of the envelope `kind` with some bytes replaced.
fn error(kind: usize, at: usize, with: &[u8]) -> String {
    let mut bytes = encoded(&envelopes()[kind]);
    bytes[at..at + with.len()].copy_from_slice(with);
    decode(&bytes.into()).unwrap_err().to_string()
}

#[test]
fn errors_name_what_is_wrong_and_where() {
    const OPEN: usize = 0;
    const PARCEL: usize = 1;
    const REPORTS: usize = 5;
    const TUPLES: usize = HEADER_BYTES + 2 * 28;
    let cases: [(usize, usize, &[u8], &str); 12] = [
        (OPEN, 0, &[1], "an envelope of version 1, this process reads version 2"),
        (OPEN, 1, &[7], "an envelope of unknown kind 7"),
        (OPEN, 2, &[1], "reserved bytes at byte 2 cannot be 1"),
        (OPEN, 20, &[9], "count at byte 20 cannot be 9"),
        (PARCEL, 20, &[0], "count at byte 20 cannot be 0"),
        (PARCEL, 20, &[0xFF; 4], "tuples at byte 92 needs 51539607540 B, and 51 are left"),
        (PARCEL, 32, &[0xFF; 4], "anchors at byte 36 needs 120259084260 B, and 107 are left"),
        (PARCEL, HEADER_BYTES + 16, &[0; 8], "token at byte 52 cannot be 0"),
        (PARCEL, TUPLES + 10, &[99], "values at byte 102, 29 B, whose lengths do not agree"),
        (REPORTS, HEADER_BYTES + 24, &[2], "flags at byte 60 cannot be 2"),
        (REPORTS, HEADER_BYTES + 29 + 6, &[3], "blame at byte 71 cannot be 3"),
        (REPORTS, HEADER_BYTES + 29 + 18, &[0xFF], "text at byte 83 is not UTF-8"),
    ];
    for (kind, at, with, expected) in cases {
        assert_eq!(error(kind, at, with), expected);
    }
}

// ---- what workers and the coordinator of epochs say ------------------------------------------------

fn original(position: u128) -> Original {
    let values = Values::encode(&values!["tea", 3]).unwrap();
    Original { position: Position(position), stream: StreamId(5), direct: None, values, attempts: 2 }
}

fn capture() -> Capture {
    let commands = vec![vec![Bytes::from("DEL"), Bytes::from("x")]];
    let values = [(StateKey::of_key("k"), None), (StateKey::of_field("h", "f"), Some(Bytes::from("1")))];
    let letter =
        DeadLetter { original: original(6), component: Some(ComponentId(4)), error: "bad".to_owned() };
    Capture {
        task: TaskId(3),
        generation: 0x0102,
        epoch: Epoch(77),
        changes: Changes { values: values.into(), commands, causes: Vec::new() },
        position: Some(Position(1 << 100)),
        dead: vec![letter],
    }
}

/// One word of each kind.
fn talks() -> Vec<EpochMessage> {
    let generation = 0x0102;
    let failure = Failure::new(3, ComponentId(1), "no", Nack { blame: Blame::Fail, delay: None });
    let failed = (Original { direct: Some(TaskId(9)), ..original(8) }, failure);
    let letter = DeadLetter { original: original(7), component: None, error: String::new() };
    let beginning = Beginning {
        generation,
        places: vec![WorkerId(0), WorkerId(2)],
        positions: [(TaskId(0), Position(40))].into(),
        poison: [(TaskId(0), [(Position(7), letter)].into())].into(),
        pending_max: Some(9),
        ..Beginning::default()
    };
    let former = [(ComponentId(1), vec![Former(vec![Some(Position(40)), None, Some(Position(1 << 90))])])];
    let after_another_number = Beginning { former: former.into(), ..beginning.clone() };
    let ancestor = Ancestor { root: root(8), origin: 3 };
    let mut with_causes = capture();
    with_causes.changes.causes = vec![Cause { command: 0, component: ComponentId(4), ancestor }];
    let originals = vec![(ancestor, Some(original(8))), (Ancestor { origin: 4, ..ancestor }, None)];
    let told = [
        EpochReport::Ready { generation },
        EpochReport::Work { generation },
        EpochReport::Capture(capture()),
        EpochReport::Failed { generation, task: TaskId(3), failed },
        EpochReport::Lost { generation, error: "a gap".to_owned() },
        EpochReport::Capture(with_causes),
        EpochReport::Recalled { generation, originals },
    ];
    let epoch = Epoch(77);
    let orders = [
        Order::Prepare(beginning),
        Order::Go { generation },
        Order::Barrier { generation, epoch },
        Order::Durable { generation, epoch },
        Order::Prepare(after_another_number),
        Order::Recall { generation, ancestors: vec![ancestor] },
    ];
    told.into_iter().map(EpochMessage::Report).chain(orders.into_iter().map(EpochMessage::Order)).collect()
}

fn encoded_epoch_message(talk: &EpochMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_epoch_message(talk, &mut bytes);
    bytes
}

#[test]
fn bytes_of_talk_are_those_of_the_golden_file() {
    let text: Vec<String> = talks().iter().map(|talk| hex(&encoded_epoch_message(talk))).collect();
    let text = text.join("\n");
    let golden = include_str!("golden/talk-v2.hex");
    assert!(
        text == golden,
        "the bytes changed: raise the version, keep the old golden file; now they are\n{text}"
    );
}

#[test]
fn talk_is_read_back() {
    for talk in talks() {
        assert_eq!(decode_epoch_message(&encoded_epoch_message(&talk).into()), Ok(talk));
    }
}

#[test]
fn talk_that_is_cut_anywhere_or_goes_on_is_refused() {
    for bytes in talks().iter().map(encoded_epoch_message) {
        for end in 0..bytes.len() {
            let error = decode_epoch_message(&Bytes::copy_from_slice(&bytes[..end])).unwrap_err();
            assert!(matches!(error, WireError::TooShort { .. }), "cut at {end}: {error}");
        }
        let longer = decode_epoch_message(&[&bytes[..], &[0]].concat().into());
        assert_eq!(longer, Err(WireError::TooLong { at: bytes.len(), left: 1 }));
    }
}

#[test]
fn talk_that_is_none_is_named() {
    const CAPTURE: usize = 2;
    let error = |kind: usize, at: usize, with: &[u8]| {
        let mut bytes = encoded_epoch_message(&talks()[kind]);
        bytes[at..at + with.len()].copy_from_slice(with);
        decode_epoch_message(&bytes.into()).unwrap_err().to_string()
    };
    assert_eq!(error(0, 0, &[1]), "an envelope of version 1, this process reads version 2");
    assert_eq!(error(0, 1, &[30]), "an envelope of unknown kind 30");
    assert_eq!(error(0, 2, &[1]), "reserved bytes at byte 2 cannot be 1");
    assert_eq!(error(CAPTURE, 20, &[2]), "flag at byte 20 cannot be 2");
    let many = error(CAPTURE, 37, &[0xFF; 4]);
    assert!(many.starts_with("values at byte 41 needs 25769803770 B"), "{many}");
}
