//! Whole values stored, removed and given an expiry: what a command changes becomes a staged effect.
//!
//! What stands against a change stops the commit; until then nothing is applied.
//!
//! Out of scope: changes of parts (`part`, `collection`), how effects are appended (`commit`).

use std::sync::Arc;

use collections::Deadline;
use journal::Keyspace;

use super::Access;
use super::overlay::{Cause, Change, Content, KeyPlace, Small, Staged};
use crate::error::{Stop, StoreError};
use crate::keyspaces::HIDDEN_DB;
use crate::large::{Bytes, LARGE_BYTES};
use crate::object::Object;
use crate::record;
use crate::value::{Value, ValueKind};

impl<'s> Access<'s> {
    /// Removes a leaf, or a note. `is_sure`: it is there, and need not be read.
    pub(crate) fn sweep(&mut self, keyspace: Keyspace, key: &[u8], is_sure: bool) {
        let hash = self.store.hasher.hash_in(keyspace, key);
        let change = Change::removal(key);
        let cause = if is_sure { Cause::Swept } else { Cause::Command };
        self.stage(Staged { db: HIDDEN_DB, keyspace, hash, change, cause });
    }

    /// Stores `value` under `key`, replacing whatever is there and its expiry.
    ///
    /// What stands against it (a value too large, memory, a cold candidate) stops [`Access::commit`].
    pub fn put(&mut self, db: u16, key: &[u8], value: Value<'_>, expiry: Option<Deadline>) {
        self.put_as(db, key, value, expiry, None);
    }

    /// As [`Access::put`]; what is logged is `delta`, if there is one.
    pub(super) fn put_as(
        &mut self,
        db: u16,
        key: &[u8],
        value: Value<'_>,
        expiry: Option<Deadline>,
        delta: Option<Small>,
    ) {
        if !self.store.engine_keeps() {
            return;
        }
        if self.refuses_size(key, value.bytes().len()) {
            return;
        }
        let Some(place) = self.place(db, key) else { return };
        if let Value::Collection(kind, bytes) = value
            && self.stage_paged(place, Content { kind, value: bytes, expiry })
        {
            return;
        }
        let (bytes, expiry) = self.with_deadlines(value.kind(), value.bytes(), expiry);
        let made = match value {
            Value::Large(large) => {
                // it is counted by itself, now that it is made
                self.give_back(large.as_ref().as_ref().len() as u64);
                Some(Arc::clone(large))
            }
            Value::String(_) | Value::Collection(..) if bytes.len() >= LARGE_BYTES => {
                if self.asks(bytes.len() as u64).is_none() {
                    return;
                }
                let made = self.store.memory.large(&*bytes).ok();
                self.give_back(bytes.len() as u64);
                made
            }
            Value::String(_) | Value::Collection(..) => None,
        };
        let bytes = Bytes::of(&bytes, made.as_ref());
        let object = Object::new(value.kind(), key, bytes, expiry);
        let (KeyPlace { keyspace, hash, .. }, change) = (place, Change::of(object, delta));
        self.forget_leaves(&place);
        self.stage(Staged { db, keyspace, hash, change, cause: Cause::Command });
    }

    /// Whether key and value are too large; then [`Access::commit`] says so.
    pub(super) fn refuses_size(&mut self, key: &[u8], value_len: usize) -> bool {
        let (size_bytes, limit_bytes) = ((key.len() + value_len) as u64, self.store.options.value_bytes_max);
        let refuses = size_bytes > limit_bytes;
        if refuses {
            self.stopped.get_or_insert(StoreError::ValueTooLarge { size_bytes, limit_bytes }.into());
        }
        refuses
    }

    /// Removes `key`; returns whether it was there. A key whose record is damaged was.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared; [`Stop::Damaged`] when a damaged one may be another
    /// key's.
    pub fn remove(&mut self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        self.remove_for(db, key, Cause::Command)
    }

