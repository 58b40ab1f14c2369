//! Which worker runs which executor: even, and stable when workers come and go.
//!
//! Invariants
//!   1. Executors of a worker differ by at most one between any two workers, in all and of each component.
//!   2. An executor stays where it is, unless its worker is gone, or has more than its share of all or of the component.
//!   3. Equal inputs give equal assignments.
//!
//! State does not move with an executor: it is keys of the store, and who owns which keys is a matter of tasks
//! ([`crate::ranges`]), not of workers.
//! Out of scope: when to rebalance, and how a running task is handed over.

use std::collections::BTreeMap;

use crate::ids::{ComponentId, ExecutorId, TaskId, WorkerId};
use crate::plan::Plan;

/// The worker of each task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    worker_of_task: Vec<WorkerId>,
}

impl Assignment {
    /// Deals the executors of `plan` to `workers`, keeping what `before` had.
    ///
    /// `before` may be of an older plan with other parallelism: then an executor counts as being where its first task was.
    ///
    /// # Panics
    /// If there is no worker.
    #[must_use]
    pub fn new(plan: &Plan, workers: &[WorkerId], before: Option<&Self>) -> Self {
        assert!(!workers.is_empty(), "executors need a worker");
        let mut deal = Deal::new(plan, workers);
        let tasks_of = |executor| plan.executor(ExecutorId(executor as u32)).1;
        let old_worker = |executor| before?.worker_of_task.get(tasks_of(executor).start as usize).copied();
        deal.keep(old_worker);
        deal.place();
        deal.even_components();
        deal.even_workers();
        let executors = deal.worker_of.iter().enumerate();
        let worker_of_task: Vec<WorkerId> = executors
            .flat_map(|(executor, worker)| tasks_of(executor).map(|_| worker.expect("it is placed")))
            .collect();
        assert_eq!(worker_of_task.len(), plan.tasks_count() as usize, "each task is of one executor");
        Self { worker_of_task }
    }

    /// The assignment that has each task where `worker` says.
    #[must_use]
    pub fn of(plan: &Plan, worker: impl Fn(TaskId) -> WorkerId) -> Self {
        Self { worker_of_task: (0..plan.tasks_count()).map(TaskId).map(worker).collect() }
    }

    /// The worker that runs `task`.
    #[must_use]
    pub fn worker(&self, task: TaskId) -> WorkerId {
        self.worker_of_task[task.0 as usize]
    }

    /// The tasks that `worker` runs.
    pub fn tasks(&self, worker: WorkerId) -> impl Iterator<Item = TaskId> {
        let tasks = (0..).map(TaskId).zip(&self.worker_of_task);
        tasks.filter(move |(_, of)| **of == worker).map(|(task, _)| task)
    }

    /// Tasks that `after` has at another worker.
    #[must_use]
    pub fn moved(&self, after: &Self) -> Vec<TaskId> {
        let pairs = (0..).map(TaskId).zip(self.worker_of_task.iter().zip(&after.worker_of_task));
        pairs.filter(|(_, (old, new))| old != new).map(|(task, _)| task).collect()
    }
}

/// Executors and workers while they are dealt.
struct Deal {
    workers: Vec<WorkerId>,
    component_of: Vec<ComponentId>,
    worker_of: Vec<Option<WorkerId>>,
    of_component: BTreeMap<(ComponentId, WorkerId), usize>,
    of_worker: BTreeMap<WorkerId, usize>,
}

impl Deal {
    fn new(plan: &Plan, workers: &[WorkerId]) -> Self {
        let mut workers = workers.to_vec();
        workers.sort_unstable();
        workers.dedup();
        let components = (0..plan.executors_count()).map(|executor| plan.executor(ExecutorId(executor)).0);
        let component_of: Vec<ComponentId> = components.collect();
        Self {
            worker_of: vec![None; component_of.len()],
            component_of,
            of_component: BTreeMap::new(),
            of_worker: workers.iter().map(|&worker| (worker, 0)).collect(),
            workers,
        }
    }

    /// Leaves executors where they were, if that worker is still there.
    fn keep(&mut self, old_worker: impl Fn(usize) -> Option<WorkerId>) {
        for executor in 0..self.worker_of.len() {
            let old = old_worker(executor).filter(|old| self.of_worker.contains_key(old));
            if let Some(worker) = old {
                self.put(executor, worker);
            }
        }
    }

    /// Places all others, each where the fewest are.
    fn place(&mut self) {
        for executor in 0..self.worker_of.len() {
            if self.worker_of[executor].is_none() {
                let component = self.component_of[executor];
                let fewest =
                    |worker: &WorkerId| (self.count(component, *worker), self.of_worker[worker], *worker);
                let worker = self.workers.iter().copied().min_by_key(fewest).expect("there is a worker");
                self.put(executor, worker);
            }
        }
    }

    /// Moves executors of a component from the worker that has most of it to the one that has least, while they differ by two.
    fn even_components(&mut self) {
        let mut components = self.component_of.clone();
        components.dedup();
        for component in components {
            while let Some((from, to)) = self.extremes(|deal, worker| deal.count(component, worker)) {
                self.shift(component, from, to);
            }
        }
    }

