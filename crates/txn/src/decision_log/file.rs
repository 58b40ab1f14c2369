//! The baseline: a file for each decision that is kept, written and synced, its folder synced if the file is new, then the waiter hears of it.
//!
//! ```text
//!  write -> queue -> writer, or whoever helps: a free file, or a new one; write, sync; new, or another replaced: sync the folder -> waiter
//!                                                            those who come to it together: one of them (`group_sync`)
//!  remove ---------> its file is free: for the next record of its length, or unlinked when none comes
//! ```
//!
//! | file | what |
//! |---|---|
//! | `LOCK` | held while the log is open |
//! | `NODE` | whose folder it is, and the epoch: written to `NODE.tmp`, synced, renamed |
//! | `NUMBER.tx` | a record ([`sectors`]) |
//!
//! Invariants
//!   1. A file gets its name at once and is synced under it. What a crash leaves of a record that was never acknowledged is told by its
//!      sectors. (A temporary name and a rename would tell as well, for a second commit of the file system's journal a record.)
//!   2. A record that replaces another is in a file of its own; the older one is unlinked when the newer one is synced, and that is durable
//!      when the newer one is acknowledged.
//!   3. A file is free when the decision in it was removed: a crash may bring it back, as long as nothing is in its place.
//!   4. The first failure whose outcome is unknown ends it. What waited in the queue had touched nothing and is absent.
//!   5. What is found at start is written again before it is handed out: it may be in the page cache only.
//!
//! Out of scope: syncing several records at once. Source: JBossTS's file store.

mod group_sync;
pub mod sectors;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;
use vfs::{FileLock, Folder, OpenOptions, Vfs};

use crate::decision_log::{
    Cycle, DecisionLog, LogCounters, LogError, OpenError, Opened, Refused, Waiter, next_epochs,
};
use crate::id::{NodeName, TxId};
use group_sync::GroupSync;
use sectors::{Found, RECORD_BYTES_MAX, Stamp};

/// Settings.
///
/// | field | default | least | reason |
/// |---|---|---|---|
/// | writers | 16 | 0 | more threads get no more syncs out of a disk; with 0 only those who help write (simulations) |
/// | queue_max | 4,096 | 1 | bounds what a stalled disk piles up |
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that write.
    pub writers: usize,
    /// Most records that wait for one.
    pub queue_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { writers: 16, queue_max: 4_096 }
    }
}

impl Options {
    /// So many records are written at a time: new files are made in one folder, whose lock more of them only wait for.
    fn at_once_max(&self) -> usize {
        if self.writers == 0 { usize::MAX } else { self.writers }
    }
}

/// The log.
#[derive(Debug)]
pub struct FileLog {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl FileLog {
    /// Opens the folder `dir` for `node`, or makes it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: &dyn Clock,
        dir: &Path,
        node: &NodeName,
        options: Options,
    ) -> Result<Opened<Self>, OpenError> {
        let shown = dir.display().to_string();
        let failed = |what: &str, error: &io::Error| OpenError::Failed(format!("{what} {shown}: {error}"));
        vfs.create_dir_all(dir).map_err(|error| failed("making", &error))?;
        let lock = vfs.lock(&dir.join("LOCK")).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse(shown.clone()),
            _ => failed("locking", &error),
        })?;
        let folder = vfs.open_dir(dir).map_err(|error| failed("opening", &error))?;
        let disk = Disk {
            vfs,
            dir: dir.to_path_buf(),
            folder,
            group: GroupSync::default(),
            _lock: lock,
            syncs: 0.into(),
            bytes: 0.into(),
        };
        let found = disk.found(node)?;
        let (epoch, born) = next_epochs(found.epochs, clock, &shown)?;
        disk.put_node(node, epoch, born).map_err(|error| failed("writing NODE in", &error))?;
        let version = found.version + found.records.len() as u64;
        let records = disk.rewrite(found).map_err(|error| failed("writing the records again in", &error))?;
        let entries = records.iter().map(|(filed, tx, _)| (*tx, Entry::found(*filed))).collect();
        let shared = Arc::new(Shared {
            disk,
            options,
            state: Mutex::new(State { entries, version, ..State::default() }),
            work: Condvar::new(),
            rest: Condvar::new(),
        });
        let threads = Mutex::new(spawn(&shared, options.writers)?);
        let records = records.into_iter().map(|(_, tx, record)| (tx, record)).collect();
        Ok(Opened { log: Arc::new(Self { shared, threads }), epoch, born, records })
    }
}

