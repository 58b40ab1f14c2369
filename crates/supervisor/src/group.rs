//! The workers of one topology: how many there are, which tasks they have, how tasks move, how all end together. No I/O; time is an argument.
//!
//! ```text
//!  Running <--------------------- all have ended, and others follow ---+
//!     | kill, restart                                                  |
//!     v                  quiet in two rounds, or the wait is over      |
//!  Draining (rounds of questions) ------------------------------> Closing --all have ended--> Ended
//! ```
//!
//! A worker by itself is a [`Lifecycle`]. While the group runs, one task at a time moves to where it is to be:
//!
//! ```text
//!  hold -> all;  released <- where it was  (or its worker has died)
//!  adopt -> where it is to be, place -> all others;  adopted, placed <- each one
//!  resume -> all
//! ```
//!
//! With exactly-once all tasks begin anew at once, as they do when anything is lost: the worker that has the coordinator of epochs tells the others where.
//!
//! ```text
//!  deal -> the coordinator's worker;  dealt <- it
//! ```
//!
//! Invariants
//!   1. A task is in one worker at a time: it starts elsewhere after its end was told, or after the end of its worker.
//!   2. Each start of a task has a higher number than the ones before.
//!   3. A task that has moved does nothing before all workers know its place: what it asks for would be answered elsewhere.
//!   4. A worker is ended for good only when it has no task, and finishes what others are to get of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use topology::Plan;
use topology::assignment::Assignment;
use topology::definition::Guarantee;
use topology::ids::{TaskId, WorkerId};

use crate::drain::Drain;
use crate::lifecycle::{Action, Lifecycle, State};
use crate::messages::{Order, Peer, Share, Word};

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// `None`: nobody knows its tasks, and one worker has all.
    pub(crate) plan: Option<Arc<Plan>>,
    pub(crate) workers: u32,
    pub(crate) is_active: bool,
}

/// The workers of one topology.
#[derive(Debug)]
pub(crate) struct Group {
    wanted: Wanted,
    members: BTreeMap<u32, Member>,
    phase: Phase,
    /// The worker of each task, and where it is to be.
    places: Vec<u32>,
    targets: Vec<u32>,
    moving: Option<Moving>,
    /// Starts so far, of workers and of tasks that have moved.
    starts: u32,
    secret: String,
    /// Of workers that are gone.
    former_restarts: u64,
    last_error: Option<String>,
}

/// A worker.
#[derive(Debug)]
struct Member {
    lifecycle: Lifecycle,
    /// Told to listen, and where it does.
    has_listen_order: bool,
    address: Option<String>,
    orders: VecDeque<Order>,
}

#[derive(Debug)]
enum Phase {
    Running,
    Draining(Drain, After),
    Closing(After),
    Ended,
}

/// What follows the end of all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Restart,
    End,
    /// In a hurry.
    Stop,
}

/// A task that moves.
#[derive(Debug, PartialEq, Eq)]
enum Moving {
    /// It finishes what it has.
    Holding { task: u32, to: u32 },
    /// It has a new place, which these workers do not know yet.
    Settling { task: u32, to: u32, unaware: BTreeSet<u32> },
    /// With exactly-once: all tasks begin anew, at these places.
    Dealing { places: Vec<u32> },
}

impl Group {
    /// Workers that are to be started now; `secret` is what they know of each other.
    pub(crate) fn new(now: Nanos, wanted: Wanted, secret: String) -> Self {
        let mut group = Self {
            wanted,
            members: BTreeMap::new(),
            phase: Phase::Running,
            places: Vec::new(),
            targets: Vec::new(),
            moving: None,
            starts: 0,
            secret,
            former_restarts: 0,
            last_error: None,
        };
        group.begin(now);
        group
    }

    fn begin(&mut self, now: Nanos) {
        self.phase = Phase::Running;
        self.moving = None;
        self.places = self.dealt(None);
        self.targets = self.places.clone();
        self.hire(now);
    }

    /// Where tasks are to be.
    fn dealt(&self, before: Option<&Assignment>) -> Vec<u32> {
        let Some(plan) = &self.wanted.plan else { return Vec::new() };
        let workers: Vec<WorkerId> = (0..self.workers()).map(WorkerId).collect();
        let assignment = Assignment::new(plan, &workers, before);
        (0..plan.tasks_count()).map(|task| assignment.worker(TaskId(task)).0).collect()
    }

