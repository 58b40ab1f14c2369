//! What differs between two definitions, component by component: a component is the same one if its id is.
//!
//! Out of scope: what becomes of what components have kept (`components`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use topology::definition::{Component, Kind, Stream};

use crate::definition::{Definition, Program};

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In the configuration of the topology.
    pub config: Vec<Difference>,
    /// All components: those of the new definition in its order, then those that are removed.
    pub components: Vec<ComponentChange>,
}

/// What becomes of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentChange {
    /// Its id.
    pub id: String,
    /// What becomes of it.
    pub change: Change,
    /// What of it differs, if it is changed.
    pub differences: Vec<Difference>,
}

/// What becomes of a component, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is in the new definition alone.
    Added,
    /// It is in the old one alone.
    Removed,
    /// It is in both, and something of it differs.
    Changed,
    /// It is in both, and nothing of it differs.
    Kept,
}

/// Something that differs. What is not there is an empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub what: String,
    /// What it was.
    pub from: String,
    /// What it is to be.
    pub to: String,
}

impl Change {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Kept => "kept",
        }
    }
}

impl Difference {
    /// What differs as `what`, if anything does.
    #[must_use]
    pub fn between(what: &str, from: &str, to: &str) -> Option<Self> {
        let [what, from_text, to_text] = [what, from, to].map(str::to_owned);
        (from != to).then_some(Self { what, from: from_text, to: to_text })
    }
}

/// What differs between `old` and `new`; their names and places in files count for nothing.
#[must_use]
pub fn changes(old: &Definition, new: &Definition) -> Changes {
    let (former, latter) = (by_id(old), by_id(new));
    let mut components: Vec<ComponentChange> = new
        .plan
        .components()
        .map(|(_, component)| {
            let id = component.id.as_str();
            let differences = former.get(id).map(|former| differences(*former, latter[id]));
            let change = match &differences {
                None => Change::Added,
                Some(differences) if differences.is_empty() => Change::Kept,
                Some(_) => Change::Changed,
            };
            ComponentChange { id: id.to_owned(), change, differences: differences.unwrap_or_default() }
        })
        .collect();
    let removed = old.plan.components().filter(|(_, it)| !latter.contains_key(it.id.as_str()));
    components.extend(removed.map(|(_, component)| ComponentChange {
        id: component.id.clone(),
        change: Change::Removed,
        differences: Vec::new(),
    }));
    Changes { config: of_config(&old.config, &new.config), components }
}

/// A component with what it runs.
type Part<'a> = (&'a Component, &'a Program);

fn by_id(definition: &Definition) -> BTreeMap<&str, Part<'_>> {
    let components = definition.plan.components().map(|(_, component)| component);
    components.zip(&definition.programs).map(|part| (part.0.id.as_str(), part)).collect()
}

fn differences((old, old_program): Part<'_>, (new, new_program): Part<'_>) -> Vec<Difference> {
    let kind = |it: &Component| if it.kind == Kind::Spout { "spout" } else { "bolt" };
    let number = |number: u32| number.to_string();
    let (many, few) = (&old.parallelism, &new.parallelism);
    let mut all: Vec<Difference> = [
        Difference::between("kind", kind(old), kind(new)),
        Difference::between("command", &old_program.command.join(" "), &new_program.command.join(" ")),
        Difference::between("tasks", &number(many.tasks), &number(few.tasks)),
        Difference::between("threads", &number(many.executors), &number(few.executors)),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.extend(of_maps("stream ", &streams(old), &streams(new)));
    all.extend(of_maps("grouping of ", &inputs(old), &inputs(new)));
    all.extend(of_config(&old_program.config, &new_program.config));
    all
}

fn streams(component: &Component) -> BTreeMap<String, String> {
    let fields = |stream: &Stream| {
        format!("{}({})", if stream.is_direct { "direct " } else { "" }, stream.fields.join(", "))
    };
    component.streams.iter().map(|stream| (stream.id.clone(), fields(stream))).collect()
}

fn inputs(component: &Component) -> BTreeMap<String, String> {
    let name = |from: &str, stream: &str| format!("{stream} of {from}");
    component.inputs.iter().map(|it| (name(&it.from, &it.stream), it.grouping.to_string())).collect()
}

fn of_config(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<Difference> {
    let texts = |map: &Map<String, Value>| -> BTreeMap<String, String> {
        map.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
    };
    of_maps("", &texts(old), &texts(new))
}

fn of_maps(prefix: &str, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<Difference> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let text = |map: &BTreeMap<String, String>, name| map.get(name).cloned().unwrap_or_default();
    let between = |name| Difference::between(&format!("{prefix}{name}"), &text(old, name), &text(new, name));
    names.into_iter().filter_map(between).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Variables;

    const TEXT: &str = "\
name: words
config: {topology.max.spout.pending: 10}
spouts:
- {id: source, className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout, constructorArgs: [[python3, a.py], [word]]}
bolts:
- {id: count, className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt, constructorArgs: [[python3, b.py], [word, n]]}
streams:
- {from: source, to: count, grouping: {type: SHUFFLE}}
";

    fn read(text: &str) -> Definition {
        let (properties, environment) = (BTreeMap::new(), |_: &str| None);
        let variables = Variables { properties: &properties, environment: &environment };
        crate::read(text, &variables).expect("it is right").0
    }

    /// What changes when `from` in the definition becomes `to`, one line each.
    fn changed(replacements: &[(&str, &str)]) -> Vec<String> {
        let text = replacements.iter().fold(TEXT.to_owned(), |text, (from, to)| text.replace(from, to));
        let Changes { config, components } = changes(&read(TEXT), &read(&text));
        let shown = |it: &Difference| format!("{}: {} -> {}", it.what, it.from, it.to);
        let mut lines: Vec<String> = config.iter().map(shown).collect();
        for ComponentChange { id, change, differences } in &components {
            lines.push(format!("{id} {}", change.name()));
            lines.extend(differences.iter().map(shown));
        }
        lines
    }

    #[test]
    fn equal_definition_keeps_all_components_whatever_its_name() {
        assert_eq!(changed(&[("name: words", "name: others\n")]), ["source kept", "count kept"]);
    }

    #[test]
    fn component_with_another_id_is_a_removed_one_and_an_added_one() {
        assert_eq!(
            changed(&[("id: count", "id: total"), ("to: count", "to: total")]),
            ["source kept", "total added", "count removed"]
        );
    }

    #[test]
    fn each_field_that_differs_is_told_with_what_it_was() {
        let replacements = [
            ("pending: 10", "pending: 20, x: [1]"),
            ("a.py", "c.py --x"),
            ("[word, n]]", "[word]], parallelism: 2, numTasks: 4"),
            ("{type: SHUFFLE}", "{type: FIELDS, args: [word]}"),
        ];
        assert_eq!(
            changed(&replacements),
            [
                "topology.max.spout.pending: 10 -> 20",
                "x:  -> [1]",
                "source changed",
                "command: python3 a.py -> python3 c.py --x",
                "count changed",
                "tasks: 1 -> 4",
                "threads: 1 -> 2",
                "stream default: (word, n) -> (word)",
                "grouping of default of source: shuffle -> fields word",
            ]
        );
    }
}
