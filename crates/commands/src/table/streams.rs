//! Commands about streams.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use super::row::{Handler, Row};
use crate::command::{keys, keys_behind};
use crate::handlers::{groups, stream_info, stream_reads, stream_refs, streams, xgroup};
use crate::rows;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "xack", -4, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(groups::xack),
        "write stream fast", "", "stream", "5.0.0", "O(1) for each message ID processed.",
        "Marks a pending message as correctly processed, effectively removing it from the pending entries list of the consumer group. Return value of the command is the number of messages successfully acknowledged, that is, the IDs we were actually able to resolve in the PEL.",
        args "key:key0 group:string id:string+",
        series groups::xack_series;
    "xackdel", -6, [WRITE FAST], [keys(1, 0, 1, "RW delete update")], Handler::Data(stream_refs::xackdel),
        "write stream fast", "", "stream", "8.2.0", "O(1) for each ID",
        "Acknowledge entries for a group and delete them",
        args "key:key0 group:string [condition(keepref=KEEPREF|delref=DELREF|acked=ACKED)] ids{numids:integer id:string+}=IDS";
    "xadd", -5, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(streams::xadd),
        "write stream fast", "nondeterministic_output", "stream", "5.0.0", "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
        "Appends a new entry to a stream",
        args "key:key0 [nomkstream=NOMKSTREAM@6.2.0] [condition(keepref=KEEPREF|delref=DELREF|acked=ACKED)@8.2.0] [idmp(idmpauto-pid:string=IDMPAUTO|idmp{pid:string iid:string}=IDMP)@8.6.0] [trim{strategy(maxlen=MAXLEN|minid=MINID@6.2.0) [operator(equal==|approximately=~)] threshold:string [count:integer=LIMIT@6.2.0]}] id_or_auto(auto_id=*|id:string) field_value{field:string value:string}+",
        history "6.2.0 Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option.\n\
            7.0.0 Added support for the `<ms>-*` explicit ID form.\n\
            8.2.0 Added the `KEEPREF`, `DELREF` and `ACKED` options.\n\
            8.6.0 Added the `IDMP` and `IDMPAUTO` options.",
        series streams::xadd_series;
    "xautoclaim", -6, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(groups::xautoclaim),
        "write stream fast", "nondeterministic_output", "stream", "6.2.0", "O(1) if COUNT is small.",
        "Changes (or acquires) ownership of messages in a consumer group, as if the messages were delivered to the specified consumer.",
        args "key:key0 group:string consumer:string min-idle-time:string start:string [count:integer=COUNT] [justid=JUSTID]",
        history "7.0.0 Added an element to the reply array, containing deleted entries the command cleared from the PEL";
    "xcfgset", -2, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(stream_refs::xcfgset),
        "write stream fast", "", "stream", "8.6.0", "O(1)",
        "Set how long and how many of the names are known that producers give to entries",
        args "key:key0 [idmp-duration:integer=IDMP-DURATION] [idmp-maxsize:integer=IDMP-MAXSIZE]";
    "xclaim", -6, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(groups::xclaim),
        "write stream fast", "nondeterministic_output", "stream", "5.0.0", "O(log N) with N being the number of messages in the PEL of the consumer group.",
        "Changes (or acquires) ownership of a message in a consumer group, as if the message was delivered to the specified consumer.",
        args "key:key0 group:string consumer:string min-idle-time:string id:string+ [ms:integer=IDLE] [unix-time-milliseconds:unix-time=TIME] [count:integer=RETRYCOUNT] [force=FORCE] [justid=JUSTID] [id:string=LASTID]";
    "xdel", -3, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(streams::xdel),
        "write stream fast", "", "stream", "5.0.0", "O(1) for each single item to delete in the stream, regardless of the stream size.",
        "Removes the specified entries from the stream. Returns the number of items actually deleted, that may be different from the number of IDs passed in case certain IDs do not exist.",
        args "key:key0 id:string+";
    "xdelex", -5, [WRITE FAST], [keys(1, 0, 1, "RW delete")], Handler::Data(stream_refs::xdelex),
        "write stream fast", "", "stream", "8.2.0", "O(1) for each ID",
        "Delete entries, and what is pending of them or not",
        args "key:key0 [condition(keepref=KEEPREF|delref=DELREF|acked=ACKED)] ids{numids:integer id:string+}=IDS";
    "xgroup", -2, [], [], Handler::Container(XGROUP),
        "slow", "", "stream", "5.0.0", "Depends on subcommand.",
        "A container for consumer groups commands";
    "xinfo", -2, [], [], Handler::Container(XINFO),
        "slow", "", "stream", "5.0.0", "Depends on subcommand.",
        "A container for stream introspection commands";
    "xlen", 2, [READONLY FAST], [keys(1, 0, 1, "RO")], Handler::Data(streams::xlen),
        "read stream fast", "", "stream", "5.0.0", "O(1)",
        "Return the number of entries in a stream",
        args "key:key0";
    "xnack", -7, [WRITE FAST], [keys(1, 0, 1, "RW update")], Handler::Data(stream_refs::xnack),
        "write stream fast", "", "stream", "8.8.0", "O(1) for each ID",
        "Give pending entries back to their group, without an acknowledgement",
        args "key:key0 group:string mode(silent=SILENT|fail=FAIL|fatal=FATAL) ids{numids:integer id:string+}=IDS [count:integer=RETRYCOUNT] [force=FORCE]";
    "xpending", -3, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(groups::xpending),
        "read stream slow", "nondeterministic_output", "stream", "5.0.0", "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.",
        "Return information and entries from a stream consumer group pending entries list, that are messages fetched but never acknowledged.",
        args "key:key0 group:string [filters{[min-idle-time:integer=IDLE@6.2.0] start:string end:string count:integer [consumer:string]}]",
        history "6.2.0 Added the `IDLE` option and exclusive range intervals.";
    "xrange", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(streams::xrange),
        "read stream slow", "", "stream", "5.0.0", "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
        "Return a range of elements in a stream, with IDs matching the specified IDs interval",
        args "key:key0 start:string end:string [count:integer=COUNT]",
        history "6.2.0 Added exclusive ranges.";
    "xread", -4, [READONLY BLOCKING], [keys_behind("STREAMS", 1, -1, 2, "RO access")], Handler::Data(stream_reads::xread),
        "read stream slow blocking", "", "stream", "5.0.0", "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.",
        "Return never seen elements in multiple streams, with IDs greater than the ones reported by the caller for each stream. Can block.",
        args "[count:integer=COUNT] [milliseconds:integer=BLOCK] streams{key:key0+ id:string+}=STREAMS";
    "xreadgroup", -7, [WRITE BLOCKING], [keys_behind("STREAMS", 4, -1, 2, "RO access")], Handler::Data(stream_reads::xreadgroup),
        "write stream slow blocking", "", "stream", "5.0.0", "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
        "Return new entries from a stream using a consumer group, or access the history of the pending entries for a given consumer. Can block.",
        args "group_consumer{group:string consumer:string}=GROUP [count:integer=COUNT] [milliseconds:integer=BLOCK] [min-idle-time:integer=CLAIM@8.4.0] [noack=NOACK] streams{key:key0+ id:string+}=STREAMS";
    "xrevrange", -4, [READONLY], [keys(1, 0, 1, "RO access")], Handler::Data(streams::xrevrange),
        "read stream slow", "", "stream", "5.0.0", "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
        "Return a range of elements in a stream, with IDs matching the specified IDs interval, in reverse order (from greater to smaller IDs) compared to XRANGE",
        args "key:key0 end:string start:string [count:integer=COUNT]",
        history "6.2.0 Added exclusive ranges.";
    "xsetid", -3, [WRITE DENYOOM FAST], [keys(1, 0, 1, "RW update")], Handler::Data(streams::xsetid),
        "write stream fast", "", "stream", "5.0.0", "O(1)",
        "An internal command for replicating stream values",
        args "key:key0 last-id:string [entries_added:integer=ENTRIESADDED@7.0.0] [max_deleted_entry_id:string=MAXDELETEDID@7.0.0]",
        history "7.0.0 Added the `entries_added` and `max_deleted_entry_id` arguments.";
    "xtrim", -4, [WRITE], [keys(1, 0, 1, "RW delete")], Handler::Data(streams::xtrim),
        "write stream slow", "nondeterministic_output", "stream", "5.0.0", "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
        "Trims the stream to (approximately if '~' is passed) a certain size",
        args "key:key0 trim{strategy(maxlen=MAXLEN|minid=MINID@6.2.0) [operator(equal==|approximately=~)] threshold:string [count:integer=LIMIT@6.2.0]} [condition(keepref=KEEPREF|delref=DELREF|acked=ACKED)@8.2.0]",
        history "6.2.0 Added the `MINID` trimming strategy and the `LIMIT` option.\n\
            8.2.0 Added the `KEEPREF`, `DELREF` and `ACKED` options.";
};

