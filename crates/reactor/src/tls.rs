//! TLS of one connection behind its handshake: sealed bytes in, plain bytes out, and back.
//!
//! ```text
//!  socket -- sealed --> open --> input        output -- released --> seal --> unsent --> socket, or a parcel of the ring
//! ```
//!
//! Invariants
//!   1. Nothing of the output is sealed before it may leave: order and holding of replies are the output's alone.
//!   2. What is sealed and not sent is bounded ([`SEALED_BYTES_MAX`]): a large reply is sealed as the socket takes it.
//!   3. An end of the stream is said ([`Tls::say_end`]) only where all replies went before it.
//!
//! Performs no I/O. Out of scope: handshakes (`handshakes`), certificates and keys (`tls`).

use std::io::{self, BufRead, IoSlice, Read};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};
use ticket::Ticket;

use crate::CloseReason;
use crate::input::Input;
use crate::output::Output;
use crate::pool::Pool;

/// How connections to the addresses for TLS begin; changeable at run time through [`crate::Handle::set_tls`].
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Who the server is, and whom it trusts.
    pub config: Arc<ServerConfig>,
    /// Longest that a handshake may take.
    pub handshake_timeout: Duration,
    /// Handshakes under way at a time; those who come then wait, or take the place of one that has not got far.
    pub handshakes_max: usize,
}

/// TLS of one connection whose handshake is done.
pub(crate) struct Tls {
    session: ServerConnection,
    /// Sealed bytes, of which the socket has taken `sent`.
    sealed: Vec<u8>,
    sent: usize,
    /// About how many bytes came of a record that is not complete.
    unfinished_bytes: usize,
    /// What the library keeps for it, about.
    base_bytes: usize,
    /// The peer has said that nothing more comes.
    has_ended: bool,
}

impl Tls {
    /// Of a session whose handshake is done.
    pub(crate) fn new(mut session: ServerConnection) -> Self {
        session.set_buffer_limit(Some(SEALED_BYTES_MAX));
        let certificates = session.peer_certificates().unwrap_or_default();
        let base_bytes = TLS_BYTES + certificates.iter().map(|one| one.len()).sum::<usize>();
        Self { session, sealed: Vec::new(), sent: 0, unfinished_bytes: 0, base_bytes, has_ended: false }
    }

    /// Takes sealed bytes that came; what they say is appended to `input`.
    ///
    /// # Errors
    /// They are not what the peer's side of this session sends.
    pub(crate) fn open(
        &mut self,
        mut bytes: &[u8],
        input: &mut Input,
        pool: &mut Pool,
    ) -> Result<(), rustls::Error> {
        let had_part = self.unfinished_bytes > 0 || bytes.len() > STEP_BYTES;
        while !bytes.is_empty() && !self.has_ended {
            let mut step = &bytes[..bytes.len().min(STEP_BYTES)];
            let count = self.session.read_tls(&mut step).map_err(|_| broken())?;
            if count == 0 {
                return Err(broken());
            }
            bytes = &bytes[count..];
            self.unfinished_bytes += count;
            self.collect(input, pool)?;
        }
        if had_part && self.unfinished_bytes == 0 {
            // The library keeps a buffer of the size of the record that came, until it is asked to read again.
            let _ = self.session.read_tls(&mut Nothing);
        }
        Ok(())
    }

    /// Appends to `input` what came with the end of the handshake.
    pub(crate) fn open_rest(&mut self, input: &mut Input) {
        if self.collect(input, &mut Pool::default()).is_err() {
            self.has_ended = true;
        }
    }

    /// Opens what has come, and appends it to `input`.
    fn collect(&mut self, input: &mut Input, pool: &mut Pool) -> Result<(), rustls::Error> {
        let state = self.session.process_new_packets()?;
        self.has_ended |= state.peer_has_closed();
        if state.plaintext_bytes_to_read() == 0 {
            return Ok(());
        }
        self.unfinished_bytes = 0;
        let mut reader = self.session.reader();
        while let Ok(plain) = reader.fill_buf() {
            let count = plain.len();
            if count == 0 {
                break;
            }
            input.room(pool).extend_from_slice(plain);
            reader.consume(count);
        }
        Ok(())
    }

