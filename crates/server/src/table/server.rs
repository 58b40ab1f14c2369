//! Commands about the server.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use commands::command::keys;
use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::{
    backup, capture, command, config, debug, digest, info, latency, memory, server, slowlog,
};

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "info", -1, [LOADING STALE], [], Handler::Control(info::info),
        "slow dangerous", "nondeterministic_output request_policy:all_shards response_policy:special", "server", "1.0.0", "O(1)",
        "Get information and statistics about the server",
        args "[section:string+]",
        history "7.0.0 Added support for taking multiple section arguments.";
    "config", -2, [], [], Handler::Container(CONFIG),
        "slow", "", "server", "2.0.0", "Depends on subcommand.",
        "A container for server configuration commands";
    "time", 1, [LOADING STALE FAST], [], Handler::Control(server::time),
        "fast", "nondeterministic_output", "server", "2.6.0", "O(1)",
        "Return the current server time";
    "latency", -2, [], [], Handler::Container(LATENCY),
        "slow", "", "server", "2.8.13", "Depends on subcommand.",
        "A container for latency diagnostics commands";
    "slowlog", -2, [], [], Handler::Container(SLOWLOG),
        "slow", "", "server", "2.2.12", "Depends on subcommand.",
        "A container for slow log commands";
    "memory", -2, [], [], Handler::Container(MEMORY),
        "slow", "", "server", "4.0.0", "Depends on subcommand.",
        "A container for memory diagnostics commands";
    "module", -2, [], [], Handler::Container(MODULE),
        "slow", "", "server", "4.0.0", "Depends on subcommand.",
        "A container for module commands";
    "debug", -2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Container(DEBUG),
        "admin slow dangerous", "", "server", "1.0.0", "Depends on subcommand.",
        "A container for debugging commands";
    "shutdown", -1, [ADMIN NOSCRIPT LOADING STALE NO_MULTI ALLOW_BUSY], [], Handler::Control(server::shutdown),
        "admin slow dangerous", "", "server", "1.0.0", "O(N)",
        "Synchronously save the dataset to disk and then shut down the server",
        args "[nosave_save(nosave=NOSAVE|save=SAVE)] [now=NOW@7.0.0] [force=FORCE@7.0.0] [abort=ABORT@7.0.0]",
        history "7.0.0 Added the `NOW`, `FORCE` and `ABORT` modifiers.";
    "save", 1, [ADMIN NOSCRIPT NO_ASYNC_LOADING NO_MULTI], [], Handler::Control(server::save),
        "admin slow dangerous", "", "server", "1.0.0", "O(N)",
        "Synchronously save the dataset to disk";
    "bgsave", -1, [ADMIN NOSCRIPT NO_ASYNC_LOADING], [], Handler::Control(server::bgsave),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Asynchronously save the dataset to disk",
        args "[schedule=SCHEDULE@3.2.2]",
        history "3.2.2 Added the `SCHEDULE` option.";
    "bgrewriteaof", 1, [ADMIN NOSCRIPT NO_ASYNC_LOADING], [], Handler::Control(server::bgrewriteaof),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Asynchronously rewrite the append-only file";
    "lolwut", -1, [READONLY FAST], [], Handler::Control(server::lolwut),
        "read fast", "", "server", "5.0.0", "",
        "Display some computer art and the Redis version",
        args "[version:integer=VERSION]";
    "pfselftest", 1, [ADMIN], [], Handler::Control(server::pfselftest),
        "hyperloglog admin slow dangerous", "", "hyperloglog", "2.8.9", "N/A",
        "An internal command for testing HyperLogLog values";
    "backup", 2, [ADMIN NOSCRIPT NO_MULTI], [], Handler::Control(backup::backup),
        "admin slow dangerous", "", "server", "7.2.0", "O(N)",
        "Copies the data consistently to a new folder of the server (not in Redis)",
        args "path:string";
    "capture", -2, [], [], Handler::Container(CAPTURE),
        "slow", "", "server", "7.2.0", "Depends on subcommand.",
        "A container for captures of traffic (not in Redis)";
    "lastsave", 1, [LOADING STALE FAST], [], Handler::Control(server::lastsave),
        "admin fast dangerous", "nondeterministic_output", "server", "1.0.0", "O(1)",
        "Get the UNIX time stamp of the last successful save to disk";
    "wait", 3, [NOSCRIPT], [], Handler::Control(server::wait),
        "slow connection", "request_policy:all_shards response_policy:agg_min", "generic", "3.0.0", "O(1)",
        "Wait for the synchronous replication of all the write commands sent in the context of the current connection",
        args "numreplicas:integer timeout:integer";
    "waitaof", 4, [NOSCRIPT BLOCKING], [], Handler::Control(server::waitaof),
        "slow blocking connection", "request_policy:all_shards response_policy:agg_min", "generic", "7.2.0", "O(1)",
        "Blocks until all of the preceding write commands sent by the connection are written to disk",
        args "numlocal:integer numreplicas:integer timeout:integer";
    "role", 1, [NOSCRIPT LOADING STALE FAST], [], Handler::Control(server::role),
        "admin fast dangerous", "", "server", "2.8.12", "O(1)",
        "Return the role of the instance in the context of replication";
    "monitor", 1, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(server::monitor),
        "admin slow dangerous", "", "server", "1.0.0", "",
        "Listen for all requests received by the server in real time";
    "command", -1, [LOADING STALE], [], Handler::Container(COMMAND),
        "slow connection", "nondeterministic_output_order", "server", "2.8.13", "O(N)",
        "Get array of Redis command details";
};

