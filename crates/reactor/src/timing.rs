//! How a loop keeps time: its lag, its longest callback, its processor time, and whether it moves at all.
//!
//! The *lag* of a tick is how long the tick took, from the return of the poller until the loop is back at it, a commit at its
//! end included: what came right after the tick began had to wait for so long. So every tick of a loop counts once, and a
//! percentile is over ticks, not over requests.
//!
//! The *heartbeat* is the loop's newest look at the clock, none while it sleeps. It stands still during one callback, so a
//! callback, or a commit, that does not end shows from outside while it runs, with the connection that it is for.
//!
//! *Processor time* is read every [`CPU_READ_EVERY`] beside the time that was spent by the clock: their ratio tells the share of
//! that time in which the thread really ran (and what the poller itself took). The two are read together so that an old pair is
//! as true as a new one.
//!
//! A loop writes heartbeats as relaxed stores, and the rest under one lock a tick that nobody else holds but now and then.
//! Out of scope: what is concluded from it (`balance`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Nanos;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

/// How often a busy loop asks for its processor time: one system call in thousands.
pub(crate) const CPU_READ_EVERY: Duration = Duration::from_millis(20);
/// Lags beyond this count as this.
const LAG_MAX: Duration = Duration::from_secs(60);
const _: () = assert!(CPU_READ_EVERY.as_nanos() < LAG_MAX.as_nanos());

/// What a loop is in, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Something of its own between callbacks, or nothing.
    Nothing,
    /// A callback of the connection with this id, or reading and writing for it.
    Callback(u64),
    /// The end of a tick that waits for the disk, because all connections of the loop do.
    Commit,
}

/// A callback that took longer than any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Longest {
    /// The connection that it was for.
    pub connection_id: u64,
    /// From the loop's look at the clock before it to the one after it: input, work and output.
    pub took: Duration,
    /// What it did, if the protocol knows ([`crate::Protocol::doing`]).
    pub what: Option<String>,
}

/// Relaxed words by which a loop shows that it moves.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Newest look at the clock, 0 while asleep.
    beat_ns: AtomicU64,
    /// [`Doing`] as a number: connections have ids from 1.
    doing: AtomicU64,
}

const NOTHING: u64 = 0;
const COMMIT: u64 = u64::MAX;

impl Pulse {
    pub(crate) fn asleep(&self) {
        self.beat_ns.store(0, Relaxed);
    }

    pub(crate) fn callback(&self, connection_id: u64, now: Nanos) {
        self.doing.store(connection_id, Relaxed);
        self.beat_ns.store(now.0, Relaxed);
    }

    pub(crate) fn between(&self, now: Nanos) {
        self.doing.store(NOTHING, Relaxed);
        self.beat_ns.store(now.0, Relaxed);
    }

    pub(crate) fn commit(&self, now: Nanos) {
        self.doing.store(COMMIT, Relaxed);
        self.beat_ns.store(now.0, Relaxed);
    }

    /// Time since the newest heartbeat; `None` while asleep.
    pub(crate) fn silent_for(&self, now: Nanos) -> Option<Duration> {
        let beat = self.beat_ns.load(Relaxed);
        (beat != 0).then(|| now - Nanos(beat))
    }

    pub(crate) fn doing(&self) -> Doing {
        match self.doing.load(Relaxed) {
            NOTHING => Doing::Nothing,
            COMMIT => Doing::Commit,
            id => Doing::Callback(id),
        }
    }
}

/// A thread's processor time, with the time by the clock in which it was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuMark {
    pub(crate) busy_ns: u64,
    pub(crate) cpu_ns: u64,
}

/// Processor time of the calling thread. A system call.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// One tick, for the books.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tick {
    pub(crate) lag: Duration,
    pub(crate) longest: LongestOfTick,
    /// A new mark, if one was read.
    pub(crate) cpu: Option<CpuMark>,
}

/// The longest callback of one tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LongestOfTick {
    pub(crate) connection_id: u64,
    pub(crate) took: Duration,
}

impl LongestOfTick {
    pub(crate) fn note(&mut self, connection_id: u64, took: Duration) {
        if took > self.took {
            *self = Self { connection_id, took };
        }
    }
}

/// What a loop writes down once a tick.
#[derive(Debug)]
pub(crate) struct LoopTiming(Mutex<Books>);

