//! One task of a bolt: queues in, what the component has not finished, parcels out.
//!
//! ```text
//!   on_message -> inlets -> next_input -> component -> emit, ack, fail -> send -> envelopes
//!                                             (parcels are open until all their tuples are acknowledged or failed)
//! ```
//!
//! A caller feeds messages, and while [`BoltTask::next_input`] has something, gives it to the component; when the component has done what it can do
//! now, or a parcel is at its end, it calls [`BoltTask::send`].
//!
//! Invariants
//!   1. No input is taken while a channel downstream waits for credit: a slow bolt fills its queues, and so stops those who send to it.
//!   2. Each parcel is reported once, when all its tuples are done: see [`crate::anchor`] for what is reported.
//!   3. Channels take turns: one that is full does not keep others waiting.
//!   4. A barrier passes when it has come on all channels and no tuple before it is unfinished; until then nothing behind
//!      it is taken. None passes a task where a tuple has failed: its epoch is not to become durable, even if the report of it is lost.
//!
//! **Bounds.** Queues: `channel_bytes_max` and one load for each channel, twice where a sender has started anew. Open parcels: tuples that the
//! component keeps unfinished, which `max_spout_pending` of all spouts bounds (with at-most-once the component alone). Reports: one entry for each
//! root of parcels that were finished since the last `send`.
//!
//! Performs no I/O; time is an argument.

mod counts;
mod open;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clock::Nanos;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::anchor::{Failure, Nack, Report, RootId};
use crate::changes::{Capture, Command, Staging, StateKey};
use crate::channel::{Accepted, Credit, Inlet};
use crate::definition::Guarantee;
use crate::emitter::{Draft, Emitted, Emitter, Sources, Wiring};
use crate::ids::{ComponentId, StreamId, TaskId};
use crate::message::{Envelope, Message, Misuse};
use crate::parcel::{Epoch, Item, Load, Parcel};
use crate::tap::Tap;
use crate::ticks::Ticks;
use crate::values::Values;
use counts::Counts;
pub use counts::InputCounts;
use open::Open;

/// A task of a bolt.
#[derive(Debug)]
pub struct BoltTask {
    task: TaskId,
    component: ComponentId,
    guarantee: Guarantee,
    start: u32,
    emitter: Emitter,
    inputs: BTreeMap<TaskId, Source>,
    /// Channels with something that may be taken, in the order of their turns, each once.
    ready: VecDeque<TaskId>,
    /// Channels that have got or given something since their senders were told of credits, each once.
    touched: Vec<TaskId>,
    /// Parcels that the component has not finished.
    open: HashMap<u64, Open, FixedState>,
    /// How many parcels were taken.
    taken: u64,
    /// Parcels of which all tuples are done, and which were not reported.
    done: Vec<u64>,
    /// What is left of the parcel that was taken last, and the place of the next tuple in it.
    reading: std::vec::IntoIter<Item>,
    reading_at: u32,
    reading_from: TaskId,
    /// In any order, several of a root.
    reports: Vec<Report>,
    ticks: Option<Ticks>,
    staging: Staging,
    is_waiting: bool,
    counts: Counts,
    /// Tuples that have failed, of all streams.
    failed: u64,
    probe: Probe,
}

/// How long tuples wait, for measurements: one load of the queues at a time is watched, until the tuple in its middle is given to the component.
#[derive(Debug, Default)]
struct Probe {
    watched: Option<Watched>,
    /// The place of that tuple in the parcel that was taken last, if it was of this load.
    item: Option<u32>,
    waited: Option<(StreamId, Duration)>,
}

#[derive(Debug)]
struct Watched {
    from: TaskId,
    /// Loads of its channel that are taken before it.
    ahead: usize,
    since: Nanos,
}

/// A tuple that the component has and has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TupleId {
    parcel: u64,
    item: u32,
}

impl TupleId {
    /// The tuple of this number, for who runs bolts without a [`BoltTask`].
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        Self { parcel: number, item: 0 }
    }

    /// The number that it was made with.
    #[must_use]
    pub fn number(self) -> u64 {
        self.parcel
    }
}

