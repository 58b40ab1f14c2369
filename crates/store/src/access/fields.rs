//! Fields of hashes whose time has come: no lookup sees them, and the commit logs that they are gone.
//!
//! A lookup makes the hash without them, and the purge, as it notes the removal of an expired key. Decision: docs/adr/0014-time-and-expiry.md.

use journal::Seq;

use super::overlay::{Cause, Change, KeyPlace, Small, Staged};
use super::purged::{Purge, next_deadline};
use super::{Access, State};
use crate::index::stripe::Current;
use crate::keyspaces::is_leaves;
use crate::large::Bytes;
use crate::object::Object;
use crate::record;
use collections::{Deadline, Edit, Moment, Packed, Shape, Times};

impl Access<'_> {
    /// Whether fields of some hash are to go that it has met.
    pub(crate) fn has_purged(&self) -> bool {
        !self.purged.is_empty()
    }

    /// Deadlines up to these have passed for an effect `seq`: of the wall clock, and of the server.
    pub(super) fn passed_for(&self, seq: Seq) -> [u64; 2] {
        let [wall, server] = self.now.passed();
        [wall.max(self.store.clock.ceiling_of(seq)), server]
    }

    /// Whether the time of a field has come that had not when `before` had.
    pub(super) fn has_ended_since(&self, before: [u64; 2], current: Current<'_>) -> bool {
        if current.times().is_none() {
            return false;
        }
        let (value, now) = (current.value(), self.passed_for(current.seq()));
        let fields = Packed::new(Shape::Map, value.slice());
        let mut deadlines = (0..fields.len()).filter_map(|at| fields.deadline(at).map(Deadline::raw));
        deadlines.any(|at| {
            let clock = usize::from(at >= Moment::SERVER);
            before[clock] < at && at <= now[clock]
        })
    }

    /// Whether the time of some field has come.
    pub(super) fn has_passed(times: Times, [wall, server]: [u64; 2]) -> bool {
        (times.wall != 0 && times.wall <= wall) || (times.server != 0 && times.server <= server)
    }

    /// The hash without the fields whose time has come; `None` if none is left: then its removal is noted.
    pub(super) fn purge<'a>(
        &'a self,
        place: KeyPlace<'_>,
        current: Current<'a>,
        state: State<'a>,
    ) -> Option<State<'a>> {
        let KeyPlace { db, keyspace, hash, key } = place;
        if let Some(purge) = self.purged.find(keyspace, hash, key) {
            return Some(state.of_purged(purge));
        }
        let packed = Packed::new(Shape::Map, state.value.slice());
        let mut edit = Edit::of_key(packed, state.expiry);
        let fields = edit.purge(self.passed_for(current.seq()));
        // a leaf may be empty
        if edit.is_empty() && !is_leaves(keyspace) {
            self.note_expired(Staged {
                db,
                keyspace,
                hash,
                change: Change::removal(key),
                cause: Cause::Emptied,
            });
            return None;
        }
        let (value, operations) = (edit.encode(), edit.into_operations());
        let change = self.hash_change(key, &value, state.expiry, Some(&state), Some(operations.clone()));
        let staged = Staged { db, keyspace, hash, change, cause: Cause::Purged(fields) };
        let bytes = (packed.encoded_len() - value.len()) as u64;
        Some(state.of_purged(self.purged.push(Purge { staged, operations, fields, bytes })))
    }

    /// The change that stores the packed hash `value` of a key that expires at `own`: by `operations` on what is there, if that may be.
    pub(super) fn hash_change(
        &self,
        key: &[u8],
        value: &[u8],
        own: Option<Deadline>,
        there: Option<&State<'_>>,
        operations: Option<Vec<u8>>,
    ) -> Change {
        let expiry = next_deadline(self.now, record::HASH, value, own);
        let delta = operations.zip(there).and_then(|(operations, there)| {
            let retimes = there.header_expiry != expiry;
            // none in the record would leave the expiry as it is
            let says_expiry = !retimes || expiry.is_some();
            let takes =
                says_expiry && self.takes_change(there, record::change_bytes(key.len(), operations.len()));
            takes.then_some(Small::Elements { operations, retimes })
        });
        let large = self.store.memory.large(value).ok();
        Change::of(Object::new(record::HASH, key, Bytes::of(value, large.as_ref()), expiry), delta)
    }
}

impl<'a> State<'a> {
    /// The same after a purge.
    fn of_purged(self, Purge { staged, .. }: &'a Purge) -> Self {
        let purged = Current::Hot(staged.object().view());
        Self {
            value: purged.value(),
            value_len: purged.value_len(),
            object: Self::current(purged).object,
            ..self
        }
    }
}
