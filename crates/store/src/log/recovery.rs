//! From a folder to an index: the checkpoint, then everything above it in LSN order; the later address wins.
//!
//! ```text
//! checkpoint --> slots, expiries, mapping      segments above its lsn, oldest first:
//!                                                footed: footer entries (no keys to read or hash)
//!                                                else:   records
//! ```
//!
//! Invariants
//!   1. Death is stated: what the checkpoint does not name is dead below its LSN.
//!   2. A checkpoint that the manifest names must be whole, and every segment that a live entry points into must be
//!      there; anything else is damage, and the folder is not served. Only while no segment was ever given back does the
//!      log alone tell everything: then it is replayed whole instead.
//!
//! Stripes are replayed by several threads: each record waits for memory, a page of the index far from the last one's.
//! Keys are read only where records with equal hash bits are SHARED (`record`).
//! Out of scope: the torn tail (`journal`), matching records with slots (`index::recover`).

use collections::Deadline;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};

use journal::{
    FooterEntry, JournalError, Keyspace, LogAddress, Lsn, RecordView, Recovery, SegmentInfo, SegmentState,
    Seq, record_flags,
};

use super::capture::Published;
use super::checkpoint::{Area, Block, Entry, Expiry, Header};
use super::checkpoint_file::{self, LoadError};
use super::footer::{self, entry_of};
use super::liveness::{Live, Liveness};
use crate::error::StoreError;
use crate::hash::{KeyHash, KeyHasher};
use crate::index::Index;
use crate::index::ahead::AHEAD_KEYS_MAX;
use crate::index::recover::{LoadedSlot, Replayed};
use crate::options::Options;
use crate::record::{self, Named, Payload};
use crate::sought::{OF_ANOTHER, place_of};
use collections::root::{Root, leaf_key};

/// What recovery found beside the index.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The checkpoint that it began with.
    pub(crate) checkpoint: Option<Published>,
    /// Newest time that the checkpoint states.
    pub(crate) time_ms: u64,
    /// Records replayed above the checkpoint.
    pub(crate) replayed: u64,
    /// Footers and checkpoints that do not verify, and that the records stood in for.
    pub(crate) damaged: u64,
}

/// Fills `index` and `liveness` from what `recovery` found.
///
/// # Errors
/// [`StoreError::Open`] when something is damaged or cannot be read; the text says file and offset.
pub(crate) fn recover(
    recovery: &Recovery,
    options: &Options,
    index: &mut Arc<Index>,
    hasher: &KeyHasher,
    liveness: &Liveness,
) -> Result<Recovered, StoreError> {
    let segments = recovery.segments();
    let mut recovered = Recovered::default();
    let (mut from, mut missing) = (Lsn(1), BTreeSet::new());
    if let Some(checkpoint) = recovery.checkpoint() {
        let loader = Loader::new(index, &segments, recovery.identity().folder);
        let (loader, loaded) = load(loader, options, &checkpoint.name)?;
        match loaded {
            Ok(header) => {
                missing = loader.finish(liveness);
                from = checkpoint.lsn;
                recovered.time_ms = header.time_ms;
                let (name, lsn) = (checkpoint.name.clone(), header.lsn);
                recovered.checkpoint = Some(Published { name, lsn, ..Published::default() });
            }
            Err(error) if is_complete(&segments) => {
                tracing::error!(name = checkpoint.name, %error, "checkpoint is damaged: the whole log is replayed");
                recovered.damaged += 1;
                *index = Arc::new(Index::new(options.databases));
            }
            Err(error) => return Err(damaged_checkpoint(&checkpoint.name, &error.to_string())),
        }
    }
    let index = &*index;
    let replayer = Replayer { recovery, index, hasher, liveness };
    let (replayed, damaged) = replay(&replayer, options.readers, &segments, from)?;
    (recovered.replayed, recovered.damaged) = (replayed, recovered.damaged + damaged);
    index.finish();
    if let Some((_, segment)) = missing.iter().find(|(keyspace, _)| index.lives(*keyspace)) {
        let what = format!("the checkpoint points into segment {segment:08x}, which is missing");
        return Err(StoreError::Open(format!("{what}; run `evenkeel check`")));
    }
    Ok(recovered)
}

