//! Exactly-once: the coordinator, what it and the workers tell each other, and the server's crashes.

use topology::anchor::Failure;
use topology::assignment::Assignment;
use topology::changes::Capture;
use topology::epochs::{Action, Epochs};
use topology::ids::{TaskId, WorkerId};
use topology::spout::Poison;
use topology::tracker::Original;

use crate::node::Machine;
use crate::server::Server;
use crate::world::{Event, World};

/// A message between a worker and the coordinator, on one connection.
#[derive(Debug)]
pub struct Word {
    worker: WorkerId,
    connection: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    To(ToCoordinator),
    From(Action),
}

#[derive(Debug)]
pub enum ToCoordinator {
    Ready(u32),
    Work(u32),
    Capture(Capture),
    Failed(u32, TaskId, Original, Failure),
    Lost(u32),
}

impl World {
    /// A worker tells the coordinator.
    pub(crate) fn tell(&mut self, worker: WorkerId, what: ToCoordinator) {
        self.post(worker, What::To(what));
    }

    fn post(&mut self, worker: WorkerId, what: What) {
        let longest_us = if self.is_bad() && self.random.chance(1, 20) { 20_000 } else { 400 };
        let arrives_us = self.now_us + 5 + self.random.below(longest_us);
        let direction = (worker, matches!(what, What::To(_)));
        let last_us = self.control_last_us.entry(direction).or_default();
        *last_us = arrives_us.max(*last_us);
        let at_us = *last_us;
        let connection = self.workers[worker.0 as usize].connection;
        let number = self.control.last_key_value().map_or(0, |(last, _)| last + 1);
        self.control.insert(number, Word { worker, connection, what });
        self.at(at_us, Event::Control(number));
    }

    /// A message of a connection that is still there arrives.
    pub(crate) fn control(&mut self, number: u64) {
        let Some(Word { worker, connection, what }) = self.control.remove(&number) else { return };
        let state = &self.workers[worker.0 as usize];
        if !state.is_up || state.connection != connection {
            return;
        }
        match what {
            What::To(what) => self.with_epochs(|epochs, now, server| match what {
                ToCoordinator::Ready(generation) => epochs.on_ready(worker, generation),
                ToCoordinator::Work(generation) => epochs.on_work(now, generation),
                ToCoordinator::Capture(capture) => epochs.on_capture(now, capture, server),
                ToCoordinator::Failed(generation, task, original, failure) => {
                    epochs.on_failed(now, generation, task, (original, failure));
                }

                ToCoordinator::Lost(generation) if generation == epochs.generation() => epochs.on_lost(now),
                ToCoordinator::Lost(_) => {}
            }),
            What::From(action) => self.obey(worker, &action),
        }
    }

    /// A worker does what the coordinator wants.
    fn obey(&mut self, worker: WorkerId, action: &Action) {
        match *action {
            Action::Prepare { generation } => {
                for task in self.tasks_of(worker) {
                    let poison = self.epochs.as_ref().map_or_else(Poison::new, |epochs| epochs.poison(task));
                    self.make_node(task, generation, poison, false);
                }
                self.tell(worker, ToCoordinator::Ready(generation));
            }
            Action::Go { generation } => self.each((worker, generation), |world, task| {
                world.nodes.get_mut(&task).expect("it is there").runs = true;
            }),
            Action::Barrier { generation, epoch } => self.each((worker, generation), |world, task| {
                let now = world.now();
                let node = world.nodes.get_mut(&task).expect("it is there");
                if let Machine::Spout(spout, _) = &mut node.machine {
                    node.has_told = false;
                    let capture = spout.pass_barrier(now, epoch);
                    world.tell(worker, ToCoordinator::Capture(capture));
                }
            }),
            Action::Durable { generation, epoch } => self.each((worker, generation), |world, task| {
                let now = world.now();
                match &mut world.nodes.get_mut(&task).expect("it is there").machine {
                    Machine::Spout(spout, _) => spout.on_durable(now, epoch),
                    Machine::Bolt(bolt, _) => bolt.on_durable(epoch),
                }
            }),
            Action::Stop => {}
        }
    }

