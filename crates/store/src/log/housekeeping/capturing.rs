//! Checkpoints: captured and written a slice of a turn at a time, announced in the manifest, and given room on a full disk.
//!
//! ```text
//! begin_capture -> slices ... -> captured, waits for the journal -> publish -> announce
//!        `-- any step fails: the one before stays in force, and it is tried again after a rest
//! ```
//!
//! Invariants
//!   1. A checkpoint is in force once the manifest names it, and not before all that it captured is durable.
//!   2. Room is kept for one more while the one in force is there.
//!
//! Out of scope: what a checkpoint holds (`capture`), when one begins (`rules`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;
use journal::{JournalError, Lsn, SegmentInfo, SegmentState};

use super::{ENTRY_BYTES, FAILURES_MAX, Housekeeping, Parts, Survey, Work, expected_bytes};
use crate::log::capture::{Capture, Published};
use crate::log::checkpoint::{Header, SegmentLive};
use crate::log::checkpoint_file;

impl Housekeeping {
    /// Begins a checkpoint, or goes on with the one under way.
    pub(super) fn advance_capture(&self, work: &mut Work, survey: &Survey<'_>) -> Result<bool, JournalError> {
        let Survey { store, now, .. } = *survey;
        let step = match work.capture.take() {
            None => self.begin_capture(work, store).map(|capture| (capture, true)),
            Some(capture)
                if capture.captured_lsn().is_some_and(|lsn| lsn <= store.engine.journal.durable_lsn().0) =>
            {
                match capture.publish(store.engine.journal.durable_lsn().0) {
                    Ok(published) => {
                        self.announce(work, store, published)?;
                        return Ok(true);
                    }
                    Err(error) => Err(error),
                }
            }
            Some(capture) if capture.captured_lsn().is_some() => {
                store.engine.journal.sync_soon();
                Ok((capture, false))
            }
            Some(mut capture) => self.slices(&mut capture, store, now).map(|()| (capture, true)),
        };
        match step {
            Ok((capture, worked)) => {
                work.capture = Some(capture);
                Ok(worked)
            }
            Err(error) => {
                tracing::warn!(%error, "checkpoint failed; the one before stays in force");
                work.failures = work.failures.saturating_add(1);
                let is_pressing = store.engine.returns.is_awaited() && work.failures < FAILURES_MAX;
                work.next_capture = now + if is_pressing { REST_FAILED_AWAITED } else { REST_FAILED };
                Ok(false)
            }
        }
    }

    pub(super) fn begin_capture(&self, work: &mut Work, store: Parts<'_>) -> std::io::Result<Capture> {
        work.captures_begun += 1;
        work.next_small_capture = self.clock.now() + SMALL_CAPTURE_REST;
        let journal = &store.engine.journal;
        // asked before the lsn is noted: all that a sealed segment holds is then at or below it
        let segments = work.segments(store);
        let sealed =
            segments.iter().filter(|info| info.state != SegmentState::Open).map(|info| info.segment.0);
        work.presumed_dead =
            segments.iter().filter(|info| work.died_whole(info, store)).map(|info| info.segment.0).collect();
        let header = Header {
            folder: self.folder,
            lsn: journal.next_lsn().0 - 1,
            time_ms: self.clock.unix_ms().0,
            seq: journal.appended_seq(),
        };
        Capture::begin(&self.vfs, &self.dir, store.index, &header, work.captures_begun, sealed)
    }

    /// Captures for at most [`CAPTURE_TIME_MAX`], a stripe's lock for one slice at a time.
    pub(super) fn slices(
        &self,
        capture: &mut Capture,
        store: Parts<'_>,
        began: Nanos,
    ) -> std::io::Result<()> {
        while !self.slice(capture, store)? {
            if self.clock.now().since(began) >= CAPTURE_TIME_MAX {
                break;
            }
        }
        Ok(())
    }

    fn slice(&self, capture: &mut Capture, store: Parts<'_>) -> std::io::Result<bool> {
        let engine = store.engine;
        let live = || {
            let infos = engine.journal.segments();
            let live = infos.iter().map(|info| (info.segment.0, engine.liveness.live(info.segment.0)));
            live.map(|(segment, live)| SegmentLive {
                segment,
                records: u32::try_from(live.records).unwrap_or(u32::MAX),
                bytes: live.bytes,
            })
            .collect()
        };
        capture.slice(store.index, &live, &|| engine.journal.next_lsn().0 - 1)
    }

