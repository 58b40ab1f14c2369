//! A decision log before which something happens.

use std::sync::{Arc, Mutex};

use txn::decision_log::{Cycle, DecisionLog, LogCounters, Refused, Waiter};
use txn::id::TxId;

/// A log that has something happen right before the next decision is written: all branches are prepared, and nothing is decided.
pub(crate) struct BeforeDecision {
    log: Arc<dyn DecisionLog>,
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BeforeDecision {
    pub(crate) fn new(log: Arc<dyn DecisionLog>) -> Self {
        Self { log, what: Mutex::default() }
    }

    /// `what` happens before the next decision.
    pub(crate) fn set(&self, what: Box<dyn FnOnce() + Send>) {
        *self.what.lock().unwrap() = Some(what);
    }
}

impl std::fmt::Debug for BeforeDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeforeDecision").finish_non_exhaustive()
    }
}

impl DecisionLog for BeforeDecision {
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        if let Some(what) = self.what.lock().unwrap().take() {
            what();
        }
        self.log.write(tx, record, waiter)
    }

    fn remove(&self, tx: TxId) {
        self.log.remove(tx);
    }

    fn offer(&self) {
        self.log.offer();
    }

    fn help(&self, is_alone: bool) -> bool {
        self.log.help(is_alone)
    }

    fn is_sound(&self) -> bool {
        self.log.is_sound()
    }

    fn counters(&self) -> LogCounters {
        self.log.counters()
    }

    fn close(&self) {
        self.log.close();
    }
}
