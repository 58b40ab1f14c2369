//! Checkpoint files on disk: written in pieces, published by rename, read block by block.
//!
//! ```text
//! checkpoint.tmp --write, sync--> rename to checkpoint-{lsn:016x} --sync of the folder--> the journal's manifest
//!      ^-- the one before is renamed back when the manifest names the new one: its room is that of the next --'
//! ```
//!
//! On a disk that others have filled, segments come back only by a checkpoint, and deletes need segments: so the room of a checkpoint is kept.
//! A checkpoint is written over what the file had; nothing reads `checkpoint.tmp`.
//!
//! Invariants
//!   1. A file under its final name is complete and durable; the manifest names only such files.
//!   2. No write is larger than [`PIECE_SIZE_BYTES_MAX`]: background I/O never has more in one piece.
//!
//! Out of scope: bytes (`checkpoint`), when and what to capture (`capture`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfs::{File, OpenOptions, Vfs};

use super::checkpoint::{
    BLOCK_HEADER_SIZE_BYTES, Block, Decoder, FormatError, HEADER_SIZE_BYTES, Header, decode_header,
};

/// A checkpoint that is being written.
#[derive(Debug)]
pub(crate) struct Writer {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    file: Arc<dyn File>,
    written_bytes: u64,
}

impl Writer {
    /// Begins a file, in the room of the one that is kept for it, or that an earlier attempt has left.
    ///
    /// # Errors
    /// What the disk reports.
    pub(crate) fn create(vfs: &Arc<dyn Vfs>, dir: &Path) -> io::Result<Self> {
        let file = open_temporary(&**vfs, dir)?;
        Ok(Self { vfs: Arc::clone(vfs), dir: dir.to_owned(), file, written_bytes: 0 })
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// What the disk reports; the attempt is over then.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_SIZE_BYTES_MAX) {
            write_all(&*self.file, piece, self.written_bytes)?;
            self.written_bytes += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes the file durable under its final name and returns the name.
    ///
    /// # Errors
    /// What the disk reports; nothing refers to the file then.
    pub(crate) fn publish(self, lsn: u64) -> io::Result<String> {
        self.file.set_len(self.written_bytes)?;
        self.file.sync_data()?;
        let name = name_of(lsn);
        self.vfs.rename(&self.dir.join(TEMPORARY), &self.dir.join(&name))?;
        self.vfs.sync_dir(&self.dir)?;
        Ok(name)
    }

    /// Bytes written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}

/// Why a checkpoint was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The disk reports an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes at `offset` are no checkpoint.
    #[error("at offset {offset}: {error}")]
    Format {
        /// Where, in bytes.
        offset: u64,
        /// What does not fit.
        error: FormatError,
    },
}

/// Reads the checkpoint `name` and hands over its blocks in order, the END block excepted.
///
/// # Errors
/// [`LoadError`] when the file is not whole; blocks before the damage have been handed over.
pub(crate) fn load(
    vfs: &dyn Vfs,
    dir: &Path,
    name: &str,
    on_block: &mut dyn FnMut(&Header, Block),
) -> Result<Header, LoadError> {
    let file = vfs.open(&dir.join(name), OpenOptions::default())?;
    let mut reader = Reader { file, offset: 0, buffer: Vec::new(), consumed: 0 };
    let header = reader.take(HEADER_SIZE_BYTES, decode_header)?;
    let mut decoder = Decoder::new(&header);
    loop {
        let mut head = [0; BLOCK_HEADER_SIZE_BYTES];
        let body_len = reader.take(BLOCK_HEADER_SIZE_BYTES, |bytes| {
            head.copy_from_slice(bytes);
            Decoder::body_len(&head)
        })?;
        match reader.take(body_len, |body| decoder.block(&head, body))? {
            Block::End(_) => return Ok(header),
            block => on_block(&header, block),
        }
    }
}

/// Names of the checkpoints in `dir`, oldest first.
///
/// # Errors
/// What the disk reports.
pub(crate) fn names(vfs: &dyn Vfs, dir: &Path) -> io::Result<Vec<String>> {
    let mut names = vfs.list(dir)?;
    names.retain(|name| name.starts_with(PREFIX));
    Ok(names)
}

/// Removes checkpoints other than `keep`; the room of the newest of them is kept for the next one.
///
/// # Errors
/// What the disk reports.
pub(crate) fn remove_others(vfs: &dyn Vfs, dir: &Path, keep: &str) -> io::Result<()> {
    let mut others = names(vfs, dir)?;
    others.retain(|name| name != keep);
    if let Some(newest) = others.pop() {
        vfs.rename(&dir.join(newest), &dir.join(TEMPORARY))?;
    }
    for name in others {
        vfs.remove(&dir.join(name))?;
    }
    Ok(())
}

/// Keeps room of `size_bytes` for the next checkpoint, while none is being written.
///
/// # Errors
/// What the disk reports.
pub(crate) fn keep_room(vfs: &dyn Vfs, dir: &Path, size_bytes: u64) -> io::Result<()> {
    // What is there already costs nothing.
    open_temporary(vfs, dir)?.allocate(0, size_bytes)
}

fn open_temporary(vfs: &dyn Vfs, dir: &Path) -> io::Result<Arc<dyn File>> {
    let (path, there) = (dir.join(TEMPORARY), OpenOptions { write: true, ..OpenOptions::default() });
    match vfs.open(&path, there) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            vfs.open(&path, OpenOptions { create_new: true, ..there })
        }
        opened => opened,
    }
}

