//! The protocol as machines without I/O: what happened goes in, what is to be done comes out.
//!
//! | machine | what |
//! |---|---|
//! | [`Transaction`] | one transaction from begin to forget: two-phase commit, presumed abort |
//! | [`Recovery`] | branches that resources hold prepared and nobody works on: which are orphans |
//!
//! Both take the time as an argument and are driven by whoever owns them (`lane`, or a simulation).

#[doc(hidden)]
pub mod planted;
pub mod recovery;
pub mod transaction;

pub use recovery::{Action, List, Recovery, Standing};
pub use transaction::{BranchState, BranchView, Transaction};

use std::time::Duration;

use crate::record::Decision;
use crate::resource::Ask;

/// What a machine wants done. Each is answered by the call that its text names, or by nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the resource of `branch`; its answer goes to [`Transaction::on_answer`] with the same `ask` and `attempt`.
    Ask {
        /// Number of the branch.
        branch: u16,
        /// Place of its resource among the coordinator's.
        resource: u16,
        /// What to ask.
        ask: Ask,
        /// Which time that it is asked.
        attempt: u32,
    },
    /// Write this to the decision log; what comes of it goes to [`Transaction::on_logged`] or, if the log refused it,
    /// [`Transaction::on_refused`].
    Write(Decision),
    /// Remove the record from the log.
    Remove,
    /// Tell who asked for commit or rollback, or will: a transaction that ran into its deadline is finished unasked. Said once,
    /// except of a transaction that was resumed: nobody asked for that.
    Finish(Outcome),
    /// Nothing more is to be done: the machine can be dropped.
    End,
}

/// What a transaction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every branch has committed or, its decision being durable, will.
    Committed,
    /// No branch has committed or will.
    Aborted(String),
    /// It may have been committed; text says what happens next.
    Unknown(String),
    /// A resource decided on its own: some branches have committed, some have not. Kept for the operator.
    Heuristic(String),
}

/// Where a transaction stands, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Branches may be added.
    Active,
    /// Branches were asked to prepare.
    Preparing,
    /// The decision is on its way to the log, or its only branch was asked to commit.
    Deciding,
    /// Decided: branches are to commit.
    Committing,
    /// Branches are to roll back.
    RollingBack,
    /// A heuristic outcome that waits for an operator.
    Heuristic,
    /// Nobody knows whether it is committed: the decision may be in the log, which only a new start tells, or a last resource did not
    /// say whether it committed, which an operator must find out ([`Transaction::resolve`]).
    InDoubt,
    /// All is done; the decision is kept for a while.
    Done,
}

impl State {
    /// All of them, in the order in which a transaction meets them.
    pub const ALL: [Self; 8] = [
        Self::Active,
        Self::Preparing,
        Self::Deciding,
        Self::Committing,
        Self::RollingBack,
        Self::Heuristic,
        Self::InDoubt,
        Self::Done,
    ];

    /// What operators call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Preparing => "preparing",
            Self::Deciding => "deciding",
            Self::Committing => "committing",
            Self::RollingBack => "rolling-back",
            Self::Heuristic => "heuristic",
            Self::InDoubt => "in-doubt",
            Self::Done => "committed",
        }
    }
}

/// A call that does not fit the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// It is not [`State::Active`] any more.
    #[error("the transaction is {}: no branch can be added and no end be chosen", .0.name())]
    NotActive(State),
    /// The transaction has a branch of this number.
    #[error("it is enlisted")]
    EnlistedBefore,
    /// Only one branch of a transaction may be of a resource that does not prepare.
    #[error("a second resource that cannot prepare")]
    SecondLastResource,
    /// An operator can decide only what is heuristic, or in doubt because of a last resource, and only once.
    #[error("the transaction is {}: there is nothing for an operator to resolve", .0.name())]
    NotResolvable(State),
    /// It has as many branches as it can.
    #[error("a transaction has at most {BRANCHES_MAX} branches")]
    TooManyBranches,
}

/// Times of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A resource that has not answered for so long is asked again, or (prepare) taken for a no.
    pub answer_max: Duration,
    /// First pause before a resource is asked again; doubled each time.
    pub retry_least: Duration,
    /// Longest pause.
    pub retry_most: Duration,
    /// A decision whose branches have not all answered for so long is told all the same; they go on being asked.
    pub finish_max: Duration,
    /// For so long at least a decision is kept after all branches have answered, for those who ask what became of it.
    pub keep: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            answer_max: Duration::from_secs(30),
            retry_least: Duration::from_millis(10),
            retry_most: Duration::from_secs(5),
            finish_max: Duration::from_secs(2),
            keep: Duration::ZERO,
        }
    }
}

/// Most branches of a transaction.
pub const BRANCHES_MAX: usize = 64;
