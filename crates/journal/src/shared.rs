//! What the journal's callers and its threads share, and how each part is guarded.
//!
//! | part | guard | held for |
//! |---|---|---|
//! | core | mutex | a header checksum and a copy a record; never across I/O |
//! | manifest | mutex | a write and a sync; callers on event loops never take it |
//! | handles | read-write lock | a lookup |
//! | pins | mutex | a lookup |
//! | progress, admission, counters | atomics | |
//!
//! Locks are taken in the order manifest, core, pins, handles, and mostly one at a time.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use clock::Clock;
use vfs::{File, FileLock, OpenOptions, Vfs};

use crate::admission::Admission;
use crate::core::Core;
use crate::counters::Live;
use crate::error::JournalError;
use crate::format::Salt;
use crate::format::segment_header::Identity;
use crate::manifest::Manifest;
use crate::options::Options;
use crate::own_files::Shortage;
use crate::segment::ReadyFile;
use crate::types::{FileId, LogAddress, Lsn, SegmentId, Seq};
use crate::wake::Wake;

/// What the journal calls, from its own thread. Each must be short and must not call back into `close`.
pub struct Hooks {
    /// Everything up to this seq is durable; once an advance.
    pub on_advance: Box<dyn Fn(Seq) + Send + Sync>,
    /// Credits may be had again by somebody who was refused.
    pub on_credits: Box<dyn Fn() + Send + Sync>,
    /// The journal has failed: nothing more becomes durable.
    pub on_failure: Box<dyn Fn(&JournalError) + Send + Sync>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { on_advance: Box::new(|_| {}), on_credits: Box::new(|| {}), on_failure: Box::new(|_| {}) }
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooks")
    }
}

/// Whether the journal takes appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running = 0,
    Closing = 1,
    Failed = 2,
}

/// How far the journal is; all only grow.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) appended_seq: AtomicU64,
    pub(crate) appended_lsn: AtomicU64,
    /// Up to here the journal's thread knows that somebody waits.
    pub(crate) offered_lsn: AtomicU64,
    pub(crate) durable_seq: AtomicU64,
    pub(crate) durable_lsn: AtomicU64,
    /// Packed address up to which files hold what was appended.
    pub(crate) written: AtomicU64,
    /// Somebody needs what was appended to be durable before the sync mode makes it so.
    pub(crate) is_sync_asked: AtomicBool,
    phase: AtomicU8,
}

impl Progress {
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Closing,
            _ => Phase::Failed,
        }
    }

    /// Moves on to `phase`; false when it was there or beyond.
    pub(crate) fn enter(&self, phase: Phase) -> bool {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel) < phase as u8
    }

    /// That of a journal in which all before `next_lsn` is durable, up to the address `written`.
    pub(crate) fn resumed(next_lsn: Lsn, next_seq: Seq, written: LogAddress) -> Self {
        let progress = Self::default();
        progress.set_durable(Lsn(next_lsn.0 - 1), next_seq);
        progress.appended_seq.store(next_seq.0 - 1, Ordering::Relaxed);
        progress.appended_lsn.store(next_lsn.0 - 1, Ordering::Relaxed);
        progress.offered_lsn.store(next_lsn.0 - 1, Ordering::Relaxed);
        progress.written.store(written.pack(), Ordering::Relaxed);
        progress
    }

    pub(crate) fn set_durable(&self, lsn: Lsn, next_seq: Seq) {
        assert!(lsn.0 >= self.durable_lsn.load(Ordering::Relaxed), "durable lsn runs back");
        assert!(next_seq.0 > self.durable_seq.load(Ordering::Relaxed), "durable seq runs back");
        self.durable_lsn.store(lsn.0, Ordering::Release);
        self.durable_seq.store(next_seq.0 - 1, Ordering::Release);
    }
}

/// Who still needs a segment.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    pub(crate) counts: HashMap<SegmentId, u32>,
    pub(crate) retired: BTreeSet<SegmentId>,
}

