//! Paged collections that an access has put together: lookups lend them out until something changes.

use std::cell::{Cell, OnceCell};

use crate::error::Stop;

/// Collections that were put together, kept as long as the access does not change.
#[derive(Default)]
pub(super) struct Gathered {
    first: OnceCell<Box<(u64, Vec<u8>, Self)>>,
    bytes: Cell<u64>,
}

impl Gathered {
    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// What was put together of `object`, now or before by `gather`.
    pub(super) fn of(
        &self,
        object: u64,
        gather: impl FnOnce() -> Result<Vec<u8>, Stop>,
    ) -> Result<&[u8], Stop> {
        let mut at = &self.first;
        while let Some(kept) = at.get() {
            if kept.0 == object {
                return Ok(&kept.1);
            }
            at = &kept.2.first;
        }
        let value = gather()?;
        self.bytes.set(self.bytes.get() + value.len() as u64);
        Ok(&at.get_or_init(|| Box::new((object, value, Self::default()))).1)
    }
}
