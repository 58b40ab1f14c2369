//! A topology that runs: its threads, and what its owner can do with it.
//!
//! ```no_run
//! # fn program() -> topology::builder::Program { unimplemented!() }
//! # use std::time::Duration;
//! let running = worker::Running::start(&program(), &worker::Options::default())?;
//! println!("{:#?}", running.stats());
//! let ended = running.kill(Duration::from_secs(30));
//! assert!(ended.is_finished && ended.stalled.is_empty());
//! # Ok::<(), worker::StartError>(())
//! ```

use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use connection::Target;
use topology::Plan;
use topology::builder::Program;
use topology::definition::Guarantee;
use topology::ids::{ComponentId, ExecutorId, TaskId, WorkerId};
use topology::lifecycle::{Lifecycle, State};
use topology::tap::{Choice, Seen};

use crate::cell::{Cell, Common};
use crate::epochs::Coordinator;
use crate::epochs::inbox::{COORDINATOR, CoordinatorInbox, Incoming, ToCoordinator};
use crate::epochs::member::Member;
use crate::executor::{ExactlyOnce, Executor, Shared};
use crate::inbox::Inbox;
use crate::mailbox::Order;
use crate::maker::{self, Maker};
use crate::part::{Moves, Part};
use crate::post::{Directory, Place};
use crate::quiet::Quiet;
use crate::stats::{Board, Stats};
use crate::sync::{lock, wait};

/// How a topology is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that share its executors; 0: one for each processor. More than there are executors are not started.
    pub threads: usize,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
    /// The server that keeps epochs and state, which exactly-once needs.
    pub store: Option<Target>,
}

/// Why a topology was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A store has to keep its epochs.
    #[error("exactly-once needs a server that keeps its epochs (Options::store), and none is given")]
    NoStore,
    /// The connection to the store could not be started.
    #[error("the thread for epochs could not be started")]
    Epochs(#[source] std::io::Error),
    /// The system has no more threads.
    #[error("thread {thread} could not be started")]
    Thread {
        /// Which one.
        thread: usize,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What runs of a topology. When it is dropped it is stopped at once.
pub struct Running {
    worker: WorkerId,
    plan: Arc<Plan>,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    directory: Arc<Directory>,
    quiet: Arc<Quiet>,
    maker: Arc<Maker>,
    moves: Moves,
    lifecycle: Mutex<Lifecycle>,
    exits: Arc<Exits>,
    threads: Vec<JoinHandle<()>>,
    /// With exactly-once: this worker's part in epochs, and the coordinator, if it is here.
    member: Option<Arc<Member>>,
    coordinator: Option<(Arc<CoordinatorInbox>, JoinHandle<()>)>,
}

/// How a topology has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Nothing was left to be finished.
    pub is_finished: bool,
    /// All its threads have ended.
    pub is_stopped: bool,
    /// Components whose code did not return: for each, the task. Their threads are left alone.
    pub stalled: Vec<(String, TaskId)>,
    /// What it has done.
    pub stats: Stats,
}

/// Which threads have ended.
#[derive(Debug)]
struct Exits {
    has_ended: Mutex<Vec<bool>>,
    bell: Condvar,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 0, clock: Arc::new(SystemClock), store: None }
    }
}

impl Options {
    /// The default with so many threads.
    #[must_use]
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, ..Self::default() }
    }

    fn threads(&self, plan: &Plan) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = if self.threads == 0 { processors() } else { self.threads };
        wanted.clamp(1, plan.executors_count() as usize)
    }
}

impl Running {
    /// Starts a topology, all of it. It is active.
    ///
    /// # Errors
    /// Its guarantee is exactly-once and there is no store, or the system has no more threads.
    pub fn start(program: &Program, options: &Options) -> Result<Self, StartError> {
        Self::start_part(program, options, &Part::all(program.plan()))
    }

