//! Which branches that resources hold prepared are orphans: recovery from the resources up.
//!
//! A coordinator that dies leaves branches prepared, and so does a prepare that arrives after its rollback. Presumed abort says what
//! becomes of those that the log does not know: they are rolled back. The naive answer, to roll back whatever nobody works on now,
//! meets transactions that begin or end while resources are being listed. So there are passes: all resources are asked for
//! their lists, and a branch is believed to be an orphan only in a pass that began at least a safety interval after it was first seen.
//!
//! ```text
//!  not listed <--------- listed, without an owner, first seen at t
//!      ^  not listed any more |  still so in a pass that began at t + safety or later, and the log is sound
//!      '------------------ Action::Rollback, in each pass until it is taken by a machine or not listed
//! ```
//!
//! Invariants
//!   1. Only identifiers that this node would have written, byte for byte, are ever acted upon.
//!   2. A branch that a machine or the log knows is left to them; the one exception, a branch that came back after its commit, is
//!      committed again, never rolled back.
//!   3. Nothing is presumed of a log that is not sound, nor of an epoch from before this log, or that it has not reached: then it is not the
//!      log that this branch was prepared under.
//!   4. What is not listed any more is forgotten: memory is bounded by the last lists.
//!
//! What a caller knows of transactions may be as old as the beginning of the pass: one that began since is seen for the first time, and in
//! the next pass it is known or has ended.
//! Out of scope: asking (`coordinator`), what becomes of decisions in the log ([`super::Transaction::resume`]).
//! Source: Mohan, Lindsay 1983; Narayana's recovery in two passes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use clock::Nanos;

use super::planted::{Bug, planted};
use crate::id::{BranchId, NodeName};
use crate::resource::Prepared;

/// What was seen, pass by pass.
#[derive(Debug)]
pub struct Recovery {
    node: NodeName,
    epochs: RangeInclusive<u32>,
    safety: Duration,
    pass: u32,
    began: Nanos,
    /// Without an owner, and since when.
    seen: BTreeMap<(u16, BranchId), Nanos>,
}

/// What a resource answered to a pass.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// Place of the resource.
    pub resource: u16,
    /// Which pass it was asked in.
    pub pass: u32,
    /// All that it holds prepared.
    pub found: &'a [Prepared],
}

/// What is known of a branch that a resource holds prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A machine or the log knows its transaction, and will come to it.
    Live,
    /// It has committed, and its decision is still kept: its resource came back without what it had acknowledged.
    Committed,
    /// Nobody knows it.
    Nobody,
}

/// What is to be done with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell its machine ([`super::Transaction::on_found`]), which has it committed again.
    Commit {
        /// Place of its resource.
        resource: u16,
        /// The branch.
        branch: BranchId,
    },
    /// Have it rolled back: give it to the orphan of its transaction ([`super::Transaction::orphan`], one machine for all branches of
    /// it), which asks until it is answered and keeps what the resource decided on its own.
    Rollback {
        /// Place of its resource.
        resource: u16,
        /// The branch.
        branch: BranchId,
    },
    /// Tell an operator, once: it has this node's name and an epoch that is not of this log. Two nodes have one name, the log was restored
    /// from a copy, or begun anew. It is never touched.
    Report {
        /// Place of its resource.
        resource: u16,
        /// The branch.
        branch: BranchId,
    },
}

impl Recovery {
    /// Recovery for `node`, whose log has had these `epochs`, the last for this start. `safety` is how long a branch must have been without
    /// an owner.
    #[must_use]
    pub fn new(node: NodeName, epochs: RangeInclusive<u32>, safety: Duration) -> Self {
        Self { node, epochs, safety, pass: 0, began: Nanos::default(), seen: BTreeMap::new() }
    }

    /// A pass begins: each resource is to be asked for its list with the number that this returns as the attempt.
    ///
    /// # Panics
    /// If time ran back.
    pub fn begin_pass(&mut self, now: Nanos) -> u32 {
        assert!(now >= self.began, "time ran back");
        self.pass = self.pass.wrapping_add(1);
        self.began = now;
        self.pass
    }

