//! The connections of one process: opened together, driven phase by phase.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::{Clock, SystemClock};
use reactor::{Balance, ConnectError, Connection, Dial, Handle, Options, Reactor};
use serde::{Deserialize, Serialize};

use super::outcome::{Failures, GroupOutcome, Outcome, Row, Sparse};
use super::recorder::{Recorder, Tally};
use super::session::{Client, Message};
use super::target::{Protocol, Target};
use super::task::{Gate, Task};
use super::work::{Action, Encoder, Group, KeyForm, Keys, Limit, Phase, Pick, Work};
use crate::Failure;

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
        let gate = Arc::new(Gate::new(phase.groups.len()));
        let start = SystemClock.now();
        let task = |group| {
            let encoder = Encoder::new(group, self.protocol);
            Arc::new(Task::new(group, encoder, start, phase.request_timeout, self.loops, &gate))
        };
        let tasks: Vec<_> = phase.groups.iter().map(task).collect();
        let members = self.deal(&tasks);
        let mut run = Run { tasks: &tasks, groups: vec![GroupOutcome::default(); tasks.len()] };
        let fleet = &*self;
        std::thread::scope(|scope| {
            for (task, members) in tasks.iter().zip(&members) {
                if let Some(rate) = task.group.per_second {
                    let gate = &*gate;
                    scope.spawn(move || fleet.pace(task, members, rate, gate));
                }
            }
            let mut at = Duration::ZERO;
            let mut is_over = false;
            while !is_over {
                let next = at + phase.interval;
                is_over = gate.wait(next.saturating_sub(SystemClock.now() - start));
                fleet.leave_for_the_gone(&tasks, &members);
                let now = if is_over { run.finished_at() - start } else { SystemClock.now() - start };
                observe(&run.collect(now, now.saturating_sub(at)));
                at = now;
            }
        });
        let took = run.finished_at() - start;
        for (task, members) in tasks.iter().zip(&members) {
            self.gone.extend(task.fallen().iter().map(|number| members[*number as usize].id()));
        }
        Ok(Outcome { groups: run.groups, took })
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
            let work = Work {
                action: Action::Send(command),
                keys: Keys { first: 0, count: 1, pick: Pick::Single, form: KeyForm::Decimal },
                value_bytes: 0,
                value_count: 1,
                verify: false,
                percent_cached: 0,
            };
            let connections = self.connections.len();
            let group = Group { work, connections, depth: 1, limit: Limit::Each(1), per_second: None };
            let phase =
                Phase { groups: vec![group], request_timeout: LOGIN_TIMEOUT, interval: LOGIN_TIMEOUT };
            let failures = self.run(&phase, &mut |_| {})?.total().tally.failures;
            if failures.count() > 0 {
                return Err(format!("cannot log in to {target}: {}", failures.first.unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// Tells each connection what to do; those that are gone leave at once. Returns the members of each task.
    fn deal(&self, tasks: &[Arc<Task>]) -> Vec<Vec<Arc<Connection>>> {
        let mut rest = self.connections.iter();
        tasks
            .iter()
            .map(|task| {
                let members: Vec<_> = rest.by_ref().take(task.group.connections).cloned().collect();
                for number in 0..task.group.connections {
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
    fn pace(&self, task: &Task, members: &[Arc<Connection>], rate: f64, gate: &Gate) {
        let mut index = 0;
        while let Some(due) = task.due(index, rate) {
            if gate.wait(due - SystemClock.now()) {
                return;
            }
            if let Some(member) = members.get(index as usize % task.group.connections.max(1)) {
                self.handle.post_to(member, Message::Due(due));
            }
            index += 1;
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
struct Run<'a> {
    tasks: &'a [Arc<Task>],
    groups: Vec<GroupOutcome>,
}

impl Run<'_> {
    fn finished_at(&self) -> clock::Nanos {
        self.tasks.iter().map(|task| task.finished_at()).max().unwrap_or_default()
    }

    /// Takes what the loops recorded in the last `length`; returns the row of each group.
    fn collect(&mut self, at: Duration, length: Duration) -> Vec<Row> {
        self.tasks
            .iter()
            .zip(&mut self.groups)
            .map(|(task, group)| collect(task.recorders(), group, at, length))
            .collect()
    }
}

/// Takes what loops recorded in the last `length`, and adds it to `group`.
pub(super) fn collect(
    recorders: &[Mutex<Recorder>],
    group: &mut GroupOutcome,
    at: Duration,
    length: Duration,
) -> Row {
    let mut all = Recorder::new();
    for recorder in recorders {
        let mut fresh = Recorder::new();
        std::mem::swap(&mut *recorder.lock().unwrap_or_else(std::sync::PoisonError::into_inner), &mut fresh);
        all.tally.add(&fresh.tally);
        // Both have the same bounds.
        all.histogram.add(&fresh.histogram).expect("fits");
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
pub(super) const DESCRIPTORS_BESIDE: u64 = 64;
/// Most time that a login may take, of thousands at once on a machine that has other work.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(60);
