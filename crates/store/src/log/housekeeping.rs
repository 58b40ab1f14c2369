//! Housekeeping: footers, checkpoints, cleaning and retiring, in slices, by one thread.
//!
//! A turn does at most one slice of each: 256 KiB read or written at a time, never two pieces of a kind in flight. The
//! thread rests between turns. What is next, and how fast, one function decides (`rules`): here it is done.
//!
//! Invariants
//!   1. A segment is retired only if a walk found nothing pointing into it and a checkpoint whose capture began after that is
//!      durable, or if that checkpoint itself met nothing (`capture`, invariant 3); never if something in it is damaged.
//!   2. A failed attempt at a checkpoint leaves the one before in force; it is tried again after a rest.
//!
//! Out of scope: expiry and dead keyspaces (`tend`).

#[cfg(test)]
mod bound;
mod capturing;
mod check;
mod clean;
pub(crate) mod rest;
mod rules;
mod thread;
mod trim;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::{Clock, Nanos};
use journal::{JournalError, Lsn, SegmentId, SegmentInfo, SegmentState};
use vfs::Vfs;

use super::capture::{Capture, Published, Survivor};
use super::cleaner::Cleaning;
use super::folding::Folding;
use super::footer::Footing;
use super::{LogEngine, Room, backup};
use crate::error::StoreError;
use crate::index::Index;
use crate::locks::lock;
use crate::options::{Hooks, Options};
use rest::{Alarm, WORKED};
pub(crate) use rules::Manner;
use rules::{Counts, Hand, Hands, Piece};

/// A store's housekeeping.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    folder: u128,
    segment_bytes: u64,
    ratio_max_percent: u64,
    /// Whom to tell that writers may go on.
    hooks: Hooks,
    checkpoints: AtomicU64,
    cleaned_bytes: AtomicU64,
    folded_bytes: AtomicU64,
    work: Mutex<Work>,
    /// A backup rests between two pieces; not in simulations.
    paces: bool,
    alarm: Arc<Alarm>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is under way.
#[derive(Debug, Default)]
struct Work {
    footing: Option<Footing>,
    capture: Option<Capture>,
    cleaning: Option<Cleaning>,
    folding: Folding,
    /// Segments that nothing points into -> captures begun when that was found.
    emptied: BTreeMap<u32, u64>,
    /// Segments given back that the journal still lists: pinned, or not yet freed.
    retired: BTreeSet<u32>,
    captures_begun: u64,
    /// Segment -> captures begun when the index was last turned to a copy in it.
    turned: BTreeMap<u32, u64>,
    /// Segments without a live record by the counters when the last capture began.
    presumed_dead: BTreeSet<u32>,
    /// Those of them into which a checkpoint found something pointing: they are walked like others.
    miscounted: BTreeSet<u32>,
    /// Segments that the checkpoint in force found little in -> all that lives there, or has died since.
    survivors: BTreeMap<u32, Vec<Survivor>>,
    /// Segments that were not trimmed: somebody needed their files. Asked again after the next checkpoint.
    untrimmed: BTreeSet<u32>,
    published: Option<Published>,
    next_clean: Nanos,
    next_capture: Nanos,
    /// Attempts at a checkpoint since the last one that went well.
    failures: u32,
    /// Before this a checkpoint only frees if that is worth much.
    next_small_capture: Nanos,
    /// Room that is kept for the next checkpoint, and before when no more is asked for.
    kept_room: (u64, Nanos),
    /// When the throttle was last refilled.
    throttled_at: Nanos,
}

/// What was done since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Checkpoints published.
    pub(crate) checkpoints: u64,
    /// Bytes that cleaning read or copied.
    pub(crate) cleaned_bytes: u64,
    /// Bytes of values folded in memory.
    pub(crate) folded_bytes: u64,
}

/// What a turn found when it began.
struct Survey<'a> {
    store: Parts<'a>,
    manner: Manner,
    now: Nanos,
    /// All but those that were given back.
    segments: Vec<SegmentInfo>,
    /// What the file system still has.
    available_bytes: u64,
}

/// How a turn went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Something was done, and more may be to do at once.
    pub(crate) worked: bool,
    /// Writers are slowed down, or deletes wait for room: they count on the next turn.
    pub(crate) throttles: bool,
}

