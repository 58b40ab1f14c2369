//! Commands of transactions over keys and databases.
//!
//! One row a command, as `row` describes. Redis has none of them.

use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::tx;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "tx.begin", -1, [NOSCRIPT NO_MULTI FAST], [], Handler::Control(tx::begin),
        "fast transaction", "", "transactions", "7.2.0", "O(1)",
        "Begins a transaction over keys and databases (not in Redis)",
        args "[timeout:integer=TIMEOUT]";
    "tx.enlist", -4, [NOSCRIPT NO_MULTI], [], Handler::Control(tx::enlist),
        "slow transaction", "", "transactions", "7.2.0", "O(1)",
        "Adds a branch that the application prepares itself to a transaction (not in Redis)",
        args "id:string resource:string=RESOURCE [branch:string=BRANCH] [session:integer=OWNER]";
    "tx.sql", -4, [NOSCRIPT NO_MULTI], [], Handler::Control(tx::sql),
        "slow transaction", "", "transactions", "7.2.0", "Depends on the statement",
        "Runs a statement of SQL in a transaction (not in Redis)",
        args "id:string resource:string statement:string [parameter:string+]";
    "tx.do", -3, [WRITE NOSCRIPT NO_MULTI], [], Handler::Stage,
        "slow transaction", "", "transactions", "7.2.0", "Depends on the command",
        "Stages a command on keys in a transaction (not in Redis)",
        args "id:string command:string [argument:string+]";
    "tx.commit", 2, [WRITE NOSCRIPT NO_MULTI], [], Handler::Control(tx::commit),
        "slow transaction", "", "transactions", "7.2.0", "O(N)",
        "Commits a transaction, and tells its outcome (not in Redis)",
        args "id:string";
    "tx.rollback", 2, [NOSCRIPT NO_MULTI], [], Handler::Control(tx::rollback),
        "slow transaction", "", "transactions", "7.2.0", "O(N)",
        "Rolls a transaction back (not in Redis)",
        args "id:string";
    "tx.status", 2, [NOSCRIPT NO_MULTI], [], Handler::Control(tx::status),
        "slow transaction", "", "transactions", "7.2.0", "O(N)",
        "Tells what is known of a transaction (not in Redis)",
        args "id:string";
    "tx.list", -1, [NOSCRIPT NO_MULTI], [], Handler::Control(tx::list),
        "slow transaction", "", "transactions", "7.2.0", "O(N)",
        "Lists transactions that are under way, or in a state (not in Redis)",
        args "[state:string] [count:integer=COUNT]";
    "tx.resolve", -3, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(tx::resolve),
        "admin slow dangerous transaction", "", "transactions", "7.2.0", "O(N)",
        "An operator's word about a transaction that nobody else can end (not in Redis)",
        args "id:string end(commit=COMMIT|rollback=ROLLBACK) [dryrun=DRYRUN]";
    "tx.recover", 1, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(tx::recover),
        "admin slow transaction", "", "transactions", "7.2.0", "O(1)",
        "Asks all databases now what they hold prepared (not in Redis)";
};
