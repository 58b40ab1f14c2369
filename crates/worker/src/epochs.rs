//! Exactly-once: a thread of one worker that has the coordinator of epochs, a connection to the store, and an inbox where all workers tell it what tasks have done.
//!
//! ```text
//!  connected -> take over -> begin a generation -> Prepare -> all workers ready -> Go ... Barrier -> captures -> one step -> Durable, Barrier ...
//!      ^                         ^ a tuple failed, a worker was started anew, tasks are dealt anew       |
//!      '---- connection lost, step refused: after a pause, from what the store has --------------------'
//! ```
//!
//! | module | what |
//! |---|---|
//! | `ledger` | what the server keeps, and the requests that change it |
//! | `inbox` | where messages wait for the coordinator, and how tasks of all workers reach it |
//! | `member` | each worker's part: it does what the coordinator wants |
//!
//! Invariants
//!   1. A generation is known to the store before a task of it is made: none has the number of an earlier one, of whatever process.
//!   2. What tasks of another generation tell is not heard, but for whose fault it was that the last one ended.
//!   3. A generation has one place for each task: the beginning that goes to all workers says where.
//!
//! Source: docs/adr/0045-exactly-once-in-a-worker.md.

pub(crate) mod inbox;
mod ledger;
pub(crate) mod member;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Nanos};
use connection::{Event, Link, Options, Target};
use resp::Value as Reply;
use topology::Plan;
use topology::anchor::Ancestor;
use topology::builder::Program;
use topology::changes::Command;
use topology::epochs::{Action, Beginning, EpochMessage, EpochReport, EpochStore, Epochs, Group, Order};
use topology::ids::{ComponentId, TaskId, WorkerId};
use topology::parcel::Epoch;
use topology::past::Former;
use topology::tracker::{Original, Position};
use topology::wire::encode_epoch_message;

use crate::links::{Links, MESSAGE_BYTES_MAX};
use crate::part::{Move, Moves, Part};
use crate::stats::Board;
use crate::sync::lock;
use inbox::{COORDINATOR, CoordinatorInbox, Incoming};
use ledger::{Asks, Ending, Known, Ledger, Originals, Refused, Request, SHOWN_BYTES_MAX, Saved};
use member::Member;

/// The coordinator's thread.
pub(crate) struct Coordinator {
    plan: Arc<Plan>,
    clock: Arc<dyn Clock>,
    board: Arc<Board>,
    inbox: Arc<CoordinatorInbox>,
    member: Arc<Member>,
    links: Arc<dyn Links>,
    moves: Moves,
    /// Where each task is, from the next generation on.
    places: Vec<WorkerId>,
    /// The owner waits to be told that tasks work at these places.
    is_dealing: bool,
    /// Workers with tasks of the generation that was prepared last.
    workers: BTreeSet<WorkerId>,
    /// The generation of which workers were told last.
    prepared: u32,
    /// Why the last generation came to its end.
    cause: String,
    phase: Phase,
    steps: Steps,
    /// Tuples that each task of a spout may have under way, if epochs were too large with as many as the definition allows.
    pending_max: Option<u32>,
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
    owed: VecDeque<PendingStep>,
    /// Generations of steps after which the store is to say the same.
    said: VecDeque<u32>,
    positions: BTreeMap<TaskId, Position>,
    /// Those of spouts that had other numbers of tasks.
    former: BTreeMap<ComponentId, Vec<Former>>,
    /// Fields of the hash that say nothing any more: they go with the next generation.
    outdated: Vec<Bytes>,
    durable: Epoch,
    /// Why the store did not queue commands of the step that is under way, by their places.
    refused: Refused,
    /// Commands of the last epoch that it has refused, while spouts are asked for the tuples that they come from.
    refusal: Option<Refusal>,
    /// Letters of an epoch that is durable, which the connection did not take.
    unsent: Vec<Request>,
    /// Why it did not take another request of it.
    complaint: Option<String>,
    /// Bytes that a word of a command may have, and what the store has said of a longer one, for which it closes the connection.
    word_max: Option<(usize, String)>,
}

