//! How long a run may take, and why it is over before its end.

use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};

use super::cache::Running;

/// How long a run may take.
#[derive(Clone, Debug)]
pub struct Pace {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// When it is over.
    pub until: Nanos,
    /// How often it is looked at, at most; bounds a run where the clock stands still.
    pub looks_max: u32,
    /// Where it is told to stop.
    pub running: Option<Arc<Running>>,
}

impl Pace {
    /// As [`Pace`] of a run, for the code of a library: what it takes to compile it does not count ([`LOAD_TIME_MAX`]).
    pub fn of_library(clock: Arc<dyn Clock>, running: Option<Arc<Running>>) -> Self {
        let looks_max = if running.is_some() { u32::MAX } else { LOAD_LOOKS_MAX };
        Self { until: clock.now() + LOAD_TIME_MAX, clock, looks_max, running }
    }

    /// Why the run is over by now, if it is.
    pub fn over(&self) -> Option<Over> {
        if self.running.as_ref().is_some_and(|running| running.is_killed()) {
            return Some(Over::Killed);
        }
        (self.clock.now() >= self.until).then_some(Over::Time)
    }
}

/// Why a run is over that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The host said so.
    Host,
    /// It took longer than its pace allows.
    Time,
    /// SCRIPT KILL or FUNCTION KILL.
    Killed,
}

/// The code of a library runs for so long at most when it is loaded.
pub const LOAD_TIME_MAX: Duration = Duration::from_millis(20);
/// The same where the clock stands still.
const LOAD_LOOKS_MAX: u32 = 40_000;
