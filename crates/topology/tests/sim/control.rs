//! Exactly-once: the coordinator, what it and the workers tell each other, and the server's crashes.

use std::collections::BTreeMap;

use topology::assignment::Assignment;
use topology::epochs::{Action, Beginning, EpochMessage, EpochReport, Epochs, Order};
use topology::ids::{TaskId, WorkerId};
use topology::wire::{decode_epoch_message, encode_epoch_message};

use crate::node::Machine;
use crate::part;
use crate::server::Server;
use crate::world::{Event, World};

/// A message between a worker and the coordinator, on one connection.
#[derive(Debug)]
pub struct Word {
    worker: WorkerId,
    connection: u64,
    bytes: Vec<u8>,
}

impl World {
    /// A worker tells the coordinator.
    pub(crate) fn tell(&mut self, worker: WorkerId, told: EpochReport) {
        self.post(worker, &EpochMessage::Report(told));
    }

    fn post(&mut self, worker: WorkerId, talk: &EpochMessage) {
        let longest_us = if self.is_bad() && self.random.chance(1, 20) { 20_000 } else { 400 };
        let arrives_us = self.now_us + 5 + self.random.below(longest_us);
        let direction = (worker, matches!(talk, EpochMessage::Report(_)));
        let last_us = self.control_last_us.entry(direction).or_default();
        *last_us = arrives_us.max(*last_us);
        let at_us = *last_us;
        let connection = self.workers[worker.0 as usize].connection;
        let number = self.control.last_key_value().map_or(0, |(last, _)| last + 1);
        let mut bytes = Vec::new();
        encode_epoch_message(talk, &mut bytes);
        self.control.insert(number, Word { worker, connection, bytes });
        self.at(at_us, Event::Control(number));
    }

    /// A message of a connection that is still there arrives.
    pub(crate) fn control(&mut self, number: u64) {
        let Some(Word { worker, connection, bytes }) = self.control.remove(&number) else { return };
        let state = &self.workers[worker.0 as usize];
        if !state.is_up || state.connection != connection {
            return;
        }
        match decode_epoch_message(&bytes.into()).expect("it was encoded") {
            EpochMessage::Report(told) => {
                self.with_epochs(|epochs, now, server| epochs.on_report(now, worker, told, server));
            }
            EpochMessage::Order(order) => self.obey(worker, order),
        }
    }

