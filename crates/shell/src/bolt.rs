//! A bolt that is a process.
//!
//! Invariants
//!   1. A tuple that was taken is acknowledged or failed by the child, or is told to the next one, or fails with it (`held`): none is forgotten.
//!   2. At most `tuples_max` tuples and about `waiting_bytes_max` wait to be written to the child: beyond it no tuple is taken, so the queue before the bolt fills
//!      and stops its sources. How many the child has and has not answered is its own matter, as in Storm, unless `open_max` is set.
//!   3. A tuple that the child has had for the topology's time-out is given up: its source has given it up before.

use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use topology::bolt::TupleId;
use topology::component::{Bolt, BoltOut, Condition, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::Guarantee;
use topology::message::Misuse;

use crate::child_thread::{Event, Spec};
use crate::held::Held;
use crate::kept::Kept;
use crate::message::{Emit, Message};
use crate::speak::{self, TupleHeader};

/// A bolt that a child executes.
#[derive(Debug)]
pub struct ShellBolt {
    child: Kept,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    tick_s: u64,
    /// The guarantee is exactly-once.
    is_exact: bool,
    held: Held<TupleId>,
    last: u64,
    /// What the child said of an error, which belongs to the next tuple that it fails.
    error: Option<String>,
    /// What went wrong with a tuple whose time was over when the next one was executed.
    untold: Option<Fault>,
    /// It has answered a heartbeat since it was told a tuple: what it has it keeps, and waits for more.
    rests: bool,
}

impl ShellBolt {
    /// A bolt that runs `spec`, once it is prepared.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        let (child, timeout) = (Kept::new(spec), Duration::MAX);
        let held = Held::new(false, timeout);
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        let (last, error, untold) = (speak::NOBODYS, None, None);
        Self { child, clock, timeout, tick_s: 0, is_exact: false, held, last, error, untold, rests: false }
    }

    /// Handles what has happened; an error is for the log alone.
    fn on_events(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        self.child.look();
        let mut result = Ok(());
        while let Some(event) = self.child.next_event() {
            match event {
                Event::Started(_) => {}
                Event::Ended(why) => result = Err(self.on_end(&why, out)),
                Event::Said(message) => {
                    if let Err(why) = self.on_message(message, out) {
                        self.child.end(why);
                    }
                }
            }
        }
        self.tell_again();
        let untold = self.untold.take().map_or(Ok(()), Err);
        self.expire(out).and(untold).and(result)
    }

    /// Gives up what the child has had for too long.
    fn expire(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let now = self.clock.now();
        let mut result = Ok(());
        while let Some(tuple) = self.held.expire(now) {
            let error = format!(
                "its child did not answer a tuple for {:?} (topology.message.timeout.secs)",
                self.timeout
            );
            let fault = Fault::new(error);
            // Its tuple may be gone: the runner fails all when a component panics.
            out.fail(tuple, &fault).unwrap_or(());
            result = Err(fault);
        }
        result
    }

    /// Tells the child what one before it had.
    fn tell_again(&mut self) {
        while self.child.has_room(self.held.len())
            && let Some((message, asks)) = self.held.next_again()
        {
            let told = self.child.tell_tuple(u32::from(asks), |codec, bytes| {
                bytes.extend_from_slice(message);
                if asks {
                    speak::heartbeat(codec, bytes);
                }
            });
            if told.is_none() {
                return;
            }
            self.rests = false;
            self.held.on_told_again(self.clock.now());
        }
    }

    fn on_message(&mut self, message: Message, out: &mut BoltOut<'_>) -> Result<(), String> {
        match message {
            Message::Emit(emit) => self.emit(emit, out),
            Message::Ack(speak::NOBODYS) | Message::Fail(speak::NOBODYS) => Ok(()),
            Message::Ack(id) => match self.close(id, "ack")? {
                Some(tuple) => out.ack(tuple).map_err(|misuse| misuse.to_string()),
                None => Ok(()),
            },
            Message::Fail(id) => {
                let error = self.error.take().unwrap_or_else(|| "its child failed it".to_owned());
                match self.close(id, "fail")? {
                    Some(tuple) => out.fail(tuple, &Fault::new(error)).map_err(|misuse| misuse.to_string()),
                    None => Ok(()),
                }
            }
            Message::Error(text) => {
                self.error = Some(text);
                Ok(())
            }
            Message::Sync => {
                self.rests = true;
                self.held.on_answer();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A tuple that the child is done with; `None`: it was given up before.
    fn close(&mut self, id: u64, command: &str) -> Result<Option<TupleId>, String> {
        match self.held.close(id) {
            None if !self.held.is_expired(id) => Err(unknown(command, id)),
            tuple => Ok(tuple),
        }
    }

    fn emit(&mut self, emit: Emit, out: &mut BoltOut<'_>) -> Result<(), String> {
        let mut anchors = Vec::with_capacity(emit.anchors.len());
        for &id in emit.anchors.iter().filter(|&&id| id != speak::NOBODYS) {
            match self.held.tuple(id) {
                // What comes of a tuple that was given up is nobody's.
                None if !self.held.is_expired(id) => return Err(unknown("emit", id)),
                tuple => anchors.extend(tuple),
            }
        }
        let Emit { stream, values, direct, needs_task_ids, .. } = emit;
        let sent = out.send(Outgoing { stream: &stream, values, anchors: &anchors, direct });
        sent.map_err(|misuse: Misuse| format!("it emitted what it may not: {misuse}"))?;
        if needs_task_ids && direct.is_none() {
            let tasks = out.targets();
            self.child.tell(0, |codec, bytes| speak::task_ids(codec, tasks, bytes));
        }
        Ok(())
    }

    /// What the child is blamed for fails, in the order in which it was told. With exactly-once that is all it had, and the first one alone is blamed: programs end by
    /// the first that they have not finished, unless they put tuples off.
    fn on_end(&mut self, why: &str, out: &mut BoltOut<'_>) -> Fault {
        self.error = None;
        let error = format!("its child has ended: {why}");
        let mut fault = Fault::new(error.clone());
        for tuple in self.held.on_end() {
            // Its tuple may be gone: the runner fails all when a component panics.
            let _ = out.fail(tuple, &fault);
            if self.is_exact {
                fault = Fault::silent(error.clone());
            }
        }
        fault
    }
}

impl Bolt for ShellBolt {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        let interval = context.plan().tick_interval(context.component());
        let guarantee = context.plan().settings().guarantee;
        self.is_exact = guarantee == Guarantee::ExactlyOnce;
        self.timeout = context.plan().settings().message_timeout;
        self.held = Held::new(guarantee == Guarantee::AtLeastOnce, self.timeout);
        self.tick_s = interval.map_or(0, |interval| interval.as_secs());
        self.child.start(context)?;
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.held.has_room() && self.child.has_room(self.held.len())
    }

    fn condition(&self) -> Condition<'_> {
        self.child.condition(self.held.len() > 0 && !self.rests)
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        // What went wrong with earlier tuples is told when the bolt is woken, not for this one.
        self.untold = self.expire(out).err().or(self.untold.take());
        self.last += 1;
        let (component, stream) = (tuple.component(), tuple.stream().id.as_str());
        let told = TupleHeader { id: self.last, component, stream, task: tuple.task() };
        let fields = (0..tuple.values().len()).filter_map(|place| tuple.values().value(place));
        let values = fields.collect::<Result<Vec<_>, _>>()?;
        let mut message = Vec::new();
        speak::tuple(self.child.codec(), told, &values, &mut message).map_err(|(place, why)| {
            Fault::fatal(format!("field {place} cannot be told to a child: {why}"))
        })?;
        let is_told = self.child.tell_tuple(0, |_, bytes| bytes.extend_from_slice(&message)).is_some();
        self.rests = false;
        self.held.add(self.clock.now(), told.id, tuple.id(), message, is_told);
        Ok(Outcome::Keep)
    }

    fn tick(&mut self, _: &mut BoltOut<'_>) -> Result<(), Fault> {
        let interval_s = self.tick_s;
        self.child.tell(0, |codec, bytes| speak::tick(codec, interval_s, bytes));
        Ok(())
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        self.on_events(out)
    }

    fn close(&mut self) {
        self.child.stop();
    }
}

fn unknown(command: &str, id: u64) -> String {
    format!("`{command}` of the tuple {id}, which it does not have")
}
