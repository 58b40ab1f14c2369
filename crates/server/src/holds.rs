//! Replies that wait until what they say is done, for commands about other connections, loops and threads.
//!
//! ```text
//!  handler:  gives a clone of the Hold to each who has a part in it, writes its reply
//!  turn:     is a clone left? the connection parks, and nothing of its output leaves
//!  the last clone is dropped -> Message::Retry -> the reply leaves, the next request runs
//! ```
//!
//! Invariants
//!   1. A reply that waits has run: nothing of its command is repeated.
//!   2. No request of the connection runs before: those of one pipeline find done what the ones before them asked for.
//!   3. Whoever has a clone drops it in the end, also when it ends itself: a wait has no other end than that, or its client's.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Kept by all who have a part in what a command asked for, until it is done.
pub(crate) type Hold = Arc<dyn Any + Send + Sync>;

/// What the reply of a connection waits for.
#[derive(Debug)]
pub(crate) struct Awaited {
    is_done: Arc<AtomicBool>,
    held: Weak<Held>,
}

/// What is dropped with the last clone of a [`Hold`].
struct Held {
    is_done: Arc<AtomicBool>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Awaited {
    /// A clone of what `awaited` waits for, or of a new one that calls `wake` at its end: a transaction may ask for several things.
    pub(crate) fn hold(awaited: &mut Option<Box<Self>>, wake: impl Fn() + Send + Sync + 'static) -> Hold {
        if let Some(held) = awaited.as_ref().and_then(|awaited| awaited.held.upgrade()) {
            return held;
        }
        let is_done = Arc::new(AtomicBool::new(false));
        let held = Arc::new(Held { is_done: Arc::clone(&is_done), wake: Box::new(wake) });
        *awaited = Some(Box::new(Self { is_done, held: Arc::downgrade(&held) }));
        held
    }

    /// Whether all is done that it waits for.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        (self.wake)();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("is_done", &self.is_done).finish_non_exhaustive()
    }
}
