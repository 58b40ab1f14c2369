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
//!   2. A key appears at once, with its expiry: a small collection by RESTORE, a large one under a name of its own first ([`load::PARTIAL`]), which
//!      the next import of this key overwrites.
//!   3. What waits for the server has a bound; of what is read there is one string, and what a small collection has.
//!
//! Out of scope: what the command line says, passwords in the environment (`evenkeel`).

mod aof;
mod error;
mod export;
mod load;
mod replay;
mod replica;
mod report;
mod sink;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use connection::{Client, ClientError, Target};

pub use error::MigrateError;
pub use export::{Exported, FileKind, export};
pub use report::Report;

use sink::Sink;

/// Where keys come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, RDB or AOF, or a folder of AOF files.
    Path(PathBuf),
    /// A running server.
    Server(Box<Target>),
}

/// What becomes of keys that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// None may be there.
    Refuse,
    /// They are replaced.
    Replace,
    /// They stay.
    Keep,
    /// All are removed first.
    Flush,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Import {
    /// Where from.
    pub source: Source,
    /// Keys of this database only.
    pub db: Option<u64>,
    /// What becomes of keys that are there.
    pub existing: Existing,
    /// Only read and report.
    pub dry_run: bool,
    /// Of a server: end once all has come.
    pub until_synced: bool,
}

/// Connects to the server that takes the keys.
pub type Connect<'a> = &'a dyn Fn() -> Result<Client, ClientError>;

/// What goes along with a transfer: who may end it, and whom it tells how it goes.
pub struct Control<'a> {
    /// Set: it is to end.
    pub is_told: &'a AtomicBool,
    /// Takes a line each second.
    pub tell: &'a dyn Fn(&str),
}

impl Control<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }
}

/// Takes all keys over.
///
/// # Errors
/// What could not be read, or that the server went away. What was taken before is there: the same again, with keys replaced, ends as if
/// nothing had happened.
pub fn import(options: &Import, connect: Connect<'_>, control: &Control<'_>) -> Result<Report, MigrateError> {
    let mut sink = if options.dry_run { Sink::dry() } else { Sink::connect(connect, options)? };
    match &options.source {
        Source::Path(path) => aof::import(path, options, &mut sink, control)?,
        Source::Server(target) => replica::import(target, options, &mut sink, control)?,
    }
    sink.settle()?;
    Ok(sink.into_report())
}
