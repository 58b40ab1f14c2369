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
    assert!(slow.time.busy >= Duration::from_millis(300), "{:?}", slow.time);
    assert!(numbers.time.back_pressured > numbers.time.busy, "{:?}", numbers.time);
    for it in [slow, numbers] {
        let all = it.time.busy + it.time.back_pressured + it.time.idle + it.time.runnable;
        assert!(all <= elapsed * it.tasks, "{:?} of {elapsed:?}", it.time);
    }
    assert!(slow.queue.samples > 0 && slow.queue.max >= Duration::from_millis(1), "{:?}", slow.queue);
    assert_eq!(slow.process, slow.execute, "each tuple is acknowledged by its call");
    assert_eq!(slow.execute.buckets.iter().sum::<u64>(), 300);
}

#[test]
fn topology_without_tuples_is_idle_also_while_its_threads_wait() {
    let mut test = Test::new(0);
    test.bolt("none", |_, _| Ok(Outcome::Ack)).shuffle("numbers");
    let (running, _told) = test.start(2);
    let mut before = Duration::ZERO;
    while before < Duration::from_millis(20) {
        let idle = |id: &str| running.stats().component(id).unwrap().time.idle;
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
    assert!(one.process.samples > 0 && one.process.samples <= 500, "{:?}", one.process);
    assert_eq!(one.streams, []);
    let edge = &ended.stats.component("numbers").unwrap().streams[0].readers[0];
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
    let lag = |id: &str| running.stats().component(id).unwrap().lag;
    while lag("old").is_none() {
        std::thread::yield_now();
    }
    let since = Duration::from_millis(SystemClock.unix_ms().0 - 1_000);
    assert!(lag("old") <= Some(since + GRACE) && lag("old") >= Some(since), "{:?}", lag("old"));
    assert_eq!((lag("numbers"), lag("none")), (None, None));
}
