//! Where a component is, as the handshake says it: a definition of the component and those that it reads, in the core's terms.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use topology::Plan;
use topology::builder::Factory;
use topology::definition::{Component, Grouping, Settings, Stream, Subscription, Topology};
use topology::ids::{StreamId, TaskId};

use crate::codec::Codec;

/// A component's place.
#[derive(Debug)]
pub(super) struct Place {
    /// How its parent speaks.
    pub(super) codec: Codec,
    pub(super) plan: Plan,
    /// Its task in the plan.
    pub(super) task: TaskId,
    pub(super) pid_dir: Option<String>,
    /// The numbers that the parent has for tasks, with those of the plan.
    tasks: BTreeMap<u64, TaskId>,
    /// Emissions of a tuple at most, before it is given up.
    pub(super) attempts_max: u32,
}

#[derive(Debug, Deserialize)]
struct Hello {
    #[serde(default, rename = "pidDir")]
    pid_dir: Option<String>,
    #[serde(default)]
    conf: Map<String, Json>,
    context: Context,
}

#[derive(Debug, Deserialize)]
struct Context {
    taskid: u64,
    #[serde(rename = "task->component")]
    components: BTreeMap<String, String>,
    #[serde(default, rename = "stream->outputfields")]
    outputs: BTreeMap<String, Vec<String>>,
    #[serde(default, rename = "source->stream->fields")]
    inputs: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Place {
    /// Reads a handshake for a component of `factory`.
    ///
    /// # Errors
    /// It is none, or the place is none for such a component.
    pub(super) fn read(codec: Codec, message: &[u8], factory: &Factory) -> Result<Self, String> {
        let hello: Hello = codec.read(message).map_err(|error| format!("it is no handshake: {error}"))?;
        let Hello { pid_dir, conf, context } = hello;
        let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (task, component) in &context.components {
            let task = task.parse().map_err(|_| format!("`{task}` is no number of a task"))?;
            numbers.entry(component).or_default().push(task);
        }
        numbers.values_mut().for_each(|tasks| tasks.sort_unstable());
        let own = *numbers
            .iter()
            .find(|(_, tasks)| tasks.contains(&context.taskid))
            .ok_or_else(|| format!("there is no component of the task {}", context.taskid))?
            .0;
        let topology = topology(own, &context, &conf, &numbers, factory);
        let (plan, _) = Plan::new(topology).map_err(|problems| {
            problems.first().map_or_else(String::new, |problem| format!("its place is none: {problem}"))
        })?;
        let mut tasks = BTreeMap::new();
        for (component, numbers) in numbers {
            let Some(id) = plan.find(component) else { continue };
            tasks.extend(numbers.into_iter().zip(plan.tasks(id).map(TaskId)));
        }
        let task = tasks[&context.taskid];
        let attempts_max = conf.get("evenkeel.attempts_max").and_then(Json::as_u64);
        let attempts_max = attempts_max.map_or(Settings::default().attempts_max, |attempts| attempts as u32);
        Ok(Self { codec, plan, task, pid_dir, tasks, attempts_max })
    }

    /// A stream of `component` that it reads.
    pub(super) fn stream(&self, component: &str, stream: &str) -> Option<StreamId> {
        self.plan.stream(self.plan.find(component)?, stream)
    }

    /// The task that the parent calls `number`.
    pub(super) fn task_of(&self, number: i64) -> TaskId {
        let task = u64::try_from(number).ok().and_then(|number| self.tasks.get(&number));
        task.copied().unwrap_or(TaskId(0))
    }
}

/// The component `own`, and those that it reads as spouts.
fn topology(
    own: &str,
    context: &Context,
    conf: &Map<String, Json>,
    numbers: &BTreeMap<&str, Vec<u64>>,
    factory: &Factory,
) -> Topology {
    let streams = |fields: &BTreeMap<String, Vec<String>>| -> Vec<Stream> {
        let stream = |(id, fields): (&String, &Vec<String>)| Stream {
            id: id.clone(),
            fields: fields.clone(),
            is_direct: false,
        };
        fields.iter().map(stream).collect()
    };
    let tasks = |component: &str| numbers.get(component).map_or(1, |tasks| tasks.len() as u32);
    let mut components: Vec<Component> = Vec::new();
    let mut inputs = Vec::new();
    for (from, fields) in context.inputs.iter().filter(|(from, _)| *from != own) {
        components.push(Component::spout(from, streams(fields)).with_tasks(tasks(from)));
        inputs.extend(fields.keys().map(|stream| Subscription {
            from: from.clone(),
            stream: stream.clone(),
            grouping: Grouping::Shuffle,
        }));
    }
    let outputs = streams(&context.outputs);
    let component = match factory {
        Factory::Spout(_) => Component::spout(own, outputs),
        Factory::Bolt(_) => Component::bolt(own, inputs, outputs),
    };
    components.push(component.with_tasks(tasks(own)));
    let name = conf.get("topology.name").and_then(Json::as_str).unwrap_or("topology").to_owned();
    let settings = Settings { tick_interval: tick_interval(conf), ..Settings::default() };
    Topology { name, settings, components }
}

/// How often the parent sends ticks: seconds, as a number or as text.
fn tick_interval(conf: &Map<String, Json>) -> Option<Duration> {
    let seconds = match conf.get("topology.tick.tuple.freq.secs")? {
        Json::String(text) => text.parse().ok()?,
        number => number.as_f64()?,
    };
    Duration::try_from_secs_f64(seconds).ok().filter(|interval| !interval.is_zero())
}
