//! Exactly-once: which epoch is under way, what belongs to it, and how all tasks begin anew when anything is lost.
//!
//! ```text
//!            all workers are ready      work, and the last group is durable       all tasks captured
//!  Preparing ---------------------> Running ------------- barrier ------> Gathering ------ append ------> Running
//!      ^                               |                                      |
//!      '-[Resting]- something was lost, a tuple failed, a step took too long -'      (a new generation)
//! ```
//!
//! An **epoch** is what all tasks did between two barriers: state and streams that they changed, input positions. It is one group of
//! the store's journal, so after any crash all of it is there or nothing. The clock of epochs is the disk: the next barrier goes when the group before is
//! durable, without a timer; meanwhile tasks work on for the next epoch. If nothing was done there is no barrier.
//!
//! Invariants
//!   1. At most one barrier or group is under way.
//!   2. A group has the captures of all tasks, of one generation and one epoch, each once.
//!   3. Tasks of a generation begin with the state and the positions of the last appended group, and emit only when all tasks of the
//!      one before are gone: then nothing of it can reach them.
//!   4. A group of an earlier generation is never appended. One that was appended counts, durable or not: what is appended later comes after it in the
//!      journal, so no crash can leave the later one alone.
//!
//! A tuple that fails begins a new generation, which reads it again; after `attempts_max` it is skipped, with a dead letter in the epoch that
//! passes it. A delay that the component wants is not kept: it would stop the whole topology.
//!
//! The first of several generations begins at once. If it comes to nothing, which is that no epoch of it moves a position, the next one rests before: 100 ms, doubled
//! up to 5 s. So components that fail with each tuple are not made anew without end. A tuple that is skipped is worth something, too: pauses begin anew with 0 for the
//! first one, with 100 ms for a second one that follows, and so on. One whose failure is fatal costs no pause: it fails once.
//!
//! **Bounds.** The captures of one epoch, which are what at most `max_spout_pending` tuples of each spout task changed. Attempts and poison: tuples that are not durable.
//!
//! Performs no I/O; time is an argument.
//! Out of scope: who carries what is to be done to the workers, and where they run.
//! Source: barriers as in Carbone et al. 2015; the disk as their clock is ours (docs/adr/0032-topologies.md).

pub mod kept;
mod message;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use clock::Nanos;

use crate::anchor::{Blame, Failure};
use crate::changes::{Capture, Cause, Command, StateKey};
use crate::ids::{TaskId, WorkerId};
use crate::parcel::Epoch;
use crate::plan::Plan;
use crate::spout::Poison;
use crate::tracker::{DeadLetter, Original, Position};

pub use message::{Beginning, EpochMessage, EpochReport, Order};

/// The coordinator of a topology's epochs.
#[derive(Debug)]
pub struct Epochs {
    tasks: BTreeSet<TaskId>,
    workers: BTreeSet<WorkerId>,
    attempts_max: u32,
    /// A step that takes longer has failed.
    timeout: Duration,
    generation: u32,
    state: State,
    /// When the step that waits for workers has failed.
    deadline: Option<Nanos>,
    /// The last group that the store has taken, and the last one that it will not lose.
    appended: Epoch,
    durable: Epoch,
    /// Something was done since the last barrier.
    is_dirty: bool,
    /// Begin anew when the next epoch is durable.
    moves: bool,
    /// Generations in a row that have come to nothing.
    fruitless: u32,
    /// Tuples that were tried too often since a position has moved.
    given_up: u32,
    /// A generation that has ended by a failure that was nobody's fault: whose it is may still be told.
    unblamed: Option<u32>,
    /// The last position of each spout task that was appended, as far as this coordinator has done it.
    positions: BTreeMap<TaskId, Position>,
    attempts: BTreeMap<(TaskId, Position), u32>,
    poison: BTreeMap<TaskId, Poison>,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
enum State {
    /// The next generation begins at the deadline.
    Resting,
    /// These workers have not said that their tasks are made anew.
    Preparing(BTreeSet<WorkerId>),
    Running,
    /// These captures have come.
    Gathering(BTreeMap<TaskId, Capture>),
    /// Another coordinator has taken over.
    Fenced,
}

/// What is to be done with all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drop all tasks, make them anew with what the store has, let them do nothing, and say [`Epochs::on_ready`].
    Prepare {
        /// The new generation: the start of all tasks.
        generation: u32,
    },
    /// Let the tasks work.
    Go {
        /// The generation.
        generation: u32,
    },
    /// Let all spout tasks pass this barrier.
    Barrier {
        /// The generation.
        generation: u32,
        /// The epoch that ends.
        epoch: Epoch,
    },
    /// Tell all tasks that the store has this epoch.
    Durable {
        /// The generation.
        generation: u32,
        /// The epoch.
        epoch: Epoch,
    },
    /// Tell who looks that all rests before the next generation: the ones before have come to nothing.
    Rest {
        /// For so long.
        pause: Duration,
        /// Generations in a row.
        fruitless: u32,
    },
    /// Another coordinator has taken over: stop.
    Stop,
}

