//! What the records are to the journal's owner, and whether this owner knows them all: asked before anything is changed.
//!
//! The owner's version lies in the manifest. A record of a kind that the owner does not know would be taken for nothing
//! and vanish, so a folder that holds one is refused as it is. Only what a start replays is looked at: below the checkpoint the
//! owner meets a record when it is read.

use std::path::Path;
use std::sync::Arc;

use vfs::Vfs;

use super::found::Found;
use crate::error::{ContentError, JournalError};
use crate::footer;
use crate::format::Salt;
use crate::manifest::{Facts, MANIFEST_NAME, State};
use crate::options::Content;
use crate::scan::{Extent, RecordView, Scanner};
use crate::segment::open_reading;
use crate::types::{Lsn, SegmentId};

impl State {
    /// Refuses a folder whose records ask for a newer owner.
    ///
    /// # Errors
    /// [`JournalError::NewerContent`].
    pub(crate) fn refuse_newer(&self, dir: &Path, content: &Content) -> Result<(), JournalError> {
        let asked = self.content_reader_version_min;
        if asked <= content.version {
            return Ok(());
        }
        let (file, version) = (dir.join(MANIFEST_NAME).display().to_string(), content.version);
        Err(JournalError::NewerContent { file, reader_version_min: asked, version })
    }
}

/// Refuses a folder with a record that `content` does not know, among those that a start replays.
///
/// # Errors
/// [`JournalError::NewerContent`], [`JournalError::UnknownRecord`] with file and offset; whatever reading finds.
pub(crate) fn refuse_unknown(
    vfs: &dyn Vfs,
    dir: &Path,
    found: &Found,
    content: &Content,
) -> Result<(), JournalError> {
    found.state.refuse_newer(dir, content)?;
    if content.version == 0 {
        return Ok(());
    }
    let from = found.state.checkpoint.as_ref().map_or(Lsn(1), |checkpoint| checkpoint.lsn);
    for (segment, facts) in &found.state.segments {
        let tail = found.tail.as_ref().filter(|tail| tail.segment == *segment);
        let end_bytes = match (facts.sealed, tail) {
            (Some(sealed), _) if sealed.last_lsn >= from => sealed.end_bytes,
            (None, Some(tail)) => tail.tail.end_bytes,
            _ => continue,
        };
        Look { vfs, dir, state: &found.state, content, from }.segment(*segment, facts, end_bytes)?;
    }
    Ok(())
}

struct Look<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    state: &'a State,
    content: &'a Content,
    from: Lsn,
}

impl Look<'_> {
    fn segment(&self, segment: SegmentId, facts: &Facts, end_bytes: u64) -> Result<(), JournalError> {
        let file_name = facts.file.file_name();
        let file = open_reading(self.vfs, self.dir, &file_name)?;
        let salt = Salt::new(self.state.identity.folder, segment);
        let unknown = |offset: u64, what: ContentError| JournalError::UnknownRecord {
            file: file_name.clone(),
            offset,
            what: what.to_string(),
        };
        let placed = facts.footer.filter(|footer| !footer.is_given_back());
        if let (Some(address), Some(sealed)) = (placed, facts.sealed)
            && let Some(entries) = footer::read(&*file, segment, salt, address, sealed.first_lsn)
                .map_err(|error| JournalError::failed(format!("reading {file_name}"), error))?
        {
            let mut newer = entries.iter().filter(|entry| entry.lsn >= self.from);
            let check = |entry: &crate::FooterEntry| {
                (self.content.check)(entry.kind, None)
                    .map_err(|what| unknown(entry.address.offset_bytes(), what))
            };
            return newer.try_for_each(check);
        }
        let (first_lsn, name) = (facts.first_lsn, file_name.clone());
        let extent = Extent { segment, salt, first_lsn, end_bytes, file_name: name };
        let (mut scanner, mut wrong) = (Scanner::new(Arc::clone(&file), extent), None);
        let mut look = |view: RecordView<'_>| {
            if view.lsn >= self.from && wrong.is_none() {
                let known = (self.content.check)(view.header.kind, Some(view.payload));
                wrong = known.err().map(|what| (view.address.offset_bytes(), what));
            }
        };
        while scanner.slice(u64::MAX / 2, &mut look)? {}
        wrong.map_or(Ok(()), |(offset, what)| Err(unknown(offset, what)))
    }
}
