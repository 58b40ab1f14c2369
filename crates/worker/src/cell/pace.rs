//! How long calls of a component take, and when a turn has taken long enough.
//!
//! To read the clock costs as much as a small call, so one call of 16 is measured; each one while they are slow.

use std::time::Duration;

use clock::{Clock, Nanos};

/// Measures calls, over all turns of a cell.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Calls until the next one that is measured.
    skip: u32,
    /// The last measured call was slow.
    is_slow: bool,
    began: Nanos,
    calls: u32,
}

/// A call that is measured, if it is.
#[must_use]
pub(super) struct Call(Option<Nanos>);

impl Call {
    /// When it began.
    pub(super) fn began(&self) -> Option<Nanos> {
        self.0
    }
}

impl Pace {
    /// A turn begins.
    pub(super) fn begin_turn(&mut self, now: Nanos) {
        (self.began, self.calls) = (now, 0);
    }

    /// A call begins.
    pub(super) fn begin_call(&mut self, clock: &dyn Clock) -> Call {
        self.calls += 1;
        if self.skip > 0 {
            self.skip -= 1;
            return Call(None);
        }
        Call(Some(clock.now()))
    }

    /// A call is over: how long it took, if it was measured, and whether the turn has taken long enough.
    pub(super) fn end_call(&mut self, clock: &dyn Clock, call: &Call) -> (Option<Duration>, bool) {
        let Some(began) = call.0 else { return (None, self.calls >= CALLS_MAX) };
        let now = clock.now();
        let time = now.since(began);
        self.is_slow = time >= SLOW;
        self.skip = if self.is_slow { 0 } else { SKIPPED };
        (Some(time), self.calls >= CALLS_MAX || now.since(self.began) >= TURN)
    }

    /// Whether calls take so long that what they emit should not wait for the next one.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }
}

/// Calls that are not measured after one that is.
const SKIPPED: u32 = 15;
/// Slower calls are measured each.
const SLOW: Duration = Duration::from_micros(10);
/// A turn ends after so long.
const TURN: Duration = Duration::from_millis(1);
/// A turn ends after so many calls.
const CALLS_MAX: u32 = 1_024;
