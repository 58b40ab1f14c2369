//! Whether the next cycle waits a moment for the writers that the last one released.
//!
//! Writers whose next record is at hand come back within microseconds of the sync that released them. A cycle that starts
//! without them leaves them to the one after: then two halves take turns, each with a sync of its own, although one sync
//! carries both at little more cost. So the journal's thread, before it takes a cycle, lets as many come as it released
//! last, for a small part of the usual sync's time.
//!
//! Where writers do not come back so soon, each try would be a wait for nothing. So a try that fails is followed by ever
//! more cycles without one ([`SKIPS_MAX`]), and a few writers are never waited for. What it gains: docs/adr/0001.
//!
//! Invariants
//!   1. Once all tries fail, one cycle waits for every [`SKIPS_MAX`] that do not.
//!   2. Nothing here waits or asks the time: `thread` does.

use std::time::Duration;

/// What the last tries taught.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    watch: Option<Watch>,
    /// Cycles that still go by without a try.
    skips: u32,
    /// How many go by after the next try that fails.
    skips_next: u32,
}

/// What to wait for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    /// As many records were released,
    records: u64,
    /// when this was the newest lsn.
    appended_lsn: u64,
    /// How long they may take.
    pub(crate) limit: Duration,
}

impl Watch {
    /// How many came, now that `appended_lsn` is the newest.
    pub(crate) fn came(&self, appended_lsn: u64) -> u64 {
        appended_lsn.saturating_sub(self.appended_lsn)
    }

    /// Whether as many came as were released.
    pub(crate) fn is_full(&self, appended_lsn: u64) -> bool {
        self.came(appended_lsn) >= self.records
    }
}

impl Gather {
    /// A cycle made `records` durable; `appended_lsn` is the newest by now, and a sync usually takes `sync_ns`.
    pub(crate) fn on_cycle(&mut self, records: u64, appended_lsn: u64, sync_ns: u64) {
        if records == 0 {
            return; // an offer of what had gone with the cycle before
        }
        self.watch = None;
        if records < RECORDS_MIN {
            return;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        let limit = Duration::from_nanos(sync_ns / SYNC_SHARE).min(LIMIT_MAX);
        self.watch = Some(Watch { records, appended_lsn, limit });
    }

    /// What to wait for before the next cycle is taken, once.
    pub(crate) fn take_watch(&mut self) -> Option<Watch> {
        self.watch.take()
    }

    /// The wait is over, and `appended_lsn` is the newest.
    pub(crate) fn on_end(&mut self, watch: Watch, appended_lsn: u64) {
        if watch.came(appended_lsn) * CAME_SHARE >= watch.records {
            self.skips_next = 0;
            return;
        }
        self.skips_next = (2 * self.skips_next + 1).min(SKIPS_MAX);
        self.skips = self.skips_next;
    }
}

/// Fewer are not waited for: beside what a sync costs, they cost the next one nothing.
const RECORDS_MIN: u64 = 64;
/// What part of a usual sync the wait may take.
const SYNC_SHARE: u64 = 6;
/// However slow the disk is.
const LIMIT_MAX: Duration = Duration::from_micros(250);
/// What part of those released has to come, for a try not to have failed.
const CAME_SHARE: u64 = 2;
/// Cycles between two tries where all fail.
const SKIPS_MAX: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC_NS: u64 = 300_000;

    /// Cycles of `records` each, of which `came` are back at the end of a wait; returns how many waited.
    fn waits(gather: &mut Gather, cycles: u32, records: u64, came: u64) -> u32 {
        let mut lsn = 1;
        let mut waits = 0;
        for _ in 0..cycles {
            gather.on_cycle(records, lsn, SYNC_NS);
            lsn += came;
            if let Some(watch) = gather.take_watch() {
                waits += 1;
                gather.on_end(watch, lsn);
            }
            lsn += records - came;
        }
        waits
    }

    #[test]
    fn writers_who_come_back_at_once_are_waited_for_each_time() {
        assert_eq!(waits(&mut Gather::default(), 100, 200, 200), 100);
    }

    #[test]
    fn writers_who_come_back_late_are_hardly_ever_waited_for() {
        let mut gather = Gather::default();
        waits(&mut gather, 1_000, 200, 10);
        assert!(waits(&mut gather, 25_600, 200, 10) <= 101, "one cycle of 256");
        waits(&mut gather, 256, 200, 200);
        assert_eq!(waits(&mut gather, 100, 200, 200), 100, "those who become quick are found");
    }

    #[test]
    fn a_few_writers_are_never_waited_for() {
        assert_eq!(waits(&mut Gather::default(), 100, RECORDS_MIN - 1, RECORDS_MIN - 1), 0);
    }

    #[test]
    fn wait_is_a_small_part_of_a_sync_and_bounded() {
        let mut gather = Gather::default();
        gather.on_cycle(200, 1_000, SYNC_NS);
        gather.on_cycle(0, 1_200, SYNC_NS);
        let watch = gather.take_watch().expect("a cycle without records changes nothing");
        assert_eq!(watch.limit, Duration::from_nanos(SYNC_NS / SYNC_SHARE));
        assert!(!watch.is_full(1_199) && watch.is_full(1_200));
        assert_eq!(gather.take_watch(), None, "once a cycle");
        gather.on_cycle(200, 1_200, 1_000_000_000);
        assert_eq!(gather.take_watch().map(|watch| watch.limit), Some(LIMIT_MAX));
    }
}