    /// Whether the peer has said that nothing more comes.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Seals a piece of what may leave of `output` now that `released` is released, behind what the library has to say by itself, and
    /// appends it to `into`.
    ///
    /// # Errors
    /// The keys are used up.
    pub(crate) fn seal(
        &mut self,
        output: &mut Output,
        released: Ticket,
        into: &mut Vec<u8>,
    ) -> Result<(), CloseReason> {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let (count, _) = output.pieces(released, &mut pieces);
        let pieces = &pieces[..count];
        let taken = io::Write::write_vectored(&mut self.session.writer(), pieces).unwrap_or(0);
        let any = pieces.iter().any(|piece| !piece.is_empty());
        output.advance(taken);
        self.flush(into);
        // Where no more may be sealed by the same keys, the library drops what it is given.
        if into.len() < taken || (any && taken == 0) { Err(CloseReason::Tls) } else { Ok(()) }
    }

    /// Appends to `into` what the library has to send.
    fn flush(&mut self, into: &mut Vec<u8>) {
        while self.session.wants_write() && self.session.write_tls(into).is_ok_and(|count| count > 0) {}
    }

    /// As [`Tls::seal`], into its own buffer, if that is empty.
    ///
    /// # Errors
    /// As [`Tls::seal`].
    pub(crate) fn seal_next(
        &mut self,
        output: &mut Output,
        released: Ticket,
        pool: &mut Pool,
    ) -> Result<(), CloseReason> {
        if !self.unsent().is_empty() {
            return Ok(());
        }
        if self.sealed.capacity() == 0 {
            self.sealed = pool.take_large();
        }
        let mut sealed = std::mem::take(&mut self.sealed);
        let done = self.seal(output, released, &mut sealed);
        self.sealed = sealed;
        done
    }

    /// What is sealed and not sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.sealed[self.sent..]
    }

    /// Whether the library has something to send by itself, or something sealed is not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent().is_empty() || self.session.wants_write()
    }

    /// Takes note that the socket took `count` bytes of [`Tls::unsent`].
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.unsent().is_empty() {
            self.sealed.clear();
            self.sent = 0;
        }
    }

    /// Gives the buffer back when all is sent.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        if self.sealed.is_empty() && self.sealed.capacity() > 0 {
            pool.put(std::mem::take(&mut self.sealed));
        }
    }

    /// What remains to be sent at the end: that it is the end, if `is_all`, or why, if that was an error.
    pub(crate) fn say_end(&mut self, is_all: bool) -> Vec<u8> {
        if is_all {
            self.session.send_close_notify();
        }
        let mut last = Vec::new();
        self.flush(&mut last);
        last
    }

    /// All that is to be sent to a client which is told `text` and is not served.
    pub(crate) fn refusal(&mut self, text: &[u8]) -> Vec<u8> {
        // A short text, which has room.
        let _ = io::Write::write_all(&mut self.session.writer(), text);
        self.say_end(true)
    }

    /// About how many bytes it keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        let part = if self.unfinished_bytes > STEP_BYTES { RECORD_BYTES_MAX } else { 0 };
        size_of::<Self>() + self.base_bytes + part + self.sealed.capacity()
    }
}

fn broken() -> rustls::Error {
    rustls::Error::General("more came than a record may have".to_owned())
}

/// Has nothing for who reads, yet.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Bytes that the library is given at a time, as many as it makes room for.
const STEP_BYTES: usize = 4 << 10;
/// Most that is sealed ahead of what the socket takes: four records.
pub(crate) const SEALED_BYTES_MAX: usize = 64 << 10;
/// Pieces of an output that are sealed together.
const PIECES_MAX: usize = 16;
/// A record, with all that is around it.
const RECORD_BYTES_MAX: usize = (16 << 10) + (2 << 10);
/// What the library keeps for an idle connection beside its own size: keys, and a buffer of 4 KiB.
const TLS_BYTES: usize = 7 << 10;

#[cfg(test)]
mod tests;