/// Reads and decodes the checkpoint `name` here while a thread takes its blocks in.
fn load<'a>(
    mut loader: Loader<'a>,
    options: &Options,
    name: &str,
) -> Result<(Loader<'a>, Result<Header, LoadError>), StoreError> {
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(BLOCKS_WAITING_MAX);
        let take = move || {
            receive.iter().for_each(|(folder, block)| loader.take(folder, block));
            loader
        };
        let taken = std::thread::Builder::new().name("store-load".into()).spawn_scoped(scope, take);
        let taken = taken.map_err(|error| no_thread(&error))?;
        let loaded = checkpoint_file::load(&*options.vfs, &options.dir, name, &mut |header, block| {
            // it ends early only by a panic, which goes on below
            let _ = send.send((header.folder, block));
        });
        drop(send);
        let loader = taken.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((loader, loaded))
    })
}

/// Takes a checkpoint's blocks in.
struct Loader<'a> {
    index: &'a Index,
    /// The segments that are there, in order, and how many of their records the entries point at.
    counted: Vec<(u32, u64)>,
    folder: u128,
    foreign: bool,
    /// Segments that are not there and that entries point into, by keyspace: fine only where the keyspace is dead.
    missing: BTreeSet<(Keyspace, u32)>,
    average_bytes: BTreeMap<u32, u64>,
}

impl<'a> Loader<'a> {
    fn new(index: &'a Index, segments: &[SegmentInfo], folder: u128) -> Self {
        let mut counted: Vec<_> = segments.iter().map(|info| (info.segment.0, 0)).collect();
        counted.sort_unstable();
        let (missing, average_bytes) = (BTreeSet::new(), BTreeMap::new());
        Self { index, counted, folder, foreign: false, missing, average_bytes }
    }

    fn take(&mut self, folder: u128, block: Block) {
        self.foreign |= folder != self.folder;
        match block {
            Block::Mapping { seq, next_keyspace, mapping } => {
                self.index.set_mapping(&mapping, next_keyspace, seq);
            }
            Block::Clock(seq, record) => self.index.set_clock(seq, record),
            Block::Segments(live) => {
                let averages =
                    live.iter().map(|live| (live.segment, live.bytes.checked_div(live.records.into())));
                self.average_bytes
                    .extend(averages.filter_map(|(segment, average)| Some((segment, average?))));
            }
            Block::Entries(area, entries) => self.entries(area, &entries),
            Block::Expiries(area, expiries) => {
                let number = usize::from(area.stripe);
                let hash = |expiry: &Expiry| KeyHash::from_parts(number, expiry.bits, expiry.tag);
                let expiries = expiries.iter().map(|expiry| (hash(expiry), Deadline::of(expiry.expiry_ms)));
                self.index.load_expiries(area.keyspace, number, expiries);
            }
            Block::End(_) => {}
        }
    }

    fn entries(&mut self, area: Area, entries: &[Entry]) {
        let number = usize::from(area.stripe);
        let slots = entries.iter().map(|entry| LoadedSlot {
            hash: KeyHash::from_parts(number, entry.bits, entry.tag),
            address: entry.address,
            shared: entry.shared,
            deltas: &entry.deltas,
        });
        self.index.load_slots(area.keyspace, number, slots);
        let deltas = entries.iter().flat_map(|entry| &entry.deltas);
        let deltas = deltas.filter(|delta| delta.counted_bytes().is_some()).map(|delta| delta.address);
        for address in entries.iter().map(|entry| entry.address).chain(deltas) {
            let segment = address.segment().0;
            match self.counted.binary_search_by_key(&segment, |(segment, _)| *segment) {
                Ok(at) => self.counted[at].1 += 1,
                Err(_) => drop(self.missing.insert((area.keyspace, segment))),
            }
        }
    }