/// Subcommands of CAPTURE.
const CAPTURE: &[Row] = rows! {
    "capture|start", -2, [ADMIN NOSCRIPT NO_MULTI SKIP_MONITOR], [], Handler::Control(capture::start),
        "admin slow dangerous", "", "server", "7.2.0", "O(1)",
        "Streams what all clients send to this connection (not in Redis)",
        args "[keys(hashed=HASHED|plain=PLAIN)=KEYS] [values=VALUES] [max:integer=BYTES]";
    "capture|stop", 2, [ADMIN NOSCRIPT NO_MULTI SKIP_MONITOR], [], Handler::Control(capture::stop),
        "admin slow dangerous", "", "server", "7.2.0", "O(1)",
        "Ends the capture that runs (not in Redis)";
    "capture|help", 2, [LOADING STALE], [], Handler::Control(capture::help),
        "slow", "", "server", "7.2.0", "O(1)",
        "Show helpful text about the different subcommands";
};

/// Subcommands of CONFIG.
const CONFIG: &[Row] = rows! {
    "config|get", -3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(config::get),
        "admin slow dangerous", "", "server", "2.0.0", "O(N)",
        "Get the values of configuration parameters",
        args "parameter{parameter:string}+",
        history "7.0.0 Added the ability to pass multiple pattern parameters in one call";
    "config|help", 2, [LOADING STALE], [], Handler::Control(config::help),
        "slow", "", "server", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "config|resetstat", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(config::resetstat),
        "admin slow dangerous", "", "server", "2.0.0", "O(1)",
        "Reset the stats returned by INFO";
    "config|rewrite", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(config::rewrite),
        "admin slow dangerous", "", "server", "2.8.0", "O(1)",
        "Rewrite the configuration file with the in memory configuration";
    "config|set", -4, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(config::set),
        "admin slow dangerous", "request_policy:all_nodes response_policy:all_succeeded", "server", "2.0.0", "O(N)",
        "Set configuration parameters to the given values",
        args "parameter_value{parameter:string value:string}+",
        history "7.0.0 Added the ability to set multiple parameters in one call.";
};

