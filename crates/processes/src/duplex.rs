//! A thread that serves an owner: it waits for descriptors and for a waker at once, takes bytes from the owner and hands it events.
//!
//! ```text
//!  owner: send -> bytes out -> thread -> a child or a server
//!  owner: take <- events    <- thread <-/          one life of it after the other, a pause between two
//! ```
//!
//! A *life* is one run of what the thread is connected to. What is sent is for a life: it is refused if that one is over.
//!
//! Invariants
//!   1. After the event that ends a life nothing of that life comes.
//!   2. Events that wait for the owner have at most `inbox_bytes_max`, and what one read gives beyond it: then nothing is to be read ([`State::is_full`]).
//!
//! **Bounds.** What waits to be sent is the owner's matter. Time is an argument.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// What an owner and its thread share; `E` is an event, `X` what else they share of a life.
pub struct Duplex<E, X> {
    state: Mutex<State<E, X>>,
    /// Wakes the thread.
    pub waker: EventFd,
    wake_owner: Box<dyn Fn() + Send + Sync>,
    inbox_bytes_max: usize,
}

/// The part that is changed under a lock.
#[derive(Debug, Default)]
pub struct State<E, X> {
    /// The life that can be sent something.
    pub life: Option<u64>,
    /// What is to be sent.
    pub out: Vec<u8>,
    /// The owner is gone: the thread is to end.
    pub is_stopped: bool,
    /// The owner is behind: nothing is to be read.
    pub is_full: bool,
    /// Begins anew with each life.
    pub more: X,
    inbox: VecDeque<E>,
    inbox_bytes: usize,
}

/// A descriptor that becomes readable when it is woken.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

/// Bytes on their way to a descriptor that does not block.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

/// Pauses between lives: each is twice as long as the one before, up to a bound.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// The first one.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
}

impl<E, X: Default> Duplex<E, X> {
    /// No life so far. `wake_owner` is called when there are events.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(wake_owner: impl Fn() + Send + Sync + 'static, inbox_bytes_max: usize) -> io::Result<Self> {
        let state = State {
            life: None,
            out: Vec::new(),
            is_stopped: false,
            is_full: false,
            more: X::default(),
            inbox: VecDeque::new(),
            inbox_bytes: 0,
        };
        let (state, waker) = (Mutex::new(state), EventFd::new()?);
        Ok(Self { state, waker, wake_owner: Box::new(wake_owner), inbox_bytes_max })
    }

    /// The events since the last call, in order.
    pub fn take(&self) -> VecDeque<E> {
        let mut state = self.lock();
        let events = std::mem::take(&mut state.inbox);
        state.inbox_bytes = 0;
        if std::mem::take(&mut state.is_full) {
            self.waker.wake();
        }
        events
    }

    /// Has what `append` appends sent in `life`; what it returns, or `None`, with nothing appended, if that life is over.
    pub fn send<R>(&self, life: u64, append: impl FnOnce(&mut Vec<u8>, &mut X) -> R) -> Option<R> {
        let mut state = self.lock();
        if state.life != Some(life) {
            return None;
        }
        let was_empty = state.out.is_empty();
        let State { out, more, .. } = &mut *state;
        let result = append(out, more);
        // Whoever has bytes to send looks for more before it waits.
        if was_empty {
            self.waker.wake();
        }
        Some(result)
    }

    /// Has the thread end; does not wait for that.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.waker.wake();
    }

    /// Whether the thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Things can be sent in `life` from now on, which `event` tells the owner.
    pub fn begin(&self, life: u64, event: E) {
        self.post(|state| {
            state.life = Some(life);
            state.push(event, 0);
        });
    }

    /// Has the owner told what `push` pushes.
    pub fn post<R>(&self, push: impl FnOnce(&mut State<E, X>) -> R) -> R {
        let mut state = self.lock();
        let result = push(&mut state);
        state.is_full = state.inbox_bytes >= self.inbox_bytes_max;
        drop(state);
        (self.wake_owner)();
        result
    }

    /// Calls `live` with the number of one life after the other until the thread is to end. It returns the event that tells of the life's end, and whether the pauses
    /// begin with the shortest again. `now` is the time on a clock that never runs back.
    pub fn run(&self, pauses: Pauses, now: impl Fn() -> Duration, mut live: impl FnMut(u64) -> (E, bool)) {
        let mut pause = pauses.least;
        for life in 1.. {
            if self.is_stopped() {
                return;
            }
            let (event, is_reset) = live(life);
            if self.is_stopped() {
                return;
            }
            self.post(|state| {
                // What waits for the life is dropped.
                (state.life, state.out, state.more) = (None, Vec::new(), X::default());
                state.push(event, 0);
            });
            if is_reset {
                pause = pauses.least;
            }
            let until = now() + pause;
            while let Some(left) = until.checked_sub(now()).filter(|left| !left.is_zero()) {
                self.waker.clear();
                if self.is_stopped() {
                    return;
                }
                wait(&mut [self.waker.poll_fd()], Some(left));
            }
            pause = (pause * 2).min(pauses.most);
        }
    }

    /// The part that is changed under a lock. A panic while it was locked left it whole: each change is one step.
    pub fn lock(&self) -> MutexGuard<'_, State<E, X>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the owner, who is to look at more than events.
    pub fn wake_owner(&self) {
        (self.wake_owner)();
    }
}

