//! Where messages of a child end.
//!
//! ```text
//!  JSON         {"command": "ack", "id": "7"}\n         a line `end` follows each
//!               end\n
//!  MessagePack  82 | key | value | key | value           a map says how many values follow it
//! ```
//!
//! Invariants
//!   1. No more than the limit, the end of a message and one piece of input is kept, whatever comes.
//!   2. What was looked at is not looked at again, however small the pieces are.

use memchr::memchr;
use rmp::Marker;

use crate::codec::{Codec, is_container};
use crate::message::{Garbage, excerpt};

/// Bytes that have come, and what of them is a message.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Where the next message begins.
    start: usize,
    scan: Scan,
    limit: usize,
}

/// How far the next message was looked at. Places are counted from where it begins.
#[derive(Debug)]
enum Scan {
    Lines {
        /// Where the line begins that is not complete.
        line: usize,
        /// No end of a line is between `line` and here.
        seen: usize,
    },
    Items {
        /// Where the next item begins, which may be beyond what has come.
        seen: usize,
        /// Items to come.
        open: u64,
    },
}

/// What is found at the end of a message.
enum End {
    /// It is not complete.
    Open,
    /// Its bytes, and those with its end.
    At { message: usize, whole: usize },
    /// It will have more bytes than it may.
    TooLong,
    /// It is none.
    Foreign(&'static str),
}

impl Frames {
    /// Nothing yet; a message may have `limit` bytes.
    #[must_use]
    pub fn new(codec: Codec, limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, scan: Scan::new(codec), limit }
    }

    /// More bytes have come.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, without its end; `None` if it is not complete.
    ///
    /// # Errors
    /// [`Garbage::TooLong`], or bytes that begin no message: nothing that follows can be read.
    pub fn read(&mut self) -> Result<Option<&[u8]>, Garbage> {
        let rest = &self.bytes[self.start..];
        match self.scan.advance(rest, self.limit) {
            End::Open => Ok(None),
            End::At { message, whole } => {
                let start = self.start;
                self.start += whole;
                self.scan.begin();
                Ok(Some(&self.bytes[start..start + message]))
            }
            End::TooLong => Err(Garbage::TooLong { limit: self.limit, begin: excerpt(rest) }),
            End::Foreign(error) => Err(Garbage::NoMessage { error: error.to_owned(), begin: excerpt(rest) }),
        }
    }

    /// How its messages are written.
    #[must_use]
    pub fn codec(&self) -> Codec {
        match self.scan {
            Scan::Lines { .. } => Codec::Json,
            Scan::Items { .. } => Codec::MessagePack,
        }
    }

    /// Bytes of a message that is not complete.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }
}

impl Scan {
    fn new(codec: Codec) -> Self {
        match codec {
            Codec::Json => Self::Lines { line: 0, seen: 0 },
            Codec::MessagePack => Self::Items { seen: 0, open: 0 },
        }
    }

    /// Another message follows.
    fn begin(&mut self) {
        match self {
            Self::Lines { line, seen } => (*line, *seen) = (0, 0),
            Self::Items { seen, open } => (*seen, *open) = (0, 0),
        }
    }

    /// Looks for the end of the message that begins with `bytes`.
    fn advance(&mut self, bytes: &[u8], limit: usize) -> End {
        match self {
            Self::Lines { line, seen } => lines(bytes, line, seen, limit),
            Self::Items { seen, open } => items(bytes, seen, open, limit),
        }
    }
}

fn lines(bytes: &[u8], line: &mut usize, seen: &mut usize, limit: usize) -> End {
    while let Some(length) = memchr(b'\n', &bytes[*seen..]) {
        let (begin, end) = (*line, *seen + length);
        (*line, *seen) = (end + 1, end + 1);
        let text = &bytes[begin..end];
        if text.strip_suffix(b"\r").unwrap_or(text) == END {
            return if begin > limit { End::TooLong } else { End::At { message: begin, whole: end + 1 } };
        }
    }
    *seen = bytes.len();
    if *seen > limit + END_BYTES_MAX { End::TooLong } else { End::Open }
}

fn items(bytes: &[u8], seen: &mut usize, open: &mut u64, limit: usize) -> End {
    if *seen == 0 {
        match bytes.first() {
            None => return End::Open,
            Some(&first) if !is_container(first) => return End::Foreign(NO_MAP),
            Some(_) => *open = 1,
        }
    }
    while *open > 0 {
        let Some((head, content, inner)) = bytes.get(*seen..).and_then(item) else { break };
        *open += inner;
        *open -= 1;
        *seen = (*seen + head).saturating_add(content);
        // Each item to come has a byte at least.
        if (*seen as u64).saturating_add(*open) > limit as u64 {
            return End::TooLong;
        }
    }
    match *open {
        0 if *seen <= bytes.len() => End::At { message: *seen, whole: *seen },
        _ => End::Open,
    }
}

