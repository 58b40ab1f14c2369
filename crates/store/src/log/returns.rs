//! Whether a delete that finds no room on a full disk waits or is refused.
//!
//! It waits until housekeeping has looked at the log as it is now, and then for as long as housekeeping finds segments that can come back.
//!
//! ```text
//! delete:        no room --waits--> waits for credits           (refused: nothing was appended since nothing was found)
//! housekeeping:  turn --found something--> goes on, without a rest while somebody waits
//!                     --found nothing----> notes the lsn, wakes who waits
//! ```
//!
//! Without turns by a thread nobody waits. Out of scope: what can come back (`housekeeping`), waking when it has (`journal`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use journal::Lsn;

/// What deletes may count on, shared by them and housekeeping.
#[derive(Debug)]
pub(crate) struct Returns {
    /// The next lsn when housekeeping found that nothing can come back; [`SOMETHING`], or [`NOBODY_LOOKS`].
    nothing_at: AtomicU64,
    /// A delete waits.
    awaited: AtomicBool,
}

impl Default for Returns {
    fn default() -> Self {
        Self { nothing_at: AtomicU64::new(NOBODY_LOOKS), awaited: AtomicBool::new(false) }
    }
}

impl Returns {
    /// Whether a delete that found no room while `next_lsn` was next had better wait.
    pub(crate) fn may_come(&self, next_lsn: Lsn) -> bool {
        // noted first: housekeeping that finds nothing after this look wakes whoever has noted it
        self.awaited.store(true, Ordering::SeqCst);
        let nothing_at = self.nothing_at.load(Ordering::SeqCst);
        nothing_at != NOBODY_LOOKS && nothing_at != next_lsn.0
    }

    /// Whether a delete waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst)
    }

    /// Housekeeping, which began to look when `next_lsn` was next, found something, or not; returns whether somebody is to be woken.
    pub(crate) fn note(&self, next_lsn: Lsn, found: bool) -> bool {
        self.nothing_at.store(if found { SOMETHING } else { next_lsn.0 }, Ordering::SeqCst);
        !found && self.awaited.swap(false, Ordering::SeqCst)
    }

    /// Somebody is about to look.
    pub(crate) fn begin(&self) {
        self.nothing_at.store(SOMETHING, Ordering::SeqCst);
    }

    /// Nobody looks any more; returns whether somebody is to be woken.
    pub(crate) fn end(&self) -> bool {
        self.nothing_at.store(NOBODY_LOOKS, Ordering::SeqCst);
        self.awaited.swap(false, Ordering::SeqCst)
    }
}

/// No record has this lsn next.
const SOMETHING: u64 = 0;
const NOBODY_LOOKS: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_is_refused_only_when_housekeeping_found_nothing_in_the_log_as_it_is() {
        let returns = Returns::default();
        assert!(!returns.may_come(Lsn(5)), "nobody looks");
        returns.begin();
        assert!(returns.may_come(Lsn(5)), "the first look comes");
        assert!(!returns.note(Lsn(5), true), "who waits goes on waiting");
        assert!(returns.may_come(Lsn(5)) && returns.is_awaited());
        assert!(returns.note(Lsn(5), false), "who waits learns it");
        assert!(!returns.is_awaited() && !returns.may_come(Lsn(5)));
        assert!(returns.may_come(Lsn(6)), "something was appended since");
        assert!(returns.note(Lsn(6), false));
        assert!(!returns.note(Lsn(6), false), "nobody waits any more");
        assert!(returns.may_come(Lsn(7)));
        assert!(returns.end() && !returns.may_come(Lsn(7)));
    }
}
