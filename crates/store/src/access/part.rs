//! Changing some bytes of a long string: what is logged is these bytes, not the string.
//!
//! ```text
//! STRING "abc..."  <-  PART at 0 "X"  <-  PART at its end "yz"        each names the state it builds on
//! fold: STRING "Xbc...yz"                                             one record again
//! ```
//!
//! In memory there is the whole string. Cold, it is base and parts in the log, and they are folded when they have been read
//! (`prepared`). Cleaning folds them when it copies the base.
//!
//! Invariant: a value has `deltas_max` deltas at most, and their records take `deltas_bytes_max` at most. Then it
//! is written whole: so a change costs a fixed multiple of its own bytes, or of a page where it is small.

use std::ops::Range;

use crate::error::Stop;
use crate::record;
use crate::value::Value;
use collections::Deadline;

use super::overlay::{Change, KeyPlace, Small};
use super::{Access, State};

impl Access<'_> {
    /// As [`Access::put`], where `value` is what the string there becomes when `part` of it is written: all else it has already.
    ///
    /// # Errors
    /// [`Stop::Cold`] when a record decides that was not prepared; [`Stop::Damaged`] when that record is damaged.
    pub fn put_part(
        &mut self,
        db: u16,
        key: &[u8],
        value: Value<'_>,
        part: Range<usize>,
        expiry: Option<Deadline>,
    ) -> Result<(), Stop> {
        let delta = self.part_delta(db, key, &part, expiry)?;
        self.put_as(db, key, value, expiry, delta);
        Ok(())
    }

    /// What to log of `part`; `None`: the whole value.
    fn part_delta(
        &self,
        db: u16,
        key: &[u8],
        part: &Range<usize>,
        expiry: Option<Deadline>,
    ) -> Result<Option<Small>, Stop> {
        if !self.store.engine_keeps() || part.is_empty() {
            return Ok(None);
        }
        let Some(place) = self.place(db, key) else { return Ok(None) };
        let KeyPlace { keyspace, hash, .. } = place;
        let staged = self.overlay.find(keyspace, hash, key).map(|staged| &staged.change);
        let Some(state) = self.lookup_there(&self.copied, place)? else { return Ok(None) };
        // Of one key a group has one record: that has all that its commands changed.
        let (range, retimes) = match staged {
            None => (part.clone(), state.expiry != expiry),
            Some(Change::Delta { delta: Small::Expiry, .. }) => (part.clone(), true),
            Some(Change::Delta { delta: Small::Part { range, retimes }, .. }) => {
                (range.start.min(part.start)..range.end.max(part.end), *retimes)
            }
            Some(_) => return Ok(None),
        };
        // none in the record would leave the expiry as it is
        let says_expiry = !retimes || expiry.is_some();
        let takes = says_expiry && self.takes_part(&state, key, &range);
        Ok(takes.then_some(Small::Part { range, retimes }))
    }

    /// Whether `range` of the string in `state` may be written over it as a delta.
    fn takes_part(&self, state: &State<'_>, key: &[u8], range: &Range<usize>) -> bool {
        state.kind == record::STRING
            && range.start as u64 <= state.value_len
            && self.takes_change(state, record::part_bytes(key.len(), range.len()))
    }

    /// Whether a change of the value in `state` that makes a record of `bytes` may lie on top of what is in the log.
    pub(super) fn takes_change(&self, state: &State<'_>, bytes: u64) -> bool {
        let is_small = record::base(state.kind).is_none_or(|base| state.value_len < base.delta_bytes_min);
        if is_small || !self.takes_delta(state) {
            return false;
        }
        let deltas_bytes: u64 = state.deltas.iter().map(|delta| u64::from(delta.record_bytes)).sum();
        deltas_bytes + bytes <= state.deltas_bytes_max()
    }
}
