//! Commands about the connection itself.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::{client, connection, kill, tracking};

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "hello", -1, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::hello),
        "fast connection", "", "connection", "6.0.0", "O(1)",
        "Handshake with Redis",
        args "[arguments{protover:integer [username_password{username:string password:string}=AUTH] [clientname:string=SETNAME]}]",
        history "6.2.0 `protover` made optional; when called without arguments the command reports the current connection's context.";
    "auth", -2, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::auth),
        "fast connection", "", "connection", "1.0.0", "O(N)",
        "Authenticate to the server",
        args "[username:string@6.0.0] password:string",
        history "6.0.0 Added ACL style (username and password).";
    "ping", -1, [FAST], [], Handler::Control(connection::ping),
        "fast connection", "request_policy:all_shards response_policy:all_succeeded", "connection", "1.0.0", "O(1)",
        "Ping the server",
        args "[message:string]";
    "echo", 2, [LOADING STALE FAST], [], Handler::Control(connection::echo),
        "fast connection", "", "connection", "1.0.0", "O(1)",
        "Echo the given string",
        args "message:string";
    "select", 2, [LOADING STALE FAST], [], Handler::Control(connection::select),
        "fast connection", "", "connection", "1.0.0", "O(1)",
        "Change the selected database for the current connection",
        args "index:integer";
    "quit", -1, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::quit),
        "fast connection", "", "connection", "1.0.0", "O(1)",
        "Close the connection";
    "reset", 1, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::reset),
        "fast connection", "", "connection", "6.2.0", "O(1)",
        "Reset the connection";
    "client", -2, [], [], Handler::Container(CLIENT),
        "slow", "", "connection", "2.4.0", "Depends on subcommand.",
        "A container for client connection commands";
};

