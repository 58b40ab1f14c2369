//! CAPTURE: what all connections ask, recorded while it is asked, and streamed to the connection that wants it.
//!
//! ```text
//!  request -> Taking: this thread's, for a turn -> end of the turn -> Kept: the loop's, until the replies were released
//!           whoever captures <- message of a chunk <- flush, when there is enough or it is time <-/
//! ```
//!
//! Invariants
//!   1. While nothing is captured, a turn costs one relaxed load.
//!   2. A loop never waits for who captures: what that one does not take is dropped, and counted in the next chunk.
//!   3. There is one capture at a time: so the cost is bounded, and each record is written once.
//!   4. What is recorded of a request is decided by [`what`] alone; a password never is.
//!   5. A capture is over when the turns that ran as it was stopped are: each of their records is in the file, or counted as dropped.
//!
//! Bounds: [`LOOP_BYTES_MAX`] for each loop, [`POSTED_BYTES_MAX`] on their way, [`OUTPUT_BYTES_MAX`] in the output.
//!
//! Out of scope: the bytes (crate `capture`), what is done with them (`evenkeel capture`, `evenkeel bench replay`).

pub(crate) mod take;
mod what;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capture::{CHUNK_HEAD_BYTES, Command, END_BYTES, End, Ending, Plan};
use clock::Nanos;
use reactor::Output;
use resp::Writer;

use crate::clients::Client;
use crate::command::Flags;
use crate::lookup::Table;
use crate::message::Message;
use crate::server::Server;

/// What somebody wants captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) hashes_keys: bool,
    pub(crate) keeps_values: bool,
    /// The header's bytes and those of all chunks.
    pub(crate) bytes_max: u64,
}

/// The capture of a server, if there is one.
#[derive(Debug)]
pub(crate) struct Captures {
    /// Its number; 0: there is none. All that turns look at.
    number: AtomicU64,
    current: Mutex<Option<Current>>,
    loops: Box<[OfLoop]>,
}

/// The capture that runs, or is about to end.
#[derive(Debug)]
struct Current {
    running: Arc<Running>,
    /// Why it is to end, when its last turns have, and when it was stopped.
    ending: Option<(Ending, Nanos)>,
}

/// One loop; a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OfLoop {
    kept: Mutex<Option<Kept>>,
    /// Turns that record.
    turns: AtomicU64,
}

/// A capture.
#[derive(Debug)]
pub(crate) struct Running {
    number: u64,
    /// The connection that gets it.
    client: u64,
    wanted: Wanted,
    started: Nanos,
    /// What hashes of keys are mixed with; told to nobody.
    secret: [u64; 2],
    /// Bytes of chunks that were posted and not taken.
    posted_bytes: AtomicU64,
    /// What follows is written by the loop of the connection that gets it, and `dropped` by all.
    bytes: AtomicU64,
    records: AtomicU64,
    dropped: AtomicU64,
}

/// What a loop has recorded and not given away.
#[derive(Debug)]
struct Kept {
    running: Arc<Running>,
    /// Whole turns.
    bytes: Vec<u8>,
    /// Records in them.
    records: u32,
    /// Turns with replies that wait for the disk, by their order.
    waiting: VecDeque<Waiting>,
    flushed: Nanos,
}

/// A turn that waits for a ticket.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    /// Where it begins.
    at: usize,
    /// Records before it.
    records: u32,
    arrived: Nanos,
}

/// Turns on their way to who captures.
#[derive(Debug)]
pub struct Chunk {
    running: Arc<Running>,
    loop_index: usize,
    records: u32,
    bytes: Vec<u8>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.running.posted_bytes.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

/// The end of a capture, on its way to who captures.
#[derive(Debug)]
pub struct Last {
    running: Arc<Running>,
    ending: Ending,
    length: Duration,
}

/// How far a capture is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Who gets it.
    pub(crate) client: u64,
    pub(crate) length: Duration,
    /// What it was sent, records and bytes of the file.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Records that it will not be sent.
    pub(crate) dropped: u64,
}

impl Captures {
    pub(crate) fn new(loops: usize) -> Self {
        Captures {
            number: AtomicU64::new(0),
            current: Mutex::default(),
            loops: (0..loops.max(1)).map(|_| OfLoop::default()).collect(),
        }
    }

    /// Locked before any loop is.
    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_loop(&self, loop_index: usize) -> &OfLoop {
        &self.loops[loop_index % self.loops.len()]
    }
}

