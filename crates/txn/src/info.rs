//! A transaction as operators see it.

use crate::id::{BranchId, NodeName, TxId};
use crate::protocol::{BranchState, State, Transaction};

/// A transaction, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    /// Which.
    pub tx: TxId,
    /// Where it stands.
    pub state: State,
    /// Why it is rolled back; empty if it is not.
    pub reason: String,
    /// Its branches.
    pub branches: Vec<BranchInfo>,
}

/// A branch, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// Which of its transaction.
    pub branch: u16,
    /// Its identifier, as the resource keeps it.
    pub id: String,
    /// Name of its resource.
    pub resource: String,
    /// False: there is no resource of that name any more, and the transaction waits until there is.
    pub is_configured: bool,
    /// Where it stands.
    pub state: BranchState,
    /// How many questions it was asked.
    pub attempts: u32,
    /// What went wrong last; empty if nothing did.
    pub trouble: String,
}

impl TransactionInfo {
    pub(crate) fn of(node: &NodeName, machine: &Transaction) -> Self {
        let branches = machine.branches().map(|it| BranchInfo {
            branch: it.branch,
            id: node.branch_id(BranchId { tx: machine.id(), branch: it.branch }),
            resource: it.resource.to_owned(),
            is_configured: it.is_configured,
            state: it.state,
            attempts: it.attempts,
            trouble: it.trouble.to_owned(),
        });
        Self {
            tx: machine.id(),
            state: machine.state(),
            reason: machine.reason().to_owned(),
            branches: branches.collect(),
        }
    }
}
