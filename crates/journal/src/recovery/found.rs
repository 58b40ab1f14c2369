//! Reads a folder as it was left, changing nothing: manifest, headers, tail. Also the eyes of `check`.

use std::path::Path;
use std::sync::Arc;

use vfs::{File, Vfs};

use super::tail::{Tail, TailDamage, Torn, examine};
use crate::error::JournalError;
use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BatchHeader};
use crate::format::segment_header::{HeaderError, Identity, SegmentHeader};
use crate::format::{SEGMENT_HEADER_SIZE_BYTES, Salt, VERSION, u32_at};
use crate::manifest::{self, Facts, MANIFEST_NAME, State};
use crate::segment::{open_reading, read_full, read_to};
use crate::types::{FileId, SegmentId};

/// The open segment as found.
#[derive(Debug)]
pub(crate) struct FoundTail {
    pub(crate) segment: SegmentId,
    pub(crate) facts: Facts,
    pub(crate) tail: Tail,
    pub(crate) torn: Option<Torn>,
    /// The file from its start, at least to the tail's end.
    pub(crate) bytes: Vec<u8>,
}

/// A folder as found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) state: State,
    pub(crate) tail: Option<FoundTail>,
}

/// Reads the folder; `None` when it is new.
///
/// # Errors
/// [`JournalError::Damaged`] with file and offset of the first thing that does not verify.
pub(crate) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Found>, JournalError> {
    let Some(mut state) = manifest::read(vfs, dir)? else {
        refuse_segments_without_manifest(vfs, dir)?;
        return Ok(None);
    };
    for facts in state.segments.values() {
        read_header(vfs, dir, facts.file, facts.size_bytes, &state.identity)?;
    }
    if let Some((id, segment)) = unheard_of(vfs, dir, &state)?.first() {
        let what = lost_entries(*segment);
        return Err(JournalError::damaged(id.file_name(), SEGMENT_HEADER_SIZE_BYTES, what));
    }
    drop_unusable_prepared(vfs, dir, &mut state)?;
    let Some((segment, facts)) = state.open_segment() else { return Ok(Some(Found { state, tail: None })) };
    let name = facts.file.file_name();
    let bytes = read_tail_bytes(vfs, dir, &facts, &state)?;
    let salt = Salt::new(state.identity.folder, segment);
    let (tail, torn) = examine(&bytes, segment, salt, facts.first_lsn, state.closed)
        .map_err(|TailDamage { offset_bytes, what }| JournalError::damaged(&name, offset_bytes, what))?;
    let tail = FoundTail { segment, facts, tail, torn, bytes };
    Ok(Some(Found { state, tail: Some(tail) }))
}

/// The tail's file, past the page cache: what the device has, not what memory thinks it has.
pub(crate) fn read_tail_bytes(
    vfs: &dyn Vfs,
    dir: &Path,
    facts: &Facts,
    state: &State,
) -> Result<Vec<u8>, JournalError> {
    let name = facts.file.file_name();
    let file = open_reading(vfs, dir, &name)?;
    let failed = |error| JournalError::failed(format!("reading {name}"), error);
    let len = state.closed.map_or(facts.size_bytes, |closed| closed.end_bytes.min(facts.size_bytes));
    file.drop_cache(0, facts.size_bytes).map_err(failed)?;
    read_to(&*file, len).map_err(failed)
}

/// Checks the header of a segment's file.
pub(crate) fn read_header(
    vfs: &dyn Vfs,
    dir: &Path,
    id: FileId,
    size_bytes: u64,
    identity: &Identity,
) -> Result<Arc<dyn File>, JournalError> {
    let name = id.file_name();
    let file = open_reading(vfs, dir, &name)?;
    let failed = |error| JournalError::failed(format!("reading {name}"), error);
    let mut bytes = vec![0; SEGMENT_HEADER_SIZE_BYTES as usize];
    let read = read_full(&*file, &mut bytes, 0).map_err(failed)?;
    let header = SegmentHeader::decode(&bytes[..read]).map_err(|error| match error {
        HeaderError::Bad => JournalError::damaged(&name, 0, "segment header does not verify"),
        HeaderError::Newer(reader_version_min) => {
            JournalError::Newer { file: name.clone(), reader_version_min, version: VERSION }
        }
    })?;
    let len = file.len().map_err(failed)?;
    let what = if header.identity != *identity {
        "segment of another folder"
    } else if header.file != id {
        "segment header names another file"
    } else if header.size_bytes != size_bytes || len < size_bytes {
        "the file is shorter than the manifest and its header say"
    } else {
        return Ok(file);
    };
    Err(JournalError::damaged(&name, 0, what))
}

