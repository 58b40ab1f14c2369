//! What a control handler gets: the session, and the server by its parts.
//!
//! A control handler that returns [`Failure::Wait`](crate::failure::Failure::Wait) is called again and has changed nothing.

use std::sync::Arc;

use clock::Nanos;
use ticket::Ticket;

use crate::server::Server;
use crate::session::Session;
use crate::subscriptions::Outbox;

/// What a control handler works on.
pub(crate) struct Control<'a> {
    pub server: &'a Arc<Server>,
    pub session: &'a mut Session,
    /// Monotonic time, fresh.
    pub now: Nanos,
    /// What was received behind the request.
    pub behind: &'a [u8],
    /// Whether EXEC runs it: it must not wait.
    pub in_exec: bool,
    /// Messages to send when it has happened.
    pub outbox: &'a mut Outbox,
    /// What the reply depends on; handlers that looked at no data leave it.
    pub ticket: Ticket,
}
