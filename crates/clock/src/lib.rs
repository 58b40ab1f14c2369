//! Time as an argument: monotonic and wall-clock time behind one trait.
//!
//! Invariants
//!   1. [`Clock::now`] never runs back.
//!   2. Nothing outside this crate asks the system for the time: a loop reads the clock once a tick and
//!      passes the value down.
//!
//! [`Throttle`] is here because only who is told the time can bound how often something happens.
//!
//! Wall-clock time may jump; `store` counts a time of its own from [`Clock::uptime`] (docs/adr/0014-time-and-expiry.md).
//! Out of scope: timers (a loop owns its own), time zones.

use std::fmt::Debug;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds of a clock that only grows; its zero has no meaning outside the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Nanos {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Nanos {
    type Output = Duration;
    fn sub(self, rhs: Self) -> Duration {
        self.since(rhs)
    }
}

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

/// Where time comes from.
pub trait Clock: Debug + Send + Sync {
    /// Monotonic time.
    fn now(&self) -> Nanos;

    /// Wall-clock time in microseconds since 1970-01-01 UTC.
    fn unix_us(&self) -> u64;

    /// Time since the machine started, suspends included: it goes on at the same rate while the process is not running.
    fn uptime(&self) -> Nanos;

    /// Which start of the machine [`Clock::uptime`] counts from; 0 when that is unknown.
    fn boot(&self) -> u128;

    /// Wall-clock time in milliseconds.
    fn unix_ms(&self) -> UnixMs {
        UnixMs(self.unix_us() / 1_000)
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn unix_us(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        time.tv_sec.max(0) as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
    }

    fn uptime(&self) -> Nanos {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    #[allow(clippy::disallowed_methods, reason = "the kernel tells it in a file, not by a call")]
    fn boot(&self) -> u128 {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or(0)
    }
}

/// A number that changes every few milliseconds, and costs less to read than the time: it says that the time is to be looked at.
#[must_use]
pub fn coarse() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (time.tv_sec as u64) << 30 | time.tv_nsec as u64
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct SimClock {
    monotonic_ns: AtomicU64,
    /// Monotonic time when the machine started last.
    started_ns: AtomicU64,
    boots: AtomicU64,
    unix_us: AtomicU64,
}

impl SimClock {
    /// A clock at monotonic zero and wall-clock time `unix_ms`.
    #[must_use]
    pub fn new(unix_ms: UnixMs) -> Self {
        Self {
            monotonic_ns: AtomicU64::new(0),
            started_ns: AtomicU64::new(0),
            boots: AtomicU64::new(1),
            unix_us: AtomicU64::new(unix_ms.0 * 1_000),
        }
    }

    /// Moves both clocks forward by `step`.
    pub fn advance(&self, step: Duration) {
        let nanos = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        self.monotonic_ns.fetch_add(nanos, Ordering::Relaxed);
        self.unix_us.fetch_add(nanos / 1_000, Ordering::Relaxed);
    }

    /// Sets the wall clock alone, as an operator or NTP would, backwards too.
    pub fn set_unix_ms(&self, unix_ms: UnixMs) {
        self.unix_us.store(unix_ms.0 * 1_000, Ordering::Relaxed);
    }

    /// Starts the machine anew: its uptime begins at zero.
    pub fn reboot(&self) {
        self.started_ns.store(self.monotonic_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        self.boots.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Nanos {
        Nanos(self.monotonic_ns.load(Ordering::Relaxed))
    }

    fn unix_us(&self) -> u64 {
        self.unix_us.load(Ordering::Relaxed)
    }

    fn uptime(&self) -> Nanos {
        Nanos(self.monotonic_ns.load(Ordering::Relaxed) - self.started_ns.load(Ordering::Relaxed))
    }

    fn boot(&self) -> u128 {
        self.boots.load(Ordering::Relaxed).into()
    }
}

/// Lets one event of its kind be told of in a while, and counts those between: a client that repeats itself must not fill the log.
#[derive(Debug)]
pub struct Throttle {
    every: Duration,
    next_ns: AtomicU64,
    skipped: AtomicU64,
}

impl Throttle {
    /// One event in `every`.
    #[must_use]
    pub const fn new(every: Duration) -> Self {
        Self { every, next_ns: AtomicU64::new(0), skipped: AtomicU64::new(0) }
    }

    /// Whether an event is to be told of that happens `now`: then how many were not since the last that was.
    pub fn admit(&self, now: Nanos) -> Option<u64> {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let later = (now + self.every).0;
        let is_due = now.0 >= next_ns
            && self.next_ns.compare_exchange(next_ns, later, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_due {
            return Some(self.skipped.swap(0, Ordering::Relaxed));
        }
        self.skipped.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_tells_of_the_first_event_and_of_how_many_it_left_out() {
        let throttle = Throttle::new(Duration::from_nanos(10));
        let told: Vec<_> = [0, 1, 9, 10, 11, 30].map(|at| throttle.admit(Nanos(at))).into();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn system_clock_never_runs_back() {
        let clock = SystemClock;
        let mut last = clock.now();
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(clock.unix_ms() > UnixMs(1_700_000_000_000));
        let up = clock.uptime();
        assert!(clock.uptime() >= up);
        assert_eq!(clock.boot(), SystemClock.boot(), "one machine, one start");
    }

    #[test]
    fn simulated_clock_moves_only_when_told() {
        let clock = SimClock::new(UnixMs(5_000));
        assert_eq!((clock.now(), clock.unix_ms()), (Nanos(0), UnixMs(5_000)));
        clock.advance(Duration::from_millis(7));
        assert_eq!((clock.now(), clock.unix_ms()), (Nanos(7_000_000), UnixMs(5_007)));
        clock.set_unix_ms(UnixMs(1));
        assert_eq!((clock.now(), clock.unix_ms()), (Nanos(7_000_000), UnixMs(1)));
        assert_eq!((clock.uptime(), clock.boot()), (Nanos(7_000_000), 1));
        clock.reboot();
        assert_eq!((clock.now(), clock.uptime(), clock.boot()), (Nanos(7_000_000), Nanos(0), 2));
    }

    #[test]
    fn difference_of_a_later_time_is_zero() {
        assert_eq!(Nanos(3) - Nanos(5), Duration::ZERO);
        assert_eq!(Nanos(5) + Duration::from_nanos(2), Nanos(7));
    }
}
