//! What must hold of a run at its end.

use std::collections::{BTreeMap, BTreeSet};

use topology::definition::Guarantee;
use topology::ids::{ComponentId, TaskId};
use topology::tracker::DeadLetter;

use crate::part::values;
use crate::server::{State, number};
use crate::shapes::{Expected, Word, expected};
use crate::world::World;

impl World {
    /// Whether all input is settled and nothing is left to be done.
    pub(crate) fn is_quiet(&self) -> bool {
        self.server.is_done()
            && self.moving.is_none()
            && !self.is_flying()
            && self.nodes.len() == self.plan.tasks_count() as usize
            && self.nodes.values().all(|node| node.is_idle())
            && self.is_exact() == self.epochs.is_some()
            && (!self.is_exact() || self.is_as_assigned())
            && self.epochs.as_ref().is_none_or(|epochs| epochs.is_at_rest())
    }

    /// Whether all tasks are where the last rebalance has put them.
    fn is_as_assigned(&self) -> bool {
        self.nodes.iter().all(|(task, node)| node.worker == self.assignment.worker(*task))
    }

    pub(crate) fn left_over(&self) -> String {
        let busy = self.nodes.iter().filter(|(_, node)| !node.is_idle());
        let busy: BTreeMap<_, _> = busy.map(|(task, node)| (*task, &node.machine)).collect();
        let text = format!(
            "{:?}: done {}, moving {:?}, {} of {} tasks, epochs {:?}, busy {busy:?}",
            self.plan.settings().guarantee,
            self.server.is_done(),
            self.moving,
            self.nodes.len(),
            self.plan.tasks_count(),
            self.epochs
        );
        text.chars().take(6_000).collect()
    }

    pub(crate) fn judge(&mut self) -> Result<(), String> {
        let state = self.server.state();
        let all = expected(&self.plan, &self.server.inputs);
        let alive = expected(&self.plan, &self.alive(state));
        let context = |what: Result<(), String>| {
            what.map_err(|what| format!("{:?}: {what}", self.plan.settings().guarantee))
        };
        context(self.judge_dead(state))?;
        context(match self.plan.settings().guarantee {
            Guarantee::AtMostOnce => compare(state, &all, |seen, due| seen <= due),
            Guarantee::AtLeastOnce => {
                compare(state, &alive, |seen, due| seen >= due)?;
                compare(state, &all, |seen, due| due > 0 || seen == 0)
            }
            Guarantee::ExactlyOnce => compare(state, &alive, |seen, due| seen == due),
        })
    }

    /// The inputs that did not become dead letters.
    fn alive(&self, state: &State) -> BTreeMap<TaskId, Vec<Word>> {
        let dead: BTreeSet<(TaskId, u128)> =
            state.dead.iter().map(|(task, letter)| (*task, letter.original.position.0)).collect();
        let mut alive = BTreeMap::new();
        for (task, words) in &self.server.inputs {
            let lives = (1..).zip(words).filter(|(position, _)| !dead.contains(&(*task, *position)));
            alive.insert(*task, lives.map(|(_, word)| word.clone()).collect());
        }
        alive
    }

    /// Dead letters are as they were emitted, were tried often enough, and are those that had to die.
    fn judge_dead(&self, state: &State) -> Result<(), String> {
        let mut dead = BTreeSet::new();
        for (task, letter) in &state.dead {
            let word = &self.server.inputs[task][letter.original.position.0 as usize - 1];
            self.judge_letter(word, letter)?;
            if !dead.insert(&word.id) {
                return Err(format!("{} died twice", word.id));
            }
        }
        if self.plan.settings().guarantee == Guarantee::AtMostOnce {
            return if dead.is_empty() { Ok(()) } else { Err("at-most-once has no dead letters".to_owned()) };
        }
        for (task, words) in &self.server.inputs {
            let meets_picky = self.leads_to(self.plan.component_of(*task), self.habits.picky);
            let is_due = |word: &&Word| meets_picky && self.habits.poison.contains(&word.id);
            if let Some(word) = words.iter().filter(is_due).find(|word| !dead.contains(&word.id)) {
                return Err(format!("{} is poison and did not die", word.id));
            }
        }
        Ok(())
    }

    fn judge_letter(&self, word: &Word, letter: &DeadLetter) -> Result<(), String> {
        let attempts_max = self.plan.settings().attempts_max;
        if letter.original.values != values(word) || letter.original.attempts != attempts_max {
            return Err(format!("dead letter of {word:?} after {attempts_max} attempts: {letter:?}"));
        }
        // A pair fails as a whole, so who is paired with poison may die of it.
        let has_pairs = self.plan.find("pair").is_some();
        let is_poison = has_pairs || self.habits.poison.contains(&word.id);
        let is_right = match (letter.component, letter.error.as_str()) {
            (Some(component), "poison") => is_poison && component == self.habits.picky,
            (Some(_), "flaky") => true,
            (None, error) => error.contains("message_timeout") && self.epochs.is_none(),
            _ => false,
        };
        if is_right { Ok(()) } else { Err(format!("{word:?} died of {letter:?}")) }
    }

    fn leads_to(&self, from: ComponentId, to: ComponentId) -> bool {
        from == to || self.plan.edges_from(from).any(|edge| self.leads_to(edge.to, to))
    }
}

/// Compares each output and each count that was seen with the one that is due.
fn compare(state: &State, expected: &Expected, is_right: impl Fn(u64, u64) -> bool) -> Result<(), String> {
    let counts: BTreeMap<String, u64> = state
        .keys
        .iter()
        .map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), number(value)))
        .collect();
    for (what, seen, due) in
        [("output", &state.outputs, &expected.outputs), ("count", &counts, &expected.counts)]
    {
        let names: BTreeSet<&String> = seen.keys().chain(due.keys()).collect();
        for name in names {
            let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
            if !is_right(of(seen), of(due)) {
                return Err(format!("{what} {name}: {} times, {} are due", of(seen), of(due)));
            }
        }
    }
    Ok(())
}
