//! Memory that a command asks for before it makes something: its effects, its reply, and what it needs on its way.
//!
//! What comes to no more than its request, and a little, it need not ask for.
//!
//! Invariants
//!   1. Effects are never more than `EFFECTS_STEP_BYTES` ahead of what was asked for.
//!
//! Out of scope: whether there is room (`memory`).

use super::Access;
use crate::engine::Credits;
use crate::error::{Stop, StoreError};

impl Access<'_> {
    /// Effects take so much memory that others must know of it.
    #[cold]
    pub(super) fn ask_for_effects(&mut self) {
        let (bytes, log_bytes) = self.overlay.bytes();
        let more_bytes = bytes - self.effects_bytes;
        let limit_bytes = self.store.options.transaction_bytes_max;
        if log_bytes > limit_bytes {
            let error = StoreError::TransactionTooLarge { size_bytes: log_bytes, limit_bytes };
            self.stopped.get_or_insert(error.into());
        }
        if self.asks(more_bytes).is_some() {
            self.effects_bytes = bytes;
        }
    }

    /// As [`Access::ask`]; what is refused stops the command.
    pub(super) fn asks(&mut self, bytes: u64) -> Option<()> {
        if let Err(stop) = self.ask(bytes) {
            self.stopped.get_or_insert(stop);
        }
        if self.stopped.is_none() { Some(()) } else { None }
    }

    /// Asks for memory before so many bytes are made that the command holds beside what it has asked for: effects, its reply, and what it
    /// needs on its way. What comes to no more than its request, and a little, it need not ask for.
    ///
    /// # Errors
    /// [`Stop::Busy`] when there will be room, which is made; [`StoreError::MemoryLimit`], [`StoreError::TooMuchAtOnce`].
    pub fn ask(&self, bytes: u64) -> Result<(), Stop> {
        loop {
            match self.ask_now(bytes) {
                Err(Stop::Busy) if self.reads_here() => self.await_room(bytes)?,
                asked => return asked,
            }
        }
    }

    /// As [`Access::ask`], of the room that there is: a stripe is locked.
    pub(super) fn ask_now(&self, bytes: u64) -> Result<(), Stop> {
        let made_bytes = self.made_bytes.get().saturating_add(bytes);
        let credit_bytes = self.credits.as_ref().map_or(0, Credits::held_bytes);
        let free_bytes = FREE_BYTES + credit_bytes;
        if made_bytes > free_bytes {
            let memory = &self.store.memory;
            let more_bytes = bytes.min(made_bytes - free_bytes);
            memory.ask(self.store.accounts(), &mut self.asked.borrow_mut(), more_bytes, credit_bytes)?;
        }
        self.made_bytes.set(made_bytes);
        Ok(())
    }

    /// So much of what was asked for is counted elsewhere from now on, or is gone.
    pub(super) fn give_back(&self, bytes: u64) {
        self.made_bytes.set(self.made_bytes.get().saturating_sub(bytes));
        if let Some(asked) = &mut *self.asked.borrow_mut() {
            asked.take(bytes);
        }
    }
}

/// What a command makes beyond its request without asking.
const FREE_BYTES: u64 = 64 << 10;
