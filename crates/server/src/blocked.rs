//! Clients that wait for an element: BLPOP and its like.
//!
//! ```text
//!  nothing there -> in line for each key -> parked
//!                   (for many keys: on a thread beside the loops, some keys at a time)
//!  a key changed (store::Store::take_changed_waited) -> a pass along its line, on the thread that changed it, before that one's reply
//!                                                         \-- a reply: told to its connection; the next in line runs
//!                                                         |-- nothing: it goes on waiting; the next runs that may find something
//!                                                         \-- cold, busy, locked: it is woken, and runs on its own loop; those behind it wait for that
//! ```
//!
//! Invariants
//!   1. For each key, who came first is served first, whatever loop it is on.
//!   2. When a reply to a command that adds an element leaves, the first of those who wait for it have been served, as far as it goes.
//!   3. A command is in the line until it is served, or gives up; both happen under the lock of the lines, so that one of them happens.
//!   4. Who waits is served in a group of the journal of its own, after the one that added the element. A client that does not wait may
//!      take the element between the two.
//!   5. A command that gets in line key by key stands first where it looks first: what it is given is what it would have found at that moment.
//!
//! Those who are served at once are bounded: if more are waiting, a connection of one of them goes on in its next turn, and so on. So
//! an entry that thousands wait for holds nobody up.
//!
//! The lock of the lines is taken before any lock of the store, and never while one is held.
//! Out of scope: who stands where (`lines`), which key has what a command wants (`handlers::blocking`).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use clock::Nanos;
use commands::call::{DataFn, Wait, text};
use commands::copies::{Copies, Stored};
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::{Args, Writer};
use store::{ChangedWaited, KeyRef, Prepared, Scope, Stop};

use crate::clients::Client;
use crate::halted;
use crate::lines::{Lines, Spot, Waiter};
use crate::long::EFFORT_MAX;
use crate::long::job::{InLine, Job, Work};
use crate::look::Met;
use crate::message::Message;
use crate::outcome::{Ran, Served, Unready};
use crate::request::Request;
use crate::run::{Answered, Effects, Plan, Single, Step, Stopped, Unfinished, collect_keys};
use crate::server::Server;
use crate::session::Session;
use crate::transaction::Caller;

/// What a command that waits came to.
enum Attempt {
    Served(Served),
    /// When there will be something without a change, if that is known.
    Nothing(Option<Duration>),
    /// It has to run on its own loop, which can wait.
    Later,
}

/// The lines, locked. Those who have left many of them meanwhile are taken out of them afterwards, beside the loops.
struct Locked<'a> {
    server: &'a Server,
    lines: Option<MutexGuard<'a, Lines>>,
}

impl<'a> Locked<'a> {
    fn new(server: &'a Server) -> Self {
        Self { server, lines: Some(server.blocked.lock()) }
    }

    fn after_others(server: &'a Server) -> Self {
        Self { server, lines: Some(server.blocked.lock_after_others()) }
    }
}

impl Deref for Locked<'_> {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        self.lines.as_ref().expect("locked until it is dropped")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Lines {
        self.lines.as_mut().expect("locked until it is dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let left = self.take_left();
        self.lines = None;
        if !left.is_empty() {
            let blocked = Arc::clone(&self.server.blocked);
            self.server.long.call_in_background(Box::new(move || blocked.take_out(left)));
        }
    }
}

/// The keys that a command needs to look at `key`.
pub(crate) fn keys_to_look_at<'a>(
    entry: &Entry,
    args: resp::ArgsView<'a>,
    db: u16,
    key: &'a [u8],
) -> Vec<KeyRef<'a>> {
    let mut keys = Vec::new();
    if entry.command.keys.len() > 1 {
        collect_keys(entry, db, args, &mut keys);
    } else {
        keys.push(KeyRef { db, key });
    }
    keys
}

