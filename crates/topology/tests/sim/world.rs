//! Workers, links and a server, driven event by event from one seed.
//!
//! Tasks, trackers, channels and the coordinator are the real ones. Faults strike for a while; then all is well, and within a bounded time
//! all input must be settled and every task idle.

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use clock::Nanos;
use topology::Plan;
use topology::assignment::Assignment;
use topology::definition::{Guarantee, Kind};
use topology::epochs::{Action, Epochs};
use topology::ids::{ComponentId, TaskId, WorkerId};
use topology::parcel::Epoch;
use topology::random::Random;
use topology::ranges::Ranges;
use topology::tracker::Position;

use crate::control::Word as ControlWord;
use crate::network::Network;
use crate::node::Node;
use crate::part::Habits;
use crate::server::Server;
use crate::shapes::{self, KEYS, Word};

macro_rules! met {
    ($($name:ident),*) => {
        /// What happened in a run, so that one that met nothing is seen.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Met { $(pub $name: u64),* }

        impl Met {
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Whether all of it happened.
            pub fn is_everything(&self) -> bool {
                [$(self.$name),*].iter().all(|count| *count > 0)
            }
        }
    };
}

met!(
    cuts,
    lost,
    doubled,
    not_sent,
    kills,
    elsewhere,
    moves,
    ticks,
    late,
    extended,
    failed,
    met,
    alone,
    dead,
    replayed,
    generations,
    epochs,
    crashes,
    rebalances,
    heirs,
    told_again,
    rests,
    paused
);

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A task may have something to do.
    Wake(TaskId, u32),
    Deliver((WorkerId, WorkerId), u64),
    Cut(WorkerId, WorkerId),
    Mend(WorkerId, WorkerId),
    Kill(WorkerId),
    Restart(WorkerId),
    /// A task is handed to another worker while all goes on.
    Move,
    /// Between workers and the coordinator.
    Control(u64),
    /// The coordinator's time.
    Deadline,
    Sync(Epoch),
    /// The link between a worker and the coordinator is cut.
    Disconnect(WorkerId),
    Rebalance,
    Crash,
    /// The topology is deactivated, or activated again.
    Pause(bool),
}

/// A worker process.
#[derive(Debug)]
pub struct Worker {
    pub is_up: bool,
    /// Which connection to the coordinator.
    pub connection: u64,
    /// With exactly-once: where each task is, as the beginning of the last generation that has come has said.
    pub places: Vec<WorkerId>,
}

