//! EVAL, EVALSHA, FCALL: from the request to a script's effects, as one group of the journal or not at all.
//!
//! ```text
//!  request -> invocation -> attempt, on the loop -> commit -> messages, counters -> reply
//!                             |- a key that nobody named, and cannot be locked at once: once more with it
//!                             |- cold, busy, locked: parked, and once more (`halted`)
//!                             '- longer than LOOP_TIME_MAX: beside the loop, over claimed keys (`long`)
//! ```
//!
//! Invariants
//!   1. An attempt that does not come to its end leaves no trace: effects are committed, and messages sent, when it has.
//!   2. Each attempt sees the same time in TIME, and the same chance.
//!   3. A script that fails keeps what it has done, as in Redis; one that is stopped (time, memory, SCRIPT KILL) has done nothing.
//!
//! | module | what |
//! |---|---|
//! | `attempt` | one run, in an access that is open: alone, or as one command of EXEC |
//! | `calls` | what `redis.call` does |
//!
//! Decision: docs/adr/0028-scripts.md. Out of scope: Lua (`script`).

pub(crate) mod attempt;
mod calls;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use attempt::Attempt;
use commands::call::{Failure, text};
use commands::command::{By, Invoked};
use commands::copies::Copies;
use commands::lookup::Entry;
use resp::{ArgsView, parse_i64};
use script::cache::{Digest, Running, Script};
use script::library::Library;
use script::{Code, Inputs, is_long_source};
use store::{KeyRef, Prepared, Scope, Stop};
use ticket::Ticket;

use crate::calls::Ending;
use crate::halted;
use crate::handlers::scripts::{compiled, found};
use crate::long::EFFORT_MAX;
use crate::long::job::{Context, End, Job, Work};
use crate::outcome::{Executed, Ran, Unready};
use crate::request::Request;
use crate::retained::Retained;
use crate::run::{Effects, Halt, Plan, Stopped, Tried, collect_keys, until_keys_are_known};
use crate::server::Server;
use crate::session::Session;
use crate::transaction::Origin;

/// What a request runs.
#[derive(Debug)]
pub(crate) struct Invocation<'a> {
    what: What<'a>,
    args: ArgsView<'a>,
    keys: usize,
    /// It may change nothing.
    no_writes: bool,
}

#[derive(Debug)]
enum What<'a> {
    Script(Arc<Script>),
    Function(Arc<Library>, &'a [u8]),
}

impl<'a> Invocation<'a> {
    /// What `args` ask for.
    ///
    /// # Errors
    /// The reply.
    pub(crate) fn new(server: &Server, invoked: Invoked, args: ArgsView<'a>) -> Result<Self, Failure> {
        let function = match invoked.by {
            By::Name => {
                let library = server.scripts.libraries().with_function(args.get(1)).cloned();
                Some(library.ok_or_else(|| Failure::from("ERR Function not found"))?)
            }
            By::Digest if args.get(1).len() != 40 => {
                return Err("NOSCRIPT No matching script. Please use EVAL.".into());
            }
            _ => None,
        };
        let keys = count_of_keys(invoked, args)?;
        let (what, flags) = match (function, invoked.by) {
            (Some(library), _) => {
                let flags = library.function(args.get(1)).map(|function| function.flags);
                (What::Function(library, args.get(1)), flags)
            }
            (None, By::Digest) => script(found(server, args.get(1))?),
            (None, _) => script(compiled(server, args.get(1), false)?),
        };
        let says_so = flags.is_some_and(|flags| flags.no_writes());
        if matches!(what, What::Function(..)) && invoked.read_only && !says_so {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        if matches!(what, What::Script(_)) && invoked.read_only && flags.is_some() && !says_so {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        Ok(Self { what, args, keys, no_writes: invoked.read_only || says_so })
    }

    fn code(&self) -> Code<'_> {
        match &self.what {
            What::Script(script) => Code::Script(script),
            What::Function(library, name) => Code::Function(library, name),
        }
    }

    fn inputs(&self, seed: u64) -> Inputs<'a> {
        Inputs { args: self.args, keys_at: KEYS_AT, keys: self.keys, seed }
    }

    fn is_function(&self) -> bool {
        matches!(self.what, What::Function(..))
    }

    /// Notes whether it took longer than a loop waits.
    fn set_slow(&self, is_slow: bool) {
        if let What::Script(script) = &self.what
            && script.is_slow.load(Ordering::Relaxed) != is_slow
        {
            script.is_slow.store(is_slow, Ordering::Relaxed);
        }
    }

