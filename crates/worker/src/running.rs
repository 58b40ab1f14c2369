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

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use topology::bolt::BoltTask;
use topology::builder::{Factory, Program};
use topology::definition::Guarantee;
use topology::grouping::{CustomGrouping, HashKey};
use topology::ids::{ComponentId, ExecutorId, TaskId};
use topology::lifecycle::{Lifecycle, State};
use topology::random::Random;
use topology::ranges::Ranges;
use topology::spout::{Poison, SpoutTask};
use topology::{Plan, Wiring};

use crate::cell::{BoltCell, Cell, Common, SpoutCell};
use crate::executor::Executor;
use crate::mailbox::{Mailbox, Order};
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
}

/// Why a topology was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A store would have to keep its epochs.
    #[error(
        "exactly-once needs a store for its epochs, which a topology in one process does not have: use at-least-once"
    )]
    ExactlyOnce,
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

/// A topology that runs. When it is dropped it is stopped at once.
#[derive(Debug)]
pub struct Running {
    plan: Arc<Plan>,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    directory: Arc<Directory>,
    quiet: Arc<Quiet>,
    lifecycle: Mutex<Lifecycle>,
    exits: Arc<Exits>,
    threads: Vec<JoinHandle<()>>,
}

/// How a topology has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Nothing was left to be finished.
    pub is_finished: bool,
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
        Self { threads: 0, clock: Arc::new(SystemClock) }
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
    /// Starts a topology. It is active.
    ///
    /// # Errors
    /// Its guarantee is exactly-once, or the system has no more threads.
    pub fn start(program: &Program, options: &Options) -> Result<Self, StartError> {
        let plan = Arc::clone(program.plan());
        if plan.settings().guarantee == Guarantee::ExactlyOnce {
            return Err(StartError::ExactlyOnce);
        }
        let threads = options.threads(&plan);
        let mut running = Self {
            clock: Arc::clone(&options.clock),
            board: Arc::new(Board::new(&plan, threads)),
            directory: Arc::new(directory(&plan, threads)),
            quiet: Arc::new(Quiet::new(threads)),
            lifecycle: Mutex::new(Lifecycle::new()),
            exits: Arc::new(Exits { has_ended: Mutex::new(vec![false; threads]), bell: Condvar::new() }),
            threads: Vec::new(),
            plan,
        };
        for (thread, cells) in running.cells(program).into_iter().enumerate() {
            let handle =
                running.spawn(thread, cells).map_err(|source| StartError::Thread { thread, source })?;
            running.threads.push(handle);
        }
        Ok(running)
    }

    /// Its definition.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Lets spouts emit; whether it was not killed before.
    pub fn activate(&self) -> bool {
        let may = lock(&self.lifecycle).activate();
        self.order_if(may, Order::Active(true))
    }

    /// Lets spouts emit nothing new, while what is under way is finished; whether it was not killed before.
    pub fn deactivate(&self) -> bool {
        let may = lock(&self.lifecycle).deactivate();
        self.order_if(may, Order::Active(false))
    }

    /// What it has done. Counters may be 100 ms old.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.board.snapshot(&self.plan, self.clock.now())
    }

    /// Stops it when all that is under way is finished, at the latest after `grace`. Components whose code does not return are left alone a second later.
    pub fn kill(mut self, grace: Duration) -> Ended {
        let now = self.clock.now();
        lock(&self.lifecycle).kill(now, grace);
        self.order_if(true, Order::Drain);
        let is_finished = self.drain();
        let stalled = self.stop();
        Ended { is_finished, stalled, stats: self.stats() }
    }

    /// Waits for the end of a kill; whether all is finished.
    fn drain(&self) -> bool {
        let mut is_quiet = false;
        loop {
            let now = self.clock.now();
            match lock(&self.lifecycle).on_time(now, is_quiet) {
                State::Draining(until) => is_quiet = self.quiet.wait(until.since(now)),
                _ => return is_quiet,
            }
        }
    }

    /// Stops all threads; the tasks whose components do not return.
    fn stop(&mut self) -> Vec<(String, TaskId)> {
        self.order_if(true, Order::Stop);
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
        stalled
    }

    fn order_if(&self, may: bool, order: Order) -> bool {
        if may {
            self.directory.mailboxes.iter().for_each(|mailbox| mailbox.order(order));
        }
        may
    }

    /// The tasks of each thread.
    fn cells(&self, program: &Program) -> Vec<Vec<Cell>> {
        let mut cells: Vec<Vec<Cell>> = self.directory.mailboxes.iter().map(|_| Vec::new()).collect();
        let maker = Maker::new(program);
        for task in (0..self.plan.tasks_count()).map(TaskId) {
            let Place { thread, cell } = self.directory.place(task);
            assert_eq!(cells[thread].len(), cell, "the directory was made in the order of tasks");
            let mailbox = Arc::clone(&self.directory.mailboxes[thread]);
            let (plan, clock, board) = (&self.plan, &self.clock, &self.board);
            let common = Common::new(Arc::clone(plan), Arc::clone(clock), task, Arc::clone(board), mailbox);
            cells[thread].push(maker.cell(self.clock.now(), common));
        }
        cells
    }

    fn spawn(&self, thread: usize, cells: Vec<Cell>) -> std::io::Result<JoinHandle<()>> {
        let (clock, board) = (Arc::clone(&self.clock), Arc::clone(&self.board));
        let (directory, quiet) = (Arc::clone(&self.directory), Arc::clone(&self.quiet));
        let executor = Executor::new(thread, clock, board, directory, quiet, cells);
        let exits = Arc::clone(&self.exits);
        let name = format!("topology-{thread}");
        std::thread::Builder::new().name(name).spawn(move || {
            let _said = Exit { exits, thread };
            executor.run();
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.stop();
        }
    }
}

