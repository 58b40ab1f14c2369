//! Policies on the bits of a slot, with a hand that passes all slots in the order of the index.

use crate::Cache;
use crate::policy::{self, Room, Round, Verdict};

/// What a slot knows.
#[derive(Clone, Copy, Default)]
struct Slot {
    in_memory: bool,
    level: u8,
    /// On disk: dropped, or read, since the hand passed.
    mark: bool,
}

/// How a [`Clock`] works.
#[derive(Clone, Copy)]
pub(crate) struct Rule {
    /// Level that reads do not raise any more; the hand lowers by 1.
    pub(crate) level_max: u8,
    /// A value that was dropped leaves a mark, and comes back at level 1.
    pub(crate) ghosts: bool,
    /// A value gets into full memory if its slot has a mark; reads leave marks.
    pub(crate) second: bool,
}

/// CLOCK, which clears each mark that it passes.
pub(crate) struct Clock {
    slots: Vec<Slot>,
    hand: usize,
    values: usize,
    room: usize,
    rule: Rule,
}

impl Clock {
    pub(crate) fn new(keys: usize, room: usize, rule: Rule) -> Self {
        Self { slots: vec![Slot::default(); keys], hand: 0, values: 0, room, rule }
    }

    fn keep(&mut self, key: usize, level: u8) {
        while self.values >= self.room {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            let Some(lower) = slot.level.checked_sub(1) else {
                let dropped = slot.in_memory;
                *slot = Slot { mark: dropped && self.rule.ghosts, ..Slot::default() };
                self.values -= usize::from(dropped);
                continue;
            };
            slot.level = lower;
        }
        self.slots[key] = Slot { in_memory: true, level, mark: false };
        self.values += 1;
    }
}

impl Cache for Clock {
    fn read(&mut self, key: usize) -> bool {
        let is_short = self.values >= self.room;
        let slot = &mut self.slots[key];
        if slot.in_memory {
            slot.level = (slot.level + 1).min(self.rule.level_max);
            return true;
        }
        if is_short && self.rule.second && !slot.mark {
            slot.mark = true;
            return false;
        }
        let level = u8::from(slot.mark);
        self.keep(key, level);
        false
    }

    fn write(&mut self, key: usize) {
        if !self.slots[key].in_memory {
            self.keep(key, 0);
        }
    }
}

/// What the store does.
pub(crate) struct Own {
    slots: Vec<Slot>,
    hand: usize,
    values: usize,
    room: usize,
    round: Round,
}

impl Own {
    pub(crate) fn new(keys: usize, room: usize) -> Self {
        Self { slots: vec![Slot::default(); keys], hand: 0, values: 0, room, round: Round::default() }
    }

    fn keep(&mut self, key: usize, level: u8) {
        while self.values >= self.room {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if !slot.in_memory {
                slot.mark = slot.mark && self.round.pass_mark();
            } else if let Some(level) = self.round.pass_value(slot.level, false) {
                slot.level = level;
            } else {
                *slot = Slot::default();
                self.values -= 1;
            }
            if self.hand == 0 {
                self.round.end();
            }
        }
        self.slots[key] = Slot { in_memory: true, level, mark: false };
        self.values += 1;
    }
}

impl Cache for Own {
    fn read(&mut self, key: usize) -> bool {
        let room = if self.values < self.room { Room::Ample } else { Room::Short };
        let slot = &mut self.slots[key];
        if slot.in_memory {
            slot.level = policy::touched(slot.level);
            return true;
        }
        match policy::admit(slot.mark, room) {
            Verdict::Keep(level) => self.keep(key, level),
            Verdict::Mark => slot.mark = true,
        }
        false
    }

    fn write(&mut self, key: usize) {
        if !self.slots[key].in_memory {
            self.keep(key, 0);
        }
    }
}
