//! A resource: branches that are active (lost with it), prepared (kept), and what it decided on its own.

use std::collections::{BTreeMap, BTreeSet};

use txn::resource::{Abilities, Answer, Ask, Prepared, Vote};
use vfs::sim::Rng;

/// What a branch does, or will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Writes,
    Reads,
    SaysNo,
    /// Rolls back on its own when it is told to commit.
    HeuristicRollback,
    /// Commits on its own when it is told to roll back.
    HeuristicCommit,
}

/// The work of one branch.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Which transaction of the run, however it is numbered.
    pub serial: usize,
    pub kind: Kind,
}

#[derive(Debug)]
pub struct Site {
    pub is_up: bool,
    pub abilities: Abilities,
    pub active: BTreeMap<String, Work>,
    pub prepared: BTreeMap<String, Work>,
    /// Prepares that go on though their answers may be lost; a rollback does not see them.
    pub slow: BTreeMap<String, Work>,
    /// Transactions that committed here.
    pub committed: BTreeSet<usize>,
    /// Transactions of which a branch rolled back, or committed, on its own.
    pub rolled_back_alone: BTreeSet<usize>,
    pub committed_alone: BTreeSet<usize>,
    /// What it answers until it is told to forget.
    decided: BTreeMap<String, Answer>,
    /// Commits that a crash may take back, and when they were made.
    recent: Vec<(u64, String, Work)>,
    one_phase: BTreeMap<String, u32>,
}

impl Site {
    pub fn new(abilities: Abilities) -> Self {
        Self {
            is_up: true,
            abilities,
            active: BTreeMap::new(),
            prepared: FOREIGN.iter().map(|id| ((*id).to_owned(), FOREIGN_WORK)).collect(),
            slow: BTreeMap::new(),
            committed: BTreeSet::new(),
            rolled_back_alone: BTreeSet::new(),
            committed_alone: BTreeSet::new(),
            decided: BTreeMap::new(),
            recent: Vec::new(),
            one_phase: BTreeMap::new(),
        }
    }

    /// Everything that is not prepared is lost; one that says so also loses commits of the last moments.
    pub fn crash(&mut self, now_us: u64) {
        self.is_up = false;
        self.active.clear();
        self.slow.clear();
        for (at_us, id, work) in self.recent.drain(..) {
            if self.abilities.keep_decision_ms > 0 && at_us + LOST_US > now_us {
                self.committed.remove(&work.serial);
                self.prepared.insert(id, work);
            }
        }
    }

    /// Answers; `None`: it will never, or later.
    pub fn ask(
        &mut self,
        now_us: u64,
        id: &str,
        ask: Ask,
        attempt: u32,
        mut rng: Option<&mut Rng>,
    ) -> Option<Answer> {
        if ask == Ask::CommitOnePhase && !self.is_new(id, attempt) {
            return None;
        }
        let mut chance = |of| rng.as_deref_mut().is_some_and(|rng| rng.chance(1, of));
        let fails = if ask == Ask::CommitOnePhase { 3 } else { 10 };
        if ask != Ask::Recover && chance(fails) {
            return Some(Answer::Failed("busy".to_owned()));
        }
        match ask {
            Ask::Prepare if chance(12) => {
                // Its rollback is answered before it is prepared: nobody would hear that it decided on its own.
                let slow = |work: Work| match work.kind {
                    Kind::HeuristicCommit => (id.to_owned(), Work { kind: Kind::Writes, ..work }),
                    _ => (id.to_owned(), work),
                };
                self.slow.extend(self.active.remove(id).map(slow));
                None
            }
            Ask::Prepare => Some(self.prepare(id)),
            Ask::Commit => Some(self.commit(now_us, id)),
            Ask::CommitOnePhase => Some(self.commit_one_phase(id)),
            Ask::Rollback => Some(self.rollback(id)),
            Ask::Recover => {
                let listed = self.prepared.keys().map(|id| Prepared { id: id.clone(), since: None });
                Some(Answer::Found(listed.collect()))
            }
            Ask::Forget => {
                self.decided.remove(id);
                Some(Answer::Done)
            }
        }
    }

