//! Writes what start decided: the tail in a fresh file, a new manifest, nothing left that nobody names.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use clock::Clock;
use vfs::{FileLock, OpenOptions, Vfs};

use super::found::{Found, FoundTail};
use super::{Recovery, Standing};
use crate::error::JournalError;
use crate::format::batch::{BATCH_STAMP, BatchHeader};
use crate::format::manifest_entry::Sealed;
use crate::format::segment_header::Identity;
use crate::format::{SEGMENT_HEADER_SIZE_BYTES, Salt};
use crate::manifest::{Facts, MANIFEST_NAME, MANIFEST_SIZE_BYTES, Manifest, Prepared, State};
use crate::options::Options;
use crate::segment::{Filler, ReadyFile, create, open_reading, prepare_error, read_full, write_full};
use crate::types::{FileId, Lsn, SegmentId};

/// Everything needed to write.
struct Settler<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    options: &'a Options,
    /// Size of new files.
    file_size_bytes: u64,
    now_ms: u64,
}

/// Turns what was found into a folder that can be served from.
pub(crate) fn settle(
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    dir: &Path,
    options: Options,
    lock: Box<dyn FileLock>,
    found: Option<Found>,
) -> Result<Recovery, JournalError> {
    let log_bytes = found.as_ref().map_or(0, |found| found.state.log_bytes());
    let wanted_bytes = options.file_size_bytes(log_bytes);
    let mut settler = Settler {
        vfs: &*vfs,
        dir,
        options: &options,
        file_size_bytes: wanted_bytes,
        now_ms: clock.unix_ms().0,
    };
    let is_short = settler.is_short()?;
    let is_new = found.is_none();
    let (mut state, tail) = match found {
        Some(found) => {
            settler.make_durable()?;
            (found.state, found.tail)
        }
        None => {
            settler.refuse_full()?;
            (State::new(settler.new_identity()?), None)
        }
    };
    let clean = is_new || tail.as_ref().is_none_or(|tail| tail.tail.sealed);
    let torn = tail.as_ref().and_then(|tail| tail.torn);
    if let Some(torn) = torn {
        tracing::warn!(
            segment = torn.segment.0,
            offset = torn.offset_bytes,
            lsn = torn.lsn.0,
            "torn tail cut: a batch that never became durable"
        );
    }
    if is_short {
        settler.file_size_bytes = settler.usual_size(&state);
    }
    let file_size_bytes = settler.file_size_bytes;
    state.prepared.retain(|_, prepared| prepared.size_bytes == file_size_bytes);
    let (standing, rest) = match tail {
        Some(found) if is_short => Settler::go_on_in_place(&mut state, &found),
        tail => (settler.open_segment(&mut state, tail)?, None),
    };
    settler.prepare_missing(&mut state)?;
    state.closed = None;
    state.time_ms = standing.time_ms;
    (state.content_version, state.content_reader_version_min) =
        (options.content.version, options.content.reader_version_min);
    let mut manifest = settler.create_manifest(&vfs, state)?;
    manifest.keep_room();
    if let Some(rest) = rest {
        settler.write_in_place(&rest)?;
    }
    settler.remove_unnamed(manifest.state())?;
    let mut handles = HashMap::new();
    for (segment, facts) in &manifest.state().segments {
        handles.insert(*segment, open_reading(&*vfs, dir, &facts.file.file_name())?);
    }
    let dir = dir.to_path_buf();
    Ok(Recovery { vfs, clock, dir, options, file_size_bytes, lock, manifest, standing, clean, torn, handles })
}

