//! Engine `log`: the log is the database. Recovery, checkpoints, cleaning and cold reads over the journal.
//!
//! | module | what |
//! |---|---|
//! | `open` | a folder: the index recovered, journal and readers started |
//! | [`recovery`] | from checkpoint, footers and records to an index |
//! | [`housekeeping`] | the housekeeping thread: footers, checkpoints, cleaning, all paced; when, its `rules` say |
//! | [`capture`], [`checkpoint_file`], [`checkpoint`], [`delta_list`] | checkpoints: taken in slices, their files, their bytes |
//! | [`cleaner`], [`liveness`] | cleaning one segment; which one |
//! | [`throttle`] | slows writers down while cleaning is behind |
//! | [`folding`], [`wishes`] | values that are to leave memory become one record; which |
//! | [`copies`] | copies that cleaning and folding make, until the index turns to them |
//! | [`fold`] | an image with its deltas merged in |
//! | [`footer`] | footers of sealed segments |
//! | [`reader`], `expected` | the pool that fetches cold records; how long they are |
//! | [`backup`] | a consistent copy of a running store |
//!
//! Invariants: `tests/model.rs` lists and proves them; docs/adr/0003-cleaning-and-checkpoints.md says why.
//! Out of scope: bytes of segments and batches, group commit (`journal`); the index (`index`).

pub(crate) mod backup;
pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod checkpoint_file;
pub(crate) mod cleaner;
mod copies;
mod delta_list;
mod expected;
pub(crate) mod fold;
pub(crate) mod folding;
pub(crate) mod footer;
pub(crate) mod housekeeping;
pub(crate) mod liveness;
mod open;
pub(crate) mod reader;
pub(crate) mod recovery;
pub(crate) mod returns;
mod store;
pub(crate) mod throttle;
pub(crate) mod wishes;

pub use store::LogReport;

use collections::Deadline;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use journal::{Driver, Journal, Keyspace, LogAddress, ReadError, Refusal, SegmentInfo, Seq};
use smallvec::SmallVec;

use crate::engine::{Class, Credits, Engine};
use crate::error::{Stop, StoreError};
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::large::{Large, Owned};
use crate::memory::{Memory, Passing};
use crate::object::ObjectRef;
use crate::prepared::{Fetched, Fold, Prepared};
use crate::record::{self, Draft, Part, Payload};
use crate::sought::{OF_ANOTHER, Sought};
use collections::root::leaf_key;
use liveness::Liveness;
use reader::{Read, Readers, Source};

/// A store's log.
pub(crate) struct LogEngine {
    pub(crate) journal: Arc<Journal>,
    pub(crate) liveness: Liveness,
    /// Whether replies wait for the disk.
    waits: bool,
    readers: Readers,
    source: Arc<JournalSource>,
    /// The journal's work, where it has no threads of its own.
    driver: Option<Mutex<Option<Driver>>>,
    /// Segments with damage: never cleaned, never retired.
    quarantine: Arc<Quarantine>,
    /// Footers and checkpoints that the start found damaged, and went on without.
    damaged_at_start: u64,
    /// What cleaning lets writers append.
    pub(crate) throttle: throttle::WriteThrottle,
    /// Whether deletes wait on a full disk.
    pub(crate) returns: returns::Returns,
    /// Held by housekeeping while it looks at index and log, and by a group that is appended and not yet in the index.
    applying: Mutex<()>,
    room: Mutex<Option<Room>>,
    /// Values that housekeeping is to fold.
    pub(crate) wishes: Arc<wishes::Wishes>,
    /// Of housekeeping.
    alarm: Arc<housekeeping::rest::Alarm>,
}

/// Segments in quarantine because something in them is damaged.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(Mutex<BTreeSet<u32>>);

/// The disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Files of all segments.
    pub(crate) taken_bytes: u64,
    /// What the file system still has.
    pub(crate) available_bytes: u64,
}

