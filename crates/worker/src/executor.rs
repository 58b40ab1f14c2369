//! One thread: takes letters, drives the tasks that have something to do, sends, and parks when there is nothing.
//!
//! ```text
//!   take letters -> timers -> each ready cell one turn (own messages are handed over at once) -> flush -> park
//! ```
//!
//! Invariants
//!   1. A cell that got a message, a wake or a timer is ready once, however many there were.
//!   2. The thread parks only if no cell is ready, nothing of its own is left and all that it has sent was delivered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};

use crate::cell::Cell;
use crate::mailbox::{Letters, Mailbox, Order};
use crate::post::{Directory, Post};
use crate::quiet::{Counts, Quiet};
use crate::stats::Board;

/// A thread's tasks, and what it needs to drive them.
pub(crate) struct Executor {
    thread: usize,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    directory: Arc<Directory>,
    mailbox: Arc<Mailbox>,
    quiet: Arc<Quiet>,
    post: Post,
    cells: Vec<Slot>,
    ready: VecDeque<usize>,
    /// When cells are to have a turn. What is here of a cell may be earlier than what it wants by now.
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    letters: Letters,
    /// Envelopes taken since the start.
    taken: u64,
    published: Nanos,
    is_draining: bool,
    is_stopped: bool,
}

/// A cell and what is known of it.
struct Slot {
    cell: Cell,
    is_ready: bool,
    /// It had a turn since its counters were published.
    is_changed: bool,
    /// Its earliest timer.
    armed: Option<Nanos>,
}

impl Executor {
    pub(crate) fn new(
        thread: usize,
        clock: Arc<dyn Clock>,
        board: Arc<Board>,
        directory: Arc<Directory>,
        quiet: Arc<Quiet>,
        cells: Vec<Cell>,
    ) -> Self {
        let slot = |cell| Slot { cell, is_ready: true, is_changed: true, armed: None };
        Self {
            thread,
            published: clock.now(),
            clock,
            board,
            mailbox: Arc::clone(&directory.mailboxes[thread]),
            post: Post::new(Arc::clone(&directory), thread),
            directory,
            quiet,
            ready: (0..cells.len()).collect(),
            cells: cells.into_iter().map(slot).collect(),
            timers: BinaryHeap::new(),
            letters: Letters::default(),
            taken: 0,
            is_draining: false,
            is_stopped: false,
        }
    }

    /// Runs until the order to stop.
    pub(crate) fn run(mut self) {
        while !self.is_stopped {
            let now = self.clock.now();
            self.take_letters(now);
            self.take_timers(now);
            self.turns(now);
            self.post.flush();
            if self.ready.is_empty() {
                self.rest();
            } else if now.since(self.published) >= PUBLISH {
                self.publish(now);
            }
        }
        self.publish(self.clock.now());
    }

    fn take_letters(&mut self, now: Nanos) {
        let mut letters = std::mem::take(&mut self.letters);
        self.mailbox.take(&mut letters);
        self.taken += letters.envelopes.len() as u64;
        for envelope in letters.envelopes.drain(..) {
            let cell = self.directory.place(envelope.to).cell;
            self.cells[cell].cell.on_envelope(now, envelope);
            self.make_ready(cell);
        }
        for task in letters.wakes.drain(..) {
            self.make_ready(self.directory.place(task).cell);
        }
        for order in letters.orders.drain(..) {
            self.on_order(order);
        }
        self.letters = letters;
    }

    fn on_order(&mut self, order: Order) {
        self.is_draining |= order == Order::Drain;
        self.is_stopped |= order == Order::Stop;
        for cell in 0..self.cells.len() {
            let slot = &mut self.cells[cell];
            self.board.threads[self.thread].begin(slot.cell.task(), self.clock.now());
            slot.cell.on_order(order);
            self.make_ready(cell);
        }
        self.board.threads[self.thread].end();
    }

    fn take_timers(&mut self, now: Nanos) {
        while let Some(&Reverse((due, cell))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            if self.cells[cell].armed == Some(due) {
                self.cells[cell].armed = None;
                self.make_ready(cell);
            }
        }
    }

    /// Gives each cell that is ready now one turn.
    fn turns(&mut self, mut now: Nanos) {
        for _ in 0..self.ready.len() {
            if self.is_stopped {
                return;
            }
            let cell = self.ready.pop_front().expect("it was counted");
            self.cells[cell].is_ready = false;
            self.turn(cell, now);
            now = self.clock.now();
        }
    }

    fn turn(&mut self, cell: usize, now: Nanos) {
        let slot = &mut self.cells[cell];
        self.board.threads[self.thread].begin(slot.cell.task(), now);
        let has_more = slot.cell.turn(now, &mut self.post.outbox);
        self.board.threads[self.thread].end();
        slot.is_changed = true;
        self.arm(cell);
        if has_more {
            self.make_ready(cell);
        }
        self.post.sort();
        while let Some((to, envelope)) = self.post.own.pop_front() {
            self.cells[to].cell.on_envelope(now, envelope);
            self.make_ready(to);
        }
    }

    fn arm(&mut self, cell: usize) {
        let slot = &mut self.cells[cell];
        if let Some(due) = slot.cell.next_due()
            && slot.armed.is_none_or(|armed| due < armed)
        {
            slot.armed = Some(due);
            self.timers.push(Reverse((due, cell)));
        }
    }

    fn make_ready(&mut self, cell: usize) {
        if !std::mem::replace(&mut self.cells[cell].is_ready, true) {
            self.ready.push_back(cell);
        }
    }

    /// Parks until a letter comes or a timer is due.
    fn rest(&mut self) {
        let now = self.clock.now();
        self.publish(now);
        let is_idle = self.is_draining && self.cells.iter().all(|slot| slot.cell.is_idle());
        if is_idle {
            self.quiet.tell(self.thread, Some(Counts { sent: self.post.sent, taken: self.taken }));
        }
        self.mailbox.park(self.until_next_timer(now));
        if is_idle {
            self.quiet.tell(self.thread, None);
        }
    }

    fn until_next_timer(&self, now: Nanos) -> Option<Duration> {
        self.timers.peek().map(|Reverse((due, _))| due.since(now))
    }

    fn publish(&mut self, now: Nanos) {
        self.published = now;
        for slot in &mut self.cells {
            if std::mem::take(&mut slot.is_changed) {
                slot.cell.publish();
            }
        }
    }
}

/// How old counters may be while a thread is busy.
const PUBLISH: Duration = Duration::from_millis(100);
