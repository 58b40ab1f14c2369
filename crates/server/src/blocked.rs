//! Clients that wait for an element: BLPOP and its like.
//!
//! ```text
//!  nothing there -> registered, in line for each key -> parked
//!  a key changed (store::Store::take_changed_waited) -> the first in line runs, on the thread that changed it, before that one's reply
//!                                                         \-- a reply: told to its connection; the next in line runs
//!                                                         |-- nothing: it stays first
//!                                                         \-- cold, busy, locked: it is woken, and runs on its own loop
//! ```
//!
//! Invariants
//!   1. For each key, who came first is served first, whatever loop it is on.
//!   2. When a reply to a command that adds an element leaves, the first of those who wait for it have been served, as far as it goes.
//!   3. A command is in the line until it is served, or gives up; both happen under the lock of the lines, so that one of them happens.
//!   4. Who waits is served in a group of the journal of its own, after the one that added the element. A client that does not wait may
//!      take the element between the two.
//!
//! Those who are served at once are bounded: if more are waiting, the next in line is woken, and serves some more before it is served itself. So
//! an entry that thousands wait for holds nobody up.
//!
//! The lock of the lines is taken before any lock of the store, and never while one is held.
//! Out of scope: who stands where (`lines`), which key has what a command wants (`handlers::blocking`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use clock::Nanos;
use resp::{Args, Writer};
use store::{KeyRef, Prepared, Scope, Watch};

use crate::call::{DataFn, Wait, text};
use crate::clients::Client;
use crate::copies::{Copies, Stored};
use crate::halted;
use crate::lines::{Lines, Waiter};
use crate::long::EFFORT_MAX;
use crate::lookup::Entry;
use crate::message::Message;
use crate::outcome::{Ran, Served};
use crate::ready::Ready;
use crate::request::Request;
use crate::run::{Effects, Plan, Single, Step, collect_keys};
use crate::server::Server;
use crate::session::Session;
use crate::transaction::Caller;
use crate::verdict::{Parked, Unready};

/// What a command that waits came to.
enum Attempt {
    Served(Served),
    Nothing,
    /// It has to run on its own loop, which can wait.
    Later,
}

/// Runs the command of `waiter`, where `key` has changed.
fn attempt(server: &Server, waiter: &Waiter, key: &[u8]) -> Attempt {
    let (Caller { db, resp3, uses }, args) = (waiter.caller, waiter.args.view(&[]));
    let mut keys = vec![KeyRef { db, key }];
    if waiter.entry.command.keys.len() > 1 {
        keys.clear();
        collect_keys(waiter.entry, db, args, &mut keys);
    }
    let step = Step { handler: waiter.handler, args, db, resp3, ready: Ready::Changed(key), in_parts: false };
    let (prepared, mut reply) = (Prepared::default(), Vec::new());
    let plan = Plan {
        scope: Scope::Keys(&keys),
        prepared: &prepared,
        moment: None,
        growth_bytes: 0,
        uses,
        effort_max: Some(EFFORT_MAX),
        effects: Effects::Commit,
    };
    let body = Single { step, stored: Stored::Nothing };
    match server.runner().run(&body, plan, &mut Copies::default(), &mut reply) {
        Ok((answered, _)) if answered.blocked.is_some() => Attempt::Nothing,
        Ok((answered, ticket)) => Attempt::Served(Served { reply, ran: Ran::answered(answered, ticket) }),
        Err(_) => Attempt::Later,
    }
}

/// A client waits no longer; those behind it may have their turn.
pub(crate) fn forget(server: &Server, client: u64) {
    let mut lines = server.blocked.lock();
    if let Some(waiter) = lines.remove(client) {
        make_due(server, &mut lines, &waiter);
    }
    serve(server, &mut lines, None);
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
    let mut lines = server.blocked.lock();
    lines.due.extend(server.store.take_changed_waited());
    serve(server, &mut lines, None);
}