/// Subcommands of LATENCY.
const LATENCY: &[Row] = rows! {
    "latency|doctor", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(latency::doctor),
        "admin slow dangerous", "nondeterministic_output request_policy:all_nodes response_policy:special", "server", "2.8.13", "O(1)",
        "Return a human readable latency analysis report.";
    "latency|graph", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(latency::graph),
        "admin slow dangerous", "nondeterministic_output request_policy:all_nodes response_policy:special", "server", "2.8.13", "O(1)",
        "Return a latency graph for the event.",
        args "event:string";
    "latency|help", 2, [LOADING STALE], [], Handler::Control(latency::help),
        "slow", "", "server", "2.8.13", "O(1)",
        "Show helpful text about the different subcommands.";
    "latency|histogram", -2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(latency::histogram),
        "admin slow dangerous", "nondeterministic_output request_policy:all_nodes response_policy:special", "server", "7.0.0", "O(N)",
        "Return the cumulative distribution of latencies of a subset of commands or all.",
        args "[command:string+]";
    "latency|history", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(latency::history),
        "admin slow dangerous", "nondeterministic_output request_policy:all_nodes response_policy:special", "server", "2.8.13", "O(1)",
        "Return timestamp-latency samples for the event.",
        args "event:string";
    "latency|latest", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(latency::latest),
        "admin slow dangerous", "nondeterministic_output request_policy:all_nodes response_policy:special", "server", "2.8.13", "O(1)",
        "Return the latest latency samples for all events.";
    "latency|reset", -2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(latency::reset),
        "admin slow dangerous", "request_policy:all_nodes response_policy:all_succeeded", "server", "2.8.13", "O(1)",
        "Reset latency data for one or more events.",
        args "[event:string+]";
};

/// Subcommands of SLOWLOG.
const SLOWLOG: &[Row] = rows! {
    "slowlog|get", -2, [ADMIN LOADING STALE], [], Handler::Control(slowlog::get),
        "admin slow dangerous", "request_policy:all_nodes nondeterministic_output", "server", "2.2.12", "O(N)",
        "Get the slow log's entries",
        args "[count:integer]",
        history "4.0.0 Added client IP address, port and name to the reply.";
    "slowlog|help", 2, [LOADING STALE], [], Handler::Control(slowlog::help),
        "slow", "", "server", "6.2.0", "O(1)",
        "Show helpful text about the different subcommands";
    "slowlog|len", 2, [ADMIN LOADING STALE], [], Handler::Control(slowlog::len),
        "admin slow dangerous", "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", "server", "2.2.12", "O(1)",
        "Get the slow log's length";
    "slowlog|reset", 2, [ADMIN LOADING STALE], [], Handler::Control(slowlog::reset),
        "admin slow dangerous", "request_policy:all_nodes response_policy:all_succeeded", "server", "2.2.12", "O(N)",
        "Clear all entries from the slow log";
};

/// Subcommands of MEMORY.
const MEMORY: &[Row] = rows! {
    "memory|doctor", 2, [], [], Handler::Control(memory::doctor),
        "slow", "nondeterministic_output request_policy:all_shards response_policy:special", "server", "4.0.0", "O(1)",
        "Outputs memory problems report";
    "memory|help", 2, [LOADING STALE], [], Handler::Control(memory::help),
        "slow", "", "server", "4.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "memory|malloc-stats", 2, [], [], Handler::Control(memory::malloc_stats),
        "slow", "nondeterministic_output request_policy:all_shards response_policy:special", "server", "4.0.0", "Depends on how much memory is allocated, could be slow",
        "Show allocator internal stats";
    "memory|purge", 2, [], [], Handler::Control(memory::purge),
        "slow", "request_policy:all_shards response_policy:all_succeeded", "server", "4.0.0", "Depends on how much memory is allocated, could be slow",
        "Ask the allocator to release memory";
    "memory|stats", 2, [], [], Handler::Control(memory::stats),
        "slow", "nondeterministic_output request_policy:all_shards response_policy:special", "server", "4.0.0", "O(1)",
        "Show memory usage details";
    "memory|usage", -3, [READONLY], [keys(2, 0, 1, "RO")], Handler::Data(memory::usage),
        "read slow", "", "server", "4.0.0", "O(N)",
        "Estimate the memory usage of a key",
        args "key:key0 [count:integer=SAMPLES]";
};