/// What the component is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A tuple, to be acknowledged or failed.
    Tuple {
        /// What to acknowledge, and to anchor to.
        id: TupleId,
        /// The task that emitted it.
        from: TaskId,
        /// The stream on which it did.
        stream: StreamId,
        /// Its values.
        values: Values,
    },
    /// The tick interval has passed.
    Tick,
}

/// A channel into the task.
#[derive(Debug)]
struct Source {
    inlet: Inlet,
    mark: Option<Mark>,
    /// It is in the list of this name.
    is_ready: bool,
    is_touched: bool,
}

/// A mark up to which a channel was read, and not further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Barrier(Epoch),
    Close,
}

impl BoltTask {
    /// A task that has started at `now`.
    ///
    /// `is_moved`: it comes from another worker, and takes no input until [`BoltTask::take_over`].
    ///
    /// # Errors
    /// The custom grouping that `wiring` does not know.
    pub fn new(now: Nanos, task: TaskId, wiring: &Wiring<'_>, is_moved: bool) -> Result<Self, String> {
        let (plan, component) = (wiring.plan, wiring.plan.component_of(task));
        let (guarantee, window) = (plan.settings().guarantee, plan.settings().channel_bytes_max);
        let inlet = || match guarantee {
            Guarantee::ExactlyOnce => Inlet::of_start(window, wiring.start),
            _ => Inlet::new(window),
        };
        let upstream = plan.upstream_tasks(component).into_iter();
        Ok(Self {
            task,
            component,
            guarantee,
            start: wiring.start,
            emitter: Emitter::new(task, wiring)?,
            inputs: upstream.map(|from| (from, Source::new(inlet()))).collect(),
            ready: VecDeque::new(),
            touched: Vec::new(),
            open: HashMap::with_hasher(FixedState::default()),
            taken: 0,
            done: Vec::new(),
            reading: Vec::new().into_iter(),
            reading_at: 0,
            reading_from: TaskId(0),
            reports: Vec::new(),
            ticks: plan.tick_interval(component).map(|interval| Ticks::new(now, interval)),
            staging: Staging::default(),
            is_waiting: is_moved,
            counts: Counts::new(plan.streams_to(component)),
            failed: 0,
            probe: Probe::default(),
        })
    }

    /// Takes a message of another task. An answer of [`Accepted::AfterGap`] says that something was lost: exactly-once must begin anew.
    pub fn on_message(&mut self, from: TaskId, message: Message) -> Accepted {
        match message {
            Message::Forward(forward) => {
                let Some(source) = self.inputs.get_mut(&from) else { return Accepted::Stale };
                let accepted = source.inlet.on_forward(forward);
                source.touch(from, &mut self.touched);
                source.make_ready(from, &mut self.ready);
                accepted
            }
            Message::Credit(credit) => {
                self.emitter.on_credit(from, credit);
                Accepted::InOrder
            }
            Message::Reports(_) => Accepted::Stale,
        }
    }

    /// Links to these tasks are new.
    pub fn on_connected(&mut self, is_there: &dyn Fn(TaskId) -> bool, outbox: &mut Vec<Envelope>) {
        self.emitter.on_connected(is_there, outbox);
    }

    /// What the component is to do next. Nothing if nothing is there, a channel downstream waits for credit, or the drafts of the last parcel were not sent.
    pub fn next_input(&mut self, now: Nanos) -> Option<Input> {
        if self.is_waiting || !self.emitter.is_clear() {
            return None;
        }
        if self.ticks.as_mut().is_some_and(|ticks| ticks.take(now)) {
            return Some(Input::Tick);
        }
        if !self.is_within_parcel() && !self.emitter.has_drafts() {
            self.take_parcel();
        }
        let Item { stream, values, .. } = self.reading.next()?;
        let id = TupleId { parcel: self.taken, item: self.reading_at };
        if self.probe.item == Some(self.reading_at) {
            self.probe.end(now, stream);
        }
        self.counts.of(stream).into_iter().for_each(|counts| counts.executed += 1);
        self.reading_at += 1;
        Some(Input::Tuple { id, from: self.reading_from, stream, values })
    }

