//! Where data commands run: over their keys, in one access, until they have happened or have to wait.
//!
//! ```text
//!  copies -> access -> body: one command, the queue of EXEC -> commit, or keep in a workspace -> ticket
//!              ^         \-- a value to make: made while nothing is locked, then all of it again
//!              |          \- stop: cold, busy, locked: nothing has happened; whoever called waits, and runs it again
//!              '---------------/
//! ```
//!
//! One command on a loop (`executor`), EXEC (`exec`), TX.DO (`tx::stage`) and what runs beside the loops (`long`) differ in their
//! [`Body`] and in their [`Plan`]. A body may run any number of commands within its access, one after the other, and look at each
//! reply before it goes on: [`Within::step`].
//!
//! Invariants
//!   1. A run that ends with a stop has changed nothing, and has appended nothing to the replies.
//!   2. A body runs again from its first command; what it keeps of an attempt is not in it, but in what it returns.
//!   3. A command that answers with an error has no effect; those before and behind it in the same body have theirs.
//!
//! Out of scope: what a stopped request does next (`executor`), who has which keys (`store`).

use std::cell::{Cell, RefCell};

use clock::Nanos;
use commands::call::{Attachments, Data, DataFn, Failure, Lookups, Outcome, Wait};
use commands::chunked::ChunkedReply;
use commands::command::{Flags, Kind};
use commands::copies::{Copied, Copies, Splice, Stored};
use commands::lookup::Entry;
use commands::ready::Ready;
use resp::{ArgsView, Writer};
use store::{
    Access, KeyRef, Large, Moment, Prepared, Reserved, Scope, Stop, Store, StoreError, Wanted, Workspace,
};
use ticket::Ticket;

use crate::retained::Retained;
use crate::stats::Stats;
use crate::tracker::Remembers;
use crate::transaction::Origin;
use crate::tuned::Tuned;

/// Runs data commands.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) store: &'a Store,
    pub(crate) tuned: &'a Tuned,
    pub(crate) stats: &'a Stats,
    pub(crate) remembers: &'a dyn Remembers,
}

/// What is run in one access.
pub(crate) trait Body {
    /// What a run of it comes to.
    type Done;

    /// Runs it and appends the replies to `out`. May be called again, and is then called as if for the first time.
    ///
    /// # Errors
    /// What ends the attempt: nothing that it did happens.
    fn run(&self, within: &mut Within<'_, '_>, out: &mut Vec<u8>) -> Result<Self::Done, Halt<Self::Done>>;

    /// Copies the large values that it will certainly store.
    fn copy_stored(&self, store: &Store, copies: &mut Copies);

    /// The arguments of its command number `command`.
    fn args(&self, command: usize) -> ArgsView<'_>;
}

/// How a body is run.
pub(crate) struct Plan<'a> {
    /// The keys that it may touch.
    pub(crate) scope: Scope<'a>,
    /// What was read for it.
    pub(crate) prepared: &'a Prepared,
    /// Now, if it was read just now.
    pub(crate) moment: Option<Moment>,
    /// Size of the requests that make data larger, 0 if none does: on a full disk the others must get at the reserve for deletes.
    pub(crate) growth_bytes: u64,
    /// For whom.
    pub(crate) origin: Origin,
    /// On a loop: the most elements that it may touch there. `None`: it runs where nobody waits for it.
    pub(crate) effort_max: Option<u64>,
    pub(crate) effects: Effects<'a>,
}

/// Where the effects go.
pub(crate) enum Effects<'a> {
    /// Into the log, as one group.
    Commit,
    /// Into a workspace, whose contents the body sees: no lock is kept, nothing logged.
    Keep(&'a mut Workspace),
}

/// Why an attempt left nothing behind.
#[derive(Debug)]
pub(crate) enum Halt<D> {
    /// The store stopped its command of this number, or the command asks for a value to be made, or for keys.
    At(usize, Failure),
    /// It needs more than it was given.
    Needs(Need),
    /// The body is over, and what it did is not to happen.
    GivenUp(D),
}

impl<D> Halt<D> {
    /// Command `number` of a body takes longer than a loop waits.
    pub(crate) fn long(number: usize) -> Self {
        Self::At(number, Stop::Long.into())
    }

