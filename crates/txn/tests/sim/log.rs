//! A decision log: what was synced is kept; of what was not, a crash keeps some beginning.

use std::collections::BTreeMap;

use txn::decision_log::LogError;
use txn::id::TxId;
use txn::record::Decision;
use vfs::sim::Rng;

#[derive(Debug)]
pub enum Op {
    Write(Decision),
    Remove(TxId),
}

#[derive(Debug, Default)]
pub struct Log {
    pub epoch: u32,
    pub durable: BTreeMap<TxId, Decision>,
    pub pending: Vec<Op>,
    /// A sync failed: it takes no more until it is opened again.
    pub is_dead: bool,
    pub is_syncing: bool,
}

/// What comes of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sync {
    Fine,
    Absent,
    Unknown,
}

impl Log {
    /// Ends a sync with `how`: what each waiter is to hear.
    pub fn sync(&mut self, how: Sync, rng: &mut Rng) -> Vec<(TxId, Result<(), LogError>)> {
        self.is_syncing = false;
        let written = |op: &Op| if let Op::Write(decision) = op { Some(decision.tx) } else { None };
        let waiters = self.pending.iter().filter_map(written).collect::<Vec<_>>();
        let result = match how {
            Sync::Fine => {
                self.keep(self.pending.len());
                Ok(())
            }
            Sync::Absent => {
                self.pending.retain(|op| matches!(op, Op::Remove(_)));
                Err(LogError::Absent("no space".to_owned()))
            }
            Sync::Unknown => {
                self.crash(rng);
                self.is_dead = true;
                Err(LogError::Unknown("sync failed".to_owned()))
            }
        };
        waiters.into_iter().map(|tx| (tx, result.clone())).collect()
    }

    /// The process dies, or the disk does: some beginning of what was not synced is there all the same.
    pub fn crash(&mut self, rng: &mut Rng) {
        self.keep(rng.index(self.pending.len() + 1));
        self.pending.clear();
        self.is_syncing = false;
    }

    fn keep(&mut self, count: usize) {
        for op in self.pending.drain(..count) {
            match op {
                Op::Write(decision) => drop(self.durable.insert(decision.tx, decision)),
                Op::Remove(tx) => drop(self.durable.remove(&tx)),
            }
        }
    }
}