impl DecisionLog for FileLog {
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        let shared = &*self.shared;
        if record.len() > RECORD_BYTES_MAX {
            return Err(Refused::Full(format!(
                "a record of {} B, at most {RECORD_BYTES_MAX} B",
                record.len()
            )));
        }
        let mut state = shared.state();
        if let Some(reason) = &state.stopped {
            return Err(Refused::Closed(reason.clone()));
        }
        let most = shared.options.queue_max;
        if state.queue.len() >= most {
            return Err(Refused::Full(format!(
                "{most} records wait for the disk (queue_max of the file log)"
            )));
        }
        let stamp = state.begin(tx);
        let bytes = sectors::encode(stamp, record);
        state.queue.push_back(Job { stamp, bytes, waiter: Arc::clone(waiter) });
        Ok(None)
    }

    fn remove(&self, tx: TxId) {
        let mut state = self.shared.state();
        state.remove(tx);
        let wakes = !state.free.is_empty() && state.sweep == Sweep::None;
        if wakes {
            state.sweep = Sweep::Wanted;
        }
        drop(state);
        if wakes {
            self.shared.work.notify_one();
        }
    }

    fn offer(&self) {
        let state = self.shared.state();
        let (waiting, idle) = (state.queue.len(), state.idle);
        drop(state);
        self.shared.wake(waiting.min(idle));
    }

    fn help(&self, _: bool) -> bool {
        let state = self.shared.state();
        // Free files are kept for records that come soon; a writer looks after them.
        let is_idle = state.queue.is_empty() && self.shared.options.writers > 0;
        if is_idle || state.running >= self.shared.options.at_once_max() {
            return false;
        }
        let others = state.queue.len().saturating_sub(1);
        // Those of other callers, who come to help themselves, and of this one, who does not come again.
        self.shared.wake(others.min(state.idle));
        self.shared.run_one(state)
    }

    fn is_sound(&self) -> bool {
        self.shared.state().stopped.is_none()
    }

    fn counters(&self) -> LogCounters {
        let disk = &self.shared.disk;
        let state = self.shared.state();
        LogCounters {
            records: state.records,
            removed: state.removed,
            syncs: disk.syncs.load(Ordering::Relaxed),
            bytes: disk.bytes.load(Ordering::Relaxed),
        }
    }

    fn close(&self) {
        self.shared.state().stopped.get_or_insert_with(|| "it was closed".to_owned());
        while self.help(false) {}
        self.offer();
        let mut state = self.shared.state();
        while state.running > 0 || !state.queue.is_empty() {
            state = self.shared.rest.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_over = true;
        drop(state);
        self.shared.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let is_self = thread.thread().id() == std::thread::current().id();
            if !is_self && thread.join().is_err() {
                tracing::error!("a writer of the decision log panicked");
            }
        }
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// A record on its way.
struct Job {
    stamp: Stamp,
    bytes: Vec<u8>,
    waiter: Arc<dyn Waiter>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("stamp", &self.stamp).finish_non_exhaustive()
    }
}

/// A file of the folder.
#[derive(Clone, Copy, Debug)]
struct FileEntry {
    number: u64,
    size_bytes: usize,
}

/// A record, and where it is.
#[derive(Clone, Copy, Debug)]
struct Filed {
    version: u64,
    file: FileEntry,
}

/// What is known of a transaction's records.
#[derive(Debug, Default)]
struct Entry {
    /// Those that are there and synced; mostly one.
    on_disk: Vec<Filed>,
    in_flight: u32,
    removed: bool,
}

