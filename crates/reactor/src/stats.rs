//! Counters of a loop and of the acceptor.
//!
//! A loop counts in plain integers ([`Tally`]) and publishes them once a tick, so that counting costs no
//! locked instruction for each event.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use clock::Nanos;
use hdrhistogram::Histogram;

use crate::balance::STUCK_AFTER;
use crate::balance::assign::Candidate;
use crate::balance::signals::{ThreadFile, ThreadTimes};
use crate::budget::{Kept, KeptCells};
use crate::timing::{Doing, Longest, LongestOfTick, LoopTiming, Pulse};

/// What one loop has done since it started. Under the connector `threads` one value counts for all threads.
#[derive(Debug, Default)]
pub struct LoopStats {
    pub(crate) connections: AtomicUsize,
    pub(crate) ticks: AtomicU64,
    pub(crate) read_events: AtomicU64,
    pub(crate) write_events: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) wakes: AtomicU64,
    pub(crate) held: AtomicUsize,
    pub(crate) moves_in: AtomicU64,
    pub(crate) moves_out: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    /// What its connections keep.
    pub(crate) kept: KeptCells,
    pub(crate) pulse: Pulse,
    pub(crate) timing: LoopTiming,
    pub(crate) stuck_count: AtomicU64,
    /// Connections that came since the last interval ended.
    pub(crate) arrivals: AtomicU64,
    busy_ppm: AtomicU64,
    interval: Mutex<Interval>,
    /// Of its thread, if the system shows it.
    thread: OnceLock<ThreadFile>,
}

/// What a loop did in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// How long the interval was.
    pub span: Duration,
    /// Processor time that the loop spent, as far as it was busy: neither asleep, nor blocked in a commit, nor kept waiting by
    /// other threads of the machine. Time by the clock under the connector `threads`.
    pub busy: Duration,
    /// Lag ([`LoopStats::lag_us`]) that 99 of 100 ticks stayed below, in microseconds.
    pub lag_us_p99: u64,
    /// The longest callback.
    pub longest: Option<Longest>,
}

impl Interval {
    /// How much of the interval it was busy, in thousandths.
    #[must_use]
    pub fn busy_permille(&self) -> u32 {
        let permille = self.busy.as_nanos() * 1_000 / self.span.as_nanos().max(1);
        u32::try_from(permille).unwrap_or(u32::MAX)
    }
}

