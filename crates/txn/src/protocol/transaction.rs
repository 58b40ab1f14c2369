//! One transaction from begin to forget: two-phase commit, presumed abort, one durable decision.
//!
//! ```text
//!                                .- one branch: commit in one phase, no record -.
//!  Active -commit-> Preparing -> Deciding -durable-> Committing -all answered-> Done -kept long enough-> End
//!     |                |            |  '-- perhaps ---> InDoubt     | disagree
//!     |   a no, silence, deadline   | not written                   v
//!     '-rollback-> RollingBack <----'------------------------> Heuristic -resolve-> Done
//! ```
//!
//! Invariants
//!   1. A prepared branch is asked to commit only when the decision is durable. A branch that was not prepared is asked to commit if it
//!      is the only one that may have written, or the last resource, of which the log has a record by then.
//!   2. `Finish` comes once; `Aborted` only when no branch was, or will be, told to commit.
//!   3. A branch that was asked anything and did not vote no, or read-only, hears how it ends, however often that must be said.
//!   4. `End` comes once, when all branches have answered and the log holds no record that is still needed; nothing follows it.
//!   5. At most one record is on its way to the log.
//!
//! **When the outcome is told.** The decision is the point of commit, but whoever hears `Committed` looks for its rows, and whoever hears
//! `Aborted` tries again and meets the locks of the first attempt. So `Finish` waits for all branches, at most
//! [`Timing::finish_max`]; then the rest goes on behind it. It also gives resources time to tell that they decided on their own.
//!
//! **The last resource** cannot prepare, so its commit is the decision, and nobody can make that and a record one. When all others have
//! voted yes, a record is made durable that says "in doubt" (heuristic, every branch to be committed). Only then it is asked:
//!
//! | it says | what happens | a crash before its answer was written leaves |
//! |---|---|---|
//! | done | the record becomes a commit; then the others commit | in doubt, an operator looks into that resource and resolves |
//! | rolled back | the record is removed, the others roll back | the same |
//! | nothing, or that it does not know | `Unknown`, in doubt: its late answer resolves it, or the same operator | the same |
//!
//! So the window is that between its commit and the second record, one sync long; what remains of it is told, never presumed. If
//! that record fails, the others commit all the same: what the log holds says "in doubt" at worst.
//!
//! Performs no I/O; time is an argument. An answer is what a peer sends: nothing is asserted of it.
//! Out of scope: who drives it (`lane`), orphans (`recovery`), bytes of records (`record`).
//! Source: Gray 1978; Mohan, Lindsay 1983; docs/adr/0008-transactions.md.

mod branch;
mod check;
mod decide;
mod operator;
mod outcome;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use branch::Branch;
pub use branch::BranchState;
use clock::{Nanos, UnixMs};

use super::planted::{Bug, planted};
use super::{BRANCHES_MAX, Effect, Misuse, Outcome, Standing, State, Timing};
use crate::decision_log::{LogError, Refused};
use crate::id::{BranchId, TxId};
use crate::phases::Marks;
use crate::resource::{Abilities, Answer, Ask};

/// One transaction.
#[derive(Debug)]
pub struct Transaction {
    id: TxId,
    timing: Timing,
    state: State,
    branches: Vec<Branch>,
    /// Until when it must be prepared, whoever is at fault.
    deadline: Nanos,
    /// When the outcome is told at the latest; `None` before a decision and after `Finish`.
    finish_due: Option<Nanos>,
    is_finished: bool,
    /// When it was decided.
    decided: UnixMs,
    /// Why it was rolled back.
    reason: String,
    doubt: Doubt,
    is_acknowledged: bool,
    /// Its branches were found; there may be more.
    is_orphan: bool,
    is_ended: bool,
    log: LogSide,
    marks: Marks,
}

/// A branch as operators see it.
#[derive(Clone, Copy, Debug)]
pub struct BranchView<'a> {
    /// Its number.
    pub branch: u16,
    /// Name of its resource.
    pub resource: &'a str,
    /// False: its resource is not configured any more, and the transaction waits until it is.
    pub is_configured: bool,
    /// Where it stands.
    pub state: BranchState,
    /// How many questions it was asked.
    pub attempts: u32,
    /// What went wrong last; empty if nothing did.
    pub trouble: &'a str,
}

impl Transaction {
    /// A transaction without branches. At `deadline` it is rolled back unless it is decided by then.
    #[must_use]
    pub fn begin(id: TxId, deadline: Nanos, timing: Timing) -> Self {
        Self {
            id,
            timing,
            state: State::Active,
            branches: Vec::with_capacity(BRANCHES_USUAL),
            deadline,
            finish_due: None,
            is_finished: false,
            decided: UnixMs::default(),
            reason: String::new(),
            doubt: Doubt::None,
            is_acknowledged: false,
            is_orphan: false,
            is_ended: false,
            log: LogSide::default(),
            marks: Marks::default(),
        }
    }