impl LogEngine {
    /// Waits until housekeeping rests, or every group is in the index that is in the log, and keeps it so.
    pub(crate) fn apply_alone(&self) -> MutexGuard<'_, ()> {
        self.applying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether journal and live counters are as they say, while nobody else uses them.
    ///
    /// # Panics
    /// If they are not: a bug.
    pub(crate) fn check(&self) {
        self.journal.check_state();
        self.liveness.check();
    }

    /// Bytes of records that live.
    pub(crate) fn all_live_bytes(&self) -> u64 {
        self.liveness.all_bytes()
    }

    /// What the folder takes and what the file system has, as housekeeping last saw it; `None` before that.
    pub(crate) fn room(&self) -> Option<Room> {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what housekeeping sees.
    pub(crate) fn set_room(&self, room: Room) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Segments in quarantine.
    pub(crate) fn quarantine(&self) -> &Quarantine {
        &self.quarantine
    }

    /// What is known to be damaged: segments in quarantine, and what the start went on without.
    pub(crate) fn damaged_count(&self) -> u64 {
        self.quarantine.count() as u64 + self.damaged_at_start
    }

    /// Bytes of records in `segments` that something points at.
    pub(crate) fn live_bytes(&self, segments: &[SegmentInfo]) -> u64 {
        segments.iter().map(|info| self.liveness.live(info.segment.0).bytes).sum()
    }

    /// From now on large records are read in turn, within `memory`.
    pub(crate) fn read_within(&self, memory: &Arc<Memory>) {
        let is_first = self.source.memory.set(Arc::clone(memory)).is_ok();
        debug_assert!(is_first, "set twice");
    }

    /// Counts `bytes` of a record that is copied within the log, if it is a large one.
    pub(crate) fn count_copy(&self, bytes: usize) -> Option<Passing> {
        self.source.memory.get().and_then(|memory| memory.count_copy(bytes as u64))
    }

    /// What the pool of readers has done.
    pub(crate) fn reader_counters(&self) -> &reader::Counters {
        self.readers.counters()
    }

    /// Reads of the device for the rest of a record that was longer than expected.
    pub(crate) fn second_reads(&self) -> u64 {
        self.source.expected.second_reads()
    }

    /// Commits and prepares by hand; whether there was anything to do. Nothing where the journal has threads.
    pub(crate) fn drive(&self) -> bool {
        let Some(driver) = &self.driver else { return false };
        let mut driver = driver.lock().unwrap_or_else(PoisonError::into_inner);
        driver.as_mut().is_some_and(|driver| driver.commit() + driver.prepare() > 0)
    }

    /// Makes [`LogEngine::drive`] let retired segments wait for the next roll.
    pub(crate) fn keep_spares(&self) {
        let Some(driver) = &self.driver else { return };
        let mut driver = driver.lock().unwrap_or_else(PoisonError::into_inner);
        driver.iter_mut().for_each(Driver::keep_spares);
    }

    /// Whether one that found no room on a full disk had better wait for what housekeeping gives back, which is told of it.
    fn may_come_back(&self) -> bool {
        let may_come = self.returns.may_come(self.journal.next_lsn());
        if may_come {
            self.alarm.on_append();
        }
        may_come
    }

    /// Ends the readers, then seals the journal.
    pub(crate) fn close(&self) {
        self.readers.close();
        self.journal.close();
        if let Some(driver) = &self.driver
            && let Some(driver) = driver.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            driver.seal();
        }
    }
}

impl Engine for LogEngine {
    fn reserve(&self, bytes: u64, records: u64, class: Class) -> Result<Credits, Stop> {
        self.reserve_instead(None, bytes, records, class)
    }

