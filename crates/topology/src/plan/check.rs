//! The rules that a definition must keep.
//!
//! All problems are reported at once: a user repairs a file in one go.

use std::collections::{HashMap, HashSet};

use super::cycle;
use crate::definition::{Component, Grouping, Guarantee, Kind, Stream, Subscription, Topology};
use crate::nearest::nearest;
use crate::problem::{Problem, Warning};

/// What is wrong with `topology`, or what is worth a warning.
pub(super) fn check(topology: &Topology) -> Result<Vec<Warning>, Vec<Problem>> {
    let mut problems = Vec::new();
    check_settings(topology, &mut problems);
    check_whole(topology, &mut problems);
    // What follows is as deep as the longest path.
    if topology.components.len() as u64 > COMPONENTS_MAX {
        return Err(problems);
    }
    let by_id: HashMap<&str, usize> =
        topology.components.iter().enumerate().rev().map(|(at, it)| (it.id.as_str(), at)).collect();
    for component in &topology.components {
        check_component(component, &mut problems);
        for input in &component.inputs {
            check_input(topology, &by_id, component, input, &mut problems);
        }
    }
    let cycle = cycle::find(topology, &by_id);
    if topology.settings.guarantee == Guarantee::ExactlyOnce {
        problems.extend(cycle.clone().map(Problem::CycleWithBarriers));
    }
    if problems.is_empty() { Ok(cycle.into_iter().map(Warning::Cycle).collect()) } else { Err(problems) }
}

fn check_settings(topology: &Topology, problems: &mut Vec<Problem>) {
    let settings = &topology.settings;
    let ticks = topology.components.iter().map(|component| component.tick_interval);
    let is_zero_tick = ticks.chain([settings.tick_interval]).flatten().any(|interval| interval.is_zero());
    let rows = [
        ("workers", settings.workers == 0),
        ("max_spout_pending", settings.max_spout_pending == 0),
        ("spout_bytes_max", settings.spout_bytes_max == 0),
        ("message_timeout", settings.message_timeout.is_zero()),
        ("attempts_max", settings.attempts_max == 0),
        ("tick_interval", is_zero_tick),
        ("channel_bytes_max", settings.channel_bytes_max == 0),
        ("batch_tuples_max", settings.batch_tuples_max == 0),
    ];
    let zero = rows.into_iter().filter(|(_, is_zero)| *is_zero);
    problems.extend(zero.map(|(key, _)| Problem::ZeroSetting { key }));
}

fn check_whole(topology: &Topology, problems: &mut Vec<Problem>) {
    let components = &topology.components;
    if components.iter().all(|component| component.kind != Kind::Spout) {
        problems.push(Problem::NoSpout);
    }
    for id in duplicates(components.iter().map(|component| &component.id)) {
        problems.push(Problem::DuplicateComponent { id: id.clone() });
    }
    let tasks = components.iter().map(|component| u64::from(component.parallelism.tasks)).sum();
    let streams = components.iter().map(|component| component.streams.len() as u64).sum();
    let rows = [
        ("components", components.len() as u64, COMPONENTS_MAX),
        ("streams", streams, STREAMS_MAX),
        ("tasks", tasks, TASKS_MAX),
    ];
    let many = rows.into_iter().filter(|(_, count, most)| count > most);
    problems.extend(many.map(|(what, count, most)| Problem::TooMany { what, count, most }));
}

fn check_component(component: &Component, problems: &mut Vec<Problem>) {
    let name = || component.id.clone();
    let (tasks, executors) = (component.parallelism.tasks, component.parallelism.executors);
    if component.id.is_empty() {
        problems.push(Problem::EmptyId);
    }
    for (what, count) in [("tasks", tasks), ("executors", executors)] {
        if count == 0 {
            problems.push(Problem::ZeroParallelism { component: name(), what });
        }
    }
    if executors > tasks && tasks > 0 {
        problems.push(Problem::IdleExecutors { component: name(), executors, tasks });
    }
    for stream in duplicates(component.streams.iter().map(|stream| &stream.id)) {
        problems.push(Problem::DuplicateStream { component: name(), stream: stream.clone() });
    }
    for Stream { id, fields, .. } in &component.streams {
        for field in duplicates(fields) {
            let (stream, field) = (id.clone(), field.clone());
            problems.push(Problem::DuplicateField { component: name(), stream, field });
        }
    }
    for (from, stream) in duplicates(component.inputs.iter().map(|input| (&input.from, &input.stream))) {
        let (from, stream) = (from.clone(), stream.clone());
        problems.push(Problem::DuplicateSubscription { component: name(), from, stream });
    }
    match component.kind {
        Kind::Spout => problems.extend(
            component
                .inputs
                .iter()
                .map(|input| Problem::SpoutSubscribes { component: name(), from: input.from.clone() }),
        ),
        Kind::Bolt if component.inputs.is_empty() => problems.push(Problem::NoInput { component: name() }),
        Kind::Bolt => {}
    }
}