macro_rules! read {
    ($($(#[$doc:meta])* $name:ident: $kind:ty),+ $(,)?) => {
        $($(#[$doc])* #[must_use] pub fn $name(&self) -> $kind { self.$name.load(Relaxed) })+
    };
}

impl LoopStats {
    read! {
        /// Connections now, those on their way to this loop included.
        connections: usize,
        /// Turns of the loop.
        ticks: u64,
        /// Reads that brought bytes.
        read_events: u64,
        /// Writes that took bytes.
        write_events: u64,
        /// Bytes read.
        bytes_in: u64,
        /// Bytes written.
        bytes_out: u64,
        /// Commands, as the protocol counted them.
        commands: u64,
        /// Time spent outside the poller, in nanoseconds.
        busy_ns: u64,
        /// Messages delivered.
        messages: u64,
        /// Times another thread had to wake the loop.
        wakes: u64,
        /// Connections whose replies waited for their ticket at the end of the last tick.
        held: usize,
        /// Connections that came from another loop.
        moves_in: u64,
        /// Connections that left for another loop.
        moves_out: u64,
        /// Time blocked in commits at the end of ticks, in nanoseconds; part of the lag, not of the busy time.
        waited_ns: u64,
        /// Times that it was found stuck.
        stuck_count: u64,
    }

    /// Lags of all ticks since the start, in microseconds: how long each tick took, which is how long what came right after
    /// its beginning had to wait. Empty under the connector `threads`.
    #[must_use]
    pub fn lag_us(&self) -> Histogram<u64> {
        self.timing.lag_us()
    }

    /// What it did in the last interval of the balancer; before the first is over, since the start.
    #[must_use]
    pub fn interval(&self) -> Interval {
        self.interval.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long it has been stuck: awake without a look at the clock. `None` when it moves or sleeps.
    #[must_use]
    pub fn stuck_for(&self, now: Nanos) -> Option<Duration> {
        self.silent_for(now).filter(|silent| *silent >= STUCK_AFTER)
    }

    /// Time that its thread was ready to run and waited for a core, since the start. `None` where the system does not tell, and
    /// under the connector `threads`. A system call.
    #[must_use]
    pub fn run_queue_delay(&self) -> Option<Duration> {
        self.thread_times().map(|times| times.delayed)
    }

    pub(crate) fn thread_times(&self) -> Option<ThreadTimes> {
        self.thread.get()?.read()
    }

    /// Says which thread it is: the calling one.
    pub(crate) fn set_thread(&self) {
        if let Ok(file) = ThreadFile::of_this_thread() {
            // Once: a loop has one thread.
            let _ = self.thread.set(file);
        }
    }

    pub(crate) fn set_interval(&self, interval: Interval, ends: bool) {
        self.busy_ppm.store(u64::from(interval.busy_permille()) * 1_000, Relaxed);
        if ends {
            self.arrivals.store(0, Relaxed);
        }
        *self.interval.lock().unwrap_or_else(PoisonError::into_inner) = interval;
    }

    pub(crate) fn note_stuck(&self) {
        self.stuck_count.fetch_add(1, Relaxed);
    }

    /// The loop as an arrival sees it.
    pub(crate) fn candidate(&self, now: Nanos) -> Candidate {
        Candidate {
            connections: self.connections(),
            busy_ppm: self.busy_ppm.load(Relaxed),
            arrivals: self.arrivals.load(Relaxed),
            is_stuck: self.stuck_for(now).is_some(),
        }
    }

    /// Processor time of the loop's thread, in nanoseconds, as of at most some milliseconds of work ago. 0 under `threads`.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.timing.cpu().cpu_ns
    }

    /// Time since the loop last looked at the clock, which it does around every callback; `None` while it sleeps in its poller.
    #[must_use]
    pub fn silent_for(&self, now: Nanos) -> Option<Duration> {
        self.pulse.silent_for(now)
    }

    /// What it is doing, if it does not sleep.
    #[must_use]
    pub fn doing(&self) -> Doing {
        self.pulse.doing()
    }

    /// Adds `tally` and empties it.
    pub(crate) fn absorb(&self, tally: &mut Tally) {
        let taken = std::mem::take(tally);
        let Tally {
            ticks,
            read_events,
            write_events,
            bytes_in,
            bytes_out,
            commands,
            busy_ns,
            messages,
            wakes,
            waited_ns,
            kept,
            longest: _,
        } = taken;
        self.kept.add(kept);
        self.ticks.fetch_add(ticks, Relaxed);
        self.busy_ns.fetch_add(busy_ns, Relaxed);
        for (counter, value) in [
            (&self.read_events, read_events),
            (&self.write_events, write_events),
            (&self.bytes_in, bytes_in),
            (&self.bytes_out, bytes_out),
            (&self.commands, commands),
            (&self.messages, messages),
            (&self.wakes, wakes),
            (&self.waited_ns, waited_ns),
        ] {
            if value > 0 {
                counter.fetch_add(value, Relaxed);
            }
        }
    }
}

/// Counts of one tick, not yet published.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) ticks: u64,
    pub(crate) read_events: u64,
    pub(crate) write_events: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) commands: u64,
    pub(crate) busy_ns: u64,
    pub(crate) messages: u64,
    pub(crate) wakes: u64,
    pub(crate) waited_ns: u64,
    pub(crate) kept: Kept,
    pub(crate) longest: LongestOfTick,
}

/// What the acceptor has done since it started.
#[derive(Debug, Default)]
pub struct AcceptStats {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failures: AtomicU64,
}

impl AcceptStats {
    read! {
        /// Connections taken in.
        accepted: u64,
        /// Connections that were one too many.
        refused: u64,
        /// Accepts that failed, for want of descriptors or memory.
        failures: u64,
    }
}