impl Entry {
    fn found(filed: Filed) -> Self {
        Self { on_disk: vec![filed], ..Self::default() }
    }
}

/// What the callers and the writers share.
#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// Files whose decisions were removed, the longest free first: not more than there were records.
    free: VecDeque<FileEntry>,
    sweep: Sweep,
    entries: HashMap<TxId, Entry>,
    /// The last version that a record was given. A new file gets that of its first record for a number.
    version: u64,
    /// Jobs that somebody works on.
    running: usize,
    /// Writers that sleep, or were woken and have not looked yet.
    idle: usize,
    /// Why no more records are taken.
    stopped: Option<String>,
    /// The writers end.
    is_over: bool,
    records: u64,
    removed: u64,
}

/// Who looks after free files that no record takes.
#[derive(Debug, Default, PartialEq, Eq)]
enum Sweep {
    #[default]
    None,
    /// Some writer is to.
    Wanted,
    /// A writer does, in a moment.
    Attended,
}

impl State {
    fn begin(&mut self, tx: TxId) -> Stamp {
        self.version += 1;
        let entry = self.entries.entry(tx).or_default();
        entry.in_flight += 1;
        entry.removed = false;
        Stamp { tx, version: self.version }
    }

    fn remove(&mut self, tx: TxId) {
        let Some(entry) = self.entries.get_mut(&tx) else { return };
        self.removed += 1;
        entry.removed = true;
        self.free.extend(entry.on_disk.drain(..).map(|filed| filed.file));
        if entry.in_flight == 0 {
            self.entries.remove(&tx);
        }
    }

    /// A free file for a record of this size.
    fn take_free(&mut self, size_bytes: usize) -> Option<FileEntry> {
        self.free.pop_front_if(|file| file.size_bytes == size_bytes)
    }

    /// Free files to unlink while a record is written: the first one, which was not as long, and what is too much.
    fn take_surplus(&mut self, was_reused: bool) -> Vec<FileEntry> {
        let surplus = self.free.len().saturating_sub(FREE_MAX).min(UNLINKED_TOGETHER);
        let is_in_the_way = !was_reused && !self.free.is_empty();
        self.free.drain(..surplus.max(usize::from(is_in_the_way))).collect()
    }

    /// Takes what a record will replace: nobody else may have it meanwhile.
    fn take_older(&mut self, stamp: Stamp) -> Vec<Filed> {
        let entry = self.entries.get_mut(&stamp.tx).expect("an entry stays while a job of it runs");
        entry.on_disk.extract_if(.., |filed| filed.version < stamp.version).collect()
    }

    /// A job is over; `file` is where its record is, synced, and what was `older` is unlinked. Without one that is as it was. Returns what
    /// is to be unlinked, as a later record replaces it.
    fn end(&mut self, stamp: Stamp, file: Option<FileEntry>, older: Vec<Filed>) -> Vec<Filed> {
        self.running -= 1;
        self.records += u64::from(file.is_some());
        let entry = self.entries.get_mut(&stamp.tx).expect("an entry stays while a job of it runs");
        entry.in_flight -= 1;
        let kept = file.map_or(older, |file| vec![Filed { version: stamp.version, file }]);
        let mut replaced = Vec::new();
        if entry.removed {
            self.free.extend(kept.iter().map(|filed| filed.file));
        } else if entry.on_disk.is_empty() {
            entry.on_disk = kept;
        } else {
            replaced = kept;
        }
        if entry.in_flight == 0 && entry.on_disk.is_empty() {
            self.entries.remove(&stamp.tx);
        }
        replaced
    }
}

