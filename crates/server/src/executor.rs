//! From a parsed request to its reply, or to the reason why it has to wait.
//!
//! ```text
//!  request -> admission -> queue (MULTI)
//!                   \-> a Body and its Plan -> run -> ticket
//!                                                \-- Stop: parked, run again
//! ```
//!
//! Invariants
//!   1. A request runs until it is answered before the next one of its connection is looked at.
//!   2. Whatever a reply depends on is in its ticket, also when it is an error or nothing was found.
//!   3. A request that parked is counted, monitored and logged once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;
use resp::{ArgsView, Writer};
use store::{Foreseen, KeyRef, Moment, Prepared, Scope, Stop, StoreError};

use crate::admission::runs_in_multi;
use crate::call::{Attachments, Control, Failure};
use crate::calls::Ending;
use crate::capture::recorder::{self, Recorder};
use crate::command::{DataFn, Flags, Handler};
use crate::copies::Copies;
use crate::errors;
use crate::long::{Job, Work};
use crate::lookup::Entry;
use crate::pubsub::Outgoing;
use crate::run::{Answered, Effects, Plan, Single, Step, collect_keys};
use crate::server::Server;
use crate::session::{Caller, Session};

/// A request and where it came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) args: ArgsView<'a>,
    /// What is known of the argument at [`Request::FORESEEN_ARG`] as a key.
    pub(crate) foreseen: Option<Foreseen>,
    /// Its size as received.
    pub(crate) bytes: usize,
    /// What was received behind it.
    pub(crate) behind: &'a [u8],
    pub(crate) loop_index: usize,
    /// Monotonic time, fresh.
    pub(crate) now: Nanos,
    /// The same moment as the store counts.
    pub(crate) moment: Moment,
    /// Where it is recorded, while somebody captures.
    pub(crate) recorder: Option<&'a Recorder>,
}

impl Request<'_> {
    /// Nearly every command that has keys has its first one there.
    pub(crate) const FORESEEN_ARG: usize = 1;
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Answered; the reply waits for this ticket.
    Done {
        ticket: u64,
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

/// A run that ended with a reply.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ticket: u64,
    /// The reply is an error.
    pub(crate) failed: bool,
    /// Keys that were found, and not.
    pub(crate) lookups: (u32, u32),
    /// Large values of the reply, in order.
    pub(crate) attached: Attachments,
}

impl Ran {
    /// Of a data command.
    pub(crate) fn answered(Answered { failed, lookups, attached }: Answered, ticket: u64) -> Self {
        Self { ticket, failed, lookups, attached }
    }

    /// A reply without large values.
    pub(crate) fn plain(ticket: u64, failed: bool) -> Self {
        Self { ticket, failed, lookups: (0, 0), attached: Attachments::default() }
    }
}

impl Verdict {
    /// Answered without running anything.
    fn answered(request: &Request<'_>) -> Self {
        Self::Done { ticket: 0, attached: Attachments::default(), ended: request.now }
    }
}

/// A run that did not.
#[derive(Debug)]
pub(crate) enum Unready {
    Parked(Parked),
    Dead,
}

/// Messages to send when the command that published them has happened.
pub(crate) type Outbox = Vec<Outgoing>;

