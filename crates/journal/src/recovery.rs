//! Start: reads what is there, decides, makes the tail safe to go on from, and only then serves.
//!
//! ```text
//! lock -> manifest -> headers of all files -> open segment's tail -> copy it to a fresh file -> new manifest -> clean up
//! ```
//!
//! Invariants
//!   1. Nothing is written before everything was read and found good, and the manifest that was read is durable.
//!   2. Nothing that was found is appended to: the tail's valid part goes to a fresh file, byte for byte at the same
//!      offsets and under the same segment number, so every address stays true.
//!   3. One rename (the manifest's) switches from the old state to the new one; a crash before or after it starts again.
//!
//! Source: docs/adr/0001-record-batch-segment-manifest-checkpoint-identity.md.

pub(crate) mod content;
pub(crate) mod found;
pub(crate) mod settle;
pub(crate) mod tail;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use clock::Clock;
use vfs::{File, FileLock, OpenOptions, Vfs};

use crate::admission::{Admission, promise_bytes};
use crate::backend;
use crate::committer::{Committer, Position};
use crate::core::{Core, OpenSegment, Resume};
use crate::error::{JournalError, ReadError};
use crate::footer;
use crate::format::footer_chunk::FooterEntry;
use crate::format::manifest_entry::Checkpoint;
use crate::format::record::RecordHeader;
use crate::format::segment_header::Identity;
use crate::format::{SEGMENT_HEADER_SIZE_BYTES, Salt};
use crate::journal::{Journal, SegmentInfo, info};
use crate::manifest::Manifest;
use crate::options::Options;
use crate::preparer::Preparer;
use crate::scan::{Extent, RecordView, Scanner, read_record};
use crate::segment::ReadyFile;
use crate::shared::{Hooks, LOCK_NAME, Pins, Progress, Shared};
use crate::thread::{Driver, spawn};
use crate::types::{LogAddress, Lsn, SegmentId, Seq};
pub use tail::Torn;

/// Batches close at this many bytes; larger groups get a batch of their own size.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Where the open segment stands after start.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) segment: SegmentId,
    pub(crate) end_bytes: u64,
    pub(crate) records: u32,
    pub(crate) prev_crc: u32,
    pub(crate) next_lsn: Lsn,
    pub(crate) next_seq: Seq,
    pub(crate) time_ms: u64,
    /// What the file holds of the block in which the next batch begins.
    pub(crate) prefix: Vec<u8>,
}

/// A folder that was found good (or made), ready to be scanned and then started.
#[derive(Debug)]
pub struct Recovery {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// Size of new files, until the log grows.
    pub(crate) file_size_bytes: u64,
    pub(crate) lock: Box<dyn FileLock>,
    pub(crate) manifest: Manifest,
    pub(crate) standing: Standing,
    pub(crate) clean: bool,
    pub(crate) torn: Option<Torn>,
    pub(crate) handles: HashMap<SegmentId, Arc<dyn File>>,
}

impl Journal {
    /// Opens the folder `dir`, or makes it: reads what is there, decides, and makes the tail safe to go on from.
    ///
    /// # Errors
    /// [`JournalError`]: locked, newer, damaged (with file and offset), disk full, or a failed read or write.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: Options,
    ) -> Result<Recovery, JournalError> {
        options.validate()?;
        let lock = lock(&*vfs, dir)?;
        let found = found::read(&*vfs, dir)?;
        if let Some(found) = &found {
            content::refuse_unknown(&*vfs, dir, found, &options.content)?;
        }
        settle::settle(vfs, clock, dir, options, lock, found)
    }
}

/// Locks `dir` against every other server, making it if need be.
pub(crate) fn lock(vfs: &dyn Vfs, dir: &Path) -> Result<Box<dyn FileLock>, JournalError> {
    let name = dir.display().to_string();
    vfs.create_dir_all(dir).map_err(|error| JournalError::failed(format!("making {name}"), error))?;
    vfs.lock(&dir.join(LOCK_NAME)).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => JournalError::Locked { dir: name },
        _ => JournalError::failed(format!("locking {name}"), error),
    })
}