impl Housekeeping {
    /// A housekeeping for the folder of `options`, which was recovered from `checkpoint`; `alarm` is told of what is appended.
    pub(crate) fn new(
        options: &Options,
        folder: u128,
        checkpoint: Option<Published>,
        alarm: Arc<Alarm>,
    ) -> Self {
        Self {
            vfs: Arc::clone(&options.vfs),
            clock: Arc::clone(&options.clock),
            dir: options.dir.clone(),
            folder,
            segment_bytes: options.journal.segment_size_bytes,
            ratio_max_percent: options.space_ratio_max_percent,
            hooks: options.hooks.clone(),
            checkpoints: AtomicU64::new(0),
            cleaned_bytes: AtomicU64::new(0),
            folded_bytes: AtomicU64::new(0),
            work: Mutex::new(Work { published: checkpoint, ..Work::default() }),
            paces: options.background,
            alarm,
            thread: Mutex::default(),
        }
    }

    /// One turn.
    ///
    /// # Errors
    /// [`JournalError::Failed`]: the journal has stopped.
    pub(crate) fn turn(&self, store: Parts<'_>, manner: Manner) -> Result<Turn, JournalError> {
        // before `work`, which others look into
        let _in_step = store.engine.apply_alone();
        let mut work = self.work();
        let now = self.clock.now();
        let available_bytes = self.vfs.space(&self.dir).map_or(u64::MAX, |space| space.available_bytes);
        let survey = Survey { store, manner, now, segments: work.segments(store), available_bytes };
        store.engine.set_room(Room {
            taken_bytes: survey.segments.iter().map(|info| info.size_bytes).sum(),
            available_bytes,
        });
        let next_lsn = store.engine.journal.next_lsn();
        if manner == Manner::Paced {
            self.keep_checkpoint_room(&mut work, &survey);
        }
        let has_folded = self.fold(&mut work, store, manner)?;
        let mut worked = self.work_by_rules(&mut work, &survey)?;
        worked |= self.retire(&mut work, store)?;
        let is_awaited = manner == Manner::Paced && self.note_returns(&work, &survey, next_lsn, worked);
        worked |= has_folded;
        if manner == Manner::Eager || !worked {
            worked |= self.trim(&mut work, &survey)?;
        }
        let throttles = manner == Manner::Paced && self.throttle(&mut work, &survey);
        Ok(Turn { worked, throttles: throttles || is_awaited })
    }

    /// A whole checkpoint now.
    ///
    /// # Errors
    /// When the disk refuses, or the journal has stopped.
    pub(crate) fn checkpoint(&self, store: Parts<'_>) -> Result<(), StoreError> {
        self.checkpoint_now(store)?;
        let _in_step = store.engine.apply_alone();
        self.retire(&mut self.work(), store).map_err(|error| StoreError::Journal(error.to_string()))?;
        Ok(())
    }

    /// A copy of the store in `out`.
    ///
    /// # Errors
    /// [`StoreError::Backup`], or what [`Housekeeping::checkpoint`] returns.
    pub(crate) fn backup(&self, store: Parts<'_>, out: &Path) -> Result<(), StoreError> {
        let mut written_at = self.clock.now();
        self.paced_backup(store, out, &mut |_| {
            // as long as the piece took, so that half of the disk's time is for others
            let took = self.clock.now().since(written_at);
            if self.paces {
                self.alarm.sleep(took.clamp(WORKED, COPY_REST_MAX));
            }
            written_at = self.clock.now();
        })
    }

    /// As [`Housekeeping::backup`]; `pace` is called after each piece, with its bytes, and may wait.
    fn paced_backup(
        &self,
        store: Parts<'_>,
        out: &Path,
        pace: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        backup::prepare(&*self.vfs, out)?;
        self.checkpoint_now(store)?;
        let journal = &store.engine.journal;
        let begun = {
            let _in_step = store.engine.apply_alone();
            let work = self.work();
            // or the next one, by now
            let published = work.published.as_ref().expect("one was published");
            backup::begin(journal, &*self.vfs, &self.dir, published)?
        };
        backup::copy(journal, &*self.vfs, begun, out, pace)
    }

    /// Takes a checkpoint, slice by slice: between two of them others get at index and log, and the turns of housekeeping go on, with this
    /// checkpoint, too.
    fn checkpoint_now(&self, store: Parts<'_>) -> Result<(), StoreError> {
        let begun = {
            let _in_step = store.engine.apply_alone();
            let mut work = self.work();
            work.capture = None;
            work.capture = Some(self.begin_capture(&mut work, store).map_err(not_taken)?);
            work.captures_begun
        };
        let mut waited = Duration::ZERO;
        while !self.advance_demanded(store, begun)? {
            store.engine.journal.offer();
            if store.engine.drive() {
                continue;
            }
            if waited > DURABLE_WAIT_MAX || store.engine.journal.has_failed() {
                return Err(StoreError::Journal("the journal does not become durable".to_owned()));
            }
            self.alarm.sleep(WORKED);
            waited += WORKED;
        }
        Ok(())
    }

