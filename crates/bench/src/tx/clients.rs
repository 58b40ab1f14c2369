//! Those who commit: threads that each wait for their transaction, or lanes that keep many under way.
//!
//! A latency is from the call of commit until its outcome was told. Of many on one lane it counts from when the lane began to deal
//! with the last outcomes, so what it spends on others is charged, too.
//!
//! A transaction belongs to the part of the run in which its outcome came.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use rustix::time::{ClockId, clock_gettime};
use txn::coordinator::Coordinator;
use txn::decision_log::LogCounters;
use txn::id::TxId;
use txn::lane::{Lane, LaneError};
use txn::protocol::Outcome;

use super::Load;
use crate::drive::Recorder;
use crate::{Failure, process};

/// What all clients came to.
pub(super) struct Totals {
    /// Of the part that counts; failures of the whole run.
    pub(super) recorder: Recorder,
    /// Commits that were reported in the whole run.
    pub(super) committed: u64,
    /// How long the part that counts was.
    pub(super) took: Duration,
    /// What it took of machine and log.
    pub(super) before: Usage,
    pub(super) after: Usage,
}

/// What this process has used, and its log has done, since their start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    /// Bytes that the system wrote to disks for it.
    pub(super) device_bytes: u64,
    pub(super) log: LogCounters,
}

/// Has `load` commit on `coordinator`.
///
/// # Errors
/// A thread could not be started.
pub(super) fn drive(coordinator: &Coordinator, load: &Load) -> Result<Totals, Failure> {
    let stage = Phase(AtomicU8::new(WARMING));
    std::thread::scope(|scope| {
        let started = (0..load.threads).map(|index| start(scope, coordinator, load, index, &stage));
        let threads = started.collect::<Result<Vec<_>, _>>();
        let threads = threads.inspect_err(|_| stage.enter(ENDING))?;
        std::thread::sleep(load.warm_up);
        let before = Usage::of(coordinator);
        stage.enter(MEASURED);
        let at = Instant::now();
        std::thread::sleep(load.duration);
        stage.enter(ENDING);
        let (took, after) = (at.elapsed(), Usage::of(coordinator));
        let (mut recorder, mut committed) = (Recorder::default(), 0);
        for thread in threads {
            let client = thread.join().map_err(|_| "a client panicked".to_owned())?;
            recorder.add(&client.recorder);
            committed += client.committed;
        }
        Ok(Totals { recorder, committed, took, before, after })
    })
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    coordinator: &Coordinator,
    load: &Load,
    index: usize,
    stage: &'scope Phase,
) -> Result<ScopedJoinHandle<'scope, Client>, Failure> {
    let mut lane = coordinator.lane();
    // The first lanes take what does not divide.
    let share = load.logical.map(|all| all / load.threads + usize::from(index < all % load.threads));
    let work = move || {
        let mut client = Client::new();
        let ended = match share {
            None => client.commit_one_by_one(&mut lane, stage),
            Some(many) => client.keep_under_way(&mut lane, many, stage),
        };
        if let Err(error) = ended {
            client.recorder.tally.failures.error_reply(error.to_string().as_bytes());
        }
        client
    };
    let thread = Builder::new().name(format!("client-{index}")).stack_size(STACK_BYTES);
    thread.spawn_scoped(scope, work).map_err(|error| format!("cannot start thread {index}: {error}"))
}

impl Usage {
    fn of(coordinator: &Coordinator) -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            cpu: Duration::try_from(cpu).unwrap_or_default(),
            // Not told in some containers: 0 then.
            device_bytes: process::written_bytes(std::process::id()).unwrap_or(0),
            log: coordinator.log_counters(),
        }
    }
}

/// Which part of the run it is.
struct Phase(AtomicU8);

impl Phase {
    fn enter(&self, part: u8) {
        self.0.store(part, Ordering::Relaxed);
    }

    fn is(&self, part: u8) -> bool {
        self.0.load(Ordering::Relaxed) == part
    }
}

/// One thread's count.
struct Client {
    recorder: Recorder,
    committed: u64,
}

impl Client {
    fn new() -> Self {
        Self { recorder: Recorder::default(), committed: 0 }
    }

    /// A closed loop of one transaction.
    fn commit_one_by_one(&mut self, lane: &mut Lane, stage: &Phase) -> Result<(), LaneError> {
        while !stage.is(ENDING) {
            let tx = begin(lane)?;
            let started = Instant::now();
            let outcome = lane.commit_and_wait(tx)?;
            self.take(&outcome, started.elapsed(), stage.is(MEASURED));
        }
        Ok(())
    }

    /// A closed loop of `many`: each that ends is followed by the next.
    fn keep_under_way(&mut self, lane: &mut Lane, many: usize, stage: &Phase) -> Result<(), LaneError> {
        let mut under_way: HashMap<TxId, Instant, RandomState> =
            HashMap::with_capacity_and_hasher(many, RandomState::default());
        let mut finished = Vec::with_capacity(many);
        let mut now = Instant::now();
        for _ in 0..many {
            under_way.insert(commit_another(lane)?, now);
        }
        while !under_way.is_empty() {
            lane.turn(&mut finished);
            if finished.is_empty() {
                lane.wait();
                continue;
            }
            now = Instant::now();
            let (is_measured, is_ending) = (stage.is(MEASURED), stage.is(ENDING));
            for (tx, outcome) in finished.drain(..) {
                // One that is not ours would be the manager's bug: it is not counted, and the audit misses it.
                let Some(started) = under_way.remove(&tx) else { continue };
                self.take(&outcome, now - started, is_measured);
                if !is_ending {
                    under_way.insert(commit_another(lane)?, now);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, outcome: &Outcome, took: Duration, is_measured: bool) {
        if *outcome != Outcome::Committed {
            return self.recorder.tally.failures.error_reply(format!("{outcome:?}").as_bytes());
        }
        self.committed += 1;
        if is_measured {
            self.recorder.answered(took);
        }
    }
}

/// A transaction with a branch of each dummy.
fn begin(lane: &mut Lane) -> Result<TxId, LaneError> {
    let tx = lane.begin(TIMEOUT)?;
    lane.enlist(tx, 0)?;
    lane.enlist(tx, 1)?;
    Ok(tx)
}

fn commit_another(lane: &mut Lane) -> Result<TxId, LaneError> {
    let tx = begin(lane)?;
    lane.commit(tx)?;
    Ok(tx)
}

const WARMING: u8 = 0;
const MEASURED: u8 = 1;
const ENDING: u8 = 2;
/// Longer than any disk stalls: a transaction that is rolled back makes the run invalid.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Hundreds of threads that do little.
const STACK_BYTES: usize = 512 << 10;
