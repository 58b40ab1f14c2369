//! What a coordinator asks of those who take part: prepare, commit, roll back, recover, forget.
//!
//! A call never waits: it begins the work and returns; the [`Reply`] brings the answer, from any thread, perhaps before the call
//! returns. So branches are prepared in parallel by whoever calls them one after another.
//!
//! Invariants
//!   1. Each call is answered once. A [`Reply`] that is dropped unanswered says [`Answer::Lost`].
//!   2. [`Vote::Yes`] is given only when the branch survives a crash of its resource.
//!   3. Commit and rollback may be asked again, also of a branch that is gone: then the answer is [`Answer::Done`].
//!   4. A branch that is unknown, or was rolled back, votes no. One that was still preparing when its rollback was answered may end up
//!      prepared all the same: recovery finds it.
//!   5. What is waited for by a [`Reply::is_helped`] is offered by nobody but who asked. A call that goes on elsewhere is helped no more.
//!   6. [`Answer::Failed`] to a commit in one phase is certain: nothing was done, and no earlier call will do it later.
//!
//! Out of scope: how an application's work gets into a branch (each resource has its own way), retries (the coordinator's).

use std::fmt::Debug;
use std::sync::Arc;

use clock::UnixMs;

use crate::id::BranchId;

/// One who takes part in transactions: a database, the server's keys, a dummy of a benchmark.
pub trait Resource: Debug + Send + Sync {
    /// As settings and logs name it; 1 to [`RESOURCE_NAME_BYTES_MAX`] bytes.
    fn name(&self) -> &str;

    /// What it can do.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Whether branches can be enlisted now.
    ///
    /// # Errors
    /// [`Unready`]: why not, and what to do about it.
    fn ready(&self) -> Result<(), Unready> {
        Ok(())
    }

    /// Calls `back` whenever it answers again after it did not: from any thread, and without a lock of its own that [`Self::commit`] takes.
    fn watch(&self, back: Box<dyn Fn() + Send + Sync>) {
        drop(back);
    }

    /// Makes the branch's work durable without showing it; answered with [`Answer::Voted`].
    fn prepare(&self, branch: BranchId, reply: Reply);

    /// Commits a prepared branch.
    fn commit(&self, branch: BranchId, reply: Reply);

    /// Commits a branch that was not prepared: it is the only one of its transaction that wrote, or the last.
    /// Answered with [`Answer::Done`], [`Answer::RolledBack`], [`Vote::No`] if it is left as it is because it may not be committed, or, if
    /// that is not known, with [`Answer::Lost`].
    fn commit_one_phase(&self, branch: BranchId, reply: Reply);

    /// Rolls a branch back, prepared or not.
    fn rollback(&self, branch: BranchId, reply: Reply);

    /// Lists the branches that are prepared, also those of other nodes' coordinators; answered with [`Answer::Found`].
    fn recover(&self, reply: Reply);

    /// Has others do what answers wait for that were asked for with help ([`Reply::is_helped`]).
    fn offer(&self) {}

    /// As [`Self::offer`], for a caller that has nothing else to do than to wait: does it on this thread, where that is quicker than to wake
    /// another. Blocks for a write and sync at most.
    fn help(&self) {
        self.offer();
    }

    /// Forgets a heuristic outcome that it keeps for an operator.
    fn forget(&self, branch: BranchId, reply: Reply) {
        let _ = branch;
        reply.answer(Answer::Done);
    }
}

/// Why a resource takes no branches now, by what its caller can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// Try again later: it does not answer, or has no room, and that may end by itself.
    #[error("{0}")]
    Retry(String),
    /// Have an operator change the setting that is named, of the resource or of this server: it ends by nothing else.
    #[error("{0}")]
    Setting(String),
    /// Nothing: it was closed.
    #[error("{0}")]
    Closed(&'static str),
}

impl Unready {
    /// The same, said with more around it.
    #[must_use]
    pub fn worded(self, how: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Retry(why) => Self::Retry(how(why)),
            Self::Setting(why) => Self::Setting(how(why)),
            Self::Closed(why) => Self::Closed(why),
        }
    }
}

