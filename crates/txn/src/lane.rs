//! A lane: some transactions, and the one thread that drives their machines.
//!
//! A thread that works with transactions has a lane of its own, as an event loop has its connections: nobody else touches what
//! happens in it, so machines need no locks between each other. Others look into it (operators, recovery) under its lock, which
//! its owner takes once a call and nobody holds for long.
//!
//! ```text
//!  begin, enlist, commit -> machine -> effects: ask a resource, write to the log, tell who waits
//!  turn <- inbox <- answers, durable decisions
//! ```
//!
//! Invariants
//!   1. A transaction is in one lane from begin to end; its number tells which.
//!   2. An effect is carried out once, in the order in which its machine gave it.
//!   3. Nothing waits but [`Lane::wait`] and [`Lane::commit_and_wait`], and those end by the next time that a machine waits for.
//!   4. A lane that is dropped loses nothing: the coordinator's keeper goes on with what is unfinished.
//!
//! Out of scope: what comes next in a transaction (`protocol`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clock::{Nanos, UnixMs};
use foldhash::fast::RandomState;

use crate::coordinator::{Shared, TransactionInfo};
use crate::decision_log::{Refused, Waiter};
use crate::id::{BranchId, TxId};
use crate::inbox::{Event, Inbox, lock};
use crate::protocol::{Effect, Misuse, Outcome, Standing, Transaction};
use crate::resource::{Ask, Call, Replies, Reply};

/// Transactions of one thread.
#[derive(Debug)]
pub struct Lane {
    shared: Arc<Shared>,
    part: Arc<Part>,
    /// What [`Lane::commit_and_wait`] met that somebody else asks for.
    met: Vec<(TxId, Outcome)>,
}

/// Why a lane does not do what it is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// There is no such transaction in this lane: it has ended, or never began.
    #[error("there is no transaction {0} here")]
    Unknown(TxId),
    /// Its state does not allow it.
    #[error("{0}")]
    Misuse(#[from] Misuse),
    /// There are too many.
    #[error("{0} transactions are under way, as many as txn.transactions_max allows")]
    TooMany(u64),
    /// The log takes nothing any more, or the coordinator ends.
    #[error("no transaction can begin: {0}")]
    Closed(&'static str),
    /// No resource has this place.
    #[error("there is no resource {0}")]
    NoResource(u16),
}

/// What a lane shares with those who look into it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) index: u16,
    pub(crate) inbox: Arc<Inbox>,
    core: Mutex<Core>,
}

/// A lane's transactions.
pub(crate) struct Core {
    index: u16,
    /// Transactions that began here.
    count: u64,
    machines: HashMap<TxId, Transaction, RandomState>,
    /// No machine waits for a time before this.
    due: Option<Nanos>,
    finished: Vec<(TxId, Outcome)>,
    /// Written to the log, and not heard of.
    writing: u64,
    /// Something was written, and the log does not know that somebody waits.
    owes_offer: bool,
    waiter: Arc<dyn Waiter>,
    replies: Arc<dyn Replies>,
    // Kept for their memory.
    events: Vec<Event>,
    effects: Vec<Effect>,
    record: Vec<u8>,
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, part: Arc<Part>) -> Self {
        Self { shared, part, met: Vec::new() }
    }

    /// Begins a transaction, which rolls back if no end was chosen for it within `timeout`.
    ///
    /// # Errors
    /// [`LaneError::TooMany`], [`LaneError::Closed`].
    pub fn begin(&mut self, timeout: Duration) -> Result<TxId, LaneError> {
        self.shared.admit()?;
        let mut core = self.part.core();
        core.count += 1;
        let tx = TxId { epoch: self.shared.epoch, number: number(core.index, core.count) };
        let machine = Transaction::begin(tx, self.shared.clock.now() + timeout, self.shared.options.timing);
        core.insert(tx, machine);
        Ok(tx)
    }

    /// Adds a branch for the resource at this place among the coordinator's.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::NoResource`], [`LaneError::Misuse`].
    pub fn enlist(&mut self, tx: TxId, resource: u16) -> Result<BranchId, LaneError> {
        let it = self.shared.resources.get(usize::from(resource)).ok_or(LaneError::NoResource(resource))?;
        let mut core = self.part.core();
        let machine = core.machines.get_mut(&tx).ok_or(LaneError::Unknown(tx))?;
        let name = Arc::clone(&self.shared.names[usize::from(resource)]);
        Ok(machine.enlist(resource, it.abilities(), name)?)
    }

    /// Begins to commit; [`Lane::turn`] tells the outcome.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit(&mut self, tx: TxId) -> Result<(), LaneError> {
        self.end(tx, |machine, now, wall, effects| machine.commit(now, wall, effects))
    }

    /// Begins to roll back; [`Lane::turn`] tells the outcome, which has this reason.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn rollback(&mut self, tx: TxId, reason: &str) -> Result<(), LaneError> {
        self.end(tx, |machine, now, wall, effects| machine.rollback(now, wall, reason, effects))
    }

    /// Handles what came, and adds to `finished` what ended; never waits.
    pub fn turn(&mut self, finished: &mut Vec<(TxId, Outcome)>) {
        finished.append(&mut self.met);
        self.part.turn(&self.shared, finished);
    }

    /// Waits until something came or a time is due that a machine waits for. Makes its own decision durable, where that is
    /// quicker than to wake another thread for it.
    pub fn wait(&mut self) {
        let (waits, is_alone) = {
            let core = self.part.core();
            (core.owes_offer, core.is_alone(&self.shared))
        };
        if waits && self.shared.log.help(is_alone) {
            self.part.core().owes_offer = false;
            return;
        }
        let due = {
            let mut core = self.part.core();
            core.offer(&self.shared);
            core.due
        };
        let most = due.map_or(WAIT_MOST, |due| due.since(self.shared.clock.now()).min(WAIT_MOST));
        self.part.inbox.park(most);
    }

    /// Commits, and waits for the outcome.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit_and_wait(&mut self, tx: TxId) -> Result<Outcome, LaneError> {
        self.commit(tx)?;
        loop {
            let mut finished = std::mem::take(&mut self.met);
            self.part.turn(&self.shared, &mut finished);
            let found = finished.iter().position(|(other, _)| *other == tx);
            let outcome = found.map(|at| finished.swap_remove(at).1);
            self.met = finished;
            match outcome {
                Some(outcome) => return Ok(outcome),
                None => self.wait(),
            }
        }
    }

    /// How many have not ended, those included whose outcome was told and whose branches still have to hear of it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.part.core().machines.len()
    }

    /// Whether all have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn end(
        &mut self,
        tx: TxId,
        how: impl FnOnce(&mut Transaction, Nanos, UnixMs, &mut Vec<Effect>) -> Result<(), Misuse>,
    ) -> Result<(), LaneError> {
        let (now, wall) = (self.shared.clock.now(), self.shared.clock.unix_ms());
        let mut core = self.part.core();
        let mut effects = std::mem::take(&mut core.effects);
        let machine = core.machines.get_mut(&tx).ok_or(LaneError::Unknown(tx));
        let done = machine.and_then(|machine| Ok(how(machine, now, wall, &mut effects)?));
        core.carry_out(&self.shared, tx, effects);
        done
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.part.core().offer(&self.shared);
        self.shared.adopt(&self.part);
    }
}

