//! Situations of a spout's unfinished tuples, and trees in any order.

use proptest::prelude::*;

use super::*;
use crate::random::Random;

const TIMEOUT: Duration = Duration::from_millis(30);

struct Bench {
    tracker: Tracker,
    now: Nanos,
}

impl Bench {
    fn new() -> Self {
        let limits = Limits {
            pending_max: 10,
            bytes_max: 1_000,
            timeout: TIMEOUT,
            attempts_max: 3,
            backoff: [10, 20].map(Duration::from_millis).to_vec(),
        };
        Self { tracker: Tracker::new(TaskId(4), 2, limits), now: Nanos(0) }
    }

    /// Emits tuples of these positions under one token, which is the number of the batch and 1,000.
    fn open(&mut self, positions: std::ops::Range<u128>) -> RootId {
        let root = self.tracker.next_root();
        let originals = positions.map(original).collect();
        self.tracker.open(self.now, originals, token(root), true);
        root
    }

    /// Emits again what is due, each alone.
    fn reopen(&mut self) -> Vec<(u128, u32, RootId)> {
        let mut opened = Vec::new();
        while let Some(original) = self.tracker.take_due(self.now) {
            let root = self.tracker.next_root();
            opened.push((original.position.0, original.attempts, root));
            self.tracker.open(self.now, vec![original], token(root), false);
        }
        opened
    }

    fn at(&mut self, ms: u64) {
        self.now = Nanos(ms * 1_000_000);
        self.tracker.on_time(self.now);
        self.tracker.check();
    }

    fn report(&mut self, root: RootId, xor: u64, failed: Vec<Failure>) {
        self.tracker.on_report(self.now, &Report { root, xor, failed, extends: false });
        self.tracker.check();
    }

    fn ack(&mut self, root: RootId) {
        self.report(root, token(root), vec![]);
    }

    fn settled(&mut self) -> Vec<Settled> {
        std::iter::from_fn(|| self.tracker.poll_settled()).collect()
    }
}

fn token(root: RootId) -> u64 {
    root.number + 1_000
}

fn original(position: u128) -> Original {
    let values = Values::new(&[position.to_string()]);
    Original { position: Position(position), stream: StreamId(0), direct: None, values, attempts: 1 }
}

fn failure(origin: u32, nack: Nack) -> Failure {
    Failure::new(origin, ComponentId(7), "no such customer", nack)
}

fn acked(positions: std::ops::Range<u128>) -> Vec<Settled> {
    positions.map(|position| Settled::Acked(Position(position))).collect()
}

#[test]
fn batch_is_acked_when_its_xor_is_zero() {
    let mut bench = Bench::new();
    let root = bench.open(0..3);
    bench.report(root, token(root) ^ 5 ^ 9, vec![]);
    bench.report(root, 9, vec![]);
    assert_eq!((bench.settled(), bench.tracker.pending()), (vec![], 3));
    bench.report(root, 5, vec![]);
    assert_eq!((bench.settled(), bench.tracker.pending()), (acked(0..3), 0));
    assert_eq!(bench.tracker.next_due(), None);
}

#[test]
fn batch_that_nobody_reads_is_acked_at_once() {
    let mut bench = Bench::new();
    bench.tracker.open(bench.now, vec![original(0)], 0, true);
    assert_eq!(bench.settled(), acked(0..1));
}

#[test]
fn time_out_is_exact_and_ordered_by_deadline() {
    let mut bench = Bench::new();
    bench.open(0..1);
    bench.at(20);
    bench.open(1..2);
    assert_eq!(bench.tracker.next_due(), Some(Nanos(30_000_000)));
    bench.now = Nanos(29_999_999);
    bench.tracker.on_time(bench.now);
    assert!(bench.tracker.waiting.is_empty(), "not a nanosecond earlier");
    bench.at(30);
    assert_eq!(bench.tracker.waiting.len(), 1);
    assert_eq!(bench.tracker.next_due(), Some(Nanos(40_000_000)), "its pause of 10 ms");
    bench.at(50);
    assert_eq!(bench.tracker.waiting.len(), 2);
}

#[test]
fn report_of_work_begins_the_time_out_anew() {
    let mut bench = Bench::new();
    let root = bench.open(0..1);
    bench.at(29);
    bench.tracker.on_report(bench.now, &Report { root, xor: 0, failed: vec![], extends: true });
    bench.at(58);
    assert!(bench.tracker.waiting.is_empty());
    bench.at(59);
    assert_eq!(bench.tracker.waiting.len(), 1);
}

#[test]
fn tuple_that_failed_is_emitted_again_alone_after_its_pause() {
    let mut bench = Bench::new();
    let root = bench.open(0..3);
    bench.report(root, token(root), vec![failure(1, Nack::FAIL)]);
    assert_eq!(bench.settled(), [Settled::Acked(Position(0)), Settled::Acked(Position(2))]);
    bench.at(9);
    assert_eq!(bench.reopen(), []);
    bench.at(10);
    let [(1, 2, again)] = bench.reopen()[..] else { panic!("the second attempt of tuple 1") };
    bench.ack(again);
    assert_eq!(bench.settled(), acked(1..2));
}

#[test]
fn attempts_are_bounded_and_the_dead_letter_has_the_original() {
    let mut bench = Bench::new();
    let root = bench.open(6..7);
    bench.report(root, token(root), vec![failure(0, Nack::FAIL)]);
    for ms in [10, 30] {
        bench.at(ms);
        let again = bench.reopen()[0].2;
        bench.report(again, token(again), vec![failure(0, Nack::FAIL)]);
    }
    let letter = DeadLetter {
        original: Original { attempts: 3, ..original(6) },
        component: Some(ComponentId(7)),
        error: "no such customer".to_owned(),
    };
    assert_eq!(bench.settled(), [Settled::Dead(letter)]);
    assert_eq!(bench.tracker.pending(), 0);
}