/// Runs the command of `waiter` on `key`, one of `keys`.
fn look(
    server: &Server,
    waiter: &Waiter,
    key: &[u8],
    keys: &[KeyRef<'_>],
    prepared: &Prepared,
    copies: &mut Copies,
    out: &mut Vec<u8>,
) -> Result<(Answered, ticket::Ticket), Stopped> {
    let Caller { db, resp3, origin } = waiter.caller;
    let (handler, args) = (waiter.handler, waiter.args.view(&[]));
    let (entry, ready) = (Some(waiter.entry), Ready::Changed(key));
    let step = Step { entry, handler, args, db, resp3, ready, in_parts: false };
    let plan = Plan {
        scope: Scope::Keys(keys),
        prepared,
        moment: None,
        growth_bytes: 0,
        origin,
        effort_max: Some(EFFORT_MAX),
        effects: Effects::Commit,
    };
    let body = Single { step, stored: Stored::Nothing };
    server.runner().run(&body, plan, copies, out).map_err(Unfinished::into_stopped)
}

/// Runs the command of `waiter`, where `key` has changed.
fn attempt(server: &Server, waiter: &Waiter, key: &[u8]) -> Attempt {
    let (prepared, mut reply) = (Prepared::default(), Vec::new());
    let keys = keys_to_look_at(waiter.entry, waiter.args.view(&[]), waiter.caller.db, key);
    match look(server, waiter, key, &keys, &prepared, &mut Copies::default(), &mut reply) {
        Ok((Answered { blocked: Some(wait), .. }, _)) => Attempt::Nothing(wait.ripe_in),
        Ok((answered, ticket)) => Attempt::Served(Served { reply, ran: Ran::answered(answered, ticket) }),
        Err(_) => Attempt::Later,
    }
}

/// A client waits no longer; those behind it may have their turn.
pub(crate) fn forget(server: &Server, client: u64) {
    let mut lines = Locked::new(server);
    lines.leave(client);
    serve(server, &mut lines, None);
}

/// The request of a connection is refused, which may have waited before: it waits no longer.
pub(crate) fn give_up(server: &Server, session: &mut Session) {
    let Some(pending) = session.pending.take() else { return };
    let client = &session.client;
    client.blocked.store(false, Ordering::Relaxed);
    server.waits.forget(client.id);
    if pending.stands_in_line {
        forget(server, client.id);
    }
}

/// Serves those who wait for keys that changed: some of them, if they are many. To be called after what may have changed some, before its
/// reply leaves.
#[inline]
pub(crate) fn serve_changed(server: &Server) {
    if server.store.has_changed_waited() {
        serve_those(server);
    }
}

#[cold]
fn serve_those(server: &Server) {
    // Who finds none waits here for those who took some.
    let mut lines = Locked::new(server);
    serve(server, &mut lines, None);
}

/// Goes on serving those who wait, in a turn of the connection of `client`.
pub(crate) fn serve_more(server: &Server, client: u64) {
    let mut lines = Locked::new(server);
    lines.carrier.take_if(|carrier| *carrier == client);
    serve(server, &mut lines, None);
}

/// Notes the keys that have changed.
fn note_changed(server: &Server, lines: &mut Lines, but: Option<&Spot>) {
    if server.store.has_changed_waited() {
        let ChangedWaited { keys, databases } = server.store.take_changed_waited();
        keys.into_iter().filter(|spot| but != Some(spot)).for_each(|spot| lines.note(spot));
        databases.into_iter().for_each(|db| lines.note_database(db));
    }
}

/// Serves those in line for the keys that are due, some of them: then a connection of those who are left goes on. Returns what
/// came for the client `me`, others are told.
fn serve(server: &Server, lines: &mut Lines, me: Option<u64>) -> Option<Served> {
    note_changed(server, lines, None);
    let (mut mine, mut left) = (None, SERVED_AT_ONCE);
    let until = server.clock.now() + SERVING_MAX;
    'due: while let Some(mut pass) = lines.take_due() {
        while let Some(waiter) = lines.next(&pass) {
            let client = waiter.client;
            if left == 0 || (left < SERVED_AT_ONCE && server.clock.now() >= until) {
                lines.put_back(pass);
                if lines.carrier.is_none() {
                    lines.carrier = Some(client);
                    server.peers.post(client, Message::Serve);
                }
                return mine;
            }
            if lines.is_away(client) {
                lines.hold(client, pass);
                continue 'due;
            }
            left -= 1;
            match attempt(server, &waiter, &pass.spot.1) {
                Attempt::Nothing(ripe_in) => {
                    let at = ripe_in.map(|ripe_in| server.clock.now() + ripe_in);
                    if lines.ripen(client, &pass.spot, at) && me != Some(client) {
                        server.peers.post(client, Message::Retry);
                    }
                    pass.pass_by(&waiter);
                }
                Attempt::Later => {
                    lines.hold(client, pass);
                    server.peers.post(client, Message::Retry);
                    continue 'due;
                }
                Attempt::Served(served) => {
                    lines.leave(client);
                    if me == Some(client) {
                        mine = Some(served);
                    } else {
                        server.peers.post(client, Message::Served(Box::new(served)));
                    }
                }
            }
            // What it moved, others may wait for; what it took itself only they are told of who were passed by.
            note_changed(server, lines, Some(&pass.spot).filter(|_| !pass.has_passed_by()));
        }
    }
    mine
}