    /// Sets the live counters: counts are exact, bytes are as the checkpoint's averages say.
    fn finish(self, liveness: &Liveness) -> BTreeSet<(Keyspace, u32)> {
        for (segment, records) in self.counted.into_iter().filter(|(_, records)| *records > 0) {
            let average = self.average_bytes.get(&segment).copied().unwrap_or(0);
            liveness.set(segment, Live { records, bytes: records * average });
        }
        self.missing
    }
}

/// Replays what `segments` hold from lsn `from` on; returns how many records that were, and how many footers did not verify.
///
/// This thread reads. Keys are replayed by threads of their own, as many as help and at most `threads_max`, each of which has some
/// of the stripes, so that a key's records stay in order; with 0 on this thread.
fn replay(
    replayer: &Replayer<'_>,
    threads_max: usize,
    segments: &[SegmentInfo],
    from: Lsn,
) -> Result<(u64, u64), StoreError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = cores.min(REPLAY_THREADS_MAX).min(threads_max);
    std::thread::scope(|scope| {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for part in 0..parts {
            let (send, receive) = mpsc::sync_channel::<Arc<[Item]>>(BATCHES_WAITING_MAX);
            let run = move || receive.iter().try_for_each(|batch| replayer.batch(&batch, part, parts));
            let thread = std::thread::Builder::new().name("store-replay".into()).spawn_scoped(scope, run);
            threads.push(thread.map_err(|error| no_thread(&error))?);
            senders.push(send);
        }
        let is_alone = senders.is_empty();
        let batch = Vec::new();
        let mut reader = Reader { replayer, senders, is_alone, batch, replayed: 0, damaged: 0, error: None };
        let mut from_on = segments.iter().filter(|segment| segment.last_lsn >= from);
        let read = from_on.try_for_each(|segment| reader.segment(segment, from));
        let read = read.and_then(|()| reader.send());
        let counts = (reader.replayed, reader.damaged);
        drop(reader);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        read.map(|()| counts)
    })
}

/// A record with a key that waits to be replayed.
struct Item {
    /// Of a part of a CHANGES or a REMOVALS: as if it were a record of its own.
    entry: FooterEntry,
    /// Of a delta: [`crate::index::delta::Delta::since`].
    since: Seq,
    /// Which part of a record it is; `None`: all of it.
    part: Option<ItemPart>,
}

/// A part of a CHANGES or a REMOVALS that waits to be replayed.
#[derive(Clone, Copy)]
struct ItemPart {
    object: u64,
    named: Named,
    /// Another part counts the bytes of the record.
    is_further: bool,
}

/// Reads segments in order: replays what concerns no key, and hands out the rest in batches.
struct Reader<'a> {
    replayer: &'a Replayer<'a>,
    /// To the threads that replay; each looks at every batch.
    senders: Vec<mpsc::SyncSender<Arc<[Item]>>>,
    /// There are no such threads.
    is_alone: bool,
    batch: Vec<Item>,
    replayed: u64,
    /// Footers that do not verify.
    damaged: u64,
    error: Option<StoreError>,
}

