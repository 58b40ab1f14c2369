//! The group with workers that do what they are told, late, or die.

use topology::definition::{
    Component, Grouping, Kind, Parallelism, Settings, Stream, Subscription, Topology,
};
use topology::random::Random;

use super::*;

const START: Nanos = Nanos(1_000_000_000);
const TASKS: u32 = 8;

/// A spout with 3 tasks, a bolt with 5.
fn plan(guarantee: Guarantee) -> Arc<Plan> {
    let component = |id: &str, kind, tasks, inputs, streams| Component {
        id: id.to_owned(),
        kind,
        parallelism: Parallelism { executors: tasks, tasks },
        tick_interval: None,
        inputs,
        streams,
    };
    let stream = Stream { id: "default".to_owned(), fields: vec!["x".to_owned()], is_direct: false };
    let subscription =
        Subscription { from: "source".to_owned(), stream: "default".to_owned(), grouping: Grouping::Shuffle };
    let components = vec![
        component("source", Kind::Spout, 3, vec![], vec![stream]),
        component("sink", Kind::Bolt, TASKS - 3, vec![subscription], vec![]),
    ];
    let topology = Topology {
        name: "test".to_owned(),
        settings: Settings { guarantee, ..Settings::default() },
        components,
    };
    Arc::new(Plan::new(topology).expect("it is right").0)
}

/// A worker's process.
#[derive(Debug, Default)]
struct Process {
    /// What it has, and since which start.
    tasks: BTreeMap<u32, u32>,
    /// Those that wait.
    paused: BTreeSet<u32>,
    held: BTreeSet<u32>,
    places: Vec<u32>,
    leaving: Option<u32>,
    drains: bool,
    told: VecDeque<Order>,
    said: VecDeque<Word>,
}

/// The group and all processes.
struct World {
    group: Group,
    now: Nanos,
    random: Random,
    processes: BTreeMap<u32, Process>,
    /// The last start of each task.
    starts: BTreeMap<u32, u32>,
    /// One start in ten fails.
    is_faulty: bool,
    kills: u32,
    moves: u32,
    /// With exactly-once: where tasks are, as the coordinator of epochs was told last.
    dealt: Vec<u32>,
}

impl World {
    fn new(seed: u64, workers: u32) -> Self {
        Self::with(seed, workers, Guarantee::AtLeastOnce)
    }

    fn with(seed: u64, workers: u32, guarantee: Guarantee) -> Self {
        let wanted = Wanted { plan: Some(plan(guarantee)), workers, is_active: true };
        Self {
            group: Group::new(START, wanted, "secret".to_owned()),
            now: START,
            random: Random::new(seed),
            processes: BTreeMap::new(),
            starts: BTreeMap::new(),
            is_faulty: false,
            kills: 0,
            moves: 0,
            dealt: Vec::new(),
        }
    }

    /// All that the group wants, then something that a process does; whether there was anything.
    fn step(&mut self) -> bool {
        let mut has_done = false;
        while let Some((worker, action)) = self.group.poll(self.now) {
            has_done = true;
            match action {
                Action::Start => self.start(worker),
                Action::Kill => self.exit(worker),
                Action::Tell(order) => {
                    self.processes
                        .get_mut(&worker)
                        .into_iter()
                        .for_each(|it| it.told.push_back(order.clone()));
                }
            }
        }
        let ids: Vec<u32> = self.processes.keys().copied().collect();
        let busy = |id: &&u32| {
            let it = &self.processes[*id];
            !it.told.is_empty() || !it.said.is_empty() || it.leaving.is_some()
        };
        let busy: Vec<u32> = ids.iter().filter(busy).copied().collect();
        if busy.is_empty() {
            return has_done;
        }
        let worker = busy[self.random.index(busy.len())];
        self.act(worker);
        self.check();
        true
    }

    fn start(&mut self, worker: u32) {
        assert!(!self.processes.contains_key(&worker), "one process a worker");
        if self.is_faulty && self.random.chance(1, 10) {
            return self.group.on_start_failed(self.now, worker, "no".to_owned());
        }
        let share = self.group.share(worker);
        self.group.on_started(self.now, worker);
        if self.group.is_exactly_once() {
            if worker == COORDINATOR {
                self.dealt = share.places;
            }
            self.processes.insert(worker, Process::default());
            return;
        }
        let own: Vec<u32> = (0..TASKS).filter(|task| share.places[*task as usize] == worker).collect();
        let held: BTreeSet<u32> = share.held.into_iter().collect();
        let paused = own.iter().copied().filter(|task| held.contains(task)).collect();
        own.iter().for_each(|task| self.note_start(*task, share.start));
        let tasks = own.iter().map(|task| (*task, share.start)).collect();
        self.processes
            .insert(worker, Process { tasks, paused, held, places: share.places, ..Process::default() });
    }

    fn note_start(&mut self, task: u32, start: u32) {
        let before = self.starts.insert(task, start).unwrap_or(0);
        assert!(start > before, "start {start} of task {task} after {before}");
    }

