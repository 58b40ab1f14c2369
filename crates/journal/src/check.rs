//! Reads a stopped server's folder as a whole and says what does not verify, changing nothing.
//!
//! A start stops at the first damage; this goes on behind it. After a bad place it looks for the next batch header that
//! verifies (every header is salted with folder and segment, so nothing else passes for one) and counts the records
//! in between as lost.
//!
//! Invariants
//!   1. Nothing is written but the lock file.
//!   2. A record is handed out only if its batch's header, its own header and its payload verify.
//!
//! Out of scope: what records mean, and whether the checkpoint's content is good (`store`).

mod stopped;

use std::path::Path;
use std::sync::Arc;

use vfs::{File, Vfs};

use crate::error::JournalError;
use crate::footer;
use crate::format::batch::{BATCH_MAGIC, BatchHeader};
use crate::format::manifest_entry::Checkpoint;
use crate::format::segment_header::Identity;
use crate::format::{ALIGN_BYTES, SEGMENT_HEADER_SIZE_BYTES, Salt};
use crate::journal::{SegmentInfo, SegmentState, info};
use crate::manifest::{self, Facts, MANIFEST_NAME, State};
use crate::options::Content;
use crate::recovery::found::{lost_entries, read_header, read_tail_bytes, unheard_of};
use crate::recovery::lock;
use crate::recovery::tail::{Torn, examine};
use crate::scan::{Extent, RecordView, Scanner};
use crate::segment::{open_reading, read_full};
use crate::types::{FileId, LogAddress, Lsn, SegmentId, Seq};
pub use stopped::StoppedFolder;

/// What a folder holds, and what of it does not verify.
#[derive(Debug)]
pub struct CheckReport {
    /// Whose folder it is.
    pub identity: Identity,
    /// Every segment, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Files that are ready for segments to come.
    pub prepared: usize,
    /// The newest checkpoint, as the manifest names it.
    pub checkpoint: Option<Checkpoint>,
    /// Whether the last stop was clean.
    pub clean: bool,
    /// The end that a crash tore off; no damage.
    pub torn: Option<Torn>,
    /// Everything that was durable and does not verify.
    pub damage: Vec<Damage>,
}

/// What one segment holds.
#[derive(Clone, Debug)]
pub struct SegmentReport {
    /// As the manifest has it, and for the open one as its tail says.
    pub info: SegmentInfo,
    /// Records that verify.
    pub records_read: u64,
    /// Records that are known to have been there and cannot be read.
    pub records_lost: u64,
}

/// An address that does not verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What does not hold.
    pub what: String,
}

/// Reads all of the folder `dir` and hands out every record that verifies, segment by segment, in lsn order.
///
/// # Errors
/// [`JournalError`] when there is nothing to check (locked, newer, no folder, a manifest that does not verify), or
/// reading fails. Damage behind the manifest is in the report instead.
pub fn check(
    vfs: &dyn Vfs,
    dir: &Path,
    content: &Content,
    records: &mut dyn FnMut(RecordView<'_>),
) -> Result<CheckReport, JournalError> {
    check_and_hold(vfs, dir, content, records).map(|(report, _)| report)
}

/// As [`check`]; also returns the folder, which no server opens until that is dropped.
///
/// # Errors
/// As [`check`].
pub fn check_and_hold<'v>(
    vfs: &'v dyn Vfs,
    dir: &Path,
    content: &Content,
    records: &mut dyn FnMut(RecordView<'_>),
) -> Result<(CheckReport, StoppedFolder<'v>), JournalError> {
    let nothing = |what: String| JournalError::Invalid(format!("{}: {what}", dir.display()));
    let names = vfs.list(dir).map_err(|error| nothing(error.to_string()))?;
    if !names.iter().any(|name| name == MANIFEST_NAME) {
        return Err(nothing(format!("no data folder: it has no {MANIFEST_NAME}")));
    }
    let lock = lock(vfs, dir)?;
    let state = manifest::read(vfs, dir)?.ok_or_else(|| nothing("the manifest is empty".to_owned()))?;
    state.refuse_newer(dir, content)?;
    let mut checker =
        Checker { vfs, dir, state: &state, damage: Vec::new(), torn: None, clean: false, records };
    let mut segments = Vec::new();
    for (segment, facts) in &state.segments {
        segments.push(checker.segment(*segment, facts)?);
    }
    checker.note_lost_entries()?;
    checker.note_strangers(&names);
    let Checker { damage, torn, clean, .. } = checker;
    let folder = StoppedFolder::new(vfs, dir, &state, lock);
    let prepared = state.prepared.len();
    let report = CheckReport {
        identity: state.identity,
        segments,
        prepared,
        checkpoint: state.checkpoint,
        clean,
        torn,
        damage,
    };
    Ok((report, folder))
}

struct Checker<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    state: &'a State,
    damage: Vec<Damage>,
    torn: Option<Torn>,
    clean: bool,
    records: &'a mut dyn FnMut(RecordView<'_>),
}

