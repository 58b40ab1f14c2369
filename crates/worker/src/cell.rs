//! One task with its component: what the thread that owns both calls.
//!
//! A **turn** does what can be done now, for about a millisecond at most, so that tasks of one thread share it. What a turn sends lies in an
//! outbox afterwards. A turn that ends early says that there is more.

mod bolt;
mod exact;
mod pace;
mod slot;
mod spout;
mod state;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::{Clock, Nanos};
use topology::Plan;
use topology::component::{Context, Waker};
use topology::ids::{ComponentId, TaskId};
use topology::message::Envelope;
use topology::parcel::Epoch;
use topology::spout::SpoutTask;

pub(crate) use bolt::BoltCell;
pub(crate) use exact::Exact;
pub(crate) use spout::SpoutCell;

use crate::mailbox::Mailbox;
use crate::measured::Measurements;
use crate::stats::{Board, TaskBoard};
use crate::times::Activity;

/// A task with its component.
#[derive(Debug)]
pub(crate) enum Cell {
    Spout(Box<SpoutCell>),
    Bolt(Box<BoltCell>),
}

/// What all cells have.
pub(crate) struct Common {
    pub(crate) plan: Arc<Plan>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) task: TaskId,
    pub(crate) component: ComponentId,
    pub(crate) board: Arc<Board>,
    pub(crate) waker: Waker,
    is_woken: Arc<AtomicBool>,
}

impl Cell {
    pub(crate) fn task(&self) -> TaskId {
        match self {
            Self::Spout(cell) => cell.common.task,
            Self::Bolt(cell) => cell.common.task,
        }
    }

    /// Takes a message of another task.
    pub(crate) fn on_envelope(&mut self, now: Nanos, envelope: Envelope) {
        let Envelope { from, message, .. } = envelope;
        match self {
            Self::Spout(cell) => _ = cell.task.on_message(now, from, message),
            Self::Bolt(cell) => cell.on_message(now, from, message),
        }
    }

    /// Does what can be done now; whether there is more to do at once.
    pub(crate) fn turn(&mut self, now: Nanos, outbox: &mut Vec<Envelope>) -> bool {
        match self {
            Self::Spout(cell) => cell.turn(now, outbox),
            Self::Bolt(cell) => cell.turn(now, outbox),
        }
    }

    /// What the task is at after a turn that has ended at `now`; `has_more`: as [`Cell::turn`] has said.
    pub(crate) fn activity(&mut self, now: Nanos, has_more: bool) -> Activity {
        if let Self::Bolt(cell) = self {
            cell.measure(now);
        }
        match self {
            _ if has_more => Activity::Runnable,
            Self::Spout(cell) => cell.activity(),
            Self::Bolt(cell) => cell.activity(),
        }
    }

    /// Lets a spout emit, or emit nothing new.
    pub(crate) fn set_active(&mut self, is_active: bool) {
        if let Self::Spout(cell) = self {
            cell.set_active(is_active);
        }
    }

    /// Has a spout with exactly-once have at most `most` tuples under way.
    pub(crate) fn limit_pending(&mut self, most: u32) {
        if let Self::Spout(cell) = self {
            cell.task.limit_pending(most);
        }
    }

    /// The task, if it is a spout's, and its number.
    pub(crate) fn as_spout(&self) -> Option<(TaskId, &SpoutTask)> {
        match self {
            Self::Spout(cell) => Some((cell.common.task, &cell.task)),
            Self::Bolt(_) => None,
        }
    }

    /// Closes the component.
    pub(crate) fn close(&mut self) {
        match self {
            Self::Spout(cell) => cell.close(),
            Self::Bolt(cell) => cell.close(),
        }
    }

    /// An epoch ends: of spouts here, of bolts when it has come to them from all sides.
    pub(crate) fn pass_barrier(&mut self, now: Nanos, epoch: Epoch) {
        if let Self::Spout(cell) = self {
            cell.pass_barrier(now, epoch);
        }
    }

    /// The store has what was done in an epoch.
    pub(crate) fn on_durable(&mut self, now: Nanos, epoch: Epoch) {
        match self {
            Self::Spout(cell) => cell.on_durable(now, epoch),
            Self::Bolt(cell) => cell.on_durable(epoch),
        }
    }

    /// `to` is about to move: what waits for it is sent, then nothing until [`Cell::resume`].
    pub(crate) fn hold(&mut self, to: TaskId) {
        match self {
            Self::Spout(cell) => cell.task.hold(to),
            Self::Bolt(cell) => cell.task.hold(to),
        }
    }

    /// `to` has moved.
    pub(crate) fn resume(&mut self, to: TaskId) {
        match self {
            Self::Spout(cell) => cell.task.resume(to),
            Self::Bolt(cell) => cell.task.resume(to),
        }
    }

    /// The links to tasks are new.
    pub(crate) fn on_connected(&mut self, is_there: &dyn Fn(TaskId) -> bool, outbox: &mut Vec<Envelope>) {
        match self {
            Self::Spout(cell) => cell.task.on_connected(is_there, outbox),
            Self::Bolt(cell) => cell.task.on_connected(is_there, outbox),
        }
    }

    /// Whether the task has finished all that it had, and nothing of it is on the way: it may start elsewhere. Of a spout that is not active, of a bolt
    /// for which all senders hold.
    pub(crate) fn is_movable(&self) -> bool {
        match self {
            Self::Spout(cell) => self.is_idle() && cell.task.is_settled(),
            Self::Bolt(cell) => cell.task.is_drained() && cell.task.is_settled(),
        }
    }

    /// When a turn has something to do without a letter.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        match self {
            Self::Spout(cell) => cell.next_due(),
            Self::Bolt(cell) => cell.next_due(),
        }
    }

    /// Whether nothing is left to be finished.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Spout(cell) => cell.task.is_idle() && cell.has_emitted_all(),
            Self::Bolt(cell) => cell.task.is_idle() && !cell.task.is_dirty(),
        }
    }

    /// Writes counters to the board.
    pub(crate) fn publish(&mut self, now: Nanos) {
        match self {
            Self::Spout(cell) => cell.publish(now),
            Self::Bolt(cell) => cell.publish(now),
        }
    }
}

impl Common {
    pub(crate) fn new(
        plan: Arc<Plan>,
        clock: Arc<dyn Clock>,
        task: TaskId,
        board: Arc<Board>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        let is_woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_woken);
        let waker = Waker::new(move || {
            if !flag.swap(true, Ordering::AcqRel) {
                mailbox.wake(task);
            }
        });
        let component = plan.component_of(task);
        Self { plan, clock, task, component, board, waker, is_woken }
    }

    fn context(&self) -> Context<'_> {
        Context::new(&self.plan, self.task, &self.waker).with_clock(&self.clock)
    }

    /// Whether the waker was called since the last time.
    fn take_wake(&self) -> bool {
        self.is_woken.swap(false, Ordering::AcqRel)
    }

    fn id(&self) -> &str {
        &self.plan.component(self.component).id
    }

    fn counters(&self) -> &TaskBoard {
        &self.board.tasks[self.task.0 as usize]
    }

    fn latencies(&self) -> &Measurements {
        &self.board.components[usize::from(self.component.0)]
    }

    /// A call has failed.
    fn on_fault(&self, error: &str) {
        self.counters().on_fault(self.clock.now(), error);
    }

    /// A component is gone.
    fn on_loss(&self, error: &str) {
        tracing::warn!(
            component = self.id(),
            task = self.task.0,
            error,
            "a component has ended and is made anew"
        );
        self.on_fault(error);
    }
}
