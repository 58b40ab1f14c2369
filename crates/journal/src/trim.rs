//! Gives back what a sealed segment's file holds behind its batches: the footer, or the room that was kept for one.
//!
//! Only starts read footers, and only those of segments above the checkpoint: below it the room is of no use. Of
//! records of 176 bytes it is a quarter of the file, and so is what a large group cut off.
//!
//! Invariants
//!   1. That the footer is gone is durable before its bytes go: nobody takes the hole for damage.
//!   2. Of a file with a second name (a backup's) nothing is given back: the backup's manifest names the footer.
//!   3. A file serves again only once the room is taken again, so that no commit and no footer meets a full disk.
//!
//! A power loss between the two steps leaves the room with the segment until its file serves again: seconds' worth.
//!
//! Weighed: cutting the file (its length tells a start that it is whole); a footer in a file of its own (ADR 0001);
//! filling the room with zeroes again before the file serves: batches end where they ended before as long as records
//! have the same size, so only footers go there, which no reply waits for.

use std::io;

use vfs::{OpenOptions, Vfs};

use crate::error::JournalError;
use crate::format::manifest_entry::{Entry, Footer};
use crate::journal::Journal;
use crate::journal::{SegmentInfo, SegmentState};
use crate::manifest::Facts;
use crate::segment::{footer_offset, lacks_descriptors};
use crate::shared::Shared;
use crate::types::SegmentId;

impl Journal {
    /// Gives back the room behind the batches of `segment`, its footer with it: a durable checkpoint covers all of it.
    /// Returns the bytes given back; 0 when there is nothing to give, or somebody else needs the file as it is.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] when it is not sealed or unknown, or the file system has no holes;
    /// [`JournalError::Failed`] when the manifest's sync fails: the journal then stops.
    pub fn trim(&self, segment: SegmentId) -> Result<u64, JournalError> {
        let shared = &self.shared;
        let facts = self.sealed_facts(segment)?;
        // So that nobody recycles the file meanwhile.
        let Some(_pin) = self.pin(segment) else { return Ok(0) };
        let path = shared.path_of(facts.file);
        let failed =
            |error: io::Error| JournalError::Invalid(format!("trimming {}: {error}", path.display()));
        let file = match shared.vfs.open(&path, OpenOptions { write: true, ..OpenOptions::default() }) {
            Err(error) if lacks_descriptors(&error) => return Ok(0),
            opened => opened.map_err(failed)?,
        };
        let mut manifest = shared.manifest();
        // A backup pins under the manifest's lock, before it gives files their second names.
        let is_needed = shared.pins().counts.get(&segment).is_some_and(|count| *count > 1);
        if is_needed || facts.trimmed_bytes() > 0 || shared.vfs.link_count(&path).map_err(failed)? > 1 {
            return Ok(0);
        }
        let trimmed = facts.trimmed();
        let room_bytes = trimmed.trimmed_bytes();
        if room_bytes == 0 {
            return Ok(0);
        }
        let entry = Entry::Footed { segment, footer: trimmed.footer.unwrap_or_default() };
        manifest.say(&[entry], shared.unix_ms()).inspect_err(|error| shared.fail(error))?;
        drop(manifest);
        file.punch(facts.size_bytes - room_bytes, room_bytes).map_err(failed)?;
        Ok(room_bytes)
    }
}

impl SegmentInfo {
    /// What the file of a segment needs to serve again: it was given back.
    #[must_use]
    pub fn trimmed_bytes(&self) -> u64 {
        let is_trimmed = self.state == SegmentState::Trimmed;
        if is_trimmed { self.size_bytes.saturating_sub(footer_offset(self.end_bytes)) } else { 0 }
    }
}

impl Facts {
    /// Where the footer goes: behind the batches.
    fn footer_offset(&self) -> Option<u64> {
        self.sealed.map(|sealed| footer_offset(sealed.end_bytes)).filter(|offset| *offset < self.size_bytes)
    }

    /// The same segment without its footer.
    fn trimmed(self) -> Self {
        let entries = self.sealed.map_or(0, |sealed| sealed.records);
        let given_back = |offset_bytes| Footer { entries, offset_bytes, len_bytes: 0 };
        Self { footer: self.footer_offset().map(given_back).or(self.footer), ..self }
    }

    /// Bytes at the file's end that were given back.
    pub(crate) fn trimmed_bytes(&self) -> u64 {
        let given_back = self.footer.filter(Footer::is_given_back);
        given_back.map_or(0, |footer| self.size_bytes.saturating_sub(footer.offset_bytes))
    }
}

/// Takes the room of a trimmed segment's file again, durably; false when the disk has none to spare, or the process no
/// descriptor.
///
/// # Errors
/// The system's.
pub(crate) fn take_back(shared: &Shared, facts: &Facts) -> io::Result<bool> {
    let room_bytes = facts.trimmed_bytes();
    if room_bytes == 0 {
        return Ok(true);
    }
    let needed_bytes = room_bytes + shared.options.margin_bytes(true);
    if shared.vfs.space(&shared.dir)?.available_bytes < needed_bytes {
        return Ok(false);
    }
    let taken = take(&*shared.vfs, shared, facts, room_bytes);
    let is_short = |error: &io::Error| {
        lacks_descriptors(error)
            || matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    };
    match taken {
        Err(error) if is_short(&error) => Ok(false),
        taken => taken.map(|()| true),
    }
}

fn take(vfs: &dyn Vfs, shared: &Shared, facts: &Facts, room_bytes: u64) -> io::Result<()> {
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let file = vfs.open(&shared.path_of(facts.file), options)?;
    file.allocate(facts.size_bytes - room_bytes, room_bytes)?;
    file.sync_data()
}