/// Makes tasks.
struct Maker<'a> {
    program: &'a Program,
    ranges: Vec<Arc<Ranges>>,
    key: HashKey,
    seed: u64,
}

impl<'a> Maker<'a> {
    fn new(program: &'a Program) -> Self {
        let plan = program.plan();
        let ranges = plan.components().map(|(id, _)| Arc::new(Ranges::new(plan.tasks(id).len() as u32)));
        // Three numbers that no other run has.
        let number = |n: u64| RandomState::new().hash_one(n);
        Self { program, ranges: ranges.collect(), key: HashKey(number(0), number(1)), seed: number(2) }
    }

    fn cell(&self, now: Nanos, common: Common) -> Cell {
        let (task, factory) = (common.task, self.program.factory(common.component).clone());
        let wiring = Wiring {
            plan: self.program.plan(),
            ranges: &|component: ComponentId| Arc::clone(&self.ranges[usize::from(component.0)]),
            is_local: &|_| true,
            custom: &|name: &str| -> Option<Box<dyn CustomGrouping>> { self.program.grouping(name) },
            key: self.key,
            seed: Random::new(self.seed ^ u64::from(task.0)).bits(),
            start: 1,
        };
        let checked = "the program has all groupings";
        match factory {
            Factory::Spout(_) => {
                let task = SpoutTask::new(task, &wiring, Poison::new()).expect(checked);
                Cell::Spout(Box::new(SpoutCell::new(common, task, factory)))
            }
            Factory::Bolt(_) => {
                let task = BoltTask::new(now, task, &wiring, false).expect(checked);
                Cell::Bolt(Box::new(BoltCell::new(common, task, factory)))
            }
        }
    }
}

/// Deals executors to threads in turn.
fn directory(plan: &Plan, threads: usize) -> Directory {
    let mut counts = vec![0; threads];
    let mut places = Vec::new();
    for executor in 0..plan.executors_count() {
        let thread = executor as usize % threads;
        for _ in plan.executor(ExecutorId(executor)).1 {
            places.push(Place { thread, cell: counts[thread] });
            counts[thread] += 1;
        }
    }
    Directory { places, mailboxes: (0..threads).map(|_| Arc::new(Mailbox::default())).collect() }
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
