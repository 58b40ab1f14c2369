//! A lane as its handles and those who look into it share it: its table under a lock, its inbox, and who carries out what machines want.
//!
//! Invariants
//!   1. An effect is carried out once, in the order in which its machine gave it.
//!   2. The lock is held for no more than some hundred events, and for no wait.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clock::{Nanos, UnixMs};

use super::error::LaneError;
use crate::decision_log::{Refused, Waiter};
use crate::id::{BranchId, TxId};
use crate::inbox::{Event, Inbox, lock};
use crate::protocol::{Effect, Outcome, Transaction};
use crate::record::Decision;
use crate::resource::{Ask, Call, Replies, Reply, Resource};
use crate::shared::Shared;
use crate::steps::{self, Step};
use crate::table::{Moved, TransactionTable};

/// Monotonic and wall-clock time of one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) now: Nanos,
    pub(crate) wall: UnixMs,
}

/// What a lane shares with those who look into it.
pub(crate) struct LaneInner {
    pub(crate) index: u16,
    pub(crate) inbox: Arc<Inbox>,
    table: Mutex<TransactionTable>,
    /// Those of the resources. The lane's own, since who counts references to what others count, too, waits for their cache line.
    names: Box<[Arc<str>]>,
    /// The inbox, as the log knows it, and as resources do.
    waiter: Arc<dyn Waiter>,
    replies: Arc<dyn Replies>,
}

