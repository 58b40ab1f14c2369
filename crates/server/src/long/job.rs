//! A request that runs beside its loop: what it takes along, what it comes back with, and where it is.

use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use commands::call::{DataFn, Failure, Wait};
use commands::command::Invoked;
use commands::copies::Copies;
use commands::lookup::Entry;
use resp::{Args, ArgsView};
use store::{AskedMemory, Prepared, Stop, Watch};

use crate::clients::Client;
use crate::lines::Spot;
use crate::outcome::{Executed, Ran};
use crate::request::Request;
use crate::retained::Retained;
use crate::session::Session;
use crate::transaction::{Caller, ConnectionState, Queued, Transaction};
use crate::tx::staged::Staged;

/// A request that runs beside its loop; owns all it needs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) client: u64,
    pub(crate) entry: &'static Entry,
    /// The request, its bytes its own.
    pub(crate) args: Arc<Args>,
    /// Its size as received.
    pub(crate) bytes: usize,
    pub(crate) caller: Caller,
    pub(crate) prepared: Prepared,
    pub(crate) copies: Copies,
    /// What its scripts keep from attempt to attempt.
    pub(crate) retained: Retained,
    pub(crate) work: Work,
    /// Of a command that stands in line: the key that it looks at.
    pub(crate) looks_at: Option<Spot>,
    /// Whose look it is, if it waits and has found nothing.
    pub(crate) looker: Option<Arc<Client>>,
}

/// What an attempt has beside what it runs.
pub(crate) struct Context<'a> {
    pub(crate) entry: &'static Entry,
    pub(crate) args: ArgsView<'a>,
    /// Size of the request as received.
    pub(crate) bytes: usize,
    pub(crate) caller: Caller,
    pub(crate) prepared: &'a Prepared,
    pub(crate) copies: &'a mut Copies,
    pub(crate) retained: &'a mut Retained,
}

/// What is to be run.
#[derive(Debug)]
pub(crate) enum Work {
    Data(DataFn),
    Exec { transaction: Box<Transaction>, watched: Vec<Watch>, state: ConnectionState },
    Watch { watched: Vec<Watch> },
    Stage(Staged),
    Script(Invoked),
    Given(Given),
}

/// A control command that works on what it is given, wherever it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// SCRIPT LOAD.
    Script,
    /// SCRIPT EXISTS.
    Exists,
    /// FUNCTION LOAD.
    Library,
    /// FUNCTION RESTORE.
    Libraries,
    /// COMMAND GETKEYS.
    Keys,
    /// COMMAND GETKEYSANDFLAGS.
    KeysAndFlags,
}

/// A job that has run, or that the store has stopped.
#[derive(Debug)]
pub struct Done {
    pub(crate) job: Box<Job>,
    /// The reply.
    pub(crate) out: Vec<u8>,
    pub(crate) end: End,
}

#[derive(Debug)]
pub(crate) enum End {
    Ran(Ran),
    /// EXEC, or a script.
    Executed(Executed),
    /// The bytes that all watched keys keep, or why they are not watched.
    Watched(Result<u64, Failure>),
    /// To be run again from then on.
    Later(Nanos),
    /// It found nothing, and is to get in line.
    Blocked(Box<Wait>),
    /// It stands in line.
    InLine(InLine),
    /// CLIENT UNBLOCK has ended its look.
    Unblocked,
    Stopped(Stop),
    /// It has read from disk for too long, and is answered so.
    NeverReady(Failure),
}

/// A command that waits for many keys, when it stands in line for all of them, or has left.
#[derive(Debug)]
pub(crate) struct InLine {
    pub(crate) timeout: Option<Duration>,
    /// What it takes there.
    pub(crate) bytes: u64,
    /// Held until its connection counts the bytes.
    pub(crate) asked: AskedMemory,
}

/// Where the long command of a connection is.
#[derive(Debug)]
pub(crate) enum Long {
    /// On its way: whoever wakes the connection for another reason has to wait.
    Out,
    /// It has ended, or was stopped.
    Back(Box<Done>),
    /// To be run again, now that what it waits for may have come.
    Again(Box<Job>),
    /// It stands in line for what it waits for.
    InLine(Box<Job>),
}

impl Job {
    /// `request`, which has to do `work`.
    pub(crate) fn new(
        session: &mut Session,
        entry: &'static Entry,
        request: &Request<'_>,
        work: Work,
    ) -> Box<Self> {
        Box::new(Self {
            client: session.client.id,
            entry,
            args: Arc::new(if request.args.len() > FEW_ARGUMENTS {
                Args::copied_whole(request.args)
            } else {
                Args::copied(request.args)
            }),
            bytes: request.bytes,
            caller: session.caller(),
            prepared: session.take_prepared(),
            copies: session.take_copies(),
            retained: session.take_retained(),
            work,
            looks_at: None,
            looker: None,
        })
    }

    /// The commands of EXEC.
    pub(crate) fn queue(&self) -> &[Queued] {
        match &self.work {
            Work::Exec { transaction, .. } => &transaction.queue,
            Work::Data(_) | Work::Watch { .. } | Work::Stage(_) | Work::Script(_) | Work::Given(_) => &[],
        }
    }

    /// What it holds of its request.
    pub(crate) fn held_bytes(&self) -> u64 {
        let queued_bytes = match &self.work {
            Work::Exec { transaction, .. } => transaction.kept_bytes(),
            Work::Data(_) | Work::Watch { .. } | Work::Stage(_) | Work::Script(_) | Work::Given(_) => 0,
        };
        self.args.capacity_bytes() as u64 + queued_bytes
    }
}

/// So many are copied one by one.
const FEW_ARGUMENTS: usize = 256;