pub struct World {
    pub plan: Plan,
    pub random: Random,
    pub met: Met,
    pub now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    order: u64,
    pub network: Network,
    pub server: Server,
    pub workers: Vec<Worker>,
    pub assignment: Assignment,
    /// Where each task is.
    pub places: Vec<WorkerId>,
    /// How often each task was started.
    pub starts: Vec<u32>,
    pub nodes: BTreeMap<TaskId, Node>,
    pub ranges: BTreeMap<ComponentId, Arc<Ranges>>,
    pub habits: Habits,
    /// Tasks that take long.
    pub slow: BTreeSet<TaskId>,
    pub is_active: bool,
    /// The task that is being moved, and where to.
    pub moving: Option<(TaskId, WorkerId)>,
    /// With exactly-once.
    pub epochs: Option<Epochs>,
    pub coordinators: u32,
    pub control: BTreeMap<u64, ControlWord>,
    pub control_last_us: BTreeMap<(WorkerId, bool), u64>,
    pub syncing: Epoch,
    /// The last generation that was begun, the positions that epochs have reached, and how many generations were begun since.
    pub begun: u32,
    pub reached: BTreeMap<TaskId, Position>,
    pub begun_since: u32,
    pub violation: Option<String>,
    trace: DefaultHasher,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let plan = shapes::random(&mut random);
        let workers: Vec<WorkerId> = (0..plan.settings().workers).map(WorkerId).collect();
        let assignment = Assignment::new(&plan, &workers, None);
        let tasks = (0..plan.tasks_count()).map(TaskId);
        let inputs = inputs(&plan, &mut random);
        let habits = habits(&plan, &inputs, &mut random);
        let slow = tasks.clone().filter(|_| random.chance(1, 8)).collect();
        let ranges =
            plan.components().map(|(id, _)| (id, Arc::new(Ranges::new(plan.tasks(id).len() as u32))));
        let mut world = Self {
            met: Met::default(),
            now_us: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            order: 0,
            network: Network::default(),
            server: Server::new(inputs),
            workers: workers
                .iter()
                .map(|_| Worker { is_up: true, connection: 0, places: Vec::new() })
                .collect(),
            places: tasks.clone().map(|task| assignment.worker(task)).collect(),
            assignment,
            starts: tasks.map(|_| 0).collect(),
            nodes: BTreeMap::new(),
            ranges: ranges.collect(),
            habits,
            slow,
            is_active: true,
            moving: None,
            epochs: None,
            coordinators: 0,
            control: BTreeMap::new(),
            control_last_us: BTreeMap::new(),
            syncing: Epoch(0),
            begun: 0,
            reached: BTreeMap::new(),
            begun_since: 0,
            violation: None,
            trace: DefaultHasher::new(),
            plan,
            random,
        };
        world.schedule_faults();
        world.start();
        world
    }

    /// Lets everything happen, then looks whether anything is left over or was not kept.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse((at_us, order))) = self.queue.pop() {
            let event = self.events.remove(&order).expect("it was scheduled");
            self.now_us = at_us;
            (at_us, std::mem::discriminant(&event)).hash(&mut self.trace);
            self.handle(event);
            if let Some(violation) = self.violation.take() {
                return Err(format!("at {at_us} us: {violation}"));
            }
            if at_us > FAULTS_US && self.is_quiet() {
                return self.judge();
            }
            if at_us > END_US {
                return Err(format!("not at rest after {END_US} us: {}", self.left_over()));
            }
        }
        Err(format!("nothing happens any more: {}", self.left_over()))
    }

    /// A digest of everything that happened, in order.
    pub fn digest(&self) -> u64 {
        self.trace.finish()
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.plan.settings().guarantee == Guarantee::ExactlyOnce
    }

    pub(crate) fn is_bad(&self) -> bool {
        self.now_us < FAULTS_US
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now_us * 1_000)
    }

    pub(crate) fn place(&self, task: TaskId) -> WorkerId {
        self.places[task.0 as usize]
    }

    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((at_us, self.order)));
        self.events.insert(self.order, event);
    }

    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub(crate) fn break_with(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Where a worker sends what is for `task`, and whether it has it.
    pub(crate) fn place_as_seen(&self, worker: WorkerId, task: TaskId) -> WorkerId {
        let seen = &self.workers[worker.0 as usize].places;
        seen.get(task.0 as usize).copied().unwrap_or_else(|| self.place(task))
    }

    /// A worker that is up, if one is.
    pub(crate) fn random_worker(&mut self) -> Option<WorkerId> {
        let up: Vec<WorkerId> = self.up_workers();
        (!up.is_empty()).then(|| up[self.random.index(up.len())])
    }

    pub(crate) fn up_workers(&self) -> Vec<WorkerId> {
        let all = (0..).map(WorkerId).zip(&self.workers);
        all.filter(|(_, worker)| worker.is_up).map(|(id, _)| id).collect()
    }

    fn start(&mut self) {
        if self.is_exact() {
            self.start_coordinator();
        } else {
            (0..self.plan.tasks_count()).for_each(|task| self.start_task(TaskId(task)));
        }
    }

    fn schedule_faults(&mut self) {
        let count = self.workers.len() as u32;
        let one = |random: &mut Random| WorkerId(random.below(u64::from(count)) as u32);
        let mut faults = Vec::new();
        let random = &mut self.random;
        for _ in 0..random.below(8) {
            faults.push(Event::Cut(one(random), one(random)));
        }
        for _ in 0..random.below(4) {
            faults.push(Event::Kill(one(random)));
        }
        if self.plan.settings().guarantee == Guarantee::ExactlyOnce {
            (0..random.below(2)).for_each(|_| faults.push(Event::Crash));
            (0..random.below(4)).for_each(|_| faults.push(Event::Rebalance));
            (0..random.below(3)).for_each(|_| faults.push(Event::Disconnect(one(random))));
        } else {
            (0..random.below(6)).for_each(|_| faults.push(Event::Move));
        }
        if random.chance(1, 3) {
            faults.push(Event::Pause(true));
        }
        for fault in faults {
            let at_us = self.random.below(FAULTS_US);
            self.at(at_us, fault);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(task, start) => self.step(task, start),
            Event::Deliver(way, number) => self.deliver(way, number),
            Event::Cut(one, other) => self.cut(one, other),
            Event::Mend(one, other) => self.mend(one, other),
            Event::Kill(worker) => self.kill(worker),
            Event::Restart(worker) => self.restart(worker),
            Event::Move => self.begin_move(),
            Event::Control(number) => self.control(number),
            Event::Deadline => self.with_epochs(|epochs, now, _| epochs.on_time(now)),
            Event::Sync(epoch) => {
                self.server.sync(epoch);
                self.with_epochs(|epochs, now, server| epochs.on_store(now, server));
            }
            Event::Disconnect(worker) => self.disconnect(worker),
            Event::Rebalance => self.rebalance(),
            Event::Crash => self.crash(),
            Event::Pause(pauses) => self.pause(pauses),
        }
    }

    fn pause(&mut self, pauses: bool) {
        self.is_active = !pauses;
        self.met.paused += u64::from(pauses);
        if pauses {
            let pause_us = self.random.below(50_000);
            self.after(pause_us, Event::Pause(false));
        }
        let tasks: Vec<TaskId> = self.plan.spout_tasks().collect();
        for task in tasks {
            if let Some(node) = self.nodes.get_mut(&task) {
                node.set_active(!pauses);
            }
            self.wake(task, 0);
        }
    }

    /// Counts what the coordinator wants of the workers.
    pub(crate) fn count_action(&mut self, action: &Action) {
        match action {
            Action::Prepare { generation } => {
                self.met.generations += 1;
                self.begun = *generation;
                self.begun_since += 1;
            }
            Action::Durable { .. } => self.met.epochs += 1,
            Action::Rest { fruitless, .. } => {
                self.met.rests += 1;
                if *fruitless > self.begun_since + 1 {
                    let begun = self.begun_since;
                    self.break_with(format!(
                        "a rest as after {fruitless} generations, of {begun} since positions have moved"
                    ));
                }
            }
            _ => {}
        }
    }
}

