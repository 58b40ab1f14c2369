//! A consistent copy of a running store.
//!
//! A checkpoint is taken and copied first; then the journal pins its segments, links (or copies) the sealed ones and copies
//! the durable part of the open one. The result is a folder like any other: its start is a start after a power loss.
//! Everything acknowledged before the call is in it.
//!
//! Invariant: between checkpoint and copy nothing that the checkpoint points into is retired: the housekeeping's lock is
//! held for both.
//!
//! Out of scope: bytes and files of segments and manifest (`journal`).

use std::io;
use std::path::Path;
use std::sync::Arc;

use journal::Lsn;
use vfs::{OpenOptions, Vfs};

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

/// Copies the checkpoint `published` of folder `dir`, then the journal, to `out`.
///
/// # Errors
/// [`StoreError::Backup`]; `out` then holds parts that no server opens.
pub(crate) fn copy(
    journal: &journal::Journal,
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    published: &Published,
    out: &Path,
) -> Result<(), StoreError> {
    let name = &published.name;
    copy_file(&**vfs, &dir.join(name), &out.join(name))
        .map_err(|error| StoreError::Backup(format!("copying {name} to {}: {error}", out.display())))?;
    let copied = journal.backup(out, name, Lsn(published.lsn + 1));
    copied.map(|_| ()).map_err(|error| StoreError::Backup(error.to_string()))
}

/// Copies a file in bounded pieces and makes it durable; its name becomes so with the folder's sync that follows.
fn copy_file(vfs: &dyn Vfs, from: &Path, to: &Path) -> io::Result<()> {
    let source = vfs.open(from, OpenOptions::default())?;
    let target = vfs.open(to, OpenOptions { write: true, create_new: true, ..OpenOptions::default() })?;
    let (mut buffer, mut offset) = (vec![0; PIECE_SIZE_BYTES_MAX], 0);
    loop {
        let count = source.read_at(&mut buffer, offset)?;
        if count == 0 {
            return target.sync_data();
        }
        write_all(&*target, &buffer[..count], offset)?;
        offset += count as u64;
    }
}
