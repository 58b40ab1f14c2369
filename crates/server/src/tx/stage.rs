//! TX.DO: a command that is staged in a transaction instead of being carried out.
//!
//! ```text
//!  keys touched -> access -> what is staged is shown -> handler -> what it changed is kept in the stage
//! ```
//!
//! Invariants
//!   1. The command sees the transaction's own writes, and of others what is committed; nobody sees what it does.
//!   2. A command that parks has staged nothing, and is run again whole.
//!   3. The reply waits until what it looked at is durable.

use std::cell::{Cell, RefCell};
use std::sync::PoisonError;

use resp::{ArgsView, Writer};
use store::{Large, Prepared, Scope};

use super::KEYS_PLACE;
use super::keys::Work;
use crate::call::{Attachments, Data, Failure};
use crate::command::{DataFn, Handler};
use crate::copies::Copied;
use crate::errors;
use crate::executor::{Halt, Ran, Request, Unready, collect_keys, take_copies, take_prepared};
use crate::handlers::tx::transaction_id;
use crate::lookup::{Entry, Table};
use crate::server::Server;
use crate::session::Session;

impl Server {
    /// Runs TX.DO.
    pub(crate) fn run_stage(
        &self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        let args = request.args.from(COMMAND_AT);
        let refused = |failure: Failure, out: &mut Vec<u8>| {
            self.write_failure(failure, session.resp3, out);
            Ok(Ran::plain(0, true))
        };
        let (tx, entry, run) =
            match transaction_id(session, request.args).and_then(|tx| Ok((tx, staged_command(args)?))) {
                Ok((tx, (entry, run))) => (tx, entry, run),
                Err(failure) => return refused(failure, out),
            };
        let work = match self.transactions().and_then(|all| all.work(tx).map_err(errors::of_transaction)) {
            Ok(work) => work,
            Err(failure) => return refused(failure, out),
        };
        if let Some(transactions) = &self.transactions {
            transactions.note(tx, KEYS_PLACE, &entry.command.name.to_ascii_uppercase());
        }
        let mut keys = Vec::new();
        collect_keys(entry, session.db, args, &mut keys);
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.is_sealed {
            return refused(errors::of_transaction(format!("transaction {tx} is being ended")), out);
        }
        if let Err(error) = self.store.touch(&mut work.stage, &keys) {
            return refused(errors::of_store(&error), out);
        }
        let scope = match entry.command.handler {
            Handler::Everything(_) => Scope::Everything,
            _ => Scope::Keys(&keys),
        };
        let mut prepared = take_prepared(session);
        let mut copies = take_copies(session);
        if request.bytes >= Large::BYTES_MIN && copies.is_empty() {
            copies.add(&self.store, 0, entry.command.stored, args);
        }
        let start = out.len();
        loop {
            match self.try_stage(session, run, args, (scope, &prepared, copies.of(0)), &mut work, out) {
                Ok(ran) => return Ok(ran),
                Err(Halt::Make(command, splice)) => {
                    out.truncate(start);
                    copies.make(&self.store, command, splice, args);
                }
                Err(Halt::Stopped(stop, wanted)) => {
                    out.truncate(start);
                    prepared.want(wanted);
                    return self.stopped(stop, session, (prepared, copies), &keys, out);
                }
            }
        }
    }

    fn try_stage(
        &self,
        session: &Session,
        run: DataFn,
        args: ArgsView<'_>,
        (scope, prepared, copies): (Scope<'_>, &Prepared, Copied<'_>),
        work: &mut Work,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Halt> {
        let mut access = self.store.access(scope, prepared, 0)?;
        access.resume(&work.stage);
        let (now, start) = (access.now(), out.len());
        let (lookups, attached) = (Cell::default(), RefCell::default());
        let mut data =
            Data { access: &mut access, db: session.db, now, server: self, copies, lookups, attached };
        let outcome = run(&mut data, args, &mut Writer::new(out, session.resp3));
        let (lookups, mut attached) = (data.lookups.get(), data.attached.take());
        let failed = match outcome {
            Ok(()) => false,
            Err(failure @ (Failure::Stop(_) | Failure::Make(_))) => {
                return Err(Halt::of(failure, 0, access.into_wanted()));
            }
            Err(failure) => {
                out.truncate(start);
                attached = Attachments::default();
                self.write_failure(failure, session.resp3, out);
                true
            }
        };
        let ticket = access.keep(&mut work.stage)?;
        Ok(Ran { ticket, failed, lookups, attached })
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
const COMMAND_AT: usize = 2;
