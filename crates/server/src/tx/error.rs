//! Errors of transactions, by what can be done about them.

use sql::AdoptError;
use txn::id::TxId;
use txn::lane::LaneError;
use txn::protocol::{Misuse, Outcome};

/// Why a command on a transaction is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TxError {
    /// Nobody knows it any more: whether it happened is to be seen in the databases.
    #[error("no transaction {0} is known: it never began here, or ended long ago (TX.STATUS tells more)")]
    Unknown(TxId),
    /// It has an operator's attention, or needs none.
    #[error("no transaction {0} waits for an operator")]
    NotWaiting(String),
    /// Its end was chosen: that may be waited for.
    #[error("transaction {0} is being ended")]
    Ending(TxId),
    /// Another one is to be begun.
    #[error("transaction {tx} has ended: {}", said(.outcome))]
    Ended { tx: TxId, outcome: Outcome },
    /// A database takes no branch of the application's.
    #[error("{0}")]
    Database(#[from] AdoptError),
    /// The coordinator refuses.
    #[error("{0}")]
    Lane(#[from] LaneError),
}

impl TxError {
    /// Whether there is no such transaction: clients tell that from other errors by its code.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::NotWaiting(_) | Self::Lane(LaneError::Unknown(_)))
    }
}

impl From<Misuse> for TxError {
    fn from(misuse: Misuse) -> Self {
        Self::Lane(misuse.into())
    }
}

/// Why transactions cannot be had, or not as they are to be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransactionsError {
    /// A setting, named by the text, is to be changed.
    #[error("{0}")]
    Setting(String),
    /// The folder `txn` has something that cannot be read, or cannot be written.
    #[error("{0}")]
    Folder(String),
    /// The system refuses a thread, or another start of this server is in the way.
    #[error("{0}")]
    System(String),
}

/// How a transaction ended, for people.
fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Committed => "committed".to_owned(),
        Outcome::Aborted(why) => format!("aborted: {why}"),
        Outcome::Unknown(why) => format!("unknown: {why}"),
        Outcome::Heuristic(why) => format!("heuristic: {why}"),
    }
}