    /// How many workers there are to be: no more than have something to do.
    fn workers(&self) -> u32 {
        let most = self.wanted.plan.as_ref().map_or(1, |plan| plan.executors_count());
        self.wanted.workers.clamp(1, most.max(1))
    }

    /// Sees that there are as many workers as there are to be.
    fn hire(&mut self, now: Nanos) {
        for worker in 0..self.workers() {
            let is_active = self.wanted.is_active;
            self.members.entry(worker).or_insert_with(|| Member::new(now, is_active));
        }
    }

    // ---- what is asked for ---------------------------------------------------------------------------

    /// Whether spouts are to emit.
    pub(crate) fn set_active(&mut self, is_active: bool) {
        self.wanted.is_active = is_active;
        self.members.values_mut().for_each(|member| member.lifecycle.set_active(is_active));
    }

    /// Ends it: what is under way is finished, for at most `wait`.
    pub(crate) fn kill(&mut self, now: Nanos, wait: Duration) {
        self.end(now, wait, After::End);
    }

    /// Has other workers follow these, which finish what is under way for at most `wait`.
    pub(crate) fn restart(&mut self, now: Nanos, wait: Duration) {
        self.end(now, wait, After::Restart);
    }

    /// Has the workers of another definition follow these: also after a kill.
    pub(crate) fn replace(&mut self, now: Nanos, wait: Duration, wanted: Wanted) {
        self.set_active(wanted.is_active);
        self.wanted = wanted;
        self.last_error = None;
        self.end(now, wait, After::Restart);
        if let Phase::Draining(_, after) | Phase::Closing(after) = &mut self.phase {
            *after = After::Restart;
        }
    }

    /// Ends it as [`Group::kill`] does, because the server stops: workers are killed soon after `wait`.
    pub(crate) fn stop(&mut self, now: Nanos, wait: Duration) {
        self.end(now, wait, After::Stop);
        if let Phase::Closing(_) = self.phase {
            self.members.values_mut().for_each(|member| member.lifecycle.stop(now, wait));
        }
    }

    /// Has `workers` workers, or as many as now, share the tasks evenly: these move one by one, while all others go on.
    pub(crate) fn rebalance(&mut self, now: Nanos, workers: Option<u32>) {
        self.wanted.workers = workers.unwrap_or(self.wanted.workers);
        if let (Phase::Running, Some(plan)) = (&self.phase, &self.wanted.plan) {
            let at = |task: TaskId| WorkerId(self.places[task.0 as usize]);
            let before = Assignment::of(plan, at);
            self.targets = self.dealt(Some(&before));
            self.hire(now);
        }
    }

