//! CAPTURE: what all connections ask, recorded while it is asked, and streamed to the connection that wants it.
//!
//! ```text
//!  turn begins -> slot: its loop's -> requests into the Recorder there -> turn ends -> kept until the replies were released
//!              whoever captures <- message of a Chunk <- flush, when there is enough or it is time <-/
//! ```
//!
//! Invariants
//!   1. While nothing is captured, a turn costs one relaxed load.
//!   2. A loop never waits for who captures: what that one does not take is dropped, and counted in the next chunk.
//!   3. There is one capture at a time: so the cost is bounded, and each record is written once.
//!   4. What is recorded of a request is decided by [`what`] alone; a password never is.
//!   5. A turn has its slot locked while it records, and whoever stops a capture only tries to lock it: so a capture is over when the
//!      turns that ran as it was stopped are, and each of their records is in the file, or counted as dropped.
//!
//! Bounds: `LOOP_BYTES_MAX` for each loop, [`POSTED_BYTES_MAX`] on their way, [`OUTPUT_BYTES_MAX`] in the output.
//!
//! Out of scope: the bytes (crate `capture`), what is done with them (`evenkeel capture`, `evenkeel bench replay`).

pub(crate) mod recorder;
pub(crate) mod running;
pub(crate) mod what;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use capture::{CHUNK_HEAD_BYTES, Command, END_BYTES, End, Ending};
use clock::{Clock, Nanos};
use commands::command::Flags;
use commands::lookup::Table;
use reactor::{Output, SharedBytes};
use resp::Writer;
use store::Store;

use self::recorder::Recorder;
use self::running::{Chunk, Last, Running};
use self::what::Wanted;
use crate::clients::Client;
use crate::holds::Hold;
use crate::message::Message;
use crate::peers::Connections;
use crate::settings::Connector;

/// The capture of a server, if there is one.
#[derive(Debug)]
pub(crate) struct Captures {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    peers: Arc<Connections>,
    table: &'static Table,
    /// Its number; 0: there is none, or it was stopped. All that turns look at.
    number: AtomicU64,
    /// How many there have been.
    count: AtomicU64,
    /// Locked before any slot is.
    current: Mutex<Option<Current>>,
    /// Those of a loop follow each other.
    slots: Box<[Slot]>,
    slots_each: usize,
}

/// The capture that runs, or is about to end.
#[derive(Debug)]
struct Current {
    running: Arc<Running>,
    /// Why it is to end, when its last turns have, and when it was stopped.
    ending: Option<(Ending, Nanos)>,
    /// Dropped when it has ended.
    holds: Vec<Hold>,
}

/// Where one turn at a time records; a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<Recorder>>);

