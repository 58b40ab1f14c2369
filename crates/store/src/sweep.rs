//! Removes the leaves of paged collections that are gone: in slices, each a few logged removals, and without reading them.
//!
//! ```text
//! DEL key      REMOVED key, and in the same group a note: (object, keyspace of leaves) -> number of leaves, and of nodes
//! each turn    REMOVALS: object, and the numbers of some leaves, which follow each other (`access::joined`)
//! at the end   REMOVED of the note
//! ```
//!
//! A note that a start finds is taken up again from the first leaf. Some of them may be gone already, so that what has the bits of a
//! leaf may be another one's: then they are read.
//!
//! Invariants
//!   1. A note is there as long as a leaf of its object may be.
//!   2. No leaf goes of an object that somebody still reads (`access::snapshot`).
//!
//! Out of scope: who leaves notes (`access::paged`), when it is a turn (`tend`).

pub(crate) mod waiting;

use journal::Keyspace;

use crate::Store;
use crate::access::Access;
use crate::error::{Stop, StoreError};
use crate::hash::{KeyHash, STRIPES};
use crate::keyspaces::{SWEPT_KEYSPACE, is_leaves};
use crate::object::View;
use crate::prepared::Prepared;
use crate::sought::Sought;
use collections::root::stripe_of;
use waiting::{LeafReport, Sweep, note_key};

impl Store {
    /// Counts leaves. Takes each stripe's lock for a moment.
    #[must_use]
    pub fn leaf_report(&self) -> LeafReport {
        let mut report = LeafReport { swept: self.sweeps.left(), ..LeafReport::default() };
        for number in 0..STRIPES {
            let stripe = self.index.lock(number);
            for (_, space) in stripe.spaces().filter(|(keyspace, _)| is_leaves(*keyspace)) {
                report.leaves += space.table.live;
                report.changes += space.deltas.count() as u64;
                report.hot_bytes += space.hot_bytes.max(0).cast_unsigned();
            }
        }
        report
    }

    /// Removes some leaves; returns whether there are more to remove now. Blocks on reads of those that a start found.
    pub(crate) fn sweep_some(&self) -> bool {
        for _ in 0..SLICES {
            let now = self.options.clock.now();
            let is_read = |object| self.snapshots.hold(object, now);
            let Some(mut sweep) = self.sweeps.pop(is_read) else { return false };
            let done = self.sweep_slice(&mut sweep);
            if matches!(done, Ok(true)) {
                continue;
            }
            self.sweeps.put_back(sweep);
            match done {
                Ok(_) => {}
                // the next turn tries again
                Err(Stop::Refused(error) | Stop::Damaged(error)) => {
                    tracing::warn!(%error, "leaves of a collection that is gone stay for now");
                    return false;
                }
                Err(Stop::Cold | Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Locked(_)) => {
                    return false;
                }
            }
        }
        true
    }

    /// Returns whether nothing is left to do.
    fn sweep_slice(&self, sweep: &mut Sweep) -> Result<bool, Stop> {
        let slice = if sweep.is_sure { SURE_LEAVES } else { UNSURE_LEAVES };
        let end = sweep.count.min(sweep.next.saturating_add(slice));
        let is_alive = self.index.lives(sweep.leaves);
        if is_alive && sweep.next < end {
            let keys: Vec<_> = (sweep.next..end).map(|at| sweep.key(at)).collect();
            let stripe = stripe_of(sweep.object);
            self.sweep_keys(stripe, sweep.leaves, &keys.iter().map(|key| &key[..]), sweep.is_sure)?;
            sweep.next = end;
        }
        if is_alive && sweep.next < sweep.count {
            return Ok(false);
        }
        let note = note_key(sweep.stripe, sweep.object, sweep.leaves);
        self.sweep_keys(sweep.stripe, SWEPT_KEYSPACE, &std::iter::once(&note[..]), false)?;
        Ok(true)
    }

    /// Removes these keys of a keyspace that no command names, as one group.
    fn sweep_keys<'k>(
        &self,
        stripe: usize,
        keyspace: Keyspace,
        keys: &(impl Iterator<Item = &'k [u8]> + Clone),
        is_sure: bool,
    ) -> Result<(), Stop> {
        let mut prepared = Prepared::default();
        loop {
            let mut access = Access::of_stripe(self, stripe, &prepared);
            keys.clone().for_each(|key| access.sweep(keyspace, key, is_sure));
            match access.commit() {
                Err(Stop::Cold) => {}
                ended => return ended.map(drop),
            }
            let wanted = access.into_wanted();
            self.read_wanted(wanted, &mut prepared);
        }
    }

    /// Takes up the notes that are there at a start.
    pub(crate) fn recover_sweeps(&self) -> Result<(), StoreError> {
        for number in 0..STRIPES {
            for sought in self.notes_of(number) {
                let note = self.engine.read(&sought)?;
                self.sweeps.add(&note.key, &note.value, false);
            }
        }
        Ok(())
    }

    fn notes_of(&self, number: usize) -> Vec<Sought> {
        let (stripe, mut notes) = (self.index.lock(number), Vec::new());
        if let Some(space) = stripe.space(SWEPT_KEYSPACE) {
            space.table.each(&mut |bits, tag, word| {
                let hash = KeyHash::from_parts(number, bits, tag);
                if let View::Cold(address) = word.view() {
                    notes.push(Sought::base(address, SWEPT_KEYSPACE, hash));
                }
            });
        }
        notes
    }
}

/// Slices of a turn.
const SLICES: usize = 8;
/// Leaves of a slice: the removals of fewer than a millisecond.
const SURE_LEAVES: u32 = 128;
/// The same of leaves that must be read.
const UNSURE_LEAVES: u32 = 16;