impl LaneInner {
    pub(crate) fn new(index: u16, inbox: Inbox, resources: &[Arc<dyn Resource>]) -> Self {
        let inbox = Arc::new(inbox);
        Self {
            index,
            table: Mutex::default(),
            names: resources.iter().map(|resource| Arc::from(resource.name())).collect(),
            waiter: Arc::clone(&inbox) as Arc<dyn Waiter>,
            replies: Arc::clone(&inbox) as Arc<dyn Replies>,
            inbox,
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, TransactionTable> {
        lock(&self.table)
    }

    /// Begins a transaction that was admitted.
    pub(crate) fn begin(&self, shared: &Shared, table: &mut TransactionTable, timeout: Duration) -> TxId {
        let tx = TxId { epoch: shared.epoch, number: number(self.index, table.count_next()) };
        table.insert(Transaction::begin(tx, shared.clock.now() + timeout, shared.options.timing));
        tx
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
        let name = Arc::clone(&self.names[usize::from(resource)]);
        let mut table = self.table();
        let machine = table.get_mut(tx).ok_or(LaneError::Unknown(tx))?;
        Ok(match number {
            Some(number) => machine.enlist_as(number, resource, it.abilities(), name)?,
            None => machine.enlist(resource, it.abilities(), name)?,
        })
    }

    pub(crate) fn commit(
        &self,
        shared: &Shared,
        table: &mut TransactionTable,
        time: Time,
        tx: TxId,
    ) -> Result<(), LaneError> {
        let Time { now, wall } = time;
        let done = self.change(shared, table, tx, |machine, effects| machine.commit(now, wall, effects));
        Ok(done.ok_or(LaneError::Unknown(tx))??)
    }

    pub(crate) fn rollback(
        &self,
        shared: &Shared,
        table: &mut TransactionTable,
        tx: TxId,
        reason: &str,
    ) -> Result<(), LaneError> {
        let Time { now, wall } = shared.time();
        let done =
            self.change(shared, table, tx, |machine, effects| machine.rollback(now, wall, reason, effects));
        Ok(done.ok_or(LaneError::Unknown(tx))??)
    }

    /// Handles what came, and what is due.
    pub(crate) fn turn(&self, shared: &Shared, time: Time) {
        let (mut table, mut handled) = (self.table(), 0_usize);
        let mut events = std::mem::take(&mut table.scratch.events);
        loop {
            self.inbox.take(&mut events);
            if events.is_empty() {
                break;
            }
            for event in events.drain(..) {
                self.on_event(shared, &mut table, time, event);
                handled += 1;
                if handled.is_multiple_of(TURN_EVENTS_MAX) {
                    // Who looks in may be an event loop: it has its turn, too.
                    drop(table);
                    std::thread::yield_now();
                    table = self.table();
                }
            }
        }
        table.scratch.events = events;
        self.on_time(shared, &mut table, time);
    }

    /// The resource at this place answers again: whoever waits to ask it asks now.
    pub(crate) fn on_back(&self, shared: &Shared, resource: u16) {
        let Time { now, wall } = shared.time();
        let waiting: Vec<TxId> = self.table().live().map(Transaction::id).collect();
        for some in waiting.chunks(TURN_EVENTS_MAX) {
            let mut table = self.table();
            for tx in some {
                self.change(shared, &mut table, *tx, |machine, effects| {
                    machine.on_back(now, wall, resource, effects);
                });
            }
            drop(table);
            std::thread::yield_now();
        }
        self.offer(shared);
        self.inbox.wake();
    }

    /// Tells the log, and resources that were promised help, that somebody waits, if nobody has.
    pub(crate) fn offer(&self, shared: &Shared) {
        offer(shared, &mut self.table());
    }

    /// Changes the machine of `tx`, and carries out what it wants; `None` if there is none.
    pub(crate) fn change<T>(
        &self,
        shared: &Shared,
        table: &mut TransactionTable,
        tx: TxId,
        how: impl FnOnce(&mut Transaction, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let mut effects = std::mem::take(&mut table.scratch.effects);
        let done = table.change(tx, |machine| how(machine, &mut effects));
        self.carry_out(shared, table, tx, &mut effects);
        table.scratch.effects = effects;
        match table.settle(tx) {
            Moved::Stays => {}
            Moved::IsKept => shared.is_kept(tx),
            Moved::IsLive => shared.is_live(tx),
        }
        done
    }

    fn on_event(&self, shared: &Shared, table: &mut TransactionTable, time: Time, event: Event) {
        let Time { now, wall } = time;
        match event {
            Event::Answered(Call { branch: Some(branch), ask, attempt, .. }, answer) => {
                answered(ask).into_iter().for_each(steps::reached);
                self.change(shared, table, branch.tx, |machine, effects| {
                    machine.on_answer(now, wall, branch.branch, ask, attempt, answer, effects);
                });
            }
            // Of a recovery: the recovery manager takes those before it turns.
            Event::Answered(..) => {}
            Event::Logged(tx, result) => {
                steps::reached(Step::Decided);
                table.on_logged();
                shared.end_write();
                self.change(shared, table, tx, |machine, effects| {
                    machine.on_logged(now, wall, result, effects);
                });
            }
            // One whose deadline came first is told so, as any other.
            Event::Commit(tx) => drop(self.commit(shared, table, time, tx)),
        }
    }

    /// Tells machines the time that waited for one.
    fn on_time(&self, shared: &Shared, table: &mut TransactionTable, time: Time) {
        let Time { now, wall } = time;
        if table.due().is_none_or(|due| now < due) {
            return;
        }
        for tx in table.take_due(now) {
            self.change(shared, table, tx, |machine, effects| machine.on_time(now, wall, effects));
        }
        table.forget_past(now);
    }

    /// Carries out what the machine of `tx` wants, and what follows from that; leaves nothing in `effects`.
    fn carry_out(&self, shared: &Shared, table: &mut TransactionTable, tx: TxId, effects: &mut Vec<Effect>) {
        let mut at = 0;
        // What is appended meanwhile is carried out behind what was there.
        while let Some(effect) = effects.get_mut(at) {
            at += 1;
            match effect {
                Effect::Ask { branch, resource, ask, attempt } => {
                    let branch = Some(BranchId { tx, branch: *branch });
                    let call = Call { resource: *resource, branch, ask: *ask, attempt: *attempt };
                    self.ask(shared, table, call);
                }
                Effect::Write(decision) => {
                    if let Err(refused) = self.write(shared, table, decision) {
                        let Time { now, wall } = shared.time();
                        table.change(tx, |machine| machine.on_refused(now, wall, refused, effects));
                    }
                }
                Effect::Remove => {
                    steps::reached(Step::Remove);
                    shared.log.remove(tx);
                }
                Effect::Finish(outcome) => {
                    steps::reached(Step::Told);
                    table.on_finish(tx, std::mem::replace(outcome, Outcome::Committed));
                }
                Effect::End => shared.ended(tx, table.on_end(tx)),
            }
        }
        effects.clear();
    }

    /// Asks a resource. One that is asked for a lone commit waits for who drives it to help, or to offer.
    fn ask(&self, shared: &Shared, table: &mut TransactionTable, call: Call) {
        let resource = &shared.resources[usize::from(call.resource)];
        let branch = call.branch.expect("a question about a branch");
        let mut reply = Reply::new(call, Arc::clone(&self.replies));
        if table.under_way() == 1 {
            reply = reply.helped();
            table.on_helped(call.resource);
        }
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

    fn write(
        &self,
        shared: &Shared,
        table: &mut TransactionTable,
        decision: &Decision,
    ) -> Result<(), Refused> {
        steps::reached(Step::Decide);
        let mut record = std::mem::take(&mut table.scratch.record);
        record.clear();
        decision.encode(&mut record);
        // Before it is written: it may be heard of before that returns.
        shared.writing.fetch_add(1, Ordering::Relaxed);
        let written = shared.log.write(decision.tx, &record, &self.waiter);
        table.scratch.record = record;
        match &written {
            Ok(cycle) => table.on_written(*cycle),
            Err(_) => shared.end_write(),
        }
        if matches!(written, Err(Refused::Busy(_))) {
            table.on_no_room();
        }
        if table.not_offered() >= OFFER_AT {
            offer(shared, table);
        }
        written.map(drop)
    }
}

impl std::fmt::Debug for LaneInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaneInner").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Tells the log, and resources that were promised help, that somebody waits, if nobody has.
pub(super) fn offer(shared: &Shared, table: &mut TransactionTable) {
    for place in table.take_helped() {
        shared.resources[usize::from(place)].offer();
    }
    if table.take_offer() {
        shared.log.offer();
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
