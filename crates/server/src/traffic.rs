//! Messages on their way: posted and not taken, or taken and waiting for the disk.
//!
//! They are weighed: their bytes, once where listeners share them and for each listener where each gets a copy, and a post for each
//! listener. Past `connections.messages_max`, or a sixteenth of `memory.limit`, PUBLISH waits, and who
//! listens with MONITOR is cut off; one message always passes, however large.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::Store;
use ticket::Ticket;

/// What is on its way to other connections.
#[derive(Debug)]
pub(crate) struct Traffic {
    store: Arc<Store>,
    bytes_max: AtomicU64,
    on_the_way: Arc<AtomicU64>,
    /// Payloads that outputs share.
    shared: Arc<AtomicU64>,
    held: Held,
}

impl Traffic {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Traffic {
            store,
            bytes_max: AtomicU64::new(u64::MAX),
            on_the_way: Arc::default(),
            shared: Arc::default(),
            held: Held::default(),
        }
    }

    /// Sets what may be on its way.
    pub(crate) fn set_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Whether no more messages are to be sent.
    pub(crate) fn is_full(&self) -> bool {
        let limit_bytes = self.store.memory_limit();
        let share_bytes = if limit_bytes == 0 { u64::MAX } else { limit_bytes / LIMIT_SHARE };
        self.bytes_on_the_way() >= self.bytes_max.load(Ordering::Relaxed).min(share_bytes)
    }

    /// Bytes of messages and lines of MONITOR that are on their way.
    pub(crate) fn bytes_on_the_way(&self) -> u64 {
        self.on_the_way.load(Ordering::Relaxed) + self.held.bytes_beyond(self.store.released())
    }

    /// Bytes that messages take, in mailboxes and in outputs that share them.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.on_the_way.load(Ordering::Relaxed) + self.shared.load(Ordering::Relaxed)
    }

    /// Weighs `shared_bytes` that go to `count` listeners, of which each gets a copy of `own_bytes`, and that may be sent when `ticket` is
    /// durable.
    pub(crate) fn weigh(
        &self,
        shared_bytes: usize,
        own_bytes: usize,
        count: usize,
        ticket: Ticket,
    ) -> Weight {
        let bytes = (shared_bytes.max(own_bytes * count) + POST_BYTES * count) as u64;
        self.on_the_way.fetch_add(bytes, Ordering::Relaxed);
        if !ticket.is_covered_by(self.store.released()) {
            self.held.add(ticket, bytes);
        }
        Weight { bytes, sum: Arc::clone(&self.on_the_way) }
    }

    /// The bytes of a message, to be shared by those who get it.
    pub(crate) fn payload(&self, bytes: Arc<[u8]>) -> Payload {
        Payload { bytes, is_shared: AtomicBool::new(false), shared: Arc::clone(&self.shared) }
    }
}

impl Held {
    /// Bytes that wait for what `released` does not cover. One load while nothing does.
    fn bytes_beyond(&self, released: Ticket) -> u64 {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some((_, bytes)) = messages.pop_front_if(|(ticket, _)| ticket.is_covered_by(released)) {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, ticket: Ticket, bytes: u64) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        match messages.back_mut() {
            // One entry for what one publisher sends between two syncs.
            Some((last, sum)) if ticket.is_covered_by(*last) => *sum += bytes,
            _ => messages.push_back((ticket, bytes)),
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Messages that their listeners' loops took before the disk had what their publishers saw.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicU64,
    /// Ticket and weight of each; released about in this order.
    messages: Mutex<VecDeque<(Ticket, u64)>>,
}

/// The bytes of a message, for all its listeners.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Arc<[u8]>,
    /// Outputs share it: it is counted in `shared` until the last has sent it.
    is_shared: AtomicBool,
    shared: Arc<AtomicU64>,
}

impl Payload {
    /// Counts it among those that outputs share.
    pub(crate) fn share(&self) {
        if !self.is_shared.swap(true, Ordering::Relaxed) {
            self.shared.fetch_add(self.bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if *self.is_shared.get_mut() {
            self.shared.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Adds to the bytes on their way for as long as it lives.
#[derive(Debug)]
pub(crate) struct Weight {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// So large a share of `memory.limit` may be on its way: outputs grow by as much before anybody looks at what they keep.
const LIMIT_SHARE: u64 = 16;
/// What a message takes beside its bytes, in a mailbox or in an output.
const POST_BYTES: usize = 64;
