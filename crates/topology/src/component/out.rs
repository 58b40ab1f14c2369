//! What components emit with: thin handles over the tasks of the core, which find streams by their names.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Fault;
use crate::anchor::Nack;
use crate::bolt::{BoltTask, TupleId};
use crate::changes::{Command, StateKey};
use crate::definition::DEFAULT_STREAM;
use crate::ids::{ComponentId, StreamId, TaskId};
use crate::message::Misuse;
use crate::plan::Plan;
use crate::spout::{Emission, SpoutTask};
use crate::tracker::Position;
use crate::value::Value;
use crate::values::Values;

/// Where a bolt's tuples go: its task in the core, or whoever else runs bolts.
pub trait BoltSink: std::fmt::Debug {
    /// Emits a tuple.
    ///
    /// # Errors
    /// The definition does not allow it; nothing was emitted.
    fn emit(
        &mut self,
        stream: StreamId,
        values: Values,
        anchors: &[TupleId],
        direct: Option<TaskId>,
    ) -> Result<(), Misuse>;

    /// The tasks that got what was emitted last.
    fn targets(&self) -> &[TaskId];

    /// A tuple is finished.
    ///
    /// # Errors
    /// It was acknowledged or failed before.
    fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse>;

    /// A tuple is given up.
    ///
    /// # Errors
    /// It was acknowledged or failed before.
    fn fail(&mut self, tuple: TupleId, error: &str, nack: Nack) -> Result<(), Misuse>;

    /// The time-out of a tuple begins anew.
    ///
    /// # Errors
    /// It was acknowledged or failed before.
    fn extend(&mut self, tuple: TupleId) -> Result<(), Misuse>;

    /// Where the bolt's state is; `None`: the guarantee is another one than exactly-once, or the bolt runs elsewhere.
    fn state(&mut self) -> Option<&mut dyn StateSink> {
        None
    }
}

/// State of a bolt: what it changes becomes durable together with what all other tasks do, and its input positions.
pub trait StateSink: std::fmt::Debug {
    /// The value at `key`, or word that it is being read.
    fn get(&mut self, key: &StateKey) -> Known;

    /// Whether none of the inputs waits for its state that came before the one which the bolt is called with.
    fn is_first(&mut self) -> bool {
        true
    }

    /// Changes the value at `key`; `None` removes it.
    fn set(&mut self, key: StateKey, value: Option<Bytes>);

    /// Has the store execute a command. `from`: the tuple that is given up if the store refuses it.
    fn command(&mut self, command: Command, from: Option<TupleId>);

    /// The same of no tuple alone, unless the epoch has that command.
    fn command_once(&mut self, command: Command);
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is this one; or there is none.
    Value(Option<Bytes>),
    /// It is being read: the bolt is called again when it is known.
    Pending,
}

/// What says how much a spout may emit: its task in the core, or whoever else runs spouts.
pub trait SpoutSink: std::fmt::Debug {
    /// How many tuples it may be asked for now.
    fn room(&self) -> u32;

    /// Whether the definition allows such a tuple.
    ///
    /// # Errors
    /// It does not.
    fn verify(&self, stream: StreamId, values: &Values) -> Result<(), Misuse>;
}

/// Takes what a bolt emits, and what it says of tuples.
#[derive(Debug)]
pub struct BoltOut<'a> {
    plan: &'a Plan,
    component: ComponentId,
    task: &'a mut dyn BoltSink,
    input: Option<TupleId>,
    /// Something was emitted, changed or finished.
    has_acted: bool,
}

/// A tuple with all that can be said of it.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// The stream that it goes to.
    pub stream: &'a str,
    /// Its values.
    pub values: Values,
    /// The tuples that it was made from: it is part of their trees. Empty: nobody waits for it.
    pub anchors: &'a [TupleId],
    /// The task that gets it, for direct streams.
    pub direct: Option<TaskId>,
}

/// Takes what a spout emits.
#[derive(Debug)]
pub struct SpoutOut<'a> {
    plan: &'a Plan,
    component: ComponentId,
    task: &'a dyn SpoutSink,
    emissions: &'a mut VecDeque<Emission>,
}