fn check_input(
    topology: &Topology,
    by_id: &HashMap<&str, usize>,
    component: &Component,
    input: &Subscription,
    problems: &mut Vec<Problem>,
) {
    let (name, from) = (component.id.clone(), input.from.clone());
    let components = &topology.components;
    let Some(emitter) = by_id.get(from.as_str()).map(|at| &components[*at]) else {
        // Nobody reads so many, and each looks at all names.
        let is_told = problems.len() < HINTS_MAX;
        let names = || components.iter().map(|other| other.id.as_str());
        let nearest = is_told.then(|| nearest(&from, names())).flatten();
        return problems.push(Problem::UnknownComponent { component: name, from, nearest });
    };
    let Some(stream) = emitter.streams.iter().find(|stream| stream.id == input.stream) else {
        let nearest = nearest(&input.stream, emitter.streams.iter().map(|stream| stream.id.as_str()));
        let stream = input.stream.clone();
        return problems.push(Problem::NoSource { component: name, from, stream, nearest });
    };
    if stream.is_direct != (input.grouping == Grouping::Direct) {
        let (component, from) = (name.clone(), from.clone());
        problems.push(Problem::DirectMismatch { component, from, stream: stream.id.clone() });
    }
    match &input.grouping {
        Grouping::Fields(fields) | Grouping::PartialKey(fields) if fields.is_empty() => {
            problems.push(Problem::NoFields { component: name, from });
        }
        Grouping::Custom(code) if code.is_empty() => {
            problems.push(Problem::EmptyCustom { component: name, from });
        }
        grouping => {
            let wanted = grouping.key_fields().unwrap_or_default();
            let unknown = wanted.iter().filter(|field| !stream.fields.contains(field));
            problems.extend(unknown.map(|field| Problem::UnknownField {
                component: name.clone(),
                from: from.clone(),
                stream: stream.id.clone(),
                field: field.clone(),
                nearest: nearest(field, stream.fields.iter().map(String::as_str)),
            }));
        }
    }
}

/// What is there more than once, once for each time too many.
fn duplicates<T: Copy + Eq + std::hash::Hash>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| !seen.insert(*item)).collect()
}