impl Reader<'_> {
    fn segment(&mut self, info: &SegmentInfo, from: Lsn) -> Result<(), StoreError> {
        if info.state == SegmentState::Footed && self.footer(info, from)? {
            return self.error.take().map_or(Ok(()), Err);
        }
        let Replayer { recovery, hasher, .. } = *self.replayer;
        recovery
            .scan(info.segment, from, &mut |view: RecordView<'_>| {
                self.replay(entry_of(&view, hasher), Some(view.payload));
            })
            .map_err(|error| open_error(&error))?;
        self.error.take().map_or(Ok(()), Err)
    }

    /// Replays a footer; false when it does not verify: then the records tell the same.
    fn footer(&mut self, info: &SegmentInfo, from: Lsn) -> Result<bool, StoreError> {
        let footer = self.replayer.recovery.read_footer(info.segment).map_err(|error| open_error(&error))?;
        let Some(entries) = footer else {
            self.damaged += 1;
            return Ok(false);
        };
        entries.into_iter().filter(|entry| entry.lsn >= from).for_each(|entry| self.replay(entry, None));
        Ok(true)
    }

    fn replay(&mut self, entry: FooterEntry, payload: Option<&[u8]>) {
        if self.error.is_some() {
            return;
        }
        self.replayed += 1;
        let result = match entry.kind & !record::SHARED {
            record::MAPPING => self.replayer.replay_mapping(&entry, payload),
            record::CLOCK => self.replayer.replay_clock(&entry, payload),
            _ => self.hand_out(entry, payload),
        };
        self.error = result.err();
    }

    /// Hands out each part of a CHANGES: as the footer names them, or as the record does.
    fn hand_out_parts(&mut self, entry: &FooterEntry, payload: Option<&[u8]>) -> Result<(), StoreError> {
        let replayer = self.replayer;
        let named = if payload.is_none() { footer::named(entry) } else { None };
        let (object, named) = match named {
            Some((object, named)) => (object, named.into_iter().map(|named| (named, Seq::NONE)).collect()),
            None => parts_of(entry.kind, &replayer.payload_of(entry, payload)?)
                .ok_or_else(|| damaged(entry.address, "the payload is none of changes"))?,
        };
        let whole = FooterEntry { expiry_ms: 0, extra: 0, ..*entry };
        for (at, (named, base_seq)) in named.into_iter().enumerate() {
            let (keyspace, hash) = place_of(entry.keyspace, object, named, replayer.hasher);
            let (kind, since) = match named {
                Named::Root(_) => (record::TOTALS, record::SINCE_TOTALS),
                Named::Node(_) => (record::CHANGE, base_seq),
            };
            let part = Some(ItemPart { object, named, is_further: at > 0 });
            self.push(Item { entry: FooterEntry { keyspace, hash: hash.0, kind, ..whole }, since, part })?;
        }
        Ok(())
    }

    /// Hands out each removal of a REMOVALS, as if it were a record of its own.
    fn hand_out_removals(&mut self, entry: &FooterEntry) -> Result<(), StoreError> {
        let removals = footer::removals(entry)
            .ok_or_else(|| damaged(entry.address, "the record removes nothing that can be"))?;
        let object = removals.object;
        for number in removals.numbers() {
            let named = Named::Node(number);
            let (keyspace, hash) = place_of(entry.keyspace, object, named, self.replayer.hasher);
            let part = Some(ItemPart { object, named, is_further: true });
            let entry = FooterEntry { keyspace, hash: hash.0, kind: record::REMOVED, ..*entry };
            self.push(Item { entry, since: Seq::NONE, part })?;
        }
        Ok(())
    }

    fn hand_out(&mut self, entry: FooterEntry, payload: Option<&[u8]>) -> Result<(), StoreError> {
        match entry.kind {
            record::CHANGES => return self.hand_out_parts(&entry, payload),
            record::REMOVALS => return self.hand_out_removals(&entry),
            _ => {}
        }
        let since = match payload {
            Some(payload) => record::since(entry.kind, payload),
            None => footer::since(&entry),
        };
        self.push(Item { entry, since, part: None })
    }

    fn push(&mut self, item: Item) -> Result<(), StoreError> {
        self.batch.push(item);
        if self.batch.len() == BATCH_RECORDS { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        if self.is_alone {
            return self.replayer.batch(&batch, 0, 1);
        }
        let batch: Arc<[Item]> = batch.into();
        // a thread that has met an error takes no more: its result says why
        self.senders.retain(|sender| sender.send(Arc::clone(&batch)).is_ok());
        Ok(())
    }
}

/// Replays records.
struct Replayer<'a> {
    recovery: &'a Recovery,
    index: &'a Index,
    hasher: &'a KeyHasher,
    liveness: &'a Liveness,
}