/// Lets the keys that `waiter` waits or waited for be looked at, as far as they are there.
fn make_due(server: &Server, lines: &mut Lines, waiter: &Waiter) {
    if let [watch] = &waiter.watches[..] {
        lines.due.push_back((watch.db(), watch.key().into()));
        return;
    }
    let prepared = Prepared::default();
    for watches in waiter.watches.chunks(LOOKED_AT) {
        let keys: Vec<KeyRef<'_>> = watches.iter().map(|it| KeyRef { db: it.db(), key: it.key() }).collect();
        let access = server.store.access(Scope::Keys(&keys), &prepared, 0);
        // what cannot be told now is found out when it is looked at
        let may_be_there = |key: &KeyRef<'_>| {
            access.as_ref().map_or(true, |access| !matches!(access.meta(key.db, key.key), Ok(None)))
        };
        lines.due.extend(keys.iter().filter(|key| may_be_there(key)).map(|key| (key.db, key.key.into())));
    }
}

/// Serves those in line for the keys that are due, some of them: the rest is woken one after the other, and each serves more. Returns what
/// came for the client `me`, others are told.
fn serve(server: &Server, lines: &mut Lines, me: Option<u64>) -> Option<Served> {
    let mut mine = None;
    let mut left = SERVED_AT_ONCE;
    while let Some(spot) = lines.due.pop_front() {
        while let Some(waiter) = lines.first(&spot) {
            if left == 0 {
                lines.due.push_front(spot);
                server.peers.post(waiter.client, Message::Retry);
                return mine;
            }
            left -= 1;
            match attempt(server, &waiter, &spot.1) {
                Attempt::Nothing => break,
                Attempt::Later => {
                    server.peers.post(waiter.client, Message::Retry);
                    break;
                }
                Attempt::Served(served) => {
                    lines.remove(waiter.client);
                    // What it moved, others may wait for.
                    lines.due.extend(server.store.take_changed_waited().into_iter().filter(|it| *it != spot));
                    if me == Some(waiter.client) {
                        mine = Some(served);
                    } else {
                        server.peers.post(waiter.client, Message::Served(Box::new(served)));
                    }
                }
            }
        }
    }
    mine
}

/// The lines, held while a command that stands in them runs on its own loop.
pub(crate) struct Turn<'a> {
    lines: MutexGuard<'a, Lines>,
    /// The command that runs, with the arguments that it runs with.
    pub(crate) waiter: Arc<Waiter>,
}

/// What a command that waits does before it runs again.
pub(crate) enum Resumed<'a> {
    /// It runs.
    Runs(Option<Turn<'a>>),
    /// It does not: it was served, its time is over, or its reply is on its way.
    Ended(Result<Ran, Unready>),
}

/// Whether, and how, a command that can wait runs now.
pub(crate) fn resume<'a>(
    server: &'a Server,
    session: &mut Session,
    now: Nanos,
    out: &mut Vec<u8>,
) -> Resumed<'a> {
    let Some(pending) = session.pending.as_mut().filter(|pending| pending.stands_in_line) else {
        return Resumed::Runs(None);
    };
    if let Some(served) = pending.served.take() {
        return Resumed::Ended(Ok(answer(session, *served, out)));
    }
    let client = session.client.id;
    let is_over = pending.until.is_some_and(|until| until <= now);
    let mut lines = server.blocked.lock();
    // it may have been woken to go on with others
    serve(server, &mut lines, None);
    let Some(waiter) = lines.of(client) else {
        return Resumed::Ended(Err(Unready::Parked(Parked::Until(now + Duration::MAX))));
    };
    if !is_over {
        return Resumed::Runs(Some(Turn { lines, waiter }));
    }
    lines.remove(client);
    make_due(server, &mut lines, &waiter);
    serve(server, &mut lines, None);
    leave(session);
    Writer::new(out, session.resp3).null_array();
    Resumed::Ended(Ok(Ran::plain(server.store.newest(), false)))
}

