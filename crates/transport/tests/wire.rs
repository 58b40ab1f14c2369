//! The bytes on the wire are those of the golden file: a change of them needs another version.

use transport::wire::{
    Chunk, CreditRecord, Frame, Frames, HEADER_BYTES, Header, Hello, Kind, Parsed, append_credit,
    append_frame, credits, decode, encode_header,
};

fn header(kind: Kind, sequence: u64, credits: u32) -> Header {
    Header { kind, sequence, ack: 0x0102_0304_0506_0708, credits }
}

fn chunk(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&encode_header(header, payload)[..], payload].concat()
}

fn hello() -> Hello {
    Hello {
        node: 1,
        incarnation: 0xA1,
        to: 2,
        knows: Some(0xB2),
        channel_window_bytes: 1 << 20,
        link_window_bytes: 1 << 24,
        message_bytes_max: 1 << 20,
        payload_bytes_max: 65_600,
    }
}

/// One chunk of each kind.
fn chunks() -> Vec<Vec<u8>> {
    let mut control = Vec::new();
    append_credit(&CreditRecord { channel: Some(300), limit: 1 << 33 }, &mut control);
    append_credit(&CreditRecord { channel: None, limit: 77 }, &mut control);
    let (mut lossy, mut reliable) = (Vec::new(), Vec::new());
    append_frame(&Frame { channel: 1, goes_on: false, bytes: b"newest" }, &mut lossy);
    append_frame(&Frame { channel: 0, goes_on: false, bytes: b"" }, &mut reliable);
    append_frame(&Frame { channel: 300, goes_on: true, bytes: &[0x5A; 200] }, &mut reliable);
    vec![
        chunk(&header(Kind::Hello, 0, 0), &hello().encode()),
        chunk(&header(Kind::Control, 0, 2), &control),
        chunk(&header(Kind::Lossy, 0, 0), &lossy),
        chunk(&header(Kind::Reliable, 9, 0), &reliable),
    ]
}

fn hex(bytes: &[u8]) -> String {
    let lines =
        bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    lines.map(|line| line + "\n").collect()
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let text: Vec<String> = chunks().iter().map(|bytes| hex(bytes)).collect();
    let text = text.join("\n");
    let golden = include_str!("golden/chunks-v1.hex");
    assert!(
        text == golden,
        "the bytes changed: raise the version, keep the old golden file; now they are\n{text}"
    );
}

#[test]
fn chunks_of_one_connection_are_read_one_after_the_other() {
    let bytes = chunks().concat();
    let (mut rest, mut kinds) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let Ok(Parsed::Whole(Chunk { header, payload }, size_bytes)) = decode(rest, 1 << 10) else {
            panic!("{rest:02x?}");
        };
        assert_eq!(size_bytes, HEADER_BYTES + payload.len());
        if header.kind == Kind::Hello {
            assert_eq!(Hello::decode(payload), Ok(hello()));
        } else {
            let start = credits(payload, header.credits, |_| {}).unwrap();
            assert!(Frames::new(payload, start).all(|frame| frame.is_ok()));
        }
        kinds.push(header.kind);
        rest = &rest[size_bytes..];
    }
    assert_eq!(kinds, [Kind::Hello, Kind::Control, Kind::Lossy, Kind::Reliable]);
}
