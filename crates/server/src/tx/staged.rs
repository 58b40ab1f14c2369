//! A command that is to be staged in a transaction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commands::call::DataFn;
use commands::lookup::Entry;
use txn::id::TxId;

use super::work::Work;

/// A command that is to be staged, and where.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(super) tx: TxId,
    pub(crate) entry: &'static Entry,
    pub(super) run: DataFn,
    pub(super) work: Arc<Mutex<Work>>,
}

impl Staged {
    /// What the transaction means to change; waits for whoever works on it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the command begins in TX.DO's arguments.
pub(crate) const COMMAND_AT: usize = 2;
