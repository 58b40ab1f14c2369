//! `evenkeel check --salvage OUT`: copies every record that still verifies into a new folder.
//!
//! ```text
//! | batch ok | batch: record ok, record bad, record ok | header of a batch bad: record ok, record ok | batch ok |
//!   copied            copied        mended     copied                          copied      copied       copied
//! ```
//!
//! Invariants
//!   1. The damaged folder is not changed.
//!   2. Seqs, keyspaces and expiries are kept, flags too (but MOVED, where the callback says so), order is kept.
//!   3. A record is copied if its own checksums hold, whatever lies around it: a group that lost one keeps the others. Where one bit of a short
//!      record is wrong its checksum tells which ([`mend`]), and it is put right if the owner of the records wants it. Of what may never have been durable (the end of the open
//!      segment, for which nothing behind it vouches) whole groups of whole batches are copied, as a start would find them.
//!   4. No record is copied with a seq that its segment had not given yet, nor an older one in a batch whose records all verify, and are not those
//!      that it was written with: the disk has put it there.
//!   5. The copy has the same identity and a clean stop; lsns and addresses are new, so it has no checkpoint.
//!   6. A damaged manifest decides nothing: the segment files themselves do (`rebuilt`), and what that assumes is reported.
//!
//! What was lost may have been a removal, so an older value may be back: the report says how much was skipped. Which records are of no use any more
//! (a checkpoint may cover their removal) only the store knows: its callback decides.

mod rebuilt;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
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
use crate::format::{ALIGN_BYTES, SEGMENT_HEADER_SIZE_BYTES, Salt, crc32c, mend};
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
use crate::types::{Draft, LogAddress, Lsn, SegmentId, Seq, record_flags};

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

/// What the owner of the records wants.
pub struct Choice<'c> {
    /// Decides for each record.
    pub wanted: &'c mut dyn FnMut(&RecordView<'_>) -> Keep,
    /// Says of which records one wrong bit is to be put right: those whose loss costs more than themselves.
    pub mends: fn(&RecordHeader) -> bool,
}

impl std::fmt::Debug for Choice<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Choice").finish_non_exhaustive()
    }
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
    /// Records copied of which one bit was wrong, and was put right.
    pub records_mended: u64,
    /// Places where something did not verify and the walk looked for the next batch or record.
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
        Stand::Manifest(state) => {
            state.refuse_newer(dir, content)?;
            Stated::Checkpoint { identity: state.identity, checkpoint: state.checkpoint }
        }
        Stand::Nothing { identity, why } => Stated::Nothing { identity, why },
    })
}

/// The manifest of a folder, or what stands in for it.
enum Stand {
    Manifest(Box<State>),
    Nothing { identity: Identity, why: String },
}

