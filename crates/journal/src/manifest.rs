//! The manifest: which file holds which segment, and what is known of each.
//!
//! ```text
//!            Prepared          Open            Sealed          Footed        Freed
//!  (no file) --------> ready ------> open ------------> sealed -----> footed -----> (no segment)
//!                        ^                                 \______________________/    |
//!                        |________________ Prepared (recycled) _______________________|
//! ```
//!
//! Invariants
//!   1. What an entry says is relied on only after the sync that covers it.
//!   2. At most one segment is open, and it is the newest.
//!   3. Lsn ranges of segments follow each other in the order of their numbers.
//!   4. The file is rewritten (temporary name, sync, rename, sync of the folder) at each start and when it is
//!      full, never written to as found.
//!   5. It is made at its full length, zeroes behind the entries: an entry overwrites written blocks, so its sync
//!      changes no length and no extent, and needs nothing of the file system's own journal.
//!   6. No entry asks for a descriptor: a full file that cannot be rewritten now gets more zeroes behind it.
//!   7. The next file is written over `MANIFEST.tmp`, whose room is kept: neither a start nor an entry needs room on a disk that others
//!      have filled.
//!
//! [`State`] folds entries and knows nothing of files; [`Manifest`] is the file.

mod check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfs::{File, Folder, OpenOptions, Vfs};

use crate::error::JournalError;
use crate::format::manifest_entry::{
    Checkpoint, Entry, Footer, GONE_SIZE_BYTES, MANIFEST_ENTRY_SIZE_BYTES, Sealed,
};
use crate::format::segment_header::{HeaderError, Identity};
use crate::format::{ORDINAL_MAX, SEGMENT_HEADER_SIZE_BYTES, VERSION};
use crate::segment::{lacks_descriptors, read_full, write_full};
use crate::types::{FileId, Lsn, SegmentId, Seq};

/// Name of the manifest in the folder.
pub const MANIFEST_NAME: &str = "MANIFEST";
const TEMPORARY_NAME: &str = "MANIFEST.tmp";
/// Entries that a file has room for; more if the state itself needs more than half of them.
const ENTRIES_ROOM: usize = 8192;
/// Size of the file of a small folder.
pub(crate) const MANIFEST_SIZE_BYTES: u64 = (ENTRIES_ROOM * MANIFEST_ENTRY_SIZE_BYTES) as u64;
/// No segment file is larger: addresses count eight bytes in 32 bits.
const FILE_SIZE_BYTES_MAX: u64 = 8 << 32;
/// Where an entry's time lies, its last field.
const TIME_AT: usize = 56;
/// After so many entries it is tried again to keep room for the next file.
const KEEP_ROOM_ENTRIES: usize = 64;
/// Most entries of one write.
const ENTRIES_TOGETHER_MAX: usize = 2;

/// What the manifest knows of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) file: FileId,
    pub(crate) size_bytes: u64,
    pub(crate) first_lsn: Lsn,
    pub(crate) sealed: Option<Sealed>,
    pub(crate) footer: Option<Footer>,
}

/// Where a clean stop left the open segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) segment: SegmentId,
    pub(crate) last_lsn: Lsn,
    pub(crate) end_bytes: u64,
    pub(crate) next_seq: Seq,
}

/// A file that no segment uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub(crate) size_bytes: u64,
    pub(crate) zeroed: bool,
}

/// Everything the entries say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) identity: Identity,
    pub(crate) next_segment: SegmentId,
    pub(crate) next_file: FileId,
    pub(crate) prepared: BTreeMap<FileId, Prepared>,
    pub(crate) segments: BTreeMap<SegmentId, Facts>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) closed: Option<Closed>,
    /// The seq that the next record gets, as far as the manifest knows: at least the newest sealed segment's.
    pub(crate) next_seq: Seq,
    /// Newest time that any entry states, Unix milliseconds.
    pub(crate) time_ms: u64,
    /// Version of the records, and the oldest version that understands them.
    pub(crate) content_version: u16,
    pub(crate) content_reader_version_min: u16,
}

impl State {
    /// The state of a new folder.
    pub(crate) fn new(identity: Identity) -> Self {
        let (next_segment, next_file, next_seq) = (SegmentId(1), FileId(1), Seq(1));
        Self { identity, next_segment, next_file, next_seq, ..Self::default() }
    }

