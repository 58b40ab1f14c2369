//! Housekeeping's cleaning: which segment, slice by slice, and how far writers are slowed down meanwhile.
//!
//! Segments that died whole are never read: the next checkpoint gives them back. Out of scope: when and how fast (`rules`),
//! cleaning one segment (`cleaner`), the choice as numbers (`liveness`, `throttle`).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::format::SEGMENT_HEADER_SIZE_BYTES;
use journal::{JournalError, SegmentId, SegmentInfo, SegmentState};

use super::rest::WORKED;
use super::rules::{CleaningRate, small_log_bytes};
use super::{Housekeeping, Manner, Parts, Survey, Work};
use crate::log::FOOTER_SHARE_BYTES;
use crate::log::cleaner::Cleaning;
use crate::log::copies::{Context, Progress};
use crate::log::folding::Pace;
use crate::log::liveness::{Candidate, choose};
use crate::log::throttle::{Debt, rate};

impl Housekeeping {
    /// Slows writers down as far as the log outgrows what lives; returns whether it does.
    pub(super) fn throttle(&self, work: &mut Work, survey: &Survey<'_>) -> bool {
        let Survey { store, now, ref segments, .. } = *survey;
        // what cannot be cleaned is no debt: writers would pay for it for ever
        let counted = |info: &&SegmentInfo| {
            !work.retired.contains(&info.segment.0) && !store.engine.quarantine().contains(info.segment.0)
        };
        let debt = Debt {
            log_bytes: segments.iter().filter(counted).map(|info| info.end_bytes).sum(),
            live_bytes: store.engine.live_bytes(segments),
            // a small log has small segments; a large group's own one says nothing
            segment_bytes: segments
                .iter()
                .map(|info| info.size_bytes)
                .max()
                .unwrap_or(0)
                .min(self.segment_bytes),
            small_log_bytes: small_log_bytes(self.segment_bytes),
        };
        let elapsed = now.since(std::mem::replace(&mut work.throttled_at, now));
        let rate = rate(&debt, self.ratio_max_percent);
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        if store.engine.throttle.refill(rate, elapsed_ns) {
            (self.hooks.on_credits)();
        }
        rate.is_some()
    }

    /// Lets writers go on, before this thread ends or does something long.
    pub(super) fn release(&self, store: Parts<'_>) {
        let (slowed, awaited) = (store.engine.throttle.release(), store.engine.returns.end());
        if slowed || awaited {
            (self.hooks.on_credits)();
        }
    }

