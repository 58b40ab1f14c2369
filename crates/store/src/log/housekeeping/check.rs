//! What holds of housekeeping between any two turns: its lists of segments fit the journal's, and nothing that a key consists of is
//! given back. For simulations, after each step; costs a walk over the index.

use std::collections::{BTreeMap, BTreeSet};

use journal::{SegmentInfo, SegmentState};

use super::{Housekeeping, Parts, Work};

impl Housekeeping {
    /// Looks whether the lists of segments are as [`Work`] says, while nobody else uses the store.
    ///
    /// # Panics
    /// If they are not: a bug.
    pub(crate) fn check(&self, store: Parts<'_>) {
        let segments = store.engine.journal.segments();
        let work = self.work();
        work.check(&segments);
        work.check_checkpoint(store);
        let listed: BTreeSet<u32> = segments.iter().map(|info| info.segment.0).collect();
        let newest = listed.last().copied().unwrap_or(0);
        store.index.each_address(&mut |keyspace, address| {
            let segment = address.segment().0;
            assert!(!work.retired.contains(&segment), "{keyspace:?} has a record at {address:?}, given back");
            // what was appended and not written may be in a segment that is not begun
            let is_there = segment > newest || listed.contains(&segment);
            assert!(is_there, "{keyspace:?} has a record at {address:?}, which is not there");
        });
    }
}

impl Work {
    fn check(&self, segments: &[SegmentInfo]) {
        let states: BTreeMap<u32, SegmentState> =
            segments.iter().map(|info| (info.segment.0, info.state)).collect();
        let is_sealed = |segment: &u32| states.get(segment).is_none_or(|state| *state != SegmentState::Open);
        let given = self.emptied.keys().chain(self.survivors.keys()).chain(&self.retired);
        for segment in given {
            assert!(is_sealed(segment), "the open segment {segment} is to be given back: {self:?}");
        }
        for (segment, begun) in self.emptied.iter().chain(&self.turned) {
            assert!(*begun <= self.captures_begun, "segment {segment} waits for capture {begun}: {self:?}");
        }
        for segment in &self.retired {
            let is_listed = self.emptied.contains_key(segment) || self.survivors.contains_key(segment);
            assert!(!is_listed, "segment {segment} is given back, and looked at: {self:?}");
        }
        let cleaned = self.cleaning.as_ref().map(|cleaning| cleaning.segment());
        assert!(
            cleaned.is_none_or(|it| !self.emptied.contains_key(&it) && !self.retired.contains(&it)),
            "segment {cleaned:?} is cleaned, and nothing is in it: {self:?}"
        );
        let footed = self.footing.as_ref().map(|footing| footing.segment().0);
        assert!(footed.is_none_or(|it| !self.retired.contains(&it)), "{footed:?} is given back: {self:?}");
    }

    /// The checkpoint in force is durable, and the one under way is newer.
    fn check_checkpoint(&self, store: Parts<'_>) {
        if let Some(published) = &self.published {
            let durable = store.engine.journal.durable_lsn().0;
            assert!(published.lsn <= durable, "the checkpoint covers more than {durable}: {published:?}");
            assert!(published.began <= self.captures_begun, "{published:?} of {}", self.captures_begun);
        }
        if let Some(capture) = &self.capture {
            capture.check(self.captures_begun, self.covered());
        }
    }
}
