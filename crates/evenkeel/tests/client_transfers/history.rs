//! What clients did and what they were told: from this the judge knows what must be there.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::plan::{ACCOUNTS, Party, Transfer};

/// What a client knows of the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nobody asked to commit it: it must not be there.
    Never,
    /// It was asked to commit, and the answer was none, or `unknown`.
    Perhaps(String),
    Committed,
    /// Aborted, or refused, because.
    Aborted(String),
}

/// One transfer that was begun.
#[derive(Clone, Debug)]
pub struct Record {
    pub transfer: Transfer,
    /// Its transaction, as TX.BEGIN named it.
    pub tx: Option<String>,
    pub told: Told,
    /// The last thing that went wrong.
    pub trouble: String,
}

/// All transfers: those of this cycle, and what those before came to.
#[derive(Debug, Default)]
pub struct History {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Record>,
    next: u64,
    /// What can never be right, whatever the outcome.
    violations: Vec<String>,
}

/// What must be there of all transfers that were judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// What each account of each party was changed by.
    pub balances: BTreeMap<(Party, u64), i64>,
    /// Numbers that the journal of each party must have: how many, and their sum.
    pub journals: BTreeMap<Party, (u64, u64)>,
}

impl Settled {
    /// Nothing was transferred yet.
    pub fn new() -> Self {
        let accounts =
            Party::ALL.into_iter().flat_map(|party| (0..ACCOUNTS).map(move |account| (party, account)));
        Self {
            balances: accounts.map(|account| (account, 0)).collect(),
            journals: Party::ALL.map(|party| (party, (0, 0))).into(),
        }
    }

    /// Takes in a transfer that is there.
    pub fn add(&mut self, transfer: &Transfer) {
        for part in transfer.writers() {
            for (account, amount) in &part.moves {
                *self.balances.entry((part.party, *account)).or_default() += amount;
            }
            let (count, sum) = self.journals.entry(part.party).or_default();
            *count += 1;
            *sum += transfer.number;
        }
    }
}

impl History {
    /// Begins a transfer; `make` gets its number.
    pub fn begin(&self, make: impl FnOnce(u64) -> Transfer) -> Transfer {
        let mut state = self.state();
        state.next += 1;
        let transfer = make(state.next);
        let record =
            Record { transfer: transfer.clone(), tx: None, told: Told::Never, trouble: String::new() };
        state.open.insert(transfer.number, record);
        transfer
    }

    pub fn change(&self, number: u64, how: impl FnOnce(&mut Record)) {
        how(self.state().open.get_mut(&number).expect("it was begun in this cycle"));
    }

    pub fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        std::mem::take(&mut self.state().violations)
    }

    /// Transfers since the last call.
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.state().open).into_values().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
