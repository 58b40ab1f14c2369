//! Long commands: what touches thousands of keys runs on a thread of its own, over claimed keys
//! (docs/adr/0017-commands-on-many-keys.md).
//!
//! ```text
//!  loop: request -> is it long? -> copied, parked        queue -> thread: keys claimed, handler, commit
//!  loop: <- answered, or parked again (no room, a prepared key) <----- message ------'
//! ```
//!
//! Invariants
//!   1. A connection has one long command at most, and is parked until it has ended: the queue is no longer than there are
//!      connections, and its bytes are counted with theirs.
//!   2. A thread ends when the queue is empty, and [`THREADS_MAX`] run at most.
//!   3. A command that cannot be parked on a loop for long is not waited for there: records from disk are fetched by the thread.
//!
//! Out of scope: claims (`store`), what the reply then becomes (`turn`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use resp::{Args, Writer};
use store::{KeyRef, Prepared, Scope, Stop, StoreError, Watch};

use crate::call::Failure;
use crate::command::{DataFn, Flags, Handler};
use crate::copies::Copies;
use crate::errors;
use crate::exec::{Course, Executed, Run};
use crate::executor::{FETCHES_MAX, Parked, Ran, Request, Unready, take_copies, take_prepared};
use crate::handlers::transactions::watch_keys;
use crate::lookup::Entry;
use crate::message::Message;
use crate::run::{Effects, Plan, Single, Step, Stopped, collect_keys};
use crate::server::Server;
use crate::session::{Caller, Session, Transaction};
use crate::tx::stage::{COMMAND_AT, Staged};

/// The long commands of a server.
#[derive(Debug)]
pub(crate) struct LongCommands {
    state: Mutex<State>,
    /// A thread has ended.
    ended: Condvar,
    /// Bytes of requests that wait or run.
    bytes: AtomicU64,
    /// So many have run, or run.
    count: AtomicU64,
    /// From so many keys or queued commands on a command is long.
    from: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Errand>,
    threads: usize,
    /// Nothing is begun any more.
    is_closed: bool,
}

/// What a thread has to do.
enum Errand {
    Run(Box<Job>),
    /// To be called; may wait for claims.
    Call(Box<dyn FnOnce() + Send>),
    /// To be dropped where nobody waits for it.
    Drop(Box<dyn Send>),
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(job) => job.fmt(f),
            Self::Call(_) => f.write_str("Call"),
            Self::Drop(_) => f.write_str("Drop"),
        }
    }
}

/// A request that runs beside its loop; owns all it needs.
#[derive(Debug)]
pub(crate) struct Job {
    client: u64,
    pub(crate) entry: &'static Entry,
    /// The request, its bytes its own.
    pub(crate) args: Args,
    /// Its size as received.
    pub(crate) bytes: usize,
    caller: Caller,
    prepared: Prepared,
    copies: Copies,
    pub(crate) work: Work,
}

/// What is to be run.
#[derive(Debug)]
pub(crate) enum Work {
    Data(DataFn),
    Exec { transaction: Box<Transaction>, watched: Vec<Watch>, course: Course },
    Watch { watched: Vec<Watch> },
    Stage(Staged),
}

/// A job that has run, or that the store has stopped.
#[derive(Debug)]
pub struct Done {
    pub(crate) job: Box<Job>,
    /// The reply.
    pub(crate) out: Vec<u8>,
    pub(crate) end: End,
}

#[derive(Debug)]
pub(crate) enum End {
    Ran(Ran),
    Executed(Executed),
    /// The bytes that all watched keys keep, or why they are not watched.
    Watched(Result<u64, Failure>),
    Stopped(Stop),
    /// Its records moved as often as they were read.
    NeverReady,
}

/// Where the long command of a connection is.
#[derive(Debug)]
pub(crate) enum Long {
    /// On its way: whoever wakes the connection for another reason has to wait.
    Out,
    /// It has ended, or was stopped.
    Back(Box<Done>),
    /// To be run again, now that what it waits for may have come.
    Again(Box<Job>),
}

impl Default for LongCommands {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            ended: Condvar::new(),
            bytes: AtomicU64::new(0),
            count: AtomicU64::new(0),
            from: AtomicUsize::new(LONG_FROM),
        }
    }
}

