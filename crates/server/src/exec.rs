//! EXEC: the queued commands as one atomic group.
//!
//! All keys of all commands, and those that are watched, are locked together (all stripes, if one command needs
//! everything); every command runs on the same access, so each sees the effects of those before it, and one
//! commit makes them one group of the journal. A stop takes all replies back, and the whole runs again; only what had
//! effects outside the store (CLIENT KILL, CONFIG SET) keeps its first answer. The same when the replies are too large: the
//! data stays as it was, and what acted outside of it has acted, and is counted.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use clock::Nanos;
use resp::Writer;
use store::{KeyRef, Prepared, Scope, Stop, Wanted};

use crate::call::{Attachments, Control, Data, Failure};
use crate::command::{Flags, Handler};
use crate::errors;
use crate::executor::{Outbox, Parked, Ran, Request, Unready, collect_keys, take_prepared};
use crate::handlers::connection::database;
use crate::server::Server;
use crate::session::{Queued, Session, Transaction};

/// What EXEC runs.
#[derive(Clone, Copy)]
struct Run<'a> {
    transaction: &'a Transaction,
    watched: &'a [store::Watch],
    request: &'a Request<'a>,
    counts: Option<&'a [(u64, u64)]>,
}

/// What a run of all commands leaves to be done when it is committed.
#[derive(Default)]
struct Executed {
    /// Whether the commands ran; not if a watched key has changed, or the reply would be too large.
    ran: bool,
    ticket: u64,
    outbox: Outbox,
    /// Large values of the replies, in order.
    attached: Attachments,
    /// What ran, and whether it failed: counted when it has happened, for a run that stops is repeated.
    calls: Vec<(u16, bool)>,
    /// EXEC itself is answered with an error.
    failed: bool,
    /// Keys that were found, and not.
    lookups: (u32, u32),
}

impl Server {
    /// Runs what was queued since MULTI.
    pub(crate) fn run_exec(
        self: &Arc<Self>,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        let Some(transaction) = session.transaction.take() else {
            self.write_failure("ERR EXEC without MULTI".into(), session.resp3, out);
            return Ok(Ran::plain(0, true));
        };
        session.client.queued.store(-1, std::sync::atomic::Ordering::Relaxed);
        if transaction.aborted {
            session.drop_transaction();
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.write_failure(text.into(), session.resp3, out);
            return Ok(Ran::plain(0, true));
        }
        self.exec_queue(session, transaction, request, out)
    }

    fn exec_queue(
        self: &Arc<Self>,
        session: &mut Session,
        transaction: Box<Transaction>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        if let Some(later) = self.exec_at(&transaction, request) {
            session.transaction = Some(transaction);
            return Err(Unready::Parked(Parked::Until(later)));
        }
        let mut prepared = take_prepared(session);
        // The locks must be gone before a watch is: dropping one locks its stripe.
        let watched = std::mem::take(&mut session.watched);
        let mut keys = Vec::new();
        let everything = gather(&transaction.queue, session.db, &mut keys);
        keys.extend(watched.iter().map(|watch| KeyRef { db: watch.db(), key: watch.key() }));
        let scope = if everything { Scope::Everything } else { Scope::Keys(&keys) };
        let (start, db) = (out.len(), session.db);
        let counts = transaction.queue.iter().any(counts_keys).then(|| self.store.key_counts());
        let run = Run { transaction: &transaction, watched: &watched, request, counts: counts.as_deref() };
        let result = self.exec_once(session, &run, (scope, &prepared), out);
        match result {
            Ok(Executed { ran, ticket, outbox, attached, calls, failed, lookups }) => {
                drop(keys);
                drop(watched);
                if ran {
                    self.monitor_transaction(&session.client, db, &transaction);
                }
                session.ticket = session.ticket.max(ticket);
                self.deliver(outbox, session.ticket);
                for (id, failed) in calls {
                    self.stats.call(request.loop_index, id, 0, failed);
                }
                Ok(Ran { ticket, failed, lookups, attached })
            }
            Err((stop, wanted)) => {
                out.truncate(start);
                session.db = db;
                prepared.want(wanted);
                let result = self.stopped(stop, session, prepared, &keys, out);
                if result.is_err() {
                    drop(keys);
                    session.watched = watched;
                    session.transaction = Some(transaction);
                }
                result
            }
        }
    }

    /// When it may run, if it publishes and too much is on its way to listeners.
    fn exec_at(&self, transaction: &Transaction, request: &Request<'_>) -> Option<Nanos> {
        let publishes = transaction.queue.iter().any(|queued| queued.entry.command.name == "publish");
        if publishes { self.publish_at(request.now) } else { None }
    }

