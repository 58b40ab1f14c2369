//! Chunks on their way into an output: as they are, or into TLS records.

use std::io::IoSlice;
use std::sync::Arc;

use reactor::{Output, SharedBytes};

use crate::link::Payload;
use crate::security::channel::Channel;
use crate::session::Sink;
use crate::wire::{Header, encode_carried_header, encode_header};

/// A payload up to here is copied into the output: a write of its own costs more.
const COPY_BYTES_MAX: usize = 8 << 10;
/// The same for TLS, which copies everything once in any case.
const GATHER_BYTES_MAX: usize = 1 << 10;

/// Chunks on their way into an output: headers and small payloads are copied, large payloads are attached.
///
/// Attached bytes must lie before a byte of the buffer: the next header is that byte, and behind the last payload its own last byte.
pub(super) struct OutputSink<'a> {
    output: &'a mut Output,
    /// A payload that is attached before what comes next.
    pending: Option<Payload>,
}

impl<'a> OutputSink<'a> {
    pub(super) fn new(output: &'a mut Output) -> Self {
        Self { output, pending: None }
    }

    fn append(&mut self, bytes: &[u8]) {
        let at = self.output.buffer().len();
        self.output.buffer().extend_from_slice(bytes);
        if let Some(payload) = self.pending.take() {
            let part = 0..payload.len();
            self.output.attach(at, payload as SharedBytes, part);
        }
    }

    pub(super) fn finish(mut self) {
        if let Some(payload) = self.pending.take() {
            let (at, last) = (self.output.buffer().len(), payload.len() - 1);
            self.output.buffer().push(payload[last]);
            self.output.attach(at, payload as SharedBytes, 0..last);
        }
    }
}

impl Sink for OutputSink<'_> {
    fn own(&mut self, header: &Header, payload: &[u8]) {
        self.append(&encode_header(header, payload));
        self.output.buffer().extend_from_slice(payload);
    }

    fn shared(&mut self, header: &Header, payload: &Payload) {
        if payload.len() <= COPY_BYTES_MAX {
            return self.own(header, payload);
        }
        self.append(&encode_header(header, payload));
        self.pending = Some(Arc::clone(payload));
    }
}

/// Chunks of one portion, gathered so that they share records.
#[derive(Default)]
pub(super) struct Gathered {
    /// Headers and small payloads.
    small: Vec<u8>,
    /// Large payloads, each with the end of what of `small` comes before it.
    large: Vec<(usize, Payload)>,
}

impl Gathered {
    /// Has `channel` send all, and lets go of it.
    pub(super) fn send(&mut self, channel: &mut Channel) {
        let mut slices = Vec::with_capacity(2 * self.large.len() + 1);
        let mut start = 0;
        for (end, payload) in &self.large {
            slices.push(IoSlice::new(&self.small[start..*end]));
            slices.push(IoSlice::new(payload));
            start = *end;
        }
        slices.push(IoSlice::new(&self.small[start..]));
        channel.send(&mut slices);
        self.small.clear();
        self.large.clear();
    }

    /// Gives up its memory.
    pub(super) fn rest(&mut self) {
        *self = Self::default();
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.small.capacity()
    }
}

impl Sink for Gathered {
    fn own(&mut self, header: &Header, payload: &[u8]) {
        self.small.extend_from_slice(&encode_carried_header(header, payload));
        self.small.extend_from_slice(payload);
    }

    fn shared(&mut self, header: &Header, payload: &Payload) {
        if payload.len() <= GATHER_BYTES_MAX {
            return self.own(header, payload);
        }
        self.small.extend_from_slice(&encode_carried_header(header, payload));
        self.large.push((self.small.len(), Arc::clone(payload)));
    }
}
