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

use super::writer::Writer;
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
                let kind = completion.user_data();
                let checked = check(kind, faults::strike(kind, completion.result()), write_len);
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
        let offset = batch.offset;
        let bytes = batch.padded();
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let write = opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset).build().user_data(WRITE);
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

/// What a test makes of the kernel's results; nothing in a server.
#[cfg(not(test))]
mod faults {
    pub(super) fn strike(_kind: u64, result: i32) -> i32 {
        result
    }
}

/// One fault that waits for the nth completion of its kind on this thread.
#[cfg(test)]
mod faults {
    use std::cell::Cell;

    thread_local! {
        /// Kind, completions left, the result in place of the kernel's.
        static WAITING: Cell<Option<(u64, u64, i32)>> = const { Cell::new(None) };
        static SEEN: Cell<u64> = const { Cell::new(0) };
    }

    /// `result` instead of the kernel's at the `nth` completion (from 1) of `kind`.
    pub(super) fn plan(kind: u64, nth: u64, result: i32) {
        WAITING.set(Some((kind, nth, result)));
        SEEN.set(0);
    }

    /// Completions since the plan was made.
    pub(super) fn seen() -> u64 {
        SEEN.get()
    }

    pub(super) fn strike(kind: u64, result: i32) -> i32 {
        SEEN.set(SEEN.get() + 1);
        match WAITING.get() {
            Some((waits_for, 1, instead)) if waits_for == kind => {
                WAITING.set(None);
                instead
            }
            Some((waits_for, left, instead)) if waits_for == kind => {
                WAITING.set(Some((waits_for, left - 1, instead)));
                result
            }
            _ => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use clock::{SimClock, UnixMs};
    use vfs::RealDisk;

    use super::*;
    use crate::types::Keyspace;
    use crate::{BackendKind, Class, Draft, Hooks, Journal, Lsn, Options, Recovery, SyncMode, footprint};

    fn open(dir: &Path, sync: SyncMode) -> Recovery {
        let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
        let options = Options {
            backend: BackendKind::Uring,
            sync,
            segment_size_bytes: 64 << 10,
            buffer_bytes_max: 256 << 10,
            ..Options::small()
        };
        Journal::open(Arc::new(RealDisk), clock, dir, options).expect("a folder that opens")
    }

    fn append(journal: &Journal, n: u64) {
        let payload = n.to_le_bytes().repeat(150);
        let parts: [&[u8]; 1] = [&payload];
        let credits = journal.reserve(footprint([payload.len() as u32]), Class::Write).expect("room");
        journal.append(credits, &[Draft::new(1, Keyspace(7), &parts)], &mut Vec::new());
    }

    /// Records in the folder, whose payloads must be their numbers in order.
    fn records(dir: &Path) -> u64 {
        let recovery = open(dir, SyncMode::Always);
        let mut found = 0_u64;
        for info in recovery.segments() {
            let mut next = |view: crate::RecordView<'_>| {
                assert_eq!(view.payload, found.to_le_bytes().repeat(150), "record {found}");
                found += 1;
            };
            recovery.scan(info.segment, Lsn(0), &mut next).expect("no damage");
        }
        found
    }

    /// Commits one record a cycle, over some rolls, while `result` waits for the `nth` completion of `kind`; returns how many
    /// cycles were reported durable. The journal must stop there, ask the kernel nothing more, and lose nothing of it.
    fn strike(sync: SyncMode, kind: u64, nth: u64, result: i32) -> u64 {
        let context = format!("{sync:?}, kind {kind}, completion {nth}, result {result}");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let failures = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&failures);
        let on_failure = Box::new(move |_: &crate::JournalError| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let hooks = Hooks { on_failure, ..Hooks::default() };
        let (journal, mut driver) = open(folder.path(), sync).start_manual(hooks).expect("files open");
        assert_eq!(journal.backend().kind, BackendKind::Uring, "{}", journal.backend());
        driver.prepare();
        faults::plan(kind, nth, result);
        let mut appended = 0;
        while !journal.has_failed() {
            append(&journal, appended);
            appended += 1;
            driver.commit();
            driver.prepare();
            assert!(appended < 300, "{context}: went unnoticed");
        }
        let (durable, seen) = (journal.durable_lsn().0, faults::seen());
        driver.commit();
        assert!(!driver.stamp() && !driver.commit_once());
        assert!(journal.reserve(100, Class::Write).is_err(), "{context}: a failed journal takes no more");
        journal.close();
        driver.seal();
        assert_eq!(faults::seen(), seen, "{context}: nothing is tried again");
        assert_eq!((journal.durable_lsn().0, failures.load(Ordering::Relaxed)), (durable, 1), "{context}");
        drop(journal);
        let found = records(folder.path());
        assert!((durable..=appended).contains(&found), "{context}: {found} of {durable} durable records");
        durable
    }

    #[test]
    fn failed_or_short_write_and_failed_sync_stop_the_journal_wherever_they_strike() {
        for nth in [1, 2, 30, 70, 130] {
            for result in [-libc::EIO, -libc::ENOSPC, 0, 100] {
                assert_eq!(strike(SyncMode::Always, WRITE, nth, result), nth - 1);
            }
            assert_eq!(strike(SyncMode::Always, SYNC, nth, -libc::EIO), nth - 1);
            // A sync that was cancelled behind a write that the kernel reports as whole.
            assert_eq!(strike(SyncMode::Always, SYNC, nth, -libc::ECANCELED), nth - 1);
        }
    }

    #[test]
    fn failed_sync_on_its_own_stops_the_journal_too() {
        let sync = SyncMode::Interval(std::time::Duration::ZERO);
        for nth in [1, 2, 60] {
            strike(sync, SYNC, nth, -libc::EIO);
            strike(sync, WRITE, nth, 100);
        }
    }

    #[test]
    fn short_write_and_failed_sync_are_errors() {
        assert!(check(WRITE, 100, Some(100)).is_ok());
        assert_eq!(check(WRITE, 99, Some(100)).unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(check(SYNC, -libc::EIO, Some(100)).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(check(SYNC, 0, Some(100)).is_ok());
    }
}
