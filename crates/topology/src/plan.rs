//! A checked definition with its parts numbered: what all workers of a topology agree on.
//!
//! Invariants
//!   1. Equal definitions give equal plans, so numbers need not be sent with a definition.
//!   2. Tasks, executors and streams of a component have consecutive numbers, in the order of the definition.
//!   3. Every [`Edge`] leads from a declared stream to a bolt, and its fields exist.
//!
//! Out of scope: where tasks run ([`crate::assignment`]).

mod check;
mod cycle;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

pub use check::COMPONENTS_MAX;
pub use check::TASKS_MAX;

use crate::definition::{Component, Grouping, Kind, Settings, Stream, Topology};
use crate::ids::{ComponentId, ExecutorId, StreamId, TaskId};
use crate::problem::{Problem, Warning};

/// A checked definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    topology: Topology,
    /// The component of each id.
    by_id: HashMap<String, ComponentId>,
    /// The first task of each component, and the end.
    first_task: Vec<u32>,
    /// The first executor of each component, and the end.
    first_executor: Vec<u32>,
    /// The first stream of each component, and the end.
    first_stream: Vec<u16>,
    /// By their readers.
    edges: Vec<Edge>,
    /// Places in `edges`, by streams; those of one stream in the order of their readers.
    by_stream: Vec<u32>,
}

/// A subscription with numbers for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The component that emits.
    pub from: ComponentId,
    /// What it emits.
    pub stream: StreamId,
    /// The bolt that reads it.
    pub to: ComponentId,
    /// Which of its tasks.
    pub grouping: Grouping,
    /// Places of the fields that the grouping names.
    pub key_fields: Vec<usize>,
}

