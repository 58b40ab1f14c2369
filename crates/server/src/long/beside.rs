//! How a long command runs on a thread beside the loops, and what it then comes to on its own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use commands::call::{DataFn, Failure};
use commands::command::{Flags, Kind};
use commands::copies::Copies;
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::{Args, ArgsView, Writer};
use store::{KeyRef, Prepared, Scope, Stop, Store, StoreError, Wanted, Watch};
use ticket::Ticket;

use super::Begin;
use super::job::{Context, Done, End, Given, Job, Long, Work};
use crate::admission;
use crate::blocked;
use crate::eval;
use crate::exec::{self, Run};
use crate::halted;
use crate::handlers::transactions::watch_keys;
use crate::handlers::{command, function, scripts};
use crate::lines::Spot;
use crate::look::{Look, may_wait};
use crate::message::Message;
use crate::outcome::{Ran, Unready};
use crate::reads::Reads;
use crate::request::Request;
use crate::run::{
    Answered, Body, Effects, Halt, Plan, Single, Step, Stopped, Tried, Within, collect_keys,
    until_keys_are_known,
};
use crate::server::Server;
use crate::session::Session;
use crate::transaction::{Caller, ConnectionState, Queued, Transaction};
use crate::tx::stage;
use crate::tx::staged::COMMAND_AT;

/// Has `job` run; its connection is parked until [`Message::LongDone`].
pub(crate) fn start(server: &Arc<Server>, session: &mut Session, mut job: Box<Job>) {
    let waits = || matches!(job.work, Work::Data(_)) && may_wait(job.entry, job.args.view(&[]));
    if job.looks_at.is_some() || waits() {
        session.client.look.begin();
        job.looker = Some(Arc::clone(&session.client));
    }
    session.pending.get_or_insert_default().long = Some(Long::Out);
    server.long.hold(job.held_bytes());
    job.prepared.end_when(server.long.enter(job.client, admission::writes(job.entry, job.queue())));
    let of_thread = Arc::clone(server);
    server.long.call_in_background(Box::new(move || run(&of_thread, job)));
}

/// Runs it, and tells its connection.
fn run(server: &Arc<Server>, mut job: Box<Job>) {
    let (client, now, mut out) = (job.client, server.clock.now(), Vec::new());
    let end = match server.long.begin(client, |writes| server.pause.holds_back(writes, now)) {
        Begin::Runs => Some(run_job(server, &mut job, &mut out)),
        // Its loop parks it.
        Begin::Paused => Some(End::Later(now)),
        Begin::Abandoned => None,
    };
    let end = end.map(|end| match (end, &job.work) {
        (End::Blocked(wait), Work::Data(handler)) if job.looks_at.is_none() => {
            match blocked::stand(server, &job, *handler, *wait) {
                Ok(in_line) => End::InLine(in_line),
                Err(stop) => End::Stopped(stop),
            }
        }
        (end, _) => end,
    });
    server.long.give_back(job.held_bytes());
    // Its own connection does so, too, but may be gone.
    blocked::serve_changed(server);
    // Before its connection hears of it, which may begin the next one.
    let left = server.long.leave(client);
    if let Some(end) = end {
        server.peers.post(client, Message::LongDone(Box::new(Done { job, out, end })));
    }
    // Whoever waits for its end is told last.
    drop(left);
}

/// Runs it until it is done or has to wait for what others do.
fn run_job(server: &Arc<Server>, job: &mut Job, out: &mut Vec<u8>) -> End {
    let mut reads = Reads::default();
    loop {
        out.clear();
        let (stop, wanted) = match try_job(server, job, out) {
            Ok(end) => return end,
            Err(stopped) => stopped,
        };
        if !matches!(stop, Stop::Cold) {
            job.prepared.want(wanted);
            return End::Stopped(stop);
        }
        if let Err(failure) = reads.begin(server.clock.now()) {
            server.stats.fetches_given_up.fetch_add(1, Ordering::Relaxed);
            return End::NeverReady(failure);
        }
        match &job.work {
            Work::Exec { transaction, state, .. } => {
                exec::want(server, &stop, wanted, transaction, *state, &mut job.prepared);
            }
            _ => job.prepared.want(wanted),
        }
        job.prepared.bound_values(server.tuned.sizes.reply_bytes_max() as u64);
        server.stats.fetches.fetch_add(1, Ordering::Relaxed);
        let (fetched, done) = mpsc::channel();
        server
            .store
            .fetch(std::mem::take(&mut job.prepared), Box::new(move |prepared| _ = fetched.send(prepared)));
        match done.recv() {
            Ok(prepared) => job.prepared = prepared,
            Err(_) => return End::Stopped(StoreError::Journal("the store is closed".to_owned()).into()),
        }
    }
}

