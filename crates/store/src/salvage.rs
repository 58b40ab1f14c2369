//! What can still be read of a damaged folder, as a new folder that serves.
//!
//! The journal copies the groups that verify; this says which of their records still count. Below a checkpoint only what
//! it names is alive: a removal that it covers may have been cleaned away, so the removed value's record alone would
//! bring the value back. A checkpoint that does not verify decides nothing: then removed keys may come back, and the
//! report says so.
//!
//! Invariants
//!   1. The damaged folder is not changed; the new one has the same identity, so hashes and SHARED bits hold.
//!   2. A damaged manifest is not needed: the newest whole checkpoint file counts then, which is as true.
//!   3. Databases are mapped as the checkpoint says, unless a copied record says something newer.
//!   4. Large collections of which a part is lost are made anew of the rest ([`rebuild`]).

mod rebuild;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;

use clock::Clock;
use journal::{
    Choice, Class, Draft, Hooks, Identity, Journal, JournalError, Keep, Keyspace, LogAddress, RecordHeader,
    RecordView, SalvageReport, Seq, Stated, footprint, record_flags,
};
use vfs::Vfs;

use crate::check::open_error;
use crate::error::StoreError;
use crate::hash::{KeyHash, KeyHasher};
use crate::index::delta::{Delta, chain};
use crate::keyspaces::is_leaves;
use crate::log::checkpoint::Block;
use crate::log::checkpoint_file::{self, LoadError};
use crate::record::{self, CLOCK, MAPPING};
use crate::sought::{mark, marks_of};
use crate::time::ClockRecord;
pub use rebuild::Rebuilt;
use rebuild::Roots;

/// What [`salvage`] did.
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// What the journal copied and skipped.
    pub journal: SalvageReport,
    /// Keys whose deltas are of another state of theirs: they read as damaged.
    pub broken_chains: u64,
    /// Changes to parts of values that were left out, because the state that they changed is lost: such a key holds an older one.
    pub loose_deltas: u64,
    /// Records that verify and are none of this version's: a server would refuse a folder with them, so they were left out.
    pub strange: u64,
    /// Large collections of which a part was lost.
    pub rebuilt: Rebuilt,
    /// Set when the checkpoint could not say what was alive: removed keys may be back.
    pub without_checkpoint: Option<String>,
}

/// Copies everything that can be read and is alive in `dir` into a new folder `out`.
///
/// # Errors
/// [`StoreError::Unchecked`]: `dir` is in use or no data folder, `out` is not empty, or a read or write failed; [`StoreError::Open`].
pub fn salvage(
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
    dir: &Path,
    out: &Path,
) -> Result<Salvaged, StoreError> {
    let open_error = |error: JournalError| open_error(&error);
    let (mut alive, without_checkpoint) =
        match journal::stated(&**vfs, dir, &record::CONTENT).map_err(open_error)? {
            Stated::Checkpoint { checkpoint: None, .. } => (None, None),
            Stated::Checkpoint { checkpoint: Some(checkpoint), identity } => {
                match Alive::read(&**vfs, dir, &checkpoint.name, &identity) {
                    Ok((_, alive)) => (Some(alive), None),
                    Err(why) => (None, Some(why.to_string())),
                }
            }
            Stated::Nothing { identity, .. } => match newest_checkpoint(&**vfs, dir, &identity) {
                Ok(alive) => (Some(alive), None),
                Err(why) => (None, Some(why.to_string())),
            },
        };
    let covered = alive.as_ref().map_or(0, |alive| alive.lsn);
    let (mut mapping_seq, mut clock_seq, mut states) = (Seq::NONE, Seq::NONE, States::default());
    let (mut roots, mut strange) = (Roots::default(), 0);
    let mut wanted = |view: &RecordView<'_>| {
        if record::check(view.header.kind, Some(view.payload)).is_err() {
            strange += 1;
            return Keep::No;
        }
        roots.take(view);
        if view.header.kind == MAPPING {
            mapping_seq = mapping_seq.max(view.header.seq);
            return Keep::AsItIs;
        }
        if view.header.kind == CLOCK {
            clock_seq = clock_seq.max(view.header.seq);
            return Keep::AsItIs;
        }
        match (&mut alive, &without_checkpoint) {
            (Some(alive), _) => states.keep(view, alive.keep(view)),
            (None, None) => states.keep(view, Keep::AsItIs),
            // what a base or a part was copied from may be gone, and nothing says so: better an old key back than one lost
            (None, Some(_)) if may_be_alone(view.header.kind) => Keep::AsOriginal,
            (None, Some(_)) => Keep::AsItIs,
        }
    };
    let options = journal::Options { content: record::CONTENT, ..journal::Options::default() };
    let choice = Choice { wanted: &mut wanted, mends: costs_more };
    let mut copied = journal::salvage(vfs, clock, dir, out, &options, choice).map_err(open_error)?;
    copied.missing.retain(|(_, last)| last.0 >= covered);
    if let Some(alive) = &alive {
        let mapping = (alive.mapping_seq > mapping_seq).then(|| alive.mapping_record());
        let clocks = alive.clock.as_ref().filter(|(seq, _)| *seq > clock_seq);
        let clocks = clocks.map(|(seq, record)| (CLOCK, *seq, record::encode_clock(record)));
        let records: Vec<_> = mapping.into_iter().chain(clocks).collect();
        if !records.is_empty() {
            state(&records, vfs, clock, out)?;
        }
    }
    let broken_chains = alive.as_ref().map_or(0, Alive::broken_chains);
    let loose_deltas = states.loose;
    let rebuilt = rebuild::rebuild(vfs, clock, out, roots)?;
    copied.records_unwanted -= strange;
    Ok(Salvaged { journal: copied, broken_chains, loose_deltas, strange, rebuilt, without_checkpoint })
}

