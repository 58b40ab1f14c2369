//! Who waits for an element, in line for each key: commands that were parked by BLPOP and its like.
//!
//! ```text
//!  a key changed -> due -> a pass along its line: each in turn is given something, or passed by
//!                            \-- one has to run on its own loop: it holds the pass until it has run
//! ```
//!
//! Invariants
//!   1. A command that stands in a line is in `standing`, or has left: then it is passed by, and taken out of its lines bit by bit.
//!   2. A key has one pass that has not begun, at most.
//!   3. Each pass is in `due`, or held by a command that stands in line.
//!
//! Out of scope: what a pass gives to whom (`blocked`).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Nanos;
use commands::call::DataFn;
use commands::lookup::Entry;
use commands::ready::Wants;
use resp::Args;
use store::{KeyRef, Watch};

use crate::transaction::Caller;

/// A key, and its database.
pub(crate) type Spot = (u16, Box<[u8]>);

/// The lines, behind their lock.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    lines: Mutex<Lines>,
    /// So many are about to lock it.
    locking: AtomicUsize,
}

impl Blocked {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lines> {
        self.locking.fetch_add(1, Ordering::Relaxed);
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        self.locking.fetch_sub(1, Ordering::Relaxed);
        lines
    }

    /// As [`Blocked::lock`], for who does so again and again: lets those go first who wait for it.
    pub(crate) fn lock_after_others(&self) -> MutexGuard<'_, Lines> {
        for _ in 0..YIELDS_MAX {
            if self.locking.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        self.lock()
    }
}

/// Who waits, and for what.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    standing: HashMap<u64, Waiting>,
    /// In a tree: it grows by one key at a time, where a table of a million keys would be made anew at once.
    keys: BTreeMap<Spot, Line>,
    next_turn: u64,
    due: VecDeque<Pass>,
    /// Keys from which on those of a database may have changed.
    sweeps: VecDeque<Spot>,
    /// Whose connection is to go on with what is due.
    pub(crate) carrier: Option<u64>,
    /// Those who have left many lines, to be taken out of them when the lock is free.
    left: Vec<Waiting>,
}

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) client: u64,
    /// Lower ones came earlier.
    pub(crate) turn: u64,
    pub(crate) entry: &'static Entry,
    pub(crate) handler: DataFn,
    pub(crate) args: Arc<Args>,
    pub(crate) caller: Caller,
    pub(crate) wants: Wants,
}

/// What a command that stands in line has there.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiter: Arc<Waiter>,
    /// The keys in whose lines it stands, each once.
    watches: Vec<Watch>,
    /// Passes that go on when it has run on its own loop.
    held: VecDeque<Pass>,
    /// It looks at the first of them beside the loops.
    is_away: bool,
    /// When there will be something for it without a change, by key.
    ripe: BTreeMap<Nanos, Spot>,
}

/// Those who wait for a key.
#[derive(Debug, Default)]
struct Line {
    rows: Vec<Row>,
    /// A pass along it is due that has not begun.
    is_due: bool,
}

/// Those of a line who want the same.
#[derive(Debug)]
struct Row {
    wants: Wants,
    /// Turns and their clients, in order.
    turns: VecDeque<(u64, u64)>,
}

/// A way along the line of a key that has changed.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) spot: Spot,
    /// Those with lower turns have had theirs.
    from: u64,
    /// Nobody finds something who wants one of these.
    nothing: HashSet<Wants>,
    /// Somebody has found nothing.
    has_passed_by: bool,
}

impl Pass {
    fn begin(spot: Spot) -> Self {
        Self { spot, from: 0, nothing: HashSet::new(), has_passed_by: false }
    }

    /// The waiter has found nothing; those behind it have their turn who may find something.
    pub(crate) fn pass_by(&mut self, waiter: &Waiter) {
        (self.from, self.has_passed_by) = (waiter.turn + 1, true);
        if waiter.wants != Wants::Own {
            self.nothing.insert(waiter.wants.clone());
        }
    }

    /// Whether somebody has found nothing.
    pub(crate) fn has_passed_by(&self) -> bool {
        self.has_passed_by
    }
}

impl Lines {
    /// A turn, behind all that were given.
    pub(crate) fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    /// The command of a client that waits.
    pub(crate) fn of(&self, client: u64) -> Option<&Arc<Waiter>> {
        Some(&self.standing.get(&client)?.waiter)
    }

    /// Whether `waiter` stands in line.
    pub(crate) fn stands(&self, waiter: &Waiter) -> bool {
        self.of(waiter.client).is_some_and(|it| it.turn == waiter.turn)
    }

