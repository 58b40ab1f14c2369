//! What a task with exactly-once has beside others: its generation, what the coordinator was told, and where a spout goes on.

use std::collections::VecDeque;

use connection::Target;
use topology::anchor::Failure;
use topology::changes::Capture;
use topology::component::Fault;
use topology::epochs::EpochReport;
use topology::ids::TaskId;
use topology::past::Past;
use topology::spout::Emission;
use topology::tracker::{Original, Position};

use crate::epochs::inbox::ToCoordinator;

/// A task's part in epochs.
#[derive(Debug)]
pub(crate) struct Exact {
    pub(super) target: Target,
    coordinator: ToCoordinator,
    task: TaskId,
    generation: u32,
    /// The coordinator knows that something was done since the last barrier.
    has_told: bool,
    /// Of a spout: what it begins behind, and the last position that it has given.
    pub(super) past: Past,
    last: Option<Position>,
}

impl Exact {
    pub(crate) fn new(
        target: Target,
        coordinator: ToCoordinator,
        task: TaskId,
        generation: u32,
        past: Past,
    ) -> Self {
        let last = past.begin();
        Self { target, coordinator, task, generation, has_told: false, past, last }
    }

    /// A barrier has passed the task.
    pub(super) fn on_barrier(&mut self, capture: Capture) {
        self.has_told = false;
        self.coordinator.tell(EpochReport::Capture(capture));
    }

    /// Tells the coordinator once that there is something to make durable.
    pub(super) fn tell_work(&mut self, is_dirty: bool) {
        if is_dirty && !std::mem::replace(&mut self.has_told, true) {
            self.coordinator.tell(EpochReport::Work { generation: self.generation });
        }
    }

    pub(super) fn on_failed(&self, failed: (Original, Failure)) {
        self.coordinator.tell(EpochReport::Failed { generation: self.generation, task: self.task, failed });
    }

    /// Something that `from` has sent to this task did not come.
    pub(super) fn on_gap(&self, from: TaskId) {
        let error = format!("tuples from {from} to {} were lost on the way", self.task);
        self.coordinator.tell(EpochReport::Lost { generation: self.generation, error });
    }

    /// What a spout goes on behind: with what an earlier one of this generation has given, if it has been made anew.
    pub(super) fn past(&self) -> Past {
        Past { after: self.last.max(self.past.after), former: self.past.former.clone() }
    }

    /// Notes what a spout has given beyond the first `seen`. Tuples from one on whose position is not beyond the one before are dropped.
    ///
    /// # Errors
    /// There is such a tuple.
    pub(super) fn note(&mut self, emissions: &mut VecDeque<Emission>, seen: usize) -> Result<(), Fault> {
        for place in seen..emissions.len() {
            let position = emissions[place].position;
            if self.last.is_some_and(|last| position <= last) {
                emissions.truncate(place);
                let (position, last) = (position.0, self.last.map_or(0, |last| last.0));
                return Err(Fault::new(format!(
                    "the spout gave position {position} after {last}: with exactly-once positions grow"
                )));
            }
            self.last = Some(position);
        }
        Ok(())
    }
}
