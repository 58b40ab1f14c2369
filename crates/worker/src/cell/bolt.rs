//! A bolt's task with its bolt.
//!
//! While there is no bolt the task takes no input: its queues fill, and so stop those who send to it. It reports what has failed all the same.

use std::sync::Arc;

use clock::Nanos;
use topology::anchor::Nack;
use topology::bolt::{BoltTask, Input, TupleId};
use topology::builder::Factory;
use topology::channel::Accepted;
use topology::component::{Bolt, BoltOut, Fault, Outcome, Tuple};
use topology::ids::{StreamId, TaskId};
use topology::message::{Envelope, Message};
use topology::parcel::Epoch;
use topology::values::Values;

use super::Common;
use super::exact::Exact;
use super::pace::Pace;
use super::slot::{Panicked, Slot};
use super::state::{Sink, State};
use crate::stats::{add, write};
use crate::times::Activity;

/// A task of a bolt with its bolt.
pub(crate) struct BoltCell {
    pub(crate) common: Common,
    pub(crate) task: BoltTask,
    slot: Slot<dyn Bolt>,
    factory: Factory,
    pace: Pace,
    /// With exactly-once.
    exact: Option<(Exact, State)>,
    /// A tuple that the bolt has kept, its stream, and since when it has it: how long that takes is measured of one at a time.
    kept: Option<(TupleId, StreamId, Nanos)>,
}

impl BoltCell {
    pub(crate) fn new(common: Common, task: BoltTask, factory: Factory, exact: Option<Exact>) -> Self {
        let (slot, pace) = (Slot::new(), Pace::default());
        let exact = exact.map(|exact| {
            let state =
                State::new(&exact.target, common.id(), common.waker.clone(), Arc::clone(&common.clock));
            (exact, state)
        });
        Self { common, task, slot, factory, pace, exact, kept: None }
    }

    pub(crate) fn turn(&mut self, now: Nanos, outbox: &mut Vec<Envelope>) -> bool {
        self.fill(now);
        if self.slot.is_taken() && self.common.take_wake() {
            self.read_state();
            self.call(now, |bolt, out| bolt.wake(out));
        }
        self.pace.begin_turn(now);
        let mut is_long = false;
        while !is_long
            && self.slot.is_ready()
            && let Some(input) = self.next_input(now)
        {
            is_long = self.take(now, input);
            if !self.task.is_within_parcel() || self.pace.is_slow() {
                self.task.send(outbox);
            }
        }
        self.task.send(outbox);
        if let Some((exact, state)) = &mut self.exact {
            if state.is_at_rest()
                && let Some(capture) = self.task.poll_barrier()
            {
                self.task.send(outbox);
                exact.on_barrier(capture);
            }
            exact.tell_work(self.task.is_dirty());
        }
        is_long
    }

    /// Takes a message of another task. Within a process nothing is lost, and between two runs of processes what is lost fails by its time-out; an epoch
    /// is not to have a part of what was sent.
    pub(super) fn on_message(&mut self, now: Nanos, from: TaskId, message: Message) {
        let is_input = matches!(message, Message::Forward(_));
        let accepted = self.task.on_message(from, message);
        if is_input {
            self.task.watch(now, from);
        }
        if let (Accepted::AfterGap, Some((exact, _))) = (accepted, &self.exact) {
            exact.on_gap(from);
        }
    }

