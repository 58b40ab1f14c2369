//! The transactions of a lane: those under way, and those whose decision is only kept for a while.
//!
//! ```text
//!  under way (some, looked through when a time is due) -> done, kept (perhaps very many, by the time when they go) -> gone
//! ```
//!
//! Invariants
//!   1. A transaction is in one of the two. What is kept waits for one time alone: when it goes.
//!   2. Nobody waits for a time before [`Machines::due`].
//!
//! Out of scope: what happens at a time (`lane`).

use std::collections::{BTreeSet, HashMap};

use clock::Nanos;
use foldhash::fast::RandomState;

use crate::id::TxId;
use crate::protocol::{State, Transaction};

/// All machines of a lane.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    live: HashMap<TxId, Transaction, RandomState>,
    /// Of those under way none waits for a time before this.
    live_due: Option<Nanos>,
    kept: HashMap<TxId, Transaction, RandomState>,
    /// When each that is kept goes, and some that are not kept any more, or go later.
    goes: BTreeSet<(Nanos, TxId)>,
}

/// Where a transaction has gone after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It is where it was.
    Stays,
    /// It was under way, and is only kept now.
    IsKept,
    /// It was only kept, and is under way again.
    IsLive,
}

impl Machines {
    /// Takes in one that is under way.
    pub(crate) fn insert(&mut self, tx: TxId, machine: Transaction) {
        self.note_time(machine.next_time());
        let before = self.live.insert(tx, machine);
        assert!(before.is_none() && !self.kept.contains_key(&tx), "transaction {tx} began twice");
    }

    pub(crate) fn get(&self, tx: TxId) -> Option<&Transaction> {
        self.live.get(&tx).or_else(|| self.kept.get(&tx))
    }

    /// Adds a branch to it, or the like: nothing that makes it wait for another time.
    pub(crate) fn get_mut(&mut self, tx: TxId) -> Option<&mut Transaction> {
        match self.live.get_mut(&tx) {
            Some(machine) => Some(machine),
            None => self.kept.get_mut(&tx),
        }
    }

    /// Changes it; with what came of that, whether it is where it belongs: if not, [`Machines::settle`] is to follow.
    pub(crate) fn change<T>(
        &mut self,
        tx: TxId,
        how: impl FnOnce(&mut Transaction) -> T,
    ) -> Option<(T, bool)> {
        let Some(machine) = self.live.get_mut(&tx) else {
            return self.kept.get_mut(&tx).map(|machine| (how(machine), false));
        };
        let done = how(machine);
        if machine.state() == State::Done {
            return Some((done, false));
        }
        self.live_due = self.live_due.into_iter().chain(machine.next_time()).min();
        Some((done, true))
    }

    /// Removes one that has ended; whether it was only kept.
    pub(crate) fn remove(&mut self, tx: TxId) -> bool {
        if self.live.remove(&tx).is_some() {
            return false;
        }
        self.kept.remove(&tx);
        true
    }

    /// Puts it where it belongs after a change.
    pub(crate) fn settle(&mut self, tx: TxId) -> Moved {
        if let Some(machine) = self.live.get(&tx) {
            let next = machine.next_time();
            if machine.state() != State::Done {
                self.note_time(next);
                return Moved::Stays;
            }
            let machine = self.live.remove(&tx).expect("it was just looked at");
            self.goes.insert((next.expect("what is kept goes at a time"), tx));
            self.kept.insert(tx, machine);
            return Moved::IsKept;
        }
        match self.kept.get(&tx) {
            Some(machine) if machine.state() != State::Done => {
                let machine = self.kept.remove(&tx).expect("it was just looked at");
                self.insert(tx, machine);
                Moved::IsLive
            }
            _ => Moved::Stays,
        }
    }

    /// Those that wait for a time that has come.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Vec<TxId> {
        let mut all = Vec::new();
        while let Some((at, tx)) = self.goes.first().copied().filter(|(at, _)| *at <= now) {
            self.goes.remove(&(at, tx));
            all.push(tx);
        }
        if self.live_due.is_some_and(|due| due <= now) {
            let is_due = |machine: &Transaction| machine.next_time().is_some_and(|time| time <= now);
            all.extend(self.live.iter().filter(|(_, machine)| is_due(machine)).map(|(tx, _)| *tx));
        }
        all
    }

    /// Looks again for when those under way wait, after all that were due were told.
    pub(crate) fn forget_past(&mut self, now: Nanos) {
        if self.live_due.is_some_and(|due| due <= now) {
            self.live_due = self.live.values().filter_map(Transaction::next_time).min();
        }
    }

    /// Nobody waits for a time before this.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let kept = self.goes.first().map(|(at, _)| *at);
        self.live_due.into_iter().chain(kept).min()
    }

    /// Those under way.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Transaction> {
        self.live.values()
    }

    /// Those that are done, and kept, each with the time at which it goes, the last first.
    pub(crate) fn newest_kept(&self) -> impl Iterator<Item = (Nanos, &Transaction)> {
        let kept = self.goes.iter().rev().filter_map(|(at, tx)| Some((*at, self.kept.get(tx)?)));
        // One that was under way again meanwhile has an entry for each time.
        kept.filter(|(at, machine)| machine.next_time() == Some(*at))
    }

    /// How many are done, and kept.
    pub(crate) fn kept_len(&self) -> usize {
        self.kept.len()
    }

    /// How many are under way.
    pub(crate) fn live_len(&self) -> usize {
        self.live.len()
    }

    /// How many there are, of both kinds.
    pub(crate) fn len(&self) -> usize {
        self.live.len() + self.kept.len()
    }

    fn note_time(&mut self, next: Option<Nanos>) {
        self.live_due = self.live_due.into_iter().chain(next).min();
    }
}
