//! The server's own keys as a resource: stages until they are prepared, branches in the store from then on.
//!
//! ```text
//!  TX.DO -> stage -> prepare: validated, one durable record, keys locked -> commit: all changes at once, unlocked
//! ```
//!
//! Invariants
//!   1. An answer that says something is done leaves when that is durable.
//!   2. No call waits: what is cold is read by the store's readers, and the call goes on there; what takes long, for its keys are many,
//!      goes on beside the loops (`long`); what has no room is answered with "no room, ask again".
//!   3. A stage is gone when its branch has ended or can only roll back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use commands::words::shown;
use store::{Halted, Prepared, Staging, Stop, Store};
use ticket::Ticket;
use txn::id::{BranchId, NodeName};
use txn::resource::{Answer, Ask, Call, Prepared as PreparedBranch, Replies, Reply, Resource, Vote};

use super::work::Work;
use crate::errors;
use crate::long::LongCommands;
use crate::settings::KEYS;

/// Keys that take part.
#[derive(Debug)]
pub(crate) struct Keys {
    store: Arc<Store>,
    node: NodeName,
    works: Mutex<HashMap<BranchId, Arc<Mutex<Work>>>>,
    /// Answers that wait for what they say to be durable.
    held: Mutex<Vec<Held>>,
    held_count: AtomicUsize,
    /// Branches that operators end, each to be committed or not, and what came of it.
    strays: Mutex<HashMap<Settled, Option<Answer>>>,
    /// Where what takes long goes on; until it is there the server serves nobody.
    long: OnceLock<Weak<LongCommands>>,
    me: Weak<Self>,
}

/// A branch, and whether it is to be committed.
type Settled = (Arc<str>, bool);

#[derive(Debug)]
struct Held {
    ticket: Ticket,
    reply: Reply,
    answer: Answer,
}

/// What becomes of a prepared branch that no transaction knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// There is none of this name.
    Unknown,
    /// It is being ended: ask again.
    Waits,
    /// It has ended, durably.
    Ended,
    /// It is as it was, because.
    Failed(String),
}

/// Hears what became of the end of such a branch.
struct StrayEnded {
    keys: Weak<Keys>,
    stray: Settled,
}

impl Replies for StrayEnded {
    fn on_answer(&self, _: Call, answer: Answer) {
        let Some(keys) = self.keys.upgrade() else { return };
        if let Some(noted) = lock(&keys.strays).get_mut(&self.stray) {
            *noted = Some(answer);
        }
    }
}

/// A question about a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Prepare,
    Commit,
    CommitOnePhase,
    Rollback,
}

/// A branch that is asked something.
struct Target {
    id: Arc<str>,
    /// None: no transaction here began it, so that nothing is staged for it.
    branch: Option<BranchId>,
}

