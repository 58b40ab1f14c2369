//! The topologies that are simulated, and what must come of their input: the same graph, without time and faults.

use std::collections::BTreeMap;

use topology::Plan;
use topology::definition::{Component, Grouping, Guarantee, Kind, Settings, Stream, Subscription, Topology};
use topology::ids::{ComponentId, TaskId};
use topology::random::Random;

/// What a bolt does with a tuple of (id, key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Emits it again.
    Relay,
    /// Emits three, with other ids and keys.
    Split,
    /// Counts it under its key, and emits it.
    Count,
    /// Emits one when the same id has come from both components that it reads.
    Meet,
    /// Emits two as one, with both as anchors; a tick lets a single one go.
    Pair,
    /// Emits it to the task that its key names.
    Route,
    /// Appends it to the output.
    Sink,
}

/// The work of a component, which is in its id.
pub fn work_of(plan: &Plan, component: ComponentId) -> Option<Work> {
    let id = &plan.component(component).id;
    let all = [
        ("relay", Work::Relay),
        ("split", Work::Split),
        ("count", Work::Count),
        ("meet", Work::Meet),
        ("pair", Work::Pair),
        ("route", Work::Route),
        ("sink", Work::Sink),
    ];
    all.into_iter().find(|(name, _)| id.starts_with(name)).map(|(_, work)| work)
}

/// A tuple.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    pub id: String,
    pub key: u32,
}

/// What must come of all input.
#[derive(Debug, Default)]
pub struct Expected {
    /// How often each id must be in the output.
    pub outputs: BTreeMap<String, u64>,
    /// How often each key must be counted by each component.
    pub counts: BTreeMap<String, u64>,
}

/// A random topology.
pub fn random(random: &mut Random) -> Plan {
    let guarantees = [Guarantee::AtMostOnce, Guarantee::AtLeastOnce, Guarantee::ExactlyOnce];
    let guarantee = guarantees[random.index(3)];
    let mut tasks = || 1 + random.below(3) as u32;
    let fields = |names: &[&str]| Grouping::fields(names);
    let partial = || Grouping::partial_key(&["key"]);
    let components = match tasks() * 3 + tasks() {
        4 | 5 => vec![
            spout("s", tasks()),
            bolt("relay", &[("s", Grouping::Shuffle)], tasks()),
            bolt("count", &[("relay", fields(&["key"]))], tasks()),
            bolt("sink", &[("count", Grouping::Global)], 1),
        ],
        6 | 7 => vec![
            spout("s", tasks()),
            bolt("relay-a", &[("s", Grouping::LocalOrShuffle)], tasks()),
            bolt("relay-b", &[("s", Grouping::None)], tasks()),
            bolt("meet", &[("relay-a", fields(&["id"])), ("relay-b", fields(&["id"]))], tasks()),
            bolt("sink", &[("meet", Grouping::Shuffle)], tasks()),
        ],
        8 | 9 => vec![
            spout("s", tasks()),
            bolt("split", &[("s", Grouping::Shuffle)], tasks()),
            bolt("count", &[("split", fields(&["key"]))], tasks()),
            bolt("pair", &[("count", partial())], tasks()),
            bolt("sink", &[("pair", Grouping::Global)], 2),
        ],
        10 | 11 => vec![
            spout("s", tasks()),
            spout("t", 1),
            bolt("count", &[("s", fields(&["key"])), ("t", fields(&["key"]))], tasks()),
            bolt("relay", &[("t", Grouping::LocalOrShuffle)], tasks()),
            bolt("sink", &[("count", Grouping::Shuffle), ("relay", Grouping::All)], tasks()),
        ],
        _ => vec![
            spout("s", tasks()),
            direct(bolt("route", &[("s", Grouping::Shuffle)], tasks())),
            bolt("split", &[("route", Grouping::Direct)], tasks()),
            bolt("sink", &[("split", fields(&["id"])), ("s", Grouping::Shuffle)], tasks()),
        ],
    };
    let settings = settings(random, guarantee);
    let topology = Topology { name: "sim".to_owned(), settings, components };
    Plan::new(topology).expect("these are sound").0
}