/// An epoch of all tasks, to be appended as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Whose it is: a store that has a later one refuses it.
    pub generation: u32,
    /// Which epoch.
    pub epoch: Epoch,
    /// State and its new values; `None`: removed.
    pub values: BTreeMap<StateKey, Option<Bytes>>,
    /// Commands, in the order of tasks.
    pub commands: Vec<Command>,
    /// Which tuples they come from, in their order.
    pub causes: Vec<Cause>,
    /// The last position that each spout task has emitted.
    pub positions: BTreeMap<TaskId, Position>,
    /// Tuples that were skipped.
    pub dead: Vec<(TaskId, DeadLetter)>,
}

/// Where groups go.
pub trait EpochStore {
    /// Appends a group: at once visible to who reads the store, and after a crash there as a whole or not at all, and not without those before it.
    ///
    /// # Errors
    /// It is not the next epoch, or the store has seen a later generation.
    fn append(&mut self, group: Group) -> Result<(), Refused>;

    /// The last epoch that no crash can take away.
    fn durable(&self) -> Epoch;
}

/// A group that the store did not take: another coordinator writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the group is not the next one of the newest generation: another coordinator has taken over")]
pub struct Refused;

impl Epochs {
    /// The coordinator of `plan`, whose tasks are spread over `workers`. It begins after the group `appended`, the last one in the store, which is durable.
    ///
    /// `generation` must be at least the last one that an earlier coordinator has begun, whether or not the store has heard of it: the number of the
    /// coordinator's start in the upper bits, say.
    #[must_use]
    pub fn new(now: Nanos, plan: &Plan, workers: &[WorkerId], generation: u32, appended: Epoch) -> Self {
        let mut epochs = Self {
            tasks: (0..plan.tasks_count()).map(TaskId).collect(),
            workers: workers.iter().copied().collect(),
            attempts_max: plan.settings().attempts_max,
            timeout: plan.settings().message_timeout,
            generation,
            state: State::Running,
            deadline: None,
            appended,
            durable: appended,
            is_dirty: false,
            moves: false,
            fruitless: 0,
            given_up: 0,
            unblamed: None,
            positions: BTreeMap::new(),
            attempts: BTreeMap::new(),
            poison: BTreeMap::new(),
            actions: VecDeque::new(),
        };
        epochs.prepare(now);
        epochs
    }

    /// What is to be done next, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A worker has told something.
    pub fn on_report(&mut self, now: Nanos, worker: WorkerId, told: EpochReport, store: &mut dyn EpochStore) {
        match told {
            EpochReport::Ready { generation } => self.on_ready(worker, generation),
            EpochReport::Work { generation } => self.on_work(now, generation),
            EpochReport::Capture(capture) => self.on_capture(now, capture, store),
            EpochReport::Failed { generation, task, failed } => {
                self.on_failed(now, generation, task, failed);
            }
            EpochReport::Lost { generation, .. } if generation == self.generation => self.on_lost(now),
            // Whoever has asked for them hears them.
            EpochReport::Recalled { .. } | EpochReport::Lost { .. } => {}
        }
    }

    /// A worker has made its tasks anew.
    pub fn on_ready(&mut self, worker: WorkerId, generation: u32) {
        let State::Preparing(missing) = &mut self.state else { return };
        if generation == self.generation {
            missing.remove(&worker);
            if missing.is_empty() {
                (self.state, self.deadline) = (State::Running, None);
                self.actions.push_back(Action::Go { generation });
            }
        }
    }