/// Commands that the store has refused.
#[derive(Debug)]
struct Refusal {
    epoch: Epoch,
    ending: Box<Ending>,
    refused: Refused,
    /// All else of the epoch is durable; or nothing of it.
    is_durable: bool,
    /// Bytes of a letter, about.
    bytes_max: usize,
    /// Tuples that are not known, and when asking for them is given up; `None`: they were not asked for.
    missing: BTreeSet<Ancestor>,
    deadline: Option<Nanos>,
    originals: Originals,
}

/// A step without a reply.
#[derive(Debug)]
enum PendingStep {
    Begin(u32),
    End(Epoch, Box<Ending>),
}

impl Coordinator {
    /// A coordinator of `program`, with what the store at `target` has. It is in the worker of `member`, and hears through `inbox`.
    ///
    /// # Errors
    /// The system has no thread. A store that cannot be reached is tried again.
    pub(crate) fn new(
        program: &Program,
        clock: &Arc<dyn Clock>,
        board: &Arc<Board>,
        member: &Arc<Member>,
        inbox: &Arc<CoordinatorInbox>,
        part: &Part,
        target: &Target,
    ) -> io::Result<Self> {
        let (bell, plan) = (Arc::clone(inbox), program.plan());
        let steps = Steps {
            plan: Arc::clone(plan),
            ledger: Ledger::new(program),
            link: Link::start_at(target, Options::named("epochs-link"), Arc::clone(clock), move || {
                bell.ring();
            })?,
            life: None,
            owed: VecDeque::new(),
            said: VecDeque::new(),
            positions: BTreeMap::new(),
            former: BTreeMap::new(),
            outdated: Vec::new(),
            durable: Epoch(0),
            refused: BTreeMap::new(),
            refusal: None,
            unsent: Vec::new(),
            complaint: None,
            word_max: None,
        };
        Ok(Self {
            plan: Arc::clone(plan),
            clock: Arc::clone(clock),
            board: Arc::clone(board),
            inbox: Arc::clone(inbox),
            member: Arc::clone(member),
            links: Arc::clone(&part.links),
            moves: Arc::clone(&part.moves),
            places: part.places.clone(),
            is_dealing: false,
            workers: BTreeSet::new(),
            prepared: 0,
            cause: String::new(),
            phase: Phase::Waiting(None),
            steps,
            pending_max: None,
            generation: 0,
        })
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
            self.ask_for_tuples(now);
            self.act(now);
        }
    }

    fn on_message(&mut self, now: Nanos, message: Incoming) {
        if let Incoming::Dealt(places) = message {
            return self.on_dealt(now, places);
        }
        let Phase::Running(epochs) = &mut self.phase else { return };
        match message {
            Incoming::Report(_, EpochReport::Recalled { originals, .. }) => self.on_recalled(now, originals),
            Incoming::Report(worker, told) => {
                if told.generation() == epochs.generation() {
                    self.cause = cause(&self.plan, &told).unwrap_or(std::mem::take(&mut self.cause));
                }
                epochs.on_report(now, worker, told, &mut self.steps);
            }
            Incoming::NewPeer(worker) if self.workers.contains(&worker) => {
                self.cause = format!("{worker} was started anew");
                if epochs.on_new_worker(now, worker) && self.prepared == epochs.generation() {
                    let beginning = self.steps.beginning(epochs, &self.places);
                    let beginning = Beginning { pending_max: self.pending_max, ..beginning };
                    self.order(&BTreeSet::from([worker]), &Order::Prepare(beginning));
                }
            }
            Incoming::NewPeer(_) | Incoming::Dealt(_) => {}
        }
    }

    /// Tasks are to be at other places: in the next generation, which begins behind the epoch that is under way.
    fn on_dealt(&mut self, now: Nanos, places: Vec<WorkerId>) {
        (self.places, self.is_dealing) = (places, true);
        let workers = self.workers_wanted();
        if let Phase::Running(epochs) = &mut self.phase {
            epochs.rebalance(now, &workers);
        }
    }

    fn workers_wanted(&self) -> Vec<WorkerId> {
        let workers: BTreeSet<WorkerId> = self.places.iter().copied().collect();
        workers.into_iter().collect()
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
                    self.complain_of_no_epoch(&format!("the store of epochs: {why}"));
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
            (Asks::Queued(place), Reply::Error(text)) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                if let Some(most) = number_in(&text, "value.max (") {
                    self.steps.word_max = Some((most, text.clone()));
                }
                self.steps.refused.insert(place, text);
                Ok(())
            }
            (Asks::Nothing | Asks::Queued(_), _) => Ok(()),
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
        let (complaint, refused) = (self.steps.complaint.take(), std::mem::take(&mut self.steps.refused));
        let replies = match reply {
            Reply::Array(replies) => replies,
            Reply::Null => return Err(OTHER.to_owned()),
            Reply::Error(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                return self.on_refusal(now, owed, refused, complaint.unwrap_or(text));
            }
            other => return Err(format!("the store answered {other:?} to EXEC")),
        };
        match owed {
            PendingStep::Begin(generation) => self.prepare(generation),
            PendingStep::End(epoch, ending) => {
                lock(&self.board.epochs).clear();
                let replies = (0..).zip(replies).filter(|(place, _)| ending.has_command(*place));
                let refused: Refused =
                    replies.filter_map(|(place, reply)| Some((place, error_text(reply)?))).collect();
                self.steps.refusal = Some(Refusal::new(epoch, ending, refused, true));
                if self.steps.has_nothing_to_ask() {
                    self.settle(now);
                }
            }
        }
        Ok(())
    }

    /// The store has done nothing of a step. If that is for some of its commands, these are given up, and the rest is asked for again: in another generation they would be
    /// refused again. Nothing may have been asked for behind the step: what that says holds for the state without it.
    fn on_refusal(
        &mut self,
        now: Nanos,
        owed: PendingStep,
        mut refused: Refused,
        why: String,
    ) -> Result<(), String> {
        let why = refused.values().next().cloned().unwrap_or(why);
        let whole = || Err(format!("the store refused an epoch: {why}"));
        let PendingStep::End(epoch, ending) = owed else { return whole() };
        if refused.values().any(|error| is_passing(error)) || !self.steps.owed.is_empty() {
            return whole();
        }
        let mut bytes_max = SHOWN_BYTES_MAX;
        if let Some(most) =
            refused.values().find_map(|error| number_in(error, "larger than transaction.max ("))
        {
            // All behind the one with which it was too much are said to be queued.
            match too_large(&ending, most, self.pending_max == Some(1)) {
                places if places.is_empty() => return self.make_epochs_smaller(now, &why),
                places => refused = places.into_iter().map(|place| (place, why.clone())).collect(),
            }
            bytes_max = bytes_max.min(most / 8);
        }
        if refused.is_empty() {
            return whole();
        }
        self.steps.refusal = Some(Refusal { bytes_max, ..Refusal::new(epoch, ending, refused, false) });
        Ok(())
    }

    /// Asks spouts for the tuples of which commands were refused, once.
    fn ask_for_tuples(&mut self, now: Nanos) {
        let Some(refusal) = self.steps.refusal.as_mut().filter(|refusal| refusal.deadline.is_none()) else {
            return;
        };
        refusal.deadline = Some(now + self.plan.settings().message_timeout);
        let generation = refusal.ending.generation();
        let ancestors: Vec<Ancestor> = refusal.missing.iter().copied().collect();
        let are_there = matches!(&self.phase, Phase::Running(epochs) if epochs.generation() == generation);
        if ancestors.is_empty() || !are_there {
            return self.settle(now);
        }
        self.order(&self.workers, &Order::Recall { generation, ancestors });
    }

    /// Spouts have told which tuples these are.
    fn on_recalled(&mut self, now: Nanos, originals: Vec<(Ancestor, Option<Original>)>) {
        let Some(refusal) = &mut self.steps.refusal else { return };
        for (ancestor, original) in originals {
            refusal.missing.remove(&ancestor);
            refusal.originals.extend(original.map(|original| (ancestor, original)));
        }
        if refusal.missing.is_empty() {
            self.settle(now);
        }
    }

    /// Writes letters for what was refused, with what is known of the tuples.
    fn settle(&mut self, now: Nanos) {
        let Some(refusal) = self.steps.refusal.take() else { return };
        let Refusal { epoch, mut ending, refused, is_durable, bytes_max, originals, .. } = refusal;
        if let Some((_, why)) = refused.first_key_value() {
            let names = ending.names(&refused);
            self.complain(&format!("the store refused {names}, which is with the dead letters now: {why}"));
        }
        let plan = Arc::clone(&self.plan);
        let known = Known { originals: &originals, bytes_max };
        if !is_durable {
            self.steps.ledger.give_up(&plan, &mut ending, &refused, known);
            return self.steps.end(epoch, ending);
        }
        // With the others they cannot be taken back.
        let letters = self.steps.ledger.letters_of(&plan, &mut ending, &refused, known);
        self.steps.write(letters);
        self.steps.durable = epoch;
        if let Phase::Running(epochs) = &mut self.phase {
            epochs.on_store(now, &mut self.steps);
        }
    }

    /// What tuples have changed together is more than the store takes at once: tasks begin anew, and spouts have half as many tuples under way.
    fn make_epochs_smaller(&mut self, now: Nanos, why: &str) -> Result<(), String> {
        let pending = self.pending_max.unwrap_or(self.plan.settings().max_spout_pending).div_ceil(2);
        self.pending_max = Some(pending);
        self.begin_anew(
            now,
            &format!("an epoch is too large, and each task of a spout has at most {pending} tuples under way from now on: {why}"),
        );
        self.phase = Phase::Waiting(Some(now));
        Ok(())
    }

    fn take_over(&mut self) {
        self.steps.forget();
        self.phase = Phase::Asked;
        self.steps.write(Vec::new());
        self.steps.send(self.steps.ledger.take_over());
    }

    fn start(&mut self, now: Nanos, saved: Saved) {
        let Saved { generation, epoch, positions, former, outdated } = saved;
        (self.steps.former, self.steps.outdated) = (former, outdated);
        self.generation = self.generation.max(generation);
        (self.steps.positions, self.steps.durable) = (positions, epoch);
        let epochs = Epochs::new(now, &self.plan, &self.workers_wanted(), self.generation, epoch);
        self.phase = Phase::Running(Box::new(epochs));
    }

    /// Something is wrong that another generation alone does not mend: all begins from what the store has, after a pause.
    fn begin_anew(&mut self, now: Nanos, error: &str) {
        self.steps.forget();
        self.phase = Phase::Waiting(Some(now + PAUSE));
        self.complain_of_no_epoch(error);
    }

    fn on_time(&mut self, now: Nanos) {
        if self.steps.refusal_due().is_some_and(|due| due <= now) {
            self.settle(now);
        }
        match &mut self.phase {
            Phase::Waiting(Some(until)) if *until <= now => self.take_over(),
            Phase::Running(epochs) if epochs.next_due().is_some_and(|due| due <= now) => {
                "a worker did not answer within topology.message.timeout.secs".clone_into(&mut self.cause);
                epochs.on_time(now);
            }
            _ => {}
        }
    }

    fn until_due(&self) -> Option<Duration> {
        let due = match &self.phase {
            Phase::Waiting(until) => *until,
            Phase::Asked => None,
            Phase::Running(epochs) => epochs.next_due(),
        };
        due.into_iter().chain(self.steps.refusal_due()).min().map(|due| due.since(self.clock.now()))
    }

    /// Does what the epochs want.
    fn act(&mut self, now: Nanos) {
        while let Phase::Running(epochs) = &mut self.phase
            && let Some(action) = epochs.poll_action()
        {
            match &action {
                Action::Prepare { generation } => {
                    let generation = *generation;
                    self.generation = generation;
                    // The tasks that could tell are no more, and what was refused comes before what they do.
                    self.settle(now);
                    self.steps.begin(generation);
                }
                Action::Rest { pause, fruitless } => self.complain_of_no_epoch(&format!(
                    "all tasks wait for {} ms: {fruitless} times in a row they began anew and nothing came of it, the last time because {}",
                    pause.as_millis(),
                    self.cause
                )),
                Action::Stop => self.begin_anew(now, OTHER),
                Action::Go { .. } if std::mem::take(&mut self.is_dealing) => (self.moves)(Move::Dealt),
                Action::Go { .. } | Action::Barrier { .. } | Action::Durable { .. } => {}
            }
            if let Some(order) = action.order() {
                self.order(&self.workers, &order);
            }
        }
    }

    /// Has all tasks made anew, now that the store knows of their generation.
    fn prepare(&mut self, generation: u32) {
        let Phase::Running(epochs) = &self.phase else { return };
        if generation != epochs.generation() {
            return; // another one has begun since
        }
        let beginning = self.steps.beginning(epochs, &self.places);
        let beginning = Beginning { pending_max: self.pending_max, ..beginning };
        let workers = self.workers_wanted().into_iter().collect();
        // Those that have no task any more are to drop theirs.
        let all = &workers | &self.workers;
        (self.workers, self.prepared) = (workers, generation);
        self.order(&all, &Order::Prepare(beginning));
    }

    fn order(&self, workers: &BTreeSet<WorkerId>, order: &Order) {
        let mut bytes = Vec::new();
        for worker in workers {
            if *worker == COORDINATOR {
                self.member.obey(order.clone());
                continue;
            }
            if bytes.is_empty() {
                encode_epoch_message(&EpochMessage::Order(order.clone()), &mut bytes);
            }
            if bytes.len() > MESSAGE_BYTES_MAX as usize {
                let size = bytes.len();
                return self.complain(&format!(
                    "tuples that are to be skipped have {size} B, more than a worker can be sent ({MESSAGE_BYTES_MAX} B): lower topology.max.spout.pending"
                ));
            }
            self.links.tell(*worker, bytes.clone(), matches!(order, Order::Prepare(_)));
        }
    }

    /// Shows what is wrong as an error of the first spout.
    fn complain(&self, error: &str) {
        tracing::warn!(topology = self.plan.topology().name, error, "an epoch");
        if let Some(task) = self.plan.spout_tasks().next() {
            self.board.tasks[task.0 as usize].on_fault(self.clock.now(), error);
        }
    }

    /// The same of what keeps epochs from ending.
    fn complain_of_no_epoch(&self, error: &str) {
        self.complain(error);
        lock(&self.board.epochs).note(self.clock.now(), error);
    }
}

