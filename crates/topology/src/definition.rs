//! What a user defines: components, the streams that they declare, who subscribes to them and how, and settings.
//!
//! ```text
//!   spout "orders" --stream "default" (id, customer, amount)--> fields(customer) --> bolt "sums" x 4 tasks
//! ```
//!
//! Plain data: nothing is checked here. [`crate::Plan::new`] checks a definition and numbers its parts.
//! Out of scope: the text form of a definition, and what a component runs.
//! Source: the model of Apache Storm (Toshniwal et al. 2014).

use std::fmt;
use std::time::Duration;

/// A definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// What holds for all components.
    pub settings: Settings,
    /// Spouts and bolts, in any order.
    pub components: Vec<Component>,
}

/// A spout or a bolt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its id, by which others subscribe to it.
    pub id: String,
    /// Whether it is a source.
    pub kind: Kind,
    /// What it emits.
    pub streams: Vec<Stream>,
    /// What it reads; empty for a spout.
    pub inputs: Vec<Subscription>,
    /// How many instances it has.
    pub parallelism: Parallelism,
    /// Time between two tick tuples of each of its tasks; `None`: that of the topology.
    pub tick_interval: Option<Duration>,
}

/// What a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads a source and emits.
    Spout,
    /// It reads streams, and may emit.
    Bolt,
}

/// A stream that a component declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its id, unique in its component; `default` if the user names none.
    pub id: String,
    /// The names of its tuples' fields, in their order.
    pub fields: Vec<String>,
    /// Its emitter names the task that gets a tuple.
    pub is_direct: bool,
}

/// A bolt's wish to read a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The component that emits it.
    pub from: String,
    /// The stream.
    pub stream: String,
    /// Which task of the subscriber gets a tuple.
    pub grouping: Grouping,
}

/// Which tasks of a subscriber get a tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Any one, all of them equally often.
    Shuffle,
    /// Any one in the emitter's worker; if there is none, as [`Grouping::Shuffle`].
    LocalOrShuffle,
    /// The one that owns the values of these fields.
    Fields(Vec<String>),
    /// The less loaded of two, which the values of these fields choose: for keys that are uneven.
    PartialKey(Vec<String>),
    /// Each of them.
    All,
    /// The one with the lowest number.
    Global,
    /// The one that the emitter names; the stream must be declared as direct.
    Direct,
    /// The user does not care: as [`Grouping::Shuffle`].
    None,
    /// Code of the user's, by its name.
    Custom(String),
}

/// How many instances a component has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// Instances.
    pub tasks: u32,
    /// Threads that share them, at most as many as there are tasks.
    pub executors: u32,
}

/// What holds for a whole topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Processes.
    pub workers: u32,
    /// What holds for each tuple, whatever fails.
    pub guarantee: Guarantee,
    /// Tuples of one spout task that may be unfinished at a time: emitted and not acknowledged, or waiting for their next attempt.
    pub max_spout_pending: u32,
    /// Bytes of such tuples of one spout task, beyond which it emits nothing new.
    pub spout_bytes_max: u64,
    /// A tuple that is not acknowledged for so long has failed. Exact: not earlier, and not a period later.
    pub message_timeout: Duration,
    /// How often a tuple is emitted at most, before it becomes a dead letter.
    pub attempts_max: u32,
    /// Pause before the second attempt, the third and so on; the last one holds for all further attempts. Empty: no pause.
    pub backoff: Vec<Duration>,
    /// Time between two tick tuples of each bolt task; `None`: there are none.
    pub tick_interval: Option<Duration>,
    /// Bytes that one task may have sent to another one that has not taken them: the bound of each channel's queue.
    pub channel_bytes_max: u64,
    /// Tuples that a spout task emits in one batch, which is acknowledged as a whole.
    pub batch_tuples_max: u32,
    /// Patterns of the keys that it may use on its server; `None`: it may do what a client may.
    pub keys: Option<Vec<String>>,
    /// What carries tuples between workers; `None`: whoever runs it decides.
    pub transport: Option<Transport>,
}

/// What carries tuples between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// libzmq, in builds that have it.
    ZeroMq,
}

impl Transport {
    /// All of them, with their names.
    pub const NAMES: [(&str, Self); 2] = [("tcp", Self::Tcp), ("zeromq", Self::ZeroMq)];

    /// The one called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(it, _)| *it == name).map(|(_, transport)| *transport)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::ZeroMq => "zeromq",
        }
    }
}