    /// The open segment.
    pub(crate) fn open_segment(&self) -> Option<(SegmentId, Facts)> {
        self.segments
            .last_key_value()
            .filter(|(_, facts)| facts.sealed.is_none())
            .map(|(id, facts)| (*id, *facts))
    }

    /// Bytes that the segments' files take.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.segments.values().map(|facts| facts.size_bytes).sum()
    }

    /// Takes what `entry` says in.
    ///
    /// # Errors
    /// What contradicts the entries before it.
    pub(crate) fn apply(&mut self, entry: &Entry, time_ms: u64) -> Result<(), Contradiction> {
        self.time_ms = self.time_ms.max(time_ms);
        check_numbers(entry)?;
        match entry {
            Entry::Folder { folder, next_segment, next_file, next_seq, content } => {
                (self.content_version, self.content_reader_version_min) = *content;
                self.identity.folder = *folder;
                self.next_segment = *next_segment;
                self.next_file = *next_file;
                self.next_seq = *next_seq;
            }
            Entry::HashKey { hash_key, hash_bits } => {
                self.identity.hash_key = *hash_key;
                self.identity.hash_bits = *hash_bits;
            }
            Entry::Prepared { file, size_bytes: GONE_SIZE_BYTES, .. } => drop(self.prepared.remove(file)),
            Entry::Prepared { file, size_bytes, zeroed } => {
                self.next_file = self.next_file.max(FileId(file.0 + 1));
                self.prepared.insert(*file, Prepared { size_bytes: *size_bytes, zeroed: *zeroed });
            }
            Entry::Open { segment, file, first_lsn, size_bytes } => {
                self.apply_open(*segment, *file, *first_lsn, *size_bytes)?;
            }
            Entry::Sealed(sealed) => {
                let facts = self.facts_mut(sealed.segment)?;
                if facts.sealed.is_some() || sealed.first_lsn != facts.first_lsn {
                    return Err(Contradiction::Sealed(sealed.segment));
                }
                if sealed.end_bytes > facts.size_bytes {
                    return Err(Contradiction::Beyond(sealed.segment));
                }
                facts.sealed = Some(*sealed);
                self.next_seq = self.next_seq.max(sealed.next_seq);
            }
            Entry::Footed { segment, footer } => self.facts_mut(*segment)?.footer = Some(*footer),
            Entry::Freed { segment } => {
                self.segments.remove(segment).ok_or(Contradiction::Freed(*segment))?;
            }
            Entry::Checkpoint(checkpoint) => self.checkpoint = Some(checkpoint.clone()),
            Entry::Closed { segment, last_lsn, end_bytes, next_seq } => {
                let (last_lsn, end_bytes, next_seq) = (*last_lsn, *end_bytes, *next_seq);
                self.closed = Some(Closed { segment: *segment, last_lsn, end_bytes, next_seq });
            }
        }
        Ok(())
    }

    /// The entries that say all of this, in an order that [`State::apply`] accepts.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let identity = &self.identity;
        let mut entries = vec![
            Entry::Folder {
                folder: identity.folder,
                next_segment: self.next_segment,
                next_file: self.next_file,
                next_seq: self.next_seq,
                content: (self.content_version, self.content_reader_version_min),
            },
            Entry::HashKey { hash_key: identity.hash_key, hash_bits: identity.hash_bits },
        ];
        for (segment, facts) in &self.segments {
            let (segment, file) = (*segment, facts.file);
            let (first_lsn, size_bytes) = (facts.first_lsn, facts.size_bytes);
            entries.push(Entry::Open { segment, file, first_lsn, size_bytes });
            entries.extend(facts.sealed.map(Entry::Sealed));
            entries.extend(facts.footer.map(|footer| Entry::Footed { segment, footer }));
        }
        entries.extend(self.prepared.iter().map(|(file, prepared)| Entry::Prepared {
            file: *file,
            size_bytes: prepared.size_bytes,
            zeroed: prepared.zeroed,
        }));
        entries.extend(self.checkpoint.clone().map(Entry::Checkpoint));
        entries.extend(self.closed.map(|closed| Entry::Closed {
            segment: closed.segment,
            last_lsn: closed.last_lsn,
            end_bytes: closed.end_bytes,
            next_seq: closed.next_seq,
        }));
        entries
    }

    fn apply_open(
        &mut self,
        segment: SegmentId,
        file: FileId,
        first_lsn: Lsn,
        size_bytes: u64,
    ) -> Result<(), Contradiction> {
        if let Some((last, facts)) = self.segments.last_key_value() {
            let follows = facts.sealed.is_some_and(|sealed| sealed.last_lsn < first_lsn);
            if segment <= *last || !follows {
                return Err(Contradiction::Opened { segment, last: *last });
            }
        }
        self.prepared.remove(&file);
        self.next_segment = self.next_segment.max(SegmentId(segment.0 + 1));
        self.next_file = self.next_file.max(FileId(file.0 + 1));
        self.closed = None;
        let facts = Facts { file, size_bytes, first_lsn, sealed: None, footer: None };
        self.segments.insert(segment, facts);
        Ok(())
    }

    fn facts_mut(&mut self, segment: SegmentId) -> Result<&mut Facts, Contradiction> {
        self.segments.get_mut(&segment).ok_or(Contradiction::Unknown(segment))
    }
}

