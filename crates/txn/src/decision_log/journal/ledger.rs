//! Which records are needed still, and where they lie: what decides which segment can go.
//!
//! Invariants
//!   1. Segments go from the oldest on: a removal stays for as long as anything that it removes, so that nothing that was removed
//!      comes back while younger segments are there.
//!   2. A segment out of which a record was replaced stays until what replaced it is durable.

use std::collections::{BTreeMap, HashMap};

use journal::{Place, SegmentId, Seq, record_size_bytes};

use crate::id::TxId;

/// The records that are needed.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    live: HashMap<TxId, Live>,
    /// The same in the order of their places.
    by_place: BTreeMap<Place, TxId>,
    bytes: u64,
    /// What replaced a record last.
    replaced: Seq,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) place: Place,
    pub(super) payload_len: u32,
}

impl Live {
    /// What it takes on disk, with the header of a batch of its own.
    fn size_bytes(self) -> u64 {
        record_size_bytes(self.payload_len) + BATCH_HEADER_BYTES_MAX
    }
}

impl Ledger {
    /// The record of `tx` lies there now, as the one of `seq`.
    pub(super) fn put(&mut self, tx: TxId, live: Live, seq: Seq) {
        if let Some(old) = self.live.insert(tx, live) {
            self.forget(old);
            self.replaced = seq;
        }
        self.bytes += live.size_bytes();
        self.by_place.insert(live.place, tx);
    }

    /// The record of `tx` is not needed; false if there was none.
    pub(super) fn remove(&mut self, tx: TxId) -> bool {
        let old = self.live.remove(&tx);
        if let Some(old) = old {
            self.forget(old);
        }
        old.is_some()
    }

    /// Whether the record of `tx` still lies there.
    pub(super) fn is_at(&self, tx: TxId, live: Live) -> bool {
        self.live.get(&tx) == Some(&live)
    }

    /// Whether nothing of `segment` and of those before it is needed, given what is durable.
    pub(super) fn is_free(&self, segment: SegmentId, durable: Seq) -> bool {
        let oldest = self.by_place.first_key_value();
        self.replaced <= durable && oldest.is_none_or(|(place, _)| place.segment() > segment)
    }

    /// The oldest records of `segment`, at most `count`.
    pub(super) fn oldest_of(&self, segment: SegmentId, count: usize) -> Vec<(TxId, Live)> {
        let all = self.by_place.iter().take(count);
        let within = all.take_while(|(place, _)| place.segment() <= segment);
        within.map(|(_, tx)| (*tx, self.live[tx])).collect()
    }

    /// Bytes that the records that are needed take on disk, at most.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn forget(&mut self, old: Live) {
        self.bytes -= old.size_bytes();
        self.by_place.remove(&old.place);
    }
}

/// More than a batch's header takes.
const BATCH_HEADER_BYTES_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn live(segment: u32, at: u64) -> Live {
        Live { place: Place::new(SegmentId(segment), at * 8), payload_len: 10 }
    }

    #[test]
    fn segment_is_free_when_nothing_of_it_or_before_it_is_needed_and_what_replaced_it_is_durable() {
        let (one, two) = (TxId { epoch: 1, number: 1 }, TxId { epoch: 1, number: 2 });
        let mut ledger = Ledger::default();
        ledger.put(one, live(1, 9), Seq(1));
        ledger.put(two, live(2, 9), Seq(2));
        assert!(!ledger.is_free(SegmentId(2), Seq(2)));
        ledger.remove(two);
        assert!(!ledger.is_free(SegmentId(2), Seq(2)), "what is older is needed");
        ledger.put(one, live(3, 9), Seq(3));
        assert!(!ledger.is_free(SegmentId(2), Seq(2)), "what replaced it is not durable");
        assert!(ledger.is_free(SegmentId(2), Seq(3)) && !ledger.is_free(SegmentId(3), Seq(3)));
        assert_eq!((ledger.bytes(), ledger.oldest_of(SegmentId(3), 9).len()), (live(3, 9).size_bytes(), 1));
    }
}
