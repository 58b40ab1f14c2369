//! When pages are emptied (`vacate`), and who is told afterwards.

use std::sync::PoisonError;
use std::time::Duration;

use clock::Nanos;

use crate::Store;
use crate::allocator;
use crate::vacate::gate::Read;
use crate::vacate::{Progress, Vacating};

impl Store {
    /// Goes on emptying pages while too much is resident; returns whether there is more to do.
    pub(crate) fn vacate_some(&self) -> bool {
        let now = self.options.clock.now();
        let mut vacating = self.tender.vacating.lock().unwrap_or_else(PoisonError::into_inner);
        if vacating.is_none() {
            *vacating = self.begin_to_vacate(now);
        }
        let Some(pass) = &mut *vacating else {
            // it may have closed behind the last pass, and nothing else opens it
            self.open_gate();
            // nothing else comes back for it: who stores more tells nobody in a pause
            let resident = self.tender.resident.lock().unwrap_or_else(PoisonError::into_inner);
            return resident.vacates_soon(now);
        };
        let progress = pass.step(&self.index);
        if progress != Progress::More {
            pass.end_round();
            allocator::give_back();
            let resident_bytes = self.memory.gate.resident_bytes();
            let is_enough = pass.resident_bytes.saturating_sub(resident_bytes) >= pass.wanted_bytes;
            if progress == Progress::Done || is_enough {
                self.end_pass(now, pass, resident_bytes);
                *vacating = None;
                self.open_gate();
                // whether more is to go is known at the next look, which also tells the gate what may be resident
                return true;
            }
        }
        if now.since(pass.begun_at) >= WAIT_MAX {
            // an even latency comes first: the pass goes on, and nobody waits for it any more
            self.memory.gate.set_most(0);
            self.open_gate();
        }
        true
    }

    /// Takes note of what came of `pass`, after which `resident_bytes` are. Where moving is not enough, values leave memory, those first that were read least lately.
    fn end_pass(&self, now: Nanos, pass: &Vacating, resident_bytes: u64) {
        let gone_bytes = pass.resident_bytes.saturating_sub(resident_bytes);
        let excess_bytes = self.memory.gate.excess_bytes();
        let mut resident = self.tender.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lacked_bytes = pass.wanted_bytes.saturating_sub(gone_bytes);
        if lacked_bytes > 0 {
            // all that could move has moved
            resident.learn_own(resident_bytes, self.memory().counted_bytes());
        }
        let is_vain = excess_bytes > 0 && resident.was_vacated_to(now, resident_bytes);
        if is_vain {
            // who waited came again and lacked as much: what went were its own buffers
            lacked_bytes = lacked_bytes.max(excess_bytes);
        }
        let mut has_helped = !is_vain && lacked_bytes <= pass.wanted_bytes - pass.wanted_bytes / HELP_SHARE;
        if lacked_bytes > 0 && self.can_shed() {
            has_helped |= self.memory.shed(self.accounts(), lacked_bytes);
        }
        resident.on_vacated(now, resident_bytes, has_helped);
    }

    /// Whether values may leave memory for what is resident and not counted.
    fn can_shed(&self) -> bool {
        self.engine.has_addresses()
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
        let wanted_bytes = resident_bytes.saturating_sub(bounds.goal_bytes).max(awaited_bytes);
        Some(Vacating::new(now, resident_bytes, wanted_bytes, self.memory.limit_bytes(), !self.can_shed()))
    }
}

/// How long a pass has others wait. With a limit of 256 MiB it takes 40 to 100 ms, and with tens of GiB seconds.
const WAIT_MAX: Duration = Duration::from_millis(150);
/// A pass has helped if such a part of what was wanted went back.
const HELP_SHARE: u64 = 4;
