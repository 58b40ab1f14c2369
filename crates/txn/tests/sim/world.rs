//! A node, its log, its resources and a bad network, driven event by event from one seed, and what must hold of it.
//!
//! The node is what a coordinator is in short: it owns the machines, does what they want, and dies between any two effects. Faults
//! strike for a while; then all is well, and within a bounded time nothing may be left over.

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use clock::{Nanos, UnixMs};
use txn::id::{BranchId, NodeName, TxId};
use txn::protocol::{Outcome, Recovery, Timing, Transaction};
use txn::resource::{Abilities, Answer, Ask};
use vfs::sim::Rng;

use crate::log::Log;
use crate::site::{Kind, Site, Work};

/// What happened in a run, so that one that met nothing is seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub committed: u64,
    pub aborted: u64,
    pub unknown: u64,
    pub heuristic: u64,
    pub crashes: u64,
    pub resumed: u64,
    pub orphans: u64,
    pub came_back: u64,
    pub resolved: u64,
    pub refused: u64,
    pub busy: u64,
    pub absent: u64,
    pub dead_logs: u64,
    pub doomed: u64,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        for (mine, other) in self.counters().into_iter().zip(other.clone().counters()) {
            *mine += *other;
        }
    }

    /// Whether all of it happened.
    pub fn is_everything(mut self) -> bool {
        self.counters().iter().all(|count| **count > 0)
    }

    fn counters(&mut self) -> [&mut u64; 14] {
        let Self {
            committed,
            aborted,
            unknown,
            heuristic,
            crashes,
            resumed,
            orphans,
            came_back,
            resolved,
            refused,
            busy,
            absent,
            dead_logs,
            doomed,
        } = self;

        [
            committed, aborted, unknown, heuristic, crashes, resumed, orphans, came_back, resolved, refused,
            busy, absent, dead_logs, doomed,
        ]
    }
}

/// What is known of a transaction that no machine tells.
#[derive(Debug, Default)]
pub struct Truth {
    /// Resources where it wrote.
    pub wrote: Vec<usize>,
    pub told: Vec<Outcome>,
    /// An operator was shown that its branches disagree.
    pub seen: bool,
    /// The node died while it knew it.
    pub died: bool,
    /// A command in it was answered with an error before its end was chosen.
    pub is_doomed: bool,
}

#[derive(Debug)]
pub enum Event {
    Begin,
    /// A command in it is answered with an error; its application goes on all the same.
    Fail(TxId),
    Choose(TxId),
    Request(Message),
    Reply(Message, Answer),
    SlowPrepare(usize),
    Sync,
    Timer,
    Pass,
    Crash,
    Start,
    Readable,
    SiteCrash(usize),
    SiteStart(usize),
    Operator,
}

#[derive(Clone, Copy, Debug, Hash)]
pub struct Message {
    pub life: u32,
    pub site: usize,
    pub branch: BranchId,
    pub ask: Ask,
    pub attempt: u32,
}

/// The process of a node, while it lives.
pub struct Node {
    pub epoch: u32,
    pub number: u64,
    pub machines: BTreeMap<TxId, Transaction>,
    pub recovery: Recovery,
    /// Who was live when the pass began.
    pub live: BTreeSet<TxId>,
    /// False: its log cannot be read yet; nothing is known and nothing begun.
    pub is_open: bool,
}

