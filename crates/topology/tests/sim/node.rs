//! A task in its worker: steps, restarts, and moves to other workers.

use topology::Wiring;
use topology::bolt::BoltTask;
use topology::channel::Accepted;
use topology::definition::Kind;
use topology::epochs::EpochReport;
use topology::ids::{TaskId, WorkerId};
use topology::message::Envelope;
use topology::spout::{Emission, Poison, SpoutTask};
use topology::tracker::Settled;

use crate::part::{Around, Part, values};
use crate::shapes::work_of;
use crate::world::{Event, World};

/// A task that runs.
#[derive(Debug)]
pub struct Node {
    pub machine: Machine,
    pub start: u32,
    /// Where it runs: when the coordinator has given it to another worker, this one goes on until it hears of that.
    pub worker: WorkerId,
    /// With exactly-once: all workers are ready.
    pub runs: bool,
    /// The coordinator was told that it has done something.
    pub has_told: bool,
    /// When its next step is; the time of one that was replaced is of no interest.
    wake_us: Option<u64>,
}

#[derive(Debug)]
pub enum Machine {
    /// With the last position that was read.
    Spout(Box<SpoutTask>, u128),
    Bolt(Box<BoltTask>, Part),
}

impl Node {
    pub fn set_active(&mut self, is_active: bool) {
        if let Machine::Spout(spout, _) = &mut self.machine {
            spout.set_active(is_active);
        }
    }

    pub fn is_idle(&self) -> bool {
        match &self.machine {
            Machine::Spout(spout, _) => spout.is_idle(),
            Machine::Bolt(bolt, _) => bolt.is_idle(),
        }
    }

    pub fn is_dirty(&self) -> bool {
        match &self.machine {
            Machine::Spout(spout, _) => spout.is_dirty(),
            Machine::Bolt(bolt, _) => bolt.is_dirty(),
        }
    }

    fn hold(&mut self, to: TaskId, holds: bool) {
        match (&mut self.machine, holds) {
            (Machine::Spout(spout, _), true) => spout.hold(to),
            (Machine::Spout(spout, _), false) => spout.resume(to),
            (Machine::Bolt(bolt, _), true) => bolt.hold(to),
            (Machine::Bolt(bolt, _), false) => bolt.resume(to),
        }
    }

    fn next_due_us(&self) -> Option<u64> {
        let (due, late_us) = match &self.machine {
            Machine::Spout(spout, _) => (spout.next_due(), None),
            Machine::Bolt(bolt, part) => (bolt.next_due(), part.next_due_us()),
        };
        due.map(|due| due.0.div_ceil(1_000)).into_iter().chain(late_us).min()
    }
}

impl World {
    /// Starts a task where it belongs, with no memory of an earlier start.
    pub(crate) fn start_task(&mut self, task: TaskId) {
        self.forget_recent(task);
        self.starts[task.0 as usize] += 1;
        let start = self.starts[task.0 as usize];
        let last = self.server.start(task);
        self.make_node((task, self.place(task)), start, (last, Poison::new()), true);
        if let Some((moving, _)) = self.moving
            && let Some(node) = self.nodes.get_mut(&task)
        {
            node.hold(moving, true);
        }
        self.wake(task, 0);
    }

    pub(crate) fn make_node(
        &mut self,
        (task, worker): (TaskId, WorkerId),
        start: u32,
        (last, poison): (u128, Poison),
        runs: bool,
    ) {
        let component = self.plan.component_of(task);
        let seed = self.random.bits();
        let wiring = Wiring {
            plan: &self.plan,
            ranges: &|component| self.ranges[&component].clone(),
            is_local: &|other| self.place_as_seen(worker, other) == worker,
            custom: &|_| None,
            seed,
            start,
        };
        let machine = if self.plan.component(component).kind == Kind::Spout {
            let spout = SpoutTask::new(task, &wiring, poison).expect("no custom grouping");
            Machine::Spout(Box::new(spout), last)
        } else {
            let bolt = BoltTask::new(self.now(), task, &wiring, false).expect("no custom grouping");
            Machine::Bolt(
                Box::new(bolt),
                Part::new(component, work_of(&self.plan, component).expect("a bolt")),
            )
        };
        let mut node = Node { machine, start, worker, runs, has_told: false, wake_us: None };
        node.set_active(self.is_active);
        self.nodes.insert(task, node);
    }

    /// A message has arrived where its task is.
    pub(crate) fn receive(&mut self, envelope: Envelope) {
        let Envelope { from, to, message } = envelope;
        let now = self.now();
        let Some(node) = self.nodes.get_mut(&to) else { return };
        let accepted = match &mut node.machine {
            Machine::Spout(spout, _) => spout.on_message(now, from, message),
            Machine::Bolt(bolt, _) => bolt.on_message(from, message),
        };
        let (generation, worker) = (node.start, node.worker);
        if accepted == Accepted::AfterGap && self.is_exact() {
            self.tell(worker, EpochReport::Lost { generation, error: "a gap".to_owned() });
        }
        self.wake(to, 1);
    }