/// Runs it once. A stop comes with the records that it missed; after [`Stop::Cold`] all that its keys miss are asked for.
fn try_job(server: &Arc<Server>, job: &mut Job, out: &mut Vec<u8>) -> Result<End, Stopped> {
    let mut prepared = std::mem::take(&mut job.prepared);
    let mut keys = Vec::new();
    let context = Context {
        entry: job.entry,
        args: job.args.view(&[]),
        bytes: job.bytes,
        caller: job.caller,
        prepared: &prepared,
        copies: &mut job.copies,
        retained: &mut job.retained,
    };
    let result = match &mut job.work {
        Work::Data(run) => {
            let look = job.looker.as_ref().map(|client| &client.look);
            let result = run_data(server, context, *run, &job.looks_at, look, out);
            if let (Err(_), Some(look)) = (&result, look) {
                look.miss();
            }
            result
        }
        Work::Exec { transaction, watched, state } => {
            exec_beside(server, context, transaction, watched, *state, out)
        }
        Work::Script(invoked) => eval::run_beside(server, context, *invoked, out),
        Work::Stage(staged) => {
            let args = job.args.view(&[]).from(COMMAND_AT);
            collect_keys(staged.entry, job.caller.db, args, &mut keys);
            let context = Context { args, ..context };
            let mut work = staged.lock();
            stage::stage(server, context, staged, &mut work, &keys, true, out).map(End::Ran)
        }
        Work::Given(given) => Ok(run_given(server, job.entry, job.caller, *given, &job.args, out)),
        Work::Watch { watched } => {
            Ok(End::Watched(watch_keys(server, job.caller.db, watched, job.args.view(&[]))))
        }
    };
    if matches!(result, Err((Stop::Cold, _))) {
        match &job.work {
            Work::Exec { transaction, watched, state } => {
                exec::keys_of(server, transaction, watched, *state, &job.retained, &mut keys);
            }
            Work::Data(_) | Work::Script(_) => {
                keys = keys_of(job.entry, job.caller.db, job.args.view(&[]), &job.looks_at);
                keys.extend(job.retained.keys());
            }
            _ => {}
        }
        server.store.missing(&keys, &mut prepared);
    }
    drop(keys);
    job.prepared = prepared;
    result
}

/// Runs a control command that works on `args` alone.
fn run_given(
    server: &Server,
    entry: &Entry,
    caller: Caller,
    given: Given,
    args: &Args,
    out: &mut Vec<u8>,
) -> End {
    let (name, args) = (entry.command.name, args.view(&[]));
    let has_code = matches!(given, Given::Script | Given::Library | Given::Libraries);
    let begin = || {
        let name = name.as_bytes().to_vec();
        server.scripts.begin(name.clone(), given != Given::Script, vec![name], server.clock.now())
    };
    let guard = has_code.then(begin);
    let (running, mut writer) = (guard.as_ref().map(|guard| &guard.running), Writer::new(out, caller.resp3));
    let told = |()| Ticket::NOTHING;
    let result = match given {
        Given::Script => scripts::load_beside(server, args, &mut writer),
        Given::Exists => scripts::exists_beside(server, args, &mut writer).map(told),
        Given::Library => function::load_beside(server, args, running, &mut writer),
        Given::Libraries => function::restore_beside(server, args, running, &mut writer),
        Given::Keys => command::getkeys_beside(server, args, &mut writer).map(told),
        Given::KeysAndFlags => command::getkeysandflags_beside(server, args, &mut writer).map(told),
    };
    match result {
        Ok(ticket) => End::Ran(Ran::plain(ticket, false)),
        Err(Failure::Wait(later)) => End::Later(later),
        Err(failure) => {
            out.clear();
            server.stats.write_failure(failure, caller.resp3, out);
            End::Ran(Ran::plain(Ticket::NOTHING, true))
        }
    }
}

