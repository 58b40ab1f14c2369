//! The credits that a link's receiving half gives: a window for each channel, and one for all together.
//!
//! What is consumed is granted anew when it is a quarter of the window, or when the link rests. Channels with something to grant are
//! listed once, so that a grant costs by the channels that were used and not by those that there are.

use super::account::Window;
use crate::wire::{CreditRecord, append_credit};
use crate::{LinkError, Settings};

pub(super) struct Windows {
    channel_window_bytes: u64,
    channels: Vec<Channel>,
    whole: Window,
    /// Channels with something to grant, each once.
    owing: Vec<u16>,
    /// One of them, or the link, has enough for a chunk.
    is_due: bool,
    /// What was granted of all together is to be said again.
    announces_whole: bool,
}

struct Channel {
    window: Window,
    is_listed: bool,
}

impl Windows {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            channel_window_bytes: settings.channel_window_bytes,
            channels: Vec::new(),
            whole: Window::new(settings.link_window_bytes),
            owing: Vec::new(),
            is_due: false,
            announces_whole: false,
        }
    }

    /// `received` bytes of messages came on `channel`, of which `returned` are consumed.
    ///
    /// # Errors
    /// It had no credit for them.
    pub(super) fn on_received(
        &mut self,
        channel: u16,
        received: u64,
        returned: u64,
    ) -> Result<(), LinkError> {
        self.channel(channel).window.on_received(received)?;
        self.whole.on_received(received)?;
        self.on_returned(channel, returned);
        Ok(())
    }

    /// `cost_bytes` of what came on `channel` are consumed. It may be booked that they came only after that.
    pub(super) fn on_returned(&mut self, channel: u16, cost_bytes: u64) {
        if cost_bytes == 0 {
            return;
        }
        self.whole.on_returned(cost_bytes);
        let whole_is_due = self.whole.is_due();
        let Channel { window, is_listed } = self.channel(channel);
        window.on_returned(cost_bytes);
        let is_due = window.is_due() || whole_is_due;
        if !std::mem::replace(is_listed, true) {
            self.owing.push(channel);
        }
        self.is_due |= is_due;
    }

    /// Whether a grant is worth a chunk of its own.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether there is anything to grant.
    pub(super) fn owes(&self) -> bool {
        !self.owing.is_empty() || self.whole.owes() || self.announces_whole
    }

    /// Appends records that grant what was consumed, in up to `bytes_max` bytes; how many.
    pub(super) fn grant(&mut self, bytes_max: usize, to: &mut Vec<u8>) -> u32 {
        let mut count = 0;
        let mut append = |channel, limit, to: &mut Vec<u8>| {
            append_credit(&CreditRecord { channel, limit }, to);
            count += 1;
        };
        if self.whole.owes() || std::mem::take(&mut self.announces_whole) {
            append(None, self.whole.grant(), to);
        }
        while to.len() < bytes_max
            && let Some(number) = self.owing.pop()
        {
            let Channel { window, is_listed } = &mut self.channels[usize::from(number)];
            *is_listed = false;
            append(Some(number), window.grant(), to);
        }
        self.is_due = !self.owing.is_empty();
        count
    }

    /// A new connection: what was granted may not have arrived, and is said again.
    pub(super) fn announce_again(&mut self) {
        for (number, Channel { window, is_listed }) in self.channels.iter_mut().enumerate() {
            if window.has_granted() && !std::mem::replace(is_listed, true) {
                self.owing.push(number as u16);
            }
        }
        self.announces_whole = self.whole.has_granted();
        self.is_due |= self.owes();
    }

    /// Its place, made if there was none. Numbers are checked where messages come in.
    fn channel(&mut self, number: u16) -> &mut Channel {
        let index = usize::from(number);
        if index >= self.channels.len() {
            let window = Window::new(self.channel_window_bytes);
            self.channels.resize_with(index + 1, || Channel { window, is_listed: false });
        }
        &mut self.channels[index]
    }

    /// What came and is not consumed.
    pub(super) fn held_bytes(&self) -> u64 {
        self.whole.held_bytes()
    }
}
