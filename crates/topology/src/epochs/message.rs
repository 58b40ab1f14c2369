//! What the coordinator of epochs and the workers tell each other. Their bytes between processes: `wire`.

use std::collections::BTreeMap;

use super::{Action, Epochs};
use crate::anchor::{Ancestor, Failure};
use crate::changes::Capture;
use crate::ids::{ComponentId, TaskId, WorkerId};
use crate::parcel::Epoch;
use crate::past::{Former, Past};
use crate::plan::Plan;
use crate::spout::Poison;
use crate::tracker::{Original, Position};

/// What goes between the coordinator and a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpochMessage {
    /// From a worker.
    Report(EpochReport),
    /// From the coordinator.
    Order(Order),
}

/// What a worker tells the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpochReport {
    /// All tasks of the worker are made anew.
    Ready {
        /// Their generation.
        generation: u32,
    },
    /// A task has done something, for the first time since a barrier.
    Work {
        /// Its generation.
        generation: u32,
    },
    /// A barrier has passed a task.
    Capture(Capture),
    /// A tuple of a spout task has failed.
    Failed {
        /// The generation of the task.
        generation: u32,
        /// The spout's task.
        task: TaskId,
        /// The tuple, and why.
        failed: (Original, Failure),
    },
    /// The tuples of a spout task that were asked for: see [`Order::Recall`].
    Recalled {
        /// The generation of the task.
        generation: u32,
        /// The tuples, as far as the task has them.
        originals: Vec<(Ancestor, Option<Original>)>,
    },
    /// Something that tasks of this generation have sent did not come.
    Lost {
        /// The generation.
        generation: u32,
        /// What and why.
        error: String,
    },
}

/// What the coordinator tells all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Drop all tasks, make anew those that are here now, let them do nothing, and say [`EpochReport::Ready`].
    Prepare(Beginning),
    /// Tasks of this generation work.
    Go {
        /// The generation.
        generation: u32,
    },
    /// Spouts of this generation end an epoch.
    Barrier {
        /// The generation.
        generation: u32,
        /// The epoch that ends.
        epoch: Epoch,
    },
    /// Spouts of this generation tell which tuples these are, of an epoch that is not durable: see [`EpochReport::Recalled`].
    Recall {
        /// The generation.
        generation: u32,
        /// The tuples.
        ancestors: Vec<Ancestor>,
    },
    /// The store has what tasks of this generation did in an epoch.
    Durable {
        /// The generation.
        generation: u32,
        /// The epoch.
        epoch: Epoch,
    },
}

/// What a generation begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Which one: the start of its tasks.
    pub generation: u32,
    /// Where each task is.
    pub places: Vec<WorkerId>,
    /// The last tuple of each spout task that is durable.
    pub positions: BTreeMap<TaskId, Position>,
    /// The same of spouts when they had other numbers of tasks.
    pub former: BTreeMap<ComponentId, Vec<Former>>,
    /// What spout tasks are to skip.
    pub poison: BTreeMap<TaskId, Poison>,
    /// Tuples that each spout task may have under way, if those are fewer than the definition allows: epochs were too large.
    pub pending_max: Option<u32>,
}

impl EpochReport {
    /// The generation that it is of.
    #[must_use]
    pub fn generation(&self) -> u32 {
        match self {
            Self::Ready { generation }
            | Self::Work { generation }
            | Self::Failed { generation, .. }
            | Self::Recalled { generation, .. }
            | Self::Lost { generation, .. } => *generation,
            Self::Capture(capture) => capture.generation,
        }
    }
}

impl Beginning {
    /// The beginning of the generation of `epochs`, whose tasks are at `places`.
    #[must_use]
    pub fn new(
        plan: &Plan,
        epochs: &Epochs,
        places: &[WorkerId],
        positions: &BTreeMap<TaskId, Position>,
        former: &BTreeMap<ComponentId, Vec<Former>>,
    ) -> Self {
        let poison = plan.spout_tasks().map(|task| (task, epochs.poison(task)));
        Self {
            generation: epochs.generation(),
            places: places.to_vec(),
            positions: positions.clone(),
            former: former.clone(),
            poison: poison.filter(|(_, poison)| !poison.is_empty()).collect(),
            pending_max: None,
        }
    }

    /// What the task `task` of `component`, if it is a spout's, goes on behind.
    #[must_use]
    pub fn past(&self, component: ComponentId, task: TaskId) -> Past {
        let former = self.former.get(&component).cloned().unwrap_or_default();
        Past { after: self.positions.get(&task).copied(), former }
    }
}

impl Action {
    /// The order to all workers; none if it has to be more than passed on.
    #[must_use]
    pub fn order(&self) -> Option<Order> {
        match *self {
            Self::Go { generation } => Some(Order::Go { generation }),
            Self::Barrier { generation, epoch } => Some(Order::Barrier { generation, epoch }),
            Self::Durable { generation, epoch } => Some(Order::Durable { generation, epoch }),
            Self::Prepare { .. } | Self::Rest { .. } | Self::Stop => None,
        }
    }
}
