//! Background care for files: frees retired segments, recycles or removes their files, keeps files ready.
//!
//! One step does one thing, the most urgent first: a freed segment, a file for a large group, a ready file
//! (fallocated, at once), then 256 KiB of zeroes into one that is not filled yet.
//!
//! A few retired segments wait before they are freed: the next roll then finds a file that was written before, and
//! nothing has to be zeroed. Cleaning retires many at once, so that without the wait most would be removed and made anew.
//!
//! Invariants
//!   1. `Freed` is durable before the file is recycled or unlinked; a pinned segment stays.
//!   2. A file with a second name (a backup's hard link) is unlinked, never recycled.
//!   3. Ready files promise what their number at full size would ([`Preparer::lacks_ready_file`]): a request that waits alone
//!      finds room, whatever its size and that of the files. They never promise more than one file beyond that.
//!   4. Files of large groups are `own_files`' to decide about; those that nobody asked for in a while are removed.
//!   5. A full disk is no failure: it is noted, and tried again when space was freed or asked for. Neither is the limit of open
//!      files: a file that cannot be opened now is tried again a little later, and the log says so once.
//!   6. Zeroes leave the disk to commits: 256 KiB at a time, one piece in flight, and while commits run no faster than the
//!      open segment fills, plus a head start ([`pause`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;

use crate::admission::{Class, promise_bytes};
use crate::counters::Live;
use crate::error::JournalError;
use crate::format::manifest_entry::{Entry, GONE_SIZE_BYTES};
use crate::manifest::Facts;
use crate::own_files::{Shortage, Step};
use crate::segment::{Filler, ReadyFile, create, lacks_descriptors, prepare_error};
use crate::shared::{Phase, Shared};
use crate::trim::take_back;
use crate::types::SegmentId;

/// Owns the file that is being filled.
pub(crate) struct Preparer {
    shared: Arc<Shared>,
    filler: Option<Filler>,
    /// Batches that were written when a pause was last asked for.
    batches_seen: u64,
    /// The last try met the limit of open files.
    lacks_descriptors: bool,
    /// How many retired segments may wait for the next roll.
    spares_max: usize,
    /// The open segment that was seen last, and since when it is open.
    open: (SegmentId, Nanos),
    /// Since when files for large groups lie there that nobody asks for.
    own_idle: Option<Nanos>,
}

/// How making a file went.
enum Made {
    File(ReadyFile),
    Short(Shortage),
    LacksDescriptor,
}

