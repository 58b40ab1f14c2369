//! Commands about strings.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::{counted_pairs, keys};
use crate::copies::Stored;
use crate::handlers::{conditions, increments, lcs, numbers, ranges, strings};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "get", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(strings::get),
        "read string fast", "", "string", "1.0.0", "O(1)",
        "Get the value of a key",
        args "key:key0";
    "set", -3, [WRITE DENYOOM], [keys(1, 0, 1, "RW access update variable_flags")], Handler::Data(strings::set),
        "write string slow", "", "string", "1.0.0", "O(1)",
        "Set the string value of a key",
        args "key:key0 value:string [condition(nx=NX|xx=XX|ifeq-value:string=IFEQ@8.4.0|ifne-value:string=IFNE@8.4.0|ifdeq-digest:string=IFDEQ@8.4.0|ifdne-digest:string=IFDNE@8.4.0)@2.6.12] [get=GET@6.2.0] [expiration(seconds:integer=EX@2.6.12|milliseconds:integer=PX@2.6.12|unix-time-seconds:unix-time=EXAT@6.2.0|unix-time-milliseconds:unix-time=PXAT@6.2.0|keepttl=KEEPTTL@6.0.0)]",
        history "2.6.12 Added the `EX`, `PX`, `NX` and `XX` options.\n\
            6.0.0 Added the `KEEPTTL` option.\n\
            6.2.0 Added the `GET`, `EXAT` and `PXAT` option.\n\
            7.0.0 Allowed the `NX` and `GET` options to be used together.\n\
            8.4.0 Added the `IFEQ`, `IFNE`, `IFDEQ` and `IFDNE` options.",
        stored Stored::At(2);
    "setnx", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "OW insert")], Handler::Data(strings::setnx),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Set the value of a key, only if the key does not exist",
        args "key:key0 value:string",
        stored Stored::At(2);
    "setex", 4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update")], Handler::Data(strings::setex),
        "write string slow", "", "string", "2.0.0", "O(1)",
        "Set the value and expiration of a key",
        args "key:key0 seconds:integer value:string",
        stored Stored::At(3);
    "psetex", 4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update")], Handler::Data(strings::psetex),
        "write string slow", "", "string", "2.6.0", "O(1)",
        "Set the value and expiration in milliseconds of a key",
        args "key:key0 milliseconds:integer value:string",
        stored Stored::At(3);
    "getset", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(strings::getset),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Set the string value of a key and return its old value",
        args "key:key0 value:string",
        deprecated "6.2.0 `SET` with the `!GET` argument",
        stored Stored::At(2);
    "getdel", 2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(strings::getdel),
        "write string fast", "", "string", "6.2.0", "O(1)",
        "Get the value of a key and delete the key",
        args "key:key0";
    "getex", -2, [WRITE FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(strings::getex),
        "write string fast", "", "string", "6.2.0", "O(1)",
        "Get the value of a key and optionally set its expiration",
        args "key:key0 [expiration(seconds:integer=EX|milliseconds:integer=PX|unix-time-seconds:unix-time=EXAT|unix-time-milliseconds:unix-time=PXAT|persist=PERSIST)]";
    "mget", -2, [READONLY FAST], [keys(1, -1, 1, "RO access")], Handler::Data(strings::mget),
        "read string fast", "request_policy:multi_shard", "string", "1.0.0", "O(N)",
        "Get the values of all the given keys",
        args "key:key0+";
    "mset", -3, [WRITE DENYOOM], [keys(1, -1, 2, "OW update")], Handler::Data(strings::mset),
        "write string slow", "request_policy:multi_shard response_policy:all_succeeded", "string", "1.0.1", "O(N)",
        "Set multiple keys to multiple values",
        args "key_value{key:key0 value:string}+",
        stored Stored::Pairs(2);
    "msetnx", -3, [WRITE DENYOOM], [keys(1, -1, 2, "OW insert")], Handler::Data(strings::msetnx),
        "write string slow", "request_policy:multi_shard response_policy:agg_min", "string", "1.0.1", "O(N)",
        "Set multiple keys to multiple values, only if none of the keys exist",
        args "key_value{key:key0 value:string}+",
        stored Stored::Pairs(2);
    "msetex", -4, [WRITE DENYOOM], [counted_pairs(1, "OW update")], Handler::Data(strings::msetex),
        "write string slow", "request_policy:multi_shard response_policy:all_succeeded", "string", "8.4.0", "O(N) where N is the number of keys",
        "Set multiple keys to multiple values, with one expiration for all of them, if all or none of them exist",
        args "numkeys:integer data{key:key0 value:string}+ [condition(nx=NX|xx=XX)] [expiration(seconds:integer=EX|milliseconds:integer=PX|unix-time-seconds:unix-time=EXAT|unix-time-milliseconds:unix-time=PXAT|keepttl=KEEPTTL)]",
        stored Stored::Pairs(3);
    "digest", 2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(conditions::digest),
        "read string fast", "", "string", "8.4.0", "O(N) where N is the length of the value",
        "Get the XXH3 digest of the value of a key in hexadecimal digits",
        args "key:key0";
    "delex", -2, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(conditions::delex),
        "write string fast", "", "string", "8.4.0", "O(1); O(N) for digests, where N is the length of the value",
        "Delete a key if its value or the digest of it fits",
        args "key:key0 [condition(ifeq-value:string=IFEQ|ifne-value:string=IFNE|ifdeq-digest:string=IFDEQ|ifdne-digest:string=IFDNE)]";
    "delifeq", 3, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(conditions::delifeq),
        "write string fast", "", "string", "9.0.0", "O(1)",
        "Delete a key if it has this value",
        args "key:key0 value:string";
    "append", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(ranges::append),
        "write string fast", "", "string", "2.0.0", "O(1)",
        "Append a value to a key",
        args "key:key0 value:string";
    "strlen", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(ranges::strlen),
        "read string fast", "", "string", "2.2.0", "O(1)",
        "Get the length of the value stored in a key",
        args "key:key0";
    "getrange", 4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(ranges::getrange),
        "read string slow", "", "string", "2.4.0", "O(N)",
        "Get a substring of the string stored at a key",
        args "key:key0 start:integer end:integer";
    "substr", 4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(ranges::substr),
        "read string slow", "", "string", "1.0.0", "O(N)",
        "Get a substring of the string stored at a key",
        args "key:key0 start:integer end:integer",
        deprecated "2.0.0 `GETRANGE`";
    "setrange", 4, [WRITE DENYOOM], [keys(1, 0, 1, "RW update")], Handler::Data(ranges::setrange),
        "write string slow", "", "string", "2.2.0", "O(1)",
        "Overwrite part of a string at key starting at the specified offset",
        args "key:key0 offset:integer value:string";
    "incr", 2, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::incr),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Increment the integer value of a key by one",
        args "key:key0";
    "decr", 2, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::decr),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Decrement the integer value of a key by one",
        args "key:key0";
    "incrby", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::incrby),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Increment the integer value of a key by the given amount",
        args "key:key0 increment:integer";
    "decrby", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::decrby),
        "write string fast", "", "string", "1.0.0", "O(1)",
        "Decrement the integer value of a key by the given number",
        args "key:key0 decrement:integer";
    "incrbyfloat", 3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(numbers::incrbyfloat),
        "write string fast", "", "string", "2.6.0", "O(1)",
        "Increment the float value of a key by the given amount",
        args "key:key0 increment:double";
    "increx", -2, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(increments::increx),
        "write string fast", "", "string", "8.8.0", "O(1)",
        "Increment the number of a key within bounds, and set its expiration",
        args "key:key0 [increment(float:double=BYFLOAT|integer:integer=BYINT)] [saturate=SATURATE] [lowerbound:string=LBOUND] [upperbound:string=UBOUND] [expiration(seconds:integer=EX|milliseconds:integer=PX|unix-time-seconds:unix-time=EXAT|unix-time-milliseconds:unix-time=PXAT|persist=PERSIST)] [enx=ENX]";
    "lcs", -3, [READONLY], [keys(1, 1, 1, "RO access")], Handler::Data(lcs::lcs),
        "read string slow", "", "string", "7.0.0", "O(N*M)",
        "Find longest common substring",
        args "key1:key0 key2:key0 [len=LEN] [idx=IDX] [len:integer=MINMATCHLEN] [withmatchlen=WITHMATCHLEN]";
};
