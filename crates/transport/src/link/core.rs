//! A link's state that senders, receivers and its connection share, behind one lock.
//!
//! ```text
//!          on_up               on_down
//!   Down ---------> Up(n) ---------------> Down      on_up while Up: the newer connection takes the place, n + 1
//!     \              /
//!      `- close ----+--> Closed
//! ```
//!
//! Who sends appends and, if nobody was told yet, tells the connection's loop. The loop takes a portion of everything: credits and
//! acknowledgement, then lossy messages, then reliable chunks. One portion at a time is with the connection, so that control never waits
//! behind more than that.

use std::sync::Arc;

use clock::Nanos;

use super::lossy::Lossy;
use super::sending::{CHUNK_COST_BYTES, Payload, Sending, Terms};
use super::windows::Windows;
use crate::status::Received;
use crate::wire::{CREDIT_BYTES_MAX, Hello};
use crate::{Channel, Class, Incarnation, LinkError, LinkState, SendError, Sent, Settings};

/// Tells the thread of a connection that there is something to send.
pub(crate) trait Doorbell: Send + Sync {
    /// There is something to send.
    fn ring(&self);

    /// The connection is not the link's any more.
    fn hang_up(&self);
}

/// What a connection sends next, in this order.
#[derive(Default)]
pub(crate) struct Portion {
    pub(crate) ack: u64,
    /// Credit records, and how many; a chunk of their own is sent also without any if `is_control_due`.
    pub(crate) credits: Vec<u8>,
    pub(crate) credit_count: u32,
    pub(crate) is_control_due: bool,
    pub(crate) lossy: Vec<u8>,
    pub(crate) reliable: Vec<(u64, Payload)>,
    /// There is more than this.
    pub(crate) has_more: bool,
    /// When the link will have rested, if it owes something.
    pub(crate) rest_at: Option<Nanos>,
}

/// What a new connection begins with.
pub(crate) struct Began {
    pub(crate) generation: u64,
    /// Messages that a former run of the peer may not have got, if this is another.
    pub(crate) restarted: Option<u64>,
    pub(crate) before: Option<Arc<dyn Doorbell>>,
}

pub(super) struct Core {
    settings: Arc<Settings>,
    pub(super) state: LinkState,
    pub(super) generation: u64,
    doorbell: Option<Arc<dyn Doorbell>>,
    /// The connection knows that there is something to send.
    is_rung: bool,
    pub(super) peer: Option<Incarnation>,
    /// Counts the runs of the peer.
    pub(super) epoch: u32,
    payload_bytes_max: u32,
    pub(super) sending: Sending,
    pub(super) lossy: Lossy,
    pub(super) windows: Windows,
    /// The highest sequence up to which all came.
    pub(super) ack: u64,
    acked: u64,
    /// What came since the last acknowledgement, as its sender counts it.
    unacked_bytes: u64,
    rest_at: Option<Nanos>,
    pub(super) lost_messages: u64,
    pub(super) received: Received,
}

impl Core {
    pub(super) fn new(settings: &Arc<Settings>) -> Self {
        let terms = Terms {
            message_bytes_max: settings.message_size_bytes_max,
            payload_bytes_max: settings.payload_bytes_max(),
            channel_window_bytes: 0,
            link_window_bytes: 0,
        };
        Self {
            state: LinkState::Down,
            generation: 0,
            doorbell: None,
            is_rung: false,
            peer: None,
            epoch: 0,
            payload_bytes_max: terms.payload_bytes_max,
            sending: Sending::new(settings, terms),
            lossy: Lossy::new(settings),
            windows: Windows::new(settings),
            ack: 0,
            acked: 0,
            unacked_bytes: 0,
            rest_at: None,
            lost_messages: 0,
            received: Received::default(),
            settings: Arc::clone(settings),
        }
    }

    /// Takes a message; who is to be told of it, if nobody was.
    #[inline]
    pub(super) fn send(
        &mut self,
        channel: Channel,
        message: &[u8],
    ) -> Result<(Sent, Option<Arc<dyn Doorbell>>), SendError> {
        match self.state {
            LinkState::Up => {}
            LinkState::Down => return Err(SendError::NotConnected),
            LinkState::Closed => return Err(SendError::Closed),
        }
        let mut sent = Sent::Taken;
        match channel.class {
            Class::Reliable => self.sending.send(channel.number, message)?,
            Class::Lossy if self.lossy.send(channel.number, message)? => sent = Sent::Replaced,
            Class::Lossy => {}
        }
        Ok((sent, self.bell()))
    }

    /// Who is to be told that there is something to send.
    #[inline]
    pub(super) fn bell(&mut self) -> Option<Arc<dyn Doorbell>> {
        if std::mem::replace(&mut self.is_rung, true) { None } else { self.doorbell.clone() }
    }

    /// The connection will take a portion by itself: nobody needs to tell it.
    pub(super) fn mute(&mut self) {
        self.is_rung = true;
    }

    /// A connection said `hello`; what of what it was sent it has, `ack`, is known if it means this run of ours.
    ///
    /// # Errors
    /// The peer's terms make no sense, or it acknowledges what it was never sent.
    pub(super) fn on_up(
        &mut self,
        hello: &Hello,
        ack: u64,
        doorbell: Arc<dyn Doorbell>,
    ) -> Result<Began, LinkError> {
        let terms = self.terms(hello)?;
        let peer = Incarnation::new(hello.incarnation);
        if let Some(known) = self.peer.filter(|known| *known > peer) {
            return Err(LinkError::EarlierRun { theirs: peer.number(), known: known.number() });
        }
        let mut restarted = None;
        if self.peer == Some(peer) {
            self.sending.on_ack(ack)?;
        } else {
            let lost_messages = self.sending.unacked_messages();
            restarted = self.peer.map(|_| lost_messages);
            self.lost_messages += lost_messages;
            self.begin_anew(peer, terms);
        }
        self.sending.rewind();
        self.windows.announce_again();
        self.generation += 1;
        self.state = LinkState::Up;
        self.is_rung = true;
        self.rest_at = None;
        Ok(Began { generation: self.generation, restarted, before: self.doorbell.replace(doorbell) })
    }

