//! What tests run components on: a definition of a component with a neighbour, and what it has said.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use topology::Plan;
use topology::anchor::Nack;
use topology::bolt::TupleId;
use topology::changes::{Command, StateKey};
use topology::component::{
    Bolt, BoltOut, BoltSink, Context, Fault, Known, Next, Outcome, Spout, SpoutOut, SpoutSink, StateSink,
    Tuple, Waker,
};
use topology::definition::{Component, DEFAULT_STREAM, Grouping, Settings, Stream, Subscription, Topology};
use topology::ids::{ComponentId, StreamId, TaskId};
use topology::message::Misuse;
use topology::random::Random;
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError};
use crate::draft::Draft;
use crate::row::{Made, Row};

/// A component with a neighbour.
#[derive(Debug)]
pub(crate) struct Stand<C> {
    pub(crate) component: C,
    plan: Plan,
    pub(crate) emitted: Vec<(u128, Vec<String>)>,
    pub(crate) record: Record,
    waker: Waker,
    woken: Receiver<()>,
    count: u64,
}

/// What a bolt has said, with the numbers of its tuples.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What was wrong when it was woken last.
    pub(crate) said: Option<String>,
    pub(crate) emitted: Vec<Vec<String>>,
    pub(crate) acked: Vec<u64>,
    pub(crate) failed: Vec<(u64, String)>,
    /// Its state, as exactly-once has it.
    pub(crate) values: HashMap<StateKey, Bytes>,
    pub(crate) commands: Vec<String>,
    /// Values have to be read before they are known, and are forgotten now and then.
    pub(crate) cold: Option<Random>,
    known: HashSet<StateKey>,
}

#[derive(Debug)]
struct Unbounded;

/// What `row` makes of the words and options in `text`.
pub(crate) fn made(row: &Row, text: &str) -> Result<Made, String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let text = |error: CommandError| error.to_string();
    let mut arguments = Arguments::read(&row.signature, &words).map_err(text)?;
    arguments.set_default("--url", "redis://127.0.0.1:1".to_owned());
    (row.make)(&arguments).map_err(text)
}

/// Calls `call` with a tuple of these fields.
pub(crate) fn tuple<R>(fields: &[&str], values: &[Value<'_>], call: impl FnOnce(&Tuple<'_>) -> R) -> R {
    let plan = plan(fields, &[]);
    let values = Values::encode(values).expect("they fit");
    call(&Tuple::new(&plan, TupleId::numbered(1), TaskId(0), StreamId(0), &values))
}

/// Has `call` change the state, without a bolt.
pub(crate) fn draft<R>(record: &mut Record, call: impl FnOnce(&mut Draft<'_, '_>) -> Result<R, Fault>) -> R {
    try_draft(record, call).expect("nothing is wrong")
}

