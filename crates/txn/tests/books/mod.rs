//! What tests of the coordinator share: a resource that keeps books, and can be told to fail.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    missing_docs,
    reason = "each test uses a part; a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use txn::id::{BranchId, NodeName};
use txn::resource::{Abilities, Answer, Prepared, Reply, Resource, Unready, Vote};

/// What became of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Prepared,
    Committed,
    RolledBack,
}

/// A resource in memory, which survives its coordinators.
#[derive(Debug)]
pub struct Books {
    name: String,
    node: NodeName,
    state: Mutex<State>,
    changed: Condvar,
}

/// What it has, and how it is to behave.
#[derive(Debug, Default)]
pub struct State {
    pub branches: BTreeMap<String, Fate>,
    /// Votes no.
    pub refuses: bool,
    /// Changed nothing.
    pub reads: bool,
    /// So many calls of commit and rollback fail first.
    pub fails: u32,
    /// Replies are dropped.
    pub is_mute: bool,
    /// Replies are kept here.
    pub keeps: bool,
    pub kept: Vec<Reply>,
    pub abilities: Abilities,
    /// Why it takes no branches.
    pub not_ready: Option<Unready>,
    /// Calls that came: prepare, commit, rollback.
    pub calls: [u32; 3],
    /// Times that it was asked what it holds prepared.
    pub asked: u32,
}

impl Books {
    pub fn new(name: &str, node: &NodeName) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { name: name.to_owned(), node: node.clone(), state, changed })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn fate(&self, branch: BranchId) -> Option<Fate> {
        self.state().branches.get(&self.node.branch_id(branch)).copied()
    }

    /// Waits, for at most 30 s, until `is` holds.
    pub fn wait_until(&self, is: impl Fn(&State) -> bool) {
        let state = self.state();
        let (_state, timeout) =
            self.changed.wait_timeout_while(state, Duration::from_secs(30), |state| !is(state)).unwrap();
        assert!(!timeout.timed_out(), "it did not come to that in 30 s");
    }

    fn on_call(&self, call: usize, reply: Reply, act: impl FnOnce(&mut State) -> Answer) {
        let mut state = self.state();
        state.calls[call] += 1;
        let answer = act(&mut state);
        if state.keeps {
            state.kept.push(reply);
        } else if !state.is_mute {
            drop(state);
            reply.answer(answer);
        }
        self.changed.notify_all();
    }

    fn end(&self, call: usize, branch: BranchId, fate: Fate, reply: Reply) {
        let id = self.node.branch_id(branch);
        self.on_call(call, reply, |state| {
            if state.fails > 0 {
                state.fails -= 1;
                return Answer::Failed("not now".to_owned());
            }
            state.branches.insert(id, fate);
            Answer::Done
        });
    }
}

impl Resource for Books {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        self.state().abilities
    }

    fn ready(&self) -> Result<(), Unready> {
        self.state().not_ready.clone().map_or(Ok(()), Err)
    }

    fn prepare(&self, branch: BranchId, reply: Reply) {
        let id = self.node.branch_id(branch);
        self.on_call(0, reply, |state| {
            if state.refuses {
                return Answer::Voted(Vote::No("out of stock".to_owned()));
            }
            if state.reads {
                return Answer::Voted(Vote::ReadOnly);
            }
            state.branches.insert(id, Fate::Prepared);
            Answer::Voted(Vote::Yes)
        });
    }

    fn commit(&self, branch: BranchId, reply: Reply) {
        self.end(1, branch, Fate::Committed, reply);
    }

    fn commit_one_phase(&self, branch: BranchId, reply: Reply) {
        self.end(1, branch, Fate::Committed, reply);
    }

    fn rollback(&self, branch: BranchId, reply: Reply) {
        self.end(2, branch, Fate::RolledBack, reply);
    }

    fn recover(&self, reply: Reply) {
        let mut state = self.state();
        state.asked += 1;
        self.changed.notify_all();
        let is_prepared = |fate: &&Fate| **fate == Fate::Prepared;
        let found = state.branches.iter().filter(|(_, fate)| is_prepared(fate));
        let found = found.map(|(id, _)| Prepared { id: id.clone(), since: None }).collect();
        drop(state);
        reply.answer(Answer::Found(found));
    }
}
