//! A command that waits, while it looks beside the loops for what it wants: whether it finds something, or CLIENT UNBLOCK ends it first.
//!
//! ```text
//!  none -> looks -> found: nobody ends it any more -> none
//!            ^  \-- unblocked: what it finds is left where it is -> none
//!            '---- found, and its commit was stopped
//! ```
//!
//! Invariants
//!   1. A look is found or unblocked, and whoever was first knows.
//!   2. Its loop begins and ends it, under the lock of the lines if the command stands in line.
//!
//! Out of scope: what the command is answered with (`blocked`), how it looks (`long`).

use std::sync::atomic::{AtomicU8, Ordering};

use commands::command::Flags;
use commands::lookup::Entry;
use commands::words::is;
use resp::ArgsView;

/// The look of a connection's command.
#[derive(Debug, Default)]
pub(crate) struct Look(AtomicU8);

/// What CLIENT UNBLOCK has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// Nothing looks, or it was unblocked before.
    Nothing,
    /// It is over now, by whoever asks.
    Ended,
    /// It has found something, which is not sure to happen yet.
    Found,
}

impl Look {
    /// The command looks from now on.
    pub(crate) fn begin(&self) {
        self.0.store(LOOKS, Ordering::Release);
    }

    /// It has found something; whether it may have it.
    pub(crate) fn find(&self) -> bool {
        self.go_on(FOUND)
    }

    /// What it has found did not happen.
    pub(crate) fn miss(&self) {
        _ = self.0.compare_exchange(FOUND, LOOKS, Ordering::AcqRel, Ordering::Acquire);
    }

    /// It is to stand in line, where others end its wait; whether it may.
    pub(crate) fn stand(&self) -> bool {
        self.go_on(NONE)
    }

    /// The look becomes `to`, unless it was unblocked; returns whether it was not.
    fn go_on(&self, to: u8) -> bool {
        let before = self.0.compare_exchange(LOOKS, to, Ordering::AcqRel, Ordering::Acquire);
        !matches!(before, Err(UNBLOCKED | UNBLOCKED_WITH_ERROR))
    }

    /// Ends the look, if it has found nothing.
    pub(crate) fn unblock(&self, with_error: bool) -> Met {
        let to = if with_error { UNBLOCKED_WITH_ERROR } else { UNBLOCKED };
        match self.0.compare_exchange(LOOKS, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Met::Ended,
            Err(FOUND) => Met::Found,
            Err(_) => Met::Nothing,
        }
    }

    /// The command is back on its loop; whether it was unblocked, and with an error.
    pub(crate) fn end(&self) -> Option<bool> {
        match self.0.swap(NONE, Ordering::AcqRel) {
            UNBLOCKED => Some(false),
            UNBLOCKED_WITH_ERROR => Some(true),
            _ => None,
        }
    }
}

/// Whether a command waits that finds nothing.
pub(crate) fn may_wait(entry: &Entry, args: ArgsView<'_>) -> bool {
    let options_at = match entry.command.name {
        "xread" => 1,
        "xreadgroup" => 4,
        _ => return entry.command.flags.has(Flags::BLOCKING),
    };
    args.iter().skip(options_at).take_while(|word| !is(word, "streams")).any(|word| is(word, "block"))
}

const NONE: u8 = 0;
const LOOKS: u8 = 1;
const FOUND: u8 = 2;
const UNBLOCKED: u8 = 3;
const UNBLOCKED_WITH_ERROR: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_is_found_or_unblocked_by_whoever_is_first() {
        let look = Look::default();
        assert_eq!(look.unblock(false), Met::Nothing, "it does not look");
        look.begin();
        assert!(look.find());
        assert_eq!((look.unblock(false), look.end()), (Met::Found, None));
        look.begin();
        assert!(look.find());
        look.miss();
        assert_eq!((look.unblock(true), look.unblock(true)), (Met::Ended, Met::Nothing));
        assert!(!look.find() && !look.stand());
        look.miss();
        assert_eq!((look.end(), look.end()), (Some(true), None));
        look.begin();
        assert!(look.stand());
        assert_eq!(look.unblock(false), Met::Nothing, "it stands in line");
    }
}