    /// Whether the parcel that was taken last has more tuples: [`BoltTask::send`] is worth more when it has none.
    #[must_use]
    pub fn is_within_parcel(&self) -> bool {
        !self.reading.as_slice().is_empty()
    }

    /// The component emits a tuple that was made from `anchors`.
    ///
    /// # Errors
    /// The definition does not allow it, or an anchor is not unfinished; nothing was emitted.
    pub fn emit(
        &mut self,
        stream: StreamId,
        values: Values,
        anchors: &[TupleId],
        direct: Option<TaskId>,
    ) -> Result<(), Misuse> {
        self.emitter.verify(stream, &values)?;
        let mut origin = ORIGIN_IN_ANCHORS;
        for anchor in anchors {
            let open = self.live(*anchor)?;
            if anchors.len() == 1 {
                origin = open.origin(anchor.item);
            }
        }
        let sources = match anchors {
            [] => Sources::Nothing,
            [one] => Sources::One(one.parcel),
            several => {
                let tuples = several.iter().map(|tuple| (tuple.parcel, tuple.item)).collect();
                Sources::Several(self.emitter.next_join(), tuples)
            }
        };
        self.emitter.emit(&sources, Item { origin, stream, values }, direct);
        Ok(())
    }

    /// The tasks that got what the component emitted last.
    #[must_use]
    pub fn targets(&self) -> &[TaskId] {
        self.emitter.targets()
    }

