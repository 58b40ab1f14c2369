//! Which task of a component owns which keys: ranges of hashes, so that more or fewer tasks move few of them.
//!
//! Invariants
//!   1. Every hash has exactly one owner.
//!   2. Ranges of two owners differ by at most one.
//!   3. A change of the number of tasks moves no more ranges than evenness needs.
//!
//! A range is one of [`RANGES`] equal parts of all 64-bit hashes: more than a component can have tasks, so none is without work.
//! State is keys of the store, so a range that moves is a new owner, and no data is copied.
//! Source: consistent assignment by fixed buckets, as the slots of Redis Cluster.

/// The owner of each range: the place of a task among those of its component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    owner: Vec<u16>,
    tasks: u16,
}

impl Ranges {
    /// All ranges, evenly among `tasks` tasks.
    ///
    /// # Panics
    /// If there is no task, or more than there are ranges.
    #[must_use]
    pub fn new(tasks: u32) -> Self {
        let tasks = count(tasks);
        let owner = (0..RANGES).map(|range| (range * usize::from(tasks) / RANGES) as u16).collect();
        Self { owner, tasks }
    }

    /// The same ranges for another number of tasks.
    ///
    /// # Panics
    /// As [`Ranges::new`].
    #[must_use]
    pub fn rebalanced(&self, tasks: u32) -> Self {
        let tasks = count(tasks);
        let mut room = self.room(tasks);
        let mut owner = self.owner.clone();
        let mut free = Vec::new();
        for (range, owner) in owner.iter().enumerate() {
            match room.get_mut(usize::from(*owner)) {
                Some(room) if *room > 0 => *room -= 1,
                _ => free.push(range),
            }
        }
        let takers = room.iter().enumerate().flat_map(|(task, &room)| std::iter::repeat_n(task as u16, room));
        for (range, taker) in free.iter().zip(takers) {
            owner[*range] = taker;
        }
        assert_eq!(room.iter().sum::<usize>(), free.len(), "as much room as there are free ranges");
        Self { owner, tasks }
    }

    /// The place of the task that owns `hash`.
    #[must_use]
    pub fn owner(&self, hash: u64) -> u32 {
        u32::from(self.owner[((u128::from(hash) * RANGES as u128) >> 64) as usize])
    }

    /// How many tasks own them.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        u32::from(self.tasks)
    }

    /// How many ranges have another owner in `other`.
    #[must_use]
    pub fn moved(&self, other: &Self) -> usize {
        self.owner.iter().zip(&other.owner).filter(|(old, new)| old != new).count()
    }

    /// How many ranges each of `tasks` tasks is to have: those that have more now get the remainder of the division.
    fn room(&self, tasks: u16) -> Vec<usize> {
        let mut held = vec![0_usize; usize::from(tasks)];
        for &owner in self.owner.iter().filter(|&&owner| owner < tasks) {
            held[usize::from(owner)] += 1;
        }
        let (share, rest) = (RANGES / usize::from(tasks), RANGES % usize::from(tasks));
        let mut by_held: Vec<usize> = (0..held.len()).collect();
        by_held.sort_by_key(|&task| (std::cmp::Reverse(held[task]), task));
        let mut room = vec![share; usize::from(tasks)];
        by_held.iter().take(rest).for_each(|&task| room[task] += 1);
        room
    }
}

fn count(tasks: u32) -> u16 {
    assert!(tasks > 0 && tasks as usize <= RANGES, "{tasks} tasks cannot own {RANGES} ranges");
    tasks as u16
}

/// How many ranges there are.
pub const RANGES: usize = 16_384;

const _: () = assert!(RANGES as u64 >= crate::plan::TASKS_MAX && RANGES <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn held(ranges: &Ranges) -> Vec<usize> {
        let of = |task: u32| ranges.owner.iter().filter(|&&owner| u32::from(owner) == task).count();
        (0..ranges.tasks()).map(of).collect()
    }

    fn assert_even(ranges: &Ranges) {
        let held = held(ranges);
        assert_eq!(held.iter().sum::<usize>(), RANGES);
        assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "{held:?}");
    }

    #[test]
    fn lowest_and_highest_hash_have_owners() {
        let ranges = Ranges::new(3);
        assert_eq!((ranges.owner(0), ranges.owner(u64::MAX), ranges.tasks()), (0, 2, 3));
    }

    #[test]
    fn one_more_task_takes_its_share_and_nothing_else_moves() {
        let before = Ranges::new(4);
        let after = before.rebalanced(5);
        assert_even(&after);
        assert_eq!(before.moved(&after), RANGES / 5);
    }

    #[test]
    fn one_task_less_moves_only_what_it_had() {
        let before = Ranges::new(5);
        let after = before.rebalanced(4);
        assert_even(&after);
        assert_eq!(before.moved(&after), held(&before)[4]);
    }

    #[test]
    fn as_many_tasks_as_before_move_nothing() {
        let ranges = Ranges::new(6);
        assert_eq!(ranges.rebalanced(6), ranges);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_change_is_even_and_moves_least(counts in prop::collection::vec(1_u32..200, 2..5)) {
            let mut ranges = Ranges::new(counts[0]);
            for &tasks in &counts[1..] {
                let after = ranges.rebalanced(tasks);
                assert_even(&after);
                let (old, new) = (held(&ranges), held(&after));
                let gain = |task: usize| new[task].saturating_sub(old.get(task).copied().unwrap_or(0));
                prop_assert_eq!(ranges.moved(&after), (0..new.len()).map(gain).sum::<usize>());
                ranges = after;
            }
        }
    }
}
