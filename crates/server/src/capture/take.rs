//! One turn's records: written by its thread alone, given to the loop when the turn ends.
//!
//! A pipelined SET is to cost less than 3 % more while it is captured, all parts of it together: so a turn takes locks, not a
//! request; a key that was hashed for its lookup is not hashed again; and what waits for the disk is noted for the turn.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capture::{FAILED, HELD, Head, QUEUED};
use clock::Nanos;

use super::{FLUSH_BYTES, LOOP_BYTES_MAX, Running, Waiting, what};
use crate::executor::Request;
use crate::lookup::Entry;
use crate::server::Server;

/// What a thread records in a turn.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(super) running: Arc<Running>,
    bytes: RefCell<Vec<u8>>,
    records: Cell<u32>,
    dropped: Cell<u32>,
    /// When the turn's requests arrived.
    arrived: Cell<Nanos>,
    /// When the last of them was answered.
    ended: Cell<Nanos>,
    /// What was released when it began.
    released: u64,
    /// The newest that its replies wait for.
    ticket: Cell<u64>,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    /// When it ran first, if that was before its turn.
    pub(crate) since: Option<Nanos>,
    pub(crate) ended: Nanos,
    pub(crate) database: u16,
    pub(crate) ticket: u64,
    pub(crate) lookups: (u32, u32),
    pub(crate) reply_bytes: usize,
    pub(crate) failed: bool,
    /// Kept for EXEC.
    pub(crate) queued: bool,
}

thread_local! {
    /// Of the last turn that was recorded, for the next.
    static FORMER: Cell<Option<Box<Taking>>> = const { Cell::new(None) };
}

impl Server {
    /// What the turn that begins records into; `None`, for one load, while nothing is captured.
    #[inline]
    pub(crate) fn begin_capture_turn(&self, loop_index: usize) -> Option<Box<Taking>> {
        match self.captures.number.load(Ordering::Relaxed) {
            0 => None,
            number => self.take_up(number, loop_index),
        }
    }

    #[cold]
    fn take_up(&self, number: u64, loop_index: usize) -> Option<Box<Taking>> {
        self.captures.of_loop(loop_index).turns.fetch_add(1, Ordering::SeqCst);
        if self.captures.number.load(Ordering::SeqCst) != number {
            self.put_down(number, loop_index);
            return None;
        }
        let former = FORMER.take().filter(|former| former.running.number == number);
        let mut taking = former.or_else(|| {
            let current = self.captures.current();
            let running = current.as_ref().map(|current| &current.running);
            // It may have gone with its client, and another one come.
            running.filter(|running| running.number == number).map(|running| Box::new(Taking::new(running)))
        });
        match &mut taking {
            Some(taking) => {
                taking.released = self.store.released();
                capture::begin_turn(taking.bytes.get_mut());
            }
            None => self.put_down(number, loop_index),
        }
        taking
    }

    /// A turn records no longer.
    fn put_down(&self, number: u64, loop_index: usize) {
        self.captures.of_loop(loop_index).turns.fetch_sub(1, Ordering::SeqCst);
        if self.captures.number.load(Ordering::SeqCst) != number {
            self.end_stopped_capture();
        }
    }
}

impl Taking {
    fn new(running: &Arc<Running>) -> Self {
        Taking {
            running: Arc::clone(running),
            bytes: RefCell::default(),
            records: Cell::new(0),
            dropped: Cell::new(0),
            arrived: Cell::default(),
            ended: Cell::default(),
            released: 0,
            ticket: Cell::new(0),
        }
    }

    /// Says when the requests of this turn arrived.
    #[inline]
    pub(crate) fn arrive(&self, now: Nanos) {
        self.arrived.set(now);
    }

    /// Records one request.
    pub(crate) fn note(&self, server: &Server, entry: &Entry, request: &Request<'_>, answered: &Answered) {
        let mut bytes = self.bytes.borrow_mut();
        if !what::is_recorded(entry) {
            return;
        }
        if bytes.len() > TURN_BYTES_MAX || request.args.len() > what::ARGUMENTS_MAX {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        if self.records.get() == 0
            && let Some(since) = answered.since
        {
            self.arrived.set(since);
        }
        self.records.set(self.records.get() + 1);
        self.ended.set(answered.ended);
        if answered.ticket > self.released {
            self.ticket.set(self.ticket.get().max(answered.ticket));
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let head = Head {
            latency_ns: answered.ended.0.saturating_sub(self.arrived.get().0),
            reply_bytes: answered.reply_bytes,
            command: entry.id,
            database: answered.database,
            hits: answered.lookups.0,
            misses: answered.lookups.1,
            // Replies leave in order: behind one that waits, all do.
            flags: flag(self.ticket.get() != 0, HELD)
                | flag(answered.failed, FAILED)
                | flag(answered.queued, QUEUED),
        };
        let plan = what::Plan { server, wanted: &self.running.wanted, secret: &self.running.secret };
        plan.append(&mut bytes, &head, entry, request);
    }

    /// Takes the records out, completed; `None` if there are none.
    fn complete(&mut self, connection: u64) -> Option<&mut Vec<u8>> {
        if self.records.get() == 0 {
            return None;
        }
        let arrived = self.arrived.get().0.saturating_sub(self.running.started.0);
        let bytes = self.bytes.get_mut();
        capture::end_turn(bytes, 0, arrived, connection);
        Some(bytes)
    }

    fn clear(&mut self) {
        let bytes = self.bytes.get_mut();
        bytes.clear();
        bytes.shrink_to(FLUSH_BYTES);
        self.records.set(0);
        self.dropped.set(0);
        self.ticket.set(0);
    }
}

impl Server {
    /// Gives the records of a turn of `connection` to the loop.
    #[cold]
    pub(crate) fn end_capture_turn(&self, mut taking: Box<Taking>, loop_index: usize, connection: u64) {
        let (records, ticket, arrived) = (taking.records.get(), taking.ticket.get(), taking.arrived.get());
        // The clock was read for the last request.
        let (mut lost, now) = (taking.dropped.get(), taking.ended.get());
        let number = taking.running.number;
        if let Some(turn) = taking.complete(connection) {
            let mut kept = self.captures.of_loop(loop_index).kept();
            // Its client may have gone meanwhile, and another one captures.
            if let Some(kept) = kept.as_mut().filter(|kept| kept.running.number == number) {
                let released = self.store.released();
                kept.resolve(released, now);
                if kept.bytes.len() + turn.len() > LOOP_BYTES_MAX {
                    lost += records;
                } else {
                    let at = kept.bytes.len();
                    kept.bytes.extend_from_slice(turn);
                    if ticket > released {
                        kept.waiting.push_back(Waiting { ticket, at, records: kept.records, arrived });
                    } else if ticket > 0 {
                        let after = now.0.saturating_sub(arrived.0);
                        capture::set_released(&mut kept.bytes, at, Some(after));
                    }
                    kept.records += records;
                }
                self.flush_if_due(kept, loop_index, now);
            }
        }
        if lost > 0 {
            taking.running.dropped.fetch_add(lost.into(), Ordering::Relaxed);
        }
        taking.clear();
        FORMER.set(Some(taking));
        self.put_down(number, loop_index);
    }
}

/// Most that a turn records, beside its last request.
const TURN_BYTES_MAX: usize = 2 << 20;
