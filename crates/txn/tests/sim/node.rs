//! The process of a node: it owns the machines, does what they want, and dies between any two effects.

use std::collections::{BTreeMap, BTreeSet};

use clock::Nanos;
use txn::decision_log::{LogError, Refused};
use txn::id::{BranchId, TxId};
use txn::protocol::planted::{Bug, planted};
use txn::protocol::{Action, BranchState, Effect, List, Outcome, Recovery, Standing, State, Transaction};
use txn::record::Decision;
use txn::resource::{Ask, Prepared};

use crate::log::{Op, Sync};
use crate::site::Site;
use crate::world::{Event, Message, Node, OPERATOR_US, PASS_US, SAFETY, TIMING, World};

impl World {
    /// Does what a machine wants, in order; the node may die in between.
    pub(crate) fn perform(&mut self, tx: TxId, effects: Vec<Effect>) {
        for effect in effects {
            if self.has_faults() && self.rng.chance(1, 500) {
                return self.crash();
            }
            match effect {
                Effect::Ask { branch, resource, ask, attempt } => {
                    if ask == Ask::Commit && !self.log.durable.contains_key(&tx) {
                        self.break_with(format!("{tx} branch {branch} is told to commit without a record"));
                    }
                    let branch = BranchId { tx, branch };
                    let site = usize::from(resource);
                    self.send(Message { life: self.life, site, branch, ask, attempt });
                }
                Effect::Write(decision) => self.write(tx, decision),
                Effect::Remove if self.log.is_dead => {}
                Effect::Remove => self.log.pending.push(Op::Remove(tx)),
                Effect::Finish(outcome) => self.finish(tx, outcome),
                Effect::End => drop(self.node.as_mut().and_then(|node| node.machines.remove(&tx))),
            }
            if self.node.is_none() {
                return;
            }
        }
        if let Some(machine) = self.node.as_ref().and_then(|node| node.machines.get(&tx)) {
            machine.check();
        }
        self.arm();
    }

    pub(crate) fn write(&mut self, tx: TxId, decision: Decision) {
        let refused = match self.rng.below(50) {
            _ if self.log.is_dead => Some(Refused::Closed("its sync failed".to_owned())),
            0 | 1 if self.has_faults() => Some(Refused::Full("txn.log_max".to_owned())),
            2 | 3 if self.has_faults() => Some(Refused::Busy("journal.buffer_max".to_owned())),
            _ => None,
        };
        if let Some(refused) = refused {
            self.met.busy += u64::from(matches!(refused, Refused::Busy(_)));
            self.met.refused += u64::from(!matches!(refused, Refused::Busy(_)));
            let (now, wall, mut effects) = (self.now(), self.wall(), Vec::new());
            let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else {
                return;
            };
            machine.on_refused(now, wall, refused, &mut effects);
            return self.perform(tx, effects);
        }
        self.log.pending.push(Op::Write(decision));
        if !std::mem::replace(&mut self.log.is_syncing, true) {
            let sync_us = 100 + self.rng.below(3_000);
            self.after(sync_us, Event::Sync);
        }
    }

    pub(crate) fn sync(&mut self) {
        if !self.log.is_syncing || self.node.is_none() {
            return; // it was of another life
        }
        let how = match self.rng.below(60) {
            0..=1 if self.has_faults() => Sync::Unknown,
            2..=4 if self.has_faults() => Sync::Absent,
            _ => Sync::Fine,
        };
        self.met.absent += u64::from(how == Sync::Absent);
        if how == Sync::Unknown {
            self.met.dead_logs += 1;
            let until_us = self.rng.below(200_000);
            self.after(until_us, Event::Crash);
        }
        for (tx, result) in self.log.sync(how, &mut self.rng) {
            self.logged(tx, result);
        }
    }

    pub(crate) fn logged(&mut self, tx: TxId, result: Result<(), LogError>) {
        let (now, wall, mut effects) = (self.now(), self.wall(), Vec::new());
        let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else { return };
        machine.on_logged(now, wall, result, &mut effects);
        self.perform(tx, effects);
    }

