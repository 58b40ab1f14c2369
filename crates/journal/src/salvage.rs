//! `evenkeel check --salvage OUT`: copies every whole group that still verifies into a new folder.
//!
//! Invariants
//!   1. The damaged folder is not changed.
//!   2. Seqs, keyspaces and expiries are kept, flags too (but MOVED, where the callback says so), order is kept; a group is
//!      copied whole or not at all.
//!   3. The copy has the same identity and a clean stop; lsns and places are new, so it has no checkpoint.
//!
//! Behind damage the walk goes on at the next batch header that verifies. What was lost may have been a removal, so
//! an older value may be back: the report says how much was skipped. Which records are of no use any more
//! (a checkpoint may cover their removal) only the store knows: its callback decides.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use clock::Clock;
use vfs::{OpenOptions, Vfs};

use crate::admission::{Class, Credits, footprint};
use crate::error::{JournalError, Refusal};
use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BATCH_MAGIC, BatchHeader};
use crate::format::record::{RECORD_HEADER_SIZE_BYTES, RecordHeader};
use crate::format::{ALIGN_BYTES, SEGMENT_HEADER_SIZE_BYTES, Salt, crc32c};
use crate::journal::Journal;
use crate::manifest::{self, Facts, State};
use crate::options::{Options, SyncMode};
use crate::recovery::found::unheard_of;
use crate::recovery::lock;
use crate::scan::RecordView;
use crate::segment::read_to;
use crate::shared::Hooks;
use crate::thread::Driver;
use crate::types::{Draft, Lsn, Place, SegmentId, record_flags};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Records copied.
    pub records_copied: u64,
    /// Records that the callback did not want.
    pub records_unwanted: u64,
    /// Places where something did not verify and the walk looked for the next batch.
    pub gaps: u64,
    /// Bytes skipped in them.
    pub bytes_skipped: u64,
    /// Segments whose file could not be read at all.
    pub segments_lost: u64,
}

/// Copies what still verifies in `dir` to a new folder `out`; `wanted` decides for each record.
///
/// # Errors
/// [`JournalError`]: locked, no manifest that verifies, `out` not empty, or a failed read or write.
pub fn salvage(
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
    dir: &Path,
    out: &Path,
    options: &Options,
    wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
) -> Result<SalvageReport, JournalError> {
    if let Err(error) = vfs.list(dir) {
        return Err(JournalError::Invalid(format!("{}: {error}", dir.display())));
    }
    let _lock = lock(&**vfs, dir)?;
    let state = manifest::read(&**vfs, dir)?
        .ok_or_else(|| JournalError::Invalid(format!("{} holds no journal", dir.display())))?;
    let options = Options { identity: Some(state.identity), sync: SyncMode::Never, ..options.clone() };
    let recovery = Journal::open(Arc::clone(vfs), Arc::clone(clock), out, options)?;
    if recovery.next_lsn() != Lsn(1) {
        return Err(JournalError::Invalid(format!("{} holds a journal already", out.display())));
    }
    let (journal, driver) = recovery.start_manual(Hooks::default())?;
    let mut copier = Copier { journal, driver, report: SalvageReport::default() };
    for (segment, facts) in &segments_of(&**vfs, dir, &state)? {
        let salt = Salt::new(state.identity.folder, *segment);
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
            return Ok(());
        };
        let (mut at, mut gap) = (SEGMENT_HEADER_SIZE_BYTES as usize, false);
        while at + BATCH_HEADER_SIZE_BYTES <= bytes.len() {
            let Some(header) = batch_at(&bytes, at, segment, salt) else {
                // An unused end is no gap; only what a later batch proves to have been one is counted.
                gap = true;
                self.report.bytes_skipped += ALIGN_BYTES;
                at += ALIGN_BYTES as usize;
                continue;
            };
            self.report.gaps += u64::from(std::mem::take(&mut gap));
            let body = at + BATCH_HEADER_SIZE_BYTES..at + header.total_bytes() as usize;
            self.batch(&bytes[body], at, (segment, salt), header.first_lsn, wanted)?;
            at += header.total_bytes() as usize;
        }
        Ok(())
    }

    /// Copies the groups of a batch.
    fn batch(
        &mut self,
        body: &[u8],
        batch_at: usize,
        (segment, salt): (SegmentId, Salt),
        first_lsn: Lsn,
        wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
    ) -> Result<(), JournalError> {
        let (mut at, mut lsn, mut group) = (0, first_lsn, Vec::new());
        while let Some(header) = body.get(at..).and_then(|rest| RecordHeader::decode(rest, salt)) {
            let start = at + RECORD_HEADER_SIZE_BYTES;
            let Some(payload) = body.get(start..start + header.payload_len as usize) else { break };
            let place = Place::new(segment, (batch_at + BATCH_HEADER_SIZE_BYTES + at) as u64);
            match wanted(&RecordView { lsn, place, header, payload }) {
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
        Ok(())
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
