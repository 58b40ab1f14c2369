//! `pwrite` into the page cache, then `fdatasync`: works on every file system, and on a simulated disk.

use std::io;
use std::sync::Arc;

use vfs::{File, OpenOptions};

use super::writer::Writer;
use crate::batch_buffer::BatchBuffer;
use crate::segment::write_full;

/// The buffered backend.
#[derive(Debug, Default)]
pub(crate) struct Buffered {
    file: Option<Arc<dyn File>>,
}

impl Buffered {
    fn file(&self) -> &dyn File {
        self.file.as_deref().expect("the committer begins a segment before it writes to it")
    }
}

impl Writer for Buffered {
    fn open_options(&self) -> OpenOptions {
        OpenOptions { write: true, ..OpenOptions::default() }
    }

    fn begin(&mut self, file: Arc<dyn File>, _prefix: &[u8]) -> io::Result<()> {
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, batch: &mut BatchBuffer, sync: bool) -> io::Result<()> {
        let offset = batch.offset;
        write_full(self.file(), batch.padded(), offset)?;
        if sync { self.sync() } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().sync_data()
    }
}