    pub(crate) fn finish(&mut self, tx: TxId, outcome: Outcome) {
        match &outcome {
            Outcome::Committed => self.met.committed += 1,
            Outcome::Aborted(_) => self.met.aborted += 1,
            Outcome::Unknown(_) => self.met.unknown += 1,
            Outcome::Heuristic(_) => self.met.heuristic += 1,
        }
        let truth = &mut self.truths[self.serials[&tx]];
        truth.told.push(outcome);
        if truth.told.len() > 1 {
            let told = format!("{tx} was told {:?}", truth.told);
            self.break_with(told);
        }
    }

    /// One event at the time that the first machine asks for.
    pub(crate) fn arm(&mut self) {
        let machines = self.node.iter().flat_map(|node| node.machines.values());
        if let Some(next) = machines.filter_map(Transaction::next_time).min() {
            let at_us = next.0.div_ceil(1_000).max(self.now_us + 1);
            if self.armed_us <= self.now_us || at_us < self.armed_us {
                self.armed_us = at_us;
                self.at(at_us, Event::Timer);
            }
        }
    }

    pub(crate) fn timer(&mut self) {
        let now = self.now();
        self.arm();
        let machines = self.node.iter().flat_map(|node| node.machines.values());
        let is_due = |machine: &&Transaction| machine.next_time().is_some_and(|due| due <= now);
        let due = machines.filter(is_due).map(Transaction::id).collect::<Vec<_>>();
        for tx in due {
            let (wall, mut effects) = (self.wall(), Vec::new());
            let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else {
                return;
            };
            machine.on_time(now, wall, &mut effects);
            self.perform(tx, effects);
        }
    }

    pub(crate) fn crash(&mut self) {
        if let Some(node) = self.node.take() {
            for tx in node.machines.keys() {
                self.truths[self.serials[tx]].died = true;
            }
            self.met.crashes += 1;
            self.life += 1;
            self.sites.iter_mut().for_each(Site::hang_up);
            if !self.log.is_dead {
                self.log.crash(&mut self.rng);
            }
            let down_us = self.rng.below(50_000);
            self.after(down_us, Event::Start);
        }
    }

    /// The process starts; its log can be read, or not yet.
    pub(crate) fn start(&mut self) {
        assert!(self.node.is_none(), "two lives at once");
        self.node = Some(Node {
            epoch: 0,
            number: 0,
            machines: BTreeMap::new(),
            recovery: Recovery::new(self.name.clone(), 1..=self.log.epoch, SAFETY),
            live: BTreeSet::new(),
            is_open: false,
        });
        if self.has_faults() && self.rng.chance(1, 4) {
            let until_us = self.rng.below(600_000);
            self.after(until_us, Event::Readable);
        } else {
            self.open();
        }
    }

    pub(crate) fn open(&mut self) {
        let now = self.now();
        let Some(node) = self.node.as_mut().filter(|node| !node.is_open) else { return };
        self.log.is_dead = false;
        self.log.epoch += u32::from(!planted(Bug::EpochReused) || self.log.epoch == 0);
        node.is_open = true;
        node.epoch = self.log.epoch;
        node.recovery = Recovery::new(self.name.clone(), 1..=node.epoch, SAFETY);
        let sites = &self.sites;
        let find = |name: &str| {
            let place = name[1..].parse::<u16>().unwrap();
            Some((place, sites[usize::from(place)].abilities))
        };
        let mut wanted = Vec::new();
        for (tx, decision) in &self.log.durable {
            let mut effects = Vec::new();
            let machine = Transaction::resume(decision, find, TIMING, now, &mut effects);
            node.machines.insert(*tx, machine);
            wanted.push((*tx, effects));
            self.met.resumed += 1;
        }
        for (tx, effects) in wanted {
            self.perform(tx, effects);
        }
    }

    // ---- recovery ------------------------------------------------------------------------------------