/// CLIENT UNBLOCK: ends the wait of a client that stands in line; whether it did. It is given nothing from then on.
pub(crate) fn unblock(server: &Server, client: &Client, with_error: bool) -> bool {
    let mut lines = server.blocked.lock();
    let Some(waiter) = lines.remove(client.id) else { return false };
    client.blocked.store(false, Ordering::Relaxed);
    let (resp3, mut reply) = (waiter.caller.resp3, Vec::new());
    if with_error {
        server.stats.write_failure(text::UNBLOCKED.into(), resp3, &mut reply);
    } else {
        Writer::new(&mut reply, resp3).null_array();
    }
    let served = Served { reply, ran: Ran::plain(server.store.newest(), with_error) };
    server.peers.post(client.id, Message::Served(Box::new(served)));
    make_due(server, &mut lines, &waiter);
    serve(server, &mut lines, None);
    true
}

/// A command that stood in line, or not, has been answered by itself.
pub(crate) fn end(server: &Server, session: &mut Session, turn: Option<Turn<'_>>) {
    let Some(Turn { mut lines, .. }) = turn else { return };
    if let Some(waiter) = lines.remove(session.client.id) {
        make_due(server, &mut lines, &waiter);
        serve(server, &mut lines, None);
    }
    leave(session);
}

/// Has a command wait that found nothing; or answers it, if something came meanwhile.
pub(crate) fn wait(
    server: &Arc<Server>,
    session: &mut Session,
    (entry, handler): (&'static Entry, DataFn),
    request: &Request<'_>,
    (Wait { timeout, again }, turn): (Wait, Option<Turn<'_>>),
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let caller = session.caller();
    let client = session.client.id;
    let line_bytes = request.bytes + entry.command.count_keys(request.args) * WATCH_BYTES;
    // before it stands in line: what it takes there is counted when that is done
    let asked = match turn {
        None if line_bytes > LINE_BYTES_FREE => Some(server.store.ask_memory(line_bytes as u64)),
        _ => None,
    };
    if let Some(Err(stop)) = asked {
        return halted::wait(server, stop, session, Default::default(), &[], out);
    }
    let pending = session.pending.get_or_insert_default();
    let until = *pending.until.get_or_insert(request.now + timeout.unwrap_or(Duration::MAX));
    pending.stands_in_line = true;
    session.client.blocked.store(true, Ordering::Relaxed);
    if turn.is_none() {
        let mut lines = server.blocked.lock();
        let turn = lines.take_turn();
        let args = again.unwrap_or_else(|| Args::copied_whole(request.args));
        let watches = watches(server, entry, caller.db, args.view(&[]));
        let waiter = Waiter { client, turn, entry, handler, args, caller, watches };
        pending.line_bytes = line_bytes as u64;
        make_due(server, &mut lines, &waiter);
        lines.add(waiter);
        if let Some(served) = serve(server, &mut lines, Some(client)) {
            return Ok(answer(session, served, out));
        }
    }
    Err(Unready::Parked(Parked::Until(until)))
}

/// The keys that a command waits for, each once: those of its first specification.
fn watches(server: &Arc<Server>, entry: &Entry, db: u16, args: resp::ArgsView<'_>) -> Vec<Watch> {
    let mut keys = Vec::new();
    collect_keys(entry, db, args, &mut keys);
    if entry.command.keys.len() > 1 {
        keys.truncate(1);
    }
    keys.sort_unstable_by_key(|key| key.key);
    keys.dedup();
    keys.iter().map(|key| server.store.wait_for(key.db, key.key)).collect()
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
/// Keys that are looked at under one access.
const LOOKED_AT: usize = 64;
/// What a key that is waited for takes: an entry of its stripe, a [`Watch`], its line, and its places in lists of keys.
const WATCH_BYTES: usize = 700;
/// A command that takes no more in line need not ask for it.
const LINE_BYTES_FREE: usize = 64 << 10;
