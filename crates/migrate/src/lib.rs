//! The way over: keys of Redis and Valkey into a running server, and the keys of a running server into a file that they load.
//!
//! ```text
//!  file (rdb) ─┐
//!  folder (rdb, then commands) ─┼─> `load`: keys as commands ──> `sink`: requests in batches, several under way ──> the server
//!  server (rdb, then commands) ─┘   `replay`: commands as they are ─┘
//! ```
//!
//! Invariants
//!   1. A key is taken whole, or named in the [`Report`]. So is each command that the server refused.
//!   2. A key appears at once, with its expiry: a small collection by RESTORE, a large one under a name of its own first (`options::PARTIAL`), which
//!      the next import of this key overwrites.
//!   3. What waits for the server has a bound; of what is read there is one string, and what a small collection has.
//!
//! Out of scope: what the command line says, passwords in the environment (`evenkeel`).

mod aof;
mod error;
mod export;
mod import;
mod load;
mod options;
mod replay;
mod replica;
mod report;
mod sink;

pub use error::MigrateError;
pub use export::{Exported, FileKind, export};
pub use import::import;
pub use options::{Connect, Control, Existing, Import, Source};
pub use report::Report;
