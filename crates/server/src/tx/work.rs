//! What a branch of keys means to change, until it has voted.

use store::Workspace;

/// What a branch means to change.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) workspace: Workspace,
    /// It has voted: what would be staged now would be in no vote.
    pub(crate) is_sealed: bool,
    /// It was rolled back: a prepare that was on its way comes too late.
    pub(super) is_over: bool,
}
