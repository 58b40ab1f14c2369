//! What all topologies are, shared by the thread that has their processes and by callers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use clock::Nanos;
use processes::duplex::EventFd;
use topology::Plan;
use topology::statistics::Status;

use crate::group::{Group, Wanted};
use crate::lease::Lease;
use crate::lifecycle::State;
use crate::messages::Job;
use crate::tap::Looks;

/// A topology, as whoever asks is told of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// The process of its first worker, if there is one.
    pub pid: Option<u32>,
    /// How long its first worker runs.
    pub uptime: Duration,
    /// How often its workers were started again after a fault.
    pub restarts: u64,
    /// Why a worker ended last, if that was a fault.
    pub last_error: Option<String>,
    /// What its workers have said last, added up, with what those that have died had done.
    pub status: Arc<Status>,
    /// Nothing is under way, as its workers said since spouts were told to emit nothing.
    pub is_drained: bool,
    /// Its workers.
    pub workers: Vec<WorkerReport>,
}

impl Report {
    /// Why nothing of it can go on, though its workers run.
    #[must_use]
    pub fn blocked(&self) -> Option<&str> {
        self.status.blocked.as_deref()
    }
}

/// A worker of a topology.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerReport {
    /// Its number.
    pub number: u32,
    /// Its process, if there is one.
    pub pid: Option<u32>,
    /// How long that runs.
    pub uptime: Duration,
    /// How many tasks it has.
    pub tasks: usize,
    /// How often it was started again after a fault.
    pub restarts: u64,
    /// What it has said last.
    pub status: Option<Arc<Status>>,
}

/// A topology.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) job: Arc<Job>,
    pub(crate) group: Group,
    /// Processes, by the numbers of workers.
    pub(crate) workers: BTreeMap<u32, Employed>,
    /// Looks of clients at what components emit.
    pub(crate) looks: Looks,
    /// What workers that are gone had done.
    former: Status,
    /// All added up, since somebody has said something.
    merged: Option<Arc<Status>>,
}

/// A process of a topology.
#[derive(Debug)]
pub(crate) struct Employed {
    /// Once it was started: its number and when.
    pub(crate) process: Option<(u32, Nanos)>,
    /// What it, and nobody else, can log in with.
    pub(crate) token: String,
    /// What connections have that log in with it.
    pub(crate) lease: Arc<Lease>,
    /// What it runs.
    pub(crate) plan: Option<Arc<Plan>>,
    status: Option<Arc<Status>>,
    /// It runs what was replaced by now: what it has done is not added up.
    is_outdated: bool,
    is_drained: bool,
}

/// What is shared.
#[derive(Debug)]
pub(crate) struct Topologies {
    entries: Mutex<Entries>,
    /// Wakes the thread.
    pub(crate) waker: EventFd,
    /// Ends connections, by their numbers.
    on_end: OnceLock<EndConnections>,
}

/// What ends connections whose worker has ended.
pub(crate) struct EndConnections(pub(crate) Box<End>);

type End = dyn Fn(&[u64]) + Send + Sync;

impl std::fmt::Debug for EndConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndConnections")
    }
}

/// All topologies, by name.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) by_name: BTreeMap<String, Entry>,
    /// The server stops: nothing is started any more.
    pub(crate) is_stopping: bool,
}

impl Topologies {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { entries: Mutex::default(), waker: EventFd::new()?, on_end: OnceLock::new() })
    }

    /// What ends connections. Once.
    pub(crate) fn set_on_end(&self, end: EndConnections) {
        let _ = self.on_end.set(end);
    }

    /// Ends connections whose worker has ended.
    pub(crate) fn end_connections(&self, connections: &[u64]) {
        if let Some(EndConnections(end)) = self.on_end.get().filter(|_| !connections.is_empty()) {
            end(connections);
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        // Entries are whole whatever panics.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    pub(crate) fn new(now: Nanos, job: Job, wanted: Wanted, secret: String) -> Self {
        Self {
            job: Arc::new(job),
            group: Group::new(now, wanted, secret),
            workers: BTreeMap::new(),
            looks: Looks::default(),
            former: Status::default(),
            merged: None,
        }
    }

    /// Another definition takes the place of this one.
    pub(crate) fn replace(&mut self, now: Nanos, wait: Duration, job: Job, wanted: Wanted) {
        self.group.replace(now, wait, wanted);
        self.job = Arc::new(job);
        self.workers.values_mut().for_each(|worker| worker.is_outdated = true);
        (self.former, self.merged, self.looks) = (Status::default(), None, Looks::default());
    }

    pub(crate) fn set_active(&mut self, is_active: bool) {
        self.group.set_active(is_active);
        self.workers.values_mut().for_each(|worker| worker.is_drained = false);
    }

    /// A worker is about to be started; what it can log in with.
    pub(crate) fn employ(&mut self, number: u32, token: String) {
        let plan = self.group.plan().cloned();
        let (process, status) = (None, None);
        let lease = Arc::new(Lease::new(&self.job.name));
        let worker = Employed { process, token, lease, plan, status, is_outdated: false, is_drained: false };
        self.workers.insert(number, worker);
    }

    /// A worker has said how it is.
    pub(crate) fn on_status(&mut self, now: Nanos, number: u32, status: Status) {
        self.group.on_status(now, number);
        self.looks.expire(now);
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.is_drained = status.is_idle && self.group.state() == State::Inactive;
            worker.status = Some(Arc::new(status));
            self.merged = None;
        }
    }

    /// A worker has ended, or was not started: what it has done counts on. The connections that are to end with it.
    pub(crate) fn discharge(&mut self, number: u32) -> Vec<u64> {
        self.looks.on_exit(number);
        self.merged = None;
        let Some(gone) = self.workers.remove(&number) else { return Vec::new() };
        let connections = gone.lease.end();
        if let Some(status) = gone.status.filter(|_| !gone.is_outdated) {
            self.former.add(&Arc::unwrap_or_clone(status).without_current());
        }
        connections
    }

    fn status(&mut self) -> Arc<Status> {
        let Self { workers, former, merged, .. } = self;
        let merged = merged.get_or_insert_with(|| {
            let mut all = former.clone();
            all.is_idle = !workers.is_empty();
            for worker in workers.values() {
                match &worker.status {
                    Some(status) => all.add(status),
                    None => all.is_idle = false,
                }
            }
            Arc::new(all)
        });
        Arc::clone(merged)
    }

    pub(crate) fn report(&mut self, now: Nanos) -> Report {
        let status = self.status();
        let process = |number: u32| self.workers.get(&number).and_then(|worker| worker.process);
        let uptime = |number| process(number).map(|(_, since)| now.since(since)).unwrap_or_default();
        let workers: Vec<WorkerReport> = self
            .group
            .workers_now()
            .map(|(number, restarts, tasks)| WorkerReport {
                number,
                pid: process(number).map(|(pid, _)| pid),
                uptime: uptime(number),
                tasks,
                restarts,
                status: self.workers.get(&number).and_then(|worker| worker.status.clone()),
            })
            .collect();
        let state = self.group.state();
        let is_drained = !self.workers.is_empty() && self.workers.values().all(|worker| worker.is_drained);
        Report {
            name: self.job.name.clone(),
            state,
            pid: workers.first().and_then(|worker| worker.pid),
            uptime: workers.first().map(|worker| worker.uptime).unwrap_or_default(),
            restarts: self.group.restarts(),
            last_error: self.group.last_error().map(str::to_owned),
            status,
            is_drained: is_drained && state == State::Inactive,
            workers,
        }
    }
}