/// Whether the loss of a record costs more than itself: a root, leaf or node of a large collection.
fn costs_more(header: &RecordHeader) -> bool {
    is_leaves(header.keyspace) || record::is_root(header.kind)
}

/// Which states of long values were kept, to leave out what was made of others.
#[derive(Default)]
struct States {
    hasher: RandomState,
    /// Hash of keyspace and key of such values -> the newest effect of theirs that was kept.
    newest: HashMap<u64, Seq>,
    loose: u64,
}

impl States {
    /// `keep`, unless the record changes part of a value of which it is not known that it was as the record says.
    fn keep(&mut self, view: &RecordView<'_>, keep: Keep) -> Keep {
        let seq = view.header.seq;
        let Some(payload) = record::decode(view.header.kind, view.payload).filter(|_| keep != Keep::No)
        else {
            return keep;
        };
        let Some(key) = payload.key() else { return keep };
        let hash = self.hasher.hash_one((view.header.keyspace, key));
        if !record::is_delta(view.header.kind) {
            let is_moved = view.header.flags & record_flags::MOVED != 0;
            if takes_parts(view) {
                let newest = self.newest.entry(hash).or_insert(seq);
                *newest = if is_moved { seq.max(*newest) } else { seq };
            } else {
                self.newest.remove(&hash);
            }
            return keep;
        }
        let Some(newest) = self.newest.get_mut(&hash) else { return keep };
        // what the checkpoint names lies in any order, and all of it counts
        if keep == Keep::AsItIs && record::since(view.header.kind, view.payload) > *newest {
            self.loose += 1;
            return Keep::No;
        }
        *newest = seq.max(*newest);
        keep
    }
}

/// Whether parts of the value in a record may have been changed by themselves.
fn takes_parts(view: &RecordView<'_>) -> bool {
    record::base(view.header.kind).is_some_and(|base| view.payload.len() as u64 >= base.delta_bytes_min)
}

/// What a checkpoint says is alive.
struct Alive {
    hasher: KeyHasher,
    /// Records from this lsn on came after it.
    lsn: u64,
    /// Where it lies, and whose it is (`sought::mark`).
    addresses: HashMap<LogAddress, u32>,
    /// Bases with deltas, and the seqs of all these records, as far as they were met.
    chains: Vec<(LogAddress, Vec<Delta>)>,
    seqs: HashMap<LogAddress, Seq>,
    mapping_seq: Seq,
    next_keyspace: Keyspace,
    mapping: Vec<Keyspace>,
    clock: Option<(Seq, ClockRecord)>,
}

/// Why there is no checkpoint to go by.
#[derive(Debug, thiserror::Error)]
enum CheckpointFault {
    #[error("{0}")]
    Unlisted(io::Error),
    #[error("there is none")]
    Missing,
    #[error("{0} belongs to another folder")]
    Foreign(String),
    #[error("{name} {error}")]
    Unread { name: String, error: LoadError },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    All(Vec<CheckpointFault>),
}

/// The newest checkpoint file that is whole and of this folder. A file under its final name is complete and true: the
/// manifest's entry only says from when on.
fn newest_checkpoint(vfs: &dyn Vfs, dir: &Path, identity: &Identity) -> Result<Alive, CheckpointFault> {
    let mut faults = Vec::new();
    for name in checkpoint_file::names(vfs, dir).map_err(CheckpointFault::Unlisted)?.iter().rev() {
        match Alive::read(vfs, dir, name, identity) {
            Ok((of, alive)) if of == identity.folder => return Ok(alive),
            Ok(_) => faults.push(CheckpointFault::Foreign(name.clone())),
            Err(why) => faults.push(why),
        }
    }
    Err(if faults.is_empty() { CheckpointFault::Missing } else { CheckpointFault::All(faults) })
}

