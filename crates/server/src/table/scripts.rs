//! Commands about scripts and functions.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use commands::command::{By, Invoked, counted_keys};
use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::{function, scripts};

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "eval", -3, [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS], [counted_keys(2, "RW access update")], run(By::Source, false),
        "slow scripting", "", "scripting", "2.6.0", "Depends on the script that is executed.",
        "Execute a Lua script server side",
        args "script:string numkeys:integer [key:key0+] [arg:string+]";
    "eval_ro", -3, [READONLY NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS], [counted_keys(2, "RO access")], run(By::Source, true),
        "slow scripting", "", "scripting", "7.0.0", "Depends on the script that is executed.",
        "Execute a read-only Lua script server side",
        args "script:string numkeys:integer [key:key0+] [arg:string+]";
    "evalsha", -3, [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS], [counted_keys(2, "RW access update")], run(By::Digest, false),
        "slow scripting", "", "scripting", "2.6.0", "Depends on the script that is executed.",
        "Execute a Lua script server side",
        args "sha1:string numkeys:integer [key:key0+] [arg:string+]";
    "evalsha_ro", -3, [READONLY NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS], [counted_keys(2, "RO access")], run(By::Digest, true),
        "slow scripting", "", "scripting", "7.0.0", "Depends on the script that is executed.",
        "Execute a read-only Lua script server side",
        args "sha1:string numkeys:integer [key:key0+] [arg:string+]";
    "fcall", -3, [NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS], [counted_keys(2, "RW access update")], run(By::Name, false),
        "slow scripting", "", "scripting", "7.0.0", "Depends on the function that is executed.",
        "Invoke a function",
        args "function:string numkeys:integer [key:key0+] [arg:string+]";
    "fcall_ro", -3, [READONLY NOSCRIPT STALE SKIP_MONITOR NO_MANDATORY_KEYS], [counted_keys(2, "RO access")], run(By::Name, true),
        "slow scripting", "", "scripting", "7.0.0", "Depends on the function that is executed.",
        "Invoke a read-only function",
        args "function:string numkeys:integer [key:key0+] [arg:string+]";
    "script", -2, [], [], Handler::Container(SCRIPT),
        "slow", "", "scripting", "2.6.0", "Depends on subcommand.",
        "A container for Lua scripts management commands";
    "function", -2, [], [], Handler::Container(FUNCTION),
        "slow", "", "scripting", "7.0.0", "Depends on subcommand.",
        "A container for function commands";
};

const fn run(by: By, read_only: bool) -> Handler {
    Handler::Script(Invoked { by, read_only })
}

/// Subcommands of SCRIPT.
const SCRIPT: &[Row] = rows! {
    "script|debug", 3, [NOSCRIPT], [], Handler::Control(scripts::debug),
        "slow scripting", "", "scripting", "3.2.0", "O(1)",
        "Set the debug mode for executed scripts.",
        args "mode(yes=YES|sync=SYNC|no=NO)";
    "script|exists", -3, [NOSCRIPT], [], Handler::Control(scripts::exists),
        "slow scripting", "request_policy:all_shards response_policy:agg_logical_and", "scripting", "2.6.0", "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
        "Check existence of scripts in the script cache.",
        args "sha1:string+";
    "script|flush", -2, [NOSCRIPT], [], Handler::Control(scripts::flush),
        "slow scripting", "request_policy:all_nodes response_policy:all_succeeded", "scripting", "2.6.0", "O(N) with N being the number of scripts in cache",
        "Remove all the scripts from the script cache.",
        args "[async(async=ASYNC|sync=SYNC)@6.2.0]",
        history "6.2.0 Added the `ASYNC` and `SYNC` flushing mode modifiers.";
    "script|help", 2, [LOADING STALE], [], Handler::Control(scripts::help),
        "slow scripting", "", "scripting", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "script|kill", 2, [NOSCRIPT ALLOW_BUSY], [], Handler::Control(scripts::kill),
        "slow scripting", "request_policy:all_shards response_policy:one_succeeded", "scripting", "2.6.0", "O(1)",
        "Kill the script currently in execution.";
    "script|load", 3, [NOSCRIPT STALE], [], Handler::Control(scripts::load),
        "slow scripting", "request_policy:all_nodes response_policy:all_succeeded", "scripting", "2.6.0", "O(N) with N being the length in bytes of the script body.",
        "Load the specified Lua script into the script cache.",
        args "script:string";
};

/// Subcommands of FUNCTION.
const FUNCTION: &[Row] = rows! {
    "function|delete", 3, [WRITE NOSCRIPT], [], Handler::Control(function::delete),
        "write slow scripting", "request_policy:all_shards response_policy:all_succeeded", "scripting", "7.0.0", "O(1)",
        "Delete a function by name",
        args "library-name:string";
    "function|dump", 2, [NOSCRIPT], [], Handler::Control(function::dump),
        "slow scripting", "", "scripting", "7.0.0", "O(N) where N is the number of functions",
        "Dump all functions into a serialized binary payload";
    "function|flush", -2, [WRITE NOSCRIPT], [], Handler::Control(function::flush),
        "write slow scripting", "request_policy:all_shards response_policy:all_succeeded", "scripting", "7.0.0", "O(N) where N is the number of functions deleted",
        "Deleting all functions",
        args "[async(async=ASYNC|sync=SYNC)]";
    "function|help", 2, [LOADING STALE], [], Handler::Control(function::help),
        "slow scripting", "", "scripting", "7.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "function|kill", 2, [NOSCRIPT ALLOW_BUSY], [], Handler::Control(function::kill),
        "slow scripting", "request_policy:all_shards response_policy:one_succeeded", "scripting", "7.0.0", "O(1)",
        "Kill the function currently in execution.";
    "function|list", -2, [NOSCRIPT], [], Handler::Control(function::list),
        "slow scripting", "nondeterministic_output_order", "scripting", "7.0.0", "O(N) where N is the number of functions",
        "List information about all the functions",
        args "[library-name-pattern:string=LIBRARYNAME] [withcode=WITHCODE]";
    "function|load", -3, [WRITE DENYOOM NOSCRIPT], [], Handler::Control(function::load),
        "write slow scripting", "request_policy:all_shards response_policy:all_succeeded", "scripting", "7.0.0", "O(1) (considering compilation time is redundant)",
        "Create a function with the given arguments (name, code, description)",
        args "[replace=REPLACE] function-code:string";
    "function|restore", -3, [WRITE DENYOOM NOSCRIPT], [], Handler::Control(function::restore),
        "write slow scripting", "request_policy:all_shards response_policy:all_succeeded", "scripting", "7.0.0", "O(N) where N is the number of functions on the payload",
        "Restore all the functions on the given payload",
        args "serialized-value:string [policy(flush=FLUSH|append=APPEND|replace=REPLACE)]";
    "function|stats", 2, [NOSCRIPT ALLOW_BUSY], [], Handler::Control(function::stats),
        "slow scripting", "nondeterministic_output request_policy:all_shards response_policy:special", "scripting", "7.0.0", "O(1)",
        "Return information about the function currently running (name, description, duration)";
};
