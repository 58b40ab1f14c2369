//! Makes tasks with their components, and deals them to threads.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use clock::Nanos;
use topology::bolt::BoltTask;
use topology::builder::{Factory, Program};
use topology::grouping::CustomGrouping;
use topology::ids::{ComponentId, ExecutorId, TaskId, WorkerId};
use topology::random::Random;
use topology::ranges::Ranges;
use topology::spout::{Poison, SpoutTask};
use topology::{Plan, Wiring};

use crate::cell::{BoltCell, Cell, Common, Exact, SpoutCell};
use crate::part::Part;
use crate::post::{Directory, Place};
use crate::sync::lock;
use crate::tap::Taps;

/// Makes tasks.
#[derive(Debug)]
pub(crate) struct Maker {
    program: Program,
    ranges: Vec<Arc<Ranges>>,
    seed: u64,
    /// Tasks that are about to move.
    held: Mutex<BTreeSet<TaskId>>,
    pub(crate) taps: Taps,
}

impl Maker {
    /// What the tasks are made of.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn new(program: &Program, part: &Part) -> Self {
        let plan = program.plan();
        let ranges = plan.components().map(|(id, _)| Arc::new(Ranges::new(plan.tasks(id).len() as u32)));
        Self {
            program: program.clone(),
            ranges: ranges.collect(),
            // A number that no other run has.
            seed: RandomState::new().hash_one(part.start),
            held: Mutex::new(part.held.iter().copied().collect()),
            taps: Taps::new(plan),
        }
    }

    /// Those who send to `task` hold from now on, or do not any more.
    pub(crate) fn set_held(&self, task: TaskId, is_held: bool) {
        let mut held = lock(&self.held);
        if is_held {
            held.insert(task)
        } else {
            held.remove(&task)
        };
    }

    pub(crate) fn is_held(&self, task: TaskId) -> bool {
        lock(&self.held).contains(&task)
    }

    /// The definition.
    pub(crate) fn plan(&self) -> &Arc<Plan> {
        self.program.plan()
    }

    /// A start of a task; with exactly-once its part in epochs, and what a spout is to skip.
    pub(crate) fn cell(
        &self,
        now: Nanos,
        common: Common,
        start: u32,
        directory: &Directory,
        exact: Option<(Exact, Poison)>,
    ) -> Cell {
        let tap = Arc::clone(self.taps.of(common.component));
        let (task, factory) = (common.task, self.program.factory(common.component).clone());
        let wiring = Wiring {
            plan: self.program.plan(),
            ranges: &|component: ComponentId| Arc::clone(&self.ranges[usize::from(component.0)]),
            is_local: &|task| matches!(directory.place(task), Place::Here { .. }),
            custom: &|name: &str| -> Option<Box<dyn CustomGrouping>> { self.program.grouping(name) },
            seed: Random::new(self.seed ^ u64::from(task.0) ^ (u64::from(start) << 32)).bits(),
            start,
        };
        let checked = "the program has all groupings";
        let (exact, poison) =
            exact.map_or_else(|| (None, Poison::new()), |(exact, poison)| (Some(exact), poison));
        let mut cell = match factory {
            Factory::Spout(_) => {
                let mut task = SpoutTask::new(task, &wiring, poison).expect(checked);
                task.set_tap(tap);
                Cell::Spout(Box::new(SpoutCell::new(common, task, factory, exact)))
            }
            Factory::Bolt(_) => {
                let mut task = BoltTask::new(now, task, &wiring, false).expect(checked);
                task.set_tap(tap);
                Cell::Bolt(Box::new(BoltCell::new(common, task, factory, exact)))
            }
        };
        lock(&self.held).iter().for_each(|held| cell.hold(*held));
        cell
    }
}

/// Deals the executors of `worker` to threads in turn, where `at` says which worker has each task.
pub(crate) fn places(plan: &Plan, threads: usize, worker: WorkerId, at: &[WorkerId]) -> Vec<Place> {
    let (mut counts, mut next, mut places) = (vec![0; threads], 0, Vec::new());
    for executor in 0..plan.executors_count() {
        let (thread, mut has_any) = (next % threads, false);
        for task in plan.executor(ExecutorId(executor)).1 {
            let its = at[task as usize];
            if its != worker {
                places.push(Place::At(its));
                continue;
            }
            places.push(Place::Here { thread, cell: counts[thread] });
            counts[thread] += 1;
            has_any = true;
        }
        next += usize::from(has_any);
    }
    places
}