    /// The same with what `give_up` makes of what was given up.
    pub(crate) fn map<E>(self, give_up: impl FnOnce(D) -> E) -> Halt<E> {
        match self {
            Self::At(number, failure) => Halt::At(number, failure),
            Self::Needs(need) => Halt::Needs(need),
            Self::GivenUp(done) => Halt::GivenUp(give_up(done)),
        }
    }
}

/// What an attempt needs that the one before it had not.
#[derive(Debug)]
pub(crate) enum Need {
    /// These keys, too.
    Keys(Vec<(u16, Box<[u8]>)>),
    /// All keys.
    Everything,
    /// A later time: too much is on its way to listeners.
    Later(Nanos),
}

/// Why a run has to wait, or cannot go on at all; the records that it missed.
pub(crate) type Stopped = (Stop, Wanted);

/// Why a run did not happen.
#[derive(Debug)]
pub(crate) enum Unfinished {
    Stopped(Stop, Wanted),
    Needs(Need),
}

impl Unfinished {
    /// Why a body has stopped that has all it can ask for.
    ///
    /// # Panics
    /// If it asks for more: that is a bug of the body.
    pub(crate) fn into_stopped(self) -> Stopped {
        match self {
            Self::Stopped(stop, wanted) => (stop, wanted),
            Self::Needs(need) => unreachable!("a command that names its keys needs {need:?}"),
        }
    }
}

/// What attempts came to that could have all keys they needed.
#[derive(Debug)]
pub(crate) enum Tried<D> {
    Done(D),
    /// To be tried again at this time.
    Later(Nanos),
}

/// Makes attempts until one has all the keys that it needs: those that an attempt finds out are in `retained` for the next.
///
/// # Errors
/// What the last attempt has to wait for.
pub(crate) fn until_keys_are_known<D>(
    retained: &mut Retained,
    mut attempt: impl FnMut(&mut Retained) -> Result<D, Unfinished>,
) -> Result<Tried<D>, Stopped> {
    loop {
        match attempt(retained) {
            Ok(done) => return Ok(Tried::Done(done)),
            Err(Unfinished::Needs(Need::Keys(more))) => retained.add(more),
            Err(Unfinished::Needs(Need::Everything)) => retained.everything = true,
            Err(Unfinished::Needs(Need::Later(later))) => return Ok(Tried::Later(later)),
            Err(Unfinished::Stopped(stop, wanted)) => return Err((stop, wanted)),
        }
    }
}

/// An access that is open, for the body that runs in it.
pub(crate) struct Within<'r, 's> {
    runner: Runner<'r>,
    copies: &'r Copies,
    pub(crate) access: &'r mut Access<'s>,
    /// Keys that it reads are remembered.
    tracks: bool,
}

/// A data command as its handler gets it.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    /// The command, if what it reads may be remembered.
    pub(crate) entry: Option<&'static Entry>,
    pub(crate) handler: DataFn,
    pub(crate) args: ArgsView<'a>,
    /// The database it runs in.
    pub(crate) db: u16,
    /// The version of the protocol that it answers in.
    pub(crate) resp3: bool,
    /// What it does if it finds nothing to wait for.
    pub(crate) ready: Ready<'a>,
    /// A large reply may be sent in parts.
    pub(crate) in_parts: bool,
}

/// How handlers are called, whatever their arguments: as [`Step`] says.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) db: u16,
    pub(crate) resp3: bool,
    pub(crate) ready: Ready<'a>,
    pub(crate) in_parts: bool,
}

/// What is known of a command that has answered.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// The reply is an error.
    pub(crate) failed: bool,
    pub(crate) lookups: Lookups,
    /// Large values of the reply, in order.
    pub(crate) attached: Attachments,
    /// There is no reply: it found nothing, and waits.
    pub(crate) blocked: Option<Box<Wait>>,
    /// The rest of the reply, which is sent in parts.
    pub(crate) chunked: Option<Box<ChunkedReply>>,
}

/// A single command.
pub(crate) struct Single<'a> {
    pub(crate) step: Step<'a>,
    pub(crate) stored: Stored,
}

