//! What is asked for: where keys come from, what becomes of those that are there, and who may end a transfer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use connection::{Client, ClientError, Target};

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

/// What the name of a collection begins with until all of it has come.
pub(crate) const PARTIAL: &[u8] = b"evenkeel:import:";