    /// Goes on with capture number `begun`, until it waits for the journal (`false`), or is published, perhaps by a turn.
    fn advance_demanded(&self, store: Parts<'_>, begun: u64) -> Result<bool, StoreError> {
        loop {
            let _in_step = store.engine.apply_alone();
            let mut work = self.work();
            if work.published.as_ref().is_some_and(|published| published.began >= begun) {
                return Ok(true);
            }
            let Some(mut capture) = work.capture.take() else {
                return Err(not_taken("an attempt failed; the log says why"));
            };
            let durable = store.engine.journal.durable_lsn().0;
            match capture.captured_lsn() {
                None => {
                    self.slices(&mut capture, store, self.clock.now()).map_err(not_taken)?;
                    work.capture = Some(capture);
                }
                Some(captured) if captured <= durable => {
                    let published = capture.publish(durable).map_err(not_taken)?;
                    self.announce(&mut work, store, published).map_err(not_taken)?;
                }
                Some(_) => {
                    work.capture = Some(capture);
                    return Ok(false);
                }
            }
        }
    }

    /// What was done since the start.
    pub(crate) fn counts(&self) -> Done {
        Done {
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            cleaned_bytes: self.cleaned_bytes.load(Ordering::Relaxed),
            folded_bytes: self.folded_bytes.load(Ordering::Relaxed),
        }
    }

    /// The checkpoint in force.
    pub(crate) fn published(&self) -> Option<Published> {
        self.work().published.clone()
    }

    /// The segments that were not given back.
    pub(crate) fn segments(&self, store: Parts<'_>) -> Vec<SegmentInfo> {
        self.work().segments(store)
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.alarm.stop();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // a panic of the thread was reported where it happened
            let _ = thread.join();
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }

    /// Gives each hand its turn; whether anything was done.
    fn work_by_rules(&self, work: &mut Work, survey: &Survey<'_>) -> Result<bool, JournalError> {
        let (mut hands, mut worked, mut clean_until) = (work.hands(survey, survey.now), false, None);
        loop {
            worked |= match rules::next(&self.count(work, survey, hands)) {
                Piece::Footer => {
                    hands.footer = Hand::Rests;
                    self.foot(work, survey)?
                }
                Piece::Checkpoint => {
                    hands.checkpoint = Hand::Rests;
                    self.advance_capture(work, survey)?
                }
                Piece::Cleaning(rate) => {
                    let until = *clean_until.get_or_insert_with(|| self.clock.now() + CLEAN_TIME_MAX);
                    let cleaned = self.clean(work, survey, rate)?;
                    let now = self.clock.now();
                    let goes_on = cleaned && survey.manner == Manner::Paced && now < until;
                    hands.cleaning = if goes_on { work.hands(survey, now).cleaning } else { Hand::Rests };
                    cleaned
                }
                Piece::Nothing => return Ok(worked),
            };
        }
    }

    /// Counts what the rules look at.
    fn count(&self, work: &Work, survey: &Survey<'_>, hands: Hands) -> Counts {
        let Survey { store, manner, now, ref segments, available_bytes } = *survey;
        let published = work.published.as_ref();
        let mut counts = Counts {
            manner,
            hands,
            lacks_footer: segments.iter().any(|info| work.lacks_footer(info, store)),
            above_bytes: 0,
            checkpoint_bytes: published.map_or(0, |published| published.size_bytes),
            expected_bytes: expected_bytes(store).max(published.map_or(0, |published| published.size_bytes)),
            has_rested: now >= work.next_small_capture,
            is_awaited: store.engine.returns.is_awaited(),
            freed_bytes: 0,
            log_bytes: 0,
            kept_bytes: 0,
            live_bytes: store.engine.live_bytes(segments),
            listed_segments: work.survivors.len(),
            available_bytes,
            segment_bytes: self.segment_bytes,
        };
        let (covered, began) = (work.covered(), published.map_or(0, |published| published.began));
        for info in segments {
            let emptied = work.emptied.get(&info.segment.0);
            let (died, waits) = (work.died_whole(info, store), emptied.is_some_and(|begun| *begun >= began));
            let is_above = info.state != SegmentState::Open && info.last_lsn.0 > covered;
            counts.log_bytes += info.end_bytes;
            counts.above_bytes += if is_above { taken_bytes(info) } else { 0 };
            counts.freed_bytes += if died || waits { info.size_bytes } else { 0 };
            // what waits for its checkpoint is as good as free
            counts.kept_bytes += if died || emptied.is_some() { 0 } else { info.end_bytes };
        }
        counts
    }