fn found(vfs: &dyn Vfs, dir: &Path) -> Result<Stand, JournalError> {
    let nothing = |what: String| JournalError::Invalid(format!("{}: {what}", dir.display()));
    vfs.list(dir).map_err(|error| nothing(error.to_string()))?;
    let why = match manifest::read(vfs, dir) {
        Ok(Some(state)) => return Ok(Stand::Manifest(Box::new(state))),
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
    Ok(Stand::Nothing { identity: rebuilt::identity(vfs, dir)?, why })
}

/// Copies what still verifies in `dir`, and is chosen, to a new folder `out`.
///
/// # Errors
/// [`JournalError`]: locked, nothing that verifies, `out` not empty, or a failed read or write.
pub fn salvage(
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
    dir: &Path,
    out: &Path,
    options: &Options,
    Choice { wanted, mends }: Choice<'_>,
) -> Result<SalvageReport, JournalError> {
    refuse_used(&**vfs, out)?;
    found(&**vfs, dir)?; // before the lock's file is made: there may be no folder
    let _lock = lock(&**vfs, dir)?;
    let mut report = SalvageReport::default();
    let (identity, segments) = match found(&**vfs, dir)? {
        Stand::Manifest(state) => (state.identity, segments_of(&**vfs, dir, &state)?),
        Stand::Nothing { identity, why } => {
            let rebuilt = rebuilt::rebuild(&**vfs, dir, identity.folder, &why)?;
            (report.assumed, report.missing) = (rebuilt.assumed, rebuilt.missing);
            (identity, rebuilt.segments)
        }
    };
    let options = Options { identity: Some(identity), sync: SyncMode::Never, ..options.clone() };
    let recovery = Journal::open(Arc::clone(vfs), Arc::clone(clock), out, options)?;
    let (journal, driver) = recovery.start_manual(Hooks::default())?;
    let newest = segments.last_key_value().map(|(segment, _)| *segment);
    let mut copier = Copier { journal, driver, report, mends };
    for (segment, facts) in &segments {
        let place = Place { segment: *segment, salt: Salt::new(identity.folder, *segment) };
        copier.segment(&**vfs, dir, place, facts, Some(*segment) == newest, wanted)?;
    }
    copier.finish()
}

/// Refuses a folder that has anything in it: even to look what it holds as a journal would change it.
fn refuse_used(vfs: &dyn Vfs, out: &Path) -> Result<(), JournalError> {
    let names = match vfs.list(out) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        names => names.map_err(|error| JournalError::failed(format!("listing {}", out.display()), error))?,
    };
    match names.first() {
        None => Ok(()),
        Some(name) => Err(JournalError::Invalid(format!(
            "{} is not empty (it holds {name}): name a new folder",
            out.display()
        ))),
    }
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
    mends: fn(&RecordHeader) -> bool,
}

/// A segment, to whom decodes what it holds.
#[derive(Clone, Copy)]
struct Place {
    segment: SegmentId,
    salt: Salt,
}

/// A record of a batch.
struct Found<'b> {
    /// Counts the batch's records.
    ordinal: u64,
    offset: usize,
    header: RecordHeader,
    payload: Cow<'b, [u8]>,
    is_mended: bool,
}

impl Copier {
    fn segment(
        &mut self,
        vfs: &dyn Vfs,
        dir: &Path,
        place: Place,
        facts: &Facts,
        is_newest: bool,
        wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
    ) -> Result<(), JournalError> {
        let end = facts.sealed.map_or(facts.size_bytes, |sealed| sealed.end_bytes);
        let path = dir.join(facts.file.file_name());
        let Ok(bytes) = vfs.open(&path, OpenOptions::default()).and_then(|file| read_to(&*file, end)) else {
            self.report.segments_lost += 1;
            self.report.records_lost += facts.sealed.map_or(0, |sealed| sealed.records.into());
            return Ok(());
        };
        let known = Known::of(&bytes, place, facts, is_newest);
        let (mut at, mut skipped) = (SEGMENT_HEADER_SIZE_BYTES as usize, 0);
        // a segment that only its file tells of begins with what it begins with
        let mut next = Some(facts.first_lsn).filter(|lsn| *lsn > Lsn(0));
        let mut seqs = Seq::NONE..known.next_seq;
        while at + RECORD_HEADER_SIZE_BYTES <= bytes.len() {
            let batch = header_at(&bytes, at, place);
            let is_durable = next.is_some_and(|next| next <= known.durable_lsn);
            let batch = batch.filter(|header| is_whole(&bytes, at, header) || is_durable);
            if let Some(header) = batch {
                // An unused end is no gap; only what a later batch proves to have been one is counted.
                self.skip(std::mem::take(&mut skipped));
                let begin = at + BATCH_HEADER_SIZE_BYTES;
                at = (at + header.total_bytes() as usize).min(bytes.len());
                self.lose(next, header.first_lsn);
                seqs.end = header.next_seq;
                self.batch(&bytes[begin..at], place, begin, &header, &seqs, wanted)?;
                seqs = header.next_seq..known.next_seq;
                next = Some(header.next_lsn());
            } else if is_durable
                && let Some(found) = record_at(&bytes[at..], place.salt, false, self.mends)
                && seqs.contains(&found.header.seq)
            {
                // the header of its batch does not verify
                self.skip(std::mem::take(&mut skipped));
                let (lsn, stored) = (next.expect("it is known"), found.header.stored_bytes() as usize);
                self.records(&[Found { offset: at, ..found }], place, 0, lsn, wanted)?;
                next = Some(Lsn(lsn.0 + 1));
                at += stored;
            } else {
                skipped += ALIGN_BYTES;
                at += ALIGN_BYTES as usize;
            }
        }
        if let Some(sealed) = facts.sealed {
            self.lose(next, Lsn(sealed.last_lsn.0 + 1));
        }
        Ok(())
    }

