//! What tasks of another process send: envelopes, and the values of their tuples.

use bytes::Bytes;
use topology::anchor::{Anchor, Blame, Failure, Nack, Report, RootId};
use topology::channel::{Credit, Forward, Life};
use topology::ids::{ComponentId, StreamId, TaskId};
use topology::message::{Envelope, Message};
use topology::parcel::{Epoch, Item, Load, Parcel};
use topology::value::Value;
use topology::values;
use topology::values::Values;
use topology::wire::{decode, encode};

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

/// A value that decodes encodes to the same bytes.
pub(super) fn value(input: &[u8]) {
    if let Ok(value) = Value::decode(input) {
        let again = Values::encode(&[value]).expect("its depth is that of what was decoded");
        assert_eq!(again.field(0), Some(input));
    }
}

/// An envelope of each kind.
pub(super) fn envelope_seeds() -> Vec<Vec<u8>> {
    let life = Life { start: 1, moves: 2 };
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

/// A value of each kind.
pub(super) fn value_seeds() -> Vec<Vec<u8>> {
    let list = vec![Value::Null, Value::from("a"), Value::List(vec![Value::from(1)])];
    let each = values![None::<bool>, true, -1, 0.5, vec![1_u8, 2], "text", list];
    let values = Values::encode(&each).expect("they are few");
    values.iter().map(<[u8]>::to_vec).collect()
}
