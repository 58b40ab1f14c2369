//! Segment files before they hold anything: made, opened, filled with zeroes ahead of need, taken.
//!
//! ```text
//!  create_new, allocate, header, sync, sync_dir --> ready (fallocated) --fill, sync--> ready (zero-filled)
//!                                                     \__________ taken by a roll __________/
//! ```
//!
//! Invariants
//!   1. A ready file has a synced header, all its space allocated, and a durable name.
//!   2. A ready file is open, for batches and for reading: a roll asks for no descriptor.
//!   3. Zeroes are written only under the file's [`Gate`] and only while nobody took it: what was taken holds batches.
//!
//! Filling a ready file in place means that one is always at hand the moment it is fallocated, and gets faster
//! the longer it waits: overwriting written blocks syncs in half the time, since no extent changes.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vfs::{AlignedBuffer, BLOCK_SIZE_BYTES, File, OpenOptions, Vfs};

use crate::error::JournalError;
use crate::format::segment_header::{Identity, SegmentHeader};
use crate::format::{SEGMENT_HEADER_SIZE_BYTES, align};
use crate::types::FileId;

/// A prepared file that no segment uses yet.
#[derive(Clone, Debug)]
pub(crate) struct ReadyFile {
    pub(crate) id: FileId,
    pub(crate) size_bytes: u64,
    pub(crate) gate: Arc<Gate>,
    /// For batches, opened as the backend wants it.
    pub(crate) writing: Arc<dyn File>,
    pub(crate) reading: Arc<dyn File>,
}

impl ReadyFile {
    /// Opens the file `id`, for batches with `options`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(
        vfs: &dyn Vfs,
        dir: &Path,
        id: FileId,
        size_bytes: u64,
        zeroed: bool,
        options: OpenOptions,
    ) -> io::Result<Self> {
        let path = dir.join(id.file_name());
        let (writing, reading) = (vfs.open(&path, options)?, vfs.open(&path, OpenOptions::default())?);
        let gate = Gate { taken: Mutex::new(false), zeroed: AtomicBool::new(zeroed) };
        Ok(Self { id, size_bytes, gate: Arc::new(gate), writing, reading })
    }

    /// A file for tests that never look into it.
    #[cfg(test)]
    pub(crate) fn in_a_test(id: FileId, size_bytes: u64) -> Self {
        let (disk, dir) = (vfs::SimDisk::new(1), Path::new("/data"));
        disk.create_dir_all(dir).expect("no fault");
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        disk.open(&dir.join(id.file_name()), options).expect("no fault");
        let options = OpenOptions { create_new: false, ..options };
        Self::open(&disk, dir, id, size_bytes, true, options).expect("no fault")
    }

    /// Takes the file for batches: nobody fills it from now on. Returns whether it was filled to its end.
    pub(crate) fn take(&self) -> bool {
        *self.gate.taken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.gate.zeroed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_zeroed(&self) -> bool {
        self.gate.zeroed.load(Ordering::Relaxed)
    }
}

/// Keeps filling and batches apart.
#[derive(Debug)]
pub(crate) struct Gate {
    taken: Mutex<bool>,
    zeroed: AtomicBool,
}

/// Makes the file `id` with its header, all space allocated, name durable.
///
/// # Errors
/// The system's, `StorageFull` among them; what was made is removed again.
pub(crate) fn create(
    vfs: &dyn Vfs,
    dir: &Path,
    id: FileId,
    size_bytes: u64,
    identity: Identity,
    created_ms: u64,
) -> io::Result<()> {
    let path = dir.join(id.file_name());
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = vfs.open(&path, options)?;
    let header = SegmentHeader { identity, file: id, size_bytes, created_ms };
    let made = file
        .allocate(0, size_bytes)
        .and_then(|()| write_full(&*file, &header.encode(), 0))
        .and_then(|()| file.sync_data())
        .and_then(|()| vfs.sync_dir(dir));
    if made.is_err() {
        // Best effort: the error that counts is the first one, and start removes files that nobody names.
        let _ = vfs.remove(&path);
    }
    made
}

/// Fills a file with zeroes behind its header, in chunks, and syncs it.
pub(crate) struct Filler {
    file: Arc<dyn File>,
    zeroes: AlignedBuffer,
    ready: ReadyFile,
    offset: u64,
}

