//! Which values stay in memory when not all do: the decisions alone, on the few bits that a slot has for it.
//!
//! ```text
//! value in memory   level 0..=LEVEL_MAX   + 1 at each read;  - 1 when the hand passes, which drops it at 0
//! value on disk     mark                  set by a read when memory is short;  the next read then keeps the value
//! ```
//!
//! So a value gets into full memory at its second read, and what passes over all data once displaces nothing. The hand clears
//! marks, but only after a round in which it met more marks than values in memory: marks are then a list of about as many values as memory holds that
//! were read lately, and each of them lasts for a whole round at least.
//!
//! Chosen by measurement: `cargo run --release -p store --example policies`, docs/adr/0022-which-values-stay-in-memory.md.
//! Sources: second-chance clock with a counter; S3-FIFO (Yang et al. 2023) and 2Q for the list of what was read once.
//!
//! Out of scope: when memory is short and how the hand moves (`memory`), where the bits lie (`object`).

/// Level that one more read does not raise.
pub(crate) const LEVEL_MAX: u8 = 2;

/// The level of a value in memory after a read.
#[inline]
pub(crate) fn touched(level: u8) -> u8 {
    if level < LEVEL_MAX { level + 1 } else { level }
}

/// The level of a value that takes the place of one of `level` in memory. Where there was none it begins at 0.
pub(crate) fn rewritten(level: u8) -> u8 {
    level.max(1)
}

/// What memory has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// More values, without others having to go.
    Ample,
    /// Values for which others go.
    Short,
    /// Nothing for now.
    Full,
}

/// What becomes of a value that was read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays in memory, at this level.
    Keep(u8),
    /// It goes; its slot is marked.
    Mark,
}

/// What becomes of a value that was read from disk, from a slot with or without a mark.
pub(crate) fn admit(is_marked: bool, room: Room) -> Verdict {
    match (room, is_marked) {
        (Room::Ample | Room::Short, true) => Verdict::Keep(1),
        (Room::Ample, false) => Verdict::Keep(0),
        (Room::Short, false) | (Room::Full, _) => Verdict::Mark,
    }
}

/// What the hand has met in this round over all slots, and what it does with marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    values: u64,
    marks: u64,
    clears: bool,
}

impl Round {
    /// The hand passes a value in memory: its level from now on, `None` if it is to go. In a hurry nothing stays for more than one
    /// more round.
    pub(crate) fn pass_value(&mut self, level: u8, hurries: bool) -> Option<u8> {
        self.values += 1;
        let lower = level.checked_sub(1)?;
        Some(if hurries { 0 } else { lower })
    }

    /// The hand passes a mark; returns whether it stays.
    pub(crate) fn pass_mark(&mut self) -> bool {
        self.marks += 1;
        !self.clears
    }

    /// The hand has passed all slots, and begins again.
    pub(crate) fn end(&mut self) {
        *self = Self { clears: self.marks > self.values, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_rises_with_reads_and_falls_with_the_hand_until_the_value_goes() {
        let (mut round, mut levels) = (Round::default(), vec![0]);
        (0..4).for_each(|_| levels.push(touched(levels[levels.len() - 1])));
        assert_eq!(levels, [0, 1, 2, 2, 2]);
        assert_eq!([2, 1, 0].map(|level| round.pass_value(level, false)), [Some(1), Some(0), None]);
        assert_eq!([2, 1, 0].map(|level| round.pass_value(level, true)), [Some(0), Some(0), None]);
        assert_eq!([0, 1, 2].map(rewritten), [1, 1, 2]);
    }

    #[test]
    fn value_gets_into_full_memory_at_its_second_read() {
        let all = [Room::Ample, Room::Short, Room::Full];
        assert_eq!(all.map(|room| admit(false, room)), [Verdict::Keep(0), Verdict::Mark, Verdict::Mark]);
        assert_eq!(all.map(|room| admit(true, room)), [Verdict::Keep(1), Verdict::Keep(1), Verdict::Mark]);
    }

    #[test]
    fn marks_stay_until_a_round_met_more_of_them_than_values() {
        let mut round = Round::default();
        for (values, marks, stay) in [(3, 3, true), (3, 4, true), (3, 4, false), (4, 4, false), (4, 4, true)]
        {
            assert!((0..values).all(|_| round.pass_value(1, false) == Some(0)));
            assert!((0..marks).all(|_| round.pass_mark() == stay), "{values} values, {marks} marks");
            round.end();
        }
    }
}
