//! Credits: what a sender may send, and what a receiver lets it send, in bytes since the link began.
//!
//! ```text
//!  sender:    sent <= limit          (its Account)
//!  receiver:  received <= granted = returned at the last grant + window   (its Window)
//! ```
//!
//! Both count on and never fall, so a grant may come twice or late. A message counts as its bytes and
//! [`crate::settings::MESSAGE_COST_BYTES`], so that empty messages have a bound as well.

use crate::LinkError;
use crate::settings::MESSAGE_COST_BYTES;

/// What a message of `size_bytes` counts.
#[inline]
pub(super) fn cost_of(size_bytes: usize) -> u64 {
    size_bytes as u64 + MESSAGE_COST_BYTES
}

/// A sender's side of a channel, or of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    sent_bytes: u64,
    limit_bytes: u64,
}

impl Account {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self { sent_bytes: 0, limit_bytes }
    }

    #[inline]
    pub(super) fn fits(&self, cost_bytes: u64) -> bool {
        cost_bytes <= self.limit_bytes - self.sent_bytes
    }

    #[inline]
    pub(super) fn take(&mut self, cost_bytes: u64) {
        self.sent_bytes += cost_bytes;
        debug_assert!(self.sent_bytes <= self.limit_bytes, "sent beyond the limit");
    }

    /// A limit never falls.
    pub(super) fn raise(&mut self, limit_bytes: u64) {
        self.limit_bytes = self.limit_bytes.max(limit_bytes);
    }

    #[cfg(test)]
    pub(super) fn check_state(&self) {
        assert!(self.sent_bytes <= self.limit_bytes);
    }
}

/// A receiver's side of a channel, or of the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size_bytes: u64,
    received_bytes: u64,
    returned_bytes: u64,
    granted_bytes: u64,
}

impl Window {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { size_bytes, received_bytes: 0, returned_bytes: 0, granted_bytes: size_bytes }
    }

    /// # Errors
    /// The sender had no credit for it.
    pub(super) fn on_received(&mut self, cost_bytes: u64) -> Result<(), LinkError> {
        self.received_bytes += cost_bytes;
        if self.received_bytes > self.granted_bytes {
            return Err(LinkError::Protocol("it sent more than it had credit for"));
        }
        Ok(())
    }

    pub(super) fn on_returned(&mut self, cost_bytes: u64) {
        self.returned_bytes += cost_bytes;
    }

    /// What a new grant would add.
    fn due_bytes(&self) -> u64 {
        self.returned_bytes + self.size_bytes - self.granted_bytes
    }

    /// Whether a grant is worth a chunk of its own.
    pub(super) fn is_due(&self) -> bool {
        self.due_bytes() >= self.size_bytes / 4
    }

    /// Grants what was returned; the new limit.
    pub(super) fn grant(&mut self) -> u64 {
        self.granted_bytes += self.due_bytes();
        self.granted_bytes
    }

    /// Whether there is anything to grant.
    pub(super) fn owes(&self) -> bool {
        self.due_bytes() > 0
    }

    /// Whether it has granted more than each sender has from the start.
    pub(super) fn has_granted(&self) -> bool {
        self.granted_bytes > self.size_bytes
    }

    /// What came and was not returned.
    pub(super) fn held_bytes(&self) -> u64 {
        self.received_bytes.saturating_sub(self.returned_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_follow_what_is_returned_and_are_due_at_a_quarter() {
        let mut window = Window::new(100);
        window.on_received(60).unwrap();
        assert!(!window.owes());
        window.on_returned(24);
        assert!(window.owes() && !window.is_due());
        window.on_returned(1);
        assert!(window.is_due());
        assert_eq!((window.grant(), window.held_bytes()), (125, 35));
        assert!(!window.owes() && window.has_granted());
        window.on_received(65).unwrap();
        assert!(window.on_received(1).is_err());
    }

    #[test]
    fn account_takes_up_to_its_limit_which_never_falls() {
        let mut account = Account::new(10);
        assert!(account.fits(10) && !account.fits(11));
        account.take(10);
        assert!(!account.fits(1));
        account.raise(15);
        account.raise(12);
        assert!(account.fits(5) && !account.fits(6));
    }
}
