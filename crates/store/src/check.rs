//! `evenkeel check` as far as the store can judge: what the journal reports, and whether the checkpoint's content holds.
//!
//! Invariants
//!   1. Nothing in the folder is changed.
//!   2. A checkpoint is good if all of it verifies, it belongs to this folder and to the lsn that the manifest states, and
//!      each record that it points at for a database in use, or for a prepared transaction, is there, and of the key that it says.
//!   3. If the checkpoint is good: each large collection has its leaves, which are what it counts, in its order ([`collections`]), and
//!      each leaf belongs to one.
//!
//! Memory: twenty bytes for each record of the log, about a hundred for each leaf of a large collection, and twenty-four for each change of
//! one in the log. Time: all of the log is read once, then each leaf once more, where it lies.

pub(crate) mod collections;
pub(crate) mod leaves;
pub(crate) mod nodes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use journal::{CheckReport, Damage, JournalError, Keyspace, LogAddress, Lsn, RecordView, Seq, Stated};
use vfs::Vfs;

use crate::error::StoreError;
use crate::hash::{KeyHash, KeyHasher};
use crate::index::delta::chain;
use crate::keyspaces::{KEPT_KEYSPACE, PREPARED_KEYSPACE, SWEPT_KEYSPACE, leaves_of};
use crate::log::checkpoint::{Area, Block, Entry, Header};
use crate::log::checkpoint_file::{self, LoadError};
use crate::record::{self, MAPPING, Payload};
use crate::sought::{mark, marks_of};
use collections::Faults;
use leaves::{Leaves, Named};
use nodes::{Found, Reader};

/// Large collections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// Keys that have leaves.
    pub roots: u64,
    /// Their leaves and other nodes.
    pub leaves: u64,
}

/// What [`check`] found.
#[derive(Debug)]
pub struct Checked {
    /// What the journal says, with the checkpoint's damage added.
    pub journal: CheckReport,
    /// Bytes of keys and values that verify.
    pub payload_bytes: u64,
    /// Keys that the checkpoint names, if it is whole.
    pub checkpoint_keys: Option<u64>,
    /// Large collections, if everything holds.
    pub collections: Option<Collections>,
    /// How much of the damage is what was found wrong with them.
    pub collection_faults: u64,
}

/// Reads all of a stopped server's folder.
///
/// # Errors
/// [`StoreError::Unchecked`] when there is nothing to check, or reading fails; [`StoreError::Open`] when the manifest is damaged. Other damage is in
/// the report instead.
pub fn check(vfs: &dyn Vfs, dir: &Path) -> Result<Checked, StoreError> {
    let stated = journal::stated(vfs, dir, &record::CONTENT).map_err(|error| open_error(&error))?;
    let (identity, from) = match stated {
        Stated::Checkpoint { identity, checkpoint } => (identity, checkpoint.map_or(Lsn(0), |it| it.lsn)),
        Stated::Nothing { identity, .. } => (identity, Lsn(0)),
    };
    let mut log = Log::new(KeyHasher::new(&identity.hash_key.to_le_bytes(), identity.hash_bits), from);
    let (mut journal, mut folder) =
        journal::check_and_hold(vfs, dir, &record::CONTENT, &mut |view| log.take(&view))
            .map_err(|error| open_error(&error))?;
    add_damage(&mut journal, std::mem::take(&mut log.strange));
    let (mut checkpoint_keys, mut named) = (None, log.leaves.begin_naming());
    let mut used = log.mapping.as_ref().map(|(_, mapping)| mapping.iter().copied().collect());
    let mut is_known = true;
    if let Some(checkpoint) = journal.checkpoint.clone() {
        let mut content = Content::new(&log, &journal, &mut named);
        let loaded = checkpoint_file::load(vfs, dir, &checkpoint.name, &mut |_, block| content.take(block));
        let faults = content.faults(loaded, checkpoint.lsn.0);
        is_known = faults.is_empty();
        checkpoint_keys = is_known.then_some(content.keys);
        used = Some(content.used);
        let damage = |(offset, what)| Damage { file: checkpoint.name.clone(), offset, what };
        journal.damage.extend(faults.into_iter().map(damage));
    }
    let (mut collections, mut collection_faults) = (None, 0);
    if is_known {
        let collected = log.leaves.settle(&named, used.as_ref());
        let reader = Reader::new(|address, len, payload| folder.read(address, len, payload));
        let mut found = Found { collected, reader };
        let (counts, faults) = judge(&mut found, &log.hasher);
        collections = Some(counts).filter(|_| journal.damage.is_empty() && faults.is_empty());
        collection_faults = faults.len() as u64;
        add_damage(&mut journal, faults);
    }
    let payload_bytes = log.payload_bytes;
    Ok(Checked { journal, payload_bytes, checkpoint_keys, collections, collection_faults })
}