impl Recovery {
    /// Whose folder it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.manifest.state().identity
    }

    /// The newest checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.manifest.state().checkpoint.as_ref()
    }

    /// The newest time that the journal states, Unix milliseconds; 0 in a new folder.
    #[must_use]
    pub fn newest_time_ms(&self) -> u64 {
        self.standing.time_ms
    }

    /// The lsn that the next record gets.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.standing.next_lsn
    }

    /// The seq that the next record gets.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.standing.next_seq
    }

    /// Whether the last stop was clean (or the folder is new).
    #[must_use]
    pub fn clean(&self) -> bool {
        self.clean
    }

    /// What was cut off the tail because it never became durable.
    #[must_use]
    pub fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// All segments, oldest first; the last one is open.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let mut infos: Vec<_> =
            self.manifest.state().segments.iter().map(|(id, facts)| info(*id, facts)).collect();
        if let Some(open) = infos.last_mut() {
            open.last_lsn = Lsn(self.standing.next_lsn.0 - 1);
            open.records = self.standing.records.into();
            open.end_bytes = self.standing.end_bytes;
        }
        infos
    }

    /// The footer of `segment`, one entry for each record in lsn order; `None` when it has none, or when it
    /// does not verify (then a warning says so, and the segment is scanned instead).
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for an unknown segment, [`JournalError::Failed`] when reading fails.
    pub fn read_footer(&self, segment: SegmentId) -> Result<Option<Vec<FooterEntry>>, JournalError> {
        let (file, _) = self.file_of(segment)?;
        let facts = &self.manifest.state().segments[&segment];
        let footer = facts.footer.filter(|footer| !footer.is_given_back());
        let (Some(address), Some(sealed)) = (footer, facts.sealed) else { return Ok(None) };
        let salt = Salt::new(self.identity().folder, segment);
        let read = footer::read(&**file, segment, salt, address, sealed.first_lsn)
            .map_err(|error| JournalError::failed(format!("reading {}", facts.file.file_name()), error))?;
        let is_possible = |entries: &Vec<FooterEntry>| entries.iter().all(|it| it.seq < sealed.next_seq);
        let read = read.filter(is_possible);
        if read.is_none() {
            tracing::error!(segment = segment.0, "footer is damaged: the segment is read whole instead");
        }
        Ok(read)
    }

    /// Hands out the records of `segment` from lsn `from` on, in order, each one verified.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] with file and offset, [`JournalError::Failed`] when reading fails.
    pub fn scan(
        &self,
        segment: SegmentId,
        from: Lsn,
        f: &mut dyn FnMut(RecordView<'_>),
    ) -> Result<(), JournalError> {
        let mut scanner = self.scanner(segment)?;
        let mut from_on = |view: RecordView<'_>| {
            if view.lsn >= from {
                f(view);
            }
        };
        while scanner.slice(u64::MAX / 2, &mut from_on)? {}
        Ok(())
    }

    /// Reads the record at `address`, as [`Journal::read`] does.
    ///
    /// # Errors
    /// [`ReadError`]; every checksum was verified when there is none.
    pub fn read(
        &self,
        address: LogAddress,
        expected_len: usize,
        payload: &mut Vec<u8>,
    ) -> Result<RecordHeader, ReadError> {
        let file = self.handles.get(&address.segment()).ok_or(ReadError::Gone(address.segment()))?;
        let salt = Salt::new(self.identity().folder, address.segment());
        read_record(&**file, salt, address, expected_len, payload, &mut |_| ())
    }

    /// A walk over the records of `segment`, the open one included.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for an unknown segment.
    pub fn scanner(&self, segment: SegmentId) -> Result<Scanner, JournalError> {
        let (file, info) = self.file_of(segment)?;
        let extent = Extent {
            segment,
            salt: Salt::new(self.identity().folder, segment),
            first_lsn: info.first_lsn,
            end_bytes: info.end_bytes,
            file_name: info.file.file_name(),
        };
        Ok(Scanner::new(Arc::clone(file), extent))
    }

    /// Starts the journal on threads of its own.
    ///
    /// # Errors
    /// [`JournalError::Failed`] when a file cannot be opened or a thread not be started.
    pub fn start(self, hooks: Hooks) -> Result<Arc<Journal>, JournalError> {
        let (mut journal, driver) = self.assemble(hooks)?;
        let threads = spawn(&journal.shared, &journal.lock, driver.committer, driver.preparer)?;
        journal.threads = Mutex::new(threads);
        Ok(Arc::new(journal))
    }

    /// Starts the journal without threads: the driver does its work when it is called.
    ///
    /// # Errors
    /// [`JournalError::Failed`] when a file cannot be opened.
    pub fn start_manual(self, hooks: Hooks) -> Result<(Arc<Journal>, Driver), JournalError> {
        let (journal, driver) = self.assemble(hooks)?;
        Ok((Arc::new(journal), driver))
    }

    fn file_of(&self, segment: SegmentId) -> Result<(&Arc<dyn File>, SegmentInfo), JournalError> {
        let unknown = || JournalError::Invalid(format!("unknown segment {segment}"));
        let file = self.handles.get(&segment).ok_or_else(unknown)?;
        let info = self.segments().into_iter().find(|info| info.segment == segment).ok_or_else(unknown)?;
        Ok((file, info))
    }

    fn assemble(self, hooks: Hooks) -> Result<(Journal, Driver), JournalError> {
        let facts = self.manifest.state().segments[&self.standing.segment];
        let path = self.dir.join(facts.file.file_name());
        let (writer, backend) = backend::choose(self.options.backend, self.options.sync, &*self.vfs, &path);
        let file = self
            .vfs
            .open(&path, writer.open_options())
            .map_err(|error| JournalError::failed(format!("opening {}", path.display()), error))?;
        let standing = self.standing.clone();
        let ready = self.open_ready(writer.open_options())?;
        let (shared, lock) = self.into_shared(hooks, ready, writer.open_options());
        let position = Position {
            segment: standing.segment,
            prev_crc: standing.prev_crc,
            time_ms: standing.time_ms,
            prefix: standing.prefix,
        };
        let committer = Committer::new(Arc::clone(&shared), writer, file, &position)?;
        let preparer = Preparer::new(Arc::clone(&shared));
        let committer = Arc::new(Mutex::new(committer));
        let journal = Journal {
            shared,
            committer: Arc::clone(&committer),
            is_led_here: AtomicBool::new(false),
            backend,
            threads: Mutex::default(),
            lock,
        };
        Ok((journal, Driver { committer, preparer }))
    }

    /// The files that wait for rolls.
    fn open_ready(&self, options: OpenOptions) -> Result<Vec<ReadyFile>, JournalError> {
        let prepared = self.manifest.state().prepared.iter();
        let opened = prepared.map(|(id, prepared)| {
            ReadyFile::open(&*self.vfs, &self.dir, *id, prepared.size_bytes, prepared.zeroed, options)
                .map_err(|error| JournalError::failed(format!("opening {}", id.file_name()), error))
        });
        opened.collect()
    }

    fn into_shared(
        self,
        hooks: Hooks,
        ready: Vec<ReadyFile>,
        open_options: OpenOptions,
    ) -> (Arc<Shared>, Arc<dyn FileLock>) {
        let Self { vfs, clock, dir, options, lock, manifest, standing, handles, file_size_bytes, .. } = self;
        let state = manifest.state();
        let facts = state.segments[&standing.segment];
        let mut segment = OpenSegment::resumed(
            standing.segment,
            facts.size_bytes,
            facts.first_lsn,
            standing.records,
            standing.end_bytes,
        );
        // A large group that cuts it short has paid for a new file's promise, which may be smaller.
        segment.promise = segment.promise.min(promise_bytes(file_size_bytes));
        let resume = Resume {
            segment,
            end_bytes: standing.end_bytes,
            next_lsn: standing.next_lsn,
            next_seq: standing.next_seq,
            next_segment: state.next_segment,
        };
        let batch_bytes = BATCH_BYTES_MAX.min(options.segment_size_bytes as usize / 4);
        let mut core = Core::new(state.identity.folder, resume, batch_bytes);
        let open_size_bytes = if segment.closed { u64::MAX } else { segment.size_bytes };
        let preparer = Arc::<crate::wake::Wake>::default();
        let admission = Admission::new(
            options.buffer_bytes_max,
            options.reserve_segments,
            file_size_bytes,
            open_size_bytes,
            Arc::clone(&preparer),
        );
        admission.add_room(segment.promise);
        for file in ready {
            admission.add_room(promise_bytes(file.size_bytes));
            core.add_ready(file);
        }
        let written = LogAddress::new(standing.segment, standing.end_bytes);
        let progress = Progress::resumed(standing.next_lsn, standing.next_seq, written);
        let lock: Arc<dyn FileLock> = Arc::from(lock);
        let shared = Shared {
            lock: Arc::downgrade(&lock),
            identity: state.identity,
            vfs,
            clock,
            dir,
            options,
            open_options,
            core: Mutex::new(core),
            admission: Arc::new(admission),
            shortage: Mutex::default(),
            manifest: Mutex::new(manifest),
            handles: RwLock::new(handles),
            pins: Mutex::new(Pins::default()),
            progress,
            counters: crate::counters::Live::default(),
            hooks,
            committer: crate::wake::Wake::default(),
            preparer,
        };
        (Arc::new(shared), lock)
    }
}

const _: () = assert!(BATCH_BYTES_MAX as u64 > SEGMENT_HEADER_SIZE_BYTES);
