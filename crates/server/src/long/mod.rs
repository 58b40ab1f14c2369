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
//!   2. A thread ends when it had nothing to do for [`IDLE_MAX`], or nobody can give it anything any more; [`THREADS_MAX`] run at most.
//!      It is kept that long for what it has compiled of scripts.
//!   3. A command that cannot be parked on a loop for long is not waited for there: records from disk are fetched by the thread.
//!   4. A command whose client was killed ends at the next element that it would touch, without effects. So does one that only reads and whose client is
//!      gone, and at the end of the server each that has not committed.
//!
//! | module | what |
//! |---|---|
//! | `job` | a request that runs beside its loop |
//! | `beside` | how it runs, and what it then comes to on its loop |
//!
//! Out of scope: claims (`store`), what the reply then becomes (`turn`).

pub(crate) mod beside;
pub(crate) mod job;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use commands::command::Kind;
use commands::lookup::Entry;
use resp::ArgsView;
use store::Store;

use crate::holds::Hold;
use crate::transaction::{Queued, Transaction};

/// The long commands of a server, and the threads beside the loops.
#[derive(Debug)]
pub(crate) struct LongCommands {
    store: Arc<Store>,
    queue: Arc<Queue>,
    /// Jobs that wait or run, by their connections.
    jobs: Mutex<HashMap<u64, UnderWay>>,
    /// Bytes of requests that wait or run.
    bytes: AtomicU64,
    /// So many have run, or run.
    count: Arc<AtomicU64>,
    /// From so many keys or queued commands on a command is long.
    from: AtomicUsize,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// There is something to do, or nothing any more.
    work: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Errand>,
    threads: usize,
    /// Those of them that wait for something to do, and were not called yet.
    idle: usize,
    /// Those that were called and have not heard it.
    called: usize,
    /// Nothing is begun any more.
    is_closed: bool,
}

/// A job that waits or runs.
#[derive(Debug, Default)]
struct UnderWay {
    writes: bool,
    has_begun: bool,
    /// Nobody waits for it any more.
    abandoned: Arc<AtomicBool>,
    /// Kept until it has ended.
    holds: Vec<Hold>,
}

/// What becomes of a job whose turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    Runs,
    /// CLIENT PAUSE holds it back.
    Paused,
    /// Nobody waits for it any more.
    Abandoned,
}

/// What a thread has to do.
enum Errand {
    /// To be called; may wait for claims.
    Call(Box<dyn FnOnce() + Send>),
    /// To be dropped where nobody waits for it.
    Drop(Box<dyn Send>),
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(_) => f.write_str("Call"),
            Self::Drop(_) => f.write_str("Drop"),
        }
    }
}