/// Whether a record of `kind` counts though what lies around it is gone; a changed expiry of another state does not.
fn may_be_alone(kind: u8) -> bool {
    record::base(kind).is_some() || record::changes_value(kind) || kind == record::CHANGES
}

impl Alive {
    fn new(identity: &Identity) -> Self {
        Self {
            hasher: KeyHasher::new(&identity.hash_key.to_le_bytes(), identity.hash_bits),
            lsn: 0,
            addresses: HashMap::new(),
            chains: Vec::new(),
            seqs: HashMap::new(),
            mapping_seq: Seq::NONE,
            next_keyspace: Keyspace::NONE,
            mapping: Vec::new(),
            clock: None,
        }
    }

    /// Reads the checkpoint file `name`; also returns whose folder it is of.
    fn read(
        vfs: &dyn Vfs,
        dir: &Path,
        name: &str,
        identity: &Identity,
    ) -> Result<(u128, Self), CheckpointFault> {
        let mut alive = Self::new(identity);
        let header = checkpoint_file::load(vfs, dir, name, &mut |_, block| alive.take(block))
            .map_err(|error| CheckpointFault::Unread { name: name.to_owned(), error })?;
        alive.lsn = header.lsn + 1;
        Ok((header.folder, alive))
    }

    fn take(&mut self, block: Block) {
        match block {
            Block::Mapping { seq, next_keyspace, mapping } => {
                (self.mapping_seq, self.next_keyspace, self.mapping) = (seq, next_keyspace, mapping);
            }
            Block::Entries(area, entries) => {
                for entry in entries {
                    let hash = KeyHash::from_parts(area.stripe.into(), entry.bits, entry.tag);
                    let whose = mark(area.keyspace, hash);
                    self.addresses.insert(entry.address, whose);
                    self.addresses.extend(entry.deltas.iter().map(|delta| (delta.address, whose)));
                    // those of leaves are looked at when all is there (`rebuild`)
                    if !entry.deltas.is_empty() && !is_leaves(area.keyspace) {
                        self.seqs.insert(entry.address, Seq::NONE);
                        self.chains.push((entry.address, entry.deltas));
                    }
                }
            }
            Block::Clock(seq, record) => self.clock = Some((seq, record)),
            _ => {}
        }
    }

    /// What the checkpoint names is alive whatever its source: a copy that cleaning made has none any more, and replay
    /// lets copies create nothing. Other copies change something that the checkpoint names, or are dead. A record of another
    /// key at an address that it names was put there by the disk.
    fn keep(&mut self, view: &RecordView<'_>) -> Keep {
        let whose = self.addresses.get(&view.address);
        let is_named = whose.is_some_and(|whose| marks_of(view, &self.hasher).contains(whose));
        if let Some(seq) = self.seqs.get_mut(&view.address) {
            *seq = view.header.seq;
        }
        match (is_named, view.lsn.0 >= self.lsn) {
            (true, _) => Keep::AsOriginal,
            (false, true) => Keep::AsItIs,
            (false, false) => Keep::No,
        }
    }

    /// How many of the bases that were met have deltas of another state.
    fn broken_chains(&self) -> u64 {
        let is_broken = |(base, deltas): &&(LogAddress, Vec<Delta>)| match self.seqs.get(base) {
            Some(&Seq::NONE) | None => false,
            Some(seq) => chain(*seq, deltas).is_none(),
        };
        self.chains.iter().filter(is_broken).count() as u64
    }

    /// Kind, seq and payload of the mapping.
    fn mapping_record(&self) -> (u8, Seq, Vec<u8>) {
        (MAPPING, self.mapping_seq, record::encode_mapping(self.next_keyspace, &self.mapping))
    }
}

/// Appends `records` of kind, seq and payload to the journal in `out`: those that stated the same are not there any more.
fn state(
    records: &[(u8, Seq, Vec<u8>)],
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
    out: &Path,
) -> Result<(), StoreError> {
    let failed = |error: &dyn std::fmt::Display| StoreError::Open(error.to_string());
    let options = journal::Options { content: record::CONTENT, ..journal::Options::default() };
    let recovery =
        Journal::open(Arc::clone(vfs), Arc::clone(clock), out, options).map_err(|error| failed(&error))?;
    let (journal, mut driver) = recovery.start_manual(Hooks::default()).map_err(|error| failed(&error))?;
    for (kind, seq, body) in records {
        let parts: [&[u8]; 1] = [body];
        let mut draft = Draft::new(*kind, Keyspace::NONE, &parts);
        draft.seq = Some(*seq);
        let bytes = footprint([u32::try_from(body.len()).unwrap_or(u32::MAX)]);
        let credits = journal.reserve(bytes, Class::Reclaim).map_err(|error| failed(&error))?;
        journal.append(credits, &[draft], &mut Vec::new());
    }
    driver.commit();
    journal.close();
    driver.seal();
    Ok(())
}
