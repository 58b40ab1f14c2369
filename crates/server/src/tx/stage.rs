//! TX.DO: a command that is staged in a transaction instead of being carried out.
//!
//! ```text
//!  keys touched -> access -> what is staged is shown -> handler -> what it changed is kept in the stage
//! ```
//!
//! Invariants
//!   1. The command sees the transaction's own writes, and of others what is committed; nobody sees what it does.
//!   2. A command that parks has staged nothing, and is run again whole.
//!   3. A loop never waits for a transaction that another thread works on.
//!   4. The reply waits until what it looked at is durable.

use std::sync::{Arc, TryLockError};

use commands::call::{DataFn, Failure};
use commands::command::Kind;
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::ArgsView;
use store::{KeyRef, Scope, Stop};
use ticket::Ticket;

use super::KEYS_PLACE;
use super::error::TxError;
use super::staged::{COMMAND_AT, Staged};
use super::work::Work;
use crate::acl::AclContext;
use crate::errors;
use crate::halted;
use crate::handlers::tx::{transaction_id, transactions};
use crate::long::EFFORT_MAX;
use crate::long::job::Context;
use crate::long::job::{self, Job};
use crate::outcome::{Ran, Unready};
use crate::permit;
use crate::request::Request;
use crate::retained::Retained;
use crate::run::{Effects, Plan, Single, Step, Stopped, Unfinished, collect_keys};
use crate::server::Server;
use crate::session::Session;
use crate::table::{self, row::Handler};
use crate::transaction::Caller;

/// Runs TX.DO; beside the loop if it names many keys, or if another command of its transaction runs there.
pub(crate) fn run(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let args = request.args.from(COMMAND_AT);
    let staged = match staged(server, session, request.args) {
        Ok(staged) => staged,
        Err(failure) => {
            server.stats.write_failure(failure, session.resp3, out);
            return Ok(Ran::plain(Ticket::NOTHING, true));
        }
    };
    let work = match staged.work.try_lock() {
        Ok(work) => Some(work),
        Err(TryLockError::Poisoned(work)) => Some(work.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    };
    let is_short = staged.entry.command.count_keys(args) <= server.long.from();
    let Some(mut work) = work.filter(|_| is_short) else {
        return Err(Unready::Beside(Job::new(session, entry, request, job::Work::Stage(staged))));
    };
    let mut keys = Vec::new();
    collect_keys(staged.entry, session.db, args, &mut keys);
    let (mut prepared, mut copies) = (session.take_prepared(), session.take_copies());
    let context = Context {
        entry,
        args,
        bytes: request.bytes,
        caller: session.caller(),
        prepared: &prepared,
        copies: &mut copies,
        retained: &mut Retained::default(),
    };
    match stage(server, context, &staged, &mut work, &keys, false, out) {
        Ok(ran) => Ok(ran),
        Err((Stop::Long, _)) => {
            drop(work);
            let mut job = Job::new(session, entry, request, job::Work::Stage(staged));
            (job.prepared, job.copies) = (prepared, copies);
            Err(Unready::Beside(job))
        }
        Err((stop, wanted)) => {
            prepared.want(wanted);
            halted::wait(server, stop, session, prepared, copies, &keys, out)
        }
    }
}

/// The command that TX.DO stages, noted for operators.
fn staged(server: &Server, session: &Session, args: ArgsView<'_>) -> Result<Staged, Failure> {
    let tx = transaction_id(session, args)?;
    let (entry, run) = staged_command(args.from(COMMAND_AT))?;
    let permissions = &session.member.permissions;
    permit::check(server, permissions, entry, args.from(COMMAND_AT), Some(session.db), AclContext::Direct)?;
    let transactions = transactions(server)?;
    let work = transactions.work(tx).map_err(|error| errors::of_transaction(&error))?;
    transactions.note(tx, KEYS_PLACE, &entry.command.name.to_ascii_uppercase());
    Ok(Staged { tx, entry, run, work })
}

/// Stages a command on `keys`; an error that is no stop is answered. A stop leaves nothing behind.
pub(crate) fn stage(
    server: &Server,
    context: Context<'_>,
    staged: &Staged,
    work: &mut Work,
    keys: &[KeyRef<'_>],
    is_beside: bool,
    out: &mut Vec<u8>,
) -> Result<Ran, Stopped> {
    let Context { args, bytes, caller: Caller { db, resp3, origin }, prepared, copies, .. } = context;
    let Staged { tx, entry, run, .. } = staged;
    let refused = |failure: Failure, out: &mut Vec<u8>| {
        server.stats.write_failure(failure, resp3, out);
        Ok(Ran::plain(Ticket::NOTHING, true))
    };
    if work.is_sealed {
        return refused(errors::of_transaction(&TxError::Ending(*tx)), out);
    }
    if let Err(error) = server.store.touch(&mut work.workspace, keys) {
        return refused(errors::of_store(&error), out);
    }
    let scope = match entry.command.kind {
        Kind::Everything | Kind::Reaching => Scope::Everything,
        // what it has moved is found under all locks
        _ if is_beside && !work.workspace.moves_databases() => Scope::Claimed { keys, writes: false },
        _ => Scope::Keys(keys),
    };
    let step =
        Step { entry: Some(entry), handler: *run, args, db, resp3, ready: Ready::default(), in_parts: false };
    let plan = Plan {
        scope,
        prepared,
        moment: None,
        growth_bytes: entry.growth_bytes(bytes),
        origin,
        effort_max: if is_beside { None } else { Some(EFFORT_MAX) },
        effects: Effects::Keep(&mut work.workspace),
    };
    let body = Single { step, stored: entry.command.stored };
    let (answered, ticket) =
        server.runner().run(&body, plan, copies, out).map_err(Unfinished::into_stopped)?;
    Ok(Ran::answered(answered, ticket))
}

/// The command that is to be staged, and its function; its arity was looked at.
fn staged_command(args: ArgsView<'_>) -> Result<(&'static Entry, DataFn), Failure> {
    let table = table::commands();
    let Some(mut entry) = table.find(args.get(0)) else { return Err(errors::unknown(args)) };
    if let (Kind::Container, Some(name)) = (entry.command.kind, args.try_get(1)) {
        let sub = table.find_sub(entry, name);
        entry = sub.ok_or_else(|| errors::unknown_sub(entry.command.name, name))?;
    }
    if !entry.command.takes(args.len()) {
        return Err(commands::failure::arity(entry.command.name));
    }
    match table::handler(entry) {
        // HELP, of which nothing is left
        Handler::Data(_) if entry.command.keys.is_empty() => Err(names_no_keys(entry)),
        Handler::Data(run) | Handler::Across(run, _) | Handler::Reaching(run) | Handler::Everything(run) => {
            Ok((entry, run))
        }
        Handler::Script(_) => {
            let name = entry.command.name.to_ascii_uppercase();
            Err(format!("ERR TX.DO cannot stage {name}: it is a script; stage its commands").into())
        }
        _ => Err(names_no_keys(entry)),
    }
}

fn names_no_keys(entry: &Entry) -> Failure {
    let name = entry.command.name.to_ascii_uppercase();
    format!("ERR TX.DO cannot stage {name}: it names no keys; run it outside of the transaction").into()
}
