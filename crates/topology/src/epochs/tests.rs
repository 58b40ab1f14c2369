//! Situations of epochs: what is appended, when the next barrier goes, and what begins anew.

use super::*;
use crate::anchor::Nack;
use crate::changes::{Changes, StateKey};
use crate::definition::Guarantee;
use crate::definition::fixture::word_count;
use crate::ids::{ComponentId, StreamId};
use crate::values::Values;

#[derive(Default)]
struct Store {
    groups: Vec<Group>,
    durable: Epoch,
    newest: u32,
}

impl EpochStore for Store {
    fn append(&mut self, group: Group) -> Result<(), Refused> {
        let last = self.groups.last().map_or(Epoch(0), |group| group.epoch);
        if group.generation < self.newest || group.epoch != last.next() {
            return Err(Refused);
        }
        self.groups.push(group);
        Ok(())
    }

    fn durable(&self) -> Epoch {
        self.durable
    }
}

/// Three tasks on workers 1 and 2.
struct Bench {
    epochs: Epochs,
    store: Store,
    now: Nanos,
}

impl Bench {
    fn new() -> Self {
        let mut definition = word_count(1, 1);
        definition.settings.guarantee = Guarantee::ExactlyOnce;
        definition.settings.attempts_max = 2;
        let (plan, _) = Plan::new(definition).unwrap();
        let epochs = Epochs::new(Nanos(0), &plan, &[WorkerId(1), WorkerId(2)], 0, Epoch(0));
        Self { epochs, store: Store::default(), now: Nanos(0) }
    }

    fn running() -> Self {
        let mut bench = Self::new();
        bench.ready();
        bench.actions();
        bench
    }

    fn ready(&mut self) {
        let generation = self.epochs.generation();
        [1, 2].into_iter().for_each(|worker| self.epochs.on_ready(WorkerId(worker), generation));
    }

    fn actions(&mut self) -> Vec<Action> {
        self.epochs.check();
        std::iter::from_fn(|| self.epochs.poll_action()).collect()
    }

    fn work(&mut self) {
        self.epochs.on_work(self.now, self.epochs.generation());
    }

    fn capture(&mut self, task: u32, generation: u32, epoch: u64) {
        let values = BTreeMap::from([(StateKey::of_key(format!("k{task}")), Some(Bytes::from("1")))]);
        let capture = Capture {
            task: TaskId(task),
            generation,
            epoch: Epoch(epoch),
            changes: Changes { values, ..Changes::default() },
            position: (task == 0).then_some(Position(u128::from(epoch) * 10)),
            dead: vec![],
        };
        self.epochs.on_capture(self.now, capture, &mut self.store);
        self.epochs.check();
    }

    fn capture_all(&mut self, epoch: u64) {
        (0..3).for_each(|task| self.capture(task, self.epochs.generation(), epoch));
    }

    fn sync(&mut self, epoch: u64) {
        self.store.durable = Epoch(epoch);
        self.epochs.on_store(self.now, &mut self.store);
    }

    /// Waits for the next generation, if there is none; for how long.
    fn rest(&mut self) -> Option<Duration> {
        let rest = self.actions().into_iter().find_map(|action| match action {
            Action::Rest { pause, .. } => Some(pause),
            _ => None,
        });
        self.now = self.now + rest.unwrap_or_default();
        self.epochs.on_time(self.now);
        rest
    }

    fn fail(&mut self, position: u128, nack: Nack) {
        let original = Original {
            position: Position(position),
            stream: StreamId(0),
            direct: None,
            values: Values::new(&["x"]),
            attempts: 1,
        };
        let failure = Failure::new(0, ComponentId(2), "bad", nack);
        self.epochs.on_failed(
            self.now,
            self.epochs.generation(),
            TaskId(0),
            (original.clone(), failure.clone()),
        );
        self.epochs.on_failed(self.now, self.epochs.generation() - 1, TaskId(0), (original, failure));
    }
}

fn barrier(generation: u32, epoch: u64) -> Action {
    Action::Barrier { generation, epoch: Epoch(epoch) }
}

#[test]
fn tasks_work_when_all_workers_are_ready() {
    let mut bench = Bench::new();
    assert_eq!(bench.actions(), [Action::Prepare { generation: 1 }]);
    bench.epochs.on_ready(WorkerId(1), 1);
    bench.epochs.on_ready(WorkerId(2), 0);
    assert_eq!(bench.actions(), []);
    bench.epochs.on_ready(WorkerId(2), 1);
    assert_eq!(bench.actions(), [Action::Go { generation: 1 }]);
}