impl Plan {
    /// Checks a definition and numbers its parts.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn new(topology: Topology) -> Result<(Self, Vec<Warning>), Vec<Problem>> {
        let warnings = check::check(&topology)?;
        let components = &topology.components;
        let first_task = starts(components, |component| component.parallelism.tasks);
        let first_executor = starts(components, |component| component.parallelism.executors);
        let streams = |component: &Component| component.streams.len() as u32;
        let first_stream = starts(components, streams).into_iter().map(|start| start as u16).collect();
        let ids = (0..).map(ComponentId).zip(components).map(|(id, component)| (component.id.clone(), id));
        let (by_id, edges, by_stream) = (ids.collect(), Vec::new(), Vec::new());
        let mut plan = Self { topology, by_id, first_task, first_executor, first_stream, edges, by_stream };
        plan.edges = plan.number_edges();
        plan.by_stream = (0..plan.edges.len() as u32).collect();
        plan.by_stream.sort_by_key(|&place| plan.edges[place as usize].stream);
        Ok((plan, warnings))
    }

    /// The definition.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The settings of the definition.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.topology.settings
    }

    /// All components.
    pub fn components(&self) -> impl Iterator<Item = (ComponentId, &Component)> {
        self.topology.components.iter().enumerate().map(|(at, component)| (ComponentId(at as u16), component))
    }

    /// The definition of `component`.
    #[must_use]
    pub fn component(&self, component: ComponentId) -> &Component {
        &self.topology.components[usize::from(component.0)]
    }

    /// The component of this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<ComponentId> {
        self.by_id.get(id).copied()
    }

    /// The stream that `component` declares under the name `stream`.
    #[must_use]
    pub fn stream(&self, component: ComponentId, stream: &str) -> Option<StreamId> {
        let place = self.component(component).streams.iter().position(|declared| declared.id == stream)?;
        Some(StreamId(self.first_stream[usize::from(component.0)] + place as u16))
    }

    /// The streams that `component` declares.
    pub fn streams(&self, component: ComponentId) -> impl Iterator<Item = (StreamId, &Stream)> {
        let first = self.first_stream[usize::from(component.0)];
        let streams = self.component(component).streams.iter().enumerate();
        streams.map(move |(place, stream)| (StreamId(first + place as u16), stream))
    }

    /// Who declares `stream`, and how.
    #[must_use]
    pub fn declaration(&self, stream: StreamId) -> (ComponentId, &Stream) {
        let component = self.first_stream.partition_point(|&first| first <= stream.0) - 1;
        let place = usize::from(stream.0 - self.first_stream[component]);
        (ComponentId(component as u16), &self.topology.components[component].streams[place])
    }

    /// The tasks of `component`.
    #[must_use]
    pub fn tasks(&self, component: ComponentId) -> Range<u32> {
        let at = usize::from(component.0);
        self.first_task[at]..self.first_task[at + 1]
    }

    /// How many tasks there are.
    #[must_use]
    pub fn tasks_count(&self) -> u32 {
        self.first_task.last().copied().unwrap_or(0)
    }

    /// The component of `task`.
    ///
    /// # Panics
    /// If there is no such task.
    #[must_use]
    pub fn component_of(&self, task: TaskId) -> ComponentId {
        assert!(task.0 < self.tasks_count(), "{task} is none of {}", self.tasks_count());
        ComponentId((self.first_task.partition_point(|&first| first <= task.0) - 1) as u16)
    }

    /// The tasks of all spouts.
    pub fn spout_tasks(&self) -> impl Iterator<Item = TaskId> {
        let spouts = self.components().filter(|(_, component)| component.kind == Kind::Spout);
        spouts.flat_map(|(id, _)| self.tasks(id)).map(TaskId)
    }

    /// How many executors there are.
    #[must_use]
    pub fn executors_count(&self) -> u32 {
        self.first_executor.last().copied().unwrap_or(0)
    }

    /// The component of `executor`, and the tasks that it runs: an even share of the component's.
    #[must_use]
    pub fn executor(&self, executor: ExecutorId) -> (ComponentId, Range<u32>) {
        let at = self.first_executor.partition_point(|&first| first <= executor.0) - 1;
        let component = ComponentId(at as u16);
        let count = self.first_executor[at + 1] - self.first_executor[at];
        let (tasks, place) = (self.tasks(component), executor.0 - self.first_executor[at]);
        let share =
            |place: u32| tasks.start + (u64::from(tasks.len() as u32 * place) / u64::from(count)) as u32;
        (component, share(place)..share(place + 1))
    }

    /// Subscriptions to what `component` emits, in the order of its streams. Costs a search, and what there is.
    pub fn edges_from(&self, component: ComponentId) -> impl Iterator<Item = &Edge> {
        let at = usize::from(component.0);
        self.edges_of(self.first_stream[at].into()..self.first_stream[at + 1].into())
    }

    /// Subscriptions to `stream`. Costs as [`Plan::edges_from`].
    pub fn readers(&self, stream: StreamId) -> impl Iterator<Item = &Edge> {
        self.edges_of(stream.0.into()..u32::from(stream.0) + 1)
    }

    fn edges_of(&self, streams: Range<u32>) -> impl Iterator<Item = &Edge> {
        let edge = |place: &u32| &self.edges[*place as usize];
        let stream = |edge: &Edge| u32::from(edge.stream.0);
        let begin = self.by_stream.partition_point(|place| stream(edge(place)) < streams.start);
        self.by_stream[begin..].iter().map(edge).take_while(move |edge| stream(edge) < streams.end)
    }

    /// Subscriptions of `component`. Costs as [`Plan::edges_from`].
    pub fn edges_to(&self, component: ComponentId) -> impl Iterator<Item = &Edge> {
        let begin = self.edges.partition_point(|edge| edge.to < component);
        self.edges[begin..].iter().take_while(move |edge| edge.to == component)
    }

    /// Streams that `component` reads, each once, in order.
    #[must_use]
    pub fn streams_to(&self, component: ComponentId) -> Vec<StreamId> {
        let mut streams: Vec<StreamId> = self.edges_to(component).map(|edge| edge.stream).collect();
        streams.sort_unstable();
        streams
    }

    /// Tasks that may send to `component`, each once, in order.
    #[must_use]
    pub fn upstream_tasks(&self, component: ComponentId) -> Vec<TaskId> {
        self.neighbours(self.edges_to(component).map(|edge| edge.from).collect())
    }

    /// Tasks that `component` may send to, each once, in order.
    #[must_use]
    pub fn downstream_tasks(&self, component: ComponentId) -> Vec<TaskId> {
        self.neighbours(self.edges_from(component).map(|edge| edge.to).collect())
    }

    /// Time between two tick tuples of each task of `component`.
    #[must_use]
    pub fn tick_interval(&self, component: ComponentId) -> Option<Duration> {
        let component = self.component(component);
        let of_topology = self.settings().tick_interval.filter(|_| component.kind == Kind::Bolt);
        component.tick_interval.or(of_topology)
    }

    fn neighbours(&self, mut components: Vec<ComponentId>) -> Vec<TaskId> {
        components.sort_unstable();
        components.dedup();
        components.into_iter().flat_map(|component| self.tasks(component)).map(TaskId).collect()
    }

    fn number_edges(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (to, component) in self.components() {
            for input in &component.inputs {
                let from = self.find(&input.from).expect("checked");
                let stream = self.stream(from, &input.stream).expect("checked");
                let fields = &self.declaration(stream).1.fields;
                let names = input.grouping.key_fields().unwrap_or_default();
                let place = |name| fields.iter().position(|field| field == name).expect("checked");
                let key_fields = names.iter().map(place).collect();
                edges.push(Edge { from, stream, to, grouping: input.grouping.clone(), key_fields });
            }
        }
        edges
    }
}

