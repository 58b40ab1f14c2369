//! Exactly-once: a thread that has the coordinator of epochs, a connection to the store, and an inbox where threads tell it what tasks have done.
//!
//! ```text
//!  connected -> take over -> begin a generation -> Prepare -> all threads ready -> Go ... Barrier -> captures -> one step -> Durable, Barrier ...
//!      ^                         ^ a tuple failed                                                      |
//!      '---- connection lost, step refused: after a pause, from what the store has ------------------'
//! ```
//!
//! Invariants
//!   1. A generation is known to the store before a task of it is made: none has the number of an earlier one, of whatever process.
//!   2. What tasks of another generation tell is not heard.
//!
//! **Bounds.** The inbox: for each task a capture and a message that it works, and failures of at most `max_spout_pending` tuples of each spout task.
//! Source: docs/adr/0045-exactly-once-in-a-worker.md.

mod ledger;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use clock::{Clock, Nanos};
use connection::{Event, Link, Options, Target};
use resp::Value as Reply;
use topology::Plan;
use topology::anchor::Failure;
use topology::changes::{Capture, Command};
use topology::epochs::{Action, EpochStore, Epochs, Group, Refused};
use topology::ids::{TaskId, WorkerId};
use topology::parcel::Epoch;
use topology::spout::Poison;
use topology::tracker::{Original, Position};

use crate::mailbox::{Mailbox, Order};
use crate::stats::Board;
use crate::sync::{lock, wait};
use ledger::{Asks, Ledger, Request, Saved};

/// What threads tell the coordinator.
#[derive(Debug)]
pub(crate) enum ToCoordinator {
    /// All tasks of a thread are made anew.
    Ready {
        /// Which thread.
        thread: usize,
        /// The generation of its tasks.
        generation: u32,
    },
    /// A task has done something, for the first time since a barrier.
    Work(u32),
    /// A barrier has passed a task.
    Capture(Capture),
    /// A tuple of a spout task has failed.
    Failed {
        /// The generation of the task.
        generation: u32,
        /// The spout's task.
        task: TaskId,
        /// The tuple, and why.
        failed: (Original, Failure),
    },
}

/// What a generation begins with.
#[derive(Debug)]
pub(crate) struct GenerationStart {
    pub(crate) generation: u32,
    /// The last tuple of each spout task that is durable.
    pub(crate) positions: BTreeMap<TaskId, Position>,
    /// What spout tasks are to skip.
    pub(crate) poison: BTreeMap<TaskId, Poison>,
}

/// Where messages wait for the coordinator.
#[derive(Debug, Default)]
pub(crate) struct CoordinatorInbox {
    state: Mutex<Messages>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Messages {
    messages: Vec<ToCoordinator>,
    /// The connection has something.
    has_events: bool,
    is_closed: bool,
}

/// The coordinator's thread.
#[derive(Debug)]
pub(crate) struct Coordinator {
    plan: Arc<Plan>,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    inbox: Arc<CoordinatorInbox>,
    mailboxes: Vec<Arc<Mailbox>>,
    phase: Phase,
    steps: Steps,
    /// A generation is above all that were begun in this process, whatever a server that has lost its last second says.
    generation: u32,
}

#[derive(Debug)]
enum Phase {
    /// There is no connection, or the store has refused something: until a time.
    Waiting(Option<Nanos>),
    /// The store was asked for what it has.
    Asked,
    /// Tasks work, or are made.
    Running(Box<Epochs>),
}

/// The steps of epochs on a connection.
#[derive(Debug)]
struct Steps {
    plan: Arc<Plan>,
    ledger: Ledger,
    link: Link,
    /// The connection that can be asked.
    life: Option<u64>,
    /// Steps without a reply, in their order.
    owed: VecDeque<Owed>,
    /// Generations of steps after which the store is to say the same.
    said: VecDeque<u32>,
    positions: BTreeMap<TaskId, Position>,
    durable: Epoch,
    /// Why the store did not take a command of the step that is under way.
    complaint: Option<String>,
}

/// A step without a reply.
#[derive(Debug)]
enum Owed {
    Begin(u32),
    End(Epoch, BTreeMap<usize, Command>),
}

impl CoordinatorInbox {
    pub(crate) fn tell(&self, message: ToCoordinator) {
        lock(&self.state).messages.push(message);
        self.bell.notify_one();
    }

    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.bell.notify_one();
    }

    fn ring(&self) {
        lock(&self.state).has_events = true;
        self.bell.notify_one();
    }

    /// Moves messages to `messages` when there are any, or events, at the latest after `timeout`; whether the inbox is open.
    fn take(&self, messages: &mut Vec<ToCoordinator>, timeout: Option<Duration>) -> bool {
        let mut state = lock(&self.state);
        if state.messages.is_empty() && !state.has_events && !state.is_closed {
            state = wait(&self.bell, state, timeout);
        }
        state.has_events = false;
        std::mem::swap(&mut state.messages, messages);
        !state.is_closed
    }
}

