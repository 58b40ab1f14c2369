//! What the tasks of an exactly-once spout have emitted before: as they are dealt now, and as they were when there was another number of them.
//!
//! A position of task `p` of `n` says that this task has emitted all of its share up to there. That stays true when the spout has another number of tasks, whose
//! shares are other ones. So positions for other numbers are kept beside those of today, and a tuple is done if any of them says so:
//!
//! ```text
//!  2 tasks:  0 up to 40, 1 up to 25        3 tasks:  0 up to 31, 1 nothing yet, 2 up to 33
//!            all up to 25 is done; of 26 to 40 that which was of task 0 of 2; of what is left, that which is of task 0 of 3 up to 31, of task 2 up to 33
//! ```
//!
//! Out of scope: whose share a tuple is, which the spout knows.

use crate::tracker::Position;

/// What the tasks of a spout had emitted last, by their places, when there were so many of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Former(pub Vec<Option<Position>>);

/// What a task of a spout goes on behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The last tuple that this task has emitted.
    pub after: Option<Position>,
    /// The same of the tasks that there were, for each number of tasks.
    pub former: Vec<Former>,
}

impl Former {
    /// All up to this position is done: none if a task has emitted nothing.
    #[must_use]
    pub fn least(&self) -> Option<Position> {
        self.0.iter().copied().min().flatten()
    }

    /// Nothing beyond this position is done.
    #[must_use]
    pub fn most(&self) -> Option<Position> {
        self.0.iter().copied().max().flatten()
    }
}

impl Past {
    /// A past of this number of tasks alone.
    #[must_use]
    pub fn after(after: Option<Position>) -> Self {
        Self { after, former: Vec::new() }
    }

    /// The task has nothing left to emit up to this position, whoever has emitted it.
    #[must_use]
    pub fn begin(&self) -> Option<Position> {
        self.former.iter().map(Former::least).max().flatten().max(self.after)
    }

    /// Where tasks were that had emitted something: the lowest, where there is no [`Past::begin`].
    #[must_use]
    pub fn lowest(&self) -> Option<Position> {
        self.former.iter().flat_map(|former| former.0.iter().copied().flatten()).min()
    }

    /// Whether the tuple at `position` was emitted by a task that there was; `place`: which task of so many has it.
    #[must_use]
    pub fn is_done(&self, position: Position, place: impl Fn(u64) -> u64) -> bool {
        self.former.iter().any(|Former(positions)| {
            let place = place(positions.len() as u64) as usize;
            positions.get(place).is_some_and(|last| *last >= Some(position))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(all: &[Option<u128>]) -> Former {
        Former(all.iter().map(|it| it.map(Position)).collect())
    }

    #[test]
    fn each_tuple_is_of_one_task_however_often_their_number_changes() {
        // The share of a tuple is its remainder; tasks of each generation stop anywhere.
        let mut emitted = vec![0; 200];
        let mut saved: Vec<Former> = Vec::new();
        for (round, tasks) in [2_u64, 3, 1, 3, 5, 2].into_iter().enumerate() {
            let own = saved.iter().position(|it| it.0.len() as u64 == tasks);
            let own = own.map_or_else(|| Former(vec![None; tasks as usize]), |at| saved.remove(at));
            let mut now = own.clone();
            for place in 0..tasks {
                let past = Past { after: own.0[place as usize], former: saved.clone() };
                let begin = past.begin().map_or(0, |position| position.0 as u64 + 1);
                let end = 30 * (round as u64 + 1) + 7 * place;
                for n in (begin..end).filter(|n| n % tasks == place) {
                    if !past.is_done(Position(n.into()), |tasks| n % tasks) {
                        emitted[n as usize] += 1;
                        now.0[place as usize] = Some(Position(n.into()));
                    }
                }
            }
            saved.push(now);
        }
        assert!(emitted[..180].iter().all(|count| *count == 1), "{emitted:?}");
        assert!(emitted.iter().all(|count| *count <= 1), "{emitted:?}");
    }

    #[test]
    fn begin_is_where_nothing_before_is_left() {
        let past = |after: Option<u128>, former: &[&[Option<u128>]]| Past {
            after: after.map(Position),
            former: former.iter().map(|it| positions(it)).collect(),
        };
        assert_eq!(past(None, &[&[Some(40), Some(25)]]).begin(), Some(Position(25)));
        assert_eq!(past(None, &[&[Some(40), None]]).begin(), None);
        assert_eq!(past(None, &[&[Some(40), None]]).lowest(), Some(Position(40)));
        assert_eq!(past(Some(31), &[&[Some(40), Some(25)], &[Some(30)]]).begin(), Some(Position(31)));
    }
}