/// What an entry contradicts: itself, or the entries before it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Contradiction {
    #[error("segment {0} is sealed twice or with another first lsn")]
    Sealed(SegmentId),
    #[error("segment {0} ends beyond its file")]
    Beyond(SegmentId),
    #[error("unknown segment {0} is freed")]
    Freed(SegmentId),
    #[error("segment {segment} is opened while {last} is not sealed, or out of order")]
    Opened { segment: SegmentId, last: SegmentId },
    #[error("unknown segment {0}")]
    Unknown(SegmentId),
    #[error("an entry with numbers that cannot be: {0:?}")]
    Numbers(Entry),
}

/// Whether the entry's own numbers can be true, so that nobody after this need fear to count on from them.
fn check_numbers(entry: &Entry) -> Result<(), Contradiction> {
    let possible = match entry {
        Entry::Folder { next_segment, next_file, next_seq, .. } => {
            is_number(next_segment.0) && is_number(next_file.0) && is_ordinal(next_seq.0)
        }
        Entry::Prepared { file, size_bytes, .. } => is_file(*file, *size_bytes),
        Entry::Open { segment, file, first_lsn, size_bytes } => {
            is_number(segment.0) && is_file(*file, *size_bytes) && is_ordinal(first_lsn.0)
        }
        Entry::Sealed(sealed) => {
            let counts = sealed.first_lsn.0.checked_add(sealed.records.into());
            is_ordinal(sealed.first_lsn.0)
                && is_ordinal(sealed.next_seq.0)
                && counts == sealed.last_lsn.0.checked_add(1)
                && sealed.end_bytes >= SEGMENT_HEADER_SIZE_BYTES
        }
        Entry::Footed { footer, .. } => footer.offset_bytes.checked_add(footer.len_bytes).is_some(),
        Entry::Closed { last_lsn, next_seq, .. } => last_lsn.0 < ORDINAL_MAX && is_ordinal(next_seq.0),
        Entry::Freed { .. } | Entry::Checkpoint(_) | Entry::HashKey { .. } => true,
    };
    if possible { Ok(()) } else { Err(Contradiction::Numbers(entry.clone())) }
}

fn is_ordinal(number: u64) -> bool {
    (1..ORDINAL_MAX).contains(&number)
}

fn is_file(file: FileId, size_bytes: u64) -> bool {
    let sizes = SEGMENT_HEADER_SIZE_BYTES..=FILE_SIZE_BYTES_MAX;
    is_number(file.0) && sizes.contains(&size_bytes)
}

fn is_number(number: u32) -> bool {
    (1..NUMBER_MAX).contains(&number)
}

/// Segments and files of one folder have numbers below this; 2^32 is further than a start counts on from it.
const NUMBER_MAX: u32 = u32::MAX - (1 << 24);
/// A folder with fewer numbers left is refused when it is read: a server that runs asserts that there is a next one.
const NUMBERS_LEFT_MIN: u32 = 1 << 24;

/// A file of entries, zeroes behind them.
#[derive(Debug)]
struct Pages {
    file: Arc<dyn File>,
    /// Entries that were said.
    entries: usize,
    /// Entries that the file has blocks for.
    room: usize,
}