/// Subcommands of CLIENT.
const CLIENT: &[Row] = rows! {
    "client|id", 2, [NOSCRIPT LOADING STALE], [], Handler::Control(client::id),
        "slow connection", "", "connection", "5.0.0", "O(1)",
        "Returns the client ID for the current connection";
    "client|info", 2, [NOSCRIPT LOADING STALE], [], Handler::Control(client::info),
        "slow connection", "nondeterministic_output", "connection", "6.2.0", "O(1)",
        "Returns information about the current client connection.";
    "client|list", -2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(client::list),
        "admin slow dangerous connection", "nondeterministic_output", "connection", "2.4.0", "O(N)",
        "Get the list of client connections",
        args "[normal_master_replica_pubsub(normal=NORMAL|master=MASTER|replica=REPLICA|pubsub=PUBSUB)=TYPE@5.0.0] [id{client-id:integer+}=ID@6.2.0]",
        history "2.8.12 Added unique client `id` field.\n\
            5.0.0 Added optional `TYPE` filter.\n\
            6.0.0 Added `user` field.\n\
            6.2.0 Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and the optional `ID` filter.\n\
            7.0.0 Added `resp`, `multi-mem`, `rbs` and `rbp` fields.\n\
            7.0.3 Added `ssub` field.";
    "client|kill", -3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(kill::kill),
        "admin slow dangerous connection", "", "connection", "2.4.0", "O(N)",
        "Kill the connection of a client",
        args "filter(ip:port:string~2.8.12|new-format([client-id:integer=ID@2.8.12]|[normal_master_slave_pubsub(normal=NORMAL|master=MASTER@3.2.0|slave=SLAVE|replica=REPLICA@5.0.0|pubsub=PUBSUB)=TYPE@2.8.12]|[username:string=USER]|[ip:port:string=ADDR]|[ip:port:string=LADDR@6.2.0]|[yes/no:string=SKIPME])+)",
        history "2.8.12 Added new filter format.\n\
            2.8.12 `ID` option.\n\
            3.2.0 Added `master` type in for `TYPE` option.\n\
            5.0.0 Replaced `slave` `TYPE` with `replica`. `slave` still supported for backward compatibility.\n\
            6.2.0 `LADDR` option.";
    "client|getname", 2, [NOSCRIPT LOADING STALE], [], Handler::Control(client::getname),
        "slow connection", "", "connection", "2.6.9", "O(1)",
        "Get the current connection name";
    "client|setname", 3, [NOSCRIPT LOADING STALE], [], Handler::Control(client::setname),
        "slow connection", "", "connection", "2.6.9", "O(1)",
        "Set the current connection name",
        args "connection-name:string";
    "client|setinfo", 4, [NOSCRIPT LOADING STALE], [], Handler::Control(client::setinfo),
        "slow connection", "request_policy:all_nodes response_policy:all_succeeded", "connection", "7.2.0", "O(1)",
        "Sets information specific to the client or connection",
        args "attr(libname:string=LIB-NAME|libver:string=LIB-VER)";
    "client|pause", -3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(client::pause),
        "admin slow dangerous connection", "", "connection", "2.9.50", "O(1)",
        "Stop processing commands from clients for some time",
        args "timeout:integer [mode(write=WRITE|all=ALL)@6.2.0]",
        history "6.2.0 `CLIENT PAUSE WRITE` mode added along with the `mode` option.";
    "client|unpause", 2, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(client::unpause),
        "admin slow dangerous connection", "", "connection", "6.2.0", "O(N)",
        "Resume processing of clients that were paused";
    "client|reply", 3, [NOSCRIPT LOADING STALE], [], Handler::Control(client::reply),
        "slow connection", "", "connection", "3.2.0", "O(1)",
        "Instruct the server whether to reply to commands",
        args "on_off_skip(on=ON|off=OFF|skip=SKIP)";
    "client|no-evict", 3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(client::no_evict),
        "admin slow dangerous connection", "", "connection", "7.0.0", "O(1)",
        "Set client eviction mode for the current connection",
        args "enabled(on=ON|off=OFF)";
    "client|no-touch", 3, [NOSCRIPT LOADING STALE], [], Handler::Control(client::no_touch),
        "slow connection", "", "connection", "7.2.0", "O(1)",
        "Controls whether commands sent by the client affect the LRU/LFU of accessed keys",
        args "enabled(on=ON|off=OFF)";
    "client|unblock", -3, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(client::unblock),
        "admin slow dangerous connection", "", "connection", "5.0.0", "O(log N)",
        "Unblock a client blocked in a blocking command from a different connection",
        args "client-id:integer [timeout_error(timeout=TIMEOUT|error=ERROR)]";
    "client|getredir", 2, [NOSCRIPT LOADING STALE], [], Handler::Control(tracking::getredir),
        "slow connection", "", "connection", "6.0.0", "O(1)",
        "Get tracking notifications redirection client ID if any";
    "client|trackinginfo", 2, [NOSCRIPT LOADING STALE], [], Handler::Control(tracking::trackinginfo),
        "slow connection", "", "connection", "6.2.0", "O(1)",
        "Return information about server assisted client side caching for the current connection";
    "client|tracking", -3, [NOSCRIPT LOADING STALE], [], Handler::Control(tracking::tracking),
        "slow connection", "", "connection", "6.0.0", "O(1)",
        "Enable or disable server assisted client side caching support",
        args "status(on=ON|off=OFF) [client-id:integer=REDIRECT] [prefix:string=PREFIX++] [bcast=BCAST] [optin=OPTIN] [optout=OPTOUT] [noloop=NOLOOP]";
    "client|caching", 3, [NOSCRIPT LOADING STALE], [], Handler::Control(tracking::caching),
        "slow connection", "", "connection", "6.0.0", "O(1)",
        "Instruct the server about tracking or not keys in the next request",
        args "mode(yes=YES|no=NO)";
    "client|help", 2, [LOADING STALE], [], Handler::Control(client::help),
        "slow connection", "", "connection", "5.0.0", "O(1)",
        "Show helpful text about the different subcommands";
    "client|move", 4, [ADMIN NOSCRIPT LOADING STALE], [], Handler::Control(client::move_),
        "admin slow dangerous connection", "", "connection", "7.2.0", "O(1)",
        "Moves a live connection to another event loop (only in Evenkeel)",
        args "client-id:integer loop:integer";
};
