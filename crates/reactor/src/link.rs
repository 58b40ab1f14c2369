//! What is asked of the system for one connection, where completions come: bytes on their way out, and whether bytes come in.
//!
//! ```text
//!  coming:  Off --receive--> On --stop--> Stopping
//!            ^---- the last completion ------'        (On ends by itself, too: no buffer, the end)
//!             after want of a buffer the next request is to be told when bytes come; then it is as before
//!  out:     (none) --hand_over--> outgoing --submitted--> under way --all taken--> (none)
//!                                    ^---- a part was taken ---'
//! ```

use ticket::Ticket;

use crate::CloseReason;
use crate::output::Output;
use crate::ring::Parcel;
use crate::tls::Tls;

/// Whether bytes come in by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Coming {
    /// They do not.
    #[default]
    Off,
    /// They do.
    On,
    /// They were told to stop, and may still come.
    Stopping,
}

/// One connection's requests to the system.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) coming: Coming,
    /// All buffers of the ring were taken when bytes were asked for: next it is asked when bytes come.
    pub(crate) lacked_buffer: bool,
    /// To be submitted.
    pub(crate) outgoing: Option<Box<Parcel>>,
    /// What of the parcel that is with the system had not left when it was submitted.
    pub(crate) under_way_bytes: usize,
    /// The memory of that parcel.
    pub(crate) under_way_kept_bytes: usize,
    /// The wait in which it was submitted.
    pub(crate) submitted_in: u64,
    /// The socket did not take all that it was offered.
    pub(crate) is_refused: bool,
    /// Everything under way was told to stop.
    pub(crate) is_stopping: bool,
    /// The system was asked to tell when the peer closes, for nothing is received now.
    pub(crate) is_watched: bool,
    /// The stream broke, rather than ended.
    pub(crate) is_broken: bool,
    /// Used again: most connections send one parcel after the other.
    spare: Option<Box<Parcel>>,
}

impl Link {
    /// Takes what may leave off `output`, unless something is on its way already; whether all of it is out of there now.
    pub(crate) fn hand_over(&mut self, output: &mut Output, released: Ticket) -> bool {
        if self.unsent_bytes() == 0 {
            let mut parcel = self.spare.take().unwrap_or_default();
            if output.take_parcel(released, &mut parcel) {
                self.outgoing = Some(parcel);
            } else {
                self.spare = Some(parcel);
            }
        }
        output.sendable(released).is_empty()
    }

    /// As [`Link::hand_over`], through `tls`.
    ///
    /// # Errors
    /// Nothing more can be sealed.
    pub(crate) fn hand_over_sealed(
        &mut self,
        tls: &mut Tls,
        output: &mut Output,
        released: Ticket,
    ) -> Result<bool, CloseReason> {
        if self.unsent_bytes() == 0 {
            let mut parcel = self.spare.take().unwrap_or_default();
            tls.seal(output, released, &mut parcel.own)?;
            if parcel.own.is_empty() {
                self.spare = Some(parcel);
            } else {
                parcel.range = 0..parcel.own.len();
                parcel.continues = !output.sendable(released).is_empty();
                self.outgoing = Some(parcel);
            }
        }
        Ok(output.sendable(released).is_empty())
    }

    /// Bytes of memory kept for what was handed over.
    pub(crate) fn kept_bytes(&self) -> usize {
        let own_bytes =
            |parcel: &Option<Box<Parcel>>| parcel.as_ref().map_or(0, |parcel| parcel.own.capacity());
        own_bytes(&self.outgoing) + own_bytes(&self.spare) + self.under_way_kept_bytes
    }

    /// Bytes handed over that the socket has not taken, as far as is known.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.under_way_bytes + self.outgoing.as_ref().map_or(0, |parcel| parcel.range.len())
    }

    /// Whether the system has nothing to do for it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.coming == Coming::Off && self.under_way_bytes == 0 && !self.is_watched
    }

    /// Takes `parcel` back, of which `count` bytes left; its buffer when all did.
    pub(crate) fn take_back(&mut self, mut parcel: Box<Parcel>, count: usize) -> Option<Vec<u8>> {
        (self.under_way_bytes, self.under_way_kept_bytes) = (0, 0);
        parcel.range.start += count;
        self.is_refused = !parcel.range.is_empty();
        if self.is_refused {
            self.outgoing = Some(parcel);
            return None;
        }
        parcel.shared = None;
        let own = std::mem::take(&mut parcel.own);
        self.spare = Some(parcel);
        Some(own)
    }
}
