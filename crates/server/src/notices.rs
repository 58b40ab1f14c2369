//! Tells others of changes: events of keys to those who listen (`notify.keyspace_events`), and changed keys to those who keep copies (`tracking`).
//!
//! ```text
//! commit -> on_commit, the keys locked: a queue -> unlocked -> deliver: invalidations, then "__keyspace@0__:k" and "__keyevent@0__:set"
//!                                                    \- a pattern walk that takes long, or too much on its way: a thread goes on
//! ```
//!
//! Invariants
//!   1. What is told waits for the ticket of its change: nobody hears of what a crash could take back.
//!   2. Of one key it is told in the order of its changes: the queue is filled while the key is locked, and emptied in order.
//!   3. Commands that write wait while the queue is long ([`Notices::write_at`]). What cannot wait, evictions, loses its events beyond
//!      [`QUEUED_BYTES_HARD`], and all copies are given up; both are counted.
//!
//! Out of scope: which events there are (`commands`), what an access collects (`store`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use clock::Nanos;
use store::{Event, Observer, Store, WANTS_CHANGES};
use ticket::Ticket;

use crate::long::LongCommands;
use crate::pubsub::{PubSub, SLICE_STEPS};
use crate::settings::Classes;
use crate::subscriptions::{Names, Publishing};
use crate::tracking::Tracking;
use crate::traffic::Traffic;

/// What is told of changes.
pub(crate) struct Notices {
    pub(crate) tracking: Tracking,
    store: Arc<Store>,
    pubsub: Arc<PubSub>,
    traffic: Arc<Traffic>,
    long: Arc<LongCommands>,
    me: Weak<Self>,
    /// Of `notify.keyspace_events`.
    classes: AtomicU32,
    /// Whether anything is told to anybody.
    is_on: AtomicBool,
    queue: Mutex<VecDeque<Batch>>,
    queued_bytes: AtomicU64,
    delivery: Mutex<Delivery>,
    /// A thread goes on with it.
    goes_on: AtomicBool,
    /// Events that nobody was told of.
    dropped: AtomicU64,
}

/// What one commit tells.
struct Batch {
    notices: store::Notices,
    bytes: u64,
    ticket: Ticket,
}

/// What is being told.
#[derive(Default)]
struct Delivery {
    events: VecDeque<Event>,
    /// Of the first event that is left: messages, with walks through the patterns.
    messages: VecDeque<Publishing>,
    ticket: Ticket,
}

impl std::fmt::Debug for Notices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notices").field("tracking", &self.tracking).finish_non_exhaustive()
    }
}

impl Notices {
    /// Tells nobody anything before it is switched on; observes `store`.
    pub(crate) fn new(
        store: &Arc<Store>,
        pubsub: &Arc<PubSub>,
        traffic: &Arc<Traffic>,
        long: &Arc<LongCommands>,
        tracking: Tracking,
    ) -> Arc<Self> {
        let notices = Arc::new_cyclic(|me| Self {
            tracking,
            store: Arc::clone(store),
            pubsub: Arc::clone(pubsub),
            traffic: Arc::clone(traffic),
            long: Arc::clone(long),
            me: Weak::clone(me),
            classes: AtomicU32::new(0),
            is_on: AtomicBool::new(false),
            queue: Mutex::default(),
            queued_bytes: AtomicU64::new(0),
            delivery: Mutex::default(),
            goes_on: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        });
        let observer: Arc<dyn Observer> = Arc::clone(&notices) as Arc<dyn Observer>;
        store.observe(Arc::downgrade(&observer));
        notices
    }

    /// Sets which events are told.
    pub(crate) fn set_classes(&self, classes: Classes) {
        self.classes.store(classes.bits(), Ordering::Relaxed);
        self.refresh();
    }

    /// Tells the store what is wanted of it: after each change of that.
    pub(crate) fn refresh(&self) {
        // of two at once the last to come sees what both have set
        let _one = lock(&self.queue);
        let changes = if self.tracking.clients() > 0 { WANTS_CHANGES } else { 0 };
        let bits = self.classes().events() | changes;
        self.is_on.store(bits != 0, Ordering::Relaxed);
        self.store.want_notices(bits);
    }

    fn classes(&self) -> Classes {
        Classes::of_bits(self.classes.load(Ordering::Relaxed))
    }