/// Subcommands of MODULE: there are no modules.
const MODULE: &[Row] = rows! {
    "module|help", 2, [LOADING STALE], [], Handler::Control(server::module_help),
        "slow", "", "server", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "module|list", 2, [ADMIN NOSCRIPT], [], Handler::Control(server::module_list),
        "admin slow dangerous", "nondeterministic_output_order", "server", "4.0.0", "O(N) where N is the number of loaded modules.",
        "List all modules loaded by the server";
};

/// Subcommands of DEBUG.
const DEBUG: &[Row] = rows! {
    "debug|sleep", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::sleep),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Answers after that many seconds",
        args "seconds:double";
    "debug|object", 3, [ADMIN NOSCRIPT LOADING STALE], [keys(2, 0, 1, "RO")], Handler::Data(debug::object),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Shows internals of a key",
        args "key:key0";
    "debug|set-active-expire", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::set_active_expire),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Switches active expiry on or off",
        args "enabled(off=0|on=1)";
    "debug|digest", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Everything(digest::of_all),
        "admin slow dangerous", "", "server", "1.0.0", "O(N) with N being all elements",
        "A number for all data, the same for the same data";
    "debug|digest-value", -3, [ADMIN NOSCRIPT LOADING STALE], [keys(2, -1, 1, "RO")], Handler::Data(digest::of_values),
        "admin slow dangerous", "", "server", "5.0.0", "O(N) with N being the elements of these keys",
        "A number for the value of each key",
        args "key:key0+";
    "debug|error", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::error),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Answers with that error",
        args "error:string";
    "debug|reload", -2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::reload),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Answers OK: what is served is what is saved";
    "debug|stringmatch-len", 4, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::stringmatch_len),
        "admin slow dangerous", "", "server", "1.0.0", "O(N) with N being the length",
        "Whether a string of that many letters matches a pattern",
        args "len:integer pattern:string";
    "debug|jmap", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::jmap),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Refused: the server does not use jemalloc";
    "debug|change-repl-id", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::change_repl_id),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Refused: there is no replication";
    "debug|help", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(debug::help),
        "admin slow dangerous", "", "server", "1.0.0", "O(1)",
        "Show helpful text about the different subcommands";
};

/// Subcommands of COMMAND.
const COMMAND: &[Row] = rows! {
    "command|count", 2, [LOADING STALE], [], Handler::Control(command::count),
        "slow connection", "", "server", "2.8.13", "O(1)",
        "Get total number of Redis commands";
    "command|docs", -2, [LOADING STALE], [], Handler::Control(command::docs),
        "slow connection", "nondeterministic_output_order", "server", "7.0.0", "O(N)",
        "Get array of specific Redis command documentation",
        args "[command-name:string+]";
    "command|getkeys", -4, [LOADING STALE], [], Handler::Control(command::getkeys),
        "slow connection", "", "server", "2.8.13", "O(N)",
        "Extract keys given a full Redis command";
    "command|getkeysandflags", -4, [LOADING STALE], [], Handler::Control(command::getkeysandflags),
        "slow connection", "", "server", "7.0.0", "O(N)",
        "Extract keys and access flags given a full Redis command";
    "command|help", 2, [LOADING STALE], [], Handler::Control(command::help),
        "slow connection", "", "server", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "command|info", -2, [LOADING STALE], [], Handler::Control(command::info),
        "slow connection", "nondeterministic_output_order", "server", "2.8.13", "O(N)",
        "Get array of specific Redis command details, or all when no argument is given.",
        args "[command-name:string+]",
        history "7.0.0 Allowed to be called with no argument to get info on all commands.";
    "command|list", -2, [LOADING STALE], [], Handler::Control(command::list),
        "slow connection", "nondeterministic_output_order", "server", "7.0.0", "O(N)",
        "Get an array of Redis command names",
        args "[filterby(module-name:string=MODULE|category:string=ACLCAT|pattern:pattern=PATTERN)=FILTERBY]";
};