    pub(crate) fn pass(&mut self) {
        let now = self.now();
        if let Some(node) = &mut self.node {
            let attempt = node.recovery.begin_pass(now);
            node.live = node.machines.keys().copied().collect();
            for site in 0..self.sites.len() {
                let branch = BranchId { tx: TxId { epoch: 0, number: 0 }, branch: 0 };
                self.send(Message { life: self.life, site, branch, ask: Ask::Recover, attempt });
            }
        }
        let pause_us = if self.has_faults() { PASS_US } else { 3 * PASS_US };
        self.after(pause_us, Event::Pass);
    }

    pub(crate) fn found(&mut self, message: &Message, found: &[Prepared]) {
        let (now, is_alive) = (self.now(), !self.log.is_dead);
        let Some(node) = &mut self.node else { return };
        let is_sound = node.is_open && is_alive;
        let (live, machines, mut actions) = (&node.live, &node.machines, Vec::new());
        // As of the beginning of the pass: lanes are asked one after another and do not stop for it.
        let standing = |branch: BranchId| match machines.get(&branch.tx) {
            _ if !live.contains(&branch.tx) => Standing::Nobody,
            Some(machine) => machine.standing(branch.branch),
            None => Standing::Live,
        };
        let list = List { resource: message.site as u16, pass: message.attempt, found };
        node.recovery.on_found(now, list, is_sound, standing, &mut actions);
        node.recovery.check();
        for action in actions {
            self.act(now, action);
        }
    }

    pub(crate) fn act(&mut self, now: Nanos, action: Action) {
        match action {
            Action::Rollback { resource, branch } => {
                self.met.orphans += 1;
                if !self.made.contains(&branch) {
                    self.break_with(format!("recovery acts on {branch:?}, which is not of this node"));
                }
                let abilities = self.sites[usize::from(resource)].abilities;
                let mut effects = Vec::new();
                let Some(node) = &mut self.node else { return };
                let orphan = || Transaction::orphan(branch.tx, TIMING);
                let machine = node.machines.entry(branch.tx).or_insert_with(orphan);
                let name = format!("r{resource}");
                if machine.adopt(now, branch.branch, resource, abilities, name, &mut effects).is_err() {
                    // A second list of this pass, or something planted: asked as it was told.
                    let (life, site, ask) = (self.life, usize::from(resource), Ask::Rollback);
                    self.send(Message { life, site, branch, ask, attempt: 0 });
                }
                self.perform(branch.tx, effects);
            }
            Action::Commit { branch, .. } => {
                self.met.came_back += 1;
                let mut effects = Vec::new();
                if let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&branch.tx)) {
                    machine.on_found(now, branch.branch, &mut effects);
                    self.perform(branch.tx, effects);
                }
            }
            Action::Report { .. } => {}
        }
    }

    /// An operator reads what disagrees, and looks into last resources that gave no answer.
    pub(crate) fn operate(&mut self) {
        let machines = self.node.iter().flat_map(|node| node.machines.values());
        let is_kept = |machine: &&Transaction| matches!(machine.state(), State::Heuristic | State::InDoubt);
        let kept = machines.filter(is_kept).map(Transaction::id).collect::<Vec<_>>();
        for tx in kept {
            let (now, wall, mut effects) = (self.now(), self.wall(), Vec::new());
            let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else {
                continue;
            };
            let truth = &mut self.truths[self.serials[&tx]];
            truth.seen |= machine.state() == State::Heuristic;
            let last = machine.branches().find(|branch| branch.state == BranchState::Unknown);
            let committed = last.is_some_and(|last| {
                let site = &mut self.sites[last.resource[1..].parse::<usize>().unwrap()];
                site.active.remove(&self.name.branch_id(BranchId { tx, branch: last.branch }));
                site.committed.contains(&self.serials[&tx])
            });
            if machine.resolve(now, wall, committed, &mut effects).is_ok() {
                self.met.resolved += 1;
            }
            self.perform(tx, effects);
        }
        self.after(OPERATOR_US, Event::Operator);
    }
}
