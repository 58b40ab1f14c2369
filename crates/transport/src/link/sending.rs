//! The sending half of a link: reliable messages, written in place into chunks, kept until they are acknowledged.
//!
//! ```text
//!  send ---> | open chunk | --seal--> kept: | acknowledged | handed out  | not handed out |
//!                                            dropped        ^ `unsent` points here
//!  a new connection: `unsent` goes back to the first that is not acknowledged
//! ```
//!
//! Invariants
//!   1. Sequences in `kept` are without gaps; the open chunk has the one that follows.
//!   2. `kept_bytes` is what `kept` takes of memory, and with the open chunk never exceeds `unacked_bytes_max`.
//!   3. A message is taken whole, with all its parts, or not at all.
//!   4. What a channel, and all together, were sent never exceeds the limits that the peer gave.

use std::collections::VecDeque;
use std::sync::Arc;

use super::account::{Account, cost_of};
use crate::wire::{FRAME_HEADER_BYTES_MAX, Frame, append_frame};
use crate::{LinkError, SendError, Settings};

/// What a kept chunk takes beside its bytes.
pub(super) const CHUNK_COST_BYTES: u64 = 128;
/// Buffers of acknowledged chunks take this part of what may be kept, to be used again. With fewer than are under way, memory goes to the
/// system and comes back by page faults: messages of 64 KiB were half as many.
const SPARES_PART: u64 = 2;

/// So large a part of what may be kept is free before those are told that were refused for want of it.
const WORTH_PART: u64 = 4;

/// A sealed chunk's payload, shared between the link that keeps it and the connection that sends it.
pub(crate) type Payload = Arc<Vec<u8>>;

/// What the peer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) message_bytes_max: u32,
    pub(super) payload_bytes_max: u32,
    pub(super) channel_window_bytes: u64,
    pub(super) link_window_bytes: u64,
}

struct Kept {
    payload: Payload,
    messages: u32,
}

impl Kept {
    fn cost_bytes(&self) -> u64 {
        self.payload.capacity() as u64 + CHUNK_COST_BYTES
    }
}

/// A message that had no credit.
struct Refused {
    channel: u16,
    cost_bytes: u64,
    room_bytes: u64,
}

pub(super) struct Sending {
    unacked_bytes_max: u64,
    channels_max: u16,
    terms: Terms,
    channels: Vec<Account>,
    whole: Account,
    open: Vec<u8>,
    open_messages: u32,
    kept: VecDeque<Kept>,
    kept_bytes: u64,
    /// Sequence of the first that is kept, or of the open chunk if none is.
    first_sequence: u64,
    /// Index in `kept` of the first that this connection was not given.
    unsent: usize,
    /// The highest sequence that any connection was given.
    sent_sequence: u64,
    spares: Vec<Vec<u8>>,
    refused: Vec<Refused>,
    pub(super) messages: u64,
    pub(super) resent_chunks: u64,
}

impl Sending {
    /// Nothing sent, to a peer with these terms.
    pub(super) fn new(settings: &Settings, terms: Terms) -> Self {
        Self {
            unacked_bytes_max: settings.unacked_bytes_max,
            channels_max: settings.channels_max,
            terms,
            channels: Vec::new(),
            whole: Account::new(terms.link_window_bytes),
            open: Vec::new(),
            open_messages: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            first_sequence: 1,
            unsent: 0,
            sent_sequence: 0,
            spares: Vec::new(),
            refused: Vec::new(),
            messages: 0,
            resent_chunks: 0,
        }
    }

