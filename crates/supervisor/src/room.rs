//! What all topologies are, shared by the thread that has their processes and by callers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Nanos;

use crate::life::{Life, State};
use crate::talk::{Job, Status};

/// A topology, as whoever asks is told of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// Its worker's process, if there is one.
    pub pid: Option<u32>,
    /// How long its worker runs.
    pub uptime: Duration,
    /// How often its worker was started again after a fault.
    pub restarts: u64,
    /// Why its last worker ended, if that was a fault.
    pub last_error: Option<String>,
    /// What its worker said last; nothing before that.
    pub status: Arc<Status>,
    /// Nothing is under way, as its worker said since spouts were told to emit nothing.
    pub is_drained: bool,
}

/// A topology.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) job: Arc<Job>,
    pub(crate) life: Life,
    pub(crate) worker: Option<(u32, Nanos)>,
    /// What its worker, and nobody else, can log in with.
    pub(crate) token: Option<String>,
    pub(crate) status: Arc<Status>,
    pub(crate) is_drained: bool,
}

/// What is shared.
#[derive(Debug)]
pub(crate) struct Room {
    entries: Mutex<Entries>,
    /// Wakes the thread.
    pub(crate) bell: OwnedFd,
}

/// All topologies, by name.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) by_name: BTreeMap<String, Entry>,
    /// The server stops: nothing is started any more.
    pub(crate) is_stopping: bool,
}

impl Room {
    pub(crate) fn new(bell: OwnedFd) -> Self {
        Self { entries: Mutex::default(), bell }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        // Entries are whole whatever panics.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        // It fails only when the bell has rung often enough.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Takes what was rung.
    pub(crate) fn hear(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }
}

impl Entry {
    pub(crate) fn new(now: Nanos, job: Job) -> Self {
        let life = Life::new(now, job.is_active);
        Self {
            job: Arc::new(job),
            life,
            worker: None,
            token: None,
            status: Arc::default(),
            is_drained: false,
        }
    }

    pub(crate) fn report(&self, now: Nanos) -> Report {
        Report {
            name: self.job.name.clone(),
            state: self.life.state(),
            pid: self.worker.map(|(pid, _)| pid),
            uptime: self.worker.map(|(_, since)| now.since(since)).unwrap_or_default(),
            restarts: self.life.restarts(),
            last_error: self.life.last_error().map(str::to_owned),
            status: Arc::clone(&self.status),
            is_drained: self.is_drained && self.life.state() == State::Inactive,
        }
    }
}
