//! One branch of a transaction: which question is open, when it is given up, and when it is asked again.
//!
//! ```text
//!  Active -> Preparing -> Prepared -> Committing  -> Committed                    asked: due is when the answer is given up
//!     |         |  '---------------> RollingBack -> RolledBack                    not asked, due: when it is asked again
//!     |         '-> ReadOnly                   '---> Mixed -> Forgetting -> Forgotten
//!     '-> OnePhase -> Committed, RolledBack, Mixed, Unknown
//! ```
//!
//! Invariants
//!   1. At most one question is open; an answer is taken only by the question and the attempt that it was given to.
//!   2. The attempt grows with each question: no answer fits two of them.

use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;

use crate::protocol::planted::{Bug, planted};
use crate::protocol::{Effect, Timing};
use crate::resource::{Abilities, Ask};

/// Where a branch stands, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BranchState {
    /// Work is being done in it.
    Active,
    /// It was asked to prepare.
    Preparing,
    /// It voted yes.
    Prepared,
    /// It changed nothing and has ended.
    ReadOnly,
    /// It was asked to commit without having been prepared.
    OnePhase,
    /// It is to commit.
    Committing,
    /// It has committed.
    Committed,
    /// It is to roll back.
    RollingBack,
    /// It has rolled back.
    RolledBack,
    /// A part of it has committed, a part rolled back.
    Mixed,
    /// It was asked to commit without having been prepared, and nobody knows whether it did.
    Unknown,
    /// An operator has seen its heuristic outcome: its resource is to forget it.
    Forgetting,
    /// Its resource has.
    Forgotten,
}

impl BranchState {
    /// What operators call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Preparing => "preparing",
            Self::Prepared => "prepared",
            Self::ReadOnly => "read-only",
            Self::OnePhase => "committing-alone",
            Self::Committing => "committing",
            Self::Committed => "committed",
            Self::RollingBack => "rolling-back",
            Self::RolledBack => "rolled-back",
            Self::Mixed => "mixed",
            Self::Unknown => "unknown",
            Self::Forgetting => "forgetting",
            Self::Forgotten => "forgotten",
        }
    }

    /// What a branch in this state is asked until it answers.
    #[must_use]
    pub fn question(self) -> Option<Ask> {
        match self {
            Self::Preparing => Some(Ask::Prepare),
            Self::OnePhase => Some(Ask::CommitOnePhase),
            Self::Committing => Some(Ask::Commit),
            Self::RollingBack => Some(Ask::Rollback),
            Self::Forgetting => Some(Ask::Forget),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Branch {
    pub(super) number: u16,
    /// Place of its resource; `None` if that is not configured any more.
    pub(super) resource: Option<u16>,
    pub(super) name: Arc<str>,
    pub(super) abilities: Abilities,
    pub(super) state: BranchState,
    /// It ended otherwise than it was told to.
    pub(super) is_heuristic: bool,
    /// What went wrong last.
    pub(super) trouble: String,
    is_asked: bool,
    attempt: u32,
    failures: u32,
    due: Option<Nanos>,
}

impl Branch {
    pub(super) fn new(number: u16, resource: Option<u16>, name: Arc<str>, abilities: Abilities) -> Self {
        Self {
            number,
            resource,
            name,
            abilities,
            state: BranchState::Active,
            is_heuristic: false,
            trouble: String::new(),
            is_asked: false,
            attempt: 0,
            failures: 0,
            due: None,
        }
    }

    /// Goes to `state` and asks what that wants to know. What was asked before is not listened to any more.
    pub(super) fn turn(
        &mut self,
        state: BranchState,
        now: Nanos,
        timing: &Timing,
        effects: &mut Vec<Effect>,
    ) {
        assert!(state.question().is_some(), "{state:?} asks nothing");
        self.state = state;
        self.failures = 0;
        self.ask(now, timing, effects);
    }

    /// Ends in `state`, or waits in it for the others.
    pub(super) fn settle(&mut self, state: BranchState) {
        assert!(state.question().is_none(), "{state:?} waits for an answer");
        self.state = state;
        self.is_asked = false;
        self.due = None;
    }

    /// Asks again after the shortest pause, however often it has.
    pub(super) fn wait(&mut self, now: Nanos, timing: &Timing, trouble: String) {
        self.failures = 0;
        self.pause(now, timing, trouble);
    }

    /// Asks again after a pause that doubles each time.
    pub(super) fn pause(&mut self, now: Nanos, timing: &Timing, trouble: String) {
        assert!(self.state.question().is_some(), "{:?} asks nothing", self.state);
        let doubled = timing.retry_least.saturating_mul(1 << self.failures.min(RETRY_DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
        self.is_asked = false;
        self.trouble = trouble;
        let forgotten = planted(Bug::CommitNotRepeated) && self.state == BranchState::Committing;
        self.due = (!forgotten).then(|| now + doubled.min(timing.retry_most).max(RETRY_FLOOR));
    }

    /// Its resource answers again: a pause ends at once, and the next is a short one.
    pub(super) fn end_pause(&mut self, now: Nanos) {
        if !self.is_asked && self.state.question().is_some() && self.due.is_some() {
            self.failures = 0;
            self.due = Some(now);
        }
    }

    /// Asks what its state wants to know; of a resource that is not configured nothing can be asked.
    pub(super) fn ask(&mut self, now: Nanos, timing: &Timing, effects: &mut Vec<Effect>) {
        let ask = self.state.question();
        assert!(ask.is_some(), "{:?} asks nothing", self.state);
        self.attempt = self.attempt.wrapping_add(1);
        if let (Some(resource), Some(ask)) = (self.resource, ask) {
            self.is_asked = true;
            self.due = Some(now + timing.answer_max);
            effects.push(Effect::Ask { branch: self.number, resource, ask, attempt: self.attempt });
        }
    }

    /// Whether `ask`, asked the `attempt`th time, is what it waits for.
    pub(super) fn waits_for(&self, ask: Ask, attempt: u32) -> bool {
        let is_current = self.attempt == attempt || planted(Bug::AttemptNotCompared);
        self.is_asked && self.state.question() == Some(ask) && is_current
    }

    /// Whether `ask`, asked the `attempt`th time, is what it was given up for.
    pub(super) fn was_last_asked(&self, ask: Ask, attempt: u32) -> bool {
        self.state == BranchState::Unknown && ask == Ask::CommitOnePhase && self.attempt == attempt
    }

    /// Whether it was asked something that it has not answered.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// When it is given up or asked again.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether nothing is to be heard of it any more.
    pub(super) fn is_settled(&self) -> bool {
        let awaited = planted(Bug::ReadOnlyAwaited) && self.state == BranchState::ReadOnly;
        self.state.question().is_none() && !awaited
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempt
    }
}

/// The longest pause is reached long before.
const RETRY_DOUBLINGS_MAX: u32 = 30;
/// However the pauses are set, time passes between two attempts.
const RETRY_FLOOR: Duration = Duration::from_micros(100);
