//! Appending to the saved folder.
//!
//! Invariant: each record has SHARED, so that a start reads the keys where hashes are equal.

use collections::Deadline;
use std::sync::Arc;

use journal::{Class, Driver, Journal, Keyspace, Refusal, footprint};

use crate::check::nodes::State;
use crate::error::StoreError;
use crate::record::{self, Draft};
use crate::value::ValueKind;
use collections::root::{KEY_NODE, Root, leaf_key};

/// Appends to the saved folder.
pub(super) struct Writer {
    journal: Arc<Journal>,
    driver: Driver,
}

impl Writer {
    /// One that appends to `journal`.
    pub(super) fn new(journal: Arc<Journal>, driver: Driver) -> Self {
        Self { journal, driver }
    }

    /// Appends a whole value.
    ///
    /// # Errors
    /// [`StoreError::Open`] when the disk has no room.
    fn put(&mut self, draft: &Draft<'_>) -> Result<(), StoreError> {
        let parts = draft.parts();
        let draft = journal::Draft::new(draft.kind | record::SHARED, draft.keyspace, &parts)
            .expiring(Deadline::raw_or_zero(draft.expiry));
        let credits = loop {
            match self.journal.reserve(footprint([draft.payload_len()]), Class::Reclaim) {
                Ok(credits) => break credits,
                Err(Refusal::Busy { .. }) if self.driver.commit() > 0 || self.driver.prepare_once() => {}
                Err(refusal) => return Err(StoreError::Open(refusal.to_string())),
            }
        };
        self.journal.append(credits, &[draft], &mut Vec::new());
        Ok(())
    }

    /// Appends a leaf or another node of a collection that is made.
    pub(super) fn put_node(
        &mut self,
        leaves: Keyspace,
        object: u64,
        number: u32,
        kind: ValueKind,
        value: &[u8],
    ) -> Result<(), StoreError> {
        let key = leaf_key(object, number);
        // the first deadline by either clock: who looks at it then sees which have passed
        let times = if kind == ValueKind::Hash { collections::times_of(value) } else { None };
        let first = times.map(|times| if times.wall == 0 { times.server } else { times.wall });
        self.put(&Draft::whole(record::kind_of(kind), leaves, &key, value, first.and_then(Deadline::of)))
    }

    /// Appends at which key the hash `object` is, whose fields have deadlines.
    pub(super) fn put_key_node(
        &mut self,
        leaves: Keyspace,
        object: u64,
        key: &[u8],
    ) -> Result<(), StoreError> {
        self.put(&Draft::whole(record::STRING, leaves, &leaf_key(object, KEY_NODE), key, None))
    }

    /// Appends a root in place of the one in `state`.
    pub(super) fn put_root(&mut self, keys: Keyspace, state: &State, root: &Root) -> Result<(), StoreError> {
        self.put(&Draft::whole(state.kind, keys, state.key(), &root.encode(), state.expiry))
    }

    /// Appends that a key is gone.
    pub(super) fn remove(&mut self, keyspace: Keyspace, key: &[u8]) -> Result<(), StoreError> {
        self.put(&Draft::whole(record::REMOVED, keyspace, key, &[], None))
    }

    /// Makes all of it durable, as a clean stop does.
    pub(super) fn finish(mut self) {
        self.driver.commit();
        self.journal.close();
        self.driver.seal();
    }
}