impl LongCommands {
    /// Bytes of requests that wait or run.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Commands that ran beside their loops.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Commands that wait for a thread, or run.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state();
        state.queue.len() + state.threads
    }

    /// From how many keys on a command is long.
    pub(crate) fn from(&self) -> usize {
        self.from.load(Ordering::Relaxed)
    }

    /// Changes that, for tests.
    #[cfg(test)]
    pub(crate) fn set_from(&self, keys: usize) {
        self.from.store(keys, Ordering::Relaxed);
    }

    /// Begins nothing any more, and waits until what runs has ended.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.queue.clear();
        drop(self.ended.wait_while(state, |state| state.threads > 0));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// `request`, which has to do `work`.
    pub(crate) fn new(
        session: &mut Session,
        entry: &'static Entry,
        request: &Request<'_>,
        work: Work,
    ) -> Box<Self> {
        Box::new(Self {
            client: session.client.id,
            entry,
            args: if request.args.len() > FEW_ARGUMENTS {
                Args::copied_whole(request.args)
            } else {
                Args::copied(request.args)
            },
            bytes: request.bytes,
            caller: session.caller(),
            prepared: take_prepared(session),
            copies: take_copies(session),
            work,
        })
    }

    fn held_bytes(&self) -> u64 {
        let queued_bytes = match &self.work {
            Work::Exec { transaction, .. } => transaction.kept_bytes(),
            Work::Data(_) | Work::Watch { .. } | Work::Stage(_) => 0,
        };
        self.args.capacity_bytes() as u64 + queued_bytes
    }
}

impl Server {
    /// Whether a command of `arguments` is to run on a thread of its own.
    pub(crate) fn is_long(&self, db: u16, entry: &Entry, arguments: usize) -> bool {
        match entry.command.handler {
            Handler::Walk(_) => {
                entry.command.name == "keys" && self.store.keys_of(db) > self.long.from() as u64
            }
            _ => arguments > self.long.from() && entry.command.count_keys(arguments) > self.long.from(),
        }
    }

    /// Whether EXEC is. One that needs all keys is not: nothing is won where every key is locked.
    pub(crate) fn is_long_transaction(&self, transaction: &Transaction) -> bool {
        let (queue, from) = (&transaction.queue, self.long.from());
        let keys =
            || queue.iter().map(|queued| queued.entry.command.count_keys(queued.args.len())).sum::<usize>();
        let everything = || {
            let needs = |handler| matches!(handler, Handler::Everything(_) | Handler::Walk(_));
            queue.iter().any(|queued| needs(queued.entry.command.handler))
        };
        (queue.len() > from || keys() > from) && !everything()
    }

    /// Has `job` run; its connection is parked until [`Message::LongDone`].
    pub(crate) fn start_long(self: &Arc<Self>, session: &mut Session, job: Box<Job>) -> Unready {
        session.pending.get_or_insert_default().long = Some(Long::Out);
        self.long.bytes.fetch_add(job.held_bytes(), Ordering::Relaxed);
        self.run_errand(Errand::Run(job));
        Unready::Parked(Parked::Long)
    }

    /// Ends MULTI and WATCH.
    pub(crate) fn end_transaction(self: &Arc<Self>, session: &mut Session) {
        let (transaction, watched) = session.take_transaction();
        let queued = transaction.as_ref().map_or(0, |transaction| transaction.queue.len());
        self.drop_large(queued + watched.len(), (transaction, watched));
        session.show_transaction();
    }

    /// Drops what a connection has kept.
    pub(crate) fn drop_session(self: &Arc<Self>, mut session: Session) {
        self.end_transaction(&mut session);
        let long = session.pending.as_mut().and_then(|pending| pending.long.take());
        if let Some(long @ (Long::Back(_) | Long::Again(_))) = long {
            self.drop_in_background(long);
        }
    }

    /// Drops `thing`, which has `parts`, here if these are few.
    pub(crate) fn drop_large(self: &Arc<Self>, parts: usize, thing: impl Send + 'static) {
        if parts > self.long.from() {
            self.drop_in_background(thing);
        }
    }

    /// Drops `thing` on another thread: it is large, and others of the loop would wait.
    pub(crate) fn drop_in_background(self: &Arc<Self>, thing: impl Send + 'static) {
        self.run_errand(Errand::Drop(Box::new(thing)));
    }