/// Where each component's numbers begin if it takes `count` of them, and where the last one's end.
fn starts(components: &[Component], count: impl Fn(&Component) -> u32) -> Vec<u32> {
    let ends = components.iter().scan(0, |end, component| {
        *end += count(component);
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Subscription;
    use crate::definition::fixture::{topology, word_count};

    #[test]
    fn parts_are_numbered_in_the_order_of_the_definition() {
        let (plan, warnings) = Plan::new(word_count(2, 3)).unwrap();
        assert_eq!(warnings, []);
        let (split, count) = (plan.find("split").unwrap(), plan.find("count").unwrap());
        assert_eq!((plan.tasks(split), plan.tasks(count), plan.tasks_count()), (1..3, 3..6, 6));
        assert_eq!(plan.component_of(TaskId(5)), count);
        assert_eq!(plan.spout_tasks().collect::<Vec<_>>(), [TaskId(0)]);
        let words = plan.stream(split, "default").unwrap();
        assert_eq!((words, plan.declaration(words).0), (StreamId(1), split));
        assert_eq!(plan.edges_to(count).map(|edge| edge.key_fields.clone()).collect::<Vec<_>>(), [[0]]);
        assert_eq!((plan.streams_to(count), plan.streams_to(ComponentId(0))), (vec![words], vec![]));
        assert_eq!(plan.upstream_tasks(count), [TaskId(1), TaskId(2)]);
        assert_eq!(plan.downstream_tasks(split), [TaskId(3), TaskId(4), TaskId(5)]);
    }

    /// Each scanned the edges of all components, once a second for each component.
    #[test]
    fn edges_are_found_by_their_ends_and_streams() {
        let streams = ["a", "b", "c"].map(|id| Stream::default_with(&["x"]).named(id)).to_vec();
        let mut components: Vec<Component> =
            (0..3).map(|at| Component::spout(&format!("s{at}"), streams.clone())).collect();
        for bolt in 0..5_usize {
            let input = |at: usize| Subscription {
                stream: ["c", "a", "b"][at % 3].to_owned(),
                ..Subscription::to(&format!("s{}", at / 3), Grouping::Shuffle)
            };
            let inputs = (0..9).filter(|at| (at * 5 + bolt) % 4 < 2).map(input).collect();
            components.push(Component::bolt(&format!("b{bolt}"), inputs, vec![]));
        }
        let (plan, _) = Plan::new(topology(components)).unwrap();
        let all = || plan.edges.iter();
        for (id, component) in plan.components() {
            let to: Vec<&Edge> = all().filter(|edge| edge.to == id).collect();
            assert_eq!(plan.edges_to(id).collect::<Vec<_>>(), to);
            let mut from: Vec<&Edge> = all().filter(|edge| edge.from == id).collect();
            from.sort_by_key(|edge| edge.stream);
            assert_eq!(plan.edges_from(id).collect::<Vec<_>>(), from);
            for stream in &component.streams {
                let number = plan.stream(id, &stream.id).unwrap();
                let readers: Vec<&Edge> = all().filter(|edge| edge.stream == number).collect();
                assert_eq!(plan.readers(number).collect::<Vec<_>>(), readers);
            }
        }
    }

    #[test]
    fn executors_share_the_tasks_of_their_component_evenly() {
        let mut definition = word_count(1, 7);
        definition.components[2].parallelism.executors = 3;
        let (plan, _) = Plan::new(definition).unwrap();
        assert_eq!(plan.executors_count(), 5);
        let shares: Vec<Range<u32>> = (2..5).map(|at| plan.executor(ExecutorId(at)).1).collect();
        assert_eq!(shares, [2..4, 4..6, 6..9]);
    }

    #[test]
    fn component_that_declares_no_stream_does_not_take_the_number_of_one() {
        let sink = Component::bolt("sink", vec![Subscription::to("a", Grouping::Shuffle)], vec![]);
        let after = Component::spout("b", vec![Stream::default_with(&["x"])]);
        let spout = Component::spout("a", vec![Stream::default_with(&["x"])]);
        let (plan, _) = Plan::new(topology(vec![spout, sink, after])).unwrap();
        assert_eq!(plan.declaration(StreamId(1)).0, ComponentId(2));
    }

    #[test]
    fn ticks_of_a_component_override_those_of_the_topology_and_spouts_have_none() {
        let mut definition = word_count(1, 1);
        definition.settings.tick_interval = Some(Duration::from_secs(1));
        definition.components[2].tick_interval = Some(Duration::from_secs(2));
        let (plan, _) = Plan::new(definition).unwrap();
        let intervals: Vec<_> = (0..3).map(|at| plan.tick_interval(ComponentId(at))).collect();
        assert_eq!(intervals, [None, Some(Duration::from_secs(1)), Some(Duration::from_secs(2))]);
    }
}
