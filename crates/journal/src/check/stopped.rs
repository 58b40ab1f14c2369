//! A stopped server's folder that is held while its records are read by their addresses.
//!
//! Invariant: no server opens the folder as long as this is there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfs::{File, FileLock, Vfs};

use crate::error::ReadError;
use crate::format::Salt;
use crate::format::record::RecordHeader;
use crate::manifest::State;
use crate::scan::read_record;
use crate::segment::open_reading;
use crate::types::{FileId, LogAddress, SegmentId};

/// The folder, to read records of.
pub struct StoppedFolder<'a> {
    vfs: &'a dyn Vfs,
    dir: PathBuf,
    folder: u128,
    files: BTreeMap<SegmentId, FileId>,
    opened: BTreeMap<SegmentId, Arc<dyn File>>,
    _lock: Box<dyn FileLock>,
}

impl<'a> StoppedFolder<'a> {
    pub(super) fn new(vfs: &'a dyn Vfs, dir: &Path, state: &State, lock: Box<dyn FileLock>) -> Self {
        let files = state.segments.iter().map(|(segment, facts)| (*segment, facts.file)).collect();
        let (dir, folder) = (dir.to_owned(), state.identity.folder);
        Self { vfs, dir, folder, files, opened: BTreeMap::new(), _lock: lock }
    }

    /// Reads the record at `address` into `payload`, all of it verified. `expected_len` is about how long the payload is.
    ///
    /// # Errors
    /// [`ReadError`]: nothing that verifies lies there, or reading fails.
    pub fn read(
        &mut self,
        address: LogAddress,
        expected_len: usize,
        payload: &mut Vec<u8>,
    ) -> Result<RecordHeader, ReadError> {
        let segment = address.segment();
        if !self.opened.contains_key(&segment) {
            let file = self.files.get(&segment).ok_or(ReadError::Gone(segment))?;
            let opened = open_reading(self.vfs, &self.dir, &file.file_name());
            self.opened.insert(segment, opened.map_err(|_| ReadError::Gone(segment))?);
        }
        let salt = Salt::new(self.folder, segment);
        read_record(&*self.opened[&segment], salt, address, expected_len, payload, &mut |_| ())
    }
}

impl fmt::Debug for StoppedFolder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoppedFolder").field("dir", &self.dir).finish_non_exhaustive()
    }
}
