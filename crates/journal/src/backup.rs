//! A consistent copy of a running journal: sealed segments by hard link, the open one up to what is durable.
//!
//! Invariants
//!   1. The copy opens like a folder after a clean stop: its tail ends with a seal behind a batch that was durable here. Where the open segment
//!      has no room for a seal, as one that lost its power.
//!   2. What a backup copies is pinned from its beginning on, segment by segment until it is copied. Nothing pinned is recycled or
//!      trimmed; a file with a second name is never written to again but for its footer, which
//!      lies where the copy does not look.
//!
//! Out of scope: the checkpoint's own file (`store` copies it first).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use vfs::{File, OpenOptions};

use crate::error::JournalError;
use crate::format::SEGMENT_HEADER_SIZE_BYTES;
use crate::format::batch::{BATCH_HEADER_SIZE_BYTES, BATCH_SEAL, BatchHeader};
use crate::format::manifest_entry::Checkpoint;
use crate::journal::{Journal, Pin};
use crate::manifest::{Closed, Facts, Manifest, State};
use crate::recovery::tail::durable_end;
use crate::segment::{create, read_full, write_full};
use crate::types::{Lsn, SegmentId};

/// A backup that has begun: what is to be copied stays as it is, and where it is, until it is.
#[derive(Debug)]
pub struct Backup {
    durable_lsn: Lsn,
    state: State,
    /// Of each segment that is not copied yet.
    pins: BTreeMap<SegmentId, Pin>,
}

impl Journal {
    /// Begins a backup that names `checkpoint` (a file that is there) with `lsn`. Everything durable when this is called will be in the
    /// copy. Takes no time: what is to be copied is pinned, and the journal goes on.
    #[must_use]
    pub fn begin_backup(&self, checkpoint: &str, lsn: Lsn) -> Backup {
        let durable_lsn = self.durable_lsn();
        let (mut state, pins) = self.pin_all();
        state.prepared.clear();
        state.closed = None;
        state.checkpoint = Some(Checkpoint { name: checkpoint.to_owned(), lsn });
        Backup { durable_lsn, state, pins }
    }

    /// Copies what `backup` has pinned to the new folder `out`; `pace` is called after each write, with its bytes, and may wait. Blocks on
    /// I/O: not for event loops. Returns the lsn up to which the copy holds everything.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] when `out` holds a journal, [`JournalError::Failed`] when a read or write fails;
    /// this journal goes on in both cases.
    pub fn copy_backup(
        &self,
        backup: Backup,
        out: &Path,
        pace: &mut dyn FnMut(u64),
    ) -> Result<Lsn, JournalError> {
        let Backup { durable_lsn, mut state, mut pins } = backup;
        let vfs = &self.shared.vfs;
        let failed = |what: &str| {
            let action = format!("{what} {}", out.display());
            move |error: io::Error| JournalError::failed(action.clone(), error)
        };
        vfs.create_dir_all(out).map_err(failed("making"))?;
        if vfs.list(out).map_err(failed("listing"))?.iter().any(|name| name == crate::MANIFEST_NAME) {
            return Err(JournalError::Invalid(format!("{} holds a journal already", out.display())));
        }
        let mut closed = None;
        for (segment, facts) in &state.segments {
            let copied = match facts.sealed {
                Some(_) => self.link_or_copy(out, facts, pace),
                None => {
                    self.copy_open(out, *segment, facts, durable_lsn, &state, pace).map(|seal| closed = seal)
                }
            };
            copied.map_err(failed("copying a segment to"))?;
            pins.remove(segment);
        }
        state.closed = closed;
        vfs.sync_dir(out).map_err(failed("syncing"))?;
        Manifest::create(Arc::clone(vfs), out, state, self.shared.unix_ms())?;
        Ok(durable_lsn)
    }

    /// The state, with every segment in it pinned, retired ones too.
    fn pin_all(&self) -> (State, BTreeMap<SegmentId, Pin>) {
        let manifest = self.shared.manifest();
        let state = manifest.state().clone();
        let pins = state.segments.keys().map(|segment| (*segment, self.force_pin(*segment))).collect();
        (state, pins)
    }

    fn link_or_copy(&self, out: &Path, facts: &Facts, pace: &mut dyn FnMut(u64)) -> io::Result<()> {
        let (from, to) = (self.shared.path_of(facts.file), out.join(facts.file.file_name()));
        if self.shared.vfs.hard_link(&from, &to).is_ok() {
            return Ok(());
        }
        let source = self.shared.vfs.open(&from, OpenOptions::default())?;
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let target = self.shared.vfs.open(&to, options)?;
        copy(&*source, &*target, 0..facts.size_bytes - facts.trimmed_bytes(), pace)?;
        target.set_len(facts.size_bytes)?;
        target.sync_data()
    }

    /// Copies the open segment's batches up to the last one that is durable by `durable_lsn`, with a seal behind them; returns where that is.
    fn copy_open(
        &self,
        out: &Path,
        segment: SegmentId,
        facts: &Facts,
        durable_lsn: Lsn,
        state: &State,
        pace: &mut dyn FnMut(u64),
    ) -> io::Result<Option<Closed>> {
        let vfs = &self.shared.vfs;
        let source = vfs.open(&self.shared.path_of(facts.file), OpenOptions::default())?;
        let salt = self.shared.salt(segment);
        let end = durable_end(&*source, segment, salt, facts, durable_lsn)?;
        create(&**vfs, out, facts.file, facts.size_bytes, state.identity, self.shared.unix_ms())?;
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let target = vfs.open(&out.join(facts.file.file_name()), options)?;
        copy(&*source, &*target, SEGMENT_HEADER_SIZE_BYTES..end.end_bytes, pace)?;
        let closed = match &end.last {
            Some((last, prev_crc)) if end.end_bytes + BATCH_HEADER_SIZE_BYTES as u64 <= facts.size_bytes => {
                let last_lsn = Lsn(end.next_lsn.0 - 1);
                let seal = BatchHeader {
                    segment,
                    first_lsn: end.next_lsn,
                    durable_lsn: last_lsn,
                    time_ms: last.time_ms,
                    prev_crc: *prev_crc,
                    flags: BATCH_SEAL,
                    next_seq: last.next_seq,
                    ..BatchHeader::default()
                };
                let (bytes, _) = seal.encode(salt);
                write_full(&*target, &bytes, end.end_bytes)?;
                let end_bytes = end.end_bytes + bytes.len() as u64;
                Some(Closed { segment, last_lsn, end_bytes, next_seq: last.next_seq })
            }
            _ => None,
        };
        target.sync_data()?;
        Ok(closed)
    }
}

/// Copies these bytes, in chunks, of which a few at a time wait to be synced.
fn copy(
    source: &dyn File,
    target: &dyn File,
    bytes: Range<u64>,
    pace: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut at, mut synced) = (bytes.start, bytes.start);
    while at < bytes.end {
        let want = (bytes.end - at).min(CHUNK_BYTES as u64) as usize;
        let read = read_full(source, &mut buffer[..want], at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_full(target, &buffer[..read], at)?;
        at += read as u64;
        if at - synced >= UNSYNCED_BYTES_MAX {
            target.sync_data()?;
            synced = at;
        }
        pace(read as u64);
    }
    Ok(())
}

/// Background I/O is never larger.
const CHUNK_BYTES: usize = 256 * 1024;
/// What one sync of the copy has to write: the journal's syncs wait behind it.
const UNSYNCED_BYTES_MAX: u64 = 4 << 20;
