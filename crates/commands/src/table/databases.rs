//! Commands about whole databases.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::handlers::databases;
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "dbsize", 1, [READONLY FAST], [], Handler::Walk(databases::dbsize),
        "keyspace read fast", "request_policy:all_shards response_policy:agg_sum", "server", "1.0.0", "O(1)",
        "Return the number of keys in the selected database";
    "flushdb", -1, [WRITE], [], Handler::Everything(databases::flushdb),
        "keyspace write slow dangerous", "request_policy:all_shards response_policy:all_succeeded", "server", "1.0.0", "O(N)",
        "Remove all keys from the current database",
        args "[async(async=ASYNC@4.0.0|sync=SYNC@6.2.0)]",
        history "4.0.0 Added the `ASYNC` flushing mode modifier.\n\
            6.2.0 Added the `SYNC` flushing mode modifier.";
    "flushall", -1, [WRITE], [], Handler::Everything(databases::flushall),
        "keyspace write slow dangerous", "request_policy:all_shards response_policy:all_succeeded", "server", "1.0.0", "O(N)",
        "Remove all keys from all databases",
        args "[async(async=ASYNC@4.0.0|sync=SYNC@6.2.0)]",
        history "4.0.0 Added the `ASYNC` flushing mode modifier.\n\
            6.2.0 Added the `SYNC` flushing mode modifier.";
    "swapdb", 3, [WRITE FAST], [], Handler::Everything(databases::swapdb),
        "keyspace write fast dangerous", "", "server", "4.0.0", "O(N)",
        "Swaps two Redis databases",
        args "index1:integer index2:integer";
};
