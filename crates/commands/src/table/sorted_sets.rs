//! Commands about sorted sets.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::{counted_keys, keys};
use crate::handlers::{combined, score_ranges, sorted_sets};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "bzmpop", -5, [WRITE BLOCKING], [counted_keys(2, "RW access delete")], Handler::Data(sorted_sets::bzmpop),
        "write sortedset slow blocking", "", "sorted-set", "7.0.0", "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.",
        "Remove and return members with scores in a sorted set or block until one is available",
        args "timeout:double numkeys:integer key:key0+ where(min=MIN|max=MAX) [count:integer=COUNT]";
    "bzpopmax", -3, [WRITE NOSCRIPT BLOCKING FAST], [keys(1, -2, 1, "RW access delete")], Handler::Data(sorted_sets::bzpopmax),
        "write sortedset fast blocking", "", "sorted-set", "5.0.0", "O(log(N)) with N being the number of elements in the sorted set.",
        "Remove and return the member with the highest score from one or more sorted sets, or block until one is available",
        args "key:key0+ timeout:double",
        history "6.0.0 `timeout` is interpreted as a double instead of an integer.";
    "bzpopmin", -3, [WRITE NOSCRIPT BLOCKING FAST], [keys(1, -2, 1, "RW access delete")], Handler::Data(sorted_sets::bzpopmin),
        "write sortedset fast blocking", "", "sorted-set", "5.0.0", "O(log(N)) with N being the number of elements in the sorted set.",
        "Remove and return the member with the lowest score from one or more sorted sets, or block until one is available",
        args "key:key0+ timeout:double",
        history "6.0.0 `timeout` is interpreted as a double instead of an integer.";
    "zadd", -4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(sorted_sets::zadd),
        "write sortedset fast", "", "sorted-set", "1.2.0", "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
        "Add one or more members to a sorted set, or update its score if it already exists",
        args "key:key0 [condition(nx=NX|xx=XX)@3.0.2] [comparison(gt=GT|lt=LT)@6.2.0] [change=CH@3.0.2] [increment=INCR@3.0.2] score_member{score:double member:string}+",
        history "2.4.0 Accepts multiple elements.\n\
            3.0.2 Added the `XX`, `NX`, `CH` and `INCR` options.\n\
            6.2.0 Added the `GT` and `LT` options.",
        series sorted_sets::zadd_series;
    "zcard", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(sorted_sets::zcard),
        "read sortedset fast", "", "sorted-set", "1.2.0", "O(1)",
        "Get the number of members in a sorted set",
        args "key:key0";
    "zcount", 4, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zcount),
        "read sortedset fast", "", "sorted-set", "2.0.0", "O(log(N)) with N being the number of elements in the sorted set.",
        "Count the members in a sorted set with scores within the given values",
        args "key:key0 min:double max:double";
    "zdiff", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(combined::zdiff),
        "read sortedset slow", "", "sorted-set", "6.2.0", "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.",
        "Subtract multiple sorted sets",
        args "numkeys:integer key:key0+ [withscores=WITHSCORES]";
    "zdiffstore", -4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), counted_keys(2, "RO access")], Handler::Data(combined::zdiffstore),
        "write sortedset slow", "", "sorted-set", "6.2.0", "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.",
        "Subtract multiple sorted sets and store the resulting sorted set in a new key",
        args "destination:key0 numkeys:integer key:key1+";
    "zincrby", 4, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW access update")], Handler::Data(sorted_sets::zincrby),
        "write sortedset fast", "", "sorted-set", "1.2.0", "O(log(N)) where N is the number of elements in the sorted set.",
        "Increment the score of a member in a sorted set",
        args "key:key0 increment:integer member:string",
        series sorted_sets::zincrby_series;
    "zinter", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(combined::zinter),
        "read sortedset slow", "", "sorted-set", "6.2.0", "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.",
        "Intersect multiple sorted sets",
        args "numkeys:integer key:key0+ [weight:integer=WEIGHTS+] [aggregate(sum=SUM|min=MIN|max=MAX)=AGGREGATE] [withscores=WITHSCORES]";
    "zintercard", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(combined::zintercard),
        "read sortedset slow", "", "sorted-set", "7.0.0", "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.",
        "Intersect multiple sorted sets and return the cardinality of the result",
        args "numkeys:integer key:key0+ [limit:integer=LIMIT]";
    "zinterstore", -4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), counted_keys(2, "RO access")], Handler::Data(combined::zinterstore),
        "write sortedset slow", "", "sorted-set", "2.0.0", "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.",
        "Intersect multiple sorted sets and store the resulting sorted set in a new key",
        args "destination:key0 numkeys:integer key:key1+ [weight:integer=WEIGHTS+] [aggregate(sum=SUM|min=MIN|max=MAX)=AGGREGATE]";
    "zlexcount", 4, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zlexcount),
        "read sortedset fast", "", "sorted-set", "2.8.9", "O(log(N)) with N being the number of elements in the sorted set.",
        "Count the number of members in a sorted set between a given lexicographical range",
        args "key:key0 min:string max:string";
    "zmpop", -4, [WRITE], [counted_keys(1, "RW access delete")], Handler::Data(sorted_sets::zmpop),
        "write sortedset slow", "", "sorted-set", "7.0.0", "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.",
        "Remove and return members with scores in a sorted set",
        args "numkeys:integer key:key0+ where(min=MIN|max=MAX) [count:integer=COUNT]";
    "zmscore", -3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(sorted_sets::zmscore),
        "read sortedset fast", "", "sorted-set", "6.2.0", "O(N) where N is the number of members being requested.",
        "Get the score associated with the given members in a sorted set",
        args "key:key0 member:string+";
    "zpopmax", -2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(sorted_sets::zpopmax),
        "write sortedset fast", "", "sorted-set", "5.0.0", "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
        "Remove and return members with the highest scores in a sorted set",
        args "key:key0 [count:integer]",
        series sorted_sets::zpopmax_series;
    "zpopmin", -2, [WRITE FAST], [keys(1, 0, 1, "RW access delete")], Handler::Data(sorted_sets::zpopmin),
        "write sortedset fast", "", "sorted-set", "5.0.0", "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
        "Remove and return members with the lowest scores in a sorted set",
        args "key:key0 [count:integer]",
        series sorted_sets::zpopmin_series;
    "zrandmember", -2, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(sorted_sets::zrandmember),
        "read sortedset slow", "nondeterministic_output", "sorted-set", "6.2.0", "O(N) where N is the number of elements returned",
        "Get one or multiple random elements from a sorted set",
        args "key:key0 [options{count:integer [withscores=WITHSCORES]}]";
    "zrange", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zrange),
        "read sortedset slow", "", "sorted-set", "1.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
        "Return a range of members in a sorted set",
        args "key:key0 start:string stop:string [sortby(byscore=BYSCORE|bylex=BYLEX)@6.2.0] [rev=REV@6.2.0] [offset_count{offset:integer count:integer}=LIMIT@6.2.0] [withscores=WITHSCORES]",
        history "6.2.0 Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options.";
    "zrangebylex", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zrangebylex),
        "read sortedset slow", "", "sorted-set", "2.8.9", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        "Return a range of members in a sorted set, by lexicographical range",
        args "key:key0 min:string max:string [offset_count{offset:integer count:integer}=LIMIT]",
        deprecated "6.2.0 `ZRANGE` with the `BYLEX` argument";
    "zrangebyscore", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zrangebyscore),
        "read sortedset slow", "", "sorted-set", "1.0.5", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        "Return a range of members in a sorted set, by score",
        args "key:key0 min:double max:double [withscores=WITHSCORES@2.0.0] [offset_count{offset:integer count:integer}=LIMIT]",
        history "2.0.0 Added the `WITHSCORES` modifier.",
        deprecated "6.2.0 `ZRANGE` with the `BYSCORE` argument";
    "zrangestore", -5, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), keys(2, 0, 1, "RO access")], Handler::Data(score_ranges::zrangestore),
        "write sortedset slow", "", "sorted-set", "6.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.",
        "Store a range of members from sorted set into another key",
        args "dst:key0 src:key1 min:string max:string [sortby(byscore=BYSCORE|bylex=BYLEX)] [rev=REV] [offset_count{offset:integer count:integer}=LIMIT]";
    "zrank", -3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(sorted_sets::zrank),
        "read sortedset fast", "", "sorted-set", "2.0.0", "O(log(N))",
        "Determine the index of a member in a sorted set",
        args "key:key0 member:string [withscore=WITHSCORE]",
        history "7.2.0 Added the optional `WITHSCORE` argument.";
    "zrem", -3, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(sorted_sets::zrem),
        "write sortedset fast", "", "sorted-set", "1.2.0", "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.",
        "Remove one or more members from a sorted set",
        args "key:key0 member:string+",
        history "2.4.0 Accepts multiple elements.",
        series sorted_sets::zrem_series;
    "zremrangebylex", 4, [WRITE], [keys(1, 0, 1, "RW delete")], Handler::Data(score_ranges::zremrangebylex),
        "write sortedset slow", "", "sorted-set", "2.8.9", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
        "Remove all members in a sorted set between the given lexicographical range",
        args "key:key0 min:string max:string";
    "zremrangebyrank", 4, [WRITE], [keys(1, 0, 1, "RW delete")], Handler::Data(score_ranges::zremrangebyrank),
        "write sortedset slow", "", "sorted-set", "2.0.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
        "Remove all members in a sorted set within the given indexes",
        args "key:key0 start:integer stop:integer";
    "zremrangebyscore", 4, [WRITE], [keys(1, 0, 1, "RW delete")], Handler::Data(score_ranges::zremrangebyscore),
        "write sortedset slow", "", "sorted-set", "1.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
        "Remove all members in a sorted set within the given scores",
        args "key:key0 min:double max:double";
    "zrevrange", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zrevrange),
        "read sortedset slow", "", "sorted-set", "1.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
        "Return a range of members in a sorted set, by index, with scores ordered from high to low",
        args "key:key0 start:integer stop:integer [withscores=WITHSCORES]",
        deprecated "6.2.0 `ZRANGE` with the `REV` argument";
    "zrevrangebylex", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zrevrangebylex),
        "read sortedset slow", "", "sorted-set", "2.8.9", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.",
        args "key:key0 max:string min:string [offset_count{offset:integer count:integer}=LIMIT]",
        deprecated "6.2.0 `ZRANGE` with the `REV` and `BYLEX` arguments";
    "zrevrangebyscore", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(score_ranges::zrevrangebyscore),
        "read sortedset slow", "", "sorted-set", "2.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        "Return a range of members in a sorted set, by score, with scores ordered from high to low",
        args "key:key0 max:double min:double [withscores=WITHSCORES] [offset_count{offset:integer count:integer}=LIMIT]",
        history "2.1.6 `min` and `max` can be exclusive.",
        deprecated "6.2.0 `ZRANGE` with the `REV` and `BYSCORE` arguments";
    "zrevrank", -3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(sorted_sets::zrevrank),
        "read sortedset fast", "", "sorted-set", "2.0.0", "O(log(N))",
        "Determine the index of a member in a sorted set, with scores ordered from high to low",
        args "key:key0 member:string [withscore=WITHSCORE]",
        history "7.2.0 Added the optional `WITHSCORE` argument.";
    "zscan", -3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(sorted_sets::zscan),
        "read sortedset slow", "nondeterministic_output", "sorted-set", "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..",
        "Incrementally iterate sorted sets elements and associated scores",
        args "key:key0 cursor:integer [pattern:pattern=MATCH] [count:integer=COUNT]";
    "zscore", 3, [READONLY FAST], [keys(1, 0, 1, "RO access")], Handler::Data(sorted_sets::zscore),
        "read sortedset fast", "", "sorted-set", "1.2.0", "O(1)",
        "Get the score associated with the given member in a sorted set",
        args "key:key0 member:string";
    "zunion", -3, [READONLY], [counted_keys(1, "RO access")], Handler::Data(combined::zunion),
        "read sortedset slow", "", "sorted-set", "6.2.0", "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.",
        "Add multiple sorted sets",
        args "numkeys:integer key:key0+ [weight:integer=WEIGHTS+] [aggregate(sum=SUM|min=MIN|max=MAX)=AGGREGATE] [withscores=WITHSCORES]";
    "zunionstore", -4, [WRITE DENYOOM], [keys(1, 0, 1, "OW update"), counted_keys(2, "RO access")], Handler::Data(combined::zunionstore),
        "write sortedset slow", "", "sorted-set", "2.0.0", "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.",
        "Add multiple sorted sets and store the resulting sorted set in a new key",
        args "destination:key0 numkeys:integer key:key1+ [weight:integer=WEIGHTS+] [aggregate(sum=SUM|min=MIN|max=MAX)=AGGREGATE]";
};
