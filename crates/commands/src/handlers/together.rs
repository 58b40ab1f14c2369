//! Elements and keys that a command names: all that are cold are missed together. A command that stopped at each would be executed again for each.

use store::Stop;

use crate::call::Failure;

/// Lookups of which some may be cold.
#[derive(Debug, Default)]
pub(super) struct Together {
    cold: usize,
    /// What was in memory.
    found: usize,
}

impl Together {
    /// What was found. `None`: it is cold, and the command goes on with the others, until [`Together::end`].
    ///
    /// # Errors
    /// Any other [`Stop`], and [`Stop::Cold`] once so many are cold that they are read first: as many as were found, so that each attempt gets
    /// twice as far as the one before.
    pub(super) fn of<T, E: MayBeCold>(&mut self, found: Result<T, E>) -> Result<Option<T>, E> {
        match found {
            Err(stop) if stop.is_cold() && self.cold < COLD_MIN.max(self.found) => {
                self.cold += 1;
                Ok(None)
            }
            found => {
                self.found += 1;
                found.map(Some)
            }
        }
    }

    /// # Errors
    /// [`Stop::Cold`] if anything was cold: what the command has made of the others is not to happen.
    pub(super) fn end(self) -> Result<(), Stop> {
        if self.cold > 0 { Err(Stop::Cold) } else { Ok(()) }
    }
}

/// Why something was not found.
pub(super) trait MayBeCold {
    fn is_cold(&self) -> bool;
}

impl MayBeCold for Stop {
    fn is_cold(&self) -> bool {
        matches!(self, Stop::Cold)
    }
}

impl MayBeCold for Failure {
    fn is_cold(&self) -> bool {
        matches!(self, Failure::Stop(Stop::Cold))
    }
}

/// What is looked for at the first attempt: more would be memory for what the command may not come to.
const COLD_MIN: usize = 1_024;
