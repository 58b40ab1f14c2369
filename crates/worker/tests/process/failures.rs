//! Components that fail, panic and cannot be opened.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Tuple};
use topology::definition::{Grouping, Guarantee, Stream, Subscription};
use topology::random::Random;
use topology::values;

use crate::fixture::{GRACE, Test, Told, all_acked, next};

const TUPLES: u64 = 2_000;

/// What went wrong last.
fn error(component: &topology::statistics::ComponentStatus) -> Option<&str> {
    component.last_error.as_deref()
}

#[test]
fn bolt_that_fails_at_random_loses_nothing() {
    let seen = Arc::new((0..TUPLES).map(|_| AtomicU32::new(0)).collect::<Vec<_>>());
    let mut test = Test::new(TUPLES);
    test.builder.settings().attempts_max = 1_000;
    let mut random = Random::new(7);
    test.bolt("unsure", move |tuple, out| {
        if random.chance(1, 5) {
            return Err(Fault::new("not this time"));
        }
        out.emit(&values![tuple.int("n")?])?;
        Ok(Outcome::Ack)
    })
    .tasks(2)
    .shuffle("numbers")
    .outputs(&["n"]);
    let (shared, mut random) = (Arc::clone(&seen), Random::new(8));
    test.bolt("sink", move |tuple, _| {
        shared[tuple.int("n")? as usize].fetch_add(1, Ordering::Relaxed);
        if random.chance(1, 5) { Err(Fault::new("too late")) } else { Ok(Outcome::Ack) }
    })
    .shuffle("unsure");
    let (running, told) = test.start(2);
    all_acked(&told, TUPLES);
    let ended = running.kill(GRACE);
    assert!(ended.is_finished);
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) > 0), "each at least once");
    let sink = ended.stats.component("sink").unwrap();
    assert_eq!(sink.acked, TUPLES);
    assert!(sink.failed > 0 && error(sink) == Some("too late"));
}

#[test]
fn tuple_that_makes_a_bolt_panic_is_given_up_and_the_bolt_is_named_and_goes_on() {
    let mut test = Test::new(100);
    test.builder.settings().attempts_max = 2;
    test.bolt("fragile", |tuple, _| {
        assert!(tuple.int("n")? != 13, "thirteen");
        Ok(Outcome::Ack)
    })
    .shuffle("numbers");
    let (running, told) = test.start(2);
    let all: Vec<Told> = (0..100).map(|_| next(&told)).collect();
    let dead: Vec<&Told> = all.iter().filter(|told| matches!(told, Told::Dead(..))).collect();
    assert_eq!(dead, [&Told::Dead(13, "panicked: thirteen".to_owned())]);
    let ended = running.kill(GRACE);
    let fragile = ended.stats.component("fragile").unwrap();
    assert_eq!((fragile.restarts, fragile.acked, fragile.failed), (2, 99, 2));
    assert_eq!(error(fragile), Some("panicked: thirteen"));
    let numbers = ended.stats.component("numbers").unwrap();
    assert_eq!(numbers.failed, 1);
    let edge = &numbers.edges[0];
    assert_eq!((edge.executed, edge.acked, edge.failed), (101, 99, 2));
}

#[test]
fn failures_are_those_of_the_edge_on_which_the_tuple_came() {
    let mut test = Test::new(2_000);
    test.builder.settings().attempts_max = 1;
    test.bolt("halves", |tuple, out| {
        let n = tuple.int("n")?;
        out.emit_to(if n % 2 == 0 { "even" } else { "odd" }, &values![n])?;
        Ok(Outcome::Ack)
    })
    .shuffle("numbers")
    .stream(Stream::default_with(&["n"]).named("even"))
    .stream(Stream::default_with(&["n"]).named("odd"));
    let on = |stream: &str| Subscription {
        stream: stream.to_owned(),
        ..Subscription::to("halves", Grouping::Shuffle)
    };
    test.bolt("picky", |tuple, _| {
        if tuple.int("n")? % 2 == 0 { Ok(Outcome::Ack) } else { Err(Fault::new("it is odd")) }
    })
    .tasks(2)
    .subscribe(on("odd"))
    .subscribe(on("even"));
    let (running, told) = test.start(2);
    (0..2_000).for_each(|_| _ = next(&told));
    let ended = running.kill(GRACE);
    let of = |stream: usize| {
        let edge = &ended.stats.component("halves").unwrap().edges[stream];
        assert!(edge.latencies.execute.count > 0 && edge.latencies.queue.count <= 1_000, "{edge:?}");
        (edge.to.as_str(), edge.transferred, edge.executed, edge.acked, edge.failed)
    };
    assert_eq!((of(0), of(1)), (("picky", 1_000, 1_000, 1_000, 0), ("picky", 1_000, 1_000, 0, 1_000)));
    let picky = ended.stats.component("picky").unwrap();
    assert_eq!((picky.executed, picky.acked, picky.failed), (2_000, 1_000, 1_000));
}

