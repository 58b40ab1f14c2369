//! Decision logs by name: how each is opened for a run, and again after it.

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use clock::SystemClock;
use journal::BackendKind;
use sql::decision_log::SqlLog;
use sql::tls::TlsOptions;
use txn::decision_log::DecisionLog;
use txn::decision_log::file::{self, FileLog};
use txn::decision_log::journal::JournalLog;
use txn::decision_log::volatile::Volatile;
use txn::decision_log::{OpenError, Opened};
use txn::id::{NodeName, TxId};
use vfs::RealDisk;

use crate::Failure;

/// Where decisions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogKind {
    /// Memory: nothing survives
    Volatile,
    /// A file for each transaction
    File,
    /// The journal: one sync for all that were written meanwhile
    Journal,
    /// A table of a PostgreSQL database (--url)
    Sql,
}

/// What a log is told beside its folder.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// How the journal's bytes reach the disk.
    pub backend: BackendKind,
    /// Database of the log in SQL.
    pub url: Option<String>,
}

/// An open log, whichever it is.
#[derive(Debug)]
pub(super) struct OpenLog {
    pub(super) log: Arc<dyn DecisionLog>,
    pub(super) epoch: u32,
    pub(super) born: u32,
    pub(super) records: Vec<(TxId, Vec<u8>)>,
}

impl LogKind {
    /// Whether what it holds is there after it was closed.
    pub(super) fn is_kept(self) -> bool {
        self != Self::Volatile
    }

    /// Opens it: in `folder`, those of files.
    ///
    /// # Errors
    /// It does not open; what is in the way.
    pub(super) fn open(
        self,
        folder: &Path,
        node: &NodeName,
        options: &LogOptions,
    ) -> Result<OpenLog, Failure> {
        match self {
            Self::Volatile => Ok(OpenLog::from(Volatile::open(node, 1))),
            Self::File => {
                of(FileLog::open(Arc::new(RealDisk), &SystemClock, folder, node, file::Options::default()))
            }
            Self::Journal => {
                let journal = journal::Options { backend: options.backend, ..journal::Options::default() };
                of(JournalLog::open(Arc::new(RealDisk), Arc::new(SystemClock), folder, node, journal))
            }
            Self::Sql => {
                let url = options.url.as_deref().ok_or("the log sql needs --url, a PostgreSQL database")?;
                of(SqlLog::open(url, &TlsOptions::default(), node))
            }
        }
    }
}

impl<L: DecisionLog + 'static> From<Opened<L>> for OpenLog {
    fn from(Opened { log, epoch, born, records }: Opened<L>) -> Self {
        Self { log, epoch, born, records }
    }
}

fn of<L: DecisionLog + 'static>(opened: Result<Opened<L>, OpenError>) -> Result<OpenLog, Failure> {
    opened.map(OpenLog::from).map_err(|error| error.to_string())
}
