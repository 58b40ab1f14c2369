//! The connections of one process: opened together, driven phase by phase.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use reactor::{Balance, ConnectError, Connection, Dial, Handle, Options, Reactor};
use serde::{Deserialize, Serialize};

use super::load::Load;
use super::outcome::{GroupOutcome, Outcome, Row, Sparse};
use super::play::{Play, Playing};
use super::recorder::Recorder;
use super::script::Script;
use super::session::{Client, Message};
use super::source::Source;
use super::tally::{Failures, Tally};
use super::task::{Gate, Task};
use super::work::{Action, Group, KeyForm, Keys, Limit, Phase, Pick, Work};
use crate::Failure;
use connection::{Protocol, Target};

/// How a fleet connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetOptions {
    /// Connections.
    pub connections: usize,
    /// Loops, each a thread.
    pub loops: usize,
    /// Most time that a connection may take to open.
    pub connect_timeout: Duration,
    /// Own addresses to connect from, in turn: a server takes each for a host. None: the system chooses.
    pub from: Vec<IpAddr>,
}

impl FleetOptions {
    /// So many connections on one loop, with time for all that a machine with other work needs.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self { connections, loops: 1, connect_timeout: PATIENCE, from: Vec::new() }
    }
}

/// Open connections to a server.
#[derive(Debug)]
pub struct Fleet {
    handle: Handle<Client>,
    connections: Vec<Arc<Connection>>,
    /// Ids of those whose end was counted.
    gone: HashSet<u64>,
    loops: usize,
    protocol: Protocol,
    /// Connections that were not made.
    pub failures: Failures,
}

impl Fleet {
    /// Opens the connections, authenticates and selects the database. Some may fail: see [`Fleet::failures`].
    ///
    /// # Errors
    /// None could be opened, or the server refused the login.
    pub fn open(target: &Target, options: &FleetOptions) -> Result<Self, Failure> {
        let wanted = options.connections as u64 + DESCRIPTORS_BESIDE;
        let most = reactor::raise_descriptor_limit(wanted).map_err(|error| error.to_string())?;
        if most < wanted {
            return Err(format!(
                "{} connections need {wanted} descriptors, the system allows {most} (ulimit -n)",
                options.connections
            ));
        }
        let settings = Options {
            loops: options.loops,
            // What is measured is the server's balance: the load's connections stay where they are.
            balance: Balance { interval: None, ..Balance::default() },
            close_grace: Duration::from_millis(100),
            ..Options::default()
        };
        let handle = Reactor::start(settings, Arc::new(Client), Arc::new(SystemClock))
            .map_err(|error| error.to_string())?;
        let spread = spread_over_loopback(target, options.connections);
        let own = if options.from.is_empty() { &spread } else { &options.from };
        let dials = (0..options.connections).map(|index| Dial {
            from: (!own.is_empty()).then(|| own[index % own.len()]),
            loop_index: Some(index % options.loops),
            ..Dial::to(target.address)
        });
        let outcomes = handle.connect_all(dials.collect(), options.connect_timeout);
        let mut fleet = Self {
            handle,
            connections: Vec::new(),
            gone: HashSet::new(),
            loops: options.loops,
            protocol: target.protocol,
            failures: Failures::default(),
        };
        for outcome in outcomes {
            match outcome {
                Ok(connection) => fleet.connections.push(connection),
                Err(error) => fleet.count_failure(&error),
            }
        }
        if fleet.connections.is_empty() {
            let why = fleet.failures.first.take().unwrap_or_else(|| "no connection asked for".to_owned());
            return Err(format!("cannot connect to {target}: {why}"));
        }
        fleet.log_in(target)?;
        Ok(fleet)
    }

    /// Runs `phase`; `observe` gets the newest row of each group at every interval.
    ///
    /// # Errors
    /// The groups want more connections than there should be.
    pub fn run(&mut self, phase: &Phase, observe: &mut dyn FnMut(&[Row])) -> Result<Outcome, Failure> {
        let wanted: usize = phase.groups.iter().map(|group| group.connections).sum();
        if wanted > self.connections.len() + self.failures.count() as usize {
            return Err(format!("{wanted} connections wanted, {} open", self.connections.len()));
        }
        let start = SystemClock.now();
        let load = |group| Source::Load(Load::new(group, self.protocol, start));
        let sources = phase.groups.iter().map(load).collect();
        let run = Run::new(sources, start, phase.request_timeout, self.loops);
        Ok(self.drive(&run, phase.interval, observe))
    }