    fn skip(&mut self, bytes: u64) {
        self.report.gaps += u64::from(bytes > 0);
        self.report.bytes_skipped += bytes;
    }

    /// Between two batches records `from` (if that is known) to `until` are missing.
    fn lose(&mut self, from: Option<Lsn>, until: Lsn) {
        self.report.records_lost += from.map_or(0, |from| until.0.saturating_sub(from.0));
    }

    /// Copies the records of a batch whose body lies at `begin`. Its new ones have `seqs`.
    fn batch(
        &mut self,
        body: &[u8],
        place: Place,
        begin: usize,
        header: &BatchHeader,
        seqs: &Range<Seq>,
        wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
    ) -> Result<(), JournalError> {
        let mut runs = vec![Vec::new()];
        let (mut at, mut ordinal, mut skipped) = (0, 0, 0);
        while at + RECORD_HEADER_SIZE_BYTES <= body.len() {
            let Some(found) = record_at(&body[at..], place.salt, true, self.mends) else {
                // one record at least; how many, those behind it tell
                if skipped == 0 {
                    ordinal += 1;
                    runs.push(Vec::new());
                }
                skipped += ALIGN_BYTES;
                at += ALIGN_BYTES as usize;
                continue;
            };
            self.skip(std::mem::take(&mut skipped));
            let (stored, seq) = (found.header.stored_bytes() as usize, found.header.seq);
            if seq < seqs.end && crc32c(&found.payload) == found.header.payload_crc {
                let run = runs.last_mut().expect("there is one");
                run.push(Found { ordinal, offset: at, ..found });
            } else {
                self.skip(stored as u64);
            }
            at += stored;
            ordinal += 1;
        }
        self.skip(skipped);
        if let ([run], false) = (&mut runs[..], crc32c(body) == header.body_crc)
            && run.len() as u64 == u64::from(header.record_count)
        {
            // all verify, and yet they are not those that were written: a disk has put one there that belongs elsewhere
            let is_moved = |found: &Found<'_>| found.header.flags & record_flags::MOVED != 0;
            run.retain(|found| is_moved(found) || found.header.seq >= seqs.start);
        }
        // what follows the last gap of unknown length is counted from the end
        let total = u64::from(header.record_count);
        let missing = total.saturating_sub(ordinal);
        if let (2.., Some(last)) = (runs.len(), runs.last_mut()) {
            last.iter_mut().for_each(|found| found.ordinal += missing);
        }
        let found: u64 = runs.iter().map(|run| run.len() as u64).sum();
        self.report.records_lost += total.saturating_sub(found);
        for run in runs {
            self.records(&run, place, begin, header.first_lsn, wanted)?;
        }
        Ok(())
    }