impl<E: fmt::Debug, X: fmt::Debug> fmt::Debug for Duplex<E, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<E, X> State<E, X> {
    /// Puts an event into the inbox, where it takes `bytes`.
    pub fn push(&mut self, event: E, bytes: usize) {
        self.inbox.push_back(event);
        self.inbox_bytes += bytes;
    }
}

impl EventFd {
    /// One that nobody has woken.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // It fails when it was woken 2^64 times and not cleared: then it is readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// What [`wait`] takes.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Outgoing {
    /// Whether all is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Where more can be appended.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        if self.is_empty() {
            self.clear();
        }
        &mut self.bytes
    }

    /// Drops what is not written.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }

    /// Writes as much as goes without waiting.
    ///
    /// # Errors
    /// Those of the descriptor, but for those that pass.
    pub fn write_to(&mut self, to: &mut impl Write) -> io::Result<()> {
        while !self.is_empty() {
            match to.write(&self.bytes[self.written..]) {
                Ok(0) => return Ok(()),
                Ok(count) => self.written += count,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits until one of `fds` is ready, or for `time`.
pub fn wait(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let timeout =
        time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
    // A signal ends it early, which does no harm.
    let _ = poll(fds, timeout.as_ref());
}

/// Whether the same may succeed later.
#[must_use]
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn nothing_is_sent_in_a_life_that_is_over_and_a_full_inbox_is_told() {
        let duplex: Duplex<&str, u32> = Duplex::new(|| {}, 10).expect("a descriptor");
        assert_eq!(duplex.send(1, |_, _| ()), None);
        duplex.begin(1, "begun");
        assert_eq!(duplex.send(1, |out, more| (out.push(7), *more += 1)), Some(((), ())));
        duplex.post(|state| state.push("said", 10));
        assert!(duplex.lock().is_full);
        assert_eq!((duplex.take(), duplex.lock().is_full), (["begun", "said"].into(), false));
        let state = duplex.lock();
        assert_eq!((&state.out[..], state.more), (&[7][..], 1));
    }

    #[test]
    fn lives_follow_each_other_after_pauses_that_double_until_it_is_stopped() {
        let duplex: Arc<Duplex<u64, u32>> = Arc::new(Duplex::new(|| {}, 10).expect("a descriptor"));
        let (now, begun) = (Mutex::new(Duration::ZERO), Mutex::new(Vec::new()));
        let pauses = Pauses { least: Duration::from_millis(1), most: Duration::from_millis(4) };
        // Each look at the clock lets a millisecond pass.
        let tick = || {
            let mut now = now.lock().expect("no panic");
            *now += Duration::from_micros(500);
            *now
        };
        duplex.run(pauses, tick, |life| {
            begun.lock().expect("no panic").push(now.lock().expect("no panic").as_micros());
            if life == 6 {
                duplex.stop();
            }
            (life, life == 4)
        });
        let begun = begun.into_inner().expect("no panic");
        let waited: Vec<_> = begun.windows(2).map(|two| (two[1] - two[0]) / 1_000).collect();
        assert_eq!((waited, duplex.take()), (vec![1, 2, 4, 1, 2], [1, 2, 3, 4, 5].into()));
    }
}