    /// The component has finished a tuple.
    ///
    /// # Errors
    /// It does not have it.
    pub fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        let stream = self.live(tuple)?.finish(tuple.item);
        self.look_if_done(tuple.parcel);
        self.counts.of(stream).into_iter().for_each(|counts| counts.acked += 1);
        Ok(())
    }

    /// The component gives a tuple up.
    ///
    /// # Errors
    /// It does not have it.
    pub fn fail(&mut self, tuple: TupleId, error: &str, nack: Nack) -> Result<(), Misuse> {
        let component = self.component;
        let open = self.live(tuple)?;
        let stream = open.fail(tuple.item, Failure::new(0, component, error, nack));
        self.look_if_done(tuple.parcel);
        self.counts.of(stream).into_iter().for_each(|counts| counts.failed += 1);
        self.failed += 1;
        Ok(())
    }

    /// The component is gone: all tuples that it was given and has not finished are given up.
    pub fn fail_all(&mut self, error: &str, nack: Nack) {
        let next = TupleId { parcel: self.taken, item: self.reading_at };
        for (&parcel, open) in &mut self.open {
            let is_given = |&item: &u32| TupleId { parcel, item } < next;
            let given: Vec<u32> = open.live_items().filter(is_given).collect();
            self.failed += given.len() as u64;
            let is_over = !given.is_empty() && given.len() == open.live();
            for item in given {
                let stream = open.fail(item, Failure::new(0, self.component, error, nack));
                self.counts.of(stream).into_iter().for_each(|counts| counts.failed += 1);
            }
            self.done.extend(is_over.then_some(parcel));
        }
        self.done.sort_unstable();
    }

    /// The component works on a tuple: the time-outs of its roots begin anew.
    ///
    /// # Errors
    /// It does not have it.
    pub fn extend(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        let roots: Vec<RootId> = self.live(tuple)?.anchors().iter().map(|anchor| anchor.root).collect();
        roots.into_iter().for_each(|root| self.report(root, 0, vec![], true));
        Ok(())
    }

    /// The component changes a value of its state, with this epoch; `None` removes it.
    pub fn set(&mut self, key: StateKey, value: Option<Bytes>) {
        self.staging.set(key, value);
    }

    /// The store executes a command, with this epoch. `from`: the tuple that is given up if the store refuses it.
    pub fn command(&mut self, command: Command, from: Option<TupleId>) {
        let open = from.and_then(|tuple| Some((self.open.get(&tuple.parcel)?, tuple.item)));
        let ancestors = open.into_iter().flat_map(|(open, item)| open.ancestors(item));
        self.staging.command(command, self.component, ancestors);
    }

    /// The same of no tuple alone, unless this epoch has that command.
    pub fn command_once(&mut self, command: Command) {
        self.staging.command_once(command);
    }

    /// The value that the component has given to `key` and that is not durable; `None`: the store's holds.
    #[must_use]
    pub fn staged(&self, key: &StateKey) -> Option<Option<&Bytes>> {
        self.staging.read(key)
    }

    /// Sends what was emitted, reports what was finished, tells what was taken.
    pub fn send(&mut self, outbox: &mut Vec<Envelope>) {
        self.send_drafts();
        self.close_parcels();
        self.emitter.poll(outbox);
        self.send_credits(outbox);
        self.send_reports(outbox);
    }

    /// If a barrier has come on all channels and all before it is done: what the task contributes to its epoch. The barrier goes on
    /// downstream with the next [`BoltTask::send`].
    pub fn poll_barrier(&mut self) -> Option<Capture> {
        let epoch = self.barrier_on_all()?;
        let is_at_rest = self.open.is_empty() && !self.emitter.has_drafts();
        if !is_at_rest || self.failed > 0 {
            return None;
        }
        for (&from, source) in &mut self.inputs {
            source.mark = None;
            source.make_ready(from, &mut self.ready);
        }
        self.emitter.push_to_all(&Load::Barrier(epoch));
        let (task, generation, changes) = (self.task, self.start, self.staging.seal(epoch));
        Some(Capture { task, generation, epoch, changes, position: None, dead: Vec::new() })
    }

    /// The store has all of `epoch`.
    pub fn on_durable(&mut self, epoch: Epoch) {
        self.staging.on_durable(epoch);
    }

    /// Whether the task has changed something since the last barrier.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.staging.is_dirty()
    }

    /// `to` is about to move: what is on the way to it is sent, then nothing until [`BoltTask::resume`].
    pub fn hold(&mut self, to: TaskId) {
        self.emitter.hold(to);
    }

    /// `to` has moved.
    pub fn resume(&mut self, to: TaskId) {
        self.emitter.resume(to);
    }

    /// Whether all senders hold for this task and it has finished all that they sent: it can be started elsewhere.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.inputs.values().all(|source| source.mark == Some(Mark::Close)) && self.is_idle()
    }

    /// Whether all that the task has sent was taken. What its next start sends may overtake on another link what this one has sent, and nothing
    /// of an earlier start is accepted after that: a task that moves is to be settled before it starts elsewhere.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.emitter.is_settled()
    }

    /// The task that was here before has finished: this one takes input from now on.
    pub fn take_over(&mut self) {
        self.is_waiting = false;
    }

    /// Whether there is nothing that the task could do or wait for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_empty = self.inputs.values().all(|source| source.inlet.is_empty());
        is_empty && self.open.is_empty() && !self.emitter.has_drafts() && self.emitter.is_clear()
    }

    /// Whether something waits that the component could be given.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.is_within_parcel() || !self.ready.is_empty()
    }

    /// Whether a channel downstream waits for credit: no input is taken meanwhile.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        !self.emitter.is_clear()
    }

    /// Measures how long tuples of the load wait that has come last from `from`, unless another one is being measured.
    pub fn watch(&mut self, now: Nanos, from: TaskId) {
        if self.probe.watched.is_none()
            && let Some(source) = self.inputs.get(&from)
            && let Some(ahead) = source.inlet.loads().checked_sub(1)
        {
            self.probe.watched = Some(Watched { from, ahead, since: now });
        }
    }

    /// How long a tuple of a load that was watched has waited, and its stream, once.
    pub fn poll_waited(&mut self) -> Option<(StreamId, Duration)> {
        self.probe.waited.take()
    }

    /// Bytes in the queues, by those who have sent them.
    pub fn queued_bytes(&self) -> impl Iterator<Item = (TaskId, u64)> {
        self.inputs.iter().map(|(from, source)| (*from, source.inlet.queued_bytes()))
    }

    /// Whether the component has `tuple` and has not finished it.
    #[must_use]
    pub fn is_unfinished(&self, tuple: TupleId) -> bool {
        self.open.get(&tuple.parcel).is_some_and(|open| open.is_live(tuple.item))
    }

    /// Tuples that the component has not finished.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.open.values().map(Open::live).sum()
    }

    /// What was done since the start with the tuples of each stream that the component reads: see [`Plan::streams_to`].
    ///
    /// [`Plan::streams_to`]: crate::plan::Plan::streams_to
    #[must_use]
    pub fn inputs(&self) -> &[InputCounts] {
        self.counts.all()
    }

    /// When the next tick is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.ticks.as_ref().map(Ticks::next)
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
        self.inputs.values().for_each(|source| source.inlet.check());
        self.emitter.check();
        assert!(!self.is_within_parcel() || self.open.contains_key(&self.taken), "what is read is open");
        let is_ready = |source: &Source| !source.inlet.is_empty() && !source.is_stopped();
        assert!(
            self.inputs.values().all(|source| source.is_ready || !is_ready(source)),
            "what can be read is listed"
        );
        let done = self.open.iter().filter(|(_, open)| open.is_done()).count();
        assert_eq!(done, self.done.len(), "parcels that are done are listed");
    }

    /// Takes the next parcel, from the channel whose turn it is. Marks at the heads of channels are noted.
    fn take_parcel(&mut self) {
        while let Some(from) = self.ready.pop_front() {
            let source = self.inputs.get_mut(&from).expect("it is a channel");
            source.is_ready = false;
            let parcel = source.next_parcel();
            self.probe.on_taken(from, source.inlet.is_empty(), parcel.as_ref());
            source.touch(from, &mut self.touched);
            source.make_ready(from, &mut self.ready);
            if let Some(parcel) = parcel {
                return self.begin(from, parcel);
            }
        }
    }

    fn begin(&mut self, from: TaskId, Parcel { anchors, items }: Parcel) {
        self.taken += 1;
        self.open.insert(self.taken, Open::new(anchors, &items));
        (self.reading, self.reading_at, self.reading_from) = (items.into_iter(), 0, from);
    }

    /// Notes a parcel whose last tuple was finished.
    fn look_if_done(&mut self, parcel: u64) {
        if self.open[&parcel].is_done() {
            self.done.push(parcel);
        }
    }

    /// The open parcel of a tuple that is not finished.
    fn live(&mut self, tuple: TupleId) -> Result<&mut Open, Misuse> {
        let open = self.open.get_mut(&tuple.parcel).filter(|open| open.is_live(tuple.item));
        open.ok_or(Misuse::UnknownTuple)
    }

    /// Makes parcels of the drafts. A parcel that is all that came of a finished one goes on under its tokens.
    fn send_drafts(&mut self) {
        let mut drafts = self.emitter.take_drafts();
        for (parcel, _) in drafts.iter().flat_map(|draft| draft.sources.parcels()) {
            self.open.get_mut(&parcel).expect("closed after its drafts are sent").drafts += 1;
        }
        for Draft { to, sources, mut items } in drafts.drain(..) {
            let mut anchors = Vec::new();
            match sources {
                Sources::One(parcel) if self.open[&parcel].can_pass() => {
                    anchors = self.open.get_mut(&parcel).expect("it is there").pass();
                }
                sources => {
                    for (parcel, item) in sources.parcels() {
                        let open = self.open.get_mut(&parcel).expect("closed after its drafts are sent");
                        open.split(item, || self.emitter.token(), &mut anchors);
                    }
                }
            }
            if let ([anchor], [item]) = (&anchors[..], &mut items[..])
                && item.origin == ORIGIN_IN_ANCHORS
            {
                item.origin = anchor.origin;
            }
            self.emitter.push_parcel(to, anchors, items);
        }
        self.emitter.reuse(drafts);
    }

    /// Reports the parcels that are finished.
    fn close_parcels(&mut self) {
        for parcel in std::mem::take(&mut self.done) {
            let open = self.open.remove(&parcel).expect("it was listed once");
            for (root, xor, failed) in open.reports() {
                self.report(root, xor, failed, false);
            }
        }
    }

    fn report(&mut self, root: RootId, xor: u64, failed: Vec<Failure>, extends: bool) {
        if self.guarantee == Guarantee::ExactlyOnce && failed.is_empty() {
            return; // epochs say what is done
        }
        self.reports.push(Report { root, xor, failed, extends });
    }

    fn send_credits(&mut self, outbox: &mut Vec<Envelope>) {
        let from = self.task;
        for to in self.touched.drain(..) {
            let source = self.inputs.get_mut(&to).expect("it is a channel");
            source.is_touched = false;
            let credit: Option<Credit> = source.inlet.poll_credit();
            outbox.extend(credit.map(|credit| Envelope { from, to, message: Message::Credit(credit) }));
        }
    }

    /// One message for each spout task, with one report for each root.
    fn send_reports(&mut self, outbox: &mut Vec<Envelope>) {
        self.reports.sort_by_key(|report| report.root);
        self.reports.dedup_by(|later, first| first.absorb(later));
        self.reports.retain(Report::says_something);
        for of_spout in self.reports.chunk_by(|one, other| one.root.spout == other.root.spout) {
            let (to, message) = (of_spout[0].root.spout, Message::Reports(of_spout.to_vec()));
            outbox.push(Envelope { from: self.task, to, message });
        }
        self.reports.clear();
    }

    /// The barrier at which all channels wait.
    fn barrier_on_all(&self) -> Option<Epoch> {
        let mut marks = self.inputs.values().map(|source| source.mark);
        let first = marks.next()??;
        let Mark::Barrier(epoch) = first else { return None };
        marks.all(|mark| mark == Some(first)).then_some(epoch)
    }
}