    /// Calls `call` on another thread: it takes long, or waits for what does. Dropped when the server ends.
    pub(crate) fn call_in_background(self: &Arc<Self>, call: Box<dyn FnOnce() + Send>) {
        self.run_errand(Errand::Call(call));
    }

    fn run_errand(self: &Arc<Self>, errand: Errand) {
        let mut state = self.long.state();
        if state.is_closed {
            return;
        }
        state.queue.push_back(errand);
        if state.threads == THREADS_MAX {
            return;
        }
        state.threads += 1;
        let server = Arc::clone(self);
        let thread = std::thread::Builder::new().name("long-command".to_owned());
        if let Err(error) = thread.spawn(move || server.run_errands()) {
            state.threads -= 1;
            if state.threads == 0 {
                tracing::error!(%error, "no thread for a long command: it runs here, and others wait");
                drop(state);
                self.next_errands();
            }
        }
    }

    fn run_errands(self: &Arc<Self>) {
        self.next_errands();
        self.long.ended.notify_all();
    }

    /// Takes from the queue until it is empty.
    fn next_errands(self: &Arc<Self>) {
        loop {
            let mut state = self.long.state();
            let Some(errand) = state.queue.pop_front() else {
                state.threads = state.threads.saturating_sub(1);
                return;
            };
            drop(state);
            let mut job = match errand {
                Errand::Run(job) => job,
                Errand::Call(call) => {
                    // before it tells anybody of its end, who may ask for the count
                    self.long.count.fetch_add(1, Ordering::Relaxed);
                    call();
                    self.store.offer();
                    continue;
                }
                Errand::Drop(thing) => {
                    drop(thing);
                    continue;
                }
            };
            let mut out = Vec::new();
            let end = self.run_job(&mut job, &mut out);
            self.long.bytes.fetch_sub(job.held_bytes(), Ordering::Relaxed);
            self.long.count.fetch_add(1, Ordering::Relaxed);
            let client = job.client;
            self.post(client, Message::LongDone(Box::new(Done { job, out, end })));
            self.store.offer();
        }
    }

    /// Runs it until it is done or has to wait for what others do.
    fn run_job(self: &Arc<Self>, job: &mut Job, out: &mut Vec<u8>) -> End {
        for _ in 0..=FETCHES_MAX {
            out.clear();
            let (stop, wanted) = match self.try_job(job, out) {
                Ok(end) => return end,
                Err(stopped) => stopped,
            };
            if !matches!(stop, Stop::Cold) {
                return End::Stopped(stop);
            }
            job.prepared.want(wanted);
            job.prepared.bound_values(self.tuned.reply_bytes_max() as u64);
            self.stats.fetches.fetch_add(1, Ordering::Relaxed);
            let (fetched, done) = mpsc::channel();
            self.store.fetch(
                std::mem::take(&mut job.prepared),
                Box::new(move |prepared| _ = fetched.send(prepared)),
            );
            match done.recv() {
                Ok(prepared) => job.prepared = prepared,
                Err(_) => return End::Stopped(StoreError::Journal("the store is closed".to_owned()).into()),
            }
        }
        self.stats.fetches_given_up.fetch_add(1, Ordering::Relaxed);
        End::NeverReady
    }

