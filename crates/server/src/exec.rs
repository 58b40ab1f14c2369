//! EXEC: the queued commands as one atomic group.
//!
//! ```text
//!  lock all keys -> data commands, in order -> commit, unlock -> control commands, in order, replies put between
//!                        \-- stop, reply too large: nothing has happened, nothing is kept
//! ```
//!
//! Invariants
//!   1. All keys of all commands, and those that are watched, are locked together (all stripes, if one command needs
//!      everything); each command sees the effects of those before it, and one commit makes them one group of the journal.
//!   2. What acts outside the data (CLIENT KILL, CONFIG SET, SELECT, PUBLISH) acts once, and only when the data part has
//!      happened: a transaction that is refused, called off by WATCH or tried again leaves nothing behind.
//!   3. So a setting that CONFIG SET changes holds from the end of its transaction on; what SELECT and HELLO change for
//!      the replies behind them is foreseen by [`ConnectionState`].
//!
//! A long one (`long`) runs its data commands on a thread of its own: its keys are claimed, and locked command by command.
//!
//! Control commands cannot be taken back, so a reply that they make too large no longer refuses the whole: from there on
//! each of them is answered with that error, and does not run.

use std::sync::Arc;

use clock::Nanos;
use commands::call::Failure;
use commands::command::{By, Flags, Invoked, Kind};
use commands::copies::Copies;
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::{ArgsView, Writer};
use script::cache::{Digest, Running};
use script::is_long_source;
use store::{Access, KeyRef, Prepared, Scope, Stop, Store, Wanted};
use ticket::Ticket;

use crate::acl::{AclContext, Permissions};
use crate::clients::Client;
use crate::control::{Control, ReplyMemory};
use crate::errors;
use crate::eval::attempt::Attempt;
use crate::eval::{self, Invocation};
use crate::halted;
use crate::handlers::connection::{greeted, selected};
use crate::handlers::scripts::compiled;
use crate::handlers::{command, function};
use crate::long::EFFORT_MAX;
use crate::long::job::{Job, Work};
use crate::outcome::{Executed, Ran, Unready};
use crate::permit;
use crate::pubsub::{CHANNEL_BYTES_MAX, SLICE_STEPS};
use crate::request::Request;
use crate::retained::Retained;
use crate::run::{Body, Effects, Halt, Plan, Step, Tried, Within, collect_keys, until_keys_are_known};
use crate::server::Server;
use crate::session::Session;
use crate::subscriptions::{Outbox, Publishing};
use crate::table::{self, row::Handler};
use crate::transaction::{Ahead, ConnectionState, Origin, Queued, Transaction};