    /// What was slow is prepared after all.
    pub fn prepare_slowly(&mut self) {
        self.prepared.append(&mut self.slow);
    }

    /// The connections of a node that died are gone.
    pub fn hang_up(&mut self) {
        self.active.clear();
    }

    pub fn has_foreign(&self) -> bool {
        FOREIGN.iter().all(|id| self.prepared.contains_key(*id))
    }

    pub fn own_prepared(&self) -> impl Iterator<Item = &String> {
        self.prepared.keys().filter(|id| !FOREIGN.contains(&id.as_str()))
    }

    fn prepare(&mut self, id: &str) -> Answer {
        if self.prepared.contains_key(id) {
            return Answer::Voted(Vote::Yes);
        }
        if self.slow.contains_key(id) {
            return Answer::Failed("still at it".to_owned());
        }
        match self.active.remove(id) {
            None => Answer::Voted(Vote::No("no such branch".to_owned())),
            Some(Work { kind: Kind::Reads, .. }) => Answer::Voted(Vote::ReadOnly),
            Some(Work { kind: Kind::SaysNo, .. }) => Answer::Voted(Vote::No("conflict".to_owned())),
            Some(work) => {
                self.prepared.insert(id.to_owned(), work);
                Answer::Voted(Vote::Yes)
            }
        }
    }

    fn commit(&mut self, now_us: u64, id: &str) -> Answer {
        match self.prepared.remove(id) {
            Some(work) if work.kind == Kind::HeuristicRollback => {
                self.rolled_back_alone.insert(work.serial);
                self.decide(id, Answer::RolledBack("an operator here".to_owned()))
            }
            Some(work) => {
                self.committed.insert(work.serial);
                self.recent.push((now_us, id.to_owned(), work));
                Answer::Done
            }
            None => self.decided.get(id).cloned().unwrap_or(Answer::Done),
        }
    }

    /// A session takes its calls in order and once.
    fn is_new(&mut self, id: &str, attempt: u32) -> bool {
        let last = self.one_phase.entry(id.to_owned()).or_default(); // the first attempt is 1
        let is_new = *last < attempt;
        *last = attempt.max(*last);
        is_new
    }

    fn commit_one_phase(&mut self, id: &str) -> Answer {
        match self.active.remove(id) {
            None => Answer::Lost("no such session".to_owned()),
            Some(Work { kind: Kind::SaysNo, .. }) => Answer::RolledBack("conflict".to_owned()),
            Some(work) => {
                self.committed.insert(work.serial);
                Answer::Done
            }
        }
    }

    fn rollback(&mut self, id: &str) -> Answer {
        self.active.remove(id);
        match self.prepared.remove(id) {
            Some(work) if work.kind == Kind::HeuristicCommit => {
                self.committed.insert(work.serial);
                self.committed_alone.insert(work.serial);
                self.decide(id, Answer::Committed("an operator here".to_owned()))
            }
            Some(_) => Answer::Done,
            None => self.decided.get(id).cloned().unwrap_or(Answer::Done),
        }
    }

    fn decide(&mut self, id: &str, answer: Answer) -> Answer {
        self.decided.insert(id.to_owned(), answer.clone());
        answer
    }
}

/// Branches of others: another node, one whose name begins alike, one of this name from a log that is not ours, a person.
const FOREIGN: [&str; 4] = ["evk_other_1_1_0", "evk_n-2_1_fffff_0", "evk_n_ffff_1_0", "by hand"];
const FOREIGN_WORK: Work = Work { serial: usize::MAX, kind: Kind::Writes };
/// How much of its acknowledged commits a crash takes back.
const LOST_US: u64 = 30_000;
