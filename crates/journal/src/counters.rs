//! What the journal counts about itself; every field only grows, but for those that say otherwise.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::syncs::Syncs;

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches written, stamps and the seal included.
    pub batches: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of batches written (headers and padding included, blocks of `direct` not).
    pub bytes_written: u64,
    /// Cycles that a caller ran on its own thread ([`crate::Journal::commit_here`]).
    pub commits_here: u64,
    /// Syncs of the open segment.
    pub syncs: u64,
    /// Syncs that made no record durable: nobody waited for them. Rolls, stamps and the seal are not counted here.
    pub syncs_unawaited: u64,
    /// Time in write and sync together, summed over all cycles that synced, in nanoseconds.
    pub sync_ns_sum: u64,
    /// Longest of them.
    pub sync_ns_max: u64,
    /// The last one (a gauge).
    pub sync_ns_last: u64,
    /// Stamps written by an idle journal.
    pub stamps: u64,
    /// Segments that began in a file that was only fallocated, since none was filled in time.
    pub fallocated_fallbacks: u64,
    /// Files made.
    pub files_created: u64,
    /// Files that served again.
    pub files_recycled: u64,
    /// Files removed.
    pub files_removed: u64,
    /// Times that credits were refused: buffers full.
    pub refused_busy: u64,
    /// Times that credits were refused: disk full.
    pub refused_full: u64,
    /// Bytes reserved or appended and not yet durable (a gauge).
    pub buffered_bytes: u64,
    /// Segments open (a gauge: 1).
    pub segments_open: u64,
    /// Segments sealed and without a footer (a gauge).
    pub segments_sealed: u64,
    /// Segments with a footer (a gauge).
    pub segments_footed: u64,
    /// Segments whose footers, and the room for them, were given back (a gauge).
    pub segments_trimmed: u64,
    /// Segments given back whose files are neither recycled nor removed yet; the states above count them, too.
    pub segments_retired: u64,
    /// Prepared files (a gauge).
    pub files_ready: u64,
    /// Bytes on disk of all segment files, prepared ones included, without what was given back (a gauge).
    pub disk_bytes: u64,
}

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) batches: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) commits_here: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) syncs_unawaited: AtomicU64,
    pub(crate) sync_ns_sum: AtomicU64,
    pub(crate) sync_ns_max: AtomicU64,
    pub(crate) sync_ns_last: AtomicU64,
    /// What one usually takes: a mean in which the newest counts for an eighth.
    pub(crate) sync_ns_usual: AtomicU64,
    /// `bytes_written` at the last sync.
    pub(crate) synced_bytes: AtomicU64,
    pub(crate) sync_figures: Syncs,
    pub(crate) stamps: AtomicU64,
    pub(crate) fallocated_fallbacks: AtomicU64,
    pub(crate) files_created: AtomicU64,
    pub(crate) files_recycled: AtomicU64,
    pub(crate) files_removed: AtomicU64,
    pub(crate) refused_busy: AtomicU64,
    pub(crate) refused_full: AtomicU64,
}

impl Live {
    /// Adds `n` to a counter.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Notes a cycle that synced. Under the committer's lock.
    pub(crate) fn note_sync(&self, elapsed_ns: u64, records: u64) {
        Self::add(&self.syncs, 1);
        Self::add(&self.sync_ns_sum, elapsed_ns);
        self.sync_ns_max.fetch_max(elapsed_ns, Ordering::Relaxed);
        self.sync_ns_last.store(elapsed_ns, Ordering::Relaxed);
        let usual = self.sync_ns_usual.load(Ordering::Relaxed);
        self.sync_ns_usual.store(usual - usual / 8 + elapsed_ns / 8, Ordering::Relaxed);
        if records == 0 {
            Self::add(&self.syncs_unawaited, 1);
        }
        let written = self.bytes_written.load(Ordering::Relaxed);
        let bytes = written - self.synced_bytes.swap(written, Ordering::Relaxed);
        self.sync_figures.note(elapsed_ns, records, bytes);
    }

    /// The counters; gauges of segments are the caller's to fill in.
    pub(crate) fn snapshot(&self) -> Counters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            batches: load(&self.batches),
            records: load(&self.records),
            bytes_written: load(&self.bytes_written),
            commits_here: load(&self.commits_here),
            syncs: load(&self.syncs),
            syncs_unawaited: load(&self.syncs_unawaited),
            sync_ns_sum: load(&self.sync_ns_sum),
            sync_ns_max: load(&self.sync_ns_max),
            sync_ns_last: load(&self.sync_ns_last),
            stamps: load(&self.stamps),
            fallocated_fallbacks: load(&self.fallocated_fallbacks),
            files_created: load(&self.files_created),
            files_recycled: load(&self.files_recycled),
            files_removed: load(&self.files_removed),
            refused_busy: load(&self.refused_busy),
            refused_full: load(&self.refused_full),
            ..Counters::default()
        }
    }
}