    fn reserve_instead(
        &self,
        held: Option<Credits>,
        bytes: u64,
        records: u64,
        class: Class,
    ) -> Result<Credits, Stop> {
        let journal_class = match class {
            Class::Write => journal::Class::Write,
            Class::Shrink => journal::Class::Shrink,
            Class::Reclaim => journal::Class::Reclaim,
        };
        let room = bytes + records * FOOTER_SHARE_BYTES + BATCH_SHARE_BYTES;
        let mut reserved = match held.and_then(|held| held.inner) {
            Some(held) => self.journal.reserve_instead(held, room, journal_class),
            None => self.journal.reserve(room, journal_class),
        };
        if let Err(Refusal::Full { .. }) = reserved
            && class != Class::Write
        {
            if self.may_come_back() {
                return Err(Stop::Busy);
            }
            // what housekeeping gave back before it found nothing more may have come after the first look
            reserved = self.journal.reserve(room, journal_class);
        }
        match reserved {
            Ok(_) if class == Class::Write && !self.throttle.pass(room) => Err(Stop::Busy),
            Ok(credits) => Ok(Credits::of(bytes, records, credits)),
            Err(Refusal::Busy { .. }) => Err(Stop::Busy),
            Err(Refusal::Full { .. }) if class != Class::Write && self.may_come_back() => Err(Stop::Busy),
            Err(Refusal::Full { needed_bytes, available_bytes }) if class != Class::Write => {
                let (what, instead) = match class {
                    Class::Shrink => {
                        ("removal of elements", "delete whole keys, for which room is kept, or ")
                    }
                    _ => ("delete", ""),
                };
                Err(Stop::Refused(StoreError::DiskFull(format!(
                    "disk full: a {what} needs a segment for its record, {needed_bytes} B with its margin, {available_bytes} B are \
                     available, and no segment can be given back; nothing was changed: {instead}free space on the file system of the \
                     data folder, or end backups that hold segments, then repeat it"
                ))))
            }
            Err(refusal @ Refusal::Full { .. }) => {
                Err(Stop::Refused(StoreError::DiskFull(refusal.to_string())))
            }
            Err(Refusal::TooLarge { bytes, limit_bytes }) => {
                let limit_bytes = limit_bytes.saturating_sub(TRANSACTION_MARGIN_BYTES);
                Err(Stop::Refused(StoreError::TransactionTooLarge { size_bytes: bytes, limit_bytes }))
            }
            Err(refusal) => Err(Stop::Refused(StoreError::Journal(refusal.to_string()))),
        }
    }

    fn append(&self, credits: Credits, drafts: &[Draft<'_>], addresses: &mut [LogAddress]) -> Seq {
        assert_eq!(drafts.len(), addresses.len(), "one address for each draft");
        let credits = credits.inner.expect("credits of engine log come from its journal");
        let mut addresses = Addresses(addresses.iter_mut());
        let appended = match drafts {
            // nothing on the heap for what most commands do
            [draft] => self.journal.append(credits, &[journal_draft(draft, &draft.parts())], &mut addresses),
            _ => {
                let parts: SmallVec<[_; DRAFTS_FEW]> = drafts.iter().map(Draft::parts).collect();
                let drafts: SmallVec<[_; DRAFTS_FEW]> =
                    drafts.iter().zip(&parts).map(|(draft, parts)| journal_draft(draft, parts)).collect();
                self.journal.append(credits, &drafts, &mut addresses)
            }
        };
        self.alarm.on_append();
        appended.last_seq
    }

    fn released(&self) -> Seq {
        if self.waits { self.journal.durable_seq() } else { Seq::MAX }
    }

    fn newest(&self) -> Seq {
        self.journal.appended_seq()
    }

    fn commit_here(&self) -> bool {
        self.waits && self.journal.commit_here()
    }

    fn offer(&self) {
        self.journal.offer();
    }

    fn buffered_bytes(&self) -> u64 {
        self.journal.buffered_bytes()
    }

    fn waiting_bytes(&self) -> u64 {
        self.journal.waiting_bytes()
    }

    fn read(&self, sought: &Sought) -> Result<Fetched, StoreError> {
        match self.source.read_record(sought, false) {
            Read::Record(fetched) => Ok(fetched),
            Read::Elsewhere(error) | Read::Failed(error) => Err(error),
        }
    }

    fn on_damaged(&self, address: LogAddress) {
        self.readers.on_damaged(address);
    }

    fn read_wanted(&self, prepared: &mut Prepared) {
        self.readers.read_here(prepared);
    }

    fn fetch(&self, prepared: Prepared, done: Box<dyn FnOnce(Prepared) + Send>) {
        self.readers.submit(prepared, done);
    }

    fn has_addresses(&self) -> bool {
        true
    }

    fn takes_parts(&self) -> bool {
        true
    }

    fn wish_fold(&self, keyspace: Keyspace, object: ObjectRef<'_>, bytes_max: u64) -> bool {
        self.wishes.add(keyspace, object, bytes_max)
    }

    fn on_live(&self, address: LogAddress, bytes: u64) {
        self.liveness.on_live(address.segment().0, bytes);
    }

    fn on_dead(&self, address: LogAddress, bytes: u64) {
        self.liveness.on_dead(address.segment().0, bytes);
    }
}

impl fmt::Debug for LogEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogEngine")
            .field("waits", &self.waits)
            .field("quarantine", &self.quarantine)
            .finish_non_exhaustive()
    }
}