// Inlined whatever the compiler thinks: a call that returns an `Access` copies it, which costs a GET 245 of 3,833 instructions.
impl Runner<'_> {
    /// Runs `body` until it has happened, which returns what it came to and the ticket of that, or is stopped.
    #[inline(always)]
    pub(crate) fn run<B: Body>(
        &self,
        body: &B,
        mut plan: Plan<'_>,
        copies: &mut Copies,
        out: &mut Vec<u8>,
    ) -> Result<(B::Done, Ticket), Unfinished> {
        let start = out.len();
        let mut reserved = match self.copy_stored(body, &plan, copies) {
            Ok(reserved) => reserved,
            // Two that keep theirs would wait for each other.
            Err(stop) => {
                copies.clear();
                return Err(Unfinished::Stopped(stop, Wanted::default()));
            }
        };
        loop {
            let attempted = self.attempt(body, &mut plan, copies, &mut reserved, out);
            if plan.origin.tracks {
                self.remembers.trim();
            }
            let (command, splice) = match attempted {
                Ok(done) => return Ok(done),
                Err(Missing::Value(command, splice)) => (command, splice),
                Err(Missing::Run(mut unfinished)) => {
                    out.truncate(start);
                    let is_large = reserved.is_some() || plan.effort_max.is_none();
                    if let (true, Unfinished::Stopped(stop, _)) = (is_large, &mut unfinished) {
                        self.wait_on(stop, copies);
                    }
                    copies.park(reserved);
                    return Err(unfinished);
                }
            };
            out.truncate(start);
            // what is there once more, and longer: the request does not say how large that gets
            let bytes = splice.bytes(body.args(command));
            if reserved.as_ref().is_none_or(|it| !it.has_room_for(bytes)) {
                drop(reserved.take());
                reserved = match self.reserve(&plan, bytes, false, copies) {
                    Ok(reserved) => Some(reserved),
                    Err(stop) => {
                        copies.clear();
                        copies.made_bytes = bytes;
                        return Err(Unfinished::Stopped(stop, Wanted::default()));
                    }
                };
            }
            copies.make(self.store, command, splice, body.args(command));
            reserved.iter_mut().for_each(Reserved::copied);
        }
    }

    /// Copies the large values that a body stores. What is returned holds memory for them, and for what of them will wait for the
    /// disk, until the body has run; in a workspace they are counted as it is.
    #[inline(always)]
    fn copy_stored<B: Body>(
        &self,
        body: &B,
        plan: &Plan<'_>,
        copies: &mut Copies,
    ) -> Result<Option<Reserved>, Stop> {
        let bytes = plan.growth_bytes.max(copies.made_bytes);
        if bytes < Large::BYTES_MIN as u64 {
            return Ok(None);
        }
        if let Some(reserved) = copies.unpark() {
            return Ok(Some(reserved));
        }
        let bytes = bytes + EFFECT_BYTES * plan.scope.keys().map_or(1, <[_]>::len) as u64;
        let mut reserved = match plan.effects {
            Effects::Commit => Some(self.reserve(plan, bytes, !copies.is_empty(), copies)?),
            Effects::Keep(_) => None,
        };
        if copies.is_empty() {
            body.copy_stored(self.store, copies);
            if copies.made_bytes == 0 || !copies.is_empty() {
                // what is small is not copied here: it is asked for when it is stored, and would be counted twice
                reserved.iter_mut().for_each(Reserved::copied);
            }
        }
        Ok(reserved)
    }

    /// Memory for a large value; on a loop nobody waits until it is found.
    #[cold]
    fn reserve(
        &self,
        plan: &Plan<'_>,
        bytes: u64,
        is_copied: bool,
        copies: &mut Copies,
    ) -> Result<Reserved, Stop> {
        let reserved = match plan.effort_max {
            Some(_) => self.store.reserve_memory_soon(bytes, is_copied, &mut copies.awaited),
            None => {
                // what was found for it on a loop is given back: it would wait for itself
                copies.awaited = None;
                self.store.reserve_memory(bytes, is_copied)
            }
        };
        reserved.map_err(|mut stop| {
            self.wait_on(&mut stop, copies);
            stop
        })
    }

    /// Lets a command that stores large values, and that `stop` ends, wait on for what is on its way to others and from them.
    #[cold]
    fn wait_on(&self, stop: &mut Stop, copies: &mut Copies) {
        if let Stop::Refused(StoreError::MemoryLimit { may_pass: true, .. }) = stop
            && copies.waits_on(self.store.now())
        {
            *stop = Stop::Busy;
        }
    }

    #[inline(always)]
    fn attempt<B: Body>(
        &self,
        body: &B,
        plan: &mut Plan<'_>,
        copies: &Copies,
        reserved: &mut Option<Reserved>,
        out: &mut Vec<u8>,
    ) -> Result<(B::Done, Ticket), Missing> {
        let mut access = self.open(plan)?;
        reserved.iter_mut().for_each(Reserved::credited);
        let result = body
            .run(&mut Within { runner: *self, copies, access: &mut access, tracks: plan.origin.tracks }, out);
        #[cfg(test)]
        if plan.effort_max.is_some() {
            self.stats.touched_max.fetch_max(access.touched(), std::sync::atomic::Ordering::Relaxed);
        }
        let done = match result {
            Ok(done) => done,
            Err(Halt::GivenUp(done)) => return Ok((done, self.store.newest())),
            Err(Halt::Needs(need)) => return Err(Missing::Run(Unfinished::Needs(need))),
            Err(Halt::At(command, failure)) => return Err(Missing::of(failure, command, access)),
        };
        let ticket = match &mut plan.effects {
            Effects::Commit => match access.commit() {
                Ok(ticket) => ticket,
                Err(stop) => return Err(Missing::Run(Unfinished::Stopped(stop, access.into_wanted()))),
            },
            Effects::Keep(workspace) => access.keep(workspace)?,
        };
        Ok((done, ticket))
    }

    /// What a command lacks that is on disk. It is run alone and as if for the first time; nothing of it happens, and nothing is counted.
    pub(crate) fn look(&self, step: Step<'_>, plan: &Plan<'_>) -> Wanted {
        let Ok(mut access) = self.open(plan) else { return Wanted::default() };
        let copies = Copies::default();
        let mut within = Within { runner: *self, copies: &copies, access: &mut access, tracks: false };
        // What it answers is of no interest.
        let _ = within.call(copies.of(0), step, &mut Vec::new());
        access.into_wanted()
    }

    #[inline(always)]
    fn open<'s>(&'s self, plan: &Plan<'s>) -> Result<Access<'s>, Stop> {
        let credit_bytes = match plan.effects {
            Effects::Commit => plan.growth_bytes,
            Effects::Keep(_) => 0,
        };
        let moment = plan.moment.unwrap_or_else(|| self.store.now());
        let mut access = self.store.access_at(plan.scope, plan.prepared, credit_bytes, moment)?;
        if !plan.origin.uses {
            access.set_without_use();
        }
        access.set_origin(plan.origin.client);
        match plan.effort_max {
            Some(most) => access.bound_effort(most),
            None => access.look_briefly(),
        }
        if let Effects::Keep(workspace) = &plan.effects {
            access.resume(workspace);
        }
        Ok(access)
    }
}

