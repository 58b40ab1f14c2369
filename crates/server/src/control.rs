//! What a control handler gets: the session, and the server by its parts.
//!
//! A control handler that returns [`Failure::Wait`](commands::failure::Failure::Wait) is called again and has changed nothing.

use std::sync::Arc;

use clock::Nanos;
use commands::failure::{Failure, Outcome};
use store::{AskedMemory, Store};
use ticket::Ticket;

use crate::errors;
use crate::holds::{Awaited, Hold};
use crate::message::Message;
use crate::server::Server;
use crate::session::Session;
use crate::subscriptions::Outbox;
use crate::transaction::Ahead;

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
    /// What was asked for the reply.
    pub memory: &'a mut ReplyMemory,
    /// In EXEC: what was done for the command beside the loop.
    pub ahead: Option<Box<Result<Ahead, Failure>>>,
}

/// Memory that was asked for replies of control commands, before they were made.
#[derive(Debug, Default)]
pub(crate) struct ReplyMemory {
    /// Replies of the commands before, in the same EXEC.
    former_bytes: usize,
    asked_bytes: usize,
    asked: Vec<AskedMemory>,
}

impl ReplyMemory {
    /// The next command is to run, behind replies of so many bytes.
    ///
    /// # Errors
    /// There is no memory for these: it must not run.
    pub(crate) fn begin(&mut self, store: &Store, former_bytes: usize) -> Outcome {
        self.former_bytes = former_bytes;
        self.ask(store, 0)
    }

    /// Asks for the memory of a reply that has, or will have, so many bytes.
    fn ask(&mut self, store: &Store, bytes: usize) -> Outcome {
        let all_bytes = self.former_bytes.saturating_add(bytes);
        if all_bytes > self.asked_bytes + FREE_BYTES {
            let more_bytes = (all_bytes - self.asked_bytes).max(STEP_BYTES);
            let asked = store.ask_memory(more_bytes as u64).map_err(|stop| errors::no_memory(&stop))?;
            self.asked_bytes += more_bytes;
            self.asked.push(asked);
        }
        Ok(())
    }
}

/// Of its replies a request need not ask for so much.
const FREE_BYTES: usize = 64 << 10;
/// So much is asked for at a time.
const STEP_BYTES: usize = 256 << 10;

impl Control<'_> {
    /// Refuses a reply of more than `bytes` if no connection could hold it, and asks for the memory. Called before the reply is made, or with
    /// each part of it, with all so far.
    pub(crate) fn admit_reply(&mut self, bytes: usize) -> Outcome {
        self.server.tuned.sizes.admit_reply(bytes)?;
        self.memory.ask(&self.server.store, bytes)
    }

    /// What was done for the command beside the loop, if anything was.
    ///
    /// # Errors
    /// Why the command fails.
    pub(crate) fn take_ahead(&mut self) -> Result<Option<Ahead>, Failure> {
        self.ahead.take().map(|ahead| *ahead).transpose()
    }

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
