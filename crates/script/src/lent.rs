//! A reference that is lent for the time of a call: functions that outlive it find it there, and nothing behind it.
//!
//! `redis.call` is made once for each interpreter, and what it calls is there while a script runs.
#![allow(
    unsafe_code,
    reason = "the lifetime of what is lent is left out of its type; proofs beside each block"
)]

use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;

use super::host::Host;

/// A host, while somebody lends one.
#[derive(Default)]
pub(super) struct Lent(Cell<Option<NonNull<dyn Host>>>);

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lent")
    }
}

impl Lent {
    /// Lends `host` while `work` runs.
    pub(super) fn lend<R>(&self, host: &mut dyn Host, work: impl FnOnce() -> R) -> R {
        struct Ended<'a>(&'a Lent);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.0.set(None);
            }
        }
        let host: NonNull<dyn Host + '_> = NonNull::from(host);
        // SAFETY: only the lifetime changes. The pointer is taken out below before `host` ends, also if `work` panics.
        let host: NonNull<dyn Host> = unsafe { std::mem::transmute(host) };
        self.0.set(Some(host));
        let _ended = Ended(self);
        work()
    }

    /// Calls `work` with the host; `None` if there is none, or somebody has it already.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut host = self.0.take()?;
        // SAFETY: the pointer is there only within `lend`, which holds the exclusive reference it was made of; and it was taken out, so
        // nobody else makes a reference of it meanwhile.
        let result = work(unsafe { host.as_mut() });
        self.0.set(Some(host));
        Some(result)
    }
}