    /// What `hello` and the own settings allow.
    fn terms(&self, hello: &Hello) -> Result<Terms, LinkError> {
        let settings = &self.settings;
        let terms = Terms {
            message_bytes_max: hello.message_bytes_max.min(settings.message_size_bytes_max),
            payload_bytes_max: hello.payload_bytes_max.min(settings.payload_bytes_max()),
            channel_window_bytes: hello.channel_window_bytes,
            link_window_bytes: hello.link_window_bytes,
        };
        let message_bytes = super::account::cost_of(terms.message_bytes_max as usize);
        let makes_sense = terms.payload_bytes_max >= PAYLOAD_BYTES_LEAST
            && message_bytes <= terms.channel_window_bytes
            && terms.channel_window_bytes <= terms.link_window_bytes;
        if makes_sense { Ok(terms) } else { Err(LinkError::Protocol("its limits make no sense")) }
    }

    /// Forgets everything about the former run of the peer. Counters go on.
    fn begin_anew(&mut self, peer: Incarnation, terms: Terms) {
        let (messages, resent_chunks) = (self.sending.messages, self.sending.resent_chunks);
        self.sending = Sending::new(&self.settings, terms);
        (self.sending.messages, self.sending.resent_chunks) = (messages, resent_chunks);
        self.payload_bytes_max = terms.payload_bytes_max;
        self.lossy.set_message_bytes_max(terms.payload_bytes_max - crate::settings::FRAME_ROOM_BYTES);
        self.windows = Windows::new(&self.settings);
        (self.peer, self.epoch) = (Some(peer), self.epoch + 1);
        (self.ack, self.acked, self.unacked_bytes) = (0, 0, 0);
    }

    /// The connection of `generation` ended; whether it was the newest.
    pub(super) fn on_down(&mut self, generation: u64) -> bool {
        if generation != self.generation || self.state != LinkState::Up {
            return false;
        }
        self.state = LinkState::Down;
        self.doorbell = None;
        self.lossy.drop_all();
        true
    }

    /// No message is taken from now on; the doorbell of the connection, if there is one.
    pub(super) fn close(&mut self) -> Option<Arc<dyn Doorbell>> {
        self.state = LinkState::Closed;
        self.lossy.drop_all();
        self.doorbell.take()
    }

    /// A reliable chunk came in its turn, up to sequence `ack`.
    pub(super) fn on_reliable(&mut self, ack: u64, payload_bytes: usize) {
        self.ack = ack;
        self.unacked_bytes += payload_bytes as u64 + CHUNK_COST_BYTES;
    }

    /// A receiver consumed what it kept; who is to be told, if that is worth a chunk, or if nobody waits for the link to rest.
    pub(super) fn on_returned(&mut self, channel: u16, cost_bytes: u64) -> Option<Arc<dyn Doorbell>> {
        self.windows.on_returned(channel, cost_bytes);
        if self.windows.is_due() || self.rest_at.is_none() { self.bell() } else { None }
    }

    /// When the link will have rested, if it owes something; `rests`: it has.
    fn rest(&mut self, now: Nanos, rests: bool) -> Option<Nanos> {
        let owes = self.ack > self.acked || self.windows.owes();
        if rests || !owes {
            self.rest_at = None;
        }
        if owes && self.rest_at.is_none() {
            self.rest_at = Some(now + self.settings.ack_delay);
        }
        self.rest_at
    }

    /// Puts into `portion` what is to be sent now, about `bytes_max` bytes of it. A sign of life is sent if `is_silent`.
    pub(super) fn take_portion(
        &mut self,
        now: Nanos,
        bytes_max: usize,
        is_silent: bool,
        portion: &mut Portion,
    ) {
        let payload_bytes_max = self.payload_bytes_max as usize;
        let rests = self.rest_at.is_some_and(|at| at <= now);
        portion.credit_count = 0;
        portion.credits.clear();
        if self.windows.is_due() || rests {
            let room_bytes = payload_bytes_max - CREDIT_BYTES_MAX;
            portion.credit_count = self.windows.grant(room_bytes, &mut portion.credits);
        }
        portion.lossy.clear();
        self.lossy.hand_out(payload_bytes_max, &mut portion.lossy);
        portion.reliable.clear();
        let has_more = self.sending.hand_out(bytes_max, &mut portion.reliable);
        portion.has_more = has_more || !self.lossy.is_empty() || self.windows.is_due();
        let is_ack_due = self.ack > self.acked
            && (rests || self.unacked_bytes >= self.settings.unacked_bytes_max / ACK_PART);
        let is_carried = !portion.lossy.is_empty() || !portion.reliable.is_empty();
        portion.is_control_due = portion.credit_count > 0 || ((is_ack_due || is_silent) && !is_carried);
        if is_silent && !is_carried {
            self.sending.release();
        }
        portion.ack = self.ack;
        if is_carried || portion.is_control_due {
            (self.acked, self.unacked_bytes) = (self.ack, 0);
        }
        portion.rest_at = self.rest(now, rests);
        self.is_rung = portion.has_more;
    }
}

/// An acknowledgement is sent at once when so large a part of what a sender may keep has come.
const ACK_PART: u64 = 8;
/// Least payload that a peer must take: room for some credit records, and a frame.
const PAYLOAD_BYTES_LEAST: u32 = 512;
