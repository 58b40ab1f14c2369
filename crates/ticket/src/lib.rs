//! What a reply waits for: the store gives it, loops hold replies by it, and neither looks inside.
//!
//! ```text
//!  store: commit -> Ticket -> server: session, capture -> reactor: Output::hold, ... until Protocol::released() covers it
//! ```
//!
//! A watermark ("everything up to here is durable") is a ticket as well: it covers the tickets whose replies may leave.
//!
//! Invariants
//!   1. What a ticket consists of, and how two are compared, is known here alone. Others ask [`Ticket::is_covered_by`], and join
//!      tickets with [`Ticket::and`] and [`Ticket::or`]. A ticket of more than one number changes this file, and whoever calls
//!      [`Ticket::pack`].
//!   2. No user may conclude from `!a.is_covered_by(b)` that `b` is covered by `a`.
//!
//! It is a crate of its own because the loops, which hold replies, and the store, which knows what is durable, do not import each
//! other. Out of scope: when something is durable (`journal`), which effects a reply depends on (`store`).

/// What must be durable before a reply leaves. Not ordered: see the invariants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// Waits for nothing: every watermark covers it.
    pub const NOTHING: Self = Self(0);
    /// As a watermark it covers every ticket; as a ticket it is covered by itself alone.
    pub const EVERYTHING: Self = Self(u64::MAX);

    /// Waits for the effect with sequence number `seq`, and for all before it; 0 waits for nothing.
    #[must_use]
    pub const fn of(seq: u64) -> Self {
        Self(seq)
    }

    /// Whether it waits for nothing.
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// Whether what `self` waits for has happened once what `other` waits for has.
    #[must_use]
    pub const fn is_covered_by(self, other: Self) -> bool {
        self.0 <= other.0
    }

    /// Waits for both: the least that covers `self` and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }

    /// The most that is covered by both: a watermark that covers `self` or `other` covers it too.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// The ticket as one word, for an atomic.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.0
    }

    /// The inverse of [`Ticket::pack`].
    #[must_use]
    pub const fn unpack(packed: u64) -> Self {
        Self(packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_covered_by_their_and_and_cover_their_or() {
        let all = [Ticket::NOTHING, Ticket::of(1), Ticket::of(7), Ticket::EVERYTHING];
        for (a, b) in all.iter().flat_map(|&a| all.map(|b| (a, b))) {
            assert!(a.is_covered_by(a.and(b)) && b.is_covered_by(a.and(b)), "{a:?} and {b:?}");
            assert!(a.or(b).is_covered_by(a) && a.or(b).is_covered_by(b), "{a:?} or {b:?}");
        }
    }

    #[test]
    fn nothing_is_covered_by_all_and_everything_covers_all() {
        for ticket in [Ticket::NOTHING, Ticket::of(1), Ticket::EVERYTHING] {
            assert!(Ticket::NOTHING.is_covered_by(ticket) && ticket.is_covered_by(Ticket::EVERYTHING));
            assert_eq!(Ticket::unpack(ticket.pack()), ticket);
            assert_eq!(ticket.is_nothing(), ticket == Ticket::NOTHING);
        }
    }
}
