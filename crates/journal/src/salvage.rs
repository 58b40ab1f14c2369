//! `evenkeel check --salvage OUT`: copies every whole group that still verifies into a new folder.
//!
//! Invariants
//!   1. The damaged folder is not changed.
//!   2. Seqs, keyspaces and expiries are kept, flags too (but MOVED, where the callback says so), order is kept; a group is
//!      copied whole or not at all.
//!   3. The copy has the same identity and a clean stop; lsns and addresses are new, so it has no checkpoint.
//!   4. A damaged manifest decides nothing: the segment files themselves do (`rebuilt`), and what that assumes is reported.
//!
//! Behind damage the walk goes on at the next batch header that verifies. What was lost may have been a removal, so
//! an older value may be back: the report says how much was skipped. Which records are of no use any more
//! (a checkpoint may cover their removal) only the store knows: its callback decides.

mod rebuilt;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use clock::Clock;
use vfs::{OpenOptions, Vfs};

use crate::admission::{Class, Credits, footprint};
use crate::error::{JournalError, Refusal};
use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BATCH_MAGIC, BatchHeader};
use crate::format::manifest_entry::Checkpoint;
use crate::format::record::{RECORD_HEADER_SIZE_BYTES, RecordHeader};
use crate::format::segment_header::Identity;
use crate::format::{ALIGN_BYTES, SEGMENT_HEADER_SIZE_BYTES, Salt, crc32c};
use crate::journal::Journal;
use crate::manifest::{self, Facts, State};
use crate::options::Content;
use crate::options::{Options, SyncMode};
use crate::recovery::found::unheard_of;
use crate::recovery::lock;
use crate::scan::RecordView;
use crate::segment::read_to;
use crate::shared::Hooks;
use crate::thread::Driver;
use crate::types::{Draft, LogAddress, Lsn, SegmentId, record_flags};

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is left out.
    No,
    /// It is copied.
    AsItIs,
    /// It is copied without its MOVED flag: what it is a copy of is not there any more.
    AsOriginal,
}

/// What [`salvage`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Records copied.
    pub records_copied: u64,
    /// Records that the callback did not want.
    pub records_unwanted: u64,
    /// Records that were there, as the lsns of those before and behind them prove, and cannot be read. What lay at the end of
    /// the open segment nothing proves.
    pub records_lost: u64,
    /// Places where something did not verify and the walk looked for the next batch.
    pub gaps: u64,
    /// Bytes skipped in them.
    pub bytes_skipped: u64,
    /// Segments whose file could not be read at all.
    pub segments_lost: u64,
    /// What was assumed in place of a manifest that does not verify, a sentence each; empty with a good one.
    pub assumed: Vec<String>,
    /// Without a manifest: first and last lsn of what is in no file. Below the checkpoint that was given back, or lost.
    pub missing: Vec<(Lsn, Lsn)>,
}

/// What the manifest of a folder says to whom salvages it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stated {
    /// It verifies.
    Checkpoint {
        /// The folder's identity.
        identity: Identity,
        /// The checkpoint that it names.
        checkpoint: Option<Checkpoint>,
    },
    /// It does not verify, or is gone.
    Nothing {
        /// The identity, as segment headers state it.
        identity: Identity,
        /// What is wrong.
        why: String,
    },
}

/// Reads what the manifest in `dir` says of the checkpoint.
///
/// # Errors
/// [`JournalError`]: no folder, nothing in it that verifies, a newer version, or a failed read.
pub fn stated(vfs: &dyn Vfs, dir: &Path, content: &Content) -> Result<Stated, JournalError> {
    Ok(match found(vfs, dir)? {
        Found::Manifest(state) => {
            state.refuse_newer(dir, content)?;
            Stated::Checkpoint { identity: state.identity, checkpoint: state.checkpoint }
        }
        Found::Nothing { identity, why } => Stated::Nothing { identity, why },
    })
}

/// The manifest of a folder, or what stands in for it.
enum Found {
    Manifest(Box<State>),
    Nothing { identity: Identity, why: String },
}