    /// A published checkpoint is in force once the manifest names it; the ones before go.
    pub(super) fn announce(
        &self,
        work: &mut Work,
        store: Parts<'_>,
        mut published: Published,
    ) -> Result<(), JournalError> {
        let grows = |before: &Published| before.lsn <= published.lsn && before.began < published.began;
        assert!(
            work.published.as_ref().is_none_or(grows),
            "an older checkpoint would be in force: {published:?}"
        );
        assert!(
            published.lsn <= store.engine.journal.durable_lsn().0,
            "it has what is not durable: {published:?}"
        );
        store.engine.journal.set_checkpoint(&published.name, Lsn(published.lsn + 1))?;
        if let Err(error) = checkpoint_file::remove_others(&*self.vfs, &self.dir, &published.name) {
            tracing::warn!(%error, "an old checkpoint stays; the next one removes it");
        }
        // what the new file did not need has come free, and is what its successor needs beside the room of the file before
        let kept_bytes = work.published.as_ref().map_or(0, |before| before.size_bytes);
        let foreseen_bytes = self.room_of_checkpoint(store, &work.segments(store));
        let keeps = |bytes: &u64| checkpoint_file::keep_room(&*self.vfs, &self.dir, *bytes).is_ok();
        let size_bytes = published.size_bytes;
        let kept = [foreseen_bytes.max(size_bytes), size_bytes].into_iter().find(keeps);
        work.kept_room = (kept.unwrap_or(kept_bytes), self.clock.now());
        let survivors = published.survivors.take();
        work.note_survivors(survivors, published.began, store);
        work.untrimmed.clear();
        work.failures = 0;
        work.published = Some(published);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What the next checkpoint may need: for what lives now, and for what removals of elements on a full disk may bring to life.
    fn room_of_checkpoint(&self, store: Parts<'_>, segments: &[SegmentInfo]) -> u64 {
        let live = segments.iter().map(|info| store.engine.liveness.live(info.segment.0));
        let records: u64 = live.map(|live| live.records).sum();
        let rows_bytes = expected_bytes(store).max(records * ENTRY_BYTES);
        // a large group's own file says nothing
        let file_bytes =
            segments.iter().map(|info| info.size_bytes).max().unwrap_or(0).min(self.segment_bytes);
        rows_bytes + rows_bytes / BLOCKS_SHARE + KEPT_BYTES_MIN + file_bytes / REMOVALS_SHARE
    }

    /// Keeps room for two checkpoints of as many keys as there are, that of the one in force included: the last one may be of fewer, and
    /// when the next one is in force its room is all that the one after that has.
    pub(super) fn keep_checkpoint_room(&self, work: &mut Work, survey: &Survey<'_>) {
        let (kept_bytes, next) = work.kept_room;
        let file_bytes = self.room_of_checkpoint(survey.store, &survey.segments);
        let there_bytes = work.published.as_ref().map_or(0, |published| published.size_bytes);
        let wanted_bytes = file_bytes + file_bytes.saturating_sub(there_bytes);
        if work.capture.is_some() || wanted_bytes <= kept_bytes || survey.now < next {
            return;
        }
        // some more, so as not to ask for each key
        let keeps = |bytes: &u64| checkpoint_file::keep_room(&*self.vfs, &self.dir, *bytes).is_ok();
        let kept = [wanted_bytes + wanted_bytes / 4, wanted_bytes].into_iter().find(keeps);
        work.kept_room = match kept {
            Some(bytes) => (bytes, survey.now),
            None => (kept_bytes, survey.now + REST_FAILED),
        };
    }
}

/// Headers of its blocks take this part of what its keys take, at most.
const BLOCKS_SHARE: u64 = 16;
/// Of a file that has nothing but removals of elements a checkpoint has this part: half of it may be such, of 80 bytes, which have 11 in a checkpoint.
const REMOVALS_SHARE: u64 = 16;
/// Room of a checkpoint beside its keys.
const KEPT_BYTES_MIN: u64 = 16 << 10;
/// How long one turn captures.
const CAPTURE_TIME_MAX: Duration = Duration::from_millis(2);
/// Between checkpoints that free little.
const SMALL_CAPTURE_REST: Duration = Duration::from_secs(1);
/// After a checkpoint that failed.
const REST_FAILED: Duration = Duration::from_secs(1);
/// The same while a delete waits for what it frees.
const REST_FAILED_AWAITED: Duration = Duration::from_millis(50);
