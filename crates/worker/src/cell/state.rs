//! The state of a bolt's task: what it has changed, what was read from the store, and tuples that wait for what is being read.
//!
//! ```text
//!  get -> staged changes -> cache -> asked of the store: the tuple waits, and is executed again when the answer is there
//! ```
//!
//! Invariants
//!   1. A value is asked for once at a time; inputs that wait go on as [`Waiting`] says.
//!   2. An answer does not replace what the task has set meanwhile. No barrier passes while something is being read, so what it has set is staged then.
//!
//! **Bounds.** The cache: [`CACHE_BYTES`], and as much again. Inputs that wait: [`WAITING_MAX`], then no further one is taken.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use clock::Clock;
use connection::{Event, Link, Options, Target};
use resp::Value as Reply;
use topology::anchor::{Blame, Nack};
use topology::bolt::{BoltTask, Input, TupleId};
use topology::changes::{Command, StateKey};
use topology::component::{BoltSink, Known, StateSink, Waker};
use topology::ids::{StreamId, TaskId};
use topology::message::Misuse;
use topology::values::Values;

use super::waiting::{Missing, Waiting};

/// What a bolt's task knows of the store.
#[derive(Debug)]
pub(super) struct State {
    target: Target,
    waker: Waker,
    clock: Arc<dyn Clock>,
    name: String,
    /// Made when something is asked for first.
    link: Option<Link>,
    /// The connection that can be asked.
    life: Option<u64>,
    cache: Cache,
    /// What is being read, in the order of the answers.
    asked: VecDeque<StateKey>,
    /// The same.
    is_asked: HashSet<StateKey>,
    waiting: Waiting,
    /// What the call that is under way has to wait for.
    missing: Option<Missing>,
}

/// A bolt's task with its state, as the bolt sees it.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    pub(super) task: &'a mut BoltTask,
    pub(super) state: Option<&'a mut State>,
}

/// Values that were used lately: those of the younger half, and of the older.
#[derive(Debug, Default)]
struct Cache {
    young: HashMap<StateKey, Option<Bytes>>,
    old: HashMap<StateKey, Option<Bytes>>,
    young_bytes: usize,
}

impl State {
    /// The state of a component `name`, in the store at `target`.
    pub(super) fn new(target: &Target, name: &str, waker: Waker, clock: Arc<dyn Clock>) -> Self {
        Self {
            target: target.clone(),
            waker,
            clock,
            name: name.to_owned(),
            link: None,
            life: None,
            cache: Cache::default(),
            asked: VecDeque::new(),
            is_asked: HashSet::new(),
            waiting: Waiting::default(),
            missing: None,
        }
    }

    /// Whether a further input may be taken.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// The component is called with a further input.
    pub(super) fn begin(&mut self) {
        self.waiting.begin();
    }

    /// Whether nothing is being read, and no input waits: also no tick, which the task does not count as unfinished.
    pub(super) fn is_at_rest(&self) -> bool {
        self.asked.is_empty() && self.waiting.len() == 0
    }

    /// An input whose wait is over.
    pub(super) fn next_again(&mut self) -> Option<Input> {
        self.waiting.next()
    }

    /// The call for `input` has ended with word that it has to wait: whether that is so.
    pub(super) fn park(&mut self, input: Input) -> bool {
        let Some(missing) = self.missing.take() else { return false };
        self.waiting.park(missing, input);
        true
    }

    /// The component is gone, and what it was given has failed.
    pub(super) fn forget_inputs(&mut self) {
        self.waiting.clear();
        self.missing = None;
    }

    /// Takes answers.
    ///
    /// # Errors
    /// The connection was lost: what was asked for is asked for again. Or the store has answered an error: the tuples that wait for that value have failed.
    pub(super) fn pump(&mut self, task: &mut BoltTask) -> Result<(), String> {
        let Some(link) = &self.link else { return Ok(()) };
        let mut result = Ok(());
        for event in link.take() {
            match event {
                Event::Connected(life) => {
                    self.life = Some(life);
                    self.asked.iter().for_each(|key| ask(link, life, key));
                }
                Event::Lost(why) => {
                    self.life = None;
                    result = Err(format!("state cannot be read: {why}"));
                }
                Event::Reply(_, reply) => {
                    let Some(key) = self.asked.pop_front() else { continue };
                    self.is_asked.remove(&key);
                    match value(reply) {
                        Ok(value) => {
                            self.waiting.on_read(&key);
                            if task.staged(&key).is_none() {
                                self.cache.insert(key, value);
                            }
                        }
                        Err((error, nack)) => {
                            let shown = String::from_utf8_lossy(&key.key);
                            let error = format!("state at `{shown}` cannot be read: {error}");
                            for input in self.waiting.take(&key) {
                                if let Input::Tuple { id, .. } = input {
                                    task.fail(id, &error, nack).unwrap_or(());
                                }
                            }
                            result = Err(error);
                        }
                    }
                }
            }
        }
        result
    }

    /// Asks for a value, once.
    fn ask(&mut self, key: &StateKey) -> io::Result<()> {
        if self.is_asked.contains(key) {
            self.missing = Some(Missing::Value(key.clone()));
            return Ok(());
        }
        if self.link.is_none() {
            let (waker, options) = (self.waker.clone(), Options::named(&format!("state of {}", self.name)));
            let clock = Arc::clone(&self.clock);
            self.link = Some(Link::start_at(&self.target, options, clock, move || waker.wake())?);
        }
        self.missing = Some(Missing::Value(key.clone()));
        self.is_asked.insert(key.clone());
        self.asked.push_back(key.clone());
        if let (Some(link), Some(life)) = (&self.link, self.life) {
            ask(link, life, key);
        }
        Ok(())
    }
}