    /// Does something with the tasks of a worker and a generation, and wakes them.
    fn each(&mut self, (worker, generation): (WorkerId, u32), what: impl Fn(&mut Self, TaskId)) {
        for task in self.nodes_of(worker) {
            if self.nodes.get(&task).is_some_and(|node| node.start == generation) {
                what(self, task);
                self.wake(task, 1);
            }
        }
    }

    /// Calls the coordinator, if there is one, and carries out what it wants.
    pub(crate) fn with_epochs(&mut self, call: impl FnOnce(&mut Epochs, clock::Nanos, &mut Server)) {
        let now = self.now();
        let Some(mut epochs) = self.epochs.take() else { return };
        call(&mut epochs, now, &mut self.server);
        epochs.check();
        let actions: Vec<Action> = std::iter::from_fn(|| epochs.poll_action()).collect();
        let due = epochs.next_due();
        self.epochs = Some(epochs);
        for action in actions {
            self.carry_out(&action);
        }
        if let Some(due) = due {
            self.at((due.0 / 1_000).max(self.now_us), Event::Deadline);
        }
        let appended = self.server.appended();
        if appended > self.syncing {
            self.syncing = appended;
            let sync_us = 50 + self.random.below(3_000);
            self.after(sync_us, Event::Sync(appended));
        }
    }

    fn carry_out(&mut self, action: &Action) {
        self.count_action(action);
        match action {
            Action::Stop => {
                return self.break_with("the only coordinator was refused by the store".to_owned());
            }
            Action::Prepare { .. } => {
                let tasks = (0..self.plan.tasks_count()).map(TaskId);
                self.places = tasks.map(|task| self.assignment.worker(task)).collect();
            }
            _ => {}
        }
        for worker in self.up_workers() {
            self.post(worker, What::From(action.clone()));
        }
    }

    /// The connection of a worker is gone, and with it what was on the way.
    pub(crate) fn on_disconnected(&mut self, worker: WorkerId) {
        self.workers[worker.0 as usize].connection += 1;
        self.with_epochs(|epochs, now, _| epochs.on_lost(now));
    }

    pub(crate) fn disconnect(&mut self, worker: WorkerId) {
        if self.workers[worker.0 as usize].is_up {
            self.on_disconnected(worker);
        }
    }

    /// The tasks are spread over some of the workers.
    pub(crate) fn rebalance(&mut self) {
        self.met.rebalances += 1;
        let mut workers: Vec<WorkerId> = (0..self.workers.len() as u32).map(WorkerId).collect();
        self.random.shuffle(&mut workers);
        workers.truncate(1 + self.random.index(workers.len()));
        self.assignment = Assignment::new(&self.plan, &workers, Some(&self.assignment));
        self.with_epochs(|epochs, now, _| epochs.rebalance(now, &workers));
    }

    /// The server crashes and starts again, with a new coordinator; workers run on.
    pub(crate) fn crash(&mut self) {
        self.met.crashes += 1;
        self.server.crash(&mut self.random);
        self.syncing = self.server.appended();
        self.workers.iter_mut().for_each(|worker| worker.connection += 1);
        self.start_coordinator();
    }

    pub(crate) fn start_coordinator(&mut self) {
        self.coordinators += 1;
        let workers: Vec<WorkerId> = (0..self.workers.len() as u32).map(WorkerId).collect();
        let with_tasks = |worker: &WorkerId| self.assignment.tasks(*worker).next().is_some();
        let workers: Vec<WorkerId> = workers.into_iter().filter(with_tasks).collect();
        let (generation, appended) = (self.coordinators << 12, self.server.appended());
        self.epochs = Some(Epochs::new(self.now(), &self.plan, &workers, generation, appended));
        self.with_epochs(|_, _, _| ());
    }
}
