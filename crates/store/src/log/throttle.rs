//! Slows writers down while cleaning is behind: smoothly, never to a stop, and not at all where cleaning keeps up.
//!
//! ```text
//! housekeeping: disk used / live data --rate--> bytes a second      (each turn; None below the bound)
//! writers:      reserve --pass--> takes from the allowance, or waits for credits like at a full buffer
//! ```
//!
//! Invariants
//!   1. A set throttle lets at least [`RATE_MIN_BYTES`] a second through, and whoever waited is woken by the next turn.
//!   2. Deletes and cleaning never wait for it.
//!
//! Weighed: writers that clean themselves (a command would wait for the disk), refusing (an error where waiting helps).
//! Out of scope: what to clean (`liveness`), waiting (`server`).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// What writers may append, shared by them and housekeeping.
#[derive(Debug, Default)]
pub(crate) struct WriteThrottle {
    /// Bytes a second; 0 is off.
    rate: AtomicU64,
    /// What may be appended until the next refill; below zero after a large write.
    allowance: AtomicI64,
    /// Somebody waits.
    starved: AtomicBool,
    waits: AtomicU64,
}

impl WriteThrottle {
    /// Whether `bytes` may be appended now; if not, whoever asks waits for credits.
    pub(crate) fn pass(&self, bytes: u64) -> bool {
        if self.rate.load(Ordering::Relaxed) == 0 {
            return true;
        }
        if self.allowance.load(Ordering::Relaxed) > 0 {
            self.allowance.fetch_sub(bytes as i64, Ordering::Relaxed);
            return true;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.starved.store(true, Ordering::SeqCst);
        false
    }

    /// Sets the rate (`None`: off) and adds what `elapsed_ns` grants; returns whether somebody is to be woken.
    pub(crate) fn refill(&self, rate: Option<u64>, elapsed_ns: u64) -> bool {
        let Some(rate) = rate else { return self.release() };
        let granted = rate.saturating_mul(elapsed_ns.min(BURST_NS_MAX)) / 1_000_000_000;
        let burst = (rate * BURST_NS_MAX / 1_000_000_000) as i64;
        let before = self.allowance.load(Ordering::Relaxed);
        // writers only take meanwhile: the sum is never above the burst
        self.allowance.fetch_add((granted as i64).min(burst - before), Ordering::Relaxed);
        self.rate.store(rate, Ordering::Relaxed);
        self.allowance.load(Ordering::Relaxed) > 0 && self.starved.swap(false, Ordering::SeqCst)
    }

    /// Lets everybody through, before housekeeping rests or does something long; returns whether somebody is to be woken.
    pub(crate) fn release(&self) -> bool {
        self.rate.store(0, Ordering::Relaxed);
        self.allowance.store(0, Ordering::Relaxed);
        self.starved.swap(false, Ordering::SeqCst)
    }

    /// Bytes a second that writers may append; 0 while it is off.
    pub(crate) fn rate_bytes(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// How often a writer was told to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

/// What the log takes and what it is for. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Batches of all segments that could be cleaned or wait to be given back.
    pub(crate) log_bytes: u64,
    /// Records that live.
    pub(crate) live_bytes: u64,
    /// Size of a segment: a few dead ones are always under way.
    pub(crate) segment_bytes: u64,
    /// What a log may take before anybody cleans it.
    pub(crate) small_log_bytes: u64,
}

/// Bytes a second that writers may append: `None` up to `ratio_max_percent` of log to live data (0: always), then half
/// as much for each further [`HALVING_PERCENT`].
pub(crate) fn rate(debt: &Debt, ratio_max_percent: u64) -> Option<u64> {
    let most = (debt.live_bytes / 100).saturating_mul(ratio_max_percent);
    let slack = SLACK_SEGMENTS * debt.segment_bytes;
    let bound = most.max(debt.live_bytes + slack).max(debt.small_log_bytes + slack);
    if ratio_max_percent == 0 || debt.log_bytes <= bound {
        return None;
    }
    // in hundredths of what lives, but never finer than a segment
    let step = (debt.live_bytes / 100 * HALVING_PERCENT).max(debt.segment_bytes);
    let over = debt.log_bytes - bound;
    let (halvings, rest) = ((over / step).min(u64::from(HALVINGS_MAX)), over % step);
    let rate = RATE_MAX_BYTES >> halvings;
    Some((rate - rate / 2 * (rest >> 10) / (step >> 10).max(1)).max(RATE_MIN_BYTES))
}

/// Percent of ratio by which the rate halves.
const HALVING_PERCENT: u64 = 10;
const HALVINGS_MAX: u32 = 8;
/// Rate where the throttle begins to hold: what a fast disk takes.
const RATE_MAX_BYTES: u64 = 256 << 20;
/// The least that goes through.
const RATE_MIN_BYTES: u64 = 1 << 20;
/// Dead segments that are no debt: they wait for a checkpoint, or are being cleaned.
const SLACK_SEGMENTS: u64 = 4;
/// What a rest of housekeeping may save up.
const BURST_NS_MAX: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(log_mib: u64) -> Debt {
        Debt {
            log_bytes: log_mib << 20,
            live_bytes: 10_000 << 20,
            segment_bytes: 16 << 20,
            small_log_bytes: 0,
        }
    }

    #[test]
    fn writers_are_slowed_step_by_step_and_never_stopped() {
        assert_eq!(rate(&debt(19_999), 200), None);
        let rates: Vec<u64> =
            (0..200).map(|n| rate(&debt(20_001 + n * 100), 200).expect("beyond the bound")).collect();
        assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]), "falls all the way");
        assert!(rates.windows(2).all(|pair| pair[1] >= pair[0] * 9 / 10), "no cliffs");
        assert_eq!((rates[0] >> 20, rates[199]), (255, RATE_MIN_BYTES));
        assert_eq!(rate(&debt(90_000), 0), None, "switched off");
    }

    #[test]
    fn few_segments_are_no_debt() {
        let empty = |segments: u64, small_log_bytes: u64| {
            let (log_bytes, segment_bytes) = (segments << 24, 1 << 24);
            Debt { log_bytes, live_bytes: 0, segment_bytes, small_log_bytes }
        };
        assert_eq!(rate(&empty(SLACK_SEGMENTS, 0), 200), None);
        assert!(rate(&empty(SLACK_SEGMENTS + 1, 0), 200).is_some());
        assert_eq!(rate(&empty(SLACK_SEGMENTS + 8, 8 << 24), 200), None, "nobody cleans a small log");
        assert!(rate(&empty(SLACK_SEGMENTS + 9, 8 << 24), 200).is_some());
    }

    #[test]
    fn throttle_that_is_set_lets_through_what_time_grants_and_wakes_who_waits() {
        let throttle = WriteThrottle::default();
        assert!(throttle.pass(1 << 40), "off");
        assert!(!throttle.refill(Some(1_000_000), 1_000_000), "nobody waits");
        assert!(throttle.pass(5_000), "a large write passes while anything is left");
        assert!(!throttle.pass(1));
        assert!(!throttle.refill(Some(1_000_000), 1_000_000), "still below zero");
        assert!(throttle.refill(Some(1_000_000), 10_000_000));
        assert!(throttle.pass(1));
        assert!(!throttle.refill(Some(1_000_000), u64::MAX), "nobody waits any more");
        (0..20).for_each(|_| assert!(throttle.pass(1_000)));
        assert!(!throttle.pass(1), "a long rest saves up no more than a burst");
        assert!(throttle.release());
        assert!(throttle.pass(1 << 40));
        assert_eq!(throttle.waits(), 2);
    }
}
