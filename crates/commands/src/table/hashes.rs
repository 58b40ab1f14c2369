//! Commands about hashes.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::keys;
use crate::handlers::{fields, hashes};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "hdel", -3, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(hashes::hdel),
        "write hash fast", "", "hash", "2.0.0", "O(N) where N is the number of fields to be removed.",
        "Delete one or more hash fields",
        args "key:key0 field:string+",
        history "2.4.0 Accepts multiple `field` arguments.",
        series hashes::hdel_series;
    "hexists", 3, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(hashes::hexists),
        "read hash fast", "", "hash", "2.0.0", "O(1)",
        "Determine if a hash field exists",
        args "key:key0 field:string";
    "hexpire", -6, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(fields::hexpire),
        "write hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Let fields of a hash end after so many seconds",
        args "key:key0 seconds:integer [condition(nx=NX|xx=XX|gt=GT|lt=LT)] fields{numfields:integer field:string+}=FIELDS";
    "hexpireat", -6, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(fields::hexpireat),
        "write hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Let fields of a hash end at a Unix time in seconds",
        args "key:key0 unix-time-seconds:unix-time [condition(nx=NX|xx=XX|gt=GT|lt=LT)] fields{numfields:integer field:string+}=FIELDS";
    "hexpiretime", -5, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(fields::hexpiretime),
        "read hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Tell when fields of a hash end, as Unix times in seconds",
        args "key:key0 fields{numfields:integer field:string+}=FIELDS";
    "hget", 3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hget),
        "read hash fast", "", "hash", "2.0.0", "O(1)",
        "Get the value of a hash field",
        args "key:key0 field:string";
    "hgetall", 2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hgetall),
        "read hash slow", "nondeterministic_output_order", "hash", "2.0.0", "O(N) where N is the size of the hash.",
        "Get all the fields and values in a hash",
        args "key:key0";
    "hgetdel", -5, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(hashes::hgetdel),
        "write hash fast", "", "hash", "8.0.0", "O(N) where N is the number of fields",
        "Get the values of fields and delete them",
        args "key:key0 fields{numfields:integer field:string+}=FIELDS";
    "hgetex", -5, [WRITE FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(fields::hgetex),
        "write hash fast", "", "hash", "8.0.0", "O(N) where N is the number of fields",
        "Get the values of fields, and let them end at some time or never",
        args "key:key0 [expiration(seconds:integer=EX|milliseconds:integer=PX|unix-time-seconds:unix-time=EXAT|unix-time-milliseconds:unix-time=PXAT|persist=PERSIST)] fields{numfields:integer field:string+}=FIELDS";
    "hincrby", 4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(hashes::hincrby),
        "write hash fast", "", "hash", "2.0.0", "O(1)",
        "Increment the integer value of a hash field by the given number",
        args "key:key0 field:string increment:integer",
        series hashes::hincrby_series;
    "hincrbyfloat", 4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(hashes::hincrbyfloat),
        "write hash fast", "", "hash", "2.6.0", "O(1)",
        "Increment the float value of a hash field by the given amount",
        args "key:key0 field:string increment:double";
    "hkeys", 2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hkeys),
        "read hash slow", "nondeterministic_output_order", "hash", "2.0.0", "O(N) where N is the size of the hash.",
        "Get all the fields in a hash",
        args "key:key0";
    "hlen", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(hashes::hlen),
        "read hash fast", "", "hash", "2.0.0", "O(1)",
        "Get the number of fields in a hash",
        args "key:key0";
    "hmget", -3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hmget),
        "read hash fast", "", "hash", "2.0.0", "O(N) where N is the number of fields being requested.",
        "Get the values of all the given hash fields",
        args "key:key0 field:string+";
    "hmset", -4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(hashes::hmset),
        "write hash fast", "", "hash", "2.0.0", "O(N) where N is the number of fields being set.",
        "Set multiple hash fields to multiple values",
        args "key:key0 field_value{field:string value:string}+",
        deprecated "4.0.0 `HSET` with multiple field-value pairs";
    "hpersist", -5, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(fields::hpersist),
        "write hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Let fields of a hash end never",
        args "key:key0 fields{numfields:integer field:string+}=FIELDS";
    "hpexpire", -6, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(fields::hpexpire),
        "write hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Let fields of a hash end after so many milliseconds",
        args "key:key0 milliseconds:integer [condition(nx=NX|xx=XX|gt=GT|lt=LT)] fields{numfields:integer field:string+}=FIELDS";
    "hpexpireat", -6, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(fields::hpexpireat),
        "write hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Let fields of a hash end at a Unix time in milliseconds",
        args "key:key0 unix-time-milliseconds:unix-time [condition(nx=NX|xx=XX|gt=GT|lt=LT)] fields{numfields:integer field:string+}=FIELDS";
    "hpexpiretime", -5, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(fields::hpexpiretime),
        "read hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Tell when fields of a hash end, as Unix times in milliseconds",
        args "key:key0 fields{numfields:integer field:string+}=FIELDS";
    "hpttl", -5, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(fields::hpttl),
        "read hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Tell how many milliseconds fields of a hash have left",
        args "key:key0 fields{numfields:integer field:string+}=FIELDS";
    "hrandfield", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hrandfield),
        "read hash slow", "nondeterministic_output", "hash", "6.2.0", "O(N) where N is the number of fields returned",
        "Get one or multiple random fields from a hash",
        args "key:key0 [options{count:integer [withvalues=WITHVALUES]}]";
    "hscan", -3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hscan),
        "read hash slow", "nondeterministic_output", "hash", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        "Incrementally iterate hash fields and associated values",
        args "key:key0 cursor:integer [pattern:pattern=MATCH] [count:integer=COUNT] [novalues=NOVALUES]";
    "hset", -4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(hashes::hset),
        "write hash fast", "", "hash", "2.0.0", "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.",
        "Set the string value of a hash field",
        args "key:key0 field_value{field:string value:string}+",
        history "4.0.0 Accepts multiple `field` and `value` arguments.",
        series hashes::hset_series;
    "hsetex", -6, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(fields::hsetex),
        "write hash fast", "", "hash", "8.0.0", "O(N) where N is the number of fields",
        "Set fields that are all there or not, and let them end at some time or never",
        args "key:key0 [condition(fnx=FNX|fxx=FXX)] [expiration(seconds:integer=EX|milliseconds:integer=PX|unix-time-seconds:unix-time=EXAT|unix-time-milliseconds:unix-time=PXAT|keepttl=KEEPTTL)] fields{numfields:integer data{field:string value:string}+}=FIELDS";
    "hsetnx", 4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(hashes::hsetnx),
        "write hash fast", "", "hash", "2.0.0", "O(1)",
        "Set the value of a hash field, only if the field does not exist",
        args "key:key0 field:string value:string";
    "hstrlen", 3, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(hashes::hstrlen),
        "read hash fast", "", "hash", "3.2.0", "O(1)",
        "Get the length of the value of a hash field",
        args "key:key0 field:string";
    "httl", -5, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(fields::httl),
        "read hash fast", "", "hash", "7.4.0", "O(N) where N is the number of fields",
        "Tell how many seconds fields of a hash have left",
        args "key:key0 fields{numfields:integer field:string+}=FIELDS";
    "hvals", 2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(hashes::hvals),
        "read hash slow", "nondeterministic_output_order", "hash", "2.0.0", "O(N) where N is the size of the hash.",
        "Get all the values in a hash",
        args "key:key0";
};
