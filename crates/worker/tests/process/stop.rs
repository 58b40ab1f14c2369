//! Kill, activate, deactivate, ticks and wakers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::{Clock, SystemClock};
use topology::bolt::TupleId;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Tuple, Waker};
use topology::values;
use worker::{Options, Running, StartError};

use crate::fixture::{GRACE, Test, Told, all_acked, next};

#[test]
fn kill_finishes_what_is_under_way_and_emits_nothing_new() {
    let mut test = Test::new(u64::MAX);
    test.bolt("relay", |tuple, out| {
        out.emit(&values![tuple.int("n")?])?;
        Ok(Outcome::Ack)
    })
    .tasks(3)
    .shuffle("numbers")
    .outputs(&["n"]);
    test.bolt("sink", |_, _| Ok(Outcome::Ack)).tasks(2).shuffle("relay");
    let (running, told) = test.start(3);
    next(&told);
    let ended = running.kill(GRACE);
    assert!(ended.is_finished && ended.stalled.is_empty());
    let stats = |id: &str| ended.stats.component(id).unwrap().clone();
    assert_eq!(stats("numbers").acked, stats("numbers").emitted);
    assert_eq!(stats("sink").acked, stats("numbers").acked);
}

#[test]
fn kill_ends_with_its_wait_though_a_bolt_keeps_its_tuples() {
    let mut test = Test::new(10);
    let (sender, taken) = channel();
    let sender = Mutex::new(sender);
    let sender = Arc::new(sender);
    test.bolt("keeper", move |_, _| {
        sender.lock().unwrap().send(()).unwrap();
        Ok(Outcome::Keep)
    })
    .shuffle("numbers");
    let (running, _told) = test.start(2);
    (0..10).for_each(|_| taken.recv().unwrap());
    let (wait, began) = (Duration::from_millis(200), SystemClock.now());
    let ended = running.kill(wait);
    let time = SystemClock.now().since(began);
    assert!(!ended.is_finished && ended.stalled.is_empty());
    assert!(time >= wait && time < 10 * wait, "{time:?}");
    assert_eq!(ended.stats.component("keeper").unwrap().pending, 10);
}

#[test]
fn component_whose_code_does_not_return_is_named_and_left_alone() {
    let mut test = Test::new(1);
    let (release, gate) = channel::<()>();
    let (sender, taken) = channel();
    let (gate, sender) = (Arc::new(Mutex::new(gate)), Arc::new(Mutex::new(sender)));
    test.bolt("stuck", move |_, _| {
        sender.lock().unwrap().send(()).unwrap();
        let _ = gate.lock().unwrap().recv();
        Ok(Outcome::Ack)
    })
    .shuffle("numbers");
    let (running, _told) = test.start(2);
    taken.recv().unwrap();
    let began = SystemClock.now();
    let ended = running.kill(Duration::from_millis(100));
    assert!(SystemClock.now().since(began) < Duration::from_secs(10));
    let stuck: Vec<&str> = ended.stalled.iter().map(|(id, _)| id.as_str()).collect();
    assert!(!ended.is_finished);
    assert_eq!(stuck, ["stuck"]);
    assert_eq!(ended.stats.stalled[0].0, "stuck");
    drop(release);
}

#[test]
fn inactive_topology_emits_nothing_until_it_is_active_again() {
    let mut test = Test::new(u64::MAX);
    test.bolt("sink", |_, _| Ok(Outcome::Ack)).shuffle("numbers");
    let emitted = Arc::clone(&test.source.next);
    let (running, told) = test.start(1);
    next(&told);
    assert!(running.deactivate());
    let mut acked = 1;
    while next(&told) != Told::Inactive {
        acked += 1;
    }
    let before = emitted.load(Ordering::Relaxed);
    (acked..before).for_each(|_| assert!(matches!(next(&told), Told::Acked(_))));
    assert_eq!(emitted.load(Ordering::Relaxed), before, "all is finished, and nothing new was emitted");
    assert!(running.activate());
    while emitted.load(Ordering::Relaxed) <= before {
        next(&told);
    }
    assert!(running.kill(GRACE).is_finished);
}

/// A bolt that finishes tuples on another thread's word, and counts its ticks.
struct Outside {
    waker: Option<Waker>,
    handed: Sender<Waker>,
    kept: Vec<TupleId>,
    ticks: Arc<AtomicU64>,
}

impl Bolt for Outside {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.waker = Some(context.waker());
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        self.kept.push(tuple.id());
        if self.kept.len() == 10 {
            self.handed.send(self.waker.clone().unwrap())?;
        }
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        for tuple in self.kept.drain(..) {
            out.ack(tuple)?;
        }
        Ok(())
    }

    fn tick(&mut self, _out: &mut BoltOut<'_>) -> Result<(), Fault> {
        self.ticks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn waker_has_a_bolt_called_from_another_thread_and_ticks_come_by_themselves() {
    let (handed, wakers) = channel();
    let ticks = Arc::new(AtomicU64::new(0));
    let mut test = Test::new(10);
    let (shared, handed) = (Arc::clone(&ticks), Mutex::new(handed));
    let make = move || Outside {
        waker: None,
        handed: handed.lock().unwrap().clone(),
        kept: Vec::new(),
        ticks: Arc::clone(&shared),
    };
    test.builder.set_bolt("outside", make).shuffle("numbers").tick_every(Duration::from_millis(1));
    let (running, told) = test.start(1);
    let waker = wakers.recv().unwrap();
    while ticks.load(Ordering::Relaxed) < 3 {
        std::hint::spin_loop();
    }
    waker.wake();
    waker.wake();
    all_acked(&told, 10);
    assert!(running.kill(GRACE).is_finished);
}

#[test]
fn topology_that_is_dropped_stops_its_threads() {
    let mut test = Test::new(u64::MAX);
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    test.bolt("sink", move |_, _| {
        let _ = &held;
        Ok(Outcome::Ack)
    })
    .shuffle("numbers");
    let (running, told) = test.start(2);
    next(&told);
    drop(running);
    assert_eq!(Arc::strong_count(&alive), 1, "no component is left");
}

#[test]
fn exactly_once_is_refused_with_what_is_missing() {
    let mut test = Test::new(1);
    test.builder.settings().guarantee = topology::definition::Guarantee::ExactlyOnce;
    test.bolt("sink", |_, _| Ok(Outcome::Ack)).shuffle("numbers");
    let refused = Running::start(&test.builder.build().unwrap(), &Options::default()).unwrap_err();
    assert!(matches!(refused, StartError::NoStore), "{refused}");
}