/// EXEC, with claimed keys, or with all of them locked if its scripts need that.
fn exec_beside(
    server: &Server,
    context: Context<'_>,
    transaction: &mut Transaction,
    watched: &[Watch],
    state: ConnectionState,
    out: &mut Vec<u8>,
) -> Result<End, Stopped> {
    let Context { caller, prepared, copies, retained, .. } = context;
    let is_script = |queued: &Queued| matches!(queued.entry.command.kind, Kind::Script(_));
    let writes = |queued: &Queued| queued.entry.command.flags.has(Flags::WRITE) || is_script(queued);
    let writes = transaction.queue.iter().any(writes);
    eval::begin(server, retained);
    let guard = server.scripts.begin(b"exec".to_vec(), false, vec![b"EXEC".to_vec()], server.clock.now());
    exec::work_ahead(server, transaction, state, &guard.running);
    let transaction = &*transaction;
    let tried = until_keys_are_known(retained, |retained| {
        let mut keys = Vec::new();
        let everything = exec::keys_of(server, transaction, watched, state, retained, &mut keys);
        let scope = if everything { Scope::Everything } else { Scope::Claimed { keys: &keys, writes } };
        let beside = Some((&guard.running, &keys[..]));
        let run = Run::new(server, transaction, watched, state, retained, beside);
        server
            .runner()
            .run(&run, run.plan(scope, prepared, caller.origin), copies, out)
            .map(|(executed, ticket)| executed.committed(ticket))
    });
    Ok(match tried? {
        Tried::Done(executed) => End::Executed(executed),
        Tried::Later(later) => End::Later(later),
    })
}

/// The keys of a command, or those that it needs to look at one of them.
fn keys_of<'a>(entry: &Entry, db: u16, args: ArgsView<'a>, looks_at: &'a Option<Spot>) -> Vec<KeyRef<'a>> {
    if let Some((db, key)) = looks_at {
        return blocked::keys_to_look_at(entry, args, *db, key);
    }
    let mut keys = Vec::new();
    collect_keys(entry, db, args, &mut keys);
    keys
}

fn run_data(
    server: &Arc<Server>,
    context: Context<'_>,
    run: DataFn,
    looks_at: &Option<Spot>,
    look: Option<&Look>,
    out: &mut Vec<u8>,
) -> Result<End, Stopped> {
    let Context { entry, args, bytes, caller: Caller { db, resp3, origin }, prepared, copies, retained } =
        context;
    let writes = entry.command.flags.has(Flags::WRITE);
    let ready = match looks_at {
        Some((_, key)) => Ready::Changed(key),
        None if entry.command.flags.has(Flags::BLOCKING) => Ready::Waits,
        None => Ready::AnswersAtOnce,
    };
    let step = Step { entry: Some(entry), handler: run, args, db, resp3, ready, in_parts: false };
    let (moment, growth_bytes, effort_max) = (None, entry.growth_bytes(bytes), None);
    // what looks for keys in vain may get in line for all of them: others only hold what their requests come to
    let _asked = match ready {
        Ready::Waits => {
            let look_bytes = (entry.command.count_keys(args) * LOOK_BYTES) as u64;
            Some(server.store.ask_memory(look_bytes).map_err(|stop| (stop, Wanted::default()))?)
        }
        _ => None,
    };
    let tried = until_keys_are_known(retained, |retained| {
        let mut keys = keys_of(entry, db, args, looks_at);
        keys.extend(retained.keys());
        let scope = match entry.command.kind {
            Kind::Walk => Scope::Walk,
            Kind::Everything => Scope::Everything,
            _ => Scope::Claimed { keys: &keys, writes },
        };
        let effects = Effects::Commit;
        let plan = Plan { scope, prepared, moment, growth_bytes, origin, effort_max, effects };
        let body = Looking { single: Single { step, stored: entry.command.stored }, look };
        server.runner().run(&body, plan, copies, out)
    });
    Ok(match tried? {
        Tried::Done((None, _)) => End::Unblocked,
        Tried::Done((Some(Answered { blocked: Some(wait), .. }), _)) => End::Blocked(wait),
        Tried::Done((Some(answered), ticket)) => End::Ran(Ran::answered(answered, ticket)),
        Tried::Later(later) => End::Later(later),
    })
}