    /// When a command that writes may run: now, or later because too much is to be told. One load where nothing is told.
    #[inline]
    pub(crate) fn write_at(&self, now: Nanos) -> Option<Nanos> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        if self.is_long() { Some(now + RETRY) } else { self.pubsub.publish_at(now) }
    }

    fn is_long(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) > QUEUED_BYTES_MAX
    }

    /// Events that nobody was told of, for want of room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Tells what is queued, for about `steps` steps; whether that is all.
    fn tell(&self, mut steps: u64) -> bool {
        loop {
            let mut delivery = match self.delivery.try_lock() {
                Ok(delivery) => delivery,
                Err(TryLockError::Poisoned(delivery)) => delivery.into_inner(),
                // who has it looks at the queue once more
                Err(TryLockError::WouldBlock) => return true,
            };
            if !self.tell_some(&mut delivery, &mut steps) {
                return false;
            }
            drop(delivery);
            if lock(&self.queue).is_empty() {
                return true;
            }
        }
    }

    fn tell_some(&self, delivery: &mut Delivery, steps: &mut u64) -> bool {
        loop {
            while let Some(message) = delivery.messages.front_mut() {
                if self.traffic.is_full() || *steps == 0 {
                    return false;
                }
                let channel = Arc::clone(&message.channel);
                if !self.pubsub.walk_patterns(&channel, &mut message.walk, steps) {
                    return false;
                }
                let audience = message.walk.audience + self.pubsub.listeners(Names::Channels, &channel);
                let message = delivery.messages.pop_front();
                if let Some(mut message) = message.filter(|_| audience > 0) {
                    self.pubsub.deliver(vec![message.take(Some(Names::Channels))], delivery.ticket);
                }
                *steps = steps.saturating_sub(MESSAGE_STEPS);
            }
            if let Some(event) = delivery.events.pop_front() {
                if self.pubsub.counts() != [0; 3] {
                    delivery.messages = self.messages(&event).into();
                }
                continue;
            }
            let Some(mut batch) = lock(&self.queue).pop_front() else { return true };
            self.queued_bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
            let (changed, origin) = (std::mem::take(&mut batch.notices.changed), batch.notices.origin);
            if batch.notices.moved {
                self.tracking.forget_all(batch.ticket);
            } else {
                self.tracking.invalidate(&changed, origin, batch.ticket);
            }
            delivery.events = batch.notices.take_events().into();
            delivery.ticket = batch.ticket;
        }
    }

    /// What is published of an event.
    fn messages(&self, event: &Event) -> Vec<Publishing> {
        let (classes, Event { db, key, name, .. }) = (self.classes(), event);
        let channel = |kind: &str, rest: &[u8]| [format!("__{kind}@{db}__:").as_bytes(), rest].concat();
        let mut messages = Vec::with_capacity(2);
        if classes.tells_keys() {
            messages.push(Publishing::new(&channel("keyspace", key), name.as_bytes()));
        }
        if classes.tells_events() {
            messages.push(Publishing::new(&channel("keyevent", name.as_bytes()), key));
        }
        messages
    }

    /// Goes on on another thread until all is told.
    fn go_on(&self) {
        if self.goes_on.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = Weak::clone(&self.me);
        self.long.call_in_background(Box::new(move || {
            while let Some(me) = me.upgrade() {
                if me.tell(SLICE_STEPS) {
                    me.goes_on.store(false, Ordering::Release);
                    // what came meanwhile may have relied on this thread
                    if me.is_told() || me.goes_on.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
                let is_full = me.traffic.is_full();
                drop(me);
                if is_full {
                    std::thread::park_timeout(RETRY);
                }
            }
        }));
    }

    fn is_told(&self) -> bool {
        let Ok(delivery) = self.delivery.try_lock() else { return true };
        delivery.events.is_empty() && delivery.messages.is_empty() && lock(&self.queue).is_empty()
    }
}

impl Observer for Notices {
    fn wants_change(&self, key: &[u8]) -> bool {
        self.tracking.is_tracked(key)
    }

    fn on_commit(&self, mut notices: store::Notices, ticket: Ticket) {
        let mut bytes = notices.memory_bytes();
        let mut queue = lock(&self.queue);
        if self.queued_bytes.load(Ordering::Relaxed) > QUEUED_BYTES_HARD {
            self.dropped.fetch_add(notices.take_events().len() as u64, Ordering::Relaxed);
            notices.moved |= !notices.changed.is_empty();
            notices.changed = Vec::new();
            bytes = 0;
        }
        bytes += size_of::<Batch>() as u64;
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        queue.push_back(Batch { notices, bytes, ticket });
    }

    fn deliver(&self) {
        if !self.tell(SLICE_STEPS) {
            self.go_on();
        }
    }

    fn is_full(&self) -> bool {
        self.is_long()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commands that write wait while more is to be told.
const QUEUED_BYTES_MAX: u64 = 4 << 20;
/// No more is kept, whatever cannot wait.
const QUEUED_BYTES_HARD: u64 = 64 << 20;
/// What a message takes beside the walk through the patterns, about a nanosecond each.
const MESSAGE_STEPS: u64 = 1_000;
/// Whoever waits looks again after this.
const RETRY: Duration = Duration::from_millis(1);
