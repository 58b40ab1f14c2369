//! Commands about keys of any type.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::keys;
use crate::copies::Stored;
use crate::handlers::{dump, expiry, keys, object, scan};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "del", -2, [WRITE], [keys(1, -1, 1, "RM delete")], Handler::Data(keys::del),
        "keyspace write slow", "request_policy:multi_shard response_policy:agg_sum", "generic", "1.0.0", "O(N)",
        "Delete a key",
        args "key:key0+";
    "unlink", -2, [WRITE FAST], [keys(1, -1, 1, "RM delete")], Handler::Data(keys::unlink),
        "keyspace write fast", "request_policy:multi_shard response_policy:agg_sum", "generic", "4.0.0", "O(1)",
        "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.",
        args "key:key0+";
    "exists", -2, [READONLY FAST], [keys(1, -1, 1, "RO")], Handler::Data(keys::exists),
        "keyspace read fast", "request_policy:multi_shard response_policy:agg_sum", "generic", "1.0.0", "O(N)",
        "Determine if a key exists",
        args "key:key0+",
        history "3.0.3 Accepts multiple `key` arguments.";
    "type", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(keys::type_),
        "keyspace read fast", "", "generic", "1.0.0", "O(1)",
        "Determine the type stored at key",
        args "key:key0";
    "touch", -2, [READONLY FAST], [keys(1, -1, 1, "RO")], Handler::Data(keys::touch),
        "keyspace read fast", "request_policy:multi_shard response_policy:agg_sum", "generic", "3.2.1", "O(N)",
        "Alters the last access time of a key(s). Returns the number of existing keys specified.",
        args "key:key0+";
    "expire", -3, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(expiry::expire),
        "keyspace write fast", "", "generic", "1.0.0", "O(1)",
        "Set a key's time to live in seconds",
        args "key:key0 seconds:integer [condition(nx=NX|xx=XX|gt=GT|lt=LT)@7.0.0]",
        history "7.0.0 Added options: `NX`, `XX`, `GT` and `LT`.";
    "pexpire", -3, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(expiry::pexpire),
        "keyspace write fast", "", "generic", "2.6.0", "O(1)",
        "Set a key's time to live in milliseconds",
        args "key:key0 milliseconds:integer [condition(nx=NX|xx=XX|gt=GT|lt=LT)@7.0.0]",
        history "7.0.0 Added options: `NX`, `XX`, `GT` and `LT`.";
    "expireat", -3, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(expiry::expireat),
        "keyspace write fast", "", "generic", "1.2.0", "O(1)",
        "Set the expiration for a key as a UNIX timestamp",
        args "key:key0 unix-time-seconds:unix-time [condition(nx=NX|xx=XX|gt=GT|lt=LT)@7.0.0]",
        history "7.0.0 Added options: `NX`, `XX`, `GT` and `LT`.";
    "pexpireat", -3, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(expiry::pexpireat),
        "keyspace write fast", "", "generic", "2.6.0", "O(1)",
        "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
        args "key:key0 unix-time-milliseconds:unix-time [condition(nx=NX|xx=XX|gt=GT|lt=LT)@7.0.0]",
        history "7.0.0 Added options: `NX`, `XX`, `GT` and `LT`.";
    "ttl", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(expiry::ttl),
        "keyspace read fast", "nondeterministic_output", "generic", "1.0.0", "O(1)",
        "Get the time to live for a key in seconds",
        args "key:key0",
        history "2.8.0 Added the -2 reply.";
    "pttl", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(expiry::pttl),
        "keyspace read fast", "nondeterministic_output", "generic", "2.6.0", "O(1)",
        "Get the time to live for a key in milliseconds",
        args "key:key0",
        history "2.8.0 Added the -2 reply.";
    "expiretime", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(expiry::expiretime),
        "keyspace read fast", "", "generic", "7.0.0", "O(1)",
        "Get the expiration Unix timestamp for a key",
        args "key:key0";
    "pexpiretime", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(expiry::pexpiretime),
        "keyspace read fast", "", "generic", "7.0.0", "O(1)",
        "Get the expiration Unix timestamp for a key in milliseconds",
        args "key:key0";
    "persist", 2, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(expiry::persist),
        "keyspace write fast", "", "generic", "2.2.0", "O(1)",
        "Remove the expiration from a key",
        args "key:key0";
    "rename", 3, [WRITE], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "OW update")], Handler::Data(keys::rename),
        "keyspace write slow", "", "generic", "1.0.0", "O(1)",
        "Rename a key",
        args "key:key0 newkey:key1";
    "renamenx", 3, [WRITE FAST], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "OW insert")], Handler::Data(keys::renamenx),
        "keyspace write fast", "", "generic", "1.0.0", "O(1)",
        "Rename a key, only if the new key does not exist",
        args "key:key0 newkey:key1",
        history "3.2.0 The command no longer returns an error when source and destination names are the same.";
    "copy", -3, [WRITE DENYOOM], [keys(1, 0, 1, "RO access"), keys(2, 0, 1, "OW update")], Handler::Across(keys::copy, keys::copy_target),
        "keyspace write slow", "", "generic", "6.2.0", "O(N)",
        "Copy a key",
        args "source:key0 destination:key1 [destination-db:integer=DB] [replace=REPLACE]";
    "move", 3, [WRITE FAST], [keys(1, 0, 1, "RW access update")], Handler::Across(keys::move_, keys::move_target),
        "keyspace write fast", "", "generic", "1.0.0", "O(1)",
        "Move a key to another database",
        args "key:key0 db:integer";
    "keys", 2, [READONLY], [], Handler::Walk(scan::keys),
        "keyspace read slow dangerous", "request_policy:all_shards nondeterministic_output_order", "generic", "1.0.0", "O(N)",
        "Find all keys matching the given pattern",
        args "pattern:pattern";
    "scan", -2, [READONLY], [], Handler::Walk(scan::scan),
        "keyspace read slow", "nondeterministic_output request_policy:special", "generic", "2.8.0", "O(1)",
        "Incrementally iterate the keys space",
        args "cursor:integer [pattern:pattern=MATCH] [count:integer=COUNT] [type:string=TYPE@6.0.0]",
        history "6.0.0 Added the `TYPE` subcommand.";
    "randomkey", 1, [READONLY], [], Handler::Walk(scan::randomkey),
        "keyspace read slow", "request_policy:all_shards nondeterministic_output", "generic", "1.0.0", "O(1)",
        "Return a random key from the keyspace";
    "object", -2, [], [], Handler::Container(OBJECT),
        "slow", "", "generic", "2.2.3", "Depends on subcommand.",
        "A container for object introspection commands";
    "dump", 2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(dump::dump),
        "keyspace read slow", "nondeterministic_output", "generic", "2.6.0", "O(1)",
        "Return a serialized version of the value stored at the specified key.",
        args "key:key0";
    "restore", -4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update")], Handler::Data(dump::restore),
        "keyspace write slow dangerous", "", "generic", "2.6.0", "O(1)",
        "Create a key using the provided serialized value, previously obtained using DUMP.",
        args "key:key0 ttl:integer serialized-value:string [replace=REPLACE@3.0.0] [absttl=ABSTTL@5.0.0] [seconds:integer=IDLETIME@5.0.0] [frequency:integer=FREQ@5.0.0]",
        history "3.0.0 Added the `REPLACE` modifier.\n\
            5.0.0 Added the `ABSTTL` modifier.\n\
            5.0.0 Added the `IDLETIME` and `FREQ` options.",
        stored Stored::Payload(3);
};