    /// Moves executors from the worker that has most to the one that has least. Each move takes one of a component of which the
    /// first has more, so components stay even.
    fn even_workers(&mut self) {
        while let Some((from, to)) = self.extremes(|deal, worker| deal.of_worker[&worker]) {
            let has_more =
                |&&component: &&ComponentId| self.count(component, from) > self.count(component, to);
            let component = self.component_of.iter().rev().find(has_more).copied();
            self.shift(component.expect("who has more in all has more of some"), from, to);
        }
    }

    /// Who has most and who has least, if they differ by more than one.
    fn extremes(&self, count: impl Fn(&Self, WorkerId) -> usize) -> Option<(WorkerId, WorkerId)> {
        let most = self.workers.iter().copied().max_by_key(|&worker| (count(self, worker), worker))?;
        let least = self.workers.iter().copied().min_by_key(|&worker| (count(self, worker), worker))?;
        (count(self, most) > count(self, least) + 1).then_some((most, least))
    }

    fn shift(&mut self, component: ComponentId, from: WorkerId, to: WorkerId) {
        let is_one = |executor: &usize| {
            self.component_of[*executor] == component && self.worker_of[*executor] == Some(from)
        };
        let executor = (0..self.worker_of.len()).rev().find(is_one).expect("it is counted");
        *self.of_component.get_mut(&(component, from)).expect("it is counted") -= 1;
        *self.of_worker.get_mut(&from).expect("it is a worker") -= 1;
        self.put(executor, to);
    }

    fn put(&mut self, executor: usize, worker: WorkerId) {
        let component = self.component_of[executor];
        self.worker_of[executor] = Some(worker);
        *self.of_component.entry((component, worker)).or_default() += 1;
        *self.of_worker.get_mut(&worker).expect("it is a worker") += 1;
    }

    fn count(&self, component: ComponentId, worker: WorkerId) -> usize {
        self.of_component.get(&(component, worker)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::fixture::word_count;
    use proptest::prelude::*;

    fn plan(splitters: u32, counters: u32) -> Plan {
        Plan::new(word_count(splitters, counters)).unwrap().0
    }

    fn workers(numbers: impl IntoIterator<Item = u32>) -> Vec<WorkerId> {
        numbers.into_iter().map(WorkerId).collect()
    }

    fn assert_even(plan: &Plan, assignment: &Assignment, workers: &[WorkerId]) {
        let spread = |tasks: std::ops::Range<u32>| {
            let of = |worker| assignment.tasks(worker).filter(|task| tasks.contains(&task.0)).count();
            let counts: Vec<usize> = workers.iter().map(|&worker| of(worker)).collect();
            counts.iter().max().unwrap() - counts.iter().min().unwrap()
        };
        assert!(spread(0..plan.tasks_count()) <= 1, "{assignment:?}");
        assert!(plan.components().all(|(id, _)| spread(plan.tasks(id)) <= 1), "{assignment:?}");
    }

    #[test]
    fn executors_are_dealt_evenly() {
        let (plan, workers) = (plan(5, 7), workers(0..4));
        assert_even(&plan, &Assignment::new(&plan, &workers, None), &workers);
    }

    #[test]
    fn tasks_of_one_executor_stay_together() {
        let mut definition = word_count(1, 6);
        definition.components[2].parallelism.executors = 3;
        let (plan, _) = Plan::new(definition).unwrap();
        let assignment = Assignment::new(&plan, &workers(0..3), None);
        for first in [2, 4, 6] {
            assert_eq!(assignment.worker(TaskId(first)), assignment.worker(TaskId(first + 1)));
        }
    }

    #[test]
    fn little_more_than_the_tasks_of_the_worker_that_is_gone_moves() {
        let plan = plan(8, 15);
        let before = Assignment::new(&plan, &workers(0..4), None);
        let after = Assignment::new(&plan, &workers([0, 1, 3]), Some(&before));
        let gone: Vec<TaskId> = before.tasks(WorkerId(2)).collect();
        let moved = before.moved(&after);
        assert!(gone.iter().all(|task| moved.contains(task)), "{moved:?}");
        assert!(
            moved.len() <= gone.len() + 1,
            "one may have to make room, so that components are even: {moved:?}"
        );
        assert_even(&plan, &after, &workers([0, 1, 3]));
    }

    #[test]
    fn new_worker_takes_its_share_and_nothing_else_moves() {
        let plan = plan(8, 15);
        let before = Assignment::new(&plan, &workers(0..3), None);
        let after = Assignment::new(&plan, &workers(0..4), Some(&before));
        let moved = before.moved(&after);
        assert_eq!(moved, after.tasks(WorkerId(3)).collect::<Vec<_>>());
        assert_eq!(moved.len(), 6);
    }

    #[test]
    fn assignment_without_a_change_stays_as_it_is() {
        let (plan, workers) = (plan(3, 9), workers(0..5));
        let before = Assignment::new(&plan, &workers, None);
        assert_eq!(Assignment::new(&plan, &workers, Some(&before)), before);
    }

    proptest! {
        #[test]
        fn any_rebalance_is_even(splitters in 1_u32..20, counters in 1_u32..20, old in 1_u32..9, new in 1_u32..9, shift in 0_u32..9) {
            let plan = plan(splitters, counters);
            let before = Assignment::new(&plan, &workers(0..old), None);
            let workers = workers(shift..shift + new);
            assert_even(&plan, &Assignment::new(&plan, &workers, Some(&before)), &workers);
        }
    }
}
