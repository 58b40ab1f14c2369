//! Bytes that leave: what the output has for the socket, or for the [`Link`](crate::link::Link), and what stays for now.
//!
//! Invariants
//!   1. A held reply leaves only when its ticket is released.
//!   2. After the socket took less than was offered nothing is offered until it tells that it has room.
//!
//! Out of scope: order and buffers of the output (`output`).

use std::io::IoSlice;

use clock::Nanos;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use ticket::Ticket;

use super::{Call, Context, Peer, Phase};
use crate::stats::Tally;
use crate::{CloseReason, Protocol};

impl<P: Protocol> Peer<P> {
    /// Bytes that are to be sent, held ones included.
    pub(crate) fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Sends what may leave. While the socket takes all, the protocol that wants to hear of it may add more, some times in a row.
    pub(super) fn send(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        self.flush_any(context)?;
        for _ in 0..PORTIONS_PER_TURN_MAX {
            if !self.is_sent() {
                break;
            }
            self.tells_sent = false;
            self.call(Call::Sent, context)?;
            self.flush_any(context)?;
        }
        Ok(())
    }

    /// Sends what may leave, if there is anything.
    fn flush_any(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let has_any = self.blocked || self.sends_on || !(self.output.is_empty() || self.keeps_output());
        if has_any && !self.withholds_output() { self.flush(context) } else { Ok(()) }
    }

    /// Whether the protocol is to hear that all output has left.
    pub(super) fn is_sent(&self) -> bool {
        self.tells_sent
            && self.phase == Phase::Open
            && !self.blocked
            && self.output.is_empty()
            && self.unsent_bytes() == 0
    }

    /// Whether nothing leaves now, although it might. What the socket has refused is offered again as ever: it is asked when it has room.
    fn keeps_output(&self) -> bool {
        let goes_on = self.parked || self.pending;
        self.keeps && goes_on && self.phase == Phase::Open && self.output.len() <= KEPT_BYTES_MAX
    }

    /// Whether nothing at all leaves now.
    pub(super) fn withholds_output(&self) -> bool {
        self.withholds && self.parked && self.phase == Phase::Open
    }

    /// Bytes handed to the system that the socket has not taken.
    pub(super) fn unsent_bytes(&self) -> usize {
        let sealed_bytes = self.tls.as_ref().map_or(0, |tls| tls.unsent().len());
        self.link.as_ref().map_or(sealed_bytes, |link| link.unsent_bytes())
    }

    /// Takes note that the socket took `count` bytes.
    pub(crate) fn count_write(&mut self, count: usize, tally: &mut Tally, now: Nanos) {
        tally.write_events += 1;
        tally.bytes_out += count as u64;
        self.connection.write_events.add(1);
        self.connection.bytes_out.add(count as u64);
        self.connection.last_active.set(now.0);
    }

    fn flush(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let released =
            if self.output.has_marks() { context.protocol().released() } else { Ticket::EVERYTHING };
        if let Some(link) = &mut self.link {
            let is_all = match &mut self.tls {
                None => link.hand_over(&mut self.output, released),
                Some(tls) => link.hand_over_sealed(tls, &mut self.output, released)?,
            };
            (self.blocked, self.sends_on) = (!is_all || link.is_refused, false);
            return self.check_unsent(context);
        }
        if self.tls.is_some() {
            return self.flush_sealed(released, context);
        }
        loop {
            let (offered, sent) = self.send_some(released);
            if offered == 0 {
                self.blocked = false;
                return Ok(());
            }
            match sent {
                Ok(count) => {
                    self.output.advance(count);
                    self.count_write(count, context.tally, context.now);
                    self.blocked = count < offered;
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

    /// Offers what may leave to the socket, with one call; how much that was, and how much it took.
    fn send_some(&mut self, released: Ticket) -> (usize, rustix::io::Result<usize>) {
        if !self.output.continues(released) {
            let piece = self.output.sendable(released);
            let offered = piece.len();
            let sent = if offered == 0 {
                Ok(0)
            } else {
                rustix::net::send(&self.socket, piece, SendFlags::NOSIGNAL)
            };
            return (offered, sent);
        }
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let (count, continues) = self.output.pieces(released, &mut pieces);
        let pieces = &pieces[..count];
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, continues);
        let offered = pieces.iter().map(|piece| piece.len()).sum();
        (offered, sendmsg(&self.socket, pieces, &mut SendAncillaryBuffer::default(), flags))
    }

    /// Cuts who does not read what it asked for.
    pub(super) fn check_unsent(&self, context: &Context<'_, P>) -> Result<(), CloseReason> {
        let unsent = self.unsent_bytes() + self.output.len() - self.output.held_bytes();
        let is_refused = self.link.as_ref().map_or(self.blocked, |link| link.is_refused);
        let is_cut = is_refused && unsent > context.limits.output_bytes_max;
        if is_cut { Err(CloseReason::OutputLimit) } else { Ok(()) }
    }
}

/// Times in a row that a protocol may add output because all before has left.
const PORTIONS_PER_TURN_MAX: usize = 8;

/// Pieces of an output that leave with one call.
const PIECES_MAX: usize = 16;

/// Most of an output that stays because the protocol asked for it.
const KEPT_BYTES_MAX: usize = 16 << 10;
