//! What stays within its bounds when a bolt is slower than its spout.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::{Clock, SystemClock};
use topology::bolt::TupleId;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Tuple, Waker};

use crate::fixture::{GRACE, Test, all_acked};

/// Uses the processor for so long.
pub(crate) fn work(time: Duration) {
    let until = SystemClock.now() + time;
    while SystemClock.now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn slow_bolt_keeps_what_is_pending_at_its_bound() {
    const PENDING_MAX: u32 = 50;
    let mut test = Test::new(400);
    test.builder.settings().max_spout_pending = PENDING_MAX;
    test.bolt("slow", |_, _| {
        work(Duration::from_millis(1));
        Ok(Outcome::Ack)
    })
    .shuffle("numbers");
    let out_most = std::sync::Arc::clone(&test.source.out_most);
    let (running, told) = test.start(2);
    all_acked(&told, 400);
    let ended = running.kill(GRACE);
    assert_eq!(out_most.load(Ordering::Relaxed), u64::from(PENDING_MAX));
    let slow = ended.stats.component("slow").unwrap();
    let (execute, within_500_us) = (&slow.latencies.execute, 8);
    assert_eq!((execute.count, execute.at_most(within_500_us)), (400, 0), "slow calls are measured each");
}

#[test]
fn full_queue_stops_the_spout_before_its_own_bound() {
    const QUEUE_BYTES: u64 = 4_096;
    let mut test = Test::new(2_000);
    let settings = test.builder.settings();
    (settings.max_spout_pending, settings.channel_bytes_max, settings.batch_tuples_max) =
        (100_000, QUEUE_BYTES, 8);
    test.bolt("slow", |_, _| {
        work(Duration::from_micros(100));
        Ok(Outcome::Ack)
    })
    .shuffle("numbers");
    let out_most = std::sync::Arc::clone(&test.source.out_most);
    let (running, told) = test.start(2);
    all_acked(&told, 2_000);
    assert!(running.kill(GRACE).is_finished);
    let most = out_most.load(Ordering::Relaxed);
    assert!(most < 400, "{most} tuples of about 60 B were out over a channel of {QUEUE_BYTES} B");
}

/// Has one tuple at a time, and finishes it when it is called again.
#[derive(Default)]
pub(crate) struct OneAtATime {
    held: Option<TupleId>,
    waker: Option<Waker>,
}

impl Bolt for OneAtATime {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.waker = Some(context.waker());
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.held.is_none()
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        assert_eq!(self.held.replace(tuple.id()), None, "it was not ready");
        self.waker.as_ref().unwrap().wake();
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        Ok(self.held.take().map_or(Ok(()), |tuple| out.ack(tuple))?)
    }
}

#[test]
fn bolt_that_is_not_ready_gets_its_next_tuple_after_it_was_woken() {
    let mut test = Test::new(1_000);
    test.builder.set_bolt("one", OneAtATime::default).shuffle("numbers");
    let (running, told) = test.start(2);
    all_acked(&told, 1_000);
    let ended = running.kill(GRACE);
    assert_eq!((ended.is_finished, ended.stats.component("one").unwrap().restarts), (true, 0));
}