    /// Runs it once. A stop comes with the records that it missed; after [`Stop::Cold`] all that its keys miss are asked for.
    fn try_job(self: &Arc<Self>, job: &mut Job, out: &mut Vec<u8>) -> Result<End, Stopped> {
        let mut prepared = std::mem::take(&mut job.prepared);
        let mut keys = Vec::new();
        let result = match &mut job.work {
            Work::Data(run) => {
                collect_keys(job.entry, job.caller.db, job.args.view(&[]), &mut keys);
                let known = (job.caller, job.bytes);
                self.run_long_data(
                    (job.entry, *run),
                    known,
                    &job.args,
                    (&keys, &prepared, &mut job.copies),
                    out,
                )
            }
            Work::Exec { transaction, watched, course } => {
                self.gather(&transaction.queue, *course, &mut keys);
                keys.extend(watched.iter().map(|watch| KeyRef { db: watch.db(), key: watch.key() }));
                let writes = |queued: &crate::session::Queued| queued.entry.command.flags.has(Flags::WRITE);
                let writes = transaction.queue.iter().any(writes);
                let run = Run { server: self, transaction, watched, course: *course };
                let plan = run.plan((Scope::Claimed { keys: &keys, writes }, &prepared), job.caller.uses);
                let done = self.runner().run(&run, plan, &mut job.copies, out);
                done.map(|done| End::Executed(Executed::of(done)))
            }
            Work::Stage(staged) => {
                let args = job.args.view(&[]).from(COMMAND_AT);
                collect_keys(staged.entry, job.caller.db, args, &mut keys);
                let known = (job.caller, job.bytes);
                let mut work = staged.lock();
                let ahead = (&keys[..], &prepared, &mut job.copies);
                self.stage((&*staged, &mut *work), known, args, ahead, out).map(End::Ran)
            }
            Work::Watch { watched } => {
                Ok(End::Watched(watch_keys(self, job.caller.db, watched, job.args.view(&[]))))
            }
        };
        if matches!(result, Err((Stop::Cold, _))) {
            self.store.missing(&keys, &mut prepared);
        }
        drop(keys);
        job.prepared = prepared;
        result
    }

    fn run_long_data(
        &self,
        (entry, run): (&Entry, DataFn),
        (Caller { db, resp3, uses }, bytes): (Caller, usize),
        args: &Args,
        (keys, prepared, copies): (&[KeyRef<'_>], &Prepared, &mut Copies),
        out: &mut Vec<u8>,
    ) -> Result<End, Stopped> {
        let scope = match entry.command.handler {
            Handler::Walk(_) => Scope::Walk,
            _ => Scope::Claimed { keys, writes: entry.command.flags.has(Flags::WRITE) },
        };
        let step = Step { handler: run, args: args.view(&[]), db, resp3 };
        let growth_bytes = entry.growth_bytes(bytes);
        let plan = Plan { scope, prepared, moment: None, growth_bytes, uses, effects: Effects::Commit };
        let body = Single { step, stored: entry.command.stored };
        let (answered, ticket) = self.runner().run(&body, plan, copies, out)?;
        Ok(End::Ran(Ran::answered(answered, ticket)))
    }

    /// What a long command that came back comes to: a reply, or another wait.
    pub(crate) fn end_long(
        self: &Arc<Self>,
        session: &mut Session,
        request: &Request<'_>,
        (work, end, reply): (&mut Work, End, Vec<u8>),
        out: &mut Vec<u8>,
    ) -> Result<Ran, Unready> {
        let start = out.len();
        if start == 0 {
            *out = reply;
        } else {
            out.extend_from_slice(&reply);
        }
        match end {
            End::Ran(mut ran) => {
                ran.attached.make_room(&[(0, start)]);
                Ok(ran)
            }
            End::Executed(mut executed) => {
                executed.make_room(start);
                let Work::Exec { transaction, course, .. } = work else {
                    unreachable!("only a transaction is executed")
                };
                Ok(self.exec_done(session, request, (transaction, *course), executed, (start, out)))
            }
            End::Watched(outcome) => {
                if let Work::Watch { watched } = work {
                    session.watched = std::mem::take(watched);
                    session.show_transaction();
                }
                let failed = outcome.is_err();
                match outcome {
                    Ok(bytes) => {
                        session.watched_bytes = bytes;
                        Writer::new(out, session.resp3).ok();
                    }
                    Err(failure) => self.stats.write_failure(failure, session.resp3, out),
                }
                Ok(Ran::plain(0, failed))
            }
            End::Stopped(stop) => {
                out.truncate(start);
                self.stopped(stop, session, (Prepared::default(), Copies::default()), &[], out)
            }
            End::NeverReady => {
                out.truncate(start);
                self.stats.write_failure(errors::never_ready(FETCHES_MAX), session.resp3, out);
                Ok(Ran::plain(self.store.newest(), true))
            }
        }
    }
}

/// Keys of a command, or commands of a transaction, beyond which it is long: fewer take about a millisecond.
const LONG_FROM: usize = 1_024;
/// Threads that run long commands: a second one, so that a short one of them need not wait for the longest.
const THREADS_MAX: usize = 2;
/// So many are copied one by one.
const FEW_ARGUMENTS: usize = 256;