#[test]
fn tuples_that_a_bolt_has_kept_fail_when_it_panics() {
    let mut test = Test::new(10);
    let has_panicked = Arc::new(AtomicU64::new(0));
    test.bolt("keeper", move |tuple, _| {
        let is_first_run = has_panicked.load(Ordering::Relaxed) == 0;
        if is_first_run && tuple.int("n")? == 9 {
            has_panicked.store(1, Ordering::Relaxed);
            panic!("it had kept nine");
        }
        Ok(if is_first_run { Outcome::Keep } else { Outcome::Ack })
    })
    .shuffle("numbers");
    let (running, told) = test.start(1);
    all_acked(&told, 10);
    let ended = running.kill(GRACE);
    let keeper = ended.stats.component("keeper").unwrap();
    assert_eq!((keeper.failed, keeper.acked, keeper.restarts), (10, 10, 1));
}

/// All that it had kept lost an attempt for the one of which it panicked.
#[test]
fn tuple_that_is_executed_is_blamed_for_a_panic_and_those_that_were_kept_are_not() {
    let mut test = Test::new(10);
    test.builder.settings().attempts_max = 1;
    let is_again = Arc::new(AtomicU64::new(0));
    test.bolt("keeper", move |tuple, _| {
        if tuple.int("n")? == 9 {
            is_again.store(1, Ordering::Relaxed);
            panic!("nine");
        }
        Ok(if is_again.load(Ordering::Relaxed) == 0 { Outcome::Keep } else { Outcome::Ack })
    })
    .shuffle("numbers");
    let (running, told) = test.start(1);
    let all: Vec<Told> = (0..10).map(|_| next(&told)).collect();
    let dead: Vec<&Told> = all.iter().filter(|told| matches!(told, Told::Dead(..))).collect();
    assert_eq!(dead, [&Told::Dead(9, "panicked: nine".to_owned())]);
    assert_eq!(running.kill(GRACE).stats.component("keeper").unwrap().acked, 9);
}

/// A bolt that can be opened the third time.
struct Late(Arc<AtomicU64>);

impl Bolt for Late {
    fn prepare(&mut self, _context: &Context<'_>) -> Result<(), Fault> {
        let attempt = self.0.fetch_add(1, Ordering::Relaxed);
        if attempt < 2 { Err(Fault::new(format!("attempt {attempt}: no connection"))) } else { Ok(()) }
    }

    fn execute(&mut self, _tuple: &Tuple<'_>, _out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        Ok(Outcome::Ack)
    }
}

#[test]
fn bolt_that_cannot_be_opened_is_made_again_and_loses_no_tuple() {
    let mut test = Test::new(10);
    let attempts = Arc::new(AtomicU64::new(0));
    test.builder.set_bolt("late", move || Late(Arc::clone(&attempts))).shuffle("numbers");
    let (running, told) = test.start(2);
    all_acked(&told, 10);
    let ended = running.kill(GRACE);
    let late = ended.stats.component("late").unwrap();
    assert_eq!((late.faults, late.failed), (2, 0));
    assert_eq!(error(late), Some("attempt 1: no connection"));
}

#[test]
fn at_most_once_executes_no_tuple_twice_whatever_fails() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut test = Test::new(TUPLES);
    test.builder.settings().guarantee = Guarantee::AtMostOnce;
    let shared = Arc::clone(&seen);
    test.bolt("sink", move |tuple, _| {
        shared.lock().unwrap().push(tuple.int("n")?);
        Err(Fault::new("always"))
    })
    .shuffle("numbers");
    let (running, told) = test.start(2);
    all_acked(&told, TUPLES);
    assert!(running.kill(GRACE).is_finished);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..TUPLES as i64).collect::<Vec<_>>(), "nothing is lost without a crash either");
}
