//! Gives freed memory back to the system, and knows when that is worth it.
//!
//! The C library keeps what is freed: it takes a page at the end of its heap back by itself, and no other. After a FLUSHALL of 5 M keys a
//! process would stay as large as it was. [`give_back`] returns every page that holds nothing, about 10 GB a second; meanwhile threads
//! that allocate from the same arena wait, so it is not called for little ([`TrimSchedule`]).
//!
//! Out of scope: what is freed, and by whom (`tend`, `memory`).
#![allow(unsafe_code, reason = "one call of the C library; proof beside it")]

use std::time::Duration;

use clock::Nanos;

/// From this size on a block is mapped alone, and goes back to the system as it is freed: who starts the process tells its allocator so.
pub const MAPPED_BYTES_MIN: usize = 256 << 10;

/// Returns all unused pages of the heap to the system, where the C library can do that.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes the locks that it needs, may be called from any thread, and neither moves nor frees what is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Watches used memory for falls after which the heap has pages to give back.
#[derive(Debug, Default)]
pub(crate) struct TrimSchedule {
    /// Most that was in use since the last fall ended.
    high_bytes: u64,
    /// What was in use at the last look.
    last_bytes: u64,
    looked_at: Option<Nanos>,
    /// Most that was in use since pages were last given back.
    kept_bytes: u64,
}

impl TrimSchedule {
    /// Whether [`LOOK_INTERVAL`] has passed since this last said so.
    pub(crate) fn is_time(&mut self, now: Nanos) -> bool {
        let is_time = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_INTERVAL);
        if is_time {
            self.looked_at = Some(now);
        }
        is_time
    }

    /// Looks at `used_bytes`, which were `peak_bytes` since the last look; returns whether it is time to give pages back: when a fall
    /// has ended, and at each halving before. The keys of a page rarely go together, so most pages become free at the end of a fall.
    pub(crate) fn look(&mut self, used_bytes: u64, peak_bytes: u64) -> bool {
        let peak_bytes = peak_bytes.max(used_bytes);
        self.high_bytes = self.high_bytes.max(peak_bytes);
        self.kept_bytes = self.kept_bytes.max(peak_bytes);
        let is_falling = used_bytes < peak_bytes.max(self.last_bytes);
        self.last_bytes = used_bytes;
        let fallen_bytes = self.high_bytes - used_bytes;
        if fallen_bytes < FALL_BYTES_MIN || fallen_bytes < self.high_bytes / FALL_SHARE {
            return false;
        }
        if is_falling && used_bytes > self.kept_bytes / 2 {
            return false;
        }
        self.kept_bytes = used_bytes;
        if !is_falling {
            self.high_bytes = used_bytes;
        }
        true
    }
}

/// How often used memory is looked at: what goes on falling for so long is one fall.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Less than this is not worth it.
const FALL_BYTES_MIN: u64 = 4 << 20;
/// Nor is less than this part of what was in use: it will be used again.
const FALL_SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// How often pages are given back while memory takes these values, a look each.
    fn looks(mib: &[u64]) -> Vec<usize> {
        let mut trim = TrimSchedule::default();
        (0..mib.len()).filter(|&n| trim.look(mib[n] << 20, 0)).collect()
    }

    #[test]
    fn pages_go_back_at_each_halving_and_when_a_fall_has_ended() {
        assert_eq!(looks(&[0, 800, 0, 0, 0]), [2, 3], "at once, and what was freed after that");
        assert_eq!(looks(&[800, 700, 600, 500, 400, 300, 200, 150, 150, 150]), [4, 6, 8]);
        assert_eq!(looks(&[0, 100, 200, 800, 800]), [], "growth");
        assert_eq!(looks(&[800, 790, 780, 790, 775, 800]), [], "what comes and goes");
        assert_eq!(looks(&[3, 0, 0, 0]), [], "little");
    }

    #[test]
    fn rise_and_fall_between_two_looks_is_noticed() {
        let mut trim = TrimSchedule::default();
        assert!(!trim.look(1 << 20, 1 << 20));
        assert!(trim.look(1 << 20, 50 << 20));
    }

    #[test]
    fn looks_are_an_interval_apart() {
        let mut trim = TrimSchedule::default();
        assert!(trim.is_time(Nanos(5)));
        assert!((6..1_000).all(|n| !trim.is_time(Nanos(n))));
        assert!(trim.is_time(Nanos(5 + LOOK_INTERVAL.as_nanos() as u64)));
    }
}
