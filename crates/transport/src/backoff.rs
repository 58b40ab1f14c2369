//! When to dial a peer again: soon at first, then ever later, and not all at once.

use std::time::Duration;

use crate::Settings;

/// The waits between attempts to connect to one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait after another failure: doubles from `wait_min` to `wait_max`, and lies between a half and the whole of that by
    /// `random`, but never below `wait_min`. The second value tells that the peer is unreachable, once.
    pub(crate) fn on_failure(&mut self, settings: &Settings, random: u64) -> (Duration, bool) {
        let doubled = settings.wait_min.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        let is_unreachable = self.failures == settings.retries_max;
        self.failures = self.failures.saturating_add(1);
        (jittered(doubled.min(settings.wait_max), settings.wait_min, random), is_unreachable)
    }

    /// How long to wait after a connection that had worked has ended.
    pub(crate) fn on_end(&mut self, settings: &Settings, random: u64) -> Duration {
        self.failures = 0;
        jittered(settings.wait_min.saturating_mul(2).min(settings.wait_max), settings.wait_min, random)
    }
}

/// No wait is longer than an hour: more would be lost in a product.
const DOUBLINGS_MAX: u32 = 22;

fn jittered(wait: Duration, least: Duration, random: u64) -> Duration {
    let (from, to) = ((wait / 2).max(least).min(wait), wait);
    let span = u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX);
    from + Duration::from_nanos(((u128::from(random) * u128::from(span)) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_never_fall_below_the_shortest() {
        let settings = Settings { retries_max: 3, ..Settings::default() };
        for random in [0, u64::MAX / 2, u64::MAX] {
            let mut backoff = Backoff::default();
            for (index, most_ms) in [100, 200, 400, 800, 1_000, 1_000, 1_000].into_iter().enumerate() {
                let (wait, is_unreachable) = backoff.on_failure(&settings, random);
                let least_ms = (most_ms / 2).max(100);
                assert!((least_ms..=most_ms).contains(&(wait.as_millis() as u64)), "{wait:?}");
                assert_eq!(is_unreachable, index == 3);
            }
        }
    }

    #[test]
    fn connection_that_worked_resets_the_waits_which_differ_by_chance() {
        let (settings, mut backoff) = (Settings::default(), Backoff::default());
        for _ in 0..40 {
            backoff.on_failure(&settings, 7);
        }
        assert!(backoff.on_end(&settings, u64::MAX) <= Duration::from_millis(200));
        assert_ne!(backoff.on_end(&settings, 0), backoff.on_end(&settings, u64::MAX));
        assert_eq!(backoff.on_failure(&settings, 0).0, Duration::from_millis(100));
    }
}