    /// A task has emitted or changed something, for the first time since a barrier.
    pub fn on_work(&mut self, now: Nanos, generation: u32) {
        if generation == self.generation {
            self.is_dirty = true;
            self.begin_epoch(now);
        }
    }

    /// A task's contribution to the epoch under way; the last one completes the group.
    pub fn on_capture(&mut self, now: Nanos, capture: Capture, store: &mut dyn EpochStore) {
        let State::Gathering(captures) = &mut self.state else { return };
        let is_wanted = capture.generation == self.generation
            && capture.epoch == self.appended.next()
            && self.tasks.contains(&capture.task);
        if !is_wanted {
            return;
        }
        captures.insert(capture.task, capture);
        if captures.len() == self.tasks.len() {
            let captures = std::mem::take(captures);
            self.append(captures, store);
            self.on_store(now, store);
        }
    }

    /// The store may have made something durable.
    pub fn on_store(&mut self, now: Nanos, store: &mut dyn EpochStore) {
        let durable = store.durable().min(self.appended);
        if durable > self.durable {
            self.durable = durable;
            let generation = self.generation;
            if matches!(self.state, State::Running | State::Gathering(_)) {
                self.actions.push_back(Action::Durable { generation, epoch: durable });
            }
            if std::mem::take(&mut self.moves) {
                return self.prepare(now);
            }
        }
        self.begin_epoch(now);
    }

    /// A tuple of `task` of a spout has failed in `generation`: all tasks begin anew, and skip it if it has failed too often. Of what fails in a
    /// generation one counts: the tuple may have failed in several places, and others with it without their fault, of which may be heard before.
    pub fn on_failed(&mut self, now: Nanos, generation: u32, task: TaskId, failed: (Original, Failure)) {
        let (mut original, failure) = failed;
        let (is_late, is_silent) = (generation != self.generation, failure.nack.blame == Blame::Silent);
        if is_late && (is_silent || self.unblamed != Some(generation)) {
            return;
        }
        self.unblamed = is_silent.then_some(generation);
        let attempts = self.attempts.entry((task, original.position)).or_default();
        *attempts += u32::from(!is_silent);
        if *attempts >= self.attempts_max || failure.nack.blame == Blame::Fatal {
            original.attempts = *attempts;
            let (component, position) = (Some(failure.component), original.position);
            let letter = DeadLetter { original, component, error: failure.error };
            self.poison.entry(task).or_default().insert(position, letter);
            if failure.nack.blame == Blame::Fatal && !matches!(self.state, State::Fenced) {
                return self.prepare(now);
            }
            self.fruitless = self.fruitless.min(self.given_up);
            self.given_up += 1;
            // Those that have begun since do not skip it.
            if is_late && !matches!(self.state, State::Resting | State::Fenced) {
                return self.prepare(now);
            }
        }
        if !is_late {
            self.on_lost(now);
        }
    }

    /// A worker, a link or a message was lost: all tasks begin anew, unless they are about to.
    pub fn on_lost(&mut self, now: Nanos) {
        if matches!(self.state, State::Fenced | State::Resting) {
            return;
        }
        let pause = if self.fruitless == 0 { Duration::ZERO } else { self.pause() };
        self.fruitless += 1;
        if pause.is_zero() {
            return self.prepare(now);
        }
        self.renounce();
        (self.state, self.deadline) = (State::Resting, Some(now + pause));
        self.actions.push_back(Action::Rest { pause, fruitless: self.fruitless });
    }

    /// A worker was started anew, and has no tasks: all begin anew. Whether they are about to, and only this worker has to be told again: what it was told may have been
    /// told to the one before.
    pub fn on_new_worker(&mut self, now: Nanos, worker: WorkerId) -> bool {
        match &self.state {
            State::Resting => false,
            State::Preparing(missing) if missing.contains(&worker) => true,
            _ => {
                self.on_lost(now);
                false
            }
        }
    }

    /// The tasks are to be spread anew over `workers`: all begin anew, after the epoch that is under way if tasks work. A generation that is about to begin is
    /// begun anew: what it was told has other places than a worker that is told again.
    pub fn rebalance(&mut self, now: Nanos, workers: &[WorkerId]) {
        self.workers = workers.iter().copied().collect();
        let is_under_way = match self.state {
            State::Gathering(_) => true,
            State::Running => self.durable < self.appended,
            State::Preparing(_) | State::Resting | State::Fenced => false,
        };
        match self.state {
            State::Fenced => {}
            _ if is_under_way => self.moves = true,
            _ => self.prepare(now),
        }
    }

