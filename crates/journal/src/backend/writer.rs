//! What a backend does for the journal's thread.

use std::io;
use std::sync::Arc;

use vfs::{File, OpenOptions};

use crate::batch_buffer::BatchBuffer;

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
