//! The first phase: votes, the last resource, and the record that decides.

use std::sync::Arc;

use super::branch::{Branch, BranchState};
use super::{Doubt, Record, Step, Transaction};
use crate::decision_log::LogError;
use crate::protocol::planted::{Bug, planted};
use crate::protocol::{Effect, Outcome, State};
use crate::record::{Decision, DecisionKind, Participant, ParticipantState};
use crate::resource::{Answer, Vote};

impl Transaction {
    /// Asks all branches at once to prepare; a lone one commits in one phase.
    pub(super) fn prepare(&mut self, step: &mut Step<'_>) {
        assert_eq!(self.state, State::Active);
        let is_one_phase = match self.branches.len() {
            0 => {
                self.finish(step, Outcome::Committed);
                return self.end(step);
            }
            1 => true,
            _ => planted(Bug::OnePhaseWithTwo),
        };
        self.state = if is_one_phase { State::Deciding } else { State::Preparing };
        let question = if is_one_phase { BranchState::OnePhase } else { BranchState::Preparing };
        for branch in self.branches.iter_mut().filter(|branch| branch.abilities.prepares || is_one_phase) {
            branch.turn(question, step.now, &self.timing, step.effects);
        }
    }

    /// The answer to a prepare.
    pub(super) fn on_vote(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        let branch = &mut self.branches[at];
        match answer {
            Answer::Voted(Vote::Yes) => branch.settle(BranchState::Prepared),
            Answer::Voted(Vote::ReadOnly) => branch.settle(BranchState::ReadOnly),
            Answer::Voted(Vote::No(why)) | Answer::RolledBack(why) => {
                branch.settle(BranchState::RolledBack);
                let reason = format!("{} voted no: {why}", branch.name);
                return self.abort(step, reason);
            }
            Answer::Failed(why) => return branch.pause(step.now, &self.timing, why),
            Answer::NoRoom(why) => return branch.wait(step.now, &self.timing, why),
            Answer::Lost(_) if planted(Bug::LostPrepareIsYes) => branch.settle(BranchState::Prepared),
            other => {
                let reason = format!("{} did not prepare: {}", branch.name, what(other));
                return self.abort(step, reason);
            }
        }
        self.on_voted(step);
    }

    /// A branch is prepared, or has dropped out: when all are, it is decided.
    pub(super) fn on_voted(&mut self, step: &mut Step<'_>) {
        if self.state != State::Preparing || self.has(BranchState::Preparing) {
            return;
        }
        let last = self.branches.iter().position(|branch| branch.state == BranchState::Active);
        self.state = State::Deciding;
        match (self.has(BranchState::Prepared), last) {
            (false, None) => {
                self.finish(step, Outcome::Committed);
                self.settle_all(step);
            }
            (false, Some(at)) => self.ask_last(step, at),
            (true, None) => {
                self.write(step, Record::Commit);
                if planted(Bug::CommitBeforeLog) {
                    self.commit_prepared(step);
                }
            }
            (true, Some(at)) if planted(Bug::LastResourceBeforeRecord) => self.ask_last(step, at),
            (true, Some(_)) => self.write(step, Record::Intent),
        }
    }

    /// The answer to a commit in one phase: of a lone branch, or of the last resource.
    pub(super) fn on_one_phase(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        let now = step.now;
        let branch = &mut self.branches[at];
        match answer {
            Answer::Done | Answer::Committed(_) => {
                branch.settle(BranchState::Committed);
                if self.has(BranchState::Prepared) {
                    self.write(step, Record::Commit);
                } else {
                    self.finish_undecided(step, Outcome::Committed);
                }
            }
            Answer::RolledBack(why) => {
                branch.settle(BranchState::RolledBack);
                let reason = format!("{} rolled back: {why}", branch.name);
                self.abort(step, reason);
            }
            Answer::Voted(Vote::No(why)) => {
                branch.settle(BranchState::RolledBack);
                let reason = format!("{} voted no: {why}", branch.name);
                self.abort(step, reason);
            }
            Answer::Failed(why) | Answer::NoRoom(why) if now >= self.deadline => {
                branch.pause(now, &self.timing, why);
                let reason = format!("{} did not commit in time: {}", branch.name, branch.trouble);
                self.abort(step, reason);
            }
            Answer::Failed(why) => branch.pause(now, &self.timing, why),
            Answer::NoRoom(why) => branch.wait(now, &self.timing, why),
            other => self.on_one_phase_unknown(step, at, other),
        }
    }