#[test]
fn group_has_the_captures_of_all_tasks_and_the_next_barrier_waits_for_the_disk() {
    let mut bench = Bench::running();
    bench.work();
    assert_eq!(bench.actions(), [barrier(1, 1)]);
    bench.capture(0, 1, 1);
    bench.capture(0, 1, 1);
    bench.capture(2, 1, 1);
    bench.work();
    assert!(bench.store.groups.is_empty() && bench.actions().is_empty());
    bench.capture(1, 1, 1);
    let group = &bench.store.groups[0];
    assert_eq!((group.values.len(), group.positions[&TaskId(0)]), (3, Position(10)));
    assert_eq!(bench.actions(), [], "it is not durable");
    bench.sync(1);
    assert_eq!(bench.actions(), [Action::Durable { generation: 1, epoch: Epoch(1) }, barrier(1, 2)]);
}

#[test]
fn nothing_done_means_no_barrier() {
    let mut bench = Bench::running();
    bench.work();
    bench.capture_all(1);
    bench.sync(1);
    bench.actions();
    bench.sync(1);
    assert_eq!(bench.actions(), []);
    assert!(bench.epochs.is_at_rest());
}

#[test]
fn captures_of_an_earlier_generation_are_not_taken() {
    let mut bench = Bench::running();
    bench.work();
    bench.capture(0, 1, 1);
    bench.epochs.on_lost(bench.now);
    bench.ready();
    bench.work();
    assert_eq!(
        bench.actions(),
        [Action::Prepare { generation: 2 }, Action::Go { generation: 2 }, barrier(2, 1)]
    );
    bench.capture(1, 1, 1);
    bench.capture(2, 1, 1);
    bench.capture(0, 2, 1);
    assert!(bench.store.groups.is_empty());
    bench.capture(1, 2, 1);
    bench.capture(2, 2, 1);
    assert_eq!(bench.store.groups[0].generation, 2);
}

#[test]
fn group_that_was_appended_counts_though_its_tasks_are_gone() {
    let mut bench = Bench::running();
    bench.work();
    bench.capture_all(1);
    bench.epochs.on_lost(bench.now);
    bench.ready();
    bench.work();
    assert_eq!(
        bench.actions().last(),
        Some(&Action::Go { generation: 2 }),
        "no barrier before it is durable"
    );
    bench.sync(1);
    assert_eq!(bench.actions().last(), Some(&barrier(2, 2)));
}

#[test]
fn tuple_that_fails_too_often_is_skipped_and_forgotten_when_it_is_past() {
    let mut bench = Bench::running();
    bench.fail(7, Nack { blame: Blame::Silent, delay: None });
    assert_eq!(bench.epochs.generation(), 2);
    bench.fail(7, Nack::FAIL);
    bench.rest();
    assert_eq!(bench.epochs.poison(TaskId(0)).len(), 0);
    bench.fail(7, Nack::FAIL);
    bench.fail(25, Nack { blame: Blame::Fatal, delay: None });
    assert_eq!(bench.rest(), None, "tuples that are skipped are worth something");
    let poison = bench.epochs.poison(TaskId(0));
    assert_eq!((poison[&Position(7)].original.attempts, poison.len()), (2, 2));
    bench.ready();
    bench.work();
    bench.capture_all(1);
    assert_eq!(bench.epochs.poison(TaskId(0)).into_keys().collect::<Vec<_>>(), [Position(25)]);
}

#[test]
fn tuple_whose_fault_it_was_counts_also_if_others_were_told_before() {
    let mut bench = Bench::running();
    let fail = |bench: &mut Bench, generation, position, blame| {
        let original = Original {
            position: Position(position),
            stream: StreamId(0),
            direct: None,
            values: Values::new(&["x"]),
            attempts: 1,
        };
        let failure = Failure::new(0, ComponentId(2), "bad", Nack { blame, delay: None });
        bench.epochs.on_failed(bench.now, generation, TaskId(0), (original, failure));
    };
    let poison = |bench: &Bench| bench.epochs.poison(TaskId(0)).into_keys().collect::<Vec<_>>();
    fail(&mut bench, 1, 8, Blame::Silent);
    for position in [7, 8] {
        fail(&mut bench, 1, position, Blame::Fail);
    }
    assert_eq!(bench.actions(), [Action::Prepare { generation: 2 }]);
    bench.ready();
    fail(&mut bench, 2, 8, Blame::Silent);
    bench.rest();
    bench.ready();
    let generation = bench.epochs.generation();
    bench.actions();
    fail(&mut bench, 2, 7, Blame::Fail);
    assert_eq!(poison(&bench), [Position(7)], "it has failed twice, and the other one never");
    assert_eq!(bench.actions(), [Action::Prepare { generation: generation + 1 }], "to skip it");
    fail(&mut bench, 2, 8, Blame::Fail);
    fail(&mut bench, 2, 8, Blame::Fail);
    assert_eq!(poison(&bench), [Position(7)], "one of a generation counts");
}