    /// The task is to look whether it has something to do, after a while.
    pub(crate) fn wake(&mut self, task: TaskId, delay_us: u64) {
        let at_us = self.now_us + delay_us;
        if let Some(node) = self.nodes.get_mut(&task)
            && node.wake_us.is_none_or(|wake_us| at_us < wake_us)
        {
            node.wake_us = Some(at_us);
            let start = node.start;
            self.at(at_us, Event::Wake(task, start));
        }
    }

    /// A task does some of what it has to do.
    pub(crate) fn step(&mut self, task: TaskId, start: u32) {
        let now_us = self.now_us;
        let is_current = |node: &Node| node.start == start && node.wake_us == Some(now_us);
        if !self.nodes.get(&task).is_some_and(is_current) {
            return;
        }
        let mut node = self.nodes.remove(&task).expect("it is there");
        node.wake_us = None;
        let worker = node.worker;
        let mut outbox = Vec::new();
        let has_done = match &mut node.machine {
            _ if !node.runs => false,
            Machine::Spout(spout, cursor) => {
                self.step_spout((start, worker, task), spout, cursor, &mut outbox)
            }
            Machine::Bolt(bolt, part) => {
                let (has_done, has_passed) = self.step_bolt(worker, bolt, part, &mut outbox);
                node.has_told &= !has_passed;
                has_done || has_passed
            }
        };
        let due_us = node.next_due_us().filter(|_| node.runs);
        let (is_drained, has_work) = match &node.machine {
            Machine::Bolt(bolt, _) => (bolt.is_drained(), !node.has_told && node.is_dirty()),
            Machine::Spout(..) => (false, !node.has_told && node.is_dirty()),
        };
        node.has_told |= has_work;
        self.nodes.insert(task, node);
        self.send(worker, outbox);
        if has_work {
            self.tell(worker, EpochReport::Work { generation: start });
        }
        if is_drained {
            self.end_move(task);
        }
        let cost_us =
            if self.slow.contains(&task) && self.is_bad() { 200 + self.random.below(3_000) } else { 20 };
        if has_done {
            self.wake(task, cost_us);
        } else if let Some(due_us) = due_us {
            // What is due and cannot be done waits for credit.
            self.wake(task, due_us.checked_sub(now_us).filter(|us| *us > 0).unwrap_or(500));
        }
    }

    fn step_spout(
        &mut self,
        (start, worker, task): (u32, WorkerId, TaskId),
        spout: &mut SpoutTask,
        cursor: &mut u128,
        outbox: &mut Vec<Envelope>,
    ) -> bool {
        spout.on_time(self.now());
        let count = u64::from(spout.room()).min(1 + self.random.below(8));
        let stream = self.plan.stream(self.plan.component_of(task), "default").expect("spouts have one");
        let mut emissions = Vec::new();
        while (emissions.len() as u64) < count
            && let Some((position, word)) = self.server.read(task, *cursor)
        {
            *cursor = position.0;
            emissions.push(Emission { position, stream, values: values(&word), direct: None, refused: None });
        }
        let has_done = !emissions.is_empty();
        if has_done {
            spout.emit(self.now(), emissions).expect("the definition allows it");
        }
        while let Some(settled) = spout.poll_settled() {
            self.met.dead += u64::from(matches!(settled, Settled::Dead(_)));
            if let Settled::Dead(letter) = &settled {
                self.met.replayed += u64::from(letter.original.attempts > 1);
            }
            if let Err(what) = self.server.settle(task, settled) {
                self.break_with(what);
            }
        }
        spout.send(outbox);
        while let Some(failed) = spout.poll_failed() {
            self.tell(worker, EpochReport::Failed { generation: start, task, failed });
        }
        spout.check();
        has_done
    }

    /// Whether it has done something, and whether a barrier has passed.
    fn step_bolt(
        &mut self,
        worker: WorkerId,
        bolt: &mut BoltTask,
        part: &mut Part,
        outbox: &mut Vec<Envelope>,
    ) -> (bool, bool) {
        let (now, is_bad, mut has_done) = (self.now(), self.is_bad(), false);
        let mut around = Around {
            plan: &self.plan,
            server: &mut self.server,
            random: &mut self.random,
            met: &mut self.met,
            habits: &self.habits,
            now_us: self.now_us,
            is_bad,
        };
        part.on_time(bolt, &mut around);
        for _ in 0..1 + around.random.below(6) {
            let Some(input) = bolt.next_input(now) else { break };
            part.execute(bolt, input, &mut around);
            has_done = true;
            if !bolt.is_within_parcel() || around.random.chance(1, 6) {
                bolt.send(outbox);
            }
        }
        bolt.send(outbox);
        let capture = bolt.poll_barrier();
        let has_passed = capture.is_some();
        if let Some(capture) = capture {
            bolt.send(outbox);
            self.tell(worker, EpochReport::Capture(capture));
        }
        bolt.check();
        (has_done, has_passed)
    }

