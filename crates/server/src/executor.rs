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

use clock::Nanos;
use commands::call::{DataFn, Failure};
use commands::command::{Flags, Kind};
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::{ArgsView, Writer};
use script::is_long_source;
use store::{KeyRef, Scope, Stop};
use ticket::Ticket;

use crate::admission::{admit, paused_until, queue, runs_in_multi, writes};
use crate::blocked;
use crate::calls::Ending;
use crate::capture::recorder;
use crate::control::{Control, ReplyMemory};
use crate::errors;
use crate::eval;
use crate::exec;
use crate::halted;
use crate::handlers::tx;
use crate::long::EFFORT_MAX;
use crate::long::beside;
use crate::long::job::{Given, Job, Work};
use crate::outcome::{Ran, Replied, Unready};
use crate::request::{Request, Series};
use crate::run::{Answered, Effects, Plan, Single, Step, Unfinished, collect_keys};
use crate::server::Server;
use crate::session::Session;
use crate::subscriptions::Outbox;
use crate::table::{self, row::ControlFn, row::Handler};
use crate::transaction::Caller;
use crate::tx::stage;

/// Runs `request` or queues it, and appends the reply to `out`.
pub(crate) fn execute(
    server: &Arc<Server>,
    session: &mut Session,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Replied, Unready> {
    let entry = match admit(server, session, request) {
        Ok(entry) => entry,
        // what has happened is told, whatever would refuse it now
        Err((Some(entry), _)) if session.is_served() => entry,
        Err((entry, failure)) => {
            blocked::give_up(server, session);
            let failure = match entry.map(|entry| entry.command.kind) {
                Some(Kind::Exec) => {
                    session.end_transaction(&server.long);
                    errors::exec_refused(failure)
                }
                _ => failure,
            };
            if let Some(transaction) = &mut session.transaction {
                transaction.aborted = true;
            }
            if let Some(entry) = entry {
                server.calls.note(request.loop_index, entry.id, None, Ending::Rejected);
            }
            let start = out.len();
            server.stats.write_failure(failure, session.resp3, out);
            tx::spoil(server, session, request.args, &out[start..]);
            if let Some(entry) = entry {
                capture_unrun(server, session, entry, request, &out[start..]);
            }
            return Ok(Replied::at_once(request));
        }
    };
    // and whoever pauses what is to happen
    if server.pause.is_set()
        && !session.is_served()
        && let Some(until) = paused_until(&server.pause, session, entry, request.now)
    {
        session.client.paused.store(true, Ordering::Relaxed);
        return Err(Unready::Until(until));
    }
    if let Some(until) = server.notices.write_at(request.now)
        && !session.is_served()
        && waits_to_tell(session, entry)
    {
        return Err(Unready::Until(until));
    }
    if session.transaction.is_some() && !runs_in_multi(entry) {
        let start = out.len();
        queue(server, session, entry, request, out);
        capture_unrun(server, session, entry, request, &out[start..]);
        return Ok(Replied::at_once(request));
    }
    run(server, session, entry, request, out)
}

/// Whether a command waits while too much is to be told of changes: it would add to that.
fn waits_to_tell(session: &Session, entry: &Entry) -> bool {
    let is_kept = session.transaction.is_some() && !runs_in_multi(entry);
    let queue = session.transaction.as_ref().map_or(&[][..], |transaction| &transaction.queue);
    !is_kept && writes(entry, queue)
}

fn run(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Replied, Unready> {
    // EXEC shows itself and its commands when it has run: they may still wait, or be called off.
    let monitored = !server.monitors.is_empty();
    if monitored && !session.is_retry() && !matches!(entry.command.kind, Kind::Exec) {
        server.monitors.show(&session.client, session.db, entry, request.args);
    }
    session.client.last_command.store(entry.id + 1, Ordering::Relaxed);
    let start = out.len();
    let result = match table::handler(entry) {
        Handler::Data(run)
        | Handler::Across(run, _)
        | Handler::Reaching(run)
        | Handler::Everything(run)
        | Handler::Walk(run) => run_data(server, session, entry, run, request, out),
        Handler::Control(run) => run_control(server, session, entry, run, request, out),
        Handler::Script(invoked) => eval::run(server, session, entry, invoked, request, out),
        Handler::Exec => exec::run(server, session, entry, request, out),
        Handler::Stage => stage::run(server, session, entry, request, out),
        Handler::Container(_) => unreachable!("admit resolves subcommands"),
    };
    conclude(server, session, entry, &Series::of_one(request, &[request.args]), result, start, out)
}

/// Counts what ran, or has the connection wait; the reply begins at `start` of `out`.
pub(crate) fn conclude(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    series: &Series<'_>,
    result: Result<Ran, Unready>,
    start: usize,
    out: &mut Vec<u8>,
) -> Result<Replied, Unready> {
    let request = &series.first;
    match result {
        Ok(ran) => {
            blocked::serve_changed(server);
            if ran.failed {
                tx::spoil(server, session, request.args, &out[start..]);
            }
            let monitored = !server.monitors.is_empty();
            if monitored && matches!(entry.command.kind, Kind::Exec) {
                server.monitors.show(&session.client, session.db, entry, request.args);
            }
            let ended = finish(server, session, entry, series, &ran, out.len() - start);
            if let Some(rest) = ran.chunked {
                server.stats.chunked_replies.fetch_add(1, Ordering::Relaxed);
                session.chunked = Some(rest.waiting_for(ran.ticket));
            }
            Ok(Replied { ticket: ran.ticket, attached: ran.attached, ended })
        }
        Err(Unready::Dead) => Err(Unready::Dead),
        Err(unready) => {
            out.truncate(start);
            let unready = match unready {
                Unready::Beside(job) => {
                    beside::start(server, session, job);
                    Unready::Away
                }
                waits => waits,
            };
            note_wait(session, entry, request);
            Err(unready)
        }
    }
}

/// The connection waits from now on, if it did not before.
fn note_wait(session: &mut Session, entry: &Entry, request: &Request<'_>) {
    let pending = session.pending.get_or_insert_default();
    // WAIT was told to wait: that is not slow
    // and so was a password after a wrong one
    let waits = entry.command.flags.has(Flags::NO_AUTH);
    if !waits && !session.client.blocked.load(Ordering::Relaxed) {
        pending.since.get_or_insert(request.now);
    }
}

/// Counts what ran, waits for disk and room included; returns the time, read once for this and for the request that follows.
fn finish(
    server: &Server,
    session: &mut Session,
    entry: &'static Entry,
    Series { first: request, requests }: &Series<'_>,
    ran: &Ran,
    reply_bytes: usize,
) -> Nanos {
    let since = session.pending.take().and_then(|pending| pending.since);
    session.ticket = session.ticket.and(ran.ticket);
    if let Some(tracking) = &mut session.tracking
        && session.transaction.is_none()
        && !entry.command.name.starts_with("client|")
    {
        tracking.caching = false;
    }
    let ended = server.clock.now();
    let nanos = ended.0.saturating_sub(since.unwrap_or(request.now).0) / requests.len() as u64;
    let ending = if ran.failed { Ending::Failed } else { Ending::Answered };
    let timed = server.tuned.timed.load(Ordering::Relaxed).then_some(nanos);
    server.calls.lookups(ran.lookups);
    requests.iter().for_each(|_| server.calls.note(request.loop_index, entry.id, timed, ending));
    // EXEC, too, which Redis leaves out: its commands are not timed one by one.
    if nanos >= server.tuned.slow_ns.load(Ordering::Relaxed) {
        let (unix_s, micros) = (server.clock.unix_us() / 1_000_000, nanos / 1_000);
        requests.iter().for_each(|args| server.slowlog.add(unix_s, micros, entry, *args, &session.client));
    }
    if nanos >= server.tuned.latency_ns.load(Ordering::Relaxed) {
        let event = if entry.command.flags.has(Flags::FAST) { "fast-command" } else { "command" };
        server.latency.add(event, server.clock.unix_us() / 1_000_000, nanos / 1_000_000);
    }
    if let Some(recorder) = request.recorder {
        let (ticket, lookups, failed) = (ran.ticket, ran.lookups, ran.failed);
        let (reply_bytes, database, queued) = (reply_bytes + ran.attached.bytes(), session.db, false);
        let answered =
            recorder::Answered { since, ended, database, ticket, lookups, reply_bytes, failed, queued };
        recorder.note(&server.store, entry, request.asked(), &answered);
    }
    ended
}

/// Records a request that was kept for EXEC, or refused before it ran.
fn capture_unrun(server: &Server, session: &Session, entry: &Entry, request: &Request<'_>, reply: &[u8]) {
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
        recorder.note(&server.store, entry, request.asked(), &answered);
    }
}

fn run_data(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    run: DataFn,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let blocks = entry.command.flags.has(Flags::BLOCKING);
    if blocks && session.pending.as_ref().is_some_and(|pending| pending.stands_in_line) {
        return blocked::go_on(server, session, entry, request, out);
    }
    if server.long.is_long(session.db, entry, request.args) {
        return Err(Unready::Beside(Job::new(session, entry, request, Work::Data(run))));
    }
    let mut prepared = session.take_prepared();
    let one;
    let many;
    let keys: &[KeyRef<'_>] = match entry.command.keys {
        [] => &[],
        [spec] if spec.is_one() && !matches!(entry.command.kind, Kind::Across(_)) => {
            one = [KeyRef { db: session.db, key: request.args.get(spec.first.into()) }];
            &one
        }
        _ => {
            many = keys_near(server, session.db, entry, request.args);
            &many
        }
    };
    let scope = scope_of(entry, request, keys);
    let Caller { db, resp3, origin } = session.caller();
    let ready = if blocks { Ready::Waits } else { Ready::AnswersAtOnce };
    let (args, in_parts) = (request.args, session.takes_parts());
    let step = Step { entry: Some(entry), handler: run, args, db, resp3, ready, in_parts };
    let plan = Plan {
        scope,
        prepared: &prepared,
        moment: Some(request.moment),
        growth_bytes: entry.growth_bytes(request.bytes),
        origin,
        effort_max: Some(EFFORT_MAX),
        effects: Effects::Commit,
    };
    let (mut copies, body) = (session.take_copies(), Single { step, stored: entry.command.stored });
    match server.runner().run(&body, plan, &mut copies, out).map_err(Unfinished::into_stopped) {
        Ok((Answered { blocked: Some(wait), .. }, _)) => {
            blocked::wait(server, session, entry, run, request, *wait, out)
        }
        Ok((answered, ticket)) => Ok(Ran::answered(answered, ticket)),
        Err((Stop::Long, _)) => {
            let job = Job::new(session, entry, request, Work::Data(run));
            Err(Unready::Beside(Box::new(Job { prepared, copies, ..*job })))
        }
        Err((stop, wanted)) => {
            prepared.want(wanted);
            halted::wait(server, stop, session, prepared, copies, keys, out)
        }
    }
}

/// The keys of a command, which are looked up soon.
fn keys_near<'a>(server: &Server, db: u16, entry: &Entry, args: ArgsView<'a>) -> Vec<KeyRef<'a>> {
    let mut keys = Vec::new();
    collect_keys(entry, db, args, &mut keys);
    if let Some(mut foresight) = server.store.foresight().filter(|_| keys.len() > 1) {
        keys.iter().for_each(|key| _ = foresight.add(*key));
        foresight.prefetch();
    }
    keys
}