/// When a command that stands in line has to be woken, if nothing changes.
fn wakes_at(lines: &Lines, client: u64, until: Nanos) -> Unready {
    Unready::Until(lines.next_ripe(client).map_or(until, |ripe| ripe.min(until)))
}

/// Goes on with a command that stands in line and was woken: it was served, or its time is over, or it looks at a key on its own loop.
pub(crate) fn go_on(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let client = session.client.id;
    let pending = session.pending.as_mut().expect("it parked");
    if let Some(served) = pending.served.take() {
        return Ok(answer(session, *served, out));
    }
    let until = pending.until.unwrap_or(request.now + Duration::MAX);
    let mut lines = Locked::new(server);
    lines.harvest(client, request.now);
    if let Some(served) = serve(server, &mut lines, Some(client)) {
        return Ok(answer(session, served, out));
    }
    let Some(waiter) = lines.of(client).cloned() else {
        // its reply is on its way
        return Err(Unready::Until(request.now + Duration::MAX));
    };
    if until <= request.now {
        lines.leave(client);
        serve(server, &mut lines, None);
        leave(session);
        Writer::new(out, session.resp3).null_array();
        return Ok(Ran::plain(server.store.newest(), false));
    }
    let Some(spot) = lines.held(client).cloned() else {
        return Err(wakes_at(&lines, client, until));
    };
    let (mut prepared, mut copies) = (session.take_prepared(), session.take_copies());
    let keys = keys_to_look_at(entry, waiter.args.view(&[]), spot.0, &spot.1);
    match look(server, &waiter, &spot.1, &keys, &prepared, &mut copies, out) {
        Ok((Answered { blocked: Some(wait), .. }, _)) => {
            match pass_on(server, &mut lines, client, &spot, wait.ripe_in) {
                Some(served) => Ok(answer(session, served, out)),
                None => Err(wakes_at(&lines, client, until)),
            }
        }
        Ok((answered, ticket)) => {
            lines.leave(client);
            serve(server, &mut lines, None);
            leave(session);
            Ok(Ran::answered(answered, ticket))
        }
        Err((Stop::Long, _)) => {
            lines.set_away(client, true);
            let request = Request { args: waiter.args.view(&[]), foreseen: None, ..*request };
            let job = Job::new(session, entry, &request, Work::Data(waiter.handler));
            Err(Unready::Beside(Box::new(Job { prepared, copies, looks_at: Some(spot), ..*job })))
        }
        Err((stop, wanted)) => {
            prepared.want(wanted);
            let result = halted::wait(server, stop, session, prepared, copies, &keys, out);
            if result.is_ok() {
                lines.leave(client);
                serve(server, &mut lines, None);
                leave(session);
            }
            result
        }
    }
}

/// A command has looked at a key on its own loop, or beside it, and found nothing: those behind it have their turn.
fn pass_on(
    server: &Server,
    lines: &mut Lines,
    client: u64,
    spot: &Spot,
    ripe_in: Option<Duration>,
) -> Option<Served> {
    lines.ripen(client, spot, ripe_in.map(|ripe_in| server.clock.now() + ripe_in));
    let has_more = lines.pass_on(client);
    let served = serve(server, lines, Some(client));
    if served.is_none() && has_more {
        server.peers.post(client, Message::Retry);
    }
    served
}

/// What a command in line comes to that is back from beside the loops: it has found nothing there.
pub(crate) fn has_found_nothing(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    spot: Option<Spot>,
    wait: &Wait,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let client = session.client.id;
    if let Some(spot) = spot {
        let mut lines = Locked::new(server);
        lines.set_away(client, false);
        if let Some(served) = pass_on(server, &mut lines, client, &spot, wait.ripe_in) {
            return Ok(answer(session, served, out));
        }
    }
    go_on(server, session, entry, request, out)
}

