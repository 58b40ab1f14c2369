//! What stands before a request's run: its row, whether the connection may run it now, and the queue of MULTI.
//!
//! Invariants
//!   1. The order of refusals is that of Redis: name, number of arguments, password, rights, MULTI, subscriptions, pause.
//!   2. What MULTI queues is admitted as if it ran, and is bounded by `transaction.max`.
//!
//! Out of scope: what runs (`executor`, `exec`).

use std::sync::atomic::Ordering;

use clock::Nanos;
use commands::call::Failure;
use commands::command::{Flags, Kind};
use commands::lookup::Entry;
use resp::Args;
use supervisor::Hold;

use crate::acl::AclContext;
use crate::errors;
use crate::pause::Pause;
use crate::permit;
use crate::request::Request;
use crate::server::Server;
use crate::session::Session;
use crate::table::commands;
use crate::transaction::Queued;

/// Which row it is, or why the request is refused; with the row, if the name was one.
#[inline]
pub(crate) fn admit(
    server: &Server,
    session: &mut Session,
    request: &Request<'_>,
) -> Result<&'static Entry, (Option<&'static Entry>, Failure)> {
    let args = request.args;
    let table = commands();
    let Some(mut entry) = table.find(args.get(0)) else { return Err((None, errors::unknown(args))) };
    if let (Kind::Container, Some(name)) = (entry.command.kind, args.try_get(1)) {
        let sub = table.find_sub(entry, name);
        entry = sub.ok_or_else(|| (None, errors::unknown_sub(entry.command.name, name)))?;
    }
    let command = entry.command;
    if !command.takes(args.len()) {
        return Err((Some(entry), commands::failure::arity(command.name)));
    }
    if !session.authenticated && !command.flags.has(Flags::NO_AUTH) {
        return Err((Some(entry), "NOAUTH Authentication required.".into()));
    }
    if !command.flags.has(Flags::NO_AUTH) {
        server.acl.refresh(&mut session.member, &session.client);
        if session.hold.as_ref().is_some_and(Hold::is_over) {
            return Err((Some(entry), "NOAUTH the worker of the topology has ended".into()));
        }
        if session.member.is_gone {
            session.closing = true;
            return Err((Some(entry), "NOAUTH the user was removed".into()));
        }
        let is_queued = session.transaction.is_some() && !runs_in_multi(entry);
        // SELECT may be queued before
        let db = session.transaction.is_none().then_some(session.db);
        let context = if is_queued { AclContext::Queued } else { AclContext::Direct };
        let permissions = &session.member.permissions;
        permit::check(server, permissions, entry, args, db, context)
            .map_err(|failure| (Some(entry), failure))?;
    }
    if session.transaction.is_some() && command.flags.has(Flags::NO_MULTI) {
        return Err((Some(entry), "ERR Command not allowed inside a transaction".into()));
    }
    if session.subscriptions.is_some() && !session.resp3 && !runs_subscribed(command.name) {
        return Err((Some(entry), errors::subscribed(command.name)));
    }
    if command.is_container() {
        // COMMAND alone, the only container that may stand alone, is COMMAND INFO of everything.
        entry = table.find_sub(entry, b"info").unwrap_or(entry);
    }
    Ok(entry)
}

/// When the request may run, if CLIENT PAUSE stops it; the connection is woken when that ends earlier.
pub(crate) fn paused_until(pause: &Pause, session: &Session, entry: &Entry, now: Nanos) -> Option<Nanos> {
    let flags = entry.command.flags;
    if flags.has(Flags::ADMIN) || flags.has(Flags::NO_AUTH) {
        return None;
    }
    let queue = session.transaction.as_ref().map_or(&[][..], |transaction| &transaction.queue);
    pause.wait(session.client.id, writes(entry, queue), now)
}

/// Whether CLIENT PAUSE WRITE holds a command back; `queue` has those of EXEC.
pub(crate) fn writes(entry: &Entry, queue: &[Queued]) -> bool {
    match entry.command.kind {
        Kind::Exec => queue.iter().any(|queued| writes(queued.entry, &[])),
        Kind::Script(invoked) => !invoked.read_only,
        _ => entry.command.flags.has(Flags::WRITE) || matches!(entry.command.name, "publish" | "spublish"),
    }
}

/// Keeps the request for EXEC.
pub(crate) fn queue(
    server: &Server,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) {
    let limit = server.tuned.transaction_bytes_max.load(Ordering::Relaxed);
    let Some(transaction) = &mut session.transaction else { return };
    if transaction.aborted {
        return out.extend_from_slice(b"+QUEUED\r\n");
    }
    transaction.queued_bytes += request.bytes as u64;
    if transaction.kept_bytes() > limit {
        transaction.aborted = true;
        transaction.queue = Vec::new();
        transaction.queued_bytes = 0;
        session.show_transaction();
        let text = format!("ERR transaction is larger than transaction.max ({limit} B)");
        return server.stats.write_failure(text.into(), session.resp3, out);
    }
    transaction.queue.push(Queued { entry, args: Args::copied(request.args), ahead: None });
    session.show_transaction();
    out.extend_from_slice(b"+QUEUED\r\n");
}

/// Runs at once although MULTI is open.
pub(crate) fn runs_in_multi(entry: &Entry) -> bool {
    matches!(entry.command.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Allowed to a client of version 2 that has subscribed.
fn runs_subscribed(name: &str) -> bool {
    matches!(
        name,
        "ping"
            | "subscribe"
            | "psubscribe"
            | "ssubscribe"
            | "unsubscribe"
            | "punsubscribe"
            | "sunsubscribe"
            | "quit"
            | "reset"
    )
}