    fn end(&mut self, now: Nanos, wait: Duration, after: After) {
        match &mut self.phase {
            Phase::Running if self.members.len() == 1 => {
                // It knows by itself when nothing is under way.
                self.phase = Phase::Closing(after);
                self.members.values_mut().for_each(|member| member.lifecycle.kill(now, wait));
            }
            Phase::Running => {
                self.phase = Phase::Draining(Drain::new(now, now + wait), after);
                self.members.values_mut().for_each(|member| member.say(Order::Drain));
            }
            Phase::Draining(drain, then) => {
                drain.hurry(now + wait);
                *then = (*then).or(after);
            }
            Phase::Closing(then) => {
                *then = (*then).or(after);
                self.members.values_mut().for_each(|member| member.lifecycle.kill(now, wait));
            }
            Phase::Ended => {}
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------

    /// What a worker that is started now has.
    pub(crate) fn share(&mut self, worker: u32) -> Share {
        self.starts += 1;
        let held = match &self.moving {
            Some(Moving::Holding { task, .. } | Moving::Settling { task, .. }) => vec![*task],
            Some(Moving::Dealing { .. }) | None => Vec::new(),
        };
        let (secret, places) = (self.secret.clone(), self.places.clone());
        Share { worker, start: self.starts, secret, url: None, places, held }
    }

    /// Whether spouts of a worker that is started now emit.
    pub(crate) fn starts_active(&self) -> bool {
        self.wanted.is_active && matches!(self.phase, Phase::Running)
    }

    /// A worker was started.
    pub(crate) fn on_started(&mut self, now: Nanos, worker: u32) {
        let is_draining = matches!(self.phase, Phase::Draining(..));
        let Some(member) = self.members.get_mut(&worker) else { return };
        member.forget();
        member.lifecycle.on_started(now);
        if is_draining {
            member.say(Order::Drain);
        }
    }

    /// A worker could not be started.
    pub(crate) fn on_start_failed(&mut self, now: Nanos, worker: u32, why: String) {
        self.blame(worker, |life| life.on_start_failed(now, why));
    }

    /// A worker said how it is.
    pub(crate) fn on_status(&mut self, now: Nanos, worker: u32) {
        self.members.get_mut(&worker).into_iter().for_each(|member| member.lifecycle.on_status(now));
    }

    /// A worker has done what it may not.
    pub(crate) fn on_misuse(&mut self, now: Nanos, worker: u32, why: String) {
        self.blame(worker, |life| life.on_misuse(now, why));
    }

    /// A worker has ended, and nothing is left of it.
    pub(crate) fn on_exit(&mut self, now: Nanos, worker: u32, why: String) {
        self.blame(worker, |life| life.on_exit(now, why));
        self.members.get_mut(&worker).into_iter().for_each(Member::forget);
        if let Phase::Draining(drain, _) = &mut self.phase {
            drain.begin_anew();
        }
        match &mut self.moving {
            // Its end is that of its tasks.
            Some(Moving::Holding { task, to }) if self.places[*task as usize] == worker => {
                let (task, to) = (*task, *to);
                self.settle(task, to);
            }
            Some(Moving::Settling { to, unaware, .. }) if *to != worker => {
                unaware.remove(&worker);
            }
            // Its next one begins with the tasks there.
            Some(Moving::Dealing { .. }) if worker == COORDINATOR => self.end_deal(),
            _ => {}
        }
    }

    /// A worker has said something else.
    pub(crate) fn on_word(&mut self, now: Nanos, worker: u32, word: Word) {
        match word {
            Word::Listening { address } => self.on_listening(worker, address),
            Word::Released { task } => match self.moving {
                Some(Moving::Holding { task: moving, to }) if moving == task => self.settle(task, to),
                _ => {}
            },
            Word::Adopted { task } | Word::Placed { task } => match &mut self.moving {
                Some(Moving::Settling { task: moving, unaware, .. }) if *moving == task => {
                    unaware.remove(&worker);
                }
                _ => {}
            },
            Word::Dealt => self.end_deal(),
            Word::Tapped { .. } => unreachable!("looks are the entry's"),
            Word::Quiet { round, received } => {
                if let Phase::Draining(drain, _) = &mut self.phase {
                    drain.on_answer(now, worker, round, received);
                }
            }
        }
    }

    /// Changes a worker's life by what may be a fault.
    fn blame(&mut self, worker: u32, change: impl FnOnce(&mut Lifecycle)) {
        if let Some(member) = self.members.get_mut(&worker) {
            change(&mut member.lifecycle);
            self.last_error = member.lifecycle.last_error().map(str::to_owned).or(self.last_error.take());
        }
    }

    /// All who listen are told of this one, and it of them.
    fn on_listening(&mut self, worker: u32, address: String) {
        let here = Peer { worker, address: address.clone() };
        let mut others = Vec::new();
        for (&other, member) in self.members.iter_mut().filter(|(other, _)| **other != worker) {
            if let Some(address) = member.address.clone().filter(|_| member.lifecycle.is_running()) {
                others.push(Peer { worker: other, address });
                member.say(Order::Peers(vec![here.clone()]));
            }
        }
        if let Some(member) = self.members.get_mut(&worker) {
            member.address = Some(address);
            member.say(Order::Peers(others));
        }
        if let Some(Moving::Settling { to, unaware, .. }) = &mut self.moving
            && *to == worker
        {
            // It has started with the task.
            unaware.remove(&worker);
        }
    }

    // ---- moves -----------------------------------------------------------------------------------------

    /// A task that has ended gets its new place.
    fn settle(&mut self, task: u32, to: u32) {
        self.places[task as usize] = to;
        self.starts += 1;
        let mut unaware = BTreeSet::from([to]);
        for (&worker, member) in self.members.iter_mut().filter(|(_, member)| member.lifecycle.is_running()) {
            unaware.insert(worker);
            member.say(if worker == to {
                Order::Adopt { task, start: self.starts }
            } else {
                Order::Place { task, worker: to }
            });
        }
        self.moving = Some(Moving::Settling { task, to, unaware });
    }

    /// Ends a move that all know of, and begins the next one.
    fn advance_moves(&mut self, now: Nanos) {
        if let Some(Moving::Settling { task, unaware, .. }) = &self.moving
            && unaware.is_empty()
        {
            let order = Order::Resume { task: *task };
            self.moving = None;
            self.say_all(&order);
        }
        if self.moving.is_some() || !matches!(self.phase, Phase::Running) {
            return;
        }
        if self.is_exactly_once() {
            return self.advance_deal(now);
        }
        let mut tasks = (0..).zip(self.places.iter().zip(&self.targets)).filter(|(_, (at, to))| at != to);
        match tasks.find(|(_, (at, to))| self.can_move(**at, **to)).map(|(task, (at, to))| (task, *at, *to)) {
            Some((task, at, to)) if self.members.get(&at).is_some_and(|it| it.lifecycle.is_running()) => {
                self.moving = Some(Moving::Holding { task, to });
                self.say_all(&Order::Hold { task });
            }
            // Its worker is dead, and so is it.
            Some((task, _, to)) => self.settle(task, to),
            None => self.dismiss(now),
        }
    }

    /// Begins to deal all tasks anew, when all workers that are to have any are there.
    fn advance_deal(&mut self, now: Nanos) {
        if self.places == self.targets {
            return self.dismiss(now);
        }
        let is_there = |worker: &u32| self.members.get(worker).is_some_and(|member| member.address.is_some());
        if is_there(&COORDINATOR) && self.targets.iter().all(is_there) {
            let places = self.targets.clone();
            if let Some(member) = self.members.get_mut(&COORDINATOR) {
                member.say(Order::Deal { places: places.clone() });
                self.moving = Some(Moving::Dealing { places });
            }
        }
    }

    /// All tasks are where they were dealt.
    fn end_deal(&mut self) {
        if let Some(Moving::Dealing { places }) =
            self.moving.take_if(|it| matches!(it, Moving::Dealing { .. }))
        {
            self.places = places;
        }
    }

    fn is_exactly_once(&self) -> bool {
        let guarantee = self.wanted.plan.as_ref().map(|plan| plan.settings().guarantee);
        guarantee == Some(Guarantee::ExactlyOnce)
    }

    /// Whether a task can leave one worker for another: who starts or ends just now is waited for.
    fn can_move(&self, from: u32, to: u32) -> bool {
        let is_there = |worker| self.members.get(&worker).is_some_and(|member| member.address.is_some());
        let is_dead =
            || self.members.get(&from).is_none_or(|member| member.lifecycle.state() == State::Waiting);
        is_there(to) && (is_there(from) || is_dead())
    }

    /// Ends workers that are too many and have no task.
    fn dismiss(&mut self, now: Nanos) {
        let workers = self.workers();
        for (&worker, member) in self.members.range_mut(workers..) {
            if !self.places.contains(&worker) && member.lifecycle.state() != State::Killed {
                member.lifecycle.kill(now, DISMISS_WAIT);
            }
        }
        // One that was not there has ended with that.
        self.remove_ended(now);
    }

    fn say_all(&mut self, order: &Order) {
        let running = self.members.values_mut().filter(|member| member.lifecycle.is_running());
        running.for_each(|member| member.say(order.clone()));
    }

    // ---- what is to be done ----------------------------------------------------------------------------

    /// What is to be done now, and with which worker. Call until there is nothing.
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<(u32, Action)> {
        self.remove_ended(now);
        self.advance_end(now);
        self.advance_moves(now);
        let listens = self.members.len() > 1;
        for (&worker, member) in &mut self.members {
            if listens
                && member.lifecycle.is_running()
                && !std::mem::replace(&mut member.has_listen_order, true)
            {
                member.orders.push_front(Order::Listen);
            }
            if let Some(order) = member.orders.pop_front() {
                return Some((worker, Action::Tell(order)));
            }
            if let Some(action) = member.lifecycle.poll(now) {
                return Some((worker, action));
            }
        }
        None
    }

    /// Forgets workers that have ended for good; what follows the last one.
    fn remove_ended(&mut self, now: Nanos) {
        let Self { members, former_restarts, .. } = self;
        members.retain(|_, member| {
            let is_gone = member.lifecycle.state() == State::Gone;
            *former_restarts += if is_gone { member.lifecycle.restarts() } else { 0 };
            !is_gone
        });
        match self.phase {
            Phase::Running => self.hire(now),
            Phase::Closing(After::Restart) if self.members.is_empty() => self.begin(now),
            Phase::Closing(_) if self.members.is_empty() => self.phase = Phase::Ended,
            _ => {}
        }
    }

    fn advance_end(&mut self, now: Nanos) {
        let Phase::Draining(drain, after) = &mut self.phase else { return };
        let running = self.members.values().filter(|member| member.lifecycle.is_running()).count();
        if drain.is_over(now) || running == 0 {
            let after = *after;
            self.phase = Phase::Closing(after);
            for member in self.members.values_mut() {
                match after {
                    After::Stop => member.lifecycle.stop(now, Duration::ZERO),
                    After::Restart | After::End => member.lifecycle.kill(now, Duration::ZERO),
                }
            }
        } else if running == self.members.len()
            && let Some(round) = drain.poll_question(now, running)
        {
            self.say_all(&Order::Ask { round });
        }
    }

    /// When there may be something to be done, if nothing happens before.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        let all_run = self.members.values().all(|member| member.lifecycle.is_running());
        let drain = match &self.phase {
            Phase::Draining(drain, _) => Some(drain.next_due(all_run)),
            _ => None,
        };
        self.members.values().filter_map(|member| member.lifecycle.next_due()).chain(drain).min()
    }

    // ---- what it is ------------------------------------------------------------------------------------

    /// What it is doing.
    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Ended => State::Gone,
            Phase::Draining(_, After::Restart) | Phase::Closing(After::Restart) => State::Restarting,
            Phase::Draining(..) | Phase::Closing(_) => State::Killed,
            Phase::Running => {
                let is_running = |member: &Member| member.lifecycle.is_running();
                let is_moving = self.places != self.targets || self.members.len() as u32 != self.workers();
                match self.members.values().any(is_running) {
                    false => State::Waiting,
                    true if is_moving || self.moving.is_some() => State::Rebalancing,
                    true if self.wanted.is_active => State::Active,
                    true => State::Inactive,
                }
            }
        }
    }

    /// The definition that runs, if somebody knows it.
    pub(crate) fn plan(&self) -> Option<&Arc<Plan>> {
        self.wanted.plan.as_ref()
    }

    /// Tells a worker something, if it runs.
    pub(crate) fn tell(&mut self, worker: u32, order: Order) {
        if let Some(member) = self.members.get_mut(&worker).filter(|member| member.lifecycle.is_running()) {
            member.say(order);
        }
    }

    /// The workers that run.
    pub(crate) fn running(&self) -> Vec<u32> {
        let running = self.members.iter().filter(|(_, member)| member.lifecycle.is_running());
        running.map(|(&worker, _)| worker).collect()
    }

    /// Its workers, each with its restarts and how many tasks it has.
    pub(crate) fn workers_now(&self) -> impl Iterator<Item = (u32, u64, usize)> {
        self.members.iter().map(|(&worker, member)| {
            let tasks = self.places.iter().filter(|place| **place == worker).count();
            (worker, member.lifecycle.restarts(), tasks)
        })
    }

    /// How often workers were started again after a fault.
    pub(crate) fn restarts(&self) -> u64 {
        self.former_restarts + self.members.values().map(|member| member.lifecycle.restarts()).sum::<u64>()
    }

    /// Why the last worker that failed did.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
}

impl Member {
    fn new(now: Nanos, is_active: bool) -> Self {
        let lifecycle = Lifecycle::new(now, is_active);
        Self { lifecycle, has_listen_order: false, address: None, orders: VecDeque::new() }
    }

    fn say(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Its process is another one, or none.
    fn forget(&mut self) {
        (self.has_listen_order, self.address) = (false, None);
        self.orders.clear();
    }
}

impl After {
    /// Nothing takes back a kill, but a replacement.
    fn or(self, other: Self) -> Self {
        if self == Self::Restart || other == Self::Stop { other } else { self }
    }
}

/// The worker that has the coordinator of epochs.
const COORDINATOR: u32 = 0;
/// What a worker without tasks may take until the others have got all of it.
const DISMISS_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