#[derive(Debug)]
struct Books {
    lag_us: Histogram<u64>,
    /// Since [`LoopTiming::take_longest`].
    longest: Option<Longest>,
    cpu: CpuMark,
}

impl Default for LoopTiming {
    fn default() -> Self {
        let most = LAG_MAX.as_micros() as u64;
        let lag_us = Histogram::new_with_bounds(1, most, 2).expect("constants that a histogram takes");
        Self(Mutex::new(Books { lag_us, longest: None, cpu: CpuMark::default() }))
    }
}

impl LoopTiming {
    /// Notes a tick; whether its longest callback is the longest now. Then [`LoopTiming::name_longest`] may tell what it was.
    pub(crate) fn note(&self, tick: &Tick) -> bool {
        let mut books = self.lock();
        books.lag_us.saturating_record(tick.lag.as_micros() as u64);
        if let Some(mark) = tick.cpu {
            books.cpu = mark;
        }
        let LongestOfTick { connection_id, took } = tick.longest;
        let is_longest = took > books.longest.as_ref().map_or(Duration::ZERO, |longest| longest.took);
        if is_longest {
            books.longest = Some(Longest { connection_id, took, what: None });
        }
        is_longest
    }

    /// Says what the longest callback did. Only for the loop itself.
    pub(crate) fn name_longest(&self, what: String) {
        if let Some(longest) = &mut self.lock().longest {
            longest.what = Some(what);
        }
    }

    /// The longest callback since the last call.
    pub(crate) fn take_longest(&self) -> Option<Longest> {
        self.lock().longest.take()
    }

    /// The longest callback since [`LoopTiming::take_longest`].
    pub(crate) fn longest(&self) -> Option<Longest> {
        self.lock().longest.clone()
    }

    /// Lags of all ticks, in microseconds.
    pub(crate) fn lag_us(&self) -> Histogram<u64> {
        self.lock().lag_us.clone()
    }

    pub(crate) fn cpu(&self) -> CpuMark {
        self.lock().cpu
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(lag_us: u64, connection_id: u64, took_us: u64) -> Tick {
        let longest = LongestOfTick { connection_id, took: Duration::from_micros(took_us) };
        Tick { lag: Duration::from_micros(lag_us), longest, cpu: None }
    }

    #[test]
    fn longest_callback_is_kept_with_its_name_until_it_is_taken() {
        let timing = LoopTiming::default();
        assert!(!timing.note(&tick(5, 0, 0)), "a tick without callbacks");
        assert!(timing.note(&tick(50, 7, 40)));
        timing.name_longest("lcs".to_owned());
        assert!(!timing.note(&tick(50, 8, 39)));
        let longest = timing.longest().expect("there was one");
        assert_eq!((longest.connection_id, longest.took), (7, Duration::from_micros(40)));
        assert_eq!(longest.what.as_deref(), Some("lcs"));
        assert_eq!(timing.take_longest(), Some(longest));
        assert!(timing.note(&tick(1, 8, 1)), "a new interval, a new longest");
    }

    #[test]
    fn lag_beyond_the_histogram_counts_as_its_most() {
        let timing = LoopTiming::default();
        for lag in [0, 100, u64::MAX / 1_000] {
            timing.note(&tick(lag, 0, 0));
        }
        let lags = timing.lag_us();
        assert_eq!(lags.len(), 3);
        assert!(lags.max() >= LAG_MAX.as_micros() as u64);
    }

    #[test]
    fn heart_that_stands_still_tells_what_for() {
        let pulse = Pulse::default();
        assert_eq!((pulse.silent_for(Nanos(9)), pulse.doing()), (None, Doing::Nothing));
        pulse.callback(3, Nanos(5));
        assert_eq!(pulse.silent_for(Nanos(9)), Some(Duration::from_nanos(4)));
        assert_eq!(pulse.doing(), Doing::Callback(3));
        pulse.commit(Nanos(9));
        assert_eq!((pulse.silent_for(Nanos(9)), pulse.doing()), (Some(Duration::ZERO), Doing::Commit));
        pulse.between(Nanos(9));
        pulse.asleep();
        assert_eq!((pulse.silent_for(Nanos(99)), pulse.doing()), (None, Doing::Nothing));
    }

    #[test]
    fn processor_time_of_a_thread_grows_while_it_works() {
        let before = thread_cpu_ns();
        let mut sum = 0u64;
        while thread_cpu_ns() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(thread_cpu_ns() > before);
    }
}
