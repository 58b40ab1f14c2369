//! The write side: takes a cycle from the core, writes it, syncs it, and tells who waits.
//!
//! One turn is: take everything appended; if a roll comes first, seal the old segment and open the next (manifest,
//! one sync); stamp headers; write; sync; advance. While it runs, appends gather for the next turn: the disk's own
//! speed is the only timer.
//!
//! Invariants
//!   1. `durable` advances only after the write returned the full length and the sync returned 0.
//!   2. A segment is sealed in the manifest only when all of it is durable.
//!   3. The first error ends it: no write or sync is tried after it.
//!   4. It looks each second, if it writes, and before the seal whether its folder is still the one that was opened: after
//!      that nothing is called durable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Nanos;
use vfs::File;

use crate::admission::{Class, footprint_of};
use crate::backend::Writer;
use crate::core::{Cycle, Roll};
use crate::counters::Live;
use crate::error::JournalError;
use crate::format::batch::{BATCH_SEAL, BATCH_STAMP};
use crate::format::manifest_entry::Entry;
use crate::options::SyncMode;
use crate::shared::{Phase, Shared};
use crate::types::{LogAddress, Lsn, SegmentId, Seq};

/// Where the committer goes on after start.
#[derive(Debug)]
pub(crate) struct Position {
    pub(crate) segment: SegmentId,
    pub(crate) prev_crc: u32,
    pub(crate) time_ms: u64,
    /// What the file holds of the block in which the next batch begins.
    pub(crate) prefix: Vec<u8>,
}

/// Owns the open segment's file.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    writer: Box<dyn Writer>,
    segment: SegmentId,
    prev_crc: u32,
    time_ms: u64,
    /// Written, not synced: up to this lsn, and the seq that follows.
    written: (Lsn, Seq),
    last_sync: Nanos,
    stamped: bool,
    /// A stamp was written that no sync of this segment has covered.
    stamp_unsynced: bool,
    /// When it last looked whether the folder is there.
    last_look: Nanos,
}

impl std::fmt::Debug for Committer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Committer").field("segment", &self.segment).field("written", &self.written).finish()
    }
}