impl Pages {
    /// Makes room for more entries behind the last; what the file says stays as it is.
    fn lengthen(&mut self) -> std::io::Result<()> {
        let end = self.room * MANIFEST_ENTRY_SIZE_BYTES;
        write_full(&*self.file, &vec![0; ENTRIES_ROOM * MANIFEST_ENTRY_SIZE_BYTES], end as u64)?;
        self.file.sync_data()?;
        self.room += ENTRIES_ROOM;
        Ok(())
    }

    /// Whether there is room for `count` entries.
    fn fits(&self, count: usize) -> bool {
        self.entries + count <= self.room
    }
}

/// The file, open for what this process says.
#[derive(Debug)]
pub(crate) struct Manifest {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Open, so that a new file's name becomes durable whatever descriptors are left.
    folder: Arc<dyn Folder>,
    pages: Pages,
    state: State,
    /// Room for the next file is kept.
    keeps_room: bool,
    /// A write or sync failed: what the file holds is unknown, nothing more is said.
    failed: bool,
}

impl Manifest {
    /// Writes a new manifest that says `state` in place of whatever there is.
    ///
    /// # Errors
    /// [`JournalError::Failed`]; the old manifest may then be in place or not.
    pub(crate) fn create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        state: State,
        time_ms: u64,
    ) -> Result<Self, JournalError> {
        let failed = |error| JournalError::failed("writing MANIFEST", error);
        let folder = vfs.open_dir(dir).map_err(failed)?;
        let pages = write_whole(&*vfs, dir, &*folder, &state, time_ms).map_err(failed)?;
        let dir = dir.to_path_buf();
        Ok(Self { vfs, dir, folder, pages, state, keeps_room: false, failed: false })
    }

    /// Keeps room for the next file, if the disk has some: whoever goes on to say more may meet a full disk.
    pub(crate) fn keep_room(&mut self) {
        self.keeps_room = keep_room(&*self.vfs, &self.dir, &*self.folder, self.pages.room);
    }

    /// What has been said.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Says `entries`, durably and in one write.
    ///
    /// # Errors
    /// [`JournalError::Failed`]: final, as any failed sync; every later call fails, too.
    ///
    /// # Panics
    /// If an entry contradicts what was said before: our own bug.
    pub(crate) fn say(&mut self, entries: &[Entry], time_ms: u64) -> Result<(), JournalError> {
        assert!(entries.len() <= ENTRIES_TOGETHER_MAX, "more entries than a torn write may leave");
        if self.failed {
            let message = "writing MANIFEST failed before: the journal has stopped";
            return Err(JournalError::Invalid(message.into()));
        }
        let said = self.try_say(entries, time_ms);
        self.failed = said.is_err();
        said.map_err(|error| JournalError::failed("writing MANIFEST", error))
    }

    fn try_say(&mut self, entries: &[Entry], time_ms: u64) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(entries.len() * MANIFEST_ENTRY_SIZE_BYTES);
        for (n, entry) in entries.iter().enumerate() {
            self.state.apply(entry, time_ms).expect("the journal says only what follows from what it said");
            bytes.extend_from_slice(&entry.encode((self.pages.entries + n) as u64, time_ms));
        }
        if !self.keeps_room && self.pages.entries.is_multiple_of(KEEP_ROOM_ENTRIES) {
            self.keep_room();
        }
        if !self.pages.fits(entries.len()) {
            match write_whole(&*self.vfs, &self.dir, &*self.folder, &self.state, time_ms) {
                // nothing was written: it is tried again when this room is used up, too
                Err(error) if lacks_descriptors(&error) => self.pages.lengthen()?,
                pages => {
                    self.pages = pages?;
                    self.keep_room();
                    return Ok(());
                }
            }
        }
        let offset = self.pages.entries * MANIFEST_ENTRY_SIZE_BYTES;
        write_full(&*self.pages.file, &bytes, offset as u64)?;
        self.pages.file.sync_data()?;
        self.pages.entries += entries.len();
        Ok(())
    }

    /// Takes the number of a new file.
    pub(crate) fn take_file_id(&mut self) -> FileId {
        let id = self.state.next_file;
        self.state.next_file = FileId(id.0 + 1);
        id
    }
}