impl Part {
    pub(crate) fn new(index: u16, inbox: Inbox) -> Self {
        let inbox = Arc::new(inbox);
        let core = Core {
            index,
            count: 0,
            machines: HashMap::default(),
            due: None,
            finished: Vec::new(),
            writing: 0,
            owes_offer: false,
            waiter: Arc::clone(&inbox) as Arc<dyn Waiter>,
            replies: Arc::clone(&inbox) as Arc<dyn Replies>,
            events: Vec::new(),
            effects: Vec::new(),
            record: Vec::new(),
        };
        Self { index, inbox, core: Mutex::new(core) }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }

    /// Handles what came; adds what ended to `finished`.
    pub(crate) fn turn(&self, shared: &Shared, finished: &mut Vec<(TxId, Outcome)>) {
        let (now, wall) = (shared.clock.now(), shared.clock.unix_ms());
        let mut core = self.core();
        let mut events = std::mem::take(&mut core.events);
        loop {
            self.inbox.take(&mut events);
            if events.is_empty() {
                break;
            }
            for event in events.drain(..) {
                core.on_event(shared, (now, wall), event);
            }
        }
        core.events = events;
        core.on_time(shared, (now, wall));
        finished.append(&mut core.finished);
    }

    /// Tells the log that somebody waits, if nobody has.
    pub(crate) fn offer(&self, shared: &Shared) {
        self.core().offer(shared);
    }
}

impl Core {
    /// Takes in a machine.
    pub(crate) fn insert(&mut self, tx: TxId, machine: Transaction) {
        self.note_time(machine.next_time());
        let before = self.machines.insert(tx, machine);
        assert!(before.is_none(), "transaction {tx} began twice");
    }

    /// What is known here of a branch.
    pub(crate) fn standing(&self, branch: BranchId) -> Standing {
        self.machines.get(&branch.tx).map_or(Standing::Nobody, |machine| machine.standing(branch.branch))
    }

    pub(crate) fn has(&self, tx: TxId) -> bool {
        self.machines.contains_key(&tx)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.finished.is_empty()
    }

