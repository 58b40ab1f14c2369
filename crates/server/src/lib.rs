//! Sessions, the way of a request, commands on more than data, and the settings of a server.
//!
//! ```text
//!  reactor -> protocol -> turn -> executor -> run -> handlers of `commands` -> store::Access
//!                                    |  \-> eval (scripts), exec (MULTI), tx::stage (TX.DO), long (beside the loop): over run, too
//!                                    \-> control handlers -> control -> server -> clients, pubsub, monitor, capture, waits, ...
//! ```
//!
//! Modules depend on each other downwards, in this order:
//!
//! | floor | modules |
//! |---|---|
//! | settings and error replies | `settings`, `errors` |
//! | what runs a command on data | `run`, `retained`, `tuned`, `stats` |
//! | parts with a state of their own | `clients`, `traffic`, `pubsub`, `monitor`, `capture`, `waits`, `pause`, `strangers`, `slowlog`, `acl`, `long`, `tx`, `topologies` |
//! | a connection; all of a server | `session`, `describe`, `server`, `permit` |
//! | commands | `control`, `handlers`, `table` |
//! | a request's way | `admission`, `halted`, `eval`, `exec`, `tx::stage`, `long::beside`, `executor`, `series`, `pipeline`, `turn`, `protocol` |
//!
//! Invariants
//!   1. A connection executes strictly in order; what must wait parks the connection, never a thread.
//!   2. Every reply is held by what it depended on: nil, errors and aborted transactions, too.
//!
//! Out of scope: commands on data (`commands`), interpreters (`script`), sockets (`reactor`), bytes of the protocol (`resp`), keeping data (`store`).

mod acl;
mod admission;
mod arguments;
mod blocked;
mod calls;
mod capture;
mod clients;
mod control;
mod describe;
mod errors;
mod eval;
mod exec;
mod executor;
#[doc(hidden)]
pub mod fuzzing;
mod halted;
mod handlers;
mod held;
mod holds;
mod invalidations;
mod latency;
mod later;
mod lines;
mod long;
mod look;
mod message;
pub mod metrics;
mod monitor;
mod notices;
mod outcome;
mod pause;
mod peers;
mod permit;
mod pipeline;
mod protocol;
mod pubsub;
mod reads;
mod request;
mod retained;
mod run;
mod secrets;
mod series;
mod server;
mod session;
pub mod settings;
mod slowlog;
mod stats;
mod strangers;
mod subscriptions;
mod table;
mod topologies;
mod tracker;
mod tracking;
mod traffic;
mod transaction;
mod tuned;
mod turn;
mod tx;
mod waits;

pub use crate::acl::file::{UserFile, UserFileError};
pub use crate::capture::running::{Chunk, Last};
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
