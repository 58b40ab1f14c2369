//! A simulated disk: one seed decides what a power loss, a fault or a lie leaves behind.
//!
//! ```text
//!            write, create, rename ...                 sync_data, sync_dir
//!   program ---------------------------> live + pending -------------------> durable
//!                                             |                                 |
//!                 process_death() keeps all --+        crash(seed) keeps durable, and any part of pending
//! ```
//!
//! Invariants
//!   1. Equal operations, faults and seeds give equal disks and equal [`SimDisk::digest`]s.
//!   2. What a sync covered before a crash is there after it; what was never written is not.
//!   3. A disk that lost its power fails every operation; the one after it is a new [`SimDisk`], so the
//!      threads of a dead process cannot reach it.
//!   4. Snapshots are cheap: pages are shared until somebody writes them.
//!
//! Folders are durable when created and flat. A rename between two folders is a removal here and an
//! addition there, and each folder keeps a prefix of its own changes: harsher than a real file system.
//! `O_DIRECT` that is not aligned to [`BLOCK_SIZE_BYTES`] panics, since only our own bug can cause it.
//! Source: the disks of TigerBeetle's and FoundationDB's simulators; CrashMonkey for what to lose.

mod fault;
mod folder;
mod image;
mod inode;
mod rng;
mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fault::{Effect, Fault, Kinds};
pub use rng::Rng;

use crate::{BLOCK_SIZE_BYTES, File, FileLock, Folder, OpenOptions, Space, Vfs};
use folder::InodeId;
use state::{State, Verdict};

/// One entry of the trace: an operation that the disk was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What kind.
    pub kind: Kinds,
    /// On which path: the one the file was opened by.
    pub path: Arc<str>,
    /// From which byte, where that has a meaning.
    pub offset: u64,
    /// How many bytes, where that has a meaning.
    pub length: u64,
    /// The fault that struck it.
    pub effect: Option<Effect>,
}

/// A disk in memory. Cloning gives another handle of the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk without a limit; `seed` decides what its faults leave behind.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed))
    }

    /// Limits the disk to `bytes`: beyond them operations fail with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Adds a fault that waits for its operation.
    pub fn plan(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Forgets all faults that have not struck.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Keeps every operation from now on for [`SimDisk::trace`].
    pub fn record_trace(&self) {
        self.state().trace.get_or_insert_default();
    }

    /// Switches the power off: every operation fails from now on.
    pub fn power_off(&self) {
        self.state().powered = false;
    }

    /// Flips bit `bit` of the byte at `offset` of the file `path`, on the device and in the cache.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.lookup(path)?;
        state.inode(inode).flip_bit(offset, bit);
        Ok(())
    }

    /// The disk after a power loss; `seed` decides which un-synced changes it kept. This one is off.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut state = self.state();
        state.powered = false;
        Self::from_state(state.crashed(seed))
    }

    /// What [`SimDisk::crash`] would leave, without switching this one off: for many crashes of one run.
    #[must_use]
    pub fn crash_copy(&self, seed: u64) -> Self {
        Self::from_state(self.state().crashed(seed))
    }

    /// The disk after its process died: everything written is there, un-synced as before. This one is off.
    #[must_use]
    pub fn process_death(&self) -> Self {
        let mut state = self.state();
        let successor = state.orphaned();
        state.powered = false;
        Self::from_state(successor)
    }

    /// A copy as [`SimDisk::process_death`] would leave it, without switching this one off.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_state(self.state().orphaned())
    }

    /// Whether power is still on.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.state().powered
    }

    /// How many operations of `kinds` the disk was asked for since it was made.
    #[must_use]
    pub fn operations(&self, kinds: Kinds) -> u64 {
        self.state().operations(kinds)
    }

    /// A digest of every operation so far, contents included: equal runs have equal ones.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.state().digest
    }

    /// The operations since [`SimDisk::record_trace`], oldest first.
    #[must_use]
    pub fn trace(&self) -> Vec<Operation> {
        self.state().trace.clone().unwrap_or_default()
    }

    /// Every file's path and length, sorted: what a test walks to flip bits in.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.state().files()
    }

    /// Bytes that files take.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    // A panic elsewhere (an assertion of a test) leaves the state whole: each operation changes it in one go.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDisk").field("files", &self.files()).finish_non_exhaustive()
    }
}