/// What a faultless run gives for these inputs of each spout task.
pub fn expected(plan: &Plan, inputs: &BTreeMap<TaskId, Vec<Word>>) -> Expected {
    let mut run = Faultless { plan, expected: Expected::default(), met: BTreeMap::new() };
    for (task, words) in inputs {
        words.iter().for_each(|word| run.emitted(plan.component_of(*task), word));
    }
    run.expected
}

/// What a component of this work emits for one tuple, joins aside.
pub fn emitted(work: Work, word: &Word) -> Vec<Word> {
    match work {
        Work::Split => (0..3)
            .map(|part| Word { id: format!("{}/{part}", word.id), key: (word.key + part) % KEYS })
            .collect(),
        Work::Sink => vec![],
        _ => vec![word.clone()],
    }
}

struct Faultless<'a> {
    plan: &'a Plan,
    expected: Expected,
    met: BTreeMap<(ComponentId, String), u32>,
}

impl Faultless<'_> {
    fn emitted(&mut self, from: ComponentId, word: &Word) {
        for edge in self.plan.edges_from(from) {
            let copies = if edge.grouping == Grouping::All { self.plan.tasks(edge.to).len() } else { 1 };
            (0..copies).for_each(|_| self.execute(edge.to, word));
        }
    }

    fn execute(&mut self, component: ComponentId, word: &Word) {
        let work = work_of(self.plan, component).expect("it is a bolt");
        match work {
            Work::Count => {
                *self.expected.counts.entry(count_key(self.plan, component, word)).or_default() += 1;
            }
            Work::Sink => *self.expected.outputs.entry(word.id.clone()).or_default() += 1,
            Work::Meet => {
                let met = self.met.entry((component, word.id.clone())).or_default();
                *met += 1;
                if *met < 2 {
                    return;
                }
            }
            _ => {}
        }
        emitted(work, word).iter().for_each(|word| self.emitted(component, word));
    }
}

/// The key of the store under which a word is counted.
pub fn count_key(plan: &Plan, component: ComponentId, word: &Word) -> String {
    format!("{}:{}", plan.component(component).id, word.key)
}

fn settings(random: &mut Random, guarantee: Guarantee) -> Settings {
    let ms = std::time::Duration::from_millis;
    Settings {
        workers: 1 + random.below(3) as u32,
        guarantee,
        max_spout_pending: 1 + random.below(30) as u32,
        spout_bytes_max: 200 + random.below(2_000),
        message_timeout: ms(150),
        attempts_max: 3 + random.below(4) as u32,
        backoff: [0, 5, 20].into_iter().take(random.index(4)).map(ms).collect(),
        tick_interval: Some(ms(10)),
        channel_bytes_max: 150 + random.below(1_500),
        batch_tuples_max: 1 + random.below(8) as u32,
        transport: None,
        keys: None,
    }
}

fn spout(id: &str, tasks: u32) -> Component {
    Component { kind: Kind::Spout, ..Component::spout(id, vec![stream()]) }.with_tasks(tasks)
}

fn bolt(id: &str, inputs: &[(&str, Grouping)], tasks: u32) -> Component {
    let inputs = inputs.iter().map(|(from, grouping)| Subscription::to(from, grouping.clone())).collect();
    let streams = if id.starts_with("sink") { vec![] } else { vec![stream()] };
    Component::bolt(id, inputs, streams).with_tasks(tasks)
}

fn direct(mut component: Component) -> Component {
    component.streams[0].is_direct = true;
    component
}

fn stream() -> Stream {
    Stream::default_with(&["id", "key"])
}

/// How many keys there are.
pub const KEYS: u32 = 5;