impl Coordinator {
    /// A coordinator of `plan`, whose threads have `mailboxes`, with what the store at `target` has.
    ///
    /// # Errors
    /// The system has no thread. A store that cannot be reached is tried again.
    pub(crate) fn new(
        plan: &Arc<Plan>,
        clock: &Arc<dyn Clock>,
        board: &Arc<Board>,
        mailboxes: Vec<Arc<Mailbox>>,
        target: &Target,
    ) -> io::Result<(Self, Arc<CoordinatorInbox>)> {
        let inbox = Arc::new(CoordinatorInbox::default());
        let bell = Arc::clone(&inbox);
        let steps = Steps {
            plan: Arc::clone(plan),
            ledger: Ledger::new(plan),
            link: Link::start(target, Options::named("epochs-link"), move || bell.ring())?,
            life: None,
            owed: VecDeque::new(),
            said: VecDeque::new(),
            positions: BTreeMap::new(),
            durable: Epoch(0),
            complaint: None,
        };
        let coordinator = Self {
            plan: Arc::clone(plan),
            clock: Arc::clone(clock),
            board: Arc::clone(board),
            inbox: Arc::clone(&inbox),
            mailboxes,
            phase: Phase::Waiting(None),
            steps,
            generation: 0,
        };
        Ok((coordinator, inbox))
    }

    /// Runs until the inbox is closed.
    pub(crate) fn run(mut self) {
        let inbox = Arc::clone(&self.inbox);
        let mut messages = Vec::new();
        while inbox.take(&mut messages, self.until_due()) {
            let now = self.clock.now();
            messages.drain(..).for_each(|message| self.on_message(now, message));
            self.on_events(now);
            self.on_time(now);
            self.act(now);
        }
    }

    fn on_message(&mut self, now: Nanos, message: ToCoordinator) {
        let Phase::Running(epochs) = &mut self.phase else { return };
        match message {
            ToCoordinator::Ready { thread, generation } => {
                epochs.on_ready(WorkerId(thread as u32), generation);
            }
            ToCoordinator::Work(generation) => epochs.on_work(now, generation),
            ToCoordinator::Capture(capture) => epochs.on_capture(now, capture, &mut self.steps),
            ToCoordinator::Failed { generation, task, failed } => {
                epochs.on_failed(now, generation, task, failed);
            }
        }
    }

    fn on_events(&mut self, now: Nanos) {
        for event in self.steps.link.take() {
            match event {
                Event::Connected(life) => {
                    self.steps.life = Some(life);
                    self.take_over();
                }
                Event::Lost(why) => {
                    self.steps.forget();
                    self.steps.life = None;
                    self.phase = Phase::Waiting(None);
                    self.complain(&format!("the store of epochs: {why}"));
                }
                Event::Reply(token, reply) => {
                    if let Err(error) = self.on_reply(now, Asks::of_token(token), reply) {
                        self.begin_anew(now, &error);
                    }
                }
            }
        }
    }

    fn on_reply(&mut self, now: Nanos, asks: Asks, reply: Reply) -> Result<(), String> {
        match (asks, reply) {
            (Asks::Nothing, Reply::Error(text)) => {
                self.steps.complaint.get_or_insert_with(|| String::from_utf8_lossy(&text).into_owned());
                Ok(())
            }
            (Asks::Nothing, _) => Ok(()),
            (Asks::Saved, reply) if matches!(self.phase, Phase::Asked) => {
                let saved = self.steps.ledger.saved(&self.plan, &reply)?;
                self.start(now, saved);
                Ok(())
            }
            (Asks::Saved, _) => Ok(()),
            (Asks::Step, reply) => self.on_step(now, reply),
            (Asks::Generation, reply) => match self.steps.said.pop_front() {
                Some(own) if reply != Reply::Bulk(own.to_string().into()) => Err(OTHER.to_owned()),
                _ => Ok(()),
            },
        }
    }

    /// The store has answered a step.
    fn on_step(&mut self, now: Nanos, reply: Reply) -> Result<(), String> {
        let Some(owed) = self.steps.owed.pop_front() else { return Ok(()) };
        let complaint = self.steps.complaint.take();
        let replies = match reply {
            Reply::Array(replies) => replies,
            Reply::Null => return Err(OTHER.to_owned()),
            Reply::Error(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                return Err(format!("the store refused an epoch: {}", complaint.unwrap_or(text)));
            }
            other => return Err(format!("the store answered {other:?} to EXEC")),
        };
        match owed {
            Owed::Begin(generation) => self.prepare(generation),
            Owed::End(epoch, commands) => {
                self.tell_refused(&replies, &commands);
                self.steps.durable = epoch;
                if let Phase::Running(epochs) = &mut self.phase {
                    epochs.on_store(now, &mut self.steps);
                }
            }
        }
        Ok(())
    }