/// The committer, for whoever runs its next turn.
pub(crate) fn lock(committer: &Mutex<Committer>) -> MutexGuard<'_, Committer> {
    committer.lock().expect("a panic under the committer's lock is a bug: stop")
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut writer: Box<dyn Writer>,
        file: Arc<dyn File>,
        position: &Position,
    ) -> Result<Self, JournalError> {
        writer
            .begin(file, &position.prefix)
            .map_err(|error| JournalError::failed("opening the journal's segment", error))?;
        let written = {
            let core = shared.core();
            (Lsn(core.next_lsn().0 - 1), core.next_seq())
        };
        let last_sync = shared.clock.now();
        Ok(Self {
            shared,
            writer,
            segment: position.segment,
            prev_crc: position.prev_crc,
            time_ms: position.time_ms,
            written,
            last_sync,
            stamped: true,
            stamp_unsynced: false,
            last_look: last_sync,
        })
    }

    /// One cycle: everything appended, written and (by the sync mode) synced. False when there was nothing.
    pub(crate) fn turn(&mut self) -> bool {
        if self.shared.progress.phase() == Phase::Failed {
            return false;
        }
        self.run(Self::try_turn)
    }

    /// A turn on the thread of somebody who waits for it; false when it is one for the journal's own thread.
    pub(crate) fn turn_here(&mut self) -> bool {
        let is_small = self.shared.core().is_small(GROUP_HERE_BYTES_MAX);
        if !is_small {
            return false;
        }
        let was_stamped = self.stamped;
        let committed = self.turn();
        Live::add(&self.shared.counters.commits_here, committed.into());
        if was_stamped && !self.stamped {
            // It sleeps until somebody offers: it shall look when the next stamp is due.
            self.shared.committer.notify();
        }
        true
    }

    /// Syncs what was written, if an interval's time has come, or somebody has asked for it.
    pub(crate) fn sync_if_due(&mut self) -> bool {
        let is_over = |interval| self.shared.clock.now().since(self.last_sync) >= interval;
        let is_due = match self.shared.options.sync {
            SyncMode::Interval(interval) => is_over(interval),
            SyncMode::Always | SyncMode::Never => false,
        };
        let due = self.has_unsynced() && (is_due || self.is_sync_asked());
        due && self.run(|this| this.sync_written().map(|()| true))
    }

    /// Whether somebody does not wait for an interval's time.
    pub(crate) fn is_sync_asked(&self) -> bool {
        self.shared.progress.is_sync_asked.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether something written waits for its sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.written.0.0 > self.shared.progress.durable_lsn.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// When the last sync began.
    pub(crate) fn last_sync(&self) -> Nanos {
        self.last_sync
    }

    /// Whether a stamp would vouch for something that nothing vouches for yet.
    pub(crate) fn wants_stamp(&self) -> bool {
        !self.stamped && !self.has_unsynced()
    }

    /// Writes a stamp, without a sync, if nothing else is on its way and there is room.
    pub(crate) fn stamp(&mut self) -> bool {
        if !self.wants_stamp() || self.shared.progress.phase() != Phase::Running {
            return false;
        }
        let footprint = footprint_of(0, 0);
        if !self.shared.admission.take_room(footprint, Class::Reclaim) {
            return false;
        }
        let mut core = self.shared.core();
        let fits = core.is_drained() && core.has_room_for_mark();
        let taken = if fits { core.mark(BATCH_STAMP) } else { 0 };
        let cycle = if fits { core.take_cycle() } else { None };
        drop(core);
        self.shared.admission.add_room(footprint - taken);
        self.shared.admission.tell_given_back();
        let Some(mut cycle) = cycle else { return false };
        self.stamped = true;
        Live::add(&self.shared.counters.stamps, 1);
        self.run(|this| {
            this.write(&cycle, false)?;
            this.stamp_unsynced = true;
            this.shared.core().on_cycle_done(&mut cycle);
            Ok(true)
        })
    }

    /// Writes what is left, then the seal, synced, and says so in the manifest.
    pub(crate) fn seal(&mut self) {
        while self.turn() || self.shared.core().is_filling() {
            std::thread::yield_now();
        }
        if self.shared.progress.phase() != Phase::Failed {
            self.run(Self::try_seal);
        }
    }

    fn run(&mut self, step: impl FnOnce(&mut Self) -> Result<bool, JournalError>) -> bool {
        step(self).unwrap_or_else(|error| {
            self.shared.fail(&error);
            false
        })
    }

    fn try_turn(&mut self) -> Result<bool, JournalError> {
        let Some(mut cycle) = self.shared.core().take_cycle() else { return Ok(false) };
        if let Some(roll) = cycle.roll.take() {
            self.roll(&roll)?;
        }
        let sync = self.shared.options.sync == SyncMode::Always;
        let started = self.shared.clock.now();
        self.write(&cycle, sync)?;
        // of a segment that nothing was written to there is nothing to vouch for
        self.stamped = cycle.batches.is_empty();
        self.written = (cycle.last_lsn, cycle.next_seq);
        if sync {
            self.note_sync(started, cycle.records);
        }
        if started.since(self.last_look) >= LOOK_INTERVAL {
            self.look_at_folder()?;
        }
        if sync {
            self.advance();
        }
        self.finish(cycle);
        if !sync {
            self.sync_if_due();
        }
        Ok(true)
    }

    /// Gives a cycle's buffers and memory back.
    fn finish(&self, mut cycle: Cycle) {
        let mut core = self.shared.core();
        core.on_cycle_done(&mut cycle);
        let goes_on = core.is_roll_queued();
        drop(core);
        if goes_on {
            self.shared.committer.notify();
        }
        if cycle.charge > 0 {
            self.shared.admission.discharge(cycle.charge);
        }
        self.shared.wake_starved();
    }

    /// Finishes headers and writes the batches of `cycle`; the last one is synced when `sync` is set.
    fn write(&mut self, cycle: &Cycle, sync: bool) -> Result<(), JournalError> {
        self.time_ms = self.time_ms.max(self.shared.unix_ms());
        let durable = Lsn(self.shared.progress.durable_lsn.load(std::sync::atomic::Ordering::Relaxed));
        for batch in &cycle.batches {
            let body_crc = batch.read().unwrap_or_else(PoisonError::into_inner).body_crc();
            let mut batch = batch.write().unwrap_or_else(PoisonError::into_inner);
            self.prev_crc = batch.finish(body_crc, durable, self.time_ms, self.prev_crc);
        }
        let count = cycle.batches.len();
        for (n, batch) in cycle.batches.iter().enumerate() {
            let mut batch = batch.write().unwrap_or_else(PoisonError::into_inner);
            let last = n + 1 == count;
            self.writer.write(&mut batch, sync && last).map_err(|error| self.failed(&error))?;
            if last {
                let written = LogAddress::new(batch.segment, batch.end()).pack();
                let before = self.shared.progress.written.swap(written, std::sync::atomic::Ordering::Release);
                debug_assert!(before <= written, "written up to {before:#x}, and then up to {written:#x}");
            }
        }
        self.stamp_unsynced &= !sync;
        Live::add(&self.shared.counters.batches, count as u64);
        Live::add(&self.shared.counters.records, cycle.records);
        Live::add(&self.shared.counters.bytes_written, cycle.bytes);
        Ok(())
    }

    /// Everything in the old segment becomes durable, then the manifest moves on. Opens nothing.
    fn roll(&mut self, roll: &Roll) -> Result<(), JournalError> {
        assert_eq!(roll.sealed.segment, self.segment, "segments end in order");
        assert!(roll.next > self.segment, "segment {} follows {}", roll.next, self.segment);
        if self.has_unsynced() {
            self.sync_written()?;
        } else if self.stamp_unsynced {
            // the seal vouches for all of the segment, a stamp at its end included
            self.writer.sync().map_err(|error| self.failed(&error))?;
            self.stamp_unsynced = false;
        }
        if !roll.file.take() {
            Live::add(&self.shared.counters.fallocated_fallbacks, 1);
        }
        self.shared.set_handle(roll.next, Some(Arc::clone(&roll.file.reading)));
        let open = Entry::Open {
            segment: roll.next,
            file: roll.file.id,
            first_lsn: roll.first_lsn,
            size_bytes: roll.file.size_bytes,
        };
        self.shared.manifest().say(&[Entry::Sealed(roll.sealed), open], self.time_ms)?;
        self.writer
            .begin(Arc::clone(&roll.file.writing), &[])
            .map_err(|error| JournalError::failed(format!("beginning segment {}", roll.next), error))?;
        self.segment = roll.next;
        self.prev_crc = 0;
        self.shared.preparer.notify();
        Ok(())
    }

    /// Fails unless the folder is still the one that was opened.
    fn look_at_folder(&mut self) -> Result<(), JournalError> {
        self.last_look = self.shared.clock.now();
        self.shared.look_at_folder()
    }

    fn try_seal(&mut self) -> Result<bool, JournalError> {
        self.look_at_folder()?;
        let mut core = self.shared.core();
        core.mark(BATCH_SEAL);
        let (end_bytes, next_seq, last_lsn) = (core.end_bytes(), core.next_seq(), Lsn(core.next_lsn().0 - 1));
        let cycle = core.take_cycle();
        drop(core);
        let Some(mut cycle) = cycle else { return Ok(false) };
        if self.has_unsynced() {
            self.sync_written()?;
        }
        self.write(&cycle, true)?;
        self.shared.core().on_cycle_done(&mut cycle);
        let closed = Entry::Closed { segment: self.segment, last_lsn, end_bytes, next_seq };
        self.shared.manifest().say(&[closed], self.time_ms)?;
        Ok(true)
    }

    fn sync_written(&mut self) -> Result<(), JournalError> {
        let started = self.shared.clock.now();
        let before = self.shared.progress.durable_lsn.load(std::sync::atomic::Ordering::Relaxed);
        self.shared.progress.is_sync_asked.store(false, std::sync::atomic::Ordering::Relaxed);
        self.writer.sync().map_err(|error| self.failed(&error))?;
        self.stamp_unsynced = false;
        self.note_sync(started, self.written.0.0 - before);
        self.advance();
        Ok(())
    }

    fn note_sync(&mut self, started: Nanos, records: u64) {
        let elapsed = self.shared.clock.now().since(started);
        self.shared.counters.note_sync(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), records);
        self.last_sync = started;
    }

    /// What was written is durable: says so to everybody who waits, once.
    fn advance(&self) {
        let (lsn, next_seq) = self.written;
        self.shared.progress.set_durable(lsn, next_seq);
        (self.shared.hooks.on_advance)(Seq(next_seq.0 - 1));
    }

    fn failed(&self, error: &std::io::Error) -> JournalError {
        let source = std::io::Error::new(error.kind(), error.to_string());
        JournalError::failed(format!("write or sync of segment {}", self.segment), source)
    }
}

/// Between two looks whether the folder is there, while something is written.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A group larger than this is written by the journal's thread while the loop goes on.
const GROUP_HERE_BYTES_MAX: usize = 16 << 10;