    /// Adds a branch of the resource at place `resource`, called `name`; work may be done in it from now on.
    ///
    /// # Errors
    /// [`Misuse::NotActive`], [`Misuse::SecondLastResource`], [`Misuse::TooManyBranches`]; nothing was added.
    pub fn enlist(
        &mut self,
        resource: u16,
        abilities: Abilities,
        name: impl Into<Arc<str>>,
    ) -> Result<BranchId, Misuse> {
        let number = self.branches.last().map_or(0, |branch| branch.number + 1);
        self.enlist_as(number, resource, abilities, name)
    }

    /// As [`Self::enlist`], with a number that the caller chooses: it knows the branch's identifier before it is added.
    ///
    /// # Errors
    /// As [`Self::enlist`], and [`Misuse::EnlistedBefore`].
    pub fn enlist_as(
        &mut self,
        number: u16,
        resource: u16,
        abilities: Abilities,
        name: impl Into<Arc<str>>,
    ) -> Result<BranchId, Misuse> {
        self.check_active()?;
        if self.position(number).is_some() {
            return Err(Misuse::EnlistedBefore);
        }
        if !abilities.prepares && self.branches.iter().any(|branch| !branch.abilities.prepares) {
            return Err(Misuse::SecondLastResource);
        }
        if self.branches.len() >= BRANCHES_MAX {
            return Err(Misuse::TooManyBranches);
        }
        // Records list them in the order of their numbers.
        let at = self.branches.partition_point(|branch| branch.number < number);
        self.branches.insert(at, Branch::new(number, Some(resource), name.into(), abilities));
        Ok(BranchId { tx: self.id, branch: number })
    }

    /// The application is done and wants all of it.
    ///
    /// # Errors
    /// [`Misuse::NotActive`]: its end was chosen before, perhaps by its deadline.
    pub fn commit(&mut self, now: Nanos, wall: UnixMs, effects: &mut Vec<Effect>) -> Result<(), Misuse> {
        self.check_active()?;
        let step = &mut Step { now, wall, effects };
        if now >= self.deadline {
            self.abort(step, DEADLINE.to_owned());
        } else {
            self.deadline = self.deadline.min(now + self.timing.answer_max);
            self.marks.asked = now;
            self.prepare(step);
        }
        Ok(())
    }