/// Counts large collections, and says what is wrong with them and where.
fn judge(found: &mut Found<'_>, hasher: &KeyHasher) -> (Collections, Vec<(LogAddress, String)>) {
    let mut faults = Faults::default();
    let loose = found.collected.loose.iter().filter(|loose| !loose.is_noted);
    let first = loose.clone().map(|loose| loose.node.record.address).min();
    if let Some(first) = first {
        faults.add(first, format!("{} leaves belong to no collection", loose.count()));
    }
    collections::judge(found, hasher, &mut faults);
    let counts =
        Collections { roots: found.collected.roots.len() as u64, leaves: found.collected.nodes.len() };
    let Faults { mut told, more } = faults;
    if let (1.., Some((last, _))) = (more, told.last()) {
        told.push((*last, format!("{more} more faults of large collections")));
    }
    (counts, told)
}

/// Reports what is wrong at addresses of the log by the files.
fn add_damage(journal: &mut CheckReport, faults: Vec<(LogAddress, String)>) {
    for (address, what) in faults {
        let segments = journal.segments.iter();
        let file = segments.map(|found| &found.info).find(|info| info.segment == address.segment());
        let file =
            file.map_or_else(|| format!("segment {}", address.segment()), |info| info.file.file_name());
        journal.damage.push(Damage { file, offset: address.offset_bytes(), what });
    }
}

/// What of the log the checkpoint is compared with.
struct Log {
    hasher: KeyHasher,
    /// LogAddress and seq of all records that verify, ascending.
    addresses: Vec<(LogAddress, Seq)>,
    /// Whose each of them is (`sought::mark`), of one with parts the first.
    marks: Vec<u32>,
    /// Whose the further parts of records are.
    further: HashSet<(LogAddress, u32)>,
    /// Of deltas, and of parts by whose they are: what they may lie on (`Delta::since`).
    since: BTreeMap<(LogAddress, u32), Seq>,
    payload_bytes: u64,
    /// Records that are none of the store's, the first few.
    strange: Vec<(LogAddress, String)>,
    /// Seq and keyspaces of the newest mapping.
    mapping: Option<(Seq, Vec<Keyspace>)>,
    leaves: Leaves,
}

impl Log {
    fn new(hasher: KeyHasher, from: Lsn) -> Self {
        Self {
            hasher,
            addresses: Vec::new(),
            marks: Vec::new(),
            further: HashSet::new(),
            since: BTreeMap::new(),
            payload_bytes: 0,
            strange: Vec::new(),
            mapping: None,
            leaves: Leaves::new(from),
        }
    }

    /// Which of the records lies at `address`.
    fn at(&self, address: LogAddress) -> Option<usize> {
        self.addresses.binary_search_by_key(&address, |(address, _)| *address).ok()
    }

    /// The seq of the record at `address`.
    fn seq(&self, address: LogAddress) -> Option<Seq> {
        Some(self.addresses[self.at(address)?].1)
    }

    fn take(&mut self, view: &RecordView<'_>) {
        self.addresses.push((view.address, view.header.seq));
        let marks = marks_of(view, &self.hasher);
        self.marks.push(marks[0]);
        self.further.extend(marks[1..].iter().map(|whose| (view.address, *whose)));
        self.leaves.take(view, &self.hasher);
        for (whose, since) in marks.into_iter().zip(record::each_since(view.header.kind, view.payload)) {
            if since != Seq::NONE {
                self.since.insert((view.address, whose), since);
            }
        }
        self.payload_bytes += view.payload.len() as u64;
        if let Err(what) = record::check(view.header.kind, Some(view.payload))
            && self.strange.len() < STRANGE_MAX
        {
            self.strange.push((view.address, what.to_string()));
        }
        let seq = view.header.seq;
        if view.header.kind == MAPPING
            && self.mapping.as_ref().is_none_or(|(newest, _)| *newest < seq)
            && let Some(Payload::Mapping { keyspaces, .. }) = record::decode(MAPPING, view.payload)
        {
            self.mapping = Some((seq, record::mapping_ids(keyspaces)));
        }
    }
}

/// Strange records that are reported one by one.
const STRANGE_MAX: usize = 100;

/// A checkpoint as it is read.
struct Content<'a> {
    log: &'a Log,
    folder: u128,
    /// Segments in which records are known to be lost: reported there.
    hurt: BTreeSet<u32>,
    used: BTreeSet<Keyspace>,
    /// What it has named of large collections.
    named: &'a mut Named,
    keys: u64,
    /// Records that are not there, and the first of them.
    missing: u64,
    first_missing: LogAddress,
    /// Records of other keys than it says, and the address of the first of them.
    foreign: u64,
    first_foreign: LogAddress,
    /// Keys whose deltas are of another state of theirs, and the address of the first of them.
    broken: u64,
    first_broken: LogAddress,
}

