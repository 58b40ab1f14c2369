//! Who waits for an element, in line for each key: commands that were parked by BLPOP and its like.
//!
//! Invariant: a command stands in the line of each of its keys, or in none.
//! Out of scope: who is served when (`blocked`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resp::Args;
use store::Watch;

use crate::call::DataFn;
use crate::lookup::Entry;
use crate::transaction::Caller;

/// A key, and its database.
pub(crate) type Spot = (u16, Box<[u8]>);

/// The lines, behind their lock.
#[derive(Debug, Default)]
pub(crate) struct Blocked(Mutex<Lines>);

impl Blocked {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits, and for what.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    waiters: HashMap<u64, Arc<Waiter>>,
    /// Clients by their turn.
    keys: HashMap<Spot, BTreeMap<u64, u64>>,
    next_turn: u64,
    /// Keys that may have something for those in line: they are looked at in this order.
    pub(crate) due: VecDeque<Spot>,
}

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client: u64,
    /// Lower ones came earlier.
    pub(crate) turn: u64,
    pub(crate) entry: &'static Entry,
    pub(crate) handler: DataFn,
    pub(crate) args: Args,
    pub(crate) caller: Caller,
    /// The keys that it waits for, each once.
    pub(crate) watches: Vec<Watch>,
}

impl Waiter {
    /// Its keys.
    pub(crate) fn spots(&self) -> impl Iterator<Item = Spot> {
        self.watches.iter().map(|watch| (watch.db(), Box::from(watch.key())))
    }
}

impl Lines {
    /// Who is first in line for a key.
    pub(crate) fn first(&self, spot: &Spot) -> Option<Arc<Waiter>> {
        let client = self.keys.get(spot)?.values().next()?;
        self.waiters.get(client).cloned()
    }

    /// A turn, behind all that were given.
    pub(crate) fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    /// The command of a client that waits.
    pub(crate) fn of(&self, client: u64) -> Option<Arc<Waiter>> {
        self.waiters.get(&client).cloned()
    }

    /// Puts a command in line.
    pub(crate) fn add(&mut self, waiter: Waiter) {
        for spot in waiter.spots() {
            self.keys.entry(spot).or_default().insert(waiter.turn, waiter.client);
        }
        self.waiters.insert(waiter.client, Arc::new(waiter));
    }

    /// Takes a client out of all lines.
    pub(crate) fn remove(&mut self, client: u64) -> Option<Arc<Waiter>> {
        let waiter = self.waiters.remove(&client)?;
        for spot in waiter.spots() {
            let line = self.keys.get_mut(&spot).expect("it stands in each of its lines");
            line.remove(&waiter.turn);
            if line.is_empty() {
                self.keys.remove(&spot);
            }
        }
        Some(waiter)
    }
}