fn found(vfs: &dyn Vfs, dir: &Path) -> Result<Found, JournalError> {
    let nothing = |what: String| JournalError::Invalid(format!("{}: {what}", dir.display()));
    vfs.list(dir).map_err(|error| nothing(error.to_string()))?;
    let why = match manifest::read(vfs, dir) {
        Ok(Some(state)) => return Ok(Found::Manifest(Box::new(state))),
        Ok(None) if rebuilt::files(vfs, dir)?.is_empty() => {
            return Err(nothing(format!("no data folder: it has no {}", manifest::MANIFEST_NAME)));
        }
        Ok(None) => "it is missing".to_owned(),
        Err(JournalError::Damaged { offset, what, .. }) => format!("at offset {offset}: {what}"),
        // Each start of a newer version makes segment files of that version: `identity` refuses those.
        Err(JournalError::Newer { reader_version_min, .. }) => {
            format!("it asks for a reader of version {reader_version_min}, and no segment file does")
        }
        Err(error) => return Err(error),
    };
    Ok(Found::Nothing { identity: rebuilt::identity(vfs, dir)?, why })
}

/// Copies what still verifies in `dir` to a new folder `out`; `wanted` decides for each record.
///
/// # Errors
/// [`JournalError`]: locked, nothing that verifies, `out` not empty, or a failed read or write.
pub fn salvage(
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
    dir: &Path,
    out: &Path,
    options: &Options,
    wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
) -> Result<SalvageReport, JournalError> {
    found(&**vfs, dir)?; // before the lock's file is made: there may be no folder
    let _lock = lock(&**vfs, dir)?;
    let mut report = SalvageReport::default();
    let (identity, segments) = match found(&**vfs, dir)? {
        Found::Manifest(state) => (state.identity, segments_of(&**vfs, dir, &state)?),
        Found::Nothing { identity, why } => {
            let rebuilt = rebuilt::rebuild(&**vfs, dir, identity.folder, &why)?;
            (report.assumed, report.missing) = (rebuilt.assumed, rebuilt.missing);
            (identity, rebuilt.segments)
        }
    };
    let options = Options { identity: Some(identity), sync: SyncMode::Never, ..options.clone() };
    let recovery = Journal::open(Arc::clone(vfs), Arc::clone(clock), out, options)?;
    if recovery.next_lsn() != Lsn(1) {
        return Err(JournalError::Invalid(format!("{} holds a journal already", out.display())));
    }
    let (journal, driver) = recovery.start_manual(Hooks::default())?;
    let mut copier = Copier { journal, driver, report };
    for (segment, facts) in &segments {
        let salt = Salt::new(identity.folder, *segment);
        copier.segment(&**vfs, dir, (*segment, salt), facts, wanted)?;
    }
    copier.finish()
}

/// The manifest's segments, and those that it lost the entries of but whose files are there.
fn segments_of(vfs: &dyn Vfs, dir: &Path, state: &State) -> Result<BTreeMap<SegmentId, Facts>, JournalError> {
    let mut segments = state.segments.clone();
    for (file, segment) in unheard_of(vfs, dir, state)? {
        let facts = Facts { file, size_bytes: u64::MAX, first_lsn: Lsn(0), sealed: None, footer: None };
        segments.insert(segment, facts);
    }
    Ok(segments)
}

struct Copier {
    journal: Arc<Journal>,
    driver: Driver,
    report: SalvageReport,
}

impl Copier {
    fn segment(
        &mut self,
        vfs: &dyn Vfs,
        dir: &Path,
        (segment, salt): (SegmentId, Salt),
        facts: &Facts,
        wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
    ) -> Result<(), JournalError> {
        let end = facts.sealed.map_or(facts.size_bytes, |sealed| sealed.end_bytes);
        let path = dir.join(facts.file.file_name());
        let Ok(bytes) = vfs.open(&path, OpenOptions::default()).and_then(|file| read_to(&*file, end)) else {
            self.report.segments_lost += 1;
            self.report.records_lost += facts.sealed.map_or(0, |sealed| sealed.records.into());
            return Ok(());
        };
        let (mut at, mut skipped) = (SEGMENT_HEADER_SIZE_BYTES as usize, 0);
        // a segment that only its file tells of begins with what it begins with
        let mut next = Some(facts.first_lsn).filter(|lsn| *lsn > Lsn(0));
        while at + BATCH_HEADER_SIZE_BYTES <= bytes.len() {
            let Some(header) = batch_at(&bytes, at, segment, salt) else {
                skipped += ALIGN_BYTES;
                at += ALIGN_BYTES as usize;
                continue;
            };
            // An unused end is no gap; only what a later batch proves to have been one is counted.
            self.report.gaps += u64::from(skipped > 0);
            self.report.bytes_skipped += std::mem::take(&mut skipped);
            let body = at + BATCH_HEADER_SIZE_BYTES..at + header.total_bytes() as usize;
            self.lose(next, header.first_lsn);
            next = Some(self.batch(&bytes[body], at, (segment, salt), header.first_lsn, wanted)?);
            at += header.total_bytes() as usize;
        }
        if let Some(sealed) = facts.sealed {
            self.lose(next, Lsn(sealed.last_lsn.0 + 1));
        }
        Ok(())
    }