fn scope_of<'a>(entry: &Entry, request: &Request<'_>, keys: &'a [KeyRef<'a>]) -> Scope<'a> {
    match (entry.command.kind, keys, request.foreseen) {
        (Kind::Everything, ..) => Scope::Everything,
        (Kind::Walk, ..) => Scope::Walk,
        (_, [key], Some(foreseen)) if std::ptr::eq(key.key, request.args.get(Request::FORESEEN_ARG)) => {
            Scope::Foreseen(key, foreseen)
        }
        _ => Scope::Keys(keys),
    }
}

fn run_control(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    run: ControlFn,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let watches = entry.command.name == "watch" && session.transaction.is_none();
    if watches && server.long.is_long(session.db, entry, request.args) {
        let watched = session.lend_watched();
        return Err(Unready::Beside(Job::new(session, entry, request, Work::Watch { watched })));
    }
    if let Some(given) = runs_beside(entry, request.args) {
        return Err(Unready::Beside(Job::new(session, entry, request, Work::Given(given))));
    }
    let start = out.len();
    let (mut outbox, memory) = (Outbox::new(), &mut ReplyMemory::default());
    let mut writer = Writer::new(out, session.resp3);
    let (now, behind, in_exec, ticket) = (request.now, request.behind, false, Ticket::NOTHING);
    let (outbox_of, ahead) = (&mut outbox, None);
    let mut control =
        Control { server, session, now, behind, in_exec, outbox: outbox_of, ticket, memory, ahead };
    let outcome = run(&mut control, request.args, &mut writer);
    let ticket = control.ticket;
    server.pubsub.deliver(outbox, session.ticket);
    match outcome {
        Ok(()) => Ok(Ran::plain(ticket, false)),
        Err(Failure::Wait(until)) => Err(Unready::Until(until)),
        Err(failure) => {
            out.truncate(start);
            server.stats.write_failure(failure, session.resp3, out);
            Ok(Ran::plain(ticket, true))
        }
    }
}

/// Which control command runs beside its loop with `args`, where others would wait for it.
fn runs_beside(entry: &Entry, args: ArgsView<'_>) -> Option<Given> {
    let is_long = || args.iter().any(|arg| is_long_source(arg.len()));
    let has_many = || args.len() as u64 > EFFORT_MAX;
    match entry.command.name {
        "script|load" if is_long() => Some(Given::Script),
        "script|exists" if has_many() => Some(Given::Exists),
        "function|load" if is_long() => Some(Given::Library),
        // however many libraries: each may run its code
        "function|restore" => Some(Given::Libraries),
        "command|getkeys" if has_many() => Some(Given::Keys),
        "command|getkeysandflags" if has_many() => Some(Given::KeysAndFlags),
        _ => None,
    }
}
