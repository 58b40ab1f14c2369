//! What branches of both databases have in common: who waits for a statement, which branches have ended, and questions about them.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::RandomState;
use txn::id::BranchId;

use crate::{Answered, Done, StatementError};

/// Who hears what a statement came to, in any case.
pub(crate) struct Told {
    done: Option<Done>,
    /// What is told if it is dropped.
    dropped: &'static str,
}

impl Told {
    /// `done` hears of it; if this is dropped, that the statement failed because of `dropped`.
    pub(crate) fn new(done: Done, dropped: &'static str) -> Self {
        Self { done: Some(done), dropped }
    }

    /// Tells it.
    pub(crate) fn tell(mut self, result: Result<Answered, StatementError>) {
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(StatementError::Failed(self.dropped.to_owned())));
        }
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

/// The branches that ended last: a statement that comes late begins none of them again.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    all: HashSet<BranchId, RandomState>,
    in_order: VecDeque<BranchId>,
}

impl Ended {
    /// Whether `branch` is known to have ended.
    pub(crate) fn has(&self, branch: BranchId) -> bool {
        self.all.contains(&branch)
    }

    /// Notes that `branch` has ended; the one that ended first may be forgotten for it.
    pub(crate) fn note(&mut self, branch: BranchId) {
        if self.all.insert(branch) {
            self.in_order.push_back(branch);
        }
        if self.in_order.len() > ENDED_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}

/// The questions about a branch of [`txn::resource::Resource`], each left to `self.ask`.
macro_rules! questions {
    () => {
        fn prepare(&self, branch: BranchId, reply: Reply) {
            self.ask(branch, Ask::Prepare, reply);
        }

        fn commit(&self, branch: BranchId, reply: Reply) {
            self.ask(branch, Ask::Commit, reply);
        }

        fn commit_one_phase(&self, branch: BranchId, reply: Reply) {
            self.ask(branch, Ask::CommitOnePhase, reply);
        }

        fn rollback(&self, branch: BranchId, reply: Reply) {
            self.ask(branch, Ask::Rollback, reply);
        }
    };
}
pub(crate) use questions;

/// So many that ended are remembered.
const ENDED_MAX: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;
    use txn::id::TxId;

    #[test]
    fn only_the_last_branches_are_remembered() {
        let branch = |number| BranchId { tx: TxId { epoch: 1, number }, branch: 0 };
        let mut ended = Ended::default();
        (0..=ENDED_MAX as u64).for_each(|number| ended.note(branch(number)));
        ended.note(branch(1));
        assert_eq!((ended.in_order.len(), ended.all.len()), (ENDED_MAX, ENDED_MAX));
        assert!(!ended.has(branch(0)) && ended.has(branch(1)));
    }
}
