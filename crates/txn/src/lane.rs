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
//!   3. Nothing waits but [`Lane::wait`] and [`Lane::commit_and_wait`]. The first ends by the next time that a machine waits for, the other
//!      has it looked at up to a second later.
//!   4. A lane that is dropped loses nothing: the coordinator's recovery manager goes on with what is unfinished.
//!
//! Out of scope: what comes next in a transaction (`protocol`).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clock::{Nanos, UnixMs};

use crate::commit_delay::CommitDelay;
use crate::coordinator::{Shared, TransactionInfo};
use crate::decision_log::{Cycle, Refused, Waiter};
use crate::id::{BranchId, NodeName, TxId};
use crate::inbox::{Event, Inbox, lock};
use crate::machines::{Machines, Moved};
use crate::phases::Phases;
use crate::protocol::{Effect, Misuse, Outcome, Standing, State, Transaction};
use crate::resource::{Ask, Call, Replies, Reply, Resource};
use crate::steps::{self, Step};

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
    #[error("no transaction {0} is known here: it has ended, or never began")]
    Unknown(TxId),
    /// Its state does not allow it.
    #[error("{0}")]
    Misuse(#[from] Misuse),
    /// There are too many.
    #[error("{0} transactions are under way, as many as txn.transactions_max allows")]
    TooMany(u64),
    /// The log takes nothing any more, or the coordinator ends.
    #[error("transactions cannot begin: {0}")]
    Closed(&'static str),
    /// No resource has this place.
    #[error("there is no resource {0}")]
    NoResource(u16),
    /// The resource takes no branches now.
    #[error("resource {0} takes no branches: {1}")]
    NotReady(Box<str>, String),
}

/// Monotonic and wall-clock time of one moment.
pub(crate) type Time = (Nanos, UnixMs);

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
    machines: Machines,
    finished: Vec<(TxId, Outcome)>,
    outcomes: Outcomes,
    phases: Phases,
    commit_delay: CommitDelay,
    /// Those of the resources. The lane's own, since who counts references to what others count, too, waits for their cache line.
    names: Box<[Arc<str>]>,
    /// Written to the log, and not heard of.
    writing: u64,
    /// With which cycle of the log the newest of them goes.
    cycle: Cycle,
    /// Those for which the log had no room yet.
    unwritten: Unwritten,
    /// So many were written since the log was told that somebody waits.
    not_offered: u64,
    waiter: Arc<dyn Waiter>,
    replies: Arc<dyn Replies>,
    // Kept for their memory.
    events: Vec<Event>,
    effects: Vec<Effect>,
    record: Vec<u8>,
}

/// Decisions that the log had no room for, each until when it is written again, and when they are next.
#[derive(Debug, Default)]
struct Unwritten {
    records: Vec<(TxId, Vec<u8>, Nanos)>,
    again_at: Option<Nanos>,
}

/// How many transactions of a lane ended how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    pub(crate) unknown: u64,
    pub(crate) heuristic: u64,
}