impl StateSink for Sink<'_> {
    fn get(&mut self, key: &StateKey) -> Known {
        let state = self.state.as_mut().expect("a sink without state gives no access to it");
        if let Some(staged) = self.task.staged(key) {
            return Known::Value(staged.cloned());
        }
        if let Some(value) = state.cache.get(key) {
            return Known::Value(value);
        }
        if let Err(error) = state.ask(key) {
            tracing::warn!(component = state.name, %error, "state cannot be read");
        }
        Known::Pending
    }

    fn is_first(&mut self) -> bool {
        let state = self.state.as_mut().expect("a sink without state gives no access to it");
        let is_first = state.waiting.is_first();
        if !is_first {
            state.missing = Some(Missing::Earlier);
        }
        is_first
    }

    fn set(&mut self, key: StateKey, value: Option<Bytes>) {
        if let Some(state) = &mut self.state {
            state.cache.insert(key.clone(), value.clone());
        }
        self.task.set(key, value);
    }

    fn command(&mut self, command: Command, from: Option<TupleId>) {
        self.task.command(command, from);
    }

    fn command_once(&mut self, command: Command) {
        self.task.command_once(command);
    }
}

impl BoltSink for Sink<'_> {
    fn emit(
        &mut self,
        stream: StreamId,
        values: Values,
        anchors: &[TupleId],
        direct: Option<TaskId>,
    ) -> Result<(), Misuse> {
        self.task.emit(stream, values, anchors, direct)
    }

    fn targets(&self) -> &[TaskId] {
        self.task.targets()
    }

    fn ack(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.task.ack(tuple)
    }

    fn fail(&mut self, tuple: TupleId, error: &str, nack: Nack) -> Result<(), Misuse> {
        self.task.fail(tuple, error, nack)
    }

    fn extend(&mut self, tuple: TupleId) -> Result<(), Misuse> {
        self.task.extend(tuple)
    }

    fn state(&mut self) -> Option<&mut dyn StateSink> {
        if self.state.is_some() { Some(self) } else { None }
    }
}

impl Cache {
    fn get(&mut self, key: &StateKey) -> Option<Option<Bytes>> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    /// Puts a value in; what was not used since the younger half was filled the last time goes.
    fn insert(&mut self, key: StateKey, value: Option<Bytes>) {
        let bytes = size_bytes(&key, value.as_ref());
        if self.young_bytes + bytes > CACHE_BYTES && !self.young.is_empty() {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.old.remove(&key);
        let former = self.young.get(&key).map_or(0, |former| size_bytes(&key, former.as_ref()));
        self.young_bytes = self.young_bytes + bytes - former;
        self.young.insert(key, value);
    }
}

fn size_bytes(key: &StateKey, value: Option<&Bytes>) -> usize {
    ENTRY_BYTES + key.key.len() + key.field.as_ref().map_or(0, Bytes::len) + value.map_or(0, Bytes::len)
}

fn ask(link: &Link, life: u64, StateKey { key, field }: &StateKey) {
    // A connection that is gone says so, and what was asked for is asked for on the next one.
    link.send(life, 0, |out| match field {
        None => resp::encode_command(out, &[b"GET", &key[..]]),
        Some(field) => resp::encode_command(out, &[b"HGET", &key[..], field]),
    });
}

/// What the store has; or what is wrong, and whether that is the tuple's matter.
fn value(reply: Reply) -> Result<Option<Bytes>, (String, Nack)> {
    match reply {
        Reply::Null => Ok(None),
        Reply::Bulk(value) => Ok(Some(value.into())),
        Reply::Error(text) if text.starts_with(b"WRONGTYPE") => {
            Err((String::from_utf8_lossy(&text).into_owned(), Nack::FAIL))
        }
        Reply::Error(text) => {
            let nack = Nack { blame: Blame::Silent, delay: None };
            Err((String::from_utf8_lossy(&text).into_owned(), nack))
        }
        other => Err((format!("the server answered {other:?}"), Nack::FAIL)),
    }
}

/// Bytes of values that are kept beside those that were set lately.
const CACHE_BYTES: usize = 8 << 20;
/// What an entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 128;
/// Tuples that wait for what is being read.
const WAITING_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> StateKey {
        StateKey::of_field("counts", n.to_string())
    }

    #[test]
    fn task_is_not_at_rest_while_something_is_read_whoever_waits_for_it() {
        let target: Target = "redis://127.0.0.1:1".parse().expect("a target");
        let clock = Arc::new(clock::SystemClock);
        let mut state = State::new(&target, "count", Waker::new(|| {}), clock);
        assert!(state.is_at_rest());
        state.ask(&key(1)).expect("a thread");
        assert!(!state.is_at_rest() && state.park(Input::Tick), "a tick waits");
        state.forget_inputs();
        assert!(!state.is_at_rest(), "the answer comes all the same");
    }

    #[test]
    fn cache_keeps_what_is_used_and_drops_what_is_not() {
        let mut cache = Cache::default();
        let value = Bytes::from(vec![b'x'; 1 << 10]);
        for n in 0..40_000 {
            cache.insert(key(n), Some(value.clone()));
            assert_eq!(cache.get(&key(0)), Some(Some(value.clone())), "it is used each time");
        }
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.get(&key(39_999)), Some(Some(value)));
        let held: usize =
            cache.young.iter().chain(&cache.old).map(|(key, value)| size_bytes(key, value.as_ref())).sum();
        assert!(held <= 2 * CACHE_BYTES, "{held} B");
        cache.insert(key(0), None);
        assert_eq!(cache.get(&key(0)), Some(None));
    }
}
