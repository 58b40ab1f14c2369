//! The journal's two threads, and the same work by hand for simulations.
//!
//! | thread | does | sleeps |
//! |---|---|---|
//! | `journal` | commit cycles that no loop does itself, stamps, the seal | until somebody offers (a flag, then unpark) |
//! | `journal-files` | ready files, zeroes, freed segments | until notified; tries again each second when the disk is full |
//!
//! [`Driver`] runs the same turns on the caller's thread: equal calls give an equal trace.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use vfs::FileLock;

use crate::committer::{self, Committer};
use crate::error::JournalError;
use crate::gather::Gather;
use crate::options::SyncMode;
use crate::preparer::Preparer;
use crate::shared::{Phase, Shared};

/// Runs the journal's work by hand: for simulations and tests, in place of the threads.
pub struct Driver {
    pub(crate) committer: Arc<Mutex<Committer>>,
    pub(crate) preparer: Preparer,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

impl Driver {
    /// Runs commit cycles until nothing is left to write; returns how many.
    pub fn commit(&mut self) -> usize {
        let mut turns = 0;
        let mut committer = committer::lock(&self.committer);
        while committer.turn() {
            turns += 1;
        }
        committer.sync_if_due();
        turns
    }

    /// Runs one commit cycle; false when there was nothing to write.
    pub fn commit_once(&mut self) -> bool {
        committer::lock(&self.committer).turn()
    }

    /// Prepares files until nothing is left to do; returns how many steps it took.
    pub fn prepare(&mut self) -> usize {
        let mut steps = 0;
        while self.preparer.step() {
            steps += 1;
        }
        steps
    }

    /// Lets retired segments wait for the next roll, as the threads do: whoever drives has to come back when time has passed.
    pub fn keep_spares(&mut self) {
        self.preparer.keep_spares();
    }

    /// Does one step of preparing files; false when there is nothing to do.
    pub fn prepare_once(&mut self) -> bool {
        self.preparer.step()
    }

    /// Writes the stamp of an idle journal; false when there is no need or no room.
    pub fn stamp(&mut self) -> bool {
        committer::lock(&self.committer).stamp()
    }

    /// Clean stop: writes what is left and the seal. Call [`crate::Journal::close`] first.
    pub fn seal(self) {
        committer::lock(&self.committer).seal();
    }
}

/// Starts both threads.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    lock: &Arc<dyn FileLock>,
    committer: Arc<Mutex<Committer>>,
    preparer: Preparer,
) -> Result<Vec<JoinHandle<()>>, JournalError> {
    let failed = |error| JournalError::failed("starting a thread of the journal", error);
    // The folder stays locked until the last write, even when the journal itself is gone by then.
    let (for_commits, lock) = (Arc::clone(shared), Arc::clone(lock));
    let commits = std::thread::Builder::new()
        .name("journal".into())
        .spawn(move || {
            run_committer(&for_commits, &committer);
            drop(lock);
        })
        .map_err(failed)?;
    let for_files = Arc::clone(shared);
    let files = std::thread::Builder::new()
        .name("journal-files".into())
        .spawn(move || run_preparer(&for_files, preparer))
        .map_err(failed)?;
    Ok(vec![commits, files])
}

fn run_committer(shared: &Shared, committer: &Mutex<Committer>) {
    shared.committer.adopt_current_thread();
    let mut gather = Gather::default();
    while shared.progress.phase() == Phase::Running {
        if shared.committer.take() {
            let_join(shared, &mut gather);
            commit(shared, committer, &mut gather);
            continue;
        }
        let due = due(shared, &committer::lock(committer));
        match due {
            Some(timeout) if timeout.is_zero() => {
                let mut committer = committer::lock(committer);
                let done = committer.sync_if_due() || committer.stamp();
                drop(committer);
                if !done {
                    std::thread::park_timeout(Duration::from_millis(shared.options.idle_stamp_ms));
                }
            }
            Some(timeout) => std::thread::park_timeout(timeout),
            None => std::thread::park(),
        }
    }
    if shared.progress.phase() == Phase::Closing {
        committer::lock(committer).seal();
    }
}

/// One turn, and what it teaches about those whom it releases.
fn commit(shared: &Shared, committer: &Mutex<Committer>, gather: &mut Gather) {
    let progress = &shared.progress;
    let before = progress.durable_lsn.load(Ordering::Relaxed);
    committer::lock(committer).turn();
    if shared.options.sync == SyncMode::Always {
        let records = progress.durable_lsn.load(Ordering::Relaxed) - before;
        let sync_ns = shared.counters.sync_ns_usual.load(Ordering::Relaxed);
        gather.on_cycle(records, progress.appended_lsn.load(Ordering::Relaxed), sync_ns);
    }
}

/// Leaves the processor to those whom the last cycle released, while they are coming, so that they join the next one.
fn let_join(shared: &Shared, gather: &mut Gather) {
    let appended = || shared.progress.appended_lsn.load(Ordering::Relaxed);
    if appended() == shared.progress.durable_lsn.load(Ordering::Relaxed) {
        return; // an offer of what is durable by now
    }
    let Some(watch) = gather.take_watch() else { return };
    let started = shared.clock.now();
    while !watch.is_full(appended()) && shared.clock.now().since(started) < watch.limit {
        std::thread::yield_now();
    }
    gather.on_end(watch, appended());
}

/// Time until a sync or a stamp is due that nobody offers.
fn due(shared: &Shared, committer: &Committer) -> Option<Duration> {
    let since = shared.clock.now().since(committer.last_sync());
    match shared.options.sync {
        _ if committer.has_unsynced() && committer.is_sync_asked() => Some(Duration::ZERO),
        SyncMode::Interval(interval) if committer.has_unsynced() => Some(interval.saturating_sub(since)),
        _ if committer.wants_stamp() => {
            Some(Duration::from_millis(shared.options.idle_stamp_ms).saturating_sub(since))
        }
        _ => None,
    }
}

fn run_preparer(shared: &Shared, mut preparer: Preparer) {
    shared.preparer.adopt_current_thread();
    preparer.keep_spares();
    while shared.progress.phase() == Phase::Running {
        if let Some(pause) = preparer.pause() {
            std::thread::park_timeout(pause);
            continue;
        }
        if preparer.step() {
            continue;
        }
        if shared.preparer.take() {
            continue;
        }
        if preparer.is_short() {
            std::thread::park_timeout(RETRY_WHEN_FULL);
        } else if let Some(rest) = preparer.spares_rest() {
            std::thread::park_timeout(rest);
        } else {
            std::thread::park();
        }
    }
}

/// How often a full disk is asked again.
const RETRY_WHEN_FULL: Duration = Duration::from_secs(1);