#[derive(Debug)]
struct Shared {
    disk: Disk,
    options: Options,
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    /// Something is done, and no more is taken.
    rest: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic under the file log's lock is a bug: stop")
    }

    /// Has so many writers look: each call costs one of the system, also when all are awake.
    fn wake(&self, writers: usize) {
        (0..writers).for_each(|_| self.work.notify_one());
    }

    /// Does what is next: a record, or what is left to unlink. False when there was nothing.
    fn run_one(&self, mut state: MutexGuard<'_, State>) -> bool {
        let Some(job) = state.queue.pop_front() else {
            let free = std::mem::take(&mut state.free);
            drop(state);
            free.iter().for_each(|file| self.disk.unlink(*file));
            return !free.is_empty();
        };
        state.running += 1;
        let free = state.take_free(job.bytes.len());
        let surplus = state.take_surplus(free.is_some());
        let older = state.take_older(job.stamp);
        drop(state);
        surplus.iter().for_each(|file| self.disk.unlink(*file));
        let fresh = FileEntry { number: job.stamp.version, size_bytes: job.bytes.len() };
        let result = self.disk.put(free.unwrap_or(fresh), free.is_none(), &job.bytes, &older);
        self.end(&job, result, older);
        true
    }

    fn end(&self, job: &Job, result: Result<FileEntry, LogError>, older: Vec<Filed>) {
        let mut state = self.state();
        let replaced = state.end(job.stamp, result.as_ref().ok().copied(), older);
        let mut absent = VecDeque::new();
        if let Err(LogError::Unknown(what)) = &result {
            state.stopped = Some(what.clone());
            absent = std::mem::take(&mut state.queue);
            for job in &absent {
                state.running += 1;
                state.end(job.stamp, None, Vec::new());
            }
        }
        let may_rest = state.stopped.is_some();
        drop(state);
        if may_rest {
            self.rest.notify_all();
        }
        replaced.iter().for_each(|filed| self.disk.unlink(filed.file));
        job.waiter.on_logged(job.stamp.tx, result.map(drop));
        let reason = "an earlier record failed, and this one was not begun";
        for job in absent {
            job.waiter.on_logged(job.stamp.tx, Err(LogError::Absent(reason.to_owned())));
        }
    }

    fn write_until_over(&self) {
        let has_time = |state: &mut State| state.queue.is_empty() && !state.is_over;
        let is_idle = |state: &mut State| has_time(state) && state.sweep != Sweep::Wanted;
        loop {
            let mut state = self.state();
            state.idle += 1;
            state = self.work.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner);
            // Others write records, and the next ones take what is free.
            let mut is_busy = false;
            if has_time(&mut state) {
                state.sweep = Sweep::Attended;
                let version = state.version;
                let waited = self.work.wait_timeout_while(state, FREE_PAUSE, has_time);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                is_busy = state.version != version && !state.is_over;
                state.sweep = if is_busy { Sweep::Wanted } else { Sweep::None };
            }
            state.idle -= 1;
            let ends = state.is_over;
            if is_busy && state.queue.is_empty() {
                continue;
            }
            if !self.run_one(state) && ends {
                return;
            }
        }
    }
}

fn spawn(shared: &Arc<Shared>, writers: usize) -> Result<Vec<JoinHandle<()>>, OpenError> {
    let mut threads = Vec::new();
    for n in 0..writers {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name(format!("txn-file-{n}"))
            .spawn(move || shared.write_until_over())
            .map_err(|error| OpenError::Failed(format!("starting a writer: {error}")))?;
        threads.push(thread);
    }
    Ok(threads)
}

/// The folder.
#[derive(Debug)]
struct Disk {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    folder: Arc<dyn Folder>,
    group: GroupSync,
    _lock: Box<dyn FileLock>,
    syncs: AtomicU64,
    bytes: AtomicU64,
}

/// What the folder held.
struct FoundAll {
    /// The last, and the first of the log; none in a folder that was just made.
    epochs: Option<(u32, u32)>,
    records: Vec<(Stamp, Vec<u8>, FileEntry)>,
    /// The highest version, or number of a file.
    version: u64,
    /// Torn ones, and those that were replaced.
    useless: Vec<FileEntry>,
}