    /// Starts what a part has of a topology. It is active.
    ///
    /// # Errors
    /// As [`Running::start`].
    ///
    /// # Panics
    /// If the part is of another topology.
    pub fn start_part(program: &Program, options: &Options, part: &Part) -> Result<Self, StartError> {
        let plan = Arc::clone(program.plan());
        let store = match (plan.settings().guarantee, &options.store) {
            (Guarantee::ExactlyOnce, None) => return Err(StartError::NoStore),
            (Guarantee::ExactlyOnce, store) => store.clone(),
            _ => None,
        };
        assert_eq!(part.places.len(), plan.tasks_count() as usize, "each task has a place");
        let threads = options.threads(&plan);
        let places = maker::places(&plan, threads, part.worker, &part.places);
        let mut running = Self {
            worker: part.worker,
            clock: Arc::clone(&options.clock),
            board: Arc::new(Board::new(&plan, threads)),
            directory: Arc::new(Directory::new(&places, threads, Arc::clone(&part.links))),
            quiet: Arc::new(Quiet::new(threads)),
            maker: Arc::new(Maker::new(program, part)),
            moves: Arc::clone(&part.moves),
            lifecycle: Mutex::new(Lifecycle::new()),
            exits: Arc::new(Exits { has_ended: Mutex::new(vec![false; threads]), bell: Condvar::new() }),
            threads: Vec::new(),
            member: None,
            coordinator: None,
            plan,
        };
        let exactly_once = store.map(|target| running.start_epochs(part, target)).transpose()?;
        // With exactly-once tasks are made when the store has said where they begin.
        let start = exactly_once.is_none().then_some(part.start);
        for (thread, cells) in running.cells(start).into_iter().enumerate() {
            let handle = running.spawn(thread, cells, exactly_once.clone());
            running.threads.push(handle.map_err(|source| StartError::Thread { thread, source })?);
        }
        Ok(running)
    }

    /// Takes part in epochs, with their coordinator if this is its worker; what the tasks of threads are made with.
    fn start_epochs(&mut self, part: &Part, target: Target) -> Result<ExactlyOnce, StartError> {
        let coordinator = if part.worker == COORDINATOR {
            ToCoordinator::Here(Arc::default(), part.worker)
        } else {
            ToCoordinator::Away(Arc::clone(&part.links))
        };
        let (plan, directory) = (Arc::clone(&self.plan), Arc::clone(&self.directory));
        let member = Arc::new(Member::new(part.worker, plan, directory, coordinator));
        self.member = Some(Arc::clone(&member));
        if let Some(inbox) = member.inbox() {
            let program = self.maker.program();
            let coordinator =
                Coordinator::new(program, &self.clock, &self.board, &member, inbox, part, &target);
            let coordinator = coordinator.map_err(StartError::Epochs)?;
            let builder = std::thread::Builder::new().name("epochs".to_owned());
            let handle = builder.spawn(move || coordinator.run()).map_err(StartError::Epochs)?;
            self.coordinator = Some((Arc::clone(inbox), handle));
        }
        Ok(ExactlyOnce { maker: Arc::clone(&self.maker), target, member })
    }

    /// Its definition.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Lets spouts emit; whether it was not killed before.
    pub fn activate(&self) -> bool {
        let may = lock(&self.lifecycle).activate();
        self.order_if(may, || Order::Active(true))
    }

    /// Lets spouts emit nothing new, while what is under way is finished; whether it was not killed before.
    pub fn deactivate(&self) -> bool {
        let may = lock(&self.lifecycle).deactivate();
        self.order_if(may, || Order::Active(false))
    }

