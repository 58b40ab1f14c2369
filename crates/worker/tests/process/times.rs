//! What the time of tasks goes to, how long tuples wait, and how old is what a source has.

use std::time::Duration;

use clock::{Clock, SystemClock, UnixMs};
use topology::component::{Backlog, Fault, Next, Outcome, Spout, SpoutOut};

use crate::fixture::{GRACE, Test, all_acked};
use crate::limits::{OneAtATime, work};

#[test]
fn slow_bolt_is_busy_and_its_spout_back_pressured() {
    let mut test = Test::new(300);
    test.builder.settings().max_spout_pending = 10;
    test.bolt("slow", |_, _| {
        work(Duration::from_millis(1));
        Ok(Outcome::Ack)
    })
    .tasks(2)
    .shuffle("numbers");
    let begin = SystemClock.now();
    let (running, told) = test.start(2);
    all_acked(&told, 300);
    let ended = running.kill(GRACE);
    let elapsed = SystemClock.now().since(begin);
    let (slow, numbers) = (ended.stats.component("slow").unwrap(), ended.stats.component("numbers").unwrap());
    assert!(slow.time.busy_us >= 300_000, "{:?}", slow.time);
    assert!(numbers.time.back_pressured_us > numbers.time.busy_us, "{:?}", numbers.time);
    for it in [slow, numbers] {
        let all = it.time.busy_us + it.time.back_pressured_us + it.time.idle_us + it.time.runnable_us;
        assert!(
            u128::from(all) <= elapsed.as_micros() * u128::from(it.tasks),
            "{:?} of {elapsed:?}",
            it.time
        );
    }
    let (slow, within_500_us) = (&slow.latencies, 8);
    assert!(slow.queue.count > slow.queue.at_most(within_500_us), "{:?}", slow.queue);
    assert_eq!(slow.process, slow.execute, "each tuple is acknowledged by its call");
    assert_eq!(slow.execute.buckets.iter().sum::<u64>(), 300);
}

#[test]
fn topology_without_tuples_is_idle_also_while_its_threads_wait() {
    let mut test = Test::new(0);
    test.bolt("none", |_, _| Ok(Outcome::Ack)).shuffle("numbers");
    let (running, _told) = test.start(2);
    let mut before = 0;
    while before < 20_000 {
        let idle = |id: &str| running.stats().component(id).unwrap().time.idle_us;
        let now = idle("numbers").min(idle("none"));
        assert!(now >= before, "it does not run back");
        before = now;
    }
}

#[test]
fn tuple_that_a_bolt_keeps_is_processed_when_it_is_acknowledged() {
    let mut test = Test::new(500);
    test.builder.set_bolt("one", OneAtATime::default).shuffle("numbers");
    let (running, told) = test.start(1);
    all_acked(&told, 500);
    let ended = running.kill(GRACE);
    let one = ended.stats.component("one").unwrap();
    assert!((1..=500).contains(&one.latencies.process.count), "{:?}", one.latencies);
    assert_eq!(one.edges, []);
    let edge = &ended.stats.component("numbers").unwrap().edges[0];
    assert_eq!((edge.transferred, edge.queued_bytes), (500, 0));
}

/// Has something since a second after 1970, until it is asked.
struct Old;

impl Spout for Old {
    fn next_tuple(&mut self, _: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        Ok(Next::Woken)
    }

    fn backlog(&mut self) -> Backlog {
        Backlog::Since(UnixMs(1_000))
    }
}

#[test]
fn lag_is_the_age_of_the_oldest_backlog_and_none_where_nobody_tells() {
    let mut test = Test::new(0);
    test.builder.set_spout("old", || Old).outputs(&["n"]);
    test.bolt("none", |_, _| Ok(Outcome::Ack)).shuffle("numbers").shuffle("old");
    let (running, _told) = test.start(1);
    let lag = |id: &str| running.stats().component(id).unwrap().lag_ms;
    while lag("old").is_none() {
        std::thread::yield_now();
    }
    let since = SystemClock.unix_ms().0 - 1_000;
    assert!(
        lag("old") <= Some(since + GRACE.as_millis() as u64) && lag("old") >= Some(since),
        "{:?}",
        lag("old")
    );
    assert_eq!((lag("numbers"), lag("none")), (None, None));
}
