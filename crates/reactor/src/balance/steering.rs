//! How other threads steer the balancer's: they change how connections are balanced, and stop it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Balance;

/// How other threads steer the balancer.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    balance: Balance,
    is_stopping: bool,
}

impl Steering {
    pub(crate) fn new(balance: Balance) -> Self {
        Self { state: Mutex::new(State { balance, is_stopping: false }), changed: Condvar::new() }
    }

    pub(crate) fn balance(&self) -> Balance {
        self.lock().balance
    }

    pub(crate) fn set_balance(&self, balance: Balance) {
        self.lock().balance = balance;
        self.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Waits until something changed, at most for `timeout`; `None` when the reactor stops.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Balance> {
        let state = self.lock();
        if state.is_stopping {
            return None;
        }
        let waited = self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner);
        (!waited.0.is_stopping).then_some(waited.0.balance)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