/// A single command, which may look for something.
struct Looking<'a> {
    single: Single<'a>,
    /// Its look, if it waits.
    look: Option<&'a Look>,
}

impl Body for Looking<'_> {
    /// `None`: CLIENT UNBLOCK came before it found something.
    type Done = Option<Answered>;

    fn run(
        &self,
        within: &mut Within<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Answered>, Halt<Option<Answered>>> {
        let answered = within.step(0, self.single.step, out)?;
        let may_have = answered.blocked.is_some() || self.look.is_none_or(Look::find);
        if may_have { Ok(Some(answered)) } else { Err(Halt::GivenUp(None)) }
    }

    fn copy_stored(&self, store: &Store, copies: &mut Copies) {
        self.single.copy_stored(store, copies);
    }

    fn args(&self, command: usize) -> ArgsView<'_> {
        self.single.args(command)
    }
}

/// Appends `reply` to `out`. Of a large one there is no second copy meanwhile, which nobody asked for.
fn put_behind(out: &mut Vec<u8>, mut reply: Vec<u8>) {
    if reply.len() > out.len() {
        reply.reserve_exact(out.len());
        reply.splice(0..0, out.iter().copied());
        *out = reply;
    } else {
        out.extend_from_slice(&reply);
    }
}

/// What a long command that came back comes to: a reply, or another wait.
pub(crate) fn end_long(
    server: &Arc<Server>,
    session: &mut Session,
    request: &Request<'_>,
    job: &mut Job,
    end: End,
    reply: Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let start = out.len();
    if let Some(client) = job.looker.take()
        && let Some(with_error) = blocked::end_look(server, &client)
    {
        return Ok(blocked::answer_unblocked(server, session, with_error, out));
    }
    put_behind(out, reply);
    match end {
        End::Unblocked => unreachable!("its look was unblocked"),
        End::Ran(mut ran) => {
            ran.attached.make_room(&[(0, start)]);
            if job.looks_at.is_some() {
                blocked::is_back(server, session, true);
            }
            Ok(ran)
        }
        End::Executed(mut executed) => {
            executed.make_room(start);
            Ok(match &mut job.work {
                Work::Exec { transaction, state, .. } => {
                    exec::finish(server, session, request, transaction, *state, executed, out)
                }
                _ => eval::finish(server, session, request.loop_index, executed),
            })
        }
        End::Watched(outcome) => Ok(end_watch(server, session, &mut job.work, outcome, out)),
        End::Later(later) => {
            out.truncate(start);
            Err(Unready::Until(later))
        }
        End::InLine(in_line) => {
            out.truncate(start);
            blocked::has_stood(server, session, job.entry, request, in_line, out)
        }
        End::Blocked(wait) => {
            out.truncate(start);
            let spot = job.looks_at.take();
            blocked::has_found_nothing(server, session, job.entry, request, spot, &wait, out)
        }
        End::Stopped(stop) => {
            out.truncate(start);
            let (prepared, copies) = (Prepared::default(), Copies::default());
            let result = halted::wait(server, stop, session, prepared, copies, &[], out);
            if job.looks_at.take().is_some() {
                blocked::is_back(server, session, result.is_ok());
            }
            result
        }
        End::NeverReady(failure) => {
            out.truncate(start);
            server.stats.write_failure(failure, session.resp3, out);
            if job.looks_at.is_some() {
                blocked::is_back(server, session, true);
            }
            Ok(Ran::plain(server.store.newest(), true))
        }
    }
}

/// The keys of WATCH are watched, or not.
fn end_watch(
    server: &Server,
    session: &mut Session,
    work: &mut Work,
    outcome: Result<u64, Failure>,
    out: &mut Vec<u8>,
) -> Ran {
    if let Work::Watch { watched } = work {
        let bytes = *outcome.as_ref().unwrap_or(&session.watched_bytes());
        session.watch(std::mem::take(watched), bytes);
        session.show_transaction();
    }
    let failed = outcome.is_err();
    match outcome {
        Ok(_) => Writer::new(out, session.resp3).ok(),
        Err(failure) => server.stats.write_failure(failure, session.resp3, out),
    }
    Ran::plain(Ticket::NOTHING, failed)
}

/// What a key takes that is claimed.
const LOOK_BYTES: usize = 100;
