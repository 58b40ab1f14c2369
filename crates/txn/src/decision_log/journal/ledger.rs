//! Which records are needed still, and where they lie: what decides which segment can go.
//!
//! Invariants
//!   1. Segments go from the oldest on: a removal stays for as long as anything that it removes, so that nothing that was removed
//!      comes back while younger segments are there.
//!   2. A segment out of which a record was replaced stays until what replaced it is durable.
//!   3. Records come in the order of their addresses: what is written again goes to the tail. So a queue has them in order, and with them
//!      some that are gone, at most as many as are needed and [`GONE_MOST`] more.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use journal::{LogAddress, SegmentId, Seq, record_size_bytes};

use crate::id::TxId;

/// The records that are needed.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    live: HashMap<TxId, Live, RandomState>,
    /// The same in the order of their addresses, and some that are gone. The first is needed.
    by_address: VecDeque<(LogAddress, TxId)>,
    bytes: u64,
    /// What replaced a record last.
    replaced: Seq,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) address: LogAddress,
    pub(super) payload_len: u32,
}

impl Live {
    /// What it takes on disk, with the header of a batch of its own.
    fn size_bytes(self) -> u64 {
        record_size_bytes(self.payload_len) + BATCH_HEADER_BYTES_MAX
    }
}

impl Ledger {
    /// Of what a start found, in any order.
    pub(super) fn of(mut found: Vec<(TxId, Live)>) -> Self {
        found.sort_unstable_by_key(|(_, live)| live.address);
        let mut ledger = Self::default();
        found.into_iter().for_each(|(tx, live)| ledger.put(tx, live, Seq(0)));
        ledger
    }

    /// The record of `tx` lies there now, as the one of `seq`.
    pub(super) fn put(&mut self, tx: TxId, live: Live, seq: Seq) {
        if let Some(old) = self.live.insert(tx, live) {
            self.forget(old);
            self.replaced = seq;
        }
        self.bytes += live.size_bytes();
        assert!(
            self.by_address.back().is_none_or(|(last, _)| *last < live.address),
            "an address before the last"
        );
        self.by_address.push_back((live.address, tx));
        self.drop_gone();
    }

    /// The record of `tx` is not needed; false if there was none.
    pub(super) fn remove(&mut self, tx: TxId) -> bool {
        let old = self.live.remove(&tx);
        if let Some(old) = old {
            self.forget(old);
            self.drop_gone();
        }
        old.is_some()
    }

    /// Whether the record of `tx` still lies there.
    pub(super) fn is_at(&self, tx: TxId, live: Live) -> bool {
        self.live.get(&tx) == Some(&live)
    }

    /// Whether nothing of `segment` and of those before it is needed, given what is durable.
    pub(super) fn is_free(&self, segment: SegmentId, durable: Seq) -> bool {
        let oldest = self.by_address.front();
        self.replaced <= durable && oldest.is_none_or(|(address, _)| address.segment() > segment)
    }

    /// The oldest records of `segment`, at most `count`.
    pub(super) fn oldest_of(&self, segment: SegmentId, count: usize) -> Vec<(TxId, Live)> {
        let within = self.by_address.iter().take_while(|(address, _)| address.segment() <= segment);
        let needed = within.filter(|(address, tx)| self.needs(*address, *tx));
        needed.take(count).map(|(_, tx)| (*tx, self.live[tx])).collect()
    }

    /// Bytes that the records that are needed take on disk, at most.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn forget(&mut self, old: Live) {
        self.bytes -= old.size_bytes();
    }

    fn needs(&self, address: LogAddress, tx: TxId) -> bool {
        self.live.get(&tx).is_some_and(|live| live.address == address)
    }

    /// Takes those that are gone from the front, and all when they are many.
    fn drop_gone(&mut self) {
        while self.by_address.front().is_some_and(|(address, tx)| !self.needs(*address, *tx)) {
            self.by_address.pop_front();
        }
        if self.by_address.len() > 2 * self.live.len() + GONE_MOST {
            let mut queue = std::mem::take(&mut self.by_address);
            queue.retain(|(address, tx)| self.needs(*address, *tx));
            self.by_address = queue;
        }
    }
}

/// More than a batch's header takes.
const BATCH_HEADER_BYTES_MAX: u64 = 64;
/// Places of records that are gone, beside as many as are needed: 128 KiB.
const GONE_MOST: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn live(segment: u32, at: u64) -> Live {
        Live { address: LogAddress::new(SegmentId(segment), at * 8), payload_len: 10 }
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

    #[test]
    fn record_that_stays_keeps_no_places_of_those_that_went() {
        let (first, mut ledger) = (TxId { epoch: 1, number: 1 }, Ledger::default());
        ledger.put(first, live(1, 1), Seq(1));
        for number in 2..20_000 {
            let tx = TxId { epoch: 1, number };
            ledger.put(tx, live(1, number), Seq(number));
            ledger.remove(tx);
            assert!(ledger.by_address.len() <= GONE_MOST + 2, "{number}");
        }
        assert_eq!(ledger.oldest_of(SegmentId(1), 9), [(first, live(1, 1))]);
        ledger.remove(first);
        assert!(ledger.by_address.is_empty() && ledger.bytes() == 0);
    }
}