/// What a walk over a segment found.
#[derive(Default)]
struct Walked {
    addresses: Vec<(LogAddress, Seq)>,
    lost: u64,
    last_lsn: Option<Lsn>,
}

impl Checker<'_> {
    fn segment(&mut self, segment: SegmentId, facts: &Facts) -> Result<SegmentReport, JournalError> {
        let mut info = info(segment, facts);
        if let Err(error) =
            read_header(self.vfs, self.dir, facts.file, facts.size_bytes, &self.state.identity)
        {
            self.note(error)?;
        }
        let Ok(file) = open_reading(self.vfs, self.dir, &info.file.file_name()) else {
            return Ok(SegmentReport { records_lost: info.records, info, records_read: 0 });
        };
        match facts.sealed {
            Some(_) => {}
            None => self.settle_tail(segment, facts, &mut info)?,
        }
        let walked = self.walk(&file, &info)?;
        let records_read = walked.addresses.len() as u64;
        if facts.sealed.is_some() {
            self.compare_with_seal(&info, &walked);
            self.compare_with_footer(&file, segment, facts, &info, &walked)?;
        } else {
            info.records = records_read + walked.lost;
            info.last_lsn = walked.last_lsn.unwrap_or(info.last_lsn);
        }
        Ok(SegmentReport { info, records_read, records_lost: walked.lost })
    }

    /// Finds where the open segment ends; on damage, its whole file is walked.
    fn settle_tail(
        &mut self,
        segment: SegmentId,
        facts: &Facts,
        info: &mut SegmentInfo,
    ) -> Result<(), JournalError> {
        let bytes = read_tail_bytes(self.vfs, self.dir, facts, self.state)?;
        let salt = Salt::new(self.state.identity.folder, segment);
        match examine(&bytes, segment, salt, facts.first_lsn, self.state.closed) {
            Ok((tail, torn)) => {
                info.end_bytes = tail.end_bytes;
                info.last_lsn = Lsn(tail.next_lsn.0 - 1);
                self.torn = torn;
                self.clean = tail.sealed;
            }
            Err(damage) => {
                info.end_bytes = bytes.len() as u64;
                let file = info.file.file_name();
                self.damage.push(Damage { file, offset: damage.offset_bytes, what: damage.what });
            }
        }
        Ok(())
    }

    /// Reads every record, past what does not verify.
    fn walk(&mut self, file: &Arc<dyn File>, info: &SegmentInfo) -> Result<Walked, JournalError> {
        let extent = Extent {
            segment: info.segment,
            salt: Salt::new(self.state.identity.folder, info.segment),
            first_lsn: info.first_lsn,
            end_bytes: info.end_bytes,
            file_name: info.file.file_name(),
        };
        let mut walked = Walked::default();
        let mut scanner = Scanner::new(Arc::clone(file), extent.clone());
        loop {
            let records = &mut *self.records;
            let taken = scanner.slice(u64::MAX / 2, &mut |view| {
                walked.addresses.push((view.address, view.header.seq));
                walked.last_lsn = Some(view.lsn);
                records(view);
            });
            let Err(error) = taken else { return Ok(walked) };
            let bad_at = scanner.offset_bytes();
            let next = next_batch(file, &extent, bad_at)?;
            // The end of a damaged open segment is noted by whoever examined it.
            let examined = info.state == SegmentState::Open;
            if next.is_some()
                || !(examined && self.damage.iter().any(|damage| damage.file == info.file.file_name()))
            {
                self.note(error)?;
            }
            let Some((offset, lsn)) = next else {
                walked.lost += (info.last_lsn.0 + 1).saturating_sub(scanner.next_lsn().0);
                return Ok(walked);
            };
            walked.lost += lsn.0.saturating_sub(scanner.next_lsn().0);
            scanner = Scanner::resumed(Arc::clone(file), extent.clone(), offset, lsn);
        }
    }

    fn compare_with_seal(&mut self, info: &SegmentInfo, walked: &Walked) {
        let found = walked.addresses.len() as u64 + walked.lost;
        if found != info.records {
            let what = format!("the manifest says {} records, there are {found}", info.records);
            self.damage.push(Damage { file: info.file.file_name(), offset: info.end_bytes, what });
        }
    }

    fn compare_with_footer(
        &mut self,
        file: &Arc<dyn File>,
        segment: SegmentId,
        facts: &Facts,
        info: &SegmentInfo,
        walked: &Walked,
    ) -> Result<(), JournalError> {
        let Some(address) = facts.footer.filter(|footer| !footer.is_given_back()) else { return Ok(()) };
        let salt = Salt::new(self.state.identity.folder, segment);
        let entries = footer::read(&**file, segment, salt, address, info.first_lsn)
            .map_err(|error| JournalError::failed(format!("reading {}", info.file.file_name()), error))?;
        let what = match entries {
            None => "the footer does not verify (a start scans the records instead)",
            Some(_) if walked.lost > 0 => return Ok(()),
            Some(entries)
                if entries.iter().map(|e| (e.address, e.seq)).eq(walked.addresses.iter().copied()) =>
            {
                return Ok(());
            }
            Some(_) => "the footer names other records than the segment holds",
        };
        let damage =
            Damage { file: info.file.file_name(), offset: address.offset_bytes, what: what.to_owned() };
        self.damage.push(damage);
        Ok(())
    }

    /// Files that prove that the manifest fell behind.
    fn note_lost_entries(&mut self) -> Result<(), JournalError> {
        for (id, segment) in unheard_of(self.vfs, self.dir, self.state)? {
            let (file, offset) = (id.file_name(), SEGMENT_HEADER_SIZE_BYTES);
            self.damage.push(Damage { file, offset, what: lost_entries(segment) });
        }
        Ok(())
    }

    fn note_strangers(&mut self, names: &[String]) {
        let known = |id: FileId| {
            self.state.prepared.contains_key(&id)
                || self.state.segments.values().any(|facts| facts.file == id)
        };
        let strangers: Vec<_> =
            names.iter().filter(|name| FileId::parse(name).is_some_and(|id| !known(id))).cloned().collect();
        for file in strangers {
            tracing::info!(file, "belongs to no segment; the next start removes it");
        }
    }

    /// Takes damage into the report; any other error ends the check.
    fn note(&mut self, error: JournalError) -> Result<(), JournalError> {
        match error {
            JournalError::Damaged { file, offset, what } => {
                self.damage.push(Damage { file, offset, what });
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// The first batch behind `bad_at` whose header verifies, and its first lsn.
fn next_batch(
    file: &Arc<dyn File>,
    extent: &Extent,
    bad_at: u64,
) -> Result<Option<(u64, Lsn)>, JournalError> {
    let start = bad_at.max(SEGMENT_HEADER_SIZE_BYTES) / ALIGN_BYTES * ALIGN_BYTES + ALIGN_BYTES;
    let failed = |error| JournalError::failed(format!("reading {}", extent.file_name), error);
    let end = file.len().map_err(failed)?.min(extent.end_bytes);
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
    let read = read_full(&**file, &mut bytes, start).map_err(failed)?;
    bytes.truncate(read);
    let mut at = 0;
    while at + BATCH_MAGIC.len() <= bytes.len() {
        if bytes[at..].starts_with(&BATCH_MAGIC)
            && let Some((header, _)) = BatchHeader::decode(&bytes[at..], extent.segment, extent.salt)
        {
            return Ok(Some((start + at as u64, header.first_lsn)));
        }
        at += ALIGN_BYTES as usize;
    }
    Ok(None)
}
