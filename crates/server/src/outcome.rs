//! What a run came to that has ended: a command's reply, or EXEC's replies and what is still to be done; and why a script's
//! attempt is over that has not.

use commands::call::Attachments;
use commands::chunked::ChunkedReply;
use commands::failure::Failure;
use store::Stop;
use ticket::Ticket;

use crate::run::{Answered, Need};
use crate::subscriptions::Outbox;

/// A run that ended with a reply.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ticket: Ticket,
    /// The reply is an error.
    pub(crate) failed: bool,
    /// Keys that were found, and not.
    pub(crate) lookups: (u32, u32),
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
        Self { ticket, failed, lookups: (0, 0), attached: Attachments::default(), chunked: None }
    }
}

/// What a run of all data commands leaves to be done when it is committed.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// Whether the commands ran; not if a watched key has changed, or the reply would be too large.
    pub(crate) ran: bool,
    pub(crate) ticket: Ticket,
    /// Large values of the replies, in order.
    pub(crate) attached: Attachments,
    /// What ran, and whether it failed: counted when it has happened, for a run that stops is repeated.
    pub(crate) calls: Vec<(u16, bool)>,
    /// Control commands by their number, and the index in the replies where each one's belongs.
    pub(crate) later: Vec<(usize, usize)>,
    /// EXEC itself is answered with an error.
    pub(crate) failed: bool,
    /// Messages that its scripts published.
    pub(crate) outbox: Outbox,
    /// Lines of MONITOR about its scripts' commands.
    pub(crate) monitored: Vec<u8>,
    /// Keys that were found, and not.
    pub(crate) lookups: (u32, u32),
}

impl Executed {
    /// What a run came to, and its ticket.
    pub(crate) fn of((executed, ticket): (Self, Ticket)) -> Self {
        Self { ticket, ..executed }
    }

    /// Lets the replies begin at `start` of their buffer.
    pub(crate) fn make_room(&mut self, start: usize) {
        self.attached.make_room(&[(0, start)]);
        self.later.iter_mut().for_each(|(_, at)| *at += start);
    }
}

/// What a script has answered, and what is to be done when its effects are committed.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The reply is an error.
    pub(crate) failed: bool,
    /// The commands that ran, and whether each failed.
    pub(crate) calls: Vec<(u16, bool)>,
    /// Keys that were found, and not.
    pub(crate) lookups: (u32, u32),
    /// Messages to send.
    pub(crate) outbox: Outbox,
    /// Lines of MONITOR about the commands.
    pub(crate) monitored: Vec<u8>,
}

/// Why the attempt of a script is over that leaves no trace.
#[derive(Debug)]
pub(crate) enum Pause {
    /// The store stopped a command, or it takes longer than a loop waits; by its number in the body.
    At(usize, Failure),
    /// It needs more than it was given.
    Needs(Need),
    /// It was stopped; this is the reply.
    Refused(Vec<u8>),
}

impl Pause {
    /// Command `number` of a body takes longer than a loop waits.
    pub(crate) fn long(number: usize) -> Self {
        Self::At(number, Stop::Long.into())
    }
}