impl Replayer<'_> {
    /// Replays what of `batch` is in stripes of part `part` of `parts`.
    fn batch(&self, batch: &[Item], part: usize, parts: usize) -> Result<(), StoreError> {
        let hash = |item: &Item| KeyHash(item.entry.hash);
        let mut own = batch.iter().filter(|item| hash(item).stripe() % parts == part);
        // each record looks up a page far from the last one's
        let mut ahead: Vec<&Item> = Vec::with_capacity(AHEAD_KEYS_MAX);
        loop {
            ahead.extend(own.by_ref().take(AHEAD_KEYS_MAX));
            if ahead.is_empty() {
                return Ok(());
            }
            let mut keys = [(Keyspace::NONE, KeyHash(0)); AHEAD_KEYS_MAX];
            keys.iter_mut().zip(&ahead).for_each(|(key, item)| *key = (item.entry.keyspace, hash(item)));
            self.index.prefetch(&keys[..ahead.len()]);
            ahead.drain(..).try_for_each(|item| self.replay_keyed(item))?;
        }
    }

    fn replay_mapping(&self, entry: &FooterEntry, payload: Option<&[u8]>) -> Result<(), StoreError> {
        let payload = self.payload_of(entry, payload)?;
        let Some(Payload::Mapping { next_keyspace, keyspaces }) = record::decode(entry.kind, &payload) else {
            return Err(damaged(entry.address, "the payload is no mapping"));
        };
        if entry.seq > self.index.mapping_seq() {
            self.index.set_mapping(&record::mapping_ids(keyspaces), next_keyspace, entry.seq);
        }
        Ok(())
    }

    fn replay_clock(&self, entry: &FooterEntry, payload: Option<&[u8]>) -> Result<(), StoreError> {
        let payload = self.payload_of(entry, payload)?;
        let record = record::decode_clock(&payload);
        let record = record.ok_or_else(|| damaged(entry.address, "the payload is no clock record"))?;
        self.index.set_clock(entry.seq, record);
        Ok(())
    }

    fn replay_keyed(&self, item: &Item) -> Result<(), StoreError> {
        let (entry, since) = (&item.entry, item.since);
        let record_bytes = match item.part {
            Some(ItemPart { is_further: true, .. }) => 0,
            _ => record::HEADER_BYTES + u64::from(entry.payload_len).next_multiple_of(8),
        };
        let replayed = Replayed {
            keyspace: entry.keyspace,
            hash: KeyHash(entry.hash),
            address: entry.address,
            seq: entry.seq,
            since,
            kind: entry.kind,
            expiry: Deadline::of(entry.expiry_ms),
            record_bytes: u32::try_from(record_bytes).unwrap_or(u32::MAX),
            moved: entry.flags & record_flags::MOVED != 0,
        };
        let mut own_key = None;
        let replay = self.index.replay(&replayed, &mut |address| {
            if let Some(ItemPart { object, named: Named::Root(_), .. }) = item.part {
                return Ok(self.read_root(address, entry)?.is_some_and(|root| root.object == object));
            }
            if own_key.is_none() {
                own_key = Some(match item.part {
                    Some(ItemPart { object, named: Named::Node(number), .. }) => {
                        leaf_key(object, number)[..].into()
                    }
                    _ => self.read_key(entry.address, entry)?,
                });
            }
            let other = self.read_key(address, entry)?;
            Ok(own_key.as_deref() == Some(&*other))
        })?;
        let segment = |address: LogAddress| address.segment().0;
        if replay.live && record_bytes > 0 {
            self.liveness.on_live(segment(replayed.address), record_bytes);
        }
        if let Some(base) = replay.dead_base {
            self.liveness.on_dead(segment(base), 0);
        }
        replay.dead_deltas.iter().for_each(|delta| self.liveness.on_dead_delta(delta));
        Ok(())
    }

    /// The payload of a record: as it was replayed, or read where a footer stood for it.
    fn payload_of<'a>(
        &self,
        entry: &FooterEntry,
        replayed: Option<&'a [u8]>,
    ) -> Result<Cow<'a, [u8]>, StoreError> {
        replayed.map_or_else(|| self.read(entry).map(Cow::Owned), |payload| Ok(Cow::Borrowed(payload)))
    }

    fn read(&self, entry: &FooterEntry) -> Result<Vec<u8>, StoreError> {
        let (address, mut payload) = (entry.address, Vec::new());
        let read = self.recovery.read(address, 0, &mut payload);
        let header = read.map_err(|error| damaged(address, &error.to_string()))?;
        if (header.kind, header.seq) != (entry.kind, entry.seq) {
            return Err(damaged(address, "the record is another than the footer says"));
        }
        Ok(payload)
    }

    /// The key of the record at `address`, which has the hash bits of `entry`, and is it or one that the index names.
    fn read_key(&self, address: LogAddress, entry: &FooterEntry) -> Result<Box<[u8]>, StoreError> {
        self.read_record(address, entry).map(|(key, _)| key)
    }

    /// The root in the record at `address`, as [`Replayer::read_key`].
    fn read_root(&self, address: LogAddress, entry: &FooterEntry) -> Result<Option<Root>, StoreError> {
        self.read_record(address, entry).map(|(_, root)| root)
    }

    fn read_record(
        &self,
        address: LogAddress,
        entry: &FooterEntry,
    ) -> Result<(Box<[u8]>, Option<Root>), StoreError> {
        let mut payload = Vec::new();
        let header = self
            .recovery
            .read(address, 256, &mut payload)
            .map_err(|error| damaged(address, &error.to_string()))?;
        let decoded = record::decode(header.kind, &payload);
        let key = decoded.and_then(|payload| payload.key());
        let key = key.ok_or_else(|| damaged(address, "the record has no key"))?;
        let same_bits = self.hasher.hash_in(header.keyspace, key).slot() == KeyHash(entry.hash).slot();
        let is_it = same_bits
            && header.keyspace == entry.keyspace
            && (address != entry.address || header.seq == entry.seq);
        let root = match decoded {
            Some(Payload::Whole { value, .. }) => record::root_of(header.kind, value),
            _ => None,
        };
        if is_it { Ok((key.into(), root)) } else { Err(damaged(address, OF_ANOTHER)) }
    }
}

