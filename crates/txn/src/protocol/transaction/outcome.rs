//! The second phase: branches commit or roll back until each has said so; what they decided on their own is kept.

use std::time::Duration;

use super::branch::{Branch, BranchState};
use super::decide::what;
use super::{Doubt, Record, Step, Transaction};
use crate::decision_log::LogError;
use crate::protocol::planted::{Bug, planted};
use crate::protocol::{Outcome, State};
use crate::resource::Answer;

impl Transaction {
    /// The decision stands: all that are prepared commit.
    pub(super) fn commit_prepared(&mut self, step: &mut Step<'_>) {
        assert!(!self.has(BranchState::Preparing), "committed before all voted");
        self.state = State::Committing;
        self.begin_second_phase(step);
        let prepared = self.branches.iter_mut().filter(|branch| branch.state == BranchState::Prepared);
        for branch in prepared {
            branch.turn(BranchState::Committing, step.now, &self.timing, step.effects);
        }
        self.settle_all(step);
    }

    /// Nothing of it is to be: all rolls back that may have something to roll back. There is no record of that, silence says it.
    pub(super) fn abort(&mut self, step: &mut Step<'_>, reason: String) {
        let decided = self.branches.iter().any(|branch| branch.state == BranchState::Committing);
        assert!(!decided, "rolled back after the decision: {self:?}");
        self.state = State::RollingBack;
        self.reason = reason;
        self.begin_second_phase(step);
        self.remove(step);
        for branch in self.branches.iter_mut().filter(|branch| may_have_work(branch.state)) {
            if planted(Bug::SilentBranchNotRolledBack) && branch.state == BranchState::Preparing {
                branch.settle(BranchState::RolledBack);
            } else {
                branch.turn(BranchState::RollingBack, step.now, &self.timing, step.effects);
            }
        }
        self.settle_all(step);
    }

    fn begin_second_phase(&mut self, step: &Step<'_>) {
        if !self.is_finished {
            self.finish_due = Some(step.now + self.timing.finish_max);
        }
    }

    /// The answer to a commit.
    pub(super) fn on_committed(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        let branch = &mut self.branches[at];
        match answer {
            Answer::Done | Answer::Committed(_) => branch.settle(BranchState::Committed),
            Answer::RolledBack(_) if planted(Bug::HeuristicSwallowed) => {
                branch.settle(BranchState::Committed);
            }
            Answer::RolledBack(why) => return self.on_heuristic(step, at, BranchState::RolledBack, why),
            Answer::Mixed(why) => return self.on_heuristic(step, at, BranchState::Mixed, why),
            Answer::NoRoom(why) => return branch.wait(step.now, &self.timing, why),
            other => return branch.pause(step.now, &self.timing, what(other)),
        }
        self.settle_all(step);
    }

    /// The answer to a rollback.
    pub(super) fn on_rolled_back(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        let branch = &mut self.branches[at];
        match answer {
            Answer::Done | Answer::RolledBack(_) => branch.settle(BranchState::RolledBack),
            Answer::Committed(why) => return self.on_heuristic(step, at, BranchState::Committed, why),
            Answer::Mixed(why) => return self.on_heuristic(step, at, BranchState::Mixed, why),
            other => return branch.pause(step.now, &self.timing, what(other)),
        }
        self.settle_all(step);
    }

    /// The answer to a forget: all but a failure is fine.
    pub(super) fn on_forgotten(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        match answer {
            Answer::Failed(why) | Answer::NoRoom(why) | Answer::Lost(why) => {
                self.branches[at].pause(step.now, &self.timing, why);
            }
            _ => self.branches[at].settle(BranchState::Forgotten),
        }
        self.settle_all(step);
    }

    /// Branch `at` ended otherwise than it was told to.
    fn on_heuristic(&mut self, step: &mut Step<'_>, at: usize, state: BranchState, why: String) {
        let branch = &mut self.branches[at];
        branch.settle(state);
        branch.is_heuristic = true;
        branch.trouble = why;
        self.on_disagreement(step);
        self.settle_all(step);
    }

    /// What an operator must see is written at once, so that no crash forgets it; the other branches go on.
    pub(super) fn on_disagreement(&mut self, step: &mut Step<'_>) {
        assert!(self.branches.iter().any(|branch| branch.is_heuristic), "nobody disagrees");
        self.state = State::Heuristic;
        self.is_acknowledged = false; // an operator has not seen this one
        if self.log.writing.is_some() {
            self.log.is_stale = true;
        } else {
            self.write_heuristic(step);
        }
    }

    pub(super) fn write_heuristic(&mut self, step: &mut Step<'_>) {
        self.log.retry = None;
        self.log.is_stale = false;
        self.write(step, Record::Heuristic);
    }

    /// The heuristic record. One that was not written is tried again; after an unknown outcome the log takes no more.
    pub(super) fn on_heuristic_record(&mut self, step: &mut Step<'_>, result: &Result<(), LogError>) {
        match result {
            Ok(()) => self.log.holds = true,
            Err(LogError::Absent(_)) if self.is_acknowledged => {}
            Err(LogError::Absent(_)) => self.log.retry = Some(step.now + self.timing.retry_most),
            Err(LogError::Unknown(_)) => {
                self.log.holds = true;
                self.log.is_stale = false;
            }
        }
        if self.log.is_stale && !self.is_acknowledged {
            self.write_heuristic(step);
        }
        self.settle_all(step);
    }

    /// Looks whether all branches have answered, and what follows.
    pub(super) fn settle_all(&mut self, step: &mut Step<'_>) {
        let is_early = planted(Bug::ForgetsBeforeLastAnswer)
            && self.state == State::Committing
            && self.has(BranchState::Committed);
        if self.is_ended || !(is_early || self.branches.iter().all(Branch::is_settled)) {
            return;
        }
        if !self.is_finished || planted(Bug::FinishedAgain) {
            self.finish_decided(step);
        }
        let is_kept = !self.is_acknowledged && self.branches.iter().any(|branch| branch.is_heuristic);
        if is_kept || self.log.writing.is_some() {
            return;
        }
        let of_resources = self.branches.iter().map(|branch| branch.abilities.keep_decision_ms).max();
        let keep = Duration::from_millis(of_resources.unwrap_or(0)).max(self.timing.keep);
        let is_commit = self.state == State::Committing;
        self.state = State::Done;
        self.log.retry = None;
        if !keep.is_zero() && is_commit && self.log.holds {
            self.log.remove_due = Some(step.now + keep);
        } else {
            self.end(step);
        }
    }

    /// Says what was decided, as far as it is known by now.
    pub(super) fn finish_decided(&mut self, step: &mut Step<'_>) {
        assert_eq!(self.doubt, Doubt::None, "an outcome that nobody knows");
        let outcome = match self.state {
            State::Heuristic => Outcome::Heuristic(self.disagreement()),
            State::RollingBack => Outcome::Aborted(self.reason.clone()),
            _ => Outcome::Committed,
        };
        self.finish(step, outcome);
    }

    /// Who ended otherwise than told, in words.
    fn disagreement(&self) -> String {
        let told = |branch: &Branch| format!("{}: {} ({})", branch.name, branch.state.name(), branch.trouble);
        let heuristic = self.branches.iter().filter(|branch| branch.is_heuristic);
        heuristic.map(told).collect::<Vec<_>>().join("; ")
    }
}

/// Whether a branch in this state may hold work, so that it must hear of a rollback.
fn may_have_work(state: BranchState) -> bool {
    matches!(
        state,
        BranchState::Active | BranchState::Preparing | BranchState::Prepared | BranchState::OnePhase
    )
}