    /// No machine waits for a time before this.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    pub(crate) fn infos(&self) -> impl Iterator<Item = TransactionInfo> {
        self.machines.values().map(TransactionInfo::of)
    }

    /// The machine of `tx`, for a change from outside, whose effects are carried out.
    pub(crate) fn change<T>(
        &mut self,
        shared: &Shared,
        tx: TxId,
        how: impl FnOnce(&mut Transaction, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let mut effects = std::mem::take(&mut self.effects);
        let done = self.machines.get_mut(&tx).map(|machine| how(machine, &mut effects));
        self.carry_out(shared, tx, effects);
        done
    }

    fn on_event(&mut self, shared: &Shared, (now, wall): (Nanos, UnixMs), event: Event) {
        let tx = match &event {
            Event::Answered(Call { branch: Some(branch), .. }, _) => branch.tx,
            // Of a recovery: the keeper takes those before it turns.
            Event::Answered(..) => return,
            Event::Logged(tx, _) => {
                self.writing -= 1;
                shared.writing.fetch_sub(1, Ordering::Relaxed);
                *tx
            }
        };
        let mut effects = std::mem::take(&mut self.effects);
        if let Some(machine) = self.machines.get_mut(&tx) {
            match event {
                Event::Answered(call, answer) => {
                    let branch = call.branch.map_or(0, |branch| branch.branch);
                    machine.on_answer(now, wall, branch, call.ask, call.attempt, answer, &mut effects);
                }
                Event::Logged(_, result) => machine.on_logged(now, wall, result, &mut effects),
            }
        }
        self.carry_out(shared, tx, effects);
    }

    /// Tells machines the time that waited for one.
    fn on_time(&mut self, shared: &Shared, (now, wall): (Nanos, UnixMs)) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let is_due = |machine: &Transaction| machine.next_time().is_some_and(|time| time <= now);
        let all: Vec<TxId> =
            self.machines.iter().filter(|(_, machine)| is_due(machine)).map(|(tx, _)| *tx).collect();
        for tx in all {
            self.change(shared, tx, |machine, effects| machine.on_time(now, wall, effects));
        }
        self.due = self.machines.values().filter_map(Transaction::next_time).min();
    }

    /// Carries out what the machine of `tx` wants, and what follows from that.
    fn carry_out(&mut self, shared: &Shared, tx: TxId, mut effects: Vec<Effect>) {
        let mut at = 0;
        // What is appended meanwhile is carried out behind what was there.
        while let Some(effect) = effects.get_mut(at) {
            at += 1;
            match effect {
                Effect::Ask { branch, resource, ask, attempt } => {
                    let branch = BranchId { tx, branch: *branch };
                    self.ask(
                        shared,
                        Call { resource: *resource, branch: Some(branch), ask: *ask, attempt: *attempt },
                    );
                }
                Effect::Write(decision) => {
                    self.record.clear();
                    decision.encode(&mut self.record);
                    if let Err(refused) = self.write(shared, tx) {
                        let (now, wall) = (shared.clock.now(), shared.clock.unix_ms());
                        let machine = self.machines.get_mut(&tx).expect("it has just written");
                        machine.on_refused(now, wall, refused, &mut effects);
                    }
                }
                Effect::Remove => shared.log.remove(tx),
                Effect::Finish(outcome) => {
                    let outcome = std::mem::replace(outcome, Outcome::Committed);
                    shared.count(&outcome);
                    self.finished.push((tx, outcome));
                }
                Effect::End => {
                    self.machines.remove(&tx);
                    shared.ended();
                }
            }
        }
        effects.clear();
        self.effects = effects;
        let next = self.machines.get(&tx).and_then(Transaction::next_time);
        self.note_time(next);
    }

    fn note_time(&mut self, next: Option<Nanos>) {
        self.due = match (self.due, next) {
            (Some(due), Some(next)) => Some(due.min(next)),
            (due, next) => due.or(next),
        };
    }

    fn ask(&mut self, shared: &Shared, call: Call) {
        let resource = &shared.resources[usize::from(call.resource)];
        let branch = call.branch.expect("a question about a branch");
        let reply = Reply::new(call, Arc::clone(&self.replies));
        match call.ask {
            Ask::Prepare => resource.prepare(branch, reply),
            Ask::Commit => resource.commit(branch, reply),
            Ask::CommitOnePhase => resource.commit_one_phase(branch, reply),
            Ask::Rollback => resource.rollback(branch, reply),
            Ask::Forget => resource.forget(branch, reply),
            Ask::Recover => resource.recover(reply),
        }
    }

    fn write(&mut self, shared: &Shared, tx: TxId) -> Result<(), Refused> {
        self.writing += 1;
        shared.writing.fetch_add(1, Ordering::Relaxed);
        let written = shared.log.write(tx, &self.record, &self.waiter);
        if written.is_err() {
            self.writing -= 1;
            shared.writing.fetch_sub(1, Ordering::Relaxed);
        }
        self.owes_offer |= written.is_ok();
        written
    }

    fn offer(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.owes_offer) {
            shared.log.offer();
        }
    }

    /// Whether nobody else waits for the log.
    fn is_alone(&self, shared: &Shared) -> bool {
        shared.writing.load(Ordering::Relaxed) == self.writing
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("index", &self.index)
            .field("machines", &self.machines.len())
            .finish_non_exhaustive()
    }
}

/// The number of a lane's `count`th transaction.
fn number(lane: u16, count: u64) -> u64 {
    assert!(count < 1 << LANE_SHIFT, "a lane has begun 2^48 transactions");
    u64::from(lane) << LANE_SHIFT | count
}

/// Which lane a transaction of this start began in.
pub(crate) fn lane_of(tx: TxId) -> u16 {
    (tx.number >> LANE_SHIFT) as u16
}

const LANE_SHIFT: u32 = 48;
/// A lane looks at least this often.
const WAIT_MOST: Duration = Duration::from_secs(1);
