//! A worker's part in epochs: it does what the coordinator wants of the tasks that are here.
//!
//! Invariants
//!   1. Where tasks are is a part of a generation: it changes with its beginning, and in no other way.
//!   2. The coordinator is told that the worker is ready when each of its threads has made its tasks anew.

use std::sync::{Arc, Mutex};

use topology::Plan;
use topology::epochs::{Beginning, EpochMessage, EpochReport, Order};
use topology::ids::{TaskId, WorkerId};

use super::inbox::{COORDINATOR, CoordinatorInbox, Incoming, ToCoordinator};
use crate::maker;
use crate::post::Directory;
use crate::sync::lock;

/// A worker's part in epochs.
#[derive(Debug)]
pub(crate) struct Member {
    worker: WorkerId,
    plan: Arc<Plan>,
    directory: Arc<Directory>,
    pub(crate) coordinator: ToCoordinator,
    state: Mutex<State>,
}

/// The generation of the tasks that are here.
#[derive(Debug, Default)]
struct State {
    generation: u32,
    /// Threads that have not made them.
    missing: usize,
    /// They work.
    is_going: bool,
}

impl Member {
    pub(crate) fn new(
        worker: WorkerId,
        plan: Arc<Plan>,
        directory: Arc<Directory>,
        coordinator: ToCoordinator,
    ) -> Self {
        Self { worker, plan, directory, coordinator, state: Mutex::default() }
    }

    /// Does what the coordinator wants.
    pub(crate) fn obey(&self, order: Order) {
        let mut state = lock(&self.state);
        match &order {
            // EpochReport again, in case it was told to the run of this worker before.
            Order::Prepare(beginning) if beginning.generation == state.generation => return,
            Order::Prepare(beginning) => {
                if !self.place_tasks(beginning) {
                    return;
                }
                let missing = self.directory.mailboxes.len();
                *state = State { generation: beginning.generation, missing, is_going: false };
            }
            Order::Go { generation } => state.is_going = *generation == state.generation,
            Order::Barrier { .. } | Order::Recall { .. } | Order::Durable { .. } => {}
        }
        let order = Arc::new(order);
        // Under the lock, so that threads get orders in the order in which they came.
        self.directory.mailboxes.iter().for_each(|mailbox| mailbox.order_epochs(&order));
    }

    fn place_tasks(&self, beginning: &Beginning) -> bool {
        let (places, tasks) = (&beginning.places, self.plan.tasks_count());
        if places.len() != tasks as usize {
            tracing::error!(places = places.len(), tasks, "a generation of another topology is not begun");
            return false;
        }
        let threads = self.directory.mailboxes.len();
        let places = maker::places(&self.plan, threads, self.worker, places);
        (0..).zip(places).for_each(|(task, place)| self.directory.set_place(TaskId(task), place));
        true
    }

    /// A thread has made its tasks of `generation`.
    pub(crate) fn on_thread_ready(&self, generation: u32) {
        let mut state = lock(&self.state);
        if generation != state.generation {
            return;
        }
        state.missing = state.missing.saturating_sub(1);
        let is_ready = state.missing == 0;
        drop(state);
        if is_ready {
            self.coordinator.tell(EpochReport::Ready { generation });
        }
    }

    /// Another worker has said something.
    pub(crate) fn receive(&self, from: WorkerId, talk: EpochMessage) {
        match (talk, &self.coordinator) {
            (EpochMessage::Report(told), ToCoordinator::Here(inbox, _)) => {
                inbox.put(Incoming::Report(from, told));
            }
            (EpochMessage::Order(order), ToCoordinator::Away(_)) if from == COORDINATOR => self.obey(order),
            (talk, _) => tracing::error!(%from, ?talk, "another worker has said what is for others"),
        }
    }

    /// Another worker was started anew. Its tasks are gone, which the coordinator sees, too; what this one has sent it since may be, and only this one knows.
    pub(crate) fn on_new_peer(&self, peer: WorkerId) {
        let State { generation, is_going, .. } = *lock(&self.state);
        match &self.coordinator {
            ToCoordinator::Here(inbox, _) => inbox.put(Incoming::NewPeer(peer)),
            ToCoordinator::Away(_) if is_going => {
                let error = format!("{peer} was started anew");
                self.coordinator.tell(EpochReport::Lost { generation, error });
            }
            ToCoordinator::Away(_) => {}
        }
    }

    /// The inbox of the coordinator, if it is here.
    pub(crate) fn inbox(&self) -> Option<&Arc<CoordinatorInbox>> {
        match &self.coordinator {
            ToCoordinator::Here(inbox, _) => Some(inbox),
            ToCoordinator::Away(_) => None,
        }
    }
}
