//! What commands see of keys without changing them: values, what is known of them, how they were used, how many there are.
//!
//! Invariants
//!   1. A key that is only looked at does not count as used.
//!   2. A count of a whole keyspace depends on the newest append.
//!
//! Out of scope: how a key is found (`lookup`).

use super::Access;
use crate::error::Stop;
use crate::evict::policy::Usage;
use crate::index::stripe::Seek;
use crate::record;
use crate::value::{Found, Meta, ValueKind};
use crate::watch::Watch;

impl<'s> Access<'s> {
    /// The value of `key`, `None` when absent or expired.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared; [`Stop::Damaged`] when that record is damaged.
    pub fn get(&self, db: u16, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        let Some(state) = self.find(db, key)? else { return Ok(None) };
        self.check_value(&state)?;
        let gathered = self.gathered(&state, db, key)?;
        Ok(Some(Found {
            value: gathered.unwrap_or(state.value.slice()),
            large: if gathered.is_some() { None } else { state.value.large() },
            kind: ValueKind::of(state.kind),
            expiry: state.expiry,
            seq: state.seq,
        }))
    }

    /// What is known of `key` without its value.
    ///
    /// # Errors
    /// As [`Access::get`]: a cold candidate must be read to know whether it is the key.
    pub fn meta(&self, db: u16, key: &[u8]) -> Result<Option<Meta>, Stop> {
        let found = self.for_state(|| self.without_use(|| self.find(db, key)))?;
        Ok(found.map(|state| {
            let leaves_bytes =
                record::root_of(state.kind, state.value.slice()).map_or(0, |root| root.all_bytes());
            let Meta { value_len, memory_bytes, .. } = state.meta();
            let memory_bytes = if memory_bytes == 0 { 0 } else { memory_bytes + leaves_bytes };
            Meta { value_len: value_len + leaves_bytes, memory_bytes, ..state.meta() }
        }))
    }

    /// As [`Access::get`], for who only looks at how the value is kept: the key counts as not used.
    ///
    /// # Errors
    /// As [`Access::get`].
    pub fn peek(&self, db: u16, key: &[u8]) -> Result<Option<Found<'_>>, Stop> {
        self.without_use(|| self.get(db, key))
    }

    /// Counts `key` as used; returns whether it is there.
    ///
    /// # Errors
    /// As [`Access::meta`].
    pub fn touch(&self, db: u16, key: &[u8]) -> Result<bool, Stop> {
        let touches = self.touches.replace(true);
        let found = self.for_state(|| self.find(db, key));
        self.touches.set(touches);
        Ok(found?.is_some())
    }

    /// From now on no key counts as used, but for [`Access::touch`].
    pub fn set_without_use(&self) {
        self.touches.set(false);
    }

    /// How `key` was used: `None` when it is absent.
    ///
    /// # Errors
    /// As [`Access::meta`].
    pub fn usage(&self, db: u16, key: &[u8]) -> Result<Option<Usage>, Stop> {
        if self.for_state(|| self.without_use(|| self.find(db, key)))?.is_none() {
            return Ok(None);
        }
        let now_ms = self.now.server_ms();
        let stamped = self.keyspace(db).and_then(|keyspace| {
            let hash = self.hash(key);
            let stripe = self.at_stripe(hash.stripe()).ok()?;
            let space = stripe.space(keyspace)?;
            let Seek::At { spot, .. } = space.seek(keyspace, hash, key, self.prepared()) else {
                return None;
            };
            let (tracking, stamp) = space.table.stamp(spot)?;
            Some(tracking.usage(stamp.get(), now_ms))
        });
        // one that this access has just made is not there yet
        let tracking = self.store.eviction().tracking();
        Ok(Some(
            stamped.or_else(|| tracking.map(|it| it.usage(it.fresh(now_ms), now_ms))).unwrap_or_default(),
        ))
    }

    /// From now on values are read and kept of keys whose state alone is looked at: the next command of this access may need them, as after EXISTS.
    pub fn keep_values(&mut self) {
        self.keeps_values = true;
    }

    /// Number of keys of database `db`, exact; expired ones count until they are removed. Reads a counter.
    ///
    /// # Errors
    /// [`Stop::Refused`] unless the scope is [`Scope::Everything`](crate::Scope::Everything) or [`Scope::Walk`](crate::Scope::Walk); [`Stop::Cold`] after staged effects
    /// on cold keys.
    pub fn len(&self, db: u16) -> Result<u64, Stop> {
        let Some(keyspace) = self.keyspace(db) else { return Ok(0) };
        let index = &self.store.index;
        // one stripe is enough for the mapping to stand still
        let base = self.guards.with_stripe(self.store, 0, |_| index.keys_of(keyspace))?;
        // after the count: whatever it counts was appended before
        self.look(self.store.engine.newest());
        Ok(base.saturating_add_signed(self.overlay_len_change(keyspace)?))
    }

    /// Whether `watch`ed key changed since the watch began; the key must be in the scope.
    ///
    /// # Errors
    /// [`Stop::Refused`] when it is not.
    pub fn changed(&self, watch: &Watch) -> Result<bool, Stop> {
        if !self.store.engine_keeps() {
            return Ok(false);
        }
        let stripe = &*self.at_stripe(watch.stripe)?;
        if let (Some(_), Some(keyspace)) = (&stripe.locks, self.store.index.keyspace(watch.db)) {
            self.check_claim(stripe, keyspace, self.store.hasher.hash(&watch.key), false)?;
        }
        let state = stripe.watches.state(watch.db, &watch.key).unwrap_or_default();
        self.look(state.seq);
        if state.changes != watch.state.changes {
            return Ok(true);
        }
        if watch.expired {
            return Ok(false);
        }
        if state.expiries != watch.state.expiries { Ok(true) } else { self.is_expired(stripe, watch) }
    }

    /// Whether somebody waits for a change of `key`, which is in the scope.
    pub fn is_waited_for(&self, db: u16, key: &[u8]) -> bool {
        let stripe = self.guards.stripe(self.hash(key).stripe());
        stripe.is_ok_and(|stripe| stripe.watches.is_waited(db, key))
    }
}