impl Disk {
    /// Makes `bytes` durable in a new file, or in one of their size that is free, in place of `older`.
    fn put(
        &self,
        file: FileEntry,
        is_new: bool,
        bytes: &[u8],
        older: &[Filed],
    ) -> Result<FileEntry, LogError> {
        self.write(file, is_new, bytes)?;
        // The folder has a file that was free already.
        if is_new || !older.is_empty() {
            self.replace(file, older)?;
        }
        Ok(file)
    }

    fn write(&self, file: FileEntry, is_new: bool, bytes: &[u8]) -> Result<(), LogError> {
        let options = OpenOptions { write: true, create_new: is_new, ..OpenOptions::default() };
        let path = self.path(file);
        let text = |what: &str, error: &io::Error| format!("{what} {}: {error}", path.display());
        let file =
            self.vfs.open(&path, options).map_err(|error| LogError::Absent(text("opening", &error)))?;
        if let Err(error) = write_full(&*file, bytes) {
            let is_gone = self.vfs.remove(&path).and_then(|()| self.sync()).is_ok();
            return Err(sectors::after_failed_write(&text("writing", &error), is_gone));
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync_data().map_err(|error| LogError::Unknown(text("syncing", &error)))
    }

    /// Unlinks what the file at `file` replaces, and makes the folder durable. An older record that stays would be found when the newer
    /// one is gone.
    fn replace(&self, file: FileEntry, older: &[Filed]) -> Result<(), LogError> {
        let failed = |what: &str, file: FileEntry, error: io::Error| {
            LogError::Unknown(format!("{what} {}: {error}", self.path(file).display()))
        };
        for Filed { file, .. } in older {
            self.vfs.remove(&self.path(*file)).map_err(|error| failed("unlinking", *file, error))?;
        }
        self.sync().map_err(|error| failed("syncing the folder of", file, error))
    }

    fn path(&self, file: FileEntry) -> PathBuf {
        self.dir.join(sectors::file_name(file.number))
    }

    /// What was done in the folder before is durable on return.
    fn sync(&self) -> io::Result<()> {
        self.group.run(|| {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.folder.sync()
        })
    }

    /// Removes a file that nobody needs; one that stays is found at the next start, which is allowed.
    fn unlink(&self, file: FileEntry) {
        let path = self.path(file);
        if let Err(error) = self.vfs.remove(&path) {
            tracing::warn!(path = %path.display(), %error, "the file of a removed decision stays");
        }
    }

    fn found(&self, node: &NodeName) -> Result<FoundAll, OpenError> {
        let failed = |error: io::Error| OpenError::Failed(format!("reading {}: {error}", self.dir.display()));
        let names = self.vfs.list(&self.dir).map_err(failed)?;
        let mut found = FoundAll { epochs: None, version: 0, records: Vec::new(), useless: Vec::new() };
        let is_made = names.iter().any(|name| name == NODE);
        if is_made {
            found.epochs = Some(self.epochs_of(node)?);
        }
        for file in names.iter().filter(|name| sectors::is_record_name(name)) {
            let damaged = |at: usize, what: &str| {
                OpenError::Damaged(format!("{}, offset {at}: {what}", self.dir.join(file).display()))
            };
            let number = sectors::file_number(file).ok_or_else(|| damaged(0, "no name of a record"))?;
            if !is_made {
                return Err(damaged(0, "a record, but no file NODE beside it"));
            }
            let bytes = self.read(file).map_err(failed)?;
            let file = FileEntry { number, size_bytes: bytes.len() };
            found.version = found.version.max(number);
            match sectors::decode(&bytes).map_err(|(at, what)| damaged(at, what))? {
                Found::Record(stamp, record) => found.records.push((stamp, record, file)),
                Found::Torn => found.useless.push(file),
            }
        }
        found.keep_newest().map_err(|file| {
            OpenError::Damaged(format!("{}, offset 0: the record of another file", self.path(file).display()))
        })?;
        Ok(found)
    }

    /// The last epoch and the first, as NODE states them, if the folder is `node`'s.
    fn epochs_of(&self, node: &NodeName) -> Result<(u32, u32), OpenError> {
        let path = self.dir.join(NODE).display().to_string();
        let bytes = self.read(NODE).map_err(|error| OpenError::Failed(format!("reading {path}: {error}")))?;
        let (name, epoch, born) = sectors::decode_node(&bytes)
            .ok_or_else(|| OpenError::Damaged(format!("{path}, offset 0: it does not verify")))?;
        if name == node.as_str() {
            return Ok((epoch, born));
        }
        let place = self.dir.display().to_string();
        Err(OpenError::OtherNode { place, found: name.to_owned(), wanted: node.to_string() })
    }

    /// States `epoch` and the first one, durable on return.
    fn put_node(&self, node: &NodeName, epoch: u32, born: u32) -> io::Result<()> {
        let (temporary, path) = (self.dir.join(NODE_TMP), self.dir.join(NODE));
        match self.vfs.remove(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let file = self.vfs.open(&temporary, options)?;
        write_full(&*file, &sectors::encode_node(node.as_str(), epoch, born))?;
        file.sync_data()?;
        self.vfs.rename(&temporary, &path)?;
        self.folder.sync()
    }

    /// Writes what was found to new files, and removes the old ones.
    fn rewrite(&self, found: FoundAll) -> io::Result<Vec<(Filed, TxId, Vec<u8>)>> {
        let mut records = Vec::with_capacity(found.records.len());
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let mut old = found.useless;
        for (version, (stamp, record, file)) in (found.version + 1..).zip(found.records) {
            let bytes = sectors::encode(Stamp { version, ..stamp }, &record);
            let fresh = FileEntry { number: version, size_bytes: bytes.len() };
            let written = self.vfs.open(&self.path(fresh), options)?;
            write_full(&*written, &bytes)?;
            written.sync_data()?;
            old.push(file);
            records.push((Filed { version, file: fresh }, stamp.tx, record));
        }
        self.folder.sync()?;
        for file in &old {
            self.vfs.remove(&self.path(*file))?;
        }
        if !old.is_empty() {
            self.folder.sync()?;
        }
        Ok(records)
    }

    /// What the device holds of a file, past the page cache.
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self.vfs.open(&self.dir.join(name), OpenOptions::default())?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(FILE_BYTES_MAX);
        file.drop_cache(0, len as u64)?;
        let (mut bytes, mut at) = (vec![0; len], 0);
        while at < len {
            match file.read_at(&mut bytes[at..], at as u64)? {
                0 => break,
                count => at += count,
            }
        }
        bytes.truncate(at);
        Ok(bytes)
    }
}

impl FoundAll {
    /// Keeps the newest record of each transaction.
    ///
    /// # Errors
    /// A file that holds a record which another holds, too.
    fn keep_newest(&mut self) -> Result<(), FileEntry> {
        self.records.sort_unstable_by_key(|(stamp, _, file)| (*stamp, file.number));
        let mut newest: Vec<(Stamp, Vec<u8>, FileEntry)> = Vec::with_capacity(self.records.len());
        for (stamp, record, file) in self.records.drain(..) {
            self.version = self.version.max(stamp.version);
            if let Some((last, ..)) = newest.last().filter(|(last, ..)| last.tx == stamp.tx) {
                if last.version == stamp.version {
                    return Err(file);
                }
                self.useless.extend(newest.pop().map(|(.., file)| file));
            }
            newest.push((stamp, record, file));
        }
        self.records = newest;
        Ok(())
    }
}

fn write_full(file: &dyn vfs::File, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        match file.write_at(&bytes[at..], at as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => at += count,
        }
    }
    Ok(())
}

const NODE: &str = "NODE";
const NODE_TMP: &str = "NODE.tmp";
/// Most files that are kept for records to come; of more, some are unlinked beside each record.
const FREE_MAX: usize = 64;
const UNLINKED_TOGETHER: usize = 2;
/// How long files are kept for records when none comes.
const FREE_PAUSE: Duration = Duration::from_millis(10);
/// No file of the folder is longer; what lies behind shows that one is.
const FILE_BYTES_MAX: usize = RECORD_BYTES_MAX * 2;
