//! A spout as a child.
//!
//! On Apache Storm a tuple that fails is the spout's to emit again: it is kept here until it is acknowledged, and emitted again up to
//! `evenkeel.attempts_max` times. Under a [`crate::ChildThread`] the topology does that, and `fail` means that the tuple is given up.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::Value as Json;
use topology::component::{Context, Fault, Spout, SpoutOut, SpoutSink, Waker};
use topology::ids::StreamId;
use topology::message::Misuse;
use topology::spout::Emission;
use topology::tracker::{DeadLetter, Original, Position};
use topology::values::Values;

use super::place::Place;
use super::said::{self, Of};

/// A spout with what is out of it.
pub(super) struct SpoutSession {
    spout: Box<dyn Spout>,
    place: Place,
    out: BTreeMap<u128, Original>,
    again: VecDeque<u128>,
    /// Who started this process emits tuples again.
    has_topology: bool,
}

/// The streams, with how many fields they have.
#[derive(Debug)]
struct Streams<'a>(&'a Place);

#[derive(Debug, Deserialize)]
struct Command {
    command: String,
    id: Option<Json>,
}

impl SpoutSession {
    pub(super) fn new(mut spout: Box<dyn Spout>, place: Place, waker: &Waker) -> Result<Self, Fault> {
        spout.open(&Context::new(&place.plan, place.task, waker))?;
        let has_topology = std::env::var_os(crate::child::MARK).is_some();
        Ok(Self { spout, place, out: BTreeMap::new(), again: VecDeque::new(), has_topology })
    }

    /// A command of the parent.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn on_message(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let codec = self.place.codec;
        if codec.is_list(message) {
            return Ok(()); // tasks that got a tuple
        }
        let Command { command, id } =
            codec.read(message).map_err(|error| format!("it is no command: {error}"))?;
        let id = || id.as_ref().and_then(Json::as_str).and_then(|id| id.parse::<u128>().ok());
        match command.as_str() {
            "next" => self.next(out),
            "ack" => {
                if let Some(original) = id().and_then(|id| self.out.remove(&id)) {
                    self.spout.ack(original.position);
                }
            }
            "fail" => self.fail(id()),
            "activate" => self.spout.activate(),
            "deactivate" => self.spout.deactivate(),
            other => return Err(format!("unknown command `{other}`")),
        }
        said::sync(codec, out);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.spout.close();
    }

    fn next(&mut self, out: &mut Vec<u8>) {
        if let Some(original) = self.again.pop_front().and_then(|id| self.out.get_mut(&id)) {
            original.attempts += 1;
            let (position, stream, values) = (original.position, original.stream, original.values.clone());
            return self.say(position, stream, &values, out);
        }
        let mut emissions = VecDeque::new();
        let component = self.place.plan.component_of(self.place.task);
        let room = Streams(&self.place);
        let result =
            self.spout.next_tuple(&mut SpoutOut::new(&self.place.plan, component, &room, &mut emissions));
        if let Err(fault) = result {
            said::warning(self.place.codec, fault.error(), out);
        }
        for Emission { position, stream, values, direct, .. } in emissions {
            self.say(position, stream, &values, out);
            let original = Original { position, stream, direct, values, attempts: 1 };
            self.out.insert(position.0, original);
        }
    }

    fn say(&self, position: Position, stream: StreamId, values: &Values, out: &mut Vec<u8>) {
        let name = &self.place.plan.declaration(stream).1.id;
        if let Err(why) = said::emit(self.place.codec, name, values, &Of::Id(position.0.to_string()), out) {
            said::warning(self.place.codec, &format!("the tuple at {} is left out: {why}", position.0), out);
        }
    }

    fn fail(&mut self, id: Option<u128>) {
        let Some((id, original)) = id.and_then(|id| self.out.remove_entry(&id)) else { return };
        if !self.has_topology && original.attempts < self.place.attempts_max {
            self.out.insert(id, original);
            self.again.push_back(id);
            return;
        }
        let error = "it failed, or was not acknowledged in time".to_owned();
        self.spout.fail(&DeadLetter { original, component: None, error });
    }
}

impl SpoutSink for Streams<'_> {
    fn room(&self) -> u32 {
        NEXT_MAX
    }

    fn verify(&self, stream: StreamId, values: &Values) -> Result<(), Misuse> {
        let fields = self.0.plan.declaration(stream).1.fields.len();
        if values.len() == fields { Ok(()) } else { Err(Misuse::Fields { values: values.len(), fields }) }
    }
}

/// Tuples for one `next`: Storm looks how many are out before it asks.
const NEXT_MAX: u32 = 16;
