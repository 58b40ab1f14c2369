//! Tuples of an exactly-once spout that are not durable: those of the open epoch and of the one under way.
//!
//! They are kept for their number, and for the position of one that fails. Nothing is emitted again from here: when anything goes wrong, all
//! tasks begin anew from the last epoch, and the source is read again.

use std::collections::{BTreeMap, VecDeque};

use clock::Nanos;

use crate::anchor::{Ancestor, Failure, Report};
use crate::parcel::Epoch;
use crate::tracker::{Completed, DeadLetter, Limits, Original, Position};

use super::Poison;

/// What a spout has emitted and the store does not have.
#[derive(Debug)]
pub(super) struct Unsealed {
    limits: Limits,
    poison: Poison,
    next: u64,
    /// Batches, each with the epoch that has it once it is sealed.
    batches: BTreeMap<u64, Batch>,
    pending: u32,
    pending_bytes: u64,
    /// The last position that was emitted or skipped.
    last: Option<Position>,
    dead: Vec<DeadLetter>,
    under_way: Option<Epoch>,
    is_dirty: bool,
    failed: VecDeque<(Original, Failure)>,
    completed: VecDeque<Completed>,
}

#[derive(Debug)]
struct Batch {
    emitted: Nanos,
    epoch: Option<Epoch>,
    originals: Vec<Original>,
}

impl Unsealed {
    pub(super) fn new(limits: Limits, poison: Poison) -> Self {
        Self {
            limits,
            poison,
            next: 0,
            batches: BTreeMap::new(),
            pending: 0,
            pending_bytes: 0,
            last: None,
            dead: Vec::new(),
            under_way: None,
            is_dirty: false,
            failed: VecDeque::new(),
            completed: VecDeque::new(),
        }
    }

    pub(super) fn limit_pending(&mut self, most: u32) {
        // Not below what is under way.
        self.limits.pending_max = self.limits.pending_max.min(most).max(self.pending);
    }

    /// Behind tuples that were skipped nothing is emitted before a barrier: their epoch would not pass if what follows fails, too, and they were never past.
    pub(super) fn room(&self) -> u32 {
        let is_full = self.pending_bytes >= self.limits.bytes_max || !self.dead.is_empty();
        if is_full { 0 } else { self.limits.pending_max - self.pending }
    }

    pub(super) fn pending(&self) -> u32 {
        self.pending
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// A tuple cannot be emitted: it is skipped when it is its turn.
    pub(super) fn give_up(&mut self, letter: DeadLetter) -> Original {
        let original = letter.original.clone();
        self.poison.insert(original.position, letter);
        original
    }

    /// A batch is about to be emitted: its number, and those of its tuples that are not to be skipped.
    pub(super) fn open(&mut self, now: Nanos, originals: Vec<Original>) -> (u64, Vec<Original>) {
        let mut kept = Vec::new();
        for original in originals {
            assert!(self.last < Some(original.position), "positions grow: {:?}", self.last);
            self.last = Some(original.position);
            self.is_dirty = true;
            match self.poison.remove(&original.position) {
                Some(letter) => self.dead.push(letter),
                None => kept.push(original),
            }
        }
        let number = self.next;
        self.next += 1;
        self.pending += kept.len() as u32;
        self.pending_bytes += size_bytes(&kept);
        self.batches.insert(number, Batch { emitted: now, epoch: None, originals: kept.clone() });
        (number, kept)
    }

    pub(super) fn on_report(&mut self, report: Report) {
        let Some(batch) = self.batches.get(&report.root.number) else { return };
        for failure in report.failed {
            if let Some(original) = batch.originals.get(failure.origin as usize) {
                self.failed.push_back((original.clone(), failure));
            }
        }
    }

    /// A tuple that is not durable.
    pub(super) fn recall(&self, ancestor: &Ancestor) -> Option<Original> {
        self.batches.get(&ancestor.root.number)?.originals.get(ancestor.origin as usize).cloned()
    }

    pub(super) fn poll_failed(&mut self) -> Option<(Original, Failure)> {
        self.failed.pop_front()
    }

    pub(super) fn poll_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// What was emitted since the last barrier belongs to `epoch`: the last position, and what was skipped.
    pub(super) fn seal(&mut self, now: Nanos, epoch: Epoch) -> (Option<Position>, Vec<DeadLetter>) {
        self.on_durable(now, epoch.before());
        assert!(self.under_way.is_none(), "one epoch is under way at a time: {:?}", self.under_way);
        self.under_way = Some(epoch);
        self.batches.values_mut().for_each(|batch| batch.epoch = batch.epoch.or(Some(epoch)));
        self.is_dirty = false;
        (self.last, std::mem::take(&mut self.dead))
    }

    pub(super) fn on_durable(&mut self, now: Nanos, epoch: Epoch) {
        self.under_way.take_if(|under_way| *under_way <= epoch);
        let done = self.batches.extract_if(.., |_, batch| batch.epoch.is_some_and(|of| of <= epoch));
        for (_, Batch { emitted, originals, .. }) in done {
            let acked = originals.len() as u32;
            self.pending -= acked;
            self.pending_bytes -= size_bytes(&originals);
            self.completed.push_back(Completed { latency: now.since(emitted), acked });
        }
    }

    pub(super) fn check(&self) {
        let count: usize = self.batches.values().map(|batch| batch.originals.len()).sum();
        assert_eq!(count, self.pending as usize, "pending tuples are those of the batches");
        assert!(self.pending <= self.limits.pending_max, "more tuples than max_spout_pending");
    }
}

fn size_bytes(originals: &[Original]) -> u64 {
    originals.iter().map(|original| original.values.size_bytes() as u64).sum()
}
