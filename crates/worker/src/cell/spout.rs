//! A spout's task with its spout.
//!
//! A spout is asked while there is room and it has more; what it emits beyond the room waits here, and it is not asked meanwhile. So what
//! waits is at most what one call has emitted beyond a batch.

use std::collections::VecDeque;

use clock::Nanos;
use topology::builder::Factory;
use topology::component::{Fault, Next, Spout, SpoutOut};
use topology::message::Envelope;
use topology::parcel::Epoch;
use topology::spout::{Emission, SpoutTask};
use topology::tracker::Settled;

use super::Common;
use super::exact::Exact;
use super::pace::Pace;
use super::slot::{Losses, Panicked, Slot};
use crate::stats::{add, write};
use crate::times::Activity;

/// A task of a spout with its spout.
pub(crate) struct SpoutCell {
    pub(crate) common: Common,
    pub(crate) task: SpoutTask,
    slot: Slot<dyn Spout>,
    factory: Factory,
    pace: Pace,
    /// What the spout has emitted and the task has not.
    emissions: VecDeque<Emission>,
    next: NextAsk,
    is_active: bool,
    /// Calls in a row that have failed.
    failures: Losses,
    /// With exactly-once.
    exact: Option<Exact>,
    acked: u64,
    dead: u64,
}

/// When the spout wants to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextAsk {
    Now,
    At(Nanos),
    Woken,
}

impl SpoutCell {
    pub(crate) fn new(common: Common, task: SpoutTask, factory: Factory, exact: Option<Exact>) -> Self {
        Self {
            common,
            task,
            slot: Slot::new(),
            factory,
            pace: Pace::default(),
            emissions: VecDeque::new(),
            next: NextAsk::Now,
            is_active: true,
            failures: Losses::default(),
            exact,
            acked: 0,
            dead: 0,
        }
    }

    pub(crate) fn turn(&mut self, now: Nanos, outbox: &mut Vec<Envelope>) -> bool {
        self.fill(now);
        self.take_requests(now);
        self.task.on_time(now);
        self.settle(now);
        self.pace.begin_turn(now);
        let mut is_long = false;
        while !is_long && self.task.room() > 0 {
            is_long = self.ask(now);
            let count = self.emissions.len().min(self.task.room() as usize);
            if count == 0 {
                break;
            }
            let batch = self.emissions.drain(..count).collect();
            self.task.emit(now, batch).expect("each tuple was verified when the spout emitted it");
            self.settle(now); // at-most-once: before its tuples leave
            self.task.send(outbox);
        }
        self.task.send(outbox);
        if let Some(exact) = &mut self.exact {
            while let Some(failed) = self.task.poll_failed() {
                exact.on_failed(failed);
            }
            exact.tell_work(self.task.is_dirty());
        }
        is_long
    }

    /// An epoch ends here.
    pub(super) fn pass_barrier(&mut self, now: Nanos, epoch: Epoch) {
        if self.exact.is_none() {
            return;
        }
        let mut capture = self.task.pass_barrier(now, epoch);
        let kept =
            capture.position.and_then(|position| self.slot.call(now, |spout| spout.kept_with(position)));
        match kept {
            None | Some(Ok(None)) => {}
            Some(Ok(Some((key, value)))) => _ = capture.changes.values.insert(key, Some(value)),
            Some(Err(panicked)) => self.on_panic(&panicked),
        }
        if let Some(exact) = &mut self.exact {
            exact.on_barrier(capture);
        }
    }

    /// The store has `epoch`.
    pub(super) fn on_durable(&mut self, now: Nanos, epoch: Epoch) {
        self.task.on_durable(now, epoch);
    }

    pub(crate) fn next_due(&self) -> Option<Nanos> {
        let wish = match self.next {
            NextAsk::At(time) if self.is_active => Some(time),
            _ => None,
        };
        [wish, self.slot.next_due(), self.task.next_due()].into_iter().flatten().min()
    }

    /// Whether nothing waits that the spout has emitted.
    pub(crate) fn has_emitted_all(&self) -> bool {
        self.emissions.is_empty()
    }

    pub(crate) fn set_active(&mut self, is_active: bool) {
        if is_active == self.is_active {
            return;
        }
        self.is_active = is_active;
        self.task.set_active(is_active);
        let call = |spout: &mut dyn Spout| if is_active { spout.activate() } else { spout.deactivate() };
        self.tell(call);
    }

    /// What the task is at between two turns.
    pub(super) fn activity(&self) -> Activity {
        let has_room = self.task.room() > 0 && self.emissions.is_empty();
        if self.is_active && self.slot.is_taken() && !has_room {
            return Activity::BackPressured;
        }
        if self.slot.ask(|spout| spout.condition().is_busy) == Some(true) {
            return Activity::Busy;
        }
        Activity::Idle
    }

