//! The test collection: the road that hashes, sets and the like will take, walked today by a map that only tests
//! reach.
//!
//! ```text
//! IMAGE { a: 1 }  <-  FIELD_SET b = 2  <-  FIELD_DELETE a        small records, each names the state it builds on
//! fold: IMAGE { b: 2 }                                           one record again
//! ```
//!
//! In memory a collection is its folded image. Cold, it is base and deltas in the log; both are fetched, and
//! [`super::Guards::warm`] folds them under the lock. A collection is folded by itself after a few deltas.

use std::collections::BTreeMap;

use crate::error::Stop;
use crate::index::stripe::Delta;
use crate::index::table::Spot;
use crate::large::Bytes;
use crate::log::fold::{decode_image, encode_image};
use crate::object::Object;
use crate::prepared::Prepared;
use crate::record;

use super::overlay::{Cause, Change, Small, Staged};
use super::{Access, State};
use crate::index::stripe::Space;

/// Fields of a test collection.
pub(super) type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

impl Access<'_> {
    /// Sets a field of the test collection `key`, which is created when missing (a string is replaced).
    ///
    /// # Errors
    /// [`Stop::Cold`] when records decide that were not prepared.
    #[doc(hidden)]
    pub fn field_set(&mut self, db: u16, key: &[u8], field: &[u8], value: &[u8]) -> Result<(), Stop> {
        let body = [&(field.len() as u32).to_le_bytes(), field, value].concat();
        self.change_fields(db, key, record::FIELD_SET, body, |fields| {
            fields.insert(field.into(), value.into()).is_none()
        })?;
        Ok(())
    }

    /// Deletes a field of the test collection `key`; returns whether it was there.
    ///
    /// # Errors
    /// As [`Access::field_set`].
    #[doc(hidden)]
    pub fn field_delete(&mut self, db: u16, key: &[u8], field: &[u8]) -> Result<bool, Stop> {
        if self.fields(db, key)?.is_none_or(|fields| !fields.contains_key(field)) {
            return Ok(false);
        }
        let body = [&(field.len() as u32).to_le_bytes(), field].concat();
        self.change_fields(db, key, record::FIELD_DELETE, body, |fields| fields.remove(field).is_some())
    }

    /// Writes the test collection `key` as one image; returns whether it is there.
    ///
    /// # Errors
    /// As [`Access::field_set`].
    #[doc(hidden)]
    pub fn fold(&mut self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(false) };
        let hash = self.hash(key);
        let Some(state) = self.lookup(keyspace, hash, key, db)? else { return Ok(false) };
        self.check_value(&state)?;
        let object = Object::new(state.kind, key, state.value, state.expiry_ms);
        self.overlay.stage(Staged { db, keyspace, hash, change: Change::Put(object), cause: Cause::Command });
        Ok(true)
    }

    /// The fields of the test collection `key`, `None` when it is absent or a string.
    ///
    /// # Errors
    /// As [`Access::field_set`].
    #[doc(hidden)]
    pub fn fields(&self, db: u16, key: &[u8]) -> Result<Option<Fields>, Stop> {
        let Some(state) = self.find(db, key)? else { return Ok(None) };
        self.check_value(&state)?;
        let fields = (state.kind == record::IMAGE).then(|| decode_image(state.value.slice())).flatten();
        Ok(fields.map(|fields| {
            fields.into_iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
        }))
    }

    fn change_fields(
        &mut self,
        db: u16,
        key: &[u8],
        kind: u8,
        body: Vec<u8>,
        change: impl FnOnce(&mut Fields) -> bool,
    ) -> Result<bool, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(false) };
        let hash = self.hash(key);
        let mut fields = self.fields(db, key)?;
        let state = self.lookup(keyspace, hash, key, db)?;
        let takes_delta = fields.is_some() && state.is_some_and(|state| self.takes_delta(&state));
        let expiry_ms = state.filter(|_| fields.is_some()).map_or(0, |state: State<'_>| state.expiry_ms);
        let changed = change(fields.get_or_insert_default());
        let object =
            Object::new(record::IMAGE, key, Bytes::Plain(&encode(&fields.unwrap_or_default())), expiry_ms);
        let change = Change::of(object, takes_delta.then_some(Small::Field { kind, body }));
        self.overlay.stage(Staged { db, keyspace, hash, change, cause: Cause::Command });
        Ok(changed)
    }
}

impl Space {
    /// The folded object of the cold collection at `spot`, if base and deltas were all fetched and fit.
    pub(super) fn folded(&self, spot: Spot, prepared: &Prepared) -> Option<Object> {
        let address = self.table.word(spot).address();
        let base = prepared.record(address)?.as_ref().ok()?;
        let mut fields = owned(decode_image(&base.value)?);
        let (mut seq, mut expiry_ms) = (base.seq, base.expiry_ms);
        for delta in self.deltas_of(address) {
            if !delta.follows(seq) {
                return None;
            }
            seq = delta.seq;
            expiry_ms = delta.expiry_after(expiry_ms);
            if delta.kind != record::EXPIRY {
                change(&mut fields, delta, prepared)?;
            }
        }
        let mut object = Object::new(record::IMAGE, &base.key, Bytes::Plain(&encode(&fields)), expiry_ms);
        object.stamp(address, seq);
        Some(object)
    }
}

fn change(fields: &mut Fields, delta: &Delta, prepared: &Prepared) -> Option<()> {
    let fetched = prepared.record(delta.address)?.as_ref().ok()?;
    let (len, rest) = fetched.value.split_first_chunk::<4>()?;
    let (field, value) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    if delta.kind == record::FIELD_SET {
        fields.insert(field.into(), value.into());
    } else {
        fields.remove(field);
    }
    Some(())
}

fn owned(fields: BTreeMap<&[u8], &[u8]>) -> Fields {
    fields.into_iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
}

fn encode(fields: &Fields) -> Vec<u8> {
    encode_image(&fields.iter().map(|(field, value)| (field.as_slice(), value.as_slice())).collect())
}
