//! What tests of the decision logs share. Other crates' tests use this file by its path.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use txn::decision_log::{LogError, Waiter};
use txn::id::{NodeName, TxId};

/// Remembers what it heard of each transaction.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    heard: Mutex<BTreeMap<TxId, Vec<Result<(), LogError>>>>,
    changed: Condvar,
}

impl Ear {
    /// What was heard since the last call.
    pub(crate) fn take(&self) -> BTreeMap<TxId, Vec<Result<(), LogError>>> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    /// Waits for the next word of `tx`.
    pub(crate) fn wait(&self, tx: TxId) -> Result<(), LogError> {
        let heard = self.heard.lock().unwrap();
        let mut heard = self.changed.wait_while(heard, |heard| !heard.contains_key(&tx)).unwrap();
        let mut words = heard.remove(&tx).unwrap();
        assert_eq!(words.len(), 1, "{tx} was told of more than once");
        words.remove(0)
    }
}

impl Waiter for Ear {
    fn on_logged(&self, tx: TxId, result: Result<(), LogError>) {
        self.heard.lock().unwrap().entry(tx).or_default().push(result);
        self.changed.notify_all();
    }
}

/// One ear as a waiter.
pub(crate) fn waiter(ear: &Arc<Ear>) -> Arc<dyn Waiter> {
    Arc::clone(ear) as _
}

/// The node of most tests.
pub(crate) fn node() -> NodeName {
    NodeName::new("test").unwrap()
}

/// Transaction `number` of `epoch`.
pub(crate) fn tx(epoch: u32, number: u64) -> TxId {
    TxId { epoch, number }
}