/// Prepared files hold nothing that counts: what is not whole is forgotten, and so is the copy of the open segment that a
/// start left when it was cut short.
fn drop_unusable_prepared(vfs: &dyn Vfs, dir: &Path, state: &mut State) -> Result<(), JournalError> {
    let open = state.open_segment().map(|(segment, _)| segment);
    let mut unusable = Vec::new();
    for (id, prepared) in &state.prepared {
        let whole = read_header(vfs, dir, *id, prepared.size_bytes, &state.identity).is_ok();
        if !whole || (open.is_some() && first_segment(vfs, dir, *id, state.identity.folder)? == open) {
            unusable.push(*id);
        }
    }
    for id in unusable {
        tracing::warn!(file = id.file_name(), "prepared file is not whole, or a copy of the tail: removed");
        state.prepared.remove(&id);
    }
    Ok(())
}

/// The segment whose batch lies first in a file, if one verifies there.
fn first_segment(
    vfs: &dyn Vfs,
    dir: &Path,
    id: FileId,
    folder: u128,
) -> Result<Option<SegmentId>, JournalError> {
    let name = id.file_name();
    let file = open_reading(vfs, dir, &name)?;
    let mut bytes = [0; BATCH_HEADER_SIZE_BYTES];
    let read = read_full(&*file, &mut bytes, SEGMENT_HEADER_SIZE_BYTES)
        .map_err(|error| JournalError::failed(format!("reading {name}"), error))?;
    let segment = SegmentId(u32_at(&bytes, 20));
    let verifies = BatchHeader::decode(&bytes[..read], segment, Salt::new(folder, segment)).is_some();
    Ok(verifies.then_some(segment))
}

/// Files whose first batch belongs to a segment that the manifest has not heard of: it lost its newest entries.
///
/// A segment's first batch is written only once its `Open` entry is durable, so one of a number to come proves that the
/// manifest fell behind, whatever it says of the file: ready, another segment's before it was recycled, nothing. What
/// else may lie in a file proves nothing: former lives have older numbers, and so has the copy of a tail that a start
/// left behind when it was cut short.
///
/// # Errors
/// [`JournalError::Failed`] when reading fails.
pub(crate) fn unheard_of(
    vfs: &dyn Vfs,
    dir: &Path,
    state: &State,
) -> Result<Vec<(FileId, SegmentId)>, JournalError> {
    let names =
        vfs.list(dir).map_err(|error| JournalError::failed(format!("listing {}", dir.display()), error))?;
    let mut found = Vec::new();
    for id in names.iter().filter_map(|name| FileId::parse(name)) {
        let segment = first_segment(vfs, dir, id, state.identity.folder)?;
        found.extend(segment.filter(|segment| *segment >= state.next_segment).map(|segment| (id, segment)));
    }
    Ok(found)
}

/// What [`unheard_of`] means, in words.
pub(crate) fn lost_entries(segment: SegmentId) -> String {
    format!("the file holds segment {segment}, which the manifest does not know: it lost its newest entries")
}

fn refuse_segments_without_manifest(vfs: &dyn Vfs, dir: &Path) -> Result<(), JournalError> {
    let names =
        vfs.list(dir).map_err(|error| JournalError::failed(format!("listing {}", dir.display()), error))?;
    let segments: Vec<_> = names.iter().filter(|name| FileId::parse(name).is_some()).collect();
    // A start that was cut short before its first manifest leaves one file, which never held a batch.
    for name in &segments {
        let file = open_reading(vfs, dir, name)?;
        let mut magic = [0; 4];
        let read = read_full(&*file, &mut magic, SEGMENT_HEADER_SIZE_BYTES)
            .map_err(|error| JournalError::failed(format!("reading {name}"), error))?;
        if read == 4 && magic == crate::format::batch::BATCH_MAGIC {
            let what = format!("the manifest is missing, but {name} holds records");
            return Err(JournalError::damaged(dir.join(MANIFEST_NAME).display().to_string(), 0, what));
        }
    }
    Ok(())
}
