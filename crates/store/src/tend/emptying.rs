//! When pages are emptied (`vacate`), and who is told afterwards.

use std::sync::PoisonError;
use std::time::Duration;

use clock::Nanos;

use crate::Store;
use crate::allocator;
use crate::vacate::Vacating;
use crate::vacate::gate::Read;

impl Store {
    /// Goes on emptying pages while too much is resident; returns whether there is more to do.
    pub(crate) fn vacate_some(&self) -> bool {
        if !self.engine.has_addresses() {
            return false;
        }
        let now = self.options.clock.now();
        let mut vacating = self.tender.vacating.lock().unwrap_or_else(PoisonError::into_inner);
        if vacating.is_none() {
            *vacating = self.begin_to_vacate(now);
        }
        let Some(pass) = &mut *vacating else {
            // it may have closed behind the last pass, and nothing else opens it
            self.open_gate();
            return false;
        };
        if pass.step((&self.index, &*self.engine), self.memory.folding_bytes_max(true)) {
            if now.since(pass.begun_at) >= WAIT_MAX {
                // an even latency comes first: the pass goes on, and nobody waits for it any more
                self.memory.gate.set_most(0);
                self.open_gate();
            }
            return true;
        }
        let before_bytes = self.memory.gate.resident_bytes();
        allocator::give_back();
        let after_bytes = self.memory.gate.resident_bytes();
        let mut resident = self.tender.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = resident.bounds(now, self.memory.limit_bytes());
        let is_enough = bounds.is_none_or(|bounds| after_bytes <= bounds.begin_bytes);
        let is_much = before_bytes.saturating_sub(after_bytes) >= pass.wanted_bytes / HELP_SHARE;
        resident.on_vacated(now, is_enough || is_much);
        *vacating = None;
        self.open_gate();
        false
    }

    /// Lets those pass who wait.
    fn open_gate(&self) {
        let (was_closed, reads) = self.memory.gate.open();
        reads.into_iter().for_each(|Read { prepared, done }| self.engine.fetch(prepared, done));
        if was_closed {
            (self.options.hooks.on_credits)();
        }
    }

    /// A pass, if too much is resident.
    fn begin_to_vacate(&self, now: Nanos) -> Option<Vacating> {
        let gate = &self.memory.gate;
        let resident = self.tender.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = resident.bounds(now, self.memory.limit_bytes());
        gate.set_most(bounds.map_or(0, |bounds| bounds.most_bytes));
        let bounds = bounds?;
        let resident_bytes = gate.resident_bytes();
        if resident_bytes < bounds.begin_bytes && !gate.is_closed() {
            return None;
        }
        let awaited_bytes = gate.excess_bytes() + (bounds.most_bytes - bounds.goal_bytes);
        Some(Vacating::new(now, resident_bytes.saturating_sub(bounds.goal_bytes).max(awaited_bytes)))
    }
}

/// How long a pass has others wait. With a limit of 256 MiB it takes 40 to 100 ms, and with tens of GiB seconds.
const WAIT_MAX: Duration = Duration::from_millis(150);
/// A pass has helped if such a part of what was wanted went back.
const HELP_SHARE: u64 = 4;