#[test]
fn generations_that_come_to_nothing_rest_longer_and_longer_until_a_position_moves() {
    let mut bench = Bench::running();
    let silent = Nack { blame: Blame::Silent, delay: None };
    let mut rests = Vec::new();
    for _ in 0..9 {
        bench.fail(7, silent);
        rests.push(bench.rest().map_or(0, |rest| rest.as_millis()));
        bench.ready();
    }
    assert_eq!(rests, [0, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    bench.work();
    bench.capture_all(1);
    bench.sync(1);
    bench.actions();
    bench.fail(17, silent);
    assert_eq!(bench.rest(), None, "something was done, and the first one is at once");
    bench.ready();
    bench.fail(17, silent);
    assert_eq!(bench.rest(), Some(PAUSE_MIN));
}

#[test]
fn each_tuple_that_is_given_up_in_a_row_begins_with_a_longer_rest() {
    let mut bench = Bench::running();
    let rests = |bench: &mut Bench, position| {
        let rest = |bench: &mut Bench| {
            bench.fail(position, Nack::FAIL);
            let rest = bench.rest().map_or(0, |rest| rest.as_millis());
            bench.ready();
            rest
        };
        [rest(bench), rest(bench)]
    };
    assert_eq!(
        [1, 2, 3, 4].map(|position| rests(&mut bench, position)),
        [[0, 0], [100, 100], [200, 200], [400, 400]]
    );
    assert_eq!(bench.epochs.poison(TaskId(0)).len(), 4);
}

#[test]
fn worker_that_starts_anew_while_it_is_waited_for_is_told_again_and_nobody_else() {
    let mut bench = Bench::new();
    bench.actions();
    bench.epochs.on_ready(WorkerId(1), 1);
    assert!(bench.epochs.on_new_worker(bench.now, WorkerId(2)));
    assert_eq!((bench.actions(), bench.epochs.generation()), (vec![], 1));
    assert!(!bench.epochs.on_new_worker(bench.now, WorkerId(1)), "it had its tasks, and lost them");
    assert_eq!(bench.actions(), [Action::Prepare { generation: 2 }]);
}

#[test]
fn rest_ends_with_a_rebalance() {
    let mut bench = Bench::running();
    bench.epochs.on_lost(bench.now);
    bench.epochs.on_lost(bench.now);
    assert!(matches!(bench.actions().last(), Some(Action::Rest { fruitless: 2, .. })));
    bench.epochs.rebalance(bench.now, &[WorkerId(3)]);
    assert!(matches!(bench.actions()[..], [Action::Prepare { .. }]));
}

#[test]
fn step_that_takes_too_long_begins_anew() {
    let mut bench = Bench::running();
    assert_eq!(bench.epochs.next_due(), None);
    bench.work();
    let deadline = bench.epochs.next_due().expect("an epoch is gathered");
    bench.epochs.on_time(Nanos(deadline.0 - 1));
    assert_eq!(bench.epochs.generation(), 1);
    bench.epochs.on_time(deadline);
    assert_eq!(bench.epochs.generation(), 2);
}

/// It waited for the epoch, and a worker that was told again before heard of other places than the others.
#[test]
fn rebalance_begins_anew_a_generation_that_is_about_to_begin() {
    let mut bench = Bench::running();
    bench.work();
    bench.capture_all(1);
    bench.epochs.on_lost(bench.now);
    bench.actions();
    bench.epochs.rebalance(bench.now, &[WorkerId(3)]);
    assert_eq!(bench.actions(), [Action::Prepare { generation: 3 }]);
}

#[test]
fn rebalance_waits_for_the_epoch_under_way() {
    let mut bench = Bench::running();
    bench.work();
    bench.actions();
    bench.epochs.rebalance(bench.now, &[WorkerId(3)]);
    bench.capture_all(1);
    assert_eq!(bench.actions(), []);
    bench.sync(1);
    assert_eq!(bench.actions(), [Action::Prepare { generation: 2 }]);
    bench.epochs.on_ready(WorkerId(3), 2);
    assert_eq!(bench.actions(), [Action::Go { generation: 2 }]);
    bench.epochs.rebalance(bench.now, &[WorkerId(1)]);
    assert_eq!(bench.actions(), [Action::Prepare { generation: 3 }], "at once if nothing is under way");
}

#[test]
fn coordinator_whose_group_is_refused_stops() {
    let mut bench = Bench::running();
    bench.work();
    bench.store.newest = 9;
    bench.actions();
    bench.capture_all(1);
    bench.epochs.on_lost(bench.now);
    assert_eq!(bench.actions(), [Action::Stop]);
}
