//! `O_DIRECT | O_DSYNC`: one system call that returns when the device has the bytes, past the page cache.
//!
//! A direct write is made of whole blocks. The block in which the last batch ended is written again with the
//! next one, its beginning identical: a write torn in the middle leaves what was durable as it was.
//!
//! ```text
//! write 1: | batch 1 .......... | batch 1 end, zeroes |
//! write 2:                      | batch 1 end (same), batch 2 ... | ... zeroes |
//! ```

use std::io;
use std::sync::Arc;

use vfs::{File, OpenOptions};

use super::writer::Writer;
use crate::batch_buffer::BatchBuffer;
use crate::segment::write_full;

/// The direct backend.
#[derive(Debug)]
pub(crate) struct Direct {
    file: Option<Arc<dyn File>>,
    /// Each write syncs itself.
    dsync: bool,
    /// What the file holds of the block in which the next batch begins.
    partial: Vec<u8>,
}

impl Direct {
    /// A writer whose every write is durable on return if `dsync` is set.
    pub(crate) fn new(dsync: bool) -> Self {
        Self { file: None, dsync, partial: Vec::new() }
    }

    fn file(&self) -> &dyn File {
        self.file.as_deref().expect("the committer begins a segment before it writes to it")
    }
}

/// How a file is opened for direct writes.
pub(crate) fn open_options(dsync: bool) -> OpenOptions {
    OpenOptions { write: true, direct: true, dsync, create_new: false }
}

impl Writer for Direct {
    fn open_options(&self) -> OpenOptions {
        open_options(self.dsync)
    }

    fn begin(&mut self, file: Arc<dyn File>, prefix: &[u8]) -> io::Result<()> {
        self.file = Some(file);
        self.partial.clear();
        self.partial.extend_from_slice(prefix);
        Ok(())
    }

    fn write(&mut self, batch: &mut BatchBuffer, sync: bool) -> io::Result<()> {
        let offset = batch.blocks_offset();
        write_full(self.file(), batch.blocks(&self.partial), offset)?;
        self.partial.clear();
        self.partial.extend_from_slice(batch.last_partial_block());
        if sync && !self.dsync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().sync_data()
    }
}
