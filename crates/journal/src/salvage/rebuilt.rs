//! A folder whose manifest is damaged or gone: what the segment files themselves tell, for salvage alone.
//!
//! Each file's header has the folder's identity, each batch the number of its segment, and numbers only grow: so the highest
//! number with a batch that verifies is the segment that the file holds, and what older ones left in a recycled file is not
//! taken for it. A start never guesses like this: it cannot know which file is missing.
//!
//! Invariants
//!   1. Nothing is taken that does not verify under this folder's identity and its segment's number.
//!   2. Whatever is assumed is said (`assumed`), and so is which lsns are in no file.
//!
//! A file that waited to be recycled may hold a segment that was given back: which of its records are dead, only a
//! checkpoint tells.

use std::collections::BTreeMap;
use std::path::Path;

use vfs::{OpenOptions, Vfs};

use super::batch_at;
use crate::error::JournalError;
use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BATCH_MAGIC, BatchHeader};
use crate::format::segment_header::{HeaderError, Identity, SegmentHeader};
use crate::format::{ALIGN_BYTES, SEGMENT_HEADER_SIZE_BYTES, Salt, VERSION, u32_at};
use crate::manifest::{Facts, MANIFEST_NAME};
use crate::segment::{read_full, read_to};
use crate::types::{FileId, Lsn, SegmentId};

/// What stands in for a manifest.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) segments: BTreeMap<SegmentId, Facts>,
    /// What was assumed, a sentence each.
    pub(crate) assumed: Vec<String>,
    /// Lsns between two segments that no file holds: first and last.
    pub(crate) missing: Vec<(Lsn, Lsn)>,
}

/// What a file holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    file: FileId,
    size_bytes: u64,
    first_lsn: Lsn,
    /// Behind its last batch that verifies.
    next_lsn: Lsn,
}

/// The identity that the headers of the segment files state.
///
/// # Errors
/// [`JournalError::Damaged`] when none verifies or they differ, [`JournalError::Newer`], [`JournalError::Failed`].
pub(crate) fn identity(vfs: &dyn Vfs, dir: &Path) -> Result<Identity, JournalError> {
    let damaged = |what: &str| JournalError::damaged(dir.display().to_string(), 0, what);
    let mut found: Option<Identity> = None;
    for id in files(vfs, dir)? {
        let name = id.file_name();
        let mut bytes = vec![0; SEGMENT_HEADER_SIZE_BYTES as usize];
        let read = vfs
            .open(&dir.join(&name), OpenOptions::default())
            .and_then(|file| read_full(&*file, &mut bytes, 0));
        let Ok(read) = read else { continue }; // its content is missed later, by name
        match SegmentHeader::decode(&bytes[..read]) {
            Ok(header) if found.is_none_or(|identity| identity == header.identity) => {
                found = Some(header.identity);
            }
            Ok(_) => {
                return Err(damaged("segment files of more than one folder: sort them out by hand first"));
            }
            Err(HeaderError::Bad) => {}
            Err(HeaderError::Newer(reader_version_min)) => {
                return Err(JournalError::Newer { file: name, reader_version_min, version: VERSION });
            }
        }
    }
    found.ok_or_else(|| damaged("neither the manifest nor the header of any segment file verifies"))
}

/// Takes stock of the segment files.
///
/// # Errors
/// [`JournalError::Failed`] when the folder cannot be listed.
pub(crate) fn rebuild(vfs: &dyn Vfs, dir: &Path, folder: u128, why: &str) -> Result<Rebuilt, JournalError> {
    let mut taken: BTreeMap<SegmentId, Held> = BTreeMap::new();
    let mut assumed = Vec::new();
    let (mut count, mut blank) = (0, 0);
    for id in files(vfs, dir)? {
        count += 1;
        let name = id.file_name();
        let file = vfs.open(&dir.join(&name), OpenOptions::default());
        let bytes = match file.and_then(|file| read_to(&*file, file.len()?)) {
            Ok(bytes) => bytes,
            Err(error) => {
                assumed.push(format!("{name} cannot be read ({error}): what it held is lost"));
                continue;
            }
        };
        let Some((segment, held)) = held(&bytes, id, folder) else {
            blank += 1;
            continue;
        };
        if let Some(other) = taken.get(&segment) {
            let (kept, left) = if held.next_lsn >= other.next_lsn { (held, *other) } else { (*other, held) };
            assumed.push(format!(
                "segment {segment} is in {} to lsn {} and in {} to lsn {}: the first is taken, the other for an older copy",
                kept.file.file_name(),
                kept.next_lsn.0 - 1,
                left.file.file_name(),
                left.next_lsn.0 - 1
            ));
            taken.insert(segment, kept);
        } else {
            taken.insert(segment, held);
        }
    }
    let general = format!(
        "{MANIFEST_NAME} does not verify ({why}): which segments there are is taken from what {count} files hold; {blank} of \
         them hold no batch that verifies and are taken for empty; what followed the last batch that verifies is not known"
    );
    assumed.insert(0, general);
    let held: Vec<Held> = taken.values().copied().collect();
    let gaps = held.windows(2).filter(|pair| pair[0].next_lsn < pair[1].first_lsn);
    let mut missing: Vec<_> = gaps.map(|pair| (pair[0].next_lsn, Lsn(pair[1].first_lsn.0 - 1))).collect();
    if let Some(first) = held.first().filter(|first| first.first_lsn > Lsn(1)) {
        missing.insert(0, (Lsn(1), Lsn(first.first_lsn.0 - 1)));
    }
    let facts = |held: Held| Facts {
        file: held.file,
        size_bytes: held.size_bytes,
        first_lsn: held.first_lsn,
        sealed: None,
        footer: None,
    };
    let segments = taken.into_iter().map(|(segment, held)| (segment, facts(held))).collect();
    Ok(Rebuilt { segments, assumed, missing })
}

/// Segment files, by name.
pub(crate) fn files(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<FileId>, JournalError> {
    let names =
        vfs.list(dir).map_err(|error| JournalError::failed(format!("listing {}", dir.display()), error))?;
    Ok(names.iter().filter_map(|name| FileId::parse(name)).collect())
}

/// The newest segment of which a batch in `bytes` verifies.
fn held(bytes: &[u8], file: FileId, folder: u128) -> Option<(SegmentId, Held)> {
    let size_bytes = bytes.len() as u64;
    let mut newest: Option<(SegmentId, Held)> = None;
    let mut at = SEGMENT_HEADER_SIZE_BYTES as usize;
    while at + BATCH_HEADER_SIZE_BYTES <= bytes.len() {
        let Some((segment, header)) = any_batch_at(bytes, at, folder) else {
            at += ALIGN_BYTES as usize;
            continue;
        };
        at += header.total_bytes() as usize;
        let next_lsn = header.next_lsn();
        match &mut newest {
            Some((known, held)) if *known == segment => {
                held.first_lsn = held.first_lsn.min(header.first_lsn);
                held.next_lsn = held.next_lsn.max(next_lsn);
            }
            Some((known, _)) if *known > segment => {}
            _ => newest = Some((segment, Held { file, size_bytes, first_lsn: header.first_lsn, next_lsn })),
        }
    }
    newest
}

/// The batch at `at`, of whatever segment it says.
fn any_batch_at(bytes: &[u8], at: usize, folder: u128) -> Option<(SegmentId, BatchHeader)> {
    if bytes[at..at + BATCH_MAGIC.len()] != BATCH_MAGIC {
        return None;
    }
    let segment = SegmentId(u32_at(&bytes[at..], 20));
    let header = batch_at(bytes, at, segment, Salt::new(folder, segment))?;
    Some((segment, header))
}
