//! For unit tests: the tasks of a topology in one place, over a wire that loses nothing and delivers when it is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use clock::Nanos;

use crate::anchor::Report;
use crate::bolt::{BoltTask, Input, TupleId};
use crate::definition::{Kind, Topology};
use crate::emitter::Wiring;
use crate::ids::TaskId;
use crate::message::{Envelope, Message};
use crate::plan::Plan;
use crate::ranges::Ranges;
use crate::spout::{Emission, Poison, SpoutTask};
use crate::tracker::{Position, Settled};
use crate::values::Values;

/// The tasks of a topology.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) spouts: BTreeMap<TaskId, SpoutTask>,
    pub(crate) bolts: BTreeMap<TaskId, BoltTask>,
    pub(crate) wire: VecDeque<Envelope>,
    /// All reports that were delivered.
    pub(crate) reports: Vec<Report>,
    pub(crate) now: Nanos,
    positions: u128,
}

impl Bench {
    pub(crate) fn new(topology: Topology) -> Self {
        let (plan, _) = Plan::new(topology).unwrap();
        let mut bench = Self {
            plan,
            spouts: BTreeMap::new(),
            bolts: BTreeMap::new(),
            wire: VecDeque::new(),
            reports: Vec::new(),
            now: Nanos(0),
            positions: 0,
        };
        for task in (0..bench.plan.tasks_count()).map(TaskId) {
            if bench.plan.component(bench.plan.component_of(task)).kind == Kind::Spout {
                let spout = bench.start_spout(task, 1);
                bench.spouts.insert(task, spout);
            } else {
                let bolt = bench.start(task, 1, false);
                bench.bolts.insert(task, bolt);
            }
        }
        bench
    }

    /// A start of a bolt's task.
    pub(crate) fn start(&self, task: TaskId, start: u32, is_moved: bool) -> BoltTask {
        self.wired(task, start, |wiring| BoltTask::new(self.now, task, wiring, is_moved))
    }

    /// A start of a spout's task.
    pub(crate) fn start_spout(&self, task: TaskId, start: u32) -> SpoutTask {
        self.wired(task, start, |wiring| SpoutTask::new(task, wiring, Poison::new()))
    }

    /// Emits tuples of these values, and puts what may be sent on the wire.
    pub(crate) fn emit(&mut self, task: u32, values: &[&[&str]]) {
        let component = self.plan.component_of(TaskId(task));
        let stream = self.plan.stream(component, "default").unwrap();
        let emission = |values: &&[&str]| {
            self.positions += 1;
            Emission {
                position: Position(self.positions),
                stream,
                values: Values::new(values),
                direct: None,
                refused: None,
            }
        };
        let emissions = values.iter().map(emission).collect();
        let spout = self.spouts.get_mut(&TaskId(task)).unwrap();
        spout.emit(self.now, emissions).unwrap();
        self.flush(task);
    }

    /// Puts what a task may send on the wire.
    pub(crate) fn flush(&mut self, task: u32) {
        let (task, mut outbox) = (TaskId(task), Vec::new());
        self.spouts.get_mut(&task).into_iter().for_each(|spout| spout.send(&mut outbox));
        self.bolts.get_mut(&task).into_iter().for_each(|bolt| bolt.send(&mut outbox));
        self.wire.extend(outbox);
    }

    /// Delivers all that is on the wire.
    pub(crate) fn deliver(&mut self) {
        while let Some(Envelope { from, to, message }) = self.wire.pop_front() {
            if let Some(spout) = self.spouts.get_mut(&to) {
                if let Message::Reports(reports) = &message {
                    self.reports.extend(reports.clone());
                }
                spout.on_message(self.now, from, message);
                spout.check();
            } else if let Some(bolt) = self.bolts.get_mut(&to) {
                bolt.on_message(from, message);
                bolt.check();
            }
        }
    }

    /// Gives a task all its input, sends, and delivers, until it has none.
    pub(crate) fn run(
        &mut self,
        task: u32,
        mut execute: impl FnMut(&mut BoltTask, TupleId, &Values),
    ) -> usize {
        let mut count = 0;
        loop {
            let bolt = self.bolts.get_mut(&TaskId(task)).unwrap();
            let before = count;
            while let Some(Input::Tuple { id, values, .. }) = bolt.next_input(self.now) {
                execute(bolt, id, &values);
                count += 1;
            }
            self.flush(task);
            self.deliver();
            if count == before {
                return count;
            }
        }
    }

    /// As [`Bench::run`], for a bolt that emits each value again on its default stream.
    pub(crate) fn relay(&mut self, task: u32) -> usize {
        let component = self.plan.component_of(TaskId(task));
        let stream = self.plan.stream(component, "default").unwrap();
        self.run(task, |bolt, id, values| {
            bolt.emit(stream, values.clone(), &[id], None).unwrap();
            bolt.ack(id).unwrap();
        })
    }

    /// As [`Bench::run`], for a bolt that only acknowledges.
    pub(crate) fn sink(&mut self, task: u32) -> usize {
        self.run(task, |bolt, id, _| bolt.ack(id).unwrap())
    }

    pub(crate) fn settled(&mut self, task: u32) -> Vec<Settled> {
        let spout = self.spouts.get_mut(&TaskId(task)).unwrap();
        std::iter::from_fn(|| spout.poll_settled()).collect()
    }

    fn wired<T>(&self, task: TaskId, start: u32, make: impl FnOnce(&Wiring<'_>) -> Result<T, String>) -> T {
        let ranges = |component| Arc::new(Ranges::new(self.plan.tasks(component).len() as u32));
        let wiring = Wiring {
            plan: &self.plan,
            ranges: &ranges,
            is_local: &|_| true,
            custom: &|_| None,
            seed: u64::from(task.0) << 8 | u64::from(start),
            start,
        };
        make(&wiring).unwrap()
    }
}
