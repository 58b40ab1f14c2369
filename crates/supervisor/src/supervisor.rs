//! What the server does with topologies that run.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;

use crate::group::Wanted;
use crate::lease::Lease;
use crate::lifecycle::State;
use crate::messages::Job;
use crate::place::Place;
use crate::process::{Limits, Program, kill_former};
use crate::tap::{LOOKS_MAX, Look, TapError, Tapped};
use crate::thread::{WorkersThread, random_bytes, secret};
use crate::topologies::{EndConnections, Entry, Report, Topologies};
use topology::Plan;
use topology::definition::Transport;

/// How workers are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program of a worker.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What tells the workers of this server's folder from all others.
    pub mark: String,
    /// Where components may be.
    pub dir: PathBuf,
    /// Most topologies.
    pub topologies_max: usize,
    /// Most tasks of a topology, each of which is a process.
    pub tasks_max: u32,
    /// Most workers of a topology.
    pub workers_max: u32,
    /// Hosts that components may post to.
    pub http_hosts: Vec<String>,
    /// What carries tuples between workers whose topology does not say.
    pub transport: Transport,
    /// Workers have the transport over libzmq.
    pub has_zeromq: bool,
    /// What workers may take of the machine.
    pub limits: Limits,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
}

/// A topology that is to be run.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What its workers are told.
    pub job: Job,
    /// Its tasks. Without them one worker has them all.
    pub plan: Option<Arc<Plan>>,
    /// How many workers share its tasks; executors that there are not get none.
    pub workers: u32,
}

/// A worker that has logged in.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Its topology.
    pub topology: String,
    /// What it was started with, if that could be read.
    pub plan: Option<Arc<Plan>>,
    /// Ends with the worker.
    pub lease: Arc<Lease>,
}

/// Keeps the workers of all topologies running. When it is dropped they are killed.
#[derive(Debug)]
pub struct Supervisor {
    options: Options,
    place: Place,
    topologies: Arc<Topologies>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Supervisor {
    /// A supervisor without topologies; no worker runs before [`Supervisor::start`].
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(options: Options) -> io::Result<Self> {
        let place = Place::new(&options.dir);
        Ok(Self { options, place, topologies: Arc::new(Topologies::new()?), thread: Mutex::default() })
    }

    /// Begins to run workers. Their components reach this server at `address`, as `host:port`. What workers of a former server have left behind
    /// is killed before.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(&self, address: Option<String>) -> io::Result<()> {
        let Options { program, arguments, mark, limits, clock, .. } = self.options.clone();
        let program = Program { path: program, arguments, mark, limits };
        let topologies = Arc::clone(&self.topologies);
        let thread = std::thread::Builder::new().name("topologies".to_owned()).spawn(move || {
            kill_former(&program);
            WorkersThread::new(program, address, topologies, clock).run();
        })?;
        *self.thread() = Some(thread);
        Ok(())
    }

