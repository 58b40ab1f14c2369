//! What a call of a bolt changes in its state, set when all that the call needs was read and it is the call's turn.
//!
//! ```text
//!  get -> the draft's own changes -> the task's state: what is not known ends the call, and the draft with it
//!  commit: no earlier input waits -> all changes are set
//! ```
//!
//! So a call may read what depends on what it has changed, and changes nothing if it has to be repeated.

use std::collections::BTreeMap;

use bytes::Bytes;
use topology::changes::StateKey;
use topology::component::{BoltOut, Fault};

/// The changes of one call.
#[derive(Debug)]
pub(crate) struct Draft<'a, 'b> {
    out: &'a mut BoltOut<'b>,
    changed: BTreeMap<StateKey, Option<Bytes>>,
}

impl<'a, 'b> Draft<'a, 'b> {
    pub(crate) fn new(out: &'a mut BoltOut<'b>) -> Self {
        Self { out, changed: BTreeMap::new() }
    }

    /// The value at `key`.
    ///
    /// # Errors
    /// As [`BoltOut::get`].
    pub(crate) fn get(&mut self, key: &StateKey) -> Result<Option<Bytes>, Fault> {
        if let Some(changed) = self.changed.get(key) {
            return Ok(changed.clone());
        }
        self.out.get(key)
    }

    /// The values at `keys`: all are asked for before one is waited for.
    ///
    /// # Errors
    /// As [`BoltOut::get`].
    pub(crate) fn get_all(
        &mut self,
        keys: impl IntoIterator<Item = StateKey>,
    ) -> Result<Vec<Option<Bytes>>, Fault> {
        let values: Vec<_> = keys.into_iter().map(|key| self.get(&key)).collect();
        values.into_iter().collect()
    }

    /// Changes the value at `key`; `None` removes it.
    pub(crate) fn set(&mut self, key: StateKey, value: Option<Bytes>) {
        self.changed.insert(key, value);
    }

    /// Makes the changes, when all earlier tuples have made theirs.
    ///
    /// # Errors
    /// An earlier tuple waits; nothing was changed.
    pub(crate) fn commit(self) -> Result<(), Fault> {
        self.out.in_order()?;
        self.changed.into_iter().try_for_each(|(key, value)| self.out.set(key, value))
    }
}