    /// Takes what a resource listed; lists of earlier passes are ignored. What follows is appended to `actions`.
    ///
    /// `standing` tells what is known of a branch, as of the beginning of the pass or later; `is_sound` whether the log is.
    ///
    /// # Panics
    /// If time ran back.
    pub fn on_found(
        &mut self,
        now: Nanos,
        list: List<'_>,
        is_sound: bool,
        mut standing: impl FnMut(BranchId) -> Standing,
        actions: &mut Vec<Action>,
    ) {
        let List { resource, pass, found } = list;
        if pass != self.pass {
            return;
        }
        assert!(now >= self.began, "time ran back");
        let before = self.split_off(resource);
        for prepared in found {
            let Some(branch) = self.own(&prepared.id) else { continue };
            match standing(branch) {
                Standing::Live if !planted(Bug::OrphanWhileLive) => {}
                Standing::Committed => actions.push(Action::Commit { resource, branch }),
                _ => {
                    let first = before.get(&(resource, branch)).copied();
                    actions.extend(self.judge(resource, branch, first, is_sound));
                    self.seen.insert((resource, branch), first.unwrap_or(now));
                }
            }
        }
    }

    /// Looks whether what was seen is what this can have seen. Cheap: for simulations, after each step, and builds with debug assertions.
    ///
    /// # Panics
    /// If it is not: a bug.
    pub fn check(&self) {
        assert!(self.pass > 0 || self.seen.is_empty(), "seen before the first pass: {self:?}");
        let is_own = |branch: &BranchId| self.own(&self.node.branch_id(*branch)) == Some(*branch);
        assert!(self.seen.keys().all(|(_, branch)| is_own(branch)), "seen, and of another node: {self:?}");
    }

    /// Branches without an owner, their resources, and when they were first seen, for operators.
    pub fn suspects(&self) -> impl Iterator<Item = (u16, BranchId, Nanos)> {
        self.seen.iter().map(|(&(resource, branch), &since)| (resource, branch, since))
    }

    /// What becomes of a branch that nobody knows.
    fn judge(&self, resource: u16, branch: BranchId, first: Option<Nanos>, is_sound: bool) -> Option<Action> {
        let is_old = first.is_some_and(|first| self.began >= first + self.safety);
        let is_sound = is_sound || planted(Bug::UnsoundLogBelieved);
        if !self.epochs.contains(&branch.tx.epoch) && !planted(Bug::EpochNotCompared) {
            first.is_none().then_some(Action::Report { resource, branch })
        } else {
            let is_orphan = is_sound && (is_old || planted(Bug::OrphanAtFirstSight));
            is_orphan.then_some(Action::Rollback { resource, branch })
        }
    }

    /// Takes out what was seen at `resource`.
    fn split_off(&mut self, resource: u16) -> BTreeMap<(u16, BranchId), Nanos> {
        let count = self.seen.len();
        let (before, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.seen).into_iter().partition(|((place, _), _)| *place == resource);
        assert_eq!(before.len() + others.len(), count, "each is of one resource");
        self.seen = others;
        before
    }

