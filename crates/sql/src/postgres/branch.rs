//! What is to be done for each branch, one thing after another.
//!
//! ```text
//!  run    -> statements --.
//!  ask    -> the newest --'-> a task of the branch takes them in order, and ends when there are none
//!
//!  Away -first statement-> Open -prepare-> yes: Away, and over: what is prepared needs no session
//!                           |  '-no answer-> Unsure: its process may still prepare it
//!                           '-a statement failed-> Failed
//! ```
//!
//! Invariants
//!   1. One task works for a branch. It has the branch's session; who asks leaves a note, and has it stopped for a rollback.
//!   2. Statements that came before a question are run before it is answered, except that a rollback waits for none.
//!   3. Each branch that voted yes is asked how it ends, so that those that are noted are not more than there are under way.
//!   4. A branch that is over is forgotten, but the last ones are remembered: a statement that comes too late begins nothing.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use super::pool::Lease;
use super::session::Backend;
use crate::Statement;
use crate::branches::{Ended, Told};
use crate::error::AdoptError;
use txn::id::BranchId;
use txn::resource::{Ask, Reply, Unready};

/// All branches that something is known of.
#[derive(Debug, Default)]
pub(super) struct Branches {
    cells: HashMap<BranchId, Cell>,
    /// Those that voted yes here, and were not asked how they end: they are prepared.
    prepared: HashSet<BranchId>,
    over: Ended,
    pub(super) is_closed: bool,
}

/// A branch.
#[derive(Debug)]
struct Cell {
    statements: VecDeque<(Statement, Told)>,
    question: Option<(Ask, Reply)>,
    /// Where it stands, while no task works for it.
    work: Work,
    is_driven: bool,
    /// It was asked how it ends: no more statements.
    is_ending: bool,
    is_adopted: bool,
    /// True: whatever is under way is to stop.
    stop: Arc<watch::Sender<bool>>,
}

/// Where the work of a branch stands.
#[derive(Debug, Default)]
pub(super) enum Work {
    /// In no session of ours: it has not begun, is prepared, or is over.
    #[default]
    Away,
    /// In a transaction of this session.
    Open(Box<Open>),
    /// It was rolled back, because.
    Failed(String),
    /// This process was told to prepare it, and nobody heard what came of it.
    Unsure(Backend),
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) lease: Lease,
    /// All its statements were of those that may only read.
    pub(super) reads: bool,
}

/// What a task does next.
#[derive(Debug)]
pub(super) enum Job {
    Run(Statement, Told),
    Answer(Ask, Reply),
}

impl Branches {
    /// Leaves a statement for a branch; true: a task is to be started for it.
    ///
    /// # Errors
    /// Why it is not run, and who is to hear that.
    pub(super) fn push(
        &mut self,
        branch: BranchId,
        statement: Statement,
        told: Told,
    ) -> Result<bool, (Told, String)> {
        let has_cell = self.cells.contains_key(&branch);
        if self.is_closed {
            return Err((told, "the database was closed".to_owned()));
        } else if self.over.has(branch) {
            return Err((told, ENDS.to_owned()));
        } else if !has_cell && self.cells.len() >= BRANCHES_MAX {
            return Err((told, format!("{BRANCHES_MAX} branches are under way here, the most that may")));
        }
        let cell = self.cells.entry(branch).or_default();
        if cell.is_ending {
            return Err((told, ENDS.to_owned()));
        } else if cell.is_adopted {
            return Err((told, "the application works in it with a session of its own".to_owned()));
        } else if cell.statements.len() >= STATEMENTS_MAX {
            return Err((told, format!("{STATEMENTS_MAX} statements wait in it, the most that may")));
        }
        cell.statements.push_back((statement, told));
        Ok(!std::mem::replace(&mut cell.is_driven, true))
    }

    /// Leaves a question about a branch; true: a task is to be started for it. What comes back is to be dropped outside of the
    /// lock: an earlier question that nobody waits for any more, and statements that are not run.
    pub(super) fn ask(
        &mut self,
        branch: BranchId,
        ask: Ask,
        reply: Reply,
    ) -> (bool, Vec<Told>, Option<Reply>) {
        if self.is_closed {
            return (false, Vec::new(), Some(reply));
        }
        let cell = self.cells.entry(branch).or_default();
        cell.is_ending = true;
        let mut dropped = Vec::new();
        if ask == Ask::Rollback {
            cell.stop.send_replace(true);
            dropped.extend(cell.statements.drain(..).map(|(_, told)| told));
        }
        let before = cell.question.replace((ask, reply)).map(|(_, reply)| reply);
        (!std::mem::replace(&mut cell.is_driven, true), dropped, before)
    }