impl Within<'_, '_> {
    /// Runs one command, the body's number `number`, and appends its reply to `out`, errors included.
    ///
    /// # Errors
    /// What the whole body has to wait for.
    #[inline(always)]
    pub(crate) fn step(
        &mut self,
        number: usize,
        step: Step<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answered, (usize, Failure)> {
        self.step_with(self.copies.of(number), number, step, out)
    }

    /// The same with copies of its own.
    ///
    /// # Errors
    /// As [`Within::step`].
    #[inline(always)]
    pub(crate) fn step_with(
        &mut self,
        copies: Copied<'_>,
        number: usize,
        step: Step<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answered, (usize, Failure)> {
        if self.tracks {
            self.remember(&step);
        }
        let (start, resp3, events) = (out.len(), step.resp3, self.access.events());
        let (outcome, answered) = self.call(copies, step, out);
        let lookups = answered.lookups;
        match outcome {
            Ok(()) => Ok(answered),
            Err(failure @ (Failure::Stop(_) | Failure::Make(_) | Failure::Keys(_))) => Err((number, failure)),
            Err(Failure::Blocked(wait)) => {
                Ok(Answered { lookups, blocked: Some(wait), ..Answered::default() })
            }
            Err(failure) => {
                out.truncate(start);
                self.access.forget_events(events);
                self.runner.stats.write_failure(failure, resp3, out);
                Ok(Answered { failed: true, lookups, ..Answered::default() })
            }
        }
    }

    /// Remembers the keys of a command that reads, which are locked, for its client. It may not happen, or not find them: they are to be told
    /// all the same.
    #[cold]
    fn remember(&self, step: &Step<'_>) {
        let Some(entry) = step.entry.filter(|entry| entry.command.flags.has(Flags::READONLY)) else { return };
        entry.command.each_key(step.args, |index| {
            self.runner.remembers.remember(step.args.get(index), self.access.origin());
        });
    }

    /// Calls the handler: how that ended, and what it has said beside its reply.
    #[inline(always)]
    fn call(
        &mut self,
        copies: Copied<'_>,
        Step { handler, args, db, resp3, ready, in_parts, .. }: Step<'_>,
        out: &mut Vec<u8>,
    ) -> (Result<(), Failure>, Answered) {
        let how = How { db, resp3, ready, in_parts };
        self.call_with(copies, how, out, |data, out| handler(data, args, out))
    }

    /// As [`Within::call`], of `handler`, which knows its arguments and stores no large value.
    pub(crate) fn call_alone(
        &mut self,
        how: How<'_>,
        out: &mut Vec<u8>,
        handler: impl FnOnce(&mut Data<'_, '_>, &mut Writer<'_>) -> Outcome,
    ) -> (Result<(), Failure>, Answered) {
        self.call_with(self.copies.of(0), how, out, handler)
    }

    #[inline(always)]
    fn call_with(
        &mut self,
        copies: Copied<'_>,
        How { db, resp3, ready, in_parts }: How<'_>,
        out: &mut Vec<u8>,
        handler: impl FnOnce(&mut Data<'_, '_>, &mut Writer<'_>) -> Outcome,
    ) -> (Result<(), Failure>, Answered) {
        let now = self.access.now();
        let Runner { store, tuned, .. } = self.runner;
        let (lookups, attached) = (Cell::default(), RefCell::default());
        let (access, chunked) = (&mut *self.access, Cell::default());
        let (start, replied) = (out.len(), Cell::default());
        let mut data = Data {
            access,
            db,
            now,
            store,
            limits: &tuned.sizes,
            copies,
            lookups,
            attached,
            ready,
            in_parts,
            chunked,
            replied,
        };
        let outcome = handler(&mut data, &mut Writer::new(out, resp3));
        let (lookups, attached, chunked) = (data.lookups.get(), data.attached.take(), data.chunked.take());
        // of those behind it in the same body each finds what this one has made counted
        let asked = data.ask((out.len() - start).saturating_sub(data.replied.get()));
        let stopped = self.access.take_stop().map_or(Ok(()), |stop| Err(Failure::Stop(stop)));
        let outcome = stopped.and(outcome).and(asked);
        (outcome, Answered { failed: false, lookups, attached, blocked: None, chunked })
    }
}

impl Body for Single<'_> {
    type Done = Answered;

    #[inline(always)]
    fn run(&self, within: &mut Within<'_, '_>, out: &mut Vec<u8>) -> Result<Answered, Halt<Answered>> {
        // one that waits may have made its consumer
        Ok(within.step(0, self.step, out)?)
    }

    fn copy_stored(&self, store: &Store, copies: &mut Copies) {
        copies.add(store, 0, self.stored, self.step.args);
    }

    fn args(&self, _: usize) -> ArgsView<'_> {
        self.step.args
    }
}

impl<D> From<(usize, Failure)> for Halt<D> {
    fn from((command, failure): (usize, Failure)) -> Self {
        Self::At(command, failure)
    }
}

/// What an attempt lacked.
enum Missing {
    /// What the run as a whole has to have.
    Run(Unfinished),
    /// A value that command of this number wants made.
    Value(usize, Splice),
}

impl Missing {
    fn of(failure: Failure, command: usize, access: Access<'_>) -> Self {
        match failure {
            Failure::Stop(stop) => Self::Run(Unfinished::Stopped(stop, access.into_wanted())),
            Failure::Keys(more) => Self::Run(Unfinished::Needs(Need::Keys(more))),
            Failure::Make(splice) => Self::Value(command, splice),
            answered => unreachable!("{answered:?} is answered"),
        }
    }
}

impl From<Stop> for Missing {
    fn from(stop: Stop) -> Self {
        Self::Run(Unfinished::Stopped(stop, Wanted::default()))
    }
}

/// Adds the keys that a command names, in database `db`.
pub(crate) fn collect_keys<'a>(entry: &Entry, db: u16, args: ArgsView<'a>, keys: &mut Vec<KeyRef<'a>>) {
    let target = match entry.command.kind {
        Kind::Across(target) => target(args).filter(|target| *target != db),
        _ => None,
    };
    entry.command.each_key(args, |index| {
        keys.push(KeyRef { db, key: args.get(index) });
        keys.extend(target.map(|db| KeyRef { db, key: args.get(index) }));
    });
}

/// What an effect takes beside its request: its slot, the head of its object, and its place in the list of effects.
const EFFECT_BYTES: u64 = 160;

#[cfg(test)]
mod tests {
    use resp::{Args, Limits, RequestParser, encode_command};