/// A slot that a turn has; `None`: the capture is over.
pub(crate) type Taken<'a> = MutexGuard<'a, Option<Recorder>>;

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
    /// For so many loops under a connector.
    pub(crate) fn new(
        loops: usize,
        connector: Connector,
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        peers: Arc<Connections>,
        table: &'static Table,
    ) -> Self {
        let slots_each = if connector == Connector::Threads { THREAD_SLOTS } else { 1 };
        Captures {
            store,
            clock,
            peers,
            table,
            number: AtomicU64::new(0),
            count: AtomicU64::new(0),
            current: Mutex::default(),
            slots: (0..loops.max(1) * slots_each).map(|_| Slot::default()).collect(),
            slots_each,
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots_of(&self, loop_index: usize) -> &[Slot] {
        let first = loop_index * self.slots_each % self.slots.len();
        &self.slots[first..first + self.slots_each]
    }
}

impl Slot {
    fn lock(&self) -> Taken<'_> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<Taken<'_>> {
        match self.0.try_lock() {
            Ok(taken) => Some(taken),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Captures {
    /// Begins a capture for `client`; returns the file's beginning.
    ///
    /// # Errors
    /// Whose capture runs already.
    pub(crate) fn start(&self, client: &Client, wanted: Wanted, now: Nanos) -> Result<Vec<u8>, u64> {
        let mut current = self.current();
        if let Some(current) = &*current {
            return Err(current.running.client);
        }
        if client.capture.load(Ordering::Relaxed) != 0 {
            // The end of its last one is still on its way, and would be taken for that of this one.
            return Err(client.id);
        }
        let Wanted { hashes_keys, keeps_values, .. } = wanted;
        let plan = capture::Plan { hashes_keys, keeps_values, started_unix_us: self.clock.unix_us() };
        let header = capture::header(
            &plan,
            self.table.entries().iter().map(|entry| Command {
                name: entry.command.name,
                reads: entry.command.flags.has(Flags::READONLY),
                writes: entry.command.flags.has(Flags::WRITE),
                admin: entry.command.flags.has(Flags::ADMIN),
            }),
        );
        // Its keys are the system's randomness.
        let random = RandomState::new();
        let secret = [random.hash_one(0), random.hash_one(1)];
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let new = Arc::new(Running {
            number,
            client: client.id,
            plan: what::Plan::new(&wanted, self.table, secret),
            started: now,
            posted_bytes: AtomicU64::new(0),
            bytes: AtomicU64::new(header.len() as u64),
            records: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        for slot in &self.slots {
            *slot.lock() = Some(Recorder::new(&new, now));
        }
        client.capture.store(number, Ordering::Relaxed);
        self.number.store(number, Ordering::SeqCst);
        *current = Some(Current { running: new, ending: None, holds: Vec::new() });
        Ok(header)
    }

    /// What the turn that begins records into; `None`, for one load, while nothing is captured.
    #[inline]
    pub(crate) fn begin_turn(&self, loop_index: usize) -> Option<Taken<'_>> {
        if self.number.load(Ordering::Relaxed) == 0 { None } else { self.take_slot(loop_index) }
    }

    #[cold]
    fn take_slot(&self, loop_index: usize) -> Option<Taken<'_>> {
        let slots = self.slots_of(loop_index);
        let mut slot = slots.iter().find_map(Slot::try_lock).unwrap_or_else(|| slots[0].lock());
        if let Some(recorder) = &mut *slot {
            recorder.begin(self.store.released());
            return Some(slot);
        }
        self.give_back(slot);
        None
    }

    /// Unlocks a slot, and ends the capture if it was stopped meanwhile.
    fn give_back(&self, slot: Taken<'_>) {
        drop(slot);
        // Either who stops it sees the slot free, or this sees the stop.
        fence(Ordering::SeqCst);
        if self.number.load(Ordering::Relaxed) == 0 {
            self.end_stopped();
        }
    }

    /// Stops the capture, if one runs; returns whether one did. It ends with the turns that run now: this one, if it is recorded.
    /// `hold` is dropped then.
    pub(crate) fn stop(&self, ending: Ending, hold: Option<Hold>) -> bool {
        let is_new = match &mut *self.current() {
            Some(current) if current.ending.is_none() => {
                current.ending = Some((ending, self.clock.now()));
                current.holds.extend(hold);
                self.number.store(0, Ordering::Relaxed);
                true
            }
            _ => false,
        };
        if is_new {
            fence(Ordering::SeqCst);
            self.end_stopped();
        }
        is_new
    }

    /// Sends what is left of a capture that was stopped, and its end, unless somebody has a slot: who gives it back asks again.
    #[cold]
    fn end_stopped(&self) {
        let mut current = self.current();
        let Some(Current { running, ending: Some((ending, at)), .. }) = &*current else { return };
        let (released, now) = (self.store.released(), self.clock.now());
        for loop_index in 0..self.slots.len() / self.slots_each {
            for slot in self.slots_of(loop_index) {
                let Some(mut slot) = slot.try_lock() else { return };
                if let Some(mut recorder) = slot.take() {
                    recorder.resolve(released, now);
                    recorder.give_up_waiting();
                    self.flush(&mut recorder, loop_index, now);
                }
            }
        }
        let last = Last { length: at.since(running.started), running: Arc::clone(running), ending: *ending };
        self.peers.post(running.client, Message::CaptureEnd(last));
        *current = None;
    }

    /// Ends the turn of `connection` that is recorded.
    #[cold]
    pub(crate) fn end_turn(&self, mut slot: Taken<'_>, loop_index: usize, connection: u64) {
        let released = self.store.released();
        if let Some(recorder) = &mut *slot
            && let Some(now) = recorder.end(connection, released)
        {
            recorder.resolve(released, now);
            self.flush_if_due(recorder, loop_index, now);
        }
        self.give_back(slot);
    }

    /// How far the capture is; `None` if there is none.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let current = self.current();
        let running = &current.as_ref()?.running;
        Some(Progress {
            client: running.client,
            length: self.clock.now().since(running.started),
            bytes: running.bytes.load(Ordering::Relaxed),
            records: running.records.load(Ordering::Relaxed),
            dropped: running.dropped.load(Ordering::Relaxed),
        })
    }

    /// Ends the capture if it is that of `client`, which is gone, or wants no more of it.
    pub(crate) fn abandon(&self, client: &Client) {
        let number = client.capture.swap(0, Ordering::Relaxed);
        if number != 0 && number == self.number.load(Ordering::Relaxed) {
            self.stop(Ending::Stopped, None);
            tracing::info!(client = client.address(), "capture ended with its connection");
        }
    }

    /// Looks whether replies of this loop that waited have been released: at the end of each tick.
    #[inline]
    pub(crate) fn tend(&self, loop_index: usize) {
        if self.number.load(Ordering::Relaxed) != 0 {
            self.tend_slots(loop_index);
        }
    }

    #[cold]
    fn tend_slots(&self, loop_index: usize) {
        let released = self.store.released();
        for slot in self.slots_of(loop_index) {
            let Some(mut slot) = slot.try_lock() else { continue };
            if let Some(recorder) = slot.as_mut().filter(|recorder| recorder.has_released(released)) {
                let now = self.clock.now();
                recorder.resolve(released, now);
                self.flush_if_due(recorder, loop_index, now);
            }
            self.give_back(slot);
        }
    }

    /// Posts what is complete if that is much, or was long ago.
    fn flush_if_due(&self, recorder: &mut Recorder, loop_index: usize, now: Nanos) {
        if recorder.is_due(now) {
            self.flush(recorder, loop_index, now);
        }
    }

    /// Posts what is complete, or drops it.
    fn flush(&self, recorder: &mut Recorder, loop_index: usize, now: Nanos) {
        let Some(chunk) = recorder.take_complete(loop_index, now) else { return };
        let (running, count) = (&recorder.running, chunk.bytes.len() as u64);
        let (before, records) = (running.posted_bytes.fetch_add(count, Ordering::Relaxed), chunk.records);
        if before + count > POSTED_BYTES_MAX || !self.peers.post(running.client, Message::Captured(chunk)) {
            running.dropped.fetch_add(records.into(), Ordering::Relaxed);
        }
    }

    /// Gives turns to the connection that captures, if it takes them.
    pub(crate) fn on_captured(
        &self,
        client: &Client,
        chunk: &Chunk,
        reply_bytes_max: usize,
        output: &mut Output,
    ) {
        let (running, count) = (&*chunk.running, CHUNK_HEAD_BYTES + chunk.bytes.len());
        if client.capture.load(Ordering::Relaxed) != running.number {
            return;
        }
        let room = OUTPUT_BYTES_MAX.min(reply_bytes_max / 2);
        let bytes = running.bytes.load(Ordering::Relaxed) + count as u64;
        let is_full = bytes + END_BYTES as u64 > running.plan.wanted.bytes_max;
        if is_full || output.len() + count > room {
            running.dropped.fetch_add(chunk.records.into(), Ordering::Relaxed);
        } else {
            let dropped = running.dropped.load(Ordering::Relaxed);
            let head = capture::chunk_head(&chunk.bytes, chunk.loop_index, chunk.records, dropped);
            let at = Writer::new(output.buffer(), false).bulk_around(&head, chunk.bytes.len(), &[]);
            output.attach(at, Arc::clone(&chunk.bytes) as SharedBytes, 0..chunk.bytes.len());
            running.bytes.store(bytes, Ordering::Relaxed);
            running.records.fetch_add(chunk.records.into(), Ordering::Relaxed);
        }
        if is_full && self.number.load(Ordering::Relaxed) == running.number {
            self.stop(Ending::Full, None);
        }
    }

    /// Gives the end to the connection that captured; it is as any other then.
    pub(crate) fn on_capture_end(&self, client: &Client, last: &Last, output: &mut Output) {
        let Last { running, ending, length } = last;
        if client.capture.load(Ordering::Relaxed) != running.number {
            return;
        }
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
        client.capture.store(0, Ordering::Relaxed);
    }
}

/// Turns that run at once under the connector `threads`; one more waits for one of them.
const THREAD_SLOTS: usize = 64;
/// Most that is on its way to who captures, of all loops.
const POSTED_BYTES_MAX: u64 = 32 << 20;
/// Most that waits for who captures to read it.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