impl Steps {
    /// Whether all is known that can be of what was refused.
    fn has_nothing_to_ask(&self) -> bool {
        self.refusal.as_ref().is_none_or(|refusal| refusal.missing.is_empty())
    }

    /// When asking for tuples is given up.
    fn refusal_due(&self) -> Option<Nanos> {
        self.refusal.as_ref().and_then(|refusal| refusal.deadline)
    }

    fn send(&self, requests: Vec<Request>) {
        let Some(life) = self.life else { return };
        for Request { asks, words } in requests {
            // What is not sent is of a connection whose loss is about to be told.
            self.link.send(life, asks.token(), |out| resp::encode_command(out, &words));
        }
    }

    /// Writes letters of an epoch that is durable, and those that were not sent before.
    fn write(&mut self, letters: Vec<Command>) {
        self.unsent.extend(letters.into_iter().map(Request::of_nothing));
        if self.life.is_some() {
            let requests = std::mem::take(&mut self.unsent);
            self.send(requests);
        }
    }

    fn begin(&mut self, generation: u32) {
        self.owed.push_back(PendingStep::Begin(generation));
        self.said.push_back(generation);
        self.send(self.ledger.begin(generation, &self.outdated));
    }

    fn beginning(&self, epochs: &Epochs, places: &[WorkerId]) -> Beginning {
        Beginning::new(&self.plan, epochs, places, &self.positions, &self.former)
    }