impl Filler {
    /// Opens `ready` for filling, past the page cache where the file system can.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(vfs: &dyn Vfs, dir: &Path, ready: ReadyFile) -> io::Result<Self> {
        let path = dir.join(ready.id.file_name());
        let direct = OpenOptions { write: true, direct: true, ..OpenOptions::default() };
        let file =
            vfs.open(&path, direct).or_else(|_| vfs.open(&path, OpenOptions { direct: false, ..direct }))?;
        Ok(Self {
            file,
            zeroes: AlignedBuffer::zeroed(FILL_CHUNK_BYTES),
            ready,
            offset: SEGMENT_HEADER_SIZE_BYTES,
        })
    }

    /// Writes the next chunk; true when there is nothing left to do (filled and synced, or taken by a roll).
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn step(&mut self) -> io::Result<bool> {
        let taken = self.ready.gate.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return Ok(true);
        }
        if self.offset >= self.ready.size_bytes {
            drop(taken); // a sync may take long, and does no harm to batches
            self.file.sync_data()?;
            self.ready.gate.zeroed.store(true, Ordering::Relaxed);
            return Ok(true);
        }
        let len = (self.ready.size_bytes - self.offset).min(FILL_CHUNK_BYTES as u64);
        write_full(&*self.file, &self.zeroes[..len as usize], self.offset)?;
        self.offset += len;
        Ok(false)
    }

    /// How much of it is filled.
    pub(crate) fn filled_bytes(&self) -> u64 {
        self.offset
    }

    /// The file that is being filled.
    pub(crate) fn ready(&self) -> &ReadyFile {
        &self.ready
    }
}

/// Opens a file of the folder for reading.
pub(crate) fn open_reading(vfs: &dyn Vfs, dir: &Path, name: &str) -> Result<Arc<dyn File>, JournalError> {
    let path = dir.join(name);
    vfs.open(&path, OpenOptions::default()).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            JournalError::damaged(path.display().to_string(), 0, "the file is missing")
        }
        _ => JournalError::failed(format!("opening {}", path.display()), error),
    })
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// The system's; `WriteZero` when a write was short: on space that is allocated that is a fault.
pub(crate) fn write_full(file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let written = file.write_at(bytes, offset)?;
    if written == bytes.len() {
        return Ok(());
    }
    let message = format!("short write: {written} of {} B at offset {offset}", bytes.len());
    Err(io::Error::new(io::ErrorKind::WriteZero, message))
}

/// Reads up to `buffer.len()` bytes at `offset`, fewer only at the end of the file.
///
/// # Errors
/// The system's.
pub(crate) fn read_full(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Reads a file from its start to `end`, or to its own end.
///
/// # Errors
/// The system's.
pub(crate) fn read_to(file: &dyn File, end: u64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?.min(end)).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    let read = read_full(file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Turns a failed preparation into the journal's error: a full disk is no failure.
pub(crate) fn prepare_error(vfs: &dyn Vfs, dir: &Path, needed_bytes: u64, source: io::Error) -> JournalError {
    if source.kind() == io::ErrorKind::StorageFull || source.kind() == io::ErrorKind::QuotaExceeded {
        let available_bytes = vfs.space(dir).map_or(0, |space| space.available_bytes);
        return JournalError::Full { dir: dir.display().to_string(), needed_bytes, available_bytes };
    }
    JournalError::failed("preparing a segment file", source)
}

/// Whether the process or the system has no descriptor left: others may close some any time.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// One chunk of filling: background writes are never larger.
const FILL_CHUNK_BYTES: usize = 256 * 1024;

const _: () = assert!(FILL_CHUNK_BYTES.is_multiple_of(BLOCK_SIZE_BYTES));
const _: () = assert!(SEGMENT_HEADER_SIZE_BYTES as usize == BLOCK_SIZE_BYTES);

/// Where the footer of a segment goes whose batches end at `end_bytes`.
pub(crate) fn footer_offset(end_bytes: u64) -> u64 {
    // One aligned word further would do; a block of its own keeps the footer out of blocks that `direct` rewrites.
    align(end_bytes).next_multiple_of(BLOCK_SIZE_BYTES as u64)
}
