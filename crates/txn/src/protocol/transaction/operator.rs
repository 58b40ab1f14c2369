//! A new start, and an operator: transactions that go on from their record.
//!
//! | record | how it goes on |
//! |---|---|
//! | commit | what is to be committed is asked to commit, for ever |
//! | heuristic, every branch to be committed | a last resource was asked, its answer is not known: in doubt until an operator resolves |
//! | heuristic, a branch ended in it | the others go on; kept until an operator has seen it |
//! | heuristic, none ended, some to be rolled back | an operator said so: they roll back |

use std::sync::Arc;

use clock::{Nanos, UnixMs};

use super::branch::{Branch, BranchState};
use super::{Doubt, Record, Step, Transaction};
use crate::decision_log::LogError;
use crate::id::TxId;
use crate::protocol::planted::{Bug, planted};
use crate::protocol::{Effect, Misuse, State, Timing};
use crate::record::{Decision, DecisionKind, Participant, ParticipantState};
use crate::resource::{Abilities, Answer};

impl Transaction {
    /// Goes on with what the log held at a start. `find` tells place and abilities of a resource by its name; if it is not
    /// configured any more, the transaction waits, and [`Transaction::branches`] says for whom. Nobody is told an outcome.
    #[must_use]
    pub fn resume(
        decision: &Decision,
        mut find: impl FnMut(&str) -> Option<(u16, Abilities)>,
        timing: Timing,
        now: Nanos,
        effects: &mut Vec<Effect>,
    ) -> Self {
        let mut transaction = Self::begin(decision.tx, now, timing);
        transaction.is_finished = true;
        transaction.decided = decision.decided;
        transaction.log.holds = true;
        let dropped = usize::from(planted(Bug::ResumeDropsBranch) && decision.participants.len() > 1);
        let participants = &decision.participants[..decision.participants.len() - dropped];
        transaction.branches =
            participants.iter().map(|one| branch_of(one, decision.kind, &mut find)).collect();
        transaction.resume_branches(&mut Step { now, wall: decision.decided, effects }, is_intent(decision));
        transaction
    }

    /// A transaction that nobody knows, found by [`super::super::Recovery`]: each of its branches that is found is given to
    /// [`Transaction::adopt`]. Nobody is told an outcome.
    #[must_use]
    pub fn orphan(id: TxId, timing: Timing) -> Self {
        let mut transaction = Self::begin(id, Nanos::default(), timing);
        transaction.state = State::RollingBack;
        transaction.is_finished = true;
        transaction.is_orphan = true;
        "nobody knew it: presumed abort".clone_into(&mut transaction.reason);
        transaction
    }

