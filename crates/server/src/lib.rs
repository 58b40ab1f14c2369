//! RESP commands, sessions and the settings of a server.
//!
//! ```text
//!  reactor -> protocol -> turn -> executor -> run -> handlers -> store::Access
//!                                    |  \-> exec (MULTI), tx::stage (TX.DO), long (beside the loop): over run, too
//!                                    \-> lookup -> table (one row a command)
//! ```
//!
//! Invariants
//!   1. A connection executes strictly in order; what must wait parks the connection, never a thread.
//!   2. Every reply is held by what it depended on: nil, errors and aborted transactions, too.
//!   3. Handlers see arguments, an access to the data and a writer for the reply; no sockets, no clock.
//!
//! Out of scope: sockets (`reactor`), bytes of the protocol (`resp`), keeping data (`store`).

mod admission;
mod arguments;
mod call;
mod calls;
mod capture;
mod clients;
mod command;
mod copies;
mod decimal;
mod errors;
mod exec;
mod executor;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
pub mod glob;
mod handlers;
mod held;
mod latency;
mod later;
mod long;
mod lookup;
mod message;
pub mod metrics;
mod monitor;
mod protocol;
mod pubsub;
mod run;
mod secrets;
mod server;
mod session;
pub mod settings;
mod slowlog;
mod stats;
mod strangers;
mod table;
mod tuned;
mod turn;
mod tx;

pub use crate::capture::{Chunk, Last};
pub use command::{Command, Flags, KeySpec};
pub use lookup::{Entry, Table};
pub use message::{Line, Message, Published};
pub use protocol::EvenkeelProtocol;
pub use server::{ServerOptions, ShutdownKind};
pub use session::Session;
pub use tx::{Transactions, TransactionsOptions};

#[cfg(test)]
mod tests;
