//! Bytes of a connection with TLS: opened as they come, sealed as the socket takes them.
//!
//! Out of scope: what that means ([`crate::tls`]), when something may be read or sent (`peer`, `incoming`, `outgoing`).

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use ticket::Ticket;

use super::{Context, Peer};
use crate::pool::Pool;
use crate::tls::Tls;
use crate::{CloseReason, Protocol};

impl<P: Protocol> Peer<P> {
    /// Has all its bytes go through `tls`, whose handshake brought its first input perhaps, and left something to send.
    pub(crate) fn speak_tls(&mut self, mut tls: Box<Tls>) {
        tls.open_rest(&mut self.input);
        self.pending = !self.input.is_empty();
        (self.readable, self.sends_on) = (tls.has_ended(), tls.has_unsent());
        self.tls = Some(tls);
    }

    /// As [`Peer::read`].
    pub(super) fn read_sealed(&mut self, context: &mut Context<'_, P>) -> Result<bool, CloseReason> {
        if self.tls.as_ref().is_some_and(|tls| tls.has_ended()) {
            self.readable = false;
            self.begin_close(CloseReason::Peer, context);
            return Ok(false);
        }
        let mut buffer = context.pool.take_large();
        let spare = &mut buffer.spare_capacity_mut()[..READ_BYTES_MAX];
        let read = match rustix::net::recv(&self.socket, spare, RecvFlags::empty()) {
            Ok(((came, _), count @ 1..)) => {
                self.readable = count == READ_BYTES_MAX || self.read_closed;
                self.count_read(count, context.tally, context.now);
                self.open_sealed(came, context.pool)
            }
            Ok(_) => {
                self.readable = false;
                self.begin_close(CloseReason::Peer, context);
                Ok(false)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(false)
            }
            Err(Errno::INTR) => Ok(false),
            Err(_) => Err(CloseReason::Peer),
        };
        context.pool.put(buffer);
        read
    }

    /// Opens what came; whether there is more input than before.
    ///
    /// # Errors
    /// It was not sealed by the peer.
    pub(super) fn open_sealed(&mut self, bytes: &[u8], pool: &mut Pool) -> Result<bool, CloseReason> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        let before = self.input.len();
        tls.open(bytes, &mut self.input, pool).map_err(|_| CloseReason::Tls)?;
        // What was said before the end comes first; to read again brings the end.
        self.readable |= tls.has_ended();
        Ok(self.input.len() > before)
    }

    /// As [`Peer::flush`], where the socket is written to.
    pub(super) fn flush_sealed(
        &mut self,
        released: Ticket,
        context: &mut Context<'_, P>,
    ) -> Result<(), CloseReason> {
        let mut sent_bytes = 0;
        self.sends_on = false;
        loop {
            let Some(tls) = &mut self.tls else { return Ok(()) };
            if sent_bytes >= SENT_PER_TURN_MAX && tls.unsent().is_empty() {
                // To seal takes longer than to copy, and the peer may read as fast as that.
                self.blocked = false;
                self.sends_on = !self.output.sendable(released).is_empty();
                return Ok(());
            }
            tls.seal_next(&mut self.output, released, context.pool)?;
            let unsent = tls.unsent();
            if unsent.is_empty() {
                self.blocked = false;
                return Ok(());
            }
            match rustix::net::send(&self.socket, unsent, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.blocked = count < unsent.len();
                    tls.advance(count);
                    sent_bytes += count;
                    self.count_write(count, context.tally, context.now);
                }
                Err(Errno::AGAIN) => self.blocked = true,
                Err(Errno::INTR) => continue,
                Err(_) => return Err(CloseReason::Peer),
            }
            if self.blocked {
                return self.check_unsent(context);
            }
        }
    }

    /// Tells the peer that its stream ends, or what was wrong with its own; as far as the socket takes it at once.
    pub(super) fn say_end(&mut self) {
        let is_sent = self.unsent_bytes() == 0;
        if let Some(tls) = self.tls.as_mut().filter(|_| is_sent) {
            let last = tls.say_end(self.output.is_empty());
            if !last.is_empty() {
                let _ = rustix::net::send(&self.socket, &last, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
        }
    }
}

/// Sealed bytes that are read at a time.
const READ_BYTES_MAX: usize = crate::pool::LARGE_BYTES;
/// Sealed bytes that are sent in one turn, about.
const SENT_PER_TURN_MAX: usize = 1 << 20;
