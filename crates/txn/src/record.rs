//! The record of a decision: what a log keeps of a transaction, and recovery acts on.
//!
//! All numbers are little-endian.
//!
//! ```text
//!  record | version u8, 1 | kind u8: 1 commit, 2 heuristic | branches u16 | epoch u32 | number u64 | decided u64, Unix time in ms
//!         | each branch | crc u32, CRC-32C of all before it
//!  branch | number u16 | state u8: 1 to be committed, 2 committed, 3 rolled back, 4 mixed, 5 to be rolled back
//!         | length of the resource's name u8 | its name
//! ```
//!
//! Invariants
//!   1. What is decoded is what was encoded: every bit is under the checksum, nothing may follow, each branch is there once.
//!
//! Out of scope: where records are kept (`decision_log`).

use clock::UnixMs;

use crate::id::TxId;

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The transaction.
    pub tx: TxId,
    /// What became of it.
    pub kind: DecisionKind,
    /// When.
    pub decided: UnixMs,
    /// Who takes part, by number of the branch; those that only read or rolled back are left out.
    pub participants: Vec<Participant>,
}

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// It is committed, and branches are to hear of it.
    Commit = 1,
    /// Branches disagree, which is kept until an operator has seen it.
    Heuristic = 2,
}

/// One branch of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Its number.
    pub branch: u16,
    /// Name of its resource.
    pub resource: String,
    /// What is known of it.
    pub state: ParticipantState,
}

/// What is known of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParticipantState {
    /// It is prepared and is to commit.
    ToCommit = 1,
    /// It has committed.
    Committed = 2,
    /// It has rolled back, on its own.
    RolledBack = 3,
    /// A part of it has.
    Mixed = 4,
    /// It is prepared and is to roll back: an operator said so.
    ToRollBack = 5,
}