    /// Lets a command wait; for which keys, [`Lines::add`] says.
    pub(crate) fn begin(&mut self, waiter: &Arc<Waiter>) {
        let waiter = Arc::clone(waiter);
        let (watches, held, is_away, ripe) = Default::default();
        self.standing.insert(waiter.client, Waiting { waiter, watches, held, is_away, ripe });
    }

    /// Puts a command that waits in line for a key, unless it stands there.
    pub(crate) fn add(&mut self, waiter: &Waiter, key: KeyRef<'_>, watch: impl FnOnce() -> Watch) {
        let standing = self.standing.get_mut(&waiter.client).expect("it waits");
        let line = self.keys.entry((key.db, key.key.into())).or_default();
        let at = line.rows.iter().position(|row| row.wants == waiter.wants).unwrap_or_else(|| {
            line.rows.reserve_exact(1);
            line.rows.push(Row { wants: waiter.wants.clone(), turns: VecDeque::with_capacity(1) });
            line.rows.len() - 1
        });
        let turns = &mut line.rows[at].turns;
        if let Err(at) = turns.binary_search_by_key(&waiter.turn, |(turn, _)| *turn) {
            turns.insert(at, (waiter.turn, waiter.client));
            standing.watches.push(watch());
        }
    }

    /// A key has changed: those in line for it have their turn, if there are any.
    pub(crate) fn note(&mut self, spot: Spot) {
        if let Some(line) = self.keys.get_mut(&spot)
            && !line.is_due
        {
            line.is_due = true;
            self.due.push_back(Pass::begin(spot));
        }
    }

    /// All keys of a database may have changed.
    pub(crate) fn note_database(&mut self, db: u16) {
        self.sweeps.push_back((db, Box::default()));
    }

    /// Notes some more keys of a database that has changed as a whole; whether there may be more.
    fn sweep(&mut self) -> bool {
        let Some(from) = self.sweeps.pop_front() else { return false };
        let db = from.0;
        let mut spots: Vec<Spot> =
            self.keys.range(from..).take(SWEPT_AT_ONCE + 1).map(|(spot, _)| spot.clone()).collect();
        spots.retain(|spot| spot.0 == db);
        if spots.len() > SWEPT_AT_ONCE {
            self.sweeps.extend(spots.pop());
        }
        spots.into_iter().for_each(|spot| self.note(spot));
        true
    }

    /// Takes a pass that is due, to go on with it.
    pub(crate) fn take_due(&mut self) -> Option<Pass> {
        while self.due.is_empty() {
            if !self.sweep() {
                return None;
            }
        }
        let pass = self.due.pop_front()?;
        if pass.from == 0
            && let Some(line) = self.keys.get_mut(&pass.spot)
        {
            line.is_due = false;
        }
        Some(pass)
    }

    /// A pass goes on later, before all others.
    pub(crate) fn put_back(&mut self, mut pass: Pass) {
        // it has begun, whoever is next: a change since then begins another
        pass.from = pass.from.max(1);
        self.due.push_front(pass);
    }

    /// Who is next in a pass. Takes out of the line whoever has left.
    pub(crate) fn next(&mut self, pass: &Pass) -> Option<Arc<Waiter>> {
        let line = self.keys.get_mut(&pass.spot)?;
        let mut first: Option<&Arc<Waiter>> = None;
        for row in line.rows.iter_mut().filter(|row| !pass.nothing.contains(&row.wants)) {
            let at = row.turns.partition_point(|(turn, _)| *turn < pass.from);
            while let Some((turn, client)) = row.turns.get(at) {
                match self.standing.get(client).map(|it| &it.waiter).filter(|it| it.turn == *turn) {
                    Some(waiter) if first.is_none_or(|first| waiter.turn < first.turn) => {
                        first = Some(waiter);
                    }
                    Some(_) => {}
                    None => {
                        row.turns.remove(at);
                        continue;
                    }
                }
                break;
            }
        }
        let first = first.cloned();
        self.clear(&pass.spot);
        first
    }

    /// The line of a key goes if nobody stands in it.
    fn clear(&mut self, spot: &Spot) {
        let Some(line) = self.keys.get_mut(spot) else { return };
        line.rows.retain(|row| !row.turns.is_empty());
        if line.rows.is_empty() {
            self.keys.remove(spot);
        }
    }

    /// `pass` goes on when `client` has run on its own loop.
    pub(crate) fn hold(&mut self, client: u64, pass: Pass) {
        let standing = self.standing.get_mut(&client).expect("it waits");
        // one that is being looked at may miss what began the newer one
        let mut held = standing.held.iter_mut().skip(usize::from(standing.is_away));
        match held.find(|held| held.spot == pass.spot) {
            // what nobody finds, the newer one has found out later
            Some(held) => *held = pass,
            None => standing.held.push_back(pass),
        }
    }

