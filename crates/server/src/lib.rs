//! RESP commands, sessions and the settings of a server.
//!
//! ```text
//!  reactor -> protocol -> turn -> executor -> run -> data handlers -> store::Access
//!                                    |  \-> eval (scripts), exec (MULTI), tx::stage (TX.DO), long (beside the loop): over run, too
//!                                    \-> control handlers -> control -> server -> clients, pubsub, monitor, capture, waits, ...
//! ```
//!
//! Modules depend on each other downwards, in this order:
//!
//! | floor | modules |
//! |---|---|
//! | what is said of commands, and bytes | `settings`, `command`, `lookup`, `copies`, `payload`, `failure`, `errors`, `words`, `glob`, `sealed` |
//! | what runs a data command | `call`, `run`, `tuned`, `stats` |
//! | parts with a state of their own | `script`, `clients`, `traffic`, `pubsub`, `monitor`, `capture`, `waits`, `pause`, `strangers`, `slowlog`, `long`, `tx`, `topologies` |
//! | a connection; all of a server | `session`, `server` |
//! | commands | `control`, `handlers`, `table` |
//! | a request's way | `admission`, `halted`, `eval`, `exec`, `tx::stage`, `long::beside`, `executor`, `series`, `turn`, `protocol` |
//!
//! Invariants
//!   1. A connection executes strictly in order; what must wait parks the connection, never a thread.
//!   2. Every reply is held by what it depended on: nil, errors and aborted transactions, too.
//!   3. Handlers see arguments, an access to the data and a writer for the reply; no sockets, no clock.
//!
//! Out of scope: sockets (`reactor`), bytes of the protocol (`resp`), keeping data (`store`).

mod admission;
mod arguments;
mod blocked;
mod call;
mod calls;
mod capture;
mod chunked;
mod clients;
mod command;
mod control;
mod copies;
mod errors;
mod eval;
mod exec;
mod executor;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod geo;
pub mod glob;
mod halted;
mod handlers;
mod held;
mod holds;
mod hyperloglog;
mod latency;
mod later;
mod lines;
mod long;
mod look;
mod lookup;
mod message;
pub mod metrics;
mod monitor;
mod outcome;
mod pause;
mod payload;
mod peers;
mod protocol;
mod pubsub;
mod reads;
mod ready;
mod relocate;
mod request;
mod run;
mod script;
mod sealed;
mod secrets;
mod series;
mod server;
mod session;
pub mod settings;
mod slowlog;
mod stats;
mod strangers;
mod stream;
mod subscriptions;
mod table;
mod topologies;
mod traffic;
mod transaction;
mod tuned;
mod turn;
mod tx;
mod verdict;
mod waits;
mod words;

pub use crate::capture::running::{Chunk, Last};
pub use command::{Command, Flags, KeySpec};
pub use lookup::{Entry, Table};
pub use message::{Line, Message, Published};
pub use metrics::CONSOLE_PAGE;
pub use protocol::EvenkeelProtocol;
pub use server::{ServerOptions, ShutdownKind};
pub use session::Session;
pub use table::commands;
pub use topologies::guard::is_of_a_topology;
pub use tx::{Transactions, TransactionsError, TransactionsOptions};

#[cfg(test)]
mod tests;