    /// Between two batches records `from` (if that is known) to `until` are missing.
    fn lose(&mut self, from: Option<Lsn>, until: Lsn) {
        self.report.records_lost += from.map_or(0, |from| until.0.saturating_sub(from.0));
    }

    /// Copies the groups of a batch; returns the lsn behind the last of its records that verify.
    fn batch(
        &mut self,
        body: &[u8],
        batch_at: usize,
        (segment, salt): (SegmentId, Salt),
        first_lsn: Lsn,
        wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
    ) -> Result<Lsn, JournalError> {
        let (mut at, mut lsn, mut group) = (0, first_lsn, Vec::new());
        while let Some(header) = body.get(at..).and_then(|rest| RecordHeader::decode(rest, salt)) {
            let start = at + RECORD_HEADER_SIZE_BYTES;
            let Some(payload) = body.get(start..start + header.payload_len as usize) else { break };
            let address = LogAddress::new(segment, (batch_at + BATCH_HEADER_SIZE_BYTES + at) as u64);
            match wanted(&RecordView { lsn, address, header, payload }) {
                Keep::AsItIs => group.push((header, payload)),
                Keep::AsOriginal => {
                    let flags = header.flags & !record_flags::MOVED;
                    group.push((RecordHeader { flags, ..header }, payload));
                }
                Keep::No => self.report.records_unwanted += 1,
            }
            if header.flags & record_flags::GROUP_END != 0 {
                self.group(&group)?;
                group.clear();
            }
            at += header.stored_bytes() as usize;
            lsn.0 += 1;
        }
        // a group whose end is missing is no group
        self.report.records_lost += group.len() as u64;
        Ok(lsn)
    }

    fn group(&mut self, group: &[(RecordHeader, &[u8])]) -> Result<(), JournalError> {
        if group.is_empty() {
            return Ok(());
        }
        let parts: Vec<[&[u8]; 1]> = group.iter().map(|(_, payload)| [*payload]).collect();
        let drafts: Vec<Draft<'_>> = group
            .iter()
            .zip(&parts)
            .map(|((header, _), parts)| {
                let mut draft = Draft::new(header.kind, header.keyspace, parts).expiring(header.expiry_ms);
                draft.seq = Some(header.seq);
                draft.flags = header.flags;
                draft
            })
            .collect();
        let credits = self.credits(footprint(group.iter().map(|(header, _)| header.payload_len)))?;
        self.journal.append(credits, &drafts, &mut Vec::new());
        self.report.records_copied += group.len() as u64;
        Ok(())
    }

    /// Reserves, doing the journal's own work when it is busy.
    fn credits(&mut self, bytes: u64) -> Result<Credits, JournalError> {
        loop {
            match self.journal.reserve(bytes, Class::Reclaim) {
                Ok(credits) => return Ok(credits),
                Err(Refusal::Busy { .. }) => {
                    if self.driver.commit() == 0 && !self.driver.prepare_once() {
                        return Err(JournalError::Invalid("the salvage folder takes no more".into()));
                    }
                }
                Err(refusal) => return Err(JournalError::Invalid(refusal.to_string())),
            }
        }
    }

    fn finish(mut self) -> Result<SalvageReport, JournalError> {
        self.driver.commit();
        let appended = Lsn(self.journal.next_lsn().0 - 1);
        self.journal.close();
        self.driver.seal();
        if self.journal.durable_lsn() < appended {
            return Err(JournalError::Invalid("writing the salvage folder failed".into()));
        }
        Ok(self.report)
    }
}

/// The batch at `at`, if all of it verifies.
fn batch_at(bytes: &[u8], at: usize, segment: SegmentId, salt: Salt) -> Option<BatchHeader> {
    if bytes[at..at + BATCH_MAGIC.len()] != BATCH_MAGIC {
        return None;
    }
    let (header, _) = BatchHeader::decode(&bytes[at..], segment, salt)?;
    let body = bytes.get(at + BATCH_HEADER_SIZE_BYTES..at + header.total_bytes() as usize)?;
    (crc32c(body) == header.body_crc).then_some(header)
}