impl<'a> BoltOut<'a> {
    /// What goes through `task`. What is emitted is anchored to `input`, if there is one.
    pub fn new(
        plan: &'a Plan,
        component: ComponentId,
        task: &'a mut dyn BoltSink,
        input: Option<TupleId>,
    ) -> Self {
        Self { plan, component, task, input, has_acted: false }
    }

    /// Emits a tuple on the default stream, made from the tuple that is being executed.
    ///
    /// # Errors
    /// The definition does not allow it; nothing was emitted.
    pub fn emit(&mut self, values: &[Value<'_>]) -> Result<(), Misuse> {
        self.emit_to(DEFAULT_STREAM, values)
    }

    /// Emits a tuple on `stream`, made from the tuple that is being executed.
    ///
    /// # Errors
    /// As [`BoltOut::emit`].
    pub fn emit_to(&mut self, stream: &str, values: &[Value<'_>]) -> Result<(), Misuse> {
        let input = self.input;
        let anchors = input.as_slice();
        self.send(Outgoing { stream, values: Values::encode(values)?, anchors, direct: None })
    }

    /// Emits a tuple.
    ///
    /// # Errors
    /// As [`BoltOut::emit`], or an anchor was acknowledged or failed before.
    pub fn send(&mut self, tuple: Outgoing<'_>) -> Result<(), Misuse> {
        let stream = stream(self.plan, self.component, tuple.stream)?;
        self.has_acted = true;
        self.task.emit(stream, tuple.values, tuple.anchors, tuple.direct)
    }

    /// The tasks that got what was emitted last.
    #[must_use]
    pub fn targets(&self) -> &[TaskId] {
        self.task.targets()
    }

    /// A tuple is finished.
    ///
    /// # Errors
    /// It was acknowledged or failed before.
    pub fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.has_acted = true;
        self.task.ack(tuple)
    }

    /// The value of the bolt's state at `key`, as this task has set it or as the store has it. State is for topologies that are exactly-once; a
    /// value should be changed by one task alone.
    ///
    /// # Errors
    /// The value must be read first: return the error, and the call is repeated when it is known. So all is read before anything is emitted,
    /// changed or finished: to read later is an error. Or the topology is not exactly-once.
    pub fn get(&mut self, key: &StateKey) -> Result<Option<Bytes>, Fault> {
        match self.state()?.get(key) {
            Known::Value(value) => Ok(value),
            Known::Pending if self.has_acted => {
                Err(Fault::new("state was read after something was emitted, changed or finished"))
            }
            Known::Pending => Err(Fault::pending()),
        }
    }

    /// Tuples whose state is known overtake others whose state is being read. A bolt for which their order matters asks here, when it has read all.
    ///
    /// # Errors
    /// An earlier tuple or tick waits: return the error, and the call is repeated when none does. Or the topology is not exactly-once.
    pub fn in_order(&mut self) -> Result<(), Fault> {
        if self.state()?.is_first() { Ok(()) } else { Err(Fault::pending()) }
    }

    /// Changes a value of the bolt's state; `None` removes it. The change is durable, and seen by others, when its epoch is.
    ///
    /// # Errors
    /// The topology is not exactly-once.
    pub fn set(&mut self, key: StateKey, value: Option<Bytes>) -> Result<(), Fault> {
        self.has_acted = true;
        self.state()?.set(key, value);
        Ok(())
    }

    /// Has the store execute a command that changes it, together with all else of the epoch, after the changes of state.
    ///
    /// # Errors
    /// The topology is not exactly-once, or there is no word. What the store says of the command is not told: if it refuses the command, the tuple that is being
    /// executed becomes a dead letter of the topology, and all else that came of it stays.
    pub fn command(&mut self, command: Command) -> Result<(), Fault> {
        let input = self.input;
        self.commands(&command)?.command(command, input);
        Ok(())
    }

    /// As [`BoltOut::command`], unless this task has given that command for the same epoch: for commands that need not be done twice, such as PEXPIRE.
    ///
    /// # Errors
    /// As [`BoltOut::command`].
    pub fn command_once(&mut self, command: Command) -> Result<(), Fault> {
        self.commands(&command)?.command_once(command);
        Ok(())
    }

    fn commands(&mut self, command: &Command) -> Result<&mut dyn StateSink, Fault> {
        self.has_acted = true;
        if command.is_empty() {
            return Err(Fault::new("a command has a word at least"));
        }
        self.state()
    }

    fn state(&mut self) -> Result<&mut dyn StateSink, Fault> {
        let none = "a bolt has state if its topology is exactly-once, and it runs in the worker";
        self.task.state().ok_or_else(|| Fault::new(none))
    }

    /// A tuple is given up: it is tried again, at once, later, or never, as `fault` says.
    ///
    /// # Errors
    /// It was acknowledged or failed before.
    pub fn fail(&mut self, tuple: TupleId, fault: &Fault) -> Result<(), Misuse> {
        self.has_acted = true;
        self.task.fail(tuple, fault.error(), fault.nack())
    }

    /// The bolt works on a tuple: its time-out begins anew.
    ///
    /// # Errors
    /// It was acknowledged or failed before.
    pub fn extend(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.task.extend(tuple)
    }
}

impl<'a> SpoutOut<'a> {
    /// Appends to `emissions` what `task` may emit.
    pub fn new(
        plan: &'a Plan,
        component: ComponentId,
        task: &'a dyn SpoutSink,
        emissions: &'a mut VecDeque<Emission>,
    ) -> Self {
        Self { plan, component, task, emissions }
    }

