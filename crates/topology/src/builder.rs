//! A definition together with its code: what a runner needs to run a topology.
//!
//! ```
//! # use topology::builder::TopologyBuilder;
//! # use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple};
//! # #[derive(Default)] struct Sentences;
//! # impl Spout for Sentences {
//! #     fn next_tuple(&mut self, _: &mut SpoutOut<'_>) -> Result<Next, Fault> { Ok(Next::Woken) }
//! # }
//! # #[derive(Default)] struct Split;
//! # impl Bolt for Split {
//! #     fn execute(&mut self, _: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> { Ok(Outcome::Ack) }
//! # }
//! # type Count = Split;
//! let mut builder = TopologyBuilder::new("word-count");
//! builder.set_spout("sentences", Sentences::default).outputs(&["sentence"]);
//! builder.set_bolt("split", Split::default).tasks(2).shuffle("sentences").outputs(&["word"]);
//! builder.set_bolt("count", Count::default).tasks(2).fields("split", &["word"]);
//! let program = builder.build().expect("the definition is right");
//! assert_eq!(program.plan().tasks_count(), 5);
//! ```
//!
//! A definition that comes from elsewhere becomes a [`Program`] with [`Program::new`].
//! Source: `TopologyBuilder` of Apache Storm.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::component::{Bolt, Spout};
use crate::definition::{Component, Grouping, Kind, Parallelism, Settings, Stream, Subscription, Topology};
use crate::grouping::CustomGrouping;
use crate::ids::ComponentId;
use crate::plan::Plan;
use crate::problem::{Problem, Warning};

/// Makes the components of one id: one for each task, and another one when one has panicked.
#[derive(Clone)]
pub enum Factory {
    /// Of a spout.
    Spout(Arc<dyn Fn() -> Box<dyn Spout> + Send + Sync>),
    /// Of a bolt.
    Bolt(Arc<dyn Fn() -> Box<dyn Bolt> + Send + Sync>),
}

/// Makes one custom grouping for each emitting task.
pub type GroupingFactory = Arc<dyn Fn() -> Box<dyn CustomGrouping> + Send + Sync>;

/// What the names of a definition stand for.
#[derive(Clone, Default)]
pub struct Code {
    /// By the ids of components.
    pub components: BTreeMap<String, Factory>,
    /// By the names of custom groupings.
    pub groupings: BTreeMap<String, GroupingFactory>,
    /// What spouts read, by their ids, where that is a stream of the store.
    pub origins: BTreeMap<String, Origin>,
}

/// The stream of a store that a spout reads. Its positions are ids of entries: milliseconds times 2^64 plus the sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The key of the stream.
    pub stream: String,
    /// For each value of a tuple the field of the entry that it was; `None`: it was none.
    pub fields: Vec<Option<String>>,
}

/// A checked definition with the code of its components.
#[derive(Clone, Debug)]
pub struct Program {
    plan: Arc<Plan>,
    warnings: Vec<Warning>,
    /// For each component, in the order of the definition.
    factories: Vec<Factory>,
    code: Code,
}

/// Collects components.
#[derive(Debug)]
pub struct TopologyBuilder {
    topology: Topology,
    code: Code,
}

/// A spout or a bolt that is being declared.
#[derive(Debug)]
pub struct Declarer<'a> {
    component: &'a mut Component,
}

impl Factory {
    /// A factory of spouts.
    pub fn spout<S: Spout + 'static>(make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        Self::Spout(Arc::new(move || Box::new(make())))
    }

    /// A factory of bolts.
    pub fn bolt<B: Bolt + 'static>(make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        Self::Bolt(Arc::new(move || Box::new(make())))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Spout(_) => Kind::Spout,
            Self::Bolt(_) => Kind::Bolt,
        }
    }
}