impl Probe {
    /// A load of `from` was taken. If it was the last one, so was the one that is watched: some may be dropped when a sender starts anew.
    fn on_taken(&mut self, from: TaskId, was_last: bool, parcel: Option<&Parcel>) {
        let Some(watched) = self.watched.as_mut().filter(|watched| watched.from == from) else { return };
        if !was_last && watched.ahead > 0 {
            watched.ahead -= 1;
            return;
        }
        self.item = parcel.map(|parcel| parcel.items.len() as u32 / 2);
        if self.item.is_none() {
            self.watched = None; // it was a mark
        }
    }

    /// The tuple, of `stream`, is given to the component.
    fn end(&mut self, now: Nanos, stream: StreamId) {
        self.item = None;
        self.waited = self.watched.take().map(|watched| (stream, now.since(watched.since)));
    }
}

impl Source {
    fn new(inlet: Inlet) -> Self {
        Self { inlet, mark: None, is_ready: false, is_touched: false }
    }

    /// Lists the channel, of the sender `from`, if something may be taken from it.
    fn make_ready(&mut self, from: TaskId, ready: &mut VecDeque<TaskId>) {
        if !self.is_ready && !self.is_stopped() && !self.inlet.is_empty() {
            self.is_ready = true;
            ready.push_back(from);
        }
    }

    /// Whether nothing may be taken until the barrier has come on all channels.
    fn is_stopped(&self) -> bool {
        matches!(self.mark, Some(Mark::Barrier(_)))
    }

    /// Lists the channel as one of which the sender may have to be told.
    fn touch(&mut self, from: TaskId, touched: &mut Vec<TaskId>) {
        if !std::mem::replace(&mut self.is_touched, true) {
            touched.push(from);
        }
    }

    /// The next parcel of a channel that waits at no mark.
    fn next_parcel(&mut self) -> Option<Parcel> {
        // What follows a mark of a move is that mark again, or of a sender that has started anew: it may not hold for this task.
        self.mark.take_if(|mark| *mark == Mark::Close && !self.inlet.is_empty());
        if self.is_stopped() {
            return None;
        }
        match self.inlet.pop()? {
            Load::Parcel(parcel) => return Some(parcel),
            Load::Barrier(epoch) => self.mark = Some(Mark::Barrier(epoch)),
            Load::Close => self.mark = Some(Mark::Close),
        }
        None
    }
}

/// The origin of a tuple with several anchors, until it is known that it has only one root.
const ORIGIN_IN_ANCHORS: u32 = u32::MAX;