    /// Notes that the application works in a branch itself.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(super) fn adopt(&mut self, branch: BranchId) -> Result<(), AdoptError> {
        if self.over.has(branch) {
            return Err(AdoptError::Taken(ENDS));
        }
        if !self.cells.contains_key(&branch) && self.cells.len() >= BRANCHES_MAX {
            let why = format!("{BRANCHES_MAX} branches are under way here, the most that may");
            return Err(Unready::Retry(why).into());
        }
        let cell = self.cells.entry(branch).or_default();
        if cell.is_driven || !matches!(cell.work, Work::Away) {
            return Err(AdoptError::Taken(
                "statements were run in it here: the two would be different transactions",
            ));
        }
        cell.is_adopted = true;
        Ok(())
    }

    /// What a task of `branch` begins with.
    pub(super) fn begin(&mut self, branch: BranchId) -> (Work, Arc<watch::Sender<bool>>) {
        let cell = self.cells.get_mut(&branch).expect("a task was started for it");
        (std::mem::take(&mut cell.work), Arc::clone(&cell.stop))
    }

    /// What a task of `branch` does next; `None`: it ends. `ends`: the branch is over.
    pub(super) fn next(&mut self, branch: BranchId, work: &mut Work, ends: bool) -> Option<Job> {
        let cell = self.cells.get_mut(&branch).expect("a task works for it");
        assert!(cell.is_driven, "two tasks of one branch");
        if let Some((statement, told)) = cell.statements.pop_front() {
            return Some(Job::Run(statement, told));
        }
        if let Some((ask, reply)) = cell.question.take() {
            return Some(Job::Answer(ask, reply));
        }
        if ends || (matches!(work, Work::Away) && !cell.is_adopted) {
            self.cells.remove(&branch);
            if ends {
                self.over.note(branch);
            }
        } else {
            cell.work = std::mem::take(work);
            cell.is_driven = false;
        }
        None
    }

    /// All that is left when everything ends; to be dropped outside of the lock.
    pub(super) fn close(&mut self) -> Vec<impl Sized + use<>> {
        self.is_closed = true;
        for cell in self.cells.values() {
            cell.stop.send_replace(true);
        }
        let take = |cell: &mut Cell| {
            let work = std::mem::take(&mut cell.work);
            (std::mem::take(&mut cell.statements), cell.question.take(), work)
        };
        let left = self.cells.values_mut().map(take).collect();
        self.cells.retain(|_, cell| cell.is_driven);
        left
    }

    /// A branch has voted yes.
    pub(super) fn note_prepared(&mut self, branch: BranchId) {
        self.prepared.insert(branch);
    }

    /// Whether a branch voted yes, and was not asked before how it ends.
    pub(super) fn take_prepared(&mut self, branch: BranchId) -> bool {
        self.prepared.remove(&branch)
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            statements: VecDeque::new(),
            question: None,
            work: Work::Away,
            is_driven: false,
            is_ending: false,
            is_adopted: false,
            stop: Arc::new(watch::Sender::new(false)),
        }
    }
}

pub(super) const ENDS: &str = "its branch ends, or has ended";
/// Most statements of a branch that wait.
const STATEMENTS_MAX: usize = 64;
/// Most branches that are under way.
const BRANCHES_MAX: usize = 65_536;
#[cfg(test)]
mod tests {
    use super::*;
    use txn::id::TxId;

    fn branch(number: u64) -> BranchId {
        BranchId { tx: TxId { epoch: 1, number }, branch: 0 }
    }

    fn told() -> Told {
        Told::new(Box::new(|_| {}), ENDS)
    }

    #[test]
    fn statements_of_a_branch_wait_in_order_for_its_one_task() {
        let mut branches = Branches::default();
        let statement = |text: &str| Statement { text: text.to_owned(), ..Statement::default() };
        assert!(branches.push(branch(1), statement("one"), told()).expect("taken"));
        assert!(!branches.push(branch(1), statement("two"), told()).expect("taken"), "one task is enough");
        assert!(branches.adopt(branch(1)).is_err());
        let mut work = branches.begin(branch(1)).0;
        for expected in ["one", "two"] {
            let job = branches.next(branch(1), &mut work, false);
            assert!(matches!(job, Some(Job::Run(it, _)) if it.text == expected));
        }
        assert!(branches.next(branch(1), &mut work, true).is_none());
        let (_, why) = branches.push(branch(1), statement("late"), told()).expect_err("it is over");
        assert!(why.contains("ended"), "{why}");
        assert!(branches.adopt(branch(2)).is_ok());
        assert!(branches.push(branch(2), statement("ours"), told()).is_err(), "the application works in it");
    }

    #[test]
    fn one_statement_too_many_is_refused() {
        let mut branches = Branches::default();
        for _ in 0..STATEMENTS_MAX {
            branches.push(branch(1), Statement::default(), told()).expect("there is room");
        }
        let (_, why) = branches.push(branch(1), Statement::default(), told()).expect_err("no room");
        assert!(why.contains("64"), "{why}");
    }
}