/// The first item of `bytes`: the bytes of its head, those that follow it, and how many items it has; `None` if its head is not complete.
fn item(bytes: &[u8]) -> Option<(usize, usize, u64)> {
    let (&first, rest) = bytes.split_first()?;
    let length = |size: usize| {
        let bytes = rest.get(..size)?;
        Some((1 + size, bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte))))
    };
    let text = |(head, length)| (head, length, 0);
    let ext = |(head, length): (usize, usize)| (head, length.saturating_add(1), 0);
    let array = |(head, length)| (head, 0, length as u64);
    let map = |(head, length)| (head, 0, 2 * length as u64);
    Some(match Marker::from_u8(first) {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (1, 0, 0),
        // No value has it; who decodes the message says so.
        Marker::Reserved => (1, 0, 0),
        Marker::U8 | Marker::I8 => (1, 1, 0),
        Marker::U16 | Marker::I16 => (1, 2, 0),
        Marker::U32 | Marker::I32 | Marker::F32 => (1, 4, 0),
        Marker::U64 | Marker::I64 | Marker::F64 => (1, 8, 0),
        Marker::FixStr(length) => (1, usize::from(length), 0),
        Marker::Str8 | Marker::Bin8 => text(length(1)?),
        Marker::Str16 | Marker::Bin16 => text(length(2)?),
        Marker::Str32 | Marker::Bin32 => text(length(4)?),
        Marker::FixExt1 => (1, 2, 0),
        Marker::FixExt2 => (1, 3, 0),
        Marker::FixExt4 => (1, 5, 0),
        Marker::FixExt8 => (1, 9, 0),
        Marker::FixExt16 => (1, 17, 0),
        Marker::Ext8 => ext(length(1)?),
        Marker::Ext16 => ext(length(2)?),
        Marker::Ext32 => ext(length(4)?),
        Marker::FixArray(length) => array((1, usize::from(length))),
        Marker::Array16 => array(length(2)?),
        Marker::Array32 => array(length(4)?),
        Marker::FixMap(length) => map((1, usize::from(length))),
        Marker::Map16 => map(length(2)?),
        Marker::Map32 => map(length(4)?),
    })
}

const END: &[u8] = b"end";
/// `end` with a carriage return, before its line is complete.
const END_BYTES_MAX: usize = END.len() + 1;
const NO_MAP: &str = "it begins with no map of MessagePack, which topology.multilang.serializer asks for";

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages in `input` that comes in pieces of `size` bytes.
    fn messages(codec: Codec, input: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut frames = Frames::new(codec, 64);
        let mut found = Vec::new();
        for piece in input.chunks(size) {
            frames.push(piece);
            while let Some(message) = frames.read().expect("it is a message") {
                found.push(message.to_vec());
            }
        }
        found
    }

    #[test]
    fn messages_are_found_in_pieces_of_any_size() {
        let text = b"{}\nend\n[1,\n2]\nend\r\nendless\n end\nend\nrest";
        for size in 1..text.len() {
            let found = messages(Codec::Json, text, size);
            assert_eq!(found, [&b"{}\n"[..], b"[1,\n2]\n", b"endless\n end\n"], "pieces of {size}");
        }
    }

    #[test]
    fn maps_and_arrays_are_found_in_pieces_of_any_size() {
        let each: [&[u8]; 8] = [
            b"\x80",
            b"\x82\xA1a\x01\xA1b\x92\xC0\xD9\x03xyz",
            b"\x90",
            b"\xDC\x00\x02\xCD\x01\x02\xCB12345678",
            b"\xDE\x00\x01\xC4\x01k\xC5\x00\x02xx",
            b"\x93\xD4\x01x\xC7\x02\x01xx\xD8\x010123456789abcdef",
            b"\x94\xC2\xC3\xE0\xC1",
            b"\xDF\x00\x00\x00\x01\xDA\x00\x01k\xDD\x00\x00\x00\x01\xCE\x00\x00\x00\x00",
        ];
        let mut input = each.concat();
        input.extend_from_slice(b"\x82\xA1a");
        for size in 1..input.len() {
            assert_eq!(messages(Codec::MessagePack, &input, size), each, "pieces of {size}");
        }
    }

    #[test]
    fn message_beyond_the_limit_is_refused_before_it_is_complete() {
        let mut frames = Frames::new(Codec::Json, 64);
        frames.push(&[b'x'; 68]);
        assert_eq!(frames.read(), Ok(None), "its last bytes may be those of its end");
        frames.push(b"y");
        let Err(Garbage::TooLong { limit: 64, begin }) = frames.read() else { panic!("refused") };
        assert!(begin.starts_with("xxx"));
        let mut frames = Frames::new(Codec::Json, 4);
        frames.push(b"12345\nend\n");
        assert!(frames.read().is_err(), "also when it came with its end");
        for head in [
            &b"\x91\xC6\xFF\xFF\xFF\xFF"[..],
            b"\xDD\xFF\xFF\xFF\xFF",
            b"\x91\xDF\xFF\xFF\xFF\xFF",
            b"\x91\xD9\x40",
        ] {
            let mut frames = Frames::new(Codec::MessagePack, 64);
            frames.push(head);
            assert!(
                matches!(frames.read(), Err(Garbage::TooLong { .. })),
                "{head:02x?} says that it is longer"
            );
        }
    }

    #[test]
    fn text_where_a_map_should_be_is_refused_at_once() {
        let mut frames = Frames::new(Codec::MessagePack, 64);
        frames.push(b"{\"pid\": 1}");
        let Err(Garbage::NoMessage { error, begin }) = frames.read() else { panic!("refused") };
        assert!(error.contains("topology.multilang.serializer") && begin == "{\"pid\": 1}", "{error}");
    }
}