    /// How many more tuples go out at once. A spout may emit more: they wait, and it is not called meanwhile.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.task.room() as usize).saturating_sub(self.emissions.len())
    }

    /// Emits a tuple on the default stream. `position` is what [`super::Spout::ack`] is told: where it is in the source.
    ///
    /// # Errors
    /// The definition does not allow it; nothing was emitted.
    pub fn emit(&mut self, position: Position, values: &[Value<'_>]) -> Result<(), Misuse> {
        self.emit_to(DEFAULT_STREAM, position, values)
    }

    /// Emits a tuple on `stream`.
    ///
    /// # Errors
    /// As [`SpoutOut::emit`].
    pub fn emit_to(&mut self, stream: &str, position: Position, values: &[Value<'_>]) -> Result<(), Misuse> {
        self.send(stream, position, Values::encode(values)?, None)
    }

    /// Emits a tuple on `stream`, for direct streams to the task `direct`. One that is too large for a channel is given up: a dead letter, as if it had failed too often.
    ///
    /// # Errors
    /// As [`SpoutOut::emit`].
    pub fn send(
        &mut self,
        name: &str,
        position: Position,
        values: Values,
        direct: Option<TaskId>,
    ) -> Result<(), Misuse> {
        let stream = stream(self.plan, self.component, name)?;
        let refused = match self.task.verify(stream, &values) {
            Err(misuse @ Misuse::TooLarge { .. }) => Some(misuse.to_string()),
            verified => verified.map(|()| None)?,
        };
        self.emissions.push_back(Emission { position, stream, values, direct, refused });
        Ok(())
    }
}

fn stream(plan: &Plan, component: ComponentId, name: &str) -> Result<StreamId, Misuse> {
    plan.stream(component, name).ok_or_else(|| {
        let component = plan.component(component).id.clone();
        Misuse::UnknownStream { component, stream: name.to_owned() }
    })
}

impl BoltSink for BoltTask {
    fn emit(
        &mut self,
        stream: StreamId,
        values: Values,
        anchors: &[TupleId],
        direct: Option<TaskId>,
    ) -> Result<(), Misuse> {
        self.emit(stream, values, anchors, direct)
    }

    fn targets(&self) -> &[TaskId] {
        self.targets()
    }

    fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.ack(tuple)
    }

    fn fail(&mut self, tuple: TupleId, error: &str, nack: Nack) -> Result<(), Misuse> {
        self.fail(tuple, error, nack)
    }

    fn extend(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.extend(tuple)
    }
}

impl SpoutSink for SpoutTask {
    fn room(&self) -> u32 {
        self.room()
    }

    fn verify(&self, stream: StreamId, values: &Values) -> Result<(), Misuse> {
        self.verify(stream, values)
    }
}