/// Components of a topology: a definition that is read by people stays far below.
pub const COMPONENTS_MAX: u64 = 1_000;
/// Tasks of a topology: each pair that an edge connects has a channel.
pub const TASKS_MAX: u64 = 10_000;
/// Problems for which the nearest component is looked for.
const HINTS_MAX: usize = 100;
/// Streams of a topology; their numbers have 16 bits.
const STREAMS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Parallelism;
    use crate::definition::fixture::{topology, word_count};

    fn problems(change: impl FnOnce(&mut Topology)) -> Vec<String> {
        let mut definition = word_count(2, 2);
        change(&mut definition);
        let problems = check(&definition).expect_err("a problem");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn definition_without_mistakes_has_no_warning() {
        assert_eq!(check(&word_count(2, 3)), Ok(vec![]));
    }

    #[test]
    fn unknown_names_are_reported_with_the_nearest_one() {
        let found = problems(|it| it.components[1].inputs[0].from = "sentense".into());
        assert_eq!(
            found,
            ["`split` subscribes to `sentense`, and there is no such component (did you mean `sentences`?)"]
        );
        let found = problems(|it| it.components[1].inputs[0].stream = "defaults".into());
        assert!(found[0].contains("(did you mean `default`?): nothing would come"), "{found:?}");
        let found = problems(|it| it.components[2].inputs[0].grouping = Grouping::fields(&["wort"]));
        assert!(found[0].ends_with("`wort`, which is not declared (did you mean `word`?)"), "{found:?}");
    }

    #[test]
    fn duplicates_are_reported() {
        let found = problems(|it| {
            it.components[1].id = "count".into();
            it.components[1].streams = vec![Stream::default_with(&["word", "word"]); 2];
            it.components[2].inputs = vec![Subscription::to("count", Grouping::Shuffle); 2];
        });
        let expected = [
            "two components have the id `count`",
            "`count` declares the stream `default` twice",
            "stream `default` of `count` declares the field `word` twice",
            "`count` subscribes to stream `default` of `count` twice",
        ];
        for text in expected {
            assert!(found.iter().any(|problem| problem == text), "{text} in {found:?}");
        }
    }

    #[test]
    fn parallelism_and_settings_of_zero_are_reported() {
        let found = problems(|it| {
            it.components[1].parallelism = Parallelism { tasks: 0, executors: 0 };
            it.components[2].parallelism = Parallelism { tasks: 2, executors: 3 };
            it.settings.workers = 0;
            it.settings.attempts_max = 0;
        });
        assert_eq!(
            found,
            [
                "workers is 0: it must be at least 1",
                "attempts_max is 0: it must be at least 1",
                "`split` has tasks 0: it needs at least 1",
                "`split` has executors 0: it needs at least 1",
                "`count` has 3 executors for 2 tasks: an executor needs a task",
            ]
        );
    }

    #[test]
    fn topology_that_is_too_large_is_reported() {
        let found = problems(|it| it.components[1].parallelism.tasks = u32::MAX);
        assert_eq!(found, ["4294967298 tasks are more than the 10000 that a topology can have"]);
    }

    #[test]
    fn chain_of_far_too_many_components_is_refused_before_it_is_followed() {
        let spout = Component::spout("0", vec![Stream::default_with(&["x"])]);
        let bolt = |number: usize| {
            let input = Subscription::to(&(number - 1).to_string(), Grouping::Shuffle);
            Component::bolt(&number.to_string(), vec![input], vec![Stream::default_with(&["x"])])
        };
        let definition = topology(std::iter::once(spout).chain((1..200_000).map(bolt)).collect());
        let first = check(&definition).expect_err("too many")[0].to_string();
        assert_eq!(first, "200000 components are more than the 1000 that a topology can have");
    }

    #[test]
    fn spouts_read_nothing_and_bolts_read_something() {
        let found = problems(|it| {
            it.components[0].inputs = vec![Subscription::to("count", Grouping::Shuffle)];
            it.components[2].streams = vec![Stream::default_with(&["word"])];
            it.components[1].inputs.clear();
        });
        assert_eq!(
            found,
            [
                "spout `sentences` subscribes to `count`: only bolts read streams",
                "bolt `split` subscribes to nothing: it would never be called",
            ]
        );
        assert_eq!(check(&topology(vec![])), Err(vec![Problem::NoSpout]));
    }

    #[test]
    fn groupings_must_fit_their_stream() {
        for grouping in [Grouping::Fields(vec![]), Grouping::PartialKey(vec![])] {
            let found = problems(|it| it.components[2].inputs[0].grouping = grouping);
            assert!(found[0].contains("by no field"), "{found:?}");
        }
        let found = problems(|it| it.components[2].inputs[0].grouping = Grouping::Direct);
        assert!(found[0].contains("both must be direct"), "{found:?}");
        let found = problems(|it| it.components[1].streams[0].is_direct = true);
        assert!(found[0].contains("both must be direct"), "{found:?}");
        let found = problems(|it| it.components[2].inputs[0].grouping = Grouping::Custom(String::new()));
        assert!(found[0].contains("has no name"), "{found:?}");
    }

    #[test]
    fn cycle_is_a_warning_and_with_barriers_a_problem() {
        let mut definition = word_count(1, 1);
        definition.components[2].streams = vec![Stream::default_with(&["word"])];
        definition.components[1].inputs.push(Subscription::to("count", Grouping::Shuffle));
        let cycle = ["split", "count", "split"].map(str::to_owned).to_vec();
        assert_eq!(check(&definition), Ok(vec![Warning::Cycle(cycle.clone())]));
        definition.settings.guarantee = Guarantee::ExactlyOnce;
        assert_eq!(check(&definition), Err(vec![Problem::CycleWithBarriers(cycle)]));
    }

    #[test]
    fn diamond_is_no_cycle() {
        let mut definition = word_count(1, 1);
        definition.components[2].inputs.push(Subscription::to("sentences", Grouping::Shuffle));
        assert_eq!(check(&definition), Ok(vec![]));
    }
}