/// The object of a CHANGES, and its parts with what the nodes' operations lie on.
fn parts_of(kind: u8, payload: &[u8]) -> Option<(u64, Vec<(Named, Seq)>)> {
    let Payload::Deltas(parts) = record::decode(kind, payload)? else { return None };
    let named = parts.map(|part| (part.named(), part.since()));
    Some((parts.object, named.collect()))
}

fn no_thread(error: &std::io::Error) -> StoreError {
    StoreError::Open(format!("no thread for the start: {error}"))
}

fn damaged(address: LogAddress, what: &str) -> StoreError {
    let (segment, offset) = (address.segment(), address.offset_bytes());
    StoreError::Open(format!("damage in segment {segment} at offset {offset}: {what}; run `evenkeel check`"))
}

fn damaged_checkpoint(name: &str, what: &str) -> StoreError {
    StoreError::Open(format!(
        "damage in {name} {what}; segments were given back since the first record, and those that are left do not tell what \
         was deleted: `evenkeel check DIR --salvage OUT` brings back what is readable"
    ))
}

/// Why a folder is not served.
pub(super) fn open_error(error: &JournalError) -> StoreError {
    let kept =
        if matches!(error, JournalError::Failed { .. }) { "; what the folder holds is kept" } else { "" };
    StoreError::Open(format!("not started: {error}{kept}"))
}

/// Whether the segments hold every record since the first: then they tell all that a checkpoint does.
fn is_complete(segments: &[SegmentInfo]) -> bool {
    let mut next = Lsn(1);
    segments.iter().all(|info| {
        let follows = info.first_lsn == next;
        next = Lsn(info.last_lsn.0 + 1);
        follows
    })
}

/// Decoded blocks that wait for the thread that takes them in: 0.5 MB each.
const BLOCKS_WAITING_MAX: usize = 4;
/// Records handed out at once, of about 100 bytes each.
const BATCH_RECORDS: usize = 4_096;
/// Batches that wait for each thread that replays.
const BATCHES_WAITING_MAX: usize = 4;
/// Threads that replay: beyond this the reader is what they wait for.
const REPLAY_THREADS_MAX: usize = 4;
