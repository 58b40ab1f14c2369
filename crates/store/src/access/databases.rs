//! Effects on whole databases: all keys are gone, or have another number.

use journal::Keyspace;

use super::Access;
use crate::error::Stop;

impl Access<'_> {
    /// Empties database `db`.
    ///
    /// # Errors
    /// [`Stop::Refused`] unless the scope is [`Scope::Everything`](super::Scope::Everything).
    pub fn flush(&mut self, db: u16) -> Result<(), Stop> {
        self.change_mapping(|mapping, next| {
            if let Some(id) = mapping.get_mut(usize::from(db)) {
                *id = *next;
                *next = next.plus(1);
            }
        })
    }

    /// Empties all databases.
    ///
    /// # Errors
    /// [`Stop::Refused`] unless the scope is [`Scope::Everything`](super::Scope::Everything).
    pub fn flush_all(&mut self) -> Result<(), Stop> {
        self.change_mapping(|mapping, next| {
            for id in mapping {
                *id = *next;
                *next = next.plus(1);
            }
        })
    }

    /// Exchanges the contents of two databases.
    ///
    /// # Errors
    /// [`Stop::Refused`] unless the scope is [`Scope::Everything`](super::Scope::Everything).
    pub fn swap(&mut self, a: u16, b: u16) -> Result<(), Stop> {
        self.change_mapping(|mapping, _| {
            if usize::from(a.max(b)) < mapping.len() {
                mapping.swap(a.into(), b.into());
            }
        })
    }

    fn change_mapping(&mut self, change: impl FnOnce(&mut Vec<Keyspace>, &mut Keyspace)) -> Result<(), Stop> {
        self.guards.everything()?;
        let index = &self.store.index;
        let (mapping, next) = self.overlay.change_mapping(|| (index.mapping(), index.next_keyspace()));
        change(mapping, next);
        Ok(())
    }
}
