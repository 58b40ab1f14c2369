//! Commands about lists, and SORT.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::{counted_keys, key_behind_last, keys};
use crate::handlers::{list_moves, lists, sort};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "blmove", 6, [WRITE DENYOOM NOSCRIPT BLOCKING], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(lists::blmove),
        "write list slow blocking", "", "list", "6.2.0", "O(1)",
        "Pop an element from a list, push it to another list and return it; or block until one is available",
        args "source:key0 destination:key1 wherefrom(left=LEFT|right=RIGHT) whereto(left=LEFT|right=RIGHT) timeout:double";
    "blmovem", -6, [WRITE DENYOOM BLOCKING], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(list_moves::blmovem),
        "write list slow blocking", "", "list", "8.10.0", "O(N) where N is the number of elements moved.",
        "Move elements from a list to another and return them; or block until there are enough",
        args "source:key0 destination:key1 wherefrom(left=LEFT|right=RIGHT) whereto(left=LEFT|right=RIGHT) timeout:double [how-many{selector(count:integer=COUNT|exactly:integer=EXACTLY) ordering(obo=OBO|bulk=BULK)}]";
    "blmpop", -5, [WRITE BLOCKING], [counted_keys(2, "RW access delete")], Handler::Data(lists::blmpop),
        "write list slow blocking", "", "list", "7.0.0", "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        "Pop elements from a list, or block until one is available",
        args "timeout:double numkeys:integer key:key0+ where(left=LEFT|right=RIGHT) [count:integer=COUNT]";
    "blpop", -3, [WRITE NOSCRIPT BLOCKING], [keys(1, -2, 1, "RW access delete")], Handler::Data(lists::blpop),
        "write list slow blocking", "", "list", "2.0.0", "O(N) where N is the number of provided keys.",
        "Remove and get the first element in a list, or block until one is available",
        args "key:key0+ timeout:double",
        history "6.0.0 `timeout` is interpreted as a double instead of an integer.";
    "brpop", -3, [WRITE NOSCRIPT BLOCKING], [keys(1, -2, 1, "RW access delete")], Handler::Data(lists::brpop),
        "write list slow blocking", "", "list", "2.0.0", "O(N) where N is the number of provided keys.",
        "Remove and get the last element in a list, or block until one is available",
        args "key:key0+ timeout:double",
        history "6.0.0 `timeout` is interpreted as a double instead of an integer.";
    "brpoplpush", 4, [WRITE DENYOOM NOSCRIPT BLOCKING], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(lists::brpoplpush),
        "write list slow blocking", "", "list", "2.2.0", "O(1)",
        "Pop an element from a list, push it to another list and return it; or block until one is available",
        args "source:key0 destination:key1 timeout:double",
        history "6.0.0 `timeout` is interpreted as a double instead of an integer.",
        deprecated "6.2.0 `BLMOVE` with the `RIGHT` and `LEFT` arguments";
    "lindex", 3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(lists::lindex),
        "read list slow", "", "list", "1.0.0", "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).",
        "Get an element from a list by its index",
        args "key:key0 index:integer";
    "linsert", 5, [WRITE DENYOOM], [keys(1, 0, 1, "RW insert")], Handler::Data(lists::linsert),
        "write list slow", "", "list", "2.2.0", "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).",
        "Insert an element before or after another element in a list",
        args "key:key0 where(before=BEFORE|after=AFTER) pivot:string element:string";
    "llen", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(lists::llen),
        "read list fast", "", "list", "1.0.0", "O(1)",
        "Get the length of a list",
        args "key:key0";
    "lmove", 5, [WRITE DENYOOM], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(lists::lmove),
        "write list slow", "", "list", "6.2.0", "O(1)",
        "Pop an element from a list, push it to another list and return it",
        args "source:key0 destination:key1 wherefrom(left=LEFT|right=RIGHT) whereto(left=LEFT|right=RIGHT)";
    "lmovem", -5, [WRITE DENYOOM], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(list_moves::lmovem),
        "write list slow", "", "list", "8.10.0", "O(N) where N is the number of elements moved.",
        "Move elements from a list to another and return them",
        args "source:key0 destination:key1 wherefrom(left=LEFT|right=RIGHT) whereto(left=LEFT|right=RIGHT) [how-many{selector(count:integer=COUNT|exactly:integer=EXACTLY) ordering(obo=OBO|bulk=BULK)}]";
    "lmpop", -4, [WRITE], [counted_keys(1, "RW access delete")], Handler::Data(lists::lmpop),
        "write list slow", "", "list", "7.0.0", "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        "Pop elements from a list",
        args "numkeys:integer key:key0+ where(left=LEFT|right=RIGHT) [count:integer=COUNT]";
    "lpop", -2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(lists::lpop),
        "write list fast", "", "list", "1.0.0", "O(N) where N is the number of elements returned",
        "Remove and get the first elements in a list",
        args "key:key0 [count:integer@6.2.0]",
        history "6.2.0 Added the `count` argument.",
        series lists::lpop_series;
    "lpos", -3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(lists::lpos),
        "read list slow", "", "list", "6.0.6", "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.",
        "Return the index of matching elements on a list",
        args "key:key0 element:string [rank:integer=RANK] [num-matches:integer=COUNT] [len:integer=MAXLEN]";
    "lpush", -3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(lists::lpush),
        "write list fast", "", "list", "1.0.0", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        "Prepend one or multiple elements to a list",
        args "key:key0 element:string+",
        history "2.4.0 Accepts multiple `element` arguments.",
        series lists::lpush_series;
    "lpushx", -3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(lists::lpushx),
        "write list fast", "", "list", "2.2.0", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        "Prepend an element to a list, only if the list exists",
        args "key:key0 element:string+",
        history "4.0.0 Accepts multiple `element` arguments.";
    "lrange", 4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(lists::lrange),
        "read list slow", "", "list", "1.0.0", "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.",
        "Get a range of elements from a list",
        args "key:key0 start:integer stop:integer";
    "lrem", 4, [WRITE], [keys(1, 0, 1, "RW delete")], Handler::Data(lists::lrem),
        "write list slow", "", "list", "1.0.0", "O(N+M) where N is the length of the list and M is the number of elements removed.",
        "Remove elements from a list",
        args "key:key0 count:integer element:string";
    "lset", 4, [WRITE DENYOOM], [keys(1, 0, 1, "RW update")], Handler::Data(lists::lset),
        "write list slow", "", "list", "1.0.0", "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).",
        "Set the value of an element in a list by its index",
        args "key:key0 index:integer element:string";
    "ltrim", 4, [WRITE], [keys(1, 0, 1, "RW delete")], Handler::Data(lists::ltrim),
        "write list slow", "", "list", "1.0.0", "O(N) where N is the number of elements to be removed by the operation.",
        "Trim a list to the specified range",
        args "key:key0 start:integer stop:integer";
    "rpop", -2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(lists::rpop),
        "write list fast", "", "list", "1.0.0", "O(N) where N is the number of elements returned",
        "Remove and get the last elements in a list",
        args "key:key0 [count:integer@6.2.0]",
        history "6.2.0 Added the `count` argument.",
        series lists::rpop_series;
    "rpoplpush", 3, [WRITE DENYOOM], [keys(1, 0, 1, "RW access delete"), keys(2, 0, 1, "RW insert")], Handler::Data(lists::rpoplpush),
        "write list slow", "", "list", "1.2.0", "O(1)",
        "Remove the last element in a list, prepend it to another list and return it",
        args "source:key0 destination:key1",
        deprecated "6.2.0 `LMOVE` with the `RIGHT` and `LEFT` arguments";
    "rpush", -3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(lists::rpush),
        "write list fast", "", "list", "1.0.0", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        "Append one or multiple elements to a list",
        args "key:key0 element:string+",
        history "2.4.0 Accepts multiple `element` arguments.",
        series lists::rpush_series;
    "rpushx", -3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW insert")], Handler::Data(lists::rpushx),
        "write list fast", "", "list", "2.2.0", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        "Append an element to a list, only if the list exists",
        args "key:key0 element:string+",
        history "4.0.0 Accepts multiple `element` arguments.";
    "sort", -2, [WRITE DENYOOM], [keys(1, 0, 1, "RO access"), key_behind_last("STORE", 2, SORT_WORDS, "OW update")], Handler::Reaching(sort::sort),
        "write set sortedset list slow dangerous", "", "generic", "1.0.0", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
        "Sort the elements in a list, set or sorted set",
        args "key:key0 [pattern:pattern=BY] [offset_count{offset:integer count:integer}=LIMIT] [pattern:pattern=GET++] [order(asc=ASC|desc=DESC)] [sorting=ALPHA] [destination:key1=STORE]";
    "sort_ro", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Reaching(sort::sort_ro),
        "read set sortedset list slow dangerous", "", "generic", "7.0.0", "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
        "Sort the elements in a list, set or sorted set. Read-only variant of SORT.",
        args "key:key0 [pattern:pattern=BY] [offset_count{offset:integer count:integer}=LIMIT] [pattern:pattern=GET++] [order(asc=ASC|desc=DESC)] [sorting=ALPHA]";
};

/// Options of SORT, and how many arguments each has.
const SORT_WORDS: &[(&str, u8)] = &[("STORE", 1), ("LIMIT", 2), ("BY", 1), ("GET", 1)];