    /// The application wants none of it, or a command in it was answered with an error, because of `reason`. No commit is taken any more.
    ///
    /// # Errors
    /// [`Misuse::NotActive`]: its end was chosen before, perhaps by its deadline.
    pub fn rollback(
        &mut self,
        now: Nanos,
        wall: UnixMs,
        reason: &str,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Misuse> {
        self.check_active()?;
        if !planted(Bug::ErrorForgotten) {
            self.abort(&mut Step { now, wall, effects }, reason.to_owned());
        }
        Ok(())
    }

    /// Takes what a resource answered to [`Effect::Ask`]. What nobody waits for (any more) is ignored.
    #[expect(clippy::too_many_arguments, reason = "a call and its answer, as `Replies::on_answer` has them")]
    pub fn on_answer(
        &mut self,
        now: Nanos,
        wall: UnixMs,
        branch: u16,
        ask: Ask,
        attempt: u32,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.position(branch) else { return };
        let is_late_yes = self.branches[at].state == BranchState::RollingBack && ask == Ask::Prepare;
        if planted(Bug::LateYesResurrects) && is_late_yes {
            self.branches[at].settle(BranchState::Prepared);
        }
        if planted(Bug::DoubleVoteCountedTwice)
            && ask == Ask::Prepare
            && self.branches[at].state == BranchState::Prepared
            && let Some(other) = self.branches.iter_mut().find(|b| b.state == BranchState::Preparing)
        {
            other.settle(BranchState::Prepared);
            self.on_voted(&mut Step { now, wall, effects });
        } else if self.branches[at].waits_for(ask, attempt) {
            self.hear(&mut Step { now, wall, effects }, at, answer);
        } else if self.branches[at].was_last_asked(ask, attempt) {
            self.on_late_answer(&mut Step { now, wall, effects }, at, &answer);
        }
    }

    /// The record of [`Effect::Write`] is durable, or something else is known of it.
    pub fn on_logged(
        &mut self,
        now: Nanos,
        wall: UnixMs,
        result: Result<(), LogError>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(record) = self.log.writing.take() {
            (self.log.busy_until, self.log.again_at) = (None, None);
            self.on_record(&mut Step { now, wall, effects }, record, result);
        }
    }

    /// The log did not take the record of [`Effect::Write`]. If that is for want of room alone, it is written again after a pause, for
    /// two seconds.
    ///
    /// # Panics
    /// If no record is on its way: a bug of the caller.
    pub fn on_refused(&mut self, now: Nanos, wall: UnixMs, refused: Refused, effects: &mut Vec<Effect>) {
        assert!(self.log.writing.is_some(), "the log refused what was not written");
        let until = *self.log.busy_until.get_or_insert(now + BUSY_MAX);
        let result = match refused {
            _ if planted(Bug::RefusedIsCommitted) => Ok(()),
            Refused::Busy(_) if now < until => {
                self.log.again_at = Some(now + BUSY_PAUSE);
                return;
            }
            Refused::Busy(why) | Refused::Full(why) | Refused::Closed(why) => Err(LogError::Absent(why)),
        };
        self.on_logged(now, wall, result, effects);
    }

    /// Does what is due at `now`; calls in between do no harm.
    pub fn on_time(&mut self, now: Nanos, wall: UnixMs, effects: &mut Vec<Effect>) {
        let step = &mut Step { now, wall, effects };
        if self.is_ended {
            return;
        }
        if matches!(self.state, State::Active | State::Preparing) && now >= self.deadline {
            self.on_deadline(step);
        }
        for at in 0..self.branches.len() {
            if self.branches[at].due().is_some_and(|due| due <= now) {
                self.on_branch_due(step, at);
            }
        }
        if self.finish_due.is_some_and(|due| due <= now) {
            self.finish_decided(step);
        }
        if self.log.again_at.is_some_and(|due| due <= now) {
            self.write_again(step);
        }
        if self.log.retry.is_some_and(|due| due <= now) {
            self.write_heuristic(step);
        }
        if self.log.remove_due.is_some_and(|due| due <= now) {
            self.end(step);
        }
    }

    /// The resource at this place answers again after it did not: what waits to ask it once more asks now.
    pub fn on_back(&mut self, now: Nanos, wall: UnixMs, resource: u16, effects: &mut Vec<Effect>) {
        for branch in self.branches.iter_mut().filter(|branch| branch.resource == Some(resource)) {
            branch.end_pause(now);
        }
        self.on_time(now, wall, effects);
    }

    /// A resource lists `branch` as prepared although it answered that it had committed: it is asked again. Does nothing unless
    /// its [`Self::standing`] says so.
    pub fn on_found(&mut self, now: Nanos, branch: u16, effects: &mut Vec<Effect>) {
        if let (Standing::Committed, Some(at)) = (self.standing(branch), self.position(branch)) {
            self.state = State::Committing;
            self.log.remove_due = None;
            self.branches[at].turn(BranchState::Committing, now, &self.timing, effects);
        }
    }

    /// When [`Self::on_time`] wants to be called; `None`: not before something else happens.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        if self.is_ended {
            return None;
        }
        let has_deadline = match self.state {
            State::Active => true,
            State::Preparing => !planted(Bug::PrepareTimerNotArmed),
            _ => false,
        };
        let own = [
            self.finish_due,
            self.log.again_at,
            self.log.retry,
            self.log.remove_due,
            has_deadline.then_some(self.deadline),
        ];
        let of_branches = self.branches.iter().filter_map(|branch| match self.state {
            State::Preparing if planted(Bug::PrepareTimerNotArmed) && branch.is_asked() => None,
            _ => branch.due(),
        });
        own.into_iter().flatten().chain(of_branches).min()
    }

    /// Which transaction.
    #[must_use]
    pub fn id(&self) -> TxId {
        self.id
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// What recovery is to think of `branch` if a resource lists it as prepared.
    #[must_use]
    pub fn standing(&self, branch: u16) -> Standing {
        let is_decided = matches!(self.state, State::Committing | State::Done) && self.log.holds;
        let known = self.position(branch).map(|at| &self.branches[at]);
        let has_committed =
            |branch: &Branch| branch.state == BranchState::Committed && branch.abilities.prepares;
        if is_decided && known.is_some_and(has_committed) {
            Standing::Committed
        } else if self.is_orphan && known.is_none() {
            Standing::Nobody
        } else {
            Standing::Live
        }
    }

    /// Whether its end was chosen and its outcome is still to be told.
    pub(crate) fn is_ending(&self) -> bool {
        self.state != State::Active && !self.is_finished
    }

    /// When it came to what.
    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    /// Its branches, as operators see them.
    pub fn branches(&self) -> impl Iterator<Item = BranchView<'_>> {
        self.branches.iter().map(|branch| BranchView {
            branch: branch.number,
            resource: &branch.name,
            is_configured: branch.resource.is_some(),
            state: branch.state,
            attempts: branch.attempts(),
            trouble: &branch.trouble,
        })
    }

    /// Why it was, or is being, rolled back; empty if it is not.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn check_active(&self) -> Result<(), Misuse> {
        if self.state == State::Active { Ok(()) } else { Err(Misuse::NotActive(self.state)) }
    }

    /// Where `branch` is: its number, unless the record that it was resumed from left some out.
    fn position(&self, branch: u16) -> Option<usize> {
        let is_it = |other: &Branch| other.number == branch;
        let at = usize::from(branch);
        if self.branches.get(at).is_some_and(is_it) { Some(at) } else { self.branches.iter().position(is_it) }
    }

    /// Takes the answer to the question that branch `at` has open.
    fn hear(&mut self, step: &mut Step<'_>, at: usize, answer: Answer) {
        assert!(self.branches[at].is_asked() && !self.is_ended, "nobody waits for an answer");
        match self.branches[at].state {
            BranchState::Preparing => self.on_vote(step, at, answer),
            BranchState::OnePhase => self.on_one_phase(step, at, answer),
            BranchState::Committing => self.on_committed(step, at, answer),
            BranchState::RollingBack => self.on_rolled_back(step, at, answer),
            BranchState::Forgetting => self.on_forgotten(step, at, answer),
            state => unreachable!("{state:?} asks nothing"),
        }
    }

    /// Asks branch `at` again, or takes its silence for an answer.
    fn on_branch_due(&mut self, step: &mut Step<'_>, at: usize) {
        let branch = &mut self.branches[at];
        if branch.is_asked() {
            let answer_ms = self.timing.answer_max.as_millis();
            self.hear(step, at, Answer::Lost(format!("no answer within {answer_ms} ms")));
        } else if branch.state == BranchState::OnePhase && step.now >= self.deadline {
            let trouble = branch.trouble.clone();
            self.abort(step, format!("{DEADLINE}: {trouble}"));
        } else {
            branch.ask(step.now, &self.timing, step.effects);
        }
    }

    fn on_deadline(&mut self, step: &mut Step<'_>) {
        let silent = self.branches.iter().find(|branch| branch.state == BranchState::Preparing);
        let reason = match silent {
            Some(branch) if branch.trouble.is_empty() => format!("{} did not prepare in time", branch.name),
            Some(branch) => format!("{} did not prepare in time: {}", branch.name, branch.trouble),
            None => DEADLINE.to_owned(),
        };
        self.abort(step, reason);
    }

    /// Says what the transaction came to.
    fn finish(&mut self, step: &mut Step<'_>, outcome: Outcome) {
        assert!(!self.is_finished || planted(Bug::FinishedAgain), "finished twice: {outcome:?}");
        self.is_finished = true;
        self.finish_due = None;
        self.marks.finished = step.now;
        step.effects.push(Effect::Finish(outcome));
    }

    /// Removes the record, if there is one; nothing more happens.
    fn end(&mut self, step: &mut Step<'_>) {
        let is_settled =
            self.branches.iter().all(Branch::is_settled) || planted(Bug::ForgetsBeforeLastAnswer);
        assert!(is_settled && !self.is_ended && self.log.writing.is_none(), "ended too early: {self:?}");
        self.state = State::Done;
        self.is_ended = true;
        self.log.remove_due = None;
        self.remove(step);
        step.effects.push(Effect::End);
    }

    /// Removes the record, if there is one.
    fn remove(&mut self, step: &mut Step<'_>) {
        if std::mem::take(&mut self.log.holds) {
            step.effects.push(Effect::Remove);
        }
    }
}