    /// The branch that `id` names, if it is of this node.
    fn own(&self, id: &str) -> Option<BranchId> {
        if planted(Bug::NodeNamePrefix) && id.starts_with(&format!("evk_{}", self.node)) {
            let rest = id.splitn(3, '_').nth(2)?;
            return self.node.parse_branch_id(&format!("evk_{}_{rest}", self.node));
        }
        self.node.parse_branch_id(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TxId;

    const SAFETY: Duration = Duration::from_secs(1);

    fn branch(epoch: u32, number: u64) -> BranchId {
        BranchId { tx: TxId { epoch, number }, branch: 0 }
    }

    struct Bench {
        recovery: Recovery,
        node: NodeName,
        is_sound: bool,
        standing: Standing,
    }

    impl Bench {
        fn new() -> Self {
            let node = NodeName::new("a").unwrap();
            let recovery = Recovery::new(node.clone(), 2..=3, SAFETY);
            Self { recovery, node, is_sound: true, standing: Standing::Nobody }
        }

        /// A pass at `ms` in which resource 0 lists `branches`.
        fn pass(&mut self, ms: u64, branches: &[BranchId]) -> Vec<Action> {
            let ids = branches.iter().map(|branch| self.node.branch_id(*branch)).collect::<Vec<_>>();
            self.pass_ids(ms, &ids.iter().map(String::as_str).collect::<Vec<_>>())
        }

        fn pass_ids(&mut self, ms: u64, ids: &[&str]) -> Vec<Action> {
            let now = Nanos(ms * 1_000_000);
            let pass = self.recovery.begin_pass(now);
            let found =
                ids.iter().map(|id| Prepared { id: (*id).to_owned(), since: None }).collect::<Vec<_>>();
            let mut actions = Vec::new();
            let standing = self.standing;
            let list = List { resource: 0, pass, found: &found };
            self.recovery.on_found(now, list, self.is_sound, |_| standing, &mut actions);
            actions
        }
    }

    fn rollback(branch: BranchId) -> Vec<Action> {
        vec![Action::Rollback { resource: 0, branch }]
    }

    #[test]
    fn orphan_is_rolled_back_in_a_pass_after_the_safety_interval_and_until_it_is_gone() {
        let mut bench = Bench::new();
        let orphan = branch(2, 7);
        assert_eq!(bench.pass(0, &[orphan]), []);
        assert_eq!(bench.pass(999, &[orphan]), []);
        assert_eq!(bench.pass(1_000, &[orphan]), rollback(orphan));
        assert_eq!(bench.pass(1_001, &[orphan]), rollback(orphan));
        assert_eq!(bench.pass(1_002, &[]), []);
        assert_eq!(bench.recovery.suspects().count(), 0);
        assert_eq!(bench.pass(1_003, &[orphan]), [], "one that comes back is new");
    }

    #[test]
    fn branch_that_a_machine_knows_is_left_alone() {
        let mut bench = Bench { standing: Standing::Live, ..Bench::new() };
        for ms in [0, 2_000, 4_000] {
            assert_eq!(bench.pass(ms, &[branch(3, 1)]), []);
        }
        bench.standing = Standing::Nobody;
        assert_eq!(bench.pass(6_000, &[branch(3, 1)]), [], "its time begins when its owner is gone");
    }

    #[test]
    fn nothing_is_presumed_of_a_log_that_is_not_sound() {
        let mut bench = Bench { is_sound: false, ..Bench::new() };
        assert_eq!((bench.pass(0, &[branch(2, 1)]), bench.pass(5_000, &[branch(2, 1)])), (vec![], vec![]));
        bench.is_sound = true;
        assert_eq!(bench.pass(6_000, &[branch(2, 1)]), rollback(branch(2, 1)));
    }

    #[test]
    fn branches_of_others_are_never_touched() {
        let mut bench = Bench::new();
        let ids = ["evk_b_1_1_0", "evk_a-b_1_1_0", "evk_a_01_1_0", "evk_a_1_1", "mine", "", "evk_a_1_1_0_0"];
        assert_eq!((bench.pass_ids(0, &ids), bench.pass_ids(9_000, &ids)), (vec![], vec![]));
        assert_eq!(bench.recovery.suspects().count(), 0);
    }

    #[test]
    fn branch_of_an_epoch_that_is_not_of_the_log_is_reported_once_and_never_touched() {
        for foreign in [branch(4, 1), branch(1, 1)] {
            let mut bench = Bench::new();
            assert_eq!(bench.pass(0, &[foreign]), vec![Action::Report { resource: 0, branch: foreign }]);
            assert_eq!(bench.pass(9_000, &[foreign]), []);
        }
    }

    #[test]
    fn committed_branch_that_came_back_is_committed_again_at_once() {
        let mut bench = Bench { standing: Standing::Committed, ..Bench::new() };
        let back = branch(3, 1);
        assert_eq!(bench.pass(0, &[back]), vec![Action::Commit { resource: 0, branch: back }]);
    }

    #[test]
    fn list_of_an_earlier_pass_is_ignored() {
        let mut bench = Bench::new();
        assert_eq!(bench.pass(0, &[branch(2, 1)]), []);
        bench.recovery.begin_pass(Nanos(5_000_000_000));
        let found = [Prepared { id: "evk_a_2_1_0".to_owned(), since: None }];
        let mut actions = Vec::new();
        let nobody = |_| Standing::Nobody;
        let list = List { resource: 0, pass: 1, found: &found };
        bench.recovery.on_found(Nanos(5_000_000_000), list, true, nobody, &mut actions);
        assert_eq!(actions, []);
    }

    #[test]
    fn resources_are_judged_apart() {
        let mut bench = Bench::new();
        assert_eq!(bench.pass(0, &[branch(2, 1)]), []);
        let pass = bench.recovery.begin_pass(Nanos(2_000_000_000));
        let mut actions = Vec::new();
        let list = List { resource: 1, pass, found: &[] };
        bench.recovery.on_found(Nanos(2_000_000_000), list, true, |_| Standing::Nobody, &mut actions);
        assert_eq!(bench.recovery.suspects().count(), 1, "resource 0 has not said that it is gone");
    }
}
