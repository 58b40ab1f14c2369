//! The state of one connection.
//!
//! Invariants
//!   1. What most connections never need (a transaction, subscriptions, a fetch under way) is behind one
//!      pointer: an idle session is some 150 bytes.
//!   2. `client` mirrors for other threads what CLIENT LIST shows; only the session's own thread writes it.
//!   3. `pending` is `Some` exactly while the connection is parked, or runs the command that it parked for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clock::Nanos;
use commands::chunked::ChunkedReply;
use commands::copies::Copies;
use resp::RequestParser;
use store::{Prepared, StoreError, Watch};
use supervisor::Hold;
use ticket::Ticket;
use txn::id::TxId;

use crate::acl::Member;
use crate::clients::{Client, DEFAULT_USER};
use crate::holds::Awaited;
use crate::long::LongCommands;
use crate::long::job::Long;
use crate::outcome::Served;
use crate::reads::Reads;
use crate::request::ParsedRequest;
use crate::retained::Retained;
use crate::strangers::Stranger;
use crate::subscriptions::{Publishing, Subscriptions, Walk};
use crate::topologies::Checked;
use crate::topologies::Login;
use crate::topologies::trial::TrialEnd;
use crate::tracker::{Invalidated, Tracker};
use crate::transaction::{Caller, Origin, Transaction};
use crate::tx::answer::Answer;

