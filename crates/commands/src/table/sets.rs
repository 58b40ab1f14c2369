//! Commands about sets.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::{counted_keys, keys};
use crate::handlers::sets;
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "sadd", -3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(sets::sadd),
        "write set fast", "", "set", "1.0.0", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        "Add one or more members to a set",
        args "key:key0 member:string+",
        history "2.4.0 Accepts multiple `member` arguments.",
        series sets::sadd_series;
    "scard", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(sets::scard),
        "read set fast", "", "set", "1.0.0", "O(1)",
        "Get the number of members in a set",
        args "key:key0";
    "sdiff", -2, [READONLY], [keys(1, -1, 1, "RO access")], Handler::Data(sets::sdiff),
        "read set slow", "nondeterministic_output_order", "set", "1.0.0", "O(N) where N is the total number of elements in all given sets.",
        "Subtract multiple sets",
        args "key:key0+";
    "sdiffcard", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(sets::sdiffcard),
        "read set slow", "", "set", "8.10.0", "O(N) where N is the total number of elements in all given sets.",
        "Subtract multiple sets and return the cardinality of the result",
        args "numkeys:integer key:key0+ [limit:integer=LIMIT]";
    "sdiffstore", -3, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), keys(2, -1, 1, "RO access")], Handler::Data(sets::sdiffstore),
        "write set slow", "", "set", "1.0.0", "O(N) where N is the total number of elements in all given sets.",
        "Subtract multiple sets and store the resulting set in a key",
        args "destination:key0 key:key1+";
    "sinter", -2, [READONLY], [keys(1, -1, 1, "RO access")], Handler::Data(sets::sinter),
        "read set slow", "nondeterministic_output_order", "set", "1.0.0", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
        "Intersect multiple sets",
        args "key:key0+";
    "sintercard", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(sets::sintercard),
        "read set slow", "", "set", "7.0.0", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
        "Intersect multiple sets and return the cardinality of the result",
        args "numkeys:integer key:key0+ [limit:integer=LIMIT]";
    "sinterstore", -3, [WRITE DENYOOM], [keys(1, 0, 1, "RW update"), keys(2, -1, 1, "RO access")], Handler::Data(sets::sinterstore),
        "write set slow", "", "set", "1.0.0", "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
        "Intersect multiple sets and store the resulting set in a key",
        args "destination:key0 key:key1+";
    "sismember", 3, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(sets::sismember),
        "read set fast", "", "set", "1.0.0", "O(1)",
        "Determine if a given value is a member of a set",
        args "key:key0 member:string";
    "smembers", 2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(sets::smembers),
        "read set slow", "nondeterministic_output_order", "set", "1.0.0", "O(N) where N is the set cardinality.",
        "Get all the members in a set",
        args "key:key0";
    "smismember", -3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(sets::smismember),
        "read set fast", "", "set", "6.2.0", "O(N) where N is the number of elements being checked for membership",
        "Returns the membership associated with the given elements for a set",
        args "key:key0 member:string+";
    "smove", 4, [WRITE FAST], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(sets::smove),
        "write set fast", "", "set", "1.0.0", "O(1)",
        "Move a member from one set to another",
        args "source:key0 destination:key1 member:string";
    "spop", -2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(sets::spop),
        "write set fast", "nondeterministic_output", "set", "1.0.0", "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.",
        "Remove and return one or multiple random members from a set",
        args "key:key0 [count:integer@3.2.0]",
        history "3.2.0 Added the `count` argument.";
    "srandmember", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(sets::srandmember),
        "read set slow", "nondeterministic_output", "set", "1.0.0", "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.",
        "Get one or multiple random members from a set",
        args "key:key0 [count:integer@2.6.0]",
        history "2.6.0 Added the optional `count` argument.";
    "srem", -3, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(sets::srem),
        "write set fast", "", "set", "1.0.0", "O(N) where N is the number of members to be removed.",
        "Remove one or more members from a set",
        args "key:key0 member:string+",
        history "2.4.0 Accepts multiple `member` arguments.",
        series sets::srem_series;
    "sscan", -3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(sets::sscan),
        "read set slow", "nondeterministic_output", "set", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        "Incrementally iterate Set elements",
        args "key:key0 cursor:integer [pattern:pattern=MATCH] [count:integer=COUNT]";
    "sunion", -2, [READONLY], [keys(1, -1, 1, "RO access")], Handler::Data(sets::sunion),
        "read set slow", "nondeterministic_output_order", "set", "1.0.0", "O(N) where N is the total number of elements in all given sets.",
        "Add multiple sets",
        args "key:key0+";
    "sunioncard", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(sets::sunioncard),
        "read set slow", "", "set", "8.10.0", "O(N) where N is the total number of elements in all given sets.",
        "Add multiple sets and return the cardinality of the result, or about that",
        args "numkeys:integer key:key0+ [approx=APPROX] [limit:integer=LIMIT]";
    "sunionstore", -3, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), keys(2, -1, 1, "RO access")], Handler::Data(sets::sunionstore),
        "write set slow", "", "set", "1.0.0", "O(N) where N is the total number of elements in all given sets.",
        "Add multiple sets and store the resulting set in a key",
        args "destination:key0 key:key1+";
};
