//! A frame: one message of one channel, or a part of one.
//!
//! ```text
//!  | varint length | varint channel | flags u8 | length bytes |
//!  flags: bit 0, the message goes on in the next frame; all others are 0
//! ```
//!
//! A message that is larger than a chunk is split. Its parts follow each other in the link's order, with nothing between them, so a
//! receiver puts together at most one message at a time for each link.

use super::WireError;
use super::varint::{self, VARINT_BYTES_MAX};

/// Most that a frame has beside its bytes.
pub const FRAME_HEADER_BYTES_MAX: usize = VARINT_BYTES_MAX + CHANNEL_BYTES_MAX + 1;

const CHANNEL_BYTES_MAX: usize = 3;
const GOES_ON: u8 = 1;

/// One message, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Whose it is.
    pub channel: u16,
    /// The message goes on in the next frame.
    pub goes_on: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Appends `frame`. Takes at most [`FRAME_HEADER_BYTES_MAX`] beside its bytes.
///
/// # Panics
/// If it has 4 GiB or more: a bug in the caller, whose chunks have a limit.
#[inline]
pub fn append_frame(frame: &Frame<'_>, to: &mut Vec<u8>) {
    let flags = if frame.goes_on { GOES_ON } else { 0 };
    if frame.bytes.len() < 0x80 && frame.channel < 0x80 {
        to.extend_from_slice(&[frame.bytes.len() as u8, frame.channel as u8, flags]);
    } else {
        append_long_header(frame, flags, to);
    }
    to.extend_from_slice(frame.bytes);
}

#[inline(never)]
fn append_long_header(frame: &Frame<'_>, flags: u8, to: &mut Vec<u8>) {
    let length = u32::try_from(frame.bytes.len()).expect("chunks have a limit far below 4 GiB");
    let mut number = [0; VARINT_BYTES_MAX];
    let count = varint::encode(length, &mut number);
    to.extend_from_slice(&number[..count]);
    let count = varint::encode(u32::from(frame.channel), &mut number);
    to.extend_from_slice(&number[..count]);
    to.push(flags);
}

/// The frames of a payload, in order; ends behind the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    payload_bytes: usize,
    /// What was not read.
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Those of `payload` from offset `at` on, where its credit records end.
    #[must_use]
    pub fn new(payload: &'a [u8], at: usize) -> Self {
        Self { payload_bytes: payload.len(), rest: payload.get(at..).unwrap_or_default() }
    }

    /// The next one, if its length and its channel have one byte each. Where the frame behind it begins is known one read of memory after
    /// where this one does: a receiver of small messages waits for that more than for anything else.
    #[inline(always)]
    fn read_short(&mut self) -> Option<Frame<'a>> {
        let (&[length, channel, flags], rest) = self.rest.split_first_chunk()?;
        if (length | channel) >= 0x80 || flags > GOES_ON {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(usize::from(length))?;
        self.rest = rest;
        Some(Frame { channel: u16::from(channel), goes_on: flags == GOES_ON, bytes })
    }

    #[inline(never)]
    fn read(&mut self) -> Option<Frame<'a>> {
        let (length, first) = varint::decode(self.rest)?;
        let (channel, second) = varint::decode(&self.rest[first..])?;
        let channel = u16::try_from(channel).ok()?;
        let flags = *self.rest.get(first + second)?;
        if flags & !GOES_ON != 0 {
            return None;
        }
        let start = first + second + 1;
        // No overflow: `start` is at most 11 and `length` has 32 bits.
        let bytes = self.rest.get(start..start + length as usize)?;
        self.rest = &self.rest[start + bytes.len()..];
        Some(Frame { channel, goes_on: flags == GOES_ON, bytes })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, WireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(frame) = self.read_short() {
            return Some(Ok(frame));
        }
        if self.rest.is_empty() {
            return None;
        }
        Some(self.read().ok_or_else(|| {
            let offset = self.payload_bytes - std::mem::take(&mut self.rest).len();
            WireError::Malformed { what: "frame", offset }
        }))
    }
}

const _: () = assert!(usize::BITS >= 64, "lengths of 32 bits are added to offsets");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(payload: &[u8], offset: usize) {
        let last = Frames::new(payload, 0).last();
        assert_eq!(last, Some(Err(WireError::Malformed { what: "frame", offset })), "{payload:02x?}");
    }

    #[test]
    fn frame_that_exceeds_its_payload_ends_the_reading() {
        refused(&[1, 0, 0], 0);
        refused(&[0, 0, 0, 2, 0, 0, 1], 3);
        refused(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0], 0);
        refused(&[0], 0);
        refused(&[0, 0], 0);
    }

    #[test]
    fn unknown_flag_and_channel_beyond_16_bits_are_refused() {
        refused(&[0, 0, 2], 0);
        refused(&[0, 0, 0x81], 0);
        refused(&[0, 0x80, 0x80, 4, 0], 0);
        let last = Frames::new(&[0, 0xFF, 0xFF, 3, 0], 0).last();
        assert_eq!(last, Some(Ok(Frame { channel: u16::MAX, goes_on: false, bytes: b"" })));
    }

    proptest! {
        #[test]
        fn frames_come_back_in_order_and_within_their_bound(
            messages in proptest::collection::vec(
                (any::<u16>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..20
            ),
            before in 0..9_usize,
        ) {
            let mut payload = vec![0xFF; before];
            for (channel, goes_on, bytes) in &messages {
                let start = payload.len();
                append_frame(&Frame { channel: *channel, goes_on: *goes_on, bytes }, &mut payload);
                prop_assert!(payload.len() - start - bytes.len() <= FRAME_HEADER_BYTES_MAX);
            }
            let read: Result<Vec<_>, _> = Frames::new(&payload, before).collect();
            let read: Vec<_> = read.unwrap().iter().map(|f| (f.channel, f.goes_on, f.bytes.to_vec())).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn any_bytes_are_read_without_going_beyond_them(payload: Vec<u8>) {
            let mut again = Vec::new();
            for frame in Frames::new(&payload, 0).map_while(Result::ok) {
                append_frame(&frame, &mut again);
            }
            prop_assert!(payload.starts_with(&again), "what decodes encodes to the same bytes");
        }
    }
}