impl Program {
    /// Checks a definition, and that there is code for all of it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn new(topology: Topology, code: Code) -> Result<Self, Vec<Problem>> {
        let (plan, warnings) = Plan::new(topology)?;
        let mut problems = missing_groupings(&plan, &code);
        let mut factories = Vec::new();
        for (_, Component { id, kind, .. }) in plan.components() {
            match code.components.get(id) {
                Some(factory) if factory.kind() == *kind => factories.push(factory.clone()),
                Some(_) => problems.push(Problem::OtherKind { component: id.clone() }),
                None => problems.push(Problem::NoCode { component: id.clone() }),
            }
        }
        if problems.is_empty() {
            Ok(Self { plan: Arc::new(plan), warnings, factories, code })
        } else {
            Err(problems)
        }
    }

    /// The definition.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What is probably not meant so.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What makes the components of `component`.
    #[must_use]
    pub fn factory(&self, component: ComponentId) -> &Factory {
        &self.factories[usize::from(component.0)]
    }

    /// The stream that the spout `component` reads, if that is known.
    #[must_use]
    pub fn origin(&self, component: ComponentId) -> Option<&Origin> {
        self.code.origins.get(&self.plan.component(component).id)
    }

    /// A custom grouping by its name.
    #[must_use]
    pub fn grouping(&self, name: &str) -> Option<Box<dyn CustomGrouping>> {
        self.code.groupings.get(name).map(|make| make())
    }
}

impl TopologyBuilder {
    /// A topology without components, with the default settings.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let settings = Settings::default();
        let topology = Topology { name: name.to_owned(), settings, components: Vec::new() };
        Self { topology, code: Code::default() }
    }

    /// The settings of the topology, to be changed.
    pub fn settings(&mut self) -> &mut Settings {
        &mut self.topology.settings
    }

    /// Adds a spout. `make` makes one for each of its tasks.
    pub fn set_spout<S: Spout + 'static>(
        &mut self,
        id: &str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Declarer<'_> {
        self.set(Component::spout(id, Vec::new()), Factory::spout(make))
    }

    /// Adds a bolt. `make` makes one for each of its tasks.
    pub fn set_bolt<B: Bolt + 'static>(
        &mut self,
        id: &str,
        make: impl Fn() -> B + Send + Sync + 'static,
    ) -> Declarer<'_> {
        self.set(Component::bolt(id, Vec::new(), Vec::new()), Factory::bolt(make))
    }

    /// Registers the custom grouping `name`. `make` makes one for each emitting task.
    pub fn set_grouping<G: CustomGrouping + 'static>(
        &mut self,
        name: &str,
        make: impl Fn() -> G + Send + Sync + 'static,
    ) {
        self.code.groupings.insert(name.to_owned(), Arc::new(move || Box::new(make())));
    }

    /// Checks the definition.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn build(self) -> Result<Program, Vec<Problem>> {
        Program::new(self.topology, self.code)
    }

    fn set(&mut self, component: Component, factory: Factory) -> Declarer<'_> {
        self.code.components.insert(component.id.clone(), factory);
        self.topology.components.push(component);
        Declarer { component: self.topology.components.last_mut().expect("it was pushed") }
    }
}

impl Declarer<'_> {
    /// Declares the default stream with these fields.
    pub fn outputs(self, fields: &[&str]) -> Self {
        self.stream(Stream::default_with(fields))
    }

    /// Declares a stream.
    pub fn stream(self, stream: Stream) -> Self {
        self.component.streams.push(stream);
        self
    }

    /// Sets how many tasks it has, each with an executor of its own.
    pub fn tasks(self, tasks: u32) -> Self {
        self.parallelism(Parallelism { tasks, executors: tasks })
    }

    /// Sets how many tasks it has, and how many executors share them.
    pub fn parallelism(self, parallelism: Parallelism) -> Self {
        self.component.parallelism = parallelism;
        self
    }

    /// Sets the time between two calls of `tick` of each task.
    pub fn tick_every(self, interval: Duration) -> Self {
        self.component.tick_interval = Some(interval);
        self
    }

    /// Reads the default stream of `from`; each tuple goes to any one task, all of them equally often.
    pub fn shuffle(self, from: &str) -> Self {
        self.group(from, Grouping::Shuffle)
    }

    /// Reads the default stream of `from`; tuples with equal values of `fields` go to the same task.
    pub fn fields(self, from: &str, fields: &[&str]) -> Self {
        self.group(from, Grouping::fields(fields))
    }

    /// Reads the default stream of `from`; each tuple goes to all tasks.
    pub fn all(self, from: &str) -> Self {
        self.group(from, Grouping::All)
    }

    /// Reads the default stream of `from`; all tuples go to the first task.
    pub fn global(self, from: &str) -> Self {
        self.group(from, Grouping::Global)
    }

    /// Reads the default stream of `from`.
    pub fn group(self, from: &str, grouping: Grouping) -> Self {
        self.subscribe(Subscription::to(from, grouping))
    }

    /// Reads a stream.
    pub fn subscribe(self, subscription: Subscription) -> Self {
        self.component.inputs.push(subscription);
        self
    }
}