    /// Folds some of the values that are to leave memory; returns whether more may be to do at once.
    pub(super) fn fold(
        &self,
        work: &mut Work,
        store: Parts<'_>,
        manner: Manner,
    ) -> Result<bool, JournalError> {
        let context = Context { engine: store.engine, index: store.index, hasher: store.hasher };
        let pace = if manner == Manner::Eager { Pace::EAGER } else { Pace::PACED };
        let has_more = work.folding.sweep(context, self.clock.now(), pace);
        let progress = work.folding.slice(context)?;
        let turned = work.folding.take_turned();
        work.note_turned(turned);
        let Progress::Worked(bytes) = progress else { return Ok(has_more) };
        self.folded_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// Folds what is in memory, for [`FOLD_TIME_MAX`] at most: then the next start finds it on the disk as one record each. The index
    /// turns to what becomes durable meanwhile.
    pub(crate) fn fold_before_stop(&self, store: Parts<'_>) {
        let _in_step = store.engine.apply_alone();
        let (mut work, until) = (self.work(), self.clock.now() + FOLD_TIME_MAX);
        let context = Context { engine: store.engine, index: store.index, hasher: store.hasher };
        work.folding.fold_all(context, &|| self.clock.now() < until, &|| _ = self.alarm.sleep(WORKED));
    }

    /// Turns the index to the copies that have become durable.
    pub(crate) fn settle(&self, store: Parts<'_>) {
        let mut work = self.work();
        work.folding.settle(Context { engine: store.engine, index: store.index, hasher: store.hasher });
        let turned = work.folding.take_turned();
        work.note_turned(turned);
    }

    /// One slice of the segment that is being cleaned; begins one if there is none.
    pub(super) fn clean(
        &self,
        work: &mut Work,
        survey: &Survey<'_>,
        rate: CleaningRate,
    ) -> Result<bool, JournalError> {
        let (now, store) = (self.clock.now(), survey.store);
        if work.cleaning.is_none() {
            work.cleaning = begin_cleaning(work, survey, rate);
        }
        let Some(mut cleaning) = work.cleaning.take() else { return Ok(false) };
        let segment = SegmentId(cleaning.segment());
        let context = Context { engine: store.engine, index: store.index, hasher: store.hasher };
        let progress = self.or_quarantine(store, segment, cleaning.slice(context))?;
        work.note_turned(cleaning.take_turned());
        let Some(progress) = progress else { return Ok(true) };
        match progress {
            Progress::Worked(bytes) => {
                self.cleaned_bytes.fetch_add(bytes, Ordering::Relaxed);
                work.next_clean = now + Duration::from_nanos(bytes * 1_000_000_000 / rate.bytes_per_second);
                work.cleaning = Some(cleaning);
                Ok(true)
            }
            Progress::Waits => {
                // a segment for each interval of syncs is less than writers make: they would be slowed down for it
                store.engine.journal.sync_soon();
                work.cleaning = Some(cleaning);
                Ok(false)
            }
            Progress::Done => {
                work.emptied.insert(segment.0, work.captures_begun);
                Ok(true)
            }
        }
    }

    /// Seals the open segment while a delete waits, or writes find no room, and nothing else gives room back, if what lives there can be
    /// copied elsewhere: the records of deletes are needed up to the next checkpoint alone. Returns whether it was sealed.
    pub(super) fn roll(work: &Work, survey: &Survey<'_>) -> bool {
        let Survey { store, ref segments, .. } = *survey;
        let journal = &store.engine.journal;
        let Some(room_bytes) = journal.cleaning_room_bytes() else { return false };
        let Some(open) = segments.last().filter(|info| info.state == SegmentState::Open) else {
            return false;
        };
        let candidate = Candidate {
            segment: open.segment.0,
            used_bytes: open.end_bytes - SEGMENT_HEADER_SIZE_BYTES,
            live: store.engine.liveness.live(open.segment.0),
        };
        let is_worth = candidate.used_bytes >= open.size_bytes / ROLL_SHARE
            && candidate.dead_percent() >= ROLL_DEAD_PERCENT_MIN
            && is_within(&candidate, room_bytes);
        is_worth && !work.awaits(open.segment.0) && journal.roll()
    }
}

impl Work {
    /// Notes that the index was turned to copies in `segments`.
    fn note_turned(&mut self, segments: BTreeSet<u32>) {
        self.turned.extend(segments.into_iter().map(|segment| (segment, self.captures_begun)));
    }
}

/// Begins with the segment that `rate` allows and that has most to give.
fn begin_cleaning(work: &mut Work, survey: &Survey<'_>, rate: CleaningRate) -> Option<Cleaning> {
    let room = survey.store.engine.journal.cleaning_room_bytes();
    // on a full disk a file that comes back in part does not serve again: the room of its copies would be lost
    let comes_back =
        |info: &SegmentInfo| room.is_none() || info.trimmed_bytes() <= survey.available_bytes / 2;
    let mut candidates = candidates(work, survey, &comes_back);
    if rate.only_listed {
        candidates.retain(|candidate| work.survivors.contains_key(&candidate.segment));
    }
    // a segment of which a part is copied gives nothing back, and has taken the room of the next
    if let Some(room_bytes) = room {
        candidates.retain(|candidate| is_within(candidate, room_bytes));
    }
    let chosen = choose(&candidates, rate.dead_percent_min)?;
    let survivors = work.survivors.remove(&chosen.segment);
    Cleaning::begin(&survey.store.engine.journal, chosen.segment, survivors).ok()
}

/// Whether the copies of all that lives in a segment find place in `room_bytes`, with some to spare for what is folded into them.
fn is_within(candidate: &Candidate, room_bytes: u64) -> bool {
    copied_bytes(candidate) <= room_bytes / 8 * 7
}

/// Room that the copies of all that lives in a segment take, about.
fn copied_bytes(candidate: &Candidate) -> u64 {
    candidate.live.bytes + candidate.live.records * COPY_SHARE_BYTES
}

/// Segments that cleaning may read, of those that are worth it.
fn candidates(work: &Work, survey: &Survey<'_>, is_worth: &dyn Fn(&SegmentInfo) -> bool) -> Vec<Candidate> {
    let Survey { store, manner, ref segments, .. } = *survey;
    let durable = store.engine.journal.durable_lsn();
    let eligible = segments.iter().filter(|info| {
        info.state != SegmentState::Open
            && info.last_lsn <= durable
            && !work.emptied.contains_key(&info.segment.0)
            && !work.folding.awaits(info.segment.0)
            && !store.engine.quarantine().contains(info.segment.0)
            && (manner == Manner::Eager || !work.died_whole(info, store))
            && is_worth(info)
    });
    let candidate = |info: &SegmentInfo| Candidate {
        segment: info.segment.0,
        // the file's header is no waste: of the smallest files it is more than what cleaning looks for when space is short
        used_bytes: info.end_bytes - SEGMENT_HEADER_SIZE_BYTES,
        live: store.engine.liveness.live(info.segment.0),
    };
    eligible.map(candidate).collect()
}

/// A segment of which a smaller part is used is not sealed early.
const ROLL_SHARE: u64 = 8;
/// Nor is one of which less is dead, in percent.
const ROLL_DEAD_PERCENT_MIN: u64 = 30;
/// What a copy takes of the journal's room beside its own bytes: its entry in the footer, and its share of a batch, which many share.
const COPY_SHARE_BYTES: u64 = FOOTER_SHARE_BYTES + 8;
/// How long a stop folds: with a checkpoint behind it, it has to end before a supervisor kills the process, which some do after 10 s.
const FOLD_TIME_MAX: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests;