impl Settler<'_> {
    /// Refuses to make a folder in which no write would ever be admitted: better no server than one that only says no.
    /// A folder that is there starts however full the disk is, so that it can be emptied.
    fn refuse_full(&self) -> Result<(), JournalError> {
        let space =
            self.vfs.space(self.dir).map_err(|error| JournalError::failed("asking for space", error))?;
        let files = 1 + u64::from(self.options.reserve_segments);
        let needed_bytes =
            files * self.file_size_bytes + self.options.space_margin_bytes / 2 + 2 * MANIFEST_SIZE_BYTES;
        if space.available_bytes >= needed_bytes {
            return Ok(());
        }
        let (dir, available_bytes) = (self.dir.display().to_string(), space.available_bytes);
        Err(JournalError::Full { dir, needed_bytes, available_bytes })
    }

    /// Makes the manifest durable that was read, and its name: of a process that was killed they may be in the page cache alone, and files are
    /// overwritten from here on that no other manifest says are free.
    fn make_durable(&self) -> Result<(), JournalError> {
        let file = open_reading(self.vfs, self.dir, MANIFEST_NAME)?;
        let synced = file.sync_data().and_then(|()| self.vfs.sync_dir(self.dir));
        synced.map_err(|error| JournalError::failed(format!("syncing {MANIFEST_NAME}"), error))
    }

    /// Whether the disk has no room for another file.
    fn is_short(&self) -> Result<bool, JournalError> {
        let space =
            self.vfs.space(self.dir).map_err(|error| JournalError::failed("asking for space", error))?;
        Ok(space.available_bytes < self.file_size_bytes + self.options.margin_bytes(true))
    }

    /// Size of new files on a full disk: that of the files that are ready, whatever the log has grown or shrunk to.
    fn usual_size(&self, state: &State) -> u64 {
        let sizes = state.prepared.values().map(|prepared| prepared.size_bytes);
        let largest = sizes.filter(|size_bytes| *size_bytes <= self.options.segment_size_bytes).max();
        largest.unwrap_or(self.file_size_bytes)
    }

    /// Writes the manifest; on a full disk in the room of a ready file, if no other is kept for it.
    fn create_manifest(&self, vfs: &Arc<dyn Vfs>, mut state: State) -> Result<Manifest, JournalError> {
        loop {
            let created = Manifest::create(Arc::clone(vfs), self.dir, state.clone(), self.now_ms);
            let is_full = matches!(&created, Err(JournalError::Failed { source, .. })
                if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
            let Some((id, _)) = (if is_full { state.prepared.pop_last() } else { None }) else {
                return created;
            };
            // The manifest that is in force names it: a start forgets prepared files that are missing.
            let path = self.dir.join(id.file_name());
            self.vfs
                .remove(&path)
                .map_err(|error| JournalError::failed(format!("removing {}", path.display()), error))?;
        }
    }

    fn new_identity(&self) -> Result<Identity, JournalError> {
        if let Some(identity) = self.options.identity {
            return Ok(identity);
        }
        let mut bytes = [0_u8; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|errno| JournalError::failed("drawing the folder's identity", errno.into()))?;
        }
        let word = |at: usize| u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"));
        Ok(Identity { folder: word(0), hash_key: word(16), hash_bits: 128 })
    }

    /// Sees to it that `state` has an open segment in a file that this process made.
    fn open_segment(&self, state: &mut State, tail: Option<FoundTail>) -> Result<Standing, JournalError> {
        let Some(found) = tail else { return self.fresh_segment(state) };
        state.next_seq = found.tail.next_seq.unwrap_or(state.next_seq);
        let time_ms = found.tail.time_ms.max(state.time_ms);
        state.time_ms = time_ms;
        let keep = found.tail.sealed && found.tail.end_bytes > found.facts.size_bytes / 4;
        if !keep {
            return self.copy_tail(state, &found);
        }
        // killed between the seal's write and its sync: what the page cache showed must be there for good
        let name = found.facts.file.file_name();
        open_reading(self.vfs, self.dir, &name)?
            .sync_data()
            .map_err(|error| JournalError::failed(format!("syncing {name}"), error))?;
        let sealed = Sealed {
            segment: found.segment,
            records: found.tail.records,
            first_lsn: found.facts.first_lsn,
            last_lsn: Lsn(found.tail.next_lsn.0 - 1),
            end_bytes: found.tail.end_bytes,
            next_seq: state.next_seq,
        };
        state.segments.entry(found.segment).and_modify(|facts| facts.sealed = Some(sealed));
        self.fresh_segment(state)
    }

    /// Goes on in the tail's own file, for want of room for another: what it needs is left to [`Settler::write_in_place`].
    fn go_on_in_place(state: &mut State, found: &FoundTail) -> (Standing, Option<InPlace>) {
        state.next_seq = found.tail.next_seq.unwrap_or(state.next_seq);
        state.time_ms = found.tail.time_ms.max(state.time_ms);
        let (bytes, prev_crc) = tail_with_stamp(state, found);
        let standing = standing(state, found, &bytes, prev_crc);
        let Facts { file, size_bytes, .. } = found.facts;
        let stamp_bytes = bytes.len() - (found.tail.end_bytes - SEGMENT_HEADER_SIZE_BYTES) as usize;
        (standing, Some(InPlace { file, size_bytes, bytes, stamp_bytes }))
    }

    /// Opens the next segment in a fresh file.
    fn fresh_segment(&self, state: &mut State) -> Result<Standing, JournalError> {
        let size_bytes = self.file_size_bytes;
        let file = self.take_file(state, size_bytes)?;
        let sealed = state.segments.last_key_value().and_then(|(_, facts)| facts.sealed);
        let next_lsn = sealed.map_or(Lsn(1), |sealed| Lsn(sealed.last_lsn.0 + 1));
        let segment = state.next_segment;
        state.next_segment = SegmentId(segment.0 + 1);
        let facts = Facts { file, size_bytes, first_lsn: next_lsn, sealed: None, footer: None };
        state.segments.insert(segment, facts);
        Ok(Standing {
            segment,
            end_bytes: SEGMENT_HEADER_SIZE_BYTES,
            records: 0,
            prev_crc: 0,
            next_lsn,
            next_seq: state.next_seq,
            time_ms: state.time_ms,
            prefix: Vec::new(),
        })
    }

    /// Copies the valid tail to a fresh file, vouched for by a stamp.
    fn copy_tail(&self, state: &mut State, found: &FoundTail) -> Result<Standing, JournalError> {
        let (segment, size_bytes) = (found.segment, found.facts.size_bytes);
        let file = self.take_file(state, size_bytes)?;
        let (bytes, prev_crc) = tail_with_stamp(state, found);
        self.write_copy(file, &bytes).map_err(|error| {
            JournalError::failed(format!("copying the tail to {}", file.file_name()), error)
        })?;
        let facts = Facts { file, ..found.facts };
        state.segments.insert(segment, facts);
        Ok(standing(state, found, &bytes, prev_crc))
    }

    /// Fallocates what is missing of the files to have ready, so that the first appends find room; the preparer fills
    /// them. A full disk is no error: what needs no new file goes on.
    fn prepare_missing(&self, state: &mut State) -> Result<(), JournalError> {
        let wanted = (self.options.ready_segments + self.options.reserve_segments) as usize;
        let size_bytes = self.file_size_bytes;
        while state.prepared.len() < wanted {
            let space =
                self.vfs.space(self.dir).map_err(|error| JournalError::failed("asking for space", error))?;
            let is_reserve = state.prepared.len() < self.options.reserve_segments as usize;
            if space.available_bytes < size_bytes + self.options.margin_bytes(is_reserve) {
                return Ok(());
            }
            match self.new_file(state, size_bytes) {
                Ok(id) => state.prepared.insert(id, Prepared { size_bytes, zeroed: false }),
                Err(JournalError::Full { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// The file has no header until the copy is durable: if this start is cut short, the next one either finds the copy
    /// by its first batch or forgets the file. Else it might copy less over it, and what lies behind would vouch
    /// for batches that are gone.
    fn write_copy(&self, id: FileId, bytes: &[u8]) -> std::io::Result<()> {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = self.vfs.open(&self.dir.join(id.file_name()), options)?;
        let mut header = vec![0; SEGMENT_HEADER_SIZE_BYTES as usize];
        read_full(&*file, &mut header, 0)?;
        write_full(&*file, &vec![0; header.len()], 0)?;
        file.sync_data()?;
        let mut at = SEGMENT_HEADER_SIZE_BYTES;
        for chunk in bytes.chunks(COPY_CHUNK_BYTES) {
            write_full(&*file, chunk, at)?;
            at += chunk.len() as u64;
        }
        file.sync_data()?;
        write_full(&*file, &header, 0)?;
        file.sync_data()
    }

    /// Makes what was read of the tail durable where it lies, and clears what lies behind. The manifest has forgotten the seal by now;
    /// until this is done a start finds the same tail: the same bytes are written over themselves, and what was behind
    /// vouched for nothing beyond them.
    fn write_in_place(&self, rest: &InPlace) -> Result<(), JournalError> {
        let name = rest.file.file_name();
        let write = || {
            let options = OpenOptions { write: true, ..OpenOptions::default() };
            let file = self.vfs.open(&self.dir.join(&name), options)?;
            let (tail, stamp) = rest.bytes.split_at(rest.bytes.len() - rest.stamp_bytes);
            let mut at = SEGMENT_HEADER_SIZE_BYTES;
            for chunk in tail.chunks(COPY_CHUNK_BYTES) {
                write_full(&*file, chunk, at)?;
                at += chunk.len() as u64;
            }
            // before the stamp vouches for it
            file.sync_data()?;
            write_full(&*file, stamp, at)?;
            at += stamp.len() as u64;
            let zeroes = vec![0; COPY_CHUNK_BYTES];
            while at < rest.size_bytes {
                let len = (rest.size_bytes - at).min(COPY_CHUNK_BYTES as u64);
                write_full(&*file, &zeroes[..len as usize], at)?;
                at += len;
            }
            file.sync_data()
        };
        write().map_err(|error| JournalError::failed(format!("going on in {name}"), error))
    }

    /// A file of this size that holds nothing: a prepared one, or a new one filled with zeroes.
    fn take_file(&self, state: &mut State, size_bytes: u64) -> Result<FileId, JournalError> {
        let fits =
            |(_, prepared): &(&FileId, &Prepared)| prepared.size_bytes == size_bytes && prepared.zeroed;
        if let Some(id) = state.prepared.iter().find(fits).map(|(id, _)| *id) {
            state.prepared.remove(&id);
            return Ok(id);
        }
        let id = self.new_file(state, size_bytes)?;
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        ReadyFile::open(self.vfs, self.dir, id, size_bytes, false, options)
            .and_then(|file| Filler::open(self.vfs, self.dir, file))
            .and_then(|mut filler| {
                while !filler.step()? {}
                Ok(())
            })
            .map_err(|error| prepare_error(self.vfs, self.dir, size_bytes, error))?;
        Ok(id)
    }

    /// Makes a file, fallocated.
    fn new_file(&self, state: &mut State, size_bytes: u64) -> Result<FileId, JournalError> {
        let id = state.next_file;
        state.next_file = FileId(id.0 + 1);
        let path = self.dir.join(id.file_name());
        // A start that was cut short may have left a file of this number, which nothing names.
        match self.vfs.remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(JournalError::failed(format!("removing {}", path.display()), error));
            }
            _ => {}
        }
        create(self.vfs, self.dir, id, size_bytes, state.identity, self.now_ms)
            .map_err(|error| prepare_error(self.vfs, self.dir, size_bytes, error))?;
        Ok(id)
    }

    /// Removes segment files that the manifest does not name.
    fn remove_unnamed(&self, state: &State) -> Result<(), JournalError> {
        let failed = |error| JournalError::failed(format!("cleaning up {}", self.dir.display()), error);
        let mut removed = false;
        for name in self.vfs.list(self.dir).map_err(failed)? {
            let Some(id) = FileId::parse(&name) else { continue };
            let named =
                state.prepared.contains_key(&id) || state.segments.values().any(|facts| facts.file == id);
            if !named {
                self.vfs.remove(&self.dir.join(&name)).map_err(failed)?;
                removed = true;
            }
        }
        if removed { self.vfs.sync_dir(self.dir).map_err(failed) } else { Ok(()) }
    }
}

/// The batches of the tail, with a stamp behind them that vouches for them, and the header checksum of the last.
fn tail_with_stamp(state: &State, found: &FoundTail) -> (Vec<u8>, u32) {
    let (segment, tail) = (found.segment, &found.tail);
    let start = SEGMENT_HEADER_SIZE_BYTES as usize;
    let mut bytes = found.bytes[start..tail.end_bytes as usize].to_vec();
    if tail.batches == 0 || tail.stamped {
        return (bytes, tail.prev_crc);
    }
    let stamp = BatchHeader {
        segment,
        first_lsn: tail.next_lsn,
        durable_lsn: Lsn(tail.next_lsn.0 - 1),
        time_ms: tail.time_ms,
        prev_crc: tail.prev_crc,
        flags: BATCH_STAMP,
        next_seq: state.next_seq,
        ..BatchHeader::default()
    };
    let (encoded, crc) = stamp.encode(Salt::new(state.identity.folder, segment));
    bytes.extend_from_slice(&encoded);
    (bytes, crc)
}

/// Where a journal goes on whose open segment holds the batches in `bytes`.
fn standing(state: &State, found: &FoundTail, bytes: &[u8], prev_crc: u32) -> Standing {
    let partial = bytes.len() % vfs::BLOCK_SIZE_BYTES;
    Standing {
        segment: found.segment,
        end_bytes: SEGMENT_HEADER_SIZE_BYTES + bytes.len() as u64,
        records: found.tail.records,
        prev_crc,
        next_lsn: found.tail.next_lsn,
        next_seq: state.next_seq,
        time_ms: state.time_ms,
        prefix: bytes[bytes.len() - partial..].to_vec(),
    }
}

/// What is to be written into the tail's own file.
struct InPlace {
    file: FileId,
    size_bytes: u64,
    /// Behind the header; the stamp is last.
    bytes: Vec<u8>,
    stamp_bytes: usize,
}

/// One write of the tail's copy.
const COPY_CHUNK_BYTES: usize = 1 << 20;
