//! Connections that came and whose peers have not proved who they are: few at a time, the newest ones.
//!
//! The oldest one gives way, and not the newest one: who holds connections open without a word would otherwise keep nodes out for as long
//! as `handshake_timeout`. A node needs a few milliseconds.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reactor::Connection;

use crate::security::refusal::Counters;

/// At most so many.
pub(super) const STRANGERS_MAX: usize = 64;

/// Those that wait, the oldest one first.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<VecDeque<Arc<Connection>>>);

impl Strangers {
    /// Takes in `connection`; the one that has to go for it.
    pub(super) fn enter(&self, connection: &Arc<Connection>, counters: &Counters) -> Option<Arc<Connection>> {
        let mut waiting = self.lock();
        let gone = if waiting.len() == STRANGERS_MAX { waiting.pop_front() } else { None };
        waiting.push_back(Arc::clone(connection));
        counters.waiting.store(waiting.len(), Ordering::Relaxed);
        gone
    }

    /// `connection` is none of them any more.
    pub(super) fn leave(&self, connection: &Connection, counters: &Counters) {
        let mut waiting = self.lock();
        waiting.retain(|other| other.id() != connection.id());
        counters.waiting.store(waiting.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