    /// Whether it is run beside the loops from the beginning.
    fn is_slow(&self) -> bool {
        match &self.what {
            What::Script(script) => {
                script.is_slow.load(Ordering::Relaxed) || is_long_source(script.source.len())
            }
            What::Function(library, _) => {
                library.loads_slowly.load(Ordering::Relaxed) || is_long_source(library.code.len())
            }
        }
    }
}

fn script<'a>(script: Arc<Script>) -> (What<'a>, Option<script::library::FunctionFlags>) {
    let flags = script.flags;
    (What::Script(script), flags)
}

/// Whether the script or function that `args` ask for has such a source.
pub(crate) fn has_long_source(server: &Server, invoked: Invoked, args: ArgsView<'_>) -> bool {
    let bytes = match invoked.by {
        By::Source => Some(args.get(1).len()),
        By::Digest => Digest::parse(args.get(1))
            .and_then(|digest| server.scripts.find(&digest))
            .map(|script| script.source.len()),
        By::Name => server.scripts.libraries().with_function(args.get(1)).map(|library| library.code.len()),
    };
    bytes.is_some_and(is_long_source)
}

/// How many keys the request names.
fn count_of_keys(invoked: Invoked, args: ArgsView<'_>) -> Result<usize, Failure> {
    let wrong = match invoked.by {
        By::Name => "ERR Bad number of keys provided",
        _ => text::NOT_INTEGER,
    };
    let count = parse_i64(args.get(2)).ok_or_else(|| Failure::from(wrong))?;
    if count > args.len() as i64 - 3 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}

/// Begins to keep what each attempt sees alike: the time of the first one, and chance.
pub(crate) fn begin(server: &Server, retained: &mut Retained) {
    if retained.time_us == 0 {
        (retained.time_us, retained.seed) = (server.clock.unix_us(), server.store.random());
    }
}

