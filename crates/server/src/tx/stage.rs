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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use resp::ArgsView;
use store::{KeyRef, Prepared, Scope};
use txn::id::TxId;

use super::KEYS_PLACE;
use super::keys::Work;
use crate::call::Failure;
use crate::command::{DataFn, Handler};
use crate::copies::Copies;
use crate::errors;
use crate::executor::{Ran, Request, Unready, take_copies, take_prepared};
use crate::handlers::tx::transaction_id;
use crate::long::{self, Job};
use crate::lookup::{Entry, Table};
use crate::run::{Effects, Plan, Single, Step, Stopped, collect_keys};
use crate::server::Server;
use crate::session::{Caller, Session};

/// A command that is to be staged, and where.
#[derive(Debug)]
pub(crate) struct Staged {
    tx: TxId,
    pub(crate) entry: &'static Entry,
    run: DataFn,
    work: Arc<Mutex<Work>>,
}

impl Staged {
    /// What the transaction means to change; waits for whoever works on it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Runs TX.DO; beside the loop if it names many keys, or if another command of its transaction runs there.
    pub(crate) fn run_stage(
        self: &Arc<Self>,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        let args = request.args.from(COMMAND_AT);
        let staged = match self.staged(session, request.args) {
            Ok(staged) => staged,
            Err(failure) => {
                self.stats.write_failure(failure, session.resp3, out);
                return Ok(Ran::plain(0, true));
            }
        };
        let work = match staged.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(work)) => Some(work.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let is_short = staged.entry.command.count_keys(args.len()) <= self.long.from();
        let Some(mut work) = work.filter(|_| is_short) else {
            let entry = Table::of_server().find(b"tx.do").expect("a row of the table");
            let job = Job::new(session, entry, request, long::Work::Stage(staged));
            return Err(self.start_long(session, job));
        };
        let mut keys = Vec::new();
        collect_keys(staged.entry, session.db, args, &mut keys);
        let (mut prepared, mut copies) = (take_prepared(session), take_copies(session));
        let known = (session.caller(), request.bytes);
        match self.stage((&staged, &mut work), known, args, (&keys, &prepared, &mut copies), out) {
            Ok(ran) => Ok(ran),
            Err((stop, wanted)) => {
                prepared.want(wanted);
                self.stopped(stop, session, (prepared, copies), &keys, out)
            }
        }
    }

    /// The command that TX.DO stages, noted for operators.
    fn staged(&self, session: &Session, args: ArgsView<'_>) -> Result<Staged, Failure> {
        let tx = transaction_id(session, args)?;
        let (entry, run) = staged_command(args.from(COMMAND_AT))?;
        let transactions = self.transactions()?;
        let work = transactions.work(tx).map_err(errors::of_transaction)?;
        transactions.note(tx, KEYS_PLACE, &entry.command.name.to_ascii_uppercase());
        Ok(Staged { tx, entry, run, work })
    }

    /// Stages a command on `keys`; an error that is no stop is answered. A stop leaves nothing behind.
    pub(crate) fn stage(
        &self,
        (staged, work): (&Staged, &mut Work),
        (Caller { db, resp3, uses }, bytes): (Caller, usize),
        args: ArgsView<'_>,
        (keys, prepared, copies): (&[KeyRef<'_>], &Prepared, &mut Copies),
        out: &mut Vec<u8>,
    ) -> Result<Ran, Stopped> {
        let Staged { tx, entry, run, .. } = staged;
        let refused = |failure: Failure, out: &mut Vec<u8>| {
            self.stats.write_failure(failure, resp3, out);
            Ok(Ran::plain(0, true))
        };
        if work.is_sealed {
            return refused(errors::of_transaction(format!("transaction {tx} is being ended")), out);
        }
        if let Err(error) = self.store.touch(&mut work.workspace, keys) {
            return refused(errors::of_store(&error), out);
        }
        let scope = match entry.command.handler {
            Handler::Everything(_) => Scope::Everything,
            // what it has moved is found under all locks
            _ if keys.len() > self.long.from() && !work.workspace.moves_databases() => {
                Scope::Claimed { keys, writes: false }
            }
            _ => Scope::Keys(keys),
        };
        let step = Step { handler: *run, args, db, resp3 };
        let plan = Plan {
            scope,
            prepared,
            moment: None,
            growth_bytes: entry.growth_bytes(bytes),
            uses,
            effects: Effects::Keep(&mut work.workspace),
        };
        let body = Single { step, stored: entry.command.stored };
        let (answered, ticket) = self.runner().run(&body, plan, copies, out)?;
        Ok(Ran::answered(answered, ticket))
    }
}

/// The command that is to be staged, and its function; its arity was looked at.
fn staged_command(args: ArgsView<'_>) -> Result<(&'static Entry, DataFn), Failure> {
    let table = Table::of_server();
    let Some(mut entry) = table.find(args.get(0)) else { return Err(errors::unknown(args)) };
    if let (Handler::Container(_), Some(name)) = (entry.command.handler, args.try_get(1)) {
        let sub = table.find_sub(entry, name);
        entry = sub.ok_or_else(|| errors::unknown_sub(entry.command.name, name))?;
    }
    if !entry.command.takes(args.len()) {
        return Err(errors::arity(entry.command.name));
    }
    match entry.command.handler {
        Handler::Data(run) | Handler::Across(run, _) | Handler::Everything(run) => Ok((entry, run)),
        _ => {
            let name = entry.command.name.to_ascii_uppercase();
            Err(format!("ERR TX.DO cannot stage {name}: it names no keys; run it outside of the transaction")
                .into())
        }
    }
}

/// Where the command begins in TX.DO's arguments.
pub(crate) const COMMAND_AT: usize = 2;