impl Pins {
    /// Whether a segment was given back that nobody needs: the preparer is about to free it.
    pub(crate) fn has_free(&self) -> bool {
        self.retired.iter().any(|segment| !self.counts.contains_key(segment))
    }
}

/// The journal's shared state; the module's header says who guards what.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: PathBuf,
    /// The folder's lock, as long as somebody holds it.
    pub(crate) lock: Weak<dyn FileLock>,
    pub(crate) options: Options,
    /// How the backend opens files for batches.
    pub(crate) open_options: OpenOptions,
    pub(crate) identity: Identity,
    pub(crate) core: Mutex<Core>,
    pub(crate) admission: Arc<Admission>,
    /// Why no shared file could be prepared.
    pub(crate) shortage: Mutex<Option<Shortage>>,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) handles: RwLock<HashMap<SegmentId, Arc<dyn File>>>,
    pub(crate) pins: Mutex<Pins>,
    pub(crate) progress: Progress,
    pub(crate) counters: Live,
    pub(crate) hooks: Hooks,
    pub(crate) committer: Wake,
    pub(crate) preparer: Arc<Wake>,
}

impl Shared {
    /// The core. A panic under its lock is our own bug; the journal then stops rather than guess.
    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("a panic under the journal's lock is a bug: stop")
    }

    pub(crate) fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock().expect("a panic under the manifest's lock is a bug: stop")
    }

    pub(crate) fn pins(&self) -> MutexGuard<'_, Pins> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle for reading `segment`.
    pub(crate) fn handle(&self, segment: SegmentId) -> Option<Arc<dyn File>> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(&segment).cloned()
    }

    pub(crate) fn set_handle(&self, segment: SegmentId, file: Option<Arc<dyn File>>) {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        match file {
            Some(file) => handles.insert(segment, file),
            None => handles.remove(&segment),
        };
    }

    /// Opens the file `id`, which holds nothing, for a roll.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open_ready(&self, id: FileId, size_bytes: u64, zeroed: bool) -> io::Result<ReadyFile> {
        ReadyFile::open(&*self.vfs, &self.dir, id, size_bytes, zeroed, self.open_options)
    }

    pub(crate) fn salt(&self, segment: SegmentId) -> Salt {
        Salt::new(self.identity.folder, segment)
    }

    pub(crate) fn unix_ms(&self) -> u64 {
        self.clock.unix_ms().0
    }

    pub(crate) fn path_of(&self, id: FileId) -> PathBuf {
        self.dir.join(id.file_name())
    }

    /// Whether the folder is still the one that was opened.
    ///
    /// # Errors
    /// [`JournalError::FolderGone`] if it is not.
    pub(crate) fn look_at_folder(&self) -> Result<(), JournalError> {
        let Some(lock) = self.lock.upgrade() else { return Ok(()) };
        let dir = self.dir.display();
        match lock.is_at(&self.dir.join(LOCK_NAME)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(JournalError::FolderGone { dir: dir.to_string() }),
            Err(error) => Err(JournalError::failed(format!("looking at {dir}"), error)),
        }
    }

    /// Something final happened: refuses new credits and tells the owner, once.
    pub(crate) fn fail(&self, error: &JournalError) {
        if self.progress.enter(Phase::Failed) {
            // A file that is not found is mostly a folder that is gone, and then more is lost than one file.
            let gone = self.look_at_folder().err().filter(|it| matches!(it, JournalError::FolderGone { .. }));
            let error = gone.as_ref().unwrap_or(error);
            tracing::error!(%error, "journal has failed");
            (self.hooks.on_failure)(error);
            (self.hooks.on_credits)();
        }
        self.committer.notify();
        self.preparer.notify();
    }

    /// Tells those who were refused credits, if there are any, that it is worth asking again.
    pub(crate) fn wake_starved(&self) {
        if self.admission.take_starved() {
            (self.hooks.on_credits)();
        }
    }
}

/// Name of the lock file in the folder.
pub const LOCK_NAME: &str = "LOCK";