    /// Rolls back an orphan, until its resource answers; what that decided on its own is kept for an operator.
    ///
    /// # Errors
    /// [`Misuse::NotActive`]: this is no [`Transaction::orphan`], it has ended, or has `branch` already.
    pub fn adopt(
        &mut self,
        now: Nanos,
        branch: u16,
        resource: u16,
        abilities: Abilities,
        name: impl Into<Arc<str>>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Misuse> {
        if !self.is_orphan || self.is_ended || self.position(branch).is_some() {
            return Err(Misuse::NotActive(self.state));
        }
        let mut branch = Branch::new(branch, Some(resource), name.into(), abilities);
        branch.turn(BranchState::RollingBack, now, &self.timing, effects);
        self.branches.push(branch);
        Ok(())
    }

    /// An operator's word. In doubt because of a last resource: whether that committed, which the others follow. Heuristic: it was
    /// seen, and may be forgotten; `commit` says nothing then.
    ///
    /// Before looking into a last resource, its session must have ended: a commit that is still under way would come after the look.
    ///
    /// # Errors
    /// [`Misuse::NotResolvable`]: there is nothing to say, or it was said before.
    pub fn resolve(
        &mut self,
        now: Nanos,
        wall: UnixMs,
        commit: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Misuse> {
        self.check_resolvable()?;
        let step = &mut Step { now, wall, effects };
        if self.state == State::Heuristic {
            self.acknowledge(step);
        } else {
            self.write(step, Record::Resolution(commit));
        }
        Ok(())
    }

    /// Whether [`Transaction::resolve`] would do something.
    ///
    /// # Errors
    /// [`Misuse::NotResolvable`].
    pub fn check_resolvable(&self) -> Result<(), Misuse> {
        match (self.state, self.doubt) {
            (State::Heuristic, _) if !self.is_acknowledged => Ok(()),
            (State::InDoubt, Doubt::LastResource) if self.log.writing.is_none() => Ok(()),
            (state, _) => Err(Misuse::NotResolvable(state)),
        }
    }

    /// Branch `at`, given up for unknown, says after all whether it committed: what an operator would have had to find out.
    pub(super) fn on_late_answer(&mut self, step: &mut Step<'_>, at: usize, answer: &Answer) {
        assert_eq!(self.branches[at].state, BranchState::Unknown);
        let commit = match answer {
            Answer::Done => true,
            Answer::RolledBack(_) => false,
            _ => return,
        };
        if self.doubt == Doubt::LastResource && self.log.writing.is_none() {
            self.write(step, Record::Resolution(commit));
        }
    }

    fn resume_branches(&mut self, step: &mut Step<'_>, is_intent: bool) {
        let is_heuristic = self.branches.iter().any(|branch| branch.is_heuristic);
        let rolls_back = self.has(BranchState::RollingBack);
        self.state = match (is_intent, is_heuristic, rolls_back) {
            (true, ..) => State::InDoubt,
            (_, true, _) => State::Heuristic,
            (_, _, true) => State::RollingBack,
            _ => State::Committing,
        };
        for branch in &mut self.branches {
            if is_intent {
                let is_last = !branch.abilities.prepares;
                branch.settle(if is_last { BranchState::Unknown } else { BranchState::Prepared });
                self.doubt = Doubt::LastResource;
            } else if branch.state.question().is_some() {
                branch.turn(branch.state, step.now, &self.timing, step.effects);
            }
        }
        if !is_intent {
            self.settle_all(step);
        }
    }

    /// An operator has seen that branches disagree: resources forget it, then the record goes.
    fn acknowledge(&mut self, step: &mut Step<'_>) {
        assert_eq!(self.state, State::Heuristic);
        self.is_acknowledged = true;
        self.log.retry = None;
        let is_new = |branch: &&mut Branch| branch.is_heuristic && branch.state != BranchState::Forgotten;
        for branch in self.branches.iter_mut().filter(is_new) {
            branch.turn(BranchState::Forgetting, step.now, &self.timing, step.effects);
        }
        self.settle_all(step);
    }

    /// The record of an operator's word. If it was not written, nothing was said.
    pub(super) fn on_resolution(&mut self, step: &mut Step<'_>, commit: bool, result: &Result<(), LogError>) {
        assert_eq!(self.doubt, Doubt::LastResource);
        match result {
            Err(LogError::Absent(_)) => return,
            Err(LogError::Unknown(_)) => {
                self.doubt = Doubt::Log;
                return;
            }
            Ok(()) => self.doubt = Doubt::None,
        }
        self.log.holds = true;
        let told = if commit { BranchState::Committed } else { BranchState::RolledBack };
        for branch in self.branches.iter_mut().filter(|branch| branch.state == BranchState::Unknown) {
            branch.settle(told);
        }
        if commit {
            self.commit_prepared(step);
        } else {
            self.roll_back_prepared(step);
        }
    }

    /// As an operator said. The record stays until all have, so that no crash brings the doubt back.
    fn roll_back_prepared(&mut self, step: &mut Step<'_>) {
        self.state = State::RollingBack;
        "an operator resolved it so".clone_into(&mut self.reason);
        for branch in self.branches.iter_mut().filter(|branch| branch.state == BranchState::Prepared) {
            branch.turn(BranchState::RollingBack, step.now, &self.timing, step.effects);
        }
        self.settle_all(step);
    }
}

/// Whether this is the record that is written before a last resource is asked: in every other one that is heuristic a branch has ended,
/// or is to roll back.
fn is_intent(decision: &Decision) -> bool {
    let is_open = |one: &Participant| one.state == ParticipantState::ToCommit;
    decision.kind == DecisionKind::Heuristic && decision.participants.iter().all(is_open)
}

fn branch_of(
    one: &Participant,
    kind: DecisionKind,
    find: &mut impl FnMut(&str) -> Option<(u16, Abilities)>,
) -> Branch {
    let (resource, abilities) = match find(&one.resource) {
        Some((resource, abilities)) => (Some(resource), abilities),
        None => (None, Abilities::default()),
    };
    let mut branch = Branch::new(one.branch, resource, Arc::from(&*one.resource), abilities);
    if resource.is_none() {
        branch.trouble = format!("resource {} is not configured any more", one.resource);
    }
    branch.state = match one.state {
        ParticipantState::ToCommit => BranchState::Committing,
        ParticipantState::Committed => BranchState::Committed,
        ParticipantState::RolledBack => BranchState::RolledBack,
        ParticipantState::Mixed => BranchState::Mixed,
        ParticipantState::ToRollBack => BranchState::RollingBack,
    };
    let is_as_told = match kind {
        DecisionKind::Commit => branch.state == BranchState::Committed,
        DecisionKind::Heuristic => false,
    };
    branch.is_heuristic = branch.state.question().is_none() && !is_as_told;
    branch
}
