//! Bugs that the simulation plants, to see that it finds them.
//!
//! Each is a mistake that somebody could have made in this protocol; `tests/sim/planted.rs` has what each does and which seed finds
//! it. The question [`planted`] is asked at the place of the mistake, the choice is the thread's own, so that tests run beside
//! each other.
//!
//! Invariants
//!   1. Without debug assertions (each release) the answer is a constant no: nothing of a bug is in the binary.
//!   2. With them, nothing is planted unless a test says so.
//!
//! A cargo feature would do the same, but features are unified over a workspace: stages that build it with and without tests would
//! build everything above this crate twice.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "a table beside the simulation has the descriptions")]
pub enum Bug {
    CommitBeforeLog,
    ReadOnlyAwaited,
    LostPrepareIsYes,
    LateYesResurrects,
    RefusedIsCommitted,
    UnknownIsAborted,
    UnknownRollsBack,
    ForgetsBeforeLastAnswer,
    CommitNotRepeated,
    OrphanAtFirstSight,
    OrphanWhileLive,
    NodeNamePrefix,
    EpochNotCompared,
    EpochReused,
    DecisionLacksBranch,
    SilentBranchNotRolledBack,
    HeuristicSwallowed,
    DoubleVoteCountedTwice,
    AttemptNotCompared,
    OnePhaseWithTwo,
    UnsoundLogBelieved,
    ResumeDropsBranch,
    PrepareTimerNotArmed,
    LastResourceBeforeRecord,
    FinishedAgain,
    ErrorForgotten,
}

/// Whether this mistake is to be made.
#[cfg(debug_assertions)]
#[inline]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this mistake is to be made: never.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}

/// Plants a bug in all that this thread does from now on, or none.
#[cfg(debug_assertions)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

#[cfg(debug_assertions)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}