    use super::*;
    use crate::tests::{Harness, data_handler};

    /// As a script does: looks for a key, and sets it if it is not there; then gives up, if it is told to.
    struct SetIfAbsent {
        get: (Vec<u8>, Args),
        set: (Vec<u8>, Args),
        gives_up: bool,
    }

    fn parsed(command: &[&str]) -> (Vec<u8>, Args) {
        let (mut request, mut args) = (Vec::new(), Args::default());
        encode_command(&mut request, command);
        RequestParser::new().parse(&request, &Limits::REDIS, &mut args).expect("a request");
        (request, args)
    }

    impl SetIfAbsent {
        fn new(gives_up: bool) -> Self {
            Self { get: parsed(&["GET", "k"]), set: parsed(&["SET", "k", "v"]), gives_up }
        }
    }

    impl Body for SetIfAbsent {
        type Done = bool;

        fn run(&self, within: &mut Within<'_, '_>, out: &mut Vec<u8>) -> Result<bool, Halt<bool>> {
            let (mut reply, db, resp3) = (Vec::new(), 0, false);
            within.step(
                0,
                Step {
                    entry: None,
                    handler: data_handler("GET"),
                    args: self.args(0),
                    db,
                    resp3,
                    ready: Ready::default(),
                    in_parts: false,
                },
                &mut reply,
            )?;
            let is_absent = reply == b"$-1\r\n";
            if is_absent {
                within.step(
                    1,
                    Step {
                        entry: None,
                        handler: data_handler("SET"),
                        args: self.args(1),
                        db,
                        resp3,
                        ready: Ready::default(),
                        in_parts: false,
                    },
                    out,
                )?;
            }
            if self.gives_up { Err(Halt::GivenUp(is_absent)) } else { Ok(is_absent) }
        }

