//! A segment's footer: written chunk by chunk, read all or nothing, every checksum verified.
//!
//! Invariants
//!   1. A footer counts only once the manifest names it: what an attempt left behind is written over.
//!   2. A writer holds at most one chunk, however many records the segment has.

use std::sync::Arc;

use vfs::{File, OpenOptions};

use crate::error::JournalError;
use crate::format::Salt;
use crate::format::footer_chunk::{FOOTER_CHUNK_ENTRIES_MAX, FooterEntry, decode_chunk, encode_chunk};
use crate::format::manifest_entry::{Entry, Footer};
use crate::manifest::Facts;
use crate::segment::{footer_offset, lacks_descriptors, read_full, write_full};
use crate::shared::Shared;
use crate::types::{Lsn, SegmentId};

/// The footer of a sealed segment, being written.
pub struct FooterWriter {
    shared: Arc<Shared>,
    file: Arc<dyn File>,
    segment: SegmentId,
    /// Where the file must end.
    size_bytes: u64,
    /// Records of the segment.
    records: u32,
    next_lsn: Lsn,
    chunks: u32,
    /// What is written so far.
    footer: Footer,
    chunk: Vec<u8>,
}

impl FooterWriter {
    pub(crate) fn begin(
        shared: Arc<Shared>,
        segment: SegmentId,
        facts: &Facts,
    ) -> Result<Option<Self>, JournalError> {
        let sealed = facts.sealed.expect("only sealed segments get a footer");
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = match shared.vfs.open(&shared.path_of(facts.file), options) {
            Err(error) if lacks_descriptors(&error) => return Ok(None),
            opened => opened.map_err(|error| failed(&shared, segment, error))?,
        };
        let footer = Footer { entries: 0, offset_bytes: footer_offset(sealed.end_bytes), len_bytes: 0 };
        Ok(Some(Self {
            shared,
            file,
            segment,
            size_bytes: facts.size_bytes,
            records: sealed.records,
            next_lsn: sealed.first_lsn,
            chunks: 0,
            footer,
            chunk: Vec::new(),
        }))
    }

    /// Writes a chunk: the entries of the next records, in lsn order.
    ///
    /// # Errors
    /// [`JournalError::Failed`] when the write fails: the journal then stops.
    ///
    /// # Panics
    /// With more than [`FOOTER_CHUNK_ENTRIES_MAX`] entries, or if the footer does not fit: append keeps room for it.
    pub fn write(&mut self, entries: &[FooterEntry]) -> Result<(), JournalError> {
        assert!(entries.len() <= FOOTER_CHUNK_ENTRIES_MAX, "chunk of {} entries", entries.len());
        self.chunk.clear();
        let salt = self.shared.salt(self.segment);
        encode_chunk(&mut self.chunk, self.segment, salt, self.chunks, self.next_lsn, entries);
        let at = self.footer.offset_bytes + self.footer.len_bytes;
        assert!(at + self.chunk.len() as u64 <= self.size_bytes, "append kept room for the footer");
        write_full(&*self.file, &self.chunk, at)
            .map_err(|error| failed(&self.shared, self.segment, error))?;
        self.chunks += 1;
        self.next_lsn.0 += entries.len() as u64;
        self.footer.entries += entries.len() as u32;
        self.footer.len_bytes += self.chunk.len() as u64;
        Ok(())
    }

    /// Syncs the footer and states it. Durable on return.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] when the entries do not match the segment's records, [`JournalError::Failed`] when a
    /// sync fails: the journal then stops.
    pub fn finish(self) -> Result<(), JournalError> {
        let (segment, footer) = (self.segment, self.footer);
        if footer.entries != self.records {
            let message =
                format!("segment {segment} has {} records, footer of {}", self.records, footer.entries);
            return Err(JournalError::Invalid(message));
        }
        self.file.sync_data().map_err(|error| failed(&self.shared, segment, error))?;
        let now = self.shared.unix_ms();
        let said = self.shared.manifest().say(&[Entry::Footed { segment, footer }], now);
        said.inspect_err(|error| self.shared.fail(error))
    }
}

impl std::fmt::Debug for FooterWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FooterWriter")
            .field("segment", &self.segment)
            .field("footer", &self.footer)
            .finish_non_exhaustive()
    }
}

/// The journal stops: it cannot tell what reached the disk.
fn failed(shared: &Shared, segment: SegmentId, error: std::io::Error) -> JournalError {
    let error = JournalError::failed(format!("writing the footer of segment {segment}"), error);
    shared.fail(&error);
    error
}

/// The entries of a footer in lsn order from `first_lsn` on; `None` when any of it does not verify.
///
/// # Errors
/// The system's.
pub(crate) fn read(
    file: &dyn File,
    segment: SegmentId,
    salt: Salt,
    address: Footer,
    first_lsn: Lsn,
) -> std::io::Result<Option<Vec<FooterEntry>>> {
    let len = file.len()?.saturating_sub(address.offset_bytes).min(address.len_bytes);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let read = read_full(file, &mut bytes, address.offset_bytes)?;
    Ok(decode(&bytes[..read], segment, salt, address.entries, first_lsn))
}

/// Decodes a whole footer.
pub(crate) fn decode(
    mut bytes: &[u8],
    segment: SegmentId,
    salt: Salt,
    count: u32,
    first_lsn: Lsn,
) -> Option<Vec<FooterEntry>> {
    // Bounded by what was read, not by what the manifest claims.
    let mut entries = Vec::with_capacity((count as usize).min(bytes.len() / 48));
    let mut index = 0;
    while entries.len() < count as usize {
        let before = entries.len();
        let size = decode_chunk(bytes, segment, salt, index, &mut entries)?;
        let first = entries.get(before)?;
        if first.lsn.0 != first_lsn.0 + before as u64 {
            return None;
        }
        bytes = &bytes[size..];
        index += 1;
    }
    (entries.len() == count as usize).then_some(entries)
}
