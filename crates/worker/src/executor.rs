//! One thread: takes letters, drives the tasks that have something to do, sends, and parks when there is nothing.
//!
//! ```text
//!   take letters -> timers -> each ready cell one turn (own messages are handed over at once) -> flush -> park
//! ```
//!
//! Invariants
//!   1. A cell that got a message, a wake or a timer is ready once, however many there were.
//!   2. The thread parks only if no cell is ready, nothing of its own is left and all that it has sent was delivered.
//!   3. A cell keeps its place until it is gone; what comes for one that is gone is dropped: it is of the task's former start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};
use connection::Target;
use topology::anchor::Ancestor;
use topology::epochs::{Beginning, EpochReport, Order as EpochOrder};
use topology::ids::{TaskId, WorkerId};
use topology::message::Envelope;
use topology::spout::SpoutTask;

use crate::cell::{Cell, Common, Exact};
use crate::epochs::member::Member;
use crate::mailbox::{Mailbox, Order, Received};
use crate::maker::Maker;
use crate::part::{Move, Moves};
use crate::post::{Directory, Place, Post};
use crate::quiet::{Counts, Quiet};
use crate::stats::Board;
use crate::times::{Activity, Times};

/// A thread's tasks, and what it needs to drive them.
pub(crate) struct Executor {
    thread: usize,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    directory: Arc<Directory>,
    mailbox: Arc<Mailbox>,
    quiet: Arc<Quiet>,
    post: Post,
    /// Who is told of moves.
    moves: Moves,
    /// `None`: it was there and has moved.
    cells: Vec<Option<CellEntry>>,
    ready: VecDeque<usize>,
    /// When cells are to have a turn. What is here of a cell may be earlier than what it wants by now.
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    letters: Received,
    /// Envelopes taken since the start.
    taken: u64,
    published: Nanos,
    is_draining: bool,
    is_stopped: bool,
    is_active: bool,
    /// With exactly-once: what its tasks are made anew with.
    exactly_once: Option<ExactlyOnce>,
    generation: u32,
}

/// What the tasks of a thread are made anew with.
#[derive(Clone, Debug)]
pub(crate) struct ExactlyOnce {
    pub(crate) maker: Arc<Maker>,
    pub(crate) target: Target,
    pub(crate) member: Arc<Member>,
}

/// A cell and what is known of it.
struct CellEntry {
    cell: Cell,
    is_ready: bool,
    /// The task is to move: it ends here when it can.
    is_leaving: bool,
    /// The task has moved here, and not all workers know it: what it sends now could be answered where it was.
    is_paused: bool,
    /// It had a turn since its counters were published.
    is_changed: bool,
    times: Times,
    /// Its earliest timer.
    armed: Option<Nanos>,
}

/// What all threads of a topology share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) board: Arc<Board>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) quiet: Arc<Quiet>,
    pub(crate) moves: Moves,
}

