//! What a control handler gets: the session, and the server by its parts.
//!
//! A control handler that returns [`Failure::Wait`](crate::failure::Failure::Wait) is called again and has changed nothing.

use std::sync::Arc;

use clock::Nanos;
use ticket::Ticket;

use crate::holds::{Awaited, Hold};
use crate::message::Message;
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

impl Control<'_> {
    /// What keeps the reply back until all clones of it are dropped: for those who have a part in what was asked for.
    pub(crate) fn hold(&mut self) -> Hold {
        let (peers, id) = (Arc::clone(&self.server.peers), self.session.client.id);
        let wake = move || _ = peers.post(id, Message::Retry);
        Awaited::hold(&mut self.session.awaited, wake)
    }

    /// Keeps the reply back until no callback of any connection runs any more that runs now: until all see what was changed.
    /// What else there is to wait for may get the clone.
    pub(crate) fn wait_for_callbacks(&mut self) -> Hold {
        let hold = self.hold();
        if let Some(peers) = self.server.peers.get() {
            peers.pass(&hold);
        }
        hold
    }
}
