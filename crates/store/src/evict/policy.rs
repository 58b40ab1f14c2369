//! Which keys are evicted, by the name of the policy, and what must be known of each key for that: a stamp of its use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Which keys are evicted, by Redis's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Eviction {
    /// None: what needs room is refused.
    #[default]
    NoEviction,
    /// Those that were not used for longest.
    AllKeysLru,
    /// Those that are used least often.
    AllKeysLfu,
    /// Any.
    AllKeysRandom,
    /// Of those with an expiry, the ones that were not used for longest.
    VolatileLru,
    /// Of those with an expiry, the ones that are used least often.
    VolatileLfu,
    /// Any with an expiry.
    VolatileRandom,
    /// Those that expire soonest.
    VolatileTtl,
}

impl Eviction {
    const ALL: [Self; 8] = [
        Self::NoEviction,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// What must be known of each key.
    pub(crate) fn tracking(self) -> Option<Tracking> {
        match self {
            Self::AllKeysLru | Self::VolatileLru => Some(Tracking::Recency),
            Self::AllKeysLfu | Self::VolatileLfu => Some(Tracking::Frequency),
            _ => None,
        }
    }

    pub(super) fn is_volatile(self) -> bool {
        matches!(self, Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl)
    }
}

/// How a key was used, as far as the policy tracks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Usage {
    /// The policy does not need it.
    #[default]
    Untracked,
    /// Not for so long, in ms.
    IdleMs(u64),
    /// About the logarithm of how often, 0 to 255.
    Frequency(u8),
}

/// What a stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// The time of the last use, in units of [`TICK_MS`], modulo 2^32: two years.
    Recency,
    /// Bits 8-23: the minute of the last use, modulo 2^16; bits 0-7: the count, to be lowered by one for each minute since then.
    Frequency,
}

impl Tracking {
    /// The stamp of a key that is made now.
    pub(crate) fn fresh(self, now_ms: u64) -> u32 {
        match self {
            Self::Recency => (now_ms / TICK_MS) as u32,
            Self::Frequency => minute(now_ms) << 8 | u32::from(COUNT_FRESH),
        }
    }

    /// The stamp after a use; `dice` gives any number, for whom needs it.
    pub(crate) fn used(self, stamp: u32, now_ms: u64, dice: impl FnOnce() -> u32) -> u32 {
        match self {
            Self::Recency => self.fresh(now_ms),
            Self::Frequency => {
                let count = count(stamp, now_ms);
                let odds = u32::from(count.saturating_sub(COUNT_FRESH)) * COUNT_FACTOR + 1;
                let count = if dice().is_multiple_of(odds) { count.saturating_add(1) } else { count };
                minute(now_ms) << 8 | u32::from(count)
            }
        }
    }

    /// What the stamp tells.
    pub(crate) fn usage(self, stamp: u32, now_ms: u64) -> Usage {
        match self {
            Self::Recency => Usage::IdleMs(u64::from(idle_ticks(stamp, now_ms)) * TICK_MS),
            Self::Frequency => Usage::Frequency(count(stamp, now_ms)),
        }
    }

    /// Of two keys the one with the higher rank goes first.
    pub(super) fn rank(self, stamp: u32, now_ms: u64) -> u64 {
        match self {
            Self::Recency => idle_ticks(stamp, now_ms).into(),
            Self::Frequency => (u8::MAX - count(stamp, now_ms)).into(),
        }
    }
}

fn idle_ticks(stamp: u32, now_ms: u64) -> u32 {
    let idle = ((now_ms / TICK_MS) as u32).wrapping_sub(stamp);
    // a little ahead: another thread looked at the clock later
    if idle > u32::MAX - AHEAD_TICKS { 0 } else { idle }
}

pub(super) fn minute(now_ms: u64) -> u32 {
    (now_ms / 60_000) as u32 & 0xffff
}

fn count(stamp: u32, now_ms: u64) -> u8 {
    let minutes = minute(now_ms).wrapping_sub(stamp >> 8) & 0xffff;
    (stamp as u8).saturating_sub(u8::try_from(minutes).unwrap_or(u8::MAX))
}

/// The policy, and where it stands.
#[derive(Debug)]
pub(crate) struct Evictor {
    policy: AtomicU8,
    /// What all tables track.
    pub(super) tracked: Mutex<Option<Tracking>>,
    pub(super) disk_limit_bytes: AtomicU64,
    /// The store's own thread has last found no key that may go, though there is too little room.
    pub(super) is_stuck: AtomicBool,
    /// Keys that went, since the start.
    pub(crate) evicted_keys: AtomicU64,
}

impl Evictor {
    /// One that has evicted nothing.
    pub(crate) fn new(policy: Eviction, disk_limit_bytes: u64) -> Self {
        Self {
            policy: AtomicU8::new(policy as u8),
            tracked: Mutex::new(None),
            disk_limit_bytes: AtomicU64::new(disk_limit_bytes),
            is_stuck: AtomicBool::new(false),
            evicted_keys: AtomicU64::new(0),
        }
    }

    /// Which keys go.
    pub(crate) fn policy(&self) -> Eviction {
        Eviction::ALL[usize::from(self.policy.load(Ordering::Relaxed))]
    }

    /// Sets which keys go.
    pub(crate) fn set_policy(&self, policy: Eviction) {
        self.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// Sets the most that the folder may take; 0: as the file system has room.
    pub(crate) fn set_disk_limit(&self, bytes: u64) {
        self.disk_limit_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Unit of the time of the last use.
pub(super) const TICK_MS: u64 = 16;
/// How far a clock that others looked at may be ahead.
const AHEAD_TICKS: u32 = 1 << 16;
/// Count of a key that was just made: it is not the first to go.
const COUNT_FRESH: u8 = 5;
/// How much rarer a count grows with each step.
const COUNT_FACTOR: u32 = 10;