    /// Whether a client's command looks at a key beside the loops: until it is back nothing else is given to it.
    pub(crate) fn is_away(&self, client: u64) -> bool {
        self.standing.get(&client).is_some_and(|it| it.is_away)
    }

    /// A client's command begins to look at a key beside the loops, or is back.
    pub(crate) fn set_away(&mut self, client: u64, is_away: bool) {
        if let Some(standing) = self.standing.get_mut(&client) {
            standing.is_away = is_away;
        }
    }

    /// The key that a client's command has to look at on its own loop.
    pub(crate) fn held(&self, client: u64) -> Option<&Spot> {
        self.standing.get(&client)?.held.front().map(|pass| &pass.spot)
    }

    /// A command has run on its own loop and found nothing; returns whether it has to look at more keys.
    pub(crate) fn pass_on(&mut self, client: u64) -> bool {
        let Some(standing) = self.standing.get_mut(&client) else { return false };
        if let Some(mut pass) = standing.held.pop_front() {
            pass.pass_by(&standing.waiter);
            self.due.push_back(pass);
        }
        !standing.held.is_empty()
    }

    /// There will be something for a client's command at `at`, though `spot` does not change; returns whether that is earlier than was known.
    pub(crate) fn ripen(&mut self, client: u64, spot: &Spot, at: Option<Nanos>) -> bool {
        let Some(standing) = self.standing.get_mut(&client) else { return false };
        let before = standing.ripe.keys().next().copied();
        if !standing.ripe.is_empty() {
            standing.ripe.retain(|_, of| of != spot);
        }
        let Some(mut at) = at else { return false };
        while standing.ripe.contains_key(&at) {
            at = Nanos(at.0 + 1);
        }
        standing.ripe.insert(at, spot.clone());
        before.is_none_or(|before| at < before)
    }

    /// When the next key ripens for a client's command.
    pub(crate) fn next_ripe(&self, client: u64) -> Option<Nanos> {
        self.standing.get(&client)?.ripe.keys().next().copied()
    }

    /// What is ripe for a client's command is as if it had changed.
    pub(crate) fn harvest(&mut self, client: u64, now: Nanos) {
        while let Some(entry) = self.standing.get_mut(&client).and_then(|it| it.ripe.first_entry())
            && *entry.key() <= now
        {
            let spot = entry.remove();
            self.note(spot);
        }
    }

    /// A command waits no longer; those behind it have their turn.
    pub(crate) fn leave(&mut self, client: u64) -> Option<Arc<Waiter>> {
        let mut standing = self.standing.remove(&client)?;
        self.carrier.take_if(|carrier| *carrier == client);
        self.due.extend(standing.held.drain(..));
        let waiter = Arc::clone(&standing.waiter);
        if standing.watches.len() <= LEFT_AT_ONCE {
            self.take_out(&waiter, std::mem::take(&mut standing.watches));
        } else {
            self.left.push(standing);
        }
        Some(waiter)
    }

    /// Takes one that has left out of the lines of these keys.
    fn take_out(&mut self, waiter: &Waiter, watches: Vec<Watch>) {
        for watch in watches {
            let spot = (watch.db(), Box::from(watch.key()));
            let Some(line) = self.keys.get_mut(&spot) else { continue };
            for row in line.rows.iter_mut().filter(|row| row.wants == waiter.wants) {
                if let Ok(at) = row.turns.binary_search_by_key(&waiter.turn, |(turn, _)| *turn) {
                    row.turns.remove(at);
                }
            }
            self.clear(&spot);
        }
    }

    /// Those who have left many lines, to be given to [`Blocked::take_out`] without the lock.
    pub(crate) fn take_left(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.left)
    }
}

impl Blocked {
    /// Takes those who have left out of their lines, some keys at a time: others have the lock between them.
    pub(crate) fn take_out(&self, left: Vec<Waiting>) {
        for Waiting { waiter, mut watches, .. } in left {
            while !watches.is_empty() {
                let some = watches.split_off(watches.len().saturating_sub(LEFT_AT_ONCE));
                self.lock_after_others().take_out(&waiter, some);
            }
        }
    }

    /// Keys for which somebody waits, and commands that do, for tests.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let lines = self.lock();
        (lines.keys.len(), lines.standing.len())
    }
}

/// Keys of a database that are noted at once.
const SWEPT_AT_ONCE: usize = 64;
/// From more lines a command is taken out bit by bit.
const LEFT_AT_ONCE: usize = 64;
/// Then it takes its turn, whoever waits.
const YIELDS_MAX: usize = 1_000;
