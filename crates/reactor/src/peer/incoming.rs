//! Bytes that come: read from the socket, taken in as they were completed, or dropped because their request was refused.
//!
//! Under edge-triggered readiness a read that returns less than it had room for has drained the socket
//! (epoll(7)), unless the peer has also closed: then one more read brings the end.
//!
//! Out of scope: when something may be read (`peer`).

use clock::Nanos;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{Context, Peer, Phase};
use crate::pool::Pool;
use crate::stats::Tally;
use crate::{CloseReason, Protocol};

impl<P: Protocol> Peer<P> {
    /// Takes what a refused peer still sends, and drops it.
    pub(super) fn drain(&mut self, context: &mut Context<'_, P>) -> Result<(), CloseReason> {
        let Phase::Closing(reason) = self.phase else { return Ok(()) };
        if self.drains_bytes == 0 || !self.readable {
            return Ok(());
        }
        if self.link.is_some() {
            // Bytes come by themselves; this is their end, or that of our patience.
            return Err(reason);
        }
        let mut buffer = context.pool.take_large();
        let mut ended = Ok(());
        for _ in 0..DRAINS_PER_TURN_MAX {
            buffer.clear();
            let spare = rustix::buffer::spare_capacity(&mut buffer);
            match rustix::net::recv(&self.socket, spare, RecvFlags::empty()).map(|(_, count)| count) {
                Ok(count @ 1..) if count < self.drains_bytes => {
                    self.drains_bytes -= count;
                    self.count_read(count, context.tally, context.now);
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    break;
                }
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    ended = Err(reason);
                    break;
                }
            }
        }
        context.pool.put(buffer);
        ended
    }

    /// Whether what a refused peer sends is taken.
    pub(crate) fn drains(&self) -> bool {
        self.phase != Phase::Open && self.drains_bytes > 0
    }

    /// Takes bytes that came by themselves.
    pub(crate) fn take_in(&mut self, bytes: &[u8], pool: &mut Pool, tally: &mut Tally, now: Nanos) {
        self.count_read(bytes.len(), tally, now);
        if self.phase == Phase::Open {
            if self.tls.is_some() {
                return self.take_in_sealed(bytes, pool);
            }
            self.input.room(pool).extend_from_slice(bytes);
            self.pending = true;
        } else if self.drains_bytes > 0 {
            self.drains_bytes = self.drains_bytes.saturating_sub(bytes.len()).max(1);
            // The last byte stands for the end of our patience.
            self.readable |= self.drains_bytes == 1;
        }
    }

    /// As [`Peer::take_in`] of what is sealed.
    fn take_in_sealed(&mut self, bytes: &[u8], pool: &mut Pool) {
        let opened = self.open_sealed(bytes, pool);
        match opened {
            Ok(is_more) => self.pending |= is_more,
            Err(_) => {
                self.readable = true;
                self.link.as_mut().expect("bytes come by themselves").is_broken = true;
            }
        }
    }

    /// Whether bytes should come by themselves: not when there is enough already that cannot be handled yet. `are_coming`
    /// makes the difference that keeps it from changing its mind with each piece.
    pub(crate) fn wants_bytes(&self, are_coming: bool) -> bool {
        let enough = if are_coming { AHEAD_BYTES_MAX } else { AHEAD_BYTES_MAX / 2 };
        if self.drains() {
            return !self.readable;
        }
        let handles = self.takes_input() && !self.pending;
        self.phase == Phase::Open
            && !self.waits_for_room
            && (handles || self.input.len() < enough)
            && (are_coming || self.takes_input())
    }

    pub(super) fn count_read(&mut self, count: usize, tally: &mut Tally, now: Nanos) {
        tally.read_events += 1;
        tally.bytes_in += count as u64;
        self.connection.read_events.add(1);
        self.connection.bytes_in.add(count as u64);
        self.connection.last_active.set(now.0);
    }

    /// Reads once; whether anything came.
    pub(super) fn read(&mut self, context: &mut Context<'_, P>) -> Result<bool, CloseReason> {
        if let Some(link) = &self.link {
            // Bytes come by themselves; what is left to read is the end.
            if link.is_broken {
                return Err(CloseReason::Peer);
            }
            self.readable = false;
            self.begin_close(CloseReason::Peer, context);
            return Ok(false);
        }
        if self.tls.is_some() {
            return self.read_sealed(context);
        }
        let room = self.input.room(context.pool);
        let spare = room.capacity() - room.len();
        // Not `read`: a socket's own call spares the kernel its way through files, a quarter of the call's time.
        let received =
            rustix::net::recv(&self.socket, rustix::buffer::spare_capacity(room), RecvFlags::empty());
        match received.map(|(_, count)| count) {
            Ok(0) => {
                self.readable = false;
                self.begin_close(CloseReason::Peer, context);
                Ok(false)
            }
            Ok(count) => {
                self.readable = count == spare || self.read_closed;
                self.count_read(count, context.tally, context.now);
                Ok(true)
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Ok(false)
            }
            Err(Errno::INTR) => Ok(false),
            Err(_) => Err(CloseReason::Peer),
        }
    }
}

/// Bytes that may come by themselves ahead of those that wait to be handled; what was on its way comes on top.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Reads of one turn of a connection whose bytes are dropped.
const DRAINS_PER_TURN_MAX: usize = 16;