impl Quarantine {
    /// Whether `segment` must stay as it is.
    pub(crate) fn contains(&self, segment: u32) -> bool {
        self.lock().contains(&segment)
    }

    /// Puts `segment` in quarantine, and logs it once.
    pub(crate) fn add(&self, segment: u32, why: &str) {
        if self.lock().insert(segment) {
            tracing::error!(segment, why, "segment is damaged: quarantined; its other keys are served");
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the readers' records come from.
struct JournalSource {
    journal: Arc<Journal>,
    index: Arc<Index>,
    hasher: KeyHasher,
    quarantine: Arc<Quarantine>,
    expected: expected::Expected,
    wishes: Arc<wishes::Wishes>,
    /// Where large records wait for their turn; before it is set they need not.
    memory: OnceLock<Arc<Memory>>,
}

impl Source for JournalSource {
    fn read_record(&self, sought: &Sought, may_wait: bool) -> Read {
        let mut payload = Vec::new();
        let at = sought.address;
        let guess = self.expected.payload_bytes(sought);
        let mut turn = None;
        let read = self.journal.read_in_turn(at, guess, &mut payload, &mut |bytes| {
            let (memory, journal_bytes) = (self.memory.get(), || self.journal.buffered_bytes());
            turn = memory.and_then(|it| it.begin_read(&self.index, &journal_bytes, bytes as u64, may_wait));
        });
        if read.is_ok() {
            self.expected.learn(sought, guess, payload.len());
        }
        match read {
            Ok(header) => match fetched(&header, payload) {
                Ok(fetched) if sought.is(&header, &fetched.key, &self.hasher) => Read::Record(fetched),
                Err(payload) if header.kind == record::CHANGES => {
                    let part = fetched_part(&header, &payload, sought, &self.hasher);
                    part.map_or_else(|| Read::Elsewhere(damaged(at, OF_ANOTHER)), Read::Record)
                }
                Ok(_) => Read::Elsewhere(damaged(at, OF_ANOTHER)),
                Err(payload) => Read::Elsewhere(damaged(at, &misfit(header.kind, &payload))),
            },
            Err(error @ (ReadError::Gone(_) | ReadError::Mismatch(_))) => {
                Read::Elsewhere(damaged(at, &error.to_string()))
            }
            Err(error) => Read::Failed(damaged(at, &error.to_string())),
        }
    }

    fn on_folded(&self, fold: &Fold, folded: &Fetched) {
        self.wishes.add_read(fold, folded);
    }

    fn quarantine(&self, address: LogAddress) {
        self.quarantine.add(
            address.segment().0,
            "a record that the index points at does not verify, or is of another key",
        );
    }
}

/// What is wrong with a record that holds no value.
fn misfit(kind: u8, payload: &[u8]) -> String {
    match record::check(kind, Some(payload)) {
        Ok(()) => format!("a record of kind {kind} has no value"),
        Err(why) => why.to_string(),
    }
}

/// A record as commands take it: of a delta, its body is the value. A payload that has none is given back.
fn fetched(header: &journal::RecordHeader, mut payload: Vec<u8>) -> Result<Fetched, Vec<u8>> {
    let (key, value) = match record::decode(header.kind, &payload) {
        Some(Payload::Whole { key, value }) => (key, value),
        Some(Payload::Delta { key, body, .. }) => (key, body),
        Some(Payload::Deltas(_) | Payload::Removals(_) | Payload::Mapping { .. } | Payload::Clock(_))
        | None => {
            return Err(payload);
        }
    };
    let key = key.into();
    let value = if value.len() < Large::BYTES_MIN {
        value.into()
    } else {
        // the value is what the payload ends with: a second copy of it would count nowhere
        let before_bytes = payload.len() - value.len();
        payload.drain(..before_bytes);
        Owned::Plain(payload.into_boxed_slice())
    };
    Ok(Fetched {
        kind: header.kind & !record::SHARED,
        key,
        value,
        seq: header.seq,
        expiry: Deadline::of(header.expiry_ms),
        left_out_bytes: 0,
        base_bytes: None,
    })
}

/// The part of a CHANGES that is `sought`, as a record of its own; `None`: there is none.
fn fetched_part(
    header: &journal::RecordHeader,
    payload: &[u8],
    sought: &Sought,
    hasher: &KeyHasher,
) -> Option<Fetched> {
    let Payload::Deltas(parts) = record::decode(header.kind, payload)? else { return None };
    let part = sought.part(header, parts, hasher)?;
    let (kind, value) = parts.body(&part);
    let key = match part {
        Part::Node { number, .. } => leaf_key(parts.object, number)[..].into(),
        Part::Root { .. } => Box::default(),
    };
    let value = Owned::Plain(value.into_boxed_slice());
    Some(Fetched { kind, key, value, seq: header.seq, expiry: None, left_out_bytes: 0, base_bytes: None })
}

/// Where the journal puts the addresses of an append.
struct Addresses<'a>(std::slice::IterMut<'a, LogAddress>);

impl Extend<LogAddress> for Addresses<'_> {
    fn extend<I: IntoIterator<Item = LogAddress>>(&mut self, given: I) {
        for address in given {
            *self.0.next().expect("one address for each draft") = address;
        }
    }
}

fn journal_draft<'a>(draft: &Draft<'_>, parts: &'a [&'a [u8]; 5]) -> journal::Draft<'a> {
    journal::Draft::new(draft.kind, draft.keyspace, parts).expiring(Deadline::raw_or_zero(draft.expiry))
}

fn damaged(address: LogAddress, reason: &str) -> StoreError {
    StoreError::Damaged {
        segment: address.segment().0,
        offset: address.offset_bytes(),
        reason: reason.to_owned(),
    }
}

/// Records of a group for which nothing is put on the heap.
const DRAFTS_FEW: usize = 4;
/// How long cleaning expects a record to be, of which it reads few by their addresses.
const EXPECTED_PAYLOAD_BYTES: usize = 1_024;
/// Headers and mappings beside the keys and values of a transaction.
const TRANSACTION_MARGIN_BYTES: u64 = 1 << 20;
/// What the journal keeps free for each record beside its bytes; `journal::footprint` is the exact figure.
const FOOTER_SHARE_BYTES: u64 = 56;
const BATCH_SHARE_BYTES: u64 = 64;
