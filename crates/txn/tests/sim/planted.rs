//! Bugs that the simulation must find: a simulation that finds nothing may be blind.
//!
//! Each row of [`ROWS`] is a mistake that somebody could have made, in a machine of `protocol` or in the node that drives it here.
//! `txn::protocol::planted` is asked at its place, and says yes in the thread that [`plant`]s it, in builds with debug assertions
//! alone: nothing of it can reach a shipped binary. A row has the first seed that shows its bug, a violation or an assertion; the test
//! says so if another one has become the first, and prints the table as it is now:
//!
//! ```sh
//! cargo test --profile ci -p txn --test sim planted -- --nocapture
//! ```
//!
//! What recovery heals is no loss, and is found by other marks: a branch that is not told to roll back has work left when its transaction has
//! ended; a name that begins alike makes recovery act on a branch that this node never made.

use txn::protocol::planted::{Bug, plant};

use crate::run;

pub struct Row {
    pub bug: Bug,
    /// The first seed that shows it.
    pub seed: u64,
    pub text: &'static str,
}

#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    Row { bug: Bug::CommitBeforeLog, seed: 0, text: "branches are told to commit while the decision is on its way" },
    Row { bug: Bug::ReadOnlyAwaited, seed: 0, text: "a branch that only read is waited for in the second phase" },
    Row { bug: Bug::LostPrepareIsYes, seed: 10, text: "a prepare whose answer is lost counts as a yes" },
    Row { bug: Bug::LateYesResurrects, seed: 5, text: "a yes that comes after the rollback was sent makes a branch prepared" },
    Row { bug: Bug::RefusedIsCommitted, seed: 13, text: "a decision that the log refused is acted upon" },
    Row { bug: Bug::UnknownIsAborted, seed: 9, text: "a decision that may be in the log is told as an abort" },
    Row { bug: Bug::UnknownRollsBack, seed: 155, text: "a decision that may be in the log rolls its branches back" },
    Row { bug: Bug::ForgetsBeforeLastAnswer, seed: 0, text: "the record goes after the first branch has committed" },
    Row { bug: Bug::CommitNotRepeated, seed: 0, text: "a commit whose answer is lost is not asked again" },
    Row { bug: Bug::OrphanAtFirstSight, seed: 13, text: "an orphan is rolled back when it is first seen" },
    Row { bug: Bug::OrphanWhileLive, seed: 95, text: "an orphan is rolled back though a machine works on it" },
    Row { bug: Bug::NodeNamePrefix, seed: 0, text: "a branch of a node whose name begins alike is taken for an own one" },
    Row { bug: Bug::EpochNotCompared, seed: 0, text: "a branch of an epoch that the log has not reached is rolled back" },
    Row { bug: Bug::EpochReused, seed: 5, text: "a start takes the epoch of the one before" },
    Row { bug: Bug::DecisionLacksBranch, seed: 1, text: "the decision does not list the last branch" },
    Row { bug: Bug::SilentBranchNotRolledBack, seed: 0, text: "a branch that did not vote is not told to roll back" },
    Row { bug: Bug::HeuristicSwallowed, seed: 7, text: "a branch that rolled back on its own counts as committed" },
    Row { bug: Bug::DoubleVoteCountedTwice, seed: 1, text: "a yes that arrives twice counts for two branches" },
    Row { bug: Bug::AttemptNotCompared, seed: 40, text: "an answer to an earlier attempt is taken for one to the last" },
    Row { bug: Bug::OnePhaseWithTwo, seed: 0, text: "two branches commit in one phase" },
    Row { bug: Bug::UnsoundLogBelieved, seed: 53, text: "orphans are presumed while the log cannot be read" },
    Row { bug: Bug::ResumeDropsBranch, seed: 1, text: "a start forgets the last branch of a decision" },
    Row { bug: Bug::PrepareTimerNotArmed, seed: 0, text: "nobody wakes up for a prepare that is not answered" },
    Row { bug: Bug::LastResourceBeforeRecord, seed: 13, text: "the last resource is asked before there is a record" },
    Row { bug: Bug::ErrorForgotten, seed: 0, text: "an error in a transaction is forgotten: what was done in it can be committed" },
    Row { bug: Bug::FinishedAgain, seed: 0, text: "an outcome that was told at its bound is told again at the end" },
];

/// The first of `count` seeds that shows `bug`, and what it showed.
pub fn search(bug: Bug, count: u64) -> Option<(u64, String)> {
    plant(Some(bug));
    let found = (0..count).find_map(|seed| {
        let result = std::panic::catch_unwind(|| run(seed).map(drop));
        match result {
            Ok(Ok(())) => None,
            Ok(Err(what)) => Some((seed, what)),
            Err(_) => Some((seed, "an assertion failed".to_owned())),
        }
    });
    plant(None);
    found
}
