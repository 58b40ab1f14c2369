//! A spout that is a process.
//!
//! A child answers each command with `sync`. Several `next` are told at a time, as far as there is room for tuples, so that child and
//! topology do not wait for each other. A child that has nothing is asked again after a pause, which doubles from 1 ms to 64 ms.
//!
//! Tuples are tried again here, not by the child: it hears `fail` when one is given up.
//!
//! Out of scope: replies to `need_task_ids`. A tuple leaves later, when its batch does: the child is told no tasks.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use serde_json::Value as Json;
use topology::component::{Condition, Context, Fault, Next, Spout, SpoutOut};
use topology::tracker::{DeadLetter, Position};

use crate::child_thread::{Event, Spec};
use crate::kept::Kept;
use crate::message::{Emit, Message};
use crate::speak::{self, Command};

/// A spout whose tuples a child emits.
#[derive(Debug)]
pub struct ShellSpout {
    child: Kept,
    /// Commands that the child has not answered; whether each is a `next`.
    told: VecDeque<bool>,
    /// What the child knows its tuples by.
    ids: HashMap<u128, Json>,
    last: u128,
    /// The child has emitted since it was asked.
    has_emitted: bool,
    /// How long a child that has nothing is left alone.
    idle: Duration,
    is_active: bool,
}

impl ShellSpout {
    /// A spout that runs `spec`, once it is opened.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self {
            child: Kept::new(spec),
            told: VecDeque::new(),
            ids: HashMap::new(),
            last: 0,
            has_emitted: true,
            idle: IDLE_MIN,
            is_active: true,
        }
    }

    fn on_events(&mut self, out: &mut SpoutOut<'_>) -> Result<(), Fault> {
        self.child.look();
        let mut result = Ok(());
        while let Some(event) = self.child.next_event() {
            match event {
                Event::Started(_) => self.tell_state(),
                Event::Ended(why) => {
                    self.forget();
                    result = Err(Fault::new(format!("its child has ended: {why}")));
                }
                Event::Said(Message::Emit(emit)) => {
                    if let Err(why) = self.emit(emit, out) {
                        self.end_child(why);
                    }
                }
                Event::Said(Message::Sync) => {
                    self.told.pop_front();
                }
                Event::Said(Message::Error(_)) => {} // it is in the log
                Event::Said(message) => self.end_child(format!("a spout has no {message:?}")),
            }
        }
        result
    }

    fn tell_state(&mut self) {
        let state = if self.is_active { Command::Activate } else { Command::Deactivate };
        self.tell(&state);
    }

    fn emit(&mut self, emit: Emit, out: &mut SpoutOut<'_>) -> Result<(), String> {
        self.last += 1;
        let Emit { stream, values, id, direct, needs_task_ids, .. } = emit;
        let sent = out.send(&stream, Position(self.last), values, direct);
        sent.map_err(|misuse| format!("it emitted what it may not: {misuse}"))?;
        (self.has_emitted, self.idle) = (true, IDLE_MIN);
        if let Some(id) = id {
            self.ids.insert(self.last, id);
        }
        if needs_task_ids && direct.is_none() {
            self.child.tell(0, |codec, bytes| speak::task_ids(codec, &[], bytes));
        }
        Ok(())
    }

    fn tell(&mut self, command: &Command) {
        if self.child.tell(1, |codec, bytes| speak::command(codec, command, bytes)).is_some() {
            self.told.push_back(*command == Command::Next);
        }
    }

    fn end_child(&mut self, why: String) {
        self.child.end(why);
        self.forget();
    }

    /// A new child knows nothing of the tuples of the one before.
    fn forget(&mut self) {
        self.told.clear();
        self.ids.clear();
    }

    /// Asks for as many tuples as there is room for; when to look again.
    fn ask(&mut self, room: usize) -> Next {
        let asked = self.told.iter().filter(|&&is_next| is_next).count();
        if !self.child.is_alive() || asked > 0 {
            return Next::Woken;
        }
        if !std::mem::take(&mut self.has_emitted) {
            self.has_emitted = true; // it is asked after the pause
            let pause = self.idle;
            self.idle = (pause * 2).min(IDLE_MAX);
            return Next::After(pause);
        }
        if room == 0 {
            return Next::Now; // it is called when there is room
        }
        for _ in 0..room.min(NEXTS_MAX) {
            self.tell(&Command::Next);
        }
        Next::Woken
    }
}

impl Spout for ShellSpout {
    fn open(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.child.start(context)?;
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        self.on_events(out)?;
        Ok(self.ask(out.room()))
    }

    fn condition(&self) -> Condition<'_> {
        self.child.condition(self.told.contains(&true))
    }

    fn ack(&mut self, position: Position) {
        if let Some(id) = self.ids.remove(&position.0) {
            self.tell(&Command::Ack(id));
        }
    }

    fn fail(&mut self, letter: &DeadLetter) {
        if let Some(id) = self.ids.remove(&letter.original.position.0) {
            self.tell(&Command::Fail(id));
        }
    }

    fn activate(&mut self) {
        self.is_active = true;
        self.tell_state();
    }

    fn deactivate(&mut self) {
        self.is_active = false;
        self.tell_state();
    }

    fn close(&mut self) {
        self.child.stop();
    }
}

/// Commands that a child is told before it has answered.
const NEXTS_MAX: usize = 32;
const IDLE_MIN: Duration = Duration::from_millis(1);
const IDLE_MAX: Duration = Duration::from_millis(64);
