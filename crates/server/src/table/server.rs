//! Commands about the server.
//!
//! One row a command, as `command::rows` describes; names and texts are those that clients of Redis know.

use crate::command::{Command, Handler, rows};
use crate::handlers::databases;

/// The rows.
pub(crate) const ROWS: &[Command] = rows! {
    "dbsize", 1, [READONLY FAST], [], Handler::Everything(databases::dbsize),
        "keyspace read fast", "request_policy:all_shards response_policy:agg_sum", "server", "1.0.0", "O(1)",
        "Return the number of keys in the selected database";
    "flushdb", -1, [WRITE], [], Handler::Everything(databases::flushdb),
        "keyspace write slow dangerous", "request_policy:all_shards response_policy:all_succeeded", "server", "1.0.0", "O(N)",
        "Remove all keys from the current database";
    "flushall", -1, [WRITE], [], Handler::Everything(databases::flushall),
        "keyspace write slow dangerous", "request_policy:all_shards response_policy:all_succeeded", "server", "1.0.0", "O(N)",
        "Remove all keys from all databases";
    "swapdb", 3, [WRITE FAST], [], Handler::Everything(databases::swapdb),
        "keyspace write fast dangerous", "", "server", "4.0.0", "O(N)",
        "Swaps two Redis databases";
};
