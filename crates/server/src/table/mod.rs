//! The command table: every command and subcommand that the server knows, by group.

mod connection;
mod keys;
mod pubsub;
mod server;
mod strings;
mod transactions;
mod tx;

use crate::command::Command;

/// All rows, group by group.
pub(crate) const GROUPS: [&[Command]; 7] =
    [connection::ROWS, keys::ROWS, strings::ROWS, transactions::ROWS, pubsub::ROWS, server::ROWS, tx::ROWS];