/// What a resource can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It prepares. One that does not may be the last resource of a transaction, at most one in each.
    pub prepares: bool,
    /// For so long the decision is kept after its branches have answered: a database that may come back without what it acknowledged.
    pub keep_decision_ms: u64,
}

impl Default for Abilities {
    fn default() -> Self {
        Self { prepares: true, keep_decision_ms: 0 }
    }
}

/// What a prepare came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It is prepared.
    Yes,
    /// It changed nothing and has ended.
    ReadOnly,
    /// It has rolled back, or never prepared, because.
    No(String),
}

/// What a resource says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To prepare.
    Voted(Vote),
    /// To commit, rollback and forget: it is done, or was before.
    Done,
    /// To a commit: it was rolled back. Of a prepared branch that is a heuristic outcome.
    RolledBack(String),
    /// To a rollback: it was committed, a heuristic outcome.
    Committed(String),
    /// A part of it was committed, a part rolled back: a heuristic outcome.
    Mixed(String),
    /// To recover.
    Found(Vec<Prepared>),
    /// Nothing was done; it is worth asking again.
    Failed(String),
    /// Nothing was done, for there was no room; room is being made, so it is worth asking again soon, as often as it takes.
    NoRoom(String),
    /// Nobody knows whether it was done; it is worth asking again.
    Lost(String),
}

impl Answer {
    /// Why it is not what was asked for, in the resource's words; empty where it gives no reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::RolledBack(why)
            | Self::Committed(why)
            | Self::Mixed(why)
            | Self::Failed(why)
            | Self::NoRoom(why)
            | Self::Lost(why)
            | Self::Voted(Vote::No(why)) => why,
            Self::Voted(Vote::Yes | Vote::ReadOnly) | Self::Done | Self::Found(_) => "",
        }
    }
}

/// A branch that a resource holds prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Its identifier, as the resource keeps it.
    pub id: String,
    /// When it was prepared, if the resource tells.
    pub since: Option<UnixMs>,
}

/// Who hears of answers.
pub trait Replies: Send + Sync {
    /// `call` was answered. Must not wait.
    fn on_answer(&self, call: Call, answer: Answer);
}

/// Which call an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which resource, by its place among the coordinator's.
    pub resource: u16,
    /// Which branch; of a recover, the default.
    pub branch: Option<BranchId>,
    /// Which question.
    pub ask: Ask,
    /// Which time that it is asked: late answers to earlier ones are told apart.
    pub attempt: u32,
}

/// A question to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ask {
    /// [`Resource::prepare`].
    Prepare,
    /// [`Resource::commit`].
    Commit,
    /// [`Resource::commit_one_phase`].
    CommitOnePhase,
    /// [`Resource::rollback`].
    Rollback,
    /// [`Resource::recover`].
    Recover,
    /// [`Resource::forget`].
    Forget,
}

/// What a resource answers with, once.
pub struct Reply {
    call: Call,
    to: Option<Arc<dyn Replies>>,
    is_helped: bool,
}

impl Reply {
    /// A reply to `call` that goes to `to`.
    #[must_use]
    pub fn new(call: Call, to: Arc<dyn Replies>) -> Self {
        Self { call, to: Some(to), is_helped: false }
    }

    /// The same; who asked calls [`Resource::help`] or [`Resource::offer`] next.
    #[must_use]
    pub fn helped(mut self) -> Self {
        self.is_helped = true;
        self
    }

    /// The same; the call goes on elsewhere, perhaps after who asked has helped.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.is_helped = false;
        self
    }

    /// Whether who asked calls [`Resource::help`] or [`Resource::offer`] next: nobody need be woken for what the answer waits for.
    #[must_use]
    pub fn is_helped(&self) -> bool {
        self.is_helped
    }

    /// Answers.
    pub fn answer(mut self, answer: Answer) {
        if let Some(to) = self.to.take() {
            to.on_answer(self.call, answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            to.on_answer(self.call, Answer::Lost("the resource gave no answer".to_owned()));
        }
    }
}

impl Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Longest name of a resource.
pub const RESOURCE_NAME_BYTES_MAX: usize = 64;