    pub(crate) fn publish(&mut self, now: Nanos) {
        match self.slot.call(now, |spout| spout.backlog()) {
            None => {}
            Some(Ok(backlog)) => self.common.counters().set_backlog(backlog),
            Some(Err(panicked)) => self.on_panic(&panicked),
        }
        let counters = self.common.counters();
        if self.slot.ask(|spout| counters.set_condition(now, &spout.condition())).is_none() {
            counters.set_absent(now);
        }
        write(&counters.acked, self.acked);
        write(&counters.failed, self.dead);
        write(&counters.pending, u64::from(self.task.pending()) + self.emissions.len() as u64);
        counters.set_emitted(self.task.emitted());
    }

    pub(crate) fn close(&mut self) {
        self.tell(|spout| spout.close());
        self.slot.clear();
    }

    fn fill(&mut self, now: Nanos) {
        let Self { slot, common, factory, exact, .. } = self;
        let open = || {
            let Factory::Spout(make) = factory else { unreachable!("the program was checked") };
            let mut spout = make();
            spout.open(&common.context())?;
            if let Some(exact) = exact {
                spout.seek_past(&exact.past())?;
            }
            Ok(spout)
        };
        if let Err(error) = slot.fill(now, open) {
            common.on_loss(&error);
        }
    }

    /// A wish that has come true is one to be asked now.
    fn take_requests(&mut self, now: Nanos) {
        let is_due = matches!(self.next, NextAsk::At(time) if time <= now);
        if self.common.take_wake() || is_due {
            self.next = NextAsk::Now;
        }
    }

    /// Asks the spout until there is a batch or it has no more now; whether the turn has taken long enough.
    fn ask(&mut self, now: Nanos) -> bool {
        let room = self.task.room() as usize;
        let mut is_long = false;
        while !is_long && self.next == NextAsk::Now && self.emissions.len() < room && self.slot.is_taken() {
            let Self { common, task, slot, pace, emissions, exact, .. } = self;
            let seen = emissions.len();
            let mut out = SpoutOut::new(&common.plan, common.component, task, emissions);
            let call = pace.begin_call(&*common.clock);
            let mut result = slot.call(now, |spout| spout.next_tuple(&mut out));
            // What was emitted is emitted, also by a call that failed or panicked.
            if let Some(exact) = exact
                && let Err(fault) = exact.note(emissions, seen)
                && let Some(Ok(answer)) = &mut result
            {
                *answer = Err(fault);
            }
            let (time, is_over) = pace.end_call(&*common.clock, &call);
            time.into_iter().for_each(|time| common.latencies().execute.record(time, 1));
            is_long = is_over;
            self.on_answer(now, result);
        }
        is_long
    }

    fn on_answer(&mut self, now: Nanos, result: Option<Result<Result<Next, Fault>, Panicked>>) {
        match result {
            None => {}
            Some(Ok(Ok(next))) => {
                self.next = match next {
                    Next::Now => NextAsk::Now,
                    Next::After(time) => NextAsk::At(now + time),
                    Next::Woken => NextAsk::Woken,
                };
            }
            Some(Ok(Err(fault))) => {
                self.common.on_fault(fault.error());
                self.next = NextAsk::At(now + self.failures.pause(now));
            }
            Some(Err(panicked)) => self.on_panic(&panicked),
        }
    }

    /// Tells the spout what became of its tuples.
    fn settle(&mut self, now: Nanos) {
        while let Some(completed) = self.task.poll_completed() {
            self.common.latencies().on_complete(completed.latency, completed.acked.into());
            if self.exact.is_some() {
                self.acked += u64::from(completed.acked);
            }
        }
        while let Some(settled) = self.task.poll_settled() {
            let Self { slot, common, .. } = self;
            let result = match settled {
                Settled::Acked(position) => {
                    self.acked += 1;
                    slot.call(now, |spout| spout.ack(position))
                }
                Settled::Dead(letter) => {
                    self.dead += 1;
                    let component = letter.component.map_or("nobody", |id| &common.plan.component(id).id);
                    tracing::warn!(
                        spout = common.id(),
                        component,
                        error = letter.error,
                        "a tuple is given up"
                    );
                    slot.call(now, |spout| spout.fail(&letter))
                }
            };
            if let Some(Err(panicked)) = result {
                self.on_panic(&panicked);
            }
        }
    }

    fn tell(&mut self, call: impl FnOnce(&mut dyn Spout)) {
        let now = self.common.clock.now();
        if let Some(Err(panicked)) = self.slot.call(now, |spout| call(spout)) {
            self.on_panic(&panicked);
        }
    }

    fn on_panic(&mut self, Panicked(error): &Panicked) {
        self.common.on_loss(error);
        add(&self.common.counters().restarts, 1);
        self.next = NextAsk::Now;
    }
}

impl std::fmt::Debug for SpoutCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpoutCell").field("task", &self.common.task).finish_non_exhaustive()
    }
}