impl Keys {
    pub(crate) fn new(store: Arc<Store>, node: NodeName) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            store,
            node,
            works: Mutex::default(),
            held: Mutex::default(),
            held_count: AtomicUsize::new(0),
            strays: Mutex::default(),
            long: OnceLock::new(),
            me: Weak::clone(me),
        })
    }

    /// What a branch means to change; made when it is first asked for.
    pub(crate) fn work(&self, branch: BranchId) -> Arc<Mutex<Work>> {
        let fresh = || {
            Arc::new(Mutex::new(Work { workspace: self.store.workspace(), is_sealed: false, is_over: false }))
        };
        Arc::clone(lock(&self.works).entry(branch).or_insert_with(fresh))
    }

    /// Ends a prepared branch that no transaction knows. Asked again until it does not wait.
    pub(crate) fn end_stray(&self, id: &str, commit: bool) -> Stray {
        let stray = (Arc::from(id), commit);
        let mut strays = lock(&self.strays);
        if !strays.contains_key(&stray) {
            if !self.holds(id) {
                return Stray::Unknown;
            }
            strays.insert((Arc::clone(&stray.0), commit), None);
            drop(strays);
            let (question, ask) =
                if commit { (Question::Commit, Ask::Commit) } else { (Question::Rollback, Ask::Rollback) };
            let target = Target { id: Arc::clone(&stray.0), branch: None };
            let ended = StrayEnded { keys: Weak::clone(&self.me), stray: (Arc::clone(&stray.0), commit) };
            let call = Call { resource: 0, branch: None, ask, attempt: 1 };
            self.ask(question, target, Prepared::default(), Reply::new(call, Arc::new(ended)));
            strays = lock(&self.strays);
        }
        let Some(Some(_)) = strays.get(&stray) else { return Stray::Waits };
        match strays.remove(&stray).flatten() {
            Some(Answer::Done) => Stray::Ended,
            Some(Answer::Failed(why) | Answer::NoRoom(why) | Answer::Lost(why)) => Stray::Failed(why),
            other => unreachable!("no answer to an end: {other:?}"),
        }
    }

    /// Whether a branch of this name is prepared.
    pub(super) fn holds(&self, id: &str) -> bool {
        self.store.prepared_branches().iter().any(|prepared| *prepared.id == *id)
    }

    /// Says in the log which keys stay held until an operator ends their branch: those of another node, as after a restored backup.
    pub(crate) fn tell_foreign(&self) {
        let all = self.store.prepared_branches();
        for branch in all.iter().filter(|branch| self.node.parse_branch_id(&branch.id).is_none()) {
            tracing::error!(
                "keys are held by {}, a prepared branch of another node than {} (txn.node): TX.RESOLVE {} COMMIT or ROLLBACK ends it",
                branch.id,
                self.node,
                branch.id
            );
        }
    }

    /// Branches that are prepared.
    pub(crate) fn prepared(&self) -> u64 {
        self.store.prepared_branches().len() as u64
    }

    /// Keys that those hold.
    pub(crate) fn locked(&self) -> u64 {
        self.store.locked_keys()
    }

    /// Databases that those hold whole.
    pub(crate) fn locked_databases(&self) -> u64 {
        self.store.locked_databases()
    }

    /// The journal's hook: more is durable.
    pub(crate) fn on_advance(&self) {
        if self.held_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let released = self.store.released();
        let mut held = lock(&self.held);
        let ready: Vec<Held> = held.extract_if(.., |held| held.ticket.is_covered_by(released)).collect();
        self.held_count.store(held.len(), Ordering::Release);
        drop(held);
        ready.into_iter().for_each(|held| held.reply.answer(held.answer));
    }

    fn target(&self, branch: BranchId) -> Target {
        Target { id: self.node.branch_id(branch).into(), branch: Some(branch) }
    }

    /// Has `long` carry out what takes long.
    pub(super) fn attach(&self, long: &Arc<LongCommands>) {
        let attached = self.long.set(Arc::downgrade(long));
        debug_assert!(attached.is_ok(), "attached twice");
    }

    fn ask(&self, question: Question, target: Target, prepared: Prepared, reply: Reply) {
        let long = self.long.get().and_then(Weak::upgrade);
        let Some(long) = long.filter(|_| self.takes_long(&target)) else {
            return self.ask_here(question, target, prepared, reply);
        };
        let (me, reply) = (Weak::clone(&self.me), reply.apart());
        long.call_in_background(Box::new(move || {
            if let Some(keys) = me.upgrade() {
                keys.ask_here(question, target, prepared, reply);
            }
        }));
    }

    /// Whether the branch has touched many keys, or a command of it runs on another thread.
    fn takes_long(&self, Target { id, branch }: &Target) -> bool {
        if self.store.is_long(self.store.branch_keys(id)) {
            return true;
        }
        let work = branch.and_then(|branch| lock(&self.works).get(&branch).cloned());
        work.is_some_and(|work| match work.try_lock() {
            Ok(work) => self.store.is_long(work.workspace.keys()),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(work)) => self.store.is_long(work.into_inner().workspace.keys()),
        })
    }

    fn ask_here(&self, question: Question, target: Target, mut prepared: Prepared, reply: Reply) {
        match self.attempt(question, &target, &prepared) {
            Ok((ticket, answer)) => self.hold(ticket, reply, answer),
            Err(Halted { stop: Stop::Cold, wanted }) => {
                prepared.want(wanted);
                let (me, reply) = (Weak::clone(&self.me), reply.apart());
                let go_on = move |prepared| {
                    if let Some(keys) = me.upgrade() {
                        keys.ask(question, target, prepared, reply);
                    }
                };
                self.store.fetch(prepared, Box::new(go_on));
            }
            Err(Halted { stop, .. }) => reply.answer(self.refusal(question, &target, &stop)),
        }
    }

    /// What is done, when that is durable, and what it comes to.
    fn attempt(
        &self,
        question: Question,
        Target { id, branch }: &Target,
        prepared: &Prepared,
    ) -> Result<(Ticket, Answer), Halted> {
        match question {
            Question::Commit => {
                let ticket = self.store.commit_prepared(id, prepared)?;
                self.forget(*branch);
                // One that is gone was committed before, perhaps a moment ago.
                Ok((ticket.unwrap_or_else(|| self.store.newest()), Answer::Done))
            }
            Question::Rollback => {
                if let Some(work) = branch.and_then(|branch| lock(&self.works).remove(&branch)) {
                    // A prepare that waits for what is cold finds it so; one that is at it has prepared when this goes on.
                    lock(&work).is_over = true;
                }
                let ticket = self.store.rollback_prepared(id, prepared)?;
                Ok((ticket.unwrap_or_else(|| self.store.newest()), Answer::Done))
            }
            Question::Prepare | Question::CommitOnePhase => {
                let work = branch.and_then(|branch| lock(&self.works).get(&branch).cloned());
                let Some(work) = work else {
                    return Ok((Ticket::NOTHING, no(question, "what it staged is gone".to_owned())));
                };
                let mut work = lock(&work);
                if work.is_over {
                    return Ok((Ticket::NOTHING, no(question, "it was rolled back".to_owned())));
                }
                work.is_sealed = true;
                let stage = &work.workspace;
                let is_whole = question == Question::CommitOnePhase || stage.writes() == 0;
                let staging = if is_whole {
                    self.store.commit_staged(stage, prepared)?
                } else {
                    self.store.prepare(id, stage, prepared)?
                };
                let (ticket, answer) = match staging {
                    Staging::Done { ticket } if question == Question::CommitOnePhase => {
                        (ticket, Answer::Done)
                    }
                    Staging::Done { ticket } if is_whole => (ticket, Answer::Voted(Vote::ReadOnly)),
                    Staging::Done { ticket } => return Ok((ticket, Answer::Voted(Vote::Yes))),
                    Staging::Changed { key, .. } => {
                        let text = format!("key '{}' has changed since the transaction used it", shown(&key));
                        (Ticket::NOTHING, no(question, text))
                    }
                    Staging::Locked { by, db, key } => {
                        let by = self
                            .node
                            .parse_branch_id(&by)
                            .map_or_else(|| by.to_string(), |by| by.tx.to_string());
                        let what = errors::held(db, key.as_deref());
                        (
                            Ticket::NOTHING,
                            no(question, format!("{what} is held by prepared transaction {by}")),
                        )
                    }
                };
                drop(work);
                self.forget(*branch);
                Ok((ticket, answer))
            }
        }
    }

    fn forget(&self, branch: Option<BranchId>) {
        if let Some(branch) = branch {
            self.forget_work(branch);
        }
    }

    /// Forgets what the branch has not prepared.
    pub(crate) fn forget_work(&self, branch: BranchId) {
        let work = lock(&self.works).remove(&branch);
        // Its watches lock stripes: not under the lock of all.
        drop(work);
    }

    /// Lets `answer` leave when `ticket` is durable.
    fn hold(&self, ticket: Ticket, reply: Reply, answer: Answer) {
        if ticket.is_covered_by(self.store.released()) {
            return reply.answer(answer);
        }
        let is_helped = reply.is_helped();
        let mut held = lock(&self.held);
        held.push(Held { ticket, reply, answer });
        self.held_count.store(held.len(), Ordering::Release);
        drop(held);
        if !is_helped {
            self.store.offer();
        }
        // The advance may have come before the answer was noted.
        self.on_advance();
    }

    /// The answer to a question that the store stopped.
    fn refusal(&self, question: Question, target: &Target, stop: &Stop) -> Answer {
        let why = match stop {
            Stop::Refused(error) | Stop::Damaged(error) => error.to_string(),
            Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Cold | Stop::Locked(_) => {
                return Answer::NoRoom("the journal or memory has no room now".to_owned());
            }
        };
        match question {
            Question::Prepare | Question::CommitOnePhase => {
                self.forget(target.branch);
                no(question, why)
            }
            Question::Commit | Question::Rollback => Answer::Failed(why),
        }
    }
}