    /// The store has `epoch`.
    pub(super) fn on_durable(&mut self, epoch: Epoch) {
        self.task.on_durable(epoch);
    }

    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.slot.next_due().or_else(|| self.task.next_due())
    }

    /// What the task is at between two turns.
    pub(super) fn activity(&self) -> Activity {
        let takes_none =
            || !self.slot.is_ready() || self.exact.as_ref().is_some_and(|(_, it)| !it.has_room());
        if self.task.is_held_up() {
            Activity::BackPressured
        } else if (self.task.has_input() && takes_none())
            || self.slot.ask(|bolt| bolt.condition().is_busy) == Some(true)
        {
            Activity::Busy
        } else {
            Activity::Idle
        }
    }

    /// Records how long what was watched has taken, at the end of a turn.
    pub(super) fn measure(&mut self, now: Nanos) {
        let latencies = self.common.latencies();
        if let Some((stream, waited)) = self.task.poll_waited() {
            latencies.queue.record_of(stream, waited);
        }
        let is_done = |(tuple, ..): &mut (TupleId, StreamId, Nanos)| !self.task.is_unfinished(*tuple);
        if let Some((_, stream, since)) = self.kept.take_if(is_done) {
            latencies.process.record_of(stream, now.since(since));
        }
    }

    pub(crate) fn publish(&self, now: Nanos) {
        let counters = self.common.counters();
        if self.slot.ask(|bolt| counters.set_condition(now, &bolt.condition())).is_none() {
            counters.set_absent(now);
        }
        counters.set_inputs(self.task.inputs());
        write(&counters.pending, self.task.unfinished() as u64);
        counters.set_queued(
            self.task.queued_bytes().map(|(from, bytes)| (self.common.plan.component_of(from), bytes)),
        );
        counters.set_emitted(self.task.emitted());
    }

    pub(crate) fn close(&mut self) {
        if let Some(Err(Panicked(error))) = self.slot.call(Nanos(0), |bolt| bolt.close()) {
            self.common.on_fault(&error);
        }
        self.slot.clear();
    }

    fn fill(&mut self, now: Nanos) {
        let Self { slot, common, factory, .. } = self;
        let open = || {
            let Factory::Bolt(make) = factory else { unreachable!("the program was checked") };
            let mut bolt = make();
            bolt.prepare(&common.context())?;
            Ok(bolt)
        };
        if let Err(error) = slot.fill(now, open) {
            common.on_loss(&error);
        }
    }

    /// What waited for state comes before what is new.
    fn next_input(&mut self, now: Nanos) -> Option<Input> {
        if let Some((_, state)) = &mut self.exact {
            if let Some(input) = state.next_again() {
                return Some(input);
            }
            if !state.has_room() {
                return None;
            }
        }
        let input = self.task.next_input(now)?;
        if let Some((_, state)) = &mut self.exact {
            state.begin();
        }
        Some(input)
    }

    fn read_state(&mut self) {
        if let Some((_, state)) = &mut self.exact
            && let Err(error) = state.pump(&mut self.task)
        {
            self.common.on_fault(&error);
        }
    }

    /// Whether the turn has taken long enough.
    fn take(&mut self, now: Nanos, input: Input) -> bool {
        match &input {
            Input::Tick => {
                if self.call(now, |bolt, out| bolt.tick(out)) {
                    self.park(input);
                }
                false
            }
            Input::Tuple { id, from, stream, values } => {
                let (is_long, is_pending) = self.execute(now, *id, *from, *stream, values);
                if is_pending {
                    self.park(input);
                }
                is_long
            }
        }
    }

    /// Lets `input` wait for state that is being read.
    fn park(&mut self, input: Input) {
        let id = if let Input::Tuple { id, .. } = input { Some(id) } else { None };
        let is_parked = self.exact.as_mut().is_some_and(|(_, state)| state.park(input));
        if let Some(id) = id.filter(|_| !is_parked) {
            self.task.fail(id, "its state cannot be read", Nack::FAIL).unwrap_or(());
        }
    }

    /// Calls the bolt without a tuple; whether the call waits for state.
    fn call(
        &mut self,
        now: Nanos,
        call: impl FnOnce(&mut dyn Bolt, &mut BoltOut<'_>) -> Result<(), Fault>,
    ) -> bool {
        let Self { common, task, slot, exact, .. } = self;
        let mut sink = Sink { task, state: exact.as_mut().map(|(_, state)| state) };
        let mut out = BoltOut::new(&common.plan, common.component, &mut sink, None);
        match slot.call(now, |bolt| call(bolt, &mut out)) {
            None | Some(Ok(Ok(()))) => {}
            Some(Ok(Err(fault))) if fault.is_pending() => return true,
            Some(Ok(Err(fault))) => common.on_fault(fault.error()),
            Some(Err(panicked)) => self.on_panic(&panicked, None),
        }
        false
    }

    /// Has the bolt execute a tuple; whether the turn has taken long enough, and whether the tuple waits for state.
    fn execute(
        &mut self,
        now: Nanos,
        id: TupleId,
        from: TaskId,
        stream: StreamId,
        values: &Values,
    ) -> (bool, bool) {
        let Self { common, task, slot, pace, exact, .. } = self;
        let tuple = Tuple::new(&common.plan, id, from, stream, values);
        let mut sink = Sink { task, state: exact.as_mut().map(|(_, state)| state) };
        let mut out = BoltOut::new(&common.plan, common.component, &mut sink, Some(id));
        let call = pace.begin_call(&*common.clock);
        let result = slot.call(now, |bolt| bolt.execute(&tuple, &mut out));
        let (time, is_long) = pace.end_call(&*common.clock, &call);
        if matches!(&result, Some(Ok(Err(fault))) if fault.is_pending()) {
            return (is_long, true);
        }
        let latencies = self.common.latencies();
        time.into_iter().for_each(|time| latencies.execute.record_of(stream, time));
        match result {
            None => {}
            Some(Ok(Ok(Outcome::Keep))) => {
                self.kept = self.kept.or(call.began().map(|began| (id, stream, began)));
            }
            // An error of the task says that the bolt has finished the tuple itself.
            Some(Ok(Ok(Outcome::Ack))) => {
                time.into_iter().for_each(|time| latencies.process.record_of(stream, time));
                self.task.ack(id).unwrap_or(());
            }
            Some(Ok(Err(fault))) => {
                self.common.on_fault(fault.error());
                self.task.fail(id, fault.error(), fault.nack()).unwrap_or(());
            }
            Some(Err(panicked)) => self.on_panic(&panicked, Some(id)),
        }
        (is_long, false)
    }

    /// The bolt is gone: so is what it knew of its tuples. The one that it executed is blamed; if there is none, nobody knows which it was.
    fn on_panic(&mut self, Panicked(error): &Panicked, executed: Option<TupleId>) {
        self.common.on_loss(error);
        add(&self.common.counters().restarts, 1);
        let is_blamed = executed.is_some_and(|id| self.task.fail(id, error, Nack::FAIL).is_ok());
        self.task.fail_all(error, if is_blamed { Nack::SILENT } else { Nack::FAIL });
        if let Some((_, state)) = &mut self.exact {
            state.forget_inputs();
        }
    }
}

impl std::fmt::Debug for BoltCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoltCell").field("task", &self.common.task).finish_non_exhaustive()
    }
}
