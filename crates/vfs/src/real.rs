//! The machine's own disk.
//!
//! Thin: each method is one system call, retried on `EINTR`. Two things go further:
//! [`Vfs::create_dir_all`] syncs the parent of every folder that it creates, so that a folder is durable
//! once it was reported; [`Vfs::lock`] uses `flock`, which also excludes a second handle of this process.
//!
//! A file that is written, or locked, is never reached through a symbolic link: whoever may make one in the folder would have
//! another file written.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::{File, FileLock, Folder, OpenOptions, Space, Vfs};

/// The machine's disk, through `rustix`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Vfs for RealDisk {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let mut flags = OFlags::CLOEXEC | if options.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::CREATE | OFlags::EXCL, options.create_new);
        flags.set(OFlags::NOFOLLOW, options.write);
        flags.set(OFlags::DIRECT, options.direct);
        flags.set(OFlags::DSYNC, options.dsync);
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, FILE_MODE))?;
        Ok(Arc::new(RealFile { fd }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.create_dir_all(parent)?;
        match rustix::fs::mkdir(path, FOLDER_MODE) {
            Ok(()) => self.sync_dir(parent),
            Err(rustix::io::Errno::EXIST) if path.is_dir() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let fd = open_dir(path)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                known => known,
            };
            if kind != FileType::Directory {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::rename(from, to))?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::unlink(path))?)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::link(from, to))?)
    }

    fn link_count(&self, path: &Path) -> io::Result<u64> {
        let stat = retry_on_intr(|| rustix::fs::stat(path))?;
        #[allow(clippy::useless_conversion, reason = "the width of st_nlink differs between architectures")]
        Ok(u64::from(stat.st_nlink))
    }

    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn Folder>> {
        Ok(Arc::new(RealFolder { fd: open_dir(path)? }))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = retry_on_intr(|| rustix::fs::statvfs(path))?;
        Ok(Space {
            total_bytes: stat.f_blocks * stat.f_frsize,
            available_bytes: stat.f_bavail * stat.f_frsize,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, FILE_MODE)).map_err(|error| match error {
            rustix::io::Errno::LOOP => io::Error::other("it is a symbolic link: remove it"),
            error => error.into(),
        })?;
        retry_on_intr(|| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Box::new(RealLock { fd }))
    }
}

#[derive(Debug)]
struct RealFolder {
    fd: OwnedFd,
}

impl Folder for RealFolder {
    // Not retried, as a file's.
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }
}

#[derive(Debug)]
struct RealFile {
    fd: OwnedFd,
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pread(&self.fd, &mut *buffer, offset))?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(retry_on_intr(|| rustix::io::pwrite(&self.fd, bytes, offset))?)
    }

    // Not retried: after an error, EINTR included, nobody knows what reached the disk.
    fn sync_data(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), offset, length))?)
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(retry_on_intr(|| rustix::fs::fallocate(&self.fd, flags, offset, length))?)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.fd, length))?)
    }

    fn len(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.fd)?;
        u64::try_from(stat.st_size).map_err(io::Error::other)
    }

    fn drop_cache(&self, offset: u64, length: u64) -> io::Result<()> {
        match std::num::NonZeroU64::new(length) {
            None => Ok(()), // to the kernel a length of 0 means "to the end"
            length => Ok(rustix::fs::fadvise(&self.fd, offset, length, Advice::DontNeed)?),
        }
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.fd.as_raw_fd())
    }
}

/// Holds the descriptor: `flock` ends when the last one of this open is closed.
#[derive(Debug)]
struct RealLock {
    fd: OwnedFd,
}

impl FileLock for RealLock {
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = rustix::fs::fstat(&self.fd)?;
        match retry_on_intr(|| rustix::fs::lstat(path)) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?)
}

/// Data may be secret: only the owner and its group read it.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o750);