    /// Runs `groups` with `PATIENCE`, a row for each `interval`.
    ///
    /// # Errors
    /// Anything failed, also at the opening of the fleet: survivors mislead.
    pub fn measure(&mut self, groups: Vec<Group>, interval: Duration) -> Result<Outcome, Failure> {
        let outcome = self.run(&Phase { groups, request_timeout: PATIENCE, interval }, &mut |_| {})?;
        let mut failures = self.failures.clone();
        failures.add(&outcome.total().tally.failures);
        if failures.count() > 0 {
            return Err(format!("{} failures: {}", failures.count(), failures.first.unwrap_or_default()));
        }
        Ok(outcome)
    }

    /// Has each connection send `request`, which is encoded.
    ///
    /// # Errors
    /// As [`Fleet::measure`].
    pub fn each(&mut self, request: String) -> Result<(), Failure> {
        let keys = Keys { first: 0, count: 1, pick: Pick::Single, form: KeyForm::Decimal };
        let (work, connections) = (Work::new(Action::Send(request), keys, 0), self.connections.len());
        let group = Group { work, connections, depth: 1, limit: Limit::Each(1), per_second: None };
        let outcome = self.run(
            &Phase { groups: vec![group], request_timeout: PATIENCE, interval: PATIENCE },
            &mut |_| {},
        )?;
        let failures = outcome.total().tally.failures;
        if failures.count() > 0 { Err(failures.first.unwrap_or_default()) } else { Ok(()) }
    }

    /// Plays `script`, each of its connections on one of these; `observe` gets the newest row at every interval.
    pub fn play(
        &mut self,
        script: &Arc<Script>,
        playing: &Playing,
        observe: &mut dyn FnMut(&[Row]),
    ) -> Outcome {
        let Playing { speed, request_timeout, interval } = *playing;
        let play = Play::new(script, speed);
        let start = play.start;
        self.drive(&Run::new(vec![Source::Play(play)], start, request_timeout, self.loops), interval, observe)
    }

    fn drive(&mut self, run: &Run, interval: Duration, observe: &mut dyn FnMut(&[Row])) -> Outcome {
        let mut groups = vec![GroupOutcome::default(); run.tasks.len()];
        let members = self.deal(&run.tasks);
        let fleet = &*self;
        std::thread::scope(|scope| {
            for (task, members) in run.tasks.iter().zip(&members) {
                if let Some(plan) = task.source.plan() {
                    scope.spawn(move || fleet.pace(plan, members, &run.gate));
                }
            }
            let mut at = Duration::ZERO;
            let mut is_over = false;
            while !is_over {
                let next = at + interval;
                is_over = run.gate.wait(next.saturating_sub(SystemClock.now() - run.start));
                fleet.leave_for_the_gone(&run.tasks, &members);
                let now = if is_over { run.took() } else { SystemClock.now() - run.start };
                observe(&run.collect(&mut groups, now, now.saturating_sub(at)));
                at = now;
            }
        });
        for (task, members) in run.tasks.iter().zip(&members) {
            self.gone.extend(task.fallen().iter().map(|number| members[*number as usize].id()));
        }
        Outcome { groups, took: run.took() }
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.connections.iter().filter(|connection| !connection.is_closed()).count()
    }