impl Outcomes {
    fn note(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Committed => &mut self.committed,
            Outcome::Aborted(_) => &mut self.aborted,
            Outcome::Unknown(_) => &mut self.unknown,
            Outcome::Heuristic(_) => &mut self.heuristic,
        } += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.heuristic += other.heuristic;
    }
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
        Ok(self.part.core().begin(&self.shared, timeout))
    }

    /// Adds a branch for the resource at this place among the coordinator's.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::NoResource`], [`LaneError::NotReady`], [`LaneError::Misuse`].
    pub fn enlist(&mut self, tx: TxId, resource: u16) -> Result<BranchId, LaneError> {
        self.part.enlist(&self.shared, tx, resource, None)
    }

    /// Begins to commit; [`Lane::turn`] tells the outcome.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit(&mut self, tx: TxId) -> Result<(), LaneError> {
        self.part.core().commit(&self.shared, self.shared.time(), tx)
    }

    /// Begins to roll back; [`Lane::turn`] tells the outcome, which has this reason.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn rollback(&mut self, tx: TxId, reason: &str) -> Result<(), LaneError> {
        self.part.core().rollback(&self.shared, self.shared.time(), tx, reason)
    }

    /// Handles what came, and adds to `finished` what ended; never waits.
    pub fn turn(&mut self, finished: &mut Vec<(TxId, Outcome)>) {
        finished.append(&mut self.met);
        self.part.turn(&self.shared, self.shared.time(), finished);
    }

    /// Waits until something came or a time is due that a machine waits for. Makes its own decision durable, where that is
    /// quicker than to wake another thread for it.
    pub fn wait(&mut self) {
        self.wait_as(false);
    }

    /// `is_together`: this thread may sleep with all others that wait for the log. Nobody may have told its inbox before that it sleeps.
    fn wait_as(&mut self, is_together: bool) {
        let (waits, is_alone) = {
            let core = self.part.core();
            (core.not_offered > 0, core.is_alone(&self.shared))
        };
        if waits && self.shared.log.help(is_alone) {
            self.part.core().not_offered = 0;
            return;
        }
        let (due, cycle) = self.offered();
        match cycle.filter(|_| is_together) {
            Some(cycle) => self.part.inbox.park_together(cycle),
            None => self.part.inbox.park(self.until(due)),
        }
    }

    /// Tells the log that somebody waits, if nobody has; for how long there is nothing to be done.
    pub(crate) fn rest(&self) -> Duration {
        self.until(self.offered().0)
    }

    /// Tells the log that somebody waits; when there is something to be done, and with which cycle of the log a lone transaction goes on.
    fn offered(&self) -> (Option<Nanos>, Cycle) {
        let mut core = self.part.core();
        core.offer(&self.shared);
        (core.due(), core.cycle_awaited())
    }

    fn until(&self, due: Option<Nanos>) -> Duration {
        due.map_or(WAIT_MOST, |due| due.since(self.shared.clock.now()).min(WAIT_MOST))
    }

    /// Commits, and waits for the outcome.
    ///
    /// # Errors
    /// [`LaneError::Unknown`], [`LaneError::Misuse`].
    pub fn commit_and_wait(&mut self, tx: TxId) -> Result<Outcome, LaneError> {
        let mut time = self.shared.time();
        self.part.core().commit(&self.shared, time, tx)?;
        loop {
            let mut finished = std::mem::take(&mut self.met);
            self.part.turn(&self.shared, time, &mut finished);
            let found = finished.iter().position(|(other, _)| *other == tx);
            let outcome = found.map(|at| finished.swap_remove(at).1);
            self.met = finished;
            match outcome {
                Some(outcome) => return Ok(outcome),
                None => self.wait_as(true),
            }
            time = self.shared.time();
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

    /// How long to let commits gather now.
    pub(crate) fn commit_delay(&self) -> Duration {
        self.part.core().commit_delay().rest()
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.part.inbox
    }

    /// What others may use of it: see [`SharedLane`](crate::shared_lane::SharedLane).
    pub(crate) fn parts(&self) -> (Arc<Shared>, Arc<Part>) {
        (Arc::clone(&self.shared), Arc::clone(&self.part))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.part.core().offer(&self.shared);
        self.shared.adopt(&self.part);
    }
}

impl Part {
    pub(crate) fn new(index: u16, inbox: Inbox, resources: &[Arc<dyn Resource>]) -> Self {
        let inbox = Arc::new(inbox);
        let core = Core {
            index,
            count: 0,
            machines: Machines::default(),
            finished: Vec::new(),
            outcomes: Outcomes::default(),
            phases: Phases::default(),
            commit_delay: CommitDelay::default(),
            names: resources.iter().map(|resource| Arc::from(resource.name())).collect(),
            writing: 0,
            cycle: None,
            unwritten: Unwritten::default(),
            not_offered: 0,
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

    /// Adds a branch, with this number or the next.
    pub(crate) fn enlist(
        &self,
        shared: &Shared,
        tx: TxId,
        resource: u16,
        number: Option<u16>,
    ) -> Result<BranchId, LaneError> {
        let it = shared.resources.get(usize::from(resource)).ok_or(LaneError::NoResource(resource))?;
        it.ready().map_err(|why| LaneError::NotReady(it.name().into(), why))?;
        let mut core = self.core();
        let name = Arc::clone(&core.names[usize::from(resource)]);
        let machine = core.machines.get_mut(tx).ok_or(LaneError::Unknown(tx))?;
        Ok(match number {
            Some(number) => machine.enlist_as(number, resource, it.abilities(), name)?,
            None => machine.enlist(resource, it.abilities(), name)?,
        })
    }

    /// Handles what came; adds what ended to `finished`.
    pub(crate) fn turn(&self, shared: &Shared, (now, wall): Time, finished: &mut Vec<(TxId, Outcome)>) {
        let (mut core, mut handled) = (self.core(), 0_usize);
        let mut events = std::mem::take(&mut core.events);
        loop {
            self.inbox.take(&mut events);
            if events.is_empty() {
                break;
            }
            for event in events.drain(..) {
                core.on_event(shared, (now, wall), event);
                handled += 1;
                if handled.is_multiple_of(TURN_EVENTS_MAX) {
                    // Who looks in may be an event loop: it has its turn, too.
                    drop(core);
                    std::thread::yield_now();
                    core = self.core();
                }
            }
        }
        core.events = events;
        core.write_again(shared, (now, wall));
        core.on_time(shared, (now, wall));
        finished.append(&mut core.finished);
    }

    /// The resource at this place answers again: whoever waits to ask it asks now.
    pub(crate) fn on_back(&self, shared: &Shared, resource: u16) {
        let waiting: Vec<TxId> = self.core().machines.live().map(Transaction::id).collect();
        for some in waiting.chunks(TURN_EVENTS_MAX) {
            self.core().on_back(shared, resource, some);
            std::thread::yield_now();
        }
        self.offer(shared);
        self.inbox.wake();
    }

    /// Tells the log that somebody waits, if nobody has.
    pub(crate) fn offer(&self, shared: &Shared) {
        self.core().offer(shared);
    }
}

impl Core {
    /// Takes in a machine.
    pub(crate) fn insert(&mut self, tx: TxId, machine: Transaction) {
        self.commit_delay.moved(false, machine.is_ending());
        self.machines.insert(tx, machine);
    }

    /// Begins a transaction that was admitted.
    pub(crate) fn begin(&mut self, shared: &Shared, timeout: Duration) -> TxId {
        self.count += 1;
        let tx = TxId { epoch: shared.epoch, number: number(self.index, self.count) };
        self.insert(tx, Transaction::begin(tx, shared.clock.now() + timeout, shared.options.timing));
        tx
    }

    pub(crate) fn commit(&mut self, shared: &Shared, (now, wall): Time, tx: TxId) -> Result<(), LaneError> {
        let done = self.change(shared, tx, |machine, effects| machine.commit(now, wall, effects));
        Ok(done.ok_or(LaneError::Unknown(tx))??)
    }

    pub(crate) fn rollback(
        &mut self,
        shared: &Shared,
        (now, wall): Time,
        tx: TxId,
        reason: &str,
    ) -> Result<(), LaneError> {
        let done = self.change(shared, tx, |machine, effects| machine.rollback(now, wall, reason, effects));
        Ok(done.ok_or(LaneError::Unknown(tx))??)
    }

    /// What is known here of a branch.
    pub(crate) fn standing(&self, branch: BranchId) -> Standing {
        self.machines.get(branch.tx).map_or(Standing::Nobody, |machine| machine.standing(branch.branch))
    }

    /// Whether work may still be done in it.
    pub(crate) fn check_active(&self, tx: TxId) -> Result<(), LaneError> {
        Ok(self.machines.get(tx).ok_or(LaneError::Unknown(tx))?.check_active()?)
    }

    pub(crate) fn has(&self, tx: TxId) -> bool {
        self.machines.get(tx).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.machines.len() == 0 && !self.has_finished()
    }

    /// Whether outcomes are there that were not told.
    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Nothing waits for a time before this.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.machines.due().into_iter().chain(self.unwritten.again_at).min()
    }

    pub(crate) fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    pub(crate) fn phases(&self) -> &Phases {
        &self.phases
    }

    pub(crate) fn commit_delay(&self) -> CommitDelay {
        self.commit_delay
    }

    /// The `most` with the least numbers that are under way, of all or of those in `state`.
    pub(crate) fn first_live(
        &self,
        node: &NodeName,
        state: Option<State>,
        most: usize,
    ) -> Vec<TransactionInfo> {
        let wanted =
            self.machines.live().filter(|machine| state.is_none_or(|state| machine.state() == state));
        let mut first: Vec<&Transaction> = wanted.collect();
        if first.len() > most {
            first.select_nth_unstable_by_key(most, |machine| machine.id());
            first.truncate(most);
        }
        first.into_iter().map(|machine| TransactionInfo::of(node, machine)).collect()
    }

    /// The `most` that became done last of those that are kept, each with the time at which it goes.
    pub(crate) fn newest_kept(&self, node: &NodeName, most: usize) -> Vec<(Nanos, TransactionInfo)> {
        let newest = self.machines.newest_kept().take(most);
        newest.map(|(at, machine)| (at, TransactionInfo::of(node, machine))).collect()
    }

    /// Adds how many are in which state.
    pub(crate) fn count_states(&self, states: &mut BTreeMap<State, u64>) {
        self.machines.live().for_each(|machine| *states.entry(machine.state()).or_default() += 1);
        let kept = self.machines.kept_len() as u64;
        if kept > 0 {
            *states.entry(State::Done).or_default() += kept;
        }
    }

    pub(crate) fn info(&self, node: &NodeName, tx: TxId) -> Option<TransactionInfo> {
        self.machines.get(tx).map(|machine| TransactionInfo::of(node, machine))
    }

    /// The machine of `tx`, for a change from outside, whose effects are carried out.
    pub(crate) fn change<T>(
        &mut self,
        shared: &Shared,
        tx: TxId,
        how: impl FnOnce(&mut Transaction, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let mut effects = std::mem::take(&mut self.effects);
        let commit_delay = &mut self.commit_delay;
        let changed = self.machines.change(tx, |machine| {
            let was_ending = machine.is_ending();
            let done = how(machine, &mut effects);
            commit_delay.moved(was_ending, machine.is_ending());
            done
        });
        let is_settled = changed.as_ref().is_none_or(|(_, is_settled)| *is_settled);
        self.carry_out(shared, tx, effects, is_settled);
        changed.map(|(done, _)| done)
    }

    /// The resource at this place answers again; `waiting` may wait for it.
    fn on_back(&mut self, shared: &Shared, resource: u16, waiting: &[TxId]) {
        let (now, wall) = shared.time();
        for tx in waiting {
            self.change(shared, *tx, |machine, effects| machine.on_back(now, wall, resource, effects));
        }
    }

    fn on_event(&mut self, shared: &Shared, (now, wall): Time, event: Event) {
        let tx = match &event {
            Event::Answered(Call { branch: Some(branch), ask, .. }, _) => {
                answered(*ask).into_iter().for_each(steps::reached);
                branch.tx
            }
            // Of a recovery: the recovery manager takes those before it turns.
            Event::Answered(..) => return,
            Event::Logged(tx, _) => {
                steps::reached(Step::Decided);
                self.writing -= 1;
                shared.writing.fetch_sub(1, Ordering::Relaxed);
                *tx
            }
        };
        self.change(shared, tx, |machine, effects| match event {
            Event::Answered(call, answer) => {
                let branch = call.branch.map_or(0, |branch| branch.branch);
                machine.on_answer(now, wall, branch, call.ask, call.attempt, answer, effects);
            }
            Event::Logged(_, result) => machine.on_logged(now, wall, result, effects),
        });
    }

    /// Tells machines the time that waited for one.
    fn on_time(&mut self, shared: &Shared, (now, wall): Time) {
        if self.machines.due().is_none_or(|due| now < due) {
            return;
        }
        for tx in self.machines.take_due(now) {
            self.change(shared, tx, |machine, effects| machine.on_time(now, wall, effects));
        }
        self.machines.forget_past(now);
    }

    /// Carries out what the machine of `tx` wants, and what follows from that. `is_settled`: the machine is where it belongs.
    fn carry_out(&mut self, shared: &Shared, tx: TxId, mut effects: Vec<Effect>, mut is_settled: bool) {
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
                    steps::reached(Step::Decide);
                    self.record.clear();
                    decision.encode(&mut self.record);
                    if let Err(refused) = self.write(shared, tx) {
                        let (now, wall) = shared.time();
                        self.on_refused((now, wall), (tx, now + BUSY_MAX), refused, &mut effects);
                        is_settled = false;
                    }
                }
                Effect::Remove => {
                    steps::reached(Step::Remove);
                    shared.log.remove(tx);
                }
                Effect::Finish(outcome) => {
                    steps::reached(Step::Told);
                    let outcome = std::mem::replace(outcome, Outcome::Committed);
                    self.outcomes.note(&outcome);
                    if outcome == Outcome::Committed
                        && let Some(machine) = self.machines.get(tx)
                    {
                        let marks = machine.marks();
                        self.phases.note(marks);
                        if marks.asked.0 != 0 {
                            self.commit_delay.took(marks.finished.since(marks.asked));
                        }
                    }
                    self.finished.push((tx, outcome));
                }
                Effect::End => {
                    let is_ending = self.machines.get(tx).is_some_and(Transaction::is_ending);
                    self.commit_delay.moved(is_ending, false);
                    let was_kept = self.machines.remove(tx);
                    shared.ended(tx, was_kept);
                    is_settled = true;
                }
            }
        }
        effects.clear();
        self.effects = effects;
        if is_settled {
            return;
        }
        match self.machines.settle(tx) {
            Moved::Stays => {}
            Moved::IsKept => shared.is_kept(tx),
            Moved::IsLive => shared.is_live(tx),
        }
    }

    fn ask(&mut self, shared: &Shared, call: Call) {
        let resource = &shared.resources[usize::from(call.resource)];
        let branch = call.branch.expect("a question about a branch");
        let reply = Reply::new(call, Arc::clone(&self.replies));
        asked(call.ask).into_iter().for_each(steps::reached);
        match call.ask {
            Ask::Prepare => resource.prepare(branch, reply),
            Ask::Commit => resource.commit(branch, reply),
            Ask::CommitOnePhase => resource.commit_one_phase(branch, reply),
            Ask::Rollback => resource.rollback(branch, reply),
            Ask::Forget => resource.forget(branch, reply),
            Ask::Recover => resource.recover(reply),
        }
    }

    /// What was just encoded was not taken. Until `until` it is written again if that is for want of room alone.
    fn on_refused(
        &mut self,
        (now, wall): Time,
        (tx, until): (TxId, Nanos),
        refused: Refused,
        effects: &mut Vec<Effect>,
    ) {
        if matches!(refused, Refused::Busy(_)) && now < until {
            // What fills the log may be ours, and nobody else offers it.
            self.not_offered += 1;
            self.unwritten.records.push((tx, self.record.clone(), until));
            self.unwritten.again_at.get_or_insert(now + BUSY_PAUSE);
        } else {
            let machine = self.machines.get_mut(tx).expect("it waits for its record");
            let was_ending = machine.is_ending();
            machine.on_refused(now, wall, refused, effects);
            self.commit_delay.moved(was_ending, machine.is_ending());
        }
    }

    /// Writes what the log had no room for.
    fn write_again(&mut self, shared: &Shared, (now, wall): Time) {
        if self.unwritten.again_at.is_none_or(|at| now < at) {
            return;
        }
        for (tx, record, until) in std::mem::take(&mut self.unwritten).records {
            self.record = record;
            if let Err(refused) = self.write(shared, tx) {
                let mut effects = std::mem::take(&mut self.effects);
                self.on_refused((now, wall), (tx, until), refused, &mut effects);
                self.carry_out(shared, tx, effects, false);
            }
        }
    }

    fn write(&mut self, shared: &Shared, tx: TxId) -> Result<(), Refused> {
        self.writing += 1;
        shared.writing.fetch_add(1, Ordering::Relaxed);
        match shared.log.write(tx, &self.record, &self.waiter) {
            Ok(cycle) => {
                self.cycle = cycle;
                self.not_offered += 1;
                if self.not_offered >= OFFER_AT {
                    self.offer(shared);
                }
                Ok(())
            }
            Err(refused) => {
                self.writing -= 1;
                shared.writing.fetch_sub(1, Ordering::Relaxed);
                Err(refused)
            }
        }
    }

    fn offer(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.not_offered) > 0 {
            shared.log.offer();
        }
    }

    /// With which cycle of the log a lone transaction goes on; `None` if anything else is waited for.
    fn cycle_awaited(&self) -> Cycle {
        if self.writing == 1 && self.machines.live_len() == 1 { self.cycle } else { None }
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

/// The step that this question is.
fn asked(ask: Ask) -> Option<Step> {
    match ask {
        Ask::Prepare => Some(Step::Prepare),
        Ask::Commit => Some(Step::Commit),
        Ask::CommitOnePhase => Some(Step::CommitAlone),
        Ask::Rollback => Some(Step::Rollback),
        Ask::Recover | Ask::Forget => None,
    }
}

/// The step that the answer to this question is.
fn answered(ask: Ask) -> Option<Step> {
    match ask {
        Ask::Prepare => Some(Step::Voted),
        Ask::Commit => Some(Step::Committed),
        Ask::CommitOnePhase => Some(Step::CommittedAlone),
        Ask::Rollback => Some(Step::RolledBack),
        Ask::Recover | Ask::Forget => None,
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

/// So many events, or transactions, a lane handles before it lets others look into it.
const TURN_EVENTS_MAX: usize = 1_024;
/// A lane that writes so many without a pause tells the log of them: the disk works while the lane does.
const OFFER_AT: u64 = 128;
const LANE_SHIFT: u32 = 48;
/// A log without room is asked again after so long, and so long at most: then the transaction rolls back.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const BUSY_MAX: Duration = Duration::from_secs(2);
/// A lane looks at least this often.
const WAIT_MOST: Duration = Duration::from_secs(1);
