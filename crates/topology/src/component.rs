//! What a user writes: spouts and bolts, and what they are given to work with.
//!
//! ```text
//!  Spout:  open -> next_tuple ... -> close       ack, fail: what became of a tuple
//!  Bolt:   prepare -> execute, tick, wake ... -> close
//! ```
//!
//! Each task has a component of its own, made by its factory ([`crate::builder`]) and called by one thread at a time. A call that panics or
//! an `open` that fails ends the component; the runner makes another one after a pause, and its tuples fail.
//!
//! A call should not block: other tasks wait on the same thread. A component that waits for something outside returns, and has itself
//! called again with its [`Waker`].
//!
//! Out of scope: what calls them (crate `worker`).
//! Source: the interfaces of Apache Storm, without their configuration maps.

mod fault;
mod figures;
mod out;
#[cfg(test)]
mod tests;
mod tuple;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, UnixMs};

pub use fault::Fault;
pub use figures::{Figure, Figures};
pub use out::{BoltOut, BoltSink, Known, Outgoing, SpoutOut, SpoutSink, StateSink};
pub use tuple::{FieldError, FieldRef, Tuple};

use crate::changes::StateKey;
use crate::ids::{ComponentId, TaskId};
use crate::past::Past;
use crate::plan::Plan;
use crate::tracker::{DeadLetter, Position};

/// A source of tuples.
pub trait Spout: Send {
    /// Called once, before all others.
    ///
    /// # Errors
    /// The source cannot be read; another component is made after a pause.
    fn open(&mut self, _context: &Context<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// With exactly-once, called once after [`Spout::open`]: the first tuple is to be the one after this position, or the first of the source. From
    /// there on tuples and their positions must be the same whenever they are read, and positions grow.
    ///
    /// # Errors
    /// The spout cannot begin there; by default, nowhere.
    fn seek(&mut self, _after: Option<Position>) -> Result<(), Fault> {
        Err(Fault::new("this spout cannot begin at a position: use at-least-once"))
    }

    /// As [`Spout::seek`], where the spout may have had another number of tasks: what one of these has emitted is not to be emitted again ([`Past::is_done`]).
    ///
    /// # Errors
    /// The spout cannot begin there; by default, where it had another number of tasks.
    fn seek_past(&mut self, past: &Past) -> Result<(), Fault> {
        match past.former.first() {
            None => self.seek(past.after),
            Some(former) => Err(Fault::new(format!(
                "its positions are those of {} tasks, and this spout cannot go on from them with another number",
                former.0.len()
            ))),
        }
    }

    /// With exactly-once, a value of the store that becomes durable together with `position`, the last one that was emitted: what the spout wants to read when it
    /// begins there.
    fn kept_with(&mut self, _position: Position) -> Option<(StateKey, Bytes)> {
        None
    }

    /// Emits what there is, one tuple or some, and says when to call again. Called only while there is room for tuples that are not finished.
    ///
    /// # Errors
    /// The source cannot be read; the call is repeated after a pause.
    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault>;

    /// What it says of itself.
    fn condition(&self) -> Condition<'_> {
        Condition::default()
    }

    /// What its source has that it has not emitted yet, if it can tell without asking anybody.
    fn backlog(&mut self) -> Backlog {
        Backlog::Unknown
    }

    /// All that came of the tuple at `position` is done.
    fn ack(&mut self, _position: Position) {}

    /// The tuple will not be tried again: it could not be processed, or was tried `attempts_max` times.
    fn fail(&mut self, _letter: &DeadLetter) {}

    /// The topology is active again.
    fn activate(&mut self) {}

    /// The topology is inactive: `next_tuple` is not called until it is active.
    fn deactivate(&mut self) {}

    /// Called once, after all others, unless the component has panicked or its process ends suddenly.
    fn close(&mut self) {}
}

/// What reads streams and may emit.
pub trait Bolt: Send {
    /// Called once, before all others.
    ///
    /// # Errors
    /// It cannot work; another component is made after a pause.
    fn prepare(&mut self, _context: &Context<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Whether it takes a tuple now. If not, tuples and ticks wait, those who send them are slowed down, and it is asked again when
    /// its [`Waker`] was called.
    fn is_ready(&self) -> bool {
        true
    }

    /// What it says of itself.
    fn condition(&self) -> Condition<'_> {
        Condition::default()
    }

    /// Processes a tuple. What it emits meanwhile is anchored to this tuple.
    ///
    /// # Errors
    /// The tuple fails, as [`Fault`] says.
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault>;

    /// The tick interval has passed.
    ///
    /// # Errors
    /// Counted and shown. No tuple fails.
    fn tick(&mut self, _out: &mut BoltOut<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Somebody called the [`Waker`], once or more often since the last call.
    ///
    /// # Errors
    /// Counted and shown. No tuple fails.
    fn wake(&mut self, _out: &mut BoltOut<'_>) -> Result<(), Fault> {
        Ok(())
    }

    /// Called once, after all others, unless the component has panicked or its process ends suddenly.
    fn close(&mut self) {}
}

/// What a component says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Condition<'a> {
    /// It is being asked for tuples elsewhere, or tuples that it has are being processed there: in its process, for example.
    pub is_busy: bool,
    /// Why it can do nothing now, if it knows: its process cannot be started, for example.
    pub trouble: Option<&'a str>,
    /// What it reports by name, if that is anything.
    pub figures: Option<&'a Figures>,
}

/// When a spout is to be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// As soon as there is room.
    Now,
    /// After this time, or when its waker is called.
    After(Duration),
    /// When its waker is called.
    Woken,
}

/// What a source has that its spout has not emitted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backlog {
    /// The spout does not tell.
    #[default]
    Unknown,
    /// Nothing.
    Nothing,
    /// The oldest of it came at this time.
    Since(UnixMs),
}

/// What a bolt has done with a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is finished: the runner acknowledges it, unless the bolt has done so.
    Ack,
    /// The bolt keeps its [`Tuple::id`], and will acknowledge it or let it fail.
    Keep,
}

/// Where a component is.
#[derive(Debug)]
pub struct Context<'a> {
    plan: &'a Plan,
    task: TaskId,
    waker: &'a Waker,
    clock: Option<&'a Arc<dyn Clock>>,
}

impl<'a> Context<'a> {
    /// The context of `task`.
    #[must_use]
    pub fn new(plan: &'a Plan, task: TaskId, waker: &'a Waker) -> Self {
        Self { plan, task, waker, clock: None }
    }

    /// The same, where `clock` tells the time.
    #[must_use]
    pub fn with_clock(self, clock: &'a Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// What tells the time to all of the topology; `own`, if the component runs by itself.
    #[must_use]
    pub fn clock_or(&self, own: &Arc<dyn Clock>) -> Arc<dyn Clock> {
        Arc::clone(self.clock.unwrap_or(own))
    }

    /// The definition that it is part of.
    #[must_use]
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Its task.
    #[must_use]
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Its component.
    #[must_use]
    pub fn component(&self) -> ComponentId {
        self.plan.component_of(self.task)
    }

    /// Its component's id.
    #[must_use]
    pub fn id(&self) -> &'a str {
        &self.plan.component(self.component()).id
    }

    /// How many tasks its component has.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.plan.tasks(self.component()).len() as u32
    }

    /// Its place among the tasks of its component, from 0.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.task.0 - self.plan.tasks(self.component()).start
    }

    /// What has the component called again.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// Has a component called again, from any thread: a spout's `next_tuple`, a bolt's `wake`. Calls between two calls of the component count as one.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`.
    #[must_use]
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Has the component called.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
