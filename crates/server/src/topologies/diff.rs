//! What would change if a definition took the place of one that runs: its components, and what they keep.

use std::sync::Arc;

use components::{Fate, Held, Outcome};
use flux::{ComponentChange, Difference};
use supervisor::Job;
use topology::Plan;

use super::record::Definition;
use super::trial;

/// A topology that runs, to be compared with.
#[derive(Clone, Debug)]
pub(crate) struct Former {
    pub(crate) job: Arc<Job>,
    /// How many workers it is to have, if somebody said so beside the definition.
    pub(crate) workers: Option<u32>,
    /// Somebody wants to know what differs. Otherwise one that cannot be read any more is replaced all the same.
    pub(crate) is_asked_for: bool,
}

/// What would change.
#[derive(Debug)]
pub(crate) struct Diff {
    /// In the configuration, the number of workers, and the folder.
    pub(crate) settings: Vec<Difference>,
    pub(crate) components: Vec<ComponentChange>,
    /// What becomes of what components keep, by their ids.
    pub(crate) state: Vec<(String, Outcome)>,
}

impl Diff {
    /// A component that could not begin with what the one before it keeps, and why.
    pub(crate) fn blocked(&self) -> Option<(&str, &str)> {
        let blocks = self.state.iter().find(|(_, outcome)| outcome.fate == Fate::Blocks);
        blocks.map(|(id, outcome)| (id.as_str(), outcome.what.as_str()))
    }
}

/// What would change if `new`, which is `definition` read, with so many workers took the place of `former`.
///
/// # Errors
/// What runs cannot be read, as after a change of the server.
pub(super) fn compare(
    former: &Former,
    definition: &Definition,
    new: &flux::Definition,
    workers: Option<u32>,
) -> Result<Diff, String> {
    let Former { job, workers: former_workers, .. } = former;
    let text = trial::definition_of(job);
    let old =
        super::read(&text).map_err(|error| format!("the definition that runs cannot be read: {error}"))?;
    let flux::Changes { mut config, components } = flux::changes(&old, new);
    let count = |workers: &Option<u32>, of: &flux::Definition| {
        workers.unwrap_or(of.plan.settings().workers).to_string()
    };
    let folder = |it: &Option<String>| it.clone().unwrap_or_default();
    let mut settings: Vec<Difference> = [
        Difference::between("workers", &count(former_workers, &old), &count(&workers, new)),
        Difference::between("folder", &folder(&job.folder), &folder(&definition.folder)),
    ]
    .into_iter()
    .flatten()
    .collect();
    settings.append(&mut config);
    let state = components.iter().flat_map(|change| {
        let outcomes = components::compare(&job.name, held(&old, &change.id), held(new, &change.id));
        outcomes.into_iter().map(|outcome| (change.id.clone(), outcome))
    });
    Ok(Diff { settings, state: state.collect(), components })
}

/// The component `id` of a definition, if it has one.
fn held<'a>(definition: &'a flux::Definition, id: &str) -> Option<Held<'a>> {
    let plan: &Plan = &definition.plan;
    let id = plan.find(id)?;
    let program = definition.programs.get(usize::from(id.0))?;
    Some(Held { command: &program.command, plan, id })
}
