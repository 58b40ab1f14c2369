//! Connections that wait for what others free: room in the journal, and keys that prepared transactions hold.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::message::Message;
use crate::peers::Connections;

/// Who waits, by connection.
#[derive(Debug)]
pub(crate) struct Waits {
    peers: Arc<Connections>,
    credits: Waiting,
    unlock: Waiting,
}

#[derive(Debug, Default)]
struct Waiting(Mutex<BTreeSet<u64>>);

impl Waits {
    pub(crate) fn new(peers: Arc<Connections>) -> Self {
        Waits { peers, credits: Waiting::default(), unlock: Waiting::default() }
    }

    /// Has the connections that wait for credits try again.
    pub(crate) fn on_credits(&self) {
        self.retry(self.credits.take());
    }

    /// Has the connections try again that wait for keys which prepared transactions hold.
    pub(crate) fn on_unlock(&self) {
        self.retry(self.unlock.take());
    }

    /// Notes that a connection waits for credits.
    pub(crate) fn wait_for_credits(&self, id: u64) {
        self.credits.add(id);
    }

    /// Notes that a connection waits for a key that a prepared transaction holds.
    pub(crate) fn wait_for_unlock(&self, id: u64) {
        self.unlock.add(id);
    }

    /// A connection ended while it waited.
    pub(crate) fn forget(&self, id: u64) {
        self.credits.remove(id);
        self.unlock.remove(id);
    }

    fn retry(&self, waiting: BTreeSet<u64>) {
        for id in waiting {
            self.peers.post(id, Message::Retry);
        }
    }
}

impl Waiting {
    fn add(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn remove(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