/// Reads the manifest in `dir`; `None` when there is none.
///
/// # Errors
/// [`JournalError::Damaged`] with the offset of the first entry that is neither whole nor absent, or contradicts
/// others; [`JournalError::Newer`].
pub(crate) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<State>, JournalError> {
    let path = dir.join(MANIFEST_NAME);
    let failed = |error| JournalError::failed("reading MANIFEST", error);
    let file = match vfs.open(&path, OpenOptions::default()) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let len = file.len().map_err(failed)?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(BYTES_MAX)];
    file.drop_cache(0, len).map_err(failed)?;
    let filled = read_full(&*file, &mut bytes, 0).map_err(failed)?;
    decode(&bytes[..filled], &path.display().to_string()).map(Some)
}

/// Folds a manifest's bytes. Entries are whole or absent (all zero): 64 divides the sector. From the first
/// absent one on, what was written by one torn write is ignored: its sync never returned. So is a last entry that ends
/// before its time: a write that was cut short.
pub(crate) fn decode(bytes: &[u8], file: &str) -> Result<State, JournalError> {
    let mut state = State::default();
    let (chunks, rest) = bytes.as_chunks::<MANIFEST_ENTRY_SIZE_BYTES>();
    let is_zero = |chunk: &[u8; MANIFEST_ENTRY_SIZE_BYTES]| chunk.iter().all(|byte| *byte == 0);
    let used = chunks.iter().position(is_zero).unwrap_or(chunks.len());
    let behind = chunks[used..].iter().filter(|chunk| !is_zero(chunk)).count();
    let damaged = |index: usize, what: String| {
        JournalError::damaged(file, (index * MANIFEST_ENTRY_SIZE_BYTES) as u64, what)
    };
    if used < 2 {
        return Err(damaged(used, "the folder's identity is missing".into()));
    }
    if behind >= ENTRIES_TOGETHER_MAX {
        return Err(damaged(used, format!("{behind} manifest entries behind an absent one")));
    }
    for (index, chunk) in chunks[..used].iter().enumerate() {
        let last_and_cut = index + 1 == used && behind == 0 && chunk[TIME_AT..] == [0; 8];
        let (entry, time_ms) = match Entry::decode(chunk, index as u64) {
            Ok(decoded) => decoded,
            Err(HeaderError::Bad) if last_and_cut => {
                tracing::warn!(file, index, "manifest ends in a part of an entry: ignored as torn");
                break;
            }
            Err(HeaderError::Bad) => return Err(damaged(index, "manifest entry does not verify".into())),
            Err(HeaderError::Newer(reader_version_min)) => {
                return Err(JournalError::Newer { file: file.into(), reader_version_min, version: VERSION });
            }
        };
        let first_two =
            matches!((&entry, index), (Entry::Folder { .. }, 0) | (Entry::HashKey { .. }, 1) | (_, 2..));
        if !first_two {
            return Err(damaged(index, "manifest does not begin with the folder's identity".into()));
        }
        state.apply(&entry, time_ms).map_err(|what| damaged(index, what.to_string()))?;
    }
    if rest.iter().any(|byte| *byte != 0) && rest.len() >= 8 {
        tracing::warn!(file, bytes = rest.len(), "manifest ends in a part of an entry: ignored as torn");
    }
    let next = state.next_segment.0.max(state.next_file.0);
    if next > NUMBER_MAX - NUMBERS_LEFT_MIN {
        return Err(damaged(used, format!("segments or files up to number {next}: too few are left")));
    }
    Ok(state)
}

/// Keeps room for the next file, of `room` entries, if there is some; returns whether it is kept, durably.
fn keep_room(vfs: &dyn Vfs, dir: &Path, folder: &dyn Folder, room: usize) -> bool {
    let bytes = (room * MANIFEST_ENTRY_SIZE_BYTES) as u64;
    let kept = open_temporary(vfs, dir).and_then(|file| {
        file.allocate(0, bytes)?;
        file.sync_data()?;
        folder.sync()
    });
    kept.is_ok()
}

/// The file that becomes the next manifest: nothing reads it under this name.
fn open_temporary(vfs: &dyn Vfs, dir: &Path) -> std::io::Result<Arc<dyn File>> {
    let (path, there) = (dir.join(TEMPORARY_NAME), OpenOptions { write: true, ..OpenOptions::default() });
    match vfs.open(&path, there) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            vfs.open(&path, OpenOptions { create_new: true, ..there })
        }
        opened => opened,
    }
}

