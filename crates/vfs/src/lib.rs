//! Files behind one trait, so that a simulation can lose, tear, reorder and flip what a disk would.
//!
//! Everything that touches a disk takes an `Arc<dyn Vfs>`. `RealDisk` is the machine's own;
//! `SimDisk` keeps un-synced writes apart and drops any subset of them at a crash.
//!
//! Invariants
//!   1. Nothing is durable before the sync that covers it returned `Ok`: data by [`File::sync_data`],
//!      a name (create, rename, remove) by [`Folder::sync`] on its folder.
//!   2. A write may be short. Callers loop, or treat a short write as the error that it announces.
//!   3. Positions are explicit: a file has no cursor, so threads may share one.
//!
//! Out of scope: directories as trees (the data folder is flat), permissions, asynchronous I/O
//! (`journal` drives `io_uring` itself from [`File::raw_fd`]).

mod aligned;
mod real;
mod regular;
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use aligned::AlignedBuffer;
pub use real::RealDisk;
pub use regular::{append_regular, open_regular, read_regular};
pub use sim::SimDisk;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Allows writing; reading is always allowed.
    pub write: bool,
    /// Creates the file; fails with `AlreadyExists` when it is there.
    pub create_new: bool,
    /// Bypasses the page cache (`O_DIRECT`): buffers, offsets and lengths are multiples of 4 KiB.
    pub direct: bool,
    /// Each write returns when its data is durable (`O_DSYNC`).
    pub dsync: bool,
}

/// What a file system has left, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system.
    pub total_bytes: u64,
    /// What an unprivileged process may still allocate.
    pub available_bytes: u64,
}

/// A disk: names, folders and locks.
pub trait Vfs: Debug + Send + Sync {
    /// Opens `path`.
    ///
    /// # Errors
    /// What the system reports: `NotFound`, `AlreadyExists`, `InvalidInput` where `O_DIRECT` is unknown.
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>>;

    /// Creates a folder and its parents; an existing one is fine.
    ///
    /// # Errors
    /// What the system reports.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Names (not paths) of the files in `path`, sorted.
    ///
    /// # Errors
    /// What the system reports.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Replaces `to` by `from`; durable after [`Vfs::sync_dir`].
    ///
    /// # Errors
    /// What the system reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes the name `path`; durable after [`Vfs::sync_dir`].
    ///
    /// # Errors
    /// What the system reports.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives the file at `from` a second name `to`.
    ///
    /// # Errors
    /// What the system reports, `CrossesDevices` among them.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Number of names that the file at `path` has.
    ///
    /// # Errors
    /// What the system reports.
    fn link_count(&self, path: &Path) -> io::Result<u64>;

    /// Opens the folder `path`, to sync it when no descriptor may be left.
    ///
    /// # Errors
    /// What the system reports.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Folder>>;

    /// Makes the names in folder `path` durable.
    ///
    /// # Errors
    /// What the system reports; a failed sync is final, see `journal`.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open_dir(path)?.sync()
    }

    /// Space of the file system that holds `path`.
    ///
    /// # Errors
    /// What the system reports.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// Locks `path` (created when missing) against every other process and handle until dropped.
    ///
    /// # Errors
    /// `WouldBlock` when somebody else holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;
}

/// An open folder.
pub trait Folder: Debug + Send + Sync {
    /// Makes the names in it durable.
    ///
    /// # Errors
    /// What the system reports; a failed sync is final, see `journal`.
    fn sync(&self) -> io::Result<()>;
}

/// An exclusive lock that ends when it is dropped.
pub trait FileLock: Debug + Send + Sync {
    /// Whether the file that is locked is the one that `path` leads to now: not if it, or its folder, was removed, renamed
    /// or replaced.
    ///
    /// # Errors
    /// What the system reports, but for `NotFound`, which is no.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// An open file. Offsets and lengths are bytes.
pub trait File: Debug + Send + Sync {
    /// Reads at `offset`; returns how many bytes, 0 at the end.
    ///
    /// # Errors
    /// What the system reports.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset`; returns how many bytes, possibly fewer than given.
    ///
    /// # Errors
    /// What the system reports.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes the file's data (and the length needed to read it) durable.
    ///
    /// # Errors
    /// What the system reports. Never call it again after an error: the second call lies.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves `length` bytes from `offset` and extends the file to hold them.
    ///
    /// # Errors
    /// `StorageFull` when the disk has no room.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Gives the space of a range back: it reads as zeroes then, and the length stays. Offset and length are multiples of
    /// [`BLOCK_SIZE_BYTES`].
    ///
    /// # Errors
    /// `Unsupported` where the file system has no holes, else what the system reports.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Cuts or extends the file to `length`.
    ///
    /// # Errors
    /// What the system reports.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Current length.
    ///
    /// # Errors
    /// What the system reports.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file holds no bytes.
    ///
    /// # Errors
    /// What the system reports.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Drops clean pages of the range from the page cache, so that the next read asks the device.
    ///
    /// # Errors
    /// What the system reports.
    fn drop_cache(&self, offset: u64, length: u64) -> io::Result<()>;

    /// The descriptor, where there is one: `io_uring` works on it. Simulated files have none.
    fn raw_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

/// Alignment that `O_DIRECT` asks of buffers, offsets and lengths.
pub const BLOCK_SIZE_BYTES: usize = 4096;