    /// Writes down which commands of an epoch had no effect: with the others they cannot be taken back.
    fn tell_refused(&mut self, replies: &[Reply], commands: &BTreeMap<usize, Command>) {
        for (place, reply) in replies.iter().enumerate() {
            let (Reply::Error(text), Some(command)) = (reply, commands.get(&place)) else { continue };
            let text = String::from_utf8_lossy(text);
            self.steps.send(vec![self.steps.ledger.refused(command, &text)]);
            let command = String::from_utf8_lossy(&command[0]).into_owned();
            self.complain(&format!(
                "the store refused {command}, which is with the dead letters now: {text}"
            ));
        }
    }

    fn take_over(&mut self) {
        self.steps.forget();
        self.phase = Phase::Asked;
        self.steps.send(self.steps.ledger.take_over());
    }

    fn start(&mut self, now: Nanos, saved: Saved) {
        let Saved { generation, epoch, positions } = saved;
        self.generation = self.generation.max(generation);
        (self.steps.positions, self.steps.durable) = (positions, epoch);
        let workers: Vec<WorkerId> = (0..self.mailboxes.len() as u32).map(WorkerId).collect();
        let epochs = Epochs::new(now, &self.plan, &workers, self.generation, epoch);
        self.phase = Phase::Running(Box::new(epochs));
    }

    /// Something is wrong that another generation alone does not mend: all begins from what the store has, after a pause.
    fn begin_anew(&mut self, now: Nanos, error: &str) {
        self.steps.forget();
        self.phase = Phase::Waiting(Some(now + PAUSE));
        self.complain(error);
    }

    fn on_time(&mut self, now: Nanos) {
        match &mut self.phase {
            Phase::Waiting(Some(until)) if *until <= now => self.take_over(),
            Phase::Running(epochs) => epochs.on_time(now),
            _ => {}
        }
    }

    fn until_due(&self) -> Option<Duration> {
        let due = match &self.phase {
            Phase::Waiting(until) => *until,
            Phase::Asked => None,
            Phase::Running(epochs) => epochs.next_due(),
        };
        due.map(|due| due.since(self.clock.now()))
    }

    /// Does what the epochs want.
    fn act(&mut self, now: Nanos) {
        while let Phase::Running(epochs) = &mut self.phase
            && let Some(action) = epochs.poll_action()
        {
            match action {
                Action::Prepare { generation } => {
                    self.generation = generation;
                    self.steps.begin(generation);
                }
                Action::Go { generation } => self.order(|| Order::Go(generation)),
                Action::Barrier { generation, epoch } => self.order(|| Order::Barrier(generation, epoch)),
                Action::Durable { generation, epoch } => self.order(|| Order::Durable(generation, epoch)),
                Action::Stop => self.begin_anew(now, OTHER),
            }
        }
    }

    /// Has all tasks made anew, now that the store knows of their generation.
    fn prepare(&mut self, generation: u32) {
        let Phase::Running(epochs) = &self.phase else { return };
        if generation != epochs.generation() {
            return; // another one has begun since
        }
        let poison = self.plan.spout_tasks().map(|task| (task, epochs.poison(task)));
        let poison = poison.filter(|(_, poison)| !poison.is_empty()).collect();
        let positions = self.steps.positions.clone();
        let beginning = Arc::new(GenerationStart { generation, positions, poison });
        self.order(|| Order::Prepare(Arc::clone(&beginning)));
    }

    fn order(&self, order: impl Fn() -> Order) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.order(order()));
    }

    /// Shows what is wrong as an error of the first spout.
    fn complain(&self, error: &str) {
        tracing::warn!(topology = self.plan.topology().name, error, "an epoch");
        if let Some(task) = self.plan.spout_tasks().next() {
            self.board.tasks[task.0 as usize].on_fault(error);
        }
    }
}

impl Steps {
    fn send(&self, requests: Vec<Request>) {
        let Some(life) = self.life else { return };
        for Request { asks, words } in requests {
            // What is not sent is of a connection whose loss is about to be told.
            self.link.send(life, asks.token(), |out| resp::encode_command(out, &words));
        }
    }

    fn begin(&mut self, generation: u32) {
        self.owed.push_back(Owed::Begin(generation));
        self.said.push_back(generation);
        self.send(self.ledger.begin(generation));
    }

    /// What is under way is of no interest any more.
    fn forget(&mut self) {
        self.owed.clear();
        self.said.clear();
        self.complaint = None;
    }
}

impl EpochStore for Steps {
    fn append(&mut self, group: Group) -> Result<(), Refused> {
        let (requests, commands) = self.ledger.end(&self.plan, &group);
        self.owed.push_back(Owed::End(group.epoch, commands));
        self.said.push_back(group.generation);
        self.send(requests);
        self.positions.extend(group.positions);
        Ok(()) // whether it was refused, the reply says
    }

    fn durable(&self) -> Epoch {
        self.durable
    }
}

/// Pause after the store has refused something.
const PAUSE: Duration = Duration::from_secs(1);
const OTHER: &str = "somebody else has changed the epochs of this topology: does it run twice?";