/// Writes a whole file, with room for as many entries again as the state needs, and gives it its name.
/// Lacks a descriptor only as long as nothing is changed.
fn write_whole(
    vfs: &dyn Vfs,
    dir: &Path,
    folder: &dyn Folder,
    state: &State,
    time_ms: u64,
) -> std::io::Result<Pages> {
    let entries = state.entries();
    let encoded =
        entries.iter().enumerate().flat_map(|(n, entry)| entry.encode(n as u64, time_ms.max(state.time_ms)));
    let mut bytes: Vec<u8> = encoded.collect();
    let room = ENTRIES_ROOM.max(2 * entries.len());
    bytes.resize(room * MANIFEST_ENTRY_SIZE_BYTES, 0);
    let file = open_temporary(vfs, dir)?;
    write_full(&*file, &bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_data()?;
    vfs.rename(&dir.join(TEMPORARY_NAME), &dir.join(MANIFEST_NAME))?;
    folder.sync()?;
    Ok(Pages { file, entries: entries.len(), room })
}

/// No manifest is longer: it is rewritten far earlier.
const BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use vfs::SimDisk;
    use vfs::sim::{Effect, Fault, Kinds};

    use super::*;

    const DIR: &str = "/data";

    /// The fuzzer found it: a start took the number behind that of the last file, and overflowed.
    #[test]
    fn numbers_that_leave_none_to_count_on_to_are_refused() {
        let mut state = State::default();
        for file in [0, NUMBER_MAX, u32::MAX - 1, u32::MAX] {
            let entry = Entry::Prepared { file: FileId(file), size_bytes: 1 << 20, zeroed: true };
            assert!(state.apply(&entry, 1).is_err(), "file {file}");
        }
    }

    /// A start would have taken the last number, and a server that runs would have ended with the next one.
    #[test]
    fn folder_with_few_numbers_left_is_refused_when_it_is_read() {
        let read = |next: u32| {
            let mut state = State::new(Identity { folder: 7, hash_key: 8, hash_bits: 128 });
            state.next_file = FileId(next);
            let entries = state.entries();
            let bytes: Vec<u8> =
                entries.iter().enumerate().flat_map(|(n, entry)| entry.encode(n as u64, 1)).collect();
            decode(&bytes, MANIFEST_NAME).map(|state| state.next_file)
        };
        let most = NUMBER_MAX - NUMBERS_LEFT_MIN;
        assert_eq!(read(most).expect("enough are left"), FileId(most));
        let error = read(most + 1).expect_err("too few are left").to_string();
        assert!(error.contains("too few are left"), "{error}");
    }

    /// A manifest of a folder with `prepared` files, and its disk.
    fn manifest(prepared: u32) -> (SimDisk, Manifest) {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new(DIR)).expect("a folder");
        let mut state = State::new(Identity { folder: 1, hash_key: 2, hash_bits: 128 });
        for file in 1..=prepared {
            let prepared = Entry::Prepared { file: FileId(file), size_bytes: 1 << 20, zeroed: true };
            state.apply(&prepared, 1).expect("files follow each other");
        }
        let manifest = Manifest::create(Arc::new(disk.clone()), Path::new(DIR), state, 1).expect("no fault");
        (disk, manifest)
    }

    /// Says `count` entries that follow from nothing but themselves.
    fn say(manifest: &mut Manifest, count: u64) {
        for lsn in 1..=count {
            let checkpoint = Checkpoint { name: "checkpoint".to_owned(), lsn: Lsn(lsn) };
            manifest.say(&[Entry::Checkpoint(checkpoint)], lsn).expect("no fault");
        }
    }

    /// Entries were appended to a growing file: each sync had to make a new length durable, by a commit of the file
    /// system's journal. A power loss was seen to take acknowledged writes back, as if the newest entries were gone.
    #[test]
    fn entries_overwrite_what_was_written_ahead() {
        let (disk, mut manifest) = manifest(3);
        let length = disk.files()[0].1;
        assert_eq!(length, (ENTRIES_ROOM * MANIFEST_ENTRY_SIZE_BYTES) as u64);
        say(&mut manifest, 100);
        let path = |name| Path::new(DIR).join(name);
        assert_eq!(disk.files(), [(path(MANIFEST_NAME), length), (path(TEMPORARY_NAME), length)]);
        assert_eq!(read(&disk, Path::new(DIR)).expect("good").as_ref(), Some(manifest.state()));
    }

    /// A server on a disk that others had filled ended when its manifest was full.
    #[test]
    fn full_file_is_rewritten_on_a_disk_without_room() {
        let (disk, mut manifest) = manifest(3);
        manifest.keep_room();
        disk.set_capacity(disk.used_bytes());
        for _ in 0..3 {
            say(&mut manifest, ENTRIES_ROOM as u64);
            assert_eq!(
                read(&disk.crash_copy(1), Path::new(DIR)).expect("good").as_ref(),
                Some(manifest.state())
            );
        }
    }

    #[test]
    fn full_file_is_rewritten_and_reads_the_same() {
        let (disk, mut manifest) = manifest(3);
        say(&mut manifest, ENTRIES_ROOM as u64 + 10);
        assert_eq!(disk.operations(Kinds::CREATE), 3, "the room of the next one is kept");
        assert_eq!(read(&disk, Path::new(DIR)).expect("good").as_ref(), Some(manifest.state()));
    }

    /// The limit of open files, met when the file was full, ended the server: a failed entry is final.
    #[test]
    fn full_file_without_a_descriptor_gets_more_room_and_is_rewritten_later() {
        let (disk, mut manifest) = manifest(3);
        say(&mut manifest, ENTRIES_ROOM as u64 - 10);
        disk.plan(Fault::at(1, Effect::Emfile).of(Kinds::OPEN | Kinds::CREATE).repeated());
        say(&mut manifest, 20);
        let (_, length) = disk.files()[0].clone();
        assert_eq!(length, 2 * MANIFEST_SIZE_BYTES);
        for seed in 0..20 {
            let found = read(&disk.crash_copy(seed), Path::new(DIR)).expect("good");
            assert_eq!(found.as_ref(), Some(manifest.state()), "seed {seed}");
        }
        disk.clear_faults();
        say(&mut manifest, ENTRIES_ROOM as u64);
        assert_eq!(disk.files()[0], (Path::new(DIR).join(MANIFEST_NAME), MANIFEST_SIZE_BYTES));
        assert_eq!(read(&disk.crash(1), Path::new(DIR)).expect("good").as_ref(), Some(manifest.state()));
    }

    /// Power that fails while room is added leaves what was said before.
    #[test]
    fn crash_while_a_full_file_gets_more_room_keeps_what_was_said() {
        for nth in 1..=4 {
            let (disk, mut manifest) = manifest(3);
            let left = ENTRIES_ROOM - manifest.pages.entries;
            say(&mut manifest, left as u64);
            let before = manifest.state().clone();
            disk.plan(Fault::at(1, Effect::Emfile).of(Kinds::OPEN | Kinds::CREATE));
            disk.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::WRITE | Kinds::SYNC));
            let checkpoint = Checkpoint { name: "checkpoint".to_owned(), lsn: Lsn(u64::from(u32::MAX)) };
            manifest.say(&[Entry::Checkpoint(checkpoint)], 1).expect_err("the power is off");
            for seed in 0..20 {
                let found = read(&disk.crash_copy(seed), Path::new(DIR)).expect("good").expect("there");
                let is_either = found == before || (nth > 2 && found == *manifest.state());
                assert!(is_either, "operation {nth}, seed {seed}: {found:?}");
            }
        }
    }

    /// A state of more entries than the file had room for was written whole for every further entry.
    #[test]
    fn state_above_the_usual_room_gets_twice_what_it_needs() {
        let (disk, mut manifest) = manifest(ENTRIES_ROOM as u32 + 1);
        say(&mut manifest, 1_000);
        assert_eq!(disk.operations(Kinds::CREATE), 2, "the room of the next one is kept");
        assert_eq!(read(&disk, Path::new(DIR)).expect("good").as_ref(), Some(manifest.state()));
    }

    #[test]
    fn manifest_without_zeroes_behind_it_still_reads() {
        let (_, manifest) = manifest(3);
        let entries = manifest.state().entries();
        let bytes: Vec<u8> =
            entries.iter().enumerate().flat_map(|(n, entry)| entry.encode(n as u64, 1)).collect();
        assert_eq!(&decode(&bytes, "MANIFEST").expect("as version 1 wrote it"), manifest.state());
    }
}