    /// Copies records, of which the first of the batch has `first_lsn`, by their groups.
    fn records(
        &mut self,
        found: &[Found<'_>],
        place: Place,
        begin: usize,
        first_lsn: Lsn,
        wanted: &mut dyn FnMut(&RecordView<'_>) -> Keep,
    ) -> Result<(), JournalError> {
        let mut group = Vec::new();
        for Found { ordinal, offset, header, payload, is_mended } in found {
            let (lsn, header) = (Lsn(first_lsn.0 + ordinal), *header);
            let address = LogAddress::new(place.segment, (begin + offset) as u64);
            let keep = wanted(&RecordView { lsn, address, header, payload });
            match keep {
                Keep::AsItIs => group.push((header, &payload[..])),
                Keep::AsOriginal => {
                    let flags = header.flags & !record_flags::MOVED;
                    group.push((RecordHeader { flags, ..header }, payload));
                }
                Keep::No => self.report.records_unwanted += 1,
            }
            self.report.records_mended += u64::from(*is_mended && keep != Keep::No);
            if header.flags & record_flags::GROUP_END != 0 {
                self.group(&group)?;
                group.clear();
            }
        }
        self.group(&group)
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
                let mut draft = Draft::new(header.kind, header.keyspace, parts)
                    .expiring(header.expiry_ms)
                    .ordered_by(header.origin);
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

/// What is known of a segment before its records are read.
struct Known {
    /// Records up to here were durable.
    durable_lsn: Lsn,
    /// The seq that the first record behind the segment has, or a later one.
    next_seq: Seq,
}

impl Known {
    fn of(bytes: &[u8], place: Place, facts: &Facts, is_newest: bool) -> Self {
        let mut known = Self { durable_lsn: Lsn(0), next_seq: Seq::NONE };
        let mut at = SEGMENT_HEADER_SIZE_BYTES as usize;
        while at + BATCH_HEADER_SIZE_BYTES <= bytes.len() {
            if let Some(header) = header_at(bytes, at, place) {
                known.durable_lsn = known.durable_lsn.max(header.durable_lsn);
                known.next_seq = known.next_seq.max(header.next_seq);
            }
            at += ALIGN_BYTES as usize;
        }
        // a segment is sealed before the next one begins
        if facts.sealed.is_some() || !is_newest {
            known.durable_lsn = Lsn(u64::MAX);
        }
        known.next_seq = known.next_seq.max(facts.sealed.map_or(Seq::NONE, |sealed| sealed.next_seq));
        known
    }
}

/// The header of a batch at `at`, if it verifies.
fn header_at(bytes: &[u8], at: usize, Place { segment, salt }: Place) -> Option<BatchHeader> {
    let bytes = bytes.get(at..).filter(|bytes| bytes.starts_with(&BATCH_MAGIC))?;
    BatchHeader::decode(bytes, segment, salt).map(|(header, _)| header)
}

/// Whether all of the batch at `at`, which has this header, verifies.
fn is_whole(bytes: &[u8], at: usize, header: &BatchHeader) -> bool {
    let body = bytes.get(at + BATCH_HEADER_SIZE_BYTES..at + header.total_bytes() as usize);
    body.is_some_and(|body| crc32c(body) == header.body_crc)
}

/// The batch at `at`, if all of it verifies.
fn batch_at(bytes: &[u8], at: usize, segment: SegmentId, salt: Salt) -> Option<BatchHeader> {
    header_at(bytes, at, Place { segment, salt }).filter(|header| is_whole(bytes, at, header))
}

/// The record at the beginning of `bytes`, if its header verifies. One wrong bit of it, in header or payload, is put right where `mends` says
/// so. Within a batch one whose payload does not verify is told all the same: where the next one begins is known.
fn record_at(
    bytes: &[u8],
    salt: Salt,
    is_in_batch: bool,
    mends: fn(&RecordHeader) -> bool,
) -> Option<Found<'_>> {
    let as_is = RecordHeader::decode(bytes, salt);
    let mended = || is_in_batch.then(|| RecordHeader::decode_mended(bytes, salt)).flatten().filter(mends);
    let header = as_is.or_else(mended)?;
    let payload = bytes[RECORD_HEADER_SIZE_BYTES..].get(..header.payload_len as usize)?;
    let found = |payload, is_mended| Found { ordinal: 0, offset: 0, header, payload, is_mended };
    if crc32c(payload) == header.payload_crc {
        return Some(found(Cow::Borrowed(payload), as_is.is_none()));
    }
    as_is?;
    let mended = if mends(&header) { mend::mended(payload, header.payload_crc) } else { None };
    let as_it_is = || is_in_batch.then(|| found(Cow::Borrowed(payload), false));
    mended.map(|payload| found(Cow::Owned(payload), true)).or_else(as_it_is)
}