    /// As [`Access::remove`], to make room.
    ///
    /// # Errors
    /// As [`Access::remove`].
    pub(crate) fn evict(&mut self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        self.remove_for(db, key, Cause::Evicted)
    }

    fn remove_for(&mut self, db: u16, key: &[u8], cause: Cause) -> Result<bool, Stop> {
        let Some(place) = self.place(db, key) else { return Ok(false) };
        let KeyPlace { keyspace, hash, .. } = place;
        match self.for_state(|| self.lookup(place)) {
            Ok(None) => return Ok(false),
            Ok(Some(_)) => {}
            // what cannot be read can go
            Err(Stop::Damaged(_)) if self.owns_damage(keyspace, hash, key)? => {}
            Err(stop) => return Err(stop),
        }
        let change = Change::removal(key);
        self.forget_leaves(&place);
        self.stage(Staged { db, keyspace, hash, change, cause });
        Ok(true)
    }

    /// Stages a whole value of a key that expires at `own` at a place where this access may have staged leaves.
    pub(super) fn stage_value(&mut self, place: KeyPlace<'_>, kind: u8, value: &[u8], own: Option<Deadline>) {
        let KeyPlace { db, keyspace, hash, key } = place;
        self.forget_leaves(&place);
        let (value, expiry) = self.with_deadlines(kind, value, own);
        let object = Object::new(kind, key, Bytes::Plain(&value), expiry);
        self.stage(Staged { db, keyspace, hash, change: Change::Put(object), cause: Cause::Command });
    }

    /// Stages the removal of what is at a place.
    pub(super) fn stage_removal(&mut self, place: KeyPlace<'_>) {
        let KeyPlace { db, keyspace, hash, key } = place;
        let change = Change::removal(key);
        self.stage(Staged { db, keyspace, hash, change, cause: Cause::Command });
    }

    /// Sets or (with `None`) clears the expiry of `key`; returns whether the key is there.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared.
    pub fn set_expiry(&mut self, db: u16, key: &[u8], expiry: Option<Deadline>) -> Result<bool, Stop> {
        let Some(place) = self.place(db, key) else { return Ok(false) };
        let KeyPlace { keyspace, hash, .. } = place;
        self.settle_counts();
        let Some(state) = self.lookup(place)? else { return Ok(false) };
        self.check_value(&state)?;
        if state.is_timed() || self.purged.find(keyspace, hash, key).is_some() {
            return self.set_own_expiry(db, key, expiry);
        }
        if self.keeps_to_workspace
            && let Some(value) = self.gathered(&state, db, key)?
        {
            // leaves change and go while a transaction is open
            let kind = record::kind_of(ValueKind::of(state.kind));
            let (value, first) = self.with_deadlines(kind, value, expiry);
            let change = Change::Put(Object::new(kind, key, Bytes::Plain(&value), first));
            self.stage(Staged { db, keyspace, hash, change, cause: Cause::Retime });
            return Ok(true);
        }
        let small = (state.value.slice().len() as u64) <= self.store.options.expiry_delta_bytes_min;
        let object = Object::new(state.kind, key, state.value, expiry);
        let delta = match self.overlay.find(keyspace, hash, key).map(|staged| &staged.change) {
            None if small || !self.takes_delta(&state) => None,
            None | Some(Change::Delta { delta: Small::Expiry, .. }) => Some(Small::Expiry),
            Some(Change::Delta { delta: Small::Part { range, .. }, .. }) if expiry.is_some() => {
                Some(Small::Part { range: range.clone(), retimes: true })
            }
            Some(_) => None,
        };
        let change = Change::of(object, delta);
        // A value that this group stores is charged as such, whatever comes after it.
        let is_stored = state.staged && self.is_stored(keyspace, hash, key);
        let cause = if is_stored { Cause::Command } else { Cause::Retime };
        self.stage(Staged { db, keyspace, hash, change, cause });
        Ok(true)
    }
}
