//! What a file says, and what it leaves open.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use topology::Plan;

use crate::fault::Place;

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Components, streams and settings, checked and numbered.
    pub plan: Plan,
    /// What each component runs, in the order of the plan.
    pub programs: Vec<Program>,
    /// What all shell components are told as their configuration.
    pub config: Map<String, Value>,
}

/// What a component runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The command with its arguments; at least one word.
    pub command: Vec<String>,
    /// Where the command is in the file.
    pub place: Place,
    /// What this component alone is told as its configuration; goes before that of the topology.
    pub config: Map<String, Value>,
}

/// Values for what a file leaves open.
pub struct Variables<'a> {
    /// For `${name}`.
    pub properties: &'a BTreeMap<String, String>,
    /// For `${ENV-NAME}`.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variables").field("properties", self.properties).finish_non_exhaustive()
    }
}