impl Preparer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            filler: None,
            batches_seen: 0,
            lacks_descriptors: false,
            spares_max: 0,
            open: (SegmentId(0), Nanos(0)),
            own_idle: None,
        }
    }

    /// Lets retired segments wait for the next roll: only for who comes back by himself when they have waited in vain.
    pub(crate) fn keep_spares(&mut self) {
        self.spares_max = SPARES_MAX;
    }

    /// When what waits for its next use will have waited for long enough: retired segments, files for large groups; `None` when
    /// nothing waits.
    pub(crate) fn spares_rest(&self) -> Option<Duration> {
        let now = self.shared.clock.now();
        let waits = self.spares_max > 0 && self.retired().0 > 0;
        let retired = waits.then(|| SPARES_REST.saturating_sub(now.since(self.open.1)));
        let own = self.own_idle.map(|since| self.own_rest().saturating_sub(now.since(since)));
        retired.into_iter().chain(own).min()
    }

    /// Does one thing; false when there is nothing to do (now).
    pub(crate) fn step(&mut self) -> bool {
        if self.shared.progress.phase() != Phase::Running {
            return false;
        }
        if self.shared.admission.take_given_back() {
            self.shared.wake_starved();
        }
        let worked = self.try_step().unwrap_or_else(|error| {
            self.shared.fail(&error);
            false
        });
        self.lacks_descriptors &= !worked;
        worked
    }

    /// How long to leave the disk to commits before the next step; `None` when it is urgent, or nobody commits.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let filler = self.filler.as_ref()?;
        let batches = self.shared.counters.batches.load(Ordering::Relaxed);
        let commits_run = std::mem::replace(&mut self.batches_seen, batches) != batches;
        let large_waits = self.shared.admission.wants_own_file();
        if !commits_run || large_waits || self.next_to_free().is_some() || self.lacks_ready_file() {
            return None;
        }
        let open = *self.shared.core().segment();
        pause(
            Share { bytes: filler.filled_bytes(), of_bytes: filler.ready().size_bytes },
            Share { bytes: open.used, of_bytes: open.size_bytes },
        )
    }

    /// Whether a file could not be made for want of space or of a descriptor: worth trying again after a while.
    pub(crate) fn is_short(&self) -> bool {
        self.lacks_descriptors || self.shared.shortage.lock().is_ok_and(|shortage| shortage.is_some())
    }

    fn try_step(&mut self) -> Result<bool, JournalError> {
        self.note_roll();
        if let Some(segment) = self.next_to_free() {
            self.free(segment)?;
            return Ok(true);
        }
        if self.tend_own_files()? {
            return Ok(true);
        }
        if self.lacks_ready_file() {
            return self.make_ready_file();
        }
        self.fill()
    }

    fn note_roll(&mut self) {
        let open = self.shared.core().segment().id;
        if open != self.open.0 {
            self.open = (open, self.shared.clock.now());
        }
    }

    /// The next retired segment that is not worth keeping until the next roll.
    fn next_to_free(&self) -> Option<SegmentId> {
        let (count, first) = self.retired();
        first.filter(|_| self.lacks_ready_file() || count > self.spares())
    }

    /// How many retired segments nobody needs, and the first of them.
    fn retired(&self) -> (usize, Option<SegmentId>) {
        let pins = self.shared.pins();
        let mut free = pins.retired.iter().filter(|segment| !pins.counts.contains_key(segment)).copied();
        let first = free.next();
        (usize::from(first.is_some()) + free.count(), first)
    }

    /// How many retired segments may wait now: none when nothing rolls, or somebody needs the space.
    fn spares(&self) -> usize {
        let large_waits = self.shared.admission.wants_own_file();
        let idle = self.shared.clock.now().since(self.open.1) >= SPARES_REST;
        if large_waits || idle || self.is_short() { 0 } else { self.spares_max }
    }

    /// Says that a segment is no more, then recycles or removes its file.
    fn free(&self, segment: SegmentId) -> Result<(), JournalError> {
        let shared = &self.shared;
        let facts = shared.manifest().state().segments.get(&segment).copied();
        let facts = facts.expect("retire takes only known segments");
        let path = shared.path_of(facts.file);
        let failed = |error| JournalError::failed(format!("freeing {}", path.display()), error);
        let standard = facts.size_bytes == shared.admission.file_size_bytes();
        let wanted = standard && self.lacks_ready_file();
        let is_whole = wanted && take_back(shared, &facts).map_err(failed)?;
        let ready = if is_whole { self.reopen(&facts).map_err(failed)? } else { None };
        let mut manifest = shared.manifest();
        // A backup pins under the manifest's lock, retired segments too.
        if shared.pins().counts.contains_key(&segment) {
            return Ok(());
        }
        shared.set_handle(segment, None);
        let links = shared.vfs.link_count(&path).map_err(failed)?;
        let ready = ready.filter(|_| links == 1);
        let mut entries = vec![Entry::Freed { segment }];
        if ready.is_some() {
            entries.push(Entry::Prepared { file: facts.file, size_bytes: facts.size_bytes, zeroed: true });
        }
        manifest.say(&entries, shared.unix_ms())?;
        drop(manifest);
        if let Some(ready) = ready {
            Live::add(&shared.counters.files_recycled, 1);
            self.publish(ready);
        } else {
            let synced = shared.vfs.remove(&path).and_then(|()| shared.vfs.sync_dir(&shared.dir));
            // A name that a crash brings back is one that the manifest does not know: the next start removes it.
            synced.or_else(|error| if lacks_descriptors(&error) { Ok(()) } else { Err(failed(error)) })?;
            Live::add(&shared.counters.files_removed, 1);
            self.on_space();
        }
        // last: whoever finds no room meanwhile sees that some is about to come back
        shared.pins().retired.remove(&segment);
        Ok(())
    }

    /// The file of a retired segment for the next one; `None` when no descriptor is left: to remove it needs none.
    fn reopen(&self, facts: &Facts) -> io::Result<Option<ReadyFile>> {
        match self.shared.open_ready(facts.file, facts.size_bytes, true) {
            Err(error) if lacks_descriptors(&error) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Whether fewer files are ready than there should be, or, while files grow, old small ones do not promise what as many of
    /// the next size would: that is what a large group and the reserve take.
    fn lacks_ready_file(&self) -> bool {
        let wanted = self.ready_wanted();
        let most = promise_bytes(self.shared.admission.file_size_bytes());
        let core = self.shared.core();
        (core.ready().len() as u64) < wanted || core.ready_promise_bytes() < wanted * most
    }

    fn ready_wanted(&self) -> u64 {
        u64::from(self.shared.options.ready_segments) + u64::from(self.shared.options.reserve_segments)
    }

    fn make_ready_file(&mut self) -> Result<bool, JournalError> {
        let log_bytes = self.shared.manifest().state().log_bytes();
        let size_bytes = self.shared.admission.grow_files(self.shared.options.file_size_bytes(log_bytes));
        let is_reserve = self.shared.core().ready().len() < self.shared.options.reserve_segments as usize;
        match self.make_file(size_bytes, self.shared.options.margin_bytes(is_reserve))? {
            Made::File(file) => {
                self.publish(file);
                return Ok(true);
            }
            Made::Short(shortage) => self.note_shortage(shortage),
            Made::LacksDescriptor => {}
        }
        Ok(false)
    }

    /// Does the next thing about files of large groups, if there is one.
    fn tend_own_files(&mut self) -> Result<bool, JournalError> {
        let now = self.shared.clock.now();
        let is_idle = self.shared.admission.has_idle_own_files();
        self.own_idle = self.own_idle.or(Some(now)).filter(|_| is_idle);
        let is_at_rest = self.own_idle.is_some_and(|since| now.since(since) >= self.own_rest());
        match self.shared.admission.next_own_step(is_at_rest) {
            Step::Nothing => return Ok(false),
            Step::Wake => self.shared.wake_starved(),
            Step::Make(size_bytes, class) => return self.make_own_file(size_bytes, class),
            Step::GiveBack(file) => self.remove_unused(&file)?,
        }
        Ok(true)
    }

    /// How long files of large groups wait for the next one: not long where their space is needed.
    fn own_rest(&self) -> Duration {
        if self.is_short() { SPARES_REST } else { OWN_REST }
    }

    fn make_own_file(&mut self, size_bytes: u64, class: Class) -> Result<bool, JournalError> {
        let shared = Arc::clone(&self.shared);
        match self.make_file(size_bytes, shared.options.margin_bytes(class != Class::Write))? {
            Made::File(file) => shared.admission.put_own_file(file),
            Made::LacksDescriptor => return Ok(false),
            Made::Short(shortage) => {
                match shared.admission.on_own_shortage(size_bytes, shortage, shared.clock.now().0) {
                    Ok(in_the_way) => self.remove_unused(&in_the_way)?,
                    Err(true) => warn_short(&shortage),
                    Err(false) => {}
                }
            }
        }
        // Who waits claims the file, or learns that the disk is full.
        shared.wake_starved();
        Ok(true)
    }

    /// Removes a prepared file that nobody uses.
    fn remove_unused(&self, file: &ReadyFile) -> Result<(), JournalError> {
        let shared = &self.shared;
        let path = shared.path_of(file.id);
        let gone = Entry::Prepared { file: file.id, size_bytes: GONE_SIZE_BYTES, zeroed: false };
        shared.manifest().say(&[gone], shared.unix_ms())?;
        let synced = shared.vfs.remove(&path).and_then(|()| shared.vfs.sync_dir(&shared.dir));
        // As where a segment is freed: the next start removes what nobody names.
        synced
            .or_else(|error| if lacks_descriptors(&error) { Ok(()) } else { Err(error) })
            .map_err(|error| JournalError::failed(format!("removing {}", path.display()), error))?;
        Live::add(&shared.counters.files_removed, 1);
        self.on_space();
        Ok(())
    }

    /// Makes and states a file of `size_bytes` that leaves `margin_bytes`.
    fn make_file(&mut self, size_bytes: u64, margin_bytes: u64) -> Result<Made, JournalError> {
        let shared = Arc::clone(&self.shared);
        let needed_bytes = size_bytes + margin_bytes;
        let space = shared
            .vfs
            .space(&shared.dir)
            .map_err(|error| JournalError::failed("asking for the disk's space", error))?;
        if space.available_bytes < needed_bytes {
            return Ok(Made::Short(Shortage { needed_bytes, available_bytes: space.available_bytes }));
        }
        let id = shared.manifest().take_file_id();
        let now = shared.unix_ms();
        let made = create(&*shared.vfs, &shared.dir, id, size_bytes, shared.identity, now).and_then(|()| {
            let opened = shared.open_ready(id, size_bytes, false);
            // Best effort, as where it was made.
            opened.inspect_err(|_| drop(shared.vfs.remove(&shared.path_of(id))))
        });
        let file = match made {
            Ok(file) => file,
            Err(error) if lacks_descriptors(&error) => {
                self.note_lack(&error);
                return Ok(Made::LacksDescriptor);
            }
            Err(error) => match prepare_error(&*shared.vfs, &shared.dir, size_bytes, error) {
                JournalError::Full { needed_bytes, available_bytes, .. } => {
                    return Ok(Made::Short(Shortage { needed_bytes, available_bytes }));
                }
                failed => return Err(failed),
            },
        };
        shared.manifest().say(&[Entry::Prepared { file: id, size_bytes, zeroed: false }], now)?;
        Live::add(&shared.counters.files_created, 1);
        Ok(Made::File(file))
    }

    /// Writes the next zeroes into the first ready file that is not filled.
    fn fill(&mut self) -> Result<bool, JournalError> {
        let failed = |error| JournalError::failed("filling a segment file with zeroes", error);
        if let Some(filler) = &mut self.filler {
            if !filler.step().map_err(failed)? {
                return Ok(true);
            }
            let filled = filler.ready().clone();
            self.filler = None;
            self.say_filled(&filled)?;
            return Ok(true);
        }
        let unfilled = self.shared.core().ready().iter().find(|file| !file.is_zeroed()).cloned();
        let Some(ready) = unfilled else { return Ok(false) };
        match Filler::open(&*self.shared.vfs, &self.shared.dir, ready) {
            Err(error) if lacks_descriptors(&error) => {
                self.note_lack(&error);
                return Ok(false);
            }
            opened => self.filler = Some(opened.map_err(failed)?),
        }
        Ok(true)
    }

    fn note_lack(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.lacks_descriptors, true) {
            tracing::warn!(%error, "no file can be opened for the next segment: tried again each second");
        }
    }

    /// States that a file is filled, if it is still waiting.
    fn say_filled(&self, file: &ReadyFile) -> Result<(), JournalError> {
        let mut manifest = self.shared.manifest();
        if !file.is_zeroed() || !manifest.state().prepared.contains_key(&file.id) {
            return Ok(());
        }
        let entry = Entry::Prepared { file: file.id, size_bytes: file.size_bytes, zeroed: true };
        manifest.say(&[entry], self.shared.unix_ms())
    }

    fn publish(&self, file: ReadyFile) {
        let size_bytes = file.size_bytes;
        let admission = &self.shared.admission;
        let promise_max =
            (self.ready_wanted() + 1) * promise_bytes(admission.file_size_bytes().max(size_bytes));
        let mut core = self.shared.core();
        core.add_ready(file);
        let least_bytes = core.least_file_bytes();
        let promised = core.ready_promise_bytes();
        drop(core);
        assert!(promised < promise_max, "ready files promise {promised} B, at most {promise_max} B");
        admission.note_sizes(size_bytes, least_bytes, self.shared.options.reserve_segments);
        admission.add_room(promise_bytes(size_bytes));
        self.clear_shortage();
        self.shared.wake_starved();
    }

    fn note_shortage(&self, shortage: Shortage) {
        let mut noted = self.shared.shortage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first = noted.replace(shortage).is_none();
        drop(noted);
        if first {
            warn_short(&shortage);
        }
        // Who waits for credits learns that the disk is full.
        self.shared.wake_starved();
    }

    fn clear_shortage(&self) {
        let mut shortage = self.shared.shortage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if shortage.take().is_some() {
            drop(shortage);
            tracing::info!("the disk has room again: writes go on");
        }
    }

    /// Space has come free: what was refused for want of it is tried again.
    fn on_space(&self) {
        self.clear_shortage();
        self.shared.admission.on_space();
    }
}

