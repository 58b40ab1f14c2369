//! What becomes of a request: its commands run, which ends with a reply, or it waits, or its connection ends.
//!
//! ```text
//!  command -> Answered -\
//!  EXEC, script -> Executed -> Ran -> Replied
//!                \-> Unready: waits, and runs again; or goes on beside its loop; or its connection ends
//! ```

use clock::Nanos;
use commands::call::{Attachments, Lookups};
use commands::chunked::ChunkedReply;
use store::Prepared;
use ticket::Ticket;

use crate::long::job::Job;
use crate::request::Request;
use crate::run::Answered;
use crate::subscriptions::Outbox;

/// A request that is answered; its reply waits for the ticket.
#[derive(Debug)]
pub(crate) struct Replied {
    pub(crate) ticket: Ticket,
    /// Large values of the reply, in order.
    pub(crate) attached: Attachments,
    /// When it was, as far as the clock was read: the next request begins then.
    pub(crate) ended: Nanos,
}

impl Replied {
    /// Without running anything.
    pub(crate) fn at_once(request: &Request<'_>) -> Self {
        Self { ticket: Ticket::NOTHING, attached: Attachments::default(), ended: request.now }
    }
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum Unready {
    /// It runs again when these records are read.
    Fetch(Prepared),
    /// It runs again when there is room in the journal.
    Credits,
    /// It runs again then, or when it is woken: it waits for others, or by its own will, and ends with the client that asked.
    Until(Nanos),
    /// It is to run beside the loop.
    Beside(Box<Job>),
    /// It runs beside the loop.
    Away,
    /// The outcome will never be known: its connection ends without a reply.
    Dead,
}

impl Unready {
    /// Whether it runs again on its loop.
    pub(crate) fn runs_again(&self) -> bool {
        matches!(self, Self::Fetch(_) | Self::Credits | Self::Until(_))
    }
}

/// A run that ended with a reply.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ticket: Ticket,
    /// The reply is an error.
    pub(crate) failed: bool,
    pub(crate) lookups: Lookups,
    /// Large values of the reply, in order.
    pub(crate) attached: Attachments,
    /// The rest of the reply, which is sent in parts.
    pub(crate) chunked: Option<Box<ChunkedReply>>,
}

/// The reply to a command that waited for an element.
#[derive(Debug)]
pub struct Served {
    pub(crate) reply: Vec<u8>,
    pub(crate) ran: Ran,
}

impl Ran {
    /// Of a data command.
    pub(crate) fn answered(answered: Answered, ticket: Ticket) -> Self {
        let Answered { failed, lookups, attached, chunked, .. } = answered;
        Self { ticket, failed, lookups, attached, chunked }
    }

    /// A reply without large values.
    pub(crate) fn plain(ticket: Ticket, failed: bool) -> Self {
        Self { ticket, failed, lookups: Lookups::default(), attached: Attachments::default(), chunked: None }
    }
}

/// What a script, or a run of all data commands of EXEC, leaves to be done when it is committed.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// Whether the commands of EXEC ran; not if a watched key has changed, or the reply would be too large.
    pub(crate) ran: bool,
    /// Where the replies of EXEC begin in their buffer.
    pub(crate) start: usize,
    pub(crate) ticket: Ticket,
    /// Large values of the replies, in order.
    pub(crate) attached: Attachments,
    /// What ran, and whether it failed: counted when it has happened, for a run that stops is repeated.
    pub(crate) calls: Vec<(u16, bool)>,
    /// Control commands by their number, and the index in the replies where each one's belongs.
    pub(crate) later: Vec<(usize, usize)>,
    /// EXEC itself, or the script, is answered with an error.
    pub(crate) failed: bool,
    /// Messages that scripts published.
    pub(crate) outbox: Outbox,
    /// Lines of MONITOR about scripts' commands.
    pub(crate) monitored: Vec<u8>,
    pub(crate) lookups: Lookups,
}

impl Executed {
    /// The same, when it is committed.
    pub(crate) fn committed(self, ticket: Ticket) -> Self {
        Self { ticket, ..self }
    }

    /// It is answered with an error, and nothing has happened.
    pub(crate) fn refused() -> Self {
        Self { failed: true, ..Self::default() }
    }

    /// What another script of the same EXEC has come to.
    pub(crate) fn append(&mut self, script: Self) {
        self.lookups += script.lookups;
        self.calls.extend(script.calls);
        self.outbox.extend(script.outbox);
        self.monitored.extend(script.monitored);
    }

    /// Lets the replies begin at `start` of their buffer.
    pub(crate) fn make_room(&mut self, start: usize) {
        self.start += start;
        self.attached.make_room(&[(0, start)]);
        self.later.iter_mut().for_each(|(_, at)| *at += start);
    }
}