/// A no, as each question has it.
fn no(question: Question, why: String) -> Answer {
    if question == Question::Prepare { Answer::Voted(Vote::No(why)) } else { Answer::RolledBack(why) }
}

impl Resource for Keys {
    fn name(&self) -> &str {
        KEYS
    }

    fn prepare(&self, branch: BranchId, reply: Reply) {
        self.ask(Question::Prepare, self.target(branch), Prepared::default(), reply);
    }

    fn commit(&self, branch: BranchId, reply: Reply) {
        self.ask(Question::Commit, self.target(branch), Prepared::default(), reply);
    }

    fn commit_one_phase(&self, branch: BranchId, reply: Reply) {
        self.ask(Question::CommitOnePhase, self.target(branch), Prepared::default(), reply);
    }

    fn rollback(&self, branch: BranchId, reply: Reply) {
        self.ask(Question::Rollback, self.target(branch), Prepared::default(), reply);
    }

    fn offer(&self) {
        self.store.offer();
    }

    fn help(&self) {
        self.store.offer_idly();
    }

    fn recover(&self, reply: Reply) {
        let found = self.store.prepared_branches().into_iter();
        let found =
            found.map(|branch| PreparedBranch { id: branch.id.to_string(), since: Some(branch.since) });
        // One that is missing must not come back.
        self.hold(self.store.newest(), reply, Answer::Found(found.collect()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