impl Vfs for SimDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let kind = if options.create_new { Kinds::CREATE } else { Kinds::OPEN };
        let mut state = self.state();
        let verdict = state.begin(kind, &text(path), 0, 0, &[])?;
        let inode = if options.create_new { state.create(path)? } else { state.lookup(path)? };
        state.finish(verdict)?;
        state.inode(inode).handles += 1;
        Ok(Arc::new(SimFile { disk: self.clone(), inode, path: text(path), options }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::NAME, &text(path), 0, 0, &[])?;
        state.create_folder(path);
        state.finish(verdict)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::QUERY, &text(path), 0, 0, &[])?;
        let names = state.folder(path)?.live().keys().cloned().collect();
        state.finish(verdict).map(|()| names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::NAME, &text(to), 0, 0, text(from).as_bytes())?;
        state.rename(from, to)?;
        state.finish(verdict)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::NAME, &text(path), 0, 0, &[])?;
        state.remove(path)?;
        state.finish(verdict)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::NAME, &text(to), 0, 0, text(from).as_bytes())?;
        state.hard_link(from, to)?;
        state.finish(verdict)
    }

    fn link_count(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::QUERY, &text(path), 0, 0, &[])?;
        let inode = state.lookup(path)?;
        state.finish(verdict)?;
        Ok(state.inode(inode).names)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Folder>> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::OPEN, &text(path), 0, 0, &[])?;
        state.folder(path)?;
        state.finish(verdict)?;
        Ok(Arc::new(SimFolder { disk: self.clone(), path: path.to_path_buf() }))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::QUERY, &text(path), 0, 0, &[])?;
        state.finish(verdict)?;
        let (total_bytes, used) = (state.capacity_bytes, state.used_bytes());
        Ok(Space { total_bytes, available_bytes: total_bytes.saturating_sub(used) })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.state();
        let verdict = state.begin(Kinds::QUERY, &text(path), 0, 0, &[])?;
        let inode = match state.lookup(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.create(path)?,
            found => found?,
        };
        state.finish(verdict)?;
        if !state.locks.insert(inode) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), inode }))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    inode: InodeId,
}

impl FileLock for SimLock {
    // Not a call that a fault could meet: it would shift those of all others.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.disk.state().lookup(path).is_ok_and(|inode| inode == self.inode))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.inode);
    }
}

/// An open folder of a [`SimDisk`].
#[derive(Debug)]
struct SimFolder {
    disk: SimDisk,
    path: PathBuf,
}

impl Folder for SimFolder {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::SYNC_DIR, &text(&self.path), 0, 0, &[])?;
        // As that of a file, it cannot be short or go elsewhere.
        if !matches!(verdict, Verdict::Struck(Effect::Lie | Effect::Eio | Effect::Enospc | Effect::PowerOff))
        {
            state.sync_folder(&self.path)?;
        }
        state.finish(verdict)
    }
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: InodeId,
    path: Arc<str>,
    options: OpenOptions,
}

impl SimFile {
    fn assert_aligned(&self, bytes: &[u8], offset: u64) {
        if self.options.direct {
            let aligned = |number: usize| number.is_multiple_of(BLOCK_SIZE_BYTES);
            assert!(aligned(bytes.as_ptr() as usize), "O_DIRECT buffer not aligned: {}", self.path);
            assert!(aligned(bytes.len()), "O_DIRECT length {} not aligned: {}", bytes.len(), self.path);
            assert!(offset.is_multiple_of(4096), "O_DIRECT offset {offset} not aligned: {}", self.path);
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        let writable = self.options.write;
        if writable { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.assert_aligned(buffer, offset);
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::READ, &self.path, offset, buffer.len() as u64, &[])?;
        state.finish(verdict)?;
        Ok(state.inode(self.inode).live().read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.check_writable()?;
        self.assert_aligned(bytes, offset);
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::WRITE, &self.path, offset, bytes.len() as u64, bytes)?;
        state.write(self.inode, bytes, offset, self.options.dsync, verdict)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::SYNC, &self.path, 0, 0, &[])?;
        state.sync(self.inode, verdict)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::ALLOCATE, &self.path, offset, length, &[])?;
        state.allocate(self.inode, offset, length)?;
        state.finish(verdict)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::PUNCH, &self.path, offset, length, &[])?;
        state.inode(self.inode).change(inode::Change::Punch { offset, length });
        state.finish(verdict)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::SET_LEN, &self.path, 0, length, &[])?;
        state.inode(self.inode).change(inode::Change::Length(length));
        state.finish(verdict)
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::QUERY, &self.path, 0, 0, &[])?;
        state.finish(verdict)?;
        Ok(state.inode(self.inode).live().len())
    }

    fn drop_cache(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let verdict = state.begin(Kinds::QUERY, &self.path, offset, length, &[])?;
        state.finish(verdict)?;
        state.inode(self.inode).drop_cache(offset, length);
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().close(self.inode);
    }
}

fn text(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
