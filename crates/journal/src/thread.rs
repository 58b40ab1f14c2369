//! The journal's two threads, and the same work by hand for simulations.
//!
//! | thread | does | sleeps |
//! |---|---|---|
//! | `journal` | commit cycles, stamps, the seal | until somebody offers (a flag, then unpark) |
//! | `journal-files` | ready files, zeroes, freed segments | until notified; tries again each second when the disk is full |
//!
//! [`Driver`] runs the same turns on the caller's thread: equal calls give an equal trace.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use vfs::FileLock;

use crate::committer::Committer;
use crate::error::JournalError;
use crate::options::SyncMode;
use crate::preparer::Preparer;
use crate::shared::{Phase, Shared};

/// Runs the journal's work by hand: for simulations and tests, in place of the threads.
pub struct Driver {
    pub(crate) committer: Committer,
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
        while self.committer.turn() {
            turns += 1;
        }
        self.committer.sync_if_due();
        turns
    }

    /// Runs one commit cycle; false when there was nothing to write.
    pub fn commit_once(&mut self) -> bool {
        self.committer.turn()
    }

    /// Prepares files until nothing is left to do; returns how many steps it took.
    pub fn prepare(&mut self) -> usize {
        let mut steps = 0;
        while self.preparer.step() {
            steps += 1;
        }
        steps
    }

    /// Does one step of preparing files; false when there is nothing to do.
    pub fn prepare_once(&mut self) -> bool {
        self.preparer.step()
    }

    /// Writes the stamp of an idle journal; false when there is no need or no room.
    pub fn stamp(&mut self) -> bool {
        self.committer.stamp()
    }

    /// Clean stop: writes what is left and the seal. Call [`crate::Journal::close`] first.
    pub fn seal(mut self) {
        self.committer.seal();
    }
}

/// Starts both threads.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    lock: &Arc<dyn FileLock>,
    committer: Committer,
    preparer: Preparer,
) -> Result<Vec<JoinHandle<()>>, JournalError> {
    let failed = |error| JournalError::failed("starting a thread of the journal", error);
    // The folder stays locked until the last write, even when the journal itself is gone by then.
    let (for_commits, lock) = (Arc::clone(shared), Arc::clone(lock));
    let commits = std::thread::Builder::new()
        .name("journal".into())
        .spawn(move || {
            run_committer(&for_commits, committer);
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

fn run_committer(shared: &Shared, mut committer: Committer) {
    shared.committer.adopt_current_thread();
    while shared.progress.phase() == Phase::Running {
        if shared.committer.take() {
            committer.turn();
            continue;
        }
        if wait(shared, &committer) {
            continue;
        }
        if !committer.sync_if_due() {
            committer.stamp();
        }
    }
    if shared.progress.phase() == Phase::Closing {
        committer.seal();
    }
}

/// Sleeps until somebody offers; false when time came for a sync or a stamp instead.
fn wait(shared: &Shared, committer: &Committer) -> bool {
    let idle = Duration::from_millis(shared.options.idle_stamp_ms);
    let timeout = match shared.options.sync {
        SyncMode::Interval(interval) if committer.has_unsynced() => {
            interval.saturating_sub(shared.clock.now().since(committer.last_sync()))
        }
        _ if committer.wants_stamp() => idle,
        _ => Duration::MAX,
    };
    if timeout == Duration::MAX {
        std::thread::park();
        return true;
    }
    let before = shared.clock.now();
    std::thread::park_timeout(timeout);
    shared.committer.is_pending() || shared.clock.now().since(before) < timeout
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