fn missing_groupings(plan: &Plan, code: &Code) -> Vec<Problem> {
    let inputs = plan
        .components()
        .flat_map(|(_, component)| component.inputs.iter().map(move |input| (component, input)));
    let missing = inputs.filter_map(|(component, input)| match &input.grouping {
        Grouping::Custom(name) if !code.groupings.contains_key(name) => {
            Some(Problem::NoGrouping { component: component.id.clone(), grouping: name.clone() })
        }
        _ => None,
    });
    missing.collect()
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Factory({:?})", self.kind())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groupings: Vec<&String> = self.groupings.keys().collect();
        f.debug_struct("Code")
            .field("components", &self.components)
            .field("groupings", &groupings)
            .field("origins", &self.origins)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{BoltOut, Fault, Next, Outcome, SpoutOut, Tuple};
    use crate::definition::fixture::word_count;
    use crate::values::Values;

    struct Nothing;

    impl Spout for Nothing {
        fn next_tuple(&mut self, _out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
            Ok(Next::Woken)
        }
    }

    impl Bolt for Nothing {
        fn execute(&mut self, _tuple: &Tuple<'_>, _out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
            Ok(Outcome::Ack)
        }
    }

    #[derive(Debug)]
    struct Last;

    impl CustomGrouping for Last {
        fn choose(&mut self, _values: &Values, count: u32, places: &mut Vec<u32>) {
            places.push(count - 1);
        }
    }

    fn texts(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn builder_gives_the_definition_that_it_was_told() {
        let mut builder = TopologyBuilder::new("test");
        builder.set_spout("sentences", || Nothing).outputs(&["sentence"]);
        builder.set_bolt("split", || Nothing).tasks(2).shuffle("sentences").outputs(&["word"]);
        builder.set_bolt("count", || Nothing).tasks(3).fields("split", &["word"]);
        let program = builder.build().unwrap();
        assert_eq!(program.plan().topology(), &word_count(2, 3));
        assert!(matches!(program.factory(ComponentId(0)), Factory::Spout(_)));
    }

    #[test]
    fn components_without_code_and_code_of_another_kind_are_named() {
        let mut code = Code::default();
        code.components.insert("split".to_owned(), Factory::spout(|| Nothing));
        code.components.insert("count".to_owned(), Factory::bolt(|| Nothing));
        let problems = Program::new(word_count(1, 1), code).unwrap_err();
        let expected = [
            "there is no code for `sentences`",
            "`split` is declared as a spout and its code is a bolt's, or the other way round",
        ];
        assert_eq!(texts(&problems), expected);
    }

    #[test]
    fn custom_grouping_is_found_by_its_name_or_missed() {
        let build = |registers: bool| {
            let mut builder = TopologyBuilder::new("test");
            builder.set_spout("source", || Nothing).outputs(&["n"]);
            builder.set_bolt("sink", || Nothing).group("source", Grouping::Custom("last".to_owned()));
            if registers {
                builder.set_grouping("last", || Last);
            }
            builder.build()
        };
        assert!(build(true).unwrap().grouping("last").is_some());
        let problems = build(false).unwrap_err();
        assert_eq!(
            texts(&problems),
            ["`sink` groups by `last`, and no custom grouping of this name is registered"]
        );
    }
}
