//! What becomes of a request: it is answered, or it waits, or its connection ends.

use clock::Nanos;
use commands::call::Attachments;
use store::Prepared;
use ticket::Ticket;

use crate::long::job::Job;
use crate::request::Request;

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Answered; the reply waits for this ticket.
    Done {
        ticket: Ticket,
        /// Large values of the reply, in order.
        attached: Attachments,
        /// When it was, as far as the clock was read: the next request begins then.
        ended: Nanos,
    },
    /// Run it again when this has come.
    Park(Parked),
    /// The outcome will never be known: close without a reply.
    Kill,
}

/// What a request waits for.
#[derive(Debug)]
pub(crate) enum Parked {
    /// Records from disk.
    Fetch(Prepared),
    /// Room in the journal.
    Credits,
    /// A time, or to be woken: for others, or by its own will. Ends with the client that asked.
    Until(Nanos),
    /// The thread on which it runs.
    Long,
}

impl Verdict {
    /// Answered without running anything.
    pub(crate) fn answered(request: &Request<'_>) -> Self {
        Self::Done { ticket: Ticket::NOTHING, attached: Attachments::default(), ended: request.now }
    }
}

/// A run that did not.
#[derive(Debug)]
pub(crate) enum Unready {
    Parked(Parked),
    /// It is to run beside the loop.
    Beside(Box<Job>),
    Dead,
}
