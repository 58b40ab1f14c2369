//! Lossy messages that wait for the next chunk: the newest of each channel, none of them kept once it was handed out.
//!
//! Invariants
//!   1. A channel is listed in `waiting` once if it has a message, and not at all if it has none.
//!   2. What waits never exceeds `bytes_max`. A lossy message fits into one chunk.

use std::collections::VecDeque;

use super::sending::too_large;
use crate::wire::{FRAME_HEADER_BYTES_MAX, Frame, append_frame};
use crate::{SendError, Settings};

pub(super) struct Lossy {
    bytes_max: u64,
    message_bytes_max: u32,
    channels_max: u16,
    /// By channel; empty vectors of channels that have nothing.
    newest: Vec<Option<Vec<u8>>>,
    waiting: VecDeque<u16>,
    bytes: u64,
    pub(super) messages: u64,
    /// Messages that a newer one took the place of, or that waited when a connection ended.
    pub(super) dropped_messages: u64,
}

impl Lossy {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            bytes_max: settings.lossy_bytes_max,
            message_bytes_max: settings.buffer_size_bytes,
            channels_max: settings.channels_max,
            newest: Vec::new(),
            waiting: VecDeque::new(),
            bytes: 0,
            messages: 0,
            dropped_messages: 0,
        }
    }

    /// What the peer takes may be less than what this node sends.
    pub(super) fn set_message_bytes_max(&mut self, bytes: u32) {
        self.message_bytes_max = bytes;
    }

    /// Has `message` wait in place of the one of its channel that waits; whether there was one.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(super) fn send(&mut self, channel: u16, message: &[u8]) -> Result<bool, SendError> {
        if message.len() > self.message_bytes_max as usize {
            return Err(too_large(message.len(), self.message_bytes_max, "buffer_size"));
        }
        if channel >= self.channels_max {
            return Err(SendError::NoSuchChannel { number: channel, limit: self.channels_max });
        }
        let index = usize::from(channel);
        if index >= self.newest.len() {
            self.newest.resize_with(index + 1, || None);
        }
        let place = &mut self.newest[index];
        let freed_bytes = place.as_ref().map_or(0, |older| older.len() as u64);
        let bytes = self.bytes - freed_bytes + message.len() as u64;
        if bytes > self.bytes_max {
            return Err(SendError::NoCredit);
        }
        self.bytes = bytes;
        self.messages += 1;
        if let Some(older) = place {
            older.clear();
            older.extend_from_slice(message);
            self.dropped_messages += 1;
            return Ok(true);
        }
        *place = Some(message.to_vec());
        self.waiting.push_back(channel);
        Ok(false)
    }

    /// Moves what waits into `payload`, as far as it fits; the others wait for the next.
    pub(super) fn hand_out(&mut self, payload_bytes_max: usize, payload: &mut Vec<u8>) {
        while let Some(channel) = self.waiting.front().copied() {
            let message = self.newest[usize::from(channel)].as_ref().expect("who waits has a message");
            if payload.len() + message.len() + FRAME_HEADER_BYTES_MAX > payload_bytes_max {
                return;
            }
            append_frame(&Frame { channel, goes_on: false, bytes: message }, payload);
            self.bytes -= message.len() as u64;
            self.newest[usize::from(channel)] = None;
            self.waiting.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A connection ended: what waits is stale by the time that there is another.
    pub(super) fn drop_all(&mut self) {
        self.dropped_messages += self.waiting.len() as u64;
        self.waiting.clear();
        self.newest.clear();
        self.bytes = 0;
    }

    /// Bytes that wait.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Frames;

    fn lossy() -> Lossy {
        Lossy::new(&Settings { buffer_size_bytes: 1 << 10, lossy_bytes_max: 2 << 10, ..Settings::default() })
    }

    fn handed_out(lossy: &mut Lossy) -> Vec<(u16, Vec<u8>)> {
        let mut payload = Vec::new();
        lossy.hand_out(1 << 10, &mut payload);
        Frames::new(&payload, 0).map(|frame| frame.map(|f| (f.channel, f.bytes.to_vec())).unwrap()).collect()
    }

    #[test]
    fn newest_of_a_channel_takes_the_place_of_the_one_that_waits() {
        let mut lossy = lossy();
        assert_eq!(lossy.send(7, b"old"), Ok(false));
        assert_eq!(lossy.send(2, b"other"), Ok(false));
        assert_eq!(lossy.send(7, b"newest"), Ok(true));
        let expected = [(7, b"newest".to_vec()), (2, b"other".to_vec())];
        assert_eq!(handed_out(&mut lossy), expected);
        assert_eq!(handed_out(&mut lossy), [], "nothing is repeated");
        assert_eq!((lossy.dropped_messages, lossy.kept_bytes()), (1, 0));
    }

    #[test]
    fn what_does_not_fit_into_a_chunk_waits_for_the_next_and_what_exceeds_the_bound_is_refused() {
        let mut lossy = lossy();
        for channel in 0..3 {
            lossy.send(channel, &[9; 600]).unwrap();
        }
        assert_eq!(lossy.send(3, &[9; 600]), Err(SendError::NoCredit));
        for channel in 0..3 {
            assert_eq!(handed_out(&mut lossy), [(channel, vec![9; 600])]);
        }
        let too_large = lossy.send(0, &[0; 1_025]).unwrap_err().to_string();
        assert_eq!(too_large, "a message of 1025 B exceeds transport.buffer_size (1024 B)");
    }

    #[test]
    fn end_of_a_connection_drops_what_waits_and_counts_it() {
        let mut lossy = lossy();
        lossy.send(1, b"term 7").unwrap();
        lossy.drop_all();
        assert_eq!(handed_out(&mut lossy), []);
        assert_eq!((lossy.dropped_messages, lossy.kept_bytes(), lossy.is_empty()), (1, 0, true));
    }
}
