//! Commands about the connection itself.
//!
//! One row a command, as `command::rows` describes; names and texts are those that clients of Redis know.

use crate::command::{Command, Handler, rows};
use crate::handlers::connection;

/// The rows.
pub(crate) const ROWS: &[Command] = rows! {
    "hello", -1, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::hello),
        "fast connection", "", "connection", "6.0.0", "O(1)",
        "Handshake with Redis";
    "auth", -2, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::auth),
        "fast connection", "", "connection", "1.0.0", "O(N)",
        "Authenticate to the server";
    "ping", -1, [FAST], [], Handler::Control(connection::ping),
        "fast connection", "request_policy:all_shards response_policy:all_succeeded", "connection", "1.0.0", "O(1)",
        "Ping the server";
    "echo", 2, [LOADING STALE FAST], [], Handler::Control(connection::echo),
        "fast connection", "", "connection", "1.0.0", "O(1)",
        "Echo the given string";
    "select", 2, [LOADING STALE FAST], [], Handler::Control(connection::select),
        "fast connection", "", "connection", "1.0.0", "O(1)",
        "Change the selected database for the current connection";
    "quit", -1, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::quit),
        "fast connection", "", "connection", "1.0.0", "O(1)",
        "Close the connection";
    "reset", 1, [NOSCRIPT LOADING STALE FAST NO_AUTH ALLOW_BUSY], [], Handler::Control(connection::reset),
        "fast connection", "", "connection", "6.2.0", "O(1)",
        "Reset the connection";
};
