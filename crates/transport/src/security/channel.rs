//! TLS of one connection, and the proof over it: bytes in, bytes out.
//!
//! ```text
//!  Handshake --done--> Proof (of the secret; none with certificates) --right--> Open: plain bytes are the session's
//!      \_________________\___ error, or more than HANDSHAKE_BYTES_MAX: refused
//! ```
//!
//! Invariants
//!   1. Nothing that came is shown to the session before the peer has proved who it is, and nothing of the session's is sent.
//!   2. Until then at most `HANDSHAKE_BYTES_MAX` bytes are taken.
//!
//! Performs no I/O.

#[cfg(test)]
mod tests;

use std::io::{BufRead, IoSlice, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::Refusal;
use super::keys::{Keys, NAME};
use super::proof::{BINDING_BYTES, Proof};
use crate::NodeId;
use crate::wire::{PROOF_BYTES, ProofRecord};

/// What a peer may send before it has proved who it is: chains of certificates of some kilobytes, and a proof.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 32 << 10;
/// Of the exporter value.
const LABEL: &[u8] = b"EXPORTER-evenkeel-transport-proof";

/// TLS of one connection.
pub(crate) struct Channel {
    tls: Connection,
    stage: Stage,
    /// What came and the session has not consumed.
    plain: Plain,
    taken_bytes: usize,
}

enum Stage {
    Handshake { keys: Arc<Keys>, own: NodeId, dialed: Option<NodeId> },
    Proof(Proof),
    Open { peer: Option<NodeId> },
}

impl Channel {
    /// Of a connection that came to node `own`.
    ///
    /// # Errors
    /// [`Refusal::BrokenTls`] if the library cannot begin.
    pub(crate) fn accepted(keys: &Arc<Keys>, own: NodeId) -> Result<Self, Refusal> {
        let tls = ServerConnection::new(Arc::clone(&keys.server)).map_err(|_| Refusal::BrokenTls)?;
        Ok(Self::new(tls.into(), keys, own, None))
    }

    /// Of a connection that `own` made, to `peer`. It speaks first.
    ///
    /// # Errors
    /// [`Refusal::BrokenTls`] if the library cannot begin.
    pub(crate) fn dialed(keys: &Arc<Keys>, own: NodeId, peer: NodeId) -> Result<Self, Refusal> {
        let name = ServerName::try_from(NAME).map_err(|_| Refusal::BrokenTls)?;
        let tls = ClientConnection::new(Arc::clone(&keys.client), name).map_err(|_| Refusal::BrokenTls)?;
        Ok(Self::new(tls.into(), keys, own, Some(peer)))
    }

    fn new(mut tls: Connection, keys: &Arc<Keys>, own: NodeId, dialed: Option<NodeId>) -> Self {
        // What is put in is taken out at once.
        tls.set_buffer_limit(None);
        let stage = Stage::Handshake { keys: Arc::clone(keys), own, dialed };
        Self { tls, stage, plain: Plain::default(), taken_bytes: 0 }
    }

    /// Whether the peer has proved that it is one of ours.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open { .. })
    }

    /// Which node it has proved to be, if it was asked that.
    pub(crate) fn peer(&self) -> Option<NodeId> {
        if let Stage::Open { peer } = self.stage { peer } else { None }
    }

    /// Takes all of `bytes`. What of them is for the session is in [`Channel::plain`]; [`Channel::flush`] comes next, also after an
    /// error, which the peer is told.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let count = self.tls.read_tls(&mut bytes).map_err(|_| Refusal::BrokenTls)?;
            if count == 0 {
                // Nothing is read behind the peer's end.
                return Ok(());
            }
            if !self.is_open() {
                self.taken_bytes += count;
                if self.taken_bytes > HANDSHAKE_BYTES_MAX {
                    return Err(Refusal::TooMuch);
                }
            }
            let has_begun = self.tls.protocol_version().is_some();
            self.tls.process_new_packets().map_err(|error| Refusal::of_tls(&error, has_begun))?;
            self.collect();
            self.advance()?;
        }
        Ok(())
    }

    /// What came and is for the session: nothing before it is open.
    pub(crate) fn plain(&mut self) -> Option<&mut Plain> {
        self.is_open().then_some(&mut self.plain)
    }

    /// Puts `slices` into as few records as they fit.
    pub(crate) fn send(&mut self, slices: &mut [IoSlice<'_>]) {
        debug_assert!(self.is_open());
        let mut rest = slices;
        while rest.iter().any(|slice| !slice.is_empty()) {
            // There is no limit: all is taken, and nothing can fail.
            let Ok(count) = self.tls.writer().write_vectored(rest) else { return };
            IoSlice::advance_slices(&mut rest, count);
        }
    }

    /// Appends what is to be sent to `output`.
    pub(crate) fn flush(&mut self, output: &mut Vec<u8>) {
        while self.tls.wants_write() && self.tls.write_tls(output).is_ok_and(|count| count > 0) {}
    }

    /// About how many bytes it keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        TLS_BYTES + self.plain.bytes.capacity()
    }

    fn collect(&mut self) {
        let mut reader = self.tls.reader();
        while let Ok(bytes) = reader.fill_buf() {
            let count = bytes.len();
            if count == 0 {
                break;
            }
            self.plain.bytes.extend_from_slice(bytes);
            reader.consume(count);
        }
    }

    /// Goes on with the next stage, as far as what came lasts.
    fn advance(&mut self) -> Result<(), Refusal> {
        if let Stage::Handshake { keys, own, dialed } = &self.stage
            && !self.tls.is_handshaking()
        {
            let Some(key) = &keys.proof else {
                self.stage = Stage::Open { peer: None };
                return Ok(());
            };
            let binding = self.tls.export_keying_material([0; BINDING_BYTES], LABEL, None);
            let binding = binding.map_err(|_| Refusal::BrokenTls)?;
            let proof = Proof::new(Arc::clone(key), binding, *own, *dialed);
            let opening = proof.opening();
            self.stage = Stage::Proof(proof);
            self.say(opening);
        }
        if let Stage::Proof(proof) = &self.stage
            && let Some(record) = self.plain.bytes.first_chunk::<PROOF_BYTES>()
        {
            let proved = match proof.on_record(record) {
                Ok(proved) => proved,
                Err(why) => {
                    if why == Refusal::WrongSecret && proof.opening().is_none() {
                        self.say(Some(ProofRecord::REFUSED.encode()));
                    }
                    return Err(why);
                }
            };
            self.plain.consume(PROOF_BYTES);
            self.stage = Stage::Open { peer: Some(proved.peer) };
            self.say(proved.answer);
        }
        Ok(())
    }

    fn say(&mut self, record: Option<[u8; PROOF_BYTES]>) {
        // There is no limit, so all is taken.
        record.map(|record| self.tls.writer().write_all(&record).ok());
    }
}

/// Plain bytes that wait for the session.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    bytes: Vec<u8>,
    start: usize,
}

impl Plain {
    /// What waits.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Takes `count` bytes off the front.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > PLAIN_MOVED_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Gives up the memory of what was consumed.
    pub(crate) fn rest(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

/// What the library keeps for a connection, about.
const TLS_BYTES: usize = 8 << 10;
/// What is consumed is moved out of the way when there is so much of it.
const PLAIN_MOVED_BYTES: usize = 32 << 10;

const _: () = assert!(PROOF_BYTES < HANDSHAKE_BYTES_MAX);

/// Hides what it carries.
impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}