    /// Nobody knows whether branch `at`, which was not prepared, has committed, or only a part of it has.
    fn on_one_phase_unknown(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        let is_last = self.has(BranchState::Prepared);
        let branch = &mut self.branches[at];
        let is_mixed = matches!(answer, Answer::Mixed(_));
        branch.trouble = what(answer);
        let text = format!("{} was asked to commit: {}", branch.name, branch.trouble);
        if is_last {
            branch.settle(BranchState::Unknown);
            self.doubt = Doubt::LastResource;
            self.state = State::InDoubt;
            let text =
                format!("{text}; all others are prepared until an operator has looked there and resolves it");
            self.finish(step, Outcome::Unknown(text));
        } else if is_mixed {
            branch.settle(BranchState::Mixed);
            branch.is_heuristic = true;
            self.on_disagreement(step);
            self.settle_all(step);
        } else {
            branch.settle(BranchState::Unknown);
            let text =
                format!("{text}; it has committed or rolled back by itself, and nothing else belongs to it");
            self.finish_undecided(step, Outcome::Unknown(text));
        }
    }

    /// Tells an outcome that no record was needed for.
    fn finish_undecided(&mut self, step: &mut Step<'_>, outcome: Outcome) {
        self.finish(step, outcome);
        self.settle_all(step);
    }

    fn ask_last(&mut self, step: &mut Step<'_>, at: usize) {
        assert!(!self.branches[at].abilities.prepares, "one that prepares is never the last");
        self.branches[at].turn(BranchState::OnePhase, step.now, &self.timing, step.effects);
    }

    /// What became of a record.
    pub(super) fn on_record(&mut self, step: &mut Step<'_>, record: Record, result: Result<(), LogError>) {
        assert!(!self.is_ended, "a record of a transaction that has ended");
        match record {
            Record::Intent => self.on_intent(step, result),
            Record::Commit => self.on_decision(step, result),
            Record::Heuristic => self.on_heuristic_record(step, &result),
            Record::Resolution(commit) => self.on_resolution(step, commit, &result),
        }
    }

    /// The record that says "in doubt": the last resource is asked, unless it is too late or there is none. Whatever the log
    /// may hold, nobody was asked to commit.
    fn on_intent(&mut self, step: &mut Step<'_>, result: Result<(), LogError>) {
        let last = self.branches.iter().position(|branch| branch.state == BranchState::Active);
        self.log.holds = result.is_ok();
        match (result, last) {
            (Ok(()), Some(at)) if step.now < self.deadline => self.ask_last(step, at),
            (Ok(()), _) => self.abort(step, super::DEADLINE.to_owned()),
            (Err(error), _) => self.abort(step, error.to_string()),
        }
    }

    /// The decision. If a last resource has committed, that is decided, whatever became of the record.
    fn on_decision(&mut self, step: &mut Step<'_>, result: Result<(), LogError>) {
        let is_decided = self.has(BranchState::Committed);
        match result {
            Ok(()) => {
                self.log.holds = true;
                self.marks.decided = step.now;
                self.commit_prepared(step);
            }
            Err(_) if is_decided => self.commit_prepared(step),
            Err(error @ LogError::Absent(_)) => self.abort(step, error.to_string()),
            Err(LogError::Unknown(_)) if planted(Bug::UnknownIsAborted) => {
                self.state = State::InDoubt;
                self.finish(step, Outcome::Aborted(String::new()));
            }
            Err(LogError::Unknown(_)) if planted(Bug::UnknownRollsBack) => self.abort(step, String::new()),
            Err(error @ LogError::Unknown(_)) => {
                self.log.holds = true;
                self.doubt = Doubt::Log;
                self.state = State::InDoubt;
                self.finish(
                    step,
                    Outcome::Unknown(format!("{error}; the next start of the node tells, and ends it")),
                );
            }
        }
    }