fn warn_short(shortage: &Shortage) {
    let Shortage { needed_bytes, available_bytes } = *shortage;
    tracing::warn!(needed_bytes, available_bytes, "disk full: no room for another segment");
}

/// How long to wait before the next zeroes while commits run: the filled share of the next file need only be ahead of the
/// used share of the open one.
fn pause(filled: Share, used: Share) -> Option<Duration> {
    (filled.percent() > used.percent() + HEAD_START_PERCENT).then_some(PAUSE)
}

/// A part of a whole, in bytes.
#[derive(Clone, Copy)]
struct Share {
    bytes: u64,
    of_bytes: u64,
}

impl Share {
    fn percent(&self) -> u64 {
        self.bytes * 100 / self.of_bytes.max(1)
    }
}

/// Retired segments that wait for the next roll: an eighth of a log of full files.
const SPARES_MAX: usize = 4;
/// How long after a roll they wait.
const SPARES_REST: Duration = Duration::from_secs(1);
/// How long files of large groups wait for the next one.
const OWN_REST: Duration = Duration::from_secs(10);
/// How far filling may be ahead of the open segment while commits run.
const HEAD_START_PERCENT: u64 = 15;
/// How soon to look again: some commits later.
const PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_keep_a_little_ahead_of_the_open_segment_and_no_more() {
        let segment = 64 << 20;
        let share = |bytes, of_bytes| Share { bytes, of_bytes };
        assert_eq!(pause(share(0, segment), share(0, segment)), None, "a head start");
        assert_eq!(pause(share(segment / 5, segment), share(0, segment)), Some(PAUSE));
        assert_eq!(
            pause(share(segment / 5, segment), share(segment / 10, segment)),
            None,
            "the open one fills"
        );
        assert_eq!(pause(share(segment / 2, segment), share(segment, segment)), None, "urgent");
        assert_eq!(
            pause(share(segment, segment), share(4 << 10, 8 << 10)),
            Some(PAUSE),
            "of different sizes"
        );
    }
}
