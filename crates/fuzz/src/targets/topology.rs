//! What another worker sends: envelopes, the values of their tuples, and what is said of epochs.

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
use topology::value::Value;
use topology::values;
use topology::values::Values;
use topology::wire::{decode, decode_epoch_message, encode, encode_epoch_message};

/// Bytes that mean something in an envelope.
pub(super) const WORDS: &[&[u8]] = &[
    b"\x01\x02\0\0",
    b"\x01\x06\0\0",
    b"\x01\0\0\0",
    b"\0\0\0\0\0\0\0\0",
    b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
    b"\x07\x05\0\0\0\x07\0\0\0\0",
    b"\x03",
];

/// What decodes encodes to the same bytes, and so do its values.
pub(super) fn envelope(input: &[u8]) {
    let Ok(envelope) = decode(&Bytes::copy_from_slice(input)) else { return };
    let mut again = Vec::new();
    encode(&envelope, &mut again);
    assert_eq!(again, input);
    let Message::Forward(Forward::Frame { load: Load::Parcel(parcel), .. }) = envelope.message else {
        return;
    };
    for Item { values, .. } in &parcel.items {
        assert_eq!(values.iter().count(), values.len());
        values.iter().for_each(value);
    }
}

/// A word of epochs that decodes is read back from what it encodes to: keys that come twice, or in another order, are what they are as a map.
pub(super) fn talk(input: &[u8]) {
    let Ok(talk) = decode_epoch_message(&Bytes::copy_from_slice(input)) else { return };
    let mut again = Vec::new();
    encode_epoch_message(&talk, &mut again);
    assert_eq!(decode_epoch_message(&again.into()), Ok(talk));
}

/// A value that decodes encodes to the same bytes.
pub(super) fn value(input: &[u8]) {
    if let Ok(value) = Value::decode(input) {
        let again = Values::encode(&[value]).expect("its depth is that of what was decoded");
        assert_eq!(again.field(0), Some(input));
    }
}

/// An envelope of each kind.
pub(super) fn envelope_seeds() -> Vec<Vec<u8>> {
    let life = Incarnation { start: 1, moves: 2 };
    let root = RootId { spout: TaskId(3), life: 1, number: 300 };
    let values = Values::encode(&values!["mast", 7, true, vec![Value::from(1.5)]]).expect("they are few");
    let item = Item { origin: 1, stream: StreamId(2), values };
    let anchors = vec![Anchor { root, token: u64::MAX, origin: 0 }];
    let parcel = Load::Parcel(Parcel { anchors, items: vec![item.clone(), item] });
    let frame = |load| Message::Forward(Forward::Frame { life, offset: 1 << 33, load });
    let failure = Failure::new(1, ComponentId(2), "no", Nack { blame: Blame::Silent, delay: None });
    let messages = [
        Message::Forward(Forward::Open { life, offset: 9 }),
        frame(parcel),
        frame(Load::Barrier(Epoch(5))),
        frame(Load::Close),
        Message::Credit(Credit { life, taken: 9 }),
        Message::Reports(vec![Report { root, xor: 1, failed: vec![failure], extends: true }]),
    ];
    let envelopes = messages.map(|message| Envelope { from: TaskId(1), to: TaskId(2), message });
    let encoded = envelopes.iter().map(|envelope| {
        let mut bytes = Vec::new();
        encode(envelope, &mut bytes);
        bytes
    });
    encoded.collect()
}

/// Words of epochs with parts of each kind.
pub(super) fn talk_seeds() -> Vec<Vec<u8>> {
    let (generation, epoch) = (7, Epoch(9));
    let values = Values::encode(&values!["mast", 7]).expect("they are few");
    let position = Position(1 << 70);
    let original = Original { position, stream: StreamId(1), direct: Some(TaskId(3)), values, attempts: 2 };
    let letter =
        DeadLetter { original: original.clone(), component: Some(ComponentId(2)), error: "bad".to_owned() };
    let ancestor = Ancestor { root: RootId { spout: TaskId(0), life: generation, number: 4 }, origin: 1 };
    let changes = Changes {
        values: [(StateKey::of_field("h", "f"), Some("1".into())), (StateKey::of_key("k"), None)].into(),
        commands: vec![vec!["DEL".into(), "x".into()]],
        causes: vec![Cause { command: 0, component: ComponentId(2), ancestor }],
    };
    let dead = vec![letter.clone()];
    let capture = Capture { task: TaskId(1), generation, epoch, changes, position: Some(position), dead };
    let failure = Failure::new(1, ComponentId(2), "no", Nack { blame: Blame::Fatal, delay: None });
    let beginning = Beginning {
        generation,
        places: vec![WorkerId(0), WorkerId(1)],
        positions: [(TaskId(0), position)].into(),
        former: [(ComponentId(0), vec![Former(vec![Some(position), None])])].into(),
        poison: [(TaskId(0), [(position, letter)].into())].into(),
        pending_max: Some(3),
    };
    let talks = [
        EpochMessage::Report(EpochReport::Ready { generation }),
        EpochMessage::Report(EpochReport::Capture(capture)),
        EpochMessage::Report(EpochReport::Recalled {
            generation,
            originals: vec![(ancestor, Some(original.clone()))],
        }),
        EpochMessage::Report(EpochReport::Failed {
            generation,
            task: TaskId(0),
            failed: (original, failure),
        }),
        EpochMessage::Report(EpochReport::Lost { generation, error: "a gap".to_owned() }),
        EpochMessage::Order(Order::Prepare(beginning)),
        EpochMessage::Order(Order::Barrier { generation, epoch }),
        EpochMessage::Order(Order::Recall { generation, ancestors: vec![ancestor] }),
    ];
    let encoded = talks.iter().map(|talk| {
        let mut bytes = Vec::new();
        encode_epoch_message(talk, &mut bytes);
        bytes
    });
    encoded.collect()
}

/// A value of each kind.
pub(super) fn value_seeds() -> Vec<Vec<u8>> {
    let list = vec![Value::Null, Value::from("a"), Value::List(vec![Value::from(1)])];
    let each = values![None::<bool>, true, -1, 0.5, vec![1_u8, 2], "text", list];
    let values = Values::encode(&each).expect("they are few");
    values.iter().map(<[u8]>::to_vec).collect()
}