    /// Begins a footer, or goes on with the one under way.
    fn foot(&self, work: &mut Work, survey: &Survey<'_>) -> Result<bool, JournalError> {
        let Survey { store, ref segments, .. } = *survey;
        let journal = &store.engine.journal;
        let Some(mut footing) = work.footing.take() else {
            let lacking = segments.iter().find(|info| work.lacks_footer(info, store));
            let Some(info) = lacking else { return Ok(false) };
            work.footing =
                self.or_quarantine(store, info.segment, Footing::begin(journal, info.segment))?.flatten();
            // without a descriptor it is tried again after a rest
            return Ok(work.footing.is_some() || store.engine.quarantine().contains(info.segment.0));
        };
        let covered = work.covered();
        if !segments.iter().any(|info| info.segment == footing.segment() && info.last_lsn.0 > covered) {
            return Ok(true);
        }
        let segment = footing.segment();
        match self.or_quarantine(store, segment, footing.slice(store.hasher))? {
            None => {}
            Some(true) => work.footing = Some(footing),
            Some(false) => footing.finish()?,
        }
        Ok(true)
    }

    /// Passes a result on; damage quarantines its segment and gives `None`.
    fn or_quarantine<T>(
        &self,
        store: Parts<'_>,
        segment: SegmentId,
        result: Result<T, JournalError>,
    ) -> Result<Option<T>, JournalError> {
        match result {
            Err(error @ (JournalError::Damaged { .. } | JournalError::Invalid(_))) => {
                store.engine.quarantine().add(segment.0, &error.to_string());
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Tells deletes that found no room whether some can come back without them; returns whether one waits for it.
    fn note_returns(&self, work: &Work, survey: &Survey<'_>, next_lsn: Lsn, worked: bool) -> bool {
        let Survey { store, ref segments, .. } = *survey;
        let is_dead =
            |info: &SegmentInfo| work.emptied.contains_key(&info.segment.0) || work.died_whole(info, store);
        let frees = work.capture.is_some() || segments.iter().any(is_dead);
        let cleans = |cleaning: &Cleaning| cleaning.has_copies() || self.clock.now() < work.next_clean;
        let mut found =
            worked || frees && work.failures < FAILURES_MAX || work.cleaning.as_ref().is_some_and(cleans);
        if !found && (store.engine.returns.is_awaited() || store.engine.journal.lacks_room_for_writes()) {
            found = Self::roll(work, survey);
        }
        if !found && store.engine.journal.durable_lsn().0 + 1 < next_lsn.0 {
            // what is not durable yet can be neither sealed nor cleaned: it may come back once it is
            found = true;
            if store.engine.returns.is_awaited() {
                store.engine.journal.sync_soon();
            }
        }
        if store.engine.returns.note(next_lsn, found) {
            (self.hooks.on_credits)();
        }
        found && store.engine.returns.is_awaited()
    }

    /// Gives back what a durable checkpoint covers.
    fn retire(&self, work: &mut Work, store: Parts<'_>) -> Result<bool, JournalError> {
        // damage may have been found since a walk found nothing that points into it
        work.emptied.retain(|segment, _| !store.engine.quarantine().contains(*segment));
        let Some(published) = &work.published else { return Ok(false) };
        let free: Vec<u32> = work
            .emptied
            .iter()
            .filter(|(_, begun)| **begun < published.began)
            .map(|(&segment, _)| segment)
            .collect();
        for segment in &free {
            work.emptied.remove(segment);
            if work.footing.as_ref().is_some_and(|footing| footing.segment().0 == *segment) {
                work.footing = None;
            }
            work.retired.insert(*segment);
            store.engine.journal.retire(SegmentId(*segment))?;
            store.engine.liveness.set(*segment, super::liveness::Live::default());
        }
        Ok(!free.is_empty())
    }
}

impl Work {
    /// What each kind of work is at, at `now`.
    fn hands(&self, survey: &Survey<'_>, now: Nanos) -> Hands {
        let hand = |is_busy: bool, may_begin: bool| match (is_busy, may_begin) {
            (true, _) => Hand::Busy,
            (false, true) => Hand::Free,
            (false, false) => Hand::Rests,
        };
        let may_clean = survey.manner == Manner::Eager || now >= self.next_clean;
        Hands {
            footer: hand(self.footing.is_some(), true),
            checkpoint: hand(self.capture.is_some(), now >= self.next_capture),
            cleaning: if may_clean { hand(self.cleaning.is_some(), true) } else { Hand::Rests },
        }
    }

    /// The lsn up to which the checkpoint in force has everything.
    fn covered(&self) -> u64 {
        self.published.as_ref().map_or(0, |published| published.lsn)
    }

    /// Whether a start would read `info` for want of a footer; what a checkpoint covers is never replayed.
    fn lacks_footer(&self, info: &SegmentInfo, store: Parts<'_>) -> bool {
        info.state == SegmentState::Sealed
            && info.last_lsn.0 > self.covered()
            && info.records > 0
            && !store.engine.quarantine().contains(info.segment.0)
    }

    /// What checkpoint `began` met in a segment is all that lives there, unless a copy in it was or will be turned to.
    fn note_survivors(&mut self, mut survivors: BTreeMap<u32, Vec<Survivor>>, began: u64, store: Parts<'_>) {
        let presumed = std::mem::take(&mut self.presumed_dead);
        let is_miscounted = |segment: &u32| survivors.get(segment).is_none_or(|list| !list.is_empty());
        self.miscounted.extend(presumed.into_iter().filter(is_miscounted));
        let segments = self.segments(store);
        survivors.retain(|segment, _| {
            // A backup leaves what it emptied to the next turn, which may begin a capture before it gives that back.
            let is_there = lists(&segments, *segment);
            let turned = self.turned.get(segment).is_some_and(|begun| *begun >= began);
            is_there && !turned && !self.awaits(*segment) && !store.engine.quarantine().contains(*segment)
        });
        for (segment, _) in survivors.extract_if(.., |_, list| list.is_empty()) {
            self.emptied.insert(segment, began - 1);
            self.cleaning.take_if(|cleaning| cleaning.segment() == segment);
        }
        self.survivors = survivors;
        self.turned.retain(|segment, _| lists(&segments, *segment));
        self.miscounted.retain(|segment| lists(&segments, *segment));
    }

    /// Whether a copy in `segment` waits for the index to turn to it.
    fn awaits(&self, segment: u32) -> bool {
        self.folding.awaits(segment) || self.cleaning.as_ref().is_some_and(|it| it.awaits(segment))
    }

    /// Whether nothing in a sealed segment lives, as far as was counted: a checkpoint will find out and give it back
    /// without reading it.
    fn died_whole(&self, info: &SegmentInfo, store: Parts<'_>) -> bool {
        let segment = info.segment.0;
        info.state != SegmentState::Open
            && store.engine.liveness.live(segment).records == 0
            && !self.emptied.contains_key(&segment)
            && !self.miscounted.contains(&segment)
            && !store.engine.quarantine().contains(segment)
    }

    /// The journal's segments but for those that were given back.
    fn segments(&mut self, store: Parts<'_>) -> Vec<SegmentInfo> {
        let mut segments = store.engine.journal.segments();
        self.retired.retain(|retired| lists(&segments, *retired));
        segments.retain(|info| !self.retired.contains(&info.segment.0));
        segments
    }
}

/// What housekeeping works on.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) engine: &'a LogEngine,
    pub(crate) index: &'a Index,
    pub(crate) hasher: &'a crate::hash::KeyHasher,
}

fn not_taken(error: impl std::fmt::Display) -> StoreError {
    StoreError::Journal(format!("checkpoint: {error}"))
}

/// What a sealed segment takes until a checkpoint covers it: of one that a large group cut short, most of its file.
fn taken_bytes(info: &SegmentInfo) -> u64 {
    info.end_bytes.max(info.size_bytes / 4 * 3)
}

/// Whether `segment` is among `segments`, which the journal gives in the order of their numbers.
fn lists(segments: &[SegmentInfo], segment: u32) -> bool {
    segments.binary_search_by_key(&segment, |info| info.segment.0).is_ok()
}
/// About what a checkpoint would have: leaves and what lies on others make it larger.
fn expected_bytes(store: Parts<'_>) -> u64 {
    let keys: u64 = store.index.mapping().iter().map(|&id| store.index.keys_of(id)).sum();
    keys * ENTRY_BYTES
}

/// A key in a checkpoint, about; what lies on one takes less.
const ENTRY_BYTES: u64 = 17;
/// How long one turn cleans; it still reads and writes one piece at a time.
const CLEAN_TIME_MAX: Duration = Duration::from_millis(4);
/// After so many attempts deletes wait for none any more.
const FAILURES_MAX: u32 = 4;
/// Between two pieces of a backup, at most.
const COPY_REST_MAX: Duration = Duration::from_millis(100);
/// How long a demanded checkpoint waits for the journal.
const DURABLE_WAIT_MAX: Duration = Duration::from_secs(60);
