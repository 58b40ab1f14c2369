//! The thread that keeps house, for as long as there is a store.

use std::sync::{Arc, Weak};

use super::rest::Rests;
use super::{Housekeeping, Manner, Turn};
use crate::Store;
use crate::error::StoreError;
use crate::locks::lock;

impl Housekeeping {
    /// Starts the thread; it ends with the store, or by [`Housekeeping::stop`].
    ///
    /// # Errors
    /// When the system has no threads left.
    pub(crate) fn start(&self, store: &Arc<Store>) -> Result<(), StoreError> {
        let weak = Arc::downgrade(store);
        if let Some((_, parts)) = store.housekeeping() {
            parts.engine.returns.begin();
        }
        let thread = std::thread::Builder::new()
            .name("store-keep".into())
            .spawn(move || run(&weak))
            .map_err(|error| StoreError::Open(format!("no thread for housekeeping: {error}")))?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }
}

fn run(store: &Weak<Store>) {
    let mut rests = Rests::new();
    // a store that nobody holds ends within one rest
    while let Some(store) = store.upgrade() {
        let Some((housekeeping, parts)) = store.housekeeping() else { return };
        let next_lsn = parts.engine.journal.next_lsn();
        let rest = match housekeeping.turn(parts, Manner::Paced) {
            Ok(Turn { worked, throttles }) => rests.next(next_lsn, worked || throttles),
            Err(error) => {
                tracing::error!(%error, "housekeeping ends");
                housekeeping.release(parts);
                return;
            }
        };
        let is_needed = || parts.engine.journal.next_lsn() != next_lsn || parts.engine.returns.is_awaited();
        if housekeeping.alarm.rest(rest, is_needed) {
            housekeeping.release(parts);
            return;
        }
    }
}
