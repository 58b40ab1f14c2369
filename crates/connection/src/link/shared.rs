//! What the owner's thread and the link's thread share: requests out, events in, a bell.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use resp::Value;
use rustix::event::{EventfdFlags, eventfd};

use super::Event;

/// Shared by both threads.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Rung when all requests have a reply.
    idle: Condvar,
    /// Wakes the link's thread.
    pub(super) bell: OwnedFd,
    wake: Box<dyn Fn() + Send + Sync>,
    inbox_bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The connection that can be told something.
    life: Option<u64>,
    out: Vec<u8>,
    /// Tokens of the requests that have no reply, in their order.
    owed: VecDeque<u64>,
    inbox: VecDeque<Event>,
    inbox_bytes: usize,
    is_stopped: bool,
}

/// What the link's thread has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duties {
    pub(super) is_stopped: bool,
    /// The owner is behind: nothing is to be read.
    pub(super) is_full: bool,
    /// A reply is to come.
    pub(super) is_owed: bool,
}

impl Shared {
    pub(super) fn new(wake: Box<dyn Fn() + Send + Sync>, inbox_bytes_max: usize) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), idle: Condvar::new(), bell, wake, inbox_bytes_max })
    }

    pub(super) fn take(&self) -> VecDeque<Event> {
        let mut state = self.lock();
        let was_full = state.inbox_bytes >= self.inbox_bytes_max;
        let events = std::mem::take(&mut state.inbox);
        state.inbox_bytes = 0;
        if was_full {
            self.ring();
        }
        events
    }

    pub(super) fn send(&self, life: u64, token: u64, append: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.lock();
        if state.life != Some(life) {
            return false;
        }
        let was_empty = state.out.is_empty();
        append(&mut state.out);
        state.owed.push_back(token);
        // Whoever has bytes to send looks for more before it waits.
        if was_empty {
            self.ring();
        }
        true
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.lock().out.len()
    }

    pub(super) fn wait(&self, time: Duration) {
        let is_busy = |state: &mut State| state.life.is_some() && !state.owed.is_empty();
        drop(self.idle.wait_timeout_while(self.lock(), time, is_busy));
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.ring();
    }

    /// What is to be done; moves what is to be sent to `out` if that is empty.
    pub(super) fn duties(&self, out: &mut Vec<u8>) -> Duties {
        let mut state = self.lock();
        if out.is_empty() {
            std::mem::swap(out, &mut state.out);
        }
        Duties {
            is_stopped: state.is_stopped,
            is_full: state.inbox_bytes >= self.inbox_bytes_max,
            is_owed: !state.owed.is_empty(),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// There is a connection.
    pub(super) fn begin_life(&self, life: u64) {
        let mut state = self.lock();
        state.life = Some(life);
        state.inbox.push_back(Event::Connected(life));
        drop(state);
        (self.wake)();
    }

    /// The connection is gone: what waits for it is dropped.
    pub(super) fn end_life(&self, why: String) {
        let mut state = self.lock();
        state.life = None;
        state.out = Vec::new();
        state.owed.clear();
        state.inbox.push_back(Event::Lost(why));
        drop(state);
        self.idle.notify_all();
        (self.wake)();
    }

    /// Hands replies over, each with its size; how many of them nobody has asked for.
    pub(super) fn post(&self, replies: &mut Vec<(Value, usize)>) -> usize {
        let (mut state, mut excess) = (self.lock(), 0);
        for (value, bytes) in replies.drain(..) {
            match state.owed.pop_front() {
                Some(token) => state.inbox.push_back(Event::Reply(token, value)),
                None => excess += 1,
            }
            state.inbox_bytes += bytes;
        }
        let is_idle = state.owed.is_empty();
        drop(state);
        if is_idle {
            self.idle.notify_all();
        }
        (self.wake)();
        excess
    }

    /// Makes the bell silent.
    pub(super) fn hear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }

    fn ring(&self) {
        // It fails when it was rung 2^64 times and not heard: then it is ringing.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// A panic while this was locked left it whole: each change is one step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}