impl Executor {
    /// `cells`: each with whether its task waits for [`Order::Resume`].
    pub(crate) fn new(
        thread: usize,
        shared: Shared,
        cells: Vec<(Cell, bool)>,
        exactly_once: Option<ExactlyOnce>,
    ) -> Self {
        let Shared { clock, board, directory, quiet, moves } = shared;
        let now = clock.now();
        Self {
            thread,
            published: now,
            clock,
            board,
            mailbox: Arc::clone(&directory.mailboxes[thread]),
            post: Post::new(Arc::clone(&directory), thread),
            directory,
            quiet,
            moves,
            ready: (0..cells.len()).collect(),
            cells: cells
                .into_iter()
                .map(|(cell, is_paused)| Some(CellEntry { is_paused, ..CellEntry::new(cell, now) }))
                .collect(),
            timers: BinaryHeap::new(),
            letters: Received::default(),
            taken: 0,
            is_draining: false,
            is_stopped: false,
            is_active: true,
            exactly_once,
            generation: 0,
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
            if self.ready.is_empty() && !self.is_stopped {
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
            let Some(cell) = self.directory.cell(envelope.to, self.thread) else { continue };
            self.take_envelope(cell, now, envelope);
        }
        for task in letters.wakes.drain(..) {
            let cell = self.directory.cell(task, self.thread);
            cell.filter(|cell| *cell < self.cells.len())
                .into_iter()
                .for_each(|cell| self.make_ready(cell, now));
        }
        for order in letters.orders.drain(..) {
            self.on_order(now, order);
        }
        self.letters = letters;
    }

    fn take_envelope(&mut self, cell: usize, now: Nanos, envelope: Envelope) {
        // With exactly-once tasks may have other places while those of the generation before are still here: what is for these is of no use.
        if let Some(Some(slot)) = self.cells.get_mut(cell)
            && slot.cell.task() == envelope.to
        {
            slot.cell.on_envelope(now, envelope);
            self.make_ready(cell, now);
        }
    }

    fn on_order(&mut self, now: Nanos, order: Order) {
        match order {
            Order::Active(is_active) => {
                self.is_active = is_active;
                self.each(now, |slot| slot.set_active(is_active));
            }
            Order::Drain => {
                (self.is_draining, self.is_active) = (true, false);
                self.each(now, |slot| slot.set_active(false));
            }
            Order::Stop => {
                self.is_stopped = true;
                self.each(now, |slot| slot.cell.close());
            }
            Order::Hold(task) => {
                self.each(now, |slot| slot.cell.hold(task));
                let cell = self.directory.cell(task, self.thread);
                cell.and_then(|cell| self.cells[cell].as_mut()).into_iter().for_each(CellEntry::leave);
            }
            Order::Resume(task) => self.each(now, |slot| {
                slot.is_paused &= slot.cell.task() != task;
                slot.cell.resume(task);
            }),
            Order::Connected(worker) => self.on_connected(now, worker),
            Order::Adopt(cell) => self.adopt(now, *cell),
            Order::Epochs(order) => self.on_epochs(now, &order),
        }
    }

    /// Does what the coordinator of epochs wants of the tasks that are here.
    fn on_epochs(&mut self, now: Nanos, order: &EpochOrder) {
        match *order {
            EpochOrder::Prepare(ref beginning) => self.prepare(now, beginning),
            EpochOrder::Go { generation } if generation == self.generation => {
                self.each(now, |slot| slot.is_paused = false);
            }
            EpochOrder::Barrier { generation, epoch } if generation == self.generation => {
                self.tell_epoch(now, |cell| cell.pass_barrier(now, epoch));
            }
            EpochOrder::Durable { generation, epoch } if generation == self.generation => {
                self.tell_epoch(now, |cell| cell.on_durable(now, epoch));
            }
            EpochOrder::Recall { generation, ref ancestors } if generation == self.generation => {
                self.recall(ancestors);
            }
            EpochOrder::Go { .. }
            | EpochOrder::Barrier { .. }
            | EpochOrder::Recall { .. }
            | EpochOrder::Durable { .. } => {}
        }
    }

    /// Tells the coordinator which tuples of the spouts here these are.
    fn recall(&self, ancestors: &[Ancestor]) {
        let Some(ExactlyOnce { member, .. }) = &self.exactly_once else { return };
        let spouts = self.cells.iter().flatten().filter_map(|slot| slot.cell.as_spout());
        let spouts: BTreeMap<TaskId, &SpoutTask> = spouts.collect();
        let own = ancestors.iter().filter_map(|ancestor| {
            let spout = spouts.get(&ancestor.root.spout)?;
            Some((*ancestor, spout.recall(ancestor)))
        });
        let originals: Vec<_> = own.collect();
        if !originals.is_empty() {
            member.coordinator.tell(EpochReport::Recalled { generation: self.generation, originals });
        }
    }

    /// Makes all tasks anew, with what the store has of them.
    fn prepare(&mut self, now: Nanos, beginning: &Beginning) {
        let Some(ExactlyOnce { maker, target, member }) = self.exactly_once.clone() else { return };
        let Beginning { generation, poison, pending_max, .. } = beginning;
        self.each(now, |slot| {
            slot.cell.close();
            slot.cell.publish(now);
        });
        for mut slot in self.cells.drain(..).flatten() {
            slot.times.stop(now);
            self.board.retire(slot.cell.task(), &slot.times);
        }
        self.timers.clear();
        for task in (0..maker.plan().tasks_count()).map(TaskId) {
            if !matches!(self.directory.place(task), Place::Here { thread, .. } if thread == self.thread) {
                continue;
            }
            let (plan, clock) = (Arc::clone(maker.plan()), Arc::clone(&self.clock));
            let common = Common::new(plan, clock, task, Arc::clone(&self.board), Arc::clone(&self.mailbox));
            let past = beginning.past(common.component, task);
            let exact = Exact::new(target.clone(), member.coordinator.clone(), task, *generation, past);
            let poison = poison.get(&task).cloned().unwrap_or_default();
            let mut cell = maker.cell(now, common, *generation, &self.directory, Some((exact, poison)));
            if let Some(most) = pending_max {
                cell.limit_pending(*most);
            }
            cell.set_active(self.is_active);
            self.cells.push(Some(CellEntry { is_paused: true, ..CellEntry::new(cell, now) }));
        }
        self.ready = (0..self.cells.len()).collect();
        self.generation = *generation;
        member.on_thread_ready(*generation);
    }

    /// Does something with all cells, which have a turn afterwards.
    fn each(&mut self, now: Nanos, mut change: impl FnMut(&mut CellEntry)) {
        for cell in 0..self.cells.len() {
            let Some(slot) = &mut self.cells[cell] else { continue };
            self.board.threads[self.thread].begin(slot.cell.task(), self.clock.now());
            change(slot);
            self.make_ready(cell, now);
        }
        self.board.threads[self.thread].end();
    }

    /// Tells all cells of an epoch, which calls no bolt. Spouts have something to do for it; bolts when a barrier comes to them.
    fn tell_epoch(&mut self, now: Nanos, tell: impl Fn(&mut Cell)) {
        for cell in 0..self.cells.len() {
            let Some(slot) = &mut self.cells[cell] else { continue };
            tell(&mut slot.cell);
            if matches!(slot.cell, Cell::Spout(_)) {
                self.make_ready(cell, now);
            }
        }
    }

    /// Tasks of `worker` are new, or the links to them: those who send to them say where they are.
    fn on_connected(&mut self, now: Nanos, worker: WorkerId) {
        let directory = Arc::clone(&self.directory);
        let is_there = |task| directory.place(task) == Place::At(worker);
        let mut outbox = std::mem::take(&mut self.post.outbox);
        self.each(now, |slot| slot.cell.on_connected(&is_there, &mut outbox));
        self.post.outbox = outbox;
        self.sort(now);
    }

    /// Takes a task that has moved here.
    fn adopt(&mut self, now: Nanos, cell: Cell) {
        let (task, at) = (cell.task(), self.cells.len());
        self.cells.push(Some(CellEntry { is_paused: true, ..CellEntry::new(cell, now) }));
        self.directory.set_place(task, Place::Here { thread: self.thread, cell: at });
        self.ready.push_back(at);
        (self.moves)(Move::Adopted(task));
    }

    /// Ends a task that is to move, if it can: it may start elsewhere from then on.
    fn release(&mut self, now: Nanos, cell: usize) {
        let Some(mut slot) = self.cells[cell].take_if(|slot| slot.is_leaving && slot.cell.is_movable())
        else {
            return;
        };
        let task = slot.cell.task();
        self.board.threads[self.thread].begin(task, self.clock.now());
        slot.cell.close();
        slot.cell.publish(now);
        self.board.threads[self.thread].end();
        slot.times.stop(now);
        self.board.retire(task, &slot.times);
        // What it has sent last goes before the word that it has ended.
        self.post.flush();
        (self.moves)(Move::Released(task));
    }

    fn take_timers(&mut self, now: Nanos) {
        while let Some(&Reverse((due, cell))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            if let Some(slot) = &mut self.cells[cell]
                && slot.armed.take_if(|armed| *armed == due).is_some()
            {
                self.make_ready(cell, now);
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
            now = self.turn(cell, now);
        }
    }

    /// One turn; the time after it.
    fn turn(&mut self, cell: usize, now: Nanos) -> Nanos {
        let Some(slot) = &mut self.cells[cell] else { return now };
        slot.is_ready = false;
        if slot.is_paused {
            slot.times.enter(now, Activity::Idle);
            return now;
        }
        slot.times.enter(now, Activity::Busy);
        self.board.threads[self.thread].begin(slot.cell.task(), now);
        let has_more = slot.cell.turn(now, &mut self.post.outbox);
        self.board.threads[self.thread].end();
        let now = self.clock.now();
        slot.times.enter(now, slot.cell.activity(now, has_more));
        (slot.is_changed, slot.is_ready) = (true, has_more);
        let is_leaving = slot.is_leaving;
        self.arm(cell);
        if has_more {
            self.ready.push_back(cell);
        }
        self.sort(now);
        if is_leaving {
            self.release(now, cell);
        }
        now
    }

    /// Sorts what was put out, and hands over what is for tasks of this thread.
    fn sort(&mut self, now: Nanos) {
        self.post.sort();
        while let Some((to, envelope)) = self.post.own.pop_front() {
            self.take_envelope(to, now, envelope);
        }
    }

    fn arm(&mut self, cell: usize) {
        if let Some(slot) = &mut self.cells[cell]
            && let Some(due) = slot.cell.next_due()
            && slot.armed.is_none_or(|armed| due < armed)
        {
            slot.armed = Some(due);
            self.timers.push(Reverse((due, cell)));
        }
    }

    fn make_ready(&mut self, cell: usize, now: Nanos) {
        if let Some(slot) = &mut self.cells[cell]
            && !std::mem::replace(&mut slot.is_ready, true)
        {
            slot.times.on_work(now);
            self.ready.push_back(cell);
        }
    }

    /// Parks until a letter comes or a timer is due.
    fn rest(&mut self) {
        let now = self.clock.now();
        self.publish(now);
        let is_idle = self.is_draining && self.cells.iter().flatten().all(|slot| slot.cell.is_idle());
        if is_idle {
            let Post { sent, sent_away, .. } = self.post;
            self.quiet.tell(self.thread, Some(Counts { sent, taken: self.taken, sent_away }));
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
        for slot in self.cells.iter_mut().flatten() {
            if std::mem::take(&mut slot.is_changed) {
                slot.cell.publish(now);
                self.board.set_times(slot.cell.task(), slot.times);
            }
        }
    }
}

impl CellEntry {
    fn new(cell: Cell, now: Nanos) -> Self {
        let times = Times::new(now);
        Self {
            cell,
            is_ready: true,
            is_leaving: false,
            is_paused: false,
            is_changed: true,
            times,
            armed: None,
        }
    }

    fn set_active(&mut self, is_active: bool) {
        self.cell.set_active(is_active && !self.is_leaving);
    }

    fn leave(&mut self) {
        self.is_leaving = true;
        self.cell.set_active(false);
    }
}

/// How old counters may be while a thread is busy.
const PUBLISH: Duration = Duration::from_millis(100);