impl LongCommands {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            queue: Arc::default(),
            jobs: Mutex::default(),
            bytes: AtomicU64::new(0),
            count: Arc::default(),
            from: AtomicUsize::new(LONG_FROM),
        }
    }

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
        let state = self.queue.state();
        state.queue.len() + state.threads - state.idle
    }

    /// From how many keys on a command is long.
    pub(crate) fn from(&self) -> usize {
        self.from.load(Ordering::Relaxed)
    }

    /// Changes [`LongCommands::from`], for tests.
    #[cfg(test)]
    pub(crate) fn set_from(&self, keys: usize) {
        self.from.store(keys, Ordering::Relaxed);
    }

    /// The job of a connection waits for a thread from now on. It is to end as soon as what is returned is set.
    pub(crate) fn enter(&self, client: u64, writes: bool) -> Arc<AtomicBool> {
        let job = UnderWay { writes, ..UnderWay::default() };
        let abandoned = Arc::clone(&job.abandoned);
        self.jobs().insert(client, job);
        abandoned
    }

    /// The job of a connection is to begin; whether it may. `is_paused` is asked whether jobs wait that write, or do not.
    pub(crate) fn begin(&self, client: u64, is_paused: impl FnOnce(bool) -> bool) -> Begin {
        let mut jobs = self.jobs();
        let Some(job) = jobs.get_mut(&client) else { return Begin::Runs };
        if job.abandoned.load(Ordering::Relaxed) {
            return Begin::Abandoned;
        }
        // Whoever pauses looks for those that have begun afterwards, under the same lock.
        job.has_begun = !is_paused(job.writes);
        if job.has_begun { Begin::Runs } else { Begin::Paused }
    }

    /// The job of a connection has ended; whoever waits for that is told when what is returned is dropped.
    #[must_use]
    pub(crate) fn leave(&self, client: u64) -> Vec<Hold> {
        self.jobs().remove(&client).map_or_else(Vec::new, |job| job.holds)
    }

    /// A connection is gone. If it was killed (there are `holds`) its job ends without a trace unless it has committed, and `holds` are kept
    /// until then. If not, what it asked for happens all the same, but nobody reads a reply.
    pub(crate) fn abandon(&self, client: u64, holds: &[Hold]) {
        if let Some(job) = self.jobs().get_mut(&client) {
            job.abandoned.fetch_or(!holds.is_empty() || !job.writes, Ordering::Relaxed);
            job.holds.extend(holds.iter().cloned());
        }
    }

    /// Has all jobs that have begun keep a clone of `hold` until they have ended: those alone that write, unless `all` are meant.
    pub(crate) fn wait_for_begun(&self, hold: &Hold, all: bool) {
        for job in self.jobs().values_mut().filter(|job| job.has_begun && (all || job.writes)) {
            job.holds.push(Hold::clone(hold));
        }
    }

    /// Begins nothing any more, ends what has not committed, and waits for that. Connections are closed by now.
    pub(crate) fn close(&self) {
        self.jobs().values().for_each(|job| job.abandoned.store(true, Ordering::Relaxed));
        let state = self.queue.close();
        drop(self.queue.ended.wait_while(state, |state| state.threads > 0));
    }

    /// Whether a command with `args` is to run on a thread of its own.
    pub(crate) fn is_long(&self, db: u16, entry: &Entry, args: ArgsView<'_>) -> bool {
        match entry.command.kind {
            Kind::Walk => entry.command.name == "keys" && self.store.keys_of(db) > self.from() as u64,
            _ if args.len() <= self.from() => false,
            // as many arguments are as many elements
            _ => args.len() as u64 > EFFORT_MAX || entry.command.count_keys(args) > self.from(),
        }
    }

    /// Whether EXEC is. One that needs all keys is not: nothing is won where every key is locked.
    pub(crate) fn is_long_transaction(&self, transaction: &Transaction) -> bool {
        let (queue, from) = (&transaction.queue, self.from());
        let keys_of = |queued: &Queued| queued.entry.command.count_keys(queued.args.view(&[]));
        let keys = || queue.iter().map(keys_of).sum::<usize>();
        let everything = || {
            let needs = |kind| matches!(kind, Kind::Everything | Kind::Walk);
            queue.iter().any(|queued| needs(queued.entry.command.kind))
        };
        (queue.len() > from || keys() > from) && !everything()
    }

    /// Counts bytes of a request as held until [`LongCommands::give_back`].
    pub(crate) fn hold(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A request has run that held so much.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Drops `thing`, which has `parts`, here if these are few.
    pub(crate) fn drop_large(self: &Arc<Self>, parts: usize, thing: impl Send + 'static) {
        if parts > self.from() {
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
        let mut state = self.queue.state();
        if state.is_closed {
            return;
        }
        state.queue.push_back(errand);
        if state.idle > 0 {
            (state.idle, state.called) = (state.idle - 1, state.called + 1);
            return self.queue.work.notify_one();
        }
        if state.threads == THREADS_MAX {
            return;
        }
        state.threads += 1;
        // it may wait for longer than the server is there
        let (queue, count, store) =
            (Arc::clone(&self.queue), Arc::clone(&self.count), Arc::downgrade(&self.store));
        let thread = std::thread::Builder::new().name("long-command".to_owned()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || queue.run(&count, &store)) {
            state.threads -= 1;
            if state.threads == 0 {
                tracing::error!(%error, "no thread for a long command: it runs here, and others wait");
                while let Some(errand) = state.queue.pop_front() {
                    drop(state);
                    errand.run(&self.count, &Arc::downgrade(&self.store));
                    state = self.queue.state();
                }
            }
        }
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<u64, UnderWay>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LongCommands {
    fn drop(&mut self) {
        drop(self.queue.close());
    }
}

impl Queue {
    /// What a thread does.
    fn run(&self, count: &AtomicU64, store: &Weak<Store>) {
        while let Some(errand) = self.next() {
            errand.run(count, store);
        }
        self.ended.notify_all();
    }

    /// The next errand, which is waited for; `None`: the thread is to end.
    fn next(&self) -> Option<Errand> {
        let mut state = self.state();
        loop {
            if let Some(errand) = state.queue.pop_front() {
                return Some(errand);
            }
            if state.is_closed {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let waited =
                self.work.wait_timeout_while(state, IDLE_MAX, |state| state.called == 0 && !state.is_closed);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
            if state.called > 0 {
                // whoever called took it off those that wait; another thread may have been quicker
                state.called -= 1;
                continue;
            }
            state.idle -= 1;
            if state.queue.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// Begins nothing any more.
    fn close(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.is_closed = true;
        state.queue.clear();
        self.work.notify_all();
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Errand {
    fn run(self, count: &AtomicU64, store: &Weak<Store>) {
        match self {
            Self::Call(call) => {
                // before it tells anybody of its end, who may ask for the count
                count.fetch_add(1, Ordering::Relaxed);
                call();
                if let Some(store) = store.upgrade() {
                    store.offer();
                }
            }
            Self::Drop(thing) => drop(thing),
        }
    }
}

/// Keys of a command, or commands of a transaction, beyond which it is long: fewer take about a millisecond.
const LONG_FROM: usize = 1_024;
/// The most elements that a command touches on a loop, some milliseconds long: one that would touch more is long.
pub(crate) const EFFORT_MAX: u64 = 4_096;
/// The stack of such a thread: functions of scripts go a thousand levels deep into tables.
const STACK_BYTES: usize = 8 << 20;
/// Threads that run long commands: a second one, so that a short one of them need not wait for the longest.
const THREADS_MAX: usize = 2;
/// A thread that had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);