    /// How workers are run.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Where components may be.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether the server stops: nothing is begun any more.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.topologies.lock().is_stopping
    }

    /// Runs a topology. One of this name that runs finishes what is under way before, for at most `wait`. Does nothing while the server stops, which would wait for
    /// its workers: what is kept runs after the next start.
    pub fn submit(&self, submission: Submission, wait: Duration) {
        let now = self.options.clock.now();
        let Submission { job, plan, workers } = submission;
        let wanted = Wanted { plan, workers, is_active: job.is_active };
        let mut entries = self.topologies.lock();
        if entries.is_stopping {
            return;
        }
        match entries.by_name.get_mut(&job.name) {
            Some(entry) if entry.group.state() != State::Gone => entry.replace(now, wait, job, wanted),
            _ => {
                let name = job.name.clone();
                entries.by_name.insert(name, Entry::new(now, job, wanted, secret()));
            }
        }
        drop(entries);
        self.topologies.waker.wake();
    }

    /// Ends a topology: what is under way is finished, for at most `wait`.
    pub fn kill(&self, name: &str, wait: Duration) {
        let now = self.options.clock.now();
        self.change(name, |entry| entry.group.kill(now, wait));
    }

    /// Lets spouts emit, or emit nothing new.
    pub fn set_active(&self, name: &str, is_active: bool) {
        self.change(name, |entry| entry.set_active(is_active));
    }

    /// Has `workers` workers, or as many as now, share the tasks of a topology evenly. It runs on meanwhile.
    pub fn rebalance(&self, name: &str, workers: Option<u32>) {
        let now = self.options.clock.now();
        self.change(name, |entry| entry.group.rebalance(now, workers));
    }

    /// Has other workers follow, when what is under way is finished, at the latest after `wait`.
    pub fn restart(&self, name: &str, wait: Duration) {
        let now = self.options.clock.now();
        self.change(name, |entry| entry.group.restart(now, wait));
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.topologies.lock().by_name.get_mut(name) {
            change(entry);
        }
        self.topologies.waker.wake();
    }

    /// The worker that runs and was given a token that `is_it`: a token ends with its worker.
    pub fn admits(&self, is_it: impl Fn(&[u8]) -> bool) -> Option<Admitted> {
        let entries = self.topologies.lock();
        let workers =
            entries.by_name.iter().flat_map(|(name, entry)| entry.workers.values().map(move |it| (name, it)));
        let (name, worker) = { workers }.find(|(_, worker)| is_it(worker.token.as_bytes()))?;
        Some(Admitted { topology: name.clone(), plan: worker.plan.clone(), lease: Arc::clone(&worker.lease) })
    }

    /// Has `end` end the connections that have logged in with the token of a worker that has ended, by the numbers that they have logged in with. Once.
    pub fn on_end(&self, end: impl Fn(&[u64]) + Send + Sync + 'static) {
        self.topologies.set_on_end(EndConnections(Box::new(end)));
    }

    /// All topologies, by name.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        let now = self.options.clock.now();
        self.topologies.lock().by_name.values_mut().map(|entry| entry.report(now)).collect()
    }

    /// The topology called `name`.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<Report> {
        let now = self.options.clock.now();
        self.topologies.lock().by_name.get_mut(name).map(|entry| entry.report(now))
    }

    /// What the workers of the topology `name` are told, but for their share.
    #[must_use]
    pub fn job(&self, name: &str) -> Option<Arc<Job>> {
        self.topologies.lock().by_name.get(name).map(|entry| Arc::clone(&entry.job))
    }

    /// What was seen of what a component emits, at most `count` tuples, since the last time; without a cursor it begins. It ends when nobody has asked for
    /// it for 10 s.
    ///
    /// # Errors
    /// There is no such topology, component, stream or look, or there are too many looks.
    pub fn tap(&self, name: &str, look: Look, cursor: Option<u64>, count: usize) -> Result<Tapped, TapError> {
        let now = self.options.clock.now();
        let mut entries = self.topologies.lock();
        entries.by_name.values_mut().for_each(|entry| entry.looks.expire(now));
        let open = entries.by_name.values().map(|entry| entry.looks.count()).sum::<usize>();
        let entry = entries.by_name.get_mut(name).ok_or(TapError::NoTopology)?;
        let cursor = match cursor {
            Some(cursor) => cursor,
            None if open >= LOOKS_MAX => return Err(TapError::TooMany),
            None => {
                entry.group.plan().map_or(Ok(()), |plan| look.check(plan))?;
                // One that no client guesses, and that RESP can say.
                let cursor = u64::from_le_bytes(random_bytes()) >> 1 | 1;
                entry.looks.open(now, cursor, look);
                cursor
            }
        };
        let running = entry.group.running().into_iter();
        let (tapped, orders) = entry.looks.take(now, cursor, count, running).ok_or(TapError::Ended)?;
        orders.into_iter().for_each(|(worker, order)| entry.group.tell(worker, order));
        drop(entries);
        self.topologies.waker.wake();
        Ok(tapped)
    }

    /// Ends all workers, and waits until nothing is left of them: at most `wait` for what is under way, and some seconds for what does not end.
    pub fn stop(&self, wait: Duration) {
        let now = self.options.clock.now();
        let mut entries = self.topologies.lock();
        entries.is_stopping = true;
        entries.by_name.values_mut().for_each(|entry| entry.group.stop(now, wait));
        drop(entries);
        self.topologies.waker.wake();
        if let Some(thread) = self.thread().take() {
            // It has nothing to say: a panic of it was reported where it happened.
            let _ = thread.join();
        }
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
