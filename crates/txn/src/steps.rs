//! Named steps of the protocol, for drills that stop a process exactly there and kill somebody.
//!
//! ```text
//!  prepare -> branch -> voted ... decide -> log -> decided -> commit -> branch -> committed ... told ... remove
//!                                            '-- no, silence --> rollback -> branch -> rolled-back ... told
//! ```
//!
//! Invariants
//!   1. Without debug assertions (each release) `reached` is an empty function: nothing of a hook is in the binary.
//!   2. With them, nothing happens unless a hook was set, once for the process.
//!
//! A step is reached under its lane's lock, so a hook that waits holds that lane up.

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A branch is about to be asked to prepare.
    Prepare,
    /// A branch has answered that.
    Voted,
    /// The decision is about to go to the log.
    Decide,
    /// The decision is durable.
    Decided,
    /// A branch is about to be asked to commit.
    Commit,
    /// A branch has answered that.
    Committed,
    /// The only branch that may have written is about to be asked to commit.
    CommitAlone,
    /// That branch has answered.
    CommittedAlone,
    /// A branch is about to be asked to roll back.
    Rollback,
    /// A branch has answered that.
    RolledBack,
    /// The outcome is about to be told.
    Told,
    /// The decision is about to be removed from the log.
    Remove,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Prepare,
        Self::Voted,
        Self::Decide,
        Self::Decided,
        Self::Commit,
        Self::Committed,
        Self::CommitAlone,
        Self::CommittedAlone,
        Self::Rollback,
        Self::RolledBack,
        Self::Told,
        Self::Remove,
    ];

    /// As drills name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Voted => "voted",
            Self::Decide => "decide",
            Self::Decided => "decided",
            Self::Commit => "commit",
            Self::Committed => "committed",
            Self::CommitAlone => "commit-alone",
            Self::CommittedAlone => "committed-alone",
            Self::Rollback => "rollback",
            Self::RolledBack => "rolled-back",
            Self::Told => "told",
            Self::Remove => "remove",
        }
    }
}

/// Called at each step.
pub type Hook = Box<dyn Fn(Step) + Send + Sync>;

/// A step is reached.
#[cfg(debug_assertions)]
#[inline]
pub(crate) fn reached(step: Step) {
    if let Some(hook) = HOOK.get() {
        hook(step);
    }
}

/// A step is reached: nobody wants to know.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) const fn reached(_: Step) {}

/// From now on `hook` is called at each step of each coordinator of this process.
///
/// # Panics
/// If there is one.
#[cfg(debug_assertions)]
pub fn set_hook(hook: Hook) {
    assert!(HOOK.set(hook).is_ok(), "steps have one hook");
}

#[cfg(debug_assertions)]
static HOOK: std::sync::OnceLock<Hook> = std::sync::OnceLock::new();