/// What every step of a machine is given.
struct Step<'a> {
    now: Nanos,
    wall: UnixMs,
    effects: &'a mut Vec<Effect>,
}

/// What is known of the record.
#[derive(Debug, Default)]
struct LogSide {
    writing: Option<Record>,
    /// A record is in the log, or may be.
    holds: bool,
    /// What is being written is out of date.
    is_stale: bool,
    /// When a record is written again for which the log had no room, and until when.
    again_at: Option<Nanos>,
    busy_until: Option<Nanos>,
    /// When a heuristic record that was not written is tried again.
    retry: Option<Nanos>,
    /// When the record may go.
    remove_due: Option<Nanos>,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// The last resource is being asked.
    Intent,
    /// It is committed.
    Commit,
    /// Branches disagree.
    Heuristic,
    /// What an operator said: to commit or not.
    Resolution(bool),
}

/// Why nobody knows what the transaction came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    None,
    /// Whether the record is in the log.
    Log,
    /// Whether the last resource committed.
    LastResource,
}

/// So many branches fit without a second allocation.
const BRANCHES_USUAL: usize = 2;
/// A log without room is asked again after so long, and so long at most: then it has refused.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const BUSY_MAX: Duration = Duration::from_secs(2);
const DEADLINE: &str = "the transaction's time is over (its deadline)";