    fn end(&mut self, epoch: Epoch, ending: Box<Ending>) {
        self.said.push_back(ending.generation());
        self.send(self.ledger.requests(&ending));
        self.owed.push_back(PendingStep::End(epoch, ending));
    }

    /// What is under way is of no interest any more.
    fn forget(&mut self) {
        self.owed.clear();
        self.said.clear();
        self.refused.clear();
        self.complaint = None;
        // Its epoch is not asked for again if it is durable, so its letters are to be written all the same.
        if let Some(mut refusal) = self.refusal.take_if(|refusal| refusal.is_durable) {
            let known = Known { originals: &refusal.originals, bytes_max: refusal.bytes_max };
            let letters = self.ledger.letters_of(&self.plan, &mut refusal.ending, &refusal.refused, known);
            self.unsent.extend(letters.into_iter().map(Request::of_nothing));
        }
        self.refusal = None;
    }
}

impl Refusal {
    fn new(epoch: Epoch, ending: Box<Ending>, refused: Refused, is_durable: bool) -> Self {
        let missing = ending.ancestors(&refused);
        let (bytes_max, deadline, originals) = (SHOWN_BYTES_MAX, None, Originals::new());
        Self { epoch, ending, refused, is_durable, bytes_max, missing, deadline, originals }
    }
}