    // ---- deaths and moves ----------------------------------------------------------------------------

    pub(crate) fn kill(&mut self, worker: WorkerId) {
        if !std::mem::take(&mut self.workers[worker.0 as usize].is_up) {
            return;
        }
        self.met.kills += 1;
        let dead = self.nodes_of(worker);
        dead.iter().for_each(|task| drop(self.nodes.remove(task)));
        self.lose_to(worker);
        self.abort_move(&dead);
        self.on_dead(worker);
        if worker == COORDINATOR {
            self.epochs = None;
        }
        let down_us = 500 + self.random.below(60_000);
        self.after(down_us, Event::Restart(worker));
        if !self.is_exact() && self.random.chance(1, 2) {
            self.start_elsewhere(&dead);
        }
    }

    /// Other workers take over the tasks of one that died.
    fn start_elsewhere(&mut self, tasks: &[TaskId]) {
        for &task in tasks {
            let Some(worker) = self.random_worker() else { return };
            self.met.elsewhere += 1;
            self.places[task.0 as usize] = worker;
            self.start_task(task);
            self.say_open_to(task);
        }
    }

    pub(crate) fn restart(&mut self, worker: WorkerId) {
        self.workers[worker.0 as usize].is_up = true;
        match self.is_exact() {
            true if worker == COORDINATOR => return self.restart_coordinator(),
            true => return self.tell_again(worker),
            false => {}
        }
        for task in self.tasks_of(worker) {
            self.start_task(task);
            self.say_open_to(task);
        }
    }

    /// The tasks that run in a worker.
    pub(crate) fn nodes_of(&self, worker: WorkerId) -> Vec<TaskId> {
        self.nodes.iter().filter(|(_, node)| node.worker == worker).map(|(task, _)| *task).collect()
    }

    /// The tasks that belong to a worker.
    pub(crate) fn tasks_of(&self, worker: WorkerId) -> Vec<TaskId> {
        (0..self.plan.tasks_count())
            .map(TaskId)
            .filter(|task| self.place_as_seen(worker, *task) == worker)
            .collect()
    }

    /// All who send to a task that was started anew say where they are.
    fn say_open_to(&mut self, task: TaskId) {
        for worker in self.up_workers() {
            self.say_open(worker, &|_, to| to == task);
        }
    }

    /// The tasks of `worker` say to those tasks where they are: the link to them is new.
    pub(crate) fn say_open(&mut self, worker: WorkerId, is_there: &dyn Fn(&Self, TaskId) -> bool) {
        let tasks = self.nodes_of(worker);
        for task in tasks {
            let mut node = self.nodes.remove(&task).expect("it was listed");
            let mut outbox = Vec::new();
            let is_there = |to| is_there(self, to);
            match &mut node.machine {
                Machine::Spout(spout, _) => spout.on_connected(&is_there, &mut outbox),
                Machine::Bolt(bolt, _) => bolt.on_connected(&is_there, &mut outbox),
            }
            self.nodes.insert(task, node);
            self.send(worker, outbox);
            self.wake(task, 0);
        }
    }

    /// Begins to move a bolt's task to another worker.
    pub(crate) fn begin_move(&mut self) {
        let bolts: Vec<TaskId> = self
            .nodes
            .iter()
            .filter(|(_, it)| matches!(it.machine, Machine::Bolt(..)))
            .map(|(id, _)| *id)
            .collect();
        let Some(worker) = self.random_worker().filter(|_| !bolts.is_empty() && self.moving.is_none()) else {
            return;
        };
        let task = bolts[self.random.index(bolts.len())];
        self.moving = Some((task, worker));
        self.hold_upstream(task, true);
    }

    /// The task has finished what it had: it starts at its new place.
    fn end_move(&mut self, task: TaskId) {
        let Some((_, worker)) = self.moving.take_if(|(moving, _)| *moving == task) else { return };
        self.met.moves += 1;
        if self.workers[worker.0 as usize].is_up {
            self.places[task.0 as usize] = worker;
        }
        if !self.nodes.remove(&task).is_some_and(|node| node.is_idle()) {
            return self.break_with(format!("{task} was moved before it had finished"));
        }
        self.start_task(task);
        self.hold_upstream(task, false);
    }

    fn abort_move(&mut self, dead: &[TaskId]) {
        if let Some((task, _)) = self.moving.take_if(|(moving, _)| dead.contains(moving)) {
            self.hold_upstream(task, false);
        }
    }

    fn hold_upstream(&mut self, task: TaskId, holds: bool) {
        for upstream in self.plan.upstream_tasks(self.plan.component_of(task)) {
            if let Some(node) = self.nodes.get_mut(&upstream) {
                node.hold(task, holds);
            }
            self.wake(upstream, 1);
        }
    }
}

/// The worker with the coordinator of epochs.
const COORDINATOR: WorkerId = WorkerId(0);