    /// The own ports of the connections, in order: what a server calls them by.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<String> {
        self.connections.iter().map(|connection| connection.local().to_string()).collect()
    }

    /// Ends the connections of which `ends` says so, by their place.
    pub fn close(&mut self, mut ends: impl FnMut(usize) -> bool) {
        let mut index = 0;
        self.connections.retain(|connection| {
            let goes = ends(index);
            index += 1;
            if goes {
                connection.kill();
            }
            !goes
        });
    }

    fn count_failure(&mut self, error: &ConnectError) {
        match error {
            ConnectError::TimedOut(_) => self.failures.connect_timeouts += 1,
            _ => self.failures.refused += 1,
        }
        self.failures.say(|| format!("connecting: {error}"));
    }

    fn log_in(&mut self, target: &Target) -> Result<(), Failure> {
        for command in target.login() {
            self.each(command).map_err(|why| format!("cannot log in to {target}: {why}"))?;
        }
        Ok(())
    }

    /// Tells each connection what to do; those that are gone leave at once. Returns the members of each task.
    fn deal(&self, tasks: &[Arc<Task>]) -> Vec<Vec<Arc<Connection>>> {
        let mut rest = self.connections.iter();
        tasks
            .iter()
            .map(|task| {
                let members: Vec<_> = rest.by_ref().take(task.connections()).cloned().collect();
                for number in 0..task.connections() {
                    match members.get(number).filter(|member| !self.gone.contains(&member.id())) {
                        Some(member) => {
                            self.handle.post_to(member, Message::Start(Arc::clone(task), number as u64));
                        }
                        // It has ended, or was never made: it was counted when it failed.
                        None => task.leave(number as u64, 0, |tally| tally.absent += 1),
                    }
                }
                members
            })
            .collect()
    }

    /// A connection that ended before it heard of its task does not leave it.
    fn leave_for_the_gone(&self, tasks: &[Arc<Task>], members: &[Vec<Arc<Connection>>]) {
        for (task, members) in tasks.iter().zip(members) {
            for (number, member) in members.iter().enumerate() {
                if member.is_closed() && self.handle.connection(member.id()).is_none() {
                    task.leave(number as u64, 0, |Tally { failures, .. }| {
                        failures.disconnected += 1;
                        failures.say(|| "a connection had ended".to_owned());
                    });
                }
            }
        }
    }

    /// Wakes connections when their requests are due, until all have left.
    fn pace(&self, plan: impl Iterator<Item = (Nanos, usize)>, members: &[Arc<Connection>], gate: &Gate) {
        for (due, number) in plan {
            if gate.wait(due - SystemClock.now()) {
                return;
            }
            if let Some(member) = members.get(number) {
                self.handle.post_to(member, Message::Due(due));
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.handle.join();
    }
}

/// Own addresses for many connections to this machine. From one address to another the kernel looks for a free port one by
/// one: with most of 28,000 in use, a connection takes a millisecond of its time, and 19,000 take 17 s.
fn spread_over_loopback(target: &Target, connections: usize) -> Vec<IpAddr> {
    let is_many = connections > CONNECTIONS_OF_ADDRESS_MAX;
    if !is_many || target.address.ip() != IpAddr::V4(Ipv4Addr::LOCALHOST) {
        return Vec::new();
    }
    let count = connections.div_ceil(CONNECTIONS_OF_ADDRESS_MAX).min(250);
    (0..count).map(|index| IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1 + index as u8))).collect()
}

/// A phase under way.
struct Run {
    start: Nanos,
    tasks: Vec<Arc<Task>>,
    gate: Arc<Gate>,
}

impl Run {
    fn new(sources: Vec<Source>, start: Nanos, request_timeout: Duration, loops: usize) -> Self {
        let gate = Arc::new(Gate::new(sources.len()));
        let task = |source| Arc::new(Task::new(source, start, request_timeout, loops, &gate));
        Self { start, tasks: sources.into_iter().map(task).collect(), gate }
    }

    /// From the start to the last reply.
    fn took(&self) -> Duration {
        self.tasks.iter().map(|task| task.finished_at()).max().unwrap_or_default() - self.start
    }

    /// Takes what the loops recorded in the last `length`; returns the row of each group.
    fn collect(&self, groups: &mut [GroupOutcome], at: Duration, length: Duration) -> Vec<Row> {
        let tasks = self.tasks.iter().zip(groups);
        tasks.map(|(task, group)| collect(task.recorders(), group, at, length)).collect()
    }
}

/// Takes what loops recorded in the last `length`, and adds it to `group`.
fn collect(recorders: &[Mutex<Recorder>], group: &mut GroupOutcome, at: Duration, length: Duration) -> Row {
    let mut all = Recorder::default();
    for recorder in recorders {
        all.add(&std::mem::take(&mut *recorder.lock().unwrap_or_else(std::sync::PoisonError::into_inner)));
    }
    group.tally.add(&all.tally);
    let row = Row {
        at,
        length,
        answered: all.tally.answered,
        failed: all.tally.failures.count(),
        latencies: Sparse::of(&all.histogram),
    };
    group.rows.push(row.clone());
    row
}

/// Few of the ports that one address has.
const CONNECTIONS_OF_ADDRESS_MAX: usize = 2_000;
/// Descriptors of a load process that are no connections of the load.
const DESCRIPTORS_BESIDE: u64 = 64;
/// Most time for a connection or a reply, of thousands at once on a machine that has other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