/// What holds for each tuple of a spout, whatever fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// It is never processed twice; it may be lost.
    AtMostOnce,
    /// It is never lost: processed, or a dead letter; it may be processed twice.
    AtLeastOnce,
    /// Changes of keys, emitted entries and input positions are as if it was processed once.
    ExactlyOnce,
}

impl Component {
    /// A spout that declares `streams`, with one task.
    #[must_use]
    pub fn spout(id: &str, streams: Vec<Stream>) -> Self {
        Self::new(id, Kind::Spout, streams, Vec::new())
    }

    /// A bolt that reads `inputs` and declares `streams`, with one task.
    #[must_use]
    pub fn bolt(id: &str, inputs: Vec<Subscription>, streams: Vec<Stream>) -> Self {
        Self::new(id, Kind::Bolt, streams, inputs)
    }

    fn new(id: &str, kind: Kind, streams: Vec<Stream>, inputs: Vec<Subscription>) -> Self {
        let parallelism = Parallelism { tasks: 1, executors: 1 };
        Self { id: id.to_owned(), kind, streams, inputs, parallelism, tick_interval: None }
    }

    /// The same component with so many tasks, each with an executor of its own.
    #[must_use]
    pub fn with_tasks(self, tasks: u32) -> Self {
        Self { parallelism: Parallelism { tasks, executors: tasks }, ..self }
    }
}

impl Stream {
    /// The stream that a component has if the user names none.
    #[must_use]
    pub fn default_with(fields: &[&str]) -> Self {
        let fields = fields.iter().map(|&field| field.to_owned()).collect();
        Self { id: DEFAULT_STREAM.to_owned(), fields, is_direct: false }
    }

    /// The same stream under the name `id`.
    #[must_use]
    pub fn named(self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self }
    }
}

impl Subscription {
    /// A subscription to the default stream of `from`.
    #[must_use]
    pub fn to(from: &str, grouping: Grouping) -> Self {
        Self { from: from.to_owned(), stream: DEFAULT_STREAM.to_owned(), grouping }
    }
}

impl Grouping {
    /// [`Grouping::Fields`] by `fields`.
    #[must_use]
    pub fn fields(fields: &[&str]) -> Self {
        Self::Fields(fields.iter().map(|&field| field.to_owned()).collect())
    }

    /// [`Grouping::PartialKey`] by `fields`.
    #[must_use]
    pub fn partial_key(fields: &[&str]) -> Self {
        Self::PartialKey(fields.iter().map(|&field| field.to_owned()).collect())
    }

    /// The fields whose values choose the task.
    #[must_use]
    pub fn key_fields(&self) -> Option<&[String]> {
        match self {
            Self::Fields(fields) | Self::PartialKey(fields) => Some(fields),
            _ => None,
        }
    }
}

impl fmt::Display for Grouping {
    /// In words: `fields word, lang`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Shuffle => "shuffle",
            Self::LocalOrShuffle => "local or shuffle",
            Self::Fields(_) => "fields",
            Self::PartialKey(_) => "partial key",
            Self::All => "all",
            Self::Global => "global",
            Self::Direct => "direct",
            Self::None => "none",
            Self::Custom(class) => return write!(f, "custom {class}"),
        };
        match self.key_fields() {
            Some(fields) => write!(f, "{name} {}", fields.join(", ")),
            None => f.write_str(name),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 1,
            guarantee: Guarantee::AtLeastOnce,
            max_spout_pending: 1_000,
            spout_bytes_max: 64 << 20,
            message_timeout: Duration::from_secs(30),
            attempts_max: 5,
            backoff: [100, 1_000, 5_000, 30_000].map(Duration::from_millis).to_vec(),
            tick_interval: None,
            channel_bytes_max: 256 << 10,
            batch_tuples_max: 256,
            transport: None,
            keys: None,
        }
    }
}

/// The stream that a component has if the user names none.
pub const DEFAULT_STREAM: &str = "default";

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A topology of these components with the default settings.
    pub(crate) fn topology(components: Vec<Component>) -> Topology {
        Topology { name: "test".to_owned(), settings: Settings::default(), components }
    }

    /// Sentences, split by some tasks, counted by others.
    pub(crate) fn word_count(splitters: u32, counters: u32) -> Topology {
        let by_word = Subscription::to("split", Grouping::fields(&["word"]));
        topology(vec![
            Component::spout("sentences", vec![Stream::default_with(&["sentence"])]),
            Component::bolt(
                "split",
                vec![Subscription::to("sentences", Grouping::Shuffle)],
                vec![Stream::default_with(&["word"])],
            )
            .with_tasks(splitters),
            Component::bolt("count", vec![by_word], vec![]).with_tasks(counters),
        ])
    }
}
