//! Keeps a child running, on a thread of its own: starts it, carries bytes, asks whether it lives, ends it, waits, starts the next one.
//!
//! ```text
//!  start -> handshake -> pid -> Event::Started(life) ... Event::Said ... -> Event::Ended(why) -> pause -> start
//! ```
//!
//! A *life* is one run of a child. What is sent is for a life: it is dropped if that one is over.
//!
//! Invariants
//!   1. After [`Event::Ended`] nothing of that life comes, and none of its processes is left.
//!   2. What waits for the component has at most `inbox_bytes_max`, and what one read gives beyond it: then the child's pipe fills.
//!   3. A pause doubles from `pause_min` to `pause_max`; a life of a minute sets it back.
//!
//! **Bounds.** What waits for the child is the component's matter ([`ChildThread::has_room`]).

mod attend;
mod living;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use processes::duplex::Duplex;
use serde_json::{Map, Value as Json};
use topology::Plan;
use topology::component::Waker;
use topology::definition::Kind;
use topology::ids::TaskId;

use crate::codec::Codec;
use crate::message::Message;
use crate::secret::Secret;
use attend::Attendant;
use living::Living;

pub use living::wait_for_children;

/// What a child is.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs; `None`: where this process does.
    pub folder: Option<PathBuf>,
    /// What it is told as its configuration.
    pub config: Map<String, Json>,
    /// How it speaks.
    pub codec: Codec,
    /// What it may take.
    pub limits: Limits,
    /// What it is told and no other process is.
    pub secret: Option<Secret>,
}

/// Bounds of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a message of the child.
    pub message_bytes_max: usize,
    /// Bytes of messages that wait for the component, beyond which nothing is read.
    pub inbox_bytes_max: usize,
    /// Tuples that may wait to be written to a bolt.
    pub tuples_max: usize,
    /// Tuples that a bolt may have and not have answered; `None`: what its sources have out.
    pub open_max: Option<usize>,
    /// Bytes that may wait to be told.
    pub waiting_bytes_max: usize,
    /// A child that owes an answer for so long is killed.
    pub timeout: Duration,
    /// Pause after a child has ended.
    pub pause_min: Duration,
    /// Pause after many have ended.
    pub pause_max: Duration,
    /// Processes that a child may have beside its own.
    pub children_max: u64,
    /// Resident memory of a child with all its processes.
    pub memory_bytes_max: u64,
    /// Time for a child to end by itself, when its standard input is closed.
    pub grace: Duration,
}

/// What a child is to do with what it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// Answers (`sync`) that it gives.
    pub answers: u32,
    /// Tuples that are told.
    pub tuples: usize,
}

/// What a component hears of its child.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A child has answered the handshake. Its life has this number.
    Started(u64),
    /// It says something.
    Said(Message),
    /// It is gone, and why.
    Ended(String),
}

type Shared = Duplex<Event, Pending>;

/// What a child was told and has not done.
#[derive(Debug, Default)]
struct Pending {
    /// Tuples that wait to be written, and those of what the child's thread has taken and not written.
    out_tuples: usize,
    taken_tuples: usize,
    /// The component waits until the child has taken more.
    is_awaited: bool,
    /// Answers that the child will give.
    owed: u32,
    /// Why the child is to be ended.
    end: Option<String>,
}

/// Keeps a child running until it is dropped.
#[derive(Debug)]
pub struct ChildThread {
    shared: Arc<Shared>,
    limits: Limits,
}

impl ChildThread {
    /// Starts the thread, and so the child of `task`. `waker` is called when there are events.
    ///
    /// # Errors
    /// The system has no thread or no descriptor. A command that cannot be started is an event.
    pub fn start(spec: &Spec, plan: &Plan, task: TaskId, waker: Waker) -> io::Result<Self> {
        let component = plan.component(plan.component_of(task));
        let shared = Arc::new(Shared::new(move || waker.wake(), spec.limits.inbox_bytes_max)?);
        let plan = plan.clone();
        let attendant = Attendant {
            name: component.id.clone(),
            task,
            is_bolt: component.kind == Kind::Bolt,
            plan,
            spec: spec.clone(),
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            shared: Arc::clone(&shared),
        };
        let living = Living::new();
        std::thread::Builder::new().name(format!("child of {}", component.id)).spawn(move || {
            let _until_here = living;
            attendant.run();
        })?;
        Ok(Self { shared, limits: spec.limits })
    }

    /// Moves what has happened to `events`.
    pub fn take(&self, events: &mut VecDeque<Event>) {
        events.append(&mut self.shared.take());
    }

    /// Has what `append` appends written to the child of `life`.
    ///
    /// Returns what `append` does, or `None`, with nothing appended, if that life is over.
    pub fn tell<R>(&self, life: u64, asks: Asks, append: impl FnOnce(&mut Vec<u8>) -> R) -> Option<R> {
        self.shared.send(life, |out, told| {
            told.owed += asks.answers;
            told.out_tuples += asks.tuples;
            append(out)
        })
    }

    /// Whether less than the limits allow waits to be written. If not, the waker is called when the child has taken some of it.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let mut state = self.shared.lock();
        let tuples = state.more.out_tuples + state.more.taken_tuples;
        let has_room = tuples < self.limits.tuples_max && state.out.len() < self.limits.waiting_bytes_max;
        state.more.is_awaited |= !has_room;
        has_room
    }

    /// Ends the child of `life`, because of what it did; another one is started after the pause.
    pub fn end(&self, life: u64, why: String) {
        let mut state = self.shared.lock();
        if state.life == Some(life) {
            state.more.end.get_or_insert(why);
            self.shared.waker.wake();
        }
    }
}

impl Drop for ChildThread {
    /// Has the child's standard input closed, and what is left of it killed after its grace; does not wait for that ([`wait_for_children`]).
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 4 << 20,
            inbox_bytes_max: 4 << 20,
            tuples_max: 1_000,
            open_max: None,
            waiting_bytes_max: 1 << 20,
            timeout: Duration::from_secs(30),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            children_max: 64,
            memory_bytes_max: 1 << 30,
            grace: Duration::from_secs(1),
        }
    }
}
