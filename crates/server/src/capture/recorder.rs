//! Recording the turns of a loop, one after another, each as it runs.
//!
//! A pipelined GET is to cost less than 3 % more while it is captured, all parts of it together: so a turn takes a lock, not a
//! request; what is written is written where it stays until it is posted; a key that was hashed for its lookup is not hashed
//! again; and what waits for the disk is noted for the turn.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capture::{FAILED, HELD, Head, QUEUED};
use clock::Nanos;
use commands::call::Lookups;
use commands::lookup::Entry;
use store::Store;
use ticket::Ticket;

use super::running::{Chunk, Running};
use super::what::{self, Asked};

/// What a loop has recorded and not given away.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(super) running: Arc<Running>,
    /// Whole turns, and behind them the one that runs.
    bytes: RefCell<Vec<u8>>,
    turn: Turn,
    /// Records of the whole turns.
    records: u32,
    /// Turns with replies that wait for the disk, by their order.
    waiting: VecDeque<Waiting>,
    flushed: Nanos,
}

/// The turn that runs.
#[derive(Debug, Default)]
struct Turn {
    /// Where it begins.
    at: usize,
    records: Cell<u32>,
    dropped: Cell<u32>,
    /// When its requests arrived.
    arrived: Cell<Nanos>,
    /// When the last of them was answered.
    ended: Cell<Nanos>,
    /// What was released when it began.
    released: Ticket,
    /// The newest ticket that its replies wait for.
    ticket: Cell<Ticket>,
}

/// A turn that waits for a ticket.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    /// Where it begins.
    at: usize,
    /// Records before it.
    records: u32,
    arrived: Nanos,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// When it ran first, if that was before its turn.
    pub(crate) since: Option<Nanos>,
    pub(crate) ended: Nanos,
    pub(crate) database: u16,
    pub(crate) ticket: Ticket,
    pub(crate) lookups: Lookups,
    pub(crate) reply_bytes: usize,
    pub(crate) failed: bool,
    /// Kept for EXEC.
    pub(crate) queued: bool,
}

impl Turn {
    /// Counts one more record, and makes its head.
    #[inline]
    fn head(&self, entry: &Entry, answered: &Answered) -> Head {
        let before = self.records.get();
        if let (0, Some(since)) = (before, answered.since) {
            self.arrived.set(since);
        }
        self.records.set(before + 1);
        self.ended.set(answered.ended);
        if !answered.ticket.is_covered_by(self.released) {
            self.ticket.set(self.ticket.get().and(answered.ticket));
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Head {
            latency_ns: answered.ended.0.saturating_sub(self.arrived.get().0),
            reply_bytes: answered.reply_bytes,
            command: entry.id,
            database: answered.database,
            hits: answered.lookups.hits,
            misses: answered.lookups.misses,
            // Replies leave in order: behind one that waits, all do.
            flags: flag(!self.ticket.get().is_nothing(), HELD)
                | flag(answered.failed, FAILED)
                | flag(answered.queued, QUEUED),
        }
    }
}

impl Recorder {
    pub(super) fn new(running: &Arc<Running>, now: Nanos) -> Self {
        Recorder {
            running: Arc::clone(running),
            bytes: RefCell::default(),
            turn: Turn::default(),
            records: 0,
            waiting: VecDeque::new(),
            flushed: now,
        }
    }

    /// Begins a turn; `released` is the newest ticket whose replies may leave.
    pub(super) fn begin(&mut self, released: Ticket) {
        let at = capture::begin_turn(self.bytes.get_mut());
        self.turn = Turn { at, released, ..Turn::default() };
    }

    /// Says when the requests of this turn arrived.
    #[inline]
    pub(crate) fn arrive(&self, now: Nanos) {
        self.turn.arrived.set(now);
    }

    /// Records one request. Called, it took half as long again.
    #[inline(always)]
    pub(crate) fn note(&self, store: &Store, entry: &Entry, request: Asked<'_>, answered: &Answered) {
        let plan = &self.running.plan;
        match (plan.shape(entry), request.foreseen) {
            (Some(shape), Some(foreseen)) if shape.is_plain(request.args) && self.has_room() => {
                let ((key_bytes, hash), value_bytes) = plan.plain(request.args, foreseen);
                let head = self.turn.head(entry, answered);
                let bytes = &mut *self.bytes.borrow_mut();
                capture::append_plain(bytes, &head, key_bytes, hash, value_bytes);
                store::prefetch(bytes.as_ptr().wrapping_add(bytes.len() + PREFETCH_BYTES));
            }
            (shape, _) => self.note_at_length(store, shape, entry, request, answered),
        }
    }

