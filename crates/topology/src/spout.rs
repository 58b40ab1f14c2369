//! One task of a spout: what may be emitted, batches out, reports in.
//!
//! ```text
//!   room -> the source is asked for so many -> emit -> send -> envelopes
//!                 settle the positions <- poll_settled <- on_message (reports), on_time (time-outs, next attempts)
//! ```
//!
//! Invariants
//!   1. Nothing new is emitted while a channel downstream waits for credit, `max_spout_pending` is reached, or the spout is not active.
//!   2. At-most-once: a position is settled before its tuple can leave: the caller makes what `poll_settled` says durable before it
//!      carries what `send` gave it.
//!   3. At-least-once: a position is settled when all that came of its tuple is done, or with its dead letter.
//!   4. Exactly-once: a position is part of the epoch that has all that came of its tuple.
//!
//! **Bounds.** Those of [`crate::tracker`]; with exactly-once tuples that are not durable, up to `max_spout_pending` and `spout_bytes_max`.
//!
//! Performs no I/O; time is an argument.
//! Out of scope: the source.

#[cfg(test)]
mod tests;
mod unsealed;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use clock::Nanos;

use crate::anchor::{Ancestor, Anchor, Failure, RootId};
use crate::changes::Capture;
use crate::channel::Accepted;
use crate::definition::Guarantee;
use crate::emitter::{Draft, Emitted, Emitter, Sources, Wiring};
use crate::ids::{ComponentId, StreamId, TaskId};
use crate::message::{Envelope, Message, Misuse};
use crate::parcel::{Epoch, Item, Load};
use crate::tap::Tap;
use crate::tracker::{Completed, DeadLetter, Limits, Original, Position, Settled, Tracker};
use crate::values::Values;
use unsealed::Unsealed;

/// A task of a spout.
#[derive(Debug)]
pub struct SpoutTask {
    task: TaskId,
    start: u32,
    emitter: Emitter,
    component: ComponentId,
    batch_tuples_max: u32,
    is_active: bool,
    keeps: Keeps,
}

/// A tuple that the source has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emission {
    /// Where it is in the source; with exactly-once positions grow.
    pub position: Position,
    /// The stream to emit it on.
    pub stream: StreamId,
    /// Its values.
    pub values: Values,
    /// The task that gets it, for direct streams.
    pub direct: Option<TaskId>,
    /// Why it cannot be sent: it is given up at once.
    pub refused: Option<String>,
}

/// Tuples that were tried too often in earlier generations, with what went wrong last: they are skipped.
pub type Poison = BTreeMap<Position, DeadLetter>;

/// What is kept of emitted tuples, which the guarantee says.
#[derive(Debug)]
enum Keeps {
    Nothing(VecDeque<Settled>),
    Unacked(Tracker),
    Unsealed(Unsealed),
}

impl SpoutTask {
    /// A task that has started, and is active. `poison` is what exactly-once is to skip.
    ///
    /// # Errors
    /// The custom grouping that `wiring` does not know.
    pub fn new(task: TaskId, wiring: &Wiring<'_>, poison: Poison) -> Result<Self, String> {
        let settings = wiring.plan.settings();
        let limits = Limits::new(settings);
        let keeps = match settings.guarantee {
            Guarantee::AtMostOnce => Keeps::Nothing(VecDeque::new()),
            Guarantee::AtLeastOnce => Keeps::Unacked(Tracker::new(task, wiring.start, limits)),
            Guarantee::ExactlyOnce => Keeps::Unsealed(Unsealed::new(limits, poison)),
        };
        Ok(Self {
            task,
            start: wiring.start,
            emitter: Emitter::new(task, wiring)?,
            component: wiring.plan.component_of(task),
            batch_tuples_max: settings.batch_tuples_max,
            is_active: true,
            keeps,
        })
    }

    /// With exactly-once: has at most `most` tuples under way, if the definition allows more.
    pub fn limit_pending(&mut self, most: u32) {
        if let Keeps::Unsealed(unsealed) = &mut self.keeps {
            unsealed.limit_pending(most);
        }
    }

    /// How many tuples the source may be asked for now.
    #[must_use]
    pub fn room(&self) -> u32 {
        let room = match &self.keeps {
            Keeps::Nothing(_) => self.batch_tuples_max,
            Keeps::Unacked(tracker) => tracker.room(),
            Keeps::Unsealed(unsealed) => unsealed.room(),
        };
        let may = self.is_active && self.emitter.is_clear() && !self.emitter.has_drafts();
        if may { room.min(self.batch_tuples_max) } else { 0 }
    }

