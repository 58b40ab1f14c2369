//! How long calls of a component take, and when a turn has taken long enough.
//!
//! To read the clock costs as much as a small call, so one call of 16 is measured; each one while they are slow.

use std::time::Duration;

use clock::{Clock, Nanos};
use topology::random::Random;

/// Measures calls, over all turns of a cell.
#[derive(Debug)]
pub(super) struct Pace {
    /// Calls until the next one that is measured.
    skip: u64,
    /// How many: with a fixed number, calls that differ by turns would be measured of one kind only.
    random: Random,
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

impl Default for Pace {
    fn default() -> Self {
        Self { skip: 0, random: Random::new(1), is_slow: false, began: Nanos(0), calls: 0 }
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
        self.skip = if self.is_slow { 0 } else { SKIPPED / 2 + self.random.below(SKIPPED + 1) };
        (Some(time), self.calls >= CALLS_MAX || now.since(self.began) >= TURN)
    }

    /// Whether calls take so long that what they emit should not wait for the next one.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }
}

/// Calls that are not measured after one that is: so many on average, half to one and a half times as many.
const SKIPPED: u64 = 15;
/// Slower calls are measured each.
const SLOW: Duration = Duration::from_micros(10);
/// A turn ends after so long.
const TURN: Duration = Duration::from_millis(1);
/// A turn ends after so many calls.
const CALLS_MAX: u32 = 1_024;