/// State of one connection; moves between loops with it.
#[derive(Debug)]
pub struct Session {
    pub(crate) client: Arc<Client>,
    pub(crate) parser: RequestParser,
    pub(crate) db: u16,
    pub(crate) resp3: bool,
    pub(crate) authenticated: bool,
    /// Who it is, and what it may do.
    pub(crate) member: Member,
    /// Of a worker of a topology.
    pub(crate) hold: Option<Hold>,
    pub(crate) stranger: Stranger,
    /// Take no more commands; send what there is, then close.
    pub(crate) closing: bool,
    pub(crate) replies: Replies,
    /// Ticket of the newest reply: what this client may have seen, and what its messages wait for.
    pub(crate) ticket: Ticket,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) watched: Option<Box<Watched>>,
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// What it keeps copies of (CLIENT TRACKING).
    pub(crate) tracking: Option<Box<CopiesTracked>>,
    /// Invalidations that came while a reply was sent in parts, which nothing may come between.
    pub(crate) late: Vec<(u64, Arc<Invalidated>)>,
    pub(crate) pending: Option<Box<Pending>>,
    /// The transaction that its last TX.BEGIN began, if it did: commands name it `$`.
    pub(crate) newest_tx: Option<Box<Newest>>,
    /// The rest of its newest reply, which is sent before the next request is looked at.
    pub(crate) chunked: Option<Box<ChunkedReply>>,
    /// What its newest reply waits for: neither leaves that, nor runs the next request, before it is done.
    pub(crate) awaited: Option<Box<Awaited>>,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, authenticated: bool) -> Self {
        Session {
            stranger: Stranger::new(client.created),
            client,
            parser: RequestParser::new(),
            db: 0,
            resp3: false,
            authenticated,
            member: Member::of(DEFAULT_USER.into()),
            hold: None,
            closing: false,
            replies: Replies::On,
            ticket: Ticket::NOTHING,
            transaction: None,
            watched: None,
            subscriptions: None,
            tracking: None,
            late: Vec::new(),
            pending: None,
            newest_tx: None,
            chunked: None,
            awaited: None,
        }
    }

    /// What commands need to know of it.
    #[inline]
    pub(crate) fn caller(&self) -> Caller {
        let uses = !self.client.no_touch.load(Ordering::Relaxed);
        let tracks = self.tracking.as_ref().is_some_and(|tracking| tracking.remembers());
        Caller { db: self.db, resp3: self.resp3, origin: Origin { uses, client: self.client.id, tracks } }
    }

    /// Whether the client has subscribed to anything.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions.is_some()
    }

    /// Whether the client waits for what others do: being silent is no idleness then.
    pub(crate) fn listens(&self) -> bool {
        let client = &self.client;
        self.is_subscribed()
            || client.monitor.load(Ordering::Relaxed)
            || client.capture.load(Ordering::Relaxed) != 0
    }

    /// Whether a large reply may be sent in parts: nothing may come between them.
    pub(crate) fn takes_parts(&self) -> bool {
        self.replies == Replies::On && !self.listens() && self.tracking.is_none()
    }

    /// Ends MULTI and WATCH; what they kept is dropped by `long` if it is much.
    pub(crate) fn end_transaction(&mut self, long: &Arc<LongCommands>) {
        let (transaction, watched) = (self.transaction.take(), self.unwatch());
        let queued = transaction.as_ref().map_or(0, |transaction| transaction.queue.len());
        long.drop_large(queued + watched.len(), (transaction, watched));
        self.show_transaction();
    }

    /// Drops what the connection has kept, as [`Session::end_transaction`] does.
    pub(crate) fn end(mut self, long: &Arc<LongCommands>) {
        self.end_transaction(long);
        let job = self.pending.as_mut().and_then(|pending| pending.long.take());
        if let Some(job @ (Long::Back(_) | Long::Again(_) | Long::InLine(_))) = job {
            long.drop_in_background(job);
        }
    }

    /// It is the user that `login` names, from now on.
    pub(crate) fn log_in(&mut self, login: Login) {
        let Login { user, rights, hold } = login;
        self.client
            .relabel(|labels| labels.user = Some(Arc::clone(&user)).filter(|user| **user != *DEFAULT_USER));
        self.member = Member::of(user);
        self.member.permissions.rights = rights;
        self.member.permissions.topology = hold.as_ref().map(|hold| hold.topology().into());
        self.hold = hold;
        self.authenticated = true;
    }

    /// It has to say who it is, from now on.
    pub(crate) fn become_stranger(&mut self, now: Nanos) {
        self.authenticated = false;
        self.stranger.begin_again(now);
    }

    /// Prepared records of a request that parked, or none.
    pub(crate) fn take_prepared(&mut self) -> Prepared {
        self.pending.as_mut().map_or_else(Prepared::default, |p| std::mem::take(&mut p.prepared))
    }

    /// What was copied for a request that parked, or nothing.
    pub(crate) fn take_copies(&mut self) -> Copies {
        self.pending.as_mut().map_or_else(Copies::default, |p| std::mem::take(&mut p.copies))
    }

    /// What the script of a request that parked has kept, or nothing.
    pub(crate) fn take_retained(&mut self) -> Retained {
        let kept = self.pending.as_mut().map(|pending| std::mem::take(&mut pending.retained));
        let mut retained = kept.unwrap_or_default();
        retained.permissions.clone_from(&self.member.permissions);
        retained
    }

    /// Takes out what WATCH keeps, to be dropped.
    pub(crate) fn unwatch(&mut self) -> Vec<Watch> {
        self.watched.take().map_or_else(Vec::new, |watched| watched.keys)
    }

    /// Takes the watched keys out until [`Session::watch`] puts them back: what they take stays counted.
    pub(crate) fn lend_watched(&mut self) -> Vec<Watch> {
        self.watched.as_mut().map_or_else(Vec::new, |watched| std::mem::take(&mut watched.keys))
    }

    /// Keeps `keys` watched, which take `bytes`.
    pub(crate) fn watch(&mut self, keys: Vec<Watch>, bytes: u64) {
        self.watched = (!keys.is_empty()).then(|| Box::new(Watched { keys, bytes }));
    }

    /// What the watched keys take.
    pub(crate) fn watched_bytes(&self) -> u64 {
        self.watched.as_ref().map_or(0, |watched| watched.bytes)
    }

    /// Bytes kept for this connection, beside its buffers.
    pub(crate) fn kept_bytes(&self) -> usize {
        let queued_bytes = self.transaction.as_ref().map_or(0, |transaction| transaction.kept_bytes());
        let subscribed_bytes = self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.bytes);
        let pending_bytes = self.pending.as_ref().map_or(0, |pending| {
            let parsed_bytes = pending.parsed.as_ref().map_or(0, |parsed| parsed.args.capacity_bytes());
            pending.line_bytes + parsed_bytes as u64
        });
        let chunked_bytes = self.chunked.as_ref().map_or(0, |_| size_of::<ChunkedReply>() as u64);
        let tracked_bytes = self.tracking.as_ref().map_or(0, |tracking| tracking.bytes() as u64);
        let bytes = tracked_bytes
            + queued_bytes
            + subscribed_bytes
            + self.watched_bytes()
            + pending_bytes
            + chunked_bytes;
        SESSION_BYTES + self.parser.capacity_bytes() + bytes as usize
    }

    /// Shows others what MULTI and WATCH keep: after each change of it.
    pub(crate) fn show_transaction(&self) {
        let (count, bytes) = match &self.transaction {
            None => (-1, 0),
            Some(transaction) => {
                let count = i32::try_from(transaction.queue.len()).unwrap_or(i32::MAX);
                (count, u32::try_from(transaction.queued_bytes).unwrap_or(u32::MAX))
            }
        };
        self.client.queued.store(count, Ordering::Relaxed);
        self.client.queued_bytes.store(bytes, Ordering::Relaxed);
        let watched =
            self.watched.as_ref().map_or(0, |watched| u32::try_from(watched.keys.len()).unwrap_or(u32::MAX));
        self.client.watched.store(watched, Ordering::Relaxed);
    }

    /// Whether the command being run was served while it stood in line: only its reply is missing.
    pub(crate) fn is_served(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.served.is_some())
    }

    /// Whether the command being run parked before: what it did once is not done again.
    pub(crate) fn is_retry(&self) -> bool {
        self.pending.is_some()
    }
}