/// Words for each spout task.
fn inputs(plan: &Plan, random: &mut Random) -> BTreeMap<TaskId, Vec<Word>> {
    let mut word = |task: TaskId, number| {
        let key = random.below(u64::from(KEYS)).min(random.below(u64::from(KEYS))) as u32;
        Word { id: format!("{}.{number}", task.0), key }
    };
    let mut words = |task| (0..INPUTS).map(|number| word(task, number)).collect();
    plan.spout_tasks().map(|task| (task, words(task))).collect()
}

fn habits(plan: &Plan, inputs: &BTreeMap<TaskId, Vec<Word>>, random: &mut Random) -> Habits {
    let bolts: Vec<ComponentId> =
        plan.components().filter(|(_, it)| it.kind == Kind::Bolt).map(|(id, _)| id).collect();
    let words = inputs.values().flatten();
    let is_exact = plan.settings().guarantee == Guarantee::ExactlyOnce;
    Habits {
        picky: bolts[random.index(bolts.len())],
        poison: words.filter(|_| random.chance(1, 40)).map(|word| word.id.clone()).collect(),
        flaky_one_in: if is_exact { 300 } else { 30 },
    }
}

/// Words for each spout task.
const INPUTS: u32 = 40;
/// How long faults strike.
pub const FAULTS_US: u64 = 300_000;
/// All must be at rest by then: generations that come to nothing rest for seconds between them.
const END_US: u64 = FAULTS_US + 600_000_000;