    /// Whether the definition allows such a tuple.
    ///
    /// # Errors
    /// It does not.
    pub fn verify(&self, stream: StreamId, values: &Values) -> Result<(), Misuse> {
        self.emitter.verify(stream, values)
    }

    /// Emits a batch of new tuples, at most [`SpoutTask::room`].
    ///
    /// # Errors
    /// The definition does not allow one of them; nothing was emitted.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn emit(&mut self, now: Nanos, emissions: Vec<Emission>) -> Result<(), Misuse> {
        assert!(emissions.len() <= self.room() as usize, "the source was asked for {}", self.room());
        for Emission { stream, values, .. } in emissions.iter().filter(|it| it.refused.is_none()) {
            self.emitter.verify(*stream, values)?;
        }
        let mut originals = Vec::with_capacity(emissions.len());
        for Emission { position, stream, values, direct, refused } in emissions {
            let mut original = Original { position, stream, direct, values, attempts: 1 };
            let Some(error) = refused else {
                originals.push(original);
                continue;
            };
            original.attempts = 0;
            let letter = DeadLetter { original, component: Some(self.component), error };
            match &mut self.keeps {
                Keeps::Nothing(settled) => settled.push_back(Settled::Dead(letter)),
                Keeps::Unacked(tracker) => tracker.give_up(letter),
                Keeps::Unsealed(unsealed) => originals.push(unsealed.give_up(letter)),
            }
        }
        if !originals.is_empty() {
            self.emit_batch(now, originals, true);
        }
        Ok(())
    }

    /// Takes a message of another task.
    pub fn on_message(&mut self, now: Nanos, from: TaskId, message: Message) -> Accepted {
        match message {
            Message::Forward(_) => return Accepted::Stale,
            Message::Credit(credit) => self.emitter.on_credit(from, credit),
            Message::Reports(reports) => match &mut self.keeps {
                Keeps::Nothing(_) => {}
                Keeps::Unacked(tracker) => reports.iter().for_each(|report| tracker.on_report(now, report)),
                Keeps::Unsealed(unsealed) => {
                    let own = reports.into_iter().filter(|report| report.root.life == self.start);
                    own.for_each(|report| unsealed.on_report(report));
                }
            },
        }
        Accepted::InOrder
    }

    /// Links to these tasks are new.
    pub fn on_connected(&mut self, is_there: &dyn Fn(TaskId) -> bool, outbox: &mut Vec<Envelope>) {
        self.emitter.on_connected(is_there, outbox);
    }

    /// Time has passed: batches time out, and tuples whose pause is over are emitted again, while there is credit.
    pub fn on_time(&mut self, now: Nanos) {
        let Keeps::Unacked(tracker) = &mut self.keeps else { return };
        tracker.on_time(now);
        while self.emitter.is_clear()
            && let Keeps::Unacked(tracker) = &mut self.keeps
            && let Some(original) = tracker.take_due(now)
        {
            self.emit_batch(now, vec![original], false);
        }
    }

    /// What was settled since the last call, in order.
    pub fn poll_settled(&mut self) -> Option<Settled> {
        match &mut self.keeps {
            Keeps::Nothing(settled) => settled.pop_front(),
            Keeps::Unacked(tracker) => tracker.poll_settled(),
            Keeps::Unsealed(_) => None,
        }
    }

    /// A batch that was completed since the last call: with at-least-once acknowledged, with exactly-once durable.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        match &mut self.keeps {
            Keeps::Nothing(_) => None,
            Keeps::Unacked(tracker) => tracker.poll_completed(),
            Keeps::Unsealed(unsealed) => unsealed.poll_completed(),
        }
    }

    /// With exactly-once, a tuple that failed since the last call: the generation must begin anew.
    pub fn poll_failed(&mut self) -> Option<(Original, Failure)> {
        let Keeps::Unsealed(unsealed) = &mut self.keeps else { return None };
        unsealed.poll_failed()
    }

    /// With exactly-once, a tuple that this task has emitted and that is not durable.
    #[must_use]
    pub fn recall(&self, ancestor: &Ancestor) -> Option<Original> {
        let Keeps::Unsealed(unsealed) = &self.keeps else { return None };
        let is_own = (ancestor.root.spout, ancestor.root.life) == (self.task, self.start);
        if is_own { unsealed.recall(ancestor) } else { None }
    }

    /// Sends what was emitted.
    pub fn send(&mut self, outbox: &mut Vec<Envelope>) {
        self.emitter.poll(outbox);
    }

    /// An epoch ends here: what was emitted since the last one belongs to it. The barrier goes downstream.
    ///
    /// # Panics
    /// If the guarantee is another one than exactly-once, or the epoch before is not durable.
    pub fn pass_barrier(&mut self, now: Nanos, epoch: Epoch) -> Capture {
        let Keeps::Unsealed(unsealed) = &mut self.keeps else { panic!("epochs are for exactly-once") };
        let (position, dead) = unsealed.seal(now, epoch);
        self.emitter.push_to_all(&Load::Barrier(epoch));
        let (task, generation) = (self.task, self.start);
        Capture { task, generation, epoch, changes: Default::default(), position, dead }
    }

    /// The store has all of `epoch`.
    pub fn on_durable(&mut self, now: Nanos, epoch: Epoch) {
        if let Keeps::Unsealed(unsealed) = &mut self.keeps {
            unsealed.on_durable(now, epoch);
        }
    }

    /// With exactly-once: whether a tuple was emitted or skipped since the last barrier.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        matches!(&self.keeps, Keeps::Unsealed(unsealed) if unsealed.is_dirty())
    }

    /// Lets the spout emit new tuples, or not. What is out is finished, with further attempts, either way.
    pub fn set_active(&mut self, is_active: bool) {
        self.is_active = is_active;
    }

    /// `to` is about to move: what is on the way to it is sent, then nothing until [`SpoutTask::resume`].
    pub fn hold(&mut self, to: TaskId) {
        self.emitter.hold(to);
    }

    /// `to` has moved.
    pub fn resume(&mut self, to: TaskId) {
        self.emitter.resume(to);
    }

    /// Whether nothing is out and nothing waits: of an inactive spout, that it has finished.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending() == 0 && self.emitter.is_clear()
    }

    /// Whether all that the task has sent was taken: see [`crate::bolt::BoltTask::is_settled`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.emitter.is_settled()
    }

    /// Tuples that are out or wait; with exactly-once, those that are not durable.
    #[must_use]
    pub fn pending(&self) -> u32 {
        match &self.keeps {
            Keeps::Nothing(_) => 0,
            Keeps::Unacked(tracker) => tracker.pending(),
            Keeps::Unsealed(unsealed) => unsealed.pending(),
        }
    }

    /// When [`SpoutTask::on_time`] has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        let Keeps::Unacked(tracker) = &self.keeps else { return None };
        tracker.next_due()
    }

    /// Shows what it emits to those who look at the component.
    pub fn set_tap(&mut self, tap: Arc<Tap>) {
        self.emitter.set_tap(tap);
    }

    /// What was emitted since the start, by streams: further attempts included.
    pub fn emitted(&self) -> impl Iterator<Item = Emitted> {
        self.emitter.emitted()
    }

    /// Looks whether the parts agree. For tests.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub fn check(&self) {
        self.emitter.check();
        match &self.keeps {
            Keeps::Nothing(_) => {}
            Keeps::Unacked(tracker) => tracker.check(),
            Keeps::Unsealed(unsealed) => unsealed.check(),
        }
    }

    fn emit_batch(&mut self, now: Nanos, originals: Vec<Original>, is_new: bool) {
        match &mut self.keeps {
            Keeps::Nothing(settled) => {
                settled.extend(originals.iter().map(|original| Settled::Acked(original.position)));
                self.draft(&originals, &Sources::Nothing);
                self.push_drafts(None);
            }
            Keeps::Unacked(tracker) => {
                let root = tracker.next_root();
                self.draft(&originals, &Sources::One(root.number));
                let xor = self.push_drafts(Some(root));
                let Keeps::Unacked(tracker) = &mut self.keeps else { unreachable!("it was a moment ago") };
                tracker.open(now, originals, xor, is_new);
            }
            Keeps::Unsealed(unsealed) => {
                let (number, originals) = unsealed.open(now, originals);
                self.draft(&originals, &Sources::One(number));
                self.push_drafts(Some(RootId { spout: self.task, life: self.start, number }));
            }
        }
    }

    fn draft(&mut self, originals: &[Original], sources: &Sources) {
        for (origin, original) in (0..).zip(originals) {
            let item = Item { origin, stream: original.stream, values: original.values.clone() };
            self.emitter.emit(sources, item, original.direct);
        }
    }

    /// Makes parcels of the drafts; the XOR of their tokens.
    fn push_drafts(&mut self, root: Option<RootId>) -> u64 {
        let mut xor = 0;
        let mut drafts = self.emitter.take_drafts();
        for Draft { to, items, .. } in drafts.drain(..) {
            let anchor = root.map(|root| Anchor { root, token: self.emitter.token(), origin: 0 });
            xor ^= anchor.map_or(0, |anchor| anchor.token);
            self.emitter.push_parcel(to, anchor.into_iter().collect(), items);
        }
        self.emitter.reuse(drafts);
        xor
    }
}