/// The same, when it has an answer, or has to look once more.
pub(crate) fn is_back(server: &Server, session: &mut Session, is_answered: bool) {
    let mut lines = Locked::new(server);
    lines.set_away(session.client.id, false);
    if is_answered {
        lines.leave(session.client.id);
        serve(server, &mut lines, None);
        leave(session);
    }
}

/// CLIENT UNBLOCK: ends the wait of a client that stands in line, or looks beside the loops for what it wants; whether it did. It is given nothing
/// from then on. `None`: that is not known yet.
pub(crate) fn unblock(server: &Server, client: &Client, with_error: bool) -> Option<bool> {
    let mut lines = Locked::new(server);
    match client.look.unblock(with_error) {
        Met::Ended => {
            client.blocked.store(false, Ordering::Relaxed);
            return Some(true);
        }
        Met::Found => return None,
        Met::Nothing => {}
    }
    if lines.is_away(client.id) {
        // unblocked before, or its loop hears soon what it has come to
        return if client.blocked.load(Ordering::Relaxed) { None } else { Some(false) };
    }
    let Some(waiter) = lines.leave(client.id) else { return Some(false) };
    client.blocked.store(false, Ordering::Relaxed);
    let mut reply = Vec::new();
    write_unblocked(server, waiter.caller.resp3, with_error, &mut reply);
    let served = Served { reply, ran: Ran::plain(server.store.newest(), with_error) };
    server.peers.post(client.id, Message::Served(Box::new(served)));
    serve(server, &mut lines, None);
    Some(true)
}

fn write_unblocked(server: &Server, resp3: bool, with_error: bool, out: &mut Vec<u8>) {
    if with_error {
        server.stats.write_failure(text::UNBLOCKED.into(), resp3, out);
    } else {
        Writer::new(out, resp3).null_array();
    }
}

/// The command of `client` is back from a look beside the loops. If CLIENT UNBLOCK has ended that, it leaves its lines, if it stands there; whether it is
/// answered with an error then.
pub(crate) fn end_look(server: &Server, client: &Client) -> Option<bool> {
    let mut lines = Locked::new(server);
    let with_error = client.look.end()?;
    lines.leave(client.id);
    serve(server, &mut lines, None);
    Some(with_error)
}

/// The answer to a command whose look has been unblocked.
pub(crate) fn answer_unblocked(
    server: &Server,
    session: &mut Session,
    with_error: bool,
    out: &mut Vec<u8>,
) -> Ran {
    leave(session);
    write_unblocked(server, session.resp3, with_error, out);
    Ran::plain(server.store.newest(), with_error)
}

/// What a command takes that stands in line for all its keys.
fn line_bytes(entry: &Entry, request_bytes: usize, args: resp::ArgsView<'_>) -> u64 {
    (request_bytes + entry.command.count_keys(args) * WATCH_BYTES) as u64
}

/// The keys that a command waits for: those of its first specification.
fn keys_to_wait_for<'a>(entry: &Entry, db: u16, args: resp::ArgsView<'a>) -> Vec<KeyRef<'a>> {
    let mut keys = Vec::new();
    collect_keys(entry, db, args, &mut keys);
    if entry.command.keys.len() > 1 {
        keys.truncate(1);
    }
    keys
}

/// Puts `waiter` in line for some keys, and serves it if one of them has something.
fn stand_for(
    server: &Server,
    lines: &mut Lines,
    waiter: &Waiter,
    keys: &[KeyRef<'_>],
    me: Option<u64>,
) -> Option<Served> {
    for key in keys {
        lines.add(waiter, *key, || server.store.wait_for(key.db, key.key));
    }
    let prepared = Prepared::default();
    for keys in keys.chunks(LOOKED_AT) {
        let access = server.store.access(Scope::Keys(keys), &prepared, 0);
        // what cannot be told now is found out when it is looked at
        let may_be_there = |key: &KeyRef<'_>| {
            access.as_ref().map_or(true, |access| !matches!(access.meta(key.db, key.key), Ok(None)))
        };
        let there: Vec<_> = keys.iter().filter(|key| may_be_there(key)).collect();
        drop(access);
        there.into_iter().for_each(|key| lines.note((key.db, key.key.into())));
    }
    serve(server, lines, me)
}