/// What a connection that keeps copies of keys tracks, and how far it is with that.
#[derive(Debug)]
pub(crate) struct CopiesTracked {
    pub(crate) tracker: Arc<Tracker>,
    /// CLIENT CACHING was called, for the next command.
    pub(crate) caching: bool,
    /// What its options take.
    options_bytes: usize,
    /// Invalidations that came while a command waited: its reply may be older than they are, so they are told again behind it.
    again: Vec<Arc<Invalidated>>,
    /// They were too many: all copies are to be dropped then.
    all_again: bool,
}

impl CopiesTracked {
    pub(crate) fn new(tracker: Arc<Tracker>, options_bytes: usize) -> Self {
        Self { tracker, caching: false, options_bytes, again: Vec::new(), all_again: false }
    }

    /// Whether keys that it reads now are remembered.
    pub(crate) fn remembers(&self) -> bool {
        let options = &self.tracker.options;
        let is_opted = if self.caching { !options.optout } else { !options.optin };
        !options.bcast && is_opted
    }

    /// Keeps an invalidation that came while a command waited.
    pub(crate) fn keep(&mut self, invalidated: &Arc<Invalidated>) {
        if self.again.len() < AGAIN_MAX {
            self.again.push(Arc::clone(invalidated));
        } else {
            self.all_again = true;
        }
    }

    /// Takes what was kept: invalidations, and whether they were too many.
    pub(crate) fn take_kept(&mut self) -> (Vec<Arc<Invalidated>>, bool) {
        (std::mem::take(&mut self.again), std::mem::take(&mut self.all_again))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.options_bytes
    }
}

/// Invalidations that are told again behind the reply of a command that has waited.
const AGAIN_MAX: usize = 64;

/// What WATCH keeps.
#[derive(Debug)]
pub(crate) struct Watched {
    keys: Vec<Watch>,
    bytes: u64,
}

/// The transaction that a connection began last.
#[derive(Debug)]
pub(crate) struct Newest {
    pub(crate) tx: TxId,
    /// To the statements that are next in the connection's input: they were run with the one before them.
    pub(crate) answers: VecDeque<Answer>,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// The next command gets no reply.
    SkipNext,
    /// The command that runs gets no reply.
    Skip,
}

/// What a session takes, with what others see of it.
const SESSION_BYTES: usize = size_of::<Session>() + size_of::<Client>();

/// Why a command could not run at once, and what it needs when it runs again.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The request, if it has few arguments and is in the input: it is not parsed again.
    pub(crate) parsed: Option<ParsedRequest>,
    /// What was fetched for it.
    pub(crate) prepared: Prepared,
    /// When it first ran, if not to wait for others (WAIT).
    pub(crate) since: Option<Nanos>,
    /// What was copied for it.
    pub(crate) copies: Copies,
    /// Until when a command of its own will waits (WAIT, DEBUG SLEEP).
    pub(crate) until: Option<Nanos>,
    /// It has begun to wait (WAIT, WAITAOF).
    pub(crate) waits: bool,
    /// CLIENT UNBLOCK ended that; with `true` as an error.
    pub(crate) unblocked: Option<bool>,
    /// How a thread of its own ended (BACKUP).
    pub(crate) result: Option<Result<(), StoreError>>,
    /// What the check of a definition came to (TOPOLOGY SUBMIT).
    pub(crate) checked: Option<Result<Checked, String>>,
    /// How the trial of a definition has ended (TOPOLOGY SWITCH, UNTRY).
    pub(crate) trial_end: Option<Result<TrialEnd, String>>,
    /// What a statement came to, and those behind it that were run with it (TX.SQL).
    pub(crate) answers: VecDeque<Answer>,
    /// Until when it waits for a key that a prepared transaction holds.
    pub(crate) locked_until: Option<Nanos>,
    /// What was read from disk for it.
    pub(crate) reads: Reads,
    /// What it publishes, and how far the walks through the patterns are (PUBLISH; EXEC, in the order of its queue).
    pub(crate) publishing: VecDeque<Publishing>,
    /// How far its walk through the channels is (PUBSUB CHANNELS).
    pub(crate) walk: Walk,
    /// It waits for an element (`blocked`).
    pub(crate) stands_in_line: bool,
    /// What is kept for that, beside the request.
    pub(crate) line_bytes: u64,
    /// What it came to then.
    pub(crate) served: Option<Box<Served>>,
    /// What its script keeps from attempt to attempt.
    pub(crate) retained: Retained,
    /// Where it is, if it is long.
    pub(crate) long: Option<Long>,
}