/// Runs the script of `request`, here or beside the loop.
pub(crate) fn run(
    server: &Arc<Server>,
    session: &mut Session,
    entry: &'static Entry,
    invoked: Invoked,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Ran, Unready> {
    let mut retained = session.take_retained();
    begin(server, &mut retained);
    if matches!(invoked.by, By::Source) && is_long_source(request.args.get(1).len()) {
        return Err(Unready::Beside(beside(session, entry, invoked, request, retained)));
    }
    let invocation = match Invocation::new(server, invoked, request.args) {
        Ok(invocation) => invocation,
        Err(failure) => {
            server.stats.write_failure(failure, session.resp3, out);
            return Ok(Ran::plain(Ticket::NOTHING, true));
        }
    };
    if invocation.is_slow() || server.long.is_long(session.db, entry, request.args) {
        return Err(Unready::Beside(beside(session, entry, invoked, request, retained)));
    }
    let (caller, mut prepared) = (session.caller(), session.take_prepared());
    let mut copies = session.take_copies().into_closed();
    let tried = until_keys_are_known(&mut retained, |retained| {
        let keys = keys_of(entry, caller.db, request.args, retained);
        let scope = if retained.everything { Scope::Everything } else { Scope::Keys(&keys) };
        let attempt = Attempt::new(server, &invocation, caller.into(), retained);
        let plan = attempt.plan(scope, &prepared, Some(request.moment), request.bytes, caller.origin);
        server
            .runner()
            .run(&attempt, plan, &mut copies, out)
            .map(|(executed, ticket)| executed.committed(ticket))
    });
    match tried {
        Ok(Tried::Done(executed)) => Ok(finish(server, session, request.loop_index, executed)),
        Ok(Tried::Later(later)) => {
            session.pending.get_or_insert_default().retained = retained;
            Err(Unready::Until(later))
        }
        Err((Stop::Long, _)) => {
            invocation.set_slow(true);
            let mut job = beside(session, entry, invoked, request, retained);
            job.prepared = prepared;
            Err(Unready::Beside(job))
        }
        Err((stop, wanted)) => {
            prepared.want(wanted);
            let keys = keys_of(entry, caller.db, request.args, &retained);
            let result = halted::wait(server, stop, session, prepared, copies, &keys, out);
            drop(keys);
            retained.fetches += 1;
            if result.is_err() {
                session.pending.get_or_insert_default().retained = retained;
            }
            result
        }
    }
}

/// The keys that a script touches: those that its request names, and those that its attempts have met.
fn keys_of<'a>(entry: &Entry, db: u16, args: ArgsView<'a>, retained: &'a Retained) -> Vec<KeyRef<'a>> {
    let mut keys = Vec::new();
    collect_keys(entry, db, args, &mut keys);
    keys.extend(retained.keys());
    keys
}

fn beside(
    session: &mut Session,
    entry: &'static Entry,
    invoked: Invoked,
    request: &Request<'_>,
    retained: Retained,
) -> Box<Job> {
    let mut job = Job::new(session, entry, request, Work::Script(invoked));
    job.retained = retained;
    job
}

/// Runs the script of a job, on a thread that may wait.
pub(crate) fn run_beside(
    server: &Server,
    context: Context<'_>,
    invoked: Invoked,
    out: &mut Vec<u8>,
) -> Result<End, Stopped> {
    let Context { entry, args, bytes, caller, prepared, retained, .. } = context;
    let invocation = match Invocation::new(server, invoked, args) {
        Ok(invocation) => invocation,
        Err(failure) => {
            server.stats.write_failure(failure, caller.resp3, out);
            return Ok(End::Ran(Ran::plain(Ticket::NOTHING, true)));
        }
    };
    let shown = || args.iter().take(SHOWN_WORDS).map(<[u8]>::to_vec).collect();
    let (name, is_function) = (invocation.code().name(), invocation.is_function());
    let guard = server.scripts.begin(name, is_function, shown(), server.clock.now());
    let mut took = Duration::ZERO;
    let tried = until_keys_are_known(retained, |retained| {
        let writes = !invocation.no_writes;
        let keys = keys_of(entry, caller.db, args, retained);
        let scope =
            if retained.everything { Scope::Everything } else { Scope::Claimed { keys: &keys, writes } };
        let attempt =
            Attempt::new(server, &invocation, caller.into(), retained).beside(&guard.running, &keys);
        let plan = attempt.plan(scope, prepared, None, bytes, caller.origin);
        let result = server
            .runner()
            .run(&attempt, plan, &mut Copies::closed(), out)
            .map(|(executed, ticket)| executed.committed(ticket));
        took = attempt.took();
        drop(keys);
        retained.spent += took;
        result
    });
    match tried? {
        Tried::Done(executed) => {
            invocation.set_slow(took > LOOP_TIME_MAX / 2);
            Ok(End::Executed(executed))
        }
        Tried::Later(later) => Ok(End::Later(later)),
    }
}

/// Does what is to be done once the effects of a script, or of EXEC, are committed; of EXEC when its control commands have run.
pub(crate) fn finish(server: &Server, session: &mut Session, loop_index: usize, executed: Executed) -> Ran {
    let Executed { ticket, attached, calls, failed, outbox, monitored, lookups, .. } = executed;
    session.ticket = session.ticket.and(ticket);
    for (id, failed) in calls {
        let ending = if failed { Ending::Failed } else { Ending::Answered };
        server.calls.note(loop_index, id, None, ending);
    }
    server.monitors.feed(monitored);
    server.pubsub.deliver(outbox, session.ticket);
    Ran { lookups, attached, ..Ran::plain(ticket, failed) }
}

/// Until when a script may run that has run for `spent`, beside its loop if it is `running` there.
fn time_max(server: &Server, running: Option<&Arc<Running>>, retained: &Retained) -> Duration {
    if running.is_none() {
        return LOOP_TIME_MAX;
    }
    let limit = Duration::from_nanos(server.tuned.script_ns_max.load(Ordering::Relaxed));
    let limit = if retained.everything { limit / EVERYTHING_SHARE } else { limit };
    limit.saturating_sub(retained.spent)
}

impl Attempt<'_> {
    /// How it is run, over keys that are known; the request has so many `bytes`, and `origin` as in [`Plan`].
    fn plan<'p>(
        &self,
        scope: Scope<'p>,
        prepared: &'p Prepared,
        moment: Option<store::Moment>,
        bytes: usize,
        origin: Origin,
    ) -> Plan<'p> {
        let growth_bytes = if self.invocation.no_writes { 0 } else { bytes as u64 };
        let effort_max = if self.running.is_some() { None } else { Some(EFFORT_MAX) };
        Plan { scope, prepared, moment, growth_bytes, origin, effort_max, effects: Effects::Commit }
    }
}

impl crate::run::Body for Attempt<'_> {
    type Done = Executed;

    fn run(
        &self,
        within: &mut crate::run::Within<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<Executed, Halt<Executed>> {
        self.make(within, 0, out).map_err(|halt| {
            halt.map(|text| {
                self.server.stats.write_failure(Failure::Bytes(text), self.state.resp3, out);
                Executed::refused()
            })
        })
    }

    fn copy_stored(&self, _: &store::Store, _: &mut Copies) {}

    fn args(&self, _: usize) -> ArgsView<'_> {
        self.invocation.args
    }
}

/// A script runs on its loop for so long.
const LOOP_TIME_MAX: Duration = Duration::from_millis(1);
/// One that has all keys locked may run for this part of `script.time_limit`.
const EVERYTHING_SHARE: u32 = 10;
/// The first key, or argument.
const KEYS_AT: usize = 3;
/// Words of a request that FUNCTION STATS shows.
const SHOWN_WORDS: usize = 32;
