//! Footers: what a start needs to know of a sealed segment, written after sealing by reading it again.
//!
//! Slices of 256 KiB are read and hashed; then the journal writes the entries into the room that append kept free. Only
//! starts read footers, and only of segments above the checkpoint.
//!
//! `extra` of an entry is unused. Out of scope: the bytes (`journal::format::footer_chunk`), when (`keeper`).

use journal::{FooterEntry, Journal, JournalError, RecordView, Scanner, SegmentId};

use crate::hash::KeyHasher;
use crate::record;

/// A segment whose footer is being built.
#[derive(Debug)]
pub(crate) struct Footing {
    segment: SegmentId,
    scanner: Scanner,
    entries: Vec<FooterEntry>,
}

impl Footing {
    /// Begins with `segment`, which has `records` records.
    ///
    /// # Errors
    /// When the segment cannot be opened.
    pub(crate) fn begin(journal: &Journal, segment: SegmentId, records: u64) -> Result<Self, JournalError> {
        let entries = Vec::with_capacity(usize::try_from(records).unwrap_or(0));
        Ok(Self { segment, scanner: journal.scanner(segment)?, entries })
    }

    /// The segment's number.
    pub(crate) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Reads one slice; returns whether there is more.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when a record does not verify.
    pub(crate) fn slice(&mut self, hasher: &KeyHasher) -> Result<bool, JournalError> {
        let entries = &mut self.entries;
        self.scanner.slice(SLICE_BYTES, &mut |view| entries.push(entry_of(&view, hasher)))
    }

    /// Writes the footer; `pace` is called before each chunk with its bytes.
    ///
    /// # Errors
    /// [`JournalError::Failed`] when the disk fails; the journal stops then.
    pub(crate) fn finish(self, journal: &Journal, pace: &mut dyn FnMut(usize)) -> Result<(), JournalError> {
        journal.write_footer(self.segment, &self.entries, pace)
    }
}

/// What the footer says of a record.
pub(crate) fn entry_of(view: &RecordView<'_>, hasher: &KeyHasher) -> FooterEntry {
    let header = &view.header;
    let key = record::decode(header.kind, view.payload).and_then(|payload| payload.key());
    FooterEntry {
        hash: key.map_or(0, |key| hasher.hash(key).0),
        seq: header.seq,
        expiry_ms: header.expiry_ms,
        place: view.place,
        payload_len: header.payload_len,
        keyspace: header.keyspace,
        kind: header.kind,
        flags: header.flags,
        extra: 0,
        lsn: view.lsn,
    }
}

/// Bytes read in one slice.
const SLICE_BYTES: u64 = 256 * 1024;
