//! `io_uring`: a write linked with an fdatasync, one system call for both and for waiting.
//!
//! States of a request: pushed (in our queue) -> entered (the kernel has it) -> completed. `write` and `sync` return
//! only when everything entered has completed, so the kernel never looks at a buffer after its borrow ended.
//!
//! Many hosts switch io_uring off (containers, seccomp, a sysctl): [`Uring::probe`] runs a real request first.
#![allow(unsafe_code, reason = "queue entries carry raw pointers; each is proved where it is pushed")]

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use vfs::{File, OpenOptions};

use super::Writer;
use crate::batch_buffer::BatchBuffer;

const WRITE: u64 = 1;
const SYNC: u64 = 2;
/// A write and its sync; nothing else is ever queued.
const QUEUE_ENTRIES: u32 = 4;

/// The uring backend.
pub(crate) struct Uring {
    ring: IoUring,
    /// Keeps the descriptor open.
    file: Option<Arc<dyn File>>,
}

impl Uring {
    /// Makes a ring and runs one request on it.
    ///
    /// # Errors
    /// What the system reports where io_uring is switched off.
    pub(crate) fn probe() -> io::Result<Self> {
        let mut uring = Self { ring: IoUring::new(QUEUE_ENTRIES)?, file: None };
        let nop = opcode::Nop::new().build().user_data(SYNC);
        uring.run(&[nop], None)?;
        Ok(uring)
    }

    fn fd(&self) -> io::Result<types::Fd> {
        let fd: Option<RawFd> = self.file.as_ref().and_then(|file| file.raw_fd());
        fd.map(types::Fd).ok_or_else(|| io::Error::other("the file has no descriptor"))
    }

    /// Queues `entries`, enters them all and waits for all of them; a WRITE must have written `write_len` bytes.
    fn run(&mut self, entries: &[squeue::Entry], write_len: Option<usize>) -> io::Result<()> {
        for entry in entries {
            // SAFETY: a WRITE entry points into a buffer that `write` borrows until this function returns, and this
            // function returns only when every entered request has completed (or it aborts); the other
            // kinds carry no pointer. The descriptor is kept open by `self.file`.
            unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        }
        let mut outcome = Ok(());
        let mut missing = entries.len();
        while missing > 0 {
            self.enter(missing, entries.len())?;
            for completion in self.ring.completion() {
                missing -= 1;
                let checked = check(completion.user_data(), completion.result(), write_len);
                // The first error is the cause; a cancelled sync behind a failed write is its shadow.
                outcome = outcome.and(checked);
            }
        }
        outcome
    }

    /// One system call that submits what is queued and waits for `missing` completions.
    fn enter(&self, missing: usize, pushed: usize) -> io::Result<()> {
        let Err(error) = self.ring.submit_and_wait(missing) else { return Ok(()) };
        match error.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            // Nothing was entered yet: the kernel has no pointer, and the ring is never used again.
            _ if missing == pushed && self.queue_is_full_of(pushed) => Err(error),
            // The kernel may still read the buffer, and nobody can wait for it: the only safe end.
            _ => std::process::abort(),
        }
    }

    fn queue_is_full_of(&self, pushed: usize) -> bool {
        // SAFETY: `&self` is the only user of the ring (the committer owns it), and no other view of the submission
        // queue is alive here.
        unsafe { self.ring.submission_shared() }.len() == pushed
    }
}

impl Writer for Uring {
    fn open_options(&self) -> OpenOptions {
        OpenOptions { write: true, ..OpenOptions::default() }
    }

    fn begin(&mut self, file: Arc<dyn File>, _prefix: &[u8]) -> io::Result<()> {
        self.file = Some(file);
        self.fd().map(|_| ())
    }

    fn write(&mut self, batch: &mut BatchBuffer, sync: bool) -> io::Result<()> {
        let fd = self.fd()?;
        let bytes = batch.bytes();
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let write = opcode::Write::new(fd, bytes.as_ptr(), len).offset(batch.offset).build().user_data(WRITE);
        if !sync {
            return self.run(&[write], Some(bytes.len()));
        }
        let entries = [write.flags(squeue::Flags::IO_LINK), fdatasync(fd)];
        self.run(&entries, Some(bytes.len()))
    }

    fn sync(&mut self) -> io::Result<()> {
        let entry = fdatasync(self.fd()?);
        self.run(&[entry], None)
    }
}

fn fdatasync(fd: types::Fd) -> squeue::Entry {
    opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build().user_data(SYNC)
}

/// Whether a completion means that its request did all it should.
fn check(kind: u64, result: i32, write_len: Option<usize>) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    match write_len {
        Some(len) if kind == WRITE && result as usize != len => {
            Err(io::Error::new(io::ErrorKind::WriteZero, format!("short write: {result} of {len} B")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_write_and_failed_sync_are_errors() {
        assert!(check(WRITE, 100, Some(100)).is_ok());
        assert_eq!(check(WRITE, 99, Some(100)).unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(check(SYNC, -libc::EIO, Some(100)).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(check(SYNC, 0, Some(100)).is_ok());
    }
}
