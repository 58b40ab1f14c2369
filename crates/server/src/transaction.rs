//! MULTI: the commands that wait for EXEC, and what a command needs to know of its connection.

use std::sync::Arc;

use commands::failure::Failure;
use commands::lookup::Entry;
use resp::Args;
use script::cache::Script;
use script::library::Library;

/// Commands since MULTI.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) queue: Vec<Queued>,
    pub(crate) queued_bytes: u64,
    /// A command could not be queued: EXEC must fail.
    pub(crate) aborted: bool,
}

impl Transaction {
    /// What it takes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.queued_bytes + (self.queue.len() * QUEUED_BYTES) as u64
    }
}

/// A queued command; its arguments own their bytes.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) entry: &'static Entry,
    pub(crate) args: Args,
    /// Of a control command: what was done for it beside the loop, or why it fails.
    pub(crate) ahead: Option<Box<Result<Ahead, Failure>>>,
}

/// What a control command takes long for, and what does not depend on when it acts.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// Of SCRIPT LOAD: it is compiled.
    Script(Arc<Script>),
    /// Of FUNCTION LOAD and FUNCTION RESTORE: their code has run.
    Libraries(Vec<Library>),
    /// The whole reply.
    Reply(Vec<u8>),
}

/// What a connection is set to, for a command of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) db: u16,
    pub(crate) resp3: bool,
    pub(crate) origin: Origin,
}

/// For whom a command runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// Keys that it looks up count as used: not after CLIENT NO-TOUCH.
    pub(crate) uses: bool,
    /// 0: nobody in particular.
    pub(crate) client: u64,
    /// The client keeps copies of what it reads (CLIENT TRACKING).
    pub(crate) tracks: bool,
}

/// The database and the version of the protocol that a command will find, before SELECT and HELLO have acted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionState {
    pub(crate) db: u16,
    pub(crate) resp3: bool,
}

impl From<Caller> for ConnectionState {
    /// As the transaction begins.
    fn from(Caller { db, resp3, .. }: Caller) -> Self {
        Self { db, resp3 }
    }
}

/// What a queued command keeps beside its bytes.
const QUEUED_BYTES: usize = size_of::<Queued>() + 64;