/// Has a command wait that found nothing; or answers it, if something came meanwhile.
pub(crate) fn wait(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    handler: DataFn,
    request: &Request<'_>,
    Wait { timeout, wants, again, .. }: Wait,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let (caller, client) = (session.caller(), session.client.id);
    let line_bytes = line_bytes(entry, request.bytes, request.args);
    // before it stands in line: what it takes there is counted when that is done
    if line_bytes > LINE_BYTES_FREE
        && let Err(stop) = server.store.ask_memory(line_bytes)
    {
        return halted::wait(server, stop, session, Prepared::default(), Copies::default(), &[], out);
    }
    let until = begin_wait(session, request.now, timeout, line_bytes);
    let mut lines = Locked::new(server);
    let args = Arc::new(again.unwrap_or_else(|| Args::copied_whole(request.args)));
    let turn = lines.take_turn();
    let waiter = Arc::new(Waiter { client, turn, entry, handler, args, caller, wants });
    lines.begin(&waiter);
    let keys = keys_to_wait_for(entry, caller.db, waiter.args.view(&[]));
    if let Some(served) = stand_for(server, &mut lines, &waiter, &keys, Some(client)) {
        return Ok(answer(session, served, out));
    }
    Err(wakes_at(&lines, client, until))
}

/// Shows that a command waits from now on; returns until when.
fn begin_wait(session: &mut Session, now: Nanos, timeout: Option<Duration>, line_bytes: u64) -> Nanos {
    let pending = session.pending.get_or_insert_default();
    (pending.stands_in_line, pending.line_bytes) = (true, line_bytes);
    session.client.blocked.store(true, Ordering::Relaxed);
    *pending.until.get_or_insert(now + timeout.unwrap_or(Duration::MAX))
}

/// Has the command of `job` wait that found nothing. On a thread beside the loops: it gets in line some keys at a time, and is served as soon as
/// one of them has something.
///
/// # Errors
/// There is no memory for that.
pub(crate) fn stand(
    server: &Arc<Server>,
    job: &Job,
    handler: DataFn,
    Wait { timeout, wants, again, .. }: Wait,
) -> Result<InLine, Stop> {
    let Job { client, entry, caller, .. } = *job;
    let bytes = line_bytes(entry, job.bytes, job.args.view(&[]));
    let in_line = InLine { timeout, bytes, asked: server.store.ask_memory(bytes)? };
    let args = again.map_or_else(|| Arc::clone(&job.args), Arc::new);
    let keys = keys_to_wait_for(entry, caller.db, args.view(&[]));
    let mut lines = Locked::new(server);
    // whoever ends a connection takes it from the list before it has it forgotten here
    if server.clients.find(client).is_none() || job.looker.as_ref().is_some_and(|it| !it.look.stand()) {
        return Ok(in_line);
    }
    let turn = lines.take_turn();
    let args = Arc::clone(&args);
    let waiter = Arc::new(Waiter { client, turn, entry, handler, args, caller, wants });
    lines.begin(&waiter);
    drop(lines);
    for some in keys.chunks(LOOKED_AT) {
        let mut lines = Locked::after_others(server);
        if !lines.stands(&waiter) {
            break;
        }
        stand_for(server, &mut lines, &waiter, some, None);
    }
    Ok(in_line)
}

/// The same on its loop, when it stands there.
pub(crate) fn has_stood(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    InLine { timeout, bytes, asked: _asked }: InLine,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    // to be told to wait is not slow
    let since = session.pending.as_mut().and_then(|pending| pending.since.take());
    begin_wait(session, since.unwrap_or(request.now), timeout, bytes);
    go_on(server, session, entry, request, out)
}

fn answer(session: &mut Session, Served { reply, mut ran }: Served, out: &mut Vec<u8>) -> Ran {
    leave(session);
    ran.attached.make_room(&[(0, out.len())]);
    out.extend_from_slice(&reply);
    ran
}

fn leave(session: &mut Session) {
    session.client.blocked.store(false, Ordering::Relaxed);
    if let Some(pending) = &mut session.pending {
        (pending.stands_in_line, pending.line_bytes) = (false, 0);
    }
}

/// So many are served before others have their turn.
const SERVED_AT_ONCE: usize = 64;
/// Or those that are served in this time.
const SERVING_MAX: Duration = Duration::from_micros(500);
/// Keys that are looked at under one access.
const LOOKED_AT: usize = 64;
/// What a key that is waited for takes: an entry of its stripe, a [`Watch`], its line, and its places in lists of keys.
const WATCH_BYTES: usize = 700;
/// A command that takes no more in line need not ask for it.
const LINE_BYTES_FREE: u64 = 64 << 10;