const XGROUP: &[Row] = rows! {
    "xgroup|create", -5, [WRITE DENYOOM], [keys(2, 0, 1, "RW insert")], Handler::Data(xgroup::xgroup_create),
        "write stream slow", "", "stream", "5.0.0", "O(1)",
        "Create a consumer group.",
        args "key:key0 groupname:string id(id:string|new_id=$) [mkstream=MKSTREAM] [entries_read:integer=ENTRIESREAD]",
        history "7.0.0 Added the `entries_read` named argument.";
    "xgroup|createconsumer", 5, [WRITE DENYOOM], [keys(2, 0, 1, "RW insert")], Handler::Data(xgroup::xgroup_createconsumer),
        "write stream slow", "", "stream", "6.2.0", "O(1)",
        "Create a consumer in a consumer group.",
        args "key:key0 groupname:string consumername:string";
    "xgroup|delconsumer", 5, [WRITE], [keys(2, 0, 1, "RW delete")], Handler::Data(xgroup::xgroup_delconsumer),
        "write stream slow", "", "stream", "5.0.0", "O(1)",
        "Delete a consumer from a consumer group.",
        args "key:key0 groupname:string consumername:string";
    "xgroup|destroy", 4, [WRITE], [keys(2, 0, 1, "RW delete")], Handler::Data(xgroup::xgroup_destroy),
        "write stream slow", "", "stream", "5.0.0", "O(N) where N is the number of entries in the group's pending entries list (PEL).",
        "Destroy a consumer group.",
        args "key:key0 groupname:string";
    "xgroup|help", 2, [LOADING STALE], [], Handler::Data(xgroup::xgroup_help),
        "stream slow", "", "stream", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "xgroup|setid", -5, [WRITE], [keys(2, 0, 1, "RW update")], Handler::Data(xgroup::xgroup_setid),
        "write stream slow", "", "stream", "5.0.0", "O(1)",
        "Set a consumer group to an arbitrary last delivered ID value.",
        args "key:key0 groupname:string id(id:string|new_id=$) [entries_read:integer=ENTRIESREAD]",
        history "7.0.0 Added the optional `entries_read` argument.";
};

const XINFO: &[Row] = rows! {
    "xinfo|consumers", 4, [READONLY], [keys(2, 0, 1, "RO access")], Handler::Data(stream_info::xinfo_consumers),
        "read stream slow", "nondeterministic_output", "stream", "5.0.0", "O(1)",
        "List the consumers in a consumer group",
        args "key:key0 groupname:string";
    "xinfo|groups", 3, [READONLY], [keys(2, 0, 1, "RO access")], Handler::Data(stream_info::xinfo_groups),
        "read stream slow", "", "stream", "5.0.0", "O(1)",
        "List the consumer groups of a stream",
        args "key:key0",
        history "7.0.0 Added the `entries-read` and `lag` fields";
    "xinfo|help", 2, [LOADING STALE], [], Handler::Data(stream_info::xinfo_help),
        "stream slow", "", "stream", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "xinfo|stream", -3, [READONLY], [keys(2, 0, 1, "RO access")], Handler::Data(stream_info::xinfo_stream),
        "read stream slow", "", "stream", "5.0.0", "O(1)",
        "Get information about a stream",
        args "key:key0 [full{[count:integer=COUNT]}=FULL]",
        history "6.0.0 Added the `FULL` modifier.\n\
            7.0.0 Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields";
};