impl OfLoop {
    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Begins a capture for `client`; returns the file's beginning.
    ///
    /// # Errors
    /// Whose capture runs already.
    pub(crate) fn start_capture(&self, client: &Client, wanted: Wanted, now: Nanos) -> Result<Vec<u8>, u64> {
        /// Of all servers of the process: threads remember the number, and tests have several.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let mut current = self.captures.current();
        if let Some(current) = &*current {
            return Err(current.running.client);
        }
        if client.capture.load(Ordering::Relaxed) {
            // The end of its last one is still on its way, and would be taken for that of this one.
            return Err(client.id);
        }
        let Wanted { hashes_keys, keeps_values, .. } = wanted;
        let plan = Plan { hashes_keys, keeps_values, started_unix_us: self.clock.unix_us() };
        let header = capture::header(
            &plan,
            Table::of_server().entries().iter().map(|entry| Command {
                name: entry.command.name,
                reads: entry.command.flags.has(Flags::READONLY),
                writes: entry.command.flags.has(Flags::WRITE),
                admin: entry.command.flags.has(Flags::ADMIN),
            }),
        );
        // Its keys are the system's randomness.
        let random = RandomState::new();
        let new = Arc::new(Running {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            client: client.id,
            wanted,
            started: now,
            secret: [random.hash_one(0), random.hash_one(1)],
            posted_bytes: AtomicU64::new(0),
            bytes: AtomicU64::new(header.len() as u64),
            records: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        for of_loop in &self.captures.loops {
            *of_loop.kept() = Some(Kept::new(&new, now));
        }
        client.capture.store(true, Ordering::Relaxed);
        self.captures.number.store(new.number, Ordering::SeqCst);
        *current = Some(Current { running: new, ending: None });
        Ok(header)
    }

    /// Stops the capture, if one runs; returns whether one did. It ends with the turns that run now: this one, if it is recorded.
    pub(crate) fn stop_capture(&self, ending: Ending) -> bool {
        let is_new = match &mut *self.captures.current() {
            Some(current) if current.ending.is_none() => {
                current.ending = Some((ending, self.clock.now()));
                self.captures.number.store(0, Ordering::SeqCst);
                true
            }
            _ => false,
        };
        if is_new {
            self.end_stopped_capture();
        }
        is_new
    }

    /// Sends what is left of a capture that was stopped, and its end, unless a turn still records: the last of them asks again.
    ///
    /// A turn counts itself before it looks whether the capture still runs, and looks again after it has given away its records:
    /// so either this sees the turn, or the turn sees the stop.
    #[cold]
    fn end_stopped_capture(&self) {
        let mut current = self.captures.current();
        let Some(Current { running, ending: Some((ending, at)) }) = &*current else { return };
        if self.captures.loops.iter().any(|of_loop| of_loop.turns.load(Ordering::SeqCst) > 0) {
            return;
        }
        let (released, now) = (self.store.released(), self.clock.now());
        for (loop_index, of_loop) in self.captures.loops.iter().enumerate() {
            if let Some(mut kept) = of_loop.kept().take() {
                kept.resolve(released, now);
                kept.give_up_waiting();
                self.flush(&mut kept, loop_index, now);
            }
        }
        let last = Last { length: at.since(running.started), running: Arc::clone(running), ending: *ending };
        self.post(running.client, Message::CaptureEnd(last));
        *current = None;
    }

    /// How far the capture is; `None` if there is none.
    pub(crate) fn capture_progress(&self) -> Option<Progress> {
        let current = self.captures.current();
        let running = &current.as_ref()?.running;
        Some(Progress {
            client: running.client,
            length: self.clock.now().since(running.started),
            bytes: running.bytes.load(Ordering::Relaxed),
            records: running.records.load(Ordering::Relaxed),
            dropped: running.dropped.load(Ordering::Relaxed),
        })
    }

    /// Ends the capture if it is that of `client`, which is gone.
    pub(crate) fn abandon_capture(&self, client: &Client) {
        if !client.capture.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut current = self.captures.current();
        if current.as_ref().is_some_and(|current| current.running.client == client.id) {
            self.captures.number.store(0, Ordering::SeqCst);
            self.captures.loops.iter().for_each(|of_loop| *of_loop.kept() = None);
            *current = None;
            tracing::info!(client = client.address(), "capture ended with its connection");
        }
    }

    /// Looks whether replies of this loop that waited have been released: at the end of each tick.
    #[inline]
    pub(crate) fn tend_capture(&self, loop_index: usize) {
        if self.captures.number.load(Ordering::Relaxed) != 0 {
            self.tend_kept(loop_index);
        }
    }

    #[cold]
    fn tend_kept(&self, loop_index: usize) {
        let mut kept = self.captures.of_loop(loop_index).kept();
        let Some(kept) = &mut *kept else { return };
        let released = self.store.released();
        if kept.waiting.front().is_some_and(|first| first.ticket <= released) {
            let now = self.clock.now();
            kept.resolve(released, now);
            self.flush_if_due(kept, loop_index, now);
        }
    }

    /// Posts what is complete if that is much, or was long ago.
    fn flush_if_due(&self, kept: &mut Kept, loop_index: usize, now: Nanos) {
        let complete = kept.waiting.front().map_or(kept.bytes.len(), |first| first.at);
        if complete >= FLUSH_BYTES || (complete > 0 && now.since(kept.flushed) >= FLUSH_TIME) {
            self.flush(kept, loop_index, now);
        }
    }

    /// Posts the turns before the first that waits, or drops them.
    fn flush(&self, kept: &mut Kept, loop_index: usize, now: Nanos) {
        kept.flushed = now;
        let (bytes, records) = kept.take_complete();
        let running = &kept.running;
        if bytes.is_empty() {
            return;
        }
        let count = bytes.len() as u64;
        let before = running.posted_bytes.fetch_add(count, Ordering::Relaxed);
        let chunk = Chunk { running: Arc::clone(running), loop_index, records, bytes };
        if before + count > POSTED_BYTES_MAX || !self.post(running.client, Message::Captured(chunk)) {
            running.dropped.fetch_add(records.into(), Ordering::Relaxed);
        }
    }

    /// Gives turns to the connection that captures, if it takes them.
    pub(crate) fn on_captured(&self, chunk: &Chunk, output: &mut Output) {
        let (running, count) = (&*chunk.running, (CHUNK_HEAD_BYTES + chunk.bytes.len()) as u64);
        let room = OUTPUT_BYTES_MAX.min(self.reply_bytes_max() / 2);
        let is_full =
            running.bytes.load(Ordering::Relaxed) + count + END_BYTES as u64 > running.wanted.bytes_max;
        if is_full || output.len() + chunk.bytes.len() > room {
            running.dropped.fetch_add(chunk.records.into(), Ordering::Relaxed);
        } else {
            let dropped = running.dropped.load(Ordering::Relaxed);
            let mut bytes = Vec::new();
            capture::chunk(&mut bytes, &chunk.bytes, chunk.loop_index, chunk.records, dropped);
            Writer::new(output.buffer(), false).bulk(&bytes);
            running.bytes.fetch_add(count, Ordering::Relaxed);
            running.records.fetch_add(chunk.records.into(), Ordering::Relaxed);
        }
        if is_full && self.captures.number.load(Ordering::Relaxed) == running.number {
            self.stop_capture(Ending::Full);
        }
    }

    /// Gives the end to the connection that captured; it is as any other then.
    pub(crate) fn on_capture_end(&self, client: &Client, last: &Last, output: &mut Output) {
        let Last { running, ending, length } = last;
        let end = End {
            length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
            records: running.records.load(Ordering::Relaxed),
            dropped: running.dropped.load(Ordering::Relaxed),
            ending: *ending,
        };
        let mut bytes = Vec::new();
        capture::end(&mut bytes, &end);
        let End { records, dropped, ending, .. } = end;
        tracing::info!(client = client.address(), records, dropped, ?ending, "capture ended");
        Writer::new(output.buffer(), false).bulk(&bytes);
        client.capture.store(false, Ordering::Relaxed);
    }
}

impl Kept {
    fn new(running: &Arc<Running>, now: Nanos) -> Self {
        let (bytes, waiting) = (Vec::new(), VecDeque::new());
        Kept { running: Arc::clone(running), bytes, records: 0, waiting, flushed: now }
    }

    /// Says of the turns that waited for at most `released` that they were released now.
    fn resolve(&mut self, released: u64, now: Nanos) {
        while let Some(first) = self.waiting.pop_front_if(|first| first.ticket <= released) {
            let after = now.0.saturating_sub(first.arrived.0);
            capture::set_released(&mut self.bytes, first.at, Some(after));
        }
    }

    /// Says of all others that nobody will know.
    fn give_up_waiting(&mut self) {
        for one in self.waiting.drain(..) {
            capture::set_released(&mut self.bytes, one.at, None);
        }
    }

    /// Takes the turns before the first that waits, and how many records they have.
    fn take_complete(&mut self) -> (Vec<u8>, u32) {
        let Some(first) = self.waiting.front() else {
            let room = self.bytes.len().min(FLUSH_BYTES * 2);
            let whole = std::mem::replace(&mut self.bytes, Vec::with_capacity(room));
            return (whole, std::mem::take(&mut self.records));
        };
        let (at, records) = (first.at, first.records);
        let rest = self.bytes.split_off(at);
        for one in &mut self.waiting {
            one.at -= at;
            one.records -= records;
        }
        self.records -= records;
        (std::mem::replace(&mut self.bytes, rest), records)
    }
}

/// A loop gives away so much at once.
const FLUSH_BYTES: usize = 64 << 10;
/// Or what it has after so long.
const FLUSH_TIME: Duration = Duration::from_millis(100);
/// Most that a loop keeps: of replies that wait for a disk which stands still.
const LOOP_BYTES_MAX: usize = 8 << 20;
/// Most that is on its way to who captures, of all loops.
const POSTED_BYTES_MAX: u64 = 32 << 20;
/// Most that waits for who captures to read it.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
