//! Which part of a topology a worker runs, and what is told of tasks that move.

use std::fmt;
use std::sync::Arc;

use topology::Plan;
use topology::ids::{TaskId, WorkerId};

use crate::links::{Links, NoLinks};

/// Which part of a topology a worker runs.
#[derive(Clone)]
pub struct Part {
    /// Its number.
    pub worker: WorkerId,
    /// Where each task runs.
    pub places: Vec<WorkerId>,
    /// Which start of its tasks this is: higher than each one before, of any of them.
    pub start: u32,
    /// Tasks that are about to move: those who send to them hold, and those of them that are here already do nothing before
    /// [`crate::Running::resume`].
    pub held: Vec<TaskId>,
    /// The way to the other workers.
    pub links: Arc<dyn Links>,
    /// Who is told of moves.
    pub moves: Moves,
}

/// What becomes of a task that moves, as its thread tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// It has ended here, with nothing left: it may start elsewhere.
    Released(TaskId),
    /// It has started here, and waits until all workers know it.
    Adopted(TaskId),
    /// With exactly-once: all tasks work where they are to be since [`crate::Running::deal`].
    Dealt,
}

/// Who is told of moves.
pub type Moves = Arc<dyn Fn(Move) + Send + Sync>;

impl Part {
    /// All of a topology, in one worker.
    #[must_use]
    pub fn all(plan: &Plan) -> Self {
        Self {
            worker: WorkerId(0),
            places: vec![WorkerId(0); plan.tasks_count() as usize],
            start: 1,
            held: Vec::new(),
            links: Arc::new(NoLinks),
            moves: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, places, start, held, .. } = self;
        f.debug_struct("Part")
            .field("worker", worker)
            .field("places", places)
            .field("start", start)
            .field("held", held)
            .finish_non_exhaustive()
    }
}
