//! What the component's thread and the child's thread share: bytes for the child, events for the component, a bell.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use topology::component::Waker;

use super::{Asks, Event};

/// Shared by both threads.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes the child's thread.
    pub(super) bell: OwnedFd,
    waker: Waker,
    inbox_bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The life that can be told something.
    life: Option<u64>,
    out: Vec<u8>,
    /// Tuples of it, and those of what the child's thread has taken and not written.
    out_tuples: usize,
    taken_tuples: usize,
    /// The component waits until the child has taken more.
    is_awaited: bool,
    /// Answers that the child will give.
    owed: u32,
    inbox: VecDeque<Event>,
    inbox_bytes: usize,
    /// Why the child is to be ended.
    end: Option<String>,
    is_stopped: bool,
}

/// What the child's thread has to do.
#[derive(Debug)]
pub(super) struct Duties {
    pub(super) end: Option<String>,
    pub(super) is_stopped: bool,
    /// The component is behind: nothing is to be read.
    pub(super) is_full: bool,
    pub(super) owed: u32,
}

impl Shared {
    pub(super) fn new(waker: Waker, inbox_bytes_max: usize) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), bell, waker, inbox_bytes_max })
    }

    pub(super) fn take(&self, events: &mut VecDeque<Event>) {
        let mut state = self.lock();
        let was_full = state.inbox_bytes >= self.inbox_bytes_max;
        events.append(&mut state.inbox);
        state.inbox_bytes = 0;
        if was_full {
            self.ring();
        }
    }

    pub(super) fn tell<R>(
        &self,
        life: u64,
        Asks { answers, tuples }: Asks,
        append: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Option<R> {
        let mut state = self.lock();
        if state.life != Some(life) {
            return None;
        }
        let was_empty = state.out.is_empty();
        let result = append(&mut state.out);
        state.owed += answers;
        state.out_tuples += tuples;
        // Whoever has bytes to write looks for more before it waits.
        if was_empty {
            self.ring();
        }
        Some(result)
    }

    /// Whether less waits to be written than `tuples_max` tuples and `bytes_max` bytes. If not, the waker is called when the child has taken some of it.
    pub(super) fn has_room(&self, tuples_max: usize, bytes_max: usize) -> bool {
        let mut state = self.lock();
        let has_room = state.out_tuples + state.taken_tuples < tuples_max && state.out.len() < bytes_max;
        state.is_awaited |= !has_room;
        has_room
    }

    pub(super) fn end(&self, life: u64, why: String) {
        let mut state = self.lock();
        if state.life == Some(life) {
            state.end.get_or_insert(why);
            self.ring();
        }
    }

    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.ring();
    }

    /// What is to be done; moves what is to be written to `out` if that is empty.
    pub(super) fn duties(&self, out: &mut Vec<u8>) -> Duties {
        let mut state = self.lock();
        let is_written = out.is_empty();
        if is_written {
            std::mem::swap(out, &mut state.out);
            state.taken_tuples = std::mem::take(&mut state.out_tuples);
        }
        let is_awaited = is_written && std::mem::take(&mut state.is_awaited);
        let duties = Duties {
            end: state.end.clone(),
            is_stopped: state.is_stopped,
            is_full: state.inbox_bytes >= self.inbox_bytes_max,
            owed: state.owed,
        };
        drop(state);
        if is_awaited {
            self.waker.wake();
        }
        duties
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// The child has given answers; how many are to come.
    pub(super) fn on_answers(&self, count: u32) -> u32 {
        let mut state = self.lock();
        state.owed = state.owed.saturating_sub(count);
        state.owed
    }

    /// A child has answered its handshake.
    pub(super) fn begin_life(&self, life: u64) {
        let mut state = self.lock();
        state.life = Some(life);
        drop(state);
        self.post([Event::Started(life)]);
    }

    /// A child is gone: what waits for it is dropped.
    pub(super) fn end_life(&self, why: String) {
        let mut state = self.lock();
        (state.life, state.owed, state.end) = (None, 0, None);
        state.out = Vec::new();
        (state.out_tuples, state.taken_tuples) = (0, 0);
        drop(state);
        self.post([Event::Ended(why)]);
    }

    /// Puts events into the inbox.
    pub(super) fn post(&self, events: impl IntoIterator<Item = Event>) {
        let mut state = self.lock();
        for event in events {
            state.inbox_bytes += match &event {
                Event::Said(message) => message.size_bytes(),
                Event::Started(_) | Event::Ended(_) => 0,
            };
            state.inbox.push_back(event);
        }
        drop(state);
        self.waker.wake();
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
