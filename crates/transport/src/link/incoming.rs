//! The receiving half of a link: chunks in their order, messages out of them, and what each channel got.
//!
//! Invariants
//!   1. A reliable chunk is handled once: `expected` grows before its messages are handed out, and what came before is a double.
//!   2. At most one message is being put together, of at most `message_bytes_max` bytes.
//!
//! It has a lock of its own, which is held while messages are handed to the receiver: so the receiver may send on the same link.

use std::cell::Cell;
use std::sync::Arc;

use super::Link;
use super::account::cost_of;
use crate::status::Received;
use crate::wire::{Chunk, CreditRecord, Frame, Frames, Kind, credits};
use crate::{Channel, LinkError, Message, Receive, Settings};

pub(super) struct Incoming {
    message_bytes_max: usize,
    channels_max: u16,
    /// Sequence of the next reliable chunk.
    expected: u64,
    epoch: u32,
    partial: Vec<u8>,
    /// Of which channel it is, while it is one.
    partial_of: Option<u16>,
    /// What the chunk brought for each channel: all, and what of it is consumed.
    brought: Vec<(u64, u64)>,
    /// The channels that it brought something for, each once.
    touched: Vec<u16>,
    pub(super) credits: Vec<CreditRecord>,
    pub(super) received: Received,
}

impl Incoming {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            message_bytes_max: settings.message_size_bytes_max as usize,
            channels_max: settings.channels_max,
            expected: 1,
            epoch: 0,
            partial: Vec::new(),
            partial_of: None,
            brought: Vec::new(),
            touched: Vec::new(),
            credits: Vec::new(),
            received: Received::default(),
        }
    }

    /// Another run of the peer begins with its first chunk.
    pub(super) fn begin_anew(&mut self, epoch: u32) {
        (self.expected, self.epoch) = (1, epoch);
        self.partial = Vec::new();
        self.partial_of = None;
    }

    /// Hands out the messages of `chunk`; whether it is a reliable one that came in its turn.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub(super) fn on_chunk(
        &mut self,
        chunk: &Chunk<'_>,
        link: &Arc<Link>,
        receiver: &dyn Receive,
    ) -> Result<bool, LinkError> {
        self.credits.clear();
        let records = &mut self.credits;
        let frames_at = credits(chunk.payload, chunk.header.credits, |record| records.push(record))?;
        let frames = Frames::new(chunk.payload, frames_at);
        match chunk.header.kind {
            Kind::Hello => Err(LinkError::Protocol("a second hello")),
            Kind::Control if frames_at < chunk.payload.len() => {
                Err(LinkError::Protocol("a message in a control chunk"))
            }
            Kind::Control => Ok(false),
            Kind::Lossy => self.on_lossy(frames, link, receiver).map(|()| false),
            Kind::Reliable if chunk.header.sequence < self.expected => {
                self.received.duplicate_chunks += 1;
                Ok(false)
            }
            Kind::Reliable if chunk.header.sequence > self.expected => {
                Err(LinkError::Protocol("a chunk is missing"))
            }
            Kind::Reliable => {
                self.expected += 1;
                self.on_reliable(frames, link, receiver).map(|()| true)
            }
        }
    }

    /// Takes what each channel got since it was asked last: channel, all of it, and what of it is consumed.
    pub(super) fn take_brought(&mut self, mut each: impl FnMut(u16, u64, u64)) {
        for channel in self.touched.drain(..) {
            let (received, returned) = std::mem::take(&mut self.brought[usize::from(channel)]);
            each(channel, received, returned);
        }
    }

    fn on_lossy(
        &mut self,
        frames: Frames<'_>,
        link: &Arc<Link>,
        receiver: &dyn Receive,
    ) -> Result<(), LinkError> {
        for frame in frames {
            let frame = frame?;
            if frame.goes_on {
                return Err(LinkError::Protocol("a part of a lossy message"));
            }
            self.hand_over(Channel::lossy(frame.channel), frame.bytes, link, receiver);
        }
        Ok(())
    }

    fn on_reliable(
        &mut self,
        frames: Frames<'_>,
        link: &Arc<Link>,
        receiver: &dyn Receive,
    ) -> Result<(), LinkError> {
        for frame in frames {
            let frame = frame?;
            if frame.goes_on || self.partial_of.is_some() {
                self.on_part(&frame, link, receiver)?;
            } else {
                self.on_message(frame.channel, frame.bytes, link, receiver)?;
            }
        }
        Ok(())
    }

    /// A part of a message that is larger than a chunk.
    fn on_part(
        &mut self,
        frame: &Frame<'_>,
        link: &Arc<Link>,
        receiver: &dyn Receive,
    ) -> Result<(), LinkError> {
        if *self.partial_of.get_or_insert(frame.channel) != frame.channel {
            return Err(LinkError::Protocol("another channel amid the parts of a message"));
        }
        let size_bytes = self.partial.len() + frame.bytes.len();
        if size_bytes > self.message_bytes_max {
            return Err(LinkError::Protocol("a message beyond transport.message_size_max"));
        }
        if size_bytes > self.partial.capacity() {
            // By doubling, but not beyond what a message may have.
            let capacity = (2 * size_bytes).min(self.message_bytes_max);
            self.partial.reserve_exact(capacity - self.partial.len());
        }
        self.partial.extend_from_slice(frame.bytes);
        if frame.goes_on {
            return Ok(());
        }
        self.partial_of = None;
        let mut whole = std::mem::take(&mut self.partial);
        let done = self.on_message(frame.channel, &whole, link, receiver);
        whole.clear();
        self.partial = whole;
        done
    }

    #[inline]
    fn on_message(
        &mut self,
        channel: u16,
        bytes: &[u8],
        link: &Arc<Link>,
        receiver: &dyn Receive,
    ) -> Result<(), LinkError> {
        let index = usize::from(channel);
        if index >= self.brought.len() {
            if channel >= self.channels_max || bytes.len() > self.message_bytes_max {
                return Err(LinkError::Protocol("a channel beyond transport.channels_max"));
            }
            self.brought.resize(index + 1, (0, 0));
        }
        if self.brought[index].0 == 0 {
            self.touched.push(channel);
        }
        let is_kept = self.hand_over(Channel::reliable(channel), bytes, link, receiver);
        let (received, returned) = &mut self.brought[index];
        let cost_bytes = cost_of(bytes.len());
        *received += cost_bytes;
        *returned += if is_kept { 0 } else { cost_bytes };
        Ok(())
    }

    /// Whether the receiver keeps it.
    #[inline]
    fn hand_over(
        &mut self,
        channel: Channel,
        bytes: &[u8],
        link: &Arc<Link>,
        receiver: &dyn Receive,
    ) -> bool {
        let is_kept = Cell::new(false);
        let (cost_bytes, epoch) = (cost_of(bytes.len()), self.epoch);
        let from = link.peer;
        receiver.on_message(&Message { from, channel, bytes, cost_bytes, epoch, link, is_kept: &is_kept });
        self.received.messages += 1;
        self.received.bytes += bytes.len() as u64;
        is_kept.get()
    }
}