pub struct World {
    pub rng: Rng,
    pub met: Met,
    pub now_us: u64,
    pub queue: BinaryHeap<Reverse<(u64, u64)>>,
    pub events: BTreeMap<u64, Event>,
    pub order: u64,
    /// Messages under way and prepares that take long.
    pub flying: usize,
    pub life: u32,
    /// When the timer comes that is next, if that is later than now.
    pub armed_us: u64,
    pub name: NodeName,
    pub node: Option<Node>,
    pub log: Log,
    pub sites: Vec<Site>,
    pub truths: Vec<Truth>,
    pub serials: BTreeMap<TxId, usize>,
    pub made: BTreeSet<BranchId>,
    pub violation: Option<String>,
    pub trace: DefaultHasher,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.index(3);
        let has_last = rng.chance(1, 2);
        let site = |place: usize| {
            let keep_decision_ms = if rng.chance(1, 4) { KEEP_MS } else { 0 };
            Site::new(Abilities { prepares: !(has_last && place + 1 == count), keep_decision_ms })
        };
        let sites = (0..count).map(site).collect();
        let mut world = Self {
            rng,
            met: Met::default(),
            now_us: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            order: 0,
            flying: 0,
            life: 0,
            armed_us: 0,
            name: NodeName::new("n").unwrap(),
            node: None,
            log: Log::default(),
            sites,
            truths: Vec::new(),
            serials: BTreeMap::new(),
            made: BTreeSet::new(),
            violation: None,
            trace: DefaultHasher::new(),
        };
        world.plan();
        world
    }

    /// Lets everything happen, then looks whether anything is left over or was not kept.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse((at_us, order))) = self.queue.pop() {
            let event = self.events.remove(&order).unwrap();
            self.now_us = at_us;
            self.digest(&event);
            self.handle(event);
            if let Some(violation) = self.violation.take() {
                return Err(format!("at {at_us} us: {violation}"));
            }
            if at_us > FAULTS_US && self.is_quiet() {
                return self.judge();
            }
            if at_us > END_US {
                return Err(format!("not at rest after {END_US} us: {}", self.left_over()));
            }
        }
        Err("nothing happens any more".to_owned())
    }

    /// A digest of everything that happened, in order.
    pub fn digest_so_far(&self) -> u64 {
        self.trace.finish()
    }

    // ---- what is to happen ---------------------------------------------------------------------------

    pub(crate) fn plan(&mut self) {
        self.start();
        for _ in 0..TRANSACTIONS {
            let at_us = self.rng.below(FAULTS_US);
            self.at(at_us, Event::Begin);
        }
        for _ in 0..self.rng.below(4) {
            let at_us = self.rng.below(FAULTS_US);
            self.at(at_us, Event::Crash);
        }
        for place in 0..self.sites.len() {
            for _ in 0..self.rng.below(4) {
                let at_us = self.rng.below(FAULTS_US);
                self.at(at_us, Event::SiteCrash(place));
            }
        }
        self.at(OPERATOR_US, Event::Operator);
        self.at(PASS_US, Event::Pass);
    }

    pub(crate) fn at(&mut self, at_us: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((at_us, self.order)));
        self.events.insert(self.order, event);
    }

    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.now_us < FAULTS_US
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Begin => self.begin(),
            Event::Fail(tx) => self.fail(tx),
            Event::Choose(tx) => self.choose(tx),
            Event::Request(message) => self.request(&message),
            Event::Reply(message, answer) => self.reply(&message, answer),
            Event::SlowPrepare(place) => {
                self.flying -= 1;
                self.sites[place].prepare_slowly();
            }
            Event::Sync => self.sync(),
            Event::Timer => self.timer(),
            Event::Pass => self.pass(),
            Event::Crash => self.crash(),
            Event::Start => self.start(),
            Event::Readable => self.open(),
            Event::SiteCrash(place) => {
                self.sites[place].crash(self.now_us);
                let down_us = self.rng.below(80_000);
                self.after(down_us, Event::SiteStart(place));
            }
            Event::SiteStart(place) => self.sites[place].is_up = true,
            Event::Operator => self.operate(),
        }
    }

    // ---- the application -----------------------------------------------------------------------------

    pub(crate) fn begin(&mut self) {
        let is_hasty = self.rng.chance(1, 4);
        let (now, deadline_us) =
            (self.now(), 20_000 + self.rng.below(if is_hasty { 40_000 } else { 300_000 }));
        let is_quick = is_hasty || self.rng.chance(1, 2);
        let Some(node) = self.node.as_mut().filter(|node| node.is_open) else { return };
        node.number += 1;
        let tx = TxId { epoch: node.epoch, number: node.number };
        let mut machine = Transaction::begin(tx, now + Duration::from_micros(deadline_us), TIMING);
        let (serial, mut truth) = (self.truths.len(), Truth::default());
        for (place, site) in self.sites.iter_mut().enumerate() {
            if site.is_up && self.rng.chance(2, 3) {
                let branch = machine.enlist(place as u16, site.abilities, format!("r{place}")).unwrap();
                self.made.insert(branch);
                let kind = kind(&mut self.rng, site.abilities.prepares);
                if kind != Kind::Reads {
                    truth.wrote.push(place);
                }
                site.active.insert(self.name.branch_id(branch), Work { serial, kind });
            }
        }
        node.machines.insert(tx, machine);
        self.truths.push(truth);
        self.serials.insert(tx, serial);
        let work_us = self.rng.below(if is_quick { 5_000 } else { 60_000 });
        if self.rng.chance(1, 20) {
            let fails_us = self.rng.below(work_us + 1);
            self.after(fails_us, Event::Fail(tx));
        }
        if self.rng.chance(19, 20) {
            self.after(work_us, Event::Choose(tx));
        }
        self.arm();
    }

    pub(crate) fn fail(&mut self, tx: TxId) {
        let (now, wall, mut effects) = (self.now(), self.wall(), Vec::new());
        let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else { return };
        if machine.rollback(now, wall, "a command failed", &mut effects).is_ok() {
            self.truths[self.serials[&tx]].is_doomed = true;
            self.met.doomed += 1;
        }
        self.perform(tx, effects);
    }

    pub(crate) fn choose(&mut self, tx: TxId) {
        let (now, wall, rolls_back) = (self.now(), self.wall(), self.rng.chance(1, 10));
        let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else { return };
        let mut effects = Vec::new();
        // A deadline may have come first: then the end was chosen, and told.
        let _ = if rolls_back {
            machine.rollback(now, wall, "the user left", &mut effects)
        } else {
            machine.commit(now, wall, &mut effects)
        };
        self.perform(tx, effects);
    }

    // ---- the network and the resources ---------------------------------------------------------------

    pub(crate) fn send(&mut self, message: Message) {
        let (copies, loses) = self.luck();
        if loses {
            // Sometimes the sender is told, sometimes nobody is.
            if self.rng.chance(1, 2) {
                self.fly(Event::Reply(message, Answer::Lost("connection reset".to_owned())));
            }
            return;
        }
        for _ in 0..copies {
            self.fly(Event::Request(message));
        }
    }

    /// How many copies arrive, and whether none does.
    pub(crate) fn luck(&mut self) -> (u64, bool) {
        if self.has_faults() {
            (1 + u64::from(self.rng.chance(1, 10)), self.rng.chance(1, 15))
        } else {
            (1, false)
        }
    }

    pub(crate) fn fly(&mut self, event: Event) {
        let most_us = match self.rng.below(10) {
            0 if self.has_faults() => 120_000,
            1 | 2 => 20_000,
            _ => 2_000,
        };
        let delay_us = 50 + self.rng.below(most_us);
        self.flying += 1;
        self.after(delay_us, event);
    }

    pub(crate) fn request(&mut self, message: &Message) {
        self.flying -= 1;
        let is_session = matches!(message.ask, Ask::Prepare | Ask::CommitOnePhase);
        let has_faults = self.has_faults();
        let site = &mut self.sites[message.site];
        if !site.is_up || (is_session && message.life != self.life) {
            return; // the connection is gone, and with it what was under way
        }
        let id = self.name.branch_id(message.branch);
        let rng = has_faults.then_some(&mut self.rng);
        let answer = site.ask(self.now_us, &id, message.ask, message.attempt, rng);
        if !site.slow.is_empty() && message.ask == Ask::Prepare {
            let delay_us = self.rng.below(150_000);
            self.flying += 1;
            self.after(delay_us, Event::SlowPrepare(message.site));
        }
        let Some(answer) = answer else { return };
        let (mut copies, loses) = self.luck();
        if matches!(answer, Answer::Failed(_)) && self.rng.chance(1, 2) {
            copies += 1; // what says nothing is said more often: it must not count for more
        }
        for _ in 0..if loses { 0 } else { copies } {
            self.fly(Event::Reply(*message, answer.clone()));
        }
    }

    pub(crate) fn reply(&mut self, message: &Message, answer: Answer) {
        self.flying -= 1;
        if message.life != self.life {
            return;
        }
        if let Answer::Found(found) = &answer {
            return self.found(message, found);
        }
        let (now, wall) = (self.now(), self.wall());
        let tx = message.branch.tx;
        let Some(machine) = self.node.as_mut().and_then(|node| node.machines.get_mut(&tx)) else { return };
        let mut effects = Vec::new();
        let branch = message.branch.branch;
        machine.on_answer(now, wall, branch, message.ask, message.attempt, answer, &mut effects);
        self.perform(tx, effects);
    }

    // ---- time and trace ------------------------------------------------------------------------------

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now_us * 1_000)
    }

    pub(crate) fn wall(&self) -> UnixMs {
        UnixMs(1_700_000_000_000 + self.now_us / 1_000)
    }

    pub(crate) fn digest(&mut self, event: &Event) {
        (self.now_us, std::mem::discriminant(event)).hash(&mut self.trace);
        match event {
            Event::Request(message) => message.hash(&mut self.trace),
            Event::Reply(message, answer) => {
                (message, std::mem::discriminant(answer)).hash(&mut self.trace);
            }
            Event::Choose(tx) | Event::Fail(tx) => tx.hash(&mut self.trace),
            Event::SiteCrash(place) | Event::SiteStart(place) => place.hash(&mut self.trace),
            _ => {}
        }
    }
}

/// What a branch does: mostly it writes. Only one that prepares can decide on its own.
fn kind(rng: &mut Rng, prepares: bool) -> Kind {
    match rng.below(60) {
        0..10 => Kind::Reads,
        10..13 => Kind::SaysNo,
        13 if prepares => Kind::HeuristicRollback,
        14 if prepares => Kind::HeuristicCommit,
        _ => Kind::Writes,
    }
}

pub const TIMING: Timing = Timing {
    answer_max: Duration::from_millis(60),
    retry_least: Duration::from_millis(2),
    retry_most: Duration::from_millis(100),
    finish_max: Duration::from_millis(80),
    keep: Duration::ZERO,
};
const TRANSACTIONS: usize = 30;
/// How long faults strike.
pub const FAULTS_US: u64 = 2_000_000;
/// All must be at rest by then.
const END_US: u64 = FAULTS_US + 8_000_000;
pub const PASS_US: u64 = 120_000;
pub const SAFETY: Duration = Duration::from_millis(150);
pub const OPERATOR_US: u64 = 250_000;
const KEEP_MS: u64 = 1_500;