/// Name of the checkpoint of `lsn`.
pub(crate) fn name_of(lsn: u64) -> String {
    format!("{PREFIX}{lsn:016x}")
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// What the disk reports; `WriteZero` when it takes nothing.
pub(crate) fn write_all(file: &dyn File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = file.write_at(bytes, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[count..];
        offset += count as u64;
    }
    Ok(())
}

struct Reader {
    file: Arc<dyn File>,
    /// Offset in the file of the buffer's end.
    offset: u64,
    buffer: Vec<u8>,
    consumed: usize,
}

impl Reader {
    fn take<T>(
        &mut self,
        len: usize,
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, LoadError> {
        let begin = self.offset - (self.buffer.len() - self.consumed) as u64;
        let at = |error| LoadError::Format { offset: begin, error };
        self.fill(len)?;
        let bytes = self.buffer.get(self.consumed..self.consumed + len).ok_or(at(FormatError::Short))?;
        let decoded = decode(bytes).map_err(at)?;
        self.consumed += len;
        Ok(decoded)
    }

    fn fill(&mut self, len: usize) -> io::Result<()> {
        if self.buffer.len() - self.consumed >= len {
            return Ok(());
        }
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        while self.buffer.len() < len {
            let start = self.buffer.len();
            self.buffer.resize(start + PIECE_SIZE_BYTES_MAX, 0);
            let count = self.file.read_at(&mut self.buffer[start..], self.offset)?;
            self.buffer.truncate(start + count);
            self.offset += count as u64;
            if count == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Most bytes of one background read or write.
pub(crate) const PIECE_SIZE_BYTES_MAX: usize = 256 * 1024;
const TEMPORARY: &str = "checkpoint.tmp";
const PREFIX: &str = "checkpoint-";

#[cfg(test)]
mod tests {
    use journal::{Keyspace, LogAddress, Seq};

    use super::*;
    use crate::log::checkpoint::{Area, Encoder, Entry};
    use vfs::SimDisk;

    const HEADER: Header = Header { folder: 1, lsn: 9, time_ms: 0, seq: Seq(4) };

    fn disk() -> (Arc<dyn Vfs>, SimDisk, PathBuf) {
        let disk = SimDisk::new(1);
        let dir = PathBuf::from("/data");
        disk.create_dir_all(&dir).expect("a fresh disk");
        (Arc::new(disk.clone()), disk, dir)
    }

    fn bytes(count: u64) -> Vec<u8> {
        let mut encoder = Encoder::new(&HEADER);
        for bits in 0..count {
            let entry =
                Entry { bits, tag: 1, address: LogAddress::unpack(bits), shared: false, deltas: Vec::new() };
            encoder.entry(Area { keyspace: Keyspace(1), stripe: 3 }, entry);
        }
        encoder.finish()
    }

    fn count_entries(vfs: &dyn Vfs, dir: &Path, name: &str) -> Result<usize, LoadError> {
        let mut count = 0;
        load(vfs, dir, name, &mut |_, block| {
            if let Block::Entries(_, entries) = block {
                count += entries.len();
            }
        })?;
        Ok(count)
    }

    #[test]
    fn published_checkpoint_survives_power_loss_whole() {
        let (vfs, disk, dir) = disk();
        let mut writer = Writer::create(&vfs, &dir).expect("room");
        writer.write(&bytes(100_000)).expect("room");
        let name = writer.publish(9).expect("room");
        for seed in 0..20 {
            assert_eq!(count_entries(&disk.crash_copy(seed), &dir, &name).expect("whole"), 100_000);
        }
    }

    #[test]
    fn attempt_cut_by_power_loss_leaves_no_name_and_the_next_one_succeeds() {
        let (vfs, disk, dir) = disk();
        let mut writer = Writer::create(&vfs, &dir).expect("room");
        writer.write(&bytes(1_000)).expect("room");
        for seed in 0..20 {
            let after: Arc<dyn Vfs> = Arc::new(disk.crash_copy(seed));
            assert!(count_entries(&*after, &dir, &name_of(9)).is_err());
            let mut again = Writer::create(&after, &dir).expect("remains are removed");
            again.write(&bytes(10)).expect("room");
            let name = again.publish(9).expect("room");
            assert_eq!(count_entries(&*after, &dir, &name).expect("whole"), 10);
        }
    }

    #[test]
    fn damage_is_reported_with_its_offset() {
        let (vfs, disk, dir) = disk();
        let mut writer = Writer::create(&vfs, &dir).expect("room");
        writer.write(&bytes(1_000)).expect("room");
        let name = writer.publish(9).expect("room");
        disk.flip_bit(&dir.join(&name), 500, 3).expect("the file is there");
        let error = count_entries(&*vfs, &dir, &name).expect_err("damaged");
        assert!(matches!(error, LoadError::Format { offset: 96, error: FormatError::Checksum }), "{error:?}");
    }

    #[test]
    fn other_checkpoints_are_removed() {
        let (vfs, _, dir) = disk();
        for lsn in [3, 9] {
            let mut writer = Writer::create(&vfs, &dir).expect("room");
            writer.write(&bytes(1)).expect("room");
            writer.publish(lsn).expect("room");
        }
        remove_others(&*vfs, &dir, &name_of(9)).expect("removable");
        assert_eq!(vfs.list(&dir).expect("listed"), [name_of(9), TEMPORARY.to_owned()]);
    }

    /// On a disk that others had filled no checkpoint could be written, so no segment came back, and deletes were refused.
    #[test]
    fn next_checkpoint_needs_no_room_on_a_disk_that_others_have_filled() {
        let (vfs, disk, dir) = disk();
        let mut last = 0;
        for (lsn, entries) in [(1, 100_000), (2, 90_000), (3, 100_000), (4, 10), (5, 99_000)] {
            let mut writer = Writer::create(&vfs, &dir).expect("room");
            writer.write(&bytes(entries)).expect("room");
            let (size_bytes, name) = (writer.written_bytes(), writer.publish(lsn).expect("room"));
            let size_max = size_bytes.max(last);
            remove_others(&*vfs, &dir, &name).expect("removable");
            // where others took what a smaller one gave back, the room of the one before is kept
            let _ = keep_room(&*vfs, &dir, size_max);
            assert_eq!(count_entries(&*vfs, &dir, &name).expect("whole"), entries as usize);
            for seed in 0..5 {
                let after = disk.crash_copy(seed);
                assert_eq!(count_entries(&after, &dir, &name).expect("whole"), entries as usize);
            }
            last = size_max;
            let used = vfs.space(&dir).expect("known");
            disk.set_capacity(used.total_bytes - used.available_bytes);
        }
    }
}
