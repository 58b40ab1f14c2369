//! Commands about bits of strings, and HyperLogLogs.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::keys;
use crate::handlers::{bitfields, bitmaps, hyperloglogs};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "bitcount", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(bitmaps::bitcount),
        "read bitmap slow", "", "bitmap", "2.6.0", "O(N)",
        "Count set bits in a string",
        args "key:key0 [index{start:integer end:integer [index_unit(byte=BYTE|bit=BIT)@7.0.0]}]",
        history "7.0.0 Added the `BYTE|BIT` option.";
    "bitfield", -2, [WRITE DENYOOM], [keys(1, 0, 1, "RW access update variable_flags")], Handler::Data(bitfields::bitfield),
        "write bitmap slow", "", "bitmap", "3.2.0", "O(1) for each subcommand specified",
        "Perform arbitrary bitfield integer operations on strings",
        args "key:key0 [operation(encoding_offset{encoding:string offset:integer}=GET|write{[wrap_sat_fail(wrap=WRAP|sat=SAT|fail=FAIL)=OVERFLOW] write_operation(encoding_offset_value{encoding:string offset:integer value:integer}=SET|encoding_offset_increment{encoding:string offset:integer increment:integer}=INCRBY)})+]";
    "bitfield_ro", -2, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(bitfields::bitfield_ro),
        "read bitmap fast", "", "bitmap", "6.0.0", "O(1) for each subcommand specified",
        "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD",
        args "key:key0 [encoding_offset{encoding:string offset:integer}=GET++]";
    "bitop", -4, [WRITE DENYOOM], [keys(2, 0, 1, "OW update"), keys(3, -1, 1, "RO access")], Handler::Data(bitmaps::bitop),
        "write bitmap slow", "", "bitmap", "2.6.0", "O(N)",
        "Perform bitwise operations between strings",
        args "operation:string destkey:key0 key:key1+";
    "bitpos", -3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(bitmaps::bitpos),
        "read bitmap slow", "", "bitmap", "2.8.7", "O(N)",
        "Find first bit set or clear in a string",
        args "key:key0 bit:integer [index{start:integer [end_index{end:integer [index_unit(byte=BYTE|bit=BIT)@7.0.0]}]}]",
        history "7.0.0 Added the `BYTE|BIT` option.";
    "getbit", 3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(bitmaps::getbit),
        "read bitmap fast", "", "bitmap", "2.2.0", "O(1)",
        "Returns the bit value at offset in the string value stored at key",
        args "key:key0 offset:integer";
    "setbit", 4, [WRITE DENYOOM], [keys(1, 0, 1, "RW access update")], Handler::Data(bitmaps::setbit),
        "write bitmap slow", "", "bitmap", "2.2.0", "O(1)",
        "Sets or clears the bit at offset in the string value stored at key",
        args "key:key0 offset:integer value:integer";
    "pfadd", -2, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(hyperloglogs::pfadd),
        "write hyperloglog fast", "", "hyperloglog", "2.8.9", "O(1) to add every element.",
        "Adds the specified elements to the specified HyperLogLog.",
        args "key:key0 [element:string+]";
    "pfcount", -2, [READONLY], [keys(1, -1, 1, "RW access")], Handler::Data(hyperloglogs::pfcount),
        "read hyperloglog slow", "", "hyperloglog", "2.8.9", "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.",
        "Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).",
        args "key:key0+";
    "pfmerge", -2, [WRITE DENYOOM], [keys(1, 0, 1, "RW access insert"), keys(2, -1, 1, "RO access")], Handler::Data(hyperloglogs::pfmerge),
        "write hyperloglog slow", "", "hyperloglog", "2.8.9", "O(N) to merge N HyperLogLogs, but with high constant times.",
        "Merge N different HyperLogLogs into a single one.",
        args "destkey:key0 sourcekey:key1+";
};
