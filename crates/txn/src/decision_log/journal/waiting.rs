//! Who waits for which record, and telling them.
//!
//! A lane that keeps many transactions under way writes many records in a row. They are kept as one run, so that its waiter is held
//! once and told once: what it shares with the journal's thread goes from one processor to the other for each of the two.
//!
//! Invariants
//!   1. Records come, and are told, in the order of the journal.
//!   2. The lengths of all runs add up to the number of records.

use std::collections::VecDeque;
use std::sync::Arc;

use journal::Seq;

use crate::decision_log::{LogError, Round, Waiter};
use crate::id::TxId;

/// Records that were appended and are not known to be durable.
#[derive(Default)]
pub(super) struct Queue {
    records: VecDeque<(Seq, TxId)>,
    runs: VecDeque<Run>,
}

/// Records in a row that one waits for.
struct Run {
    waiter: Arc<dyn Waiter>,
    len: usize,
}

/// Records of which something is known now.
#[derive(Default)]
pub(super) struct Known {
    transactions: Vec<TxId>,
    runs: Vec<Run>,
}

impl Queue {
    /// `waiter` waits for the record of `tx`, which is the last of the journal.
    pub(super) fn push(&mut self, seq: Seq, tx: TxId, waiter: &Arc<dyn Waiter>) {
        self.records.push_back((seq, tx));
        match self.runs.back_mut().filter(|run| Arc::ptr_eq(&run.waiter, waiter)) {
            Some(run) => run.len += 1,
            None => self.runs.push_back(Run { waiter: Arc::clone(waiter), len: 1 }),
        }
    }

    /// Moves what lies at or before `durable` to `known`, which is empty.
    pub(super) fn take(&mut self, durable: Seq, known: &mut Known) {
        let mut left = self.records.partition_point(|(seq, _)| *seq <= durable);
        known.transactions.extend(self.records.drain(..left).map(|(_, tx)| tx));
        while left > 0 {
            let run = self.runs.front_mut().expect("runs add up to the records");
            if run.len > left {
                run.len -= left;
                known.runs.push(Run { waiter: Arc::clone(&run.waiter), len: left });
                break;
            }
            left -= run.len;
            known.runs.extend(self.runs.pop_front());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Known {
    /// Tells all of them, and is empty again.
    pub(super) fn tell(&mut self, result: &Result<(), LogError>) {
        let (mut round, mut at) = (Round::default(), 0);
        for Run { waiter, len } in self.runs.drain(..) {
            waiter.on_logged_of(&mut round, &self.transactions[at..at + len], result);
            at += len;
        }
        self.transactions.clear();
    }

    /// For how many there is room.
    pub(super) fn capacity(&self) -> usize {
        self.transactions.capacity()
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("records", &self.records).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Known").field("transactions", &self.transactions).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Heard {
        numbers: Mutex<Vec<u64>>,
        calls: Mutex<u32>,
    }

    impl Waiter for Heard {
        fn on_logged(&self, _: TxId, _: Result<(), LogError>) {
            unreachable!("told in a row");
        }

        fn on_logged_of(&self, _: &mut Round, all: &[TxId], _: &Result<(), LogError>) {
            *self.calls.lock().expect("no panic") += 1;
            self.numbers.lock().expect("no panic").extend(all.iter().map(|tx| tx.number));
        }
    }

    #[test]
    fn each_is_told_of_its_own_once_a_run_also_when_a_sync_ends_within_one() {
        let all = [0, 1].map(|_| Arc::new(Heard::default()));
        let [first, second] = [0, 1].map(|n: usize| Arc::clone(&all[n]) as Arc<dyn Waiter>);
        let (mut queue, mut known) = (Queue::default(), Known::default());
        for (number, waiter) in [&first, &first, &first, &second, &first, &second].into_iter().enumerate() {
            let number = number as u64 + 1;
            queue.push(Seq(number), TxId { epoch: 1, number }, waiter);
        }
        for (durable, calls, numbers) in [
            (0, [0, 0], [&[][..], &[]]),
            (2, [1, 0], [&[1, 2], &[]]),
            (5, [3, 1], [&[1, 2, 3, 5], &[4]]),
            (6, [3, 2], [&[1, 2, 3, 5], &[4, 6]]),
        ] {
            queue.take(Seq(durable), &mut known);
            known.tell(&Ok(()));
            assert_eq!(
                all.each_ref().map(|heard| *heard.calls.lock().expect("no panic")),
                calls,
                "{durable}"
            );
            let heard = all.each_ref().map(|heard| heard.numbers.lock().expect("no panic").clone());
            assert_eq!(heard, numbers, "{durable}");
        }
        assert!(queue.is_empty() && queue.runs.is_empty());
    }
}