/// Subcommands of OBJECT.
const OBJECT: &[Row] = rows! {
    "object|encoding", 3, [READONLY], [keys(2, 0, 1, "RO")], Handler::Data(object::encoding),
        "keyspace read slow", "nondeterministic_output", "generic", "2.2.3", "O(1)",
        "Inspect the internal encoding of a Redis object",
        args "key:key0";
    "object|freq", 3, [READONLY], [keys(2, 0, 1, "RO")], Handler::Data(object::freq),
        "keyspace read slow", "nondeterministic_output", "generic", "4.0.0", "O(1)",
        "Get the logarithmic access frequency counter of a Redis object",
        args "key:key0";
    "object|help", 2, [LOADING STALE], [], Handler::Data(object::help),
        "keyspace slow", "", "generic", "6.2.0", "O(1)",
        "Show helpful text about the different subcommands";
    "object|idletime", 3, [READONLY], [keys(2, 0, 1, "RO")], Handler::Data(object::idletime),
        "keyspace read slow", "nondeterministic_output", "generic", "2.2.3", "O(1)",
        "Get the time since a Redis object was last accessed",
        args "key:key0";
    "object|refcount", 3, [READONLY], [keys(2, 0, 1, "RO")], Handler::Data(object::refcount),
        "keyspace read slow", "nondeterministic_output", "generic", "2.2.3", "O(1)",
        "Get the number of references to the value of the key",
        args "key:key0";
};