    /// A process hears an order, ends a task, or is heard.
    fn act(&mut self, worker: u32) {
        let it = self.processes.get_mut(&worker).expect("it runs");
        match self.random.below(3) {
            0 if !it.said.is_empty() => {
                let word = it.said.pop_front().expect("something");
                self.group.on_word(self.now, worker, word);
            }
            1 if it.leaving.is_some() => {
                let task = it.leaving.take().expect("one");
                it.tasks.remove(&task);
                it.said.push_back(Word::Released { task });
            }
            _ => {
                if let Some(order) = it.told.pop_front() {
                    self.obey(worker, &order);
                }
            }
        }
    }

    fn obey(&mut self, worker: u32, order: &Order) {
        let it = self.processes.get_mut(&worker).expect("it runs");
        match *order {
            Order::Activate | Order::Deactivate | Order::Peers(_) => {}
            Order::Listen => it.said.push_back(Word::Listening { address: format!("h:{worker}") }),
            Order::Hold { task } => {
                assert!(it.held.insert(task), "a task is held once");
                it.leaving = it.tasks.contains_key(&task).then_some(task);
            }
            Order::Adopt { task, start } => {
                it.tasks.insert(task, start);
                it.paused.insert(task);
                it.places[task as usize] = worker;
                it.said.push_back(Word::Adopted { task });
                self.note_start(task, start);
            }
            Order::Place { task, worker } => {
                it.places[task as usize] = worker;
                it.said.push_back(Word::Placed { task });
            }
            Order::Resume { task } => {
                it.held.remove(&task);
                self.moves += u32::from(it.paused.remove(&task));
            }
            Order::Deal { ref places } => {
                assert_eq!(worker, COORDINATOR);
                self.dealt.clone_from(places);
                self.moves += 1;
                it.said.push_back(Word::Dealt);
            }
            Order::Drain => it.drains = true,
            Order::Ask { round } => {
                assert!(it.drains, "it watches");
                it.said.push_back(Word::Quiet { round, received: Some(7) });
            }
            Order::Kill { .. } => self.exit(worker),
            Order::Tap { .. } => {}
        }
    }

    fn exit(&mut self, worker: u32) {
        let Some(it) = self.processes.remove(&worker) else { return };
        it.said.into_iter().for_each(|word| self.group.on_word(self.now, worker, word));
        self.group.on_exit(self.now, worker, "it was killed".to_owned());
    }

    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (worker, it) in &self.processes {
            for &task in it.tasks.keys() {
                assert!(seen.insert(task), "task {task} is in two workers");
                let is_known = |other: &Process| other.places[task as usize] == *worker;
                let is_known = self.processes.values().all(is_known);
                assert!(
                    is_known || it.paused.contains(&task),
                    "task {task} runs where others do not know it"
                );
            }
        }
    }

    /// Until nothing is to be done; time passes when nothing else does.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.step() {
                continue;
            }
            match self.group.next_due() {
                // A worker that is silent for long is not what this is about.
                Some(due) if due.since(self.now) < Duration::from_secs(20) => self.now = self.now.max(due),
                _ => return,
            }
        }
        panic!("it does not come to rest: {:?}", self.group);
    }

    fn assert_at_rest(&self, workers: u32) {
        assert_eq!(self.processes.keys().copied().collect::<Vec<_>>(), (0..workers).collect::<Vec<_>>());
        let all: Vec<u32> = self.processes.values().flat_map(|it| it.tasks.keys().copied()).collect();
        assert_eq!(all.len(), TASKS as usize, "each task is somewhere");
        let counts: Vec<usize> = self.processes.values().map(|it| it.tasks.len()).collect();
        assert!(counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref(), "{counts:?}");
        assert!(self.processes.values().all(|it| it.held.is_empty() && it.paused.is_empty()));
        assert_eq!(self.group.state(), State::Active);
    }

    fn assert_dealt(&self, workers: u32) {
        assert_eq!(self.processes.keys().copied().collect::<Vec<_>>(), (0..workers).collect::<Vec<_>>());
        assert_eq!(self.dealt, self.group.places);
        let counts: Vec<usize> =
            (0..workers).map(|worker| self.dealt.iter().filter(|it| **it == worker).count()).collect();
        assert!(counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref(), "{counts:?}");
        assert_eq!(self.group.state(), State::Active, "{:?}", self.group);
        assert_eq!(counts.iter().sum::<usize>(), TASKS as usize);
    }

    /// Has a random process die.
    fn crash(&mut self) {
        let ids: Vec<u32> = self.processes.keys().copied().collect();
        if !ids.is_empty() {
            self.kills += 1;
            let at = self.random.index(ids.len());
            self.exit(ids[at]);
        }
    }
}

#[test]
fn workers_share_the_tasks_and_rebalance_moves_them_one_by_one() {
    let mut world = World::new(1, 1);
    world.settle();
    world.assert_at_rest(1);
    for workers in [3, 2, 5, 1] {
        world.group.rebalance(world.now, Some(workers));
        assert_eq!(world.group.state(), State::Rebalancing);
        world.settle();
        world.assert_at_rest(workers);
    }
    assert!(world.moves >= 5 + 2 + 4 + 6, "{} moves", world.moves);
}

