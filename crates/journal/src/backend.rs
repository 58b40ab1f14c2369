//! How the journal's thread gets a batch onto the disk: three ways behind one trait.
//!
//! Invariants
//!   1. `write` returns `Ok` only if the full length was written, `sync` only if the system returned 0.
//!   2. After an error nothing is tried again: a second sync may lie (Linux marks the pages clean).

pub(crate) mod buffered;

use std::io;
use std::sync::Arc;

use vfs::{File, OpenOptions, Vfs};

use crate::batch_buffer::BatchBuffer;
use crate::options::{Backend, BackendKind, SyncMode};

/// Writes batches of one segment at a time.
pub(crate) trait Writer: Send {
    /// How the open segment's file is opened.
    fn open_options(&self) -> OpenOptions;

    /// Batches go to `file` from now on; `prefix` is what it holds of the block that the next batch begins in.
    ///
    /// # Errors
    /// The system's.
    fn begin(&mut self, file: Arc<dyn File>, prefix: &[u8]) -> io::Result<()>;

    /// Writes `batch` at its offset, and syncs it when `sync` is set.
    ///
    /// # Errors
    /// The system's, `WriteZero` for a short write. Final.
    fn write(&mut self, batch: &mut BatchBuffer, sync: bool) -> io::Result<()>;

    /// Makes everything written to the file durable.
    ///
    /// # Errors
    /// The system's. Final.
    fn sync(&mut self) -> io::Result<()>;
}

/// The writer for `kind`, or the one that works instead.
pub(crate) fn choose(kind: BackendKind, sync: SyncMode, vfs: &dyn Vfs) -> (Box<dyn Writer>, Backend) {
    let _ = (sync, vfs);
    let chosen = Backend { kind: BackendKind::Buffered, fallback: None };
    match kind {
        BackendKind::Buffered => (Box::new(buffered::Buffered::default()), chosen),
        other => {
            let fallback = Some(format!("{other} is not available"));
            (Box::new(buffered::Buffered::default()), Backend { fallback, ..chosen })
        }
    }
}