/// What EXEC runs.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    server: &'a Server,
    transaction: &'a Transaction,
    watched: &'a [store::Watch],
    state: ConnectionState,
    /// What its scripts keep from attempt to attempt.
    retained: &'a Retained,
    /// Beside a loop: where scripts are told to stop, and the keys that are claimed.
    beside: Option<(&'a Arc<Running>, &'a [KeyRef<'a>])>,
}

impl<'a> Run<'a> {
    /// A run of `transaction`, which begins as `state` tells.
    pub(crate) fn new(
        server: &'a Server,
        transaction: &'a Transaction,
        watched: &'a [store::Watch],
        state: ConnectionState,
        retained: &'a Retained,
        beside: Option<(&'a Arc<Running>, &'a [KeyRef<'a>])>,
    ) -> Self {
        Self { server, transaction, watched, state, retained, beside }
    }

    /// How it is run, over keys that are known; `origin` as in [`Plan`].
    pub(crate) fn plan(&self, scope: Scope<'a>, prepared: &'a Prepared, origin: Origin) -> Plan<'a> {
        let grows = self.transaction.queue.iter().any(|it| it.entry.command.flags.has(Flags::DENYOOM));
        let growth_bytes = if grows { self.transaction.queued_bytes } else { 0 };
        let effort_max = if self.beside.is_some() { None } else { Some(EFFORT_MAX) };
        Plan { scope, prepared, moment: None, growth_bytes, origin, effort_max, effects: Effects::Commit }
    }

    /// Whether a key that is watched has changed.
    fn is_called_off(&self, access: &mut Access<'_>) -> Result<bool, Stop> {
        for watch in self.watched {
            access.turn_to(&[KeyRef { db: watch.db(), key: watch.key() }]);
            if access.changed(watch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs a data command; notes where the reply of a control command belongs.
    fn run_one(
        &self,
        number: usize,
        queued: &Queued,
        ConnectionState { db, resp3 }: ConnectionState,
        within: &mut Within<'_, '_>,
        executed: &mut Executed,
        out: &mut Vec<u8>,
    ) -> Result<(), Halt<Vec<u8>>> {
        let args = queued.args.view(&[]);
        if let Err(failure) = may_still_run(self.server, &self.retained.permissions, queued, db) {
            self.server.stats.write_failure(failure, resp3, out);
            executed.calls.push((queued.entry.id, true));
            return Ok(());
        }
        let handler = match table::handler(queued.entry) {
            Handler::Data(handler)
            | Handler::Across(handler, _)
            | Handler::Reaching(handler)
            | Handler::Everything(handler)
            | Handler::Walk(handler) => handler,
            Handler::Control(_) => {
                executed.later.push((number, out.len()));
                return Ok(());
            }
            Handler::Script(invoked) => {
                return self.run_script(
                    number,
                    invoked,
                    ConnectionState { db, resp3 },
                    within,
                    executed,
                    out,
                );
            }
            Handler::Exec | Handler::Stage | Handler::Container(_) => {
                unreachable!("none of them is ever queued")
            }
        };
        if within.access.is_claimed() && queued.entry.command.count_keys(args) <= TURN_KEYS_MAX {
            let mut keys = Vec::new();
            collect_keys(queued.entry, db, args, &mut keys);
            within.access.turn_to(&keys);
        }
        let answered = within.step(
            number,
            Step {
                entry: Some(queued.entry),
                handler,
                args,
                db,
                resp3,
                ready: Ready::default(),
                in_parts: false,
            },
            out,
        );
        let answered = answered?;
        executed.lookups += answered.lookups;
        executed.attached.append(answered.attached);
        executed.calls.push((queued.entry.id, answered.failed));
        Ok(())
    }

    /// Runs a script.
    fn run_script(
        &self,
        number: usize,
        invoked: Invoked,
        state: ConnectionState,
        within: &mut Within<'_, '_>,
        executed: &mut Executed,
        out: &mut Vec<u8>,
    ) -> Result<(), Halt<Vec<u8>>> {
        let queued = &self.transaction.queue[number];
        if matches!(invoked.by, By::Digest) {
            self.load_ahead(number, queued.args.view(&[]).get(1));
        }
        let invocation = match Invocation::new(self.server, invoked, queued.args.view(&[])) {
            Ok(invocation) => invocation,
            Err(failure) => {
                self.server.stats.write_failure(failure, state.resp3, out);
                executed.calls.push((queued.entry.id, true));
                return Ok(());
            }
        };
        let mut attempt = Attempt::new(self.server, &invocation, state, self.retained);
        if let Some((running, claimed)) = self.beside {
            attempt = attempt.beside(running, claimed);
        }
        let script = attempt.make(within, number, out)?;
        let failed = script.failed;
        executed.append(script);
        executed.calls.push((queued.entry.id, failed));
        Ok(())
    }

    /// Compiles the script `digest` if command `number` follows the SCRIPT LOAD that brings it, which answers when the data has happened. It
    /// is kept as one of EVAL is until then.
    fn load_ahead(&self, number: usize, digest: &[u8]) {
        let Some(digest) = Digest::parse(digest).filter(|digest| !self.server.scripts.has(digest)) else {
            return;
        };
        let before = self.transaction.queue[..number].iter().rev();
        let source = before
            .take_while(|queued| queued.entry.command.name != "script|flush")
            .filter(|queued| queued.entry.command.name == "script|load")
            .map(|queued| queued.args.view(&[]).get(2))
            .find(|source| Digest::of(source) == digest);
        // what is wrong with it SCRIPT LOAD answers
        _ = source.map(|source| compiled(self.server, source, false));
    }

    /// What ends the attempt after `halt`; a script that was stopped is the end of EXEC, whose replies begin at `start`.
    fn halted(&self, halt: Halt<Vec<u8>>, start: usize, out: &mut Vec<u8>) -> Halt<Executed> {
        out.truncate(start);
        halt.map(|text| {
            self.server.stats.write_failure(Failure::Bytes(text), self.state.resp3, out);
            Executed::refused()
        })
    }
}

impl Body for Run<'_> {
    type Done = Executed;

    fn run(&self, within: &mut Within<'_, '_>, out: &mut Vec<u8>) -> Result<Executed, Halt<Executed>> {
        let (server, mut state, start) = (self.server, self.state, out.len());
        let (mut executed, resp3) = (Executed { start, ..Executed::default() }, state.resp3);
        if self.is_called_off(within.access).map_err(|stop| Halt::At(0, stop.into()))? {
            Writer::new(out, resp3).null_array();
            return Ok(executed);
        }
        within.access.keep_values();
        let most = server.tuned.sizes.reply_bytes_max();
        Writer::new(out, resp3).array(self.transaction.queue.len());
        for (number, queued) in self.transaction.queue.iter().enumerate() {
            self.run_one(number, queued, state, within, &mut executed, out)
                .map_err(|halt| self.halted(halt, start, out))?;
            if out.len() - start + executed.attached.bytes() > most {
                out.truncate(start);
                server.stats.write_failure(commands::failure::reply_too_large(most), resp3, out);
                return Err(Halt::GivenUp(Executed::refused()));
            }
            pass(&mut state, server, queued);
        }
        executed.ran = true;
        Ok(executed)
    }

    fn copy_stored(&self, store: &Store, copies: &mut Copies) {
        let queue = self.transaction.queue.iter().enumerate();
        queue.for_each(|(at, q)| copies.add(store, at, q.entry.command.stored, q.args.view(&[])));
    }

    fn args(&self, command: usize) -> ArgsView<'_> {
        self.transaction.queue[command].args.view(&[])
    }
}

/// Runs what was queued since MULTI.
pub(crate) fn run(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let Some(transaction) = session.transaction.take() else {
        server.stats.write_failure("ERR EXEC without MULTI".into(), session.resp3, out);
        return Ok(Ran::plain(Ticket::NOTHING, true));
    };
    if transaction.aborted {
        session.transaction = Some(transaction);
        session.end_transaction(&server.long);
        let text = "EXECABORT Transaction discarded because of previous errors.";
        server.stats.write_failure(text.into(), session.resp3, out);
        return Ok(Ran::plain(Ticket::NOTHING, true));
    }
    let result = exec_queue(server, session, entry, transaction, request, out);
    session.show_transaction();
    result
}

fn exec_queue(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    mut transaction: Box<Transaction>,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    match exec_at(server, session, &transaction, request.now) {
        Ok(None) => {}
        Ok(Some(later)) => {
            session.transaction = Some(transaction);
            return Err(Unready::Until(later));
        }
        Err(failure) => {
            session.transaction = Some(transaction);
            session.end_transaction(&server.long);
            server.stats.write_failure(errors::exec_refused(failure), session.resp3, out);
            return Ok(Ran::plain(Ticket::NOTHING, true));
        }
    }
    // The locks must be gone before a watch is: dropping one locks its stripe.
    let (watched_bytes, watched) = (session.watched_bytes(), session.unwatch());
    let state = ConnectionState::from(session.caller());
    if server.long.is_long_transaction(&transaction) || works_long(server, &transaction) {
        let work = Work::Exec { transaction, watched, state };
        return Err(Unready::Beside(Job::new(session, entry, request, work)));
    }
    let (mut prepared, mut copies) = (session.take_prepared(), session.take_copies());
    let mut retained = session.take_retained();
    eval::begin(server, &mut retained);
    let origin = session.caller().origin;
    let tried = until_keys_are_known(&mut retained, |retained| {
        let mut keys = Vec::new();
        let everything = keys_of(server, &transaction, &watched, state, retained, &mut keys);
        let scope = if everything { Scope::Everything } else { Scope::Keys(&keys) };
        let run = Run::new(server, &transaction, &watched[..], state, retained, None);
        server
            .runner()
            .run(&run, run.plan(scope, &prepared, origin), &mut copies, out)
            .map(|(executed, ticket)| executed.committed(ticket))
    });
    match tried {
        Ok(Tried::Done(executed)) => {
            Ok(finish(server, session, request, &mut transaction, state, executed, out))
        }
        Ok(Tried::Later(later)) => {
            put_back(session, transaction, watched, watched_bytes, retained);
            Err(Unready::Until(later))
        }
        Err((Stop::Long, _)) => {
            let job = Job::new(session, entry, request, Work::Exec { transaction, watched, state });
            Err(Unready::Beside(Box::new(Job { prepared, copies, retained, ..*job })))
        }
        Err((stop, wanted)) => {
            want(server, &stop, wanted, &transaction, state, &mut prepared);
            let mut keys = Vec::new();
            keys_of(server, &transaction, &watched, state, &retained, &mut keys);
            let result = halted::wait(server, stop, session, prepared, copies, &keys, out);
            drop(keys);
            retained.fetches += 1;
            if result.is_err() {
                put_back(session, transaction, watched, watched_bytes, retained);
            }
            result
        }
    }
}

/// Adds the keys that EXEC touches; returns whether it needs all.
pub(crate) fn keys_of<'a>(
    server: &Server,
    transaction: &'a Transaction,
    watched: &'a [store::Watch],
    state: ConnectionState,
    retained: &'a Retained,
    keys: &mut Vec<KeyRef<'a>>,
) -> bool {
    let everything = gather(server, &transaction.queue, state, keys);
    keys.extend(watched.iter().map(|watch| KeyRef { db: watch.db(), key: watch.key() }));
    keys.extend(retained.keys());
    everything || retained.everything
}

/// Whether the sources of `transaction` take long to compile, or its control commands have many arguments.
fn works_long(server: &Server, transaction: &Transaction) -> bool {
    let (mut source_bytes, mut libraries, mut arguments) = (0, 0, 0);
    for queued in &transaction.queue {
        let args = queued.args.view(&[]);
        match (table::handler(queued.entry), queued.entry.command.name) {
            (Handler::Script(invoked), _) if eval::has_long_source(server, invoked, args) => return true,
            (Handler::Script(Invoked { by: By::Source, .. }), _) => source_bytes += args.get(1).len(),
            (Handler::Control(_), "script|load") => source_bytes += args.get(2).len(),
            (Handler::Control(_), "function|load") => {
                (libraries, source_bytes) = (libraries + 1, source_bytes + args.get(args.len() - 1).len());
            }
            (Handler::Control(_), "function|restore") => return true,
            (Handler::Control(_), "command|getkeys" | "command|getkeysandflags") => arguments += args.len(),
            _ => {}
        }
    }
    // the code of each library may run for as long as a loop waits
    is_long_source(source_bytes) || libraries > 1 || arguments as u64 > EFFORT_MAX
}

/// Does for the control commands of `transaction` what takes long and does not depend on when they act. Beside the loop, where its code is
/// `running`.
pub(crate) fn work_ahead(
    server: &Server,
    transaction: &mut Transaction,
    mut state: ConnectionState,
    running: &Arc<Running>,
) {
    for queued in &mut transaction.queue {
        if queued.ahead.is_none() {
            let args = queued.args.view(&[]);
            let ahead = match queued.entry.command.name {
                "script|load" => Some(compiled(server, args.get(2), false).map(Ahead::Script)),
                "function|load" => {
                    Some(function::load_ahead(server, args, Some(running)).map(Ahead::Libraries))
                }
                "function|restore" => {
                    Some(function::restore_ahead(server, args, Some(running)).map(Ahead::Libraries))
                }
                "command|getkeys" | "command|getkeysandflags" => {
                    let mut reply = Vec::new();
                    let write = match queued.entry.command.name {
                        "command|getkeys" => command::getkeys_beside,
                        _ => command::getkeysandflags_beside,
                    };
                    let written = write(server, args, &mut Writer::new(&mut reply, state.resp3));
                    Some(written.map(|()| Ahead::Reply(reply)))
                }
                _ => None,
            };
            queued.ahead = ahead.map(Box::new);
        }
        pass(&mut state, server, queued);
    }
}

/// Adds what a transaction was stopped for, and if that is on disk, what its other commands lack there: so all of it is read at once, and not command by
/// command.
///
/// Each command is looked at alone, without the effects of those before it: what it asks for is a guess, and one that is wrong costs a read.
pub(crate) fn want(
    server: &Server,
    stop: &Stop,
    wanted: Wanted,
    transaction: &Transaction,
    mut state: ConnectionState,
    prepared: &mut Prepared,
) {
    prepared.want(wanted);
    if !matches!(stop, Stop::Cold) {
        return;
    }
    let look = |prepared: &Prepared| {
        let (mut all, mut count) = (Vec::new(), 0);
        for queued in &transaction.queue {
            let (args, ConnectionState { db, resp3 }) = (queued.args.view(&[]), state);
            if let Handler::Data(handler) | Handler::Across(handler, _) = table::handler(queued.entry) {
                let mut keys = Vec::new();
                collect_keys(queued.entry, db, args, &mut keys);
                let (scope, effects) = (Scope::Keys(&keys), Effects::Commit);
                let (moment, growth_bytes, origin) = (None, 0, Origin::default());
                let effort_max = Some(EFFORT_MAX);
                let plan = Plan { scope, prepared, moment, growth_bytes, origin, effort_max, effects };
                let step =
                    Step { entry: None, handler, args, db, resp3, ready: Ready::default(), in_parts: false };
                let wanted = server.runner().look(step, &plan);
                count += wanted.count();
                all.push(wanted);
            }
            if count >= WANTED_MAX {
                break;
            }
            pass(&mut state, server, queued);
        }
        all
    };
    let all = prepared.without_leaves(look);
    all.into_iter().for_each(|wanted| prepared.want(wanted));
}

/// Keeps what EXEC needs when it runs again.
fn put_back(
    session: &mut Session,
    transaction: Box<Transaction>,
    watched: Vec<store::Watch>,
    watched_bytes: u64,
    retained: Retained,
) {
    session.watch(watched, watched_bytes);
    session.transaction = Some(transaction);
    session.pending.get_or_insert_default().retained = retained;
}

/// Does what is to be done once the data commands have happened; their replies are in `out`.
pub(crate) fn finish(
    server: &Arc<Server>,
    session: &mut Session,
    request: &Request<'_>,
    transaction: &mut Transaction,
    state: ConnectionState,
    mut executed: Executed,
    out: &mut Vec<u8>,
) -> Ran {
    if executed.ran {
        monitor(server, &session.client, state, transaction);
        server.monitors.feed(std::mem::take(&mut executed.monitored));
    }
    session.ticket = session.ticket.and(executed.ticket);
    server.pubsub.deliver(std::mem::take(&mut executed.outbox), session.ticket);
    act(server, session, request, transaction, &mut executed, out);
    eval::finish(server, session, request.loop_index, executed)
}

/// When it may run, if it must wait: after a wrong password, or as [`ready_to_publish`] says.
fn exec_at(
    server: &Server,
    session: &mut Session,
    transaction: &Transaction,
    now: Nanos,
) -> Result<Option<Nanos>, Failure> {
    let takes_password = |it: &Queued| matches!(it.entry.command.name, "auth" | "hello");
    if transaction.queue.iter().any(takes_password)
        && let Some(later) = server.strangers.password_at(&mut session.stranger, &session.client, now)
    {
        return Ok(Some(later));
    }
    ready_to_publish(server, session, transaction, now)
}

/// Looks for the patterns that what it publishes matches, slice by slice: when it has run it does not wait any more. Returns
/// when to go on, if it must wait: for the next slice, or because too much is on its way to listeners.
fn ready_to_publish(
    server: &Server,
    session: &mut Session,
    transaction: &Transaction,
    now: Nanos,
) -> Result<Option<Nanos>, Failure> {
    let is = |name| move |it: &&Queued| it.entry.command.name == name;
    let mut queue = transaction.queue.iter().filter(is("publish")).peekable();
    if queue.peek().is_none() {
        let publishes = transaction.queue.iter().any(|it| is("spublish")(&it));
        return Ok(if publishes { server.pubsub.publish_at(now) } else { None });
    }
    let publishing = &mut session.pending.get_or_insert_default().publishing;
    let (mut steps_left, mut matches) = (SLICE_STEPS, 0);
    for (index, queued) in queue.enumerate() {
        let args = queued.args.view(&[]);
        let (channel, payload) = (args.get(1), args.get(2));
        if index == publishing.len() {
            publishing.push_back(Publishing::new(channel, payload));
        }
        let walk = &mut publishing[index].walk;
        if channel.len() <= CHANNEL_BYTES_MAX && !server.pubsub.walk_patterns(channel, walk, &mut steps_left)
        {
            return Ok(Some(now));
        }
        matches += walk.found.len();
        if matches > EXEC_MATCHES_MAX {
            return Err(errors::too_many_matches(EXEC_MATCHES_MAX));
        }
    }
    Ok(server.pubsub.publish_at(now))
}

/// Runs the control commands of a transaction whose data is committed, and puts their replies between the others.
fn act(
    server: &Arc<Server>,
    session: &mut Session,
    request: &Request<'_>,
    transaction: &mut Transaction,
    executed: &mut Executed,
    out: &mut Vec<u8>,
) {
    let later = std::mem::take(&mut executed.later);
    let Some(first) = later.first().map(|(_, at)| *at) else { return };
    let (mut outbox, mut memory) = (Outbox::new(), ReplyMemory::default());
    let (data, mut taken, most) = (out.split_off(first), 0, server.tuned.sizes.reply_bytes_max());
    let (mut inserted, mut inserted_bytes) = (Vec::with_capacity(later.len()), 0);
    for (number, at) in later {
        let queued = &mut transaction.queue[number];
        Writer::new(out, session.resp3).raw(&data[taken..at - first]);
        taken = at - first;
        let before = out.len();
        let reply_bytes = before - executed.start + data.len() - taken + executed.attached.bytes();
        let admitted = if reply_bytes >= most {
            Err(commands::failure::reply_too_large(most))
        } else {
            memory.begin(&server.store, inserted_bytes)
        };
        let (ticket, failed) = match admitted {
            Ok(()) => act_one(server, session, queued, request, &mut outbox, &mut memory, out),
            Err(failure) => {
                server.stats.write_failure(failure, session.resp3, out);
                (Ticket::NOTHING, true)
            }
        };
        inserted.push((at, out.len() - before));
        inserted_bytes += out.len() - before;
        executed.ticket = executed.ticket.and(ticket);
        executed.calls.push((queued.entry.id, failed));
    }
    Writer::new(out, session.resp3).raw(&data[taken..]);
    executed.attached.make_room(&inserted);
    server.pubsub.deliver(outbox, session.ticket);
}

/// Runs one control command; returns what its reply depends on, and whether it failed.
fn act_one(
    server: &Arc<Server>,
    session: &mut Session,
    queued: &mut Queued,
    request: &Request<'_>,
    outbox: &mut Outbox,
    memory: &mut ReplyMemory,
    out: &mut Vec<u8>,
) -> (Ticket, bool) {
    let Handler::Control(handle) = table::handler(queued.entry) else {
        unreachable!("only control commands are put off");
    };
    // a command before it may have logged in somebody else, or changed the rules
    server.acl.refresh(&mut session.member, &session.client);
    if let Err(failure) = may_still_run(server, &session.member.permissions, queued, session.db) {
        server.stats.write_failure(failure, session.resp3, out);
        return (Ticket::NOTHING, true);
    }
    let ahead = queued.ahead.take();
    if let Some(Ok(Ahead::Reply(reply))) = ahead.as_deref() {
        Writer::new(out, session.resp3).raw(reply);
        return (Ticket::NOTHING, false);
    }
    let (start, mut writer) = (out.len(), Writer::new(out, session.resp3));
    let (now, behind, in_exec, ticket) = (request.now, &[][..], true, Ticket::NOTHING);
    let mut control = Control { server, session, now, behind, in_exec, outbox, ticket, memory, ahead };
    let outcome = handle(&mut control, queued.args.view(&[]), &mut writer);
    let (ticket, failed) = (control.ticket, outcome.is_err());
    if let Err(failure) = outcome {
        out.truncate(start);
        server.stats.write_failure(failure, session.resp3, out);
    }
    (ticket, failed)
}

/// Whether a command may still run that was allowed when it was queued; `db` is where it runs.
fn may_still_run(
    server: &Server,
    permissions: &Permissions,
    queued: &Queued,
    db: u16,
) -> Result<(), Failure> {
    if permissions.user.is_none() {
        return Ok(());
    }
    let args = queued.args.view(&[]);
    permit::check(server, permissions, queued.entry, args, Some(db), AclContext::Exec)
}

/// Lets `state` go past a command.
fn pass(state: &mut ConnectionState, server: &Server, queued: &Queued) {
    let args = queued.args.view(&[]);
    match queued.entry.command.name {
        "select" => state.db = selected(server, args.get(1)).unwrap_or(state.db),
        "hello" => state.resp3 = greeted(server, args).unwrap_or(state.resp3),
        _ => {}
    }
}

/// Shows the commands of a transaction that began as `state` tells to everybody in MONITOR, in their order.
fn monitor(server: &Server, client: &Client, mut state: ConnectionState, transaction: &Transaction) {
    if server.monitors.is_empty() {
        return;
    }
    for queued in &transaction.queue {
        server.monitors.show(client, state.db, queued.entry, queued.args.view(&[]));
        pass(&mut state, server, queued);
    }
}

/// Adds the keys of all queued commands, each in the database that it will run in; returns whether one of them
/// needs everything.
pub(crate) fn gather<'a>(
    server: &Server,
    queue: &'a [Queued],
    mut state: ConnectionState,
    keys: &mut Vec<KeyRef<'a>>,
) -> bool {
    let mut everything = false;
    for queued in queue {
        everything |= matches!(queued.entry.command.kind, Kind::Everything | Kind::Walk);
        collect_keys(queued.entry, state.db, queued.args.view(&[]), keys);
        pass(&mut state, server, queued);
    }
    everything
}

/// What a transaction asks for at a time, and what one command asks for beyond it.
const WANTED_MAX: usize = 4_096;
/// Patterns that all messages of a transaction may match: they are sent at once.
const EXEC_MATCHES_MAX: usize = 65_536;
/// A command of more keys turns to each of them by itself.
const TURN_KEYS_MAX: usize = 16;
