//! What a run came to that has ended: a command's reply, or EXEC's replies and what is still to be done.

use ticket::Ticket;

use crate::call::Attachments;
use crate::run::Answered;

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
}

/// The reply to a command that waited for an element.
#[derive(Debug)]
pub struct Served {
    pub(crate) reply: Vec<u8>,
    pub(crate) ran: Ran,
}

impl Ran {
    /// Of a data command.
    pub(crate) fn answered(Answered { failed, lookups, attached, .. }: Answered, ticket: Ticket) -> Self {
        Self { ticket, failed, lookups, attached }
    }

    /// A reply without large values.
    pub(crate) fn plain(ticket: Ticket, failed: bool) -> Self {
        Self { ticket, failed, lookups: (0, 0), attached: Attachments::default() }
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