#[test]
fn tuple_that_times_out_each_time_becomes_a_dead_letter_of_no_component() {
    let mut bench = Bench::new();
    bench.open(6..7);
    for ms in [30, 40, 70, 90] {
        bench.at(ms);
        bench.reopen();
    }
    bench.at(120);
    let [Settled::Dead(letter)] = &bench.settled()[..] else { panic!("a dead letter") };
    assert_eq!((letter.component, letter.original.attempts), (None, 3));
    assert_eq!(letter.error, "not acknowledged within 30ms (message_timeout)");
}

#[test]
fn failure_that_was_reported_before_the_time_out_keeps_its_reason() {
    let mut bench = Bench::new();
    let root = bench.open(0..2);
    let nack = Nack { blame: Blame::Fatal, delay: None };
    bench.report(root, 77, vec![failure(1, nack)]);
    bench.at(30);
    let [Settled::Dead(letter)] = &bench.settled()[..] else {
        panic!("one dead letter, the other one waits")
    };
    assert_eq!((letter.original.position, letter.component), (Position(1), Some(ComponentId(7))));
}

#[test]
fn silent_failure_does_not_count_and_a_delay_holds() {
    let mut bench = Bench::new();
    let root = bench.open(0..1);
    let nack = Nack { blame: Blame::Silent, delay: Some(Duration::from_millis(3)) };
    bench.report(root, token(root), vec![failure(0, nack)]);
    bench.at(2);
    assert_eq!(bench.reopen(), []);
    bench.at(3);
    assert_eq!(bench.reopen()[0].1, 1, "it is still the first attempt");
}

/// A sink whose server was away failed its tuples 15,000 times a second.
#[test]
fn silent_failures_in_a_row_are_tried_again_at_once_and_then_after_pauses_that_double() {
    let mut bench = Bench::new();
    let (mut root, mut pauses, mut now_ms) = (bench.open(0..1), Vec::new(), 0);
    for _ in 0..12 {
        bench.report(root, token(root), vec![failure(0, Nack::SILENT)]);
        let due = bench.tracker.next_due().expect("it waits").0 / 1_000_000;
        pauses.push(due - now_ms);
        now_ms = due;
        bench.at(due);
        root = bench.reopen()[0].2;
    }
    assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_000, 5_000]);
    bench.report(root, token(root), vec![failure(0, Nack::FAIL)]);
    bench.at(now_ms + 10);
    root = bench.reopen()[0].2;
    bench.report(root, token(root), vec![failure(0, Nack::SILENT)]);
    assert_eq!(bench.reopen().len(), 1, "it begins anew");
}

#[test]
fn reports_of_another_life_task_or_time_are_ignored() {
    let mut bench = Bench::new();
    let root = bench.open(0..1);
    bench.ack(RootId { life: 1, ..root });
    bench.ack(RootId { spout: TaskId(5), ..root });
    bench.report(root, 0, vec![failure(9, Nack::FAIL)]);
    assert_eq!((bench.settled(), bench.tracker.pending()), (vec![], 1));
    bench.ack(root);
    bench.ack(root);
    assert_eq!(bench.settled(), acked(0..1));
}

#[test]
fn room_is_bounded_by_tuples_and_by_bytes() {
    let mut bench = Bench::new();
    bench.open(0..7);
    assert_eq!(bench.tracker.room(), 3);
    let large = Original { values: Values::new(&[vec![0_u8; 2_000]]), ..original(9) };
    bench.tracker.open(bench.now, vec![large], 1, true);
    assert_eq!(bench.tracker.room(), 0);
    bench.at(30);
    assert_eq!(bench.tracker.room(), 0, "what waits counts");
}

#[test]
fn long_error_is_cut_at_a_character() {
    let failure = Failure::new(0, ComponentId(0), &"ä".repeat(1_000), Nack::FAIL);
    assert_eq!(failure.error, "ä".repeat(512));
}

proptest! {
    /// Parcels split, go on, end and fail in any order: the batch is settled with the last of them, and not before.
    #[test]
    fn tree_in_any_order_is_settled_with_its_last_parcel(seed: u64) {
        let (mut random, mut bench) = (Random::new(seed), Bench::new());
        let root = bench.tracker.next_root();
        let mut out: Vec<u64> = (0..=random.below(3)).map(|_| random.bits()).collect();
        let xor = out.iter().fold(0, |xor, token| xor ^ token);
        bench.tracker.open(bench.now, (0..5).map(original).collect(), xor, true);
        let (mut steps, mut failed) = (0, BTreeSet::new());
        let mut reports = Vec::new();
        while let Some(token) = out.pop() {
            steps += 1;
            let children = if steps > 40 { 0 } else { random.below(3) };
            let new: Vec<u64> = (0..children).map(|_| random.bits()).collect();
            let mut report = Report { root, xor: token, failed: vec![], extends: false };
            report.xor = new.iter().fold(token, |xor, token| xor ^ token);
            out.extend(new);
            random.shuffle(&mut out);
            if random.chance(1, 8) {
                let origin = random.below(5) as u32;
                failed.insert(origin);
                report.failed.push(failure(origin, Nack::FAIL));
            }
            reports.push(report);
        }
        random.shuffle(&mut reports);
        for report in &reports {
            prop_assert_eq!(bench.tracker.pending(), 5);
            bench.tracker.on_report(bench.now, report);
            bench.tracker.check();
        }
        prop_assert_eq!(bench.settled().len(), 5 - failed.len());
        prop_assert_eq!(bench.tracker.waiting.len(), failed.len());
    }
}