impl<'a> Content<'a> {
    fn new(log: &'a Log, journal: &CheckReport, named: &'a mut Named) -> Self {
        let hurt = journal.segments.iter().filter(|segment| segment.records_lost > 0);
        Self {
            log,
            folder: journal.identity.folder,
            hurt: hurt.map(|segment| segment.info.segment.0).collect(),
            used: BTreeSet::new(),
            named,
            keys: 0,
            missing: 0,
            first_missing: LogAddress::default(),
            foreign: 0,
            first_foreign: LogAddress::default(),
            broken: 0,
            first_broken: LogAddress::default(),
        }
    }

    fn take(&mut self, block: Block) {
        match block {
            Block::Mapping { seq, mapping, .. } => {
                let newer = self.log.mapping.as_ref().filter(|(stated, _)| *stated > seq);
                self.used = newer.map_or(mapping, |(_, mapping)| mapping.clone()).into_iter().collect();
                let leaves: Vec<_> = self.used.iter().map(|id| leaves_of(*id)).collect();
                self.used.extend(leaves);
                self.used.extend([PREPARED_KEYSPACE, KEPT_KEYSPACE, SWEPT_KEYSPACE]);
            }
            Block::Entries(area, entries) => entries.iter().for_each(|entry| self.entry(area, entry)),
            _ => {}
        }
    }

    fn entry(&mut self, area: Area, entry: &Entry) {
        self.keys += 1;
        if !self.used.contains(&area.keyspace) {
            return;
        }
        self.named.name(entry.address);
        let hash = KeyHash::from_parts(area.stripe.into(), entry.bits, entry.tag);
        let whose = mark(area.keyspace, hash);
        if !self.is_chained(entry, whose) {
            self.first_broken = if self.broken == 0 { entry.address } else { self.first_broken };
            self.broken += 1;
        }
        for address in std::iter::once(entry.address).chain(entry.deltas.iter().map(|delta| delta.address)) {
            let segment = address.segment().0;
            match self.log.at(address) {
                Some(at) if self.log.marks[at] != whose && !self.log.further.contains(&(address, whose)) => {
                    self.first_foreign = if self.foreign == 0 { address } else { self.first_foreign };
                    self.foreign += 1;
                }
                Some(_) => {}
                None if self.hurt.contains(&segment) => {}
                None => {
                    self.first_missing = if self.missing == 0 { address } else { self.first_missing };
                    self.missing += 1;
                }
            }
        }
    }

    /// Whether the deltas of `entry` follow its base and each other, as far as they are there.
    fn is_chained(&self, entry: &Entry, whose: u32) -> bool {
        let Some(seq) = self.log.seq(entry.address) else { return true };
        let mut deltas = entry.deltas.clone();
        for delta in &mut deltas {
            match self.log.seq(delta.address) {
                None => return true,
                Some(seq) if seq != delta.seq => return false,
                Some(_) => {
                    let since = self.log.since.get(&(delta.address, whose));
                    delta.since = since.copied().unwrap_or(Seq::NONE);
                }
            }
        }
        chain(seq, &deltas).is_some()
    }

    /// Everything that is wrong with it: offset in its file, and what.
    fn faults(&self, loaded: Result<Header, LoadError>, lsn: u64) -> Vec<(u64, String)> {
        let header = match loaded {
            Ok(header) => header,
            Err(error) => return vec![(0, format!("the checkpoint cannot be read: {error}"))],
        };
        let mut faults = Vec::new();
        if header.folder != self.folder {
            faults.push((0, "the checkpoint belongs to another folder".to_owned()));
        }
        if header.lsn + 1 != lsn {
            let stated = header.lsn + 1;
            faults.push((0, format!("the manifest replays from lsn {lsn}, the checkpoint from {stated}")));
        }
        let what = |count| format!("the checkpoint points at {count} records that are not there");
        faults.extend(fault(what, self.missing, self.first_missing));
        let what =
            |count| format!("the checkpoint points at {count} records that are of other keys than it says");
        faults.extend(fault(what, self.foreign, self.first_foreign));
        let what = |count| format!("the deltas of {count} keys belong to another state of theirs");
        faults.extend(fault(what, self.broken, self.first_broken));
        faults
    }
}

/// What is wrong with `count` records, with the address of the first of them; nothing if there are none.
fn fault(what: impl Fn(u64) -> String, count: u64, first: LogAddress) -> Option<(u64, String)> {
    let at = format!("first at segment {} offset {}", first.segment(), first.offset_bytes());
    (count > 0).then(|| (0, format!("{}, {at}", what(count))))
}

/// Damage, or why nothing is known.
pub(crate) fn open_error(error: &JournalError) -> StoreError {
    match error {
        JournalError::Damaged { .. } | JournalError::UnknownRecord { .. } => {
            StoreError::Open(error.to_string())
        }
        _ => StoreError::Unchecked(error.to_string()),
    }
}