pub(crate) fn try_draft<R>(
    record: &mut Record,
    call: impl FnOnce(&mut Draft<'_, '_>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let plan = plan(&["x"], &[]);
    let mut out = BoltOut::new(&plan, ComponentId(1), record, None);
    let mut draft = Draft::new(&mut out);
    let result = call(&mut draft)?;
    draft.commit()?;
    Ok(result)
}

impl<S: Spout> Stand<S> {
    /// A spout that declares `fields`, opened.
    pub(crate) fn spout(component: S, fields: &[&str]) -> Self {
        let mut stand = Self::new(component, plan(fields, &[]));
        let context = Context::new(&stand.plan, TaskId(0), &stand.waker);
        stand.component.open(&context).expect("it opens");
        stand
    }

    /// Asks it once.
    pub(crate) fn ask(&mut self) -> Next {
        self.try_ask().expect("it has a source")
    }

    pub(crate) fn try_ask(&mut self) -> Result<Next, Fault> {
        let mut emissions = VecDeque::new();
        let mut out = SpoutOut::new(&self.plan, ComponentId(0), &Unbounded, &mut emissions);
        let next = self.component.next_tuple(&mut out);
        self.emitted.extend(emissions.iter().map(|emission| (emission.position.0, texts(&emission.values))));
        next
    }
}

impl<B: Bolt> Stand<B> {
    /// A bolt that reads `inputs` and declares `outputs`, prepared.
    pub(crate) fn bolt(component: B, inputs: &[&str], outputs: &[&str]) -> Self {
        Self::bolt_in(component, plan(inputs, outputs))
    }

    /// A bolt that is the last component of `plan`, prepared.
    pub(crate) fn bolt_in(component: B, plan: Plan) -> Self {
        let mut stand = Self::new(component, plan);
        stand.prepare();
        stand
    }

    /// Another bolt takes its place, with the state that is there.
    pub(crate) fn replace(&mut self, component: B) {
        self.component = component;
        self.record.known.clear();
        self.prepare();
    }

    fn prepare(&mut self) {
        let task = self.plan.tasks(self.own()).start;
        let context = Context::new(&self.plan, TaskId(task), &self.waker);
        self.component.prepare(&context).expect("it is prepared");
    }

    fn own(&self) -> ComponentId {
        ComponentId(self.plan.topology().components.len() as u16 - 1)
    }

    /// Gives it a tuple; what becomes of it is in the record.
    pub(crate) fn execute(&mut self, values: &[Value<'_>]) {
        self.execute_of(TaskId(0), values);
    }

    /// The same with a tuple of this task.
    pub(crate) fn execute_of(&mut self, from: TaskId, values: &[Value<'_>]) {
        self.count += 1;
        let (values, id) = (Values::encode(values).expect("they fit"), TupleId::numbered(self.count));
        let stream = self.plan.stream(self.plan.component_of(from), DEFAULT_STREAM).expect("declared");
        let (tuple, own) = (Tuple::new(&self.plan, id, from, stream, &values), self.own());
        self.record.forget();
        let result = loop {
            let mut out = BoltOut::new(&self.plan, own, &mut self.record, Some(id));
            match self.component.execute(&tuple, &mut out) {
                Err(fault) if fault.is_pending() => {}
                result => break result,
            }
        };
        match result {
            Ok(Outcome::Ack) => self.record.acked.push(self.count),
            Ok(Outcome::Keep) => {}
            Err(fault) => self.record.failed.push((self.count, fault.error().to_owned())),
        }
    }

    pub(crate) fn tick(&mut self) {
        self.record.forget();
        let own = self.own();
        let mut out = BoltOut::new(&self.plan, own, &mut self.record, None);
        while let Err(fault) = self.component.tick(&mut out) {
            assert!(fault.is_pending(), "{}", fault.error());
            out = BoltOut::new(&self.plan, own, &mut self.record, None);
        }
    }
}

impl<B: Bolt> Stand<B> {
    /// Waits until its waker is called.
    pub(crate) fn rest(&self) {
        self.woken.recv_timeout(PATIENCE).expect("it is woken");
    }

    /// Has it look at what has happened; what is wrong is recorded.
    pub(crate) fn wake(&mut self) {
        let mut out = BoltOut::new(&self.plan, ComponentId(1), &mut self.record, None);
        let said = self.component.wake(&mut out);
        self.record.said = said.err().map(|fault| fault.error().to_owned());
    }
}

impl<C> Stand<C> {
    fn new(component: C, plan: Plan) -> Self {
        let (sender, woken) = channel();
        let waker = Waker::new(move || sender.send(()).unwrap_or(()));
        Self { component, plan, emitted: Vec::new(), record: Record::default(), waker, woken, count: 0 }
    }
}

impl Record {
    /// Some of what is known is no more, if state is cold.
    fn forget(&mut self) {
        if let Some(random) = &mut self.cold {
            self.known.retain(|_| random.chance(2, 3));
        }
    }
}

impl BoltSink for Record {
    fn emit(&mut self, _: StreamId, values: Values, _: &[TupleId], _: Option<TaskId>) -> Result<(), Misuse> {
        self.emitted.push(texts(&values));
        Ok(())
    }

    fn targets(&self) -> &[TaskId] {
        &[]
    }

    fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.acked.push(tuple.number());
        Ok(())
    }

    fn fail(&mut self, tuple: TupleId, error: &str, _: Nack) -> Result<(), Misuse> {
        self.failed.push((tuple.number(), error.to_owned()));
        Ok(())
    }

    fn extend(&mut self, _: TupleId) -> Result<(), Misuse> {
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn StateSink> {
        Some(self)
    }
}

impl StateSink for Record {
    fn get(&mut self, key: &StateKey) -> Known {
        if self.cold.is_some() && self.known.insert(key.clone()) {
            return Known::Pending;
        }
        Known::Value(self.values.get(key).cloned())
    }

    fn set(&mut self, key: StateKey, value: Option<Bytes>) {
        match value {
            Some(value) => self.values.insert(key, value),
            None => self.values.remove(&key),
        };
    }

    fn command(&mut self, command: Command, _: Option<TupleId>) {
        self.commands.push(text(&command));
    }

    fn command_once(&mut self, command: Command) {
        if !self.commands.contains(&text(&command)) {
            self.command(command, None);
        }
    }
}

impl SpoutSink for Unbounded {
    fn room(&self) -> u32 {
        100
    }

    fn verify(&self, _: StreamId, _: &Values) -> Result<(), Misuse> {
        Ok(())
    }
}

fn text(command: &Command) -> String {
    command.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
}

fn texts(values: &Values) -> Vec<String> {
    let text = |place| {
        let mut out = Vec::new();
        values.value(place).expect("it is there").expect("a value").append_text(&mut out).expect("text");
        String::from_utf8(out).expect("text")
    };
    (0..values.len()).map(text).collect()
}

/// A spout with `fields`, and a bolt that reads them and has `outputs`.
fn plan(fields: &[&str], outputs: &[&str]) -> Plan {
    let input = Subscription::to("source", Grouping::Shuffle);
    let components = vec![
        Component::spout("source", vec![Stream::default_with(fields)]),
        Component::bolt("bolt", vec![input], vec![Stream::default_with(outputs)]),
    ];
    let topology = Topology { name: "test".to_owned(), settings: Settings::default(), components };
    Plan::new(topology).expect("it is right").0
}

const PATIENCE: Duration = Duration::from_secs(20);
