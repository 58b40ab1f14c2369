//! What other threads have sent to one thread, which takes all of it at once.
//!
//! Senders lock it for as long as it takes to append, and ring only if the owner waits. Bounds: see the crate.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use topology::epochs::Order as EpochOrder;
use topology::ids::{TaskId, WorkerId};
use topology::message::Envelope;

use crate::cell::Cell;
use crate::sync::{lock, wait};

/// The mailbox of a thread.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    letters: Received,
    is_waiting: bool,
}

/// What a mailbox has.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// From other tasks.
    pub(crate) envelopes: Vec<Envelope>,
    /// Tasks whose wakers were called.
    pub(crate) wakes: Vec<TaskId>,
    /// From the owner of the topology.
    pub(crate) orders: Vec<Order>,
}

/// What a thread is told to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Spouts emit new tuples, or do not.
    Active(bool),
    /// Spouts emit nothing new; the thread tells whenever all its tasks are idle.
    Drain,
    /// Components are closed, and the thread ends.
    Stop,
    /// A task is about to move: who sends to it holds; it itself ends here when it has finished what it has.
    Hold(TaskId),
    /// It has moved: who holds for it goes on.
    Resume(TaskId),
    /// The links to tasks of a worker are new.
    Connected(WorkerId),
    /// A task that has moved is this thread's from now on.
    Adopt(Box<Cell>),
    /// With exactly-once: what the coordinator of epochs wants.
    Epochs(Arc<EpochOrder>),
}

impl Mailbox {
    /// Puts all of `envelopes` into it.
    pub(crate) fn deliver(&self, envelopes: &mut Vec<Envelope>) {
        self.put(|letters| letters.envelopes.append(envelopes));
    }

    /// Has a task called again.
    pub(crate) fn wake(&self, task: TaskId) {
        self.put(|letters| letters.wakes.push(task));
    }

    /// Gives an order.
    pub(crate) fn order(&self, order: Order) {
        self.put(|letters| letters.orders.push(order));
    }

    /// Gives an order of the coordinator of epochs. A new generation takes back what it has wanted of the one before, so few of them wait.
    pub(crate) fn order_epochs(&self, order: &Arc<EpochOrder>) {
        self.put(|letters| {
            if matches!(**order, EpochOrder::Prepare(_)) {
                letters.orders.retain(|former| !matches!(former, Order::Epochs(_)));
            }
            letters.orders.push(Order::Epochs(Arc::clone(order)));
        });
    }

    /// Exchanges what is there for `empty`.
    pub(crate) fn take(&self, empty: &mut Received) {
        std::mem::swap(&mut lock(&self.state).letters, empty);
    }

    /// Waits until something is there, at most for `timeout`.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        let mut state = lock(&self.state);
        if state.letters.is_empty() {
            state.is_waiting = true;
            state = wait(&self.bell, state, timeout);
            state.is_waiting = false;
        }
    }

    fn put(&self, put: impl FnOnce(&mut Received)) {
        let mut state = lock(&self.state);
        put(&mut state.letters);
        let must_ring = std::mem::take(&mut state.is_waiting);
        drop(state);
        if must_ring {
            self.bell.notify_one();
        }
    }
}

impl Received {
    pub(crate) fn is_empty(&self) -> bool {
        self.envelopes.is_empty() && self.wakes.is_empty() && self.orders.is_empty()
    }
}
