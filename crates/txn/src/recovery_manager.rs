//! The recovery manager: a thread that finishes what no other does, and finds what was left behind.
//!
//! ```text
//!  at a start    records of the log -> machines -> branches commit, again and again until they answer
//!  meanwhile     lanes whose threads are gone are turned; every recovery_interval each resource is asked what it holds prepared,
//!                twice, safety_interval apart, and what nobody works on and the log does not know is rolled back
//! ```
//!
//! Out of scope: which branches are orphans (`protocol::recovery`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;

use crate::id::BranchId;
use crate::inbox::{Event, Inbox, Wake};
use crate::lane::inner::LaneInner;
use crate::protocol::{Action, List, Recovery, Transaction};
use crate::record::Decision;
use crate::resource::{Answer, Ask, Call, Prepared, Replies, Reply};
use crate::shared::Shared;

/// What the recovery manager's thread owns.
#[derive(Debug)]
pub(crate) struct RecoveryManager {
    shared: Arc<Shared>,
    lane: Arc<LaneInner>,
    recovery: Recovery,
    /// Answers to what recovery asks: what is prepared, and whether orphans are gone.
    found: Arc<Inbox>,
    next_recovery: Nanos,
    /// When those who sleep together look at the time.
    next_ring: Nanos,
}

impl RecoveryManager {
    /// A recovery manager of this lane, which begins with what the log knew.
    pub(crate) fn new(shared: Arc<Shared>, lane: Arc<LaneInner>, decisions: &[Decision]) -> Self {
        let (now, options) = (shared.clock.now(), &shared.options);
        let recovery =
            Recovery::new(options.node.clone(), shared.born..=shared.epoch, options.safety_interval);
        for decision in decisions {
            shared.resumed(decision.tx);
            let mut effects = Vec::new();
            let find = |name: &str| shared.find(name);
            let machine = Transaction::resume(decision, find, options.timing, now, &mut effects);
            let mut table = lane.table();
            table.insert(machine);
            lane.change(&shared, &mut table, decision.tx, |_, out| out.append(&mut effects));
        }
        let own = Arc::clone(&lane.inbox);
        let found =
            Arc::new(Inbox::new(Wake::Call(Arc::new(move || own.wake())), Arc::clone(&shared.event_count)));
        Self { shared, lane, recovery, found, next_recovery: now, next_ring: now }
    }

    /// Works until the coordinator ends.
    pub(crate) fn run(mut self) {
        self.lane.inbox.set_wake(Wake::Thread(std::thread::current()));
        let mut told = Vec::new();
        while !self.shared.ends.load(Ordering::SeqCst) {
            // Before it looks at anything: whoever changes that afterwards wakes it, though it does not sleep yet.
            let mut may_sleep = self.lane.inbox.may_sleep();
            self.take_found();
            self.recover_if_due();
            let adopted = self.shared.adopted();
            for lane in adopted.iter().chain([&self.lane]) {
                lane.turn(&self.shared, self.shared.time());
                lane.table().take_finished(&mut told);
                lane.offer(&self.shared);
            }
            // Nobody waits for what is told here: it was told before, or its thread is gone.
            told.clear();
            self.ring_if_due();
            let mut due = Some(self.next_recovery.min(self.next_ring));
            for lane in adopted.iter().chain([&self.lane]) {
                due = due.min(lane.table().due().or(due));
            }
            let others = adopted.iter().map(|lane| &lane.inbox).chain([&self.found]);
            may_sleep &= others.fold(true, |may, inbox| may & inbox.may_sleep());
            if may_sleep && !self.shared.ends.load(Ordering::SeqCst) {
                let most = due.map_or(WAIT_MOST, |due| due.since(self.shared.clock.now()).min(WAIT_MOST));
                self.lane.inbox.park(most);
            }
        }
    }

    /// Has those look who sleep together, without a timer of their own: they may wait for a time.
    fn ring_if_due(&mut self) {
        let now = self.shared.clock.now();
        if now >= self.next_ring {
            self.next_ring = now + WAIT_MOST;
            self.shared.event_count.notify_all();
        }
    }

    fn recover_if_due(&mut self) {
        let now = self.shared.clock.now();
        if !self.shared.recover_now.swap(false, Ordering::SeqCst) && now < self.next_recovery {
            return;
        }
        self.next_recovery = now + self.shared.options.recovery_interval;
        let attempt = self.recovery.begin_pass(now);
        for (place, resource) in self.shared.resources.iter().enumerate() {
            let call = Call { resource: place as u16, branch: None, ask: Ask::Recover, attempt };
            resource.recover(Reply::new(call, Arc::clone(&self.found) as Arc<dyn Replies>));
        }
    }

    fn take_found(&mut self) {
        let mut events = Vec::new();
        self.found.take(&mut events);
        for event in events {
            let Event::Answered(call, answer) = event else { continue };
            match (call.ask, answer) {
                (Ask::Recover, Answer::Found(prepared)) => self.on_found(call, &prepared),
                (Ask::Recover, answer) => {
                    let name = self.shared.resources[usize::from(call.resource)].name();
                    tracing::warn!("{name} does not tell what it holds prepared: {}", answer.reason());
                }
                _ => {}
            }
        }
    }

    /// A resource told what it holds prepared.
    fn on_found(&mut self, call: Call, found: &[Prepared]) {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let list = List { resource: call.resource, pass: call.attempt, found };
        let mut actions = Vec::new();
        let standing = |branch| shared.standing(branch);
        self.recovery.on_found(now, list, shared.log.is_sound(), standing, &mut actions);
        for action in actions {
            self.act(now, action);
        }
    }

    fn act(&self, now: Nanos, action: Action) {
        let shared = &self.shared;
        let (Action::Commit { resource, branch }
        | Action::Rollback { resource, branch }
        | Action::Report { resource, branch }) = action;
        let (id, name) =
            (shared.options.node.branch_id(branch), shared.resources[usize::from(resource)].name());
        match action {
            Action::Commit { .. } => {
                // Under load most such lists were made just before the commit.
                tracing::info!(
                    "{name} lists {id} as prepared, which it has committed: it is asked again, as its list may be the newer"
                );
                shared.change(branch.tx, |machine, effects| machine.on_found(now, branch.branch, effects));
            }
            Action::Rollback { .. } => {
                tracing::info!(
                    "{name} holds {id} prepared, which nobody decided to commit: it is rolled back"
                );
                self.adopt(now, resource, branch);
            }
            Action::Report { .. } => tracing::error!(
                "{name} holds {id} prepared, of an epoch that is not of this node's log: two nodes have one name (txn.node), the log is \
                 an old copy, or this server was restored without it; it is not touched"
            ),
        }
    }

    /// Gives an orphan to a machine in the recovery manager's lane.
    fn adopt(&self, now: Nanos, resource: u16, branch: BranchId) {
        let (shared, mut table) = (&self.shared, self.lane.table());
        if !table.has(branch.tx) {
            shared.resumed(branch.tx);
            table.insert(Transaction::orphan(branch.tx, shared.options.timing));
        }
        let it = &shared.resources[usize::from(resource)];
        let (abilities, name) = (it.abilities(), it.name());
        let adopted = self.lane.change(shared, &mut table, branch.tx, |machine, effects| {
            machine.adopt(now, branch.branch, resource, abilities, name, effects)
        });
        if adopted.is_some_and(|adopted| adopted.is_ok()) {
            shared.orphans.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const WAIT_MOST: Duration = Duration::from_secs(1);
