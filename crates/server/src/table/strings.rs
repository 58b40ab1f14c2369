//! Commands about strings.
//!
//! One row a command, as `command::rows` describes; names and texts are those that clients of Redis know.

use crate::command::{Command, Handler, keys, rows};
use crate::handlers::{lcs, numbers, ranges, strings};

/// The rows.
pub(crate) const ROWS: &[Command] = rows! {
    "get", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(strings::get),
        "read string fast", "", "string", "1.0.0", "O(1)",
        "Get the value of a key";
    "set", -3, [WRITE DENYOOM], [keys(1, 0, 1, "RW access update variable_flags")], Handler::Data(strings::set),
        "write string slow", "", "string", "1.0.0", "O(1)",
        "Set the string value of a key";
    "setnx", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "OW insert")], Handler::Data(strings::setnx),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Set the value of a key, only if the key does not exist";
    "setex", 4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update")], Handler::Data(strings::setex),
        "write string slow", "", "string", "2.0.0", "O(1)",
        "Set the value and expiration of a key";
    "psetex", 4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update")], Handler::Data(strings::psetex),
        "write string slow", "", "string", "2.6.0", "O(1)",
        "Set the value and expiration in milliseconds of a key";
    "getset", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(strings::getset),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Set the string value of a key and return its old value";
    "getdel", 2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(strings::getdel),
        "write string fast", "", "string", "6.2.0", "O(1)",
        "Get the value of a key and delete the key";
    "getex", -2, [WRITE FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(strings::getex),
        "write string fast", "", "string", "6.2.0", "O(1)",
        "Get the value of a key and optionally set its expiration";
    "mget", -2, [READONLY FAST], [keys(1, -1, 1, "RO access")], Handler::Data(strings::mget),
        "read string fast", "request_policy:multi_shard", "string", "1.0.0", "O(N)",
        "Get the values of all the given keys";
    "mset", -3, [WRITE DENYOOM], [keys(1, -1, 2, "OW update")], Handler::Data(strings::mset),
        "write string slow", "request_policy:multi_shard response_policy:all_succeeded", "string", "1.0.1", "O(N)",
        "Set multiple keys to multiple values";
    "msetnx", -3, [WRITE DENYOOM], [keys(1, -1, 2, "OW insert")], Handler::Data(strings::msetnx),
        "write string slow", "request_policy:multi_shard response_policy:agg_min", "string", "1.0.1", "O(N)",
        "Set multiple keys to multiple values, only if none of the keys exist";
    "append", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(ranges::append),
        "write string fast", "", "string", "2.0.0", "O(1)",
        "Append a value to a key";
    "strlen", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(ranges::strlen),
        "read string fast", "", "string", "2.2.0", "O(1)",
        "Get the length of the value stored in a key";
    "getrange", 4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(ranges::getrange),
        "read string slow", "", "string", "2.4.0", "O(N)",
        "Get a substring of the string stored at a key";
    "substr", 4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(ranges::substr),
        "read string slow", "", "string", "1.0.0", "O(N)",
        "Get a substring of the string stored at a key";
    "setrange", 4, [WRITE DENYOOM], [keys(1, 0, 1, "RW update")], Handler::Data(ranges::setrange),
        "write string slow", "", "string", "2.2.0", "O(1)",
        "Overwrite part of a string at key starting at the specified offset";
    "incr", 2, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::incr),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Increment the integer value of a key by one";
    "decr", 2, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::decr),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Decrement the integer value of a key by one";
    "incrby", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::incrby),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Increment the integer value of a key by the given amount";
    "decrby", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::decrby),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Decrement the integer value of a key by the given number";
    "incrbyfloat", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::incrbyfloat),
        "write string fast", "", "string", "2.6.0", "O(1)",
        "Increment the float value of a key by the given amount";
    "lcs", -3, [READONLY], [keys(1, 1, 1, "RO access")], Handler::Data(lcs::lcs),
        "read string slow", "", "string", "7.0.0", "O(N*M)",
        "Find longest common substring";
};
