//! Commands that pass messages on.
//!
//! One row a command, as `row` describes; names and texts are those that clients of Redis know.

use commands::rows;

use super::row::{Handler, Row};
use crate::handlers::pubsub;

/// The rows.
pub(crate) const ROWS: &[Row] = rows! {
    "publish", 3, [PUBSUB LOADING STALE FAST], [], Handler::Control(pubsub::publish),
        "pubsub fast", "", "pubsub", "2.0.0", "O(N+M)",
        "Post a message to a channel",
        args "channel:string message:string";
    "subscribe", -2, [PUBSUB NOSCRIPT LOADING STALE], [], Handler::Control(pubsub::subscribe),
        "pubsub slow", "", "pubsub", "2.0.0", "O(N)",
        "Listen for messages published to the given channels",
        args "channel:string+";
    "unsubscribe", -1, [PUBSUB NOSCRIPT LOADING STALE], [], Handler::Control(pubsub::unsubscribe),
        "pubsub slow", "", "pubsub", "2.0.0", "O(N)",
        "Stop listening for messages posted to the given channels",
        args "[channel:string+]";
    "psubscribe", -2, [PUBSUB NOSCRIPT LOADING STALE], [], Handler::Control(pubsub::psubscribe),
        "pubsub slow", "", "pubsub", "2.0.0", "O(N)",
        "Listen for messages published to channels matching the given patterns",
        args "pattern{pattern:pattern}+";
    "punsubscribe", -1, [PUBSUB NOSCRIPT LOADING STALE], [], Handler::Control(pubsub::punsubscribe),
        "pubsub slow", "", "pubsub", "2.0.0", "O(N+M)",
        "Stop listening for messages posted to channels matching the given patterns",
        args "[pattern:pattern+]";
    "spublish", 3, [PUBSUB LOADING STALE FAST], [], Handler::Control(pubsub::spublish),
        "pubsub fast", "", "pubsub", "7.0.0", "O(N)",
        "Post a message to a shard channel",
        args "shardchannel:string message:string";
    "ssubscribe", -2, [PUBSUB NOSCRIPT LOADING STALE], [], Handler::Control(pubsub::ssubscribe),
        "pubsub slow", "", "pubsub", "7.0.0", "O(N)",
        "Listen for messages published to the given shard channels",
        args "shardchannel:string+";
    "sunsubscribe", -1, [PUBSUB NOSCRIPT LOADING STALE], [], Handler::Control(pubsub::sunsubscribe),
        "pubsub slow", "", "pubsub", "7.0.0", "O(N)",
        "Stop listening for messages posted to the given shard channels",
        args "[shardchannel:string+]";
    "pubsub", -2, [], [], Handler::Container(PUBSUB),
        "slow", "", "pubsub", "2.8.0", "Depends on subcommand.",
        "A container for Pub/Sub commands";
};

/// Subcommands of PUBSUB.
const PUBSUB: &[Row] = rows! {
    "pubsub|channels", -2, [PUBSUB LOADING STALE], [], Handler::Control(pubsub::channels),
        "pubsub slow", "", "pubsub", "2.8.0", "O(N)",
        "List active channels",
        args "[pattern:pattern]";
    "pubsub|help", 2, [LOADING STALE], [], Handler::Control(pubsub::help),
        "slow", "", "pubsub", "6.2.0", "O(1)",
        "Show helpful text about the different subcommands";
    "pubsub|numpat", 2, [PUBSUB LOADING STALE], [], Handler::Control(pubsub::numpat),
        "pubsub slow", "", "pubsub", "2.8.0", "O(1)",
        "Get the count of unique patterns pattern subscriptions";
    "pubsub|numsub", -2, [PUBSUB LOADING STALE], [], Handler::Control(pubsub::numsub),
        "pubsub slow", "", "pubsub", "2.8.0", "O(N)",
        "Get the count of subscribers for channels",
        args "[channel:string+]";
    "pubsub|shardchannels", -2, [PUBSUB LOADING STALE], [], Handler::Control(pubsub::shardchannels),
        "pubsub slow", "", "pubsub", "7.0.0", "O(N)",
        "List active shard channels",
        args "[pattern:pattern]";
    "pubsub|shardnumsub", -2, [PUBSUB LOADING STALE], [], Handler::Control(pubsub::shardnumsub),
        "pubsub slow", "", "pubsub", "7.0.0", "O(N)",
        "Get the count of subscribers for shard channels",
        args "[shardchannel:string+]";
};