    /// What it has done. Counters may be 100 ms old.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let is_here = |task| matches!(self.directory.place(task), Place::Here { .. });
        self.board.snapshot(&self.plan, self.clock.now(), self.clock.unix_ms(), &is_here)
    }

    /// Within this time the part `quantile` (0 to 1) of the tuples of a spout were acknowledged, to two digits; 0 if there is no such spout or none was.
    #[must_use]
    pub fn complete_within(&self, spout: &str, quantile: f64) -> Duration {
        let found = self.plan.components().find(|(_, component)| component.id == spout);
        found.map_or(Duration::ZERO, |(id, _)| {
            self.board.components[usize::from(id.0)].complete_within(quantile)
        })
    }

    /// What the look `id` has seen of what `component` emits here, since the last time. It begins with the first time, and ends when nobody has asked for it
    /// for 10 s.
    #[must_use]
    pub fn look(&self, id: u64, component: ComponentId, choice: Choice) -> Seen {
        self.maker.taps.look(self.clock.now(), id, component, choice)
    }

    /// Ends looks that nobody has asked for.
    pub fn expire_looks(&self) {
        self.maker.taps.expire(self.clock.now());
    }

    /// Where what other workers send is put.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        let (directory, quiet) = (Arc::clone(&self.directory), Arc::clone(&self.quiet));
        Inbox { directory, quiet, member: self.member.clone() }
    }

    /// With exactly-once, in the worker that has the coordinator: tasks are to be at `places`. They all begin there in a new generation, which [`crate::Move::Dealt`] tells.
    pub fn deal(&self, places: Vec<WorkerId>) {
        if let Some((inbox, _)) = &self.coordinator {
            inbox.put(Incoming::Dealt(places));
        }
    }

    /// A task is about to move: those who send to it hold, and if it is here it ends when it has finished what it has.
    pub fn hold(&self, task: TaskId) {
        self.maker.set_held(task, true);
        self.order_if(true, || Order::Hold(task));
    }

    /// A task that was elsewhere is of this worker from now on. It does nothing before [`Running::resume`]; `start`: see [`Part::start`].
    pub fn adopt(&self, task: TaskId, start: u32) {
        // Those who send to it hold for it: it holds for others, not for itself.
        let thread = self.thread_for(task);
        let common = self.common(task, thread);
        let mut cell = self.maker.cell(self.clock.now(), common, start, &self.directory, None);
        cell.set_active(lock(&self.lifecycle).state() == State::Active);
        self.directory.mailboxes[thread].order(Order::Adopt(Box::new(cell)));
    }

    /// A task is at `worker` from now on: what is for it goes there.
    pub fn place(&self, task: TaskId, worker: WorkerId) {
        if worker != self.worker {
            self.directory.set_place(task, Place::At(worker));
        }
    }

    /// A task has moved, and all workers know where it is: it begins there, and those who hold for it go on.
    pub fn resume(&self, task: TaskId) {
        self.maker.set_held(task, false);
        self.order_if(true, || Order::Resume(task));
    }

    /// Lets spouts emit nothing new, and watches when nothing is under way: the first step of an end.
    pub fn begin_drain(&self) {
        self.order_if(true, || Order::Drain);
    }

    /// While it drains, if nothing is under way here and other workers have got all that was sent: how much they have sent since the start. If two
    /// rounds of all workers give the same, nothing is under way in any of them.
    #[must_use]
    pub fn quiet(&self) -> Option<u64> {
        let calm = self.quiet.calm()?;
        let is_settled = self.directory.links.is_settled();
        // The threads were idle all the time in which the links were looked at.
        (is_settled && self.quiet.calm().as_ref() == Some(&calm)).then_some(calm.received)
    }

    /// Stops it when all that is under way is finished, at the latest after `grace`. Components whose code does not return are left alone a second later.
    pub fn kill(mut self, grace: Duration) -> Ended {
        let now = self.clock.now();
        lock(&self.lifecycle).kill(now, grace);
        self.begin_drain();
        let is_finished = self.drain();
        let (is_stopped, stalled) = self.stop();
        Ended { is_finished, is_stopped, stalled, stats: self.stats() }
    }

    /// Waits for the end of a kill; whether all is finished.
    fn drain(&self) -> bool {
        let mut is_quiet = false;
        loop {
            let now = self.clock.now();
            match lock(&self.lifecycle).on_time(now, is_quiet) {
                State::Draining(until) => {
                    is_quiet = self.quiet.wait(until.since(now)) && self.directory.links.is_settled();
                    if !is_quiet && self.quiet.calm().is_some() {
                        // The others are about to acknowledge the last of it, which rings no bell here.
                        std::thread::park_timeout(LOOK_AGAIN);
                    }
                }
                _ => return is_quiet,
            }
        }
    }

    /// Stops all threads; whether all have ended, and the tasks whose components do not return.
    fn stop(&mut self) -> (bool, Vec<(String, TaskId)>) {
        self.order_if(true, || Order::Stop);
        let until = self.clock.now() + STOP_GRACE;
        let has_ended = self.exits.wait(&*self.clock, until);
        let mut stalled = Vec::new();
        for (thread, handle) in self.threads.drain(..).enumerate() {
            if has_ended[thread] {
                // It ends now, if not before: nothing follows its last word. A panic of it was one of a component's and was counted.
                let _ = handle.join();
            } else if let Some((task, _)) = self.board.threads[thread].current(self.clock.now()) {
                stalled.push((self.plan.component(self.plan.component_of(task)).id.clone(), task));
            }
        }
        if let Some((inbox, handle)) = self.coordinator.take() {
            inbox.close();
            let _ = handle.join();
        }
        (has_ended.iter().all(|it| *it), stalled)
    }

    fn order_if(&self, may: bool, order: impl Fn() -> Order) -> bool {
        if may {
            self.directory.mailboxes.iter().for_each(|mailbox| mailbox.order(order()));
        }
        may
    }

    /// The tasks of each thread, and whether they wait; none without a start.
    fn cells(&self, start: Option<u32>) -> Vec<Vec<(Cell, bool)>> {
        let mut cells: Vec<Vec<(Cell, bool)>> = self.directory.mailboxes.iter().map(|_| Vec::new()).collect();
        let Some(start) = start else { return cells };
        for task in (0..self.plan.tasks_count()).map(TaskId) {
            let Place::Here { thread, cell } = self.directory.place(task) else { continue };
            assert_eq!(cells[thread].len(), cell, "the places were made in the order of tasks");
            let common = self.common(task, thread);
            let cell = self.maker.cell(self.clock.now(), common, start, &self.directory, None);
            cells[thread].push((cell, self.maker.is_held(task)));
        }
        cells
    }

    fn common(&self, task: TaskId, thread: usize) -> Common {
        let mailbox = Arc::clone(&self.directory.mailboxes[thread]);
        let (plan, clock, board) = (&self.plan, &self.clock, &self.board);
        Common::new(Arc::clone(plan), Arc::clone(clock), task, Arc::clone(board), mailbox)
    }

    /// The thread for a task that comes: that of its executor, if it has one here, or the one with the fewest tasks.
    fn thread_for(&self, task: TaskId) -> usize {
        let thread_of = |task| match self.directory.place(task) {
            Place::Here { thread, .. } => Some(thread),
            Place::At(_) => None,
        };
        let mut executors = (0..self.plan.executors_count()).map(|it| self.plan.executor(ExecutorId(it)).1);
        let siblings = executors.find(|tasks| tasks.contains(&task.0)).unwrap_or(0..0);
        siblings.map(TaskId).find_map(thread_of).unwrap_or_else(|| {
            let mut counts = vec![0; self.directory.mailboxes.len()];
            let all = (0..self.plan.tasks_count()).map(TaskId).filter_map(thread_of);
            all.for_each(|thread| counts[thread] += 1);
            (0..counts.len()).min_by_key(|thread| counts[*thread]).unwrap_or(0)
        })
    }

    fn spawn(
        &self,
        thread: usize,
        cells: Vec<(Cell, bool)>,
        exactly_once: Option<ExactlyOnce>,
    ) -> std::io::Result<JoinHandle<()>> {
        let shared = Shared {
            clock: Arc::clone(&self.clock),
            board: Arc::clone(&self.board),
            directory: Arc::clone(&self.directory),
            quiet: Arc::clone(&self.quiet),
            moves: Arc::clone(&self.moves),
        };
        let executor = Executor::new(thread, shared, cells, exactly_once);
        let exits = Arc::clone(&self.exits);
        let name = format!("topology-{thread}");
        std::thread::Builder::new().name(name).spawn(move || {
            let _said = Exit { exits, thread };
            executor.run();
        })
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop();
        }
    }
}

/// Says that a thread has ended, also if it panicked.
struct Exit {
    exits: Arc<Exits>,
    thread: usize,
}

impl Drop for Exit {
    fn drop(&mut self) {
        lock(&self.exits.has_ended)[self.thread] = true;
        self.exits.bell.notify_all();
    }
}

impl Exits {
    /// Waits for all threads, at the latest until a time: which have ended.
    fn wait(&self, clock: &dyn Clock, until: Nanos) -> Vec<bool> {
        let mut has_ended = lock(&self.has_ended);
        loop {
            let left = until.since(clock.now());
            if has_ended.iter().all(|has_ended| *has_ended) || left.is_zero() {
                return has_ended.clone();
            }
            has_ended = wait(&self.bell, has_ended, Some(left));
        }
    }
}

/// How long a stop waits for the code of components to return.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// When a worker that waits for the acknowledgements of others looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
