//! How threads that send reach the thread that owns the sockets, which may wait in `zmq_poll`.
//!
//! Whoever rings sets a flag first and writes to the eventfd only if the thread sleeps; the thread says that it is about to sleep first and
//! looks at the flag then. So no ring is missed, and while the thread is busy a ring is no system call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::EventfdFlags;

use crate::link::Doorbell;

/// Wakes the thread.
pub(super) struct Wake {
    eventfd: OwnedFd,
    is_set: AtomicBool,
    sleeps: AtomicBool,
}

impl Wake {
    /// # Errors
    /// The system gives no descriptor.
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { eventfd, is_set: AtomicBool::new(false), sleeps: AtomicBool::new(false) })
    }

    /// Has the thread look again.
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // It cannot be full: one write for each sleep.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The thread is about to sleep; whether it may.
    pub(super) fn sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        !self.is_set.load(Ordering::SeqCst)
    }

    /// The thread is awake, and looks at everything now.
    pub(super) fn wake_up(&self, is_readable: bool) {
        self.sleeps.store(false, Ordering::SeqCst);
        if is_readable {
            let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        }
        self.is_set.store(false, Ordering::SeqCst);
    }

    /// What becomes readable when somebody sets it.
    pub(super) fn fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }
}

/// What one connection is told.
pub(super) struct Bell {
    wake: Arc<Wake>,
    is_rung: AtomicBool,
    is_hung_up: AtomicBool,
}

impl Bell {
    pub(super) fn new(wake: &Arc<Wake>) -> Arc<Self> {
        Arc::new(Self {
            wake: Arc::clone(wake),
            is_rung: AtomicBool::new(false),
            is_hung_up: AtomicBool::new(false),
        })
    }

    /// Whether it was rung since the last call.
    pub(super) fn take_ring(&self) -> bool {
        self.is_rung.load(Ordering::Relaxed) && self.is_rung.swap(false, Ordering::SeqCst)
    }

    pub(super) fn is_hung_up(&self) -> bool {
        self.is_hung_up.load(Ordering::SeqCst)
    }
}

impl Doorbell for Bell {
    fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.wake.set();
    }

    fn hang_up(&self) {
        self.is_hung_up.store(true, Ordering::SeqCst);
        self.wake.set();
    }
}