    /// A worker does what the coordinator wants.
    fn obey(&mut self, worker: WorkerId, order: Order) {
        match order {
            Order::Prepare(Beginning { generation, places, positions, mut poison, .. }) => {
                for task in self.nodes_of(worker) {
                    self.nodes.remove(&task);
                }
                self.workers[worker.0 as usize].places = places;
                for task in self.tasks_of(worker) {
                    // Another worker has heard of a later generation, which has the task there.
                    if self.nodes.get(&task).is_some_and(|node| node.start > generation) {
                        continue;
                    }
                    let last = positions.get(&task).map_or(0, |position| position.0);
                    let poison = poison.remove(&task).unwrap_or_default();
                    self.make_node((task, worker), generation, (last, poison), false);
                }
                self.tell(worker, EpochReport::Ready { generation });
            }
            Order::Go { generation } => self.each((worker, generation), |world, task| {
                world.nodes.get_mut(&task).expect("it is there").runs = true;
            }),
            Order::Barrier { generation, epoch } => self.each((worker, generation), |world, task| {
                let now = world.now();
                let node = world.nodes.get_mut(&task).expect("it is there");
                if let Machine::Spout(spout, _) = &mut node.machine {
                    node.has_told = false;
                    let capture = spout.pass_barrier(now, epoch);
                    world.tell(worker, EpochReport::Capture(capture));
                }
            }),
            Order::Recall { .. } => unreachable!("nobody refuses anything"),
            Order::Durable { generation, epoch } => self.each((worker, generation), |world, task| {
                let now = world.now();
                match &mut world.nodes.get_mut(&task).expect("it is there").machine {
                    Machine::Spout(spout, _) => spout.on_durable(now, epoch),
                    Machine::Bolt(bolt, _) => bolt.on_durable(epoch),
                }
            }),
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

    /// The spouts that work on know of each command of the last epoch which tuples it comes from.
    fn check_causes(&self) {
        let group = self.server.last_group().expect("it was appended");
        for (place, command) in (0..).zip(&group.commands) {
            let causes: Vec<_> = group.causes.iter().filter(|cause| cause.command == place).collect();
            let words = causes.iter().map(|cause| {
                let node = self.nodes.get(&cause.ancestor.root.spout)?;
                let Machine::Spout(spout, _) = &node.machine else { return None };
                let original = spout.recall(&cause.ancestor)?;
                Some(String::from_utf8_lossy(original.values.field(0)?).into_owned())
            });
            let id = String::from_utf8_lossy(&command[1]);
            let is_named = words.clone().flatten().any(|word| word == part::base(&id));
            // A spout whose worker has begun anew meanwhile does not know.
            assert!(is_named || words.clone().any(|word| word.is_none()), "{id} comes from {causes:?}");
        }
    }

    /// Calls the coordinator, if there is one, and carries out what it wants.
    pub(crate) fn with_epochs(&mut self, call: impl FnOnce(&mut Epochs, clock::Nanos, &mut Server)) {
        let now = self.now();
        let Some(mut epochs) = self.epochs.take() else { return };
        let appended = self.server.appended();
        call(&mut epochs, now, &mut self.server);
        epochs.check();
        if self.server.appended() > appended {
            self.check_causes();
        }
        if self.server.state().positions != self.reached {
            self.reached = self.server.state().positions.clone();
            self.begun_since = 0;
        }
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
        let order = match action {
            Action::Stop => {
                return self.break_with("the only coordinator was refused by the store".to_owned());
            }
            Action::Prepare { .. } => self.beginning(),
            Action::Go { generation } => {
                self.judge_go(*generation);
                action.order()
            }
            _ => action.order(),
        };
        let Some(talk) = order.map(EpochMessage::Order) else { return };
        for worker in self.up_workers() {
            self.post(worker, &talk);
        }
    }

    /// Tasks work only when all of their generation are there, where they belong; a worker that has died since ends the generation later.
    fn judge_go(&mut self, generation: u32) {
        let is_missing = |task: &TaskId| {
            let worker = self.assignment.worker(*task);
            let is_made =
                self.nodes.get(task).is_some_and(|node| (node.start, node.worker) == (generation, worker));
            !is_made && self.workers[worker.0 as usize].is_up
        };
        if let Some(task) = (0..self.plan.tasks_count()).map(TaskId).find(is_missing) {
            self.break_with(format!("generation {generation} works, and {task} was not made anew"));
        }
    }

    /// The order that begins the generation of the coordinator, if there is one.
    fn beginning(&self) -> Option<Order> {
        let tasks = (0..self.plan.tasks_count()).map(TaskId);
        let places: Vec<WorkerId> = tasks.map(|task| self.assignment.worker(task)).collect();
        let positions = &self.server.state().positions;
        let epochs = self.epochs.as_ref()?;
        Some(Order::Prepare(Beginning::new(&self.plan, epochs, &places, positions, &BTreeMap::new())))
    }

    /// A worker was started anew: it is told what begins, if the others were told already. No generation goes on without its tasks.
    pub(crate) fn tell_again(&mut self, worker: WorkerId) {
        let (mut is_awaited, begun) = (false, self.begun);
        self.with_epochs(|epochs, now, _| is_awaited = epochs.on_new_worker(now, worker));
        if !is_awaited && self.epochs.as_ref().is_some_and(|epochs| epochs.generation() == begun) {
            self.break_with(format!("generation {begun} goes on, and {worker} has lost its tasks"));
        }
        if let Some(order) = self.beginning().filter(|_| is_awaited) {
            self.met.told_again += 1;
            self.post(worker, &EpochMessage::Order(order));
        }
    }

    /// The connection of a worker is gone, and with it what was on the way.
    pub(crate) fn on_disconnected(&mut self, worker: WorkerId) {
        self.workers[worker.0 as usize].connection += 1;
        self.with_epochs(|epochs, now, _| epochs.on_lost(now));
    }

    /// A worker is dead, of which the coordinator may hear only when it is started anew.
    pub(crate) fn on_dead(&mut self, worker: WorkerId) {
        self.workers[worker.0 as usize].connection += 1;
        if self.random.chance(1, 2) {
            self.with_epochs(|epochs, now, _| epochs.on_lost(now));
        }
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

    /// The worker with the coordinator is there again: it goes on from what the store has, of which it was told when that was durable. What
    /// others and the former coordinator have said may still come.
    pub(crate) fn restart_coordinator(&mut self) {
        self.met.heirs += 1;
        let appended = self.server.appended();
        self.server.sync(appended);
        if self.random.chance(1, 2) {
            self.workers.iter_mut().for_each(|worker| worker.connection += 1);
        }
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
