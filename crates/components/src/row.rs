//! A row of the table of components: what a component takes, and what it is made of.

use std::ops::RangeInclusive;

use topology::builder::Factory;

use crate::arguments::{Arguments, CommandError, Signature};

/// A component of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// What it takes.
    pub signature: Signature,
    /// What it keeps beside its tuples.
    pub(crate) keeps: &'static [Keeps],
    pub(crate) make: fn(&Arguments) -> Result<Made, CommandError>,
}

/// What a row makes of arguments.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) factory: Factory,
    /// Fields that each of its input streams must have.
    pub(crate) reads: Vec<String>,
    pub(crate) reach: Reach,
    pub(crate) emits: Emits,
    pub(crate) exact: Exact,
}

/// What does a component's work with exactly-once.
#[derive(Clone, Debug)]
pub(crate) enum Exact {
    /// The same component.
    Same,
    /// Another one.
    Other(Factory),
    /// Another one, which keeps state by the values of this field.
    Keyed(Factory, String),
    /// Another one, which emits nothing.
    Silent(Factory),
    /// Nothing, and why.
    None(&'static str),
}

/// What a component keeps beside its tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Its position in the stream that its first word names.
    Position,
    /// How far it is, which only exactly-once keeps.
    Progress,
    /// Numbers in the key of `--prefix` and this; without `--prefix` in memory.
    Key(&'static str),
    /// Keys that begin with `--prefix`.
    Keys,
    /// Such keys, other ones for each of its tasks; with exactly-once they hold for the number of tasks, the words and these options.
    KeysOfTasks(&'static [&'static str]),
    /// This, in memory.
    Memory(&'static str),
    /// This in memory, or with exactly-once keys of tasks that hold for these options.
    MemoryOrKeysOfTasks(&'static str, &'static [&'static str]),
    /// What it writes to the key that this word names.
    Output(usize),
    /// Nothing: messages go to the channel that this word names.
    Channel(usize),
    /// Dead letters, in the stream of this option.
    DeadLetters(&'static str),
}

/// What a component uses beside its tuples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// At most the server that `--url` names.
    Server,
    /// Files or variables of the machine, and which of its words say so.
    Machine(&'static str),
    /// A host that its words name.
    Host(String),
}

/// What a component emits on its default stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Emits {
    /// Nothing.
    Nothing,
    /// So many values, and what they are.
    Values(RangeInclusive<usize>, &'static str),
    /// The same, and on the stream [`LATE`] what it reads.
    ValuesAndLate(RangeInclusive<usize>, &'static str),
    /// The values of two components, this one's first; on the stream [`UNMATCHED`] what finds no partner.
    Joined([String; 2]),
    /// The values that it reads, and so many more.
    InputAnd(usize, &'static str),
}

/// The stream of tuples that came too late.
pub(crate) const LATE: &str = "late";
/// The stream of tuples without a partner: source, key, values.
pub(crate) const UNMATCHED: &str = "unmatched";
/// The option that names a server.
pub(crate) const URL: &str = "--url";