impl Server {
    /// Runs `request` or queues it, and appends the reply to `out`.
    pub(crate) fn execute(
        self: &Arc<Self>,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Verdict {
        let entry = match self.admit(session, request) {
            Ok(entry) => entry,
            Err((entry, failure)) => {
                let failure = match entry.map(|entry| entry.command.handler) {
                    Some(Handler::Exec) => {
                        self.end_transaction(session);
                        errors::exec_refused(failure)
                    }
                    _ => failure,
                };
                if let Some(transaction) = &mut session.transaction {
                    transaction.aborted = true;
                }
                if let Some(entry) = entry {
                    self.calls.note(request.loop_index, entry.id, None, Ending::Rejected);
                }
                let start = out.len();
                self.stats.write_failure(failure, session.resp3, out);
                self.spoil(session, request.args, &out[start..]);
                if let Some(entry) = entry {
                    self.capture_unrun(session, entry, request, &out[start..]);
                }
                return Verdict::answered(request);
            }
        };
        if self.pause.is_set()
            && let Some(until) = self.paused_until(session, entry, request.now)
        {
            session.client.paused.store(true, Ordering::Relaxed);
            return Verdict::Park(Parked::Until(until));
        }
        if session.transaction.is_some() && !runs_in_multi(entry) {
            let start = out.len();
            self.queue(session, entry, request, out);
            self.capture_unrun(session, entry, request, &out[start..]);
            return Verdict::answered(request);
        }
        self.run(session, entry, request, out)
    }

    fn run(
        self: &Arc<Self>,
        session: &mut Session,
        entry: &'static Entry,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Verdict {
        // EXEC shows itself and its commands when it has run: they may still wait, or be called off.
        let monitored = self.monitor_count.load(Ordering::Relaxed) > 0;
        if monitored && !session.is_retry() && !matches!(entry.command.handler, Handler::Exec) {
            self.monitor(&session.client, session.db, entry, request.args);
        }
        session.client.last_command.store(entry.id + 1, Ordering::Relaxed);
        let start = out.len();
        let result = match entry.command.handler {
            Handler::Data(run) | Handler::Across(run, _) | Handler::Everything(run) | Handler::Walk(run) => {
                self.run_data(session, entry, run, request, out)
            }
            Handler::Control(_) => self.run_control(session, entry, request, out),
            Handler::Exec => self.run_exec(session, request, out),
            Handler::Stage => self.run_stage(session, request, out),
            Handler::Container(_) => unreachable!("admit resolves subcommands"),
        };
        self.conclude(session, entry, request, (result, start), out)
    }

    /// Counts what ran, or has the connection wait; the reply begins at `start` of `out`.
    pub(crate) fn conclude(
        self: &Arc<Self>,
        session: &mut Session,
        entry: &'static Entry,
        request: &Request<'_>,
        (result, start): (Result<Ran, Unready>, usize),
        out: &mut Vec<u8>,
    ) -> Verdict {
        match result {
            Ok(ran) => {
                if ran.failed {
                    self.spoil(session, request.args, &out[start..]);
                }
                let monitored = self.monitor_count.load(Ordering::Relaxed) > 0;
                if monitored && matches!(entry.command.handler, Handler::Exec) {
                    self.monitor(&session.client, session.db, entry, request.args);
                }
                let ended = self.finish(session, entry, request, &ran, out.len() - start);
                Verdict::Done { ticket: ran.ticket, attached: ran.attached, ended }
            }
            Err(Unready::Dead) => Verdict::Kill,
            Err(Unready::Parked(parked)) => {
                out.truncate(start);
                let pending = session.pending.get_or_insert_default();
                // WAIT was told to wait: that is not slow
                // and so was a password after a wrong one
                let waits = entry.command.flags.has(Flags::NO_AUTH);
                if !waits && !session.client.blocked.load(Ordering::Relaxed) {
                    pending.since.get_or_insert(request.now);
                }
                Verdict::Park(parked)
            }
        }
    }

    /// Counts what ran, waits for disk and room included; returns the time, read once for this and for the request that follows.
    fn finish(
        &self,
        session: &mut Session,
        entry: &'static Entry,
        request: &Request<'_>,
        ran: &Ran,
        reply_bytes: usize,
    ) -> Nanos {
        let since = session.pending.take().and_then(|pending| pending.since);
        session.ticket = session.ticket.max(ran.ticket);
        let ended = self.clock.now();
        let nanos = ended.0.saturating_sub(since.unwrap_or(request.now).0);
        let ending = if ran.failed { Ending::Failed } else { Ending::Answered };
        let timed = self.tuned.timed.load(Ordering::Relaxed).then_some(nanos);
        self.calls.lookups(ran.lookups);
        self.calls.note(request.loop_index, entry.id, timed, ending);
        // EXEC, too, which Redis leaves out: its commands are not timed one by one.
        if nanos >= self.tuned.slow_ns.load(Ordering::Relaxed) {
            let when = (self.clock.unix_us() / 1_000_000, nanos / 1_000);
            self.slowlog.add(when, entry, request.args, &session.client);
        }
        if nanos >= self.tuned.latency_ns.load(Ordering::Relaxed) {
            let event = if entry.command.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.latency.add(event, self.clock.unix_us() / 1_000_000, nanos / 1_000_000);
        }
        if let Some(recorder) = request.recorder {
            let (ticket, lookups, failed) = (ran.ticket, ran.lookups, ran.failed);
            let (reply_bytes, database, queued) = (reply_bytes + ran.attached.bytes(), session.db, false);
            let answered =
                recorder::Answered { since, ended, database, ticket, lookups, reply_bytes, failed, queued };
            recorder.note(self, entry, request, &answered);
        }
        ended
    }

    /// Records a request that was kept for EXEC, or refused before it ran.
    fn capture_unrun(&self, session: &Session, entry: &Entry, request: &Request<'_>, reply: &[u8]) {
        if let Some(recorder) = request.recorder {
            let failed = reply.starts_with(b"-");
            let (ended, database, reply_bytes) = (request.now, session.db, reply.len());
            let answered = recorder::Answered {
                ended,
                database,
                reply_bytes,
                failed,
                queued: !failed,
                ..recorder::Answered::default()
            };
            recorder.note(self, entry, request, &answered);
        }
    }

    fn run_data(
        self: &Arc<Self>,
        session: &mut Session,
        entry: &'static Entry,
        run: DataFn,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        if self.is_long(session.db, entry, request.args.len()) {
            let job = Job::new(session, entry, request, Work::Data(run));
            return Err(self.start_long(session, job));
        }
        let mut prepared = take_prepared(session);
        let one;
        let many;
        let keys: &[KeyRef<'_>] = match entry.command.keys {
            [] => &[],
            [spec] if spec.last == 0 && !matches!(entry.command.handler, Handler::Across(..)) => {
                one = [KeyRef { db: session.db, key: request.args.get(spec.first.into()) }];
                &one
            }
            _ => {
                let mut list = Vec::new();
                collect_keys(entry, session.db, request.args, &mut list);
                if let Some(mut foresight) = self.store.foresight().filter(|_| list.len() > 1) {
                    list.iter().for_each(|key| _ = foresight.add(*key));
                    foresight.prefetch();
                }
                many = list;
                &many
            }
        };
        let scope = match entry.command.handler {
            Handler::Everything(_) => Scope::Everything,
            Handler::Walk(_) => Scope::Walk,
            _ => match (keys, request.foreseen) {
                ([key], Some(foreseen)) if std::ptr::eq(key.key, request.args.get(Request::FORESEEN_ARG)) => {
                    Scope::Foreseen(key, foreseen)
                }
                _ => Scope::Keys(keys),
            },
        };
        let Caller { db, resp3, uses } = session.caller();
        let step = Step { handler: run, args: request.args, db, resp3 };
        let plan = Plan {
            scope,
            prepared: &prepared,
            moment: Some(request.moment),
            growth_bytes: entry.growth_bytes(request.bytes),
            uses,
            effects: Effects::Commit,
        };
        let mut copies = take_copies(session);
        let body = Single { step, stored: entry.command.stored };
        match self.runner().run(&body, plan, &mut copies, out) {
            Ok((answered, ticket)) => Ok(Ran::answered(answered, ticket)),
            Err((stop, wanted)) => {
                prepared.want(wanted);
                self.stopped(stop, session, (prepared, copies), keys, out)
            }
        }
    }

    fn run_control(
        self: &Arc<Self>,
        session: &mut Session,
        entry: &'static Entry,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        let Handler::Control(run) = entry.command.handler else {
            unreachable!("called for control handlers alone")
        };
        let watches = entry.command.name == "watch" && session.transaction.is_none();
        if watches && self.is_long(session.db, entry, request.args.len()) {
            let watched = std::mem::take(&mut session.watched);
            let job = Job::new(session, entry, request, Work::Watch { watched });
            return Err(self.start_long(session, job));
        }
        let start = out.len();
        let mut outbox = Outbox::new();
        let mut writer = Writer::new(out, session.resp3);
        let (now, behind, in_exec, ticket) = (request.now, request.behind, false, 0);
        let mut control =
            Control { server: self, session, now, behind, in_exec, outbox: &mut outbox, ticket };
        let outcome = run(&mut control, request.args, &mut writer);
        let ticket = control.ticket;
        self.deliver(outbox, session.ticket);
        match outcome {
            Ok(()) => Ok(Ran::plain(ticket, false)),
            Err(Failure::Wait(until)) => Err(Unready::Parked(Parked::Until(until))),
            Err(failure) => {
                out.truncate(start);
                self.stats.write_failure(failure, session.resp3, out);
                Ok(Ran::plain(ticket, true))
            }
        }
    }

