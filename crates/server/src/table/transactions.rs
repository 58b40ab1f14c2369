//! Commands that group others.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use commands::command::keys;
use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::transactions;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "multi", 1, [NOSCRIPT LOADING STALE FAST ALLOW_BUSY], [], Handler::Control(transactions::multi),
        "fast transaction", "", "transactions", "1.2.0", "O(1)",
        "Mark the start of a transaction block";
    "exec", 1, [NOSCRIPT LOADING STALE SKIP_SLOWLOG], [], Handler::Exec,
        "slow transaction", "", "transactions", "1.2.0", "Depends on commands in the transaction",
        "Execute all commands issued after MULTI";
    "discard", 1, [NOSCRIPT LOADING STALE FAST ALLOW_BUSY], [], Handler::Control(transactions::discard),
        "fast transaction", "", "transactions", "2.0.0", "O(N)",
        "Discard all commands issued after MULTI";
    "watch", -2, [NOSCRIPT LOADING STALE FAST ALLOW_BUSY], [keys(1, -1, 1, "RO")], Handler::Control(transactions::watch),
        "fast transaction", "", "transactions", "2.2.0", "O(1)",
        "Watch the given keys to determine execution of the MULTI/EXEC block",
        args "key:key0+";
    "unwatch", 1, [NOSCRIPT LOADING STALE FAST ALLOW_BUSY], [], Handler::Control(transactions::unwatch),
        "fast transaction", "", "transactions", "2.2.0", "O(1)",
        "Forget about all watched keys";
};