    /// Begins to make durable what is known, for the purpose `record`.
    pub(super) fn write(&mut self, step: &mut Step<'_>, record: Record) {
        assert!(self.log.writing.is_none(), "two records of one transaction at once");
        self.log.writing = Some(record);
        self.marks.voted = step.now;
        self.decided = if self.decided.0 == 0 { step.wall } else { self.decided };
        step.effects.push(Effect::Write(self.decision(record)));
    }

    /// Tries again to write a record for which the log had no room: what it says is as of now.
    pub(super) fn write_again(&mut self, step: &mut Step<'_>) {
        let record = self.log.writing.expect("what waits for room is being written");
        self.log.again_at = None;
        if record == Record::Heuristic && self.is_acknowledged {
            // An operator has seen it meanwhile: there is nothing left to say.
            (self.log.writing, self.log.busy_until) = (None, None);
            return self.settle_all(step);
        }
        // It says what is known now.
        self.log.is_stale &= record != Record::Heuristic;
        step.effects.push(Effect::Write(self.decision(record)));
    }

    /// The record as of now.
    fn decision(&self, record: Record) -> Decision {
        let is_commit = matches!(record, Record::Commit | Record::Resolution(true));
        let kind = if is_commit { DecisionKind::Commit } else { DecisionKind::Heuristic };
        let dropped = usize::from(planted(Bug::DecisionLacksBranch) && self.branches.len() > 1);
        let branches = self.branches[..self.branches.len() - dropped].iter();
        let participants = branches.filter_map(|branch| {
            let state = participant_state(branch, record)?;
            Some(Participant { branch: branch.number, resource: Arc::clone(&branch.name), state })
        });
        let mut listed = Vec::with_capacity(self.branches.len());
        listed.extend(participants);
        assert!(!listed.is_empty() || dropped > 0, "a record about nobody");
        Decision { tx: self.id, kind, decided: self.decided, participants: listed }
    }

    pub(super) fn has(&self, state: BranchState) -> bool {
        self.branches.iter().any(|branch| branch.state == state)
    }
}

/// What `record` says of `branch`; `None`: nothing.
fn participant_state(branch: &Branch, record: Record) -> Option<ParticipantState> {
    match (branch.state, record) {
        (BranchState::Active, Record::Intent) => Some(ParticipantState::ToCommit),
        (BranchState::Prepared | BranchState::RollingBack, Record::Resolution(false)) => {
            Some(ParticipantState::ToRollBack)
        }
        (BranchState::Unknown, Record::Resolution(true)) => Some(ParticipantState::Committed),
        (BranchState::Prepared | BranchState::Committing, _) => Some(ParticipantState::ToCommit),
        (BranchState::RollingBack, _) => Some(ParticipantState::ToRollBack),
        (BranchState::Committed, _) => Some(ParticipantState::Committed),
        (BranchState::RolledBack, _) => Some(ParticipantState::RolledBack),
        (BranchState::Mixed, _) => Some(ParticipantState::Mixed),
        _ => None,
    }
}

/// An answer that settles nothing, in words.
pub(super) fn what(answer: Answer) -> String {
    match answer {
        Answer::Lost(why) | Answer::Failed(why) | Answer::NoRoom(why) => why,
        Answer::Mixed(why) => format!("a part was committed, a part rolled back: {why}"),
        Answer::Committed(why) => format!("it has committed: {why}"),
        Answer::RolledBack(why) => format!("it has rolled back: {why}"),
        Answer::Voted(_) | Answer::Done | Answer::Found(_) => {
            "an answer that does not fit the question".to_owned()
        }
    }
}