    /// What a request that the store stopped does next: wait, or answer with the reason.
    pub(crate) fn stopped(
        &self,
        stop: Stop,
        session: &mut Session,
        (mut prepared, copies): (Prepared, Copies),
        keys: &[KeyRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        match stop {
            Stop::Cold => {
                let pending = session.pending.get_or_insert_default();
                pending.copies = copies;
                pending.fetches += 1;
                if pending.fetches > FETCHES_MAX {
                    self.stats.fetches_given_up.fetch_add(1, Ordering::Relaxed);
                    let failure = errors::never_ready(FETCHES_MAX);
                    self.stats.write_failure(failure, session.resp3, out);
                    return Ok(Ran::plain(self.store.newest(), true));
                }
                self.store.missing(keys, &mut prepared);
                prepared.bound_values(self.tuned.reply_bytes_max() as u64);
                self.stats.fetches.fetch_add(1, Ordering::Relaxed);
                Err(Unready::Parked(Parked::Fetch(prepared)))
            }
            Stop::Busy => {
                self.stats.waits_for_credits.fetch_add(1, Ordering::Relaxed);
                let pending = session.pending.get_or_insert_default();
                (pending.prepared, pending.copies) = (prepared, copies);
                Err(Unready::Parked(Parked::Credits))
            }
            Stop::Locked(locked) => {
                let now = self.clock.now();
                let client = session.client.id;
                let wait = self.settings.current().txn_lock_wait;
                let pending = session.pending.get_or_insert_default();
                let until = *pending.locked_until.get_or_insert(now + wait);
                if now >= until {
                    let by = self
                        .transactions
                        .as_ref()
                        .map_or_else(|| locked.by.to_string(), |it| it.owner_of(&locked.by));
                    self.stats.write_failure(errors::locked(&locked, &by), session.resp3, out);
                    return Ok(Ran::plain(self.store.newest(), true));
                }
                (pending.prepared, pending.copies) = (prepared, copies);
                self.wait_for_unlock(client);
                // The hook may have run between the refusal and the line above.
                Err(Unready::Parked(Parked::Until(until.min(now + LOCK_RETRY))))
            }
            Stop::Refused(StoreError::Journal(_)) => Err(Unready::Dead),
            Stop::Refused(error) | Stop::Damaged(error) => {
                self.stats.write_failure(errors::of_store(&error), session.resp3, out);
                Ok(Ran::plain(self.store.newest(), true))
            }
        }
    }
}

/// Prepared records of a request that parked, or none.
pub(crate) fn take_prepared(session: &mut Session) -> Prepared {
    session.pending.as_mut().map_or_else(Prepared::default, |p| std::mem::take(&mut p.prepared))
}

/// What was copied for a request that parked, or nothing.
pub(crate) fn take_copies(session: &mut Session) -> Copies {
    session.pending.as_mut().map_or_else(Copies::default, |p| std::mem::take(&mut p.copies))
}

/// A connection that waits for a key looks again by itself after this.
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// Reads from disk for one command. Each but the first means that what was read moved, or led to more: a command that
/// needs all keys while others write could go on for ever.
pub(crate) const FETCHES_MAX: u32 = 100;
