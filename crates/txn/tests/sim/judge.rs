//! What must hold of a run, while it lasts and at its end.

use txn::protocol::Outcome;

use crate::log::Sync;
use crate::site::Site;
use crate::world::{Truth, World};

impl World {
    pub(crate) fn break_with(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Whether nothing is left to be done.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_idle = self.node.as_ref().is_some_and(|node| node.is_open && node.machines.is_empty());
        let has_prepared = self.sites.iter().any(|site| site.own_prepared().next().is_some());
        is_idle
            && !self.log.is_dead
            && self.flying == 0
            && !has_prepared
            && self.sites.iter().all(|site| site.is_up)
    }

    pub(crate) fn left_over(&self) -> String {
        let prepared = self.sites.iter().flat_map(Site::own_prepared).collect::<Vec<_>>();
        let machines = self.node.iter().flat_map(|node| node.machines.values()).collect::<Vec<_>>();
        format!("prepared {prepared:?}, machines {machines:?}")
    }

    pub(crate) fn judge(&mut self) -> Result<(), String> {
        self.log.sync(Sync::Fine, &mut self.rng);
        if !self.log.durable.is_empty() {
            return Err(format!("the log still holds {:?}", self.log.durable.keys()));
        }
        if let Some(place) = self.sites.iter().position(|site| !site.has_foreign()) {
            return Err(format!("resource {place} lost a branch that is not this node's"));
        }
        for work in self.sites.iter().flat_map(|site| site.active.values()) {
            let told = &self.truths[work.serial].told;
            if !matches!(told.first(), Some(Outcome::Unknown(_))) {
                return Err(format!("transaction {} was told {told:?} and has work left", work.serial));
            }
        }
        self.truths.iter().enumerate().try_for_each(|(serial, truth)| self.judge_one(serial, truth))
    }

    pub(crate) fn judge_one(&self, serial: usize, truth: &Truth) -> Result<(), String> {
        let committed = truth.wrote.iter().filter(|place| self.sites[**place].committed.contains(&serial));
        let (committed, all) = (committed.count(), truth.wrote.len());
        let has_rolled_back = self.sites.iter().any(|site| site.rolled_back_alone.contains(&serial));
        let is_heuristic =
            has_rolled_back || self.sites.iter().any(|site| site.committed_alone.contains(&serial));
        let is_told = truth.seen || matches!(truth.told.first(), Some(Outcome::Heuristic(_)));
        let is_kept = match truth.told.first() {
            told if truth.is_doomed && !is_heuristic => committed == 0 && told != Some(&Outcome::Committed),
            // There is no record of an abort: a commit against it is not asked for again after a death.
            _ if is_heuristic => is_told || (truth.died && !has_rolled_back),
            Some(Outcome::Heuristic(_)) => false,
            Some(Outcome::Committed) => committed == all,
            Some(Outcome::Aborted(_)) => committed == 0,
            Some(Outcome::Unknown(_)) | None => committed == 0 || committed == all,
        };
        if is_kept {
            return Ok(());
        }
        Err(format!(
            "transaction {serial}: {committed} of {all} committed, heuristic: {is_heuristic}, {truth:?}"
        ))
    }
}