    /// Takes a message of `channel`.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(super) fn send(&mut self, channel: u16, message: &[u8]) -> Result<(), SendError> {
        if message.len() > self.terms.message_bytes_max as usize {
            return Err(too_large(message.len(), self.terms.message_bytes_max, "message_size_max"));
        }
        let cost_bytes = cost_of(message.len());
        let room_bytes = self.room_for(message.len());
        self.grow_to(channel)?;
        let account = &mut self.channels[usize::from(channel)];
        let has_room = self.kept_bytes + self.open.capacity() as u64 + room_bytes <= self.unacked_bytes_max;
        if !(has_room && account.fits(cost_bytes) && self.whole.fits(cost_bytes)) {
            self.refuse(Refused { channel, cost_bytes, room_bytes });
            return Err(SendError::NoCredit);
        }
        account.take(cost_bytes);
        self.whole.take(cost_bytes);
        self.messages += 1;
        self.append(channel, message);
        Ok(())
    }

    /// Hands out sealed chunks with their sequences, of about `bytes_max` in all; whether there are more.
    pub(super) fn hand_out(&mut self, bytes_max: usize, into: &mut Vec<(u64, Payload)>) -> bool {
        let mut bytes = 0;
        while bytes < bytes_max {
            if self.unsent == self.kept.len() {
                self.seal();
            }
            let Some(kept) = self.kept.get(self.unsent) else { return false };
            let sequence = self.first_sequence + self.unsent as u64;
            self.resent_chunks += u64::from(sequence <= self.sent_sequence);
            self.sent_sequence = self.sent_sequence.max(sequence);
            self.unsent += 1;
            bytes += kept.payload.len();
            into.push((sequence, Arc::clone(&kept.payload)));
        }
        self.has_unsent()
    }

    /// Whether anything is to be handed out.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent < self.kept.len() || !self.open.is_empty()
    }

    /// Drops what the peer has, up to sequence `ack`.
    ///
    /// # Errors
    /// It was never sent.
    pub(super) fn on_ack(&mut self, ack: u64) -> Result<(), LinkError> {
        if ack > self.sent_sequence {
            return Err(LinkError::Protocol("it acknowledges what it was not sent"));
        }
        while self.first_sequence <= ack {
            let kept = self.kept.pop_front().expect("what was sent and not acknowledged is kept");
            self.kept_bytes -= kept.cost_bytes();
            self.first_sequence += 1;
            self.unsent = self.unsent.saturating_sub(1);
            self.recycle(kept.payload);
        }
        Ok(())
    }

    /// The peer lets `channel`, or all, be sent `limit_bytes` since the link began.
    ///
    /// # Errors
    /// There is no such channel.
    pub(super) fn on_credit(&mut self, channel: Option<u16>, limit_bytes: u64) -> Result<(), LinkError> {
        let account = match channel {
            None => &mut self.whole,
            Some(number) => {
                self.grow_to(number).map_err(|_| LinkError::Protocol("credit of a channel that is not"))?;
                &mut self.channels[usize::from(number)]
            }
        };
        account.raise(limit_bytes);
        Ok(())
    }

    /// Channels that were refused, and have room now for what they were refused.
    pub(super) fn take_credited(&mut self) -> Vec<u16> {
        if self.refused.is_empty() {
            return Vec::new();
        }
        let mut credited = Vec::new();
        let free_bytes = self.unacked_bytes_max.saturating_sub(self.kept_bytes + self.open.capacity() as u64);
        // Many may wait for one link's memory: woken for each chunk that is acknowledged, all but one would wait again.
        let worth_bytes = self.unacked_bytes_max / WORTH_PART;
        self.refused.retain(|refused| {
            let is_credited = refused.room_bytes.max(worth_bytes) <= free_bytes
                && self.whole.fits(refused.cost_bytes)
                && self.channels[usize::from(refused.channel)].fits(refused.cost_bytes);
            if is_credited {
                credited.push(refused.channel);
            }
            !is_credited
        });
        credited
    }

    /// A new connection: everything that is not acknowledged is handed out again.
    pub(super) fn rewind(&mut self) {
        self.unsent = 0;
    }

    /// The link is idle: gives up the memory that is not in use.
    pub(super) fn release(&mut self) {
        self.spares = Vec::new();
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }

    /// Messages that were taken and are not acknowledged.
    pub(super) fn unacked_messages(&self) -> u64 {
        self.kept.iter().map(|kept| u64::from(kept.messages)).sum::<u64>() + u64::from(self.open_messages)
    }

    /// Memory that is kept.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept_bytes + self.open.capacity() as u64
    }

    /// Sees that there is an account for `channel`.
    #[inline]
    fn grow_to(&mut self, channel: u16) -> Result<(), SendError> {
        if usize::from(channel) < self.channels.len() {
            return Ok(());
        }
        if channel >= self.channels_max {
            return Err(SendError::NoSuchChannel { number: channel, limit: self.channels_max });
        }
        let window_bytes = self.terms.channel_window_bytes;
        self.channels.resize_with(usize::from(channel) + 1, || Account::new(window_bytes));
        Ok(())
    }

    /// Notes that `refused` is to be told of when it fits. A channel is told of once, for what it was refused last.
    fn refuse(&mut self, refused: Refused) {
        self.refused.retain(|other| other.channel != refused.channel);
        self.refused.push(refused);
    }

    /// Most memory that a message takes beyond what is taken now.
    #[inline]
    fn room_for(&self, size_bytes: usize) -> u64 {
        let payload_bytes = self.terms.payload_bytes_max as usize;
        // The copy of what is in the open chunk, if that is sealed before it is half full.
        let copy_bytes = payload_bytes as u64 / 2 + CHUNK_COST_BYTES;
        if self.open.capacity() > 0 && self.open.len() + size_bytes + FRAME_HEADER_BYTES_MAX <= payload_bytes
        {
            return copy_bytes;
        }
        let chunks = size_bytes / self.part_bytes_max() + 1;
        chunks as u64 * (payload_bytes as u64 + CHUNK_COST_BYTES) + copy_bytes
    }

    /// Bytes of a message that go into one frame.
    fn part_bytes_max(&self) -> usize {
        self.terms.payload_bytes_max as usize - FRAME_HEADER_BYTES_MAX
    }

    #[inline]
    fn append(&mut self, channel: u16, message: &[u8]) {
        let size_bytes = message.len() + FRAME_HEADER_BYTES_MAX;
        if self.open.len() + size_bytes > self.terms.payload_bytes_max as usize || self.open.capacity() == 0 {
            self.seal();
            self.open_buffer();
        }
        let parts = self.part_bytes_max();
        if message.len() <= parts {
            append_frame(&Frame { channel, goes_on: false, bytes: message }, &mut self.open);
        } else {
            self.append_parts(channel, message, parts);
        }
        self.open_messages += 1;
    }

    fn append_parts(&mut self, channel: u16, message: &[u8], part_bytes_max: usize) {
        let mut parts = message.chunks(part_bytes_max).peekable();
        while let Some(bytes) = parts.next() {
            let goes_on = parts.peek().is_some();
            append_frame(&Frame { channel, goes_on, bytes }, &mut self.open);
            if goes_on {
                self.seal();
                self.open_buffer();
            }
        }
    }

    fn open_buffer(&mut self) {
        if self.open.capacity() == 0 {
            let bytes = self.terms.payload_bytes_max as usize;
            self.open = self.spares.pop().unwrap_or_else(|| Vec::with_capacity(bytes));
        }
    }

    /// Closes the open chunk, if anything is in it. One that is mostly empty is copied, so that what is kept is what is used.
    fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let payload = if self.open.len() < self.open.capacity() / 2 {
            let copy = self.open.as_slice().to_vec();
            self.open.clear();
            copy
        } else {
            std::mem::take(&mut self.open)
        };
        let kept = Kept { payload: Arc::new(payload), messages: std::mem::take(&mut self.open_messages) };
        self.kept_bytes += kept.cost_bytes();
        self.kept.push_back(kept);
    }

    /// Keeps the buffer of a chunk that nobody needs any more.
    fn recycle(&mut self, payload: Payload) {
        let spare_bytes = (self.spares.len() as u64 + 1) * u64::from(self.terms.payload_bytes_max);
        if spare_bytes <= self.unacked_bytes_max / SPARES_PART
            && let Ok(mut buffer) = Arc::try_unwrap(payload)
            && buffer.capacity() >= self.terms.payload_bytes_max as usize
        {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    #[cfg(test)]
    pub(super) fn check_state(&self) {
        let kept_bytes: u64 = self.kept.iter().map(Kept::cost_bytes).sum();
        assert_eq!(kept_bytes, self.kept_bytes);
        assert!(self.kept_bytes() <= self.unacked_bytes_max, "{} B are kept", self.kept_bytes());
        assert!(self.unsent <= self.kept.len());
        assert!(self.sent_sequence < self.first_sequence + self.kept.len() as u64);
        self.channels.iter().chain([&self.whole]).for_each(Account::check_state);
    }
}

/// The refusal of a message of `size_bytes`.
pub(super) fn too_large(size_bytes: usize, limit_bytes: u32, setting: &'static str) -> SendError {
    SendError::TooLarge { size_bytes: size_bytes as u64, limit_bytes: u64::from(limit_bytes), setting }
}
