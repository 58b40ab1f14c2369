//! Footers: what a start needs to know of a sealed segment, written after sealing by reading it again.
//!
//! Slices of 256 KiB are read and hashed; what fills a chunk goes to the journal at once, into the room that append
//! kept free, so a footer never holds more than a chunk and a slice in memory. Only starts read footers, and only of
//! segments above the checkpoint.
//!
//! `extra` of a delta's entry is how far its `since` lies below its seq; 0: farther than it can say, or not known;
//! [`IMPOSSIBLE`]: not below. Out of scope: the bytes (`journal::format::footer_chunk`), when (`housekeeping`).

use journal::{
    FOOTER_CHUNK_ENTRIES_MAX, FooterEntry, FooterWriter, Journal, JournalError, RecordView, Scanner,
    SegmentId, Seq,
};

use crate::hash::KeyHasher;
use crate::record;

/// A segment whose footer is being built.
#[derive(Debug)]
pub(crate) struct Footing {
    segment: SegmentId,
    scanner: Scanner,
    writer: FooterWriter,
    /// Entries that fill no chunk yet.
    entries: Vec<FooterEntry>,
}

impl Footing {
    /// Begins with `segment`; `None` when that cannot be done now, for want of a descriptor.
    ///
    /// # Errors
    /// When the segment cannot be opened.
    pub(crate) fn begin(journal: &Journal, segment: SegmentId) -> Result<Option<Self>, JournalError> {
        let (scanner, writer) = (journal.scanner(segment)?, journal.footer(segment)?);
        Ok(writer.map(|writer| Self { segment, scanner, writer, entries: Vec::new() }))
    }

    /// The segment's number.
    pub(crate) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Reads one slice and writes the chunks that it fills; returns whether there is more.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when a record does not verify, [`JournalError::Failed`] when the disk fails; the
    /// journal stops then.
    pub(crate) fn slice(&mut self, hasher: &KeyHasher) -> Result<bool, JournalError> {
        let entries = &mut self.entries;
        let more = self.scanner.slice(SLICE_BYTES, &mut |view| entries.push(entry_of(&view, hasher)))?;
        while let Some(chunk) = self.entries.get(..FOOTER_CHUNK_ENTRIES_MAX) {
            self.writer.write(chunk)?;
            self.entries.drain(..FOOTER_CHUNK_ENTRIES_MAX);
        }
        Ok(more)
    }

    /// Writes what is left and states the footer.
    ///
    /// # Errors
    /// [`JournalError::Failed`] when the disk fails; the journal stops then.
    pub(crate) fn finish(mut self) -> Result<(), JournalError> {
        if !self.entries.is_empty() {
            self.writer.write(&self.entries)?;
        }
        self.writer.finish()
    }
}

/// What the footer says of a record.
pub(crate) fn entry_of(view: &RecordView<'_>, hasher: &KeyHasher) -> FooterEntry {
    let payload = record::decode(view.header.kind, view.payload);
    let key = payload.and_then(|payload| payload.key());
    let since = record::since(view.header.kind, view.payload);
    let entry = view.footer_entry(key.map_or(0, |key| hasher.hash_in(view.header.keyspace, key).0));
    // what lies on nothing older than itself is impossible, and has to look so
    let extra = match entry.seq.0.checked_sub(since.0) {
        _ if since == Seq::NONE => 0,
        None | Some(0) => IMPOSSIBLE,
        Some(below) => u16::try_from(below).ok().filter(|below| *below < IMPOSSIBLE).unwrap_or(0),
    };
    FooterEntry { extra, ..entry }
}

/// What [`entry_of`] noted: what the delta may lie on; NONE: not known.
pub(crate) fn since(entry: &FooterEntry) -> Seq {
    match entry.extra {
        0 => Seq::NONE,
        IMPOSSIBLE => Seq::MAX,
        below => Seq(entry.seq.0.saturating_sub(below.into()).max(1)),
    }
}

/// `extra` of a delta that names no state before it.
const IMPOSSIBLE: u16 = u16::MAX;
/// Bytes read in one slice.
const SLICE_BYTES: u64 = 256 * 1024;
