//! What an access tells of its changes, collected until they are committed.
//!
//! Out of scope: who is told (`notices`).

use collections::Deadline;
use journal::Keyspace;
use ticket::Ticket;

use super::Access;
use super::overlay::{Cause, Change, Staged};
use super::plan::{Old, Plan};
use crate::error::{Stop, StoreError};
use crate::keyspaces::{is_leaves, is_own};
use crate::notices::{Event, EventClass, Notices, WANTS_CHANGES};

/// What is told, and what was asked for it.
#[derive(Debug, Default)]
pub(super) struct Told {
    notices: Notices,
    asked_bytes: u64,
    /// How many events commands had named at the last save.
    saved: usize,
    /// There is no room for more.
    stopped: Option<Stop>,
}

impl Access<'_> {
    /// Says for whom this access is: a number that its notices carry.
    pub fn set_origin(&mut self, origin: u64) {
        self.origin = origin;
    }

    /// Whose it is.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Names something that has happened to `key`: it is told once this is committed. One load where nobody wants to know.
    #[inline]
    pub fn event(&self, class: EventClass, name: &'static str, db: u16, key: &[u8]) {
        if self.store.watchers.want(class.bit()) {
            self.name_event(Event { class, name, db, key: key.into() });
        }
    }

    /// Whether events of a class are told.
    #[inline]
    #[must_use]
    pub fn tells(&self, class: EventClass) -> bool {
        self.store.watchers.want(class.bit())
    }

    /// How many events were named so far.
    #[inline]
    #[must_use]
    pub fn events(&mut self) -> usize {
        self.told.get_mut().as_ref().map_or(0, |told| told.notices.named.len())
    }

    /// Forgets the events behind the first `count`: the command that named them has failed.
    #[inline]
    pub fn forget_events(&mut self, count: usize) {
        if let Some(told) = self.told.get_mut() {
            told.notices.truncate(count);
        }
    }

    #[cold]
    fn name_event(&self, event: Event) {
        let mut told = self.told.borrow_mut();
        let told = told.get_or_insert_default();
        told.notices.add(event);
        let (bytes, asked_bytes) = (told.notices.bytes, told.asked_bytes);
        if bytes <= asked_bytes + STEP_BYTES {
            return;
        }
        told.asked_bytes = bytes;
        let limit_bytes = self.store.options.transaction_bytes_max;
        let asked = if bytes > limit_bytes {
            Err(StoreError::TransactionTooLarge { size_bytes: bytes, limit_bytes }.into())
        } else {
            self.ask(bytes - asked_bytes)
        };
        if let Err(stop) = asked {
            told.stopped.get_or_insert(stop);
        }
    }

    /// What stands against events that were named.
    pub(super) fn take_events_stop(&mut self) -> Option<Stop> {
        self.told.get_mut().as_mut()?.stopped.take()
    }

    /// Notes how many events there are, for [`Access::undo_events`].
    pub(super) fn save_events(&mut self) {
        if let Some(told) = self.told.get_mut() {
            told.saved = told.notices.named.len();
        }
    }

    /// Forgets events that were named since the last save.
    pub(super) fn undo_events(&mut self) {
        if let Some(told) = self.told.get_mut() {
            told.notices.undo(told.saved);
            told.asked_bytes = told.asked_bytes.min(told.notices.bytes);
        }
    }

    /// Adds events that were kept for this commit.
    pub(super) fn resume_events(&mut self, events: &[Event]) {
        if !events.is_empty() {
            let told = self.told.get_mut().get_or_insert_default();
            events.iter().for_each(|event| told.notices.add(event.clone()));
        }
    }

    /// Takes out what commands named, to be told by a later commit.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        self.told.get_mut().take().map_or_else(Vec::new, |told| told.notices.named)
    }

    /// Whether somebody may want to know of each key that changes. One load.
    pub(super) fn tells_changes(&self) -> bool {
        self.store.watchers.want(WANTS_CHANGES)
    }

    /// Notes what the change `staged` tells, which is about to be applied.
    #[inline]
    pub(super) fn tell(&mut self, staged: &Staged, plan: &Plan) {
        if self.store.watchers.want(OF_CHANGES) && is_of_clients(staged.keyspace) {
            self.tell_change(staged, plan);
        }
    }

    #[cold]
    fn tell_change(&mut self, staged: &Staged, plan: &Plan) {
        let (db, object) = (staged.db, staged.object().view());
        let key = object.key();
        let mut before = |class: EventClass, name| {
            if self.store.watchers.want(class.bit()) {
                let event = Event { class, name, db, key: key.into() };
                self.told.get_mut().get_or_insert_default().notices.add_before(event);
            }
        };
        let there = plan.old.filter(|old| !old.removed);
        match staged.cause {
            Cause::Expired => before(EventClass::Expired, "expired"),
            Cause::Emptied => {
                before(EventClass::Hash, "hexpired");
                before(EventClass::Generic, "del");
            }
            Cause::Purged(_) => before(EventClass::Hash, "hexpired"),
            Cause::Evicted => before(EventClass::Evicted, "evicted"),
            Cause::Command | Cause::Retime | Cause::Swept | Cause::Resumed => {
                let is_over = |old: &Old| {
                    let at: Option<Deadline> = old.own_expiry;
                    at.is_some_and(|at| self.now.has_passed(at) || self.store.clock.had_passed(at, old.seq))
                };
                let has_expired = there.as_ref().is_some_and(is_over);
                if has_expired {
                    before(EventClass::Expired, "expired");
                }
                if (there.is_none() || has_expired) && !matches!(staged.change, Change::Remove(_)) {
                    before(EventClass::New, "new");
                }
            }
        }
        self.tell_key(key);
    }

    /// Notes that `key` of some database changes.
    pub(super) fn tell_key(&mut self, key: &[u8]) {
        if self.tells_changes() && self.store.watchers.observer().is_some_and(|it| it.wants_change(key)) {
            self.told.get_mut().get_or_insert_default().notices.changed.push(key.into());
        }
    }

    /// Notes that databases get other contents.
    pub(super) fn tell_moved(&mut self) {
        if self.tells_changes() {
            self.told.get_mut().get_or_insert_default().notices.moved = true;
        }
    }

    /// Hands over what is told of a commit, while its keys are locked; whether anything is.
    pub(super) fn hand_over(&mut self, ticket: Ticket) -> bool {
        let Some(Told { mut notices, .. }) = self.told.get_mut().take().map(|told| *told) else {
            return false;
        };
        let observer = self.store.watchers.observer().filter(|_| !notices.is_empty());
        notices.origin = self.origin;
        observer.is_some_and(|observer| {
            observer.on_commit(notices, ticket);
            true
        })
    }

    /// Lets what was handed over be delivered: nothing is locked any more.
    #[cold]
    pub(super) fn deliver(&self) {
        if let Some(observer) = self.store.watchers.observer() {
            observer.deliver();
        }
    }
}

/// Whether clients can name keys of a keyspace.
fn is_of_clients(keyspace: Keyspace) -> bool {
    !is_own(keyspace) && !is_leaves(keyspace)
}

/// What is told of changes whatever commands name.
const OF_CHANGES: u32 = WANTS_CHANGES
    | EventClass::Expired.bit()
    | EventClass::Hash.bit()
    | EventClass::Generic.bit()
    | EventClass::Evicted.bit()
    | EventClass::New.bit();
/// Memory for events is asked for in steps of so much.
const STEP_BYTES: u64 = 64 << 10;