    fn exec_once<'s>(
        self: &'s Arc<Self>,
        session: &mut Session,
        run: &Run<'_>,
        (scope, prepared): (Scope<'_>, &'s Prepared),
        out: &mut Vec<u8>,
    ) -> Result<Executed, (Stop, Wanted)> {
        let none = Wanted::default;
        let Run { transaction, watched, .. } = *run;
        let grows = transaction.queue.iter().any(|queued| queued.entry.command.flags.has(Flags::DENYOOM));
        let credit_bytes = if grows { transaction.queued_bytes } else { 0 };
        let mut access = self.store.access(scope, prepared, credit_bytes).map_err(|stop| (stop, none()))?;
        let mut executed = Executed::default();
        for watch in watched {
            match access.changed(watch) {
                Ok(false) => {}
                Ok(true) => {
                    Writer::new(out, session.resp3).null_array();
                    executed.ticket = access.commit().map_err(|stop| (stop, none()))?;
                    return Ok(executed);
                }
                Err(stop) => return Err((stop, access.into_wanted())),
            }
        }
        let (start, most, db) = (out.len(), self.reply_bytes_max(), session.db);
        Writer::new(out, session.resp3).array(transaction.queue.len());
        for queued in &transaction.queue {
            let result = self.exec_one(session, queued, run, &mut access, &mut executed, out);
            if let Err(stop) = result {
                return Err((stop, access.into_wanted()));
            }
            if out.len() - start + executed.attached.bytes() > most {
                out.truncate(start);
                session.db = db;
                self.write_failure(errors::reply_too_large(most), session.resp3, out);
                let acted = executed.calls.into_iter().zip(&transaction.queue);
                let acted = acted.filter(|(_, queued)| queued.answered.get().is_some());
                let (ticket, calls) = (self.store.newest(), acted.map(|(call, _)| call).collect());
                return Ok(Executed { ticket, calls, failed: true, ..Executed::default() });
            }
        }
        executed.ticket = access.commit().map_err(|stop| (stop, none()))?;
        executed.ran = true;
        Ok(executed)
    }

    fn exec_one(
        self: &Arc<Self>,
        session: &mut Session,
        queued: &Queued,
        run: &Run<'_>,
        access: &mut store::Access<'_>,
        executed: &mut Executed,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        if let Some(answer) = queued.answered.get() {
            out.extend_from_slice(answer);
            executed.calls.push((queued.entry.id, answer.starts_with(b"-")));
            return Ok(());
        }
        let (start, resp3, args) = (out.len(), session.resp3, queued.args.view(&[]));
        let mut writer = Writer::new(out, resp3);
        let outcome = match queued.entry.command.handler {
            Handler::Data(handle)
            | Handler::Across(handle, _)
            | Handler::Everything(handle)
            | Handler::Walk(handle) => {
                let now = access.now();
                let (lookups, attached) = (Cell::default(), RefCell::default());
                let mut data = Data { access, db: session.db, now, server: self, lookups, attached };
                let outcome = handle(&mut data, args, &mut writer);
                let (hits, misses) = data.lookups.get();
                executed.lookups = (executed.lookups.0 + hits, executed.lookups.1 + misses);
                if outcome.is_ok() {
                    executed.attached.append(data.attached.take());
                }
                outcome
            }
            Handler::Control(handle) => {
                let (now, counts, outbox) = (run.request.now, run.counts, &mut executed.outbox);
                let mut control =
                    Control { server: self, session, now, in_exec: true, outbox, counts, ticket: 0 };
                handle(&mut control, args, &mut writer)
            }
            Handler::Exec | Handler::Container(_) => unreachable!("neither is ever queued"),
        };
        let failed = outcome.is_err();
        match outcome {
            Ok(()) => {}
            Err(Failure::Stop(stop)) => return Err(stop),
            Err(failure) => {
                out.truncate(start);
                self.write_failure(failure, resp3, out);
            }
        }
        if acts_at_once(queued) {
            let _ = queued.answered.set(out[start..].to_vec());
        }
        executed.calls.push((queued.entry.id, failed));
        Ok(())
    }
}

/// Whether a queued command acts outside the store, and before the commit. SELECT is taken back with the run that it was
/// part of, and PUBLISH waits for the commit.
fn acts_at_once(queued: &Queued) -> bool {
    matches!(queued.entry.command.handler, Handler::Control(_))
        && !matches!(queued.entry.command.name, "select" | "publish")
}

/// Whether a queued command tells how many keys there are.
fn counts_keys(queued: &Queued) -> bool {
    matches!(queued.entry.command.name, "info" | "memory|stats")
}

/// Adds the keys of all queued commands, each in the database that it will run in; returns whether one of them
/// needs everything.
fn gather<'a>(queue: &'a [Queued], mut db: u16, keys: &mut Vec<KeyRef<'a>>) -> bool {
    let mut everything = false;
    for queued in queue {
        let args = queued.args.view(&[]);
        everything |= matches!(queued.entry.command.handler, Handler::Everything(_) | Handler::Walk(_));
        if queued.entry.command.name == "select" {
            db = database(args.get(1)).unwrap_or(db);
        }
        collect_keys(queued.entry, db, args, keys);
    }
    everything
}