impl EpochStore for Steps {
    fn append(&mut self, group: Group) -> Result<(), topology::epochs::Refused> {
        let ending = self.ledger.end(&self.plan, &group);
        let long = |(most, error): &(usize, String)| {
            let places = ending.places_with_words_beyond(*most);
            places.into_iter().map(|place| (place, error.clone())).collect::<Refused>()
        };
        let refused = self.word_max.as_ref().map(long).unwrap_or_default();
        let (epoch, ending) = (group.epoch, Box::new(ending));
        if refused.is_empty() {
            self.end(epoch, ending);
        } else {
            let most = self.word_max.as_ref().map_or(SHOWN_BYTES_MAX, |(most, _)| most / 8);
            let bytes_max = most.min(SHOWN_BYTES_MAX);
            self.refusal = Some(Refusal { bytes_max, ..Refusal::new(epoch, ending, refused, false) });
        }
        self.positions.extend(group.positions);
        Ok(()) // whether it was refused, the reply says
    }

    fn durable(&self) -> Epoch {
        self.durable
    }
}

fn error_text(reply: Reply) -> Option<String> {
    let Reply::Error(text) = reply else { return None };
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Why the generation of what is told comes to its end, if it does.
fn cause(plan: &Plan, told: &EpochReport) -> Option<String> {
    match told {
        EpochReport::Failed { failed: (_, failure), .. } => {
            Some(format!("a tuple failed at `{}`: {}", plan.component(failure.component).id, failure.error))
        }
        EpochReport::Lost { error, .. } => Some(error.clone()),
        _ => None,
    }
}

/// Whether an error passes without a change of the command.
fn is_passing(error: &str) -> bool {
    PASSING.iter().any(|code| error.split(' ').next() == Some(code))
}

/// The number in `error` behind `before`.
fn number_in(error: &str, before: &str) -> Option<usize> {
    error.split_once(before)?.1.split_once(' ')?.0.parse().ok()
}

/// The places of commands that are too large for a store that takes `most` bytes at once: those that are alone; and if epochs are not to become smaller, the
/// largest ones of those that are too many.
fn too_large(ending: &Ending, most: usize, is_smallest: bool) -> Vec<usize> {
    let sizes: Vec<usize> = ending.sizes().collect();
    let (fits, alone): (Vec<usize>, Vec<usize>) = (0..sizes.len()).partition(|place| sizes[*place] < most);
    if !alone.is_empty() || !is_smallest {
        return alone;
    }
    let (mut by_size, mut sum) = (fits, sizes.iter().sum::<usize>());
    by_size.sort_unstable_by_key(|place| std::cmp::Reverse(sizes[*place]));
    // Received take an eighth each at most.
    let mut places: Vec<usize> = Vec::new();
    for place in by_size {
        if sum <= most / 2 {
            break;
        }
        sum -= sizes[place];
        places.push(place);
    }
    places.sort_unstable();
    places
}

/// Errors that are not for the command.
const PASSING: [&str; 7] = ["LOADING", "OOM", "BUSY", "MISCONF", "NOAUTH", "READONLY", "TRYAGAIN"];
/// Pause after the store has refused something.
const PAUSE: Duration = Duration::from_secs(1);
const OTHER: &str = "somebody else has changed the epochs of this topology: does it run twice?";
