//! A consistent copy of a running store.
//!
//! A checkpoint is taken and copied first; then the journal pins its segments, links (or copies) the sealed ones and copies
//! the durable part of the open one. The result is a folder like any other: its start is a start after a power loss.
//! Everything acknowledged before the call is in it.
//!
//! Invariants
//!   1. Nothing that the checkpoint points into is recycled before it is copied: its segments are pinned before housekeeping, which gives
//!      segments back, goes on.
//!   2. The copy holds no lock: housekeeping and commands go on, and what the log outgrows is bounded as ever, but for what is pinned.
//!
//! Out of scope: bytes and files of segments and manifest (`journal`).

use std::io;
use std::path::Path;
use std::sync::Arc;

use journal::Lsn;
use vfs::{File, OpenOptions, Vfs};

use super::capture::Published;
use super::checkpoint_file::{PIECE_SIZE_BYTES_MAX, write_all};
use crate::error::StoreError;

/// Sees to it that `out` is new or empty.
///
/// # Errors
/// [`StoreError::Backup`] that says what is wrong with it.
pub(crate) fn prepare(vfs: &dyn Vfs, out: &Path) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError::Backup(format!("{}: {error}", out.display()));
    vfs.create_dir_all(out).map_err(failed)?;
    match vfs.list(out).map_err(failed)?.first() {
        None => Ok(()),
        Some(name) => Err(StoreError::Backup(format!("{} is not empty (it holds {name})", out.display()))),
    }
}

/// What is to be copied: it stays as it is until it is.
pub(crate) struct Begun {
    name: String,
    checkpoint: Arc<dyn File>,
    journal: journal::Backup,
}

/// Begins to copy the checkpoint in force `published` of folder `dir` and the journal, while nobody else gives up either.
///
/// # Errors
/// [`StoreError::Backup`].
pub(crate) fn begin(
    journal: &journal::Journal,
    vfs: &dyn Vfs,
    dir: &Path,
    published: &Published,
) -> Result<Begun, StoreError> {
    let name = published.name.clone();
    // it can be read to its end after the next checkpoint has removed its name
    let checkpoint = vfs
        .open(&dir.join(&name), OpenOptions::default())
        .map_err(|error| StoreError::Backup(format!("opening {name}: {error}")))?;
    let journal = journal.begin_backup(&name, Lsn(published.lsn + 1));
    Ok(Begun { name, checkpoint, journal })
}

/// Copies what was begun to `out`; `pace` is called after each write, and may wait.
///
/// # Errors
/// [`StoreError::Backup`]; `out` then holds parts that no server opens.
pub(crate) fn copy(
    journal: &journal::Journal,
    vfs: &dyn Vfs,
    Begun { name, checkpoint, journal: begun }: Begun,
    out: &Path,
    pace: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    copy_file(&*checkpoint, vfs, &out.join(&name), pace)
        .map_err(|error| StoreError::Backup(format!("copying {name} to {}: {error}", out.display())))?;
    let copied = journal.copy_backup(begun, out, pace);
    copied.map(|_| ()).map_err(|error| StoreError::Backup(error.to_string()))
}

/// Copies a file in bounded pieces and makes it durable; its name becomes so with the folder's sync that follows.
fn copy_file(source: &dyn File, vfs: &dyn Vfs, to: &Path, pace: &mut dyn FnMut(u64)) -> io::Result<()> {
    let target = vfs.open(to, OpenOptions { write: true, create_new: true, ..OpenOptions::default() })?;
    let (mut buffer, mut offset) = (vec![0; PIECE_SIZE_BYTES_MAX], 0);
    loop {
        let count = source.read_at(&mut buffer, offset)?;
        if count == 0 {
            return target.sync_data();
        }
        write_all(&*target, &buffer[..count], offset)?;
        offset += count as u64;
        pace(count as u64);
    }
}