        fn copy_stored(&self, _: &Store, _: &mut Copies) {}

        fn args(&self, command: usize) -> ArgsView<'_> {
            let (request, args) = if command == 0 { &self.get } else { &self.set };
            args.view(request)
        }
    }

    #[test]
    fn body_looks_at_each_reply_and_all_of_it_happens_or_nothing() {
        let harness = Harness::new();
        let (keys, prepared) = ([KeyRef { db: 0, key: b"k" }], Prepared::default());
        let run = |gives_up| {
            let plan = Plan {
                scope: Scope::Keys(&keys),
                prepared: &prepared,
                moment: None,
                growth_bytes: 0,
                origin: Origin { uses: true, ..Origin::default() },
                effort_max: None,
                effects: Effects::Commit,
            };
            let mut out = Vec::new();
            let body = SetIfAbsent::new(gives_up);
            let done = harness.server.runner().run(&body, plan, &mut Copies::default(), &mut out);
            (done.expect("the store is in memory").0, String::from_utf8(out).expect("text"))
        };
        assert_eq!(run(true), (true, "+OK\r\n".to_owned()));
        assert_eq!(run(false), (true, "+OK\r\n".to_owned()), "who gave up has set nothing");
        assert_eq!(run(false), (false, String::new()), "now it is there");
    }
}
