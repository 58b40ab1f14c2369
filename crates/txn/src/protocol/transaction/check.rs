//! What holds of a transaction between any two calls, whatever its resources and the log say.

use super::branch::{Branch, BranchState};
use super::{Doubt, Transaction};
use crate::protocol::{BRANCHES_MAX, State};

impl Transaction {
    /// Looks whether it is in a state that the protocol has. Cheap: for simulations, after each step, and for builds with debug assertions.
    ///
    /// # Panics
    /// If it is in another: a bug.
    pub fn check(&self) {
        self.branches.iter().for_each(Branch::check);
        assert!(self.branches.len() <= BRANCHES_MAX || self.is_orphan, "too many branches: {self:?}");
        let mut branches = self.branches.iter().enumerate();
        let is_distinct = branches.all(|(at, branch)| self.position(branch.number) == Some(at));
        assert!(is_distinct, "two branches of one number: {self:?}");
        let last = self.branches.iter().filter(|branch| !branch.abilities.prepares).count();
        assert!(last <= 1 || self.is_orphan, "two last resources: {self:?}");
        self.check_state();
        self.check_log();
        self.check_end();
    }

    /// Branches are where the state has them.
    fn check_state(&self) {
        let has = |state| self.has(state);
        let is_fine = match self.state {
            State::Active => self.branches.iter().all(|branch| branch.state == BranchState::Active),
            State::Preparing => !has(BranchState::Committing) && !has(BranchState::RollingBack),
            State::Deciding => !has(BranchState::Preparing) && !has(BranchState::Committing),
            State::Committing => !has(BranchState::Preparing) && !has(BranchState::RollingBack),
            State::RollingBack => !has(BranchState::Preparing) && !has(BranchState::Committing),
            State::InDoubt => self.doubt != Doubt::None && !has(BranchState::Committing),
            State::Heuristic => self.branches.iter().any(|branch| branch.is_heuristic),
            State::Done => self.branches.iter().all(Branch::is_settled),
        };
        assert!(is_fine, "branches do not fit the state: {self:?}");
        assert!(
            self.state != State::Active || !self.is_finished,
            "finished before its end was chosen: {self:?}"
        );
    }

    /// What is known of the record fits together.
    fn check_log(&self) {
        let log = &self.log;
        assert!(log.busy_until.is_some() || log.again_at.is_none(), "nothing waits for room: {self:?}");
        assert!(log.writing.is_some() || log.busy_until.is_none(), "no record waits: {self:?}");
        let is_kept = self.state == State::Done && log.holds;
        assert!(log.remove_due.is_none() || is_kept, "no record is kept: {self:?}");
        let may_write = !matches!(self.state, State::Active | State::Preparing | State::Done);
        assert!(log.writing.is_none() || may_write, "a record in this state: {self:?}");
    }

    /// Nothing follows its end, and its outcome is told once.
    fn check_end(&self) {
        assert!(self.finish_due.is_none() || !self.is_finished, "to be finished again: {self:?}");
        if self.is_ended {
            assert!(self.state == State::Done && self.is_finished, "ended before its outcome: {self:?}");
            assert!(self.next_time().is_none() && !self.log.holds, "ended, and waits: {self:?}");
        }
    }
}

impl Branch {
    /// A question is open, or a time is waited for, only in a state that asks something.
    fn check(&self) {
        let asks = self.state.question().is_some();
        assert!(asks || !self.is_asked(), "asked in a state that asks nothing: {self:?}");
        assert!(asks || self.due().is_none(), "waits for a time in a state that asks nothing: {self:?}");
        assert!(
            !self.is_asked() || self.due().is_some(),
            "an answer is waited for without a bound: {self:?}"
        );
        assert!(!self.is_asked() || self.resource.is_some(), "nobody was asked: {self:?}");
    }
}
