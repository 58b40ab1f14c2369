//! One task with its component: what the thread that owns both calls.
//!
//! A **turn** does what can be done now, for about a millisecond at most, so that tasks of one thread share it. What a turn sends lies in an
//! outbox afterwards. A turn that ends early says that there is more.

mod bolt;
mod pace;
mod seat;
mod spout;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::{Clock, Nanos};
use topology::Plan;
use topology::component::{Context, Waker};
use topology::ids::{ComponentId, TaskId};
use topology::message::Envelope;

pub(crate) use bolt::BoltCell;
pub(crate) use spout::SpoutCell;

use crate::mailbox::{Mailbox, Order};
use crate::stats::{Board, Latencies, TaskBoard};

/// A task with its component.
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
        // Nothing is lost within a process, so what `Accepted` says is of no interest.
        match self {
            Self::Spout(cell) => cell.task.on_message(now, from, message),
            Self::Bolt(cell) => cell.task.on_message(from, message),
        };
    }

    /// Does what can be done now; whether there is more to do at once.
    pub(crate) fn turn(&mut self, now: Nanos, outbox: &mut Vec<Envelope>) -> bool {
        match self {
            Self::Spout(cell) => cell.turn(now, outbox),
            Self::Bolt(cell) => cell.turn(now, outbox),
        }
    }

    /// Carries an order out.
    pub(crate) fn on_order(&mut self, order: Order) {
        match (self, order) {
            (Self::Spout(cell), Order::Active(is_active)) => cell.set_active(is_active),
            (Self::Spout(cell), Order::Drain) => cell.set_active(false),
            (Self::Bolt(_), Order::Active(_) | Order::Drain) => {}
            (Self::Spout(cell), Order::Stop) => cell.close(),
            (Self::Bolt(cell), Order::Stop) => cell.close(),
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
            Self::Bolt(cell) => cell.task.is_idle(),
        }
    }

    /// Writes counters to the board.
    pub(crate) fn publish(&self) {
        match self {
            Self::Spout(cell) => cell.publish(),
            Self::Bolt(cell) => cell.publish(),
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
        Context::new(&self.plan, self.task, &self.waker)
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

    fn latencies(&self) -> &Latencies {
        &self.board.components[usize::from(self.component.0)]
    }

    /// A call has failed.
    fn on_fault(&self, error: &str) {
        self.counters().on_fault(error);
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
