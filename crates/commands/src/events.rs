//! The events that commands name, by Redis's names: what is told of a change to those who listen (`notify.keyspace_events`).
//!
//! A command names an event where it has changed something, under the key that it has changed; it is told once the change has happened.
//! Source: the calls of `notifyKeyspaceEvent` in Redis 7.0, and in 7.4 about fields.

use store::EventClass;

use crate::call::{Data, Outcome};

impl Data<'_, '_> {
    /// Names something that has happened to `key`.
    #[inline]
    pub(crate) fn event(&self, class: EventClass, name: &'static str, key: &[u8]) {
        self.access.event(class, name, self.db, key);
    }

    /// Names that `key` was removed, if it was.
    #[inline]
    pub(crate) fn removed(&self, key: &[u8], was_there: bool) {
        if was_there {
            self.event(EventClass::Generic, "del", key);
        }
    }

    /// Names that elements were taken from `key` so many times; and that the key went with the last of them, if it did.
    ///
    /// # Errors
    /// As [`store::Access::meta`].
    #[inline]
    pub(crate) fn taken(&self, class: EventClass, name: &'static str, key: &[u8], times: usize) -> Outcome {
        if times == 0 || !(self.access.tells(class) || self.access.tells(EventClass::Generic)) {
            return Ok(());
        }
        (0..times).for_each(|_| self.event(class, name, key));
        let is_gone = self.access.meta(self.db, key)?.is_none();
        self.removed(key, is_gone);
        Ok(())
    }

    /// Names what became of `target`, which a command has stored: made, or gone where nothing was to be stored.
    #[inline]
    pub(crate) fn stored(
        &self,
        class: EventClass,
        name: &'static str,
        target: &[u8],
        is_made: bool,
        was_there: bool,
    ) {
        if is_made {
            self.event(class, name, target);
        } else {
            self.removed(target, was_there);
        }
    }

    /// Whether `key` is there, where somebody wants to hear of keys that are new: what takes its place is, too.
    ///
    /// # Errors
    /// As [`store::Access::meta`].
    pub(crate) fn tells_new(&self, db: u16, key: &[u8]) -> Result<bool, store::Stop> {
        Ok(self.access.tells(EventClass::New) && self.access.meta(db, key)?.is_some())
    }

    /// Whether `key` is there, where somebody wants to hear if it goes; otherwise `false`.
    ///
    /// # Errors
    /// As [`store::Access::meta`].
    #[inline]
    pub(crate) fn may_go(&self, key: &[u8]) -> Result<bool, store::Stop> {
        if self.access.tells(EventClass::Generic) {
            Ok(self.access.meta(self.db, key)?.is_some())
        } else {
            Ok(false)
        }
    }
}
