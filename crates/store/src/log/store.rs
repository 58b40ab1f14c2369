//! What [`Store`] does with engine `log` only: opening, housekeeping by hand, checkpoints, backup, closing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::Seq;

use super::housekeeping::{Housekeeping, Manner, Parts};
use super::open::{self, Opened};
use crate::Store;
use crate::error::StoreError;
use crate::options::{Durability, Options};

/// What engine `log` tells of itself beside the journal's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Cold records read.
    pub cold_reads: u64,
    /// Reads of the device for the rest of a record that was longer than expected.
    pub cold_second_reads: u64,
    /// Cold reads that met a moved record and were looked up again.
    pub cold_retries: u64,
    /// Cold reads answered with an error.
    pub cold_failures: u64,
    /// Most cold reads that waited at once.
    pub cold_queue_max: u64,
    /// Segments in quarantine because something in them is damaged, and footers and checkpoints that did not verify at the start.
    pub damaged_segments: u64,
    /// Bytes of records that live, as far as was counted.
    pub live_bytes: u64,
    /// Bytes of batches in all segments but those that were given back and wait for their files to serve again.
    pub log_bytes: u64,
    /// Bytes on disk: files of segments, given back and ready ones too, and the checkpoint (unless it was found at start).
    pub disk_bytes: u64,
    /// Bytes a second that writers may append while cleaning is behind; 0: as many as they like.
    pub throttle_bytes_per_second: u64,
    /// How often a writer was told to wait for cleaning.
    pub throttle_waits: u64,
    /// Bytes that cleaning read or copied.
    pub cleaned_bytes: u64,
    /// Bytes of values that were written as one record before they left memory, or while nobody wrote.
    pub folded_bytes: u64,
    /// Checkpoints taken since the start.
    pub checkpoints: u64,
    /// LSN of the checkpoint in force, 0 for none.
    pub checkpoint_lsn: u64,
    /// Size of its file in bytes, 0 when it was found at start.
    pub checkpoint_bytes: u64,
}

impl Store {
    pub(crate) fn open_log(options: Options) -> Result<Arc<Self>, StoreError> {
        let Opened { engine, index, hasher, time_floor_ms, housekeeping } = open::open(&options)?;
        let log = Some((Arc::clone(&engine), housekeeping));
        Self::assemble(options, engine, index, hasher, time_floor_ms, log)
    }

    /// The housekeeping, and what it works on; `None` without a log.
    pub(crate) fn housekeeping(&self) -> Option<(&Housekeeping, Parts<'_>)> {
        let (engine, housekeeping) = self.log.as_ref()?;
        Some((housekeeping, Parts { engine, index: &self.index, hasher: &self.hasher }))
    }

    /// One turn of housekeeping (footers, checkpoints, cleaning) at full speed; whether anything was done.
    ///
    /// For tests and simulations of a store without threads of its own ([`Options::background`]).
    ///
    /// # Errors
    /// [`StoreError::Journal`] when the journal has stopped.
    pub fn housekeep(&self) -> Result<bool, StoreError> {
        let Some((housekeeping, parts)) = self.housekeeping() else { return Ok(false) };
        let turn = housekeeping.turn(parts, Manner::Eager);
        turn.map(|turn| turn.worked).map_err(|error| StoreError::Journal(error.to_string()))
    }

    /// Commits what was appended, on the calling thread; whether there was anything. For stores without threads.
    pub fn drive(&self) -> bool {
        self.log.as_ref().is_some_and(|(engine, _)| engine.drive())
    }

    /// Lets segments that were given back wait for a while, as the journal's own threads do, instead of removing at once those
    /// that nobody waits for. For simulations that let time pass.
    pub fn keep_spares(&self) {
        if let Some((engine, _)) = &self.log {
            engine.keep_spares();
        }
    }

