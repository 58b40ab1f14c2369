//! Why a lane does not do what it is told, by what the caller can do.

use crate::id::TxId;
use crate::protocol::Misuse;
use crate::resource::Unready;

/// Why a lane does not do what it is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// There is no such transaction in this lane: it has ended, or never began.
    #[error("no transaction {0} is known here: it has ended, or never began")]
    Unknown(TxId),
    /// Its state does not allow it.
    #[error("{0}")]
    Misuse(#[from] Misuse),
    /// There are too many.
    #[error("{0} transactions are under way, as many as txn.transactions_max allows")]
    TooMany(u64),
    /// The log takes nothing any more, or the coordinator ends.
    #[error("transactions cannot begin: {0}")]
    Closed(&'static str),
    /// No resource has this place.
    #[error("there is no resource {0}")]
    NoResource(u16),
    /// The resource takes no branches now.
    #[error("resource {0} takes no branches: {1}")]
    NotReady(Box<str>, Unready),
}
