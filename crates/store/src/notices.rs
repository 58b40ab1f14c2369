//! What others are told of changes: the events that commands name, and the keys that have changed.
//!
//! ```text
//! command: event("set", k)  -> access --commit--> append, apply --told, the keys still locked--> Observer::on_commit(notices, ticket)
//! lookup: k has expired     ->   |                                                        unlock -> Observer::deliver()
//! ```
//!
//! An access collects while it runs, and nothing where nobody wants to know: one load. What does not happen is told to nobody.
//!
//! Invariants
//!   1. Of one key notices come in the order of its changes: they are handed over while it is locked.
//!   2. A notice comes with the ticket of its change, so that nobody need hear of what a crash could take back.
//!
//! Out of scope: who listens, and what a listener may cost (`server`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ticket::Ticket;

/// The class of an event: by it listeners choose what they hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventClass {
    /// `g`: commands on keys of any type.
    Generic,
    /// `$`
    String,
    /// `l`
    List,
    /// `s`
    Set,
    /// `h`
    Hash,
    /// `z`
    SortedSet,
    /// `x`: keys whose time has come.
    Expired,
    /// `e`: keys that had to go for want of room.
    Evicted,
    /// `t`
    Stream,
    /// `m`: keys that were looked for and not there.
    Missed,
    /// `n`: keys that were not there before.
    New,
}

impl EventClass {
    /// Its bit in [`Store::want_notices`](crate::Store::want_notices).
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// In [`Store::want_notices`](crate::Store::want_notices): the keys that have changed.
pub const WANTS_CHANGES: u32 = 1 << 31;

/// Something has happened to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its class.
    pub class: EventClass,
    /// Its name.
    pub name: &'static str,
    /// The database of the key.
    pub db: u16,
    /// The key.
    pub key: Box<[u8]>,
}

impl Event {
    fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + self.key.len()) as u64
    }
}

/// What one commit tells.
#[derive(Debug, Default)]
pub struct Notices {
    /// What became of keys without a command, or before it: expired, evicted, new.
    pub(crate) before: Vec<Event>,
    /// What commands name, in their order.
    pub(crate) named: Vec<Event>,
    /// Keys that have changed and that the observer wants to know of.
    pub changed: Vec<Box<[u8]>>,
    /// Whole databases are empty, or have other contents.
    pub moved: bool,
    /// Who made the access, as [`Access::set_origin`](crate::Access::set_origin) was told; 0: nobody in particular.
    pub origin: u64,
    /// Bytes of the events.
    pub(crate) bytes: u64,
}

impl Notices {
    /// All events, in order: what became of keys by itself comes first, and that a key is new right before what made it.
    pub fn take_events(&mut self) -> Vec<Event> {
        let (before, named) = (std::mem::take(&mut self.before), std::mem::take(&mut self.named));
        let (new, mut events): (Vec<Event>, Vec<Event>) =
            before.into_iter().partition(|event| event.class == EventClass::New);
        let mut new: HashMap<(u16, Box<[u8]>), Event> =
            new.into_iter().map(|event| ((event.db, event.key.clone()), event)).collect();
        for event in named {
            if !new.is_empty() && event.class != EventClass::Missed {
                events.extend(new.remove(&(event.db, event.key.clone())));
            }
            events.push(event);
        }
        events.extend(new.into_values());
        events
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.named.is_empty() && self.changed.is_empty() && !self.moved
    }

    /// Bytes that they take.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let changed_bytes = self.changed.iter().map(|key| size_of_val(key) + key.len()).sum::<usize>() as u64;
        self.bytes + changed_bytes
    }

    pub(crate) fn add_before(&mut self, event: Event) {
        self.bytes += event.memory_bytes();
        self.before.push(event);
    }

    pub(crate) fn add(&mut self, event: Event) {
        self.bytes += event.memory_bytes();
        self.named.push(event);
    }

    /// Keeps the first `count` of what commands named: the rest is named again.
    pub(crate) fn undo(&mut self, count: usize) {
        let rest = self.named.split_off(count.min(self.named.len()));
        self.bytes -= bytes_of(&rest);
    }

    /// Keeps the first `count` of what commands named, and what they looked for in vain.
    pub(crate) fn truncate(&mut self, count: usize) {
        let rest = self.named.split_off(count.min(self.named.len()));
        self.bytes -= bytes_of(&rest);
        rest.into_iter().filter(|event| event.class == EventClass::Missed).for_each(|event| self.add(event));
    }
}

/// Bytes that events take.
pub(crate) fn bytes_of(events: &[Event]) -> u64 {
    events.iter().map(Event::memory_bytes).sum()
}

/// Who is told of changes.
pub trait Observer: Send + Sync {
    /// Whether it wants to know that `key` of any database has changed. The key is locked: to be answered at once.
    fn wants_change(&self, key: &[u8]) -> bool;
    /// What has happened; nobody may hear of it before `ticket` is released. The keys are locked: to be kept, not to be told yet.
    fn on_commit(&self, notices: Notices, ticket: Ticket);
    /// Whether there is so much to tell that whoever can wait should. Asked before keys are locked.
    fn is_full(&self) -> bool;
    /// Nothing is locked any more by the thread that has called [`Observer::on_commit`].
    fn deliver(&self);
}

/// Who is told of what.
#[derive(Default)]
pub(crate) struct Watchers {
    wanted: AtomicU32,
    observer: OnceLock<Weak<dyn Observer>>,
}

impl Watchers {
    /// Whether anybody wants any of these. One load.
    #[inline]
    pub(crate) fn want(&self, bits: u32) -> bool {
        self.wanted.load(Ordering::Relaxed) & bits != 0
    }

    pub(crate) fn set_wanted(&self, bits: u32) {
        self.wanted.store(bits, Ordering::Relaxed);
    }

    pub(crate) fn attach(&self, observer: Weak<dyn Observer>) {
        let attached = self.observer.set(observer);
        debug_assert!(attached.is_ok(), "attached twice");
    }

    /// Whether changes that can wait should: nobody is told of anything fast enough.
    pub(crate) fn are_full(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0 && self.observer().is_some_and(|observer| observer.is_full())
    }

    pub(crate) fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.observer.get()?.upgrade()
    }
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchers").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}