    /// Takes a checkpoint now; starts from it are fast, and cleaned segments are given back.
    ///
    /// # Errors
    /// [`StoreError::Journal`] when the disk refuses or the journal has stopped; the checkpoint before stays in force.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let Some((housekeeping, parts)) = self.housekeeping() else { return Ok(()) };
        housekeeping.checkpoint(parts)
    }

    /// Copies the running store consistently to the new or empty folder `out`, which a server can open; blocks.
    ///
    /// Everything acknowledged before the call is in the copy. Housekeeping and commands go on meanwhile. One at a time: a
    /// second one would pin the same segments for as long, and copy the same again.
    ///
    /// # Errors
    /// [`StoreError::Backup`]: another backup is under way, `out` is not empty, or the disk refuses.
    pub fn backup(&self, out: &Path) -> Result<(), StoreError> {
        let Ok(_alone) = self.backup.try_lock() else {
            let text = "another backup of this server is under way: try again when it is done";
            return Err(StoreError::Backup(text.to_owned()));
        };
        match self.housekeeping() {
            Some((housekeeping, parts)) => housekeeping.backup(parts, out),
            None => Err(StoreError::Backup("only engine log has something to back up".to_owned())),
        }
    }

    /// How the journal reaches the disk, and why not the way that was asked for; `None` without a log.
    #[must_use]
    pub fn backend(&self) -> Option<String> {
        self.log.as_ref().map(|(engine, _)| engine.journal.backend().to_string())
    }

    /// The journal's counters; `None` without a log. Takes a lock that syncs hold: not for event loops' hot paths.
    #[must_use]
    pub fn journal_counters(&self) -> Option<journal::Counters> {
        self.log.as_ref().map(|(engine, _)| engine.journal.counters())
    }

    /// How long the journal's syncs took and how much each made durable; `None` without a log.
    #[must_use]
    pub fn journal_syncs(&self) -> Option<journal::SyncFigures> {
        self.log.as_ref().map(|(engine, _)| engine.journal.syncs())
    }

    /// Everything up to this seq is on disk, whatever `durability` says; without a log what is released.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        self.log.as_ref().map_or_else(|| self.released_seq(), |(engine, _)| engine.journal.durable_seq())
    }

    /// What engine `log` tells of itself; `None` without one. For INFO: takes locks that syncs hold.
    #[must_use]
    pub fn log_report(&self) -> Option<LogReport> {
        let (engine, housekeeping) = self.log.as_ref()?;
        let readers = engine.reader_counters();
        let segments = housekeeping.segments(Parts { engine, index: &self.index, hasher: &self.hasher });
        let published = housekeeping.published().unwrap_or_default();
        let counts = housekeeping.counts();
        Some(LogReport {
            cold_reads: readers.reads.load(Ordering::Relaxed),
            cold_second_reads: engine.second_reads(),
            cold_retries: readers.retries.load(Ordering::Relaxed),
            cold_failures: readers.failures.load(Ordering::Relaxed),
            cold_queue_max: readers.queue_length_max.load(Ordering::Relaxed) as u64,
            damaged_segments: engine.damaged_count(),
            live_bytes: engine.live_bytes(&segments),
            log_bytes: segments.iter().map(|info| info.end_bytes).sum(),
            disk_bytes: engine.journal.counters().disk_bytes + published.size_bytes,
            throttle_bytes_per_second: engine.throttle.rate_bytes(),
            throttle_waits: engine.throttle.waits(),
            cleaned_bytes: counts.cleaned_bytes,
            folded_bytes: counts.folded_bytes,
            checkpoints: counts.checkpoints,
            checkpoint_lsn: published.lsn,
            checkpoint_bytes: published.size_bytes,
        })
    }

    pub(crate) fn close_log(&self) {
        let Some((engine, housekeeping)) = &self.log else { return };
        let parts = Parts { engine, index: &self.index, hasher: &self.hasher };
        if self.options.background {
            housekeeping.fold_before_stop(parts);
        }
        housekeeping.stop();
        // without durability nothing syncs before the seal, so the checkpoint comes after it
        let seal_first = self.options.durability != Durability::Always;
        if seal_first {
            engine.close();
        }
        housekeeping.settle(parts);
        if let Err(error) = self.checkpoint() {
            tracing::warn!(%error, "no checkpoint at the stop: the next start reads more of the log");
        }
        if !seal_first {
            engine.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two that ran at once to one folder mixed their files until one met a file of the other's.
    #[test]
    fn second_backup_is_refused_while_one_is_made_and_touches_nothing() {
        let disk: Arc<dyn vfs::Vfs> = Arc::new(vfs::SimDisk::new(1));
        let options =
            Options { vfs: Arc::clone(&disk), dir: "/data".into(), background: false, ..Options::default() };
        let store = Store::open(options).expect("a fresh folder opens");
        let running = store.backup.lock().expect("nobody panicked");
        let error = store.backup(Path::new("/out")).expect_err("one is under way");
        assert!(error.to_string().contains("another backup of this server is under way"), "{error}");
        assert!(disk.list(Path::new("/out")).is_err(), "no folder was made");
        drop(running);
    }
}