    #[cold]
    fn note_at_length(
        &self,
        store: &Store,
        shape: Option<what::Shape>,
        entry: &Entry,
        request: Asked<'_>,
        answered: &Answered,
    ) {
        if shape.is_none() {
            return;
        }
        if !self.has_room() || request.args.len() > what::ARGUMENTS_MAX {
            return self.turn.dropped.set(self.turn.dropped.get() + 1);
        }
        let arguments = self.running.plan.arguments(store, entry, request);
        let head = self.turn.head(entry, answered);
        capture::append_record(&mut self.bytes.borrow_mut(), &head, arguments);
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.bytes.borrow().len() <= LOOP_BYTES_MAX
    }

    /// Ends the turn, which was `connection`'s; returns when, unless it recorded nothing.
    pub(super) fn end(&mut self, connection: u64, released: Ticket) -> Option<Nanos> {
        let Turn { at, records, dropped, arrived, ended, ticket, .. } = &self.turn;
        let (at, records, dropped) = (*at, records.get(), dropped.get());
        // The clock was read for the last request.
        let (arrived, now, ticket) = (arrived.get(), ended.get(), ticket.get());
        if dropped > 0 {
            self.running.dropped.fetch_add(dropped.into(), Ordering::Relaxed);
        }
        let bytes = self.bytes.get_mut();
        if records == 0 {
            bytes.truncate(at);
            return None;
        }
        capture::end_turn(bytes, at, arrived.0.saturating_sub(self.running.started.0), connection);
        if !ticket.is_covered_by(released) {
            self.waiting.push_back(Waiting { ticket, at, records: self.records, arrived });
        } else if !ticket.is_nothing() {
            capture::set_released(bytes, at, Some(now.0.saturating_sub(arrived.0)));
        }
        self.records += records;
        Some(now)
    }

    /// Says of the turns whose tickets `released` covers that they were released now.
    pub(super) fn resolve(&mut self, released: Ticket, now: Nanos) {
        while let Some(first) = self.waiting.pop_front_if(|first| first.ticket.is_covered_by(released)) {
            let after = now.0.saturating_sub(first.arrived.0);
            capture::set_released(self.bytes.get_mut(), first.at, Some(after));
        }
    }

    /// Whether [`Recorder::resolve`] would say something.
    pub(super) fn has_released(&self, released: Ticket) -> bool {
        self.waiting.front().is_some_and(|first| first.ticket.is_covered_by(released))
    }

    /// Says of all that wait that nobody will know.
    pub(super) fn give_up_waiting(&mut self) {
        for one in self.waiting.drain(..) {
            capture::set_released(self.bytes.get_mut(), one.at, None);
        }
    }

    /// Whether the turns before the first that waits are much, or were flushed long ago.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        let complete = self.waiting.front().map_or_else(|| self.bytes.borrow().len(), |first| first.at);
        complete >= FLUSH_BYTES || (complete > 0 && now.since(self.flushed) >= FLUSH_TIME)
    }

    /// Takes the turns before the first that waits; `None` if there are none.
    pub(super) fn take_complete(&mut self, loop_index: usize, now: Nanos) -> Option<Chunk> {
        self.flushed = now;
        let bytes = self.bytes.get_mut();
        let (at, records) =
            self.waiting.front().map_or((bytes.len(), self.records), |it| (it.at, it.records));
        if at == 0 {
            return None;
        }
        // As much again will come, and the rest of the turn that makes it enough: to grow would be to copy it all.
        let again = if at >= FLUSH_BYTES { FLUSH_BYTES + TURN_BYTES } else { at };
        let mut rest = Vec::with_capacity((bytes.len() - at).max(again));
        rest.extend_from_slice(&bytes[at..]);
        bytes.truncate(at);
        for one in &mut self.waiting {
            one.at -= at;
            one.records -= records;
        }
        self.records -= records;
        let running = Arc::clone(&self.running);
        let bytes = Arc::new(std::mem::replace(bytes, rest));
        Some(Chunk { running, loop_index, records, bytes })
    }
}

/// A loop gives away so much at once.
const FLUSH_BYTES: usize = 64 << 10;
/// How far ahead of what is written. Writes happen in order: one to memory that is far away holds up all behind it.
const PREFETCH_BYTES: usize = 1 << 10;
/// As much as most turns record.
const TURN_BYTES: usize = 16 << 10;
/// Or what it has after so long.
const FLUSH_TIME: Duration = Duration::from_millis(100);
/// Most that a loop keeps, beside its last request: of replies that wait for a disk which stands still.
const LOOP_BYTES_MAX: usize = 8 << 20;
