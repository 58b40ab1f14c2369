//! What ended an attempt of a command that had done its work, looked at before the next attempt does that work again.
//!
//! A command plans its effects before it knows what they need: room in the log and in memory, keys that nobody has claimed or holds. A
//! removal of a hundred thousand members plans for a third of a second. Where each wake-up planned them anew to find the same obstacle, one
//! command took its loop for 17 s.
//!
//! Nothing is decided here: an obstacle that is gone may be there again, and another may be, when the effects are committed.

use std::sync::Arc;

use crate::Store;
use crate::engine::{Class, Credits};
use crate::error::{Locked, Stop, StoreError};
use crate::prepared::{EffectRoom, Obstacle, Prepared};

impl Store {
    /// Looks whether what ended the attempt before is still in the way.
    ///
    /// # Errors
    /// [`Stop::Busy`] or [`Stop::Locked`] if it is.
    pub(crate) fn pass_obstacle(&self, prepared: &Prepared) -> Result<(), Stop> {
        match prepared.obstacle() {
            None => Ok(()),
            Some(Obstacle::Room(room)) => {
                if room.grows {
                    self.await_memory()
                } else {
                    Ok(())
                }
            }
            Some(Obstacle::Claim { keyspace, hash, writes }) => {
                let stripe = self.index.lock(hash.stripe());
                let locks = stripe.locks.as_ref();
                let is_claimed = locks.is_some_and(|locks| locks.is_claimed(*keyspace, *hash, *writes, None));
                if is_claimed { Err(Stop::Busy) } else { Ok(()) }
            }
            Some(Obstacle::Lock { db, keyspace, hash, key }) => {
                let stripe = self.index.lock(hash.stripe());
                let Some(by) = stripe.holder(*keyspace, *hash, key) else { return Ok(()) };
                Err(Stop::Locked(Box::new(Locked { by: Arc::clone(by), db: *db, key: Some(key.clone()) })))
            }
        }
    }

    /// Takes credits for `bytes` of `records` (0: none), or for what the attempt before turned out to need.
    ///
    /// # Errors
    /// [`Stop::Busy`] or [`Stop::Refused`] when the engine has no room for them.
    pub(crate) fn credits_for(
        &self,
        prepared: &Prepared,
        bytes: u64,
        records: u64,
    ) -> Result<Option<Credits>, Stop> {
        let (mut bytes, mut records, mut class) = (bytes, records, Class::Write);
        if let Some(Obstacle::Room(room)) = prepared.obstacle() {
            class = if records == 0 { room.class } else { class };
            // others may have changed the same elements meanwhile
            bytes = bytes.max(room.bytes + room.bytes / MARGIN_SHARE);
            records = records.max(room.records + room.records / MARGIN_SHARE);
        }
        if records == 0 {
            return Ok(None);
        }
        match self.engine.reserve(bytes, records, class) {
            Ok(credits) => Ok(Some(credits)),
            // Only the commit knows whether the command removes: it asks again, and names the cause if not.
            Err(Stop::Refused(StoreError::DiskFull(_))) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Whether what grows would have to wait for memory or disk. What is refused for good the commit refuses: it knows whether the effects
    /// still grow.
    fn await_memory(&self) -> Result<(), Stop> {
        let admitted = self.admit_to_disk().and_then(|()| self.memory.admit(self.accounts(), 0));
        if matches!(admitted, Err(Stop::Busy)) { Err(Stop::Busy) } else { Ok(()) }
    }
}

impl EffectRoom {
    /// Room in memory, for records that are not counted yet.
    pub(super) const IN_MEMORY: Self = Self { bytes: 0, records: 0, class: Class::Write, grows: true };

    /// Room in the log.
    pub(super) fn in_log(bytes: u64, records: u64, class: Class) -> Self {
        Self { bytes, records, class, grows: false }
    }
}

/// So much of what was needed is taken beside it.
const MARGIN_SHARE: u64 = 8;