    /// Time has passed: a step that has taken too long has failed.
    pub fn on_time(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            match self.state {
                State::Resting => self.prepare(now),
                _ => self.on_lost(now),
            }
        }
    }

    /// What `task` of a spout is to skip.
    #[must_use]
    pub fn poison(&self, task: TaskId) -> Poison {
        self.poison.get(&task).cloned().unwrap_or_default()
    }

    /// The generation of tasks that may work.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// When [`Epochs::on_time`] has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.deadline
    }

    /// Whether all that tasks have said to have done is durable.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Running) && !self.is_dirty && self.durable == self.appended
    }

    /// Looks whether the parts agree. For tests.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub fn check(&self) {
        assert!(self.durable <= self.appended, "durable before it was appended: {self:?}");
        if let State::Gathering(captures) = &self.state {
            assert_eq!(self.durable, self.appended, "an epoch is gathered while another one is not durable");
            assert!(captures.len() < self.tasks.len(), "a complete group waits");
        }
        let waits = matches!(self.state, State::Gathering(_) | State::Preparing(_) | State::Resting);
        assert_eq!(self.deadline.is_some(), waits, "what waits has a deadline");
    }

    /// Begins an epoch's end, if there is something to end and nothing under way.
    fn begin_epoch(&mut self, now: Nanos) {
        let may = matches!(self.state, State::Running) && self.durable == self.appended;
        if may && std::mem::take(&mut self.is_dirty) {
            self.state = State::Gathering(BTreeMap::new());
            self.deadline = Some(now + self.timeout);
            let (generation, epoch) = (self.generation, self.appended.next());
            self.actions.push_back(Action::Barrier { generation, epoch });
        }
    }

    fn append(&mut self, captures: BTreeMap<TaskId, Capture>, store: &mut dyn EpochStore) {
        let epoch = self.appended.next();
        let mut group = Group { generation: self.generation, epoch, ..Group::default() };
        for (task, capture) in captures {
            group.values.extend(capture.changes.values);
            let before = group.commands.len() as u32;
            let causes = capture.changes.causes.into_iter();
            group.causes.extend(causes.map(|cause| Cause { command: before + cause.command, ..cause }));
            group.commands.extend(capture.changes.commands);
            group.positions.extend(capture.position.map(|position| (task, position)));
            group.dead.extend(capture.dead.into_iter().map(|letter| (task, letter)));
        }
        let positions = group.positions.clone();
        self.deadline = None;
        if store.append(group).is_err() {
            self.state = State::Fenced;
            return self.actions.push_back(Action::Stop);
        }
        (self.state, self.appended) = (State::Running, epoch);
        self.forget_up_to(&positions);
        let moved = positions.iter().filter(|(task, position)| self.positions.get(task) != Some(position));
        if moved.count() > 0 {
            (self.fruitless, self.given_up) = (0, 0);
        }
        self.positions.extend(positions);
    }

    /// What is in the store will not be read again.
    fn forget_up_to(&mut self, positions: &BTreeMap<TaskId, Position>) {
        let is_past = |task, position| positions.get(&task).is_some_and(|last| position <= *last);
        self.attempts.retain(|(task, position), _| !is_past(*task, *position));
        for (task, poison) in &mut self.poison {
            poison.retain(|position, _| !is_past(*task, *position));
        }
        self.poison.retain(|_, poison| !poison.is_empty());
    }

    /// A new generation, of which nothing is made yet: what the one before sends late is not taken any more.
    fn renounce(&mut self) {
        self.generation += 1;
        (self.is_dirty, self.moves) = (false, false);
        // What is still to be told to an earlier generation is told to nobody.
        self.actions.clear();
    }

    fn prepare(&mut self, now: Nanos) {
        self.renounce();
        self.state = State::Preparing(self.workers.clone());
        self.deadline = Some(now + self.timeout);
        self.actions.push_back(Action::Prepare { generation: self.generation });
    }

    fn pause(&self) -> Duration {
        PAUSE_MAX.min(PAUSE_MIN * 2_u32.saturating_pow(self.fruitless - 1))
    }
}

/// The pause before a second generation that follows one which has come to nothing, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
