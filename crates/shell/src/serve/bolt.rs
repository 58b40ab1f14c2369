//! A bolt as a child: tuples come in, and wait while the bolt takes none.
//!
//! **Bounds.** The parent bounds how many tuples a child has; they wait here until the bolt takes them, so that heartbeats are heard meanwhile.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use serde::Deserialize;
use topology::anchor::Nack;
use topology::bolt::TupleId;
use topology::component::{Bolt, BoltOut, BoltSink, Context, Fault, Outcome, Tuple, Waker};
use topology::ids::{StreamId, TaskId};
use topology::message::Misuse;
use topology::value::{Value, ValueError};
use topology::values::Values;

use super::place::Place;
use super::said::{self, Of};
use crate::codec::Codec;
use crate::value::Field;

/// A bolt with what it has.
pub(super) struct BoltSession {
    bolt: Box<dyn Bolt>,
    place: Place,
    waiting: VecDeque<Waiting>,
    sink: Sink,
    last: u64,
}

/// A tuple that the bolt has not taken.
struct Waiting {
    id: String,
    from: TaskId,
    stream: StreamId,
    values: Values,
}

/// What a bolt says, on its way to the parent.
#[derive(Default)]
struct Sink {
    codec: Codec,
    /// What the parent calls the tuples that the bolt has.
    ids: HashMap<u64, String>,
    /// The names of its streams.
    streams: HashMap<StreamId, (String, usize)>,
    out: Vec<u8>,
}

#[derive(Debug, Deserialize)]
struct TupleMessage {
    id: Id,
    comp: Option<String>,
    stream: String,
    task: i64,
    tuple: Vec<Field>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(i64),
}

impl BoltSession {
    pub(super) fn new(mut bolt: Box<dyn Bolt>, place: Place, waker: &Waker) -> Result<Self, Fault> {
        bolt.prepare(&Context::new(&place.plan, place.task, waker))?;
        let component = place.plan.component_of(place.task);
        let mut sink = Sink { codec: place.codec, ..Sink::default() };
        for stream in &place.plan.component(component).streams {
            if let Some(id) = place.plan.stream(component, &stream.id) {
                sink.streams.insert(id, (stream.id.clone(), stream.fields.len()));
            }
        }
        Ok(Self { bolt, place, waiting: VecDeque::new(), sink, last: 0 })
    }

    /// A message of the parent.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn on_message(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let codec = self.place.codec;
        if codec.is_list(message) {
            return Ok(()); // tasks that got a tuple
        }
        let TupleMessage { id, comp, stream, task, tuple } =
            codec.read(message).map_err(|error| format!("it is no tuple: {error}"))?;
        let id = match id {
            Id::Text(id) => id,
            Id::Number(id) => id.to_string(),
        };
        match stream.as_str() {
            "__heartbeat" => said::sync(codec, out),
            "__tick" => {
                self.call(out, |bolt, out| bolt.tick(out));
                said::settled(codec, "ack", &id, out);
            }
            _ => {
                let component = comp.unwrap_or_default();
                let Some(stream) = self.place.stream(&component, &stream) else {
                    return Err(format!("it reads no stream `{stream}` of `{component}`"));
                };
                let values: Vec<Value<'static>> = tuple.into_iter().map(|field| field.0).collect();
                let values = Values::encode(&values).map_err(|error| error.to_string())?;
                self.waiting.push_back(Waiting { id, from: self.place.task_of(task), stream, values });
                self.execute(out);
            }
        }
        Ok(())
    }

    /// The bolt's waker was called.
    pub(super) fn wake(&mut self, out: &mut Vec<u8>) {
        self.call(out, |bolt, out| bolt.wake(out));
        self.execute(out);
    }

    pub(super) fn close(&mut self) {
        self.bolt.close();
    }

    /// Has the bolt execute what waits, as far as it takes it.
    fn execute(&mut self, out: &mut Vec<u8>) {
        while self.bolt.is_ready()
            && let Some(Waiting { id, from, stream, values }) = self.waiting.pop_front()
        {
            self.last += 1;
            self.sink.ids.insert(self.last, id);
            let (plan, number) = (&self.place.plan, TupleId::numbered(self.last));
            let tuple = Tuple::new(plan, number, from, stream, &values);
            let component = plan.component_of(self.place.task);
            let mut bolt_out = BoltOut::new(plan, component, &mut self.sink, Some(number));
            // An error of the sink says that the bolt has finished the tuple itself.
            match self.bolt.execute(&tuple, &mut bolt_out) {
                Ok(Outcome::Keep) => {}
                Ok(Outcome::Ack) => bolt_out.ack(number).unwrap_or(()),
                Err(fault) => bolt_out.fail(number, &fault).unwrap_or(()),
            }
        }
        out.append(&mut self.sink.out);
    }

    /// Calls the bolt without a tuple.
    fn call(
        &mut self,
        out: &mut Vec<u8>,
        call: impl FnOnce(&mut dyn Bolt, &mut BoltOut<'_>) -> Result<(), Fault>,
    ) {
        let component = self.place.plan.component_of(self.place.task);
        let mut bolt_out = BoltOut::new(&self.place.plan, component, &mut self.sink, None);
        if let Err(fault) = call(&mut *self.bolt, &mut bolt_out) {
            said::warning(self.place.codec, fault.error(), &mut self.sink.out);
        }
        out.append(&mut self.sink.out);
    }
}

impl BoltSink for Sink {
    fn emit(
        &mut self,
        stream: StreamId,
        values: Values,
        anchors: &[TupleId],
        _: Option<TaskId>,
    ) -> Result<(), Misuse> {
        let (name, fields) = self.streams.get(&stream).ok_or(Misuse::ForeignStream)?;
        if values.len() != *fields {
            return Err(Misuse::Fields { values: values.len(), fields: *fields });
        }
        let ids = anchors.iter().map(|id| self.ids.get(&id.number()).map(String::as_str));
        let ids = ids.collect::<Option<Vec<_>>>().ok_or(Misuse::UnknownTuple)?;
        let said = said::emit(self.codec, name, &values, &Of::Anchors(ids), &mut self.out);
        said.map_err(|_| Misuse::Value(ValueError::NotUtf8(0)))
    }

    fn targets(&self) -> &[TaskId] {
        &[]
    }

    fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        let id = self.ids.remove(&tuple.number()).ok_or(Misuse::UnknownTuple)?;
        said::settled(self.codec, "ack", &id, &mut self.out);
        Ok(())
    }

    fn fail(&mut self, tuple: TupleId, error: &str, _: Nack) -> Result<(), Misuse> {
        let id = self.ids.remove(&tuple.number()).ok_or(Misuse::UnknownTuple)?;
        said::error(self.codec, error, &mut self.out);
        said::settled(self.codec, "fail", &id, &mut self.out);
        Ok(())
    }

    fn extend(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.ids.get(&tuple.number()).map(|_| ()).ok_or(Misuse::UnknownTuple)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("ids", &self.ids).finish_non_exhaustive()
    }
}