#[test]
fn whatever_dies_during_a_rebalance_each_task_is_in_one_place_in_the_end() {
    let (mut kills, mut moves) = (0, 0);
    for seed in 0..300 {
        let first = 1 + seed as u32 % 4;
        let mut world = World::new(seed, first);
        world.is_faulty = true;
        for _ in 0..400 {
            match world.random.below(60) {
                0 => world.crash(),
                1 => {
                    let workers = 1 + world.random.below(5) as u32;
                    world.group.rebalance(world.now, Some(workers));
                }
                _ if !world.step() => {
                    world.now = world.group.next_due().unwrap_or(world.now).max(world.now);
                }
                _ => {}
            }
        }
        world.group.rebalance(world.now, Some(3));
        world.settle();
        world.assert_at_rest(3);
        (kills, moves) = (kills + world.kills, moves + world.moves);
    }
    assert!(kills > 1_000 && moves > 2_000, "{kills} kills, {moves} moves");
}

#[test]
fn with_exactly_once_the_coordinator_is_told_where_all_tasks_are_to_be() {
    let mut world = World::with(1, 1, Guarantee::ExactlyOnce);
    world.settle();
    world.assert_dealt(1);
    for workers in [3, 2, 5, 1] {
        world.group.rebalance(world.now, Some(workers));
        world.settle();
        world.assert_dealt(workers);
    }
    assert_eq!(world.moves, 4, "all at once");
}

#[test]
fn with_exactly_once_whatever_dies_during_a_rebalance_the_coordinator_knows_where_tasks_are_in_the_end() {
    let (mut kills, mut moves) = (0, 0);
    for seed in 0..300 {
        let mut world = World::with(seed, 1 + seed as u32 % 4, Guarantee::ExactlyOnce);
        world.is_faulty = true;
        for _ in 0..400 {
            match world.random.below(60) {
                0 => world.crash(),
                1 => {
                    let workers = 1 + world.random.below(5) as u32;
                    world.group.rebalance(world.now, Some(workers));
                }
                _ if !world.step() => {
                    world.now = world.group.next_due().unwrap_or(world.now).max(world.now);
                }
                _ => {}
            }
        }
        world.group.rebalance(world.now, Some(3));
        world.settle();
        world.assert_dealt(3);
        (kills, moves) = (kills + world.kills, moves + world.moves);
    }
    assert!(kills > 1_000 && moves > 300, "{kills} kills, {moves} moves");
}

#[test]
fn all_workers_end_together_when_nothing_is_under_way_in_any() {
    for seed in 0..50 {
        let mut world = World::new(seed, 3);
        world.settle();
        let began = world.now;
        world.group.kill(world.now, Duration::from_secs(10));
        assert_eq!(world.group.state(), State::Killed);
        world.settle();
        assert_eq!((world.group.state(), world.processes.len()), (State::Gone, 0));
        assert!(world.now.since(began) < Duration::from_secs(1), "it has not waited for the end of its time");
    }
}

#[test]
fn kill_in_the_middle_of_a_rebalance_ends_all_and_a_restart_begins_with_the_new_number() {
    for seed in 0..200 {
        let mut world = World::new(seed, 2);
        world.settle();
        world.group.rebalance(world.now, Some(4));
        for _ in 0..seed % 40 {
            world.step();
        }
        if seed % 2 == 0 {
            world.group.kill(world.now, Duration::from_secs(10));
            world.settle();
            assert_eq!((world.group.state(), world.processes.len()), (State::Gone, 0));
        } else {
            world.group.restart(world.now, Duration::from_secs(10));
            world.settle();
            world.assert_at_rest(4);
        }
    }
}

#[test]
fn nothing_takes_a_kill_back_but_another_definition() {
    let mut world = World::new(1, 2);
    world.settle();
    world.group.kill(world.now, Duration::from_secs(10));
    world.group.restart(world.now, Duration::ZERO);
    assert_eq!(world.group.state(), State::Killed);
    let wanted = Wanted { plan: Some(plan(Guarantee::AtLeastOnce)), workers: 3, is_active: true };
    world.group.replace(world.now, Duration::from_secs(1), wanted);
    assert_eq!(world.group.state(), State::Restarting);
    world.settle();
    world.assert_at_rest(3);
}

#[test]
fn restart_of_one_worker_is_no_fault() {
    let mut world = World::new(3, 1);
    world.settle();
    let before = world.group.restarts();
    world.group.restart(world.now, Duration::from_secs(1));
    world.settle();
    world.assert_at_rest(1);
    assert_eq!(world.group.restarts(), before);
}

#[test]
fn executors_that_there_are_not_get_no_worker() {
    let mut world = World::new(1, 100);
    world.settle();
    world.assert_at_rest(TASKS);
}
